"""A posterior that knows of the noise it was learned from, for linear models of classes.

Plain variational inference reports the posterior of data that it has not seen: its private
gradients are noisy, and the posterior does not say so. Here everything released is *data with a
known likelihood*, and the posterior is the one given these releases. It returns to the prior where
they say nothing and to the ordinary posterior where ε is large.

With rows scaled to norm ≤ 1, a run releases (a GDP budget of μ is divided over them)

    Ã   = Σ x_i x_iᵀ + noise                 once: the second moments of the rows
    g̃_t = Σ w_i(θ_t)(y_i − μ(θ_t x_i)) x_i + ν N(0, I)      T times, at the posterior mean θ_t
    H̃   = Σ w_i(θ_t) μ'(θ_t x_i) x_i x_iᵀ + noise           once, half way, at θ_t
    ñ   = #{i : x_i or y_i was cut to its bound} + noise     once, for a warning alone

The weights w_i bound each term by C and do not look at y_i, so a g̃ has mean zero at the truth
whatever C is. Noise is taken out of Ã and H̃ by shrinking their eigenvalues, and F(θ), the expected
score of normal rows with these second moments and that slope (`NormalRows`), turns every g̃_t into

    s_t = g̃_t + F(θ_t)   with   s_t | θ ~ N(F(θ), V(θ) + ν² I),

the noise independent from step to step. Their mean, in which a step counts for less the farther
F(θ_t) is from where the run stands now, gives the posterior under the prior N(0, τ² I) by Laplace's
approximation: the next θ_t and, at the end, the start of short Metropolis–Hastings chains, one for
each of several draws of the second moments and of H, whose pooled mean and covariance are the
posterior. Beyond 40 parameters Laplace's approximation of each draw is pooled instead.

If F is right, the s_t scatter around their mean s̄ = Σ w_t s_t with variance ν² per coordinate. On
rows that are far from normal they scatter more, because F(θ_t) is off by another amount at each
θ_t. With r = Σ w_t ‖s_t − s̄‖² / (P (1 − Σ w_t²) ν²), which chance brings to 1 ± √(2/(P(T' − 1)))
for T' = 1/Σ w_t² effective steps, the variance of s̄ is taken to be ν² Σ w_t² times r less two of
these deviations, but at least 1: that of a mean of numbers that scatter so.

With exposures e_i the logits are θ·x_i + ln e_i, and the first release counts the e_i by magnitude:
F takes ln e to be normal, with the mean and variance that the counts tell, and independent of the
rows; where it is not, slopes and gradients correct F as above.
With several outputs the first gradients are asked for at θ = 0, where they tell how rows scatter
between the classes, H is not released and the posterior is found over synthetic rows: see
`skdp.algorithms.parts.noisy_softmax`.
Nothing but the releases is touched on the way: all of it is post-processing.

Related: Bernstein & Sheldon (2019) and Kulkarni, Jälkö, Koskela, Kaski & Honkela (2021) take noisy
sufficient statistics for the data; Alrawajfeh, Jälkö & Honkela (2024) the path of a noisy descent.

References
----------
G. Bernstein, D. Sheldon, *Differentially Private Bayesian Linear Regression*, NeurIPS 2019.
T. Kulkarni, J. Jälkö, A. Koskela, S. Kaski, A. Honkela, *Differentially Private Bayesian Inference
for Generalized Linear Models*, ICML 2021.
T. Alrawajfeh, J. Jälkö, A. Honkela, *Noise-Aware Differentially Private Variational Inference*,
2024. H. R. Künsch, L. A. Stefanski, R. J. Carroll, *Conditionally Unbiased Bounded-Influence
Estimation in General Regression Models*, JASA 1989.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from skdp._random import SecureStream, Streams
from skdp._rows import LinearRows, row_bound
from skdp._validate import in_range, integer, one_of, positive
from skdp.algorithms.dp_vi import target_bounds
from skdp.algorithms.gaussian_posterior import GaussianPosterior
from skdp.algorithms.parts.gaussian_runs import (
    COUNT_SHARE,
    FLOAT,
    GaussianRun,
    far_below,
    release_plan_of,
    run_and_count,
)
from skdp.algorithms.parts.noisy_score import (
    Given,
    NormalRows,
    believed,
    bounded_correction,
    chains,
    floored,
    laplace,
    shrunk,
    wobble,
)
from skdp.algorithms.parts.noisy_softmax import (
    Between,
    Moments,
    Posterior,
    Statistic,
    SyntheticRows,
    steps_at_zero,
)
from skdp.engine.linear_sums import (
    MAGNITUDES,
    GramSum,
    LinearClippedSum,
    MagnitudeSum,
    OutsideSum,
    unpacked,
)
from skdp.engine.loop import ClippedSum, Progress, ReleasePlan
from skdp.engine.sampling import FullBatch
from skdp.models.bounded_scores import CategoricalScore
from skdp.models.likelihoods import BoundedScores
from skdp.relations import sensitivity_factor

# Constants, the same for every data set, ε, n and d; benchmarks/noise_aware_defaults.py has the
# study behind them.
STEPS = 20
CURVATURE_SHARE = 0.05  # of the squared GDP budget, on Ã (or its trace) and again on H̃
DROWNED = 0.08  # edge of the spectrum of the noise in Ã over n, beyond which its trace is released
LOST = 0.25  # noise of the trace over n, beyond which it is released alone for several outputs
LEAST_CLIP = 0.25  # C over the bound that the rows put on a gradient anyway
DOUBT = 0.1  # about eigenvalues of the second moments that drown, relative
MODEL_ERROR = 0.3  # error of a difference of F, over that difference
OVERSHOT = 1.0  # of the believed slope, by which the true one must exceed it to be learned
SURPRISE = 10.0  # standard deviations of noise beyond which gradients contradict the slope
LOUD = 4.0  # standard deviations of noise beyond which a count is one
CHANCE = 2.0  # standard deviations of the scatter of gradients that are no contradiction
N_CHAINS = 64
MANY_PARAMETERS = 40  # beyond which Laplace's approximation takes the place of chains
MOST_INTEGRATED = 300  # beyond which the second moments are taken to be known
BELIEF_ENTRIES, LEAST_BELIEFS = 2400, 8  # parameters times draws of the second moments, and draws

STEPS_BETWEEN, STEPS_AT_LAST = 2, 4  # of Newton's method, for several outputs

MAX_LOGIT = 1e4  # of a row at the norm bound, where a gradient is asked for
KEPT_ENTRIES = 10**8  # n·d beyond which no copy of the rows is kept between passes

GRAM, TRACE = "gram", "trace"


@dataclass(frozen=True)
class NoiseAwareConfig(GaussianRun):
    """Public facts of a run: all that its event depends on.

    Parameters
    ----------
    likelihood : BoundedScores
        Of the linear model.
    n_rows : int
        Public number of rows, n ≥ 1.
    n_features : int
        Features of a row.
    fit_intercept : bool
        Whether each row gets a 1 appended.
    data_norm : float
        Norm > 0 to which the features of each row are clipped.
    n_steps : int
        T ≥ 1: number of noisy gradients.
    clip_norm : float
        C > 0: bound on the norm of one record's score.
    prior_scale : float
        τ > 0 of the prior N(0, τ² I).
    curvature : {"gram", "trace"}
        Whether second moments are released in full or their trace alone.
    covariance : {"full", "diag"}
        Of the posterior that is returned.
    exposed : bool
        Whether logits have offsets, whose magnitudes are released first.
    noise_multiplier, neighboring_relation, secure
        As in `GaussianRun`; the noise multiplier is that of a gradient.
    """

    likelihood: BoundedScores
    n_rows: int
    n_features: int
    fit_intercept: bool
    data_norm: float
    n_steps: int
    clip_norm: float
    prior_scale: float
    curvature: str = GRAM
    covariance: str = "full"
    exposed: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        integer(1, n_rows=self.n_rows)
        integer(1, n_features=self.n_features)
        in_range(1e-100, 1e100, data_norm=self.data_norm)  # its square is a double too
        integer(1, n_steps=self.n_steps)
        positive(clip_norm=self.clip_norm)
        positive(prior_scale=self.prior_scale)
        one_of((GRAM, TRACE), curvature=self.curvature)

    @property
    def shape(self) -> tuple[int, int]:
        """Shape (K, D) of θ."""
        return self.likelihood.n_outputs, self.n_features + bool(self.fit_intercept)

    @property
    def row_bound(self) -> float:
        """R: norm bound of a row with its intercept."""
        return row_bound(self.data_norm, self.fit_intercept)

    @property
    def slope_step(self) -> int | None:
        """Position of H̃ among the releases; None for none."""
        if self.curvature == TRACE or self.likelihood.n_outputs > 1:
            return None
        return self.exposed + 1 + max(1, self.n_steps // 2)

    @property
    def units(self) -> tuple[float, ...]:
        """Noise multipliers of the releases over that of a gradient."""
        curvatures = 1 if self.slope_step is None else 2
        of_counts = (1 + self.exposed) * COUNT_SHARE
        of_one_gradient = (1.0 - curvatures * CURVATURE_SHARE - of_counts) / self.n_steps
        of_curvature = math.sqrt(of_one_gradient / CURVATURE_SHARE)
        of_count = math.sqrt(of_one_gradient / COUNT_SHARE)
        units = [of_count] * self.exposed + [of_curvature] + [1.0] * self.n_steps + [of_count]
        if self.slope_step is not None:
            units.insert(self.slope_step, of_curvature)
        return tuple(units)

    @property
    def dimensions(self) -> list[int]:
        """Number of coordinates of each release in turn."""
        K, D = self.shape
        sizes = [1 if self.curvature == TRACE else D * (D + 1) // 2] + [K * D] * self.n_steps
        sizes = [len(MAGNITUDES)] * self.exposed + sizes + [self.counts.n_counts]
        if self.slope_step is not None:
            sizes.insert(self.slope_step, D * (D + 1) // 2)
        return sizes

    @property
    def sampling(self) -> FullBatch:
        """Every record takes part in every release."""
        return FullBatch(self.exposed + 2 + self.n_steps + (self.slope_step is not None))

    @property
    def counts(self) -> OutsideSum:
        """Records that are cut to their bounds."""
        return OutsideSum(targets=self.likelihood.largest_target < math.inf)

    @property
    def memory(self) -> int:
        """Bytes of the rows, copied, about."""
        entries = min(self.n_rows * self.n_features, KEPT_ENTRIES)
        return round(FLOAT * entries * (1 + 3 / self.n_features))

    def release_plan(self) -> ReleasePlan:
        """What the engine executes: built from the very fields of `event`."""
        R, C = self.row_bound, self.clip_norm
        score = self.likelihood.score(C / R)
        gradient = LinearClippedSum(score.residual, C, score.largest_residual)
        sums: list[ClippedSum] = [gradient] * self.sampling.n_steps
        sums[0], sums[-1] = MagnitudeSum(of_offset=True), self.counts
        sums[self.exposed] = GramSum(R**2, trace_only=self.curvature == TRACE)
        if self.slope_step is not None:

            def weight(logits: np.ndarray, norms: np.ndarray) -> np.ndarray:
                return score.slope_of_records(logits, C / np.maximum(norms, 1e-300))

            sums[self.slope_step] = GramSum(self.slope_bound, weight)
        return ReleasePlan(
            self.sampling, sums, self.noise_multipliers, self.neighboring_relation, self.secure
        )

    def run(
        self,
        records: tuple[np.ndarray, np.ndarray],
        streams: Streams,
        progress: Progress = iter,
    ) -> GaussianPosterior:
        """Run the algorithm on private rows and return the posterior.

        Parameters
        ----------
        records : pair of ndarray
            Rows (n, n_features), clipped here, and their targets (n, K).
        streams : Streams
            Streams of the fit: "sampling", "noise" and "inference" are used.
        progress : callable
            Wraps the iteration over states.

        Returns
        -------
        GaussianPosterior
            A function of what was released.
        """
        kept = records[0].size <= KEPT_ENTRIES
        bounds = target_bounds(self.likelihood, records[1])
        rows = LinearRows.of(self, records, alone=self.secure, kept=kept, target_bounds=bounds)
        update = NoiseAwareUpdate(self) if self.shape[0] == 1 else NoiseAwareSoftmax(self)
        state, outside = run_and_count(update.plan, rows, update, streams, progress)
        q = update.posterior(state, streams("inference"))
        q = replace(q, mean=q.mean - update._unit(state))
        spread = np.sqrt(np.diag(q.covariance)) if self.covariance == "diag" else q.spread
        return GaussianPosterior(
            q.mean, spread, outside, update.short_rows(state), update.n_found(state)
        )

    @property
    def slope_bound(self) -> float:
        """Bound on a record's share of H̃, whose weight grows as 1/‖x‖ where C cuts: R² or C R."""
        return (
            self.likelihood.score(self.clip_norm / self.row_bound).slope_bound * self.row_bound**2
        )


