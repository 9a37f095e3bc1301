"""What displays are made from: columns of numbers with names, and fitted estimators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from sklearn.pipeline import Pipeline

from skdp.fitting.types import ArrayLike, Opaque
from skdp.fitting.validate import expected, in_range
from skdp.metrics._predictions import numbers

Chosen = str | int | Sequence[str | int]  # parameters, by name or index


def columns(values: ArrayLike, name: str) -> np.ndarray:
    """Check for (n,) or (n, n_columns) finite numbers; returns two dimensions."""
    array = numbers(values, name)
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim != 2 or array.size == 0:
        raise ValueError(
            f"Expected {name} of shape (n,) or (n, n_columns) and not empty, got {array.shape}."
        )
    if not np.isfinite(array).all():
        raise ValueError(f"Expected {name} to be finite; drop what is missing.")
    return array


def check_names(names: Sequence[str] | None, n_columns: int, prefix: str) -> list[str]:
    """Check for one name a column, or number the columns."""
    if names is None:
        return [f"{prefix}{i}" for i in range(n_columns)]
    if isinstance(names, str) or not hasattr(names, "__len__") or len(names) != n_columns:
        raise expected(f"one name for each of the {n_columns} columns", names=names)
    return [str(name) for name in names]


def select(parameters: Chosen | None, names: Sequence[str], n_default: int) -> list[int]:
    """Find the columns of parameters given by name or index; None takes the first few."""
    if parameters is None:
        return list(range(min(n_default, len(names))))
    if isinstance(parameters, str | Integral) or not np.iterable(parameters):
        parameters = [parameters]
    selected = [_column(p, names) for p in parameters]
    if not selected:
        raise expected("a list of names or indices, not empty", parameters=parameters)
    return selected


def _column(parameter: str | int, names: Sequence[str]) -> int:
    if isinstance(parameter, str) and parameter in names:
        return list(names).index(parameter)
    if isinstance(parameter, Integral) and not isinstance(parameter, bool):
        index = int(parameter)
        if -len(names) <= index < len(names):
            return index % len(names)
    what = f"a name in parameter_names_ or an index below {len(names)}"
    raise expected(what, parameters=parameter)


def last_step(estimator: Any, attribute: str) -> Opaque:
    """Give the estimator, or the last step of a pipeline, that has what the display reads."""
    last: Any = estimator[-1] if isinstance(estimator, Pipeline) else estimator
    if not hasattr(last, attribute):
        raise expected(f"fitted and to have {attribute}", estimator=last)
    return last


def transformed(estimator: Any, X: ArrayLike) -> ArrayLike:
    """Take X through the steps before the last, where the estimator is a pipeline of several."""
    if isinstance(estimator, Pipeline) and len(estimator) > 1:
        return estimator[:-1].transform(X)
    return X


def of_report(report: Any, method: str) -> Callable[..., Any]:
    """Give the method of a report that the display reads."""
    if not hasattr(report, method):
        classes = "two classes" if method != "confusion_matrix" else "classes"
        raise ValueError(
            f"Expected report ({type(report).__name__}) to be a report on {classes}, as "
            f"skdp.evaluation.private_report returns; it has no {method}."
        )
    return getattr(report, method)


class Interval(NamedTuple):
    """A released estimate as it is drawn: checked arrays of one shape, and the level."""

    value: np.ndarray
    low: np.ndarray
    high: np.ndarray
    level: float

    @property
    def is_unknown(self) -> np.ndarray:
        """Whether the interval of a share is the whole range."""
        return (self.low <= 0) & (self.high >= 1)

    def __str__(self) -> str:
        """Write a number with its interval, in two digits of its width."""
        width = max(float(self.high - self.low), 1e-9)
        digits = int(np.clip(2 - np.ceil(np.log10(width)), 0, 4))
        return f"{self.value:.{digits}f} [{self.low:.{digits}f}, {self.high:.{digits}f}]"


def interval(estimate: Any, name: str, n_dimensions: int) -> Interval:
    """Check an estimate, as reports return: value, low and high of one shape, and a level."""
    missing = [end for end in Interval._fields if not hasattr(estimate, end)]
    if missing:
        raise ValueError(
            f"Expected {name} ({type(estimate).__name__}) to be an Estimate of skdp.evaluation; it "
            f"has no {missing[0]}."
        )
    value, low, high = (
        numbers(getattr(estimate, end), f"{name}.{end}") for end in ("value", "low", "high")
    )
    shapes = value.shape, low.shape, high.shape
    if value.ndim != n_dimensions or len(set(shapes)) > 1:
        raise ValueError(
            f"Expected {name} with value, low and high of one shape and {n_dimensions} dimensions, "
            f"got {', '.join(map(str, shapes))}."
        )
    return Interval(value, low, high, in_range(0, 1, level=estimate.level))


def level_between(level: float) -> tuple[float, float]:
    """Give the two quantiles between which the central ``level`` of a law lies."""
    return (1 - level) / 2, (1 + level) / 2
