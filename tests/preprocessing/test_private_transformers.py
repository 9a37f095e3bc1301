"""What holds for every private transformer."""

import numpy as np
import pytest
from bundles import bundled
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.pipeline import make_pipeline

from skdp import PrivacyLedger, PrivacyWarning
from skdp.engine import release_hook
from skdp.preprocessing import DPPCA, DPQuantileScaler, DPStandardScaler, NormClipper
from skdp.privacy.events import GaussianTerm, terms_of
from skdp.relations import RELATIONS
from skdp.rows.bounds import BoundedRows, row_norm
from skdp.testing._checks import check_ledger

PRIVATE = [DPStandardScaler, DPQuantileScaler, DPPCA]
TAKE_NAN = [DPStandardScaler, DPQuantileScaler]
ROWS = np.random.default_rng(0).uniform(-1, 1, (200, 3))

each = pytest.mark.parametrize("kind", PRIVATE)


class TestCharge:
    @each
    @pytest.mark.parametrize("relation", RELATIONS)
    @pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
    def test_the_report_says_the_epsilon_that_was_asked(self, kind, relation, epsilon):
        report = kind(epsilon=epsilon, neighboring_relation=relation).fit(ROWS).privacy_
        assert 0.998 * epsilon <= report.epsilon <= epsilon
        assert report.neighboring_relation == relation
        assert report.inferred_public_facts == ()
        assert report.valid

    @each
    @pytest.mark.parametrize("relation", RELATIONS)
    def test_the_event_in_the_ledger_is_the_trace(self, kind, relation):
        check_ledger(kind(neighboring_relation=relation))

    @each
    def test_a_plan_without_the_number_of_features_names_it(self, kind):
        with pytest.raises(ValueError, match="n_features"):
            kind().plan()

    @pytest.mark.parametrize("kind", TAKE_NAN)
    def test_bounds_for_each_feature_tell_how_many_there_are(self, kind):
        plan = kind([0, 0, 0], 5.0).plan()
        assert plan.facts.n_features == 3
        assert plan.event == kind(0.0, 5.0).fit(ROWS).privacy_.event
        with pytest.raises(ValueError, match=r"Expected lower=.* 4 features"):
            kind([0, 0, 0], 5.0).plan(n_features=4)

    @pytest.mark.parametrize("kind", [DPStandardScaler, DPPCA])
    def test_a_given_noise_multiplier_is_accounted(self, kind):
        fitted = kind(epsilon=None, noise_multiplier=4.0).fit(ROWS)
        assert fitted.noise_multiplier_ == 4.0
        (term,) = terms_of(fitted.privacy_.event)
        assert term == GaussianTerm(4.0, 1.0, 1)

    @each
    def test_the_noise_is_new_with_every_fit(self, kind):
        one, two = ([], [])
        for outputs in (one, two):
            with release_hook.record() as tape:
                kind().fit(ROWS)
            outputs.extend(np.ravel(release.output) for release in tape)
        assert not np.isin(np.concatenate(one), np.concatenate(two)).any()


# Beyond what no transformer takes, which tests/contracts has.
BOUNDS = {
    "lower": [[0, 0], 2e9, [-1, -1, float("-inf")], -1e200, [[0] * 3]],
    "upper": ["a", [1, 1], [1, 1, "b"], 1e200],
}
BAD = [(kind, {n: v}, n) for kind in TAKE_NAN for n, values in BOUNDS.items() for v in values]
BAD += [(DPQuantileScaler, {"resolution": v}, "resolution") for v in (0, -1, "auto", None, 1e200)]
BAD += [(DPStandardScaler, {"delta": 0}, "delta"), (DPQuantileScaler, {"epsilon": 1e-9}, "epsilon")]


@bundled(("kind", "parameters", "name"), BAD)
def test_a_bad_parameter_is_named_and_nothing_spent(kind, parameters, name):
    transformer = kind(**parameters)
    with (
        PrivacyLedger() as ledger,
        release_hook.record() as tape,
        pytest.raises(ValueError, match=f"Expected {name}="),
    ):
        transformer.fit(ROWS)
    assert ledger.entries == ()
    assert not tape
    assert vars(transformer) == vars(kind(**parameters))


