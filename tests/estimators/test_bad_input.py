"""Bad parameters and bad data: an error that names the parameter, and nothing spent."""

from unittest import mock

import numpy as np
import pytest
from scipy import sparse
from sklearn.exceptions import NotFittedError

from skdp import (
    DPSGDClassifier,
    DPSGDRegressor,
    DPSGLDClassifier,
    DPSGLDRegressor,
    DPVariationalLinearRegression,
    DPVariationalLogisticRegression,
    DPVariationalPoissonRegression,
    OPSPosteriorSampler,
    OPSRegressor,
    PrivacyLedger,
    _fitting,
)

NAN, INF = float("nan"), float("inf")
SECRET = 8675309.125

COMMON = [
    *[("epsilon", bad) for bad in (0, -1, NAN, -INF, "1", None, True, [1.0], 1j)],
    *[("delta", bad) for bad in (0, 1, -1e-5, 2, NAN, INF, "1e-5", None, True)],
    *[("clip_norm", bad) for bad in (0, -1, NAN, INF, "large", None, True)],
    *[("learning_rate", bad) for bad in (0, -1, NAN, INF, "fast", None)],
    *[("max_iter", bad) for bad in (0, -1, 1.5, NAN, INF, "many", None, True)],
    *[("batch_size", bad) for bad in (0, -1, 1.5, NAN, "all", None, True)],
    *[("sampling_rate", bad) for bad in (0, -0.5, 1.5, NAN, INF, "auto")],
    *[("neighboring_relation", bad) for bad in ("replace", None, 1)],
    *[("accountant", bad) for bad in ("best", None, 1)],
    *[("n_samples", bad) for bad in (0, -1, 1.5, NAN, "many")],
]
CLASSES = [("classes", bad) for bad in ([1], [], "ab", 3, [[0, 1]], [0, 0], [None, 1])]
LINEAR = [
    *[("data_norm", bad) for bad in (0, -1, NAN, INF, "large", None, True)],
    *[("prior_scale", bad) for bad in (0, -1, NAN, INF, "wide", None)],
]
NETWORK = [
    *[("hidden_layer_sizes", bad) for bad in (10, (0,), (1.5,), (10, -1), "ab", None, [None])],
    *[("activation", bad) for bad in ("swish", None, 1)],
    *[("module", bad) for bad in ("mlp", 3, lambda d, k: None)],
    *[("epochs", bad) for bad in (0, -1, NAN, INF, "ten", True)],
    *[("clipping", bad) for bad in ("adaptive", None, 1)],
    *[("physical_batch_size", bad) for bad in (0, -1, 1.5, "auto", True)],
    *[("device", bad) for bad in ("tpu", "cuda:99", 1.5)],
]
DESCENT = [
    *[("optimizer", bad) for bad in ("sgdm", None, 1)],
    *[("learning_rate_schedule", bad) for bad in ("step", None, 1, lambda done: -1, lambda d: NAN)],
    *[("averaging", bad) for bad in (-0.1, 1.5, NAN, "half", None, True)],
]
COIN = np.random.default_rng(0)
CHAIN = [
    *[("learning_rate", bad) for bad in (lambda t: 1.0 + t, lambda t: 5.0 - t, lambda t: NAN)],
    *[("learning_rate", bad) for bad in (lambda: 1.0, lambda t: "1", lambda t: INF)],
    ("learning_rate", lambda t: 2.0 - t / 1e3 - COIN.random() / 1e6),
    *[("decay_exponent", bad) for bad in (-0.1, 1.5, NAN, "slow", None, True)],
    *[("decay_offset", bad) for bad in (0, -1, NAN, INF, "late", None, True)],
    *[("prior_scale", bad) for bad in (0, -1, NAN, "wide", None, True)],
    *[("burn_in", bad) for bad in (-1, 1.5, 100, 10**9, NAN, "half", None, True)],
    *[("thinning", bad) for bad in (0, -1, 1.5, 51, 10**9, NAN, "all", None, True)],
    *[("prenoise_scale", bad) for bad in (-1, NAN, INF, "some", None, True)],
]
POSTERIOR = [
    *[("n_posterior_samples", bad) for bad in (0, -1, 1.5, NAN, "many", None, True)],
    *[("sampler", bad) for bad in ("mcmc", None, 1)],
    *[("theta_norm", bad) for bad in (0, -1, NAN, -INF, "wide", None, True)],
    *[("step_size", bad) for bad in (0, -1, NAN, INF, 1e3, "long", None, True)],
]
REGRESSION_NOISE = [
    (name, bad)
    for name in ("noise_scale", "residual_bound")
    for bad in (0, -1, NAN, INF, "small", None, True)
]
BOUNDS = [("target_bounds", bad) for bad in ((1, 0), (0,), 3, "ab", (0, INF), (NAN, 1), (0, 0))]
INFERENCE = [
    *[("inference", bad) for bad in ("vi", None, 1)],
    *[("covariance", bad) for bad in ("mean-field", None, 1)],
    *[("gradient", bad) for bad in ("sgd", None, 1)],
]
COUNTS = [("largest_count", bad) for bad in (0, -1, NAN, INF, "many", None, True)]
OWN = {
    DPVariationalLogisticRegression: CLASSES + LINEAR + INFERENCE,
    DPVariationalPoissonRegression: LINEAR + INFERENCE + COUNTS,
    DPVariationalLinearRegression: LINEAR + BOUNDS,
    DPSGDClassifier: CLASSES + NETWORK + DESCENT,
    DPSGDRegressor: NETWORK + DESCENT + BOUNDS,
    DPSGLDClassifier: CLASSES + NETWORK + CHAIN,
    DPSGLDRegressor: NETWORK + CHAIN + BOUNDS,
    OPSPosteriorSampler: CLASSES + LINEAR + POSTERIOR,
    OPSRegressor: LINEAR + POSTERIOR + REGRESSION_NOISE + BOUNDS,
}
SAMPLERS = [OPSPosteriorSampler, OPSRegressor]
BAD_PARAMETERS = [
    (kind, name, bad)
    for kind, own in OWN.items()
    for name, bad in COMMON + own
    if name in kind().get_params() and not (kind in SAMPLERS and (name, bad) == ("delta", 0))
]
ESTIMATORS = list(OWN)
REGRESSORS = [
    DPVariationalPoissonRegression,
    DPVariationalLinearRegression,
    DPSGDRegressor,
    DPSGLDRegressor,
    OPSRegressor,
]
CLASSIFIERS = [
    DPVariationalLogisticRegression,
    DPSGDClassifier,
    DPSGLDClassifier,
    OPSPosteriorSampler,
]
# The parameter that may be given instead of epsilon.
INSTEAD = dict.fromkeys(ESTIMATORS, "noise_multiplier")
INSTEAD |= {DPSGLDClassifier: "temperature", DPSGLDRegressor: "temperature"}
INSTEAD |= dict.fromkeys(SAMPLERS, "likelihood_power")


