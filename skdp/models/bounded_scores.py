"""Bounded scores of linear models as functions of the logit, and what to expect of them.

A score ψ(y, z) of norm ≤ c that has mean zero at the true logit, whatever that is, identifies it
(Künsch, Stefanski & Carroll 1989, *conditionally unbiased bounded-influence* estimation); a clipped
residual does not have it. Two kinds are here:

- a residual y − μ(z) with a weight that does not look at y, min(1, c/max_y ‖y − μ(z)‖);
- a clipped residual less its own mean.

To first order the mean of ψ(y, z) at a true logit z* is Ψ(z*) − Ψ(z). Each class holds Ψ
(``value``), its derivative (``slope``) and the variance of ψ at the truth (``variance``), over
leading axes of logits (..., K), beside ψ itself as the engine sums it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from scipy.special import expit, softmax
from scipy.stats import poisson

LargestResidual = Callable[[np.ndarray], np.ndarray]


class Score:
    """A bounded score of K logits, and what is expected of it.

    ``largest_residual`` is the norm (m,) of the largest residual that any target could have, for
    the weight, if any; ``slope_bound`` bounds the slope of a record of norm 1.
    """

    n_outputs: int
    slope_bound: float
    largest_residual: LargestResidual | None

    def residual(self, logits: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """What is summed over records, before any weight, (m, K)."""
        raise NotImplementedError

    def value(self, logits: np.ndarray) -> np.ndarray:
        """Ψ(z), (..., K)."""
        raise NotImplementedError

    def slope(self, logits: np.ndarray) -> np.ndarray:
        """∂Ψ/∂z, (..., K, K)."""
        raise NotImplementedError

    def variance(self, logits: np.ndarray) -> np.ndarray:
        """Covariance of the score of one record, (..., K, K)."""
        raise NotImplementedError

    def slope_of_records(self, logits: np.ndarray, bounds: np.ndarray) -> np.ndarray:
        """Slope (m,) of records of one logit (m, 1), each with its own bound c (m,)."""
        raise NotImplementedError


@dataclass(frozen=True)
class BernoulliScore(Score):
    """w(z)(y − σ(z)) with w = min(1, c / max(σ(z), σ(−z))), c > 0."""

    bound: float
    n_outputs = 1

    def residual(self, logits: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """The residual y − σ(z)."""
        return targets - expit(logits)

    def largest_residual(self, logits: np.ndarray) -> np.ndarray:
        """max(σ(z), σ(−z))."""
        return expit(np.abs(logits[..., 0]))

    def value(self, logits: np.ndarray) -> np.ndarray:
        """∫₀ᶻ w σ': σ where w = 1, and c log σ beyond."""
        size, c = np.abs(logits), self.bound
        if c >= 1.0:
            return expit(logits) - 0.5
        edge = max(0.0, math.log(c / (1.0 - c)))  # |z| at which the weight falls below 1
        below = expit(np.minimum(size, edge)) - 0.5
        beyond = c * (math.log1p(math.exp(-edge)) - np.log1p(np.exp(-np.maximum(size, edge))))
        return np.sign(logits) * (below + beyond)

    def slope(self, logits: np.ndarray) -> np.ndarray:
        """The slope w σ'."""
        return _weighted_slope(logits, self.bound)[..., None]

    def variance(self, logits: np.ndarray) -> np.ndarray:
        """w² σ'."""
        return _weighted_slope(logits, self.bound, 2)[..., None]

    @property
    def slope_bound(self) -> float:
        """σ' ≤ 1/4, and w σ' ≤ c min(σ(z), σ(−z)) ≤ c/2."""
        return min(0.25, self.bound / 2.0)

    def slope_of_records(self, logits: np.ndarray, bounds: np.ndarray) -> np.ndarray:
        """The slope w σ'."""
        return _weighted_slope(logits[:, 0], bounds)


def _weighted_slope(z: np.ndarray, bound: Any, power: int = 1) -> np.ndarray:
    return np.minimum(1.0, bound / expit(np.abs(z))) ** power * expit(z) * expit(-z)


