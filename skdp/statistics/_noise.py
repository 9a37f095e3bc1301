"""Tails of noise, and the intervals that follow: all values that a test of level α keeps.

With X, Y of a Laplace law of scale 1 and a ≠ b,

    P(|aX + bY| > w) = (a² e^(-w/a) - b² e^(-w/b))/(a² - b²).

Geometric noise on integers that are many to its scale has this law up to rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.special import ndtri

from skdp.mechanisms import GeometricMechanism

_APART = 1e-3  # scales are kept so far apart, relatively: the formula divides by the difference
_NODES = ndtri((np.arange(128) + 0.5) / 128)


def geometric_quantile(mechanism: GeometricMechanism, alpha: float) -> int:
    """Least integer k with P(|noise| > k) = 2p^(k+1)/(1+p) ≤ α, p = e^(-1/b)."""
    b = float(mechanism.scale)
    p = math.exp(-1.0 / b)
    return max(0, math.ceil(-b * math.log(alpha * (1 + p) / 2) - 1 - 1e-9))


def tail(w: np.ndarray, a: np.ndarray, b: np.ndarray, sd: np.ndarray | None = None) -> np.ndarray:
    """P(|aX + bY + sd Z| > w) for w ≥ 0, with Z normal; arrays of one shape."""
    a, b = np.maximum(a, b), np.minimum(a, b)
    b = np.minimum(b, a * (1 - _APART))
    if sd is None:
        return _two_sided(w, a, b)
    shift = sd[..., None] * _NODES
    w, a, b = w[..., None], a[..., None], b[..., None]
    return (_above(w - shift, a, b) + _above(w + shift, a, b)).mean(axis=-1)


def _two_sided(w: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore", invalid="ignore"):
        smaller = np.where(b > 0, b * b * np.exp(-w / b), 0.0)
    return (a * a * np.exp(-w / a) - smaller) / (a * a - b * b)


def _above(x: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """P(aX + bY > x)."""
    half = 0.5 * _two_sided(np.abs(x), a, b)
    return np.where(x >= 0, half, 1.0 - half)


def kept(
    p_value: Callable[[np.ndarray], np.ndarray], center: float, alpha: float
) -> tuple[float, float]:
    """Ends of the shares in [0, 1], out from a center, that a test of level α does not reject."""
    steps = np.concatenate([[0.0], np.logspace(-12, 0, 120)])

    def end(sign: float) -> float | None:
        shares = np.clip(center + sign * steps, 0.0, 1.0)
        for _ in range(3):  # each time between the last that is kept and the next
            good = np.flatnonzero(p_value(shares) >= alpha)
            if not len(good):
                return None
            last = good[-1]
            outside = shares[min(last + 1, len(shares) - 1)]
            shares = np.linspace(shares[last], outside, 50)
        return float(outside)

    low, high = end(-1.0), end(1.0)
    if low is None and high is None:
        return 0.0, 1.0
    return center if low is None else low, center if high is None else high
