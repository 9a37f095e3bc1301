"""The Gaussian variational optimum: its defining equations, by Monte Carlo."""

import math

import numpy as np
import pytest
from scipy.special import expit

from skdp import DPVariationalLogisticRegression, DPVariationalPoissonRegression
from skdp.algorithms import gaussian_vi
from skdp.algorithms.gaussian_vi import GaussianVIConfig
from skdp.fitting.streams import Streams
from skdp.models.likelihoods import Bernoulli, Categorical, Poisson

INF = math.inf
N, TAU = 400, 2.0
RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (N, 3))
ROWS = np.column_stack([X, np.ones(N)])
LOGITS = 2.0 * X[:, 0] - X[:, 1] + 0.3

CASES = {
    "two classes": (Bernoulli(), (RNG.random(N) < expit(LOGITS)).astype(float)[:, None]),
    "three classes": (
        Categorical(3),
        np.eye(3)[np.digitize(LOGITS + RNG.logistic(size=N), [0, 1])],
    ),
    "counts": (Poisson(40.0), np.minimum(RNG.poisson(np.exp(LOGITS)), 40.0)[:, None]),
}


def optimum(likelihood, targets, **facts):
    config = GaussianVIConfig(likelihood, N, 3, True, math.sqrt(3), TAU, **facts)
    return config.run((X, targets), Streams())


@pytest.mark.parametrize("name", CASES)
def test_mean_and_covariance_solve_their_equations(name):
    likelihood, targets = CASES[name]
    q = optimum(likelihood, targets)
    K, D = q.mean.shape
    # E_q of the score and of its slope by draws of θ: another way than integrals over logits.
    normals = np.random.default_rng(1).normal(size=(4000, K * D))
    normals = np.concatenate([normals, -normals])
    root = np.linalg.cholesky(q.covariance)
    draws = (q.mean.ravel() + normals @ root.T).reshape(-1, K, D)
    scores = np.array(
        [likelihood.residual(ROWS @ theta.T, targets).T @ ROWS for theta in draws]
    ).reshape(len(draws), -1)
    error = scores.std(axis=0) / math.sqrt(len(draws))
    assert np.abs(scores.mean(axis=0) - q.mean.ravel() / TAU**2).max() < 6 * error.max()
    # Stein's identity, in coordinates in which the covariance is I.
    products = -normals[:, :, None] * (scores @ root)[:, None, :]
    error = products.std(axis=0) / math.sqrt(len(draws))
    expected = np.eye(K * D) - root.T @ root / TAU**2
    assert (np.abs(products.mean(axis=0) - expected) < 5 * error).all()
    # The tolerance would see deviations that are 15 % too large.
    assert (np.abs(products.mean(axis=0) - 1.3 * expected) > 5 * error).any()


def test_records_that_were_cut_are_counted_exactly():
    config = GaussianVIConfig(Poisson(3.0), N, 3, True, 1.0, TAU)
    targets = CASES["counts"][1]
    q = config.run((X, targets), Streams())
    expected = [(np.linalg.norm(X, axis=1) > 1).sum(), (targets > 3).sum()]
    np.testing.assert_array_equal(q.outside, expected)


@pytest.mark.parametrize("prior_scale", [1e-3, 1e3])
def test_separable_classes_converge_to_a_proper_posterior(prior_scale):
    model = DPVariationalLogisticRegression(INF, prior_scale=prior_scale, classes=[0, 1])
    model.fit(X, (X[:, 0] > 0).astype(int))
    assert np.linalg.eigvalsh(model.covariance_).min() > 0
    assert np.isfinite(model.predict_proba(X)).all()
    if prior_scale > 1:
        assert model.score(X, X[:, 0] > 0) > 0.98


@pytest.mark.parametrize(
    "setting",
    [{"max_iter": 200}, {"clip_norm": 5.0}, {"covariance": "diag"}, {"inference": "dpvi"}],
)
def test_settings_of_stochastic_steps_are_followed(setting):
    model = DPVariationalPoissonRegression(INF, largest_count=40, n_samples=N, **setting)
    assert type(model.plan(n_features=3).config).__name__ == "DPVIConfig"


def test_steps_and_newton_find_the_same_posterior():
    counts = CASES["counts"][1][:, 0]
    models = [
        DPVariationalPoissonRegression(INF, largest_count=40, n_samples=N, **setting).fit(X, counts)
        for setting in ({"robust": False}, {"max_iter": 1500})
    ]
    newton, steps = models
    sd = np.sqrt(np.diag(newton.covariance_))
    assert np.abs(newton.coef_ - steps.coef_).max() < 0.1 * sd.min()
    np.testing.assert_allclose(np.sqrt(np.diag(steps.covariance_)), sd, rtol=0.1)


@pytest.mark.parametrize("sd", [0.01, 0.2, 0.5, 1.0])
def test_few_nodes_are_enough_for_logits_that_vary_little(sd):
    few, many = (gaussian_vi.nodes(1, n) for n in (gaussian_vi.enough(sd**2), 150))
    for mean in np.linspace(-6.0, 6.0, 25):
        one, other = (weights @ expit(mean + sd * z[:, 0]) for z, weights in (few, many))
        assert one == pytest.approx(other, abs=1e-11)
