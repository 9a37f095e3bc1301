"""Budget as risk: what an attacker can find out, and the noise that keeps it below a ceiling.

The attacker knows every record but one, the code and all parameters, sees what was released, and
says of that record whether it was there. Of those that were not she calls a share α members (false
positives), of those that were a share of members is found (true positives). What she finds at most
is known exactly for a μ-GDP mechanism, and bounded for any (ε, δ):

=========== ========================================== =============================================
            share found at false positives α           advantage: largest difference of the shares
=========== ========================================== =============================================
μ-GDP       Φ(Φ⁻¹(α) + μ)                              2Φ(μ/2) − 1
(ε, δ)-DP   min(e^ε α + δ, 1 − e^(−ε)(1 − δ − α))      (e^ε − 1 + 2δ)/(e^ε + 1)
=========== ========================================== =============================================

Shares and advantages are the trade-off curves of Dong, Roth & Su (*Gaussian Differential Privacy*,
JRSS B 84, 2022) and Kairouz, Oh & Viswanath (*The Composition Theorem for Differential Privacy*,
ICML 2015), for the worst record and the worst other records. Under ``replace_one`` she tells two
values of a record apart, not whether it was there.
"""

from __future__ import annotations

import math

from scipy.special import ndtr, ndtri

from skdp.fitting.validate import expected, in_range
from skdp.privacy.gdp import gdp_to_epsilon

_DOWN = 1 - 1e-12  # the error of the normal law and its inverse


def tpr_at_fpr(
    fpr: float, *, mu: float | None = None, epsilon: float | None = None, delta: float = 0.0
) -> float:
    """Largest share of members that an attacker finds who errs on a share of non-members.

    Parameters
    ----------
    fpr : float
        α in [0, 1]: share of non-members whom she calls members.
    mu : float or None, default=None
        μ ≥ 0 of a Gaussian mechanism, or what is as bad; instead of ``epsilon``.
    epsilon : float or None, default=None
        ε ≥ 0 of any mechanism.
    delta : float, default=0.0
        δ in [0, 1), with ``epsilon``.

    Returns
    -------
    float
        In [0, 1]; 1 where there is no guarantee.

    Raises
    ------
    ValueError
        If a number is out of range, or not one of ``mu`` and ``epsilon`` is given.

    Examples
    --------
    >>> from skdp.privacy.risk import tpr_at_fpr
    >>> round(tpr_at_fpr(0.01, mu=1.0), 4)
    0.0924
    """
    fpr = in_range(0.0, 1.0, fpr=fpr, closed="both")
    mu, epsilon, delta = _budget(mu, epsilon, delta)
    if mu is not None:
        return 1.0 if mu == math.inf and fpr > 0 else float(ndtr(ndtri(fpr) + mu) if mu else fpr)
    if epsilon == math.inf:
        return 1.0
    steep = math.exp(min(epsilon, 700.0)) * fpr + delta
    return max(0.0, min(1.0, steep, 1.0 - math.exp(-epsilon) * (1.0 - delta - fpr)))


def advantage(
    *, mu: float | None = None, epsilon: float | None = None, delta: float = 0.0
) -> float:
    """Largest difference between the shares of members and of non-members called members.

    Parameters
    ----------
    mu, epsilon, delta
        As in `tpr_at_fpr`, as are errors.

    Returns
    -------
    float
        In [0, 1]; ½ + ½ of it are right guesses, where half of the records are members.

    Examples
    --------
    >>> from skdp.privacy.risk import advantage
    >>> round(advantage(mu=0.2681), 4), round(advantage(epsilon=1.0, delta=1e-5), 4)
    (0.1066, 0.4621)
    """
    mu, epsilon, delta = _budget(mu, epsilon, delta)
    if mu is not None:
        return float(2.0 * ndtr(mu / 2.0) - 1.0)
    return math.tanh(epsilon / 2.0) + 2.0 * delta / (1.0 + math.exp(min(epsilon, 700.0)))


def risk_to_gdp(
    *, max_advantage: float | None = None, max_tpr_at_fpr: tuple[float, float] | None = None
) -> float:
    """Largest μ of a Gaussian mechanism that keeps attackers below a ceiling, rounded down.

    Parameters
    ----------
    max_advantage : float or None, default=None
        Ceiling in (0, 1) on `advantage`.
    max_tpr_at_fpr : (float, float) or None, default=None
        (share of members found, share of non-members erred on), 0 < second < first < 1.

    Returns
    -------
    float
        μ > 0; with both ceilings, the lesser.

    Raises
    ------
    ValueError
        If a ceiling is out of range, or none is given.

    Examples
    --------
    >>> from skdp.privacy import gdp_to_epsilon
    >>> from skdp.privacy.risk import risk_to_gdp
    >>> mu = risk_to_gdp(max_tpr_at_fpr=(0.02, 0.01))
    >>> round(mu, 3), round(gdp_to_epsilon(mu, delta=1e-5), 2)
    (0.273, 1.02)
    """
    found = []
    if max_advantage is not None:
        found.append(
            2.0 * float(ndtri((1.0 + in_range(0.0, 1.0, max_advantage=max_advantage)) / 2))
        )
    if max_tpr_at_fpr is not None:
        pair = isinstance(max_tpr_at_fpr, tuple | list) and len(max_tpr_at_fpr) == 2
        if not pair or not 0.0 < max_tpr_at_fpr[1] < max_tpr_at_fpr[0] < 1.0:
            what = "(share of members found, share of non-members erred on), the first the larger"
            raise expected(what, max_tpr_at_fpr=max_tpr_at_fpr)
        tpr, fpr = max_tpr_at_fpr
        found.append(float(ndtri(tpr) - ndtri(fpr)))
    if not found:
        raise expected("a number in (0, 1)", "or give max_tpr_at_fpr", max_advantage=max_advantage)
    return _DOWN * min(found)


def risk_to_epsilon(
    *,
    delta: float,
    max_advantage: float | None = None,
    max_tpr_at_fpr: tuple[float, float] | None = None,
) -> float:
    """ε for estimators whose accountant is ``"gdp"`` that keeps attackers below a ceiling.

    Parameters
    ----------
    delta : float
        δ in (0, 1).
    max_advantage, max_tpr_at_fpr
        As in `risk_to_gdp`, as are errors.

    Returns
    -------
    float
        ε of the Gaussian mechanism at δ. For a mechanism of which (ε, δ) is all that is known, it
        promises less: look at ``tpr_at_fpr(fpr, epsilon=..., delta=...)``.

    Examples
    --------
    >>> from skdp.privacy.risk import risk_to_epsilon
    >>> round(risk_to_epsilon(max_advantage=0.1, delta=1e-5), 3)
    0.932
    """
    mu = risk_to_gdp(max_advantage=max_advantage, max_tpr_at_fpr=max_tpr_at_fpr)
    return gdp_to_epsilon(mu, delta)


def _budget(
    mu: float | None, epsilon: float | None, delta: float
) -> tuple[float | None, float, float]:
    if (mu is None) == (epsilon is None):
        raise expected("given, or epsilon, and not both", mu=mu)
    if mu is not None:
        return in_range(0.0, math.inf, mu=mu, closed="both"), 0.0, 0.0
    epsilon = in_range(0.0, math.inf, epsilon=epsilon, closed="both")
    return None, epsilon, in_range(0.0, 1.0, delta=delta, closed="left")
