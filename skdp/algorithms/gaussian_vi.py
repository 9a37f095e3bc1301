"""The Gaussian variational posterior of a linear model without privacy, by Newton's method.

q = N(m, Σ) over θ maximises E_q[Σ_i log p(y_i|x_i, θ)] − KL(q ‖ p), p = N(0, τ² I), where (Opper &
Archambeau 2009, Eqs. 9–10, by the theorems of Bonnet and Price)

    Σ⁻¹ = I/τ² + Σ_i E_q[−∂²log p/∂z²] ⊗ x_i x_iᵀ,      Σ_i E_q[∂ log p/∂z] ⊗ x_i = m/τ².

Logits of a row are normal under q, so both expectations are integrals over K numbers. With z = μ +
Lξ they need the residual r = ∂ log p/∂z alone: E[∂r/∂z] = E[r ξᵀ] L⁻¹. The fixed point is what
stochastic steps on the same objective approach (`skdp.algorithms.dp_vi` without noise) after
hundreds of passes over the rows; this takes about ten.

Nothing is private here: a fit with ε = ∞ is the reference for those with a budget.

References
----------
M. Opper, C. Archambeau, *The Variational Gaussian Approximation Revisited*, Neural Computation
2009.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np

from skdp.algorithms.gaussian_posterior import GaussianPosterior
from skdp.algorithms.parts.gaussian_runs import FLOAT, LinearRun
from skdp.algorithms.parts.prior_scales import PriorScales
from skdp.engine.linear_sums import LinearClippedSum, ScoreGramSum, of_weights, unpacked
from skdp.engine.loop import Progress
from skdp.engine.sampling import FullBatch
from skdp.fitting.streams import Streams
from skdp.fitting.validate import positive
from skdp.models.averaged import normal_points
from skdp.models.likelihoods import BoundedScores
from skdp.rows.bounded_sum import CHUNK_ROWS
from skdp.rows.records import LinearBatch, Rows

MOST_PASSES = 200
LONGEST_STEP = 3.0  # per parameter, in the logit of a row at the norm bound
SETTLED, OVERRELAXED = 0.01, 1.7  # last change of ln τ, and steps of the EM algorithm
_NODES, _N_PAIRS = 40, 128  # of integrals over one logit, and over several
FEWEST, PER_VARIANCE = 5, 32  # nodes for one logit, of which more are needed the more it varies
CLOSE = 1e-4  # last step, in posterior standard deviations
LEAST_RATE = 0.25  # of the way to the precision that the last pass found
LEAST_VARIANCE = 1e-12  # of logits, for a division


@dataclass(frozen=True)
class GaussianVIConfig(LinearRun):
    """What a run without privacy depends on, as in `LinearRun`.

    - ``prior_scale``: τ > 0 of the prior N(0, τ² I); None takes the likeliest under its hyperprior.
    - ``prior_blocks``: block of each feature, of one τ; None is one. The intercept has its own τ.
    - ``robust``: whether the covariance is the sandwich, for one logit alone.
    """

    prior_scale: float | None = None
    prior_blocks: tuple[int, ...] | None = None
    robust: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.prior_scale is not None:
            positive(prior_scale=self.prior_scale)

    @property
    def clip_norm(self) -> float:
        """No gradient is clipped."""
        return math.inf

    @property
    def n_steps(self) -> int:
        """Passes over the rows, at most."""
        return MOST_PASSES

    @property
    def sampling(self) -> FullBatch:
        """Every row takes part in every pass."""
        return FullBatch(MOST_PASSES)

    @property
    def count_noise(self) -> float:
        """Counts of rows that were cut are exact."""
        return 0.0

    @property
    def memory(self) -> int:
        """Bytes of the rows, copied, and of a chunk at work, about."""
        K, D = self.shape
        return FLOAT * (self.n_rows * (D + K) + 3 * CHUNK_ROWS * K * (D + len(nodes(K)[0])))

    def run(
        self, records: tuple[np.ndarray, ...], streams: Streams, progress: Progress = iter
    ) -> GaussianPosterior:
        """Find the posterior, with exact counts of the records that were cut to their bounds.

        Rows (n, n_features) are clipped here, and targets (n, K) cut. Nothing is random.
        """
        rows = self.rows(records)
        K, D = self.shape
        P = K * D
        R = self.row_bound
        scale = LONGEST_STEP / R
        longest = scale * math.sqrt(P)
        given = None if self.prior_scale is None else self.prior_scale * R
        prior = PriorScales.of(given, self.shape, self.n_features, self.prior_blocks)
        scales = prior.start / R
        mean, covariance = np.zeros(P), np.eye(P) * min(scales.min(), scale) ** 2
        found = precision = np.linalg.inv(covariance)
        rate, decrement = 1.0, math.inf
        for _ in progress(range(MOST_PASSES)):
            q = GaussianPosterior(mean.reshape(K, D), covariance)
            sums = rows.sum(partial(expected_score, self.likelihood, q), slice(None))
            sums *= self.weight_bound
            of_prior = prior.precision(scales)
            gradient, H = sums[:P] - mean * of_prior, sums[P:-2].reshape(P, P)
            found = (H + H.T) / 2 + np.diag(of_prior)
            precision = precision + rate * (found - precision)
            covariance = inverse(precision, of_prior.min())
            step = covariance @ gradient
            short = longest / max(float(np.linalg.norm(step)), 1e-300)
            mean = mean + step * min(1.0, short)
            before, decrement = decrement, float(gradient @ step)
            ratio = prior.likeliest(mean * R, np.diag(covariance) * R**2) / R / scales
            scales, settled = scales * ratio**OVERRELAXED, np.abs(np.log(ratio)).max() < SETTLED
            if decrement < CLOSE**2 * P and settled:
                break
            if short >= 1.0 and decrement > before / 2:
                # Mean and covariance drive each other about: half the step of the latter ends it.
                rate = max(LEAST_RATE, rate / 2)
        if self.robust:
            found = self._robust(rows, mean, found - np.diag(of_prior)) + np.diag(of_prior)
        covariance = inverse(found, of_prior.min())
        n_counts = 1 + (self.likelihood.largest_target < math.inf)
        return GaussianPosterior(
            mean.reshape(K, D),
            covariance,
            sums[-2:][:n_counts],
            prior_scales=prior.summary(scales[None], self.n_features),
        )

    def _robust(self, rows: Rows, mean: np.ndarray, H: np.ndarray) -> np.ndarray:
        """H V⁻¹ H, the inverse of the sandwich, with V the scatter of the scores at the mean."""
        sums = LinearClippedSum(self.likelihood.residual, math.inf)
        scores = ScoreGramSum(of_weights(sums, self.weight_bound))
        if self.persons is not None:
            scores = scores.of_persons(self.persons)
        V = unpacked(rows.sum(partial(scores, mean[None]), slice(None)), len(mean))
        return H @ np.linalg.pinv(V, hermitian=True) @ H


def default_prior_scale(bound: float, n_outputs: int) -> float:
    """Prior standard deviation of the logits of a row at the norm bound: 3, 6 for softmax."""
    return (3.0 if n_outputs == 1 else 6.0) / bound


def inverse(precision: np.ndarray, least: float) -> np.ndarray:
    """Covariance of a precision that quadrature may have put a little below the prior's."""
    values, vectors = np.linalg.eigh(precision)
    return (vectors / np.maximum(values, least)) @ vectors.T


