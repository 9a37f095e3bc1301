"""Rows that live in chunks: read a chunk at a time, in every pass, and never all at once.

>>> import numpy as np
>>> from skdp._chunked_rows import ChunkedRows
>>> rows = ChunkedRows(lambda i: (np.full((3, 2), i), np.zeros(3)), n_chunks=2)
>>> [X.shape for X, y in rows]
[(3, 2), (3, 2)]

A fit asks its rows for sums of pure terms and for nothing else (`skdp._rows`), so chunks are a
matter of who adds up:

1. *First look*, before anything is spent. Each chunk is read and checked as a fit in memory checks
   its rows. It answers with its number of rows, what is public about them (columns, types, what was
   declared), and a fingerprint; or with what is wrong, in words that quote no value.
2. The charge.
3. *Passes.* Each chunk is read again, its fingerprint is compared, and its part of the sum is added
   to those of the others, in the order of a balanced tree. Noise comes after all chunks have
   answered, once, where the fit runs. A chunk that cannot be read again, or that holds other rows,
   ends the fit, whose charge stands: a sum of the others would be another query than was charged.

`Look` and `Work` are pure functions of a chunk and of what they hold: parameters, released values
and a step's key. `ChunkedRows.each` does them here, one after the other; where chunks live on other
machines (`skdp._dask_rows`), it does them there, and nothing else changes. What they hold does not
show in their repr, and what goes wrong in them comes back as words, never as an exception with rows
in its frames.

*Fingerprints* are AES-GMAC under a key that only the fit knows, which is gone with it: rows that
change by accident, or by somebody who does not know the key, go unnoticed with probability below
2⁻⁹⁰. They are not shown.
"""

from __future__ import annotations

import copy
import os
import pickle
import shutil
import tempfile
import time
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial, reduce, wraps
from inspect import isfunction, signature
from typing import Any, NamedTuple

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from skdp._bounded_rows import row_norm
from skdp._marked_rows import handed_on
from skdp._persons import label_digests
from skdp._rows import Drawn, Rows, Selection, own_of
from skdp._validate import NO_ARRAY, expected, integer, is_dask

_PIECE = 2**30  # bytes that are hashed at once


class Chunk(NamedTuple):
    """What a chunk holds, as it was read: rows, targets, and the person of each row."""

    X: Any
    y: Any = None
    groups: Any = None


