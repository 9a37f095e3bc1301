"""Estimators: parameters, documentation and a few calls."""

from skdp.estimators.ops import OPSPosteriorSampler, OPSRegressor
from skdp.estimators.sgd import DPSGDClassifier, DPSGDRegressor
from skdp.estimators.sgld import DPSGLDClassifier, DPSGLDRegressor
from skdp.estimators.variational import DPVariationalLogisticRegression

__all__ = [
    "DPSGDClassifier",
    "DPSGDRegressor",
    "DPSGLDClassifier",
    "DPSGLDRegressor",
    "DPVariationalLogisticRegression",
    "OPSPosteriorSampler",
    "OPSRegressor",
]
