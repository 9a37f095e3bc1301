"""Axes: given or new, and plain."""

from __future__ import annotations

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
    try:
        import matplotlib.pyplot as plt
        from matplotlib.axes import Axes
    except ImportError:
        raise ImportError("plot needs matplotlib; install it: pip install 'skdp[plot]'.") from None
    if ax is None:
        return plt.subplots(figsize=figsize, layout="constrained")[1]
    if not isinstance(ax, Axes):
        raise expected("matplotlib Axes or None", "plt.subplots() returns a figure and them", ax=ax)
    return ax


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
