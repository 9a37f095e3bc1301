"""Arithmetic that errs on one side: what `skdp.verify` computes with, from the standard library.

`I` is interval arithmetic on Python's decimals: every operation rounds outward, so an interval
holds the real number that a formula names. `Losses` are probabilities of privacy losses on a grid,
as whole numbers that are rounded up.

>>> third = I(1) / 3
>>> third.lo < third.hi, round(normal(I(-1))[0].hi, 12)
(True, Decimal('0.158655253931'))
"""

import decimal
import math
from collections.abc import Callable, Iterable
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Any, NamedTuple

WIDE: Any = {"Emin": decimal.MIN_EMIN, "Emax": decimal.MAX_EMAX}

DOWN = decimal.Context(prec=40, rounding=decimal.ROUND_FLOOR, **WIDE)

UP = decimal.Context(prec=40, rounding=decimal.ROUND_CEILING, **WIDE)

EXACT = decimal.Context(prec=decimal.MAX_PREC, **WIDE)

INF, NARROW = Decimal("inf"), Decimal("1e-20")

_DENSITY = "0.3989422804014326779399460599343818684758586311649346"  # φ(0)


class I:  # noqa: E742
    """An interval from ``lo`` to ``hi``, or around one number."""

    def __init__(self, lo: Any, hi: Any = None) -> None:
        if type(lo) is I:
            lo, hi = lo.lo, lo.hi
        elif type(lo) is Fraction:
            lo, hi = (c.divide(lo.numerator, lo.denominator) for c in (DOWN, UP))
        self.lo, self.hi = Decimal(lo), Decimal(lo if hi is None else hi)

    def __add__(self, other: Any) -> "I":
        return I(DOWN.add(self.lo, I(other).lo), UP.add(self.hi, I(other).hi))

    def __neg__(self) -> "I":
        return I(self.hi.copy_negate(), self.lo.copy_negate())

    def __sub__(self, other: Any) -> "I":
        return self + -I(other)

    def __mul__(self, other: Any) -> "I":
        other = I(other)
        if self.lo >= 0 and other.lo >= 0:
            return I(DOWN.multiply(self.lo, other.lo), UP.multiply(self.hi, other.hi))
        ends = [(a, b) for a in (self.lo, self.hi) for b in (other.lo, other.hi)]
        return I(min(DOWN.multiply(*e) for e in ends), max(UP.multiply(*e) for e in ends))

    def __truediv__(self, other: Any) -> "I":
        other = I(other)
        if other.lo <= 0 <= other.hi:
            raise ArithmeticError("divided by an interval that holds zero")
        return self * I(DOWN.divide(1, other.hi), UP.divide(1, other.lo))

    __radd__ = __add__
    __rmul__ = __mul__

    def __rsub__(self, other: Any) -> "I":
        return -self + other

    def __rtruediv__(self, other: Any) -> "I":
        return I(other) / self

    def exp(self) -> "I":
        """Exponential; ``decimal`` rounds to the nearest, so the next number is a bound."""
        low, width = DOWN.exp(self.lo), UP.subtract(self.hi, self.lo)
        if width > NARROW:
            high = UP.next_plus(UP.exp(self.hi))
        else:  # one is enough: e^w ≤ 1/(1 − w)
            high = UP.divide(UP.next_plus(low), DOWN.subtract(1, width))
        return I(max(DOWN.next_minus(low), 0), high)

    def ln(self) -> "I":
        """Natural logarithm; the interval must be positive."""
        low, width = DOWN.ln(self.lo), UP.subtract(self.hi, self.lo)
        if width > UP.multiply(self.lo, NARROW):
            high = UP.next_plus(UP.ln(self.hi))
        else:  # ln(1 + w/x) ≤ w/x
            high = UP.add(UP.next_plus(low), UP.divide(width, self.lo))
        return I(DOWN.next_minus(low), high)

    def root(self) -> "I":
        """Square root, of what is positive."""
        return I(DOWN.next_minus(DOWN.sqrt(self.lo)), UP.next_plus(UP.sqrt(self.hi)))


