"""Weights of rows and classes in linear models: repetitions, within the declared sensitivity."""

import itertools
import math
import pickle

import numpy as np
import pytest
from engine.test_persons import SUMS, UNIT, D, R
from refusals import refused
from scipy.sparse import csr_array
from sklearn import config_context
from sklearn.pipeline import make_pipeline

from skdp import (
    BoundedScaler,
    DPAdditiveClassifier,
    DPAdditiveRegressor,
    DPVariationalLinearRegression,
    DPVariationalLogisticRegression,
    DPVariationalPoissonRegression,
    Persons,
)
from skdp.data import ChunkedRows
from skdp.engine import release_hook
from skdp.engine.linear_sums import GramSum, ScoreGramSum, of_weights
from skdp.relations import RELATIONS
from skdp.rows.records import LinearRows
from skdp.testing import fixed_streams

W, INF = 3.0, math.inf
RNG = np.random.default_rng(0)
TABLE = RNG.normal(size=(60, D)) * RNG.lognormal(size=(60, 1)), RNG.choice([0.0, 1.0, -2.0], 60)
ROW_WEIGHTS = RNG.uniform(0.0, W, 60)


def batch(X, y, weights=None, starts=None):
    """Rows with weights over W, as a run makes them."""
    return LinearRows(
        X,
        y[:, None],
        data_norm=R,
        fit_intercept=False,
        target_bounds=(0.0, 1.0),
        starts=starts,
        weights=None if weights is None else weights / W,
    ).take(slice(None))


def weighted(inner):
    """Sum for weights up to W; of scatter, the scores are what has weights."""
    if isinstance(inner, ScoreGramSum):
        return ScoreGramSum(of_weights(inner.scores, W))
    return of_weights(inner, W)


@pytest.mark.parametrize("name", SUMS)
class TestSums:
    def test_clipped_terms_are_multiplied(self, name):
        inner, theta = SUMS[name]
        rows, total = batch(*TABLE, ROW_WEIGHTS), weighted(inner)
        factors = ROW_WEIGHTS ** (2 if isinstance(inner, ScoreGramSum) else 1)
        terms = factors[:, None] * inner.records(theta, batch(*TABLE))
        np.testing.assert_allclose(total.records(theta, rows), terms, rtol=1e-12, atol=1e-12)
        whole = np.asarray(total(theta, rows))
        if name == "pairs":
            whole = whole.reshape(-1)
        np.testing.assert_allclose(whole.ravel(), terms.sum(axis=0), rtol=1e-9, atol=1e-9)

    def test_rows_keep_their_weights_in_chunks(self, name):
        inner, theta = SUMS[name]
        rows, total = batch(*TABLE, ROW_WEIGHTS), weighted(inner)
        parts = np.concatenate([total.records(theta, chunk) for chunk in rows.chunks(7)])
        np.testing.assert_allclose(parts, total.records(theta, rows), rtol=1e-12, atol=1e-12)

    def test_a_record_moves_the_sum_by_its_bound_and_no_more(self, name):
        inner, theta = SUMS[name]
        total = weighted(inner)
        power = 2 if isinstance(inner, ScoreGramSum) else 1
        for relation in RELATIONS:
            expected = W**power * inner.sensitivity(relation)
            assert total.sensitivity(relation) == pytest.approx(expected, rel=1e-12)
        for weight in (W, 1e9, INF, np.nan, -5.0):  # whatever the caller checked
            terms = total.records(theta, batch(*TABLE, np.full(60, weight)))
            assert np.linalg.norm(terms, axis=1).max() <= total.record_bound * (1 + 1e-12)
        terms = total.records(theta, batch(*TABLE, ROW_WEIGHTS))
        apart = np.linalg.norm(terms[:, None] - terms[None], axis=2).max()
        assert apart <= total.moved_by("replace_one") * (1 + 1e-12)

    def test_persons_are_clipped_after_the_weights_of_their_rows(self, name):
        inner, theta = SUMS[name]
        starts = np.array([0, 1, 5, 5, 30, 60])
        total = weighted(inner).of_persons(UNIT)
        found = total.records(theta, batch(*TABLE, ROW_WEIGHTS, starts))
        assert np.linalg.norm(found, axis=1).max() <= total.record_bound * (1 + 1e-9)
        if isinstance(inner, GramSum | ScoreGramSum):
            return  # scaled by their traces; see tests/engine/test_persons.py
        assert total.record_bound == pytest.approx(W * inner.of_persons(UNIT).record_bound)
        rows = ROW_WEIGHTS[:, None] * inner.records(theta, batch(*TABLE))
        for person, (first, last) in enumerate(itertools.pairwise(starts)):
            term = rows[first:last].sum(axis=0)
            term *= min(1.0, total.record_bound / max(np.linalg.norm(term), 1e-300))
            np.testing.assert_allclose(found[person], term, rtol=1e-9, atol=1e-12)


