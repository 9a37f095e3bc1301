"""One posterior sample (OPS): exact draws of a posterior on a ball, for pure differential privacy.

With the notation of `algorithms.tempered`, an exact draw from π ∝ exp(−U) on ‖θ‖ ≤ D is η-DP,
η = ρ·value_range(RD), and k of them cost what `privacy.posterior_samples` says (Wang, Fienberg &
Smola 2015, with their 4B improved to the range; PRIVACY §4). *Exact* is meant: a chain that was run
"long enough" carries no guarantee. Two samplers, both without a cap on the number of attempts:

**Rejection.** Linearise the data term at any anchor a: with L = ρΣℓ_i,

    U(θ) = [L(a) + ⟨∇L(a), θ − a⟩ + (λ/2)‖θ‖²] + B(θ, a),      B the Bregman divergence of L, ≥ 0,

so draw θ from the normal law in brackets and accept it in the ball with probability exp(−B). A
draw takes exp(½ ln det(I + ∇²L/λ)) trials or so: practical for few columns or a small ρ.

**Proximal.** Else alternate, from any start, K times

    y ~ N(θ, gI),      θ ~ exp(−U(θ) − ‖θ − y‖²/(2g)) on the ball,

the second by rejection as above, which is cheap for a small g (λ becomes λ + 1/g). One round brings
the laws of two such chains closer by 1/(1 + gλ) in the distance W∞, surely and not on average, and
leaves π as it is (Chen, Chewi, Salim & Wibisono 2022; for W∞ see docs/privacy.md §4). So after
K ≥ ln(2D/w)/ln(1 + gλ) rounds the state is within w of an exact draw, *always*, and noise with
density ∝ exp(−ε'‖z‖/w) makes of it a release of range η + 4ε' (Lin, Ma, Wang, Redberg & Bu 2024).
w is so small that nobody sees the noise.

For two classes each draw first tries rejection under a sharper bound, and takes the rounds only if
that fails: whichever gives the draw, it is within w of an exact one. Along a ray from the mode m
the data term is self-concordant (|ℓ‴| ≤ |x·v| ℓ″), and with r = ‖v‖ in the metric of H = ∇²U(m) and
Λ the largest ‖x_i‖ in that of H⁻¹ (Bach 2010)

    U(m + v) − U(m) ≥ s(r) = (e^(−Λr) + Λr − 1)/Λ²  ≥  s(r₀) + s'(r₀)(r − r₀)   for any r₀,

so that r ~ Gamma(p, 1/s'(r₀)) in a uniform direction is an envelope.

**Timing.** How long a draw takes depends on the data and is not covered (Awan & Rao 2023): do not
let those who see the release see the clock.

References
----------
Y.-X. Wang, S. Fienberg, A. Smola, *Privacy for Free*, ICML 2015.
F. Bach, *Self-concordant Analysis for Logistic Regression*, EJS 2010.
Y. Chen, S. Chewi, A. Salim, A. Wibisono, *Improved Analysis for a Proximal Algorithm for Sampling*,
COLT 2022.
Y. Lin, Y.-A. Ma, Y.-X. Wang, R. Redberg, Z. Bu, *Tractable MCMC for Private Learning with Pure and
Gaussian Differential Privacy*, ICLR 2024.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from dp_accounting.dp_event import DpEvent
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from scipy.optimize import minimize, root_scalar
from scipy.special import log_ndtr, ndtri_exp

from skdp import _trace
from skdp._random import SecureStream, Streams
from skdp._validate import expected, in_range, integer, one_of
from skdp.algorithms.tempered import TemperedPosterior
from skdp.engine.rows import LinearRows
from skdp.privacy.events import PosteriorSamplesDpEvent

SAMPLERS = ("rejection", "proximal")
NOISE_SHARE = 0.01  # of η, spent on the noise that covers the proximal sampler's distance
_NOISE = 1e-3  # expected norm of that noise over the least deviation that a posterior can have
_EXPONENT = 4.0  # rejection takes about e^(this/2) trials in a round of the proximal sampler
_TRIALS = 4  # proposals looked at together in a round
_TRIALS_AT_ONCE = 64  # the same without rounds
_SHARP_TRIALS = 2048  # by the sharper bound, before rounds are taken
_NUMBERS = 2**22  # logits held at a time
_MOST_EXPONENT = 12.0  # of the bound on ln det(I + ∇²L/λ), up to which "auto" rejects at once


@dataclass(frozen=True)
class ExactConfig:
    """Public facts of a run; built without a row in sight, and all that the event depends on.

    Parameters
    ----------
    posterior : TemperedPosterior
        What to sample from; its domain must be bounded.
    likelihood_power : float
        ρ in (0, 1].
    n_samples : int
        k ≥ 1 independent draws.
    sampler : {"rejection", "proximal"}
        Which of the two exact samplers.
    n_rows : int
        Public number of rows n ≥ 1, or about that: the guarantee does not hang on it.
    """

    posterior: TemperedPosterior
    likelihood_power: float
    n_samples: int
    sampler: str
    n_rows: int

    def __post_init__(self) -> None:
        in_range(0.0, 1.0, closed="right", likelihood_power=self.likelihood_power)
        integer(1, n_samples=self.n_samples)
        one_of(SAMPLERS, sampler=self.sampler)
        integer(1, n_rows=self.n_rows)
        if math.isinf(self.posterior.theta_norm):
            raise expected(
                "a finite number > 0",
                "on an unbounded domain a posterior sample has no pure guarantee",
                theta_norm=self.posterior.theta_norm,
            )

    @property
    def eta(self) -> float:
        """η of one released draw, the noise of the proximal sampler included."""
        return self.likelihood_power * self.posterior.range / _share(self.sampler)

    def event(self) -> DpEvent:
        """What the run releases."""
        return PosteriorSamplesDpEvent(self.eta, self.n_samples)

    @property
    def seconds(self) -> float:
        """About how long the rounds take at most on a core, from public facts."""
        if self.sampler == "rejection":
            return 0.0  # no bound on rare cases is of use
        n_parameters = math.prod(self.posterior.shape)
        trace = self.likelihood_power * self.posterior.curvature(self.n_rows)
        trace *= self.posterior.shape[0]
        rounds = self.n_rounds(_round_length(self.posterior, trace))
        return self.n_samples * rounds * (self.n_rows * n_parameters / 5e7 + 3e-4)

    @property
    def distance(self) -> float:
        """w: how close the rounds come to an exact draw; public, as it sets the released noise."""
        stiffest = self.likelihood_power * self.posterior.curvature(self.n_rows)
        stiffest += self.posterior.prior_precision
        n_parameters = math.prod(self.posterior.shape)
        return _NOISE * self.epsilon_of_noise / (n_parameters * math.sqrt(stiffest))

    def n_rounds(self, g: float) -> int:
        """Rounds of length g that end within the distance, from anywhere in the ball."""
        apart = max(2 * self.posterior.theta_norm / self.distance, 1.0)
        return math.ceil(math.log(apart) / math.log1p(g * self.posterior.prior_precision))

    @property
    def sampling(self) -> str:
        """How records take part, for the report."""
        draws = "exact draw" if self.n_samples == 1 else f"{self.n_samples} exact draws"
        return f"all rows, {draws} by the {self.sampler} sampler; running time not covered"

    @property
    def epsilon_of_noise(self) -> float:
        """ε' of the proximal sampler's noise: η = range + 4ε'."""
        return (1 - _share(self.sampler)) * self.eta / 4


