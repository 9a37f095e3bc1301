"""What is done with a chunk of rows: pure functions, asked for by `skdp.rows.chunks`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from skdp.rows.bounds import row_norm
from skdp.rows.persons import label_digests
from skdp.rows.records import Drawn, Rows, Selection, own_of

_PIECE = 2**30  # bytes that are hashed at once
UNREADABLE = "cannot be read"
ALL_EMPTY = "Expected at least one row, but all chunks are empty."
_NO_ROWS = "Expected X and y to be arrays or frames of as many rows as there are persons' labels."


class Chunk(NamedTuple):
    """What a chunk holds, as it was read: rows, targets, and the person of each row."""

    X: Any
    y: Any = None
    groups: Any = None


Load = Callable[[int], Chunk]
Task = Callable[[int, Load], Any]  # number of a chunk, and what reads it -> an answer
Read = Callable[[Chunk], tuple[Any, Any]]  # chunk -> records, and what is public about them


def n_rows_of(X: Any) -> int:
    """Number of rows of a chunk."""
    return X.shape[0] if hasattr(X, "shape") else len(X)


# --- before the charge --------------------------------------------------------------------------


class Misread(ValueError):
    """A chunk cannot be read, for a reason whose words quote no value."""


class Seen(NamedTuple):
    """What is told of a chunk that has rows."""

    n_rows: int = 0
    n_records: int = 0
    fingerprint: bytes = b""
    public: Any = None
    kinds: tuple = ()  # shape of a record and type, of each array
    problem: str = ""


@dataclass(frozen=True)
class Ask:
    """Read a chunk, and ask a function of its number and of what it holds."""

    function: Callable[[int, Chunk], Seen] = field(repr=False)
    empty: bool = field(default=False, repr=False)  # ask about a chunk without rows too

    def __call__(self, number: int, load: Load) -> Seen | None:
        """Return the answer, or what is wrong in words that quote no value; None without rows."""
        is_read = False
        try:
            chunk = load(number)
            if not n_rows_of(chunk.X) and not self.empty:
                return None
            is_read = True
            return self.function(number, chunk)
        except Exception as error:
            of_a_check = is_read and isinstance(error, ValueError | TypeError | Warning)
            if of_a_check or isinstance(error, Misread):
                return Seen(problem=str(error))  # which quotes no value
            # Whose words, or whose name, another error has is unknown.
            known = type(error).__module__ == "builtins"
            name = type(error).__name__ if known else "an error of its own"
            return Seen(problem=f"X {UNREADABLE} ({name}).")


def look(read: Read, key: bytes, number: int, chunk: Chunk) -> Seen:
    """Check a chunk, and tell what is public about it."""
    records, public = read(chunk)
    n_rows, starts = len(records[0]), getattr(records, "starts", None)
    n_records = n_rows if starts is None else len(starts) - 1
    kinds = tuple(None if a is None else (a.shape[1:], a.dtype) for a in records)
    return Seen(n_rows, n_records, fingerprint(key, number, records), public, kinds)


def scatter(
    key: bytes, n_chunks: int, keep: Callable[[int, Chunk], None], number: int, chunk: Chunk
) -> Seen:
    """Keep the rows of a chunk for the chunks of their persons."""
    if chunk.groups is None:
        raise Misread("Expected (X, y, groups) where persons are protected: it has none.")
    n_rows = n_rows_of(chunk.X)
    keys = (key, key[::-1] + b"2")
    digests = [d[c] for d, c in (label_digests(chunk.groups, n_rows, k) for k in keys)]
    persons = np.stack(digests, axis=1).view("S16")[:, 0]  # 128 bits: no two are one
    try:
        X, y = map(_table, chunk[:2])
        for own in range(n_chunks):
            rows = np.flatnonzero(digests[0] % np.uint64(n_chunks) == own)
            if len(rows):
                keep(own, Chunk(_rows_at(X, rows), _rows_at(y, rows), persons[rows]))
        return Seen(n_rows, n_rows, kinds=(_kind(X), _kind(y)))
    except Exception as error:
        of_rows = isinstance(error, ValueError | TypeError | IndexError)
        raise Misread(_NO_ROWS if of_rows else "It cannot be written.") from None


def _table(rows: Any) -> Any:
    known = rows is None or hasattr(rows, "dtype") or hasattr(rows, "iloc")
    return rows if known else np.asarray(rows)


def _kind(rows: Any) -> Any:
    """What all chunks have in common: names and types of columns."""
    if hasattr(rows, "dtypes"):  # of a frame, or a column of one
        return type(rows), list(getattr(rows, "columns", ())), str(rows.dtypes)
    return None if rows is None else (rows.shape[1:], rows.dtype)


def _rows_at(rows: Any, at: np.ndarray) -> Any:
    if rows is None:
        return None
    return rows.iloc[at] if hasattr(rows, "iloc") else rows[at]


def joined(pieces: Sequence[Chunk | None]) -> Chunk:
    """Join the pieces of a chunk, of which some may be missing."""
    found = [piece for piece in pieces if piece is not None]
    return Chunk(*map(_joined, zip(*found, strict=True))) if found else Chunk(np.empty((0, 0)))


def _joined(parts: Sequence[Any]) -> Any:
    if parts[0] is None:
        return None
    if hasattr(parts[0], "iloc"):
        import pandas as pd

        return pd.concat(parts)
    return np.concatenate(parts)


def agreed(answers: Iterable[Seen | None], n_chunks: int | None = None) -> dict[int, Seen]:
    """Return the answers of the chunks that have rows, by number; refuse what is wrong.

    Where their number is public, it is said which chunk is wrong.
    """
    found: dict[int, Seen] = {}
    for number, seen in enumerate(answers):
        if seen is None:
            continue
        chunk = "A chunk" if n_chunks is None else f"Chunk {number} of {n_chunks}"
        if seen.problem:
            raise ValueError(f"{chunk}: {seen.problem}")
        first = next(iter(found.values()), seen)
        if not (_same(seen.kinds, first.kinds) and _same(seen.public, first.public)):
            raise ValueError(
                f"{chunk} has other columns or types than those before it, or other classes: give "
                "all chunks the same, and declare classes=[...] if one may be absent from a chunk."
            )
        found[number] = seen
    return found


def _same(a: Any, b: Any) -> bool:
    """Whether public facts are the same; arrays may be among them."""
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return np.array_equal(a, b)
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    if isinstance(a, tuple | list) and isinstance(b, tuple | list):
        return len(a) == len(b) and all(map(_same, a, b))
    return bool(a == b)


# --- after it -----------------------------------------------------------------------------------


class Lost(NamedTuple):
    """Stands for a sum that cannot be had. Of what chunk and why it does not say."""

    words: str = ""  # said before the charge


@dataclass(frozen=True)
class Reading:
    """How a fit reads its chunks, and what it saw of each at the first look."""

    read: Read = field(repr=False)
    key: bytes = field(repr=False)  # of the fingerprints
    places: dict[int, tuple[int, int]] = field(repr=False)  # of a chunk's records: first, last + 1
    fingerprints: dict[int, bytes] = field(repr=False)
    seconds: float = field(repr=False)  # that the first look took
    changes: tuple[Callable[[Any], Any], ...] = field(default=(), repr=False)  # after reading


@dataclass(frozen=True)
class Work:
    """Read a chunk again, and return its part of a sum: the records that it has of those selected.

    None where it has none of them, unless an empty sum is asked for.
    """

    reading: Reading = field(repr=False)
    build: Callable[[Any], Rows] = field(repr=False)
    term: Callable[[Any], Any] = field(repr=False)
    selection: Selection | Drawn = field(repr=False)
    empty: bool = field(default=False, repr=False)

    def __call__(self, number: int, load: Load) -> Any:
        """Return the sum, or `Lost`."""
        try:
            own = own_of(self.selection, *self.reading.places[number])
            if not isinstance(own, slice) and not len(own) and not self.empty:
                return None
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # they were given at the first look
                records, _ = self.reading.read(load(number))
            found = fingerprint(self.reading.key, number, records)
            if found != self.reading.fingerprints[number]:
                return Lost()
            for change in self.reading.changes:
                records = change(records)
            return self.build(records).sum(self.term, own)
        except Exception:
            return Lost()


def fingerprint(key: bytes, number: int, records: Iterable[Any]) -> bytes:
    """Keyed hash of the arrays of a chunk, in the order in which they lie in memory."""
    code = Cipher(algorithms.AES(key), modes.GCM(number.to_bytes(12, "big"))).encryptor()
    for array in records:
        if array is None:
            continue
        transposed = array.flags.f_contiguous and not array.flags.c_contiguous
        said = array.dtype.str, array.shape, transposed, row_norm(array)
        code.authenticate_additional_data(repr(said).encode())
        plain = np.asarray(array)
        flat: Any = np.ascontiguousarray(plain.T if transposed else plain)
        flat = flat.reshape(-1).view(np.uint8)
        for start in range(0, len(flat), _PIECE):
            code.authenticate_additional_data(memoryview(flat[start : start + _PIECE]))
    code.finalize()
    return code.tag


def added(parts: Iterable[Any]) -> Any:
    """Add up parts in the order of a balanced tree; None for none, and `Lost` if one was lost."""
    found: list[tuple[int, Any]] = []  # heights and sums of trees, ever lower
    for part in parts:
        if isinstance(part, Lost):
            return part
        height = 0
        while part is not None and found and found[-1][0] == height:
            part, height = found.pop()[1] + part, height + 1
        if part is not None:
            found.append((height, part))
    sums = [total for _, total in found[::-1]]
    return reduce(lambda later, earlier: earlier + later, sums) if sums else None
