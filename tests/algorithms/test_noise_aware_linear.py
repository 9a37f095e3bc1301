"""The releases of private regression, and the limits of its posterior."""

import math

import numpy as np
import pytest
from bundles import bundled
from reference import noise_aware_linear as slow
from reference.adassp import adassp

from skdp.algorithms import noise_aware_linear as nar
from skdp.algorithms.parts.gaussian_runs import run_and_count
from skdp.algorithms.parts.residual_releases import moments
from skdp.engine.linear_sums import GramSum, ScoreGramSum
from skdp.engine.magnitude_sums import MAGNITUDES, MagnitudeSum
from skdp.fitting.streams import Streams
from skdp.relations import RELATIONS
from skdp.rows.bounded_sum import ROUNDING
from skdp.rows.records import LinearRows

EXTREME = [0.0, 1.0, -1.0, 0.3, 1e154, -1e300, 5e-324]


def config(**changes):
    facts = {
        "n_rows": 500,
        "n_features": 3,
        "fit_intercept": True,
        "data_norm": 1.5,
        "n_steps": 12,
        "clip_norm": None,
        "prior_scale": 0.5,
        "noise_multiplier": 1.0,
    }
    return nar.NoiseAwareRegressionConfig(**{**facts, **changes})


def simulated(seed=0, n=500):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-0.8, 0.8, (n, 3))
    y = X @ [0.4, -0.2, 0.1] + 0.1 + 0.15 * rng.standard_normal(n)
    return X, y[:, None]


class TestSensitivity:
    @bundled("clip", [1e-3, 0.1, 1.0, 50.0])
    @bundled("fit_intercept", [True, False])
    def test_no_record_moves_the_sum_farther_than_the_bound(self, clip, fit_intercept):
        coin = np.random.default_rng(0)
        bound = nar.row_bound(1.5, fit_intercept)
        residual = nar.ResidualSum(bound, nar.SCALE_WEIGHT, nar.TRACE_WEIGHT)
        X, y = simulated(n=20)
        farthest = 0.0
        for _ in range(300):
            theta = np.append(3 * coin.standard_normal(3 + fit_intercept), clip)[None]
            row = np.where(coin.random(3) < 0.5, coin.normal(0, 3, 3), coin.choice(EXTREME, 3))
            target = coin.choice(EXTREME) if coin.random() < 0.5 else coin.normal()
            sums = [
                residual(
                    theta,
                    LinearRows(A, b, data_norm=1.5, fit_intercept=fit_intercept).take(slice(None)),
                )
                for A, b in ((X, y), (np.vstack([X, row]), np.vstack([y, [target]])))
            ]
            assert sums[0].shape == residual.shape((1, 3 + fit_intercept + 1))[:1]
            farthest = max(farthest, float(np.linalg.norm(sums[1] - sums[0])))
        assert farthest <= residual.norm_bound
        assert farthest >= 0.9 * residual.norm_bound  # and the bound is no larger than needed

    @pytest.mark.parametrize(
        ("weights", "declared"),
        [
            ((nar.SCALE_WEIGHT, nar.TRACE_WEIGHT), 2.0),
            ((math.sqrt(0.5), math.sqrt(0.5)), 2.0),
            ((0.1, 0.7), 2.0),
            ((2.0, 2.0), 2 * math.sqrt(3.0)),  # beyond 1/√2, twice the bound of one record
        ],
    )
    def test_replacing_a_record_moves_the_sum_no_farther_than_is_declared(self, weights, declared):
        residual, coin = nar.ResidualSum(1.0, *weights), np.random.default_rng(0)
        assert residual.sensitivity("replace_one") == pytest.approx(declared * (1 + ROUNDING))
        theta = np.array([[0.0, 0.0, 1.0]])

        def term(row, target):
            made = LinearRows(
                np.array([row]), np.array([[target]]), data_norm=1.0, fit_intercept=False
            )
            return residual(theta, made.take(slice(None)))

        ends = [([x, 0.0], t) for x in (0.0, 0.5, 1.0, -1.0) for t in (0.0, 0.5, 1.0, -1.0, np.nan)]
        drawn = [(coin.normal(0, 0.7, 2), coin.normal()) for _ in range(30)]
        terms = [term(*record) for record in ends + drawn]
        farthest = max(np.linalg.norm(one - other) for one in terms for other in terms)
        assert farthest <= residual.sensitivity("replace_one")
        if declared == 2.0:
            assert farthest >= 0.99 * residual.sensitivity("replace_one")
        else:
            assert farthest > 2.9  # more than the sharper bound would be

    def test_the_sum_is_the_textbook_one_by_one(self):
        X, y = simulated(n=30)
        rows = LinearRows(X, y, data_norm=1.5, fit_intercept=True).take(slice(None))
        R, theta, clip = nar.row_bound(1.5, True), np.array([0.3, 0.1, -0.2, 0.5]), 0.2
        expected = np.zeros(6)
        for x, target in zip(rows.rows, y[:, 0], strict=True):
            u, psi = x / R, max(-1.0, min(1.0, (target - x @ theta) / clip))
            expected[:4] += psi * u
            expected[4] += nar.SCALE_WEIGHT * (psi**2 - 0.5)
            expected[5] += nar.TRACE_WEIGHT * (u @ u - 0.5)
        residual = nar.ResidualSum(R, nar.SCALE_WEIGHT, nar.TRACE_WEIGHT)
        found = residual(np.append(theta, clip)[None], rows)
        np.testing.assert_allclose(found, expected, rtol=1e-12)

    def test_the_first_release_is_the_second_moments(self):
        assert isinstance(config().release_plan().clipped_sum_of(0), GramSum)
        assert config().release_plan().clipped_sum_of(0).norm_bound >= config().row_bound ** 2


