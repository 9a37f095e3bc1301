"""Columns of a table, checked by scikit-learn: numbers, text and missing values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_X_y, validate_data

from skdp.fitting.input import checking, finite, without_data
from skdp.fitting.types import Estimator


def check_columns(estimator: Estimator, X: Any, *, reset: bool) -> dict[Any, np.ndarray]:
    """Validate columns, of an array or a frame of pandas or polars; return the values (n,) of each.

    Values may be missing, and are named as in a frame or by position; no error quotes one. With
    ``reset`` the estimator learns number and names, and is held to them without.
    """
    with checking(estimator, X, fit=reset) as least:
        if not is_frame(X):
            how = {"dtype": None, "ensure_all_finite": "allow-nan", **least}
            rows = validate_data(estimator, X, reset=reset, **how)
            return dict(enumerate(np.asarray(rows).T))
        validate_data(estimator, X, reset=reset, skip_check_array=True)
        if len(X) < least.get("ensure_min_samples", 1):
            raise ValueError("Expected at least one row.")
        return {name: np.asarray(X[name]) for name in X.columns}


def check_columns_and_labels(
    estimator: Estimator, X: Any, y: Any, *, declared: bool
) -> tuple[dict[Any, np.ndarray], np.ndarray]:
    """Validate the columns of X and class labels y of a fit; see `check_columns`."""
    columns, y = _check_columns_and(estimator, X, y)
    if not declared:
        with checking(estimator, X):
            check_classification_targets(np.tile(y, 2))
    return columns, y


def check_columns_and_targets(
    estimator: Estimator, X: Any, y: Any
) -> tuple[dict[Any, np.ndarray], np.ndarray]:
    """Validate the columns of X and real targets y of a fit; see `check_columns`."""
    columns, y = _check_columns_and(estimator, X, y, y_numeric=True)
    return columns, finite(y)


def _check_columns_and(
    estimator: Estimator, X: Any, y: Any, **how: Any
) -> tuple[dict[Any, np.ndarray], np.ndarray]:
    columns = check_columns(estimator, X, reset=True)
    with checking(estimator, X) as least:
        # Of y it says what is missing, if that is all of it.
        validate_data(estimator, X, y, reset=False, skip_check_array=True)
        n = len(next(iter(columns.values())))
        return columns, check_X_y(np.zeros((n, 1)), y, **least, **how)[1]


def numbers(values: np.ndarray, name: str) -> np.ndarray:
    """Values of a column as float64, NaN where they are missing; none may be infinite."""
    wrong = f"Expected numbers in {name}; give categories= for a column of others."
    objects = values.tolist() if values.dtype.kind == "O" else []
    if not all(isinstance(v, str) or hasattr(type(v), "__float__") or _missing(v) for v in objects):
        raise TypeError(f"{wrong} An entry as argument must be a string of a number, or a number.")
    with without_data(wrong):
        if objects:
            values = np.array([math.nan if _missing(value) else float(value) for value in objects])
        found = values.astype(np.float64)
    if np.isinf(found).any():
        raise ValueError(f"Input {name} contains infinity.")
    return found


def _missing(value: Any) -> bool:
    return type(value).__name__ in ("NoneType", "NAType", "NaTType")


def is_frame(X: Any) -> bool:
    """Whether X has columns that are found by name."""
    return hasattr(X, "columns") and hasattr(X, "__getitem__") and not isinstance(X, np.ndarray)
