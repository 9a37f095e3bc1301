"""The Langevin sampler: its law, its certificate, and the two held against exact densities."""

import itertools
import math

import numpy as np
import pytest
from bundles import bundled
from scipy import stats

from skdp.algorithms import langevin
from skdp.algorithms.tempered import TemperedPosterior
from skdp.engine.linear_sums import LinearClippedSum
from skdp.fitting.reading import Records
from skdp.fitting.streams import Streams
from skdp.models.likelihoods import Bernoulli, Categorical, HuberRegression
from skdp.privacy.budget import Budget
from skdp.privacy.gdp import epsilon_to_gdp, gdp_delta
from skdp.privacy.hidden_state import langevin_mu

X = np.array([[1.0], [0.6], [-0.8], [1.0], [-1.0], [0.9], [0.4], [-0.2]])
BUDGET = Budget(1.0, 1e-5)
Y = np.array([1, 0, 0, 1, 1, 1, 1, 0])[:, None].astype(float)


def posterior(n_features=1, likelihood=None, **facts):
    facts = {"fit_intercept": False, "data_norm": 1.0, "prior_scale": 1.5, **facts}
    return TemperedPosterior(likelihood or Bernoulli(), n_features, **facts)


def configured(step_size, n_epochs, n_chains, n_batches=1, **facts):
    return langevin.LangevinConfig(
        posterior(**facts), 0.9, len(X), n_chains, step_size, n_epochs, n_batches
    )


def law(grid, power=0.9, prior_scale=1.5, rows=slice(None)):
    """Density of the target on a grid."""
    log_p = -Bernoulli().loss(grid[:, None, None] * X[None, rows], Y[None, rows]).sum(1)
    density = np.exp(power * log_p - grid**2 / (2 * prior_scale**2))
    return density / density.sum()


GRID = np.linspace(-8, 8, 16_001)
RELATIONS = "zero_out", "add_or_remove_one", "replace_one"


@pytest.mark.thorough
def test_bias_against_quadrature_vanishes_with_the_step():
    """6000 chains each: mean and deviation of the last state, to the chains' own error."""
    density = law(GRID)
    mean = density @ GRID
    deviation = math.sqrt(density @ GRID**2 - mean**2)
    longest = 2 / (2 / 1.5**2 + 0.9 * posterior().curvature(len(X)))
    biases = []
    for fraction in (0.9, 0.3, 0.03):
        h = fraction * longest
        config = configured(h, math.ceil(12 / (h / 1.5**2)), 20_000)
        draws = config.run((X, Y), Streams(b"bias")).ravel()
        biases.append(draws.std() / deviation - 1)
    assert abs(draws.mean() - mean) < 5 * deviation / math.sqrt(len(draws))
    error = 5 / math.sqrt(2 * 6000)
    assert biases[0] > 3 * error  # long steps widen the law visibly
    assert biases[0] > biases[1] > biases[2] - error / 5
    assert abs(biases[2]) < error


@pytest.mark.parametrize("n_batches", [1, 2, 4])
def test_short_steps_sample_the_posterior_and_not_the_neighbours(n_batches):
    """Kolmogorov–Smirnov at level 1e-3."""
    h = 0.02 / (1 / 1.5**2 + 0.9 * posterior().curvature(len(X)))
    config = configured(h, math.ceil(3 / (n_batches * h / 1.5**2)), 10_000, n_batches)
    draws = config.run((X, Y), Streams(b"law")).ravel()

    def p_value(**other):
        return stats.kstest(
            draws, lambda t: np.interp(t, GRID, np.cumsum(law(GRID, **other)))
        ).pvalue

    assert p_value() > 1e-3
    assert p_value(rows=slice(1, None)) < 1e-3
    assert p_value(power=0.7) < 1e-3


def test_projected_chain_stays_in_the_ball_and_fills_it():
    config = configured(0.05, 60, 3000, theta_norm=0.5, n_features=1)
    draws = config.run((X, Y), Streams(b"ball")).ravel()
    assert np.abs(draws).max() <= 0.5
    assert np.mean(draws > 0) > 0.5 > np.mean(draws > 0.25)


