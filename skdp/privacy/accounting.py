"""From an event to ε: the least of the valid upper bounds, behind guards.

dp-accounting does the numerical work and is treated as an input that can be wrong (PRIVACY §7): its
Rényi accountant answers ε = 0 to a NaN and forgets the factor 2 of replace-one, its PLD asks for
gigabytes at a tiny σ. So every number is checked first, every bound is asked only for what it is
valid for, and a failure is an exception or infinity, never a small ε.

============ ================================================= ==========================
accountant   valid for                                         bound
============ ================================================= ==========================
``"gdp"``    full-batch Gaussians, every relation              exact
``"pld"``    Poisson-sampled Gaussians, every relation         tight, rounded up
``"rdp"``    the same, not replace-one with Poisson sampling   loose, fast
``"auto"``   everything above                                  the least that applies
============ ================================================= ==========================

>>> from skdp.privacy import epsilon
>>> round(epsilon(noise_multiplier=1.0, sampling_rate=0.01, n_steps=1000, delta=1e-5), 2)
1.83
>>> round(epsilon(noise_multiplier=4.0, n_steps=16, delta=1e-5), 6)  # full batch: exactly μ = 1
4.377178
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
from dp_accounting.dp_event import DpEvent

from skdp._validate import in_range, one_of
from skdp.privacy.events import GaussianTerm, dp_sgd_event, gaussian_terms
from skdp.privacy.gdp import compose_gdp, gdp_to_epsilon
from skdp.relations import REPLACE_ONE, check_relation, sensitivity_factor

ACCOUNTANTS = ("auto", "gdp", "pld", "rdp")

PLD_MIN_NOISE = 0.05  # below, the discretised privacy loss needs gigabytes (PRIVACY §7)
PLD_MIN_DELTA = 1e-12  # below, the rounding of the Fourier transform is no longer small beside δ
_ROUND_UP = 1 + 1e-9  # covers the floating-point error of the numerical accountants

_Terms = Sequence[GaussianTerm]


def epsilon_of_event(
    event: DpEvent,
    delta: float,
    neighboring_relation: str = "zero_out",
    accountant: str = "auto",
) -> float:
    """Least known ε for which an event is (ε, δ)-DP.

    Parameters
    ----------
    event : DpEvent
        A dp-accounting event made of Gaussian, Poisson-sampled Gaussian and composed events.
    delta : float
        δ in (0, 1).
    neighboring_relation : {"zero_out", "add_or_remove_one", "replace_one"}
        Who is a neighbour. Noise multipliers are over the bound on *one record's* contribution,
        whatever the relation.
    accountant : {"auto", "gdp", "pld", "rdp"}
        ``"auto"`` is the least of the bounds that apply.

    Returns
    -------
    float
        ε ≥ 0, rounded up; infinite where there is no guarantee.

    Raises
    ------
    ValueError
        If a number is out of range, the event is of an unknown kind, or the accountant asked for
        has no valid bound for it.

    Examples
    --------
    >>> from dp_accounting import GaussianDpEvent
    >>> from skdp.privacy import epsilon_of_event
    >>> round(epsilon_of_event(GaussianDpEvent(1.0), delta=1e-5), 6)
    4.377178
    """
    return least_bound(event, delta, neighboring_relation, accountant)[0]


def least_bound(
    event: DpEvent, delta: float, neighboring_relation: str, accountant: str = "auto"
) -> tuple[float, str]:
    """Return (ε, name of the accountant that gave it); see `epsilon_of_event`."""
    delta = in_range(0.0, 1.0, delta=delta)
    relation = check_relation(neighboring_relation)
    one_of(ACCOUNTANTS, accountant=accountant)
    terms = tuple(_merge(gaussian_terms(event)))
    if not terms:
        return 0.0, "gdp"
    if any(term.noise_multiplier == 0.0 for term in terms):
        return math.inf, "gdp"
    if accountant == "auto":
        # The exact value cannot be beaten; else the numerical bounds compete.
        names = ["gdp"] if _all_full_batch(terms) else ["pld", "rdp"]
    else:
        names = [accountant]
    found: list[tuple[float, str]] = []
    refused: list[str] = []
    for name in names:
        try:
            found.append((_bound(name, terms, delta, relation), name))
        except _NoBoundError as refusal:
            refused.append(f"{name}: {refusal}")
    if not found:
        raise ValueError("No accountant has a valid bound for this event. " + "; ".join(refused))
    epsilon, name = min(found)
    return (math.inf if math.isnan(epsilon) else epsilon), name


class _NoBoundError(ValueError):
    """An accountant has nothing valid to say of these terms."""


def _merge(terms) -> list[GaussianTerm]:
    """Drop terms that release nothing and join equal ones."""
    counts: dict[tuple[float, float], int] = {}
    for sigma, q, count in terms:
        if q > 0.0 and count > 0:
            counts[sigma, q] = counts.get((sigma, q), 0) + count
    return [GaussianTerm(sigma, q, count) for (sigma, q), count in counts.items()]


def _all_full_batch(terms: _Terms) -> bool:
    return all(term.sampling_rate == 1.0 for term in terms)


def _gdp_bound(terms: _Terms, delta: float, relation: str) -> float:
    """Exact: μ² = Σ T (Δ/σ)² (PRIVACY §2)."""
    if not _all_full_batch(terms):
        raise _NoBoundError("exact only for full-batch Gaussian mechanisms; use 'pld'")
    factor = sensitivity_factor(relation)
    mu = compose_gdp(math.sqrt(t.count) * factor / t.noise_multiplier for t in terms)
    return gdp_to_epsilon(mu, delta)


def pld_epsilon(terms: _Terms, delta: float, relation: str) -> float:
    """Upper bound from dp-accounting's discretised privacy loss distribution."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    if min(t.noise_multiplier for t in terms) < PLD_MIN_NOISE:
        raise _NoBoundError(f"'pld' needs noise multipliers >= {PLD_MIN_NOISE}")
    if delta < PLD_MIN_DELTA:
        raise _NoBoundError(f"'pld' needs delta >= {PLD_MIN_DELTA:g}; use 'rdp'")
    interval = _discretisation(terms, relation)
    total = pld.identity(value_discretization_interval=interval)
    try:
        with np.errstate(over="raise", invalid="raise"):
            for sigma, q, count in terms:
                step = pld.from_gaussian_mechanism(
                    sigma,
                    sampling_prob=q,
                    value_discretization_interval=interval,
                    neighboring_relation=_dp_accounting_relation(relation),
                )
                total = total.compose(step.self_compose(count))
            return _ROUND_UP * float(total.get_epsilon_for_delta(delta))
    except FloatingPointError:  # the convolution of very many steps overflowed: no bound
        return math.inf


