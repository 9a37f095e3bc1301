import math
import pickle
import warnings
from dataclasses import KW_ONLY, dataclass
from unittest import mock

import joblib
import numpy as np
import pandas as pd
import pytest
import torch
from bundles import bundled
from dp_accounting.dp_event import RepeatAndSelectDpEvent
from hypothesis import given
from hypothesis import strategies as st
from reference.private_sum import PrivateSum, SumConfig
from scipy.stats import beta, loguniform, norm
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.compose import TransformedTargetRegressor, make_column_transformer
from sklearn.metrics import accuracy_score, log_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from skdp import (
    BoundedScaler,
    DPSGDClassifier,
    DPVariationalLinearRegression,
    DPVariationalLogisticRegression,
    PrivacyWarning,
)
from skdp.calibration import DPTemperatureScaler
from skdp.engine import release_hook
from skdp.fitting.streams import Streams
from skdp.mechanisms import GaussianMechanism
from skdp.model_selection import DPRandomizedSearch, _scores
from skdp.model_selection._candidates import selection, trial_mu
from skdp.model_selection.trial_law import TrialLaw
from skdp.preprocessing import DPStandardScaler
from skdp.privacy import (
    BudgetExceededError,
    PrivacyLedger,
    epsilon_of_event,
    epsilon_to_gdp,
    gdp_to_epsilon,
    privacy_of,
)
from skdp.privacy.events import gdp_event, terms_of

RNG = np.random.default_rng(0)
N = 200
X = RNG.uniform(-1, 1, (N, 2))
Y = (X[:, 0] > 0).astype(int)


@dataclass(eq=False, repr=False)
class NoisySum(PrivateSum):
    """A noisy sum that shifts its score, speaks, or fails."""

    _: KW_ONLY
    shift: float = 0.0
    fails: str = "never"
    verbose: int = 0

    def _read(self, X, y):
        self._cheats = self.fails == "cheats" and np.asarray(X).any()
        return super()._read(X, y)

    def _configure(self, facts, budget):
        config = super()._configure(facts, budget)
        if getattr(self, "_cheats", False):
            return SumConfig(GaussianMechanism(1.0, config.mechanism.scale / 2))
        return config

    def _keep(self, plan, released):
        if self.verbose:
            print("fitting")
        warnings.warn("a trial", UserWarning, stacklevel=2)
        if self.fails == "always":
            raise ValueError(f"a release is {released}")
        super()._keep(plan, released)


def largest(estimator, X, y):
    """A scorer that makes the selection leak all it can."""
    return estimator.total_ + estimator.shift


def search(estimator=None, distributions=None, **settings):
    estimator = NoisySum() if estimator is None else estimator
    settings = {"epsilon": 2.0, "mean_trials": 5, "n_samples": N, **settings}
    return DPRandomizedSearch(estimator, distributions or {"shift": [0.0]}, **settings)


def logistic(**settings):
    return DPVariationalLogisticRegression(classes=[0, 1], **{"max_iter": 1, **settings})


PUBLIC = {"X_public": X[:5], "y_public": Y[:5]}


def public_fit(what, rows=X):
    return what.set_params(scoring=largest).fit(rows, **PUBLIC)


# --- what it costs ------------------------------------------------------------------------------


@pytest.mark.thorough
@bundled("relation", ["zero_out", "add_or_remove_one", "replace_one"])
@bundled("shape", [0.0, 1.0, math.inf])
def test_the_search_costs_what_was_asked_for(relation, shape):
    model = logistic(neighboring_relation=relation, inference="dpvi")
    distributions = {"prior_scale": loguniform(0.5, 5), "max_iter": [1, 2]}
    fitted = search(
        model, distributions, shape=shape, neighboring_relation=relation, mean_trials=40
    ).fit(X, Y)
    assert 0.9999 * 2.0 < fitted.privacy_.epsilon <= 2.0
    assert fitted.privacy_.accountant == "rdp"
    assert fitted.privacy_.valid
    assert fitted.privacy_.neighboring_relation == relation
    assert isinstance(fitted.privacy_.event, RepeatAndSelectDpEvent)
    assert "mean 40" in fitted.privacy_.tuning
    assert fitted.trial_epsilon_ < 2.0


