"""Counts of targets, or of exposures, by magnitude."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

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
