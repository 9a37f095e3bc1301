"""The rows of persons: what is public about them, and how they are brought together.

>>> import numpy as np
>>> from skdp.rows.persons import rows_of_persons
>>> rows, starts = rows_of_persons(np.array(["b", "a", "b"]), n_rows=3)
>>> rows, starts
(array([1, 0, 2]), array([0, 1, 3]))
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterable, Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from skdp.fitting.types import ArrayLike
from skdp.fitting.validate import expected, in_range, integer, number_or_auto
from skdp.relations import GROUP, ROW

_SHORT = 4  # times the number of rows

_DIGITS = 1000  # of text that is read as a number; Python refuses more than 4300

ROWS_PER_GROUP = 5.0  # where it is not declared how many rows a person has


_NOT_LABELS, _SOME_MISSING = (
    f"Expected groups to hold one hashable label per row, but {found}. Drop rows whose person is "
    "unknown, or give each of them a label of its own."
    for found in ("these are not", "some are missing")
)


@dataclass(frozen=True)
class PersonUnit:
    """Public facts about persons, who have several rows each.

    A person's sum of terms that cancel is clipped to ``clip`` times the bound on one row's:
    √((3k̄ + 1)/4) takes little, as scores nearly cancel where the model holds, and is 1 where
    persons have one row; a smaller one is better where rows of a person are alike by chance alone,
    and biased where they are not.
    """

    n_groups: int | None  # None where nothing depends on it
    rows_per_group: float  # k̄ ≥ 1: declared mean number
    clip: float
    most_rows: int | None = None  # that take part; None for all

    @property
    def bound_in_words(self) -> str:
        """What a person may contribute."""
        return (
            f"scores clipped together to {self.clip:.3g} times the bound of a row, "
            f"counts and squares to {self.rows_per_group:.3g} times"
        )

    @property
    def n_rows(self) -> int | None:
        """Number of rows, about: a function of what was declared."""
        return None if self.n_groups is None else max(1, round(self.n_groups * self.rows_per_group))


@dataclass(frozen=True)
class Persons:
    """Persons as the privacy unit: all rows of one person are protected together.

    Given as ``unit=Persons(...)``, in the place of ``unit="row"``, to an estimator, a statistic or
    a report, whose `fit` or call then takes ``groups``: one label per row. A value: two with equal
    fields are equal, and one may be given to all steps of a workflow, or searched over as
    ``{"unit": [Persons(100, clip=1), ...]}``. Statistics, reports, searches and conformal sets take
    one field, and refuse the others.

    Parameters
    ----------
    n_groups : int or None, default=None
        Public number ≥ 1 of persons, about. Needed by estimators that have ``n_samples``, by
        conformal sets and searches; a search takes the one that its private steps declare.
    rows_per_group : float or None, default=None
        Public mean number ≥ 1 of rows of a person. None is ``n_samples / n_groups`` where both are
        declared, else 5.
    clip : float or "auto", default="auto"
        Bound > 0 on what a person contributes to sums of scores or gradients, which nearly cancel,
        over that on one row. ``"auto"`` is √((3 rows_per_group + 1)/4). Of `OPSPosteriorSampler`
        and `OPSRegressor` it is what the rows of a person weigh together, at most, and
        ``rows_per_group`` where ``"auto"``. Scalers, bins and `DPPCA` do not use it.
    max_rows : int or None, default=None
        Rows ≥ 1 of a person that take part, at most: a random subset, by a hash of the person's
        label and number of rows. None is all, and 1 in reports; sums and means of
        `skdp.statistics` need it. A larger ``rows_per_group`` counts as this number.

    See Also
    --------
    skdp.PrivacyLedger : With ``unit="group"`` adds up what fits cost a person.

    Examples
    --------
    >>> from skdp import DPStandardScaler, Persons
    >>> scaler = DPStandardScaler(unit=Persons(rows_per_group=3), epsilon=float("inf"))
    >>> scaler.fit([[1.0], [0.5], [-1.0]], groups=["ann", "bo", "ann"]).unit
    Persons(rows_per_group=3)
    """

    n_groups: int | None = None
    _: KW_ONLY
    rows_per_group: float | None = None
    clip: float | str = "auto"
    max_rows: int | None = None

    def __post_init__(self) -> None:
        facts_of(self)  # refuses invalid values

    def __repr__(self) -> str:
        said = [f"{k}={v!r}" for k, v in vars(self).items() if v != getattr(type(self), k)]
        return f"Persons({', '.join(said)})"


def facts_of(persons: Persons, n_samples: Any = None, *, counted: bool = False) -> PersonUnit:
    """Check the fields, and fill in defaults, from a declared number of rows if there is one.

    Where persons are ``counted``, their number is needed.
    """
    n_groups, mean, most = persons.n_groups, persons.rows_per_group, persons.max_rows
    if counted and n_groups is None:
        remedy = "persons cannot be counted privately: declare about how many there are"
        raise expected("a public number of persons", remedy, n_groups=None)
    n_groups = None if n_groups is None else integer(1, "or None", n_groups=n_groups)
    most = None if most is None else integer(1, "or None", max_rows=most)
    if mean is None:
        mean = ROWS_PER_GROUP
        if n_groups is not None and n_samples is not None:
            mean = max(1.0, integer(1, n_samples=n_samples) / n_groups)
    mean = in_range(1.0, 1e9, "or None", closed="both", rows_per_group=mean)
    if most is not None:
        # No person has more rows than take part: a larger bound cuts nothing and adds noise.
        mean = min(mean, float(most))
    clip = number_or_auto(((3.0 * mean + 1.0) / 4.0) ** 0.5, clip=persons.clip)
    return PersonUnit(n_groups, mean, clip, most)


IN_WORDS = {ROW: "'row'", GROUP: "Persons(...)"}
_OTHERWISE = "write skdp.Persons(n_groups=..., rows_per_group=..., clip=..., max_rows=...)"


def persons_of(unit: Any, remedy: str = "", *, alone: str = "") -> Persons | None:
    """Return the persons that a unit protects, None of rows, and refuse whatever else it is.

    ``alone`` is the one field that has a meaning, where the others have none.
    """
    if isinstance(unit, Persons):
        if alone and unit != Persons(**{alone: getattr(unit, alone)}):
            raise expected(f"Persons with {alone} alone, or 'row'", unit=unit)
        return unit
    if not isinstance(unit, str) or unit != ROW:
        raise expected("'row' or Persons", remedy or _OTHERWISE, unit=unit)
    return None


def kind_of(unit: Any, remedy: str = "") -> str:
    """Return ``"row"``, or ``"group"`` of `Persons`; whatever else is refused."""
    return ROW if persons_of(unit, remedy) is None else GROUP


def rows_of_persons(
    groups: ArrayLike, n_rows: int, most_rows: int | None = None, key: bytes = b""
) -> tuple[np.ndarray | slice, np.ndarray]:
    """Bring together the rows of each person, of whom at most so many rows are kept.

    Which ones depends on the person's own label and number of rows, and on the key, and on no other
    person. Return the numbers of the rows, those of a person together and in their order, or a
    slice of all where they lie so already; and where each person's begin among them, and all end.
    """
    labels, codes = _coded(groups, n_rows)
    sizes = np.bincount(codes, minlength=len(labels))
    starts = np.concatenate([[0], np.cumsum(sizes)])
    cut = () if most_rows is None else np.flatnonzero(sizes > most_rows)
    if not len(cut) and (codes[1:] >= codes[:-1]).all():
        return slice(None), starts
    order = _sorted_by(codes)
    if most_rows is None or not len(cut):
        return order, starts
    keep = np.ones(n_rows, dtype=bool)
    for person in cut:
        with _without_labels():
            seed = _digest(labels[person], key, 16)
        chosen = np.random.Generator(np.random.Philox(key=seed))
        left_out = chosen.permutation(sizes[person])[most_rows:]
        keep[starts[person] + left_out] = False
    return order[keep], np.concatenate([[0], np.cumsum(np.minimum(sizes, most_rows))])


def _digest(label: Any, key: bytes, size: int) -> int:
    """Keyed hash of a label, of so many bytes."""
    text = f"{type(label).__name__} {label!r}".encode(errors="backslashreplace")
    digest = hashlib.blake2b(text, key=key[:64], digest_size=size).digest()
    return int.from_bytes(digest, "little")


def label_digests(groups: ArrayLike, n_rows: int, key: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Return a keyed hash of each distinct label, in uint64, and the number of each row's label.

    A whole number and its text have one hash, whatever the type: a table is read again in others.
    """
    labels, codes = _coded(groups, n_rows)
    with _without_labels():
        digests = [_digest(_plain(label), key, 8) for label in labels]
    return np.array(digests, dtype=np.uint64), codes


