"""The posterior of several logits given noisy scores, over synthetic rows.

With K outputs a gradient already says much about the rows: at θ = 0 it is Σ w_i (y_i − 1/K) x_iᵀ,
the differences between the class means. Between classes rows scatter by

    B = Σ_k (n_k/n) (μ_k − μ)(μ_k − μ)ᵀ ⪯ S,

and the eigenvectors of B are the directions in which the logits are learned. So the first steps of
a run all ask at θ = 0 (how many follows from the noise, `steps_at_zero`), B is estimated from the
singular values of their mean beyond what noise explains, and S is the estimate from the released
second moments raised to B along the eigenvectors of B, with the released trace.

*Expected scores.* M quasi-random rows x_j with exactly the mean m and covariance S stand for the n
rows. A score with the weight w_i(θ_t) = min(1, C/(‖x_i‖ max_y ‖e_y − p_i‖)) has the mean

    E[g̃_t] = F_t(θ) − F_t(θ_t),    F_t(θ) = (n/M) Σ_j w_j(θ_t) softmax(θ x_j) x_jᵀ

at the truth θ. The average of g̃_t + F_t(θ_t) over steps, in which a step counts for less the
farther its F_t(θ_t) is from that of the present estimate, is a statistic s with mean F(θ), which
has the averaged weights w̄_j, and variance Q = V + ν̄² I, V ≈ r H with H = ∂F/∂θ.

*Posterior.* Most coordinates of a θ of hundreds are hardly known. At the mode they are 0, where
their part of the logits is missing: the mode explains s by smaller coefficients along the known
directions than a typical θ does, and predictions that then average over the unknown ones are too
timid. So the posterior is q = N(μ, Σ), with the expectation over q in place of the value at the
mode (the Gaussian variational posterior of Opper & Archambeau 2009 to first order):

    H̄ᵀ Q⁻¹ (s − E_q F) = μ/τ²,    Σ⁻¹ = H̄ Q⁻¹ H̄ + I/τ²,    H̄ = E_q H.

With Q = rH̄ + ν̄² all of them commute, and multiplied by Q a step of Newton's method solves

    (H̄² + Q/τ²) δ = H̄ (s − E_q F) − Q μ/τ²,

by conjugate gradients, whose products with H̄ are sums over the synthetic rows. They are
preconditioned by the Kronecker product A ⊗ B with A = Σ_j w̄_j E_q[diag p − p pᵀ] and B the mean of
x_j x_jᵀ by weight. In its eigenbasis Σ is diagonal during the run, so that a row's logits have
variances that cost one product; the Σ that is returned is the inverse of the full precision.

*What is unknown about S.* The mean is solved for under each of several draws of m and S, of low
rank: along the eigenvectors that the noise left. Their scatter is added to Σ.

References
----------
M. Opper, C. Archambeau, *The Variational Gaussian Approximation Revisited*, Neural Computation
2009. M. Gavish, D. Donoho, *Optimal shrinkage of singular values*, 2017.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from scipy.special import softmax
from scipy.stats import norm, qmc

from skdp.algorithms.parts.noisy_moments import floored, shrunk, wobble
from skdp.fitting.streams import SecureStream
from skdp.models.bounded_scores import CategoricalScore

LEAST_ROWS = 512
CG_STEPS, CLOSE = 12, 1e-3  # of conjugate gradients, and of a norm at which they stop
LONGEST_STEP = 2.0  # of Newton's method, root mean square of the logits
DAMPING = 0.5  # share of the new variances: means and variances drive each other about
MODEL_ERROR = 0.3  # error of a difference of F, over that difference
CHANCE = 2.0  # standard deviations of the scatter of gradients that are no contradiction
MOST_DENSE = 1000  # parameters beyond which the covariance is that of the Kronecker product
LEAST_SHARE, MOST_SHARE = 0.2, 0.8  # of the gradients that are asked for at 0
WITHIN = 0.8  # of the variance of the rows, that between classes at most
SURE = 3.0  # standard deviations of noise beyond which a mean is kept whole


def steps_at_zero(
    n_steps: int, noise: float, shape: tuple[int, int], n_rows: int, bound: float
) -> int:
    """Number of gradients at θ = 0, from public facts.

    Their noise over the size of a class decides: where it is large, differences of class means are
    most of what can be learned; where it is small, gradients at the estimate correct the model of
    the rows.

    Parameters
    ----------
    n_steps : int
        Gradients in all, T ≥ 1.
    noise : float
        Standard deviation of the noise per coordinate, in units of rows of norm 1.
    shape : (int, int)
        (K, D).
    n_rows : int
        n.
    bound : float
        C > 0 of a record of norm 1.

    Returns
    -------
    int
        In [1, T].
    """
    K, D = shape
    ratio = noise * math.sqrt(D) * K / (n_rows * min(1.0, bound))
    share = min(MOST_SHARE, max(LEAST_SHARE, 2.0 * ratio))
    return max(1, round(n_steps * share))


@dataclass(frozen=True)
class Moments:
    """Mean and covariance of the rows, as released.

    Parameters
    ----------
    n_rows : int
        n.
    n_features : int
        Columns without the intercept, d.
    intercept : float
        Its column, 1/R; 0 for none.
    released : ndarray of shape (D, D) or (1,)
        Σ x xᵀ and noise, or its trace.
    scale : float
        Of the noise, see `shrunk`.
    """

    n_rows: int
    n_features: int
    intercept: float
    released: np.ndarray
    scale: float

    def believed(
        self, between: Between | None = None, stream: SecureStream | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Estimate m (D,) and S (d, d); with a stream draw them from what the noise leaves open."""
        d, scale = self.n_features, self.scale / self.n_rows
        normal = stream.normal if stream else np.zeros
        m = np.full(d + (self.intercept > 0.0), self.intercept)
        m[:d] = 0.0
        largest = (1.0 - self.intercept**2) / d
        smallest = 0.02 * largest
        second, block = self.released / self.n_rows, None
        if second.ndim < 2:
            total, unsure = float(second[0]) - m @ m, scale
        else:
            m[:d] = self._mean(second, scale, normal(d))
            block = second[:d, :d] - np.outer(m[:d], m[:d])
            total, unsure = float(np.trace(block)), scale * math.sqrt(d)
        most = min(d * largest, total + unsure)
        total = d * float(np.clip((total + unsure * float(normal(()))) / d, smallest, largest))
        values, vectors, found = np.zeros(d), np.eye(d), np.zeros((d, d))
        if between is not None:
            values, vectors = between.drawn(WITHIN * float(max(total, most)), stream)
        total = max(total, float(values.sum()) / WITHIN)
        base = raised(values, vectors, total)
        if block is not None:
            for _ in range(3):  # what is left for the bulk depends on what was found beside it
                found, axes, kept = shrunk(block - base, scale)
                base = raised(values, vectors, max(total - np.trace(found), 0.1 * total))
            if stream is not None:
                found = found + wobble(axes, scale * np.sqrt(kept), stream)
        return m, floored(base + found, max(1e-3 * total / d, smallest / d))

    def _mean(self, second: np.ndarray, scale: float, normals: np.ndarray) -> np.ndarray:
        """Means of the columns, from the intercept's; along the top eigenvector they are sure."""
        d = self.n_features
        if self.intercept == 0.0:
            return np.zeros(d)
        found, spread = second[d, :d] / self.intercept, scale / self.intercept / math.sqrt(2.0)
        top = np.linalg.eigh(second[:d, :d])[1][:, -1]
        along = float(found @ top)
        if abs(along) <= SURE * spread:
            top = np.zeros(d)
        rest = found - float(found @ top) * top
        kept = max(0.0, 1.0 - d * spread**2 / max(float(rest @ rest), 1e-300))
        moved = math.sqrt(kept) * normals + (1.0 - math.sqrt(kept)) * float(normals @ top) * top
        return found - (1.0 - kept) * rest + spread * moved


