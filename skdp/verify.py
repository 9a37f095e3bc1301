"""skdp-verify: does a report's ε follow from its event? By the standard library alone.

    skdp-verify report.json ...     (where no skdp is: a copy of this file and of intervals.py)

An upper bound on ε is proved from the event, relation and δ of a report; only then is its ε looked
at. Reals are intervals rounded outward, probabilities integers rounded up. Exit status: 0 yes, 1
no, 2 cannot check. *It proves arithmetic*: (ε, δ) if the event ran, with noise, on bounded records.
That it ran, no file proves. Theorems: [1] Dong et al. 2022; [2] Dong et al. 2020, privacy.md §4
(draws of a range; pure ε is range 2ε); [3] Zhu et al. 2022, Kairouz et al. 2017; [4] Mironov et al.
2019, Canonne et al. 2020, Papernot & Steinke 2022; [5] privacy/discrete.py; [6] McSherry 2009.
"""

import json
import math
import re
import sys
from collections import Counter
from fractions import Fraction
from functools import lru_cache, partial
from itertools import product
from typing import NamedTuple

try:
    from skdp import intervals as sure
except ImportError:  # copied
    import intervals as sure  # type: ignore

I, INF, Decimal, SCHEMA, LARGEST = sure.I, sure.INF, sure.Decimal, 2, 2**25  # noqa: E741
CAVEAT = "This proves the arithmetic from events to ε, not that these events are what ran."
ORDERS = [Fraction(k, 8) for k in (*range(9, 40), *range(40, 513, 8), *range(1024, 16385, 1024))]
RELATIONS = {"zero_out": 1, "add_or_remove_one": 1, "replace_one": 2}  # a sum moves by so many C
TEXTS = ("accountant", "neighboring_relation", "sampling", "tuning", "skdp_version", "unit", "date")
TYPES = {"seeded": bool, "valid": bool, "event": dict, "schema": int}
OLD = re.compile(r"v?0\.1(\.0)?(?!\.?\d)")  # skdp 0.1.0, 0.1.0.dev0, 0.1.0+local
LISTS = ("inferred_public_facts", "unaccounted", "assumptions", "settings", "versions")
TYPES |= dict.fromkeys(TEXTS, str) | dict.fromkeys(LISTS, list)
RANGES = {"mean": (1, 1e6), "shape": (0, 1e6), "lattice_scale": (1e-6, 1e18)}
RANGES |= {"delta": (0, 1 - 2**-53), "sampling_probability": (0, 1.0), "within": (0, 0.2)}
RANGES |= dict.fromkeys(("noise_multiplier", "epsilon", "eta"), (0, 1e12))
RANGES |= dict.fromkeys(("count", "n_samples", "dimension"), (0, 10**12))  # whole numbers
_KINDS = """Gaussian noise_multiplier; DiscreteGaussian noise_multiplier lattice_scale dimension;
Laplace noise_multiplier; Pure epsilon; PosteriorSamples eta n_samples; NonPrivate; NoOp; Composed
events; SelfComposed count event; PoissonSampled sampling_probability event; Part split part event;
RepeatAndSelect mean shape event"""
EVENTS = {kind + "DpEvent": fields for kind, *fields in map(str.split, _KINDS.split(";"))}


class Term(NamedTuple):
    """A mechanism: noise multiplier of a Gaussian one, ε, range η, or mean number of runs."""

    kind: str
    size: Fraction
    rate: Fraction = Fraction(1)  # of Poisson sampling
    apart: Fraction = Fraction(0)  # how far it is from a rounded Gaussian mechanism [5]
    draws: int = 1
    runs: tuple = ()  # shape, unless it is Poisson's, and mechanisms with counts


def number(event, name):
    """A number of an event, exactly."""
    (low, high), value = RANGES[name], event[name]
    if type(value) not in {int, type(high)} or not low <= value <= high:
        raise ValueError(f"{name}={value!r:.40} is not a number in [{low}, {high}]")
    return Fraction(value)


