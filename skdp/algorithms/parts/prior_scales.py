"""A half-normal hyperprior on the standard deviation τ of a normal prior, by blocks of coordinates.

θ_i ~ N(0, τ_b²) for the coordinates i of block b, and p(τ_b) ∝ exp(−τ_b²/(2a²)), τ_b > 0: in ln τ_b
the density is ∝ τ_b exp(−τ_b²/(2a²)). Given θ, blocks are independent, with

    ln p(ln τ_b | θ) = −(d_b − 1) ln τ_b − ‖θ_b‖²/(2τ_b²) − τ_b²/(2a²) + const.

The scales are inferred with θ from what was released, at no cost in privacy.

References
----------
A. Gelman, *Prior distributions for variance parameters in hierarchical models*, Bayesian Analysis
2006.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

HYPERPRIOR_SCALE = 4.0  # a, for the logit of a row at the norm bound
_CELL = 0.05
_GRID = np.arange(-5.0, 2.0, _CELL)  # of ln(τ/a); beyond lies less than 1 % of the hyperprior
INTERVAL = (5.0, 50.0, 95.0)  # percentiles that fits report


def log_density(log_scales: np.ndarray, scale: float) -> np.ndarray:
    """Log density of ln τ up to a constant, for the half-normal of scale a > 0."""
    return log_scales - 0.5 * np.exp(2.0 * log_scales) / scale**2


@dataclass(frozen=True)
class PriorScales:
    """Standard deviations τ_b of the coordinates of blocks, known or with a hyperprior.

    ``scale`` is a > 0, or all τ_b where ``known``; ``blocks`` the block of each coordinate.
    """

    scale: float
    blocks: tuple[int, ...]
    known: bool = False

    @classmethod
    def of(
        cls,
        prior_scale: float | None,
        shape: tuple[int, int],
        n_features: int,
        blocks: tuple[int, ...] | None,
        hyperprior_scale: float = HYPERPRIOR_SCALE,
    ) -> PriorScales:
        """Of a linear model whose rows have norm ≤ 1: one τ, or one per block and the intercept.

        Without a ``prior_scale`` τ > 0 there is a hyperprior of scale a > 0, of one output;
        ``shape`` is (K, D), ``blocks`` the block of each feature, or None for one.
        """
        K, D = shape
        if prior_scale is not None:
            return cls(prior_scale, (0,) * (K * D), known=True)
        blocks = blocks or (0,) * n_features
        return cls(hyperprior_scale, blocks + (max(blocks) + 1,) * (D - n_features))

    @property
    def sizes(self) -> np.ndarray:
        """Number of coordinates of each block, d_b."""
        return np.bincount(self.blocks)

    @property
    def start(self) -> np.ndarray:
        """τ_b to begin with: about the median of the hyperprior."""
        return np.full(len(self.sizes), self.scale * (1.0 if self.known else 0.7))

    def squares(self, theta: np.ndarray) -> np.ndarray:
        """‖θ_b‖², (..., blocks), of θ (..., D)."""
        return theta**2 @ np.eye(len(self.sizes))[list(self.blocks)]

    def precision(self, scales: np.ndarray) -> np.ndarray:
        """1/τ² of each coordinate, (..., D), for τ (..., blocks)."""
        return scales[..., list(self.blocks)] ** -2.0

    def likeliest(self, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
        """τ_b of the largest density of ln τ_b given E‖θ_b‖²: a step of the EM algorithm."""
        if self.known:
            return self.start
        squares = self.squares(np.sqrt(mean**2 + variance))
        half = self.scale**2 * (self.sizes - 1.0) / 2.0
        return np.sqrt(np.sqrt(half**2 + self.scale**2 * squares) - half)

    def summary(self, scales: np.ndarray, n_features: int) -> np.ndarray:
        """Percentiles (3, blocks of features) of τ (n, blocks), without that of the intercept."""
        of_intercept = len(self.blocks) > n_features and not self.known
        return np.percentile(scales[:, : scales.shape[1] - of_intercept], INTERVAL, axis=0)

    def drawn(self, theta: np.ndarray, uniform: np.ndarray) -> np.ndarray:
        """Draw τ_b given θ, (..., blocks), by two uniform numbers each, (2, ..., blocks)."""
        log_scales = np.log(self.scale) + _GRID
        density = log_density(log_scales, self.scale) - self.sizes[:, None] * log_scales
        density = density - 0.5 * self.squares(theta)[..., None] * np.exp(-2.0 * log_scales)
        mass = np.cumsum(np.exp(density - density.max(axis=-1, keepdims=True)), axis=-1)
        cell = np.sum(mass < uniform[0][..., None] * mass[..., -1:], axis=-1)
        return np.exp(log_scales[np.minimum(cell, len(_GRID) - 1)] + _CELL * (uniform[1] - 0.5))
