"""Features in the units that they came in: columns of affine steps as functions of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer, MaxAbsScaler, MinMaxScaler, StandardScaler


class Features(NamedTuple):
    """Columns as affine functions of features: x ↦ xA + b."""

    names: tuple[str, ...]
    A: np.ndarray  # (n_names, n_columns)
    b: np.ndarray  # (n_columns,)
    notes: tuple[str, ...] = ()

    @classmethod
    def named(cls, names: Sequence[Any], notes: tuple[str, ...] = ()) -> Features:
        """Columns as they are."""
        return cls(tuple(map(str, names)), np.eye(len(names)), np.zeros(len(names)), notes)

    def through(self, A: np.ndarray, b: np.ndarray, note: str) -> Features:
        """The columns that an affine step makes of these."""
        notes = self.notes if not note or note in self.notes else (*self.notes, note)
        return Features(self.names, self.A @ A, self.b @ A + b, notes)

    def columns(self, which: Any) -> Features:
        """Some of the columns."""
        return self._replace(A=self.A[:, which], b=self.b[which])

    def beside(self, other: Features) -> Features:
        """These columns and others, of which some may be functions of the same features."""
        names = tuple(dict.fromkeys(self.names + other.names))
        parts = []
        for part in (self, other):
            A = np.zeros((len(names), part.A.shape[1]))
            A[[names.index(name) for name in part.names]] = part.A
            parts.append(A)
        notes = tuple(dict.fromkeys(self.notes + other.notes))
        return Features(names, np.hstack(parts), np.concatenate([self.b, other.b]), notes)

    def coefficients(self, has_intercept: bool) -> tuple[np.ndarray, list[str]]:
        """Matrix that maps coefficients of the columns, and an intercept, to those of features."""
        used: np.ndarray = np.any(self.A, axis=1)
        A, names = self.A[used], [n for n, u in zip(self.names, used.tolist(), strict=True) if u]
        if has_intercept or self.b.any():
            A, names = np.vstack([A, self.b]), [*names, "intercept"]
        if has_intercept:
            A = np.column_stack([A, np.eye(len(A))[-1]])
        return A, names


def features_before(model: Any, steps: Sequence[tuple[str, Any]]) -> Features:
    """Columns that reach a model, as functions of the features before the steps."""
    found = getattr(model, "feature_names_in_", None)
    names = [f"x{i}" for i in range(model.n_features_in_)] if found is None else found
    return _through_all([step for _, step in steps], Features.named(names), names)


def _through_all(steps: Sequence[Any], features: Features, names: Any) -> Features:
    """What steps make of columns, of which the first step knows these names."""
    for step in steps:
        features = _through(step, features, names)
        if not _is_passed_on(step):
            names = step.get_feature_names_out(names)
    return features


def _is_passed_on(step: Any) -> bool:
    return step is None or (isinstance(step, str) and step == "passthrough")


def _through(step: Any, features: Features, names: Any) -> Features:
    """What a step makes of columns; of which it is not known, they are as they are."""
    if _is_passed_on(step):
        return features
    if isinstance(step, Pipeline):
        return _through_all([part for _, part in step.steps], features, names)
    if isinstance(step, ColumnTransformer):
        return _through_columns(step, features, np.asarray(names, dtype=object))
    if hasattr(step, "_affine"):
        return features.through(*step._affine())
    if type(step) in _OF_SCIKIT_LEARN and getattr(step, "func", None) is None:
        scale, offset = _OF_SCIKIT_LEARN[type(step)](step)
        identity = np.eye(len(features.b))
        return features.through(identity * scale, identity.sum(0) * offset, "")
    note = f"Columns that {type(step).__name__} makes are taken as it makes them."
    notes = features.notes if note in features.notes else (*features.notes, note)
    return Features.named(step.get_feature_names_out(names), notes)


def _through_columns(step: ColumnTransformer, features: Features, names: np.ndarray) -> Features:
    """What the parts of a transformer make of their columns, side by side."""
    whole = features.columns([])
    for name, part, columns in step.transformers_:
        place = step.output_indices_[name]
        if part == "drop" or place.start == place.stop:
            continue
        which = _places(columns, names)
        block = _through(part, features.columns(which), names[which])
        own = {n: n for n in block.names}
        if block.names != features.names:  # names of columns that the part has made
            own = {n: f"{name}__{n}" if n in whole.names else n for n in block.names}
        whole = whole.beside(block._replace(names=tuple(own.values())))
    return whole


def _places(columns: Any, names: np.ndarray) -> np.ndarray:
    """Numbers of the columns that a part of a ColumnTransformer is given."""
    numbers, order = np.arange(len(names)), names.tolist()
    if isinstance(columns, slice) and isinstance(columns.start or columns.stop, str):
        ends = [None if end is None else order.index(end) for end in (columns.start, columns.stop)]
        return numbers[ends[0] : None if ends[1] is None else ends[1] + 1]
    if isinstance(columns, slice):
        return numbers[columns]
    chosen = np.atleast_1d(np.asarray(columns, dtype=None if np.size(columns) else int))
    if chosen.dtype.kind in "iub":
        return numbers[chosen]
    return numbers[[order.index(column) for column in chosen.tolist()]]


def _of_standard(step: Any) -> tuple[Any, Any]:
    scale = 1.0 if step.scale_ is None else 1.0 / step.scale_
    return scale, 0.0 if step.mean_ is None or not step.with_mean else -step.mean_ * scale


# The scale and the offset of each column.
_OF_SCIKIT_LEARN: dict[type, Callable[[Any], tuple[Any, Any]]] = {
    FunctionTransformer: lambda step: (1.0, 0.0),
    MaxAbsScaler: lambda step: (1.0 / step.scale_, 0.0),
    MinMaxScaler: lambda step: (step.scale_, step.min_),
    StandardScaler: _of_standard,
}
