import math
import warnings

import numpy as np
import pytest
from reference.mean_field import mean_field_optimum
from refusals import refused
from scipy import stats
from scipy.special import softmax
from sklearn.datasets import load_iris
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline

from skdp import BoundedScaler, DPVariationalLogisticRegression, PrivacyLedger, PrivacyWarning
from skdp.privacy import epsilon as epsilon_of


def fit_quietly(estimator, X, y):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        return estimator.fit(X, y)


class TestPredictions:
    def test_probabilities_are_the_average_of_the_predictive_draws(self, two_blobs):
        X, y = two_blobs
        classifier = DPVariationalLogisticRegression().fit(X, y)
        draws = classifier.sample_predictive(X[:10], 20_000, random_state=0)
        assert draws.shape == (20_000, 10, 2)
        np.testing.assert_allclose(draws.sum(axis=2), 1, rtol=1e-12)
        # Standard error of a mean of 20 000 values in [0, 1] is at most .0036.
        np.testing.assert_allclose(
            draws.mean(axis=0), classifier.predict_proba(X[:10]), atol=6 * 0.0036
        )

    def test_softmax_probabilities_are_the_average_of_the_predictive_draws(self):
        X, y = load_iris(return_X_y=True)
        X -= X.mean(axis=0)
        classifier = DPVariationalLogisticRegression(epsilon=5.0).fit(X, y)
        rows = X[::15]
        averaged = classifier.sample_predictive(rows, 20_000, random_state=0).mean(axis=0)
        np.testing.assert_allclose(classifier.predict_proba(rows), averaged, atol=0.01)
        # Probabilities at the mean, without the covariance, would be refused.
        plug_in = softmax(rows @ classifier.coef_.T + classifier.intercept_, axis=1)
        assert np.abs(plug_in - averaged).max() > 0.02

    def test_posterior_draws_have_the_reported_mean_and_covariance(self, two_blobs):
        classifier = DPVariationalLogisticRegression().fit(*two_blobs)
        draws = classifier.sample_posterior(50_000, random_state=0)
        assert classifier.parameter_names_ == ["x0", "x1", "x2", "intercept"]
        mean = np.append(classifier.coef_.ravel(), classifier.intercept_)
        scale = np.sqrt(np.diag(classifier.covariance_))
        assert classifier.covariance_.shape == (4, 4)
        for column, m, s in zip(draws.T, mean, scale, strict=True):
            assert stats.kstest((column - m) / s, "norm").pvalue > 1e-6

    def test_decision_function_orders_as_the_probabilities(self, two_blobs):
        X, y = two_blobs
        classifier = DPVariationalLogisticRegression().fit(X, y)
        decision = classifier.decision_function(X)
        assert decision.shape == (len(X),)
        np.testing.assert_array_equal(classifier.predict(X), (decision > 0).astype(int))
        np.testing.assert_allclose(
            1 / (1 + np.exp(-decision)), classifier.predict_proba(X)[:, 1], rtol=1e-9
        )
        np.testing.assert_allclose(
            np.exp(classifier.predict_log_proba(X)), classifier.predict_proba(X), rtol=1e-12
        )

    def test_multiclass_names_and_shapes(self):
        X, y = load_iris(return_X_y=True, as_frame=True)
        names = np.array(["a", "b", "c"])[y]
        classifier = DPVariationalLogisticRegression(data_norm=10.0).fit(X, names)
        assert classifier.coef_.shape == (3, 4)
        assert classifier.intercept_.shape == (3,)
        assert classifier.parameter_names_[4] == "a: intercept"
        assert classifier.parameter_names_[5] == "b: sepal length (cm)"
        assert classifier.sample_posterior(7).shape == (7, 15)
        assert classifier.decision_function(X).shape == (150, 3)
        assert set(classifier.predict(X)) <= set(names)

    def test_rows_beyond_the_norm_predict_as_rows_at_the_norm(self, two_blobs):
        X, y = two_blobs
        classifier = DPVariationalLogisticRegression(data_norm=0.5).fit(X, y)
        far = 1e6 * X
        at_the_norm = 0.5 * X / np.linalg.norm(X, axis=1, keepdims=True)
        np.testing.assert_allclose(
            classifier.predict_proba(far), classifier.predict_proba(at_the_norm), rtol=1e-9
        )

    def test_without_intercept(self, two_blobs):
        classifier = DPVariationalLogisticRegression(fit_intercept=False).fit(*two_blobs)
        assert classifier.intercept_.tolist() == [0.0]
        assert classifier.parameter_names_ == ["x0", "x1", "x2"]