class ChunkedRows:
    """Rows in chunks that a function reads.

    A fit takes them in the place of X, with the targets in the chunks: ``classifier.fit(rows)``. So
    does every transformer that maps each row by itself, whose ``transform`` then gives rows in
    chunks again. ``predict`` and its kin give one array for all rows, and ``score`` takes the
    targets from the chunks.

    Parameters
    ----------
    load : callable
        ``load(i)`` returns chunk i as X, (X, y) or (X, y, groups): arrays, or frames of pandas. It
        is called in every pass and must give the same rows each time: a fit that finds others ends
        with an error, and its charge stands. A chunk may have no rows.
    n_chunks : int
        Number ≥ 1 of chunks. A fit holds one of them at a time.

    Attributes
    ----------
    n_chunks : int
        Number of chunks.

    Examples
    --------
    >>> import numpy as np
    >>> from skdp import DPVariationalLogisticRegression
    >>> from skdp.data import ChunkedRows
    >>> def load(i):
    ...     X = np.random.default_rng(i).uniform(-1, 1, (500, 2))
    ...     return X, X[:, 0] > 0
    >>> rows = ChunkedRows(load, n_chunks=8)
    >>> model = DPVariationalLogisticRegression(classes=[False, True], n_samples=4000).fit(rows)
    >>> model.predict(rows).shape
    (4000,)
    >>> model.score(rows) > 0.9
    True
    """

    def __init__(self, load: Callable[[int], Any], n_chunks: int) -> None:
        if not callable(load):
            raise expected("a function of the number of a chunk", load=load)
        self._load, self.n_chunks = load, integer(1, n_chunks=n_chunks)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"  # how many chunks there are may be private

    def load(self, number: int) -> Chunk:
        """Read a chunk.

        Parameters
        ----------
        number : int
            From 0 on.

        Returns
        -------
        Chunk
            Rows, with targets and persons where the source has them.
        """
        found = self._load(number)
        parts = found if isinstance(found, tuple) else (found,)
        if not 1 <= len(parts) <= 3:
            raise ValueError("Expected a chunk to be X, (X, y) or (X, y, groups).")
        return Chunk(*parts)

    def map(self, function: Callable[[Any], Any]) -> ChunkedRows:
        """Rows in chunks of which X is passed through a function, whenever one is read.

        Parameters
        ----------
        function : callable
            Maps the X of a chunk to another with as many rows, each row by itself.

        Returns
        -------
        ChunkedRows
        """
        mapped = copy.copy(self)
        mapped._load = partial(_mapped, self.load, function)
        return mapped

    def by_person(self, key: bytes) -> ChunkedRows:
        """Bring the rows of each person together, in as many chunks, which lie in temporary files.

        Parameters
        ----------
        key : bytes
            Of the hash of a person's label, which decides on the chunk and is all that is kept.

        Returns
        -------
        ChunkedRows
            When it is gone, so are the files.

        Raises
        ------
        ValueError
            If a chunk cannot be read, has no labels, or other columns or types than the others.
        """
        folder = tempfile.mkdtemp(prefix="skdp-")
        together = ChunkedRows(partial(_gathered, folder), self.n_chunks)
        weakref.finalize(together, shutil.rmtree, folder, ignore_errors=True)
        task = Scatter(key, self.n_chunks, partial(_append, folder))
        found = agreed(ChunkedRows.each(self, task, range(self.n_chunks)))
        return together if found else self

    def each(self, task: Task, numbers: Iterable[int]) -> Iterator[Any]:
        """Do a pure task on some chunks; yield the answers in the order of the numbers."""
        for number in numbers:
            yield task(number, self.load)

    def total(self, task: Task, numbers: Iterable[int]) -> Any:
        """Do a pure task on some chunks; return the sum of the answers, `added`."""
        return added(self.each(task, numbers))

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        """Read one chunk after the other, as X and y."""
        for number in range(self.n_chunks):
            try:
                found = self.load(number)
            except Exception as error:
                found = type(error).__name__
            if isinstance(found, str):
                raise ValueError(f"Chunk {number} of {self.n_chunks} {_UNREADABLE} ({found}).")
            yield found.X, found.y

    def targets(self) -> np.ndarray:
        """Return the targets of all rows.

        Returns
        -------
        ndarray of shape (n,)

        Raises
        ------
        ValueError
            If the chunks hold none.
        """
        found = [y for X, y in self if n_rows_of(X)]
        if not found or any(y is None for y in found):
            raise ValueError("Expected chunks (X, y): there are no targets in them.")
        return np.concatenate([np.asarray(y) for y in found])

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        """Refuse to be one array in memory."""
        refuse_chunks(self)


def refuse_chunks(X: Any) -> None:
    """Refuse rows in chunks where an array is needed, and what would be gathered into one."""
    if isinstance(X, ChunkedRows) or is_dask(X):
        raise ValueError(NO_ARRAY)


@contextmanager
def in_chunks(
    X: Any, y: Any = None, groups: Any = None, *, verbose: int = 0
) -> Iterator[tuple[Any, Any, Any]]:
    """Take the partitions of Dask collections for chunks; leave what else was given as it is."""
    lazy = [is_dask(one) for one in (X, y, groups)]
    if not any(lazy):
        yield X, y, groups
        return
    if not all(is_lazy or one is None for is_lazy, one in zip(lazy, (X, y, groups), strict=True)):
        raise ValueError("Expected X, y and groups to be collections of Dask together, or none.")
    from skdp._dask_rows import DaskRows

    rows = DaskRows(X, y, groups, verbose=verbose)
    try:
        yield rows, None, None
    finally:
        rows.release()
        if verbose:
            print(rows.told())


_UNREADABLE = "cannot be read"


def _mapped(load: Callable[[int], Chunk], function: Callable[[Any], Any], number: int) -> Chunk:
    chunk = load(number)
    try:
        return chunk._replace(X=function(chunk.X))
    except Exception:
        if n_rows_of(chunk.X):
            raise
        return chunk._replace(X=np.empty((0, 0)))  # a step may take no empty chunk


def n_rows_of(X: Any) -> int:
    """Number of rows of a chunk."""
    return X.shape[0] if hasattr(X, "shape") else len(X)


# --- what is done with a chunk ------------------------------------------------------------------

Load = Callable[[int], Chunk]
Task = Callable[[int, Load], Any]  # number of a chunk, and what reads it -> an answer
Read = Callable[[Chunk], tuple[Any, Any]]  # chunk -> records, and what is public about them