def raised(values: np.ndarray, vectors: np.ndarray, total: float) -> np.ndarray:
    """Raise eigenvalues to a common least one such that their sum is a total."""
    ordered = np.sort(values)
    counts, sums = np.arange(1, len(values) + 1), np.cumsum(ordered[::-1])[::-1]
    above = np.append(sums[1:], 0.0)  # of the eigenvalues that stay as they are
    levels = (total - above) / counts
    fits = levels <= np.append(ordered[1:], np.inf)
    level = max(float(levels[np.argmax(fits)]), 0.0)
    return (vectors * np.maximum(values, level)) @ vectors.T


@dataclass(frozen=True)
class Between:
    """Scatter of the class means about the mean, of low rank.

    Parameters
    ----------
    roots : ndarray of shape (r,)
        Square roots of its eigenvalues.
    vectors : ndarray of shape (d, d)
        Eigenvectors; those beyond r have eigenvalue 0.
    noise : float
        Standard deviation of the roots.
    """

    roots: np.ndarray
    vectors: np.ndarray
    noise: float

    @classmethod
    def of(cls, sums: np.ndarray, variance: float, m: np.ndarray, moments: Moments) -> Between:
        """Take the noise out of Σ (y − 1/K) x, (K, D), with a variance per coordinate."""
        n, d, K = moments.n_rows, moments.n_features, len(sums)
        excess = np.zeros(K)
        if moments.intercept > 0.0:
            excess = (sums[:, d] - sums[:, d].mean()) / moments.intercept
            of_noise = K * variance / moments.intercept**2
            excess *= max(0.0, 1.0 - of_noise / max(float(excess @ excess), 1e-300))
        sizes = np.clip(n / K + excess, 0.2 * n / K, n)
        centred = (sums[:, :d] - np.outer(excess, m[:d])) / np.sqrt(sizes * n)[:, None]
        noise = math.sqrt(variance * K) / n
        _, values, vectors = np.linalg.svd(centred, full_matrices=True)
        roots = np.sqrt(np.maximum(values**2 - noise**2 * max(d, K), 0.0))
        return cls(roots, vectors.T, noise)

    def drawn(self, most: float, stream: SecureStream | None) -> tuple[np.ndarray, np.ndarray]:
        """Eigenvalues (d,), of a sum that is bounded, and eigenvectors."""
        roots = self.roots
        if stream is not None:
            moved = np.abs(roots + self.noise * stream.normal(len(roots)))
            roots = np.where(roots > 0.0, moved, 0.0)
        values = np.zeros(len(self.vectors))
        values[: len(roots)] = roots**2
        return values * min(1.0, most / max(float(values.sum()), 1e-300)), self.vectors


