"""Transformers that cost no privacy, or say what they cost."""

from typing import TYPE_CHECKING

from skdp.fitting.lazy import fetcher

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

HOMES = {
    "additive_features": ("AdditiveFeatures",),
    "bounded_scaler": ("BoundedScaler",),
    "bins": ("DPBins",),
    "pca": ("DPPCA",),
    "quantile_scaler": ("DPQuantileScaler",),
    "standard_scaler": ("DPStandardScaler",),
    "images": ("GaborTransformer", "ScatteringTransformer"),
    "norm_clipper": ("NormClipper",),
}

__getattr__ = fetcher(__name__, HOMES)
