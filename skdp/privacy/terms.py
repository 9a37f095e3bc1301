"""Terms: the mechanisms that an event holds, each with what the accountants ask of it.

A new kind of mechanism is a subclass of `Term` here and a reader of its event in
`skdp.privacy.events`. What a kind does not define, an accountant has no bound for.

The privacy loss of a pure ε is that of Kairouz, Oh & Viswanath (*The Composition Theorem for
Differential Privacy*, IEEE Transactions on Information Theory 63, 2017), zero-concentrated privacy
that of Bun & Steinke (*Concentrated Differential Privacy*, TCC 2016).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeGuard

import numpy as np
from dp_accounting import NeighboringRelation, dp_event
from dp_accounting.dp_event import DpEvent, SelfComposedDpEvent
from dp_accounting.pld import privacy_loss_distribution
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

from skdp.privacy.gdp import gdp_to_epsilon
from skdp.privacy.posterior_samples import bounded_range_mu
from skdp.relations import Relation

_MIN_LEVELS, _MAX_LEVELS = 32, 512  # of noise, in a schedule


class NoBoundError(ValueError):
    """An accountant has nothing valid to say of these terms."""


class Term:
    """``count`` mechanisms of one kind, as the accountants see them; kinds are dataclasses."""

    # Fields or properties of each kind: what has no noise multiplier gives what comes closest.
    noise_multiplier: float
    count: int

    @property
    def noiseless(self) -> bool:
        """Whether the term is, or selects from, a mechanism without noise: no privacy."""
        return self.noise_multiplier == 0.0

    @property
    def n_mechanisms(self) -> int:
        """How many mechanisms of one loss are composed."""
        return self.count

    @property
    def sampled(self) -> bool:
        """Whether not every record takes part, in it or in what it selects from."""
        return False

    def as_gaussian(self) -> tuple[Term, float]:
        """Read discrete Gaussians as Gaussians, at a distance in total variation."""
        return self, 0.0

    def gdp(self, relation: Relation) -> float:
        """Return a μ for which all of the mechanisms together are μ-GDP."""
        raise NoBoundError(
            "only for full-batch Gaussian mechanisms and posterior samples; use 'pld'"
        )

    def pure(self, relation: Relation) -> float:
        """Return ε at δ = 0."""
        raise NoBoundError("only pure mechanisms add up in epsilon")

    def pld(self, relation: Relation, width: float, log_mass: float) -> PrivacyLossDistribution:
        """Privacy loss of one of the mechanisms, on a grid of a width.

        The tails that are cut off, and counted as a certain loss, have the mass exp(``log_mass``).
        """
        raise NoBoundError(f"'pld' has no bound for a {type(self).__name__}; use 'rdp'")

    def rdp(self, relation: Relation, selecting: bool) -> DpEvent:
        """Write the term for dp-accounting's Rényi accountant with its default relation.

        It omits the factor 2 of replace-one, so the noise is halved and the events are accounted as
        add/remove. ``selecting`` says that the run holds a selection, which would hide a divergence
        that is lost in rounding.
        """
        raise NoBoundError(f"'rdp' has no bound for a {type(self).__name__}")


Terms = Sequence[Term]


def gaussian_event(noise_multiplier: float, sampling_rate: float, n_steps: int) -> DpEvent:
    """Event of equal Poisson-sampled Gaussian mechanisms, of checked numbers."""
    if n_steps == 0 or sampling_rate == 0.0:
        return dp_event.NoOpDpEvent()
    if noise_multiplier == 0.0:
        return dp_event.NonPrivateDpEvent()
    step = dp_event.GaussianDpEvent(noise_multiplier)
    sampled = step if sampling_rate == 1.0 else dp_event.PoissonSampledDpEvent(sampling_rate, step)
    return SelfComposedDpEvent(sampled, n_steps)


@dataclass(frozen=True)
class GaussianTerm(Term):
    """``count`` Poisson-sampled Gaussian mechanisms; ``sampling_rate=1`` is the plain mechanism."""

    noise_multiplier: float
    sampling_rate: float
    count: int

    @property
    def sampled(self) -> bool:
        """Whether there is sampling."""
        return self.sampling_rate < 1.0

    def gdp(self, relation: Relation) -> float:
        """Exact, of the full batch (PRIVACY §2)."""
        if self.sampled:
            return super().gdp(relation)
        return math.sqrt(self.count) * relation.factor / self.noise_multiplier

    def pld(self, relation: Relation, width: float, log_mass: float) -> PrivacyLossDistribution:
        """Sampled or not, as dp-accounting has it."""
        # For sums, zeroing a record out and removing it are the same pair of output laws.
        null, other = NeighboringRelation.ADD_OR_REMOVE_ONE, NeighboringRelation.REPLACE_ONE
        return privacy_loss_distribution.from_gaussian_mechanism(
            self.noise_multiplier,
            sampling_prob=self.sampling_rate,
            value_discretization_interval=width,
            log_mass_truncation_bound=log_mass,
            neighboring_relation=null if relation.null_record else other,
        )

    def rdp(self, relation: Relation, selecting: bool) -> DpEvent:
        """Of Poisson sampling only for a null record."""
        if self.sampling_rate < 1.0 and not relation.null_record:
            raise NoBoundError(
                "'rdp' has no bound for Poisson sampling under replace_one; use 'pld'"
            )
        if self.sampling_rate < 1e-6 * self.noise_multiplier:
            raise NoBoundError(
                "'rdp' loses divergences of noise beyond 1e6 sampling rates to rounding"
            )
        sigma = self.noise_multiplier / relation.factor
        return gaussian_event(sigma, self.sampling_rate, self.count)


@dataclass(frozen=True)
class LaplaceTerm(Term):
    """``count`` Laplace mechanisms, noise over the L1 bound on one record's contribution."""

    noise_multiplier: float
    count: int

    def pure(self, relation: Relation) -> float:
        """Its ε, which is the bound over the scale."""
        return self.count * relation.factor / self.noise_multiplier

    def pld(self, relation: Relation, width: float, log_mass: float) -> PrivacyLossDistribution:
        """With no tails to cut off."""
        scale = self.noise_multiplier / relation.factor
        return privacy_loss_distribution.from_laplace_mechanism(
            scale, value_discretization_interval=width
        )

    def rdp(self, relation: Relation, selecting: bool) -> DpEvent:
        """Exact at each order."""
        if selecting and self.noise_multiplier > 1e6:
            raise NoBoundError("'rdp' of a selection needs Laplace noise below 1e6")
        laplace = dp_event.LaplaceDpEvent(self.noise_multiplier / relation.factor)
        return SelfComposedDpEvent(laplace, self.count)


