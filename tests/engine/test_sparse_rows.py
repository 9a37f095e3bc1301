"""Sparse rows give what the dense ones give, and stay sparse."""

import numpy as np
import pytest
from scipy import sparse

from skdp.engine.linear_sums import LinearClippedSum
from skdp.models.likelihoods import Bernoulli
from skdp.rows.bounds import row_norm
from skdp.rows.records import LinearRows, gram
from skdp.rows.sparse import SparseRows

rng = np.random.default_rng(0)
X = sparse.random_array((50, 7), density=0.3, rng=rng, format="csr") * 4.0
DENSE, TARGETS = X.toarray(), rng.integers(0, 2, (50, 1)) * 1.0


def batch(rows, selection=slice(None)):
    kept = LinearRows(rows, TARGETS, data_norm=2.0, fit_intercept=True)
    return kept.take(selection)


@pytest.mark.parametrize("selection", [slice(None), np.array([3, 3, 49])], ids=["all", "some"])
def test_clipped_rows_norms_and_counts_are_those_of_dense_rows(selection):
    found, expected = batch(SparseRows.of(X), selection), batch(DENSE, selection)
    assert isinstance(found.rows, SparseRows)
    np.testing.assert_allclose(np.asarray(found.rows), expected.rows, rtol=1e-15)
    np.testing.assert_allclose(found.norms, expected.norms, rtol=1e-15)
    np.testing.assert_array_equal(found.outside, expected.outside)
    assert 0 < found.outside[:, 0].sum() < 50 or len(found.norms) == 3


def test_sums_are_those_of_dense_rows():
    weights, theta = rng.uniform(size=50), rng.normal(size=(1, 8))
    of_batch = [LinearClippedSum(Bernoulli().residual, bound) for bound in (0.3, np.inf)]
    for of_rows in (
        lambda rows: gram(rows, weights),
        lambda rows: of_batch[0](theta, batch(rows)),
        lambda rows: of_batch[1](theta, batch(rows)),
    ):
        np.testing.assert_allclose(of_rows(SparseRows.of(X)), of_rows(DENSE), rtol=1e-13)


def test_every_bit_of_a_row_is_its_own():
    theta = rng.normal(size=(8, 2))
    whole = batch(SparseRows.of(X))
    alone = [batch(SparseRows.of(X), np.array([i])) for i in range(50)]
    logits = np.concatenate([one.rows @ theta for one in alone])
    np.testing.assert_array_equal(logits, whole.rows @ theta)
    np.testing.assert_array_equal(np.concatenate([one.norms for one in alone]), whole.norms)


def test_entries_given_twice_count_as_their_sum():
    twice = sparse.coo_array((np.array([1.0, 2.0]), ([0, 0], [1, 1])), shape=(1, 3))
    assert SparseRows.of(twice).norms() == 3.0


def test_rows_whose_squares_overflow_end_on_the_norm():
    huge = SparseRows.of(sparse.csr_array([[1e308, 1e308, 0.0], [1e-3, 0.0, 0.0]]))
    short, longer = huge.clipped(1.0, fit_intercept=False)
    np.testing.assert_allclose(short.norms(), [1.0, 1e-3])
    assert longer.tolist() == [True, False]


def test_the_given_matrix_is_left_alone():
    before = X.copy()
    batch(SparseRows.of(X))
    assert (before != X).nnz == 0


def test_a_declared_norm_travels_with_the_rows_of_a_step():
    from skdp import NormClipper

    rows = NormClipper(1.0).fit_transform(X)
    assert sparse.issparse(rows)
    assert row_norm(rows) == 1.0
    assert row_norm(rows * 2.0) is None
    assert row_norm(rows[:5]) is None
