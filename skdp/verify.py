"""skdp-verify: does a report's ε follow from its event? By the standard library alone.

    skdp-verify report.json ...       where no skdp is: this file, intervals.py and policy.py

From the event (the mechanisms), relation and δ of a report an upper bound on ε is proved; only then
is its ε looked at. Reals are intervals that are rounded outward, probabilities whole numbers that
are rounded up. Exit status: 0 yes, 1 no, 2 cannot check. *It proves arithmetic*: (ε, δ) if the event
ran, with true noise, on bounded records. That this is what ran is in no file. Relied on are
[1] Balle & Wang 2018, Dong, Roth & Su 2022: δ(ε) of a Gaussian mechanism, μ² adds. [2] Dong, Durfee
& Rogers 2020, docs/privacy.md §4: draws of a bounded range, as Gaussian ones too; pure ε is range
2ε. [3] Zhu, Dong & Wang 2022, Kairouz, Oh & Viswanath 2017: worst pairs of laws, whose losses add.
[4] Mironov, Talwar & Zhang 2019, Canonne, Kamath & Steinke 2020, Papernot & Steinke 2022: Rényi,
selection. [5] skdp/privacy/discrete.py. [6] McSherry 2009: who is in one part pays for this part.
"""

import json
import math
import sys
from collections import Counter
from decimal import Decimal
from fractions import Fraction
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import NamedTuple

try:
    from skdp.intervals import DOWN, INF, UP, Grid, I, Losses, least, normal
except ImportError:  # copied
    from intervals import DOWN, INF, UP, Grid, I, Losses, least, normal  # type: ignore

SCHEMA, LARGEST = 2, 2**25
RELATIONS = {"zero_out": 1, "add_or_remove_one": 1, "replace_one": 2}  # a sum moves by so many C
TEXTS = ("accountant", "neighboring_relation", "sampling", "tuning", "skdp_version", "unit")
LISTS = ("inferred_public_facts", "unaccounted", "assumptions")
TYPES = {"seeded": bool, "valid": bool, "event": dict, "schema": int}
TYPES |= dict.fromkeys(TEXTS, str) | dict.fromkeys(LISTS, list)
RANGES = {
    "sampling_probability": (0, 1),
    "mean": (1, 1e6),
    "shape": (0, 1e6),
    "delta": (0, 1),
    "count": (0, 1e12),
}
RANGES |= {"n_samples": (1, 1e12), "dimension": (1, 1e12), "lattice_scale": (1e-6, 1e18)}
RANGES |= dict.fromkeys(("noise_multiplier", "epsilon", "eta"), (0, 1e12))
EVENTS = {
    "GaussianDpEvent": ("noise_multiplier",),
    "DiscreteGaussianDpEvent": ("noise_multiplier", "lattice_scale", "dimension"),
    "LaplaceDpEvent": ("noise_multiplier",),
    "PureDpEvent": ("epsilon",),
    "PosteriorSamplesDpEvent": ("eta", "n_samples"),
    "PoissonSampledDpEvent": ("sampling_probability", "event"),
    "RepeatAndSelectDpEvent": ("mean", "shape", "event"),
    "SelfComposedDpEvent": ("count", "event"),
    "PartDpEvent": ("split", "part", "event"),
    "ComposedDpEvent": ("events",),
    "NonPrivateDpEvent": (),
    "NoOpDpEvent": (),
}


class CannotCheckError(ValueError):
    """What this program has no rule for; no verdict."""


class Term(NamedTuple):
    """A mechanism: its noise multiplier, ε, range η, or mean number of runs, and what else."""

    kind: str
    size: Fraction
    rate: Fraction = Fraction(1)  # of Poisson sampling
    apart: Fraction = Fraction(0)  # [5] how far it is from a rounded Gaussian mechanism
    draws: int = 1
    runs: tuple = ()  # shape, unless it is Poisson's, and mechanisms with counts

    def most(self, factor):
        """Largest privacy loss of a mechanism of pure ε."""
        return factor / self.size if self.kind == "laplace" else self.size


def number(event, name):
    """A number of an event, exactly."""
    (low, high), value = RANGES[name], event[name]
    whole = name in ("count", "n_samples", "dimension")
    if type(value) not in (int, float)[: 2 - whole] or not low <= value <= high:
        raise CannotCheckError(f"{name}={value!r:.40} is no number in [{low}, {high:g}]")
    return Fraction(value)


