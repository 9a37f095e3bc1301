"""The expected calibration error of a noisy table: Σ|δ_b| over bins.

|δ + Z| is too large, most where δ is small; so δ is inferred from all bins, with its scale.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from skdp.evaluation.estimates import LEVEL, N_DRAWS, Estimate, normals

# Gaps have the scale τ, of which a share varies smoothly over bins, or is common to all of them, as
# where a model is too sure of itself.
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

    Of noisy counts of rows where the event happened (``right``) or did not, in the order of bins,
    with their variances, and the predicted probability in each bin. w_b g_b is measured with normal
    errors. The gaps have a normal law, whose scale τ (half-Cauchy) and smoothness over bins are
    inferred from all of them: what is off from calibration by chance alone then counts for little.
    The interval starts at 0 unless a likelihood ratio test with error 1 − ``level`` rejects τ = 0:
    an error of 0 can be missed on one side only. Where a few bins alone may be off, it starts no
    higher than what these have.
    """
    f, counts = confidence, right + wrong
    n = max(counts.sum(), 1.0)
    shares = np.maximum(counts, max(np.sqrt(sum(noise)), 0.5)) / n
    measured = (right * (1 - f) - wrong * f) / n
    apart = np.subtract.outer(np.arange(len(f)), np.arange(len(f))) / len(f)
    smooth, waves = (np.exp(-0.5 * (k * apart) ** 2) for k in (3, 8))
    rough = np.eye(len(f))
    mixed = (0.5 * smooth + 0.5 * rough, 0.95 * smooth + 0.05 * rough, 0.95 * waves + 0.05 * rough)
    shapes = np.stack([rough, *mixed, 0.45 * smooth + 0.5 + 0.05 * rough])

    def deviations(gaps: np.ndarray) -> _Deviations:
        # The variance at the gaps found so far: at the counts themselves, bins with few events by
        # chance would seem the surest ones.
        accuracy = np.clip(f + gaps, 0.0, 1.0)
        sampling = alike * shares * n * (accuracy * (1 - accuracy) + gaps**2)
        sd = np.sqrt((sampling + noise[0] * (1 - f) ** 2 + noise[1] * f**2) / n**2)
        values, vectors = np.linalg.eigh(shapes * np.outer(shares / sd, shares / sd))
        signal = _SCALES[:, None] ** 2 * np.maximum(values, 0.0)[:, None]
        return _Deviations(sd, vectors, (measured / sd) @ vectors, signal)

    found = calibrated = deviations(np.zeros(len(f)))
    for _ in range(2):
        found = deviations(found.mean() / shares)
    sums = np.minimum(np.abs(found.draws()).sum(axis=1), 1.0)
    tail = (1 - level) / 2
    low, value, high = np.quantile(sums, [tail, 0.5, 1 - _UPPER_TAIL * tail])
    low *= calibrated.rejects_zero(level)
    return Estimate(value, min(low, calibrated.least_of_few(measured, level)), high, level)


class _Deviations(NamedTuple):
    """δ = w g given its measurement: a mixture over scales τ and shapes of the law of g."""

    sd: np.ndarray  # of the measurement, (n_bins,)
    vectors: np.ndarray  # directions in which δ/sd is independent, (n_shapes, n_bins, n_bins)
    y: np.ndarray  # the measurement along them, of variance 1, (n_shapes, n_bins)
    signal: np.ndarray  # variance of δ along them, (n_shapes, n_scales, n_bins)

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
        of_zero = few.ratios(normals(len(self.sd)) @ self.vectors).max(axis=(0, 2))
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
        draws = normals(len(self.sd)).copy()
        for i, vectors in enumerate(self.vectors):
            kept = all_kept[i, scale[shape == i]]
            moved = kept * self.y[i] + np.sqrt(kept) * draws[shape == i]
            draws[shape == i] = moved @ vectors.T
        return self.sd * draws
