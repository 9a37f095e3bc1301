from functools import partial

import numpy as np
import pytest
from bundles import bundled
from hypothesis import given
from hypothesis import strategies as st
from reference.clipped_sum import clipped_sum_one_by_one

from skdp.engine import linear_sums
from skdp.engine.linear_sums import LinearClippedSum, OutsideSum
from skdp.models.likelihoods import Bernoulli, Categorical
from skdp.relations import RELATIONS, sensitivity_factor
from skdp.rows.bounded_sum import ROUNDING
from skdp.rows.records import LinearBatch, LinearRows, clipped_rows, row_bound


def make_batch(rows, codes, likelihood):
    rows = np.asarray(rows, dtype=float)
    with np.errstate(all="ignore"):
        norms = np.sqrt((rows**2).sum(axis=1))
    targets = likelihood.targets(np.asarray(codes))
    return LinearBatch(rows, norms, targets, np.zeros((len(rows), 2), bool))


def random_problem(seed, n, d, k, size=1.0):
    rng = np.random.default_rng(seed)
    likelihood = Bernoulli() if k == 2 else Categorical(k)
    theta = 3 * rng.standard_normal((likelihood.n_outputs, d))
    batch = make_batch(size * rng.standard_normal((n, d)), rng.integers(0, k, n), likelihood)
    return likelihood, theta, batch


@given(
    st.integers(0, 10**6),
    st.integers(0, 40),
    st.integers(1, 6),
    st.sampled_from([2, 3, 5]),
    st.floats(1e-3, 10),
    st.floats(1e-6, 1e6),
)
def test_equals_the_one_record_at_a_time_sum(seed, n, d, k, clip_norm, size):
    likelihood, theta, batch = random_problem(seed, n, d, k, size)
    fast = LinearClippedSum(likelihood.residual, clip_norm)(theta, batch)
    slow = clipped_sum_one_by_one(likelihood.residual, theta, batch.rows, batch.targets, clip_norm)
    # Each of n terms of norm ≤ C is rounded a few times; sums of n terms at most n times more.
    np.testing.assert_allclose(fast, slow, atol=(n + 10) ** 2 * 2**-50 * clip_norm, rtol=0)


@pytest.mark.parametrize("chunk_rows", [1, 7, 1000])
def test_the_chunk_size_does_not_matter(chunk_rows, monkeypatch):
    likelihood, theta, batch = random_problem(0, 500, 4, 3)
    clipped_sum = LinearClippedSum(likelihood.residual, 0.5)
    whole = clipped_sum(theta, batch)
    monkeypatch.setattr(linear_sums, "CHUNK_ROWS", chunk_rows)
    np.testing.assert_allclose(clipped_sum(theta, batch), whole, rtol=0, atol=1e-11)


def test_additive_over_parts():
    likelihood, theta, batch = random_problem(1, 100, 4, 2)
    clipped_sum = LinearClippedSum(likelihood.residual, 0.5)
    parts = [
        LinearBatch(*(part[rows] for part in batch[:4])) for rows in (slice(0, 30), slice(30, 100))
    ]
    total = clipped_sum(theta, parts[0]) + clipped_sum(theta, parts[1])
    np.testing.assert_allclose(clipped_sum(theta, batch), total, rtol=0, atol=1e-12)


EXTREMES = [1e300, -1e300, 5e-324, 0.0, np.inf, -np.inf, np.nan, 1e154, 1.0]


@given(
    st.lists(st.sampled_from(EXTREMES), min_size=3, max_size=3),
    st.lists(st.sampled_from(EXTREMES), min_size=3, max_size=3),
    st.sampled_from([2, 4]),
    st.sampled_from([1e-3, 1.0, 50.0]),
    st.sampled_from([1.0, 1e5, 1e300]),
)
def test_one_record_moves_the_sum_by_no_more_than_the_sensitivity(first, second, k, clip, size):
    likelihood, theta, batch = random_problem(2, 20, 3, k)
    theta = theta * size
    clipped_sum = LinearClippedSum(likelihood.residual, clip)

    def with_record(record):
        rows = batch.rows.copy()
        rows[7] = record
        return clipped_sum(theta, make_batch(rows, np.arange(20) % k, likelihood))

    present, replaced, absent = with_record(first), with_record(second), with_record([0.0] * 3)
    assert np.isfinite(present).all()
    assert np.linalg.norm(present - absent) <= clipped_sum.sensitivity("zero_out")
    assert np.linalg.norm(present - replaced) <= clipped_sum.sensitivity("replace_one")


