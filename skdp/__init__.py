"""skdp: differentially private Bayesian machine learning that behaves like scikit-learn.

>>> from skdp import BoundedScaler, DPVariationalLogisticRegression, PrivacyLedger
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from skdp._version import __version__

if TYPE_CHECKING:
    from skdp.estimators import (
        DPSGDClassifier,
        DPSGDRegressor,
        DPSGLDClassifier,
        DPSGLDRegressor,
        DPVariationalLinearRegression,
        DPVariationalLogisticRegression,
        DPVariationalModel,
        DPVariationalPoissonRegression,
        OPSPosteriorSampler,
        OPSRegressor,
    )
    from skdp.preprocessing import BoundedScaler
    from skdp.privacy import BudgetExceededError, PrivacyLedger, PrivacyReport, PrivacyWarning

__all__ = [
    "BoundedScaler",
    "BudgetExceededError",
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
    "PrivacyLedger",
    "PrivacyReport",
    "PrivacyWarning",
    "__version__",
]

# Names are fetched when first asked for: `import skdp` must not cost an import of torch.
_HOMES = {
    "BoundedScaler": "skdp.preprocessing",
    "BudgetExceededError": "skdp.privacy",
    "DPSGDClassifier": "skdp.estimators",
    "DPSGDRegressor": "skdp.estimators",
    "DPSGLDClassifier": "skdp.estimators",
    "DPSGLDRegressor": "skdp.estimators",
    "DPVariationalLinearRegression": "skdp.estimators",
    "DPVariationalLogisticRegression": "skdp.estimators",
    "DPVariationalModel": "skdp.estimators",
    "DPVariationalPoissonRegression": "skdp.estimators",
    "OPSPosteriorSampler": "skdp.estimators",
    "OPSRegressor": "skdp.estimators",
    "PrivacyLedger": "skdp.privacy",
    "PrivacyReport": "skdp.privacy",
    "PrivacyWarning": "skdp._warnings",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'skdp' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
