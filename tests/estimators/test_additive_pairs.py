"""Pairs of columns in additive models: found where they interact, and cheap where they do not."""

import numpy as np
import pandas as pd
import pytest
from refusals import refused
from scipy.special import expit
from sklearn.base import clone
from sklearn.metrics import log_loss

from skdp import (
    DPAdditiveClassifier,
    DPAdditivePoissonRegressor,
    DPAdditiveRegressor,
    PrivacyLedger,
)
from skdp.models.additive import PAIR_WEIGHT, Category, Number, Pair
from skdp.preprocessing import AdditiveFeatures

pytestmark = pytest.mark.filterwarnings("ignore::skdp.PrivacyWarning")
N = 20_000
DECLARED = {
    "bounds": {"age": (0, 10), "dose": (0, 1)},
    "categories": {"ward": ["a", "b"]},
    "n_samples": N,
}
PAIRS = [("age", "dose"), ("ward", "age")]
MODELS = {
    "classes": DPAdditiveClassifier(3.0, classes=[0, 1], **DECLARED),
    "numbers": DPAdditiveRegressor(3.0, target_bounds=(-8, 8), **DECLARED),
    "counts": DPAdditivePoissonRegressor(3.0, largest_count=30, **DECLARED),
}


def rows(seed, n=N):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "dose": rng.uniform(0, 1, n),
            "ward": rng.choice(["a", "b"], n),
            "age": rng.uniform(0, 10, n),
        }
    )


def effect(table, interaction):
    """Curves, and an interaction of age with dose and with ward."""
    age, dose = table["age"] / 5 - 1, 2 * table["dose"] - 1
    ward = np.where(table["ward"] == "a", 1.0, -1.0)
    curves = age + np.sin(3 * dose) / 2 + ward / 4
    return (curves + interaction * (age * dose + 0.5 * ward * age)).to_numpy()


def targets(kind, table, interaction, seed):
    rng, mean = np.random.default_rng(seed), effect(table, interaction)
    if kind == "classes":
        return (rng.random(len(mean)) < expit(mean)).astype(int)
    if kind == "numbers":
        return mean + rng.normal(0, 1, len(mean))
    return rng.poisson(np.exp(mean / 2))


def loss(kind, model, interaction):
    """Log-loss, or squared error of the mean or the log-mean."""
    new = rows(99)
    truth = effect(new, interaction)
    if kind == "classes":
        return log_loss(targets(kind, new, interaction, 98), model.predict_proba(new)[:, 1])
    mean = model.predict(new)
    return np.mean((mean - truth if kind == "numbers" else np.log(mean) - truth / 2) ** 2)


def fit(kind, interaction, pairs, **changes):
    table = rows(1)
    model = clone(MODELS[kind]).set_params(pairs=pairs, random_state=0, **changes)
    return model.fit(table, targets(kind, table, interaction, 2))


@pytest.fixture(scope="module", params=MODELS)
def fitted(request):
    return request.param, fit(request.param, 1.5, PAIRS)


def truth_of(grids):
    age, dose = ((grid[1:] + grid[:-1]) / 2 for grid in grids)
    return 1.5 * np.outer(age / 5 - 1, 2 * dose - 1)


@pytest.mark.thorough
def test_an_interaction_is_found(fitted):
    kind, model = fitted
    gain = loss(kind, fit(kind, 1.5, None), 1.5) - loss(kind, model, 1.5)
    assert gain > {"classes": 0.03, "numbers": 0.3, "counts": 0.1}[kind]
    surface, unit = model.curve_(("age", "dose")), 0.5 if kind == "counts" else 1.0
    assert surface.names == ("age", "dose")
    assert [len(grid) for grid in surface.grids] == [33, 33]
    truth = unit * truth_of(surface.grids)
    assert np.corrcoef(truth.ravel(), surface.mean.ravel())[0, 1] > 0.9
    assert ((surface.low <= truth) & (truth <= surface.high)).mean() > 0.8
    assert (surface.high - surface.low).mean() < 1.0 * unit
    ward = model.curve_(("ward", "age"))
    assert ward.grids[0].tolist() == ["a", "b"]
    assert ward.low[0, -1] > 0 > ward.high[0, 0]
    assert ward.low[1, 0] > 0 > ward.high[1, -1]


