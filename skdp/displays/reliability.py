"""`ReliabilityDisplay`: whether a classifier is right as often as it says.

Above, accuracy against confidence, bin by bin: on the diagonal a classifier is calibrated, below it
overconfident. Underneath, how many rows each bin holds: a wild curve over empty bins is noise.

References
----------
M. Knolle et al., *Differentially Private Training of Neural Networks with Langevin Dynamics for
Calibrated Predictive Uncertainty*, 2021, figure 1. C. Guo, G. Pleiss, Y. Sun, K. Weinberger, *On
Calibration of Modern Neural Networks*, ICML 2017.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from skdp.displays._axes import (
    GREY,
    Artist,
    Axes,
    OneOrTwo,
    curve_and_histogram,
    legend,
    named,
    plain,
    shown,
)
from skdp.displays._inputs import (
    Interval,
    interval,
    last_step,
    level_between,
    of_report,
    transformed,
)
from skdp.fitting.types import ArrayLike, Label, Params, Seed
from skdp.fitting.validate import expected, in_range, integer
from skdp.metrics import ReliabilityTable, _predictions
from skdp.metrics._predictions import Predictions
from skdp.metrics.reliability import fill, outcomes, tabulate

_CALIBRATED = "perfectly calibrated"


class ReliabilityDisplay:
    """Reliability curve over a histogram of confidence.

    Parameters
    ----------
    table : ReliabilityTable
        Confidence and accuracy, bin by bin; see `skdp.metrics.reliability_table`.
    accuracy_samples : array-like of shape (n_posterior_samples, n_bins), default=None
        Accuracy in the same bins under each of several posterior samples; NaN in an empty bin.
    histogram_table : ReliabilityTable, default=None
        Table whose counts the histogram shows; None takes ``table``. Bins of equal mass make a flat
        histogram, so that `from_predictions` passes bins of equal width with them.
    accuracy_interval, share_interval : Estimate, default=None
        Of the accuracy in each bin, for a band, and of the share of rows in it: arrays (n_bins,) of
        a released report. Bins of the interval [0, 1], of which nothing is known, are left out.
    calibration_error, name : Estimate and str, default=None
        For the legend; None takes the error of the table, and no name.
    class_label : int, float, bool or str, default=None
        The class that the table is about. None where it is about the top label.

    Attributes
    ----------
    ax_, axes_, figure_ : matplotlib Axes, tuple of them, and Figure
        Those of the curve, and beside them those of the histogram where there is one.
    line_, band_, histogram_ : matplotlib artists or None
        What was drawn.

    See Also
    --------
    skdp.metrics.reliability_table : The numbers.

    Examples
    --------
    Two classifiers in one picture:

    >>> from skdp.displays import ReliabilityDisplay
    >>> y = [0, 1, 1, 0]
    >>> first = ReliabilityDisplay.from_predictions(y, [0.1, 0.9, 0.7, 0.6], name="first")
    >>> second = first.from_predictions(y, [0.3, 0.6, 0.6, 0.4], name="second", ax=first.ax_)
    >>> second.figure_ is first.figure_
    True
    """

    def __init__(
        self,
        table: ReliabilityTable,
        *,
        accuracy_samples: ArrayLike | None = None,
        histogram_table: ReliabilityTable | None = None,
        accuracy_interval: Any = None,
        share_interval: Any = None,
        calibration_error: Any = None,
        name: str | None = None,
        class_label: Label | None = None,
    ) -> None:
        self.table = _check_table(table=table)
        n_bins = len(table.counts)
        self._accuracy = _check_interval(n_bins, accuracy_interval=accuracy_interval)
        self._share = _check_interval(n_bins, share_interval=share_interval)
        self._error = calibration_error
        if calibration_error is not None:
            self._error = interval(calibration_error, "calibration_error", 0)
        self.accuracy_interval, self.share_interval = accuracy_interval, share_interval
        self.calibration_error = calibration_error
        histogram_table = table if histogram_table is None else histogram_table
        self.histogram_table = _check_table(histogram_table=histogram_table)
        self.accuracy_samples = _check_accuracies(accuracy_samples, n_bins)
        self.name, self.class_label = name, class_label

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: ArrayLike,
        y: ArrayLike,
        *,
        n_posterior_samples: int = 0,
        random_state: Seed = None,
        n_bins: int = 15,
        strategy: str = "uniform",
        class_label: Label | None = None,
        sample_weight: ArrayLike | None = None,
        name: str | None = None,
        ax: OneOrTwo = None,
        **kwargs: Any,
    ) -> ReliabilityDisplay:
        """Draw the reliability of a fitted classifier.

        Parameters
        ----------
        estimator : fitted classifier or Pipeline
            Has `predict_proba`, and `sample_predictive` where a band is asked for.
        X : array-like of shape (n_samples, n_features)
            Rows that the classifier was not fitted on.
        y : array-like of shape (n_samples,)
            Their true labels.
        n_posterior_samples, random_state : int, default=0 and None
            Number of posterior samples for the band, and their seed.
        n_bins, strategy, class_label, sample_weight, name, ax, **kwargs : optional
            As in `from_predictions`; the name is that of the estimator's class by default.

        Returns
        -------
        ReliabilityDisplay
        """
        n_posterior_samples = integer(0, n_posterior_samples=n_posterior_samples)
        last = last_step(estimator, "predict_proba")
        samples = None
        if n_posterior_samples:
            last = last_step(estimator, "sample_predictive")
            seed = {} if random_state is None else {"random_state": random_state}
            samples = last.sample_predictive(transformed(estimator, X), n_posterior_samples, **seed)
        options: Params = {"y_prob_samples": samples, "labels": last.classes_, "ax": ax}
        options |= {"class_label": class_label, "sample_weight": sample_weight, "n_bins": n_bins}
        options |= {"name": type(last).__name__ if name is None else name, "strategy": strategy}
        return cls.from_predictions(y, estimator.predict_proba(X), **options, **kwargs)

    @classmethod
    def from_predictions(
        cls,
        y_true: ArrayLike,
        y_prob: ArrayLike,
        *,
        y_prob_samples: ArrayLike | None = None,
        n_bins: int = 15,
        strategy: str = "uniform",
        class_label: Label | None = None,
        sample_weight: ArrayLike | None = None,
        labels: ArrayLike | None = None,
        pos_label: Label | None = None,
        name: str | None = None,
        ax: OneOrTwo = None,
        **kwargs: Any,
    ) -> ReliabilityDisplay:
        """Draw the reliability of predicted probabilities.

        Parameters
        ----------
        y_true, y_prob, n_bins, strategy, class_label, sample_weight, labels, pos_label : optional
            As in `skdp.metrics.reliability_table`.
        y_prob_samples : array-like of shape (n_posterior_samples,) + shape of y_prob, default=None
            Probabilities under each of several posterior samples, for the band.
        name, ax, **kwargs : optional
            As in `plot`.

        Returns
        -------
        ReliabilityDisplay
        """
        beside = sample_weight, labels, pos_label
        predictions = _predictions.check_predictions(y_true, y_prob, *beside)
        rows = outcomes(predictions, class_label)
        table = tabulate(rows, n_bins, strategy)
        accuracies = None
        if y_prob_samples is not None:
            accuracies = [
                fill(outcomes(sample, class_label), table.bin_edges).accuracy
                for sample in _samples(predictions, y_prob_samples)
            ]
        below = tabulate(rows, n_bins, "uniform")
        tables: Params = {"accuracy_samples": accuracies, "histogram_table": below}
        return cls(table, **tables, name=name, class_label=class_label).plot(ax, **kwargs)

    @classmethod
    def from_report(
        cls, report: Any, *, name: str | None = None, ax: OneOrTwo = None, **kwargs: Any
    ) -> ReliabilityDisplay:
        """Draw the calibration curve of a private report, with its intervals.

        Parameters
        ----------
        report : BinaryReport or MulticlassReport
            What `skdp.evaluation` returns for classes. Of two classes the curve is about the
            second, of more about the most probable one; the error in the legend is that of the most
            probable one.
        name, ax, **kwargs : optional
            As in `plot`.

        Returns
        -------
        ReliabilityDisplay
        """
        curve = of_report(report, "calibration_curve")()
        share, happened = curve.share, curve.happened
        table = ReliabilityTable(curve.edges, share.value, curve.predicted, happened.value)
        of: Params = {"accuracy_interval": happened, "share_interval": share}
        of["class_label"] = report.classes_[1] if len(report.classes_) == 2 else None
        return cls(table, calibration_error=report.ece, name=name, **of).plot(ax, **kwargs)

    def plot(
        self,
        ax: OneOrTwo = None,
        *,
        name: str | None = None,
        level: float = 0.9,
        histogram: bool = True,
        **kwargs: Any,
    ) -> ReliabilityDisplay:
        """Draw the display.

        Parameters
        ----------
        ax : matplotlib Axes, pair of them, or None, default=None
            Axes of the curve, from which a strip is taken for the histogram; or the ``ax_`` of
            another display, whose histogram is shared; or axes of the curve and of the histogram.
            None makes a figure.
        name : str, default=None
            Name in the legend. None takes that of the display.
        level : float, default=0.9
            Share in (0, 1) of the posterior samples that the band holds, in each bin.
        histogram : bool, default=True
            Whether to draw the histogram, and in it the means of accuracy and confidence.
        **kwargs
            Arguments of the curve's ``Axes.plot``, ``color`` for instance.

        Returns
        -------
        ReliabilityDisplay
        """
        in_range(0, 1, level=level)
        self.ax_, below = curve_and_histogram(ax, histogram)
        self.axes_ = (self.ax_,) if below is None else (self.ax_, below)
        self.figure_ = self.ax_.figure
        self._draw_curve(self.ax_, self.name if name is None else name, kwargs)
        self._draw_band(self.ax_, level)
        self.histogram_ = None if below is None else self._draw_histogram(below)
        named, label = self.class_label is not None, self.class_label
        y_label = f"Share of class {label}" if named else "Accuracy"
        self.ax_.set(xlim=(0, 1), ylim=(0, 1), ylabel=y_label)
        x_label = f"Predicted probability of class {label}" if named else "Confidence"
        self.axes_[-1].set_xlabel(x_label)
        legend(self.ax_, loc="best")
        return self

    @property
    def _filled(self) -> np.ndarray:
        """Which bins hold rows, as far as is known."""
        filled = self.table.counts > 0
        return filled if self._accuracy is None else filled & ~self._accuracy.is_unknown

    def _draw_curve(self, ax: Axes, name: str | None, kwargs: Params) -> None:
        plain(ax)
        if not shown(ax, _CALIBRATED):
            ax.plot([0, 1], [0, 1], color=GREY, linestyle=":", label=_CALIBRATED)
        filled = self._filled
        kind = "ECE" if self.class_label is None else "calibration error"
        error = f"{kind} {self.table.calibration_error:.3f}"
        error = error if self._error is None else f"ECE {self._error}"
        style = {"marker": "o", "markersize": 4.5, "linewidth": 1.5, "clip_on": False}
        style["label"] = named(name, error)
        x, y = self.table.confidence[filled], self.table.accuracy[filled]
        (self.line_,) = ax.plot(x, y, **(style | kwargs))

    def _draw_band(self, ax: Axes, level: float) -> None:
        self.band_ = None
        if self._accuracy is not None:
            drawn = self._filled
            low, high = self._accuracy.low, self._accuracy.high
            label = f"{self._accuracy.level:.0%} intervals"
        elif self.accuracy_samples is not None:
            # A bin without rows in every sample has no interval, and needs no warning either.
            drawn = (self.table.counts > 0) & ~np.isnan(self.accuracy_samples).all(axis=0)
            low, high = ends = np.full((2, len(drawn)), np.nan)
            quantiles, known = level_between(level), self.accuracy_samples[:, drawn]
            ends[:, drawn] = np.nanquantile(known, quantiles, axis=0)
            label = f"{level:.0%} of posterior samples"
        else:
            return
        style: Params = {"color": self.line_.get_color(), "alpha": 0.2, "linewidth": 0}
        style["label"] = None if shown(ax, label) else label
        x, beside = self.table.confidence, np.r_[False, drawn, False]
        # Between bins that hold rows, and no further: a bin that stands alone has a line.
        self.band_ = ax.fill_between(x, low, high, where=drawn, **style)
        if (alone := drawn & ~beside[:-2] & ~beside[2:]).any():
            ax.vlines(x[alone], low[alone], high[alone], **style | {"linewidth": 3, "label": None})

    def _draw_histogram(self, ax: Axes) -> Artist:
        plain(ax)
        color = self.line_.get_color()
        if not shown(ax, "mean accuracy"):  # one entry for all displays on these axes
            ax.plot([], [], color=GREY, label="mean accuracy")
            ax.plot([], [], color=GREY, linestyle="--", label="mean confidence")
        counts, edges = self.histogram_table.counts, self.histogram_table.bin_edges
        patch = ax.stairs(counts, edges, fill=True, color=color, alpha=0.25)
        ax.stairs(counts, edges, color=color, linewidth=0.8)
        ax.axvline(self.table.mean_accuracy, color=color)
        ax.axvline(self.table.mean_confidence, color=color, linestyle="--")
        whole = np.array_equal(counts, np.round(counts))
        ax.set_ylabel("Rows" if whole else "Weight of rows")
        if self._share is not None:
            middles = (edges[:-1] + edges[1:]) / 2
            ax.vlines(middles, self._share.low, self._share.high, color=color, linewidth=0.8)
            ax.set_ylabel("Share of rows")
        legend(ax, loc="best")
        return patch


def _check_table(**kw: ReliabilityTable) -> ReliabilityTable:
    ((_, table),) = kw.items()
    if not isinstance(table, ReliabilityTable):
        raise expected("a ReliabilityTable", "reliability_table makes one", **kw)
    return table


def _samples(predictions: Predictions, y_prob_samples: ArrayLike) -> list[Predictions]:
    """Give the predictions with the probabilities of each posterior sample in their place."""
    n_rows, n_classes = predictions.probabilities.shape
    samples = _predictions.numbers(y_prob_samples, "y_prob_samples")
    if samples.ndim == 2 and n_classes == 2:
        samples = samples[:, :, None]
    shapes = [(n_rows, n_classes), (n_rows, 1 if n_classes == 2 else n_classes)]
    if samples.ndim != 3 or len(samples) == 0 or samples.shape[1:] not in shapes:
        raise ValueError(
            f"Expected y_prob_samples of shape (n_posterior_samples, {n_rows}, {n_classes}), as "
            f"sample_predictive returns, got {np.shape(y_prob_samples)}."
        )
    checked = (_predictions.check_probabilities(sample, "y_prob_samples") for sample in samples)
    return [
        predictions._replace(probabilities=_predictions.both_columns(p) if p.shape[1] == 1 else p)
        for p in checked
    ]


def _check_accuracies(accuracy_samples: ArrayLike | None, n_bins: int) -> np.ndarray | None:
    if accuracy_samples is None:
        return None
    array = _predictions.numbers(accuracy_samples, "accuracy_samples")
    if array.ndim != 2 or len(array) == 0 or array.shape[1] != n_bins:
        raise ValueError(
            f"Expected accuracy_samples of shape (n_posterior_samples, {n_bins}), one column per "
            f"bin of table, got {array.shape}."
        )
    return array


def _check_interval(n_bins: int, **kw: Any) -> Interval | None:
    ((name, estimate),) = kw.items()
    if estimate is None:
        return None
    found = interval(estimate, name, 1)
    if len(found.value) != n_bins:
        raise ValueError(
            f"Expected {name} of shape ({n_bins},), one per bin of table, got {found.value.shape}."
        )
    return found