class Misread(ValueError):
    """A chunk cannot be read, for a reason whose words quote no value."""


def _words(error: Exception) -> str:
    """What may be said of an error in reading: whose words, or whose name, it has is unknown."""
    if isinstance(error, Misread):
        return str(error)
    known = type(error).__module__ == "builtins"
    return f"X {_UNREADABLE} ({type(error).__name__ if known else 'an error of its own'})."


class Seen(NamedTuple):
    """What the first look at a chunk returns."""

    n_rows: int = 0
    n_records: int = 0
    fingerprint: bytes = b""
    public: Any = None
    kinds: tuple = ()  # shape of a record and type, of each array
    problem: str = ""


@dataclass(frozen=True)
class Look:
    """Read a chunk for the first time, and check it."""

    read: Read = field(repr=False)
    key: bytes = field(repr=False)
    empty: bool = field(default=False, repr=False)  # look at a chunk without rows too

    def __call__(self, number: int, load: Load) -> Seen:
        """Return what is public about the chunk, or what is wrong with it."""
        try:
            chunk = load(number)
            n_rows = n_rows_of(chunk.X)
        except Exception as error:
            return Seen(problem=_words(error))
        if not n_rows and not self.empty:
            return Seen()
        try:
            records, public = self.read(chunk)
        except (ValueError, TypeError, Warning) as error:  # whose words quote no value
            return Seen(problem=str(error))
        except Exception as error:
            return Seen(problem=_words(error))
        starts = getattr(records, "starts", None)
        n_records = n_rows if starts is None else len(starts) - 1
        kinds = tuple(None if a is None else (a.shape[1:], a.dtype) for a in records)
        n_rows, tag = len(records[0]), fingerprint(self.key, number, records)
        return Seen(n_rows, n_records, tag, public, kinds)


@dataclass(frozen=True)
class Scatter:
    """Read a chunk, and keep its rows for the chunks of their persons."""

    key: bytes = field(repr=False)
    n_chunks: int = field(repr=False)
    keep: Callable[[int, Chunk], None] = field(repr=False)

    def __call__(self, number: int, load: Load) -> Seen:
        """Return what is public about the chunk, or what is wrong with it."""
        try:
            chunk = load(number)
            n_rows = n_rows_of(chunk.X)
        except Exception as error:
            return Seen(problem=_words(error))
        if not n_rows:
            return Seen()
        if chunk.groups is None:
            return Seen(problem="Expected (X, y, groups) with unit='group': it has no persons.")
        try:
            keys = (self.key, self.key[::-1] + b"2")
            digests = [d[c] for d, c in (label_digests(chunk.groups, n_rows, k) for k in keys)]
            persons = np.stack(digests, axis=1).view("S16")[:, 0]  # 128 bits: no two are one
            X, y = (a if hasattr(a, "dtype") or a is None else _array(a) for a in chunk[:2])
            for own in range(self.n_chunks):
                rows = np.flatnonzero(digests[0] % np.uint64(self.n_chunks) == own)
                if len(rows):
                    piece = Chunk(_rows_at(X, rows), _rows_at(y, rows), persons[rows])
                    self.keep(own, piece)
        except (ValueError, TypeError) as error:  # of labels, which it does not quote
            return Seen(problem=str(error) if type(error) is ValueError else _NO_ROWS)
        except Exception:
            return Seen(problem="It cannot be written.")
        return Seen(n_rows, n_rows, kinds=tuple(map(_kind, (X, y))))


_NO_ROWS = "Expected X and y to be arrays or frames of as many rows as there are persons' labels."


def _array(rows: Any) -> Any:
    return rows if hasattr(rows, "iloc") else np.asarray(rows)


def _kind(rows: Any) -> Any:
    """What all chunks have in common: names and types of columns."""
    if hasattr(rows, "dtypes"):  # of a frame, or a column of one
        return type(rows), list(getattr(rows, "columns", ())), str(rows.dtypes)
    return None if rows is None else (rows.shape[1:], rows.dtype)


def _rows_at(rows: Any, at: np.ndarray) -> Any:
    if rows is None:
        return None
    return rows.iloc[at] if hasattr(rows, "iloc") else rows[at]


def _file(folder: str, number: int) -> str:
    return os.path.join(folder, f"{number}.rows")


def _append(folder: str, number: int, piece: Chunk) -> None:
    with open(_file(folder, number), "ab") as file:
        pickle.dump(piece, file)


