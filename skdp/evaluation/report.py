"""Reports on released tables: everything here is a function of noisy counts and public facts.

A report is made by `skdp.evaluation.private_report` and its siblings; its properties and methods
compute what is asked for, as often as one likes, at no further cost.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, ClassVar

import numpy as np

from skdp.evaluation.base_report import EvaluationReport
from skdp.evaluation.binning import SHARES
from skdp.evaluation.calibration_error import calibration_error
from skdp.evaluation.curves import CalibrationCurve, PrecisionRecallCurve, RocCurve, ThresholdReport
from skdp.evaluation.estimates import (
    Estimate,
    NoisyTable,
    by_draws,
    mean,
    monotone,
    pairwise,
    ratio,
    stacked,
)
from skdp.fitting.validate import in_range, one_of

_MOST_CURVE_BINS = 15
_STANDS_OUT = 3.0  # standard deviations


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class _ClassReport(EvaluationReport):
    classes_: np.ndarray

    ece: ClassVar[Any]  # an Estimate

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

    def _ece(self, right: Any, wrong: Any, confidence: Any, cells: tuple[int, int]) -> Estimate:
        """Calibration error of counts, each a sum over some cells."""
        noise = cells[0] * self.noise_variance_, cells[1] * self.noise_variance_
        how = {"alike": self.alike, "level": self.level}
        return calibration_error(right, wrong, confidence, noise, **how)

    def _confusion(self, table: NoisyTable, cells: np.ndarray, normalize: str) -> Estimate:
        """Shares of the confusion matrix, of cells (K, K, n_cells) that are 0 or 1."""
        axes = {"all": (0, 1), "true": 1, "pred": 0}
        axis = axes[one_of(axes, normalize=normalize)]
        whole = np.broadcast_to(cells.sum(axis=axis, keepdims=True), cells.shape)
        shape, size = cells.shape[:2], cells.shape[2]
        pairs = zip(cells.reshape(-1, size), whole.reshape(-1, size), strict=True)
        found = stacked([ratio(table, c, d, shares=True) for c, d in pairs])
        return found.map(lambda x: x.reshape(shape))

    def _of_event(self, right: np.ndarray, wrong: np.ndarray) -> CalibrationCurve:
        """Calibration curve, of cells (n_bins, n_cells) where the event happened or did not."""
        edges, points = self.bins_
        step = -(-len(points) // _MOST_CURVE_BINS)
        starts = np.arange(0, len(points), step)
        right, wrong = np.add.reduceat(right, starts), np.add.reduceat(wrong, starts)
        whole, share = right + wrong, partial(ratio, self._cells, shares=True)
        return CalibrationCurve(
            np.append(edges[starts], edges[-1]),
            np.array([points[start : start + step].mean() for start in starts]),
            stacked([share(c, d) for c, d in zip(right, whole, strict=True)]),
            stacked([share(c) for c in whole]),
        )


def _at_half(name: str, doc: str) -> Any:
    """Property that says what ½ does as a threshold."""

    def of_half(report: BinaryReport) -> Estimate:
        return getattr(report._half, name)

    return property(of_half, doc=doc)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class BinaryReport(_ClassReport):
    """How good a classifier of two classes is, read off one released table.

    The table counts rows by true class and bin of the predicted probability of the second class.
    Every number is an `Estimate` for the population that the rows are a sample of, with an interval
    that accounts for sampling and for the privacy noise. All are of *binned* scores: scores within
    a bin are tied, and count as spread evenly in arcsin √p.

    Attributes
    ----------
    privacy_, noise_variance_, n_, level, alike, subgroups_
        As of every `EvaluationReport`.
    counts_ : ndarray of int of shape (2, n_bins)
        The released table: noisy counts, possibly negative.
    edges_ : ndarray of shape (n_bins + 1,)
        Public edges of the bins (lower, upper].
    classes_ : ndarray of shape (2,)
        Class labels; the second is the positive one.

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

    def _by_threshold(self, threshold: float) -> tuple[float, np.ndarray]:
        """Nearest edge of the bins, and the cells (true, predicted, n_cells) at it."""
        in_range(0.0, 1.0, closed="both", threshold=threshold)
        at = int(np.argmin(np.abs(self.edges_ - threshold)))
        return float(self.edges_[at]), self._at_edge(at)

    def _at_edge(self, at: int) -> np.ndarray:
        positive = np.arange(len(self.bins_.points)) >= at
        cells = np.zeros((2, 2, 2, len(positive)))
        for true in (0, 1):
            cells[true, :, true] = ~positive, positive
        return cells.reshape(2, 2, -1)

    def at(self, threshold: float = 0.5) -> ThresholdReport:
        """Return what the nearest edge of the bins does as a threshold in [0, 1]."""
        edge, ((tn, fp), (fn, tp)) = self._by_threshold(threshold)
        low, high = np.split(fp + tp, 2)  # whether a bin is above the threshold, by class
        share = partial(ratio, self._cells, shares=True)
        return ThresholdReport(
            threshold=edge,
            accuracy=share(tn + tp),
            balanced_accuracy=pairwise(self._cells, (1 - low[:, None] + high) / 2),
            precision=share(tp, tp + fp),
            recall=share(tp, tp + fn),
            specificity=share(tn, tn + fp),
            f1=ratio(self._cells, 2 * tp, 2 * tp + fp + fn),
        )

    @cached_property
    def _half(self) -> ThresholdReport:
        return self.at(0.5)

    accuracy = _at_half("accuracy", "Share of rows whose more probable class is the true one.")
    balanced_accuracy = _at_half("balanced_accuracy", "Mean of the two classes' recalls, at ½.")
    precision = _at_half("precision", "Of the rows predicted positive at ½, the share that is.")
    recall = _at_half("recall", "Of the positive rows, the share predicted so at ½.")

    @cached_property
    def auc(self) -> Estimate:
        """Area under the ROC curve of the binned scores; ties count half."""
        B = len(self.bins_.points)
        return pairwise(self._cells, np.triu(np.ones((B, B)), 1) + np.eye(B) / 2)

    @cached_property
    def average_precision(self) -> Estimate:
        """Average precision of the binned scores: Σ (R_k − R_{k−1}) P_k from the strictest on."""
        positive = np.repeat([[0.0, 1.0]], len(self.bins_.points), axis=1)
        return by_draws(self._cells, _average_precision, positive)

    @cached_property
    def log_loss(self) -> Estimate:
        """Mean of −log p of the true class, of the binned scores."""
        return self._mean(-np.log(self.bins_.points))

    @cached_property
    def brier(self) -> Estimate:
        """Mean of (p − y)² of the binned scores, with y of 0 and 1."""
        return self._mean((1 - self.bins_.points) ** 2)

    def _mean(self, losses: np.ndarray) -> Estimate:
        """Mean of a loss at points (n_bins, n) of the true class's probability, by symmetry."""
        loss = losses.mean(axis=1)
        return mean(self._cells, np.concatenate([loss[::-1], loss]))

    @cached_property
    def ece(self) -> Estimate:
        """Expected calibration error of the more probable class over the bins above ½."""
        T0, T1 = self._cells.counts.reshape(2, -1)
        half = len(T0) // 2
        right, wrong = T1[half:] + T0[:half][::-1], T0[half:] + T1[:half][::-1]
        return self._ece(right, wrong, self.bins_.mean[half:], (2, 2))

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
        """
        return self._confusion(self._cells, self._by_threshold(threshold)[1], normalize)

    def _rate(self, true: int) -> Estimate:
        """Share of a class with a score above each edge from the greatest on, evened out."""
        cells = (self._at_edge(at) for at in range(len(self.edges_)))
        shares = [ratio(self._cells, c[true, 1], c[true].sum(axis=0), shares=True) for c in cells]
        return monotone(stacked(shares))[::-1]

    def roc_curve(self) -> RocCurve:
        """Return the ROC curve at the edges; where noise made it turn back, it is evened out."""
        return RocCurve(self._rate(0), self._rate(1), self.edges_[::-1])

    def precision_recall_curve(self) -> PrecisionRecallCurve:
        """Return precision and recall at the edges, from 1, where nothing is known of precision."""
        cells = [self._at_edge(at) for at in range(len(self.edges_))][::-1]
        share = partial(ratio, self._cells, shares=True)
        precision = stacked([share(c[1, 1], c[:, 1].sum(axis=0)) for c in cells])
        return PrecisionRecallCurve(precision, self._rate(1), self.edges_[::-1])

    def calibration_curve(self) -> CalibrationCurve:
        """Return how often the positive class happened, by its probability, in at most 15 bins."""
        none, each = np.zeros((len(self.bins_.points),) * 2), np.eye(len(self.bins_.points))
        return self._of_event(np.hstack([none, each]), np.hstack([each, none]))


def _average_precision(counts: np.ndarray) -> np.ndarray:
    negative, positive = np.split(counts, 2, axis=-1)
    found = np.cumsum(positive[..., ::-1], axis=-1)
    predicted = found + np.cumsum(negative[..., ::-1], axis=-1)
    precision = np.clip(found / np.maximum(predicted, 1e-9), 0.0, 1.0)
    return (positive[..., ::-1] * precision).sum(-1) / np.maximum(found[..., -1], 1e-9)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class MulticlassReport(_ClassReport):
    """How good a classifier of several classes is, read off two released tables.

    One counts rows by true and predicted class. The other counts rows whose predicted class is
    right by the bin of its probability, and the others by this bin and, in six bins, by the
    probability of the true class over the largest that it could have been.

    Attributes
    ----------
    privacy_, noise_variance_, n_, level, alike, subgroups_
        As of every `EvaluationReport`.
    counts_ : ndarray of int of shape (n_classes, n_classes)
        Released counts of true by predicted class, possibly negative.
    by_confidence_ : ndarray of int of shape (7, n_bins)
        Released counts by confidence: of rows that are right, and of wrong ones in six bins.
    edges_ : ndarray of shape (n_bins + 1,)
        Public edges of the confidence, from 1/n_classes.
    classes_ : ndarray of shape (n_classes,)
        Class labels.

    Examples
    --------
    >>> from skdp.evaluation import private_report
    >>> y_proba = [[0.7, 0.2, 0.1], [0.1, 0.6, 0.3], [0.2, 0.2, 0.6]] * 100
    >>> report = private_report([0, 1, 2] * 100, y_proba, classes=[0, 1, 2], n_samples=300)
    >>> report.confusion_matrix().value.shape
    (3, 3)
    """

    by_confidence_: np.ndarray

    _shown: ClassVar = ("accuracy", "balanced_accuracy", "log_loss", "brier", "ece")

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
        return ratio(self._matrix, np.eye(len(self.classes_)).ravel(), shares=True)

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
        return by_draws(self._matrix, mean_recall, of_classes)

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
        further = -np.log(SHARES).mean(axis=1)
        losses = [-np.log(p).mean(axis=1), *(least + more for more in further)]
        return mean(self._cells, np.concatenate(losses))

    @cached_property
    def brier(self) -> Estimate:
        """Mean of Σ_k (p_k − y_k)², of the binned scores.

        The tables hold two probabilities at most. The rest of 1 counts as split at random (evenly
        on the simplex) among the m classes left: Σ p_k² is 2/(m + 1) of its square.
        """
        K, p = len(self.classes_), self.bins_.points[:, :, None]
        squares = [((1 - p) ** 2 * (1 + 2 / K)).mean(axis=(1, 2))]
        for part in SHARES:
            q = part * np.minimum(p, 1 - p)
            squares.append((p**2 + (1 - q) ** 2 + (1 - p - q) ** 2 * 2 / (K - 1)).mean(axis=(1, 2)))
        return mean(self._cells, np.concatenate(squares))

    @cached_property
    def ece(self) -> Estimate:
        """Expected calibration error of the most probable class over the bins."""
        right, *wrong = self._cells.counts.reshape(1 + len(SHARES), -1)
        return self._ece(right, np.sum(wrong, axis=0), self.bins_.mean, (1, len(SHARES)))

    def confusion_matrix(self, *, normalize: str = "all") -> Estimate:
        """Confusion matrix (n_classes, n_classes), as `BinaryReport.confusion_matrix` has it."""
        return self._confusion(self._matrix, self._by_class, normalize)

    def calibration_curve(self) -> CalibrationCurve:
        """Return how often the most probable class was true, by its probability, in ≤ 15 bins."""
        each, n_wrong = np.eye(len(self.bins_.points)), len(SHARES)
        none = np.zeros_like(each)
        right, wrong = [each] + [none] * n_wrong, [none] + [each] * n_wrong
        return self._of_event(np.hstack(right), np.hstack(wrong))
