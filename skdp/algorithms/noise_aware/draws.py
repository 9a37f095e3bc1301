"""Draws of effects and of slopes: what they come to, as one normal law, and how they are made."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import get_lapack_funcs
from scipy.special import ndtr, ndtri

from skdp.algorithms.noise_aware.matrices import picked

MODEL_ERROR = 0.6  # of a score that was moved, over the way that it was moved
_cholesky, _inverse = get_lapack_funcs(("potrf", "trtri"), dtype=float)
USUAL_LOGITS = 8.0 / math.pi  # variance beyond which probabilities shrink (MacKay, 1992)


class Along(NamedTuple):
    """What a state says along one contrast of outputs."""

    queries: np.ndarray  # (T, D)
    of_normal: np.ndarray  # (T, D): how far slopes at θ would have to go for scores of normal rows
    scores: np.ndarray  # (T, D)
    units: np.ndarray  # (T,)
    mean_slope: float  # of scores, over Σ w z zᵀ
    sampling: float  # κ: variance of the scores over their slope
    slope: Any = None  # as released, (D, D)
    hidden: float = 0.0  # variance of what is cut off scores, which is in all of them alike

    def measured(
        self,
        H: np.ndarray,
        by: np.ndarray,
        noise: float,
        n: float,
        scatter: np.ndarray | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Precision (K, D, D), and its product with the mean (K, D), of the likelihood of θ.

        H are slopes (K, D, D) of n rows, and scores are moved by others, as many, which may be
        those that they have met on the way. The noise is that of scores, in a unit, and the scatter
        Σ s sᵀ (K, D, D); None is κH.
        """
        q = self.bent(usual := by.mean(axis=0), noise)
        moved = (q - q[-1]) @ usual
        variances = (noise * self.units) ** 2 + np.mean((MODEL_ERROR * moved) ** 2, axis=1)
        weights = 1.0 / np.maximum(variances, 1e-300)
        weights = weights / weights.sum()
        variance = float(weights**2 @ variances)
        told = weights @ self.scores + H @ q[-1] + by @ (weights @ q - q[-1])
        variance += self.hidden + 1e-9 * n  # as rows may have no direction, and releases no noise
        sampling = self.sampling * H if scatter is None else scatter
        half = inverse_root(sampling + variance * np.eye(H.shape[-1]))
        own = half @ H
        return own.transpose(0, 2, 1) @ own, (told[:, None] @ half.transpose(0, 2, 1) @ own)[:, 0]

    def bent(self, H: np.ndarray, noise: float) -> np.ndarray:
        """How far slopes H at θ would have to go for the scores, (T, D).

        As far as normal rows bend, or less.
        """
        bend = self.of_normal - self.queries
        foretold = bend @ H
        seen = -(self.scores - self.scores[-1]) - (self.queries - self.queries[-1]) @ H
        variance = 2.0 * (noise * self.units[:, None]) ** 2
        return self.queries + share(foretold, seen, variance) * bend


def share(foretold: np.ndarray, seen: np.ndarray, variance: np.ndarray) -> float:
    """How much of what is foretold is seen: by least squares, about ½ ± ½, none to all."""
    found = np.sum(foretold * seen / variance) + 2.0
    return float(np.clip(found / (np.sum(foretold**2 / variance) + 4.0), 0.0, 1.0))


def stacked(each: list[Along]) -> Along:
    """Contrasts side by side, as if they were one of as many columns."""
    beside = {name: np.hstack([getattr(one, name) for one in each]) for name in Along._fields[:3]}
    return each[0]._replace(**beside, sampling=float(np.mean([one.sampling for one in each])))