N = 240
X = RNG.uniform(-1, 1, (N, 2))
WEIGHTS = RNG.integers(0, 4, N).astype(float)
AGAIN = np.repeat(np.arange(N), WEIGHTS.astype(int))
COLUMNS = {"bounds": [(-1, 1), (-1, 1)], "edges": None, "n_bins": 3}
Y = {
    "classes": (X[:, 0] + RNG.logistic(0, 0.3, N) > 0).astype(int),
    "three classes": np.digitize(X[:, 0] + RNG.logistic(0, 0.2, N), [-0.4, 0.4]),
    "numbers": 3 + 2 * X[:, 0] + RNG.normal(0, 0.3, N),
    "counts": RNG.poisson(np.exp(0.5 + X[:, 1])).astype(float),
}
PLAIN = {"robust": False}  # squares of scores have squares of weights
MODELS = {
    "logistic": (DPVariationalLogisticRegression, "classes", {"classes": [0, 1]}),
    "softmax": (DPVariationalLogisticRegression, "three classes", {"classes": [0, 1, 2]}),
    "linear": (DPVariationalLinearRegression, "numbers", {"target_bounds": (-5, 10)}),
    "unbounded": (DPVariationalLinearRegression, "numbers", {}),
    "Poisson": (DPVariationalPoissonRegression, "counts", {"largest_count": 20, **PLAIN}),
    "additive": (DPAdditiveClassifier, "classes", {"classes": [0, 1], **COLUMNS}),
    "additive regression": (
        DPAdditiveRegressor, "numbers", {"target_bounds": (-5, 10), **COLUMNS},
    ),
}  # fmt: skip
LINEAR = [name for name in MODELS if "additive" not in name]


def model(name, epsilon=INF, **given):
    kind, _, facts = MODELS[name]
    return kind(epsilon, **{"n_samples": N, **facts, **given})


def targets(name):
    return Y[MODELS[name][1]]


def assert_same(fitted, other, rtol):
    q, p = fitted._posterior, other._posterior
    np.testing.assert_allclose(q.mean, p.mean, rtol=rtol, atol=rtol)
    deviation = np.sqrt(np.diag(p.covariance))
    off = (q.covariance - p.covariance) / np.outer(deviation, deviation)
    assert np.abs(off).max() < 10 * rtol


