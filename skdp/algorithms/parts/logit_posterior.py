"""The posterior of θ and of the scale τ of its prior, given a noisy statistic of one logit.

s ~ N(F(θ), V + ν² I), with F of `LogitRows` and V at its value at the mode: how it changes with θ
is known less well than F, and adds little. θ ~ N(0, diag τ²) with `PriorScales`.

Laplace's approximation by Gauss–Newton steps, one for each of several beliefs about the rows, with
a τ each from a grid of evidence. How well it fits is measured by the effective size of draws from
it under their weights (A. Kong, *A Note on Importance Sampling using Standardized Weights*, 1992).
Where that is low, Hamiltonian Monte Carlo (R. M. Neal, *MCMC using Hamiltonian dynamics*, 2011)
goes on from these very draws, with τ drawn in between; short chains are enough, because they start
where they are to end.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.interpolate import CubicSpline

from skdp.algorithms.parts.logit_rows import LogitRows, dot, times, transposed
from skdp.algorithms.parts.prior_scales import PriorScales, log_density
from skdp.fitting.streams import SecureStream

LONGEST_STEP = 3.0  # in the logit of a record of norm 1: beyond, records are saturated
SHORT_STEP = 1e-3  # at which iterations stop
EVIDENCE = np.linspace(-1.6, 1.6, 13)  # of ln τ, around the likeliest
_FINE = np.linspace(EVIDENCE[0], EVIDENCE[-1], 400)
N_WEIGHED = 4  # draws for each belief, by which Laplace's approximation is measured
ENOUGH = 0.5  # effective size of these, over their number
TRAJECTORIES, DISCARDED = 8, 2
TRAJECTORY, LEAP = 1.6, 1.1  # length, in deviations, and that of a leap in one dimension


class NoiseAwareState(NamedTuple):
    """All of it is a function of what has been released."""

    mean: np.ndarray  # θ_t, scaled to rows of norm ≤ 1, (1, KD)
    scales: np.ndarray  # τ, (blocks,)
    rows: Any = None  # `LogitRows`, what Ã, H̃ and the gradients say, their noise taken out
    gradients: tuple[np.ndarray, ...] = ()  # g̃_t
    queries: tuple[np.ndarray, ...] = ()  # θ_t at which they were asked for
    moments: Any = None  # Ã, (D, D), or its trace, (1,)
    slope: tuple[np.ndarray, np.ndarray, LogitRows] | None = None  # H̃, its θ, what was believed
    scatter: np.ndarray | None = None  # Σ s sᵀ at the last θ, (D, D)
    offset: tuple[float, float] = (0.0, 0.0)  # mean and variance of what is added to logits


class Found(NamedTuple):
    """Mean (D,) and covariance (D, D) of θ, and draws (n, blocks) of τ."""

    mean: np.ndarray
    covariance: np.ndarray
    scales: np.ndarray


class Laplace(NamedTuple):
    """Mode (B, D), inverse covariance (B, D, D), and (V + ν² I)⁻¹ at the start."""

    mode: np.ndarray
    information: np.ndarray
    weight: np.ndarray


@dataclass(frozen=True)
class Given:
    """A statistic s (B, D) under B beliefs about the rows, and its noise variance ν².

    ``scatter`` is V, (B, D, D); None is that of the model.
    """

    rows: LogitRows
    statistic: np.ndarray
    variance: float
    scatter: np.ndarray | None = None

    def weight(self, theta: np.ndarray) -> np.ndarray:
        """(V(θ) + ν² I)⁻¹."""
        V = self.rows.variance(theta) if self.scatter is None else self.scatter
        return np.linalg.inv(V + self.variance * np.eye(V.shape[-1]))

    def laplace(
        self,
        start: np.ndarray,
        precision: np.ndarray,
        n_steps: int,
        weight: np.ndarray | None = None,
    ) -> Laplace:
        """Gauss–Newton steps under the prior precisions (..., D), with V as it is at the start."""
        theta, weight = start, self.weight(start) if weight is None else weight
        prior = precision[..., :, None] * np.eye(start.shape[-1])
        information = prior
        for _ in range(n_steps):
            H = self.rows.slope(theta)
            WH = weight @ H
            off = self.statistic - self.rows.expected(theta)
            gradient = np.sum(WH * off[..., :, None], axis=-2) - precision * theta
            information = transposed(H) @ WH + prior
            step = np.linalg.solve(information, gradient[..., None])[..., 0]
            length = np.sqrt(dot(step, step))
            theta = theta + step * np.minimum(1.0, LONGEST_STEP / np.maximum(length, 1e-300))
            if length.max() < SHORT_STEP:
                break
        return Laplace(theta, information, weight)

    def log_density(
        self, theta: np.ndarray, precision: np.ndarray, weight: np.ndarray
    ) -> np.ndarray:
        """Up to a constant of each belief and τ, (...)."""
        off = self.statistic - self.rows.expected(theta)
        return -0.5 * np.sum(off * times(weight, off) + precision * theta**2, axis=-1)


def scales_by_evidence(
    point: Given,
    prior: PriorScales,
    theta: np.ndarray,
    scales: np.ndarray,
    size: int,
    stream: SecureStream,
) -> np.ndarray:
    """Draw τ, (size, blocks): of the largest block by Laplace's evidence, others as they are."""
    drawn = np.repeat(scales[None], size, axis=0)
    if prior.known:
        return drawn
    block = int(prior.sizes.argmax())
    log_scales = np.log(scales[block]) + EVIDENCE
    several = np.repeat(scales[None], len(EVIDENCE), axis=0)
    several[:, block] = np.exp(log_scales)
    precision, weight = prior.precision(several), point.weight(theta)
    there = point.laplace(np.repeat(theta, len(EVIDENCE), axis=0), precision, 4, weight)
    evidence = point.log_density(there.mode, precision, weight)
    evidence += 0.5 * (np.log(precision).sum(axis=1) - np.linalg.slogdet(there.information)[1])
    evidence += log_density(log_scales, prior.scale)
    evidence = CubicSpline(EVIDENCE, evidence)(_FINE)
    mass = np.cumsum(np.exp(evidence - evidence.max()))
    strata = (stream.generator.permutation(size) + stream.generator.random(size)) / size
    found = np.minimum(np.searchsorted(mass, strata * mass[-1]), len(_FINE) - 1)
    drawn[:, block] = scales[block] * np.exp(_FINE[found])
    return drawn


