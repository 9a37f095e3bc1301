"""Which second moments of rows of bins a noisy version of them leaves possible.

The features of a column are a public function of its bin, t_b for bin b. The second moments of one
column, and its features' means, which an intercept's column has, are linear in the shares p_b of
the rows that are in each bin. So many noisy entries tell few numbers, and p is found by least
squares with p ≥ 0, Σ p = 1 and a wide normal prior around equal shares. Entries of two columns are
those of independent columns and a covariance, which is normal around 0 with a deviation ρ in the
units of the features' own deviations, the ρ under which the noisy entries are likeliest. Those of
features of two columns together are those of independent columns too, and such a covariance.

Draws solve the same with noise added anew to entries and to the prior's mean (Orieux, Féron,
Giovannelli 2012), which gives the posterior exactly where no p_b is 0. Without a model of bins
nothing is known of A but its trace: see `row_moments`.

References
----------
F. Orieux, O. Féron, J.-F. Giovannelli, *Sampling High-Dimensional Gaussian Distributions for
General Linear Inverse Problems*, IEEE Signal Processing Letters 2012.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise, permutations
from typing import Any

import numpy as np
from scipy.optimize import nnls

from skdp._random import SecureStream
from skdp.algorithms.parts.row_moments import Beliefs

SPREAD = 3.0  # deviation of a share, over the mean share
SURE = 1e-4  # deviation of the sum of all shares
DEVIATIONS = np.geomspace(0.003, 1.0, 40)  # ρ, to choose from
WIDEST = 0.5  # edge of the spectrum of what is unknown of the covariances of columns
LEAST = 1e-4  # eigenvalue, in units in which each feature has the mean square 1


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
        What an intercept has in the place of 1, the last feature; 0 for no intercept.
    pairs : tuple of (int, int)
        Which columns the last tables are of, whose rows are bins of the one by bins of the other.
    """

    found: np.ndarray
    scale: float
    tables: tuple[np.ndarray, ...]
    one: float
    pairs: tuple[tuple[int, int], ...] = ()

    def beliefs(self, n: int, stream: SecureStream | None = None, size: int = 1) -> Beliefs:
        """Return n times the likeliest A/n, or draws from what is possible."""
        whole = np.array([self._whole(stream) for _ in range(size)])
        root = np.sqrt(np.diagonal(whole, axis1=1, axis2=2))
        unit = root[:, :, None] * root[:, None]
        values, vectors = np.linalg.eigh(whole / unit)
        whole = (vectors * np.maximum(values, LEAST)[:, None]) @ vectors.transpose(0, 2, 1)
        if self.pairs:  # whose deviations are of all columns and of the intercept
            root = np.sqrt(np.diagonal(whole, axis1=1, axis2=2))
            whole = whole / (root[:, :, None] * root[:, None])
        values, vectors = np.linalg.eigh(whole * unit)
        return Beliefs(n * np.maximum(values, 1e-300), vectors)

    def _whole(self, stream: SecureStream | None) -> np.ndarray:
        """A/n, (D, D), whose covariances between columns may leave it a little below 0."""
        D = len(self.found)
        mean, blocks, column = np.full(D, self.one), np.zeros((D, D)), np.full(D, -1)
        shares: list[np.ndarray] = []  # of each column
        given: list[list[Any]] = []  # of each, the features that depend on it, with their means
        n_columns = len(self.tables) - len(self.pairs)
        ends = np.cumsum([0, *(table.shape[1] for table in self.tables)]).tolist()
        for j, (table, place) in enumerate(zip(self.tables, pairwise(ends), strict=True)):
            own = slice(*place)
            if j < n_columns:
                joint = self._shares(table, own, stream)
                shares.append(joint)
                given.append([(own, table)])
            else:
                a, b = self.pairs[j - n_columns]
                cells = table.reshape(len(shares[a]), len(shares[b]), table.shape[1])
                given[a].append((own, np.einsum("b,abf->af", shares[b], cells)))
                given[b].append((own, np.einsum("a,abf->bf", shares[a], cells)))
                joint = np.outer(shares[a], shares[b]).ravel()
            mean[own], column[own] = joint @ table, j
            blocks[own, own] = (joint * table.T) @ table
        within = column[:, None] == column
        usual = np.where(within, blocks, np.outer(mean, mean))
        for share, features in zip(shares, given, strict=True):
            for (one, means), (other, others) in permutations(features, 2):
                usual[one, other] += (share * (means - mean[one]).T) @ (others - mean[other])
        if self.one:
            usual[-1, -1] = self.one**2
        of_pair, of_one = column >= n_columns, column < 0
        between = ~within & ~of_one & ~of_one[:, None]  # the others are told by the shares
        between |= of_pair | of_pair[:, None]
        if not between.any():
            return usual
        variance = np.maximum(np.diag(usual) - mean**2, LEAST * np.diag(usual))
        variance[of_one] = self.one**2
        unit = np.sqrt(np.outer(variance, variance))
        noise = np.where(np.eye(D), self.scale, self.scale / math.sqrt(2.0))
        off, noise = (self.found - usual)[between] / unit[between], noise[between] / unit[between]
        rho = _likeliest(off, noise)
        kept = rho**2 / (rho**2 + noise**2)
        moved = np.zeros((D, D))
        moved[between] = kept * off
        if stream is not None:
            spread = np.zeros((D, D))
            spread[between] = rho * np.sqrt(1.0 - kept)
            edge = 2.0 * math.sqrt(float((spread**2).sum(axis=1).max()))
            upper = np.triu(stream.normal((D, D)) * spread)
            moved += (upper + np.triu(upper, 1).T) * min(1.0, WIDEST / max(edge, 1e-300))
        found = usual + moved * unit
        np.fill_diagonal(found, np.maximum(np.diag(found), LEAST * np.diag(usual)))
        return found

    def _shares(self, table: np.ndarray, own: slice, stream: SecureStream | None) -> np.ndarray:
        """Share of each bin of a column, (bins,): the likeliest, or a draw."""
        bins, d = table.shape
        rows, columns = np.triu_indices(d)
        design = table[:, rows] * table[:, columns]
        entries = self.found[own, own][rows, columns]
        noise = np.where(rows == columns, self.scale, self.scale / math.sqrt(2.0))
        if self.one:
            design = np.hstack([design, self.one * table])
            entries = np.append(entries, self.found[-1, own])
            noise = np.append(noise, np.full(d, self.scale / math.sqrt(2.0)))
        center, spread = np.full(bins, 1.0 / bins), SPREAD / bins
        if stream is not None:
            entries = entries + noise * stream.normal(len(entries))
            center = center + spread * stream.normal(bins)
        precision = (design / noise**2) @ design.T + np.eye(bins) / spread**2 + 1.0 / SURE**2
        linear = design @ (entries / noise**2) + center / spread**2 + 1.0 / SURE**2
        root = np.linalg.cholesky(precision)
        found = nnls(root.T, np.linalg.solve(root, linear))[0]
        return np.maximum(found, LEAST / bins)


def _likeliest(off: np.ndarray, noise: np.ndarray) -> float:
    """The ρ under which entries off ~ N(0, ρ² + noise²) are likeliest."""
    variance = DEVIATIONS[:, None] ** 2 + noise**2
    fit = np.sum(off**2 / variance + np.log(variance), axis=1)
    return float(DEVIATIONS[fit.argmin()])