def test_price_is_the_closed_form_of_the_certificate():
    likelihoods = (Bernoulli(), 2), (Categorical(4), 4)
    for relation, given, intercept in itertools.product(RELATIONS, likelihoods, (False, True)):
        (likelihood, classes), facts = given, {"fit_intercept": intercept, "data_norm": 2.0}
        facts["neighboring_relation"] = relation
        target = posterior(3, likelihood, **facts)
        config = langevin.LangevinConfig(target, 0.3, 500, 4, 2e-3, 700)
        # In units with T = 1/ρ: the potential over ρ, the step times ρ.
        one = langevin_mu(
            step_size=2e-3 * 0.3,
            n_steps=700,
            prior_precision=target.prior_precision / 0.3,
            temperature=1 / 0.3,
            n_samples=500,
            n_classes=classes,
            **facts,
        )
        doubled = 2 if relation == "replace_one" else 1
        rounding = target.sensitivity / (doubled * likelihood.residual_bound * target.row_bound)
        assert 1 < rounding < 1.001
        assert config.mu == pytest.approx(2 * one * rounding, rel=1e-9)
        assert config.mu < 2 * 0.3 * target.sensitivity * target.prior_scale


def test_plan_spends_the_budget_and_no_more():
    for ε, k, n, relation in itertools.product((0.1, 1.0, 10.0), (1, 7), (50, 20_000), RELATIONS):
        target, mu = posterior(5, neighboring_relation=relation), epsilon_to_gdp(ε, 1e-5)
        config = langevin.configure(target, Budget(ε, 1e-5, relation), n_rows=n, n_chains=k)
        assert config.mu <= mu
        # One pass more or less is a jump when there are only a few of them.
        assert config.likelihood_power == 1.0 or config.mu > mu * (1 - 3 / config.n_epochs)
        assert config.n_batches == 1 or relation != "add_or_remove_one"


def test_plan_depends_on_the_shape_of_the_problem_alone():
    target = posterior(5)
    again = langevin.configure(target, BUDGET, n_rows=5000, n_chains=3)
    assert langevin.configure(target, BUDGET, n_rows=5000, n_chains=3) == again
    assert again.n_batches > 1
    full = langevin.configure(target, BUDGET, n_rows=5000, n_chains=3, batch_size=5000)
    # Batches cost power, a few per cent of it, and save passes.
    assert 0.95 * full.likelihood_power < again.likelihood_power < full.likelihood_power
    assert again.n_epochs < full.n_epochs / 2


def test_given_numbers_are_taken():
    config = langevin.configure(
        posterior(5), BUDGET, n_rows=1000, n_chains=1, step_size=1e-3, n_epochs=17, batch_size=100
    )
    assert (config.step_size, config.n_epochs, config.n_batches) == (1e-3, 17, 10)
    config = langevin.configure(
        posterior(5), Budget(None, 1e-5, given=0.25), n_rows=1000, n_chains=1
    )
    assert config.likelihood_power == 0.25


@pytest.mark.parametrize("likelihood", [Bernoulli(), Categorical(3), HuberRegression(0.5, 1.0)])
def test_a_step_beyond_the_limit_of_the_certificate_is_refused(likelihood):
    target = posterior(2, likelihood)
    longest = 2 / (2 * target.prior_precision + 0.5 * target.curvature(100))
    langevin.LangevinConfig(target, 0.5, 100, 1, longest * (1 - 1e-9), 10)
    with pytest.raises(ValueError, match="step_size"):
        langevin.LangevinConfig(target, 0.5, 100, 1, longest * (1 + 1e-9), 10)
    # What the limit protects: beyond it a step along the stiffest direction expands.
    with pytest.raises(ValueError, match="at most"):
        langevin.configure(target, BUDGET, n_rows=100, n_chains=1, step_size=10.0)


# --- the certificate against exact densities ------------------------------------------------------


