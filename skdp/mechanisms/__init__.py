"""One private release per file: noise on a vector or on integers, a quantile, a largest sum."""

from skdp.mechanisms.gaussian import GaussianMechanism
from skdp.mechanisms.geometric import GeometricMechanism
from skdp.mechanisms.laplace import LaplaceMechanism
from skdp.mechanisms.noisy_max import NoisyMaxMechanism
from skdp.mechanisms.quantile import QuantileMechanism

__all__ = [
    "GaussianMechanism",
    "GeometricMechanism",
    "LaplaceMechanism",
    "NoisyMaxMechanism",
    "QuantileMechanism",
]
