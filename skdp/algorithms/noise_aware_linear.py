"""Where pickles of 0.2.0 look for the posterior of a linear regression."""

from skdp.algorithms.gaussian_posterior import RegressionPosterior

__all__ = ["RegressionPosterior"]
