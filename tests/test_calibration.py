"""`DPTemperatureScaler`: the temperature it finds, what it costs, and that predictions stay."""

import math
import pickle

import numpy as np
import pandas as pd
import pytest
from scipy.special import log_softmax, softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import log_loss
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from torch import nn

from skdp import (
    BoundedScaler,
    BudgetExceededError,
    DPSGDClassifier,
    DPVariationalLogisticRegression,
    PrivacyLedger,
)
from skdp.calibration import DPTemperatureScaler
from skdp.engine import release_hook
from skdp.metrics import expected_calibration_error
from skdp.privacy import epsilon_of_event
from skdp.privacy.events import dp_sgd_event
from skdp.privacy.report import PrivacyReport

INF = float("inf")
FACTS = {"classes": [0, 1], "n_samples": 120}


class Overconfident(ClassifierMixin, BaseEstimator):
    """Reads logits from its rows and multiplies them by a number; costs what it says."""

    def __init__(self, by=2.0):
        self.by = by

    def fit(self, X, y):
        self.classes_ = np.arange(4)
        event = dp_sgd_event(10.0, 1.0, 10)
        self.privacy_ = PrivacyReport.of(event, delta=1e-5, sampling="full batch")
        return self

    def predict_proba(self, X):
        return softmax(self.by * np.asarray(X), axis=1)

    def predict(self, X):
        return np.asarray(X).argmax(axis=1)


@pytest.fixture(scope="module")
def logits():
    """Rows that are the logits from which their labels were drawn."""
    rng = np.random.default_rng(0)
    X = 1.5 * rng.standard_normal((20_000, 4))
    return X, (softmax(X, axis=1).cumsum(axis=1) < rng.random((20_000, 1))).sum(axis=1)


def seeing(**parameters):
    return DPTemperatureScaler(Overconfident(), n_samples=20_000, **parameters)


class TestTemperature:
    @pytest.mark.thorough
    @pytest.mark.parametrize(("target", "by"), [("accuracy", 0.5), ("log_loss", 4.0)])
    def test_without_privacy_it_is_found(self, logits, target, by):
        # Standard errors of T by the delta method are below .02·by here.
        scaler = DPTemperatureScaler(Overconfident(by), epsilon=INF, target=target).fit(*logits)
        assert scaler.temperature_ == pytest.approx(by, rel=0.06)

    @pytest.mark.thorough
    def test_with_privacy_it_is_found(self, logits):
        # Noise on mean confidence, all steps together, has standard deviation 1/(nμ) = .0015.
        for _ in range(3):
            assert seeing(epsilon=0.15).fit(*logits).temperature_ == pytest.approx(2.0, rel=0.15)

    @pytest.mark.parametrize("target", ["accuracy", "log_loss"])
    def test_calibration_error_and_log_loss_fall(self, logits, target):
        X, y = logits
        scaler = seeing(epsilon=0.5, target=target).fit(X, y)
        raw, scaled = scaler.estimator_.predict_proba(X), scaler.predict_proba(X)
        assert log_loss(y, scaled) < log_loss(y, raw) - 0.05
        assert expected_calibration_error(y, scaled) < 0.5 * expected_calibration_error(y, raw)

    @pytest.mark.thorough
    def test_where_noise_is_all_there_is_it_stays_near_one(self, two_blobs):
        plan = {"epsilon": 1e-3, "n_samples": 120}
        classifier = DPVariationalLogisticRegression(INF).fit(*two_blobs)
        for _ in range(20):
            scaler = DPTemperatureScaler(FrozenEstimator(classifier), **plan).fit(*two_blobs)
            # Ten standard deviations of the mean of the last half of a walk of 30 steps of .05.
            assert abs(np.log(scaler.temperature_)) < 10 * 0.05 * np.sqrt(20)

    def test_predicted_classes_stay_and_probabilities_are_in_closed_form(self, logits):
        X, y = logits
        scaler = seeing(epsilon=0.5).fit(X, y)
        np.testing.assert_array_equal(scaler.predict(X), scaler.estimator_.predict(X))
        np.testing.assert_array_equal(scaler.predict_proba(X).argmax(axis=1), scaler.predict(X))
        expected = log_softmax(log_softmax(2 * X, axis=1) / scaler.temperature_, axis=1)
        np.testing.assert_allclose(scaler.predict_log_proba(X), expected, atol=1e-9)
        np.testing.assert_allclose(scaler.predict_proba(X), np.exp(expected), atol=1e-12)

    def test_probabilities_of_zero_and_one(self):
        X = np.repeat([[800.0, 0, 0, 0], [0, 800, 0, 0]], 50, axis=0)
        y = np.tile([0, 1], 50)  # half of them wrong, and sure
        scaler = DPTemperatureScaler(Overconfident(), epsilon=INF).fit(X, y)
        assert scaler.temperature_ > 5
        assert np.isfinite(scaler.predict_log_proba(X)).all()

    @pytest.mark.parametrize("frozen", [False, True])
    def test_records_of_any_shape_that_a_module_takes(self, two_blobs, frozen):
        X, y = two_blobs
        images = np.float32(X).reshape(-1, 1, 3, 1)
        body = nn.Sequential(nn.Flatten(), nn.Linear(3, 2))
        network = DPSGDClassifier(module=body, max_iter=3, **FACTS)
        if frozen:
            network = FrozenEstimator(network.fit(images, y))
        scaler = DPTemperatureScaler(network, n_samples=120).fit(images, y)
        assert scaler.predict_proba(images).shape == (120, 2)
        no_module = DPTemperatureScaler(DPSGDClassifier(**FACTS), n_samples=120)
        with PrivacyLedger() as ledger, pytest.raises(ValueError, match=r"dim 4.*module="):
            no_module.fit(images, y)
        assert ledger.entries == ()


