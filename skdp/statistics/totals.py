"""`dp_sum`: an exact sum of integers with geometric noise."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from skdp.fitting.streams import Streams
from skdp.fitting.types import ArrayLike, Given, Seed
from skdp.relations import ROW, ZERO_OUT
from skdp.rows.persons import Persons
from skdp.statistics._noise import geometric_quantile
from skdp.statistics._query import Answer, PrivateStatistic, StatisticConfig, answer, sums


@dataclass(frozen=True, kw_only=True)
class SumConfig(StatisticConfig):
    """Sums of each column."""

    divides: ClassVar[bool] = True

    def run(self, records: Any, streams: Streams, progress: Callable = iter) -> Answer:
        """Release the sums of values (n, d), (d,)."""
        (values, *_), G = records, self.grid
        lower, upper = np.array(self.lower), np.array(self.upper)
        if self.n:
            t, _ = self.on_grid(values)
            unit, first, limits = self.widths / G, self.n * lower, (self.n * lower, self.n * upper)
            moved = self.factor * G // 2 * len(lower)  # of t - G/2, as for the mean
        else:
            # From 0, which a null record adds; their number is private.
            null = self.neighboring_relation.null_record
            span = np.maximum(upper, 0) - np.minimum(lower, 0)
            most = np.maximum(np.abs(lower), np.abs(upper)) if null else span / 2
            unit, first = most / (G // 2), 0.0
            limits = np.where(lower < 0, -np.inf, 0.0), np.where(upper > 0, np.inf, 0.0)
            low, high = np.rint(lower / unit), np.rint(upper / unit)
            t = np.clip(np.rint(np.nan_to_num(values, nan=0.0) / unit), low, high)
            t[np.isnan(values)] = 0.0
            t = np.rint(t * (self.weights_of(records) / self.steps)).astype(np.int64)
            each = np.maximum(-low, high) if null else np.maximum(high, 0) - np.minimum(low, 0)
            unit, moved = unit * (self.weight_bound or 1.0), int(each.sum()) * self.most_rows
        mechanism = self.mechanism(moved)
        noisy = mechanism.release(sums(t), streams("noise"), charged=True)
        off = geometric_quantile(mechanism, 1.0 - self.level)
        found = (first + unit * x for x in (noisy, noisy - off, noisy + off))
        return Answer(*(np.clip(x, *limits) for x in found))

    def doubts(self, answer: Answer) -> Iterable[tuple[int, str]]:
        """Sums of a public number of values that are all at a bound."""
        return self.at_bounds(answer.low / self.n, answer.high / self.n) if self.n else ()


def dp_sum(
    values: ArrayLike,
    *,
    lower: ArrayLike,
    upper: ArrayLike,
    epsilon: float,
    neighboring_relation: str = ZERO_OUT,
    missing: bool = False,
    unit: str | Persons = ROW,
    groups: Given = None,
    sample_weight: Given = None,
    max_sample_weight: float = 1.0,
    level: float = 0.9,
    random_state: Seed = None,
) -> PrivateStatistic:
    """Release a sum of values within declared bounds.

    Parameters
    ----------
    values : array-like of shape (n,) or (n, d)
        Numbers, NaN where one is missing.
    lower, upper, epsilon, neighboring_relation, missing, unit, groups, \
sample_weight, max_sample_weight, level, random_state
        As in `dp_mean`.

    Returns
    -------
    PrivateStatistic
        The sum of each column, weighted. The interval is for the data set's.

    Raises
    ------
    ValueError, BudgetExceededError
        As in `dp_mean`.

    Examples
    --------
    >>> from skdp.statistics import dp_sum
    >>> shown = dp_sum([1.0, 2.0, 3.0] * 100, lower=0, upper=4, epsilon=50.0)
    >>> bool(599 < shown.value < 601)
    True
    """
    return answer("dp_sum", SumConfig, locals())
