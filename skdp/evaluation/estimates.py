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
- *Calibration errors* (`calibration_error`): Σ|δ_b| over bins. |δ + Z| is too large, most where δ
  is small; so δ is inferred, with its own scale and smoothness, from all bins together.
- *Other functions* (`by_draws`): draws of the counts given T, less their bias.

All of it is post-processing: fixed functions of T and public facts.

>>> import numpy as np
>>> from skdp.evaluation.estimates import Estimate, NoisyTable, ratio
>>> table = NoisyTable.of(np.array([812.0, 191.0]), variance=8.0, n=1000)
>>> ratio(table, np.array([1, 0]), np.array([1, 1]), shares=True)
0.8105 [0.789, 0.83]

References
----------
E. C. Fieller, *Some Problems in Interval Estimation*, JRSS B 1954. E. B. Wilson, *Probable
Inference, the Law of Succession, and Statistical Inference*, JASA 1927.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

LEVEL = 0.9
N_DRAWS = 2000


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
        """Apply an increasing function to value and ends, such as the root.

        Parameters
        ----------
        function : callable
            Increasing, of numbers or arrays.

        Returns
        -------
        Estimate
        """
        return Estimate(function(self.value), function(self.low), function(self.high), self.level)

    def __getitem__(self, key: Any) -> Estimate:
        """Select from arrays."""
        return Estimate(self.value[key], self.low[key], self.high[key], self.level)

    def to_dict(self) -> dict[str, Any]:
        """Return the estimate as plain Python objects."""
        ends = {name: np.asarray(getattr(self, name)).tolist() for name in ("value", "low", "high")}
        return ends | {"level": self.level}


