"""Posteriors of extreme fits: finite and positive, whatever is released."""

import numpy as np
import pytest
from bundles import bundled

from skdp import (
    DPVariationalLinearRegression,
    DPVariationalLogisticRegression,
    DPVariationalModel,
    DPVariationalPoissonRegression,
)

RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (600, 3))


def assert_proper(model):
    assert np.isfinite(model.covariance_).all()
    assert np.linalg.eigvalsh(model.covariance_).min() > -1e-9 * np.abs(model.covariance_).max()
    assert np.isfinite(model.sample_posterior(5)).all()


# Every pair of an ε and a prior, and each of them with every number of classes.
SEPARABLE = [
    (epsilon, prior_scale, (2, 3, 6)[(i + j) % 3])
    for i, epsilon in enumerate([1e-3, 1.0, 100.0, 1e5])
    for j, prior_scale in enumerate(["auto", 30.0, 1e3, 1e-6])
]


@pytest.mark.thorough
@bundled(("epsilon", "prior_scale", "n_classes"), SEPARABLE)
def test_separable_classes(epsilon, prior_scale, n_classes):
    y = np.digitize(X[:, 0], np.linspace(-1, 1, n_classes + 1)[1:-1])
    model = DPVariationalLogisticRegression(
        epsilon, prior_scale=prior_scale, classes=range(n_classes), n_samples=600
    ).fit(X, y)
    assert_proper(model)
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1, rtol=1e-9)
    if prior_scale == "auto" and epsilon >= 100:
        # Six in a row need larger effects than the steps of a run reach: chance is 1/6.
        assert model.score(X, y) > (0.8 if n_classes < 6 else 0.4)


@pytest.mark.thorough
@bundled("epsilon", [0.1, 10.0, 1e4])
@bundled("largest_count", [1e-3, 1.0, 5.0, 1e5])
@bundled("bounds", [None, (-1, 1)])
def test_counts_that_are_all_cut(epsilon, largest_count, bounds):
    facts = {"largest_count": largest_count, "bounds": bounds, "n_samples": 600}
    model = DPVariationalPoissonRegression(epsilon, **facts).fit(X, np.full(600, 1e6))
    assert_proper(model)
    assert np.isfinite(model.predict(X)).all()


@pytest.mark.parametrize("n_samples", [1, 60_000])
@pytest.mark.parametrize(
    "kind",
    [
        DPVariationalLogisticRegression,
        DPVariationalPoissonRegression,
        DPVariationalLinearRegression,
    ],
)
def test_a_number_of_rows_declared_a_hundred_times_off(kind, n_samples):
    # Where the number is private, nobody can hold it against the rows.
    model = kind(10.0, n_samples=n_samples, neighboring_relation="add_or_remove_one")
    assert_proper(model.fit(X, X[:, 0] > 0))


def test_posteriors_cannot_be_changed_through_what_they_show():
    model = DPVariationalLogisticRegression().fit(X, X[:, 0] > 0)
    before = model.predict_proba(X)
    shown = model.covariance_
    shown *= 1000
    np.testing.assert_array_equal(model.predict_proba(X), before)


@pytest.mark.thorough
def test_a_prior_must_be_one_to_return_to():
    import torch

    def log_likelihood(theta, x):
        return -0.5 * ((x - theta) ** 2).sum(1)

    for prior in (torch.distributions.HalfNormal(1.0), lambda theta: -theta.abs().sum()):
        with pytest.raises(ValueError, match="prior="):
            DPVariationalModel(log_likelihood, 3, prior=prior, n_samples=600).fit(X)
    laplace = torch.distributions.Laplace(torch.zeros(3, dtype=torch.float64), 1.0)
    model = DPVariationalModel(log_likelihood, 3, prior=laplace, epsilon=1e-3, n_samples=600)
    deviation = np.sqrt(np.diag(model.fit(X).covariance_))
    np.testing.assert_allclose(deviation, np.sqrt(2), rtol=0.3)