def expected_score(
    likelihood: BoundedScores, q: GaussianPosterior, batch: LinearBatch
) -> np.ndarray:
    """Sum E_q of the score (P,) and of minus its slope (P, P) over rows, and two counts of cuts."""
    K, D = q.mean.shape
    total = np.zeros(K * D + (K * D) ** 2)
    for chunk in batch.chunks(max(1, CHUNK_ROWS // K)):
        mu, V = q.logits(chunk.rows)
        z, weights = nodes(K, enough(float(V.max())) if K == 1 else _NODES)
        L = np.linalg.cholesky(V + LEAST_VARIANCE * np.eye(K))
        logits = mu + np.einsum("sl,nkl->snk", z, L)
        r = likelihood.residual(logits, chunk.targets)
        r = chunk.weighted(r.transpose(1, 0, 2)).transpose(1, 0, 2)
        residual = np.einsum("s,snk->nk", weights, r)
        with_xi = np.einsum("s,snk,sl->nkl", weights, r, z, optimize=True)
        slope = -np.linalg.solve(L.transpose(0, 2, 1), with_xi.transpose(0, 2, 1))
        total[: K * D] += (residual.T @ chunk.rows).ravel()
        H = np.empty((K, D, K, D))
        for k in range(K):
            for other in range(k + 1):
                w = (slope[:, k, other] + slope[:, other, k]) / 2
                H[k, :, other] = H[other, :, k] = chunk.rows.T @ (w[:, None] * chunk.rows)
        total[K * D :] += H.ravel()
    return np.concatenate([total, batch.weighted(batch.outside).sum(axis=0)])


def enough(variance: float) -> int:
    """Nodes for one logit: sums are off by exp(-√(2n) π/s), π where the logistic has its pole."""
    return min(_NODES, FEWEST + math.ceil(PER_VARIANCE * min(variance, _NODES)))


@lru_cache(maxsize=2 * _NODES)
def nodes(n_outputs: int, n_nodes: int = _NODES) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights of integrals over N(0, I): Gauss–Hermite, or whitened Sobol points."""
    if n_outputs == 1:
        nodes, weights = np.polynomial.hermite_e.hermegauss(n_nodes)
        return nodes[:, None], weights / weights.sum()
    z = normal_points(n_outputs, _N_PAIRS)
    return z, np.full(len(z), 1.0 / len(z))
