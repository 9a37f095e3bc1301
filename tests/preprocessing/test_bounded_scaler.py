import numpy as np
import pandas as pd
import pytest
from bundles import bundled
from hypothesis import given
from hypothesis import strategies as st

from skdp import BoundedScaler


def test_bounds_map_to_minus_one_and_one_and_the_rest_is_clipped():
    scaler = BoundedScaler(lower=[0, -10], upper=[120, 10])
    X = [[0, -10], [120, 10], [60, 0], [999, -999]]
    np.testing.assert_allclose(scaler.fit_transform(X), [[-1, -1], [1, 1], [0, 0], [1, -1]])


@given(st.floats(-1e308, 1e308), st.floats(-1e308, 1e308), st.floats(allow_nan=False, width=64))
def test_output_is_always_within_its_bounds(a, b, value):
    lower, upper = sorted([a, b])
    if not lower < upper or not np.isfinite(value):
        return
    if not lower / 2 < upper / 2:
        return
    out = BoundedScaler(lower, upper).fit_transform([[value]])
    assert -1 <= out[0, 0] <= 1


@bundled("kind", [np.float64, np.float32])
@bundled("bounds", [(0, 1e-9), (-1, 1), (1e300, 1.7e308), (-1.7e308, 1.7e308)])
@bundled("state", ["warn", "raise"])
def test_no_number_is_warned_of(kind, bounds, state):
    most, least = np.finfo(kind).max, np.finfo(kind).smallest_subnormal
    X = np.array([[most], [-most], [least], [0.0], [np.nan]], kind)
    with np.errstate(all=state):
        out = BoundedScaler(*bounds).fit_transform(X)
    assert out.dtype == kind
    assert np.nanmax(np.abs(out)) <= 1


def test_missing_values_stay_missing_and_names_are_kept():
    X = pd.DataFrame({"age": [30.0, np.nan], "dose": [1.0, 2.0]})
    out = BoundedScaler(0, 100).set_output(transform="pandas").fit_transform(X)
    assert out.columns.tolist() == ["age", "dose"]
    assert np.isnan(out["age"][1])


@bundled(
    ("bounds", "message"),
    [
        ({"lower": 1.0, "upper": 0.0}, "lower="),
        ({"lower": 1.0, "upper": 1.0}, "lower="),
        ({"lower": 0.0, "upper": 5e-324}, "lower="),  # half of it is 0
        ({"lower": [0.0, 0.0]}, "lower=.*each of the 3 features"),
        ({"lower": [0.0, "a", 0.0]}, "lower="),
    ],
)
def test_bounds_that_bound_nothing_are_named(bounds, message):
    with pytest.raises(ValueError, match=message):
        BoundedScaler(**bounds).fit(np.zeros((4, 3)))
