"""What scores of linear predictors are of, for `skdp.algorithms.noise_aware.glm`.

`Logit`: y - σ(θz), of two classes. `Softmax`: e_y - softmax(θz), of K classes. Both are 0 in
expectation at the truth, whatever the row, as those of `counts` and `numbers`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy.special import expit, softmax

from skdp.engine.linear_sums import GramSum, LinearClippedSum, packed, packed_squares
from skdp.models.likelihoods import Likelihood
from skdp.rows.bounded_sum import CHUNK_ROWS
from skdp.rows.person_sums import RowSum, by_person
from skdp.rows.records import LinearBatch, gram, row_products, row_sums

Product = Callable[[LinearBatch, np.ndarray], np.ndarray]


def alone(chunk: LinearBatch, weights: np.ndarray) -> np.ndarray:
    """Logits of rows, each a function of its own row alone."""
    return row_products(chunk.rows, weights)


class Cut(NamedTuple):
    """What rows count, whatever their targets: w = min(1, C/(‖z‖ m), R²/‖z‖²).

    m is the largest score of a row; C > 0 bounds a row's term of a score, and R² > 0 its share of
    Σ w z zᵀ.
    """

    clip_norm: float
    row_norm: float

    def weights(self, norms: np.ndarray, largest: Any = 1.0) -> np.ndarray:
        """Weights of rows (m,), of these norms."""
        norms = np.maximum(norms, 1e-150)
        return np.minimum(np.minimum(1.0, self.clip_norm / (norms * largest)), self.far(norms))

    def far(self, norms: np.ndarray) -> np.ndarray:
        """R²/‖z‖², of rows (m,)."""
        return (self.row_norm / np.maximum(norms, 1e-150)) ** 2


# By how many standard errors over √n estimates move where rows beyond the usual norm count less
# (benchmarks/clip_bias.py); of several classes what features of images ask for.
BIAS, SOFTMAX_BIAS = 0.01, 0.0025
UNCUT = Cut(math.inf, math.inf)


class Usual(NamedTuple):
    """Mean slopes and variances of the scores of usual rows, over those of z zᵀ.

    - ``basis``: orthonormal contrasts of K outputs (K, k), in which both are diagonal, or nearly.
    - ``slopes``, ``variances``: of each contrast's score.
    - ``moments``: E s_kl x xᵀ, (k, k, q + 1, q + 1), of the slopes of contrasts at given places and
      x = (q standard coordinates of logits, 1); ``inverse``, (q, K), takes logits to these.
    - ``weight``: mean weight of a row.
    - ``value``, ``matrix``: mean expectation (K,) and slope (K, K) of rows of weight 1.
    """

    basis: np.ndarray
    slopes: np.ndarray
    variances: np.ndarray
    weight: float
    value: np.ndarray
    matrix: np.ndarray
    moments: Callable[[list[int]], np.ndarray]
    inverse: np.ndarray = np.zeros((0, 1))


_ONE = np.ones((1, 1))


def _moments(of_class: Any, basis: Any, x: Any, p: np.ndarray, at: list[int]) -> np.ndarray:
    """E s_kl x xᵀ of contrasts at these places, of shares p of points and x = (coordinates, 1).

    ``of_class``: probabilities (m, K); of one output a 1, and the slopes are in the shares.
    """
    U, x = basis[:, at], np.column_stack([x, np.ones(len(x))])
    s = of_class @ np.einsum("ik,il->ikl", U, U).reshape(len(U), -1)
    if len(basis) > 1:
        s = s - np.einsum("mk,ml->mkl", of_class @ U, of_class @ U).reshape(len(s), -1)
    x2 = np.einsum("mi,mj->mij", x, x).reshape(len(x), -1)
    return ((p * s.T) @ x2).reshape(len(at), len(at), x.shape[1], -1)


def usual_of_one(family: Any, logits: Any, p: np.ndarray, w: np.ndarray, x: Any) -> Usual:
    """Of logits (m, 1) at x (m, q), of shares p (m,) of rows with weights w (m,)."""
    logits = logits[:, 0]
    slope, variance, value = (
        of(logits) for of in (family.slope_at, family.variance_at, family.value_at)
    )
    s, v, matrix = (np.maximum([p @ a], 1e-9) for a in (w * slope, w**2 * variance, slope))
    moments = partial(_moments, _ONE, _ONE, x, p * np.maximum(w * slope, 1e-9))
    return Usual(_ONE, s, v, float(p @ w), p @ value[:, None], matrix[:, None], moments)


# --- two classes ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class WeightedScores(LinearClippedSum):
    """Σ w s z, of scores s of one logit."""

    row_norm: float = math.inf

    def _clipped(self, logits: np.ndarray, chunk: LinearBatch) -> tuple[np.ndarray, Any]:
        r = np.nan_to_num(self.residual(logits, chunk.targets))
        assert self.largest_residual is not None
        cut = Cut(self.clip_norm, self.row_norm)
        r *= cut.weights(chunk.norms, self.largest_residual(logits))[:, None]
        return chunk.weighted(r), chunk.rows


@dataclass(frozen=True)
class Slope:
    """w times an expected slope, for `GramSum`."""

    family: Any
    cut: Cut
    unit: float = 1.0

    def __call__(self, logits: np.ndarray, norms: np.ndarray) -> np.ndarray:
        """Return weights of rows of logits (m, 1)."""
        w = self.cut.weights(norms, self.family.largest(logits))
        return self.family.slope_at(logits[:, 0]) / self.unit * w


class Family:
    """What most have in common."""

    extra: ClassVar[int] = 0  # numbers that are released beside a score
    widest: Any = 0.0  # c, which stands beside θ, before it is known; 0 where none does
    saturates: ClassVar[bool] = True  # whether they only fall, where the outcome is sure
    bounded: Any = False  # whether targets are cut to bounds
    most: ClassVar[float] = 1.0  # norm of a score over that of its row
    bias: ClassVar[float] = BIAS
    usual: Any = usual_of_one

    def largest(self, logits: np.ndarray) -> np.ndarray:
        """Largest norm of a residual of logits (m, K), whatever the target is: 1."""
        return np.ones(logits.shape[:-1])


@dataclass(frozen=True)
class Logit(Family):
    """Two classes by one logit, of a ``likelihood`` whose residuals are in [-1, 1]."""

    likelihood: Likelihood
    slopes: ClassVar[tuple[float, float]] = (0.005, 0.25)  # of the score, over Σ w z zᵀ

    def scores(self, cut: Cut) -> RowSum:
        """The sum of a step."""
        return WeightedScores(self.likelihood.residual, cut.clip_norm, self.largest, cut.row_norm)

    def slope(self, cut: Cut) -> RowSum:
        """The sum that tells the slope: w p q ≤ C min(p, q)/‖z‖ too."""
        C, R = cut
        return GramSum(min(R**2 / 4.0, C * R / 2.0), Slope(self, cut))

    def largest(self, logits: np.ndarray) -> np.ndarray:
        """max(p, 1 - p) of logits (m, 1)."""
        return expit(np.abs(logits[..., 0]))

    def value_at(self, logits: np.ndarray) -> np.ndarray:
        """Expectation of the target."""
        return expit(logits)

    def slope_at(self, logits: np.ndarray) -> np.ndarray:
        """Expected slope of the score."""
        p = expit(logits)
        return p * (1.0 - p)

    variance_at = slope_at


# --- several classes ------------------------------------------------------------------------------


@dataclass(frozen=True)
class ContrastGrams(GramSum):
    """Σ w (uᵀ M u) z zᵀ of each contrast u, M = diag p - p pᵀ, for (θ, U) side by side.

    Contrasts are orthonormal, so that what a row adds has the norm w ‖M‖ ‖z‖² at most, with
    ‖M‖ ≤ ½ and ‖M‖/m ≤ √½.
    """

    likelihood: Any = None
    cut: Cut = UNCUT

    def shape(self, theta_shape: tuple[int, ...]) -> tuple[int, ...]:
        """One number for each of the pairs of columns, of each contrast."""
        K, D = theta_shape[0], theta_shape[1] - theta_shape[0] + 1
        return ((K - 1) * D * (D + 1) // 2,)

    def _each(
        self, theta: np.ndarray, chunk: LinearBatch, product: Product = LinearBatch.logits
    ) -> np.ndarray:
        """Weights (m, K - 1) of z zᵀ."""
        D = theta.shape[1] - len(theta) + 1
        logits = np.nan_to_num(product(chunk, theta[:, :D].T))
        p, U = softmax(logits, axis=1), theta[:, D:]
        slopes = np.maximum(row_products(p, U**2) - row_products(p, U) ** 2, 0.0)
        score = self.likelihood.score(math.inf)
        slopes *= self.cut.weights(chunk.norms, score.largest_residual(logits))[:, None]
        whole = np.sqrt(row_sums(slopes**2))
        return slopes * (self._cut(whole, chunk) / np.maximum(whole, 1e-300))[:, None]

    def __call__(self, theta: np.ndarray, batch: LinearBatch) -> np.ndarray:
        """Return the sums, one after the other."""
        K, D = len(theta), theta.shape[1] - len(theta) + 1
        total = np.zeros((K - 1, D, D))
        with np.errstate(all="ignore"):
            for chunk in batch.chunks(CHUNK_ROWS):
                for own, weights in zip(total, self._each(theta, chunk).T, strict=True):
                    own += gram(chunk.rows, np.ascontiguousarray(weights))
        return np.concatenate([packed(own) for own in total])

    def records(self, theta: np.ndarray, chunk: LinearBatch) -> np.ndarray:
        """Return the terms, each a function of its own record alone."""
        rows = np.asarray(chunk.rows)
        terms = [packed_squares(rows, weights) for weights in self._each(theta, chunk, alone).T]
        return by_person(np.hstack(terms), chunk)


@dataclass(frozen=True)
class Softmax(Family):
    """K > 2 classes by as many logits, whose sum is 0; residuals have a norm below √2."""

    likelihood: Any
    slopes: ClassVar[tuple[float, float]] = (0.002, 0.5)
    most: ClassVar[float] = math.sqrt(2.0)
    bias: ClassVar[float] = SOFTMAX_BIAS

    def scores(self, cut: Cut) -> RowSum:
        """The sum of a step."""
        return WeightedScores(self.likelihood.residual, cut.clip_norm, self.largest, cut.row_norm)

    def slope(self, cut: Cut) -> RowSum:
        """The sum that tells the slope of each contrast."""
        C, R = cut
        bound = min(R**2 / 2.0, C * R * math.sqrt(0.5))
        return ContrastGrams(bound, likelihood=self.likelihood, cut=cut)

    def largest(self, logits: np.ndarray) -> np.ndarray:
        """Largest norm of a residual of logits (m, K), whatever the class is."""
        return self.likelihood.score(math.inf).largest_residual(logits)

    def usual(self, logits: np.ndarray, p: np.ndarray, w: np.ndarray, x: np.ndarray) -> Usual:
        """Contrasts are the axes of the mean slope of logits (m, K) of usual rows."""
        K = logits.shape[1]
        of_class = softmax(logits, axis=1)
        slope, variance, matrix = (
            np.diag((p * each) @ of_class) - (of_class.T * (p * each)) @ of_class
            for each in (w, w**2, np.ones_like(w))
        )
        helmert = np.linalg.qr(np.eye(K)[:, 1:] - 1.0 / K)[0]
        # Equal slopes, as at 0, leave axes to rounding, but for what makes them differ a little.
        apart = 1e-6 * np.diag(np.arange(K - 1.0))
        values, axes = np.linalg.eigh(helmert.T @ slope @ helmert + apart)
        basis = helmert @ axes
        variances = np.einsum("ik,ij,jk->k", basis, variance, basis)
        both = np.maximum(values, 1e-9), np.maximum(variances, 1e-9)
        moments = partial(_moments, of_class, basis, x, p * w)
        return Usual(basis, *both, float(p @ w), p @ of_class, matrix, moments)
