"""Likelihoods of linear models as functions of the logits, one record a row.

Each has ``residual``, the gradient ∂ log p(y|z)/∂z, and ``residual_bound``, the largest norm that
it can have; the gradient in θ is residual ⊗ row, so a row of norm R bounds it by residual_bound·R.
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np
from scipy.special import expit, softmax


class Likelihood(Protocol):
    """What algorithms and estimators need of a likelihood."""

    n_outputs: int
    residual_bound: float

    def residual(self, logits: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """∂ log p/∂ logits, (m, K)."""
        ...

    def targets(self, codes: np.ndarray) -> np.ndarray:
        """Encode class numbers as targets, (n, K)."""
        ...

    def probabilities(self, logits: np.ndarray) -> np.ndarray:
        """Class probabilities (..., n_classes) of logits (..., K)."""
        ...

    def predictive(self, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
        """Class probabilities (n, n_classes), averaged over independent normal logits (n, K)."""
        ...


class Bernoulli:
    """Two classes, one logit: log p = y z − log(1 + e^z), targets 0 or 1."""

    n_outputs = 1
    residual_bound = 1.0  # |y − σ(z)| < 1

    def residual(self, logits: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Y − σ(z)."""
        return targets - expit(logits)

    def targets(self, codes: np.ndarray) -> np.ndarray:
        """Column of 0 and 1."""
        return codes.astype(np.float64)[:, None]

    def probabilities(self, logits: np.ndarray) -> np.ndarray:
        """(1 − σ(z), σ(z)), each accurate in its own tail."""
        return np.concatenate([expit(-logits), expit(logits)], axis=-1)

    def predictive(self, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
        """E σ(N(mean, variance)) by Gauss–Hermite quadrature."""
        deviation = np.sqrt(variance)
        total = np.zeros((len(mean), 2))
        for node, weight in _HERMITE:
            total += weight * self.probabilities(mean + deviation * node)
        return total


class Categorical:
    """K > 2 classes, K logits: log p = z_y − log Σ e^z, one-hot targets."""

    residual_bound = math.sqrt(2.0)  # ‖e_y − softmax(z)‖ < √2

    def __init__(self, n_classes: int) -> None:
        self.n_outputs = n_classes

    def residual(self, logits: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """e_y − softmax(z)."""
        return targets - softmax(logits, axis=1)

    def targets(self, codes: np.ndarray) -> np.ndarray:
        """One-hot rows."""
        return np.eye(self.n_outputs)[codes]

    def probabilities(self, logits: np.ndarray) -> np.ndarray:
        """softmax(z)."""
        return softmax(logits, axis=-1)

    def predictive(self, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
        """E softmax(N(mean, diag variance)) over 64 antithetic pairs of fixed normal draws.

        The draws are the same for every row, so a prediction does not depend on its neighbours.
        """
        deviation = np.sqrt(variance)
        half = np.random.default_rng(0).standard_normal((64, self.n_outputs))
        total = np.zeros_like(mean)
        for draw in np.concatenate([half, -half]):
            total += self.probabilities(mean + deviation * draw)
        return total / (2 * len(half))


def classification_likelihood(n_classes: int) -> Likelihood:
    """Return one logit for two classes, K logits for more."""
    return Bernoulli() if n_classes == 2 else Categorical(n_classes)


_nodes, _weights = np.polynomial.hermite_e.hermegauss(32)
_HERMITE = tuple(zip(_nodes, _weights / _weights.sum(), strict=True))
