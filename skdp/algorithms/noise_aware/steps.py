"""The way of a run of `skdp.algorithms.noise_aware.glm`: where each score is asked for.

θ_t is the posterior's mean given the scores so far and one likely slope. Effects have Student's
tails of the likeliest scale, which starts small: a run of which the noise hides the effects stays
where slopes are steep. Several outputs are looked at along orthonormal contrasts, in which the mean
slope is diagonal; slopes along θ are not, and contrasts take steps together, unless they are many.
In full: docs/method.md §4.2, §4.8.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from skdp.algorithms.gaussian_posterior import GaussianPosterior
from skdp.algorithms.noise_aware import draws, matrices, numbers
from skdp.algorithms.noise_aware.columns import Columns
from skdp.algorithms.noise_aware.counts import Counts
from skdp.algorithms.noise_aware.draws import MODEL_ERROR, Along
from skdp.algorithms.noise_aware.families import Usual
from skdp.algorithms.noise_aware.posterior import Posterior
from skdp.algorithms.noise_aware.prior import DEGREES, INTERCEPT
from skdp.algorithms.parts.binned_rows import BinnedRows
from skdp.algorithms.parts.gaussian_runs import release_plan_of, rows_told
from skdp.engine.linear_sums import unpacked
from skdp.engine.magnitude_sums import mean_logarithm, told_of_counts, unit_of
from skdp.relations import check_relation

if TYPE_CHECKING:
    from skdp.algorithms.noise_aware.glm import GLMConfig

WALK = 0.3  # deviation of the logits of usual rows that is expected on the way
ROUNDS, PRIOR = 3, 2.0  # of the scales of effects on the way, and columns that their prior is worth
LEAST_SLOPE = 0.01  # of logits, on the way
SLOWEST = 0.25  # part of a step that is taken, where the last ones went too far
FARTHEST = 2.0  # deviations of the logits that a step goes at most
MANY, TOGETHER = 100, 1000  # contrasts, and parameters, beyond which contrasts go by themselves
POINTS = 400  # that stand in for the logits of normal rows, of several classes


class State(NamedTuple):
    """All of it is a function of what has been released."""

    theta: np.ndarray  # (K, D)
    unit: float = 1.0  # of targets
    unit_found: bool = True
    offset: tuple[float, float] = (0.0, 0.0)  # mean and variance of what is added to logits
    gram: Any = None  # (D, D)
    drawn: Any = None  # axes and eigenvalues of draws of G
    likely: Any = None  # their mean, (D, D)
    queries: tuple[np.ndarray, ...] = ()
    usuals: tuple[Usual, ...] = ()  # at these
    scores: tuple[np.ndarray, ...] = ()
    units: tuple[float, ...] = ()  # by which what was released was multiplied to be a score
    cut: float = numbers.WIDEST  # c
    hidden: float = 0.0  # variance, of each entry of a score, of what it hides
    squares: tuple[tuple[float, float], ...] = ()  # means of ψ², and c
    scales: tuple[float, ...] = ()  # of residuals
    slopes: np.ndarray | None = None  # of each contrast, (k, D, D)
    scatter: np.ndarray | None = None  # Σ s sᵀ/n
    walk: Any = None  # precisions of effects on the way, (d,)
    tau2: float = 0.0  # that they share
    step: np.ndarray | float = 0.0  # the last one, (K, D)
    part: float = 1.0  # of it that was taken


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
        cut = self.config.residual_clip or self.config.family.widest
        return State(np.zeros((self.config.n_outputs, self.config.n_columns)), cut=cut)

    def query(self, state: State) -> np.ndarray:
        """θ_t, (K, D), and beside it c, or at last the contrasts, where the family has these."""
        theta = state.unit * (state.theta - self.config.unit_of(state.offset))
        if state.gram is None:
            return theta
        if self.config.family.widest:
            return np.append(theta, [[state.unit * state.cut]], axis=1)
        if self.config.n_outputs > 1 and len(state.scores) == self.config.n_steps:
            return np.hstack([theta, state.usuals[-1].basis])
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
        if kind == "magnitude" and isinstance(self.config.family, Counts):
            return self._counted(state, noisy)
        if kind == "magnitude":
            found, given = unit_of(noisy, self.noise(kind)), self.config.residual_clip
            unit = found or 1.0
            cut = given / unit if given else numbers.WIDEST
            return state._replace(unit=unit, unit_found=found is not None, cut=cut)
        if kind == "gram":
            self._count(float(noisy[-1]))
            gram = unpacked(noisy, D) / self.n
            sd = self.noise("gram") / math.sqrt(2.0) / self.n
            drawn = self._drawn(gram, sd)
            return state._replace(gram=gram, drawn=drawn, likely=matrices.mean(*drawn))
        if kind == "slope":
            slopes = np.array([unpacked(own, D) for own in noisy.reshape(self.config.n_told, -1)])
            return state._replace(slopes=slopes * self.slope_unit(state) / self.n)
        if kind == "scatter":
            size = D + self.config.family.extra
            return state._replace(scatter=unpacked(noisy, size)[:D, :D] / self.n)
        state, cut = self._scored(state, noisy)
        if len(state.scores) == self.config.n_steps:  # the slope is released where the last was
            return state
        return self._next(state._replace(cut=cut))

    def family(self, state: State) -> Any:
        """What scores are of, as far as it is known."""
        family = self.config.family
        return replace(family, clip=state.cut) if isinstance(family, Counts) else family

    def slope_unit(self, state: State) -> float:
        """What released slopes are multiplied by to be those of scores."""
        family = self.family(state)
        if family.extra:
            return 1.0 / numbers.inside(state.scales[-1] / state.cut)
        return family.slopes[1] if isinstance(family, Counts) else 1.0

    def _counted(self, state: State, noisy: np.ndarray) -> State:
        """Cut scores of counts, and start, as their magnitudes tell."""
        config, noise = self.config, self.noise("magnitude")
        of_scores = self.noise("score") * math.sqrt(config.n_columns / config.n_steps)
        told = told_of_counts(noisy, noise, self.n, of_scores, config.likelihood.largest_count)
        if told is None:
            return state
        theta = np.where(np.arange(config.n_columns) < config.n_features, 0.0, math.log(told[0]))
        return state._replace(theta=theta[None], cut=told[1], hidden=told[2] / config.n_columns)

    def _drawn(self, gram: np.ndarray, sd: float) -> tuple[np.ndarray, np.ndarray]:
        """Draws of G: axes and eigenvalues."""
        K, model = self.config.n_chains, self.config.design.model
        if model is None:
            return matrices.draws(gram, sd, K, self.generator)
        one, scale = float(self.config.fit_intercept), math.sqrt(2.0) * sd
        rows = BinnedRows(gram, scale, model.tables, one, model.pairs_of_places)
        return rows.moments(self.generator, K)

    def _count(self, found: float) -> None:
        """Take in the number of rows, the intercept's second moment, where it is not public."""
        config = self.config
        if not config.design.standardised and config.fit_intercept:
            self.n_found = found, self.noise("gram")
            is_public = check_relation(config.neighboring_relation).n_is_public
            if not is_public or self.weighted or config.of_rows > 1.0:
                self.n = float(rows_told(*self.n_found))

    def _scored(self, state: State, noisy: np.ndarray) -> tuple[State, float]:
        """Take in a score, and say what c comes next."""
        shape, unit, scales, cut = state.theta.shape, 1.0, state.scales, state.cut
        if self.config.family.extra:
            noisy, last = noisy.ravel()[:-1], noisy.ravel()[-1]
            square = last / (self.config.clip_norm / 2.0 * self.n) + numbers.USUAL_SQUARE
            state = state._replace(squares=(*state.squares, (square, cut)))
            scale, _ = self.scale(state, (len(state.squares) + 1) // 2)
            unit, scales = cut / numbers.inside(scale / cut), (*scales, scale)
            slow, fast = numbers.FASTEST
            if not self.config.residual_clip:
                usual = numbers.USUAL_CUT * math.sqrt(max(1.0, self.config.wider))
                cut = min(cut * min(max(usual * scale / cut, slow), fast), numbers.WIDEST)
        return state._replace(
            queries=(*state.queries, state.theta),
            usuals=(*state.usuals, self.usual(state)),
            scores=(*state.scores, unit * noisy.reshape(shape)),
            units=(*state.units, unit),
            scales=scales,
        ), cut

    def scale(self, state: State, use: int) -> tuple[float, float]:
        """Scale of residuals, and the variance of its logarithm, by ψ² of the last steps."""
        squares, cuts = np.array(state.squares[-use:]).T
        noise = self.noise("score") / (self.config.clip_norm / 2.0 * self.n)
        sampling = 0.5 * self.config.of_person / math.sqrt(self.n)
        return numbers.told_scale(squares, cuts, math.hypot(noise, sampling), sampling)

    def usual(self, state: State) -> Usual:
        """Mean slopes of the scores of normal rows, of the usual norm, at θ."""
        family, d, theta = self.family(state), self.config.n_features, state.theta
        means, own = self._means(state), theta[:, :d]
        covariance = own @ (state.likely[:d, :d] - np.outer(means, means)) @ own.T + state.offset[1]
        centre = own @ means + (theta[:, d] if self.config.fit_intercept else state.offset[0])
        values, axes = np.linalg.eigh(covariance)
        size = np.sqrt(np.maximum(values, 0.0))
        q = max(1, int(np.sum(size >= 1e-6)))
        axes, size = axes[:, -q:], size[-q:]
        x, p = (grid := np.linspace(-4.0, 4.0, 41))[:, None], np.exp(-(grid**2) / 2.0)
        if self.config.n_outputs > 1:
            x, p = np.random.default_rng(0).standard_normal((POINTS, len(size))), np.ones(POINTS)
            x = np.linalg.qr(x - x.mean(axis=0))[0] * math.sqrt(POINTS)
        logits = centre + x @ (axes * size).T
        w = self.config.cut.weights(np.array(self.config.usual_norm), family.largest(logits))
        usual = family.usual(logits, p / p.sum(), w, x)
        return usual._replace(inverse=(axes / np.maximum(size, 1e-6)).T)

    def _means(self, state: State) -> np.ndarray:
        """Means of columns (d,): 0 of those that are standardised."""
        d, G = self.config.n_features, state.likely
        if self.config.design.standardised or not self.config.fit_intercept:
            return np.zeros(d)
        return G[:d, d] / math.sqrt(max(G[d, d], 1e-9))

    def standard(self, state: State) -> tuple[np.ndarray, np.ndarray]:
        """Effects (q, d) of the coordinates x of θz, and B = E z (x, 1)ᵀ of normal rows."""
        d, G = self.config.n_features, state.likely
        effects = state.usuals[-1].inverse @ state.theta[:, :d]
        B = np.zeros((len(G), len(effects) + 1))
        if self.config.fit_intercept:  # so that G - BBᵀ is positive, whatever the noise has left
            B[:, -1] = G[:, d] / math.sqrt(max(G[d, d], 1e-9))
        B[:d, :-1] = (G[:d, :d] - np.outer(B[:d, -1], B[:d, -1])) @ effects.T
        return effects, B

    def lean(self, state: State) -> tuple[np.ndarray, np.ndarray, float, float]:
        """Return u (D,), of which uz are standardised logits, cov(z, uz), and mean and variance.

        The latter of uz where rows count by their slopes: those of high rates for more.
        """
        (effects, B), M = self.standard(state), state.usuals[-1].moments([0])[0, 0]
        u = np.append(effects[0], -effects[0] @ self._means(state))[: len(B)]
        root = math.sqrt(max(float(u @ B[:, 0]), 1e-12))  # below 1 where exposures vary
        m = float(M[0, -1] / M[-1, -1]) * self.config.fit_intercept
        v = 1.0 + root**2 * (float(M[0, 0] / M[-1, -1]) - m**2 - 1.0)
        return u / root, B[:, 0] / root, root * m, max(v, LEAST_SLOPE)

    def tilted(self, state: State, shift: Any = 1.0, spread: Any = 1.0) -> np.ndarray:
        """T (..., D, D) where slopes are the mean slope times T G Tᵀ, of normal rows at θ.

        As if all rows were moved along cov(z, θz), so that their logits have the mean and variance
        of `lean`, times factors.
        """
        u, g, m, v = self.lean(state)
        one = np.eye(len(u))
        moved = np.multiply.outer(np.sqrt(spread * v) - 1.0, u)
        moved = moved + np.multiply.outer(shift * m, one[self.config.n_features :].sum(axis=0))
        return one + g[:, None] * moved[..., None, :]

    def along(self, state: State) -> list[Along]:
        """What the state says along each contrast.

        Normal rows have the expected score m(θ)Gθ, m the mean slope: a score at q is that of slopes
        at θ where effects are m(q)/m(θ) times those of q. Slopes that grow without a bound, as
        those of counts, are too different in the tails of rows for this to help.
        """
        at, usual, d = state.usuals, state.usuals[-1], self.config.n_features
        U = usual.basis
        weights = np.array([usual.weight / one.weight for one in at])
        least = LEAST_SLOPE * np.eye(U.shape[1])  # where outcomes are sure, nothing bends
        inverse = np.linalg.inv(U.T @ usual.matrix @ U + least)
        ratios = [inverse @ (U.T @ one.matrix @ U + least) for one in at]
        plain = np.array([U.T @ q for q in state.queries])
        bent = np.einsum("tkl,tlj->tkj", np.array(ratios), plain)
        if self.config.fit_intercept:
            own, means = U.T @ state.theta, self._means(state)
            off = np.array([U.T @ (one.value - usual.value) for one in at])
            off = (off + LEAST_SLOPE * (plain[:, :, d] - own[:, d])) @ inverse.T
            bent[:, :, d] = own[:, d] + off - (bent[:, :, :d] - own[:, :d]) @ means
        if not self.config.family.saturates:
            bent = plain
        scores = weights[:, None, None] * np.array([U.T @ g for g in state.scores])
        units, found = weights * np.array(state.units), []
        for k in range(U.shape[1]):
            slope, sampling = float(usual.slopes[k]), float(usual.variances[k] / usual.slopes[k])
            if self.config.family.extra:
                square = numbers.mean_square(np.array(state.scales[-1] / state.cut))
                sampling *= float(square) * state.units[-1] ** 2
            sampling *= self.config.of_person**2  # as if the rows of a person were alike
            own = plain[:, k], bent[:, k], scores[:, k], units, slope, sampling
            told = None if state.slopes is None else state.slopes[k]
            found.append(Along(*own, told, state.hidden))
        return found

    def _next(self, state: State) -> State:
        """Go where the mean is, given the scores and one likely slope, no farther than a step.

        Scales of effects are the likeliest (expectation-maximisation), the same for all contrasts.
        """
        usual, G, d = state.usuals[-1], state.likely, self.config.n_features
        unit = (WALK * (state.scales[-1] if state.scales else 1.0) / self.config.design.usual) ** 2
        each, groups = self.along(state), self.groups(state)
        told = [self.told(state, draws.stacked([each[k] for k in at]), at) for at in groups]
        tau2 = state.tau2 or unit
        walk = np.full(d, 1.0 / tau2) if state.walk is None else state.walk
        for _ in range(ROUNDS):
            own, found = np.append(walk, [INTERCEPT**-2] * self.config.fit_intercept), []
            for P, b in told:
                half = draws.inverse_root(P + np.diag(np.tile(own, b.size // own.size)))[0]
                both = np.stack([half.T @ (half @ b[0]), np.sum(half**2, axis=0)])
                found.append(both.reshape(2, -1, own.size))
            theta, variances = np.concatenate(found, axis=1)
            walk, tau2 = _likely(theta[:, :d] ** 2 + variances[:, :d], tau2, unit)
        step = theta - usual.basis.T @ state.theta
        length = np.sqrt(np.maximum(np.einsum("ki,ij,kj->k", step, G, step), 0.0))
        step = usual.basis @ (step * np.minimum(1.0, FARTHEST / np.maximum(length, 1e-9))[:, None])
        turned = np.sum((step @ G) * state.step) < 0.0
        part = max(SLOWEST, state.part / 2.0) if turned else min(1.0, state.part * 2.0)
        new = state.theta + part * step
        return state._replace(theta=new, walk=walk, tau2=tau2, step=step, part=part)

    def groups(self, state: State) -> list[list[int]]:
        """Contrasts whose slopes are found together: all, or each alone where these are many."""
        k, D, q = self.config.n_told, self.config.n_columns, len(state.usuals[-1].inverse)
        alone = k > MANY or k * max(D, q + 1) > TOGETHER
        return np.arange(k).reshape(-1, 1 if alone else k).tolist()

    def told(self, state: State, own: Along, at: list[int], between: float = 1.0) -> Any:
        """Precision (1, kD, kD), and its product with the mean, of one likely slope of contrasts.

        ``between`` multiplies slopes between different contrasts: 0 leaves them out.
        """
        D, H = self.config.n_columns, self.likely_slope(state, own, at)
        by = self.mean_slope(state, at) if self.config.family.saturates else H
        H = H * np.kron(np.where(np.eye(len(at)), 1.0, between), np.ones((D, D)))
        return own.measured(H[None], by[None], self.noise("score"), self.n)

    def likely_slope(self, state: State, own: Along, at: list[int]) -> np.ndarray:
        """Slope of scores along contrasts, stacked, for the way, (kD, kD).

        That of normal rows; of classes the mean one, of all directions, and a share of what it
        lacks to that of normal rows, as scores tell it.
        """
        least, D = LEAST_SLOPE / state.usuals[-1].slopes[at], self.config.n_columns
        least = np.repeat(np.sqrt(np.maximum(1.0, least)), D)
        H = self.normal_slope(state, at) * least[:, None] * least
        if not self.config.family.saturates:
            return H
        usual = self.mean_slope(state, at)
        moved, seen = own.queries - own.queries[-1], own.scores - own.scores[-1]
        noise, model = self.noise("score") * own.units[:, None], MODEL_ERROR * moved @ usual
        part = draws.share(moved @ (usual - H), seen + moved @ usual, 2.0 * noise**2 + model**2)
        return usual + part * (H - usual)

    def mean_slope(self, state: State, at: list[int]) -> np.ndarray:
        """Mean slope of the scores of normal rows along contrasts, stacked, (kD, kD)."""
        mean = np.maximum(state.usuals[-1].slopes[at], LEAST_SLOPE)
        return np.kron(np.diag(self.n * mean), state.likely)

    def normal_slope(self, state: State, at: list[int]) -> np.ndarray:
        """Slope of the scores of normal rows at θ, along contrasts, stacked, (kD, kD)."""
        usual, (_, B) = state.usuals[-1], self.standard(state)
        H = (M := usual.moments(at))[:, :, -1:, -1:] * (state.likely - B @ B.T) + B @ M @ B.T
        return self.n * H.transpose(0, 2, 1, 3).reshape(len(at) * len(B), -1)

    def posterior(self, state: State) -> GaussianPosterior:
        """Mean and covariance of θ on the standardised columns."""
        return Posterior(self, state).found()


def _likely(squares: np.ndarray, tau2: float, unit: float) -> tuple[np.ndarray, float]:
    """Precisions (d,) of effects of expected squares (k, d) that share Student's tails, and τ²."""
    (k, d), together = squares.shape, squares.sum(axis=0)
    local = (DEGREES + k) / (DEGREES + together / tau2)
    tau2 = float(together @ local + PRIOR * unit) / (k * d + PRIOR)
    return local / tau2, tau2
