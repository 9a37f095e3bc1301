"""Rows that are read when they are needed, and methods that map each of them by itself."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial, wraps
from inspect import isfunction, signature
from typing import Any
from uuid import uuid4

import numpy as np

from skdp.fitting.validate import is_dask
from skdp.rows.bounds import bounded
from skdp.rows.chunk_tasks import ALL_EMPTY, n_rows_of
from skdp.rows.chunks import ArrayInChunks, ChunkedRows, ChunkSums, on_rows
from skdp.rows.parts import handed_on
from skdp.rows.records import Rows


def is_lazy(X: Any) -> bool:
    """Whether rows are in chunks, or a collection of Dask."""
    return isinstance(X, ChunkedRows) or is_dask(X)


@contextmanager
def in_chunks(
    X: Any, y: Any = None, groups: Any = None, *, told_by: Any = None
) -> Iterator[tuple[Any, Any, Any]]:
    """Take the partitions of Dask collections for chunks; leave what else was given as it is.

    A verbose estimator says what went through this process, unless that tells of private rows.
    """
    given = [one for one in (X, y, groups) if one is not None]
    n_lazy = sum(map(is_dask, given))
    if not n_lazy:
        yield X, y, groups
        return
    if n_lazy < len(given):
        raise ValueError("Expected X, y and groups to be collections of Dask together, or none.")
    from skdp.rows.dask_rows import DaskRows

    tells = told_by is not None and told_by._relation.n_is_public
    verbose = getattr(told_by, "verbose", 0) if tells else 0
    rows = DaskRows(X, y, groups, verbose=verbose)
    try:
        yield rows, None, None
    finally:
        rows.release()
        if verbose:
            print(rows.told())


def rows_of(records: Any, build: Callable[..., Rows], **of_chunk: Any) -> Rows:
    """Make the rows of a run, of records in memory or, with more arguments, of chunks in turn."""
    X = records[0]
    if not isinstance(X, ArrayInChunks):
        return build(records)
    return ChunkSums(X.rows, X.reading, partial(build, **of_chunk))


def changed(records: Any, change: Callable[[Any], Any]) -> Any:
    """Change records, each by itself: in memory at once, in chunks whenever one is read."""
    X = records[0]
    if not isinstance(X, ArrayInChunks):
        return change(records)
    reading = replace(X.reading, changes=(*X.reading.changes, change))
    return records._replace(X=ArrayInChunks(X.shape, X.dtype, X.rows, reading))


def on_first_rows(X: Any, function: Callable[[Any], Any]) -> Any:
    """Return what a function returns of the X of the first chunk that has rows, or of none."""
    with in_chunks(X) as (rows, _, _):
        if not isinstance(rows, ChunkedRows):
            return function(X)
        for number in range(rows.n_chunks):
            for found in on_rows(rows, lambda chunk: function(chunk.X), [number]):
                return found
        return next(on_rows(rows, lambda chunk: function(chunk.X), [0], empty=True))


def learned(estimator: Any, X: Any) -> Any:
    """Fit to lazy rows an estimator that learns the columns alone: of the first chunk with rows."""
    vars(estimator).update(vars(on_first_rows(X, estimator.fit)))
    return estimator


# --- predictions and transforms of Dask collections ---------------------------------------------


def blockwise(function: Callable[..., Any], X: Any, *others: Any) -> Any:
    """Map rows, each by itself, where they are: a lazy array or frame, or some of them."""
    sample = _sample(function, X, *others)
    if isinstance(sample, tuple):
        parts = [partial(_nth, number, function) for number in range(len(sample))]
        return tuple(blockwise(part, X, *others) for part in parts)
    name = f"skdp-{uuid4().hex}"
    if hasattr(X, "divisions"):
        return X.map_partitions(
            function, *others, meta=sample[:0], enforce_metadata=False, token=name
        )
    import dask.array

    from skdp.rows.dask_rows import aligned

    beside = {f"argument {i}": one for i, one in enumerate(others)}
    arrays = aligned({"X": X} | beside)
    new = {X.ndim + axis: size for axis, size in enumerate(sample.shape) if axis}
    pairs = [pair for one in arrays for pair in (one, tuple(range(one.ndim)))]
    return dask.array.blockwise(  # type: ignore[attr-defined]
        function, (0, *new), *pairs, new_axes=new, concatenate=True, align_arrays=False, name=name,
        meta=np.empty((0,) * sample.ndim, sample.dtype),
    )  # fmt: skip


def _nth(number: int, function: Callable[..., Any], *rows: Any) -> Any:
    return function(*rows)[number]


def _sample(function: Callable[..., Any], *collections: Any) -> Any:
    """Return the result of a function for placeholder rows of the same shapes and types."""
    try:
        return function(*map(_placeholder, collections))
    except Exception:  # or else shape and type of an outcome, without any of its rows
        return on_first_rows(collections[0], partial(_nothing_of, function))


def _placeholder(rows: Any) -> Any:
    is_frame = hasattr(rows, "divisions")
    return rows._meta_nonempty if is_frame else np.zeros((1, *rows.shape[1:]), rows.dtype)


def _nothing_of(function: Callable[..., Any], X: Any) -> Any:
    found = function(X)
    return tuple(one[:0] for one in found) if isinstance(found, tuple) else found[:0]


# --- what a class declares ----------------------------------------------------------------------

# Methods of estimators that map each row by itself.
OF_ROWS = (
    "predict", "predict_proba", "predict_log_proba", "decision_function", "score_samples",
)  # fmt: skip


class RowByRow:
    """A transformer that maps each row by itself: ``transform`` of rows in chunks gives such again.

    A norm that it declares, as ``output_norm_``, goes with the rows, whatever their container; what
    other packages make of them is not known.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)  # where scikit-learn wraps the container of the output
        if isfunction(vars(cls).get("transform")):
            cls.transform: Any = _lazily(vars(cls)["transform"], cls.__module__.startswith("skdp."))

    def fit_transform(self: Any, X, y=None, **fit_params) -> Any:
        """Fit to rows, and transform them."""
        if is_lazy(X):
            return self.fit(X, y, **fit_params).transform(X)
        return super().fit_transform(X, y, **fit_params)  # type: ignore[misc]