class Draws(NamedTuple):
    """Normal laws of θ given the rest, of S sweeps and K chains, and draws of τ."""

    means: np.ndarray  # (S, K, D)
    covariances: np.ndarray  # (S, K, D, D)
    scales: np.ndarray  # (S chains, blocks), of all contrasts that share them

    def apart(self, number: int) -> list[Draws]:
        """Those of each of as many contrasts, whose chains are one after the other."""
        both = (np.split(moments, number, axis=1) for moments in self[:2])
        return [Draws(means, own, self.scales) for means, own in zip(*both, strict=True)]

    def point(self, H: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """A point θ̂, and the covariance that the logits of rows have (docs/derivations.md).

        Draws count as H̄^{-½} H^{½} θ, whose logits vary over usual rows as much as those of θ over
        the rows of the draw. Laws with logits of a variance v count 1/(1 + πv/8) times in the
        covariance of logits, and by the root of this in the mean, which is θ̂; its own covariance
        has all draws alike.
        """
        D, usual = H.shape[-1], H.mean(axis=0)
        weight = root(usual[None], -0.5) @ root(H, 0.5)
        means = np.einsum("kij,skj->ski", weight, self.means)
        off = means - means.mean(axis=(0, 1))
        of_usual = weight.transpose(0, 2, 1) @ usual @ weight
        spread = np.einsum("kij,skij->sk", of_usual, self.covariances)
        spread += np.einsum("ski,ij,skj->sk", off, usual, off)
        share = 1.0 / (1.0 + spread * (D / np.trace(usual)) / USUAL_LOGITS)
        part = np.sqrt(share)
        mean = np.einsum("sk,ski->i", part, means) / part.sum()
        of_logits = np.einsum("sk,skij->kij", share, self.covariances) / share.sum()
        return mean, (weight @ of_logits @ weight.transpose(0, 2, 1)).sum(axis=0)

    def about(self, point: np.ndarray) -> np.ndarray:
        """E (θ - θ̂)(θ - θ̂)ᵀ, with deviations by which 90 % intervals are those of the draws."""
        own = (self.means - point).reshape(-1, len(point))
        covariance = self.covariances.mean(axis=(0, 1)) + own.T @ own / len(own)
        narrower = self._deviations(own) / np.sqrt(np.diag(covariance))
        return covariance * narrower[:, None] * narrower

    def _deviations(self, own: np.ndarray) -> np.ndarray:
        """Deviations (D,) of normal laws whose 90 % intervals are those of the draws."""
        sd = np.sqrt(np.diagonal(self.covariances, axis1=2, axis2=3)).reshape(own.shape)
        low = np.zeros(own.shape[1])
        high = (np.abs(own) + 2.0 * sd).max(axis=0)
        for _ in range(25):
            middle = (low + high) / 2.0
            p = (ndtr((middle - own) / sd) - ndtr((-middle - own) / sd)).mean(axis=0)
            low, high = np.where(p < 0.9, middle, low), np.where(p < 0.9, high, middle)
        return middle / ndtri(0.95)


def root(H: np.ndarray, power: float) -> np.ndarray:
    """Symmetric powers of positive matrices (K, D, D)."""
    values, axes = np.linalg.eigh(H)
    return (axes * np.maximum(values, 1e-12)[:, None, :] ** power) @ axes.transpose(0, 2, 1)


def inverse_root(A: np.ndarray) -> np.ndarray:
    """Lower L with LᵀL = A^{-1}, of positive matrices (K, D, D) that rounding may have made less.

    Coordinates are scaled before, because spreads of columns differ by orders.
    """
    s = 1.0 / np.sqrt(np.maximum(np.diagonal(A, axis1=1, axis2=2), 1e-300))
    scaled = A * (s[:, :, None] * s[:, None, :])
    for own in scaled:
        upper, missed = _cholesky(own.T, clean=True)
        if missed:
            least = np.linalg.eigvalsh(own)[0]
            moved = own + max(1e-9 - least, 0.0) * np.eye(len(own))
            upper = _cholesky(moved.T, clean=True)[0]
        own[...] = _inverse(upper, overwrite_c=True)[0].T
    return scaled * s[:, None, :]


FACTOR = 0.25  # scale of Laplace's law of the logarithms of factors of columns' slopes
FACTORS = np.exp(np.linspace(math.log(0.05), math.log(5.0), 80))


def drawn_factors(
    of_gram: np.ndarray, of_slope: np.ndarray, s: float, t: float, n_draws: int, generator: Any
) -> np.ndarray:
    """Draw f (K, D) where slopes are f_i f_j times those of usual columns.

    f² is small where a column varies in rows of sure outcome; its logarithm has Laplace's law.
    """
    error = 2.0 * (t**2 + FACTORS**4 * s**2)
    off = of_slope[:, None] - FACTORS**2 * np.maximum(of_gram, 2.0 * s)[:, None]
    log_p = -(off**2) / (2.0 * error) - np.log(error) / 2.0 - np.abs(np.log(FACTORS)) / FACTOR
    return FACTORS[picked(log_p, (n_draws,), generator)]


_TIMES = np.linspace(-6.0, 3.0, 3001)


def times(found: Any, told: Any, error: float, scale: float) -> float:
    """How many times slopes (k,) are those told, as they were found with an error.

    The geometric mean of its posterior: its logarithm has Laplace's law of this scale.
    """
    off = (np.exp(_TIMES) * np.dot(told, told) - np.dot(told, found)) / np.linalg.norm(told)
    log_p = -((off / max(error, 1e-12)) ** 2) / 2.0 - np.abs(_TIMES) / scale
    p = np.exp(log_p - log_p.max())
    return math.exp(p @ _TIMES / p.sum())


USUAL_MISS, MISSES = 0.05, 0.7  # X of real tables: 0.02 to 0.11 (benchmarks/real_tables.py)
_MISSES = np.exp(np.linspace(math.log(0.005), math.log(1.0), 80))


def drawn_misses(found: float, error: float, n_draws: int, generator: Any) -> np.ndarray:
    """Draw x² (K, 1, 1), of which one has been found with an error."""
    log_p = -((found - _MISSES**2) ** 2) / (2.0 * max(error, 1e-6) ** 2)
    log_p -= (np.log(_MISSES / USUAL_MISS) / MISSES) ** 2 / 2.0
    return _MISSES[picked(log_p, (n_draws, 1, 1), generator)] ** 2