def _share(sampler: str) -> float:
    return 1.0 - NOISE_SHARE if sampler == "proximal" else 1.0


def _round_length(posterior: TemperedPosterior, trace: float) -> float:
    """Choose g of the proximal sampler, given a bound on tr ∇²L or about that: any g is exact.

    This one keeps trials few, in the bulk (ln det ≤ trace) and at the ball's surface.
    """
    surface = (2 * posterior.theta_norm / math.prod(posterior.shape)) ** 2
    return min(_EXPONENT / max(trace, posterior.prior_precision), surface)


def affordable_power(posterior: TemperedPosterior, eta: float, sampler: str) -> float:
    """Largest ρ ≤ 1 at which one draw has range ≤ η."""
    power = min(1.0, eta * _share(sampler) / posterior.range)
    while power * posterior.range / _share(sampler) > eta:  # roundings
        power *= 1 - 2.0**-52
    return power


def default_theta_norm(row_bound: float, n_rows: int, n_parameters: int, eta: float) -> float:
    """D: log-odds of ±3 for a row at the norm bound, and slowly more as nη/p and p grow."""
    scale = (1 + min(n_rows * eta / n_parameters, 1e4)) ** 0.17 * (n_parameters / 10) ** 0.25
    return 3 * max(scale, 1.0) / row_bound


