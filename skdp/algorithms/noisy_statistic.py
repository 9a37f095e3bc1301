"""The posterior of θ given a noisy statistic s ~ N(F(θ), V(θ) + ν² I) and the prior N(0, τ² I).

F and V are those of `normal_rows`. Laplace's approximation by Gauss–Newton steps is enough where
there is much data or little noise; Metropolis–Hastings chains from there on follow the curvature of
F across a wide posterior. V is kept at its value at the mode: how it changes with θ is known less
well than F, and adds little.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from skdp._random import SecureStream
from skdp.algorithms.normal_rows import FEW_OUTPUTS, NormalRows

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
    information = _Dense if given.rows.score.n_outputs <= FEW_OUTPUTS else _Kronecker
    for _ in range(_NEWTON_STEPS):
        here = information(given, theta)
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


class _Kronecker:
    """The same for many outputs, where H is a Kronecker product and V a multiple of it."""

    def __init__(self, given: Given, theta: np.ndarray) -> None:
        of_outputs, of_rows, ratio = given.rows.factors(theta)
        (a, self.U), (b, self.V) = np.linalg.eigh(of_outputs), np.linalg.eigh(of_rows)
        self.h = np.maximum(np.outer(a, b), 0.0)
        self.q, self.prior = ratio * self.h + given.variance, given.prior_scale
        self.precision = self.h**2 / self.q + 1.0 / self.prior**2

    def step(self, off: np.ndarray, theta: np.ndarray) -> np.ndarray:
        """Gauss–Newton step from θ where s is off by so much."""
        gradient = self.h / self.q * self._rotated(off) - self._rotated(theta) / self.prior**2
        return (self.U @ (gradient / self.precision) @ self.V.T).reshape(1, -1)

    def _rotated(self, vector: np.ndarray) -> np.ndarray:
        return self.U.T @ vector.reshape(self.h.shape) @ self.V

    def covariance(self) -> np.ndarray:
        """Inverse of the information."""
        basis = np.kron(self.U, self.V)
        return ((basis / self.precision.ravel()) @ basis.T)[None]
