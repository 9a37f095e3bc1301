"""Exact samples of a posterior: what one costs, and what k of them cost together.

If no neighbour changes the log density of the target by more than a range η (the difference of
the two log densities, up to a constant, varies by at most η), an exact sample is a *bounded-range*
mechanism. It is η-DP, but more is true: the log likelihood ratio lies in [t − η, t] for one
t ∈ [0, η], and the worst such pair is a coin. So k samples of one posterior are k tosses of one of
two coins, and their exact price is a binomial sum (Dong, Durfee & Rogers, *Optimal Differential
Privacy Composition for Exponential Mechanisms and the Cost of Adaptivity*, ICML 2020; PRIVACY §4):

    δ(ε) = max_{t∈[0,η]} Σ_i (k choose i) p^(k−i) (1−p)^i (e^(kt−iη) − e^ε)₊,
    p = (e^−t − e^−η)/(1 − e^−η).

The price is far below composition's kη. Composed with other mechanisms, each draw is at worst
Gaussian: see `bounded_range_mu`. An MCMC chain "run long enough" is not an exact sample, and none
of this applies to it.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import root_scalar
from scipy.special import gammaln, log_expit, ndtri_exp

from skdp.fitting.validate import expected, in_range, integer, positive

MOST_SAMPLES = 20_000  # the exact curve takes time and memory with k² or so; here, many seconds
_RELATIVE = 1e-12  # step of the search for ε, and its tolerance
_SMALL_RANGE = 1e-3  # up to here the tangent is the bound: quantiles near ½ lose digits


def bounded_range_delta(eta: float, n_samples: int, epsilon: float) -> float:
    """Least δ for which k exact samples of one η-bounded-range mechanism are (ε, δ)-DP, rounded up.

    It is 0 from ε = kη on. The maximum over t is exact, not a scan. With i tosses of the less
    likely face, let g_m(t) = P_t(i ≤ m) − e^ε Q_t(i ≤ m), so that δ(ε) = max_{t,m} g_m(t). The
    derivative of g_m has the sign of e^(ε−t) − e^(kt−(m+1)η), so each g_m has one maximum, at

        t_m = (ε + (m+1)η)/(k + 1),

    and δ(ε) = max_m g_m(t_m), over those m with t_m ≤ η. Between two of the t_m the maximum over m
    dips, which is why a plain scan over t under-reports.

    >>> from skdp.privacy.posterior_samples import bounded_range_delta
    >>> round(bounded_range_delta(1.0, 1, epsilon=0.0), 6)  # (1 − e^((ε−η)/2))²/(1 − e^−η)
    0.244919
    """
    eta = positive(eta=eta)
    k = integer(1, n_samples=n_samples)
    epsilon = in_range(0.0, math.inf, closed="both", epsilon=epsilon)
    _not_too_many(k)
    return min(1.0, math.exp(_log_delta(eta, k, epsilon)))


def posterior_samples_epsilon(*, eta: float, n_samples: int, delta: float) -> float:
    """Least ε for which k exact samples of one η-bounded-range mechanism are (ε, δ)-DP.

    Parameters
    ----------
    eta : float
        Range η > 0 of the difference of neighbours' log densities (natural logarithm). Logistic
        likelihood with power ρ, ‖x‖ ≤ R and ‖θ‖ ≤ D: ρRD, or 2ρRD under replace-one.
    n_samples : int
        k ≥ 1, samples of the *same* posterior, chosen without seeing them.
    delta : float
        δ in [0, 1); 0 asks for pure differential privacy, ε = kη.

    Returns
    -------
    float
        ε in [0, kη], rounded up; 0 only where δ(0) ≤ δ.

    Raises
    ------
    ValueError
        If a number is out of range.

    Examples
    --------
    >>> from skdp.privacy.posterior_samples import posterior_samples_epsilon
    >>> round(posterior_samples_epsilon(eta=0.5, n_samples=100, delta=1e-5), 2)  # kη = 50
    13.1
    >>> posterior_samples_epsilon(eta=0.5, n_samples=100, delta=0.0)
    50.0
    """
    eta = positive(eta=eta)
    k = integer(1, n_samples=n_samples)
    delta = in_range(0.0, 1.0, closed="left", delta=delta)
    if delta == 0.0 or k * eta == math.inf:
        return k * eta
    _not_too_many(k)
    target = math.log(delta) - 4e-16  # the logarithm's own rounding
    if _log_delta(eta, k, 0.0) <= target:
        return 0.0

    # In ln δ the curve is close to a parabola, which the root search likes; at kη it is −∞, so cut.
    def excess(epsilon: float) -> float:
        return max(_log_delta(eta, k, epsilon) - target, -1e3)

    found = root_scalar(excess, bracket=(0.0, k * eta), xtol=1e-300, rtol=_RELATIVE)
    epsilon = float(found.root)
    step = _RELATIVE
    while _log_delta(eta, k, epsilon) > target:
        epsilon = min(max(epsilon * (1 + step), math.nextafter(epsilon, math.inf)), k * eta)
        step = min(2 * step, 0.5)  # far from the root only where it is lost in rounding
    return epsilon


def posterior_samples_range(*, epsilon: float, n_samples: int, delta: float) -> float:
    """Largest range η ≥ ε/k for `posterior_samples_epsilon` to be at most ε, rounded down."""
    epsilon = positive(epsilon=epsilon)
    k = integer(1, n_samples=n_samples)
    delta = in_range(0.0, 1.0, closed="left", delta=delta)
    low = epsilon / k
    while low * k > epsilon:  # a rounding of the quotient
        low = math.nextafter(low, 0.0)
    if delta == 0.0:
        return low

    def excess(eta: float) -> float:
        return posterior_samples_epsilon(eta=eta, n_samples=k, delta=delta) - epsilon

    if excess(low) >= 0:
        return low
    high = 2 * low
    while excess(high) < 0:
        high *= 2
    eta = float(root_scalar(excess, bracket=(low, high), xtol=1e-300, rtol=1e-10).root)
    while excess(eta) > 0:
        eta *= 1 - 1e-10
    return max(low, eta)


def bounded_range_mu(eta: float) -> float:
    """Least μ for which every η-bounded-range mechanism is μ-GDP, rounded up.

    It is −2Φ⁻¹(1/(1 + e^(η/2))), at most η√(2π)/4: the coins of the module's docstring are no
    easier to tell apart than two logistic laws η away from each other, and these no easier than
    N(0, 1) and N(μ, 1) (PRIVACY §4 has the proof). GDP composes, so that such mechanisms, chosen
    adaptively and mixed with Gaussian ones, have the exact curve of Gaussians for a bound.

    >>> from skdp.privacy.posterior_samples import bounded_range_mu
    >>> round(bounded_range_mu(0.1), 5)
    0.06266
    """
    eta = positive(eta=eta)
    tangent = eta * math.sqrt(2.0 * math.pi) / 4.0
    if eta <= _SMALL_RANGE:
        return math.nextafter(tangent, math.inf)
    return -2.0 * float(ndtri_exp(log_expit(-eta / 2.0))) * (1.0 + 1e-12)


def _not_too_many(k: int) -> None:
    if k > MOST_SAMPLES:
        remedy = "the exact price of more is not computed; account for parts, and compose them"
        raise expected(f"at most {MOST_SAMPLES}", remedy, n_samples=k)


def _log_delta(η: float, k: int, ε: float) -> float:
    """Logarithm of δ(ε), rounded up: the maximum over m of sums at t_m of positive terms only."""
    if ε >= k * η:
        return -math.inf
    m = np.arange(k)
    τ = ((k - m) * η - ε) / (k + 1)  # η − t_m, with no cancellation near t = η
    m, τ = m[τ > 0], τ[τ > 0]
    t = (ε + (m + 1) * η) / (k + 1)
    if len(m) == 0:
        return -math.inf
    # P_t: the likelier face has probability α = (1 − e^−τ)/(1 − e^−η), the other β = 1 − α.
    log_α = _log1mexp(τ) - _log1mexp(η)
    log_β = -τ + _log1mexp(t) - _log1mexp(η)
    i = np.arange(k + 1.0)
    log_choose = gammaln(k + 1.0) - gammaln(i + 1) - gammaln(k - i + 1)
    log_pmf = log_choose[m] + (k - m) * log_α + m * log_β
    bound = _log_bound(η, k, m, τ, log_α, log_β, log_pmf)
    # A candidate is summed only if its bound exceeds the best sum so far: the most promising first,
    # a block at a time.
    order = np.argsort(-bound, kind="stable")
    best, done, block = -math.inf, 0, 4
    while done < len(order) and bound[order[done]] > best:
        rows = order[done : done + block]
        sums = _log_sums(η, k, m[rows], τ[rows], log_α[rows], log_β[rows], log_choose)
        best = max(best, float(np.max(sums)))
        done += block
        block = min(2 * block, 512)
    # Exponents reach k ln k, and each is exact to a few units in the last place.
    return best + 1e-12 * (k + 1)


def _log_sums(η, k, m, τ, log_α, log_β, log_choose) -> np.ndarray:
    """Logarithm of Σ_{i≤m} P(i) (1 − e^−((m−i)η + τ)) for each candidate m, rounded up.

    Below a window of i the P(i) fall faster than geometrically, which bounds what is left out.
    """
    mean, variance = k * np.exp(log_β), k * np.exp(log_α + log_β)
    # Down to e^-45 of the largest term, by the normal approximation: a guess of the width needed,
    # whose error the bound on the rest makes good.
    deep = np.sqrt((m - mean) ** 2 + 100 * variance) + (m - mean)
    j = np.arange(min(int(np.max(deep)) + 60, int(m.max()) + 1))
    i = m[:, None] - j
    inside = i >= 0
    log_P = log_choose[np.maximum(i, 0)] + (k - i) * log_α[:, None] + i * log_β[:, None]
    terms = np.where(inside, log_P + _log1mexp(j * η + τ[:, None]), -np.inf)
    top = np.max(terms, axis=1)
    total = np.sum(np.exp(terms - top[:, None]), axis=1)
    low, last = i[:, -1], log_P[:, -1]
    log_r = _log_fall(k, low, log_α, log_β)
    rest = np.where(log_r < 0, last + log_r - _log1mexp(-np.minimum(log_r, -1e-300)), 0.0)
    rest = np.where(low > 0, rest, -np.inf)
    return np.logaddexp(top + np.log(total), rest)


def _log_fall(k, i, log_α, log_β) -> np.ndarray:
    """Logarithm of r = P(i−1)/P(i), which falls with decreasing i."""
    return np.log(np.maximum(i, 1e-300)) - np.log(k - np.maximum(i, 0) + 1.0) + log_α - log_β


def _log_bound(η, k, m, τ, log_α, log_β, log_pmf) -> np.ndarray:
    """Upper bound on the same logarithm in O(1) a candidate: the lesser of two.

    The tail is below a geometric one of ratio r, for which
    Σ_j r^j (1 − e^(−jη−τ)) = [1 − e^−τ + r (e^−τ − e^−η)]/[(1 − r)(1 − r e^−η)]. And by Jensen and
    Scarf, E(1 − e^(−y)) ≤ 1 − e^(−E y) with y = (m − i)₊ η + τ, E(m − i)₊ ≤ (√(v + d²) + d)/2.
    """
    d, v = m - k * np.exp(log_β), k * np.exp(log_α + log_β)
    bulk = _log1mexp((np.sqrt(v + d * d) + d) / 2 * η + τ)
    log_r = _log_fall(k, m, log_α, log_β)
    falls = log_r < -1e-6
    r = np.exp(np.where(falls, log_r, -1.0))
    numerator = -np.expm1(-τ) + r * (np.exp(-τ) - math.exp(-η))
    tail = log_pmf + np.log(numerator) - np.log1p(-r) - np.log1p(-r * math.exp(-η))
    return np.where(falls, np.minimum(tail, bulk), bulk) + 1e-9


def _log1mexp(x):
    """Logarithm of 1 − e^−x for x > 0."""
    return np.log(-np.expm1(-x))
