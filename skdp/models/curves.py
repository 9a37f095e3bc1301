"""Curves over the bins of a number: trend and waves, and where a curve is steep."""

from __future__ import annotations

import math

import numpy as np

# Chosen as those of `additive`.
WEIGHT = 1.5  # of the squared norm of the waves, over three times that of the largest trend
MOST_WAVES = 40  # of a column
EVEN = 2.0  # square of the steepness beyond which it is not taken for chance


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


def not_told(
    of: np.ndarray, n_told: int, curve: np.ndarray, known: np.ndarray, scale: float
) -> np.ndarray:
    """Covariance (B, B) of a curve by waves, ``of``: those not asked for, and at jumps all.

    Waves that were not asked for have their prior, N(0, τ²). A jump has more of all waves than that
    at one place, and where the curve is `steepness` times as steep as elsewhere, f's prior
    covariance K = τ² W Wᵀ is taken to be steepness² times as large. If S = ``known`` is the
    posterior covariance of the waves that were asked for, the posterior mean of a curve f is
    (I - A) f but for noise, with

        A = W (S/τ²) W⁺ + (I - W W⁺),

    W here those waves alone. It leaves out A f, and this adds A d K d Aᵀ for what is beyond the
    prior, with d² = max(steepness² - EVEN, 0).
    """
    told, others = of[:, :n_told], of[:, n_told:]
    inverse = np.linalg.pinv(told)
    left_out = np.eye(len(curve)) + told @ (known / scale**2 - np.eye(len(known))) @ inverse
    more = np.sqrt(np.maximum(steepness(curve, n_told) ** 2 - EVEN, 0.0))
    jumps = scale * left_out @ (more[:, None] * of)
    others = scale * others
    return others @ others.T + jumps @ jumps.T