class TestMoments:
    def test_against_numerical_integrals(self):
        z = np.linspace(-12, 12, 200_001)
        density = np.exp(-0.5 * z**2) / math.sqrt(2 * math.pi) * (z[1] - z[0])
        for clip, v in ((0.5, 1.0), (2.0, 0.7), (0.1, 0.3)):
            psi = np.clip(math.sqrt(v) * z / clip, -1, 1)
            inside, second, fourth, slope = moments(np.array([clip]), v)
            assert inside[0] == pytest.approx(density @ (np.abs(psi) < 1), abs=2e-4)
            assert second[0] == pytest.approx(density @ psi**2, rel=1e-6)
            assert fourth[0] == pytest.approx(density @ psi**4, rel=1e-6)
            more = moments(np.array([clip]), v * 1.0001)[1] - second
            assert slope[0] == pytest.approx(more[0] / 1e-4, rel=1e-3)


class TestLimits:
    def test_without_noise_it_is_the_conjugate_posterior(self):
        X, y = simulated()
        q = config(noise_multiplier=0.0, n_steps=1).run((X, y), Streams(b"a"))
        rows = np.column_stack([X, np.ones(len(X))])
        # Given σ the posterior is the textbook's; σ is known to 3 %, which moves it by much less.
        s2 = math.exp(2 * q.mean[0, -1])
        covariance = np.linalg.inv(rows.T @ rows / s2 + np.eye(4) / 0.5**2)
        mean = covariance @ rows.T @ y[:, 0] / s2
        np.testing.assert_allclose(q.mean[0, :-1], mean, atol=1e-3 * np.sqrt(covariance[0, 0]))
        np.testing.assert_allclose(q.covariance[:-1, :-1], covariance, rtol=0.01, atol=1e-9)
        residuals = y[:, 0] - rows @ mean
        assert math.exp(q.mean[0, -1]) == pytest.approx(
            math.sqrt(residuals @ residuals / (len(X) - 4)), rel=0.01
        )
        assert math.sqrt(q.covariance[-1, -1]) == pytest.approx(1 / math.sqrt(2 * 496), rel=0.02)

    def test_with_little_noise_it_is_close_to_that(self):
        X, y = simulated()
        ordinary = config(noise_multiplier=0.0, n_steps=1).run((X, y), Streams(b"a"))
        q = config(noise_multiplier=1e-3).run((X, y), Streams(b"b"))
        sd = np.sqrt(np.diag(ordinary.covariance))
        # θ is close to it; of σ, the first steps, far from θ, still say a little of their own.
        off = np.abs((q.mean - ordinary.mean) / sd)[0]
        assert off[:-1].max() < 0.05
        assert off[-1] < 0.7
        np.testing.assert_allclose(np.sqrt(np.diag(q.covariance)), sd, rtol=0.1)

    def test_with_much_noise_it_is_the_prior(self):
        X, y = simulated()
        q = config(noise_multiplier=1e5).run((X, y), Streams(b"c"))
        prior_sd = np.append(np.full(4, 0.5), nar.NOISE_SPREAD)
        prior_mean = np.append(np.zeros(4), math.log(nar.NOISE_SCALE))
        assert np.abs((q.mean[0] - prior_mean) / prior_sd).max() < 0.02
        np.testing.assert_allclose(np.sqrt(np.diag(q.covariance)), prior_sd, rtol=0.03)

    def test_the_plain_posterior_is_too_sure(self):
        X, y = simulated()
        honest = config(noise_multiplier=50.0).run((X, y), Streams(b"d"))
        plain = config(noise_multiplier=50.0, noise_aware=False).run((X, y), Streams(b"d"))
        np.testing.assert_array_equal(honest.mean, plain.mean)
        assert (np.diag(plain.covariance) < 0.5 * np.diag(honest.covariance)).all()

    def test_posteriors_are_proper_whatever_is_released(self):
        coin = np.random.default_rng(0)
        for size in (1.0, 1e3, 1e9):
            algorithm = nar.NoiseAwareRegression(config(n_steps=3))
            state = algorithm.init()
            for step, length in enumerate((10, 6, 6, 6)):
                released = size * coin.standard_normal(length)
                state = algorithm.update(state, released, step)
                assert np.isfinite(state.mean).all()
                assert 0 < state.clip < np.inf
            q = algorithm.posterior(state, Streams(b"e")("inference"))
            assert np.isfinite(q.mean).all()
            spectrum = np.linalg.eigvalsh(q.covariance)
            assert spectrum[0] > -1e-12 * spectrum[-1]


