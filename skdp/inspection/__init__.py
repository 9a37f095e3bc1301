"""Tables of coefficients: what a fitted linear model says of each feature, in the user's units.

A posterior of coefficients θ is normal, or a set of samples. Features that went through affine
steps x ↦ xA + b before the model have the coefficients Aθ, and add bθ to the intercept; these are
linear in θ, so that their means, covariances and samples are exact. All of it is post-processing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from html import escape
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from skdp.fitting.validate import expected, in_range
from skdp.inspection._features import features_before

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
    mean, sd, low, high, positive : ndarray of shape (n,)
        Posterior mean, standard deviation, ends of the central interval, and probability that the
        coefficient is > 0; NaN where a single sample has none.
    ratio, ratio_low, ratio_high : ndarray of shape (n,) or None
        exp of the mean and of the ends: what one unit more multiplies the odds of the second class
        by, or the rate. None for other models.
    level, ratio_name : float and str
        Of the interval; and "odds ratio", "rate ratio" or "".
    notes : tuple of str
        What the table holds for, and which intervals the prior decides.

    Examples
    --------
    >>> import numpy as np
    >>> from skdp import DPVariationalLogisticRegression
    >>> X, y = np.repeat([[-1.0], [1.0]], 500, axis=0), np.repeat([0, 1, 0, 1], [450, 50, 50, 450])
    >>> model = DPVariationalLogisticRegression(5.0, classes=[0, 1], n_samples=1000).fit(X, y)
    >>> model.summary().ratio_name
    'odds ratio'
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
        """Return the table as a frame of pandas, with a row per coefficient under its name."""
        import pandas as pd

        return pd.DataFrame(dict(self._columns()[1:]), index=pd.Index(self.name, name="name"))

    def _columns(self) -> list[tuple[str, Any]]:
        ends = [f"{50 * (1 + sign * self.level):g} %" for sign in (-1, 1)]
        heads, what = ["name", "mean", "sd", *ends, "P(>0)"], self.ratio_name
        columns = [self.name, self.mean, self.sd, self.low, self.high, self.positive]
        if self.ratio is not None:
            heads += [what, *(f"{what} {end}" for end in ends)]
            columns += [self.ratio, self.ratio_low, self.ratio_high]
        return list(zip(heads, columns, strict=True))

    def _cells(self) -> list[list[str]]:
        heads, columns = zip(*self._columns(), strict=True)
        rows = [list(heads)]
        for name, *numbers in zip(*columns, strict=True):
            # Ratios are the columns from the sixth number on.
            rows.append([name, *(_digits(number, i >= 5) for i, number in enumerate(numbers))])
        return rows

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
            f"<tr><th>{escape(first)}</th>{''.join(f'<td>{escape(c)}</td>' for c in rest)}</tr>"
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
        sd, low, high, positive = np.full((4, len(mean)), np.nan)
        if several:
            sd, positive = draws.std(axis=0, ddof=1), (draws > 0).mean(axis=0)
            low, high = np.quantile(draws, [0.5 - level / 2, 0.5 + level / 2], axis=0)
        notes = (*notes, f"Of {len(draws)} posterior sample{'s' * several}.")
    what = _RATIOS.get(getattr(last, "_ratio", ""), "") if K == 1 else ""
    with np.errstate(over="ignore"):
        ratios = [np.exp(values) if what else None for values in (mean, low, high)]
    columns = tuple(names), mean, sd, low, high, positive, *ratios
    return CoefficientTable(*columns, level=float(level), ratio_name=what, notes=notes)


class Effects(NamedTuple):
    """Coefficients in the user's units: Aθ of those of a model."""

    model: Any
    A: np.ndarray  # (n_names, n_coefficients)
    names: list[str]
    notes: tuple[str, ...]


def effects(model: Any, per: Any = None) -> Effects:
    """Say what the coefficients of a linear model are of the features before a pipeline.

    Parameters after the coefficients have no column in the matrix.
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
    features = features_before(model, steps[:-1])
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
    if not (left := np.flatnonzero(decided).tolist()):
        return []
    shown = ", ".join(names[i] for i in left[:MOST_NAMED])
    shown += f" and {len(left) - MOST_NAMED} more" * (len(left) > MOST_NAMED)
    spread = " to ".join(dict.fromkeys(f"{end:.2g}" for end in (scales.min(), scales.max())))
    learned = ", learned from all coefficients" * (model.prior_scale == "auto")
    return [
        f"The releases say little of {shown}: a quarter of the prior's variance or more is left. "
        f"If an effect may be far larger than the prior's scale ({spread}{learned}), set "
        "prior_scale, or declare tighter bounds of the column."
    ]


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
        level, per : optional
            As of `skdp.inspection.summary`, which takes a whole pipeline, for the units before its
            scalers. ``per`` may be ``{"income": 10_000}``.

        Returns
        -------
        CoefficientTable
            Per unit of the features of `fit`.
        """
        return summary(self, level, per)
