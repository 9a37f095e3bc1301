"""Variational inference of linear models against quadrature, and vanilla against a slow loop."""

import dataclasses
import itertools

import numpy as np
import pytest
from reference.mean_field import mean_field_optimum
from scipy.optimize import minimize
from scipy.special import expit

from skdp.algorithms import dp_vi
from skdp.algorithms.parts import gaussian_families
from skdp.engine import release_hook
from skdp.fitting.streams import Streams
from skdp.models.likelihoods import Bernoulli, Categorical
from skdp.rows.records import LinearRows

NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(40)
WEIGHTS = WEIGHTS / WEIGHTS.sum()


def full_optimum(rows, y, prior_scale):
    """Mean and covariance of the best Gaussian: one-dimensional integrals and L-BFGS."""
    d = rows.shape[1]
    lower, diagonal = np.tril_indices(d), np.arange(d)

    def unpacked(parameters):
        L = np.zeros((d, d))
        L[lower] = parameters[d:]
        rho = L[diagonal, diagonal].copy()
        L[diagonal, diagonal] = np.exp(rho)
        return parameters[:d], L, rho

    def negative_elbo(parameters):
        m, L, rho = unpacked(parameters)
        half = rows @ L
        z = (rows @ m)[:, None] + np.linalg.norm(half, axis=1)[:, None] * NODES
        log_likelihood = ((y[:, None] * z - np.logaddexp(0, z)) @ WEIGHTS).sum()
        slope = (y[:, None] - expit(z)) @ WEIGHTS
        curvature = (expit(z) * expit(-z)) @ WEIGHTS
        elbo = log_likelihood - (m @ m + np.sum(L**2)) / (2 * prior_scale**2) + rho.sum()
        of_L = -(rows.T * curvature) @ half - L / prior_scale**2
        of_L[diagonal, diagonal] = of_L[diagonal, diagonal] * L[diagonal, diagonal] + 1
        of_m = rows.T @ slope - m / prior_scale**2
        return -elbo, -np.concatenate([of_m, of_L[lower]])

    start = np.zeros(d + len(lower[0]))
    options = {"maxiter": 10_000, "maxfun": 20_000, "ftol": 1e-15, "gtol": 1e-8}
    found = minimize(negative_elbo, start, jac=True, method="L-BFGS-B", options=options)
    m, L, _ = unpacked(found.x)
    return m, L @ L.T


def correlated_rows(n, d, correlation):
    rng = np.random.default_rng(0)
    common = np.sqrt(correlation) * rng.standard_normal((n, 1))
    X = (np.sqrt(1 - correlation) * rng.standard_normal((n, d)) + common) / (1.5 * np.sqrt(d))
    X *= np.minimum(1, 1 / np.linalg.norm(X, axis=1))[:, None]
    return X, (rng.random(n) < expit(X @ (3 * rng.standard_normal(d)))).astype(float)


CONFIG = dp_vi.DPVIConfig(
    likelihood=Bernoulli(), n_rows=600, n_features=5, fit_intercept=False, data_norm=1.0,
    n_steps=4000, sampling_rate=1.0, clip_norm=10.0, prior_scale=5.0, initial_scale=0.1,
    given_learning_rate=0.1, noise_multiplier=0.0,
)  # fmt: skip


def fitted(X, y, **changes):
    config = dataclasses.replace(CONFIG, n_features=X.shape[1], **changes)
    return config.run((X, y[:, None]), Streams(b"test"))


class TestOptimum:
    @pytest.mark.parametrize("initial_scale", [0.02, 3.0])
    def test_full_covariance_is_the_best_gaussian(self, initial_scale):
        X, y = correlated_rows(600, 5, 0.8)
        mean, covariance = full_optimum(X, y, CONFIG.prior_scale)
        q = fitted(X, y, covariance="full", initial_scale=initial_scale)
        deviations = np.sqrt(np.diag(covariance))
        np.testing.assert_allclose(q.mean.ravel(), mean, atol=0.05 * deviations.min())
        np.testing.assert_allclose(np.sqrt(np.diag(q.spread)), deviations, rtol=0.02)
        # Eigenvalues of the ratio: all directions, not the coordinates alone.
        half = np.linalg.inv(np.linalg.cholesky(covariance))
        np.testing.assert_allclose(np.linalg.eigvalsh(half @ q.spread @ half.T), 1.0, atol=0.05)

    def test_the_diagonal_one_is_another(self):
        # What the test above would see if off-diagonal entries were lost.
        X, y = correlated_rows(600, 5, 0.8)
        _, covariance = full_optimum(X, y, CONFIG.prior_scale)
        _, deviations = mean_field_optimum(X, y, CONFIG.prior_scale)
        assert (deviations / np.sqrt(np.diag(covariance))).min() < 0.8

    @pytest.mark.parametrize("gradient", ["aligned", "vanilla"])
    def test_diagonal_covariance(self, gradient):
        X, y = correlated_rows(600, 3, 0.5)
        mean, deviations = mean_field_optimum(X, y, CONFIG.prior_scale)
        q = fitted(X, y, gradient=gradient)
        np.testing.assert_allclose(q.mean.ravel(), mean, atol=0.05 * deviations.min())
        np.testing.assert_allclose(q.spread, deviations, rtol=0.05)