def test_trials_and_their_scores_are_within_the_base_event():
    with release_hook.record() as tape:
        fitted = search(logistic(), {"prior_scale": [1.0, 2.0]}, score_share=0.3).fit(X, Y)
    (base,) = terms_of(fitted.privacy_.event.event)
    scores = [r for r in tape if r.call.kind == "gaussian" and r.call.sensitivity == 0.5]
    of_score = (scores[0].call.sensitivity / scores[0].call.scale) ** 2
    of_fit = sum((r.call.sensitivity / r.call.scale) ** 2 for r in tape) / len(scores) - of_score
    of_base = 1 / base.noise_multiplier**2
    assert of_score + of_fit <= of_base
    assert of_score == pytest.approx(0.3 * of_base, rel=1e-5)  # what is left open for rounding
    assert of_fit == pytest.approx(0.7 * of_base, rel=1e-5)


def test_scores_on_public_rows_cost_nothing():
    with release_hook.record() as tape:
        fitted = public_fit(search())
    assert all(r.call.sensitivity == 1.0 for r in tape)
    assert fitted.best_score_ == fitted.best_estimator_.total_
    whole = gdp_to_epsilon(1 / fitted.privacy_.event.event.noise_multiplier, 1e-5)
    assert fitted.trial_epsilon_ == pytest.approx(whole, rel=1e-6)


@pytest.mark.thorough
def test_random_batches_share_one_event():
    network = DPSGDClassifier(
        hidden_layer_sizes=(), sampling_rate=0.1, max_iter=2, classes=[0, 1], n_samples=N
    )
    fitted = search(network, {"learning_rate": loguniform(1e-3, 1)}).fit(X, Y)
    assert 0.998 * 2.0 < fitted.privacy_.epsilon <= 2.0
    assert fitted.best_estimator_.sampling_rate_ == 0.1
    with pytest.raises(ValueError, match="sampling_rate change what is charged"):
        search(network, {"sampling_rate": [0.1, 0.2]}).fit(X, Y)
    full = clone(network).set_params(sampling_rate=1.0)
    assert search(full, {"max_iter": [3, 5, 8]}).fit(X, Y).privacy_.valid


@pytest.mark.thorough
def test_what_the_winner_assumes_is_assumed_of_the_search():
    plan = {"sampling_rate": 1.0, "max_iter": 3, "classes": [0, 1], "n_samples": N}
    network = DPSGDClassifier(module=torch.nn.Linear(X.shape[1], 2), **plan)
    fitted = search(network, {"learning_rate": [0.1, 0.2]}).fit(X, Y)
    assert len(fitted.privacy_.assumptions) == 1
    assert fitted.privacy_.assumptions == fitted.best_estimator_.privacy_.assumptions


def test_discrete_noise_of_another_number_of_releases_is_another_price():
    # On full batches: what to change is the noise, or what is searched.
    model = logistic(secure=True)
    with pytest.raises(ValueError, match="max_iter change what is charged") as error:
        search(model, {"max_iter": [1, 2]}).fit(X, Y)
    assert "random batches" not in str(error.value)
    assert "secure=False" in str(error.value)
    assert search(model, {"prior_scale": [1.0, 2.0]}).fit(X, Y).privacy_.valid


def test_a_ceiling_refuses_the_search_before_a_row_is_used():
    what = search(logistic(), {"prior_scale": [1.0]})
    ledger = PrivacyLedger(epsilon=1.9, delta=1e-5)
    with ledger, release_hook.record() as tape, pytest.raises(BudgetExceededError):
        what.fit(X, Y)
    assert (ledger.entries, tape) == ((), [])


def test_a_fit_that_spends_more_than_its_plan_voids_the_search():
    cheat = search(NoisySum(fails="cheats"))
    with pytest.raises(RuntimeError, match="had not planned, or more of one"):
        public_fit(cheat)
    assert not hasattr(cheat, "best_estimator_")


