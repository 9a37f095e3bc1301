"""DP-SGLD estimators: the chain is the one of the paper, and what they state and predict."""

import math
from unittest import mock

import numpy as np
import pytest
import torch
from reference.langevin import langevin_moments
from scipy import stats
from sklearn.calibration import CalibratedClassifierCV, CalibrationDisplay
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.frozen import FrozenEstimator
from torch import nn

from skdp import DPSGDClassifier, DPSGLDClassifier, DPSGLDRegressor, PrivacyLedger, PrivacyWarning
from skdp.algorithms.dp_sgld import DPSGLDConfig
from skdp.engine import release_hook
from skdp.models.perceptron import with_parameters
from skdp.privacy import epsilon_of_event
from skdp.privacy.budget import Budget
from skdp.privacy.events import terms_of
from skdp.schedules import PolynomialDecay

FACTS = {"classes": [0, 1], "n_samples": 120}
INF = float("inf")


def anchor(**other):
    """Return the schedule of PRIVACY §3: 3515 steps on 60 000 rows."""
    fields = {
        "n_rows": 60_000,
        "n_steps": 3515,
        "sampling_rate": 256 / 60_000,
        "clip_norm": 1.0,
        "temperature": 1.0,
        "learning_rate": PolynomialDecay(initial=4.0, offset=200, exponent=0.55),
    }
    return DPSGLDConfig(**fields | other)


class TestSchedule:
    def test_step_sizes_are_those_of_the_paper(self):
        a, b, gamma = 4.0 * 200**0.55, 200, 0.55
        rates = anchor().learning_rates
        np.testing.assert_allclose(rates, a * (b + np.arange(3515)) ** -gamma, rtol=1e-12)

    @pytest.mark.parametrize("clip_norm", [1.0, 0.3])
    def test_noise_multipliers_and_temperature_fit_together(self, clip_norm):
        N, B, T = 60_000, 256, 0.7
        config = anchor(clip_norm=clip_norm, temperature=T)
        sigma, eta = np.array(config.noise_multipliers), np.array(config.learning_rates)
        expected = B / clip_norm * np.sqrt(2 * T / (N * eta))
        np.testing.assert_allclose(sigma, expected, rtol=1e-12)
        back = sigma**2 * clip_norm**2 * N * eta / (2 * B**2)
        np.testing.assert_allclose(back, T, rtol=1e-12)
        assert (np.diff(sigma) > 0).all()

    @pytest.mark.parametrize("hidden", [(), (5,)])
    def test_the_noise_that_reaches_the_weights_has_variance_2_T_eta_over_N(
        self, hidden, two_blobs
    ):
        with release_hook.record() as tape:
            model = DPSGLDClassifier(
                1.0, hidden_layer_sizes=hidden, max_iter=5, sampling_rate=0.3, clip_norm=0.7
            ).fit(*two_blobs)
        scale = np.array([release.call.scale for release in tape])
        reached = model.learning_rates_ * scale / (0.3 * 120)
        expected = 2 * model.temperature_ * model.learning_rates_ / 120
        np.testing.assert_allclose(reached**2, expected, rtol=1e-12)

    @pytest.mark.slow
    def test_anchor_of_the_privacy_notes(self):
        event = anchor().event()
        # The sheet's PLD value, 1.146, is of coarser levels; finer ones are as valid and lower.
        assert 1.10 < epsilon_of_event(event, 1e-5, accountant="pld") < 1.146 * 1.01
        with pytest.warns(PrivacyWarning, match="not a bound"):
            clt = epsilon_of_event(event, 1e-5, accountant="gdp_clt")
        assert clt == pytest.approx(0.927, rel=0.01)
        assert 1.92 < epsilon_of_event(event, 1e-5, accountant="rdp") < 1.997 * 1.01

    def test_one_level_of_noise_where_the_step_size_is_constant(self):
        config = anchor(learning_rate=PolynomialDecay(2.0, 1.0, 0.0))
        assert len(terms_of(config.event())) == 1

    @pytest.mark.quick(2)
    @pytest.mark.parametrize("accountant", ["auto", "rdp"])
    @pytest.mark.parametrize("exponent", [0.0, 0.55])
    def test_the_temperature_is_the_least_that_the_budget_affords(self, exponent, accountant):
        config = anchor(n_steps=3, learning_rate=PolynomialDecay(4.0, 2, exponent))
        solved = config.calibrated(Budget(1.0, 1e-5, accountant=accountant))
        spent = epsilon_of_event(solved.event(), 1e-5, accountant=accountant)
        assert 0.995 < spent <= 1.0

    @pytest.mark.parametrize("relation", ["zero_out", "replace_one"])
    def test_full_batch_temperature_in_closed_form(self, relation):
        # μ² = Σ (Δ/σ_t)², so ε(μ) = 1 fixes √T.
        config = anchor(n_steps=40, sampling_rate=1.0, neighboring_relation=relation)
        solved = config.calibrated(Budget(1.0, 1e-5, relation))
        factor = 2.0 if relation == "replace_one" else 1.0
        mu = math.sqrt(sum((factor / sigma) ** 2 for sigma in solved.noise_multipliers))
        delta = stats.norm.cdf(mu / 2 - 1 / mu) - math.e * stats.norm.cdf(-mu / 2 - 1 / mu)
        assert delta == pytest.approx(1e-5, rel=1e-3)


