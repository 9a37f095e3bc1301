"""`dp_quantile`: quantiles by the exponential mechanism."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from dp_accounting.dp_event import DpEvent, SelfComposedDpEvent
from scipy.stats import binom

from skdp.fitting.streams import Streams
from skdp.fitting.types import ArrayLike, Given, Seed
from skdp.fitting.validate import as_array, expected, in_range
from skdp.mechanisms import GeometricMechanism, QuantileMechanism
from skdp.mechanisms._segments import integer_weights
from skdp.mechanisms.quantile import GRID, WEIGHT_ERROR
from skdp.privacy.events import ComposedDpEvent, PureDpEvent
from skdp.relations import ROW, ZERO_OUT
from skdp.rows.persons import Persons
from skdp.statistics._noise import geometric_quantile
from skdp.statistics._query import (
    DATA,
    POPULATION,
    Answer,
    PrivateStatistic,
    StatisticConfig,
    answer,
)

_MIDDLE = 0.05  # least quantile, and 1 less the largest, of which a bound is no place
_AT_BOUND = 1e-6  # of the bounds' width
_CUT = (
    "is the {} bound itself: a large share of the values is at that bound or beyond it, where they "
    "are cut. Declare bounds that hold nearly all values, and not much more."
)
_COUNT_SHARE = 0.1  # of what the interval gets


@dataclass(frozen=True, kw_only=True)
class QuantileConfig(StatisticConfig):
    """Quantiles of each column, and where an interval is paid for two more and the number."""

    quantiles: tuple[float, ...]
    share: float  # of ε for the interval
    is_one: bool

    needs_most_rows: ClassVar[bool] = False

    @property
    def spent(self) -> tuple[float, float, float]:
        """ε of one quantile, of each end of its interval, and of the number of values."""
        each = self.epsilon / (len(self.quantiles) * len(self.lower))
        value = each * (1.0 - self.share)
        return value, each * self.share * (1 - _COUNT_SHARE) / 2, each * self.share * _COUNT_SHARE

    def event(self) -> DpEvent:
        """What the run releases; Laplace events bound those of the quantiles, and compose well."""
        value, end, count = self.spent
        events = [self.quantile(0.5, 0, value).event()]
        if self.share:
            events += [self.quantile(0.5, 0, end).event()] * 2 + [PureDpEvent(count)]
        one = events[0] if len(events) == 1 else ComposedDpEvent(events)
        n_answers = len(self.quantiles) * len(self.lower)
        return one if n_answers == 1 else SelfComposedDpEvent(one, n_answers)

    def quantile(self, q: float, column: int, epsilon: float) -> QuantileMechanism:
        """Return the mechanism of a column."""
        lower, upper = self.lower[column], self.upper[column]
        return QuantileMechanism(q, lower, upper, epsilon, self.neighboring_relation)

    def run(self, records: Any, streams: Streams, progress: Callable = iter) -> Answer:
        """Release quantiles of values (n, d), (n_quantiles, d)."""
        starts, noise = getattr(records, "starts", None), streams("noise")
        values, weights = records[0], self.shares_of(records) if self.weight_bound else None

        def released(j: int, q: float, epsilon: float) -> float:
            given = {"starts": starts, "weights": weights}
            return self.quantile(q, j, epsilon).release(values[:, j], noise, charged=True, **given)

        found = np.empty((3, len(self.quantiles), len(self.lower)))
        for j, column in enumerate(values.T):
            each, most = integer_weights(~np.isnan(column), starts, weights)
            m = int(each.sum()) // most  # rounded down, records move it by 1 as without weights
            for i, q in enumerate(self.quantiles):
                found[:, i, j] = released(j, q, self.spent[0]), self.lower[j], self.upper[j]
                for k, target in enumerate(self.targets(q, m, noise) if self.share else (), 1):
                    if 0 <= target <= 1:
                        found[k, i, j] = released(j, target, self.spent[1])
        value, low, high = found
        value = np.sort(value, axis=0)[np.argsort(np.argsort(self.quantiles, kind="stable"))]
        step = self.widths / GRID  # to which values are rounded
        low, high = np.minimum(low, value) - step, np.maximum(high, value) + step
        answer = Answer(value, np.maximum(low, self.lower), np.minimum(high, self.upper))
        return Answer(*(x[0] for x in answer[:3])) if self.is_one else answer

    def doubts(self, answer: Answer) -> Iterable[tuple[int, str]]:
        """Quantiles in the middle that are at a bound, unless zeros may be frequent there."""
        values = np.atleast_2d(answer.value)
        middle = [i for i, q in enumerate(self.quantiles) if _MIDDLE <= q <= 1.0 - _MIDDLE]
        for j, (low, high) in enumerate(zip(self.lower, self.upper, strict=True)):
            shares = (values[middle, j] - low) / (high - low)
            if (shares > 1.0 - _AT_BOUND).any() and (low, high) != (0.0, 1.0):
                yield j, _CUT.format("upper")
            elif (shares < _AT_BOUND).any() and low != 0.0:
                yield j, _CUT.format("lower")

    def targets(self, q: float, m: int, noise: Any) -> tuple[float, float]:
        """Quantiles that lie below and above the q-th in spite of noise, and of sampling."""
        alpha, (_, end, spent) = 1.0 - self.level, self.spent
        count = GeometricMechanism(1, spent, self.neighboring_relation)
        number = int(count.release([m], noise, charged=True)[0])
        number -= geometric_quantile(count, alpha / 10)
        if number < 1:
            return -1.0, 2.0
        ends, each = [q, q], (1 - 0.1) * alpha / (4 if self.of_population else 2)
        if self.of_population:
            # From so few values as there may be the share of those below is spread the widest.
            counts = binom.ppf([each, 1 - each], number, q) + np.array([-1, 1])
            ends = np.clip(counts / number, 0, 1).tolist()
        # In units of the sensitivity: a point that is so many ranks off has a weight of e^-logs.
        logs = math.log((GRID + 1) / each)
        ranks = logs / (end - 4 * WEIGHT_ERROR) / number
        found = []
        for sign, at in zip((-1, 1), ends, strict=True):
            # The sensitivity is convex in the target, which is between these two.
            beyond = min(max(at + sign * 2 * ranks, 0.0), 1.0)
            R = max(self.quantile(x, 0, end).sensitivity for x in (at, beyond))
            found.append(at + sign * R * ranks)
        return found[0], found[1]


def dp_quantile(
    values: ArrayLike,
    quantile: float | ArrayLike = 0.5,
    *,
    lower: ArrayLike,
    upper: ArrayLike,
    epsilon: float,
    neighboring_relation: str = ZERO_OUT,
    unit: str | Persons = ROW,
    groups: Given = None,
    sample_weight: Given = None,
    max_sample_weight: float = 1.0,
    interval_share: float = 0.0,
    level: float = 0.9,
    interval_of: str = DATA,
    random_state: Seed = None,
) -> PrivateStatistic:
    """Release quantiles of values within a declared range.

    Parameters
    ----------
    values : array-like of shape (n,) or (n, d)
        Numbers, NaN where one is missing.
    quantile : float or array-like of shape (n_quantiles,), default=0.5
        Which, in [0, 1]; 0.5 is the median. Several share the budget.
    lower, upper, epsilon, neighboring_relation, unit, groups, sample_weight, max_sample_weight, \
