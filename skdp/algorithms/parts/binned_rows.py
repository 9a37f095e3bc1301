"""Points at which rows of bins may be, given their noisy second moments.

The features of a column are a public function of its bin, t_b for bin b, far from normal where most
rows are in a few bins. Rows are drawn by their codes:

1. The second moments of one column, and its features' means, which an intercept's column has, are
   linear in the shares p_b of the rows that are in each bin. So many noisy entries tell few
   numbers, and p is found by least squares with p ≥ 0, Σ p = 1 and a normal prior around equal
   shares, of the deviation under which the noisy entries are likeliest. Draws solve the same with
   noise added anew to entries and to the prior's mean (Orieux, Féron, Giovannelli 2012), which
   gives the posterior exactly where no p_b is 0. Of M points, codes are as many as their shares
   say, and only their order is open.
2. Columns of numbers, whose first feature ascends from bin to bin, are in the order of normal
   variables, whose correlations are those that give the first features the correlations they are
   found to have (a Gaussian copula). Other columns are in random order.
3. Covariances with columns that have no order are normal around 0 with a deviation ρ in the units
   of the features' own deviations, the likeliest. They are put on the points by a linear map, which
   leaves what is within a column, and between numbers, nearly as it is.

References
----------
F. Orieux, O. Féron, J.-F. Giovannelli, *Sampling High-Dimensional Gaussian Distributions for
General Linear Inverse Problems*, IEEE Signal Processing Letters 2012.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.random import Generator
from scipy.optimize import nnls

from skdp.algorithms.parts.noisy_moments import believed

SPREADS = np.array([0.3, 1.0, 3.0, 10.0])  # deviation of shares over the mean one, to choose from
SURE = 1e-4  # deviation of the sum of all shares
DEVIATIONS = np.geomspace(0.003, 1.0, 40)  # ρ, to choose from
WIDEST = 0.5  # edge of the spectrum of what is unknown of the covariances of columns
LEAST = 1e-4  # eigenvalue, in units in which each feature has the mean square 1
TINY = 1e-12  # variance, in records of norm 1
ROUNDED = 1e-14  # eigenvalue over the largest that is rounding
LEAST_POINTS, POINTS_PER_FEATURE = 500, 2
DOUBT = 0.1  # relative uncertainty of eigenvalues of covariances below the noise level
MOST_CORRELATED, LEAST_INDEPENDENT = 0.995, 1e-3  # correlation, and eigenvalue of all of them
ROUNDS = 5  # in which correlations of normal variables are found
LEAST_SPREAD = 1.0  # of a feature given others, over its own, squared: nothing is magnified
LEAST_STRETCH, MOST_STRETCH = 0.05, 20.0  # of the map, squared


@dataclass(frozen=True)
class BinnedRows:
    """Second moments per row, noisy, of features that are functions of bins.

    - ``found``: Ã/n, (D, D), with noise of ``scale`` s > 0 on the diagonal and s/√2 beside it.
    - ``tables``: features of each bin, (bins, features), of each column in turn, and of each pair.
    - ``one``: what an intercept has in the place of 1, the last feature.
    - ``pairs``: which columns the last tables are of, whose rows are bins of the one by bins of the
      other.
    """

    found: np.ndarray
    scale: float
    tables: tuple[np.ndarray, ...]
    one: float
    pairs: tuple[tuple[int, int], ...] = ()

    @property
    def places(self) -> list[slice]:
        """Where the features of each column and pair are."""
        ends = np.cumsum([0, *(table.shape[1] for table in self.tables)]).tolist()
        return [slice(start, stop) for start, stop in pairwise(ends)]

    @property
    def column(self) -> np.ndarray:
        """Number of the column or pair of each feature, (D,); -1 of an intercept."""
        found = np.full(len(self.found), -1)
        for j, place in enumerate(self.places):
            found[place] = j
        return found

    def shares(self, generator: Generator | None) -> list[np.ndarray]:
        """Share of each bin of each column, (bins,): the likeliest, or a draw."""
        columns = list(zip(self.tables, self.places, strict=True))
        columns = columns[: len(columns) - len(self.pairs)]
        return [self._shares(table, place, generator) for table, place in columns]

    def between(
        self, usual: np.ndarray, mean: np.ndarray, which: np.ndarray, generator: Generator | None
    ) -> np.ndarray:
        """By how much entries differ from usual ones, (D, D): the likeliest, or a draw.

        ``usual`` entries (D, D) are what they are where nothing is known, ``mean`` (D,) is of the
        features; entries other than ``which`` (D, D), symmetric, do not differ.
        """
        moved = np.zeros_like(usual)
        if not which.any():
            return moved
        deviation = deviations(usual, mean)
        unit = np.outer(deviation, deviation)
        noise = np.where(np.eye(len(usual)), self.scale, self.scale / math.sqrt(2.0))
        off, noise = (self.found - usual)[which] / unit[which], noise[which] / unit[which]
        rho = _likeliest(off, noise)
        kept = rho**2 / (rho**2 + noise**2)
        moved[which] = kept * off
        if generator is not None:
            spread = np.zeros_like(usual)
            spread[which] = rho * np.sqrt(1.0 - kept)
            edge = 2.0 * math.sqrt(float((spread**2).sum(axis=1).max()))
            upper = np.triu(generator.standard_normal(spread.shape) * spread)
            moved += (upper + np.triu(upper, 1).T) * min(1.0, WIDEST / max(edge, 1e-300))
        return moved * unit

    def _shares(self, table: np.ndarray, own: slice, generator: Generator | None) -> np.ndarray:
        """Share of each bin of a column, (bins,)."""
        bins, d = table.shape
        rows, columns = np.triu_indices(d)
        design = table[:, rows] * table[:, columns]
        entries = self.found[own, own][rows, columns]
        noise = np.where(rows == columns, self.scale, self.scale / math.sqrt(2.0))
        design = np.hstack([design, self.one * table])
        entries = np.append(entries, self.found[-1, own])
        noise = np.append(noise, np.full(d, self.scale / math.sqrt(2.0)))
        center = np.full(bins, 1.0 / bins)
        spread = _likeliest_spread(design / noise, (entries - center @ design) / noise) / bins
        if generator is not None:
            entries = entries + noise * generator.standard_normal(len(entries))
            center = center + spread * generator.standard_normal(bins)
        known = (np.eye(bins) / spread, np.full((1, bins), 1.0 / SURE))
        Q, R = np.linalg.qr(np.vstack([(design / noise).T, *known]))
        told = np.concatenate([entries / noise, center / spread, [1.0 / SURE]])
        return np.maximum(nnls(R, Q.T @ told)[0], LEAST / bins)

    def moments(self, generator: Generator, size: int) -> tuple[np.ndarray, np.ndarray]:
        """Axes, in columns, and eigenvalues of draws of second moments per row."""
        found = []
        for _ in range(size):
            points = self.points(generator)
            found.append(points.T @ points / len(points))
        values, axes = np.linalg.eigh(np.array(found))
        return axes, np.maximum(values, LEAST * values[:, -1:])

    def points(self, generator: Generator | None = None) -> np.ndarray:
        """Likeliest points (M, D), or with a generator a draw from those that are possible.

        Without a generator, their order is always the same.
        """
        M = max(LEAST_POINTS, POINTS_PER_FEATURE * len(self.found))
        order_of = generator or np.random.default_rng(0)
        both = zip(self.shares(generator), self.tables, strict=False)  # pairs have no shares
        codes = np.stack([_codes(shares, table[:, 0], M) for shares, table in both])
        columns = self.tables[: len(codes)]
        numbers = [j for j, T in enumerate(columns) if (np.diff(T[:-1, 0]) > 0.0).all()]
        order = order_of.permuted(np.tile(np.arange(M), (len(codes), 1)), axis=1)
        if len(numbers) > 1:
            order[numbers] = self._ranks(numbers, codes[numbers], generator, order_of)
        codes = np.take_along_axis(codes, order, axis=1)
        of_pairs = [codes[a] * len(columns[b]) + codes[b] for a, b in self.pairs]
        points = np.full((M, len(self.found)), self.one)
        for table, place, own in zip(self.tables, self.places, [*codes, *of_pairs], strict=True):
            points[:, place] = table[own]
        return points if len(numbers) == len(codes) else self._mapped(points, numbers, generator)

    def _ranks(
        self,
        numbers: list[int],
        codes: np.ndarray,
        generator: Generator | None,
        order_of: Generator,
    ) -> np.ndarray:
        """Rank of each point in each of several columns, whose first features ascend."""
        M = codes.shape[1]
        first = np.stack([self.tables[j][own, 0] for j, own in zip(numbers, codes, strict=True)])
        wanted = self._correlations([self.places[j].start for j in numbers], first, generator)
        normals = order_of.standard_normal((M, len(numbers)))
        normals = np.linalg.qr(normals - normals.mean(axis=0))[0]
        correlations, ranks = wanted, np.zeros(codes.shape, dtype=int)
        for _ in range(ROUNDS):
            values, vectors = np.linalg.eigh(_possible(correlations))
            mixed = normals @ (vectors * np.sqrt(values)) @ vectors.T
            ranks = mixed.argsort(axis=0).argsort(axis=0).T
            correlations = correlations + wanted - _attained(first, ranks)
        return ranks

    def _correlations(
        self, places: list[int], first: np.ndarray, generator: Generator | None
    ) -> np.ndarray:
        """Correlations of features (columns, M), as far as they are not noise, or a draw."""
        mean, variance = first.mean(axis=1), first.var(axis=1)
        found = self.found[np.ix_(places, places)] - np.outer(mean, mean)
        np.fill_diagonal(found, variance)  # shares tell it better
        found = believed(found, float(variance.mean()), self.scale, generator, DOUBT)
        deviation = np.sqrt(np.maximum(np.diag(found), 1e-300))
        found = np.clip(found / np.outer(deviation, deviation), -MOST_CORRELATED, MOST_CORRELATED)
        np.fill_diagonal(found, 1.0)
        return found

    def _mapped(
        self, points: np.ndarray, numbers: list[int], generator: Generator | None
    ) -> np.ndarray:
        """Points with the covariances that columns without an order have."""
        column = self.column
        n_columns = len(self.tables) - len(self.pairs)
        open_ = (column >= 0) & (column < n_columns) & ~np.isin(column, numbers)
        between = (column[:, None] != column) & (open_ | open_[:, None])
        mean = points.mean(axis=0)
        second_moments = points.T @ points / len(points)
        moved = self.between(second_moments, mean, between, generator)
        d = self.places[-1].stop  # an intercept's column is no feature
        off = (points - mean)[:, :d]
        root = deviations(second_moments, mean)[:d]
        values, vectors = np.linalg.eigh(off.T @ off / len(off) / np.outer(root, root))
        spread = np.sqrt(np.maximum(values, LEAST_SPREAD))
        half, inverse = (vectors * spread) @ vectors.T, (vectors / spread) @ vectors.T
        change = inverse @ (moved[:d, :d] / np.outer(root, root)) @ inverse
        values, vectors = np.linalg.eigh(np.eye(d) + change)
        stretch = np.sqrt(np.clip(values, LEAST_STRETCH, MOST_STRETCH))
        moved = off / root @ inverse @ (vectors * stretch) @ vectors.T @ half * root
        return np.hstack([moved + mean[:d], points[:, d:]])


def deviations(second_moments: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """Standard deviations of features, (D,); tiny and not 0 where one is always the same."""
    squares = np.diag(second_moments)
    return np.sqrt(np.maximum(squares - mean**2, np.maximum(LEAST * squares, TINY)))


def _likeliest_spread(design: np.ndarray, off: np.ndarray) -> float:
    """The σ of `SPREADS` under which entries designᵀ N(0, σ²/bins²) + N(0, 1) are likeliest."""
    design = design / len(design)  # many more entries than bins: (bins, bins) is small
    values, vectors = np.linalg.eigh(design @ design.T)
    told = values > ROUNDED * values.max()
    values, vectors = values[told], vectors[:, told]
    variance = 1.0 + np.multiply.outer(SPREADS**2, values)
    fit = np.sum((vectors.T @ (design @ off)) ** 2 / values / variance + np.log(variance), axis=1)
    return float(SPREADS[fit.argmin()])


def _likeliest(off: np.ndarray, noise: np.ndarray) -> float:
    """The ρ under which entries off ~ N(0, ρ² + noise²) are likeliest."""
    variance = DEVIATIONS[:, None] ** 2 + noise**2
    fit = np.sum(off**2 / variance + np.log(variance), axis=1)
    return float(DEVIATIONS[fit.argmin()])


def _codes(shares: np.ndarray, first: np.ndarray, size: int) -> np.ndarray:
    """Codes, as many of each as its share says, in the order of their first feature."""
    order = np.argsort(first, kind="stable")
    ends = np.cumsum(shares[order])
    places = (np.arange(size) + 0.5) / size * ends[-1]
    return order[np.minimum(np.searchsorted(ends, places), len(shares) - 1)]


def _attained(first: np.ndarray, ranks: np.ndarray) -> np.ndarray:
    """Correlations of features in an order; 1 where one does not vary."""
    found = np.take_along_axis(first, ranks, axis=1)
    found = found - found.mean(axis=1, keepdims=True)
    found /= np.maximum(np.sqrt((found**2).sum(axis=1, keepdims=True)), 1e-300)
    correlations = found @ found.T
    np.fill_diagonal(correlations, 1.0)
    return correlations


def _possible(correlations: np.ndarray) -> np.ndarray:
    """Correlations that are positive definite."""
    values, vectors = np.linalg.eigh(correlations)
    found = (vectors * np.maximum(values, LEAST_INDEPENDENT)) @ vectors.T
    deviation = np.sqrt(np.diag(found))
    return found / np.outer(deviation, deviation)
