"""Rows that live in chunks: read a chunk at a time, in every pass, and never all at once.

>>> import numpy as np
>>> from skdp.rows.chunks import ChunkedRows
>>> rows = ChunkedRows(lambda i: (np.full((3, 2), i), np.zeros(3)), n_chunks=2)
>>> [X.shape for X, y in rows]
[(3, 2), (3, 2)]

A fit asks its rows for sums of pure terms and for nothing else (`skdp.rows.records`), so chunks are
a matter of who adds up (docs/privacy.md, section 11). *First look*, before anything is spent: each
chunk is read and checked as rows in memory are, and answers with its number of rows, what is public
about them and a fingerprint, or with what is wrong. *Passes*, after the charge: each chunk is read
again and compared, and its part of the sum is added in the order of a balanced tree. A chunk that
cannot be read again, or holds other rows, ends the fit, whose charge stands: a sum of the others
would be another query than was charged.

Tasks (`skdp.rows.chunk_tasks`) are pure functions of a chunk and of what they hold: parameters,
released values and a step's key, which do not show in their repr. What goes wrong in them comes
back as words, never as an exception with rows in its frames. `ChunkedRows.each` does them here, one
after the other, or where the chunks live (`skdp.rows.dask_rows`).
"""

from __future__ import annotations

import copy
import pickle
import shutil
import tempfile
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from skdp.fitting.validate import NO_ARRAY, expected, integer
from skdp.rows import chunk_tasks as tasks
from skdp.rows.chunk_tasks import Chunk, Task
from skdp.rows.records import Drawn, Rows, Selection


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

        A keyed hash of a person's label decides on the chunk, and is all that is kept of it. When
        the rows are gone, so are the files.
        """
        folder = tempfile.mkdtemp(prefix="skdp-")
        together = ChunkedRows(partial(_gathered, folder), self.n_chunks)
        weakref.finalize(together, shutil.rmtree, folder, ignore_errors=True)
        task = tasks.Ask(partial(tasks.scatter, key, self.n_chunks, partial(_append, folder)))
        found = tasks.agreed(ChunkedRows.each(self, task, range(self.n_chunks)))
        return together if found else self

    def each(self, task: Task, numbers: Iterable[int]) -> Iterator[Any]:
        """Do a pure task on some chunks; yield the answers in the order of the numbers."""
        for number in numbers:
            yield task(number, self.load)

    def total(self, task: Task, numbers: Iterable[int]) -> Any:
        """Do a pure task on some chunks; return the sum of the answers, `added`."""
        return tasks.added(self.each(task, numbers))

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        """Read one chunk after the other, as X and y."""
        for number in range(self.n_chunks):
            try:
                found = self.load(number)
            except Exception as error:
                found = type(error).__name__
            if isinstance(found, str):
                raise ValueError(f"Chunk {number} of {self.n_chunks} {tasks.UNREADABLE} ({found}).")
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
        found = [y for X, y in self if tasks.n_rows_of(X)]
        if not found or any(y is None for y in found):
            raise ValueError("Expected chunks (X, y): there are no targets in them.")
        return np.concatenate([np.asarray(y) for y in found])

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        """Refuse to be one array in memory."""
        raise ValueError(NO_ARRAY)


def _mapped(load: Callable[[int], Chunk], function: Callable[[Any], Any], number: int) -> Chunk:
    chunk = load(number)
    try:
        return chunk._replace(X=function(chunk.X))
    except Exception:
        if tasks.n_rows_of(chunk.X):
            raise
        return chunk._replace(X=np.empty((0, 0)))  # a step may take no empty chunk


def _append(folder: str, number: int, piece: Chunk) -> None:
    with open(f"{folder}/{number}.rows", "ab") as file:
        pickle.dump(piece, file)


def _gathered(folder: str, number: int) -> Chunk:
    """Read the pieces of a chunk of persons."""
    pieces: list[Chunk] = []
    with suppress(FileNotFoundError, EOFError), open(f"{folder}/{number}.rows", "rb") as file:
        while True:
            pieces.append(pickle.load(file))
    return tasks.joined(pieces)


class ArrayInChunks:
    """What is known of an array that lies in chunks: its shape, its type, and how to read it."""

    def __init__(
        self, shape: tuple[int, ...], dtype: np.dtype, rows: ChunkedRows, reading: tasks.Reading
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
    rows: ChunkedRows, read: tasks.Read, key: bytes, *, n_is_public: bool
) -> tuple[list[Any], Any]:
    """Look at each chunk once; return what is known of the arrays, and what is public about them.

    ``read`` is pure; the key, of 16 bytes, is that of the fingerprints, and secret. Where
    ``n_is_public``, it is said which chunk is wrong, and refused that there are no rows.
    """
    began, n, places = time.perf_counter(), 0, {}
    look, n_chunks = partial(tasks.look, read, key), rows.n_chunks if n_is_public else None
    seen = tasks.agreed(rows.each(tasks.Ask(look), range(rows.n_chunks)), n_chunks)
    if not seen and n_is_public:
        raise ValueError(tasks.ALL_EMPTY)
    seen = seen or tasks.agreed(rows.each(tasks.Ask(look, empty=True), [0]))
    for number, one in seen.items():
        places[number], n = (n, n + one.n_records), n + one.n_records
    tags = {number: one.fingerprint for number, one in seen.items()}
    reading = tasks.Reading(read, key, places, tags, time.perf_counter() - began)
    n_rows, first = sum(one.n_rows for one in seen.values()), next(iter(seen.values()))
    lengths = [n_rows, n_rows, n + 1, n_rows]  # of rows, targets, starts and weights
    arrays = [
        None if kind is None else ArrayInChunks((length, *kind[0]), kind[1], rows, reading)
        for kind, length in zip(first.kinds, lengths, strict=False)
    ]
    return arrays, first.public


class ChunkSums:
    """Rows of a run, in chunks of which each has its part in a sum: ``build`` makes its rows."""

    def __init__(
        self, rows: ChunkedRows, reading: tasks.Reading, build: Callable[[Any], Rows]
    ) -> None:
        self._rows, self._reading, self._build = rows, reading, build

    def __len__(self) -> int:
        return max(stop for _, stop in self._reading.places.values())

    def sum(self, term: Callable[[Any], Any], selection: Selection | Drawn) -> Any:
        """Add up the sums of the chunks, each of which is read once."""
        work = tasks.Work(self._reading, self._build, term, selection)
        total = self._rows.total(work, list(self._reading.places))
        if total is None:
            total = self._rows.total(replace(work, empty=True), [min(self._reading.places)])
        if isinstance(total, tasks.Lost):
            raise RuntimeError(_LOST)
        return total


_LOST = (  # one for all causes: whether a chunk fails, and how, may depend on a record in it
    "Rows are lost: a chunk could not be worked on as it was when the fit began. Nothing of this "
    "fit is left, and what it was charged stays spent: its rows must not change, and must be "
    "there, until it ends."
)


def targets_of(X: Any, y: Any) -> Any:
    """Return targets that were given, or those of rows in chunks."""
    return X.targets() if y is None and isinstance(X, ChunkedRows) else y


def on_rows(
    rows: ChunkedRows,
    function: Callable[[Chunk], Any],
    numbers: Iterable[int],
    *,
    empty: bool = False,
) -> Iterator[Any]:
    """Yield what a function returns of each chunk that has rows, or of each.

    Errors do not name the chunk: whether that is public is not known here.
    """
    asked = tasks.Ask(lambda number, chunk: tasks.Seen(public=function(chunk)), empty)
    for found in rows.each(asked, numbers):
        if found is not None:
            if found.problem:
                raise ValueError(f"A chunk: {found.problem}")
            yield found.public
