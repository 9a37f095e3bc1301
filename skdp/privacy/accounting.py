"""From an event to ε: the least of the valid upper bounds, behind guards.

============ ================================================== ==========================
accountant   valid for                                          bound
============ ================================================== ==========================
``"gdp"``    full-batch Gaussians                               exact; of discrete ones near it
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

>>> from skdp.privacy import delta, epsilon
>>> round(epsilon(noise_multiplier=1.0, sampling_rate=0.01, n_steps=1000, delta=1e-5), 2)
1.83
>>> round(epsilon(noise_multiplier=4.0, n_steps=16, delta=1e-5), 6)  # full batch: exactly μ = 1
4.377178
>>> round(delta(noise_multiplier=4.0, n_steps=16, epsilon=4.377178), 7)
1e-05
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from functools import lru_cache, partial

import numpy as np
from dp_accounting.dp_event import DpEvent

from skdp._validate import in_range, one_of
from skdp._warnings import PrivacyWarning
from skdp.privacy import bounds
from skdp.privacy.bounds import Curve, NearCurve, NoBoundError, Terms, as_gaussian
from skdp.privacy.events import (
    GaussianTerm,
    LaplaceTerm,
    PosteriorTerm,
    dp_sgd_event,
    noiseless,
    terms_of,
)
from skdp.privacy.posterior_samples import (
    MOST_SAMPLES,
    bounded_range_delta,
    posterior_samples_epsilon,
)
from skdp.relations import check_relation, sensitivity_factor

ACCOUNTANTS = ("auto", "gdp", "pld", "rdp", "gdp_clt")
NOT_A_BOUND = "gdp_clt"
ROUGH = "auto_rough"  # as "auto", but privacy losses on a rough grid: looser, and fast


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
        A dp-accounting event made of Gaussian, Poisson-sampled Gaussian, Laplace, selection
        (`RepeatAndSelectDpEvent`) and composed events, or skdp's `PosteriorSamplesDpEvent` and
        `DiscreteGaussianDpEvent`.
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


def least_bound(
    event: DpEvent, delta: float, neighboring_relation: str, accountant: str = "auto"
) -> tuple[float, str]:
    """Return (ε, name of the accountant that gave it); see `epsilon_of_event`.

    Knows the internal accountants as well.
    """
    delta = in_range(0.0, 1.0, delta=delta, closed="left")
    return _least("epsilon", event, delta, neighboring_relation, accountant)


def delta_of_event(
    event: DpEvent,
    epsilon: float,
    neighboring_relation: str = "zero_out",
    accountant: str = "auto",
) -> float:
    """Least known δ for which an event is (ε, δ)-DP.

    Parameters
    ----------
    event : DpEvent
        As in `epsilon_of_event`.
    epsilon : float
        ε ≥ 0.
    neighboring_relation : {"zero_out", "add_or_remove_one", "replace_one"}
        Who is a neighbour.
    accountant : {"auto", "gdp", "pld", "rdp", "gdp_clt"}
        As in `epsilon_of_event`.

    Returns
    -------
    float
        δ in [0, 1], rounded up; 1 where there is no guarantee.

    Raises
    ------
    ValueError
        As in `epsilon_of_event`.

    Examples
    --------
    >>> from dp_accounting import GaussianDpEvent
    >>> from skdp.privacy import delta_of_event
    >>> round(delta_of_event(GaussianDpEvent(1.0), epsilon=4.377178), 7)
    1e-05
    """
    one_of(ACCOUNTANTS, accountant=accountant)
    epsilon = in_range(0.0, math.inf, epsilon=epsilon, closed="both")
    return _least("delta", event, epsilon, neighboring_relation, accountant)[0]


def _least(
    wanted: str, event: DpEvent, at: float, relation: str, accountant: str
) -> tuple[float, str]:
    relation = check_relation(relation)
    names = [accountant]
    terms = terms_of(event)
    if not terms:
        return 0.0, "gdp"
    if any(map(noiseless, terms)):
        return (math.inf if wanted == "epsilon" else 1.0), "gdp"
    if accountant in ("auto", ROUGH):
        # An exact value cannot be beaten; else the bounds compete.
        read, distance = as_gaussian(terms)
        exact = all(isinstance(t, GaussianTerm) and t.sampling_rate == 1.0 for t in read)
        numerical = "pld" if accountant == "auto" else "pld_rough"
        names = ["gdp"] if exact else ["pure", "posterior", numerical, "rdp"]
        if exact and distance > 0.0:
            names.append("rdp")
    elif accountant == NOT_A_BOUND:
        warnings.warn(
            "accountant='gdp_clt' is a central-limit approximation that can understate epsilon: "
            "it is not a bound. Use 'auto' for a guarantee.",
            PrivacyWarning,
            stacklevel=4,
        )
    found: list[tuple[float, str]] = []
    refused: list[str] = []
    for name in names:
        try:
            found.append((_bound(name, wanted, terms, at, relation), name))
        except NoBoundError as refusal:
            refused.append(f"{name}: {refusal}")
    if not found:
        raise NoBoundError("No accountant has a valid bound for this event. " + "; ".join(refused))
    value, name = min(found)
    return (math.inf if math.isnan(value) else value), name


@lru_cache(maxsize=4096)
def _bound(accountant: str, wanted: str, terms: Terms, at: float, relation: str) -> float:
    if wanted == "epsilon" and at == 0.0 and accountant != "pure":
        raise NoBoundError("needs delta > 0")
    terms, distance = as_gaussian(terms)
    curve = _BOUNDS[accountant](terms, relation)
    if distance > 0.0 and accountant != "rdp":  # Rényi divergences are no larger than a Gaussian's
        curve = NearCurve(curve, distance)
    return getattr(curve, wanted)(at)


class _PureCurve:
    """ε-DP: the same ε at every δ."""

    def __init__(self, total: float) -> None:
        self._total = total

    def epsilon(self, delta: float) -> float:
        return self._total

    def delta(self, epsilon: float) -> float:
        # Murtagh & Vadhan 2016: the largest δ(ε') of an ε-DP mechanism.
        if epsilon >= self._total:
            return 0.0
        return -math.expm1(epsilon - self._total) / (1 + math.exp(-self._total))


class _PosteriorCurve:
    """The exact curve of independent draws from one posterior."""

    def __init__(self, eta: float, n_samples: int) -> None:
        self._eta, self._n_samples = eta, n_samples

    def epsilon(self, delta: float) -> float:
        return posterior_samples_epsilon(eta=self._eta, n_samples=self._n_samples, delta=delta)

    def delta(self, epsilon: float) -> float:
        return bounded_range_delta(self._eta, self._n_samples, epsilon)


def _pure(terms: Terms, relation: str) -> Curve:
    """Pure ε adds up."""
    factor = sensitivity_factor(relation)
    total = 0.0
    for term in terms:
        match term:
            case LaplaceTerm(scale, count):
                total += count * factor / scale
            case PosteriorTerm(eta, n_samples, count):
                total += count * n_samples * eta
            case _:
                raise NoBoundError("only pure mechanisms add up in epsilon")
    return _PureCurve(total * (1 + 1e-15 * len(terms)))


def _posterior(terms: Terms, relation: str) -> Curve:
    """Draws from one posterior, and nothing else (PRIVACY §4)."""
    match terms:
        case (PosteriorTerm(eta, n_samples, 1),) if n_samples <= MOST_SAMPLES:
            return _PosteriorCurve(eta, n_samples)
    raise NoBoundError("exact for the samples of one posterior alone")


_BOUNDS: dict[str, Callable[[Terms, str], Curve]] = {
    "gdp": bounds.gdp,
    "gdp_clt": bounds.gdp_clt,
    "pld": bounds.pld,
    "pld_rough": partial(bounds.pld, rough=True),
    "posterior": _posterior,
    "pure": _pure,
    "rdp": bounds.rdp,
}


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
        σ: noise standard deviation over the clipping norm; a sequence holds one a step.
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
    noise_multiplier : float or sequence of float
        σ: noise standard deviation over the clipping norm; a sequence holds one a step.
    epsilon : float
        ε ≥ 0.
    sampling_rate : float, default=1.0
        Poisson sampling rate q; 1 is the full batch.
    n_steps : int or None, default=None
        Number of noisy sums T; None is 1, or the length of the sequence.
    neighboring_relation : {"zero_out", "add_or_remove_one", "replace_one"}
        Who is a neighbour.
    accountant : {"auto", "gdp", "pld", "rdp", "gdp_clt"}
        See `epsilon`.

    Returns
    -------
    float
        δ in [0, 1], rounded up.

    Raises
    ------
    ValueError
        If a number is out of range or no valid bound exists.

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
