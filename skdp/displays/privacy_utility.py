"""`PrivacyUtilityDisplay`: what a stronger guarantee costs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from skdp.displays._axes import GREY, Axes, ColorType, axes, legend, plain, shown
from skdp.fitting.types import ArrayLike, Params
from skdp.fitting.validate import expected, is_real, one_of
from skdp.metrics._predictions import numbers

_SPREADS = ("sd", "range", "none")


class UtilityCurve(NamedTuple):
    """Scores at several ε.

    Parameters
    ----------
    epsilons : ndarray of shape (n_epsilons,)
        ε > 0, increasing and finite.
    scores : ndarray of shape (n_epsilons, n_repeats)
        Scores over splits, seeds or other repeats; NaN where a fit failed.
    name : str or None
        Name in the legend.
    scores_without_privacy : ndarray of shape (n_repeats,) or None
        Scores at ε = ∞.

    Examples
    --------
    >>> import numpy as np
    >>> from skdp.displays import UtilityCurve
    >>> UtilityCurve(np.array([0.5, 1.0]), np.array([[0.7, 0.8], [0.8, 0.9]])).scores.shape
    (2, 2)
    """

    epsilons: np.ndarray
    scores: np.ndarray
    name: str | None = None
    scores_without_privacy: np.ndarray | None = None


class PrivacyUtilityDisplay:
    """Scores against ε, with their spread over splits or repeats.

    Choosing ε by such a picture of private rows is itself a release; draw it from public rows, or
    account for every fit behind it.

    Parameters
    ----------
    curves : sequence of UtilityCurve
        What to draw; `from_arrays` and `from_cv_results` make them.
    metric : str, default="Score"
        What the vertical axis shows.
    baseline : float, default=None
        A reference score, drawn as a horizontal line.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
        What was drawn on.
    lines_, bands_, baselines_ : lists of matplotlib artists
        Means, a line per curve; spreads of curves that have repeats; the reference line, and those
        of ε = ∞.

    Examples
    --------
    >>> from skdp.displays import PrivacyUtilityDisplay
    >>> display = PrivacyUtilityDisplay.from_arrays(
    ...     [0.5, 1, 2], [0.7, 0.8, 0.85], name="DP-VI", metric="Accuracy", baseline=0.9
    ... )
    >>> _ = display.from_arrays([0.5, 1, 2], [0.6, 0.75, 0.8], name="DP-SGD", ax=display.ax_)
    >>> len(display.ax_.lines)
    3
    """

    def __init__(
        self,
        curves: Sequence[UtilityCurve],
        *,
        metric: str = "Score",
        baseline: float | None = None,
    ) -> None:
        if baseline is not None and not (is_real(baseline) and np.isfinite(baseline)):
            raise expected("a finite number or None", baseline=baseline)
        self.curves = list(curves)
        if not all(isinstance(curve, UtilityCurve) for curve in self.curves):
            raise expected("UtilityCurves", "from_arrays makes them", curves=self.curves)
        self.metric, self.baseline = metric, baseline

    @classmethod
    def from_arrays(
        cls,
        epsilons: ArrayLike,
        scores: ArrayLike,
        *,
        name: str | None = None,
        metric: str = "Score",
        baseline: float | None = None,
        ax: Axes | None = None,
        **kwargs: Any,
    ) -> PrivacyUtilityDisplay:
        """Draw scores at several ε.

        Parameters
        ----------
        epsilons : array-like of shape (n_epsilons,)
            Distinct ε > 0, in any order; those at infinity are drawn as a horizontal line.
        scores : array-like of shape (n_epsilons,) or (n_epsilons, n_repeats)
            Scores; NaN leaves a gap.
        name : str, default=None
            Name in the legend.
        metric, baseline, ax, **kwargs : optional
            As in `PrivacyUtilityDisplay` and `plot`.

        Returns
        -------
        PrivacyUtilityDisplay
        """
        display = cls([_curve(epsilons, scores, name)], metric=metric, baseline=baseline)
        return display.plot(ax, **kwargs)

    @classmethod
    def from_cv_results(
        cls,
        cv_results: Any,
        *,
        param: str = "epsilon",
        metric: str = "test_score",
        group_by: str | None = None,
        name: str | None = None,
        baseline: float | None = None,
        ax: Axes | None = None,
        **kwargs: Any,
    ) -> PrivacyUtilityDisplay:
        """Draw the results of a grid search over ε.

        Parameters
        ----------
        cv_results : dict of arrays, or DataFrame
            ``cv_results_`` of `GridSearchCV` and its kin.
        param : str, default="epsilon"
            The parameter ε, with or without the names of pipeline steps before it: ``"epsilon"``
            finds ``"dpvi__epsilon"``.
        metric : str, default="test_score"
            The score, as in the columns ``split0_test_score``, ….
        group_by : str, default=None
            Another parameter of the search, one curve for each of its values.
        name : str, default=None
            Name in the legend, before that of the group.
        baseline, ax, **kwargs : optional
            As in `PrivacyUtilityDisplay` and `plot`.

        Returns
        -------
        PrivacyUtilityDisplay
        """
        epsilons = _parameter(cv_results, "param", param)
        scores = _split_scores(cv_results, metric)
        groups = {name: np.arange(len(epsilons))}
        if group_by is not None:
            groups = _groups(_parameter(cv_results, "group_by", group_by), group_by, name)
        curves = []
        for group, rows in groups.items():
            # A setting that fixes the noise instead of ε has no place on the axis.
            rows = np.array([i for i in rows if epsilons[i] is not None], dtype=int)
            chosen = [epsilons[i] for i in rows]
            if len(set(map(str, chosen))) < len(chosen):
                what = "a parameter that tells apart the settings which share an epsilon"
                remedy = "name the other parameter of the search, or search over epsilon alone"
                raise expected(what, remedy, group_by=group_by)
            curves.append(_curve(chosen, scores[rows], group))
        title = metric.replace("_", " ").capitalize()
        return cls(curves, metric=title, baseline=baseline).plot(ax, **kwargs)

    def plot(
        self, ax: Axes | None = None, *, spread: str = "sd", log_x: bool = True, **kwargs: Any
    ) -> PrivacyUtilityDisplay:
        """Draw the display.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw on, those of another display for instance; None makes a figure.
        spread : {"sd", "range", "none"}, default="sd"
            Band around the mean: ±1 standard deviation of the repeats, or least to greatest.
        log_x : bool, default=True
            Whether ε has a logarithmic axis.
        **kwargs
            Arguments of ``Axes.plot`` for every curve.

        Returns
        -------
        PrivacyUtilityDisplay
        """
        one_of(_SPREADS, spread=spread)
        self.ax_ = axes(ax, (6.0, 4.2))
        self.figure_ = self.ax_.figure
        plain(self.ax_)
        if log_x:
            self._use_log_axis()
        self.lines_, self.bands_, self.baselines_ = [], [], []
        for curve in self.curves:
            self._draw(curve, spread, kwargs)
        if self.baseline is not None:
            self._draw_level(self.baseline, GREY, "baseline")
        self.ax_.set(xlabel="Privacy loss ε", ylabel=self.metric)
        legend(self.ax_, loc="best")
        return self

    def _draw(self, curve: UtilityCurve, spread: str, kwargs: Params) -> None:
        style = {"marker": "o", "markersize": 4.5, "linewidth": 1.5, "label": curve.name}
        mean = curve.scores.mean(axis=1)
        (line,) = self.ax_.plot(curve.epsilons, mean, **(style | kwargs))
        self.lines_.append(line)
        if spread != "none" and curve.scores.shape[1] > 1:
            low, high = curve.scores.min(axis=1), curve.scores.max(axis=1)
            if spread == "sd":
                deviation = curve.scores.std(axis=1, ddof=1)
                low, high = mean - deviation, mean + deviation
            band = {"color": line.get_color(), "alpha": 0.2, "linewidth": 0}
            self.bands_.append(self.ax_.fill_between(curve.epsilons, low, high, **band))
        if curve.scores_without_privacy is not None:
            label = "ε = ∞" if curve.name is None else f"{curve.name}, ε = ∞"
            self._draw_level(curve.scores_without_privacy.mean(), line.get_color(), label)

    def _draw_level(self, score: float, color: ColorType, label: str) -> None:
        label = "_" + label if shown(self.ax_, label) else label
        style = {"color": color, "linestyle": "--", "linewidth": 1.2, "label": label}
        self.baselines_.append(self.ax_.axhline(score, **style))

    def _use_log_axis(self) -> None:
        from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

        self.ax_.set_xscale("log")
        # ε spans a decade or two: 0.5 is easier to read than 5 · 10⁻¹, and powers alone too few.
        self.ax_.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        self.ax_.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        self.ax_.xaxis.set_minor_formatter(NullFormatter())


def _curve(epsilons: ArrayLike, scores: ArrayLike, name: str | None) -> UtilityCurve:
    """Check and sort one curve, with ε = ∞ apart."""
    epsilons, scores = numbers(epsilons, "epsilons"), numbers(scores, "scores")
    if scores.ndim == 1:
        scores = scores[:, None]
    if epsilons.ndim != 1 or epsilons.size == 0 or not (epsilons > 0).all():
        raise ValueError("Expected epsilons to be a list of numbers > 0, infinity among them.")
    if scores.ndim != 2 or len(scores) != len(epsilons) or scores.shape[1] == 0:
        raise ValueError(
            f"Expected scores of shape ({len(epsilons)},) or ({len(epsilons)}, n_repeats), one row "
            f"an epsilon, got {scores.shape}."
        )
    if np.isinf(scores).any():
        raise ValueError("Expected scores to be finite, or NaN where a fit failed.")
    if len(np.unique(epsilons)) < len(epsilons):
        raise ValueError("Expected epsilons to be distinct; put repeats into columns of scores.")
    order = np.argsort(epsilons)
    epsilons, scores = epsilons[order], scores[order]
    finite = np.isfinite(epsilons)
    without = None if finite.all() else scores[-1]
    return UtilityCurve(epsilons[finite], scores[finite], name, without)


def _parameter(cv_results: Mapping[str, Sequence], argument: str, name: str) -> list:
    """Find a parameter's column by the end of its name."""
    keys = [str(key) for key in cv_results if str(key).startswith("param_")]
    exact = f"param_{name}"
    found = [exact] * (exact in keys) or [key for key in keys if key.endswith(f"__{name}")]
    if len(found) != 1:
        there = "it has " + ", ".join(key.removeprefix("param_") for key in found or keys)
        raise expected("the name of one parameter of the search", there, **{argument: name})
    return list(cv_results[found[0]])


def _split_scores(cv_results: Mapping[str, Sequence], metric: str) -> np.ndarray:
    keys = [str(key) for key in cv_results]
    splits = [key for key in keys if re.fullmatch(rf"split\d+_{re.escape(metric)}", key)]
    if not splits:
        there = sorted({m[1] for key in keys if (m := re.fullmatch(r"split\d+_(.+)", key))})
        raise expected("a score of every split", f"there are {', '.join(there)}", metric=metric)
    return np.column_stack([numbers(cv_results[key], "cv_results") for key in splits])


def _groups(values: list, parameter: str, name: str | None) -> dict[str | None, np.ndarray]:
    """Give the rows of each value of a parameter, by the curve's name in the legend."""
    prefix = "" if name is None else f"{name}, "
    short = parameter.rsplit("__", 1)[-1]
    labels = np.array([f"{prefix}{short}={value}" for value in values])
    return {str(label): np.flatnonzero(labels == label) for label in dict.fromkeys(labels)}
