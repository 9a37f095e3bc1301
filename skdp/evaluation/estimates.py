"""What can be read off a noisy table of counts, with intervals for sampling and noise together.

Rows are drawn from a population; their counts N have a multinomial law, and the table T = N + Z
was released with independent noise Z of known variance v on each count. Where the number of rows
is public, T is moved to this total by least squares, which takes its share out of the noise. Cells
stay negative where noise made them so: sums are unbiased then, and what is cut at 0 is not.

- *Ratios* (`ratio`): means, shares, precision, recall. Fieller's interval: all θ for which
  Σ(c − θd)T is within z standard deviations of 0. The variance is taken at θ, as in Wilson's
  interval; where the denominator may be 0, the interval is the whole range.
- *Pairs* (`pairwise`): the mean of a kernel over pairs of a positive and a negative row, as the
  area under the ROC curve is; the same, with the row's mean over the other class in place of c.
- *Calibration errors* are in `calibration_error.py`.
- *Other functions* (`by_draws`): draws of the counts given T, less their bias.

All of it is post-processing: fixed functions of T and public facts.

References
----------
E. C. Fieller, *Some Problems in Interval Estimation*, JRSS B 1954. E. B. Wilson, *Probable
Inference, the Law of Succession, and Statistical Inference*, JASA 1927.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

LEVEL = 0.9
N_DRAWS = 2000
UNIT = (0.0, 1.0)
Span = tuple[float, float]


@dataclass(frozen=True, eq=False)
class Estimate:
    """A value with an interval; numbers, or arrays of one shape.

    Parameters
    ----------
    value : float or ndarray
        Estimate for the population that the rows were drawn from.
    low, high : float or ndarray
        Ends of the interval, which accounts for sampling and for the privacy noise.
    level : float, default=0.9
        Nominal coverage of the interval.

    Examples
    --------
    >>> from skdp.evaluation import Estimate
    >>> accuracy = Estimate(0.8125, 0.79, 0.83)
    >>> accuracy, float(accuracy)
    (0.8125 [0.79, 0.83], 0.8125)
    """

    value: Any
    low: Any
    high: Any
    level: float = LEVEL

    def __float__(self) -> float:
        return float(self.value)

    def __repr__(self) -> str:
        if np.ndim(self.value):
            return f"Estimate(value={self.value!r}, low={self.low!r}, high={self.high!r})"
        return f"{self.value:.4g} [{self.low:.3g}, {self.high:.3g}]"

    def map(self, function: Callable[[Any], Any]) -> Estimate:
        """Apply an increasing function to value and ends, such as the root."""
        return Estimate(function(self.value), function(self.low), function(self.high), self.level)

    def __getitem__(self, key: Any) -> Estimate:
        return self.map(lambda x: x[key])

    def to_dict(self) -> dict[str, Any]:
        """Return the estimate as plain Python objects."""
        ends = {name: np.asarray(getattr(self, name)).tolist() for name in ("value", "low", "high")}
        return ends | {"level": self.level}


class NoisyTable(NamedTuple):
    """Counts with noise, of cells in the last axis; leading axes are independent tables.

    Of rows of persons the variance of a sum is at most ``alike`` times that of independent rows.
    """

    counts: np.ndarray  # (..., n_cells), of the known total where there is one
    variance: float  # of the noise on each, before it was moved to the total
    n: int | None  # public number of rows
    alike: int = 1
    level: float = LEVEL

    @classmethod
    def of(cls, counts: Any, variance: float, n: int | None, *more: Any) -> NoisyTable:
        """Move counts to the public total, where there is one."""
        counts = np.asarray(counts, dtype=np.float64)
        if n is not None:
            counts = counts + (n - counts.sum(-1, keepdims=True)) / counts.shape[-1]
        return cls(counts, variance, n, *more)

    def noise(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Covariance of the noise of Σ xT and Σ yT."""
        covariance = (x * y).sum(-1)
        if self.n is not None:
            covariance = covariance - x.sum(-1) * y.sum(-1) / x.shape[-1]
        return self.variance * covariance


def ratio(
    table: NoisyTable, c: Any, d: Any = None, *, shares: bool = False, span: Span = UNIT
) -> Estimate:
    """Estimate Σ cπ / Σ dπ in a range, for the probabilities π of the cells; d is 1 by default.

    With ``shares``, c and d are 0 or 1, and c ≤ d.
    """
    T, c = table.counts, np.asarray(c, dtype=np.float64)
    d = np.ones_like(c) if d is None else np.asarray(d, dtype=np.float64)
    C, D = (T * c).sum(-1), (T * d).sum(-1)
    if shares:  # Σ(c − θd)²π = θ(1 − θ) Σ dπ
        if d.any() and (not c.any() or (c == d).all()):
            value = np.broadcast_to(float(c.any()), C.shape)[()]
            return Estimate(value, value, value, table.level)
        known = np.maximum(D, 0.0)
        sampling = np.zeros_like(known), -known / 2, -known
    else:
        sampling = _moments(T, c, d)
    return _of_sums(table, C, D, c, d, sampling, span)


def mean(table: NoisyTable, c: np.ndarray) -> Estimate:
    """Estimate the mean of c over rows."""
    return ratio(table, c, span=(float(c.min()), float(c.max())))