@pytest.mark.filterwarnings("ignore::skdp.PrivacyWarning")
def test_without_a_budget_it_is_the_plain_search():
    fitted = search(logistic(), {"max_iter": [1]}, epsilon=math.inf, mean_trials=1).fit(X, Y)
    assert fitted.privacy_.epsilon == math.inf
    assert not fitted.privacy_.valid
    assert fitted.best_score_ == pytest.approx(fitted.score(X, Y))


# --- what leaves --------------------------------------------------------------------------------


def test_what_would_tell_of_other_trials_is_not_there_on_purpose():
    fitted = public_fit(search())
    for name in ("cv_results_", "best_index_", "n_splits_", "refit_time_"):
        with pytest.raises(AttributeError, match="on purpose"):
            getattr(fitted, name)


def with_trials(n_trials, what):
    """Fit with a given number of trials, and all streams frozen."""
    with (
        mock.patch.object(TrialLaw, "draw", return_value=n_trials),
        mock.patch("skdp.model_selection._trials.Streams", side_effect=lambda *_: Streams(b"s")),
        mock.patch("skdp.fitting.charge.streams", side_effect=lambda *_: Streams(b"fit")),
    ):
        return public_fit(what)


def test_the_number_of_trials_is_nowhere():
    few, many = (with_trials(k, search()) for k in (2, 41))
    assert pickle.dumps(few) == pickle.dumps(many)
    assert repr(few.privacy_) == repr(many.privacy_)
    public = {
        "best_estimator_", "best_params_", "best_score_", "scorer_", "trial_epsilon_", "privacy_",
        "_parts",
    }  # fmt: skip
    assert vars(few).keys() - few.get_params(deep=False).keys() == public


def test_trials_are_silent(capfd, recwarn):
    public_fit(search(NoisySum(verbose=1), mean_trials=20))
    assert capfd.readouterr() == ("", "")
    assert not recwarn.list


class Threaded(NoisySum):
    """Runs something of its own by joblib, and warns before it is charged."""

    def fit(self, X, y):
        warnings.warn("a fit", UserWarning, stacklevel=2)
        joblib.Parallel()(joblib.delayed(abs)(i) for i in range(3))
        return super().fit(X, y)


@pytest.mark.filterwarnings("always:a fit")
@pytest.mark.parametrize("n_jobs", [None, 2])
def test_no_report_of_joblib_and_no_warning_counts_trials(capfd, recwarn, n_jobs):
    def said(n_trials):
        recwarn.clear()
        with joblib.parallel_config("threading", verbose=100):
            shifts = {"shift": norm()}
            with_trials(n_trials, search(Threaded(), shifts, n_jobs=n_jobs))
        # Plans that do not depend on the number of trials may be heard of, with how long they took.
        return [len(text.splitlines()) for text in capfd.readouterr()], len(recwarn)

    assert said(2) == said(9)


def test_only_the_winner_is_kept_and_it_won():
    fitted = search(NoisySum(), {"shift": [0.0, 1e9]}, mean_trials=60, shape=math.inf)
    fitted = public_fit(fitted)  # all of 60 trials without the shift: 2^-60
    assert fitted.best_params_ == {"shift": 1e9}
    assert fitted.best_estimator_.shift == 1e9
    assert fitted.best_score_ == pytest.approx(1e9, abs=1e6)
    assert pickle.dumps(fitted).count(b"total_") == 1


def test_the_winner_states_the_price_of_the_search():
    model = make_pipeline(DPStandardScaler(-1, 1), logistic())
    distributions = {"dpvariationallogisticregression__max_iter": [1, 2]}
    fitted = search(model, distributions).fit(X, Y)
    best = fitted.best_estimator_
    assert best[0].privacy_ is best[1].privacy_ is fitted.privacy_
    assert fitted.privacy_.epsilon <= privacy_of(best).epsilon
    assert privacy_of(fitted).epsilon == fitted.privacy_.epsilon
    again = pickle.loads(pickle.dumps(fitted))
    assert again.best_estimator_[0].privacy_ is again.privacy_
    np.testing.assert_array_equal(again.predict_proba(X), fitted.predict_proba(X))
    assert fitted.n_features_in_ == 2
    assert list(fitted.classes_) == [0, 1]


