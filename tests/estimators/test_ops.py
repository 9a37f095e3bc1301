"""`OPSPosteriorSampler` and `OPSRegressor` as their users see them, and audited from outside."""

import math
from unittest import mock

import numpy as np
import pytest
from scipy.stats import beta, norm
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.linear_model import Ridge
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline

from skdp import (
    BoundedScaler,
    BudgetExceededError,
    OPSPosteriorSampler,
    OPSRegressor,
    PrivacyLedger,
    PrivacyWarning,
)
from skdp.fitting.streams import SecureStream
from skdp.privacy import epsilon_of_event, gdp_to_epsilon


@pytest.fixture(scope="module")
def line():
    coin = np.random.default_rng(0)
    X = coin.uniform(-1, 1, (3000, 2))
    return X, (coin.random(3000) < 1 / (1 + np.exp(-6 * X[:, 0] + 2 * X[:, 1]))).astype(int)


DECLARED = {"classes": [0, 1], "n_samples": 3000}
FEW = {"classes": [0, 1], "n_samples": 200}  # where nothing is learned from the rows


@pytest.fixture(scope="module")
def short_line(line):
    return line[0][:200], line[1][:200]


@pytest.mark.parametrize("delta", [1e-5, 0])
def test_fits_predicts_and_states_what_it_cost(line, delta):
    X, y = line[0][:1000], line[1][:1000]
    sampler = OPSPosteriorSampler(
        2.0, delta, n_posterior_samples=3, classes=[0, 1], n_samples=1000
    ).fit(X, y)
    assert sampler.score(X, y) > 0.8
    assert sampler.privacy_.valid
    assert 2.0 * 0.99 < sampler.privacy_.epsilon <= 2.0
    assert sampler.privacy_.delta == delta
    assert sampler.privacy_.inferred_public_facts == ()
    assert sampler.sample_posterior().shape == (3, 3)
    assert sampler.parameter_names_ == ["x0", "x1", "intercept"]
    assert sampler.effective_n_samples_ == sampler.likelihood_power_ * 1000
    np.testing.assert_allclose(sampler.coef_[0], sampler.sample_posterior()[:, :2].mean(0))
    np.testing.assert_allclose(sampler.intercept_[0], sampler.sample_posterior()[:, 2].mean())
    np.testing.assert_allclose(
        sampler.predict_proba(X), sampler.sample_predictive(X).mean(0), atol=1e-12
    )


@pytest.mark.parametrize("delta", [1e-5, 0])
def test_more_samples_than_paid_for_are_refused_with_their_price(short_line, delta):
    sampler = OPSPosteriorSampler(1.0, delta, n_posterior_samples=2, **FEW).fit(*short_line)
    paid = sampler.sample_posterior()
    np.testing.assert_array_equal(sampler.sample_posterior(1), paid[:1])
    np.testing.assert_array_equal(sampler.sample_posterior(2, random_state=3), paid)
    with pytest.raises(BudgetExceededError, match=r"3 posterior samples.*2 paid for") as error:
        sampler.sample_posterior(3)
    price = float(str(error.value).split("cost epsilon=")[1].split()[0])
    if delta == 0:
        assert price == pytest.approx(1.5, rel=1e-3)
    else:
        mu = math.sqrt(3 / 2) / sampler.privacy_.event.noise_multiplier
        assert price == pytest.approx(gdp_to_epsilon(mu, 1e-5), rel=1e-3)
    with pytest.raises(BudgetExceededError):
        sampler.sample_predictive(short_line[0], 3)


def test_the_paid_samples_cannot_be_overwritten_from_outside(short_line):
    sampler = OPSPosteriorSampler(**FEW).fit(*short_line)
    before = sampler.predict_proba(short_line[0])
    sampler.sample_posterior()[:] = 0.0
    np.testing.assert_array_equal(sampler.predict_proba(short_line[0]), before)


def test_auto_takes_the_sampler_that_the_guarantee_asks_for(line):
    def chosen(**parameters):
        drawn = {"return_value": np.zeros((1, 1, 3))}
        with (
            mock.patch("skdp.algorithms.langevin.LangevinConfig.run", **drawn),
            mock.patch("skdp.algorithms.ops.ExactConfig.run", **drawn),
        ):
            return OPSPosteriorSampler(**DECLARED, **parameters).fit(*line).sampler_

    assert chosen() == "langevin"
    assert chosen(epsilon=3.0, delta=0) == "rejection"
    assert chosen(epsilon=0.01, sampler="rejection") == "rejection"
    with pytest.raises(ValueError, match=r"sampler='proximal'.*to be 'rejection'"):
        chosen(sampler="proximal")