def default_prior_scale(row_bound: float, theta_norm: float, n_parameters: int) -> float:
    """τ ≤ D/√p, so that half of the prior's draws fall into the ball; less where D is wide.

    The proximal sampler takes longer the wider the prior is.
    """
    return min(theta_norm, 9 / row_bound) / math.sqrt(n_parameters)


def default_sampler(posterior: TemperedPosterior, likelihood_power: float, n_rows: int) -> str:
    """Rejection where a public bound on its expected number of trials is small, else proximal."""
    τ, D = posterior.prior_scale, posterior.theta_norm
    n_parameters = math.prod(posterior.shape)
    # tr ∇²L is at most K times the bound on its largest eigenvalue, for rows of norm R.
    trace = likelihood_power * posterior.curvature(n_rows) * posterior.shape[0]
    roomy = (
        τ * math.sqrt(n_parameters) < 1.1 * D
    )  # else few draws from the prior fall into the ball
    return "rejection" if roomy and trace * τ * τ <= _MOST_EXPONENT else "proximal"


def sample(
    config: ExactConfig,
    X: np.ndarray,
    targets: np.ndarray,
    streams: Streams,
    progress: Callable[[Iterable[int]], Iterable[int]] = iter,
) -> np.ndarray:
    """Draw from the posterior given private rows; returns (k, K, D).

    Parameters
    ----------
    config : ExactConfig
        Public facts, whose event has been charged.
    X : ndarray of shape (n, n_features)
        Private rows, clipped on the way in.
    targets : ndarray of shape (n, K)
        As the likelihood wants them.
    streams : Streams
        Random streams of this fit.
    progress : callable, default=iter
        Wraps the iteration over draws.
    """
    shape = config.posterior.shape
    call = _trace.MechanismCall(
        kind="posterior_samples",
        sensitivity=config.eta,
        scale=1.0,
        rate=1.0,
        shape=(config.n_samples, *shape),
        step=0,
    )

    def mechanism() -> np.ndarray:
        potential = Potential(config.posterior, config.likelihood_power, X, targets)
        stream = streams("noise")
        draws = _DRAWS[config.sampler](config, potential, stream)
        kept = [next(draws) for _ in progress(range(config.n_samples))]
        return np.array(kept).reshape(config.n_samples, *shape)

    return _trace.release(call, mechanism)


class Potential:
    """The data term L(θ) = ρ Σ ℓ_i(θ) of the potential, for flat θ.

    Attributes
    ----------
    n_rows : int
        Number of rows at hand: private under add-or-remove-one.
    minimum : ndarray of shape (K·D,)
        About where U is least, in the ball or not.
    mode : ndarray of shape (K·D,)
        The same moved into the ball: a good anchor and a good start.
    """

    def __init__(
        self, posterior: TemperedPosterior, power: float, X: np.ndarray, targets: np.ndarray
    ) -> None:
        rows = LinearRows(
            X, targets, data_norm=posterior.data_norm, fit_intercept=posterior.fit_intercept
        ).take(slice(None))
        self.posterior, self._power, self._likelihood = posterior, power, posterior.likelihood
        reach = posterior.row_bound * posterior.theta_norm
        self._rows = rows.rows
        self._targets = posterior.likelihood.tamed(rows.targets, reach)
        self.n_rows = len(rows.rows)
        λ = posterior.prior_precision

        def objective(θ: np.ndarray) -> tuple[float, np.ndarray]:
            value, gradient = self(θ)
            return value + λ / 2 * float(θ @ θ), gradient + λ * θ

        start = np.zeros(math.prod(posterior.shape))
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


