"""Upper bounds on the privacy curve δ(ε) of a list of terms, one function per accountant.

dp-accounting does the numerical work and is treated as an input that can be wrong (PRIVACY §7):
each function asks it only for what it is valid for, under a relation it handles rightly, with
numbers that have been checked. What it cannot bound raises `NoBoundError`; a numerical failure is
infinity.

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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import numpy as np
from dp_accounting.pld import privacy_loss_distribution
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution
from dp_accounting.rdp import RdpAccountant
from scipy import fft

from skdp.privacy.gdp import compose_gdp, gdp_delta, gdp_to_epsilon
from skdp.privacy.posterior_samples import (
    MOST_SAMPLES,
    bounded_range_delta,
    posterior_samples_epsilon,
)
from skdp.privacy.terms import (
    GaussianTerm,
    NoBoundError,
    PosteriorTerm,
    SelectionTerm,
    Terms,
    clt_mu,
    fewer_levels,
)
from skdp.relations import ZERO_OUT, Relation

PLD_MIN_NOISE = 0.05  # below, the discretised privacy loss needs gigabytes
PLD_MIN_DELTA = 1e-12  # below, the rounding of the Fourier transform is no longer small beside δ
PLD_MAX_BOUNDED = 100_000  # Laplace and the like are not cut off: more take all the memory
_PLD_MANY_POINTS, _PLD_MAX_POINTS = 3 * 10**4, 10**6  # the second keeps memory below 1 GiB
_PLD_MAX_COMPOSED = 10**7  # points of a composition, for the same reason
_PLD_AT_ONCE = 10**4  # releases, of a stage of `self_compose`
_TRANSFORMS_KEPT = 16  # lengths whose tables SciPy keeps, of complex and of real transforms each
_ROUND_UP = 1 + 1e-9  # covers the floating-point error of the numerical accountants


@dataclass(frozen=True)
class Curve:
    """An upper bound on a privacy curve: least ε at a δ, and least δ at an ε."""

    epsilon: Callable[[float], float]
    delta: Callable[[float], float]


def nearby(curve: Curve, distance: float) -> Curve:
    """Bound the curve of laws within a total variation η of laws with a known curve.

    P(S) ≤ P'(S) + η ≤ e^ε Q'(S) + δ + η ≤ e^ε Q(S) + δ + (1 + e^ε) η.
    """

    def slack(epsilon: float) -> float:
        return distance * (1.0 + math.exp(min(epsilon, 700.0)))

    def epsilon(delta: float) -> float:
        # Set a part of δ aside, and look whether it is enough at the ε that the rest gives.
        aside = 1.01 * slack(curve.epsilon(delta))
        while aside < delta:
            found = curve.epsilon(delta - aside)
            if slack(found) <= aside:
                return found
            aside *= 2.0
        raise NoBoundError(
            "the noise is too coarse for so small a delta at such an epsilon; use a smaller "
            "epsilon, or full batches"
        )

    return Curve(epsilon, lambda e: min(1.0, curve.delta(e) + slack(e)))


# --- exact --------------------------------------------------------------------------------------


def gdp(terms: Terms, relation: Relation) -> Curve:
    """Full-batch Gaussians compose exactly: μ² = Σ T (Δ/σ)² (PRIVACY §2); with others, a bound."""
    mu = compose_gdp(term.gdp(relation) for term in terms)
    return Curve(partial(gdp_to_epsilon, mu), partial(gdp_delta, mu))


def gdp_clt(terms: Terms, relation: Relation) -> Curve:
    """Central-limit approximation of Bu et al. (2020): it can understate, and is *not* a bound."""
    if not all(isinstance(term, GaussianTerm) for term in terms):
        raise NoBoundError("'gdp_clt' is for Gaussian mechanisms only")
    mu = clt_mu(terms, relation)
    return Curve(partial(gdp_to_epsilon, mu), partial(gdp_delta, mu))


def pure(terms: Terms, relation: Relation) -> Curve:
    """Pure ε adds up, and is the same at every δ."""
    total = sum(term.pure(relation) for term in terms) * (1 + 1e-15 * len(terms))

    def delta(epsilon: float) -> float:
        # Murtagh & Vadhan 2016: the largest δ(ε') of an ε-DP mechanism.
        if epsilon >= total:
            return 0.0
        return -math.expm1(epsilon - total) / (1 + math.exp(-total))

    return Curve(lambda _: total, delta)


def posterior(terms: Terms, relation: Relation) -> Curve:
    """Draws from one posterior, and nothing else (PRIVACY §4)."""
    match terms:
        case (PosteriorTerm(eta, n_samples, 1),) if n_samples <= MOST_SAMPLES:
            epsilon = partial(posterior_samples_epsilon, eta=eta, n_samples=n_samples)
            delta = partial(bounded_range_delta, eta, n_samples)
            return Curve(lambda at: epsilon(delta=at), delta)
    raise NoBoundError("exact for the samples of one posterior alone")


# --- privacy loss distributions -----------------------------------------------------------------


def pld(terms: Terms, relation: Relation, *, rough: bool = False) -> Curve:
    """Compose privacy loss distributions; noise that changes over time is bucketed downwards.

    ``rough`` widens the grid: still a bound, looser and faster.
    """
    if min(term.noise_multiplier for term in terms) < PLD_MIN_NOISE:
        raise NoBoundError(f"'pld' needs noise multipliers >= {PLD_MIN_NOISE}")
    bounded = (term for term in terms if not isinstance(term, GaussianTerm))
    if (n_bounded := sum(term.n_mechanisms for term in bounded)) > PLD_MAX_BOUNDED:
        raise NoBoundError(f"'pld' composes {PLD_MAX_BOUNDED} pure releases, not {n_bounded}")
    terms = fewer_levels(terms, relation)
    # Rounding of the Fourier transforms: 2e-17 per composition was seen; 50 times that here.
    error = 1e-15 * sum(term.n_mechanisms for term in terms)

    def epsilon(delta: float) -> float:
        if delta < (least := max(PLD_MIN_DELTA, 2 * error)):
            raise NoBoundError(f"'pld' needs delta >= {least:g}; use 'rdp'")
        return read("get_epsilon_for_delta", delta - error, 0.0)

    def delta(epsilon: float) -> float:  # never below the least that the discretisation resolves
        found = read("get_delta_for_epsilon", epsilon, epsilon)
        return min(1.0, max(found + error, PLD_MIN_DELTA))

    def read(direction: str, at: float, epsilon: float) -> float:
        width, spread = discretisation(terms, relation, epsilon)
        ask = partial(_composed, terms, relation, direction, at)
        if rough:
            return ask(max(8 * width, spread / _PLD_MANY_POINTS))
        # The grid resolves the central-limit μ; where that asks for very many points, a rough pass
        # finds out whether ε itself is on a larger scale, as where it comes from rare large losses.
        if spread / width > _PLD_MANY_POINTS and direction == "get_epsilon_for_delta":
            wide = ask(max(width, spread / _PLD_MANY_POINTS))
            width, _ = discretisation(terms, relation, wide)
        return ask(max(width, spread / _PLD_MAX_POINTS))

    return Curve(epsilon, delta)


def _composed(terms: Terms, relation: Relation, direction: str, at: float, width: float) -> float:
    """Ask dp-accounting's discretised privacy loss distribution, and round up."""
    width = max(width, composed_spread(terms, relation) / _PLD_MAX_COMPOSED)
    total = privacy_loss_distribution.identity(value_discretization_interval=width)
    log_mass = math.log(1e-14 / sum(term.n_mechanisms for term in terms))
    try:
        with np.errstate(over="raise", invalid="raise"):
            for term in terms:
                step = term.pld(relation, width, log_mass)
                total = total.compose(self_compose(step, term.n_mechanisms))
    except FloatingPointError:  # of the convolution of very many steps
        return math.inf if direction == "get_epsilon_for_delta" else 1.0
    finally:
        forget_transforms()
    return _ROUND_UP * float(getattr(total, direction)(at))


