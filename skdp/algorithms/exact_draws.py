"""Exact draws from π ∝ exp(−U) on a ball, U = L + (λ/2)‖θ‖² with a convex data term L = ρΣℓ_i.

How they work and why they are exact stands in `algorithms.ops`. Nothing here is capped: a draw
takes as many attempts as it takes, and how many is a secret of the data.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from scipy.optimize import minimize, root_scalar

from skdp._random import SecureStream
from skdp._rows import LinearRows
from skdp.algorithms.tempered import TemperedPosterior

_EXPONENT = 4.0  # rejection takes about e^(this/2) trials in a round of the proximal sampler
_TRIALS = 4  # proposals looked at together in a round
_TRIALS_AT_ONCE = 64  # the same without rounds
_SHARP_TRIALS = 2048  # by the sharper bound, before rounds are taken
_NUMBERS = 2**22  # logits held at a time


class Potential:
    """The data term L(θ) = ρ Σ ℓ_i(θ) of the potential, for flat θ.

    Attributes
    ----------
    most_at_once : int
        How many θ memory has room to look at together.
    minimum : ndarray of shape (K·D,)
        About where U is least, in the ball or not.
    mode : ndarray of shape (K·D,)
        The same moved into the ball: a good anchor and a good start.
    """

    def __init__(
        self, posterior: TemperedPosterior, power: float, records: tuple[np.ndarray, np.ndarray]
    ) -> None:
        rows = LinearRows.of(posterior, records).take(slice(None))
        self.posterior, self._power, self._likelihood = posterior, power, posterior.likelihood
        reach = posterior.row_bound * posterior.theta_norm
        self._rows = rows.rows
        self._targets = posterior.likelihood.tamed(rows.targets, reach)
        self.most_at_once = max(1, _NUMBERS // max(self._targets.size, 1))
        λ = posterior.prior_precision

        def objective(θ: np.ndarray) -> tuple[float, np.ndarray]:
            value, gradient = self(θ)
            return value + λ / 2 * float(θ @ θ), gradient + λ * θ

        start = np.zeros(posterior.n_parameters)
        options = {"gtol": 1e-9, "ftol": 0.0, "maxiter": 300}
        found = minimize(objective, start, jac=True, method="L-BFGS-B", options=options)
        self.minimum = found.x
        self.mode = self.projected(found.x)

    def _logits(self, θ: np.ndarray) -> np.ndarray:
        """(..., n, K) of θ (..., K·D)."""
        return self._rows @ np.swapaxes(θ.reshape(*θ.shape[:-1], *self.posterior.shape), -1, -2)

    def values(self, θ: np.ndarray) -> np.ndarray:
        """L of several θ, (m,)."""
        log_p = self._likelihood.log_likelihood(self._logits(θ), self._targets)
        return -self._power * log_p.sum(axis=-1)

    def __call__(self, θ: np.ndarray) -> tuple[float, np.ndarray]:
        """L and its gradient at one θ."""
        logits = self._logits(θ)
        log_p: np.ndarray = self._likelihood.log_likelihood(logits, self._targets)
        residual = self._likelihood.residual(logits, self._targets)
        gradient = -self._power * (residual.T @ self._rows).ravel()
        return float(-self._power * log_p.sum()), gradient

    def curvature(self, θ: np.ndarray) -> np.ndarray:
        """Diagonal blocks of ∇²L, one an output: (K, D, D)."""
        weights = self._power * self._likelihood.curvature(self._logits(θ), self._targets)
        return np.array([(self._rows.T * w) @ self._rows for w in weights.T])

    def longest_row(self, metric: np.ndarray) -> float:
        """Largest ‖x_i‖ in the metric of M⁻¹, given M (D, D)."""
        solved = solve_triangular(np.linalg.cholesky(metric), self._rows.T, lower=True)
        return float(np.sqrt(np.max(np.einsum("ij,ij->j", solved, solved), initial=0.0)))

    def projected(self, θ: np.ndarray) -> np.ndarray:
        """Move θ into the ball."""
        return θ * min(1.0, self.posterior.theta_norm / max(float(np.linalg.norm(θ)), 1e-300))


def rejection(potential: Potential, stream: SecureStream) -> Iterator[np.ndarray]:
    """Yield exact draws, each after about exp(½ ln det(I + ∇²L/λ)) trials."""
    precision, mode = potential.posterior.prior_precision, potential.mode
    at_mode = potential(mode)
    mean = -at_mode[1] / precision
    return _restricted(potential, mode, at_mode, mean, precision, stream, _TRIALS_AT_ONCE)


def _restricted(
    potential: Potential,
    anchor: np.ndarray,
    at_anchor: tuple[float, np.ndarray],
    mean: np.ndarray,
    precision: float,
    stream: SecureStream,
    n_trials: int,
) -> Iterator[np.ndarray]:
    """Yield exact draws from exp(⟨∇L(a), θ⟩ − L(θ) − precision/2 ‖θ − mean‖²) on the ball.

    The anchor a comes with L and ∇L there. Where N(mean, I/precision) would miss the ball ‖θ‖ ≤ D,
    proposals are pulled in: a factor exp(−ν/2 ‖θ‖²) in their density is paid back by accepting with
    exp(−ν/2 (D² − ‖θ‖²)) ≤ 1, and ν is such that their mean square is D².
    """
    value, gradient = at_anchor
    D, p = potential.posterior.theta_norm, len(mean)
    force = precision * float(np.linalg.norm(mean))
    pulled = max(precision, (p + math.hypot(p, 2 * D * force)) / (2 * D * D))
    center, deviation, ν = mean * (precision / pulled), pulled**-0.5, pulled - precision
    n_trials = min(n_trials, potential.most_at_once)
    while True:
        θ = center + deviation * stream.normal((n_trials, p))
        coins = stream.generator.random(n_trials)
        squares = _squares(θ)
        inside = np.flatnonzero(squares <= D * D)
        if len(inside) == 0:
            continue
        excess = potential.values(θ[inside]) - value - (θ[inside] - anchor) @ gradient
        excess += ν / 2 * (D * D - squares[inside])
        yield from θ[inside[np.log1p(-coins[inside]) <= -excess]]


def round_length(posterior: TemperedPosterior, trace: float) -> float:
    """Choose g of the proximal sampler, given a bound on tr ∇²L or about that: any g is exact.

    This one keeps trials few, in the bulk (ln det ≤ trace) and at the ball's surface.
    """
    surface = (2 * posterior.theta_norm / posterior.n_parameters) ** 2
    return min(_EXPONENT / max(trace, posterior.prior_precision), surface)


def n_rounds(posterior: TemperedPosterior, g: float, distance: float) -> int:
    """Rounds of length g that end within a distance of an exact draw, from anywhere in the ball."""
    apart = max(2 * posterior.theta_norm / distance, 1.0)
    return math.ceil(math.log(apart) / math.log1p(g * posterior.prior_precision))


def proximal(potential: Potential, distance: float, stream: SecureStream) -> Iterator[np.ndarray]:
    """Yield draws that are surely within a distance of exact ones."""
    posterior, mode = potential.posterior, potential.mode
    shape, n_parameters = posterior.shape, posterior.n_parameters
    blocks = potential.curvature(mode)
    g = round_length(posterior, float(np.trace(blocks, axis1=1, axis2=2).sum()))
    precision = posterior.prior_precision + 1 / g
    factors = [cho_factor(block + precision * np.eye(shape[1])) for block in blocks]

    def newton(point: np.ndarray, slope: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Step towards the minimum of L + λ/2‖θ‖² + ‖θ − y‖²/2g, with the curvature at the mode."""
        ascent = (slope + precision * point - y / g).reshape(shape)
        steps = [cho_solve(f, s) for f, s in zip(factors, ascent, strict=True)]
        return potential.projected(point - np.concatenate(steps))

    _, slope_at_mode = potential(mode)

    def rounds() -> np.ndarray:
        θ = mode  # at most 2D from wherever an exact draw is
        for _ in range(n_rounds(posterior, g, distance)):
            y = θ + math.sqrt(g) * stream.normal(n_parameters)
            anchor = newton(mode, slope_at_mode, y)
            anchor = newton(anchor, potential(anchor)[1], y)
            at_anchor = potential(anchor)
            mean = (y / g - at_anchor[1]) / precision
            θ = next(_restricted(potential, anchor, at_anchor, mean, precision, stream, _TRIALS))
        return θ

    for exact in _sharp(potential, stream):
        yield rounds() if exact is None else exact


