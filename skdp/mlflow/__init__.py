"""Models in MLflow with their privacy statement beside them: see `log_model`."""

from skdp.export.mlflow import log_model

__all__ = ["log_model"]