class TestChain:
    def test_without_temperature_and_clipping_it_is_gradient_descent(self):
        rng = np.random.default_rng(0)
        X, y = rng.normal(size=(50, 3)), rng.integers(0, 3, 50)
        module = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3)).double()
        model = DPSGLDClassifier(
            INF, module=module, temperature=0.0, max_iter=20, sampling_rate=1.0, prior_scale=INF
        )
        rates = model.fit(X, y).learning_rates_
        peer = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3)).double()
        peer.load_state_dict(module.state_dict())
        optimizer = torch.optim.SGD(peer.parameters())
        for rate in rates:
            optimizer.param_groups[0]["lr"] = rate
            optimizer.zero_grad()
            nn.functional.cross_entropy(peer(torch.tensor(X)), torch.tensor(y)).backward()
            optimizer.step()
        for ours, theirs in zip(model.module_.parameters(), peer.parameters(), strict=True):
            np.testing.assert_allclose(ours.detach(), theirs.detach(), rtol=1e-12, atol=1e-13)

    def test_the_prior_pulls_towards_zero(self):
        X, y = np.zeros((40, 1)), np.arange(40) % 2
        common = {"temperature": 0.0, "max_iter": 7, "learning_rate": 0.5, "decay_exponent": 0.0}
        module = nn.Linear(1, 2, bias=False).double()
        model = DPSGLDClassifier(INF, module=module, prior_scale=0.25, sampling_rate=1.0, **common)
        weight = model.fit(X, y).module_.weight.detach().numpy()  # rows of zeros: the prior alone
        start = module.weight.detach().numpy()
        np.testing.assert_allclose(weight, start * (1 - 0.5 * 16 / 40) ** 7, rtol=1e-12)

    def test_a_step_that_overshoots_the_prior_is_refused(self, two_blobs):
        # θ ← (1 − η/(s²N)) θ explodes where the factor is below −1, and flips signs below 0.
        with PrivacyLedger() as ledger:
            with pytest.raises(ValueError, match=r"prior_scale=0\.1 .*at least 0\.158"):
                DPSGLDClassifier(1.0, prior_scale=0.1, learning_rate=3.0, **FACTS).fit(*two_blobs)
            assert ledger.entries == ()
        model = DPSGLDClassifier(1.0, prior_scale=0.1, **FACTS).fit(*two_blobs)
        assert model.learning_rates_[0] == pytest.approx(0.5 * 0.01 * 120)
        assert np.isfinite(model.posterior_samples_).all()

    def test_without_privacy_automatic_clipping_does_not_clip_either(self, two_blobs):
        plan = {"max_iter": 20, "hidden_layer_sizes": (3,), "sampling_rate": 1.0, **FACTS}
        with mock.patch("skdp.fitting.charge.initial_seed", return_value=1):
            flat, automatic = (
                DPSGLDClassifier(INF, temperature=0.0, clipping=clipping, **plan).fit(*two_blobs)
                for clipping in ("flat", "automatic")
            )
        np.testing.assert_array_equal(flat.posterior_samples_, automatic.posterior_samples_)

    @pytest.mark.thorough
    @pytest.mark.parametrize("temperature", [pytest.param(1.0, marks=pytest.mark.slow), 0.25])
    def test_samples_of_a_gaussian_posterior_have_its_moments(self, temperature):
        # A line through 30 points with unit errors: the posterior of slope and intercept is normal,
        # and so is the law of the chain; how far its steps take it from the posterior is known.
        rng = np.random.default_rng(1)
        x = rng.uniform(-1, 1, (30, 1))
        y = 0.8 * x[:, 0] - 0.3 + rng.normal(size=30)
        n_steps, eta, scale = 10_000, 0.3, 2.0
        model = DPSGLDRegressor(
            INF, hidden_layer_sizes=(), temperature=temperature, sampling_rate=1.0,
            prior_scale=scale, learning_rate=eta, decay_exponent=0.0, max_iter=n_steps,
            burn_in=1000, thinning=1, random_state=0,
        )  # fmt: skip
        with mock.patch("skdp.fitting.estimator.warnings"):
            samples = model.fit(x, y).posterior_samples_
        A = np.column_stack([x, np.ones(30)])
        precision = A.T @ A + np.eye(2) / scale**2
        mean, covariance, step_covariance, n_effective = langevin_moments(
            precision, A.T @ y, temperature, eta / 30, len(samples)
        )
        # Six standard errors of each, from the autocorrelation of the chain.
        found, error = samples.mean(axis=0), np.sqrt(np.diag(covariance) / n_effective)
        assert (np.abs(found - mean) < 6 * error).all()
        sd = np.sqrt(np.diag(step_covariance))
        deviation = np.abs(np.cov(samples.T) - step_covariance)
        assert (deviation < 6 * np.sqrt(2 / n_effective) * np.outer(sd, sd)).all()
        # Neither twice nor half the temperature would pass.
        wrong = np.abs(np.cov(samples.T) - 0.5 * step_covariance)
        assert (np.diag(wrong) > 6 * np.sqrt(2 / n_effective) * sd**2).all()
        # The length of a step is what separates the chain from the posterior itself.
        np.testing.assert_allclose(covariance, step_covariance, rtol=0.25)

    def test_noise_before_clipping_moves_the_sum_and_not_its_bound(self, two_blobs):
        X, y = two_blobs
        plan = {"max_iter": 1, "hidden_layer_sizes": (3,), "random_state": 0, **FACTS}
        with release_hook.record() as plain, pytest.warns(PrivacyWarning):
            one = DPSGLDClassifier(1.0, **plan).fit(X, y)
        with release_hook.record() as noisy, pytest.warns(PrivacyWarning):
            two = DPSGLDClassifier(1.0, prenoise_scale=0.1, **plan).fit(X, y)
        assert plain[0].call == noisy[0].call
        assert one.privacy_.event == two.privacy_.event
        assert (plain[0].output != noisy[0].output).all()


