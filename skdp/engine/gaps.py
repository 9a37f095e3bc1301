"""Exact gaps between the rows of a Poisson sample: P(gap ≥ g) = (1 − q)^g, q exactly the double.

Whether each of n rows takes part is one coin per row; the gaps between those that do are
independent and geometric, so qn of them are enough (Bringmann & Friedrich, *Exact and Efficient
Generation of Geometric Random Variates and Random Graphs*, ICALP 2013). A gap is found by
inversion,

    gap = #{g ≥ 1: U < (1 − q)^g},

from a uniform number U of which no more bits are drawn than it takes. Doubles tell from its first
62 bits where it lies, except next to one of the boundaries (1 − q)^g: there more bits are drawn and
compared with integers that enclose the boundary. So no rounding changes the law.

>>> import numpy as np
>>> from skdp.fitting.streams import SecureStream
>>> from skdp.engine.gaps import Gaps
>>> random = SecureStream(bytes(16)).generator.integers
>>> gaps = Gaps(0.25, limit=1000).of(random(1 << 62, size=(1, 10_000)), lambda line: random)
>>> bool(2.8 < gaps.mean() < 3.2)  # (1 − q)/q
True
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from skdp.engine.coins import Integers

WORD = 62  # bits of U that are drawn at once
# By how much ln U may be off in doubles where the first bits of U are at least _LEAST: more bits
# add less than 2/_LEAST, |ln U| is below 43, and a relative error of 2⁻³⁸ is generous for any
# library.
_LEAST, _ERROR = 1 << 40, 2.0**-32
_GUARD = 128  # powers with exponents below 2⁶³ are enclosed to within 2⁻⁶² of the last bit of U


class Gaps:
    """Numbers of rows that are passed over before each row that takes part, at a rate q in (0, 1].

    Gaps of a length of ``limit`` or more are not told apart.
    """

    def __init__(self, rate: float, limit: int) -> None:
        self._absent, self._limit = 1 - Fraction(rate), limit
        with np.errstate(divide="ignore"):
            self._decay = -np.log1p(-rate)  # infinite for q = 1: all gaps are 0

    def of(self, words: np.ndarray, more: Callable[[int], Integers]) -> np.ndarray:
        """Independent gaps in int64, from the first 62 bits of U of each gap of each line.

        ``more`` gives what draws a line's further bits: lines do not depend on each other.
        """
        gaps, certain = self.computed(words)
        for i, j in np.argwhere(~certain):
            gaps[i, j] = self._decided(int(words[i, j]), more(i))
        return gaps

    def computed(self, words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Gaps of the first bits of U in doubles, and whether all numbers with these have them."""
        # Rates near 0 overflow to infinities and NaN, which are not certain.
        with np.errstate(all="ignore"):
            margin = _ERROR / self._decay
            most = margin - np.log(words * 2.0**-WORD) / self._decay
            gaps = np.floor(most)
            certain = (most - gaps >= 2 * margin) & (words >= _LEAST)
        return np.fmin(gaps, self._limit).astype(np.int64), certain

    def _decided(self, bits: int, random: Integers) -> int:
        """The gap of U = 0.bits…, by bisection and as many more bits as it takes."""
        n_bits, least, most = WORD, 0, self._limit
        while least < most:
            g = (least + most + 1) // 2
            lower, upper = enclosed_power(self._absent, g, n_bits + _GUARD)
            if (bits + 1) << _GUARD <= lower:
                least = g
            elif bits << _GUARD >= upper:
                most = g - 1
            else:
                bits, n_bits = bits << WORD | int(random(1 << WORD)), n_bits + WORD
        return least


def enclosed_power(base: Fraction, g: int, bits: int) -> tuple[int, int]:
    """Integers below and above baseᵍ 2^bits, base in [0, 1]: equal where it is one, else near."""
    lower = upper = one = 1 << bits
    low, high = math.floor(one * base), math.ceil(one * base)
    while g:
        if g % 2:
            lower, upper = lower * low >> bits, -(-upper * high >> bits)
        low, high = low * low >> bits, -(-high * high >> bits)
        g //= 2
    return lower, upper
