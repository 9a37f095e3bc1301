"""`DisjointSplit`: parts of the rows, so that a fit on one and a report on another cost one ε."""

from __future__ import annotations

import copy
import hashlib
import json
import math
import os
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Self

import numpy as np

from skdp.fitting.streams import SecureStream
from skdp.fitting.types import Given, Json
from skdp.fitting.validate import expected, in_range, integer, is_real
from skdp.relations import GROUP, REPLACE_ONE, ROW, ZERO_OUT, check_relation
from skdp.rows.chunk_tasks import n_rows_of
from skdp.rows.parts import Level, Mark, claimed, levels_of, part_read, trusting
from skdp.rows.persons import label_digests

_LEAST_SHARE = 1e-6
_VERSION = 1
_WORDS_AT_ONCE = 2**14


class DisjointSplit:
    """A split of rows by a rule that does not look at them.

    A record pays for what reads its own part and for what reads all rows; fits and reports on
    different parts are composed by their maximum. Rows of a part are handed out by `take` and say
    whose they are: fits, ledgers, reports and `privacy_of` see it, wherever they are in a pipeline.
    Rows that were taken by hand, or have lost their mark on the way, are charged as all rows are.

    **What makes it true.** Every call of `take`, in every session, is given one table with its rows
    in one order (with ``groups``, in any). Nothing that a fit on one part reads was learned from
    the rows of another without a charge. And later releases' budgets do not depend on earlier ones.

    Parameters
    ----------
    n_samples : int
        Number of rows of the table, which is public. Under ``add_or_remove_one`` it is private:
        then a public estimate, in which nothing but sizes to declare depends on it.
    test_size : float, default=0.25
        Share of the rows of the part "test"; the others are the part "train".
    parts : dict of str to float or None, default=None
        Names of other parts with their shares, which add up to 1, instead of these two.
    groups : array-like of shape (n_samples,) or None, default=None
        The person of each row, as any label: all rows of a person are in one part, and fits with
        ``unit=Persons(...)`` are disjoint too. Persons are assigned by a hash of the label, each by
        itself, so that sizes are random.
    neighboring_relation : {"zero_out", "add_or_remove_one", "replace_one"}
        The relation of the fits to come. Under ``add_or_remove_one`` each row is assigned by a
        secret coin, because in a permutation one row more would move others; and the sizes of the
        parts are private.
    random_state : int or None, default=None
        Of the permutation. None draws a key from the operating system. A seed makes splits of
        equally many rows one split by name, so use it for one table only. Under
        ``add_or_remove_one``, and with groups, it has to be None.

    Attributes
    ----------
    id : str
        Name of the split in reports and ledgers. It tells nothing about who is where.

    Raises
    ------
    ValueError
        If a parameter is invalid, or persons are to be split under ``replace_one``, where one who
        takes the place of another may be of another part.

    Notes
    -----
    Not disjoint, and charged as the sum: folds of a cross-validation and repeated splits, where a
    row is on several sides; splits that are *stratified* or balanced, where a label moves others;
    anything that was fitted on all rows, a scaler for instance, which every part pays for.

    Proof in docs/privacy.md §9.

    Examples
    --------
    >>> import numpy as np
    >>> from skdp import DisjointSplit, DPVariationalLogisticRegression, PrivacyLedger
    >>> X, y = np.tile([[-1.0], [1.0]], (500, 1)), np.tile([0, 1], 500)
    >>> split = DisjointSplit(n_samples=1000, test_size=0.3)
    >>> model = DPVariationalLogisticRegression(epsilon=1.0, classes=[0, 1], n_samples=700)
    >>> again = DPVariationalLogisticRegression(epsilon=1.0, classes=[0, 1], n_samples=300)
    >>> with PrivacyLedger() as ledger:
    ...     _ = model.fit(*split.take("train", X, y))
    ...     _ = again.fit(*split.take("test", X, y))
    >>> round(ledger.total(delta=1e-5), 6)  # not 2: no row has been read by both
    1.0
    """

    def __init__(
        self,
        n_samples: int,
        test_size: float = 0.25,
        *,
        parts: Mapping[str, float] | None = None,
        groups: Given = None,
        neighboring_relation: str = ZERO_OUT,
        random_state: int | None = None,
    ) -> None:
        if parts is None:
            share = in_range(0.0, 1.0, test_size=test_size)
            parts = {"train": 1.0 - share, "test": share}
        relation, unit = check_relation(neighboring_relation), ROW if groups is None else GROUP
        if unit == GROUP and relation.of_rows == REPLACE_ONE:
            what = "'zero_out' or 'add_or_remove_one' with groups"
            remedy = "a person who takes the place of another may be of another part"
            raise expected(what, remedy, neighboring_relation=neighboring_relation)
        key = os.urandom(32)
        if random_state is not None:
            if unit == GROUP or not relation.n_is_public:
                raise expected("None where parts are secret", random_state=random_state)
            key = hashlib.sha256(str(integer(0, random_state=random_state)).encode()).digest()
        self._set(n_samples, parts, unit, unit == GROUP or not relation.n_is_public, key)
        self._groups = _own(groups)

    def _set(self, n_samples: Any, parts: Any, unit: str, by_coins: bool, key: bytes) -> None:
        self._n_samples, self._parts = integer(2, n_samples=n_samples), _shares(parts)
        self._unit, self._by_coins, self._key = unit, by_coins, key
        self._groups: Given = None
        facts = json.dumps([_VERSION, self._n_samples, self._parts, unit, by_coins])
        self.id = hashlib.sha256(b"name" + key + facts.encode()).hexdigest()[:16]

    # A split with other sizes is another split, with a name of its own: none can be assigned.
    @property
    def n_samples(self) -> int:
        """Number of rows, as declared."""
        return self._n_samples

    @property
    def parts(self) -> dict[str, float]:
        """Names and shares of the parts."""
        return dict(self._parts)

    @property
    def token(self) -> str:
        """The split as text, from which `from_token` makes it again in a later session.

        It holds the key. Where parts are secret, under ``add_or_remove_one`` and with groups, keep
        it as secret as the rows.
        """
        own: dict[str, Json] = {"version": _VERSION, "n_samples": self.n_samples}
        own |= {"parts": self.parts, "unit": self._unit, "by_coins": self._by_coins}
        return json.dumps(own | {"key": self._key.hex()})

    @classmethod
    def from_token(cls, token: str, groups: Given = None) -> Self:
        """Make a split again.

        Parameters
        ----------
        token : str
            `token` of the split.
        groups : array-like of shape (n_samples,) or None, default=None
            The person of each row by the same labels, if it was made with groups: by other ones the
            parts are others, and share rows with the former. Whole numbers ≥ 0 and their text are
            the same; bytes and text are not, nor dates of other units, nor −1 and "-1".

        Returns
        -------
        DisjointSplit
            With the same parts of the same rows.

        Raises
        ------
        ValueError
            If the text is not the token of a split, or groups are missing or not expected.
        """
        self = cls.__new__(cls)
        try:
            values = json.loads(token)
            if values["version"] != _VERSION or values["unit"] not in (ROW, GROUP):
                raise ValueError
            key = bytes.fromhex(values["key"])
            by_coins = bool(values["by_coins"])
            self._set(values["n_samples"], values["parts"], values["unit"], by_coins, key)
        except (TypeError, KeyError, ValueError):
            raise ValueError("Expected the token of a DisjointSplit.") from None
        if (groups is None) != (self._unit == ROW):
            of = "the person of each row" if self._unit == GROUP else "None: the split is of rows"
            raise ValueError(f"Expected groups to be {of}, as when the split was made.")
        self._groups = _own(groups)
        return self

    @property
    def train(self) -> np.ndarray:
        """Numbers of the rows of the part "train"."""
        return self.indices("train")

    @property
    def test(self) -> np.ndarray:
        """Numbers of the rows of the part "test"."""
        return self.indices("test")

    def indices(self, part: str) -> np.ndarray:
        """Numbers of the rows of a part, increasing; with coins, of a table of `n_samples` rows."""
        return self._indices(part, self.n_samples)

    def n_samples_of(self, part: str) -> int:
        """Public number of rows of a part, or the expected one of coins: ``n_samples`` of a fit."""
        ends = self._ends(self.n_samples)
        at = self._number(part)
        return int(ends[at + 1] - ends[at])

    def take(self, part: str, *arrays: Any) -> Any:
        """Return the rows of a part, marked as such. A part can be split again.

        Parameters
        ----------
        part : str
            Name of the part.
        *arrays : array-like of shape (n_samples, ...)
            X, y and whatever else has a row each; lists become arrays, and sparse rows in formats
            other than CSR and CSC become CSR. These, and frames and series of pandas, carry the
            mark; polars, pyarrow and sparse rows do as a whole, and what is selected of them has
            none. Rows in others are fitted by `fit_part`.

        Returns
        -------
        array-like, or list of them
            The rows of each array, of its type.
        """
        if not arrays:
            raise ValueError("Expected arrays to take rows of, e.g. take('train', X, y).")
        taken = []
        for array in arrays:
            rows: Any = np.asarray(array) if isinstance(array, list | tuple | range) else array
            if getattr(rows, "format", "csr") not in ("csr", "csc") and hasattr(rows, "tocsr"):
                rows = rows.tocsr()  # other formats have no rows to select, or none to compare
            n_rows = _n_rows(rows)
            if not self._by_coins and n_rows != self.n_samples:
                raise ValueError(
                    f"Expected arrays of the {self.n_samples} rows of the table that was split, in "
                    f"one order, got {n_rows} rows."
                )
            found = self._indices(part, n_rows)
            outer = levels_of(rows)
            plain = np.asarray(rows) if isinstance(rows, np.ndarray) else rows
            own = plain.take(found) if _is_arrow(rows) else getattr(plain, "iloc", plain)[found]
            # A row that is in the table twice may be in two parts of it.
            if not outer or len(np.unique(outer[0].places)) == n_rows:
                mark = Mark(self.id, part, self._unit, self._by_coins)
                persons = self._words_of(n_rows)[found] if self._unit == GROUP else None
                level = Level(mark, found, persons, self._key)
                own = claimed(own, (level, *(one.at(found) for one in outer)))
            taken.append(own)
        return taken[0] if len(taken) == 1 else taken

    def fit_part(self, estimator: Any, part: str, X: Any, y: Any = None, **fit_params: Any) -> Any:
        """Fit an estimator to the rows of a part, whatever its steps make of them.

        In a pipeline, steps of other libraries make new rows, of which nobody can see that they are
        of the part. What is fitted here is taken to make each row of the rows that it is given and
        of nothing else; its targets, weights and persons are still compared.

        Parameters
        ----------
        estimator : Estimator
            What is fitted, a pipeline for instance.
        part : str
            Name of the part.
        X : array-like of shape (n_samples, n_features)
            All rows of the table.
        y : array-like of shape (n_samples,) or None, default=None
            All targets.
        **fit_params : object
            For ``estimator.fit``; of what has a value for each row, ``groups`` for instance, the
            values of the part.

        Returns
        -------
        Estimator
            The fitted estimator.

        Examples
        --------
        >>> import numpy as np
        >>> from sklearn.pipeline import make_pipeline
        >>> from sklearn.preprocessing import FunctionTransformer
        >>> from skdp import DisjointSplit, DPVariationalLogisticRegression
        >>> X, y = np.tile([[-1.0], [1.0]], (500, 1)), np.tile([0, 1], 500)
        >>> split = DisjointSplit(1000)
        >>> model = DPVariationalLogisticRegression(1.0, classes=[0, 1], n_samples=750)
        >>> steps = make_pipeline(FunctionTransformer(np.abs), model)
        >>> _ = split.fit_part(steps, "train", X, y)
        """
        n_rows = len(X) if isinstance(X, list | tuple | range) else _n_rows(X)
        given = {"X": X} | ({} if y is None else {"y": y}) | fit_params
        rows = {k: self.take(part, v) if _by_row(v, n_rows) else v for k, v in given.items()}
        X, y = rows.pop("X"), rows.pop("y", None)
        mark = part_read(X, y)
        within = {} if mark is None else mark.proved
        with trusting({**within, self.id: part}):
            return estimator.fit(X, **rows) if y is None else estimator.fit(X, y, **rows)

    def _number(self, part: str) -> int:
        if not isinstance(part, str) or part not in self.parts:
            raise expected(f"one of {', '.join(map(repr, self.parts))}", part=part)
        return list(self.parts).index(part)

    def _ends(self, n: int) -> np.ndarray:
        """Where parts end in a row of n, starting from 0."""
        shares = np.cumsum([0.0, *self.parts.values()])
        shares[-1] = 1.0
        return np.rint(shares * n).astype(np.int64)

    def _indices(self, part: str, n_rows: int) -> np.ndarray:
        at = self._number(part)
        if self._by_coins:
            return np.flatnonzero(self._sides(n_rows) == at)
        ends = self._ends(n_rows)
        return np.sort(self._order[ends[at] : ends[at + 1]])

    @cached_property
    def _order(self) -> np.ndarray:
        # By the words of a keyed stream: numpy's own permutations may change with its versions.
        return np.argsort(self._words(self.n_samples), kind="stable")

    def _words(self, n: int) -> np.ndarray:
        stream, words = SecureStream(self._key[:16]), np.empty(n, dtype=np.uint64)
        for start in range(0, n, _WORDS_AT_ONCE):
            stream.words(words[start : start + _WORDS_AT_ONCE])
        return words

    def _words_of(self, n_rows: int) -> np.ndarray:
        """Digest of the label of each row's person."""
        groups: Any = self._groups
        words, codes = label_digests(groups, n_rows, self._key)
        return words[codes]

    def _sides(self, n_rows: int) -> np.ndarray:
        """Number of the part of each row, each of its own coin."""
        words = self._words_of(n_rows) if self._unit == GROUP else self._words(n_rows)
        return np.searchsorted(np.cumsum(list(self.parts.values()))[:-1], words / 2.0**64, "right")

    def __repr__(self) -> str:
        sizes = ", ".join(f"{part}: {self.n_samples_of(part)}" for part in self.parts)
        about = "about " if self._by_coins else ""
        persons = " of whole persons" if self._unit == GROUP else ""
        return f"DisjointSplit({about}{sizes} of {self.n_samples} rows{persons})"


