"""Exact random choices from random bits and integer comparisons alone: no cap, no rounding.

A coin of probability exp(−x) is made of coins of probability x ≤ 1 (Canonne, Kamath & Steinke, *The
Discrete Gaussian for Differential Privacy*, NeurIPS 2020, Algorithm 1), and those of an integer
comparison where x is a fraction. So laws here are exact given ideal random bits, and a test walks
their decision trees in fractions. Integers below a bound are those of numpy's `Generator.integers`,
exactly uniform by rejection (Lemire, *Fast Random Integer Generation in an Interval*, ACM TOMACS
2019): each word of the AES stream is used once.

>>> import numpy as np
>>> from skdp.fitting.streams import SecureStream
>>> from skdp.engine.coins import exp_coins
>>> random = SecureStream(bytes(16)).generator.integers
>>> half = exp_coins(lambda at: random(2, size=len(at)) == 0, 10_000, random)
>>> bool(abs(half.mean() - np.exp(-0.5)) < 0.02)
True
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from decimal import Decimal, localcontext
from itertools import accumulate
from typing import Self

import numpy as np

Coin = Callable[[np.ndarray], np.ndarray]  # positions -> one toss for each, its own probability x
Integers = Callable[..., np.ndarray]  # numpy's Generator.integers

_WORD = 62  # bits that a choice looks at first
_FEW = 16  # numbers that are looked up one by one


def exp_coins(coin: Coin, size: int, random: Integers) -> np.ndarray:
    """Toss coins of probability exp(−x), given coins of probability x ≤ 1 (Algorithm 1).

    The first k at which a coin of probability x/k fails is beyond k with probability xᵏ/k!, so it
    is odd with probability 1 − x + x²/2 − … = exp(−x).
    """
    result, at, k = np.zeros(size, dtype=bool), np.arange(size), 1
    while at.size:
        passed = coin(at)
        if k > 1:
            passed &= random(k, size=len(at)) == 0
        result[at[~passed]] = k % 2 == 1
        at, k = at[passed], k + 1
    return result


def first_accepted(candidates: Callable[[int], np.ndarray], needed: float, size: int) -> np.ndarray:
    """Draw the first accepted ones, of which ``needed`` candidates each are about enough."""
    found = np.empty(0, dtype=np.int64)
    while len(found) < size:
        # However many are drawn at once, each is a fresh one, and the first to pass are kept.
        found = np.append(found, candidates(int(needed * (size - len(found))) + 16))
    return found[:size]


def always(at: np.ndarray) -> np.ndarray:
    """Coin of probability 1."""
    return np.ones(len(at), dtype=bool)


def fractions(numerators: np.ndarray, bits: int, random: Integers) -> Coin:
    """Coins of probability numerators/2^bits, bits ≤ 62."""

    def coin(at: np.ndarray) -> np.ndarray:
        return random(np.int64(1) << bits, size=len(at)) < numerators[at]

    return coin


def geometric(size: int, random: Integers) -> np.ndarray:
    """Number of successes before the first failure, each with probability exp(−1)."""
    count, at = np.zeros(size, dtype=np.int64), np.arange(size)
    while at.size:
        at = at[exp_coins(always, len(at), random)]
        count[at] += 1
    return count


def all_pass(coin: Coin, times: np.ndarray, random: Integers) -> np.ndarray:
    """Whether a number of coins of probability exp(−x) all succeed; each position has its own."""
    passed, at, tossed = np.ones(len(times), dtype=bool), np.flatnonzero(times > 0), 0
    while at.size:
        here = at
        success = exp_coins(lambda j, here=here: coin(here[j]), len(at), random)
        passed[at[~success]] = False
        tossed += 1
        at = at[success & (times[at] > tossed)]
    return passed


def exp_minus(whole: np.ndarray, numerators: np.ndarray, bits: int, random: Integers) -> np.ndarray:
    """Toss coins of probability exp(−(whole + numerators/2^bits)), both ≥ 0, bits ≤ 62."""
    passed = exp_coins(fractions(numerators, bits, random), len(whole), random)
    at = np.flatnonzero(passed)
    passed[at] = all_pass(always, whole[at], random)
    return passed


class Choice:
    """Choose one of several with probabilities in proportion to integer weights ≥ 0 of any size.

    A uniform number of as many bits as their sum has is compared with the partial sums, from its
    first bits on and no further than need be; one beyond the sum is drawn again.
    """

    def __init__(self, weights: list[int]) -> None:
        self._sums = list(accumulate(weights))
        self._later = max(self._sums[-1].bit_length() - _WORD, 0)
        self._words = [total >> self._later for total in self._sums]

    @classmethod
    def of(cls, weights: list[Decimal]) -> Self:
        """Choice of positive weights, each rounded by a relative 2^−100 or less."""
        with localcontext(prec=60):
            least = min(weights)
            return cls([int(weight / least * 2**120) for weight in weights])

    def draw(self, size: int, random: Integers) -> np.ndarray:
        """Indices, (size,)."""
        found, bits = np.empty(0, dtype=np.int64), self._sums[-1].bit_length() - self._later
        while len(found) < size:
            # However many are drawn at once, each is a fresh one.
            words = random(1 << bits, size=size - len(found))
            indices = self._indices(words, random)
            found = np.append(found, indices[indices < len(self._sums)])
        return found

    def _indices(self, words: np.ndarray, random: Integers) -> np.ndarray:
        if len(words) < _FEW:
            return np.array([self._index(word, random) for word in words.tolist()], dtype=np.int64)
        sums = np.array(self._words)
        indices = np.searchsorted(sums, words, side="right")
        if self._later:
            for at in np.flatnonzero(sums[indices - 1] == words):
                indices[at] = self._index(int(words[at]), random)
        return indices

    def _index(self, word: int, random: Integers) -> int:
        """Index of a number of which the first bits are known."""
        chosen = bisect_right(self._words, word)
        if not (self._later and chosen and self._words[chosen - 1] == word):
            return chosen
        for start in range(0, self._later, _WORD):
            n = min(_WORD, self._later - start)
            word = (word << n) | int(random(1 << n))
        return bisect_right(self._sums, word)
