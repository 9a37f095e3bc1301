"""Random bits for noise: an AES-128 key stream per purpose, keyed by the operating system.

Noise that can be predicted protects nobody. A numpy or torch generator is neither unpredictable
nor, unseeded, always keyed afresh; so noise and sampling draw from AES-128 in counter mode
(randomgen; a test holds it against FIPS 197), whose key is

- without a seed, 32 bytes from the operating system;
- with a seed, a hash of the seed *and* of everything that affects the queries: the data, the
  parameters, the class, the version. Two folds, or two neighbouring data sets, then never share
  noise (whoever subtracts two fits with the same noise reads the data). It is still no guarantee:
  whoever guesses the seed can recompute the noise, so a seeded report says ``valid=False``.

Neither key nor hash is kept on anything a user can reach; a stream refuses to be pickled, and takes
a new key in a forked child.

>>> from skdp._random import Streams
>>> a, b = Streams(b"seed"), Streams(b"seed")
>>> bool((a("noise").normal(3) == b("noise").normal(3)).all())
True
>>> bool((Streams(b"seed")("noise").normal(3) == a("sampling").normal(3)).any())
False
"""

from __future__ import annotations

import hashlib
import os
from typing import Any, NoReturn

import numpy as np
from randomgen import AESCounter


class SecureStream:
    """A stream of cryptographically strong random numbers (AES-128 in counter mode).

    Parameters
    ----------
    key : bytes of length 16
    """

    def __init__(self, key: bytes) -> None:
        self._scratch = np.empty(0)
        self._rekey(key)

    def _rekey(self, key: bytes) -> None:
        self._pid = os.getpid()
        aes: Any = AESCounter(key=int.from_bytes(key, "little"), counter=0)
        self._generator = np.random.Generator(aes)

    @property
    def generator(self) -> np.random.Generator:
        """The numpy view of the stream; in a forked child, of a new one."""
        if os.getpid() != self._pid:  # a child must never repeat its parent's noise
            self._rekey(os.urandom(16))
        return self._generator

    def normal(self, shape: int | tuple[int, ...]) -> np.ndarray:
        """Draw standard normal numbers in float64."""
        return self.generator.standard_normal(shape)

    def scratch_uniform(self, size: int) -> np.ndarray:
        """Draw numbers uniform on [0, 1) into an array that the next call overwrites.

        Fresh memory for much noise costs as much as the noise itself.
        """
        if len(self._scratch) != size:
            self._scratch = np.empty(size)
        self.generator.random(out=self._scratch)
        return self._scratch

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "A secure random stream cannot be pickled or copied: its state is a secret."
        )


class Streams:
    """The streams of one fit, one per purpose, all from one master key.

    Parameters
    ----------
    seed_material : bytes or None
        None keys the streams from the operating system; see `seed_material` for the other case.
    """

    def __init__(self, seed_material: bytes | None = None) -> None:
        self._pid = os.getpid()
        self._master = os.urandom(32) if seed_material is None else _hash(b"key", seed_material)
        self._asked: set[str] = set()

    def __call__(self, purpose: str) -> SecureStream:
        """Return the stream for one purpose; once, because noise must never be used again."""
        if os.getpid() != self._pid:
            self.__init__()
        if purpose in self._asked:
            raise RuntimeError(f"The stream for {purpose!r} has already been handed out.")
        self._asked.add(purpose)
        return SecureStream(_hash(self._master, purpose.encode())[:16])

    __reduce__ = SecureStream.__reduce__


def seed_material(seed: int, name: str, parameters: dict[str, Any], *arrays: np.ndarray) -> bytes:
    """Hash a seed with all that affects the queries, so that no two data sets share noise."""
    described = [f"{key}={value!r}" for key, value in sorted(parameters.items())]
    parts: list[Any] = [str(seed).encode(), name.encode(), "\0".join(described).encode()]
    for array in arrays:
        parts.append(f"{array.dtype.str}{array.shape}".encode())
        parts.append(np.ascontiguousarray(array).reshape(-1).view(np.uint8))
    return _hash(*parts)


def _hash(*parts: Any) -> bytes:
    digest = hashlib.sha256()
    for part in parts:  # each part's length first: no two lists of parts run together alike
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.digest()
