"""Estimators: parameters, documentation and a few calls."""

from typing import TYPE_CHECKING

from skdp.fitting.lazy import fetcher

if TYPE_CHECKING:
    from skdp.estimators.additive import DPAdditiveClassifier
    from skdp.estimators.additive_regression import DPAdditivePoissonRegressor, DPAdditiveRegressor
    from skdp.estimators.ops import OPSPosteriorSampler, OPSRegressor
    from skdp.estimators.sgd import DPSGDClassifier, DPSGDRegressor
    from skdp.estimators.sgld import DPSGLDClassifier, DPSGLDRegressor
    from skdp.estimators.variational import DPVariationalLogisticRegression
    from skdp.estimators.variational_model import DPVariationalModel
    from skdp.estimators.variational_poisson import DPVariationalPoissonRegression
    from skdp.estimators.variational_regression import DPVariationalLinearRegression

__all__ = [
    "DPAdditiveClassifier",
    "DPAdditivePoissonRegressor",
    "DPAdditiveRegressor",
    "DPSGDClassifier",
    "DPSGDRegressor",
    "DPSGLDClassifier",
    "DPSGLDRegressor",
    "DPVariationalLinearRegression",
    "DPVariationalLogisticRegression",
    "DPVariationalModel",
    "DPVariationalPoissonRegression",
    "OPSPosteriorSampler",
    "OPSRegressor",
]

HOMES = {
    "additive": ("DPAdditiveClassifier",),
    "additive_regression": ("DPAdditivePoissonRegressor", "DPAdditiveRegressor"),
    "sgd": ("DPSGDClassifier", "DPSGDRegressor"),
    "sgld": ("DPSGLDClassifier", "DPSGLDRegressor"),
    "variational_regression": ("DPVariationalLinearRegression",),
    "variational": ("DPVariationalLogisticRegression",),
    "variational_model": ("DPVariationalModel",),
    "variational_poisson": ("DPVariationalPoissonRegression",),
    "ops": ("OPSPosteriorSampler", "OPSRegressor"),
}

__getattr__ = fetcher(__name__, HOMES)
