"""Class probabilities averaged over normal logits: by a series where they hardly vary.

Each row's average is a function of that row alone, whatever rows stand beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.special import expit, softmax
from scipy.stats import norm, qmc

_AT_ONCE = 2**14  # rows: what is at work stays in the cache
# Variances of a logit up to which the series, and quadrature at so many nodes, err by less than
# 1e-7; the last errs by 2e-5 at a variance of 9.
_SERIES, _NODES = 0.05, ((0.2, 6), (1.0, 12), (np.inf, 32))
_LITTLE = 0.017  # traces of a covariance up to which the second order errs by less than 2e-5
_N_PAIRS = 256


def mean_sigmoid(mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """E (1 − σ(z), σ(z)), (n, 2), for z ~ N(mean, variance), (n,), each accurate in its own tail.

    >>> import numpy as np
    >>> from skdp.models.averaged import mean_sigmoid
    >>> mean_sigmoid(np.array([0.0, 2.0]), np.array([1.0, 0.0])).round(3)
    array([[0.5  , 0.5  ],
           [0.119, 0.881]])
    """
    averages = np.empty((len(mean), 2))
    for start in range(0, len(mean), _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        m, v = mean[part], variance[part]
        less = _by_size(_lesser_sigmoid, ((_SERIES, 0), *_NODES), -np.abs(m), v)
        up, more = m > 0.0, 1.0 - less
        averages[part, 0] = np.where(up, less, more)
        averages[part, 1] = np.where(up, more, less)
    return averages


def mean_softmax(mean: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """E softmax(z) for z ~ N(mean, covariance), (n, K), of means (n, K) and covariances (n, K, K).

    By the second order of its Taylor series where the trace of the covariance is little, and else
    over 256 antithetic pairs of quasi-random normal points (more beyond 128 classes), the same ones
    for every row.
    """
    averages = np.empty_like(mean)
    for start in range(0, len(mean), _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        size = np.trace(covariance[part], axis1=1, axis2=2)
        levels = ((_LITTLE, 0), (np.inf, _N_PAIRS))
        averages[part] = _by_size(_softmax, levels, mean[part], covariance[part], size)
    return averages


def _by_size(
    average: Callable[..., np.ndarray], levels: Any, mean: np.ndarray, spread: np.ndarray,
    size: np.ndarray | None = None,
) -> np.ndarray:  # fmt: skip
    """Average each row by the first of the levels (largest size, effort) that it is within."""
    size, averages, least = spread if size is None else size, np.full_like(mean, np.nan), -np.inf
    if size.max(initial=0.0) <= levels[0][0]:
        return average(mean, spread, levels[0][1])
    for most, effort in levels:
        rows = (size > least) & (size <= most)
        if rows.any():
            averages[rows] = average(mean[rows], spread[rows], effort)
        least = most
    return averages


def _lesser_sigmoid(mean: np.ndarray, variance: np.ndarray, n_nodes: int) -> np.ndarray:
    """E σ(z) at a number of nodes; 0 for Σ_k vᵏ/(k! 2ᵏ) σ⁽²ᵏ⁾(m) up to k = 3.

    Derivatives of σ are polynomials in q = σ(1 − σ), times t = 1 − 2σ where they are even.
    """
    if n_nodes:
        nodes, weights = _quadrature(n_nodes)
        deviation, total = np.sqrt(variance), np.zeros_like(mean)
        for node, weight in zip(nodes, weights, strict=True):
            total += weight * expit(mean + deviation * node)
        return total
    small = np.exp(mean)  # no overflow: the mean is at most 0
    p = small / (1.0 + small)
    q = p * (1.0 - p)
    v = variance / 2.0
    third = 1.0 + q * (-60.0 + 360.0 * q)
    second = 1.0 - 12.0 * q + v / 3.0 * third
    return p + v * q * (1.0 - 2.0 * p) * (1.0 + v / 2.0 * second)


def _softmax(mean: np.ndarray, covariance: np.ndarray, n_pairs: int) -> np.ndarray:
    """E softmax(z) over pairs of points; 0 for the second order.

    ∂²p_k is p_k times (e_k − p)(e_k − p)ᵀ − (diag p − ppᵀ).
    """
    if n_pairs:
        values, vectors = np.linalg.eigh(covariance)
        root = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
        total, points = np.zeros_like(mean), normal_points(mean.shape[1], n_pairs)
        for point in points:
            total += softmax(mean + root @ point, axis=-1)
        return total / len(points)
    p = softmax(mean, axis=-1)
    of_mean = (covariance @ p[:, :, None])[:, :, 0]
    variances = np.diagonal(covariance, axis1=1, axis2=2)
    # (e_k − p)ᵀV(e_k − p) = V_kk − 2(Vp)_k + pᵀVp, of which pᵀVp is in the mean over k, twice.
    bent = variances - 2.0 * of_mean
    return p * (1.0 + (bent - np.sum(p * bent, axis=1, keepdims=True)) / 2.0)


@lru_cache(maxsize=8)
def _quadrature(n_nodes: int) -> tuple[np.ndarray, np.ndarray]:
    nodes, weights = np.polynomial.hermite_e.hermegauss(n_nodes)
    return nodes, weights / weights.sum()


@lru_cache(maxsize=8)
def normal_points(size: int, n_pairs: int) -> np.ndarray:
    """Quasi-random points of N(0, I) and their negatives, (2 n_pairs, size); covariance exact."""
    sobol: Any = qmc.Sobol  # whose seed has another name from one SciPy to the next
    n_pairs = max(n_pairs, 1 << (2 * size - 1).bit_length())  # more than there are directions
    half = norm.ppf(sobol(size, scramble=True, seed=0).random(n_pairs))
    points = np.concatenate([half, -half])
    return points @ np.linalg.inv(np.linalg.cholesky(points.T @ points / len(points))).T
