"""Transformers that cost no privacy, or say what they cost."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from skdp.preprocessing.additive_features import AdditiveFeatures
    from skdp.preprocessing.bins import DPBins
    from skdp.preprocessing.bounded_scaler import BoundedScaler
    from skdp.preprocessing.images import GaborTransformer, ScatteringTransformer
    from skdp.preprocessing.norm_clipper import NormClipper
    from skdp.preprocessing.pca import DPPCA
    from skdp.preprocessing.quantile_scaler import DPQuantileScaler
    from skdp.preprocessing.standard_scaler import DPStandardScaler

__all__ = [
    "DPPCA",
    "AdditiveFeatures",
    "BoundedScaler",
    "DPBins",
    "DPQuantileScaler",
    "DPStandardScaler",
    "GaborTransformer",
    "NormClipper",
    "ScatteringTransformer",
]

# Fetched when first asked for: a declared bound should not cost an import of torch.
_HOMES = {
    "AdditiveFeatures": "additive_features",
    "BoundedScaler": "bounded_scaler",
    "DPBins": "bins",
    "DPPCA": "pca",
    "DPQuantileScaler": "quantile_scaler",
    "DPStandardScaler": "standard_scaler",
    "GaborTransformer": "images",
    "NormClipper": "norm_clipper",
    "ScatteringTransformer": "images",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
