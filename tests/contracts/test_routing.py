"""Persons reach every private fit of scikit-learn's own searches and compositions, or no fit is."""

import numpy as np
import pandas as pd
import pytest
from sklearn import config_context
from sklearn.compose import ColumnTransformer
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_validate
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.utils.metadata_routing import get_routing_for_object

from skdp import (
    DPPCA,
    DPQuantileScaler,
    DPSGDClassifier,
    DPStandardScaler,
    DPVariationalLogisticRegression,
    Persons,
)
from skdp.privacy import PrivacyLedger, privacy_of
from skdp.testing import private_estimators, record_releases

N, PERSONS = 120, 40
RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (N, 3))
Y = (X[:, 0] > 0).astype(int)
GROUPS = np.array([f"person {i}" for i in RNG.permutation(np.arange(N) % PERSONS)])
TABLE = pd.DataFrame(X, columns=["age", "income", "visits"])
UNIT = {"unit": Persons(PERSONS, rows_per_group=3)}
KEPT = []
ALL = private_estimators()


class Kept:
    """Remembers every object that was fitted."""

    def fit(self, X, y=None, groups=None):
        KEPT.append(self)
        return super().fit(X, y, groups)


class KeptLogistic(Kept, DPVariationalLogisticRegression):
    """A classifier."""


class KeptScaler(Kept, DPStandardScaler):
    """A scaler."""


def logistic(kind=DPVariationalLogisticRegression):
    return kind(classes=[0, 1], inference="dpvi", max_iter=2, **UNIT)


def asked(estimator):
    return estimator.set_fit_request(groups=True)


def columns():
    """Two private scalers, each of its columns."""
    return ColumnTransformer(
        [
            ("mean", asked(DPStandardScaler(-1, 1, **UNIT)), ["age", "income"]),
            ("quantiles", asked(DPQuantileScaler(-1, 1, **UNIT)), ["visits"]),
        ]
    )


def test_a_grid_search_over_folds_of_persons_passes_them_to_every_fit():
    KEPT.clear()
    with config_context(enable_metadata_routing=True), PrivacyLedger(unit="group") as ledger:
        model = make_pipeline(
            asked(KeptScaler(-1, 1, unit=Persons(rows_per_group=3))), asked(logistic(KeptLogistic))
        )
        search = GridSearchCV(model, {"keptlogistic__epsilon": [1.0, 3.0]}, cv=GroupKFold(2))
        search.fit(X, Y, groups=GROUPS)
    assert len(KEPT) == len(ledger.entries) == 2 * (2 * 2 + 1)  # two steps, folds, and the refit
    assert {fitted.privacy_.unit for fitted in KEPT} == {"group"}
    assert {fitted.privacy_.neighboring_relation for fitted in KEPT} == {"zero_out_group"}
    assert privacy_of(search.best_estimator_).unit == "group"


@pytest.mark.parametrize("network", [False, True])
def test_without_routing_a_grid_search_drops_them_and_the_fit_is_refused(network):
    model = DPSGDClassifier(classes=[0, 1], max_iter=2, **UNIT) if network else logistic()
    search = GridSearchCV(model, {"epsilon": [1.0]}, cv=GroupKFold(2), error_score="raise")
    with (
        PrivacyLedger(unit="group") as ledger,
        record_releases() as tape,
        pytest.raises(ValueError, match=r"enable_metadata_routing=True.*set_fit_request") as error,
    ):
        search.fit(X, Y, groups=GROUPS)
    assert (ledger.entries, tape) == ((), [])
    assert "person " not in str(error.value)


def test_a_step_that_would_get_no_persons_is_refused_before_a_release():
    def refused(model, **given):
        with (
            PrivacyLedger(unit="group") as ledger,
            record_releases() as tape,
            pytest.raises(ValueError, match="set_fit_request"),
        ):
            model.fit(X, Y, **given)
        assert (ledger.entries, tape) == ((), [])

    of_columns = ColumnTransformer([("quantiles", DPQuantileScaler(-1, 1, **UNIT), [0, 1])])
    refused(make_pipeline(of_columns, logistic()))
    with config_context(enable_metadata_routing=True):
        refused(make_pipeline(DPStandardScaler(-1, 1, **UNIT), logistic()), groups=GROUPS)
        refused(make_pipeline(logistic().set_fit_request(groups=False)))


@pytest.mark.parametrize("kind", ["pandas", "list"])
def test_columns_and_steps_get_the_persons(kind):
    groups = pd.Series(GROUPS) if kind == "pandas" else GROUPS.tolist()
    with config_context(enable_metadata_routing=True), PrivacyLedger(unit="group") as ledger:
        model = Pipeline([("columns", columns()), ("model", asked(logistic()))])
        fitted = model.fit(TABLE, Y, groups=groups)
    parts = [*fitted["columns"].named_transformers_.values(), fitted["model"]]
    assert [part.privacy_.unit for part in parts] == ["group"] * 3
    assert len(ledger.entries) == 3
    assert privacy_of(fitted).unit == "group"
    assert privacy_of(fitted).valid


@pytest.mark.parametrize("name", [n for n, e in ALL.items() if "unit" in e.get_params()])
def test_every_estimator_can_ask_for_persons(name):
    with config_context(enable_metadata_routing=True):
        requests = get_routing_for_object(asked(private_estimators()[name])).fit.requests
    assert requests["groups"] is True


def test_columns_alone_transform_and_get_the_persons():
    with config_context(enable_metadata_routing=True):
        fitted = columns()
        assert fitted.fit_transform(TABLE, groups=GROUPS).shape == (N, 3)
        pieces = FeatureUnion([("scaled", asked(DPStandardScaler(-1, 1, **UNIT)))])
        both = make_pipeline(pieces, asked(DPPCA(2, **UNIT)))
        assert both.fit_transform(X, groups=GROUPS).shape == (N, 2)
    assert privacy_of(fitted).unit == privacy_of(both).unit == "group"


def test_cross_validation_passes_them_as_parameters():
    with config_context(enable_metadata_routing=True):
        found = cross_validate(
            asked(logistic()), X, Y, params={"groups": GROUPS}, cv=GroupKFold(2),
            return_estimator=True, error_score="raise",
        )  # fmt: skip
    assert {fitted.privacy_.unit for fitted in found["estimator"]} == {"group"}
