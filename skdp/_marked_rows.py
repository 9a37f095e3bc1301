"""Rows that say of which part of a split they are, in the container in which they travel.

A fit on marked rows is charged as one that reads this part alone (`skdp.privacy.parts`). The mark
is a statement about rows, not about values: what selects rows of a part keeps it, and arithmetic
and joins lose it. Lost marks are safe: the fit then pays as if it had read all rows.

>>> import numpy as np
>>> from skdp._marked_rows import Mark, mark_of, marked
>>> rows = marked(np.arange(4.0), Mark("7f3a", "train", 4, "row", False))
>>> mark_of(rows[[0, 2]]).part, mark_of(np.concatenate([rows, rows])), mark_of(rows + 1)
('train', None, None)

Frames and series of pandas carry it in ``attrs``, which selections keep and joins of unlike parts
drop. Methods that fill one table with rows of another keep them too (``combine_first``), so that
the labels of the part's rows go along, and rows under any other label are no longer of the part;
nor are more rows than it has. Containers of other libraries carry none.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

_NAME = "skdp part of a split"
_LABELS = "skdp labels of the part's rows"


class Mark(NamedTuple):
    """Of which part rows are, in plain values.

    Parameters
    ----------
    split, part : str
        Names.
    n_rows : int
        Rows of the part.
    unit : {"row", "group"}
        What is in one part as a whole.
    by_coins : bool
        Whether each record was assigned by itself, in secret, so that one record more or fewer
        moves no other.
    within : Mark or None
        Of the table that was split, where that is a part of a split itself.
    """

    split: str
    part: str
    n_rows: int
    unit: str
    by_coins: bool
    within: Mark | None = None

    @property
    def parts(self) -> dict[str, str]:
        """Parts by split, with those of the table that was split."""
        return {self.split: self.part} | ({} if self.within is None else self.within.parts)

    @classmethod
    def of(cls, values: Any) -> Mark | None:
        """Return a mark from its values in a list, or None from None."""
        if values is None:
            return None
        *plain, within = values
        return cls(*plain, within=cls.of(within))


class MarkedRows(np.ndarray):
    """An array of which selections of rows carry a mark, and nothing else that is made of it."""

    _mark: Mark | None = None

    def __getitem__(self, key: Any) -> Any:
        """Select, and keep the mark."""
        return marked(np.asarray(self)[key], self._mark)

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        """Give an ordinary array, or a number."""
        return np.asarray(array)[()] if return_scalar else np.asarray(array)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Give an ordinary array."""
        result = super().__array_function__(func, types, args, kwargs)
        return np.asarray(result) if isinstance(result, MarkedRows) else result

    def __copy__(self) -> Any:
        """Keep the mark."""
        return marked(np.array(self), self._mark)

    def __deepcopy__(self, memo: Any) -> Any:
        """Keep the mark."""
        return marked(np.array(self), self._mark)

    def __reduce__(self) -> tuple[Callable, tuple[np.ndarray, Mark | None]]:
        """Keep the mark in a pickle."""
        return marked, (np.asarray(self), self._mark)

    def __repr__(self) -> str:
        """Look like the ordinary array."""
        return repr(np.asarray(self))


def marked(rows: Any, mark: Mark | None) -> Any:
    """Mark rows, in their container; what can carry no mark is returned as it is."""
    if mark is None:
        return rows
    if isinstance(rows, np.ndarray):
        if rows.ndim:
            rows = np.asarray(rows).view(MarkedRows)
            rows._mark = mark
    elif isinstance(getattr(rows, "attrs", None), dict):
        rows = rows.copy(deep=False)  # the caller's own table is not written to
        rows.attrs[_NAME] = list(mark)  # as what is written to a file comes back
        # A string, which files take and pandas, which copies attrs at each step, does not copy.
        rows.attrs[_LABELS] = b64encode(np.unique(_hashes(rows)).tobytes()).decode()
    return rows


def _hashes(rows: Any) -> np.ndarray:
    """Hash the labels of the rows of a frame or series, 64 bits each."""
    hash_labels = import_module("pandas.util").hash_pandas_object
    return np.asarray(hash_labels(rows.index, index=False), np.uint64)


def _are_labelled(rows: Any) -> bool:
    """Whether all rows of a frame or series have labels of the part that they are marked with."""
    given = np.frombuffer(b64decode(rows.attrs.get(_LABELS, "")), np.uint64)  # sorted
    found = _hashes(rows)
    places = np.searchsorted(given, found)
    nearest = given[places.clip(max=len(given) - 1)] if len(given) else given
    return bool(np.array_equal(nearest, found))


def mark_of(rows: Any) -> Mark | None:
    """Return the mark of rows, if they have one and are no more than the part."""
    if isinstance(rows, MarkedRows):
        found = rows._mark
    else:
        attributes = getattr(rows, "attrs", None)
        found = Mark.of(attributes.get(_NAME) if isinstance(attributes, dict) else None)
        if found is not None and not _are_labelled(rows):
            return None
    return found if found is not None and len(rows) <= found.n_rows else None
