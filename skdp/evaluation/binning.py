"""Bins of scores and of residuals: public edges, as many as rows and ε let one see.

>>> from skdp.evaluation.binning import ScoreBins
>>> bins = ScoreBins.of(4)
>>> bins.edges.round(4)
array([0.    , 0.1464, 0.5   , 0.8536, 1.    ])
>>> bins.numbers([0.0, 0.5, 0.51, 1.0])
array([0, 1, 2, 3])
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from skdp.fitting.types import ArrayLike

_FACTOR, _LEAST, _MOST = 1.7, 6, 200
_POINTS = 64


def n_bins_for(n: float, scale: float) -> int:
    """Even number of bins for n rows and noise ∝ exp(−|x|/scale): about 1.7 (n/scale)^(1/3)."""
    return 2 * int(np.clip(round(_FACTOR / 2 * (n / scale) ** (1 / 3)), _LEAST / 2, _MOST / 2))


class ScoreBins(NamedTuple):
    """Bins (lower, upper] of [low, 1], equal in arcsin √p, denser near 0 and 1.

    Scores within a bin count as spread evenly on this scale. The first bin holds its lower edge.
    """

    edges: np.ndarray  # (B + 1,), symmetric about ½ where B is even and low is 0
    points: np.ndarray  # (B, 64), over which functions of a score are averaged

    @classmethod
    def of(cls, n_bins: int, low: float = 0.0) -> ScoreBins:
        """Bins of a number."""
        return _bins(n_bins, low)

    @property
    def mean(self) -> np.ndarray:
        """Mean score in each bin, (B,)."""
        return self.points.mean(axis=1)

    def numbers(self, scores: ArrayLike) -> np.ndarray:
        """Number of the bin of each score."""
        return np.searchsorted(self.edges[1:-1], scores, side="left")


@lru_cache(maxsize=64)
def _bins(n_bins: int, low: float) -> ScoreBins:
    start = np.arcsin(np.sqrt(low))
    width = (np.pi / 2 - start) / n_bins
    edges = np.sin(start + width * np.arange(n_bins + 1)) ** 2
    edges[[0, -1]] = low, 1.0
    if low == 0 and n_bins % 2 == 0:
        half = n_bins // 2
        edges[half], edges[half + 1 :] = 0.5, 1 - edges[:half][::-1]
    within = (np.arange(_POINTS) + 0.5) / _POINTS
    return ScoreBins(edges, np.sin(start + width * (np.arange(n_bins)[:, None] + within)) ** 2)


class ResidualBins(NamedTuple):
    """Bins (lower, upper] of [−bound, bound], whose widths grow in proportion to the distance to 0.

    Residuals beyond the bound are counted at it; those within a bin count as spread evenly.
    """

    edges: np.ndarray  # (B + 1,), symmetric about 0
    mean: np.ndarray  # of r in each bin, (B,)
    absolute: np.ndarray  # of |r|
    square: np.ndarray  # of r²

    @classmethod
    def of(cls, n_bins: int, bound: float) -> ResidualBins:
        """Bins of an even number."""
        t = np.arange(-n_bins, n_bins + 1, 2) / n_bins
        edges = bound * t * np.abs(t)
        a, b = edges[:-1], edges[1:]
        mean = (a + b) / 2
        return cls(edges, mean, np.abs(mean), (a * a + a * b + b * b) / 3)

    def numbers(self, residuals: ArrayLike) -> np.ndarray:
        """Number of the bin of each residual."""
        return np.searchsorted(self.edges[1:-1], residuals, side="left")


# Of the true class's probability over the largest that it can have, where another was predicted.
SHARE_EDGES = ScoreBins.of(6).edges
SHARES = SHARE_EDGES[:-1, None] + np.diff(SHARE_EDGES)[:, None] * (np.arange(64) + 0.5) / 64
