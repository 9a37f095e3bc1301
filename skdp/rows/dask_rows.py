"""Rows in the partitions of a Dask collection: read, checked and added up where they are.

>>> import dask.array as da
>>> from skdp.rows.dask_rows import DaskRows
>>> DaskRows(da.ones((6, 2), chunks=(3, 2)), da.zeros(6, chunks=3))
DaskRows()

A partition is a chunk (`skdp.rows.chunks`), and what is done with it is a task of the active client
of `distributed`, or else of Dask's scheduler here. A task gets what it does, reads its partition,
and answers with a sum, or with words that quote no value; sums are added up in a tree of tasks, one
comes back, and this process adds the noise. So a task that is lost and done again answers the same,
each answer is in the sum once, and no row comes here.

*Reading is a part of the task*: the graph of a partition is not handed to Dask's scheduler but to
the task, which runs it. So what fails in reading fails where no log quotes it, nothing that was
read stays on a worker, and no key of Dask's, which may be a hash of rows, is sent. Partitions that
are in the cluster's memory already (``X.persist()``) stay there, and tasks go where they are.

What is sent has a repr that says nothing, a random key, and the versions of who sent it: others do
not open it.
"""

from __future__ import annotations

import asyncio
import copy
import pickle
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from importlib.metadata import version
from operator import itemgetter
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np

from skdp._version import __version__
from skdp.rows import chunk_tasks
from skdp.rows.chunk_tasks import Chunk, Load, Lost, Misread, Task
from skdp.rows.chunks import ChunkedRows

_FAN_IN = 16  # sums that are added up by one task

_SHARED = 4  # partitions whose graphs a task may be in, on average


class Sealed:
    """An object on its way to a worker: pickled where it is sent from, opened where it is used.

    Who hands on what was sent, as a scheduler does, does not open it.
    """

    def __init__(self, value: Any, closed: tuple[tuple[str, ...], bytes] | None = None) -> None:
        self._value, self._closed = value, closed

    def open(self) -> Any:
        """Return the object, or raise if it was sent by other versions."""
        if self._closed is None:
            return self._value
        sent_by, pickled = self._closed
        if sent_by != versions():
            raise Misread(_OTHERS)
        return pickle.loads(pickled)

    def __reduce__(self) -> tuple[type, tuple]:
        import cloudpickle  # comes with Dask

        return Sealed, (None, self._closed or (versions(), cloudpickle.dumps(self._value)))

    def __repr__(self) -> str:
        return "Sealed()"

    def __dask_tokenize__(self) -> str:
        """Name it by chance, and not by a hash of what is in it."""
        return uuid4().hex


@cache
def versions() -> tuple[str, ...]:
    """What has to be the same on both sides."""
    python = f"Python {sys.version_info.major}.{sys.version_info.minor}"
    return python, f"skdp {__version__}", f"numpy {np.__version__}", f"torch {version('torch')}"


_OTHERS = (
    "A worker has other versions of Python, skdp, numpy or torch than this process, whose sums may "
    "be others: install the same everywhere."
)

_GONE = (
    "The Dask cluster did not answer: its scheduler or workers are gone, were killed for the "
    "memory they took, or have no skdp. Nothing has been spent."
)


@dataclass(frozen=True)
class Part:
    """How a partition is read: a graph, the keys of X, y and groups, and what is held elsewhere."""

    graph: dict = field(repr=False)
    keys: list = field(repr=False)
    held: list = field(repr=False)

    def __call__(self, held: Sequence[Any]) -> Chunk:
        """Read it."""
        import dask

        graph = self.graph | dict(zip(self.held, held, strict=True))
        names = [key for key in self.keys if key is not None]
        found = dict(zip(names, dask.get(graph, names), strict=True))  # type: ignore[attr-defined]
        index: list[Any] = [part.index for part in found.values() if hasattr(part, "iloc")]
        if not all(one.equals(index[0]) for one in index):
            raise Misread("Expected X, y and groups with the same index, row by row.")
        return Chunk(*(found.get(key) for key in self.keys))


class _Source(NamedTuple):
    """What reads a partition, or its key on the cluster; and keys of what is held there for it."""

    part: Any
    held: list