def _lazily(method: Any, declares: bool) -> Any:
    mapped = partial(_mapped, method, declares)

    @wraps(method)
    def of_rows(self: Any, X: Any) -> Any:
        if not is_lazy(X):
            return handed_on(X, mapped(self, X))
        # Of a copy: rows are read again, and must be mapped as they were.
        apply = partial(mapped, copy.copy(self))
        return X.map(apply) if isinstance(X, ChunkedRows) else blockwise(apply, X)

    return of_rows


def _mapped(method: Any, declares: bool, transformer: Any, X: Any) -> Any:
    rows, norm = method(transformer, X), getattr(transformer, "output_norm_", None)
    return bounded(rows, norm) if declares and norm is not None else rows


def predicting(method: Any) -> Any:
    """Let a method of `OF_ROWS` take rows in chunks, and give one array; of Dask, a collection."""
    takes = signature(method)
    takes_targets = "y" in takes.parameters

    @wraps(method)
    def of_rows(self: Any, X: Any, *args: Any, **kwargs: Any) -> Any:
        try:  # Python would name the class that defines the method
            takes.bind(self, X, *args, **kwargs)
        except TypeError as wrong:
            name = f"{type(self).__name__}.{method.__name__}()"
            raise TypeError(f"{name} {wrong}") from None
        if is_dask(X):
            return blockwise(partial(method, copy.copy(self), **kwargs), X, *args)
        if not isinstance(X, ChunkedRows):
            others = (*args, *kwargs.values())
            beside = [one for one in others if one is not None and not np.isscalar(one)]
            return handed_on(X, method(self, X, *args, **kwargs), *beside)
        found = []
        for rows, y in X:
            if n_rows_of(rows):
                given = (y, *args[1:]) if takes_targets else args
                found.append(method(self, rows, *given, **kwargs))
        if not found:
            raise ValueError(ALL_EMPTY)
        if isinstance(found[0], tuple):
            return tuple(map(np.concatenate, zip(*found, strict=True)))
        return np.concatenate(found)

    return of_rows
