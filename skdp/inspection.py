"""Tables of coefficients: what a fitted linear model says of each feature, in the user's units.

A posterior of coefficients θ is normal, or a set of samples. Features that went through affine
steps x ↦ xA + b before the model have the coefficients Aθ, and add bθ to the intercept; these are
linear in θ, so that their means, covariances and samples are exact. All of it is post-processing of
what was released, and costs no privacy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from html import escape
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer, MaxAbsScaler, MinMaxScaler, StandardScaler
from sklearn.utils.validation import check_is_fitted

from skdp._validate import expected, in_range

__all__ = ["CoefficientTable", "summary"]

PRIOR_LEFT = 0.5  # posterior deviation over the prior's, from which on the prior decides too
MOST_NAMED = 5
_RATIOS = {"odds": "odds ratio", "rate": "rate ratio"}


@dataclass(frozen=True, eq=False)
class CoefficientTable:
    """Coefficients of a linear model with what a posterior says of each.

    Attributes
    ----------
    name : tuple of str
        Feature, or "intercept"; of several classes the class before it, whose coefficient is
        stated less the mean over the classes: probabilities identify differences only.
    mean, sd : ndarray of shape (n,)
        Posterior mean and standard deviation; sd is NaN for a single sample.
    low, high : ndarray of shape (n,)
        Ends of the central posterior interval.
    positive : ndarray of shape (n,)
        Posterior probability that the coefficient is > 0.
    ratio, ratio_low, ratio_high : ndarray of shape (n,) or None
        exp of the mean and of the ends: what one unit more multiplies the odds of the second class
        by, or the rate. None for other models.
    level : float
        Of the interval.
    ratio_name : str
        "odds ratio", "rate ratio" or "".
    notes : tuple of str
        What the table holds for, and which intervals the prior decides.

    Examples
    --------
    >>> import numpy as np
    >>> from skdp import DPVariationalLogisticRegression
    >>> X, y = np.repeat([[-1.0], [1.0]], 500, axis=0), np.repeat([0, 1], 500)
    >>> model = DPVariationalLogisticRegression(classes=[0, 1], n_samples=1000).fit(X, y)
    >>> table = model.summary()
    >>> table.ratio_name, bool(table.positive[0] > 0.99)
    ('odds ratio', True)
    """

    name: tuple[str, ...]
    mean: np.ndarray
    sd: np.ndarray
    low: np.ndarray
    high: np.ndarray
    positive: np.ndarray
    ratio: np.ndarray | None
    ratio_low: np.ndarray | None
    ratio_high: np.ndarray | None
    level: float
    ratio_name: str = ""
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the columns as lists, the level and the notes."""
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        return {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in found.items()}

    def to_frame(self) -> Any:
        """Return the table as a frame.

        Returns
        -------
        pandas.DataFrame
            A row per coefficient, under its name.

        Raises
        ------
        ImportError
            If pandas is not installed.
        """
        import pandas as pd

        return pd.DataFrame(dict(self._columns()[1:]), index=pd.Index(self.name, name="name"))

    def _columns(self) -> list[tuple[str, Any]]:
        """Headings and columns, as they are shown."""
        ends = [f"{50 * (1 + sign * self.level):g} %" for sign in (-1, 1)]
        shown = [("name", self.name), ("mean", self.mean), ("sd", self.sd)]
        shown += [(ends[0], self.low), (ends[1], self.high), ("P(>0)", self.positive)]
        if self.ratio is not None:
            what = self.ratio_name
            shown += [(what, self.ratio), (f"{what} {ends[0]}", self.ratio_low)]
            shown += [(f"{what} {ends[1]}", self.ratio_high)]
        return shown

    def _cells(self) -> list[list[str]]:
        columns, what = self._columns(), self.ratio_name
        rows = zip(*(values for _, values in columns), strict=True)
        return [
            [heading for heading, _ in columns],
            *(
                [
                    cell if isinstance(cell, str) else _digits(cell, bool(what) and what in heading)
                    for cell, (heading, _) in zip(row, columns, strict=True)
                ]
                for row in rows
            ),
        ]

    def __repr__(self) -> str:
        cells = self._cells()
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = [
            "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip()
            for row in cells
        ]
        return "\n".join([*lines, *self.notes])

    def _repr_html_(self) -> str:
        head, *body = self._cells()
        rows = "".join(
            f"<tr><th>{escape(first)}</th>"
            + "".join(f"<td>{escape(cell)}</td>" for cell in rest)
            + "</tr>"
            for first, *rest in body
        )
        head = "".join(f"<th>{escape(cell)}</th>" for cell in head)
        notes = "".join(f"<p>{escape(note)}</p>" for note in self.notes)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{notes}"


