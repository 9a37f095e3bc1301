"""Rows that carry a public bound on their Euclidean norm, in the container in which they travel.

Transformers with a declared output norm return such rows, so that ``data_norm="auto"`` of the next
step is that norm. The norm is on the object itself and comes from parameters, never from data.
Nothing rests on it being true: estimators clip to it.

>>> import numpy as np
>>> from skdp.rows.bounds import bounded, row_norm
>>> rows = bounded(np.array([[0.6, 0.8]]), 1.0)
>>> row_norm(rows), row_norm(rows * 2)
(1.0, None)

What is done to the rows takes the norm away, since it may no longer hold: slices and arithmetic
give rows without one, and so do ``copy`` and ``clone`` of frames: pandas and polars call them where
a filter happens to remove no row, and then one record would decide whether there is a norm. What
`copy.copy` and pickles make keeps it, and so do joins of columns, as in FeatureUnion and
ColumnTransformer: the norm of the whole is the root of the sum of squares.

>>> row_norm(np.hstack([rows, rows]))  # √2
1.4142135623730951

Where a part of a join has no norm, neither has the whole, and ``data_norm="auto"`` is √n_features
again. Nothing is lost by it if the other parts declare the same of their columns; otherwise the
whole is marked, and a fit can say that it does not use the norm that was declared.

>>> from skdp.rows.bounds import norm_lost
>>> norm_lost(np.hstack([rows, np.ones((1, 1))]))
True

Frames of pandas and polars are of subclasses, made when the first is needed: neither library is
imported here. pandas lets a subclass hear of a join if the first frame is of it. polars does not,
and the frame warns when its columns are renamed, as scikit-learn does before it joins frames.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, ClassVar, NamedTuple

import numpy as np

from skdp.fitting.warnings import FitWarning


class Declared(NamedTuple):
    """What was declared of rows: a norm, or None for one that was lost in a join."""

    norm: float | None
    n_columns: int  # then: a frame may gain columns in place


class Carrier:
    """Rows with a declaration, or without as what is derived from them."""

    _declared: Declared | None = None


class _Container(Carrier):
    """Rows in a container of a library; copies and pickles keep the norm.

    No filter copies in this way, and scikit-learn does; a pipeline's cache, which pickles, must not
    change what a fit does.
    """

    _library: ClassVar[Any]  # the container's own class, known by name in a pickle

    def __copy__(self) -> Any:
        return carried(self._copied(), self._declared)

    def __deepcopy__(self, memo: Any) -> Any:
        return carried(self._copied(), self._declared)

    def _copied(self) -> Any:
        return self._library(self, copy=True)

    def __reduce__(self) -> tuple[Callable, tuple[Any, Declared | None]]:
        return carried, (self._library(self), self._declared)


class LoneArray(np.ndarray):
    """An array that looks like an ordinary one, as which whatever is made of it comes out."""

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        return np.asarray(array)[()] if return_scalar else np.asarray(array)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        result = super().__array_function__(func, types, args, kwargs)
        return np.asarray(result) if isinstance(result, LoneArray) else result

    def __repr__(self) -> str:
        return repr(np.asarray(self))


class BoundedRows(_Container, LoneArray):
    """An array that carries a norm, None for one that was lost; a join of columns keeps it."""

    _library = staticmethod(np.array)

    def __new__(cls, rows: np.ndarray, row_norm: float | None) -> BoundedRows:
        """View the rows."""
        self = np.asarray(rows).view(cls)
        self._declared = Declared(None if row_norm is None else float(row_norm), rows.shape[1])
        return self

    @property
    def row_norm(self) -> float | None:
        """The declared norm."""
        return None if self._declared is None else self._declared.norm

    def __getitem__(self, key: Any) -> Any:
        """Give an ordinary array, or a number."""
        return np.asarray(self)[key]

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Give an ordinary array, or the norm of the whole to a join of columns."""
        result = np.ndarray.__array_function__(self, func, types, args, kwargs)
        if not isinstance(result, np.ndarray) or declared(result) is not None:
            return result  # of hstack, which has called concatenate
        axis = args[1] if len(args) > 1 else kwargs.get("axis", 0)
        if func is np.concatenate and axis in (1, -1) and result.ndim == 2:
            return carried(np.asarray(result), _joined(args[0], result.shape[1]))
        return np.asarray(result)


