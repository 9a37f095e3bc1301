"""Private linear regression whose posterior accounts for the privacy noise.

The model is y = θ·x + σ e with e ~ N(0, 1), θ ~ N(0, τ² I) and ln σ ~ N(ln σ₀, ω²). With rows of
norm ≤ 1 and ψ(r) = max(−1, min(1, r/c)), a run releases (a GDP budget of μ is divided over them)

    Ã   = Σ x_i x_iᵀ + noise                       once
    g̃_t = Σ ψ_t(r_i) x_i       + ν N(0, I)         T times, r_i = y_i − θ_t·x_i, in one vector with
    h̃_t = Σ a (ψ_t(r_i)² − ½)  + ν N(0, 1)         and
    k̃_t = Σ b (‖x_i‖² − ½)     + ν N(0, 1)

at the posterior mean θ_t, with a clip c_t that follows the residual scale *as released so far*. The
residuals shrink while the run learns, and the noise, which is proportional to c_t in the unit of y,
shrinks with them: where targets spread much wider than their residuals, this is what one release
of Σ x_i y_i cannot do. Symmetric residuals clipped symmetrically have mean zero at the truth,
whatever c is; so nothing is biased by a small one. A record moves (g̃, h̃, k̃) by at most
√(1 + a²/4 + b²/4), whatever c is: clips chosen on the way cost nothing more.

Where nothing is known of the unit of the targets, a first release counts them by magnitude, and
everything is in units of the power of two below which nearly all of them are.

All releases are data with a known likelihood (`parts.residual_releases`). Given A, σ and τ, θ is
normal with independent coordinates along A's eigenvectors: closed forms throughout, a grid over ln
σ and ln τ and a fixed point for v. Pooled over several draws of the A that Ã leaves possible
(`parts.row_moments`), this is the posterior. It returns to the prior where releases say nothing,
and to the ordinary posterior where ε is large.

The scale τ of the prior is half-normal with scale 2/R where no number is given, and is inferred
with θ: that is a function of released values, and costs no privacy. Blocks of coefficients may have
a τ each (`parts.block_scales`).

With ``robust`` one more release, Σ s sᵀ for the scores s = ψ(r) x at the last θ_t, tells how much
scores scatter whatever the model says, and the covariance of θ given A is the sandwich with it.

Related: Bernstein & Sheldon (2019) take one noisy release of second moments, clipped at fixed
bounds, and marginalise the true ones; here only Σ x xᵀ is released that way.

References
----------
G. Bernstein, D. Sheldon, *Differentially Private Bayesian Linear Regression*, NeurIPS 2019.
P. J. Huber, *Robust Estimation of a Location Parameter*, Ann. Math. Stat. 1964 (ψ, and ψ² for the
scale, "Proposal 2"). J. J. Bussgang, *Crosscorrelation functions of amplitude-distorted Gaussian
signals*, 1952 (κ).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy.special import logsumexp

from skdp.algorithms.gaussian_posterior import RegressionPosterior
from skdp.algorithms.parts import block_scales
from skdp.algorithms.parts.binned_moments import BinnedMoments
from skdp.algorithms.parts.gaussian_runs import (
    COUNT_SHARE,
    FLOAT,
    GaussianRun,
    far_below,
    release_plan_of,
    rows_told,
    run_and_count,
)
from skdp.algorithms.parts.prior_scales import PriorScales
from skdp.algorithms.parts.residual_releases import (
    Given,
    Information,
    Mixed,
    ResidualModel,
    State,
    moments,
    with_prior,
)
from skdp.algorithms.parts.row_moments import Beliefs, RowMoments
from skdp.engine.linear_sums import GramSum, OutsideSum, ScoreGramSum, of_weights, unpacked
from skdp.engine.loop import Progress, ReleasePlan
from skdp.engine.residual_sums import MAGNITUDES, MagnitudeSum, ResidualScores, ResidualSum
from skdp.engine.sampling import FullBatch
from skdp.fitting.streams import SecureStream, Streams
from skdp.fitting.validate import in_range, integer, positive
from skdp.rows.chunks import rows_of
from skdp.rows.clipping import row_bound
from skdp.rows.records import LinearRows

# Constants, the same for every data set, ε, n and d, chosen by coverage and error in simulations
# like those of benchmarks/linear_regression.py.
STEPS = 12
GRAM_SHARE = 0.2  # of the squared GDP budget, on Ã
ROBUST_SHARE = 0.08  # and on the outer products of scores, where they are asked for
ROBUST_CLIP = 3.0  # least clip over the residual scale then: slopes hardly depend on the residuals
TRACE_DOUBT = 0.5  # about the trace of Σ s sᵀ that the model expects
UNIT_SHARE = 0.1  # and on the counts of targets by magnitude, where they are needed
LOUD = 4.0  # standard deviations of noise beyond which a count is one
BEYOND = 0.05  # of the targets, at most, are larger than the unit
SCALE_WEIGHT = 0.5  # a: 3 % more noise on g̃, and σ known better than θ
TRACE_WEIGHT = 0.5  # b: another 3 %, and tr A known better than anything
NOISE_SCALE, NOISE_SPREAD = 0.2, 1.0  # σ₀ and ω, for targets in [-1, 1]
HYPER_SCALE = 2.0  # of τ, over 1/R, for targets in [-1, 1]
QUANTILES = (0.05, 0.5, 0.95)
# Centres and half widths of the first grids over ln σ and ln τ.
WIDEST = (math.log(NOISE_SCALE), 4.0 * NOISE_SPREAD, math.log(HYPER_SCALE) - 1.6, 2.8)
N_BELIEFS, N_SCALES, N_WIDTHS = 64, 25, 13
FIXED_POINT_STEPS, ZOOMS = 4, 3  # at the end
FIXED_POINT_STEPS_ON_THE_WAY, ZOOMS_ON_THE_WAY = 2, 2
WIDER = 3.0  # the next grid over the last one
ROUNDED = 1e-11  # of the largest eigenvalue, from which on one is 0
SETTLED, OVERRELAXED, MOST_EM_STEPS = 0.01, 1.7, 200  # of ln τ of a block, without privacy


@dataclass(frozen=True)
class NoiseAwareRegressionConfig(GaussianRun):
    """Public facts of a run: all that its event depends on. Targets are in [-1, 1], or about 1.

    Parameters
    ----------
    n_rows, n_features : int
        Public number of rows n ≥ 1, and of features.
    fit_intercept : bool
        Whether each row gets a 1 appended.
    data_norm : float
        Norm > 0 to which the features of each row are clipped.
    n_steps : int
        T ≥ 1: number of noisy residual sums.
    clip_norm : float or None
        Clip c > 0 of residuals in every step; None follows their scale.
    prior_scale : float or None
        τ > 0 of the prior N(0, τ² I). None infers it, under a half-normal prior.
    prior_blocks : tuple of int or None
        Block 0, 1, ... of each feature: those of one block share a τ that is inferred, and the
        intercept has its own. None is one τ for all, the intercept too.
    bounded_targets : bool
        Whether targets are cut to [-1, 1]. If not, their unit is released first.
    noise_aware : bool
        False reports the spread as if the releases were exact.
    robust : bool
        Whether how much the scores scatter is released too, at the last θ and clip, and tells the
        spread.
    noise_multiplier, neighboring_relation, secure
        As in `GaussianRun`; the noise multiplier is that of a residual sum, and 0 is the ordinary
        posterior.
    """

    n_rows: int
    n_features: int
    fit_intercept: bool
    data_norm: float
    n_steps: int
    clip_norm: float | None
    prior_scale: float | None
    bounded_targets: bool = True
    noise_aware: bool = True
    robust: bool = False
    prior_blocks: tuple[int, ...] | None = None
    asks_sums: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        integer(1, n_rows=self.n_rows)
        integer(1, n_features=self.n_features)
        in_range(1e-100, 1e100, data_norm=self.data_norm)  # its square is a double too
        integer(1, n_steps=self.n_steps)
        if self.clip_norm is not None:
            positive(clip_norm=self.clip_norm)
        if self.prior_scale is not None:
            positive(prior_scale=self.prior_scale)

    @property
    def private(self) -> bool:
        """Whether there is any noise."""
        return self.noise_multiplier > 0.0

    @property
    def n_columns(self) -> int:
        """D: features, and the intercept."""
        return self.n_features + bool(self.fit_intercept)

    @property
    def row_bound(self) -> float:
        """R: norm bound of a row with its intercept."""
        return row_bound(self.data_norm, self.fit_intercept)

    @property
    def units(self) -> tuple[float, ...]:
        """Noise multipliers of the releases over that of a residual sum."""
        before = [GRAM_SHARE] if self.bounded_targets else [UNIT_SHARE, GRAM_SHARE]
        after = [ROBUST_SHARE, COUNT_SHARE] if self.robust else [COUNT_SHARE]
        of_residual = (1.0 - sum(before) - sum(after)) / self.n_steps

        def unit(share: float) -> float:
            return math.sqrt(of_residual / share)

        return (*map(unit, before), *[1.0] * self.n_steps, *map(unit, after))

    @property
    def dimensions(self) -> list[int]:
        """Number of coordinates of each release in turn."""
        D = self.n_columns
        of_unit = [] if self.bounded_targets else [len(MAGNITUDES)]
        pairs = [D * (D + 1) // 2]
        of_scores = pairs if self.robust else []
        return of_unit + pairs + [D + 2] * self.n_steps + of_scores + [self.counts.n_counts]

    @property
    def sampling(self) -> FullBatch:
        """Every record takes part in every release."""
        return FullBatch(self.n_steps + 2 + (not self.bounded_targets) + bool(self.robust))

    @property
    def tables(self) -> tuple[np.ndarray, ...]:
        """Features of each bin, where these are functions of the bins of columns."""
        return ()

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """Of which two columns the last tables are."""
        return ()

    @property
    def weights(self) -> tuple[float, float]:
        """Weights a and b; what does not cancel adds up to k̄ in a person's sum, and not to c."""
        persons = self.persons
        share = 1.0 if persons is None else persons.clip / persons.rows_per_group
        return share * SCALE_WEIGHT, share * TRACE_WEIGHT

    @property
    def counts(self) -> OutsideSum:
        """Records that are cut to their bounds: the last release."""
        return OutsideSum(targets=self.bounded_targets)

    def release_plan(self) -> ReleasePlan:
        """What the engine executes: built from the very fields of `event`."""
        residual = ResidualSum(self.row_bound, *self.weights, bounded=self.private)
        sums: list[Any] = [] if self.bounded_targets else [MagnitudeSum()]
        sums += [GramSum(self.row_bound**2), *[residual] * self.n_steps, self.counts]
        sums = [of_weights(one, self.weight_bound) for one in sums]
        if self.robust:
            scores = ResidualScores(self.row_bound, bounded=self.private)
            sums.insert(-1, ScoreGramSum(of_weights(scores, self.weight_bound)))
        return ReleasePlan(
            self.sampling,
            sums,
            self.noise_multipliers,
            self.neighboring_relation,
            self.secure,
            self.persons,
        )

    @property
    def memory(self) -> int:
        """Bytes of the rows, copied, about."""
        return FLOAT * self.n_rows * (self.n_columns + 2)

    def run(
        self,
        records: tuple[np.ndarray, ...],
        streams: Streams,
        progress: Progress = iter,
    ) -> RegressionPosterior:
        """Run the algorithm on private rows and return the posterior of (θ, ln σ).

        Parameters
        ----------
        records : pair of ndarray
            Rows (n, n_features), clipped here, and targets (n, 1) in [-1, 1] or of the order of 1.
        streams : Streams
            Streams of the fit: "sampling", "noise" and "inference" are used.
        progress : callable
            Wraps the iteration over states.

        Returns
        -------
        RegressionPosterior
            A function of what was released, in the unit of the targets.
        """
        by_block = self.prior_blocks is not None and self.prior_scale is None
        weighted = getattr(records, "weights", None) is not None
        update = (RegressionByBlocks if by_block else NoiseAwareRegression)(self, weighted)
        bound = 1.0 if self.bounded_targets else math.inf
        build = partial(LinearRows.of, self, alone=self.secure, target_bounds=(-bound, bound))
        rows = rows_of(records, build, kept=False)
        state, outside = run_and_count(update.plan, rows, update, streams, progress)
        if not self.private:
            return replace(update.ordinary_posterior(state), outside=outside)
        assert state.gram is not None
        found, noise = update.n_found(state), update.gram_noise * math.sqrt(self.n_columns)
        told = replace(self, n_rows=update.n)
        short = far_below(float(np.trace(state.gram)), noise, told, found)
        q = update.posterior(state, streams("inference"))
        q = replace(q, outside=outside, n_counted=update.n, short_rows=short)
        q = replace(q, n_found=None if weighted else found)
        return q if self.noise_aware else update.plain_posterior(state, q)


