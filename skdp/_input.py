"""Arrays checked by scikit-learn, with errors that never quote a value of them."""

from __future__ import annotations

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
    """Return the declared bound on the norm of the rows, if they carry one."""
    return getattr(X, "row_norm", None) if isinstance(X, BoundedRows) else None


def check_features(estimator: Any, X: Any, *, dtype: Any = _FLOATS, **checks: Any) -> np.ndarray:
    """Validate X as `sklearn.utils.validation.validate_data` does.

    With ``dtype="numeric"`` numbers of any type stay as they are, in a memory map for instance.
    """
    try:
        return _plain(validate_data(estimator, X, dtype=dtype, **checks), X)
    except ValueError as error:
        raise _without_data(error) from None


def check_features_and_labels(
    estimator: Any, X: Any, y: Any, *, declared: bool, dtype: Any = _FLOATS, **checks: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Validate X and class labels y of a fit; see `check_features`.

    With ``declared`` classes, labels are looked up among them, and nothing else is asked of y.
    """
    try:
        rows, y = validate_data(estimator, X, y, dtype=dtype, **checks)
        if not declared:
            check_classification_targets(y)
        return _plain(rows, X), column_or_1d(y)
    except ValueError as error:
        raise _without_data(error) from None


def check_features_and_targets(
    estimator: Any, X: Any, y: Any, *, multi_output: bool = True, **checks: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Validate X and real targets y, (n,) or (n, n_targets), of a fit; see `check_features`."""
    try:
        rows, y = validate_data(
            estimator, X, y, dtype="numeric", multi_output=multi_output, y_numeric=True, **checks
        )
        return _plain(rows, X), np.asarray(y, dtype=np.float64)
    except ValueError as error:
        raise _without_data(error) from None


def _plain(X: Any, given: Any) -> np.ndarray:
    """Return X itself, or as float64 where its type is one that torch does not know.

    A norm that was declared with the rows as they were ``given`` stays with them.
    """
    X = np.asarray(X)
    known = X.dtype.kind in "biuf" and X.dtype.itemsize <= 8 and X.dtype.isnative
    if not known:
        with np.errstate(over="ignore"):  # a warning would tell of a value
            X = X.astype(np.float64)
    declared = row_norm(given)
    return X if declared is None else BoundedRows(X, declared)


def _without_data(error: ValueError) -> ValueError:
    """Numpy quotes the text that it cannot read as a number, scikit-learn a complex array."""
    first, *rest = str(error).split("\n")
    if "string" in first and "'" in first:
        return ValueError(
            "Expected X to hold numbers, got text; encode text columns first, with categories "
            "that are public: OneHotEncoder(categories=[...])."
        )
    return ValueError(first) if rest and first.startswith("Complex") else error
