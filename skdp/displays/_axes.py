"""Axes: given or new, and plain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from skdp._validate import expected

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.typing import ColorType
else:
    Artist = Axes = ColorType = Any  # nothing is drawn yet

GREY = "0.45"


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
