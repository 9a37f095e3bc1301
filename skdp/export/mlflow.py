"""Models in MLflow with their privacy statement beside them.

`log_model` adds to ``mlflow.sklearn.log_model`` the report as JSON for `skdp-verify`, the statement
as Markdown, and ε, δ and validity as metrics and tags, by which models can be found. It logs
nothing else. ``mlflow.sklearn.autolog`` does: scores on the private rows of each fit, and a digest
of them, which no ε covers; `log_model` warns where it is on.
"""

from __future__ import annotations

import math
import warnings
from importlib import import_module
from typing import Any

from skdp._version import __version__
from skdp.export.trusted_types import trusted_types
from skdp.fitting.warnings import PrivacyWarning
from skdp.privacy.workflow import privacy_of

__all__ = ["log_model"]


_AUTOLOGGED = (
    "mlflow.sklearn.autolog is on: it logs scores and a digest of the private rows of each fit, "
    "which no epsilon covers. Switch it off around private fits, mlflow.sklearn.autolog("
    "disable=True), and delete what it logged."
)


def log_model(fitted: Any, name: str = "model", **options: Any) -> Any:
    """Log a fitted model and its privacy statement to the active run of MLflow.

    Parameters
    ----------
    fitted : estimator
        A fitted estimator or workflow.
    name : str, default="model"
        Of the model in the run.
    **options : object
        For ``mlflow.sklearn.log_model``. An ``input_example`` is stored with the model: give rows
        that are public.

    Returns
    -------
    mlflow.models.model.ModelInfo
        What ``mlflow.sklearn.log_model`` returns.

    Raises
    ------
    ImportError
        If MLflow is not installed.

    Warns
    -----
    PrivacyWarning
        If ``mlflow.sklearn.autolog`` is on.

    Examples
    --------
    >>> from skdp.mlflow import log_model
    >>> with mlflow.start_run():  # doctest: +SKIP
    ...     log_model(fitted.fit(X, y))
    """
    mlflow: Any = import_module("mlflow")
    autologging: Any = import_module("mlflow.utils.autologging_utils")
    report, known = privacy_of(fitted), autologging.AUTOLOGGING_INTEGRATIONS
    if "sklearn" in known and not autologging.autologging_is_disabled("sklearn"):
        warnings.warn(_AUTOLOGGED, PrivacyWarning, stacklevel=2)
    trusted = [*trusted_types, *options.pop("skops_trusted_types", [])]
    info = mlflow.sklearn.log_model(
        fitted,
        name=name,
        **{"serialization_format": "skops", "skops_trusted_types": trusted}
        | {"pip_requirements": [f"skdp=={__version__}"]}
        | options,
    )
    if math.isfinite(report.epsilon):
        mlflow.log_metrics({"epsilon": report.epsilon, "delta": report.delta})
    unit, relation = report.unit, str(report.neighboring_relation)
    mlflow.set_tags(
        {"privacy.valid": report.valid, "privacy.unit": unit, "privacy.relation": relation}
    )
    mlflow.log_text(report.to_json(), "privacy/report.json")
    mlflow.log_text(report.to_markdown(), "privacy/statement.md")
    return info
