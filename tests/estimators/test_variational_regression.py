"""`DPVariationalLinearRegression` as its users see it, and what its intervals hold."""

import math
import warnings

import numpy as np
import pytest
from bundles import bundled
from refusals import refused
from scipy.stats import norm
from sklearn.linear_model import Ridge
from sklearn.multioutput import MultiOutputRegressor

from skdp import BudgetExceededError, FitWarning, PrivacyLedger, PrivacyWarning
from skdp.estimators.variational_regression import DPVariationalLinearRegression
from skdp.privacy import privacy_of


@pytest.fixture(scope="module")
def line():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (2000, 2))
    return X, 10 + 4 * X[:, 0] - X[:, 1] + rng.normal(0, 0.5, 2000)


DECLARED = {"target_bounds": (0.0, 20.0), "n_samples": 2000}


class TestFit:
    def test_learns_the_line_and_states_what_it_cost(self, line):
        X, y = line
        regressor = DPVariationalLinearRegression(1.0, **DECLARED).fit(X, y)
        sd = np.sqrt(np.diag(regressor.covariance_))
        found = [*regressor.coef_, regressor.intercept_, regressor.noise_scale_]
        assert np.all(np.abs(np.subtract(found, [4, -1, 10, 0.5])) < 5 * sd)
        assert regressor.score(X, y) > 0.9
        assert regressor.privacy_.valid
        assert 0.99 < regressor.privacy_.epsilon <= 1.0
        assert regressor.privacy_.inferred_public_facts == ()
        assert regressor.n_iter_ == 15
        assert regressor.parameter_names_ == ["x0", "x1", "intercept", "noise_scale"]

    @pytest.mark.parametrize("relation", ["zero_out", "add_or_remove_one", "replace_one"])
    def test_the_budget_is_met_under_every_relation(self, line, relation):
        regressor = DPVariationalLinearRegression(
            0.5, 1e-6, neighboring_relation=relation, max_iter=3, **DECLARED
        ).fit(*line)
        assert 0.495 < regressor.privacy_.epsilon <= 0.5

    def test_a_given_noise_multiplier_is_accounted(self, line):
        given = DPVariationalLinearRegression(None, noise_multiplier=4.0, max_iter=4, **DECLARED)
        regressor = given.fit(*line)
        assert regressor.noise_multiplier_ == 4.0
        again = DPVariationalLinearRegression(regressor.privacy_.epsilon, max_iter=4, **DECLARED)
        assert again.fit(*line).noise_multiplier_ == pytest.approx(4.0, rel=1e-6)

    def test_without_privacy_it_is_ridge_at_the_posterior_scale(self, line):
        X, y = line
        regressor = DPVariationalLinearRegression(math.inf, **DECLARED).fit(X, y)
        assert regressor.privacy_.epsilon == math.inf
        # y is scaled by 10, and the prior is N(0, τ²) on that scale, intercept and all.
        penalty = (regressor.noise_scale_ / 10 / regressor.prior_scale_) ** 2
        rows = np.column_stack([X, np.ones(len(X))])
        ridge = Ridge(penalty, fit_intercept=False).fit(rows, y - 10)
        np.testing.assert_allclose(
            [*regressor.coef_, regressor.intercept_ - 10], ridge.coef_, rtol=1e-3, atol=1e-4
        )

    def test_the_units_of_y_do_not_matter(self, line):
        X, y = line
        found = [
            DPVariationalLinearRegression(
                math.inf, target_bounds=(unit * 0.0, unit * 20.0), n_samples=2000
            )
            .fit(X, unit * y)
            .coef_
            / unit
            for unit in (1.0, 1e6)
        ]
        np.testing.assert_allclose(*found, rtol=1e-9)

    def test_a_refused_fit_changes_nothing(self, line):
        regressor = DPVariationalLinearRegression(1.0, **DECLARED)
        with PrivacyLedger(epsilon=0.5, delta=1e-5), pytest.raises(BudgetExceededError):
            regressor.fit(*line)
        assert not hasattr(regressor, "coef_")

    @bundled(
        "wrong",
        [
            {"target_bounds": (1.0, 0.0)},
            {"target_bounds": (0.0, math.inf)},
            {"target_bounds": (0.0, math.nan)},
            {"target_bounds": 3.0},
            {"target_bounds": (0.0, 1.0, 2.0)},
            {"target_bounds": ("a", "b")},
            {"epsilon": -1.0}, {"max_iter": 0}, {"clip_norm": 0.0}, {"prior_scale": "wide"},
            {"data_norm": -1.0}, {"fit_intercept": "yes"}, {"accountant": "magic"},
            {"noise_multiplier": 1.0},
        ],
    )  # fmt: skip
    def test_bad_parameters_are_named_and_nothing_is_spent(self, line, wrong):
        name = "epsilon" if "noise_multiplier" in wrong else next(iter(wrong))
        with PrivacyLedger() as ledger, pytest.raises(ValueError, match=name):
            DPVariationalLinearRegression(**{**DECLARED, **wrong}).fit(*line)
        assert len(ledger.entries) == 0