class TestFits:
    @pytest.mark.parametrize("name", MODELS)
    def test_without_privacy_weights_are_repetitions(self, name):
        y = targets(name)
        rows = model(name, max_sample_weight=W).fit(X, y, sample_weight=WEIGHTS)
        assert_same(rows, model(name, n_samples=len(AGAIN)).fit(X[AGAIN], y[AGAIN]), 1e-6)

    @pytest.mark.quick(3)
    @pytest.mark.parametrize("name", [*MODELS, "dpvi", "no intercept"])
    def test_with_the_same_noise_weights_are_repetitions(self, name):
        more = {"neighboring_relation": "add_or_remove_one"}
        name, special = (name, {}) if name in MODELS else ("logistic", name)
        n = N
        if special == "dpvi":
            more |= {"inference": "dpvi", "max_iter": 40, "learning_rate": 0.1}
        elif special:  # nothing tells how many rows there are
            more, n = more | {"fit_intercept": False}, len(AGAIN)
        y = targets(name)
        with fixed_streams():
            rows = model(name, None, max_sample_weight=W, n_samples=n, **more)
            rows.set_params(noise_multiplier=0.01).fit(X, y, sample_weight=WEIGHTS)
        with fixed_streams():
            again = model(name, None, n_samples=N if special == "dpvi" else len(AGAIN), **more)
            again.set_params(noise_multiplier=0.01 * W).fit(X[AGAIN], y[AGAIN])
        # Draws on grids differ where sums differ by their last digits.
        assert_same(rows, again, 1e-4 if special == "dpvi" else 0.06)

    def test_the_scatter_of_scores_is_that_of_weighted_ones(self):
        # As of survey weights: one row of weight 2 scatters more than two of weight 1.
        y = targets("linear")
        fitted = model("linear", robust=True, max_sample_weight=W).fit(X, y, sample_weight=WEIGHTS)
        A = np.column_stack([X, np.ones(N)])
        theta = np.linalg.solve(A.T @ (WEIGHTS[:, None] * A), A.T @ (WEIGHTS * y))
        scores = (WEIGHTS * (y - A @ theta))[:, None] * A
        bread = np.linalg.inv(A.T @ (WEIGHTS[:, None] * A))
        sandwich = bread @ (scores.T @ scores) @ bread
        np.testing.assert_allclose(fitted.covariance_[:3, :3], sandwich, rtol=0.1, atol=1e-5)

    def test_weights_of_classes_are_those_of_their_rows(self):
        for name in ("logistic", "softmax", "additive"):
            y, by_class = targets(name), {0: 0.5, 1: 3.0}
            classes = model(name, class_weight=by_class, max_sample_weight=W)
            rows = model(name, max_sample_weight=3.0 * W)
            factors = np.select([y == 0, y == 1], [0.5, 3.0], 1.0)
            classes.fit(X, y, sample_weight=WEIGHTS)
            assert_same(classes, rows.fit(X, y, sample_weight=factors * WEIGHTS), 1e-9)

    @pytest.mark.quick(6)
    @pytest.mark.parametrize("relation", RELATIONS)
    @pytest.mark.parametrize("name", MODELS)
    def test_the_noise_is_for_the_largest_weight(self, name, relation):
        taped, y = [], targets(name)
        plan = {"noise_multiplier": 0.5, "neighboring_relation": relation}
        plan |= {"clip_norm": 0.5, "max_iter": 2} if name in LINEAR else {}
        for given in ({}, {"max_sample_weight": W}):
            with release_hook.record() as tape:
                weights = {"sample_weight": WEIGHTS} if given else {}
                fitted = model(name, None, **plan, **given).fit(X, y, **weights)
            numbers = [(r.call.scale, r.call.sensitivity) for r in tape]
            taped.append((fitted.privacy_.epsilon, np.array(numbers)))
        assert taped[1][0] == taped[0][0]
        np.testing.assert_allclose(taped[1][1] / taped[0][1], W, rtol=1e-9)

    @pytest.mark.parametrize(
        ("name", "plan"),
        [
            ("logistic", {"max_iter": 3}),
            ("logistic", {"max_iter": 3, "secure": True, "robust": True}),
            ("logistic", {"max_iter": 3, "inference": "dpvi", "sampling_rate": 0.5}),
            ("logistic", {"unit": Persons(60), "max_iter": 3}),
            ("softmax", {"max_iter": 4}),
            ("linear", {"max_iter": 2}),
            ("unbounded", {"max_iter": 2, "unit": Persons(60)}),
            ("Poisson", {"max_iter": 2}),
        ],
    )
    def test_with_the_releases_frozen_nothing_depends_on_the_weights(self, name, plan):
        y = targets(name)
        groups = np.arange(N) // 4 if "unit" in plan else None

        def fit(weights):
            fitted = model(name, 1.0, max_sample_weight=W, **plan)
            fitted.fit(X, y, groups=groups, sample_weight=weights)
            return pickle.dumps(vars(fitted)), repr(fitted.privacy_)

        with fixed_streams():
            with release_hook.record() as tape:
                first = fit(WEIGHTS)
            for other in (np.zeros(N), np.full(N, W), np.roll(WEIGHTS, 1)):
                with release_hook.replay([release.output for release in tape]) as again:
                    assert fit(other) == first
                assert [r.call for r in again] == [r.call for r in tape]

    def test_secure_sums_are_of_weighted_terms(self):
        y = targets("logistic")
        plan = {"noise_multiplier": 1e-4, "max_sample_weight": W, "max_iter": 5}
        found = [
            model("logistic", None, secure=secure, **plan).fit(X, y, sample_weight=WEIGHTS)
            for secure in (False, True)
        ]
        assert_same(*found, 0.05)

    @pytest.mark.parametrize("name", LINEAR)
    def test_sparse_rows_have_weights_too(self, name):
        more = {"noise_multiplier": 1e-6, "max_sample_weight": W}
        found = []
        for rows in (X, csr_array(X)):
            with fixed_streams():
                fitted = model(name, None, **more)
                found.append(fitted.fit(rows, targets(name), sample_weight=WEIGHTS))
        assert_same(*found, 1e-3)

    def test_weights_stay_with_the_rows_of_persons(self):
        y, groups = targets("logistic"), RNG.permutation(np.arange(N) % 60)
        facts = {"unit": Persons(60, rows_per_group=4), "robust": False}
        persons = model("logistic", max_sample_weight=W, **facts)
        persons.fit(X, y, groups, sample_weight=WEIGHTS)
        rows = model("logistic", max_sample_weight=W).fit(X, y, sample_weight=WEIGHTS)
        assert_same(persons, rows, 1e-6)

    def test_rows_in_chunks_have_weights_of_classes(self):
        y = targets("softmax")
        chunks = ChunkedRows(lambda i: (X[i::3], y[i::3]), 3)
        for epsilon in (INF, None):
            given = {"class_weight": {1: 3.0}, "neighboring_relation": "add_or_remove_one"}
            given |= {} if epsilon else {"noise_multiplier": 1e-6}
            found, other = (model("softmax", epsilon, **given) for _ in range(2))
            found.fit(chunks), other.fit(X, y)
            if epsilon:
                assert_same(found, other, 1e-6)
            else:  # draws, of which rounding decides some
                off = found._posterior.mean - other._posterior.mean
                deviation = np.sqrt(np.diag(other.covariance_)).reshape(off.shape)
                assert (np.abs(off) < 0.5 * deviation).all()

    def test_pipelines_pass_weights_on_by_routing(self):
        y = targets("logistic")
        with config_context(enable_metadata_routing=True):
            last = model("logistic", max_sample_weight=W).set_fit_request(sample_weight=True)
            pipeline = make_pipeline(BoundedScaler(-1, 1), last)
            pipeline.fit(X, y, sample_weight=WEIGHTS)
            asleep = make_pipeline(BoundedScaler(-1, 1), model("logistic", max_sample_weight=W))
            with pytest.raises(ValueError, match="metadata routing"):
                asleep.fit(X, y)
        direct = model("logistic", max_sample_weight=W).fit(X, y, sample_weight=WEIGHTS)
        assert_same(pipeline[-1], direct, 1e-9)

    @pytest.mark.parametrize("name", MODELS)
    def test_weights_beyond_the_bound_are_refused_unquoted(self, name):
        for weights in (
            -np.ones(N), np.full(N, 1.01), np.full(N, np.nan), np.full(N, INF), np.ones(N - 1),
            np.ones((N, 2)), ["a"] * N,
        ):  # fmt: skip
            with refused("sample_w") as refusal:
                model(name, 1.0).fit(X, targets(name), sample_weight=weights)
            assert "1.01" not in str(refusal.value)

    def test_what_cannot_be_known_or_used_is_refused(self):
        y, chunks = targets("logistic"), ChunkedRows(lambda i: (X, targets("logistic")), 1)
        for given, weights, message in [
            ({"class_weight": "balanced"}, None, "1 / \\(n_classes"),
            ({"class_weight": {2: 3.0}}, None, "keys are classes"),
            ({"class_weight": {1: -3.0}}, None, "class_weight=.* finite numbers >= 0"),
            ({"class_weight": {0: 0, 1: 0}}, None, "class_weight=.* whose largest"),
            ({"max_sample_weight": 0.0}, WEIGHTS, "max_sample_weight"),
            ({"max_sample_weight": 2.0}, None, "metadata routing"),
        ]:
            with refused(message):
                model("logistic", 1.0, **given).fit(X, y, sample_weight=weights)
        with refused("None for rows in chunks"):
            model("logistic", 1.0).fit(chunks, sample_weight=np.ones(N))

    @pytest.mark.parametrize("name", ["logistic", "additive"])
    def test_the_posterior_is_of_what_the_weights_come_to(self, name, monkeypatch):
        # By a noisy sum of them: nobody declares it. Chains, and scales of priors, are drawn.
        monkeypatch.setattr("skdp.algorithms.parts.logit_posterior.ENOUGH", 0.0)
        rng = np.random.default_rng(1)
        rows = rng.uniform(-1, 1, (20000, 2))
        y = (rng.random(20000) < 1 / (1 + np.exp(4 - 3 * rows[:, 0]))).astype(int)
        for weight, most in ((0.25, 1.0), (4.0, 4.0)):
            with fixed_streams():
                found, exact = (
                    model(name, epsilon, n_samples=20000, max_sample_weight=most)
                    .fit(rows, y, sample_weight=np.full(20000, weight))
                    ._posterior.covariance.diagonal()
                    for epsilon in (40.0, INF)
                )
            assert (np.abs(np.sqrt(found / exact) - 1.0) < 0.1).all()