def last_state_density(config, rows, targets, axis):
    """Law of the last state of the chain as it is configured, propagated on a grid."""
    width = axis[1] - axis[0]
    h, λ = config.step_size, config.posterior.prior_precision
    density = stats.norm.pdf(axis, scale=config.posterior.prior_scale)  # the start
    density /= density.sum()
    size = config.batch_size
    kernels = []
    for b in range(config.n_batches):
        part = slice(b * size, (b + 1) * size)
        logits = axis[:, None, None] * rows[None, part]
        ascent = (Bernoulli().residual(logits, targets[None, part]) * rows[None, part]).sum((1, 2))
        moved = axis + h * (config.n_batches * config.likelihood_power * ascent - λ * axis)
        z = (axis[:, None] - moved[None, :]) / math.sqrt(2 * h)
        kernels.append(np.exp(-(z**2) / 2) * width / math.sqrt(4 * math.pi * h))
    for _ in range(config.n_epochs):
        for kernel in kernels:
            density = kernel @ density
    assert density.sum() == pytest.approx(1.0, abs=1e-5)
    return density


def worst_ratio(p, q, mu):
    """Largest δ(ε) of the pair over δ(ε) of the promise, both ways, where either counts."""
    worst = 0.0
    for ε in np.linspace(0, 4 * mu, 25):
        promised = gdp_delta(mu, ε)
        if promised > 1e-7:
            excess = max(np.maximum(a - math.exp(ε) * b, 0).sum() for a, b in ((p, q), (q, p)))
            worst = max(worst, excess / promised)
    return worst


@bundled("n_batches", [1, 2, 4])
@bundled("passes", [1, 3, 25])
@bundled("fraction", [0.15, 0.9])
@bundled("relation", ["zero_out", "replace_one"])
def test_exact_densities_never_violate_the_certificate(n_batches, passes, fraction, relation):
    """The record of the last batch, seen last, pulls as hard as it can."""
    prior_scale = 3.0
    target = posterior(prior_scale=prior_scale, neighboring_relation=relation)
    power = 0.3
    longest = 2 / (2 * target.prior_precision + power * target.curvature(len(X)))
    config = langevin.LangevinConfig(
        target, power, len(X), 1, fraction * longest, passes, n_batches
    )
    axis = np.linspace(-20, 20, 801)  # a kernel's deviation is some cells
    rows, targets = np.ones_like(X), np.zeros_like(Y)  # these pull to where the loss is steepest
    targets[-1] = 1.0
    other_rows, other_targets = rows.copy(), targets.copy()
    if relation == "zero_out":
        other_rows[-1] = 0.0
    else:
        other_targets[-1] = 0.0
    p = last_state_density(config, rows, targets, axis)
    q = last_state_density(config, other_rows, other_targets, axis)
    assert worst_ratio(p, q, config.mu) <= 1 + 1e-6
    if passes == 25:  # else the start, which the certificate does not count on, covers the record
        assert worst_ratio(p, q, config.mu / 3) > 1


# --- persons, who have weights ------------------------------------------------------------------

PERSONAL = {"neighboring_relation": "zero_out_group", "data_norm": 2.0}


def of_persons(*persons):
    """Records of persons, each a pair (X, targets)."""
    starts = np.cumsum([0] + [len(X) for X, _ in persons])
    X = np.concatenate([np.empty((0, 2))] + [X for X, _ in persons])
    targets = np.concatenate([np.empty((0, 1))] + [y for _, y in persons])
    return Records(X, targets, starts)


def ascent(p, theta, records):
    """Σ of the computed scores at some θ, (k·K, D)."""
    config = langevin.LangevinConfig(p, 1.0, len(records.X) + 1, 1, 1e-9, 1, 1, 10**6)
    (of_batch,) = langevin._sums(config, records, Streams()("partition"))
    batch = of_batch(lambda batch: batch)
    score = LinearClippedSum(langevin._chainwise(p, 1), clip_norm=math.inf)
    return score(theta, batch)


