"""A declared fact that contradicts what is public is refused or said, in every estimator alike."""

import warnings

import numpy as np
import pytest
from contracts.subjects import CLASSES
from sklearn.base import clone
from sklearn.model_selection import HalvingGridSearchCV, cross_val_score

from skdp import DPVariationalLogisticRegression, PrivacyLedger
from skdp.model_selection import DPRandomizedSearch, split_budget
from skdp.testing import private_estimators

N = 60
X = np.random.default_rng(0).uniform(-1, 1, (N, 2))
Y = (X[:, 0] > 0).astype(int)
DECLARE = [name for name in CLASSES if "n_samples" in private_estimators()[name].get_params()]


def made(name, **settings):
    estimator = private_estimators()[name]
    known = estimator.get_params(deep=False)
    facts = {"classes": [0, 1]} | settings
    return estimator.set_params(**{k: v for k, v in facts.items() if k in known})


@pytest.mark.parametrize("name", DECLARE)
@pytest.mark.parametrize("n_samples", [6, 29, 181, 600])
def test_a_number_of_rows_that_cannot_be_is_refused_for_nothing(name, n_samples):
    with PrivacyLedger() as ledger, pytest.raises(ValueError, match=f"={n_samples} .* {N};"):
        made(name, n_samples=n_samples).fit(X, Y)
    assert ledger.entries == ()


@pytest.mark.filterwarnings("ignore::skdp.PrivacyWarning")
@pytest.mark.parametrize("n_samples", [30, 180])
def test_last_years_number_will_do(n_samples):
    for name in ("DPVariationalLogisticRegression", "DPSGDClassifier", "DPRandomizedSearch"):
        assert made(name, n_samples=n_samples).fit(X, Y).privacy_.valid


@pytest.mark.parametrize("name", DECLARE)
def test_where_the_number_is_private_nobody_looks(name):
    settings = {"n_samples": 600, "neighboring_relation": "add_or_remove_one"}
    estimator = made(name, **settings)
    if "estimator" in estimator.get_params():
        estimator.set_params(**{f"estimator__{name}": value for name, value in settings.items()})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert estimator.fit(X, Y).privacy_.valid


class TestSearches:
    model = DPVariationalLogisticRegression(30.0, classes=[0, 1], max_iter=1)

    @pytest.mark.filterwarnings("ignore::skdp.PrivacyWarning")
    def test_folds_of_a_declared_whole_are_quiet(self):
        declared = clone(self.model).set_params(n_samples=N)
        scores = cross_val_score(declared, X, Y, cv=3, error_score="raise")
        assert np.isfinite(scores).all()

    @pytest.mark.filterwarnings("ignore::skdp.PrivacyWarning")
    def test_halving_is_told_the_remedy(self):
        grid, options = {"prior_scale": [1.0, 2.0, 3.0, 4.0]}, {"min_resources": 12, "cv": 2}
        search = HalvingGridSearchCV(
            clone(self.model).set_params(n_samples=N), grid, error_score="raise", **options
        )
        with pytest.raises(ValueError, match=r"n_samples=None.*halving"):
            search.fit(X, Y)
        assert HalvingGridSearchCV(self.model, grid, **options).fit(X, Y).best_score_ >= 0

    @pytest.mark.filterwarnings("ignore::skdp.PrivacyWarning")
    def test_our_own_give_their_number_to_the_parts(self):
        copied = clone(self.model).set_params(n_samples=569)
        model = split_budget(copied, 1.0, 1e-5, n_samples=N)
        assert model.n_samples == N
        grid = {"prior_scale": [1.0, 2.0]}
        search = DPRandomizedSearch(copied, grid, epsilon=30.0, mean_trials=1.5, n_samples=N)
        assert search.fit(X, Y).best_estimator_.n_samples == N
        with PrivacyLedger() as ledger, pytest.raises(ValueError, match="569"):
            search.set_params(n_samples=None).fit(X, Y)
        assert ledger.entries == ()


@pytest.mark.parametrize("name", [n for n in CLASSES if "delta" in made(n).get_params()])
def test_a_delta_that_allows_a_row_to_be_published_is_said(name):
    def said(delta):
        estimator = made(name, n_samples=N, delta=delta)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            estimator.fit(X, Y)
        return [w for w in caught if "delta" in str(w.message)]

    assert said(1 / N)
    assert not said(0.9 / N)


def test_a_delta_of_0_where_it_must_be_positive_names_what_has_pure_guarantees():
    estimator = DPVariationalLogisticRegression(delta=0, classes=[0, 1], n_samples=N)
    with pytest.raises(ValueError, match="OPSPosteriorSampler and OPSRegressor have delta=0"):
        estimator.fit(X, Y)
