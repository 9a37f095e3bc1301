"""Likelihoods of linear models as functions of the logits, one record a row.

Each has ``residual``, the gradient ∂ log p(y|z)/∂z, and ``residual_bound``, the largest norm that
it can have; the gradient in θ is residual ⊗ row, so a row of norm R bounds it by residual_bound·R.
All are log-concave with curvature ≤ ``curvature_bound``, so −∇² log p in θ is ≤ curvature_bound·R².
``value_range(reach)`` bounds max log p − min log p of one record over logits of norm ≤ reach.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
from scipy.special import expit, huber, log_softmax, softmax
from scipy.stats import norm, qmc

from skdp.models.bounded_scores import BernoulliScore, CategoricalScore, PoissonScore, Score


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


class BoundedScores(Protocol):
    """What variational inference needs of a likelihood."""

    @property
    def n_outputs(self) -> int:
        """Number of logits of a record, K."""
        ...

    @property
    def residual_bound(self) -> float:
        """Bound on ‖∂ log p/∂ logits‖."""
        ...

    def residual(self, logits: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """∂ log p/∂ logits, (..., K)."""
        ...

    @property
    def largest_target(self) -> float:
        """Bound to which targets are cut; infinite for none."""
        ...

    @property
    def residual_scale(self) -> float:
        """Size of large residuals as they occur, of which a default clip takes a share."""
        ...

    def score(self, bound: float) -> Score:
        """Give the score of a record of norm 1 that is bounded by c and has mean zero."""
        ...


class Likelihood(LogConcave, BoundedScores, Protocol):
    """What algorithms and estimators need of a likelihood of classes."""

    def targets(self, codes: np.ndarray) -> np.ndarray:
        """Encode class numbers as targets, (n, K)."""
        ...

    def probabilities(self, logits: np.ndarray) -> np.ndarray:
        """Class probabilities (..., n_classes) of logits (..., K)."""
        ...

    def predictive(self, mean: np.ndarray, covariance: np.ndarray) -> np.ndarray:
        """Class probabilities (n, n_classes), averaged over normal logits, (n, K) and (n, K, K)."""
        ...


@dataclass(frozen=True)
class Bernoulli:
    """Two classes, one logit: log p = y z − log(1 + e^z), targets 0 or 1."""

    n_outputs = 1
    residual_bound = 1.0  # |y − σ(z)| < 1
    largest_target = math.inf
    residual_scale = 1.0
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

    def score(self, bound: float) -> Score:
        """Weighted residual."""
        return BernoulliScore(bound)

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

    def predictive(self, mean: np.ndarray, covariance: np.ndarray) -> np.ndarray:
        """E σ(N(mean, variance)) by Gauss–Hermite quadrature."""
        deviation = np.sqrt(np.maximum(covariance[:, :, 0], 0.0))
        total = np.zeros((len(mean), 2))
        for node, weight in _HERMITE:
            total += weight * self.probabilities(mean + deviation * node)
        return total


@dataclass(frozen=True)
class Categorical:
    """K > 2 classes, K logits: log p = z_y − log Σ e^z, one-hot targets."""

    n_outputs: int

    residual_bound = math.sqrt(2.0)  # ‖e_y − softmax(z)‖ < √2
    largest_target = math.inf
    residual_scale = 1.0
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

    def score(self, bound: float) -> Score:
        """Weighted residual."""
        return CategoricalScore(self.n_outputs, bound)

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

    def predictive(self, mean: np.ndarray, covariance: np.ndarray) -> np.ndarray:
        """E softmax(N(mean, covariance)) over 256 antithetic pairs of quasi-random normal points.

        The points are the same for every row, so a prediction does not depend on its neighbours.
        """
        values, vectors = np.linalg.eigh(covariance)
        root = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
        total, points = np.zeros_like(mean), _normal_points(self.n_outputs)
        for point in points:
            total += self.probabilities(mean + root @ point)
        return total / len(points)


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


@dataclass(frozen=True)
class Poisson:
    """Counts with log-rate z: log p = y z − e^z, counts cut at a public y_max.

    A second column of the targets, where there is one, is an offset of z, as the logarithm of an
    exposure is. The residual keeps its bound, whatever that is: count and rate lie in [0, y_max].

    Parameters
    ----------
    largest_count : float
        y_max > 0.
    """

    largest_count: float
    n_outputs = 1

    @property
    def residual_bound(self) -> float:
        """The rate is cut at y_max as well."""
        return self.largest_count

    @property
    def largest_target(self) -> float:
        """Counts beyond y_max are cut to it."""
        return self.largest_count

    @property
    def residual_scale(self) -> float:
        """Four standard deviations at the largest rate."""
        return min(self.largest_count, 4.0 * math.sqrt(self.largest_count))

    def residual(self, logits: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Y − min(e^z, y_max)."""
        offset = targets[:, 1:] if targets.shape[1] > 1 else 0.0
        return targets[:, :1] - self.rate(logits + offset)

    def rate(self, logits: np.ndarray) -> np.ndarray:
        """min(e^z, y_max)."""
        return np.exp(np.minimum(logits, math.log(self.largest_count)))

    def score(self, bound: float) -> Score:
        """Clipped residual less its mean."""
        return PoissonScore(bound, self.largest_count)

    def predictive(self, mean: np.ndarray, covariance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean (n,) and variance (n,) of a cut count, by Gauss–Hermite quadrature of the rate."""
        deviation = np.sqrt(np.maximum(covariance[:, 0, 0], 0.0))
        rates = np.array([self.rate(mean[:, 0] + deviation * node) for node, _ in _HERMITE])
        weights = np.array([weight for _, weight in _HERMITE])
        first = weights @ rates
        return first, first + weights @ rates**2 - first**2


def classification_likelihood(n_classes: int) -> Likelihood:
    """Return one logit for two classes, K logits for more."""
    return Bernoulli() if n_classes == 2 else Categorical(n_classes)


@lru_cache(maxsize=8)
def _normal_points(size: int) -> np.ndarray:
    """Quasi-random points of N(0, I), as many as their negatives, whose covariance is exact."""
    sobol: Any = qmc.Sobol  # whose seed has another name from one SciPy to the next
    half = norm.ppf(sobol(size, scramble=True, seed=0).random(256))
    points = np.concatenate([half, -half])
    return points @ np.linalg.inv(np.linalg.cholesky(points.T @ points / len(points))).T


_nodes, _weights = np.polynomial.hermite_e.hermegauss(32)
_HERMITE = tuple(zip(_nodes, _weights / _weights.sum(), strict=True))
