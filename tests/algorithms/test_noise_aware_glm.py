"""The noise-aware posterior: its limits, its coverage, and what a record can do."""

import math
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
from bundles import bundled
from scipy.optimize import minimize
from scipy.special import expit
from scipy.stats import norm

from skdp import DPVariationalLogisticRegression, DPVariationalPoissonRegression
from skdp.algorithms import noise_aware_glm as noise_aware
from skdp.algorithms import noise_aware_logit
from skdp.algorithms.noise_aware_logit import NoiseAwareLogit
from skdp.engine import release_hook
from skdp.engine.linear_sums import LinearClippedSum, ScoreGramSum, packed
from skdp.fitting.streams import Streams
from skdp.models.likelihoods import Bernoulli, Poisson
from skdp.privacy.noise_calibration import calibrate_schedule
from skdp.relations import RELATIONS, sensitivity_factor
from skdp.rows.records import LinearRows


def simulated(n, d, seed, prior_scale=3.0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) / math.sqrt(d)
    X *= np.minimum(1.0, 1.0 / np.linalg.norm(X, axis=1))[:, None]
    theta = prior_scale * rng.normal(size=d)
    return X, (rng.random(n) < expit(X @ theta)).astype(float)[:, None], theta


def config_of(n, d, sigma=1.0, **more):
    given = {
        "likelihood": Bernoulli(), "n_rows": n, "n_features": d, "fit_intercept": False,
        "data_norm": 1.0, "n_steps": 20, "clip_norm": 0.5, "prior_scale": 3.0,
        "noise_multiplier": sigma,
    }  # fmt: skip
    return noise_aware.NoiseAwareConfig(**given | more)


class TestWrongBeliefs:
    """Rows that are not normal may have several times the slope that their moments suggest."""

    @pytest.mark.parametrize(
        ("likelihood", "times"),
        [(Bernoulli(), 1.0), (Bernoulli(), 4.5), (Poisson(14.0), 1.0), (Poisson(14.0), 3.0)],
    )
    def test_a_run_settles_whatever_the_true_slope_is(self, likelihood, times):
        X, _, _ = simulated(5000, 4, seed=1)
        config = config_of(5000, 4, sigma=0.5, clip_norm=1.0, likelihood=likelihood)
        update = NoiseAwareLogit(config)
        state = update.update(update.init(), gram_of(X), 0)
        truth = np.array([[1.0, -0.8, 0.5, 0.2]])
        model = state.rows

        def released(state):
            return times * (model.expected(truth) - model.expected(state.mean))

        for step in range(1, 22):
            noisy = released(state).reshape(1, 4)
            if config.releases[step] == "slope":  # noise has swallowed what it would have said
                noisy = packed(model.slope(state.mean)[0])
            state = update.update(state, noisy, step)
        np.testing.assert_allclose(state.mean, truth, atol=0.1)

    def test_slopes_that_fit_are_left_alone(self):
        X, _, _ = simulated(5000, 4, seed=1)
        config = config_of(5000, 4, sigma=2.0, clip_norm=1.0)
        update = NoiseAwareLogit(config)
        state = update.update(update.init(), gram_of(X), 0)
        model, noise = state.rows, np.random.default_rng(0)
        for step in range(1, config.releases.index("slope")):
            g = model.expected(np.ones((1, 4))) - model.expected(state.mean)
            g = g + math.sqrt(update.noise_variance) * noise.normal(size=(1, 4))
            state = update.update(state, g, step)
            assert state.rows.transform is None
            assert state.rows.n_rows == pytest.approx(5000, rel=0.3)


class TestContradictions:
    """Gradients that scatter around the model of the scores by more than their noise."""

    def variance(self, scatter, seed):
        """Variance of the statistic, and that of the DP noise in it."""
        X, _, _ = simulated(5000, 4, seed=1)
        update = NoiseAwareLogit(config_of(5000, 4, sigma=20.0, clip_norm=1.0))
        state, rng = update.update(update.init(), gram_of(X), 0), np.random.default_rng(seed)
        nu = math.sqrt(update.noise_variance)
        for step in range(1, update.config.releases.index("slope")):
            g = state.rows.expected(np.ones((1, 4))) - state.rows.expected(state.mean)
            g = g + scatter * nu * rng.normal(size=(1, 4))
            state = update.update(state, g, step)
        variance = update.given(state, state.rows).variance
        return variance, update.noise_variance / len(state.gradients)

    def test_they_widen_the_posterior(self):
        for seed in range(5):
            found, of_noise = self.variance(3.0, seed)
            assert 3.0 * of_noise < found < 150.0 * of_noise

    def test_noise_alone_does_not(self):
        for seed in range(20):
            found, of_noise = self.variance(1.0, seed)
            assert 0.99 * of_noise < found < 1.5 * of_noise


