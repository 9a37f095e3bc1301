"""What the score of a model of one logit is expected to be, if the rows were normal, and inference.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from skdp._random import SecureStream
from skdp.algorithms.parts.prior_scales import HalfNormalScales
from skdp.models.bounded_scores import Score

_t = np.linspace(-6.0, 6.0, 81)
NODES = _t
WEIGHTS = np.exp(-0.5 * _t**2) / np.exp(-0.5 * _t**2).sum()
POLYNOMIALS = WEIGHTS[:, None] * np.stack([np.ones_like(_t), _t, _t**2 - 1.0], axis=1)
LEAST = 1e-12


def times(matrix: np.ndarray, vector: np.ndarray) -> np.ndarray:
    """Matrices (..., D, D) times vectors (..., D)."""
    return (matrix @ vector[..., None])[..., 0]


def dot(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Inner products along the last axis, which stays."""
    return np.sum(first * second, axis=-1, keepdims=True)


class Place(NamedTuple):
    """Normal logits of the rows at some θ: u = Sθ, m, their mean and deviation."""

    u: np.ndarray
    mean: np.ndarray
    logits: np.ndarray
    deviation: np.ndarray


@dataclass(frozen=True)
class LogitRows:
    """Beliefs about the rows, and the score that is summed over them; axes broadcast.

    What normal rows leave out is a transform T around a reference: F(θ) = TᵀF₀(θ₀ + T(θ − θ₀)),
    whose slope TᵀH₀T at θ₀ may be any positive definite matrix, and is one everywhere else.
    """

    n_rows: float
    mean: np.ndarray
    covariance: np.ndarray
    score: Score
    transform: np.ndarray | None = None
    reference: np.ndarray | None = None
    offset: tuple[float, float] = (0.0, 0.0)

    def __len__(self) -> int:
        return len(self.mean)

    @property
    def bare(self) -> LogitRows:
        return replace(self, transform=None, reference=None)

    def with_slope(self, where: np.ndarray, ratio_root: np.ndarray) -> LogitRows:
        return replace(self, transform=ratio_root, reference=where)

    def moved(self, theta: np.ndarray) -> np.ndarray:
        if self.transform is None:
            return theta
        return self.reference + times(self.transform, theta - self.reference)

    def _back(self, vector: np.ndarray) -> np.ndarray:
        if self.transform is None:
            return vector
        return times(np.swapaxes(self.transform, -1, -2), vector)

    def _both(self, matrix: np.ndarray) -> np.ndarray:
        if self.transform is None:
            return matrix
        return np.swapaxes(self.transform, -1, -2) @ matrix @ self.transform

    def place(self, theta: np.ndarray) -> Place:
        theta = self.moved(theta)
        u = times(self.covariance, theta)
        square = dot(theta, u)
        deviation = np.sqrt(square * (1.0 + 1e-9) + self.offset[1] + 1e-9)
        logits = dot(theta, self.mean) + self.offset[0] + deviation * NODES
        return Place(u, self.mean, logits, deviation)

    def expected_at(self, p: Place) -> np.ndarray:
        moments = self.score.value(p.logits) @ POLYNOMIALS[:, :2]
        return self._back(
            self.n_rows * (moments[..., :1] * p.mean + moments[..., 1:] / p.deviation * p.u)
        )

    def expected(self, theta: np.ndarray) -> np.ndarray:
        """F(θ)."""
        return self.expected_at(self.place(theta))

    def coefficients(self, p: Place, values: np.ndarray) -> np.ndarray:
        return self.n_rows * (values @ POLYNOMIALS) / p.deviation ** np.arange(3)

    def matrix(self, p: Place, c: np.ndarray) -> np.ndarray:
        m, u = np.broadcast_arrays(p.mean, p.u)
        left = np.stack([m, u], axis=-1)
        c = c[..., None]
        core = np.concatenate(
            [
                np.concatenate([c[..., :1, :], c[..., 1:2, :]], axis=-1),
                np.concatenate([c[..., 1:2, :], c[..., 2:, :]], axis=-1),
            ],
            axis=-2,
        )
        return self._both(
            c[..., :1, :] * self.covariance + left @ core @ np.swapaxes(left, -1, -2)
        )

    def slope(self, theta: np.ndarray) -> np.ndarray:
        p = self.place(theta)
        return self.matrix(p, self.coefficients(p, self.score.slope(p.logits)[..., 0]))

    def variance(self, theta: np.ndarray) -> np.ndarray:
        p = self.place(theta)
        return self.matrix(p, self.coefficients(p, self.score.variance(p.logits)[..., 0]))

    def score_and_pull(
        self, theta: np.ndarray, off_to_pull
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """F(θ), w = off_to_pull(F) and Hᵀw, sharing their integrals."""
        p = self.place(theta)
        F = self.expected_at(p)
        w = off_to_pull(F)
        v = w if self.transform is None else times(self.transform, w)
        c = self.coefficients(p, self.score.slope(p.logits)[..., 0])
        mw, uw = dot(p.mean, v), dot(p.u, v)
        pull = c[..., :1] * (times(self.covariance, v) + p.mean * mw)
        pull += c[..., 1:2] * (p.mean * uw + p.u * mw) + c[..., 2:] * p.u * uw
        return F, w, self._back(pull)


def transform_to(slope: np.ndarray, wanted: np.ndarray, least: float, most: float) -> np.ndarray:
    """T with TᵀHT = H + D, cut to least·H ⪯ TᵀHT ⪯ most·H."""
    values, vectors = np.linalg.eigh(slope)
    root = np.sqrt(np.maximum(values, np.maximum(1e-9 * values[..., -1:], LEAST)))
    flipped = np.swapaxes(vectors, -1, -2)
    half = (vectors * root[..., None, :]) @ flipped
    inverse_half = (vectors / root[..., None, :]) @ flipped
    relative, U = np.linalg.eigh(inverse_half @ wanted @ inverse_half)
    stretch = np.sqrt(np.clip(relative, least, most))
    return inverse_half @ (U * stretch[..., None, :]) @ np.swapaxes(U, -1, -2) @ half


def shrunk_slope(believed, found, scale: float, normals=None):
    """What a noisy slope says of the believed one, in units of the believed one.

    E = H^-½(H̃ − H)H^-½ in H's eigenbasis has noise of variance s²/(h_i h_j) (half of that off the
    diagonal) and, before that, is N(0, σ²) with the σ that moments show.
    """
    values, vectors = np.linalg.eigh(believed)
    root = np.sqrt(np.maximum(values, np.maximum(1e-9 * values[..., -1:], LEAST)))
    flipped = np.swapaxes(vectors, -1, -2)
    outer = root[..., :, None] * root[..., None, :]
    E = (flipped @ (found - believed) @ vectors) / outer
    D = E.shape[-1]
    noise = scale**2 * (0.5 + 0.5 * np.eye(D)) / outer**2
    weights = 1.0 / (noise + USUAL_SLOPE**2) ** 2
    spread = np.sum(weights * (E**2 - noise), axis=(-1, -2)) / np.sum(weights, axis=(-1, -2))
    spread = np.clip(spread, LEAST_SPREAD**2, MOST_SPREAD**2)[..., None, None]
    kept = spread / (spread + noise)
    E = kept * E
    if normals is not None:
        upper = np.triu(normals)
        E = E + np.sqrt(kept * noise) * (upper + np.swapaxes(np.triu(normals, 1), -1, -2))
    return believed + vectors @ (outer * E) @ flipped


USUAL_SLOPE, LEAST_SPREAD, MOST_SPREAD = 0.3, 0.1, 0.5


def inverse(matrix: np.ndarray) -> np.ndarray:
    return np.linalg.inv(matrix)


def noise_precision(rows: LogitRows, theta: np.ndarray, variance) -> np.ndarray:
    """(V(θ) + ν² I)⁻¹; a released correction must not make V negative."""
    V = rows.variance(theta)
    eye = np.eye(V.shape[-1])
    variance = np.asarray(variance)[..., None, None]
    return np.linalg.inv(V + variance * eye)


LONGEST = 3.0


@dataclass(frozen=True)
class Released:
    """A statistic s ~ N(F(θ), V + ν² I), and the prior N(0, diag(τ²))."""

    rows: LogitRows
    statistic: np.ndarray
    variance: np.ndarray | float

    def newton(self, theta, prior_precision, n_steps, P=None):
        """Mode and precision, by Gauss–Newton steps with the noise as it is at the start."""
        if P is None:
            P = noise_precision(self.rows, theta, self.variance)
        for _ in range(n_steps):
            H = self.rows.slope(theta)
            PH = P @ H
            off = self.statistic - self.rows.expected(theta)
            gradient = np.sum(PH * off[..., :, None], axis=-2) - prior_precision * theta
            precision = np.swapaxes(H, -1, -2) @ PH
            precision = precision + prior_precision[..., :, None] * np.eye(theta.shape[-1])
            step = np.linalg.solve(precision, gradient[..., None])[..., 0]
            length = np.sqrt(dot(step, step))
            theta = theta + step * np.minimum(1.0, LONGEST / np.maximum(length, 1e-300))
            if length.max() < 1e-3:
                break
        return theta, precision, P

    def log_likelihood(self, theta, P):
        off = self.statistic - self.rows.expected(theta)
        return -0.5 * np.sum(off * times(P, off), axis=-1)


N_CHAINS = 64
FEW = 40  # parameters, up to which chains may run
ENOUGH = 0.5
TRAJECTORIES, DISCARDED = 14, 2


class Found(NamedTuple):
    mean: np.ndarray
    covariance: np.ndarray
    log_scales: np.ndarray  # draws (n, blocks)
    chains: bool


def scales_by_evidence(given: Released, hyper: HalfNormalScales, theta, scales, n_draws, stream):
    """Draw τ of the blocks: the largest by a grid of Laplace evidence, others by their mode."""
    block = int(np.argmax(hyper.sizes))
    grid = np.log(scales[block]) + np.linspace(-1.6, 1.6, 13)
    from skdp.algorithms.parts.prior_scales import log_density

    all_scales = np.repeat(scales[None], len(grid), axis=0)
    all_scales[:, block] = np.exp(grid)
    precision = hyper.of_coordinates(all_scales**-2.0)
    P = noise_precision(given.rows, theta, given.variance)
    mode, information, _ = given.newton(np.repeat(theta, len(grid), axis=0), precision, 4, P)
    value = given.log_likelihood(mode, P) - 0.5 * np.sum(precision * mode**2, axis=-1)
    value += 0.5 * np.log(precision).sum(axis=-1) - 0.5 * np.linalg.slogdet(information)[1]
    value += log_density(grid, hyper.scale)
    fine = np.linspace(grid[0], grid[-1], 400)
    from scipy.interpolate import CubicSpline

    density = CubicSpline(grid, value)(fine)
    mass = np.cumsum(np.exp(density - density.max()))
    u = (np.arange(n_draws) + stream.generator.random(n_draws)) / n_draws
    drawn = fine[np.minimum(np.searchsorted(mass, u * mass[-1]), 399)]
    out = np.repeat(scales[None], n_draws, axis=0)
    out[:, block] = np.exp(stream.generator.permutation(drawn))
    return out


def posterior(given: Released, hyper, theta, scales, stream, few) -> Found:
    """Pool over beliefs: Laplace's approximation, or chains where that is measured to be off."""
    B, D = len(given.rows), theta.shape[-1]
    precision = hyper.of_coordinates(scales**-2.0) if hyper else scales
    mode, information, P = given.newton(theta, precision, 3)
    mode, information, P = given.newton(mode, precision, 2)
    root = np.linalg.cholesky(inverse(information))
    covariances = root @ np.swapaxes(root, -1, -2)
    log_scales = np.log(scales) if hyper else None
    if few:
        draws = 4
        z = stream.normal((draws, B, D))
        x = mode + times(root, z)
        log = given.log_likelihood(x, P) - 0.5 * np.sum(precision * x**2, axis=-1)
        log = log + 0.5 * np.sum(z**2, axis=-1)
        at_mode = given.log_likelihood(mode, P) - 0.5 * np.sum(precision * mode**2, axis=-1)
        log = np.maximum(log - at_mode, -700)
        weights = np.exp(log - log.max(axis=None))
        ess = weights.sum() ** 2 / (weights**2).sum() / weights.size
        if ess < ENOUGH:
            return chains(given, hyper, scales, mode, root, P, stream)
    mean = mode.mean(axis=0)
    off = mode - mean
    return Found(mean, covariances.mean(axis=0) + off.T @ off / max(B - 1, 1), log_scales, False)


def chains(given, hyper, scales, mode, root, P, stream) -> Found:
    """Hamiltonian Monte Carlo from Laplace's approximation, τ drawn in between."""
    B, D = mode.shape
    generator = stream.generator
    theta = mode + times(root, stream.normal((B, D)))
    scales = np.array(np.broadcast_to(scales, (B, scales.shape[-1])))
    transposed = np.swapaxes(root, -1, -2)

    def density_and_force(theta, precision):
        F, w, pull = given.rows.score_and_pull(
            theta, lambda F: times(P, given.statistic - F)
        )
        off = given.statistic - F
        value = -0.5 * np.sum(off * w, axis=-1) - 0.5 * np.sum(precision * theta**2, axis=-1)
        return value, times(transposed, pull - precision * theta)

    base = 1.1 * D**-0.25
    n_leaps = int(np.ceil(1.6 / base))
    kept, kept_scales = [], []
    for step in range(TRAJECTORIES):
        if hyper is not None:
            squares = hyper.squares(theta)
            scales = np.exp(hyper.drawn(squares, generator.random(squares.shape)))
            precision = hyper.of_coordinates(scales**-2.0)
        else:
            precision = scales
        value, force = density_and_force(theta, precision)
        momentum = stream.normal((B, D))
        energy = value - 0.5 * np.sum(momentum**2, axis=-1)
        size = base * (0.8 + 0.4 * generator.random((B, 1)))
        x = theta
        for _ in range(n_leaps):
            momentum = momentum + 0.5 * size * force
            x = x + times(root, size * momentum)
            there, force = density_and_force(x, precision)
            momentum = momentum + 0.5 * size * force
        after = there - 0.5 * np.sum(momentum**2, axis=-1)
        accepted = np.log(generator.random(B)) < after - energy
        theta = np.where(accepted[:, None], x, theta)
        if step >= DISCARDED:
            kept.append(theta)
            kept_scales.append(np.log(scales))
    draws = np.concatenate(kept)
    return Found(draws.mean(axis=0), np.cov(draws.T).reshape(D, D), np.concatenate(kept_scales), True)