def _own(groups: Any) -> Any:
    """Labels that whoever gave them does not write to."""
    return groups.copy() if hasattr(groups, "copy") else copy.copy(groups)


def _is_arrow(rows: Any) -> bool:
    return type(rows).__module__.partition(".")[0] == "pyarrow"


def _n_rows(rows: Any) -> int:
    """Count the rows of an array or a table; refuse what is neither."""
    n_rows = n_rows_of(rows) if getattr(rows, "shape", ()) or _is_arrow(rows) else None
    if not isinstance(n_rows, int | np.integer):
        raise ValueError(
            "Expected arrays, frames or sparse matrices in memory to take rows of, got "
            f"{type(rows).__name__}."
        )
    return n_rows


def _by_row(values: Any, n_rows: int) -> bool:
    is_array = hasattr(values, "shape") or isinstance(values, list | tuple) or _is_arrow(values)
    return is_array and np.ndim(values) > 0 and n_rows_of(values) == n_rows


def _shares(parts: Any) -> dict[str, float]:
    what = "a dictionary of two parts or more, their names with shares > 0 that add up to 1"
    if not isinstance(parts, Mapping) or len(parts) < 2:
        raise expected(what, parts=parts)
    shares = all(is_real(share) and _LEAST_SHARE <= share < 1 for share in parts.values())
    named = all(isinstance(name, str) for name in parts)
    if not (shares and named and math.isclose(sum(parts.values()), 1.0, abs_tol=1e-9)):
        raise expected(what, parts=parts)
    return {name: float(share) for name, share in parts.items()}
