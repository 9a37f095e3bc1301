"""What a noisy symmetric matrix tells of the positive one behind it (docs/derivations.md).

A released matrix is M = A + s W, W with independent normal entries of variance 1 beside the
diagonal and 2 on it: a law that rotations leave alone. So is the prior: axes of A are uniform, the
logarithms of its eigenvalues normal, with a left tail no steeper than λ^⅕, because columns that
nearly determine each other are common.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
from scipy.special import ndtri

# The left tail of the prior, and eigenvalues below which none are drawn, over the mean one.
TAIL, LEAST = 0.2, 1e-4
# Variances of the logarithms of eigenvalues: over eight tables 0.21 to 1.6, their median 0.4
# (benchmarks/real_tables.py).
USUAL, FACTOR, FEW = 0.5, 0.8, 0.3
SWEEPS, FEW_SWEEPS, MANY = 10, 4, 100  # over planes; fewer of so many columns, which take long
BLOCK = 50  # columns, of which two blocks are rotated at once
RANDOM_WALKS = 6  # of each eigenvalue, for each sweep over the planes


def symmetric_noise(size: tuple[int, ...], D: int, generator: Any) -> np.ndarray:
    """Draw W, of shape (*size, D, D)."""
    normals = generator.standard_normal((*size, D, D))
    return (normals + np.swapaxes(normals, -1, -2)) / np.sqrt(2.0)


def _unmixed(values: np.ndarray, s: float) -> np.ndarray:
    """Eigenvalues less what the noise has pushed them apart, not descending."""
    gap = values[:, None] - values
    pushed = 2.0 * s**2 * (gap / (gap**2 + s**2 * len(values) ** 0.5 + 1e-300)).sum(axis=1)
    return np.maximum.accumulate(values - pushed)


def mean(axes: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Mean of drawn matrices."""
    return np.mean((axes * values[:, None, :]) @ axes.transpose(0, 2, 1), axis=0)


def _log_density(x: np.ndarray, mean: Any, spread: Any, least: float) -> np.ndarray:
    """Of ln λ: normal, but for a few that are anywhere below."""
    body = -(((x - mean) / spread) ** 2) / 2.0 - np.log(spread * np.sqrt(2.0 * np.pi))
    few = np.log(FEW / (mean - np.log(least))) + np.where(x < mean, 0.0, -np.inf)
    return np.logaddexp(body + np.log(1.0 - FEW), few)


def picked(log_p: np.ndarray, size: tuple[int, ...], generator: Any) -> np.ndarray:
    """Draw places along the last axis, of shape (*size, ...)."""
    p = np.cumsum(np.exp(log_p - log_p.max(axis=-1, keepdims=True)), axis=-1)
    below = generator.random((*size, *p.shape[:-1], 1)) * p[..., -1:]
    return (p[..., :-1] <= below).sum(axis=-1)


_VARIANCES = np.exp(np.linspace(np.log(0.05), np.log(6.0), 100))


def drawn(square: float, error: float, n_draws: int, generator: Any) -> np.ndarray:
    """Draw variances of ln λ, given the mean of λ² over its mean squared, and its error."""
    log_p = -((square - np.exp(_VARIANCES)) ** 2) / (2.0 * max(error, 1e-3) ** 2)
    log_p -= (np.log(_VARIANCES / USUAL) / FACTOR) ** 2 / 2.0
    return _VARIANCES[picked(log_p, (n_draws,), generator)]


def log_prior(x: np.ndarray, mean: Any, spread: Any) -> np.ndarray:
    """Log density of a logarithm: normal, with a left tail no steeper than exp(TAIL x)."""
    below = mean - x
    knee = TAIL * spread**2
    return np.where(below > knee, -TAIL * below + TAIL * knee / 2, -(below**2) / (2 * spread**2))


def draws(M: np.ndarray, s: float, n_draws: int, generator: Any) -> tuple[np.ndarray, np.ndarray]:
    """Draw positive matrices given M (D, D), by a Gibbs sampler over planes and eigenvalues.

    s is the deviation of the noise of M beside the diagonal. Of each of ``n_draws`` chains the last
    state is a draw: axes (n_draws, D, D), in columns, and eigenvalues (n_draws, D) > 0.
    """
    D, s = len(M), max(s, 1e-9)
    found, Q = np.linalg.eigh(M)
    average = max(float(np.trace(M)) / D, 1e-3)
    square = float((found**2).mean()) - s**2 * (D + 1)
    variance = drawn(square / average**2, 2.0 * (s / average) ** 2, n_draws, generator)
    spread = np.sqrt(variance)[:, None]
    mean = np.log(average) - spread**2 / 2
    prior = mean, spread, LEAST * average
    # Where the noise hides an eigenvalue it starts at a quantile of the prior.
    edge = s * D**0.5
    start = np.exp(mean + spread * ndtri((np.arange(D) + 0.5) / D))
    hidden = np.minimum(start, np.maximum(_unmixed(found, s), 2.0 * s))
    values = np.where(found > 2.0 * edge, _unmixed(found, s), hidden)
    axes_ = np.tile(np.eye(D), (n_draws, 1, 1))
    for _ in range(SWEEPS if D <= MANY else FEW_SWEEPS):
        axes_, diagonal = _swept(axes_, found, values, s, generator)
        for _ in range(RANDOM_WALKS):
            values = _walked(values, diagonal, s, prior, generator)
    return Q @ axes_.transpose(0, 2, 1), values


