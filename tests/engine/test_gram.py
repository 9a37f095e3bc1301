"""The released second moments of rows and of scores: isometric, bounded record by record."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from skdp.algorithms.noise_aware.families import Cut
from skdp.algorithms.noise_aware.numbers import WeightedResiduals
from skdp.engine.linear_sums import GramSum, LinearClippedSum, ScoreGramSum, packed, unpacked
from skdp.models.likelihoods import Bernoulli, Categorical
from skdp.rows.records import LinearRows

THETA = np.array([[0.5, -1.0, 2.0]])


def rows_of(X):
    return LinearRows(X, np.zeros((len(X), 1)), data_norm=1.0, fit_intercept=True)


def total(clipped_sum, X, theta=THETA):
    return clipped_sum(theta, rows_of(X).take(slice(None)))


def weight(logits, norms):
    return np.exp(logits[:, 0]) * norms


@pytest.mark.thorough
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
        w = 1.0 if chosen is None else np.exp(float(THETA[0] @ x)) * np.linalg.norm(x)
        slow += min(w, 1.5 / (x @ x)) * np.outer(x, x)
    np.testing.assert_allclose(unpacked(total(clipped_sum, X), 3), slow, rtol=1e-12)
    trace = total(GramSum(1.5, chosen, trace_only=True), X)
    np.testing.assert_allclose(trace, [np.trace(slow)], rtol=1e-12)


HOSTILE = [0.0, 1.0, -1e300, 1e154, 5e-324, 0.3, -2.0, np.nan]


@given(arrays(float, (2, 2), elements=st.sampled_from(HOSTILE)), st.booleans())
def test_no_record_moves_it_by_more_than_its_bound(pair, trace_only):
    X = np.random.default_rng(0).normal(size=(20, 2))
    infinite = lambda z, r: np.full(len(z), np.inf)  # noqa: E731
    for chosen in (None, weight, infinite, lambda z, r: z[:, 0]):
        clipped_sum = GramSum(0.7, chosen, trace_only=trace_only)
        one, other = (total(clipped_sum, np.vstack([X, features])) for features in pair)
        moved = np.linalg.norm(one - total(clipped_sum, X))
        assert moved <= clipped_sum.sensitivity("add_or_remove_one")
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


# --- scores -------------------------------------------------------------------------------------


def bounded_score(likelihood, clip):
    found = likelihood.score(clip / np.sqrt(2))
    return LinearClippedSum(found.residual, clip, found.largest_residual)


HUGE = np.array([0.0, 1.0, -1.0, -1e300, 1e154, 5e-324, 0.3, np.nan, np.inf])
CLIP_OF_RESIDUALS = 0.4
AT = np.append(THETA, [[CLIP_OF_RESIDUALS]], axis=1)
CLASSES = np.random.default_rng(5).normal(size=(3, 3))
SCORES = {  # where they are asked for, and how targets come of numbers in [0, 1)
    "one logit": (bounded_score(Bernoulli(), 0.7), THETA, lambda t: (t < 0.5)[:, None] * 1.0),
    "plain": (LinearClippedSum(Bernoulli().residual, 0.4), THETA, lambda t: t[:, None] * 1e3),
    "softmax": (
        bounded_score(Categorical(3), 0.7),
        CLASSES,
        lambda t: np.eye(3)[(3 * t).astype(int)],
    ),
    "residuals": (WeightedResiduals(Cut(1.0, 2.0)), AT, lambda t: np.tan(4.0 * t)[:, None]),
    "any target": (
        WeightedResiduals(Cut(0.5, 2.0)),
        AT,
        lambda t: HUGE[(len(HUGE) * t).astype(int)][:, None],
    ),
}


def scored(case, features, numbers, alone=False):
    scores, at, targets_of = SCORES[case]
    rows = LinearRows(
        np.asarray(features, dtype=float),
        targets_of(np.asarray(numbers, dtype=float)),
        data_norm=1.0,
        fit_intercept=True,
        alone=alone,
    )
    return ScoreGramSum(scores), at, rows.take(slice(None))


@pytest.mark.parametrize("case", SCORES)
def test_outer_products_of_scores_are_the_slow_sum(case):
    rng = np.random.default_rng(1)
    gram, at, batch = scored(case, rng.normal(size=(40, 2)), rng.random(40))
    with np.errstate(all="ignore"):
        s = gram.scores.records(at, batch)
        slow = np.zeros((s.shape[1], s.shape[1]))
        for one in s:
            slow += np.outer(one, one)
        assert np.abs(slow).max() > 0.1
        np.testing.assert_allclose(unpacked(gram(at, batch), s.shape[1]), slow, atol=1e-12)
        records = gram.records(at, batch)
    np.testing.assert_allclose(records.sum(axis=0), packed(slow), atol=1e-12)
    norms = np.linalg.norm(s, axis=1)
    np.testing.assert_allclose(np.linalg.norm(records, axis=1), norms**2, rtol=1e-12)
    assert gram.shape(tuple(at.shape)) == (records.shape[1],)


def test_scores_of_residuals_are_the_slow_ones():
    rng = np.random.default_rng(2)
    gram, at, batch = scored("residuals", 3.0 * rng.normal(size=(40, 2)), rng.random(40))
    cut, expected = gram.scores.cut, []
    for z, y in zip(batch.rows, batch.targets[:, 0], strict=True):
        psi = min(max((y - THETA[0] @ z) / CLIP_OF_RESIDUALS, -1.0), 1.0)
        w = min(1.0, cut.clip_norm / np.linalg.norm(z), cut.row_norm**2 / (z @ z))
        expected.append([*(w * psi * z), cut.clip_norm / 2 * (psi**2 - 1 / 6)])
    np.testing.assert_allclose(gram.scores.records(at, batch), expected, rtol=1e-12, atol=1e-15)
    found = gram.scores(at, batch)
    np.testing.assert_allclose(found, np.sum(expected, axis=0), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("case", SCORES)
def test_of_many_hostile_records_none_exceeds_the_square_of_the_bound(case):
    rng = np.random.default_rng(3)
    n = 100_000
    features = np.exp(rng.uniform(-700, 700, (n, 2))) * rng.choice([-1.0, 1.0], (n, 2))
    features[::3] = rng.choice(HUGE, (len(features[::3]), 2))
    features[1::3] = rng.normal(size=(len(features[1::3]), 2))
    gram, at, batch = scored(case, features, rng.random(n))
    bound = gram.scores.record_bound**2
    with np.errstate(all="ignore"):
        norms = np.linalg.norm(gram.records(at, batch), axis=1)
    assert 0.9 * bound < norms.max() <= bound * (1 + 1e-12)
    assert gram.norm_bound >= bound
    assert np.isfinite(gram(at, batch)).all()


@pytest.mark.parametrize("relation", ["zero_out", "add_or_remove_one", "replace_one"])
@pytest.mark.parametrize("case", SCORES)
@given(
    arrays(float, (2, 2), elements=st.sampled_from([float(v) for v in HUGE])),
    st.tuples(st.floats(0, 0.999), st.floats(0, 0.999)),
)
def test_neighbours_move_the_products_of_scores_by_no_more_than_is_declared(
    case, relation, pair, numbers
):
    rng = np.random.default_rng(4)
    rest, of_rest = rng.normal(size=(20, 2)), rng.random(20)

    def released(*which):
        features = np.vstack([rest, *(pair[i] for i in which)])
        gram, at, batch = scored(case, features, [*of_rest, *(numbers[i] for i in which)])
        return gram(at, batch)

    gram = ScoreGramSum(SCORES[case][0])
    other = released(1) if relation == "replace_one" else released()
    assert np.linalg.norm(released(0) - other) <= gram.sensitivity(relation)
    apart = np.sqrt(2.0) if relation == "replace_one" else 1.0
    assert gram.sensitivity(relation) == pytest.approx(apart * gram.norm_bound)
