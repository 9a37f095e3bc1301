"""`dp_count` and `dp_histogram`: integers with geometric noise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from skdp.fitting.streams import Streams
from skdp.fitting.types import ArrayLike, Given, Seed
from skdp.fitting.validate import as_array, expected, integer, moderate_range
from skdp.relations import ROW, ZERO_OUT
from skdp.rows.persons import Persons
from skdp.statistics._noise import geometric_quantile
from skdp.statistics._query import Answer, PrivateStatistic, StatisticConfig, answer


@dataclass(frozen=True, kw_only=True)
class CountsConfig(StatisticConfig):
    """Counts of the values between edges, of each column; a row is in one bin of each."""

    edges: tuple[float, ...]

    def run(self, records: Any, streams: Streams, progress: Callable = iter) -> Answer:
        """Release the counts of values (n, d), (n_bins, d)."""
        values = records[0]
        edges = np.array(self.edges)
        there = ~np.isnan(values)
        bins = np.searchsorted(edges[1:-1], np.where(there, values, 0.0), side="right")
        n_bins = len(edges) - 1
        weights = np.where(there, self.weights_of(records), 0)
        # Doubles hold the sums of so many integers.
        counts = np.stack(
            [np.bincount(bins[:, j], weights[:, j], n_bins) for j in range(values.shape[1])], axis=1
        ).astype(np.int64)
        # Of one bin a record that is replaced moves the count by no more than it has rows.
        factor = self.factor if n_bins > 1 else 1
        mechanism = self.mechanism(factor * values.shape[1] * self.most_rows * self.steps)
        noisy = mechanism.release(counts, streams("noise"), charged=True)
        off = geometric_quantile(mechanism, 1.0 - self.level)
        unit = (self.weight_bound or 1.0) / self.steps
        found = (np.maximum(x, 0) * unit for x in (noisy, noisy - off, noisy + off))
        return Answer(*found, edges=edges)


@dataclass(frozen=True, kw_only=True)
class CountConfig(CountsConfig):
    """Counts of the values of each column that are there; of booleans, that are true."""

    edges: tuple[float, ...] = (-np.inf, np.inf)
    false = np.nan

    def run(self, records: Any, streams: Streams, progress: Callable = iter) -> Answer:
        """Release the counts of values (n, d), (d,)."""
        return Answer(*(x[0] for x in super().run(records, streams)[:3]))


def dp_count(
    values: ArrayLike,
    *,
    epsilon: float,
    neighboring_relation: str = ZERO_OUT,
    unit: str | Persons = ROW,
    groups: Given = None,
    sample_weight: Given = None,
    max_sample_weight: float = 1.0,
    level: float = 0.9,
    random_state: Seed = None,
) -> PrivateStatistic:
    """Release how many values there are, or of booleans how many are true.

    Parameters
    ----------
    values : array-like of shape (n,) or (n, d)
        Numbers, NaN where one is missing; or booleans: ``dp_count(ages > 65, ...)``.
    epsilon, neighboring_relation, unit, groups, sample_weight, max_sample_weight, level, \
random_state
        As in `dp_mean`.

    Returns
    -------
    PrivateStatistic
        Integers ≥ 0 as floats, or with weights their sum, one for each column. The interval is for
        the data set's.

    Raises
    ------
    ValueError, BudgetExceededError
        As in `dp_mean`.

    Notes
    -----
    A row is counted in at most d columns, a null record in none. So a record moves the counts by at
    most d in the L1 norm, where it is replaced too, and a person of k rows by kd. The noise is
    two-sided geometric, of scale d/ε; with weights in [0, W], rounded to 2²² steps, W times that.

    Examples
    --------
    >>> import numpy as np
    >>> from skdp.statistics import dp_count
    >>> dp_count(np.arange(100) < 30, epsilon=50.0).value
    30.0
    """
    return answer("dp_count", CountConfig, locals())


def dp_histogram(
    values: ArrayLike,
    bins: int | ArrayLike = 10,
    *,
    lower: float | None = None,
    upper: float | None = None,
    epsilon: float,
    neighboring_relation: str = ZERO_OUT,
    unit: str | Persons = ROW,
    groups: Given = None,
    sample_weight: Given = None,
    max_sample_weight: float = 1.0,
    level: float = 0.9,
    random_state: Seed = None,
) -> PrivateStatistic:
    """Release how many values are in each bin.

    Parameters
    ----------
    values : array-like of shape (n,) or (n, d)
        Numbers, NaN where one is missing. Values beyond the edges are in the bins at the ends.
    bins : int or array-like of shape (n_bins + 1,), default=10
        Number of equal bins between the bounds, or the edges, finite and ascending. A value at an
        edge is in the bin above it.
    lower, upper : float or None, default=None
        Declared bounds, public; given if and only if ``bins`` is a number.
    epsilon : float
        ε in [1e-6, 50], of all bins and columns together.
    neighboring_relation, unit, groups, sample_weight, max_sample_weight, \
level, random_state
        As in `dp_mean`.

    Returns
    -------
    PrivateStatistic
        Integers ≥ 0 as floats, or sums of weights, of shape (n_bins,) or (n_bins, d), and the
        ``edges``. The intervals are for the data set's counts, each by itself.

    Raises
    ------
    ValueError, BudgetExceededError
        As in `dp_mean`.

    Notes
    -----
    *Sensitivity.* A row is in at most one bin of each column, so all is as for `dp_count`, whatever
    the number of bins; but one that is replaced leaves a bin for another, and moves twice as much.

    Examples
    --------
    >>> import numpy as np
    >>> from skdp.statistics import dp_histogram
    >>> shown = dp_histogram(np.repeat([1.0, 3.0], [30, 70]), 2, lower=0, upper=4, epsilon=50.0)
    >>> shown.value, shown.edges
    (array([30., 70.]), array([0., 2., 4.]))
    """
    given = locals() | {"lower": 0.0, "upper": 1.0}  # of weights alone: the edges are all
    return answer("dp_histogram", CountsConfig, given, edges=_edges(bins, lower, upper))


def _edges(bins: Any, lower: Any, upper: Any) -> tuple[float, ...]:
    if np.ndim(bins) == 0:
        n_bins = integer(1, "or the edges", bins=bins)
        low, high = moderate_range(1, lower, upper)
        return tuple(np.linspace(low[0], high[0], n_bins + 1).tolist())
    for name, bound in (("lower", lower), ("upper", upper)):
        if bound is not None:
            raise expected("None where bins are edges", **{name: bound})
    edges = as_array(bins)
    if edges.ndim != 1 or len(edges) < 2 or edges.dtype.kind not in "iuf":
        raise expected("a number, or at least 2 edges", bins=bins)
    edges = edges.astype(np.float64)
    if not np.isfinite(edges).all() or not (np.diff(edges) > 0).all():
        raise expected("finite edges in ascending order", bins=bins)
    return tuple(edges.tolist())