def _swept(
    axes_: np.ndarray, found: np.ndarray, values: np.ndarray, s: float, generator: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Rotate all planes, of many columns those within two blocks at a time.

    Returns axes, with rows in coordinates in which M is diagonal, and the diagonal of M in them.
    """
    K, D = values.shape
    if D <= MANY:
        return _turned(axes_, np.tile(found, (K, 1)), values, s, generator)
    diagonal = np.empty((K, D))
    for a, b in combinations(np.array_split(np.arange(D), D // BLOCK), 2):
        own = np.concatenate([a, b])
        near = axes_[:, own]
        inner, Q = np.linalg.eigh((near * found) @ near.transpose(0, 2, 1))
        turned, diagonal[:, own] = _turned(Q, inner, values[:, own], s, generator)
        axes_[:, own] = turned @ Q.transpose(0, 2, 1) @ near
    return axes_, diagonal


def _turned(
    axes_: np.ndarray, found: np.ndarray, values: np.ndarray, s: float, generator: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Rotate the planes of pairs that have no axis in common at a time, by von Mises's angles.

    Axes take turns in a ring, as in a tournament; those that meet are beside each other in memory.
    """
    (K, D), odd = values.shape, values.shape[1] % 2
    ring = np.append(np.arange(0, D + odd, 2), np.arange(1, D + odd, 2)[::-1])
    start = np.argsort(ring)
    order = np.append(ring[:1], np.roll(ring[1:], 1))[start]
    # Of an odd number, that which meets a row of zeros sits out.
    axes_ = np.append(axes_, np.zeros((K, odd, D)), axis=1)[:, start]
    values = np.append(values, np.full((K, odd), np.nan), axis=1)[:, start]
    diagonal = np.einsum("kpi,kpi,ki->kp", axes_, axes_, found)
    pairs = axes_.reshape(K, -1, 2, D)
    spare = np.empty_like(pairs)
    for _ in range(D + odd - 1):
        p, q, apart = diagonal[:, ::2], diagonal[:, 1::2], values[:, ::2] - values[:, 1::2]
        a, b = (p - q) / 2, np.einsum("kpi,kpi,ki->kp", pairs[:, :, 0], pairs[:, :, 1], found)
        sharp = np.fmin(np.hypot(a, b) * np.abs(apart) / (2 * s**2), 1e15)
        angle = np.arctan2(b * apart, a * apart) + generator.vonmises(0.0, sharp)
        angle[np.isnan(apart)] = 0.0
        cos, sin = np.cos(angle / 2), np.sin(angle / 2)
        moved = a * (np.cos(angle) - 1.0) + b * np.sin(angle)
        diagonal[:, ::2], diagonal[:, 1::2] = p + moved, q - moved
        turn = np.stack([cos, sin, -sin, cos], axis=-1).reshape(*cos.shape, 2, 2)
        np.matmul(turn, pairs, out=spare)
        np.take(spare.reshape(axes_.shape), order, axis=1, out=axes_, mode="clip")
        diagonal, values = diagonal[:, order], values[:, order]
    return axes_[:, ring[:D]], diagonal[:, ring[:D]]


def _walked(
    values: np.ndarray, diagonal: np.ndarray, s: float, prior: tuple[Any, ...], generator: Any
) -> np.ndarray:
    """One Metropolis-Hastings step of log λ, of a width that depends on where it is."""
    x, width = np.log(values), np.minimum(1.5, 2 * s / values)
    new = values * np.exp(width * generator.standard_normal(values.shape))
    back = np.minimum(1.5, 2 * s / new)
    moved = np.log(new / values)
    ratio = ((values - diagonal) ** 2 - (new - diagonal) ** 2) / (4 * s**2)
    ratio += _log_density(np.log(new), *prior) - _log_density(x, *prior)
    ratio += np.log(width / back) + moved**2 / 2 * (1 / width**2 - 1 / back**2)
    taken = (np.log(generator.random(values.shape)) < ratio) & (new > prior[-1])
    return np.where(taken, new, values)
