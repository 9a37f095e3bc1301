"""State of a run of `skdp.algorithms.noise_aware_glm`, and what of it is known at once."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from skdp.algorithms.gaussian_posterior import GaussianPosterior
from skdp.algorithms.parts.gaussian_runs import far_below, release_plan_of, rows_told
from skdp.algorithms.parts.logit_rows import LogitRows
from skdp.engine.linear_sums import unpacked

if TYPE_CHECKING:
    from skdp.algorithms.noise_aware_glm import NoiseAwareConfig

MAX_LOGIT = 1e4  # of a row at the norm bound, where a gradient is asked for
GRAM, TRACE = "gram", "trace"


class NoiseAwareState(NamedTuple):
    """All of it is a function of what has been released."""

    mean: np.ndarray  # θ_t, scaled to rows of norm ≤ 1, (1, KD)
    scales: np.ndarray  # τ, (blocks,)
    rows: LogitRows | None = None  # what Ã, H̃ and the gradients say, their noise taken out
    gradients: tuple[np.ndarray, ...] = ()  # g̃_t
    queries: tuple[np.ndarray, ...] = ()  # θ_t at which they were asked for
    moments: np.ndarray | None = None  # Ã, (D, D), or its trace, (1,)
    slope: tuple[np.ndarray, np.ndarray, LogitRows] | None = None  # H̃, its θ, what was believed
    scatter: np.ndarray | None = None  # Σ s sᵀ at the last θ, (D, D)
    offset: tuple[float, float] = (0.0, 0.0)  # mean and variance of what is added to logits


class NoiseAwareUpdate:
    """What is asked for, and what is taken in.

    Parameters
    ----------
    config : NoiseAwareConfig
        Public facts of the run.
    weighted : bool, default=False
        Whether rows have weights: there are as many rows as these come to, by a noisy sum where
        the intercept tells one.
    """

    def __init__(self, config: NoiseAwareConfig, weighted: bool = False) -> None:
        self.config, self.weighted = config, weighted
        self.R = config.row_bound
        self.size = math.prod(config.shape)
        bound = config.weight_bound * config.of_person * config.clip_norm
        self.noise_variance = (config.noise_multiplier * bound / self.R) ** 2  # ν²
        self.plan = release_plan_of(config)
        self.moments_scale = self.noise_scale(config.exposed)  # in Ã, or in its trace
        self.prior = config.prior

    def noise_scale(self, step: int) -> float:
        """Deviation of the noise of a release, in the units of rows of norm ≤ 1, squared."""
        return self.plan.step(self.config.shape, step)[1].scale / self.R**2

    def init(self) -> NoiseAwareState:
        """Start at the prior's mean."""
        return NoiseAwareState(np.zeros((1, self.size)), self.prior.start)

    def query(self, state: NoiseAwareState) -> np.ndarray:
        """θ_t, the posterior mean so far."""
        theta = state.mean.reshape(self.config.shape) / self.R
        return theta - self.unit(state)

    def unit(self, state: NoiseAwareState) -> np.ndarray:
        """Mean offset, (D,), which the intercept takes up: exposures may be in any unit."""
        unit = np.zeros(self.config.shape[1])
        if self.config.fit_intercept:
            unit[-1] = state.offset[0]
        return unit

    def short_rows(self, state: NoiseAwareState) -> float | None:
        """Root mean square norm of the features, where it is clearly far below their bound."""
        assert state.moments is not None
        size = 1 if self.config.curvature == TRACE else self.config.shape[1]
        trace = float(np.trace(np.atleast_2d(state.moments)))
        noise = self.moments_scale * math.sqrt(size)
        return far_below(trace, noise, self.config, self.n_found(state))

    def with_moments(self, state: NoiseAwareState, released: np.ndarray) -> NoiseAwareState:
        """Take in the second moments, and with weights the number of rows that they tell."""
        moments = released / self.R**2
        if self.config.curvature == GRAM:
            moments = unpacked(moments, self.config.shape[1])
        state = state._replace(moments=moments)
        if self.weighted and (found := self.n_found(state)) is not None:
            self.config = replace(self.config, n_rows=rows_told(*found))
        return state

    def n_found(self, state: NoiseAwareState) -> tuple[float, float] | None:
        """Noisy number of records, by the intercept's second moment."""
        if state.moments is None or not self.config.fit_intercept or state.moments.ndim < 2:
            return None
        return float(state.moments[-1, -1]) * self.R**2, self.moments_scale * self.R**2

    def in_units(
        self, mean: np.ndarray, covariance: np.ndarray, scales: np.ndarray
    ) -> GaussianPosterior:
        """The posterior in the units of the rows as they are, from draws (n, blocks) of τ."""
        covariance = (covariance + covariance.T) / (2.0 * self.R**2)
        scales = self.prior.summary(scales, self.config.n_features) / self.R
        return GaussianPosterior(
            mean.reshape(self.config.shape) / self.R, covariance, prior_scales=scales
        )
