"""Rows of a linear model: clipped to a public norm, the intercept's 1 appended, copied by batch.

A row norm bounds every gradient of a generalised linear model, so it must be *imposed*, never
measured: rows beyond the bound are scaled down to it, and the data is not asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import numpy as np

from skdp.relations import ZERO_OUT, check_relation


class LinearBatch(NamedTuple):
    """Rows (m, D) with their norms (m,) and targets (m, K), in float64.

    With ``shifting`` a neighbour's batch may hold the same rows at other places.
    """

    rows: np.ndarray
    norms: np.ndarray
    targets: np.ndarray
    shifting: bool = False

    def chunks(self, size: int) -> Iterator[LinearBatch]:
        """Yield views of at most so many rows."""
        for start in range(0, len(self.rows), size):
            chunk = slice(start, start + size)
            yield LinearBatch(
                self.rows[chunk], self.norms[chunk], self.targets[chunk], self.shifting
            )

    def logits(self, weights: np.ndarray) -> np.ndarray:
        """Rows times weights (D, K); the same bits for a row wherever a neighbour's batch has it.

        A matrix product computes the rows at the end of an array by other instructions than the
        rest. Where the places of rows may shift, each row is multiplied by the same loop of length
        D. (A null record keeps its place: under the other relations no row shifts.)
        """
        if not self.shifting:
            return self.rows @ weights
        rows = _not_alone(self.rows)
        columns = [np.einsum("ij,j->i", rows, w)[: len(self.rows)] for w in weights.T.copy()]
        return np.stack(columns, axis=1)


class Chunks(Protocol):
    """What a sum over rows reads."""

    def chunks(self, size: int) -> Iterator[LinearBatch]:
        """Yield at most so many rows at a time."""
        ...


class LinearConfig(Protocol):
    """Public facts about rows of a linear model."""

    @property
    def data_norm(self) -> float:
        """Norm to which the features of each row are clipped."""
        ...

    @property
    def fit_intercept(self) -> bool:
        """Whether each row gets a 1 appended."""
        ...

    @property
    def neighboring_relation(self) -> str:
        """Who is a neighbour."""
        ...


class LinearRows:
    """The private rows of a fit, each of norm ≤ `row_bound`.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        Features; may be a memory map, of which only batches are copied.
    targets : ndarray of shape (n, K)
        Targets in the form the likelihood wants.
    data_norm : float
        Features of a row are scaled down to this norm where they exceed it.
    fit_intercept : bool
        Append a 1 to each row, after the clipping.
    alone : bool, default=False
        Make every bit of a row and its norm a function of that row alone, wherever it stands.
    neighboring_relation : str, default="zero_out"
        Who is a neighbour: under add_or_remove_one a record shifts the places of others.
    """

    def __init__(
        self,
        X: np.ndarray,
        targets: np.ndarray,
        *,
        data_norm: float,
        fit_intercept: bool,
        alone: bool = False,
        neighboring_relation: str = ZERO_OUT,
    ) -> None:
        self._X, self._targets, self._alone = X, targets, alone
        self._shifting = not check_relation(neighboring_relation).n_is_public
        self._data_norm, self._fit_intercept = data_norm, bool(fit_intercept)
        self._full: LinearBatch | None = None

    @classmethod
    def of(
        cls,
        config: LinearConfig,
        records: tuple[np.ndarray, np.ndarray],
        *,
        alone: bool = False,
    ) -> LinearRows:
        """Wrap the private rows and targets of a run."""
        return cls(
            *records,
            data_norm=config.data_norm,
            fit_intercept=config.fit_intercept,
            alone=alone,
            neighboring_relation=config.neighboring_relation,
        )

    def __len__(self) -> int:
        return len(self._X)

    def take(self, selection: slice | np.ndarray) -> LinearBatch:
        """Copy and clip the selected rows; a full batch only once."""
        if isinstance(selection, slice):
            if self._full is None:
                self._full = self.prepare(selection)
            return self._full
        return self.prepare(selection)

    def prepare(self, selection: slice | np.ndarray) -> LinearBatch:
        """Copy and clip the selected rows."""
        X, targets = copied(self._X, selection), copied(self._targets, selection)
        rows = clipped_rows(
            X, self._data_norm, fit_intercept=self._fit_intercept, alone=self._alone
        )
        return LinearBatch(rows, _norms(rows, self._alone), targets, self._shifting)


class PassingRows:
    """All rows of a fit in each batch, of which no copy is kept: for those that fill the memory.

    Parameters
    ----------
    rows : LinearRows
        The rows.
    """

    def __init__(self, rows: LinearRows) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def take(self, selection: slice) -> PassingRows:
        """All of them."""
        return self

    def chunks(self, size: int) -> Iterator[LinearBatch]:
        """Copy and clip at most so many rows at a time."""
        for start in range(0, len(self), size):
            yield self._rows.prepare(slice(start, start + size))


def copied(array: np.ndarray, selection: slice | np.ndarray) -> np.ndarray:
    """Return selected rows; ``take`` copies scattered ones far faster than indexing does."""
    if isinstance(selection, slice):
        return array[selection]
    return np.asarray(array.take(selection, axis=0))


def row_bound(data_norm: float, fit_intercept: bool) -> float:
    """Norm bound of a row with its intercept: √(data_norm² + 1), or data_norm without one."""
    return float(np.hypot(data_norm, 1.0)) if fit_intercept else float(data_norm)


def clipped_rows(
    X: np.ndarray, norm: float, *, fit_intercept: bool, alone: bool = False
) -> np.ndarray:
    """Copy rows, scale them down to a norm where they exceed it, append the intercept's 1.

    A row with a value that is not finite becomes zero before the 1 is appended, one within the norm
    comes out bit for bit. ``alone`` as in `LinearRows`.

    In doubles no row of D features exceeds a norm in [1e-100, 1e100] by more than a relative
    (D/2 + 6) 2⁻⁵³: a sum of D squares errs by D 2⁻⁵³ (what underflows is nothing beside 1e-200), so
    its root by half of that, and root, quotient and product by one rounding each; where squares
    overflow, one more quotient brings the row to a largest value of 1 first. `skdp._bounded_sum`
    covers it for up to ten million features.
    """
    rows = np.ones((len(X), X.shape[1] + fit_intercept))
    features = rows[:, : X.shape[1]]
    features[...] = X
    with np.errstate(over="ignore", invalid="ignore"):
        norms = _norms(features, alone)
    extreme = np.flatnonzero(np.logical_not(np.isfinite(norms)))
    if extreme.size:
        features[extreme] = _tamed(features[extreme], norm, alone)
        norms[extreme] = norm
    features *= np.minimum(1.0, norm / np.maximum(norms, norm))[:, None]
    return rows


def row_sums(terms: np.ndarray) -> np.ndarray:
    """Sum (m, D) over D by halving: elementwise additions, whose rounding knows no position.

    A matrix product, `einsum` and `sum` may add in another order at another place in the array.
    """
    while terms.shape[1] > 1:
        half, odd = divmod(terms.shape[1], 2)
        folded = terms[:, :half] + terms[:, half : 2 * half]
        if odd:
            folded[:, 0] += terms[:, -1]
        terms = folded
    return terms[:, 0] if terms.shape[1] else np.zeros(len(terms))


def row_products(rows: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Compute rows (m, D) times weights (D, K), each row's result a function of that row alone."""
    return np.stack([row_sums(rows * column) for column in weights.T], axis=1)


def _norms(rows: np.ndarray, alone: bool = False) -> np.ndarray:
    if alone:
        return np.sqrt(row_sums(rows * rows))
    several = _not_alone(rows)
    return np.sqrt(np.einsum("ij,ij->i", several, several)[: len(rows)])


def _not_alone(rows: np.ndarray) -> np.ndarray:
    """Rows, twice if there is but one: of a single one `einsum` adds many columns in pieces."""
    return np.concatenate([rows, rows]) if len(rows) == 1 else rows


def _tamed(rows: np.ndarray, norm: float, alone: bool) -> np.ndarray:
    """Rows whose squares overflow, scaled to the norm; rows that are not finite, as zeros."""
    rows[~np.logical_and.reduce(np.isfinite(rows), axis=1)] = 0.0
    rows /= np.maximum(np.abs(rows).max(axis=1, keepdims=True), 1.0)
    return rows * (norm / np.maximum(_norms(rows, alone), 1.0))[:, None]
