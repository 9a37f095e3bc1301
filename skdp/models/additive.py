"""Public features of an additive model: a trend and waves for a number, levels for a category.

A column is cut into bins by public edges. Bin b of B has u_b in [-1, 1], equally spaced, and the
features

    u_b,    a_k (cos(πk(b + ½)/B) - c_k u_b),  k = 2, ..., K + 1,    a_k ∝ k^(-DECAY)

with c_k such that no wave has a trend; the one of k = 1 is nearly one. The features of all bins sum
to 0. Under independent normal priors N(0, τ²) of the coefficients of the waves their sum is a
random curve whose covariance has the eigenvalues a_k², but for the trend: with DECAY = 1 a random
walk, with 2 one whose second differences are independent. The waves are scaled so that the squares
of those of a bin sum to WEIGHT at most. Every row of the column then has a norm of at most
√(1 + WEIGHT), whatever is in it, and nothing is clipped. A value that is missing has a feature of
its own, and so has each level of a category; levels that were not declared share one with those
that are missing.

*How many waves.* A sum over n rows of norm ≤ R of scores r x has noise bR/μ in each coordinate,
where |r| ≤ b. With w_k = n q_k and q_k the mean square of wave k over the bins, the coefficient
moves it by a w_k, and the rows' own scatter there has the variance v w_k. So it tells

    I_k = (a w_k)²/(v w_k + b²R²/μ²)

of the coefficient, and a wave is worth asking for where I_k times a usual prior variance,
(USUAL/R)², is above TOLD. `Telling` has a, v, b and USUAL: of labels a = v = SLOPE, about the mean
slope of the logistic function, and b = 1. All of these numbers are public. Fewer waves mean less
noise in all other directions, since R is smaller and the second moments of fewer features can be
told; beyond the number of features up to which they are released in full there are no waves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np

# The same for every data set, ε, n and d; chosen on the tables magic, abalone, credit and adult of
# benchmarks/additive.py.
DECAY = 1.0  # of the amplitudes of waves, with their number
WEIGHT = 1.0  # squared norm of the waves of a bin, over that of the largest trend
USUAL = 3.0  # standard deviation of a coefficient, in logits of a row at the norm bound
TOLD = 0.5  # information over prior precision from which on a wave is asked for
SLOPE = 0.2  # of the mean of a label in its logit
FEW = 0.05  # share of rows in which a value is missing, where it is
MANY = 8  # waves of a column from which on their scale is inferred by itself
MOST_WAVES = 40  # of a column

TREND, WAVES, LEVELS, MISSING = "trend", "waves", "levels", "missing"


class Telling(NamedTuple):
    """How much scores tell of the mean of a target, in public numbers.

    Parameters
    ----------
    slope : float
        a: of the mean score in the linear predictor.
    scatter : float
        v: variance of scores.
    bound : float
        b: largest score.
    usual : float
        Standard deviation of the linear predictor of a row at the norm bound.
    """

    slope: float
    scatter: float
    bound: float
    usual: float


LABELS = Telling(SLOPE, SLOPE, 1.0, USUAL)


@dataclass(frozen=True)
class Number:
    """A column of numbers.

    Parameters
    ----------
    name : str
        Of the column.
    edges : tuple of float
        At least two, ascending. Values beyond the outer ones count as they do.
    n_waves : int
        K ≥ 0.
    """

    name: str
    edges: tuple[float, ...]
    n_waves: int = 0
    told_missing: bool = True

    @property
    def n_bins(self) -> int:
        """B."""
        return len(self.edges) - 1

    @property
    def names(self) -> tuple[str, ...]:
        """Name of each feature."""
        waves = [f"{self.name}: wave {k}" for k in range(1, self.n_waves + 1)]
        missing = (f"{self.name}: missing",) * self.told_missing
        return f"{self.name}: trend", *waves, *missing

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kind of each feature."""
        return TREND, *[WAVES] * self.n_waves, *[MISSING] * self.told_missing

    @property
    def waves(self) -> np.ndarray:
        """All waves that there could be, (B, K')."""
        return waves(self.n_bins)

    @cached_property
    def table(self) -> np.ndarray:
        """Features of each bin, and of what is missing."""
        features = np.zeros((self.n_bins + 1, self.n_waves + 1 + self.told_missing))
        features[:-1, 0] = trend(self.n_bins)
        features[:-1, 1 : self.n_waves + 1] = self.waves[:, : self.n_waves]
        features[-1, -1] = float(self.told_missing)
        return features

    def codes(self, values: np.ndarray) -> np.ndarray:
        """Bin of each value, (n,); that of NaN is B."""
        values = np.asarray(values, dtype=np.float64)
        missing = np.isnan(values)
        bins = np.searchsorted(np.asarray(self.edges[1:-1]), np.nan_to_num(values), side="right")
        return np.where(missing, self.n_bins, bins)


@dataclass(frozen=True)
class Category:
    """A column of categories.

    Parameters
    ----------
    name : str
        Of the column.
    levels : tuple
        The levels, all different. Any other value, and a missing one, shares a feature.
    """

    name: str
    levels: tuple

    @property
    def names(self) -> tuple[str, ...]:
        """Name of each feature."""
        return *[f"{self.name}={level}" for level in self.levels], f"{self.name}: other"

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kind of each feature."""
        return *[LEVELS] * len(self.levels), MISSING

    @cached_property
    def table(self) -> np.ndarray:
        """Features of each level, and of what is missing."""
        return np.eye(len(self.levels) + 1)

    def codes(self, values: np.ndarray) -> np.ndarray:
        """Number of each value's level, (n,)."""
        numbers = {level: code for code, level in enumerate(self.levels)}
        other = len(self.levels)
        return np.array([numbers.get(value, other) for value in values.tolist()], dtype=np.int64)


