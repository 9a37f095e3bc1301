"""Arrays checked by scikit-learn, with errors that never quote a value of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.utils.multiclass import check_classification_targets, unique_labels
from sklearn.utils.validation import (
    check_array,
    check_consistent_length,
    column_or_1d,
    validate_data,
)

from skdp.fitting.types import ArrayLike, Estimator, Given
from skdp.fitting.validate import NO_ARRAY, is_dask
from skdp.relations import ROW, check_relation
from skdp.rows.bounds import carried, declared
from skdp.rows.chunks import ChunkedRows
from skdp.rows.persons import Persons
from skdp.rows.sparse import SparseRows

_FLOATS = (np.float64, np.float32)

_DType = str | tuple[type, ...]


def n_is_public(estimator: Any) -> bool:
    """Whether neighbours have equally many rows; what protects none may be a step before one."""
    relation = getattr(estimator, "neighboring_relation", None)
    of_persons = isinstance(getattr(estimator, "unit", ROW), Persons)
    return relation is not None and not of_persons and check_relation(relation).n_is_public


@contextmanager
def checking(estimator: Any, X: Any, *, fit: bool = True) -> Iterator[dict[str, Any]]:
    """Check rows without quoting any; yield the least number of them that scikit-learn may ask for.

    It is 0 where the number of rows is private, because a refusal would reveal it, and in a
    transform, which must pass no rows on to the next step of a pipeline.
    """
    if isinstance(X, ChunkedRows) or is_dask(X):
        raise ValueError(NO_ARRAY)
    names = list(getattr(X, "columns", ()))
    if twice := sorted({str(name) for name in names if names.count(name) > 1}):
        raise ValueError(f"Expected column names to differ, got {twice} twice: rename or drop one.")
    is_public, waited_for = n_is_public(estimator), fit or hasattr(estimator, "transform")
    with without_data(n_is_public=is_public):
        yield {"ensure_min_samples": 0} if waited_for and not is_public else {}


def check_features(
    estimator: Estimator, X: Any, *, dtype: _DType = _FLOATS, sparse: bool = False, **checks: Any
) -> Any:
    """Validate X as `sklearn.utils.validation.validate_data` does.

    Parameters
    ----------
    estimator : estimator
        Gets ``n_features_in_`` and ``feature_names_in_``, or is held to them with ``reset=False``.
    X : array-like of shape (n, n_features)
        Rows.
    dtype : dtypes or "numeric"
        With ``"numeric"`` numbers of any type stay as they are, in a memory map for instance.
    sparse : bool, default=False
        Whether sparse matrices are taken too, and returned as `SparseRows`.
    **checks : Any
        Passed to `validate_data`.

    Returns
    -------
    ndarray of shape (n, n_features)
        The rows, with the norm that an earlier step declared.

    Raises
    ------
    ValueError
        If the input is invalid; no value of it is quoted.

    Examples
    --------
    >>> from skdp import DPStandardScaler
    >>> from skdp.base import check_features
    >>> check_features(DPStandardScaler(), [[1, 2]])
    array([[1., 2.]])
    """
    how = {"dtype": dtype, "accept_sparse": "csr" if sparse else False, **checks}
    with checking(estimator, X, fit=checks.get("reset", True)) as least:
        return _plain(validate_data(estimator, X, **least | how), X)


def check_features_and_labels(
    estimator: Estimator,
    X: Any,
    y: Any,
    *,
    declared: bool,
    dtype: _DType = _FLOATS,
    sparse: bool = False,
    **checks: Any,
) -> tuple[Any, np.ndarray]:
    """Validate X and class labels y of a fit; see `check_features`.

    Parameters
    ----------
    estimator, X, dtype, sparse, **checks
        As in `check_features`.
    y : array-like of shape (n,)
        Labels.
    declared : bool
        Classes were declared: labels are looked up among them, and nothing else is asked of y.

    Returns
    -------
    tuple of ndarray, (n, n_features) and (n,)

    Raises
    ------
    ValueError
        If the input is invalid; no value of it is quoted.

    Examples
    --------
    >>> from skdp import DPSGDClassifier
    >>> from skdp.base import check_features_and_labels
    >>> check_features_and_labels(DPSGDClassifier(), [[1], [2]], ["b", "a"], declared=True)[1]
    array(['b', 'a'], dtype='<U1')
    """
    how = {"dtype": dtype, "accept_sparse": "csr" if sparse else False, **checks}
    with checking(estimator, X) as least:
        rows, y = validate_data(estimator, X, _as_objects(y), **least | how)
        if not declared:
            # Doubled: a warning that most labels are distinct would reveal how many rows there are.
            check_classification_targets(np.tile(y, 2))
        return _plain(rows, X), column_or_1d(y)


def check_features_and_targets(
    estimator: Estimator,
    X: Any,
    y: Any,
    *,
    multi_output: bool = True,
    sparse: bool = False,
    reset: bool = True,
    **checks: Any,
) -> tuple[Any, np.ndarray]:
    """Validate X and real targets y of a fit; see `check_features`.

    Parameters
    ----------
    estimator, X, sparse, **checks
        As in `check_features`.
    y : array-like of shape (n,) or (n, n_targets)
        Targets.
    multi_output : bool, default=True
        Whether there may be several.
    reset : bool, default=True
        As in `validate_data`.

    Returns
    -------
    tuple of ndarray, (n, n_features) and of the shape of y

    Raises
    ------
    ValueError
        If the input is invalid; no value of it is quoted.

    Examples
    --------
    >>> from skdp import DPSGDRegressor
    >>> from skdp.base import check_features_and_targets
    >>> check_features_and_targets(DPSGDRegressor(), [[1], [2]], [0, 1])[1]
    array([0., 1.])
    """
    with checking(estimator, X) as least:
        how = least | {"dtype": "numeric"}
        of_rows = {**how, "accept_sparse": "csr" if sparse else False, **checks}
        if multi_output:  # of several targets `check_X_y` asks for a row, whatever it is told
            both: Any = of_rows, {**how, "ensure_2d": False}
            rows, y = validate_data(estimator, X, y, validate_separately=both, reset=reset)
            check_consistent_length(rows, y)
        else:
            rows, y = validate_data(estimator, X, y, y_numeric=True, reset=reset, **of_rows)
        return _plain(rows, X), finite(y)


def _as_objects(y: Any) -> Any:
    """Text of numpy's newer kind as objects, which scikit-learn reads."""
    return y.astype(object) if isinstance(y, np.ndarray) and y.dtype.kind == "T" else y


