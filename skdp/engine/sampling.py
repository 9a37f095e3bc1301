"""Which records take part in each step: all of them, or each by its own coin.

A step has a key, and the coin of a row is a function of that key and of the row's number: the same
in memory, in chunks of any size, on any machine and when a sum is made again. The coins of a block
of 2¹⁶ rows stand in one line: its gaps are made of AES-128 of the numbers of block and gap, and a
block costs as much as it has rows that take part.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from skdp.engine.coins import Integers
from skdp.engine.gaps import WORD, Gaps
from skdp.fitting.streams import SecureStream
from skdp.fitting.validate import in_range, integer

BLOCK = 2**16  # rows whose coins stand in one line
_SPARE = 3.0  # standard deviations: few lines then need gaps a second time
_CHUNK = 2**14  # gaps at once: in the cache
_WORDS = 2  # in a block of AES


@dataclass(frozen=True)
class FullBatch:
    """Every record in every step."""

    n_steps: int
    rate = 1.0

    def __post_init__(self) -> None:
        integer(1, n_steps=self.n_steps)

    def batches(self, n_rows: int, stream: SecureStream) -> Iterator[slice]:
        """Yield one slice over all rows per step."""
        for _ in range(self.n_steps):
            yield slice(0, n_rows)

    def draws(self, stream: SecureStream) -> Iterator[slice]:
        """Yield the same."""
        return self.batches(0, stream)

    def __str__(self) -> str:
        return f"full batch, {self.n_steps} steps"


@dataclass(frozen=True)
class Draw:
    """The coins of one step, for rows that take part with probability ``rate``.

    The key of 16 bytes is as secret as which rows take part: amplification rests on it.
    """

    rate: float
    key: bytes = field(repr=False)

    @classmethod
    def of(cls, rate: float, stream: SecureStream, n_steps: int = 1) -> list[Draw]:
        """Draw the keys of the next steps, one by one."""
        keys = stream.words(np.empty(2 * n_steps, dtype=np.uint64)).tobytes()
        return [cls(rate, keys[i : i + 16]) for i in range(0, len(keys), 16)]

    def between(self, start: int, stop: int) -> np.ndarray:
        """Numbers of the rows that take part from start up to stop, ascending, in int64."""
        return _numbers([self], start, stop)[0]


class Bits:
    """The random bits of one step: those of gaps, and further ones where a gap asks for them."""

    def __init__(self, key: bytes) -> None:
        self._cipher = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
        self._more: dict[int, Integers] = {}

    def words(self, counters: bytes) -> np.ndarray:
        """Return two words of 62 bits for each counter (`counters`)."""
        words = np.frombuffer(self._cipher.update(counters), "<u8")
        return (words >> (64 - WORD)).view(np.int64)

    def more(self, block: int) -> Integers:
        """Draw further bits for the gaps of a block of rows, one word at a time."""
        if block not in self._more:
            words = (self.words(counters(range(i, i + 1), [block], 1))[0] for i in count())
            self._more[block] = lambda *high: next(words)
        return self._more[block]


def counters(numbers: range, blocks: Sequence[int], which: int = 0) -> bytes:
    """Numbers of blocks of AES, for each of some blocks of rows: of gaps, or of further bits."""
    found = np.empty((len(blocks), len(numbers), 2), dtype="<u8")
    found[..., 0], found[..., 1] = numbers, 2 * np.array(blocks)[:, None] + which
    return found.tobytes()


@lru_cache(maxsize=16)
def _gaps(rate: float, limit: int) -> Gaps:
    return Gaps(rate, limit)


def _numbers(draws: Sequence[Draw], start: int, stop: int) -> list[np.ndarray]:
    """Numbers of the rows from start up to stop that take part in each of some steps."""
    rate, steps = draws[0].rate, [Bits(draw.key) for draw in draws]
    expected = rate * min(BLOCK, stop)
    size = 1 + int(expected + _SPARE * math.sqrt(expected)) // _WORDS
    at_once = max(1, _CHUNK // (_WORDS * size * len(steps)))
    blocks = range(start // BLOCK, -(-stop // BLOCK))
    groups = [blocks[first : first + at_once] for first in range(0, len(blocks), at_once)]
    taken = [_taken(rate, steps, some, stop, size) for some in groups or [blocks]]
    found = taken[0] if len(taken) == 1 else map(np.concatenate, zip(*taken, strict=True))
    return [rows[np.searchsorted(rows, start) :] if start else rows for rows in found]


def _taken(
    rate: float, steps: Sequence[Bits], blocks: Sequence[int], stop: int, size: int
) -> list[np.ndarray]:
    """Numbers of the rows of some blocks, up to stop, that take part in each of some steps."""
    starts = np.tile(np.array(blocks, dtype=np.int64) * BLOCK, len(steps))[:, None]
    stops = np.minimum(starts + BLOCK, stop)
    rows, last = starts[:, :0], starts - 1
    while (last < stops - 1).any():
        n = rows.shape[1] // _WORDS
        places = counters(range(n, n + size), blocks)
        words = np.array([of_step.words(places) for of_step in steps]).reshape(len(starts), -1)

        def more(line: int) -> Integers:
            step, block = divmod(line, len(blocks))
            return steps[step].more(blocks[block])

        moves = np.cumsum(_gaps(rate, BLOCK).of(words, more) + 1, axis=1)
        rows = np.hstack([rows, last + moves])
        last = rows[:, -1:]
    shape = len(steps), -1 if rows.size else 0
    there = (rows < stops).reshape(shape)
    return [own[own_there] for own, own_there in zip(rows.reshape(shape), there, strict=True)]


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

        The law is that of n coins of probability exactly ``rate``, in O(qn) (`skdp.engine.gaps`).
        """
        known: list[np.ndarray] = []
        generator, ahead = stream.generator, 1 + int(_CHUNK / (4.0 + self.rate * n_rows))
        for step in range(self.n_steps):
            if stream.generator is not generator:  # in a forked child, which tosses its own
                generator, known = stream.generator, []
            if not known:
                draws = Draw.of(self.rate, stream, min(ahead, self.n_steps - step))
                known = _numbers(draws, 0, n_rows)[::-1]
            yield known.pop()

    def draws(self, stream: SecureStream) -> Iterator[Draw]:
        """Yield the same batches, as what a machine that holds some of the rows needs to know."""
        for _ in range(self.n_steps):
            yield from Draw.of(self.rate, stream)

    def __str__(self) -> str:
        return f"Poisson sampling, rate {self.rate:.4g}, {self.n_steps} steps"


Sampling = FullBatch | PoissonSampling


def sampling(rate: float, n_steps: int) -> Sampling:
    """Return the sampling scheme of a rate: the full batch at 1."""
    return FullBatch(n_steps) if rate == 1.0 else PoissonSampling(rate, n_steps)
