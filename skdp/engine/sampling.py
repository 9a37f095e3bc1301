"""Which records take part in each step: all of them, or each by its own coin.

Fields are public and belong to the plan; the number of rows and the random stream are arguments.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from skdp._random import SecureStream
from skdp._validate import in_range, integer
from skdp.engine.gaps import Gaps

_SPARE = 3.0  # standard deviations: few batches then need gaps a second time
_CHUNK = 2**14  # gaps at once: in the cache


@dataclass(frozen=True)
class FullBatch:
    """Every record in every step."""

    n_steps: int
    rate = 1.0

    def __post_init__(self) -> None:
        integer(1, n_steps=self.n_steps)

    def batches(self, n_rows: int, stream: SecureStream) -> Iterator[slice]:
        """Yield one slice over all rows a step."""
        for _ in range(self.n_steps):
            yield slice(0, n_rows)

    def __str__(self) -> str:
        return f"full batch, {self.n_steps} steps"


@dataclass(frozen=True)
class PoissonSampling:
    """Each record independently with probability ``rate``, afresh in each step.

    A batch may be empty; the noisy step happens all the same, because whether it is empty is
    private. A shuffled loader is not Poisson sampling, and its accounting is another one.
    """

    rate: float
    n_steps: int

    def __post_init__(self) -> None:
        in_range(0.0, 1.0, rate=self.rate, closed="right")
        integer(1, n_steps=self.n_steps)

    def batches(self, n_rows: int, stream: SecureStream) -> Iterator[np.ndarray]:
        """Yield the row numbers of one batch per step, ascending, in int64.

        The law is that of n coins of probability exactly ``rate``, in O(qn): the gaps between the
        rows that take part are geometric (`skdp.engine.gaps`). The coins of all steps stand in one
        line, so that gaps run on from one step to the next, and those of many small batches are
        drawn at once.
        """
        n_coins, generator = n_rows * self.n_steps, stream.generator
        gaps, known = Gaps(self.rate, n_coins), np.empty(0, dtype=np.int64)
        last = -1  # coin that has been tossed
        for start in (step * n_rows for step in range(self.n_steps)):
            if stream.generator is not generator:  # in a forked child, which tosses its own
                generator, known, last = stream.generator, known[:0], start - 1
            while last < start + n_rows - 1:
                expected = self.rate * (n_coins - 1 - last)
                size = min(1 + int(expected + _SPARE * math.sqrt(expected)), _CHUNK)
                more = last + np.cumsum(gaps.draw(size, generator.integers) + 1)
                known, last = np.append(known, more), int(more[-1])
            n_here = np.searchsorted(known, start + n_rows)
            yield known[:n_here] - start
            known = known[n_here:]

    def __str__(self) -> str:
        return f"Poisson sampling, rate {self.rate:.4g}, {self.n_steps} steps"


Sampling = FullBatch | PoissonSampling


def sampling(rate: float, n_steps: int) -> Sampling:
    """Return the sampling scheme of a rate: the full batch at 1."""
    return FullBatch(n_steps) if rate == 1.0 else PoissonSampling(rate, n_steps)
