"""The private rows of a run: in memory, in a memory map, or in parts.

A run asks one question of them: the sum of a pure term over the selected ones. So where rows live,
and in how many pieces, is a value, and no algorithm depends on it.

Rows of a linear model are clipped to a public norm, and the intercept's 1 is appended. The norm
bounds every gradient of a generalised linear model, so it must be *imposed*, never measured: the
data is not asked. Every bit of a clipped row and its norm is a function of that row alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass
from functools import reduce
from operator import add
from typing import Any, NamedTuple, Protocol

import numpy as np

from skdp.relations import ZERO_OUT, check_relation
from skdp.rows.bounded_sum import CHUNK_ROWS
from skdp.rows.persons import sizes_between

NEARLY = 1e-3  # relative: rows cut by less are not counted, whatever their precision

ON_BOUND = 1e-9  # relative: rounding makes a row of one-hot columns longer than its norm


class ImplicitRows:
    """A finite matrix (m, D), not an array, with ``clipped``, ``norms()`` and ``gram(weights)``."""

    __array_ufunc__ = None  # arrays leave products to its own; all else is an error


def by_column_of(array: Any) -> bool:
    """Whether the values of a column lie together."""
    return type(array) is np.ndarray and array.ndim == 2 and array.strides[0] < array.strides[1]


def row_bound(data_norm: float, fit_intercept: bool) -> float:
    """Norm bound of a row with its intercept: √(data_norm² + 1), or data_norm without one."""
    return float(np.hypot(data_norm, 1.0)) if fit_intercept else float(data_norm)


def clipped_rows(
    X: np.ndarray, norm: float, *, fit_intercept: bool, alone: bool = False, by_column: bool = False
) -> np.ndarray:
    """Copy rows, scale them down to a norm where they exceed it, append the intercept's 1.

    A row with a value that is not finite becomes zero before the 1 is appended, one within the norm
    comes out bit for bit. ``alone`` as in `LinearRows`; ``by_column`` lays out columns in turn.

    In doubles no row of D features exceeds a norm in [1e-100, 1e100] by more than a relative
    (D/2 + 6) 2⁻⁵³: a sum of D squares errs by D 2⁻⁵³ (what underflows is nothing beside 1e-200), so
    its root by half of that, and root, quotient and product by one rounding each; where squares
    overflow, one more quotient brings the row to a largest value of 1 first.
    `skdp.rows.bounded_sum` covers it for up to ten million features.
    """
    return clipped(X, norm, fit_intercept, alone, by_column)[0]


def clipped(
    X: Any, norm: float, fit_intercept: bool, alone: bool, by_column: bool = False
) -> tuple[Any, np.ndarray]:
    """Return the clipped rows, and which of them were longer than the norm."""
    if isinstance(X, ImplicitRows):
        return X.clipped(norm, fit_intercept)  # type: ignore[attr-defined]
    rows = np.empty((len(X), X.shape[1] + fit_intercept), order="F" if by_column else "C")
    rows[:, X.shape[1] :] = 1.0
    features = rows[:, : X.shape[1]]
    features[...] = X
    with np.errstate(over="ignore", invalid="ignore"):
        norms = norms_of(features, alone)
    longer = norms > norm * (1 + NEARLY)
    extreme = np.flatnonzero(np.logical_not(np.isfinite(norms)))
    if extreme.size:
        features[extreme] = _tamed(features[extreme], norm, alone)
        norms[extreme] = norm
        longer[extreme] = features[extreme].any(axis=1)  # not what is not finite
    if (norms > norm).any():  # else the factors are all 1
        features *= (norm / np.maximum(norms, norm))[:, None]
    return rows, longer


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


def norms_of(rows: Any, alone: bool = False) -> np.ndarray:
    """Euclidean norms (m,); ``alone`` as in `LinearRows`."""
    if isinstance(rows, ImplicitRows):
        return rows.norms()  # type: ignore[attr-defined]
    if alone:
        return np.sqrt(row_sums(rows * rows))
    several = not_alone(rows)
    return np.sqrt(np.einsum("ij,ij->i", several, several)[: len(rows)])


def not_alone(rows: np.ndarray) -> np.ndarray:
    """Rows, twice if there is but one: of a single one `einsum` adds many columns in pieces."""
    return np.concatenate([rows, rows]) if len(rows) == 1 else rows


def gram(rows: Any, weights: np.ndarray) -> np.ndarray:
    """Sum of w x xᵀ over rows x, (D, D)."""
    if isinstance(rows, ImplicitRows):
        return rows.gram(weights)  # type: ignore[attr-defined]
    return rows.T @ (weights[:, None] * rows)


def _tamed(rows: np.ndarray, norm: float, alone: bool) -> np.ndarray:
    """Rows whose squares overflow, scaled to the norm; rows that are not finite, as zeros."""
    rows[~np.logical_and.reduce(np.isfinite(rows), axis=1)] = 0.0
    rows /= np.maximum(np.abs(rows).max(axis=1, keepdims=True), 1.0)
    return rows * (norm / np.maximum(norms_of(rows, alone), 1.0))[:, None]


# --- where they are -----------------------------------------------------------------------------


class Drawn(Protocol):
    """Numbers of some rows, which are made where the rows are."""

    def between(self, start: int, stop: int) -> np.ndarray:
        """Those from start up to stop."""
        ...


Selection = slice | np.ndarray  # all rows, or the numbers of some

Bounds = tuple[float | np.ndarray, float | np.ndarray]


class Rows(Protocol):
    """The private records of a run, wherever they are."""

    def __len__(self) -> int:
        """n: public, or private where neighbours differ by a record's presence."""
        ...

    def sum(self, term: Callable[[Any], Any], selection: Selection) -> Any:
        """Return the sum of a term over all records, a slice, or those with some numbers.

        The term maps a batch of records to the sum over them, and must not depend on anything else
        that changes: it is called once for each piece that the rows are in. Integers add up to the
        same bits however the rows are cut up; doubles within `BoundedSum.rounding`.
        """
        ...


