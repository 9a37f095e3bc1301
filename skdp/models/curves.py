"""Curves over the bins of a number: trend and waves, and where a curve is steep."""

from __future__ import annotations

import math

import numpy as np

# Chosen as those of `additive`.
WEIGHT = 1.5  # of the squared norm of the waves, over three times that of the largest trend
MOST_WAVES = 40  # of a column


def trend(n_bins: int) -> np.ndarray:
    """Trend, (B,)."""
    return (2.0 * np.arange(n_bins) + 1.0) / n_bins - 1.0


def waves(n_bins: int) -> np.ndarray:
    """Waves (B, K), cosines and sines in turn; not more than a curve can have beside its trend."""
    places = np.arange(max(0, min(n_bins - 2, MOST_WAVES)))
    k = places // 2 + 1
    x = (np.arange(n_bins) + 0.5) / n_bins
    phases = 2.0 * np.outer(x, k) - places % 2 / 2.0
    return np.cos(math.pi * phases) * math.sqrt(2.0 * WEIGHT) / (math.pi * k)


def steepness(curve: np.ndarray, n_waves: int) -> np.ndarray:
    """How much steeper a curve is near each bin than all of it, (B,), at least 1.

    The root of the mean square slope, beside the mean one, within half a wave length of the last
    wave over that of the whole curve.
    """
    B = len(curve)
    if n_waves == 0 or B < 3:
        return np.ones(B)
    slopes = np.gradient(curve)
    squares = (slopes - slopes.mean()) ** 2
    half = max(1, round(B / (2 * n_waves)))
    padded = np.pad(squares, half, mode="edge")
    near = np.convolve(padded, np.full(2 * half + 1, 1.0 / (2 * half + 1)), "valid")
    least = 1e-18 * float(np.mean(slopes**2)) + 1e-300  # a straight line, but for rounding
    return np.sqrt(np.maximum(near / max(float(squares.mean()), least), 1.0))
