"""From releases to posteriors, for one logit: pure functions of what has been released.

Everything is in units in which rows have norm ≤ 1: θ times R, scores over R. See
`skdp.algorithms.noise_aware_glm` for what is released, and docs/derivations.md for the equations.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from skdp.algorithms.gaussian_posterior import GaussianPosterior
from skdp.algorithms.parts.binned_rows import BinnedRows
from skdp.algorithms.parts.gaussian_runs import far_below, release_plan_of, rows_told
from skdp.algorithms.parts.logit_posterior import Given, NoiseAwareState, pooled, scales_by_evidence
from skdp.algorithms.parts.logit_rows import (
    LogitRows,
    NormalRows,
    PointRows,
    transposed,
    without_noise,
)
from skdp.algorithms.parts.noisy_moments import believed, floored
from skdp.engine.linear_sums import unpacked
from skdp.engine.magnitude_sums import mean_logarithm
from skdp.fitting.streams import SecureStream
from skdp.models.bounded_scores import Score

if TYPE_CHECKING:
    from skdp.algorithms.noise_aware_glm import NoiseAwareConfig

GRAM, TRACE = "gram", "trace"
MAX_LOGIT = 1e4  # of a row at the norm bound, where a gradient is asked for

# Constants, the same for every data set, ε, n and d; benchmarks/noise_aware_defaults.py of 0.2.0
# has the study behind them.
BARELY_TOLD = 0.04  # edge of the spectrum of the noise in Ã over n, beyond which bins are not known
# Relative uncertainty of eigenvalues of the second moments below the noise level; more for counts,
# whose slope is not bounded.
DOUBT, DOUBT_COUNTS = 0.1, 0.4
MODEL_ERRORS = np.array([0.3, 0.6, 1.2, 2.4, 4.8])  # of a difference of F over it, to choose from
CHANCE = 2.0  # standard deviations of the scatter of gradients that are no contradiction
LOUD_STEP = 4.0  # expected change of a gradient, squared, over its noise, that tells of the slope
DECAY, USUAL_FACTOR, TOLD = 0.7, 10.0, 1.4  # of older steps; evidence for 1; error that is usual
MOST_FACTOR = 10.0  # between the slopes of all rows and those of normal ones
SURPRISE = 10.0  # standard deviations of noise beyond which a gradient contradicts the slope
OVERSHOT, UNDERSHOT = 3.0, 0.9  # by which the slope is missed, over it, to be learned
OVERSHOT_COUNTS, DAMPED = 1.0, 0.95  # that of classes is bounded, that of counts grows with them
STEPS_BETWEEN, STEPS_AT_LAST = 3, 3  # of Newton's method, and rounds of them with τ
FIRST_AT_ZERO, LOUD_AT_ZERO = (1, 4, 6), 0.1  # gradients at 0: with Ã, its trace, trace and noise
SCATTER_ERROR = 1.0  # of the scores' scatter over that of the model, before it is released
N_CHAINS = 64
MANY_PARAMETERS = 40  # beyond which fewer draws of the second moments are made
MOST_CHAINED = 200  # parameters beyond which no chains run
MOST_INTEGRATED = 300  # beyond which the second moments are taken to be known
BELIEF_ENTRIES, LEAST_BELIEFS = 2400, 8  # parameters times draws of the second moments, and draws


class NoiseAwareLogit:
    """What is asked for, and what is taken in.

    With ``weighted`` rows have weights: there are as many rows as these come to, by a noisy sum
    where the intercept tells one.
    """

    def __init__(self, config: NoiseAwareConfig, weighted: bool = False) -> None:
        self.config, self.weighted = config, weighted
        self.R = config.row_bound
        self.size = math.prod(config.shape)
        bound = config.weight_bound * config.of_person * config.clip_norm
        self.noise_variance = (config.noise_multiplier * bound / self.R) ** 2  # ν²
        self.plan = release_plan_of(config)
        self.moments_scale = self.noise_scale("moments")  # in Ã, or in its trace
        self.prior = config.prior

    def noise_scale(self, kind: str) -> float:
        """Deviation of the noise of a release, in the units of rows of norm ≤ 1, squared."""
        step = self.config.releases.index(kind)
        return self.plan.step(self.config.shape, step)[1].scale / self.R**2

    def init(self) -> NoiseAwareState:
        """Start at the prior's mean."""
        return NoiseAwareState(np.zeros((1, self.size)), self.prior.start)

    def query(self, state: NoiseAwareState) -> np.ndarray:
        """θ_t, the posterior mean so far."""
        return self._in_units(state.mean, state)

    def _in_units(self, mean: np.ndarray, state: NoiseAwareState) -> np.ndarray:
        """θ in the units of the rows; the intercept takes up exposures in any unit."""
        theta = mean.reshape(self.config.shape) / self.R
        theta[:, -1] -= state.offset[0]
        return theta

    def short_rows(self, state: NoiseAwareState) -> float | None:
        """Root mean square norm of the features, where it is clearly far below their bound."""
        size = 1 if self.config.curvature == TRACE else self.config.shape[1]
        trace = float(np.trace(np.atleast_2d(state.moments)))
        noise = self.moments_scale * math.sqrt(size)
        return far_below(trace, noise, self.config, self.n_found(state))

    def with_moments(self, state: NoiseAwareState, released: np.ndarray) -> NoiseAwareState:
        """Take in the second moments, and with weights the number of rows that they tell."""
        moments = released / self.R**2
        if self.config.curvature == GRAM:
            moments = unpacked(moments, self.config.shape[1])
        state = state._replace(moments=moments)
        if self.weighted and (found := self.n_found(state)) is not None:
            self.config = replace(self.config, n_rows=rows_told(*found))
        return state

    def n_found(self, state: NoiseAwareState) -> tuple[float, float] | None:
        """Noisy number of records, by the intercept's second moment."""
        if not self.config.fit_intercept or self.config.curvature == TRACE:
            return None
        return float(state.moments[-1, -1]) * self.R**2, self.moments_scale * self.R**2

    def update(self, state: NoiseAwareState, noisy: np.ndarray, step: int) -> NoiseAwareState:
        """Take in one release."""
        config, kind = self.config, self.config.releases[step]
        if kind == "offset":
            return state._replace(offset=mean_logarithm(noisy, self.plan.noise_scale(0)))
        if kind == "moments":
            state = self.with_moments(state, noisy)
            return state._replace(rows=self.beliefs(state.moments, state.offset[1]))
        if kind == "gradient":
            return self._moved(state, noisy.ravel()[None] / self.R)
        matrix = unpacked(noisy / self.R**2, self.size)
        if kind == "scatter":
            return state._replace(scatter=matrix)
        before = replace(state.rows, n_rows=config.n_rows)
        rows = self.corrected(before, matrix, state.mean)
        return state._replace(slope=(matrix, state.mean, before), rows=rows)

    def _moved(self, state: NoiseAwareState, gradient: np.ndarray) -> NoiseAwareState:
        """Take in a gradient, and go to the mode and the likeliest τ given all of them."""
        state = state._replace(
            gradients=(*state.gradients, gradient), queries=(*state.queries, state.mean)
        )
        if len(state.gradients) < self.n_at_zero:
            return state
        if len(state.gradients) == self.n_at_zero:
            state = state._replace(rows=self._apart(state, state.rows))
        if state.slope is None:
            state = state._replace(rows=self.learned(state))
        given = self.given(state, state.rows)
        found = given.laplace(state.mean, self.prior.precision(state.scales), STEPS_BETWEEN)
        scales = self._likeliest(found.mode, found.information)
        # The logits of huge parameters would lose all digits to rounding, which may differ with the
        # position of a row.
        largest = max(1.0, float(np.linalg.norm(found.mode)) / MAX_LOGIT)
        return state._replace(mean=found.mode / largest, scales=scales)

    def _likeliest(self, mode: np.ndarray, information: np.ndarray) -> np.ndarray:
        return self.prior.likeliest(mode[0], np.diag(np.linalg.inv(information[0])))

    def beliefs(
        self, moments: np.ndarray, offset: float = 0.0, generator: np.random.Generator | None = None
    ) -> LogitRows:
        """Mean and covariance of the rows: the likeliest, or a draw from what Ã leaves possible."""
        config, n = self.config, self.config.n_rows
        D, d = config.shape[1], config.n_features
        if self.knows_bins:
            tables = tuple(table / self.R for table in config.tables)
            one, scale = config.fit_intercept / self.R, self.moments_scale / n
            points = BinnedRows(moments / n, scale, tables, one, config.pairs).points(generator)
            square = float(np.sum(points**2)) / len(points)
            return PointRows(n, self._score(square), offset, points=points[None])
        normal = generator.standard_normal if generator else np.zeros
        mean, covariance = np.zeros(D), np.zeros((D, D))
        if config.fit_intercept:
            mean[d] = 1.0 / self.R
        scale = self.moments_scale / n
        largest = (1.0 - mean[d:].sum() ** 2) / d  # of the mean eigenvalue
        smallest = 0.02 * largest
        if config.curvature == TRACE:
            average = (float(moments[0]) / n - mean @ mean + scale * float(normal(()))) / d
            covariance[:d, :d] = np.clip(average, smallest, largest) * np.eye(d)
            return self._rows(mean, covariance, offset)

        second_moments = moments / n
        moved = np.zeros(d)
        if config.fit_intercept:
            found, spread = second_moments[d, :d] * self.R, scale * self.R / math.sqrt(2.0)
            kept = max(0.0, 1.0 - d * spread**2 / max(float(found @ found), 1e-300))
            mean[:d] = kept * found
            moved = math.sqrt(kept) * spread * normal(d)
        centred = second_moments[:d, :d] - np.outer(mean[:d], mean[:d])
        average = float(np.trace(centred)) / d + scale / math.sqrt(d) * float(normal(()))
        average = float(np.clip(average, smallest, largest))
        doubt = DOUBT_COUNTS if self.of_counts else DOUBT
        block = believed(centred, average, scale, generator, doubt)
        covariance[:d, :d] = floored(block, max(1e-3 * average, smallest / d))
        mean[:d] += moved
        return self._rows(mean, covariance, offset)

    def _rows(self, mean: np.ndarray, covariance: np.ndarray, offset: float) -> NormalRows:
        score = self._score(float(np.trace(covariance) + mean @ mean))
        moments = {"mean": mean[None], "covariance": covariance[None]}
        return NormalRows(self.config.n_rows, score, offset, **moments)

    def _score(self, square: float) -> Score:
        bound = self.config.clip_norm / self.R / math.sqrt(min(1.0, square))
        return self.config.likelihood.score(bound)

    @property
    def of_counts(self) -> bool:
        """Whether targets are counts, and no classes."""
        return self.config.likelihood.largest_target < math.inf

    @property
    def knows_bins(self) -> bool:
        """Whether second moments tell enough of rows of bins for points.

        Rows that are believed to be normal are believed to vary in all directions, and steps are
        short where little is known; points that are wrong make them long.
        """
        if not self.config.tables or self.config.curvature != GRAM:
            return False
        edge = self.moments_scale * math.sqrt(2.0 * self.size)
        return edge <= BARELY_TOLD * self.config.n_rows

    @property
    def n_at_zero(self) -> int:
        """Number of gradients that are asked for at 0: more where little else is known of rows.

        The noise of one is compared with n/2, the longest sum of scores that there can be.
        """
        if self.config.curvature == GRAM:
            return FIRST_AT_ZERO[0]
        noise = 2.0 * math.sqrt(self.noise_variance * self.size) / self.config.n_rows
        most = max(1, self.config.n_steps // 3)
        return min(FIRST_AT_ZERO[1 + (noise >= LOUD_AT_ZERO)], most)

    def _apart(self, state: NoiseAwareState, rows: LogitRows) -> LogitRows:
        """Beliefs whose rows scatter along the mean score at 0 as much as that takes.

        Var(y) ≤ 1/4, so that rows vary along a direction by 4 Cov(y, x)² at least. The mean score
        is w Cov(y, x) and, where one class is rarer, a share of the mean of the rows, which the
        intercept's score tells and which is no scatter.
        """
        if self.of_counts or not isinstance(rows, NormalRows):
            return rows  # counts are no classes, and bins tell more than their means
        config, d, first = self.config, self.config.n_features, state.gradients[: self.n_at_zero]
        score, mean = np.mean(first, axis=0)[0], rows.mean[:, :d]
        rarer = score[d] * self.R if config.fit_intercept else 0.0
        found = score[:d] - rarer * mean
        square = np.maximum(np.sum(found**2, axis=1), 1e-300)
        noise = self.noise_variance / len(first) * (d + np.sum((self.R * mean) ** 2, axis=1))
        noise *= 1.0 + CHANCE * math.sqrt(2.0 / d)
        length = np.maximum(0.0, 1.0 - noise / square) * np.sqrt(square)
        if config.curvature == TRACE:  # nothing is known of the mean but how long it is at most
            longest = float(np.trace(rows.covariance[0])) ** 0.5
            length = np.maximum(0.0, length - abs(rarer) * longest)
        weight = 4.0 * float(rows.score.slope(np.zeros((1, 1)))[0, 0, 0])
        half = 2.0 * length / (config.n_rows * weight)
        u, covariance = found / np.sqrt(square)[:, None], rows.covariance.copy()
        block = covariance[:, :d, :d]
        lacking = np.maximum(half**2 - np.einsum("bi,bij,bj->b", u, block, u), 0.0)
        block += lacking[:, None, None] * u[:, :, None] * u[:, None, :]
        return replace(rows, covariance=covariance)

    def learned(self, state: NoiseAwareState) -> LogitRows:
        """Beliefs whose slope is the one that the gradients show, as far as that is not noise.

        Two gradients differ by the slope times the step between them. Steps that are loud enough
        tell by which factor all slopes differ from those believed; the last step tells how they
        differ along it, by a damped update of Broyden, Fletcher, Goldfarb and Shanno.
        """
        rows = state.rows
        assert rows is not None
        if len(state.gradients) < 2:
            return rows
        usual = replace(rows, n_rows=self.config.n_rows)
        expected = np.diff(usual.expected(np.concatenate(state.queries)), axis=0)
        found = -np.diff(np.concatenate(state.gradients), axis=0)
        noise, squares = 2.0 * self.noise_variance, np.sum(expected**2, axis=1)
        # A step that noise has made says more than there is of that very noise.
        weights = DECAY ** np.arange(len(squares))[::-1] / noise
        weights = weights * (squares > LOUD_STEP * noise * self.size)
        shown = USUAL_FACTOR + float(weights @ np.sum(expected * found, axis=1))
        factor = shown / (USUAL_FACTOR + float(weights @ squares))
        factor = max(1.0, factor / TOLD) if factor > 1.0 else min(1.0, factor * TOLD)
        factor = min(max(factor, 1.0 / MOST_FACTOR), MOST_FACTOR)
        return self._bent(state, replace(rows, n_rows=self.config.n_rows * factor))

    def _bent(self, state: NoiseAwareState, rows: LogitRows) -> LogitRows:
        """Beliefs with another slope along the last step, where that contradicts them."""
        before, here = state.queries[-2:]
        step = (here - before)[0]
        expected = (rows.expected(here) - rows.expected(before))[0]
        missed = (state.gradients[-2] - state.gradients[-1])[0] - expected
        squares, noise = float(missed @ missed), 2.0 * self.noise_variance
        excess = squares - noise * self.size
        believed_rise = float(expected @ step)
        if excess <= SURPRISE * noise * math.sqrt(2.0 * self.size) or believed_rise <= 0.0:
            return rows
        missed = excess / squares * missed
        rise = float(missed @ step)
        most = OVERSHOT_COUNTS if self.of_counts else OVERSHOT
        if -UNDERSHOT * believed_rise <= rise <= most * believed_rise:
            return rows
        # A slope that is no longer positive is not learned at once.
        missed = missed * min(1.0, DAMPED * believed_rise / max(-rise, 1e-300))
        shown = expected + missed
        update = np.outer(shown, shown) / float(shown @ step)
        update -= np.outer(expected, expected) / believed_rise
        middle = (before + here) / 2.0
        return rows.with_slope(middle, rows.slope(middle) + update)

    def corrected(self, rows: LogitRows, slope: np.ndarray, where: np.ndarray) -> LogitRows:
        """Beliefs whose slope at one θ is the released one, as far as that is not noise."""
        where = np.broadcast_to(where, (len(rows), self.size))
        found = without_noise(rows.slope(where), slope, self.noise_scale("slope"))
        return rows.with_slope(where, found)

    def given(self, state: NoiseAwareState, rows: LogitRows) -> Given:
        """What all gradients say, moved to where the run stands by the likeliest beliefs.

        Their mean weighs each by the noise and the error of the model, which grows with the way: by
        the one of several such errors that makes their scatter likeliest. What scatter is left
        beyond chance widens the variance of the mean.
        """
        here = state.rows.expected(state.mean)
        moves = state.rows.expected(np.concatenate(state.queries)) - here
        terms, far = np.concatenate(state.gradients) + moves, np.mean(moves**2, axis=1)
        variances = self.noise_variance + np.multiply.outer(MODEL_ERRORS**2, far)
        total = np.sum(1.0 / variances, axis=1)
        means = 1.0 / variances @ terms / total[:, None]
        squares = np.mean((terms - means[:, None]) ** 2, axis=2) / variances
        best = int(np.argmin(np.sum(squares + np.log(variances), axis=1) + np.log(total)))
        freedom = max(len(terms) - 1, 1)
        chance = CHANCE * math.sqrt(2.0 / (self.size * freedom))
        excess = max(1.0, float(squares[best].sum()) / freedom - chance)
        missed = 1e-4 * self.config.n_rows / self.size  # a little, for what the model misses
        statistic = means[best] + rows.expected(state.mean)
        return Given(rows, statistic, excess / float(total[best]) + missed)

    def posterior(self, state: NoiseAwareState, stream: SecureStream) -> GaussianPosterior:
        """Posterior given all releases, in the units of the rows as they are."""
        point = self._robust(self.given(state, state.rows), state)
        theta, scales = state.mean, state.scales
        for _ in range(STEPS_AT_LAST):
            found = point.laplace(theta, self.prior.precision(scales), STEPS_BETWEEN)
            theta, scales = found.mode, self._likeliest(found.mode, found.information)
        few, size = self.size <= MANY_PARAMETERS, 1
        if self.size <= MOST_INTEGRATED:
            size = N_CHAINS if few else max(LEAST_BELIEFS, BELIEF_ENTRIES // self.size)
        drawn = scales_by_evidence(point, self.prior, theta, scales, size, stream)
        rows = state.rows if size == 1 else self._drawn_beliefs(state, size, stream)
        given = self._robust(self.given(state, rows), state)
        start = np.repeat(theta, size, axis=0)
        q = pooled(given, self.prior, start, drawn, stream, chains=self.size <= MOST_CHAINED)
        config, R = self.config, self.R
        covariance = (q.covariance + q.covariance.T) / (2.0 * R**2)
        tau = self.prior.summary(q.scales, config.n_features) / R
        return GaussianPosterior(self._in_units(q.mean, state), covariance, prior_scales=tau)

    def _drawn_beliefs(self, state: NoiseAwareState, size: int, stream: SecureStream) -> LogitRows:
        """Beliefs from what Ã leaves possible, each with what is known of its slopes."""
        parts = [self.beliefs(state.moments, generator=stream.generator) for _ in range(size)]
        # A transform that took the likeliest beliefs to a slope takes others elsewhere.
        rows = state.rows if state.slope is None else state.slope[2].as_believed
        rows = self._apart(state, rows.of(parts))
        return rows if state.slope is None else self.corrected(rows, *state.slope[:2])

    def _robust(self, given: Given, state: NoiseAwareState) -> Given:
        """Take the scatter of the scores from what was released of it, where it was."""
        config = self.config
        if state.scatter is None:
            return given
        model = given.rows.variance(np.broadcast_to(state.mean, given.statistic.shape))
        scale = self.noise_scale("scatter")
        # k̄ rows of a person scatter up to k̄ times as much as the model says of so many.
        error = SCATTER_ERROR if config.persons is None else config.persons.rows_per_group
        error *= max(1.0, config.weight_bound)  # Σ w² is up to so many times Σ w
        found = without_noise(model, state.scatter, scale, error)
        values, vectors = np.linalg.eigh(found)
        found = (vectors * np.maximum(values, 0.0)[:, None]) @ transposed(vectors)
        return replace(given, scatter=found)
