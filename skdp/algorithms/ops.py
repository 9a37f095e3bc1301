"""One posterior sample (OPS): exact draws of a posterior on a ball, for pure differential privacy.

With the notation of `algorithms.tempered`, an exact draw from π ∝ exp(−U) on ‖θ‖ ≤ D is η-DP,
η = ρ·value_range(RD), and k of them cost what `privacy.posterior_samples` says (Wang, Fienberg &
Smola 2015, with their 4B improved to the range; PRIVACY §4). *Exact* is meant, and of the program,
not of real numbers: a chain that was run "long enough" carries no guarantee, and a double around a
centre that depends on the rows tells the centre (Mironov 2012).

- The posterior lives on the points of a public grid, and its potential is a sum of integers, one a
  row, those of each record cut to η's worth of units (`algorithms.lattice_posterior`).
- Draws are by rejection from sheared discrete Gaussians, with coins of integer comparisons, without
  a cap on the number of trials (`algorithms.envelopes`, `engine.lattice_gaussian`, `engine.coins`).

So the law of what is released is η-DP as implemented, if the random bits are ideal. What remains
are the weights of proposals, rounded by a relative 2^−100 each: the log-ratio of two laws grows by
less than `ROUNDED`, which η includes.

**Timing.** How long a draw takes, whether it ends before one's patience does, and how much memory
it asks for depend on the data, and are not covered (Awan & Rao 2023): do not let those who see the
release see the clock, and do not set a time limit of which they learn.

References
----------
Y.-X. Wang, S. Fienberg, A. Smola, *Privacy for Free*, ICML 2015.
I. Mironov, *On Significance of the Least Significant Bits for Differential Privacy*, CCS 2012.
C. L. Canonne, G. Kamath, T. Steinke, *The Discrete Gaussian for Differential Privacy*, NeurIPS
2020.
J. Awan, V. Rao, *Privacy-Aware Rejection Sampling*, JMLR 2023.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from skdp.algorithms import exact_draws
from skdp.algorithms.lattice_posterior import Lattice, LatticePotential
from skdp.algorithms.tempered import PosteriorRun, TemperedPosterior
from skdp.engine import release_hook
from skdp.engine.loop import Progress
from skdp.fitting.streams import Streams
from skdp.fitting.validate import expected, in_range, integer
from skdp.privacy.posterior_samples import posterior_samples_epsilon, posterior_samples_range

if TYPE_CHECKING:
    from dp_accounting.dp_event import DpEvent

    from skdp.privacy.budget import Budget

SAMPLER = "rejection"
# Each weight w of a proposal is w(1 + u), |u| ≤ 2^−100: two per shell, one per coordinate. A law in
# which each point's mass is off by a relative ξ at most has log-ratios that are off by 4ξ at most.
ROUNDED = 2.0**-50


@dataclass(frozen=True)
class ExactConfig(PosteriorRun):
    """Public facts of k ≥ 1 independent draws on a bounded domain, at a power ρ in (0, 1].

    They are all that the event depends on. The guarantee does not depend on the public number of
    rows n ≥ 1, which may be approximate.
    """

    posterior: TemperedPosterior
    likelihood_power: float
    n_samples: int
    n_rows: int

    sampler: ClassVar[str] = SAMPLER
    instead_of_all_rows: ClassVar[str] = "delta > 0 and sampler='langevin'"
    n_epochs: ClassVar[int] = 1  # how much work a draw took is not shown
    most_records: ClassVar[float] = math.inf
    shorter: ClassVar[str] = (
        "Fewer rows, a smaller prior_scale, epsilon or n_posterior_samples make it shorter; so do "
        "delta > 0 and sampler='langevin'"
    )

    def __post_init__(self) -> None:
        in_range(0.0, 1.0, closed="right", likelihood_power=self.likelihood_power)
        integer(1, n_samples=self.n_samples)
        integer(1, n_rows=self.n_rows)
        if math.isinf(self.posterior.theta_norm):
            raise expected(
                "a finite number > 0",
                "on an unbounded domain a posterior sample has no pure guarantee",
                theta_norm=self.posterior.theta_norm,
            )
        self.lattice.check()

    @property
    def eta(self) -> float:
        """η of one released draw."""
        return self.likelihood_power * self.posterior.range + ROUNDED

    @property
    def n_releases(self) -> int:
        """Number of draws."""
        return self.n_samples

    def of(self, n_samples: int) -> Self:
        """The same run with another number of draws."""
        return replace(self, n_samples=n_samples)

    def price(self, n_samples: int, delta: float) -> str:
        """What so many samples cost, in words."""
        if n_samples > 1000:  # the exact curve would take minutes
            return f"at most epsilon={n_samples * self.eta:.4g}"
        return super().price(n_samples, delta)

    def event(self) -> DpEvent:
        """What the run releases."""
        from skdp.privacy.events import PosteriorSamplesDpEvent

        return PosteriorSamplesDpEvent(self.eta, self.n_samples)

    @property
    def seconds(self) -> float:
        """Nothing is known of it in public."""
        return 0.0

    @property
    def lattice(self) -> Lattice:
        """Grid of the draws."""
        return Lattice(self.posterior, self.likelihood_power, self.n_rows)

    @property
    def grid_width(self) -> float:
        """Width of that grid: about 2^−12 of the least deviation that a posterior can have."""
        return self.lattice.width

    @property
    def memory(self) -> int:
        """Bytes of three copies of the rows and their targets, about."""
        return 3 * super().memory

    @property
    def sampling(self) -> str:
        """How records take part, for the report."""
        draws = "exact draw" if self.n_samples == 1 else f"{self.n_samples} exact draws"
        return (
            f"all rows, {draws} by the {self.sampler} sampler on a public grid; proved of the "
            "implemented law, given ideal random bits; running time not covered"
        )

    def run(
        self, records: tuple[np.ndarray, np.ndarray], streams: Streams, progress: Progress = iter
    ) -> np.ndarray:
        """Draw from the posterior given private rows; returns (k, K, D).

        Rows (n, n_features) are clipped here; ``starts`` of persons stand beside the targets (n, K)
        where these are the records. The stream "noise" is used.
        """
        shape = self.posterior.shape
        call = release_hook.MechanismCall(
            kind="posterior_samples",
            sensitivity=self.eta,
            scale=1.0,
            rate=1.0,
            shape=(self.n_samples, *shape),
            step=0,
            width=self.grid_width,
        )

        def mechanism() -> np.ndarray:
            potential = LatticePotential(self.lattice, records)
            draws = exact_draws.rejection(potential, streams("noise"))
            kept = [next(draws) for _ in progress(range(self.n_samples))]
            return self.grid_width * np.array(kept, dtype=np.float64).reshape(call.shape)

        return release_hook.release(call, mechanism)


def affordable_power(posterior: TemperedPosterior, eta: float) -> float:
    """Largest ρ ≤ 1 at which one draw has range ≤ η."""
    power = min(1.0, (eta - ROUNDED) / posterior.range)
    while power * posterior.range + ROUNDED > eta:  # roundings
        power *= 1 - 2.0**-52
    return power


def default_theta_norm(row_bound: float, n_rows: int, n_parameters: int, eta: float) -> float:
    """D: log-odds of ±3 for a row at the norm bound, and slowly more as nη/p and p grow."""
    scale = (1 + min(n_rows * eta / n_parameters, 1e4)) ** 0.17 * (n_parameters / 10) ** 0.25
    return 3 * max(scale, 1.0) / row_bound


def default_prior_scale(row_bound: float, theta_norm: float, n_parameters: int) -> float:
    """τ ≤ D/√p, so that half of the prior's draws fall into the ball; less where D is wide."""
    return min(theta_norm, 9 / row_bound) / math.sqrt(n_parameters)


def affordable_range(budget: Budget, n_samples: int) -> float:
    """Range η of each of several draws that a budget affords; infinite without one."""
    if budget.epsilon is None or not budget.private:
        return math.inf
    return posterior_samples_range(epsilon=budget.epsilon, n_samples=n_samples, delta=budget.delta)


def configure(
    posterior: TemperedPosterior, budget: Budget, *, n_rows: int, n_samples: int
) -> ExactConfig:
    """Choose the largest power ρ ≤ 1 that a budget affords."""
    eta = affordable_range(budget, n_samples)
    power = budget.given or affordable_power(posterior, eta)
    config = ExactConfig(posterior, power, n_samples, n_rows)
    if budget.epsilon is None or not budget.private:
        return config
    step = 2.0**-52
    while _cost(config, budget.delta) > budget.epsilon:  # a rounding too many
        config = replace(config, likelihood_power=config.likelihood_power * (1 - step))
        step *= 4
    return config


def _cost(config: ExactConfig, delta: float) -> float:
    once = posterior_samples_epsilon(eta=config.eta, n_samples=config.n_samples, delta=delta)
    return once * (1 + 2e-15)  # as the accountant rounds
