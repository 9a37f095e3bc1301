"""What the score of a linear model is expected to be, if the rows were normal.

A private fit must not look at the rows again for every question that an inference has about their
curvature. If rows are N(m, S), all of its answers follow from m and S: the logits Θx of a row are
normal, so the expected score and its derivatives are integrals over K numbers (Stein's identity),

    E[x Ψ(Θx)]          = m E[Ψ] + U E[zΨ]
    E[Ψ'(Θx) ⊗ x xᵀ]    = E[Ψ'] ⊗ (S + m mᵀ) + E[z Ψ'] ⊗ (m uᵀ + u mᵀ) + E[(z zᵀ − I) Ψ'] ⊗ u uᵀ

with Θx = Θm + Lz, z ~ N(0, I), L Lᵀ = Θ S Θᵀ and U = S Θᵀ L⁻ᵀ. What rows that are not normal change
about the derivative is released once and added as a ``correction``.

All arrays have a leading axis B: several beliefs about the rows, side by side.

The posterior of θ given a noisy statistic s ~ N(F(θ), V(θ) + ν² I) and the prior N(0, τ² I).

F and V are those of `NormalRows`. Laplace's approximation by Gauss–Newton steps is enough where
there is much data or little noise; Metropolis–Hastings chains from there on follow the curvature of
F across a wide posterior. V is kept at its value at the mode: how it changes with θ is known less
well than F, and adds little.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.stats import norm, qmc

from skdp._random import SecureStream
from skdp.models.bounded_scores import Score

_NODES = 40
_QUASI_RANDOM_NODES = 256
LEAST = 1e-12  # of a slope, in records of norm 1: less is none


@dataclass(frozen=True)
class NormalRows:
    """Beliefs about the rows, and the score that is summed over them.

    Parameters
    ----------
    n_rows : int
        Number n of rows.
    mean : ndarray of shape (B, D)
        m.
    covariance : ndarray of shape (B, D, D)
        S.
    score : Score
        Of one record.
    correction : ndarray of shape (B, KD, KD) or None
        Added to the slope of the expected score, everywhere.
    reference : ndarray of shape (B, KD) or None
        Where the correction adds nothing to the score itself.
    offset : (float, float)
        Mean and variance of what is added to the logits of a row, independent of it.
    """

    n_rows: int
    mean: np.ndarray
    covariance: np.ndarray
    score: Score
    correction: np.ndarray | None = None
    reference: np.ndarray | None = None
    offset: tuple[float, float] = (0.0, 0.0)

    def __len__(self) -> int:
        return len(self.mean)

    def expected(self, theta: np.ndarray) -> np.ndarray:
        """F(θ), (B, KD), up to a constant: expected scores are differences of it."""
        _, U, logits, z, weights = self._integral(theta)
        psi = self.score.value(logits)
        of_mean, of_z = weights @ psi, (weights[:, None] * z).T @ psi
        F = of_mean[:, :, None] * self.mean[:, None, :] + of_z.transpose(0, 2, 1) @ U
        F = self.n_rows * F.reshape(len(theta), -1)
        if self.correction is not None and self.reference is not None:
            F = F + np.einsum("bij,bj->bi", self.correction, theta - self.reference)
        return F

    def slope(self, theta: np.ndarray, *, corrected: bool = True) -> np.ndarray:
        """H(θ) = ∂F/∂θ, (B, KD, KD)."""
        H = self._curvature(theta, self.score.slope)
        return H + self.correction if corrected and self.correction is not None else H

    def variance(self, theta: np.ndarray) -> np.ndarray:
        """Covariance of the sum of scores at the truth θ, (B, KD, KD)."""
        V = self._curvature(theta, self.score.variance)
        if self.correction is None:
            return V
        slopes = np.trace(self.slope(theta, corrected=False), axis1=1, axis2=2)
        ratio = np.trace(V, axis1=1, axis2=2) / np.maximum(slopes, LEAST)
        return V + ratio[:, None, None] * self.correction

    def _integral(self, theta: np.ndarray):
        K = self.score.n_outputs
        z, weights = nodes(K)
        Theta = theta.reshape(len(theta), K, -1)
        ThetaS = Theta @ self.covariance
        V = ThetaS @ Theta.transpose(0, 2, 1)
        jitter = 1e-9 * (1.0 + np.trace(V, axis1=1, axis2=2))  # V is 0 where θ is
        mean, variance = self.offset
        L = np.linalg.cholesky(V + (variance + jitter[:, None, None]) * np.eye(K))
        U = np.linalg.solve(L, ThetaS)
        logits = (Theta @ self.mean[:, :, None]).transpose(0, 2, 1) + z @ L.transpose(0, 2, 1)
        logits += mean
        return Theta, U, logits, z, weights

    def _curvature(self, theta: np.ndarray, of_record) -> np.ndarray:
        Theta, U, logits, z, weights = self._integral(theta)
        m, size = self.mean, theta.shape[1]
        W = of_record(logits)
        second_moment = self.covariance + m[:, :, None] * m[:, None, :]
        K, flat = Theta.shape[1], W.reshape(*W.shape[:2], -1)
        zeroth = (weights @ flat).reshape(-1, K, K)
        H = np.einsum("bij,bde->bidje", zeroth, second_moment)
        first = ((weights[:, None] * z).T @ flat).reshape(-1, K, K, K)
        cross = np.einsum("bije,bd->bidje", np.einsum("baij,bae->bije", first, U), m)
        pairs = weights[:, None, None] * (z[:, :, None] * z[:, None, :] - np.eye(K))
        second = (pairs.reshape(len(z), -1).T @ flat).reshape(-1, K, K, K, K)
        half = np.einsum("bacij,bad->bcijd", second, U)
        H = H + cross + cross.transpose(0, 3, 4, 1, 2)
        H = H + np.einsum("bcijd,bce->bidje", half, U)
        H = self.n_rows * H.reshape(-1, size, size)
        return (H + H.transpose(0, 2, 1)) / 2


@lru_cache(maxsize=8)
def nodes(n_outputs: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights of integrals over N(0, I): Gauss–Hermite, or whitened Sobol points."""
    if n_outputs == 1:
        nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)
        return nodes[:, None], weights / weights.sum()
    sobol: Any = qmc.Sobol  # whose seed has another name from one SciPy to the next
    half = norm.ppf(sobol(n_outputs, scramble=True, seed=0).random(_QUASI_RANDOM_NODES // 2))
    z = np.concatenate([half, -half])
    z = z @ np.linalg.inv(np.linalg.cholesky(z.T @ z / len(z))).T
    return z, np.full(len(z), 1.0 / len(z))


def shrunk(matrix: np.ndarray, scale: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Take Gaussian-orthogonal-ensemble noise out of a symmetric matrix, eigenvalue by eigenvalue.

    The noise has scale s on the diagonal and s/√2 beside it; its spectrum ends at ±s√(2D).
    Eigenvalues λ within are noise and become 0, those beyond become √(λ² − 2 s² D), which is the
    best in Frobenius norm (Gavish & Donoho, *Optimal shrinkage of singular values*, 2017).

    Returns
    -------
    matrix, eigenvectors, shares
        The shares say how much of each eigenvalue was kept, in [0, 1].
    """
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    kept = np.sqrt(
        np.maximum(1.0 - 2.0 * scale**2 * len(values) / np.maximum(values**2, 1e-300), 0.0)
    )
    return (vectors * (kept * values)) @ vectors.T, vectors, kept


def wobble(vectors: np.ndarray, scales: np.ndarray, stream: SecureStream) -> np.ndarray:
    """Draw Gaussian-orthogonal-ensemble noise whose scale is √(s_i s_j) along eigenvectors i, j."""
    normals = stream.normal((len(scales), len(scales)))
    upper = np.triu(normals, 1) / np.sqrt(2.0)
    roots = np.sqrt(scales)
    noise = (upper + upper.T + np.diag(np.diag(normals))) * np.outer(roots, roots)
    return vectors @ noise @ vectors.T


def believed(
    block: np.ndarray, average: float, scale: float, stream: SecureStream | None, doubt: float
) -> np.ndarray:
    """Take noise out of second moments, and put what is unknown back in where a stream is given.

    Eigenvalues that drown in the noise are believed to have the mean that the trace leaves them,
    give or take a share ``doubt``.

    Parameters
    ----------
    block : ndarray of shape (d, d)
        Second moments and noise.
    average : float
        Mean eigenvalue, which the trace tells better than any other.
    scale : float
        Of the noise; see `shrunk`.
    stream : SecureStream or None
        Of a draw from what is possible; None gives the likeliest.
    doubt : float
        Where the spectrum of the least that is unknown ends, over the drowned eigenvalues.
    """
    d = len(block)
    eigenvalues, bulk = np.linalg.eigvalsh(block), average
    for _ in range(3):  # the mean of those that drown depends on which do
        _, vectors, shares = shrunk(block - bulk * np.eye(d), scale)
        drowned = max(1.0, float(np.sum(1.0 - shares)))
        bulk = max((d * average - float(shares @ eigenvalues)) / drowned, 0.1 * average)
    values = bulk + shares * (eigenvalues - bulk)
    if stream is None:
        return (vectors * values) @ vectors.T
    least = (doubt * float(values.min())) ** 2 / (2 * d)
    roots = np.maximum(shares, least / max(least + scale**2, 1e-300)) ** 0.25
    normals = stream.normal((d, d))
    upper = np.triu(normals, 1) / np.sqrt(2.0)
    wobble = (upper + upper.T + np.diag(np.diag(normals))) * scale * np.outer(roots, roots)
    wobble -= np.trace(wobble) / d * np.eye(d)
    return vectors @ (np.diag(values) + wobble) @ vectors.T


def floored(matrix: np.ndarray, least: float) -> np.ndarray:
    """Raise eigenvalues of a symmetric matrix to a least one."""
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    return (vectors * np.maximum(values, least)) @ vectors.T


def bounded_correction(
    slope: np.ndarray, correction: np.ndarray, least: float = 0.2, most: float = 5.0
) -> np.ndarray:
    """Cut a correction D so that least·H ⪯ H + D ⪯ most·H for the slope H ≻ 0."""
    values, vectors = np.linalg.eigh(slope)
    root = np.sqrt(np.maximum(values, max(1e-9 * float(values.max()), LEAST)))
    half, inverse = (vectors * root) @ vectors.T, (vectors / root) @ vectors.T
    relative, U = np.linalg.eigh(inverse @ correction @ inverse)
    return half @ ((U * (np.clip(1.0 + relative, least, most) - 1.0)) @ U.T) @ half


_NEWTON_STEPS = 8
_LONGEST_STEP = 3.0  # in the logit of a record of norm 1
_CHAIN_STEPS = 200


@dataclass(frozen=True)
class Given:
    """A statistic and what it depends on; arrays have a leading axis B of beliefs about the rows.

    Parameters
    ----------
    rows : NormalRows
        Beliefs about the rows, B of them.
    statistic : ndarray of shape (B, P)
        s.
    variance : float
        ν².
    prior_scale : float
        τ.
    """

    rows: NormalRows
    statistic: np.ndarray
    variance: float
    prior_scale: float

    def noise(self, theta: np.ndarray) -> np.ndarray:
        """V(θ) + ν² I, (B, P, P); a released correction must not make V negative."""
        V, vectors = np.linalg.eigh(self.rows.variance(theta))
        values = np.maximum(V, 0.0) + self.variance
        return (vectors * values[:, None, :]) @ vectors.transpose(0, 2, 1)


def laplace(given: Given, start: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mode (B, P) and covariance (B, P, P) of θ, by Gauss–Newton steps."""
    # A step past logits of a few units would land where all records are saturated and tell nothing.
    theta, longest = start, min(given.prior_scale, _LONGEST_STEP)
    for _ in range(_NEWTON_STEPS):
        here = _Dense(given, theta)
        step = here.step(given.statistic - given.rows.expected(theta), theta)
        length = np.linalg.norm(step, axis=1, keepdims=True)
        theta = theta + step * np.minimum(1.0, longest / np.maximum(length, 1e-300))
        if length.max() < 1e-4 * longest:
            break
    return theta, here.covariance()


def chains(given: Given, start: np.ndarray, stream: SecureStream) -> np.ndarray:
    """Draw θ, (n_draws, P): random-walk chains, one a belief, from Laplace's approximation."""
    theta, covariance = laplace(given, start)
    precision = np.linalg.inv(given.noise(theta))
    spread, vectors = np.linalg.eigh((covariance + covariance.transpose(0, 2, 1)) / 2.0)
    root = vectors * np.sqrt(np.maximum(spread, 0.0))[:, None, :]

    def log_density(theta: np.ndarray) -> np.ndarray:
        off = given.statistic - given.rows.expected(theta)
        fit = np.sum((off[:, None, :] @ precision)[:, 0] * off, axis=1)
        return -0.5 * (fit + np.sum(theta**2, axis=1) / given.prior_scale**2)

    def normals() -> np.ndarray:
        return (root @ stream.normal((*theta.shape, 1)))[:, :, 0]

    theta = theta + normals()
    density, kept = log_density(theta), []
    scale = 1.7 / np.sqrt(theta.shape[1])
    for step in range(_CHAIN_STEPS):
        proposal = theta + scale * normals()
        proposed = log_density(proposal)
        accepted = np.log(stream.generator.random(len(theta))) < proposed - density
        theta = np.where(accepted[:, None], proposal, theta)
        density = np.where(accepted, proposed, density)
        if step >= _CHAIN_STEPS // 2 and step % 5 == 0:
            kept.append(theta)
    return np.concatenate(kept)


class _Dense:
    """What s says of θ near a point, to second order: HᵀQ⁻¹H + I/τ² with Q = V + ν² I."""

    def __init__(self, given: Given, theta: np.ndarray) -> None:
        H, self.prior = given.rows.slope(theta), given.prior_scale
        self.QH = np.linalg.solve(given.noise(theta), H)
        self.precision = H @ self.QH + np.eye(theta.shape[1]) / self.prior**2

    def step(self, off: np.ndarray, theta: np.ndarray) -> np.ndarray:
        """Gauss–Newton step from θ where s is off by so much."""
        gradient = np.einsum("bij,bi->bj", self.QH, off) - theta / self.prior**2
        return np.linalg.solve(self.precision, gradient[:, :, None])[:, :, 0]

    def covariance(self) -> np.ndarray:
        """Inverse of the information."""
        return np.linalg.inv(self.precision)