def pooled(
    given: Given,
    prior: PriorScales,
    start: np.ndarray,
    scales: np.ndarray,
    stream: SecureStream,
    *,
    chains: bool,
) -> Found:
    """Pool over beliefs, with a τ each: Laplace's approximations, or chains where these are off.

    ``start`` (B, D) is near the modes, ``scales`` (B, blocks) are the τ of each; ``chains`` says
    whether chains are affordable.
    """
    precision = prior.precision(scales)
    found = given.laplace(given.laplace(start, precision, 3).mode, precision, 2)
    unit = 1.0 / np.sqrt(precision)
    values, axes = np.linalg.eigh(found.information * unit[..., :, None] * unit[..., None, :])
    # Information is at least the prior's; where there is hardly noise, rounding makes it less.
    root = unit[..., :, None] * axes / np.sqrt(np.maximum(values, 1.0))[..., None, :]
    if chains:
        z = stream.normal((N_WEIGHED, *found.mode.shape))
        log = given.log_density(found.mode + times(root, z), precision, found.weight)
        log = log - given.log_density(found.mode, precision, found.weight)
        weights = np.exp(np.minimum(log + 0.5 * np.sum(z**2, axis=-1), 50.0))
        if weights.sum() ** 2 < ENOUGH * weights.size * (weights**2).sum():
            return _chained(given, prior, scales, found, root, stream)
    mean = found.mode.mean(axis=0)
    off = found.mode - mean
    within = (root @ transposed(root)).mean(axis=0)
    if not prior.known:  # of all blocks, where only the largest has been drawn so far
        theta = found.mode + times(root, stream.normal(found.mode.shape))
        scales = prior.drawn(theta, stream.generator.random((2, *scales.shape)))
    return Found(mean, within + off.T @ off / max(len(off) - 1, 1), scales)


def _chained(
    given: Given,
    prior: PriorScales,
    scales: np.ndarray,
    found: Laplace,
    root: np.ndarray,
    stream: SecureStream,
) -> Found:
    """Hamiltonian Monte Carlo in the coordinates of Laplace's approximation, τ in between."""
    theta = found.mode + times(root, stream.normal(found.mode.shape))
    leap = LEAP * theta.shape[1] ** -0.25
    uniform, kept, kept_scales = stream.generator.random, [], []

    def density_and_force(
        theta: np.ndarray, precision: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        def weigh(F: np.ndarray) -> np.ndarray:
            return times(found.weight, given.statistic - F)

        F, pull = given.rows.pulled(theta, weigh)
        off = given.statistic - F
        value = -0.5 * np.sum(off * weigh(F) + precision * theta**2, axis=-1)
        return value, times(transposed(root), pull - precision * theta)

    for trajectory in range(TRAJECTORIES):
        if not prior.known:
            scales = prior.drawn(theta, uniform((2, *scales.shape)))
        precision = prior.precision(scales)
        before, force = density_and_force(theta, precision)
        momentum = stream.normal(theta.shape)
        before = before - 0.5 * np.sum(momentum**2, axis=1)
        step, moved, after = leap * (0.8 + 0.4 * uniform((len(theta), 1))), theta, before
        for _ in range(math.ceil(TRAJECTORY / leap)):
            momentum = momentum + 0.5 * step * force
            moved = moved + times(root, step * momentum)
            after, force = density_and_force(moved, precision)
            momentum = momentum + 0.5 * step * force
        after = after - 0.5 * np.sum(momentum**2, axis=1)
        theta = np.where((np.log(uniform(len(theta))) < after - before)[:, None], moved, theta)
        if trajectory >= DISCARDED:
            kept.append(theta)
            kept_scales.append(scales)
    draws = np.concatenate(kept)
    covariance = np.cov(draws.T).reshape(2 * (draws.shape[1],))
    return Found(draws.mean(axis=0), covariance, np.concatenate(kept_scales))
