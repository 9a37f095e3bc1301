"""skdp: differentially private Bayesian machine learning that behaves like scikit-learn.

>>> from skdp import BoundedScaler, DPVariationalLogisticRegression, PrivacyLedger
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from skdp import estimators
from skdp._version import __version__
from skdp.export.trusted_types import trusted_types

if TYPE_CHECKING:
    from skdp.estimators import *  # noqa: F403
    from skdp.fitting.warnings import FitWarning, PrivacyWarning
    from skdp.model_selection import (
        DisjointSplit,
        DPDisjointSearch,
        DPRandomizedSearch,
        PrivacyLedgerCallback,
        split_budget,
    )
    from skdp.preprocessing import (
        DPPCA,
        AdditiveFeatures,
        BoundedScaler,
        DPBins,
        DPQuantileScaler,
        DPStandardScaler,
        NormClipper,
    )
    from skdp.privacy import BudgetExceededError, PrivacyLedger, PrivacyReport, privacy_of
    from skdp.rows.persons import Persons

__all__ = [
    "DPPCA",
    "AdditiveFeatures",
    "BoundedScaler",
    "BudgetExceededError",
    "DPBins",
    "DPDisjointSearch",
    "DPQuantileScaler",
    "DPRandomizedSearch",
    "DPStandardScaler",
    "DisjointSplit",
    "FitWarning",
    "NormClipper",
    "Persons",
    "PrivacyLedger",
    "PrivacyLedgerCallback",
    "PrivacyReport",
    "PrivacyWarning",
    "__version__",
    "privacy_of",
    "split_budget",
    "trusted_types",
]
__all__ += estimators.__all__

# Names are fetched when first asked for, from the cheapest of these homes that has them: `import
# skdp` must not cost an import of torch.
_HOMES = "fitting.warnings", "rows.persons", "preprocessing", "privacy", "estimators"
_HOMES += ("model_selection",)


def __getattr__(name: str) -> Any:
    for home in _HOMES if name in __all__ else ():
        module = import_module(f"skdp.{home}")
        if hasattr(module, name):
            return getattr(module, name)
    raise AttributeError(f"module 'skdp' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
