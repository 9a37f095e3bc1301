import math

import mpmath
import numpy as np
import pytest
from bundles import bundled
from dp_accounting.dp_event import ComposedDpEvent, GaussianDpEvent, SelfComposedDpEvent
from scipy.special import gammaln

from skdp.privacy import epsilon_of_event
from skdp.privacy.events import PosteriorSamplesDpEvent
from skdp.privacy.gdp import gdp_delta, gdp_to_epsilon
from skdp.privacy.posterior_samples import (
    bounded_range_delta,
    bounded_range_mu,
    posterior_samples_epsilon,
)


def delta_at(t, η, k, ε):
    """The sum at one t, as printed, in 40 digits."""
    with mpmath.workdps(40):
        t, η, ε = mpmath.mpf(t), mpmath.mpf(η), mpmath.mpf(ε)
        p = (mpmath.exp(-t) - mpmath.exp(-η)) / (1 - mpmath.exp(-η))
        return mpmath.fsum(
            mpmath.binomial(k, i)
            * p ** (k - i)
            * (1 - p) ** i
            * max(mpmath.exp(k * t - i * η) - mpmath.exp(ε), 0)
            for i in range(k + 1)
        )


def hockey_stick(k, high_P, high_Q, ε):
    """Exact divergence of Bin(k, ·), vectorised over pairs, for small k."""
    i = np.arange(k + 1)
    choose = np.array([math.comb(k, j) for j in i], dtype=float)
    P = choose * high_P[:, None] ** (k - i) * (1 - high_P[:, None]) ** i
    Q = choose * high_Q[:, None] ** (k - i) * (1 - high_Q[:, None]) ** i
    # The likelier face is likelier under P: the best set is {i ≤ m}.
    return np.max(np.cumsum(P - math.exp(ε) * Q, axis=1), axis=1).clip(0)


def scan_from_both_sides(η, k, ε, n_grid=40_001):
    """Largest value on a grid of t, and a bound on all t between.

    Both α(t) and p(t) fall, so on [t_j, t_{j+1}] no δ exceeds that of α(t_j) against p(t_{j+1}).
    """
    t = np.linspace(0, η, n_grid)
    α = np.expm1(t - η) / math.expm1(-η)
    p = (np.exp(-t) - math.exp(-η)) / -math.expm1(-η)
    return hockey_stick(k, α, p, ε).max(), hockey_stick(k, α[:-1], p[1:], ε).max()


@pytest.mark.parametrize(
    ("eta", "k", "epsilon", "error"),
    [(0.1, 100, 1.989, 5e-4), (0.5, 100, 13.10, 5e-3), (0.5, 10, 3.2125, 5e-5)],
)
def test_published_anchors(eta, k, epsilon, error):
    # PRIVACY §4, δ = 1e-5
    found = posterior_samples_epsilon(eta=eta, n_samples=k, delta=1e-5)
    assert found == pytest.approx(epsilon, abs=error)


def test_a_scan_with_eleven_points_under_reports():
    # PRIVACY §4: 3.109 against 3.2125. At 3.12 the scan believes δ ≤ 1e-5; the truth is larger.
    grid = np.linspace(0, 0.5, 11)
    assert max(delta_at(t, 0.5, 10, 3.12) for t in grid) < 1e-5 < bounded_range_delta(0.5, 10, 3.12)


CELLS = [(η, k) for η in (0.05, 0.5, 2.0, 6.0) for k in (1, 2, 7, 30)]


@pytest.mark.thorough
@bundled(("η", "k"), CELLS)
@bundled("share", [0.0, 0.1, 0.37, 0.8])
def test_delta_lies_between_a_dense_scan_and_its_interval_bound(η, k, share):
    ε = share * k * η
    scan, bound = scan_from_both_sides(η, k, ε)
    delta = bounded_range_delta(η, k, ε)
    rounding = 1e-12 * math.exp(min(ε, 4 * η * math.sqrt(k)))
    assert scan * (1 - 1e-9) - rounding <= delta <= bound + rounding


