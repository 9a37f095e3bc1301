"""Rows that are mostly zeros: a matrix of scipy, with what linear models ask of rows.

>>> import numpy as np
>>> from scipy.sparse import csr_array
>>> from skdp.rows.sparse import SparseRows
>>> rows = SparseRows.of(csr_array([[3.0, 0.0, 4.0], [0.0, 0.0, 0.5]]))
>>> short, longer = rows.clipped(1.0, fit_intercept=True)
>>> np.asarray(short)
array([[0.6, 0. , 0.8, 1. ],
       [0. , 0. , 0.5, 1. ]])
>>> np.array([1.0, 2.0]) @ short  # a sum over rows
array([0.6, 0. , 1.8, 3. ])

*Rounding.* A sum over m rows adds the entries of a column one after the other, and there are at
most m of them: no more roundings than a matrix product has. *Bits.* Products and norms of a row are
sums over its own entries in their order: a function of that row alone, wherever it stands.

Running time depends on the number of entries, which is not public; so does it on much else of the
rows that are in memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import csr_array, diags_array, hstack

from skdp.rows.bounds import Carrier, Declared
from skdp.rows.records import ON_BOUND, ImplicitRows


class SparseRows(Carrier, ImplicitRows):
    """A finite csr_array (m, D) of doubles, each entry once, in the order of the columns."""

    dtype = np.dtype(np.float64)

    def __init__(self, matrix: Any, declared: Declared | None = None) -> None:
        self.matrix, self._declared = matrix, declared
        self.shape, self.size = matrix.shape, matrix.nnz

    @classmethod
    def of(cls, matrix: Any, declared: Declared | None = None) -> SparseRows:
        """Copy a finite matrix of scipy; raise a ValueError if its entries add up to infinity."""
        copy = csr_array(matrix, dtype=np.float64, copy=True)
        copy.sum_duplicates()  # which sorts the entries of a row too
        if not np.isfinite(copy.data).all():
            raise ValueError("Input X contains infinity: entries at one place are added up.")
        return cls(copy, declared)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> SparseRows:
        return SparseRows(self.matrix[rows])

    def take(self, rows: np.ndarray, axis: int = 0) -> SparseRows:
        """Selected rows."""
        return SparseRows(self.matrix[rows])

    def clipped(self, norm: float, fit_intercept: bool) -> tuple[SparseRows, np.ndarray]:
        """Rows scaled down to a norm, with a last column of ones; and which were longer."""
        matrix, norms = self.matrix, self.norms()
        factors = np.minimum(1.0, norm / np.maximum(norms, norm))
        extreme = ~np.isfinite(norms)  # squares overflowed: divide by the largest entry first
        if extreme.any():
            largest = abs(matrix).max(axis=1).toarray()
            matrix = diags_array(np.where(extreme, 1.0 / np.maximum(largest, 1.0), 1.0)) @ matrix
            factors[extreme] = norm / SparseRows(matrix).norms()[extreme]
        short = diags_array(factors) @ matrix
        if fit_intercept:
            short = hstack([short, np.ones((len(self), 1))])
        return SparseRows(csr_array(short)), norms > norm * (1 + ON_BOUND)

    def norms(self) -> np.ndarray:
        """Euclidean norms (m,)."""
        with np.errstate(over="ignore"):
            return np.sqrt(self.matrix.power(2) @ np.ones(self.shape[1]))

    def gram(self, weights: np.ndarray) -> np.ndarray:
        """Sum of w x xᵀ over rows x, for weights (m,), as (D, D)."""
        return (self.matrix.T @ (diags_array(weights) @ self.matrix)).toarray()

    def __truediv__(self, unit: float) -> SparseRows:
        return SparseRows(self.matrix / unit)

    def __pow__(self, exponent: int) -> SparseRows:
        return SparseRows(self.matrix.power(exponent))

    def __matmul__(self, weights: np.ndarray) -> np.ndarray:
        """Products with weights (D,) or (D, K), as (m,) or (m, K)."""
        return self.matrix @ weights

    def __rmatmul__(self, scores: np.ndarray) -> np.ndarray:
        """Sums over rows times scores (m,) or (K, m), as (D,) or (K, D)."""
        return (self.matrix.T @ scores.T).T

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """With all its zeros."""
        return self.matrix.toarray()
