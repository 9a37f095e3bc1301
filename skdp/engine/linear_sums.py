"""Sums over the rows of a linear model, and how far one record can move each of them.

*Clipped gradients.* For a linear model with logits z = Xθᵀ the gradient of one record is the outer
product r_i x_iᵀ of a residual and a row, so its norm is ‖r_i‖‖x_i‖ and the clipped sum is (c ∘ r)ᵀ
X: the cost of a plain gradient, and no per-record gradient in memory. It is computed in numpy,
whose BLAS does these tall float64 products two to three times as fast as torch's.

*Outer products.* A symmetric matrix A is released as the vector of its upper triangle with the
entries beside the diagonal times √2. The vector of w x xᵀ then has the norm w‖x‖², exactly, and
Gaussian noise of scale s on it is the Gaussian orthogonal ensemble on A: scale s on the diagonal,
s/√2 beside it.

*Outer products of scores* are the middle of a sandwich: how much the records' scores scatter.
*Counts* are of records cut to their bounds. ``of_persons`` makes of a sum over rows one over
persons (`skdp.rows.person_sums`).

*Weights.* A row's term, once it is clipped, is multiplied by the row's weight in [0, 1]: it stays
in the convex hull of 0 and the terms that there can be, so that no bound on terms or on how far
apart they are changes. `WeightedSum` is W times such a sum, for weights up to W.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from skdp.fitting.validate import positive
from skdp.rows.bounded_sum import CHUNK_ROWS, NUMBERS, POSITIVE, BoundedSum
from skdp.rows.person_sums import RowSum, by_person, shrunk
from skdp.rows.persons import PersonUnit
from skdp.rows.records import ImplicitRows, LinearBatch, gram, row_products, row_sums

Residual = Callable[[np.ndarray, np.ndarray], np.ndarray]


@dataclass(frozen=True)
class LinearClippedSum(RowSum):
    """Sum over records of the log-likelihood's gradient in θ, each clipped to a norm.

    ``residual`` maps logits (m, K) and targets (m, K) to a new array ∂ log p/∂z, row by row.
    ``clip_norm`` C > 0 bounds the norm of a record's gradient over all outputs; infinite for none.

    ``largest_residual`` maps logits (m, K) to the norm (m,) of the largest residual that any target
    could have there. Given, a record is scaled by min(1, C/‖largest‖‖x_i‖), which does not depend
    on its target: the sum then still has mean zero where the model's mean is right, whatever C is
    (the conditionally unbiased bounded-influence scores of Künsch, Stefanski & Carroll 1989), while
    plain clipping shifts that point.
    """

    residual: Residual
    clip_norm: float
    largest_residual: Callable[[np.ndarray], np.ndarray] | None = None
    cancelling = True

    def __post_init__(self) -> None:
        positive(clip_norm=self.clip_norm, allow_inf=True)

    @property
    def record_bound(self) -> float:
        """Bound on the norm of one record's term: C."""
        return self.clip_norm

    def __call__(self, theta: np.ndarray, batch: LinearBatch) -> np.ndarray:
        """Return the clipped sum, shape (K, D), for parameters of that shape."""
        weights = theta.T
        total = np.zeros(theta.shape)
        with np.errstate(all="ignore"):
            for chunk in batch.chunks(CHUNK_ROWS):
                r, rows = self._clipped(chunk.logits(weights), chunk)
                total += r.T @ rows
        return total

    def records(self, theta: np.ndarray, chunk: LinearBatch) -> np.ndarray:
        """Return the terms of the sum, (m, KD), each a function of its own record alone."""
        r, rows = self._clipped(row_products(chunk.rows, theta.T), chunk)
        return (r[:, :, None] * rows[:, None, :]).reshape(len(r), theta.size)

    def persons(self, theta: np.ndarray, chunk: LinearBatch) -> np.ndarray:
        """Return the sums (n_persons, KD) of each person's terms, without an array of the terms."""
        r, rows = self._clipped(chunk.logits(theta.T), chunk)
        sums = [by_person(rows, chunk, column) for column in r.T]
        return sums[0] if len(sums) == 1 else np.hstack(sums)

    def _clipped(self, logits: np.ndarray, chunk: LinearBatch) -> tuple[np.ndarray, Any]:
        """Return r (m, K) and rows (m, D) whose outer products are the terms of the sum."""
        r = self.residual(logits, chunk.targets)
        norms = np.sqrt(row_sums(r * r))
        if self.largest_residual is not None:
            norms = np.maximum(norms, self.largest_residual(logits))
        norms *= chunk.norms
        return shortened(r, norms, chunk, self.clip_norm)


def shortened(
    r: np.ndarray, norms: np.ndarray, chunk: LinearBatch, clip_norm: float
) -> tuple[np.ndarray, Any]:
    """Scale residuals (m, K), in place, for gradients of some norms; return them and the rows."""
    rows = chunk.rows
    if not np.isfinite(norms.sum()):
        # Records whose gradient is not finite contribute nothing: C/‖g‖ would make 0·inf = NaN of
        # them, which tells everyone that the record is there.
        bad = np.flatnonzero(np.logical_not(np.isfinite(norms)))
        r[bad], norms[bad] = 0.0, 0.0
        if not isinstance(rows, ImplicitRows):
            rows = np.nan_to_num(rows, nan=0.0, posinf=0.0, neginf=0.0)
    if clip_norm < np.inf:
        r *= (clip_norm / np.maximum(norms, clip_norm))[:, None]
    return chunk.weighted(r), rows


