"""Neighbours, and fits on them with the same random bits and the same releases."""

from __future__ import annotations

import hashlib
import itertools
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from unittest import mock

import numpy as np

from skdp.engine import release_hook
from skdp.engine.release_hook import MechanismCall, Release
from skdp.fitting.streams import Streams
from skdp.relations import ADD_OR_REMOVE_ONE, REPLACE_ONE, check_relation

__all__ = [
    "MechanismCall",
    "Release",
    "fixed_streams",
    "neighbouring_persons",
    "neighbours",
    "record_releases",
    "replay_releases",
]

# Their squares, sums and products leave the range of a double, at either end.
EXTREMES = (1e308, -1e308, 5e-324)
OF_PERSONS = (0.0, 1.0, -1e300, 1e154, 5e-324)


def neighbours(
    X: np.ndarray,
    y: np.ndarray | None = None,
    relation: str = "zero_out",
    *,
    values: Iterable[float] = EXTREMES,
    record: int = 3,
) -> Iterator[tuple[np.ndarray, np.ndarray | None]]:
    """Yield data sets that differ from (X, y) in one record, some of them extremely.

    With the releases held fixed (`replay_releases`), a fit on each has to look the same.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
        Rows.
    y : ndarray of shape (n_samples,) or None
        Labels, which are exchanged, or floats, which become extreme: negative only if some are.
    relation : {"zero_out", "add_or_remove_one", "replace_one"}, default="zero_out"
        What a neighbour is. Under ``zero_out`` two records that replace each other are two steps
        apart, by way of the null record: what is equal at each step is equal along both.
    values : iterable of float, default=(1e308, -1e308, 5e-324)
        Values of the extreme records.
    record : int, default=3
        Number of the record that changes.

    Yields
    ------
    tuple of (ndarray, ndarray or None)
        Rows and targets of a neighbour.

    Examples
    --------
    >>> import numpy as np
    >>> from skdp.testing import neighbours
    >>> pairs = list(neighbours(np.ones((5, 2)), np.array([0, 1, 0, 1, 0]), "add_or_remove_one"))
    >>> sorted({len(X) for X, _ in pairs})
    [4, 6]
    """
    values = tuple(values)
    mixed = np.resize(values, X.shape[1])
    rows = [mixed, np.full(X.shape[1], values[0]), np.zeros(X.shape[1]), X[record]]
    targets = list(itertools.islice(_odd(np.zeros(len(X)) if y is None else y, record), 4))
    if check_relation(relation) == ADD_OR_REMOVE_ONE:
        yield np.delete(X, record, axis=0), None if y is None else np.delete(y, record)
        for row, target in zip(rows, targets, strict=True):
            yield np.vstack([X, row]), None if y is None else np.append(y, target)
        return
    for row, target in zip(rows, targets, strict=True):
        X_other, y_other = X.copy(), None if y is None else y.copy()
        X_other[record] = row
        if y_other is not None:
            y_other[record] = target
        yield X_other, y_other


def _odd(y: np.ndarray, record: int) -> Iterator:
    """Yield targets for a record, without end; the first is its own."""
    if y.dtype.kind == "f":
        extremes = [1e308, 5e-324, -1e308 if (y < 0).any() else 0.0]
        return itertools.cycle([y[record], *extremes])
    return itertools.cycle([y[record], *np.unique(y[y != y[record]])[:3]])


