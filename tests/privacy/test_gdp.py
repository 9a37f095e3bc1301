import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from bundles import bundled
from dp_accounting.dp_event import GaussianDpEvent, SelfComposedDpEvent
from hypothesis import given
from hypothesis import strategies as st

from skdp.privacy import epsilon_to_gdp, gdp_to_epsilon
from skdp.privacy.events import gaussian_mu
from skdp.privacy.gdp import compose_gdp, gdp_delta


def delta_in_60_digits(mu, epsilon):
    with mpmath.workdps(60):
        mu, epsilon = mpmath.mpf(mu), mpmath.mpf(epsilon)
        first = mpmath.ncdf(mu / 2 - epsilon / mu)
        return first - mpmath.exp(epsilon) * mpmath.ncdf(-mu / 2 - epsilon / mu)


def test_published_anchors():
    # PRIVACY §2, and Dong, Roth & Su (2022) for μ = 1
    assert gdp_to_epsilon(1.0, 1e-5) == pytest.approx(4.377178096, abs=5e-10)
    anchors = {0.1: 0.0325, 0.5: 0.1422, 1: 0.2681, 3: 0.7191, 10: 2.000}
    for epsilon, mu in anchors.items():
        assert epsilon_to_gdp(epsilon, 1e-5) == pytest.approx(mu, abs=5e-4)


@bundled("mu", [1e-12, 1e-7, 2.9e-4, 1e-3, 0.03, 0.3, 1.0, 3.0, 12.0, 60.0])
@bundled("epsilon", [0.0, 3e-12, 1e-6, 1e-3, 0.1, 1.0, 10.0, 300.0])
def test_delta_matches_60_digits(mu, epsilon):
    exact = delta_in_60_digits(mu, epsilon)
    # The error of e^{-a²/2} grows with a²; deep in the tail a relative 1e-9 is still far more than
    # any budget resolves. Below the least double, zero is the right answer.
    assert gdp_delta(mu, epsilon) == pytest.approx(float(exact), rel=1e-9, abs=1e-300)


@given(st.floats(1e-4, 50), st.floats(-30, -0.4))
def test_epsilon_is_rounded_up_and_mu_down(mu, log10_delta):
    delta = 10**log10_delta
    epsilon = gdp_to_epsilon(mu, delta)
    assert gdp_delta(mu, epsilon) <= delta
    if epsilon > 0:
        assert gdp_delta(mu, epsilon * (1 - 1e-6)) > delta
        assert epsilon_to_gdp(epsilon, delta) == pytest.approx(mu, rel=1e-6)


def test_zero_epsilon_only_where_delta_of_zero_is_small_enough():
    mu = 2 * 1e-5 / math.sqrt(2 / math.pi)  # δ(0) ≈ μ √(1/2π) = 1e-5
    assert gdp_to_epsilon(mu * 0.99, 1e-5) == 0.0
    assert gdp_to_epsilon(mu * 1.01, 1e-5) > 0.0


def test_composition_adds_squares():
    assert compose_gdp([3.0, 4.0]) == pytest.approx(5.0, rel=1e-15)
    assert compose_gdp([3.0, 4.0]) >= 5.0
    assert compose_gdp([]) == 0.0


@pytest.mark.parametrize("mu", [1e-300, 1e-200, 1e200, 1e300])
def test_composition_holds_where_squares_are_0_or_infinite(mu):
    # Found by fuzzing: a report of noise 1e200 could not be printed, and two such cost nothing.
    assert compose_gdp([3 * mu, 4 * mu]) == pytest.approx(5 * mu, rel=1e-15)
    exact = Fraction(3 * mu) ** 2 + Fraction(4 * mu) ** 2
    assert Fraction(compose_gdp([3 * mu, 4 * mu])) ** 2 >= exact  # rounded up
    event = SelfComposedDpEvent(GaussianDpEvent(1 / mu), 4)
    assert gaussian_mu(event) == pytest.approx(2 * mu, rel=1e-15)


@pytest.mark.parametrize("bad", [float("nan"), -1.0, "1", None, True, np.array([1.0])])
def test_garbage_is_refused_by_name(bad):
    with pytest.raises(ValueError, match="mu="):
        gdp_to_epsilon(bad, 1e-5)
    with pytest.raises(ValueError, match="epsilon="):
        epsilon_to_gdp(bad, 1e-5)
    with pytest.raises(ValueError, match="delta="):
        gdp_to_epsilon(1.0, bad)


@pytest.mark.parametrize("delta", [0.0, 1.0, 2.0, -0.1, float("inf")])
def test_delta_outside_the_open_interval_is_refused(delta):
    with pytest.raises(ValueError, match="delta="):
        gdp_to_epsilon(1.0, delta)
    with pytest.raises(ValueError, match="delta="):
        epsilon_to_gdp(1.0, delta)


def test_no_privacy_is_infinite():
    assert gdp_to_epsilon(math.inf, 1e-5) == math.inf
    assert epsilon_to_gdp(math.inf, 1e-5) == math.inf
    assert gdp_delta(math.inf, 3.0) == 1.0
