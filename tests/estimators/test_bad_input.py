"""What a class refuses in words of its own; what all refuse is in `contracts`."""

from unittest import mock

import numpy as np
import pandas as pd
import pytest
from bundles import bundled
from refusals import refused
from scipy import sparse
from sklearn.utils import get_tags

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
)

NAN, INF = float("nan"), float("inf")
SECRET = 8675309.125
SAMPLERS = [OPSPosteriorSampler, OPSRegressor]
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


@bundled("kind", SAMPLERS)
@bundled(("parameters", "name"), EXACT)
def test_what_pure_privacy_cannot_take_is_named(kind, parameters, name, two_blobs):
    with refused(f"Expected {name}="):
        kind(delta=0, **parameters).fit(*two_blobs)


# What a regressor takes, or words in its own way.
REGRESSION = {"one class": None, "continuous y": None, "two columns of y": None, "NaN in y": "NaN"}


@bundled("estimator", [*CLASSIFIERS, *REGRESSORS])
def test_bad_data_is_refused_in_words_that_fit(estimator, two_blobs):
    for kind, (change, message) in BAD_DATA.items():
        if estimator in REGRESSORS and REGRESSION.get(kind, message) is None:
            continue
        if kind == "sparse X" and get_tags(estimator()).input_tags.sparse:
            continue
        if estimator in (DPSGDClassifier, DPSGLDClassifier) and kind == "two columns of y":
            continue  # labels that do not exclude each other
        with refused(message, (ValueError, TypeError)) as error:
            estimator().fit(*change(*two_blobs))
        assert str(SECRET) not in str(error.value)


def test_more_rows_than_the_rounding_bound_covers_are_refused(two_blobs, monkeypatch):
    monkeypatch.setattr(DPVariationalLogisticRegression, "_max_rows", 119)
    with refused("at most 119 rows"):
        DPVariationalLogisticRegression().fit(*two_blobs)


@pytest.mark.parametrize("kind", CLASSIFIERS)
@pytest.mark.parametrize(
    "shape", [(1, 3), (2, 30), (120, 1)], ids=["one row", "more columns than rows", "one column"]
)
def test_odd_shapes_give_a_valid_release(kind, shape):
    X = np.random.default_rng(0).uniform(-1, 1, shape)
    y = np.arange(shape[0]) % 2
    classifier = kind(classes=[0, 1]).fit(X, y)
    assert np.isfinite(classifier.predict_proba(X)).all()


SAMPLER_TROUBLE = [
    ({"theta_norm": np.array([1.0, 2.0])}, "Expected theta_norm="),
    ({"delta": 0, "step_size": np.array([1, 2])}, "Expected step_size="),
    ({"fit_intercept": "no"}, "Expected fit_intercept='no'"),
    ({"n_samples": 10**12}, "Expected n_samples="),
    ({"n_samples": 10**400}, "Expected n_samples="),
    ({"prior_scale": 1e50}, "take years"),
    ({"delta": 0, "theta_norm": 1e9, "prior_scale": 1e9}, "give a smaller theta_norm"),
    ({"delta": 0, "sampler": "proximal"}, "'rejection'; which is exact as implemented"),
    ({"sampler": "proximal"}, "'rejection'; which is exact as implemented"),
    ({"step_size": 1e-90}, "take years"),
    (
        {"neighboring_relation": "add_or_remove_one", "n_samples": 200, "batch_size": 50},
        "Expected batch_size=50",
    ),
]


@bundled("kind", SAMPLERS)
@bundled(("parameters", "message"), SAMPLER_TROUBLE)
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


@pytest.mark.parametrize("value", [1e10, 1e17, 1.7e308])
def test_one_absurd_target_does_not_drown_the_others(value, two_blobs):
    X, y = two_blobs
    y = y.astype(float)
    y[0] = value
    regressor = OPSRegressor(None, 0, likelihood_power=0.01, theta_norm=3.0)
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


def test_a_name_of_two_columns_is_named():
    frame = pd.DataFrame(np.zeros((40, 3)), columns=["a", "b", "a"])
    model = DPVariationalLogisticRegression(classes=[0, 1], n_samples=40)
    with refused(r"\['a'\] twice: rename"):
        model.fit(frame, np.arange(40) % 2)


@pytest.mark.parametrize("declared", [["no", "yes"], None])
def test_labels_of_numpys_newer_text_are_labels(declared):
    X = np.tile([[-1.0], [1.0]], (50, 1))
    y = np.tile(["no", "yes"], 50)
    model = DPVariationalLogisticRegression(50.0, classes=declared, n_samples=100)
    fitted = model.fit(X, y.astype(np.dtypes.StringDType()))
    assert fitted.predict(X[:2]).tolist() == ["no", "yes"]
    assert fitted.score(X, y.astype(np.dtypes.StringDType())) == fitted.score(X, y) > 0.9


@pytest.mark.parametrize("kind", [np.float32, np.float16])
def test_rows_of_the_declared_norm_are_not_longer_for_their_precision(kind):
    rows = np.random.default_rng(0).normal(size=(500, 32)).astype(kind)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    model = DPVariationalLogisticRegression(
        50.0, classes=[0, 1], data_norm=1.0, n_samples=500, max_iter=3
    )
    model.fit(rows, (rows[:, 0] > 0).astype(int))
    assert not [told for told in model.diagnostics_ if "longer" in told]


def test_values_at_their_bounds_are_not_beyond_for_their_precision():
    rows, bounds = np.tile(np.float32([[0.1], [-0.1]]), (250, 1)), (-0.1, 0.1)
    model = DPVariationalLinearRegression(50.0, bounds=bounds, target_bounds=bounds, n_samples=500)
    assert model.fit(rows, rows[:, 0]).diagnostics_ == ()
