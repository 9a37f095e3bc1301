"""One posterior sample (OPS): exact draws of a posterior on a ball, for pure differential privacy.

With the notation of `algorithms.tempered`, an exact draw from π ∝ exp(−U) on ‖θ‖ ≤ D is η-DP,
η = ρ·value_range(RD), and k of them cost what `privacy.posterior_samples` says (Wang, Fienberg &
Smola 2015, with their 4B improved to the range; PRIVACY §4). *Exact* is meant: a chain that was run
"long enough" carries no guarantee. Two samplers, both without a cap on the number of attempts:

**Rejection.** Linearise the data term at any anchor a: with L = ρΣℓ_i,

    U(θ) = [L(a) + ⟨∇L(a), θ − a⟩ + (λ/2)‖θ‖²] + B(θ, a),      B the Bregman divergence of L, ≥ 0,

so draw θ from the normal law in brackets and accept it in the ball with probability exp(−B). A
draw takes exp(½ ln det(I + ∇²L/λ)) trials or so, more where π presses against the ball's surface:
practical for few columns or a small ρ.

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

**Doubles.** The theorem is about real numbers. Around a centre that depends on the rows a raw
double tells the centre, so released draws are rounded to a public grid (`skdp._release_hook`),
which is post-processing, and no proof that the *computed* law is η-DP.

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
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from dp_accounting.dp_event import DpEvent

from skdp import _release_hook
from skdp._random import SecureStream, Streams
from skdp._release_hook import grid_width
from skdp._validate import expected, in_range, integer, one_of
from skdp.algorithms import exact_draws
from skdp.algorithms.tempered import TemperedPosterior
from skdp.privacy.events import PosteriorSamplesDpEvent

SAMPLERS = ("rejection", "proximal")
NOISE_SHARE = 0.01  # of η, spent on the noise that covers the proximal sampler's distance
_NOISE = 1e-3  # expected norm of that noise over the least deviation that a posterior can have
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
        g = exact_draws.round_length(self.posterior, trace)
        rounds = exact_draws.n_rounds(self.posterior, g, self.distance)
        return self.n_samples * rounds * (self.n_rows * n_parameters / 5e7 + 3e-4)

    @property
    def distance(self) -> float:
        """w: how close the rounds come to an exact draw; public, as it sets the released noise."""
        n_parameters = math.prod(self.posterior.shape)
        return _NOISE * self.epsilon_of_noise * self._least_deviation / n_parameters

    @property
    def _least_deviation(self) -> float:
        """Least standard deviation that a posterior can have along a direction; public."""
        stiffest = self.likelihood_power * self.posterior.curvature(self.n_rows)
        return 1 / math.sqrt(stiffest + self.posterior.prior_precision)

    @property
    def grid_width(self) -> float:
        """Grid of the released draws: coarse beside the doubles of a proposal, fine for any use.

        A raw double around a centre that depends on the rows reveals the centre.
        """
        return grid_width(self._least_deviation)

    @property
    def sampling(self) -> str:
        """How records take part, for the report."""
        draws = "exact draw" if self.n_samples == 1 else f"{self.n_samples} exact draws"
        return (
            f"all rows, {draws} by the {self.sampler} sampler, rounded to a public grid; proved in "
            "exact arithmetic; running time not covered"
        )

    @property
    def epsilon_of_noise(self) -> float:
        """ε' of the proximal sampler's noise: η = range + 4ε'."""
        return (1 - _share(self.sampler)) * self.eta / 4


def _share(sampler: str) -> float:
    return 1.0 - NOISE_SHARE if sampler == "proximal" else 1.0


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
    """Rejection where a public bound on ln det(I + ∇²L/λ) is small, else proximal."""
    # ln det ≤ tr, and tr ∇²L is at most K times the bound on its largest eigenvalue.
    trace = likelihood_power * posterior.curvature(n_rows) * posterior.shape[0]
    few = trace * posterior.prior_scale**2 <= _MOST_EXPONENT
    return "rejection" if few else "proximal"


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
    call = _release_hook.MechanismCall(
        kind="posterior_samples",
        sensitivity=config.eta,
        scale=1.0,
        rate=1.0,
        shape=(config.n_samples, *shape),
        step=0,
        width=config.grid_width,
    )

    def mechanism() -> np.ndarray:
        potential = exact_draws.Potential(config.posterior, config.likelihood_power, X, targets)
        stream = streams("noise")
        if config.sampler == "rejection":
            draws = exact_draws.rejection(potential, stream)
        else:
            near = exact_draws.proximal(potential, config.distance, stream)
            draws = (potential.projected(θ + _covering_noise(config, stream)) for θ in near)
        kept = [next(draws) for _ in progress(range(config.n_samples))]
        return np.array(kept).reshape(config.n_samples, *shape)

    return _release_hook.release(call, mechanism)


def _covering_noise(config: ExactConfig, stream: SecureStream) -> np.ndarray:
    """Noise with density ∝ exp(−ε'‖z‖/w), which covers a distance w at a price of ε'."""
    n_parameters = math.prod(config.posterior.shape)
    direction = stream.normal(n_parameters)
    radius = stream.generator.gamma(n_parameters, config.distance / config.epsilon_of_noise)
    return radius * direction / np.linalg.norm(direction)
