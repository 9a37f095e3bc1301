"""From an event to ε: the least of the valid upper bounds, behind guards.

============ ================================================== ==========================
accountant   valid for                                          bound
============ ================================================== ==========================
``"gdp"``    full-batch Gaussians, posterior samples            exact; of discrete ones near it,
                                                                of samples a bound
``"pld"``    Poisson-sampled Gaussians, Laplace, pure ε         tight, rounded up
``"rdp"``    the same, but no Poisson sampling under            loose, fast
             ``replace_one``; and selections of them
``"auto"``   everything above, and the exact curve of           the least that applies
             posterior samples
``"gdp_clt"`` Poisson-sampled Gaussians                         **not a bound**: to repeat
                                                                papers that used it
============ ================================================== ==========================

Every number is checked before an accountant sees it, and a failure is an exception or infinity,
never a small ε.

>>> from skdp.privacy import epsilon
>>> round(epsilon(noise_multiplier=1.0, sampling_rate=0.01, n_steps=1000, delta=1e-5), 2)
1.83
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from functools import lru_cache, partial

import numpy as np
from dp_accounting.dp_event import DpEvent

from skdp.fitting.validate import in_range, one_of
from skdp.fitting.warnings import PrivacyWarning
from skdp.privacy import accountants
from skdp.privacy.accountants import Curve
from skdp.privacy.events import dp_sgd_event, terms_of
from skdp.privacy.parts import paid_together
from skdp.privacy.terms import NoBoundError, Terms, all_exact, as_gaussian
from skdp.relations import Relation, check_relation

# The names that users may ask for, then those inside of "auto".
ACCOUNTANTS = AUTO, GDP, PLD, RDP, NOT_A_BOUND = "auto", "gdp", "pld", "rdp", "gdp_clt"
ROUGH, PLD_ROUGH, POSTERIOR, PURE = "auto_rough", "pld_rough", "posterior", "pure"

_NUMERICAL = {AUTO: PLD, ROUGH: PLD_ROUGH}  # a rough grid of privacy losses is looser, and fast
_BOUNDS: dict[str, Callable[[Terms, Relation], Curve]] = {
    GDP: accountants.gdp,
    NOT_A_BOUND: accountants.gdp_clt,
    PLD: accountants.pld,
    PLD_ROUGH: partial(accountants.pld, rough=True),
    POSTERIOR: accountants.posterior,
    PURE: accountants.pure,
    RDP: accountants.rdp,
}


def epsilon_of_event(
    event: DpEvent, delta: float, neighboring_relation: str = "zero_out", accountant: str = "auto"
) -> float:
    """Least known ε for which an event is (ε, δ)-DP.

    Parameters
    ----------
    event : DpEvent
        A dp-accounting event made of Gaussian, Poisson-sampled Gaussian, Laplace, selection
        (`RepeatAndSelectDpEvent`) and composed events, or skdp's `PosteriorSamplesDpEvent`,
        `DiscreteGaussianDpEvent`, `PureDpEvent` and `PartDpEvent`.
    delta : float
        δ in [0, 1); 0 only where all parts are pure ε-DP.
    neighboring_relation : {"zero_out", "add_or_remove_one", "replace_one"}
        Who is a neighbour. Noise multipliers are over the bound on *one record's* contribution,
        whatever the relation.
    accountant : {"auto", "gdp", "pld", "rdp", "gdp_clt"}
        ``"auto"`` is the least of the bounds that apply; ``"gdp_clt"`` is not a bound.

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
    >>> from dp_accounting import GaussianDpEvent, LaplaceDpEvent
    >>> from skdp.privacy import epsilon_of_event
    >>> round(epsilon_of_event(GaussianDpEvent(1.0), delta=1e-5), 6)
    4.377178
    >>> round(epsilon_of_event(LaplaceDpEvent(2.0), delta=0), 9)
    0.5
    """
    one_of(ACCOUNTANTS, accountant=accountant)
    return least_bound(event, delta, neighboring_relation, accountant)[0]


def delta_of_event(
    event: DpEvent, epsilon: float, neighboring_relation: str = "zero_out", accountant: str = "auto"
) -> float:
    """Least known δ for which an event is (ε, δ)-DP.

    Parameters
    ----------
    epsilon : float
        ε ≥ 0.
    event, neighboring_relation, accountant
        As in `epsilon_of_event`, as are errors.

    Returns
    -------
    float
        δ in [0, 1], rounded up; 1 where there is no guarantee.

    Examples
    --------
    >>> from dp_accounting import GaussianDpEvent
    >>> from skdp.privacy import delta_of_event
    >>> round(delta_of_event(GaussianDpEvent(1.0), epsilon=4.377178), 7)
    1e-05
    """
    one_of(ACCOUNTANTS, accountant=accountant)
    return least_bound(event, epsilon, neighboring_relation, accountant, "delta")[0]


def least_bound(
    event: DpEvent,
    at: float,
    neighboring_relation: str,
    accountant: str = AUTO,
    wanted: str = "epsilon",
) -> tuple[float, str]:
    """Return (least ε at a δ or δ at an ε, name of the accountant that gave it).

    Knows the internal accountants as well; see `epsilon_of_event` and `delta_of_event`.
    """
    if wanted == "epsilon":
        at = in_range(0.0, 1.0, delta=at, closed="left")
    else:
        at = in_range(0.0, math.inf, epsilon=at, closed="both")
    relation = check_relation(neighboring_relation)
    together = paid_together(event, relation)
    if len(together) > 1:  # no record pays for all of it: the one that pays most
        return max(least_bound(part, at, relation, accountant, wanted) for part in together)
    terms, distance = terms_of(together[0]), 0.0
    if not all_exact(terms):
        terms, distance = as_gaussian(terms)
    if not terms:
        return 0.0, GDP
    if any(term.noiseless for term in terms):
        return (math.inf if wanted == "epsilon" else 1.0), GDP
    if accountant == NOT_A_BOUND:
        warnings.warn(
            "accountant='gdp_clt' is a central-limit approximation that can understate epsilon: "
            "it is not a bound. Use 'auto' for a guarantee.",
            PrivacyWarning,
            stacklevel=3,
        )
    names = [accountant]
    if numerical := _NUMERICAL.get(accountant):
        # An exact value cannot be beaten; else the bounds compete.
        names = [GDP] if all_exact(terms) else [PURE, POSTERIOR, GDP, numerical, RDP]
        if names == [GDP] and distance > 0.0:
            names.append(RDP)
    bound = _bound if len(terms) <= _FEW_TERMS else _bound_of_many
    found: list[tuple[float, str]] = []
    refused: list[str] = []
    for name in names:
        try:
            found.append((bound(name, wanted, terms, distance, at, relation), name))
        except NoBoundError as refusal:
            refused.append(f"{name}: {refusal}")
    if not found:
        raise NoBoundError("No accountant has a valid bound for this event. " + "; ".join(refused))
    value, name = min(found)
    return (math.inf if math.isnan(value) else value), name


def _computed(
    accountant: str, wanted: str, terms: Terms, distance: float, at: float, relation: Relation
) -> float:
    if wanted == "epsilon" and at == 0.0 and accountant != PURE:
        raise NoBoundError("needs delta > 0")
    curve = _BOUNDS[accountant](terms, relation)
    # Rényi divergences are no larger than a Gaussian's, on full batches.
    if distance > 0.0 and (accountant != RDP or any(term.sampled for term in terms)):
        curve = accountants.nearby(curve, distance)
    return curve.epsilon(at) if wanted == "epsilon" else curve.delta(at)


# Of a schedule of 10⁴ noise levels one key is a megabyte: few of these are kept.
_FEW_TERMS = 32
_bound = lru_cache(maxsize=4096)(_computed)
_bound_of_many = lru_cache(maxsize=32)(_computed)


def epsilon(
    *,
    noise_multiplier: float | Sequence[float] | np.ndarray,
    delta: float,
    sampling_rate: float = 1.0,
    n_steps: int | None = None,
    neighboring_relation: str = "zero_out",
    accountant: str = "auto",
) -> float:
    """Answer "what ε does this noise give?" for noisy sums of clipped per-record values.

    Parameters
    ----------
    noise_multiplier : float or sequence of float
        σ: noise standard deviation over the clipping norm; a sequence holds one per step.
    delta : float
        δ in (0, 1).
    sampling_rate : float, default=1.0
        Poisson sampling rate q; 1 is the full batch.
    n_steps : int or None, default=None
        Number of noisy sums T; None is 1, or the length of the sequence.
    neighboring_relation : {"zero_out", "add_or_remove_one", "replace_one"}
        Who is a neighbour.
    accountant : {"auto", "gdp", "pld", "rdp", "gdp_clt"}
        ``"auto"`` is the least of the bounds that apply; ``"gdp_clt"`` is not a bound.

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
    >>> round(epsilon(noise_multiplier=[1.0, 2.0], delta=1e-5), 3)
    4.983
    """
    event = _noisy_sums(noise_multiplier, sampling_rate, n_steps)
    delta = in_range(0.0, 1.0, delta=delta)
    return epsilon_of_event(event, delta, neighboring_relation, accountant)


def delta(
    *,
    noise_multiplier: float | Sequence[float] | np.ndarray,
    epsilon: float,
    sampling_rate: float = 1.0,
    n_steps: int | None = None,
    neighboring_relation: str = "zero_out",
    accountant: str = "auto",
) -> float:
    """Answer "what δ goes with this ε?" for noisy sums of clipped per-record values.

    Parameters
    ----------
    epsilon : float
        ε ≥ 0.
    noise_multiplier, sampling_rate, n_steps, neighboring_relation, accountant
        As in `epsilon`, as are errors.

    Returns
    -------
    float
        δ in [0, 1], rounded up.

    Examples
    --------
    >>> from skdp.privacy import delta
    >>> round(delta(noise_multiplier=1.0, epsilon=1.0), 4)
    0.1269
    """
    event = _noisy_sums(noise_multiplier, sampling_rate, n_steps)
    return delta_of_event(event, epsilon, neighboring_relation, accountant)


def _noisy_sums(noise_multiplier, sampling_rate, n_steps) -> DpEvent:
    if n_steps is None and not isinstance(noise_multiplier, list | tuple | np.ndarray):
        n_steps = 1
    return dp_sgd_event(noise_multiplier, sampling_rate, n_steps)
