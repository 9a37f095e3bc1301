"""Which second moments of rows of public features a noisy version of them leaves possible.

Where features are known functions of bins, their second moments A₀ under bins that are equally
frequent and independent between columns are public, and those of most rows are not far from them.
In the units in which A₀ has the diagonal 1, an entry of A/n is normal around that of A₀, with a
deviation ρ that is the likeliest given the noisy entries: one for pairs of features of one column,
and one for pairs of two columns. Given Ã/n all entries are normal then, and independent; the
eigenvalues are cut from below, for A is positive.

In `row_moments` nothing is known of A but its trace.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from skdp._random import SecureStream
from skdp.algorithms.parts.row_moments import Beliefs

DEVIATIONS = np.geomspace(0.005, 1.0, 40)  # ρ, to choose from
LEAST = 0.002  # eigenvalue, over that of A₀
WIDEST = 0.5  # edge of the spectrum of what is unknown of A, over A₀


@dataclass(frozen=True)
class UsualMoments:
    """Second moments per row, noisy, and what they usually are.

    Parameters
    ----------
    found : ndarray of shape (D, D)
        Ã/n.
    scale : float
        s ≥ 0 of its noise, on the diagonal; s/√2 beside it.
    usual : ndarray of shape (D, D)
        A₀.
    column : ndarray of shape (D,)
        Number of the column of each feature; that of a feature that is 1, if there is one, is −1.
    """

    found: np.ndarray
    scale: float
    usual: np.ndarray
    column: np.ndarray

    def beliefs(self, n: int, stream: SecureStream | None = None, size: int = 1) -> Beliefs:
        """Return n times the likeliest A/n, or draws from what is possible."""
        D, diagonal = len(self.found), np.diag(self.usual)
        unit = np.sqrt(np.outer(diagonal, diagonal))
        noise = self.scale / unit * np.sqrt(0.5 + 0.5 * np.eye(D))
        off = (self.found - self.usual) / unit
        one = self.column < 0
        known = np.outer(one, one)
        between = ~(one[:, None] | one | (self.column[:, None] == self.column))
        mean, deviation = self.usual / unit, np.zeros((D, D))
        for group in (between, ~between & ~known):
            if group.any():
                rho = _likeliest(off[group], noise[group])
                kept = rho**2 / (rho**2 + noise[group] ** 2)
                mean[group] += kept * off[group]
                deviation[group] = rho * np.sqrt(1.0 - kept)
        whole = np.repeat(mean[None], size, axis=0)
        if stream is not None:
            edge = 2.0 * np.sqrt((deviation**2).sum(axis=1).max())
            upper = np.triu(stream.normal((size, D, D)) * deviation)
            wobble = upper + np.triu(upper, 1).transpose(0, 2, 1)
            whole += wobble * min(1.0, WIDEST / max(edge, 1e-300))
        values, vectors = np.linalg.eigh(whole)
        whole = (vectors * np.maximum(values, LEAST)[:, None]) @ vectors.transpose(0, 2, 1)
        values, vectors = np.linalg.eigh(whole * unit)
        return Beliefs(n * np.maximum(values, 1e-300), vectors)


def _likeliest(off: np.ndarray, noise: np.ndarray) -> float:
    """The ρ under which entries off ~ N(0, ρ² + noise²) are likeliest."""
    variance = DEVIATIONS[:, None] ** 2 + noise**2
    fit = np.sum(off**2 / variance + np.log(variance), axis=1)
    return float(DEVIATIONS[fit.argmin()])
