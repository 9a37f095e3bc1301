"""Rows that say of which part of a split they are, and can be held to it.

A fit on rows of one part is charged as one that reads this part alone (`skdp.privacy.parts`). What
`DisjointSplit.take` hands out claims to be of a part, in its container; `levels_of` compares it, in
full, with a copy that was kept, row by row at the places that the claim names. What differs in a
value, a type or a column is of no part, and the fit then pays as if it had read all rows.

>>> import numpy as np
>>> from skdp.rows.parts import Kept, Level, Mark, claimed, levels_of
>>> level = Level(Mark("7f3a", "train", "row", False), np.array([0, 2, 3, 5]))
>>> rows = claimed(np.arange(4.0), (level,))
>>> [level.places for level in levels_of(rows[[2, 0]])]
[array([3, 0])]
>>> rows[0] = 9.0
>>> levels_of(rows[[2, 0]]), levels_of(rows + 1)
((), ())

The copy is in the memory of this process alone, and what comes back from a pickle or a file claims
nothing. Arrays know which rows a selection took; frames and series of pandas find theirs by unique
labels; rows of other containers are known as the object that was handed out.
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, NamedTuple

import numpy as np

from skdp.relations import GROUP, ZERO_OUT, check_relation
from skdp.rows.bounds import LoneArray
from skdp.rows.persons import label_digests
from skdp.rows.same_rows import is_pandas, places_by_labels, same_arrays, same_columns, same_objects

_NAME = "skdp part of a split"


class Mark(NamedTuple):
    """Of which part rows are, in plain values."""

    split: str
    part: str
    unit: str  # "row" or "group": what is in one part as a whole
    by_coins: bool  # each record was assigned by itself, in secret: one more moves no other
    within: Mark | None = None  # of the table that was split, if that is a part of a split itself
    why_not: str = ""  # why a fit that was given such rows is counted as one of all rows

    @property
    def parts(self) -> dict[str, str]:
        """Parts by split, with those of the table that was split."""
        return {self.split: self.part} | ({} if self.within is None else self.within.parts)

    @property
    def proved(self) -> dict[str, str]:
        """The same of those that were proved."""
        own = {} if self.why_not else {self.split: self.part}
        return own | ({} if self.within is None else self.within.proved)


class Level(NamedTuple):
    """Rows of a part: the number of each in the table that was split, and its person."""

    mark: Mark  # what is ``within`` it is a level of its own
    places: np.ndarray  # (n,)
    persons: np.ndarray | None = None  # digest of each row's label, under the key of the split
    key: bytes = b""

    def at(self, rows: Any) -> Level:
        """Select rows."""
        persons = None if self.persons is None else self.persons[rows]
        return self._replace(places=self.places[rows], persons=persons)

    def is_of(self, groups: Any) -> bool:
        """Whether persons with these labels, one for each row, are those that were assigned."""
        if groups is None or self.persons is None:
            return False
        found, codes = label_digests(groups, len(self.places), self.key)
        return np.array_equal(found[codes], self.persons)


class Kept(NamedTuple):
    """What was handed out: a copy of the rows, and of which part they are, innermost first."""

    rows: Any
    levels: tuple[Level, ...]


class _Claim(str):
    """A mark in ``attrs``: a name, as which it is printed, copied to files and pickled."""

    kept: Kept | None = None

    def __deepcopy__(self, memo: Any) -> _Claim:
        """Stay the same: pandas copies ``attrs`` at each step."""
        return self

    def __reduce__(self) -> tuple[type, tuple[str]]:
        """Leave all but the name here."""
        return str, (str(self),)


class MarkedRows(LoneArray):
    """An array of which selections know which rows and columns they are, and copies too."""

    _kept: Kept | None = None
    _rows: Any = None
    _columns: Any = None

    def __getitem__(self, key: Any) -> Any:
        """Select."""
        plain = np.asarray(self)[key]
        axes: tuple[Any, ...] = key if isinstance(key, tuple) else (key,)
        if axes and axes[-1] is ...:  # as scikit-learn selects rows
            axes = axes[:-1]
        if self._kept is None or not isinstance(plain, np.ndarray) or not _by_axes(axes):
            return plain
        rows, columns = self._rows[axes[0]], self._columns
        if len(axes) == 2 and not (isinstance(axes[1], slice) and axes[1] == slice(None)):
            if np.ndim(columns) != 1:
                return plain
            columns = columns[axes[1]]
        width = self.shape[1:] if columns is None else np.shape(columns)
        if np.ndim(rows) != 1 or plain.shape != (len(rows), *width):
            return plain
        return self._claiming(plain, rows, columns)

    def _claiming(self, plain: np.ndarray, rows: Any, columns: Any) -> MarkedRows:
        claims = plain.view(MarkedRows)
        claims._kept, claims._rows, claims._columns = self._kept, rows, columns
        return claims

    def copy(self, order: Any = "C") -> Any:
        """Keep the mark."""
        return self._claiming(np.array(self, order=order), self._rows, self._columns)

    def __copy__(self) -> Any:
        return self.copy()

    def __deepcopy__(self, memo: Any) -> Any:
        return self.copy()

    def __reduce__(self) -> Any:
        """Leave the mark here."""
        return np.asarray(self).__reduce__()


def _by_axes(axes: tuple[Any, ...]) -> bool:
    """Whether indices select rows, or rows and columns, and nothing new."""
    return 1 <= len(axes) <= 2 and all(
        isinstance(axis, slice | int | np.integer)
        or (isinstance(axis, list | np.ndarray) and np.ndim(axis) == 1)
        for axis in axes
    )


# Of other containers: what was handed out, by the identity of an object that is still there.
_HANDED: dict[int, tuple[weakref.ref, Kept]] = {}


def claimed(rows: Any, levels: tuple[Level, ...]) -> Any:
    """Let rows, in their container, claim to be of a part, and keep a copy of them."""
    if type(rows) in (np.ndarray, MarkedRows) and rows.ndim:
        claims = np.asarray(rows).view(MarkedRows)
        claims._kept, claims._rows = Kept(np.array(rows), levels), np.arange(len(rows))
        claims._columns = np.arange(rows.shape[1]) if rows.ndim == 2 else None
        return claims
    if is_pandas(rows) and type(rows).__module__.partition(".")[0] == "pandas":
        rows = rows.copy(deep=False)  # the caller's own table is not written to
        claim = _Claim(f"{levels[0].mark.part} of {levels[0].mark.split}")
        claim.kept = Kept(rows.copy(deep=True), levels)
        rows.attrs[_NAME] = claim
        return rows
    copied = np.array(rows) if isinstance(rows, np.ndarray) else copy.deepcopy(rows)
    name, kept = id(rows), Kept(copied, levels)
    with suppress(TypeError):  # of what cannot be followed, nothing can be told later
        _HANDED[name] = (weakref.ref(rows, lambda _: _HANDED.pop(name, None)), kept)
    return rows


def handed_on(given: Any, made: Any, *beside: Any) -> Any:
    """Let what was made of rows, each by itself, be of the part that they are proved to be of.

    What was ``beside`` each row has to be of it too. Of several things made, each is.
    """
    levels = levels_of(given) if kept_of(given) is not None else ()
    if not levels or not all(_agree(levels_of(one), levels) for one in beside):
        return made
    n_rows = len(levels[0].places)

    def own(rows: Any) -> Any:
        return claimed(rows, levels) if getattr(rows, "shape", ())[:1] == (n_rows,) else rows

    return tuple(map(own, made)) if type(made) is tuple else own(made)


def kept_of(rows: Any) -> Kept | None:
    """Return what was kept of the rows that these claim to be, rightly or not."""
    if isinstance(rows, MarkedRows):
        return rows._kept
    attrs = getattr(rows, "attrs", None)  # of pandas
    if isinstance(attrs, dict) and isinstance(claim := attrs.get(_NAME), _Claim):
        return claim.kept
    reference, kept = _HANDED.get(id(rows), (None, None))
    return kept if reference is not None and reference() is rows else None


def levels_of(rows: Any) -> tuple[Level, ...]:
    """Return the parts that rows are of, as far as that is proved: innermost first.

    None where they claim nothing, or differ from what they claim to be.
    """
    kept = kept_of(rows)
    if kept is None:
        return ()
    at: Any = slice(None)
    if isinstance(rows, MarkedRows):
        at = rows._rows
        same = same_arrays(np.asarray(rows), kept.rows, at, rows._columns)
    elif is_pandas(rows):
        at = places_by_labels(rows, kept.rows)
        same = at is not None and same_columns(rows, kept.rows, at)
    else:
        same = same_objects(rows, kept.rows)
    return tuple(level.at(at) for level in kept.levels) if same else ()


# --- at the fit -----------------------------------------------------------------------------------

_TRUSTED: ContextVar[dict[str, str] | None] = ContextVar("parts of what is fitted", default=None)


_CHANGED = (
    "X, the targets or what else was given with each row are not, or no longer, rows that the "
    "split handed out, or a row is there twice; steps that make new rows are fitted by "
    "DisjointSplit.fit_part"
)

_OTHER_PERSONS = "the split was not made by the labels of these persons"


@contextmanager
def trusting(parts: dict[str, str]) -> Iterator[None]:
    """Take rows that steps have made for rows of these parts, if their targets are."""
    token = _TRUSTED.set(parts)
    try:
        yield
    finally:
        _TRUSTED.reset(token)


def part_read(
    X: Any, y: Any, *beside: Any, groups: Any = None, relation: str = ZERO_OUT
) -> Mark | None:
    """Return the part of a split that the rows of a fit are of; None where nothing claims one.

    ``beside`` is what else was given with each row, weights for instance. A part that was not
    proved to be that of all of these rows says ``why_not``; different ones are a ValueError.
    """
    targets = y if isinstance(y, tuple) else (y,)
    others = [array for array in (*targets, *beside) if array is not None]
    kept = [one for one in map(kept_of, (X, *others)) if one is not None]
    if not kept:
        return None
    of_X, *proved = map(levels_of, (X, *others))
    if len({levels[0].mark[:2] for levels in (of_X, *proved) if levels}) > 1:
        raise ValueError(
            "Expected X and y of one part of one split, got "
            + " and ".join(sorted({f"part {k.levels[0].mark.part!r}" for k in kept}))
            + "; take both by one call of DisjointSplit.take."
        )
    trusted = (_TRUSTED.get() or {}) if proved and not of_X else {}
    longest = max((of_X, *proved, kept[0].levels), key=lambda levels: len(levels))
    mark, of_persons = None, check_relation(relation).unit == GROUP
    for depth, level in reversed(tuple(enumerate(longest))):
        is_trusted = trusted.get(level.mark.split) == level.mark.part
        of_each = proved if is_trusted else [of_X, *proved]
        agrees = all(_agree(levels[depth : depth + 1], (level,)) for levels in of_each)
        why_not = "" if agrees and len(np.unique(level.places)) == len(level.places) else _CHANGED
        if not why_not and of_persons and level.mark.unit == GROUP and not level.is_of(groups):
            why_not = _OTHER_PERSONS
        mark = level.mark._replace(within=mark, why_not=why_not)
    return mark


def _agree(found: tuple[Level, ...], levels: tuple[Level, ...]) -> bool:
    """Whether these are the same rows of the same parts."""
    return len(found) == len(levels) and all(
        one.mark[:2] == other.mark[:2] and np.array_equal(one.places, other.places)
        for one, other in zip(found, levels, strict=True)
    )