def test_the_bound_is_reached_so_a_smaller_sensitivity_would_be_wrong():
    likelihood = Bernoulli()
    batch = make_batch([[1.0, 0.0], [1.0, 0.0]], [1, 1], likelihood)
    theta = np.array([[-50.0, 0.0]])
    clipped_sum = LinearClippedSum(likelihood.residual, 0.25)
    one = clipped_sum(theta, LinearBatch(*(part[:1] for part in batch[:4])))
    assert np.linalg.norm(one) == pytest.approx(0.25, rel=1e-12)
    assert np.linalg.norm(clipped_sum(theta, batch) - one) == pytest.approx(0.25, rel=1e-12)


@pytest.mark.parametrize("relation", RELATIONS)
def test_sensitivity_is_the_clip_times_the_relation_and_the_rounding(relation):
    clipped_sum = LinearClippedSum(Bernoulli().residual, 0.5)
    expected = 0.5 * sensitivity_factor(relation) * (1 + ROUNDING)
    assert clipped_sum.sensitivity(relation) == expected
    assert 0 < ROUNDING < 1e-3


def test_the_rounding_bound_covers_a_sum_that_rounds_badly():
    # A million equal terms that are no binary fraction: the worst a sum can do is still far inside.
    n = 10**6
    likelihood = Bernoulli()
    batch = LinearBatch(np.full((n, 1), 0.1), np.full(n, 0.1), np.ones((n, 1)), np.zeros((n, 2)))
    total = LinearClippedSum(likelihood.residual, 1.0)(np.zeros((1, 1)), batch).item()
    exact = 0.05 * n
    assert abs(total - exact) <= ROUNDING / 2
    assert abs(total - exact) > 0  # it does round


@pytest.mark.parametrize("clip_norm", [0.0, -1.0, float("nan"), "1", None])
def test_a_clip_that_bounds_nothing_is_refused(clip_norm):
    with pytest.raises(ValueError, match="clip_norm="):
        LinearClippedSum(Bernoulli().residual, clip_norm)


@given(
    st.lists(st.lists(st.sampled_from(EXTREMES), min_size=2, max_size=2), min_size=1, max_size=6),
    st.sampled_from([1e-3, 1.0, 7.0]),
    st.booleans(),
)
def test_rows_never_exceed_their_bound(rows, norm, fit_intercept):
    clipped = clipped_rows(np.array(rows), norm, fit_intercept=fit_intercept)
    assert np.isfinite(clipped).all()
    assert (np.linalg.norm(clipped, axis=1) <= row_bound(norm, fit_intercept) * (1 + 1e-15)).all()
    if fit_intercept:
        assert (clipped[:, -1] == 1).all()


def test_rows_within_the_bound_are_left_alone_and_longer_ones_keep_their_direction():
    X = np.array([[0.3, 0.4], [3.0, 4.0], [3e200, 4e200]])
    np.testing.assert_allclose(
        clipped_rows(X, 1.0, fit_intercept=False), [[0.3, 0.4], [0.6, 0.8], [0.6, 0.8]], rtol=1e-15
    )
    np.testing.assert_array_equal(X[0], [0.3, 0.4])


def test_a_memory_map_is_read_by_batch_only(tmp_path):
    X = np.memmap(tmp_path / "X", dtype=np.float32, mode="w+", shape=(50, 3))
    X[:] = np.random.default_rng(0).standard_normal((50, 3))
    data = LinearRows(X, np.zeros((50, 1)), data_norm=1.0, fit_intercept=True)
    batch = data.take(np.array([4, 9]))
    assert batch.rows.shape == (2, 4)
    assert data._full is None
    np.testing.assert_allclose(batch.norms, np.linalg.norm(batch.rows, axis=1), rtol=1e-15)