Weight = Callable[[np.ndarray, np.ndarray], np.ndarray]
BESIDE = math.sqrt(2.0)  # weight of an entry beside the diagonal, which stands for two


@dataclass(frozen=True)
class GramSum(RowSum):
    """Sum over records of w_i x_i x_iᵀ, each of Frobenius norm at most a bound.

    ``bound`` B > 0: a record's w_i is cut to B/‖x_i‖² where it exceeds that. ``weight`` maps logits
    (m, K) and row norms (m,) to weights w ≥ 0, (m,), row by row; None is w = 1. With ``trace_only``
    the sum is that of w_i‖x_i‖², one number. ``of_person`` bounds what the rows of a person have
    together: their w_i are scaled down where Σ w_i‖x_i‖², no less than the norm, exceeds it.
    """

    bound: float
    weight: Weight | None = None
    trace_only: bool = False
    of_person: float | None = None

    def __post_init__(self) -> None:
        positive(bound=self.bound)

    @property
    def record_bound(self) -> float:
        """Bound on the norm of one record's term: B, or that of a person."""
        return self.bound if self.of_person is None else self.of_person

    def of_persons(self, unit: PersonUnit) -> GramSum:
        """The same over persons, of k̄ rows or so."""
        return replace(self, of_person=unit.rows_per_group * self.bound)

    @property
    def apart(self) -> float:
        """√2: matrices w x xᵀ have inner products w v (x·y)² ≥ 0; traces are numbers ≥ 0."""
        return NUMBERS if self.trace_only else POSITIVE

    def shape(self, theta_shape: tuple[int, ...]) -> tuple[int, ...]:
        """One number, or one for each of the D(D + 1)/2 pairs of columns."""
        d = theta_shape[-1]
        return (1,) if self.trace_only else (d * (d + 1) // 2,)

    def __call__(self, theta: np.ndarray, batch: LinearBatch) -> np.ndarray:
        """Return the sum for parameters of shape (K, D)."""
        weights, d = theta.T, theta.shape[-1]
        total = np.zeros(1 if self.trace_only else (d, d))
        with np.errstate(all="ignore"):
            for chunk in batch.chunks(CHUNK_ROWS):
                w = self._weights(chunk.logits(weights) if self.weight else None, chunk)
                total += w @ chunk.norms**2 if self.trace_only else gram(chunk.rows, w)
        return total if self.trace_only else packed(total)

    def records(self, theta: np.ndarray, chunk: LinearBatch) -> np.ndarray:
        """Return the terms of the sum, `packed`, each a function of its own record alone."""
        rows = chunk.rows
        w = self._weights(row_products(rows, theta.T) if self.weight else None, chunk)
        terms = (w * chunk.norms**2)[:, None] if self.trace_only else packed_squares(rows, w)
        return by_person(terms, chunk)

    def _weights(self, logits: np.ndarray | None, chunk: LinearBatch) -> np.ndarray:
        """Return the weights (m,), cut; no logits where there is no function of them."""
        w, norms = np.ones(len(chunk.norms)), chunk.norms
        if self.weight is not None and logits is not None:
            # What a record adds to its logits stands beside the targets, if anywhere.
            offsets = chunk.targets[:, logits.shape[1] :].sum(axis=1, keepdims=True)
            w = np.nan_to_num(self.weight(logits + offsets, norms), nan=0.0, posinf=0.0)
            w = np.maximum(w, 0.0)  # negative ones would make terms opposite
        return self._cut(w, chunk)

    def _cut(self, w: np.ndarray, chunk: LinearBatch) -> np.ndarray:
        """Cut weights (m,) to the bound on a row, and on a person."""
        squares = np.maximum(chunk.norms**2, 1e-300)
        w = chunk.weighted(np.minimum(w, self.bound / squares))
        if self.of_person is None:
            return w
        together = by_person((w * squares)[:, None], chunk)[:, 0]
        return w * chunk.of_rows(shrunk(self.of_person, together))


def packed(matrix: np.ndarray) -> np.ndarray:
    """Write a symmetric matrix as a vector of the same norm."""
    rows, columns, weights = _triangle(len(matrix))
    return matrix[rows, columns] * weights


def packed_squares(rows: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Write w x xᵀ as `packed` does, for each row x and weight w, (m, D) and (m,)."""
    # Transposed, each pair of columns is one vector: half the time of rows of short pieces.
    columns = np.ascontiguousarray(rows.T)
    weighted, d = w * columns, len(columns)
    beside, terms, start = BESIDE * weighted, np.empty((d * (d + 1) // 2, len(rows))), 0
    for j in range(d):
        np.multiply(weighted[j], columns[j], out=terms[start])
        np.multiply(beside[j], columns[j + 1 :], out=terms[start + 1 : start + d - j])
        start += d - j
    return terms.T


def unpacked(vector: np.ndarray, d: int) -> np.ndarray:
    """Read a symmetric (d, d) matrix back from `packed`."""
    rows, columns, weights = _triangle(d)
    matrix = np.empty((d, d))
    matrix[rows, columns] = matrix[columns, rows] = vector / weights
    return matrix


def _triangle(d: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Row, column and weight of each entry of the upper triangle."""
    rows, columns = np.triu_indices(d)
    return rows, columns, np.where(rows == columns, 1.0, BESIDE)


@dataclass(frozen=True)
class ScoreGramSum(RowSum):
    """Sum over records of s_i s_iᵀ, for the terms s_i of another sum, each as one vector."""

    scores: Any
    apart = POSITIVE  # ⟨s sᵀ, t tᵀ⟩ = (s·t)² ≥ 0

    @property
    def record_bound(self) -> float:
        """Bound on the norm of one record's term: ‖s sᵀ‖ = ‖s‖² ≤ C²."""
        return self.scores.record_bound**2

    def shape(self, theta_shape: tuple[int, ...]) -> tuple[int, ...]:
        """One number for each of the P(P + 1)/2 pairs of entries of a score."""
        size = self._size(theta_shape)
        return (size * (size + 1) // 2,)

    def __call__(self, theta: np.ndarray, batch: LinearBatch) -> np.ndarray:
        """Return the sum, `packed`, for scores at θ."""
        size = self._size(tuple(theta.shape))
        total = np.zeros((size, size))
        with np.errstate(all="ignore"):
            for chunk in batch.chunks(CHUNK_ROWS):
                s = self.scores.records(theta, chunk._replace(rows=np.asarray(chunk.rows)))
                total += s.T @ s
        return packed(total)

    def records(self, theta: np.ndarray, chunk: LinearBatch) -> np.ndarray:
        """Return the terms of the sum, `packed`, each a function of its own record alone."""
        s = self.scores.records(theta, chunk)
        return packed_squares(s, np.ones(len(s)))

    def of_persons(self, unit: PersonUnit) -> ScoreGramSum:
        """The same of persons' scores."""
        return ScoreGramSum(self.scores.of_persons(unit))

    def _size(self, theta_shape: tuple[int, ...]) -> int:
        return math.prod(self.scores.shape(theta_shape))


@dataclass(frozen=True)
class OutsideSum(RowSum):
    """Number of records whose features, and number of those whose targets, were cut to a bound.

    Features alone where ``targets`` have no bound.
    """

    targets: bool
    apart = NUMBERS  # corners of a square, or of an interval
    together = POSITIVE

    @property
    def n_counts(self) -> int:
        """Numbers that are released."""
        return 1 + self.targets

    @property
    def record_bound(self) -> float:
        """A record counts once in each of them."""
        return math.sqrt(self.n_counts)

    def shape(self, theta_shape: tuple[int, ...]) -> tuple[int, ...]:
        """One or two numbers."""
        return (self.n_counts,)

    def __call__(self, theta: np.ndarray, batch: LinearBatch) -> np.ndarray:
        """Return the counts."""
        return self.records(theta, batch).sum(axis=0)

    def records(self, theta: np.ndarray, chunk: LinearBatch) -> np.ndarray:
        """Return the terms, (m, n_counts)."""
        return chunk.weighted(chunk.outside[:, : self.n_counts].astype(np.float64))


@dataclass(frozen=True)
class WeightedSum(BoundedSum):
    """W times a sum whose terms have weights in [0, 1]: a sum with weights up to W.

    Its two roundings are within `BoundedSum.rounding`, which counts as many additions as terms.
    """

    inner: Any
    bound: float

    @property
    def record_bound(self) -> float:
        """Bound on the norm of one record's term."""
        return self.bound * self.inner.record_bound

    @property
    def apart(self) -> float:
        """As without weights."""
        return self.inner.apart

    @property
    def together(self) -> float:
        """As without weights."""
        return self.inner.together

    def of_persons(self, unit: PersonUnit) -> WeightedSum:
        """The same over persons, who are clipped after the weights of their rows."""
        return WeightedSum(self.inner.of_persons(unit), self.bound)

    def shape(self, theta_shape: tuple[int, ...]) -> tuple[int, ...]:
        """Shape of the inner sum."""
        return self.inner.shape(theta_shape)

    def __call__(self, theta: np.ndarray, batch: LinearBatch) -> np.ndarray:
        """Return the sum."""
        return self.bound * self.inner(theta, batch)

    def records(self, theta: np.ndarray, chunk: LinearBatch) -> np.ndarray:
        """Return the terms of the sum, each a function of its own record alone."""
        return self.bound * self.inner.records(theta, chunk)


def of_weights(inner: Any, bound: float) -> Any:
    """Return a sum for weights of rows up to a bound; itself where that is 1."""
    return inner if bound == 1.0 else WeightedSum(inner, bound)