@pytest.mark.thorough
@pytest.mark.parametrize("kind", MODELS)
def test_without_an_interaction_little_is_lost(kind):
    lost = loss(kind, fit(kind, 0.0, PAIRS), 0.0) - loss(kind, fit(kind, 0.0, None), 0.0)
    assert lost < {"classes": 0.003, "numbers": 0.01, "counts": 0.015}[kind]


@pytest.mark.quick(1)
def test_surfaces_are_interactions_alone_and_what_posterior_draws_say(fitted):
    _, model = fitted
    surface = model.curve_(("age", "dose"))
    for axis in (0, 1):
        np.testing.assert_allclose(surface.mean.mean(axis=axis), 0.0, atol=1e-9)
    pair, place = model._model.pairs[0], model._model.places[3]
    draws = model.sample_posterior(4000, random_state=0)[:, place]
    unit = np.std(draws @ pair.table[pair.known].T)
    cells = (draws @ pair.table[pair.known].T).reshape(-1, *pair.shape)
    np.testing.assert_allclose(cells.mean(axis=0), surface.mean, atol=0.05 * unit)
    # Products that were not asked for are in the interval, with their prior.
    assert (cells.std(axis=0) < 1.05 * (surface.high - surface.low) / 2 / 1.645).all()
    inside = (surface.band_low <= cells) & (cells <= surface.band_high)
    assert inside.all(axis=(1, 2)).mean() > 0.88
    assert (surface.band_low <= surface.low).all()
    assert (surface.high <= surface.band_high).all()


@pytest.mark.quick(1)
def test_pairs_are_found_by_names_in_either_order_and_by_their_place(fitted):
    _, model = fitted
    surface = model.curve_(("age", "dose"))
    for feature in (("dose", "age"), ["age", "dose"], "age × dose", 3):
        np.testing.assert_array_equal(model.curve_(feature).mean, surface.mean)
    for wrong in (("dose", "ward"), ("age", "age"), ("age", "secret"), ("age",), 5):
        with pytest.raises(ValueError, match="feature"):
            model.curve_(wrong)


def test_importances_end_with_pairs_and_scorecards_too(fitted):
    _, model = fitted
    assert model.feature_importance_names_ == ["age", "dose", "ward", "age × dose", "ward × age"]
    assert model.feature_importance_.shape == (5,)
    assert model.feature_importance_interval_.shape == (2, 5)
    frame = model.to_frame()
    assert len(frame) == 32 + 32 + 2 + 32 * 32 + 2 * 32
    last = frame.iloc[-1]
    assert (last["feature"], last["level"], last["feature_2"], last["to_2"]) == (
        "ward", "b", "age", 10.0,
    )  # fmt: skip
    surface = model.curve_(("ward", "age"))
    assert (last["effect"], last["low"]) == (surface.mean[-1, -1], surface.low[-1, -1])


def test_a_pair_that_the_budget_does_not_pay_for_is_zero_with_its_prior():
    table = rows(1, 400)
    model = clone(MODELS["classes"]).set_params(pairs=PAIRS, n_samples=400, epsilon=0.5)
    model.fit(table, targets("classes", table, 1.0, 2))
    assert not any(" × " in name for name in model.parameter_names_)
    surface = model.curve_(("age", "dose"))
    assert not surface.mean.any()
    assert (surface.high > 1.0).any()
    np.testing.assert_array_equal(surface.low, -surface.high)
    assert model.feature_importance_interval_[1, 3] > 0
    assert model.predict_proba(table).shape == (400, 2)


def test_a_row_without_one_of_both_values_has_no_effect_of_a_pair(fitted):
    _, model = fitted
    table = rows(3, 6)
    table.loc[:2, "dose"] = np.nan
    places = model._model.places
    (found,) = model._fitted_parts(table)
    assert not found[:3, places[3]].any()
    assert found[3:, places[3]].any()
    assert np.isfinite(model.predict(table)).all()


@pytest.mark.thorough
def test_several_classes_have_a_surface_each():
    table = rows(1)
    score = effect(table, 3.0)
    y = np.digitize(score, [-1, 1])
    model = clone(MODELS["classes"]).set_params(pairs=PAIRS, classes=[0, 1, 2], epsilon=10.0)
    model.fit(table, y)
    surface = model.curve_(("age", "dose"), output=2)
    assert surface.mean[-1, -1] > 0 > surface.mean[0, -1]


