"""`score` on good input is scikit-learn's, and it refuses what scikit-learn's would quote."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from contracts.subjects import CLASSIFIERS, REGRESSORS, build
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.metrics import accuracy_score, r2_score
from sklearn.model_selection import cross_validate

from skdp import DPRandomizedSearch, DPSGDRegressor, DPVariationalLogisticRegression
from skdp.calibration import DPTemperatureScaler
from skdp.testing._inputs import SECRET, TEXT

SCORED = [*CLASSIFIERS, *REGRESSORS]
N = 60
rng = np.random.default_rng(0)
X = rng.uniform(-1, 1, (N, 3))
LABELS = rng.integers(0, 3, N)
TARGETS = rng.uniform(0, 5, N)


def fitted(name, y):
    return build(name).fit(X, y)


def score_of_scikit_learn(model, *args, **kwargs):
    mixin = ClassifierMixin if isinstance(model, ClassifierMixin) else RegressorMixin
    return mixin.score(model, *args, **kwargs)


def same(model, y, rows=X, **weights):
    expected = score_of_scikit_learn(model, rows, y, **weights)
    found = model.score(rows, y, **weights)
    assert isinstance(found, float)
    assert found == expected


KINDS_OF_LABELS = {
    "integers": LABELS,
    "floats": LABELS.astype(float),
    "booleans": LABELS > 0,
    "text": np.array(["no", "yes", "perhaps"])[LABELS],
    "objects": np.array(["no", "yes", "perhaps"], dtype=object)[LABELS],
    "dates": np.datetime64("2020-01-01") + LABELS,
}
FORMS = {
    "an array": np.asarray,
    "a list": list,
    "a column": lambda y: y[:, None],
    "a series": lambda y: pd.Series(y, index=np.arange(len(y))[::-1]),
    "polars": lambda y: pl.Series(y.tolist()),
    "a part": lambda y: np.where(np.arange(N) < 3, y, y[0]),
}
WEIGHTS = [np.ones(N), np.arange(N), rng.random(N), list(range(N)), rng.random(N) - 0.1]


@pytest.mark.parametrize("labels", KINDS_OF_LABELS)
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_accuracy_is_that_of_scikit_learn(name, labels):
    y = KINDS_OF_LABELS[labels]
    model = fitted(name, y)
    for form, convert in FORMS.items():
        if (labels, form) not in {("dates", "a list"), ("dates", "polars")}:
            same(model, convert(y))
    for weights in WEIGHTS:
        same(model, y, sample_weight=weights)


@pytest.mark.parametrize("name", REGRESSORS)
def test_r2_is_that_of_scikit_learn(name):
    model = fitted(name, TARGETS)
    counts = TARGETS.astype(int)
    for y in (TARGETS, counts, 1e6 * TARGETS, np.ones(N), TARGETS > 2.5, TARGETS * 1e-12):
        for form in ("an array", "a list", "a column", "a series", "polars"):
            same(model, FORMS[form](y))
        for weights in WEIGHTS:
            same(model, y, sample_weight=weights)
    short = TARGETS.astype(np.float32)
    assert model.score(X, short) == pytest.approx(score_of_scikit_learn(model, X, short), rel=1e-5)


def test_r2_of_several_targets_is_that_of_scikit_learn():
    Y = np.column_stack([TARGETS, X[:, 0]])
    model = DPSGDRegressor(n_samples=N, target_bounds=(-1, 5)).fit(X, Y)
    same(model, Y)
    same(model, Y, sample_weight=np.arange(N))
    for y in (TARGETS, Y[:, :1], np.column_stack([Y, Y])):
        with pytest.raises(ValueError, match="y to hold 2 targets per row"):
            model.score(X, y)


@pytest.mark.parametrize("name", REGRESSORS)
def test_r2_of_one_row_is_undefined_as_in_scikit_learn(name):
    with pytest.warns(UndefinedMetricWarning):
        assert np.isnan(fitted(name, TARGETS).score(X[:1], TARGETS[:1]))


@pytest.mark.parametrize("name", REGRESSORS)
def test_r2_does_not_depend_on_the_unit(name):
    # Squares of such targets are beyond a double.
    model = fitted(name, TARGETS)
    y = np.where(np.arange(N) == 5, 1e308, 0.0)
    assert model.score(X, y) == pytest.approx(r2_score(y / 1e308, np.zeros(N)))
    weights = np.full(N, 1e300)
    assert model.score(X, TARGETS, weights) == pytest.approx(model.score(X, TARGETS))


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_an_unknown_label_of_the_same_kind_is_wrong_and_of_another_is_refused(name):
    model = fitted(name, LABELS)
    unknown = np.where(np.arange(N) < 20, 8675309, model.predict(X))
    assert model.score(X, unknown) == pytest.approx(40 / N)
    assert model.score(X, np.full(N, 8675309)) == 0.0
    text = fitted(name, KINDS_OF_LABELS["text"])
    assert text.score(X, np.full(N, TEXT)) == 0.0
    for scored, y in (
        (model, [TEXT, "b"] * (N // 2)),
        (model, LABELS + 0.5),
        (model, np.where(LABELS > 1, np.nan, LABELS)),
        (text, LABELS),
        (text, [None] * N),
    ):
        with pytest.raises(ValueError, match="Expected y to hold one class label per row") as error:
            scored.score(X, y)
        assert "8675" not in str(error.value)


def test_scores_are_weighted_where_metadata_is_routed():
    weights = np.arange(N)
    with sklearn.config_context(enable_metadata_routing=True):
        for name in SCORED:
            y = LABELS if name in CLASSIFIERS else TARGETS
            model = build(name).set_score_request(sample_weight=True)
            if "sample_weight" in model.get_metadata_routing().fit.requests:
                model.set_fit_request(sample_weight=False)
            found = cross_validate(
                model,
                X,
                y,
                params={"sample_weight": weights},
                cv=[(np.arange(N), np.arange(N))],
                return_estimator=True,
            )
            metric = accuracy_score if name in CLASSIFIERS else r2_score
            predicted = found["estimator"][0].predict(X)
            assert found["test_score"][0] == metric(y, predicted, sample_weight=weights), name
            requests = build(name).get_metadata_routing().score.requests
            assert requests["sample_weight"] is None


SEARCHED = DPVariationalLogisticRegression(
    classes=[0, 1, 2], n_samples=N, inference="dpvi", max_iter=2
)


@pytest.mark.parametrize("scoring", [None, "accuracy", "neg_log_loss"])
def test_a_search_refuses_what_it_cannot_score(scoring):
    search = DPRandomizedSearch(
        SEARCHED, {"prior_scale": [0.5, 1.0]}, epsilon=1.0, scoring=scoring, n_samples=N
    ).fit(X, LABELS)
    assert search.score(X, LABELS) <= 1.0
    rows = np.full((N, 3), TEXT)
    for given, y in ((X, [TEXT, "b"] * (N // 2)), (X, SECRET), (X, LABELS[:-1]), (rows, LABELS)):
        with pytest.raises(ValueError, match=r"\b(X|y|samples)\b") as error:
            search.score(given, y)
        assert "8675" not in str(error.value)


def test_a_search_over_regressors_refuses_what_it_cannot_score():
    model = DPSGDRegressor(target_bounds=(0, 5), n_samples=N, max_iter=2, sampling_rate=1.0)
    search = DPRandomizedSearch(
        model,
        {"learning_rate": [0.1, 1.0]},
        epsilon=1.0,
        scoring="neg_mean_squared_error",
        n_samples=N,
    ).fit(X, TARGETS)
    assert 0.0 <= search.score(X, TARGETS) <= 1.0
    for y in ([TEXT] * N, np.where(TARGETS > 2, np.inf, SECRET), SECRET):
        with pytest.raises((ValueError, TypeError), match=r"\b[yX]\b") as error:
            search.score(X, y)
        assert "8675" not in str(error.value)


def test_a_scaler_of_temperatures_scores_as_its_classifier():
    model = DPTemperatureScaler(SEARCHED, n_samples=N, max_iter=2).fit(X, LABELS)
    assert model.score(X, LABELS) == model.estimator_.score(X, LABELS)
