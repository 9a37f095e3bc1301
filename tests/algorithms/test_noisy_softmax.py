"""Several logits: the posterior given noisy scores, and what gradients tell of the rows."""

import math
from dataclasses import replace

import numpy as np
import pytest
from reference import noise_aware_softmax as reference
from scipy.stats import norm

from skdp.algorithms import noise_aware_glm as noise_aware
from skdp.algorithms.parts.noisy_softmax import (
    Between,
    Moments,
    SyntheticRows,
    points,
    raised,
    steps_at_zero,
)
from skdp.fitting.streams import Streams
from skdp.models.bounded_scores import CategoricalScore
from skdp.models.likelihoods import Categorical
from skdp.privacy.noise_calibration import calibrate_schedule

M, S = np.array([0.2, -0.1]), np.array([[0.3, 0.1], [0.1, 0.2]])


def normal_rows(count, seed=0):
    return np.random.default_rng(seed).multivariate_normal(M, S, size=count)


class TestAgainstTheOracle:
    @pytest.mark.thorough
    @pytest.mark.parametrize("noise", [100.0, 20.0, 4.0])
    def test_the_posterior_is_that_of_weighted_draws(self, noise):
        n, bound, prior_scale, rng = 1000, 0.4, 2.0, np.random.default_rng(3)
        rows, truth = normal_rows(1000), prior_scale * rng.normal(size=(3, 2))
        queries = [np.zeros((3, 2)), np.zeros((3, 2)), 0.8 * truth]
        V = reference.covariance_of_labels(rows, n, truth, queries, bound)
        common = rng.multivariate_normal(np.zeros(6), V).reshape(3, 2)
        gradients = [
            reference.expected_gradient(rows, n, truth, query, bound)
            + common
            + noise * rng.normal(size=(3, 2))
            for query in queries
        ]
        fast = SyntheticRows(M, S, n, CategoricalScore(3, bound))
        flat = [g.ravel() for g in gradients], [q.ravel() for q in queries]
        given = fast.statistic(*flat, np.zeros(6), noise**2)
        q = fast.posterior(given, np.zeros(6), prior_scale, 30)
        covariance = fast.covariance(given, q, prior_scale)
        mean, spread, effective = reference.posterior(
            rows, n, gradients, queries, bound, noise, prior_scale,
            (q.mean, 1.5 * covariance + 0.02 * prior_scale**2 * np.eye(6)), 5000, rng,
        )  # fmt: skip
        assert effective > 300
        found, expected = np.sqrt(np.diag(covariance)), np.sqrt(np.diag(spread))
        # Skewed posteriors differ from normal ones; a lost factor of 2 in a width is found.
        np.testing.assert_allclose(found, expected, rtol=0.3)
        assert np.abs((q.mean - mean) / expected).max() < 0.45

    @pytest.mark.parametrize("bound", [0.2, 10.0])
    def test_expected_scores_are_those_of_many_rows(self, bound):
        rng = np.random.default_rng(1)
        rows, theta, query = normal_rows(200_000), rng.normal(size=(3, 2)), rng.normal(size=(3, 2))
        expected = reference.expected_gradient(rows, 1000, theta, query, bound)
        fast = SyntheticRows(M, S, 1000, CategoricalScore(3, bound))
        given = fast.statistic([np.zeros(6)], [query.ravel()], query.ravel(), 1.0)
        at_theta = fast.sum(given.weights[:, None] * fast.probabilities(theta.ravel()))
        found = (at_theta - given.value).reshape(3, 2)
        # Plain Monte Carlo with 512 rows would be off by 1000 · .15/√512 = 7.
        np.testing.assert_allclose(found, expected, atol=4.0)


def test_synthetic_rows_have_the_moments_they_are_given():
    x = SyntheticRows(M, S, 10, CategoricalScore(3, 1.0)).x
    np.testing.assert_allclose(x.mean(axis=0), M, atol=1e-9)
    np.testing.assert_allclose(np.cov(x.T, bias=True), S, atol=1e-9)
    assert points(2, 3, 8)[0] is points(2, 3, 8)[0]


