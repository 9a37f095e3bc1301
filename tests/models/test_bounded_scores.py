"""Bounded scores: bounded, of mean zero at the truth, and what is said of them is so."""

import numpy as np
import pytest
from bundles import bundled
from scipy.special import expit, softmax
from scipy.stats import poisson

from skdp.models.bounded_scores import BernoulliScore, CategoricalScore, PoissonScore

Z = np.linspace(-8, 8, 161)[:, None]


def bernoulli(score, z, truth):
    """Mean and variance of the weighted score at z where the truth is another logit."""
    weight = np.minimum(1.0, score.bound / score.largest_residual(z))[:, None]
    outcomes = [weight * score.residual(z, np.full_like(z, y)) for y in (0.0, 1.0)]
    p = expit(truth)
    mean = (1 - p) * outcomes[0] + p * outcomes[1]
    return outcomes, mean, (1 - p) * outcomes[0] ** 2 + p * outcomes[1] ** 2


def counts(score, z, truth):
    y = np.arange(400.0)
    values = np.hstack([score.residual(z, np.full_like(z, count)) for count in y])
    p = poisson.pmf(y[None], np.exp(truth))
    mean = np.sum(p * values, axis=1, keepdims=True)
    return [values], mean, np.sum(p * values**2, axis=1, keepdims=True)


CASES = [(BernoulliScore(c), bernoulli, Z) for c in (0.05, 0.3, 0.5, 0.7, 1.0, 3.0)]
RATES = np.linspace(-3, 2.3, 61)[:, None]
CASES += [(PoissonScore(c, 15.0), counts, RATES) for c in (1.0, 3.0, 15.0)]


@bundled(("score", "law", "z"), CASES)
def test_the_mean_is_zero_at_the_truth_and_the_variance_is_as_stated(score, law, z):
    _, mean, variance = law(score, z, z)
    # A table of 800 logits, read linearly, for counts.
    tolerance = 1e-12 if law is bernoulli else 2e-3 * score.bound
    np.testing.assert_allclose(mean, 0, atol=tolerance)
    np.testing.assert_allclose(variance, score.variance(z)[..., 0], rtol=0.03, atol=tolerance)


@bundled(("score", "law", "z"), CASES)
def test_the_slope_is_how_the_mean_follows_the_truth(score, law, z):
    step = 1e-3
    above, below = law(score, z, z + step)[1], law(score, z, z - step)[1]
    found = (above - below) / (2 * step)
    np.testing.assert_allclose(score.slope(z)[..., 0], found, rtol=1e-2, atol=1e-3 * score.bound)


@bundled(("score", "law", "z"), CASES)
def test_the_value_is_the_integral_of_the_slope(score, law, z):
    value, slope = score.value(z)[:, 0], score.slope(z)[:, 0, 0]
    steps = np.diff(z[:, 0]) * (slope[1:] + slope[:-1]) / 2
    np.testing.assert_allclose(np.diff(value), steps, rtol=0.02, atol=1e-3 * score.bound)


@pytest.mark.parametrize("bound", [0.05, 0.5, 0.8, 2.0])
def test_a_weighted_residual_is_within_its_bound(bound):
    score = BernoulliScore(bound)
    for outcome in bernoulli(score, 100 * Z, Z)[0]:
        assert np.abs(outcome).max() <= bound * (1 + 1e-12)
    assert score.slope(Z).max() <= score.slope_bound * (1 + 1e-12)
    norms = np.linspace(0.1, 1.0, len(Z))
    shares = score.slope_of_records(Z, bound / norms) * norms**2
    assert shares.max() <= score.slope_bound * (1 + 1e-12)


def test_the_largest_residual_of_softmax_is_that_of_the_least_probable_class():
    score = CategoricalScore(4, 0.5)
    z = 3 * np.random.default_rng(0).normal(size=(50, 4))
    norms = [np.linalg.norm(score.residual(z, e[None]), axis=1) for e in np.eye(4)]
    np.testing.assert_allclose(score.largest_residual(z), np.max(norms, axis=0), rtol=1e-12)
    p = softmax(z, axis=1)
    covariance = p[:, :, None] * np.eye(4) - p[:, :, None] * p[:, None, :]
    ratio = score.slope(z) / covariance
    np.testing.assert_allclose(ratio, ratio[0, 0, 0], rtol=1e-9)


@pytest.mark.parametrize("bound", [1.0, 3.5, 14.0])
@pytest.mark.parametrize("logit", [2.7, 3.4, 5.0, 50.0])
def test_a_rate_beyond_every_count_is_contradicted_by_counts(bound, logit):
    score, logits = PoissonScore(bound, 14.0), np.full((3, 1), logit)
    few = score.residual(logits, np.array([[0.0], [4.0], [8.0]]))
    assert few.max() < -min(0.4 * bound, 4.0)
    # What is expected there does not go on growing: no count does.
    np.testing.assert_array_equal(score.value(logits), score.value(np.full((3, 1), np.log(14.0))))
    assert not score.slope(logits).any()
