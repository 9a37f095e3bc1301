"""Scalers, linear and additive models in ONNX predict as they do in Python."""

import json
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import skdp
from skdp import (
    DPPCA,
    AdditiveFeatures,
    BoundedScaler,
    DPAdditiveClassifier,
    DPAdditivePoissonRegressor,
    DPAdditiveRegressor,
    DPBins,
    DPQuantileScaler,
    DPStandardScaler,
    DPVariationalLinearRegression,
    DPVariationalLogisticRegression,
    DPVariationalPoissonRegression,
    NormClipper,
    OPSPosteriorSampler,
    OPSRegressor,
    privacy_of,
)

pytest.importorskip("skl2onnx")
runtime = pytest.importorskip("onnxruntime")

from skdp.onnx import to_onnx  # noqa: E402

RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (200, 3))
Y = (X[:, 0] > 0).astype(int)
FACTS = {"n_samples": 200}
TWO = {"classes": [0, 1], **FACTS}
NAMED = np.array(["home", "ward"])
# Rows to predict: those of the fit, some beyond all bounds and norms, and zero.
ROWS = np.vstack([X[:50], 30 * X[50:60], np.zeros((1, 3))])


def predicted(model, rows):
    session = runtime.InferenceSession(model.SerializeToString())
    names = [given.name for given in session.get_inputs()]
    if isinstance(rows, pd.DataFrame):  # an input for each column
        return session.run(None, {name: rows[[name]].to_numpy() for name in names})
    return session.run(None, {names[0]: rows})


def fit(estimator, y=None, rows=X):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", skdp.FitWarning)
        return estimator.fit(rows, y)


SCALERS = {
    "bounds": BoundedScaler([-1, -2, 0], [1, 2, 1]),
    "standard": DPStandardScaler(epsilon=5.0, output_norm=1.2),
    "quantiles": DPQuantileScaler(-1, 1, epsilon=5.0),
    "clipper": NormClipper(0.7),
    "components": DPPCA(2, epsilon=5.0),
    "bins": DPBins(-1, 1, n_bins=5, epsilon=5.0),
    "numbers of bins": DPBins(-1, 1, epsilon=5.0, encode="ordinal"),
    "waves": AdditiveFeatures(edges=[[-1, 0, 0.5, 1], [0, 1], [-1, 1]]),
}
CLASSIFIERS = {
    "logistic": (DPVariationalLogisticRegression(**TWO), Y),
    "no intercept": (DPVariationalLogisticRegression(fit_intercept=False, **TWO), Y),
    "diagonal": (
        DPVariationalLogisticRegression(inference="dpvi", covariance="diag", max_iter=5, **TWO),
        Y,
    ),
    "names": (DPVariationalLogisticRegression(classes=["home", "ward"], **FACTS), NAMED[Y]),
    "samples": (OPSPosteriorSampler(n_posterior_samples=5, **TWO), Y),
    "three": (
        OPSPosteriorSampler(n_posterior_samples=4, classes=[0, 1, 2], **FACTS),
        RNG.integers(0, 3, 200),
    ),
}
REGRESSORS = {
    "linear": (DPVariationalLinearRegression(target_bounds=(-3, 5), **FACTS), X[:, 0] + 1),
    "counts": (DPVariationalPoissonRegression(largest_count=4, **FACTS), RNG.poisson(1, 200)),
    "samples": (OPSRegressor(target_bounds=(-3, 5), n_posterior_samples=3, **FACTS), X[:, 0]),
}


@pytest.mark.parametrize("name", SCALERS)
def test_scalers(name):
    fitted = fit(SCALERS[name])
    for rows, rtol in ((ROWS, 1e-12), (ROWS.astype(np.float32), 2e-6)):
        (found,) = predicted(to_onnx(fitted, rows[:1]), rows)
        assert found.dtype == rows.dtype
        np.testing.assert_allclose(found, fitted.transform(rows), rtol=rtol, atol=rtol)


