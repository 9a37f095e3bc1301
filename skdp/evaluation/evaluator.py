"""`private_report`, `private_regression_report` and `DPEvaluator`: one release, then all is free.

Accuracy, curves and calibration plots on private rows are answers about these rows. They are all
functions of one table, of true classes by bins of scores. It is released once, with integer noise:
pure ε-DP. Test rows are other rows than training rows; split by `DisjointSplit`, a fit at ε and a
report at ε cost ε together.
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

from skdp.evaluation._release import (
    Beside,
    TableRelease,
    bounds,
    class_report,
    finite,
    missed,
    regression_report,
    scored,
)
from skdp.evaluation.estimates import LEVEL
from skdp.evaluation.regression_report import RegressionReport
from skdp.evaluation.report import BinaryReport, MulticlassReport
from skdp.fitting.charge import fingerprint_key
from skdp.fitting.input import without_data
from skdp.fitting.types import ArrayLike, Estimator, Given, Seed
from skdp.fitting.validate import expected
from skdp.fitting.warnings import FitWarning, PrivacyWarning
from skdp.metrics._predictions import both_columns, check_probabilities
from skdp.privacy.parts import common_part
from skdp.privacy.workflow import privacy_of
from skdp.relations import ROW
from skdp.rows.chunk_tasks import Chunk, Misread, n_rows_of
from skdp.rows.chunks import ChunkedRows, first_look
from skdp.rows.lazy_rows import in_chunks
from skdp.rows.parts import part_read
from skdp.rows.persons import Persons

_NO_LABELS = (
    "Expected unit='row' and no groups, subgroup or y beside rows in chunks: a report on persons "
    "or subgroups needs arrays."
)


def private_report(
    y_true: ArrayLike,
    y_proba: ArrayLike,
    *,
    epsilon: float = 1.0,
    delta: float = 0.0,
    classes: Given = None,
    neighboring_relation: str = "zero_out",
    unit: str | Persons = "row",
    groups: Given = None,
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
    unit : "row" or Persons, default="row"
        What is protected: a row, or a person with all of its rows. Of `skdp.Persons` a report takes
        ``max_rows`` alone: rows ≥ 1 of a person that count, at most; the noise is in proportion,
        and intervals are for rows of a person that are all alike. None is 1.
    groups : array-like of shape (n_samples,) or None, default=None
        With ``unit=Persons(...)``: the person whose row it is, as any label.
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
        If a parameter or the input is invalid; nothing has been spent then.
    BudgetExceededError
        If an open `PrivacyLedger` refuses the release; no row has been counted then.

    Examples
    --------
    >>> import numpy as np
    >>> from skdp.evaluation import private_report
    >>> p, u = np.random.default_rng(0).uniform(size=(2, 5000))
    >>> y = u < p
    >>> report = private_report(y, p, classes=[False, True], n_samples=5000)
    >>> abs(report.auc.value - 5 / 6) < 0.05, round(report.privacy_.epsilon, 9)
    (True, 1.0)
    """
    release = TableRelease.of("private_report", locals())
    probabilities = check_probabilities(y_proba, "y_proba", least=0)
    if probabilities.shape[1] == 1:
        probabilities = both_columns(probabilities)
    found, records = scored("private_report", probabilities, y_true, classes)
    marked, inferred = (y_proba, y_true, subgroup), ("classes",) * (classes is None)
    return class_report(
        release, found, records, Beside(marked, subgroup, subgroups, groups, inferred)
    )


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
    unit: str | Persons = "row",
    groups: Given = None,
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
    epsilon, delta, neighboring_relation, unit, groups, subgroup, subgroups, n_samples, \