def forget_transforms() -> None:
    """Push SciPy's tables of the last Fourier transforms out of its cache.

    It keeps those of 16 lengths, 30 bytes a point: 5 GB at 10⁷ points each. No call empties it.
    """
    for length in range(2, 2 + _TRANSFORMS_KEPT):
        fft.fft(np.zeros(length, dtype=complex))  # of real numbers it is a real transform
        fft.rfft(np.zeros(length))


def discretisation(terms: Terms, relation: Relation, epsilon: float) -> tuple[float, float]:
    """Grid width of the privacy loss, and the range of losses that the grid must cover.

    Any width gives a valid bound, a fine one a tight bound. Rounding a loss to the grid adds a
    variance of order h² per step, T h² in all, to a total that matters on the scale of μ, or of ε/6
    where that is larger: h = .06 max(μ, ε/6)/√T keeps ε within about .1 % of its limit (measured
    for q from 1e-4 to .5, T from 1 to 1e5).
    """
    factor = relation.factor
    others = [term for term in terms if not isinstance(term, GaussianTerm)]
    pure = math.fsum(term.n_mechanisms * (factor / term.noise_multiplier) ** 2 for term in others)
    mu = math.sqrt(min(clt_mu(terms, ZERO_OUT), 1e3) ** 2 + pure)
    n_mechanisms = sum(term.n_mechanisms for term in terms)
    width = 0.06 * max(mu, min(epsilon, 1e3) / 6) / math.sqrt(n_mechanisms)
    spread = _spread(min(term.noise_multiplier for term in terms) / factor)
    return min(width, 1e-2), spread