def normal(z: I) -> tuple[I, I]:
    """Φ(z) and Φ(−z), the lesser one with all of its digits."""
    if z.lo < 0 < z.hi:
        (low, _), (high, _) = normal(I(z.lo)), normal(I(z.hi))
        return I(low.lo, high.hi), 1 - I(low.lo, high.hi)
    x = -z if z.hi <= 0 else z
    density = (x * x / -2).exp() * I(_DENSITY, _DENSITY[:-1] + "7")
    if x.hi < 3:  # Φ(x) − ½ = φ(x) Σ x^(2j+1)/(2j+1)!!; what is left out is below its last term
        ends = []
        for c, at in ((DOWN, x.lo), (UP, x.hi)):
            term, total, k = at, at, 1
            while term > Decimal("1e-45"):
                k += 2
                term = c.divide(c.multiply(term, c.multiply(at, at)), k)
                total = c.add(total, term)
            ends.append(total if c is DOWN else c.add(total, term))
        tail = I("0.5") - density * I(*ends)
    else:  # Laplace: Φ(−x) = φ(x)/(x + 1/(x + 2/(x + …)))
        n = int(1200 / x.lo**2) + 10
        lo, hi = x.lo, UP.add(x.hi, UP.divide(n + 1, x.lo))
        for k in range(n, 0, -1):
            lo, hi = DOWN.add(x.lo, DOWN.divide(k, hi)), UP.add(x.hi, UP.divide(k, lo))
        tail = density / I(lo, hi)
    return (tail, 1 - tail) if z.hi <= 0 else (1 - tail, tail)


def least(bound: Callable[[Decimal], Decimal], target: Decimal) -> Decimal:
    """Least x ≥ 0, rounded up, from which on a falling bound is at most the target."""
    low, high = Decimal(0), Decimal(1)
    if bound(low) <= target:
        return low
    while bound(high) > target:
        low, high = high, high * 4
    while high - low > high * Decimal("1e-13"):
        middle = (low + high) / 2
        low, high = (low, middle) if bound(middle) <= target else (middle, high)
    return high


def gaussian(mu: I, y: I) -> I:
    """δ of N(μ, 1) against N(0, 1) at ε = ln y (Balle & Wang 2018, Theorem 8)."""
    half, at = mu / 2, y.ln() / mu
    return normal(half - at)[0] - y * normal(-half - at)[0]


def gaussian_epsilon(mu: I, delta: Fraction) -> Decimal:
    """ε of a Gaussian mechanism of this μ."""
    return least(lambda epsilon: gaussian(mu, I(epsilon).exp()).hi, I(delta).lo)


def logistic(eta: Fraction) -> I:
    """μ² for which telling logistic laws η apart is no easier than N(0, 1) from N(μ, 1).

    μ/2 = −Φ⁻¹(1/(1 + e^(η/2))): docs/privacy.md §4.
    """
    half = I(least(lambda x: normal(I(x))[1].hi, (1 / (1 + I(eta / 2).exp())).lo))
    return half * half * 4


def nearby(curve: Callable[[Fraction], Decimal], apart: Fraction, delta: Fraction) -> Decimal:
    """ε of laws that are a distance in total variation from those of a curve.

    P(S) ≤ e^ε Q(S) + δ + (1 + e^ε) distance (`skdp.privacy.discrete`).
    """
    aside = Fraction(0)  # what of δ pays for the distance
    while aside < delta:
        found = curve(delta - aside)
        if not apart or found > 700:
            return INF if apart else found
        needed = apart * (1 + Fraction(I(found).exp().hi))
        if needed <= aside:
            return found
        aside = needed * Fraction(1001, 1000)
    return INF