class TestIterates:
    def test_kept_iterates_are_counted_from_the_end(self, two_blobs):
        model = DPSGLDClassifier(max_iter=20, burn_in=5, thinning=4, **FACTS).fit(*two_blobs)
        assert model.posterior_steps_.tolist() == [8, 12, 16, 20]
        assert model.posterior_samples_.shape == (4, len(model.parameter_names_))
        last = np.concatenate([p.detach().ravel() for p in model.module_.parameters()])
        np.testing.assert_array_equal(model.posterior_samples_[-1], last)

    def test_the_last_iterate_alone_as_in_the_paper(self, two_blobs):
        model = DPSGLDClassifier(max_iter=20, burn_in=19, **FACTS).fit(*two_blobs)
        assert model.posterior_steps_.tolist() == [20]

    def test_prediction_is_the_mean_over_kept_iterates(self, two_blobs):
        X, _ = two_blobs
        model = DPSGLDClassifier(max_iter=20, **FACTS).fit(*two_blobs)
        path = model.path_predictive(X)
        assert path.shape == (10, 120, 2)
        np.testing.assert_allclose(model.predict_proba(X), path.mean(axis=0), atol=1e-12)
        np.testing.assert_allclose(
            model.predict_log_proba(X), np.log(path.mean(axis=0)), atol=1e-12
        )

    def test_each_iterate_is_drawn_once_before_any_is_drawn_again(self, two_blobs):
        model = DPSGLDClassifier(max_iter=20, **FACTS).fit(*two_blobs)
        draws = model.sample_posterior(25, random_state=0)
        _, counts = np.unique(draws, axis=0, return_counts=True)
        assert sorted(counts) == [2] * 5 + [3] * 5
        assert len(np.unique(model.sample_posterior(10), axis=0)) == 10

    def test_spread_of_a_regression(self):
        rng = np.random.default_rng(0)
        X = rng.uniform(-1, 1, (300, 1))
        model = DPSGLDRegressor(2.0, target_bounds=(-4, 4), max_iter=30, n_samples=300)
        mean, spread = model.fit(X, 3 * X[:, 0]).predict(X, return_std=True)
        path = model.sample_predictive(X, 15)
        np.testing.assert_allclose(mean, path.mean(axis=0), atol=1e-6)
        np.testing.assert_allclose(spread, path.std(axis=0), atol=1e-6)
        np.testing.assert_allclose(model.predict(X), mean)


