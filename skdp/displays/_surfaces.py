"""Panels of interactions: heat maps, hatched where there may be none."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from skdp.displays._axes import GREY, Axes
from skdp.displays._levels import edges_of, short
from skdp.fitting.types import Params
from skdp.fitting.validate import expected
from skdp.metrics._predictions import numbers

ENDS = ("mean", "low", "high")
SURFACE = "skdp.AdditiveDisplay.surface"
_MANY = 30  # letters of levels side by side, beyond which they are turned


class _Side(NamedTuple):
    """A feature along an axis: edges of its bins, or levels at 0, 1, ..."""

    name: str
    edges: np.ndarray
    levels: list[str]


class SurfacePanel:
    """An interaction as it is drawn: checked, numbers along x, levels along y."""

    is_number = False

    def __init__(self, surface: Any) -> None:
        missing = [name for name in ("names", "grids", *ENDS) if not hasattr(surface, name)]
        if missing:
            raise expected(f"a list of curves: one has no {missing[0]}", curves=surface)
        ends = [numbers(getattr(surface, name), f"curves: {name}") for name in ENDS]
        if ends[0].ndim != 2 or not ends[0].size or len({end.shape for end in ends}) > 1:
            what = f"surfaces of {ENDS} of one shape, with rows and columns"
            raise expected(what, curves=surface)
        table = np.array(ends)
        self.name = " × ".join(map(str, surface.names))
        if not np.isfinite(table).all():
            raise ValueError(f"Expected curves to be finite, and {self.name!r} is not.")
        sides = []
        for name, grid, n in zip(surface.names, surface.grids, ends[0].shape, strict=True):
            edges = edges_of(self.name, grid, n)
            levels = [] if edges is not None else short([str(level) for level in grid])
            edges = np.arange(n + 1) - 0.5 if edges is None else edges
            sides.append(_Side(str(name), edges, levels))
        self.x, self.y = sides
        self.ends = table.transpose(0, 2, 1)  # rows along y
        if len(self.x.levels) > len(self.y.levels):
            self.x, self.y, self.ends = self.y, self.x, table

    @property
    def height(self) -> float:
        """Of the panel, in inches: levels need a line of text each."""
        turned = 0.08 * max(map(len, self.x.levels)) if self._turned else 0.0
        return max(2.6, 1.0 + 0.2 * len(self.y.levels)) + turned

    @property
    def _turned(self) -> bool:
        return sum(map(len, self.x.levels)) > _MANY

    def furthest(self, middle: float | None) -> float:
        """Largest deviation of the posterior mean from no effect."""
        return float(np.abs(self.ends[0] - (middle or 0.0)).max())

    def draw(self, ax: Axes, effect: str, middle: float | None, most: float, holds: str) -> Any:
        """Draw it and return the mesh, whose colours end ``most`` beyond the middle."""
        from matplotlib.colors import CenteredNorm
        from matplotlib.patches import PathPatch
        from matplotlib.path import Path

        norm = CenteredNorm(middle or 0.0, most or 1.0)
        mean, low, high = self.ends
        colours: Params = {"cmap": "RdBu_r", "norm": norm, "gid": SURFACE}
        mesh = ax.pcolormesh(self.x.edges, self.y.edges, mean, **colours)
        ax.set_title(self.name, fontsize="medium")
        if self.x.levels:
            ax.set_xticks(range(len(self.x.levels)), self.x.levels, rotation=90 * self._turned)
            ax.tick_params(axis="x", length=0, labelsize="small")
        else:
            ax.set_xlabel(self.x.name)
        if self.y.levels:
            ax.set_yticks(range(len(self.y.levels)), self.y.levels)
            ax.tick_params(axis="y", length=0, labelsize="small")
            ax.invert_yaxis()
        else:
            ax.set_ylabel(self.y.name)
        ax.figure.colorbar(mesh, ax=ax, label=effect)
        held = (low <= middle) & (middle <= high) if middle is not None else low > high
        if held.any():
            cells = Path.make_compound_path(*map(self._cell, *np.nonzero(held)))
            style: Params = {"facecolor": "none", "edgecolor": GREY, "linewidth": 0}
            ax.add_patch(PathPatch(cells, hatch="////", label=holds, **style))
        return mesh

    def _cell(self, row: int, column: int) -> Any:
        from matplotlib.path import Path

        (x0, x1), (y0, y1) = self.x.edges[column : column + 2], self.y.edges[row : row + 2]
        return Path([(x0, y0), (x1, y0), (x1, y1), (x0, y1), (x0, y0)], closed=True)