@pytest.mark.parametrize(("kind", "name", "bad"), BAD_PARAMETERS)
def test_a_bad_parameter_is_named_before_anything_is_spent(kind, name, bad, two_blobs):
    with PrivacyLedger() as ledger, pytest.raises(ValueError, match=f"Expected {name}=") as error:
        kind(**{name: bad}).fit(*two_blobs)
    assert type(bad).__name__ in str(error.value)
    assert ledger.entries == ()


@pytest.mark.parametrize("kind", ESTIMATORS)
@pytest.mark.parametrize("bad", [0, -1, NAN, INF, "1", True])
def test_a_bad_noise_is_named(kind, bad, two_blobs):
    name = INSTEAD[kind]
    with PrivacyLedger() as ledger, pytest.raises(ValueError, match=f"{name}="):
        kind(None, **{name: bad}).fit(*two_blobs)
    assert ledger.entries == ()


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_alternatives_may_not_both_be_given(kind, two_blobs):
    name = INSTEAD[kind]
    with pytest.raises(ValueError, match=rf"epsilon=1\.0.*None when {name}"):
        kind(1.0, **{name: 2.0}).fit(*two_blobs)
    if "sampling_rate" not in kind().get_params():
        return
    with pytest.raises(ValueError, match="batch_size=10"):
        kind(batch_size=10, sampling_rate=0.1).fit(*two_blobs)


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_add_or_remove_needs_a_declared_number_of_rows(kind, two_blobs):
    with pytest.raises(ValueError, match="n_samples=None"):
        kind(neighboring_relation="add_or_remove_one").fit(*two_blobs)


def with_value(value):
    def change(X, y):
        X = X.copy()
        X[3, 1] = value
        return X, y

    return change