def pairwise(table: NoisyTable, kernel: np.ndarray) -> Estimate:
    """Mean in [0, 1] of a kernel (B, B) over pairs of a row of class 0 and a row of class 1.

    The table (..., 2 B) has the bins of class 0, then those of class 1.
    """
    T, B = table.counts, len(kernel)
    T0, T1 = T[..., :B], T[..., B:]
    c = np.concatenate([T1 @ kernel.T, T0 @ kernel], axis=-1)
    sums = T0.sum(-1, keepdims=True), T1.sum(-1, keepdims=True)
    d = np.concatenate([np.broadcast_to(s, T0.shape) for s in sums[::-1]], axis=-1)
    C, D = (T1 * c[..., B:]).sum(-1), (sums[0] * sums[1])[..., 0]
    if table.n is not None:  # noise of a known total has covariance −v/(2B) between cells
        share = table.variance / (2 * B)
        C, D = C + share * kernel.sum(), D + share * B * B
    return _of_sums(table, C, D, c, d, _moments(T, c, d), UNIT)


def _moments(T: np.ndarray, c: np.ndarray, d: np.ndarray) -> tuple[Any, Any, Any]:
    """Σ ccT, Σ cdT, Σ ddT."""
    return (T * c * c).sum(-1), (T * c * d).sum(-1), (T * d * d).sum(-1)


def _of_sums(
    table: NoisyTable, C: Any, D: Any, c: Any, d: Any, sampling: Any, span: Span
) -> Estimate:
    """Fieller's interval, for the variance of Σ(c − θd)T by sampling, and by noise."""
    theta = _quotient(C, D, span)
    s0, s1, s2 = (table.alike * s for s in sampling)
    s0 = s0 - np.minimum(0.0, s0 - 2 * theta * s1 + theta**2 * s2)  # noise can make it negative
    V = [s + table.noise(x, y) for s, x, y in ((s0, c, c), (s1, c, d), (s2, d, d))]
    return fieller(C, D, V, span, table.level)


def fieller(C: Any, D: Any, V: Sequence[Any], span: Span, level: float) -> Estimate:
    """Solve (C − θD)² ≤ z² (V₀ − 2θV₁ + θ²V₂) for θ in a range, all of it where D may be 0."""
    z2 = NormalDist().inv_cdf((1 + level) / 2) ** 2
    value = _quotient(C, D, span)
    q2, q1, q0 = D * D - z2 * V[2], C * D - z2 * V[1], C * C - z2 * V[0]
    bounded = (q2 > 0) & (D > 0)
    q2 = np.where(bounded, q2, 1.0)
    root = np.sqrt(np.maximum(q1 * q1 - q2 * q0, 0.0))
    low = np.clip(np.where(bounded, (q1 - root) / q2, span[0]), *span)
    high = np.clip(np.where(bounded, (q1 + root) / q2, span[1]), *span)
    ends = value, np.minimum(low, value), np.maximum(high, value)
    value, low, high = (x if np.ndim(x) else float(x) for x in ends)
    return Estimate(value, low, high, level)


def _quotient(C: Any, D: Any, span: Span) -> np.ndarray:
    """C/D within the range; its middle where nothing is known."""
    known = np.asarray(D) > 0
    return np.clip(np.where(known, C / np.where(known, D, 1.0), sum(span) / 2), *span)


@lru_cache(maxsize=8)
def normals(n_columns: int) -> np.ndarray:
    """Fixed draws: what is read off a table twice is the same."""
    draws = np.random.default_rng(0).standard_normal((N_DRAWS, n_columns))
    draws.flags.writeable = False
    return draws


def by_draws(
    table: NoisyTable, function: Callable[[np.ndarray], np.ndarray], divisors: np.ndarray
) -> Estimate:
    """Estimate a function in [0, 1] of the counts (..., n_cells) from draws given the table.

    Draws scatter about T as T scatters about the expected counts. So what the mean of the function
    over draws is off from its value at T, that value is off from the one wanted. Where one of the
    sums it divides by, of weights ``divisors``, may be 0 as far as one sees, nothing is known.
    """
    T = table.counts
    z2 = NormalDist().inv_cdf((1 + table.level) / 2) ** 2
    for d in divisors:
        total = (T * d).sum()
        if total <= 0 or total**2 <= z2 * (table.alike * total + table.noise(d, d)):
            return Estimate(0.5, 0.0, 1.0, table.level)
    sampling, noise = np.split(normals(2 * len(T)), 2, axis=1)
    known = np.maximum(T, 0.0)
    moved = np.sqrt(table.alike * known) * sampling
    moved -= known / max(known.sum(), 1.0) * moved.sum(axis=1, keepdims=True)
    if table.n is not None:
        noise = noise - noise.mean(axis=1, keepdims=True)
    draws, at = function(T + moved + np.sqrt(table.variance) * noise), function(T)
    bias = np.median(draws, axis=0) - at  # a ratio of normals has no mean
    tails = (1 - table.level) / 2, (1 + table.level) / 2
    low, high = np.quantile(draws, tails, axis=0) - 2 * bias
    value, low, high = (np.clip(x, *UNIT) for x in (at - bias, low, high))
    return Estimate(value, np.minimum(low, value), np.maximum(high, value), table.level)


def stacked(estimates: Sequence[Estimate]) -> Estimate:
    """One estimate of arrays from several of numbers."""
    value, low, high = np.array([(e.value, e.low, e.high) for e in estimates]).T
    return Estimate(value, low, high, estimates[0].level)


def monotone(curve: Estimate) -> Estimate:
    """Make the points of a curve that falls with its index fall: noise can make it turn back.

    Halfway between the least falling curve above and the greatest one below.
    """

    def falling(x: np.ndarray) -> np.ndarray:
        below = np.minimum.accumulate(x)
        return (below + np.maximum.accumulate(x[::-1])[::-1]) / 2

    return curve.map(falling)
