"""What noisy sums of clipped residuals say of a linear model: the likelihood of the releases.

All releases are data with a known likelihood. If residuals at θ_t are N(0, v_t), then by Stein's
identity, with κ_t = P(|r| ≤ c_t), A = Σ x_i x_iᵀ and noise of deviation ν,

    E g̃_t = (κ_t/c_t) A (θ − θ_t),   Cov(g̃_t, g̃_s) = Q_ts A + 1{t=s} ν² I,   Q = σ² h hᵀ + q qᵀ,

h_t = κ_t/c_t and q_t² = E ψ_t² − h_t² v_t, and E h̃_t = n a (E ψ_t² − ½), v_t = σ² + E(θ − θ_t)ᵀ
(A/n)(θ − θ_t). Given A, σ, v and τ, θ is normal with independent coordinates along A's
eigenvectors. Q has rank two, so that two combinations of the T releases hold all that depends on θ.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from skdp.algorithms.parts.row_moments import Beliefs

CLIPS = np.array([1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0])  # c over the residual scale, to choose from
MODEL_ERROR = 0.15  # relative error of a scale √v_t, for rows that are not normal, far from θ
UNSHARED = 0.2  # of what ψ makes of the data's noise, not in common to two clips


class State(NamedTuple):
    """All of it is a function of what has been released. Rows have norm ≤ 1 here."""

    mean: np.ndarray  # θ_t, (D,)
    clip: float  # c_t
    excess: np.ndarray  # v_t − σ² of the steps so far, (t,)
    around: tuple[float, float, float, float]  # centre and half width for ln σ, and for ln τ
    gram: np.ndarray | None = None  # Ã, (D, D)
    sums: np.ndarray = np.empty((0, 0))  # (g̃_t, h̃_t, k̃_t), (t, D + 2)
    queries: np.ndarray = np.empty((0, 0))  # θ_t, (t, D)
    clips: np.ndarray = np.empty(0)  # c_t, (t,)
    products: np.ndarray | None = None  # Σ s sᵀ of scores at the last θ_t and c_t, (D, D)
    unit: float = 1.0  # of the targets
    unit_found: bool = True
    scales: np.ndarray = np.empty(0)  # τ, (blocks,), where each block of θ has one


class Information(NamedTuple):
    """What is known of θ given σ, along the eigenvectors of A, before any prior."""

    precision: np.ndarray  # (B, K, D)
    linear: np.ndarray  # (B, K, D): precision times the mean
    log_likelihood: np.ndarray  # (B, K), at θ = 0 and up to a constant of each belief


class Given(NamedTuple):
    """What is known of θ given σ and τ."""

    mean: np.ndarray  # (B, K, J, D)
    variance: np.ndarray  # (B, K, J, D)
    log_evidence: np.ndarray  # (B, K, J)


def with_prior(information: Information, prior_variances: np.ndarray) -> Given:
    """Take in the priors N(0, τ² I), for τ² of shape (J,)."""
    variances = prior_variances[:, None]
    precision = information.precision[:, :, None] + 1.0 / variances
    mean = information.linear[:, :, None] / precision
    gain = information.linear[:, :, None] * mean - np.log(precision * variances)
    evidence = information.log_likelihood[:, :, None] + 0.5 * gain.sum(axis=3)
    return Given(mean, 1.0 / precision, evidence)


class Mixed(NamedTuple):
    """Mean and variance of θ given σ along the eigenvectors of one A, whatever τ is, (K, D)."""

    mean: np.ndarray
    variance: np.ndarray
    followed: np.ndarray  # (K,): parameters that followed the data

    @classmethod
    def over(cls, given: Given, information: Information, log_prior: np.ndarray) -> Mixed:
        """Average over τ, whose log prior is (J,)."""
        evidence = given.log_evidence[0] + log_prior
        weights = np.exp(evidence - evidence.max(axis=1, keepdims=True))
        weights = (weights / weights.sum(axis=1, keepdims=True))[:, None]
        mean = (weights @ given.mean[0])[:, 0]
        of_noise = (weights @ given.variance[0])[:, 0]
        between = (weights @ given.mean[0] ** 2)[:, 0] - mean**2
        followed = np.sum(information.precision[0] * of_noise, axis=1)
        return cls(mean, of_noise + np.maximum(between, 0.0), followed)


class ResidualModel:
    """Likelihood of the sums of residuals.

    Parameters
    ----------
    n : int
        Number of rows.
    noise : float
        ν > 0.
    scale_weight : float
        a > 0.
    """

    def __init__(self, n: int, noise: float, scale_weight: float) -> None:
        self.n, self.noise, self.scale_weight = n, noise, scale_weight

    def best_clip(self, curvature: float) -> float:
        """Clip, over the residual scale, that tells most about one direction of θ."""
        slope, second, *_ = moments(CLIPS, 1.0)
        information = (slope / CLIPS) ** 2 / (curvature * second + self.noise**2)
        return float(CLIPS[information.argmax()])

    def excess(self, point: Beliefs, state: State, given: Mixed) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of (θ − θ_t)ᵀ(A/n)(θ − θ_t), (K, T)."""
        a = point.values[0] / self.n
        squares = (given.mean[:, None] - state.queries @ point.vectors[0]) ** 2
        variances = given.variance[:, None]
        return (squares + variances) @ a, (2 * variances**2 + 4 * variances * squares) @ a**2

    def factors(
        self, typical: float, state: State, log_scales: np.ndarray, excess: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return h and q, (K, T), and the variance N (T,) that releases have each for itself.

        N is that in the middle of the grid: what the model lacks must not speak of σ.
        """
        D = state.queries.shape[1]
        s2 = np.exp(2 * log_scales)[:, None]
        v = s2 + excess
        slope, second, _, of_inside = moments(state.clips, v)
        h = slope / state.clips
        q = np.sqrt(np.maximum(second - h**2 * v, 0.0))
        far = (self.n * excess) * typical / D  # mean square of A(θ − θ_t), one coordinate
        shared = s2 / v  # of what is random in ψ: at θ_t far from θ rows are, not residuals
        alone = typical * q**2 * (1.0 - (1.0 - UNSHARED) * shared**2)
        unsure = slope - of_inside * state.clips**2 / v  # ∂κ/∂ln √v, up to its sign
        N = self.noise**2 + (MODEL_ERROR * unsure / state.clips) ** 2 * far + alone
        return h, q * shared, N[len(N) // 2]

    def information(
        self, beliefs: Beliefs, state: State, log_scales: np.ndarray, excess: np.ndarray
    ) -> Information:
        """What the g̃_t say of θ given σ and v, and of σ.

        With N the noise of each release, N^-½ Q N^-½ = Wᵀ Λ W for two orthonormal rows W; along an
        eigenvector of A with value a the combinations W have variances aΛ + 1, all others 1.
        """
        a = beliefs.values[:, None, None]
        h, q, N = self.factors(float(beliefs.values.mean()), state, log_scales, excess)
        root = 1.0 / np.sqrt(N)
        h, q = h * root, q * root
        spectrum, W = _rank_two(np.exp(log_scales)[:, None] * h, q)
        found = state.sums[:, : beliefs.values.shape[1]]
        found = (found * root[:, None]) @ beliefs.vectors  # (B, T, D)
        there = state.queries @ beliefs.vectors
        y = W @ found[:, None] + a * ((W * h[:, None]) @ there[:, None])
        p = (W @ h[:, :, None])[None]
        variance = spectrum[None, :, :, None] * a + 1.0
        slopes = a * p / variance
        spread = beliefs.values[:, None] * there  # A θ_t
        squares = np.sum(found**2, axis=(1, 2))[:, None]
        squares = squares + 2 * np.sum(found * spread, axis=2) @ h.T
        squares = squares + np.sum(spread**2, axis=2) @ (h**2).T
        fit = squares + np.sum(np.log(variance) + y**2 / variance - y**2, axis=(2, 3))
        return Information(np.sum(a * p * slopes, axis=2), np.sum(slopes * y, axis=2), -0.5 * fit)

    def sandwich(
        self,
        beliefs: Beliefs,
        scores: Beliefs,
        state: State,
        log_scale: float,
        excess: np.ndarray,
        second: float,
        prior: float | np.ndarray,
    ) -> np.ndarray:
        """Covariance of θ given A, σ and τ, (B, D, D), with scores that scatter as was released.

        The mean of θ is P⁻¹ Σ_t C_t (g̃_t + h_t A θ_t) along A's eigenvectors, with what the
        releases and the prior 1/τ² say in P. Here Cov(g̃_t, g̃_s) is Q_ts V/E ψ² and not Q_ts A, for
        beliefs about V = Σ s sᵀ, so that the covariance of θ is P⁻¹(J + I/τ²)P⁻¹, which is P⁻¹
        where V = E ψ² A. A prior of several τ is given as its precision along A's eigenvectors,
        (B, D, D).
        """
        h, q, N = self.factors(
            float(beliefs.values.mean()), state, np.array([log_scale]), excess[None]
        )
        root, sigma = 1.0 / np.sqrt(N), math.exp(log_scale)
        spectrum, W = _rank_two(sigma * h * root, q * root)
        a = beliefs.values[:, None]
        slopes = a * (W[0] @ (h * root)[0])[:, None] / (spectrum[0][:, None] * a + 1.0)
        C = (W[0] * root).T @ slopes  # (B, T, D)
        of_h, of_q = sigma * (h @ C), q @ C
        P = np.sum(C * a * h[0][:, None], axis=1)
        rotated = beliefs.vectors.transpose(0, 2, 1) @ scores.vectors
        V = (rotated * scores.values[:, None]) @ rotated.transpose(0, 2, 1) / second
        J = V * (of_h.transpose(0, 2, 1) * of_h + of_q.transpose(0, 2, 1) * of_q)
        d, noise = np.arange(J.shape[-1]), np.sum(C**2 * N[:, None], axis=1)
        if isinstance(prior, float):
            J[:, d, d] += noise + prior
            U = beliefs.vectors / (prior + P)[:, None]
        else:
            J[:, d, d] += noise
            J += prior
            U = beliefs.vectors @ np.linalg.inv(prior + P[:, :, None] * np.eye(len(d)))
        return U @ J @ U.transpose(0, 2, 1)

    def scale_evidence(
        self,
        state: State,
        log_scales: np.ndarray,
        excess: np.ndarray,
        unsure: np.ndarray,
        followed: np.ndarray,
    ) -> np.ndarray:
        """Log-likelihood (K,) of the h̃_t, whose data noise and whose v_t they share.

        ``unsure`` is the variance of the excess, ``followed`` the number of parameters that have
        followed the residuals: n less these degrees of freedom are left of them.
        """
        a, n = self.scale_weight, self.n
        s2 = np.exp(2 * log_scales)[:, None]
        v = s2 + np.maximum(excess - 2 * s2 * followed[:, None] / n, -0.8 * s2)
        _, second, fourth, slope = moments(state.clips, v)
        off = state.sums[:, -2] - n * a * (second - 0.5)
        data = a * np.sqrt(n * np.maximum(fourth - second**2, 0.0))
        model = a * n * slope * np.sqrt(unsure) / v
        shared = data * s2 / v  # Corr(r_t², r_s²) of two residuals of one record
        far = MODEL_ERROR * a * n * slope * np.maximum(excess, 0.0) / v
        alone = self.noise**2 + far**2 + data**2 - (1.0 - UNSHARED) * shared**2
        cov = np.diag(alone[len(alone) // 2])
        cov = cov + shared[:, :, None] * shared[:, None]
        cov = cov + model[:, :, None] * model[:, None]
        fit = np.einsum("kt,kt->k", off, np.linalg.solve(cov, off[:, :, None])[:, :, 0])
        return -0.5 * (fit + np.linalg.slogdet(cov)[1])


def _rank_two(h: np.ndarray, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues (K, 2) and eigenvectors (K, 2, T), as rows, of h hᵀ + q qᵀ for (K, T) each."""
    length = np.sqrt(np.sum(h**2, axis=1, keepdims=True))
    first = h / np.maximum(length, 1e-300)
    along = np.sum(q * first, axis=1, keepdims=True)
    second = q - along * first
    beside = np.sqrt(np.sum(second**2, axis=1, keepdims=True))
    # What is left of q is rounding where h and q are parallel, as of one release.
    real = beside > 1e-9 * np.abs(q).max(axis=1, keepdims=True)
    second = np.where(real, second / np.maximum(beside, 1e-300), 0.0)
    beside = np.where(real, beside, 0.0)
    # Of [[x, y], [y, z]] the eigenvectors are (cos, sin) and (−sin, cos) of an angle.
    x, y, z = length**2 + along**2, along * beside, beside**2
    middle, radius = (x + z) / 2, np.hypot((x - z) / 2, y)
    angle = np.arctan2(y, (x - z) / 2) / 2
    values = np.concatenate([middle + radius, np.maximum(middle - radius, 0.0)], axis=1)
    cos, sin = np.cos(angle), np.sin(angle)
    return values, np.stack([cos * first + sin * second, cos * second - sin * first], axis=1)


def moments(clips: np.ndarray, v: np.ndarray | float) -> tuple[np.ndarray, ...]:
    """κ, E ψ², E ψ⁴ and ∂E ψ²/∂ln v for residuals N(0, v)."""
    t = np.clip(clips / np.sqrt(v), 1e-3, 1e3)
    density = 2 * t * np.exp(-0.5 * t**2) / math.sqrt(2 * math.pi)
    inside = 2 * ndtr(t) - 1
    second = (inside - density) / t**2  # E[ψ²; |r| ≤ c]
    fourth = (3 * (inside - density) - t**2 * density) / t**4
    return inside, second + 1 - inside, fourth + 1 - inside, second