class TestStatement:
    @pytest.mark.thorough
    def test_privacy_is_that_of_both(self, logits):
        scaler = seeing(epsilon=0.3).fit(*logits)
        first, second = scaler.estimator_.privacy_, scaler.temperature_privacy_
        assert second.epsilon == pytest.approx(0.3, rel=1e-6)
        assert scaler.privacy_ == first + second
        assert max(first.epsilon, 0.3) < scaler.privacy_.epsilon < first.epsilon + 0.3

    def test_the_event_in_the_ledger_is_the_trace(self, logits):
        with PrivacyLedger() as ledger, release_hook.record() as tape:
            scaler = seeing(epsilon=0.3).fit(*logits)
        (entry,) = ledger.entries
        assert entry.event == scaler.temperature_privacy_.event
        assert len(tape) == 30
        (sigma,) = {release.call.scale / release.call.sensitivity for release in tape}
        spent = epsilon_of_event(dp_sgd_event(sigma, 1.0, 30), 1e-5)
        assert spent == pytest.approx(0.3, rel=1e-6)

    @pytest.mark.quick(1)
    @pytest.mark.parametrize("target", ["accuracy", "log_loss"])
    def test_with_the_releases_frozen_nothing_depends_on_the_data(self, logits, target):
        X, y = logits
        X2, y2 = X.copy(), y.copy()
        X2[7], y2[7] = [1e300, -1e300, 0, 5e-324], 3
        with release_hook.record() as tape:
            first = seeing(target=target).fit(X, y)
        with release_hook.replay([release.output for release in tape]) as again:
            second = seeing(target=target).fit(X2, y2)
        assert [r.call for r in again] == [r.call for r in tape]
        assert pickle.dumps(vars(first)) == pickle.dumps(vars(second))

    @pytest.mark.parametrize("target", ["accuracy", "log_loss"])
    def test_one_row_moves_no_sum_further_than_declared(self, logits, target):
        X, y = logits[0][:50], logits[1][:50]
        sums = []
        for last in ([90.0, 0, 0, 0], [0, 0, 0, 1e300]):
            how = {"target": target, "max_iter": 1, "epsilon": None, "noise_multiplier": 1e-6}
            scaler = DPTemperatureScaler(Overconfident(), **how)
            with release_hook.record() as tape:
                scaler.fit(np.vstack([X[:-1], last]), y)
            sums.append(tape[0].output.item())
        assert abs(sums[0] - sums[1]) <= 2 * tape[0].call.sensitivity + 1e-4

    def test_all_its_parameters_are_checked_before_anything_is_spent(self, two_blobs):
        bad = [
            {"epsilon": 0}, {"epsilon": None}, {"delta": 2}, {"target": "ece"}, {"max_iter": 0},
            {"noise_multiplier": -1}, {"noise_multiplier": 2.0}, {"n_samples": 0},
            {"neighboring_relation": "swap"}, {"neighboring_relation": "replace_one"},
            {"accountant": "best"},
        ]  # fmt: skip
        for parameters in bad:
            scaler = DPTemperatureScaler(DPSGDClassifier(max_iter=2), **parameters)
            with PrivacyLedger() as ledger, pytest.raises(ValueError, match="Expected "):
                scaler.fit(*two_blobs)
            assert ledger.entries == ()
            assert not hasattr(scaler, "estimator_")

    @pytest.mark.parametrize("kind", ["plain", "pipeline"])
    def test_a_classifier_that_states_no_privacy_is_refused(self, two_blobs, kind):
        classifier = GaussianNB()
        if kind == "pipeline":
            classifier = make_pipeline(BoundedScaler(-5, 5), DPSGDClassifier(max_iter=2))
        with pytest.raises(ValueError, match="estimator="):
            DPTemperatureScaler(classifier).fit(*two_blobs)

    def test_a_ledger_that_refuses_leaves_nothing_behind(self, two_blobs):
        classifier = DPVariationalLogisticRegression(classes=[0, 1], n_samples=120).fit(*two_blobs)
        scaler = DPTemperatureScaler(FrozenEstimator(classifier), epsilon=0.5)
        with PrivacyLedger(epsilon=0.4, delta=1e-5), pytest.raises(BudgetExceededError):
            scaler.fit(*two_blobs)
        with pytest.raises(NotFittedError):
            scaler.predict(two_blobs[0])

    def test_a_frozen_classifier_that_is_trained_on_changes_nothing(self, two_blobs):
        X, y = two_blobs
        classifier = DPSGDClassifier(0.9, max_iter=5, **FACTS).fit(X, y)
        scaler = DPTemperatureScaler(FrozenEstimator(classifier), n_samples=120).fit(X, y)
        before = scaler.predict_proba(X)
        classifier.set_params(epsilon=INF).fit(X, y)
        np.testing.assert_array_equal(scaler.predict_proba(X), before)
        assert math.isfinite(scaler.estimator_.privacy_.epsilon)

    def test_wrong_columns_are_refused_before_anything_is_spent(self, two_blobs):
        X, y = two_blobs
        names = list("abc")
        frame = pd.DataFrame(X, columns=names)
        frozen = FrozenEstimator(DPSGDClassifier(max_iter=5, **FACTS).fit(frame, y))
        for other in (frame[names[:2]], frame[names[::-1]]):
            with PrivacyLedger() as ledger, pytest.raises(ValueError, match="feature"):
                DPTemperatureScaler(frozen, n_samples=120).fit(other, y)
            assert ledger.entries == ()

    def test_a_refusal_says_that_the_classifier_stays_charged(self, two_blobs):
        scaler = DPTemperatureScaler(DPSGDClassifier(1.0, max_iter=5, **FACTS), n_samples=120)
        with (
            PrivacyLedger(epsilon=1.0, delta=1e-5) as ledger,
            pytest.raises(BudgetExceededError, match="classifier was fitted before"),
        ):
            scaler.fit(*two_blobs)
        assert len(ledger.entries) == 1

    def test_labels_that_the_classifier_declares_are_taken(self, two_blobs):
        X, y = two_blobs
        classifier = DPSGDClassifier(classes=[0.5, 1.5], n_samples=120, max_iter=5)
        scaler = DPTemperatureScaler(classifier, n_samples=120).fit(X, y + 0.5)
        assert scaler.classes_.tolist() == [0.5, 1.5]

    def test_in_a_pipeline(self, two_blobs):
        X, y = two_blobs
        scaler = DPTemperatureScaler(DPSGDClassifier(0.9, max_iter=5), epsilon=0.2)
        model = make_pipeline(BoundedScaler(-5, 5), scaler).fit(X, y)
        assert model.predict_proba(X).shape == (120, 2)
        assert 0.9 < model[-1].privacy_.epsilon < 1.1