def default_curvature(
    n_rows: int,
    n_columns: int,
    mu: float,
    neighboring_relation: str = "zero_out",
    n_outputs: int = 1,
) -> str:
    """The second moments in full, unless their noise would dominate them.

    The spectrum of the noise ends at √(2D)/(√share μ), that of Σ x xᵀ at n; μ is that of a record
    that comes or goes. Several outputs learn the large eigenvalues from their gradients, and need
    no more than the trace and the mean, with noise of √(D/share)/μ and less.
    """
    unit = GramSum(1.0).moved_by(neighboring_relation) / sensitivity_factor(neighboring_relation)
    edge = unit * math.sqrt(2.0 * n_columns / CURVATURE_SHARE) / mu
    if n_outputs > 1:
        return GRAM if edge / math.sqrt(2.0) <= LOST * n_rows else TRACE
    return GRAM if edge <= DROWNED * n_rows else TRACE


def default_clip_share(n_rows: int, n_columns: int, mu: float) -> float:
    """C over the bound that the rows put on a gradient anyway, from the two noises in a gradient.

    A smaller C takes noise out and, because the weights leave the score unbiased, costs only some
    efficiency; where the DP noise is below that of the data itself, there is nothing to gain.
    """
    of_data = math.sqrt(0.15 * n_rows / n_columns)
    return min(1.0, max(LEAST_CLIP, 0.15 * mu * of_data))


