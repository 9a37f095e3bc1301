"""Bad and odd input: kinds of rows and of targets, made of secrets.

Each cell of 24 rows of 3 features shows the digits 8675309, as a number, a text or a date.
"""

from __future__ import annotations

import array
import decimal
import fractions
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from scipy import sparse

NAN, INF = float("nan"), float("inf")
N, D = 24, 3
SECRET = 8675309.0
TEXT = "patient 8675309"
TOO_LONG = int("8675309" + 393 * "0")

# Exact in single precision; every cell shows 8675 however it is printed.
X = SECRET + np.arange(N * D).reshape(N, D) % 7 * 0.5
LABELS = np.arange(N) % 2
NUMBERS = SECRET + np.arange(N) % 5 * 0.5

Spoil = Callable[[np.ndarray], Any]


class Treacherous:
    """Rows, targets or a cell whose own error quotes them."""

    def __init__(self, error: type[Exception], *shape: int) -> None:
        self.error, self.shape = error, shape

    def __array__(self, *args: Any, **kwargs: Any) -> np.ndarray:
        raise self.error(TEXT)

    def __len__(self) -> int:
        return N


class TreacherousCell:
    """A number whose own error quotes it."""

    def __init__(self, error: type[Exception]) -> None:
        self.error = error

    def __float__(self) -> float:
        raise self.error(TEXT)


# What reads rows raises as it likes: a lookup, a lazy column, a file, a parser.
ERRORS = (
    ValueError, TypeError, KeyError, IndexError, AttributeError, OSError, AssertionError,
    ArithmeticError, RuntimeError, StopIteration, UserWarning, Exception,
)  # fmt: skip


def cell(value: Any, dtype: Any = float) -> Spoil:
    """One cell is this value."""

    def spoil(X: np.ndarray) -> np.ndarray:
        X = X.astype(dtype)
        X[3, 1] = value
        return X

    return spoil


def _cast(dtype: Any) -> Spoil:
    return lambda X: X.astype(dtype)


def _column(value: float) -> Spoil:
    def spoil(X: np.ndarray) -> np.ndarray:
        X = X.copy()
        X[:, 1] = value
        return X

    return spoil


def _all(value: Any, dtype: Any = None) -> Spoil:
    return lambda X: np.full(X.shape, value, dtype)


def _each(kind: Callable) -> Spoil:
    return lambda X: np.vectorize(kind, otypes=[object])(X)


def _frozen(X: np.ndarray) -> np.ndarray:
    X = X.copy()
    X.flags.writeable = False
    return X


def _records(X: np.ndarray) -> np.ndarray:
    return np.array([tuple(row) for row in X], dtype=[("a", float), ("b", float), ("c", float)])


