"""The released second moments: an isometric vector, bounded record by record."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from skdp._rows import LinearRows
from skdp.engine.linear_sums import GramSum, packed, unpacked

THETA = torch.tensor([[0.5, -1.0, 2.0]], dtype=torch.float64)


def rows_of(X):
    return LinearRows(X, np.zeros((len(X), 1)), data_norm=1.0, fit_intercept=True)


def total(clipped_sum, X, theta=THETA):
    return clipped_sum(theta, rows_of(X).take(slice(None))).numpy()


def weight(logits, norms):
    return np.exp(logits[:, 0]) * norms


@given(arrays(float, (4,), elements=st.floats(-1e3, 1e3)))
def test_the_vector_of_an_outer_product_has_the_norm_of_the_row_squared(x):
    vector = packed(np.outer(x, x))
    np.testing.assert_allclose(np.linalg.norm(vector), x @ x, rtol=1e-12, atol=1e-200)
    np.testing.assert_allclose(unpacked(vector, 4), np.outer(x, x), rtol=1e-12, atol=1e-200)


@pytest.mark.parametrize("chosen", [None, weight])
def test_it_is_the_slow_sum(chosen):
    X = np.random.default_rng(0).normal(size=(50, 2))
    clipped_sum = GramSum(1.5, chosen)
    slow = np.zeros((3, 3))
    for features in X:
        x = np.append(features * min(1.0, 1 / np.linalg.norm(features)), 1.0)
        w = 1.0 if chosen is None else np.exp(float(THETA.numpy()[0] @ x)) * np.linalg.norm(x)
        slow += min(w, 1.5 / (x @ x)) * np.outer(x, x)
    np.testing.assert_allclose(unpacked(total(clipped_sum, X), 3), slow, rtol=1e-12)
    trace = total(GramSum(1.5, chosen, trace_only=True), X)
    np.testing.assert_allclose(trace, [np.trace(slow)], rtol=1e-12)


@given(
    arrays(float, (2,), elements=st.sampled_from([0.0, 1.0, -1e300, 1e154, 5e-324, 0.3, np.nan])),
    st.booleans(),
)
def test_no_record_moves_it_by_more_than_its_bound(features, trace_only):
    X = np.random.default_rng(0).normal(size=(20, 2))
    for chosen in (None, weight, lambda z, r: np.full(len(z), np.inf)):
        clipped_sum = GramSum(0.7, chosen, trace_only=trace_only)
        with_record = total(clipped_sum, np.vstack([X, features]))
        moved = np.linalg.norm(with_record - total(clipped_sum, X))
        assert moved <= clipped_sum.sensitivity("add_or_remove_one")


@given(
    arrays(float, (2, 2), elements=st.sampled_from([0.0, 1.0, -1e300, 1e154, 5e-324, 0.3, -2.0])),
    st.booleans(),
)
def test_replacing_a_record_moves_it_by_less_than_opposite_terms_would(pair, trace_only):
    X = np.random.default_rng(0).normal(size=(20, 2))
    for chosen in (None, weight, lambda z, r: z[:, 0]):
        clipped_sum = GramSum(0.7, chosen, trace_only=trace_only)
        one, other = (total(clipped_sum, np.vstack([X, features])) for features in pair)
        assert np.linalg.norm(one - other) <= clipped_sum.sensitivity("replace_one")
    apart = 1.0 if trace_only else np.sqrt(2.0)
    assert clipped_sum.sensitivity("replace_one") == pytest.approx(apart * clipped_sum.norm_bound)


def test_orthogonal_rows_move_it_as_far_as_is_declared():
    one, other = (total(GramSum(2.0), np.array([[x, 0.0]])) for x in (1.0, -1.0))
    assert np.linalg.norm(one - other) > 0.999 * GramSum(2.0).sensitivity("replace_one")


def test_a_weight_below_zero_counts_as_none():
    X = np.random.default_rng(0).normal(size=(20, 2))
    for trace_only in (False, True):
        clipped_sum = GramSum(0.7, lambda z, r: -z[:, 0] - 1e3, trace_only=trace_only)
        assert not total(clipped_sum, X).any()
        assert not clipped_sum.records(THETA, rows_of(X).take(slice(None))).any()