n_bins, level, random_state
        As of `private_report`.

    Returns
    -------
    RegressionReport

    Raises
    ------
    ValueError, BudgetExceededError
        As of `private_report`.

    Examples
    --------
    >>> import numpy as np
    >>> from skdp.evaluation import private_regression_report
    >>> y, predicted = np.tile([1.0, 3.0], 2500), np.full(5000, 2.0)
    >>> bounds = {"target_bounds": (0, 4), "residual_bound": 2}
    >>> report = private_regression_report(y, predicted, n_samples=5000, **bounds)
    >>> abs(report.rmse.value - 1) < 0.1
    True
    """
    release = TableRelease.of("private_regression_report", locals())
    declared = bounds(target_bounds, residual_bound)
    records = missed(y_true, y_pred)
    if (y_lower is None) != (y_upper is None):
        raise ValueError("Expected y_lower and y_upper together, or neither.")
    if y_lower is not None:
        y = records[0]
        above = finite(y_lower, "y_lower", len(y)) <= y
        records += (above & (y <= finite(y_upper, "y_upper", len(y))),)
    marked = y_pred, y_true, y_lower, y_upper, subgroup
    return regression_report(
        release, declared, records, Beside(marked, subgroup, subgroups, groups)
    )


def _read(estimator: Any, chunk: Chunk) -> tuple[tuple[np.ndarray, ...], Any]:
    """Predict rows; return what the cells of each are made of, and the classes, if there are."""
    if chunk.y is None or chunk.groups is not None:
        raise Misread("Expected (X, y), of no persons, to report on rows in chunks.")
    classifies = hasattr(estimator, "predict_proba")
    predicted = np.empty((0, len(estimator.classes_)) if classifies else 0)
    if n_rows_of(chunk.X):
        with without_data():
            predicted = (estimator.predict_proba if classifies else estimator.predict)(chunk.X)
    if not classifies:
        return missed(chunk.y, predicted), None
    scores = check_probabilities(predicted, "predict_proba(X)", least=0)
    found, records = scored("DPEvaluator", scores, chunk.y, estimator.classes_)
    return records, found


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
    epsilon, delta, neighboring_relation, unit, n_samples, n_bins, level, random_state : optional
        As of `private_report`.
    target_bounds, residual_bound : optional
        Of a regressor, as of `private_regression_report`.

    See Also
    --------
    private_report : The same of given probabilities.
    private_regression_report : The same of given predictions.

    Examples
    --------
    >>> import numpy as np
    >>> from skdp import DisjointSplit, DPVariationalLogisticRegression, privacy_of
    >>> from skdp.evaluation import DPEvaluator
    >>> X, y = np.tile([[-1.0], [1.0]], (2000, 1)), np.tile([0, 1], 2000)
    >>> split = DisjointSplit(4000, test_size=0.5)
    >>> model = DPVariationalLogisticRegression(classes=[0, 1], n_samples=2000)
    >>> _ = model.fit(*split.take("train", X, y))
    >>> report = DPEvaluator(model, n_samples=2000).report(*split.take("test", X, y))
    >>> float(report.accuracy) > 0.9, round(privacy_of(model, report).epsilon, 6)
    (True, 1.0)
    """

    estimator: Estimator
    _: KW_ONLY
    epsilon: float = 1.0
    delta: float = 0.0
    neighboring_relation: str = "zero_out"
    unit: str | Persons = "row"
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
            Rows. Those of Dask or in chunks are predicted where they are, twice, and only counts
            come here; their unit is the row. A prediction has to be the same both times: chance in
            a model, or workers of unlike hardware, end the report after its charge.
        y : array-like of shape (n_samples,), or None with ChunkedRows, default=None
            Class labels or targets.
        groups, subgroup, subgroups : optional
            As of `private_report`.

        Returns
        -------
        BinaryReport, MulticlassReport or RegressionReport

        Raises
        ------
        ValueError, BudgetExceededError
            As of `private_report`, or if the estimator is not fitted.
        """
        estimator: Any = self.estimator
        try:
            check_is_fitted(estimator)
        except (NotFittedError, TypeError):
            raise expected("a fitted estimator", "fit it first", estimator=estimator) from None
        if not hasattr(estimator, "predict"):
            raise expected("a classifier or regressor", estimator=estimator)
        self._warn_of_statement(part_read(X, y, subgroup))
        release = TableRelease.of("DPEvaluator", vars(self))
        release.mechanism()  # before any row is read
        classifies = hasattr(estimator, "predict_proba")
        declared = None if classifies else bounds(self.target_bounds, self.residual_bound)
        with in_chunks(X, y, groups) as (rows, *beside):
            if not isinstance(rows, ChunkedRows):
                records, found = _read(estimator, Chunk(X, y))
            else:
                if self.unit != ROW or any(one is not None for one in (subgroup, *beside)):
                    raise ValueError(_NO_LABELS)
                read, n_is_public = partial(_read, estimator), release._relation.n_is_public
                key = fingerprint_key(self)
                records, found = first_look(rows, read, key, n_is_public=n_is_public)
            of = records, Beside((X, y, subgroup), subgroup, subgroups, groups)
            if classifies:
                return class_report(release, found, *of)
            return regression_report(release, declared, *of)

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
        if mark and stated and (named := common_part(stated.event, mark.parts)):
            warnings.warn(
                f"DPEvaluator reports on {name} on its training rows, {named}: numbers look better "
                "than they are on new rows, and both epsilons add up.",
                FitWarning,
                stacklevel=3,
            )
