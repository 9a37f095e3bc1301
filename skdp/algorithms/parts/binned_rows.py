"""Points at which rows of bins are believed to be, given their noisy second moments.

A row of bins is known from its code in each column, and its features are far from normal where most
rows are in a few bins. Its codes are drawn from what `BinnedMoments` tells:

1. A column's bins have their shares, to the row: of M points, the codes are fixed, and only their
   order is open.
2. Columns of numbers, whose first feature ascends from bin to bin, are in the order of normal
   variables, whose correlations are those that give the first features the correlations they are
   found to have (a Gaussian copula). Other columns are in random order.
3. Covariances with columns that have no order are put on the points by a linear map, which leaves
   what is within a column, and between numbers, nearly as it is.

Means over such points stand in for those over rows in `skdp.algorithms.parts.logit_rows`.
"""

from __future__ import annotations

import numpy as np

from skdp.algorithms.parts.binned_moments import BinnedMoments, deviations
from skdp.algorithms.parts.noisy_moments import believed
from skdp.fitting.streams import SecureStream

LEAST_POINTS, POINTS_PER_FEATURE = 500, 2
DOUBT = 0.1  # relative uncertainty of eigenvalues of covariances below the noise level
MOST_CORRELATED, LEAST_INDEPENDENT = 0.995, 1e-3  # correlation, and eigenvalue of all of them
ROUNDS = 5  # in which correlations of normal variables are found
LEAST_SPREAD = 1.0  # of a feature given others, over its own, squared: nothing is magnified
LEAST_STRETCH, MOST_STRETCH = 0.05, 20.0  # of the map, squared


class BinnedRows(BinnedMoments):
    """Rows of bins, of which so much is self."""

    def points(self, stream: SecureStream | None = None) -> np.ndarray:
        """Likeliest points (M, D), or some from what is possible.

        Without a stream, their order is always the same.
        """
        M = max(LEAST_POINTS, POINTS_PER_FEATURE * len(self.found))
        generator = stream.generator if stream else np.random.default_rng(0)
        both = zip(self.shares(stream), self.tables, strict=False)  # pairs have no shares
        codes = np.stack([_codes(shares, table[:, 0], M) for shares, table in both])
        columns = self.tables[: len(codes)]
        numbers = [j for j, T in enumerate(columns) if (np.diff(T[:-1, 0]) > 0.0).all()]
        order = generator.permuted(np.tile(np.arange(M), (len(codes), 1)), axis=1)
        if len(numbers) > 1:
            order[numbers] = self._ranks(numbers, codes[numbers], stream, generator)
        codes = np.take_along_axis(codes, order, axis=1)
        of_pairs = [codes[a] * len(columns[b]) + codes[b] for a, b in self.pairs]
        points = np.full((M, len(self.found)), self.one)
        for table, place, own in zip(self.tables, self.places, [*codes, *of_pairs], strict=True):
            points[:, place] = table[own]
        return points if len(numbers) == len(codes) else self._mapped(points, numbers, stream)

    def _ranks(
        self,
        numbers: list[int],
        codes: np.ndarray,
        stream: SecureStream | None,
        generator: np.random.Generator,
    ) -> np.ndarray:
        """Rank of each point in each of several columns, whose first features ascend."""
        M = codes.shape[1]
        first = np.stack([self.tables[j][own, 0] for j, own in zip(numbers, codes, strict=True)])
        wanted = self._correlations([self.places[j].start for j in numbers], first, stream)
        normals = generator.standard_normal((M, len(numbers)))
        normals = np.linalg.qr(normals - normals.mean(axis=0))[0]
        correlations, ranks = wanted, np.zeros(codes.shape, dtype=int)
        for _ in range(ROUNDS):
            values, vectors = np.linalg.eigh(_possible(correlations))
            mixed = normals @ (vectors * np.sqrt(values)) @ vectors.T
            ranks = mixed.argsort(axis=0).argsort(axis=0).T
            correlations = correlations + wanted - _attained(first, ranks)
        return ranks

    def _correlations(
        self, places: list[int], first: np.ndarray, stream: SecureStream | None
    ) -> np.ndarray:
        """Correlations of features (columns, M), as far as they are not noise, or a draw."""
        mean, variance = first.mean(axis=1), first.var(axis=1)
        found = self.found[np.ix_(places, places)] - np.outer(mean, mean)
        np.fill_diagonal(found, variance)  # shares tell it better
        found = believed(found, float(variance.mean()), self.scale, stream, DOUBT)
        deviation = np.sqrt(np.maximum(np.diag(found), 1e-300))
        found = np.clip(found / np.outer(deviation, deviation), -MOST_CORRELATED, MOST_CORRELATED)
        np.fill_diagonal(found, 1.0)
        return found

    def _mapped(
        self, points: np.ndarray, numbers: list[int], stream: SecureStream | None
    ) -> np.ndarray:
        """Points with the covariances that columns without an order have."""
        column = self.column
        n_columns = len(self.tables) - len(self.pairs)
        open_ = (column >= 0) & (column < n_columns) & ~np.isin(column, numbers)
        between = (column[:, None] != column) & (open_ | open_[:, None])
        mean = points.mean(axis=0)
        second_moments = points.T @ points / len(points)
        moved = self.between(second_moments, mean, between, stream)
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