def test_a_wrapper_that_composes_states_the_price_of_the_search_in_every_report():
    model = DPTemperatureScaler(logistic(), max_iter=2)
    fitted = search(model, {"estimator__prior_scale": [1.0, 3.0]}).fit(X, Y)
    best = fitted.best_estimator_
    assert best.privacy_ is best.temperature_privacy_ is fitted.privacy_
    assert best.estimator_.privacy_ is fitted.privacy_


@pytest.mark.thorough
def test_frames_with_columns_of_text_are_searched():
    frame = pd.DataFrame(X, columns=["a", "b"]).assign(side=np.where(X[:, 1] > 0, "u", "v"))
    columns = make_column_transformer(
        (DPStandardScaler(-1, 1), ["a", "b"]),
        (OneHotEncoder(categories=[["u", "v"]], sparse_output=False), ["side"]),
    )
    distributions = {"dpvariationallogisticregression__max_iter": [1, 2]}
    fitted = search(make_pipeline(columns, logistic()), distributions).fit(frame, Y)
    assert fitted.privacy_.valid
    assert list(fitted.feature_names_in_) == ["a", "b", "side"]


@pytest.mark.thorough
def test_steps_that_read_rows_without_a_budget_are_named():
    model = make_pipeline(StandardScaler(), logistic())
    fitted = search(model, {"dpvariationallogisticregression__max_iter": [1]}).fit(X, Y)
    assert not fitted.privacy_.valid
    assert "StandardScaler" in fitted.privacy_.unaccounted[0]
    free = make_pipeline(BoundedScaler(lower=-1, upper=1), logistic())
    fitted = search(free, {"dpvariationallogisticregression__max_iter": [1]}).fit(X, Y)
    assert fitted.privacy_.valid


@pytest.mark.thorough
def test_public_facts_that_were_not_declared_are_listed():
    fitted = DPRandomizedSearch(
        DPVariationalLogisticRegression(max_iter=1), {"prior_scale": [1.0]}
    ).fit(X, Y)
    assert set(fitted.privacy_.inferred_public_facts) == {"n_samples", "classes"}
    model = DPVariationalLogisticRegression(max_iter=1, n_samples=N, classes=[0, 1])
    fitted = DPRandomizedSearch(model, {"prior_scale": [1.0]}).fit(X, Y)
    assert fitted.privacy_.inferred_public_facts == ()


# --- trials that fail, and numbers of trials ------------------------------------------------------


@pytest.mark.parametrize("fails", [["always"], ["never", "always"]], ids=["all", "one"])
def test_a_trial_that_fails_ends_the_search_without_a_word_and_the_charge_stays(fails):
    failing = search(NoisySum(), {"fails": fails}, mean_trials=60, shape=math.inf)
    with PrivacyLedger() as ledger, pytest.raises(RuntimeError, match="synthetic") as caught:
        public_fit(failing)
    assert not hasattr(failing, "best_estimator_")
    assert len(ledger.entries) == 1
    assert caught.value.__cause__ is caught.value.__context__ is None
    assert str(X[0][0])[:6] not in str(caught.value)


def test_no_trial_at_all_is_an_error_after_the_charge():
    with PrivacyLedger() as ledger, pytest.raises(RuntimeError, match="No trial was drawn"):
        with_trials(0, search(shape=math.inf))
    assert len(ledger.entries) == 1


