"""Exact posterior draws: their law against quadrature, and what they cost."""

import functools
import itertools
import math

import numpy as np
import pytest
from scipy import stats
from scipy.special import logsumexp

from skdp._random import Streams
from skdp.algorithms import exact_draws, ops
from skdp.algorithms.tempered import TemperedPosterior
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


def config(name, sampler, n_samples=1, power=POWER):
    X, _, likelihood, τ, D = CASES[name]
    posterior = TemperedPosterior(likelihood, X.shape[1], False, 1.0, τ, D)
    return ops.ExactConfig(posterior, power, n_samples, sampler, len(X))


@functools.cache
def draw(name, sampler, n_samples, seed=b"laws", without=0):
    X, targets, *_ = CASES[name]
    keep = slice(without, None)
    return ops.sample(
        config(name, sampler, n_samples), X[keep], targets[keep].astype(float), Streams(seed)
    ).reshape(n_samples, -1)


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
        U = -power * likelihood.log_likelihood(logits, targets).sum(1) + (θ**2).sum(1) / (2 * τ**2)
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


@pytest.mark.parametrize("name", CASES)
def test_rejection_draws_have_the_law_of_the_posterior(name, figure):
    # The wall of a disc makes the trapezoidal rule err by about a cell, 1e-3 at 1201 points.
    draws = draw(
        name, "rejection", 100_000 if "plane" not in name and "three" not in name else 20_000
    )
    p_value = least_p_value(draws, name)
    figure(f"{name}: KS p = {p_value:.2f} at {len(draws)} draws")
    assert p_value > 1e-3


@pytest.mark.parametrize("name", CASES)
def test_the_test_tells_the_neighbours_posterior_apart(name):
    draws = draw(name, "rejection", 100_000, without=1)
    assert least_p_value(draws, name) < 1e-3
    draws = draw(name, "rejection", 100_000)
    assert least_p_value(draws, name, power=0.9 * POWER) < 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("name", ["plane", "plane, at the wall"])
def test_rejection_draws_in_the_plane_at_full_size(name):
    assert least_p_value(draw(name, "rejection", 100_000), name) > 1e-3


MANY_ROUNDS = ["line, at the wall", "plane, at the wall", "three classes on a line", "regression"]


@pytest.mark.parametrize("name", CASES)
def test_proximal_draws_have_the_law_of_the_posterior(name, monkeypatch):
    monkeypatch.setattr(exact_draws, "_SHARP_TRIALS", 0)  # rounds alone
    n_samples = 100 if name in MANY_ROUNDS else 300
    assert least_p_value(draw(name, "proximal", n_samples, b"rounds"), name) > 1e-3


@pytest.mark.slow  # ten seconds each, of which the test above takes a third
@pytest.mark.parametrize("name", MANY_ROUNDS)
def test_proximal_draws_of_many_rounds_have_the_law_of_the_posterior(name, monkeypatch):
    monkeypatch.setattr(exact_draws, "_SHARP_TRIALS", 0)
    assert least_p_value(draw(name, "proximal", 300, b"many rounds"), name) > 1e-3


@pytest.mark.parametrize("name", ["line", "one record", "plane"])
def test_draws_by_the_sharper_bound_have_the_law_of_the_posterior(name, monkeypatch):
    monkeypatch.setattr(exact_draws, "_restricted", None)  # no round is ever taken
    draws = draw(name, "proximal", 10_000, b"sharper")
    assert least_p_value(draws, name) > 1e-3
    assert least_p_value(draws, name, power=0.8 * POWER) < 1e-3


def test_the_sharper_bound_is_one():
    coin = np.random.default_rng(0)
    for p, n, τ in ((1, 5, 3.0), (4, 50, 2.0), (20, 30, 5.0)):
        X = coin.uniform(-1, 1, (n, p)) / math.sqrt(p)
        y = coin.integers(2, size=(n, 1)).astype(float)
        posterior = TemperedPosterior(Bernoulli(), p, False, 1.0, τ, 30.0)
        potential = exact_draws.Potential(posterior, 0.7, X, y)
        λ, m = posterior.prior_precision, potential.minimum
        H = λ * np.eye(p) + potential.curvature(m)[0]
        Λ = potential.longest_row(H)
        root = np.linalg.cholesky(H)
        for r in (0.01, 1.0, 5.0, 40.0):
            u = coin.standard_normal((500, p))
            v = r * np.linalg.solve(root.T, (u / np.linalg.norm(u, axis=1)[:, None]).T).T
            rise = potential.values(m + v) - potential(m)[0]
            rise += λ / 2 * (((m + v) ** 2).sum(1) - m @ m)
            s = (math.exp(-Λ * r) + Λ * r - 1) / Λ**2
            assert rise.min() >= s * (1 - 1e-6) - 1e-7


NEAR_WALLS = [
    ("rejection", 10, 0.1, 0.03),
    ("rejection", 10, 0.1, 5.0),
    ("rejection", 31, 0.15, 0.03),
    ("proximal", 10, 0.1, 0.03),
    ("proximal", 31, 0.15, 0.03),
]


@pytest.mark.parametrize(("sampler", "p", "D", "τ"), NEAR_WALLS)
def test_a_posterior_that_presses_against_a_near_wall_is_drawn_from(sampler, p, D, τ):
    """Once these hung: proposals that are only cut off at the wall all miss the ball."""
    X = np.ones((4000, p)) / math.sqrt(p)
    target = TemperedPosterior(Bernoulli(), p, False, 1.0, τ, D)
    ρ = 1.0 if sampler == "proximal" else min(1.0, 12 * 4 / (4000 * τ**2))
    config = ops.ExactConfig(target, ρ, 1, sampler, 4000)
    (θ,) = ops.sample(config, X, np.ones((4000, 1)), Streams())
    assert 0.5 * D < np.linalg.norm(θ) <= D