ROWS: dict[str, Spoil] = {
    "a NaN": cell(NAN),
    "an infinity": cell(INF),
    "a negative infinity": cell(-INF),
    "1e308": cell(1e308),
    "-1e308": cell(-1e308),
    "the largest double": cell(np.finfo(float).max),
    "a denormal": cell(5e-324),
    "a negative zero": cell(-0.0),
    "a column of NaN": _column(NAN),
    "NaN everywhere": _all(NAN),
    "a constant column": _column(SECRET),
    "one value everywhere": _all(SECRET),
    "zeros everywhere": np.zeros_like,
    "1e308 everywhere": _all(1e308),
    "denormals everywhere": _all(5e-324),
    "10 000 duplicates": lambda X: np.tile(X[:2], (5000, 1)),
    "one row": lambda X: X[:1],
    "two rows": lambda X: X[:2],
    "one column": lambda X: X[:, :1],
    "more columns than rows": lambda X: np.tile(X, (1, 12)),
    "no rows": lambda X: X[:0],
    "no columns": lambda X: X[:, :0],
    "one dimension": lambda X: X[:, 0],
    "three dimensions": lambda X: X[:, :, None],
    "a number": lambda X: SECRET,
    "None": lambda X: None,
    "a text": lambda X: TEXT,
    "lists": lambda X: X.tolist(),
    "tuples": lambda X: tuple(map(tuple, X.tolist())),
    "lists of unequal length": lambda X: [*X.tolist()[:-1], [SECRET]],
    "empty lists": lambda X: [[] for _ in X],
    "a dictionary": lambda X: {"a": X[:, 0], "b": X[:, 1]},
    "a set": lambda X: set(X.ravel()),
    "a generator": lambda X: (row for row in X),
    "a text among objects": cell(TEXT, object),
    "a number as text": cell("8675309.5", object),
    "texts": _cast(str),
    "words": _all(TEXT),
    "words in lists": lambda X: [[TEXT] * D for _ in X],
    "bytes": _all(TEXT.encode()),
    "None among objects": cell(None, object),
    "a list among objects": cell([SECRET], object),
    "a dictionary among objects": cell({TEXT: SECRET}, object),
    "an integer of 400 digits": cell(TOO_LONG, object),
    "fractions": _each(fractions.Fraction),
    "decimals": _each(decimal.Decimal),
    "a signalling NaN": cell(decimal.Decimal("sNaN8675309"), object),
    "a complex number among objects": cell(SECRET + 1j, object),
    "booleans": lambda X: X > SECRET + 1,
    "int8": lambda X: (X % 86).astype(np.int8),
    "int64": _cast(np.int64),
    "huge uint64": _all(2**64 - 1, np.uint64),
    "float16": lambda X: (X / 1e4).astype(np.float16),
    "float32": _cast(np.float32),
    "long doubles": _cast(np.longdouble),
    "a long double beyond a double": cell(np.longdouble("8.675309e4000"), np.longdouble),
    "complex": lambda X: X + 1j,
    "big-endian": _cast(">f8"),
    "big-endian integers": _cast(">i4"),
    "Fortran order": np.asfortranarray,
    "read-only": _frozen,
    "every second row twice": lambda X: np.repeat(X, 2, axis=0)[::2],
    "rows backwards": lambda X: X[::-1],
    "strides of zero": lambda X: np.broadcast_to(X[:1], X.shape),
    "a masked array": lambda X: np.ma.masked_greater(X, SECRET + 2),
    "a matrix": lambda X: X.view(np.matrix),
    "sparse rows": sparse.csr_array,
    "sparse coordinates": sparse.coo_matrix,
    "dates": _all(np.datetime64("8675-03-09")),
    "durations": _all(np.timedelta64(8675309, "s")),
    "not a time": _all(np.datetime64("NaT", "D")),
    "a structured array": _records,
    "a record array": lambda X: _records(X).view(np.recarray),
    "a tensor": torch.from_numpy,
    "a tensor with gradients": lambda X: torch.tensor(X, requires_grad=True),
    "an array.array": lambda X: [array.array("d", row) for row in X],
    "a memory view": lambda X: np.ascontiguousarray(X).data,
    "an object that is no array": lambda X: object(),
    **{f"an array that raises {e.__name__}": lambda X, e=e: Treacherous(e, N, D) for e in ERRORS},
    **{f"a cell that raises {e.__name__}": cell(TreacherousCell(e), object) for e in ERRORS},
}


def _label(value: Any, dtype: Any = object) -> Spoil:
    def spoil(y: np.ndarray) -> np.ndarray:
        y = y.astype(dtype)
        y[5] = value
        return y

    return spoil


