"""The posterior of one logit against a slow one, and the scales of its prior against grids."""

import math
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
from reference import noise_aware_logit as slow
from scipy.special import expit
from scipy.stats import chi2, kstest

from skdp import DPVariationalLogisticRegression, DPVariationalPoissonRegression
from skdp.algorithms.noise_aware_glm import NoiseAwareConfig
from skdp.algorithms.noise_aware_logit import NoiseAwareLogit
from skdp.algorithms.parts import logit_posterior
from skdp.algorithms.parts.gaussian_runs import run_and_count
from skdp.algorithms.parts.logit_posterior import Given, pooled, scales_by_evidence
from skdp.algorithms.parts.prior_scales import HYPERPRIOR_SCALE, PriorScales
from skdp.engine import release_hook
from skdp.engine.linear_sums import packed
from skdp.estimators._bounds import blocks_of_labels
from skdp.fitting.plan import PublicFacts
from skdp.fitting.streams import Streams
from skdp.models.likelihoods import Bernoulli, Poisson
from skdp.privacy.noise_calibration import calibrate_schedule
from skdp.rows.records import LinearRows

SPREAD = np.array([0.35, 0.2])


class Cell:
    """Normal rows of norm about 1 at most, with labels from the model, and a run on them."""

    def __init__(self, n, epsilon, intercept, seed):
        d = 1 if intercept else 2
        self.X = np.random.default_rng(seed).normal(size=(n, d)) * SPREAD[:d]
        self.rows = np.column_stack([self.X, np.ones(n)]) if intercept else self.X
        p = expit(self.rows @ ([3.0, 0.5] if intercept else [3.0, -1.0]))
        self.y = (np.random.default_rng(seed + 1).random(n) < p).astype(float)
        config = NoiseAwareConfig(
            Bernoulli(), n, d, intercept, data_norm=1.0, n_steps=20, noise_multiplier=1.0,
            clip_norm=math.sqrt(1.0 + intercept),
        )  # fmt: skip
        sigma = 1e-4
        if epsilon < math.inf:
            sigma = calibrate_schedule(config.noise_multipliers, epsilon=epsilon, delta=1e-5)
        self.config = replace(config, noise_multiplier=sigma)
        self.update = NoiseAwareLogit(self.config)
        self.blocks, self.R = (0, 1) if intercept else (0, 0), self.config.row_bound
        self.key = b"cell %d" % seed

    def run(self):
        records = LinearRows(
            self.X, self.y[:, None], data_norm=1.0, fit_intercept=self.config.fit_intercept
        )
        streams = Streams(self.key)
        state, _ = run_and_count(self.update.plan, records, self.update, streams, iter)
        return state

    def run_with_known_moments(self, rng):
        """Only gradients have noise, and the slope tells nothing that was not believed."""
        update, u = self.update, self.rows / self.R
        update.moments_scale = 1e-6
        state = update.update(update.init(), packed(u.T @ u) * self.R**2, 0)
        for step in range(1, self.config.sampling.n_steps - 1):
            if self.config.releases[step] == "slope":
                released = packed(state.rows.slope(state.mean)[0]) * self.R**2
            else:
                g = (self.y - expit(u @ state.mean[0])) @ u
                released = g + math.sqrt(update.noise_variance) * rng.standard_normal(2)
                released = released[None] * self.R
            state = update.update(state, released, step)
        return state

    def fast(self, state):
        """Mean and deviations in units of the bound of the rows."""
        q = self.update.posterior(state, Streams(self.key)("inference"))
        return q.mean[0] * self.R, np.sqrt(np.diag(q.covariance)) * self.R

    def slow(self, state, mean, deviations, n_draws):
        theta = slow.grid(mean, deviations)
        released = {
            "n": self.config.n_rows,
            "gram": state.moments,
            "gram_noise": self.update.moments_scale,
            "gradients": np.concatenate(state.gradients),
            "queries": np.concatenate(state.queries),
            "noise": math.sqrt(self.update.noise_variance),
            "intercept": 1.0 / self.R if self.config.fit_intercept else None,
        }
        prior = slow.log_prior(theta, self.blocks, HYPERPRIOR_SCALE)
        rng = np.random.default_rng(0)
        return slow.private(released, theta, prior, n_draws, rng)


