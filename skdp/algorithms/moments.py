"""Means and standard deviations of features within declared bounds, by one noisy sum.

With z in [-1, 1] a value clipped and scaled by its bounds, and m = 0 where it is missing, the sum
over the rows is Σ (m z, m (z² - ½), m/2), and all else follows from its release. Bound and errors:
Notes of `skdp.preprocessing.DPStandardScaler`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from skdp.algorithms.parts.gaussian_runs import FLOAT, OneSum
from skdp.engine.loop import Progress
from skdp.fitting.streams import Streams
from skdp.rows.bounded_sum import CHUNK_ROWS
from skdp.rows.lazy_rows import rows_of
from skdp.rows.person_sums import RowSum
from skdp.rows.records import PlainBatch, PlainRows

COUNT = 0.5  # weight of a value's presence in a row's share
LEAST_COUNT = 4.0  # in standard deviations of its noise
LEAST_VARIANCE = 1e-12  # of values in [-1, 1]: what rounding leaves of a constant


class Moments(NamedTuple):
    """Released means and standard deviations, (n_features,) each."""

    mean: np.ndarray
    deviation: np.ndarray


@dataclass(frozen=True)
class MomentSum(RowSum):
    """Σ (m z, m (z² - ½), m/2), z the values scaled to [-1, 1] and m = 0 for a missing one."""

    lower: tuple[float, ...]
    upper: tuple[float, ...]
    apart = 2.0 / math.sqrt(1.5)  # replacing a row moves the sum by at most 2√d

    @property
    def record_bound(self) -> float:
        """Bound on the norm of one row's share: each of the d terms z⁴ + ½ is at most 3/2."""
        return math.sqrt(1.5 * len(self.lower))

    def shape(self, theta_shape: tuple[int, ...]) -> tuple[int, ...]:
        """Three numbers for each feature."""
        return (3 * len(self.lower),)

    def records(self, theta: np.ndarray, chunk: PlainBatch) -> np.ndarray:
        """Return the terms (m, 3d), each a function of its own row alone."""
        lower, upper = np.array(self.lower), np.array(self.upper)
        half, middle = upper / 2 - lower / 2, upper / 2 + lower / 2
        # Clipped before, so that nothing overflows; and after, for rounding to exceed nothing.
        z = np.clip((np.clip(chunk.rows, lower, upper) - middle) / half, -1.0, 1.0)
        present = np.logical_not(np.isnan(z))
        z = np.where(present, z, 0.0)
        return np.hstack([z, present * (z * z - 0.5), COUNT * present])


@dataclass(frozen=True, kw_only=True)
class MomentsConfig(OneSum):
    """Public facts of a run, as in `OneSum`, with declared bounds lower < upper of the features."""

    lower: tuple[float, ...]
    upper: tuple[float, ...]
    asks_sums: ClassVar[bool] = True

    @property
    def sums(self) -> MomentSum:
        """The private value."""
        return MomentSum(self.lower, self.upper)

    @property
    def memory(self) -> int:
        """Bytes of a chunk of rows at work, about."""
        return 6 * FLOAT * CHUNK_ROWS * self.n_features

    def run(
        self, records: tuple[np.ndarray, ...], streams: Streams, progress: Progress = iter
    ) -> Moments:
        """Release the moments of rows (n, n_features), NaN if missing; uses the stream "noise"."""
        rows = rows_of(records, PlainRows.of)
        released, scale = self.released(rows, streams, progress)
        mean, variance = mean_and_variance(released.reshape(3, -1), scale)
        lower, upper = np.array(self.lower), np.array(self.upper)
        half = upper / 2 - lower / 2
        return Moments(np.clip(lower + half * (1.0 + mean), lower, upper), half * np.sqrt(variance))


def mean_and_variance(moments: np.ndarray, s: float) -> tuple[np.ndarray, np.ndarray]:
    """Means and variances on [-1, 1] from noisy sums (3, n_features) with noise of scale s."""
    S, Q, N = moments[0], moments[1], moments[2] / COUNT
    enough = max(0.5, LEAST_COUNT * s / COUNT) < N
    n = np.where(enough, N, 1.0)
    mean = np.clip(S / n, -1.0, 1.0)
    q = np.clip(Q / n + 0.5, 0.0, 1.0)
    e = s / n * np.sqrt(1 + 4 * mean**2 + 4 * (2 * mean**2 - q + 0.5) ** 2)
    variance = np.clip(q - mean**2, np.clip(e, LEAST_VARIANCE, 1.0), 1.0)
    return np.where(enough, mean, 0.0), np.where(enough, variance, 1.0)
