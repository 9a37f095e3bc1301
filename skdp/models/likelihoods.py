"""Likelihoods of linear models as functions of the logits, one record per row.

Each has ``residual``, the gradient ∂ log p(y|z)/∂z, and ``residual_bound``, the largest norm that
it can have; the gradient in θ is residual ⊗ row, so a row of norm R bounds it by residual_bound·R.
All are log-concave with curvature ≤ ``curvature_bound``, so −∇² log p in θ is ≤ curvature_bound·R².
``value_range(reach)`` bounds max log p − min log p of one record over logits of norm ≤ reach, and
``least_curvature`` how much such a record bends over part of that ball.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import expit, huber, softmax

from skdp.models.averaged import mean_sigmoid, mean_softmax
from skdp.models.bounded_scores import BernoulliScore, CategoricalScore, PoissonScore, Score
from skdp.models.rounded_losses import log_sum_exp, softplus


class BoundedScores:
    """What variational inference needs of a likelihood of K logits; leading axes broadcast.

    - ``residual_bound``: bound on ‖∂ log p/∂ logits‖.
    - ``largest_target``: bound to which targets are cut; infinite for none.
    - ``residual_scale``: size of large residuals that occur; a default clip takes a share of it.
    """

    n_outputs: int
    residual_bound: float
    largest_target = math.inf
    residual_scale = 1.0

    def residual(self, logits: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """∂ log p/∂ logits, (..., K)."""
        raise NotImplementedError

    def score(self, bound: float) -> Score:
        """Give the score of a record of norm 1 that is bounded by c and has mean zero."""
        raise NotImplementedError

    def bounds_of(self, targets: np.ndarray) -> tuple[float, np.ndarray]:
        """Bounds to which targets (n, K) are cut; what is beside them, an offset, is not."""
        most = np.full(targets.shape[1], math.inf)
        most[: self.n_outputs] = self.largest_target
        return -math.inf, most


class LogConcave:
    """What a posterior sampler needs of a likelihood, beside what is in `BoundedScores`.

    ``curvature_bound`` bounds the eigenvalues of −∂² log p/∂ logits².
    """

    n_outputs: int
    residual_bound: float
    curvature_bound: float

    def residual(self, logits: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """∂ log p/∂ logits, (..., K)."""
        raise NotImplementedError

    def loss(self, logits: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """−log p up to a constant, (...), by operations that are rounded in one way."""
        raise NotImplementedError

    def least_loss(self, targets: np.ndarray, reach: float) -> np.ndarray:
        """Lower bound on the loss over logits of norm ≤ reach, (...)."""
        raise NotImplementedError

    def value_range(self, reach: float) -> float:
        """Bound on loss − least_loss over logits of norm ≤ reach."""
        raise NotImplementedError

    def least_curvature(
        self, logits: np.ndarray, targets: np.ndarray, move: np.ndarray, reach: float
    ) -> np.ndarray:
        """Matrices A, (n, K, K), with loss(z + δ) ≥ loss(z) + ⟨∇loss(z), δ⟩ + ½ δᵀAδ.

        For ‖z + δ‖ ≤ reach and |δ_j − δ_k| ≤ move, (n,); for K = 1, |δ| ≤ move. Where move is 0, A
        is the curvature at z.
        """
        raise NotImplementedError

    def tamed(self, targets: np.ndarray, reach: float) -> np.ndarray:
        """Targets that change log p by constants only, over logits of norm ≤ reach."""
        return targets


class Likelihood(LogConcave, BoundedScores):
    """What algorithms and estimators need of a likelihood of classes."""

    def targets(self, codes: np.ndarray) -> np.ndarray:
        """Encode class numbers as targets, (n, K)."""
        raise NotImplementedError

    def probabilities(self, logits: np.ndarray) -> np.ndarray:
        """Class probabilities (..., n_classes) of logits (..., K)."""
        raise NotImplementedError

    def predictive(self, mean: np.ndarray, covariance: np.ndarray) -> np.ndarray:
        """Class probabilities (n, n_classes), averaged over normal logits, (n, K) and (n, K, K)."""
        raise NotImplementedError


@dataclass(frozen=True)
class Bernoulli(Likelihood):
    """Two classes, one logit: log p = y z − log(1 + e^z), targets 0 or 1."""

    n_outputs = 1
    residual_bound = 1.0  # |y − σ(z)| < 1
    curvature_bound = 0.25  # σ'(z) ≤ 1/4

    def residual(self, logits: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """The residual y − σ(z)."""
        return targets - expit(logits)

    def loss(self, logits: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """−log σ(±z)."""
        return softplus(np.where(targets > 0, -logits, logits)[..., 0])

    def least_loss(self, targets: np.ndarray, reach: float) -> np.ndarray:
        """−log σ(reach)."""
        return np.full(targets.shape[:-1], np.logaddexp(0.0, -reach))

    def least_curvature(
        self, logits: np.ndarray, targets: np.ndarray, move: np.ndarray, reach: float
    ) -> np.ndarray:
        """Of chords; σ' has one maximum."""
        return _chord_curvature(self, expit(logits) * expit(-logits), logits, targets, move, reach)

    def score(self, bound: float) -> Score:
        """Weighted residual."""
        return BernoulliScore(bound)

    def value_range(self, reach: float) -> float:
        """The range log[(1 + e^r)/(1 + e^−r)] = r, attained."""
        return reach

    def targets(self, codes: np.ndarray) -> np.ndarray:
        """Column of 0 and 1."""
        return codes.astype(np.float64)[:, None]

    def probabilities(self, logits: np.ndarray) -> np.ndarray:
        """(1 − σ(z), σ(z)), each accurate in its own tail."""
        return np.concatenate([expit(-logits), expit(logits)], axis=-1)

    def predictive(self, mean: np.ndarray, covariance: np.ndarray) -> np.ndarray:
        """E σ(N(mean, variance))."""
        return mean_sigmoid(mean[:, 0], np.maximum(covariance[:, 0, 0], 0.0))


