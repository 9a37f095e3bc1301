"""Which second moments of the rows a noisy version of them leaves possible.

Rows have norm ≤ 1 here and Ã/n = A/n + noise, where the noise is of the Gaussian orthogonal
ensemble with scale s. Along the eigenvectors of Ã/n, eigenvalues that stand out of the noise are
known but for the noise. Those below the noise level are *not* known to be alike: where columns are
correlated they are of very different sizes, and a direction whose true eigenvalue is a tenth of the
believed one has intervals that are ten times too narrow. So A is drawn from its posterior, under
Wishart priors of few to many degrees of freedom ν given the trace, for which all traces are alike:
with ν = d + 1 all positive matrices are, and a large ν makes eigenvalues equal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import gammaln, ndtr, ndtri

from skdp.fitting.streams import SecureStream

LEAST_ROOM = 1e-12  # of features beside an intercept that takes next to all of the norm
LEAST_TRACE = 1e-6  # of the largest possible
LEAST_VALUE = 1e-3  # of the mean eigenvalue
FREEDOM = np.array([1.0, 2.0, 8.0])  # degrees of freedom, over dimension + 1, as likely each
STEPS = 40  # of a chain, over the dimension
AXES = 0.3  # of the steps are along one axis


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

    @property
    def room(self) -> float:
        """Largest possible trace of the features, > 0."""
        return max(LEAST_ROOM, 1.0 - self.of_one)

    def beliefs(self, n: int, stream: SecureStream | None = None, size: int = 1) -> Beliefs:
        """Return n times the likeliest A/n, or draws from what is possible."""
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
        largest, smallest = self.room, LEAST_TRACE * self.room
        traces = np.full(len(chance), found)
        if sd > 0.0:
            low, high = ndtr((smallest - found) / sd), ndtr((largest - found) / sd)
            traces += sd * ndtri(low + chance * (high - low))
        return np.clip(traces, smallest, largest) / d

    def _block(
        self, block: np.ndarray, average: np.ndarray, stream: SecureStream | None
    ) -> np.ndarray:
        """Second moments of the features, (B, d, d), of mean eigenvalues (B,).

        Eigenvalues within the spectrum ±s√(2d) of the noise about their common mean are
        unknown; those beyond are kept in the share that is best in Frobenius norm (Gavish &
        Donoho, *Optimal shrinkage of singular values*, 2017).
        """
        found, vectors = np.linalg.eigh(block)
        d, bulk = len(found), average
        for _ in range(3):  # the mean of those below the noise depends on which are
            off = found - bulk[:, None]
            shares = 1.0 - 2.0 * d * self.scale**2 / np.maximum(off**2, 1e-300)
            shares = np.sqrt(np.maximum(shares, 0.0))
            drowned = np.maximum((1.0 - shares).sum(axis=1), 1.0)
            bulk = np.maximum(
                (d * average - np.sum(shares * found, axis=1)) / drowned, 0.01 * average
            )
        known = shares * found
        if stream is None:
            return (vectors * (known + (1.0 - shares) * bulk[:, None])[0]) @ vectors.T
        start = self._start(known + (1.0 - shares) * bulk[:, None], shares, average, stream)
        return vectors @ self._walked(found, start, average, stream) @ vectors.T

    def _start(
        self, values: np.ndarray, shares: np.ndarray, average: np.ndarray, stream: SecureStream
    ) -> np.ndarray:
        """Draw what is known with its noise, along the eigenvectors of Ã/n: (B, d, d)."""
        size, d = values.shape
        normals = stream.normal((size, d, d))
        upper = np.triu(normals, 1) / np.sqrt(2.0)
        wobble = upper + upper.transpose(0, 2, 1)
        wobble[:, range(d), range(d)] = normals[:, range(d), range(d)] + values / self.scale
        roots = (self.scale * np.sqrt(shares)) ** 0.5
        wobble *= roots[:, :, None] * roots[:, None, :]
        wobble[:, range(d), range(d)] += (1.0 - np.sqrt(shares)) * values
        found, vectors = np.linalg.eigh(wobble)
        whole = d * average[:, None]
        found = np.clip(found, LEAST_VALUE * average[:, None], whole)
        found *= np.minimum(1.0, whole / found.sum(axis=1, keepdims=True))
        return (vectors * found[:, None]) @ vectors.transpose(0, 2, 1)

    def _walked(
        self, found: np.ndarray, start: np.ndarray, average: np.ndarray, stream: SecureStream
    ) -> np.ndarray:
        """Chains over A/n ≻ 0 given Ã/n = diag(found) and the other trace: (B, d, d).

        Each step adds t u uᵀ for a direction u that is drawn without a look at A. Both likelihoods
        are normal in t, and A stays positive where t > −1/uᵀA⁻¹u, so that t is a truncated normal.
        The Wishart prior of A given its trace is taken in by acceptance, and its degrees of freedom
        are drawn along.
        """
        size, d = start.shape[:2]
        chains = _Chains(start, found)
        target, precision = self.trace[0] - self.of_one, self.trace[1] ** -2
        weight, least = self.scale**-2 + precision, 0.1 * LEAST_VALUE * average
        freedoms = FREEDOM * (d + 1.0)
        normaliser = gammaln(freedoms * d / 2)
        normaliser -= gammaln(freedoms[:, None] / 2 - np.arange(d) / 2).sum(axis=1)
        n_steps, g = STEPS * d, stream.generator
        directions = _directions(n_steps, size, d, g)
        chances, coins = g.random((n_steps, size)), np.log(g.random((n_steps, size)))
        spread = weight**-0.5
        for step in range(n_steps):
            if step % 10 == 0:
                log_p = (freedoms - d - 1) / 2 * chains.log_det()[:, None] + normaliser
                log_p -= (freedoms * d / 2) * np.log(chains.trace)[:, None]
                log_p -= np.log(-np.log(g.random(log_p.shape)))  # Gumbel noise: the largest
                freedom = freedoms[log_p.argmax(axis=1)]  # is a draw
            off, beta = chains.along(*(of[step] for of in directions))
            mean = -(off * self.scale**-2 + (chains.trace - target) * precision) / weight
            room = self.room - chains.trace
            t = _truncated(mean, spread, least - 1.0 / beta, room, chances[step])
            with np.errstate(invalid="ignore"):  # a step that rounding takes too far is not gone
                gain = (freedom - d - 1) / 2 * np.log1p(t * beta)
                gain -= (freedom - d - 1) * d / 2 * np.log1p(t / chains.trace)
            chains.add(np.where(coins[step] < gain, t, 0.0))
        return chains.A


class _Chains:
    """Positive matrices (B, d, d), moved along directions with two entries each."""

    def __init__(self, start: np.ndarray, found: np.ndarray) -> None:
        self.A, self.found = start, found
        self.trace, self._which = np.trace(start, axis1=1, axis2=2), np.arange(len(start))

    def log_det(self) -> np.ndarray:
        """Logarithms of the determinants (B,); rounding of the inverses goes."""
        self._inverse = np.linalg.inv(self.A)
        return np.linalg.slogdet(self.A)[1]

    def along(
        self, i: np.ndarray, j: np.ndarray, cos: np.ndarray, sin: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return uᵀ(A − diag(found))u and uᵀA⁻¹u, (B,), for u = cos e_i + sin e_j."""
        b, A = self._which, self.A
        self._direction = i, j, cos, sin
        off = cos**2 * (A[b, i, i] - self.found[i]) + sin**2 * (A[b, j, j] - self.found[j])
        off += 2.0 * cos * sin * A[b, i, j]
        self._solved = cos[:, None] * self._inverse[b, i] + sin[:, None] * self._inverse[b, j]
        self._beta = cos * self._solved[b, i] + sin * self._solved[b, j]
        return off, self._beta

    def add(self, t: np.ndarray) -> None:
        """Add t u uᵀ, with t of shape (B,)."""
        (i, j, cos, sin), b = self._direction, self._which
        self.A[b, i, i] += t * cos**2
        self.A[b, j, j] += t * sin**2
        self.A[b, i, j] += t * cos * sin
        self.A[b, j, i] = self.A[b, i, j]
        less = (t / (1.0 + t * self._beta))[:, None] * self._solved
        self._inverse -= less[:, :, None] * self._solved[:, None, :]
        self.trace = self.trace + t


