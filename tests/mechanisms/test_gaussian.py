import math
import pickle

import mpmath
import numpy as np
import pytest
from bundles import bundled
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from skdp import _release_hook
from skdp._random import Streams
from skdp._release_hook import grid_width, on_grid
from skdp.mechanisms import GaussianMechanism
from skdp.privacy import epsilon_of_event
from skdp.relations import RELATIONS

N = 4000
GARBAGE = [math.nan, math.inf, -math.inf, -1.0, 0.0, True, "1", None, [1.0], 10**400, 1j]


def release(mechanism, values, key=b"gaussian"):
    return mechanism.release(values, Streams(key)("noise"))


@pytest.mark.parametrize("scale", [1e-6, 1.0, 3.7, 1e9])
def test_the_noise_is_normal_with_the_declared_scale_and_no_other(scale):
    noise = release(GaussianMechanism(1.0, scale), np.zeros(N))
    low, high = stats.chi2.ppf([1e-6, 1 - 1e-6], N)
    for factor in (2 / 3, 1.0, 3 / 2):
        assert (low < (noise**2).sum() / (factor * scale) ** 2 < high) == (factor == 1)
        assert (stats.kstest(noise / (factor * scale), "norm").pvalue > 1e-6) == (factor == 1)


def test_coordinates_and_calls_share_no_noise():
    mechanism = GaussianMechanism(1.0, 1.0)
    one, other = mechanism.release(np.zeros(N)), mechanism.release(np.zeros(N))
    # Correlations of independent normals are N(0, 1/N); 6 standard deviations.
    assert abs(np.corrcoef(one, other)[0, 1]) < 6 / math.sqrt(N)
    assert abs(np.corrcoef(one[1:], one[:-1])[0, 1]) < 6 / math.sqrt(N - 1)


def test_the_values_are_in_the_release():
    values = np.arange(6.0).reshape(2, 3) * 1000
    noisy = release(GaussianMechanism(1.0, 1e-3), values)
    assert noisy.shape == (2, 3)
    np.testing.assert_allclose(noisy, values, atol=1e-2)
    assert release(GaussianMechanism(1.0, 1e-3), 5).shape == ()
    assert release(GaussianMechanism(1.0, 1e-3), []).shape == (0,)


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


@given(st.floats(1e-150, 1e150), st.lists(st.floats(-1e6, 1e6), max_size=5))
def test_outputs_lie_on_a_grid_that_depends_on_the_scale_alone(scale, values):
    width = grid_width(scale)
    assert math.frexp(width)[0] == 0.5  # a power of two
    assert scale * 2.0**-21 < width <= scale * 2.0**-20
    noisy = release(GaussianMechanism(1.0, scale), values)
    assert not np.fmod(noisy, width).any()
    assert not np.signbit(noisy[noisy == 0]).any()


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


def test_neighbours_make_the_same_calls_and_a_replay_runs_no_mechanism():
    mechanism = GaussianMechanism(2.0, 3.0, "replace_one")
    with _release_hook.record() as tape:
        output = mechanism.release(np.zeros(2))
    with _release_hook.replay([output]) as again:
        replayed = mechanism.release(np.array([0.0, 4.0]))
    assert tape[0].call == again[0].call
    assert tape[0].call == _release_hook.MechanismCall("gaussian", 4.0, 3.0, 1.0, (2,), 0, 2.0**-19)
    np.testing.assert_array_equal(replayed, output)


def test_a_mechanism_is_a_value():
    mechanism = GaussianMechanism(1, np.float32(2))
    assert mechanism == GaussianMechanism(1.0, 2.0)
    assert pickle.loads(pickle.dumps(mechanism)) == mechanism
    with pytest.raises(AttributeError):
        mechanism.scale = 0.0


@bundled("bad", [*GARBAGE, 1e-200, 1e200])
@bundled("name", ["record_norm", "scale"])
def test_garbage_fields_are_refused_by_name(name, bad):
    with pytest.raises(ValueError, match=f"Expected {name}="):
        GaussianMechanism(**{"record_norm": 1.0, "scale": 1.0, name: bad})


@bundled("bad", GARBAGE)
@bundled("name", ["epsilon", "delta", "record_norm"])
def test_garbage_budgets_are_refused_by_name(name, bad):
    with pytest.raises(ValueError, match=f"Expected {name}="):
        GaussianMechanism.from_budget(
            **{"epsilon": 1.0, "delta": 1e-5, "record_norm": 1.0, name: bad}
        )


@pytest.mark.parametrize("bad", ["unknown", "", None, 1, ["zero_out"]])
def test_garbage_choices_are_refused_by_name(bad):
    budget = {"epsilon": 1.0, "delta": 1e-5, "record_norm": 1.0}
    with pytest.raises(ValueError, match="Expected neighboring_relation="):
        GaussianMechanism(1.0, 1.0, bad)
    with pytest.raises(ValueError, match="Expected neighboring_relation="):
        GaussianMechanism.from_budget(**budget, neighboring_relation=bad)
    with pytest.raises(ValueError, match="Expected method="):
        GaussianMechanism.from_budget(**budget, method=bad)


@bundled(
    "bad",
    [
        [41.5, math.nan],
        [41.5, math.inf],
        [41.5, -math.inf],
        ["41.5"],
        "41.5",
        [True],
        None,
        [None, 41.5],
        [[41.5], [41.5, 41.5]],
        [41.5 + 1j],
        [10**400, 415],
        {41.5: 1},
    ],
)
def test_bad_values_are_refused_without_quoting_them(bad):
    with pytest.raises(ValueError, match="Expected values") as caught:
        GaussianMechanism(1.0, 1.0).release(bad)
    assert "41" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


@pytest.mark.parametrize("bad", [0, "noise", np.random.default_rng(0), Streams(b"a")])
def test_a_stream_that_is_not_secure_is_refused(bad):
    with pytest.raises(ValueError, match="Expected stream="):
        GaussianMechanism(1.0, 1.0).release([1.0], bad)
