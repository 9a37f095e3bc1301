"""`private_report`, `private_regression_report` and `DPEvaluator`: one release, then all is free.

Accuracy, curves and calibration plots on private rows are answers about these rows. They are all
functions of one table, of true classes by bins of scores. It is released once, with integer noise:
pure ε-DP. Test rows are other rows than training rows; split by `DisjointSplit`, a fit at ε and a
report at ε cost ε together.

>>> import numpy as np
>>> from skdp import DisjointSplit, DPVariationalLogisticRegression
>>> from skdp.evaluation import DPEvaluator
>>> from skdp.privacy import privacy_of
>>> rng = np.random.default_rng(0)
>>> X = rng.uniform(-1, 1, (4000, 1))
>>> y = (rng.uniform(-1, 1, 4000) < 2 * X[:, 0]).astype(int)
>>> split = DisjointSplit(4000, test_size=0.5)
>>> model = DPVariationalLogisticRegression(classes=[0, 1], n_samples=2000, data_norm=1.5)
>>> _ = model.fit(*split.take("train", X, y))
>>> report = DPEvaluator(model, n_samples=2000).report(*split.take("test", X, y))
>>> report.accuracy.high - report.accuracy.low < 0.1
True
>>> round(privacy_of(model, report).epsilon, 6)
1.0
"""

from __future__ import annotations

import warnings
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from skdp._chunked_rows import Chunk, ChunkedRows, Misread, first_look, in_chunks, n_rows_of
from skdp._fitting import encode_labels, fingerprint_key, target_bounds
from skdp._input import without_data
from skdp._marked_rows import part_read
from skdp._types import ArrayLike, Estimator, Given, Seed
from skdp._validate import as_array, expected, positive
from skdp._warnings import FitWarning, PrivacyWarning
from skdp.evaluation._release import CellsOf, TableRelease
from skdp.evaluation.binning import ResidualBins
from skdp.evaluation.estimates import LEVEL
from skdp.evaluation.report import (
    BinaryReport,
    MulticlassReport,
    RegressionReport,
    cells_of_scores,
    label_of,
    report_of,
)
from skdp.metrics._predictions import both_columns, check_probabilities, numbers
from skdp.privacy.parts import common_part
from skdp.privacy.workflow import privacy_of
from skdp.relations import ROW

_SUBGROUPS = "declare the values of the labels as subgroups=[...]: which there are is private too"


