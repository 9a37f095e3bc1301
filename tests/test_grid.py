"""Every release ends on a public grid."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from skdp.engine import release_hook
from skdp.engine.release_hook import LEAST_SCALE, MOST_SCALE, grid_width, on_grid


@given(st.floats(LEAST_SCALE, MOST_SCALE))
def test_width_is_a_power_of_two_in_proportion_to_the_scale(scale):
    width = grid_width(scale)
    assert math.frexp(width)[0] == 0.5
    assert Fraction(scale) / 2**21 < Fraction(width) <= Fraction(scale) / 2**20


@given(st.floats(-1e308, 1e308), st.floats(LEAST_SCALE, MOST_SCALE))
def test_rounded_values_are_multiples_and_the_nearest_ones(value, scale):
    width = grid_width(scale)
    for of in (np.array, lambda v: torch.tensor(v, dtype=torch.float64), float):
        found = Fraction(float(on_grid(of(value), width)))
        assert (found / Fraction(width)).denominator == 1
        # Half a cell, and where doubles are sparser than the grid a unit in the last place.
        farthest = max(Fraction(width) / 2, Fraction(math.ulp(value)))
        assert abs(found - Fraction(value)) <= farthest


def test_ties_go_to_the_even_multiple_and_zero_has_no_sign():
    np.testing.assert_array_equal(on_grid(np.array([0.5, 1.5, -2.5]), 1.0), [0.0, 2.0, -2.0])
    assert not np.signbit(on_grid(np.array([-0.25, -0.0]), 1.0)).any()


def test_without_noise_there_is_no_grid():
    values = np.array([0.1, 1e-300])
    assert grid_width(0.0) == 0.0
    np.testing.assert_array_equal(on_grid(values, 0.0), values)


@pytest.mark.parametrize("scale", [1e-300, 5e-324, 1e300, math.inf, math.nan, -1.0])
def test_a_grid_that_doubles_cannot_hold_is_refused_by_name(scale):
    with pytest.raises(ValueError, match=r"noise of a scale .* grid .* clip_norm"):
        grid_width(scale)


def release(value, width):
    how = {"scale": 1.0, "rate": 1.0, "shape": (1,), "step": 0, "width": width}
    call = release_hook.MechanismCall("any", 1.0, **how)
    return release_hook.release(call, lambda: np.array([value]))


def test_no_mechanism_can_skip_the_grid():
    with release_hook.record() as tape:
        assert release(0.3, 0.25) == 0.25
    assert tape[0].output == release(0.3, 0.25) == 0.25


@given(st.floats(-1e6, 1e6), st.sampled_from([2.0**-30, 0.25, 64.0]))
def test_the_grid_of_a_release_is_the_declared_one_whatever_the_value(value, width):
    assert release(value, width).item() == width * round(Fraction(value) / Fraction(width))
