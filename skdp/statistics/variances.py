"""`dp_var`: a variance about a place that is found first."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from skdp.fitting.streams import Streams
from skdp.fitting.types import ArrayLike, Given, Seed
from skdp.relations import ROW, ZERO_OUT
from skdp.rows.persons import Persons
from skdp.statistics._query import Answer, PrivateStatistic, answer
from skdp.statistics.moments import MeanConfig

_SHARES = 0.0, 0.01, 0.02, 0.03, 0.05, 0.08, 0.1  # of ε for the place
_PRIVATE_SHARE = 0.1  # where the number of rows is private


@dataclass(frozen=True, kw_only=True)
class VarConfig(MeanConfig):
    """Variances of each column, about a place that is found first."""

    grid_bits: ClassVar[int] = 22

    @property
    def place_share(self) -> float:
        """Share of ε for the means: the one with the least noise over means of all places."""
        if not self.n:
            return _PRIVATE_SHARE
        unit = self.neighboring_relation.factor / 2 * len(self.lower) / (self.n * self.epsilon)
        off = np.linspace(0.0, 0.5, 11)  # of the mean, from the middle of the range

        def noise(share: float) -> float:
            room = 2 * unit / share if share else 1.0
            return float(np.log(np.minimum(1.0, 0.5 + off + room) ** 2 / (1 - share)).mean())

        return min(_SHARES, key=noise)

    def run(self, records: Any, streams: Streams, progress: Callable = iter) -> Answer:
        """Release the variances of values (n, d), (d,)."""
        sums_of, noise = self.sums_of(records[0], self.weights_of(records)), streams("noise")
        place, rest, means = self.place_share * self.epsilon, self.epsilon, None
        if place:
            rest = math.nextafter(self.epsilon - place, 0.0)
            means = self.shares(sums_of.S, sums_of.counts, place, noise)
        found = self.variances(sums_of, means, rest, 1.0 - self.level, noise)
        return Answer(*(self.widths**2 * x for x in found.T))

    def doubts(self, answer: Answer) -> Iterable[tuple[int, str]]:
        """Variances that are 0, or the largest that there can be."""
        return self.of_variances(answer.low, answer.high)


def dp_var(
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
    """Release a variance (mean squared distance from the mean) of values within declared bounds.

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
        The variance of each column, divided by n, or by the sum of the weights. The interval is for
        the data set's.

    Raises
    ------
    ValueError, BudgetExceededError
        As in `dp_mean`.

    Notes
    -----
    A share of ε, at most a tenth, releases an interval [a, b] for the mean as in `dp_mean`; the
    rest Σ (t - m)², at its minimum over m in [a, b], to which a record adds at most the square of
    the largest distance from [a, b]: about half the range where the mean is in its middle. The
    interval allows for a mean outside [a, b]. Proofs: docs/derivations.md.

    Examples
    --------
    >>> from skdp.statistics import dp_var
    >>> shown = dp_var([1.0, 3.0] * 200, lower=0, upper=4, epsilon=50.0)
    >>> bool(0.99 < shown.value < 1.01)
    True
    """
    return answer("dp_var", VarConfig, locals())