def _gathered(folder: str, number: int) -> Chunk:
    """Read the pieces of a chunk of persons."""
    pieces: list[Chunk] = []
    with suppress(FileNotFoundError), open(_file(folder, number), "rb") as file, suppress(EOFError):
        while True:
            pieces.append(pickle.load(file))
    return joined(pieces)


def joined(pieces: Sequence[Chunk | None]) -> Chunk:
    """Join the pieces of a chunk, of which some may be missing."""
    found = [piece for piece in pieces if piece is not None]
    if not found:
        return Chunk(np.empty((0, 0)))
    return Chunk(*map(_joined, zip(*found, strict=True)))


def _joined(parts: Sequence[Any]) -> Any:
    if parts[0] is None:
        return None
    if hasattr(parts[0], "iloc"):
        import pandas as pd

        return pd.concat(parts)
    return np.concatenate(parts)


class Lost(NamedTuple):
    """Stands for a sum that cannot be had. Of what chunk and why it does not say."""

    words: str = ""  # said before the charge


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
        plain = np.asarray(array)
        flat: Any = (
            np.ascontiguousarray(plain.T if transposed else plain).reshape(-1).view(np.uint8)
        )
        code.authenticate_additional_data(repr(said).encode())
        for start in range(0, len(flat), _PIECE):
            code.authenticate_additional_data(memoryview(flat[start : start + _PIECE]))
    code.finalize()
    return code.tag


# --- a fit's rows -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reading:
    """How a fit reads its chunks, and what it saw of each at the first look.

    Parameters
    ----------
    read : callable
        Chunk -> records, and what is public about them.
    key : bytes
        Of the fingerprints.
    places : dict
        Numbers of the first record and of the one after the last, of each chunk that has any.
    fingerprints : dict
        Of each of them.
    seconds : float
        That the first look took.
    changes : tuple of callable
        What is done to the records after they were read.
    """

    read: Read = field(repr=False)
    key: bytes = field(repr=False)
    places: dict[int, tuple[int, int]] = field(repr=False)
    fingerprints: dict[int, bytes] = field(repr=False)
    seconds: float = field(repr=False)
    changes: tuple[Callable[[Any], Any], ...] = field(default=(), repr=False)


class ArrayInChunks:
    """What is known of an array that lies in chunks: its shape, its type, and how to read it."""

    def __init__(
        self, shape: tuple[int, ...], dtype: np.dtype, rows: ChunkedRows, reading: Reading
    ) -> None:
        self.shape, self.dtype, self.ndim = shape, dtype, len(shape)
        self.size = int(np.prod(shape, dtype=object))
        self.rows, self.reading = rows, reading

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def fingerprints(self) -> np.ndarray:
        """Stand for all rows in the material of a seed."""
        return np.frombuffer(b"".join(self.reading.fingerprints.values()), dtype=np.uint8)


def first_look(
    rows: ChunkedRows, read: Read, key: bytes, *, n_is_public: bool
) -> tuple[list[Any], Any]:
    """Look at each chunk once; return what is known of the arrays, and what is public about them.

    Parameters
    ----------
    rows : ChunkedRows
        The source.
    read : callable
        Chunk -> records, and what is public about them; pure.
    key : bytes of length 16
        Of the fingerprints; secret.
    n_is_public : bool
        Whether it may be said how many rows or chunks there are, or that there are none.

    Raises
    ------
    ValueError
        If a chunk cannot be read or is invalid, chunks differ in what is public about them, or all
        are empty where that is public.
    """
    began, n, places = time.perf_counter(), 0, {}
    n_chunks = rows.n_chunks if n_is_public else None
    seen = agreed(rows.each(Look(read, key), range(rows.n_chunks)), n_chunks)
    if not seen and n_is_public:
        raise ValueError(_ALL_EMPTY)
    seen = seen or agreed(rows.each(Look(read, key, empty=True), [0]))
    for number, one in seen.items():
        places[number], n = (n, n + one.n_records), n + one.n_records
    tags = {number: one.fingerprint for number, one in seen.items()}
    reading = Reading(read, key, places, tags, time.perf_counter() - began)
    n_rows, first = sum(one.n_rows for one in seen.values()), next(iter(seen.values()))
    lengths = [n_rows, n_rows, n + 1, n_rows]  # of rows, targets, starts and weights
    arrays = [
        None if kind is None else ArrayInChunks((length, *kind[0]), kind[1], rows, reading)
        for kind, length in zip(first.kinds, lengths, strict=False)
    ]
    return arrays, first.public


