"""Two neighbouring data sets of an audit: the rows that both have, and the canary."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import is_classifier, is_regressor

from skdp.fitting.types import ArrayLike, Given, Label, Opaque, Params
from skdp.fitting.validate import expected, one_of
from skdp.fitting.warnings import PrivacyWarning
from skdp.relations import ADD_OR_REMOVE_ONE, GROUP, REPLACE_ONE, ROW, Relation, check_relation
from skdp.rows.persons import Persons, rows_of_persons

Record = tuple[ArrayLike, Label]

_N_ROWS, _N_FEATURES, _LARGE = 9, 2, 1e3
_CANARY_ROWS = 50  # of a person


def parameters(estimator: Opaque) -> Params:
    """Return all parameters by name, of what has any."""
    known = hasattr(estimator, "get_params") and not isinstance(estimator, type)
    return estimator.get_params(deep=True) if known else {}


def parameter(estimator: Opaque, name: str) -> Any:
    """Value of a parameter, or of the parameter of a part, if only one value is set."""
    values = [
        value
        for key, value in parameters(estimator).items()
        if key.rsplit("__", 1)[-1] == name and value is not None
    ]
    return values[0] if values and all(value == values[0] for value in values) else None


class Rows(NamedTuple):
    """Rows, their targets, and the numbers of their persons where these are audited."""

    X: np.ndarray
    y: np.ndarray
    persons: np.ndarray | None = None

    @property
    def given(self) -> tuple[np.ndarray, ...]:
        """What a fit is given."""
        return tuple(part for part in self if part is not None)


def relation_of(estimator: Opaque, groups: Given, relation: str | None) -> Relation | None:
    """Return the relation that was given or is a parameter, of rows or of persons; or None."""
    units = [v for k, v in parameters(estimator).items() if k.rsplit("__", 1)[-1] == "unit"]
    kinds = {GROUP if isinstance(unit, Persons) else str(unit) for unit in units}
    relation = relation or parameter(estimator, "neighboring_relation")
    found = None if relation is None else check_relation(relation)
    if kinds != {GROUP} and (found and found.unit) != GROUP and groups is None:
        return found
    if kinds == {ROW}:
        raise expected("Persons", "persons are audited where persons are protected", unit=ROW)
    return (found or Relation.ZERO_OUT).of_unit(GROUP)


def rows_and_canary(
    estimator: Opaque,
    X: Given,
    y: Given,
    groups: Given,
    canary: Record | None,
    relation: Relation | None,
) -> tuple[Rows, Record]:
    """Return the rows that both data sets have, with their targets and persons, and the canary."""
    X = np.zeros((_N_ROWS, _N_FEATURES)) if X is None else np.asarray(X)
    if X.ndim != 2 or len(X) == 0:
        raise ValueError(f"Expected X of shape (n, n_features) with n >= 1, got {X.shape}.")
    if y is None:
        y = np.arange(len(X)) % 2 * (not _is(is_regressor, estimator))
    y = np.asarray(y)
    if y.shape != (len(X),):
        raise ValueError(f"Expected y of shape ({len(X)},), got {y.shape}.")
    of_persons = relation is not None and relation.unit == GROUP
    if canary is None:
        largest = np.unique(y)[-1] if _is(is_classifier, estimator) else 1
        canary = np.append(np.zeros(X.shape[1] - 1), _LARGE), largest
        if of_persons:
            canary = np.tile(canary[0], (_CANARY_ROWS, 1)), largest
    return Rows(X, y, _numbered(groups, len(X)) if of_persons else None), canary


def _numbered(groups: Given, n_rows: int) -> np.ndarray:
    """Number the persons; each row is a person where none were given."""
    if groups is None:
        return np.arange(n_rows)
    rows, starts = rows_of_persons(groups, n_rows)
    numbers = np.empty(n_rows, dtype=np.int64)
    numbers[rows] = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    return numbers


def _is(kind: Callable[[Opaque], bool], estimator: Opaque) -> bool:
    return hasattr(estimator, "__sklearn_tags__") and kind(estimator)


def default_neighbor(estimator: Opaque, canary: Record, relation: Relation) -> Record | str:
    """Return what takes the place of the canary where nothing was said."""
    if relation.of_rows == REPLACE_ONE:
        return -np.asarray(canary[0]), canary[1]
    declared = parameter(estimator, "n_samples") is not None
    function = not hasattr(estimator, "fit")
    if not relation.n_is_public or declared or function:
        return "removed"
    raise expected(
        "given, or the estimator to have a declared n_samples",
        "removing a row tells its presence by the number of rows, and a row of zeros is no null "
        "record where there is an intercept; neighbor='removed' if the number is never read",
        neighbor=None,
    )


def neighbor_of(neighbor: Any, relation: Relation) -> tuple[str, Any]:
    """Return what the canary's place holds, in words, and the record; refuse what is no neighbour.

    Whether a record is null cannot be seen from outside: the caller has to know.
    """
    if isinstance(neighbor, str):
        one_of(("removed",), "or a record (x, y)", neighbor=neighbor)
        if relation.of_rows == REPLACE_ONE:
            raise expected("a record (x, y)", "under 'replace_one' none goes", neighbor=neighbor)
        return "removed", None
    if relation.of_rows == ADD_OR_REMOVE_ONE:
        remedy = "under 'add_or_remove_one' a record in its place is no neighbour"
        raise expected("'removed'", remedy, neighbor=neighbor)
    said = isinstance(neighbor, tuple) and len(neighbor) == 2 and isinstance(neighbor[0], str)
    record = neighbor
    if said:
        one_of(("null",), "or a record (x, y)", neighbor=neighbor[0])
        record = neighbor[1]
    if relation.of_rows == REPLACE_ONE:
        return "another record", record
    if not said:
        warnings.warn(
            "The verdict of the audit is conditional on the record given as neighbor: it must be "
            "null, add nothing to any sum (a row of zeros adds something where there is an "
            "intercept). neighbor=('null', (x, y)) says that it is.",
            PrivacyWarning,
            stacklevel=3,
        )
    return "a record taken as null", record


def with_record(others: Rows, record: Record) -> Rows:
    """Add a record to the rows."""
    try:
        row, target = record
        if others.persons is None:
            rows = np.asarray(row)[None]
            return Rows(np.vstack([others.X, rows]), np.append(others.y, target))
        rows = np.atleast_2d(row)
        own = np.full(len(rows), others.persons.max() + 1)
        return Rows(
            np.vstack([others.X, rows]),
            np.append(others.y, np.broadcast_to(target, len(rows))),
            np.append(others.persons, own),
        )
    except (TypeError, ValueError):
        raise expected("a pair (x, y), x of the width of X", record=record) from None
