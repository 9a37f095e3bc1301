"""Errors of what reads an input, without the values that they would quote."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

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

    What scikit-learn and numpy are known to say is passed on, or else ``instead`` is said; of a
    number of rows that is private, nothing.
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


def _safe(text: str) -> str:
    """The message without what it quotes: text that is no number, arrays, objects."""
    first, *rest = text.split("\n")
    if "argument must be" in first:
        return f"{first}. X and y must hold numbers and nothing else."
    if first.startswith("could not convert string") or ("string" in first and "'" in first):
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
    if first.startswith("Found array with dim"):
        return (
            f"{first.rstrip('.')}: flatten each record, X.reshape(len(X), -1). Networks with "
            "module= take images and sequences as they are."
        )
    if first.startswith("Input should have at least 1 dimension"):
        return "Expected y to hold one value per row, got a single value."
    if first.startswith("Sparse data was passed"):
        return (
            f"{first.partition('. ')[0]}: use sparse_output=False in the step before, e.g. in "
            "OneHotEncoder, or X.toarray()."
        )
    return first if rest and first.startswith("Complex") else text