def _directions(
    n_steps: int, size: int, d: int, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Pairs of axes, and cosine and sine of the angle to the first: (n_steps, B) each.

    Axes alone, and angles of every size: eigenvalues may differ by orders of magnitude.
    """
    shape = n_steps, size
    i = generator.integers(d, size=shape)
    j = (i + generator.integers(1, max(d, 2), size=shape)) % d
    slope = generator.choice([-1.0, 1.0], shape) * np.exp(2.0 * generator.standard_normal(shape))
    slope[generator.random(shape) < AXES] = 0.0
    if d == 1:
        slope[...] = 0.0
    cos = 1.0 / np.sqrt(1.0 + slope**2)
    return i, j, cos, slope * cos


def _truncated(
    mean: np.ndarray, sd: float, low: np.ndarray, high: np.ndarray, chances: np.ndarray
) -> np.ndarray:
    """Quantiles of normals between bounds low ≤ 0 ≤ high; in the lower tail, which is precise."""
    high = np.maximum(high, 0.0)
    a, b = (low - mean) / sd, (high - mean) / sd
    flip = a > 0.0
    a, b = np.where(flip, -b, a), np.where(flip, -a, b)
    p, q = ndtr(a), ndtr(b)
    z = np.clip(ndtri(np.clip(p + chances * (q - p), 1e-300, 1.0 - 1e-16)), a, b)
    return np.clip(mean + sd * np.where(flip, -z, z), np.minimum(low, 0.0), high)