BAD_DATA = {
    "NaN in X": (with_value(NAN), "NaN"),
    "inf in X": (with_value(INF), "infinity"),
    "-inf in X": (with_value(-INF), "infinity"),
    "one class": (lambda X, y: (X, np.zeros_like(y)), "one class"),
    "lengths differ": (lambda X, y: (X, y[:-1]), "inconsistent numbers of samples"),
    "sparse X": (lambda X, y: (sparse.csr_array(X), y), "toarray"),
    "no rows": (lambda X, y: (X[:0], y[:0]), "0 sample"),
    "no columns": (lambda X, y: (X[:, :0], y), "0 feature"),
    "one-dimensional X": (lambda X, y: (X[:, 0], y), "2D array"),
    "three-dimensional X": (lambda X, y: (X[:, :, None], y), "dim 3"),
    "text in X": (lambda X, y: (np.where(X > 9, X, f"patient {SECRET}"), y), "encode text"),
    "objects in X": (lambda X, y: ([["a", SECRET]] * 120, y), "encode text"),
    "complex X": (lambda X, y: (X + 1j, y), "[Cc]omplex"),
    "NaN in y": (lambda X, y: (X, np.where(y, NAN, 0.0)), "NaN"),
    "continuous y": (lambda X, y: (X, X[:, 0]), "[Uu]nknown label type"),
    "two columns of y": (lambda X, y: (X, np.column_stack([y, y])), "1d array|label type"),
    "no y": (lambda X, y: (X, None), "y"),
}


EXACT = [
    *[({"sampler": "langevin"}, "sampler")],
    *[({"theta_norm": bad}, "theta_norm") for bad in (INF, 0, -1, NAN)],
    *[({name: 3}, name) for name in ("step_size", "max_iter", "batch_size")],
]


@pytest.mark.parametrize("kind", SAMPLERS)
@pytest.mark.parametrize(("parameters", "name"), EXACT)
def test_what_pure_privacy_cannot_take_is_named(kind, parameters, name, two_blobs):
    with PrivacyLedger() as ledger, pytest.raises(ValueError, match=f"Expected {name}="):
        kind(delta=0, **parameters).fit(*two_blobs)
    assert ledger.entries == ()


# What a regressor takes, or words in its own way.
REGRESSION = {
    "one class": None,
    "continuous y": None,
    "two columns of y": None,
    "NaN in y": "NaN",
}


@pytest.mark.parametrize("kind", BAD_DATA)
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_bad_data_is_refused_before_anything_is_spent(estimator, kind, two_blobs):
    change, message = BAD_DATA[kind]
    if estimator in REGRESSORS and REGRESSION.get(kind, message) is None:
        pytest.skip("fine for a regressor")
    X, y = change(*two_blobs)
    with (
        PrivacyLedger() as ledger,
        pytest.raises((ValueError, TypeError), match=message) as error,
    ):
        estimator().fit(X, y)
    assert ledger.entries == ()
    assert str(SECRET) not in str(error.value)


def test_more_rows_than_the_rounding_bound_covers_are_refused(two_blobs, monkeypatch):
    monkeypatch.setattr(_fitting, "MAX_ROWS", 119)
    with PrivacyLedger() as ledger, pytest.raises(ValueError, match="at most 119 rows"):
        DPVariationalLogisticRegression().fit(*two_blobs)
    assert ledger.entries == ()


@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_a_label_outside_the_declared_classes_is_not_quoted(kind, two_blobs):
    X, y = two_blobs
    y = y.astype(float)
    y[5] = 8675309
    with PrivacyLedger() as ledger, pytest.raises(ValueError, match="declared classes") as error:
        kind(classes=[0, 1]).fit(X, y)
    assert ledger.entries == ()
    assert "8675309" not in str(error.value)


@pytest.mark.parametrize("kind", ESTIMATORS)
@pytest.mark.parametrize("value", [1e308, -1e308, 5e-324, 1e-200])
def test_extreme_but_finite_values_give_a_valid_release(kind, value, two_blobs):
    X, y = with_value(value)(*two_blobs)
    model = kind(max_iter=5).fit(X, y)
    assert np.isfinite(model.predict(two_blobs[0])).all()
    assert model.privacy_.valid