@pytest.mark.parametrize("k0", [0.5, 1.0, 5.0, 7.3])
@pytest.mark.parametrize("likelihood", [Bernoulli(), HuberRegression(0.5, 0.7)])
def test_no_person_moves_the_drift_further_than_stated(k0, likelihood):
    """Adversarial ones: half of the table, 1e300, NaN, all rows alike; the worst attain it."""
    p = posterior(2, likelihood, of_person=k0, **PERSONAL)
    coin = np.random.default_rng(0)
    rest = [(coin.normal(size=(k, 2)), coin.integers(0, 2, (k, 1)) * 1.0) for k in (1, 4, 30)]
    theta, farthest = np.array([[0.3, -0.2]]), 0.0
    without = ascent(p, theta, of_persons(*rest))
    for k in (1, 2, 5, 6, 35, 1000):
        for value in (1.0, 1e300, -1e300, np.nan, np.inf, 5e-324):
            for target in (0.0, 1.0, 1e300 if isinstance(likelihood, HuberRegression) else 1.0):
                person = np.full((k, 2), value), np.full((k, 1), target)
                moved = ascent(p, theta, of_persons(*rest, person)) - without
                farthest = max(farthest, float(np.linalg.norm(moved)))
    assert farthest <= p.sensitivity
    assert farthest > 0.45 * p.sensitivity  # |residual| is at least ½ of its bound for a label
    another = posterior(
        2, likelihood, of_person=k0, **{**PERSONAL, "neighboring_relation": "replace_one_group"}
    )
    assert another.sensitivity == 2 * p.sensitivity


def test_a_step_contracts_for_persons_with_any_number_of_rows():
    """The curvature at θ = 0, where that of a logit is largest: N persons reach the bound."""
    p = posterior(2, of_person=3.0, **PERSONAL)
    for k in (1, 2, 3, 4, 50):
        person = np.full((k, 2), math.sqrt(2)), np.ones((k, 1))
        records = of_persons(*[person] * 6)
        rows = records.X
        weights = p.row_weights(records.starts)
        largest = np.linalg.eigvalsh(0.25 * (rows.T * weights) @ rows)[-1]
        longest = 2 / (2 * p.prior_precision + p.curvature(3.0 * 6)) * (1 - 1e-9)
        langevin.LangevinConfig(p, 1.0, 7, 1, longest, 1, 1, 6)
        with pytest.raises(ValueError, match="step_size"):
            langevin.LangevinConfig(p, 1.0, 7, 1, longest * (1 + 1e-6), 1, 1, 6)
        assert longest <= 2 / (2 * p.prior_precision + largest)
    assert largest == pytest.approx(p.curvature(3.0 * 6), rel=1e-12)


@pytest.mark.parametrize("n_persons", [None, 6])
def test_a_chain_says_how_many_persons_it_covers_or_has_none(n_persons):
    p = posterior(2, of_person=None if n_persons else 3.0, **PERSONAL)
    with pytest.raises(ValueError, match="n_persons"):
        langevin.LangevinConfig(p, 1.0, 7, 1, 1e-9, 1, 1, n_persons)


def test_chains_on_persons_take_full_batches():
    p = posterior(2, of_person=3.0, **PERSONAL)
    with pytest.raises(ValueError, match="n_batches"):
        langevin.LangevinConfig(p, 1.0, 7, 1, 1e-9, 1, 2, 6)
    made = langevin.configure(p, BUDGET, n_rows=30_000, n_chains=1, n_persons=10_000)
    assert made.n_batches == 1
    assert "both neighbours have at most 10000 persons" in made.sampling
    assert made.step_size <= 2 / (
        2 * p.prior_precision + made.likelihood_power * p.curvature(30_000)
    )


def test_weighted_rows_are_those_of_the_stated_posterior():
    """A person with 4 rows at k₀ = 2 is one with 2: chains at the same bits, to rounding."""
    p = posterior(2, of_person=2.0, **PERSONAL)
    row, other = (np.array([[0.5, -1.0]]), np.ones((1, 1))), (np.eye(2), np.zeros((2, 1)))

    def final(copies):
        records = of_persons((np.repeat(row[0], copies, 0), np.repeat(row[1], copies, 0)), other)
        config = langevin.LangevinConfig(p, 0.9, 4, 3, 0.05, 20, 1, 2)
        return config.run(records, Streams(b"weights"))

    np.testing.assert_allclose(final(4), final(2), rtol=1e-12)
    assert np.abs(final(1) - final(2)).max() > 1e-3
