"""Rows of which each part is one of a few: a matrix kept as codes and tables.

>>> import numpy as np
>>> from skdp.rows.coded import CodedRows
>>> rows = CodedRows.of(np.array([[0], [1], [1]]), [np.array([[1.0, 2.0], [3.0, 4.0]])])
>>> np.array([1.0, 1.0, 1.0]) @ rows  # the sum of all rows
array([ 7., 10.])
>>> (rows @ np.array([[1.0], [0.0]])).ravel()  # the first column
array([1., 3., 3.])

Row i is T_1[c_i1], T_2[c_i2], ... side by side: public tables T_j, looked up at private codes. What
linear models ask of rows then needs no row: products with weights are look-ups in T_j θ_j, and sums
over rows those of scores by code, times T_j.

*Rounding.* A sum over m rows errs by no more than that of a matrix product. A code that n_c of m
rows have goes through n_c - 1 additions, one product, and b - 1 additions of codes, b of which
occur; what is 0 adds no error. As m ≥ n_c + b - 1, these are at most m roundings. A weight by two
codes goes through n_c + b + b' - 1, where m ≥ n_c + b + b' - 2: at most m + 1, and the sum over c
chunks and p parts makes c + p - 2 more. `skdp.rows.bounded_sum` counts m + c + p.

*Bits.* What is made of a row, its products and its norm, are elementwise sums over its codes in
turn: a function of that row alone, wherever it stands.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement, pairwise
from typing import Any

import numpy as np

from skdp.rows.records import ON_BOUND, ImplicitRows


@dataclass(frozen=True, eq=False)
class CodedRows(ImplicitRows):
    """A matrix (m, D) of doubles, of which `numpy.asarray` makes an array."""

    codes: np.ndarray  # (parts, m): row of each table
    tables: tuple[np.ndarray, ...]  # public, each (n_codes, size): sizes add up to D

    @classmethod
    def of(cls, codes: np.ndarray, tables: Sequence[np.ndarray]) -> CodedRows:
        """Copy codes (m, parts) into the fewest bytes; what is beyond a table is its last row."""
        kind = np.min_scalar_type(max(map(len, tables)) - 1)
        kept = np.empty((len(tables), len(codes)), kind)
        for own, column, table in zip(kept, codes.T, tables, strict=True):
            np.clip(column, 0, len(table) - 1, out=own, casting="unsafe")
        return cls(kept, tuple(tables))

    def __len__(self) -> int:
        return self.codes.shape[1]

    def __getitem__(self, rows: slice) -> CodedRows:
        return CodedRows(self.codes[:, rows], self.tables)

    @property
    def size(self) -> int:
        """Number of codes."""
        return self.codes.size

    @property
    def places(self) -> list[slice]:
        """Where the columns of each table are."""
        ends = np.cumsum([0, *(table.shape[1] for table in self.tables)]).tolist()
        return [slice(start, stop) for start, stop in pairwise(ends)]

    def clipped(self, norm: float, fit_intercept: bool) -> tuple[CodedRows, np.ndarray]:
        """The rows as they are, whose tables are within the norm, with a last column of ones."""
        largest = math.sqrt(sum(float(square.max()) for square in self._squares))
        if largest > norm * (1 + ON_BOUND):
            raise ValueError(f"Expected tables of rows of norm {norm} at most.")
        return self.with_ones() if fit_intercept else self, np.zeros(len(self), bool)

    def with_ones(self) -> CodedRows:
        """The same with a last column of ones."""
        zeros = np.zeros((1, len(self)), self.codes.dtype)
        return CodedRows(np.concatenate([self.codes, zeros]), (*self.tables, np.ones((1, 1))))

    @property
    def _squares(self) -> list[np.ndarray]:
        """Squared norm (n_codes, 1) of each row of each table."""
        return [(table**2).sum(axis=1, keepdims=True) for table in self.tables]

    def norms(self) -> np.ndarray:
        """Euclidean norms (m,)."""
        return np.sqrt(self._looked_up(self._squares))[:, 0]

    def gram(self, weights: np.ndarray) -> np.ndarray:
        """Sum of w x xᵀ over rows x, for weights (m,), as (D, D)."""
        codes, places = self.codes.astype(np.intp), self.places
        total = np.empty((places[-1].stop, places[-1].stop))
        for i, j in combinations_with_replacement(range(len(codes)), 2):
            first, second = self.tables[i], self.tables[j]
            pairs = codes[i] * len(second) + codes[j]
            cells = np.bincount(pairs, weights, len(first) * len(second))
            total[places[i], places[j]] = first.T @ cells.reshape(len(first), -1) @ second
            total[places[j], places[i]] = total[places[i], places[j]].T
        return total

    def _looked_up(self, values: Sequence[np.ndarray]) -> np.ndarray:
        """Sum over tables of values (n_codes, K) of each row of them, (m, K)."""
        found = np.zeros((values[0].shape[1], len(self)))
        for own, of_table in zip(self.codes, values, strict=True):
            for total, of_codes in zip(found, of_table.T, strict=True):
                total += of_codes.take(own)
        return np.ascontiguousarray(found.T)

    def __matmul__(self, weights: np.ndarray) -> np.ndarray:
        """Products with weights (D, K), as (m, K)."""
        parts = zip(self.tables, self.places, strict=True)
        return self._looked_up([table @ weights[place] for table, place in parts])

    def __rmatmul__(self, scores: np.ndarray) -> np.ndarray:
        """Sums over rows times scores (m,) or (K, m), as (D,) or (K, D)."""
        if scores.ndim > 1:
            return np.stack([of_output @ self for of_output in np.ascontiguousarray(scores)])
        parts = zip(self.codes, self.tables, strict=True)
        return np.concatenate([np.bincount(own, scores, len(T)) @ T for own, T in parts])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Each row by itself."""
        found = [table[own] for table, own in zip(self.tables, self.codes, strict=True)]
        return np.concatenate(found, axis=1, dtype=dtype)