def test_a_power_may_be_given_instead_of_epsilon(line):
    sampler = OPSPosteriorSampler(None, likelihood_power=0.05, **DECLARED).fit(*line)
    assert sampler.likelihood_power_ == 0.05
    report = sampler.privacy_
    assert 0 < report.epsilon == epsilon_of_event(report.event, 1e-5)
    pure = OPSPosteriorSampler(None, 0, likelihood_power=0.01, theta_norm=5.0, **DECLARED)
    η = pure.fit(*line).privacy_.epsilon
    assert η == pytest.approx(0.01 * 5.0 * math.sqrt(3))  # RD


def test_without_a_budget_it_is_the_posterior_and_the_report_says_what_that_costs(line):
    X, y = line[0][:200], line[1][:200]
    sampler = OPSPosteriorSampler(float("inf"), n_posterior_samples=2, classes=[0, 1]).fit(X, y)
    assert sampler.likelihood_power_ == 1.0
    assert sampler.privacy_.epsilon > 10
    assert sampler.score(X, y) > 0.8


def test_add_or_remove_states_the_domain_it_holds_on(short_line):
    X, y = short_line
    sampler = OPSPosteriorSampler(neighboring_relation="add_or_remove_one", **FEW)
    assert "at most 200 rows" in sampler.fit(X, y).privacy_.sampling
    with PrivacyLedger(neighboring_relation="add_or_remove_one") as ledger:
        with pytest.raises(ValueError, match="n_samples=200"):
            sampler.fit(np.vstack([X, X[:1]]), np.append(y, 0))
        assert ledger.entries == ()
        # An exact draw needs no such bound.
        exact = clone(sampler).set_params(delta=0, n_samples=100)
        assert exact.fit(X, y).privacy_.valid
        assert len(ledger.entries) == 1


def test_a_refused_fit_reads_nothing_and_leaves_nothing(short_line):
    sampler = OPSPosteriorSampler(1.0, **FEW)
    with PrivacyLedger(epsilon=1.2, delta=1e-5):
        sampler.fit(*short_line)
        before = sampler.sample_posterior()
        with (
            pytest.raises(BudgetExceededError),
            mock.patch("skdp.algorithms.langevin.LangevinConfig.run", side_effect=AssertionError),
        ):
            sampler.fit(*short_line)
    np.testing.assert_array_equal(sampler.sample_posterior(), before)


@pytest.mark.parametrize("delta", [1e-5, pytest.param(0, marks=pytest.mark.slow)])
def test_three_classes(delta):
    X, y = load_iris(return_X_y=True)
    X, y = np.repeat(X, 5, axis=0), np.repeat(y, 5)
    model = make_pipeline(
        BoundedScaler(lower=[4, 2, 1, 0], upper=[8, 4.5, 7, 2.5]),
        OPSPosteriorSampler(10.0, delta, classes=[0, 1, 2], n_samples=750),
    ).fit(X, y)
    assert model.score(X, y) > 0.6
    assert model[-1].coef_.shape == (3, 4)
    assert model[-1].parameter_names_[:2] == ["0: x0", "0: x1"]
    np.testing.assert_allclose(model.predict_proba(X).sum(1), 1)


def test_breast_cancer_by_default_settings():
    X, y = load_breast_cancer(return_X_y=True)
    X = np.clip((X - X.mean(0)) / X.std(0) / 3, -1, 1)  # a comparison, not a private pipeline
    A, B, a, b = train_test_split(X, y, random_state=0, stratify=y)
    sampler = OPSPosteriorSampler(3.0, classes=[0, 1], n_samples=len(A))
    losses = [log_loss(b, sampler.fit(A, a).predict_proba(B)) for _ in range(5)]
    assert np.mean(losses) < 0.3


# --- the regressor --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def slope():
    coin = np.random.default_rng(1)
    X = coin.uniform(-1, 1, (3000, 3))
    return X, 10 + X @ [4.0, -1.0, 0.0] + coin.normal(0, 0.5, 3000)