def own_of(selection: Selection | Drawn, start: int, stop: int) -> Selection:
    """Selected ones of the rows from start up to stop, in numbers of their own."""
    if isinstance(selection, slice):
        return slice(0, stop - start)
    if isinstance(selection, np.ndarray):
        return selection[(start <= selection) & (selection < stop)] - start
    return selection.between(start, stop) - start


class PlainBatch(NamedTuple):
    """Rows (m, d) as they are, and where each person's begin where these are the records."""

    rows: np.ndarray
    starts: np.ndarray | None = None

    def chunks(self, size: int) -> Iterator[PlainBatch]:
        """Yield views of at most so many rows, but persons as a whole."""
        for chunk, starts in chunks_of(len(self.rows), self.starts, size):
            yield PlainBatch(self.rows[chunk], starts)


@dataclass(frozen=True, eq=False)
class PlainRows:
    """Rows of an array as they are, which may be a memory map; ``starts`` as in `LinearRows`."""

    X: np.ndarray
    starts: np.ndarray | None = None

    @classmethod
    def of(cls, records: tuple[np.ndarray, ...]) -> PlainRows:
        """Wrap the private rows of a run."""
        return cls(records[0], getattr(records, "starts", None))

    def __len__(self) -> int:
        return len(self.X) if self.starts is None else len(self.starts) - 1

    def sum(self, term: Callable[[PlainBatch], Any], selection: Selection) -> Any:
        """Sum over the selected records; a slice is all of them."""
        if isinstance(selection, slice):
            return term(PlainBatch(self.X, self.starts))
        rows, starts = selected_rows(selection, self.starts)
        return term(PlainBatch(copied(self.X, rows), starts))


class LinearBatch(NamedTuple):
    """Rows (m, D), an array or `ImplicitRows`, with norms (m,) and targets (m, K), in float64.

    ``outside`` (m, 2) says which rows' features, and which targets, were cut to their bounds. With
    ``shifting`` a neighbour's batch may hold the same rows at other places. ``starts``
    (n_persons + 1,) says where each person's rows begin, and where all end; None where a row is a
    record. ``weights`` (m,) are in [0, 1]; None where all are 1.
    """

    rows: Any
    norms: np.ndarray
    targets: np.ndarray
    outside: np.ndarray
    shifting: bool = False
    starts: np.ndarray | None = None
    weights: np.ndarray | None = None

    def chunks(self, size: int) -> Iterator[LinearBatch]:
        """Yield views of at most so many rows, but persons as a whole."""
        for chunk, starts in chunks_of(len(self.rows), self.starts, size):
            own = self.rows[chunk], self.norms[chunk], self.targets[chunk], self.outside[chunk]
            weights = None if self.weights is None else self.weights[chunk]
            yield LinearBatch(*own, self.shifting, starts, weights)

    def weighted(self, terms: np.ndarray) -> np.ndarray:
        """Multiply terms (m, ...) of rows by their weights, if they have any."""
        return terms if self.weights is None else (terms.T * self.weights).T

    def of_rows(self, values: np.ndarray) -> np.ndarray:
        """Repeat a value for each person, (n_persons,), for each of its rows."""
        return values if self.starts is None else np.repeat(values, np.diff(self.starts))

    def logits(self, weights: np.ndarray) -> np.ndarray:
        """Rows times weights (D, K); the same bits for a row wherever a neighbour's batch has it.

        A matrix product computes the rows at the end of an array by other instructions than the
        rest. Where the places of rows may shift, each row is multiplied by the same loop of length
        D. (A null record keeps its place: under the other relations no row shifts.)
        """
        if not self.shifting or isinstance(self.rows, ImplicitRows):
            return self.rows @ weights
        rows = not_alone(self.rows)
        columns = [np.einsum("ij,j->i", rows, w)[: len(self.rows)] for w in weights.T.copy()]
        return np.stack(columns, axis=1)


