from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn.pipeline import make_pipeline

from skdp.algorithms.second_moments import SecondMomentsConfig
from skdp.engine import release_hook
from skdp.engine.linear_sums import unpacked
from skdp.preprocessing import DPPCA, NormClipper
from skdp.relations import RELATIONS
from skdp.rows.bounded_sum import ROUNDING
from skdp.rows.records import LinearRows

INF = float("inf")
VALUES = st.one_of(
    st.sampled_from([0.0, 1e300, -1.7e308, 5e-324, 1e-160, 1.0]),
    st.floats(allow_nan=False, allow_infinity=False),
)
ROW = st.lists(VALUES, min_size=3, max_size=3)
NORMS = st.sampled_from([1e-100, 0.5, 1.0, 3.0, 1e100])


def config(norm, d=3):
    return SecondMomentsConfig(n_features=d, n_components=1, data_norm=norm)


def second_moments(X, norm):
    """The private value of a fit, in units of the bound on one row's share."""
    d = X.shape[1]
    rows = LinearRows(X, X[:, :0], data_norm=norm, fit_intercept=False, kept=False)
    total = rows.sum(partial(config(norm, d).sums, np.zeros((1, d))), slice(None))
    return total / norm**2


def sensitivity(relation):
    return config(1.0).sums.sensitivity(relation)


def lengthened(rows):
    """Rows of 4 features about a plane."""
    rng = np.random.default_rng(1)
    return rng.normal(size=(rows, 2)) @ [[0.6, 0.6, 0, 0], [0, 0, 0.3, -0.3]] + rng.normal(
        0, 0.02, (rows, 4)
    )


@given(ROW, ROW, st.lists(ROW, max_size=4), NORMS, st.sampled_from(RELATIONS))
def test_neighbours_move_the_sum_by_at_most_the_declared_sensitivity(
    row, other, rest, norm, relation
):
    second = {"zero_out": [[0.0] * 3], "add_or_remove_one": [], "replace_one": [other]}[relation]
    sums = [
        second_moments(np.array([*rest, *rows], dtype=float).reshape(-1, 3), norm)
        for rows in ([row], second or [[0.0] * 3])
    ]
    moved = np.linalg.norm(sums[0] - sums[1])
    assert moved <= sensitivity(relation)


def test_replacing_a_row_moves_the_sum_by_root_two_and_no_more():
    declared = sensitivity("replace_one")
    assert declared == pytest.approx(np.sqrt(2) * (1 + ROUNDING))
    orthogonal = [np.array([row]) for row in ([3.0, -3.0, 0.0], [1e300, 1e300, 0.0])]
    sums = [second_moments(row, 2.0) for row in orthogonal]
    assert 0.99 * declared <= np.linalg.norm(sums[0] - sums[1]) <= declared


def test_the_bound_is_attained_so_no_smaller_one_would_do():
    for row in ([1e300, 1e300, -1e300], [0.0, 5.0, 0.0]):
        moved = np.linalg.norm(second_moments(np.array([row]), 2.0))
        assert moved == pytest.approx(1.0, rel=1e-12)


def test_the_triangle_holds_the_whole_matrix():
    X = np.random.default_rng(0).normal(size=(40, 5))
    triangle = second_moments(X, 100.0)
    np.testing.assert_allclose(unpacked(triangle, 5), X.T @ X / 1e4, atol=1e-15)
    assert np.linalg.norm(triangle) == pytest.approx(np.linalg.norm(X.T @ X) / 1e4)


@pytest.mark.parametrize("relation", RELATIONS)
def test_the_release_has_the_declared_noise_and_no_other(relation):
    with release_hook.record() as tape:
        pca = DPPCA(n_components=1, epsilon=1.0, neighboring_relation=relation).fit(
            np.zeros((3, 60))
        )
    noise, call = tape[0].output, tape[0].call
    moved, factor = (60 * np.sqrt(2), 2) if relation == "replace_one" else (60.0, 1)
    assert call.sensitivity == pytest.approx(moved * (1 + ROUNDING), rel=1e-12)
    scale = pca.noise_multiplier_ * call.sensitivity / factor
    assert call.scale == pytest.approx(scale, rel=1e-12)
    assert noise.size == 60 * 61 // 2
    low, high = stats.chi2.ppf([1e-6, 1 - 1e-6], noise.size)
    for wrong in (2 / 3, 1.0, 3 / 2, np.sqrt(2), 1 / np.sqrt(2)):
        assert (low < (noise**2).sum() / (wrong * scale) ** 2 < high) == (wrong == 1.0)


