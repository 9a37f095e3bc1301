"""Labels and probabilities, checked: what every metric of this room starts from.

Messages quote parameters only: labels of rows, probabilities and weights are data.
"""

from __future__ import annotations

from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from skdp.fitting.types import ArrayLike, Label
from skdp.fitting.validate import as_array, expected

# A probability rounded to single precision, or read from a table of three decimals, must pass;
# scores and log-odds must not.
ROUNDING = 1e-6
SUM_TOLERANCE = 1e-3


class Predictions(NamedTuple):
    """Probabilities (n, n_classes) of the rows, columns of their true classes, and weights."""

    classes: list
    probabilities: np.ndarray
    codes: np.ndarray
    weights: np.ndarray


def check_predictions(
    y_true: ArrayLike, y_prob: ArrayLike, sample_weight: Any, labels: Any, pos_label: Any
) -> Predictions:
    """Check labels against probabilities, and give both classes a column where one was given."""
    probabilities = check_probabilities(y_prob)
    y = _labels_of_rows(y_true, len(probabilities))
    classes = _declared(labels) if labels is not None else _classes_of(y)
    if probabilities.shape[1] == 1:
        classes = _negative_first(classes, labels, pos_label)
        probabilities = both_columns(probabilities)
    elif pos_label is not None:
        index_of(classes, pos_label=pos_label)
    if len(classes) != probabilities.shape[1]:
        raise ValueError(
            f"Expected y_prob with one column for each of the {len(classes)} classes, got "
            f"{probabilities.shape[1]}; pass all classes, in the order of the columns, as labels=."
        )
    weights = _weights(sample_weight, len(y))
    return Predictions(classes, probabilities, _codes(y, classes), weights)


def check_probabilities(y_prob: ArrayLike, name: str = "y_prob", *, least: int = 1) -> np.ndarray:
    """Check ``least`` rows or more: (n, 1) for one class, (n, n_classes) for rows that sum to 1."""
    values = numbers(y_prob, name)
    if values.ndim == 1:
        values = values[:, None]
    if values.ndim != 2 or not values.shape[1] or len(values) < least:
        raise ValueError(
            f"Expected {name} of shape (n_samples,) or (n_samples, n_classes), not empty; pass "
            "what predict_proba returns."
        )
    if not np.isfinite(values).all():
        raise ValueError(f"Expected {name} to be finite; drop the rows that have no prediction.")
    if values.min(initial=0.0) < -ROUNDING or values.max(initial=0.0) > 1 + ROUNDING:
        raise ValueError(
            f"Expected {name} to lie in [0, 1]; pass probabilities, not scores or logarithms."
        )
    if values.shape[1] > 1 and np.abs(values.sum(axis=1) - 1).max(initial=0.0) > SUM_TOLERANCE:
        raise ValueError(
            f"Expected every row of {name} to sum to 1; divide each row by its sum, or pass the "
            "probabilities of all classes."
        )
    return np.clip(values, 0.0, 1.0)


def both_columns(positive: np.ndarray) -> np.ndarray:
    """Columns of the negative and the positive class from that of the positive, shape (n, 1)."""
    return np.column_stack([1 - positive, positive])


def numbers(values: ArrayLike, name: str) -> np.ndarray:
    """Read real numbers as float64, or say what was there instead."""
    array = as_array(values)
    of_reals = array.dtype == object and all(isinstance(v, Real) for v in array.flat)
    if not of_reals and array.dtype.kind not in "biuf":
        raise ValueError(
            f"Expected {name} ({type(values).__name__}) to be an array of real numbers; convert "
            "text, and drop missing values, first."
        )
    if np.ma.is_masked(values):
        raise ValueError(f"Expected {name} without masked values; drop those rows.")
    return array.astype(np.float64)


