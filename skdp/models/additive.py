"""Public features of an additive model: a trend and waves for a number, levels for a category.

A column of numbers is cut into B bins by public edges. With x_b = (b + ½)/B, bin b has the features

    2x_b - 1,    a_k cos(2πk x_b), a_k sin(2πk x_b), k = 1, 2, ...,    a_k² = 2 WEIGHT/(πk)².

Under independent normal priors N(0, τ²) of the coefficients of the waves, their sum over all k is
2τ√WEIGHT times a Brownian bridge less its mean over [0, 1] (G. S. Watson, *Goodness-of-fit Tests on
a Circle*, Biometrika 1961): with the trend, a random walk over the bins. Its variance is the same
at each x, so that the waves lengthen all rows by the same, at most WEIGHT/3 to the squared norm,
and no row is longer than √(1 + WEIGHT/3), whatever is in it: nothing is clipped.

A level of a category of L levels has the feature 1 - 1/L, and -1/L those of the others: their sum
would tell what the intercept does, and would make rows longer. Other levels share the feature of
what is missing, where there is one; without, and where a number is missing, all are 0.

A pair of columns has the products of the features of both, a trend and WAVES_OF_PAIRS waves of a
number, times √PAIR_WEIGHT; where either is missing, all are 0. Features of one column have the mean
0 over its bins or levels, so that a sum of products has it over each of the two columns: it is
interaction and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np

from skdp.models.curves import MOST_WAVES, WEIGHT, trend, waves
from skdp.models.telling import LABELS, Telling, is_told, last_told
from skdp.rows.coded import CodedRows

# The same for every data set, ε, n and d; chosen on the tables magic, abalone, credit and adult of
# benchmarks/additive.py, and on german.
FEW = 0.05  # share of rows in which a value is missing, where it is
MANY = 8  # waves of a column from which on their scale is inferred by itself
PAIR_WEIGHT = 0.5  # of the largest squared product of two trends
WAVES_OF_PAIRS = 8  # of a number, of which a pair may have products

TREND, WAVES, LEVELS, MISSING, PAIRS = "trend", "waves", "levels", "missing", "pairs"


@dataclass(frozen=True)
class Number:
    """A column of numbers, with at least two ascending edges; values beyond count as at the ends.

    It has ``n_waves`` K ≥ 0, and with ``told_missing`` a missing value has a feature.
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
    """A column of categories, with levels that are all different.

    With ``told_missing`` any other value, and a missing one, has a feature.
    """

    name: str
    levels: tuple
    told_missing: bool = True

    @property
    def names(self) -> tuple[str, ...]:
        """Name of each feature."""
        levels = [f"{self.name}={level}" for level in self.levels]
        return *levels, *[f"{self.name}: other"] * self.told_missing

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kind of each feature."""
        return *[LEVELS] * len(self.levels), *[MISSING] * self.told_missing

    @cached_property
    def table(self) -> np.ndarray:
        """Features of each level, and of what is missing."""
        L = len(self.levels)
        features = np.zeros((L + 1, L + self.told_missing))
        features[:-1, :L] = np.eye(L) - 1.0 / L
        features[-1, L:] = 1.0
        return features

    def codes(self, values: np.ndarray) -> np.ndarray:
        """Number of each value's level, (n,)."""
        numbers = {level: code for code, level in enumerate(self.levels)}
        other = len(self.levels)
        return np.array([numbers.get(value, other) for value in values.tolist()], dtype=np.int64)