level, random_state
        As in `dp_mean`. With persons the values of one have the weight of one together, or the mean
        of their weights, so that their number costs nothing: ``max_rows`` may be None, which is
        all.
    interval_share : float, default=0.0
        Share of ε, in [0, 1), that is spent on the interval. With 0 the interval is the whole range
        from ``lower`` to ``upper``: between two private values there may be any number of others.
        See Notes for how much an interval needs.
    interval_of : {"data", "population"}, default="data"
        As in `dp_mean`, without assumptions, and so not with weights.

    Returns
    -------
    PrivateStatistic
        For one quantile a number per column, for several of shape (n_quantiles,) or (n_quantiles,
        d). The interval is for the smallest value that a share ``quantile`` of all, or of all
        weights, does not exceed.

    Raises
    ------
    ValueError, BudgetExceededError
        As in `dp_mean`.

    See Also
    --------
    skdp.mechanisms.QuantileMechanism : One quantile, its sensitivity and its law.

    Notes
    -----
    The ends of the interval are two more quantiles, for targets so far off that they are beyond the
    value with probability 1 - α, whatever the values (docs/derivations.md). An end is the bound
    itself until ε·interval_share·m, of m values, is about 150/min(q, 1 - q), at a level of 0.9: 300
    for the median, for example 600 values at ε = 1 with an interval_share of 0.5. ε is divided by
    the number of quantiles times columns first.

    Examples
    --------
    >>> import numpy as np
    >>> from skdp.statistics import dp_quantile
    >>> ages = np.repeat(np.arange(20, 80), 50)
    >>> bool(48 < dp_quantile(ages, 0.5, lower=0, upper=120, epsilon=1.0).value < 52)
    True
    """
    given, targets = locals(), as_array(quantile)
    if targets.ndim > 1 or not targets.size or targets.dtype.kind not in "iuf":
        raise expected("a number in [0, 1], or a list of them", quantile=quantile)
    if sample_weight is not None and interval_of == POPULATION:
        remedy = "the shares of weighted draws have no law that is known"
        raise expected("'data' with sample_weight", remedy, interval_of=interval_of)
    for q in targets.ravel().tolist():
        in_range(0.0, 1.0, closed="both", quantile=q)
    return answer(
        "dp_quantile",
        QuantileConfig,
        given,
        quantiles=tuple(map(float, targets.ravel().tolist())),
        share=in_range(0.0, 1.0, closed="left", interval_share=interval_share),
        is_one=targets.ndim == 0,
    )