def releases(event, parts=(), depth=0):
    """Mechanisms, their counts, and the parts that they read."""
    kind = event.get("type") if isinstance(event, dict) else None
    if kind not in EVENTS or {*event} != {"type", *EVENTS[kind]} or depth > 40:
        raise CannotCheckError(f"no rule for the event {kind!r:.40} with such fields, {depth} deep")
    names = [name for name in EVENTS[kind] if (name, event[name]) != ("shape", "inf")]
    found = [number(event, name) for name in names if name in RANGES]
    if kind == "PartDpEvent":
        parts = ((event["split"], event["part"]), *parts)
        if {str} != {type(name) for name in parts[0]}:
            raise CannotCheckError("a split or a part is no name")
    below = event.get("events", [event["event"]] if "event" in event else [])
    below = [one for e in below for one in releases(e, parts, depth + 1)]
    if kind in ("ComposedDpEvent", "PartDpEvent"):
        yield from below
    elif kind == "SelfComposedDpEvent":
        yield from ((term, n * int(found[0]), of) for term, n, of in below)
    elif kind == "PoissonSampledDpEvent":
        if event["event"]["type"] not in ("GaussianDpEvent", "DiscreteGaussianDpEvent"):
            raise CannotCheckError("Poisson sampling of another mechanism than a Gaussian one")
        yield from ((term._replace(rate=found[0]), n, of) for term, n, of in below if found[0])
    elif kind == "RepeatAndSelectDpEvent":
        runs = Counter()
        for term, n, _ in below:
            runs[term] += n
        if runs:
            yield Term("select", found[0], runs=(tuple(found[1:]), *runs.items())), 1, parts
    elif kind == "NonPrivateDpEvent":
        yield Term("gauss", Fraction(0)), 1, parts
    elif kind in ("GaussianDpEvent", "DiscreteGaussianDpEvent"):  # how far from a rounded one [5]
        apart = found[2] / (8 * found[1] ** 2) if found[1:] else Fraction(0)
        yield Term("gauss", found[0], apart=apart), 1, parts
    elif kind == "LaplaceDpEvent":
        yield Term("laplace", found[0]), 1, parts
    elif kind == "PosteriorSamplesDpEvent":
        yield Term("range", found[0], draws=int(found[1])), 1, parts
    elif kind == "PureDpEvent":
        yield Term("pure", found[0]), 1, parts


def epsilon_of(event, relation, delta):
    """Upper bound on ε of an event: the most that the records of any choice of parts pay [6]."""
    factor = RELATIONS[relation.removesuffix("_group")]
    found = [(term, n, dict(parts)) for term, n, parts in releases(event) if n]
    splits = {}
    for _, _, parts in found:
        for split, part in parts.items():
            splits.setdefault(split, {})[part] = None
    many, bills = math.prod(map(len, splits.values())) > 64, []
    for choice in [()] if many else product(*splits.values()):
        record, paid = dict(zip(splits, choice, strict=not many)).items(), Counter()
        for term, n, parts in found:
            paid[term] += n if many or parts.items() <= record else 0
        bills.append(epsilon([(term, n) for term, n in paid.items() if n], factor, delta))
    return max(bills)


def epsilon(terms, factor, delta):
    """Least of the upper bounds that apply to a composition of (term, count)."""
    noisy, found = ("gauss", "laplace"), [INF]
    terms = [(t, n) for t, n in terms if t.size or t.kind in noisy]
    kinds = {"sampled" if t.rate < 1 else t.kind for t, _ in terms}
    if any(t.size < Fraction(1, 10**6) for t, _ in terms if t.kind in noisy):
        return INF
    if kinds <= {"pure", "range", "laplace"}:
        found.append(sum((I(t.most(factor)) * t.draws * n for t, n in terms), I(0)).hi)
    if delta == 0 or not terms:
        return min(found)
    if kinds == {"range"} and sum(n for _, n in terms) == 1 and terms[0][0].draws <= 2000:
        return min(*found, one_posterior(I(terms[0][0].size), terms[0][0].draws, delta))
    apart = sum(n * t.apart for t, n in terms)
    if kinds <= {"gauss", "range", "pure"}:
        square = sum((mu_squared(t, factor) * t.draws * n for t, n in terms), I(0))
        curve = partial(gaussian, square)
        found.append(nearby(lambda d: least(lambda e: curve(I(e).exp()).hi, I(d).lo), apart, delta))
    if kinds != {"gauss"} and "select" not in kinds and delta > Fraction(1, 10**16):
        found.append(nearby(convolved(terms, factor, delta), apart, delta))
    if apart or "range" in kinds or min(found) == INF:
        found.append(renyi(terms, factor, delta))
    return min(found)


