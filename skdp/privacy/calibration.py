"""From a budget to noise: the least noise multiplier that an (ε, δ) affords.

The full batch has a closed form; a Poisson plan needs a search over a few privacy loss
distributions. Whatever the search did, the promise ε(σ) ≤ ε is checked at its end.

>>> from skdp.privacy import calibrate_noise_multiplier
>>> round(calibrate_noise_multiplier(epsilon=1.0, delta=1e-5, n_steps=100), 2)
37.31
"""

from __future__ import annotations

import math
from functools import cache, lru_cache

from scipy.optimize import root_scalar

from skdp._validate import in_range, integer, one_of, positive
from skdp.privacy.accounting import (
    ACCOUNTANTS,
    PLD_MIN_DELTA,
    PLD_MIN_NOISE,
    pld_epsilon,
    rdp_epsilon,
)
from skdp.privacy.accounting import epsilon as epsilon_of
from skdp.privacy.events import GaussianTerm
from skdp.privacy.gdp import epsilon_to_gdp
from skdp.relations import check_relation, sensitivity_factor

_MAX_NOISE = 1e8
_LOG_TOLERANCE = 2e-4  # of σ, relative


def calibrate_noise_multiplier(
    *,
    epsilon: float,
    delta: float,
    sampling_rate: float = 1.0,
    n_steps: int = 1,
    neighboring_relation: str = "zero_out",
    accountant: str = "auto",
) -> float:
    """Find the least noise multiplier σ for which the run is (ε, δ)-DP.

    Parameters
    ----------
    epsilon : float
        ε > 0; infinite asks for no noise.
    delta : float
        δ in (0, 1).
    sampling_rate : float, default=1.0
        Poisson sampling rate q in (0, 1]; 1 is the full batch.
    n_steps : int, default=1
        Number of noisy sums T ≥ 1.
    neighboring_relation : {"zero_out", "add_or_remove_one", "replace_one"}
        Who is a neighbour.
    accountant : {"auto", "gdp", "pld", "rdp"}
        See `skdp.privacy.epsilon`.

    Returns
    -------
    float
        σ, never less private than asked; 0 for an infinite ε.

    Raises
    ------
    ValueError
        If a number is out of range, or no noise multiplier up to 1e8 affords the target.

    Examples
    --------
    >>> from skdp.privacy import calibrate_noise_multiplier, epsilon
    >>> sigma = calibrate_noise_multiplier(epsilon=2.0, delta=1e-5, sampling_rate=0.01, n_steps=500)
    >>> epsilon(noise_multiplier=sigma, delta=1e-5, sampling_rate=0.01, n_steps=500) <= 2.0
    True
    """
    return _calibrate(
        positive(epsilon=epsilon, allow_inf=True),
        in_range(0.0, 1.0, delta=delta),
        in_range(0.0, 1.0, sampling_rate=sampling_rate, closed="right"),
        integer(1, n_steps=n_steps),
        check_relation(neighboring_relation),
        one_of(ACCOUNTANTS, accountant=accountant),
    )


@lru_cache(maxsize=1024)
def _calibrate(
    epsilon: float, delta: float, q: float, n_steps: int, relation: str, accountant: str
) -> float:
    if epsilon == math.inf:
        return 0.0
    if q == 1.0 and accountant in ("auto", "gdp"):
        sigma = sensitivity_factor(relation) * math.sqrt(n_steps) / epsilon_to_gdp(epsilon, delta)
    else:
        sigma = _search(epsilon, delta, q, n_steps, relation, accountant)

    def spent() -> float:
        return epsilon_of(
            noise_multiplier=sigma,
            delta=delta,
            sampling_rate=q,
            n_steps=n_steps,
            neighboring_relation=relation,
            accountant=accountant,
        )

    # The promise. A closed form may miss it by rounding, a search by its grid; never by more.
    for nudge in (0.0, 1e-12, 1e-9, 1e-6, 1e-4, 1e-3):
        sigma *= 1 + nudge
        if spent() <= epsilon:
            return sigma
    raise ValueError(_unaffordable(epsilon, delta, q, n_steps))


def _search(
    epsilon: float, delta: float, q: float, n_steps: int, relation: str, accountant: str
) -> float:
    """Root of log ε(σ) in log σ, returned from the private side.

    ε(σ) is close to a power law, so a bracket grown from the central-limit guess needs two or three
    evaluations, and Brent's method two or three more.
    """
    bound = rdp_epsilon if accountant == "rdp" or delta < PLD_MIN_DELTA else pld_epsilon

    @cache
    def excess(log_sigma: float) -> float:
        terms = [GaussianTerm(math.exp(log_sigma), q, n_steps)]
        return math.log(max(bound(terms, delta, relation), 1e-300) / epsilon)

    mu = epsilon_to_gdp(epsilon, delta) / (q * math.sqrt(n_steps))
    guess = sensitivity_factor(relation) / math.sqrt(math.log1p(mu * mu))
    floor = math.log(PLD_MIN_NOISE)
    low = high = max(math.log(guess), floor)
    stride = 0.0
    while high > math.log(_MAX_NOISE) or excess(high) > 0:
        if high > math.log(_MAX_NOISE):
            raise ValueError(_unaffordable(epsilon, delta, q, n_steps))
        # ε falls at least as fast as 1/σ, so a stride of `excess` is enough near the root.
        low, stride = high, 2 * stride + 1e-3
        high += min(excess(high), 2.0) + stride
    while low == high or excess(low) <= 0:
        if low == floor:
            return PLD_MIN_NOISE
        stride = 2 * stride + 1e-3
        high, low = low, max(low + 0.5 * excess(low) - stride, floor)
    root = float(root_scalar(excess, bracket=(low, high), xtol=_LOG_TOLERANCE / 2).root)
    while excess(root) > 0:
        root += _LOG_TOLERANCE
    return math.exp(root)


def _unaffordable(epsilon: float, delta: float, q: float, n_steps: int) -> str:
    return (
        f"Expected epsilon={epsilon:g} at delta={delta:g} to be affordable with n_steps={n_steps}, "
        f"sampling_rate={q:g} and a noise multiplier <= {_MAX_NOISE:g}; ask for a larger epsilon "
        "or for fewer steps."
    )
