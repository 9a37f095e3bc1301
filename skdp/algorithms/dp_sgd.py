"""Differentially private stochastic gradient descent, for any network.

One step (Abadi et al. 2016, Algorithm 1, in sums):

    g̃_t = Σ_{i in batch} clip_C(∇_θ log p(y_i|x_i, θ_t)) + N(0, σ²C² I)        released
    θ_{t+1} = rule(θ_t, g̃_t/B),                                               B = q n, public

Only g̃_t touches data: the rule, its moments, step sizes and averages are functions of releases.

Where persons are the records, clip_C(∇…) is summed over a person's rows and clipped to c·C, and the
noise is σcC; B counts rows, n = n_persons k̄ of them, and q is the rate of persons.

Privacy: a T-fold composition of (Poisson-sampled) Gaussian mechanisms of noise multiplier σ,
whatever the rule does with their outputs (PRIVACY §2).

References
----------
M. Abadi et al., *Deep Learning with Differential Privacy*, CCS 2016.
W. Maddox, T. Garipov, P. Izmailov, D. Vetrov, A. G. Wilson, *A Simple Baseline for Bayesian
Uncertainty in Deep Learning*, NeurIPS 2019: moments of the tail of the path as a posterior.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from dp_accounting.dp_event import DpEvent
from torch import Tensor

from skdp.algorithms.parts.training import NetworkRun, Update
from skdp.engine.adam import NoiseCorrectedAdam
from skdp.engine.updates import MomentumSGD, TorchOptimizer, UpdateRule, like
from skdp.fitting.validate import in_range, one_of
from skdp.privacy.budget import Budget
from skdp.privacy.events import dp_sgd_event
from skdp.schedules import Schedule, schedule

OPTIMIZERS = ("adam", "sgd")
_SNAPSHOTS = 64  # of the tail of the path, at most: neighbouring iterates hardly differ


@dataclass(frozen=True, kw_only=True)
class DPSGDConfig(NetworkRun):
    """Public facts of a run, as in `NetworkRun`, and of its rule: all that the event depends on.

    - ``learning_rate``: step size > 0 of the rule.
    - ``learning_rate_schedule``: how it goes on; see `skdp.schedules.schedule`.
    - ``noise_multiplier``: σ ≥ 0; 0 is no privacy, or not `calibrated` yet.
    - ``optimizer``: "adam", "sgd", or a callable that makes a torch optimiser from a list of
      parameters, as its class does.
    - ``averaging``: share of the run, at its end, whose iterates are averaged; 0 keeps the last.
    """

    learning_rate: float
    noise_multiplier: float = 0.0
    learning_rate_schedule: str | Schedule = "constant"
    optimizer: str | Callable[..., torch.optim.Optimizer] = "adam"
    averaging: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        in_range(0.0, 1e10, noise_multiplier=self.noise_multiplier, closed="left")
        if self.noise_multiplier > 0.0:
            in_range(1e-10, 1e10, clip_norm=self.clip_norm)
        in_range(0.0, 1e10, learning_rate=self.learning_rate)
        _ = self.schedule
        if isinstance(self.optimizer, str) or not callable(self.optimizer):
            one_of(OPTIMIZERS, "or a torch optimiser class", optimizer=self.optimizer)
        in_range(0.0, 1.0, averaging=self.averaging, closed="both")

    @property
    def noise_variance(self) -> float:
        """Variance of the noise in each coordinate of g̃/B."""
        if self.noise_multiplier == 0.0:
            return 0.0
        return (self.noise_multiplier * self.clip_norm * self.of_record / self.batch_size) ** 2

    @property
    def schedule(self) -> Schedule:
        """Factor on the step size, of the share of the run that is done."""
        return schedule(self.learning_rate_schedule, self.learning_rate, self.n_steps)

    @property
    def rule(self) -> UpdateRule:
        """The update rule."""
        if not isinstance(self.optimizer, str):
            return TorchOptimizer(self.optimizer)
        return NoiseCorrectedAdam() if self.optimizer == "adam" else MomentumSGD()

    def event(self) -> DpEvent:
        """What the run releases."""
        if not self.secure:
            return dp_sgd_event(self.noise_multiplier, self.sampling_rate, self.n_steps)
        return self.event_of(self.noise_multipliers)

    @property
    def noise_multipliers(self) -> tuple[float, ...]:
        """σ, in each step."""
        return (self.noise_multiplier,) * self.n_steps

    def calibrated(self, budget: Budget) -> DPSGDConfig:
        """Return the same run with the least noise that affords a budget."""
        sigma = budget.noise_multiplier(self.sampling_rate, self.n_steps)
        config = replace(self, noise_multiplier=sigma)
        if not self.secure:
            return config
        least = budget.least(lambda s: replace(config, noise_multiplier=s).event(), sigma)
        return replace(config, noise_multiplier=least)

    @property
    def algorithm(self) -> DPSGDUpdate:
        """The update rule."""
        return DPSGDUpdate(self)


class DPSGDState(NamedTuple):
    """State of the run: all of it is a function of released values."""

    theta: Tensor
    rule: Any
    n_steps: int
    mean: Tensor  # of the tail, and the sum of squares about it
    squares: Tensor
    n_averaged: int


class Kept(NamedTuple):
    """Moments of an update rule, for a run that goes on."""

    rule: UpdateRule
    state: Any
    shape: torch.Size  # of the parameters
    noise_variance: float


class PathPosterior(NamedTuple):
    """Mean and standard deviation of the tail of the path, each a flat vector of parameters."""

    mean: np.ndarray
    scale: np.ndarray

    @property
    def point(self) -> np.ndarray:
        """The mean."""
        return self.mean

    @property
    def members(self) -> np.ndarray:
        """The mean alone: weights are averaged, not predictions."""
        return self.mean[None]

    def sample(self, n_samples: int, rng: np.random.RandomState) -> np.ndarray:
        """Draw from a Gaussian (SWAG-diagonal)."""
        return self.mean + self.scale * rng.standard_normal((n_samples, len(self.mean)))


class DPSGDUpdate(Update):
    """The update rule: pure functions of a state and a released sum."""

    def __init__(self, config: DPSGDConfig) -> None:
        self._config, self._rule = config, config.rule
        self._schedule = config.schedule
        self._tail = config.n_steps - max(1, math.ceil(config.averaging * config.n_steps))
        self._every = max(1, (config.n_steps - self._tail) // _SNAPSHOTS)

    def init(self, theta: Tensor, kept: Kept | None = None) -> DPSGDState:
        """Start at given parameters, with the moments of an earlier run of the same rule."""
        rule = self._rule.init(theta)
        if kept is not None and kept.rule == self._rule and kept.shape == theta.shape:
            more = self._config.noise_variance - kept.noise_variance
            rule = self._rule.restored(kept.state, theta, more)
        return DPSGDState(theta, rule, 0, theta, torch.zeros_like(theta), 0)

    def keep(self, state: DPSGDState) -> Kept:
        """Return the moments, which are functions of released values too."""
        moments = self._rule.saved(state.rule)
        return Kept(self._rule, moments, state.theta.shape, self._config.noise_variance)

    def saved(self, state: DPSGDState) -> DPSGDState:
        """Return the state with that of the rule as arrays."""
        return state._replace(rule=self._rule.saved(state.rule))

    def restored(self, saved: Any, theta: Tensor) -> DPSGDState:
        """Return the state that was saved."""
        state = like(self.init(theta)._replace(rule=None), saved)
        return state._replace(rule=self._rule.restored(state.rule, theta, 0.0))

    def update(self, state: DPSGDState, noisy: Tensor, step: int) -> DPSGDState:
        """One ascent step on the log-likelihood."""
        config = self._config
        rate = config.learning_rate * self._schedule(step / config.n_steps)
        gradient = noisy / config.batch_size
        theta, rule = self._rule.step(
            state.rule, state.theta, gradient, config.noise_variance, rate
        )
        state = state._replace(theta=theta, rule=rule, n_steps=step + 1)
        # Counted from the end, so that the last iterate always takes part.
        if step < self._tail or (config.n_steps - 1 - step) % self._every:
            return state
        n = state.n_averaged + 1  # Welford's running moments
        before = state.mean if n > 1 else torch.zeros_like(theta)
        mean = before + (theta - before) / n
        squares = state.squares + (theta - before) * (theta - mean)
        return state._replace(mean=mean, squares=squares, n_averaged=n)

    def posterior(self, state: DPSGDState, vector: Callable[[Tensor], np.ndarray]) -> PathPosterior:
        """Mean and standard deviation of the tail; of the last iterate alone before the tail."""
        if state.n_averaged == 0:
            return PathPosterior(vector(state.theta), vector(torch.zeros_like(state.theta)))
        scale = (state.squares / state.n_averaged).clamp(min=0.0).sqrt()
        return PathPosterior(vector(state.mean), vector(scale))


# Defaults, all functions of public facts. benchmarks/networks.py prints how they do, and
# benchmarks/network_defaults.py what they were chosen from.
_ALL_ROWS_STEPS, _STEPS, _BATCHES = 100, 300, (512, 2048)


def default_batch_size(n_rows: int, mu: float = math.inf, *, private: bool) -> float:
    """Rows of a Poisson batch for a budget of μ-GDP; 200 without noise.

    T steps of rate q cost μ ≈ q√T/σ while σ ≥ 2: the noise of a mean, σ/(qn) = √T/(μn), does not
    depend on q then. So q = 2μ/√T is the cheapest that has hardly more of it than all rows have
    (which at equal numbers of steps have least: Räisä et al., ICML 2024). Batches are of 512 to
    2048 rows, and of all rows where their 100 steps ask for no more gradients. Where there is no μ,
    as noise was given, it is all rows up to 4096.
    """
    if not private:
        return min(n_rows, 200)
    if mu == math.inf:
        return n_rows if n_rows <= 4096 else 2048
    rows = min(max(2.0 * mu / math.sqrt(_STEPS) * n_rows, _BATCHES[0]), _BATCHES[1])
    return n_rows if _ALL_ROWS_STEPS * n_rows <= _STEPS * rows else rows


def default_steps(n_rows: int, batch_size: float, *, private: bool) -> int:
    """100 noisy steps on all rows, 300 on batches; without noise 200 epochs, or 20 000 steps."""
    if private:
        return _ALL_ROWS_STEPS if batch_size >= n_rows else _STEPS
    return min(200 * math.ceil(n_rows / batch_size), 20_000)


def default_learning_rate(optimizer: Any, n_steps: int, *, private: bool) -> float:
    """Step size of Adam such that a run can move each weight by about 2.5; .1 for others.

    Measured on load_digits and MNIST, ε from .5 to 8, 50 to 300 steps. Without noise a run is long
    unless ``max_iter`` says otherwise, and no step is below .001.
    """
    if optimizer != "adam":
        return 0.1
    return min(0.03, max(2.5 / n_steps, 0.0 if private else 0.001))