def agreed(answers: Iterable[Seen], n_chunks: int | None = None) -> dict[int, Seen]:
    """Return the answers of the chunks that were looked at, by number; refuse what is wrong.

    Where their number is public, it is said which chunk is wrong.
    """
    found: dict[int, Seen] = {}
    for number, seen in enumerate(answers):
        chunk = "A chunk" if n_chunks is None else f"Chunk {number} of {n_chunks}"
        if seen.problem:
            raise ValueError(f"{chunk}: {seen.problem}")
        if not seen.kinds:
            continue
        first = next(iter(found.values()), seen)
        if not (_same(seen.kinds, first.kinds) and _same(seen.public, first.public)):
            raise ValueError(
                f"{chunk} has other columns or types than those before it, or other classes: give "
                "all chunks the same, and declare classes=[...] if one may be absent from a chunk."
            )
        found[number] = seen
    return found


_ALL_EMPTY = "Expected at least one row, but all chunks are empty."


def _same(a: Any, b: Any) -> bool:
    """Whether public facts are the same; arrays may be among them."""
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return np.array_equal(a, b)
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    if isinstance(a, tuple | list) and isinstance(b, tuple | list):
        return len(a) == len(b) and all(map(_same, a, b))
    return bool(a == b)


class ChunkSums:
    """Rows of a run, in chunks of which each has its part in a sum.

    Parameters
    ----------
    rows : ChunkedRows
        The source.
    reading : Reading
        Of the fit.
    build : callable
        Makes the rows of a run of the records of a chunk.
    """

    def __init__(self, rows: ChunkedRows, reading: Reading, build: Callable[[Any], Rows]) -> None:
        self._rows, self._reading, self._build = rows, reading, build

    def __len__(self) -> int:
        return max(stop for _, stop in self._reading.places.values())

    def sum(self, term: Callable[[Any], Any], selection: Selection | Drawn) -> Any:
        """Add up the sums of the chunks, each of which is read once."""
        work = Work(self._reading, self._build, term, selection)
        total = self._rows.total(work, list(self._reading.places))
        if total is None:
            total = self._rows.total(replace(work, empty=True), [min(self._reading.places)])
        if isinstance(total, Lost):
            raise RuntimeError(_LOST)
        return total


_LOST = (  # one for all causes: whether a chunk fails, and how, may depend on a record in it
    "Rows are lost: a chunk could not be worked on as it was when the fit began. Nothing of this "
    "fit is left, and what it was charged stays spent: its rows must not change, and must be "
    "there, until it ends."
)


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


def rows_of(records: Any, build: Callable[..., Rows], **of_chunk: Any) -> Rows:
    """Make the rows of a run: of records in memory, or of those of one chunk after the other.

    For a chunk ``build`` gets more arguments.
    """
    X = records[0]
    if not isinstance(X, ArrayInChunks):
        return build(records)
    return ChunkSums(X.rows, X.reading, partial(build, **of_chunk))


def changed(records: Any, change: Callable[[Any], Any]) -> Any:
    """Change records, each by itself: in memory at once, in chunks whenever one is read."""
    X = records[0]
    if not isinstance(X, ArrayInChunks):
        return change(records)
    reading = replace(X.reading, changes=(*X.reading.changes, change))
    return records._replace(X=ArrayInChunks(X.shape, X.dtype, X.rows, reading))


# --- predictions --------------------------------------------------------------------------------

_OF_ROWS = (
    "predict", "predict_proba", "predict_log_proba", "decision_function", "score_samples",
)  # fmt: skip


def takes_chunks(cls: Any) -> Any:
    """Let the methods of a class that map each row by itself take rows in chunks: a decorator.

    Predictions of all rows are one array; ``transform`` gives rows in chunks. Of collections of
    Dask both are collections again.
    """
    for name in _OF_ROWS:
        if isfunction(vars(cls).get(name)):
            setattr(cls, name, _blockwise(vars(cls)[name]))
    if isfunction(vars(cls).get("transform")):
        cls.transform = _lazily(vars(cls)["transform"])
        cls.fit_transform = _fitted_first(cls.fit_transform)
    return cls


def targets_of(X: Any, y: Any) -> Any:
    """Return targets that were given, or those of rows in chunks."""
    return X.targets() if y is None and isinstance(X, ChunkedRows) else y


