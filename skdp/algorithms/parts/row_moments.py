"""Which second moments of the rows a noisy version of them leaves possible.

Rows have norm ≤ 1 here and Ã/n = A/n + noise, where the noise is of the Gaussian orthogonal
ensemble with scale s. Along the eigenvectors of Ã/n, eigenvalues that stand out of the noise are
known but for the noise. Those that drown in it are *not* known to be alike: where columns are
correlated they are of very different sizes, and a direction whose true eigenvalue is a tenth of the
believed one has intervals that are ten times too narrow. So that block is drawn from a Wishart
distribution, which is wide where its degrees of freedom are no more than the dimension, with the
trace that is left for it; of several draws one is taken by its likelihood.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri

from skdp._random import SecureStream

LEAST_TRACE = 1e-6  # of the largest possible
LEAST_VALUE = 1e-3  # of the mean eigenvalue
FREEDOM = np.array([1.0, 2.0, 8.0])  # degrees of freedom, over dimension + 1, as likely each
MOST_CANDIDATES, ENTRIES = 16, 400


class Beliefs(NamedTuple):
    """Several possible A = Σ x xᵀ, by their eigenvalues (B, D) and eigenvectors (B, D, D)."""

    values: np.ndarray
    vectors: np.ndarray


@dataclass(frozen=True)
class RowMoments:
    """Second moments per row, noisy, and what else is known of them.

    Parameters
    ----------
    found : ndarray of shape (D, D)
        Ã/n.
    scale : float
        s ≥ 0.
    of_one : float
        Known square of the intercept's column, the last one; 0 where there is none.
    trace : (float, float)
        Another noisy version of the trace of A/n, intercept included, and the deviation of its
        noise, infinite for none.
    """

    found: np.ndarray
    scale: float
    of_one: float
    trace: tuple[float, float]

    def beliefs(self, n: int, stream: SecureStream | None = None, size: int = 1) -> Beliefs:
        """N times the likeliest A/n, or draws from what is possible."""
        d = len(self.found) - (self.of_one > 0.0)
        chance = stream.generator.random(size) if stream else np.full(1, 0.5)
        average = self._average(d, chance)
        whole = np.zeros((len(chance), *self.found.shape))
        whole[:, :d, :d] = self._block(self.found[:d, :d], average, stream)
        if self.of_one > 0.0:
            column, spread = self.found[d, :d], self.scale / np.sqrt(2.0)
            kept = max(0.0, 1.0 - d * spread**2 / max(float(column @ column), 1e-300))
            noise = stream.normal((size, d)) if stream else np.zeros((1, d))
            column = kept * column + np.sqrt(kept) * spread * noise
            whole[:, d, :d] = whole[:, :d, d] = column
            whole[:, d, d] = self.of_one
        values, vectors = np.linalg.eigh(whole)
        return Beliefs(n * np.maximum(values, LEAST_VALUE * average[:, None]), vectors)

    def _average(self, d: int, chance: np.ndarray) -> np.ndarray:
        """Mean eigenvalue of the features: quantiles of a normal between public bounds."""
        found, sd = float(np.trace(self.found[:d, :d])), self.scale * np.sqrt(d)
        other, sd_of_other = self.trace
        if np.isfinite(sd_of_other) and sd > 0.0:
            share = sd**2 / (sd**2 + sd_of_other**2)
            found += share * (other - self.of_one - found)
            sd *= np.sqrt(1.0 - share)
        largest = 1.0 - self.of_one
        smallest = LEAST_TRACE * largest
        traces = np.full(len(chance), found)
        if sd > 0.0:
            low, high = ndtr((smallest - found) / sd), ndtr((largest - found) / sd)
            traces += sd * ndtri(low + chance * (high - low))
        return np.clip(traces, smallest, largest) / d

    def _block(
        self, block: np.ndarray, average: np.ndarray, stream: SecureStream | None
    ) -> np.ndarray:
        """Second moments of the features, (B, d, d), of mean eigenvalues (B,).

        Eigenvalues within the spectrum ±s√(2d) of the noise about their common mean drown; those
        beyond are kept in the share that is best in Frobenius norm (Gavish & Donoho, *Optimal
        shrinkage of singular values*, 2017).
        """
        found, vectors = np.linalg.eigh(block)
        d, bulk = len(found), average
        for _ in range(3):  # the mean of those that drown depends on which do
            off = found - bulk[:, None]
            shares = 1.0 - 2.0 * d * self.scale**2 / np.maximum(off**2, 1e-300)
            shares = np.sqrt(np.maximum(shares, 0.0))
            drowned = np.maximum((1.0 - shares).sum(axis=1), 1.0)
            bulk = np.maximum((d * average - shares @ found) / drowned, 0.1 * average)
        known = shares * found
        if stream is None:
            return (vectors * (known + (1.0 - shares) * bulk[:, None])[0]) @ vectors.T
        inner = self._drowned(found, known, np.sqrt((1.0 - shares) * bulk[:, None]), stream)
        normals = stream.normal((len(bulk), d, d))
        upper = np.triu(normals, 1) / np.sqrt(2.0)
        wobble = upper + upper.transpose(0, 2, 1)
        wobble[:, range(d), range(d)] = normals[:, range(d), range(d)]
        roots = self.scale**0.5 * shares**0.25
        wobble *= roots[:, :, None] * roots[:, None, :]
        wobble -= np.trace(wobble, axis1=1, axis2=2)[:, None, None] / d * np.eye(d)
        return vectors @ (inner + wobble) @ vectors.T

    def _drowned(
        self, found: np.ndarray, known: np.ndarray, roots: np.ndarray, stream: SecureStream
    ) -> np.ndarray:
        """Add what drowned to diag(known), along the eigenvectors: (B, d, d)."""
        size, d = known.shape
        n_candidates = max(1, min(MOST_CANDIDATES, ENTRIES // d))
        dimension = float(np.mean(np.sum(roots**2, axis=1) / (roots.max(axis=1) ** 2 + 1e-300)))
        candidates = []
        for at in range(n_candidates):
            freedom = int(np.ceil(FREEDOM[at % len(FREEDOM)] * (dimension + 1.0)))
            G = roots[:, :, None] * stream.normal((size, d, freedom))
            W = G @ G.transpose(0, 2, 1)
            scale = np.sum(roots**2, axis=1) / np.maximum(np.trace(W, axis1=1, axis2=2), 1e-300)
            W *= scale[:, None, None]
            W[:, range(d), range(d)] += known
            candidates.append(W)
        drawn = np.array(candidates)
        off = drawn.copy()
        off[:, :, range(d), range(d)] -= found
        fit = -np.sum(off**2, axis=(2, 3)) / (2.0 * self.scale**2)
        weights = np.exp(fit - fit.max(axis=0))
        below = np.cumsum(weights, axis=0) < stream.generator.random(size) * weights.sum(axis=0)
        return drawn[below.sum(axis=0), np.arange(size)]
