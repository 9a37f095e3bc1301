"""Exact posterior draws: their law against quadrature, and what they cost."""

import functools
import itertools
import math

import numpy as np
import pytest
from scipy import stats

from skdp.algorithms import ops
from skdp.algorithms.tempered import TemperedPosterior
from skdp.fitting.streams import Streams
from skdp.models.likelihoods import Bernoulli, Categorical, HuberRegression
from skdp.privacy import epsilon_of_event

POWER = 0.8
LINE = np.array([[1.0], [0.5], [-0.7], [1.0], [0.9], [1.0]])
PLANE = np.array([[0.9, 0.1], [0.2, -0.8], [0.6, 0.6], [-0.5, 0.7], [1.0, 0.0]])
CASES = {
    # name: rows, targets, likelihood, prior scale, D; each also with one record more.
    "line": (LINE, np.array([1, 0, 1, 1, 1, 1])[:, None], Bernoulli(), 1.5, 3.0),
    "one record": (np.ones((1, 1)), np.ones((1, 1)), Bernoulli(), 10.0, 30.0),
    "line, at the wall": (LINE, np.array([1, 1, 0, 1, 1, 1])[:, None], Bernoulli(), 3.0, 0.7),
    "plane": (PLANE, np.array([1, 0, 1, 1, 1])[:, None], Bernoulli(), 2.0, 2.5),
    "plane, at the wall": (PLANE, np.array([1, 0, 1, 0, 1])[:, None], Bernoulli(), 2.0, 0.8),
    "three classes on a line": (LINE, Categorical(3).targets(np.array([0, 2, 1, 0, 0, 0])),
                                Categorical(3), 1.0, 2.0),
    "regression": (LINE, np.array([0.8, 0.1, -0.9, 0.7, 1.0, 0.6])[:, None],
                   HuberRegression(0.4, 0.5, 1.0), 1.0, 2.0),
}  # fmt: skip


def config(name, n_samples=1, power=POWER):
    X, _, likelihood, τ, D = CASES[name]
    posterior = TemperedPosterior(likelihood, X.shape[1], False, 1.0, τ, D)
    return ops.ExactConfig(posterior, power, n_samples, len(X))


@functools.cache
def draw(name, n_samples, seed=b"laws", without=0):
    X, targets, *_ = CASES[name]
    keep = slice(without, None)
    return (
        config(name, n_samples)
        .run((X[keep], targets[keep].astype(float)), Streams(seed))
        .reshape(n_samples, -1)
    )


@functools.cache
def marginals(name, power=POWER):
    """Grid and cumulative distribution of each coordinate of π, by the trapezoidal rule.

    Twice as fine a grid moves the distribution on a line by 1e-6 and in space by 3e-4; a test at
    100 000 draws starts to see 6e-3.
    """
    X, targets, likelihood, τ, D = CASES[name]
    p = likelihood.n_outputs * X.shape[1]
    m = {1: 2001, 2: 1201, 3: 81}[p]
    grid = np.linspace(-D, D, m)
    density = np.zeros([m] * p)
    # A slab at a time, for memory.
    rest = np.array(list(itertools.product(grid, repeat=p - 1)))
    for i, first in enumerate(grid):
        θ = np.concatenate([np.full((len(rest), 1), first), rest], axis=1)
        logits = np.einsum("nd,skd->snk", X, θ.reshape(len(θ), likelihood.n_outputs, -1))
        U = power * likelihood.loss(logits, targets).sum(1) + (θ**2).sum(1) / (2 * τ**2)
        inside = (θ**2).sum(1) <= D * D
        density[i] = np.where(inside, np.exp(-U), 0.0).reshape(density.shape[1:])
    found = []
    for axis in range(p):
        others = tuple(a for a in range(p) if a != axis)
        marginal = density.sum(axis=others)
        mass = np.concatenate([[0], np.cumsum((marginal[1:] + marginal[:-1]) / 2)])
        found.append((grid, mass / mass[-1]))
    return found


def least_p_value(draws, name, **law):
    return min(
        stats.kstest(column, lambda t, g=g, F=F: np.interp(t, g, F)).pvalue
        for column, (g, F) in zip(draws.T, marginals(name, **law), strict=True)
    )


@pytest.mark.quick(2)
@pytest.mark.parametrize("name", CASES)
def test_rejection_draws_have_the_law_of_the_posterior(name, figure):
    # The wall of a disc makes the trapezoidal rule err by about a cell, 1e-3 at 1201 points.
    draws = draw(name, 100_000 if "plane" not in name and "three" not in name else 20_000)
    p_value = least_p_value(draws, name)
    figure(f"{name}: KS p = {p_value:.2f} at {len(draws)} draws")
    assert p_value > 1e-3


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", CASES)
def test_the_test_tells_the_neighbours_posterior_apart(name):
    n = 20_000 if "plane" in name else 60_000
    assert least_p_value(draw(name, n, without=1), name) < 1e-3
    assert least_p_value(draw(name, n), name, power=0.9 * POWER) < 1e-3


