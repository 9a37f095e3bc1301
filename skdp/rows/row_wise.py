"""Methods that map each row by itself, for rows in chunks and in partitions of Dask."""

from __future__ import annotations

import copy
from functools import partial, wraps
from inspect import isfunction, signature
from typing import Any

import numpy as np

from skdp.fitting.validate import is_dask
from skdp.rows.chunk_tasks import ALL_EMPTY, n_rows_of
from skdp.rows.chunks import ChunkedRows
from skdp.rows.lazy_rows import on_first_rows
from skdp.rows.parts import handed_on

# --- predictions --------------------------------------------------------------------------------

_OF_ROWS = (
    "predict", "predict_proba", "predict_log_proba", "decision_function", "score_samples",
)  # fmt: skip


def takes_chunks(cls: Any) -> Any:
    """Let the methods of a class that map each row by itself take rows in chunks: a decorator.

    Predictions of all rows are one array; ``transform`` gives rows in chunks. Of collections of
    Dask both are collections again.
    """
    for name in _OF_ROWS:
        if isfunction(vars(cls).get(name)):
            setattr(cls, name, _blockwise(vars(cls)[name]))
    if isfunction(vars(cls).get("transform")):
        cls.transform = _lazily(vars(cls)["transform"])
        cls.fit_transform = _fitted_first(cls.fit_transform)
    return cls


def _blockwise(method: Any) -> Any:
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
            from skdp.rows.dask_blocks import blockwise

            return blockwise(partial(method, copy.copy(self)), X, *args, **kwargs)
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


def _lazily(method: Any) -> Any:
    @wraps(method)
    def of_rows(self: Any, X: Any) -> Any:
        if not isinstance(X, ChunkedRows) and not is_dask(X):
            return handed_on(X, method(self, X))
        # Of a copy: rows are read again, and must be mapped as they were.
        apply = partial(method, copy.copy(self))
        if isinstance(X, ChunkedRows):
            return X.map(apply)
        from skdp.rows.dask_blocks import blockwise

        return blockwise(apply, X)

    return of_rows


def _fitted_first(method: Any) -> Any:
    @wraps(method)
    def of_rows(self: Any, X: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(X, ChunkedRows) or is_dask(X):
            return self.fit(X, *args, **kwargs).transform(X)
        return method(self, X, *args, **kwargs)

    return of_rows


def learns_columns(cls: Any) -> Any:
    """Let a transformer that learns the columns alone be fitted on rows in chunks: a decorator.

    It sees the rows of the first chunk that has any, where they are.
    """
    fit = cls.fit

    @wraps(fit)
    def of_rows(self: Any, X: Any, y: Any = None) -> Any:
        if not isinstance(X, ChunkedRows) and not is_dask(X):
            return fit(self, X, y)
        vars(self).update(vars(on_first_rows(X, partial(type(self).fit, self))))
        return self

    cls.fit = of_rows
    return takes_chunks(cls)