def test_many_parameters_are_unsure_of_the_second_moments():
    n, d = 20_000, 50
    X, _, theta = simulated(n, d, seed=0)
    X *= np.linspace(0.2, 1.0, d)
    y = np.random.default_rng(1).random((n, 1)) < expit(2 * X @ theta)[:, None]
    config = config_of(n, d, sigma=8.0, clip_norm=1.0)
    integrated = config.run((X, y.astype(float)), Streams(b"key"))
    with mock.patch.object(noise_aware_logit, "MOST_INTEGRATED", 10):
        known = config.run((X, y.astype(float)), Streams(b"key"))
    wider = np.sqrt(np.diag(integrated.covariance) / np.diag(known.covariance))
    assert np.median(wider) > 1.05
    assert np.linalg.eigvalsh(integrated.covariance).min() > 0


def gram_of(X):
    return packed(X.T @ X)


class TestLimits:
    @pytest.mark.parametrize("clip_norm", [1.0, 0.5])
    def test_without_noise_it_is_laplaces_posterior(self, clip_norm):
        X, y, _ = simulated(2000, 4, seed=0)

        def negative(theta):
            z = X @ theta
            return np.sum(np.logaddexp(0, z) - y[:, 0] * z) + theta @ theta / 18

        mode = minimize(negative, np.zeros(4)).x
        p = expit(X @ mode)
        deviation = np.sqrt(np.diag(np.linalg.inv((X.T * (p * (1 - p))) @ X + np.eye(4) / 9)))
        config = config_of(2000, 4, sigma=1e-4, clip_norm=clip_norm)
        q = config.run((X, y), Streams(b"limits"))
        found = np.sqrt(np.diag(q.covariance))
        # A weight that bounds influence costs a little efficiency.
        np.testing.assert_allclose(found, deviation, rtol=0.1 if clip_norm == 1.0 else 0.25)
        assert np.abs((q.mean[0] - mode) / deviation).max() < (0.5 if clip_norm == 1.0 else 1.0)

    @pytest.mark.parametrize("likelihood", [Bernoulli(), Poisson(5.0)])
    def test_where_the_noise_drowns_the_data_it_is_the_prior(self, likelihood):
        X, y, _ = simulated(100, 3, seed=0)
        config = config_of(100, 3, sigma=1e6, likelihood=likelihood, curvature="trace")
        q = config.run((X, y), Streams(b"limits"))
        assert np.abs(q.mean).max() < 1.0
        np.testing.assert_allclose(np.sqrt(np.diag(q.covariance)), 3.0, rtol=0.15)

    def test_the_units_of_the_rows_do_not_matter(self):
        X, y, _ = simulated(500, 3, seed=0)
        once = config_of(500, 3).run((X, y), Streams(b"units"))
        scaled = config_of(500, 3, data_norm=50.0, clip_norm=25.0, prior_scale=0.06)
        again = scaled.run((50 * X, y), Streams(b"units"))
        np.testing.assert_allclose(once.mean, 50 * again.mean, rtol=1e-6)
        np.testing.assert_allclose(once.covariance, 2500 * again.covariance, rtol=1e-6)


