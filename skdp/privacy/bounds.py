"""Upper bounds on the privacy curve δ(ε) of a list of terms, one function an accountant.

dp-accounting does the numerical work and is treated as an input that can be wrong (PRIVACY §7):
each function asks it only for what it is valid for, under a relation it handles rightly, with
numbers that have been checked. What it cannot bound raises `NoBoundError`; a numerical failure is
infinity.

References
----------
J. Dong, A. Roth, W. J. Su, *Gaussian Differential Privacy*, JRSS B 84, 2022 (``gdp``).
V. Doroshenko et al., *Connect the Dots: Tighter Discrete Approximations of Privacy Loss
Distributions*, PoPETs 2022 (``pld``).
I. Mironov, K. Talwar, L. Zhang, *Rényi Differential Privacy of the Sampled Gaussian Mechanism*,
2019 (``rdp``).
N. Papernot, T. Steinke, *Hyperparameter Tuning with Renyi Differential Privacy*, ICLR 2022 (``rdp``
of a selection).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from dp_accounting import dp_event

from skdp.privacy.discrete import DiscreteGaussianTerm
from skdp.privacy.events import (
    GaussianTerm,
    LaplaceTerm,
    PosteriorTerm,
    SelectionTerm,
    Term,
    dp_sgd_event,
    leaves,
)
from skdp.privacy.gdp import compose_gdp, gdp_delta, gdp_to_epsilon
from skdp.relations import REPLACE_ONE, sensitivity_factor

PLD_MIN_NOISE = 0.05  # below, the discretised privacy loss needs gigabytes
PLD_MIN_DELTA = 1e-12  # below, the rounding of the Fourier transform is no longer small beside δ
PLD_MAX_BOUNDED = 100_000  # Laplace and the like are not cut off: more take all the memory
_PLD_MANY_POINTS, _PLD_MAX_POINTS = 3 * 10**4, 10**6  # the second keeps memory below 1 GiB
_ROUND_UP = 1 + 1e-9  # covers the floating-point error of the numerical accountants
_MIN_LEVELS, _MAX_LEVELS = 32, 512  # of noise, in a schedule
_NO_SELECTION = "'pld' has no bound for a selection; use 'rdp'"

Terms = Sequence[Term]


class NoBoundError(ValueError):
    """An accountant has nothing valid to say of these terms."""


class Curve(Protocol):
    """An upper bound on a privacy curve, readable in both directions."""

    def epsilon(self, delta: float) -> float:
        """Least ε that the bound gives at δ."""
        ...

    def delta(self, epsilon: float) -> float:
        """Least δ that the bound gives at ε."""
        ...


# --- near another mechanism ---------------------------------------------------------------------


def as_gaussian(terms: Terms) -> tuple[Terms, float]:
    """Read discrete Gaussians as Gaussians, and bound the distance in total variation.

    Runs inside a selection are no composition, and their distance is not bounded: infinite, unless
    they have none. To the Rényi accountant discrete Gaussians are at no distance at all.
    """
    read: list[Term] = []
    distance = 0.0
    for term in terms:
        if isinstance(term, DiscreteGaussianTerm):
            distance += term.distance
            term = GaussianTerm(term.noise_multiplier, 1.0, term.count)
        elif isinstance(term, SelectionTerm):
            inner, of_one = as_gaussian(term.inner)
            distance += math.inf if of_one > 0.0 else 0.0
            term = replace(term, inner=tuple(inner))
        read.append(term)
    return tuple(read), distance


@dataclass(frozen=True)
class NearCurve:
    """The curve of laws within a total variation η of laws with a known curve.

    P(S) ≤ P'(S) + η ≤ e^ε Q'(S) + δ + η ≤ e^ε Q(S) + δ + (1 + e^ε) η.
    """

    near: Curve
    distance: float

    def _slack(self, epsilon: float) -> float:
        return self.distance * (1.0 + math.exp(min(epsilon, 700.0)))

    def epsilon(self, delta: float) -> float:
        """Set a part of δ aside, and look whether it is enough at the ε that the rest gives."""
        aside = 1.01 * self._slack(self.near.epsilon(delta))
        while aside < delta:
            epsilon = self.near.epsilon(delta - aside)
            if self._slack(epsilon) <= aside:
                return epsilon
            aside *= 2.0
        raise NoBoundError("the noise is too coarse for so small a delta at such an epsilon")

    def delta(self, epsilon: float) -> float:
        """As above."""
        return min(1.0, self.near.delta(epsilon) + self._slack(epsilon))


# --- exact --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GDPCurve:
    """The exact curve of a μ-GDP mechanism."""

    mu: float

    def epsilon(self, delta: float) -> float:
        """Exact, rounded up."""
        return gdp_to_epsilon(self.mu, delta)

    def delta(self, epsilon: float) -> float:
        """Exact."""
        return gdp_delta(self.mu, epsilon)


def gdp(terms: Terms, relation: str) -> Curve:
    """Full-batch Gaussians compose exactly: μ² = Σ T (Δ/σ)² (PRIVACY §2)."""
    factor = sensitivity_factor(relation)
    mus = []
    for term in terms:
        if not isinstance(term, GaussianTerm) or term.sampling_rate < 1.0:
            raise NoBoundError("exact only for full-batch Gaussian mechanisms; use 'pld'")
        mus.append(math.sqrt(term.count) * factor / term.noise_multiplier)
    return GDPCurve(compose_gdp(mus))


def gdp_clt(terms: Terms, relation: str) -> Curve:
    """Central-limit approximation of Bu et al. (2020): it can understate, and is *not* a bound."""
    return GDPCurve(clt_mu(_only_gaussian(terms, "gdp_clt"), relation))


def clt_mu(terms: Iterable[GaussianTerm], relation: str) -> float:
    """μ = q √Σ(e^{1/σ²} − 1); also what steers searches and grids."""
    factor = sensitivity_factor(relation)
    squares = (
        t.count * t.sampling_rate**2 * math.expm1(min((factor / t.noise_multiplier) ** 2, 700.0))
        for t in terms
    )
    return math.sqrt(math.fsum(squares))


def _only_gaussian(terms: Terms, accountant: str) -> list[GaussianTerm]:
    gaussian = [term for term in terms if isinstance(term, GaussianTerm)]
    if len(gaussian) < len(terms):
        raise NoBoundError(f"'{accountant}' is for Gaussian mechanisms only")
    return gaussian


# --- privacy loss distributions -----------------------------------------------------------------


class PLDCurve:
    """dp-accounting's discretised privacy loss distribution, rounded up.

    The grid is chosen when the curve is read. By default it resolves the central-limit μ; where
    that asks for very many points, a rough pass finds out whether ε itself is on a larger scale, as
    it is when ε comes from rare large losses, and a wider grid is enough.
    """

    def __init__(self, terms: Terms, relation: str, *, rough: bool) -> None:
        self._terms, self._relation, self._rough = terms, relation, rough

    def epsilon(self, delta: float) -> float:
        """Refuse a δ at which the Fourier transform's rounding counts."""
        if delta < max(PLD_MIN_DELTA, 2 * self._delta_error):
            raise NoBoundError(
                f"'pld' needs delta >= {max(PLD_MIN_DELTA, 2 * self._delta_error):g}; use 'rdp'"
            )
        return self._read("get_epsilon_for_delta", delta - self._delta_error, 0.0)

    @property
    def _delta_error(self) -> float:
        """Rounding of the Fourier transforms: 2e-17 a composition was seen; 50 times that here."""
        return 1e-15 * sum(_n_mechanisms(term) for term in self._terms)

    def delta(self, epsilon: float) -> float:
        """Never below the least δ that the discretisation resolves."""
        found = self._read("get_delta_for_epsilon", epsilon, epsilon)
        return min(1.0, max(found + self._delta_error, PLD_MIN_DELTA))

    def _read(self, direction: str, at: float, epsilon: float) -> float:
        width, spread = discretisation(self._terms, self._relation, epsilon)
        if self._rough:
            return self._ask(direction, at, max(8 * width, spread / _PLD_MANY_POINTS))
        if spread / width > _PLD_MANY_POINTS and direction == "get_epsilon_for_delta":
            rough = self._ask(direction, at, max(width, spread / _PLD_MANY_POINTS))
            width, _ = discretisation(self._terms, self._relation, rough)
        return self._ask(direction, at, max(width, spread / _PLD_MAX_POINTS))

    def _ask(self, direction: str, at: float, width: float) -> float:
        total = _composed_pld(self._terms, self._relation, width)
        if total is None:
            return math.inf if direction == "get_epsilon_for_delta" else 1.0
        return _ROUND_UP * float(getattr(total, direction)(at))