@pytest.mark.parametrize("name", ["bounds", "standard", "quantiles", "bins", "waves"])
def test_missing_values(name):
    fitted, rows = fit(SCALERS[name]), ROWS.copy()
    rows[3, 1] = rows[4, 0] = np.nan
    (found,) = predicted(to_onnx(fitted, rows[:1]), rows)
    np.testing.assert_allclose(found, fitted.transform(rows), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_classifiers(name):
    fitted = fit(*CLASSIFIERS[name])
    labels, probabilities = predicted(to_onnx(fitted, ROWS[:1]), ROWS)
    np.testing.assert_allclose(probabilities, fitted.predict_proba(ROWS), rtol=0, atol=1e-7)
    np.testing.assert_array_equal(labels, fitted.predict(ROWS))


@pytest.mark.parametrize("name", REGRESSORS)
def test_regressors(name):
    fitted = fit(*REGRESSORS[name])
    for rows in (ROWS, pd.DataFrame(ROWS, columns=["a", "b", "c"])):
        (found,) = predicted(to_onnx(fitted, rows[:1]), rows)
        np.testing.assert_allclose(found[:, 0], fitted.predict(ROWS), rtol=1e-11, atol=1e-13)


def test_a_pipeline_with_its_statement():
    steps = (
        FunctionTransformer(),
        BoundedScaler(-1, 1),
        DPStandardScaler(epsilon=1.0),
        DPPCA(2, epsilon=1.0),
        DPVariationalLogisticRegression(**TWO),
    )
    fitted = fit(make_pipeline(*steps), Y)
    model = to_onnx(fitted, ROWS[:1])
    labels, probabilities = predicted(model, ROWS)
    np.testing.assert_allclose(probabilities, fitted.predict_proba(ROWS), rtol=0, atol=1e-7)
    np.testing.assert_array_equal(labels, fitted.predict(ROWS))
    stated = {entry.key: entry.value for entry in model.metadata_props}["privacy"]
    assert json.loads(stated) == json.loads(privacy_of(fitted).to_json())


def test_three_classes_of_a_normal_posterior_are_refused_by_name():
    model = DPVariationalLogisticRegression(classes=[0, 1, 2], **FACTS)
    fitted = fit(model, RNG.integers(0, 3, 200))
    with pytest.raises(ValueError, match=r"classes=.*two, for DPVariationalL.*OPSPost"):
        to_onnx(fitted, ROWS[:1])


def test_what_is_not_fitted_is_refused():
    for model in (DPAdditiveClassifier(**TWO), make_pipeline(DPAdditiveClassifier(**TWO))):
        with pytest.raises(NotFittedError):
            to_onnx(model, ROWS[:1])


COLUMNS = {"bounds": {0: (-1, 1)}, "edges": {1: [-1, -0.5, 0, 1]}, "categories": {2: [0, 1, 2]}}
ADDITIVE = (
    (DPAdditiveClassifier(**TWO), Y),
    (DPAdditiveRegressor(target_bounds=(-3, 5), **FACTS), X[:, 0] + 1),
    (DPAdditivePoissonRegressor(largest_count=4, **FACTS), RNG.poisson(1, 200)),
)


@pytest.mark.parametrize("declared", [{}, COLUMNS, {**COLUMNS, "pairs": [(2, 0), (0, 1)]}])
@pytest.mark.parametrize(("model", "y"), ADDITIVE)
def test_additive_models(model, y, declared):
    """Values are at edges, beyond them, missing, and of levels that were not declared."""
    rows = np.vstack([X[:, :2].T, RNG.integers(0, 5, 200)]).T
    rows[:5, 1] = [-1, -0.5, np.nextafter(-0.5, -1), 0, 1]
    rows[5:20] *= 30
    fitted = fit(clone(model).set_params(epsilon=20.0, **declared), y, rows)
    rows[20:30, :2] = rows[25:35, 2] = np.nan
    for given, atol in ((rows, 1e-7), (rows.astype(np.float32), 5e-7)):
        *labels, found = predicted(to_onnx(fitted, given[:1]), given)
        exact = fitted.predict_proba(given) if labels else fitted.predict(given)[:, None]
        assert np.ptp(exact) > 0.1
        np.testing.assert_allclose(found, exact, rtol=0, atol=atol)
        if labels:
            np.testing.assert_array_equal(labels[0], fitted.predict(given))


def test_columns_of_a_frame_are_inputs_and_text_is_a_level():
    home = np.array(["a", "b", "new"], object)[Y + (X[:, 1] > 0)]
    frame = pd.DataFrame({"home": home, "age": X[:, 0]})
    model = DPAdditiveClassifier(bounds={"age": (-1, 1)}, categories={"home": ["b", "a"]}, **TWO)
    fitted = fit(model, Y, frame)
    _, found = predicted(to_onnx(fitted, frame[["age", "home"]]), frame)
    np.testing.assert_allclose(found, fitted.predict_proba(frame), atol=1e-7)


@pytest.mark.parametrize("steps", [(), (BoundedScaler(-1, 1),)])
def test_a_class_that_is_not_converted_is_refused_by_name(steps):
    fitted = fit(make_pipeline(*steps, skdp.DPSGDClassifier(max_iter=1, **TWO)), Y)
    with pytest.raises(
        ValueError, match=r"fitted=DPSGDC.*torch.onnx.export.* DPAdditiveClassifier"
    ):
        to_onnx(fitted if steps else fitted[0], ROWS[:1])
