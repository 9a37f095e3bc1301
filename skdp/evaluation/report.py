"""Reports on released tables: everything here is a function of noisy counts and public facts.

A report is made by `skdp.evaluation.private_report` and its siblings; its properties and methods
compute what is asked for, as often as one likes, at no further cost.
"""

from __future__ import annotations

import html
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np

from skdp._types import Label
from skdp._validate import in_range, one_of
from skdp.evaluation.binning import ResidualBins, ScoreBins
from skdp.evaluation.estimates import (
    LEVEL,
    Estimate,
    NoisyTable,
    by_draws,
    calibration_error,
    fieller,
    monotone,
    pairwise,
    ratio,
    stacked,
)
from skdp.privacy.report import PrivacyReport

NORMALIZE = ("all", "true", "pred")
_MOST_CURVE_BINS = 15
_MOST_IN_MIDDLE, _MOST_AT_ENDS = 0.5, 0.05
_STANDS_OUT = 3.0  # standard deviations
# Of the true class's probability over the largest that it can have, where another was predicted.
_SHARE_EDGES = ScoreBins.of(6).edges
_SHARES = _SHARE_EDGES[:-1, None] + np.diff(_SHARE_EDGES)[:, None] * (np.arange(64) + 0.5) / 64


class RocCurve(NamedTuple):
    """Rates at each threshold, from the strictest to the loosest.

    Parameters
    ----------
    fpr, tpr : Estimate
        False and true positive rates, arrays (n_thresholds,), with an interval for each point.
    thresholds : ndarray of shape (n_thresholds,)
        A row is positive if its score is greater.

    Examples
    --------
    >>> from skdp.evaluation import private_report
    >>> report = private_report([0, 1] * 50, [0.1, 0.8] * 50, classes=[0, 1], n_samples=100)
    >>> curve = report.roc_curve()
    >>> curve.tpr.value.shape == curve.thresholds.shape
    True
    """

    fpr: Estimate
    tpr: Estimate
    thresholds: np.ndarray


class PrecisionRecallCurve(NamedTuple):
    """Precision and recall at each threshold, from the strictest to the loosest.

    Parameters
    ----------
    precision, recall : Estimate
        Arrays (n_thresholds,), with an interval for each point.
    thresholds : ndarray of shape (n_thresholds,)
        A row is positive if its score is greater.

    Examples
    --------
    >>> from skdp.evaluation import private_report
    >>> report = private_report([0, 1] * 50, [0.1, 0.8] * 50, classes=[0, 1], n_samples=100)
    >>> bool((report.precision_recall_curve().precision.value <= 1).all())
    True
    """

    precision: Estimate
    recall: Estimate
    thresholds: np.ndarray


class CalibrationCurve(NamedTuple):
    """What happened, against what was predicted, bin by bin.

    Parameters
    ----------
    edges : ndarray of shape (n_bins + 1,)
        Of the bins of the predicted probability.
    predicted : ndarray of shape (n_bins,)
        Mean predicted probability, of scores spread evenly in the bins.
    happened : Estimate
        Share of rows where the event happened, arrays (n_bins,).
    share : Estimate
        Share of all rows in the bin, arrays (n_bins,).

    Examples
    --------
    >>> from skdp.evaluation import private_report
    >>> report = private_report([0, 1] * 50, [0.1, 0.8] * 50, classes=[0, 1], n_samples=100)
    >>> curve = report.calibration_curve()
    >>> curve.happened.value.shape == curve.predicted.shape
    True
    """

    edges: np.ndarray
    predicted: np.ndarray
    happened: Estimate
    share: Estimate


@dataclass(frozen=True)
class ThresholdReport:
    """What a threshold does.

    Parameters
    ----------
    threshold : float
        The edge of bins nearest to the one asked for; a row is positive if its score is greater.
    accuracy, balanced_accuracy, precision, recall, specificity, f1 : Estimate
        As in scikit-learn; recall is the true positive rate, specificity the true negative one.

    Examples
    --------
    >>> from skdp.evaluation import private_report
    >>> report = private_report([0, 1] * 50, [0.1, 0.8] * 50, classes=[0, 1], n_samples=100)
    >>> report.at(0.5).threshold
    0.5
    """

    threshold: float
    accuracy: Estimate
    balanced_accuracy: Estimate
    precision: Estimate
    recall: Estimate
    specificity: Estimate
    f1: Estimate