@pytest.mark.thorough
@bundled(("η", "k", "ε"), [
    (0.3, 5, 0.0), (0.3, 5, 1.1), (0.5, 10, 3.2125), (2.0, 12, 11.0), (0.1, 40, 2.0),
    (5.0, 4, 19.0), (1e-3, 20, 0.01),
])  # fmt: skip
def test_delta_is_the_maximum_in_40_digits(η, k, ε):
    # Between kinks the sum is smooth: refine the best of a scan by golden section in 40 digits.
    with mpmath.workdps(40):
        best = mpmath.mpf(0)
        for m in range(k):
            low, high = (ε + m * η) / k, min((ε + (m + 1) * η) / k, η)
            if low < high:
                best = max(best, golden(lambda t: delta_at(t, η, k, ε), low, high))
    delta = bounded_range_delta(η, k, ε)
    assert best * (1 - mpmath.mpf(10) ** -15) <= delta <= best * (1 + mpmath.mpf(10) ** -8)


def golden(function, low, high, steps=25):
    shrink = (math.sqrt(5) - 1) / 2
    a, b = low + (1 - shrink) * (high - low), low + shrink * (high - low)
    f_a, f_b = function(a), function(b)
    for _ in range(steps):
        if f_a < f_b:
            low, a, f_a = a, b, f_b
            b = low + shrink * (high - low)
            f_b = function(b)
        else:
            high, b, f_b = b, a, f_a
            a = low + (1 - shrink) * (high - low)
            f_a = function(a)
    return max(f_a, f_b)


@pytest.mark.parametrize("η", [1e-3, 0.3, 1.0, 5.0, 40.0])
def test_one_sample_has_a_closed_form(η):
    for share in (0.0, 0.2, 0.9, 0.999):
        ε = share * η
        exact = math.expm1((ε - η) / 2) ** 2 / -math.expm1(-η)
        assert bounded_range_delta(η, 1, ε) == pytest.approx(exact, rel=1e-9)


def test_limits():
    assert posterior_samples_epsilon(eta=0.5, n_samples=7, delta=0.0) == 3.5
    assert posterior_samples_epsilon(eta=0.5, n_samples=1, delta=1e-30) == pytest.approx(
        0.5, rel=1e-12
    )
    assert posterior_samples_epsilon(eta=0.5, n_samples=1, delta=1e-30) <= 0.5
    assert bounded_range_delta(0.5, 7, 3.5) == 0.0
    assert bounded_range_delta(0.5, 7, math.inf) == 0.0
    δ0 = bounded_range_delta(0.5, 7, 0.0)
    assert posterior_samples_epsilon(eta=0.5, n_samples=7, delta=δ0 * 1.001) == 0.0
    assert posterior_samples_epsilon(eta=0.5, n_samples=7, delta=δ0 * 0.999) > 0.0


def test_many_samples_approach_the_gaussian_limit():
    # k coins with logits η apart: μ² → k η² p(1−p) ≤ k η²/4, reached at p = 1/2.
    η, k = 1e-3, 10_000
    for ε in (0.0, 0.05, 0.15):
        assert bounded_range_delta(η, k, ε) == pytest.approx(gdp_delta(0.05, ε), rel=0.02)


def bounded_range_zcdp(η):
    """Least ρ of one sample: the largest Kullback-Leibler divergence of such a pair."""
    z = η / math.expm1(η)
    return z - 1 - math.log(z)


@pytest.mark.quick(2)
@pytest.mark.parametrize("eta", [1e-3, 0.01, 0.1])
@pytest.mark.parametrize("delta", [1e-5, 1e-30])
def test_ten_thousand_samples_are_priced_safely(eta, delta):
    k = 10_000
    epsilon = posterior_samples_epsilon(eta=eta, n_samples=k, delta=delta)
    assert 0 < epsilon < min(k * eta, zcdp_to_epsilon(k * bounded_range_zcdp(eta), delta))
    assert bounded_range_delta(eta, k, epsilon) <= delta * (1 + 1e-11)
    # Tight: no certificate holds at a millionth less, as a single t shows.
    less = epsilon * (1 - 1e-6)
    assert largest_at_critical_points(eta, k, less) > delta


