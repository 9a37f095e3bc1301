"""Estimators: parameters, documentation and a few calls."""

from skdp.estimators.variational import DPVariationalLogisticRegression

__all__ = ["DPVariationalLogisticRegression"]
