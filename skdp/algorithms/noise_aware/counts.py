"""Scores of counts, for `skdp.algorithms.noise_aware.glm`.

ψ = y less a rate exp θz, cut at c and less the mean that it has then under Poisson's law, over c,
and cut at 1 again, which bounds it. How far counts spread decides c: their magnitudes are released
first.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from skdp.algorithms.noise_aware.families import Cut, Family, Slope, WeightedScores
from skdp.engine.linear_sums import GramSum
from skdp.rows.bounded_sum import OPPOSITE, POSITIVE
from skdp.rows.person_sums import RowSum
from skdp.rows.persons import PersonUnit
from skdp.rows.records import LinearBatch


@dataclass(frozen=True)
class AtCut(RowSum):
    """Σ w ψ z, or the slope of it over χ, for (θ, c) in one row; its bound is that at any c."""

    family: Counts
    cut: Cut
    of_slopes: bool = False
    of_person: float | None = None  # bound on what slopes of a person's rows come to
    cancelling = True

    @property
    def record_bound(self) -> float:
        """Bound on the norm of a record's term: C, or R min(R, C) of slopes."""
        C, R = self.cut
        return self.of_person or (R * min(R, C) if self.of_slopes else C)

    @property
    def apart(self) -> float:  # pyright: ignore
        """Slopes w z zᵀ have inner products w v (x·z)² ≥ 0."""
        return POSITIVE if self.of_slopes else OPPOSITE

    def of_persons(self, unit: PersonUnit) -> Any:
        """The same over persons."""
        if not self.of_slopes:
            return super().of_persons(unit)
        return replace(self, of_person=unit.rows_per_group * self.record_bound)

    def _at(self, theta: np.ndarray) -> tuple[Any, np.ndarray]:
        """The sum at c, and θ."""
        (C, R), c = self.cut, float(theta[0, -1])
        family = replace(self.family, clip=c)
        one: Any = WeightedScores(family.residual, C, family.largest, R)
        if self.of_slopes:
            weight = Slope(family, self.cut, family.slopes[1])
            one = GramSum(R * min(R, C), weight, of_person=self.of_person)
        return one, theta[:, :-1]

    def shape(self, theta_shape: tuple[int, ...]) -> tuple[int, ...]:
        """One number for each column, or for each of the pairs."""
        D = theta_shape[-1] - 1
        return (D * (D + 1) // 2,) if self.of_slopes else (1, D)

    def __call__(self, theta: np.ndarray, batch: LinearBatch) -> np.ndarray:
        """Return the sum."""
        one, theta = self._at(theta)
        return np.asarray(one(theta, batch))

    def records(self, theta: np.ndarray, chunk: LinearBatch) -> np.ndarray:
        """Return the terms, each a function of its own record alone."""
        one, theta = self._at(theta)
        return np.asarray(one.records(theta, chunk))


@dataclass(frozen=True)
class Counts(Family):
    """Counts with a rate exp θz, whose scores are cut at c: ``clip``, once that is known."""

    likelihood: Any
    clip: float | None = None
    saturates: ClassVar[bool] = False
    bounded: ClassVar[bool] = True

    @property
    def widest(self) -> float:
        """Four deviations of the largest counts of a Poisson model."""
        return float(self.likelihood.residual_scale)

    @property
    def _c(self) -> float:
        return self.clip or self.widest

    @property
    def _score(self) -> Any:
        return self.likelihood.score(self._c)

    @property
    def slopes(self) -> tuple[float, float]:
        """Ends of the mean slope; χ is the largest slope of a score."""
        return 1e-4, float(self._score.slope_bound) / self._c

    def residual(self, logits: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """The score, within [-1, 1]."""
        return np.clip(self._score.residual(logits, targets) / self._c, -1.0, 1.0)

    def scores(self, cut: Cut) -> RowSum:
        """The sum of a step."""
        return AtCut(self, cut)

    def slope(self, cut: Cut) -> RowSum:
        """The sum that tells the slope, over χ."""
        return AtCut(self, cut, of_slopes=True)

    def value_at(self, logits: np.ndarray) -> np.ndarray:
        """What the slope is the derivative of."""
        return self._score.value(np.asarray(logits)[:, None])[:, 0] / self._c

    def slope_at(self, logits: np.ndarray) -> np.ndarray:
        """Expected slope of the score, before it is cut at 1."""
        return self._score.slope(np.asarray(logits)[:, None])[:, 0, 0] / self._c

    def variance_at(self, logits: np.ndarray) -> np.ndarray:
        """Expected square of the score, before it is cut at 1."""
        return self._score.variance(np.asarray(logits)[:, None])[:, 0, 0] / self._c**2
