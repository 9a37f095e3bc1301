"""Single statistics of private columns: declared bounds and ε in, value, interval and report out.

Every function charges open ledgers before it uses a value, sees the marks of a `DisjointSplit`,
and works out its own sensitivity. All are pure ε-DP; `dp_covariance` takes a δ too. Pure noise is
on integers, so that the law of what is released is the one that is stated (docs/privacy.md §8).

>>> import numpy as np
>>> from skdp.statistics import dp_mean
>>> ages = np.random.default_rng(0).normal(40.0, 10.0, 5000)
>>> mean = dp_mean(ages, lower=0, upper=120, epsilon=0.5)
>>> bool(abs(mean.value - 40) < 1), round(mean.privacy_.epsilon, 9), mean.privacy_.delta
(True, 0.5, 0.0)
"""

from skdp.statistics._query import PrivateStatistic
from skdp.statistics.counts import dp_count, dp_histogram
from skdp.statistics.covariances import dp_covariance
from skdp.statistics.moments import dp_mean
from skdp.statistics.quantiles import dp_quantile
from skdp.statistics.totals import dp_sum
from skdp.statistics.variances import dp_var

__all__ = [
    "PrivateStatistic",
    "dp_count",
    "dp_covariance",
    "dp_histogram",
    "dp_mean",
    "dp_quantile",
    "dp_sum",
    "dp_var",
]
