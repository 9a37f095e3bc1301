"""Values that reports give: curves, and what a threshold does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from skdp.evaluation.estimates import Estimate


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
    >>> report.roc_curve().thresholds[[0, -1]]
    array([1., 0.])
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
    >>> report.calibration_curve().edges[[0, -1]]
    array([0., 1.])
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