def one_posterior(eta: I, k: int, delta: Fraction) -> Decimal:
    """ε of k draws from one law of log-density range η (`skdp.privacy.posterior_samples`).

    δ(ε) is the largest of the sums Σ_{i≤m} P_t(i) (1 − e^(ε−kt+iη)) at t = (ε + (m+1)η)/(k+1) ≤ η.
    """

    def summed(m: int, epsilon: Decimal) -> Decimal:
        rest = ((k - m) * eta - epsilon) / (k + 1)  # η − t
        if rest.hi <= 0:
            return Decimal(0)
        likely = (1 - (-I(max(rest.lo, Decimal("1e-45")), rest.hi)).exp()) / (1 - (-eta).exp())
        rare, fall, total = 1 - likely, (-eta).exp().lo, Decimal(0)
        mass = (math.comb(k, m) * (likely.ln() * (k - m) + rare.ln() * m).exp()).hi
        ratio, left = (likely / rare).hi, (-rest).exp().lo
        for i in range(m, -1, -1):
            total = UP.add(total, UP.multiply(mass, UP.subtract(1, left)))
            change = UP.divide(UP.multiply(i, ratio), k - i + 1)
            mass, left = UP.multiply(mass, change), DOWN.multiply(left, fall)
            if change < Decimal("0.5") and mass < total * Decimal("1e-30"):
                break
        return UP.add(total, UP.multiply(2, mass))  # what is left falls by half and more, or is 0

    worst, tried = 0, set[int]()
    while worst not in tried:
        tried.add(worst)
        found = least(lambda e: max(summed(m, e) for m in tried), I(delta).lo)
        worst = max(range(k), key=lambda m: summed(m, found))
    return found


class Grid(NamedTuple):
    """Losses are multiples of ``width``, probabilities of 10^−``digits``."""

    width: Fraction
    digits: int

    def units(self, mass: I) -> int:
        """Whole number of units, rounded up."""
        units = mass.hi.scaleb(self.digits, UP).to_integral_value(decimal.ROUND_CEILING)
        return max(0, int(units))

    def losses(self, curve: Callable[[I], I], points: Iterable[int]) -> "Losses":
        """Losses whose curve δ, as a function of y = e^ε, is the polygon through given points.

        A curve is convex in y and falls from 1, so the polygon is above it; curves that are above
        stay above when losses are added up. A corner at y is a loss of ln y, whose probability is
        y times the change of slope; what is left of δ at the last corner is an infinite loss.
        """
        at = sorted(points)
        corners = [I(0), *(I(j * self.width).exp() for j in at)]
        heights = [I(1), *map(curve, corners[1:])]
        slopes = [
            (b - a) / (y - x)
            for (x, y), (a, b) in zip(pairwise(corners), pairwise(heights), strict=True)
        ]
        masses = [0] * (at[-1] - at[0] + 1)
        for j, y, (before, after) in zip(at, corners[1:], pairwise([*slopes, I(0)]), strict=True):
            masses[j - at[0]] = self.units(y * (after - before))
        return Losses(self, at[0], masses, self.units(heights[-1]))


