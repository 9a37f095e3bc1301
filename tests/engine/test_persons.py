"""Sums over persons: equal to a slow loop over them, and moved by one no further than declared."""

import itertools
import math

import numpy as np
import pytest

from skdp.algorithms.moments import MomentSum
from skdp.algorithms.noise_aware.families import Cut
from skdp.algorithms.noise_aware.numbers import InsideGram, WeightedResiduals
from skdp.engine.linear_sums import GramSum, LinearClippedSum, OutsideSum, ScoreGramSum
from skdp.engine.magnitude_sums import MagnitudeSum
from skdp.engine.vanilla_sum import VanillaClippedSum
from skdp.models.likelihoods import Bernoulli
from skdp.relations import RELATIONS
from skdp.rows.persons import PersonUnit, rows_of_persons
from skdp.rows.records import LinearRows, PlainBatch

D, R = 4, 1.5
UNIT = PersonUnit(n_groups=30, rows_per_group=4.0, clip=2.0)
THETA = np.random.default_rng(3).normal(size=(1, D))
WITH_CLIP = np.append(THETA, [[0.7]], axis=1)
RESIDUAL = WeightedResiduals(Cut(0.8, R))
SUMS = {
    "scores": (LinearClippedSum(Bernoulli().residual, 0.8), THETA),
    "pairs": (VanillaClippedSum(Bernoulli().residual, 0.8), np.stack([THETA, 0.1 * THETA])),
    "second moments": (GramSum(R**2), THETA),
    "weighted": (GramSum(R**2, lambda z, norms: 1 / (1 + z[:, 0] ** 2)), THETA),
    "trace": (GramSum(R**2, trace_only=True), THETA),
    "scatter": (ScoreGramSum(LinearClippedSum(Bernoulli().residual, 0.8)), THETA),
    "scatter of residuals": (ScoreGramSum(RESIDUAL), WITH_CLIP),
    "residuals": (RESIDUAL, WITH_CLIP),
    "slope of residuals": (InsideGram(0.8 * R, cut=Cut(0.8, R)), WITH_CLIP),
    "magnitudes": (MagnitudeSum(), THETA),
    "outside": (OutsideSum(targets=True), THETA),
}


def batch(X, y, starts):
    return LinearRows(
        X,
        y[:, None],
        data_norm=R,
        fit_intercept=False,
        neighboring_relation="zero_out_group",
        target_bounds=(0.0, 1.0),
        starts=starts,
    ).take(slice(None))


def table(rng, n_persons=30, most=9):
    sizes = rng.integers(1, most, n_persons)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    X = rng.normal(size=(starts[-1], D)) * rng.lognormal(size=(starts[-1], 1))
    return X, (rng.random(starts[-1]) < 0.5).astype(float), starts


def one_by_one(inner, theta, X, y, starts):
    """A person after the other: its rows' terms added up, and cut to the bound by hand."""
    of_person, total = inner.of_persons(UNIT), 0.0
    scores = getattr(inner, "scores", None)
    for first, last in itertools.pairwise(starts):
        rows = batch(X[first:last], y[first:last], None)
        if scores is not None:
            s = scores.records(theta, rows).sum(axis=0)
            s *= min(1.0, UNIT.clip * scores.record_bound / np.linalg.norm(s))
            outer = np.outer(s, s) * np.where(np.eye(len(s)) > 0, 1.0, math.sqrt(2.0))
            total = total + outer[np.triu_indices(len(s))]
            continue
        term = inner.records(theta, rows).sum(axis=0)
        size = np.linalg.norm(term)
        if isinstance(inner, GramSum):  # by the trace, which is no less than the norm
            size = inner.records(theta, rows)[:, _diagonal(inner)].sum()
        total = total + term * min(1.0, of_person.record_bound / max(size, 1e-300))
    return total


def _diagonal(inner):
    if inner.trace_only:
        return [0]
    rows, columns = np.triu_indices(D)
    return np.flatnonzero(rows == columns)


@pytest.mark.parametrize("name", SUMS)
def test_a_sum_over_persons_is_that_of_a_loop_over_them(name):
    inner, theta = SUMS[name]
    X, y, starts = table(np.random.default_rng(1))
    found = inner.of_persons(UNIT)(theta, batch(X, y, starts)).ravel()
    np.testing.assert_allclose(found, one_by_one(inner, theta, X, y, starts), atol=1e-9)


