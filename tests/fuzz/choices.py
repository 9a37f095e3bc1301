"""Bytes as a source of choices: numbers, words, values of any type. Needs no fuzzer to replay."""

from __future__ import annotations

import datetime
import math
import struct
from collections.abc import Sequence
from typing import Any, TypeVar

T = TypeVar("T")

# What a message must never show. It has the same digits as a number and as a text.
SECRET = "8675309"

SPECIAL = (
    0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 1e-5, 1e-300, 5e-324, 1e300, 1.7e308, -1e308,
    math.nan, math.inf, -math.inf, 1e16, 0.05, 1.0 - 2**-53, 2.0**-1074, 100.0,
)  # fmt: skip


class Choices:
    """Choices that a string of bytes makes; zeros when it has come to its end."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def bytes(self, count: int) -> bytes:
        found = self._data[self._at : self._at + count]
        self._at += count
        return found.ljust(count, b"\0")

    def rest(self) -> bytes:
        found = self._data[self._at :]
        self._at = len(self._data)
        return found

    def below(self, bound: int) -> int:
        return int.from_bytes(self.bytes(1 if bound <= 256 else 4), "little") % bound

    def chance(self, one_in: int) -> bool:
        return self.below(one_in) == 1

    def pick(self, options: Sequence[T]) -> T:
        return options[self.below(len(options))]

    def number(self) -> float:
        """Any double at all, or one of those that break things, or a tame one."""
        kind = self.below(4)
        if kind == 0:
            return self.pick(SPECIAL)
        if kind == 1:
            return struct.unpack("<d", self.bytes(8))[0]
        return 10.0 ** (self.below(256) / 64 - 2)

    def text(self) -> str:
        return self.bytes(self.below(12)).decode("latin-1")

    def value(self, depth: int = 2) -> Any:
        """A value of any type that someone may pass as a parameter, or JSON may hold."""
        kind = self.below(12 if depth else 8)
        simple = {0: None, 1: True, 2: False, 3: 10**400}
        if kind in simple:
            return simple[kind]
        if kind == 4:
            return self.text()
        if kind == 5:
            return self.below(2**16) - 8
        if kind in (6, 7):
            return self.number()
        parts = [self.value(depth - 1) for _ in range(self.below(4))]
        if kind == 8:
            return tuple(parts)
        if kind == 9:
            return {str(i): part for i, part in enumerate(parts)}
        return parts

    def odd_value(self) -> Any:
        """A value of a type that JSON does not have."""
        import numpy as np

        numbers = [np.float32(0.5), np.int8(3), np.array(1.5), np.array([0.5, 2.0]), np.nan]
        objects = [datetime.date(2020, 1, 1), object(), range(3), slice(1), Ellipsis]
        return self.pick([1j, b"1", {1}, np.bool_(True), float, len, *numbers, *objects])
