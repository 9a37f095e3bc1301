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
from skdp.statistics.moments import rounded


@dataclass(frozen=True, kw_only=True)
class SumConfig(StatisticConfig):
    """Sums of each column."""

    divides: ClassVar[bool] = True

    def run(self, records: Any, streams: Streams, progress: Callable = iter) -> Answer:
        """Release the sums of values (n, d), (d,)."""
        lower, upper, G = np.array(self.lower), np.array(self.upper), self.grid
        W = self.weight_bound or 1.0
        if self.n:
            t, _ = self.on_grid(records[0])
            unit, first, limits = self.widths / G, self.n * lower, (self.n * lower, self.n * upper)
            moved = self.factor * G // 2 * len(lower)  # of t - G/2, as for the mean
        else:
            # From 0, which a null record adds; their number is private.
            null = self.neighboring_relation.null_record
            span = np.maximum(upper, 0) - np.minimum(lower, 0)
            most = np.maximum(np.abs(lower), np.abs(upper)) if null else span / 2
            unit, first = most / (G // 2), np.zeros(len(lower))
            limits = np.where(lower < 0, -np.inf, 0.0), np.where(upper > 0, np.inf, 0.0)
            low, high = np.rint(lower / unit), np.rint(upper / unit)
            there = ~np.isnan(records[0])
            t = np.clip(np.rint(np.where(there, records[0], 0.0) / unit), low, high)
            share = self.weights_of(records) / self.steps
            t, unit = np.rint(np.where(there, t, 0.0) * share).astype(np.int64), unit * W
            each = np.maximum(-low, high) if null else np.maximum(high, 0) - np.minimum(low, 0)
            moved = int(each.sum()) * self.most_rows
        mechanism = self.mechanism(moved)
        noisy = mechanism.release(sums(t), streams("noise"), charged=True)
        off = geometric_quantile(mechanism, 1.0 - self.level)
        return Answer(
            *(np.clip(first + unit * x, *limits) for x in (noisy, noisy - off, noisy + off))
        )

    def doubts(self, answer: Answer) -> Iterable[tuple[int, str]]:
        """Sums of a public number of values that are all at a bound."""
        if not self.n:
            return ()
        means = (x / self.n for x in (answer.low, answer.high))
        return self.at_bounds(*(rounded((x - np.array(self.lower)) / self.widths) for x in means))


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
    ValueError
        If a parameter or the input is invalid; nothing has been spent then.
    BudgetExceededError
        If an open `PrivacyLedger` refuses; no value has been used then.

    Notes
    -----
    *Sensitivity.* With a public n the sum is that of the distances from the middle of the bounds,
    as in `dp_mean`: half their width under zero_out, all of it under replace_one. Otherwise a
    record adds what it holds: max(|lower|, |upper|), for a person of k rows k times as much; a
    record that is replaced moves the sum by max(upper, 0) - min(lower, 0). So it is, W times, where
    each value is multiplied by a weight in [0, W].

    Examples
    --------
    >>> from skdp.statistics import dp_sum
    >>> shown = dp_sum([1.0, 2.0, 3.0] * 100, lower=0, upper=4, epsilon=50.0)
    >>> bool(599 < shown.value < 601)
    True
    """
    return answer("dp_sum", SumConfig, locals())
