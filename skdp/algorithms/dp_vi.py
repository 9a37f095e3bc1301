"""Differentially private variational inference for linear models.

The posterior p(θ|X, y) is approximated by q = N(m, LLᵀ), L lower triangular or diagonal, which
maximises (Jälkö, Dikmen & Honkela 2017, Eq. 3)

    ELBO(m, L) = E_q[Σ_i log p(y_i|x_i, θ)] − KL(q ‖ p),        θ = m + Lη,  η ~ N(0, I).

One step, with one shared η a step (Jälkö, Prediger, Honkela & Kaski 2023, *aligned* gradients):

    θ_t  = m + Lη_t
    g̃_t  = Σ_{i in batch} clip_C(∇_θ log p(y_i|x_i, θ_t)) + N(0, σ²C² I)       released
    ∇_m  = g̃_t/q − m/τ²
    ∇_L  = tril[(g̃_t/q)η_tᵀ − L/τ² + L^{-ᵀ}]

Only g̃_t touches data. The prior and the entropy enter after the noise, exactly and unclipped, and
the gradient of L is a function of g̃_t and η_t: releasing it costs nothing. The gradient of the
first paper (*vanilla*) clips and releases the pair (g, g∘η∘s) for L = diag s instead: twice as many
coordinates, and a part of the clip is spent on the scale. What leaves is the average of the
iterates over the second half of the run, a function of what was released.

Privacy: the run is a T-fold composition of (Poisson-sampled) Gaussian mechanisms of noise
multiplier σ, whatever the update does with their outputs (PRIVACY §2). This posterior does not know
of the noise it was learned from, and is overconfident where ε is small.

References
----------
J. Jälkö, O. Dikmen, A. Honkela, *Differentially Private Variational Inference for Non-conjugate
Models*, UAI 2017.
J. Jälkö, L. Prediger, A. Honkela, S. Kaski, *DPVIm: Differentially Private Variational Inference
Improved*, TMLR 2023.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from skdp.algorithms.gaussian_posterior import GaussianPosterior
from skdp.algorithms.parts.gaussian_families import (
    SCALE_LEARNING_RATE,
    Cholesky,
    Diagonal,
    Family,
    orthogonal_normals,
)
from skdp.algorithms.parts.gaussian_runs import FLOAT, LinearRun, release_plan_of, run_and_count
from skdp.engine.adam import Moments, NoiseCorrectedAdam
from skdp.engine.linear_sums import LinearClippedSum, of_weights
from skdp.engine.loop import Progress
from skdp.engine.sampling import Sampling, sampling
from skdp.engine.vanilla_sum import VanillaClippedSum
from skdp.fitting.streams import Streams
from skdp.fitting.validate import expected, in_range, integer, one_of, positive

COVARIANCES = ("diag", "full")
GRADIENTS = ("aligned", "vanilla")

_MAX_LOG_ODDS = 1e4


@dataclass(frozen=True)
class DPVIConfig(LinearRun):
    """Public facts of a run, as in `LinearRun`: all that the event depends on.

    - ``n_steps``, ``sampling_rate``, ``clip_norm``: T ≥ 1 noisy sums, q in (0, 1], C > 0;
      ``secure`` is for full batches alone.
    - ``prior_scale``, ``initial_scale``: τ > 0 of the prior N(0, τ² I), s_0 > 0 of the start.
    - ``given_learning_rate``: first step size, in units of θ; None for the default. See
      `VariationalUpdate.decay` for the later ones.
    - ``covariance``: whether L is diagonal or lower triangular.
    - ``gradient``: what is clipped and released; "vanilla" is for diagonal L alone.
    """

    n_steps: int
    sampling_rate: float
    clip_norm: float
    prior_scale: float
    initial_scale: float
    given_learning_rate: float | None = None
    covariance: str = "diag"
    gradient: str = "aligned"
    sparse: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        integer(1, n_steps=self.n_steps)
        in_range(0.0, 1.0, sampling_rate=self.sampling_rate, closed="right")
        positive(clip_norm=self.clip_norm)
        positive(prior_scale=self.prior_scale)
        positive(initial_scale=self.initial_scale)
        positive(learning_rate=self.learning_rate)
        one_of(COVARIANCES, covariance=self.covariance)
        one_of(GRADIENTS, gradient=self.gradient)
        if (self.covariance, self.gradient) == ("full", "vanilla"):
            raise expected(
                "'aligned' when covariance is 'full'",
                "vanilla gradients would release a number for every entry of the covariance",
                gradient=self.gradient,
            )
        if self.secure and self.sampling_rate < 1.0:
            raise expected(
                "1 with secure=True",
                "the coins of a Poisson batch are not exact: use sampling_rate=1.0",
                sampling_rate=self.sampling_rate,
            )

    @property
    def learning_rate(self) -> float:
        """Step size; the default follows the public ratio of data to noise."""
        if self.given_learning_rate is not None:
            return self.given_learning_rate
        size = math.prod(self.shape)
        return default_learning_rate(self.n_rows, size, self.row_bound, self.noise_scale)

    @property
    def memory(self) -> int:
        """Bytes of the rows of a batch, copied, about."""
        n_columns = 0 if self.sparse else sum(self.shape) + 1
        return round(FLOAT * self.sampling_rate * self.n_rows * n_columns)

    @property
    def sampling(self) -> Sampling:
        """Which records take part in each step."""
        return sampling(self.sampling_rate, self.n_steps + 1)

    @property
    def noise_scale(self) -> float:
        """Standard deviation of the noise in the gradient estimate g̃/q."""
        of_record = self.weight_bound * self.of_person * self.clip_norm
        return self.noise_multiplier * of_record / self.sampling_rate

    @property
    def noise_share(self) -> float:
        """Norm of the noise of all gradients over theirs if all were one: √(P/T) s/(n C)."""
        per_step = math.sqrt(math.prod(self.shape) / self.n_steps)
        return per_step * self.noise_scale / (self.n_rows * self.clip_norm)

    @property
    def dimensions(self) -> list[int]:
        """Number of coordinates of each release in turn."""
        size = math.prod(self.shape) * (2 if self.gradient == "vanilla" else 1)
        return [size] * self.n_steps + [self.counts.n_counts]

    @property
    def sums(self) -> list[Any]:
        """The private value of each release."""
        kind = VanillaClippedSum if self.gradient == "vanilla" else LinearClippedSum
        gradient = of_weights(kind(self.likelihood.residual, self.clip_norm), self.weight_bound)
        return [gradient] * self.n_steps + [of_weights(self.counts, self.weight_bound)]

    def run(
        self, records: tuple[np.ndarray, ...], streams: Streams, progress: Progress = iter
    ) -> GaussianPosterior:
        """Run the algorithm on private rows (n, n_features) and targets (n, K), which are cut here.

        What stands beside the targets is what else the likelihood reads of a record. Streams
        "sampling", "noise" and "eta" are used; ``progress`` wraps the iteration over states. The
        averaged posterior is a function of what was released.
        """
        etas = orthogonal_normals(math.prod(self.shape), self.n_steps + 1, streams("eta"))
        algorithm, plan = VariationalUpdate(self, etas), release_plan_of(self)
        state, outside = run_and_count(plan, self.rows(records), algorithm, streams, progress)
        return replace(algorithm.posterior(state), outside=outside)


# Defaults, all functions of public facts: the same few constants for every data set, ε, n and d.
# benchmarks/dpvi_defaults.py shows how they were chosen and prints the table again.
PRIVATE_STEPS = 150
PRIVATE_STEPS_LARGE = 72  # beyond LARGE_ENTRIES: about the time of a non-private fit
LARGE_ENTRIES = 10**6
LEARNING_RATE = 0.07
FULL_BATCH_ENTRIES = 10**8  # n·D up to which every step reads all rows
BATCH_ENTRIES = 10**7  # B·D of a Poisson batch beyond that
FILLED = 50  # entries of a sparse row, about; how many there are is not public


def default_sampling_rate(n_rows: int, n_columns: int) -> float:
    """Full batch while n·D is small, then Poisson batches of about 10⁷ numbers.

    At equal cost no smaller batch has less noise than the full one (Räisä et al., ICML 2024), and
    its accounting is exact.
    """
    if n_rows * n_columns <= FULL_BATCH_ENTRIES:
        return 1.0
    return min(1.0, max(1.0, BATCH_ENTRIES / n_columns) / n_rows)


def default_steps(n_rows: int, n_columns: int, *, private: bool) -> int:
    """150 noisy steps, 72 on large data; without noise as many as converge."""
    entries = n_rows * n_columns
    if private:
        return PRIVATE_STEPS if entries <= LARGE_ENTRIES else PRIVATE_STEPS_LARGE
    return int(np.clip(4e9 / entries, 500, 4000))


def default_clip_norm(gradient_bound: float, *, private: bool) -> float:
    """Half the bound that the rows put on a gradient anyway: half the noise, for a small bias.

    Without noise there is nothing to gain, and the bound itself clips nothing.
    """
    return gradient_bound / 2 if private else gradient_bound


def default_prior_scale(bound: float) -> float:
    """Prior standard deviation 5 of the log-odds of a row at the norm bound."""
    return 5.0 / bound


def default_initial_scale(n_rows: int, n_columns: int, bound: float, prior_scale: float) -> float:
    """Posterior scale if the rows spread evenly over D directions and σ' ≈ .15 (Laplace)."""
    return (prior_scale**-2 + 0.15 * n_rows * bound**2 / n_columns) ** -0.5


