"""Differentially private variational inference for linear models, with aligned gradients.

The posterior p(θ|X, y) is approximated by q = N(m, diag s²), which maximises (Jälkö, Dikmen &
Honkela 2017, Eq. 3)

    ELBO(m, s) = E_q[Σ_i log p(y_i|x_i, θ)] − KL(q ‖ p),        θ = m + s∘η,  η ~ N(0, I).

One step, with one shared η a step (Jälkö, Prediger, Honkela & Kaski 2023, *aligned* gradients):

    θ_t  = m + s∘η_t
    g̃_t  = Σ_{i in batch} clip_C(∇_θ log p(y_i|x_i, θ_t)) + N(0, σ²C² I)       released
    ∇_m  = g̃_t/q − m/τ²
    ∇_ρ  = (g̃_t/q)∘η_t∘s − s²/τ² + 1,                     ρ = log s

Only g̃_t touches data. The prior and the entropy enter after the noise, exactly and unclipped, and
the gradient of the scale is a function of g̃_t and η_t: releasing it costs nothing. What leaves is
the average of the iterates over the second half of the run, a function of the released g̃_t.

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
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from dp_accounting.dp_event import DpEvent
from torch import Tensor

from skdp._random import SecureStream, Streams
from skdp._validate import in_range, integer, positive
from skdp.engine.clipping import MAX_ROWS, LinearClippedSum, Residual
from skdp.engine.loop import Plan, run
from skdp.engine.rows import LinearRows, clipped_rows, row_bound
from skdp.engine.sampling import Sampling, sampling
from skdp.engine.updates import Moments, NoiseCorrectedAdam
from skdp.models.likelihoods import Likelihood
from skdp.privacy.events import dp_sgd_event
from skdp.relations import check_relation

__all__ = [
    "MAX_ROWS",
    "DPVIConfig",
    "GaussianPosterior",
    "clipped_rows",
    "fit_mean_field",
    "row_bound",
]

_MAX_LOG_ODDS = 1e4
_SCALE_LEARNING_RATE = 0.3  # of ρ over that of m: ρ starts close to its optimum, and need not hurry


@dataclass(frozen=True)
class DPVIConfig:
    """Public facts of a run; built without a row in sight, and all that the event depends on.

    Parameters
    ----------
    n_outputs, n_features : int
        Outputs of the model (K) and features of a row.
    fit_intercept : bool
        Whether each row gets a 1 appended; θ has shape (K, D), D = n_features + fit_intercept.
    data_norm : float
        Norm > 0 to which the features of each row are clipped.
    n_steps : int
        T ≥ 1: number of noisy sums.
    sampling_rate : float
        q in (0, 1]; 1 is the full batch.
    clip_norm : float
        C > 0: norm to which each record's gradient is clipped.
    prior_scale : float
        τ > 0 of the prior N(0, τ² I).
    initial_scale : float
        s_0 > 0 of the start N(0, s_0² I).
    learning_rate : float
        First step size, in the units of θ; see `MeanFieldUpdate.step_size` for the later ones.
    noise_multiplier : float
        σ ≥ 0; 0 is no privacy.
    neighboring_relation : str
        Who is a neighbour.
    """

    n_outputs: int
    n_features: int
    fit_intercept: bool
    data_norm: float
    n_steps: int
    sampling_rate: float
    clip_norm: float
    prior_scale: float
    initial_scale: float
    learning_rate: float
    noise_multiplier: float
    neighboring_relation: str = "zero_out"

    def __post_init__(self) -> None:
        integer(1, n_outputs=self.n_outputs)
        integer(1, n_features=self.n_features)
        positive(data_norm=self.data_norm)
        integer(1, n_steps=self.n_steps)
        in_range(0.0, 1.0, sampling_rate=self.sampling_rate, closed="right")
        positive(clip_norm=self.clip_norm)
        positive(prior_scale=self.prior_scale)
        positive(initial_scale=self.initial_scale)
        positive(learning_rate=self.learning_rate)
        in_range(0.0, math.inf, noise_multiplier=self.noise_multiplier, closed="left")
        check_relation(self.neighboring_relation)

    @property
    def shape(self) -> tuple[int, int]:
        """Shape (K, D) of θ."""
        return self.n_outputs, self.n_features + bool(self.fit_intercept)

    @property
    def row_bound(self) -> float:
        """Norm bound of a row with its intercept."""
        return row_bound(self.data_norm, self.fit_intercept)

    @property
    def sampling(self) -> Sampling:
        """Which records take part in each step."""
        return sampling(self.sampling_rate, self.n_steps)

    @property
    def noise_scale(self) -> float:
        """Standard deviation of the noise in the gradient estimate g̃/q."""
        return self.noise_multiplier * self.clip_norm / self.sampling_rate

    def event(self) -> DpEvent:
        """What the run releases."""
        return dp_sgd_event(self.noise_multiplier, self.sampling_rate, self.n_steps)

    def plan(self, residual: Residual) -> Plan:
        """What the engine executes: built from the very fields of `event`."""
        return Plan(
            sampling=self.sampling,
            clipped_sum=LinearClippedSum(residual, self.clip_norm),
            noise_multiplier=self.noise_multiplier,
            neighboring_relation=self.neighboring_relation,
        )


# Defaults, all functions of public facts: the same few constants for every data set, ε, n and d.
# benchmarks/dpvi_defaults.py shows how they were chosen and prints the table again.
PRIVATE_STEPS = 150
PRIVATE_STEPS_LARGE = 72  # beyond LARGE_ENTRIES: about the time of a non-private fit
LARGE_ENTRIES = 10**6
LEARNING_RATE = 0.07
FULL_BATCH_ENTRIES = 10**8  # n·D up to which every step reads all rows
BATCH_ENTRIES = 10**7  # B·D of a Poisson batch beyond that


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

    Where the noise drowns the gradient, the walk must be short.
    """
    if noise_scale == 0.0:
        return 0.1 / bound
    snr = n_rows * bound / (noise_scale * math.sqrt(n_parameters))
    return min(max(LEARNING_RATE * math.sqrt(snr), 0.01), 0.2) / bound


