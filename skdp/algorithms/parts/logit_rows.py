"""What the score of a model of one logit is expected to be, near rows that are believed.

A private fit must not look at the rows for every question that an inference has. If rows are N(m,
S), all answers follow: the logit z = θ·x is normal, so that with u = Sθ and by Stein's identity

    E[x Ψ(z)]      = m E Ψ + u E Ψ'
    E[Ψ'(z) x xᵀ]  = E Ψ' (S + m mᵀ) + E Ψ'' (m uᵀ + u mᵀ) + E Ψ''' u uᵀ

where derivatives of Ψ under the expectation are E[f(z) He_j(t)]/sʲ, t = (z − E z)/s. Rows are not
normal. What gradients and a released slope tell against it goes into a transform T around a θ₀,

    F(θ) = Tᵀ F₀(θ₀ + T (θ − θ₀)),        F'(θ) = Tᵀ H₀(θ₀ + T (θ − θ₀)) T,

whose slope at θ₀ may be any positive definite matrix, is positive definite everywhere, and levels
off with F₀. A correction that is added to the slope of normal rows has neither: far from θ₀, where
logits are large and slopes small, it takes over.

Rows of bins are at points, and expectations are means over these: `parts.binned_rows`.

All arrays have leading axes of beliefs about the rows, or of several θ; they broadcast.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
from scipy.special import ndtri

from skdp.models.bounded_scores import Score

_t = np.linspace(-6.0, 6.0, 81)
_weights = np.exp(-0.5 * _t**2)
_weights /= _weights.sum()
_HERMITE = _weights[:, None] * np.stack([np.ones_like(_t), _t, _t**2 - 1.0], axis=1)
_JITTER = 1e-9  # of the variance of logits, which is 0 where θ is
LEAST = 1e-12  # eigenvalue, in records of norm 1, below which it is rounding

# About slopes, relative to those of normal rows.
USUAL_ERROR = 0.3  # at which entries tell most of the size of errors
LEAST_ERROR, MOST_ERROR = 0.1, 0.5  # of what an entry may be off by, before it is released
LEAST_SLOPE, MOST_SLOPE = 0.05, 30.0


def times(matrix: np.ndarray, vector: np.ndarray) -> np.ndarray:
    """Matrices (..., D, D) times vectors (..., D)."""
    return (matrix @ vector[..., None])[..., 0]


def dot(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Inner products (..., 1) of vectors (..., D)."""
    return np.sum(first * second, axis=-1, keepdims=True)


def transposed(matrix: np.ndarray) -> np.ndarray:
    """Aᵀ along the last two axes."""
    return np.swapaxes(matrix, -1, -2)


