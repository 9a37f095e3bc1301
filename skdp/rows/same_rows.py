"""Whether rows are those that were kept: compared in full, in each container."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

# Values that cannot be written to in place: a copy of a table shares the others with it.
_FIXED = {str, bytes, int, float, complex, bool, type(None)}

_ROWS_AT_ONCE = 2**16

_OF_SPARSE = ("format", "indptr", "indices", "data")


def is_pandas(rows: Any) -> bool:
    """Whether rows are a frame or a series of pandas."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(rows, pandas.DataFrame | pandas.Series)


# --- comparisons ----------------------------------------------------------------------------------


def same_arrays(rows: np.ndarray, kept: np.ndarray, at: Any, columns: Any) -> bool:
    """Whether rows of an array are those that were kept at some places."""
    if rows.dtype != kept.dtype or len(rows) != len(at):
        return False
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        some = slice(start, start + _ROWS_AT_ONCE)
        expected = kept[at[some]]
        if columns is not None and not np.array_equal(columns, np.arange(kept.shape[1])):
            expected = expected[:, columns]
        if rows[some].shape != expected.shape or not _same_values(rows[some], expected):
            return False
    return True


def _same_values(ones: np.ndarray, others: np.ndarray) -> bool:
    """Whether arrays of one dtype and shape are the same, bit by bit."""
    if ones.dtype.hasobject:
        pairs = zip(ones.flat, others.flat, strict=True)
        return all(
            type(a) in _FIXED and type(a) is type(b) and (a is b or a == b) for a, b in pairs
        )
    if ones.dtype.kind in "biufcmM":
        ones, others = (np.ascontiguousarray(a).view(np.uint8) for a in (ones, others))
    return np.array_equal(ones, others)


def places_by_labels(rows: Any, kept: Any) -> np.ndarray | None:
    """Places of rows among those that were kept, by their labels; None for others."""
    if rows.index.equals(kept.index):
        return np.arange(len(kept))
    try:
        if not kept.index.is_unique or rows.index.dtype != kept.index.dtype:
            return None
        at = kept.index.get_indexer(rows.index)
    except Exception:  # lists are no labels, nor are intervals that overlap
        return None
    return None if (at < 0).any() else at


def same_columns(rows: Any, kept: Any, at: np.ndarray) -> bool:
    """Whether columns of a frame are those that were kept at some places."""
    if rows.ndim == 1:
        if kept.ndim == 1:
            return _same_series(rows, kept.iloc[at])
        rows = rows.to_frame()
    if kept.ndim == 1 or not (kept.columns.is_unique and rows.columns.is_unique):
        return False
    if kept.columns.nlevels != rows.columns.nlevels:  # a name would stand for several columns
        return False
    return all(
        name in kept.columns and _same_series(column, kept[name].iloc[at])
        for name, column in rows.items()
    )


def _same_series(one: Any, other: Any) -> bool:
    if one.dtype != other.dtype:
        return False
    if isinstance(one.dtype, np.dtype):
        return _same_values(one.to_numpy(), other.to_numpy())
    return one.array.equals(other.array)


def same_objects(rows: Any, kept: Any) -> bool:
    """Whether rows in another container are all that were kept."""
    if isinstance(rows, np.ndarray):
        return same_arrays(np.asarray(rows), kept, np.arange(len(kept)), None)
    if all(hasattr(rows, name) for name in _OF_SPARSE):
        pairs = ([np.asarray(getattr(m, name)) for m in (rows, kept)] for name in _OF_SPARSE)
        return rows.shape == kept.shape and all(
            a.dtype == b.dtype and a.shape == b.shape and _same_values(a, b) for a, b in pairs
        )
    return hasattr(rows, "equals") and bool(rows.equals(kept))
