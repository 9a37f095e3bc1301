"""Integrals over normal rows, against sampling and differences; noise taken out of matrices."""

import numpy as np
import pytest

from skdp._random import Streams
from skdp.algorithms.parts.noisy_score import (
    NormalRows,
    believed,
    bounded_correction,
    floored,
    shrunk,
)
from skdp.models.bounded_scores import BernoulliScore, CategoricalScore, PoissonScore

RNG = np.random.default_rng(0)
ROOT = RNG.normal(size=(3, 3)) / 3
MEAN = np.array([0.2, -0.1, 0.4])
SCORES = [BernoulliScore(0.4), BernoulliScore(1.0), CategoricalScore(3, 0.5), PoissonScore(3.0, 9)]


def beliefs(score, **more):
    return NormalRows(1000, MEAN[None], (ROOT @ ROOT.T)[None], score, **more)


def some_theta(score):
    return 1.5 * np.random.default_rng(1).normal(size=(1, 3 * score.n_outputs))


@pytest.mark.parametrize("score", SCORES, ids=str)
def test_the_expected_score_is_the_mean_over_normal_rows(score):
    theta = some_theta(score)
    x = MEAN + np.random.default_rng(2).normal(size=(400_000, 3)) @ ROOT.T
    logits = x @ theta.reshape(score.n_outputs, 3).T
    psi = score.value(logits)
    sampled = 1000 * (psi.T @ x / len(x)).ravel()
    spread = 1000 * np.std(psi[:, :, None] * x[:, None, :], axis=0).ravel() / np.sqrt(len(x))
    off = np.abs(beliefs(score).expected(theta)[0] - sampled)
    assert (off <= 6 * spread + 1e-3 * np.abs(sampled).max()).all()


@pytest.mark.parametrize("score", SCORES, ids=str)
def test_the_slope_is_the_derivative_of_the_expected_score(score):
    rows, theta = beliefs(score), some_theta(score)
    found, step = rows.slope(theta)[0], 1e-4
    for j in range(theta.shape[1]):
        up, down = theta.copy(), theta.copy()
        up[0, j] += step
        down[0, j] -= step
        difference = (rows.expected(up) - rows.expected(down))[0] / (2 * step)
        # Quasi-random nodes for several outputs, kinks of a bounded weight for one.
        np.testing.assert_allclose(found[j], difference, atol=0.03 * np.abs(found).max())


def test_a_correction_is_added_to_the_slope_and_vanishes_at_its_reference():
    score = BernoulliScore(1.0)
    theta, correction = some_theta(score), np.diag([1.0, 2.0, 3.0])[None]
    rows = beliefs(score, correction=correction, reference=theta)
    np.testing.assert_allclose(rows.expected(theta), beliefs(score).expected(theta))
    moved = rows.expected(theta + 0.1) - beliefs(score).expected(theta + 0.1)
    np.testing.assert_allclose(moved, [[0.1, 0.2, 0.3]])
    assert np.allclose(rows.slope(theta), beliefs(score).slope(theta) + correction)
    assert np.linalg.eigvalsh(rows.variance(theta)[0]).min() > 0


def orthogonal_ensemble(d, scale):
    normals = RNG.normal(size=(d, d))
    return scale * ((normals + normals.T) / 2)  # scale on the diagonal, scale/√2 beside it


def test_pure_noise_shrinks_to_next_to_nothing():
    noise = orthogonal_ensemble(200, 3.0)
    signal, _, shares = shrunk(noise, 3.0)
    assert np.linalg.norm(signal) < 0.1 * np.linalg.norm(noise)
    assert shares.max() <= 1


def test_shrinking_comes_closer_than_the_noisy_matrix():
    directions = np.linalg.qr(RNG.normal(size=(100, 3)))[0]
    truth = directions @ np.diag([300.0, 200.0, -150.0]) @ directions.T
    noisy = truth + orthogonal_ensemble(100, 5.0)
    signal, _, _ = shrunk(noisy, 5.0)
    assert np.linalg.norm(signal - truth) < 0.5 * np.linalg.norm(noisy - truth)


@pytest.mark.parametrize("scale", [1e-9, 0.05, 50.0])
def test_beliefs_keep_the_trace_and_draws_scatter_around_it(scale):
    truth = np.diag([3.0, 1.0, 0.5, 0.5])
    likeliest = believed(truth, 1.25, scale, None, 0.1)
    assert np.trace(likeliest) == pytest.approx(5.0, rel=0.35)
    if scale == 1e-9:
        np.testing.assert_allclose(likeliest, truth, atol=1e-6)
    stream = Streams(b"draws")("inference")
    draws = np.array([believed(truth, 1.25, scale, stream, 0.1) for _ in range(200)])
    spread = np.abs(draws.mean(axis=0) - likeliest)
    assert spread.max() <= 6 * draws.std(axis=0).max() / np.sqrt(200) + 1e-12


def test_corrections_are_bounded_relative_to_the_slope():
    H = floored(ROOT @ ROOT.T, 0.05)
    for D in (10 * np.eye(3), -10 * np.eye(3), np.diag([5.0, 0.0, -5.0])):
        total = np.linalg.solve(H, H + bounded_correction(H, D))
        relative = np.linalg.eigvals(total).real
        assert relative.min() >= 0.2 - 1e-9
        assert relative.max() <= 5.0 + 1e-9
    small = 0.1 * H
    np.testing.assert_allclose(bounded_correction(H, small), small, atol=1e-12)