def largest_at_critical_points(η, k, ε):
    """A lower bound on δ: the sum over all i at some t, here at t_m for m near the worst."""
    centre = max(range(0, k, 50), key=lambda m: value_at(η, k, ε, m))
    return max(value_at(η, k, ε, m) for m in range(max(centre - 50, 0), min(centre + 51, k)))


def value_at(η, k, ε, m):
    t = (ε + (m + 1) * η) / (k + 1)
    if not 0 < t < η:
        return 0.0
    log_α = math.log(math.expm1(t - η) / math.expm1(-η))
    log_β = math.log(-math.exp(t - η) * math.expm1(-t) / -math.expm1(-η))
    i = np.arange(m + 1)
    log_choose = gammaln(k + 1) - gammaln(i + 1) - gammaln(k - i + 1)
    return np.sum(np.exp(log_choose + (k - i) * log_α + i * log_β) * -np.expm1(ε - k * t + i * η))


def test_epsilon_is_monotone():
    def price(eta=0.2, k=20, delta=1e-6):
        return posterior_samples_epsilon(eta=eta, n_samples=k, delta=delta)

    assert np.all(np.diff([price(eta=e) for e in (0.01, 0.1, 0.2, 0.21, 1.0, 5.0)]) > 0)
    assert np.all(np.diff([price(k=k) for k in (1, 2, 3, 10, 20, 21, 500)]) > 0)
    assert np.all(np.diff([price(delta=10.0**-p) for p in (1.5, 3, 5, 9, 20, 30, 100)]) > 0)


def zcdp_to_epsilon(ρ, δ):
    """Least ε of ρ-zCDP over all orders: Canonne, Kamath & Steinke (2020), Proposition 12."""
    order = 1 + np.exp(np.linspace(-14, 16, 60_001))
    ε = order * ρ + np.log1p(-1 / order) - (math.log(δ) + np.log(order)) / (order - 1)
    return float(max(ε.min(), 0.0))


@bundled("k", [2, 3, 5, 10, 30, 100, 1000])
@bundled("eta", [0.01, 0.05, 0.1, 0.3, 0.5, 1.0, 2.0, 4.0])
def test_exact_price_beats_every_composition_theorem(eta, k):
    δ = 1e-5
    exact = posterior_samples_epsilon(eta=eta, n_samples=k, delta=δ)
    rivals = {
        "basic": k * eta,
        "pure to zCDP": zcdp_to_epsilon(k * eta**2 / 2, δ),
        "bounded range to zCDP": zcdp_to_epsilon(k * eta**2 / 8, δ),
        "tight zCDP": zcdp_to_epsilon(k * bounded_range_zcdp(eta), δ),
    }
    assert exact < min(rivals.values()), rivals


# --- garbage -------------------------------------------------------------------------------------

BAD = [float("nan"), float("inf"), -1.0, 0.0, "1", None, True, [1.0]]
PRICE = {"eta": 0.5, "n_samples": 10, "delta": 1e-5}


@bundled("bad", BAD)
@bundled("name", PRICE)
def test_bad_prices_are_refused_by_name(name, bad):
    if name == "delta" and bad == 0.0:
        bad = 1.0  # zero asks for pure differential privacy
    with pytest.raises(ValueError, match=f"{name}="):
        posterior_samples_epsilon(**{**PRICE, name: bad})


@bundled("bad", BAD)
def test_bad_ranges_are_refused_by_name(bad):
    with pytest.raises(ValueError, match="eta="):
        bounded_range_delta(bad, 10, 1.0)
    with pytest.raises(ValueError, match="n_samples="):
        bounded_range_delta(0.5, bad, 1.0)
    if bad not in (0.0, math.inf):
        with pytest.raises(ValueError, match="epsilon="):
            bounded_range_delta(0.5, 10, bad)


