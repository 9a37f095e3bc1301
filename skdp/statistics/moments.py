"""`dp_mean`: exact sums of integers with geometric noise.

Each record is rounded to a public grid by itself; from there to the release all is integers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from skdp.fitting.streams import Streams
from skdp.fitting.types import ArrayLike, Given, Seed
from skdp.relations import ROW, ZERO_OUT
from skdp.rows.persons import Persons
from skdp.statistics._noise import kept, tail
from skdp.statistics._query import (
    ALIKE,
    APART,
    DATA,
    NARROW,
    Answer,
    PrivateStatistic,
    StatisticConfig,
    answer,
    sums,
)

_PLACE_LEVEL = math.exp(-2.0)  # of the interval for a mean, about which a variance is taken
_SPREAD_SHARE = 0.2  # of ε for the variance, where a mean gets an interval of the population's
_DOUBT = 0.1  # of 1 - level: for that interval again


class Share(NamedTuple):
    """A released share s = U/(U + V): of the sums U of t and V of G - t, t integers in [0, G]."""

    up: int  # U, with noise
    down: int  # V; where n is public it is nG - U
    scale: float  # of the noise on each; where n is public, on U alone
    n: int | None  # public number of values
    grid: int  # G

    def value(self, most: float = 1.0) -> float:
        """Posterior median of the share under a uniform prior on what is possible, [0, most]."""
        n = self.up + self.down
        if n <= 0:
            return most / 2
        s = self.up / n
        near = min(max(s, 0.0), 1.0)
        b = self.scale / n * (1.0 if self.n else math.hypot(near, 1.0 - near))
        # Of a Laplace law about s, cut to [0, most].
        if not 0.0 < s < most:
            inwards = -b * math.log((1.0 + math.exp(-most / b)) / 2.0)
            return inwards if s <= 0.0 else most - inwards
        above, below = math.exp((s - most) / b), math.exp(-s / b)
        off = b * math.log1p(-abs(below - above) / 2.0)
        return s - off if below > above else s + off

    def interval(self, alpha: float, variance: float | None = None) -> tuple[float, float]:
        """All shares that a test of level α does not reject; those of a population by a variance.

        The variance is a bound of that of t/G.
        """
        rows = self.n or max(1.0, (self.up + self.down + 5 * self.scale) / self.grid)

        def p_value(s: np.ndarray) -> np.ndarray:
            # (1 - s) U - s V is 0 without noise; by a public n the two have the same noise.
            miss = np.abs((1 - s) * self.up - s * self.down)
            a, b = (self.scale, 0.0) if self.n else ((1 - s) * self.scale, s * self.scale)
            # Values in [0, 1] of mean s have variance s(1 - s) at most (Bhatia & Davis 2000).
            sd = None
            if variance is not None:
                sd = self.grid * np.sqrt(rows * np.minimum(s * (1 - s), variance))
            a, b, miss = np.broadcast_arrays(a, b, miss)
            return tail(miss, a, b, sd)

        return kept(p_value, self.value(), alpha)

    def place(self) -> tuple[int, int]:
        """Integers in [0, G] between which the mean of t probably is."""
        low, high = self.interval(_PLACE_LEVEL)
        return max(0, math.floor(low * self.grid)), min(self.grid, math.ceil(high * self.grid))


@dataclass(frozen=True, kw_only=True)
class MeanConfig(StatisticConfig):
    """Means of each column; for intervals of the population's a bound on the variances too."""

    divides: ClassVar[bool] = True

    @property
    def grid_bits(self) -> int:
        """Of G; 64 bits have to hold squares."""
        return 22 if self.of_population else 31

    def shares(
        self, totals: list[int], counts: list[int], epsilon: float, noise: Any
    ) -> list[Share]:
        """Release sums of integers in [0, G], times weights, of each column, over those of weights.

        What a row adds to the first of a pair is rounded down with all that came before. So it is
        an integer from 0 to G times its weight, whatever these are, and the second adds the rest.
        """
        G, H, d = self.grid, self.steps, len(totals)
        if self.n:
            # Of t - G/2, whose null record is 0; nG/2 is public.
            mechanism = self.mechanism(self.factor * G // 2 * d, epsilon)
            up = mechanism.release(totals, noise, charged=True)
            down = [self.n * G - int(u) for u in up]
        else:
            mechanism = self.mechanism(self.factor * G * d * self.most_rows, epsilon)
            ups = [t // H for t in totals]
            pairs = [ups, [m * G // H - u for m, u in zip(counts, ups, strict=True)]]
            up, down = mechanism.release(pairs, noise, charged=True)
        scale = float(mechanism.scale)
        return [Share(int(u), int(v), scale, self.n, G) for u, v in zip(up, down, strict=True)]

    def variances(
        self, sums_of: Sums, means: list[Share] | None, epsilon: float, alpha: float, noise: Any
    ) -> np.ndarray:
        """Release variances about places that are known, (d, 3), with their ends, of t/G."""
        G, d = self.grid, len(self.lower)
        near, far = [(0, G)] * d, [(0.0, 1.0)] * d
        if means is not None:
            near = [share.place() for share in means]
            far = [share.interval(_DOUBT * alpha) for share in means]
            alpha *= 1.0 - _DOUBT
        radius = [max(b, G - a) for a, b in near]
        totals = [
            _about(n, S, Q, place) * G // (max(n, 1) * r * r)
            for n, S, Q, place, r in zip(*sums_of, near, radius, strict=True)
        ]
        released, found = self.shares(totals, sums_of.counts, epsilon, noise), []
        for share, r, (a, b), (low, high) in zip(released, radius, near, far, strict=True):
            beyond = max(0.0, a / G - low, high - b / G)  # how far the mean may be off the place
            ends, unit = share.interval(alpha), (r / G) ** 2
            # A value that is rounded by half a step moves its square by less than a step.
            parts = unit * ends[0] - beyond**2 - 1 / G, unit * ends[1] + 1 / G
            found.append([unit * share.value(min(1.0, 0.25 / unit)), *parts])
        return np.clip(found, 0.0, 0.25)

    def run(self, records: Any, streams: Streams, progress: Callable = iter) -> Answer:
        """Release the means of values (n, d), (d,)."""
        sums_of, noise = self.sums_of(records[0], self.weights_of(records)), streams("noise")
        alpha, bounds = 1.0 - self.level, [None] * len(self.lower)
        rest = _SPREAD_SHARE * self.epsilon if self.of_population else 0.0
        spent = math.nextafter(self.epsilon - rest, 0.0) if rest else self.epsilon
        means = self.shares(sums_of.S, sums_of.counts, spent, noise)
        if self.of_population:
            bounds = self.variances(sums_of, means, rest, _DOUBT * alpha, noise)[:, 2].tolist()
            alpha *= 1.0 - _DOUBT
        ends = [share.interval(alpha, bound) for share, bound in zip(means, bounds, strict=True)]
        found = np.array([[s.value(), *end] for s, end in zip(means, ends, strict=True)])
        return Answer(*(np.array(self.lower) + self.widths * s for s in found.T))

    def doubts(self, answer: Answer) -> Iterable[tuple[int, str]]:
        """Means that are at a bound."""
        return self.at_bounds(answer.low, answer.high)

    def of_variances(self, low: np.ndarray, high: np.ndarray) -> Iterable[tuple[int, str]]:
        """Doubts where intervals (d,) of variances are narrow and at either end of what can be."""
        squares = self.widths**2
        for j, (a, b) in enumerate(zip(low / squares, high / squares, strict=True)):
            if (self.lower[j], self.upper[j]) == (0.0, 1.0):  # of events
                continue
            if a <= 0.0 and b <= NARROW**2:
                yield j, ALIKE
            elif b >= 0.25 * (1 - 1e-9) and b - a <= NARROW / 4:
                yield j, APART

    def sums_of(self, values: np.ndarray, weights: np.ndarray) -> Sums:
        """Exact sums of values (n, d) on the grid, times integers (n, 1)."""
        t, there = self.on_grid(values)
        m, squares = np.where(there, weights, 0), []
        if self.grid_bits == 22:
            parts = (sums(m * part) for part in np.divmod(t * t, self.grid))
            squares = [self.grid * a + b for a, b in zip(*parts, strict=True)]  # beyond 64 bits
        return Sums(sums(m), sums(m * t), squares)


class Sums(NamedTuple):
    """Numbers of values, sums and sums of squares of each column; with weights, of weights."""

    counts: list[int]
    S: list[int]
    Q: list[int]


def _about(n: int, S: int, Q: int, place: tuple[int, int]) -> int:
    """Least n Σ w(t - m)² over m in [a, b], for integers t: n is Σ w, S is Σ wt, Q is Σ wt²."""
    a, b = place
    return n * Q - S * S + max(0, n * a - S, S - n * b) ** 2


def dp_mean(
    values: ArrayLike,
    *,
    lower: ArrayLike,
    upper: ArrayLike,
    epsilon: float,
    neighboring_relation: str = ZERO_OUT,
    missing: bool = False,
    unit: str | Persons = ROW,
    groups: Given = None,
    sample_weight: Given = None,
    max_sample_weight: float = 1.0,
    level: float = 0.9,
    interval_of: str = DATA,
    random_state: Seed = None,
) -> PrivateStatistic:
    """Release a mean of values within declared bounds.

    **Privacy.** The release, interval and all, is epsilon-DP under ``neighboring_relation``: pure,
    with δ = 0. It is *not* with a ``random_state``.

    Parameters
    ----------
    values : array-like of shape (n,) or (n, d)
        Numbers, NaN where one is missing: it counts nowhere. They are clipped to the bounds.
    lower, upper : float or array-like of shape (d,)
        Declared bounds, public, finite, lower < upper; a number holds for every column. The noise
        is in proportion to their distance.
    epsilon : float
        ε in [1e-6, 50], of all columns together.
    neighboring_relation : {"zero_out", "add_or_remove_one", "replace_one"}, default="zero_out"
        Who is a neighbour.
    missing : bool, default=False
        Whether values may be missing where the number of rows is public: the number of values is
        private then and costs part of the noise. With False, NaN is refused there.
    unit : "row" or Persons, default="row"
        What is protected: a row, or a person with all of its rows. Of `skdp.Persons` a statistic
        takes ``max_rows`` alone: rows ≥ 1 of a person that take part, at most; the noise is in
        proportion to it. The statistic is that of the rows that are left.
    groups : array-like of shape (n,) or None, default=None
        With ``unit=Persons(...)``: the person whose row it is, as any label.
    sample_weight : array-like of shape (n,) or None, default=None
        Weights of rows in [0, ``max_sample_weight``], for all columns: a row of weight 2 counts as
        two. As private as the rows, and so is their sum; NaN is taken as with ``missing=True``.
    max_sample_weight : float, default=1.0
        Public bound > 0 of ``sample_weight``; the noise is for rows of this weight.
    level : float, default=0.9
        Of the interval, in (0, 1).
    interval_of : {"data", "population"}, default="data"
        Whether the interval is for the mean of the rows at hand, and accounts for the noise, or for
        that of what they were drawn from, independently, and accounts for sampling too. The
        population's values are clipped as well.
    random_state : int, RandomState instance or None, default=None
        None keys the noise from the operating system. A seed makes the release repeatable and its
        guarantee void: the report says ``valid=False``.

    Returns
    -------
    PrivateStatistic
        The mean of each column.

    Raises
    ------
    ValueError
        If a parameter or the input is invalid; nothing has been spent then.
    BudgetExceededError
        If an open `PrivacyLedger` refuses; no value has been used then.

    Notes
    -----
    Values are rounded to integers on a public grid. With a public n (zero_out and replace_one,
    without missing values) their sum is released. Otherwise two sums are, of distances from either
    bound, at the noise of one: their ratio tells the mean, and n costs nothing. The interval holds
    all means that a test of level 1 - ``level`` does not reject; for the population it allows for
    the largest variance that values in the bounds can have. Sensitivities, weights and proofs of
    all statistics of this module: docs/derivations.md.

    References
    ----------
    M. Hardt, K. Talwar, *On the Geometry of Differential Privacy*, STOC 2010 (K-norm mechanism).

    Examples
    --------
    >>> from skdp.statistics import dp_mean
    >>> shown = dp_mean([1.0, 2.0, 3.0] * 100, lower=0, upper=4, epsilon=50.0)
    >>> bool(1.99 < shown.value < 2.01), bool(shown.low < shown.value < shown.high)
    (True, True)
    """
    return answer("dp_mean", MeanConfig, locals())
