"""Fits to columns that are standardised inside: sums, inference, and what the user sees."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse, stats
from scipy.linalg import block_diag, sqrtm
from scipy.special import softmax
from sklearn.linear_model import LogisticRegression

from skdp import (
    DPVariationalLinearRegression,
    DPVariationalLogisticRegression,
    DPVariationalPoissonRegression,
    FitWarning,
    Persons,
    PrivacyLedger,
)
from skdp.algorithms.noise_aware import columns, draws, glm, matrices, numbers, posterior, steps
from skdp.algorithms.noise_aware import prior as prior_of_effects
from skdp.algorithms.noise_aware.column_sums import BeyondSum, CellSum, MomentsSum
from skdp.algorithms.noise_aware.columns import ColumnsConfig
from skdp.algorithms.noise_aware.counts import Counts
from skdp.algorithms.noise_aware.design import Design
from skdp.algorithms.noise_aware.families import Cut, Logit, Softmax
from skdp.algorithms.noise_aware.numbers import Line
from skdp.engine import release_hook
from skdp.engine.linear_sums import GramSum, of_weights, packed, unpacked
from skdp.models.likelihoods import Poisson, classification_likelihood
from skdp.preprocessing import BoundedScaler
from skdp.privacy.events import terms_of
from skdp.relations import RELATIONS, sensitivity_factor
from skdp.rows.persons import PersonUnit
from skdp.rows.records import LinearBatch
from skdp.testing import fixed_streams

N = 4000
BOUNDS = {"age": (0.0, 120.0), "sick": (0.0, 1.0), "visits": (0.0, 100.0)}
rng = np.random.default_rng(0)
TABLE = pd.DataFrame(
    {
        "age": rng.normal(50, 12, N).clip(0, 120),
        "sick": (rng.random(N) < 0.2).astype(float),
        "visits": rng.poisson(1.5, N).astype(float),
    }
)
TRUTH = np.array([0.04, 0.8, 0.3])
LINE = TABLE.to_numpy() @ TRUTH - 2.5
CLASSES = (rng.random(N) < 1 / (1 + np.exp(-LINE))).astype(int)
NUMBERS = LINE + rng.standard_normal(N)
COUNTS = np.random.default_rng(1).poisson(np.exp(LINE / 3))


def classifier(**parameters):
    defaults = {"epsilon": 3.0, "bounds": BOUNDS, "classes": [0, 1], "n_samples": N}
    return DPVariationalLogisticRegression(**(defaults | parameters))


def regressor(**parameters):
    defaults = {"epsilon": 3.0, "bounds": BOUNDS, "target_bounds": (-10, 10), "n_samples": N}
    return DPVariationalLinearRegression(**(defaults | parameters))


def counter(**parameters):
    defaults = {"epsilon": 3.0, "bounds": BOUNDS, "largest_count": 20, "n_samples": N}
    return DPVariationalPoissonRegression(**(defaults | parameters))


TARGETS = {classifier: CLASSES, regressor: NUMBERS, counter: COUNTS}


# --- sums -----------------------------------------------------------------------------------------

LOGIT = Logit(classification_likelihood(2))
RATE = Counts(Poisson(9.0))
UNIT = {"middle": (0.0, 1.0, 0.0), "half": (1.0, 0.5, 1.0), "numbers": (True, True, False)}
THREE = np.array([[0.3, -2.0, 1.0]])
SEVERAL = Softmax(classification_likelihood(3))
OF_CLASSES = np.vstack([THREE, -THREE, 0.5 * THREE[:, ::-1]])
CONTRASTS = np.linalg.qr(np.eye(3)[:, 1:] - 1 / 3)[0]
CUT, WIDE = Cut(0.7, 1.1), Cut(1.1, 1.1)
SUMS = {
    "cells": (CellSum(**UNIT), np.array([[-1.0, -0.2], [1.0, 0.4]])),
    "moments": (MomentsSum(**UNIT, norm=1.2), np.array([[-1.0, -0.1, -1.0], [1.0, 0.3, 1.0]])),
    "beyond": (BeyondSum((-1.0, 0.5, 0.0), (1.0, 1.5, 1.0)), np.zeros((2, 3))),
    "second moments": (GramSum(0.7**2), THREE),
    "scores of classes": (LOGIT.scores(CUT), THREE),
    "slope of classes": (LOGIT.slope(CUT), THREE),
    "scores of several": (SEVERAL.scores(CUT), OF_CLASSES),
    "slopes of several": (SEVERAL.slope(CUT), np.hstack([OF_CLASSES, CONTRASTS])),
    "scores of counts": (RATE.scores(CUT), np.append(THREE, 5.0)[None]),
    "scores of counts, cut at less": (RATE.scores(CUT), np.append(THREE, 0.7)[None]),
    "slope of counts": (RATE.slope(CUT), np.append(THREE, 5.0)[None]),
    "slope of counts, cut at less": (RATE.slope(CUT), np.append(THREE, 0.7)[None]),
    "scores of numbers": (Line().scores(CUT), np.append(THREE, 0.4)[None]),
    "slope of numbers": (Line().slope(CUT), np.append(THREE, 0.4)[None]),
}


def batch(rows, targets, weights=None, starts=None):
    rows = np.asarray(rows, dtype=float)
    outside = np.zeros((len(rows), 2), dtype=bool)
    return LinearBatch(
        rows,
        np.linalg.norm(rows, axis=1),
        np.asarray(targets, dtype=float).reshape(len(rows), -1),
        outside,
        False,
        starts,
        weights,
    )


VALUES = st.sampled_from([-3.0, -1.0, -0.4, 0.0, 0.2, 0.5, 1.0, 1.5, 40.0])


def triples(least, most):
    return st.lists(st.tuples(VALUES, VALUES, VALUES), min_size=least, max_size=most)


@pytest.mark.parametrize("name", SUMS)
@given(rows=triples(2, 6), seed=st.integers(0, 99))
def test_no_record_moves_a_sum_by_more_than_is_declared(name, rows, seed):
    one, theta = SUMS[name]
    generator = np.random.default_rng(seed)
    rows = np.array(rows)
    if name == "moments":  # rows whose scaled indicators have the norm that is declared
        rows[:, 2] = np.sign(rows[:, 2]) * np.minimum(np.abs(rows[:, 2]), 1.0)
    targets = generator.choice([0.0, 9.0] if "counts" in name else [0.0, 1.0], len(rows))
    targets = np.eye(3)[targets.astype(int)] if "several" in name else targets
    given_rows = batch(rows, targets, generator.choice([0.0, 0.3, 1.0], len(rows)))
    terms = np.asarray(one.records(theta, given_rows)).reshape(len(rows), -1)
    bound = one.record_bound * (1 + 1e-12)
    assert np.linalg.norm(terms, axis=1).max() <= bound
    apart = np.linalg.norm(terms[:, None] - terms[None], axis=2).max()
    assert apart <= one.apart * bound
    np.testing.assert_allclose(np.ravel(one(theta, given_rows)), terms.sum(axis=0), atol=1e-9)


@pytest.mark.parametrize("name", SUMS)
@given(rows=triples(3, 9), seed=st.integers(0, 99))
def test_no_person_moves_a_sum_by_more_than_is_declared(name, rows, seed):
    one, theta = SUMS[name]
    generator, rows = np.random.default_rng(seed), np.array(rows)
    targets = generator.choice([0.0, 1.0], len(rows))
    starts = np.unique([0, *generator.integers(1, len(rows), 2), len(rows)])
    targets = np.eye(3)[targets.astype(int)] if "several" in name else targets
    given_rows = batch(rows, targets, generator.choice([0.0, 0.3, 1.0], len(rows)), starts)
    over = of_weights(one, 2.0).of_persons(PersonUnit(None, 1.5, 1.2))
    terms = np.asarray(over.records(theta, given_rows)).reshape(len(starts) - 1, -1)
    assert np.linalg.norm(terms, axis=1).max() <= over.record_bound * (1 + 1e-12)
    np.testing.assert_allclose(np.ravel(over(theta, given_rows)), terms.sum(axis=0), atol=1e-9)


@pytest.mark.parametrize(
    ("name", "row", "target"),
    [("moments", [1.0, 5.0, 1.0], 0.0), ("scores of numbers", [0.7, 0.0, 0.0], 50.0)],
)
def test_the_bound_is_reached(name, row, target):
    one, theta = SUMS[name]
    term = one.records(theta, batch([row], [target]))
    assert np.linalg.norm(term) == pytest.approx(one.record_bound)


def differences(scores, theta, of):
    """Central differences of a sum of scores by the three effects."""
    found = np.empty((3, 3))
    for j in range(3):
        up, down = theta.copy(), theta.copy()
        up[0, j] += 1e-6
        down[0, j] -= 1e-6
        ends = [np.ravel(scores(at, of))[:3] for at in (up, down)]
        found[j] = (ends[1] - ends[0]) / 2e-6
    return found


def test_slopes_are_the_derivatives_of_weighted_scores_of_numbers():
    """c times them."""
    of, line, cut = batch(rng.normal(size=(40, 3)), rng.normal(size=40)), Line(), WIDE
    theta = SUMS["scores of numbers"][1]
    slope = unpacked(line.slope(cut)(theta, of), 3)
    np.testing.assert_allclose(slope, 0.4 * differences(line.scores(cut), theta, of), atol=1e-5)


def test_slopes_are_the_expected_derivatives_of_weighted_scores_of_classes():
    """Over targets, of which weights know nothing; at the truth the change of weights adds 0."""
    rows = rng.normal(size=(40, 3))
    p = 1 / (1 + np.exp(-rows @ THREE[0]))
    scores, theta = SUMS["scores of classes"]
    expected = np.zeros((3, 3))
    for target, share in ((1.0, p), (0.0, 1.0 - p)):
        of = batch(rows, np.full(40, target), share)
        expected += differences(scores, theta, of)
    slope = unpacked(SUMS["slope of classes"][0](theta, batch(rows, np.zeros(40))), 3)
    np.testing.assert_allclose(slope, expected, atol=1e-5)


def test_slopes_of_contrasts_are_the_variances_of_their_scores():
    """Row by row: of contrasts u, the variance of u (e_y - p) over classes, times the weight."""
    rows = rng.normal(size=(40, 3))
    expected = np.zeros((2, 3, 3))
    for z in rows:
        p = np.exp(OF_CLASSES @ z) / np.exp(OF_CLASSES @ z).sum()
        residuals = np.eye(3) - p
        norm = np.linalg.norm(z)
        largest = np.linalg.norm(residuals, axis=1).max()
        w = min(1.0, CUT.clip_norm / (norm * largest), (CUT.row_norm / norm) ** 2)
        slopes = p @ (residuals @ CONTRASTS) ** 2
        w *= min(1.0, SEVERAL.slope(CUT).bound / (w * np.linalg.norm(slopes) * norm**2))
        expected += w * slopes[:, None, None] * np.outer(z, z)
    one, theta = SUMS["slopes of several"]
    found = one(theta, batch(rows, np.eye(3)[rng.integers(3, size=40)])).reshape(2, -1)
    np.testing.assert_allclose([unpacked(own, 3) for own in found], expected, atol=1e-9)


@pytest.mark.parametrize("name", ["slope of counts", "slope of counts, cut at less"])
def test_the_bound_on_slopes_of_counts_is_reached(name):
    one, theta = SUMS[name]
    line = np.linspace(-4.0, 6.0, 20001)
    rows = np.column_stack([line / 0.3, 0 * line, 0 * line])
    rows = rows[np.abs(rows[:, 0]) > 0.7]  # which are weighted down to the norm
    norms = np.linalg.norm(one.records(theta, batch(rows, np.zeros(len(rows)))), axis=1)
    assert norms.max() == pytest.approx(one.record_bound, rel=1e-3)


def test_slopes_of_usual_rows_are_not_cut():
    """Of a row whose score counts in full, at the rate at which its slope is largest."""
    one, line = SUMS["slope of counts"][0], np.linspace(-4.0, 6.0, 2001)
    rate = Counts(Poisson(9.0), clip=5.0)
    slopes = rate.slope_at(line)
    theta = np.array([[line[slopes.argmax()] / 0.7, 0.0, 0.0, 5.0]])
    term = one.records(theta, batch([[0.7, 0.0, 0.0]], [0.0]))
    assert np.linalg.norm(term) == pytest.approx(slopes.max() / rate.slopes[1] * 0.7**2)
    assert slopes.max() == pytest.approx(rate.slopes[1], rel=1e-2)


@pytest.mark.parametrize("c", [0.7, 5.0])
def test_sums_of_counts_are_those_of_the_cut_beside_the_parameters(c):
    rows, counts = rng.normal(size=(40, 3)) / 3, rng.integers(0, 10, 40)
    of, theta = batch(rows, counts), np.append(THREE, c)[None]
    rate = Counts(Poisson(9.0), clip=c)
    logits = rows @ THREE[0]
    w = CUT.weights(np.linalg.norm(rows, axis=1))
    psi = rate.residual(logits[:, None], counts[:, None].astype(float))[:, 0]
    np.testing.assert_allclose(np.ravel(RATE.scores(CUT)(theta, of)), (w * psi) @ rows, atol=1e-9)
    slope = unpacked(rate.slopes[1] * RATE.slope(CUT)(theta, of), 3)
    weighted = (w * rate.slope_at(logits))[:, None] * rows
    np.testing.assert_allclose(slope, rows.T @ weighted, atol=1e-9)


KNOWN = columns.Columns(*[np.ones(2)] * 4, (0.0, 0.0), 0.0, 1.0, numbers=(True, True))


@pytest.mark.parametrize(
    ("relation", "expected"), [("add_or_remove_one", 500.0), ("zero_out", 900.0)]
)
def test_a_number_of_rows_that_is_private_is_the_one_that_was_released(relation, expected):
    config = glm.GLMConfig(
        family=LOGIT, n_rows=900, n_features=2, fit_intercept=True, clip_norm=2.0, n_steps=2,
        design=Design.alike(2, True, 1.4), neighboring_relation=relation, noise_multiplier=1e-3,
    )  # fmt: skip
    update = steps.Update(config, KNOWN, np.random.default_rng(0))
    update._count(500.0)
    assert update.n == expected


def test_scores_of_counts_have_the_mean_the_variance_and_the_slope_that_are_stated():
    count, logits = np.arange(200.0), np.array([-3.0, -1.0, 0.0, 1.0, 2.0, 2.15])
    p = stats.poisson.pmf(count, np.exp(logits)[:, None])

    def scores(at):
        pairs = np.broadcast_arrays(at[:, None], count)
        return RATE.residual(pairs[0].reshape(-1, 1), pairs[1].reshape(-1, 1)).reshape(p.shape)

    found = scores(logits)
    np.testing.assert_allclose((p * found).sum(axis=1), 0.0, atol=1e-4)  # of a table
    np.testing.assert_allclose((p * found**2).sum(axis=1), RATE.variance_at(logits), rtol=1e-3)
    ends = [(p * scores(logits + step)).sum(axis=1) for step in (1e-5, -1e-5)]
    np.testing.assert_allclose((ends[1] - ends[0]) / 2e-5, RATE.slope_at(logits), rtol=2e-2)


def test_scores_are_not_changed_by_what_the_target_is():
    """Weights look at the row alone, so that scores are 0 in expectation at the truth."""
    one, theta = SUMS["scores of classes"]
    rows = rng.normal(size=(50, 3)) * 3
    up, down = (one.records(theta, batch(rows, np.full(50, t))) for t in (1.0, 0.0))
    p = 1 / (1 + np.exp(-rows @ THREE[0]))
    np.testing.assert_allclose(p[:, None] * up + (1 - p)[:, None] * down, 0.0, atol=1e-12)


# --- inference ------------------------------------------------------------------------------------


def test_known_matrices_are_drawn_as_they_are():
    A = np.diag([2.0, 1.0, 0.5]) + 0.2
    axes, values = matrices.draws(A, 1e-7, 4, np.random.default_rng(0))
    drawn = axes @ (values[:, :, None] * axes.transpose(0, 2, 1))
    np.testing.assert_allclose(drawn, np.tile(A, (4, 1, 1)), atol=1e-4)


@pytest.mark.parametrize("D", [4, 5])
def test_rotations_without_noise_are_those_of_jacobi_and_find_the_axes(D):
    still = SimpleNamespace(vonmises=lambda _, sharp: np.zeros_like(sharp))
    Q = np.linalg.qr(np.random.default_rng(0).standard_normal((2, D, D)))[0]
    values = np.tile(np.arange(1.0, D + 1), (2, 1))
    for _ in range(8):
        Q, diagonal = matrices._turned(Q, values, values, 1.0, still)
    np.testing.assert_allclose(diagonal, values, atol=1e-9)
    np.testing.assert_allclose(np.abs(Q), np.tile(np.eye(D), (2, 1, 1)), atol=1e-6)


def test_drawn_matrices_have_the_law_of_an_importance_sampler(monkeypatch):
    """Of two columns, with the prior that the matrix itself gives."""
    monkeypatch.setattr(matrices, "SWEEPS", 30)
    generator, s = np.random.default_rng(1), 0.3
    M = np.array([[1.3, 0.5], [0.5, 0.7]])
    axes, values = matrices.draws(M, s, 4000, generator)
    drawn = axes @ (values[:, :, None] * axes.transpose(0, 2, 1))
    found, average = np.linalg.eigvalsh(M), np.trace(M) / 2
    square, n = float((found**2).mean()) - s**2 * 3, 200_000
    of_logs = matrices.drawn(square / average**2, 2.0 * (s / average) ** 2, n, generator)
    spread = np.sqrt(of_logs)[:, None]
    mean, least = np.log(average) - spread**2 / 2, matrices.LEAST * average
    # Proposals from a wide law of log-eigenvalues, angles uniform.
    x, angle = generator.uniform(-10, 3, (n, 2)), generator.uniform(0, np.pi, n)
    lam, (c, d) = np.exp(x), (np.cos(angle), np.sin(angle))
    a11 = lam[:, 0] * c**2 + lam[:, 1] * d**2
    a22 = lam[:, 0] * d**2 + lam[:, 1] * c**2
    a12 = (lam[:, 0] - lam[:, 1]) * c * d
    log_w = matrices._log_density(x, mean, spread, least).sum(axis=1)
    log_w -= ((a11 - M[0, 0]) ** 2 + (a22 - M[1, 1]) ** 2) / (4 * s**2)
    log_w -= (a12 - M[0, 1]) ** 2 / (2 * s**2)
    w = np.where((lam > matrices.LEAST * average).all(axis=1), np.exp(log_w - log_w.max()), 0.0)
    w /= w.sum()
    error = 5 * drawn.std(axis=0) / math.sqrt(4000) + 0.01
    assert np.all(np.abs(drawn.mean(axis=0) - [[w @ a11, w @ a12], [w @ a12, w @ a22]]) < error)
    deviation = np.sqrt([w @ a11**2 - (w @ a11) ** 2, w @ a22**2 - (w @ a22) ** 2])
    at = np.arange(2)
    np.testing.assert_allclose(drawn[:, at, at].std(axis=0), deviation, rtol=0.08)


def of_the_grid(grid, scale, size, generator):
    """Draws of a half-Cauchy law on a logarithmic grid."""
    p = grid / (1.0 + (grid / scale) ** 2)
    return generator.choice(grid, size, p=p / p.sum())


def from_the_prior(H, unit, spread, mean, P, root, n_draws=400_000):
    """Mean and covariance of θ given a normal measurement, by weights of draws of the prior."""
    p, generator, d = prior_of_effects, np.random.default_rng(0), len(mean)
    values, axes = np.linalg.eigh(H / unit)
    laws = (p._SCALES, p.TAU), (p._BETAS, p.BETA)
    tau, beta = (of_the_grid(a / root, b / root, n_draws, generator) for a, b in laws)
    half = prior_of_effects.DEGREES / 2.0
    local, along = half / generator.gamma(half, size=(2, n_draws, d))
    C = (axes * (beta[:, None] ** 2 * along * values**-1.0)[:, None, :]) @ axes.T
    C[:, np.arange(d), np.arange(d)] += local * tau[:, None] ** 2 / spread**2
    measured = C + np.linalg.inv(P)
    solved = np.linalg.solve(measured, np.broadcast_to(mean, (n_draws, d))[..., None])[..., 0]
    log_w = -(solved @ mean) / 2.0 - np.linalg.slogdet(measured)[1] / 2.0
    w = np.exp(log_w - log_w.max())
    w /= w.sum()
    each = np.einsum("kij,kj->ki", C, solved)
    covariance = C - C @ np.linalg.solve(measured, C)
    first = w @ each
    off = each - first
    return first, np.einsum("k,kij->ij", w, covariance) + (w[:, None] * off).T @ off


@pytest.mark.parametrize(
    ("H", "spread", "mean", "deviation", "alike"),
    [
        ([[2.0]], [1.0], [0.1], 0.05, 1),
        ([[2.0]], [1.0], [0.6], 0.4, 1),
        ([[2.0]], [0.3], [3.0], 0.4, 1),
        ([[1.0, 0.95], [0.95, 1.0]], [1.0, 1.0], [1.5, -1.2], 0.3, 1),
        ([[1.0, 0.95], [0.95, 1.0]], [1.0, 0.5], [0.2, 0.1], 0.1, 1),
        ([[2.0, 0.0], [0.0, 0.1]], [20.0, 10.0], [0.3, 0.6], 0.4, 2),  # contrasts of one column
    ],
)
def test_effects_have_the_posterior_of_an_importance_sampler(H, spread, mean, deviation, alike):
    H, spread, mean = map(np.array, (H, spread, mean))
    K, d, precision = glm.CHAINS, len(mean) // alike, np.eye(len(mean)) / deviation**2
    of = [slice(i, i + d) for i in range(0, len(mean), d)]
    P, of_row = (np.repeat([A[i, i] for i in of], K, axis=0) for A in (precision, H))
    b, spreads = (np.repeat(a.reshape(-1, d), K, axis=0) for a in (precision @ mean, spread))
    runs, design = [], Design.of_standardised(d, False)
    for seed in range(30):
        prior = prior_of_effects.Prior(of_row, spreads, 1.0, None, None, design, alike)
        drawn = posterior.sampled(P, b, prior, np.random.default_rng(seed)).apart(alike)
        means = np.dstack([one.means for one in drawn]).reshape(-1, len(mean))
        own = block_diag(*[one.covariances.mean(axis=(0, 1)) for one in drawn])
        runs.append((means.mean(axis=0), own + means.T @ means / len(means)))
    found, second = (np.mean(each, axis=0) for each in zip(*runs, strict=True))
    unit = np.repeat(np.diag(H).reshape(alike, d).mean(axis=1), d)  # R of each contrast
    first, covariance = from_the_prior(H, unit, spread, mean, precision, d**0.5)
    sd = np.sqrt(np.diag(covariance))
    assert np.all(np.abs(found - first) < 0.08 * sd)
    assert np.all(np.abs(second - np.outer(found, found) - covariance) < 0.15 * np.outer(sd, sd))


def test_a_normal_prior_that_is_given_is_the_prior():
    K, spreads = 4, np.full((4, 2), 0.5)
    design, H = Design.of_standardised(2, True), np.tile(np.eye(3), (K, 1, 1))
    prior = prior_of_effects.Prior(H, spreads, 2.0, None, 3.0, design)
    before = prior.precision(3)
    expected = [1 / (3.0 * 2.0 / 0.5) ** 2] * 2 + [prior_of_effects.INTERCEPT**-2]
    np.testing.assert_allclose(before, np.tile(np.diag(expected), (K, 1, 1)))
    prior.draw(np.ones((K, 3)), before, np.random.default_rng(0))
    np.testing.assert_array_equal(prior.precision(3), before)


def test_effects_of_columns_that_may_be_nearly_constant_are_wide_and_predictions_are_not():
    """Two draws: the column varies as its scale says, or a tenth of that with ten times the effect.

    In the first its logits are ±1 for usual rows, in the second too, and not ±10.
    """
    H = np.array([[[1.0]], [[0.01]]])
    means, covariances = np.array([[[1.0], [10.0]]]), np.array([[[[0.01]], [[1.0]]]])
    drawn = draws.Draws(means, covariances, np.ones((2, 1)))
    mean, seen = drawn.point(H)
    covariance = drawn.about(mean)
    weight = np.array([1.0, 0.1]) / math.sqrt(0.505)
    effects, variances = weight * [1.0, 10.0], weight**2 * [0.01, 1.0]
    np.testing.assert_allclose(effects[0], effects[1])
    assert mean[0] == pytest.approx(effects[0])
    off = means.reshape(-1, 1) - mean
    assert held(off, covariances, np.sqrt(covariance[0])) == pytest.approx([0.9], abs=1e-6)
    assert seen[0, 0] == pytest.approx(variances[0])


def correlation(S):
    """Correlations of a covariance."""
    return S / np.sqrt(np.outer(np.diag(S), np.diag(S)))


def held(off, covariances, deviation):
    """Share of normal laws about their means that 90 % intervals of a deviation hold."""
    sd = np.sqrt(np.diagonal(covariances, axis1=2, axis2=3)).reshape(off.shape)
    ends = (
        stats.norm.cdf(1.6448536 * deviation, off, sd),
        stats.norm.cdf(-1.6448536 * deviation, off, sd),
    )
    return (ends[0] - ends[1]).mean(axis=0)


def test_logits_of_draws_count_as_probabilities_tell():
    """By a loop over draws; draws that are sure of all rows, and one that knows nothing."""
    generator, D = np.random.default_rng(0), 3
    H = np.array([(A := generator.normal(size=(D, D))) @ A.T + np.eye(D) for _ in range(2)])
    means = generator.normal(size=(4, 2, D))
    covariances = np.tile(0.01 * np.eye(D), (4, 2, 1, 1))
    covariances[0, 0] *= 1e5
    drawn = draws.Draws(means, covariances, np.ones((8, 1)))
    mean_found, seen_found = drawn.point(H)
    covariance = drawn.about(mean_found)
    usual = H.mean(axis=0)
    roots = [np.linalg.inv(sqrtm(usual)) @ sqrtm(h) for h in H]
    laws = [
        (roots[k] @ means[s, k], roots[k] @ covariances[s, k] @ roots[k].T)
        for s, k in np.ndindex(4, 2)
    ]
    about, unit = np.mean([m for m, _ in laws], axis=0), usual * D / np.trace(usual)
    v = [np.trace(unit @ C) + (m - about) @ unit @ (m - about) for m, C in laws]
    share = 1.0 / (1.0 + np.pi / 8.0 * np.array(v))
    assert share.min() < 0.01
    mean = np.average([m for m, _ in laws], axis=0, weights=np.sqrt(share))
    np.testing.assert_allclose(mean_found, mean)
    seen = np.average([C for _, C in laws], axis=0, weights=share)
    np.testing.assert_allclose(seen_found, seen)
    off = means.reshape(-1, D) - mean
    whole = covariances.mean(axis=(0, 1)) + off.T @ off / 8
    deviation = np.sqrt(np.diag(covariance))
    np.testing.assert_allclose(covariance / np.outer(deviation, deviation), correlation(whole))
    assert held(off, covariances, deviation) == pytest.approx([0.9] * D, abs=1e-6)


ALIKE = Design.alike(16, False, 9.0)


def test_the_clip_norm_grows_until_the_noise_is_as_large_as_what_is_left_out():
    def found(n_rows, mu, **facts):
        defaults = {"family": LOGIT, "n_features": 16, "fit_intercept": False}
        defaults["design"] = Design.of_standardised(16, False)
        parameters = defaults | {"clip_norm": 1.0, "n_steps": 3} | facts
        return glm.GLMConfig(n_rows=n_rows, **parameters).default_clip(mu)

    assert found(100, 0.1) == pytest.approx(2.0)
    assert found(100, 0.1, family=Line()) == pytest.approx(4.0)
    # Noise of scores and what is left out, both in standard errors.
    left, n, mu = 1.0 - 0.2 - 0.08 - 0.02, 90_000, 0.03
    for family, power in ((LOGIT, 1.0), (Line(), 1.5)):
        f = found(n, mu, family=family) / 4.0
        noise = 4.0 / (mu * math.sqrt(left * n / 4)) * f**power
        assert 1.0 < f < 2.0
        assert noise == pytest.approx(family.bias * math.sqrt(n) / f)
    assert found(10**6, 2.0) == pytest.approx(8.0)  # beyond, little is left out
    assert found(10**6, 2.0, design=ALIKE) == pytest.approx(4.0)  # no score is longer
    assert found(10**6, 2.0, design=ALIKE, family=SEVERAL) == pytest.approx(math.sqrt(32.0))
    tenth, alike = (found(10**4, 0.05, design=d) for d in (Design(0.9, 1.0, 0.4, 0.4), ALIKE))
    assert 2.0 < alike < 4.0  # at either bound the spread of columns would not show
    assert 10 * tenth == pytest.approx(alike)


def _update(family=LOGIT, n=1000, d=2, fit_intercept=True, **config):
    """Inference of columns that are known."""
    design = {"design": Design.of_standardised(d, fit_intercept)}
    config = {"clip_norm": 2.0, "n_steps": 3, "fit_intercept": fit_intercept} | design | config
    config = glm.GLMConfig(family=family, n_rows=n, n_features=d, **config)
    return steps.Update(config, KNOWN, np.random.default_rng(0))


def _posterior(update, state, gram, n_chains):
    one = posterior.Posterior.__new__(posterior.Posterior)
    one.config, one.update, one.state, one.gram = update.config, update, state, gram
    one.K, one.n, one.generator = n_chains, update.n, np.random.default_rng(0)
    return one


@pytest.mark.parametrize(("wider", "aim"), [(0.5, 2.5), (2.0, 2.5 * math.sqrt(2.0))])
def test_residuals_are_cut_farther_out_where_rows_are(wider, aim):
    update = _update(Line(), 10**6, d=4, fit_intercept=False, clip_norm=2.0 * wider)
    update.noise = lambda kind: 1e-3
    state = steps.State(np.zeros((1, 4)), likely=np.eye(4), cut=1.0)
    square = numbers.mean_square(np.array(0.3)) - numbers.USUAL_SQUARE
    released = np.append(np.zeros(4), update.config.clip_norm / 2.0 * 1e6 * square)
    assert update._scored(state, released)[1] == pytest.approx(0.3 * aim, rel=1e-2)


def test_a_likely_slope_is_the_mean_of_positive_draws():
    update = _update(d=30, fit_intercept=False)
    for noise, most in ((1e-6, 1e-2), (100.0, 0.5)):
        update.noise = lambda kind, noise=noise: noise
        released = packed(np.diag([1000.0] * 29 + [0.0]))
        state = update.update(steps.State(np.zeros((1, 30))), released, 0)
        values = np.linalg.eigvalsh(state.likely)
        assert 0 < values[0] < most
        assert values[-1] > 0.9
        np.testing.assert_allclose(state.likely, matrices.mean(*state.drawn))


@pytest.mark.parametrize(
    ("n_columns", "noise", "last"),
    [(1, 1.0, 8), (1, 150.0, 8), (1, 300.0, 1), (20, 300.0, 8), (1, 800.0, 8)],
)
def test_a_range_leaves_no_more_values_out_than_the_noise_lets_it_see(n_columns, noise, last):
    """Most values in one cell, a tenth anywhere: seen by little noise, or by that of many."""
    counts = np.tile([9000.0] + [1000.0 / 7] * 7, (n_columns, 1))
    first, after = columns._told_cells(counts, noise)
    assert set(first) == {0}
    assert set(after) == {last}


def test_what_all_columns_lose_leaves_alone_those_that_lose_nothing():
    counts = np.array([[9000.0] + [1000.0 / 7] * 7] * 9 + [[10_000.0] + [0.0] * 7])
    first, after = columns._told_cells(counts, 10.0)
    assert set(first) == {0}
    assert list(after) == [8] * 9 + [1]


def test_spreads_follow_what_was_released_and_what_the_others_tell():
    """Known where the noise is small, else as the other columns lead to expect."""
    true = np.full(40, 0.02)
    square, error = true**2, np.full(40, 1e-6)
    square[0], error[0] = 0.01, 0.1
    p = columns.spreads(square, error)
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    usual = np.sqrt(p @ columns.SPREADS**2)
    np.testing.assert_allclose(usual[1:], 0.02, rtol=0.05)
    alone = np.sqrt(columns.spreads(square[:1], error[:1]) @ columns.SPREADS**2)
    assert 0.01 < usual[0] < alone[0] / 2


def test_a_column_whose_spread_the_noise_hides_has_a_drawn_one_and_the_slope_of_it():
    config = glm.GLMConfig(
        family=LOGIT, n_rows=1000, n_features=2, fit_intercept=False, clip_norm=2.0, n_steps=2,
        design=Design.of_standardised(2, False),
    )  # fmt: skip
    one = posterior.Posterior.__new__(posterior.Posterior)
    one.config, one.K, one.n, one.generator = config, 200, 1000.0, np.random.default_rng(0)
    one.gram, one.state = np.diag([1.0, 0.1]), None
    one.update = SimpleNamespace(noise=lambda kind: 200.0)
    one.update.columns = columns.Columns(
        np.zeros(2), np.array([0.5, 0.3]), np.array([0.25, 0.0]), np.array([0.01, 0.05]),
        (1000.0, 0.0), 0.0, 1.0, numbers=(True, True),
    )  # fmt: skip
    H, spread = one._hidden(np.tile(np.eye(2), (200, 1, 1)), 1.0)
    np.testing.assert_array_equal(spread[:, 0], 1.0)
    np.testing.assert_allclose(H[:, 0, 0], 1.0)
    assert np.median(spread[:, 1]) < 0.8
    assert spread[:, 1].std() > 0.05
    np.testing.assert_allclose(H[:, 1, 1], spread[:, 1] ** 2)


@pytest.mark.parametrize(("n_rows", "stages", "share"), [(200, 0, 0.45), (10**6, 4, 0.05)])
def test_shares_of_columns_follow_from_the_rows_and_the_budget(n_rows, stages, share):
    config = ColumnsConfig(n_rows=n_rows, lower=(0.0,) * 5, upper=(9.0,) * 5).shared(0.3)
    assert config.n_stages == stages
    assert config.shares[1] == share
    assert len(config.units) == len(config.dimensions) == stages + 2


def test_slopes_of_columns_that_saturate_are_found():
    gram, true = np.array([1.0, 1.0, 0.5]), np.array([1.0, 0.04, 0.3])
    sharp = draws.drawn_factors(gram, gram * true, 1e-4, 1e-4, 16, np.random.default_rng(0))
    np.testing.assert_allclose(np.median(sharp**2, axis=0), true, rtol=0.1)
    blunt = draws.drawn_factors(gram, gram * true, 0.01, 3.0, 16, np.random.default_rng(0))
    assert 0.5 < np.median(blunt) < 1.5  # the noise is larger than the slopes


@pytest.mark.parametrize(("error", "times"), [(1e-5, 0.3), (0.02, 0.3), (1e3, 1.0)])
def test_slopes_of_all_contrasts_are_off_from_those_of_normal_rows_alike(error, times):
    """Each is as released where that is sure, and half as far from the others where it is not."""
    told, off = np.array([0.2, 0.1, 0.1]), error * np.array([0.2, 1.0, -1.0])
    slopes = (0.3 * told + off * (error < 1.0))[:, None, None] * np.eye(3)
    one = _posterior(_update(), None, np.eye(3), 1)
    one.each = [draws.Along(*[None] * 4, *of) for of in zip(told, np.ones(3), slopes, strict=True)]
    found = [one._share(own, np.eye(3), error * math.sqrt(1.5)) for own in one.each]
    np.testing.assert_allclose(found, times * told, atol=0.6 * error + 1e-3 if error < 1 else 0.02)


def test_what_clipped_residuals_tell_of_their_scale():
    for scale in (0.1, 0.4, 1.0, 3.0, 1e200):
        draws = np.clip(scale * np.random.default_rng(0).standard_normal(10**6), -1, 1)
        assert numbers.mean_square(np.array(scale)) == pytest.approx(np.mean(draws**2), rel=0.01)
        assert numbers.inside(scale) == pytest.approx(np.mean(np.abs(draws) < 1), abs=0.002)
    assert numbers.inside(1e200) == pytest.approx(math.sqrt(2 / math.pi) / 1e200)


def test_scales_are_told_by_all_steps_together():
    """As far as their noise allows, and else as is usual."""
    cuts = np.array([2.0, 1.0, 0.5])
    squares = numbers.mean_square(0.3 / cuts)
    scale, variance = numbers.told_scale(squares, cuts, 1e-3, 0.0)
    assert scale == pytest.approx(0.3, rel=0.01)
    assert variance < 1e-3
    scale, variance = numbers.told_scale(squares, cuts, 1e3, 0.0)
    assert scale == pytest.approx(numbers.USUAL_SCALE, rel=0.1)
    assert variance > 0.7


def test_released_slopes_of_counts_are_those_of_scores_at_the_cut():
    update = _update(RATE, 900, design=Design.alike(2, True, 1.4), noise_multiplier=1e-3)
    state = update.init()._replace(cut=2.0)
    found = update.update(state, packed(np.eye(3)), update.config.kinds.index("slope")).slopes
    np.testing.assert_allclose(found, [replace(RATE, clip=2.0).slopes[1] * np.eye(3) / 900])


def test_no_number_of_steps_makes_an_error_that_all_have_smaller():
    one = numbers.mean_square(np.array([0.5]))
    few, many = (numbers.told_scale(np.tile(one, T), np.ones(T), 1e-3, 1e-2)[1] for T in (1, 50))
    assert many == pytest.approx(few, rel=0.05)
    apart = numbers.told_scale(np.tile(one, 50), np.ones(50), 1e-2, 0.0)[1]
    assert apart < few / 20


# --- what is released and stated ------------------------------------------------------------------

PERSONS = {"unit": Persons(N // 4, rows_per_group=4), "n_samples": None}
PLANS = [
    {},
    {"secure": True, "max_iter": 3},
    {"fit_intercept": False},
    {"robust": True, "max_iter": 3},
    {"standardize": False, "max_iter": 3},
    {"max_sample_weight": 2.0, "max_iter": 3},
    {"epsilon": None, "noise_multiplier": 4.0},
    {"neighboring_relation": "replace_one"},
    {"neighboring_relation": "add_or_remove_one"},
    PERSONS,
    PERSONS | {"max_sample_weight": 2.0, "secure": True, "max_iter": 2},
]


@pytest.mark.quick(6)
@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("make", [classifier, regressor])
def test_the_event_in_the_ledger_is_the_trace(plan, make):
    relation = "zero_out_group" if "unit" in plan else plan.get("neighboring_relation", "zero_out")
    weights = {"sample_weight": np.full(N, 0.5)} if "max_sample_weight" in plan else {}
    weights |= {"groups": np.arange(N) // 4} if "unit" in plan else {}
    y = TARGETS[make]
    with PrivacyLedger(neighboring_relation=relation) as ledger, release_hook.record() as tape:
        fitted = make(**plan).fit(TABLE, y, **weights)
    (entry,) = ledger.entries
    stated = [term for term in terms_of(entry.event) for _ in range(term.count)]
    if not plan.get("secure"):
        factor = sensitivity_factor(relation)
        found = sorted(r.call.scale / r.call.sensitivity * factor for r in tape)
        expected = sorted(term.noise_multiplier for term in stated)
        np.testing.assert_allclose(found, expected, rtol=1e-12)
    if "epsilon" not in plan:
        assert fitted.privacy_.epsilon == pytest.approx(3.0, rel=1e-6)
    assert fitted.privacy_.event == entry.event


@pytest.mark.parametrize("make", TARGETS)
def test_with_the_releases_frozen_nothing_depends_on_the_data(make):
    y = TARGETS[make]
    other = TABLE.copy()
    other.iloc[:5] = [[1e300, 1.0, -1e300], [0, 0, 0], [119, 1, 99], [np.pi, 0.5, 3], [50, 0, 1e9]]
    with fixed_streams():
        with release_hook.record() as tape:
            first = make().fit(TABLE, y)
        with release_hook.replay([release.output for release in tape]) as again:
            second = make().fit(other, y[::-1])
    assert [r.call for r in again] == [r.call for r in tape]
    np.testing.assert_array_equal(first.coef_, second.coef_)
    np.testing.assert_array_equal(first.covariance_, second.covariance_)


def test_each_fit_has_noise_of_its_own_for_columns_and_for_scores():
    tapes = []
    for _ in range(2):
        with release_hook.record() as tape:
            classifier().fit(TABLE, CLASSES)
        tapes.append([np.ravel(release.output) for release in tape])
    assert all(not np.array_equal(one, other) for one, other in zip(*tapes, strict=True))


@pytest.mark.parametrize("make", TARGETS)
def test_units_change_nothing_but_the_units(make):
    """A column and its bounds times 1000 or shifted: the same releases."""
    y = TARGETS[make]
    scaled = TABLE.assign(age=TABLE["age"] * 1000.0, visits=TABLE["visits"] + 70.0)
    bounds = {"age": (0.0, 120_000.0), "sick": (0.0, 1.0), "visits": (70.0, 170.0)}
    tapes, fits = [], []
    for X, declared in ((TABLE, BOUNDS), (scaled, bounds)):
        with fixed_streams(), release_hook.record() as tape:
            fits.append(make(bounds=declared).fit(X, y))
        tapes.append(np.concatenate([np.ravel(release.output) for release in tape]))
    np.testing.assert_allclose(*tapes, rtol=1e-9, atol=1e-9 * np.abs(tapes[0]).max())
    first, second = (np.ravel(fit.coef_) for fit in fits)
    np.testing.assert_allclose(second * [1000.0, 1.0, 1.0], first, rtol=1e-6)
    np.testing.assert_allclose(
        fits[0].predict(TABLE), fits[1].predict(scaled), rtol=1e-6, atol=1e-6
    )


@pytest.mark.parametrize("make", TARGETS)
def test_intervals_of_persons_and_of_weighted_rows_hold_the_estimate(make):
    """Of the same rows, with weights; persons have four rows."""
    y, weights = TARGETS[make], np.where(np.arange(N) % 3 == 0, 2.0, 0.5)
    ways = {"weights": {"max_sample_weight": 2.0}, "persons": PERSONS}
    for name, parameters in ways.items():
        given_rows = {"groups": np.arange(N) // 4} if name == "persons" else {}
        given_rows |= {"sample_weight": weights} if name == "weights" else {}
        public = {k: v for k, v in parameters.items() if k != "unit"} if not given_rows else {}
        reference = make(epsilon=math.inf, **(parameters if name == "weights" else public))
        known = {k: v for k, v in given_rows.items() if k != "groups"}
        expected = np.ravel(reference.fit(TABLE, y, **known).coef_)
        inside = []
        for _ in range(10):
            fit = make(**parameters).fit(TABLE, y, **given_rows)
            deviation = np.sqrt(np.diag(fit.covariance_))[:3]
            inside.append(np.abs(np.ravel(fit.coef_) - expected) < 1.645 * deviation)
        assert np.mean(inside) >= 0.75, name  # of 30, as above


@pytest.mark.parametrize("relation", RELATIONS)
def test_shares_of_the_budget_add_up(relation):
    config = ColumnsConfig(
        n_rows=100, lower=(0.0, 0.0), upper=(1.0, 9.0), neighboring_relation=relation
    )
    assert sum(unit**-2.0 for unit in config.units) == pytest.approx(1.0)
    assert len(config.units) == len(config.dimensions) == config.sampling.n_steps


# --- what the user sees ---------------------------------------------------------------------------


@pytest.mark.parametrize("make", TARGETS)
@pytest.mark.parametrize("widest", [25.0, 100.0, 1000.0])
def test_coefficients_are_those_of_the_columns_whatever_the_bounds(make, widest):
    y = TARGETS[make]
    inside, bounds = [], BOUNDS | {"visits": (0.0, widest)}
    reference = np.ravel(make(epsilon=math.inf).fit(TABLE, y).coef_)
    for _ in range(10):
        fit = make(bounds=bounds).fit(TABLE, y)
        deviation = np.sqrt(np.diag(fit.covariance_))[:3]
        inside.append(np.abs(np.ravel(fit.coef_) - reference) < 1.645 * deviation)
        assert np.all(deviation < np.array([0.02, 0.5, 0.2]) * (4 if make is counter else 1))
    assert np.mean(inside) >= 0.75  # of 30; below by chance once in a hundred where 90 % hold


def test_a_frame_gives_the_fit_of_an_array():
    with fixed_streams():
        fit = classifier().fit(TABLE[["visits", "age", "sick"]], CLASSES)
        order = np.array([BOUNDS[name] for name in ("visits", "age", "sick")])
        again = classifier(bounds=order)
        again.fit(TABLE[["visits", "age", "sick"]].to_numpy(), CLASSES)
    np.testing.assert_array_equal(fit.coef_, again.coef_)
    np.testing.assert_array_equal(fit.bounds_, order)
    series = pd.Series(BOUNDS)
    assert classifier(bounds=series).fit(TABLE, CLASSES).coef_.shape == (1, 3)
    assert classifier().plan(N, 3).privacy.epsilon == pytest.approx(3.0)


def test_without_privacy_it_is_the_fit_behind_a_scaler():
    fit = classifier(epsilon=math.inf, delta=1e-5).fit(TABLE, CLASSES)
    lower, upper = np.array(list(BOUNDS.values())).T
    scaled = BoundedScaler(lower, upper).fit_transform(TABLE.to_numpy())
    scaled[:, 1] = TABLE["sick"]  # an indicator stays as it is
    with np.errstate(all="ignore"):
        plain = classifier(epsilon=math.inf, bounds=None, data_norm=3**0.5).fit(scaled, CLASSES)
    half = np.array([60.0, 1.0, 50.0])
    np.testing.assert_allclose(fit.coef_, plain.coef_ / half, rtol=1e-6)


def test_predictions_cut_values_to_their_bounds():
    fit = classifier().fit(TABLE, CLASSES)
    far = TABLE.head(3).assign(age=[500.0, -3.0, 50.0])
    near = TABLE.head(3).assign(age=[120.0, 0.0, 50.0])
    np.testing.assert_array_equal(fit.predict_proba(far), fit.predict_proba(near))


def test_rows_that_were_cut_are_told():
    with pytest.warns(FitWarning, match="hold values beyond bounds"):
        classifier(bounds=BOUNDS | {"age": (0.0, 40.0)}).fit(TABLE, CLASSES)


def test_counts_need_not_be_poissons():
    middle = np.append(TABLE.mean(), 1.0)
    for y in (1 + CLASSES, rng.gamma(4.0, np.exp(LINE / 3) / 12), rng.binomial(3, 0.4, N)):
        fit, exact = (
            counter(epsilon=epsilon, largest_count=3).fit(TABLE, y) for epsilon in (3.0, math.inf)
        )
        error = np.append(fit.coef_ - exact.coef_, fit.intercept_ - exact.intercept_) @ middle
        assert abs(error) < 5 * math.sqrt(middle @ fit.covariance_ @ middle)


@pytest.mark.parametrize(
    ("bounds", "match"),
    [
        ({"age": (0, 120)}, "missing: sick, visits"),
        (BOUNDS | {"weight": (0, 200)}, "not in X: weight"),
        *[(b, "a lower and a larger upper bound") for b in ((1, 1), (2, 1), (0, 10**400), "wide")],
        ([(0, 1)] * 2, "X has 3 columns"),
        ((0.0, np.inf), "bounds"),
    ],
)
@pytest.mark.parametrize("make", [classifier, regressor])
def test_bounds_that_are_none(make, bounds, match):
    with PrivacyLedger() as ledger, pytest.raises(ValueError, match=match):
        make(bounds=bounds).fit(TABLE, CLASSES)
    assert not ledger.entries


def test_what_goes_with_no_bounds():
    with pytest.raises(ValueError, match="X has no names"):
        classifier().fit(TABLE.to_numpy(), CLASSES)
    with pytest.raises(ValueError, match="Fill it with a public value"):
        classifier().fit(TABLE.assign(age=np.nan), CLASSES)
    with pytest.raises(ValueError, match="False with inference='dpvi'"):
        classifier(inference="dpvi").fit(TABLE, CLASSES)
    with pytest.raises(ValueError, match="None for sparse rows"):
        classifier(bounds=(0, 120)).fit(sparse.csr_array(TABLE.to_numpy()), CLASSES)
    with pytest.raises(ValueError, match="standardize"):
        classifier(standardize="public").fit(TABLE, CLASSES)
    fit = classifier(inference="dpvi", standardize=False, max_iter=20).fit(TABLE, CLASSES)
    assert fit.coef_.shape == (1, 3)


def test_a_released_matrix_is_read_as_it_was_written():
    update, noisy = _update(n=10), np.arange(6.0)
    state = update.update(update.init(), noisy, 0)
    np.testing.assert_allclose(state.gram, unpacked(noisy, 3) / 10)


@cache
def _normal_rows():
    """Second moments, and a million rows that have them."""
    G = np.array([[1.0, 0.4, 0.0], [0.4, 1.0, 0.0], [0.0, 0.0, 1.0]])
    z = np.random.default_rng(0).standard_normal((10**6, 2)) @ np.linalg.cholesky(G[:2, :2]).T
    return G, np.column_stack([z, np.ones(len(z))])


def test_scores_of_normal_rows_are_moved_to_where_the_run_is():
    """Expected scores of normal rows at several θ, as if slopes at the last were those of all."""
    config = (update := _update(clip_norm=9.0)).config
    truth, (G, z) = np.array([1.5, -0.5, 0.3]), _normal_rows()
    queries = tuple(np.array([q]) for q in ([0.0, 0.0, 0.0], [0.8, 0.2, -0.4], [1.6, -0.4, 0.2]))
    p = 1 / (1 + np.exp(-z @ truth))
    scores = []
    for q in queries:
        logits = z @ q.T
        w = config.cut.weights(np.full(len(z), math.sqrt(3.0)), LOGIT.largest(logits))
        scores.append((w * (p - 1 / (1 + np.exp(-logits[:, 0])))) @ z / len(z) * 1000.0)
    state = steps.State(queries[-1], likely=G, queries=queries, units=(1.0,) * 3)
    state = state._replace(scores=tuple(g[None] for g in scores))
    usuals = tuple(update.usual(state._replace(theta=q)) for q in queries)
    (own,) = update.along(state._replace(usuals=usuals))
    H = 1000.0 * own.mean_slope * G
    found = own.of_normal + np.linalg.solve(H, own.scores[:, :, None])[:, :, 0]
    np.testing.assert_allclose(found[:2], found[[2, 2]], atol=0.05)
    assert np.abs(own.queries[1] + np.linalg.solve(H, own.scores[1]) - found[2]).max() > 0.1

    # Intervals take the slope along θ as it was released: less than those beside it.
    one = _posterior(update, state._replace(usuals=usuals), G, 50)
    update.noise = lambda kind: 1e-3
    slope = w * (p := 1 / (1 + np.exp(-logits[:, 0]))) * (1 - p)
    S, u = (z * slope[:, None]).T @ z / len(z), np.array([1.6, -0.4, 0.0])
    H, own = np.tile(H / 1000, (50, 1, 1)), own._replace(slope=S)
    H = one._curved(0, own, H, own.mean_slope)
    np.testing.assert_allclose(H @ u @ u, u @ S @ u, rtol=0.05)
    assert u @ update.normal_slope(one.state, [0]) @ u == pytest.approx(1000 * u @ S @ u, rel=0.05)
    assert one._curved(0, own._replace(queries=np.zeros((3, 3))), H, own.mean_slope) is H
    # The way moves scores by the slopes that they have met, and goes by those at θ.
    update.noise = lambda kind: 30.0  # so that all scores tell of it
    P, b = update.told(one.state, own, [0])
    np.testing.assert_allclose(np.linalg.solve(P, b[:, :, None])[0, :, 0], truth, atol=0.03)
    assert P[0, 0, 0] > 50 * update.told(one.state, own._replace(hidden=1e6), [0])[0][0, 0, 0] > 0.0


def test_slopes_of_counts_are_those_of_rows_with_high_rates():
    update = _update(Counts(Poisson(400.0), clip=80.0), clip_norm=1e3, noise_multiplier=1e-3)
    theta, (G, z) = np.array([[0.8, -0.6, 1.0]]), _normal_rows()
    state = steps.State(theta, likely=G, queries=(theta,), scores=(theta,), units=(1.0,), cut=80.0)
    exposed = state._replace(offset=(0.0, 0.2))
    exposed = exposed._replace(usuals=(update.usual(exposed),))
    state = state._replace(usuals=(update.usual(state),))
    S = (z * update.config.family.slope_at(z @ theta[0])[:, None]).T @ z / len(z)
    T, (own,) = update.tilted(state), update.along(state)
    np.testing.assert_allclose(own.mean_slope * T @ G @ T.T, S, atol=0.02 * S[2, 2])
    np.testing.assert_allclose(update.normal_slope(state, [0]) / 1000, S, atol=0.02 * S[2, 2])
    T, S = update.tilted(exposed), S * math.exp(0.1)  # exposures multiply the rates of all alike
    for H in (exposed.usuals[0].slopes * T @ G @ T.T, update.normal_slope(exposed, [0]) / 1000):
        np.testing.assert_allclose(H, S, atol=0.02 * S[2, 2])

    # Where noise hides the slope it is about this one, and released ones lean as they do.
    one = _posterior(update, state, G, 400)
    one.drawn = [np.tile(a, (400, *[1] * a.ndim)) for a in np.linalg.eigh(G)[::-1]]
    for noise, slope, found in ((1e9, np.eye(3), S), (1e-3, own.mean_slope * G, G)):
        update.noise = lambda kind, noise=noise: noise if kind == "slope" else 1e-3
        one.each = [own._replace(slope=slope)]
        H = np.median(one._slopes(*one.each)[0], axis=0)
        np.testing.assert_allclose(H / H[2, 2], found / found[2, 2], atol=0.2)


def test_slopes_on_the_way_are_those_of_normal_rows_of_all_classes_together(monkeypatch):
    monkeypatch.setattr(steps, "POINTS", 40_000)
    update, (G, z) = _update(Softmax(classification_likelihood(3)), clip_norm=1e3), _normal_rows()
    update.noise = lambda kind: 1e-3
    theta = np.array([[1.2, 0.3, 2.0], [-0.4, 0.6, -1.0], [-0.8, -0.9, -1.0]])
    queries = tuple(size * theta for size in (0.0, 0.3, 0.6, 0.8, 1.0))
    state = steps.State(theta, likely=G, queries=queries, scores=queries, units=(1.0,) * 5)
    state = state._replace(usuals=(update.usual(state),) * 5)
    U, p = state.usuals[-1].basis, softmax(z @ theta.T, axis=1)
    s = np.einsum("mi,ik,il->mkl", p, U, U) - np.einsum("mk,ml->mkl", p @ U, p @ U)
    S = np.einsum("mkl,mi,mj->kilj", s, z, z, optimize=True).reshape(6, 6) / len(z)
    H = update.normal_slope(state, [0, 1])
    np.testing.assert_allclose(H / 1000, S, atol=0.01 * S.max())
    # A share of what the mean slope lacks to it is taken: as much as scores tell.
    mean = np.kron(np.diag(1000 * state.usuals[-1].slopes), G)
    own, lacks = draws.stacked(update.along(state)), H - mean
    for slope, share in ((H, 0.97), (mean, 0.03)):
        found = update.likely_slope(state, own._replace(scores=-own.queries @ slope), [0, 1])
        np.testing.assert_allclose(found, mean + share * lacks, atol=0.02 * np.abs(lacks).max())
    # Covariances are those of both contrasts together.
    W = np.kron(np.eye(2), np.diag([*update._next(state).walk, prior_of_effects.INTERCEPT**-2]))
    apart, both = (np.linalg.inv(update.told(state, own, [0, 1], of)[0][0] + W) for of in (0, 1))
    assert np.abs(apart[:3, 3:]).max() < 1e-9 < 1e-4 < np.abs(both[:3, 3:]).max()
    (one := _posterior(update, state, G, 1)).each = update.along(state)
    np.testing.assert_allclose((A := one._between()) @ apart @ A.T, both, rtol=1e-6, atol=1e-9)
    one._laws = lambda each: [(0 * G[0], (k + 1) * G, G, np.ones((2, 1))) for k in each]
    A = np.kron(U, np.eye(3)) @ A @ np.kron(np.diag([1.0, 2.0]) ** 0.5, np.linalg.cholesky(G))
    np.testing.assert_allclose(one.found().covariance, A @ A.T, atol=1e-9)


def test_intervals_hold_where_counts_grow_fast_along_a_column_or_one_class_is_common():
    far = []
    for seed in range(9):
        generator = np.random.default_rng(seed)
        X = generator.uniform([18, 15], [90, 40], (20_000, 2))
        x, public = (X - [54, 27]) / [21, 7], {"bounds": [(0, 120), (10, 60)]}
        y = generator.poisson(np.exp(1.5 * x[:3000, 0] + 0.3))
        counts = public | {"largest_count": 50, "n_samples": 3000}
        fit, exact = (counter(epsilon=e, **counts).fit(X[:3000], y) for e in (0.5, math.inf))
        of_counts = (fit.coef_[0] - exact.coef_[0]) / math.sqrt(fit.covariance_[0, 0])
        logits = np.column_stack([np.full(20_000, 3.0), 1.5 * x[:, 0], -0.75 * x[:, 0]])
        y = (logits + generator.gumbel(size=logits.shape)).argmax(axis=1)
        fit = classifier(epsilon=4.0, classes=[0, 1, 2], n_samples=20_000, **public).fit(X, y)
        exact = LogisticRegression(C=1e6, tol=1e-6).fit(x, y).coef_[:, 0] / 21
        of_class = (fit.coef_[:, 0] - exact + exact.mean())[1] / math.sqrt(fit.covariance_[3, 3])
        far.append([of_counts, of_class])
    assert np.all(np.mean(np.square(far), axis=0) < [5.0, 1.2])


def test_several_classes_have_intervals_that_hold_and_contrasts_that_are_known():
    generator, truth = np.random.default_rng(0), np.array([[1.0, 0.0], [0.0, -1.0], [-1.0, 1.0]])
    X = generator.uniform(-1, 1, (20_000, 2)) * [10.0, 0.1] + [5.0, 0.0]
    logits = (X - [5.0, 0.0]) / [10.0, 0.1] @ truth.T + [0.0, 0.5, -0.5]
    y = (logits + generator.gumbel(size=logits.shape)).argmax(axis=1)
    fit = DPVariationalLogisticRegression(
        epsilon=1.0, bounds=[(-10, 20), (-1, 1)], classes=[0, 1, 2], n_samples=20_000,
    ).fit(X, y)  # fmt: skip
    expected = truth / [10.0, 0.1]
    deviations = np.sqrt(np.diag(fit.covariance_)).reshape(3, 3)[:, :2]
    assert np.all(np.abs(fit.coef_ - expected) < 6 * deviations)
    assert np.all(deviations < np.abs(expected).max(axis=0) / 5)
    np.testing.assert_allclose(fit.coef_.sum(axis=0), 0.0, atol=1e-6)
    together = fit.covariance_.reshape(3, 3, 3, 3).sum(axis=(0, 2))
    np.testing.assert_allclose(together, 0.0, atol=1e-9)