class TestUtility:
    @pytest.mark.thorough
    @pytest.mark.parametrize(
        ("epsilon", "least_accuracy", "most_log_loss"),
        [
            pytest.param(0.5, 0.93, 0.20, marks=pytest.mark.slow),
            (1.0, 0.94, 0.18),
            pytest.param(3.0, 0.955, 0.15, marks=pytest.mark.slow),
        ],
    )
    def test_breast_cancer_with_defaults(
        self, breast_cancer, epsilon, least_accuracy, most_log_loss
    ):
        # For the mean of ten splits. Log-loss was .13 at ε = 1 with the inference before 0.3.
        rows, y = breast_cancer
        found = []
        for seed in range(10):
            A, B, a, b = train_test_split(rows, y, test_size=0.3, random_state=seed, stratify=y)
            classifier = DPVariationalLogisticRegression(
                epsilon, data_norm=1.0, fit_intercept=False, random_state=seed
            )
            fit_quietly(classifier, A, a)
            found.append((classifier.score(B, b), log_loss(b, classifier.predict_proba(B))))
        accuracy, loss = np.mean(found, axis=0)
        assert accuracy >= least_accuracy
        assert loss <= most_log_loss

    @pytest.mark.quick(1)
    @pytest.mark.parametrize("prior_scale", ["auto", 1.0, 5.0])
    def test_without_privacy_it_is_the_mean_field_optimum(self, breast_cancer, prior_scale):
        rows, y = breast_cancer
        classifier = DPVariationalLogisticRegression(
            math.inf,
            inference="dpvi",
            data_norm=1.0,
            fit_intercept=False,
            prior_scale=prior_scale,
            random_state=0,
        ).fit(rows, y)
        mean, scale = mean_field_optimum(rows, y, classifier.prior_scale_)
        found = classifier.coef_.ravel()
        assert np.linalg.norm(found - mean) <= 0.03 * np.linalg.norm(mean)
        np.testing.assert_allclose(np.sqrt(np.diag(classifier.covariance_)), scale, rtol=0.05)

    def test_poisson_batches_learn_too(self, breast_cancer):
        rows, y = breast_cancer
        classifier = DPVariationalLogisticRegression(
            3.0,
            inference="dpvi",
            data_norm=1.0,
            fit_intercept=False,
            batch_size=100,
            random_state=0,
        )
        fit_quietly(classifier, rows, y)
        assert classifier.sampling_rate_ == pytest.approx(100 / 569)
        assert classifier.score(rows, y) > 0.92

    # A chain that takes another turn for a rounding is another chain: powers of two round alike.
    @pytest.mark.parametrize(
        ("inference", "unit"),
        [("dpvi", 1e-4), ("dpvi", 1e4), ("noise_aware", 2.0**-12), ("noise_aware", 2.0**12)],
    )
    def test_the_units_of_the_features_do_not_matter(self, two_blobs, inference, unit, monkeypatch):
        from skdp.fitting import charge
        from skdp.fitting.streams import Streams

        monkeypatch.setattr(charge, "streams", lambda *_: Streams(b"units"))
        X, y = two_blobs
        found = []
        for c in (1.0, unit):
            classifier = DPVariationalLogisticRegression(
                5.0, inference=inference, data_norm=1.7 * c, fit_intercept=False
            ).fit(c * X, y)
            scale = np.sqrt(np.diag(classifier.covariance_))
            found.append((c * classifier.coef_.ravel(), c * scale))
        np.testing.assert_allclose(found[0], found[1], rtol=1e-6)