@dataclass(frozen=True, eq=False, repr=False)
class EvaluationReport:
    """What was released, and what it cost; base of the reports.

    Attributes
    ----------
    privacy_ : PrivacyReport
        The privacy statement of the release.
    counts_ : ndarray of int
        The released table: noisy counts, possibly negative.
    noise_variance_ : float
        Variance of the noise on each count.
    n_ : int or None
        Public number of rows; None where it is private.
    level : float
        Nominal coverage of the intervals.
    alike : int
        Rows that may be of one person.
    subgroups_ : dict
        A report of each declared subgroup.

    Examples
    --------
    >>> from skdp.evaluation import private_report
    >>> report = private_report([0, 1] * 50, [0.1, 0.8] * 50, classes=[0, 1], n_samples=100)
    >>> round(report.privacy_.epsilon, 9)
    1.0
    """

    privacy_: PrivacyReport
    counts_: np.ndarray
    noise_variance_: float
    n_: int | None
    level: float = LEVEL
    alike: int = 1
    subgroups_: dict[Any, Any] = field(default_factory=dict)
    _shown: ClassVar[tuple[str, ...]] = ()

    def _table(self, counts: np.ndarray) -> NoisyTable:
        return NoisyTable.of(counts.ravel(), self.noise_variance_, self.n_, self.alike)

    @property
    def caution(self) -> str:
        """What the released table has against its own bins; empty for nothing."""
        return ""

    def estimates(self) -> dict[str, Estimate]:
        """Return the summary numbers by name.

        Returns
        -------
        dict of str to Estimate
            Those that the report prints.
        """
        return {name: getattr(self, name) for name in self._shown}

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain Python objects.

        Returns
        -------
        dict
            Estimates, released counts, and the privacy statement.
        """
        return {
            "estimates": {name: e.to_dict() for name, e in self.estimates().items()},
            "caution": self.caution,
            "counts": self.counts_.tolist(),
            "noise_variance": self.noise_variance_,
            "n": self.n_,
            "privacy": self.privacy_.to_dict(),
            "subgroups": {str(k): r.to_dict()["estimates"] for k, r in self.subgroups_.items()},
        }

    def _title(self) -> str:
        rows = "a private number of" if self.n_ is None else f"{self.n_}"
        epsilon = f"epsilon={self.privacy_.epsilon:.4g}"
        nominal = "" if self.privacy_.valid else ", nominal: NOT a guarantee"
        return f"{type(self).__name__} of {rows} rows ({epsilon}{nominal})"

    def _columns(self) -> list[tuple[str, EvaluationReport]]:
        return [("all", self), *((str(k), report) for k, report in self.subgroups_.items())]

    def __repr__(self) -> str:
        lines = [self._title()]
        columns = [(name, report.estimates()) for name, report in self._columns()]
        if self.subgroups_:
            lines.append("  " + " " * 18 + "".join(f"  {name:<24.24}" for name, _ in columns))
        for row in columns[0][1]:
            cells = "".join(f"  {_text(estimates[row]):<24}" for _, estimates in columns)
            lines.append(f"  {row.replace('_', ' '):<18}{cells}".rstrip())
        lines.append(f"  intervals of {self.level:.0%}, for sampling and privacy noise together")
        lines += [f"  CAUTION: {self.caution}"] * bool(self.caution)
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        columns = [(name, report.estimates()) for name, report in self._columns()]
        head = "".join(f"<th>{html.escape(name)}</th>" for name, _ in columns)
        body = "".join(
            f"<tr><th style='text-align:left'>{row.replace('_', ' ')}</th>"
            + "".join(f"<td>{_text(estimates[row])}</td>" for _, estimates in columns)
            + "</tr>"
            for row in columns[0][1]
        )
        note = f"intervals of {self.level:.0%}, for sampling and privacy noise together"
        note += f"<br>CAUTION: {html.escape(self.caution)}" * bool(self.caution)
        return (
            f"<table><caption><b>{html.escape(self._title())}</b><br>{note}</caption>"
            f"<tr><th></th>{head}</tr>{body}</table>"
        )


def _text(e: Estimate) -> str:
    # Digits by the width of the interval: two of its own.
    digits = int(np.clip(2 - np.ceil(np.log10(max(e.high - e.low, 1e-9))), 0, 6))
    return f"{e.value:.{digits}f} [{e.low:.{digits}f}, {e.high:.{digits}f}]"


@dataclass(frozen=True, eq=False, repr=False)
class _ClassReport(EvaluationReport):
    """A report on class probabilities."""

    classes_: np.ndarray = field(default_factory=lambda: np.empty(0))
    bins_: ScoreBins = field(default_factory=lambda: ScoreBins.of(2))

    @property
    def _cells(self) -> NoisyTable:
        """Counts of rows of each kind by the bins of scores."""
        raise NotImplementedError

    @property
    def ece(self) -> Estimate:
        """Expected calibration error."""
        raise NotImplementedError

    @property
    def caution(self) -> str:
        """Where scores cannot be spread over their bins, how far calibration may be off.

        A bin stands out if it has more rows than both of its neighbours together.
        """
        edges, points = self.bins_
        cells = self._cells.counts.reshape(-1, len(points))
        counts, variance = cells.sum(axis=0), len(cells) * self.noise_variance_
        padded = np.pad(counts, 1)
        near = padded[:-2] + padded[2:]
        deviations = np.sqrt(3 * variance + np.maximum(counts, 0) + np.maximum(near, 0))
        shares = counts / max(counts.sum(), 1.0) * (counts - near > _STANDS_OUT * deviations)
        off = shares @ np.maximum(edges[1:] - self.bins_.mean, self.bins_.mean - edges[:-1])
        if 2 * off <= self.ece.high - self.ece.low:
            return ""
        share, found = min(shares.sum(), 1.0), np.count_nonzero(shares)
        return (
            f"{share:.0%} of all rows are in {found} of {len(points)} bins that stand out, as "
            "where many rows share a score. Scores count as spread over their bin: "
            f"ece may be off from that of the scores by {off:.2g}, beyond its interval, "
            "and log_loss and brier too. A report with more bins is a further release."
        )

    def _confusion(self, table: NoisyTable, cells: np.ndarray, normalize: str) -> Estimate:
        """Shares of the confusion matrix, of cells (K, K, n_cells) that are 0 or 1."""
        one_of(NORMALIZE, normalize=normalize)
        axis = {"all": (0, 1), "true": 1, "pred": 0}[normalize]
        whole = np.broadcast_to(cells.sum(axis=axis, keepdims=True), cells.shape)
        found = [
            ratio(table, c, d, shares=True, level=self.level)
            for rows in zip(cells, whole, strict=True)
            for c, d in zip(*rows, strict=True)
        ]
        return stacked(found).map(lambda x: x.reshape(cells.shape[:2]))

    def _of_event(
        self, right: np.ndarray, wrong: np.ndarray, table: NoisyTable
    ) -> CalibrationCurve:
        """Calibration curve, of cells (n_bins, n_cells) where the event happened or did not."""
        edges, points = self.bins_
        step = -(-len(points) // _MOST_CURVE_BINS)
        starts = np.arange(0, len(points), step)
        right, wrong = np.add.reduceat(right, starts), np.add.reduceat(wrong, starts)
        whole = right + wrong
        return CalibrationCurve(
            np.append(edges[starts], edges[-1]),
            np.array([points[start : start + step].mean() for start in starts]),
            stacked([self._share(table, c, d) for c, d in zip(right, whole, strict=True)]),
            stacked([self._share(table, c, np.ones_like(c)) for c in whole]),
        )

    def _share(self, table: NoisyTable, c: np.ndarray, d: np.ndarray) -> Estimate:
        return ratio(table, c, d, shares=True, level=self.level)

    def _mean(self, table: NoisyTable, c: np.ndarray) -> Estimate:
        span = float(c.min()), float(c.max())
        return ratio(table, c, np.ones_like(c), span=span, level=self.level)


@dataclass(frozen=True, eq=False, repr=False)
class BinaryReport(_ClassReport):
    """How good a classifier of two classes is, read off one released table.

    The table counts rows by true class and bin of the predicted probability of the second class.
    Every number is an `Estimate` for the population that the rows are a sample of, with an interval
    that accounts for sampling and for the privacy noise. All are of *binned* scores: scores within
    a bin are tied, and count as spread evenly in arcsin √p.

    Attributes
    ----------
    privacy_ : PrivacyReport
        The privacy statement of the release.
    counts_ : ndarray of int of shape (2, n_bins)
        The released table: noisy counts, possibly negative.
    edges_ : ndarray of shape (n_bins + 1,)
        Public edges of the bins (lower, upper].
    classes_ : ndarray of shape (2,)
        Class labels; the second is the positive one.
    noise_variance_ : float
        Variance of the noise on each count.
    n_ : int or None
        Public number of rows; None where it is private.
    level : float
        Nominal coverage of the intervals.
    subgroups_ : dict
        A report of each declared subgroup.

    Examples
    --------
    >>> from skdp.evaluation import private_report
    >>> report = private_report([0, 1] * 500, [0.1, 0.8] * 500, classes=[0, 1], n_samples=1000)
    >>> report.auc.low <= report.auc.value <= report.auc.high
    True
    """

    _shown: ClassVar = (
        "accuracy", "balanced_accuracy", "precision", "recall", "auc", "average_precision",
        "log_loss", "brier", "ece",
    )  # fmt: skip

    @property
    def edges_(self) -> np.ndarray:
        """Public edges of the bins."""
        return self.bins_.edges

    @cached_property
    def _cells(self) -> NoisyTable:
        return self._table(self.counts_)

    def _edge(self, threshold: float) -> int:
        in_range(0.0, 1.0, closed="both", threshold=threshold)
        return int(np.argmin(np.abs(self.edges_ - threshold)))

    def _by_threshold(self, at: int) -> np.ndarray:
        """Cells (true, predicted, n_cells) at the edge of a number."""
        positive = np.arange(len(self.bins_.points)) >= at
        cells = np.zeros((2, 2, 2, len(positive)))
        for true in (0, 1):
            cells[true, :, true] = ~positive, positive
        return cells.reshape(2, 2, -1)

    def at(self, threshold: float = 0.5) -> ThresholdReport:
        """What the threshold does: accuracy, precision, recall and the like.

        Parameters
        ----------
        threshold : float, default=0.5
            In [0, 1]; the nearest edge of the bins is taken.

        Returns
        -------
        ThresholdReport

        Raises
        ------
        ValueError
            If the threshold is outside [0, 1].
        """
        at, table = self._edge(threshold), self._cells
        (tn, fp), (fn, tp) = self._by_threshold(at)
        positive = np.arange(len(self.bins_.points)) >= at
        return ThresholdReport(
            threshold=float(self.edges_[at]),
            accuracy=self._share(table, tn + tp, np.ones_like(tn)),
            balanced_accuracy=pairwise(
                table, ((~positive)[:, None] + positive.astype(float)) / 2, level=self.level
            ),
            precision=self._share(table, tp, tp + fp),
            recall=self._share(table, tp, tp + fn),
            specificity=self._share(table, tn, tn + fp),
            f1=ratio(table, 2 * tp, 2 * tp + fp + fn, level=self.level),
        )

    @cached_property
    def _at_half(self) -> ThresholdReport:
        return self.at(0.5)

    @cached_property
    def accuracy(self) -> Estimate:
        """Share of rows whose more probable class is the true one."""
        (right, _), (_, positive) = self._by_threshold(len(self.bins_.points) // 2)
        return self._share(self._cells, right + positive, np.ones_like(right))

    @property
    def balanced_accuracy(self) -> Estimate:
        """Mean of the two classes' recalls, at ½."""
        return self._at_half.balanced_accuracy

    @property
    def precision(self) -> Estimate:
        """Of the rows predicted positive at ½, the share that is."""
        return self._at_half.precision

    @property
    def recall(self) -> Estimate:
        """Of the positive rows, the share predicted so at ½."""
        return self._at_half.recall

    @cached_property
    def auc(self) -> Estimate:
        """Area under the ROC curve of the binned scores; ties count half."""
        B = len(self.bins_.points)
        return pairwise(self._cells, np.triu(np.ones((B, B)), 1) + np.eye(B) / 2, level=self.level)

    @cached_property
    def average_precision(self) -> Estimate:
        """Average precision of the binned scores: Σ (R_k − R_{k−1}) P_k from the strictest on."""
        positive = np.repeat([[0.0, 1.0]], len(self.bins_.points), axis=1)
        return by_draws(self._cells, _average_precision, positive, level=self.level)

    @cached_property
    def log_loss(self) -> Estimate:
        """Mean of −log p of the true class, of the binned scores."""
        loss = -np.log(self.bins_.points).mean(axis=1)
        return self._mean(self._cells, np.concatenate([loss[::-1], loss]))

    @cached_property
    def brier(self) -> Estimate:
        """Mean of (p − y)² of the binned scores, with y of 0 and 1."""
        squares = ((1 - self.bins_.points) ** 2).mean(axis=1)
        return self._mean(self._cells, np.concatenate([squares[::-1], squares]))

    @cached_property
    def ece(self) -> Estimate:
        """Expected calibration error of the more probable class over the bins above ½."""
        T0, T1 = self._cells.counts.reshape(2, -1)
        half, noise = len(T0) // 2, 2 * self.noise_variance_
        return calibration_error(
            T1[half:] + T0[:half][::-1],
            T0[half:] + T1[:half][::-1],
            self.bins_.mean[half:],
            (noise, noise),
            alike=self.alike,
            level=self.level,
        )

    def confusion_matrix(self, threshold: float = 0.5, *, normalize: str = "all") -> Estimate:
        """Confusion matrix, as shares.

        Parameters
        ----------
        threshold : float, default=0.5
            In [0, 1]; the nearest edge of the bins is taken.
        normalize : {"all", "true", "pred"}, default="all"
            Shares of all rows, of those of a true class (rows), or of a predicted one (columns).

        Returns
        -------
        Estimate
            Arrays of shape (2, 2): true classes by predicted classes.

        Raises
        ------
        ValueError
            If a parameter is invalid.
        """
        cells = self._by_threshold(self._edge(threshold))
        return self._confusion(self._cells, cells, normalize)

    def _curve(self) -> tuple[np.ndarray, list[np.ndarray]]:
        """Thresholds from 1 down to 0, and the cells at each."""
        ats = range(len(self.edges_) - 1, -1, -1)
        return self.edges_[::-1], [self._by_threshold(at) for at in ats]

    def roc_curve(self) -> RocCurve:
        """ROC curve at the edges of the bins, each rate with an interval.

        Returns
        -------
        RocCurve
            Rates in order: where noise made them turn back, they are evened out.
        """
        thresholds, cells = self._curve()
        rates = [
            stacked([self._share(self._cells, c[k, 1], c[k].sum(axis=0)) for c in cells][::-1])
            for k in (0, 1)
        ]
        fpr, tpr = (monotone(rate)[::-1] for rate in rates)
        return RocCurve(fpr, tpr, thresholds)

    def precision_recall_curve(self) -> PrecisionRecallCurve:
        """Precision and recall at the edges of the bins, each with an interval.

        Returns
        -------
        PrecisionRecallCurve
            From the threshold 1, where no row is positive and nothing is known of the precision.
        """
        thresholds, cells = self._curve()
        table = self._cells
        precision = [self._share(table, c[1, 1], c[:, 1].sum(axis=0)) for c in cells]
        recall = [self._share(table, c[1, 1], c[1].sum(axis=0)) for c in cells]
        falling = monotone(stacked(recall[::-1]))[::-1]
        return PrecisionRecallCurve(stacked(precision), falling, thresholds)

    def calibration_curve(self) -> CalibrationCurve:
        """How often the positive class happened, by its predicted probability.

        Returns
        -------
        CalibrationCurve
            Over 15 bins at most, each of one or several of the table.
        """
        none, each = np.zeros((len(self.bins_.points),) * 2), np.eye(len(self.bins_.points))
        return self._of_event(np.hstack([none, each]), np.hstack([each, none]), self._cells)


