"""Axes: given or new, and plain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from skdp.fitting.validate import expected

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.typing import ColorType
else:
    Artist = Axes = ColorType = Any  # nothing is drawn yet

GREY = "0.45"
_HISTOGRAM = "skdp.ReliabilityDisplay.histogram"
OneOrTwo = Axes | tuple[Axes, Axes] | list[Axes] | np.ndarray | None


def axes(ax: Axes | None, figsize: tuple[float, float]) -> Axes:
    """Check the axes given, or make a figure."""
    plt = _pyplot()
    if ax is None:
        return plt.subplots(figsize=figsize, layout="constrained")[1]
    if not isinstance(ax, plt.Axes):
        raise expected("matplotlib Axes or None", "plt.subplots() returns a figure and them", ax=ax)
    return ax


def panels(heights: Sequence[float], n_columns: int, width: float) -> list[Axes]:
    """Make a figure with an axes per height, in inches, row by row and at the top of its row."""
    rows = [max(heights[i : i + n_columns]) for i in range(0, len(heights), n_columns)]
    figure = _pyplot().figure(figsize=(width * n_columns, sum(rows)), layout="constrained")
    grid = figure.add_gridspec(len(rows), n_columns, height_ratios=rows)
    made = []
    for i, height in enumerate(heights):
        place, below = grid[divmod(i, n_columns)], rows[i // n_columns] - height
        if below > 0:
            place = place.subgridspec(2, 1, height_ratios=(height, below))[0]
        made.append(figure.add_subplot(place))
    return made


def _pyplot() -> Any:
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise ImportError("plot needs matplotlib; install it: pip install 'skdp[plot]'.") from None
    return plt


def plain(ax: Axes) -> None:
    """Leave two spines and a faint grid behind the data."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(color="0.9", linewidth=0.8)
    ax.set_axisbelow(True)


def legend(ax: Axes, **options: Any) -> None:
    """Draw a legend through which what it must cover still shows, where anything has a name."""
    if ax.get_legend_handles_labels()[0]:
        ax.legend(framealpha=0.75, edgecolor="none", fontsize="small", **options)


def shown(ax: Axes, label: str) -> bool:
    """Whether the axes already have an artist of this name."""
    return label in ax.get_legend_handles_labels()[1]


def named(name: str | None, number: str) -> str:
    """Join name and number, on two lines where one would cover the curve."""
    if name is None:
        return number
    return f"{name}{' ' if len(name) + len(number) <= 30 else chr(10)}({number})"


def curve_and_histogram(ax: OneOrTwo, histogram: bool) -> tuple[Axes, Axes | None]:
    """Axes of a curve, and those below it or None, given or made."""
    if isinstance(ax, tuple | list | np.ndarray):
        pair = list(np.ravel(np.array(ax, dtype=object)))
        if len(pair) != 2:
            raise expected("Axes, or a pair of them: curve and histogram", ax=ax)
        above, below = (axes(part, (5.0, 6.0)) for part in pair)
        return above, below if histogram else None
    above = axes(ax, (5.0, 6.0 if histogram else 4.6))
    return above, _histogram_axes(above) if histogram else None


def _histogram_axes(ax: Axes) -> Axes:
    """Find the axes of the histogram below these, or take a strip of these for it."""
    for other in ax.get_shared_x_axes().get_siblings(ax):
        if other.get_gid() == _HISTOGRAM:
            return other
    place = ax.get_subplotspec()
    if place is not None:
        upper, lower = place.subgridspec(2, 1, height_ratios=(3, 1), hspace=0)
        ax.set_subplotspec(upper)
        below = ax.figure.add_subplot(lower, sharex=ax)
    else:  # axes placed by hand
        box = ax.get_position()
        ax.set_position((box.x0, box.y0 + 0.3 * box.height, box.width, 0.7 * box.height))
        below = ax.figure.add_axes((box.x0, box.y0, box.width, 0.25 * box.height), sharex=ax)
    below.set_gid(_HISTOGRAM)
    ax.tick_params(labelbottom=False)
    ax.set_xlabel("")
    return below