def releases(event, factor, parts=(), depth=0):
    """Mechanisms, their counts, and the parts that they read."""
    kind = str(event.get("type")) if isinstance(event, dict) else ""
    if kind not in EVENTS or {*event} != {"type", *EVENTS[kind]} or depth > 40:
        raise ValueError(f"no rule for the event {kind!r:.40} with such fields, {depth} deep")
    names = [name for name in EVENTS[kind] if (name, event[name]) != ("shape", "inf")]
    size, *more = [number(event, name) for name in names if name in RANGES] or [Fraction(0)]
    if kind == "PartDpEvent":
        parts = ((event["split"], event["part"]), *parts)
        if {str} != {*map(type, parts[0])}:
            raise ValueError("a split or a part is not a name")
    below = event.get("events", [event["event"]] if "event" in event else [])
    below = [one for e in below for one in releases(e, factor, parts, depth + 1)]
    if kind in ("ComposedDpEvent", "PartDpEvent", "SelfComposedDpEvent"):
        times = int(size) if kind == "SelfComposedDpEvent" else 1
        yield from ((term, n * times, of) for term, n, of in below)
    elif kind == "PoissonSampledDpEvent":
        if event["event"]["type"] not in ("GaussianDpEvent", "DiscreteGaussianDpEvent"):
            raise ValueError("Poisson sampling of another mechanism than a Gaussian one")
        yield from ((term._replace(rate=size), n, of) for term, n, of in below if size)
    elif kind == "RepeatAndSelectDpEvent":
        yield Term("select", size, runs=(tuple(more), *(e[:2] for e in below))), bool(below), parts
    elif kind == "PosteriorSamplesDpEvent":
        yield Term("range", size, draws=int(more[0])), 1 if size else 0, parts
    elif kind == "PureDpEvent" or (kind == "LaplaceDpEvent" and size):
        yield Term(kind[:4].lower(), size if kind[0] == "P" else factor / size), bool(size), parts
    elif kind != "NoOpDpEvent":
        apart = more[1] / (8 * more[0] ** 2) if more else Fraction(0)
        yield Term("gauss", size, apart=apart), 1, parts


def epsilon_of(event, relation, delta):
    """Upper bound on ε of an event: the most that the records of any choice of parts pay [6]."""
    factor = RELATIONS[relation.removesuffix("_group")]
    found = [(term, n, dict(parts)) for term, n, parts in releases(event, factor) if n]
    read = dict.fromkeys(of for _, _, parts in found for of in parts.items())
    splits = {split: [part for other, part in read if other == split] for split, _ in read}
    many, bills = relation == "replace_one_group" or math.prod(map(len, splits.values())) > 64, []
    for choice in [()] if many else product(*splits.values()):
        record, paid = dict(zip(splits, choice, strict=not many)).items(), Counter()
        for term, n, parts in found:
            paid[term] += n if many or parts.items() <= record else 0
        bills.append(epsilon([(term, n) for term, n in paid.items() if n], factor, delta))
    return max(bills)


def epsilon(terms, factor, delta):
    """Least of the upper bounds that apply to a composition of (term, count)."""
    kinds, found = {"sampled" if t.rate < 1 else t.kind for t, _ in terms}, [INF]
    if kinds <= {"pure", "range", "lapl"}:
        found.append(sum((I(t.size) * t.draws * n for t, n in terms), I(0)).hi)
    if delta == 0 or not terms or any(t.kind == "gauss" and t.size < 1e-6 for t, _ in terms):
        return min(found)
    if kinds == {"range"} and sum(n for _, n in terms) == 1 and terms[0][0].draws <= 2000:
        return min(*found, sure.one_posterior(I(terms[0][0].size), terms[0][0].draws, delta))
    apart = sum((n * t.apart for t, n in terms), Fraction(0))
    if kinds <= {"gauss", "range", "pure"}:
        square = sum((mu_squared(t, factor) * t.draws * n for t, n in terms), I(0))
        found.append(sure.nearby(partial(sure.gaussian_epsilon, square.root()), apart, delta))
    if kinds != {"gauss"} and "select" not in kinds and delta > Fraction(1, 10**16):
        found.append(sure.nearby(convolved(terms, factor, delta), apart, delta))
    if min(found) == INF or ((apart or "range" in kinds) and "sampled" not in kinds):
        found.append(renyi(terms, factor, delta))
    return min(found)


@lru_cache(2**12)
def mu_squared(term, factor):
    """μ² for which one draw is μ-GDP [1, 2]."""
    size = term.size * (2 if term.kind == "pure" else 1)
    return I((factor / size) ** 2) if term.kind == "gauss" else sure.logistic(size)


