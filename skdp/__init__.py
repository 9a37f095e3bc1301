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
    from skdp.model_selection import DPRandomizedSearch, PrivacyLedgerCallback, split_budget
    from skdp.preprocessing import (
        DPPCA,
        BoundedScaler,
        DPQuantileScaler,
        DPStandardScaler,
        NormClipper,
    )
    from skdp.privacy import (
        BudgetExceededError,
        PrivacyLedger,
        PrivacyReport,
        PrivacyWarning,
        privacy_of,
    )

__all__ = [
    "DPPCA",
    "BoundedScaler",
    "BudgetExceededError",
    "DPQuantileScaler",
    "DPRandomizedSearch",
    "DPSGDClassifier",
    "DPSGDRegressor",
    "DPSGLDClassifier",
    "DPSGLDRegressor",
    "DPStandardScaler",
    "DPVariationalLinearRegression",
    "DPVariationalLogisticRegression",
    "DPVariationalModel",
    "DPVariationalPoissonRegression",
    "NormClipper",
    "OPSPosteriorSampler",
    "OPSRegressor",
    "PrivacyLedger",
    "PrivacyLedgerCallback",
    "PrivacyReport",
    "PrivacyWarning",
    "__version__",
    "privacy_of",
    "split_budget",
]

# Names are fetched when first asked for: `import skdp` must not cost an import of torch.
_HOMES = {
    "BoundedScaler": "skdp.preprocessing",
    "BudgetExceededError": "skdp.privacy",
    "DPPCA": "skdp.preprocessing",
    "DPQuantileScaler": "skdp.preprocessing",
    "DPRandomizedSearch": "skdp.model_selection",
    "DPSGDClassifier": "skdp.estimators",
    "DPSGDRegressor": "skdp.estimators",
    "DPSGLDClassifier": "skdp.estimators",
    "DPSGLDRegressor": "skdp.estimators",
    "DPStandardScaler": "skdp.preprocessing",
    "DPVariationalLinearRegression": "skdp.estimators",
    "DPVariationalLogisticRegression": "skdp.estimators",
    "DPVariationalModel": "skdp.estimators",
    "DPVariationalPoissonRegression": "skdp.estimators",
    "NormClipper": "skdp.preprocessing",
    "OPSPosteriorSampler": "skdp.estimators",
    "OPSRegressor": "skdp.estimators",
    "PrivacyLedger": "skdp.privacy",
    "PrivacyLedgerCallback": "skdp.model_selection",
    "PrivacyReport": "skdp.privacy",
    "PrivacyWarning": "skdp._warnings",
    "privacy_of": "skdp.privacy",
    "split_budget": "skdp.model_selection",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'skdp' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