class _Frame(_Container):
    """What the subclasses of pandas' and polars' frames share."""

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        """Give an array that carries the norm, where frames are joined as arrays."""
        return carried(self._library.__array__(self, *args, **kwargs), self._declared)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Join frames as arrays that carry their norms; do all else as numpy does."""
        if func is np.concatenate:
            return func([np.asanyarray(part) for part in args[0]], *args[1:], **kwargs)
        return np.empty(0).__array_function__(func, (), args, kwargs)

    def _copied(self) -> Any:
        return self._library.__copy__(self)


class _PandasFrame(_Frame):
    """A frame of pandas that carries a norm."""

    @property
    def _constructor(self) -> Any:
        return type(self)

    def __finalize__(self, other: Any, method: str | None = None, **kwargs: Any) -> Any:
        """Carry the norm of the whole, if this is a join of columns."""
        result = self._library.__finalize__(self, other, method=method, **kwargs)
        parts = getattr(other, "input_objs", getattr(other, "objs", ()))  # pandas 3, pandas 2
        if method == "concat" and all(part.shape[0] == result.shape[0] for part in parts):
            n_columns = sum(part.shape[1] if part.ndim == 2 else 1 for part in parts)
            if n_columns == result.shape[1]:
                result._declared = _joined(parts, n_columns)
        return result

    def rename(self, *args: Any, **kwargs: Any) -> Any:
        """Keep the norm: other names, the same rows."""
        return self._renamed(self._library.rename(self, *args, **kwargs))

    def add_prefix(self, *args: Any, **kwargs: Any) -> Any:
        """Keep the norm: other names, the same rows."""
        return self._renamed(self._library.add_prefix(self, *args, **kwargs))

    def _renamed(self, frame: Any) -> Any:
        if frame is not None:  # it was renamed in place
            frame._declared = self._declared
        return frame

    def __reduce__(self) -> tuple[Callable, tuple[Any, Declared | None]]:
        """Keep the norm, and what pandas keeps with a frame."""
        return carried, (self._library(self).__finalize__(self), self._declared)


class _PolarsFrame(_Frame):
    """A frame of polars that carries a norm."""

    @property
    def columns(self) -> Any:
        """Names of the columns."""
        return self._library.columns.fget(self)

    @columns.setter
    def columns(self, names: Sequence[str]) -> None:
        """Rename the columns: what scikit-learn does before it joins frames."""
        if list(names) != self.columns and _would_be_lost(self):
            warnings.warn(
                "A declared norm of rows is lost where frames of polars are joined, as in a "
                "ColumnTransformer or a FeatureUnion: the next step with data_norm='auto' takes "
                "√n_features. Give it data_norm=, put a NormClipper(norm=...) right before it, or "
                "use set_output(transform='pandas') or 'default', where joins keep the norm.",
                FitWarning,
                stacklevel=2,
            )
        self._library.columns.fset(self, names)


_CONTAINERS = {"pandas": _PandasFrame, "polars": _PolarsFrame, "scipy": _Container}


@cache
def _carrier(kind: type) -> Any:
    """Make the class of frames that carry a norm; None where the library is another one."""
    if issubclass(kind, Carrier):
        return kind
    mixin = _CONTAINERS.get(kind.__module__.partition(".")[0])
    if mixin is None:
        return None
    # scikit-learn finds the library of a frame by the module of its class.
    return type("BoundedFrame", (mixin, kind), {"_library": kind, "__module__": kind.__module__})


def carried(rows: Any, declared: Declared | None) -> Any:
    """Give rows a declaration; None, and a container of another library, leave them as they are."""
    if declared is None:
        return rows
    if isinstance(rows, np.ndarray):
        result = np.asarray(rows).view(BoundedRows)
    else:
        carrier = _carrier(type(rows))
        if carrier is None:
            return rows
        result = carrier(rows)
        if isinstance(result, _PandasFrame):
            result.__finalize__(rows)
    result._declared = declared
    return result


def bounded(rows: Any, norm: float) -> Any:
    """Declare the norm of rows, in their container."""
    return carried(rows, Declared(float(norm), rows.shape[1]))


def declared(rows: Any) -> Declared | None:
    """Return what rows declare, if they have the columns of which it was declared."""
    found = rows._declared if issubclass(type(rows), Carrier) else None
    return found if found is not None and found.n_columns == rows.shape[1] else None


def row_norm(rows: Any) -> float | None:
    """Return the declared bound on the norm of the rows, if they carry one that is a bound."""
    found = declared(rows)
    norm = None if found is None else found.norm
    return norm if norm is not None and 1e-100 < norm < 1e100 else None


def norm_lost(rows: Any) -> bool:
    """Whether a norm that columns of the rows declared was lost where they were joined."""
    found = declared(rows)
    return found is not None and found.norm is None


def _would_be_lost(part: Any) -> bool:
    """Whether a part of a join declares other than √n_features, which the whole has anyway."""
    norm = row_norm(part)
    return norm is not None and not math.isclose(norm, part.shape[1] ** 0.5, rel_tol=1e-9)


def _joined(parts: Sequence[Any], n_columns: int) -> Declared | None:
    """What is declared of rows whose columns are those of the parts."""
    norms = [norm for norm in map(row_norm, parts) if norm is not None]
    if len(norms) < len(parts):
        lost = any(norm_lost(part) or _would_be_lost(part) for part in parts)
        return Declared(None, n_columns) if lost else None
    if not any(map(_would_be_lost, parts)):
        return Declared(n_columns**0.5, n_columns)  # its very digits, whatever the parts
    return Declared(math.hypot(*norms), n_columns)
