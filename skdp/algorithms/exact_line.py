"""The normal posterior of a linear regression without privacy, from exact moments.

θ ~ N(0, τ²) by blocks, ln σ ~ N(ln 0.2, 1) for targets in [-1, 1]. Given σ and τ, θ is normal; both
are where the variational bound is largest, found in turn with it (expectation-maximisation), and
ln σ has the variance that its curvature there says.

Nothing is private here: a fit with ε = ∞ is the reference for those with a budget.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from skdp.algorithms.gaussian_posterior import RegressionPosterior
from skdp.algorithms.noise_aware.numbers import USUAL_SCALE
from skdp.algorithms.parts.gaussian_runs import FLOAT, GaussianRun
from skdp.algorithms.parts.prior_scales import PriorScales
from skdp.engine.linear_sums import LinearClippedSum, ScoreGramSum, of_weights, unpacked
from skdp.engine.loop import Progress
from skdp.engine.sampling import FullBatch
from skdp.fitting.streams import Streams
from skdp.rows.bounded_sum import CHUNK_ROWS
from skdp.rows.lazy_rows import rows_of
from skdp.rows.records import LinearBatch, LinearRows, Rows, gram, row_bound

HYPER_SCALE = 2.0  # of τ, in the mean of a row at the norm bound
MOST_PASSES, SETTLED, OVERRELAXED = 200, 1e-3, 1.7  # last change of ln τ, and EM's steps
EXACT = 1e-8  # the same of ln σ
SMALLEST = 1e-7  # σ over the targets' unit
ROUNDED = 1e-11  # of the largest eigenvalue, from which on one is 0


@dataclass(frozen=True, kw_only=True)
class ExactLineConfig(GaussianRun):
    """What a run depends on.

    - ``fit_intercept``: whether each row has a 1 appended.
    - ``data_norm``: norm > 0 to which rows are clipped.
    - ``prior_scale``: τ > 0; None takes the likeliest, under a half-normal hyperprior.
    - ``prior_blocks``: block of each column; those of one share a τ, and the intercept has its own.
    - ``bounded``: whether targets are cut to [-1, 1]; else their root mean square is their unit.
    - ``robust``: whether the covariance is the sandwich.
    """

    n_rows: int
    n_features: int
    fit_intercept: bool
    data_norm: float
    prior_scale: float | None = None
    prior_blocks: tuple[int, ...] | None = None
    bounded: bool = True
    robust: bool = False
    private: ClassVar[bool] = False
    n_steps: ClassVar[int] = 1
    count_noise: ClassVar[float] = 0.0  # pyright: ignore
    asks_sums: ClassVar[bool] = True

    @property
    def sampling(self) -> FullBatch:
        """Every row takes part in the only pass."""
        return FullBatch(1)

    @property
    def row_bound(self) -> float:
        """Norm bound of a row with its intercept."""
        return row_bound(self.data_norm, self.fit_intercept)

    @property
    def memory(self) -> int:
        """Bytes of the rows, copied, about."""
        return FLOAT * self.n_rows * (self.n_features + 3)

    def run(self, records: Any, streams: Streams, progress: Progress = iter) -> RegressionPosterior:
        """Find the posterior of (θ, ln σ), with exact counts of what was cut."""
        most = 1.0 if self.bounded else math.inf
        build = partial(LinearRows.of, self, target_bounds=(-most, most))
        rows, D = rows_of(records, build, kept=False), self.n_features + self.fit_intercept
        (sums,) = progress(rows.sum(partial(moments, D), slice(None)) for _ in range(1))
        R, sums = self.row_bound, sums * self.weight_bound
        A, b = sums[: D * D].reshape(D, D) / R**2, sums[D * D : -4] / R
        squares, n, *outside = sums[-4:]
        unit = 1.0 if self.bounded else math.sqrt(squares / max(n, 1.0)) or 1.0
        given = None if self.prior_scale is None else self.prior_scale * R
        prior = PriorScales.of(given, (1, D), self.n_features, self.prior_blocks, HYPER_SCALE)
        found = likeliest(A, b / unit, squares / unit**2, n, prior)
        mean, covariance, log_scale, variance, scales = found
        if self.robust:
            V = self._scatter(rows, unit * mean / R) / (R * unit * math.exp(2 * log_scale)) ** 2
            of_prior = np.diag(prior.precision(scales))
            covariance = covariance @ (V + of_prior) @ covariance
        whole = np.zeros((D + 1, D + 1))
        whole[:D, :D], whole[D, D] = covariance * (unit / R) ** 2, variance
        return RegressionPosterior(
            np.append(unit * mean / R, log_scale + math.log(unit))[None],
            whole,
            np.array(outside[: 1 + self.bounded]),
            prior_scales=prior.summary(scales[None], self.n_features) / R,
            unit=unit,
        )

    def _scatter(self, rows: Rows, theta: np.ndarray) -> np.ndarray:
        """Σ s sᵀ of the scores r x, of rows or of persons."""
        scores = ScoreGramSum(of_weights(LinearClippedSum(_residual, math.inf), self.weight_bound))
        if self.persons is not None:
            scores = scores.of_persons(self.persons)
        return unpacked(rows.sum(partial(scores, theta[None]), slice(None)), len(theta))


def _residual(line: np.ndarray, targets: np.ndarray) -> np.ndarray:
    return targets - line


def moments(D: int, batch: LinearBatch) -> np.ndarray:
    """Sum x xᵀ, x y, y², 1 and the counts of what was cut, over rows with their weights."""
    total = np.zeros(D * D + D + 4)
    for chunk in batch.chunks(CHUNK_ROWS):
        w, y = chunk.weighted(np.ones(len(chunk.norms))), chunk.targets[:, 0]
        scalars = [w @ y**2, w.sum(), *(w @ chunk.outside)]
        total += np.concatenate([gram(chunk.rows, w).ravel(), (w * y) @ chunk.rows, scalars])
    return total


def likeliest(
    A: np.ndarray, b: np.ndarray, squares: float, n: float, prior: PriorScales
) -> tuple[np.ndarray, np.ndarray, float, float, np.ndarray]:
    """Mean and covariance of θ, mean and variance of ln σ, and τ, given moments."""
    centre, least = math.log(USUAL_SCALE), math.log(SMALLEST)
    scales, u, curvature = prior.start, centre, 1.0
    mean, covariance = np.zeros(len(b)), np.eye(len(b))
    for _ in range(MOST_PASSES):
        tau = prior.precision(scales) ** -0.5
        a, U = np.linalg.eigh(A * np.outer(tau, tau))
        # Where columns depend on each other a is rounding, and a wide prior would trust it.
        known = a > ROUNDED * max(a[-1], 1e-300)
        a, along = np.where(known, a, 0.0), np.where(known, U.T @ (tau * b), 0.0)
        variances = 1.0 / (a * math.exp(-2 * u) + 1.0)
        m = variances * along * math.exp(-2 * u)
        off = squares - 2 * m @ along + m**2 @ a + variances @ a
        before = u
        for _ in range(20):  # Newton's method of ln σ, whose density is log-concave
            fit = max(off, 0.0) * math.exp(-2 * u)
            curvature = 2 * fit + 1.0
            step = (fit - n - (u - centre)) / curvature
            u = max(u + min(max(step, -1.0), 1.0), least)
        mean, covariance = tau * (U @ m), (U * variances) @ U.T * np.outer(tau, tau)
        ratio = prior.likeliest(mean, np.diag(covariance)) / scales
        scales = scales * ratio**OVERRELAXED
        if np.abs(np.log(ratio)).max() < SETTLED and abs(u - before) < EXACT:
            break
    return mean, covariance, float(u), float(1.0 / curvature), scales