NEAR_WALLS = [(10, 0.1, 0.03), (10, 0.1, 5.0), (31, 0.15, 0.03), (31, 0.15, 5.0)]


@pytest.mark.parametrize(("p", "D", "τ"), NEAR_WALLS)
def test_a_posterior_that_presses_against_a_near_wall_is_drawn_from(p, D, τ):
    """Once these hung: proposals that are only cut off at the wall all miss the ball."""
    X = np.ones((4000, p)) / math.sqrt(p)
    target = TemperedPosterior(Bernoulli(), p, False, 1.0, τ, D)
    config = ops.ExactConfig(target, 1.0, 1, 4000)
    (θ,) = config.run((X, np.ones((4000, 1))), Streams())
    assert 0.5 * D < np.linalg.norm(θ) <= D


def test_draws_at_a_wall_far_from_the_mode_are_fine_grained():
    """1 − θ is of the order 1/|∇L| and on a grid finer than that, however wide the prior is."""
    X, targets = np.ones((2000, 1)), np.ones((2000, 1))
    target = TemperedPosterior(Bernoulli(), 1, False, 1.0, 1e6, 1.0)
    config = ops.ExactConfig(target, 1.0, 200, 2000)
    gap = 1 - config.run((X, targets), Streams()).ravel()
    assert len(np.unique(gap)) > 120
    force = 2000 / (1 + math.e)  # at the wall
    assert stats.kstest(gap * force, "expon").pvalue > 1e-3


@pytest.mark.parametrize("p", [9, 19])
def test_draws_of_many_coordinates_have_the_law_of_the_posterior(p):
    """Rows along one direction: a law on that line, and the prior across it."""
    u = np.ones(p) / math.sqrt(p)
    X, targets, τ, D = np.outer(LINE.ravel(), u), CASES["line"][1].astype(float), 1.5, 30.0
    target = TemperedPosterior(Bernoulli(), p, False, 1.0, τ, D)
    draws = ops.ExactConfig(target, POWER, 4000, 6).run((X, targets), Streams(b"many"))[:, 0]
    grid = np.linspace(-12, 12, 4001)
    U = POWER * Bernoulli().loss(grid[:, None, None] * LINE[None], targets[None]).sum(1)
    mass = np.cumsum(np.exp(-U - grid**2 / (2 * τ**2)))
    along = draws @ u
    assert stats.kstest(along, lambda t: np.interp(t, grid, mass / mass[-1])).pvalue > 1e-4
    assert stats.kstest(along, "norm", args=(0, τ)).pvalue < 1e-4
    across = ((draws - np.outer(along, u)) ** 2).sum(axis=1) / τ**2
    assert stats.kstest(across, "chi2", args=(p - 1,)).pvalue > 1e-4


def test_draws_are_independent():
    draws = draw("line", 50_000).ravel()
    lag = np.corrcoef(draws[1:], draws[:-1])[0, 1]
    assert abs(lag) < stats.norm.isf(1e-6) / math.sqrt(len(draws))
    # The density is nowhere above 1: two draws fall together with a probability below the width.
    repeats, most = (draws[1:] == draws[:-1]).sum(), len(draws) * config("line").grid_width
    assert repeats < most + 5 * math.sqrt(most)


def test_the_largest_power_that_a_budget_affords_is_found():
    posterior = config("plane").posterior
    for eta in (1e-6, 0.3, 0.7):
        power = ops.affordable_power(posterior, eta)
        assert eta * (1 - 1e-9) < config("plane", power=power).eta <= eta
    event = config("plane", n_samples=3).event()
    assert epsilon_of_event(event, 0.0) == pytest.approx(3 * config("plane").eta)


def test_roundings_of_weights_are_paid_for():
    """Two roundings a shell, three a coordinate, of 2^−100 each; a law off by ξ moves ratios 4ξ."""
    n_parameters = 10**6
    assert 4 * (2 + 3 * n_parameters) * 2.0**-100 < ops.ROUNDED
    assert config("line").eta == POWER * config("line").posterior.range + ops.ROUNDED


def test_power_beats_wangs_rule_twice_and_more():
    """Wang et al. (2015) pay 4B with B = log(1 + e^RD) for what costs RD (zero-out) or 2RD."""
    relations = ("zero_out", 4.0), ("replace_one", 2.0)
    for R, D, given in itertools.product((0.5, 1.0, 3.0), (0.5, 2.0, 10.0), relations):
        relation, least = given
        posterior = TemperedPosterior(Bernoulli(), 3, False, R, 1.0, D, relation)
        for ε in (1e-3, 0.1, 0.2):
            ours = ops.affordable_power(posterior, ε)
            wang = ε / (4 * np.logaddexp(0.0, R * D))
            assert ours >= min(1.0, least * wang) * (1 - 1e-12)
            assert ours == pytest.approx(min(1.0, ε * least / (4 * R * D)))


def test_a_domain_without_end_is_refused():
    posterior = TemperedPosterior(Bernoulli(), 3, True, 1.0, 1.0)
    with pytest.raises(ValueError, match="theta_norm=inf"):
        ops.ExactConfig(posterior, 0.5, 1, 10)
