"""The prior of standardised effects, θ = a + b, with scales that are learned (docs/method.md §4.5).

- a_j ~ N(0, λ_j τ²/s_j²): each column by itself, s_j its spread, with λ_j so that a_j has the tails
  of Student's t. Small effects shrink, a strong one does not.
- b ~ N(0, β² R^{-1}), R the slope over the mean of its diagonal, with Student's tails along its
  axes (Zellner's g-prior): where columns nearly determine each other, effects are large and
  opposite, which a alone takes for impossible.

τ, for each block of columns, and β have half-Cauchy priors, of scales that let the logits of usual
rows vary as much whatever the number d of columns is.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from skdp.algorithms.noise_aware.design import Design
from skdp.algorithms.noise_aware.draws import inverse_root
from skdp.algorithms.noise_aware.matrices import picked

DEGREES = 4.0  # of Student's t
TAU, BETA = 1.5, 0.15  # scales of the priors of τ√d and β√d: deviations of the logits of usual rows
INTERCEPT = 5.0  # standard deviation of the prior of the intercept
_LEAST = 1e-6  # eigenvalue of R: below, rounding decides
# Of τ√d and β√d.
_SCALES = np.exp(np.linspace(math.log(0.05), math.log(15.0), 60))
_BETAS = np.exp(np.linspace(math.log(0.005), math.log(5.0), 60))


class Prior:
    """Scales of K chains, drawn anew whenever θ is.

    - ``H``: slopes (K, D, D), that of the intercept last if there is one.
    - ``spread``: of each column (K, d), over the ``unit`` of effects.
    - ``blocks``: block of each column; None is one for all.
    - ``scale``: standard deviation of normal effects; None learns all scales.
    - ``design``: whose usual row the scales of priors are of; where it has a ``model``, θ = a.
    - ``alike``: number of contrasts that share τ and β, with as many chains each, stacked in K.
    """

    def __init__(
        self,
        H: np.ndarray,
        spread: np.ndarray,
        unit: float,
        blocks: tuple[int, ...] | None,
        scale: float | None,
        design: Design,
        alike: int = 1,
    ) -> None:
        (K, d), self.learned, self.alike = spread.shape, scale is None, alike
        self.spread = spread / unit
        self.root, self.joint = design.usual, self.learned and design.model is None
        of_columns = np.zeros(d, dtype=int) if blocks is None else np.asarray(blocks)
        self.member = np.eye(max(of_columns, default=0) + 1)[of_columns].T  # (blocks, d)
        self.local, self.beta2 = np.ones((K, d)), np.full(K, (BETA / self.root) ** 2)
        self.tau2 = np.full((K, len(self.member)), (scale or TAU / self.root) ** 2)
        if self.joint:
            each = [_spectrum(own, d) for own in np.split(H, alike)]
            self.axes, values = map(np.concatenate, zip(*each, strict=True))
            self.usual = unit**2 / values  # of R^{-1}, along the axes
            self.along = np.ones((K, d))

    def precision(self, D: int) -> np.ndarray:
        """Precision (K, D, D) of θ given the scales."""
        K, d = self.spread.shape
        own = self._own
        found, at = np.zeros((K, D, D)), np.arange(d)
        if self.joint:
            variances = self.beta2[:, None] * self.along * self.usual
            both = (self.axes * variances[:, None, :]) @ self.axes.transpose(0, 2, 1)
            both[:, at, at] += own
            half = inverse_root(both)
            found[:, :d, :d] = half.transpose(0, 2, 1) @ half
        else:
            found[:, at, at] = 1.0 / own
        found[:, range(d, D), range(d, D)] = INTERCEPT**-2
        return found

    @property
    def _own(self) -> np.ndarray:
        """Variance of a, (K, d)."""
        return self.local * (self.tau2 @ self.member) / self.spread**2

    def draw(self, theta: np.ndarray, precision: np.ndarray, generator: Any) -> None:
        """Draw a and b given θ and the scales, then the scales given a and b."""
        if not self.learned:
            return
        d, of_block = self.spread.shape[1], self.tau2 @ self.member
        a = theta[:, :d]
        if self.joint:
            a = self._apart(a, precision[:, :d, :d], generator)
        effects = (a * self.spread) ** 2
        self.local = _local(effects / of_block, generator)
        squares, sizes = (effects / self.local) @ self.member.T, self.member.sum(axis=1)
        self.tau2 = self._drawn(squares, sizes, (_SCALES, TAU), generator)

    def _apart(self, theta: np.ndarray, precision: np.ndarray, generator: Any) -> np.ndarray:
        """Draw a and b given their sum (K, d), then the scales of b; return a."""
        (K, d), own = self.spread.shape, self._own
        # A draw of both from the prior, moved by what θ differs from their sum (Matheron's rule).
        normals = generator.standard_normal((2, K, d))
        along = np.sqrt(self.beta2[:, None] * self.along * self.usual) * normals[0]
        a, b = np.sqrt(own) * normals[1], np.einsum("kij,kj->ki", self.axes, along)
        a = a + own * np.einsum("kij,kj->ki", precision, theta - a - b)
        b = np.einsum("kij,ki->kj", self.axes, theta - a) ** 2 / self.usual
        self.along = _local(b / self.beta2[:, None], generator)
        square = (b / self.along).sum(axis=1)
        self.beta2 = self._drawn(square, np.array(float(d)), (_BETAS, BETA), generator)
        return a

    def _drawn(self, squares: np.ndarray, sizes: Any, law: Any, generator: Any) -> np.ndarray:
        """Draw variances on a grid of their roots, of normals of given sums of squares."""
        grid, scale = (each / self.root for each in law)
        squares = squares.reshape(self.alike, -1, *squares.shape[1:]).sum(axis=0)
        log_p = -squares[..., None] / (2.0 * grid**2) - self.alike * sizes[..., None] * np.log(grid)
        log_p += np.log(grid) - np.log1p((grid / scale) ** 2)
        return np.concatenate([grid[picked(log_p, (), generator)] ** 2] * self.alike)


def _spectrum(H: np.ndarray, d: int) -> tuple[np.ndarray, np.ndarray]:
    """Axes and eigenvalues of R of the columns, less what the intercept takes."""
    of_columns = H[:, :d, :d]
    if H.shape[-1] > d:
        of_columns = of_columns - H[:, :d, d:] * H[:, d:, :d] / H[:, d:, d:]
    mean = max(float(np.trace(of_columns.mean(axis=0))) / d, 1e-300)
    values, axes = np.linalg.eigh(of_columns / mean)
    return axes, np.maximum(values, _LEAST)


def _local(squares: np.ndarray, generator: Any) -> np.ndarray:
    """Draw the local variances of normals that have Student's tails together, given squares."""
    shape = (DEGREES + squares) / 2.0
    return shape / generator.gamma((DEGREES + 1.0) / 2.0, size=shape.shape)