def _average_precision(counts: np.ndarray) -> np.ndarray:
    negative, positive = np.split(counts, 2, axis=-1)
    found = np.cumsum(positive[..., ::-1], axis=-1)
    predicted = found + np.cumsum(negative[..., ::-1], axis=-1)
    precision = np.clip(found / np.maximum(predicted, 1e-9), 0.0, 1.0)
    return (positive[..., ::-1] * precision).sum(-1) / np.maximum(found[..., -1], 1e-9)


@dataclass(frozen=True, eq=False, repr=False)
class MulticlassReport(_ClassReport):
    """How good a classifier of several classes is, read off two released tables.

    One counts rows by true and predicted class. The other counts rows whose predicted class is
    right by the bin of its probability, and the others by this bin and, in six bins, by the
    probability of the true class over the largest that it could have been.

    Attributes
    ----------
    privacy_ : PrivacyReport
        The privacy statement of the release.
    counts_ : ndarray of int of shape (n_classes, n_classes)
        Released counts of true by predicted class, possibly negative.
    by_confidence_ : ndarray of int of shape (7, n_bins)
        Released counts by confidence: of rows that are right, and of wrong ones in six bins.
    edges_ : ndarray of shape (n_bins + 1,)
        Public edges of the confidence, from 1/n_classes.
    classes_ : ndarray of shape (n_classes,)
        Class labels.
    noise_variance_ : float
        Variance of the noise on each count.
    n_ : int or None
        Public number of rows; None where it is private.
    level : float
        Nominal coverage of the intervals.
    subgroups_ : dict
        A report of each declared subgroup.

    Examples
    --------
    >>> from skdp.evaluation import private_report
    >>> y_proba = [[0.7, 0.2, 0.1], [0.1, 0.6, 0.3], [0.2, 0.2, 0.6]] * 100
    >>> report = private_report([0, 1, 2] * 100, y_proba, classes=[0, 1, 2], n_samples=300)
    >>> report.confusion_matrix().value.shape
    (3, 3)
    """

    by_confidence_: np.ndarray = field(default_factory=lambda: np.empty(0))

    _shown: ClassVar = ("accuracy", "balanced_accuracy", "log_loss", "brier", "ece")

    @property
    def edges_(self) -> np.ndarray:
        """Public edges of the bins of the confidence."""
        return self.bins_.edges

    @cached_property
    def _matrix(self) -> NoisyTable:
        return self._table(self.counts_)

    @cached_property
    def _cells(self) -> NoisyTable:
        return self._table(self.by_confidence_)

    @property
    def _by_class(self) -> np.ndarray:
        """Cells (true, predicted, n_cells)."""
        K = len(self.classes_)
        return np.eye(K * K).reshape(K, K, -1)

    @cached_property
    def accuracy(self) -> Estimate:
        """Share of rows whose most probable class is the true one."""
        right = np.eye(len(self.classes_)).ravel()
        return self._share(self._matrix, right, np.ones_like(right))

    @cached_property
    def balanced_accuracy(self) -> Estimate:
        """Mean of the classes' recalls."""
        K = len(self.classes_)

        def mean_recall(counts: np.ndarray) -> np.ndarray:
            matrix = counts.reshape(*counts.shape[:-1], K, K)
            of_class = np.maximum(matrix.sum(-1), 1e-9)
            recalls = np.clip(np.diagonal(matrix, axis1=-2, axis2=-1) / of_class, 0.0, 1.0)
            return recalls.mean(-1)

        of_classes = self._by_class.sum(axis=1)
        return by_draws(self._matrix, mean_recall, of_classes, level=self.level)

    @property
    def recall(self) -> Estimate:
        """Recall of each class, arrays (n_classes,)."""
        return self.confusion_matrix(normalize="true").map(np.diag)

    @property
    def precision(self) -> Estimate:
        """Precision of each class, arrays (n_classes,)."""
        return self.confusion_matrix(normalize="pred").map(np.diag)

    @cached_property
    def log_loss(self) -> Estimate:
        """Mean of −log p of the true class, of the binned scores."""
        p = self.bins_.points
        least = -np.log(np.minimum(p, 1 - p)).mean(axis=1)
        further = -np.log(_SHARES).mean(axis=1)
        losses = [-np.log(p).mean(axis=1), *(least + more for more in further)]
        return self._mean(self._cells, np.concatenate(losses))

    @cached_property
    def brier(self) -> Estimate:
        """Mean of Σ_k (p_k − y_k)², of the binned scores.

        The tables hold two probabilities at most. The rest of 1 counts as split at random (evenly
        on the simplex) among the m classes left: Σ p_k² is 2/(m + 1) of its square.
        """
        K, p = len(self.classes_), self.bins_.points[:, :, None]
        squares = [((1 - p) ** 2 * (1 + 2 / K)).mean(axis=(1, 2))]
        for part in _SHARES:
            q = part * np.minimum(p, 1 - p)
            squares.append((p**2 + (1 - q) ** 2 + (1 - p - q) ** 2 * 2 / (K - 1)).mean(axis=(1, 2)))
        return self._mean(self._cells, np.concatenate(squares))

    @cached_property
    def ece(self) -> Estimate:
        """Expected calibration error of the most probable class over the bins."""
        counts = self._cells.counts.reshape(1 + len(_SHARES), -1)
        noise = self.noise_variance_, len(_SHARES) * self.noise_variance_
        return calibration_error(
            counts[0],
            counts[1:].sum(axis=0),
            self.bins_.mean,
            noise,
            alike=self.alike,
            level=self.level,
        )

    def confusion_matrix(self, *, normalize: str = "all") -> Estimate:
        """Confusion matrix, as shares.

        Parameters
        ----------
        normalize : {"all", "true", "pred"}, default="all"
            Shares of all rows, of those of a true class (rows), or of a predicted one (columns).

        Returns
        -------
        Estimate
            Arrays of shape (n_classes, n_classes): true classes by predicted classes.

        Raises
        ------
        ValueError
            If a parameter is invalid.
        """
        return self._confusion(self._matrix, self._by_class, normalize)

    def calibration_curve(self) -> CalibrationCurve:
        """How often the most probable class was the true one, by its probability.

        Returns
        -------
        CalibrationCurve
            Over 15 bins at most, each of one or several of the table.
        """
        each, n_wrong = np.eye(len(self.bins_.points)), len(_SHARES)
        none = np.zeros_like(each)
        right, wrong = [each] + [none] * n_wrong, [none] + [each] * n_wrong
        return self._of_event(np.hstack(right), np.hstack(wrong), self._cells)


