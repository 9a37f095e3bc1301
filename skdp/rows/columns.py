"""Columns of which bounds, edges or levels are declared: `DeclaredColumns`."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from typing import Any, ClassVar

import numpy as np
from sklearn.utils import Tags

from skdp.fitting.input import without_data
from skdp.fitting.tables import numbers
from skdp.fitting.validate import expected, integer, is_real
from skdp.models.additive import Additive, Category, Number, Pair

PRIVATE, AUTO = "private", "auto"  # edges that are to be found, and that are if facts suffice

MOST_OF_PAIR = 10**8  # cells times products of a pair, which its surface takes as doubles


class DeclaredColumns:
    """What is declared of the columns of X, by name or position; edges may be found privately."""

    bounds: Any
    edges: Any
    categories: Any
    n_bins: int
    n_features_in_: int
    _finds_edges: ClassVar[bool] = False

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = tags.input_tags.string = self.categories is not None
        return tags

    def _declared(self, n_columns: int | None) -> dict[Any, tuple[str, Any]]:
        """What is declared of each column, by its name or its position, with bounds if private."""
        named = self.edges if isinstance(self.edges, str) else ""  # of all columns
        found: dict[Any, tuple[str, Any]] = {}
        private: list[Any] = []
        for kind in ("bounds", "edges", "categories"):
            given = getattr(self, kind)
            if given is None or (kind == "edges" and named in (PRIVATE, AUTO)):
                continue
            for column, value in _by_column(kind, given, n_columns).items():
                if kind == "edges" and isinstance(value, str) and value == PRIVATE:
                    private.append(column)
                elif column in found:
                    others = f"no {kind} of a column that has {found[column][0]}"
                    raise expected(others, **{kind: column})
                else:
                    found[column] = kind, value
        if not found and n_columns is not None:
            found = dict.fromkeys(range(n_columns), ("bounds", (-1.0, 1.0)))
        bounded = [column for column, (kind, _) in found.items() if kind == "bounds"]
        if named == PRIVATE:
            private = bounded or list(found)
        elif named == AUTO and self.bounds is not None:
            private = bounded
        if not set(private) <= set(bounded):
            raise expected("bounds of each column whose edges are private", edges=PRIVATE)
        if private and not self._finds_edges:
            remedy = "declared edges: only estimators find private ones, or DPBins"
            raise expected(remedy, edges=PRIVATE)
        return found | {column: (PRIVATE, found[column][1]) for column in private}

    def _private(self, n_columns: int | None) -> tuple[tuple[int, ...], tuple[Any, ...]]:
        """Places of the columns whose edges are private among the declared ones, and bounds."""
        kinds = enumerate(self._declared(n_columns).values())
        found = [(place, bounds) for place, (kind, bounds) in kinds if kind == PRIVATE]
        places, bounds = zip(*found, strict=True) if found else ((), ())
        return places, bounds

    def _columns(
        self, n_columns: int | None, private_bins: int | None = None
    ) -> tuple[Number | Category, ...]:
        """The declared columns, in the order in which they are; no waves are asked for yet."""
        n_bins = integer(2, n_bins=self.n_bins)
        is_named = hasattr(self, "feature_names_in_")
        columns: list[Number | Category] = []
        for key, (kind, value) in self._declared(n_columns).items():
            by_place = isinstance(key, int | np.integer) and not is_named
            name = f"x{key}" if by_place else str(key)
            if kind == "categories":
                columns.append(_category(name, value))
            else:
                bins = private_bins if kind == PRIVATE and private_bins else n_bins
                columns.append(_number(name, kind, value, bins))
        return tuple(columns)

    def _codes(
        self,
        found: dict[Any, np.ndarray],
        keys: list[Any],
        model: Additive,
        raw: tuple[int, ...] = (),
        *,
        fit: bool = False,
    ) -> np.ndarray:
        """Codes (n, columns) of the columns of X, which the keys name; of raw ones, the numbers."""
        names, values, used = list(found), [], set()
        for key, column in zip(keys, model.columns, strict=True):
            place = names.index(key) if key in found else key
            if not isinstance(place, int | np.integer) or not 0 <= place < len(names):
                raise expected("names or positions of columns of X", bounds=key)
            if place in used:
                raise expected("one entry per column of X", bounds=key)
            used.add(place)
            of_column = found[names[place]]
            if isinstance(column, Number):
                of_column = numbers(of_column, column.name)
            else:
                _check_type(column, of_column.dtype, fit=fit)
            values.append(of_column)
        others = [str(name) for place, name in enumerate(names) if place not in used]
        if others:
            raise ValueError(
                f"Expected something declared of every column of X, and of {', '.join(others)} "
                "nothing is: give its bounds, edges or categories, or drop it."
            )
        with without_data("Expected categories to be hashable values that can be compared."):
            codes = model.codes(values)
        if raw:
            codes = codes.astype(np.float64)
            codes[:, raw] = np.stack([values[place] for place in raw], axis=1)
        return codes


def _by_column(kind: str, given: Any, n_columns: int | None) -> Mapping:
    """What is given of a kind, by name or position."""
    if isinstance(given, Mapping):
        return given
    if isinstance(given, str) or not hasattr(given, "__len__"):
        what = "a dictionary by column, or an entry per column"
        raise expected(what + f", or {PRIVATE!r}" * (kind == "edges"), **{kind: given})
    pair = kind == "bounds" and len(given) == 2 and all(map(is_real, given))
    return dict(enumerate([given] * (n_columns or 1) if pair else given))


def declared_pairs(
    given: Any, keys: list[Any], columns: tuple[Number | Category, ...]
) -> tuple[Pair, ...]:
    """Pairs of columns, each named as it is declared."""
    if given is None:
        return ()
    if isinstance(given, str) or not hasattr(given, "__len__"):
        raise expected("a list of pairs of columns", pairs=given)
    pairs = []
    for pair in given:
        places = places_of(pair, keys, columns)
        if places is None:
            raise expected("pairs of two declared columns", pairs=pair)
        if sorted(places) in [sorted(found.places) for found in pairs]:
            raise expected("different pairs", "name each of them once", pairs=pair)
        a, b = places
        found = Pair((columns[a], columns[b]), places)
        if math.prod(found.shape) * len(found.squares) > MOST_OF_PAIR:
            what = f"pairs of at most {MOST_OF_PAIR:g} cells times products"
            raise expected(what, "declare fewer levels, or join them", pairs=pair)
        pairs.append(found)
    return tuple(pairs)


def places_of(
    pair: Any, keys: list[Any], columns: tuple[Number | Category, ...]
) -> tuple[int, int] | None:
    """Which of the declared columns two are, by key or by name; None for no pair of them."""
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        return None
    known: dict[Any, int] = {column.name: place for place, column in enumerate(columns)}
    known |= {key: place for place, key in enumerate(keys)}
    places = [known[one] for one in pair if isinstance(one, Hashable) and one in known]
    return (places[0], places[1]) if len(set(places)) == 2 else None


def _number(name: str, kind: str, value: Any, n_bins: int) -> Number:
    edges = numbers(np.asarray(value), "bounds" if kind == PRIVATE else kind)
    if kind != "edges":
        if edges.shape != (2,) or not np.isfinite(edges).all() or edges[0] >= edges[1]:
            raise expected("a lower and a larger upper bound of each column", bounds=value)
        edges = np.linspace(edges[0], edges[1], n_bins + 1)
    is_row = edges.ndim == 1 and len(edges) > 1 and np.isfinite(edges).all()
    if not is_row or (np.diff(edges) <= 0).any():
        raise expected("finite ascending edges of each column", edges=value)
    return Number(name, tuple(edges.tolist()))


def _category(name: str, levels: Any) -> Category:
    if isinstance(levels, str) or not hasattr(levels, "__len__") or not len(levels):
        raise expected("a list of the levels of each column", categories=levels)
    levels = np.asarray(levels, dtype=object).tolist()
    if len(set(levels)) < len(levels):
        raise expected("different levels of each column", categories=levels)
    return Category(name, tuple(levels))


def _check_type(column: Category, dtype: np.dtype, *, fit: bool) -> None:
    """Refuse levels of which a column of this type can hold none; no entry is looked at."""
    text = [isinstance(level, str) for level in column.levels]
    # Rows to predict may all lack the value: a column of NaN.
    numeric = dtype.kind in ("iubf" if fit else "iub")
    if (numeric and all(text)) or (dtype.kind in "UT" and not any(text)):
        held, given = ("numbers", "text") if numeric else ("text", "no text")
        raise expected(
            f"levels that column {column.name} can hold: it has {held}, and they are {given}",
            "all of it would count as undeclared: give them in the column's type, or convert it",
            categories=list(column.levels),
        )