class TestCholesky:
    def test_stays_triangular_and_positive_under_any_noise(self):
        family = gaussian_families.Cholesky(0.04, 1e4, 5.0)
        rng = np.random.default_rng(0)
        L = family.init(1.0, 4)
        for scale in [0.0, 1.0, 1e3, 1e8, 1e150]:
            gradient, eta = rng.standard_normal((2, 4))
            L = family.update(L, scale * gradient, eta, 1.0)
            np.testing.assert_array_equal(L, np.tril(L))
            assert (L.diagonal() > 0).all()
            assert (np.linalg.norm(L, axis=1) <= 5.0 * (1 + 1e-12)).all()

    def test_a_step_is_the_matrix_formula(self):
        family = gaussian_families.Cholesky(0.04, 0.0, 50.0)
        rng = np.random.default_rng(0)
        L = np.tril(rng.uniform(0.1, 1, (4, 4)))
        gradient, eta = 0.1 * rng.standard_normal((2, 4))
        a = L.T @ gradient + eta - 0.04 * L.T @ L @ eta
        A = gaussian_families._GAIN / 6 * np.outer(a, eta)
        factor = np.tril(A, -1) + np.diag(np.exp(A.diagonal() / 2))
        np.testing.assert_allclose(family.update(L, gradient, eta, 1.0), L @ factor, rtol=1e-12)


class TestVanilla:
    @pytest.mark.parametrize("clip_norm", [1e-3, 0.5, 1e6])
    @pytest.mark.parametrize("likelihood", [Bernoulli(), Categorical(3)])
    def test_sum_is_that_of_a_loop(self, likelihood, clip_norm):
        rng = np.random.default_rng(0)
        K, X = likelihood.n_outputs, rng.standard_normal((30, 4))
        targets = likelihood.targets(rng.integers(0, max(K, 2), 30))
        theta, w = rng.standard_normal((2, K, 4))
        expected = np.zeros((2, K, 4))
        for x, target in zip(X, targets, strict=True):
            gradient = np.outer(likelihood.residual((theta @ x)[None], target[None])[0], x)
            pair = np.stack([gradient, gradient * w])
            expected += pair * min(1, clip_norm / np.linalg.norm(pair))
        batch = LinearRows(X, targets, data_norm=100.0, fit_intercept=False).take(slice(0, 30))
        clipped_sum = dp_vi.VanillaClippedSum(likelihood.residual, clip_norm)
        found = clipped_sum(np.stack([theta, w]), batch)
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)

    def test_without_a_finite_gradient_a_record_adds_nothing(self):
        X = np.array([[1.0, 0.0], [0.0, 1.0]])
        clipped_sum = dp_vi.VanillaClippedSum(lambda z, y: y.copy(), 1.0)
        pair = np.ones((2, 1, 2))
        sums = []
        for value in (np.inf, np.nan, 0.0):
            targets = np.array([[1.0], [value]])
            rows = LinearRows(X, targets, data_norm=1.0, fit_intercept=False)
            sums.append(clipped_sum(pair, rows.take(slice(0, 2))))
        assert np.isfinite(sums[0]).all()
        assert all(np.array_equal(s, sums[0]) for s in sums)

    def test_releases_twice_as_many_numbers(self):
        X, y = correlated_rows(50, 3, 0.5)
        for gradient, shape in (("aligned", (1, 3)), ("vanilla", (2, 1, 3))):
            with release_hook.record() as tape:
                fitted(X, y, gradient=gradient, n_steps=3, noise_multiplier=1.0)
            assert [release.call.shape for release in tape] == [shape] * 3 + [(1,)]

    def test_not_with_a_full_covariance(self):
        with pytest.raises(ValueError, match=r"gradient='vanilla'.*'aligned' when covariance"):
            dataclasses.replace(CONFIG, covariance="full", gradient="vanilla")


def test_config_refuses_other_names():
    for name in ("covariance", "gradient"):
        with pytest.raises(ValueError, match=f"{name}='both'"):
            dataclasses.replace(CONFIG, **{name: "both"})


@pytest.mark.parametrize("covariance", ["diag", "full"])
def test_a_noisy_fit_is_finite_at_every_size(covariance):
    for n, noise_multiplier in itertools.product([1, 40], [0.1, 1e6]):
        X, y = correlated_rows(n, 3, 0.5)
        config = {"noise_multiplier": noise_multiplier, "n_steps": 30, "clip_norm": 1.0}
        q = fitted(X, y, covariance=covariance, **config)
        assert np.isfinite(q.mean).all()
        assert (np.linalg.eigvalsh(q.covariance) > 0).all()