class TestPosterior:
    def test_draws_have_the_reported_mean_and_covariance(self, line):
        regressor = DPVariationalLinearRegression(1.0, **DECLARED).fit(*line)
        draws = regressor.sample_posterior(100_000, random_state=0)
        mean = [*regressor.coef_, regressor.intercept_, regressor.noise_scale_]
        sd = np.sqrt(np.diag(regressor.covariance_))
        assert draws.shape == (100_000, 4)
        assert (draws[:, -1] > 0).all()
        assert np.abs((draws.mean(axis=0) - mean) / sd).max() < 6 / math.sqrt(100_000)
        correlated = (np.cov(draws.T) - regressor.covariance_) / np.outer(sd, sd)
        assert np.abs(correlated).max() < 0.03

    @pytest.mark.thorough
    def test_predictive_deviations_are_calibrated(self):
        rng = np.random.default_rng(1)
        inside = []
        for seed in range(12):
            X = rng.uniform(-1, 1, (1200, 3))
            y = X @ rng.normal(0, 0.3, 3) + rng.normal(0, 0.2, 1200)
            regressor = DPVariationalLinearRegression(
                0.5, target_bounds=(-2, 2), data_norm=1.75, random_state=seed
            )
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", PrivacyWarning)
                regressor.fit(X[:1000], y[:1000])
            mean, deviation = regressor.predict(X[1000:], return_std=True)
            np.testing.assert_array_equal(mean, regressor.predict(X[1000:]))
            inside.append(np.mean(np.abs(y[1000:] - mean) < norm.ppf(0.95) * deviation))
        assert 0.85 < np.mean(inside) < 0.95  # 90 % wanted

    def test_predictive_lines_are_those_of_the_draws(self, line):
        X, _ = line
        regressor = DPVariationalLinearRegression(1.0, **DECLARED).fit(*line)
        lines = regressor.sample_predictive(X[:5], 20_000, random_state=0)
        mean, deviation = regressor.predict(X[:5], return_std=True)
        np.testing.assert_allclose(lines.mean(axis=0), mean, atol=0.05)
        assert (lines.std(axis=0) < deviation).all()

    def test_without_an_intercept(self, line):
        X, y = line
        regressor = DPVariationalLinearRegression(1.0, fit_intercept=False, **DECLARED).fit(X, y)
        assert regressor.intercept_ == 10.0  # the middle of the bounds
        assert regressor.parameter_names_ == ["x0", "x1", "noise_scale"]
        assert regressor.sample_posterior(3).shape == (3, 3)
        assert regressor.covariance_.shape == (3, 3)

    @pytest.mark.thorough
    def test_intervals_hold_the_truth_as_often_as_they_say(self):
        prior_scale, inside, plain = 1 / 3, [], []
        for seed in range(25):
            rng = np.random.default_rng(seed)
            X = rng.standard_normal((1000, 10)) / math.sqrt(10)
            X /= np.maximum(1, np.linalg.norm(X, axis=1))[:, None]
            theta = prior_scale * rng.standard_normal(10)
            sigma = math.exp(rng.uniform(math.log(0.05), math.log(0.5)))
            y = X @ theta + sigma * rng.standard_normal(1000)
            regressor = DPVariationalLinearRegression(
                0.5,
                target_bounds=(-1, 1),
                data_norm=1.0,
                fit_intercept=False,
                prior_scale=prior_scale,
                random_state=seed,
            )
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", PrivacyWarning)
                regressor.fit(X, y)
            sd = np.sqrt(np.diag(regressor.covariance_))[:10]
            inside.append(np.abs(regressor.coef_ - theta) < norm.ppf(0.95) * sd)
            plain.append(np.abs(regressor.coef_ - theta) < norm.ppf(0.95) * sd / 4)
        # 250 coefficients: 4 standard errors are 8 %; a quarter of the deviation shows the power.
        assert 0.82 < np.mean(inside) < 0.98
        assert np.mean(plain) < 0.8


class TestUnitOfTargets:
    """Without bounds the scale of the targets is released, or the fit says that it is unknown."""

    X = np.random.default_rng(0).uniform(-1, 1, (600, 3))
    NOISE = np.random.default_rng(1).normal(size=600)

    @pytest.mark.parametrize("scale", [1e-4, 1.0, 1e6])
    @pytest.mark.parametrize("epsilon", [1.0, math.inf])
    def test_no_bounds_are_needed_for_a_good_fit(self, epsilon, scale):
        y = scale * (8.0 + self.X @ [1.0, -2.0, 0.5] + 0.3 * self.NOISE)
        model = DPVariationalLinearRegression(epsilon, n_samples=600).fit(self.X, y)
        assert model.score(self.X, y) > 0.85
        assert 8 * scale <= model.target_scale_ <= 32 * scale
        # (θ, ln σ) is in the unit of y too.
        assert 0.1 * scale < model.noise_scale_ < 1.5 * scale
        assert np.abs(model.coef_ - scale * np.array([1.0, -2.0, 0.5])).max() < scale

    def test_a_scale_that_drowns_is_said(self):
        y = 1e4 * self.X[:60, 0]
        with pytest.warns(FitWarning, match="target_bounds"):
            model = DPVariationalLinearRegression(0.3, n_samples=60).fit(self.X[:60], y)
        assert model.target_scale_ == 1.0

    def test_bounds_are_a_scale(self):
        model = DPVariationalLinearRegression(n_samples=600, target_bounds=(-2, 6))
        assert model.fit(self.X, self.X[:, 0]).target_scale_ == 4.0


def test_several_targets_are_refused_and_the_remedy_works(line):
    X, y = line
    Y = np.column_stack([y, -y])
    regressor = DPVariationalLinearRegression(0.5, 5e-6, target_bounds=(-20, 20), n_samples=2000)
    with refused("MultiOutputRegressor"):
        regressor.fit(X, Y)
    both = MultiOutputRegressor(regressor).fit(X, Y)
    assert both.predict(X).shape == Y.shape
    assert both.score(X, Y) > 0.8
    assert 0.5 < privacy_of(both).epsilon <= 1.0
