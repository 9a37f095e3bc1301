"""The private rows of a run: in memory, in a memory map, or in parts.

A run asks one question of them: the sum of a pure term over the selected ones. So where rows live,
and in how many pieces, is a value, and no algorithm depends on it.

Rows of a linear model are clipped to a public norm, and the intercept's 1 is appended
(`skdp.rows.clipping`).
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
from skdp.rows.clipping import (
    NEARLY,
    ImplicitRows,
    by_column_of,
    clipped,
    norms_of,
    not_alone,
)
from skdp.rows.persons import sizes_between


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
        """Return the sum of a term over all records, a slice, or over those with some numbers.

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
    """Rows (m, D) with their norms (m,) and targets (m, K), in float64.

    Rows are an array, or `ImplicitRows`, for sums that ask for products and norms alone.
    ``outside`` (m, 2) says of which rows the features, and of which the targets, were beyond their
    bounds and were cut. With ``shifting`` a neighbour's batch may hold the same rows at other
    places. ``starts`` (n_persons + 1,) says where each person's rows begin, and where all end; None
    where a row is a record. ``weights`` (m,) in [0, 1] are those of the rows; None where all are 1.
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
            rows, norms, targets, outside = (array[chunk] for array in self[:4])
            weights = None if self.weights is None else self.weights[chunk]
            yield LinearBatch(rows, norms, targets, outside, self.shifting, starts, weights)

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

    The features X (n, d), of which only batches are copied, are scaled down to ``data_norm`` where
    they exceed it, and ``fit_intercept`` appends a 1 after that; coded and sparse rows stay so.
    Targets (n, K) are cut to ``target_bounds``. By ``starts`` (n_persons + 1,), where the rows of
    each person begin, which lie together, and where all end, persons are the records. Weights (n,)
    of the terms of rows are cut to [0, 1]: no term grows, whatever the caller checked.

    ``alone`` makes every bit of a row and its norm a function of that row alone, wherever it
    stands. Without ``kept`` not the clipped copy of a full batch is kept, but a chunk is copied at
    a time: for rows that fill the memory.
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
    def of(
        cls,
        config: Any,
        records: tuple[np.ndarray, ...],
        **how: Any,
    ) -> LinearRows:
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