def nearby(curve, apart, delta):
    """ε of laws that are a distance away: P(S) ≤ e^ε Q(S) + δ + (1 + e^ε) apart [5]."""
    for share in (10**12, 10**10, 10**8, 10**6, 10**4, 1000, 30, 2) if apart else ():
        found = curve(delta - delta / share)
        if found < 700 and apart * (1 + Fraction(I(found).exp().hi)) <= delta / share:
            return found
    return INF if apart else curve(delta)


@cache
def mu_squared(term, factor):
    """μ² for which one draw is μ-GDP [1, 2]."""
    if term.kind == "gauss":
        return I((factor / term.size) ** 2)
    share = 1 / (1 + I(term.size if term.kind == "pure" else term.size / 2).exp())
    half = I(least(lambda x: normal(I(x))[1].hi, share.lo))
    return half * half * 4


def gaussian(square, y):
    """δ of N(μ, 1) against N(0, 1) at ε = ln y [1]."""
    mu = (square.ln() / 2).exp()
    shift = y.ln() / mu
    return normal(mu / 2 - shift)[0] - y * normal(mu / -2 - shift)[0]


def one_posterior(eta, k, delta):
    """ε of k draws: δ(ε) is the largest of k sums, at t = (ε + (m+1)η)/(k+1) ≤ η [2]."""

    def summed(m, epsilon):
        rest = ((k - m) * eta - epsilon) / (k + 1)  # η − t
        if rest.hi <= 0:
            return Decimal(0)
        rest = I(max(rest.lo, Decimal("1e-45")), rest.hi)
        likely, fall = (1 - (-rest).exp()) / (1 - (-eta).exp()), (-eta).exp().lo
        rare = 1 - likely
        mass = (math.comb(k, m) * (likely.ln() * (k - m) + rare.ln() * m).exp()).hi
        ratio, left, total = (likely / rare).hi, (-rest).exp().lo, Decimal(0)
        for i in range(m, -1, -1):
            total = UP.add(total, UP.multiply(mass, UP.subtract(1, left)))
            change = UP.divide(UP.multiply(i, ratio), k - i + 1)
            mass, left = UP.multiply(mass, change), DOWN.multiply(left, fall)
            if change < Decimal("0.5") and mass < total * Decimal("1e-30"):
                break
        return UP.add(total, UP.multiply(2, mass))  # what is left falls by half and more, or is 0

    worst, tried = 0, set()
    while worst not in tried:
        tried.add(worst)
        found = least(lambda e: max(summed(m, e) for m in tried), I(delta).lo)
        worst = max(range(k), key=lambda m: summed(m, found))
    return found


def curves(term, factor):
    """δ at ε = ln y of the worst pair of laws, one way and the other [3]."""
    if term.kind != "gauss":
        top = I(term.most(factor)).exp()

        def bounded(y):  # Laplace noise, or a bit of randomised response
            laplace = term.kind == "laplace"
            delta = 1 - ((y / top).ln() / 2).exp() if laplace else (top - y) / (1 + top)
            return I(max(delta.lo, (1 - y).lo, 0), max(delta.hi, (1 - y).hi, 0))

        return bounded, bounded
    q, square = term.rate, mu_squared(term, 1)
    if q == 1:
        return (partial(gaussian, mu_squared(term, factor)),) * 2

    def other(y):  # N(0) against (1−q)N(0) + qN(1)
        left = 1 - y * (1 - q)
        return left * gaussian(square, y * q / left) if left.lo > 0 else I(0, max(left.hi, 0))

    def one(y):  # the reverse
        left = y - (1 - q)
        return q * gaussian(square, left / q) if left.lo > 0 else 1 - y + I(0, max(left.hi, 0))

    def replaced(y):  # (1−q)N(0) + qN(1) against (1−q)N(0) + qN(−1), where the loss is above ln y
        b, c = (1 - q) * (y - 1), q * (square / -2).exp()  # c u² − b u = c y for u = e^(x/σ²)
        root = ((b * b + 4 * y * c * c).ln() / 2).exp()
        u = (b + root) / (2 * c) if b.lo > 0 else 2 * y * c / (root - b)
        x, mu = u.ln() / (square.ln() / 2).exp(), (square.ln() / 2).exp()
        p0, p1, p2 = (normal(centre * mu - x)[0] for centre in (0, 1, -1))
        return (1 - q) * (1 - y) * p0 + q * p1 - q * y * p2

    return (one, other) if factor == 1 else (replaced, replaced)


