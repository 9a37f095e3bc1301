"""A posterior that accounts for the privacy noise, for additive models of two classes or counts.

`skdp.algorithms.noise_aware.glm` is that of all other models. It takes logits to be normal; here
they are those of points that are drawn from what was released of bins, which is worth 0.01 of
log-loss on real tables (benchmarks/additive.py).

Everything released is *data with a known likelihood*, and the posterior is the one given these
releases: the prior where they say nothing, the ordinary posterior where ε is large. With rows
scaled to norm ≤ 1, a run releases (a GDP budget of μ is divided over them)

    Ã   = Σ x_i x_iᵀ + noise                 once: the second moments of the rows
    g̃_t = Σ w_i(θ_t)(y_i − μ(θ_t x_i)) x_i + ν N(0, I)      T times, at the posterior mean θ_t
    H̃   = Σ w_i(θ_t) μ'(θ_t x_i) x_i x_iᵀ + noise           once, at the last quarter
    ñ   = #{i : x_i or y_i was cut to its bound} + noise     once, for a warning alone
    Ŝ   = Σ s_i s_iᵀ + noise, s_i the terms of a g̃          once, at the last θ_t, if robust

The weights w_i bound each term by C and do not look at y_i, so a g̃ has mean zero at the truth
whatever C is. F(θ), the expected score of normal rows with the second moments Ã, corrected where
gradients and H̃ contradict it (`LogitRows`), moves every g̃_t to the place where the run stands,

    s_t = g̃_t + F(θ_t) − F(θ_T),    s_t + F(θ_T) | θ ~ N(F(θ), V(θ) + ν² I),

the noise independent from step to step. Their mean, in which a step counts for less the farther
F(θ_t) is from F(θ_T), gives the posterior under the prior N(0, τ² I). τ, one for the features and
one for the intercept, has a half-normal hyperprior and is inferred with θ. Laplace's approximation
gives the next θ_t and, at the end, the posterior for each of several draws of the second moments
and of τ, pooled; where it is measured to be off, short chains go on from it.

If F is right, the s_t scatter around their mean with variance ν² per coordinate. On rows that are
far from normal they scatter more, because F(θ_t) is off by another amount at each θ_t. The error of
F, relative to F(θ_t) − F(θ_T), is the one of five that makes the scatter likeliest, and what is
left of it beyond chance widens the posterior. With the scatter Ŝ of the scores in the place of V,
the posterior is that of the root of the expected score, whether the model is true or not: its
covariance is the sandwich H⁻¹(Ŝ + ν² I)H⁻¹, but for the prior.

With exposures e_i the logits are θ·x_i + ln e_i, and the first release counts the e_i by magnitude:
F takes ln e to be normal, with the mean and variance that the counts tell, and independent of the
rows; where it is not, slopes and gradients correct F as above. Nothing but the releases is touched
on the way: all of it is post-processing.

References
----------
G. Bernstein, D. Sheldon, *Differentially Private Bayesian Linear Regression*, NeurIPS 2019.
T. Kulkarni, J. Jälkö, A. Koskela, S. Kaski, A. Honkela, *Differentially Private Bayesian Inference
for Generalized Linear Models*, ICML 2021: like the first, noisy sufficient statistics as data.
T. Alrawajfeh, J. Jälkö, A. Honkela, *Noise-Aware Differentially Private Variational Inference*,
2024: the path of a noisy descent. H. R. Künsch, L. A. Stefanski, R. J. Carroll, *Conditionally
Unbiased Bounded-Influence Estimation in General Regression Models*, JASA 1989: the weights.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from skdp.algorithms.gaussian_posterior import GaussianPosterior
from skdp.algorithms.noise_aware_logit import GRAM, TRACE, NoiseAwareLogit
from skdp.algorithms.parts.gaussian_runs import COUNT_SHARE, FLOAT, LinearRun, run_and_count
from skdp.algorithms.parts.prior_scales import PriorScales
from skdp.engine.linear_sums import GramSum, LinearClippedSum, ScoreGramSum, of_weights
from skdp.engine.loop import Progress
from skdp.engine.magnitude_sums import MagnitudeSum
from skdp.fitting.streams import Streams
from skdp.fitting.validate import integer, one_of, positive
from skdp.relations import sensitivity_factor

# Constants, the same for every data set, ε, n and d; benchmarks/noise_aware_defaults.py of 0.2.0
# has the study behind them.
STEPS = 20
CURVATURE_SHARE = 0.05  # of the squared GDP budget, on Ã (or its trace) and again on H̃
SHARES = {
    "offset": COUNT_SHARE, "moments": CURVATURE_SHARE, "slope": CURVATURE_SHARE, "scatter": 0.08,
    "counts": COUNT_SHARE,
}  # fmt: skip
SLOPE_AT = 0.75  # of the steps, before H̃ is released
DROWNED = 0.08  # edge of the spectrum of the noise in Ã over n, beyond which its trace is released
LEAST_CLIP = 0.25  # C over the bound that the rows put on a gradient anyway


@dataclass(frozen=True)
class NoiseAwareConfig(LinearRun):
    """Public facts of a run, as in `LinearRun`, of one logit: all that its event depends on.

    - ``n_steps``: T ≥ 1 noisy gradients, whose noise multiplier is ``noise_multiplier``.
    - ``clip_norm``: C > 0, bound on the norm of one record's score.
    - ``prior_scale``: τ > 0 of the prior N(0, τ² I); None infers it from the releases.
    - ``prior_blocks``: block of each feature, of one τ; None is one. The intercept has its own τ.
    - ``curvature``: whether second moments are released in full or their trace alone.
    - ``exposed``: whether logits have offsets, whose magnitudes are released first; the intercept
      takes up their mean.
    - ``robust``: whether the scatter of the scores is released at the last θ.
    """

    n_steps: int
    clip_norm: float
    prior_scale: float | None = None
    prior_blocks: tuple[int, ...] | None = None
    curvature: str = GRAM
    exposed: bool = False
    robust: bool = False
    # Features of each bin, where these are functions of the bins of columns, and which of the
    # columns the last tables are of, two each.
    noise_aware: ClassVar[bool] = True
    tables: ClassVar[tuple[np.ndarray, ...]] = ()
    pairs: ClassVar[tuple[tuple[int, int], ...]] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        integer(1, n_steps=self.n_steps)
        positive(clip_norm=self.clip_norm)
        if self.prior_scale is not None:
            positive(prior_scale=self.prior_scale)
        one_of((GRAM, TRACE), curvature=self.curvature)

    @property
    def releases(self) -> tuple[str, ...]:
        """What is released in turn."""
        steps = ["gradient"] * self.n_steps
        if self.curvature == GRAM:
            steps.insert(max(1, round(SLOPE_AT * self.n_steps)), "slope")
        first = (*["offset"] * self.exposed, "moments")
        return (*first, *steps, *["scatter"] * self.robust, "counts")

    @property
    def prior(self) -> PriorScales:
        """Of θ times R."""
        scale = None if self.prior_scale is None else self.prior_scale * self.row_bound
        return PriorScales.of(scale, self.shape, self.n_features, self.prior_blocks)

    @property
    def units(self) -> tuple[float, ...]:
        """Noise multipliers of the releases over that of a gradient."""
        shares = [SHARES[kind] for kind in self.releases[:-1] if kind in SHARES]
        of_one_gradient = (1.0 - sum(shares) - COUNT_SHARE) / self.n_steps
        return tuple(
            math.sqrt(of_one_gradient / SHARES.get(kind, of_one_gradient)) for kind in self.releases
        )

    @property
    def dimensions(self) -> list[int]:
        """Number of coordinates of each release in turn."""
        return [math.prod(one.shape(self.shape)) for one in self.sums]

    @property
    def memory(self) -> int:
        """Bytes of the rows, copied, about."""
        return FLOAT * self.n_rows * (self.n_features + 3)

    @property
    def sums(self) -> list[Any]:
        """The private value of each release."""
        R, C, W = self.row_bound, self.clip_norm, self.weight_bound
        score = self.likelihood.score(C / R)
        gradient = of_weights(LinearClippedSum(score.residual, C, score.largest_residual), W)

        def weight(logits: np.ndarray, norms: np.ndarray) -> np.ndarray:
            return score.slope_of_records(logits, C / np.maximum(norms, 1e-300))

        sums = {
            "offset": of_weights(MagnitudeSum(of_offset=True), W),
            "moments": of_weights(GramSum(R**2, trace_only=self.curvature == TRACE), W),
            "gradient": gradient,
            # A record's weight grows as 1/‖x‖ where C cuts: its bound is R² or C R.
            "slope": of_weights(GramSum(score.slope_bound * R**2, weight), W),
            "scatter": ScoreGramSum(gradient),
            "counts": of_weights(self.counts, W),
        }
        return [sums[kind] for kind in self.releases]

    def run(
        self, records: tuple[np.ndarray, ...], streams: Streams, progress: Progress = iter
    ) -> GaussianPosterior:
        """Return the posterior, a function of what is released of rows and targets (n, K).

        Rows (n, n_features) are clipped here. Streams "sampling", "noise", "inference" are used.
        """
        weighted = getattr(records, "weights", None) is not None
        update = NoiseAwareLogit(self, weighted)
        rows = self.rows(records)
        state, outside = run_and_count(update.plan, rows, update, streams, progress)
        q = update.posterior(state, streams("inference"))
        return replace(
            q, outside=outside, n_counted=update.config.n_rows, short_rows=update.short_rows(state),
            n_found=None if weighted else update.n_found(state),
        )  # fmt: skip


def default_curvature(
    n_rows: int, n_columns: int, mu: float, neighboring_relation: str = "zero_out"
) -> str:
    """The second moments in full, unless their noise would dominate them.

    The spectrum of the noise ends at √(2D)/(√share μ), that of Σ x xᵀ at n; μ is that of a record
    that comes or goes.
    """
    unit = GramSum(1.0).moved_by(neighboring_relation) / sensitivity_factor(neighboring_relation)
    edge = unit * math.sqrt(2.0 * n_columns / CURVATURE_SHARE) / mu
    return GRAM if edge <= DROWNED * n_rows else TRACE


def default_clip_share(n_rows: int, n_columns: int, mu: float) -> float:
    """C over the bound that the rows put on a gradient anyway, from the two noises in a gradient.

    A smaller C takes noise out and, because the weights leave the score unbiased, costs only some
    efficiency; where the DP noise is below that of the data itself, there is nothing to gain.
    """
    of_data = math.sqrt(0.15 * n_rows / n_columns)
    return min(1.0, max(LEAST_CLIP, 0.15 * mu * of_data))
