"""Grids of features in a picture: edges of bins, or levels as text."""

from __future__ import annotations

from typing import Any

import numpy as np

from skdp.metrics._predictions import numbers


def edges_of(name: str, grid: Any, n: int) -> np.ndarray | None:
    """Edges of n bins, checked; None for n levels."""
    if np.ndim(grid) != 1 or len(grid) not in (n, n + 1):
        raise ValueError(
            f"Expected curves with a grid of {n + 1} edges or {n} levels where there are {n} "
            f"means, which {name!r} has not."
        )
    if len(grid) == n:
        return None
    edges = numbers(grid, "curves: grid")
    if not np.isfinite(edges).all() or (np.diff(edges) <= 0).any():
        raise ValueError(f"Expected curves with finite ascending edges, not {name!r}.")
    return edges


def short(levels: list[str]) -> list[str]:
    """Shorten levels so that their panel keeps half of 420 pixels, if they still differ then."""
    for start in (16, 26, 36):
        shortened = [s if len(s) <= start + 10 else f"{s[:start]}…{s[-10:]}" for s in levels]
        if len(set(shortened)) == len(set(levels)):
            return shortened
    return levels
