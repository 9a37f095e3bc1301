"""A half-normal hyperprior on the standard deviation τ of a normal prior, by blocks of coordinates.

θ_i ~ N(0, τ_b²) for the coordinates i of block b, and p(τ_b) ∝ exp(−τ_b²/(2a²)) for τ_b > 0, in
ln τ_b with the density ∝ τ_b exp(−τ_b²/(2a²)). Given θ, blocks are independent, with

    ln p(ln τ_b | θ) = −(d_b − 1) ln τ_b − ‖θ_b‖²/(2τ_b²) − τ_b²/(2a²) + const.

The scale is inferred with θ from what was released, which costs no privacy.

References
----------
A. Gelman, *Prior distributions for variance parameters in hierarchical models*, Bayesian Analysis
2006.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

_GRID = np.linspace(-5.0, 2.0, 141)  # of ln(τ/a); beyond lies less than 1 % of the prior's mass


def log_density(log_scales: np.ndarray, scale: float) -> np.ndarray:
    """ln p(ln τ) up to a constant, for the half-normal of scale a."""
    return log_scales - 0.5 * np.exp(2.0 * log_scales) / scale**2


@dataclass(frozen=True)
class HalfNormalScales:
    """Scales τ_b of blocks of coordinates.

    Parameters
    ----------
    scale : float
        a > 0.
    blocks : tuple of int
        Block of each coordinate: 0, 1, ...
    """

    scale: float
    blocks: tuple[int, ...]

    @property
    def n_blocks(self) -> int:
        """Number of blocks."""
        return max(self.blocks) + 1

    @property
    def sizes(self) -> np.ndarray:
        """Number of coordinates of each block, d_b."""
        return np.bincount(self.blocks)

    def squares(self, theta: np.ndarray) -> np.ndarray:
        """‖θ_b‖², (..., n_blocks), of θ (..., D); of its squares' means where these are given."""
        return (theta**2) @ np.eye(self.n_blocks)[list(self.blocks)]

    def of_coordinates(self, values: np.ndarray) -> np.ndarray:
        """Values of blocks (..., n_blocks) at each coordinate, (..., D)."""
        return values[..., list(self.blocks)]

    def likeliest(self, squares: np.ndarray) -> np.ndarray:
        """τ_b of the largest density given E‖θ_b‖²: a step of the EM algorithm."""
        of_a = self.sizes - 1.0
        half = self.scale**2 * of_a / 2.0
        return np.sqrt(np.sqrt(half**2 + self.scale**2 * squares) - half)

    def drawn(self, squares: np.ndarray, uniform: np.ndarray) -> np.ndarray:
        """Draw ln τ_b given ‖θ_b‖², (..., n_blocks), by uniform numbers of that shape."""
        log_scales = np.log(self.scale) + _GRID
        density = log_density(log_scales, self.scale) - self.sizes[:, None] * log_scales
        density = density - 0.5 * squares[..., None] * np.exp(-2.0 * log_scales)
        mass = np.cumsum(np.exp(density - density.max(axis=-1, keepdims=True)), axis=-1)
        first = (mass < uniform[..., None] * mass[..., -1:]).sum(axis=-1)
        step = _GRID[1] - _GRID[0]
        return log_scales[np.minimum(first, len(_GRID) - 1)] + step * (uniform_part(uniform) - 0.5)


def uniform_part(uniform: np.ndarray) -> np.ndarray:
    """Low digits of uniform numbers, which are uniform too, to place a draw inside its cell."""
    return uniform * 1e6 % 1.0