class TestInput:
    @each
    @pytest.mark.parametrize("epsilon", [1.0, float("inf")])
    def test_each_row_is_transformed_by_itself(self, kind, epsilon):
        fitted = kind(epsilon=epsilon).fit(ROWS)
        rows = np.vstack([ROWS[:5], [[1e300, -1e300, 5e-324]]])
        whole = np.asarray(fitted.transform(rows))
        for i, row in enumerate(rows):
            np.testing.assert_allclose(np.asarray(fitted.transform([row]))[0], whole[i], atol=1e-14)


class TestSeed:
    @each
    def test_seeded_fits_on_neighbours_share_no_noise(self, kind):
        neighbour = ROWS.copy()
        neighbour[0, 0] += 1e-9
        found = []
        for X in (ROWS, neighbour):
            with release_hook.record() as tape, pytest.warns(PrivacyWarning):
                kind(random_state=0).fit(X)
            found.append(np.concatenate([np.ravel(release.output) for release in tape]))
        assert not (found[0] == found[1]).any()


class TestScikitLearn:
    @each
    def test_callbacks_are_told_of_the_fit_and_see_no_data(self, kind):
        pytest.importorskip("sklearn.callback")
        told = []

        class Recorder:
            def setup(self, estimator, context):
                told.append("setup")

            def teardown(self, estimator, context):
                told.append("teardown")

            def on_fit_task_begin(self, estimator, context, *, X=None, y=None):
                told.append((context.task_name, X, y))

            def on_fit_task_end(self, estimator, context, *, X=None, y=None):
                told.append((context.task_name, X, y))

        transformer = kind().set_callbacks(Recorder()).fit(ROWS)
        n_releases = 6 if kind is DPQuantileScaler else 1
        steps = [("noisy step", None, None)] * (2 * n_releases)
        assert told == ["setup", ("fit", None, None), *steps, ("fit", None, None), "teardown"]
        assert "_callback_fit_ctx" not in vars(transformer)


class Spy(TransformerMixin, BaseEstimator):
    """Notes the norm that its rows declare."""

    def fit(self, X, y=None):
        self.is_bounded_, self.norm_ = isinstance(X, BoundedRows), row_norm(X)
        return self

    def transform(self, X):
        return X


class TestDeclaredNorm:
    @pytest.mark.parametrize(
        ("transformer", "norm"),
        [
            (NormClipper(norm=0.7), 0.7),
            (DPStandardScaler(output_norm=2.5), 2.5),
            (DPStandardScaler(), 3**0.5),
            (DPQuantileScaler(), 3**0.5),
            (DPPCA(data_norm=0.9), 0.9),
        ],
        ids=["clipper", "standard", "standard-auto", "quantile", "pca"],
    )
    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_the_next_step_is_told_the_norm_and_it_is_true(self, transformer, norm, dtype):
        X = (3 * ROWS).astype(dtype)
        pipeline = make_pipeline(clone(transformer), Spy()).fit(X)
        assert pipeline[-1].is_bounded_
        assert pipeline[-1].norm_ == norm
        rows = np.asarray(pipeline.transform(X), dtype=np.float64)
        tolerance = 1e-13 if dtype == np.float64 else 1e-6
        assert np.linalg.norm(rows, axis=1).max() <= norm * (1 + tolerance)

    def test_a_whole_pipeline_of_private_steps(self):
        X = ROWS.copy()
        X[::9, 2] = np.nan
        with PrivacyLedger() as ledger:
            pipeline = make_pipeline(DPQuantileScaler(), DPStandardScaler(), DPPCA(2)).fit(X)
        labels = [entry.label for entry in ledger.entries]
        assert labels == ["DPQuantileScaler", "DPStandardScaler", "DPPCA"]
        assert pipeline[-1].data_norm_ == 3**0.5
        assert pipeline.transform(X).shape == (200, 2)