def _sharp(potential: Potential, stream: SecureStream) -> Iterator[np.ndarray | None]:
    """Yield exact draws by rejection under the sharper bound, None where one takes too long."""
    posterior, minimum = potential.posterior, potential.minimum
    λ, D, p = posterior.prior_precision, posterior.theta_norm, len(minimum)
    M = posterior.likelihood.self_concordance
    if posterior.shape[0] > 1 or math.isinf(M) or np.linalg.norm(minimum) > D:
        while True:
            yield None
    metric = λ * np.eye(p) + potential.curvature(minimum)[0]
    root = np.linalg.cholesky(metric)
    Λ = max(M * potential.longest_row(metric), 1e-3)  # a larger one is a bound too
    value, gradient = potential(minimum)
    # The minimum is one to many digits; what is left of the slope is covered all over the ball.
    slack = 2 * D * float(np.linalg.norm(gradient + λ * minimum))

    def slope(r: float) -> float:
        return -math.expm1(-Λ * r) / Λ

    # The tangent whose envelope has the least mass.
    far = 2 * math.sqrt(p) + 2 * Λ * p + 1.0
    r0 = float(root_scalar(lambda r: r * slope(r) - p, bracket=(0.0, far)).root)
    bound = (math.expm1(-Λ * r0) + Λ * r0) / Λ**2 - slope(r0) * r0
    size = min(_TRIALS_AT_ONCE, potential.most_at_once)
    while True:
        found = None
        for _ in range(-(-_SHARP_TRIALS // size)):
            u = stream.normal((size, p))
            r = stream.generator.gamma(p, 1 / slope(r0), size)
            v = solve_triangular(root, u.T, lower=True, trans=1).T
            v *= (r / np.linalg.norm(u, axis=1))[:, None]
            coins = stream.generator.random(size)
            inside = np.flatnonzero(_squares(minimum + v) <= D * D)
            θ = minimum + v[inside]
            rise = potential.values(θ) - value + λ / 2 * (_squares(θ) - minimum @ minimum)
            excess = rise - bound - slope(r0) * r[inside] + slack
            accepted = np.flatnonzero(np.log1p(-coins[inside]) <= -excess)
            if len(accepted):
                found = θ[accepted[0]]
                break
        yield found


def _squares(θ: np.ndarray) -> np.ndarray:
    return np.einsum("ij,ij->i", θ, θ)
