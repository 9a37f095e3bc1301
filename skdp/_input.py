"""Arrays checked by scikit-learn, with errors that never quote a value of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d, validate_data

_FLOATS = (np.float64, np.float32)


class BoundedRows(np.ndarray):
    """Rows that know a public bound on their Euclidean norm.

    Transformers with a declared output norm return them, so that ``data_norm="auto"`` of the next
    step is that norm. Any operation, a slice too, gives an ordinary array: the bound may no longer
    hold, and a plain array is clipped to √n_features as always. Nothing rests on the bound being
    true: estimators clip to it.
    """

    row_norm: float

    def __new__(cls, rows: np.ndarray, row_norm: float) -> BoundedRows:
        """View the rows."""
        self = np.asarray(rows).view(cls)
        self.row_norm = float(row_norm)
        return self

    def __getitem__(self, key: Any) -> Any:
        """Give an ordinary array, or a number."""
        return np.asarray(self)[key]

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        """Give an ordinary array, or a number."""
        return np.asarray(array)[()] if return_scalar else np.asarray(array)

    def __repr__(self) -> str:
        """Look like the ordinary array."""
        return repr(np.asarray(self))

    def __reduce__(self) -> Any:
        """Keep the bound in a pickle: a pipeline's cache must not change what a fit does."""
        return BoundedRows, (np.asarray(self), self.row_norm)


def row_norm(X: Any) -> float | None:
    """Return the declared bound on the norm of the rows, if they carry one that is a bound."""
    norm = getattr(X, "row_norm", None) if isinstance(X, BoundedRows) else None
    return norm if norm is not None and 1e-100 < norm < 1e100 else None


def check_features(estimator: Any, X: Any, *, dtype: Any = _FLOATS, **checks: Any) -> np.ndarray:
    """Validate X as `sklearn.utils.validation.validate_data` does.

    With ``dtype="numeric"`` numbers of any type stay as they are, in a memory map for instance.
    """
    with _without_data():
        return _plain(validate_data(estimator, X, dtype=dtype, **checks), X)


def check_features_and_labels(
    estimator: Any, X: Any, y: Any, *, declared: bool, dtype: Any = _FLOATS, **checks: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Validate X and class labels y of a fit; see `check_features`.

    With ``declared`` classes, labels are looked up among them, and nothing else is asked of y.
    """
    with _without_data():
        rows, y = validate_data(estimator, X, y, dtype=dtype, **checks)
        if not declared:
            check_classification_targets(y)
        return _plain(rows, X), column_or_1d(y)


def check_features_and_targets(
    estimator: Any, X: Any, y: Any, *, multi_output: bool = True, **checks: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Validate X and real targets y, (n,) or (n, n_targets), of a fit; see `check_features`."""
    with _without_data():
        rows, y = validate_data(
            estimator, X, y, dtype="numeric", multi_output=multi_output, y_numeric=True, **checks
        )
        targets = np.asarray(y, dtype=np.float64)
        if not np.isfinite(targets).all():  # None, which scikit-learn lets pass, is NaN now
            raise ValueError("Input y contains NaN or infinity; drop those rows.")
        return _plain(rows, X), targets


def _plain(X: Any, given: Any) -> np.ndarray:
    """Return X itself, or as float64 where its type is one that torch does not know.

    A norm that was declared with the rows as they were ``given`` stays with them.
    """
    X = np.asarray(X)
    known = X.dtype.kind in "biuf" and X.dtype.itemsize <= 8 and X.dtype.isnative
    if not known:
        with np.errstate(over="ignore"):  # a warning would tell of a value
            X = X.astype(np.float64)
        if np.isinf(X).any():  # it was finite as a longer float
            raise ValueError("Input X contains infinity or a value too large for dtype('float64').")
    declared = row_norm(given)
    return X if declared is None else BoundedRows(X, declared)


@contextmanager
def _without_data() -> Iterator[None]:
    """Let no error and no warning of scikit-learn, numpy or pandas quote a value of the data."""
    try:
        with np.errstate(all="ignore"):  # a warning would tell of a value
            yield
    except (ValueError, TypeError) as error:
        raise type(error)(_safe(str(error))) if _known(error) else _unreadable() from None
    except (ArithmeticError, RuntimeError):  # integers beyond a double, tensors with gradients
        raise _unreadable() from None


def _known(error: Exception) -> bool:
    return type(error) in (ValueError, TypeError)


def _unreadable() -> ValueError:
    return ValueError(
        "Expected X, and y where it is asked for, to be arrays of numbers that a double can hold; "
        "convert them first, e.g. a tensor with X.detach().numpy()."
    )


def _safe(text: str) -> str:
    """The message without what it quotes: text that is no number, arrays, objects."""
    first, *rest = text.split("\n")
    if "argument must be" in first:
        return f"{first}. X and y must hold numbers and nothing else."
    if "string" in first and "'" in first:
        return (
            "Expected X to hold numbers, got text; encode text columns first, with categories "
            "that are public: OneHotEncoder(categories=[...])."
        )
    if first.startswith("Expected 2D array, got"):
        return (
            f"{first.partition(' instead')[0]} instead: X must have rows and columns. Reshape your "
            "data either using array.reshape(-1, 1) if your data has a single feature or "
            "array.reshape(1, -1) if it contains a single sample."
        )
    if first.startswith("Input should have at least 1 dimension"):
        return "Expected y to hold one value a row, got a single value."
    return first if rest and first.startswith("Complex") else text