def _spread(sigma: float) -> float:
    return 2 * (12 / sigma + 1 / sigma**2)  # losses beyond have a probability below e^-50


def composed_spread(terms: Terms, relation: Relation) -> float:
    """Range of losses, about, that dp-accounting holds of a composition.

    It cuts the tails by Chernoff's bound at the orders k/S for k = 1, ..., 20, where S is the range
    of one loss: n losses of variance v have a range of n k v/S + 70 S/k for the best k. For a
    Gaussian, with r the likelihood ratio of the two laws of a step, v ≤ E r log² r is at most
    E (r − 1)² = q² (e^{1/σ²} − 1), at most the second moment m of the loss without sampling, and at
    most q (m + 2).
    """
    found = 0.0
    for term in terms:
        loss = relation.factor / term.noise_multiplier
        if isinstance(term, GaussianTerm):
            q, moment = term.sampling_rate, loss**2 + loss**4 / 4
            chi_squared = q**2 * math.expm1(min(loss**2, 700.0))
            variance, one = min(chi_squared, moment, q * (moment + 2)), _spread(1 / loss) / 2
        else:
            variance, one = loss**2, 2 * loss
        left = term.n_mechanisms
        while left > 1:  # a stage of `self_compose`
            n = min(left, _PLD_AT_ONCE)
            one = min(k * n * variance / one + 70 * one / k for k in range(1, 21))
            variance, left = n * variance, math.ceil(left / n)
        found += one
    return found


def self_compose(step: PrivacyLossDistribution, n: int) -> PrivacyLossDistribution:
    """Compose a loss with itself, very many times in stages.

    dp-accounting's bounds of the tails are close for a number of times that is not far above that
    of the grid's points, and below 1000 of these it computes their number to the power of ``n``.
    Each stage adds 1e-15 to δ for each time that it is repeated, less than is added for rounding.
    """
    if n <= _PLD_AT_ONCE:
        return step.self_compose(n)
    times, rest = divmod(n, _PLD_AT_ONCE)
    total = self_compose(step.self_compose(_PLD_AT_ONCE), times)
    return total.compose(step.self_compose(rest)) if rest else total


# --- Rényi --------------------------------------------------------------------------------------


def rdp(terms: Terms, relation: Relation) -> Curve:
    """Add Rényi divergences; noise that changes over time is bucketed downwards."""
    selecting = any(isinstance(term, SelectionTerm) for term in terms)
    events = [term.rdp(relation, selecting) for term in fewer_levels(terms, relation)]
    accountant = RdpAccountant()
    with _quiet_absl():
        for event in events:
            accountant.compose(event)

    def epsilon(delta: float) -> float:
        # Optimal conversion over the orders (Canonne, Kamath & Steinke 2020).
        found = float(accountant.get_epsilon(delta))
        if not found > 0.0:  # dp-accounting's answer to a divergence lost in rounding
            raise NoBoundError("'rdp' cannot resolve so small a loss")
        return _ROUND_UP * found

    return Curve(epsilon, lambda e: min(1.0, _ROUND_UP * float(accountant.get_delta(e))))


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
