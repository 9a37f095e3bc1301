"""Counts of targets, or of exposures, by magnitude, and what noisy ones tell."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.stats import poisson

from skdp.rows.bounded_sum import POSITIVE
from skdp.rows.person_sums import RowSum
from skdp.rows.records import LinearBatch

MAGNITUDES = range(-100, 101)  # binary exponents that are told apart


@dataclass(frozen=True)
class MagnitudeSum(RowSum):
    """Number of records by the binary exponent of their target; a target of 0 has none.

    ``of_offset`` takes e^o instead, for the offset o beside a target: an exposure, as its
    logarithm.
    """

    of_offset: bool = False
    apart = together = POSITIVE  # one-hot rows

    @property
    def record_bound(self) -> float:
        """A record counts once."""
        return 1.0

    def shape(self, theta_shape: tuple[int, ...]) -> tuple[int, ...]:
        """One count for each exponent."""
        return (len(MAGNITUDES),)

    def records(self, theta: np.ndarray, chunk: LinearBatch) -> np.ndarray:
        """Return the terms, (m, n_exponents)."""
        targets = chunk.targets[:, int(self.of_offset)]
        if self.of_offset:
            targets = np.exp(np.clip(targets, -700.0, 700.0))
        _, exponents = np.frexp(np.nan_to_num(targets))  # 2^(e-1) <= |y| < 2^e
        place = np.clip(exponents - MAGNITUDES[0], 0, len(MAGNITUDES) - 1)
        return np.eye(len(MAGNITUDES))[place] * chunk.weighted(targets != 0.0)[:, None]


LOUD = 4.0  # standard deviations of noise beyond which a count is one


def mean_logarithm(counts: np.ndarray, noise: float) -> tuple[float, float]:
    """Mean and variance of ln e from noisy counts of e by binary exponent, as if uniform in each.

    Both are 0 where all counts are dominated by noise.
    """
    sure = np.where(counts > LOUD * noise, counts, 0.0)
    if not sure.any():
        return 0.0, 0.0
    weights, logs = sure / sure.sum(), math.log(2.0) * (np.array(MAGNITUDES) - 0.5)
    mean = float(weights @ logs)
    return mean, float(weights @ (logs - mean) ** 2) + math.log(2.0) ** 2 / 12.0


BEYOND = 0.05  # of the targets, at most, are larger than their unit


def unit_of(counts: np.ndarray, noise: float) -> float | None:
    """Power of two that all but a few targets are below, from noisy counts by binary exponent.

    Targets of one scale have two or three exponents. None where no two neighbours hold more than
    their noise may.
    """
    pairs = counts[:-1] + counts[1:]
    most = int(pairs.argmax())
    if pairs[most] <= LOUD * math.sqrt(2.0) * noise:
        return None
    sure = np.where(counts > LOUD * noise, counts, 0.0)
    sure[most : most + 2] = np.maximum(counts[most : most + 2], 0.0)
    at_least = np.cumsum(sure[::-1])[::-1]
    return 2.0 ** MAGNITUDES[int(np.flatnonzero(at_least > BEYOND * at_least[0])[-1])]


SEEN = 3.0  # deviations of the noise, beyond which a number of counts is seen
OCTAVES = 20  # below the largest count, down to which counts are seen and cuts are tried


def told_of_counts(
    counts: np.ndarray, noise: float, n: float, of_scores: float, most: float
) -> tuple[float, float, float] | None:
    """Mean of counts, the cut c of least error, and the square of what it hides of scores, over c².

    ``counts`` are noisy ones by binary exponent, of n rows up to a largest count ``most``, and
    ``of_scores`` is the norm of the noise of all scores together, over c. What is hidden moves
    scores as if it were of rows that lie a deviation off in one direction: counts beyond c, taken
    to be at the upper end of their range, with the mean in its middle; and what Poisson's law has
    beyond c, as its mean is taken out of scores, and counts may have another law. None where no
    number of counts is beyond its noise.
    """
    exponents, top = np.array(MAGNITUDES), math.log2(most)
    possible = (exponents <= top + 1.0) & (exponents >= top - OCTAVES)
    seen = possible & (counts > SEEN * noise)
    if not seen.any():
        return None
    size = np.append(np.minimum(2.0 ** exponents[seen], most), 0.0)
    rows = np.append(counts[seen], max(n - counts[seen].sum(), 0.0))
    mean = 0.75 * float(size @ rows / rows.sum())
    c, reach = most * 2.0 ** (-0.5 * np.arange(2 * OCTAVES)), 9.0 * math.sqrt(mean) + 30.0
    hidden = np.maximum(np.abs(size - mean) - c[:, None], 0.0) @ rows
    y = np.arange(max(0, math.floor(mean - reach)), math.ceil(mean + reach))
    hidden += n * (np.maximum(np.abs(y - mean) - c[:, None], 0.0) @ poisson.pmf(y, mean))
    best = np.argmin((of_scores * c) ** 2 + hidden**2)
    return mean, float(c[best]), float((hidden[best] / c[best]) ** 2)