class TestPosterior:
    @pytest.mark.parametrize("intercept", [False, True])
    @pytest.mark.parametrize("n", [1000, 5000])
    def test_without_noise_it_is_the_ordinary_posterior_over_all_prior_scales(self, n, intercept):
        cell = Cell(n, math.inf, intercept, seed=0)
        mean, deviations = cell.fast(cell.run())
        theta = slow.grid(mean, deviations)
        prior = slow.log_prior(theta, cell.blocks, HYPERPRIOR_SCALE)
        expected, spread = slow.exact(cell.rows / cell.R, cell.y, theta, prior)
        assert np.abs((mean - expected) / spread).max() < 0.1
        np.testing.assert_allclose(deviations, spread, rtol=0.03)

    @pytest.mark.parametrize("intercept", [False, True])
    @pytest.mark.parametrize("epsilon", [0.3, 1.0])
    def test_with_second_moments_known_it_is_the_slow_posterior(self, epsilon, intercept):
        for seed in range(3):
            cell = Cell(3000, epsilon, intercept, seed)
            state = cell.run_with_known_moments(np.random.default_rng(seed))
            mean, deviations = cell.fast(state)
            expected, spread = cell.slow(state, mean, deviations, n_draws=1)
            # Steps count for less the farther they are from the last, by at least .3 of the way:
            # where noise is loud, their mean is another than that of the slow posterior.
            off = np.abs((mean - expected) / spread).max()
            assert off < (0.15 if epsilon == 1.0 else 0.25)
            np.testing.assert_allclose(deviations, spread, rtol=0.12)

    @pytest.mark.slow
    @pytest.mark.parametrize("intercept", [False, True])
    def test_a_run_at_epsilon_one_is_the_slow_posterior_of_its_releases(self, intercept):
        for seed in range(3):
            cell = Cell(5000, 1.0, intercept, seed)
            state = cell.run()
            mean, deviations = cell.fast(state)
            expected, spread = cell.slow(state, mean, deviations, n_draws=60)
            # Before Ã, a run takes eigenvalues to be alike, and the slow posterior does not.
            assert np.abs((mean - expected) / spread).max() < 0.4
            np.testing.assert_allclose(deviations, spread, rtol=0.25)


def test_a_bent_slope_of_the_likeliest_beliefs_is_none_of_the_drawn_ones():
    """What takes the likeliest beliefs to a slope may take others next to nowhere."""
    cell = Cell(5000, 1.0, True, seed=3)
    state = cell.run()
    slope, where, before = state.slope
    bent = before.with_slope(where, before.slope(where) * [[1e-3, 0.03], [0.03, 1.0]])
    states = state, state._replace(slope=(slope, where, bent))
    drawn = [cell.update._drawn_beliefs(s, 8, Streams(b"draws")("inference")) for s in states]
    place = np.broadcast_to(where, (8, 2))
    np.testing.assert_array_equal(drawn[0].slope(place), drawn[1].slope(place))


