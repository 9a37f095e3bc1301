"""One private release a file: Gaussian and Laplace noise on a vector, a quantile of a column."""

from skdp.mechanisms.gaussian import GaussianMechanism
from skdp.mechanisms.laplace import LaplaceMechanism
from skdp.mechanisms.quantile import QuantileMechanism

__all__ = ["GaussianMechanism", "LaplaceMechanism", "QuantileMechanism"]
