"""Differentially private stochastic gradient Langevin dynamics, for any network.

One step (Knolle et al. 2021; PRIVACY §3), for N records, a Gaussian prior ∝ exp(−r(θ)) with
r(θ) = ‖θ‖²/2s², and Poisson batches of expected size B = qN:

    g̃_t = Σ_{i in batch} clip_C(∇_θ log p(y_i|x_i, θ_t)) + N(0, σ_t²C² I)          released
    θ_{t+1} = θ_t + η_t (g̃_t/B − ∇r(θ_t)/N)

The noise that reaches θ has variance (η_t σ_t C/B)² = 2Tη_t/N: that of Langevin dynamics whose
stationary law is the posterior at temperature T, ∝ (Π p(y_i|x_i, θ) e^{−r(θ)})^{1/T}, up to what
clipping, sampling of batches and the length of a step add. Hence

    σ_t = (B/C) √(2T/(Nη_t)),        T = σ_t² C² N η_t/(2B²):

as steps get shorter the noise multiplier grows, and a budget (ε, δ) buys a temperature.

Privacy: a composition of (Poisson-sampled) Gaussian mechanisms of noise multipliers σ_0, …, σ_{T−1}
(PRIVACY §2, §3). That the chain has converged is nowhere assumed; every iterate is released, so
keeping many of them costs nothing more.

Where persons are the records, clip_C(∇…) is summed over a person's rows and clipped to c·C, which
stands for C in noise and σ_t; N = n_persons k̄ and B = qN count rows, q is the rate of persons.

References
----------
M. Knolle, A. Ziller, D. Usynin, R. Braren, M. R. Makowski, D. Rueckert, G. Kaissis,
*Differentially private training of neural networks with Langevin dynamics for calibrated
predictive uncertainty*, 2021 (arXiv:2107.04296).
B. Li, C. Chen, H. Liu, L. Carin, *On Connecting Stochastic Gradient MCMC and Differential Privacy*,
AISTATS 2019.
M. Welling, Y. W. Teh, *Bayesian Learning via Stochastic Gradient Langevin Dynamics*, ICML 2011.
X. Chen, S. Z. Wu, M. Hong, *Understanding Gradient Clipping in Private SGD: A Geometric
Perspective*, NeurIPS 2020: noise before clipping.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from dp_accounting.dp_event import DpEvent, NonPrivateDpEvent
from torch import Tensor

from skdp.algorithms.parts.network_models import Model
from skdp.algorithms.parts.training import NetworkRun, Update
from skdp.engine.release_hook import grid_width, on_grid
from skdp.engine.updates import like
from skdp.fitting.validate import expected, in_range, integer
from skdp.privacy.budget import Budget
from skdp.rows.bounded_sum import BoundedSum
from skdp.schedules import step_sizes

_NEVER_REACHED = 1e10  # a clipping norm that stands for none


@dataclass(frozen=True, kw_only=True)
class DPSGLDConfig(NetworkRun):
    """Public facts of a run, as in `NetworkRun`, and of its chain: all that the event depends on.

    - ``temperature``: T ≥ 0; 0 is gradient ascent without noise, and no privacy.
    - ``learning_rate``: maps the step t = 0, 1, … to η_t > 0, which must never rise.
    - ``prior_scale``: s > 0, standard deviation of the prior; infinite for a flat one.
    - ``burn_in``: steps after which iterates are kept, below ``n_steps``.
    - ``thinning``: every how many steps an iterate is kept, counted back from the last one.
    - ``prenoise_scale``: deviation ≥ 0 of noise on each record's gradient before clipping.
    """

    temperature: float
    learning_rate: Callable[[int], float]
    prior_scale: float = math.inf
    burn_in: int = 0
    thinning: int = 1
    prenoise_scale: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        in_range(0.0, 1e30, temperature=self.temperature, closed="left")
        if self.prior_scale != math.inf:
            in_range(1e-100, 1e100, prior_scale=self.prior_scale)
        integer(0, burn_in=self.burn_in)
        if self.burn_in >= self.n_steps:
            raise expected(
                f"less than max_iter={self.n_steps}", "nothing would be kept", burn_in=self.burn_in
            )
        integer(1, thinning=self.thinning)
        if self.thinning > self.n_steps - self.burn_in:
            raise expected(
                f"at most the {self.n_steps - self.burn_in} steps after burn-in",
                "nothing would be kept",
                thinning=self.thinning,
            )
        in_range(0.0, 1e10, prenoise_scale=self.prenoise_scale, closed="left")
        eta = self.learning_rates[0]
        if eta > 1e10:
            raise expected("at most 1e10", learning_rate=eta)
        # Beyond 1 a step overshoots the mode of the prior, beyond 2 the chain explodes.
        if not self.prior_scale**2 * self.n_rows >= eta:
            raise expected(
                f"at least {math.sqrt(eta / self.n_rows):.3g}, for a step of {eta:.3g} on "
                f"{self.n_rows} rows",
                "give a smaller learning_rate or a wider prior",
                prior_scale=self.prior_scale,
            )

    @cached_property
    def learning_rates(self) -> tuple[float, ...]:
        """η_t for each step."""
        return step_sizes(self.learning_rate, self.n_steps)

    @cached_property
    def noise_multipliers(self) -> tuple[float, ...]:
        """σ_t = (B/C) √(2T/(Nη_t)) for each step (PRIVACY §3)."""
        B, N, T = self.batch_size, self.n_rows, self.temperature
        C = min(self.clip_norm, _NEVER_REACHED) * self.of_record
        return tuple(B / C * math.sqrt(2 * T / (N * eta)) for eta in self.learning_rates)

    @cached_property
    def grid_widths(self) -> tuple[float, ...]:
        """Grid of each iterate, from the deviation √(2Tη_t/N) of its noise; never coarser later."""
        T, N = self.temperature, self.n_rows
        return tuple(grid_width(math.sqrt(2 * T * eta / N)) for eta in self.learning_rates)

    def event(self) -> DpEvent:
        """What the run releases."""
        if self.clip_norm == math.inf:
            return NonPrivateDpEvent()
        return self.event_of(self.noise_multipliers)

    def calibrated(self, budget: Budget) -> DPSGLDConfig:
        """Return the same plan at the least temperature that affords a budget."""
        if budget.epsilon is None or not budget.private:
            return self
        of_one = replace(self, temperature=1.0).noise_multipliers  # σ_t = √T times these
        T = budget.factor(of_one, self.sampling_rate) ** 2
        if self.secure:
            T = budget.least(lambda T: replace(self, temperature=T).event(), T)
        return replace(self, temperature=T)

    def clipped_sum(self, model: Model) -> BoundedSum:
        """Clip a rounding error short of C: noise ∝ C then has the very variance 2Tη_t/N."""
        C = min(self.clip_norm, _NEVER_REACHED)
        clip = self.clip._replace(clip_norm=C, prenoise_scale=self.prenoise_scale)
        if self.clip_norm == math.inf:
            clip = clip._replace(clipping="flat")
        bound = model.clipped_sum(clip).norm_bound
        return model.clipped_sum(clip._replace(clip_norm=C * (C / bound)))

    @property
    def algorithm(self) -> DPSGLDUpdate:
        """The update rule."""
        return DPSGLDUpdate(self)


class DPSGLDState(NamedTuple):
    """State of the chain: all of it is a function of released values."""

    theta: Tensor
    n_steps: int
    kept: tuple[Tensor, ...]
    kept_steps: tuple[int, ...]


class KeptIterates(NamedTuple):
    """Iterates of the chain, (K, P), in their order; each is a sample that has been paid for."""

    members: np.ndarray
    steps: np.ndarray  # (K,): number of steps before each of them was reached

    @property
    def point(self) -> np.ndarray:
        """The last iterate."""
        return self.members[-1]

    def sample(self, n_samples: int, rng: np.random.RandomState) -> np.ndarray:
        """Draw iterates at random, none of them again before all have been drawn."""
        n_kept = len(self.members)
        rounds = [rng.permutation(n_kept) for _ in range(math.ceil(n_samples / n_kept))]
        return self.members[np.concatenate(rounds)[:n_samples]]


class DPSGLDUpdate(Update):
    """The chain: pure functions of a state and a released sum."""

    def __init__(self, config: DPSGLDConfig) -> None:
        self._config = config
        self._prior_precision = 1.0 / config.prior_scale**2

    def init(self, theta: Tensor, kept: Any = None) -> DPSGLDState:
        """Start at given parameters; a chain has no moments."""
        return DPSGLDState(theta, 0, (), ())

    def restored(self, saved: Any, theta: Tensor) -> DPSGLDState:
        """Return the state that was saved."""
        state = like(self.init(theta), saved)
        kept = tuple(like(theta, iterate) for iterate in state.kept)
        return state._replace(kept=kept, kept_steps=tuple(state.kept_steps))

    def update(self, state: DPSGLDState, noisy: Tensor, step: int) -> DPSGLDState:
        """θ_{t+1} = θ_t + η_t (g̃_t/B − ∇r(θ_t)/N)."""
        config, theta = self._config, state.theta
        eta = config.learning_rates[step]
        theta = theta * (1.0 - eta * self._prior_precision / config.n_rows)
        theta = torch.add(theta, noisy, alpha=eta / config.batch_size)
        # An iterate is itself a release, so it ends on a grid; the chain goes on from there.
        theta = on_grid(theta.double(), config.grid_widths[step]).to(theta.dtype)
        state = state._replace(theta=theta, n_steps=step + 1)
        # Counted from the end, so that the last iterate is always kept.
        if step < config.burn_in or (config.n_steps - 1 - step) % config.thinning:
            return state
        return state._replace(kept=(*state.kept, theta), kept_steps=(*state.kept_steps, step + 1))

    def posterior(self, state: DPSGLDState, vector: Callable[[Tensor], np.ndarray]) -> KeptIterates:
        """Return the kept iterates; the last one alone before any was kept."""
        kept, steps = state.kept or (state.theta,), state.kept_steps or (state.n_steps,)
        return KeptIterates(np.stack([vector(theta) for theta in kept]), np.array(steps))


# Defaults, all functions of public facts. Rows and steps are those of DP-SGD.

_MOST_KEPT = 30  # iterates: neighbouring ones hardly differ, and each costs a forward pass


def default_learning_rate(n_rows: int, prior_scale: float, *, private: bool) -> float:
    """η_0 = 3 for gradients clipped to norm 1, .1 without clipping.

    Measured on load_digits and MNIST, ε from .5 to 3, 100 to 300 steps. Less where few rows or a
    narrow prior would let such a step overshoot.
    """
    return min(3.0 if private else 0.1, 0.5 * prior_scale**2 * n_rows)


def default_thinning(n_steps: int, burn_in: int) -> int:
    """Keep at most 30 iterates."""
    return max(1, math.ceil((n_steps - burn_in) / _MOST_KEPT))