class TestScatterFromTheScoreAtZero:
    """Rows vary by 4 Cov(y, x)² at least; where they are on average is no scatter."""

    N = 20_000

    def believed(self, X, y, square=None, curvature="gram"):
        """Beliefs after a score without noise, and before; the first column's variance is given."""
        config = NoiseAwareConfig(
            Bernoulli(), self.N, 2, True, data_norm=1.0, n_steps=20, noise_multiplier=1e-9,
            clip_norm=math.sqrt(2.0), curvature=curvature,
        )  # fmt: skip
        update, rows = NoiseAwareLogit(config), np.column_stack([X, np.ones(self.N)])
        u = rows / update.R
        moments = u.T @ u if curvature == "gram" else np.array([np.sum(u**2)])
        state = update.init()._replace(moments=moments, rows=update.beliefs(moments))
        gradient = ((y - 0.5) @ u)[None]
        state = state._replace(gradients=(gradient,) * update.n_at_zero)
        before = state.rows.covariance.copy()
        if square is not None:
            before[:, 0, 0] = square / update.R**2
        found = update._apart(state, replace(state.rows, covariance=before))
        return found.covariance[0, :2, :2] * update.R**2, before[0, :2, :2] * update.R**2

    def test_classes_that_are_apart_tell_of_it(self):
        rng = np.random.default_rng(0)
        y = (rng.random(self.N) < 0.5).astype(float)
        X = np.column_stack([0.4 * (y - 0.5), 0.1 * rng.standard_normal(self.N)])
        found, _ = self.believed(X, y, square=1e-4)
        assert found[0, 0] == pytest.approx(0.04, rel=0.02)  # half their distance, squared
        np.testing.assert_allclose(found[0, 0], np.var(X[:, 0]), rtol=0.02)

    @pytest.mark.parametrize("share", [0.1, 0.3, 0.8])
    def test_a_mean_far_from_zero_does_not(self, share):
        rng = np.random.default_rng(1)
        y = (rng.random(self.N) < share).astype(float)
        X = np.column_stack([-0.7 + 0.05 * rng.standard_normal(self.N), np.zeros(self.N)])
        found, before = self.believed(X, y, square=0.05**2)
        np.testing.assert_allclose(found, before, atol=0.02 * 0.05**2)

    def test_nor_does_one_of_which_the_trace_alone_is_known(self):
        rng = np.random.default_rng(1)
        y = (rng.random(self.N) < 0.1).astype(float)
        X = np.column_stack([-0.7 + 0.05 * rng.standard_normal(self.N), np.zeros(self.N)])
        assert 4 * np.mean((y - 0.5) * X[:, 0]) ** 2 > np.mean(X[:, 0] ** 2) / 2  # as believed
        found, before = self.believed(X, y, curvature="trace")
        np.testing.assert_allclose(found, before)

    @pytest.mark.parametrize("share", [0.2, 0.5, 0.7])
    def test_no_rows_are_believed_to_vary_more_than_they_do(self, share):
        rng = np.random.default_rng(2)
        y = (rng.random(self.N) < share).astype(float)
        X = np.column_stack([-0.5 + 0.3 * y, 0.2 + 0.2 * rng.standard_normal(self.N)])
        found, _ = self.believed(X, y, square=1e-4)
        assert 1e-3 < found[0, 0] <= np.var(X[:, 0]) * 1.02

    @pytest.mark.thorough
    def test_intervals_of_a_column_that_hardly_varies_hold_its_coefficient(self):
        off, widths = [], []
        for seed in range(8):
            rng = np.random.default_rng(seed)
            X = rng.uniform(-1, 1, (self.N, 10))
            X[:, 0] = np.clip(-0.8 + 0.1 * rng.standard_normal(self.N), -1, 1)
            y = rng.random(self.N) < expit(X[:, 0] + 0.5 * X[:, 1] - 0.2)
            model = DPVariationalLogisticRegression(
                1.0, 1e-6, classes=[0, 1], n_samples=self.N, prior_scale=3.0
            ).fit(X, y.astype(int))
            widths.append(math.sqrt(model.covariance_[0, 0]))
            off.append(abs(model.coef_[0, 0] - 1.0) / widths[-1])
        assert np.median(off) < 1.5
        assert np.median(widths) > 0.16  # without privacy


@pytest.mark.parametrize(("likelihood", "learned"), [(Bernoulli(), 1.0), (Poisson(14.0), 3.0)])
def test_three_times_the_believed_slope_is_learned_of_counts_alone(likelihood, learned):
    """That of classes is bounded: more than four times would have to be seen."""
    config = Cell(5000, math.inf, False, seed=0).config
    update = NoiseAwareLogit(replace(config, likelihood=likelihood))
    rows, there = update.beliefs(5000 * np.diag(SPREAD**2)), np.array([[1.0, -0.5]])
    expected = rows.expected(there)
    state = update.init()._replace(
        queries=(np.zeros((1, 2)), there), gradients=(np.zeros((1, 2)), -3.0 * expected)
    )
    step, middle = update._bent(state, rows).slope(there / 2.0) @ there[0], there / 2.0
    np.testing.assert_allclose(step, learned * rows.slope(middle) @ there[0], rtol=0.01)


class TestPriorScales:
    theta = np.array([0.5, -1.0, 2.0, 0.3])
    prior = PriorScales(2.0, (0, 0, 0, 1))

    def log_density(self, log_tau, block):
        """As the module docstring has it."""
        size, squares = ((3, 5.25), (1, 0.09))[block]
        return (1 - size) * log_tau - 0.5 * squares * np.exp(-2 * log_tau) - np.exp(2 * log_tau) / 8

    @pytest.mark.parametrize("block", [0, 1])
    def test_draws_have_the_density_given_theta(self, block):
        n = 4000
        uniform = np.random.default_rng(0).random((2, n, 2))
        drawn = self.prior.drawn(np.tile(self.theta, (n, 1)), uniform)
        assert drawn.shape == (n, 2)
        fine = math.log(2.0) + np.linspace(-5.0, 2.0, 70_001)
        mass = np.cumsum(np.exp(self.log_density(fine, block)))
        log = np.log(drawn[:, block])
        for factor, accepted in ((1.0, True), (1.1, False)):  # a tenth too large is found

            def cumulative(x, factor=factor):
                return np.interp(x, fine + math.log(factor), mass / mass[-1])

            assert (kstest(log, cumulative).pvalue > 1e-3) == accepted

    @pytest.mark.parametrize("block", [0, 1])
    def test_the_likeliest_is_the_largest_of_a_grid(self, block):
        log_tau = np.linspace(-6.0, 3.0, 100_000)
        best = log_tau[np.argmax(self.log_density(log_tau, block))]
        found = self.prior.likeliest(self.theta, np.zeros(4))
        assert math.log(found[block]) == pytest.approx(best, abs=2e-4)

    def test_an_unsure_theta_counts_with_its_variance(self):
        mean, variance = self.theta / 2, 0.75 * self.theta**2
        found = self.prior.likeliest(mean, variance)
        np.testing.assert_allclose(found, self.prior.likeliest(self.theta, np.zeros(4)))

    def test_a_known_scale_stays(self):
        known = PriorScales(0.7, (0, 0, 0, 0), known=True)
        np.testing.assert_array_equal(known.likeliest(self.theta, np.ones(4)), [0.7])
        np.testing.assert_array_equal(known.precision(known.start), np.full(4, 0.7**-2))