@pytest.mark.parametrize("backend", [pytest.param("loky", marks=pytest.mark.slow), "threading"])
def test_workers_charge_nothing_and_say_nothing(backend, recwarn):
    import joblib

    with PrivacyLedger() as ledger, joblib.parallel_config(backend=backend):
        fitted = search(logistic(), {"prior_scale": [1.0]}, mean_trials=3, shape=1.0, n_jobs=2).fit(
            X, Y
        )
    assert len(ledger.entries) == 1
    assert fitted.privacy_.valid
    assert not recwarn.list


@pytest.mark.thorough
def test_a_seed_repeats_the_search_and_voids_it():
    seeded = search(logistic(), {"prior_scale": loguniform(0.1, 10)}, random_state=3)
    fits = [(seeded, 0), (clone(seeded).set_params(n_jobs=2), 0), (clone(seeded), 1)]
    with pytest.warns(PrivacyWarning, match="nominal"):
        first, second, other = (fit.fit(X[k:], Y[k:]) for fit, k in fits)
    assert first.best_score_ == second.best_score_ != other.best_score_  # noise is of these rows
    np.testing.assert_array_equal(first.predict_proba(X), second.predict_proba(X))
    assert (first.privacy_.seeded, first.privacy_.valid) == (True, False)


# --- what is refused ------------------------------------------------------------------------------

# What the search sets, what it is told, and what would show trials.
SET_OR_TOLD = (
    "epsilon", "delta", "noise_multiplier", "random_state", "neighboring_relation", "accountant",
    "n_samples", "classes", "verbose",
)  # fmt: skip


@bundled(
    ("settings", "match"),
    [
        *[({"distributions": {name: [1, 2]}}, "param_distributions") for name in SET_OR_TOLD],
        ({"distributions": {"gamma": [1.0]}}, "the name of a parameter"),
        ({"distributions": {"prior_scale": []}}, "prior_scale"),
        ({"distributions": {"prior_scale": 3.0}}, "prior_scale"),
        ({"distributions": "prior_scale"}, "a dictionary"),
        ({"distributions": {"prior_scale": [-1.0]}}, "prior_scale"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"epsilon": None}, "epsilon"),
        ({"epsilon": 1e-3}, "fewer trials"),
        ({"delta": 1.0}, "delta"),
        ({"mean_trials": 0.5}, "mean_trials"),
        ({"shape": -1.0}, "shape"),
        ({"score_share": 1.0}, "score_share"),
        ({"scoring": "roc_auc"}, "X_public"),
        ({"weights": {"no": 1.0}}, "weights"),
        ({"neighboring_relation": "replace_one"}, "neighboring_relation"),
        ({"n_samples": 0}, "n_samples"),
        ({"estimator": logistic(random_state=0)}, "random_state to the search"),
        ({"estimator": make_pipeline(logistic(), memory="cache")}, "memory"),
        ({"estimator": StandardScaler()}, "private step"),
        ({"estimator": logistic(epsilon=None, noise_multiplier=1.0)}, "epsilon"),
    ],
)
def test_invalid_settings_are_refused_before_anything_is_spent(settings, match):
    settings = {"distributions": {"prior_scale": [1.0]}, "estimator": logistic(), **settings}
    if "pipeline" in type(settings["estimator"]).__module__:
        settings["distributions"] = {"dpvariationallogisticregression__prior_scale": [1.0]}
    with (
        PrivacyLedger() as ledger,
        release_hook.record() as tape,
        pytest.raises(ValueError, match=match),
    ):
        search(**settings).fit(X, Y)
    assert (ledger.entries, tape) == ((), [])


def test_the_number_of_rows_is_declared_where_it_is_private():
    model = logistic(neighboring_relation="add_or_remove_one", n_samples=None)
    relation = {"neighboring_relation": "add_or_remove_one"}
    with pytest.raises(ValueError, match="n_samples"):
        search(model, {"prior_scale": [1.0]}, n_samples=None, **relation).fit(X, Y)
    assert search(model, {"prior_scale": [1.0]}, n_samples=250, **relation).fit(X, Y).privacy_.valid