def _plain(label: Any) -> Any:
    value = label.item() if isinstance(label, np.generic) else label
    if isinstance(value, str):
        is_whole = value.isdecimal() and len(value) < _DIGITS
    else:
        is_whole = isinstance(value, float) and value.is_integer()
    return int(value) if is_whole else value


def _sorted_by(codes: np.ndarray) -> np.ndarray:
    """Order (n,) of whole numbers from 0 to 2⁴⁸, equal ones as they stand; without comparisons."""
    order = np.argsort(codes.astype(np.uint16), kind="stable")  # 16 bits, which numpy counts
    for shift in (16, 32):
        digits = codes >> shift
        if digits.any():
            order = order[np.argsort(digits.astype(np.uint16)[order], kind="stable")]
    return order


@contextmanager
def _without_labels() -> Iterator[None]:
    """Let no error of a label's own code, which may quote the label, leave."""
    try:
        yield
    except MemoryError:
        raise
    except Exception:
        raise ValueError(_NOT_LABELS) from None


def _coded(groups: Any, n_rows: int) -> tuple[list[Hashable] | np.ndarray, np.ndarray]:
    """Distinct labels, and the number among them of each row's."""
    # Of a table or a mapping list() takes the names of columns, or the keys; a set has no order.
    whole = isinstance(groups, str | bytes | Mapping | Set) or hasattr(groups, "columns")
    if whole or not hasattr(groups, "__len__"):
        raise ValueError(_NOT_LABELS)
    with _without_labels():
        # Of a list numpy would make one type, so that a person's label could merge two others.
        array = np.asarray(groups) if hasattr(groups, "dtype") else np.empty(0, dtype=object)
        labels: list[Any] | None = None
        shape = array.shape
        if array.dtype.kind in "OT" or isinstance(groups, np.ma.MaskedArray):
            labels = list(groups)
            for label in labels:
                hash(label)  # an array or a list is no label, and no missing one
            shape = (len(labels),)
            missing = any(_is_missing(label) for label in labels)
        else:
            missing = bool(array.dtype.kind in "fcmM" and np.isnan(array).any())
    if missing or shape != (n_rows,):
        raise ValueError(_SOME_MISSING if missing else _NOT_LABELS)
    with _without_labels():
        if labels is None:
            return _numbered(array)
        numbers: dict[Hashable, int] = {}
        codes = [numbers.setdefault(label, len(numbers)) for label in labels]
        return list(numbers), np.array(codes, dtype=np.int64)


