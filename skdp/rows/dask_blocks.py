"""What maps each row by itself, on a Dask collection: a lazy collection again."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import uuid4

import numpy as np

from skdp.rows.dask_rows import aligned
from skdp.rows.lazy_rows import on_first_rows

# --- predictions, transforms and scores ---------------------------------------------------------


def blockwise(function: Callable[..., Any], X: Any, *args: Any, **kwargs: Any) -> Any:
    """Map rows, each by itself, where they are: a lazy array or frame, or some of them."""
    function = partial(_called, function, kwargs)
    sample = _sample(function, X, *args)
    if isinstance(sample, tuple):
        return tuple(
            blockwise(partial(_nth, number, function), X, *args) for number in range(len(sample))
        )
    name = f"skdp-{uuid4().hex}"
    if hasattr(X, "divisions"):
        return X.map_partitions(
            function, *args, meta=sample[:0], enforce_metadata=False, token=name
        )
    import dask.array

    X, *others = aligned({"X": X} | {f"argument {i}": one for i, one in enumerate(args)})
    new = {X.ndim + axis: size for axis, size in enumerate(sample.shape) if axis}
    pairs = [pair for one in (X, *others) for pair in (one, tuple(range(one.ndim)))]
    return dask.array.blockwise(  # type: ignore[attr-defined]
        function, (0, *new), *pairs, new_axes=new, concatenate=True, align_arrays=False, name=name,
        meta=np.empty((0,) * sample.ndim, sample.dtype),
    )  # fmt: skip


def _called(function: Callable[..., Any], kwargs: dict[str, Any], *rows: Any) -> Any:
    return function(*rows, **kwargs)


def _nth(number: int, function: Callable[..., Any], *rows: Any) -> Any:
    return function(*rows)[number]


def _sample(function: Callable[..., Any], *collections: Any) -> Any:
    """Return what a function makes of a row that is none of these."""
    X = collections[0]
    made_up = [
        one._meta_nonempty
        if hasattr(one, "divisions")
        else np.zeros((1, *one.shape[1:]), one.dtype)
        for one in collections
    ]
    try:
        return function(*made_up)
    except Exception:
        return on_first_rows(X, partial(_nothing_of, function))


def _nothing_of(function: Callable[..., Any], X: Any) -> Any:
    """Shape and type of an outcome, without any of its rows."""
    found = function(X)
    return tuple(one[:0] for one in found) if isinstance(found, tuple) else found[:0]
