"""The posterior of a run of `skdp.algorithms.noise_aware.glm`, from what has been released.

Of a drawn slope H, each g̃_t moved to the last θ_T by it is a measurement

    g̃_t + H(θ_t - θ_T) = H(θ - θ_T) + (sampling of the scores, variance κH) + noise,

of which the sampling is one for all, and κ is 1 for classes; a step that went far counts for less.
Draws of slopes, the prior, the Gibbs sampler given slopes, and what becomes of its draws are in
docs/method.md §4.3–4.6. Contrasts of several outputs are drawn each by itself, for a point with
scales that they share; their covariances know of the slopes between them (§4.8). *Without
standardised columns* predictions take columns to spread alike; the covariance does not. *Robust*
posteriors have a draw of Σ s sᵀ in the place of κH: the sandwich.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.linalg import block_diag, eigh

from skdp.algorithms.gaussian_posterior import GaussianPosterior, RegressionPosterior
from skdp.algorithms.noise_aware import draws, matrices
from skdp.algorithms.noise_aware.columns import SPREADS, spreads
from skdp.algorithms.noise_aware.draws import FACTOR, Along, Draws, drawn_factors, root
from skdp.algorithms.noise_aware.prior import INTERCEPT, Prior
from skdp.algorithms.parts.gaussian_runs import far_below

if TYPE_CHECKING:
    from skdp.algorithms.noise_aware.steps import State, Update

SLOPE_ERROR = 0.5  # of the mean slope that the logits of normal rows tell, over it
ALIKE = -0.5  # logarithm of the spread of columns of which none is declared, over their unit
STRAIGHT = 0.9  # slope along θ, over the mean one, from which the two are taken to be alike
RARE = 0.1  # deviation of an indicator below which its effects are taken to be no larger
SWEEPS, BURN = 24, 8
# With slopes (K, D, D), those by which scores are moved, and spreads (K, d).
Way = tuple[Along, np.ndarray, np.ndarray, np.ndarray]


class Posterior:
    """Inference at the end of a run."""

    def __init__(self, update: Update, state: State) -> None:
        self.update, self.state, self.config = update, state, update.config
        self.n, self.generator = update.n, update.generator
        self.gram, self.drawn, self.K = state.gram, state.drawn, len(state.drawn[0])
        self.each = update.along(state)

    def found(self) -> GaussianPosterior:
        """Mean and covariance of θ on the standardised columns."""
        config, state, D = self.config, self.state, len(self.gram)
        groups = self.update.groups(state)
        laws = [law for at in groups for law in self._laws({k: self.each[k] for k in at})]
        means, *both, scales = zip(*laws, strict=True)
        back = np.kron(state.usuals[-1].basis, np.eye(D))
        mean = (back @ np.concatenate(means)).reshape(-1, D)
        back = back @ self._between()
        covariance, of_logits = (back @ np.array(block_diag(*own)) @ back.T for own in both)
        scales = np.percentile(np.vstack(scales), [5, 50, 95], axis=0)
        if config.family.extra:
            return self._with_scale((mean[0], covariance, of_logits), scales)
        if config.covariance == "diag":
            covariance, of_logits = np.sqrt(np.diag(covariance)), None
        mean = mean - config.unit_of(state.offset)
        q = GaussianPosterior(mean, covariance, prior_scales=scales, of_logits=of_logits)
        return replace(q, short_rows=self._short(), n_found=self._told())

    def _between(self) -> np.ndarray:
        """A = (C'C⁻¹)^½, where C' is the covariance with slopes between contrasts, and C without.

        Of one likely slope: A C Aᵀ = C', whatever the units of columns.
        """
        update, state, given = self.update, self.state, self.config.prior_scale
        if len(at := update.groups(state)[0]) == 1:
            return np.eye(self.config.n_told * len(self.gram))
        own = draws.stacked(self.each)
        way = np.full(self.config.n_features, given**-2) if given else update._next(state).walk
        prior = np.append(way, [INTERCEPT**-2] * self.config.fit_intercept)
        found = (update.told(state, own, at, between)[0][0] for between in (0, 1))
        apart, together = (P + np.diag(np.tile(prior, len(at))) for P in found)
        ratio, axes = eigh(apart, together)
        return (axes * np.sqrt(ratio)) @ axes.T @ together

    def _laws(self, each: dict[int, Along]) -> list[tuple[np.ndarray, ...]]:
        """Draw θ along contrasts; those of a point have scales in common, those of intervals none.

        Of each the mean (D,), covariances (D, D) of intervals and of logits, and draws of scales.
        """
        ways, laws = [self._ways(k, own) for k, own in each.items()], []
        for way, drawn in zip(ways, self._effects([way[0] for way in ways]), strict=True):
            mean, of_logits = drawn.point(way[0][1])
            if len(each) > 1 or len(way) > 1:
                (drawn,) = self._effects([way[-1]])
            both = ((S + S.T) / 2.0 for S in (drawn.about(mean), of_logits))
            laws.append((mean, *both, drawn.scales))
        return laws

    def _ways(self, k: int, own: Along) -> list[Way]:
        """Draw slopes, and spreads of columns: of a point first, of intervals last."""
        H, slope = self._slopes(own)
        design, ones = self.config.design, np.ones((self.K, self.config.n_features))
        if design.model is not None:  # columns as they were declared
            return [(own, H, H, ones)]
        seen, spread = self._hidden(H, slope) or (H, self._seen())
        curved = self._curved(k, own, seen, slope)
        of_point = (own, seen, seen, spread) if design.standardised else (own, H, H, ones)
        alike = design.standardised and curved is seen
        return [of_point] if alike else [of_point, (own, curved, seen, spread)]

    def _effects(self, ways: list[Way]) -> list[Draws]:
        """Draw θ along contrasts whose effects have the same scales."""
        config, n, noise, told = self.config, self.n, self.update.noise("score"), []
        unit = self.state.scales[-1] if config.family.extra else 1.0
        given = config.prior_scale and config.prior_scale / unit
        # What is rare has no larger effects for it, as what is narrow in its unit has.
        least = np.where(self.update.columns.numbers, 0.0, RARE / self.update.columns.scale)
        alike = config.prior_scale is not None and not config.design.standardised
        for own, H, by, found in ways:
            spread = np.ones_like(found) if alike else np.maximum(found, least)
            scatter = None if self.state.scatter is None else self._scatter(own, H)
            told.append((*own.measured(n * H, n * by, noise, n, scatter), H, spread))
        P, b, H, spread = (np.concatenate(each) for each in zip(*told, strict=True))
        prior = Prior(H, spread, unit, config.prior_blocks, given, config.design, len(ways))
        return sampled(P, b, prior, self.generator).apart(len(ways))

    def _with_scale(self, moments: Any, scales: np.ndarray) -> RegressionPosterior:
        """The posterior of (θ, ln σ), σ by the ψ² of the last third of the steps."""
        state = self.state
        scale, variance = self.update.scale(state, max(1, len(state.squares) // 3))
        (mean, *both), unit = moments, state.unit
        covariance, of_logits = (np.array(block_diag(unit**2 * S, variance)) for S in both)
        return RegressionPosterior(
            np.append(unit * mean, math.log(unit * scale))[None], covariance, of_logits=of_logits,
            prior_scales=scales * state.scales[-1], unit=unit, unit_found=state.unit_found,
            clip=unit * state.cut, short_rows=self._short(), n_found=self._told(),
        )  # fmt: skip

    def _told(self) -> tuple[float, float] | None:
        """Noisy number of rows, where it was released and they have no weights."""
        return None if self.update.weighted else self.update.n_found

    def _short(self) -> float | None:
        """Root mean square norm of rows that are clipped, if that is far below their bound."""
        unit = self.config.divided
        if unit.design.standardised:
            return None
        noise = self.update.noise("gram") * math.sqrt(unit.n_columns)
        trace, bound = float(np.trace(self.gram)) * self.n, unit.row_bound**2
        return far_below(trace / bound, noise / bound, unit, self.update.n_found)

    def _slopes(self, own: Along) -> tuple[np.ndarray, float]:
        """Draws of H/n (K, D, D), and the slope of a column of spread 1."""
        M, N, D, generator = self.gram, own.slope, len(self.gram), self.generator
        s, t = (self.update.noise(i) / math.sqrt(2.0) / self.n for i in ("gram", "slope"))
        t *= self.update.slope_unit(self.state)
        axes, values = self.drawn
        usual = max(float(np.trace(M)), 1e-3) / D if self.config.design.standardised else 1.0
        if not self.config.family.saturates:
            axes, M = self._tilted(own, axes, t)
        c = self._share(own, M, t)
        factor = np.ones((self.K, D))
        if self.config.family.saturates:
            factor = drawn_factors(np.diag(M), np.diag(N) / c, s, t / c, self.K, generator)
        F = np.median(factor, axis=0)
        cM, of_noise = c * M * np.outer(F, F), t**2 + (c * s * np.outer(F, F)) ** 2
        # Slopes are B (1 + X) Bᵀ with B = √c F G^½ and X of entries of variance x².
        half = axes * np.sqrt(c * values)[:, None, :] * factor[:, :, None]
        square, left = np.linalg.eigh(half @ half.transpose(0, 2, 1))
        size = np.sqrt(np.maximum(square, 1e-14 * square[:, -1:]))
        values = size**2 / c
        # E ‖H̃ - c FG̃F‖² = c² x² (tr² FGF + tr (FGF)²) + noise.
        together = values.sum(axis=1).mean() ** 2 + (values**2).sum(axis=1).mean()
        missed = float(((N - cM) ** 2).sum() - of_noise.sum() - np.trace(of_noise))
        error = 2.0 * math.sqrt(float((of_noise**2).sum()))
        whole = c**2 * together
        square = draws.drawn_misses(missed / whole, error / whole, self.K, generator)
        unit = size[:, :, None] * size[:, None, :]
        kept = unit**2 * square / (unit**2 * square + t**2)
        Y, at = left.transpose(0, 2, 1) @ N @ left, np.arange(D)
        Y[:, at, at] -= size**2
        noise = matrices.symmetric_noise((self.K,), D, generator)
        X = (kept * Y + np.sqrt(kept) * t * noise) / unit
        X[:, at, at] += 1.0
        of_X, Q = np.linalg.eigh(X)
        B = left @ (size[:, :, None] * Q * np.sqrt(np.maximum(of_X, 0.05))[:, None, :])
        H = B @ B.transpose(0, 2, 1)
        return H, c * usual

    def _tilted(self, own: Along, axes: np.ndarray, t: float) -> tuple[np.ndarray, np.ndarray]:
        """Axes of draws of G, and G̃, of rows that count by their slopes.

        How far that moves and spreads logits is drawn, as released and as normal rows tell.
        """
        tilted, N, K = partial(self.update.tilted, self.state), own.slope, self.K
        u, _, m, v = self.update.lean(self.state)
        c = self._share(own, tilted() @ self.gram @ tilted().T, t)
        told, square, one = c * (m or 1e-9), float(u @ u), np.ones(1)
        noise = t * math.sqrt(square / 2.0) / abs(told) + 1e-9  # effects of 0 have no direction
        f = drawn_factors(one, one * (N[-1] @ u) / told, 0.0, noise, K, self.generator)
        shift, told = f[:, 0] ** 2, c * v
        found = (u @ N @ u - c * (shift * m) ** 2) / told
        noise = t * square / told + 1e-9
        spread = drawn_factors(np.ones(K), found, 0.0, noise, 1, self.generator)[0] ** 2
        T = tilted(np.median(shift), np.median(spread))
        return tilted(shift, spread) @ axes, T @ self.gram @ T.T

    def _share(self, own: Along, M: np.ndarray, t: float) -> float:
        """Mean slope over that of Σ w z zᵀ: as released, and as the logits of normal rows tell.

        What these are off by is much the same for all contrasts.
        """
        trace, told = max(float(np.trace(M)), 1e-3), [one.mean_slope for one in self.each]
        found = [np.trace(one.slope) / trace for one in self.each]
        error = math.sqrt(2.0 * len(M)) * t / trace
        c = own.mean_slope * draws.times(found, told, error, SLOPE_ERROR)
        if len(told) > 1:
            c *= draws.times([np.trace(own.slope) / trace], [c], error, FACTOR)
        return float(np.clip(c, *self.update.family(self.state).slopes))

    def _seen(self) -> np.ndarray:
        """Spread of the columns over their scale (K, d), as if the noise hid none."""
        squares = 1.0 if self.config.design.standardised else np.maximum(self._squares()[0], 0.0)
        return np.sqrt(squares) * np.ones((self.K, self.config.n_features))

    def _squares(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Mean squares (d,) of the columns about their means, their errors, and the means."""
        d, M, noise = self.config.n_features, self.gram, self.update.noise("gram") / self.n
        released = self.config.design.standardised or len(M) == d
        means = np.zeros(d) if released else M[:d, d] / M[d, d]
        return np.diag(M)[:d] - means**2, noise * np.sqrt(1.0 + 2.0 * means**2), means

    def _hidden(self, H: np.ndarray, slope: float) -> tuple[np.ndarray, np.ndarray] | None:
        """Let the slope of a column whose spread the noise hides be that of a drawn spread."""
        columns, d = self.update.columns, self.config.n_features
        square, error, means = self._squares()
        if not self.config.design.standardised:
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
        drawn = matrices.picked(np.log(p[at] + 1e-300), (self.K,), self.generator)
        drawn = SPREADS[drawn] / unit[at]
        spread = self._seen()
        spread[:, at] = np.minimum(1.0, drawn) if self.config.design.standardised else drawn
        centre = np.eye(H.shape[-1])
        centre[:d, d:] = -means[:, None]
        back = 2.0 * np.eye(len(centre)) - centre
        H = centre @ H @ centre.T
        factor = np.ones(H.shape[:2])
        believed = np.maximum(H[:, at, at], 1e-9)
        factor[:, at] = np.minimum(1.0, drawn * np.sqrt(slope / believed))
        return back @ (H * factor[:, :, None] * factor[:, None, :]) @ back.T, spread

    def _curved(self, k: int, own: Along, H: np.ndarray, slope: float) -> np.ndarray:
        """Draw slopes along θ, as released and as the logits of normal rows tell.

        Where effects are strong they are far below the others: outcomes far out are sure.
        """
        u, d = own.queries[-1].copy(), self.config.n_features
        u[d:] = -self.update._means(self.state) @ u[:d]
        N = self.update.normal_slope(self.state, [k]) / (self.n * own.mean_slope)
        curved = max((u @ N @ u + 1e-12) / (u @ self.state.likely @ u + 1e-12), 1e-9)
        if curved >= STRAIGHT:  # as it is of effects of 0, which have no direction
            return H
        told = curved * slope * max(float(u @ self.gram @ u), 1e-9)
        seen, noise = float(u @ own.slope @ u), self.update.noise("slope") / self.n
        t = noise * self.update.slope_unit(self.state) / math.sqrt(2.0) * float(u @ u)
        one = np.ones(1)
        factor = drawn_factors(one, one * seen / told, 0.0, t / told, self.K, self.generator)
        Hu = H @ u
        least = 1e-9 * float(u @ u) * np.trace(H, axis1=1, axis2=2)  # below, rounding decides
        uHu = np.maximum(Hu @ u, least)
        ratio = np.clip(told * factor[:, 0] ** 2 / uHu, 1e-6, 1e6)
        change = ((ratio - 1.0) / uHu)[:, None, None]
        return H + change * Hu[:, :, None] * Hu[:, None, :]

    def _scatter(self, own: Along, H: np.ndarray) -> np.ndarray:
        """Draws of Σ s sᵀ (K, D, D), of scores as they were measured.

        In units of what the model says of it; where the noise hides it, it is not below that.
        """
        assert self.state.scatter is not None
        usual, unit = own.sampling * H.mean(axis=0), self.state.units[-1] ** 2
        half, back = (root(usual[None], power)[0] for power in (0.5, -0.5))
        s = self.update.noise("scatter") / math.sqrt(2.0) / self.n * unit
        s *= float(np.sum(back**2)) / len(usual)
        found = back @ (unit * self.state.scatter) @ back
        axes, values = matrices.draws(found, s, self.K, self.generator)
        hidden = s**2 * len(usual) / (1.0 + s**2 * len(usual))
        values = values + hidden * np.maximum(1.0 - values, 0.0)
        axes = half @ axes
        return self.n * (axes * values[:, None, :]) @ axes.transpose(0, 2, 1)


def sampled(P: np.ndarray, b: np.ndarray, prior: Prior, generator: Any) -> Draws:
    """Gibbs sampler of θ and the scales of its prior, of measurements P θ = b (K, D)."""
    K, D = b.shape
    means, covariances, scales = [], [], []
    for sweep in range(SWEEPS):
        precision = prior.precision(D)
        half = draws.inverse_root(P + precision)
        both = [(half @ b[:, :, None])[:, :, 0], generator.standard_normal((K, D))]
        mean, off = (np.stack(both, axis=1) @ half).swapaxes(0, 1)
        prior.draw(mean + off, precision, generator)
        if sweep >= BURN:
            means.append(mean)
            covariances.append(half.transpose(0, 2, 1) @ half)
            scales.append(np.sqrt(prior.tau2))
    return Draws(np.array(means), np.array(covariances), np.concatenate(scales))