class DaskRows(ChunkedRows):
    """Rows, targets and persons in partitions of Dask; ``verbose`` counts what comes here."""

    def __init__(self, X: Any, y: Any = None, groups: Any = None, *, verbose: int = 0) -> None:
        given = aligned({"X": X, "y": y, "groups": groups})
        graphs, keys = {}, []
        for one in given:
            graph, own = ({}, None) if one is None else _graph_of(one)
            graphs |= graph
            keys.append(own or [None] * len(keys[0]))
        sources, held, room = [], {}, _SHARED * (len(graphs) + 1)
        for of_chunk in zip(*keys, strict=True):
            graph, futures = _cut(graphs, [key for key in of_chunk if key is not None])
            room -= len(graph)
            if room < 0:
                raise ValueError(
                    "Partitions of X, y or groups are made of one another, as by a shuffle, and "
                    "all would be made again for each: bring them into memory first, X.persist()."
                )
            names = [future.key for future in futures.values()]
            sources.append(_Source(Sealed(Part(graph, list(of_chunk), list(futures))), names))
            held |= dict(zip(names, futures.values(), strict=True))
        super().__init__(Chunk, len(sources))
        self._together, self._counts = None, np.zeros(3, int) if verbose else None
        self._take(sources, held)

    def _take(self, sources: list[_Source], held: dict[Any, Any]) -> None:
        """Send what reads the partitions to the cluster, once, if there is one."""
        self._sources, self._held, self._own, client = sources, held, [], _client()
        if client is not None:
            parts = {f"skdp-{uuid4().hex}": source.part for source in sources}
            self._own = client.get(parts, list(parts), sync=False)
            self._held = held | dict(zip(parts, self._own, strict=True))
            self._sources = [
                _Source(key, source.held) for key, source in zip(parts, sources, strict=True)
            ]

    def release(self) -> None:
        """Let the cluster forget what was sent, and rows that were brought together."""
        if self._together is not None:
            self._together.release()
        for future in self._own:
            future.release()

    def load(self, number: int) -> Chunk:
        """Read a partition: on this machine, without a cluster."""
        return self._sources[number].part.open()(())

    def each(self, task: Task, numbers: Sequence[int]) -> Iterator[Any]:
        """Do a pure task on some partitions, where they are; yield the answers."""
        graph, keys = self._graph(task, numbers)
        yield from _before_the_charge(self._answers(graph, keys))

    def total(self, task: Task, numbers: Sequence[int]) -> Any:
        """Do a pure task on some partitions, where they are; return the sum of the answers."""
        graph, keys = self._graph(task, numbers)
        while len(keys) > 1:
            several = [keys[i : i + _FAN_IN] for i in range(0, len(keys), _FAN_IN)]
            sums = {f"skdp-{uuid4().hex}": (chunk_tasks.added, some) for some in several}
            graph, keys = graph | sums, list(sums)
        return chunk_tasks.added(self._answers(graph, keys))

    def _answers(self, graph: dict, keys: list) -> Sequence[Any]:
        """Compute what a graph says of some keys."""
        found = _answers(lambda: _schedule()(graph, keys), len(keys))
        if self._counts is not None:
            tasks = [node for node in graph.values() if isinstance(node, Sealed | tuple)]
            self._counts += 1, len(pickle.dumps(tasks)), len(pickle.dumps(found))
        return found

    def told(self) -> str:
        """Say what went through this process."""
        n, sent, came = np.zeros(3) if self._counts is None else self._counts
        return (
            f"{n} times tasks on {self.n_chunks} partitions: {sent / 1e3:.3g} kB were sent, and "
            f"{came / 1e3:.3g} kB came back."
        )

    def _graph(self, task: Any, numbers: Sequence[int]) -> tuple[dict, list]:
        """Return a graph that does a task on some partitions, and the keys of the answers."""
        # In each task, not a key of its own: tasks would gather where that is.
        name, sealed, graph = f"skdp-{uuid4().hex}", Sealed(task), {}
        keys = [(name, number) for number in numbers]
        for key, number in zip(keys, numbers, strict=True):
            part, held = self._sources[number]
            graph[key] = (_done, sealed, part, number, held)
            on_cluster = [*held, part] if isinstance(part, str) else held
            graph |= {of: self._held[of] for of in on_cluster}
        return graph, keys

    def by_person(self, key: bytes) -> ChunkedRows:
        """Bring the rows of each person together: on the cluster, or else in temporary files."""
        client = _client()
        if client is None:
            return super().by_person(key)
        graph, parts = self._graph(partial(_split, key, self.n_chunks), range(self.n_chunks))
        n, name = self.n_chunks, f"skdp-{uuid4().hex}"
        for i, part in enumerate(parts):
            graph[name, "seen", i] = (_seen, part)
            graph |= {(name, "piece", i, own): (_piece, part, own) for own in range(n)}
        for own in range(n):
            graph[name, own] = (chunk_tasks.joined, [(name, "piece", i, own) for i in range(n)])
        seen = [(name, "seen", i) for i in range(n)]
        together = [(name, own) for own in range(n)]
        futures = client.get(graph, seen + together, sync=False)
        answers = _answers(lambda: client.gather(futures[:n]), n)
        if not chunk_tasks.agreed(_before_the_charge(answers)):
            return self  # nobody has rows
        found = self._together = copy.copy(self)
        held = dict(zip(together, futures[n:], strict=True))
        found._take([_Source(Sealed(itemgetter(0)), [name]) for name in together], held)
        found._own += futures[n:]
        return found