@pytest.mark.parametrize("kind", CLASSIFIERS)
@pytest.mark.parametrize(
    "shape", [(1, 3), (2, 30), (120, 1)], ids=["one row", "more columns than rows", "one column"]
)
def test_odd_shapes_give_a_valid_release(kind, shape):
    X = np.random.default_rng(0).uniform(-1, 1, shape)
    y = np.arange(shape[0]) % 2
    classifier = kind(classes=[0, 1]).fit(X, y)
    assert np.isfinite(classifier.predict_proba(X)).all()


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_constant_columns_and_duplicates_give_a_valid_release(kind):
    X, y = np.ones((1000, 4)), np.arange(1000) % 2
    assert np.isfinite(kind().fit(X, y).predict(X)).all()


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_prediction_before_fit_is_an_error(kind, two_blobs):
    X, _ = two_blobs
    for method in ("predict", "predict_proba", "decision_function", "sample_predictive"):
        if hasattr(kind, method):
            with pytest.raises(NotFittedError):
                getattr(kind(), method)(X)
    with pytest.raises(NotFittedError):
        kind().sample_posterior()


@pytest.mark.parametrize("kind", ESTIMATORS)
@pytest.mark.parametrize("n_samples", [0, -1, 1.5, "1", None])
def test_a_number_of_draws_that_is_none_is_named(kind, n_samples, two_blobs):
    if kind in SAMPLERS and n_samples is None:
        pytest.skip("None is all that were paid for")
    model = kind(max_iter=2).fit(*two_blobs)
    with pytest.raises(ValueError, match="n_samples="):
        model.sample_posterior(n_samples)


SAMPLER_TROUBLE = [
    ({"theta_norm": np.array([1.0, 2.0])}, "Expected theta_norm="),
    ({"delta": 0, "step_size": np.array([1, 2])}, "Expected step_size="),
    ({"fit_intercept": "no"}, "Expected fit_intercept='no'"),
    ({"n_samples": 10**12}, "Expected n_samples="),
    ({"n_samples": 10**400}, "Expected n_samples="),
    ({"prior_scale": 1e50}, "take years"),
    ({"delta": 0, "prior_scale": 1e50}, "take years"),
    ({"step_size": 1e-300}, "take years"),
    (
        {"neighboring_relation": "add_or_remove_one", "n_samples": 200, "batch_size": 50},
        "Expected batch_size=50",
    ),
]


@pytest.mark.parametrize("kind", SAMPLERS)
@pytest.mark.parametrize(("parameters", "message"), SAMPLER_TROUBLE)
def test_a_sampler_refuses_what_would_never_end_or_says_what_is_wrong(
    kind, parameters, message, two_blobs
):
    relation = parameters.get("neighboring_relation", "zero_out")
    ledger = PrivacyLedger(neighboring_relation=relation)
    with ledger, pytest.raises(ValueError, match=message):
        kind(**parameters).fit(*two_blobs)
    assert ledger.entries == ()


@pytest.mark.parametrize("bounds", [(-1e308, 1e308), (0, 5e-324), (1e16, 1e16 + 2)])
@pytest.mark.parametrize("delta", [0, 1e-5])
def test_extreme_bounds_of_targets_are_named_or_work(bounds, delta, two_blobs):
    X, y = two_blobs
    if bounds == (1e16, 1e16 + 2):
        assert OPSRegressor(1.0, delta, target_bounds=bounds).fit(X, y).privacy_.valid
        return
    with pytest.raises(ValueError, match="Expected target_bounds="):
        OPSRegressor(1.0, delta, target_bounds=bounds).fit(X, y)


@pytest.mark.parametrize("sampler", ["rejection", "proximal"])
@pytest.mark.parametrize("value", [1e10, 1e17, 1.7e308])
def test_one_absurd_target_does_not_drown_the_others(sampler, value, two_blobs):
    X, y = two_blobs
    y = y.astype(float)
    y[0] = value
    regressor = OPSRegressor(None, 0, likelihood_power=0.01, theta_norm=3.0, sampler=sampler)
    assert np.isfinite(regressor.fit(X, y).predict(X)).all()


def test_a_long_run_is_announced_before_it_starts(two_blobs):
    sampler = OPSPosteriorSampler(max_iter=10**8)
    stopped = RuntimeError("stopped here")
    with (
        pytest.warns(UserWarning, match="minutes"),
        mock.patch("skdp.algorithms.langevin.LangevinConfig.run", side_effect=stopped),
        pytest.raises(RuntimeError, match="stopped here"),
    ):
        sampler.fit(*two_blobs)