def test_clips_follow_the_residuals():
    X, y = simulated(n=2000)
    algorithm = nar.NoiseAwareRegression(config(n_rows=2000, noise_multiplier=5.0))
    rows = LinearRows(X, y, data_norm=1.5, fit_intercept=True)
    plan = algorithm.config.release_plan()
    last, _ = run_and_count(plan, rows, algorithm, Streams(b"f"), iter)
    assert last.clips[0] == 1.0
    assert 1.1 * 0.15 < last.clip < 4.5 * 0.15


@pytest.mark.parametrize(
    "wrong",
    [{"n_rows": 0}, {"n_steps": 0}, {"noise_multiplier": -1.0}, {"clip_norm": 0.0}],
)
def test_an_invalid_config_cannot_exist(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        config(**wrong)


def test_the_reference_is_ridge_where_epsilon_is_large():
    rng = np.random.default_rng(0)
    X = rng.uniform(-0.5, 0.5, (400, 3))
    y = X @ [0.5, -0.5, 0.2]
    np.testing.assert_allclose(adassp(X, y, 1e6, 1e-5, rng), [0.5, -0.5, 0.2], atol=1e-3)


class TestUnit:
    @pytest.mark.parametrize("scale", [1e-9, 1.0, 3.0, 1e6])
    def test_counts_by_magnitude_tell_the_power_of_two_above_the_targets(self, scale):
        y = scale * np.random.default_rng(0).normal(5.0, 1.0, 2000)
        batch = rows_of_targets(y).take(slice(None))
        counts = MagnitudeSum()(np.zeros((1, 1)), batch)
        assert counts.sum() == 2000
        largest = np.quantile(y, 0.95)
        for noise in (0.0, 20.0):
            noisy = counts + noise * np.random.default_rng(1).normal(size=len(counts))
            assert largest <= nar.unit_of(noisy, noise) <= 4 * largest

    def test_noise_alone_tells_nothing(self):
        rng = np.random.default_rng(0)
        found = [nar.unit_of(7.0 * rng.normal(size=len(MAGNITUDES)), 7.0) for _ in range(200)]
        assert sum(unit is not None for unit in found) <= 10

    @pytest.mark.parametrize("relation", RELATIONS)
    def test_no_record_moves_a_count_by_more_than_its_bound(self, relation):
        values = [0.0, -1.0, 3.0, 1e-300, 1e300, np.nan, np.inf, -np.inf, 5e-324]
        counts = MagnitudeSum()
        terms = counts.records(np.zeros((1, 1)), rows_of_targets(values).take(slice(None)))
        others = [np.zeros(len(MAGNITUDES))] if relation != "replace_one" else terms
        moved = max(np.linalg.norm(a - b) for a in terms for b in others)
        assert moved <= counts.sensitivity(relation)
        assert not terms[0].any()  # a null record is in no cell

    def test_a_posterior_follows_the_unit_of_its_targets(self):
        rng = np.random.default_rng(0)
        X = rng.uniform(-1, 1, (400, 2))
        y = (X @ [0.3, -0.2] + 0.1 * rng.normal(size=400))[:, None]
        for sigma in (0.0, 1.0):
            learned = config(
                n_rows=400, n_features=2, bounded_targets=False, noise_multiplier=sigma
            )
            one, other = (
                learned.run((X, factor * y), Streams(b"one key")) for factor in (1.0, 2.0**20)
            )
            assert other.unit == 2.0**20 * one.unit
            np.testing.assert_allclose(other.mean[:, :-1], 2.0**20 * one.mean[:, :-1], rtol=1e-6)
            np.testing.assert_allclose(
                other.mean[0, -1], one.mean[0, -1] + 20 * math.log(2), rtol=1e-6
            )


def rows_of_targets(y):
    y = np.asarray(y, dtype=float)[:, None]
    return LinearRows(np.ones((len(y), 1)), y, data_norm=1.0, fit_intercept=False)


class TestPrior:
    @pytest.mark.thorough
    def test_without_privacy_it_is_the_slow_posterior_over_all_scales(self):
        rng = np.random.default_rng(3)
        X = rng.uniform(-0.8, 0.8, (60, 2))
        y = X @ [0.5, -0.3] + 0.3 * rng.standard_normal(60)
        q = config(
            n_rows=60, n_features=2, fit_intercept=False, prior_scale=None, noise_multiplier=0.0
        ).run((X, y[:, None]), Streams(b"g"))
        grids = np.exp(np.linspace(-2.0, 0.0, 60)), np.exp(np.linspace(-4.0, 1.7, 120))
        mean, covariance, median = slow.exact(X, y, nar.HYPER_SCALE / 1.5, *grids)
        sd = np.sqrt(np.diag(covariance))
        assert np.abs((q.mean[0, :-1] - mean) / sd).max() < 0.02
        np.testing.assert_allclose(q.covariance[:-1, :-1], covariance, rtol=0.03, atol=1e-6)
        (low,), (found,), (high,) = q.prior_scales
        assert found == pytest.approx(median, rel=0.1)
        assert low < found < high

    def test_a_given_scale_stays(self):
        X, y = simulated()
        for sigma in (0.0, 2.0):
            q = config(prior_scale=0.25, noise_multiplier=sigma).run((X, y), Streams(b"h"))
            assert q.prior_scales[1, 0] == pytest.approx(0.25)
            assert q.prior_scales[[0, 2], 0] == pytest.approx(0.25)

    def test_a_learned_scale_follows_the_coefficients(self):
        rng = np.random.default_rng(4)
        X = rng.uniform(-1, 1, (3000, 8)) / math.sqrt(8)
        found = []
        for tau in (0.03, 0.6):
            y = X @ (tau * rng.standard_normal(8)) + 0.1 * rng.standard_normal(3000)
            q = config(
                n_rows=3000, n_features=8, data_norm=1.0, prior_scale=None, noise_multiplier=1.0
            ).run((X, y[:, None]), Streams(b"i"))
            found.append(q.prior_scales[1, 0])
            assert q.prior_scales[0, 0] / 1.5 < tau < q.prior_scales[2, 0] * 1.5
        assert found[1] > 3 * found[0]

    @pytest.mark.slow
    def test_at_epsilon_one_it_is_what_a_slow_chain_finds_in_the_same_releases(self):
        rng = np.random.default_rng(5)
        X = rng.uniform(-0.7, 0.7, (2000, 2))
        y = X @ [0.4, -0.2] + 0.15 * rng.standard_normal(2000)
        facts = config(
            n_rows=2000, n_features=2, fit_intercept=False, data_norm=1.0, prior_scale=None,
            noise_multiplier=13.0,
        )  # fmt: skip
        algorithm = nar.NoiseAwareRegression(facts)
        rows = LinearRows(X, y[:, None], data_norm=1.0, fit_intercept=False)
        state, _ = run_and_count(algorithm.plan, rows, algorithm, Streams(b"j"), iter)
        q = algorithm.posterior(state, Streams(b"j")("inference"))
        released = {
            "n": 2000,
            "noise": algorithm.noise,
            "weights": (nar.SCALE_WEIGHT, nar.TRACE_WEIGHT),
            "gram": state.gram,
            "gram_noise": algorithm.gram_noise,
            "sums": state.sums,
            "queries": state.queries,
            "clips": state.clips,
        }
        sd, prior_scale = np.sqrt(np.diag(q.covariance)), q.prior_scales[1, 0]
        spread = algorithm.gram_noise * np.array([0.8, 0.6, 0.8])
        scales = 0.5 * np.concatenate([sd[:2], spread, sd[2:], [0.6]])
        A = algorithm.beliefs(state)
        A = (A.vectors[0] * A.values[0]) @ A.vectors[0].T
        start = [*q.mean[0, :2], *A[np.triu_indices(2)], q.mean[0, 2], math.log(prior_scale)]
        draws = slow.chain(released, nar.HYPER_SCALE, start, scales, 40_000, rng)
        assert np.abs((q.mean[0, :2] - draws[:, :2].mean(axis=0)) / sd[:2]).max() < 0.3
        np.testing.assert_allclose(sd[:2], draws[:, :2].std(axis=0), rtol=0.2)
        assert abs(math.log(prior_scale) - np.median(draws[:, 2])) < 0.3


class TestRobust:
    def test_one_more_release_is_planned_and_paid_from_the_others(self):
        plain, robust = config(), config(robust=True)
        assert robust.sampling.n_steps == plain.sampling.n_steps + 1
        assert isinstance(robust.release_plan().clipped_sum_of(13), ScoreGramSum)
        for facts in (plain, robust):
            assert len(facts.units) == len(facts.dimensions) == facts.sampling.n_steps
        squares = [sum(unit**-2 for unit in facts.units) / facts.units[0] ** -2
                   for facts in (plain, robust)]  # fmt: skip
        assert squares[0] == pytest.approx(squares[1]) == pytest.approx(1 / nar.GRAM_SHARE)

    def test_without_privacy_it_is_the_sandwich(self):
        rng = np.random.default_rng(6)
        X = rng.uniform(-0.8, 0.8, (4000, 2))
        y = X @ [0.3, -0.2] + 0.4 * np.abs(X[:, 0]) * rng.standard_normal(4000)
        q = config(
            n_rows=4000, n_features=2, fit_intercept=False, noise_multiplier=0.0, robust=True,
            n_steps=1, prior_scale=2.0,
        ).run((X, y[:, None]), Streams(b"k"))  # fmt: skip
        H = np.linalg.inv(X.T @ X)
        r = y - X @ (H @ X.T @ y)
        sandwich = H @ ((X * r[:, None] ** 2).T @ X) @ H
        np.testing.assert_allclose(np.diag(q.covariance)[:2], np.diag(sandwich), rtol=0.02)

    def test_widths_follow_the_scatter_and_not_the_model(self):
        rng = np.random.default_rng(7)
        X = rng.uniform(-0.8, 0.8, (20_000, 2))
        y = X @ [0.3, -0.2] + 0.3 * np.abs(X[:, 0]) * rng.standard_normal(20_000)
        facts = {
            "n_rows": 20_000, "n_features": 2, "fit_intercept": False, "noise_multiplier": 1.0,
        }  # fmt: skip
        plain, robust = (
            config(robust=chosen, **facts).run((X, y[:, None]), Streams(b"l"))
            for chosen in (False, True)
        )
        H = np.linalg.inv(X.T @ X)
        r = y - X @ (H @ X.T @ y)
        sandwich = np.sqrt(np.diag(H @ ((X * r[:, None] ** 2).T @ X) @ H))
        found = np.sqrt(np.diag(robust.covariance))[:2] / sandwich
        of_model = np.sqrt(np.diag(plain.covariance))[:2] / sandwich
        assert 0.85 < found.min() < found.max() < 1.2
        assert of_model[0] < 0.85

    def test_under_the_model_it_is_the_posterior_of_the_model(self):
        X, y = simulated(n=5000)
        q, robust = (
            config(n_rows=5000, noise_multiplier=0.3, robust=chosen).run((X, y), Streams(b"m"))
            for chosen in (False, True)
        )
        ratio = np.sqrt(np.diag(robust.covariance) / np.diag(q.covariance))[:-1]
        assert 0.85 < ratio.min() < ratio.max() < 1.25
