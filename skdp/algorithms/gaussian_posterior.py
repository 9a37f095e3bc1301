"""A normal posterior of the parameters of a linear model, and what it says of logits."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

_CHUNK_ROWS = 2**14


@dataclass(frozen=True)
class GaussianPosterior:
    """N(mean, covariance) over θ, with ``mean`` of shape (K, D).

    - ``spread``: deviations (KD,) of independent coordinates, or a covariance matrix (KD, KD).
    - ``outside``: noisy numbers of records whose features, and whose targets, were cut, or None.
    - ``n_counted``: number of records that these are of, by a release; None for the declared one.
    - ``short_rows``: root mean square norm of the features, where it is far below its bound.
    - ``n_found``: noisy number of records and the noise's deviation, where second moments hold it.
    - ``prior_scales``: percentiles 5, 50 and 95 of the prior's standard deviation, of each block of
      features, (3, blocks).
    - ``of_logits``: covariance (KD, KD) that rows see, where it is less than that of θ: effects are
      large where columns hardly vary. None is that of θ.
    """

    mean: np.ndarray
    spread: np.ndarray
    outside: np.ndarray | None = None
    n_counted: float | None = None
    short_rows: float | None = None
    n_found: tuple[float, float] | None = None
    prior_scales: np.ndarray | None = None
    of_logits: np.ndarray | None = None

    @property
    def is_diagonal(self) -> bool:
        """Whether coordinates are independent."""
        return self.spread.ndim == 1

    @property
    def covariance(self) -> np.ndarray:
        """Covariance of the coordinates, (KD, KD)."""
        return np.diag(self.spread**2) if self.is_diagonal else self.spread

    @property
    def seen(self) -> np.ndarray:
        """Spread of θ as rows see it: of the shape of `spread`, or a covariance matrix."""
        return self.spread if self.of_logits is None else self.of_logits

    def sample(self, n_samples: int, generator: np.random.RandomState) -> np.ndarray:
        """Draw θ, (n_samples, KD)."""
        normals = generator.standard_normal((n_samples, self.mean.size))
        if self.is_diagonal:
            return self.mean.ravel() + self.spread * normals
        return self.mean.ravel() + normals @ _root(self.spread).T

    def sample_seen(self, n_samples: int, generator: np.random.RandomState) -> np.ndarray:
        """Draw θ as rows see it, (n_samples, KD): what predictions are averaged over."""
        return replace(self, spread=self.seen).sample(n_samples, generator)

    def logits(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean (n, K) and covariance (n, K, K) of the logits of rows (n, D)."""
        (K, D), seen = self.mean.shape, self.seen
        if seen.ndim == 1:
            variance = rows**2 @ (seen.reshape(K, D) ** 2).T
            return rows @ self.mean.T, variance[:, :, None] * np.eye(K)
        blocks = seen.reshape(K, D, K, D)
        covariance = np.empty((len(rows), K, K))
        for start in range(0, len(rows), _CHUNK_ROWS):
            columns = np.asarray(rows[start : start + _CHUNK_ROWS]).T
            part = covariance[start : start + _CHUNK_ROWS]
            for i in range(K):
                for j in range(i + 1):
                    between = np.einsum("dn,dn->n", blocks[j, :, i] @ columns, columns)
                    part[:, i, j] = part[:, j, i] = between
        return rows @ self.mean.T, covariance


@dataclass(frozen=True)
class RegressionPosterior(GaussianPosterior):
    """Normal of (θ, ln σ), in a ``unit`` of the targets, with the last ``clip`` of residuals.

    ``unit_found`` is False where the counts of targets by magnitude are lost in their noise.
    """

    unit: float = 1.0
    unit_found: bool = True
    clip: float = math.inf


def in_units(
    q: GaussianPosterior, centre: np.ndarray, scale: np.ndarray, *, has_intercept: bool
) -> GaussianPosterior:
    """Posterior of the coefficients of x, from that for (x - centre)/scale; ln σ stays as it is."""
    (K, D), d = q.mean.shape, len(scale)
    A = np.eye(D)
    A[:d, :d] = np.diag(1.0 / scale)
    if has_intercept:
        A[d, :d] = -centre / scale
    whole = np.kron(np.eye(K), A)
    covariance, seen = (
        None if S is None else whole @ S @ whole.T for S in (q.covariance, q.of_logits)
    )
    assert covariance is not None
    spread = np.sqrt(np.diag(covariance)) if q.is_diagonal else (covariance + covariance.T) / 2.0
    return replace(q, mean=q.mean @ A.T, spread=spread, of_logits=seen)


def _root(covariance: np.ndarray) -> np.ndarray:
    """A matrix B with B Bᵀ = covariance, also where rounding leaves an eigenvalue below 0."""
    values, vectors = np.linalg.eigh(covariance)
    return vectors * np.sqrt(np.maximum(values, 0.0))
