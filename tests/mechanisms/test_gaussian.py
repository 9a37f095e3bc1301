import math
import pickle

import mpmath
import numpy as np
import pytest
from bundles import bundled
from hypothesis import given
from hypothesis import strategies as st

from skdp.engine.release_hook import grid_width, on_grid
from skdp.mechanisms import GaussianMechanism
from skdp.privacy import epsilon_of_event
from skdp.relations import RELATIONS


@pytest.mark.parametrize("relation", RELATIONS)
@given(st.floats(-3, 2), st.floats(-12, -1), st.floats(-6, 6))
def test_analytic_calibration_spends_delta_exactly(relation, log_epsilon, log_delta, log_norm):
    epsilon, delta = 10**log_epsilon, 10**log_delta
    mechanism = GaussianMechanism.from_budget(
        epsilon=epsilon, delta=delta, record_norm=10**log_norm, neighboring_relation=relation
    )
    with mpmath.workdps(50):
        mu = mpmath.mpf(mechanism.sensitivity) / mpmath.mpf(mechanism.scale)
        first = mpmath.ncdf(mu / 2 - epsilon / mu)
        spent = first - mpmath.exp(epsilon) * mpmath.ncdf(-mu / 2 - epsilon / mu)
    # The library's δ(ε) is good to a relative 1e-9, and a nudge may move the scale by 1e-9.
    assert delta * (1 - 1e-6) <= spent <= delta * (1 + 1e-9)
    assert epsilon_of_event(mechanism.event(), delta, relation) <= epsilon


@bundled("epsilon", [1e-9, 1e-6, 1e6, 1e9])
@bundled("delta", [1e-300, 1e-5, 0.999])
def test_extreme_budgets_keep_the_promise(epsilon, delta):
    mechanism = GaussianMechanism.from_budget(epsilon=epsilon, delta=delta, record_norm=1.0)
    assert epsilon_of_event(mechanism.event(), delta) <= epsilon


def test_replace_one_doubles_once():
    budget = {"epsilon": 1.0, "delta": 1e-5, "record_norm": 3.0}
    one = GaussianMechanism.from_budget(**budget)
    two = GaussianMechanism.from_budget(**budget, neighboring_relation="replace_one")
    assert two.scale == pytest.approx(2 * one.scale, rel=1e-9)
    assert (one.sensitivity, two.sensitivity) == (3.0, 6.0)
    for mechanism in (one, two):
        spent = epsilon_of_event(mechanism.event(), 1e-5, mechanism.neighboring_relation)
        assert spent == pytest.approx(1.0, rel=1e-6)


@given(st.floats(-4, 0), st.floats(-30, -0.001))
def test_classic_is_the_textbook_and_never_quieter_than_analytic(log_epsilon, log_delta):
    budget = {"epsilon": 10**log_epsilon, "delta": 10**log_delta, "record_norm": 2.0}
    classic = GaussianMechanism.from_budget(**budget, method="classic")
    textbook = 2.0 * math.sqrt(2 * math.log(1.25 / budget["delta"])) / budget["epsilon"]
    assert classic.scale == pytest.approx(textbook, rel=1e-12)
    assert classic.scale >= GaussianMechanism.from_budget(**budget).scale


@pytest.mark.parametrize("epsilon", [math.nextafter(1.0, 2.0), 2.0, 100.0])
def test_classic_refuses_epsilon_above_one(epsilon):
    with pytest.raises(ValueError, match=r"epsilon=.*analytic"):
        GaussianMechanism.from_budget(
            epsilon=epsilon, delta=1e-5, record_norm=1.0, method="classic"
        )


@given(st.floats(allow_nan=False, allow_infinity=False), st.floats(1e-150, 1e150))
def test_rounding_is_to_the_nearest_multiple(value, scale):
    width = grid_width(scale)
    rounded = on_grid(np.array(value), width)
    assert np.isfinite(rounded)
    assert abs(rounded - value) <= max(width / 2, math.ulp(value))  # where doubles are sparser


def test_rounding_is_small_beside_the_noise_and_hides_low_bits():
    scale = 1.7
    width = grid_width(scale)
    # Uniform errors of a cell: variance width²/12.
    assert width**2 / 12 < 1e-13 * scale**2
    below = np.nextafter(100 * width, -math.inf)
    assert on_grid(np.array(below), width) == 100 * width
    # The sign of a rounded zero is a low bit too.
    assert not np.signbit(on_grid(np.array([-width / 4, -0.0]), width)).any()


def test_a_mechanism_is_a_value():
    mechanism = GaussianMechanism(1, np.float32(2))
    assert mechanism == GaussianMechanism(1.0, 2.0)
    assert pickle.loads(pickle.dumps(mechanism)) == mechanism
    with pytest.raises(AttributeError):
        mechanism.scale = 0.0