class _PureTerm(Term):
    """Mechanisms of a pure ε."""

    @property
    def bounds(self) -> tuple[float, float, float]:
        """ε, range of the log-ratio of neighbours, and ρ of zero-concentrated privacy."""
        raise NotImplementedError

    @property
    def noise_multiplier(self) -> float:
        """The reciprocal of ε."""
        return 1 / self.bounds[0]

    def gdp(self, relation: Relation) -> float:
        """That of logistic laws (PRIVACY §4)."""
        return math.sqrt(self.n_mechanisms) * bounded_range_mu(self.bounds[1])

    def pure(self, relation: Relation) -> float:
        """They add up."""
        return self.n_mechanisms * self.bounds[0]

    def pld(self, relation: Relation, width: float, log_mass: float) -> PrivacyLossDistribution:
        """That of one bit of randomised response, which flips with probability 1/(1 + e^ε).

        No ε-DP mechanism is easier to tell apart (Kairouz, Oh & Viswanath 2017).
        """
        return privacy_loss_distribution.from_randomized_response(
            noise_parameter=2 / (1 + math.exp(min(self.bounds[0], 700.0))),
            num_buckets=2,
            value_discretization_interval=width,
            neighboring_relation=NeighboringRelation.REPLACE_ONE,
        )

    def rdp(self, relation: Relation, selecting: bool) -> DpEvent:
        """Through zero-concentrated privacy."""
        return SelfComposedDpEvent(dp_event.ZCDpEvent(rho=self.bounds[2]), self.n_mechanisms)


@dataclass(frozen=True)
class PosteriorTerm(_PureTerm):
    """``count`` times ``n_samples`` draws of one distribution of log-density range ``eta``."""

    eta: float
    n_samples: int
    count: int

    @property
    def n_mechanisms(self) -> int:
        """Each draw is one."""
        return self.count * self.n_samples

    @property
    def bounds(self) -> tuple[float, float, float]:
        """Of a bounded range."""
        return self.eta, self.eta, self.eta**2 / 8


@dataclass(frozen=True)
class PureTerm(_PureTerm):
    """``count`` mechanisms of a pure ε, which holds under the relation, and nothing else known."""

    epsilon: float
    count: int

    @property
    def bounds(self) -> tuple[float, float, float]:
        """Of randomised response (Bun & Steinke 2016, Proposition 1.4)."""
        return self.epsilon, 2 * self.epsilon, self.epsilon**2 / 2


