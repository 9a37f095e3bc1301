"""The posterior of a linear model that private samplers draw from, and its public constants.

    π(θ) ∝ exp(−U(θ)) on ‖θ‖ ≤ D,     U(θ) = ρ Σ_i ℓ_i(θ) + ‖θ‖²/(2τ²),     ℓ_i = −log p(y_i|x_i, θ)

ρ ≤ 1 is the power of the likelihood that the budget affords: ρ = 1 is the ordinary posterior, and ρ
the one that ρn observations would give. The prior is not tempered; that would buy nothing.

With rows of norm ≤ R (the intercept's 1 included), in the notation of PRIVACY §4–5 at T = 1 and
λ = 1/τ²: a record moves ∇U by at most Δ = ρ·residual_bound·R and U itself over the domain by a
range of at most ρ·value_range(RD), twice these under replace-one; and λ ≤ ∇²U ≤ λ + ρnκR², κ the
bound on the likelihood's curvature. No constant here depends on a row.

*Persons.* A clipped sum of a person's scores is the gradient of no convex function, and bounds no
range. So the k_g rows of person g have *weights* instead,

    U(θ) = ρ Σ_g w_g Σ_{i in g} ℓ_i(θ) + ‖θ‖²/(2τ²),     w_g = min(1, k₀/k_g),     k₀ public,

which keeps U convex, and w_g is a function of the person's own number of rows. Its rows weigh
w_g k_g = min(k_g, k₀) ≤ k₀ together, so that Δ and the range are k₀ times those above, and
∇²U ≤ λ + ρk₀NκR² for N persons.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from skdp.algorithms.parts.gaussian_runs import FLOAT
from skdp.fitting.validate import in_range, integer, positive
from skdp.models.likelihoods import LogConcave
from skdp.relations import sensitivity_factor
from skdp.rows.bounded_sum import ROUNDING
from skdp.rows.persons import rows_beside
from skdp.rows.records import row_bound

if TYPE_CHECKING:
    from dp_accounting.dp_event import DpEvent


@dataclass(frozen=True)
class TemperedPosterior:
    """Public facts of the distribution to sample from.

    - ``likelihood``: of one record given its logits.
    - ``fit_intercept``: whether rows get a 1 appended; θ has shape (K, n_features + fit_intercept).
    - ``data_norm``: norm > 0 to which the features of each row are clipped.
    - ``prior_scale``: τ > 0, of every coefficient and intercept.
    - ``theta_norm``: D > 0, norm of all of θ jointly that the domain ends at; infinite for none.
    - ``of_person``: k₀ > 0, most that a person's rows weigh together; None where rows are records.
    """

    likelihood: LogConcave
    n_features: int
    fit_intercept: bool
    data_norm: float
    prior_scale: float
    theta_norm: float = math.inf
    neighboring_relation: str = "zero_out"
    of_person: float | None = None

    def __post_init__(self) -> None:
        integer(1, n_features=self.n_features)
        in_range(1e-100, 1e100, data_norm=self.data_norm)  # its square is a double too
        positive(prior_scale=self.prior_scale)
        in_range(0.0, math.inf, closed="right", theta_norm=self.theta_norm)
        sensitivity_factor(self.neighboring_relation)
        positive(of_person=self.record_weight)

    @property
    def record_weight(self) -> float:
        """What the rows of one record weigh together, at most: k₀, or 1 where it is a row."""
        return 1.0 if self.of_person is None else self.of_person

    def row_weights(self, starts: np.ndarray) -> np.ndarray:
        """Weights w of rows, (n,), each a function of the number of its own person's rows."""
        return np.minimum(1.0, self.record_weight / rows_beside(starts))

    @property
    def shape(self) -> tuple[int, int]:
        """Shape (K, D) of θ."""
        return self.likelihood.n_outputs, self.n_features + bool(self.fit_intercept)

    @property
    def n_parameters(self) -> int:
        """Length K·D of θ, flat."""
        return math.prod(self.shape)

    @property
    def row_bound(self) -> float:
        """R: norm bound of a row with its intercept."""
        return row_bound(self.data_norm, self.fit_intercept)

    @property
    def prior_precision(self) -> float:
        """λ = 1/τ²."""
        return self.prior_scale**-2.0

    @property
    def sensitivity(self) -> float:
        """Δ at ρ = 1: how far neighbours can move the *computed* ∇U (see `engine.linear_sums`)."""
        bound = self.likelihood.residual_bound * self.row_bound * (1 + ROUNDING)
        return sensitivity_factor(self.neighboring_relation) * self.record_weight * bound

    @property
    def range(self) -> float:
        """Range over the domain of neighbours' difference of U, at ρ = 1; infinite without D."""
        if math.isinf(self.theta_norm):
            return math.inf
        one = self.likelihood.value_range(self.row_bound * self.theta_norm)
        return sensitivity_factor(self.neighboring_relation) * self.record_weight * one

    def curvature(self, n_rows: float) -> float:
        """Bound on ∇²Σwℓ over rows that weigh n together."""
        return n_rows * self.likelihood.curvature_bound * self.row_bound**2


class PosteriorRun:
    """What the configs of the samplers share: how long a run takes, and what more of it costs."""

    posterior: TemperedPosterior
    n_rows: int
    shorter: ClassVar[str]  # how to make a run shorter

    def event(self) -> DpEvent:
        """What the run releases."""
        raise NotImplementedError

    def of(self, n_samples: int) -> Self:
        """The same run for another number of samples."""
        raise NotImplementedError

    @property
    def seconds(self) -> float:
        """About how long the run takes on a core, from public facts."""
        raise NotImplementedError

    @property
    def cautions(self) -> tuple[str, ...]:
        """What to say of a long run before it starts."""
        if self.seconds <= 600:
            return ()
        return (f"This fit may take as long as {self.seconds / 60:.0f} minutes. {self.shorter}.",)

    @property
    def memory(self) -> int:
        """Bytes of a copy of the rows and their targets, about."""
        return FLOAT * self.n_rows * (sum(self.posterior.shape) + 1)

    def price(self, n_samples: int, delta: float) -> str:
        """What so many samples cost, in words."""
        from skdp.privacy.accounting import epsilon_of_event

        relation = self.posterior.neighboring_relation
        return f"epsilon={epsilon_of_event(self.of(n_samples).event(), delta, relation):.4g}"