def batch_of(X, relation):
    """Rows that nothing clips."""
    targets = np.zeros((len(X), 1))
    rows = LinearRows(X, targets, data_norm=1e9, fit_intercept=False, neighboring_relation=relation)
    return rows.take(slice(None))


@bundled("columns", [1, 2, 3, 5, 8, 13, 30, 107])
@bundled("n_outputs", [1, 3])
def test_under_add_remove_a_record_moves_no_bit_of_the_others_logits(columns, n_outputs):
    rng = np.random.default_rng(columns)
    X, weights = rng.normal(size=(531, columns)), rng.normal(size=(columns, n_outputs))

    def logits(X):
        return batch_of(X, "add_or_remove_one").logits(weights)

    whole = logits(X)
    np.testing.assert_allclose(whole, X @ weights, rtol=1e-12, atol=1e-12)
    for without in (0, 1, 265, 529, 530):
        expected = np.delete(whole, without, axis=0)
        np.testing.assert_array_equal(logits(np.delete(X, without, axis=0)), expected)


def test_under_the_other_relations_a_null_record_moves_no_bit_of_the_others_logits():
    rng = np.random.default_rng(0)
    X, weights = rng.normal(size=(531, 30)), rng.normal(size=(30, 1))
    changed = X.copy()
    changed[7] = 0.0
    whole, other = (batch_of(rows, "zero_out").logits(weights) for rows in (X, changed))
    np.testing.assert_array_equal(np.delete(whole, 7, axis=0), np.delete(other, 7, axis=0))


def test_a_lone_row_of_many_columns_gets_the_bits_that_it_has_among_others():
    X = np.random.default_rng(0).normal(size=(2, 10_000))
    weights = np.random.default_rng(1).normal(size=(10_000, 1))

    def of(X):
        rows = batch_of(X, "add_or_remove_one")
        return rows.logits(weights)[-1], rows.norms[-1]

    assert of(X) == of(X[1:])


# --- counts --------------------------------------------------------------------------------------


class TestRecordsThatWereCut:
    ROWS = np.array(
        [[3.0, 4.0], [0.6, 0.8], [0.3, 0.4], [1e300, 1e300], [np.inf, 0.0], [np.nan, 9.0]]
    )
    TARGETS = np.array([[2.0], [1.0], [-3.0], [0.0], [1e308], [-1.0 - 1e-16]])

    def rows(self, **options):
        return LinearRows(
            self.ROWS,
            self.TARGETS,
            data_norm=1.0,
            fit_intercept=True,
            target_bounds=(-1.0, 1.0),
            **options,
        )

    @pytest.mark.parametrize("options", [{}, {"alone": True}, {"kept": False}])
    def test_rows_and_targets_beyond_their_bounds_are_counted_and_cut(self, options):
        theta, rows = np.zeros((1, 3)), self.rows(**options)
        batch = rows.take(slice(None))
        assert np.abs(batch.targets).max() == 1.0
        # What is not finite is no row at all; what lies on a bound is within it.
        expected = [[1, 1], [0, 0], [0, 1], [1, 0], [0, 1], [0, 0]]
        np.testing.assert_array_equal(OutsideSum(targets=True).records(theta, batch), expected)
        for targets, counts in ((True, [2, 3]), (False, [2])):
            total = rows.sum(partial(OutsideSum(targets), theta), slice(None))
            np.testing.assert_array_equal(total, counts)

    @pytest.mark.parametrize("targets", [True, False])
    @pytest.mark.parametrize("relation", RELATIONS)
    def test_no_record_moves_the_counts_by_more_than_their_bound(self, relation, targets):
        counts = OutsideSum(targets)
        terms = counts.records(np.zeros((1, 3)), self.rows().take(slice(None)))
        others = terms if relation == "replace_one" else [np.zeros(counts.n_counts)]
        moved = max(np.linalg.norm(a - b) for a in terms for b in others)
        assert moved <= counts.sensitivity(relation) <= 1.001 * moved

    def test_one_hot_rows_are_on_their_norm(self):
        for d in range(1, 60):
            X = np.tile(np.eye(3), (1, d))
            rows = LinearRows(X, X[:, :1], data_norm=d**0.5, fit_intercept=True)
            assert not rows.take(slice(None)).outside.any()
