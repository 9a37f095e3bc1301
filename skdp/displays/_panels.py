"""Panels of additive models: curves of numbers and levels, and heat maps of interactions."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from skdp.displays._axes import GREY, Axes
from skdp.fitting.types import Params
from skdp.fitting.validate import expected
from skdp.metrics._predictions import numbers

SURFACE = "skdp.AdditiveDisplay.surface"
_OF_SURFACES = ("mean", "low", "high")
_OF_CURVES = (*_OF_SURFACES, "band_low", "band_high")
_MANY = 30  # letters of levels side by side, beyond which they are turned


def _ends(effect: Any, names: tuple[str, ...], ends: tuple[str, ...], remedy: str = "") -> list:
    if missing := [name for name in (*names, *ends) if not hasattr(effect, name)]:
        raise expected(f"a list of curves: one has no {missing[0]}", remedy, curves=effect)
    return [numbers(getattr(effect, name), f"curves: {name}") for name in ends]


def _finite(name: str, ends: list) -> np.ndarray:
    if not np.isfinite(ends).all():
        raise ValueError(f"Expected curves to be finite, and {name!r} is not.")
    return np.array(ends)


class _Side(NamedTuple):
    """A feature along an axis: edges of its bins, or levels at 0, 1, ... and edges around them."""

    name: str
    edges: np.ndarray
    levels: list[str]

    @classmethod
    def of(cls, name: str, grid: Any, n: int, effect: str) -> _Side:
        if np.ndim(grid) != 1 or len(grid) not in (n, n + 1):
            raise ValueError(
                f"Expected curves with a grid of {n + 1} edges or {n} levels where there are {n} "
                f"means, which {effect!r} has not."
            )
        if len(grid) == n:
            return cls(name, np.arange(n + 1) - 0.5, _short([str(level) for level in grid]))
        edges = numbers(grid, "curves: grid")
        if not np.isfinite(edges).all() or (np.diff(edges) <= 0).any():
            raise ValueError(f"Expected curves with finite ascending edges, not {effect!r}.")
        return cls(name, edges, [])

    @property
    def height(self) -> float:
        """Of a panel, in inches: levels need a line of text each."""
        return max(2.6, 1.0 + 0.2 * len(self.levels))


def _short(levels: list[str]) -> list[str]:
    """Shorten levels so that their panel keeps half of 420 pixels, if they still differ then."""
    for start in (16, 26, 36):
        shortened = [s if len(s) <= start + 10 else f"{s[:start]}…{s[-10:]}" for s in levels]
        if len(set(shortened)) == len(set(levels)):
            return shortened
    return levels


class CurvePanel:
    """A curve as it is drawn: checked, and its levels as text."""

    def __init__(self, curve: Any) -> None:
        remedy = "curve_ of a fitted DPAdditiveClassifier returns one"
        ends = _ends(curve, ("name", "grid"), _OF_CURVES, remedy)
        if ends[0].ndim != 1 or not len(ends[0]) or len({end.shape for end in ends}) > 1:
            shapes = ", ".join(f"{name} {np.shape(getattr(curve, name))}" for name in _OF_CURVES)
            raise ValueError(f"Expected curves of {_OF_CURVES} of one length, got {shapes}.")
        self.name = str(curve.name)
        self.ends = _finite(self.name, ends)
        side = _Side.of(self.name, curve.grid, len(ends[0]), self.name)
        self.grid, self.levels, self.height = side.edges, side.levels, side.height
        self.is_number = not side.levels


class SurfacePanel:
    """An interaction as it is drawn: checked, numbers along x, levels along y."""

    is_number = False

    def __init__(self, surface: Any) -> None:
        ends = _ends(surface, ("names", "grids"), _OF_SURFACES)
        shape = ends[0].shape
        if len(shape) != 2 or not ends[0].size or len({end.shape for end in ends}) > 1:
            what = f"surfaces of {_OF_SURFACES} of one shape, with rows and columns"
            raise expected(what, curves=surface)
        self.name = " × ".join(map(str, surface.names))
        table = _finite(self.name, ends)
        sides = zip(surface.names, surface.grids, shape, strict=True)
        self.x, self.y = (_Side.of(str(name), grid, n, self.name) for name, grid, n in sides)
        self.ends = table.transpose(0, 2, 1)  # rows along y
        if len(self.x.levels) > len(self.y.levels):
            self.x, self.y, self.ends = self.y, self.x, table
        self._turned = sum(map(len, self.x.levels)) > _MANY

    @property
    def height(self) -> float:
        """Of the panel, in inches."""
        return self.y.height + (0.08 * max(map(len, self.x.levels)) if self._turned else 0.0)

    def furthest(self, middle: float | None) -> float:
        """Largest deviation of the posterior mean from no effect."""
        return float(np.abs(self.ends[0] - (middle or 0.0)).max())

    def draw(self, ax: Axes, effect: str, middle: float | None, most: float, holds: str) -> Any:
        """Draw it and return the mesh, whose colours end ``most`` beyond the middle.

        Cells whose interval holds the middle are hatched.
        """
        from matplotlib.colors import CenteredNorm
        from matplotlib.patches import PathPatch
        from matplotlib.path import Path

        mean, low, high = self.ends
        colours: Params = {"cmap": "RdBu_r", "norm": CenteredNorm(middle or 0.0, most or 1.0)}
        mesh = ax.pcolormesh(self.x.edges, self.y.edges, mean, gid=SURFACE, **colours)
        ax.set_title(self.name, fontsize="medium")
        for axis, side, turned in ((ax.xaxis, self.x, self._turned), (ax.yaxis, self.y, False)):
            if side.levels:
                axis.set_ticks(range(len(side.levels)), side.levels, rotation=90 * turned)
                axis.set_tick_params(length=0, labelsize="small")
            else:
                axis.set_label_text(side.name)
        if self.y.levels:
            ax.invert_yaxis()
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
