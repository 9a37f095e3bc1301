"""Random bits for noise: an AES-128 key stream per purpose, keyed by the operating system.

Noise that can be predicted protects no one. A numpy or torch generator is neither unpredictable
nor, unseeded, always keyed afresh; so noise and sampling draw from AES-128 in counter mode
(OpenSSL's for many normals, randomgen's behind numpy's Generator; tests hold both against FIPS 197
and SP 800-38A), whose key is

- without a seed, 32 bytes from the operating system;
- with a seed, a hash of the seed *and* of everything that affects the queries: the data, the
  parameters, the class, the version. Two folds, or two neighbouring data sets, then never share
  noise (whoever subtracts two fits with the same noise reads the data). It is still no guarantee:
  whoever guesses the seed can recompute the noise, so a seeded report says ``valid=False``.

Neither key nor hash is kept on anything a user can reach; a stream refuses to be pickled, and takes
a new key in a forked child.

>>> from skdp.fitting.streams import Streams
>>> a, b = Streams(b"seed"), Streams(b"seed")
>>> bool((a("noise").normal(3) == b("noise").normal(3)).all())
True
>>> bool((Streams(b"seed")("noise").normal(3) == a("sampling").normal(3)).any())
False
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable
from functools import cached_property
from typing import Any, NoReturn

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from randomgen import AESCounter

MANY = 2**13  # normals from here on are made in vectors

RARE_BITS = 20  # a uniform number below 2⁻²⁰ gets more bits

_PAIRS = 2**14  # made at once, so that the work stays in the cache

_ZEROS = memoryview(bytes(8 * _PAIRS))

_TURN_BITS = 13

_TURNS = np.exp(2j * np.pi * np.arange(2**_TURN_BITS) / 2**_TURN_BITS)


_forks = 0


def _forked() -> None:
    global _forks
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def this_process() -> tuple[int, int]:
    """Tell this process from those that it was forked from.

    Its number alone does not: numbers are given again, and each namespace begins with 1.
    """
    return os.getpid(), _forks


class SecureStream:
    """A stream of cryptographically strong random numbers (AES-128 in counter mode)."""

    def __init__(self, key: bytes) -> None:
        self._process = this_process()
        aes: Any = AESCounter(key=int.from_bytes(key, "little"), counter=0)
        self._generator = np.random.Generator(aes)
        self._bits = key_stream(hashed(key, b"words")[:16])  # never the bits of the generator

    def _here(self) -> None:
        if this_process() != self._process:  # a child must never repeat its parent's noise
            self.__init__(os.urandom(16))

    @property
    def generator(self) -> np.random.Generator:
        """The numpy view of the stream; in a forked child, of a new one."""
        self._here()
        return self._generator

    def words(self, out: np.ndarray) -> np.ndarray:
        """Fill a contiguous array of at most 2¹⁴ uint64 with random bits."""
        self._here()
        as_bytes: Any = out.view(np.uint8)
        self._bits.update_into(_ZEROS[: out.nbytes], as_bytes)
        return out

    def normal(self, shape: int | tuple[int, ...]) -> np.ndarray:
        """Draw standard normal numbers in float64."""
        return self.scratch_normal(shape).copy()

    def scratch_normal(self, shape: int | tuple[int, ...]) -> np.ndarray:
        """Draw the same into memory that the next call overwrites: fresh memory costs too."""
        size = math.prod(shape) if isinstance(shape, tuple) else shape
        if size < MANY:
            return self.generator.standard_normal(shape)
        pairs = self._box_muller.pairs((size + 1) // 2, self.words)
        return pairs.view(np.float64)[:size].reshape(shape)

    @cached_property
    def _box_muller(self) -> _BoxMuller:
        return _BoxMuller()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "A secure random stream cannot be pickled or copied: its state is a secret."
        )


def key_stream(key: bytes, counter: bytes = bytes(16)) -> CipherContext:
    """Return OpenSSL's AES in counter mode: it maps zeros to the key stream."""
    return Cipher(algorithms.AES(key), modes.CTR(counter)).encryptor()