def default_prior_scale(bound: float, n_outputs: int) -> float:
    """Prior standard deviation of the logits of a row at the norm bound: 3, 6 for softmax."""
    return (3.0 if n_outputs == 1 else 6.0) / bound


def mean_logarithm(counts: np.ndarray, noise: float) -> tuple[float, float]:
    """Mean and variance of ln e from noisy counts of e by binary exponent, as if uniform in each.

    Both are 0 where all counts are lost in the noise.
    """
    sure = np.where(counts > LOUD * noise, counts, 0.0)
    if not sure.any():
        return 0.0, 0.0
    weights, logs = sure / sure.sum(), math.log(2.0) * (np.array(MAGNITUDES) - 0.5)
    mean = float(weights @ logs)
    return mean, float(weights @ (logs - mean) ** 2) + math.log(2.0) ** 2 / 12.0


class NoiseAwareState(NamedTuple):
    """All of it is a function of what has been released."""

    mean: np.ndarray  # θ_t, scaled to rows of norm ≤ 1, (1, KD)
    rows: NormalRows | None  # what Ã and H̃ say, their noise taken out
    gradients: tuple[np.ndarray, ...]  # g̃_t
    queries: tuple[np.ndarray, ...]  # θ_t at which they were asked for
    moments: np.ndarray | None  # Ã, (D, D), or its trace, (1,)
    slope: tuple[np.ndarray, np.ndarray] | None  # H̃ and the θ at which it was asked for
    offset: tuple[float, float] = (0.0, 0.0)  # mean and variance of what is added to logits
    likeliest: Posterior | None = None  # of several outputs