def private_report(
    y_true: ArrayLike,
    y_proba: ArrayLike,
    *,
    epsilon: float = 1.0,
    delta: float = 0.0,
    classes: Given = None,
    neighboring_relation: str = "zero_out",
    unit: str = "row",
    groups: Given = None,
    max_rows_per_group: int | None = None,
    subgroup: Given = None,
    subgroups: Given = None,
    n_samples: int | None = None,
    n_bins: int | str = "auto",
    level: float = LEVEL,
    random_state: Seed = None,
) -> BinaryReport | MulticlassReport:
    """Report how good class probabilities are, from one private release.

    **Privacy.** The report is epsilon-differentially private under ``neighboring_relation`` for
    the rows given, if whoever made the probabilities learned nothing from these rows, or has
    accounted for it: they come from a released model, row by row.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        True class labels.
    y_proba : array-like of shape (n_samples,) or (n_samples, n_classes)
        What `predict_proba` returns: columns in the order of the sorted classes, rows that sum to
        1. Of two classes, the probabilities of the second are enough.
    epsilon : float, default=1.0
        Pure ε in [1e-9, 50].
    delta : float, default=0.0
        δ in [0, 1) at which ``privacy_`` is stated. The release is pure and needs none; a δ > 0
        changes nothing in the noise.
    classes : array-like or None, default=None
        All class labels, sorted; of two the second is the positive one. None reads them from
        ``y_true`` and says so in the report.
    neighboring_relation : {"zero_out", "add_or_remove_one", "replace_one"}, default="zero_out"
        Who is a neighbour.
    unit : {"row", "group"}, default="row"
        What is protected: a row, or a person with all of its rows.
    groups : array-like of shape (n_samples,) or None, default=None
        With ``unit="group"``: the person whose row it is, as any label.
    max_rows_per_group : int or None, default=None
        Rows ≥ 1 of a person that count, at most; the noise is in proportion, and intervals are for
        rows of a person that are all alike. None is 1.
    subgroup : array-like of shape (n_samples,) or None, default=None
        A label for each row, to report by: the tables of subgroups are disjoint, and cost one ε
        together.
    subgroups : array-like or None, default=None
        The declared values of these labels.
    n_samples : int or None, default=None
        Public number of rows, for the number of bins. None reads it and says so in the report;
        where it is private, under ``add_or_remove_one`` and with persons, it has to be given.
    n_bins : int or "auto", default="auto"
        Even number of bins in [2, 1000]. ``"auto"`` is about 1.7 (n/b)^(1/3) for noise of scale b.
    level : float, default=0.9
        Nominal coverage of the intervals.
    random_state : int, RandomState instance or None, default=None
        None keys the noise from the operating system. A seed makes the report repeatable and its
        guarantee void.

    Returns
    -------
    BinaryReport or MulticlassReport
        For two classes, or for more.

    Raises
    ------
    ValueError
        If a parameter or the input is invalid; nothing has been spent then, and no value of a row
        is quoted.
    BudgetExceededError
        If an open `PrivacyLedger` refuses the release; no row has been counted then.

    Examples
    --------
    >>> import numpy as np
    >>> from skdp.evaluation import private_report
    >>> rng = np.random.default_rng(0)
    >>> p = rng.uniform(size=5000)
    >>> y = rng.uniform(size=5000) < p
    >>> report = private_report(y, p, classes=[False, True], n_samples=5000)
    >>> abs(report.auc.value - 5 / 6) < 0.05, round(report.privacy_.epsilon, 9)
    (True, 1.0)
    """
    probabilities = check_probabilities(y_proba, "y_proba", least=0)
    if probabilities.shape[1] == 1:
        probabilities = both_columns(probabilities)
    found, records = _scored("private_report", probabilities, y_true, classes)
    of, names = _subgroups(subgroup, subgroups, len(records[0]))
    return _class_report(
        "private_report",
        found,
        records + of,
        names,
        () if classes is not None else ("classes",),
        given=(y_proba, y_true, subgroup),
        groups=groups,
        epsilon=epsilon,
        delta=delta,
        neighboring_relation=neighboring_relation,
        unit=unit,
        max_rows_per_group=max_rows_per_group,
        n_samples=n_samples,
        n_bins=n_bins,
        level=level,
        random_state=random_state,
    )


def _scored(
    label: str, probabilities: np.ndarray, y_true: Any, classes: Any
) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """Check labels; return all classes, and each row's probabilities and the number of its own."""
    found, codes = encode_labels(_labels(y_true, len(probabilities)), classes, label)
    if classes is not None and not np.array_equal(as_array(classes), found):
        raise expected(
            f"each label once, sorted as the columns of probabilities: {list(found)}",
            "of two classes the second is the positive one",
            classes=classes,
        )
    if len(found) != probabilities.shape[1]:
        raise expected(
            f"{probabilities.shape[1]} labels, one for each column of probabilities",
            "declare all classes, sorted as the columns are",
            classes=classes,
        )
    return found, (probabilities / probabilities.sum(axis=1, keepdims=True), codes)


def _class_report(
    label: str,
    found: np.ndarray,
    records: tuple[Any, ...],
    names: list,
    inferred: tuple[str, ...],
    *,
    given: tuple[Any, ...],
    groups: Given,
    **settings: Any,
) -> BinaryReport | MulticlassReport:
    release = TableRelease(label, 1 if len(found) == 2 else 2, **settings)
    kind, bins = report_of(found, release.bins(len(records[0])))
    cells_of = _by(names, partial(cells_of_scores, found, bins))
    tables = release.run(records, cells_of, len(names) or 1, given, groups, inferred)
    shared: dict[str, Any] = {
        "privacy_": tables.privacy,
        "level": release.level,
        "alike": tables.alike,
        "classes_": found,
        "bins_": bins,
    }

    def arrays(counts: list[np.ndarray]) -> dict[str, np.ndarray]:
        if kind is BinaryReport:
            return {"counts_": counts[0].reshape(2, -1)}
        matrix = counts[0].reshape(len(found), -1)
        return {"counts_": matrix, "by_confidence_": counts[1].reshape(-1, len(bins.points))}

    return _whole(label, kind, tables, names, arrays, shared)


