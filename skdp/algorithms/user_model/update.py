"""The update rule of variational inference for a user's log-likelihood; see `dp_vi_model`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from skdp.algorithms.parts.gaussian_families import Cholesky, Diagonal, Family
from skdp.algorithms.user_model.curvature import NoisyCurvature, curvature_draws
from skdp.algorithms.user_model.defaults import TAIL_RATE
from skdp.algorithms.user_model.lengths import learned_clip
from skdp.engine.adam import Moments, NoiseCorrectedAdam
from skdp.engine.linear_sums import unpacked
from skdp.engine.updates import like
from skdp.fitting.streams import SecureStream

if TYPE_CHECKING:
    from skdp.algorithms.dp_vi_model import ModelConfig

_MAX_THETA = 1e6
_SCALE_LEARNING_RATE = 0.05  # of log s
_LEAST_PRECISION = 1e-8
_N_KEPT = 200  # means along the run


class ModelState(NamedTuple):
    """State of the run: all of it is a function of released values."""

    step: int
    mean: np.ndarray  # m
    spread: Any  # L, as its family stores it
    eta: np.ndarray  # η of the next query
    moments: Moments  # Adam's, of ∇_m
    sums: Tail  # over the tail of the run
    curvature: np.ndarray  # sum of the released C²J̃/q
    clip: float  # C, of a person c·C
    lengths: np.ndarray  # sum of the released counts of the current histogram, over q
    scatter: np.ndarray  # sum of the released squared lengths of persons' gradients, over q
    path: tuple[tuple[int, np.ndarray], ...] = ()


class Tail(NamedTuple):
    """Sums over the steps of the tail."""

    mean: np.ndarray
    spread: np.ndarray
    theta: np.ndarray
    gradient: np.ndarray
    count: int


class Fitted(NamedTuple):
    """Mean and spread of a posterior, and how many directions of θ have a hidden curvature."""

    mean: np.ndarray
    spread: np.ndarray
    n_hidden: int = 0


class ModelUpdate:
    """The update rule: pure functions of a state and a released sum."""

    def __init__(self, config: ModelConfig, etas: Iterator[np.ndarray]) -> None:
        self._config, self._etas = config, etas
        self._adam = NoiseCorrectedAdam()
        clip = config.clip_norm if math.isfinite(config.clip_norm) else 1.0
        self._start_clip = clip * config.of_person

    def _family(self, clip_norm: float) -> Family:
        config = self._config
        variance = config.noise_scale(clip_norm) ** 2
        if config.covariance == "full":
            return Cholesky(0.0, variance, _MAX_THETA, config.sampling_rate)
        return Diagonal(0.0, variance, _SCALE_LEARNING_RATE, _MAX_THETA)

    def init(self) -> ModelState:
        """Start at the initial mean."""
        config = self._config
        mean = np.array(config.initial_mean, dtype=np.float64)
        clip = self._start_clip
        family = self._family(clip)
        spread = family.init(config.initial_scale, len(mean))
        zero = np.zeros_like(mean)
        tail = Tail(zero, np.zeros_like(family.numbers(spread)), zero, zero, 0)
        n = len(mean)
        curvature = np.zeros((n, n) if config.covariance == "full" else n)
        moments, none = self._adam.init(mean), np.zeros(())
        eta = next(self._etas)
        return ModelState(0, mean, spread, eta, moments, tail, curvature, clip, none, none)

    def restored(self, start: ModelState, saved: Any) -> ModelState:
        """Return the state that a checkpoint holds, having drawn what the run had drawn."""
        state = like(start, saved)
        for _ in range(state.moments.count):
            next(self._etas)
        return state

    def query(self, state: ModelState) -> Tensor:
        """(θ_t, C): θ_t is m + Lη_t for a gradient, m where the noise is inferred or counted."""
        return torch.from_numpy(np.append(self._point(state), state.clip))

    def _point(self, state: ModelState) -> np.ndarray:
        config = self._config
        if state.step >= config.n_walk:
            theta = state.sums.mean / state.sums.count
        elif state.step in config.clip_steps or not config.draws(state.step):
            theta = state.mean
        else:
            theta = state.mean + self._family(state.clip).times(state.spread, state.eta)
        return np.clip(theta, -_MAX_THETA, _MAX_THETA)

    def update(self, state: ModelState, noisy: Tensor, step: int) -> ModelState:
        """One ascent step on the ELBO from a released g̃_t, or note another release."""
        config = self._config
        released = noisy.numpy() / config.sampling_rate
        if step in config.clip_steps or step in config.check_steps:
            return self._counted(state, released, step)
        if step >= config.n_walk:
            return state._replace(step=step + 1, scatter=state.scatter + released)
        if step in config.curvature_steps:
            if config.covariance == "full":
                released = unpacked(released, config.n_parameters)
            of_row = (state.clip / config.of_person) ** 2
            state = state._replace(curvature=state.curvature + of_row * released)
        else:
            state = self._ascended(state, state.clip * released, step)
        return self._kept(state, step)._replace(step=step + 1)

    def _ascended(self, state: ModelState, released: np.ndarray, step: int) -> ModelState:
        config, family, theta = self._config, self._family(state.clip), self._point(state)
        total = released + _finite(config.prior.gradient(torch.from_numpy(theta)))
        variance = config.noise_scale(state.clip) ** 2
        direction, moments = self._adam.direction(state.moments, total, variance)
        # A larger clip has more noise: its walk must be shorter.
        decay = self.decay(step) * min(1.0, self._start_clip / state.clip)
        mean = state.mean + decay * config.learning_rate * direction
        spread = state.spread
        if config.draws(step):
            spread = family.update(spread, total, state.eta, decay)
        tail = state.sums
        if step >= self.tail_start:
            tail = Tail(
                tail.mean + mean,
                tail.spread + family.numbers(spread),
                tail.theta + theta,
                tail.gradient + released,
                tail.count + 1,
            )
        eta = next(self._etas)
        return state._replace(mean=mean, spread=spread, eta=eta, moments=moments, sums=tail)

    def _counted(self, state: ModelState, released: np.ndarray, step: int) -> ModelState:
        """Note a histogram of lengths; after the last of the clip's, choose it and start afresh."""
        config = self._config
        state = state._replace(step=step + 1, lengths=state.lengths + released)
        if step != config.clip_steps.stop - 1:
            return state
        counts, noise = self.mean_counts(state, config.n_clip_steps)
        clip = state.clip * learned_clip(counts, noise, config.n_records)
        more = config.noise_scale(clip) ** 2 - config.noise_scale(state.clip) ** 2
        moments = self._adam.with_noise(state.moments, more)
        return state._replace(clip=clip, moments=moments, lengths=np.zeros(()))

    def mean_counts(self, state: ModelState, n: int) -> tuple[np.ndarray, float]:
        """Counts averaged over n releases, and the standard deviation of their noise."""
        config = self._config
        step = (config.check_steps if state.step > config.n_walk else config.clip_steps).start
        scale = config.release_plan().noise_scale(step) / config.sampling_rate
        return state.lengths / n, scale / math.sqrt(n)

    def _kept(self, state: ModelState, step: int) -> ModelState:
        every = math.ceil(self._config.n_walk / _N_KEPT)
        if (step + 1) % every and step + 1 != self._config.n_walk:
            return state
        return state._replace(path=(*state.path, (step + 1, state.mean)))

    @property
    def tail_start(self) -> int:
        """First step of the tail; not empty, however short the run."""
        return max(0, (self._config.n_walk - 1) // 2)

    def decay(self, step: int) -> float:
        """Decay to 2 % without noise; with it steps are constant, and the average settles.

        They are short in the tail that a posterior is linearised in.
        """
        config = self._config
        if config.noise_multiplier > 0.0:
            return TAIL_RATE if config.n_curvature_steps and step >= self.tail_start else 1.0
        return 1.0 - 0.98 * step / config.n_releases

    def plain(self, state: ModelState) -> Fitted:
        """Average the tail: under composition accounting it is free, and takes noise out."""
        tail = state.sums
        spread = self._family(state.clip).posterior_spread(tail.spread / tail.count)
        return Fitted(tail.mean / tail.count, spread)

    def infer(self, state: ModelState, stream: SecureStream) -> Fitted:
        """The posterior given the releases, pooled over what H may be."""
        config, tail, J = self._config, state.sums, self._noisy_curvature(state)
        assert config.prior.covariance is not None
        prior = config.prior.covariance.numpy()
        if J.is_diagonal:
            prior = np.diag(np.diag(prior))
        P0 = np.linalg.inv(prior)
        theta, gradient = tail.theta / tail.count, tail.gradient / tail.count
        variance = config.noise_scale(state.clip) ** 2 / tail.count  # of ḡ
        # A Poisson batch adds its own variance, (1 − q)/q of that of the data, to each gradient.
        excess = 1.0 + (1.0 / config.sampling_rate - 1.0) / tail.count
        excess *= self._design_effect(state, J)
        of_prior = P0 @ (config.prior.start.numpy() - theta)
        means, covariances = [], []
        C = state.clip / config.of_person
        usual = max(config.n_rows * min(1.0, C**2 / len(theta)) / 5, _LEAST_PRECISION)
        for drawn in curvature_draws(J.values, J.noise, usual, J.noise_of_mean, stream):
            share = drawn / (excess * drawn + variance)  # M in its own basis
            covariance = np.linalg.inv((J.vectors * (share * drawn)) @ J.vectors.T + P0)
            of_data = J.vectors @ (share * (J.vectors.T @ gradient))
            means.append(covariance @ (of_data + of_prior))
            covariances.append(covariance)
        centre, within = np.mean(means, axis=0), np.mean(covariances, axis=0)
        covariance = within + np.cov(np.array(means).T, bias=True).reshape(within.shape)
        covariance = (covariance + covariance.T) / 2
        spread = np.sqrt(np.diag(covariance)) if J.is_diagonal else covariance
        return Fitted(theta + centre, spread, J.n_hidden)

    def _design_effect(self, state: ModelState, J: NoisyCurvature) -> float:
        """ρ ≥ 1: variance of the sum of gradients over that of rows each by itself."""
        config, persons = self._config, self._config.persons
        if persons is None or config.n_person_steps == 0:
            return 1.0 if persons is None else persons.rows_per_group
        of_persons = state.clip**2 * state.scatter.item() / config.n_person_steps
        P = len(J.values)
        return max(1.0, of_persons / (P * max(float(J.values.mean()), J.noise_of_mean)))

    def _noisy_curvature(self, state: ModelState) -> NoisyCurvature:
        config, k = self._config, self._config.n_curvature_steps
        J = state.curvature / k
        scale = config.release_plan().noise_scale(min(config.curvature_steps))
        scale *= (state.clip / config.of_person) ** 2 / (config.sampling_rate * math.sqrt(k))
        of_mean, is_diagonal = scale / math.sqrt(len(J)), J.ndim == 1
        if is_diagonal:
            return NoisyCurvature(J, np.eye(len(J)), scale, of_mean, is_diagonal)
        return NoisyCurvature(
            *np.linalg.eigh(J), scale * math.sqrt((len(J) + 1) / 2), of_mean, is_diagonal
        )


def _finite(numbers: Tensor) -> np.ndarray:
    return numbers.detach().nan_to_num(0.0, 0.0, 0.0).double().numpy()