@pytest.mark.thorough
@pytest.mark.parametrize("delta", [1e-5, pytest.param(0, marks=pytest.mark.slow)])
def test_regressor_finds_the_line(slope, delta):
    X, y = slope[0][:500], slope[1][:500]
    regressor = OPSRegressor(
        10.0, delta, n_posterior_samples=4, target_bounds=(4, 16), n_samples=500, noise_scale=2.0
    ).fit(X, y)
    assert regressor.score(X, y) > 0.8
    assert regressor.privacy_.valid
    np.testing.assert_allclose(regressor.predict(X), X @ regressor.coef_ + regressor.intercept_)
    _, deviation = regressor.predict(X, return_std=True)
    assert np.all(deviation >= regressor.noise_scale_)
    assert regressor.sample_predictive(X).shape == (4, 500)
    of_y = regressor.sample_posterior().mean(0)
    np.testing.assert_allclose(of_y, [*regressor.coef_, regressor.intercept_])
    assert regressor.parameter_names_ == ["x0", "x1", "x2", "intercept"]
    np.testing.assert_allclose(regressor.sample_predictive(X, 2).shape, (2, 500))


def test_regressor_without_privacy_is_bayesian_ridge_regression(slope):
    """500 samples of a posterior that no residual is cut in: normal, and known."""
    X, y = slope
    X, y = X[:200], y[:200]
    regressor = OPSRegressor(
        float("inf"), n_posterior_samples=500, target_bounds=(0, 20), noise_scale=2.0,
        residual_bound=100.0, prior_scale=0.5, fit_intercept=False, step_size=5e-5, max_iter=800,
        batch_size=200,
    ).fit(X, y)  # fmt: skip
    σ, τ = 2.0 / 10, 0.5
    precision = X.T @ X / σ**2 + np.eye(3) / τ**2
    mean = np.linalg.solve(precision, X.T @ ((y - 10) / 10) / σ**2)
    ridge = Ridge(alpha=(σ / τ) ** 2, fit_intercept=False).fit(X, (y - 10) / 10)
    np.testing.assert_allclose(ridge.coef_, mean)
    covariance = np.linalg.inv(precision)
    draws = regressor.sample_posterior() / 10
    error = np.abs(draws.mean(0) - mean) / np.sqrt(np.diag(covariance) / 500)
    assert error.max() < 5
    spread = np.diag(np.cov(draws.T)) / np.diag(covariance)
    assert np.all(np.abs(spread - 1) < 5 * math.sqrt(2 / 500))


@pytest.mark.thorough
def test_targets_beyond_their_bounds_are_clipped(slope):
    X, y = slope[0][:500], slope[1][:500]
    wild = np.where(np.arange(500) % 10 == 0, 1e9, y)
    regressor = OPSRegressor(5.0, target_bounds=(4, 16), n_samples=500).fit(X, wild)
    assert regressor.predict(X).max() < 30


# --- the diagnosis that is not private ------------------------------------------------------------