def cells_of_scores(
    classes: np.ndarray, bins: ScoreBins, probabilities: np.ndarray, codes: np.ndarray
) -> list[tuple[np.ndarray, int]]:
    """Cell of each row in each table, and the number of cells of the table.

    Parameters
    ----------
    classes : ndarray of shape (n_classes,)
        Labels.
    bins : ScoreBins
        Of the positive class of two, else of the most probable one.
    probabilities : ndarray of shape (n, n_classes)
        Rows that sum to 1.
    codes : ndarray of shape (n,)
        Numbers of the true classes.

    Returns
    -------
    list of tuple
        One table of two classes, two of more.
    """
    B, K = len(bins.points), len(classes)
    if K == 2:
        return [(codes * B + bins.numbers(probabilities[:, 1]), 2 * B)]
    top = probabilities.argmax(axis=1)
    p, of_true = probabilities.max(axis=1), probabilities[np.arange(len(codes)), codes]
    most = np.maximum(np.minimum(p, 1 - p), np.finfo(float).tiny)
    wrong = 1 + np.searchsorted(_SHARE_EDGES[1:-1], of_true / most, side="left")
    kind = np.where(top == codes, 0, wrong)
    return [(codes * K + top, K * K), (kind * B + bins.numbers(p), (1 + len(_SHARES)) * B)]