def test_a_fraction_of_a_sample_is_refused():
    with pytest.raises(ValueError, match="n_samples="):
        posterior_samples_epsilon(eta=0.5, n_samples=10.0, delta=1e-5)


def test_more_samples_than_can_be_priced_exactly_are_bounded_from_above_or_refused():
    # A fuzzer found a count of draws that took minutes; a larger one would take all memory.
    with pytest.raises(ValueError, match="n_samples=20001"):
        posterior_samples_epsilon(eta=1e-3, n_samples=20_001, delta=1e-5)
    with pytest.raises(ValueError, match="n_samples=1000000000"):
        bounded_range_delta(1e-3, 10**9, 1.0)
    assert posterior_samples_epsilon(eta=1e-3, n_samples=10**9, delta=0.0) == pytest.approx(1e6)
    event = PosteriorSamplesDpEvent(eta=1e-5, n_samples=10**9)
    # By zero-concentrated privacy, ρ = kη²/8 = .0125, with the textbook conversion as a check.
    bound = 0.0125 + 2 * math.sqrt(0.0125 * math.log(1e5))
    assert 0.5 * bound < epsilon_of_event(event, 1e-5) <= bound


@pytest.mark.parametrize("eta", [1e-6, 1e-3, 1.001e-3, 0.1, 1.0, 5.0, 50.0])
def test_a_bounded_range_is_gaussian_at_worst_and_no_less(eta):
    mu = bounded_range_mu(eta)
    epsilons = np.linspace(0, 0.99 * eta, 100)
    curve = np.array([bounded_range_delta(eta, 1, e) for e in epsilons])
    assert all(gdp_delta(mu, e) >= δ * (1 - 1e-9) for e, δ in zip(epsilons, curve, strict=True))
    # The bound is attained at ε = 0, so no smaller μ is valid.
    assert gdp_delta(0.999 * mu, 0.0) < curve[0]


@pytest.mark.parametrize("eta", [1e-9, 1e-4, 1e-3, 0.3, 7.0, 200.0, 1e4])
def test_the_gaussian_of_a_bounded_range_to_40_digits(eta):
    with mpmath.workdps(60):
        share = 1 / (1 + mpmath.exp(mpmath.mpf(eta) / 2))
        if eta <= 200:
            exact = -2 * mpmath.sqrt(2) * mpmath.erfinv(2 * share - 1)
        else:  # Φ(-m/2) is the share
            start = math.sqrt(4 * eta)
            exact = mpmath.findroot(
                lambda m: mpmath.log(mpmath.ncdf(-m / 2)) - mpmath.log(share), start
            )
        assert exact <= bounded_range_mu(eta) <= exact * (1 + 1e-7)


def test_quantiles_beside_gaussians_are_accounted_as_gaussians():
    eta, count, sigma = 0.04, 10, 4.0
    event = ComposedDpEvent(
        [SelfComposedDpEvent(PosteriorSamplesDpEvent(eta), count), GaussianDpEvent(sigma)]
    )
    for relation, factor in (("zero_out", 1.0), ("replace_one", 2.0)):
        mu = math.hypot(math.sqrt(count) * bounded_range_mu(eta), factor / sigma)
        expected = gdp_to_epsilon(mu, 1e-5)
        for accountant in ("auto", "gdp"):
            found = epsilon_of_event(event, 1e-5, relation, accountant)
            assert found == pytest.approx(expected, rel=1e-9)
        for accountant in ("pld", "rdp"):
            assert epsilon_of_event(event, 1e-5, relation, accountant) > expected
    # No less than the Gaussian mechanism and one quantile's exact curve each by themselves.
    assert expected > gdp_to_epsilon(2.0 / sigma, 1e-5)