def test_diagnosis_is_loud_and_leaves_no_trace(short_line):
    arviz = pytest.importorskip("arviz")
    sampler = OPSPosteriorSampler(1.0, **FEW)
    before = dict(vars(sampler))
    with PrivacyLedger() as ledger, pytest.warns(PrivacyWarning, match="not private"):
        data = sampler.diagnose_convergence(*short_line, n_chains=8)
    assert ledger.entries == ()
    assert vars(sampler) == before
    theta = data.posterior["theta"]
    assert theta.shape[0] == 8
    assert data.posterior.attrs["private"] == 0
    assert theta.shape[1] == 2 * data.posterior.attrs["passes_of_fit"]
    passes = data.posterior.attrs["passes_of_fit"]
    start, stationary = (
        float(arviz.rhat(data.sel(draw=draws)).theta.max())
        for draws in (slice(0, passes // 20), slice(passes, None))
    )
    assert stationary < min(start, 2.5)
    with pytest.raises(ValueError, match="exact draws need no diagnosis"):
        OPSPosteriorSampler(delta=0, **FEW).diagnose_convergence(*short_line)


# --- audits from outside --------------------------------------------------------------------------


def lower_bound(with_record, without, threshold, level=1e-3):
    """μ that the two samples prove at a level, from a threshold set beforehand."""
    n = len(with_record)
    misses, alarms = np.sum(with_record <= threshold), np.sum(without > threshold)
    fnr, fpr = (beta.ppf(1 - level / 2, errors + 1, n - errors) for errors in (misses, alarms))
    return norm.ppf(1 - fpr) - norm.ppf(fnr)


def tail_record(fit, n):
    """A regression far from one record's target pulls with full force at every step, to the end."""
    X = np.zeros((2, 1))
    with_record, without = X.copy(), X.copy()
    with_record[1] = 1.0
    y = np.array([0.0, 1.0])
    return (np.array([fit(rows, y) for _ in range(n)]) for rows in (with_record, without))


def make_tail_regressor(ε):
    return OPSRegressor(
        ε, target_bounds=(-1, 1), residual_bound=0.02, noise_scale=0.05, prior_scale=0.2,
        step_size=0.003, max_iter=30, data_norm=1.0, fit_intercept=False, n_samples=2,
    )  # fmt: skip


def audit_regressor(n, ε=4.377178):  # μ = 1
    def fit(X, y):
        return make_tail_regressor(ε).fit(X, y).sample_posterior()[0, 0]

    with_record, without = tail_record(fit, n)
    return lower_bound(with_record, without, threshold=0.5 * 0.2)


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore::skdp.PrivacyWarning")
def test_audit_proves_no_more_than_the_claim():
    assert 0.2 < audit_regressor(300) <= 1.0  # .7 ± .1


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::skdp.PrivacyWarning")
def test_audit_proves_most_of_the_claim():
    assert 0.5 < audit_regressor(1000) <= 1.0


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore::skdp.PrivacyWarning")
def test_audit_catches_a_chain_at_half_the_noise():
    normal = SecureStream.normal
    with mock.patch.object(SecureStream, "normal", lambda self, shape: 0.5 * normal(self, shape)):
        assert audit_regressor(300) > 1.0  # about 1.6 ± .13


def audit_classifier(n):
    """Rows of the other class keep the score where the record's gradient is steepest."""
    X, y = np.ones((10, 1)), np.zeros(10, dtype=int)
    y[-1] = 1
    other = X.copy()
    other[-1] = 0.0
    sampler = OPSPosteriorSampler(
        4.377178, data_norm=1.0, fit_intercept=False, classes=[0, 1], n_samples=10,
        prior_scale=20.0, step_size=10.0, max_iter=60,
    )  # fmt: skip
    arms = (
        np.array([sampler.fit(rows, y).sample_posterior()[0, 0] for _ in range(n)])
        for rows in (X, other)
    )
    return lower_bound(*arms, threshold=-0.6 * sampler.prior_scale)


@pytest.mark.slow  # the chain is the regressor's
def test_audit_of_the_classifier():
    # About .25 ± .06 is proved of the 1 that is claimed: more than nothing.
    assert 0 < audit_classifier(1000) <= 1.0


@pytest.mark.slow
def test_audit_of_the_classifier_catches_a_chain_at_half_the_noise():
    assert audit_classifier(2000) <= 1.0
    normal = SecureStream.normal
    with mock.patch.object(SecureStream, "normal", lambda self, shape: 0.5 * normal(self, shape)):
        assert audit_classifier(8000) > 1.0


def pure_lower_bound(with_record, without, threshold, level=1e-3):
    """ε that the two samples prove at a level for a pure guarantee."""
    n = len(with_record)
    hits, alarms = np.sum(with_record > threshold), np.sum(without > threshold)
    low = beta.ppf(level / 2, hits, n - hits + 1)
    high = beta.ppf(1 - level / 2, alarms + 1, n - alarms)
    return math.log(low / high)


def test_audit_of_exact_draws():
    """D = 3, ε = 2: the record's likelihood differs by a factor e² between the ends of the domain.

    Of k draws each is a sample of one and the same posterior, so one fit gives all: a draw is
    audited against η.
    """
    X, y = np.ones((4, 1)), np.array([0, 0, 0, 1])
    other = X.copy()
    other[-1] = 0.0
    k = 20_000
    model = OPSPosteriorSampler(
        2.0 * k, 0, n_posterior_samples=k, data_norm=1.0, theta_norm=3.0,
        prior_scale=3.0, fit_intercept=False, classes=[0, 1], n_samples=4,
    )  # fmt: skip
    arms = [model.fit(rows, y).sample_posterior()[:, 0] for rows in (X, other)]
    assert model.privacy_.epsilon / k == pytest.approx(2.0)
    assert 0.15 < pure_lower_bound(*arms, threshold=0.0) <= 2.0