class NoisyTable(NamedTuple):
    """Counts with noise, of cells in the last axis; leading axes are independent tables.

    Parameters
    ----------
    counts : ndarray of shape (..., n_cells)
        Noisy counts; of the known total where there is one.
    variance : float
        Of the noise on each count, before it was moved to the total.
    n : int or None
        Public number of rows, or None where it is private.
    alike : int, default=1
        Rows that may be of one person, and count as if they were all alike: the variance of a sum
        is at most so many times that of independent rows.
    """

    counts: np.ndarray
    variance: float
    n: int | None
    alike: int = 1

    @classmethod
    def of(cls, counts: np.ndarray, variance: float, n: int | None, alike: int = 1) -> NoisyTable:
        """Move counts to the public total, where there is one."""
        counts = np.asarray(counts, dtype=np.float64)
        if n is not None:
            counts = counts + (n - counts.sum(-1, keepdims=True)) / counts.shape[-1]
        return cls(counts, variance, n, alike)

    def noise(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Covariance of the noise of Σ xT and Σ yT."""
        covariance = (x * y).sum(-1)
        if self.n is not None:
            covariance = covariance - x.sum(-1) * y.sum(-1) / x.shape[-1]
        return self.variance * covariance


def ratio(
    table: NoisyTable,
    c: np.ndarray,
    d: np.ndarray,
    *,
    shares: bool = False,
    span: tuple[float, float] = (0.0, 1.0),
    level: float = LEVEL,
) -> Estimate:
    """Estimate Σ cπ / Σ dπ, for the probabilities π of the cells.

    Parameters
    ----------
    table : NoisyTable
        Counts T.
    c, d : array-like of shape (n_cells,)
        Weights.
    shares : bool, default=False
        Whether c and d are 0 or 1, and c ≤ d.
    span : tuple of float
        Range of the ratio.
    level : float
        Nominal coverage.

    Returns
    -------
    Estimate
    """
    T, c, d = table.counts, np.asarray(c, dtype=np.float64), np.asarray(d, dtype=np.float64)
    C, D = (T * c).sum(-1), (T * d).sum(-1)
    if shares:  # Σ(c − θd)²π = θ(1 − θ) Σ dπ
        if d.any() and (not c.any() or (c == d).all()):
            value = np.broadcast_to(float(c.any()), C.shape)[()]
            return Estimate(value, value, value, level)
        known = np.maximum(D, 0.0)
        sampling = np.zeros_like(known), -known / 2, -known
    else:
        sampling = _moments(T, c, d)
    return _of_sums(table, (C, D), c, d, sampling, span, level)


def pairwise(table: NoisyTable, kernel: np.ndarray, *, level: float = LEVEL) -> Estimate:
    """Mean in [0, 1] of a kernel over pairs of a row of class 0 and a row of class 1.

    Parameters
    ----------
    table : NoisyTable
        Counts (..., 2 B): B bins of class 0, then those of class 1.
    kernel : ndarray of shape (B, B)
        Value of a pair, by the bins of the row of class 0 and of the row of class 1.
    level : float
        Nominal coverage.

    Returns
    -------
    Estimate
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
    return _of_sums(table, (C, D), c, d, _moments(T, c, d), (0.0, 1.0), level)


def _moments(T: np.ndarray, c: np.ndarray, d: np.ndarray) -> tuple[Any, Any, Any]:
    """Σ ccT, Σ cdT, Σ ddT."""
    return (T * c * c).sum(-1), (T * c * d).sum(-1), (T * d * d).sum(-1)


def _of_sums(
    table: NoisyTable,
    sums: tuple[np.ndarray, np.ndarray],
    c: np.ndarray,
    d: np.ndarray,
    sampling: tuple[Any, Any, Any],
    span: tuple[float, float],
    level: float,
) -> Estimate:
    """Fieller's interval, for the variance of Σ(c − θd)T by sampling, and by noise."""
    theta = _quotient(*sums, span)
    s0, s1, s2 = (table.alike * s for s in sampling)
    s0 = s0 - np.minimum(0.0, s0 - 2 * theta * s1 + theta**2 * s2)  # noise can make it negative
    V = [s + table.noise(x, y) for s, x, y in ((s0, c, c), (s1, c, d), (s2, d, d))]
    return fieller(*sums, V, span=span, level=level)


def fieller(
    C: Any, D: Any, V: Sequence[Any], *, span: tuple[float, float], level: float = LEVEL
) -> Estimate:
    """Solve (C − θD)² ≤ z² (V₀ − 2θV₁ + θ²V₂) for θ in a range.

    Parameters
    ----------
    C, D : float or ndarray
        Numerator and denominator.
    V : sequence of float or ndarray
        Variance of C, covariance, and variance of D.
    span : tuple of float
        The range.
    level : float
        Nominal coverage.

    Returns
    -------
    Estimate
        C/D with the interval; the whole range where D may be 0.
    """
    z2 = NormalDist().inv_cdf((1 + level) / 2) ** 2
    value = _quotient(C, D, span)
    q2, q1, q0 = D * D - z2 * V[2], C * D - z2 * V[1], C * C - z2 * V[0]
    bounded = (q2 > 0) & (D > 0)
    q2 = np.where(bounded, q2, 1.0)
    root = np.sqrt(np.maximum(q1 * q1 - q2 * q0, 0.0))
    low = np.clip(np.where(bounded, (q1 - root) / q2, span[0]), *span)
    high = np.clip(np.where(bounded, (q1 + root) / q2, span[1]), *span)
    low, high = np.minimum(low, value), np.maximum(high, value)
    # Numbers are plain ones.
    value, low, high = (x if np.ndim(x) else float(x) for x in (value, low, high))
    return Estimate(value, low, high, level)


def _quotient(C: Any, D: Any, span: tuple[float, float]) -> np.ndarray:
    """C/D within the range; its middle where nothing is known."""
    known = np.asarray(D) > 0
    return np.clip(np.where(known, C / np.where(known, D, 1.0), sum(span) / 2), *span)


@lru_cache(maxsize=8)
def _normals(n_columns: int) -> np.ndarray:
    """Fixed draws: what is read off a table twice is the same."""
    draws = np.random.default_rng(0).standard_normal((N_DRAWS, n_columns))
    draws.flags.writeable = False
    return draws


# Of calibration_error: gaps have the scale τ, of which a share varies smoothly over bins, or is
# common to all of them, as where a model is too sure of itself.
_SCALES = np.concatenate([[0.0], np.geomspace(2e-5, 1.0, 34)])
_PRIOR_SCALE = 0.3
# Gaps that are all of one size, with changing signs, are shrunk too far by a normal law. From
# simulations: the upper tail that holds as often as it says for them and for others.
_UPPER_TAIL = 0.7


def calibration_error(
    right: np.ndarray,
    wrong: np.ndarray,
    confidence: np.ndarray,
    noise: tuple[float, float],
    *,
    alike: int = 1,
    level: float = LEVEL,
) -> Estimate:
    """Σ_b w_b|g_b|, of shares w_b of bins and gaps g_b between accuracy and confidence.

    w_b g_b is measured with normal errors. The gaps have a normal law, whose scale τ (half-Cauchy)
    and smoothness over bins are inferred from all of them. What is off from calibration by chance
    alone then counts for little. The interval starts at 0 unless a likelihood ratio test with error
    1 − ``level`` rejects τ = 0: an error of 0 can be missed on one side only; and not above what
    few bins have, where these alone may be off.

    Parameters
    ----------
    right, wrong : ndarray of shape (n_bins,)
        Noisy counts of rows where the event happened, and where it did not, in the order of bins.
    confidence : ndarray of shape (n_bins,)
        Predicted probability of the event.
    noise : tuple of float
        Variances of the noise on each count of the one and of the other.
    alike : int, default=1
        As in `NoisyTable`.
    level : float
        Nominal coverage.

    Returns
    -------
    Estimate
    """
    f, counts = confidence, right + wrong
    n = max(counts.sum(), 1.0)
    shares = np.maximum(counts, max(np.sqrt(sum(noise)), 0.5)) / n
    measured = (right * (1 - f) - wrong * f) / n
    apart = np.subtract.outer(np.arange(len(f)), np.arange(len(f))) / len(f)
    smooth, waves = (np.exp(-0.5 * (k * apart) ** 2) for k in (3, 8))
    rough = np.eye(len(f))
    shapes = np.stack(
        [
            rough,
            0.5 * smooth + 0.5 * rough,
            0.95 * smooth + 0.05 * rough,
            0.95 * waves + 0.05 * rough,
            0.45 * smooth + 0.5 + 0.05 * rough,
        ]
    )

    def deviations(gaps: np.ndarray) -> _Deviations:
        # The variance at the gaps found so far: at the counts themselves, bins with few events by
        # chance would seem the surest ones.
        accuracy = np.clip(f + gaps, 0.0, 1.0)
        sampling = alike * shares * n * (accuracy * (1 - accuracy) + gaps**2)
        variances = (sampling + noise[0] * (1 - f) ** 2 + noise[1] * f**2) / n**2
        return _Deviations.of(measured, variances, shares, shapes)

    found = calibrated = deviations(np.zeros(len(f)))
    for _ in range(2):
        found = deviations(found.mean() / shares)
    sums = np.minimum(np.abs(found.draws()).sum(axis=1), 1.0)
    tail = (1 - level) / 2
    low, value, high = np.quantile(sums, [tail, 0.5, 1 - _UPPER_TAIL * tail])
    low *= calibrated.rejects_zero(level)
    return Estimate(value, min(low, calibrated.least_of_few(measured, level)), high, level)


class _Deviations(NamedTuple):
    """δ = w g given its measurement: a mixture over scales τ and shapes of the law of g.

    Parameters
    ----------
    sd : ndarray of shape (n_bins,)
        Standard deviations of the measurement.
    vectors : ndarray of shape (n_shapes, n_bins, n_bins)
        Directions in which δ over ``sd`` is independent.
    y : ndarray of shape (n_shapes, n_bins)
        The measurement along them, of variance 1.
    signal : ndarray of shape (n_shapes, n_scales, n_bins)
        Variance of δ along them.
    """

    sd: np.ndarray
    vectors: np.ndarray
    y: np.ndarray
    signal: np.ndarray

    @classmethod
    def of(
        cls, measured: np.ndarray, variances: np.ndarray, weights: np.ndarray, shapes: np.ndarray
    ) -> _Deviations:
        sd = np.sqrt(variances)
        values, vectors = np.linalg.eigh(shapes * np.outer(weights / sd, weights / sd))
        signal = _SCALES[:, None] ** 2 * np.maximum(values, 0.0)[:, None]
        return cls(sd, vectors, (measured / sd) @ vectors, signal)

    @property
    def kept(self) -> np.ndarray:
        """Share of the measurement that counts as signal."""
        return self.signal / (1 + self.signal)

    def ratios(self, y: np.ndarray) -> np.ndarray:
        """Twice the log-likelihood ratio of each τ to τ = 0, for y (n_shapes, n, n_bins)."""
        return y**2 @ self.kept.swapaxes(1, 2) - np.log1p(self.signal).sum(axis=-1)[:, None]

    def rejects_zero(self, level: float) -> bool:
        """Whether the best τ is better than it is for a share ``level`` of draws of τ = 0."""
        few = self._replace(signal=self.signal[:, ::3])  # as exact, and faster
        of_zero = few.ratios(_normals(len(self.sd)) @ self.vectors).max(axis=(0, 2))
        return bool(few.ratios(self.y[:, None]).max() > np.quantile(of_zero, level))

    @property
    def posterior(self) -> np.ndarray:
        """Probabilities of the mixture, (n_shapes, n_scales)."""
        # The measure of a τ: log τ is spaced equally, and 0 stands for what is below the least.
        measure = np.log(np.where(_SCALES > 0, _SCALES, 2 * _SCALES[1]))
        measure -= np.log1p((_SCALES / _PRIOR_SCALE) ** 2)
        log = 0.5 * self.ratios(self.y[:, None])[:, 0] + measure
        found = np.exp(log - log.max())
        return found / found.sum()

    def least_of_few(self, measured: np.ndarray, level: float) -> float:
        """Least sum of |δ| over the fewest bins that may have all of it; else infinite.

        A likelihood ratio test of gaps in k bins, each as it was measured, against the best law of
        gaps in all; of more than one, their number and scale count against them.
        """
        z = NormalDist().inv_cdf((1 + level) / 2)
        furthest = np.argsort(-np.abs(measured) / self.sd)
        sums, variances = np.abs(measured)[furthest].cumsum(), (self.sd[furthest] ** 2).cumsum()
        squares = (measured / self.sd)[furthest] ** 2
        k, more = np.arange(1, len(squares) + 1), np.arange(len(squares))
        few = squares.cumsum()
        few -= more * (1 + np.log(np.maximum(few / k, 1.0)))
        few -= 2 * np.log([math.comb(len(more) - 1, m) for m in more])
        possible = few + z * z >= self.ratios(self.y[:, None]).max()
        least = np.maximum(sums - z * np.sqrt(variances), 0.0)
        return float(least[np.argmax(possible)]) if possible.any() else np.inf

    def mean(self) -> np.ndarray:
        kept = np.einsum("st,stk->sk", self.posterior, self.kept)
        return self.sd * np.einsum("sbk,sk->b", self.vectors, kept * self.y)

    def draws(self) -> np.ndarray:
        ranks = (np.arange(N_DRAWS) + 0.5) / N_DRAWS
        posterior, all_kept = self.posterior, self.kept
        at = np.searchsorted(np.cumsum(posterior), ranks).clip(max=posterior.size - 1)
        shape, scale = np.divmod(at, len(_SCALES))
        draws = _normals(len(self.sd)).copy()
        for i, vectors in enumerate(self.vectors):
            kept = all_kept[i, scale[shape == i]]
            moved = kept * self.y[i] + np.sqrt(kept) * draws[shape == i]
            draws[shape == i] = moved @ vectors.T
        return self.sd * draws


def by_draws(
    table: NoisyTable,
    function: Callable[[np.ndarray], np.ndarray],
    divisors: np.ndarray,
    *,
    span: tuple[float, float] = (0.0, 1.0),
    level: float = LEVEL,
) -> Estimate:
    """Estimate a function of the counts from draws of them given the table.

    Draws scatter about T as T scatters about the expected counts. So what the mean of the function
    over draws is off from its value at T, that value is off from the one wanted.

    Parameters
    ----------
    table : NoisyTable
        One table (n_cells,).
    function : callable
        Of counts (..., n_cells), which may be negative; returns (...).
    divisors : ndarray of shape (m, n_cells)
        Weights of sums that the function divides by. Where one may be 0, as far as the noise lets
        one see, nothing is known.
    span : tuple of float
        Range of the function.
    level : float
        Nominal coverage.

    Returns
    -------
    Estimate
    """
    T = table.counts
    z2 = NormalDist().inv_cdf((1 + level) / 2) ** 2
    for d in divisors:
        total = (T * d).sum()
        if total <= 0 or total**2 <= z2 * (table.alike * total + table.noise(d, d)):
            return Estimate(sum(span) / 2, *span, level)
    sampling, noise = np.split(_normals(2 * len(T)), 2, axis=1)
    known = np.maximum(T, 0.0)
    moved = np.sqrt(table.alike * known) * sampling
    moved -= known / max(known.sum(), 1.0) * moved.sum(axis=1, keepdims=True)
    if table.n is not None:
        noise = noise - noise.mean(axis=1, keepdims=True)
    draws = function(T + moved + np.sqrt(table.variance) * noise)
    at = function(T)
    # Medians: a ratio of normals has no mean.
    bias = np.median(draws, axis=0) - at
    tails = (1 - level) / 2, (1 + level) / 2
    low, high = np.quantile(draws, tails, axis=0) - 2 * bias
    value, low, high = (np.clip(x, *span) for x in (at - bias, low, high))
    return Estimate(value, np.minimum(low, value), np.maximum(high, value), level)


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