def curves(term, factor):
    """δ at ε = ln y of the worst pair of laws, one way and, where it differs, the other [3]."""
    if term.kind != "gauss":
        top, laplace = I(term.size).exp(), term.kind == "lapl"

        def bounded(y):  # Laplace noise, or a bit of randomised response
            delta = 1 - ((y / top).ln() / 2).exp() if laplace else (top - y) / (1 + top)
            return I(max(delta.lo, (1 - y).lo, 0), max(delta.hi, (1 - y).hi, 0))

        return (bounded,)
    q, square, mu = term.rate, mu_squared(term, 1), mu_squared(term, 1).root()

    def one(y):  # (1−q)N(0) + qN(1) against N(0)
        left = y - (1 - q)
        return q * sure.gaussian(mu, left / q) if left.lo > 0 else 1 - y + I(0, max(left.hi, 0))

    def other(y):
        left = 1 - y * (1 - q)
        return left * sure.gaussian(mu, y * q / left) if left.lo > 0 else I(0, max(left.hi, 0))

    def replaced(y):  # (1−q)N(0) + qN(1) against (1−q)N(0) + qN(−1), where the loss is above ln y
        b, c = (1 - q) * (y - 1), q * (square / -2).exp()  # c u² − b u = c y for u = e^(x/σ²)
        root = (b * b + 4 * y * c * c).root()
        x = ((b + root) / (2 * c) if b.lo > 0 else 2 * y * c / (root - b)).ln() / mu
        p0, p1, p2 = (sure.normal(centre * mu - x)[0] for centre in (0, 1, -1))
        return (1 - q) * (1 - y) * p0 + q * p1 - q * y * p2

    whole = partial(sure.gaussian, mu_squared(term, factor).root())
    return (whole,) if q == 1 else (one, other) if factor == 1 else (replaced,)


def convolved(terms, factor, delta):
    """ε as a function of δ, of the sum of all losses [3]."""
    whole = [(t, n) for t, n in terms if t.kind == "gauss" and t.rate == 1]
    steps = sorted((t, n) for t, n in terms if t.rate < 1)
    if len(steps) > 32:  # a schedule: in blocks, of the least noise and the highest rate in each
        if sum(n for _, n in steps) > 10**6:
            raise ValueError("a schedule of more than a million steps")
        left, steps = [t for t, n in steps for _ in range(n)], []
        ratio = float(left[-1].size / left[0].size) ** (1 / 20)
        while left:
            n = 1
            while 2 * n <= len(left) and left[2 * n - 1].size <= ratio * left[0].size:
                n *= 2
            steps.append((left[0]._replace(rate=max(t.rate for t in left[:n])), n))
            left = left[n:]
    counts = [(t, n * t.draws) for t, n in terms if t.kind != "gauss"] + steps
    if whole:
        square = sum((mu_squared(t, factor) * n for t, n in whole), I(0))
        counts.append((Term("gauss", Fraction((factor / square.root()).lo)), 1))
    return sure.composed([(curves(t, factor), n) for t, n in counts], delta)