def test_bad_rows_are_refused_before_anything_is_spent():
    with PrivacyLedger() as ledger:
        for rows, labels in ((X * np.nan, Y), (X[:3], Y), (X, Y + 7), (X[:, 0], Y)):
            with pytest.raises(ValueError):  # noqa: PT011
                search(logistic(), {"prior_scale": [1.0]}).fit(rows, labels)
        with pytest.raises(ValueError, match="both X_public and y_public"):
            search().fit(X, X_public=X)
    assert ledger.entries == ()


# --- scores ---------------------------------------------------------------------------------------


NUMBERS = st.floats(width=64) | st.sampled_from([math.nan, math.inf, -math.inf, 1e300, 5e-324])


@given(st.lists(NUMBERS, max_size=30), NUMBERS, NUMBERS)
def test_one_row_moves_the_sum_of_scores_by_half_at_most(others, one, another):
    def total(*more):
        return _scores.centred_sum(np.array([*others, *more], dtype=float))

    assert abs(total(one) - total()) <= 0.5  # added, removed, or a null record
    assert abs(total(one) - total(another)) <= 1.0  # replaced
    assert total(math.nan) == total(0.0) == total() - 0.5


def test_built_in_scores_are_bounded_versions_of_the_metrics():
    model = logistic(epsilon=math.inf, max_iter=500, n_samples=N).fit(X[:, :2], Y)
    wrong = 1 - Y
    right = _scores.accuracy(model, X, Y)
    assert right.mean() == accuracy_score(Y, model.predict(X))
    assert (_scores.accuracy(model, X, wrong) == 1 - right).all()
    cut = 4 * math.log(2)
    mild = np.abs(X[:, 0]) < 0.1  # no probability below 1/16
    score = _scores.neg_log_loss(model, X[mild], Y[mild])
    loss = log_loss(Y[mild], model.predict_proba(X[mild]), labels=[0, 1])
    assert cut * (1 - score.mean()) == pytest.approx(loss)
    every = _scores.neg_log_loss(model, X, wrong)
    assert every.min() == 0.0
    assert every.max() <= 1.0


def test_regression_is_scored_on_the_declared_range():
    targets = 5 * X[:, 0]
    model = DPVariationalLinearRegression(target_bounds=(-10, 10), max_iter=1)
    with pytest.raises(ValueError, match="target_bounds"):
        search(DPVariationalLinearRegression(), {"max_iter": [1]}).fit(X, targets)
    fitted = search(model, {"max_iter": [1]}, epsilon=20.0).fit(X, targets)
    assert is_regressor(fitted)
    squares = ((fitted.predict(X) - targets) / 20) ** 2
    assert fitted.scorer_(fitted.best_estimator_, X, targets) == pytest.approx(1 - squares.mean())
    whole = TransformedTargetRegressor(model)
    assert search(whole, {"regressor__max_iter": [1]}).fit(X, targets).privacy_.valid


def test_a_function_scores_rows():
    def scoring(estimator, X, y):
        return np.where(estimator.predict(X) == y, 2.0, math.nan)

    fitted = search(logistic(), {"prior_scale": [1.0]}, scoring=scoring, epsilon=50.0).fit(X, Y)
    assert 0.5 < fitted.best_score_ < 1.2  # scores of 2 and NaN count as 1 and 0
    wrong = search(logistic(), {"prior_scale": [1.0]}, scoring=lambda *_: 1.0)
    with pytest.raises(RuntimeError, match="synthetic"):
        wrong.fit(X, Y)


def test_the_search_acts_like_its_estimator():
    fitted = search(logistic(), {"prior_scale": [1.0]}).fit(X, Y)
    assert is_classifier(fitted)
    assert fitted.sample_posterior(3).shape == (3, 3)
    assert fitted.sample_predictive(X, 2).shape == (2, N, 2)
    assert not hasattr(fitted, "transform")
    np.testing.assert_array_equal(fitted.predict(X), fitted.best_estimator_.predict(X))
    assert not hasattr(search(), "classes_")
    scaled = make_pipeline(BoundedScaler(lower=-1, upper=1), clone(fitted)).fit(X, Y)
    assert 0.0 <= scaled.score(X, Y) <= 1.0