def trend(n_bins: int) -> np.ndarray:
    """u_b, (B,)."""
    return np.linspace(-1.0, 1.0, n_bins) if n_bins > 1 else np.zeros(1)


def waves(n_bins: int) -> np.ndarray:
    """Waves without a trend, (B, K), of at most as many as there are directions beside it."""
    n_waves = max(0, min(n_bins - 2, MOST_WAVES))
    k = np.arange(2, n_waves + 2)
    found = np.cos(math.pi * np.outer((np.arange(n_bins) + 0.5) / n_bins, k)) * k**-DECAY
    u = trend(n_bins)
    found -= np.outer(u, u @ found / max(float(u @ u), 1e-300))
    largest = float((found**2).sum(axis=1).max(initial=0.0))
    return found * math.sqrt(WEIGHT / max(largest, 1e-300))


@dataclass(frozen=True)
class Additive:
    """Public features of all columns together.

    Parameters
    ----------
    columns : tuple of Number or Category
        At least one.
    """

    columns: tuple[Number | Category, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Name of each feature."""
        return tuple(name for column in self.columns for name in column.names)

    @property
    def size(self) -> int:
        """Number of features."""
        return sum(column.table.shape[1] for column in self.columns)

    @property
    def norm(self) -> float:
        """Largest norm of a row: no row is longer, and one is as long."""
        return math.sqrt(sum(_largest(column.table) for column in self.columns))

    @property
    def usual_norm(self) -> float:
        """Root mean square norm of a row whose bins and levels are all equally frequent."""
        tables = (c.table if isinstance(c, Category) else c.table[:-1] for c in self.columns)
        return math.sqrt(sum(float((table**2).sum(axis=1).mean()) for table in tables))

    @property
    def blocks(self) -> tuple[str, ...]:
        """Label of each feature: those of a label share a prior scale.

        All trends do, all levels and all that is missing; so do all waves where they are few, and
        else those of a column.
        """
        n_waves = sum(kind == WAVES for column in self.columns for kind in column.kinds)
        alone = n_waves >= MANY * len(self.columns)
        return tuple(
            f"{kind} of {place}" if kind == WAVES and alone else kind
            for place, column in enumerate(self.columns)
            for kind in column.kinds
        )

    @property
    def places(self) -> tuple[slice, ...]:
        """Where the features of each column are."""
        ends = np.cumsum([0, *(column.table.shape[1] for column in self.columns)]).tolist()
        return tuple(slice(start, stop) for start, stop in pairwise(ends))

    def codes(self, values: Sequence[np.ndarray]) -> np.ndarray:
        """Codes (n, columns) of the values of each column."""
        columns = [c.codes(v) for c, v in zip(self.columns, values, strict=True)]
        return np.stack(columns, axis=1).astype(np.int32)

    def rows(self, codes: np.ndarray) -> np.ndarray:
        """Features (n, size) of codes; each row is a function of its own codes alone."""
        found = np.empty((len(codes), self.size))
        for j, (column, place) in enumerate(zip(self.columns, self.places, strict=True)):
            found[:, place] = column.table[codes[:, j]]
        return found

    def asked(
        self, n_rows: int, mu: float, most: float = math.inf, telling: Telling = LABELS
    ) -> Additive:
        """The same columns with as many waves as n rows tell of at a budget of μ.

        And with no more features than ``most``, if there can be so few.
        """
        bound = self.norm**2 + 1.0  # with all waves; without, it is smaller
        missing = _told(n_rows * FEW, mu, bound, telling)
        plain = [
            Number(c.name, c.edges, 0, missing) if isinstance(c, Number) else c
            for c in self.columns
        ]
        worth = [
            _worth(c.waves, n_rows, mu, bound, telling) if isinstance(c, Number) else 0
            for c in self.columns
        ]
        size = Additive(tuple(plain)).size
        each = max(worth, default=0)
        while each and size <= most < size + sum(min(each, n) for n in worth):
            each -= 1
        return Additive(
            tuple(
                replace(c, n_waves=min(each, n)) if isinstance(c, Number) else c
                for c, n in zip(plain, worth, strict=True)
            )
        )


def _told(weight: float, mu: float, bound: float, telling: Telling) -> bool:
    """Whether a feature of Σ x² = weight is worth its noise; R² is the bound."""
    noise = bound * (telling.bound / mu) ** 2
    information = (telling.slope * weight) ** 2 / (telling.scatter * weight + noise)
    return bool(information * telling.usual**2 / bound > TOLD)


def _worth(found: np.ndarray, n_rows: int, mu: float, bound: float, telling: Telling) -> int:
    """Number of the last wave that is worth its noise."""
    worth = [_told(n_rows * square, mu, bound, telling) for square in np.mean(found**2, axis=0)]
    return max((k for k, told in enumerate(worth, start=1) if told), default=0)


def _largest(table: np.ndarray) -> float:
    return float((table**2).sum(axis=1).max())