@dataclass(frozen=True, eq=False, repr=False)
class RegressionReport(EvaluationReport):
    """How good a regressor is, read off two released tables.

    One counts rows by bin of the residual y − prediction, within a declared bound, and by whether a
    given interval holds the target; the other by bin of the target, within declared bounds. All
    numbers are of what is cut at the bounds and binned; residuals beyond their bound make the root
    mean squared error smaller than it is.

    Attributes
    ----------
    privacy_ : PrivacyReport
        The privacy statement of the release.
    counts_ : ndarray of int of shape (n_bins,) or (2, n_bins)
        Released counts by residual; with intervals, of rows outside and inside of theirs.
    of_targets_ : ndarray of int of shape (n_bins,)
        Released counts by target.
    edges_ : ndarray of shape (n_bins + 1,)
        Public edges of the residuals.
    noise_variance_ : float
        Variance of the noise on each count.
    n_ : int or None
        Public number of rows; None where it is private.
    level : float
        Nominal coverage of the intervals.
    subgroups_ : dict
        A report of each declared subgroup.

    Examples
    --------
    >>> from skdp.evaluation import private_regression_report
    >>> report = private_regression_report(
    ...     [1.0, 2.0, 3.0] * 200, [1.1, 2.1, 2.9] * 200, target_bounds=(0, 4), residual_bound=1,
    ...     n_samples=600,
    ... )
    >>> report.rmse.low <= report.rmse.value <= report.rmse.high
    True
    """

    bins_: ResidualBins = field(default_factory=lambda: ResidualBins.of(2, 1.0))
    of_targets_: np.ndarray = field(default_factory=lambda: np.empty(0))
    target_edges_: np.ndarray = field(default_factory=lambda: np.empty(0))

    _shown: ClassVar = ("rmse", "mae", "bias", "r2", "coverage")

    def estimates(self) -> dict[str, Estimate]:
        """Return the summary numbers by name.

        Returns
        -------
        dict of str to Estimate
            Those that the report prints: the coverage where intervals were given.
        """
        found = super().estimates()
        return {k: e for k, e in found.items() if k != "coverage" or self._given_intervals}

    @property
    def edges_(self) -> np.ndarray:
        """Public edges of the bins of the residuals."""
        return self.bins_.edges

    @property
    def _given_intervals(self) -> bool:
        return self.counts_.ndim == 2

    @cached_property
    def _cells(self) -> NoisyTable:
        return self._table(self.counts_)

    def _mean(self, values: np.ndarray) -> Estimate:
        c = np.tile(values, 1 + self._given_intervals)
        span = float(c.min()), float(c.max())
        return ratio(self._cells, c, np.ones_like(c), span=span, level=self.level)

    @property
    def caution(self) -> str:
        """In which bins most residuals are, where their bound was too wide or too narrow."""
        B = len(self.edges_) - 1
        middle, ends = np.zeros(B), np.zeros(B)
        middle[B // 2 - 1 : B // 2 + 1] = ends[[0, -1]] = 1

        def share(bins: np.ndarray) -> float:
            c = np.tile(bins, 1 + self._given_intervals)
            return ratio(self._cells, c, np.ones_like(c), shares=True, level=self.level).low

        if share(middle) > _MOST_IN_MIDDLE:
            said = "too wide: more than half of all residuals are in the two bins next to 0"
        elif share(ends) > _MOST_AT_ENDS:
            said = "too narrow: more than a twentieth of all residuals are in the bins at its ends"
        else:
            return ""
        return (
            f"residual_bound={self.edges_[-1]:g} is {said}. Errors are those of the bins, and "
            "their intervals do not hold; a report with another bound is a further release."
        )

    @cached_property
    def mse(self) -> Estimate:
        """Mean squared residual."""
        return self._mean(self.bins_.square)

    @property
    def rmse(self) -> Estimate:
        """Root of the mean squared residual."""
        return self.mse.map(lambda x: float(np.sqrt(x)))

    @cached_property
    def mae(self) -> Estimate:
        """Mean absolute residual."""
        return self._mean(self.bins_.absolute)

    @cached_property
    def bias(self) -> Estimate:
        """Mean residual y − prediction."""
        return self._mean(self.bins_.mean)

    @cached_property
    def r2(self) -> Estimate:
        """R² = 1 − mean squared residual / variance of the targets, at least −1.

        The tables do not say how squared residuals and targets go together, so the interval is for
        the worst correlation of the two.
        """
        residuals, targets = self._cells, self._table(self.of_targets_)
        a, b = self.target_edges_[:-1], self.target_edges_[1:]
        mean = (a + b) / 2
        n = max(float(targets.counts.sum()), 1.0)
        # Exact to first order: the variance is least at the mean.
        centre = float(np.clip((targets.counts * mean).sum() / n, a[0], b[-1]))
        parts = []
        squares = np.tile(self.bins_.square, 1 + self._given_intervals)
        for table, c in ((residuals, squares), (targets, (mean - centre) ** 2 + (b - a) ** 2 / 12)):
            total = max(float(table.counts.sum()), 1.0)
            average = float((table.counts * c).sum()) / total
            c = c - average
            sampling = max(float((table.counts * c * c).sum()), 0.0) * table.alike / total**2
            parts.append((average, sampling, float(table.noise(c, c)) / total**2))
        (C, s_c, v_c), (D, s_d, v_d) = parts
        V = s_c + v_c, -np.sqrt(s_c * s_d), s_d + v_d
        lost = fieller(C, D, V, span=(0.0, 2.0), level=self.level)
        return Estimate(1 - lost.value, 1 - lost.high, 1 - lost.low, self.level)

    @cached_property
    def coverage(self) -> Estimate:
        """Share of rows whose given interval holds the target; NaN where none were given."""
        if not self._given_intervals:
            return Estimate(np.nan, np.nan, np.nan, self.level)
        inside = np.repeat([0.0, 1.0], self.counts_.shape[1])
        return ratio(self._cells, inside, np.ones_like(inside), shares=True, level=self.level)


def report_of(classes: np.ndarray, n_bins: int) -> tuple[type[_ClassReport], ScoreBins]:
    """Report and bins for classes: of the positive one of two, else of the most probable one."""
    if len(classes) == 2:
        return BinaryReport, ScoreBins.of(n_bins)
    return MulticlassReport, ScoreBins.of(max(n_bins // 2, 3), 1 / len(classes))


def label_of(label: Any) -> Label:
    """Return a label as a plain key."""
    return label.item() if isinstance(label, np.generic) else label