def clt_mu(terms: _Terms, relation: str) -> float:
    """Central-limit μ (Bu et al. 2020): a guess that steers searches and grids, never a bound."""
    factor = sensitivity_factor(relation)
    squares = (
        t.count * (t.sampling_rate**2) * math.expm1(min((factor / t.noise_multiplier) ** 2, 50.0))
        for t in terms
    )
    return math.sqrt(math.fsum(squares))


def _discretisation(terms: _Terms, relation: str) -> float:
    """Grid width of the privacy loss: any width gives a valid bound, a fine one a tight bound.

    Rounding a loss to the grid adds a variance of order h² a step, T h² in all, to a total of
    variance μ²: h = .06 μ/√T keeps ε within about .1 % of its limit (measured for q from .001 to
    .5, T from 100 to 1e5). The cap on the number of grid points keeps memory below 1 GiB.
    """
    factor = sensitivity_factor(relation)
    sigma = min(t.noise_multiplier for t in terms) / factor
    spread = 2 * (12 / sigma + 1 / sigma**2)  # losses beyond have probability e^-50 or less
    width = 0.06 * clt_mu(terms, relation) / math.sqrt(sum(t.count for t in terms))
    return max(min(width, 1e-3), spread / 2e6)


def rdp_epsilon(terms: _Terms, delta: float, relation: str) -> float:
    """Upper bound from dp-accounting's Rényi accountant (Mironov, Talwar & Zhang 2019)."""
    from dp_accounting.rdp import RdpAccountant

    # dp-accounting's replace-one RDP omits the factor 2 (PRIVACY §7): the full batch is asked as
    # add/remove with half the noise, and Poisson sampling has no bound there.
    if relation == REPLACE_ONE and not _all_full_batch(terms):
        raise _NoBoundError("'rdp' has no bound for Poisson sampling under replace_one; use 'pld'")
    factor = sensitivity_factor(relation)
    accountant = RdpAccountant()
    for sigma, q, count in terms:
        accountant.compose(dp_sgd_event(sigma / factor, q, count))
    return _ROUND_UP * float(accountant.get_epsilon(delta))


_BOUNDS: dict[str, Callable[[_Terms, float, str], float]] = {
    "gdp": _gdp_bound,
    "pld": pld_epsilon,
    "rdp": rdp_epsilon,
}


@lru_cache(maxsize=4096)
def _bound(accountant: str, terms: tuple[GaussianTerm, ...], delta: float, relation: str) -> float:
    return _BOUNDS[accountant](terms, delta, relation)


def _dp_accounting_relation(relation: str):
    from dp_accounting import NeighboringRelation

    # For sums, zeroing a record out and removing it are the same pair of output laws.
    if relation == REPLACE_ONE:
        return NeighboringRelation.REPLACE_ONE
    return NeighboringRelation.ADD_OR_REMOVE_ONE


def epsilon(
    *,
    noise_multiplier: float,
    delta: float,
    sampling_rate: float = 1.0,
    n_steps: int = 1,
    neighboring_relation: str = "zero_out",
    accountant: str = "auto",
) -> float:
    """Answer "what ε does this noise give?" for noisy sums of clipped per-record values.

    Parameters
    ----------
    noise_multiplier : float
        σ: noise standard deviation over the clipping norm.
    delta : float
        δ in (0, 1).
    sampling_rate : float, default=1.0
        Poisson sampling rate q; 1 is the full batch.
    n_steps : int, default=1
        Number of noisy sums T.
    neighboring_relation : {"zero_out", "add_or_remove_one", "replace_one"}
        Who is a neighbour.
    accountant : {"auto", "gdp", "pld", "rdp"}
        ``"auto"`` is the least of the bounds that apply.

    Returns
    -------
    float
        ε, rounded up; infinite at σ = 0.

    Raises
    ------
    ValueError
        If a number is out of range or no valid bound exists.

    Examples
    --------
    >>> from skdp.privacy import epsilon
    >>> round(epsilon(noise_multiplier=1.0, delta=1e-5), 6)
    4.377178
    """
    event = dp_sgd_event(noise_multiplier, sampling_rate, n_steps)
    return epsilon_of_event(event, delta, neighboring_relation, accountant)