class DPVIState(NamedTuple):
    """State of the run: all of it is a function of released values."""

    mean: Tensor  # m
    log_scale: Tensor  # ρ
    eta: Tensor  # η of the next query
    moments: tuple[Moments, Moments]  # Adam's, of ∇_m and of ∇_ρ
    mean_sum: Tensor  # sums over the tail of the run
    log_scale_sum: Tensor
    n_averaged: int


class GaussianPosterior(NamedTuple):
    """q = N(mean, diag scale²) over θ, each of shape (K, D)."""

    mean: np.ndarray
    scale: np.ndarray


class MeanFieldUpdate:
    """The update rule: pure functions of a state and a released gradient."""

    def __init__(self, config: DPVIConfig, etas: Iterator[Tensor]) -> None:
        self._config, self._etas = config, etas
        self._adam = NoiseCorrectedAdam()

    def init(self) -> DPVIState:
        """Start at the prior's mean."""
        zero = torch.zeros(self._config.shape, dtype=torch.float64)
        log_scale = torch.full_like(zero, math.log(self._config.initial_scale))
        moments = (self._adam.init(zero), self._adam.init(zero))
        return DPVIState(zero, log_scale, next(self._etas), moments, zero, zero, 0)

    def query(self, state: DPVIState) -> Tensor:
        """θ_t = m + s∘η_t, at log-odds of at most 10⁴.

        The logits of huge parameters would lose all digits to rounding, which may differ with the
        position of a row.
        """
        theta = state.mean + state.log_scale.exp() * state.eta
        norm = float(torch.linalg.vector_norm(theta))
        return theta * min(1.0, _MAX_LOG_ODDS / (norm * self._config.row_bound + 1e-300))

    def update(self, state: DPVIState, noisy: Tensor, step: int) -> DPVIState:
        """One ascent step on the ELBO from the released g̃_t."""
        config, s = self._config, state.log_scale.exp()
        gradient = noisy / config.sampling_rate
        of_mean = gradient - state.mean / config.prior_scale**2
        of_log_scale = gradient * state.eta * s - s.square() / config.prior_scale**2 + 1

        first, second = state.moments
        noise_variance = config.noise_scale**2
        mean_step, first = self._adam.direction(first, of_mean, noise_variance)
        scale_step, second = self._adam.direction(second, of_log_scale, noise_variance * s.square())
        rate = self.step_size(step)
        mean = state.mean + rate * mean_step
        # ρ has no units, so its step has none either. The optimum of s is below the prior's τ.
        scale_rate = _SCALE_LEARNING_RATE * rate * config.row_bound
        log_scale = state.log_scale + scale_rate * scale_step
        log_scale = log_scale.clamp(max=math.log(config.prior_scale))

        tail = step >= config.n_steps // 2
        return DPVIState(
            mean=mean,
            log_scale=log_scale,
            eta=next(self._etas),
            moments=(first, second),
            mean_sum=state.mean_sum + mean if tail else state.mean_sum,
            log_scale_sum=state.log_scale_sum + log_scale if tail else state.log_scale_sum,
            n_averaged=state.n_averaged + tail,
        )

    def step_size(self, step: int) -> float:
        """Constant under noise, where the average settles; without noise it decays to 2 %."""
        config = self._config
        decay = 0.98 * step / config.n_steps if config.noise_multiplier == 0.0 else 0.0
        return config.learning_rate * (1 - decay)

    def posterior(self, state: DPVIState) -> GaussianPosterior:
        """Average the tail: under composition accounting it is free, and takes noise out."""
        mean = state.mean_sum / state.n_averaged
        scale = (state.log_scale_sum / state.n_averaged).exp()
        return GaussianPosterior(mean.numpy(), scale.numpy())