def pld(terms: Terms, relation: str, *, rough: bool = False) -> Curve:
    """Compose privacy loss distributions; noise that changes over time is bucketed downwards.

    ``rough`` widens the grid: still a bound, looser and faster.
    """
    if min(_noise(term) for term in terms) < PLD_MIN_NOISE:
        raise NoBoundError(f"'pld' needs noise multipliers >= {PLD_MIN_NOISE}")
    bounded = (term for term in terms if isinstance(term, LaplaceTerm | PosteriorTerm))
    if (n_bounded := sum(_n_mechanisms(term) for term in bounded)) > PLD_MAX_BOUNDED:
        raise NoBoundError(f"'pld' composes {PLD_MAX_BOUNDED} pure releases, not {n_bounded}")
    return _refined(terms, relation, lambda levels: PLDCurve(levels, relation, rough=rough))


def _noise(term: Term) -> float:
    """Noise multiplier, or what comes closest to it: the reciprocal of a pure ε."""
    if isinstance(term, SelectionTerm):
        raise NoBoundError(_NO_SELECTION)
    return 1 / term.eta if isinstance(term, PosteriorTerm) else term.noise_multiplier


def _composed_pld(terms: Terms, relation: str, width: float):
    """Compose on one grid; None if the convolution of very many steps overflowed."""
    from dp_accounting.pld import privacy_loss_distribution

    n_mechanisms = sum(_n_mechanisms(term) for term in terms)
    total = privacy_loss_distribution.identity(value_discretization_interval=width)
    try:
        with np.errstate(over="raise", invalid="raise"):
            for term in terms:
                step = _one_pld(term, relation, width, math.log(1e-14 / n_mechanisms))
                total = total.compose(step.self_compose(_n_mechanisms(term)))
    except FloatingPointError:
        return None
    return total


