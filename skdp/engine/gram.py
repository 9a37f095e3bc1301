"""Sums of outer products of rows: the curvature of a linear model, in one release.

A symmetric matrix A is released as the vector of its upper triangle with the entries beside the
diagonal times √2. The vector of w x xᵀ then has the norm w‖x‖², exactly, and Gaussian noise of
scale s on it is the Gaussian orthogonal ensemble on A: scale s on the diagonal, s/√2 beside it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from skdp._bounded_sum import CHUNK_ROWS, NUMBERS, POSITIVE, BoundedSum
from skdp._rows import Chunks, LinearBatch, row_products
from skdp._validate import positive

Weight = Callable[[np.ndarray, np.ndarray], np.ndarray]
BESIDE = math.sqrt(2.0)  # weight of an entry beside the diagonal, which stands for two


@dataclass(frozen=True)
class GramSum(BoundedSum):
    """Sum over records of w_i x_i x_iᵀ, each of Frobenius norm at most a bound.

    Parameters
    ----------
    bound : float
        B > 0: a record's w_i is cut to B/‖x_i‖² where it exceeds that.
    weight : callable or None, default=None
        Maps logits (m, K) and row norms (m,) to weights w ≥ 0, (m,), each a function of its own
        row; None is w = 1.
    trace_only : bool, default=False
        Sum w_i‖x_i‖² alone, one number.
    """

    bound: float
    weight: Weight | None = None
    trace_only: bool = False

    def __post_init__(self) -> None:
        positive(bound=self.bound)

    @property
    def record_bound(self) -> float:
        """Bound on the norm of one record's term: B."""
        return self.bound

    @property
    def apart(self) -> float:
        """√2: matrices w x xᵀ have inner products w v (x·y)² ≥ 0; traces are numbers ≥ 0."""
        return NUMBERS if self.trace_only else POSITIVE

    def shape(self, theta_shape: tuple[int, ...]) -> tuple[int, ...]:
        """One number, or one for each of the D(D + 1)/2 pairs of columns."""
        d = theta_shape[-1]
        return (1,) if self.trace_only else (d * (d + 1) // 2,)

    def __call__(self, theta: Tensor, batch: Chunks) -> Tensor:
        """Return the sum for parameters of shape (K, D)."""
        weights, d = theta.numpy().T, theta.shape[-1]
        total = np.zeros(1 if self.trace_only else (d, d))
        with np.errstate(all="ignore"):
            for chunk in batch.chunks(CHUNK_ROWS):
                rows, norms = chunk.rows, chunk.norms
                w = self._weights(chunk.logits(weights) if self.weight else rows, norms)
                total += w @ norms**2 if self.trace_only else rows.T @ (w[:, None] * rows)
        return torch.from_numpy(total if self.trace_only else packed(total))

    def records(self, theta: Tensor, chunk: LinearBatch) -> np.ndarray:
        """Return the terms of the sum, `packed`, each a function of its own record alone."""
        rows, norms = chunk.rows, chunk.norms
        logits = row_products(rows, theta.numpy().T) if self.weight else rows
        w = self._weights(logits, norms)
        return (w * norms**2)[:, None] if self.trace_only else packed_squares(rows, w)

    def _weights(self, logits: np.ndarray, norms: np.ndarray) -> np.ndarray:
        """Return the weights (m,), cut; without a function of the logits nobody looks at them."""
        w = np.ones(len(norms))
        if self.weight is not None:
            # Negative ones would make terms opposite.
            w = np.maximum(np.nan_to_num(self.weight(logits, norms), nan=0.0, posinf=0.0), 0.0)
        return np.minimum(w, self.bound / np.maximum(norms**2, 1e-300))


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