def default_learning_rate(
    n_rows: int, n_parameters: int, bound: float, noise_scale: float
) -> float:
    """Step size from the public ratio of n·R to the norm of the noise in one gradient.

    Where the noise dominates the gradient, the walk must be short.
    """
    if noise_scale == 0.0:
        return 0.1 / bound
    snr = n_rows * bound / (noise_scale * math.sqrt(n_parameters))
    return min(max(LEARNING_RATE * math.sqrt(snr), 0.01), 0.2) / bound


class DPVIState(NamedTuple):
    """State of the run: all of it is a function of released values."""

    mean: np.ndarray  # m
    spread: Any  # L, as its family stores it
    eta: np.ndarray  # η of the next query
    moments: Moments  # Adam's, of ∇_m
    mean_sum: np.ndarray  # sums over the tail of the run
    spread_sum: np.ndarray
    n_averaged: int


class VariationalUpdate:
    """The update rule: pure functions of a state and a released gradient."""

    def __init__(self, config: DPVIConfig, etas: Iterator[np.ndarray]) -> None:
        self._config, self._etas = config, etas
        self._adam = NoiseCorrectedAdam()
        precision, noise_variance = config.prior_scale**-2, config.noise_scale**2
        if config.covariance == "full":
            self._family: Family = Cholesky(
                precision, noise_variance, config.prior_scale, config.sampling_rate
            )
        else:
            self._family = Diagonal(
                precision,
                noise_variance,
                SCALE_LEARNING_RATE * config.learning_rate * config.row_bound,
                config.prior_scale,
                config.gradient == "vanilla",
            )

    def init(self) -> DPVIState:
        """Start at the prior's mean."""
        zero = np.zeros(math.prod(self._config.shape))
        spread = self._family.init(self._config.initial_scale, len(zero))
        none = np.zeros_like(self._family.numbers(spread))
        return DPVIState(zero, spread, next(self._etas), self._adam.init(zero), zero, none, 0)

    def query(self, state: DPVIState) -> np.ndarray:
        """θ_t = m + Lη_t, at log-odds of at most 10⁴; with η_t∘s for vanilla gradients.

        Larger logits would lose all digits to rounding, which may differ with a row's position.
        """
        moved = self._family.times(state.spread, state.eta)
        theta = state.mean + moved
        norm = float(np.linalg.norm(theta))
        theta = theta * min(1.0, _MAX_LOG_ODDS / (norm * self._config.row_bound + 1e-300))
        shape = self._config.shape
        if self._config.gradient == "vanilla":
            return np.stack([theta.reshape(shape), moved.reshape(shape)])
        return theta.reshape(shape)

    def update(self, state: DPVIState, noisy: np.ndarray, step: int) -> DPVIState:
        """One ascent step on the ELBO from the released g̃_t."""
        config, family, decay = self._config, self._family, self.decay(step)
        parts = (noisy / config.sampling_rate).reshape(-1, len(state.mean))
        of_mean = parts[0] - state.mean / config.prior_scale**2
        direction, moments = self._adam.direction(state.moments, of_mean, config.noise_scale**2)
        mean = state.mean + decay * config.learning_rate * direction
        spread = family.update(state.spread, parts[-1], state.eta, decay)

        sums = state.mean_sum, state.spread_sum, state.n_averaged
        if step >= config.n_steps // 2:
            sums = sums[0] + mean, sums[1] + family.numbers(spread), sums[2] + 1
        return DPVIState(mean, spread, next(self._etas), moments, *sums)

    def decay(self, step: int) -> float:
        """Constant steps under noise, where the average settles; without, they decay to 2 %."""
        if self._config.noise_multiplier > 0.0:
            return 1.0
        return 1.0 - 0.98 * step / self._config.n_steps

    def posterior(self, state: DPVIState) -> GaussianPosterior:
        """Average the tail: under composition accounting it is free, and takes noise out."""
        mean = (state.mean_sum / state.n_averaged).reshape(self._config.shape)
        spread = self._family.posterior_spread(state.spread_sum / state.n_averaged)
        return GaussianPosterior(mean, spread)