class LinearScores:
    """F(θ) = Aθ with V = A: what normal data would have."""

    def __init__(self, A, n_beliefs=1):
        self.A, self.mean = A, np.zeros((n_beliefs, len(A)))

    def expected(self, theta):
        return theta @ self.A

    def slope(self, theta):
        return np.broadcast_to(self.A, (*theta.shape, len(self.A)))

    variance = slope

    def pulled(self, theta, weigh):
        F = self.expected(theta)
        return F, weigh(F) @ self.A


A = np.array([[40.0, 10.0, 0.0], [10.0, 30.0, 5.0], [0.0, 5.0, 20.0]])
STATISTIC = A @ [0.8, -0.5, 0.4]
NU2 = 30.0


def posterior_given(tau):
    """Mean, covariance and ln evidence, in closed form: s ~ N(Aθ, A + ν² I)."""
    W = np.linalg.inv(A + NU2 * np.eye(3))
    covariance = np.linalg.inv(A @ W @ A + np.eye(3) / tau**2)
    marginal = A @ A * tau**2 + A + NU2 * np.eye(3)
    evidence = -0.5 * STATISTIC @ np.linalg.solve(marginal, STATISTIC)
    return (
        covariance @ A @ W @ STATISTIC,
        covariance,
        evidence - 0.5 * np.linalg.slogdet(marginal)[1],
    )


class TestEvidence:
    def test_scales_have_the_posterior_that_a_grid_finds(self):
        prior = PriorScales(2.0, (0, 0, 0))
        point = Given(LinearScores(A), STATISTIC[None], NU2)
        theta = posterior_given(1.0)[0][None]
        drawn = scales_by_evidence(
            point, prior, theta, np.array([0.7]), 2000, Streams(b"key")("inference")
        )
        # The grid is 1.6 to either side of ln 0.7.
        log_tau = math.log(0.7) + np.linspace(-1.6, 1.6, 2001)
        density = [posterior_given(math.exp(t))[2] + t - math.exp(2 * t) / 8 for t in log_tau]
        mass = np.cumsum(np.exp(density - np.max(density)))
        quantiles = np.quantile(np.log(drawn[:, 0]), [0.05, 0.25, 0.5, 0.75, 0.95])
        expected = np.interp([0.05, 0.25, 0.5, 0.75, 0.95], mass / mass[-1], log_tau)
        # Draws are stratified, and cells .008 wide.
        np.testing.assert_allclose(quantiles, expected, atol=0.02)

    def test_only_the_largest_block_is_drawn(self):
        prior = PriorScales(2.0, (0, 0, 1))
        drawn = scales_by_evidence(
            Given(LinearScores(A), STATISTIC[None], NU2), prior, np.zeros((1, 3)),
            np.array([0.7, 0.3]), 50, Streams(b"key")("inference"),
        )  # fmt: skip
        assert np.ptp(drawn[:, 0]) > 0.2
        np.testing.assert_array_equal(drawn[:, 1], 0.3)


