"""Linear regression without privacy, beside formulas that are written out."""

import numpy as np
import pytest

from skdp import DPVariationalLinearRegression
from skdp.algorithms.exact_line import ExactLineConfig, likeliest
from skdp.algorithms.parts.prior_scales import PriorScales
from skdp.base import Records
from skdp.fitting.streams import Streams
from skdp.rows.persons import PersonUnit

N, D, TAU = 200, 3, 0.7


def table(seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (N, D))
    return X, X @ [0.3, -0.1, 0.0] + 0.1 * rng.normal(size=N)


def config(**more):
    facts = {"n_rows": N, "n_features": D, "fit_intercept": False, "data_norm": 3.0}
    return ExactLineConfig(**facts | {"prior_scale": TAU} | more)


def fitted(X, y, starts=None, weights=None, **more):
    records = Records(X, y[:, None], starts, weights)
    return config(**more).run(records, Streams(b"a"))


def test_it_is_conjugate_given_the_scale_of_residuals():
    X, y = table()
    q = fitted(X, y)
    s2 = np.exp(2 * q.mean[0, -1])
    covariance = np.linalg.inv(X.T @ X / s2 + np.eye(D) / TAU**2)
    np.testing.assert_allclose(q.mean[0, :D], covariance @ X.T @ y / s2, rtol=1e-6)
    np.testing.assert_allclose(q.covariance[:D, :D], covariance, rtol=1e-6)
    r = y - X @ q.mean[0, :D]
    expected = r @ r + np.trace(X.T @ X @ covariance)
    assert s2 == pytest.approx(expected / N, rel=0.02)  # but for the prior
    assert q.covariance[-1, -1] == pytest.approx(1 / (2 * N), rel=0.05)


def test_the_prior_scale_is_learned_by_blocks():
    X, y = table()
    prior = PriorScales.of(None, (1, D), D, (0, 0, 1), 2.0)
    found = likeliest(1e4 * np.eye(D), np.array([1e4, -1e4, 1.0]), 2e4, 1e4, prior)
    assert found[-1][0] > 0.5 > 0.05 > found[-1][1]
    known = fitted(X, y, prior_scale=None).prior_scales
    assert 0.05 < known[1, 0] < 1.0


def test_weights_are_repeated_rows():
    X, y = table()
    weights = np.repeat([1.0, 2.0], N // 2)
    rows = np.repeat(np.arange(N), weights.astype(int))
    one, other = fitted(X, y, None, weights, weight_bound=2.0), fitted(X[rows], y[rows])
    np.testing.assert_allclose(one.mean, other.mean, rtol=1e-6)
    np.testing.assert_allclose(one.covariance, other.covariance, rtol=1e-6)


def test_robust_widths_are_the_sandwich_of_persons():
    X, y = table()
    X, y, starts = np.repeat(X, 4, axis=0), np.repeat(y, 4), np.arange(0, 4 * N + 1, 4)
    facts = {"n_rows": 4 * N, "prior_scale": 100.0, "robust": True}
    rows = fitted(X, y, **facts)
    persons = fitted(X, y, starts, persons=PersonUnit(N, 4.0, 2.0), **facts)
    ratio = np.diag(persons.covariance)[:D] / np.diag(rows.covariance)[:D]
    np.testing.assert_allclose(ratio, 4.0, rtol=1e-3)
    r = y - X @ rows.mean[0, :D]
    bread = np.linalg.inv(X.T @ X)
    np.testing.assert_allclose(rows.covariance[:D, :D], bread @ (X.T * r**2) @ X @ bread, rtol=1e-2)


@pytest.mark.parametrize("rows", [{"data_norm": 2.0}, {"bounds": (-1, 1), "standardize": False}])
@pytest.mark.parametrize("epsilon", [None, np.inf])
def test_a_given_prior_is_in_units_of_targets_with_and_without_privacy(rows, epsilon):
    X, y = table()
    facts = rows | {"target_bounds": (-1, 1), "prior_scale": 0.02, "fit_intercept": False}
    facts |= {"noise_multiplier": None if epsilon else 1e-3, "n_samples": N}
    found = DPVariationalLinearRegression(epsilon, **facts).fit(X, y)
    s2 = found.noise_scale_**2
    covariance = np.linalg.inv(X.T @ X / s2 + np.eye(D) / 0.02**2)
    deviation, mean = np.sqrt(np.diag(covariance)), covariance @ X.T @ y / s2
    assert mean[0] < 0.8 * 0.3  # it matters
    np.testing.assert_allclose(found.coef_, mean, atol=0.3 * deviation.max())
    found_deviation = np.sqrt(np.diag(found.covariance_))[:D]
    np.testing.assert_allclose(found_deviation, deviation, rtol=0.15)
    assert found.prior_scale_ == pytest.approx(0.02)