# --- audit ----------------------------------------------------------------------------------------


def clopper_pearson_upper(hits, n, level=1e-3):
    return beta.isf(level, hits + 1, n - hits) if hits < n else 1.0


def audited(n_fits, exceeded, **settings):
    """Lower bound on μ of a search in the GDP frame, that of one trial, and the report.

    The scoring prefers a large sum, so that the best of many shifts towards it; neighbours are a
    zero row and one of 1. The threshold is set from the plan: one trial exceeds it without the row
    with probability ``exceeded``. Each of two probabilities is bounded at level 1e-3.
    """
    rows = {"without": np.zeros((3, 2)), "with": np.eye(3, 2)}
    fits = {  # seeded, so that the verdict is the same in every run
        name: [
            public_fit(search(**settings, n_samples=3, random_state=first + i), rows[name])
            for i in range(n_fits)
        ]
        for name, first in (("without", 0), ("with", n_fits))
    }
    report, trial = fits["with"][0].privacy_, fits["with"][0].trial_epsilon_
    mu = epsilon_to_gdp(trial, report.delta)
    threshold = norm.isf(exceeded) / mu
    above = {
        name: sum(f.best_estimator_.total_ > threshold for f in found)
        for name, found in fits.items()
    }
    false_positive = clopper_pearson_upper(above["without"], n_fits)
    false_negative = clopper_pearson_upper(n_fits - above["with"], n_fits)
    mu_low = norm.isf(false_positive) - norm.ppf(false_negative)
    # The claim's whole curve has to admit these two probabilities.
    for delta in (1e-5, 1e-3, 1e-2):
        seen = math.log(max(1e-300, (1 - false_negative - delta) / false_positive))
        assert seen <= report.epsilon_at(delta)
    print(f"mu of a trial {mu:.3f}, audited {mu_low:.3f}; epsilon of a trial {trial:.2f},")
    print(f"audited {gdp_to_epsilon(mu_low, report.delta):.2f}, stated {report.epsilon:.2f}")
    return mu_low, mu, report


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore::skdp.PrivacyWarning")
def test_the_best_of_many_tells_a_row_and_less_than_is_stated():
    settings = {"epsilon": 30.0, "mean_trials": 10, "shape": math.inf}
    mu_low, _, report = audited(50, 0.02, **settings)
    assert mu_low > 0.0
    assert gdp_to_epsilon(mu_low, report.delta) < report.epsilon


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::skdp.PrivacyWarning")
@pytest.mark.parametrize(
    ("n_fits", "settings", "exceeded", "factor"),
    [
        (200, {"epsilon": 30.0, "mean_trials": 20, "shape": math.inf}, 0.005, 1.0),
        (5000, {"epsilon": 10.0, "mean_trials": 10, "shape": 1.0}, 0.0057, 1.05),
        (1000, {"epsilon": 30.0, "mean_trials": 30, "shape": math.inf}, 0.0092, 1.05),
    ],
)
def test_the_best_of_many_leaks_more_than_one_trial(n_fits, settings, exceeded, factor):
    mu_low, mu_of_trial, report = audited(n_fits, exceeded, **settings)
    assert mu_low > factor * mu_of_trial  # stating the price of a trial would be a lie
    assert gdp_to_epsilon(mu_low, report.delta) < report.epsilon


@pytest.mark.parametrize("relation", ["zero_out", "replace_one"])
@pytest.mark.parametrize("law", [TrialLaw(2.0, 0.0), TrialLaw(10.0, 1.0)], ids=str)
def test_a_trial_s_budget_keeps_the_promise_to_the_last_digit(law, relation):
    for epsilon in np.exp(np.random.default_rng(0).uniform(-0.5, 2.0, 8)):
        event = selection(gdp_event(trial_mu(float(epsilon), 1e-5, law), relation), law)
        assert (1 - 1e-6) * epsilon < epsilon_of_event(event, 1e-5, relation) <= epsilon
