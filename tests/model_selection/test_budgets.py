"""`split_budget`: the composed guarantee is the one asked for, and never more."""

import math

import numpy as np
import pytest
from bundles import bundled
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import PolynomialFeatures

from skdp import (
    BoundedScaler,
    DPSGDClassifier,
    DPVariationalLinearRegression,
    DPVariationalLogisticRegression,
    OPSPosteriorSampler,
    PrivacyLedger,
)
from skdp.calibration import DPTemperatureScaler
from skdp.model_selection import DPRandomizedSearch, split_budget
from skdp.preprocessing import DPPCA, DPQuantileScaler, DPStandardScaler
from skdp.privacy import epsilon_to_gdp, privacy_of

X = np.random.default_rng(0).uniform(-1, 1, (400, 3))
Y = (X[:, 0] > 0).astype(int)


def classifier(**parameters):
    return DPVariationalLogisticRegression(
        **{"classes": [0, 1], "n_samples": 400, "max_iter": 2, **parameters}
    )


def network(**parameters):
    return DPSGDClassifier(
        **{
            "classes": [0, 1],
            "n_samples": 400,
            "hidden_layer_sizes": (),
            "max_iter": 5,
            "batch_size": 40,
            **parameters,
        }
    )


GAUSSIAN = {
    "scaler": make_pipeline(DPStandardScaler(), classifier()),
    "three steps": make_pipeline(DPStandardScaler(), DPPCA(2), classifier()),
    "columns": make_pipeline(
        ColumnTransformer(
            [("a", DPStandardScaler([0, 0], 1), [0, 1]), ("b", DPStandardScaler(), [2])]
        ),
        classifier(),
    ),
    "union": make_pipeline(
        FeatureUnion([("a", DPStandardScaler()), ("b", BoundedScaler())]), classifier()
    ),
    "temperature": DPTemperatureScaler(classifier(), n_samples=400),
    "temperature in a pipeline": make_pipeline(
        DPStandardScaler(), DPTemperatureScaler(classifier(), n_samples=400)
    ),
    "alone": classifier(),
    "regression": make_pipeline(
        DPStandardScaler(), DPVariationalLinearRegression(n_samples=400, target_bounds=(-1, 1))
    ),
    "replace one": make_pipeline(
        DPStandardScaler(neighboring_relation="replace_one"),
        classifier(neighboring_relation="replace_one"),
    ),
}
OTHERS = {
    "quantiles": make_pipeline(DPQuantileScaler([-9, -9, -9], 9), classifier()),
    "batches": make_pipeline(DPStandardScaler(), network()),
    "temperature of a network": DPTemperatureScaler(network(), n_samples=400),
}


@bundled("name", GAUSSIAN)
def test_gaussian_steps_meet_the_target_exactly(name):
    model = split_budget(GAUSSIAN[name], 1.0, 1e-5).fit(X, Y)
    assert 1.0 - 1e-8 <= privacy_of(model).epsilon <= 1.0


@pytest.mark.thorough
@pytest.mark.parametrize("name", OTHERS)
def test_other_steps_meet_it_within_a_thousandth(name):
    model = split_budget(OTHERS[name], 1.0, 1e-5).fit(X, Y)
    assert 0.999 <= privacy_of(model).epsilon <= 1.0


@pytest.mark.parametrize("name", ["scaler", "three steps", "columns"])
def test_the_epsilons_sum_to_more_than_the_whole(name):
    with PrivacyLedger() as ledger:
        split_budget(GAUSSIAN[name], 1.0, 1e-5).fit(X, Y)
    assert ledger.total(1e-5) <= 1.0
    assert sum(epsilon_of(entry) for entry in ledger.entries) > 1.1


def epsilon_of(entry):
    alone = PrivacyLedger()
    alone.spend(entry.event, label="alone")
    return alone.total(1e-5)


def test_weights_are_shares_of_squared_mu():
    weights = {"dpstandardscaler": 1.0, "dpvariationallogisticregression": 3.0}
    model = split_budget(GAUSSIAN["scaler"], 2.0, 1e-6, weights)
    mu = [epsilon_to_gdp(step.epsilon, 1e-6) for _, step in model.steps]
    assert mu[1] ** 2 / mu[0] ** 2 == pytest.approx(3.0, rel=1e-6)
    assert math.hypot(*mu) == pytest.approx(epsilon_to_gdp(2.0, 1e-6), rel=1e-9)


def test_what_surrounds_a_model_gets_a_tenth():
    model = split_budget(GAUSSIAN["temperature in a pipeline"], 1.0, 1e-5)
    helper, own = model[0].epsilon, model[1].epsilon
    assert helper == own
    assert model[1].estimator.epsilon > 3 * own


def test_the_original_is_left_alone_and_the_copy_is_unfitted():
    pipeline = clone(GAUSSIAN["scaler"]).fit(X, Y)
    before = repr(pipeline), pipeline[0].privacy_.epsilon
    copy = split_budget(pipeline, 3.0, 1e-5)
    assert (repr(pipeline), pipeline[0].privacy_.epsilon) == before
    assert not hasattr(copy[0], "privacy_")