class Losses(NamedTuple):
    """Probabilities from the ``lowest`` loss on, and that of an infinite one."""

    grid: Grid
    lowest: int
    masses: list[int]
    infinite: int

    def plus(self, other: "Losses", dust: int) -> "Losses":
        """Losses of both together; ``dust`` may be cut off, to a larger loss, at either end.

        Probabilities are the coefficients of polynomials in 10^size, long numbers, whose product
        ``decimal`` finds exactly.
        """
        digits, size = self.grid.digits, 2 * self.grid.digits + 2
        if max(sum(self.masses), sum(other.masses)) > 9 * 10**digits:
            raise ArithmeticError("probabilities add up to more than 9")
        x, y = (
            Decimal("".join(f"{mass:0{size}d}" for mass in reversed(losses.masses)))
            for losses in (self, other)
        )
        text = str(EXACT.multiply(x, y)).zfill(size * (len(self.masses) + len(other.masses) - 1))
        cut = (text[i : i + size - digits] for i in range(0, len(text), size))
        masses = [int(part) + 1 for part in cut][::-1]
        first, last, below, above = 0, len(masses) - 1, 0, 0
        while first < last and below + masses[first] <= dust:
            below, first = below + masses[first], first + 1
        while first < last and above + masses[last] <= dust:
            above, last = above + masses[last], last - 1
        masses[first] += below
        lowest, infinite = self.lowest + other.lowest + first, self.infinite + other.infinite
        return Losses(self.grid, lowest, masses[first : last + 1], infinite + above)

    def epsilon(self, delta: Fraction) -> Decimal:
        """Least ε, rounded up, with Σ p (1 − e^(ε−loss)) ≤ δ over the losses above it."""
        low, above, weighed = self.lowest, self.infinite, Decimal(0)
        width, target = I(self.grid.width), math.floor(delta * 10**self.grid.digits)
        fall = (-width).exp().lo
        if above > target:
            return INF
        for j in range(low + len(self.masses) - 1, -1, -1):
            if UP.subtract(above, weighed) > target:
                return (j * width + (I(above - target) / I(weighed)).ln()).hi
            mass = self.masses[j - low] if j >= low else 0
            above += mass
            weighed = DOWN.multiply(DOWN.add(weighed, mass), fall)
        return Decimal(0)


Curve = Callable[[I], I]

# Of a grid: width over the deviation of a loss, most points, and cells in which a loss doubles.
COARSE, FINE = (0.2, 4000, 8), (0.025, 20000, 128)


def composed(
    counted: list[tuple[tuple[Curve, ...], int]], delta: Fraction
) -> Callable[[Fraction], Decimal]:
    """ε as a function of δ, near one δ, of mechanisms that are composed.

    Each has a curve, or one for either order of the neighbours, and how often it is used. Any grid
    gives a bound; a fine one, with narrow cells where losses are frequent, a tight one.
    """
    n_all = sum(n for _, n in counted)
    dust = delta / n_all / 10**6
    # Deviation of the sum, as if all were Gaussian mechanisms of their total variation.
    square = sum(n * (2.5 * float(pair[0](I(1)).hi)) ** 2 for pair, n in counted)
    fine, points, cells = COARSE if len(counted) > 8 else FINE

    def end(curve: Curve, delta: Fraction) -> Decimal:
        return least(lambda s: curve(I(s).exp()).hi, I(delta).lo)

    if n_all == 1:  # no grid is needed
        return lambda delta: max(end(curve, delta) for curve in counted[0][0])
    ends = [[float(end(curve, dust)) for curve in pair] for pair, _ in counted]
    span = max(12 * math.sqrt(square), *(one[0] + one[-1] for one in ends))
    wide = fine * math.sqrt(square / n_all) if n_all > 16 else span / 5000
    width = Fraction(f"{max(wide, span / points):.3g}")
    grid = Grid(width, 12 + math.ceil(math.log10(n_all / delta)))
    sums = []
    for way in range(max(len(pair) for pair, _ in counted)):
        bases = []
        for (pair, n), range_ in zip(counted, ends, strict=True):
            way_here = min(way, len(pair) - 1)
            edges = (-range_[-1 - way_here], 0.0, range_[way_here])
            at = {
                round_(edge / float(width)) for edge in edges for round_ in (math.floor, math.ceil)
            }
            for sign, most in ((-1, -min(at)), (1, max(at))):
                j = 1
                while j < most:
                    at.add(sign * j)
                    j += max(1, j // cells)
            bases.append((grid.losses(pair[way_here], at), n))
        total = Losses(grid, 0, [10**grid.digits], 0)
        for bit in reversed(range(max(n for _, n in bases).bit_length())):
            cut = math.floor(dust * 10**grid.digits * (n_all >> bit))
            total = total.plus(total, cut)
            for losses, n in bases:
                total = total.plus(losses, cut) if n >> bit & 1 else total
        sums.append(total)
    return lambda delta: max(total.epsilon(delta) for total in sums)
