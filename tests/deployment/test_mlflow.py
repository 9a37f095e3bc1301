"""Models logged to MLflow, with their statement. MLflow needs an environment of its own:

pip install mlflow skops skdp && python -m pytest tests/deployment/test_mlflow.py
"""

import json
import warnings

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline

import skdp
from skdp import BoundedScaler, DPSGDClassifier, DPVariationalLogisticRegression, privacy_of
from skdp.mlflow import log_model
from skdp.verify import read_text, verdict

mlflow = pytest.importorskip("mlflow")
pytestmark = pytest.mark.filterwarnings("default")  # of MLflow and of what it is made of

X = np.random.default_rng(0).uniform(-1, 1, (100, 2))
Y = (X[:, 0] > 0).astype(int)


@pytest.fixture
def run(tmp_path):
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path / 'runs.db'}")
    mlflow.set_experiment(
        experiment_id=mlflow.create_experiment("private", (tmp_path / "kept").as_uri())
    )
    with mlflow.start_run() as run:
        yield run


def model(epsilon=1.0):
    return DPVariationalLogisticRegression(epsilon, classes=[0, 1], n_samples=100)


def artifact(run, path):
    return mlflow.artifacts.load_text(f"runs:/{run.info.run_id}/{path}")


@pytest.mark.parametrize(
    "fitted",
    [
        make_pipeline(BoundedScaler(-1, 1), model()),
        DPSGDClassifier(classes=[0, 1], n_samples=100, hidden_layer_sizes=(3,), max_iter=2),
    ],
    ids=["pipeline", "network"],
)
def test_a_model_comes_back_with_its_statement(run, fitted):
    fitted.fit(X, Y)
    info = log_model(fitted)
    again = mlflow.sklearn.load_model(info.model_uri)
    np.testing.assert_array_equal(again.predict_proba(X), fitted.predict_proba(X))
    assert privacy_of(again) == privacy_of(fitted)
    served = mlflow.pyfunc.load_model(info.model_uri).predict(X)
    np.testing.assert_array_equal(served, fitted.predict(X))
    holds, proved, _ = verdict(read_text(artifact(run, "privacy/report.json")), 1e-3)
    assert holds
    assert float(proved) <= 1.001 * privacy_of(fitted).epsilon
    assert artifact(run, "privacy/statement.md") == privacy_of(fitted).to_markdown()
    found = mlflow.get_run(run.info.run_id).data
    assert set(found.metrics) == {"epsilon", "delta"}
    assert found.tags["privacy.valid"] == "True"


def test_a_model_without_a_guarantee_says_so(run):
    log_model(model(float("inf")).fit(X, Y))
    found = mlflow.get_run(run.info.run_id).data
    assert found.metrics == {}
    assert found.tags["privacy.valid"] == "False"
    assert json.loads(artifact(run, "privacy/report.json"))["epsilon"] == "inf"


def test_autologging_is_warned_of(run):
    mlflow.sklearn.autolog(silent=True)
    try:
        fitted = model().fit(X, Y)
        with pytest.warns(skdp.PrivacyWarning, match="autolog is on"):
            log_model(fitted)
    finally:
        mlflow.sklearn.autolog(disable=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error", skdp.PrivacyWarning)
        log_model(fitted, "again")