def test_columns_of_arrays_are_pairs_by_the_numbers_of_their_declaration():
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1, (300, 3))
    model = DPAdditiveClassifier(
        bounds={2: (0, 1), 0: (0, 1), 1: (0, 1)}, pairs=[(0, 1)], classes=[0, 1], n_samples=300
    ).fit(X, rng.integers(0, 2, 300))
    assert model.feature_importance_names_ == ["x2", "x0", "x1", "x0 × x1"]
    assert model.curve_((0, 1)).names == model.curve_(("x1", "x0")).names == ("x0", "x1")
    by_default = DPAdditiveClassifier(pairs=[(2, "x0")], classes=[0, 1]).fit(X, X[:, 0] > 0.5)
    assert by_default.curve_((0, 2)).names == ("x2", "x0")


@pytest.mark.parametrize(
    "pairs",
    [
        "age", 3, ["age"], [("age",)], [("age", "dose", "ward")], [("age", "weight")],
        [("age", "age")], [("age", "dose"), ("dose", "age")], [(["age"], "dose")], [("age", None)],
    ],
)  # fmt: skip
def test_bad_pairs_are_named_before_any_charge(pairs):
    table = rows(1, 200)
    model = clone(MODELS["classes"]).set_params(pairs=pairs, n_samples=200)
    with refused("pairs"):
        model.fit(table, targets("classes", table, 0.0, 2))


@pytest.mark.parametrize(
    ("column", "levels", "held"),
    [
        ([1, 2, 1, 2], ["1", "2"], "numbers"),
        ([1.0, 2.0, np.nan, 2.0], ["1", "2"], "numbers"),
        ([True, False, True, False], ["True", "False"], "numbers"),
    ],
)
def test_levels_that_a_column_cannot_hold_are_refused(column, levels, held):
    X, y = pd.DataFrame({"kind": column}), [0, 1, 0, 1]
    declared = {"categories": {"kind": levels}}
    model = DPAdditiveClassifier(classes=[0, 1], n_samples=4, **declared)
    for fit in (lambda: model.fit(X, y), lambda: AdditiveFeatures(**declared).fit(X)):
        with refused(rf"categories.*{held}"):
            fit()


def test_numbers_are_no_levels_of_text():
    with pytest.raises(ValueError, match=r"categories.*text"):
        AdditiveFeatures(categories=[[1, 2]]).fit(np.array([["1"], ["2"]]))


def test_levels_of_the_type_of_a_column_or_of_several_are_taken():
    for column, levels in (
        ([1.0, 2.0], [1, 2]),
        ([1, 2], [1, "other"]),
        (np.array([1, "b"], dtype=object), ["1", "b"]),
        (["a", "b"], ["a"]),
    ):
        AdditiveFeatures(categories={"kind": levels}).fit(pd.DataFrame({"kind": column}))
    features = AdditiveFeatures(categories={"kind": ["a"]}).fit(pd.DataFrame({"kind": ["a"]}))
    # Rows to predict may all lack the value.
    assert features.transform(pd.DataFrame({"kind": [np.nan]})).tolist() == [[0.0, 1.0]]
    with pytest.raises(ValueError, match="categories"):
        features.transform(pd.DataFrame({"kind": [1]}))


def test_a_pair_whose_surface_no_memory_holds_is_refused_before_a_charge():
    X = np.random.default_rng(0).integers(0, 300, (500, 2))
    model = DPAdditiveClassifier(categories=[range(300)] * 2, pairs=[(0, 1)], classes=[0, 1])
    with PrivacyLedger() as ledger:
        with pytest.raises(ValueError, match=r"pairs=.*fewer levels"):
            model.fit(X, X[:, 0] % 2)
        with pytest.raises(ValueError, match=r"pairs=.*fewer levels"):
            model.plan(n_samples=500, n_features=2)
    assert not ledger.entries


def test_products_are_those_of_both_tables():
    pair = Pair((Number("a", tuple(range(6))), Category("b", ("x", "y", "z"))), (0, 1), 0.01)
    first, second = (factor.table for factor in pair._factors)
    expected = np.sqrt(PAIR_WEIGHT) * np.kron(first, second)
    assert 0 < pair.asked.sum() < len(pair.asked)
    np.testing.assert_array_equal(pair.table, expected[:, pair.asked])
    np.testing.assert_array_equal(pair.products(~pair.asked), expected[:, ~pair.asked])
