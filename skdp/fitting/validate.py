"""Checks of parameters, in one form: ``Expected epsilon=-1 (int) to be ...; remedy``.

Only *parameters* are quoted, never data. Each check takes its parameter as a keyword, so that the
message can name it, and returns the checked value.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from numbers import Integral, Real
from typing import Any, TypeGuard

import numpy as np

from skdp.fitting.types import ArrayLike

FAR, ORDINARY = 1e9, (1e-25, 1e25)  # factor from the usual value, and the range without one

_LEAST_WIDTH, _MOST_BOUND = 1e-150, 1e150  # their squares are doubles too


NO_ARRAY = (
    "Rows in chunks are not an array. What received them here needs all rows at once, or is not of "
    "skdp: pass arrays, or wrap a transformer that learns nothing from rows in skdp.data.RowWise."
)


def is_dask(X: Any) -> bool:
    """Whether this is a lazy collection of Dask, which is not imported to find out."""
    dask: Any = sys.modules.get("dask")
    return dask is not None and dask.is_dask_collection(X)


def as_array(values: ArrayLike, dtype: type | None = None) -> np.ndarray:
    """Return an array, or an empty one of text where none can be made, as of a ragged list."""
    if is_dask(values):  # numpy would gather its rows here
        raise ValueError(NO_ARRAY)
    try:
        return np.asarray(values, dtype=dtype)
    except (TypeError, ValueError, OverflowError):
        return np.array("")


def expected(what: str, remedy: str = "", **kw: Any) -> ValueError:
    """Build the one form of message for the parameter given as keyword."""
    ((name, value),) = kw.items()
    shown = repr(value)
    shown = shown if len(shown) <= 60 else shown[:57] + "..."
    tail = f"; {remedy}" if remedy else ""
    return ValueError(f"Expected {name}={shown} ({type(value).__name__}) to be {what}{tail}.")


def is_real(value: Any) -> TypeGuard[float]:
    """Whether the value is a real number that a float can hold (booleans are none)."""
    if not isinstance(value, Real) or isinstance(value, bool):
        return False
    try:
        float(value)
    except OverflowError:
        return False
    return True


def positive(remedy: str = "", *, allow_inf: bool = False, **kw: float | None) -> float:
    """Check for a number > 0, finite unless ``allow_inf``."""
    ((_, value),) = kw.items()
    if not is_real(value) or not value > 0 or (math.isinf(value) and not allow_inf):
        kind = "a number > 0" if allow_inf else "a finite number > 0"
        raise expected(kind, remedy, **kw)
    return float(value)


def in_range(
    low: float, high: float, remedy: str = "", *, closed: str = "neither", **kw: Any
) -> float:
    """Check for a number between two bounds; ``closed`` says which of them belong to the range."""
    ((_, value),) = kw.items()
    left, right = closed in ("left", "both"), closed in ("right", "both")
    inside = is_real(value) and (low < value or (left and value == low))
    if not inside or not (value < high or (right and value == high)):
        interval = f"{'[' if left else '('}{low:g}, {high:g}{']' if right else ')'}"
        raise expected(f"a number in {interval}", remedy, **kw)
    return float(value)


def integer(low: int, remedy: str = "", **kw: int | None) -> int:
    """Check for an integer ≥ ``low``; a float that is a whole number is refused."""
    ((_, value),) = kw.items()
    if not isinstance(value, Integral) or isinstance(value, bool) or value < low:
        raise expected(f"an integer >= {low}", remedy, **kw)
    if not is_real(value):
        raise expected("an integer that a double can hold", remedy, **kw)
    return int(value)


def one_of(choices: Iterable[str], remedy: str = "", **kw: str | None) -> str:
    """Check for one of several strings."""
    ((_, value),) = kw.items()
    choices = tuple(choices)
    if not isinstance(value, str) or value not in choices:
        raise expected("one of " + ", ".join(map(repr, choices)), remedy, **kw)
    return value


def number_or_auto(default: float, remedy: str = "", **kw: Any) -> float:
    """Check for a number in [1e-100, 1e100], or take the default for ``"auto"``."""
    ((_, value),) = kw.items()
    if isinstance(value, str) and value == "auto":
        return default
    # Squares of numbers beyond these leave the range of a double, and a bound would bound nothing.
    return in_range(1e-100, 1e100, f"or 'auto'{remedy and '; '}{remedy}", closed="both", **kw)


def near_auto(default: float, around: float | None = None, **kw: Any) -> float:
    """Check for a number within a factor `FAR` of another, so that matrices are well-conditioned.

    The other is ``around``, or the default; where that is 0 or infinite the range is `ORDINARY`.
    """
    value, middle = number_or_auto(default, **kw), around or default
    low, high = (middle / FAR, middle * FAR) if 0.0 < middle < math.inf else ORDINARY
    if value != default and not low <= value <= high:
        remedy = "outside it, rounding errors dominate the fit"
        raise expected(f"a number in [{low:.1e}, {high:.1e}], or 'auto'", remedy, **kw)
    return value


def integer_or_auto(default: int, low: int = 1, **kw: Any) -> int:
    """Check for an integer ≥ ``low``, or take the default for ``"auto"``."""
    ((_, value),) = kw.items()
    if isinstance(value, str) and value == "auto":
        return default
    return integer(low, "or 'auto'", **kw)


def is_true(value: Any) -> bool:
    """Whether the value is True, numpy's included; False for any other type."""
    return isinstance(value, bool | np.bool_) and bool(value)


def flag(remedy: str = "", **kw: Any) -> bool:
    """Check for True or False, numpy's included."""
    ((_, value),) = kw.items()
    if not (isinstance(value, bool) or type(value).__name__ == "bool"):
        raise expected("True or False", remedy, **kw)
    return bool(value)


def declared_bounds(n_features: int, **kw: Any) -> np.ndarray:
    """Check declared bounds, and return one per feature."""
    ((_, value),) = kw.items()
    bounds = as_array(value)
    if bounds.dtype.kind not in "iuf" or bounds.shape not in ((), (n_features,)):
        raise expected(f"one number, or one for each of the {n_features} features", **kw)
    bounds = bounds.astype(np.float64)
    if not np.isfinite(bounds).all():
        remedy = "declare a bound for every feature; clipping does the rest"
        raise expected("finite numbers", remedy, **kw)
    return np.broadcast_to(bounds, n_features).copy()


def declared_range(
    n_features: int, lower: ArrayLike, upper: ArrayLike
) -> tuple[np.ndarray, np.ndarray]:
    """Check two declared bounds for each feature, the one below the other."""
    low, high = declared_bounds(n_features, lower=lower), declared_bounds(n_features, upper=upper)
    if not (low / 2 < high / 2).all():  # halves, as in `transform`
        raise expected("below upper in every feature", "swap or widen them", lower=lower)
    return low, high


def moderate_range(
    n_features: int, lower: ArrayLike, upper: ArrayLike
) -> tuple[np.ndarray, np.ndarray]:
    """Check the same for bounds that are to be squared."""
    low, high = declared_range(n_features, lower, upper)
    if (high / 2 - low / 2 < _LEAST_WIDTH).any():
        raise expected(f"{_LEAST_WIDTH:g} or more from upper", lower=lower)
    between = f"between -{_MOST_BOUND:g} and {_MOST_BOUND:g}"
    if (np.abs(low) > _MOST_BOUND).any():
        raise expected(between, lower=lower)
    if (np.abs(high) > _MOST_BOUND).any():
        raise expected(between, upper=upper)
    return low, high
