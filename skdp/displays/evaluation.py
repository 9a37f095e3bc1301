"""ROC, precision and recall, and confusion matrices of private reports, with their intervals.

Displays draw what `skdp.evaluation` has read off a released table: a picture costs nothing more.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np

from skdp.displays._axes import GREY, Axes, axes, legend, named, plain, shown
from skdp.displays._inputs import Interval, check_names, interval, of_report
from skdp.fitting.types import ArrayLike, Params
from skdp.fitting.validate import expected

_CHANCE = "chance"
_MOST_WITH_INTERVALS = 6  # classes whose cells hold a second line that can be read
_MOST_PLACES = 4000
_MOST_LETTERS = 44  # of all classes, in a line below the matrix


class _CurveDisplay:
    """A curve through points that have an interval on either axis."""

    _curve: ClassVar[str] = ""  # of a report
    _summary: ClassVar[tuple[str, str]] = "", ""  # of a report, and its name in the legend
    _axis_labels: ClassVar[tuple[str, str]] = "", ""
    name: str | None

    def _check(self, x: str, y: str) -> None:
        """Check the estimates of these names, and of the summary."""
        self._x, self._y = (interval(getattr(self, end), end, 1) for end in (x, y))
        if len(self._x.value) != len(self._y.value) or len(self._x.value) < 2:
            raise ValueError("Expected estimates of two points or more, as many on either axis.")
        area = getattr(self, self._summary[0])
        self._area = None if area is None else interval(area, self._summary[0], 0)

    @property
    def _chance(self) -> tuple[float, float]:
        return 0.0, 1.0

    @classmethod
    def from_report(
        cls, report: Any, *, name: str | None = None, ax: Axes | None = None, **kwargs: Any
    ) -> Self:
        """Draw the curve of a report.

        Parameters
        ----------
        report : BinaryReport
            What `skdp.evaluation` returns for two classes.
        name, ax, **kwargs : optional
            As in `plot`.

        Returns
        -------
        self
        """
        curve, summary = of_report(report, cls._curve)(), cls._summary[0]
        made: Any = cls  # whose arguments are those of the subclass
        display = made(*curve[:2], name=name, **{summary: getattr(report, summary)})
        return display.plot(ax, **kwargs)

    def plot(self, ax: Axes | None = None, *, name: str | None = None, **kwargs: Any) -> Self:
        """Draw the display.

        Parameters
        ----------
        ax : matplotlib Axes or None, default=None
            Axes to draw on, those of another display for instance. None makes a figure.
        name : str, default=None
            Name in the legend. None takes that of the display.
        **kwargs
            Arguments of the curve's ``Axes.plot``, ``color`` for instance.

        Returns
        -------
        self
        """
        self.ax_ = ax = axes(ax, (5.0, 5.0))
        self.figure_ = ax.figure
        plain(ax)
        if not shown(ax, _CHANCE):
            ax.plot([0, 1], self._chance, color=GREY, linestyle=":", label=_CHANCE)
        name = self.name if name is None else name
        label = name if self._area is None else named(name, f"{self._summary[1]} {self._area}")
        known = ~(self._x.is_unknown | self._y.is_unknown)
        style = {"linewidth": 1.5, "marker": "o", "markersize": 3.0, "label": label}
        (self.line_,) = ax.plot(self._x.value[known], self._y.value[known], **(style | kwargs))
        of_both = f"{self._y.level:.0%} intervals"
        band: Params = {"color": self.line_.get_color(), "alpha": 0.2, "linewidth": 0}
        band["label"] = None if shown(ax, of_both) else of_both
        self.band_ = ax.fill_between(*_envelope(self._x, self._y), **band)
        x_label, y_label = self._axis_labels
        ax.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.01), xlabel=x_label, ylabel=y_label, aspect=1)
        legend(ax, loc="best")
        return self


def _envelope(x: Interval, y: Interval) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Least and greatest y over all thresholds whose interval of x holds a place.

    Between two thresholds the ends of the intervals move in straight lines.
    """
    steps = np.linspace(0.0, 1.0, max(_MOST_PLACES // len(x.value), 2))

    def between(ends: np.ndarray) -> np.ndarray:
        return (ends[:-1, None] + np.diff(ends)[:, None] * steps).ravel()

    left, right, low, high = (between(e) for e in (x.low, x.high, y.low, y.high))
    places = np.unique(np.concatenate([np.linspace(0.0, 1.0, 201), x.value]))
    holds = (left <= places[:, None]) & (places[:, None] <= right)
    some = holds.any(axis=1)
    least, greatest = np.where(holds, low, np.inf), np.where(holds, high, -np.inf)
    return places[some], least.min(axis=1)[some], greatest.max(axis=1)[some]


class RocCurveDisplay(_CurveDisplay):
    """ROC curve of a private report, in the band of its intervals.

    The band is the union of the boxes that the two rates' intervals make at each threshold, and
    between: each interval holds by itself at the stated level, the whole band less often.

    Parameters
    ----------
    fpr, tpr : Estimate
        False and true positive rates, arrays (n_thresholds,) from the strictest to the loosest.
    auc : Estimate, default=None
        Area under the curve, for the legend.
    name : str, default=None
        Name in the legend.

    Attributes
    ----------
    ax_, figure_, line_, band_ : matplotlib Axes, Figure and artists
        What was drawn on, the curve and its band.

    See Also
    --------
    skdp.evaluation.BinaryReport.roc_curve : The numbers.

    Examples
    --------
    >>> from skdp.displays import RocCurveDisplay
    >>> from skdp.evaluation import private_report
    >>> report = private_report([0, 1] * 500, [0.1, 0.8] * 500, classes=[0, 1], n_samples=1000)
    >>> RocCurveDisplay.from_report(report, name="model").ax_.get_ylabel()
    'True positive rate'
    """

    _curve, _summary = "roc_curve", ("auc", "AUC")
    _axis_labels = "False positive rate", "True positive rate"

    def __init__(self, fpr: Any, tpr: Any, *, auc: Any = None, name: str | None = None) -> None:
        self.fpr, self.tpr, self.auc, self.name = fpr, tpr, auc, name
        self._check("fpr", "tpr")


class PrecisionRecallDisplay(_CurveDisplay):
    """Precision against recall of a private report, in the band of its intervals.

    The band is as that of `RocCurveDisplay`. Where nothing is known of the precision, because next
    to no row has such a score, the curve has no point and the band is everything.

    Parameters
    ----------
    precision, recall : Estimate
        Arrays (n_thresholds,) from the strictest to the loosest.
    average_precision : Estimate, default=None
        For the legend.
    name : str, default=None
        Name in the legend.

    Attributes
    ----------
    ax_, figure_, line_, band_ : matplotlib Axes, Figure and artists
        What was drawn on, the curve and its band.

    See Also
    --------
    skdp.evaluation.BinaryReport.precision_recall_curve : The numbers.

    Examples
    --------
    >>> from skdp.displays import PrecisionRecallDisplay
    >>> from skdp.evaluation import private_report
    >>> report = private_report([0, 1] * 500, [0.1, 0.8] * 500, classes=[0, 1], n_samples=1000)
    >>> PrecisionRecallDisplay.from_report(report).ax_.get_xlabel()
    'Recall'
    """

    _curve, _summary = "precision_recall_curve", ("average_precision", "AP")
    _axis_labels = "Recall", "Precision"

    def __init__(
        self, precision: Any, recall: Any, *, average_precision: Any = None, name: str | None = None
    ) -> None:
        self.precision, self.recall, self.name = precision, recall, name
        self.average_precision = average_precision
        self._check("recall", "precision")

    @property
    def _chance(self) -> tuple[float, float]:
        share = float(self._y.value[-1])  # all rows are predicted positive: the share of the class
        return share, share


class ConfusionMatrixDisplay:
    """Confusion matrix of a private report: per cents, and under each its interval.

    Parameters
    ----------
    matrix : Estimate
        Shares, arrays (n_classes, n_classes): true classes by predicted classes.
    display_labels : array-like of shape (n_classes,), default=None
        Names of the classes. None numbers them.
    name : str, default=None
        Title.

    Attributes
    ----------
    ax_, figure_, im_, text_ : matplotlib Axes, Figure, AxesImage, and ndarray of Text
        What was drawn on, the matrix, and the texts of its cells.

    See Also
    --------
    skdp.evaluation.BinaryReport.confusion_matrix : The numbers.

    Examples
    --------
    >>> from skdp.displays import ConfusionMatrixDisplay
    >>> from skdp.evaluation import private_report
    >>> report = private_report([0, 1] * 500, [0.1, 0.8] * 500, classes=[0, 1], n_samples=1000)
    >>> ConfusionMatrixDisplay.from_report(report, normalize="true").text_.shape
    (2, 2)
    """

    def __init__(
        self, matrix: Any, *, display_labels: ArrayLike | None = None, name: str | None = None
    ) -> None:
        self._shares = interval(matrix, "matrix", 2)
        K = len(self._shares.value)
        if self._shares.value.shape != (K, K):
            shape = self._shares.value.shape
            raise ValueError(
                f"Expected a matrix with a row and a column for each class, got {shape}."
            )
        names: Any = display_labels
        self.display_labels = check_names(None if names is None else [*map(str, names)], K, "")
        self.matrix, self.name = matrix, name

    @classmethod
    def from_report(
        cls,
        report: Any,
        *,
        normalize: str = "all",
        threshold: float | None = None,
        display_labels: ArrayLike | None = None,
        name: str | None = None,
        ax: Axes | None = None,
        **kwargs: Any,
    ) -> ConfusionMatrixDisplay:
        """Draw the confusion matrix of a report.

        Parameters
        ----------
        report : BinaryReport or MulticlassReport
            What `skdp.evaluation` returns for classes.
        normalize : {"all", "true", "pred"}, default="all"
            Shares of all rows, of those of a true class (rows), or of a predicted one (columns).
        threshold : float, default=None
            Of two classes: the probability in [0, 1] from which on the second is predicted. The
            nearest edge of the report's bins is taken; None is ½.
        display_labels, name, ax, **kwargs : optional
            As in `ConfusionMatrixDisplay`, with the labels by default, and in `plot`.

        Returns
        -------
        ConfusionMatrixDisplay
        """
        shares, classes = of_report(report, "confusion_matrix"), report.classes_
        if threshold is not None and len(classes) > 2:
            raise expected("None with more than two classes", threshold=threshold)
        at = () if threshold is None else (threshold,)
        labels = classes if display_labels is None else display_labels
        display = cls(shares(*at, normalize=normalize), display_labels=labels, name=name)
        return display.plot(ax, **kwargs)

    def plot(
        self, ax: Axes | None = None, *, intervals: bool | str = "auto", **kwargs: Any
    ) -> ConfusionMatrixDisplay:
        """Draw the display.

        Parameters
        ----------
        ax : matplotlib Axes or None, default=None
            Axes to draw on; None makes a figure.
        intervals : bool or "auto", default="auto"
            Whether cells have their intervals; "auto" draws those of six classes at most, and says
            of more how wide the widest is.
        **kwargs
            Arguments of ``Axes.imshow``, ``cmap`` for instance.

        Returns
        -------
        ConfusionMatrixDisplay
        """
        if not isinstance(intervals, bool) and intervals != "auto":
            raise expected("True, False or 'auto'", intervals=intervals)
        shares, K = self._shares, len(self._shares.value)
        side = float(np.clip(1.5 + 0.95 * K, 4.2, 9.0))
        self.ax_ = ax = axes(ax, (side, side))
        self.figure_ = ax.figure
        self.im_ = ax.imshow(shares.value, **({"cmap": "Blues", "vmin": 0} | kwargs))
        both = K <= _MOST_WITH_INTERVALS if intervals == "auto" else intervals
        self.text_ = np.empty((K, K), dtype=object)
        for i, j in np.ndindex(K, K):
            value, low, high = (100 * end[i, j] for end in (shares.value, shares.low, shares.high))
            digits = int(K <= _MOST_WITH_INTERVALS and high < 10)
            text = f"{value:.{digits}f}%"
            if both:
                text += f"\n{low:.{digits}f}–{high:.{digits}f}"
            red, green, blue, _ = self.im_.cmap(self.im_.norm(shares.value[i, j]))
            is_dark = 0.3 * red + 0.6 * green + 0.1 * blue < 0.5
            style: Params = {"color": "white" if is_dark else "black", "fontsize": "medium"}
            self.text_[i, j] = ax.text(j, i, text, ha="center", va="center", **style)
        ax.set_xticks(range(K), self.display_labels)
        ax.set_yticks(range(K), self.display_labels)
        if K * max(len(label) for label in self.display_labels) > _MOST_LETTERS:
            ax.tick_params(axis="x", labelrotation=90)
        note = f"{shares.level:.0%} intervals"
        if not both:
            widest = max((shares.high - shares.value).max(), (shares.value - shares.low).max())
            note += f" within ±{100 * widest:.2g} points"
        ax.set(xlabel=f"Predicted class ({note})", ylabel="True class", title=self.name or "")
        return self
