"""`reliability_table`: predicted probabilities against what happened, bin by bin.

The one table that the three calibration errors and `skdp.displays.ReliabilityDisplay` read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from skdp.fitting.types import ArrayLike, Label
from skdp.fitting.validate import integer, one_of
from skdp.metrics._predictions import Predictions, check_predictions, index_of

STRATEGIES = ("uniform", "quantile")


@dataclass(frozen=True, eq=False)
class ReliabilityTable:
    """Confidence and accuracy in each bin of confidence.

    Parameters
    ----------
    bin_edges : ndarray of shape (n_bins + 1,)
        Bin b holds the confidences in (bin_edges[b], bin_edges[b + 1]]; the first bin holds its
        left edge too. Equal-mass bins repeat an edge where many rows share one confidence; the
        bin between two equal edges is empty.
    counts : ndarray of shape (n_bins,)
        Rows in each bin, or the sum of their weights.
    confidence, accuracy : ndarray of shape (n_bins,)
        Mean predicted probability in each bin, and share of its rows whose predicted class was the
        true one; NaN in an empty one.

    Examples
    --------
    >>> from skdp.metrics import reliability_table
    >>> table = reliability_table([0, 1, 1, 0], [0.1, 0.9, 0.7, 0.6], n_bins=2)
    >>> table.bin_edges, table.counts
    (array([0. , 0.5, 1. ]), array([0., 4.]))
    >>> round(table.mean_confidence, 3), table.mean_accuracy
    (0.775, 0.75)
    """

    bin_edges: np.ndarray
    counts: np.ndarray
    confidence: np.ndarray
    accuracy: np.ndarray

    @property
    def mean_confidence(self) -> float:
        """Mean confidence of all rows."""
        return self._mean(self.confidence)

    @property
    def mean_accuracy(self) -> float:
        """Accuracy over all rows."""
        return self._mean(self.accuracy)

    @property
    def calibration_error(self) -> float:
        """Mean over rows of the distance between confidence and accuracy of their bin."""
        return self._mean(np.abs(self.accuracy - self.confidence))

    def _mean(self, values: np.ndarray) -> float:
        filled = self.counts > 0
        return float(np.average(values[filled], weights=self.counts[filled]))


class Outcomes(NamedTuple):
    """One event per row: its predicted probability, whether it happened, and the row's weight."""

    confidence: np.ndarray
    happened: np.ndarray
    weights: np.ndarray


def reliability_table(
    y_true: ArrayLike,
    y_prob: ArrayLike,
    *,
    n_bins: int = 15,
    strategy: str = "uniform",
    class_label: Label | None = None,
    sample_weight: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    pos_label: Label | None = None,
) -> ReliabilityTable:
    """Tabulate confidence and accuracy over bins of confidence.

    Parameters
    ----------
    y_true, y_prob, n_bins, sample_weight, labels, pos_label : optional
        As in `expected_calibration_error`.
    strategy : {"uniform", "quantile"}, default="uniform"
        Bins of equal width in [0, 1], or of equal mass. Rows of equal confidence always share a
        bin, so with ties the masses are as equal as the ties allow.
    class_label : int, float, bool or str, default=None
        A class: its probability against how often it was the true one. None takes the most
        probable class of each row (the first of several), against how often it was right.

    Returns
    -------
    ReliabilityTable
        Edges, counts, confidence and accuracy of the bins.

    See Also
    --------
    skdp.displays.ReliabilityDisplay : Draws the table.

    Examples
    --------
    >>> from skdp.metrics import reliability_table
    >>> reliability_table([0, 1, 1], [0.2, 0.1, 0.7], n_bins=2, class_label=1).accuracy
    array([0.5, 1. ])
    """
    predictions = check_predictions(y_true, y_prob, sample_weight, labels, pos_label)
    return tabulate(outcomes(predictions, class_label), n_bins, strategy)


def outcomes(predictions: Predictions, class_label: Label | None = None) -> Outcomes:
    """Read one event per row: the class, or where it is None that the top label is right."""
    if class_label is not None:
        return class_outcomes(predictions, index_of(predictions.classes, class_label=class_label))
    probabilities = predictions.probabilities
    happened = probabilities.argmax(axis=1) == predictions.codes
    return Outcomes(probabilities.max(axis=1), happened, predictions.weights)


def class_outcomes(predictions: Predictions, column: int) -> Outcomes:
    """Read as one event a row that the class of this column is the true one."""
    happened = predictions.codes == column
    return Outcomes(predictions.probabilities[:, column], happened, predictions.weights)


def tabulate(rows: Outcomes, n_bins: int, strategy: str) -> ReliabilityTable:
    """Choose the bins and fill them."""
    integer(1, "15 is what most papers use", n_bins=n_bins)
    one_of(STRATEGIES, strategy=strategy)
    kept = rows.weights > 0  # others must not move an edge
    rows = Outcomes(*(values[kept] for values in rows))
    if strategy == "uniform":
        return fill(rows, np.linspace(0.0, 1.0, n_bins + 1))
    return fill(rows, _quantile_edges(rows.confidence, rows.weights, n_bins))


def fill(rows: Outcomes, bin_edges: np.ndarray) -> ReliabilityTable:
    """Average confidence and outcome over the rows of each bin (lower, upper]."""
    bins = np.searchsorted(bin_edges[1:-1], rows.confidence, side="left")
    n_bins = len(bin_edges) - 1
    counts = np.bincount(bins, rows.weights, n_bins)

    def mean(values: np.ndarray) -> np.ndarray:
        sums = np.bincount(bins, rows.weights * values, n_bins)
        return np.divide(sums, counts, out=np.full(n_bins, np.nan), where=counts > 0)

    return ReliabilityTable(bin_edges, counts, mean(rows.confidence), mean(rows.happened))


def _quantile_edges(confidence: np.ndarray, weights: np.ndarray, n_bins: int) -> np.ndarray:
    """Find least and greatest value, and those up to which the mass is nearest to k/n_bins.

    Edges are values, not ranks: rows of equal confidence must not be parted by their order.
    """
    values, which = np.unique(confidence, return_inverse=True)
    mass = np.cumsum(np.bincount(which, weights))
    targets = np.arange(1, n_bins) / n_bins * mass[-1]
    above = np.searchsorted(mass, targets)
    below = np.maximum(above - 1, 0)
    # Of two equally near the lower one; with the slack, also where sums of weights are rounded.
    nearer_below = targets - mass[below] <= mass[above] - targets + 1e-12 * mass[-1]
    inner = values[np.where(nearer_below, below, above)]
    return np.concatenate([values[:1], inner, values[-1:]])