def summary(
    model: Any, level: float = 0.9, per: float | str | Mapping[str, float] | None = None
) -> CoefficientTable:
    """Table of the coefficients of a fitted linear model or pipeline; this costs no privacy.

    Parameters
    ----------
    model : estimator or Pipeline
        A fitted `DPVariationalLogisticRegression`, `DPVariationalLinearRegression`,
        `DPVariationalPoissonRegression`, `OPSPosteriorSampler` or `OPSRegressor`, or a pipeline
        that ends in one. Coefficients are per unit of the features before the affine steps of
        skdp and scikit-learn that scale, standardise, project or pass features on, also inside a
        ColumnTransformer; the columns of any other step keep the names that it gives them.
    level : float, default=0.9
        Posterior probability in (0, 1) of the intervals, which are central.
    per : float, dict, "sd" or None, default=None
        Of how many units of a feature the effect is shown: a number > 0 for all, or by name for
        some of them; ``"sd"`` for the released deviation of each column, of a model with
        ``bounds``. None is one unit.

    Returns
    -------
    CoefficientTable
        The intervals account for the noise where the inference does. Of posterior samples they are
        quantiles of these.

    Raises
    ------
    ValueError
        If the model has no coefficients with a posterior, ``level`` is out of range, or ``per`` is
        not a number > 0, has names that are no features, or is ``"sd"`` of a model without bounds.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.pipeline import make_pipeline
    >>> from skdp import BoundedScaler, DPVariationalLinearRegression
    >>> from skdp.inspection import summary
    >>> X = np.linspace(0, 100, 4000)[:, None]
    >>> model = DPVariationalLinearRegression(epsilon=5.0, target_bounds=(0, 100), n_samples=4000)
    >>> found = summary(make_pipeline(BoundedScaler(0, 100), model).fit(X, 0.5 * X[:, 0] + 10))
    >>> found.name, bool(abs(found.mean[0] - 0.5) < 0.1)
    (('x0', 'intercept'), True)
    """
    in_range(0.0, 1.0, level=level)
    last, A, names, notes = effects(model, per)
    coefficients = np.atleast_2d(last.coef_)
    K, size = len(coefficients), A.shape[1]
    if hasattr(last, "covariance_"):
        theta = np.column_stack([coefficients, np.ravel(last.intercept_)])[:, : size // K].ravel()
        covariance = last.covariance_[:size, :size]
        mean, sd = A @ theta, np.sqrt(np.einsum("ij,jk,ik->i", A, covariance, A).clip(0.0))
        notes = (*notes, *_of_the_prior(last, A, sd, names))
        half = ndtri(0.5 + level / 2) * sd
        low, high, positive = mean - half, mean + half, ndtr(mean / np.maximum(sd, 1e-300))
    else:
        draws = last.sample_posterior()[:, :size] @ A.T
        mean, several = draws.mean(axis=0), len(draws) > 1
        sd = draws.std(axis=0, ddof=1) if several else np.full(len(mean), np.nan)
        low, high = np.quantile(draws, [0.5 - level / 2, 0.5 + level / 2], axis=0)
        positive = (draws > 0).mean(axis=0)
        if not several:
            low, high, positive = (np.full(len(mean), np.nan) for _ in range(3))
        notes = (*notes, f"Of {len(draws)} posterior sample{'s' * several}.")
    what = _RATIOS.get(getattr(last, "_ratio", ""), "") if K == 1 else ""
    with np.errstate(over="ignore"):
        ratio, ratio_low, ratio_high = (
            np.exp(values) if what else None for values in (mean, low, high)
        )
    return CoefficientTable(
        name=tuple(names),
        mean=mean,
        sd=sd,
        low=low,
        high=high,
        positive=positive,
        ratio=ratio,
        ratio_low=ratio_low,
        ratio_high=ratio_high,
        level=float(level),
        ratio_name=what,
        notes=notes,
    )


class Effects(NamedTuple):
    """Coefficients in the user's units: Aθ of those of a model."""

    model: Any
    A: np.ndarray  # (n_names, n_coefficients)
    names: list[str]
    notes: tuple[str, ...]


def effects(model: Any, per: Any = None) -> Effects:
    """Say what the coefficients of a linear model are of the features before a pipeline.

    Parameters
    ----------
    model, per
        As in `summary`.

    Returns
    -------
    Effects
        The model itself; the matrix from its parameters, of which those after the coefficients
        have no column, to coefficients of features; their names, and notes.
    """
    steps = model.steps if isinstance(model, Pipeline) else [("", model)]
    last: Any = steps[-1][1]
    if not hasattr(type(last), "summary"):
        raise expected(
            "a linear model with a posterior of its coefficients, or a pipeline that ends in one",
            "additive models have curves, networks have neither",
            model=last,
        )
    check_is_fitted(last)
    features = _features(model, steps[:-1])
    K, d = np.atleast_2d(last.coef_).shape
    has_intercept = "".join(last.parameter_names_[d : d + 1]).endswith("intercept")
    A, names = features.coefficients(has_intercept)
    of_features = names[: np.count_nonzero(np.any(features.A, axis=1))]
    units = _units(per, of_features, last if len(steps) == 1 else None)
    A = A * np.append(units, np.ones(len(A) - len(units)))[:, None]
    per_unit = zip(of_features, units, strict=True)
    shown = [name if unit == 1.0 else f"{name} (per {unit:.3g})" for name, unit in per_unit]
    names = [*shown, *names[len(units) :]]
    contrast, notes = np.eye(K), features.notes
    if K > 1:
        # Softmax identifies differences of logits only; their sum has the prior as its posterior.
        contrast = contrast - 1.0 / K
        names = [f"{label}: {name}" for label in last.classes_ for name in names]
        notes = (*notes, "Of each class less the mean of all classes.")
    return Effects(last, np.kron(contrast, A), names, notes)


def _units(per: Any, names: Sequence[str], model: Any) -> np.ndarray:
    """Of how many units of each feature its effect is shown."""
    units = np.ones(len(names))
    if per is None:
        return units
    if isinstance(per, str):
        scale = getattr(model, "column_scale_", None)
        if per != "sd" or scale is None:
            remedy = "'sd' is of a model with bounds, without steps before it"
            raise expected("a number > 0, a dict of them by feature, 'sd' or None", remedy, per=per)
        return np.asarray(scale)
    given = dict(per.items()) if hasattr(per, "items") else dict.fromkeys(names, per)
    unknown = [str(name) for name in given if name not in names]
    if unknown:
        raise expected("names of features", f"not among them: {', '.join(unknown)}", per=per)
    for name, value in given.items():
        units[names.index(name)] = in_range(0.0, np.inf, per=value)
    return units


def _of_the_prior(model: Any, A: np.ndarray, sd: np.ndarray, names: Sequence[str]) -> list[str]:
    """Note the features whose intervals the prior still decides: they are short because τ is."""
    scales, d = np.atleast_1d(model.prior_scale_), model.n_features_in_
    blocks = getattr(model, "prior_blocks", None)
    labels = [0] * d if blocks is None else np.asarray(blocks).tolist()
    place = {label: i for i, label in enumerate(dict.fromkeys(labels))}
    scale = scales[[place[label] for label in labels]] * getattr(model, "target_scale_", 1.0)
    scale = scale / getattr(model, "column_scale_", 1.0)  # it is of standardised columns
    K = len(np.atleast_2d(model.coef_))
    of_features = np.tile(np.arange(A.shape[1] // K) < d, K)
    prior = np.sqrt((A[:, of_features] ** 2) @ np.tile(scale**2, K))
    decided = (sd > PRIOR_LEFT * prior) & ~A[:, ~of_features].any(axis=1)
    left = np.flatnonzero(decided).tolist()
    if not left:
        return []
    shown = ", ".join(names[i] for i in left[:MOST_NAMED])
    shown += f" and {len(left) - MOST_NAMED} more" * (len(left) > MOST_NAMED)
    learned = ", learned from all coefficients" * (model.prior_scale == "auto")
    return [
        f"The releases say little of {shown}: a quarter of the prior's variance or more is left. "
        f"If an effect may be far larger than the prior's scale ({_range(scales)}{learned}), set "
        "prior_scale, or declare tighter bounds of the column."
    ]


def _range(scales: np.ndarray) -> str:
    low, high = f"{scales.min():.2g}", f"{scales.max():.2g}"
    return low if low == high else f"{low} to {high}"


def _digits(number: float, is_ratio: bool) -> str:
    """Four digits; of a ratio as many as tell it from 1, which is no effect."""
    off = abs(number - 1.0)
    if not is_ratio or off == 0.0 or off >= 1e-2 or not np.isfinite(off):
        return f"{number:.4g}"
    return f"{number:.{min(12, 1 - int(np.floor(np.log10(off))))}f}"


class SummaryMixin:
    """Adds `summary` to linear models with a posterior of their coefficients."""

    def summary(self, level: float = 0.9, per: Any = None) -> CoefficientTable:
        """Table of the coefficients: mean, deviation, interval, P(> 0); this costs no privacy.

        Parameters
        ----------
        level : float, default=0.9
            Posterior probability in (0, 1) of the intervals.
        per : float, dict, "sd" or None, default=None
            Of how many units of a feature the effect is shown, e.g. ``{"income": 10_000}``;
            ``"sd"`` for the released deviation of each column, of a model with ``bounds``.

        Returns
        -------
        CoefficientTable
            Per unit of the features of `fit`; `skdp.inspection.summary` takes a whole pipeline,
            for the units before its scalers.
        """
        return summary(self, level, per)


# --- features in the units that they came in ------------------------------------------------------


class _Features(NamedTuple):
    """Columns as affine functions of features: x ↦ xA + b."""

    names: tuple[str, ...]
    A: np.ndarray  # (n_names, n_columns)
    b: np.ndarray  # (n_columns,)
    notes: tuple[str, ...] = ()

    @classmethod
    def named(cls, names: Sequence[Any], notes: tuple[str, ...] = ()) -> _Features:
        """Columns as they are."""
        return cls(tuple(map(str, names)), np.eye(len(names)), np.zeros(len(names)), notes)

    def through(self, A: np.ndarray, b: np.ndarray, note: str) -> _Features:
        """The columns that an affine step makes of these."""
        notes = self.notes if not note or note in self.notes else (*self.notes, note)
        return _Features(self.names, self.A @ A, self.b @ A + b, notes)

    def columns(self, which: Any) -> _Features:
        """Some of the columns."""
        return self._replace(A=self.A[:, which], b=self.b[which])

    def beside(self, other: _Features) -> _Features:
        """These columns and others, of which some may be functions of the same features."""
        names = tuple(dict.fromkeys(self.names + other.names))
        parts = []
        for part in (self, other):
            A = np.zeros((len(names), part.A.shape[1]))
            A[[names.index(name) for name in part.names]] = part.A
            parts.append(A)
        notes = tuple(dict.fromkeys(self.notes + other.notes))
        return _Features(names, np.hstack(parts), np.concatenate([self.b, other.b]), notes)

    def coefficients(self, has_intercept: bool) -> tuple[np.ndarray, list[str]]:
        """Matrix that maps coefficients of the columns, and an intercept, to those of features."""
        used: np.ndarray = np.any(self.A, axis=1)
        A, names = self.A[used], [n for n, u in zip(self.names, used.tolist(), strict=True) if u]
        if has_intercept or self.b.any():
            A, names = np.vstack([A, self.b]), [*names, "intercept"]
        if has_intercept:
            A = np.column_stack([A, np.eye(len(A))[-1]])
        return A, names


def _features(model: Any, steps: Sequence[tuple[str, Any]]) -> _Features:
    found = getattr(model, "feature_names_in_", None)
    names = [f"x{i}" for i in range(model.n_features_in_)] if found is None else found
    return _through_all([step for _, step in steps], _Features.named(names), names)


def _through_all(steps: Sequence[Any], features: _Features, names: Any) -> _Features:
    """What steps make of columns, of which the first step knows these names."""
    for step in steps:
        features = _through(step, features, names)
        if not _is_passed_on(step):
            names = step.get_feature_names_out(names)
    return features


def _is_passed_on(step: Any) -> bool:
    return step is None or (isinstance(step, str) and step == "passthrough")


def _through(step: Any, features: _Features, names: Any) -> _Features:
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
    return _Features.named(step.get_feature_names_out(names), notes)


def _through_columns(step: ColumnTransformer, features: _Features, names: np.ndarray) -> _Features:
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