def check_labels(X: ArrayLike, y: Given, classes: np.ndarray) -> np.ndarray:
    """Check class labels, (n,), of rows to score: one per row, of the kind of the classes."""
    with without_data(LABELS):
        labels = column_or_1d(_as_objects(y))
    with without_data():
        check_consistent_length(X, labels)
    with without_data(LABELS):
        if not labels.dtype.kind == classes.dtype.kind == "S":  # bytes, which scikit-learn refuses
            unique_labels(np.tile(classes, 2), np.tile(labels, 2))  # twice: else continuous
    return labels


def check_rows(X: ArrayLike, n_columns: int) -> np.ndarray:
    """Check rows to map back to features: finite numbers, of so many columns."""
    with without_data():
        rows = check_array(X, dtype="numeric")
    if rows.shape[1] != n_columns:
        raise ValueError(f"Expected X with {n_columns} columns, got {rows.shape[1]}.")
    return rows


def check_targets(X: ArrayLike, y: Given) -> np.ndarray:
    """Check real targets, (n,) or (n, n_targets), of rows to score."""
    with without_data():
        y = check_array(y, dtype="numeric", ensure_2d=False, input_name="y")
        check_consistent_length(X, y)
        return finite(y)


def finite(y: Given) -> np.ndarray:
    """Targets as float64; none may be missing or infinite."""
    with without_data("Expected y to hold numbers, got values of another type."):
        targets = np.asarray(y, dtype=np.float64)
    if not np.isfinite(targets).all():  # None, which scikit-learn lets pass, is NaN now
        raise ValueError("Input y contains NaN or infinity; drop those rows.")
    return targets


def _plain(X: Any, given: Any) -> Any:
    """Return X itself, or as float64 where its type is one that torch does not know.

    What was declared with the rows as they were ``given`` stays with them.
    """
    if issparse(X):
        return SparseRows.of(X, declared(given))
    X = np.asarray(X)
    known = X.dtype.kind in "biuf" and X.dtype.itemsize <= 8 and X.dtype.isnative
    if not known:
        with np.errstate(over="ignore"):  # a warning would tell of a value
            X = X.astype(np.float64)
        if np.isinf(X).any():  # it was finite as a longer float
            raise ValueError("Input X contains infinity or a value too large for dtype('float64').")
    found = declared(given)
    return X if found is None else carried(X, found)


# Said where the words of an error may be those of the data.
_NUMBERS = (
    "Expected X, and y where it is asked for, to be arrays of numbers that a double can hold; "
    "convert them first, e.g. a tensor with X.detach().numpy()."
)