TARGETS: dict[str, Spoil] = {
    "no targets": lambda y: None,
    "too few targets": lambda y: y[:-1],
    "too many targets": lambda y: np.append(y, y[:1]),
    "no target at all": lambda y: y[:0],
    "one number for all": lambda y: SECRET,
    "a text for all": lambda y: TEXT,
    "a NaN target": _label(NAN, float),
    "an infinite target": _label(INF, float),
    "a negative infinite target": _label(-INF, float),
    "a target of 1e308": _label(1e308, float),
    "a denormal target": _label(5e-324, float),
    "targets of 1e308": _all(1e308),
    "one class": _all(SECRET),
    "a class of its own for each row": lambda y: SECRET + np.arange(N),
    "continuous targets": lambda y: SECRET + np.linspace(0, 1, N),
    "negative targets": lambda y: -SECRET - y,
    "two columns of targets": lambda y: np.column_stack([y, y]),
    "a column vector": lambda y: y[:, None],
    "three-dimensional targets": lambda y: y[:, None, None],
    "words as targets": _all(TEXT),
    "two words as targets": lambda y: np.array([TEXT, TEXT + "0"] * (N // 2)),
    "bytes as targets": lambda y: np.array([TEXT.encode(), b"0"] * (N // 2)),
    "texts and numbers": _label(TEXT),
    "a text among words": lambda y: [TEXT, "b"] * (N // 2),
    "None among targets": _label(None),
    "a list among targets": _label([SECRET]),
    "a number of 400 digits among targets": _label(TOO_LONG),
    "a signalling NaN among targets": _label(decimal.Decimal("sNaN8675309")),
    "boolean targets": lambda y: np.arange(N) % 2 == 0,
    "dates as targets": lambda y: np.array(["8675-03-09", "8675-03-10"] * 12, "datetime64[D]"),
    "complex targets": lambda y: y + 1j,
    "sparse targets": lambda y: sparse.csr_array(y[:, None]),
    "unequal lists of targets": lambda y: [[SECRET], *[[SECRET, SECRET]] * (N - 1)],
    "a generator of targets": lambda y: iter(y.tolist()),
    "a dictionary of targets": lambda y: dict(enumerate(y)),
    "masked targets": lambda y: np.ma.masked_equal(y, y[0]),
    "huge uint64 targets": lambda y: np.uint64(2**64 - 1) * (np.arange(N, dtype=np.uint64) % 2),
    "big-endian targets": _cast(">f8"),
    "float32 targets": _cast(np.float32),
    "long double targets": _cast(np.longdouble),
    "a tensor of targets": lambda y: torch.from_numpy(y),
    "targets with gradients": lambda y: torch.tensor(y, dtype=torch.float64, requires_grad=True),
    "structured targets": lambda y: np.array([(v,) for v in y], dtype=[("a", float)]),
    **{f"targets that raise {e.__name__}": lambda y, e=e: Treacherous(e, N) for e in ERRORS},
    **{f"a target that raises {e.__name__}": _label(TreacherousCell(e)) for e in ERRORS},
}


def bad_inputs(
    *, classifier: bool, rows: Mapping[str, Spoil] = ROWS, targets: Mapping[str, Spoil] = TARGETS
) -> Iterator[tuple[str, Any, Any]]:
    """Yield bad and odd input: each kind of rows with good targets, and good rows with each target.

    Parameters
    ----------
    classifier : bool
        Whether the good targets are labels, and not numbers.
    rows : mapping of str to callable, default=a table of 103
        Kinds of rows by name: what spoils 24 rows of 3 numbers that show the digits 8675.
    targets : mapping of str to callable, default=a table of 67
        Kinds of targets by name: what spoils 24 labels or numbers.

    Yields
    ------
    tuple of (str, object, object)
        Name of the kind, rows and targets.

    Examples
    --------
    >>> from skdp.testing import bad_inputs
    >>> kinds = {kind: X for kind, X, y in bad_inputs(classifier=True)}
    >>> kinds["no rows"].shape
    (0, 3)
    """
    y = LABELS if classifier else NUMBERS
    for kind, spoil in rows.items():
        spoiled = spoil(X.copy())
        try:
            n = len(spoiled)
        except TypeError:
            n = getattr(spoiled, "shape", (N,))[0]
        yield kind, spoiled, np.tile(y, n // N + 1)[:n]
    for kind, spoil in targets.items():
        yield kind, X, spoil(y.copy())


def assert_no_data(text: str, where: str) -> None:
    """Assert that a text shows no digits of the secret; addresses and names of splits are none."""
    shown = re.sub(r"0x[0-9a-f]+|part '\w+'\s+of\s+[0-9a-f]{16}\b", "", text)
    found = "8675" in shown or "8.675" in shown
    assert not found, f"{where} quotes the data: {shown[:300]}"
