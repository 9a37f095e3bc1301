"""The posterior of one linear predictor on standardised columns, given private releases.

With z the standardised columns and a 1 (`skdp.algorithms.noise_aware.columns`), s(θ) the score of a
row (`skdp.algorithms.noise_aware.families`), m the largest that it can be whatever the target is,
and w = min(1, C/(‖z‖ m), R²/‖z‖²), a run releases

    G̃   = Σ min(1, R²/‖z‖²) z zᵀ + noise   once                        bound R²
    g̃_t = Σ w s(θ_t) z + noise              T times                     bound C
    H̃   = -Σ w s'(θ_T) z zᵀ + noise         once, at the last θ_t       `families`

Rows are not changed: w scales scores, by nothing that depends on y, so that the expected score is
0 at the truth whatever C is, if the model holds; on other rows the root moves, by up to some
standard errors where tails are heavy. H is the derivative of the expected score.

*Where the run goes.* θ_t is the mean of the posterior given the g̃_t and one likely slope, the mean
of draws of G times what is learned on the way column by column.

*The posterior.* Of a drawn slope H, each g̃_t moved to the last θ_T by it is a measurement

    g̃_t + H(θ_t - θ_T) = H(θ - θ_T) + (sampling of the scores, variance κH) + noise,

of which the sampling is one for all, and κ is 1 for classes. A step that went far counts for less,
because slopes change on the way. Slopes are drawn: G by `matrices.draws`, a factor f of each column
by `drawn_factors`, and H = c B(1 + X)Bᵀ, B Bᵀ = f G f, with X symmetric, its size learned from both
matrices, its entries given H̃ normal. The prior of θ is that of `skdp.algorithms.noise_aware.prior`;
where the noise hides how far a column spreads, its spread is drawn too, and the prior is of the
effect times it. Given slopes all of it is a Gibbs sampler, whose draws make the mean, what
predictions are averaged over (`Draws.point`) and the covariance (`Draws.about`).

*Without standardised columns* (`GLMConfig.run`) rows are clipped to a norm and divided by their
usual spread. Predictions then take columns to spread alike; the covariance does not.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy.linalg import block_diag
from scipy.special import ndtr, ndtri

from skdp.algorithms.dp_vi import target_bounds
from skdp.algorithms.gaussian_posterior import GaussianPosterior, in_units
from skdp.algorithms.noise_aware import matrices
from skdp.algorithms.noise_aware.columns import SPREADS, UNBOUNDED, Columns, spreads
from skdp.algorithms.noise_aware.families import (
    FASTEST,
    USUAL_CUT,
    USUAL_SQUARE,
    WIDEST,
    Counts,
    Cut,
    Line,
    Logit,
    inside,
    mean_square,
    told_scale,
)
from skdp.algorithms.noise_aware.prior import INTERCEPT, Prior
from skdp.algorithms.noise_aware_linear import RegressionPosterior
from skdp.algorithms.parts.gaussian_runs import (
    COUNT_SHARE,
    FLOAT,
    GaussianRun,
    far_below,
    release_plan_of,
    rows_told,
    run_and_count,
)
from skdp.engine.linear_sums import GramSum, OutsideSum, of_weights, unpacked
from skdp.engine.loop import Progress, ReleasePlan
from skdp.engine.sampling import FullBatch
from skdp.fitting.streams import Streams
from skdp.relations import check_relation
from skdp.rows.chunks import changed, rows_of
from skdp.rows.clipping import row_bound
from skdp.rows.records import LinearRows

# Shares of the squared GDP budget that is left to this run. The study of these constants is
# benchmarks/real_tables.py, which says the tables that they were chosen on.
GRAM_SHARE, SLOPE_SHARE = 0.08, 0.08
LEFT = 1.0 - GRAM_SHARE - SLOPE_SHARE - COUNT_SHARE  # for scores
STEPS = 15
ROWS = 1.5  # R over √D, the root mean square of ‖z‖
QUIET = 0.3  # noise of a score over its sampling, below which C grows: more of the rows counts
WALK = 0.3  # that of effects, while the run is on its way
SLOPE_ERROR = 0.5  # of the mean slope that the logits of normal rows tell, over it
FARTHEST = 2.0  # deviations of the logits that a step goes at most
MODEL_ERROR = 0.6  # of a score that was moved, over the way that it was moved
FACTOR = 0.25  # scale of Laplace's law of the logarithms of factors of columns' slopes
ALIKE = -0.5  # logarithm of the spread of columns of which none is declared, over their unit
RARE = 0.1  # deviation of an indicator below which its effects are taken to be no larger
CHAINS, MATRIX_SWEEPS, SWEEPS, BURN = 16, 4, 24, 8
USUAL_LOGITS = 8.0 / math.pi  # variance beyond which probabilities shrink (MacKay, 1992)


class State(NamedTuple):
    """All of it is a function of what has been released."""

    theta: np.ndarray
    gram: np.ndarray | None = None
    drawn: tuple[np.ndarray, np.ndarray] | None = None  # axes and eigenvalues of draws of G
    likely: np.ndarray | None = None  # their mean
    queries: tuple[np.ndarray, ...] = ()
    scores: tuple[np.ndarray, ...] = ()
    units: tuple[float, ...] = ()  # by which what was released was multiplied to be a score
    cut: float = WIDEST  # c
    squares: tuple[tuple[float, float], ...] = ()  # means of ψ², and c
    scales: tuple[float, ...] = ()  # of residuals
    slope: np.ndarray | None = None


@dataclass(frozen=True, kw_only=True)
class GLMConfig(GaussianRun):
    """Public facts of a run on standardised rows.

    Parameters
    ----------
    family : Logit, Counts or Line
        What scores are of.
    n_rows, n_features : int
        Public numbers of rows and of columns.
    fit_intercept : bool
        Whether each row has a 1 appended.
    clip_norm : float
        C > 0.
    n_steps : int
        T ≥ 1.
    prior_scale : float or None
        Standard deviation of a normal prior of each standardised effect; None learns τ.
    prior_blocks : tuple of int or None
        Block of each column; those of one share a τ.
    covariance : {"full", "diag"}
        Of what is returned.
    data_norm : float
        Norm to which rows are clipped, whose columns are then taken to be alike (`run`);
        `UNBOUNDED` of standardised rows.
    """

    family: Logit | Counts | Line
    n_rows: int
    n_features: int
    fit_intercept: bool
    clip_norm: float
    n_steps: int
    prior_scale: float | None = None
    prior_blocks: tuple[int, ...] | None = None
    covariance: str = "full"
    data_norm: float = UNBOUNDED
    asks_sums: ClassVar[bool] = True
    noise_aware: ClassVar[bool] = True
    private: ClassVar[bool] = True

    @property
    def likelihood(self) -> Any:
        """Of classes and counts."""
        return None if isinstance(self.family, Line) else self.family.likelihood

    @property
    def n_columns(self) -> int:
        """D."""
        return self.n_features + self.fit_intercept

    @property
    def cut(self) -> Cut:
        """Bounds on what a row adds."""
        return Cut(self.clip_norm, max(self._longest, self.clip_norm))

    def default_clip(self, mu: float) -> float:
        """C for a GDP budget: where little is told that at which rows of the usual norm count 1."""
        usual = math.sqrt(self.n_columns)
        least = float(self.family.largest(np.zeros((1, 1)))[0]) * usual
        quiet = QUIET * mu * math.sqrt(LEFT * self.n_rows / 4.0)
        return max(least, min(quiet, math.sqrt(self._longest * quiet)))

    @property
    def _longest(self) -> float:
        """Norm of rows, as a bound where they are clipped, else above that of most."""
        return (1.0 if self.alike else ROWS) * math.sqrt(self.n_columns)

    @property
    def alike(self) -> bool:
        """Whether columns are taken to spread alike, instead of as was released of them."""
        return self.data_norm < UNBOUNDED

    @property
    def row_bound(self) -> float:
        """Norm bound of a row with its intercept."""
        return row_bound(self.data_norm, self.fit_intercept)

    @property
    def unit(self) -> float:
        """Spread of columns that are alike, of rows as long as their bound."""
        return self.data_norm / math.sqrt(self.n_features)

    @property
    def units(self) -> tuple[float, ...]:
        """Noise multipliers over that of a score."""
        shares = GRAM_SHARE, SLOPE_SHARE, COUNT_SHARE
        gram, slope, count = (math.sqrt(LEFT / self.n_steps / share) for share in shares)
        return (gram, *[1.0] * self.n_steps, slope, count)

    @property
    def dimensions(self) -> list[int]:
        """Number of coordinates of each release in turn."""
        D = self.n_columns
        pairs = D * (D + 1) // 2
        return [pairs, *[D + self.family.extra] * self.n_steps, pairs, self.counts.n_counts]

    @property
    def counts(self) -> OutsideSum:
        """Records that are cut to their bounds."""
        return OutsideSum(targets=not isinstance(self.family, Logit))

    @property
    def sampling(self) -> FullBatch:
        """Every record takes part in every release."""
        return FullBatch(self.n_steps + 3)

    @property
    def memory(self) -> int:
        """Bytes of the standardised rows, about."""
        return FLOAT * self.n_rows * (self.n_columns + 3)

    def release_plan(self) -> ReleasePlan:
        """What the engine executes."""
        scores: list[Any] = [self.family.scores(self.cut)] * self.n_steps
        gram, slope = GramSum(self.cut.row_norm**2), self.family.slope(self.cut)
        sums = [gram, *scores, slope, self.counts]
        return ReleasePlan(
            self.sampling,
            [of_weights(one, self.weight_bound) for one in sums],
            self.noise_multipliers,
            self.neighboring_relation,
            self.secure,
            self.persons,
        )

    def on(
        self, records: Any, columns: Columns, streams: Streams, progress: Progress = iter
    ) -> GaussianPosterior:
        """Run on private rows that are standardised as was released of the columns."""
        line = self.likelihood is None
        bounds = (-1.0, 1.0) if line else target_bounds(self.likelihood, records[1])
        most = math.sqrt(self.n_features) if self.alike else UNBOUNDED
        config = replace(self, data_norm=most)
        build = partial(LinearRows.of, config, alone=self.secure, target_bounds=bounds)
        rows = rows_of(records, build, kept=False)
        weighted = getattr(records, "weights", None) is not None
        update = Update(self, columns, streams("inference").generator, weighted)
        state, outside = run_and_count(update.plan, rows, update, streams, progress)
        return replace(update.posterior(state), outside=outside, n_counted=round(update.n))

    def run(self, records: Any, streams: Streams, progress: Progress = iter) -> GaussianPosterior:
        """Run on private rows whose columns spread alike, as far as is known before."""
        d, unit = self.n_features, self.unit
        none, known = np.zeros(d), np.full(d, 1e-12)
        columns = Columns(
            none, known + unit, known + 1.0, known, (0.0, 0.0), 0.0, 1.0, numbers=(True,) * d
        )
        q = self.on(changed(records, Divided(unit)), columns, streams, progress)
        scales = None if q.prior_scales is None else q.prior_scales / unit
        short = None if q.short_rows is None else q.short_rows * unit
        q = in_units(q, none, columns.scale, has_intercept=self.fit_intercept)
        return replace(q, prior_scales=scales, short_rows=short)


@dataclass(frozen=True)
class Divided:
    """The map of rows to x/unit."""

    unit: float

    def __call__(self, records: Any) -> Any:
        """Map the rows of records."""
        return records if self.unit == 1.0 else records._replace(X=records.X / self.unit)


class Update:
    """Inference: pure functions of what has been released."""

    def __init__(
        self, config: GLMConfig, columns: Columns, generator: Any, weighted: bool = False
    ) -> None:
        self.config, self.columns, self.plan = config, columns, release_plan_of(config)
        self.weighted = weighted
        self.generator = generator
        self.n = max(1.0, columns.n_found[0]) if columns.counted else float(config.n_rows)
        self.n_found: tuple[float, float] | None = None

    def init(self) -> State:
        """Start where all effects are 0."""
        return State(np.zeros(self.config.n_columns))

    def query(self, state: State) -> np.ndarray:
        """θ_t, (1, D), and c beside it where the family has one."""
        if state.gram is None or not self.config.family.extra:
            return state.theta[None]
        return np.append(state.theta, state.cut)[None]

    def noise(self, step: int) -> float:
        """Standard deviation of the noise of a release."""
        width = self.config.n_columns + (self.config.family.extra if step else 0)
        return self.plan.step((1, width), step)[1].scale

    def update(self, state: State, noisy: np.ndarray, step: int) -> State:
        """Take in one release."""
        D = self.config.n_columns
        if step == 0:
            self._count(float(noisy[-1]))
            gram = unpacked(noisy, D) / self.n
            sd = self.noise(0) / math.sqrt(2.0) / self.n
            drawn = matrices.draws(gram, sd, CHAINS, MATRIX_SWEEPS, self.generator)
            return state._replace(gram=gram, drawn=drawn, likely=matrices.mean(*drawn))
        if step == self.config.n_steps + 1:
            slope = unpacked(noisy, D) / self.n
            if self.config.family.extra:
                slope = slope / inside(state.scales[-1] / state.cut)
            return state._replace(slope=slope)
        state, cut = self._scored(state, noisy.ravel())
        if step == self.config.n_steps:  # the slope is released where the last score was
            return state
        return state._replace(theta=self._next(state), cut=cut)

    def _count(self, found: float) -> None:
        """Take in the number of rows, the intercept's second moment, where it is not public."""
        config = self.config
        if config.alike and config.fit_intercept:
            self.n_found = found, self.noise(0)
            is_public = check_relation(config.neighboring_relation).n_is_public
            if not is_public or self.weighted or config.of_rows > 1.0:
                self.n = float(rows_told(*self.n_found))

    def _scored(self, state: State, noisy: np.ndarray) -> tuple[State, float]:
        """Take in a score, and say what c comes next."""
        D, unit, scales, cut = self.config.n_columns, 1.0, state.scales, state.cut
        if self.config.family.extra:
            square = noisy[D] / (self.config.clip_norm / 2.0 * self.n) + USUAL_SQUARE
            state = state._replace(squares=(*state.squares, (square, cut)))
            scale, _ = self._scale(state, (len(state.squares) + 1) // 2)
            unit, scales = cut / inside(scale / cut), (*scales, scale)
            slow, fast = FASTEST
            cut = min(cut * min(max(USUAL_CUT * scale / cut, slow), fast), WIDEST)
        return state._replace(
            queries=(*state.queries, state.theta),
            scores=(*state.scores, unit * noisy[:D]),
            units=(*state.units, unit),
            scales=scales,
        ), cut

    def _scale(self, state: State, use: int) -> tuple[float, float]:
        """Scale of residuals, and the variance of its logarithm, by ψ² of the last steps."""
        squares, cuts = np.array(state.squares[-use:]).T
        error = self.noise(1) / (self.config.clip_norm / 2.0 * self.n)
        return told_scale(squares, cuts, math.hypot(error, 0.5 / math.sqrt(self.n)))

    def _sampling(self, state: State) -> float:
        """κ: variance of the scores over their slope; of a person as if its rows were alike."""
        family = self.config.family
        if isinstance(family, Line):
            scale, weight = state.scales[-1] / state.cut, self._mean_slope(state)
            found = float(mean_square(np.array(scale))) * state.units[-1] ** 2 * weight
        else:
            found = self._mean(family.variance_at, state, power=2) / self._mean_slope(state)
        return found * self.config.of_person**2

    def _mean_slope(self, state: State) -> float:
        """Slope of the scores over Σ w z zᵀ."""
        family = self.config.family
        return self._mean(np.ones_like if isinstance(family, Line) else family.slope_at, state)

    def _mean(
        self, of_logits: Callable[[np.ndarray], np.ndarray], state: State, power: int = 1
    ) -> float:
        """Mean of a function of the logits of normal rows, times a power of their weights."""
        assert state.likely is not None
        G, theta, d = state.likely, state.theta, self.config.n_features
        deviation = math.sqrt(max(float(theta[:d] @ G[:d, :d] @ theta[:d]), 0.0))
        x = np.linspace(-4.0, 4.0, 41)
        p = np.exp(-(x**2) / 2)
        logits = (theta[d] if self.config.fit_intercept else 0.0) + deviation * x
        norms = np.full(len(x), math.sqrt(self.config.n_columns))
        w = self.config.cut.weights(norms, self.config.family.largest(logits[:, None])) ** power
        return max(float(p @ (w * of_logits(logits)) / p.sum()), 1e-9)

    def _next(self, state: State) -> np.ndarray:
        """Mean given the later half of the scores and one likely slope, no farther than a step."""
        assert state.likely is not None
        G, theta, n = state.likely, state.theta, self.n
        use = max(1, (len(state.queries) + 1) // 2)
        variances = (self.noise(1) * np.array(state.units[-use:])) ** 2
        weights = 1.0 / variances / np.sum(1.0 / variances)
        q, g = (weights @ np.array(a[-use:]) for a in (state.queries, state.scores))
        H = n * self._mean_slope(state) * G
        if self.config.family.bends:
            factor = self._on_the_way(state, H)
            H = H * factor[:, None] * factor
        W = np.linalg.inv(self._sampling(state) * H + np.eye(len(H)) / np.sum(1.0 / variances))
        precision = 2.0 / (WALK**2 + theta**2)
        precision[self.config.n_features :] = INTERCEPT**-2
        new = np.linalg.solve(H @ W @ H + np.diag(precision), H @ W @ (g + H @ q))
        step = new - theta
        length = math.sqrt(max(float(step @ G @ step), 0.0))
        return theta + step * min(1.0, FARTHEST / max(length, 1e-9))

    def _on_the_way(self, state: State, H: np.ndarray) -> np.ndarray:
        """Factors of the slopes of columns (D,), as scores have told on the way of the queries.

        Change of each score over that which H foretells, by least squares, about 1 ± ½.
        """
        q, g = np.array(state.queries), np.array(state.scores)
        foretold, seen = -(q - q[0]) @ H, g - g[0]
        noise = 2.0 * (self.noise(1) * max(state.units)) ** 2 / 0.5**2
        found = (np.sum(foretold * seen, axis=0) + noise) / (np.sum(foretold**2, axis=0) + noise)
        return np.sqrt(np.clip(found, _FACTORS[0] ** 2, _FACTORS[-1] ** 2))

    def posterior(self, state: State) -> GaussianPosterior:
        """Mean and covariance of θ on the standardised columns."""
        config, unit = self.config, state.scales[-1] if self.config.family.extra else 1.0
        H, slope = self._slopes(state, self.generator)
        laws, found = [], self._hidden(H, slope, state, self.generator)
        if config.alike:  # predictions take columns to be as the norm of rows says, intervals not
            laws.append((H, np.ones((CHAINS, config.n_features))))
        laws.append((H, self._seen(state)) if found is None else found)
        mean = of_logits = None
        for H, spread in laws:
            # What is rare has no larger effects for it, as what is narrow in its unit has.
            least = np.where(self.columns.numbers, 0.0, RARE / self.columns.scale)
            spread = np.maximum(spread, least)
            if config.prior_scale is not None and config.alike:
                spread = np.ones_like(spread)
            prior = Prior(H, spread, unit, config.prior_blocks, config.prior_scale)
            draws = self._sampled(*self._measured(state, H), prior, self.generator)
            if mean is None:
                mean, of_logits = draws.point(H)
        assert mean is not None
        assert of_logits is not None
        covariance, of_logits = ((S + S.T) / 2.0 for S in (draws.about(mean), of_logits))
        scales = np.percentile(draws.scales, [5, 50, 95], axis=0)
        if config.family.extra:
            return self._with_scale(state, (mean, covariance, of_logits), scales)
        if config.covariance == "diag":
            covariance, of_logits = np.sqrt(np.diag(covariance)), None
        q = GaussianPosterior(mean[None], covariance, prior_scales=scales, of_logits=of_logits)
        return replace(q, short_rows=self._short(state), n_found=self._told())

    def _with_scale(
        self, state: State, moments: tuple[np.ndarray, np.ndarray, np.ndarray], scales: np.ndarray
    ) -> RegressionPosterior:
        """The posterior of (θ, ln σ), σ by the ψ² of the last third of the steps."""
        scale, variance = self._scale(state, max(1, len(state.squares) // 3))
        mean, *both = moments
        covariance, of_logits = (np.array(block_diag(S, variance)) for S in both)
        return RegressionPosterior(
            np.append(mean, math.log(scale))[None],
            covariance,
            prior_scales=scales * state.scales[-1],
            of_logits=of_logits,
            clip=state.cut,
            short_rows=self._short(state),
            n_found=self._told(),
        )

    def _told(self) -> tuple[float, float] | None:
        """Noisy number of rows, where it was released and they have no weights."""
        return None if self.weighted else self.n_found

    def _short(self, state: State) -> float | None:
        """Root mean square norm of rows that are clipped, if that is far below their bound."""
        config = self.config
        if not config.alike:
            return None
        assert state.gram is not None
        D = config.n_columns
        unit = replace(config, data_norm=math.sqrt(config.n_features))
        trace, noise = float(np.trace(state.gram)) * self.n, self.noise(0) * math.sqrt(D)
        bound = unit.row_bound**2
        return far_below(trace / bound, noise / bound, unit, self.n_found)

    def _slopes(self, state: State, generator: Any) -> tuple[np.ndarray, float]:
        """Draws of H/n (K, D, D), and the slope of a column of spread 1."""
        assert state.gram is not None
        assert state.slope is not None
        M, N, D = state.gram, state.slope, len(state.gram)
        s, t = (self.noise(i) / math.sqrt(2.0) / self.n for i in (0, self.config.n_steps + 1))
        if self.config.family.extra:
            t /= inside(state.scales[-1] / state.cut)
        assert state.drawn is not None
        axes, values = state.drawn
        trace = max(float(np.trace(M)), 1e-3)
        c = self._share(state, np.trace(N) / trace, math.sqrt(2.0 * D) * t / trace)
        factor = np.ones((CHAINS, D))
        if self.config.family.saturates:
            factor = drawn_factors(np.diag(M), np.diag(N) / c, s, t / c, generator)
        F = np.median(factor, axis=0)
        cM, of_noise = c * M * np.outer(F, F), t**2 + (c * s * np.outer(F, F)) ** 2
        # Slopes are B (1 + X) Bᵀ with B = √c F G^½ and X of entries of variance x².
        whole = axes * np.sqrt(values)[:, None, :]
        whole = whole @ axes.transpose(0, 2, 1) * factor[:, :, None] * math.sqrt(c)
        left, root, _ = np.linalg.svd(whole)
        values = root**2 / c
        # E ‖H̃ - c FG̃F‖² = c² x² (tr² FGF + tr (FGF)²) + noise.
        together = values.sum(axis=1).mean() ** 2 + (values**2).sum(axis=1).mean()
        missed = float(((N - cM) ** 2).sum() - of_noise.sum() - np.trace(of_noise))
        error = 2.0 * math.sqrt(float((of_noise**2).sum()))
        square = drawn_misses(missed / (c**2 * together), error / (c**2 * together), generator)
        unit = root[:, :, None] * root[:, None, :]
        kept = unit**2 * square / (unit**2 * square + t**2)
        Y, at = left.transpose(0, 2, 1) @ N @ left, np.arange(D)
        Y[:, at, at] -= root**2
        noise = matrices.symmetric_noise((CHAINS,), D, generator)
        X = (kept * Y + np.sqrt(kept) * t * noise) / unit
        X[:, at, at] += 1.0
        of_X, Q = np.linalg.eigh(X)
        B = left @ (root[:, :, None] * Q * np.sqrt(np.maximum(of_X, 0.05))[:, None, :])
        H = B @ B.transpose(0, 2, 1)
        return H, c if self.config.alike else c * trace / D

    def _share(self, state: State, found: float, error: float) -> float:
        """Mean slope over that of Σ w z zᵀ: as released, and as the logits of normal rows tell."""
        told = self._mean_slope(state)
        known = (SLOPE_ERROR * told) ** 2 / (error**2 + (SLOPE_ERROR * told) ** 2)
        return float(np.clip(told + known * (found - told), *self.config.family.slopes))

    def _seen(self, state: State) -> np.ndarray:
        """Spread of the columns over their scale (K, d), as if the noise hid none."""
        if not self.config.alike:
            return np.ones((CHAINS, self.config.n_features))
        return np.tile(np.sqrt(np.maximum(self._squares(state)[0], 0.0)), (CHAINS, 1))

    def _squares(self, state: State) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Mean squares (d,) of the columns about their means, their errors, and the means."""
        assert state.gram is not None
        d, M, noise = self.config.n_features, state.gram, self.noise(0) / self.n
        means = M[:d, d] / M[d, d] if self.config.alike and len(M) > d else np.zeros(d)
        return np.diag(M)[:d] - means**2, noise * np.sqrt(1.0 + 2.0 * means**2), means

    def _hidden(
        self, H: np.ndarray, slope: float, state: State, generator: Any
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """Let the slope of a column whose spread the noise hides be that of a drawn spread."""
        columns, d = self.columns, self.config.n_features
        square, error, means = self._squares(state)
        if self.config.alike:
            hidden, unit, p = square < 4.0 * error, np.ones(d), spreads(square, error, usual=ALIKE)
        else:
            hidden, unit = columns.variance < 4.0 * columns.error, columns.scale
            p = spreads(columns.variance * unit**2, columns.error * unit**2)
            # What has been seen of rows tells of them too.
            off = square[:, None] - (SPREADS / unit[:, None]) ** 2
            p = p * np.exp(-((off / error[:, None]) ** 2) / 2.0)
        if not hidden.any():
            return None
        at = np.flatnonzero(hidden)
        gumbel = generator.gumbel(size=(CHAINS, len(at), len(SPREADS)))
        drawn = SPREADS[(np.log(p[at] + 1e-300) + gumbel).argmax(axis=-1)] / unit[at]
        spread = self._seen(state)
        spread[:, at] = drawn if self.config.alike else np.minimum(1.0, drawn)
        centre = np.eye(H.shape[-1])
        centre[:d, d:] = -means[:, None]
        back = 2.0 * np.eye(len(centre)) - centre
        H = centre @ H @ centre.T
        factor = np.ones(H.shape[:2])
        believed = np.maximum(H[:, at, at], 1e-9)
        factor[:, at] = np.minimum(1.0, drawn * np.sqrt(slope / believed))
        return back @ (H * factor[:, :, None] * factor[:, None, :]) @ back.T, spread

    def _measured(self, state: State, H: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Precision (K, D, D), and its product with the mean (K, D), of the likelihood of θ."""
        q, g = np.array(state.queries), np.array(state.scores)
        noise = (self.noise(1) * np.array(state.units)) ** 2
        moved = self.n * (q - q[-1]) @ H.mean(axis=0)
        variances = noise + np.mean((MODEL_ERROR * moved) ** 2, axis=1)
        weights = 1.0 / np.maximum(variances, 1e-300)
        weights = weights / weights.sum()
        variance = float(weights**2 @ variances)
        nH = self.n * H
        measured = weights @ g + nH @ (weights @ q)
        tiny = 1e-9 * self.n  # where there is no noise, and a direction without rows
        sampling = self._sampling(state) * nH
        W = np.linalg.inv(sampling + (variance + tiny) * np.eye(nH.shape[-1]))
        HW = nH @ W
        return HW @ nH, np.einsum("kij,kj->ki", HW, measured)

    def _sampled(self, P: np.ndarray, b: np.ndarray, prior: Prior, generator: Any) -> Draws:
        """Gibbs sampler of θ and the scales of its prior."""
        K, D = b.shape
        means, covariances, scales = [], [], []
        for sweep in range(SWEEPS):
            precision = prior.precision(D)
            root = _inverse_root(P + precision)
            mean = np.einsum("kji,kj->ki", root, np.einsum("kij,kj->ki", root, b))
            normals = generator.standard_normal((K, D))
            theta = mean + np.einsum("kji,kj->ki", root, normals)
            prior.draw(theta, precision, generator)
            if sweep >= BURN:
                means.append(mean)
                covariances.append(root.transpose(0, 2, 1) @ root)
                scales.append(np.sqrt(prior.tau2))
        return Draws(np.array(means), np.array(covariances), np.concatenate(scales))


class Draws(NamedTuple):
    """Normal laws of θ given the rest, of S sweeps and K chains, and draws of τ."""

    means: np.ndarray  # (S, K, D)
    covariances: np.ndarray  # (S, K, D, D)
    scales: np.ndarray  # (SK, blocks)

    def point(self, H: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """A point θ̂, and the covariance that the logits of rows have.

        A draw H that takes rows for hardly varying in a direction takes effects in it for large.
        The two go together: in logits effects count as H̄^{-½} H^{½} θ, whose logits vary over
        usual rows as much as those of θ over the rows of the draw. Laws with logits of a variance v
        count 1/(1 + πv/8) times in their covariance, and by the root of this in their mean: so
        much is left of the logit of a mean probability. θ̂ is that mean, so that predictions are
        those of θ̂; its own covariance has all draws alike.
        """
        D, usual = H.shape[-1], H.mean(axis=0)
        weight = _root(usual[None], -0.5) @ _root(H, 0.5)
        means = np.einsum("kij,skj->ski", weight, self.means)
        covariances = weight @ self.covariances @ weight.transpose(0, 2, 1)
        off = means - means.mean(axis=(0, 1))
        spread = np.einsum("ij,skij->sk", usual, covariances)
        spread += np.einsum("ski,ij,skj->sk", off, usual, off)
        share = 1.0 / (1.0 + spread * (D / np.trace(usual)) / USUAL_LOGITS)
        root = np.sqrt(share)
        mean = np.einsum("sk,ski->i", root, means) / root.sum()
        of_logits = np.einsum("sk,skij->ij", share, covariances) / share.sum()
        return mean, of_logits

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


def _root(H: np.ndarray, power: float) -> np.ndarray:
    """Symmetric powers of positive matrices (K, D, D)."""
    values, axes = np.linalg.eigh(H)
    return (axes * np.maximum(values, 1e-12)[:, None, :] ** power) @ axes.transpose(0, 2, 1)


def _inverse_root(A: np.ndarray) -> np.ndarray:
    """Lower L with LᵀL = A^{-1}, of positive matrices (K, D, D) that rounding may have made less.

    Coordinates are scaled before, because spreads of columns differ by orders.
    """
    s = 1.0 / np.sqrt(np.maximum(np.diagonal(A, axis1=1, axis2=2), 1e-300))
    scaled = A * s[:, :, None] * s[:, None, :]
    scaled = (scaled + scaled.transpose(0, 2, 1)) / 2.0
    least = np.linalg.eigvalsh(scaled)[:, 0]
    scaled[:, np.arange(A.shape[1]), np.arange(A.shape[1])] += np.maximum(1e-9 - least, 0.0)[
        :, None
    ]
    return np.linalg.inv(np.linalg.cholesky(scaled)) * s[:, None, :]


_FACTORS = np.exp(np.linspace(math.log(0.05), math.log(5.0), 80))


def drawn_factors(
    of_gram: np.ndarray, of_slope: np.ndarray, s: float, t: float, generator: Any
) -> np.ndarray:
    """Draw f (K, D) where slopes are f_i f_j times those of usual columns.

    f² is far below 1 where the rows that make a column vary are those of which the outcome is
    sure. Its logarithm has Laplace's law.
    """
    error = 2.0 * (t**2 + _FACTORS**4 * s**2)
    off = of_slope[:, None] - _FACTORS**2 * np.maximum(of_gram, 2.0 * s)[:, None]
    log_p = -(off**2) / (2.0 * error) - np.log(error) / 2.0 - np.abs(np.log(_FACTORS)) / FACTOR
    noise = generator.gumbel(size=(CHAINS, *log_p.shape))
    return _FACTORS[(log_p + noise).argmax(axis=-1)]


USUAL_MISS, MISSES = 0.05, 0.7  # X of real tables: 0.02 to 0.11 (benchmarks/real_tables.py)
_MISSES = np.exp(np.linspace(math.log(0.005), math.log(1.0), 80))


def drawn_misses(found: float, error: float, generator: Any) -> np.ndarray:
    """Draw x² (K, 1, 1), of which one has been found with an error."""
    log_p = -((found - _MISSES**2) ** 2) / (2.0 * max(error, 1e-6) ** 2)
    log_p -= (np.log(_MISSES / USUAL_MISS) / MISSES) ** 2 / 2.0
    noise = generator.gumbel(size=(CHAINS, len(log_p)))
    return _MISSES[(log_p + noise).argmax(axis=-1)][:, None, None] ** 2
