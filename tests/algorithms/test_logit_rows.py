"""Integrals over normal rows, against sampling and differences; noise taken out of matrices."""

import numpy as np
import pytest

from skdp.algorithms.parts.logit_rows import (
    LEAST_SLOPE,
    MOST_SLOPE,
    NormalRows,
    PointRows,
    without_noise,
)
from skdp.algorithms.parts.noisy_moments import believed, shrunk
from skdp.models.bounded_scores import BernoulliScore, PoissonScore

RNG = np.random.default_rng(0)
ROOT = RNG.normal(size=(3, 3)) / 3
MEAN = np.array([0.2, -0.1, 0.4])
SCORES = [BernoulliScore(0.4), BernoulliScore(1.0), PoissonScore(3.0, 9)]
THETA = 1.5 * np.random.default_rng(1).normal(size=(1, 3))
TRUE = np.array([[3.0, 0.5, 0.0], [0.5, 2.0, -0.3], [0.0, -0.3, 1.0]]) * 40.0


def beliefs(score, **more):
    return NormalRows(1000, score, mean=MEAN[None], covariance=(ROOT @ ROOT.T)[None], **more)


def points(score, **more):
    """As many points as the law of `beliefs` has, which are not normal."""
    rng = np.random.default_rng(5)
    x = MEAN + (rng.exponential(size=(2, 40, 3)) - 1.0) @ ROOT.T
    return PointRows(1000, score, points=x, **more)


@pytest.mark.parametrize("score", SCORES, ids=str)
def test_expectations_over_points_are_sums_over_them(score):
    rows = points(score)
    expected, slope = np.zeros((2, 3)), np.zeros((2, 3, 3))
    for b, i in np.ndindex(2, 40):
        x = rows.points[b, i]
        z = np.array([x @ THETA[0]])
        expected[b] += 25.0 * score.value(z) * x
        slope[b] += 25.0 * score.slope(z)[0, 0] * np.outer(x, x)
    np.testing.assert_allclose(rows.expected(THETA), expected)
    np.testing.assert_allclose(rows.slope(THETA), slope)


@pytest.mark.parametrize("score", SCORES, ids=str)
def test_points_that_are_normal_are_normal_rows(score):
    x = MEAN + np.random.default_rng(2).normal(size=(1, 200_000, 3)) @ ROOT.T
    for offset in (0.0, 0.5):
        both = PointRows(1000, score, offset, points=x), beliefs(score, offset=offset)
        for what in ("expected", "slope", "variance"):
            found, known = (getattr(rows, what)(THETA) for rows in both)
            np.testing.assert_allclose(found, known, atol=0.02 * np.abs(known).max())


@pytest.mark.parametrize("score", SCORES, ids=str)
def test_the_expected_score_and_its_variance_are_those_of_normal_rows(score):
    x = MEAN + np.random.default_rng(2).normal(size=(400_000, 3)) @ ROOT.T
    logits = x @ THETA.T
    psi, v = score.value(logits), score.variance(logits)[..., 0]
    for terms, found in (
        (psi * x, beliefs(score).expected(THETA)[0]),
        (v[:, :, None] * x[:, :, None] * x[:, None], beliefs(score).variance(THETA)[0]),
    ):
        spread = 1000 * terms.std(axis=0) / np.sqrt(len(x))
        off = np.abs(found - 1000 * terms.mean(axis=0))
        assert (off <= 6 * spread + 1e-3 * np.abs(found).max()).all()


@pytest.mark.parametrize("law", [beliefs, points])
@pytest.mark.parametrize("transformed", [False, True])
@pytest.mark.parametrize("score", SCORES, ids=str)
def test_the_slope_is_the_derivative_of_the_expected_score(score, transformed, law):
    rows = law(score).with_slope(THETA + 1.0, TRUE) if transformed else law(score)
    found, step = rows.slope(THETA)[0], 1e-4
    for j in range(3):
        move = step * np.eye(3)[j]
        difference = (rows.expected(THETA + move) - rows.expected(THETA - move))[0] / (2 * step)
        # A bounded weight has kinks between the nodes.
        np.testing.assert_allclose(found[j], difference, atol=0.01 * np.abs(found).max())
    w = np.array([[1.0, -2.0, 0.5]])
    F, Hw = rows.pulled(THETA, lambda F: w)
    np.testing.assert_allclose(F, rows.expected(THETA))
    np.testing.assert_allclose(Hw[0], found @ w[0], rtol=1e-8)


