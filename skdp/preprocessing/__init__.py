"""Transformers that cost no privacy, or say what they cost."""

from skdp.preprocessing.bounded_scaler import BoundedScaler
from skdp.preprocessing.norm_clipper import NormClipper
from skdp.preprocessing.pca import DPPCA
from skdp.preprocessing.quantile_scaler import DPQuantileScaler
from skdp.preprocessing.standard_scaler import DPStandardScaler

__all__ = ["DPPCA", "BoundedScaler", "DPQuantileScaler", "DPStandardScaler", "NormClipper"]