LABELS = (
    "Expected y to hold one class label per row, all of them numbers or all of them text as in the "
    "fit, and none missing."
)


# --- messages -----------------------------------------------------------------------------------

# What scikit-learn, numpy and this module say of an input; `_safe` cuts what they quote. No one
# knows whose words another message holds: an array, a column or a cell may speak for itself.
_KNOWN = re.compile(
    r"Input (X |y )?contains |Expected 2D |Expected a 2-dimensional container "
    r"|Expected sequence or array-like, got <class |Found array with "
    r"|Found input variables with inconsistent |Input should have at least 1 dimension"
    r"|Sparse data was passed|Complex data not supported|np\.matrix is not supported"
    r"|dtype='numeric' is not compatible |y should be a 1d array|X has \d+ features, but "
    r"|\w+ requires y to be passed|This \w+ estimator requires y "
    r"|Unknown label type: [\w-]+\. Maybe |Support for labels represented as bytes "
    r"|The feature names should match |Feature names are only supported "
    r"|setting an array element with a sequence|could not convert string to "
    r"|Rows in chunks are not an array"
    r"|Cannot cast array data from dtype|\w+\(\) argument must be "
)

_KNOWN_WARNINGS = re.compile(
    r"X has feature names|X does not have valid feature names|A column-vector y was passed"
    r"|R\^2 score is not well-defined"
    r"|pandas\.DataFrame with sparse columns found"
)


# Where these say how many rows there are: "(shape=(24, 0))", "of shape (24, 2)", ": [24, 23]".
_N_ROWS = re.compile(r"(?<=shape=\()\d+|(?<=shape \()\d+|(?<=shape was \()\d+|: \[[\d, ]+\]$")


@contextmanager
def without_data(instead: str | None = None, *, n_is_public: bool = True) -> Iterator[None]:
    """Let no error and no numerical warning of what reads an input quote a value of it.

    What libraries are known to say is passed on, unless it tells of an n that is private; else
    ``instead`` is said.
    """
    try:
        with np.errstate(all="ignore"):  # a warning would tell of a value
            yield
    except MemoryError:
        raise MemoryError("Expected X and y to fit into memory.") from None
    except Warning as warning:  # an error by a filter
        if _KNOWN_WARNINGS.match(_words(warning)):
            raise
        raise ValueError(instead or _NUMBERS) from None
    except Exception as error:
        words = _words(error) if type(error) in (ValueError, TypeError) else ""
        if instead is not None or not _KNOWN.match(words):
            raise ValueError(instead or _NUMBERS) from None
        said = _safe(words)
        raise type(error)(said if n_is_public else _N_ROWS.sub("", said)) from None


def _words(error: Exception) -> str:
    text = error.args[0] if error.args else ""
    return text if type(text) is str else ""


# How the first line of what scikit-learn says begins, and what is said in its place: without text
# that is no number, without arrays and objects.
_SAID_INSTEAD = [
    (r".*argument must be.*", r"\g<0>. X and y must hold numbers and nothing else."),
    (
        r"could not convert string|.*string.*'|.*'.*string",
        "Expected X to hold numbers, got text; encode text columns first, with categories that are "
        "public: OneHotEncoder(categories=[...]).",
    ),
    (  # a second pass finds its remedy there
        r"Input X contains NaN\.$",
        r"\g<0> Fill it with a public value, SimpleImputer(strategy='constant', fill_value=...), "
        "or with a private one, DPStandardScaler.",
    ),
    (
        r"(Expected 2D array, got.*?)( instead|$)",
        r"\1 instead: X must have rows and columns. Reshape your data either using "
        "array.reshape(-1, 1) if your data has a single feature or array.reshape(1, -1) if it "
        "contains a single sample.",
    ),
    (
        r"(Found array with dim.*?)\.*$",
        r"\1: flatten each record, X.reshape(len(X), -1). Networks with module= take images and "
        "sequences as they are.",
    ),
    (
        "Input should have at least 1 dimension",
        "Expected y to hold one value per row, got a single value.",
    ),
    (
        r"(Sparse data was passed.*?)(\. |$)",
        r"\1: use sparse_output=False in the step before, e.g. in OneHotEncoder, or X.toarray().",
    ),
    (r"Complex.*", r"\g<0>"),
]


def _safe(text: str) -> str:
    """The message without what it quotes."""
    first = text.split("\n")[0]
    for begins, instead in _SAID_INSTEAD:
        if found := re.match(begins, first):
            return found.expand(instead)
    return text