def private_regression_report(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    target_bounds: tuple[float, float],
    residual_bound: float,
    y_lower: Given = None,
    y_upper: Given = None,
    epsilon: float = 1.0,
    delta: float = 0.0,
    neighboring_relation: str = "zero_out",
    unit: str = "row",
    groups: Given = None,
    max_rows_per_group: int | None = None,
    subgroup: Given = None,
    subgroups: Given = None,
    n_samples: int | None = None,
    n_bins: int | str = "auto",
    level: float = LEVEL,
    random_state: Seed = None,
) -> RegressionReport:
    """Report how good predicted numbers are, from one private release.

    **Privacy.** As of `private_report`; a row is in two tables, and the noise is for both.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        Targets.
    y_pred : array-like of shape (n_samples,)
        Predictions.
    target_bounds : tuple of float
        Public (low, high) of the targets; what is beyond counts at the bound.
    residual_bound : float
        Public bound > 0 on |y_true − y_pred|; what is beyond counts at the bound. A `FitWarning`
        says, from what was released, where it is far too wide or cuts many of them.
    y_lower, y_upper : array-like of shape (n_samples,) or None, default=None
        Predicted intervals, whose coverage is reported.
    epsilon : float, default=1.0
        Pure ε in [1e-9, 50].
    delta : float, default=0.0
        δ in [0, 1) at which ``privacy_`` is stated; the release is pure and needs none.
    neighboring_relation : {"zero_out", "add_or_remove_one", "replace_one"}, default="zero_out"
        Who is a neighbour.
    unit : {"row", "group"}, default="row"
        What is protected: a row, or a person with all of its rows.
    groups : array-like of shape (n_samples,) or None, default=None
        With ``unit="group"``: the person whose row it is, as any label.
    max_rows_per_group : int or None, default=None
        Rows ≥ 1 of a person that count, at most. None is 1.
    subgroup : array-like of shape (n_samples,) or None, default=None
        A label for each row, to report by, at no further cost.
    subgroups : array-like or None, default=None
        The declared values of these labels.
    n_samples : int or None, default=None
        Public number of rows. None reads it where it is public.
    n_bins : int or "auto", default="auto"
        Even number of bins in [2, 1000]. ``"auto"`` is about 1.7 (n/b)^(1/3) for noise of scale b.
    level : float, default=0.9
        Nominal coverage of the intervals.
    random_state : int, RandomState instance or None, default=None
        None keys the noise from the operating system. A seed makes the guarantee void.

    Returns
    -------
    RegressionReport

    Raises
    ------
    ValueError
        If a parameter or the input is invalid; nothing has been spent then.
    BudgetExceededError
        If an open `PrivacyLedger` refuses the release; no row has been counted then.

    Examples
    --------
    >>> import numpy as np
    >>> from skdp.evaluation import private_regression_report
    >>> rng = np.random.default_rng(0)
    >>> predicted = rng.uniform(0, 10, 5000)
    >>> report = private_regression_report(
    ...     predicted + rng.normal(size=5000), predicted, target_bounds=(-3, 13),
    ...     residual_bound=5, n_samples=5000,
    ... )
    >>> abs(report.rmse.value - 1) < 0.1
    True
    """
    bounds = _bounds(target_bounds, residual_bound)
    records = _missed(y_true, y_pred)
    records += _held(records[0], (y_lower, y_upper))
    of, names = _subgroups(subgroup, subgroups, len(records[0]))
    return _regression_report(
        "private_regression_report",
        records + of,
        names,
        bounds,
        given=(y_pred, y_true, y_lower, y_upper, subgroup),
        groups=groups,
        epsilon=epsilon,
        delta=delta,
        neighboring_relation=neighboring_relation,
        unit=unit,
        max_rows_per_group=max_rows_per_group,
        n_samples=n_samples,
        n_bins=n_bins,
        level=level,
        random_state=random_state,
    )


def _bounds(of_targets: Any, residual_bound: Any) -> tuple[tuple[float, float], float]:
    """Check the declared bounds of targets and residuals."""
    if of_targets is None:
        raise expected("two finite numbers (low, high), low < high", target_bounds=of_targets)
    bound = positive("a public bound on |y - prediction|", residual_bound=residual_bound)
    return target_bounds(of_targets), bound


