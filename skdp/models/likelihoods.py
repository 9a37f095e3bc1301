"""Likelihoods of linear models as functions of the logits, one record a row.

Each has ``residual``, the gradient ∂ log p(y|z)/∂z, and ``residual_bound``, the largest norm that
it can have; the gradient in θ is residual ⊗ row, so a row of norm R bounds it by residual_bound·R.
All are log-concave with curvature ≤ ``curvature_bound``, so −∇² log p in θ is ≤ curvature_bound·R².
``value_range(reach)`` bounds max log p − min log p of one record over logits of norm ≤ reach.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.special import expit, huber, log_softmax, softmax


class LogConcave(Protocol):
    """What a posterior sampler needs of a likelihood; leading axes of the arrays broadcast."""

    @property
    def n_outputs(self) -> int:
        """Number of logits of a record, K."""
        ...

    @property
    def residual_bound(self) -> float:
        """Bound on ‖∂ log p/∂ logits‖."""
        ...

    @property
    def curvature_bound(self) -> float:
        """Bound on the eigenvalues of −∂² log p/∂ logits²."""
        ...

    def residual(self, logits: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """∂ log p/∂ logits, (..., K)."""
        ...

    def log_likelihood(self, logits: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Log p, (...), up to a constant."""
        ...

    def curvature(self, logits: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Diagonal of −∂² log p/∂ logits², (..., K)."""
        ...

    @property
    def self_concordance(self) -> float:
        """M with |d³ log p/dt³| ≤ M‖δ‖ |d² log p/dt²| along z + tδ; infinite for none."""
        ...

    def value_range(self, reach: float) -> float:
        """Bound on max log p − min log p of one record over logits of norm ≤ reach."""
        ...

    def tamed(self, targets: np.ndarray, reach: float) -> np.ndarray:
        """Targets that change log p by constants only, over logits of norm ≤ reach."""
        ...


class Likelihood(LogConcave, Protocol):
    """What algorithms and estimators need of a likelihood of classes."""

    def targets(self, codes: np.ndarray) -> np.ndarray:
        """Encode class numbers as targets, (n, K)."""
        ...

    def probabilities(self, logits: np.ndarray) -> np.ndarray:
        """Class probabilities (..., n_classes) of logits (..., K)."""
        ...

    def predictive(self, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
        """Class probabilities (n, n_classes), averaged over independent normal logits (n, K)."""
        ...


@dataclass(frozen=True)
class Bernoulli:
    """Two classes, one logit: log p = y z − log(1 + e^z), targets 0 or 1."""

    n_outputs = 1
    residual_bound = 1.0  # |y − σ(z)| < 1
    curvature_bound = 0.25  # σ'(z) ≤ 1/4
    self_concordance = 1.0  # |σ''| = σ'|1 − 2σ|

    def residual(self, logits: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Y − σ(z)."""
        return targets - expit(logits)

    def log_likelihood(self, logits: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Log σ(±z)."""
        return -np.logaddexp(0.0, np.where(targets > 0, -logits, logits))[..., 0]

    def curvature(self, logits: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """σ(z) σ(−z)."""
        return expit(logits) * expit(-logits)

    def value_range(self, reach: float) -> float:
        """Log[(1 + e^r)/(1 + e^−r)] = r, attained."""
        return reach

    def tamed(self, targets: np.ndarray, reach: float) -> np.ndarray:
        """As they are: 0 or 1."""
        return targets

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


@dataclass(frozen=True)
class Categorical:
    """K > 2 classes, K logits: log p = z_y − log Σ e^z, one-hot targets."""

    n_outputs: int

    residual_bound = math.sqrt(2.0)  # ‖e_y − softmax(z)‖ < √2
    curvature_bound = 0.5  # eigenvalues of diag p − ppᵀ
    self_concordance = math.sqrt(2.0)  # third central moment ≤ range times variance

    def residual(self, logits: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """e_y − softmax(z)."""
        return targets - softmax(logits, axis=-1)

    def log_likelihood(self, logits: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """z_y − log Σ e^z."""
        return np.sum(targets * log_softmax(logits, axis=-1), axis=-1)

    def curvature(self, logits: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """P(1 − p)."""
        p = softmax(logits, axis=-1)
        return p * (1 - p)

    def value_range(self, reach: float) -> float:
        """Bound on the range of log(1 + Σ_{j≠y} e^(z_j − z_y)).

        Each z_j − z_y is at most √2‖z‖, and their mean, which by Jensen's inequality bounds the sum
        from below, at least −‖z‖√(K/(K−1)). √2‖z‖ would do for K = 2 and is not enough for more.
        """
        others = math.log(self.n_outputs - 1.0)
        most = np.logaddexp(0.0, others + math.sqrt(2.0) * reach)
        gap = reach * math.sqrt(self.n_outputs / (self.n_outputs - 1.0))
        return float(most - np.logaddexp(0.0, others - gap))

    def tamed(self, targets: np.ndarray, reach: float) -> np.ndarray:
        """As they are: one-hot."""
        return targets

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


@dataclass(frozen=True)
class HuberRegression:
    """A number with normal noise of deviation σ, residuals beyond c counted linearly.

    −log p = (1/σ²) [½ r² for |r| ≤ c, else c|r| − ½ c²] with r = y − z (Huber 1964): the normal
    likelihood wherever the prediction is within c, and a bounded gradient everywhere.

    Parameters
    ----------
    noise_scale : float
        σ > 0.
    threshold : float
        c > 0.
    target_bound : float, default=inf
        Public bound on |y|.
    """

    noise_scale: float
    threshold: float
    target_bound: float = math.inf
    n_outputs = 1
    self_concordance = math.inf

    @property
    def curvature_bound(self) -> float:
        """1/σ²."""
        return self.noise_scale**-2.0

    @property
    def residual_bound(self) -> float:
        """c/σ²."""
        return self.threshold * self.curvature_bound

    def residual(self, logits: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """(y − z)/σ², the residual cut at ±c."""
        return self.curvature_bound * np.clip(targets - logits, -self.threshold, self.threshold)

    def log_likelihood(self, logits: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Minus Huber's function of the residual over σ²."""
        return -self.curvature_bound * huber(self.threshold, targets - logits)[..., 0]

    def curvature(self, logits: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """1/σ² within the threshold."""
        return self.curvature_bound * (np.abs(targets - logits) <= self.threshold)

    def value_range(self, reach: float) -> float:
        """Slope times distance, or the value at the largest residual if that is less."""
        most = float(huber(self.threshold, self.target_bound + reach)) * self.curvature_bound
        return min(most, 2.0 * reach * self.residual_bound)

    def tamed(self, targets: np.ndarray, reach: float) -> np.ndarray:
        """Cut where the loss is linear for every such prediction; 1e15 would drown all records."""
        return np.clip(targets, -(reach + self.threshold), reach + self.threshold)


def classification_likelihood(n_classes: int) -> Likelihood:
    """Return one logit for two classes, K logits for more."""
    return Bernoulli() if n_classes == 2 else Categorical(n_classes)


_nodes, _weights = np.polynomial.hermite_e.hermegauss(32)
_HERMITE = tuple(zip(_nodes, _weights / _weights.sum(), strict=True))