def _labels_of_rows(y_true: ArrayLike, n_rows: int) -> list:
    # As objects: a list of numbers and text would become text, and hide the mistake.
    y = as_array(y_true, dtype=object)
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim != 1:
        raise ValueError(
            f"Expected y_true ({type(y_true).__name__}) to hold one class label per row, shape "
            f"(n_samples,), got {y.shape}; of one-hot rows, take the column of the 1."
        )
    if len(y) != n_rows:
        raise ValueError(
            f"Expected y_true and y_prob to have as many rows as each other, got {len(y)} and "
            f"{n_rows}."
        )
    if np.ma.is_masked(y_true):
        raise ValueError("Expected y_true without masked values; drop those rows.")
    return y.tolist()


def _classes_of(y: list) -> list:
    try:
        classes = sorted(set(y))
        missing = any(label is None or label != label for label in classes)
    except TypeError:  # numbers and text, None among text, or what has no order at all
        classes, missing = [], True
    if missing:
        raise ValueError(
            "Expected y_true to hold labels of one kind, none missing; drop rows without a label, "
            "and do not mix numbers with text."
        )
    if any(isinstance(x, float | np.floating) and not float(x).is_integer() for x in classes):
        raise ValueError("Expected y_true to hold class labels, got fractions of real numbers.")
    if len(classes) < 2:
        raise ValueError(
            "Expected y_true to hold two classes or more; pass all classes, in the order of the "
            "columns of y_prob, as labels=."
        )
    return classes


def _declared(labels: ArrayLike) -> list:
    remedy = "pass the distinct class labels in the order of the columns of y_prob"
    try:
        array = np.asarray(labels, dtype=object)
        classes = array.tolist() if array.ndim == 1 else []
        n_distinct = len(set(classes))
    except (TypeError, ValueError):
        raise expected("a list of class labels", remedy, labels=labels) from None
    if n_distinct < max(len(classes), 2):
        raise expected("two or more distinct class labels", remedy, labels=labels)
    return classes


def _negative_first(classes: list, labels: ArrayLike | None, pos_label: Label | None) -> list:
    """Order two classes as the columns of `both_columns`."""
    if len(classes) != 2:
        raise ValueError(
            f"Expected y_prob with one column for each of the {len(classes)} classes; "
            "one probability a row is enough for two classes only."
        )
    if pos_label is not None:
        positive = index_of(classes, pos_label=pos_label)
        return [classes[1 - positive], classes[positive]]
    try:
        increasing = bool(classes[0] < classes[1])
    except TypeError:
        increasing = False
    if labels is not None and not increasing:
        # Second in the list, or the greater, as a scorer takes it? One of them would be wrong.
        what = "in increasing order where y_prob has one probability per row"
        remedy = "sort them, or say whose probability it is as pos_label="
        raise expected(what, remedy, labels=labels)
    return classes


def index_of(classes: list, **kw: Label) -> int:
    """Find a label given as parameter among the classes."""
    ((_, label),) = kw.items()
    try:
        return classes.index(label.item() if isinstance(label, np.generic) else label)
    except (TypeError, ValueError):
        raise expected("one of the classes", "pass a label as it stands in y_true", **kw) from None


def _codes(y: list, classes: list) -> np.ndarray:
    column = {label: k for k, label in enumerate(classes)}
    try:
        return np.array([column[label] for label in y], dtype=np.intp)
    except (KeyError, TypeError):
        raise ValueError(
            "Expected every label of y_true to be one of labels; add the missing classes, and "
            "their columns of y_prob."
        ) from None


def _weights(sample_weight: ArrayLike | None, n_rows: int) -> np.ndarray:
    if sample_weight is None:
        return np.ones(n_rows)
    weights = numbers(sample_weight, "sample_weight")
    if weights.shape != (n_rows,):
        raise ValueError(
            f"Expected sample_weight of shape ({n_rows},), one weight per row, got {weights.shape}."
        )
    with np.errstate(over="ignore"):
        total = weights.sum()
    if not np.isfinite(total) or weights.min() < 0 or total <= 0:
        raise ValueError(
            "Expected sample_weight to be finite numbers >= 0 with a finite sum > 0; drop rows "
            "instead of giving them other weights."
        )
    return weights