def _n_mechanisms(term: Term) -> int:
    return term.count * term.n_samples if isinstance(term, PosteriorTerm) else term.count


def _one_pld(term: Term, relation: str, width: float, log_mass_truncation: float):
    from dp_accounting import NeighboringRelation
    from dp_accounting.pld import privacy_loss_distribution

    factor = sensitivity_factor(relation)
    match term:
        case GaussianTerm(sigma, q, _):
            # For sums, zeroing a record out and removing it are the same pair of output laws.
            replace = relation == REPLACE_ONE
            return privacy_loss_distribution.from_gaussian_mechanism(
                sigma,
                sampling_prob=q,
                value_discretization_interval=width,
                log_mass_truncation_bound=log_mass_truncation,
                neighboring_relation=NeighboringRelation.REPLACE_ONE
                if replace
                else NeighboringRelation.ADD_OR_REMOVE_ONE,
            )
        case LaplaceTerm(scale, _):
            return privacy_loss_distribution.from_laplace_mechanism(
                scale / factor, value_discretization_interval=width
            )
        case PosteriorTerm(eta, _, _):
            # An η-DP mechanism is never easier to tell apart than one bit of randomised response
            # (Kairouz, Oh & Viswanath 2017), which flips with probability 1/(1 + e^η).
            return privacy_loss_distribution.from_randomized_response(
                noise_parameter=2 / (1 + math.exp(min(eta, 700.0))),
                num_buckets=2,
                value_discretization_interval=width,
                neighboring_relation=NeighboringRelation.REPLACE_ONE,
            )
        case _:
            raise NoBoundError(_NO_SELECTION)


