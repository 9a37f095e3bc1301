"""Which second moments of rows of bins a noisy version of them leaves possible.

The features of a column are a public function of its bin, t_b for bin b. The second moments of one
column, and its features' means, which an intercept's column has, are linear in the shares p_b of
the rows that are in each bin. So many noisy entries tell few numbers, and p is found by least
squares with p ≥ 0, Σ p = 1 and a normal prior around equal shares, of the deviation under which the
noisy entries are likeliest. Entries of two columns are those of independent columns and a
covariance, which is normal around 0 with a deviation ρ in the units of the features' own
deviations, the likeliest again. Those of features of two columns together are those of independent
columns too, and such a covariance.

Draws solve the same with noise added anew to entries and to the prior's mean (Orieux, Féron,
Giovannelli 2012), which gives the posterior exactly where no p_b is 0.

References
----------
F. Orieux, O. Féron, J.-F. Giovannelli, *Sampling High-Dimensional Gaussian Distributions for
General Linear Inverse Problems*, IEEE Signal Processing Letters 2012.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise, permutations
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import nnls

from skdp.fitting.streams import SecureStream

SPREADS = np.array([0.3, 1.0, 3.0, 10.0])  # deviation of shares over the mean one, to choose from
SURE = 1e-4  # deviation of the sum of all shares
DEVIATIONS = np.geomspace(0.003, 1.0, 40)  # ρ, to choose from
WIDEST = 0.5  # edge of the spectrum of what is unknown of the covariances of columns
LEAST = 1e-4  # eigenvalue, in units in which each feature has the mean square 1
TINY = 1e-12  # variance, in records of norm 1
ROUNDED = 1e-14  # eigenvalue over the largest that is rounding


class Normals(NamedTuple):
    """That of a generator."""

    generator: np.random.Generator

    def normal(self, shape: Any) -> np.ndarray:
        """Draw numbers."""
        return self.generator.standard_normal(shape)


Source = SecureStream | Normals


@dataclass(frozen=True)
class BinnedMoments:
    """Second moments per row, noisy, of features that are functions of bins.

    Parameters
    ----------
    found : ndarray of shape (D, D)
        Ã/n.
    scale : float
        s > 0 of its noise, on the diagonal; s/√2 beside it.
    tables : tuple of ndarray
        Features of each bin, (bins, features), of each column in turn, and of each pair.
    one : float
        What an intercept has in the place of 1, the last feature.
    pairs : tuple of (int, int)
        Which columns the last tables are of, whose rows are bins of the one by bins of the other.
    """

    found: np.ndarray
    scale: float
    tables: tuple[np.ndarray, ...]
    one: float
    pairs: tuple[tuple[int, int], ...] = ()

    def beliefs(
        self, n: float, stream: Source | None = None, size: int = 1
    ) -> tuple[np.ndarray, np.ndarray]:
        """Axes, in columns, and eigenvalues of n times the likeliest A/n, or of draws."""
        whole = np.array([self._whole(stream) for _ in range(size)])
        root = np.sqrt(np.diagonal(whole, axis1=1, axis2=2))
        unit = root[:, :, None] * root[:, None]
        values, vectors = np.linalg.eigh(whole / unit)
        whole = (vectors * np.maximum(values, LEAST)[:, None]) @ vectors.transpose(0, 2, 1)
        if self.pairs:  # whose deviations are of all columns and of the intercept
            root = np.sqrt(np.diagonal(whole, axis1=1, axis2=2))
            whole = whole / (root[:, :, None] * root[:, None])
        values, vectors = np.linalg.eigh(whole * unit)
        return vectors, n * np.maximum(values, 1e-300)

    def _whole(self, stream: Source | None) -> np.ndarray:
        """A/n, (D, D), whose covariances between columns may leave it a little below 0."""
        D, column, shares = len(self.found), self.column, self.shares(stream)
        mean, blocks = np.full(D, self.one), np.zeros((D, D))
        given: list[list[Any]] = []  # of each column, features that depend on it, with their means
        for j, (table, own) in enumerate(zip(self.tables, self.places, strict=True)):
            if j < len(shares):
                joint = shares[j]
                given.append([(own, table)])
            else:
                a, b = self.pairs[j - len(shares)]
                cells = table.reshape(len(shares[a]), len(shares[b]), table.shape[1])
                given[a].append((own, np.einsum("b,abf->af", shares[b], cells)))
                given[b].append((own, np.einsum("a,abf->bf", shares[a], cells)))
                joint = np.outer(shares[a], shares[b]).ravel()
            mean[own] = joint @ table
            blocks[own, own] = (joint * table.T) @ table
        within = column[:, None] == column
        usual = np.where(within, blocks, np.outer(mean, mean))
        for share, features in zip(shares, given, strict=True):
            for (one, means), (other, others) in permutations(features, 2):
                usual[one, other] += (share * (means - mean[one]).T) @ (others - mean[other])
        usual[-1, -1] = self.one**2
        of_pair, of_one = column >= len(shares), column < 0
        between = ~within & ~of_one & ~of_one[:, None]  # the others are told by the shares
        between |= of_pair | of_pair[:, None]
        found = usual + self.between(usual, mean, between, stream)
        least = np.maximum(LEAST * np.diag(usual), TINY)  # a feature may be 0, as of one level
        np.fill_diagonal(found, np.maximum(np.diag(found), least))
        return found

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

    def shares(self, stream: Source | None) -> list[np.ndarray]:
        """Share of each bin of each column, (bins,): the likeliest, or a draw."""
        columns = list(zip(self.tables, self.places, strict=True))
        columns = columns[: len(columns) - len(self.pairs)]
        return [self._shares(table, place, stream) for table, place in columns]

    def between(
        self, usual: np.ndarray, mean: np.ndarray, which: np.ndarray, stream: Source | None
    ) -> np.ndarray:
        """By how much entries differ from usual ones, (D, D): the likeliest, or a draw.

        Parameters
        ----------
        usual : ndarray of shape (D, D)
            What they are where nothing is known of them.
        mean : ndarray of shape (D,)
            Of the features.
        which : ndarray of shape (D, D)
            The entries, symmetric; others do not differ.
        stream : SecureStream or None
            Of a draw.
        """
        moved = np.zeros_like(usual)
        if not which.any():
            return moved
        deviation = np.where(self.column < 0, self.one, deviations(usual, mean))
        unit = np.outer(deviation, deviation)
        noise = np.where(np.eye(len(usual)), self.scale, self.scale / math.sqrt(2.0))
        off, noise = (self.found - usual)[which] / unit[which], noise[which] / unit[which]
        rho = _likeliest(off, noise)
        kept = rho**2 / (rho**2 + noise**2)
        moved[which] = kept * off
        if stream is not None:
            spread = np.zeros_like(usual)
            spread[which] = rho * np.sqrt(1.0 - kept)
            edge = 2.0 * math.sqrt(float((spread**2).sum(axis=1).max()))
            upper = np.triu(stream.normal(spread.shape) * spread)
            moved += (upper + np.triu(upper, 1).T) * min(1.0, WIDEST / max(edge, 1e-300))
        return moved * unit

    def _shares(self, table: np.ndarray, own: slice, stream: Source | None) -> np.ndarray:
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
        if stream is not None:
            entries = entries + noise * stream.normal(len(entries))
            center = center + spread * stream.normal(bins)
        precision = (design / noise**2) @ design.T + np.eye(bins) / spread**2 + 1.0 / SURE**2
        linear = design @ (entries / noise**2) + center / spread**2 + 1.0 / SURE**2
        root = np.linalg.cholesky(precision)
        found = nnls(root.T, np.linalg.solve(root, linear))[0]
        return np.maximum(found, LEAST / bins)


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