@dataclass(frozen=True)
class Categorical(Likelihood):
    """K > 2 classes, K logits: log p = z_y − log Σ e^z, one-hot targets."""

    n_outputs: int

    residual_bound = math.sqrt(2.0)  # ‖e_y − softmax(z)‖ < √2
    curvature_bound = 0.5  # eigenvalues of diag p − ppᵀ

    def residual(self, logits: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """e_y − softmax(z)."""
        return targets - softmax(logits, axis=-1)

    def loss(self, logits: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """The loss log Σ e^z − z_y."""
        return log_sum_exp(logits) - np.sum(targets * logits, axis=-1)

    def least_loss(self, targets: np.ndarray, reach: float) -> np.ndarray:
        """Bound below, see `value_range`."""
        gap = reach * math.sqrt(self.n_outputs / (self.n_outputs - 1.0))
        others = math.log(self.n_outputs - 1.0)
        return np.full(targets.shape[:-1], np.logaddexp(0.0, others - gap))

    def least_curvature(
        self, logits: np.ndarray, targets: np.ndarray, move: np.ndarray, reach: float
    ) -> np.ndarray:
        """By self-concordance.

        A third central moment is at most the range a of δ times the variance, so that along δ the
        curvature falls by no more than e^−as, and ∫₀¹ (1 − s) e^−as ds = (e^−a + a − 1)/a².
        """
        p = softmax(logits, axis=-1)
        farthest = math.sqrt(2.0) * (reach + np.linalg.norm(logits, axis=-1))
        a = np.maximum(np.minimum(move, farthest), 1e-3)
        share = np.where(move > 0.0, 2.0 * (np.expm1(-a) + a) / a**2, 1.0)
        matrices = p[:, :, None] * (np.eye(self.n_outputs) - p[:, None, :])
        return share[:, None, None] * matrices

    def score(self, bound: float) -> Score:
        """Weighted residual."""
        return CategoricalScore(self.n_outputs, bound)

    def value_range(self, reach: float) -> float:
        """Range of log(1 + Σ_{j≠y} e^(z_j − z_y)), at most.

        Each z_j − z_y is at most √2‖z‖, and their mean, which by Jensen's inequality bounds the sum
        from below, at least −‖z‖√(K/(K−1)). √2‖z‖ would do for K = 2 and is not enough for more.
        """
        others = math.log(self.n_outputs - 1.0)
        most = np.logaddexp(0.0, others + math.sqrt(2.0) * reach)
        gap = reach * math.sqrt(self.n_outputs / (self.n_outputs - 1.0))
        return float(most - np.logaddexp(0.0, others - gap))

    def targets(self, codes: np.ndarray) -> np.ndarray:
        """One-hot rows."""
        return np.eye(self.n_outputs)[codes]

    def probabilities(self, logits: np.ndarray) -> np.ndarray:
        """softmax(z)."""
        return softmax(logits, axis=-1)

    def predictive(self, mean: np.ndarray, covariance: np.ndarray) -> np.ndarray:
        """E softmax(N(mean, covariance))."""
        return mean_softmax(mean, covariance)


@dataclass(frozen=True)
class HuberRegression(LogConcave):
    """A number with normal noise of deviation σ, residuals beyond c counted linearly.

    −log p = (1/σ²) [½ r² for |r| ≤ c, else c|r| − ½ c²] with r = y − z (Huber 1964): the normal
    likelihood within c, and a bounded gradient everywhere. Targets may have a public bound on |y|.
    """

    noise_scale: float
    threshold: float
    target_bound: float = math.inf
    n_outputs = 1

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

    def loss(self, logits: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Huber's function of the residual over σ²."""
        return self._of_residual(np.abs(targets - logits)[..., 0])

    def _of_residual(self, size: np.ndarray) -> np.ndarray:
        quadratic = np.minimum(size, self.threshold)
        return self.curvature_bound * (quadratic * (size - 0.5 * quadratic))

    def least_loss(self, targets: np.ndarray, reach: float) -> np.ndarray:
        """At the end of the range that is next to the target."""
        return self._of_residual(np.maximum(np.abs(targets[..., 0]) - reach, 0.0))

    def least_curvature(
        self, logits: np.ndarray, targets: np.ndarray, move: np.ndarray, reach: float
    ) -> np.ndarray:
        """Of chords; the curvature is 1/σ² within the threshold and 0 beyond it."""
        inside = np.abs(targets - logits) <= self.threshold
        return _chord_curvature(self, self.curvature_bound * inside, logits, targets, move, reach)

    def value_range(self, reach: float) -> float:
        """Slope times distance, or the value at the largest residual if that is less."""
        most = float(huber(self.threshold, self.target_bound + reach)) * self.curvature_bound
        return min(most, 2.0 * reach * self.residual_bound)

    def tamed(self, targets: np.ndarray, reach: float) -> np.ndarray:
        """Clip to the bound, or to where the loss is linear: 1e15 would dominate the sum."""
        most = min(self.target_bound, reach + self.threshold)
        return np.clip(targets, -most, most)


@dataclass(frozen=True)
class Poisson(BoundedScores):
    """Counts with log-rate z: log p = y z − e^z, counts cut at a public y_max > 0.

    A second column of the targets, where there is one, is an offset of z, as the logarithm of an
    exposure is. The residual keeps its bound, whatever that is: count and rate lie in [0, y_max].
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
        """The residual y − min(e^z, y_max)."""
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
        rates = np.array([self.rate(mean[:, 0] + deviation * node) for node, _ in HERMITE])
        weights = np.array([weight for _, weight in HERMITE])
        first = weights @ rates
        return first, first + weights @ rates**2 - first**2


def _chord_curvature(
    likelihood: LogConcave,
    at: np.ndarray,
    logits: np.ndarray,
    targets: np.ndarray,
    move: np.ndarray,
    reach: float,
) -> np.ndarray:
    """Least of 2[ℓ(z + δ) − ℓ(z) − ℓ'(z)δ]/δ² over an interval around z, (n, 1, 1).

    It is the mean of ℓ''(z + sδ) with weights 2(1 − s). Where ℓ'' rises to one maximum and falls,
    this mean, as a function of δ on either side, does the same (the kernel (δ − u)₊ diminishes
    variation), so that it is least at an end of the interval or at δ = 0, where it is ``at``.
    """
    z, least = logits[:, 0], at[:, 0]
    if not move.any():
        return least[:, None, None]
    slope, value = -likelihood.residual(logits, targets)[:, 0], likelihood.loss(logits, targets)
    for sign in (-1.0, 1.0):
        # An interval that is wider than need be gives a bound as well, and one with digits.
        δ = sign * np.maximum(np.minimum(move, reach - sign * z), _SHORT)
        rise = likelihood.loss((z + δ)[:, None], targets) - value - slope * δ
        least = np.minimum(least, 2.0 * rise / δ**2)
    return np.maximum(least - _CANCELLED * likelihood.curvature_bound, 0.0)[:, None, None]


def classification_likelihood(n_classes: int) -> Likelihood:
    """Return one logit for two classes, K logits for more."""
    return Bernoulli() if n_classes == 2 else Categorical(n_classes)


_SHORT, _CANCELLED = 1e-2, 1e-7  # shortest chord, and the relative error of its curvature

_nodes, _weights = np.polynomial.hermite_e.hermegauss(32)
HERMITE = tuple(zip(_nodes, _weights / _weights.sum(), strict=True))