def convolved(terms, factor, delta):
    """ε as a function of δ, of the sum of all losses [3]."""
    whole = [(t, n) for t, n in terms if t.kind == "gauss" and t.rate == 1]
    counts = [(t, n * t.draws) for t, n in terms if (t, n) not in whole]
    if len(counts) > 48:  # a schedule: blocks of steps, each with its least noise and highest rate
        steps = sorted((t.rate, t.size) for t, n in counts for _ in range(n if t.rate < 1 else 0))
        block = 1 << (len(steps) // 48).bit_length()
        counts = [(t, n) for t, n in counts if t.rate == 1]
        for chunk in (steps[k : k + block] for k in range(0, len(steps), block)):
            counts.append((Term("gauss", min(size for _, size in chunk), chunk[-1][0]), block))
    if whole:
        square = sum((mu_squared(t, factor) * n for t, n in whole), I(0))
        counts.append((Term("gauss", Fraction((factor / (square.ln() / 2).exp()).lo)), 1))
    n_all, scale = sum(n for _, n in counts), 0.0
    dust = delta / n_all / 10**6
    pairs, ranges = [curves(t, factor) for t, _ in counts], []
    for (t, n), pair in zip(counts, pairs, strict=True):
        ranges.append([float(least(lambda s: curve(I(s).exp()).hi, I(dust).lo)) for curve in pair])
        ratio = (factor / float(t.size)) ** 2 if t.kind == "gauss" else float(t.most(factor)) ** 2
        scale += n * (float(t.rate) ** 2 * math.expm1(min(ratio, 300)) if t.rate < 1 else ratio)
    fine, points, cells = (0.2, 6000, 8) if len(counts) > 8 else (0.03, 25000, 64)
    span = max(12 * math.sqrt(scale), *(sum(ends) for ends in ranges))
    width = max(fine * math.sqrt(scale / n_all), span / points)
    grid = Grid(Fraction(f"{width:.3g}"), 16 + math.ceil(math.log10(n_all / delta)))
    sums = []
    for way in (0, 1) if factor == 1 and any(t.rate < 1 for t, _ in counts) else (0,):
        bases = []
        for pair, ends in zip(pairs, ranges, strict=True):
            at = {
                f(e / width)
                for e in (-ends[1 - way], 0, ends[way])
                for f in (math.floor, math.ceil)
            }
            for sign, most in ((-1, -min(at)), (1, max(at))):
                j = 1
                while j < most:
                    at.add(sign * j)
                    j += max(1, j // cells)
            bases.append(grid.losses(pair[way], at))
        total, counted = Losses(grid, 0, [10**grid.digits], 0), [n for _, n in counts]
        for bit in reversed(range(max(counted).bit_length())):
            cut = int(dust * 10**grid.digits * (n_all >> bit))
            total = total.plus(total, cut)
            for losses, n in zip(bases, counted, strict=True):
                total = total.plus(losses, cut) if n >> bit & 1 else total
        sums.append(total)
    return lambda delta: max(total.epsilon(delta) for total in sums)


ORDERS = [Fraction(k, 8) for k in range(9, 65)] + [Fraction(k) for k in range(9, 65)]
ORDERS += [Fraction(k) for k in (72, 80, 96, 112, 128, 160, 192, 256, 384, 512, 1024)]


@cache
def scaled(term, factor, order):
    """λ − 1 times the Rényi divergence of order λ of one mechanism [4]."""
    x, size = I(order), I(term.most(factor))
    if term.kind == "gauss" and term.rate == 1:
        return mu_squared(term, factor) * x * (x - 1) / 2
    if term.kind == "gauss" and order.denominator > 1:  # it is convex in λ
        below, above = (scaled(term, factor, Fraction(f(order))) for f in (math.floor, math.ceil))
        return below + (above - below) * (order - math.floor(order))
    if term.kind == "gauss":  # ln Σ (λ choose k) (1−q)^(λ−k) q^k e^((k²−k)/2σ²)
        odds, step, power = term.rate / (1 - term.rate), (1 / size / size).exp(), I(1)
        mass = total = (I(1 - term.rate).ln() * x).exp()
        for k in range(int(order)):
            mass = mass * Fraction((order - k) * odds, k + 1) * power
            power, total = power * step, total + mass
        return total.ln()
    if term.kind == "laplace":
        both = x * ((x - 1) * size).exp() + (x - 1) * (-x * size).exp()
        return (both / (2 * x - 1)).ln()
    if term.kind == "pure":
        return (((x * size).exp() + ((1 - x) * size).exp()) / (1 + size.exp())).ln()
    if term.kind == "range":
        return x * (x - 1) * size * size / 8 * term.draws
    shape, *runs = term.runs
    one = [sum((scaled(t, factor, o) * n for t, n in runs), I(0)) for o in ORDERS]
    if not shape:  # Poisson, and δ of one run at ε = ln(λ/(λ−1))
        start = (x / (x - 1)).ln()
        tails = (
            r + (o - 1) * (I(1 - 1 / o).ln() - start) for r, o in zip(one, ORDERS, strict=True)
        )
        extra = (x - 1) * size * min((t.exp() / o).hi for t, o in zip(tails, ORDERS, strict=True))
    else:

        def fewest(y):  # minus the mean at y = ln 1/γ, rounded up
            runs = I(y).exp() - 1 if y else I(0)
            scale = y if not shape[0] else (1 - (-y * I(shape[0])).exp()) / shape[0] if y else 0
            return -(runs / scale).lo if y else Decimal(-1)

        y = least(fewest, -size.hi)
        extra = min(((r + y) / o).hi for r, o in zip(one, ORDERS, strict=True))
        extra = (x - 1) * (1 + shape[0]) * extra
    return one[ORDERS.index(order)] + extra + size.ln()


def renyi(terms, factor, delta):
    """ε at the order that serves best [4]."""
    every = [one for t, _ in terms for one in (t, *(run for run, _ in t.runs[1:]))]
    if any(t.rate < 1 for t in every) and (factor == 2 or any(t.apart for t in every)):
        return INF
    found = INF
    for order in ORDERS:
        total = sum((scaled(t, factor, order) * n for t, n in terms), I(0)) - I(delta * order).ln()
        found = min(found, (total / (order - 1) + I(1 - 1 / order).ln()).hi)
    return max(found, Decimal(0))


def read(path):
    """JSON of a file, refused where two readers might understand two things."""

    def pairs(found):
        if len(dict(found)) < len(found):
            raise CannotCheckError("a key stands twice in one object")
        return dict(found)

    def constant(name):
        raise CannotCheckError(f"{name} is no number")

    if path.stat().st_size > LARGEST:
        raise CannotCheckError(f"the file is larger than {LARGEST >> 20} MiB")
    return json.loads(path.read_text("utf-8"), object_pairs_hook=pairs, parse_constant=constant)


def verdict(report, within=1e-9):
    """Whether the statement of a report holds, the ε that is proved, and why."""
    schema, relation = report.get("schema", 1), report.get("neighboring_relation")
    if type(schema) is not int or not 1 <= schema <= SCHEMA:
        raise CannotCheckError(f"schema={schema!r:.40}: this program knows 1 to {SCHEMA}")
    unit = "group" if str(relation).endswith("_group") else "row"
    if schema == 1:  # as skdp < 0.2 wrote it
        report = {"schema": 1, "assumptions": [], "unaccounted": [], "unit": unit} | report
    if other := {*report} ^ {*TYPES, "epsilon", "delta"}:
        raise CannotCheckError(f"fields missing, or unknown: {', '.join(sorted(other)):.200}")
    for name, kind in TYPES.items():
        if type(report[name]) is not kind or {*map(type, report[name] if kind is list else ())} - {
            str
        }:
            raise CannotCheckError(f"{name} is no {kind.__name__}")
    if relation.removesuffix("_group") not in RELATIONS or report["unit"] != unit:
        raise CannotCheckError(f"no rule for {relation!r:.40} with the unit {report['unit']!r:.40}")
    proved = epsilon_of(report["event"], relation, number(report, "delta"))
    claimed = INF if report["epsilon"] == "inf" else Decimal(float(number(report, "epsilon")))
    if report["seeded"] or report["unaccounted"] or not report["valid"] or claimed == INF:
        return False, proved, "the report itself says that it is no guarantee"
    if report["skdp_version"] == "0.1.0" and "by the rejection sampler" in report["sampling"]:
        return False, proved, "samples of skdp 0.1.0 reveal rows (advisory 1)"
    return proved <= claimed * Decimal(1 + within), proved, f"the report claims {claimed:.7g}"


def main(arguments=None):
    """Check the files that the command line names."""
    arguments = sys.argv[1:] if arguments is None else arguments
    status = 0 if arguments else 2
    for name in arguments:
        try:
            holds, proved, why = verdict(read(Path(name)))
            said, status = (
                f"{'yes' if holds else 'no'}: ε ≤ {proved:.7g} is proved; {why}",
                max(status, 1 - holds),
            )
        except (
            ArithmeticError,
            AttributeError,
            KeyError,
            OSError,
            RecursionError,
            TypeError,
            ValueError,
        ) as error:
            said, status = f"cannot check: {error}", 2
        print(f"{name}: {said}")
    print("This proves the arithmetic from the events to ε, not that these events are what ran.")
    return status


if __name__ == "__main__":
    sys.exit(main())