def neighbouring_persons(
    X: np.ndarray,
    y: np.ndarray | None,
    groups: np.ndarray,
    relation: str = "zero_out_group",
    *,
    values: Iterable[float] = OF_PERSONS,
    person: int = 3,
) -> Iterator[tuple[np.ndarray, np.ndarray | None, np.ndarray]]:
    """Yield data sets that differ from (X, y, groups) in all rows of one person.

    The person has other rows, one, three or as many as all others together, and, but for
    ``"replace_one_group"``, none at all; and once somebody comes who has as many.

    Parameters
    ----------
    X, y, relation : array-like, array-like or None and str
        As of `neighbours`, for relations of persons.
    groups : ndarray of int of shape (n_samples,)
        Whose row it is.
    values : iterable of float, default=(0, 1, -1e300, 1e154, 5e-324)
        Values of the rows, in all features or in the first.
    person : int, default=3
        Label of the person who changes.

    Yields
    ------
    tuple of (ndarray, ndarray or None, ndarray)
        Rows, targets and persons of a neighbour; the new rows stand before the others.

    Examples
    --------
    >>> import numpy as np
    >>> from skdp.testing import neighbouring_persons
    >>> persons = np.array([3, 1, 3, 2])
    >>> pairs = neighbouring_persons(np.ones((4, 2)), None, persons)
    >>> [int((groups == 3).sum()) for _, _, groups in pairs]
    [0, 2, 1, 3, 4, 1, 3]
    """
    others = groups != person
    targets = np.zeros(len(X)) if y is None else y
    odd = list(itertools.islice(_odd(targets, int(np.flatnonzero(~others)[0])), 4))

    def table(keep: np.ndarray, rows: np.ndarray, target: float, label: int) -> tuple:
        new = np.full(len(rows), target, dtype=targets.dtype)
        return (
            np.vstack([rows, X[keep]]),
            None if y is None else np.concatenate([new, y[keep]]),
            np.concatenate([np.full(len(rows), label), groups[keep]]),
        )

    if check_relation(relation).of_rows != REPLACE_ONE:
        yield table(others, X[:0], 0, person)
        yield table(np.ones(len(X), bool), np.full_like(X, 1.0), odd[1], groups.max() + 1)
    for i, value in enumerate(values):
        rows = np.full(([1, 3, len(X)][i % 3], X.shape[1]), value)
        if i % 2:
            rows[:, 1:] = X[:1, 1:]
        yield table(others, rows, odd[i % 4], person)


@contextmanager
def fixed_streams(key: bytes = b"fixed") -> Iterator[None]:
    """Give every fit inside the block the same random bits, whatever its data and its seed.

    Two fits inside then differ only by what they have read. Their noise is known to whoever
    reads this line, and their reports do not say so: for synthetic data only.

    Parameters
    ----------
    key : bytes, default=b"fixed"
        Another key gives other bits.

    Yields
    ------
    None

    Examples
    --------
    >>> import numpy as np
    >>> from skdp import DPStandardScaler
    >>> from skdp.testing import fixed_streams
    >>> X = np.linspace(-1, 1, 20).reshape(10, 2)
    >>> with fixed_streams():
    ...     first, second = DPStandardScaler().fit(X), DPStandardScaler().fit(X)
    >>> bool((first.mean_ == second.mean_).all())
    True
    """
    keyed, urandom = Streams.__init__, os.urandom

    def with_key(self: Streams, seed_material: bytes | None = None) -> None:
        keyed(self, key)

    def system(size: int) -> bytes:
        # Names of temporary files and the like stay random.
        ours = sys._getframe(1).f_globals.get("__name__", "").startswith("skdp.")
        return hashlib.shake_256(key).digest(size) if ours else urandom(size)

    with mock.patch.object(Streams, "__init__", with_key), mock.patch.object(os, "urandom", system):
        yield


def record_releases() -> AbstractContextManager[list[Release]]:
    """Collect every private release that is made inside the block, in order.

    Returns
    -------
    context manager
        Enters with a list that fills: of each release the ``call``, which says in public its
        kind, sensitivity, scale of noise, sampling rate, shape and grid, and the ``output``.

    Examples
    --------
    >>> import numpy as np
    >>> from skdp import DPStandardScaler
    >>> from skdp.testing import record_releases
    >>> with record_releases() as tape:
    ...     _ = DPStandardScaler().fit(np.eye(3))
    >>> [release.call.kind for release in tape]
    ['gaussian']
    """
    return release_hook.record()


def replay_releases(tape: Iterable[Release]) -> AbstractContextManager[list[Release]]:
    """Return recorded outputs inside the block, instead of running the mechanisms.

    A fit on other data then gets the same releases: whatever still differs has leaked (the idea of
    record and replay: arXiv:2602.17454).

    Parameters
    ----------
    tape : iterable of Release
        What `record_releases` has collected.

    Returns
    -------
    context manager
        Enters with a list of the releases that are asked for, each with the recorded output.

    Examples
    --------
    >>> import numpy as np
    >>> from skdp import DPStandardScaler
    >>> from skdp.testing import record_releases, replay_releases
    >>> with record_releases() as tape:
    ...     first = DPStandardScaler().fit(np.eye(3))
    >>> with replay_releases(tape):
    ...     second = DPStandardScaler().fit(1e308 * np.eye(3))
    >>> bool((first.mean_ == second.mean_).all())
    True
    """
    return release_hook.replay([release.output for release in tape])