def _rejection(
    config: ExactConfig, potential: Potential, stream: SecureStream
) -> Iterator[np.ndarray]:
    """Yield exact draws from π."""
    precision, mode = config.posterior.prior_precision, potential.mode
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

    The anchor a comes with L and ∇L there. Proposals are N(mean, I/precision), cut off at the
    tangent plane of the ball where the mean lies outside of it: a half-space that holds the whole
    ball is all that rejection needs.
    """
    value, gradient = at_anchor
    D, deviation = potential.posterior.theta_norm, precision**-0.5
    distance = float(np.linalg.norm(mean))
    while True:
        θ = mean + deviation * stream.normal((n_trials, len(mean)))
        if distance > D:
            outward = mean / distance
            below = log_ndtr((D - distance) / deviation)
            along = ndtri_exp(below + np.log1p(-stream.generator.random(n_trials)))
            θ += np.outer(distance + deviation * along - θ @ outward, outward)
        coins = stream.generator.random(n_trials)
        inside = np.flatnonzero(_squares(θ) <= D * D)
        if len(inside) == 0:
            continue
        bregman = potential.values(θ[inside]) - value - (θ[inside] - anchor) @ gradient
        yield from θ[inside[np.log1p(-coins[inside]) <= -bregman]]


def _proximal(
    config: ExactConfig, potential: Potential, stream: SecureStream
) -> Iterator[np.ndarray]:
    """Yield draws within w of exact ones, and noise that covers w."""
    posterior, λ = config.posterior, config.posterior.prior_precision
    shape, n_parameters = posterior.shape, math.prod(posterior.shape)
    mode = potential.mode
    blocks = potential.curvature(mode)
    g = _round_length(posterior, float(np.trace(blocks, axis1=1, axis2=2).sum()))
    precision = λ + 1 / g
    factors = [cho_factor(block + precision * np.eye(shape[1])) for block in blocks]

    def newton(point: np.ndarray, slope: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Step towards the minimum of L + λ/2‖θ‖² + ‖θ − y‖²/2g, with the curvature at the mode."""
        ascent = (slope + precision * point - y / g).reshape(shape)
        steps = [cho_solve(f, s) for f, s in zip(factors, ascent, strict=True)]
        return potential.projected(point - np.concatenate(steps))

    _, slope_at_mode = potential(mode)

    def rounds() -> np.ndarray:
        θ = mode  # at most 2D from wherever an exact draw is
        for _ in range(config.n_rounds(g)):
            y = θ + math.sqrt(g) * stream.normal(n_parameters)
            anchor = newton(mode, slope_at_mode, y)
            anchor = newton(anchor, potential(anchor)[1], y)
            at_anchor = potential(anchor)
            mean = (y / g - at_anchor[1]) / precision
            θ = next(_restricted(potential, anchor, at_anchor, mean, precision, stream, _TRIALS))
        return θ

    for exact in _sharp(potential, stream):
        θ = rounds() if exact is None else exact
        direction = stream.normal(n_parameters)
        radius = stream.generator.gamma(n_parameters, config.distance / config.epsilon_of_noise)
        yield potential.projected(θ + radius * direction / np.linalg.norm(direction))


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
    Λ = max(M * potential.longest_row(metric), 1e-8)
    value, gradient = potential(minimum)
    # The minimum is one to many digits; what is left of the slope is covered all over the ball.
    slack = 2 * D * float(np.linalg.norm(gradient + λ * minimum))

    def slope(r: float) -> float:
        return -math.expm1(-Λ * r) / Λ

    # The tangent whose envelope has the least mass.
    far = 2 * math.sqrt(p) + 2 * Λ * p + 1.0
    r0 = float(root_scalar(lambda r: r * slope(r) - p, bracket=(0.0, far)).root)
    bound = (math.expm1(-Λ * r0) + Λ * r0) / Λ**2 - slope(r0) * r0
    size = max(1, min(_TRIALS_AT_ONCE, _NUMBERS // max(potential.n_rows, 1)))
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


_DRAWS = {"rejection": _rejection, "proximal": _proximal}