def discretisation(terms: Terms, relation: str, epsilon: float) -> tuple[float, float]:
    """Grid width of the privacy loss, and the range of losses that the grid must cover.

    Any width gives a valid bound, a fine one a tight bound. Rounding a loss to the grid adds a
    variance of order h² a step, T h² in all, to a total that matters on the scale of μ, or of ε/6
    where that is larger: h = .06 max(μ, ε/6)/√T keeps ε within about .1 % of its limit (measured
    for q from 1e-4 to .5, T from 1 to 1e5).
    """
    factor = sensitivity_factor(relation)
    gaussian = [term for term in terms if isinstance(term, GaussianTerm)]
    others = [term for term in terms if not isinstance(term, GaussianTerm)]
    pure = math.fsum(_n_mechanisms(t) * (factor / _noise(t)) ** 2 for t in others)
    mu = math.sqrt(min(clt_mu(gaussian, "zero_out"), 1e3) ** 2 + pure)
    n_mechanisms = sum(_n_mechanisms(term) for term in terms)
    width = 0.06 * max(mu, min(epsilon, 1e3) / 6) / math.sqrt(n_mechanisms)
    sigma = min(_noise(term) for term in terms) / factor
    spread = 2 * (12 / sigma + 1 / sigma**2)  # losses beyond have a probability below e^-50
    return min(width, 1e-2), spread


# --- Rényi --------------------------------------------------------------------------------------


class RDPCurve:
    """dp-accounting's Rényi accountant, rounded up."""

    def __init__(self, accountant) -> None:
        self._accountant = accountant

    def epsilon(self, delta: float) -> float:
        """Optimal conversion over the orders (Canonne, Kamath & Steinke 2020)."""
        found = float(self._accountant.get_epsilon(delta))
        if not found > 0.0:  # dp-accounting's answer to a divergence lost in rounding
            raise NoBoundError("'rdp' cannot resolve so small a loss")
        return _ROUND_UP * found

    def delta(self, epsilon: float) -> float:
        """The same conversion, solved for δ."""
        return min(1.0, _ROUND_UP * float(self._accountant.get_delta(epsilon)))


def rdp(terms: Terms, relation: str) -> Curve:
    """Add Rényi divergences; noise that changes over time is bucketed downwards."""
    mechanisms = list(leaves(terms))
    gaussian = [term for term in mechanisms if isinstance(term, GaussianTerm)]
    if relation == REPLACE_ONE and any(term.sampling_rate < 1.0 for term in gaussian):
        raise NoBoundError("'rdp' has no bound for Poisson sampling under replace_one; use 'pld'")
    if any(term.sampling_rate < 1e-6 * term.noise_multiplier for term in gaussian):
        raise NoBoundError("'rdp' loses divergences of noise beyond 1e6 sampling rates to rounding")
    # Lost inside a selection, a divergence would not show in the result.
    if any(isinstance(term, SelectionTerm) for term in terms):
        laplace = [term for term in mechanisms if isinstance(term, LaplaceTerm)]
        if any(term.noise_multiplier > 1e6 for term in laplace):
            raise NoBoundError("'rdp' of a selection needs Laplace noise below 1e6")
    return _refined(terms, relation, lambda levels: _rdp(levels, relation))