@dataclass(frozen=True)
class SelectionTerm(Term):
    """``count`` times the best of a random number of runs of ``inner`` (PRIVACY §6).

    The number has the law of `RepeatAndSelectDpEvent`: ``mean`` ≥ 1 runs, ``shape`` infinite for a
    Poisson law, 0 for a logarithmic one, and in between for a truncated negative binomial.
    """

    inner: tuple[Term, ...]
    mean: float
    shape: float
    count: int

    @property
    def noise_multiplier(self) -> float:
        """None: of the accountants that ask for it, none has a bound."""
        raise NoBoundError("'pld' has no bound for a selection; use 'rdp'")

    @property
    def noiseless(self) -> bool:
        """Whether one of the runs' mechanisms is without noise."""
        return any(term.noiseless for term in self.inner)

    @property
    def sampled(self) -> bool:
        """Whether there is sampling in a run."""
        return any(term.sampled for term in self.inner)

    def as_gaussian(self) -> tuple[Term, float]:
        """Runs are no composition, and their distance is not bounded: infinite, unless it is 0."""
        inner, distance = as_gaussian(self.inner)
        return replace(self, inner=inner), math.inf if distance > 0.0 else 0.0

    def rdp(self, relation: Relation, selecting: bool) -> DpEvent:
        """The bound of Papernot & Steinke over the runs."""
        one_run = [term.rdp(relation, True) for term in fewer_levels(self.inner, relation)]
        best = dp_event.RepeatAndSelectDpEvent(
            dp_event.ComposedDpEvent(one_run), self.mean, self.shape
        )
        return SelfComposedDpEvent(best, self.count)


def as_gaussian(terms: Terms) -> tuple[tuple[Term, ...], float]:
    """Read discrete Gaussians as Gaussians, and bound the distance in total variation.

    To the Rényi accountant discrete Gaussians on full batches are at no distance at all.
    """
    read = [term.as_gaussian() for term in terms]
    return tuple(term for term, _ in read), sum(distance for _, distance in read)


def all_exact(terms: Terms) -> TypeGuard[Sequence[GaussianTerm]]:
    """Whether all terms are full-batch Gaussians, whose composition has an exact curve."""
    return all(isinstance(t, GaussianTerm) and t.sampling_rate == 1.0 for t in terms)


# --- noise schedules ----------------------------------------------------------------------------


def clt_mu(terms: Iterable[Term], relation: Relation) -> float:
    """μ = q √Σ(e^{1/σ²} − 1) of the Gaussians among the terms (Bu et al. 2020).

    It can understate; it also steers searches and grids.
    """
    squares = (
        t.count
        * t.sampling_rate**2
        * math.expm1(min((relation.factor / t.noise_multiplier) ** 2, 700.0))
        for t in terms
        if isinstance(t, GaussianTerm)
    )
    return math.sqrt(math.fsum(squares))


def fewer_levels(terms: Terms, relation: Relation) -> Terms:
    """Bring a noise schedule to so many noise levels that ε is within about 1 % of its limit.

    Each Gaussian is accounted with a level at or below its noise multiplier, so every bound is
    valid; the central-limit value tells how many levels are enough. A plan with few different noise
    multipliers is accounted as it is.
    """
    n_levels = _MIN_LEVELS
    if len(terms) <= n_levels:
        return terms

    def draft(terms: Terms) -> float:
        return gdp_to_epsilon(clt_mu(terms, relation), 1e-6)

    exact = draft(terms)
    while n_levels < min(len(terms), _MAX_LEVELS):
        if not draft(bucketed_down(terms, n_levels)) > 1.01 * exact:
            break
        n_levels *= 2
    return bucketed_down(terms, n_levels)


def bucketed_down(terms: Terms, n_levels: int) -> list[Term]:
    """Round noise multipliers down to at most ``n_levels`` of them per sampling rate.

    Levels are geometric, and each is the least noise multiplier between it and the next. Less noise
    costs more, so the result bounds the original from above.
    """
    gaussian = [term for term in terms if isinstance(term, GaussianTerm)]
    levelled: list[Term] = []
    for q in sorted({term.sampling_rate for term in gaussian}):
        group = [term for term in gaussian if term.sampling_rate == q]
        sigmas = np.array([term.noise_multiplier for term in group])
        low, high = sigmas.min(), sigmas.max()
        levels = low * (high / low) ** (np.arange(n_levels) / n_levels)
        index = np.searchsorted(levels[1:], sigmas, side="right")
        for level in np.unique(index):
            inside = np.flatnonzero(index == level)
            count = sum(group[i].count for i in inside)
            levelled.append(GaussianTerm(float(sigmas[inside].min()), q, count))
    return [*levelled, *(term for term in terms if not isinstance(term, GaussianTerm))]
