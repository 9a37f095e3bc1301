"""A keyed hash of a sequence of texts and arrays."""

from __future__ import annotations

import hmac
from typing import Any

import numpy as np

from skdp.fitting.validate import expected

_BLOCK = 2**14  # rows that are hashed at once


def refused(what: str) -> ValueError:
    """Return the error for what cannot be proved equal to what it was."""
    return expected(
        f"None, because a parameter holds {what}, which cannot be told from another one of its "
        "kind: give functions of numbers, arrays and tensors",
        checkpoint="given",
    )


class Mac:
    """A keyed hash of a sequence of texts and arrays, each with its length before it."""

    def __init__(self, secret: bytes, text: str) -> None:
        self._mac = hmac.new(secret, digestmod="sha256")
        self.add_text(text)

    def add_text(self, text: str) -> None:
        """Take in a text."""
        content = text.encode("utf-8", "surrogatepass")
        self._mac.update(len(content).to_bytes(8, "little"))
        self._mac.update(content)

    def add(self, array: Any) -> None:
        """Take in an array, or what gives one by slices of its rows."""
        self.add_text(f"{array.dtype.str}{array.shape}")
        rows = array if array.shape else array[None]
        for start in range(0, len(rows), _BLOCK):
            block = np.ascontiguousarray(rows[start : start + _BLOCK])
            self._mac.update(block.reshape(-1).view(np.uint8).data)

    def hexdigest(self) -> str:
        """Return the hash."""
        return self._mac.hexdigest()