def _missed(y_true: Any, y_pred: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return targets and residuals, checked."""
    y = _finite(y_true, "y_true")
    with np.errstate(over="ignore"):  # a warning would tell of a row
        return y, y - _finite(y_pred, "y_pred", len(y))


def _held(y: np.ndarray, intervals: tuple[Given, Given]) -> tuple[np.ndarray, ...]:
    """Return whether intervals hold the targets, if there are any."""
    if (intervals[0] is None) != (intervals[1] is None):
        raise ValueError("Expected y_lower and y_upper together, or neither.")
    if intervals[0] is None:
        return ()
    lower, upper = (
        _finite(v, name, len(y)) for v, name in zip(intervals, ("y_lower", "y_upper"), strict=True)
    )
    return ((lower <= y) & (y <= upper),)


def _target_cells(
    bins: ResidualBins, edges: np.ndarray, y: np.ndarray, residuals: np.ndarray, *held: np.ndarray
) -> list[tuple[np.ndarray, int]]:
    """Cell of each row in the tables of residuals and of targets, and their numbers of cells."""
    n_bins = len(edges) - 1
    cells = bins.numbers(residuals) + (n_bins * held[0] if held else 0)
    of_targets = np.searchsorted(edges[1:-1], y, side="left")
    return [(cells, n_bins * (1 + len(held))), (of_targets, n_bins)]


def _regression_report(
    label: str,
    records: tuple[Any, ...],
    names: list,
    bounds: tuple[Any, Any],
    *,
    given: tuple[Any, ...],
    groups: Given,
    **settings: Any,
) -> RegressionReport:
    (low, high), bound = bounds
    release = TableRelease(label, 2, **settings)
    n_bins = release.bins(len(records[0]))
    bins, edges = ResidualBins.of(n_bins, bound), np.linspace(low, high, n_bins + 1)
    cells_of = _by(names, partial(_target_cells, bins, edges))
    tables = release.run(records, cells_of, len(names) or 1, given, groups, ())
    shared: dict[str, Any] = {
        "privacy_": tables.privacy,
        "level": release.level,
        "alike": tables.alike,
        "bins_": bins,
        "target_edges_": edges,
    }

    def arrays(counts: list[np.ndarray]) -> dict[str, np.ndarray]:
        residual = counts[0] if len(counts[0]) == n_bins else counts[0].reshape(2, -1)
        return {"counts_": residual, "of_targets_": counts[1]}

    return _whole(label, RegressionReport, tables, names, arrays, shared)


_NO_LABELS = (
    "Expected unit='row' and no groups, subgroup or y beside rows in chunks: a report on persons "
    "or subgroups needs arrays."
)


def _read(estimator: Any, chunk: Chunk) -> tuple[tuple[np.ndarray, ...], Any]:
    """Predict rows; return what the cells of each are made of, and the classes, if there are."""
    if chunk.y is None or chunk.groups is not None:
        raise Misread("Expected (X, y), of no persons, to report on rows in chunks.")
    if not hasattr(estimator, "predict_proba"):
        predicted = np.empty(0)
        if n_rows_of(chunk.X):
            with without_data():
                predicted = estimator.predict(chunk.X)
        return _missed(chunk.y, predicted), None
    scores = np.empty((0, len(estimator.classes_)))
    if n_rows_of(chunk.X):
        with without_data():
            scores = estimator.predict_proba(chunk.X)
    scores = check_probabilities(scores, "predict_proba(X)", least=0)
    found, records = _scored("DPEvaluator", scores, chunk.y, estimator.classes_)
    return records, found


def _by(names: list, cells_of: CellsOf) -> CellsOf:
    return partial(_by_subgroup, cells_of, len(names)) if names else cells_of


def _by_subgroup(
    cells_of: CellsOf, n_subgroups: int, *arrays: np.ndarray
) -> list[tuple[np.ndarray, int]]:
    """Cells of each subgroup after those of the one before; its number is the last array."""
    *scores, of = arrays
    return [(of * size + cells, n_subgroups * size) for cells, size in cells_of(*scores)]


def _whole(
    label: str, kind: Any, tables: Any, names: list, arrays: Any, shared: dict[str, Any]
) -> Any:
    """Report on all rows, the sum of the subgroups' tables, with one on each subgroup."""
    by_subgroup = {
        name: kind(
            **arrays([counts[k] for counts in tables.counts]),
            noise_variance_=tables.variance,
            n_=None,  # how many rows a subgroup has is private
            **shared,
        )
        for k, name in enumerate(names)
    }
    report = kind(
        **arrays([counts.sum(axis=0) for counts in tables.counts]),
        noise_variance_=tables.variance * len(tables.counts[0]),
        # With fewer rows of a person than there are, the total is private.
        n_=tables.n,
        subgroups_=by_subgroup,
        **shared,
    )
    if report.caution:
        warnings.warn(f"{label}: {report.caution}", FitWarning, stacklevel=4)
    return report


def _labels(y_true: Any, n_rows: int) -> np.ndarray:
    labels = as_array(y_true)
    if labels.shape == (n_rows, 1):
        labels = labels[:, 0]
    if labels.shape != (n_rows,):
        raise ValueError("Expected y_true to hold one class label per row of the predictions.")
    return labels


def _finite(values: Any, name: str, n_rows: int | None = None) -> np.ndarray:
    array = numbers(values, name)
    array = array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array
    if array.ndim != 1 or n_rows not in (None, len(array)):
        raise ValueError(f"Expected {name} to hold one number per row.")
    if not np.isfinite(array).all():
        raise ValueError(f"Expected {name} to be finite; drop rows without a number.")
    return array


def _subgroups(labels: Given, declared: Any, n_rows: int) -> tuple[tuple[np.ndarray, ...], list]:
    """Number of each row's subgroup, if there are any, and the names of all."""
    if labels is None:
        if declared is not None:
            raise expected(
                "None without subgroup", "give the label of each row", subgroups=declared
            )
        return (), []
    if declared is None:
        raise expected("the distinct labels of subgroups", _SUBGROUPS, subgroups=None)
    values = as_array(labels)
    if values.shape != (n_rows,):
        raise ValueError("Expected subgroup to hold one label per row.")
    try:
        names, codes = encode_labels(values, declared, "subgroup")
    except ValueError as error:
        if "every label in y" not in str(error):
            raise expected("a list of at least 2 distinct labels", subgroups=declared) from None
        raise ValueError(
            "Expected every label in subgroup to be one of the declared subgroups, but there are "
            "others; declare them, or a label for the rest."
        ) from None
    return (codes,), [label_of(name) for name in names]


@dataclass(eq=False, repr=False)
class DPEvaluator(BaseEstimator):
    """Reports how good a fitted model is on private rows, from one private release.

    **Privacy.** A report is epsilon-differentially private under ``neighboring_relation`` for its
    rows, given the model. Beside the fit it costs nothing more if its rows are another part of one
    `DisjointSplit`: `privacy_of(model, report)` and ledgers then take the larger ε of the two.
    Otherwise both add up. The statement is about the report alone: the model must have been
    released, or be public.

    Parameters
    ----------
    estimator : estimator
        A fitted classifier with `predict_proba`, or a regressor. Its prediction for
        a row must not depend on other rows; the report lists this as assumed.
    epsilon : float, default=1.0
        Pure ε in [1e-9, 50] of each report.
    delta : float, default=0.0
        δ in [0, 1) at which the report's ``privacy_`` is stated. The release is pure and needs
        none; a δ > 0 changes nothing in the noise.
    neighboring_relation : {"zero_out", "add_or_remove_one", "replace_one"}, default="zero_out"
        Who is a neighbour.
    unit : {"row", "group"}, default="row"
        What is protected: a row, or a person with all of its rows.
    max_rows_per_group : int or None, default=None
        Rows ≥ 1 of a person that count, at most. None is 1.
    n_samples : int or None, default=None
        Public number of rows of a report. None reads it where it is public, and says so.
    n_bins : int or "auto", default="auto"
        Even number of bins in [2, 1000].
    target_bounds : tuple of float or None, default=None
        Of a regressor: public (low, high) of the targets.
    residual_bound : float or None, default=None
        Of a regressor: public bound > 0 on what predictions are off by.
    level : float, default=0.9
        Nominal coverage of the intervals.
    random_state : int, RandomState instance or None, default=None
        None keys the noise from the operating system. A seed makes the guarantee void.

    See Also
    --------
    private_report : The same of given probabilities.
    private_regression_report : The same of given predictions.

    Examples
    --------
    >>> import numpy as np
    >>> from skdp import DPVariationalLogisticRegression
    >>> from skdp.evaluation import DPEvaluator
    >>> X, y = np.tile([[-1.0], [1.0]], (500, 1)), np.tile([0, 1], 500)
    >>> model = DPVariationalLogisticRegression(classes=[0, 1], n_samples=1000).fit(X, y)
    >>> report = DPEvaluator(model, epsilon=0.5, n_samples=1000).report(X, y)
    >>> float(report.accuracy) > 0.9
    True
    """

    estimator: Estimator
    _: KW_ONLY
    epsilon: float = 1.0
    delta: float = 0.0
    neighboring_relation: str = "zero_out"
    unit: str = "row"
    max_rows_per_group: int | None = None
    n_samples: int | None = None
    n_bins: int | str = "auto"
    target_bounds: tuple[float, float] | None = None
    residual_bound: float | None = None
    level: float = LEVEL
    random_state: Seed = None

    def report(
        self,
        X: Any,
        y: Any = None,
        groups: Given = None,
        *,
        subgroup: Given = None,
        subgroups: Given = None,
    ) -> BinaryReport | MulticlassReport | RegressionReport:
        """Predict the rows, and release a report.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), Dask collection or ChunkedRows
            Rows. Those of Dask or in chunks are predicted where they are, when they are first
            looked at and again when they are counted, and only counts come here; their unit is the
            row. A prediction has to be the same both times, or the rows count as changed: chance
            in a model, or workers of unlike hardware, end the report after its charge.
        y : array-like of shape (n_samples,), or None with ChunkedRows, default=None
            Class labels or targets.
        groups : array-like of shape (n_samples,) or None, default=None
            With ``unit="group"``: the person whose row it is, as any label.
        subgroup : array-like of shape (n_samples,) or None, default=None
            A label for each row, to report by, at no further cost.
        subgroups : array-like or None, default=None
            The declared values of these labels.

        Returns
        -------
        BinaryReport, MulticlassReport or RegressionReport

        Raises
        ------
        ValueError
            If the estimator is not fitted, or a parameter or the input is invalid; nothing has
            been spent then.
        BudgetExceededError
            If an open `PrivacyLedger` refuses the release.
        """
        estimator: Any = self.estimator
        try:
            check_is_fitted(estimator)
        except (NotFittedError, TypeError):
            raise expected("a fitted estimator", "fit it first", estimator=estimator) from None
        if not hasattr(estimator, "predict"):
            raise expected("a classifier or regressor", estimator=estimator)
        self._warn_of_statement(part_read(X, y, subgroup))
        settings = {
            name: getattr(self, name)
            for name in (
                "epsilon", "delta", "neighboring_relation", "unit", "max_rows_per_group",
                "n_samples", "n_bins", "level", "random_state",
            )
        }  # fmt: skip
        release = TableRelease("DPEvaluator", 1, **settings)
        release.mechanism()  # before any row is read
        settings |= {"given": (X, y, subgroup), "groups": groups}
        bounds: Any = None
        if not hasattr(estimator, "predict_proba"):
            bounds = _bounds(self.target_bounds, self.residual_bound)
        with in_chunks(X, y, groups) as (rows, *beside):
            if not isinstance(rows, ChunkedRows):
                records, found = _read(estimator, Chunk(X, y))
            else:
                if self.unit != ROW or any(one is not None for one in (subgroup, *beside)):
                    raise ValueError(_NO_LABELS)
                read, n_is_public = partial(_read, estimator), release._relation.n_is_public
                key = fingerprint_key(self)
                records, found = first_look(rows, read, key, n_is_public=n_is_public)
            of, names = _subgroups(subgroup, subgroups, len(records[0]))
            records = (*records, *of)
            if bounds is not None:
                return _regression_report("DPEvaluator", records, names, bounds, **settings)
            return _class_report("DPEvaluator", found, records, names, (), **settings)

    def _warn_of_statement(self, mark: Any) -> None:
        """Say where the model has no statement, or has read these rows."""
        name = type(self.estimator).__name__
        try:
            stated = privacy_of(self.estimator)
        except ValueError:
            stated = None
        if stated is None or not stated.valid:
            warnings.warn(
                f"DPEvaluator reports on {name}, which has no valid privacy statement. The "
                "report's epsilon is of the report alone: it holds if the model is public, or was "
                "learned from other rows.",
                PrivacyWarning,
                stacklevel=3,
            )
        if mark is None or stated is None:
            return
        if named := common_part(stated.event, mark.parts):
            warnings.warn(
                f"DPEvaluator reports on {name} on its training rows, {named}: numbers look better "
                "than they are on new rows, and both epsilons add up.",
                FitWarning,
                stacklevel=3,
            )