class TestPooled:
    def found(self, prior, scales, *, forced):
        size = len(scales)
        given = Given(LinearScores(A, size), np.tile(STATISTIC, (size, 1)), NU2)
        with mock.patch.object(logit_posterior, "ENOUGH", 2.0 if forced else 0.0):
            return pooled(
                given, prior, np.zeros((size, 3)), scales, Streams(b"key")("inference"), chains=True
            )

    def test_chains_find_what_laplace_does_where_the_posterior_is_normal(self):
        prior, scales = PriorScales(0.9, (0, 0, 0), known=True), np.full((400, 1), 0.9)
        mean, covariance, _ = posterior_given(0.9)
        laplace = self.found(prior, scales, forced=False)
        np.testing.assert_allclose(laplace.mean, mean, rtol=1e-6)
        np.testing.assert_allclose(laplace.covariance, covariance, rtol=1e-6)
        chained = self.found(prior, scales, forced=True)
        assert len(chained.scales) > 400  # that they did run
        # 400 chains at least: 4.5 standard errors of a mean, and of a variance.
        deviation = np.sqrt(np.diag(covariance))
        assert np.abs((chained.mean - mean) / deviation).max() < 4.5 / math.sqrt(400)
        ratio = np.diag(chained.covariance) / deviation**2
        low, high = chi2.ppf([1e-5, 1 - 1e-5], 400) / 400
        assert low < ratio.min() < ratio.max() < high

    def test_chains_draw_the_scale_too(self):
        prior = PriorScales(2.0, (0, 0, 0))
        found = self.found(prior, np.full((400, 1), 0.7), forced=True)
        log_tau = np.linspace(-6.0, 3.0, 2001)
        given = [posterior_given(math.exp(t)) for t in log_tau]
        log = np.array([g[2] for g in given]) + log_tau - np.exp(2 * log_tau) / 8
        weights = np.exp(log - log.max()) / np.exp(log - log.max()).sum()
        mean = weights @ [g[0] for g in given]
        median = log_tau[np.searchsorted(np.cumsum(weights), 0.5)]
        deviation = np.sqrt(np.diag(posterior_given(0.7)[1]))
        assert np.abs((found.mean - mean) / deviation).max() < 4.5 / math.sqrt(400)
        # Chains start at .7; of 2400 draws of ln τ, with deviations of .4, 400 are independent.
        assert np.median(np.log(found.scales)) == pytest.approx(median, abs=0.1)

    def test_no_direction_is_known_better_than_slopes_say_or_less_than_the_prior_does(self):
        prior, one = PriorScales(1.0, (0, 0, 0), known=True), np.ones((1, 1))
        along = np.random.default_rng(0).standard_normal(3)
        rows = LinearScores(3e8 * np.outer(along, along) / (along @ along))
        given = Given(rows, np.zeros((1, 3)), 1.0, scatter=np.zeros((1, 3, 3)))
        stream = Streams(b"key")("inference")
        found = pooled(given, prior, np.zeros((1, 3)), one, stream, chains=False)
        np.testing.assert_allclose(found.covariance @ along, 0.0, atol=1e-7)
        assert np.linalg.eigvalsh(found.covariance)[-1] == pytest.approx(1.0)


class TestPriorBlocks:
    X = np.random.default_rng(0).uniform(-1, 1, (4000, 6))

    def test_blocks_of_different_truths_learn_different_scales(self):
        logits = self.X @ [4.0, -4.0, 4.0, 0.0, 0.0, 0.0]
        y = np.random.default_rng(1).random(4000) < expit(logits)
        model = DPVariationalLogisticRegression(
            3.0, prior_blocks=["a"] * 3 + ["b"] * 3, n_samples=4000, classes=[False, True]
        ).fit(self.X, y)
        large, small = model.prior_scale_
        assert large > 3 * small
        low, high = model.prior_scale_interval_
        assert (low < model.prior_scale_).all()
        assert (model.prior_scale_ < high).all()

    @pytest.mark.parametrize(
        "kind", [DPVariationalLogisticRegression, DPVariationalPoissonRegression]
    )
    @pytest.mark.parametrize("labels", [[0, 0, 1], [], list("abcdefg")])
    def test_a_wrong_number_of_labels_is_refused_before_anything_is_released(self, kind, labels):
        model = kind(1.0, prior_blocks=labels, n_samples=4000)
        words = r"prior_blocks.*one label for each of the 6"
        with release_hook.record() as tape, pytest.raises(ValueError, match=words):
            model.fit(self.X, self.X[:, 0] > 0)
        assert not tape

    def test_names_of_blocks_do_not_matter(self):
        facts = PublicFacts("DPVariationalLogisticRegression", n_features=6, n_outputs=2)
        named = list("xxyyzz"), [5, 5, 2, 2, 9, 9]
        models = [DPVariationalLogisticRegression(1.0, prior_blocks=labels) for labels in named]
        assert len({blocks_of_labels(model, facts) for model in models}) == 1