class TestCoverage:
    @pytest.mark.thorough
    @pytest.mark.parametrize("epsilon", [0.3, pytest.param(3.0, marks=pytest.mark.slow)])
    def test_intervals_cover_about_as_often_as_they_say(self, epsilon):
        n, d, repetitions, off = 1000, 3, 30, []
        config = config_of(n, d)
        sigma = calibrate_schedule(config.noise_multipliers, epsilon=epsilon, delta=1e-5)
        config = replace(config, noise_multiplier=sigma)
        for seed in range(repetitions):
            X, y, theta = simulated(n, d, seed)
            q = config.run((X, y), Streams(b"coverage %d" % seed))
            off.append(np.abs(theta - q.mean[0]) / np.sqrt(np.diag(q.covariance)))
        # 90 coordinates, of which 90 % should be covered: standard error .032.
        covered = {scale: np.mean(np.array(off) < scale * norm.ppf(0.95)) for scale in (0.5, 1, 2)}
        assert 0.78 < covered[1] < 0.98
        # Intervals of half the length, and of twice, are found out.
        assert covered[0.5] < 0.78
        assert covered[2] > 0.98

    @pytest.mark.slow
    def test_poisson_intervals_cover(self):
        n, d, hits = 2000, 3, []
        config = config_of(n, d, likelihood=Poisson(20.0), clip_norm=5.0, prior_scale=1.0)
        sigma = calibrate_schedule(config.noise_multipliers, epsilon=1.0, delta=1e-5)
        config = replace(config, noise_multiplier=sigma)
        for seed in range(60):
            rng = np.random.default_rng(seed)
            X, _, theta = simulated(n, d, seed, prior_scale=1.0)
            y = np.minimum(rng.poisson(np.exp(X @ theta)), 20.0)[:, None]
            q = config.run((X, y), Streams(b"coverage %d" % seed))
            hits.append(np.abs(theta - q.mean[0]) / np.sqrt(np.diag(q.covariance)) < norm.ppf(0.95))
        assert 0.82 < np.mean(hits) < 0.98


class TestReleases:
    def test_a_weighted_sum_has_mean_zero_at_the_truth_and_a_clipped_one_has_not(self):
        X, _, theta = simulated(200, 3, seed=1)
        score = Bernoulli().score(0.3)
        rows = LinearRows(X, expit(X @ theta)[:, None], data_norm=1.0, fit_intercept=False)

        def mean(clipped_sum):
            # The mean over y: the weight does not look at it, so that of the target will do.
            return clipped_sum(theta[None], rows.take(slice(None)))

        weighted = LinearClippedSum(score.residual, 0.3, score.largest_residual)
        np.testing.assert_allclose(mean(weighted), 0, atol=1e-12)
        p = expit(X @ theta)
        clipped = (p * np.minimum(1 - p, 0.3) - (1 - p) * np.minimum(p, 0.3)) @ X
        assert np.abs(clipped).max() > 1

    @pytest.mark.thorough
    @bundled("relation", RELATIONS)
    @bundled("likelihood", [Bernoulli(), Poisson(8.0)])
    @bundled(("curvature", "robust"), [("gram", False), ("trace", False), ("gram", True)])
    def test_no_record_moves_a_release_by_more_than_it_declares(
        self, relation, likelihood, curvature, robust
    ):
        rng = np.random.default_rng(0)
        config = config_of(
            30, 2, likelihood=likelihood, curvature=curvature, neighboring_relation=relation,
            fit_intercept=True, clip_norm=0.4, robust=robust,
        )  # fmt: skip
        plan = config.release_plan()
        steps = [config.releases.index(kind) for kind in dict.fromkeys(config.releases)]
        targets = [0.0, 1.0 if likelihood == Bernoulli() else 8.0]
        X, y = rng.normal(size=(30, 2)), np.resize(targets, (30, 1))
        for trial in range(40):
            theta = 10.0 ** rng.integers(-2, 3) * rng.normal(size=(1, 3))
            extreme = rng.choice([0.0, 1e-3, 1.0, -1e10, 1e160], size=2)
            X2, y2 = X.copy(), y.copy()
            X2[trial % 30], y2[trial % 30] = extreme, targets[trial % 2]
            if relation == "add_or_remove_one":
                X2, y2 = np.vstack([X, extreme]), np.vstack([y, y2[[trial % 30]]])
            if relation == "zero_out":
                X2, y2 = np.delete(X, trial % 30, axis=0), np.delete(y, trial % 30, axis=0)
            rows = (X, y), (X2, y2)
            for step in steps:
                both = (LinearRows(*own, data_norm=1.0, fit_intercept=True) for own in rows)
                one, other = (plan.clipped_sum_of(step)(theta, r.take(slice(None))) for r in both)
                moved, call = np.linalg.norm(one - other), plan.step((1, 3), step)[1]
                assert call.shape == one.shape
                assert moved <= call.sensitivity

    @pytest.mark.parametrize("of_scatter", [0.0, 0.08])
    def test_shares_of_the_budget_add_up(self, of_scatter):
        config = config_of(1000, 3, robust=of_scatter > 0.0)
        kinds, shares = np.array(config.releases), np.array(config.noise_multipliers) ** -2.0
        assert len(shares) == len(config.dimensions) == config.sampling.n_steps == len(kinds)
        found = {kind: shares[kinds == kind].sum() / shares.sum() for kind in kinds}
        expected = {"moments": 0.05, "gradient": 0.88 - of_scatter, "slope": 0.05, "counts": 0.02}
        assert found == pytest.approx(expected | ({"scatter": 0.08} if of_scatter else {}))

    def test_the_scatter_is_one_more_release_and_paid_from_the_others(self):
        plain, config = config_of(1000, 3), config_of(1000, 3, robust=True)
        assert "scatter" not in plain.releases
        slope = config.releases.index("slope")
        assert (slope, config.releases.index("scatter")) == (16, 22)
        scatter = config.release_plan().clipped_sum_of(22)
        assert isinstance(scatter, ScoreGramSum)
        assert scatter.record_bound == config.clip_norm**2
        assert config.dimensions == [6, *[3] * 15, 6, *[3] * 5, 6, *config.dimensions[-1:]]

    @bundled("secure", [False, True])
    def test_the_noise_of_the_scatter_follows_its_sensitivity(self, secure):
        for relation, sensitivity in (("zero_out", 0.25), ("replace_one", 0.25 * math.sqrt(2))):
            config = config_of(1000, 3, robust=True, neighboring_relation=relation, secure=secure)
            call = config.release_plan().step((1, 3), 22)[1]
            assert call.sensitivity == pytest.approx(sensitivity, rel=1e-3)
            multiplier = call.scale / call.sensitivity * sensitivity_factor(relation)
            assert multiplier == pytest.approx(config.noise_multipliers[22], rel=1e-6)

    def test_defaults_follow_public_facts_alone(self):
        assert noise_aware.default_curvature(10_000, 10, mu=1.0) == "gram"
        assert noise_aware.default_curvature(100, 50, mu=0.1) == "trace"
        shares = [noise_aware.default_clip_share(10_000, 10, mu) for mu in (1e-3, 0.3, 10.0)]
        assert shares == sorted(shares)
        assert (shares[0], shares[-1]) == (0.25, 1.0)