def test_draws_at_a_wall_far_from_the_mode_are_fine_grained():
    """1 − θ is of the order 1/|∇L| and on a grid fine beside that, however wide the prior is."""
    X, targets = np.ones((2000, 1)), np.ones((2000, 1))
    target = TemperedPosterior(Bernoulli(), 1, False, 1.0, 1e6, 1.0)
    config = ops.ExactConfig(target, 1.0, 200, "rejection", 2000)
    gap = 1 - ops.sample(config, X, targets, Streams()).ravel()
    assert len(np.unique(gap)) > 190
    force = 2000 / (1 + math.e)  # at the wall
    assert stats.kstest(gap * force, "expon").pvalue > 1e-3


def test_draws_are_independent():
    draws = draw("line", "rejection", 50_000).ravel()
    lag = np.corrcoef(draws[1:], draws[:-1])[0, 1]
    assert abs(lag) < stats.norm.isf(1e-6) / math.sqrt(len(draws))
    # Of 5e4 draws in ~1e7 cells about 1e2 pairs fall together; draws that were reused would all.
    assert len(np.unique(draws)) > 0.98 * len(draws)


def test_rounds_contract_surely():
    """The distance of the proximal sampler from π: two chains with common coins, from both ends.

    In one dimension the draw of θ given y by inversion couples monotonically; its shift is at most
    that of y over 1 + gλ, whatever the data term is, wall or no wall.
    """
    X, targets, likelihood, τ, D = CASES["line, at the wall"]
    λ, g = τ**-2.0, 0.3
    grid = np.linspace(-D, D, 40_001)
    U = -POWER * likelihood.log_likelihood(
        grid[:, None, None] * X[None], targets[None]
    ).sum(1) + λ / 2 * grid**2  # fmt: skip

    def quantiles(y, u):
        weight = np.exp(-(U + (grid - y) ** 2 / (2 * g)) + U.min())
        mass = np.concatenate([[0.0], np.cumsum((weight[1:] + weight[:-1]) / 2)])
        return np.interp(u, mass / mass[-1], grid)

    u = np.linspace(1e-4, 1 - 1e-4, 1001)
    for y, shift in [(-2.0, 0.5), (0.0, 0.1), (0.5, 2.0), (3.0, 1.0)]:
        moved = np.abs(quantiles(y + shift, u) - quantiles(y, u)).max()
        assert moved <= shift / (1 + g * λ) * (1 + 1e-6) + 1e-8


@pytest.mark.parametrize("sampler", ops.SAMPLERS)
def test_the_ratio_of_neighbours_densities_stays_within_the_promise(sampler):
    """Exact on a grid: log π_D/π_D' within ±η for records that pull either way."""
    X, targets, likelihood, τ, D = CASES["line"]
    grid = np.linspace(-D, D, 4001)[:, None, None]

    def log_density(X, targets):
        U = -POWER * likelihood.log_likelihood(grid * X[None], targets[None]).sum(1)
        U = U + grid[:, 0, 0] ** 2 / (2 * τ**2)
        return -U - logsumexp(-U)

    base = log_density(X, targets)
    η = config("line", sampler).eta
    worst = 0.0
    for x in (-1.0, 1.0, 0.3):
        for y in (0, 1):
            more = log_density(np.vstack([X, [[x]]]), np.vstack([targets, [[y]]]))
            worst = max(worst, np.abs(more - base).max())
    assert 0.5 * η < worst <= η


def test_noise_of_the_proximal_sampler_is_paid_for_and_small():
    exact, noisy = config("plane", "rejection"), config("plane", "proximal")
    assert noisy.eta * (1 - ops.NOISE_SHARE) == pytest.approx(exact.eta)
    assert exact.eta + 4 * noisy.epsilon_of_noise == pytest.approx(noisy.eta)
    eta = 0.3
    for sampler in ops.SAMPLERS:
        power = ops.affordable_power(exact.posterior, eta, sampler)
        made = config("plane", sampler, power=power)
        assert eta * (1 - 1e-12) < made.eta <= eta
    event = config("plane", "rejection", n_samples=3).event()
    assert epsilon_of_event(event, 0.0) == pytest.approx(3 * exact.eta)


def test_power_beats_wangs_rule_twice_and_more():
    """Wang et al. (2015) pay 4B with B = log(1 + e^RD) for what costs RD (zero-out) or 2RD."""
    for R in (0.5, 1.0, 3.0):
        for D in (0.5, 2.0, 10.0):
            for relation, least in (("zero_out", 4.0), ("replace_one", 2.0)):
                posterior = TemperedPosterior(Bernoulli(), 3, False, R, 1.0, D, relation)
                for ε in (1e-3, 0.1, 0.2):
                    ours = ops.affordable_power(posterior, ε, "rejection")
                    wang = ε / (4 * np.logaddexp(0.0, R * D))
                    assert ours >= min(1.0, least * wang) * (1 - 1e-12)
                    assert ours == pytest.approx(min(1.0, ε * least / (4 * R * D)))


def test_a_domain_without_end_is_refused():
    posterior = TemperedPosterior(Bernoulli(), 3, True, 1.0, 1.0)
    with pytest.raises(ValueError, match="theta_norm=inf"):
        ops.ExactConfig(posterior, 0.5, 1, "rejection", 10)


def test_default_sampler_rejects_only_where_few_trials_are_needed():
    def chosen(power, n):
        posterior = TemperedPosterior(Bernoulli(), 4, False, 1.0, 2.0, 5.0)
        return ops.default_sampler(posterior, power, n)

    assert chosen(0.01, 1000) == "rejection"
    assert chosen(0.1, 1000) == "proximal"