@lru_cache(2**15)
def scaled(term, factor, order):
    """λ − 1 times the Rényi divergence of order λ of one mechanism [4]."""
    x, size = I(order), I(term.size)
    if term.kind == "gauss" and term.rate == 1:
        return mu_squared(term, factor) * x * (x - 1) / 2
    if term.kind == "gauss" and (factor == 2 or term.apart):
        raise ValueError("no Rényi bound for a sampled mechanism that replaces or is discrete")
    if term.kind == "gauss" and order.denominator > 1:  # it is convex in λ
        below, above = (scaled(term, factor, order // 1 + Fraction(k)) for k in (0, 1))
        return below + (above - below) * (order % 1)
    if term.kind == "gauss":  # ln Σ (λ choose k) (1−q)^(λ−k) q^k e^((k²−k)/2σ²)
        odds, step, power = term.rate / (1 - term.rate), mu_squared(term, 1).exp(), I(1)
        mass = total = (I(1 - term.rate).ln() * x).exp()
        for k in range(int(order)):
            mass = mass * ((order - k) * odds / (k + 1)) * power
            power, total = power * step, total + mass
        return total.ln()
    if term.kind == "range":
        return x * (x - 1) * size * size / 8 * term.draws
    if term.kind != "select":  # of pure ε
        return (((x * size).exp() + ((1 - x) * size).exp()) / (1 + size.exp())).ln()
    shape, *runs = term.runs
    one = [(o, sum((scaled(t, factor, o) * n for t, n in runs), I(0))) for o in ORDERS]
    if not shape:  # Poisson, and δ of one run at ε = ln(λ/(λ−1))
        start = (x / (x - 1)).ln()
        tails = ((r + (o - 1) * ((1 - 1 / I(o)).ln() - start)).exp() / o for o, r in one)
        extra = size * min(1, *(tail.hi for tail in tails))
    else:

        def fewest(y):  # minus the mean number of runs at y = ln 1/γ
            y, a = I(max(y, Decimal("1e-25"))), shape[0]
            return -((y.exp() - 1) / ((1 - (-y * a).exp()) / a if a else y)).lo

        y = sure.least(fewest, -size.hi)
        extra = (1 + shape[0]) * I(min(((r + y) / o).hi for o, r in one))
    return dict(one)[order] + (x - 1) * extra + size.ln()


def renyi(terms, factor, delta):
    """ε at the order that serves best [4]."""
    of = {o: sum((scaled(t, factor, o) * n for t, n in terms), -I(delta * o).ln()) for o in ORDERS}
    return max(min((s / (o - 1) + (1 - 1 / I(o)).ln()).hi for o, s in of.items()), Decimal(0))


def read_file(name):
    """Text of a file, or of a pipe, of which the size is not known before."""
    with open(name, "rb") as file:
        if len(text := file.read(LARGEST + 1)) > LARGEST:
            raise ValueError(f"the file is larger than {LARGEST >> 20} MiB")
    return text.decode()


def read_text(text):
    """JSON, refused where two readers might understand two things."""

    def once(pairs):
        if len(dict(pairs)) < len(pairs):
            raise ValueError("a key stands twice in one object")
        return dict(pairs)

    return json.loads(text, object_pairs_hook=once)


def verdict(report, within=1e-9):
    """Whether the statement of a report holds, the ε that is proved, and why."""
    schema, relation = report.get("schema", 1), str(report.get("neighboring_relation"))
    if type(schema) is not int or not 1 <= schema <= SCHEMA:
        raise ValueError(f"schema={schema!r:.40}: this program knows 1 to {SCHEMA}")
    unit = "group" if relation.endswith("_group") else "row"
    if schema == 1:  # as skdp < 0.2 wrote it
        report = {"schema": 1, "unit": unit, "date": ""} | {k: [] for k in LISTS[1:]} | report
    if other := {*report} ^ {*TYPES, "epsilon", "delta"}:
        raise ValueError(f"fields missing, or unknown: {', '.join(sorted(other)):.200}")
    for name, kind in TYPES.items():
        texts = report[name] if kind is list else ""
        if type(report[name]) is not kind or any(not isinstance(text, str) for text in texts):
            raise ValueError(f"{name} is not of type {kind.__name__}")
    if relation.removesuffix("_group") not in RELATIONS or report["unit"] != unit:
        raise ValueError(f"no rule for {relation!r:.40} with the unit {report['unit']!r:.40}")
    within = number({"within": within}, "within")
    proved = epsilon_of(report["event"], relation, number(report, "delta"))
    claimed = INF if report["epsilon"] == "inf" else Decimal(float(number(report, "epsilon")))
    if report["seeded"] or report["unaccounted"] or not report["valid"] or claimed == INF:
        return False, proved, "the report itself says that it is no guarantee"
    if OLD.match(report["skdp_version"]) and "by the rejection sampler" in report["sampling"]:
        return False, proved, "samples of skdp 0.1.0 reveal rows (advisory 1)"
    return proved <= claimed * I(1 + within).lo, proved, f"the report claims {claimed:.7g}"


def main(arguments=None, within=1e-9):
    """Check the files that the command line names."""
    seen = set()
    for name in sys.argv[1:] if arguments is None else arguments:
        try:
            holds, proved, why = verdict(report := read_text(read_file(name)), within)
            answer = "yes" if holds else "no"
            said = f"{answer}: ε ≤ {proved:.7g} at δ = {report['delta']} is proved; {why}"
        except Exception as error:  # whatever it stumbles on, the answer is not yes
            holds, said = None, f"cannot check: {error or type(error).__name__}"
        seen.add(holds)
        print(f"{name}: {said}")
    print(CAVEAT)
    return 1 if False in seen else 0 if seen == {True} else 2


if __name__ == "__main__":
    sys.exit(main())