def default_prior_scale(bound: float) -> float:
    """A row at the norm bound has a mean anywhere among targets in [-1, 1]."""
    return 1.0 / bound


class Conjugate(NamedTuple):
    """Posterior given τ from exact moments, along A's eigenvectors, on a grid of ln σ."""

    mean: np.ndarray  # (K, D)
    precision: np.ndarray  # (K, D)
    log_scales: np.ndarray  # (K,)
    weights: np.ndarray  # (K,)
    log_evidence: float


class Grid(NamedTuple):
    """Where ln σ and ln τ are looked for, and what is found there."""

    log_scales: np.ndarray  # (K,)
    log_widths: np.ndarray  # (J,), of the prior of θ
    excess: np.ndarray  # (K, T)
    given: Given
    weights: np.ndarray  # (B, K, J), summing to 1
    around: tuple[float, float, float, float]  # where to look next time
    information: Information
    of_scale: np.ndarray  # (K,), log density of σ without θ
    scales: np.ndarray = np.empty(0)  # τ of blocks, (B, blocks)


class NoiseAwareRegression:
    """From releases to posteriors: pure functions of what has been released.

    Everything is in units in which rows have norm ≤ 1: θ times R. There are ``config.n_rows`` rows,
    or with weights as many as these come to, by a noisy sum where the intercept tells one.
    """

    def __init__(self, config: NoiseAwareRegressionConfig, weighted: bool = False) -> None:
        self.weighted = weighted
        self.config, self.n, self.D = config, config.n_rows, config.n_columns
        self.R = config.row_bound
        self.hyper_scale = HYPER_SCALE  # times 1/R, in units of which θ is
        self.prior_variance = (config.prior_scale or default_prior_scale(self.R)) ** 2 * self.R**2
        self.plan = release_plan_of(config)
        first = int(not config.bounded_targets)
        self.noise = self.plan.noise_scale(first + 1)  # ν
        self.gram_noise = self.plan.noise_scale(first) / self.R**2
        self.model = ResidualModel(self.n, self.noise, config.weights[0])

    def init(self) -> State:
        """Start at the prior's mean, with the clip that targets in [-1, 1] need there."""
        empty = np.empty((0, self.D))
        sums = np.empty((0, self.D + 2))
        clip = self.config.clip_norm or 1.0
        return State(np.zeros(self.D), clip, np.empty(0), WIDEST, None, sums, empty)

    def query(self, state: State) -> np.ndarray:
        """(θ_t, c_t), or θ alone for the second moments."""
        theta = state.mean / self.R
        if state.gram is not None:
            theta = np.append(theta, state.clip)
        return state.unit * theta[None]

    def update(self, state: State, noisy: np.ndarray, step: int) -> State:
        """Take in one release."""
        if not self.config.bounded_targets and step == 0:
            found = unit_of(noisy, self.plan.noise_scale(0))
            unit = found or 1.0
            clip = self._given_clip(unit) or 1.0
            return state._replace(unit=unit, clip=clip, unit_found=found is not None)
        if state.gram is None:
            state = state._replace(gram=unpacked(noisy / self.R**2, self.D))
            if self.weighted and (found := self.n_found(state)) is not None:
                self.n = rows_told(*found)
                self.model = ResidualModel(self.n, self.noise, self.config.weights[0])
            return state
        if len(state.sums) == self.config.n_steps:
            return state._replace(products=unpacked(noisy, self.D))
        excess = state.excess[-1] if len(state.excess) else self._prior_excess(state)
        state = state._replace(
            sums=np.vstack([state.sums, noisy]),
            queries=np.vstack([state.queries, state.mean]),
            clips=np.append(state.clips, state.clip),
            excess=np.append(state.excess, excess),
        )
        if not self.config.private:
            mean = self.ordinary_posterior(state).mean[0, :-1] * self.R / state.unit
            return state._replace(mean=mean) if self.config.robust else state
        point = self.beliefs(state)
        grid = self.inferred(point, point, state, final=False)
        weights, given = grid.weights[0], grid.given
        of_scales = weights.sum(axis=1)
        mean = np.einsum("kj,kjd->d", weights, given.mean[0])
        # The scale of the residuals at the next θ_t: of the noise, and what θ_t misses.
        missed = given.variance[0] + (given.mean[0] - mean) ** 2
        missed = np.einsum("kj,kjd->d", weights, missed)
        v = float(of_scales @ np.exp(2 * grid.log_scales) + missed @ point.values[0] / self.n)
        best = self.model.best_clip(float(point.values.mean()))
        if self.config.robust:
            best = max(best, ROBUST_CLIP)
        return state._replace(
            mean=point.vectors[0] @ mean,
            clip=self._given_clip(state.unit) or best * math.sqrt(v),
            excess=of_scales @ grid.excess,
            around=grid.around,
            scales=self._scales(grid, point, state),
        )

    def _scales(self, grid: Grid, point: Beliefs, state: State) -> np.ndarray:
        """Where the scales of blocks are now."""
        return state.scales

    def _given_clip(self, unit: float) -> float | None:
        return None if self.config.clip_norm is None else self.config.clip_norm / unit

    def _prior_excess(self, state: State) -> float:
        return self.prior_variance * float(self.beliefs(state).values.sum()) / self.n

    def beliefs(self, state: State, stream: SecureStream | None = None, size: int = 1) -> Beliefs:
        """A: the likeliest, or draws from what Ã leaves possible."""
        assert state.gram is not None
        found, scale = state.gram / self.n, self.gram_noise / self.n
        tables = tuple(table / self.R for table in self.config.tables)
        if tables and self.config.private:
            one = self.config.fit_intercept / self.R
            moments = BinnedMoments(found, scale, tables, one, self.config.pairs)
            return moments.beliefs(self.n, stream, size)
        traces = state.sums[:, -1]
        trace = (0.0, math.inf)
        if len(traces):
            unit = self.n * self.config.weights[1]
            trace = (float(traces.mean()) / unit + 0.5, self.noise / (unit * len(traces) ** 0.5))
        of_one = 1.0 / self.R**2 if self.config.fit_intercept else 0.0
        moments = RowMoments(found, scale, of_one, trace)
        return moments.beliefs(self.n, stream, size)

    def inferred(
        self, point: Beliefs, beliefs: Beliefs, state: State, *, final: bool = True
    ) -> Grid:
        """Find θ, σ and τ on a grid that closes in on where the weight is, in ln σ and in ln τ."""
        centre, spread, middle, width = state.around
        zooms = ZOOMS if final else ZOOMS_ON_THE_WAY
        steps = FIXED_POINT_STEPS if final else FIXED_POINT_STEPS_ON_THE_WAY
        for zoom in range(zooms):
            log_scales = centre + spread * np.linspace(-1.0, 1.0, N_SCALES)
            log_widths, log_prior = self._widths(middle, width)
            excess, mixed = self.fixed_point(point, state, log_scales, log_widths, log_prior, steps)
            used = beliefs if zoom == zooms - 1 else point
            information = self.model.information(used, state, log_scales, excess)
            given = self._given(information, used, state, log_widths)
            of_scale = self.model.scale_evidence(
                state, log_scales, excess, self.model.excess(point, state, mixed)[1], mixed.followed
            )
            of_scale -= 0.5 * ((log_scales - math.log(NOISE_SCALE)) / NOISE_SPREAD) ** 2
            weights = _weights(given.log_evidence + of_scale[:, None] + log_prior)
            centre, spread = _closer(log_scales, weights.sum(axis=(0, 2)), spread)
            if len(log_widths) > 1:
                middle, width = _closer(log_widths, weights.sum(axis=(0, 1)), width)
        spread, width = min(WIDER * spread, WIDEST[1]), min(WIDER * width, WIDEST[3])
        around = (centre, spread, middle, width)
        return Grid(log_scales, log_widths, excess, given, weights, around, information, of_scale)

    def _given(
        self, information: Information, beliefs: Beliefs, state: State, log_widths: np.ndarray
    ) -> Given:
        """Take in the prior."""
        return with_prior(information, np.exp(2 * log_widths))

    def _widths(self, middle: float, width: float) -> tuple[np.ndarray, np.ndarray]:
        """Grid over ln τ, and the log prior density there."""
        if self.config.prior_scale is not None:
            return np.array([math.log(self.config.prior_scale * self.R)]), np.zeros(1)
        grid = middle + width * np.linspace(-1.0, 1.0, N_WIDTHS)
        return grid, log_hyperprior(grid, self.hyper_scale)

    def fixed_point(
        self,
        point: Beliefs,
        state: State,
        log_scales: np.ndarray,
        log_widths: np.ndarray,
        log_prior: np.ndarray,
        steps: int,
    ) -> tuple[np.ndarray, Mixed]:
        """v_t − σ², which depends on θ, and θ, which depends on v_t."""
        excess = np.broadcast_to(state.excess, (len(log_scales), len(state.clips)))
        for step in range(steps + 1):
            information = self.model.information(point, state, log_scales, excess)
            given = self._given(information, point, state, log_widths)
            mixed = Mixed.over(given, information, log_prior)
            if step < steps:
                excess = self.model.excess(point, state, mixed)[0]
        return excess, mixed

    def posterior(self, state: State, stream: SecureStream) -> RegressionPosterior:
        """Normal of (θ, ln σ) given all releases, in the units of the rows as they are."""
        drawn = self.beliefs(state, stream, max(4, min(N_BELIEFS, 2000 // self.D)))
        grid = self._final(drawn, state, stream)
        weights, given, U = grid.weights, grid.given, drawn.vectors
        means = (given.mean.reshape(len(U), -1, self.D) @ U.transpose(0, 2, 1)).reshape(
            given.mean.shape
        )
        if state.products is None:
            spreads = self._spreads(grid, drawn)
        else:
            spreads = self._robust(grid, drawn, state, stream)
        log_scales = np.broadcast_to(grid.log_scales[:, None, None], (*weights.shape, 1))
        points = np.concatenate([means, log_scales], axis=3)
        points, flat = points.reshape(-1, self.D + 1), weights.ravel()
        mean, covariance = _pooled(points, flat, spreads.mean(axis=0))
        q = self._in_units(mean, covariance, state)
        return self._with_widths(q, grid)

    def _final(self, drawn: Beliefs, state: State, stream: SecureStream) -> Grid:
        """Find θ, σ and τ given all releases."""
        return self.inferred(self.beliefs(state), drawn, state)

    def _spreads(self, grid: Grid, drawn: Beliefs) -> np.ndarray:
        """Covariances of θ given A, σ and τ, averaged over the latter, (B, D, D)."""
        U, weights = drawn.vectors, grid.weights
        variances = np.einsum("bkj,bkjd->bd", len(U) * weights, grid.given.variance)
        return (U * variances[:, None]) @ U.transpose(0, 2, 1)

    def _robust(
        self, grid: Grid, beliefs: Beliefs, state: State, stream: SecureStream
    ) -> np.ndarray:
        """Sandwich covariances given A, σ and τ, the latter at their means: (B, D, D)."""
        assert state.products is not None
        of_scales = grid.weights.sum(axis=(0, 2))
        scale = of_scales @ grid.log_scales
        excess = of_scales @ grid.excess
        second = moments(np.array([state.clip]), math.exp(2 * scale) + excess[-1])[1][0]
        expected = float(second * beliefs.values.sum(axis=1).mean()) / self.n
        # k̄ rows of a person scatter up to k̄ times as much as the model says of so many.
        persons = self.config.persons
        doubt = TRACE_DOUBT if persons is None else persons.rows_per_group
        doubt *= max(1.0, self.config.weight_bound)  # Σ w² is up to so many times Σ w
        found = RowMoments(
            state.products / self.n,
            self.plan.noise_scale(self.plan.sampling.n_steps - 2) / self.n,
            0.0,
            (expected, doubt * expected),
        )
        scores = found.beliefs(self.n, stream, len(beliefs.values))
        prior = self._precision(grid, beliefs)
        return self.model.sandwich(beliefs, scores, state, scale, excess, second, prior)

    def _precision(self, grid: Grid, beliefs: Beliefs) -> float | np.ndarray:
        """Of the prior, with τ at its mean."""
        return math.exp(-2 * float(grid.weights.sum(axis=(0, 1)) @ grid.log_widths))

    def _with_widths(self, q: RegressionPosterior, grid: Grid) -> RegressionPosterior:
        """Say what is known of τ."""
        return self._told(q, grid.log_widths, grid.weights.sum(axis=(0, 1)))

    def _told(
        self, q: RegressionPosterior, log_widths: np.ndarray, weights: np.ndarray
    ) -> RegressionPosterior:
        found = np.exp(_quantiles(log_widths, weights, QUANTILES)) / self.R
        return replace(q, prior_scales=found[:, None])

    def plain_posterior(self, state: State, q: RegressionPosterior) -> RegressionPosterior:
        """The same means with the spread they would have, had the releases been exact."""
        A = self.beliefs(state)
        s2 = math.exp(2 * q.mean[0, -1]) / state.unit**2
        within = (A.vectors[0] / (A.values[0] / s2 + 1 / self.prior_variance)) @ A.vectors[0].T
        covariance = np.zeros((self.D + 1, self.D + 1))
        covariance[:-1, :-1] = within * (state.unit / self.R) ** 2
        covariance[-1, -1] = 1.0 / (2 * self.n + NOISE_SPREAD**-2)
        return replace(q, spread=covariance)

    def ordinary_posterior(
        self, state: State, columns: np.ndarray | float = 1.0
    ) -> RegressionPosterior:
        """The posterior from exact moments: conjugate given σ and τ, and a grid over σ.

        There are as many rows as their weights come to. Of θ over ``columns``, the prior is
        N(0, τ² I).
        """
        assert state.gram is not None
        outer = np.outer(columns, columns)
        a, U = np.linalg.eigh(state.gram * outer)
        b = U.T @ (columns * state.sums[0, : self.D]) / state.unit
        # Where columns depend on each other, a and b are rounding, and a wide prior would trust it.
        known = a > ROUNDED * a[-1]
        a, b = np.where(known, a, 0.0), np.where(known, b, 0.0)
        squares, n = float(state.sums[0, -2]) / state.unit**2, float(state.sums[0, -1])
        log_widths, found, chances = self._over_widths(a, b, squares, n)
        weights = np.concatenate([c * one.weights for c, one in zip(chances, found, strict=True)])
        mean = np.concatenate([one.mean for one in found])
        log_scales = np.concatenate([one.log_scales for one in found])
        within = (U * (weights @ (1.0 / np.concatenate([one.precision for one in found])))) @ U.T
        if state.products is not None:
            s2, prior = math.exp(2 * (weights @ log_scales)), math.exp(-2 * (chances @ log_widths))
            bread = (U / (a / s2 + prior)) @ U.T
            products = state.products * outer / (s2 * state.unit) ** 2
            within = bread @ (products + prior * np.eye(self.D)) @ bread
        points = np.column_stack([columns * (mean @ U.T), log_scales])
        q = self._in_units(*_pooled(points, weights, within * outer), state)
        return self._told(q, log_widths, chances)

    def _over_widths(
        self, a: np.ndarray, b: np.ndarray, squares: float, n: float
    ) -> tuple[np.ndarray, list[Conjugate], np.ndarray]:
        """Grid over ln τ that closes in, what `_conjugate` finds there, and the weights (J,)."""
        log_widths, log_prior = self._widths(*WIDEST[2:])
        while True:
            found = [self._conjugate(a, b, squares, n, math.exp(2 * t)) for t in log_widths]
            evidence = np.array([one.log_evidence for one in found]) + log_prior
            chances = np.exp(evidence - evidence.max())
            chances /= chances.sum()
            if len(found) == 1 or log_widths[-1] - log_widths[0] < 2 * WIDEST[3] - 1e-9:
                return log_widths, found, chances
            closer = _closer(log_widths, chances, 0.99 * WIDEST[3])
            log_widths, log_prior = self._widths(*closer)

    def _conjugate(
        self, a: np.ndarray, b: np.ndarray, squares: float, n: float, prior_variance: float
    ) -> Conjugate:
        """Means and precisions along eigenvectors at a grid of ln σ, its weights, the evidence."""
        centre, spread = math.log(NOISE_SCALE), 12.0 * NOISE_SPREAD

        def given(log_scales: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            s2 = np.exp(2 * log_scales)[:, None]
            precision = a / s2 + 1 / prior_variance
            mean = b / s2 / precision
            log_weights = -0.5 * (
                2 * n * log_scales
                + (squares - np.sum(b * mean, axis=1)) / s2[:, 0]
                + np.log(prior_variance * precision).sum(axis=1)
                + ((log_scales - math.log(NOISE_SCALE)) / NOISE_SPREAD) ** 2
            )
            return mean, precision, log_weights

        for _ in range(2 * ZOOMS):
            log_scales = centre + spread * np.linspace(-1.0, 1.0, 4 * N_SCALES)
            log_weights = given(log_scales)[2]
            weights = np.exp(log_weights - logsumexp(log_weights))
            centre = float(weights @ log_scales)
            sd = math.sqrt(float(weights @ (log_scales - centre) ** 2))
            spread = min(spread, max(7.0 * sd, 2.0 * (log_scales[1] - log_scales[0])))
        log_scales = centre + spread * np.linspace(-1.0, 1.0, 4 * N_SCALES)
        mean, precision, log_weights = given(log_scales)
        total = float(np.logaddexp.reduce(log_weights))
        evidence = total + math.log(log_scales[1] - log_scales[0])
        return Conjugate(mean, precision, log_scales, np.exp(log_weights - total), evidence)

    def n_found(self, state: State) -> tuple[float, float] | None:
        """Noisy number of records, by the intercept's second moment."""
        if state.gram is None or not self.config.fit_intercept:
            return None
        return float(state.gram[-1, -1]) * self.R**2, self.gram_noise * self.R**2

    def _in_units(
        self, mean: np.ndarray, covariance: np.ndarray, state: State
    ) -> RegressionPosterior:
        units = np.append(np.full(self.D, self.R / state.unit), 1.0)
        mean, covariance = mean / units, covariance / np.outer(units, units)
        mean[-1] += math.log(state.unit)
        found = state.unit_found
        clip = state.unit * state.clip if self.config.private else math.inf
        return RegressionPosterior(
            mean[None], covariance, unit=state.unit, unit_found=found, clip=clip
        )


class RegressionByBlocks(NoiseAwareRegression):
    """The same with a scale τ_b for each block of coefficients, and one for the intercept.

    On the way τ is where it is likeliest; at the end one is drawn with each belief about A.
    """

    def __init__(self, config: NoiseAwareRegressionConfig, weighted: bool = False) -> None:
        super().__init__(config, weighted)
        shape = 1, self.D
        self.prior = PriorScales.of(
            None, shape, config.n_features, config.prior_blocks, self.hyper_scale
        )

    def init(self) -> State:
        """Start at the prior's mean, with scales about the median of their prior."""
        return super().init()._replace(scales=self.prior.start)

    def _widths(self, middle: float, width: float) -> tuple[np.ndarray, np.ndarray]:
        return np.zeros(1), np.zeros(1)

    def _given(
        self, information: Information, beliefs: Beliefs, state: State, log_widths: np.ndarray
    ) -> Given:
        return block_scales.given(information, self.prior.precision(state.scales), beliefs)

    def _scales(self, grid: Grid, point: Beliefs, state: State) -> np.ndarray:
        best = int(grid.weights[0, :, 0].argmax())
        return block_scales.likeliest(self.prior, state.scales, grid.information, best, point)

    def _final(self, drawn: Beliefs, state: State, stream: SecureStream) -> Grid:
        point = self.beliefs(state)
        grid = self.inferred(point, point, state)
        weights = grid.weights[0, :, 0]
        found = self.model.information(drawn, state, grid.log_scales, grid.excess)
        scales = block_scales.drawn(self.prior, state.scales, found, weights, drawn, stream)
        given = block_scales.given(found, self.prior.precision(scales), drawn)
        weights = _weights(given.log_evidence + grid.of_scale[:, None])
        return grid._replace(given=given, weights=weights, information=found, scales=scales)

    def _spreads(self, grid: Grid, drawn: Beliefs) -> np.ndarray:
        precision, weights = self.prior.precision(grid.scales), len(drawn.values) * grid.weights
        return block_scales.covariances(grid.information, precision, drawn, weights[:, :, 0])

    def _precision(self, grid: Grid, beliefs: Beliefs) -> np.ndarray:
        return block_scales.rotated(self.prior.precision(grid.scales), beliefs.vectors)

    def _with_widths(self, q: RegressionPosterior, grid: Grid) -> RegressionPosterior:
        return self._of_blocks(q, grid.scales)

    def _of_blocks(self, q: RegressionPosterior, scales: np.ndarray) -> RegressionPosterior:
        found = self.prior.summary(scales, self.config.n_features) / self.R
        return replace(q, prior_scales=found)

    def ordinary_posterior(
        self, state: State, columns: np.ndarray | float = 1.0
    ) -> RegressionPosterior:
        """The posterior from exact moments at the likeliest scales."""
        scales, unit = self.prior.start, self.R / state.unit
        for _ in range(MOST_EM_STEPS):
            q = super().ordinary_posterior(state, self.prior.precision(scales) ** -0.5)
            variances = np.diag(q.covariance)[:-1] * unit**2
            ratio = self.prior.likeliest(q.mean[0, :-1] * unit, variances) / scales
            if np.abs(np.log(ratio)).max() < SETTLED:
                break
            scales = scales * ratio**OVERRELAXED
        return self._of_blocks(q, scales[None])


def _weights(log_weights: np.ndarray) -> np.ndarray:
    """Weights (B, K, J) that sum to 1, alike for each belief."""
    weights = np.exp(log_weights - log_weights.max(axis=(1, 2), keepdims=True))
    return weights / (len(weights) * weights.sum(axis=(1, 2), keepdims=True))


def unit_of(counts: np.ndarray, noise: float) -> float | None:
    """Power of two that all but a few targets are below, from noisy counts by binary exponent.

    Targets of one scale have two or three exponents. None where no two neighbours hold more than
    their noise may.
    """
    pairs = counts[:-1] + counts[1:]
    most = int(pairs.argmax())
    if pairs[most] <= LOUD * math.sqrt(2.0) * noise:
        return None
    sure = np.where(counts > LOUD * noise, counts, 0.0)
    sure[most : most + 2] = np.maximum(counts[most : most + 2], 0.0)
    at_least = np.cumsum(sure[::-1])[::-1]
    return 2.0 ** MAGNITUDES[int(np.flatnonzero(at_least > BEYOND * at_least[0])[-1])]


def log_hyperprior(log_widths: np.ndarray, scale: float) -> np.ndarray:
    """Log density of ln τ for a half-normal τ, up to a constant."""
    return log_widths - 0.5 * np.exp(2 * log_widths) / scale**2


def _closer(grid: np.ndarray, weights: np.ndarray, spread: float) -> tuple[float, float]:
    """Centre and half width of the next grid, from weights on this one."""
    centre = float(weights @ grid)
    sd = math.sqrt(float(weights @ (grid - centre) ** 2))
    return centre, min(spread, max(5.0 * sd, 1.5 * (grid[1] - grid[0])))


def _quantiles(grid: np.ndarray, weights: np.ndarray, at: tuple[float, ...]) -> np.ndarray:
    """Quantiles of a distribution that has weights at the points of a grid."""
    middle = np.cumsum(weights) - 0.5 * weights
    return np.interp(at, middle, grid)


def _pooled(
    points: np.ndarray, weights: np.ndarray, within: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of a mixture of normals at points; ``within`` is of all but the last."""
    mean = weights @ points
    covariance = (weights[:, None] * (points - mean)).T @ (points - mean)
    covariance[:-1, :-1] += within
    return mean, (covariance + covariance.T) / 2
