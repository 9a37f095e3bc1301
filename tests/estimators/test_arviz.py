"""Posteriors in the form of ArviZ: in the estimator's units, and summarised without a complaint."""

import numpy as np
import pytest

from skdp import (
    DPVariationalLinearRegression,
    DPVariationalLogisticRegression,
    DPVariationalPoissonRegression,
    OPSPosteriorSampler,
    OPSRegressor,
)

arviz = pytest.importorskip("arviz")

RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (300, 2))
Y = 10 + 3 * X[:, 0] + RNG.normal(size=300)
LABELS = (X[:, 0] > 0).astype(int)
NAMES = ["x0", "x1", "intercept"]
CASES = {
    "logistic": (DPVariationalLogisticRegression(classes=[0, 1], n_samples=300), LABELS, NAMES),
    "counts": (DPVariationalPoissonRegression(n_samples=300), LABELS, NAMES),
    "numbers": (
        DPVariationalLinearRegression(n_samples=300, target_bounds=(0, 20)),
        Y,
        [*NAMES, "noise_scale"],
    ),
    "samples of classes": (
        OPSPosteriorSampler(n_posterior_samples=16, classes=[0, 1], n_samples=300, max_iter=5),
        LABELS,
        NAMES,
    ),
    "samples of numbers": (
        OPSRegressor(n_posterior_samples=16, target_bounds=(0, 20), n_samples=300, max_iter=5),
        Y,
        NAMES,
    ),
}


@pytest.mark.parametrize(("estimator", "y", "names"), CASES.values(), ids=CASES)
def test_a_summary_names_parameters_and_diagnoses_independent_draws(estimator, y, names):
    fitted = estimator.fit(X, y)
    data = fitted.to_arviz(random_state=0)
    draws = data.posterior["theta"]
    assert list(draws.coords["parameter"].values) == names
    assert draws.sizes["chain"] == 4
    summary = arviz.summary(data)  # warnings are errors
    assert np.isfinite(summary["r_hat"]).all()
    flat = draws.values.reshape(-1, len(names))
    np.testing.assert_array_equal(flat, fitted.sample_posterior(len(flat), random_state=0))
    if estimator.__class__ is OPSRegressor:  # in the unit of y, as the coefficients
        np.testing.assert_allclose(flat.mean(0)[:2], fitted.coef_)


@pytest.mark.parametrize(("n", "n_chains"), [(1, 1), (15, 1), (17, 1), (16, 4), (20, 4)])
def test_few_draws_are_one_chain(n, n_chains):
    fitted = DPVariationalLinearRegression(n_samples=300, target_bounds=(0, 20)).fit(X, Y)
    assert fitted.to_arviz(n).posterior.sizes["chain"] == n_chains
