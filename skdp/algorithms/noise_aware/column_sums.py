"""Sums of `skdp.algorithms.noise_aware.columns`: values in cells, moments, cut records."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from skdp.rows.bounded_sum import CHUNK_ROWS, NUMBERS, POSITIVE
from skdp.rows.person_sums import RowSum
from skdp.rows.records import NEARLY, LinearBatch

CELLS = 8  # of a range


@dataclass(frozen=True)
class _ColumnSum(RowSum):
    """A sum over columns that are scaled by public middles and half widths, (d,) each."""

    middle: tuple[float, ...]
    half: tuple[float, ...]
    numbers: tuple[bool, ...]


@dataclass(frozen=True)
class CellSum(_ColumnSum):
    """Counts of the values of each number in cells of a range, called with both ends (2, k)."""

    apart = POSITIVE  # one cell of each column

    @property
    def record_bound(self) -> float:
        """Bound on the norm of a record's term: a 1 in each of k columns."""
        return math.sqrt(sum(self.numbers))

    def shape(self, theta_shape: tuple[int, ...]) -> tuple[int, ...]:
        """One number for each cell."""
        return (theta_shape[-1] * CELLS,)

    def _cells(self, theta: np.ndarray, chunk: LinearBatch) -> np.ndarray:
        own, (low, high) = np.flatnonzero(self.numbers), theta
        middle, half = np.array(self.middle)[own], np.array(self.half)[own]
        rows, width = np.asarray(chunk.rows), (high - low) * half / CELLS
        with np.errstate(all="ignore"):  # a warning would reveal that an extreme row is there
            cells = (rows if all(self.numbers) else rows[:, own]) - (middle + low * half)
            cells /= width
        return np.clip(cells, 0, CELLS - 1, out=cells).astype(np.intp) + CELLS * np.arange(len(own))

    def __call__(self, theta: np.ndarray, batch: LinearBatch) -> np.ndarray:
        """Return the counts."""
        size = self.shape(tuple(theta.shape))[0]
        total = np.zeros(size)
        for chunk in batch.chunks(CHUNK_ROWS):
            cells = self._cells(theta, chunk)
            w = None if chunk.weights is None else np.repeat(chunk.weights, cells.shape[1])
            total += np.bincount(cells.ravel(), w, minlength=size)
        return total

    def records(self, theta: np.ndarray, chunk: LinearBatch) -> np.ndarray:
        """Return the terms (m, k · cells), each a function of its own record alone."""
        cells = self._cells(theta, chunk)
        terms = np.zeros((len(cells), self.shape(tuple(theta.shape))[0]))
        np.put_along_axis(terms, cells, 1.0, axis=1)
        return chunk.weighted(terms)


@dataclass(frozen=True)
class MomentsSum(_ColumnSum):
    """Σ (v, v² of numbers, 1) for both ends of all columns' ranges, (2, d); ``norm`` bounds ‖u‖."""

    norm: float
    apart = 2.0

    @property
    def record_bound(self) -> float:
        """Bound on the norm of a record's term.

        v, v² ≤ 1 of a number; indicators have the norm of u at most, and are not squared.
        """
        k = sum(self.numbers)
        return math.sqrt(2.0 * k + min(len(self.numbers) - k, self.norm**2) + 1.0)

    def shape(self, theta_shape: tuple[int, ...]) -> tuple[int, ...]:
        """A number for each column, one more for each number, and the number of records."""
        return (theta_shape[-1] + sum(self.numbers) + 1,)

    def records(self, theta: np.ndarray, chunk: LinearBatch) -> np.ndarray:
        """Return the terms, each a function of its own record alone."""
        rows, (low, high) = np.asarray(chunk.rows), theta
        with np.errstate(all="ignore"):  # a warning would reveal that an extreme row is there
            v = (rows - np.array(self.middle)) / np.array(self.half)
            v = (v - (low + high) / 2) / ((high - low) / 2)
        v = np.clip(v, -1.0, 1.0)
        squares = v[:, np.array(self.numbers)] ** 2
        terms = np.hstack([v, squares, np.ones((len(v), 1))])
        return chunk.weighted(terms)


@dataclass(frozen=True)
class BeyondSum(RowSum):
    """Number of records that are cut: a value beyond its bounds, or a norm beyond its own."""

    lower: tuple[float, ...]
    upper: tuple[float, ...]
    apart = NUMBERS
    together = POSITIVE

    @property
    def record_bound(self) -> float:
        """A record counts once."""
        return 1.0

    def shape(self, theta_shape: tuple[int, ...]) -> tuple[int, ...]:
        """One number."""
        return (1,)

    def records(self, theta: np.ndarray, chunk: LinearBatch) -> np.ndarray:
        """Return the terms (m, 1)."""
        rows, (lower, upper) = np.asarray(chunk.rows), map(np.array, (self.lower, self.upper))
        slack = NEARLY * (upper - lower)  # as of norms
        beyond = ((rows < lower - slack) | (rows > upper + slack)).any(axis=1)
        return chunk.weighted((beyond | chunk.outside[:, 0]).astype(np.float64))[:, None]