class _BoxMuller:
    """Complex numbers of independent standard normal parts: √(−2 ln u) e^{iφ} (Box & Muller 1958).

    In half the time of numpy's ziggurat, and in doubles throughout: a release ends on a grid of
    2⁻²⁰ of the noise, of which numbers in single precision are a sizeable part of a cell off.

    *Radius.* u = k/2⁶³ for the upper 63 bits k of a word. Where k is small, such u leave gaps
    between the radii, wide beside that grid: a pair of large normals would refute a sum with
    certainty. Below 2⁻²⁰ therefore u = (k + v)/2⁶³ with v uniform on (0, 1] in 53 bits more;
    elsewhere the gaps are at most 2⁻²⁶ (next to 0), and below 2⁻⁴⁴ from a radius of 2⁻⁸ on. u is at
    least 2⁻¹¹⁶, so the radius is at most 12.69.

    *Angle.* 13 bits of a word look up e^{iφ₀}; the other 51, with a sign, are t in [−π/2¹³, π/2¹³),
    for which the series cos t = 1 − t²/2 and sin t = t − t³/6 err by less than 2⁻⁴⁹. An angle of 32
    bits in all would cross each cell of the grid a few hundred times only.
    """

    def __init__(self) -> None:
        self._pairs = np.empty(0, dtype=np.complex128)
        self._turns = np.empty(_PAIRS, dtype=np.complex128)
        self._numbers = np.empty((3, _PAIRS))

    def pairs(self, n: int, words: Callable[[np.ndarray], Any]) -> np.ndarray:
        """Return n pairs until the next call; ``words`` fills arrays of uint64 with random bits."""
        if len(self._pairs) != n:
            self._pairs = np.empty(n, dtype=np.complex128)
        for start in range(0, n, _PAIRS):
            self._fill(self._pairs[start : start + _PAIRS], words)
        return self._pairs

    def _fill(self, out: np.ndarray, words: Callable[[np.ndarray], Any]) -> None:
        m = len(out)
        real, imaginary = out.view(np.float64).reshape(m, 2).T
        k, angle = out.view(np.uint64).reshape(2, m)
        words(k)
        words(angle)
        radius, t, h = self._numbers[:, :m]
        k >>= 1
        radius[:] = k.view(np.int64)  # from unsigned numbers it takes three times as long
        if k.min() < 2 ** (63 - RARE_BITS):
            rare = np.flatnonzero(k < 2 ** (63 - RARE_BITS))
            words(more := np.empty(len(rare), dtype=np.uint64))
            radius[rare] += ((more >> 11) + 1) * 2.0**-53
        radius *= 2.0**-63
        np.log(radius, out=radius)
        radius *= -2.0
        np.sqrt(radius, out=radius)
        t[:] = np.left_shift(angle, _TURN_BITS, out=k).view(np.int64)
        t *= np.pi / 2.0 ** (63 + _TURN_BITS)
        angle >>= 64 - _TURN_BITS
        turns = np.take(_TURNS, angle.view(np.int64), out=self._turns[:m], mode="wrap")
        np.multiply(t, t, out=h)
        h *= radius
        h *= -0.5
        np.add(radius, h, out=real)  # r cos t
        h *= 1 / 3
        h += radius
        np.multiply(h, t, out=imaginary)  # r sin t
        out *= turns


class Streams:
    """The streams of one fit, one per purpose, from one master key: the system's, or a seed's."""

    by_step = False  # whether each step has streams of its own; see `skdp.fitting.checkpoint`
    first = 0  # step with which the run begins
    saved: Any = None  # state with which it begins; None for the data-independent start

    def __init__(self, seed_material: bytes | None = None) -> None:
        self._process = this_process()
        self._master = os.urandom(32) if seed_material is None else hashed(b"key", seed_material)
        self._asked: set[str] = set()

    @classmethod
    def of(cls, key: bytes) -> Streams:
        """Return the streams of a key of 32 bytes."""
        streams = Streams.__new__(Streams)
        streams._process, streams._master, streams._asked = this_process(), key, set()
        return streams

    def __call__(self, purpose: str) -> SecureStream:
        """Return the stream for one purpose; once, because noise must never be used again."""
        if this_process() != self._process:
            self.__init__()
        if purpose in self._asked:
            raise RuntimeError(f"The stream for {purpose!r} has already been handed out.")
        self._asked.add(purpose)
        return SecureStream(self.secret(purpose)[:16])

    def secret(self, purpose: str) -> bytes:
        """Return 32 bytes from which the stream for a purpose, or other streams, are keyed."""
        return hashed(self._master, purpose.encode())

    def of_step(self, step: int) -> Streams:
        """Return the streams of a step, where each has its own."""
        raise NotImplementedError

    def keep(self, step: int, save: Callable[[], Any]) -> None:
        """Keep the state after a number of steps; nothing is kept without a checkpoint."""

    def compared(self, step: int, value: Callable[[], Any]) -> Callable[[], Any]:
        """Return what computes the exact sum of a step; it is compared with a checkpoint's."""
        return value

    __reduce__ = SecureStream.__reduce__


def seed_material(seed: int, name: str, parameters: dict[str, Any], *arrays: np.ndarray) -> bytes:
    """Hash a seed with all that affects the queries, so that no two data sets share noise."""
    described = [f"{key}={value!r}" for key, value in sorted(parameters.items())]
    parts: list[Any] = [str(seed).encode(), name.encode(), "\0".join(described).encode()]
    for array in arrays:
        parts.append(f"{array.dtype.str}{array.shape}".encode())
        parts.append(np.ascontiguousarray(array).reshape(-1).view(np.uint8))
    return hashed(*parts)


def hashed(*parts: Any) -> bytes:
    """Hash several byte strings."""
    digest = hashlib.sha256()
    for part in parts:  # each part's length first: no two lists of parts run together alike
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.digest()