class TestRobust:
    """Widths from the released scatter of the scores."""

    def fits(self, X, p, sigma, clip_norm=1.0, prior_scale=3.0):
        n, d = X.shape
        y = (np.random.default_rng(1).random(n) < p).astype(float)[:, None]
        qs = [
            config_of(
                n, d, sigma=sigma, clip_norm=clip_norm, robust=robust, prior_scale=prior_scale
            ).run((X, y), Streams(b"robust"))
            for robust in (False, True)
        ]
        return y[:, 0], [np.sqrt(np.diag(q.covariance)) for q in qs], qs[1].mean[0]

    def test_without_noise_it_is_the_sandwich(self):
        X, _, theta = simulated(20_000, 3, seed=0)
        X[:400] = theta / np.linalg.norm(theta)  # where no label is likely but 1; and it is not
        p = expit(X @ theta)
        p[:400] = 0.0
        y, (_, robust), _ = self.fits(X, p, 1e-4)

        def negative(theta):
            z = X @ theta
            return np.sum(np.logaddexp(0, z) - y * z)

        q = expit(X @ minimize(negative, theta).x)
        H = np.linalg.inv((X.T * (q * (1 - q))) @ X)
        expected = np.sqrt(np.diag(H @ ((X.T * (y - q) ** 2) @ X) @ H))
        np.testing.assert_allclose(robust, expected, rtol=0.1)

    def test_widths_follow_the_scatter_and_not_the_model(self):
        rng = np.random.default_rng(0)
        X = rng.normal(size=(20_000, 3)) / 3
        X *= np.minimum(1.0, 1.0 / np.linalg.norm(X, axis=1))[:, None]
        rate = np.exp(X @ [1.0, -0.5, 0.3])
        y = np.minimum(rng.poisson(rate * rng.gamma(0.5, 2.0, 20_000)), 20.0)[:, None]
        facts = {"likelihood": Poisson(20.0), "sigma": 2.0, "clip_norm": 10.0, "prior_scale": 1.0}
        plain, robust = (
            config_of(20_000, 3, robust=chosen, **facts).run((X, y), Streams(b"counts"))
            for chosen in (False, True)
        )
        ratio = np.sqrt(np.diag(robust.covariance) / np.diag(plain.covariance))
        # The variance of a count is μ + 2μ², by its gamma: about three times that of the model.
        assert 1.35 < ratio.min() < ratio.max() < 2.2

    def test_under_the_model_it_is_the_posterior_of_the_model(self):
        X, _, theta = simulated(10_000, 3, seed=2)
        _, (plain, robust), _ = self.fits(X, expit(X @ theta), 2.0)
        np.testing.assert_allclose(robust, plain, rtol=0.15)

    def test_several_classes_are_refused_before_anything_is_released(self):
        X = np.random.default_rng(0).uniform(-1, 1, (60, 2))
        words = r"robust=True.*more than two classes.*OneVsRest"
        model = DPVariationalLogisticRegression(1.0, robust=True, classes=[0, 1, 2], n_samples=60)
        with release_hook.record() as tape, pytest.raises(ValueError, match=words):
            model.fit(X, np.arange(60) % 3)
        assert not tape

    @bundled(
        "settings",
        [
            {"robust": True, "inference": "dpvi"},
            {"robust": True, "epsilon": math.inf, "covariance": "diag"},
            {"prior_blocks": [0, 1], "inference": "dpvi"},
            {"prior_blocks": [0, 1], "prior_scale": 1.0},
            {"prior_blocks": [0, 1], "classes": [0, 1, 2]},
            {"prior_blocks": 5},
            {"robust": 1},
        ],
    )
    def test_settings_that_a_fit_would_ignore_are_refused(self, settings):
        X = np.random.default_rng(0).uniform(-1, 1, (60, 2))
        model = DPVariationalLogisticRegression(**{"classes": [0, 1], **settings}, n_samples=60)
        words = f"Expected {next(iter(settings))}="
        with release_hook.record() as tape, pytest.raises(ValueError, match=words):
            model.fit(X, np.arange(60) % 2)
        assert not tape

    def test_without_privacy_it_is_the_sandwich_of_all_scores(self):
        rng = np.random.default_rng(0)
        X = rng.uniform(-1, 1, (5000, 2))
        y = rng.poisson(rng.gamma(0.5, 2.0, 5000) * np.exp(X[:, 0]))
        model = DPVariationalPoissonRegression(math.inf, robust=True, n_samples=5000).fit(X, y)
        rows = np.column_stack([X, np.ones(5000)])
        rate = np.exp(rows @ np.append(model.coef_, model.intercept_))
        H = np.linalg.inv((rows.T * rate) @ rows)
        expected = H @ ((rows.T * (y - rate) ** 2) @ rows) @ H
        np.testing.assert_allclose(np.diag(model.covariance_), np.diag(expected), rtol=0.03)

    @pytest.mark.parametrize(
        "kind", [DPVariationalLogisticRegression, DPVariationalPoissonRegression]
    )
    def test_secure_noise_gives_about_the_same(self, kind):
        X = np.random.default_rng(0).uniform(-1, 1, (2000, 2))
        y = np.random.default_rng(1).random(2000) < expit(3 * X[:, 0])
        fits = [
            kind(3000.0, robust=True, secure=secure, n_samples=2000).fit(X, y)
            for secure in (False, True)
        ]
        plain, secure = (np.sqrt(np.diag(fit.covariance_)) for fit in fits)
        # Widths are noisy too: six fits of each differed by a factor of e^.45 at most.
        assert np.abs(np.log(secure / plain)).max() < 0.6
        # The data are the same, and less noise than they scatter by is in either fit.
        assert np.abs((fits[0].coef_ - fits[1].coef_) / plain[:2]).max() < 3.0
