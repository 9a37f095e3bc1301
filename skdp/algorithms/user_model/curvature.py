"""What a noisy curvature says of the true one."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp

from skdp.fitting.streams import SecureStream

HIDES = 2.0  # standard deviations of noise that a curvature has to exceed
UNEVEN = 4.0  # times the mean curvature and the noise, beyond which one stands out
_N_DRAWS = 64  # of what H may be
_SPREADS = (0.8, 1.6, 3.2)  # of the eigenvalues of H, as the standard deviation of a logarithm
_SPREAD_OF_LEVEL = 1.5  # of their level around n/5
_LOGS = np.linspace(-4.0, 4.0, 401)


class NoisyCurvature(NamedTuple):
    """Released eigenvalues and eigenvectors of H, and the standard deviations of their noise."""

    values: np.ndarray
    vectors: np.ndarray
    noise: float
    noise_of_mean: float
    is_diagonal: bool

    @property
    def n_hidden(self) -> int:
        """Number of eigenvalues within their noise, where the largest stands out; else 0."""
        if self.values.max() < UNEVEN * max(self.values.mean(), self.noise):
            return 0
        return int((self.values < HIDES * self.noise).sum())


def curvature_draws(
    values: np.ndarray, scale: float, usual: float, of_mean: float, stream: SecureStream
) -> np.ndarray:
    """Draw what the eigenvalues of H may be, given noisy ones: (n_draws, P).

    They are taken to be log-normal, with normal noise of a scale: a noisy eigenvalue below zero
    says that there is little curvature, not that it is absent. Their level is log-normal around its
    usual value, and their mean tells of it with noise of scale ``of_mean``. How far they are spread
    is one of `_SPREADS`, each as likely as it makes the noisy ones: where some are far above the
    mean, hidden ones are far below.
    """
    u = stream.generator.random((_N_DRAWS, len(values) + 2))
    mean = np.array([values.mean()])
    levels = _lognormal_given(mean, of_mean, usual, _SPREAD_OF_LEVEL, u[:, :1])[:, 0]
    typical = float(np.median(levels))
    evidence = [_log_evidence(values, scale, _median(typical, s), s) for s in _SPREADS]
    weights = np.cumsum(np.exp(np.array(evidence) - max(evidence)))
    spreads = np.array(_SPREADS)[np.searchsorted(weights / weights[-1], u[:, 1])]
    draws = [
        _lognormal_given(values, scale, _median(level, spread), spread, row[None, 2:])[0]
        for level, spread, row in zip(levels, spreads, u, strict=True)
    ]
    return np.array(draws)


def _median(level: float, spread: float) -> float:
    """Median of log-normal numbers of a spread with the mean that the first of `_SPREADS` has."""
    return level * math.exp((_SPREADS[0] ** 2 - spread**2) / 2)


def _lognormal_given(
    noisy: np.ndarray, scale: float, median: float, spread: float, u: np.ndarray
) -> np.ndarray:
    """Quantiles u (n, P) of log-normal numbers, given each with normal noise (P,)."""
    grid, log_weights = _on_grid(noisy, scale, median, spread)
    cumulated = np.cumsum(np.exp(log_weights - log_weights.max(axis=1, keepdims=True)), axis=1)
    cumulated /= cumulated[:, -1:]
    return np.stack([np.interp(u[:, i], c, grid) for i, c in enumerate(cumulated)], axis=1)


def _log_evidence(noisy: np.ndarray, scale: float, median: float, spread: float) -> float:
    """Log-density of log-normal numbers with normal noise, up to a constant."""
    _, log_densities = _on_grid(noisy, scale, median, spread)
    return float(np.asarray(logsumexp(log_densities, axis=1)).sum())


def _on_grid(
    noisy: np.ndarray, scale: float, median: float, spread: float
) -> tuple[np.ndarray, np.ndarray]:
    grid = median * np.exp(spread * _LOGS)
    far = (noisy[:, None] - grid) / max(scale, 1e-3 * float(np.abs(noisy).max()))
    return grid, -0.5 * _LOGS**2 - 0.5 * far**2