@pytest.mark.parametrize("name", SUMS)
def test_terms_one_by_one_add_up_to_the_sum(name):
    inner, theta = SUMS[name]
    X, y, starts = table(np.random.default_rng(2))
    rows, of_persons = batch(X, y, starts), inner.of_persons(UNIT)
    terms = of_persons.records(theta, rows)
    assert len(terms) == len(starts) - 1
    found = of_persons(theta, rows).ravel()
    np.testing.assert_allclose(terms.sum(axis=0), found, atol=1e-9)


def adversaries(rng, count):
    """Persons who want to move a sum: many rows alike, extreme, not finite, or at the bound."""
    values = [1e300, -1e300, 5e-324, np.nan, np.inf, R, 1.0, 0.0]
    for i in range(count):
        size = int(rng.choice([1, 2, 3, 50, 400] if i % 50 == 0 else [1, 2, 3, 8]))
        row = rng.normal(size=D) * rng.choice([1e-3, 1.0, 1e3])
        rows = np.tile(row, (size, 1)) if i % 2 else rng.normal(size=(size, D))
        if i % 3 == 0:
            rows[rng.integers(size), rng.integers(D)] = values[i // 3 % len(values)]
        yield rows, np.full(size, float(i % 5 > 1)) if i % 4 else rng.normal(size=size) * 1e3


def moved(inner, theta, count, seed=0):
    """Terms of so many adversarial persons, (count, size)."""
    persons = list(adversaries(np.random.default_rng(seed), count))
    X, y = (np.concatenate(part) for part in zip(*persons, strict=True))
    starts = np.concatenate([[0], np.cumsum([len(rows) for rows, _ in persons])])
    with np.errstate(all="ignore"):
        return inner.of_persons(UNIT).records(theta, batch(X, y, starts))


def check_sensitivity(inner, theta, count):
    terms, of_persons = moved(inner, theta, count), inner.of_persons(UNIT)
    assert np.isfinite(terms).all()
    norms = np.linalg.norm(terms, axis=1)
    assert norms.max() <= of_persons.norm_bound
    assert norms.max() >= 0.9 * of_persons.record_bound  # no smaller bound would do
    others = terms[np.random.default_rng(1).permutation(count)]
    for relation in RELATIONS:
        far = np.linalg.norm(terms - others, axis=1) if relation == "replace_one" else norms
        assert far.max() <= of_persons.sensitivity(relation)


@pytest.mark.quick(9)
@pytest.mark.parametrize("name", SUMS)
def test_no_person_moves_a_sum_by_more_than_is_declared(name):
    check_sensitivity(*SUMS[name], 3000)


@pytest.mark.slow
@pytest.mark.parametrize("name", SUMS)
def test_none_of_very_many_persons_does(name):
    check_sensitivity(*SUMS[name], 100_000)


@pytest.mark.parametrize("name", SUMS)
def test_what_a_person_contributes_is_the_same_bits_wherever_its_rows_stand(name):
    inner, theta = SUMS[name]
    X, y, starts = table(np.random.default_rng(4))
    terms = inner.of_persons(UNIT).records(theta, batch(X, y, starts))
    for person in (1, 7, 29):
        own = slice(starts[person], starts[person + 1])
        for before in (1, 5):
            rows = np.concatenate([X[:before], X[own], X[:3]])
            labels = np.concatenate([y[:before], y[own], y[:3]])
            size = starts[person + 1] - starts[person]
            new = np.array([0, before, before + size, before + size + 3])
            found = inner.of_persons(UNIT).records(theta, batch(rows, labels, new))[1]
            np.testing.assert_array_equal(found, terms[person])


def test_a_person_may_own_half_of_the_table_and_chunks_keep_persons_whole():
    rng = np.random.default_rng(5)
    sizes = np.array([1, 20_000, 3, 8191, 2, 9000, 1])
    starts = np.concatenate([[0], np.cumsum(sizes)])
    X, y = rng.normal(size=(starts[-1], D)), rng.random(starts[-1])
    rows = batch(X, y, starts)
    seen = [len(chunk.rows) for chunk in rows.chunks(8192)]
    assert sum(seen) == len(X)
    assert seen == [1, 20_000, 3, 8191, 2, 9000, 1]
    inner = LinearClippedSum(Bernoulli().residual, 0.8)
    found = inner.of_persons(UNIT)(THETA, rows).ravel()
    np.testing.assert_allclose(found, one_by_one(inner, THETA, X, y, starts), atol=1e-8)


def test_moments_of_persons_are_bounded_too():
    inner = MomentSum((-1.0,) * D, (1.0,) * D)
    X, _, starts = table(np.random.default_rng(6))
    X[5] = np.nan
    of_persons = inner.of_persons(UNIT)
    found = of_persons(THETA, PlainBatch(X, starts))
    total = np.zeros(3 * D)
    for first, last in itertools.pairwise(starts):
        term = inner(THETA, PlainBatch(X[first:last]))
        total += term * min(1.0, of_persons.record_bound / np.linalg.norm(term))
    np.testing.assert_allclose(found, total, atol=1e-9)


class TestRowsOfPersons:
    def test_rows_of_a_person_are_brought_together_in_their_order(self):
        order, starts = rows_of_persons(["b", "a", "b", "c", "a"], 5)
        assert [order[a:b].tolist() for a, b in itertools.pairwise(starts)] == [[0, 2], [1, 4], [3]]

    @pytest.mark.parametrize(
        "labels",
        [
            np.array([3, 1, 3, 2]),
            np.array(["x", "y", "x", "z"]),
            [("a", 1), "b", ("a", 1), 7],
            [1, "1", 1, 2.5],  # one type for all would be text, in which 1 and "1" are the same
            [2**53 + 1, 2**53, 2**53 + 1, 0.5],
            np.array(["x", 2, "x", None], dtype=object)[[0, 1, 2, 1]],
            np.array(["2020-01-01", "2021-01-01", "2020-01-01", "2022-01-01"], dtype="M8[D]"),
        ],
    )
    def test_any_hashable_label_will_do(self, labels):
        order, starts = rows_of_persons(labels, 4)
        assert sorted(np.arange(4)[order]) == [0, 1, 2, 3]
        assert {tuple(order[a:b]) for a, b in itertools.pairwise(starts)} >= {(0, 2)}

    @pytest.mark.parametrize(
        "labels",
        [
            [1, 2, 3],
            np.array([1.0, np.nan, 2.0, 3.0]),
            ["secret", None, "secret", "x"],
            np.array(["2020-01-01", "NaT"] * 2, dtype="M8[D]"),
            [["secret"], [1], [2], [3]],
            np.zeros((4, 2)),
            "secr",
            7,
        ],
    )
    def test_what_is_no_label_a_row_is_refused_and_not_quoted(self, labels):
        with pytest.raises(ValueError, match="groups") as error:
            rows_of_persons(labels, 4)
        assert "secret" not in str(error.value)

    def test_a_subset_depends_on_the_person_and_the_key_alone(self):
        groups = np.repeat(["ann", "bo", "cy"], [6, 9, 2])
        order, starts = rows_of_persons(groups, 17, most_rows=4, key=b"k")
        assert np.diff(starts).tolist() == [4, 4, 2]
        kept = order[starts[1] : starts[2]] - 6
        again, ends = rows_of_persons(groups[6:], 11, most_rows=4, key=b"k")
        np.testing.assert_array_equal(again[: ends[1]], kept)
        subsets = {tuple(rows_of_persons(groups[6:15], 9, 4, bytes([i]))[0]) for i in range(20)}
        assert len(subsets) > 10

    @pytest.mark.parametrize("kind", ["i1", "u1", "i4", "u4", "i8", "u8"])
    def test_integers_of_a_short_range_and_of_a_long_one_are_told_apart_alike(self, kind):
        info = np.iinfo(kind)
        ends = [[info.min, info.min + 3, info.min], [info.max, info.max - 2, info.max]]
        for labels in (*ends, [info.max, info.min, info.max]):
            labels = np.array(labels * 30, dtype=kind)
            order, starts = rows_of_persons(labels, 90)
            np.testing.assert_array_equal(order, np.argsort(labels, kind="stable"))
            assert starts.tolist() == [0, *np.cumsum(np.unique(labels, return_counts=True)[1])]
            assert labels[order].dtype == labels.dtype
            kept, _ = rows_of_persons(labels, 90, most_rows=7, key=b"k")
            by_name = [(kind, int(label)) for label in labels]  # the way of other labels
            assert len(kept) == len(rows_of_persons(by_name, 90, most_rows=7)[0]) == 14

    def test_persons_who_lie_together_already_are_not_moved(self):
        order, starts = rows_of_persons(np.array([3, 3, 5, 9, 9]), 5)
        assert order == slice(None)
        assert starts.tolist() == [0, 2, 3, 5]
        order, _ = rows_of_persons(np.array([3, 3, 5, 9, 3]), 5)
        assert order.tolist() == [0, 1, 4, 2, 3]

    def test_a_million_persons_take_a_second(self):
        order, starts = rows_of_persons(np.arange(10**6) % 500_000, 10**6)
        assert len(starts) == 500_001
        assert (np.diff(starts) == 2).all()
        assert (order[:2] == [0, 500_000]).all()
