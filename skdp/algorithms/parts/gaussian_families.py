"""How the spread of a normal approximation is stored and improved: diagonal, or in full.

q = N(m, L Lᵀ). A family sees the gradient of the log-likelihood at one draw m + Lη, which has been
released, and moves L; prior and entropy enter exactly. Nothing in here touches data.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from skdp.engine.adam import Moments, NoiseCorrectedAdam
from skdp.fitting.streams import SecureStream

SCALE_LEARNING_RATE = 0.3  # of ρ over that of m: ρ starts close to its optimum, and need not hurry


class Family(Protocol):
    """How the spread L of q is stored, applied, and improved; on flat vectors of P numbers."""

    def init(self, scale: float, n_parameters: int) -> Any:
        """L = scale·I."""
        ...

    def times(self, spread: Any, eta: np.ndarray) -> np.ndarray:
        """Lη."""
        ...

    def update(self, spread: Any, gradient: np.ndarray, eta: np.ndarray, decay: float) -> Any:
        """One ascent step in L, where ``gradient`` is that of the likelihood at m + Lη."""
        ...

    def numbers(self, spread: Any) -> np.ndarray:
        """What is averaged over the tail of the run."""
        ...

    def posterior_spread(self, numbers: np.ndarray) -> np.ndarray:
        """Spread of a `GaussianPosterior`, from such an average."""
        ...


class DiagonalSpread(NamedTuple):
    """ρ = log s, and the moments of its gradient."""

    log_scale: np.ndarray
    moments: Moments


@dataclass(frozen=True)
class Diagonal:
    """L = diag s: ∇_ρ = g∘η∘s − s²/τ² + 1 for ρ = log s, by noise-corrected Adam.

    - ``prior_precision``: 1/τ² of the prior; 0 where the gradients are of the prior, too.
    - ``noise_variance``: of the noise in each coordinate of a gradient.
    - ``learning_rate``, ``max_scale``: of ρ, which has no units; bound on s.
    - ``of_scale``: whether ``gradient`` is g∘η∘s already (vanilla).
    """

    prior_precision: float
    noise_variance: float
    learning_rate: float
    max_scale: float
    of_scale: bool = False
    adam: NoiseCorrectedAdam = NoiseCorrectedAdam()  # noqa: RUF009 - frozen

    def init(self, scale: float, n_parameters: int) -> DiagonalSpread:
        """ρ = log scale."""
        log_scale = np.full(n_parameters, math.log(scale))
        return DiagonalSpread(log_scale, self.adam.init(log_scale))

    def times(self, spread: DiagonalSpread, eta: np.ndarray) -> np.ndarray:
        """s∘η."""
        return np.exp(spread.log_scale) * eta

    def update(
        self, spread: DiagonalSpread, gradient: np.ndarray, eta: np.ndarray, decay: float
    ) -> DiagonalSpread:
        """One step in ρ."""
        s = np.exp(spread.log_scale)
        variance = np.full_like(s, self.noise_variance)
        if not self.of_scale:
            gradient, variance = gradient * eta * s, variance * s**2
        gradient = gradient - self.prior_precision * s**2 + 1
        step, moments = self.adam.direction(spread.moments, gradient, variance)
        log_scale = spread.log_scale + decay * self.learning_rate * step
        return DiagonalSpread(np.minimum(log_scale, math.log(self.max_scale)), moments)

    def numbers(self, spread: DiagonalSpread) -> np.ndarray:
        """ρ."""
        return spread.log_scale

    def posterior_spread(self, numbers: np.ndarray) -> np.ndarray:
        """s, the exponential of ρ."""
        return np.exp(numbers)


@dataclass(frozen=True)
class Cholesky:
    """L lower triangular with a positive diagonal, by natural gradients.

    In whitened coordinates the gradient is A = tril(Lᵀ∇_L) = tril(E[Lᵀg ηᵀ] + I − LᵀL/τ²), and the
    natural step is L ← L(I + γ Φ(A)), Φ halving the diagonal (Salimbeni, Eleftheriadis & Hensman
    2018): it knows no units and no conditioning. The diagonal is multiplied by an exponential, and
    stays positive. As I = E[ηηᵀ], one draw estimates A by the triangle of

        aηᵀ   with   a = Lᵀg + η − LᵀLη/τ²,

    whose variance vanishes where q is the posterior (Roeder, Wu & Duvenaud 2017), at O(P²) a step.

    DP noise adds ν²s² to the variance of an entry of A, a Poisson batch of rate q adds 1/q − 1. The
    spectral norm of such noise grows as √P, and |η|² as P, so the gain γ is their inverse.
    """

    prior_precision: float
    noise_variance: float
    max_scale: float
    sampling_rate: float = 1.0

    def init(self, scale: float, n_parameters: int) -> np.ndarray:
        """L = scale·I."""
        return scale * np.eye(n_parameters)

    def times(self, spread: np.ndarray, eta: np.ndarray) -> np.ndarray:
        """Lη."""
        return spread @ eta

    def update(
        self, spread: np.ndarray, gradient: np.ndarray, eta: np.ndarray, decay: float
    ) -> np.ndarray:
        """L ← L(I + γ Φ(A)), of bounded length."""
        L = spread
        a = L.T @ (gradient - self.prior_precision * (L @ eta)) + eta
        variance = float(np.sum(L**2)) / len(L)
        noise = 1.0 / self.sampling_rate + self.noise_variance * variance
        gain = decay * _GAIN / ((len(L) + 2) * noise)
        length = float(np.linalg.norm(a) * np.linalg.norm(eta))
        a = a * min(gain, _LONGEST / (length + 1e-300))
        # Column j of L·tril(aηᵀ, −1) is η_j Σ_{i>j} a_i L_i.
        terms = L * a
        below = terms.sum(axis=1, keepdims=True) - terms.cumsum(axis=1)
        L = L * np.exp(0.5 * a * eta) + np.tril(below * eta)
        # The optimum is no wider than the prior.
        return L * (self.max_scale / np.maximum(np.linalg.norm(L, axis=1), self.max_scale))[:, None]

    def numbers(self, spread: np.ndarray) -> np.ndarray:
        """L."""
        return spread

    def posterior_spread(self, numbers: np.ndarray) -> np.ndarray:
        """LLᵀ."""
        return numbers @ numbers.T


_GAIN = 0.5  # of L: half way along a probed direction in one noiseless step
_LONGEST = 0.5  # relative change of L in one step


# --- the run ------------------------------------------------------------------------------------


def orthogonal_normals(size: int, n_draws: int, stream: SecureStream) -> Iterator[np.ndarray]:
    """Yield η_t ~ N(0, I) in antithetic pairs, orthogonal to each other within a block.

    Each draw has the right law, so the gradient stays unbiased, while the cross terms η_j η_k that
    dominate the variance of the scale's gradient cancel over a block (orthogonal Monte Carlo;
    Yu et al., *Orthogonal Random Features*, NeurIPS 2016). Rows of a Haar-distributed orthogonal
    matrix times independent χ radii are normal.
    """
    block = min(size, 128, math.ceil(n_draws / 2))  # no more than are asked for
    while True:
        gaussians = stream.normal((size, block))
        q, r = np.linalg.qr(gaussians)
        directions = (q * np.sign(np.diagonal(r))).T
        radii = np.sqrt(stream.generator.chisquare(size, size=block))
        for eta in directions * radii[:, None]:
            yield eta
            yield -eta