class NoiseAwareUpdate:
    """From releases to posteriors: pure functions of what has been released.

    Everything is in units in which rows have norm ≤ 1: θ times R, scores over R.
    """

    def __init__(self, config: NoiseAwareConfig) -> None:
        self.config = config
        self.R = config.row_bound
        self.size = math.prod(config.shape)
        self.prior_scale = config.prior_scale * self.R
        self.noise_variance = (config.noise_multiplier * config.clip_norm / self.R) ** 2  # ν²
        self.plan, step = release_plan_of(config), config.slope_step
        self.moments_scale = self._noise_scale(config.exposed)  # in Ã, or in its trace
        self.slope_scale = 0.0 if step is None else self._noise_scale(step)  # in H̃

    def _noise_scale(self, step: int) -> float:
        return self.plan.step(self.config.shape, step)[1].scale / self.R**2

    def init(self) -> NoiseAwareState:
        """Start at the prior's mean."""
        return NoiseAwareState(np.zeros((1, self.size)), None, (), (), None, None)

    def query(self, state: NoiseAwareState) -> Tensor:
        """θ_t, the posterior mean so far."""
        theta = state.mean.reshape(self.config.shape) / self.R
        return torch.from_numpy(theta - self._unit(state))

    def _unit(self, state: NoiseAwareState) -> np.ndarray:
        """Mean offset, (D,), which the intercept takes up: exposures may be in any unit."""
        unit = np.zeros(self.config.shape[1])
        if self.config.fit_intercept:
            unit[-1] = state.offset[0]
        return unit

    def update(self, state: NoiseAwareState, noisy: Tensor, step: int) -> NoiseAwareState:
        """Take in one release."""
        released = noisy.numpy()
        if self.config.exposed and step == 0:
            return state._replace(offset=mean_logarithm(released, self.plan.noise_scale(0)))
        if step == self.config.exposed:
            moments = released / self.R**2
            if self.config.curvature == GRAM:
                moments = unpacked(moments, self.config.shape[1])
            mean, variance = state.offset
            offset = (0.0 if self.config.fit_intercept else mean, variance)
            rows = replace(self.believed_rows(moments), offset=offset)
            return state._replace(moments=moments, rows=rows)
        assert state.rows is not None
        if step == self.config.slope_step:
            slope = unpacked(released / self.R**2, self.size), state.mean
            rows = replace(state.rows, correction=None, reference=None)
            return state._replace(slope=slope, rows=self.corrected(rows, *slope))
        state = state._replace(
            gradients=(*state.gradients, released.ravel()[None] / self.R),
            queries=(*state.queries, state.mean),
        )
        rows = self.learned(state)
        state = state._replace(rows=rows)
        given = self._given(rows, *self.statistic(state, rows))
        mean, _ = laplace(given, state.mean)
        # The logits of huge parameters would lose all digits to rounding, which may differ with the
        # position of a row.
        largest = max(1.0, float(np.linalg.norm(mean)) / MAX_LOGIT)
        return state._replace(mean=mean / largest)

    def believed_rows(self, moments: np.ndarray, noise: SecureStream | None = None) -> NormalRows:
        """Mean and covariance of the rows: the likeliest, or a draw from what Ã leaves possible."""
        config, n = self.config, self.config.n_rows
        D, d = config.shape[1], config.n_features
        normal = noise.normal if noise else np.zeros
        mean, covariance = np.zeros(D), np.zeros((D, D))
        if config.fit_intercept:
            mean[d] = 1.0 / self.R
        scale = self.moments_scale / n
        largest = (1.0 - mean[d:].sum() ** 2) / d  # of the mean eigenvalue
        smallest = 0.02 * largest
        if config.curvature == TRACE:
            average = (float(moments[0]) / n - mean @ mean + scale * float(normal(()))) / d
            covariance[:d, :d] = np.clip(average, smallest, largest) * np.eye(d)
            return self._rows(mean, covariance)

        second_moments = moments / n
        if config.fit_intercept:
            found, spread = second_moments[d, :d] * self.R, scale * self.R / math.sqrt(2.0)
            kept = max(0.0, 1.0 - d * spread**2 / max(float(found @ found), 1e-300))
            mean[:d] = kept * found
            moved = math.sqrt(kept) * spread * normal(d)
        else:
            moved = np.zeros(d)
        centred = second_moments[:d, :d] - np.outer(mean[:d], mean[:d])
        average = float(np.trace(centred)) / d + scale / math.sqrt(d) * float(normal(()))
        average = float(np.clip(average, smallest, largest))
        block = believed(centred, average, scale, noise, DOUBT)
        covariance[:d, :d] = floored(block, max(1e-3 * average, smallest / d))
        mean[:d] += moved
        return self._rows(mean, covariance)

    def _rows(self, mean: np.ndarray, covariance: np.ndarray) -> NormalRows:
        typical_norm = math.sqrt(min(1.0, float(np.trace(covariance) + mean @ mean)))
        score = self.config.likelihood.score(self.config.clip_norm / self.R / typical_norm)
        return NormalRows(self.config.n_rows, mean[None], covariance[None], score)

    def learned(self, state: NoiseAwareState) -> NormalRows:
        """Beliefs whose slope along the last step is the one that the gradients show.

        Two of them differ by the slope times the step, and noise. What the beliefs miss of it, as
        far as that is not noise, is added by Powell's symmetric update: a believed slope of less
        than half of the true one makes every step overshoot, and the run would never settle.
        """
        rows = state.rows
        assert rows is not None
        if len(state.gradients) < 2:
            return rows
        (before, here), step = state.queries[-2:], state.queries[-1] - state.queries[-2]
        expected = rows.expected(here) - rows.expected(before)
        missed = (state.gradients[-2] - state.gradients[-1] - expected)[0]
        squares, of_noise = float(missed @ missed), 2.0 * self.noise_variance
        excess = squares - of_noise * self.size
        if excess <= SURPRISE * of_noise * math.sqrt(2.0 * self.size):
            return rows
        if float(missed @ step[0]) <= OVERSHOT * float(expected[0] @ step[0]):
            return rows
        direction = step[0] / float(step[0] @ step[0])
        along = float(missed @ step[0]) * np.outer(direction, direction)
        update = np.outer(missed, direction)
        correction = excess / squares * (update + update.T - along)
        return self._with_slope(rows, correction[None], here)

    def corrected(
        self,
        rows: NormalRows,
        slope: np.ndarray,
        where: np.ndarray,
        noise: SecureStream | None = None,
    ) -> NormalRows:
        """Beliefs whose slope at one θ is the released one, as far as that is not noise.

        With a stream each belief gets a draw from what that noise leaves possible.
        """
        where = np.broadcast_to(where, (len(rows), self.size))
        missed = []
        for expected in rows.slope(where):
            found, vectors, kept = shrunk(slope - expected, self.slope_scale)
            if noise is not None:
                found = found + wobble(vectors, self.slope_scale * np.sqrt(kept), noise)
            missed.append(found)
        return self._with_slope(rows, np.array(missed), where)

    def _with_slope(self, rows: NormalRows, more: np.ndarray, where: np.ndarray) -> NormalRows:
        """Beliefs with a correction, on top of what there is, within what rows make possible."""
        whole = more if rows.correction is None else rows.correction + more
        believed = rows.slope(where, corrected=False)
        bounded = [bounded_correction(*pair) for pair in zip(believed, whole, strict=True)]
        return replace(rows, correction=np.array(bounded), reference=where)

    def statistic(self, state: NoiseAwareState, rows: NormalRows) -> tuple[np.ndarray, float]:
        """Weighted mean of s_t = g̃_t + F(θ_t), (B, KD), and the variance of its noise.

        Where F is off, the s_t scatter by more than the DP noise ν². The variance of their mean is
        that of numbers which scatter as they do, as far as that is not chance.
        """
        assert state.rows is not None
        here = state.rows.expected(state.mean)
        far = [np.sum((state.rows.expected(q) - here) ** 2) / self.size for q in state.queries]
        weights = 1.0 / (self.noise_variance + MODEL_ERROR**2 * np.array(far))
        weights /= weights.sum()
        spread = [np.broadcast_to(query, (len(rows), self.size)) for query in state.queries]
        terms = [g + rows.expected(q) for g, q in zip(state.gradients, spread, strict=True)]
        mean = np.einsum("t,tbi->bi", weights, np.array(terms))
        squares = np.mean((np.array(terms) - mean) ** 2, axis=(1, 2))
        unweighted = 1.0 - float(np.sum(weights**2))
        scatter = float(weights @ squares) / max(unweighted, 1e-300) / self.noise_variance
        chance = CHANCE * math.sqrt(2.0 * (1.0 - unweighted) / (self.size * max(unweighted, 1e-9)))
        widened = self.noise_variance * max(1.0, scatter - chance)
        return mean, widened * (1.0 - unweighted)

    def _given(self, rows: NormalRows, statistic: np.ndarray, variance: float) -> Given:
        """Add to the DP noise a little for what the model of the score misses."""
        missed = 1e-4 * self.config.n_rows / self.size
        return Given(rows, statistic, variance + missed, self.prior_scale)

    def short_rows(self, state: NoiseAwareState) -> float | None:
        """Root mean square norm of the features, where it is clearly far below their bound."""
        assert state.moments is not None
        size = 1 if self.config.curvature == TRACE else self.config.shape[1]
        trace = float(np.trace(np.atleast_2d(state.moments)))
        return far_below(trace, self.moments_scale * math.sqrt(size), self.config)

    def posterior(self, state: NoiseAwareState, stream: SecureStream) -> GaussianPosterior:
        """Posterior given all releases, in the units of the rows as they are."""
        assert state.rows is not None
        assert state.moments is not None
        start = state.mean
        if self.size > MOST_INTEGRATED:
            given = self._given(state.rows, *self.statistic(state, state.rows))
            mean, covariance = laplace(given, start)
            return self._in_units(mean[0], covariance[0])
        few = self.size <= MANY_PARAMETERS
        n_beliefs = N_CHAINS if few else max(LEAST_BELIEFS, BELIEF_ENTRIES // self.size)
        drawn = [self.believed_rows(state.moments, stream) for _ in range(n_beliefs)]
        rows = replace(
            state.rows,
            mean=np.concatenate([r.mean for r in drawn]),
            covariance=np.concatenate([r.covariance for r in drawn]),
            correction=None,
            reference=None,
        )
        if state.slope is not None:
            rows = self.corrected(rows, *state.slope, stream)
        given = self._given(rows, *self.statistic(state, rows))
        start = np.broadcast_to(start, (n_beliefs, self.size))
        if few:
            draws = chains(given, start, stream)
            return self._in_units(draws.mean(axis=0), np.cov(draws.T).reshape(2 * (self.size,)))
        means, covariances = laplace(given, start)
        between = np.cov(means.T).reshape(2 * (self.size,))
        return self._in_units(means.mean(axis=0), covariances.mean(axis=0) + between)

    def n_found(self, state: NoiseAwareState) -> tuple[float, float] | None:
        """Noisy number of records, by the intercept's second moment."""
        if state.moments is None or not self.config.fit_intercept or state.moments.ndim < 2:
            return None
        return float(state.moments[-1, -1]) * self.R**2, self.moments_scale * self.R**2

    def _in_units(self, mean: np.ndarray, covariance: np.ndarray) -> GaussianPosterior:
        covariance = (covariance + covariance.T) / (2.0 * self.R**2)
        return GaussianPosterior(mean.reshape(self.config.shape) / self.R, covariance)


class NoiseAwareSoftmax(NoiseAwareUpdate):
    """The same for several outputs: gradients tell the moments of the rows too."""

    def __init__(self, config: NoiseAwareConfig) -> None:
        super().__init__(config)
        self.score = CategoricalScore(config.shape[0], config.clip_norm / self.R)
        noise, n = math.sqrt(self.noise_variance), config.n_rows
        self.n_at_zero = steps_at_zero(config.n_steps, noise, config.shape, n, self.score.bound)

    def update(self, state: NoiseAwareState, noisy: Tensor, step: int) -> NoiseAwareState:
        """Take in one release."""
        released = noisy.numpy()
        if step == 0:
            moments = released / self.R**2
            if self.config.curvature == GRAM:
                moments = unpacked(moments, self.config.shape[1])
            return state._replace(moments=moments)
        state = state._replace(
            gradients=(*state.gradients, released.ravel() / self.R),
            queries=(*state.queries, state.mean[0]),
        )
        if len(state.gradients) < self.n_at_zero:
            return state
        q = self._solved(state, self._synthetic(state), STEPS_BETWEEN)[1]
        largest = max(1.0, float(np.linalg.norm(q.mean)) / MAX_LOGIT)
        return state._replace(mean=q.mean[None] / largest, likeliest=q)

    def _synthetic(
        self, state: NoiseAwareState, stream: SecureStream | None = None
    ) -> SyntheticRows:
        """Rows with the moments that releases and first gradients tell, or with a draw of them."""
        config = self.config
        assert state.moments is not None
        intercept = 1.0 / self.R if config.fit_intercept else 0.0
        moments = Moments(
            config.n_rows, config.n_features, intercept, state.moments, self.moments_scale
        )
        m, S = moments.believed()
        weight = SyntheticRows(m, S, config.n_rows, self.score).weight_at_zero()
        first = state.gradients[: self.n_at_zero]
        sums = np.mean(first, axis=0).reshape(config.shape) / weight
        between = Between.of(sums, self.noise_variance / len(first) / weight**2, m, moments)
        return SyntheticRows(*moments.believed(between, stream), config.n_rows, self.score)

    def _solved(
        self, state: NoiseAwareState, rows: SyntheticRows, n_steps: int
    ) -> tuple[Statistic, Posterior]:
        given = rows.statistic(state.gradients, state.queries, state.mean[0], self.noise_variance)
        start = state.mean[0] if state.likeliest is None else state.likeliest
        return given, rows.posterior(given, start, self.prior_scale, n_steps)

    def posterior(self, state: NoiseAwareState, stream: SecureStream) -> GaussianPosterior:
        """Posterior given all releases, in the units of the rows as they are."""
        rows = self._synthetic(state)
        given, q = self._solved(state, rows, STEPS_AT_LAST)
        state = state._replace(likeliest=q)
        means = [
            self._solved(state, self._synthetic(state, stream), STEPS_BETWEEN)[1].mean
            for _ in range(LEAST_BELIEFS)
        ]
        covariance = rows.covariance(given, q, self.prior_scale) + np.cov(np.transpose(means))
        return self._in_units(q.mean, covariance)
