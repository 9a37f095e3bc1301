"""Rows that are read when they are needed: in chunks, or in the partitions of Dask collections."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from skdp.fitting.validate import is_dask
from skdp.rows.chunk_tasks import Chunk
from skdp.rows.chunks import ChunkedRows, on_rows


@contextmanager
def in_chunks(
    X: Any, y: Any = None, groups: Any = None, *, verbose: int = 0
) -> Iterator[tuple[Any, Any, Any]]:
    """Take the partitions of Dask collections for chunks; leave what else was given as it is."""
    lazy = [is_dask(one) for one in (X, y, groups)]
    if not any(lazy):
        yield X, y, groups
        return
    if not all(is_lazy or one is None for is_lazy, one in zip(lazy, (X, y, groups), strict=True)):
        raise ValueError("Expected X, y and groups to be collections of Dask together, or none.")
    from skdp.rows.dask_rows import DaskRows

    rows = DaskRows(X, y, groups, verbose=verbose)
    try:
        yield rows, None, None
    finally:
        rows.release()
        if verbose:
            print(rows.told())


def on_first_rows(X: Any, function: Callable[[Any], Any]) -> Any:
    """Return what a function returns of the X of the first chunk that has rows, or of none."""
    with in_chunks(X) as (rows, _, _):
        if not isinstance(rows, ChunkedRows):
            return function(X)
        function = partial(_of_X, function)
        for number in range(rows.n_chunks):
            for found in on_rows(rows, function, [number]):
                return found
        return next(on_rows(rows, function, [0], empty=True))


def _of_X(function: Callable[[Any], Any], chunk: Chunk) -> Any:
    return function(chunk.X)
