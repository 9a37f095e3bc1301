"""Differentially private variational inference for any log-likelihood.

As `dp_vi` with aligned gradients: q = N(m, LLᵀ), and a step asks for the clipped sum of per-record
gradients at one draw θ_t = m + Lη_t. The prior may be any density: its gradient at the same draw is
added after the noise, exactly and unclipped,

    g̃_t = Σ_{i in batch} clip_C(∇_θ log p(x_i|θ_t)) + N(0, σ²C² I)       released
    a_t = g̃_t/q + ∇ log p(θ_t),    ∇_m = a_t,    ∇_L = tril[a_tη_tᵀ + L^{-ᵀ}].

**Noise-aware posterior.** In some steps of the second half the run releases instead, at the mean m,

    J̃ = Σ_{i in batch} ĝ_i ĝ_iᵀ + noise of scale σC²,    ĝ_i = clip_C(∇ log p(x_i|m)),

the empirical Fisher information: it is the curvature H of the log-likelihood where the model is
right, and the variance of the sum of gradients in any case. With K gradients of mean ḡ at draws of
mean θ̄, linearised, the statistic s̄ = ḡ + Hθ̄ obeys

    s̄ | θ ~ N(Hθ, H + (ν²/K) I),        ν = σC/q,

so with the prior's curvature P₀ the posterior given the releases is N(mean, Λ⁻¹),

    M = H(H + (ν²/K) I)⁻¹,    Λ = MH + P₀,    mean = θ̄ + Λ⁻¹(Mḡ + ∇ log p(θ̄)).

It goes to the prior where the noise drowns the data, and to Laplace's approximation without noise.

Related: Alrawajfeh, Jälkö & Honkela, *Noise-Aware Differentially Private Variational Inference*,
2024. All steps have the same noise multiplier, so the event is that of `dp_sgd`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from skdp._bounded_sum import CHUNK_ROWS, OPPOSITE, POSITIVE, BoundedSum
from skdp._random import SecureStream, Streams
from skdp._rows import clipped_rows
from skdp._validate import in_range, integer, one_of, positive
from skdp.algorithms.dp_vi import COVARIANCES
from skdp.algorithms.gaussian_posterior import GaussianPosterior
from skdp.algorithms.parts.gaussian_families import Cholesky, Diagonal, Family, orthogonal_normals
from skdp.algorithms.parts.gaussian_runs import FLOAT, GaussianRun
from skdp.engine.linear_sums import packed, unpacked
from skdp.engine.loop import ClippedSum, Progress, ReleasePlan, last, run
from skdp.engine.modules.network_sum import NetworkBatch, NetworkRecords
from skdp.engine.sampling import Sampling, sampling
from skdp.engine.updates import Moments, NoiseCorrectedAdam
from skdp.models.user_models import Prior, UserModel

GRADIENT, OUTER, SQUARES = "gradient", "outer", "squares"
_CHUNK_NUMBERS = 2**21  # of per-record gradients in memory
_MAX_THETA = 1e6
_SCALE_LEARNING_RATE = 0.05  # of log s
_LEAST_PRECISION = 1e-8
_N_DRAWS = 64  # of what H may be
_SPREAD = 0.8  # of the eigenvalues of H, as the standard deviation of a logarithm
_SPREAD_OF_LEVEL = 1.5  # of their level around n/5
_LOGS = np.linspace(-4.0, 4.0, 401)

# Defaults, all functions of public facts, for parameters of the order of 1.
STEPS, STEPS_WITHOUT_NOISE = 150, 1000
CURVATURE_SHARE = 0.08  # of the releases
FULL_BATCH_NUMBERS = 2 * 10**6  # n·P up to which every step reads all rows
BATCH_NUMBERS = 10**6  # B·P of a Poisson batch beyond that


def default_sampling_rate(n_rows: int, n_parameters: int) -> float:
    """Full batch while n·P is small, then Poisson batches of about 10⁶ gradient entries."""
    if n_rows * n_parameters <= FULL_BATCH_NUMBERS:
        return 1.0
    return min(1.0, max(1.0, BATCH_NUMBERS / n_parameters) / n_rows)


def default_clip_norm(n_parameters: int, *, private: bool) -> float:
    """√P, the norm of a score with unit information on each parameter; without privacy none."""
    return math.sqrt(n_parameters) if private else math.inf


def default_initial_scale(n_rows: int, n_parameters: int) -> float:
    """Posterior scale if the rows tell of P directions evenly, 1/5 each; at most .3."""
    return min(0.3, math.sqrt(5 * n_parameters / n_rows))


def default_learning_rate(
    n_rows: int, n_parameters: int, noise_multiplier: float, q: float
) -> float:
    """.1, and less where the noise drowns the gradient: the walk must be short there."""
    if noise_multiplier == 0.0:
        return 0.05
    signal_to_noise = n_rows * q / (noise_multiplier * math.sqrt(n_parameters))
    return min(max(0.02 * math.sqrt(signal_to_noise), 0.01), 0.1)


@dataclass(frozen=True)
class ModelClippedSum(BoundedSum):
    """Sum over records of ĝ, of ĝĝᵀ (packed), or of ĝ∘ĝ, for gradients ĝ clipped to a norm.

    Parameters
    ----------
    model : UserModel
        Whose gradients are summed.
    clip_norm : float
        C > 0: bound on the Euclidean norm of one record's gradient; infinite for none.
    kind : {"gradient", "outer", "squares"}
        The three sums: one record's share has norm ≤ C, = ‖ĝ‖² ≤ C², ≤ ‖ĝ‖² ≤ C².
    """

    model: UserModel
    clip_norm: float
    kind: str = GRADIENT

    def __post_init__(self) -> None:
        positive(clip_norm=self.clip_norm, allow_inf=True)
        one_of((GRADIENT, OUTER, SQUARES), kind=self.kind)

    @property
    def record_bound(self) -> float:
        """Bound on the norm of one record's term: C or C²."""
        return self.clip_norm ** (1 if self.kind == GRADIENT else 2)

    @property
    def apart(self) -> float:
        """√2 for ĝĝᵀ and ĝ∘ĝ, whose inner products are (ĝ·ĥ)² and Σ ĝ²ĥ², both ≥ 0."""
        return OPPOSITE if self.kind == GRADIENT else POSITIVE

    def shape(self, theta_shape: tuple[int, ...]) -> tuple[int, ...]:
        """One number a parameter, or one a pair of parameters."""
        (n,) = theta_shape
        return (n * (n + 1) // 2,) if self.kind == OUTER else (n,)

    def __call__(self, theta: Tensor, batch: NetworkBatch) -> Tensor:
        """Return the sum for parameters θ (n_parameters,)."""
        n = len(theta)
        total = torch.zeros((n, n) if self.kind == OUTER else (n,), dtype=torch.float64)
        size = max(1, min(CHUNK_ROWS, _CHUNK_NUMBERS // n))
        for start in range(0, len(batch), size):
            piece = batch.piece(start, min(start + size, len(batch)))
            total += self._sum(self._gradients(theta, *piece), total)
        return torch.from_numpy(packed(total.numpy())) if self.kind == OUTER else total

    def _sum(self, gradients: Tensor, like: Tensor) -> Tensor:
        norms = torch.linalg.vector_norm(gradients, dim=1)
        finite = torch.isfinite(norms)
        # Records without a finite gradient contribute nothing; 0·inf = NaN would tell.
        if not finite.all():
            gradients, norms = gradients[finite], norms[finite]
        if self.clip_norm < math.inf:
            gradients = gradients * (self.clip_norm / norms.clamp(min=self.clip_norm))[:, None]
        if self.kind == OUTER:
            return gradients.mT @ gradients
        return gradients.sum(0) if self.kind == GRADIENT else gradients.square().sum(0)

    def _gradients(self, theta: Tensor, x: Tensor, y: Tensor) -> Tensor:
        try:
            return self.model.gradients(theta.clone(), x, y).to(torch.float64)
        except Exception as error:
            if isinstance(error, MemoryError | torch.OutOfMemoryError):
                raise
            if len(x) == 1:
                # The function works on made-up records, so it fails because of a value; raising
                # would tell everyone that the record is there.
                return torch.zeros((1, len(theta)), dtype=torch.float64)
            one_by_one = [self._gradients(theta, x[i : i + 1], y[i : i + 1]) for i in range(len(x))]
            return torch.cat(one_by_one)


@dataclass(frozen=True)
class ModelConfig(GaussianRun):
    """Public facts of a run; built without a row in sight, and all that the event depends on.

    Parameters
    ----------
    model : UserModel
        The log-likelihood.
    prior : Prior
        The prior.
    n_rows : int
        Public number of rows, n ≥ 1.
    initial_mean : ndarray of shape (n_parameters,)
        m of the start.
    initial_scale : float
        The start is N(initial_mean, s_0² I), s_0 > 0.
    n_steps : int
        T ≥ 1: number of noisy sums of gradients.
    n_curvature_steps : int
        Number ≥ 0 of noisy sums of outer products among them; 0 for a posterior that does not know
        of the noise.
    sampling_rate : float
        q in (0, 1]; 1 is the full batch.
    clip_norm : float
        C > 0: norm to which each record's gradient is clipped; infinite without noise.
    given_learning_rate : float or None
        Step size of m, in the units of θ, or None for the default.
    covariance : {"diag", "full"}
        Whether L is diagonal or lower triangular.
    data_norm : float or None
        Norm > 0 to which rows are clipped; None leaves them as they are.
    noise_multiplier, neighboring_relation
        As in `GaussianRun`.
    """

    model: UserModel
    prior: Prior
    n_rows: int
    initial_mean: np.ndarray
    initial_scale: float
    n_steps: int
    n_curvature_steps: int
    sampling_rate: float
    clip_norm: float
    given_learning_rate: float | None = None
    covariance: str = "full"
    data_norm: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        integer(1, n_rows=self.n_rows)
        positive(initial_scale=self.initial_scale)
        integer(1, n_steps=self.n_steps)
        integer(0, n_curvature_steps=self.n_curvature_steps)
        in_range(0.0, 1.0, sampling_rate=self.sampling_rate, closed="right")
        positive(clip_norm=self.clip_norm, allow_inf=self.noise_multiplier == 0.0)
        positive(learning_rate=self.learning_rate)
        one_of(COVARIANCES, covariance=self.covariance)
        if self.data_norm is not None:
            in_range(1e-100, 1e100, data_norm=self.data_norm)  # its square is a double too

    @property
    def n_parameters(self) -> int:
        """Length of θ."""
        return self.model.n_parameters

    @property
    def n_releases(self) -> int:
        """Noisy sums of both kinds."""
        return self.n_steps + self.n_curvature_steps

    @property
    def curvature_steps(self) -> frozenset[int]:
        """Which releases are sums of outer products: spread over the second half."""
        n, k = self.n_releases, self.n_curvature_steps
        return frozenset(n - 1 - (j * n) // (2 * k) for j in range(k))

    @property
    def sampling(self) -> Sampling:
        """Which records take part in each step."""
        return sampling(self.sampling_rate, self.n_releases)

    @property
    def noise_scale(self) -> float:
        """ν: standard deviation of the noise in the gradient estimate g̃/q."""
        if self.noise_multiplier == 0.0:
            return 0.0
        return self.noise_multiplier * self.clip_norm / self.sampling_rate

    @property
    def learning_rate(self) -> float:
        """Step size; the default follows the public ratio of data to noise."""
        if self.given_learning_rate is not None:
            return self.given_learning_rate
        return default_learning_rate(
            self.n_rows, self.n_parameters, self.noise_multiplier, self.sampling_rate
        )

    @property
    def memory(self) -> int:
        """Bytes of the gradients held at a time and of θ's matrices, about."""
        return FLOAT * (2 * _CHUNK_NUMBERS + 3 * self.n_parameters**2)

    def release_plan(self) -> ReleasePlan:
        """What the engine executes: built from the very fields of `event`."""
        of_gradients = ModelClippedSum(self.model, self.clip_norm)
        sums: list[ClippedSum] = [of_gradients] * self.n_releases
        kind = OUTER if self.covariance == "full" else SQUARES
        for step in self.curvature_steps:
            sums[step] = ModelClippedSum(self.model, self.clip_norm, kind)
        return ReleasePlan(self.sampling, sums, self.noise_multiplier, self.neighboring_relation)

    def run(
        self, records: tuple[np.ndarray, np.ndarray], streams: Streams, progress: Progress = iter
    ) -> GaussianPosterior:
        """Run the algorithm on private rows and return the posterior.

        Parameters
        ----------
        records : pair of ndarray
            Rows (n, n_features), clipped here, and targets (n,) as the log-likelihood takes them;
            ignored where it takes none.
        streams : Streams
            Streams of the fit: "sampling", "noise", "eta" and "inference" are used.
        progress : callable, default=iter
            Wraps the iteration over releases.
        """
        X, targets = records
        rows = NetworkRecords(bounded(X, self.data_norm), targets, torch.empty(0).double())
        etas = orthogonal_normals(self.n_parameters, self.n_releases + 1, streams("eta"))
        algorithm = ModelUpdate(self, etas)
        steps = run(
            self.release_plan(), rows, algorithm.init(), algorithm.query, algorithm.update, streams
        )
        state = last(progress(steps))
        if self.n_curvature_steps:
            return algorithm.infer(state, streams("inference"))
        return algorithm.posterior(state)


def bounded(X: np.ndarray, data_norm: float | None) -> np.ndarray:
    """Rows, clipped to a norm if there is one."""
    return X if data_norm is None else clipped_rows(X, data_norm, fit_intercept=False)


class ModelState(NamedTuple):
    """State of the run: all of it is a function of released values."""

    step: int
    mean: Tensor  # m
    spread: Any  # L, as its family stores it
    eta: Tensor  # η of the next query
    moments: Moments  # Adam's, of ∇_m
    sums: Tail  # over the tail of the run
    curvature: Tensor  # sum of the released J̃/q


class Tail(NamedTuple):
    """Sums over the steps of the tail."""

    mean: Tensor
    spread: Tensor
    theta: Tensor
    gradient: Tensor
    count: int


class ModelUpdate:
    """The update rule: pure functions of a state and a released sum."""

    def __init__(self, config: ModelConfig, etas: Iterator[Tensor]) -> None:
        self._config, self._etas = config, etas
        self._adam = NoiseCorrectedAdam()
        variance = config.noise_scale**2
        self._family: Family = (
            Cholesky(0.0, variance, _MAX_THETA, config.sampling_rate)
            if config.covariance == "full"
            else Diagonal(0.0, variance, _SCALE_LEARNING_RATE, _MAX_THETA)
        )

    def init(self) -> ModelState:
        """Start at the initial mean."""
        config = self._config
        mean = torch.from_numpy(np.array(config.initial_mean, dtype=np.float64))
        spread = self._family.init(config.initial_scale, len(mean))
        zero = torch.zeros_like(mean)
        tail = Tail(zero, torch.zeros_like(self._family.numbers(spread)), zero, zero, 0)
        n = len(mean)
        curvature = torch.zeros((n, n) if config.covariance == "full" else (n,), dtype=mean.dtype)
        return ModelState(0, mean, spread, next(self._etas), self._adam.init(mean), tail, curvature)

    def query(self, state: ModelState) -> Tensor:
        """θ_t = m + Lη_t for a gradient, m for a curvature."""
        if state.step in self._config.curvature_steps:
            return state.mean
        theta = state.mean + self._family.times(state.spread, state.eta)
        return theta.clamp(-_MAX_THETA, _MAX_THETA)

    def update(self, state: ModelState, noisy: Tensor, step: int) -> ModelState:
        """One ascent step on the ELBO from a released g̃_t, or note a released J̃."""
        config, family = self._config, self._family
        released = noisy / config.sampling_rate
        if step in config.curvature_steps:
            if config.covariance == "full":
                released = torch.from_numpy(unpacked(released.numpy(), config.n_parameters))
            return state._replace(step=step + 1, curvature=state.curvature + released)

        theta, decay = self.query(state), self.decay(step)
        total = released + _finite(config.prior.gradient(theta))
        direction, moments = self._adam.direction(state.moments, total, config.noise_scale**2)
        mean = state.mean + decay * config.learning_rate * direction
        spread = family.update(state.spread, total, state.eta, decay)
        tail = state.sums
        if 2 * step >= config.n_releases - 2:  # not empty, however short the run
            tail = Tail(
                tail.mean + mean,
                tail.spread + family.numbers(spread),
                tail.theta + theta,
                tail.gradient + released,
                tail.count + 1,
            )
        return ModelState(step + 1, mean, spread, next(self._etas), moments, tail, state.curvature)

    def decay(self, step: int) -> float:
        """Constant steps under noise, where the average settles; without, they decay to 2 %."""
        if self._config.noise_multiplier > 0.0:
            return 1.0
        return 1.0 - 0.98 * step / self._config.n_releases

    def posterior(self, state: ModelState) -> GaussianPosterior:
        """Average the tail: under composition accounting it is free, and takes noise out."""
        tail = state.sums
        spread = self._family.posterior_spread(tail.spread / tail.count)
        return GaussianPosterior((tail.mean / tail.count).numpy(), spread)

    def infer(self, state: ModelState, stream: SecureStream) -> GaussianPosterior:
        """The posterior given the releases, pooled over what H may be."""
        config, tail, k = self._config, state.sums, self._config.n_curvature_steps
        theta, gradient = (tail.theta / tail.count).numpy(), (tail.gradient / tail.count).numpy()
        assert config.prior.covariance is not None
        P0 = np.linalg.inv(config.prior.covariance.numpy())
        variance = config.noise_scale**2 / tail.count  # of ḡ
        J = (state.curvature / k).numpy()
        scale = config.release_plan().noise_scale(min(config.curvature_steps))
        scale /= config.sampling_rate * math.sqrt(k)
        of_mean = scale / math.sqrt(len(J))
        diagonal = config.covariance == "diag"
        values, vectors = (J, np.eye(len(J))) if diagonal else np.linalg.eigh(J)
        if diagonal:
            P0 = np.diag(1.0 / np.diag(config.prior.covariance.numpy()))
        else:
            scale *= math.sqrt((len(J) + 1) / 2)
        # A Poisson batch adds its own variance, (1 − q)/q of that of the data, to each gradient.
        of_prior = P0 @ (config.prior.start.numpy() - theta)
        excess = 1.0 + (1.0 / config.sampling_rate - 1.0) / tail.count
        means, covariances = [], []
        n, P = config.n_rows, config.n_parameters
        usual = max(n * min(1.0, config.clip_norm**2 / P) / 5, _LEAST_PRECISION)
        for drawn in curvature_draws(values, scale, usual, of_mean, stream):
            share = drawn / (excess * drawn + variance)  # M in its own basis
            precision = (vectors * (share * drawn)) @ vectors.T + P0
            covariance = np.linalg.inv(precision)
            step = covariance @ (vectors @ (share * (vectors.T @ gradient)) + of_prior)
            means.append(step)
            covariances.append(covariance)
        centre, within = np.mean(means, axis=0), np.mean(covariances, axis=0)
        covariance = within + np.cov(np.array(means).T, bias=True).reshape(within.shape)
        if diagonal:
            return GaussianPosterior(theta + centre, np.sqrt(np.diag(covariance)))
        return GaussianPosterior(theta + centre, (covariance + covariance.T) / 2)


def curvature_draws(
    values: np.ndarray, scale: float, usual: float, of_mean: float, stream: SecureStream
) -> np.ndarray:
    """Draw what the eigenvalues of H may be, given noisy ones: (n_draws, P).

    They are taken to be log-normal around a level, with normal noise of a scale: a noisy eigenvalue
    below zero says that there is little curvature, not that there is none. The level is log-normal
    around its usual value, and their mean tells of it with noise of scale ``of_mean``.
    """
    u = stream.generator.random((_N_DRAWS, len(values) + 1))
    mean = np.array([values.mean()])
    levels = _lognormal_given(mean, of_mean, usual, _SPREAD_OF_LEVEL, u[:, :1])[:, 0]
    draws = [
        _lognormal_given(values, scale, level, _SPREAD, row[None, 1:])[0]
        for level, row in zip(levels, u, strict=True)
    ]
    return np.array(draws)


def _lognormal_given(
    noisy: np.ndarray, scale: float, median: float, spread: float, u: np.ndarray
) -> np.ndarray:
    """Quantiles u (n, P) of log-normal numbers, given each with normal noise (P,)."""
    grid = median * np.exp(spread * _LOGS)
    far = (noisy[:, None] - grid) / max(scale, 1e-3 * float(np.abs(noisy).max()))
    log_weights = -0.5 * _LOGS**2 - 0.5 * far**2
    cumulated = np.cumsum(np.exp(log_weights - log_weights.max(axis=1, keepdims=True)), axis=1)
    cumulated /= cumulated[:, -1:]
    return np.stack([np.interp(u[:, i], c, grid) for i, c in enumerate(cumulated)], axis=1)


def _finite(numbers: Tensor) -> Tensor:
    return numbers.detach().nan_to_num(0.0, 0.0, 0.0).to(torch.float64)