@dataclass(frozen=True)
class LogitRows:
    """Beliefs about the rows, and the score that is summed over them.

    - ``n_rows``: n; other than that of the data where slopes are found to be larger.
    - ``score``: of one record.
    - ``offset``: variance of what is added to the logits of a row, independent of it, of mean 0.
    - ``transform``: T, (..., D, D); None is the identity. ``reference``: θ₀, (..., D).
    """

    n_rows: float
    score: Score
    offset: float = 0.0
    transform: np.ndarray | None = None
    reference: np.ndarray | float = 0.0

    def __len__(self) -> int:
        raise NotImplementedError

    def of(self, beliefs: Sequence[Self]) -> Self:
        """The same of the rows of several beliefs together."""
        raise NotImplementedError

    @property
    def as_believed(self) -> Self:
        """The same without a transform."""
        return replace(self, transform=None, reference=0.0)

    def with_slope(self, where: np.ndarray, slope: np.ndarray) -> Self:
        """Rows with the transform that gives them a slope at θ₀, cut to what is possible."""
        transform = _transform(self.as_believed.slope(where), slope)
        return replace(self, transform=transform, reference=where)

    def expected(self, theta: np.ndarray) -> np.ndarray:
        """F(θ), (..., D), up to a constant: expected scores are differences of it."""
        return self._back(self._expected(self._place(self._moved(theta))))

    def slope(self, theta: np.ndarray) -> np.ndarray:
        """H(θ) = ∂F/∂θ, (..., D, D)."""
        place = self._place(self._moved(theta))
        return self._around(self._matrix(place, self.score.slope(place.logits)))

    def variance(self, theta: np.ndarray) -> np.ndarray:
        """Covariance of the sum of scores at the truth θ, (..., D, D)."""
        place = self._place(self._moved(theta))
        return self._around(self._matrix(place, self.score.variance(place.logits)))

    def pulled(
        self, theta: np.ndarray, weigh: Callable[[np.ndarray], np.ndarray]
    ) -> tuple[np.ndarray, np.ndarray]:
        """F(θ) and H(θ) w for w = weigh(F), without H itself."""
        place = self._place(self._moved(theta))
        F = self._back(self._expected(place))
        w = weigh(F)
        w = w if self.transform is None else times(self.transform, w)
        return F, self._back(self._along(place, self.score.slope(place.logits), w))

    # --- of rows without a transform ------------------------------------------------------------

    def _place(self, theta: np.ndarray) -> Any:
        """Logits of the rows, at nodes or points (..., q), and what else follows from θ."""
        raise NotImplementedError

    def _expected(self, place: Any) -> np.ndarray:
        """The sum n E[x Ψ(z)], (..., D)."""
        raise NotImplementedError

    def _matrix(self, place: Any, of_record: np.ndarray) -> np.ndarray:
        """The sum n E[f(z) x xᵀ] for f (..., q, 1) at the logits, (..., D, D)."""
        raise NotImplementedError

    def _along(self, place: Any, of_record: np.ndarray, w: np.ndarray) -> np.ndarray:
        """The sum n E[f(z) x xᵀ] w, (..., D)."""
        raise NotImplementedError

    # --- the transform --------------------------------------------------------------------------

    def _moved(self, theta: np.ndarray) -> np.ndarray:
        if self.transform is None:
            return theta
        return self.reference + times(self.transform, theta - self.reference)

    def _back(self, vector: np.ndarray) -> np.ndarray:
        return vector if self.transform is None else times(transposed(self.transform), vector)

    def _around(self, matrix: np.ndarray) -> np.ndarray:
        if self.transform is None:
            return matrix
        return transposed(self.transform) @ matrix @ self.transform


class _Normal(NamedTuple):
    """Normal rows at some θ: u = Sθ (..., D), logits (..., q) and their deviation s (..., 1)."""

    u: np.ndarray
    logits: np.ndarray
    deviation: np.ndarray


@dataclass(frozen=True, kw_only=True)
class NormalRows(LogitRows):
    """Rows that are N(m, S), of mean (..., D) and covariance (..., D, D)."""

    mean: np.ndarray
    covariance: np.ndarray

    def __len__(self) -> int:
        return len(self.mean)

    def of(self, beliefs: Sequence[NormalRows]) -> NormalRows:
        """The same of the rows of several beliefs together."""
        means, covariances = zip(*((b.mean, b.covariance) for b in beliefs), strict=True)
        return replace(self, mean=np.concatenate(means), covariance=np.concatenate(covariances))

    def _place(self, theta: np.ndarray) -> _Normal:
        u = times(self.covariance, theta)
        deviation = np.sqrt(dot(theta, u) * (1.0 + _JITTER) + self.offset + _JITTER)
        return _Normal(u, dot(theta, self.mean) + deviation * _t, deviation)

    def _expected(self, place: _Normal) -> np.ndarray:
        c = self.score.value(place.logits) @ _HERMITE[:, :2]
        return self.n_rows * (c[..., :1] * self.mean + c[..., 1:] / place.deviation * place.u)

    def _moments(self, place: _Normal, of_record: np.ndarray) -> np.ndarray:
        """The sums n E f, n E f', n E f'' as (..., 3), of f (..., q, 1) at the nodes."""
        return self.n_rows * (of_record[..., 0] @ _HERMITE) / place.deviation ** np.arange(3)

    def _matrix(self, place: _Normal, of_record: np.ndarray) -> np.ndarray:
        c = self._moments(place, of_record)[..., None]
        m, u = np.broadcast_arrays(self.mean, place.u)
        left = np.stack([m, u], axis=-1)
        above = np.concatenate([c[..., :1, :], c[..., 1:2, :]], axis=-1)
        below = np.concatenate([c[..., 1:2, :], c[..., 2:, :]], axis=-1)
        core = np.concatenate([above, below], axis=-2)
        return c[..., :1, :] * self.covariance + left @ core @ transposed(left)

    def _along(self, place: _Normal, of_record: np.ndarray, w: np.ndarray) -> np.ndarray:
        c, m, u = self._moments(place, of_record), self.mean, place.u
        along_m, along_u = dot(m, w), dot(u, w)
        Hw = c[..., :1] * (times(self.covariance, w) + m * along_m)
        return Hw + c[..., 1:2] * (m * along_u + u * along_m) + c[..., 2:] * u * along_u