class TestPrivacyStatement:
    @pytest.mark.parametrize("relation", ["zero_out", "add_or_remove_one", "replace_one"])
    @pytest.mark.parametrize("rate", [1.0, 0.25])
    def test_the_budget_is_met_and_the_noise_is_what_it_needs(self, two_blobs, relation, rate):
        classifier = DPVariationalLogisticRegression(
            0.7,
            1e-6,
            inference="dpvi",
            neighboring_relation=relation,
            sampling_rate=rate,
            n_samples=120,
        ).fit(*two_blobs)
        assert 0.69 < classifier.privacy_.epsilon <= 0.7
        assert classifier.privacy_.delta == 1e-6
        assert classifier.privacy_.epsilon == epsilon_of(
            noise_multiplier=classifier.noise_multiplier_,
            sampling_rate=rate,
            n_steps=classifier.n_iter_ + 1,  # and the counts
            delta=1e-6,
            neighboring_relation=relation,
        )

    @pytest.mark.parametrize("relation", ["zero_out", "add_or_remove_one", "replace_one"])
    @pytest.mark.parametrize("accountant", ["auto", "rdp"])
    def test_the_noise_aware_budget_is_met(self, two_blobs, relation, accountant):
        report = (
            DPVariationalLogisticRegression(
                0.7, 1e-6, neighboring_relation=relation, accountant=accountant, n_samples=120
            )
            .fit(*two_blobs)
            .privacy_
        )
        assert 0.69 < report.epsilon <= 0.7

    def test_a_noise_multiplier_fixes_the_gradients_and_the_report_counts_all_releases(
        self, two_blobs
    ):
        classifier = DPVariationalLogisticRegression(None, noise_multiplier=4.0, max_iter=16)
        report = classifier.fit(*two_blobs).privacy_
        assert classifier.noise_multiplier_ == 4.0
        gradients_alone = epsilon_of(noise_multiplier=4.0, n_steps=16, delta=1e-5)
        assert gradients_alone < report.epsilon < 1.3 * gradients_alone

    @pytest.mark.parametrize(
        "setting",
        [
            {"batch_size": 20},
            {"sampling_rate": 0.5},
            {"learning_rate": 0.1},
            {"gradient": "vanilla"},
        ],
    )
    def test_what_the_noise_aware_inference_has_no_use_for_is_refused(self, two_blobs, setting):
        with refused(f"{next(iter(setting))}.*inference='dpvi'"):
            DPVariationalLogisticRegression(**setting).fit(*two_blobs)

    def test_a_given_noise_multiplier_is_accounted(self, two_blobs):
        classifier = DPVariationalLogisticRegression(
            None, noise_multiplier=4.0, max_iter=15, inference="dpvi"
        )
        report = classifier.fit(*two_blobs).privacy_  # 15 gradients, and the counts
        assert report.epsilon == pytest.approx(4.377178, abs=1e-6)

    def test_a_class_may_be_declared_that_the_data_lacks(self, two_blobs):
        X, y = two_blobs
        classifier = DPVariationalLogisticRegression(classes=[0, 1]).fit(X, np.zeros_like(y))
        assert classifier.classes_.tolist() == [0, 1]
        assert (classifier.predict_proba(X)[:, 0] > 0.5).all()


class TestScikitLearn:
    @pytest.mark.thorough
    def test_epsilon_is_an_ordinary_hyperparameter(self, two_blobs):
        X, y = two_blobs
        pipeline = make_pipeline(
            BoundedScaler(), DPVariationalLogisticRegression(classes=[0, 1], max_iter=30)
        )
        name = "dpvariationallogisticregression__epsilon"
        with PrivacyLedger() as ledger:
            search = GridSearchCV(pipeline, {name: [0.1, 100.0]}, cv=3).fit(X, y)
        assert search.best_params_ == {name: 100.0}
        assert search.best_estimator_[-1].privacy_.epsilon == pytest.approx(100.0)
        assert len(ledger.entries) == 7  # each fold and each candidate, and the refit
