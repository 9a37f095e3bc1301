"""`AdditiveDisplay`: the curves of a private additive model, one panel per feature.

A number is a step curve over its public edges, a category has a row for each level. Both are drawn
with the interval of each bin or level by itself, which is darker, and with the band that holds the
whole curve, which is lighter. A pair is a heat map, hatched where the interval holds no effect.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Integral
from typing import Any

import numpy as np

from skdp.displays._axes import GREY, Axes, axes, legend, panels, plain, shown
from skdp.displays._inputs import Chosen, last_step
from skdp.displays._panels import SURFACE, CurvePanel, SurfacePanel
from skdp.fitting.types import Params
from skdp.fitting.validate import expected, in_range, integer, is_real, one_of

_EFFECTS = {  # of a curve, and of its deviation from the trend
    "log-odds": ("Effect on the log-odds", "Deviation from the trend"),
    "probability": ("Probability", "Probability, without trend"),
    "target": ("Effect on the mean", "Deviation from the trend"),
    "log-mean": ("Effect on the log-mean", "Deviation from the trend"),
    "rate-ratio": ("Rate ratio", "Rate ratio, without trend"),
}
_NO_EFFECT = {"log-odds": 0.0, "target": 0.0, "log-mean": 0.0, "rate-ratio": 1.0}
_PARTS = ("curve", "deviation")
_NUMBER, _CATEGORY = "skdp.AdditiveDisplay.number", "skdp.AdditiveDisplay.category"
_LONG = 10_000  # numbers from here on are written in thousands and millions
_SOME = 7  # edges from which on a wide outer bin is one beside many
_TICK_UP = 2  # matplotlib.markers.TICKUP
_LEGEND = "skdp.AdditiveDisplay.legend"
_N_DEFAULT = 6
_WIDTH = 4.2  # inches of a panel: a single column has 420 pixels, at 100 an inch


class AdditiveDisplay:
    """Effects of features with their intervals and bands, one panel per feature.

    Parameters
    ----------
    curves : list of Curve or Surface
        What to draw, as `curve_` of `skdp.DPAdditiveClassifier` and its kin returns it: has
        ``name``, ``grid``, ``mean``, ``low``, ``high``, ``band_low`` and ``band_high``. A grid of
        one more entry than the mean holds the edges of a number, one of as many the levels of a
        category; of several bins, an outer one that is wider than all inner ones together is cut
        short. A surface has ``names`` and ``grids`` of two features.
    scale : {"log-odds", "probability", "target", "log-mean", "rate-ratio"}, default="log-odds"
        Scale of the curves.
    part : {"curve", "deviation"}, default="curve"
        What the curves show: all of the effect, or what it has beside its trend.
    level : float, default=None
        Probability in (0, 1) of the intervals and bands, for the legend.
    reference : float, default=None
        Where a line shows that a feature has no effect. None draws it at 0, at 1 on the scale of
        rate ratios, and nowhere on that of probabilities.

    Attributes
    ----------
    axes_, figure_ : ndarray of matplotlib Axes, and Figure
        What was drawn on.
    lines_, intervals_, bands_, surfaces_ : lists of matplotlib artists
        Means (a step curve for a number, points for a category), intervals of each bin or level by
        itself, bands that hold the whole curve, and means of surfaces, of one scale of colours.

    See Also
    --------
    skdp.DPAdditiveClassifier : The model whose curves these are.
    skdp.displays.PosteriorDisplay : Marginal densities of single coefficients.

    Examples
    --------
    >>> import numpy as np
    >>> from skdp import DPAdditiveClassifier
    >>> from skdp.displays import AdditiveDisplay
    >>> X = np.random.default_rng(0).uniform(0, 10, (4000, 2))
    >>> model = DPAdditiveClassifier(1.0, bounds=[(0, 10)] * 2, classes=[0, 1], n_samples=4000)
    >>> display = AdditiveDisplay.from_estimator(model.fit(X, np.sin(X[:, 0]) > 0))
    >>> [ax.get_title() for ax in display.axes_]  # the larger effect first
    ['x0', 'x1']
    """

    def __init__(
        self,
        curves: Sequence[Any],
        *,
        scale: str = "log-odds",
        part: str = "curve",
        level: float | None = None,
        reference: float | None = None,
    ) -> None:
        self.scale = one_of(_EFFECTS, scale=scale)
        self.part = one_of(_PARTS, part=part)
        self.level = None if level is None else in_range(0, 1, level=level)
        if reference is not None and not (is_real(reference) and np.isfinite(reference)):
            raise expected("a finite number or None", reference=reference)
        self.reference = _NO_EFFECT.get(scale) if reference is None else reference
        if not isinstance(curves, list | tuple) or not curves:
            raise expected("a list of curves, not empty", "curve_ returns one", curves=curves)
        self.curves = list(curves)
        self._panels = [
            (SurfacePanel if hasattr(curve, "grids") else CurvePanel)(curve) for curve in curves
        ]

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        *,
        features: Chosen | None = None,
        level: float = 0.9,
        scale: str | None = None,
        part: str = "curve",
        output: int = 0,
        max_columns: int = 3,
        ax: Axes | Sequence[Axes] | np.ndarray | None = None,
        **line_kw: Any,
    ) -> AdditiveDisplay:
        """Draw the curves of a fitted additive model; this costs no privacy.

        Parameters
        ----------
        estimator : fitted additive model, or Pipeline that ends with one
            `skdp.DPAdditiveClassifier`, for instance: has `curve_` and ``feature_importance_``.
        features : str, int, or list of them and of pairs, default=None
            Names or positions of the features, and pairs as tuples, in the order of the panels.
            None takes the six of the largest ``feature_importance_`` and up to six pairs; numbers
            alone where ``part`` is ``"deviation"``, since others have no trend to deviate from.
        level, scale, part : optional
            As in `AdditiveDisplay`. None is the scale on which effects add up.
        output : int, default=0
            Number of the class, where there are more than two.
        max_columns, ax, **line_kw : optional
            As in `plot`.

        Returns
        -------
        AdditiveDisplay
        """
        last = last_step(estimator, "curve_")
        scale = last.curve_scales[0] if scale is None else scale
        options: Params = {"level": level, "scale": scale, "part": part}
        by_size = features is None
        if by_size:
            features = np.argsort(-np.asarray(last.feature_importance_), kind="stable").tolist()
        found = curves = [last.curve_(i, output=output, **options) for i in _listed(features)]
        if by_size:
            curves = [c for c in found if not hasattr(c, "grids")]
            if part == "deviation":
                curves = [c for c in curves if len(c.grid) == np.size(c.mean) + 1]
            pairs = [c for c in found if hasattr(c, "grids") and part != "deviation"]
            curves = curves[:_N_DEFAULT] + pairs[:_N_DEFAULT]
            if not curves:
                raise expected("'curve' where no feature is a number", part=part)
        reference = None
        if scale == "probability" and hasattr(last, "intercept_"):
            reference = float(1 / (1 + np.exp(-last.intercept_[output])))
        display = cls(curves, reference=reference, **options)
        return display.plot(ax, max_columns=max_columns, **line_kw)

    def plot(
        self,
        ax: Axes | Sequence[Axes] | np.ndarray | None = None,
        *,
        max_columns: int = 3,
        **line_kw: Any,
    ) -> AdditiveDisplay:
        """Draw the display.

        Parameters
        ----------
        ax : matplotlib Axes or array of them, default=None
            Axes to draw on, at least one per curve: those of another display of the same features,
            to compare the two. None makes a figure.
        max_columns : int, default=3
            Most panels side by side in a new figure, ≥ 1; 1 suits a narrow page.
        **line_kw
            Arguments of ``Axes.plot`` for every mean, ``color`` and ``label`` for instance.

        Returns
        -------
        AdditiveDisplay
        """
        n, most = len(self.curves), integer(1, max_columns=max_columns)
        if ax is None:
            n_columns = math.ceil(n / math.ceil(n / most))  # four panels are two by two
            heights = [panel.height for panel in self._panels]
            self.axes_ = np.array(panels(heights, n_columns, _WIDTH), dtype=object)
        else:
            self.axes_ = _given(ax, n)
        self.figure_ = self.axes_[0].figure
        # All axes are checked before anything is drawn on one of them.
        before = list(map(_displays_before, self.axes_, self._panels))
        self.lines_, self.intervals_, self.bands_, self.surfaces_ = [], [], [], []
        surfaces = [panel for panel in self._panels if isinstance(panel, SurfacePanel)]
        most = max((panel.furthest(self.reference) for panel in surfaces), default=0.0)
        for one, panel, n_before in zip(self.axes_, self._panels, before, strict=True):
            if isinstance(panel, SurfacePanel):
                level = "Interval" if self.level is None else f"{100 * self.level:.4g}% interval"
                holds = f"{level} of a cell of a pair holds {self.reference or 0.0:.3g}"
                mesh = panel.draw(one, self._effect, self.reference, most, holds)
                self.surfaces_.append(mesh)
                continue
            if n_before == 0:
                self._prepare(one, panel)
            if panel.is_number:
                self._draw_number(one, panel, line_kw)
            else:
                self._draw_category(one, panel, n_before, line_kw)
        # All numbers have the range of the widest; not by sharey, for the axes may be given.
        of_numbers = [a for a, p in zip(self.axes_, self._panels, strict=True) if p.is_number]
        for one in of_numbers:
            one.autoscale(enable=True, axis="y")
        ends = np.array([one.get_ylim() for one in of_numbers])
        for one in of_numbers:
            one.set_ylim(ends.min(), ends.max())
        self._draw_legend(new=ax is None)
        return self

    @property
    def _effect(self) -> str:
        return _EFFECTS[self.scale][_PARTS.index(self.part)]

    def _prepare(self, ax: Axes, panel: CurvePanel) -> None:
        plain(ax)
        ax.set_title(panel.name, fontsize="medium")
        style: Params = {"color": GREY, "linewidth": 0.8, "linestyle": ":"}
        if panel.is_number:
            ax.set_ylabel(self._effect)
            ax.margins(x=0)
            ax.set_xlim(*_shown(panel.grid))
            if ax.get_xscale() == "linear":
                ax.locator_params(axis="x", nbins=5)  # more would touch where they have decimals
                if np.abs(ax.get_xlim()).max() >= _LONG:
                    from matplotlib.ticker import EngFormatter

                    ax.xaxis.set_major_formatter(EngFormatter(sep=""))  # 20k, and not 20000
            if self.reference is not None:
                ax.axhline(self.reference, **style)
            return
        ax.set_xlabel(self._effect)
        ax.grid(visible=False, axis="y")
        if self.reference is not None:
            ax.axvline(self.reference, **style)
        ax.set_yticks(range(len(panel.levels)), panel.levels)
        ax.tick_params(axis="y", length=0, labelsize="small")
        ax.set_ylim(len(panel.levels) - 0.4, -0.6)

    def _draw_number(self, ax: Axes, panel: CurvePanel, line_kw: Params) -> None:
        # The last value is there twice: matplotlib ends a step where the next one begins.
        edges, ends = panel.grid, np.hstack([panel.ends, panel.ends[:, -1:]])
        mean, interval, band = self._labels(ax)
        style: Params = {"linewidth": 1.6, "gid": _NUMBER, "label": mean}
        (line,) = ax.plot(edges, ends[0], **style | line_kw)
        line.set_drawstyle("steps-post")
        fill: Params = {"color": line.get_color(), "step": "post", "linewidth": 0}
        self.lines_.append(line)
        interval = ax.fill_between(edges, ends[1], ends[2], alpha=0.35, label=interval, **fill)
        self.intervals_.append(interval)
        self.bands_.append(ax.fill_between(edges, ends[3], ends[4], alpha=0.15, label=band, **fill))
        rug: Params = {"transform": ax.get_xaxis_transform(), "color": GREY, "linestyle": "none"}
        ax.plot(edges, 0 * edges, marker=_TICK_UP, markersize=5, markeredgewidth=0.8, **rug)

    def _draw_category(self, ax: Axes, panel: CurvePanel, n_before: int, line_kw: Params) -> None:
        # Each further display has its bars a little lower.
        rows, ends = np.arange(len(panel.levels)) + 0.22 * n_before, panel.ends
        mean, interval, band = self._labels(ax)
        style: Params = {"marker": "o", "markersize": 5, "gid": _CATEGORY, "label": mean}
        style["zorder"] = 3  # above the bars
        (line,) = ax.plot(ends[0], rows, **style | line_kw)
        line.set_linestyle("none")
        self.lines_.append(line)
        bar: Params = {"color": line.get_color(), "linewidth": 1.8, "label": interval}
        self.intervals_.append(ax.hlines(rows, ends[1], ends[2], **bar))
        bar |= {"linewidth": 5, "alpha": 0.35, "label": band}
        self.bands_.append(ax.hlines(rows, ends[3], ends[4], **bar))

    def _labels(self, ax: Axes) -> list[str]:
        """Names in the legend of mean, interval and band, empty where the axes have them."""
        level = "" if self.level is None else f"{100 * self.level:.4g}% "
        interval = f"{level}interval, each bin or level alone".capitalize()
        band = f"{level}band, whole curve".capitalize()
        return ["" if shown(ax, name) else name for name in ("Posterior mean", interval, band)]

    def _draw_legend(self, *, new: bool) -> None:
        """Draw it below the panels of a figure of a display, and within the first panel else."""
        figure = self.figure_
        ours = [found for found in figure.legends if found.get_gid() == _LEGEND]
        if not new and not ours:
            legend(self.axes_[0], loc="best")
            return
        for found in ours:
            found.remove()
        n_columns = 1 if figure.get_figwidth() < 1.9 * _WIDTH else 3
        named: dict[str, Any] = {}
        for ax in self.axes_:
            for handle, name in zip(*ax.get_legend_handles_labels(), strict=True):
                named.setdefault(name, handle)
        # The means of all displays come first: intervals and bands are named once for all.
        names = sorted(named, key=lambda name: named[name].get_gid() not in (_NUMBER, _CATEGORY))
        place: Params = {"loc": "outside lower center", "ncols": n_columns, "fontsize": "small"}
        if names:
            handles = [named[name] for name in names]
            figure.legend(handles, names, edgecolor="none", **place).set_gid(_LEGEND)


def _shown(edges: np.ndarray) -> tuple[float, float]:
    """Range of the axis: an outer bin wider than all inner ones together is cut to their width."""
    low, first, last, high = map(float, edges[[0, 1, -2, -1]])
    if len(edges) < _SOME:
        return low, high
    return max(low, first - (last - first)), min(high, last + (last - first))


def _listed(features: Any) -> list[Any]:
    if isinstance(features, str | Integral):
        return [features]
    listed = list(features) if np.iterable(features) else []
    if not listed:
        what = "a list of names or positions, not empty"
        raise expected(what, "or None, for those of the largest effect", features=features)
    return listed


def _given(ax: Any, n: int) -> np.ndarray:
    several = isinstance(ax, list | tuple | np.ndarray)
    found = list(np.ravel(np.array(ax, dtype=object))) if several else [ax]
    found = [axes(one, (_WIDTH, 2.6)) for one in found if one is not None or not several]
    if len(found) < n:
        remedy = "give more of them, fewer features, or None for a new figure"
        raise expected(f"at least {n} axes, one per curve", remedy, ax=ax)
    return np.array(found[:n], dtype=object)


def _displays_before(ax: Axes, panel: CurvePanel | SurfacePanel) -> int:
    drawn = (*ax.lines, *ax.collections)
    there = [gid for one in drawn if (gid := one.get_gid()) in (_NUMBER, _CATEGORY, SURFACE)]
    kind = _NUMBER if panel.is_number else _CATEGORY
    same = ax.get_title() == panel.name and set(there) == {kind}
    if same and isinstance(panel, CurvePanel) and not panel.is_number:
        same = [label.get_text() for label in ax.get_yticklabels()] == panel.levels
    if there and not same:
        remedy = "draw on axes of their own"
        raise expected("axes of a display of the same features", remedy, ax=ax)
    return len(there)