class TestStatement:
    @pytest.mark.thorough
    def test_epsilon_is_what_was_asked_and_temperature_is_shown(self, two_blobs):
        model = DPSGLDClassifier(1.5, max_iter=5, sampling_rate=0.2, **FACTS).fit(*two_blobs)
        assert model.privacy_.epsilon == pytest.approx(1.5, rel=2e-3)
        assert model.privacy_.epsilon <= 1.5
        assert model.privacy_.valid
        assert model.temperature_ > 0

    def test_given_a_temperature_epsilon_is_accounted(self, two_blobs):
        solved = DPSGLDClassifier(1.5, max_iter=30, **FACTS).fit(*two_blobs)
        given = DPSGLDClassifier(None, temperature=solved.temperature_, max_iter=30, **FACTS)
        assert given.fit(*two_blobs).privacy_.epsilon == solved.privacy_.epsilon

    def test_a_schedule_is_asked_before_the_plan_is_made_and_never_again(self, two_blobs):
        asked = []

        def drifting(t):
            asked.append(t)
            return 1.0 if len(asked) <= 40 else 20.0

        model = DPSGLDClassifier(1.0, learning_rate=drifting, max_iter=20, **FACTS)
        assert model.fit(*two_blobs).privacy_.epsilon <= 1.0
        assert len(asked) == 40

    @pytest.mark.parametrize("temperature", [1e-300, 1e-30])
    def test_next_to_no_noise_is_next_to_no_privacy(self, temperature, two_blobs):
        model = DPSGLDClassifier(None, temperature=temperature, max_iter=5, **FACTS)
        assert math.isinf(model.fit(*two_blobs).privacy_.epsilon)

    @pytest.mark.thorough
    def test_the_central_limit_of_the_paper_is_no_bound(self, two_blobs):
        plan = {"max_iter": 30, "sampling_rate": 0.2, "accountant": "gdp_clt", **FACTS}
        with pytest.warns(PrivacyWarning, match="not a bound"):
            model = DPSGLDClassifier(1.0, **plan).fit(*two_blobs)
        assert not model.privacy_.valid
        assert "NOT a bound" in repr(model.privacy_)
        assert epsilon_of_event(model.privacy_.event, 1e-5) > 1.0

    def test_without_privacy_nothing_is_clipped_and_nothing_claimed(self, two_blobs):
        with release_hook.record() as tape:
            model = DPSGLDClassifier(INF, max_iter=10, **FACTS).fit(*two_blobs)
        assert model.temperature_ == 1.0
        assert math.isinf(model.privacy_.epsilon)
        assert not model.privacy_.valid
        assert tape[0].call.sensitivity > 1e9


class TestUse:
    def test_it_learns_with_defaults(self):
        # Of 20 unseeded fits none was below .98.
        rng = np.random.default_rng(0)
        X = rng.uniform(-1, 1, (2000, 2))
        y = (X[:, 0] + X[:, 1] > 0).astype(int)
        model = DPSGLDClassifier(1.0, classes=[0, 1], n_samples=2000).fit(X, y)
        assert model.score(X, y) > 0.95

    @pytest.mark.parametrize("kind", [DPSGLDClassifier, DPSGDClassifier])
    def test_calibration_tools_of_scikit_learn(self, kind, two_blobs):
        pytest.importorskip("matplotlib").use("Agg")
        X, y = two_blobs
        model = kind(max_iter=10, **FACTS).fit(X, y)
        display = CalibrationDisplay.from_estimator(model, X, y)
        assert display.estimator_name == kind.__name__
        calibrated = CalibratedClassifierCV(FrozenEstimator(model)).fit(X, y)
        np.testing.assert_allclose(calibrated.predict_proba(X).sum(axis=1), 1.0)

    @pytest.mark.thorough
    def test_many_classes_beside_an_ordinary_model(self):
        rng = np.random.default_rng(0)
        centres = rng.normal(size=(4, 5)) * 2
        y = rng.integers(0, 4, 3000)
        X = centres[y] + rng.normal(size=(3000, 5))
        X /= 10
        peer = LinearDiscriminantAnalysis().fit(X, y).score(X, y)
        model = DPSGLDClassifier(3.0, classes=range(4), n_samples=3000).fit(X, y)
        assert model.score(X, y) > peer - 0.05


@pytest.mark.parametrize("kind", ["perceptron", "linear", "module"])
def test_members_of_the_posterior_predict_at_once_as_one_by_one(kind):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (5000, 3))
    given = {"hidden_layer_sizes": (5,) if kind == "perceptron" else ()}
    if kind == "module":
        given = {"module": nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 2))}
    model = DPSGLDClassifier(INF, classes=[0, 1], n_samples=5000, max_iter=12, **given)
    model.fit(X, (X[:, 0] > 0).astype(int))
    found = []
    for vector in model.posterior_samples_:
        module = with_parameters(model.module_, vector).double()
        with torch.no_grad():
            found.append(torch.softmax(module(torch.from_numpy(X)), dim=1).numpy())
    assert len(found) == 6
    rounding = {"rtol": 1e-6 if kind != "module" else 1e-4, "atol": 1e-6}
    np.testing.assert_allclose(model.predict_proba(X), np.mean(found, axis=0), **rounding)
    np.testing.assert_allclose(model.path_predictive(X), found, **rounding)