def _numbered(array: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if array.dtype.kind in "iu" and array.size:
        # A short range of integers needs no comparisons.
        least, most = int(array.min()), int(array.max())
        if most - least < _SHORT * array.size:
            first = np.uint64(least % 2**64)  # modulo 2⁶⁴, in which nothing overflows
            places = (array.astype(np.uint64) - first).astype(np.int64)
            present = np.bincount(places) > 0
            labels = (np.flatnonzero(present).astype(np.uint64) + first).astype(array.dtype)
            return labels, (np.cumsum(present) - 1)[places]
    return np.unique(array, return_inverse=True)


def _is_missing(label: Any) -> bool:
    try:
        return label is None or label is np.ma.masked or bool(label != label)  # NaN, NaT
    except TypeError:  # pandas.NA is neither true nor false
        return True


def rows_beside(starts: np.ndarray) -> np.ndarray:
    """Number of rows of each row's person, itself included, (n_rows,)."""
    sizes = np.diff(starts)
    return np.repeat(sizes, sizes)


def sizes_between(starts: np.ndarray, most: int) -> Iterable[tuple[int, int]]:
    """Yield runs (first, last) of persons that have at most so many rows together, or one alone."""
    first, n = 0, len(starts) - 1
    while first < n:
        last = int(np.searchsorted(starts, starts[first] + most, side="right")) - 1
        last = max(first + 1, min(last, n))
        yield first, last
        first = last
