"""The posterior of θ and of the scales τ_b of its prior, one per block, given normal information.

Where one τ serves all of θ, coordinates along the eigenvectors of A = Σ x xᵀ are independent under
the prior too. With θ_i ~ N(0, τ_b²) for the coordinates of block b they are not: what releases say
is a precision Λ and a vector ℓ, Λ diagonal along the eigenvectors, and θ has the precision Λ +
diag(1/τ²).

Scales are drawn by Gibbs' sampler in two parametrisations in turn: τ_b given θ, where data are
strong, and τ_b given φ = θ/τ_b, where they are weak; there the log-likelihood of τ_b is
φ_bᵀ(ℓ − Λθ₋b) τ_b − φ_bᵀΛφ_b τ_b²/2.

References
----------
Y. Yu, X.-L. Meng, *To Center or Not to Center: That Is Not the Question*, Journal of Computational
and Graphical Statistics 2011.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from skdp.algorithms.parts.prior_scales import PriorScales
from skdp.algorithms.parts.residual_releases import Given, Information
from skdp.algorithms.parts.row_moments import Beliefs
from skdp.fitting.streams import SecureStream

EM_STEPS = 5  # after each release
SWEEPS = 30


def rotated(precision: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """diag(precision), of shape (..., D), along eigenvectors (B, D, D)."""
    return vectors.transpose(0, 2, 1) @ (precision[..., None] * vectors)


def given(information: Information, precision: np.ndarray, beliefs: Beliefs) -> Given:
    """Take in priors of precision (B, D), in place of `residual_releases.with_prior`."""
    prior = rotated(precision, beliefs.vectors)
    mean, variance = np.empty_like(information.linear), np.empty_like(information.linear)
    log_det = np.empty(mean.shape[:2])
    for k, whole in enumerate(_precisions(information, prior)):
        found = np.linalg.inv(whole)
        mean[:, k] = (found @ information.linear[:, k, :, None])[..., 0]
        variance[:, k] = np.diagonal(found, axis1=1, axis2=2)
        log_det[:, k] = np.linalg.slogdet(whole)[1]
    gain = np.sum(information.linear * mean, axis=2) - log_det
    gain += np.log(precision).sum(axis=-1)[..., None]
    evidence = information.log_likelihood + 0.5 * gain
    return Given(mean[:, :, None], variance[:, :, None], evidence[:, :, None])


def covariances(
    information: Information, precision: np.ndarray, beliefs: Beliefs, weights: np.ndarray
) -> np.ndarray:
    """Covariances of θ, (B, D, D), averaged over σ with weights (B, K)."""
    prior = rotated(precision, beliefs.vectors)
    total = np.zeros_like(prior)
    for k, whole in enumerate(_precisions(information, prior)):
        total += weights[:, k, None, None] * np.linalg.inv(whole)
    return beliefs.vectors @ total @ beliefs.vectors.transpose(0, 2, 1)


def likeliest(
    prior: PriorScales, scales: np.ndarray, information: Information, k: int, point: Beliefs
) -> np.ndarray:
    """Move τ, (blocks,), to where it is likelier, by steps of the EM algorithm at one σ."""
    of_data, linear = _in_the_open(information, np.array([k]), point)
    for _ in range(EM_STEPS):
        covariance = np.linalg.inv(of_data[0] + np.diag(prior.precision(scales)))
        scales = prior.likeliest(covariance @ linear[0], np.diag(covariance))
    return scales


def drawn(
    prior: PriorScales,
    scales: np.ndarray,
    information: Information,
    weights: np.ndarray,
    beliefs: Beliefs,
    stream: SecureStream,
) -> np.ndarray:
    """Draw τ, (B, blocks), one for each belief.

    Parameters
    ----------
    prior : PriorScales
        Of the blocks.
    scales : ndarray of shape (blocks,)
        Where the chains start.
    information : Information
        What is known of θ for each belief and σ.
    weights : ndarray of shape (K,)
        Of each σ, summing to 1.
    beliefs : Beliefs
        About A.
    stream : SecureStream
        Of all that is drawn.
    """
    size, blocks = len(beliefs.values), np.array(prior.blocks)
    at = np.searchsorted(np.cumsum(weights), stream.generator.random(size) * (1.0 - 1e-12))
    of_data, linear = _in_the_open(information, np.minimum(at, len(weights) - 1), beliefs)
    scales = np.repeat(scales[None], size, axis=0)
    for _ in range(SWEEPS):
        whole = of_data + prior.precision(scales)[:, :, None] * np.eye(len(blocks))
        root = np.linalg.inv(np.linalg.cholesky(whole)).transpose(0, 2, 1)
        right = transposed_times(root, linear) + stream.normal(linear.shape)
        theta = (root @ right[..., None])[..., 0]
        scales = prior.drawn(theta, stream.generator.random((2, *scales.shape)))
        uniform = stream.generator.random((2, *scales.shape))
        for b in range(scales.shape[1]):
            own = blocks == b
            phi = theta[:, own] / scales[:, [b]]
            pull = of_data[:, own] @ np.where(own, 0.0, theta)[..., None]
            slope = np.sum(phi * (linear[:, own] - pull[..., 0]), axis=1)
            curvature = np.einsum("bi,bij,bj->b", phi, of_data[:, own][:, :, own], phi)
            scales[:, b] = prior.drawn_by(slope, curvature, uniform[:, :, b])
            theta[:, own] = phi * scales[:, [b]]
    return scales


def transposed_times(matrices: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """Mᵀv for (B, D, D) and (B, D)."""
    return np.einsum("bji,bj->bi", matrices, vectors)


def _precisions(information: Information, prior: np.ndarray) -> Iterator[np.ndarray]:
    """Precisions (B, D, D) at each σ in turn, along the eigenvectors."""
    for k in range(information.precision.shape[1]):
        of_data = information.precision[:, k]
        yield prior + of_data[:, :, None] * np.eye(of_data.shape[1])


def _in_the_open(
    information: Information, at: np.ndarray, beliefs: Beliefs
) -> tuple[np.ndarray, np.ndarray]:
    """Λ (B, D, D) and ℓ (B, D) in the coordinates of θ, at one σ for each belief."""
    which, U = np.arange(len(at)), beliefs.vectors
    of_data = (U * information.precision[which, at][:, None]) @ U.transpose(0, 2, 1)
    return of_data, (U @ information.linear[which, at][..., None])[..., 0]
