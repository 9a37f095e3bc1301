"""What holds for each mechanism that adds noise to values, and for what each refuses."""

import math

import numpy as np
import pytest
from bundles import bundled
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from skdp.engine import release_hook
from skdp.engine.release_hook import grid_width
from skdp.fitting.streams import Streams
from skdp.mechanisms import GaussianMechanism, LaplaceMechanism, QuantileMechanism

N = 4000
GARBAGE = [math.nan, math.inf, -math.inf, -1.0, 0.0, True, "1", None, [1.0], 10**400, 1j]
QUANTILE = {"quantile": 0.5, "lower": 0.0, "upper": 1.0, "epsilon": 1.0}
of_values = pytest.mark.parametrize("kind", [GaussianMechanism, LaplaceMechanism])
each = pytest.mark.parametrize(
    "mechanism",
    [GaussianMechanism(1.0, 1.0), LaplaceMechanism(1.0, 1.0), QuantileMechanism(**QUANTILE)],
    ids=["gaussian", "laplace", "quantile"],
)


def release(mechanism, values, key=b"noise"):
    return mechanism.release(values, Streams(key)("noise"))


# Sums of which the law is χ²: of squares, and of sizes, which are exponential.
LAWS = {
    GaussianMechanism: ("norm", N, lambda x, scale: (x**2).sum() / scale**2),
    LaplaceMechanism: ("laplace", 2 * N, lambda x, scale: 2 * np.abs(x).sum() / scale),
}


@pytest.mark.parametrize("scale", [1e-6, 1.0, 3.7, 1e9])
@of_values
def test_the_noise_has_its_law_with_the_declared_scale_and_no_other(kind, scale):
    law, freedom, statistic = LAWS[kind]
    noise = release(kind(1.0, scale), np.zeros(N))
    low, high = stats.chi2.ppf([1e-6, 1 - 1e-6], freedom)
    for factor in (2 / 3, 1.0, 3 / 2):
        assert (low < statistic(noise, factor * scale) < high) == (factor == 1)
        assert (stats.kstest(noise / (factor * scale), law).pvalue > 1e-6) == (factor == 1)


@of_values
def test_coordinates_and_calls_share_no_noise(kind):
    mechanism = kind(1.0, 1.0)
    one, other = mechanism.release(np.zeros(N)), mechanism.release(np.zeros(N))
    # Correlations of independent variables are close to N(0, 1/N); 6 standard deviations.
    assert abs(np.corrcoef(one, other)[0, 1]) < 6 / math.sqrt(N)
    assert abs(np.corrcoef(one[1:], one[:-1])[0, 1]) < 6 / math.sqrt(N - 1)


@of_values
def test_the_values_are_in_the_release(kind):
    values = np.arange(6.0).reshape(2, 3) * 1000
    noisy = release(kind(1.0, 1e-3), values)
    assert noisy.shape == (2, 3)
    np.testing.assert_allclose(noisy, values, atol=3e-2 if kind is LaplaceMechanism else 1e-2)
    assert release(kind(1.0, 1e-3), 5).shape == ()
    assert release(kind(1.0, 1e-3), []).shape == (0,)


@of_values
@given(st.floats(1e-150, 1e150), st.lists(st.floats(-1e6, 1e6), max_size=5))
def test_outputs_lie_on_a_grid_that_depends_on_the_scale_alone(kind, scale, values):
    width = grid_width(scale)
    assert math.frexp(width)[0] == 0.5  # a power of two
    assert scale * 2.0**-21 < width <= scale * 2.0**-20
    noisy = release(kind(1.0, scale), values)
    assert not np.fmod(noisy, width).any()
    assert not np.signbit(noisy[noisy == 0]).any()


@of_values
def test_neighbours_make_the_same_calls_and_a_replay_runs_no_mechanism(kind):
    mechanism, name = kind(2.0, 3.0, "replace_one"), kind.__name__.removesuffix("Mechanism").lower()
    with release_hook.record() as tape:
        output = mechanism.release(np.zeros(2))
    with release_hook.replay([output]) as again:
        replayed = mechanism.release(np.array([0.0, 4.0]))
    assert tape[0].call == again[0].call
    assert tape[0].call == release_hook.MechanismCall(name, 4.0, 3.0, 1.0, (2,), 0, 2.0**-19)
    np.testing.assert_array_equal(replayed, output)


@bundled("bad", [*GARBAGE, 1e-200, 1e200])
@bundled("name", ["record_norm", "scale"])
@bundled("kind", [GaussianMechanism, LaplaceMechanism])
def test_garbage_fields_are_refused_by_name(kind, name, bad):
    with pytest.raises(ValueError, match=f"Expected {name}="):
        kind(**{"record_norm": 1.0, "scale": 1.0, name: bad})


@bundled("bad", GARBAGE)
@bundled("name", ["epsilon", "delta", "record_norm"])
@bundled("kind", [GaussianMechanism, LaplaceMechanism])
def test_garbage_budgets_are_refused_by_name(kind, name, bad):
    budget = {"epsilon": 1.0, "record_norm": 1.0}
    if kind is GaussianMechanism:
        budget["delta"] = 1e-5
    if name in budget:
        with pytest.raises(ValueError, match=f"Expected {name}="):
            kind.from_budget(**budget | {name: bad})


@pytest.mark.parametrize("bad", ["unknown", "", None, 1, ["zero_out"]])
def test_garbage_choices_are_refused_by_name(bad):
    budget = {"epsilon": 1.0, "delta": 1e-5, "record_norm": 1.0}
    with pytest.raises(ValueError, match="Expected method="):
        GaussianMechanism.from_budget(**budget, method=bad)
    of_laplace = {"epsilon": 1.0, "record_norm": 1.0}
    for kind, given_budget in ((GaussianMechanism, budget), (LaplaceMechanism, of_laplace)):
        with pytest.raises(ValueError, match="Expected neighboring_relation="):
            kind(1.0, 1.0, bad)
        with pytest.raises(ValueError, match="Expected neighboring_relation="):
            kind.from_budget(**given_budget, neighboring_relation=bad)


BAD_VALUES = [
    *([41.5, math.nan], [41.5, math.inf], [41.5, -math.inf], ["41.5"], "41.5", [True], None),
    *([None, 41.5], [[41.5], [41.5, 41.5]], [41.5 + 1j], [10**400, 415], {41.5: 1}, object()),
]


@each
def test_bad_values_are_refused_without_quoting_them(mechanism):
    of_one_column = isinstance(mechanism, QuantileMechanism)  # and of what is null or far away
    others = [41.5, [[41.5]]] if of_one_column else BAD_VALUES[:3]
    for bad in (*BAD_VALUES[3:], *others):
        with pytest.raises(ValueError, match="Expected values") as caught:
            mechanism.release(bad)
        assert "41" not in str(caught.value)
        assert caught.value.__cause__ is None
        assert caught.value.__context__ is None


@each
def test_a_stream_that_is_not_secure_is_refused(mechanism):
    for bad in (0, "noise", np.random.default_rng(0), Streams(b"a")):
        with pytest.raises(ValueError, match="Expected stream="):
            mechanism.release([0.5], bad)