def _blockwise(method: Any) -> Any:
    takes = signature(method)
    takes_targets = "y" in takes.parameters

    @wraps(method)
    def of_rows(self: Any, X: Any, *args: Any, **kwargs: Any) -> Any:
        try:  # Python would name the class that defines the method
            takes.bind(self, X, *args, **kwargs)
        except TypeError as wrong:
            name = f"{type(self).__name__}.{method.__name__}()"
            raise TypeError(f"{name} {wrong}") from None
        if is_dask(X):
            from skdp._dask_rows import blockwise

            return blockwise(partial(method, copy.copy(self)), X, *args, **kwargs)
        if not isinstance(X, ChunkedRows):
            others = (*args, *kwargs.values())
            beside = [one for one in others if one is not None and not np.isscalar(one)]
            return handed_on(X, method(self, X, *args, **kwargs), *beside)
        found = []
        for rows, y in X:
            if n_rows_of(rows):
                given = (y, *args[1:]) if takes_targets else args
                found.append(method(self, rows, *given, **kwargs))
        if not found:
            raise ValueError(_ALL_EMPTY)
        if isinstance(found[0], tuple):
            return tuple(map(np.concatenate, zip(*found, strict=True)))
        return np.concatenate(found)

    return of_rows


def _lazily(method: Any) -> Any:
    @wraps(method)
    def of_rows(self: Any, X: Any) -> Any:
        if not isinstance(X, ChunkedRows) and not is_dask(X):
            return handed_on(X, method(self, X))
        # Of a copy: rows are read again, and must be mapped as they were.
        apply = partial(method, copy.copy(self))
        if isinstance(X, ChunkedRows):
            return X.map(apply)
        from skdp._dask_rows import blockwise

        return blockwise(apply, X)

    return of_rows


def _fitted_first(method: Any) -> Any:
    @wraps(method)
    def of_rows(self: Any, X: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(X, ChunkedRows) or is_dask(X):
            return self.fit(X, *args, **kwargs).transform(X)
        return method(self, X, *args, **kwargs)

    return of_rows


def learns_columns(cls: Any) -> Any:
    """Let a transformer that learns the columns alone be fitted on rows in chunks: a decorator.

    It sees the rows of the first chunk that has any, where they are.
    """
    fit = cls.fit

    @wraps(fit)
    def of_rows(self: Any, X: Any, y: Any = None) -> Any:
        if not isinstance(X, ChunkedRows) and not is_dask(X):
            return fit(self, X, y)
        vars(self).update(vars(on_first_rows(X, partial(type(self).fit, self))))
        return self

    cls.fit = of_rows
    return takes_chunks(cls)


@dataclass(frozen=True)
class OnRows:
    """Call a function of a chunk that has rows."""

    function: Callable[[Chunk], Any] = field(repr=False)
    empty: bool = field(default=False, repr=False)  # call it of a chunk without rows too

    def __call__(self, number: int, load: Load) -> tuple[Any, str] | None:
        """Return what it returns, and what is wrong; None for a chunk without rows."""
        try:
            chunk = load(number)
            n_rows = n_rows_of(chunk.X)
        except Exception as error:
            return None, _words(error)
        if not n_rows and not self.empty:
            return None
        try:
            return self.function(chunk), ""
        except (ValueError, TypeError, Warning) as error:  # whose words quote no value
            return None, str(error)
        except Exception as error:
            return None, _words(error)


def on_first_rows(X: Any, function: Callable[[Any], Any]) -> Any:
    """Return what a function returns of the X of the first chunk that has rows, or of none."""
    with in_chunks(X) as (rows, _, _):
        if not isinstance(rows, ChunkedRows):
            return function(X)
        function = partial(_of_X, function)
        for number in range(rows.n_chunks):
            for found in on_rows(rows, function, [number]):
                return found
        return next(on_rows(rows, function, [0], empty=True))


def on_rows(
    rows: ChunkedRows,
    function: Callable[[Chunk], Any],
    numbers: Sequence[int],
    *,
    empty: bool = False,
) -> Iterator[Any]:
    """Yield what a function returns of each chunk that has rows, or of each.

    Of which chunk an error is, it does not say: whether that is public is not known here.
    """
    for found in rows.each(OnRows(function, empty), numbers):
        if found is not None:
            if found[1]:
                raise ValueError(f"A chunk: {found[1]}")
            yield found[0]


def _of_X(function: Callable[[Any], Any], chunk: Chunk) -> Any:
    return function(chunk.X)