@dataclass(eq=False, repr=False)
class LinearRows:
    """The rows of a linear model, each of norm ≤ `row_bound`.

    Of the features X (n, d) only batches are copied: they are scaled down to ``data_norm`` where
    they exceed it, and then ``fit_intercept`` appends a 1; coded and sparse rows stay so. Targets
    (n, K) are cut to ``target_bounds``. With ``starts`` (n_persons + 1,), where each person's rows,
    which lie together, begin, and where all end, persons are the records. Weights (n,) of the terms
    of rows are cut to [0, 1]: no term grows, whatever the caller checked.

    ``alone`` makes every bit of a row and its norm a function of that row alone, wherever it
    stands. Without ``kept``, for rows that fill the memory, the clipped copy is made a chunk at a
    time.
    """

    X: Any  # an array, which may be a memory map, or `ImplicitRows`
    targets: np.ndarray
    _: KW_ONLY
    data_norm: float
    fit_intercept: bool
    alone: bool = False
    neighboring_relation: str = ZERO_OUT
    kept: bool = True
    target_bounds: Bounds = (-np.inf, np.inf)
    starts: np.ndarray | None = None
    weights: np.ndarray | None = None

    def __post_init__(self) -> None:
        if self.weights is not None:
            self.weights = np.clip(np.nan_to_num(self.weights), 0.0, 1.0)
        self._shifting = not check_relation(self.neighboring_relation).n_is_public
        self._full: LinearBatch | None = None

    @classmethod
    def of(cls, config: Any, records: tuple[np.ndarray, ...], **how: Any) -> LinearRows:
        """Wrap the private rows and targets of a run; ``how`` is what no config says."""
        weights: Any = getattr(records, "weights", None)
        return cls(
            *records[:2],
            data_norm=config.data_norm,
            fit_intercept=config.fit_intercept,
            neighboring_relation=config.neighboring_relation,
            starts=getattr(records, "starts", None),
            weights=None if weights is None else weights / getattr(config, "weight_bound", 1.0),
            **how,
        )

    def __len__(self) -> int:
        return len(self.X) if self.starts is None else len(self.starts) - 1

    def sum(self, term: Callable[[LinearBatch], Any], selection: Selection) -> Any:
        """Sum over the selected records."""
        if self.kept or not isinstance(selection, slice):
            return term(self.take(selection))
        chunks = list(chunks_of(len(self.X), self.starts, CHUNK_ROWS))
        chunks = chunks or [(slice(0, 0), self.starts)]
        return reduce(add, (term(self._copy(rows, starts)) for rows, starts in chunks))

    def take(self, selection: Selection) -> LinearBatch:
        """Copy and clip the selected records; a full batch, which a slice is, only once."""
        if not isinstance(selection, slice):
            return self._copy(*selected_rows(selection, self.starts))
        if self._full is None:
            self._full = self._copy(slice(None), self.starts)
        return self._full

    def _copy(self, selection: Selection, starts: np.ndarray | None) -> LinearBatch:
        X, targets = copied(self.X, selection), copied(self.targets, selection)
        # A copy of columns as rows takes longer than all else; rows that may shift are rows alike.
        by_column = not (self.kept or self.alone or self._shifting) and by_column_of(X)
        rows, longer = clipped(X, self.data_norm, bool(self.fit_intercept), self.alone, by_column)
        low, high = self.target_bounds
        beyond = (targets < low - NEARLY * abs(low)) | (targets > high + NEARLY * abs(high))
        outside = np.stack([longer, np.logical_or.reduce(beyond, axis=1)], axis=1)
        norms = norms_of(rows, self.alone)
        cut = np.clip(targets, low, high)
        weights = None if self.weights is None else self.weights[selection]
        return LinearBatch(rows, norms, cut, outside, self._shifting, starts, weights)


def chunks_of(
    n_rows: int, starts: np.ndarray | None, size: int
) -> Iterator[tuple[slice, np.ndarray | None]]:
    """Cut rows into chunks of at most so many, or of whole persons; yield them, and new starts."""
    if starts is None:
        for start in range(0, n_rows, size):
            yield slice(start, start + size), None
        return
    for first, last in sizes_between(starts, size):
        yield slice(starts[first], starts[last]), starts[first : last + 1] - starts[first]


def selected_rows(
    persons: np.ndarray, starts: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray | None]:
    """Numbers of the rows of selected persons, and where each one's begin among them."""
    if starts is None:
        return persons, None
    sizes = np.diff(starts)[persons]
    new = np.concatenate([[0], np.cumsum(sizes)])
    return np.arange(new[-1]) + np.repeat(starts[persons] - new[:-1], sizes), new


def copied(array: Any, selection: Selection) -> Any:
    """Return selected rows; ``take`` copies scattered ones far faster than indexing does."""
    if isinstance(selection, slice):
        return array[selection]
    if by_column_of(array):
        return array.T.take(selection, axis=1).T  # `take` of columns would copy all of them first
    taken = array.take(selection, axis=0)
    return taken if isinstance(taken, ImplicitRows) else np.asarray(taken)