def orthogonal_normals(
    shape: tuple[int, int], n_draws: int, stream: SecureStream
) -> Iterator[Tensor]:
    """Yield η_t ~ N(0, I) in antithetic pairs, orthogonal to each other within a block.

    Each draw has the right law, so the gradient stays unbiased, while the cross terms η_j η_k that
    dominate the variance of the scale's gradient cancel over a block (orthogonal Monte Carlo;
    Yu et al., *Orthogonal Random Features*, NeurIPS 2016). Rows of a Haar-distributed orthogonal
    matrix times independent χ radii are normal.
    """
    size = math.prod(shape)
    block = min(size, 128, math.ceil(n_draws / 2))  # no more than are asked for
    while True:
        gaussians = stream.normal((size, block))
        q, r = np.linalg.qr(gaussians)
        directions = (q * np.sign(np.diagonal(r))).T
        radii = np.sqrt(stream.generator.chisquare(size, size=block))
        for eta in torch.from_numpy(directions * radii[:, None]):
            yield eta.reshape(shape)
            yield -eta.reshape(shape)


def fit_mean_field(
    config: DPVIConfig,
    likelihood: Likelihood,
    X: np.ndarray,
    targets: np.ndarray,
    streams: Streams,
    progress: Callable[[Iterable[DPVIState]], Iterable[DPVIState]] = iter,
) -> GaussianPosterior:
    """Run the algorithm on private rows and return the averaged posterior.

    Parameters
    ----------
    config : DPVIConfig
        Public facts, whose event has been charged.
    likelihood : Likelihood
        Of the linear model.
    X : ndarray of shape (n, n_features)
        Private rows, clipped on the way in.
    targets : ndarray of shape (n, K)
        As ``likelihood.targets`` encodes them.
    streams : Streams
        Random streams of this fit.
    progress : callable, default=iter
        Wraps the iteration over steps, e.g. in a progress bar.
    """
    rows = LinearRows(X, targets, data_norm=config.data_norm, fit_intercept=config.fit_intercept)
    algorithm = MeanFieldUpdate(
        config, orthogonal_normals(config.shape, config.n_steps + 1, streams("eta"))
    )
    steps = run(
        config.plan(likelihood.residual),
        rows,
        algorithm.init(),
        algorithm.query,
        algorithm.update,
        streams,
    )
    last = deque(progress(steps), maxlen=1).pop()
    return algorithm.posterior(last)
