"""Scores of numbers, for `skdp.algorithms.noise_aware.glm`.

ψ = (y - θz)/c cut to [-1, 1], with ψ² - ⅙ beside it, which gives residuals' scale and the next c.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import erf

from skdp.algorithms.noise_aware.families import UNCUT, Cut, Family, Product, alone
from skdp.engine.linear_sums import GramSum, packed, packed_squares
from skdp.rows.bounded_sum import CHUNK_ROWS
from skdp.rows.person_sums import RowSum, by_person
from skdp.rows.records import LinearBatch, gram

USUAL_CUT = 2.5  # c over the scale of residuals: 1 % of normal ones are cut
USUAL_SQUARE = 1.0 / 6.0  # of a residual over c, where c is USUAL_CUT times their scale
FASTEST = (0.125, 2.0)  # change of c from one step to the next
WIDEST = 2.0  # c: residuals of targets in [-1, 1] that are predicted within


def _residuals(theta: np.ndarray, chunk: LinearBatch, product: Product) -> np.ndarray:
    """(y - θz)/c of rows (m,), for (θ, c) in one row."""
    line = product(chunk, theta[:, :-1].T)[:, 0]
    return np.nan_to_num((chunk.targets[:, 0] - line) / theta[0, -1])


@dataclass(frozen=True)
class WeightedResiduals(RowSum):
    """Σ (w ψ z, a(ψ² - ⅙)) for (θ, c) in one row, a = C/2.

    The last number adds 8 % to the bound. ⅙ is about what ψ² is on average at the c that is aimed
    at, so that all of a person's terms nearly cancel.
    """

    cut: Cut
    cancelling = True

    @property
    def square_weight(self) -> float:
        """The weight a."""
        return self.cut.clip_norm / 2.0

    @property
    def record_bound(self) -> float:
        """Bound on the norm of a record's term: w‖z‖ ≤ C, and |ψ² - ⅙| ≤ ⅚."""
        return math.hypot(self.cut.clip_norm, self.square_weight * (1.0 - USUAL_SQUARE))

    def shape(self, theta_shape: tuple[int, ...]) -> tuple[int, ...]:
        """A number for each column, and one."""
        return (theta_shape[-1],)

    def _parts(
        self, theta: np.ndarray, chunk: LinearBatch, product: Product
    ) -> tuple[np.ndarray, np.ndarray]:
        psi = np.clip(_residuals(theta, chunk, product), -1.0, 1.0)
        squares = self.square_weight * (psi**2 - USUAL_SQUARE)
        psi = psi * self.cut.weights(chunk.norms)
        return chunk.weighted(psi), chunk.weighted(squares)

    def __call__(self, theta: np.ndarray, batch: LinearBatch) -> np.ndarray:
        """Return the sum."""
        total = np.zeros(theta.shape[-1])
        with np.errstate(all="ignore"):
            for chunk in batch.chunks(CHUNK_ROWS):
                psi, squares = self._parts(theta, chunk, LinearBatch.logits)
                total += np.append(psi @ chunk.rows, squares.sum())
        return total

    def records(self, theta: np.ndarray, chunk: LinearBatch) -> np.ndarray:
        """Return the terms, each a function of its own record alone."""
        psi, squares = self._parts(theta, chunk, alone)
        return np.hstack([psi[:, None] * np.asarray(chunk.rows), squares[:, None]])


@dataclass(frozen=True)
class InsideGram(GramSum):
    """Σ w 1(|y - θz| < c) z zᵀ, for (θ, c) in one row: c times the slope of Σ w ψ z."""

    cut: Cut = UNCUT

    def shape(self, theta_shape: tuple[int, ...]) -> tuple[int, ...]:
        """One number for each of the pairs of columns."""
        return super().shape((theta_shape[-1] - 1,))

    def _inside(self, theta: np.ndarray, chunk: LinearBatch, product: Product) -> np.ndarray:
        inside = np.abs(_residuals(theta, chunk, product)) < 1.0
        return self._cut(inside * self.cut.weights(chunk.norms), chunk)

    def __call__(self, theta: np.ndarray, batch: LinearBatch) -> np.ndarray:
        """Return the sum."""
        d = theta.shape[-1] - 1
        total = np.zeros((d, d))
        with np.errstate(all="ignore"):
            for chunk in batch.chunks(CHUNK_ROWS):
                total += gram(chunk.rows, self._inside(theta, chunk, LinearBatch.logits))
        return packed(total)

    def records(self, theta: np.ndarray, chunk: LinearBatch) -> np.ndarray:
        """Return the terms, each a function of its own record alone."""
        terms = packed_squares(np.asarray(chunk.rows), self._inside(theta, chunk, alone))
        return by_person(terms, chunk)


@dataclass(frozen=True)
class Line(Family):
    """Numbers in [-1, 1], or any if not ``bounded``, with normal residuals of a learned scale.

    Scores and slopes are in units in which the slope of Σ w ψ z is Σ w z zᵀ: c/p times what was
    released, p the share of residuals that are not cut.
    """

    bounded: bool = True
    extra: ClassVar[int] = 1
    widest: ClassVar[float] = WIDEST
    slopes: ClassVar[tuple[float, float]] = (0.5, 1.5)

    def scores(self, cut: Cut) -> RowSum:
        """The sum of a step."""
        return WeightedResiduals(cut)

    def slope(self, cut: Cut) -> RowSum:
        """The sum that tells the slope."""
        C, R = cut
        return InsideGram(R * min(R, C), cut=cut)

    def value_at(self, logits: np.ndarray) -> np.ndarray:
        """θz."""
        return logits

    def slope_at(self, logits: np.ndarray) -> np.ndarray:
        """1: of variances, times that of ψ in these units."""
        return np.ones_like(logits)

    variance_at = slope_at


def inside(scale: float) -> float:
    """Share of normal residuals of a scale, in units of c, that are not cut."""
    return float(erf(1.0 / (scale * math.sqrt(2.0))))


def mean_square(scale: np.ndarray) -> np.ndarray:
    """E ψ² for normal residuals of a scale, in units of c."""
    x = np.maximum(1.0 / scale, 1e-8)  # below, rounding decides
    density = np.exp(-(x**2) / 2.0) / math.sqrt(2.0 * math.pi)
    p = erf(x / math.sqrt(2.0))
    return (p - 2.0 * x * density) / x**2 + (1.0 - p)


USUAL_SCALE = 0.2  # of residuals of targets in [-1, 1]; its logarithm has deviation 1
_SCALES = np.exp(np.linspace(math.log(1e-4), math.log(WIDEST), 1000))


def told_scale(
    squares: np.ndarray, cuts: np.ndarray, error: float, alike: float
) -> tuple[float, float]:
    """Scale of residuals, and the variance of its logarithm, by means of ψ².

    Each has an error of its own, and all one that is the same, as they are of the same rows.
    """
    off = squares[:, None] - mean_square(_SCALES / cuts[:, None])
    part = alike**2 / (error**2 + len(squares) * alike**2)
    log_p = -(np.sum(off**2, axis=0) - part * off.sum(axis=0) ** 2) / (2.0 * error**2)
    log_p -= np.log(_SCALES / USUAL_SCALE) ** 2 / 2.0
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    mean = float(p @ np.log(_SCALES))
    return math.exp(mean), float(p @ (np.log(_SCALES) - mean) ** 2) + 1e-12