@dataclass(frozen=True)
class Pair:
    """Two columns, and what they do beyond the sum of their curves.

    ``places`` are those of the two among all columns. ``least`` is the mean square of a product
    from which on it is asked for; infinite for none.
    """

    columns: tuple[Number | Category, Number | Category]
    places: tuple[int, int]
    least: float = math.inf

    @property
    def name(self) -> str:
        """Of both columns."""
        return " × ".join(column.name for column in self.columns)

    @property
    def names(self) -> tuple[str, ...]:
        """Name of each feature."""
        first, second = (column.names for column in self._factors)
        names = (f"{a} × {b}" for a in first for b in second)
        return tuple(name for name, asked in zip(names, self.asked, strict=True) if asked)

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kind of each feature."""
        return (PAIRS,) * int(self.asked.sum())

    @property
    def asked(self) -> np.ndarray:
        """Whether each product is asked for."""
        return self.squares >= self.least

    @cached_property
    def squares(self) -> np.ndarray:
        """Mean square of each product over all bins and levels."""
        first, second = (np.mean(c.table[:-1] ** 2, axis=0) for c in self._factors)
        return np.round(PAIR_WEIGHT * np.kron(first, second), 12)  # levels of a column are alike

    def products(self, which: np.ndarray) -> np.ndarray:
        """Some of all products that there could be, (codes, products)."""
        first, second = (column.table for column in self._factors)
        i, j = np.divmod(np.flatnonzero(which), second.shape[1])
        both = first[:, None, i] * second[:, j]
        return math.sqrt(PAIR_WEIGHT) * both.reshape(len(first) * len(second), len(i))

    @cached_property
    def table(self) -> np.ndarray:
        """Features of each code."""
        return self.products(self.asked)

    @property
    def shape(self) -> tuple[int, int]:
        """Bins or levels of both columns."""
        first, second = (len(column.table) - 1 for column in self._factors)
        return first, second

    @property
    def known(self) -> np.ndarray:
        """Whether no value is missing, for each code."""
        return np.pad(np.ones(self.shape, dtype=bool), (0, 1)).ravel()

    @cached_property
    def _factors(self) -> tuple[Number | Category, ...]:
        """Both columns with the features that are multiplied, which are 0 where it is missing."""
        return tuple(
            replace(c, told_missing=False, n_waves=min(WAVES_OF_PAIRS, c.waves.shape[1]))
            if isinstance(c, Number)
            else replace(c, told_missing=False)
            for c in self.columns
        )

    def codes(self, codes: np.ndarray) -> np.ndarray:
        """Code of the pair, (n,), of those (n, columns) of all columns."""
        a, b = self.places
        return codes[:, a] * (self.shape[1] + 1) + codes[:, b]


def beside_trend(column: Number | Category) -> np.ndarray:
    """Projection (B, B) of a curve on what it has beside its mean and its trend; 0 for levels."""
    B = len(column.table) - 1
    if isinstance(column, Category):
        return np.zeros((B, B))
    lines = np.column_stack([np.ones(B), trend(B)])
    return np.eye(B) - lines @ np.linalg.pinv(lines)


@dataclass(frozen=True)
class Additive:
    """Public features of all columns, at least one, and of pairs of them, together."""

    columns: tuple[Number | Category, ...]
    pairs: tuple[Pair, ...] = ()

    @property
    def parts(self) -> tuple[Number | Category | Pair, ...]:
        """All columns, and then all pairs."""
        return *self.columns, *self.pairs

    def of_columns(self, columns: Sequence[Number | Category]) -> Additive:
        """The same of other columns, and of the same pairs of them."""
        pairs = (replace(p, columns=tuple(columns[j] for j in p.places)) for p in self.pairs)
        return Additive(tuple(columns), tuple(pairs))

    @property
    def tables(self) -> tuple[np.ndarray, ...]:
        """Features of each bin of each column, and of each code of each pair."""
        return tuple(part.table for part in self.parts)

    @property
    def pairs_of_places(self) -> tuple[tuple[int, int], ...]:
        """Which columns are pairs, whose tables come last."""
        return tuple(pair.places for pair in self.pairs)

    @property
    def names(self) -> tuple[str, ...]:
        """Name of each feature."""
        return tuple(name for part in self.parts for name in part.names)

    @property
    def size(self) -> int:
        """Number of features."""
        return sum(len(part.kinds) for part in self.parts)

    @property
    def norm(self) -> float:
        """Largest norm of a row: no row is longer, and without pairs one is as long."""
        squares = ((part.table**2).sum(axis=1) for part in self.parts)
        return math.sqrt(sum(float(of_codes.max()) for of_codes in squares))

    @property
    def usual_norm(self) -> float:
        """Root mean square norm of a row whose bins and levels are all equally frequent."""
        tables = [column.table[:-1] for column in self.columns]
        tables += [pair.table[pair.known] for pair in self.pairs]
        return math.sqrt(sum(float((table**2).sum(axis=1).mean()) for table in tables))

    @property
    def blocks(self) -> tuple[str, ...]:
        """Label of each feature: those of a label share a prior scale.

        All trends share one, all levels, all that is missing and all products of pairs; so do all
        waves where they are few, and else those of a column.
        """
        n_waves = sum(kind == WAVES for column in self.columns for kind in column.kinds)
        alone = n_waves >= MANY * len(self.columns)
        return tuple(
            f"{kind} of {place}" if kind == WAVES and alone else kind
            for place, part in enumerate(self.parts)
            for kind in part.kinds
        )

    @property
    def places(self) -> tuple[slice, ...]:
        """Where the features of each column and pair are."""
        ends = np.cumsum([0, *(len(part.kinds) for part in self.parts)]).tolist()
        return tuple(slice(start, stop) for start, stop in pairwise(ends))

    def codes(self, values: Sequence[np.ndarray]) -> np.ndarray:
        """Codes (n, columns) of the values of each column."""
        columns = [c.codes(v) for c, v in zip(self.columns, values, strict=True)]
        return np.stack(columns, axis=1).astype(np.int32)

    def of_parts(self, codes: np.ndarray) -> np.ndarray:
        """Codes (n, columns and pairs) of those of columns."""
        return np.column_stack([codes, *(pair.codes(codes) for pair in self.pairs)])

    def rows(self, codes: np.ndarray) -> np.ndarray:
        """Features (n, size) of codes; each row is a function of its own codes alone."""
        found = np.empty((len(codes), self.size))
        for part, place, code in zip(self.parts, self.places, self.of_parts(codes).T, strict=True):
            found[:, place] = part.table[code]
        return found

    def coded(self, codes: np.ndarray) -> CodedRows:
        """The same, kept as codes."""
        return CodedRows.of(self.of_parts(codes), [part.table for part in self.parts])

    def asked(
        self, n_rows: int, mu: float, most: float = math.inf, telling: Telling = LABELS
    ) -> Additive:
        """The same columns with as many waves as n rows tell of at a budget of μ.

        And pairs with as many products; no more features than ``most``, if there can be so few.
        """
        bound = self.norm**2 + 1.0  # with all waves; without, it is smaller

        def with_waves(most_each: int, told_missing: bool) -> Additive:
            k = (most_each + 1) // 2  # of the last wave, and below its mean square
            least = WEIGHT / (math.pi * k) ** 2 if k else math.inf
            return Additive(
                tuple(
                    replace(c, n_waves=min(most_each, worth), told_missing=told_missing)
                    if isinstance(c, Number)
                    else replace(c, told_missing=told_missing)
                    for c, worth in zip(self.columns, worths, strict=True)
                ),
                tuple(
                    replace(pair, least=max(worth, least))
                    for pair, worth in zip(self.pairs, least_worths, strict=True)
                ),
            )

        def told(square: float) -> bool:
            return is_told(n_rows * square, mu, bound, telling)

        worths = [last_told(c.waves, told) if isinstance(c, Number) else 0 for c in self.columns]
        least_worths = [min(filter(told, p.squares), default=math.inf) for p in self.pairs]
        missing = told(FEW) and with_waves(0, True).size <= most
        each = MOST_WAVES if self.pairs else max(worths, default=0)
        while each and with_waves(each, missing).size > most:
            each -= 1
        return with_waves(each, missing)
