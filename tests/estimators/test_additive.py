"""`DPAdditiveClassifier`: columns as people have them, curves that are right, and bands."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from refusals import refused
from scipy.special import expit
from sklearn.base import clone

from skdp import DPAdditiveClassifier
from skdp.estimators import _linear
from skdp.testing import record_releases

pytestmark = pytest.mark.filterwarnings("ignore::skdp.PrivacyWarning")
N = 3000
LEVELS = ["a", "b", "c"]
DECLARED = {
    "bounds": {"age": (0, 10), "dose": (0, 1)},
    "categories": {"ward": LEVELS},
    "classes": [0, 1],
    "n_samples": N,
}


def effect(table):
    ward = np.select([table["ward"] == level for level in LEVELS], [1.0, 0.0, -1.0])
    return 2 * np.sin(table["age"].to_numpy()) + ward


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(
        {"age": rng.uniform(0, 10, N), "ward": rng.choice(LEVELS, N), "dose": rng.uniform(0, 1, N)}
    )
    return X, (rng.random(N) < expit(effect(X))).astype(int)


@pytest.fixture(scope="module")
def fitted(table):
    return DPAdditiveClassifier(30.0, **DECLARED).fit(*table)


def test_curves_are_the_true_ones(fitted):
    curve = fitted.curve_("age")
    middles = (curve.grid[1:] + curve.grid[:-1]) / 2
    truth = 2 * np.sin(middles)
    assert len(curve.grid) == 33
    assert np.abs(curve.mean - truth + truth.mean()).mean() < 0.25
    assert np.abs(curve.mean.mean()) < 1e-12
    flat = fitted.curve_("dose")
    assert ((flat.band_low < 0) & (flat.band_high > 0)).all()
    ward = fitted.curve_("ward")
    assert ward.grid.tolist() == LEVELS
    np.testing.assert_allclose(ward.mean, [1.0, 0.0, -1.0], atol=0.3)
    order = np.argsort(fitted.feature_importance_)
    assert [["age", "dose", "ward"][i] for i in order] == ["dose", "ward", "age"]
    low, high = fitted.feature_importance_interval_
    assert ((low <= fitted.feature_importance_) & (fitted.feature_importance_ <= high)).all()


def test_bands_hold_intervals_and_follow_the_level(fitted):
    for feature in ("age", "ward", 1):
        narrow, wide = (fitted.curve_(feature, level=level) for level in (0.5, 0.95))
        np.testing.assert_array_equal(narrow.mean, wide.mean)
        for first, second in (
            (wide.band_low, wide.low), (wide.low, narrow.low), (narrow.low, narrow.mean),
            (narrow.mean, narrow.high), (narrow.high, wide.high), (wide.high, wide.band_high),
        ):  # fmt: skip
            assert (first <= second).all()


def test_predictions_are_of_the_sum_of_curves(fitted, table):
    X, y = table
    p = fitted.predict_proba(X)[:, 1]
    assert fitted.score(X, y) > 0.75
    assert np.corrcoef(p, expit(effect(X)))[0, 1] > 0.98
    draws = fitted.sample_predictive(X[:20], 500, random_state=0)
    np.testing.assert_allclose(draws[:, :, 1].mean(axis=0), p[:20], atol=0.02)


@pytest.mark.thorough
def test_the_order_and_the_kind_of_the_frame_do_not_matter(table):
    X, y = table
    model = DPAdditiveClassifier(30.0, random_state=0, **DECLARED)
    frames = [
        X,
        X[["dose", "age", "ward"]],
        X.astype({"ward": "category"}),
        pl.DataFrame({name: X[name].to_list() for name in X}),
    ]
    curves = [clone(model).fit(frame, y).curve_("age").mean for frame in frames]
    for curve in curves[1:]:
        np.testing.assert_array_equal(curve, curves[0])


def test_arrays_have_columns_by_position():
    rng = np.random.default_rng(1)
    X = rng.uniform(0, 1, (500, 2))
    y = (X[:, 0] > 0.5).astype(int)
    by_list = DPAdditiveClassifier(bounds=(0, 1), classes=[0, 1], random_state=0)
    by_number = clone(by_list).set_params(bounds={1: (0, 1), 0: (0, 1)})
    first, second = by_list.fit(X, y), by_number.fit(X, y)
    assert first.curve_("x0").name == second.curve_("x0").name == "x0"
    assert first.curve_(0).name == "x0"
    assert second.curve_(0).name == "x1"  # as declared
    objects = clone(by_list).fit(X.astype(object), y)
    np.testing.assert_array_equal(objects.coef_, first.coef_)


@pytest.mark.thorough
def test_missing_values_and_levels_that_nobody_declared_have_an_effect_of_their_own(table):
    X, y = table
    rng = np.random.default_rng(3)
    X, gone = X.copy(), rng.random(N) < 0.3
    X.loc[gone, "age"] = np.nan
    X.loc[~gone & (X["ward"] == "b"), "ward"] = "elsewhere"
    y = np.where(gone, 1, y)
    model = DPAdditiveClassifier(30.0, **DECLARED).fit(X, y)
    p = model.predict_proba(X)[:, 1]
    assert p[gone].mean() > 0.9
    assert "ward: other" in model.parameter_names_


def test_the_plan_needs_no_data_and_is_what_a_fit_does(table):
    model = DPAdditiveClassifier(1.0, edges=None, **DECLARED)
    plan = model.plan()
    with record_releases() as tape:
        model.fit(*table)
    assert plan.privacy.event == model.privacy_.event
    assert len(tape) == plan.config.n_releases
    assert plan.config.data_norm == model.data_norm_
    fewer = clone(model).set_params(n_samples=300).plan()
    assert fewer.config.model.size < plan.config.model.size


def test_no_row_is_ever_cut(table):
    X, y = table
    X = X.assign(age=X["age"] * 1e300, dose=-1e300)
    model = DPAdditiveClassifier(100.0, edges=None, **DECLARED).fit(X, y)
    assert not any("data_norm" in message for message in model.diagnostics_)
    shared = model._posterior.outside[0]
    assert abs(shared) < 6 * model.plan().config.count_noise


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"bounds": {"age": (0, 10)}}, "dose"),
        ({"bounds": {"age": (0, 10), "dose": (0, 1), "weight": (0, 1)}}, "columns of X"),
        ({"bounds": {"age": (10, 0), "dose": (0, 1)}}, "bounds"),
        ({"bounds": {"age": (0, np.inf), "dose": (0, 1)}}, "bounds"),
        ({"bounds": 3.0}, "bounds"),
        ({"bounds": {"age": (0, 10), "dose": (0, 1), 0: (0, 1)}}, "one entry"),
        ({"edges": {"age": [0, 5, 10]}}, "edges"),
        ({"bounds": None, "edges": {"age": [0, 0, 1], "dose": [0, 1]}}, "edges"),
        ({"categories": {"ward": "abc"}}, "categories"),
        ({"categories": {"ward": ["a", "a"]}}, "categories"),
        ({"n_bins": 1}, "n_bins"),
        ({"bounds": {"age": (0, 1), "dose": (0, 1), "ward": (0, 1)}, "categories": None}, "ward"),
    ],
)
def test_bad_declarations_are_named_before_any_charge(table, changes, match):
    with refused(match) as error:
        DPAdditiveClassifier(**DECLARED | changes).fit(*table)
    assert "elsewhere" not in str(error.value)


def test_predictions_are_by_what_was_declared_in_the_fit(table):
    X, y = table
    model = DPAdditiveClassifier(**DECLARED).fit(X, y)
    before = model.predict_proba(X)
    model.set_params(bounds={"age": (0, 1), "dose": (0, 100)}, categories={"ward": ["c", "b"]})
    np.testing.assert_array_equal(model.predict_proba(X), before)


@pytest.mark.thorough
def test_without_privacy_many_numbers_are_fitted_by_steps(table, monkeypatch):
    X, y = table
    monkeypatch.setattr(_linear, "MOST_PRODUCTS", 1)
    model = DPAdditiveClassifier(float("inf"), **DECLARED).fit(X, y)
    assert model.score(X, y) > 0.7


@pytest.mark.parametrize(("column", "match"), [("ward", "categories"), ("age", "age")])
def test_what_is_no_level_and_no_number_is_not_quoted(table, column, match):
    class Rude(str):
        def __hash__(self):
            raise KeyError("secret")

    X, y = table
    X = X.astype({column: object})
    X.loc[3, column] = Rude("secret")
    with pytest.raises(ValueError, match=match) as error:
        DPAdditiveClassifier(**DECLARED).fit(X, y)
    assert "secret" not in str(error.value)


def test_a_scorecard_has_a_line_for_each_bin_and_level(fitted):
    frame = fitted.to_frame()
    assert len(frame) == 32 + 32 + 3
    assert frame.columns.tolist() == ["feature", "from", "to", "level", "effect", "low", "high"]
    assert (frame["low"] <= frame["effect"]).all()
    assert frame.loc[frame["feature"] == "ward", "level"].tolist() == LEVELS


def test_probabilities_are_of_the_second_class(fitted):
    odds, p = fitted.curve_("age"), fitted.curve_("age", scale="probability")
    np.testing.assert_allclose(p.mean, expit(odds.mean + fitted.intercept_[0]))
    assert ((p.low > 0) & (p.high < 1)).all()


@pytest.mark.thorough
def test_several_classes_have_a_curve_each(table):
    X, _ = table
    y = np.digitize(X["age"], [3, 6])
    model = DPAdditiveClassifier(10.0, **DECLARED | {"classes": [0, 1, 2]}).fit(X, y)
    assert model.score(X, y) > 0.8
    curve = model.curve_("age", output=2)
    assert curve.mean[-1] > curve.mean[0]
    with pytest.raises(ValueError, match="output"):
        model.curve_("age", output=3)