def _rdp(terms: Terms, relation: str) -> Curve:
    from dp_accounting.rdp import RdpAccountant

    accountant = RdpAccountant()
    with _quiet_absl():
        for term in terms:
            accountant.compose(_rdp_event(term, relation))
    return RDPCurve(accountant)


def _rdp_event(term: Term, relation: str) -> dp_event.DpEvent:
    """Write a term for dp-accounting's Rényi accountant with its default relation.

    It omits the factor 2 of replace-one, so the noise is halved here and the events are accounted
    as add/remove.
    """
    factor = sensitivity_factor(relation)
    match term:
        case GaussianTerm(sigma, q, count):
            return dp_sgd_event(sigma / factor, q, count)
        case LaplaceTerm(scale, count):
            laplace = dp_event.LaplaceDpEvent(scale / factor)
            return dp_event.SelfComposedDpEvent(laplace, count)
        case PosteriorTerm(eta, n_samples, count):
            zcdp = dp_event.ZCDpEvent(rho=eta**2 / 8)  # bounded range η is η²/8-zCDP
            return dp_event.SelfComposedDpEvent(zcdp, n_samples * count)
        case SelectionTerm(inner, mean, shape, count):
            one_run = [_rdp_event(t, relation) for t in _fewer_levels(inner, relation)]
            best = dp_event.RepeatAndSelectDpEvent(dp_event.ComposedDpEvent(one_run), mean, shape)
            return dp_event.SelfComposedDpEvent(best, count)
        case DiscreteGaussianTerm():  # which `as_gaussian` has read
            raise NoBoundError("'rdp' needs the terms as Gaussians")


@contextmanager
def _quiet_absl() -> Iterator[None]:
    """dp-accounting logs a warning for each Rényi order it leaves out; the rest still bounds."""
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


# --- noise schedules ----------------------------------------------------------------------------


def _refined(terms: Terms, relation: str, bound: Callable[[Terms], Curve]) -> Curve:
    """Bound a noise schedule on so many noise levels that ε is within about 1 % of its limit.

    Each Gaussian is accounted with a level at or below its noise multiplier, so every bound is
    valid. How many levels are enough is the central-limit value's to say, which costs nothing. A
    plan with few different noise multipliers is accounted as it is.
    """
    return bound(_fewer_levels(terms, relation))


def _fewer_levels(terms: Terms, relation: str) -> Terms:
    n_levels = _MIN_LEVELS
    if len(terms) <= n_levels:
        return terms

    def draft(terms: Iterable[Term]) -> float:
        mu = clt_mu((t for t in terms if isinstance(t, GaussianTerm)), relation)
        return gdp_to_epsilon(mu, 1e-6)

    exact = draft(terms)
    while n_levels < min(len(terms), _MAX_LEVELS):
        if not draft(bucketed_down(terms, n_levels)) > 1.01 * exact:
            break
        n_levels *= 2
    return bucketed_down(terms, n_levels)


def bucketed_down(terms: Terms, n_levels: int) -> list[Term]:
    """Round noise multipliers down to at most ``n_levels`` of them a sampling rate.

    Levels are geometric, and each is the least noise multiplier between it and the next. Less noise
    costs more, so the result bounds the original from above.
    """
    gaussian: list[Term] = []
    for q in sorted({term.sampling_rate for term in terms if isinstance(term, GaussianTerm)}):
        group = [t for t in terms if isinstance(t, GaussianTerm) and t.sampling_rate == q]
        sigmas = np.array([term.noise_multiplier for term in group])
        low, high = sigmas.min(), sigmas.max()
        levels = low * (high / low) ** (np.arange(n_levels) / n_levels)
        index = np.searchsorted(levels[1:], sigmas, side="right")
        for level in np.unique(index):
            inside = np.flatnonzero(index == level)
            count = sum(group[i].count for i in inside)
            gaussian.append(GaussianTerm(float(sigmas[inside].min()), q, count))
    return [*gaussian, *(term for term in terms if not isinstance(term, GaussianTerm))]