# --- tasks, which run on workers ----------------------------------------------------------------


def _done(task: Sealed, part: Sealed, number: int, held: Sequence[Any]) -> Any:
    """Do a task on a partition."""
    try:
        opened, read = task.open(), part.open()
    except Misread as error:
        return Lost(str(error))
    except Exception:
        return Lost()
    return opened(number, lambda number: read(held))


def _split(key: bytes, n_chunks: int, number: int, load: Load) -> tuple[Any, dict[int, Chunk]]:
    """Return what is public about a partition, and its rows by the partitions of their persons."""
    pieces: dict[int, Chunk] = {}
    scatter = partial(chunk_tasks.scatter, key, n_chunks, pieces.__setitem__)
    return chunk_tasks.Ask(scatter)(number, load), pieces


def _seen(split: Any) -> Any:
    return split[0] if type(split) is tuple else split


def _piece(split: Any, own: int) -> Chunk | None:
    return split[1].get(own) if type(split) is tuple else None


# --- this process -------------------------------------------------------------------------------


def _schedule() -> Callable[..., Any]:
    """What Dask would compute with: a client's cluster, what is configured, or threads."""
    import dask.threaded

    return dask.base.get_scheduler() or dask.threaded.get  # type: ignore[attr-defined]


def _client() -> Any:
    """The client of the cluster, or None without one."""
    client = getattr(_schedule(), "__self__", None)
    return client if hasattr(client, "scheduler_info") else None


def _answers(compute: Callable[[], Any], n: int) -> Sequence[Any]:
    """Return answers, or as many times `Lost` where Dask has none, and nothing of its words."""
    try:
        return compute()
    except (Exception, asyncio.CancelledError):
        return [Lost()] * n


def _before_the_charge(answers: Sequence[Any]) -> Iterator[Any]:
    for found in answers:
        if isinstance(found, Lost):
            raise ValueError(found.words or _GONE)
        yield found


def aligned(given: dict[str, Any]) -> list[Any]:
    """Collections in the same partitions, as far as can be known without reading any."""
    import dask.array

    arrays: Any = dask.array  # type: ignore[attr-defined]
    frames: Any = sys.modules.get("dask.dataframe")
    found: list[Any] = []
    for name, one in given.items():
        if isinstance(one, arrays.Array):
            one = one.rechunk(dict.fromkeys(range(1, one.ndim), -1))
            sizes = getattr(found[0], "chunks", one.chunks)[0] if found else one.chunks[0]
            if not np.isnan([*sizes, *one.chunks[0]]).any() and sizes != one.chunks[0]:
                if sum(sizes) != sum(one.chunks[0]):
                    raise ValueError(f"Expected {name} to have as many rows as X.")
                one = one.rechunk({0: sizes})
        elif one is not None and not (frames and isinstance(one, frames.DataFrame | frames.Series)):
            raise ValueError(
                f"Expected {name} to be an array, a DataFrame or a Series of Dask; make one of "
                "delayed objects or a bag by dask.dataframe.from_delayed or bag.to_dataframe."
            )
        if one is not None and found:
            cuts = [getattr(rows, "divisions", (None,)) for rows in (found[0], one)]
            known = all(None not in cut for cut in cuts)
            if found[0].npartitions != one.npartitions or (known and cuts[0] != cuts[1]):
                raise ValueError(
                    f"Expected {name} in the same partitions as X: take both from one collection, "
                    f"or align them first, as by {name}.repartition(divisions=X.divisions)."
                )
        found.append(one)
    return found


def _graph_of(collection: Any) -> tuple[dict, list]:
    """Return the graph of a collection, and the key of each partition."""
    from dask.core import flatten

    if hasattr(collection, "simplify"):  # a frame, whose full optimisation may fuse partitions
        collection = collection.simplify()
        graph = collection.__dask_graph__()
    else:
        whole = dict(collection.__dask_graph__())
        futures = {key: node for key, node in whole.items() if _is_future(node)}
        graph = futures | dict(collection.__dask_optimize__(whole, collection.__dask_keys__()))
    return dict(graph), list(flatten(collection.__dask_keys__()))


def _is_future(node: Any) -> bool:
    """Whether this stands for what a cluster holds."""
    distributed: Any = sys.modules.get("distributed")
    return distributed is not None and isinstance(node, distributed.Future)


def _cut(graph: dict, keys: list) -> tuple[dict, dict]:
    """Return the part of a graph that some keys need, and the futures in it."""
    from dask.core import get_dependencies

    found, futures, left = {}, {}, list(keys)
    while left:
        key = left.pop()
        if key in found or key in futures:
            continue
        node = graph[key]
        if _is_future(node):
            futures[key] = node
        else:
            found[key] = node
            left += get_dependencies(graph, key)
    return found, futures
