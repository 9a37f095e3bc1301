import math

import numpy as np
import pytest
from bundles import bundled
from dp_accounting.pld import privacy_loss_distribution as pld
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from skdp import _release_hook
from skdp._random import Streams
from skdp._release_hook import grid_width
from skdp.mechanisms import LaplaceMechanism
from skdp.relations import RELATIONS, sensitivity_factor

N = 4000
GARBAGE = [math.nan, math.inf, -math.inf, -1.0, 0.0, True, "1", None, [1.0], 10**400, 1j]


def release(mechanism, values, key=b"laplace"):
    return mechanism.release(values, Streams(key)("noise"))


@pytest.mark.parametrize("scale", [1e-6, 1.0, 3.7, 1e9])
def test_the_noise_is_laplace_with_the_declared_scale_and_no_other(scale):
    noise = release(LaplaceMechanism(1.0, scale), np.zeros(N))
    low, high = stats.chi2.ppf([1e-6, 1 - 1e-6], 2 * N)  # |x|/b is exponential
    for factor in (2 / 3, 1.0, 3 / 2):
        assert (low < 2 * np.abs(noise).sum() / (factor * scale) < high) == (factor == 1)
        assert (stats.kstest(noise / (factor * scale), "laplace").pvalue > 1e-6) == (factor == 1)


def test_coordinates_and_calls_share_no_noise():
    mechanism = LaplaceMechanism(1.0, 1.0)
    one, other = mechanism.release(np.zeros(N)), mechanism.release(np.zeros(N))
    # Correlations of independent variables are close to N(0, 1/N); 6 standard deviations.
    assert abs(np.corrcoef(one, other)[0, 1]) < 6 / math.sqrt(N)
    assert abs(np.corrcoef(one[1:], one[:-1])[0, 1]) < 6 / math.sqrt(N - 1)


def test_the_values_are_in_the_release():
    values = np.arange(6.0).reshape(2, 3) * 1000
    noisy = release(LaplaceMechanism(1.0, 1e-3), values)
    assert noisy.shape == (2, 3)
    np.testing.assert_allclose(noisy, values, atol=3e-2)
    assert release(LaplaceMechanism(1.0, 1e-3), 5).shape == ()


@pytest.mark.parametrize("relation", RELATIONS)
@given(st.floats(-9, 9), st.floats(-6, 6))
def test_calibration_spends_epsilon_and_no_more(relation, log_epsilon, log_norm):
    epsilon = 10**log_epsilon
    mechanism = LaplaceMechanism.from_budget(
        epsilon=epsilon, record_norm=10**log_norm, neighboring_relation=relation
    )
    assert epsilon * (1 - 1e-15) <= mechanism.epsilon <= epsilon
    # The event is noise over one record's bound; the relation's factor is the accountant's.
    factor = sensitivity_factor(relation)
    assert factor / mechanism.event().noise_multiplier == pytest.approx(epsilon, rel=1e-15)


def test_the_density_changes_by_epsilon_at_most_over_the_sensitivity():
    mechanism = LaplaceMechanism.from_budget(epsilon=0.7, record_norm=2.0)
    x = np.linspace(-30, 30, 2001)
    law = stats.laplace(scale=mechanism.scale)
    ratio = law.logpdf(x) - law.logpdf(x - mechanism.sensitivity)
    assert np.abs(ratio).max() == pytest.approx(0.7, abs=1e-12)


@pytest.mark.parametrize("parts", [[0.5, 0.5], [0.1, 0.9], [0.2, 0.3, 0.5]])
def test_the_event_of_one_coordinate_bounds_a_move_spread_over_several(parts):
    def law(shift, pessimistic):
        return pld.from_laplace_mechanism(1 / shift, pessimistic_estimate=pessimistic)

    one = law(1.0, True)
    several = law(parts[0], False)
    for part in parts[1:]:
        several = several.compose(law(part, False))
    for epsilon in np.linspace(0, 1, 11):
        assert several.get_delta_for_epsilon(epsilon) <= one.get_delta_for_epsilon(epsilon) + 1e-12


@given(st.floats(1e-150, 1e150), st.lists(st.floats(-1e6, 1e6), max_size=5))
def test_outputs_lie_on_a_grid_that_depends_on_the_scale_alone(scale, values):
    noisy = release(LaplaceMechanism(1.0, scale), values)
    assert not np.fmod(noisy, grid_width(scale)).any()
    assert not np.signbit(noisy[noisy == 0]).any()


def test_neighbours_make_the_same_calls_and_a_replay_runs_no_mechanism():
    mechanism = LaplaceMechanism(2.0, 3.0, "replace_one")
    with _release_hook.record() as tape:
        output = mechanism.release(np.zeros(2))
    with _release_hook.replay([output]) as again:
        replayed = mechanism.release(np.array([0.0, 4.0]))
    assert tape[0].call == again[0].call
    assert tape[0].call == _release_hook.MechanismCall("laplace", 4.0, 3.0, 1.0, (2,), 0, 2.0**-19)
    np.testing.assert_array_equal(replayed, output)


@bundled("bad", GARBAGE)
@bundled("name", ["record_norm", "scale"])
def test_garbage_fields_are_refused_by_name(name, bad):
    with pytest.raises(ValueError, match=f"Expected {name}="):
        LaplaceMechanism(**{"record_norm": 1.0, "scale": 1.0, name: bad})


@bundled("bad", GARBAGE)
@bundled("name", ["epsilon", "record_norm"])
def test_garbage_budgets_are_refused_by_name(name, bad):
    with pytest.raises(ValueError, match=f"Expected {name}="):
        LaplaceMechanism.from_budget(**{"epsilon": 1.0, "record_norm": 1.0, name: bad})


@pytest.mark.parametrize("bad", ["unknown", None, 1])
def test_an_unknown_relation_is_refused_by_name(bad):
    with pytest.raises(ValueError, match="Expected neighboring_relation="):
        LaplaceMechanism(1.0, 1.0, bad)
    with pytest.raises(ValueError, match="Expected neighboring_relation="):
        LaplaceMechanism.from_budget(epsilon=1.0, record_norm=1.0, neighboring_relation=bad)


@pytest.mark.parametrize("bad", [[41.5, math.nan], [41.5, math.inf], ["41.5"], [True], None])
def test_bad_values_are_refused_without_quoting_them(bad):
    with pytest.raises(ValueError, match="Expected values") as caught:
        LaplaceMechanism(1.0, 1.0).release(bad)
    assert "41" not in str(caught.value)


@pytest.mark.parametrize("bad", [0, "noise", np.random.default_rng(0)])
def test_a_stream_that_is_not_secure_is_refused(bad):
    with pytest.raises(ValueError, match="Expected stream="):
        LaplaceMechanism(1.0, 1.0).release([1.0], bad)