@pytest.mark.parametrize(("epsilon", "tolerance"), [(INF, 1e-10), (1e5, 1e-4)])
def test_without_much_noise_it_is_the_singular_value_decomposition(epsilon, tolerance):
    X = lengthened(2000)
    pca = DPPCA(3, epsilon=epsilon, data_norm=6.0).fit(X)
    _, values, vectors = np.linalg.svd(X, full_matrices=False)
    np.testing.assert_allclose(pca.singular_values_[:2], values[:2], rtol=50 * tolerance)
    overlaps = np.abs(np.sum(pca.components_[:2] * vectors[:2], axis=1))
    np.testing.assert_allclose(overlaps, 1.0, atol=tolerance)
    share = values**2 / (values**2).sum()
    np.testing.assert_allclose(pca.explained_variance_ratio_[:2], share[:2], atol=50 * tolerance)


def test_with_noise_the_leading_plane_is_found():
    X = lengthened(20_000)
    pca = DPPCA(2, epsilon=1.0).fit(X)
    _, _, vectors = np.linalg.svd(X, full_matrices=False)
    assert np.linalg.svd(pca.components_ @ vectors[:2].T)[1].min() > 0.98


def test_components_are_orthonormal_and_their_signs_fixed():
    pca = DPPCA(3, epsilon=0.1).fit(lengthened(50))
    np.testing.assert_allclose(pca.components_ @ pca.components_.T, np.eye(3), atol=1e-12)
    largest = pca.components_[np.arange(3), np.abs(pca.components_).argmax(axis=1)]
    assert (largest > 0).all()


def test_estimates_from_noise_alone_are_shares():
    for n_components in (1, 4):
        pca = DPPCA(n_components, epsilon=0.01).fit(np.zeros((5, 4)))
        assert (pca.explained_variance_ratio_ >= 0).all()
        assert pca.explained_variance_ratio_.sum() <= 1 + 1e-12
        assert (pca.singular_values_ >= 0).all()
    assert (DPPCA(2, epsilon=INF).fit(np.zeros((5, 4))).explained_variance_ratio_ == 0).all()


@given(ROW)
def test_a_projection_never_exceeds_the_norm(row):
    pca = DPPCA(2, epsilon=INF, data_norm=2.0).fit(np.vander([1.0, 2.0, 3.0]))
    out = pca.transform([row])
    assert out.row_norm == pca.output_norm_ == 2.0
    assert np.linalg.norm(out) <= 2.0 * (1 + 1e-13)


def test_the_norm_of_the_step_before_is_taken_over():
    X = lengthened(100)
    chained = make_pipeline(NormClipper(0.4), DPPCA(2)).fit(X)[-1]
    assert chained.data_norm_ == 0.4
    assert DPPCA(2).fit(X).data_norm_ == 2.0
    assert make_pipeline(NormClipper(0.4), DPPCA(2, data_norm=1.5)).fit(X)[-1].data_norm_ == 1.5


def test_columns_have_names_of_their_own():
    pca = DPPCA(2).fit(lengthened(20))
    assert pca.get_feature_names_out().tolist() == ["dppca0", "dppca1"]


def test_a_share_takes_the_fewest_directions_that_have_it():
    X = np.random.default_rng(0).normal(size=(500, 4)) * [3.0, 2.0, 1.0, 0.1]
    whole = DPPCA(4, epsilon=float("inf"), data_norm=20.0).fit(X)
    shares = np.cumsum(whole.explained_variance_ratio_)
    for k in (1, 2, 3):
        share = float(shares[k - 1]) - 1e-3
        found = DPPCA(share, epsilon=float("inf"), data_norm=20.0).fit(X)
        assert found.n_components_ == len(found.components_) == k
        np.testing.assert_allclose(found.components_, whole.components_[:k], atol=1e-12)


def test_projections_go_back_to_the_space_of_the_rows():
    X = np.random.default_rng(0).normal(size=(100, 3))
    pca = DPPCA(3, epsilon=float("inf"), data_norm=20.0).fit(X)
    np.testing.assert_allclose(pca.inverse_transform(pca.transform(X)), X, atol=1e-12)
    with pytest.raises(ValueError, match="Expected X with 3 columns, got 2"):
        pca.inverse_transform(X[:, :2])
