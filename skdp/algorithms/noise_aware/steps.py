"""The way of a run of `skdp.algorithms.noise_aware.glm`: where each score is asked for.

θ_t is the mean of the posterior given the scores so far and one likely slope: the mean of draws of
G, times the mean slope of the logits of usual rows, times what is learned on the way column by
column. Several outputs are looked at along orthonormal contrasts of them, in which the mean slope
is diagonal: each is then a problem of one output.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from skdp.algorithms.gaussian_posterior import GaussianPosterior
from skdp.algorithms.noise_aware import matrices
from skdp.algorithms.noise_aware.columns import Columns
from skdp.algorithms.noise_aware.draws import FACTORS
from skdp.algorithms.noise_aware.families import (
    FASTEST,
    USUAL_CUT,
    USUAL_SQUARE,
    WIDEST,
    Usual,
    inside,
    mean_square,
    told_scale,
)
from skdp.algorithms.noise_aware.posterior import Posterior
from skdp.algorithms.noise_aware.prior import INTERCEPT
from skdp.algorithms.parts.gaussian_runs import release_plan_of, rows_told
from skdp.engine.linear_sums import MAGNITUDES, unpacked
from skdp.relations import check_relation

if TYPE_CHECKING:
    from skdp.algorithms.noise_aware.glm import GLMConfig

WALK = 0.3  # prior deviation of effects, while the run is on its way
FARTHEST = 2.0  # deviations of the logits that a step goes at most
LOUD = 3.0  # standard deviations of noise beyond which there are records in a count
_NORMALS = np.random.default_rng(0).standard_normal((400, 100))


class State(NamedTuple):
    """All of it is a function of what has been released."""

    theta: np.ndarray  # (K, D)
    offset: tuple[float, float] = (0.0, 0.0)  # mean and variance of what is added to logits
    gram: np.ndarray | None = None
    drawn: tuple[np.ndarray, np.ndarray] | None = None  # axes and eigenvalues of draws of G
    likely: np.ndarray | None = None  # their mean
    queries: tuple[np.ndarray, ...] = ()
    scores: tuple[np.ndarray, ...] = ()
    units: tuple[float, ...] = ()  # by which what was released was multiplied to be a score
    cut: float = WIDEST  # c
    squares: tuple[tuple[float, float], ...] = ()  # means of ψ², and c
    scales: tuple[float, ...] = ()  # of residuals
    slopes: np.ndarray | None = None  # of each contrast, (k, D, D)
    scatter: np.ndarray | None = None  # Σ s sᵀ/n


class Along(NamedTuple):
    """What a state says along one contrast of outputs."""

    theta: np.ndarray  # (D,)
    queries: np.ndarray  # (T, D)
    scores: np.ndarray  # (T, D)
    mean_slope: float  # of scores, over Σ w z zᵀ
    sampling: float  # κ: variance of the scores over their slope
    slope: np.ndarray | None = None  # as released, (D, D)


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
        return State(np.zeros((self.config.n_outputs, self.config.n_columns)))

    def query(self, state: State) -> np.ndarray:
        """θ_t, (K, D), and beside it c, or at last the contrasts, where the family has these."""
        theta = state.theta - self.config.unit_of(state.offset)
        if state.gram is None:
            return theta
        if self.config.family.extra:
            return np.append(theta, [[state.cut]], axis=1)
        if self.config.n_outputs > 1 and len(state.scores) == self.config.n_steps:
            return np.hstack([theta, self.usual(state).basis])
        return theta

    def noise(self, kind: str) -> float:
        """Standard deviation of the noise of a kind of release."""
        step = self.config.kinds.index(kind)
        return self.plan.step(self.config.asked_at[step], step)[1].scale

    def update(self, state: State, noisy: np.ndarray, step: int) -> State:
        """Take in one release."""
        D, kind = self.config.n_columns, self.config.kinds[step]
        if kind == "offset":
            return state._replace(offset=mean_logarithm(noisy, self.noise(kind)))
        if kind == "gram":
            self._count(float(noisy[-1]))
            gram = unpacked(noisy, D) / self.n
            sd = self.noise("gram") / math.sqrt(2.0) / self.n
            drawn = matrices.draws(gram, sd, self.config.n_chains, self.generator)
            return state._replace(gram=gram, drawn=drawn, likely=matrices.mean(*drawn))
        if kind == "slope":
            slopes = np.array([unpacked(own, D) for own in noisy.reshape(self.config.n_told, -1)])
            slopes /= self.n
            if self.config.family.extra:
                slopes /= inside(state.scales[-1] / state.cut)
            return state._replace(slopes=slopes)
        if kind == "scatter":
            size = D + self.config.family.extra
            return state._replace(scatter=unpacked(noisy, size)[:D, :D] / self.n)
        state, cut = self._scored(state, noisy)
        if len(state.scores) == self.config.n_steps:  # the slope is released where the last was
            return state
        return state._replace(theta=self._next(state), cut=cut)

    def _count(self, found: float) -> None:
        """Take in the number of rows, the intercept's second moment, where it is not public."""
        config = self.config
        if config.alike and config.fit_intercept:
            self.n_found = found, self.noise("gram")
            is_public = check_relation(config.neighboring_relation).n_is_public
            if not is_public or self.weighted or config.of_rows > 1.0:
                self.n = float(rows_told(*self.n_found))

    def _scored(self, state: State, noisy: np.ndarray) -> tuple[State, float]:
        """Take in a score, and say what c comes next."""
        shape, unit, scales, cut = state.theta.shape, 1.0, state.scales, state.cut
        if self.config.family.extra:
            noisy, last = noisy.ravel()[:-1], noisy.ravel()[-1]
            square = last / (self.config.clip_norm / 2.0 * self.n) + USUAL_SQUARE
            state = state._replace(squares=(*state.squares, (square, cut)))
            scale, _ = self.scale(state, (len(state.squares) + 1) // 2)
            unit, scales = cut / inside(scale / cut), (*scales, scale)
            slow, fast = FASTEST
            cut = min(cut * min(max(USUAL_CUT * scale / cut, slow), fast), WIDEST)
        return state._replace(
            queries=(*state.queries, state.theta),
            scores=(*state.scores, unit * noisy.reshape(shape)),
            units=(*state.units, unit),
            scales=scales,
        ), cut

    def scale(self, state: State, use: int) -> tuple[float, float]:
        """Scale of residuals, and the variance of its logarithm, by ψ² of the last steps."""
        squares, cuts = np.array(state.squares[-use:]).T
        error = self.noise("score") / (self.config.clip_norm / 2.0 * self.n)
        return told_scale(squares, cuts, math.hypot(error, 0.5 / math.sqrt(self.n)))

    def usual(self, state: State) -> Usual:
        """Mean slopes of the scores of normal rows, of the usual norm, at θ."""
        assert state.likely is not None
        family, d = self.config.family, self.config.n_features
        theta = state.theta[:, :d]
        covariance = theta @ state.likely[:d, :d] @ theta.T + state.offset[1]
        centre = state.theta[:, d] if self.config.fit_intercept else np.array(state.offset[0])
        if self.config.n_outputs == 1:
            x = np.linspace(-4.0, 4.0, 41)
            logits = centre + np.sqrt(np.maximum(covariance, 0.0)) * x[:, None]
            p = np.exp(-(x**2) / 2)
        else:
            values, axes = np.linalg.eigh(covariance)
            root = axes * np.sqrt(np.maximum(values, 0.0))
            logits = centre + _NORMALS[:, : len(theta)] @ root.T
            p = np.ones(len(logits))
        norms = np.full(len(logits), math.sqrt(self.config.n_columns))
        w = self.config.cut.weights(norms, family.largest(logits))
        return family.usual(logits, p / p.sum(), w)

    def along(self, state: State, usual: Usual) -> list[Along]:
        """What the state says along each contrast."""
        queries, scores = np.array(state.queries), np.array(state.scores)
        found = []
        for k, u in enumerate(usual.basis.T):
            slope, sampling = float(usual.slopes[k]), float(usual.variances[k] / usual.slopes[k])
            if self.config.family.extra:
                square = mean_square(np.array(state.scales[-1] / state.cut))
                sampling *= float(square) * state.units[-1] ** 2
            sampling *= self.config.of_person**2  # as if the rows of a person were alike
            told = None if state.slopes is None else state.slopes[k]
            found.append(Along(u @ state.theta, u @ queries, u @ scores, slope, sampling, told))
        return found

    def _next(self, state: State) -> np.ndarray:
        """Where the next score is asked for."""
        usual = self.usual(state)
        return usual.basis @ np.array([self._moved(state, a) for a in self.along(state, usual)])

    def _moved(self, state: State, own: Along) -> np.ndarray:
        """Mean given the later half of the scores and one likely slope, no farther than a step."""
        assert state.likely is not None
        G, theta, use = state.likely, own.theta, max(1, (len(own.queries) + 1) // 2)
        variances = (self.noise("score") * np.array(state.units[-use:])) ** 2
        weights = 1.0 / variances / np.sum(1.0 / variances)
        q, g = (weights @ a[-use:] for a in (own.queries, own.scores))
        H = self.n * own.mean_slope * G
        if self.config.family.bends:
            factor = self.on_the_way(state.units, own, H)
            H = H * factor[:, None] * factor
        W = np.linalg.inv(own.sampling * H + np.eye(len(H)) / np.sum(1.0 / variances))
        precision = 2.0 / (WALK**2 + theta**2)
        precision[self.config.n_features :] = INTERCEPT**-2
        new = np.linalg.solve(H @ W @ H + np.diag(precision), H @ W @ (g + H @ q))
        step = new - theta
        length = math.sqrt(max(float(step @ G @ step), 0.0))
        return theta + step * min(1.0, FARTHEST / max(length, 1e-9))

    def on_the_way(self, units: tuple[float, ...], own: Along, H: np.ndarray) -> np.ndarray:
        """Factors of the slopes of columns (D,), as scores have told on the way of the queries.

        Change of each score over that which H foretells, by least squares, about 1 ± ½.
        """
        q, g = own.queries, own.scores
        foretold, seen = -(q - q[0]) @ H, g - g[0]
        noise = 2.0 * (self.noise("score") * max(units)) ** 2 / 0.5**2
        found = (np.sum(foretold * seen, axis=0) + noise) / (np.sum(foretold**2, axis=0) + noise)
        return np.sqrt(np.clip(found, FACTORS[0] ** 2, FACTORS[-1] ** 2))

    def posterior(self, state: State) -> GaussianPosterior:
        """Mean and covariance of θ on the standardised columns."""
        return Posterior(self, state).found()


def mean_logarithm(counts: np.ndarray, noise: float) -> tuple[float, float]:
    """Mean and variance of ln e from noisy counts of e by binary exponent, as if uniform in each.

    Both are 0 where all counts are dominated by noise.
    """
    sure = np.where(counts > LOUD * noise, counts, 0.0)
    if not sure.any():
        return 0.0, 0.0
    weights, logs = sure / sure.sum(), math.log(2.0) * (np.array(MAGNITUDES) - 0.5)
    mean = float(weights @ logs)
    return mean, float(weights @ (logs - mean) ** 2) + math.log(2.0) ** 2 / 12.0
