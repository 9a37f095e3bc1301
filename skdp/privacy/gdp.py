"""Gaussian differential privacy: μ, and its exact translation to (ε, δ).

A mechanism is μ-GDP if telling two neighbours apart from its output is at least as hard as telling
N(0, 1) from N(μ, 1). The Gaussian mechanism with noise σ on a sum of sensitivity Δ is exactly
μ = Δ/σ, and compositions add in squares, μ² = Σ μ_t². So T full-batch noisy gradient steps cost
μ = √T Δ/σ, with no numerical accountant and no slack (PRIVACY §2).

The translation is that of Balle & Wang (ICML 2018, Theorem 8), which Dong, Roth & Su (*Gaussian
Differential Privacy*, JRSS B 84, 2022, Corollary 2.13) state for GDP:

    δ(ε) = Φ(−ε/μ + μ/2) − e^ε Φ(−ε/μ − μ/2).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from scipy.optimize import root_scalar
from scipy.special import erfcx, log_ndtr

from skdp.fitting.validate import in_range, positive

_RELATIVE = 1e-12  # tolerance of the root search; results are moved to the safe side by it
_MOST_MU = 1e7  # beyond, ε is 5e13 or more, and as good as infinite


def gdp_delta(mu: float, epsilon: float) -> float:
    """Least δ for which a μ-GDP mechanism is (ε, δ)-DP; μ may be infinite, for no privacy."""
    mu = in_range(0.0, math.inf, mu=mu, closed="both")
    epsilon = in_range(0.0, math.inf, epsilon=epsilon, closed="both")
    if mu == 0.0 or epsilon == math.inf:
        return 0.0
    if mu == math.inf:
        return 1.0
    a, b = mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu
    if mu < 3e-4 and a < 5.0:
        # The difference below would cancel. With F = Φ/φ, F' = 1 + xF: Taylor's F(a) − F(b) about
        # the middle, whose next term is below a relative 1e-11.
        middle = -epsilon / mu
        mills = math.sqrt(math.pi / 2) * float(erfcx(-middle / math.sqrt(2.0)))
        first = 1 + middle * mills
        third = 2 * first + middle * (mills + middle * first)
        density = math.exp(-a * a / 2) / math.sqrt(2 * math.pi)
        return max(0.0, density * (mu * first + mu**3 / 24 * third))
    # e^ε φ(b) = φ(a), so both terms share the factor e^{−a²/2}: no cancellation of large numbers,
    # full relative precision far in the tail, and no e^ε that overflows.
    root = math.sqrt(2.0)
    second = float(erfcx(-b / root))
    if a < 5.0:
        return 0.5 * math.exp(-a * a / 2) * (float(erfcx(-a / root)) - second)
    return float(-math.expm1(log_ndtr(-a))) - 0.5 * math.exp(-min(a * a / 2, 1e3)) * second


def gdp_to_epsilon(mu: float, delta: float) -> float:
    """Least ε for which a μ-GDP mechanism is (ε, δ)-DP, rounded up.

    Parameters
    ----------
    mu : float
        GDP parameter, ≥ 0; infinite for no privacy.
    delta : float
        δ in (0, 1).

    Returns
    -------
    float
        ε ≥ 0, exact to a relative 1e-10 and rounded up; 0 only where δ(0) ≤ δ.

    Raises
    ------
    ValueError
        If μ is negative or not a number, or δ is outside (0, 1).

    Examples
    --------
    >>> from skdp.privacy import gdp_to_epsilon
    >>> round(gdp_to_epsilon(2.0, delta=1e-5), 3)
    9.997
    """
    mu = in_range(0.0, math.inf, mu=mu, closed="both")
    delta = in_range(0.0, 1.0, delta=delta)
    if mu > _MOST_MU:
        return math.inf
    if gdp_delta(mu, 0.0) <= delta:
        return 0.0
    # Φ(a) ≥ δ(ε), so a = Φ⁻¹(δ) is above the root: ε = μ²/2 − aμ with |Φ⁻¹(δ)| ≤ √(2 ln 1/δ).
    high = mu * mu / 2 + mu * math.sqrt(-2 * math.log(delta))
    epsilon = _root(lambda e: gdp_delta(mu, e) - delta, high)
    step = _RELATIVE
    while gdp_delta(mu, epsilon) > delta:
        epsilon = max(epsilon * (1 + step), math.nextafter(epsilon, math.inf))
        step *= 2  # far from the root only where it is lost in rounding
    return epsilon


def epsilon_to_gdp(epsilon: float, delta: float) -> float:
    """Largest μ for which every μ-GDP mechanism is (ε, δ)-DP, rounded down.

    Parameters
    ----------
    epsilon : float
        ε > 0; infinite for no privacy.
    delta : float
        δ in (0, 1).

    Returns
    -------
    float
        μ > 0, exact to a relative 1e-12 and never above the exact value.

    Raises
    ------
    ValueError
        If ε ≤ 0 or δ is outside (0, 1).

    Examples
    --------
    >>> from skdp.privacy import epsilon_to_gdp
    >>> [round(epsilon_to_gdp(e, delta=1e-5), 4) for e in (0.1, 1.0, 10.0)]
    [0.0325, 0.2681, 2.0004]
    """
    epsilon = positive(epsilon=epsilon, allow_inf=True)
    delta = in_range(0.0, 1.0, delta=delta)
    if epsilon == math.inf:
        return math.inf
    high = 1.0
    while gdp_delta(high, epsilon) < delta:
        high *= 2
    mu = _root(lambda m: gdp_delta(m, epsilon) - delta, high)
    step = _RELATIVE
    while gdp_delta(mu, epsilon) > delta:
        mu *= 1 - step
        step = min(2 * step, 0.5)  # far from the root only where it is lost in rounding
    return mu


def _root(function: Callable[[float], float], high: float) -> float:
    found = root_scalar(function, bracket=(0.0, high), xtol=1e-300, rtol=_RELATIVE)
    return float(found.root)


def compose_gdp(mus: Iterable[float]) -> float:
    """Compose GDP mechanisms: μ² = Σ μ_t² (Dong, Roth & Su 2022, Corollary 3.3), rounded up."""
    mu = math.hypot(*mus)  # squares of tiny ones would be 0
    return math.nextafter(mu, math.inf) if mu > 0 else mu
