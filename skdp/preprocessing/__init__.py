"""Transformers that cost no privacy, or say what they cost."""

from skdp.preprocessing.bounded_scaler import BoundedScaler

__all__ = ["BoundedScaler"]