@pytest.mark.parametrize("score", SCORES, ids=str)
def test_with_a_slope_rows_have_it_there_and_a_positive_one_everywhere(score):
    rows = beliefs(score).with_slope(THETA, TRUE)
    np.testing.assert_allclose(rows.slope(THETA)[0], TRUE, rtol=1e-8, atol=1e-8 * TRUE.max())
    again = rows.with_slope(THETA, TRUE)
    np.testing.assert_allclose(again.transform, rows.transform, rtol=1e-8, atol=1e-10)
    for factor in (-10.0, 0.0, 0.3, 5.0, 30.0):
        assert np.linalg.eigvalsh(rows.slope(factor * THETA)[0]).min() >= 0.0
        assert np.linalg.eigvalsh(rows.variance(factor * THETA)[0]).min() >= 0.0


def test_a_slope_is_cut_to_what_rows_make_possible():
    rows = beliefs(SCORES[1])
    H = rows.slope(THETA)
    for wanted, bound in ((1e3 * H, MOST_SLOPE), (-H, LEAST_SLOPE)):
        found = rows.with_slope(THETA, wanted).slope(THETA)
        np.testing.assert_allclose(found, bound * H, rtol=1e-8)


def noise_of(d, scale, rng=RNG):
    """Scale on the diagonal, scale/√2 beside it."""
    normals = rng.normal(size=(d, d))
    return scale * (normals + normals.T) / 2


def test_a_released_slope_wins_where_noise_is_small_and_loses_where_it_is_large():
    H = np.diag([100.0, 30.0, 10.0])
    other = H + np.diag([-40.0, 10.0, -3.0])
    np.testing.assert_allclose(without_noise(H, other, 1e-6), other, rtol=1e-6)
    np.testing.assert_allclose(without_noise(H, H + noise_of(3, 1e6), 1e6), H, rtol=0.01, atol=0.01)
    rng, errors = np.random.default_rng(5), []
    for _ in range(50):
        noisy = other + noise_of(3, 15.0, rng)
        errors.append([np.linalg.norm(m - other) for m in (without_noise(H, noisy, 15.0), noisy)])
    ours, noisy = np.mean(errors, axis=0)
    assert ours < 0.8 * noisy


def test_pure_noise_shrinks_to_next_to_nothing():
    noise = noise_of(200, 3.0)
    signal, _, shares = shrunk(noise, 3.0)
    assert np.linalg.norm(signal) < 0.1 * np.linalg.norm(noise)
    assert shares.max() <= 1


def test_shrinking_comes_closer_than_the_noisy_matrix():
    directions = np.linalg.qr(RNG.normal(size=(100, 3)))[0]
    truth = directions @ np.diag([300.0, 200.0, -150.0]) @ directions.T
    noisy = truth + noise_of(100, 5.0)
    signal, _, _ = shrunk(noisy, 5.0)
    assert np.linalg.norm(signal - truth) < 0.5 * np.linalg.norm(noisy - truth)


@pytest.mark.parametrize("scale", [1e-9, 0.05, 50.0])
def test_beliefs_keep_the_trace_and_draws_scatter_around_it(scale):
    truth = np.diag([3.0, 1.0, 0.5, 0.5])
    likeliest = believed(truth, 1.25, scale, None, 0.1)
    assert np.trace(likeliest) == pytest.approx(5.0, rel=0.35)
    if scale == 1e-9:
        np.testing.assert_allclose(likeliest, truth, atol=1e-6)
    generator = np.random.default_rng(0)
    draws = np.array([believed(truth, 1.25, scale, generator, 0.1) for _ in range(200)])
    spread = np.abs(draws.mean(axis=0) - likeliest)
    assert spread.max() <= 6 * draws.std(axis=0).max() / np.sqrt(200) + 1e-12