class _Points(NamedTuple):
    """Logits (..., M) of points."""

    logits: np.ndarray


@dataclass(frozen=True, kw_only=True)
class PointRows(LogitRows):
    """Rows that are distributed over points (B, M, D) of each belief, as many at each."""

    points: np.ndarray

    def __len__(self) -> int:
        return len(self.points)

    def of(self, beliefs: Sequence[PointRows]) -> PointRows:
        """The same of the rows of several beliefs together."""
        return replace(self, points=np.concatenate([belief.points for belief in beliefs]))

    def _at_points(self, w: np.ndarray) -> np.ndarray:
        """Inner products (..., M) with vectors (..., D)."""
        return w @ self.points[0].T if len(self) == 1 else times(self.points, w)

    def _sum(self, f: np.ndarray) -> np.ndarray:
        """The sum n E[f x] for f (..., M), (..., D)."""
        points = self.points[0] if len(self) == 1 else self.points
        found = f @ points if len(self) == 1 else (f[..., None, :] @ points)[..., 0, :]
        return self.n_rows / self.points.shape[1] * found

    def _place(self, theta: np.ndarray) -> _Points:
        logits = self._at_points(theta)
        if self.offset:  # normal offsets, in an order that has nothing to do with the points
            M = self.points.shape[1]
            order = np.random.default_rng(0).permutation(M)
            logits = logits + math.sqrt(self.offset) * ndtri((order + 0.5) / M)
        return _Points(logits)

    def _expected(self, place: _Points) -> np.ndarray:
        return self._sum(self.score.value(place.logits))

    def _matrix(self, place: _Points, of_record: np.ndarray) -> np.ndarray:
        weights = self.n_rows / self.points.shape[1] * of_record
        half = np.sqrt(weights) * self.points
        return transposed(half) @ half  # of one array with itself: half of the products

    def _along(self, place: _Points, of_record: np.ndarray, w: np.ndarray) -> np.ndarray:
        return self._sum(of_record[..., 0] * self._at_points(w))


def relative_to(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvectors of H, and the roots of its eigenvalues, none of them 0."""
    values, vectors = np.linalg.eigh(matrix)
    return vectors, np.sqrt(np.maximum(values, np.maximum(1e-9 * values[..., -1:], LEAST)))


def _transform(slope: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """T with TᵀHT = W, after W is cut to least·H ⪯ W ⪯ most·H."""
    vectors, root = relative_to(slope)
    half = (vectors * root[..., None, :]) @ transposed(vectors)
    inverse = (vectors / root[..., None, :]) @ transposed(vectors)
    values, U = np.linalg.eigh(inverse @ wanted @ inverse)
    stretch = np.sqrt(np.clip(values, LEAST_SLOPE, MOST_SLOPE))
    return inverse @ (U * stretch[..., None, :]) @ transposed(U) @ half


def without_noise(
    believed: np.ndarray, released: np.ndarray, scale: float, most: float = MOST_ERROR
) -> np.ndarray:
    """A noisy matrix with its noise taken out, given what was believed of it before.

    In the eigenbasis of the believed H (..., D, D), positive definite, with eigenvalues h_i, the
    entries of E = H^-½(H̃ − H)H^-½ have noise of variance s²/(h_i h_j), and half of that beside the
    diagonal; s is that of `skdp.engine.linear_sums.GramSum`. Before, they are N(0, σ²), with the σ
    that their weighted mean square shows, up to ``most``.
    """
    vectors, root = relative_to(believed)
    outer = root[..., :, None] * root[..., None, :]
    E = transposed(vectors) @ (released - believed) @ vectors / outer
    noise = scale**2 * (0.5 + 0.5 * np.eye(E.shape[-1])) / outer**2
    weights = 1.0 / (noise + USUAL_ERROR**2) ** 2
    square = np.sum(weights * (E**2 - noise), axis=(-1, -2)) / np.sum(weights, axis=(-1, -2))
    square = np.clip(square, LEAST_ERROR**2, most**2)[..., None, None]
    kept = square / (square + noise)
    return believed + vectors @ (outer * kept * E) @ transposed(vectors)
