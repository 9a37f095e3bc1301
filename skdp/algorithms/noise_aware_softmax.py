"""From releases to posteriors, for several logits: pure functions of what has been released.

Everything is in units in which rows have norm ≤ 1: θ times R, scores over R. See
`skdp.algorithms.noise_aware_glm` for what is released.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from skdp.algorithms.gaussian_posterior import GaussianPosterior
from skdp.algorithms.parts.noise_aware_run import (
    MAX_LOGIT,
    NoiseAwareState,
    NoiseAwareUpdate,
)
from skdp.algorithms.parts.noisy_softmax import (
    Between,
    Moments,
    Posterior,
    Statistic,
    SyntheticRows,
    steps_at_zero,
)
from skdp.fitting.streams import SecureStream
from skdp.models.bounded_scores import CategoricalScore

if TYPE_CHECKING:
    from skdp.algorithms.noise_aware_glm import NoiseAwareConfig

LEAST_BELIEFS = 8  # draws of the second moments
STEPS_BETWEEN, STEPS_AT_LAST = 2, 4  # of Newton's method


class NoiseAwareSoftmax(NoiseAwareUpdate):
    """Inference for several outputs: gradients tell the moments of the rows too."""

    def __init__(self, config: NoiseAwareConfig, weighted: bool = False) -> None:
        super().__init__(config, weighted)
        self.score = CategoricalScore(config.shape[0], config.clip_norm / self.R)
        noise, n = math.sqrt(self.noise_variance), config.n_rows
        self.n_at_zero = steps_at_zero(config.n_steps, noise, config.shape, n, self.score.bound)

    def update(self, state: NoiseAwareState, noisy: np.ndarray, step: int) -> NoiseAwareState:
        """Take in one release."""
        if step == 0:
            return self.with_moments(state, noisy)
        state = state._replace(
            gradients=(*state.gradients, noisy.ravel() / self.R),
            queries=(*state.queries, state.mean[0]),
        )
        if len(state.gradients) < self.n_at_zero:
            return state
        q = self._solved(state, self._synthetic(state), STEPS_BETWEEN)[1]
        largest = max(1.0, float(np.linalg.norm(q.mean)) / MAX_LOGIT)
        return state._replace(mean=q.mean[None] / largest, likeliest=q)

    def _synthetic(
        self, state: NoiseAwareState, stream: SecureStream | None = None
    ) -> SyntheticRows:
        """Rows with the moments that releases and first gradients tell, or with a draw of them."""
        config = self.config
        assert state.moments is not None
        intercept = 1.0 / self.R if config.fit_intercept else 0.0
        moments = Moments(
            config.n_rows, config.n_features, intercept, state.moments, self.moments_scale
        )
        m, S = moments.believed()
        weight = SyntheticRows(m, S, config.n_rows, self.score).weight_at_zero()
        first = state.gradients[: self.n_at_zero]
        sums = np.mean(first, axis=0).reshape(config.shape) / weight
        between = Between.of(sums, self.noise_variance / len(first) / weight**2, m, moments)
        return SyntheticRows(*moments.believed(between, stream), config.n_rows, self.score)

    def _solved(
        self, state: NoiseAwareState, rows: SyntheticRows, n_steps: int
    ) -> tuple[Statistic, Posterior]:
        given = rows.statistic(state.gradients, state.queries, state.mean[0], self.noise_variance)
        start = state.mean[0] if state.likeliest is None else state.likeliest
        return given, rows.posterior(given, start, self.prior.scale, n_steps)

    def posterior(self, state: NoiseAwareState, stream: SecureStream) -> GaussianPosterior:
        """Posterior given all releases, in the units of the rows as they are."""
        rows = self._synthetic(state)
        given, q = self._solved(state, rows, STEPS_AT_LAST)
        state = state._replace(likeliest=q)
        means = [
            self._solved(state, self._synthetic(state, stream), STEPS_BETWEEN)[1].mean
            for _ in range(LEAST_BELIEFS)
        ]
        covariance = rows.covariance(given, q, self.prior.scale) + np.cov(np.transpose(means))
        return self.in_units(q.mean, covariance, self.prior.start[None])
