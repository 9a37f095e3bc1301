"""``data_norm="auto"`` takes the norm that the step before declares."""

import numpy as np
import pytest
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import make_pipeline

from skdp import (
    DPVariationalLinearRegression,
    DPVariationalLogisticRegression,
    DPVariationalPoissonRegression,
    OPSPosteriorSampler,
    OPSRegressor,
)
from skdp._input import BoundedRows

RNG = np.random.default_rng(0)
X, Y = RNG.uniform(-1, 1, (40, 4)), RNG.integers(0, 2, 40)
ESTIMATORS = [
    DPVariationalLogisticRegression(max_iter=1),
    DPVariationalLogisticRegression(max_iter=1, inference="dpvi"),
    DPVariationalPoissonRegression(max_iter=1),
    DPVariationalLinearRegression(max_iter=1),
    OPSPosteriorSampler(),
    OPSPosteriorSampler(delta=0),
    OPSRegressor(target_bounds=(0, 1)),
]


class Declare(TransformerMixin, BaseEstimator):
    def __init__(self, norm=0.5):
        self.norm = norm

    def fit(self, X, y=None):
        return self

    def __sklearn_is_fitted__(self):
        return True

    def transform(self, X):
        return BoundedRows(X, self.norm)


def names(estimator):
    return f"{type(estimator).__name__}-{getattr(estimator, 'inference', estimator.delta)}"


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=names)
def test_auto_is_the_declared_norm(estimator):
    model = make_pipeline(Declare(), estimator).fit(X, Y)
    assert model[-1].data_norm_ == 0.5
    model.predict(X)


@pytest.mark.parametrize("estimator", ESTIMATORS[:2], ids=names)
def test_a_given_norm_wins_and_a_lost_declaration_is_none(estimator):
    given = make_pipeline(Declare(), estimator.set_params(data_norm=1.5)).fit(X, Y)
    assert given[-1].data_norm_ == 1.5
    lost = ColumnTransformer([("all", Declare(), [0, 1, 2, 3])])
    model = make_pipeline(lost, estimator.set_params(data_norm="auto")).fit(X, Y)
    assert model[-1].data_norm_ == 2.0  # √4


def test_rows_beyond_a_declared_norm_are_clipped_all_the_same():
    noiseless = DPVariationalLogisticRegression(float("inf"), inference="dpvi", max_iter=600)
    plain = clone(noiseless).set_params(data_norm=0.5).fit(X, Y)
    wrong = clone(noiseless).fit(BoundedRows(X, 0.5), Y)
    unclipped = clone(noiseless).set_params(data_norm=2.0).fit(X, Y)
    np.testing.assert_allclose(wrong.coef_, plain.coef_, atol=0.05)
    assert np.abs(wrong.coef_ - unclipped.coef_).max() > 0.2


def test_what_is_done_to_the_rows_takes_the_declaration_away():
    rows = BoundedRows(X, 0.5)
    for other in (rows[:3], rows * 2, rows + 1, np.sqrt(np.abs(rows)), rows.sum(axis=1)):
        assert type(other) is np.ndarray
    assert type(rows.sum()) is np.float64
    assert repr(rows) == repr(X)