def test_planning_spends_nothing_and_says_nothing(recwarn):
    with PrivacyLedger() as ledger:
        split_budget(make_pipeline(DPStandardScaler(), classifier(random_state=0)), 1.0, 1e-5)
    assert ledger.entries == ()
    assert len(recwarn) == 0


def test_infinity_is_no_privacy_for_any_step():
    model = split_budget(GAUSSIAN["scaler"], math.inf, 1e-5)
    assert model[0].epsilon == model[1].epsilon == math.inf


def test_a_pure_step_stays_pure():
    sampler = OPSPosteriorSampler(delta=0, classes=[0, 1], n_samples=400)
    model = split_budget(make_pipeline(DPStandardScaler(), sampler), 2.0, 1e-5)
    assert model[1].delta == 0


@pytest.mark.thorough
def test_a_size_is_asked_for_where_the_charge_depends_on_it():
    pipeline = make_pipeline(DPStandardScaler(), network(n_samples=None))
    with pytest.raises(ValueError, match=r"'dpsgdclassifier'.*give n_samples"):
        split_budget(pipeline, 1.0, 1e-5)
    model = split_budget(pipeline, 1.0, 1e-5, n_samples=400).fit(X, Y)
    assert 0.999 <= privacy_of(model).epsilon <= 1.0
    larger = split_budget(pipeline, 1.0, 1e-5, n_samples=1200).fit(X, Y)
    assert privacy_of(larger).epsilon <= 1.0  # of 1200 rows as given, and not the 400


@pytest.mark.thorough
def test_a_search_divides_its_own_share():
    search = DPRandomizedSearch(classifier(), {"max_iter": [1, 2]}, mean_trials=2, n_samples=400)
    model = split_budget(make_pipeline(DPStandardScaler(), search), 2.0, 1e-5).fit(X, Y)
    assert 0.999 * 2.0 <= privacy_of(model).epsilon <= 2.0
    assert privacy_of(model[-1].best_estimator_).epsilon == model[-1].privacy_.epsilon


def test_the_width_of_a_step_is_not_guessed():
    columns = ColumnTransformer([("q", DPQuantileScaler(), [0])], remainder="passthrough")
    pipeline = make_pipeline(columns, classifier())
    with pytest.raises(ValueError, match=r"n_features={'columntransformer__q': ...}"):
        split_budget(pipeline, 1.0, 1e-5, n_features=3)
    model = split_budget(pipeline, 1.0, 1e-5, n_features={"columntransformer__q": 1}).fit(X, Y)
    assert 0.999 <= privacy_of(model).epsilon <= 1.0


def test_a_width_reaches_a_step_behind_ones_that_keep_it():
    pipeline = make_pipeline(BoundedScaler(), DPQuantileScaler(), classifier())
    with pytest.raises(ValueError, match=r"give n_features, the public"):
        split_budget(pipeline, 1.0, 1e-5)
    model = split_budget(pipeline, 1.0, 1e-5, n_features=3).fit(X, Y)
    assert 0.999 <= privacy_of(model).epsilon <= 1.0
    behind = make_pipeline(PolynomialFeatures(), DPQuantileScaler(), classifier())
    with pytest.raises(ValueError, match="give n_features"):
        split_budget(behind, 1.0, 1e-5, n_features=3)


def test_a_step_that_cannot_spend_its_share_leaves_it():
    sampler = OPSPosteriorSampler(delta=0, theta_norm=1.0, n_samples=400, classes=[0, 1])
    model = split_budget(make_pipeline(BoundedScaler(), sampler), 300.0, 1e-5, n_features=3)
    assert privacy_of(model.fit(X, Y), delta=1e-5).epsilon <= 300.0


@pytest.mark.parametrize(
    ("workflow", "message"),
    [
        (make_pipeline(BoundedScaler(), LogisticRegression()), "a workflow with a private step"),
        (OneVsRestClassifier(classifier()), "inside a OneVsRestClassifier"),
        (CalibratedClassifierCV(classifier()), "inside a CalibratedClassifierCV"),
        (make_pipeline(DPStandardScaler(), FrozenEstimator(classifier())), "FrozenEstimator"),
        (classifier(epsilon=None, noise_multiplier=1.0), "fixed by its noise"),
        (
            make_pipeline(DPStandardScaler(neighboring_relation="replace_one"), classifier()),
            "the same in every step",
        ),
        (make_pipeline(DPStandardScaler(), classifier(max_iter=0)), "max_iter=0"),
    ],
    ids=["none", "one vs rest", "calibrated", "frozen", "noise", "relations", "bad parameter"],
)
def test_what_cannot_be_split_is_refused(workflow, message):
    with pytest.raises(ValueError, match=message):
        split_budget(workflow, 1.0, 1e-5)
