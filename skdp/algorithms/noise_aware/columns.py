"""Where the values of each column lie and how far they spread, released within declared bounds.

A column u is scaled by its bounds, to [-1, 1] or, of an indicator, to [0, 1]. A run releases

    counts of the values in equal cells of a range, for each number     `STAGES` times
    Σ v of each column, Σ v² of each number, and Σ 1                      once
    the number of records of which a value lies beyond its bounds         once

The first and the last cell with a count above its noise are the range of the next stage, and v of
the sums are values scaled to the last one, cut to its ends there alone. So a column whose spread is
a thousandth of its bounds is as well known as one that fills them, for the price of a few counts,
and one far value does not make a range wide (docs/method.md §4.1). All else is post-processing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np

from skdp.algorithms.noise_aware import matrices
from skdp.algorithms.noise_aware.column_sums import CELLS, BeyondSum, CellSum, MomentsSum
from skdp.algorithms.parts.gaussian_runs import GaussianRun, release_plan_of
from skdp.engine.linear_sums import of_weights
from skdp.engine.loop import Progress, ReleasePlan, last, run
from skdp.fitting.streams import Streams
from skdp.relations import check_relation
from skdp.rows.lazy_rows import rows_of
from skdp.rows.records import LinearRows

# Shares of the squared GDP budget, and cells of a stage: with 8 cells four stages find a range of
# 1/4096 of the bounds, or 1/256 where values lie on both sides of an edge. Moments take what their
# noise, over the number of rows, needs to be AIM of a squared half width: half the variance of a
# column of the usual spread (`glm.USUAL_SPREAD`). The study is benchmarks/real_tables.py, which
# says the tables that they were chosen on.
STAGES = 4
CELLS_SHARE, COUNT_SHARE, MOMENTS = 0.10, 0.01, (0.05, 0.45)
AIM = 0.01
LOUD = 3.0  # standard deviations of noise beyond which values lie in a cell
# Such deviations, and shares of values that may lie outside a range: of those that noise may hide,
# and of those that are seen.
SURE, MISSED, FAR = 2.0, 0.2, 0.01
UNBOUNDED = 1e100  # norm of rows of which none is declared


# Of the logarithms of the spreads of columns over half the width of their bounds: 151 columns of 11
# tables, bounds as in benchmarks/real_tables.py, have the mean -2.05 and the deviation 0.77. Below,
# the law of `matrices`: bounds are often generous.
USUAL_SPREAD, SPREAD, OF_ALL = -2.0, 0.8, 1.0
SPREADS = np.exp(np.linspace(math.log(1e-5), math.log(1.5), 400))


def spreads(square: np.ndarray, error: np.ndarray, usual: float = USUAL_SPREAD) -> np.ndarray:
    """Probabilities (d, 400) of `SPREADS`, of columns with noisy variances (d,) and their errors.

    Spreads are log-normal over columns, about a mean of which all of them tell.
    """
    grid = np.log(SPREADS)
    log_like = -((square[:, None] - SPREADS**2) ** 2) / (2.0 * error[:, None] ** 2)
    like = np.exp(log_like - log_like.max(axis=1, keepdims=True))
    means = usual + OF_ALL * np.linspace(-4.0, 3.0, 36)
    prior = np.exp(matrices.log_prior(grid, means[:, None], SPREAD))
    prior /= prior.sum(axis=1, keepdims=True)
    log_p = np.log(like @ prior.T + 1e-300).sum(axis=0) - ((means - usual) / OF_ALL) ** 2 / 2.0
    of_means = np.exp(log_p - log_p.max())
    each = like[:, None, :] * prior  # of one mean
    each /= np.maximum(each.sum(axis=2, keepdims=True), 1e-300)
    found = np.einsum("m,dmg->dg", of_means, each)
    return found / found.sum(axis=1, keepdims=True)


class Columns(NamedTuple):
    """What was released of columns in the units of `ColumnsConfig.scaled`, (d,) each.

    - ``centre``, ``scale``: of the public map z = (u - centre)/scale.
    - ``variance``, ``error``: released mean of z², and its standard error; a column of which
      nothing is known has a variance below some errors.
    - ``n_found``: noisy number of records, by their weights, and its standard error.
    - ``outside``, ``outside_noise``: noisy number of records with values beyond bounds, its error.
    - ``counted``: whether the number of records is the released one, and not a declared fact.
    - ``numbers``: which columns are no indicators.
    """

    centre: np.ndarray
    scale: np.ndarray
    variance: np.ndarray
    error: np.ndarray
    n_found: tuple[float, float]
    outside: float
    outside_noise: float
    counted: bool = False
    numbers: tuple[bool, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ColumnsConfig(GaussianRun):
    """Public facts of a run.

    - ``lower``, ``upper``: declared bounds of the columns, lower < upper. A column within (0, 1) is
      taken for an indicator: v² is taken for v.
    - ``data_norm``: norm to which rows are clipped before, about 0; None where none is declared.
    - ``centred``: whether columns are centred, or divided by their root mean square alone.
    - ``shares``: of the squared GDP budget, for cells, 0 where none are counted, and for moments.
    """

    n_rows: int
    lower: tuple[float, ...]
    upper: tuple[float, ...]
    data_norm: float | None = None
    centred: bool = True
    shares: tuple[float, float] = (CELLS_SHARE, MOMENTS[0])
    asks_sums: ClassVar[bool] = True
    fit_intercept: ClassVar[bool] = False  # of `LinearRows`

    @property
    def numbers(self) -> tuple[bool, ...]:
        """Which columns are no indicators."""
        return tuple(b != (0.0, 1.0) for b in zip(self.lower, self.upper, strict=True))

    @property
    def units(self) -> tuple[float, ...]:
        """Noise multipliers of the releases, over the square root of the budget of all of them."""
        shares = np.array([*[self.shares[0] / STAGES] * self.n_stages, self.shares[1], COUNT_SHARE])
        return tuple(np.sqrt(shares.sum() / shares).tolist())

    @property
    def n_stages(self) -> int:
        """How often cells are counted."""
        return STAGES * any(self.numbers) * (self.shares[0] > 0.0)

    @property
    def share(self) -> float:
        """That of all of it."""
        return self.n_stages / STAGES * self.shares[0] + self.shares[1] + COUNT_SHARE

    def shared(self, mu: float) -> ColumnsConfig:
        """Return the same run with the shares that suit a GDP budget, of rows of weight 1.

        Cells are not asked for where their noise would hide what lies in any of them.
        """
        unit = self.of_rows / (mu * max(self.n_rows, 1))
        of_cells = unit * math.sqrt(sum(self.numbers) * STAGES / CELLS_SHARE)
        of_moments = unit * MomentsSum((), (), self.numbers, self.norm).record_bound
        share = float(np.clip((of_moments / AIM) ** 2, *MOMENTS))
        return replace(self, shares=(CELLS_SHARE * (SURE * of_cells < MISSED), share))

    @property
    def middle_and_half(self) -> tuple[np.ndarray, np.ndarray]:
        """Of the map to u: about 0 where a norm is declared or nothing is centred."""
        lower, upper = np.array(self.lower), np.array(self.upper)
        about_zero = self.data_norm is not None or not self.centred
        keep = about_zero | ~np.array(self.numbers)
        middle = np.where(keep, 0.0, lower / 2 + upper / 2)
        return middle, np.maximum(upper - middle, middle - lower)

    @property
    def norm(self) -> float:
        """Bound on the norm of u."""
        most = math.sqrt(len(self.lower))
        if self.data_norm is None:
            return most
        return min(most, self.data_norm / float(self.middle_and_half[1].min()))

    @property
    def dimensions(self) -> list[int]:
        """Number of coordinates of each release in turn."""
        d, k = len(self.lower), sum(self.numbers)
        return [k * CELLS] * self.n_stages + [d + k + 1, 1]

    @property
    def sums(self) -> list[Any]:
        """The private value of each release."""
        middle, half = (tuple(a.tolist()) for a in self.middle_and_half)
        cells: Any = CellSum(middle, half, self.numbers)
        sums: list[Any] = [cells] * self.n_stages
        sums.append(MomentsSum(middle, half, self.numbers, self.norm))
        sums.append(BeyondSum(self.lower, self.upper))
        return [of_weights(one, self.weight_bound) for one in sums]

    def run(self, records: Any, streams: Streams, progress: Progress = iter) -> Columns:
        """Release what is to be known of the columns of private rows."""
        plan = release_plan_of(self)
        config: Any = replace(self, data_norm=self.data_norm or UNBOUNDED)
        rows = rows_of(records, partial(LinearRows.of, config, alone=self.secure), kept=False)
        is_public = check_relation(self.neighboring_relation).n_is_public
        weighted = getattr(records, "weights", None) is not None
        counted = not is_public or weighted or self.of_rows > 1.0
        start = _Ranges.of(self, plan, counted=counted)
        states = run(plan, rows, start, _Ranges.query, _Ranges.update, streams)
        return last(progress(states)).found()


class _Ranges(NamedTuple):
    """The state of a run: all of it is a function of what has been released."""

    config: ColumnsConfig
    plan: ReleasePlan
    low: np.ndarray
    high: np.ndarray
    step: int = 0
    moments: np.ndarray | None = None
    outside: float = 0.0
    counted: bool = False  # whether the number of records is what was counted

    @classmethod
    def of(cls, config: ColumnsConfig, plan: ReleasePlan, *, counted: bool) -> _Ranges:
        middle, half = config.middle_and_half
        ends = [(np.array(b) - middle) / half for b in (config.lower, config.upper)]
        # Indicators stay as they are.
        low, high = (np.where(config.numbers, e, i) for e, i in zip(ends, (-1.0, 1.0), strict=True))
        return cls(config, plan, low, high, counted=counted)

    def query(self) -> np.ndarray:
        """Ends of the ranges; of numbers alone while cells are asked for."""
        ends = np.array([self.low, self.high])
        if self.step < self.config.sampling.n_steps - 2:
            return ends[:, np.array(self.config.numbers)]
        return ends

    def noise(self, step: int, shape: tuple[int, ...]) -> float:
        return self.plan.step(shape, step)[1].scale

    def update(self, noisy: np.ndarray, step: int) -> _Ranges:
        state = self._replace(step=step + 1)
        if step == self.config.sampling.n_steps - 1:
            return state._replace(outside=float(noisy[0]))
        if step == self.config.sampling.n_steps - 2:
            return state._replace(moments=noisy)
        numbers = np.array(self.config.numbers)
        counts = noisy.reshape(-1, CELLS)
        first, after = _told_cells(counts, self.noise(step, (2, len(counts))))
        low, high = self.low.copy(), self.high.copy()
        width = (high[numbers] - low[numbers]) / CELLS
        low[numbers], high[numbers] = low[numbers] + width * first, low[numbers] + width * after
        return state._replace(low=low, high=high)

    def found(self) -> Columns:
        """Say what the columns are, in the units of u."""
        assert self.moments is not None
        d, numbers = len(self.low), np.array(self.config.numbers)
        last_step = self.config.sampling.n_steps - 1
        noise = self.noise(last_step - 1, (2, d))
        outside_noise = self.noise(last_step, (2, d))
        count = float(self.moments[-1])
        counted = self.counted and count > LOUD * noise
        n = count if counted else float(self.config.n_rows)
        m1, s = self.moments[:d] / n, noise / n
        m2 = m1.copy()
        m2[numbers] = self.moments[d:-1] / n
        half, middle = (self.high - self.low) / 2, (self.high + self.low) / 2
        m1 = np.clip(m1, -1.0, 1.0)
        if self.config.centred:
            centre, square = middle + half * m1, m2 - m1**2
            error = s * np.where(numbers, np.sqrt(1 + 4 * m1**2), np.abs(1 - 2 * m1) + s)
        else:  # the mean square about 0, of middle + half v
            centre = np.zeros(d)
            shift = middle / half
            square = m2 + 2 * shift * m1 + shift**2
            error = s * np.sqrt(1.0 + 4.0 * shift**2)
        square, error = half**2 * square, half**2 * np.maximum(error, 1e-12)
        scale = np.sqrt(spreads(square, error) @ SPREADS**2)
        return Columns(
            centre, scale, square / scale**2, error / scale**2, (count, noise),
            self.outside, outside_noise, counted, self.config.numbers,
        )  # fmt: skip


def _told_cells(counts: np.ndarray, noise: float) -> tuple[np.ndarray, np.ndarray]:
    """First and last cell in which counts (k, cells), added up from an end, exceed their noise.

    All cells where they do not, or where the noise might hide more than a few values outside: of
    many columns most values are 0, and the others far from it.
    """
    root = np.sqrt(np.arange(1, CELLS + 1))
    left = np.cumsum(counts, axis=1) / root > LOUD * noise
    right = np.cumsum(counts[:, ::-1], axis=1) / root > LOUD * noise
    first = np.where(left.any(axis=1), left.argmax(axis=1), 0)
    after = np.where(right.any(axis=1), CELLS - right.argmax(axis=1), CELLS)
    at = np.arange(CELLS)
    outside = (at < first[:, None]) | (at >= after[:, None])
    lost, whole = np.sum(counts * outside, axis=1), counts.sum(axis=1)
    may_be = SURE * noise * np.sqrt(outside.sum(axis=1))
    narrowed = (first < after) & (may_be <= MISSED * whole) & outside.any(axis=1)
    of_all, may_all = lost[narrowed].sum(), np.sqrt((may_be[narrowed] ** 2).sum())
    if of_all > max(may_all, FAR * whole[narrowed].sum()):
        narrowed &= lost + may_be <= FAR * whole
    else:
        narrowed &= lost <= np.maximum(may_be, FAR * whole)
    return np.where(narrowed, first, 0), np.where(narrowed, after, CELLS)