class TestMomentsOfTheRows:
    def test_eigenvalues_are_raised_to_a_total(self):
        vectors = np.linalg.qr(np.random.default_rng(0).normal(size=(4, 4)))[0]
        found = raised(np.array([3.0, 1.0, 0.0, 0.0]), vectors, 6.0)
        np.testing.assert_allclose(np.linalg.eigvalsh(found), [1.0, 1.0, 1.0, 3.0])
        np.testing.assert_allclose(raised(np.zeros(4), vectors, 2.0), 0.5 * np.eye(4), atol=1e-12)

    def test_gradients_at_zero_tell_the_scatter_between_classes(self):
        rng, n, d = np.random.default_rng(0), 6000, 20
        means = np.zeros((3, d))
        means[:, :2] = [[0.3, 0.0], [-0.3, 0.1], [0.0, -0.1]]
        labels = rng.integers(3, size=n)
        X = means[labels] + 0.1 * rng.normal(size=(n, d))
        sums = (np.eye(3)[labels] - 1 / 3).T @ X
        noisy = sums + 20.0 * rng.normal(size=sums.shape)
        moments = Moments(n, d, 0.0, np.array([np.sum(X**2)]), 1.0)
        between = Between.of(noisy, 400.0, np.zeros(d), moments)
        _, S = moments.believed(between)
        truth = np.cov(X.T)
        _, plain = moments.believed()
        assert np.linalg.norm(S - truth) < 0.3 * np.linalg.norm(plain - truth)
        assert np.trace(S) == pytest.approx(np.trace(truth), rel=0.05)
        # Without a signal nothing much is found: pure noise lies near its own expectation.
        nothing = Between.of(20.0 * rng.normal(size=sums.shape), 400.0, np.zeros(d), moments)
        assert np.sum(nothing.roots**2) < 0.1 * np.sum(between.roots**2)

    def test_draws_scatter_around_the_estimate_as_far_as_noise_allows(self):
        X = normal_rows(5000) / 2
        second = np.column_stack([X, np.full(5000, 0.4)])
        second = second.T @ second
        stream = Streams(b"draws")("inference")

        def scatter(scale):
            moments = Moments(5000, 2, 0.4, second, scale)
            return np.std([moments.believed(stream=stream)[1] for _ in range(30)], axis=0).max()

        assert scatter(1e-6) < 1e-6 < 1e-3 < scatter(100.0)


def test_more_noise_asks_for_more_gradients_at_zero():
    counts = [steps_at_zero(20, noise, (10, 65), 1257, 0.25) for noise in (1e-9, 0.3, 100.0)]
    assert counts == sorted(counts)
    assert (counts[0], counts[-1]) == (4, 16)
    assert steps_at_zero(1, 1e-9, (3, 2), 100, 1.0) == 1


def config_of(n, d, K, epsilon, **more):
    config = noise_aware.NoiseAwareConfig(
        likelihood=Categorical(K), n_rows=n, n_features=d, fit_intercept=False, data_norm=1.0,
        n_steps=20, clip_norm=0.4, prior_scale=3.0, noise_multiplier=1.0, **more,
    )  # fmt: skip
    sigma = calibrate_schedule(config.noise_multipliers, epsilon=epsilon, delta=1e-5)
    return replace(config, noise_multiplier=sigma)


def simulated(n, d, K, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) / math.sqrt(d)
    X *= np.minimum(1.0, 1.0 / np.linalg.norm(X, axis=1))[:, None]
    theta = 3.0 * rng.normal(size=(K, d))
    y = np.argmax(X @ theta.T + rng.gumbel(size=(n, K)), axis=1)
    return X, np.eye(K)[y], theta


def off_contrasts(q, theta):
    """Deviations of contrasts between classes over those the posterior states."""
    K, d = theta.shape
    contrasts = np.kron(np.eye(K) - 1 / K, np.eye(d))
    spread = np.sqrt(np.diag(contrasts @ q.covariance @ contrasts))
    return np.abs(contrasts @ (theta - q.mean).ravel()) / spread


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("n", "d", "K", "repetitions"),
    [(1000, 3, 3, 20), pytest.param(10_000, 10, 10, 10, marks=pytest.mark.slow)],
)
def test_intervals_cover_about_as_often_as_they_say(n, d, K, repetitions):
    off, config = [], config_of(n, d, K, 1.0)
    for seed in range(repetitions):
        X, y, theta = simulated(n, d, K, seed)
        q = config.run((X, y), Streams(b"coverage %d" % seed))
        off.append(off_contrasts(q, theta))
    covered = {scale: np.mean(np.array(off) < scale * norm.ppf(0.95)) for scale in (0.5, 1, 2)}
    # 120 contrasts of 2/3 as many coordinates: standard error .034, so ± 3 of them.
    assert 0.8 < covered[1] < 0.99
    assert covered[0.5] < 0.8
    assert covered[2] > 0.95


def test_unsure_moments_widen_the_posterior(monkeypatch):
    X, y, _ = simulated(600, 10, 5, seed=0)
    config = config_of(600, 10, 5, 1.0)
    integrated = config.run((X, y), Streams(b"key"))
    monkeypatch.setattr(noise_aware.NoiseAwareSoftmax, "_synthetic", known_moments())
    known = config.run((X, y), Streams(b"key"))
    wider = np.sqrt(np.diag(integrated.covariance) / np.diag(known.covariance))
    np.testing.assert_allclose(integrated.mean, known.mean)
    assert wider.min() > 1.0
    assert wider.max() > 1.01
    assert np.linalg.eigvalsh(integrated.covariance).min() > 0


def known_moments():
    drawn = noise_aware.NoiseAwareSoftmax._synthetic
    return lambda update, state, stream=None: drawn(update, state)