@dataclass(frozen=True)
class CategoricalScore(Score):
    """w (e_y − softmax(z)), with the weight that holds at equal probabilities, where fits start."""

    n_outputs: int
    bound: float

    def residual(self, logits: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """e_y − softmax(z)."""
        return targets - softmax(logits, axis=-1)

    def largest_residual(self, logits: np.ndarray) -> np.ndarray:
        """‖e_y − p‖ for the least probable y."""
        p = softmax(logits, axis=-1)
        return np.sqrt(np.maximum(1.0 - 2.0 * p.min(axis=-1) + np.sum(p * p, axis=-1), 0.0))

    @property
    def _weight(self) -> float:
        return min(1.0, self.bound / math.sqrt(1.0 - 1.0 / self.n_outputs))

    def value(self, logits: np.ndarray) -> np.ndarray:
        """With the weight: w softmax(z)."""
        return self._weight * softmax(logits, axis=-1)

    def slope(self, logits: np.ndarray) -> np.ndarray:
        """∂(w softmax)/∂z = w (diag p − p pᵀ)."""
        p = softmax(logits, axis=-1)
        return self._weight * p[..., :, None] * (np.eye(self.n_outputs) - p[..., None, :])

    def variance(self, logits: np.ndarray) -> np.ndarray:
        """w² (diag p − p pᵀ)."""
        return self._weight * self.slope(logits)

    @property
    def slope_bound(self) -> float:
        """Eigenvalues of diag p − p pᵀ are ≤ 1/2."""
        return min(0.5, self.bound)


@dataclass(frozen=True)
class PoissonScore(Score):
    """clip(y − r, ±c) less its mean under Poisson(r), at the rate r = e^z ≤ y_max.

    Tabulated over the logit: sums over the counts that occur. What the law has beyond y_max is not
    taken out, as counts that end there need not be of that law: theirs would be 0, and those that
    are cut have the estimate of what they are cut to. Beyond y_max, which no count exceeds, the
    rate is cut: far above, every count would be clipped and so would the mean, the score would be
    0 whatever the counts are, and a run that had stepped there would not find back.
    """

    bound: float
    largest_count: float
    n_outputs = 1
    largest_residual = None  # the residual itself is bounded and centred, and needs no weight

    def residual(self, logits: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Clipped residual less its mean; a second column of the targets is an offset of logits."""
        logits, targets = logits + targets[:, 1:].sum(axis=1, keepdims=True), targets[:, :1]
        rate = np.exp(np.clip(logits, *self._ends))
        return np.clip(targets - rate, -self.bound, self.bound) - self._read(0, logits)

    def value(self, logits: np.ndarray) -> np.ndarray:
        """∫ slope."""
        return self._read(3, logits)

    def slope(self, logits: np.ndarray) -> np.ndarray:
        """E[ψ (y − r)] = r E[clip at y + 1 − clip at y]; 0 where the rate is cut."""
        return self._slope(logits)[..., None]

    def variance(self, logits: np.ndarray) -> np.ndarray:
        """E ψ²."""
        return self._read(2, logits)[..., None]

    @property
    def slope_bound(self) -> float:
        """Largest entry of the table."""
        return float(self._table[1].max())

    def slope_of_records(self, logits: np.ndarray, bounds: np.ndarray) -> np.ndarray:
        """Slope; the bounds of single records play no part."""
        return self._slope(logits[:, 0])

    def _slope(self, logits: np.ndarray) -> np.ndarray:
        return np.where(logits < self._ends[1], self._read(1, logits), 0.0)

    @property
    def _ends(self) -> tuple[float, float]:
        high = math.log(self.largest_count)
        return min(-12.0, high - 12.0), high

    def _read(self, row: int, logits: np.ndarray) -> np.ndarray:
        return np.interp(logits, self._grid, self._table[row])

    @cached_property
    def _grid(self) -> np.ndarray:
        return np.linspace(*self._ends, 800)

    @property
    def _table(self) -> np.ndarray:
        return _table_of(self)


@lru_cache(maxsize=16)  # hundreds of sums of probabilities: folds and repetitions share them
def _table_of(score: PoissonScore) -> np.ndarray:
    """Mean of the clipped residual, slope, variance, and the integral of the slope."""
    rows = []
    for rate in np.exp(score._grid):
        spread = 9.0 * math.sqrt(rate) + 30.0
        y = np.arange(max(0.0, math.floor(rate - spread)), math.ceil(rate + spread))
        p = poisson.pmf(y, rate)
        here = np.clip(y - rate, -score.bound, score.bound)
        more = np.clip(y + 1 - rate, -score.bound, score.bound)
        mean = p @ here
        rows.append((mean, rate * (p @ (more - here)), p @ (here - mean) ** 2))
    mean, slope, variance = np.array(rows).T
    steps = np.diff(score._grid) * (slope[1:] + slope[:-1]) / 2.0
    integral = np.concatenate([[0.0], np.cumsum(steps)])
    table = np.array([mean, slope, variance, integral])
    table.flags.writeable = False
    return table