class Posterior(NamedTuple):
    """N(μ, Σ) with Σ = (U ⊗ V) diag(variances) (U ⊗ V)ᵀ."""

    mean: np.ndarray  # (KD,)
    U: np.ndarray
    V: np.ndarray
    variances: np.ndarray  # (K, D)


class Statistic(NamedTuple):
    """What is known of F(θ)."""

    value: np.ndarray  # s, (KD,)
    weights: np.ndarray  # w̄_j n/M, (M,)
    ratio: float  # V over H
    variance: float  # ν̄²


class SyntheticRows:
    """Rows with a given mean and covariance, which stand for the private ones.

    Parameters
    ----------
    m : ndarray of shape (D,)
        Mean.
    S : ndarray of shape (d, d)
        Covariance of the first d columns; others are constant.
    n_rows : int
        n, for which they stand.
    score : CategoricalScore
        Of a record of norm 1.
    """

    def __init__(self, m: np.ndarray, S: np.ndarray, n_rows: int, score: CategoricalScore) -> None:
        d = len(S)
        z, self._normals = points(d, score.n_outputs, 2 ** math.ceil(math.log2(4 * len(m))))
        values, vectors = np.linalg.eigh(S)
        self.x = np.tile(m, (len(z), 1))
        self.x[:, :d] += z @ (vectors * np.sqrt(np.maximum(values, 0.0))).T
        self.shape = score.n_outputs, len(m)
        self._score = score
        self._norms = np.linalg.norm(self.x, axis=1)
        self._each = n_rows / len(z)

    def probabilities(self, theta: np.ndarray) -> np.ndarray:
        """Softmax of the logits, (M, K)."""
        return softmax(self.x @ theta.reshape(self.shape).T, axis=1)

    def expected(self, q: Posterior | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """E_q p, (M, K), and E_q[diag p − p pᵀ], (M, K, K)."""
        if isinstance(q, np.ndarray):
            p = self.probabilities(q)[None]
        else:
            spread = np.sqrt((self.x @ q.V) ** 2 @ q.variances.T)
            p = softmax(
                self.x @ q.mean.reshape(self.shape).T + (self._normals * spread) @ q.U.T, axis=2
            )
        mean = p.mean(axis=0)
        slopes = -np.einsum("rjk,rjl->jkl", p, p) / len(p)
        k = np.arange(self.shape[0])
        slopes[:, k, k] += mean
        return mean, slopes

    def sum(self, coefficients: np.ndarray) -> np.ndarray:
        """Σ_j c_j x_jᵀ, (KD,), for c of shape (M, K)."""
        return (coefficients.T @ self.x).ravel()

    def statistic(
        self,
        gradients: Sequence[np.ndarray],
        queries: Sequence[np.ndarray],
        here: np.ndarray,
        noise_variance: float,
    ) -> Statistic:
        """Average over steps of g̃_t + F_t(θ_t), and the variance of its noise.

        Scores at θ_t that differ by more than noise explains widen it, as those of one logit do.
        """
        p_here, size = self.probabilities(here), math.prod(self.shape)
        known: dict[bytes, tuple[np.ndarray, np.ndarray, np.ndarray]] = {}
        for query in queries:
            if query.tobytes() not in known:
                p = self.probabilities(query)
                w = self._each * self._weights(query)
                at_query = self.sum(w[:, None] * p)
                known[query.tobytes()] = w, at_query, self.sum(w[:, None] * p_here) - at_query
        each = [known[query.tobytes()] for query in queries]
        far = np.array([moved @ moved / size for _, _, moved in each])
        share = 1.0 / (noise_variance + MODEL_ERROR**2 * far)
        share /= share.sum()
        terms = np.array([g - moved for g, (_, _, moved) in zip(gradients, each, strict=True)])
        squares = np.mean((terms - share @ terms) ** 2, axis=1)
        weights = np.einsum("t,tj->j", share, [w for w, _, _ in each])
        value = share @ np.array([g + F for g, (_, F, _) in zip(gradients, each, strict=True)])
        one, apart = float(share @ share), max(1.0 - float(share @ share), 1e-9)
        scatter = float(share @ squares) / apart / noise_variance
        scatter -= CHANCE * math.sqrt(2.0 * one / (size * apart))
        variance = noise_variance * max(1.0, scatter) * one
        ratio = float(weights @ weights) / self._each / max(float(weights.sum()), 1e-300)
        missed = 1e-4 * self._each * len(self.x) / size
        return Statistic(value, weights, ratio, variance + missed)

    def _weights(self, theta: np.ndarray) -> np.ndarray:
        """w_j = min(1, C/(‖x_j‖ max_y ‖e_y − p‖)), (M,)."""
        logits = self.x @ theta.reshape(self.shape).T
        largest = self._norms * self._score.largest_residual(logits)
        return np.minimum(1.0, self._score.bound / np.maximum(largest, 1e-300))

    def weight_at_zero(self) -> float:
        """Mean weight of a score at θ = 0."""
        return float(self._weights(np.zeros(math.prod(self.shape))).mean())

    def posterior(
        self, given: Statistic, start: Posterior | np.ndarray, prior_scale: float, n_steps: int
    ) -> Posterior:
        """Take steps of Newton's method towards q."""
        q = start
        weighted = self.x * given.weights[:, None]
        b, V = np.linalg.eigh(weighted.T @ self.x / given.weights.sum())
        for _ in range(n_steps):
            mean = q if isinstance(q, np.ndarray) else q.mean
            p, slopes = self.expected(q)
            slopes *= given.weights[:, None, None]
            a, U = np.linalg.eigh(slopes.sum(axis=0))
            h = np.outer(np.maximum(a, 0.0), np.maximum(b, 0.0))
            Q = given.ratio * h + given.variance
            off = given.value - self.sum(given.weights[:, None] * p)
            step = self._newton(given, prior_scale, mean, off, slopes, (h, Q, U, V))
            moved = self.x @ step.reshape(self.shape).T
            moved -= moved.mean(axis=1, keepdims=True)
            length = float(np.sqrt(np.mean(moved**2)))
            variances = 1.0 / (h * h / Q + prior_scale**-2)
            if not isinstance(q, np.ndarray):
                variances = DAMPING * variances + (1.0 - DAMPING) * q.variances
            mean = mean + step * min(1.0, LONGEST_STEP / max(length, 1e-300))
            q = Posterior(mean, U, V, variances)
            if length < CLOSE * LONGEST_STEP:
                break
        assert not isinstance(q, np.ndarray)
        return q

    def _newton(
        self,
        given: Statistic,
        prior_scale: float,
        mean: np.ndarray,
        off: np.ndarray,
        slopes: np.ndarray,
        kronecker: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray],
    ) -> np.ndarray:
        """Solve (H² + Q/τ²) δ = H off − Q μ/τ²."""
        precision, (h, Q, U, V) = prior_scale**-2, kronecker
        preconditioner = 1.0 / (h * h + Q * precision)

        def times_slope(v: np.ndarray) -> np.ndarray:
            return self.sum(np.einsum("jkl,jl->jk", slopes, self.x @ v.reshape(self.shape).T))

        def of_noise(v: np.ndarray, slope: np.ndarray) -> np.ndarray:
            return precision * (given.ratio * slope + given.variance * v)

        def preconditioned(r: np.ndarray) -> np.ndarray:
            return (U @ (preconditioner * (U.T @ r.reshape(self.shape) @ V)) @ V.T).ravel()

        residual = times_slope(off) - of_noise(mean, times_slope(mean))
        step, enough = np.zeros_like(residual), CLOSE * float(np.linalg.norm(residual))
        z = preconditioned(residual)
        direction, inner = z, float(residual @ z)
        for _ in range(CG_STEPS):
            if float(np.linalg.norm(residual)) <= enough:
                break
            slope = times_slope(direction)
            product = times_slope(slope) + of_noise(direction, slope)
            alpha = inner / float(direction @ product)
            step, residual = step + alpha * direction, residual - alpha * product
            z = preconditioned(residual)
            before, inner = inner, float(residual @ z)
            direction = z + inner / before * direction
        return step

    def covariance(self, given: Statistic, q: Posterior, prior_scale: float) -> np.ndarray:
        """Inverse of H̄ Q⁻¹ H̄ + I/τ², (KD, KD)."""
        K, D = self.shape
        if K * D > MOST_DENSE:
            basis = np.kron(q.U, q.V)
            return (basis * q.variances.ravel()) @ basis.T
        slopes = self.expected(q)[1] * given.weights[:, None, None]
        H = np.empty((K, D, K, D))
        for k in range(K):
            for other in range(k + 1):
                block = self.x.T @ (slopes[:, k, other, None] * self.x)
                H[k, :, other] = H[other, :, k] = block
        h, vectors = np.linalg.eigh(H.reshape(K * D, K * D))
        h = np.maximum(h, 0.0)
        precision = h * h / (given.ratio * h + given.variance) + prior_scale**-2
        return (vectors / precision) @ vectors.T


@lru_cache(maxsize=8)
def points(d: int, n_outputs: int, least: int) -> tuple[np.ndarray, np.ndarray]:
    """Quasi-random normal rows (M, d), whitened, and pairs for their logits, (2, M, K)."""
    sobol: Any = qmc.Sobol  # whose seed has another name from one SciPy to the next
    uniform = sobol(d + n_outputs, scramble=True, seed=0).random(max(LEAST_ROWS, least))
    normals = norm.ppf(np.clip(uniform, 1e-12, 1.0 - 1e-12))
    z, of_logits = normals[:, :d], normals[:, d:]
    z = z - z.mean(axis=0)
    z = z @ np.linalg.inv(np.linalg.cholesky(z.T @ z / len(z))).T
    return z, np.stack([of_logits, -of_logits])
