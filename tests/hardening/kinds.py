"""Kinds of bad or odd input, and every public estimator in a cheap setting.

Each cell of the data is a secret: the digits 8675309, as a float, an integer, a text or a date of
the year 8675. A kind takes 24 such rows of 3 features with their targets, and spoils them.
"""

from __future__ import annotations

import array
import decimal
import fractions
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.array as dask_array
import numpy as np
import pandas as pd
import polars as pl
import torch
from scipy import sparse

from skdp import (
    DPPCA,
    BoundedScaler,
    DPQuantileScaler,
    DPSGDClassifier,
    DPSGDRegressor,
    DPSGLDClassifier,
    DPSGLDRegressor,
    DPStandardScaler,
    DPVariationalLinearRegression,
    DPVariationalLogisticRegression,
    DPVariationalModel,
    DPVariationalPoissonRegression,
    NormClipper,
    OPSPosteriorSampler,
    OPSRegressor,
)
from skdp._input import BoundedRows
from skdp.calibration import DPTemperatureScaler

NAN, INF = float("nan"), float("inf")
N, D = 24, 3
SECRET = 8675309.0
TEXT = "patient 8675309"

# Exact in single precision; every cell shows 8675 however it is printed.
X = SECRET + np.arange(N * D).reshape(N, D) % 7 * 0.5
CLASSES = np.arange(N) % 2
TARGETS = SECRET + np.arange(N) % 5 * 0.5


def log_likelihood(theta, x):
    return -0.5 * ((x - theta) ** 2).sum(1)


# Name -> (class, parameters, entries that a fit writes to a ledger).
LINEAR = {"epsilon": None, "noise_multiplier": 9.0, "max_iter": 2}
NETWORK = {**LINEAR, "hidden_layer_sizes": (), "sampling_rate": 1.0}
CHAIN = {k: v for k, v in NETWORK.items() if k != "noise_multiplier"} | {"temperature": 1.0}
CHAIN |= {"epsilon": None, "learning_rate": 1e-3, "burn_in": 0, "thinning": 1}
DRAW = {"epsilon": 1.0, "delta": 0, "theta_norm": 2.0}
CHAIN_OF_DRAW = DRAW | {"delta": 1e-5, "max_iter": 5}
ESTIMATORS: dict[str, tuple[Callable[..., Any], dict[str, Any], int]] = {
    "DPVariationalLogisticRegression": (DPVariationalLogisticRegression, LINEAR, 1),
    "DPVariationalLinearRegression": (DPVariationalLinearRegression, LINEAR, 1),
    "DPVariationalPoissonRegression": (DPVariationalPoissonRegression, LINEAR, 1),
    "DPVariationalModel": (
        DPVariationalModel,
        {**LINEAR, "log_likelihood": log_likelihood, "n_parameters": 1},
        1,
    ),
    "DPSGDClassifier": (DPSGDClassifier, NETWORK, 1),
    "DPSGDRegressor": (DPSGDRegressor, NETWORK, 1),
    "DPSGLDClassifier": (DPSGLDClassifier, CHAIN, 1),
    "DPSGLDRegressor": (DPSGLDRegressor, CHAIN, 1),
    "OPSPosteriorSampler": (OPSPosteriorSampler, DRAW, 1),
    "OPSRegressor": (OPSRegressor, CHAIN_OF_DRAW, 1),
    "DPTemperatureScaler": (
        DPTemperatureScaler,
        {**LINEAR, "estimator": DPVariationalLogisticRegression(**LINEAR)},
        2,
    ),
    "DPPCA": (DPPCA, {"epsilon": None, "noise_multiplier": 9.0, "n_components": 1}, 1),
    "DPStandardScaler": (DPStandardScaler, {"epsilon": None, "noise_multiplier": 9.0}, 1),
    "DPQuantileScaler": (DPQuantileScaler, {}, 1),
    "BoundedScaler": (BoundedScaler, {}, 0),
    "NormClipper": (NormClipper, {}, 0),
}
CLASSIFIERS = [
    "DPVariationalLogisticRegression",
    "DPSGDClassifier",
    "DPSGLDClassifier",
    "OPSPosteriorSampler",
    "DPTemperatureScaler",
]
TRANSFORMERS = ["DPPCA", "DPStandardScaler", "DPQuantileScaler", "BoundedScaler", "NormClipper"]
WITHOUT_TARGETS = [*TRANSFORMERS, "DPVariationalModel"]


def make(name: str) -> Any:
    kind, parameters, _ = ESTIMATORS[name]
    return kind(**parameters)


def targets(name: str) -> Any:
    return CLASSES if name in CLASSIFIERS else TARGETS


def cell(value: Any, dtype: Any = float) -> Callable:
    """One cell is this value."""

    def spoil(X):
        X = X.astype(dtype)
        X[3, 1] = value
        return X

    return spoil


def cast(dtype: Any) -> Callable:
    return lambda X: X.astype(dtype)


def frame(change: Callable | None = None, **columns: Any) -> Callable:
    def spoil(X):
        found = pd.DataFrame(X, columns=["a", "b", "c"]).assign(
            **{name: value(X) if callable(value) else value for name, value in columns.items()}
        )
        return change(found) if change else found

    return spoil


def memory_map(X):
    path = Path(tempfile.mkdtemp(prefix="rows-")) / "rows"
    stored = np.memmap(path, dtype=np.float64, mode="w+", shape=X.shape)
    stored[:] = X
    stored.flush()
    return np.memmap(path, dtype=np.float64, mode="r", shape=X.shape)


def frozen(X):
    X = X.copy()
    X.flags.writeable = False
    return X


def read_only_strides(X):
    return np.broadcast_to(X[:1], X.shape)


def column_of(value: Any) -> Callable:
    def spoil(X):
        X = X.copy()
        X[:, 1] = value
        return X

    return spoil


def records(X):
    return np.array([tuple(row) for row in X], dtype=[("a", float), ("b", float), ("c", float)])


def objects(value: Any) -> Callable:
    return cell(value, object)


class Treacherous:
    """Rows, targets or a cell whose own error quotes them."""

    def __init__(self, error: type[Exception], *shape: int) -> None:
        self.error, self.shape = error, shape

    def __array__(self, *args, **kwargs):
        raise self.error(TEXT)

    def __len__(self):
        return N


class TreacherousCell:
    """A number whose own error quotes it."""

    def __init__(self, error: type[Exception]) -> None:
        self.error = error

    def __float__(self):
        raise self.error(TEXT)


# What reads rows raises as it likes: a lookup, a lazy column, a file, a parser.
ERRORS = (
    ValueError, TypeError, KeyError, IndexError, AttributeError, OSError, AssertionError,
    ArithmeticError, RuntimeError, StopIteration, UserWarning, Exception,
)  # fmt: skip


def lazy(error: type[Exception]) -> Callable:
    """A dask array whose blocks cannot be read."""

    def read(block):
        raise error(f"row {TEXT!r}")

    return lambda x: dask_array.from_array(x, chunks=8).map_blocks(read, meta=x[:0])


ROWS: dict[str, Callable[[np.ndarray], Any]] = {
    "a NaN": cell(NAN),
    "an infinity": cell(INF),
    "a negative infinity": cell(-INF),
    "1e308": cell(1e308),
    "-1e308": cell(-1e308),
    "the largest double": cell(np.finfo(float).max),
    "a denormal": cell(5e-324),
    "a negative zero": cell(-0.0),
    "a column of NaN": column_of(NAN),
    "NaN everywhere": lambda X: X * NAN,
    "a constant column": column_of(SECRET),
    "one value everywhere": lambda X: np.full_like(X, SECRET),
    "zeros everywhere": np.zeros_like,
    "1e308 everywhere": lambda X: np.full_like(X, 1e308),
    "denormals everywhere": lambda X: np.full_like(X, 5e-324),
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
    "a text among objects": objects(TEXT),
    "a number as text": objects("8675309.5"),
    "texts": cast(str),
    "words": lambda X: np.full(X.shape, TEXT),
    "words in lists": lambda X: [[TEXT] * D for _ in X],
    "bytes": lambda X: np.full(X.shape, TEXT.encode()),
    "None among objects": objects(None),
    "a list among objects": objects([SECRET]),
    "a dictionary among objects": objects({TEXT: SECRET}),
    "an integer of 400 digits": objects(int("8675309" + 393 * "0")),
    "fractions": lambda X: np.vectorize(fractions.Fraction, otypes=[object])(X),
    "decimals": lambda X: np.vectorize(decimal.Decimal, otypes=[object])(X),
    "a complex number among objects": objects(SECRET + 1j),
    "booleans": lambda X: X > SECRET + 1,
    "int8": lambda X: (X % 86).astype(np.int8),
    "int64": cast(np.int64),
    "huge uint64": lambda X: np.full(X.shape, 2**64 - 1, dtype=np.uint64),
    "float16": lambda X: (X / 1e4).astype(np.float16),
    "float32": cast(np.float32),
    "long doubles": cast(np.longdouble),
    "a long double beyond a double": cell(np.longdouble("8.675309e4000"), np.longdouble),
    "complex": lambda X: X + 1j,
    "big-endian": cast(">f8"),
    "big-endian integers": cast(">i4"),
    "Fortran order": np.asfortranarray,
    "read-only": frozen,
    "a memory map": memory_map,
    "every second row twice": lambda X: np.repeat(X, 2, axis=0)[::2],
    "rows backwards": lambda X: X[::-1],
    "strides of zero": read_only_strides,
    "a masked array": lambda X: np.ma.masked_greater(X, SECRET + 2),
    "a matrix": lambda X: X.view(np.matrix),
    "sparse rows": sparse.csr_array,
    "sparse coordinates": sparse.coo_matrix,
    "a frame": frame(),
    "a frame with pd.NA": frame(a=lambda X: pd.array([1, None] * (N // 2), dtype="Int64")),
    "a frame of texts": frame(a=TEXT),
    "a frame with categories": frame(a=lambda X: pd.Categorical([TEXT, "other"] * (N // 2))),
    "a frame of dates": frame(a=lambda X: np.datetime64("8675-03-09")),
    "a frame with two columns of one name": frame(lambda f: f.set_axis(["a", "a", "c"], axis=1)),
    "a frame with names of two types": frame(lambda f: f.set_axis(["a", 0, "c"], axis=1)),
    "a frame with many indices": frame(
        lambda f: f.set_index(pd.MultiIndex.from_product([range(2), range(12)]))
    ),
    "a sparse frame": frame(a=lambda X: pd.arrays.SparseArray(X[:, 0])),
    "a polars frame": lambda X: pl.DataFrame(X, schema=["a", "b", "c"]),
    "a polars frame with null": lambda X: pl.DataFrame({"a": [SECRET, None] * 12, "b": X[:, 0]}),
    "a polars frame of texts": lambda X: pl.DataFrame({"a": [TEXT] * N, "b": X[:, 0]}),
    "a series": lambda X: pd.Series(X[:, 0]),
    "dates": lambda X: np.full(X.shape, np.datetime64("8675-03-09")),
    "durations": lambda X: np.full(X.shape, np.timedelta64(8675309, "s")),
    "not a time": lambda X: np.full(X.shape, np.datetime64("NaT")),
    "a structured array": records,
    "a record array": lambda X: records(X).view(np.recarray),
    "a tensor": torch.from_numpy,
    "a tensor with gradients": lambda X: torch.tensor(X, requires_grad=True),
    "an array.array": lambda X: [array.array("d", row) for row in X],
    "a memory view": lambda X: memoryview(np.ascontiguousarray(X)),
    "rows with a declared norm": lambda X: BoundedRows(X, 1.0),
    "rows with a declared norm of NaN": lambda X: BoundedRows(X, NAN),
    "rows with a declared norm of 0": lambda X: BoundedRows(X, 0.0),
    "rows with an infinite declared norm": lambda X: BoundedRows(X, INF),
    "an object that is no array": lambda X: object(),
    **{f"an array that raises {e.__name__}": lambda X, e=e: Treacherous(e, N, D) for e in ERRORS},
    **{f"a cell that raises {e.__name__}": objects(TreacherousCell(e)) for e in ERRORS},
    **{f"lazy rows that raise {e.__name__}": lazy(e) for e in (KeyError, ValueError)},
    "a signalling NaN": objects(decimal.Decimal("sNaN8675309")),
}


def label(value: Any) -> Callable:
    """One target is this value."""

    def spoil(y):
        y = y.astype(object)
        y[5] = value
        return y

    return spoil


TARGETS_OF: dict[str, Callable[[np.ndarray], Any]] = {
    "no targets": lambda y: None,
    "too few targets": lambda y: y[:-1],
    "too many targets": lambda y: np.append(y, y[:1]),
    "no target at all": lambda y: y[:0],
    "one number for all": lambda y: SECRET,
    "a text for all": lambda y: TEXT,
    "a NaN target": lambda y: np.where(np.arange(N) == 5, NAN, y),
    "an infinite target": lambda y: np.where(np.arange(N) == 5, INF, y),
    "a target of 1e308": lambda y: np.where(np.arange(N) == 5, 1e308, y),
    "a denormal target": lambda y: np.where(np.arange(N) == 5, 5e-324, y),
    "targets of 1e308": lambda y: np.full(N, 1e308),
    "one class": lambda y: np.full(N, SECRET),
    "a class of its own for each row": lambda y: SECRET + np.arange(N),
    "continuous targets": lambda y: SECRET + np.linspace(0, 1, N),
    "negative targets": lambda y: -SECRET - y,
    "two columns of targets": lambda y: np.column_stack([y, y]),
    "a column vector": lambda y: y[:, None],
    "three-dimensional targets": lambda y: y[:, None, None],
    "words as targets": lambda y: np.full(N, TEXT),
    "two words as targets": lambda y: np.array([TEXT, TEXT + "0"] * (N // 2)),
    "bytes as targets": lambda y: np.array([TEXT.encode(), b"0"] * (N // 2)),
    "texts and numbers": label(TEXT),
    "None among targets": label(None),
    "a list among targets": label([SECRET]),
    "a number of 400 digits among targets": label(int("8675309" + 393 * "0")),
    "boolean targets": lambda y: np.arange(N) % 2 == 0,
    "dates as targets": lambda y: np.array(["8675-03-09", "8675-03-10"] * 12, "datetime64[D]"),
    "complex targets": lambda y: y + 1j,
    "sparse targets": lambda y: sparse.csr_array(y[:, None]),
    "unequal lists of targets": lambda y: [[SECRET], *[[SECRET, SECRET]] * (N - 1)],
    "a generator of targets": lambda y: iter(y.tolist()),
    "a dictionary of targets": lambda y: dict(enumerate(y)),
    "masked targets": lambda y: np.ma.masked_equal(y, y[0]),
    "huge uint64 targets": lambda y: np.where(np.arange(N) % 2, 2**64 - 1, 0).astype(np.uint64),
    "big-endian targets": lambda y: y.astype(">f8"),
    "float32 targets": lambda y: y.astype(np.float32),
    "long double targets": lambda y: y.astype(np.longdouble),
    "a series with its own index": lambda y: pd.Series(y, index=np.arange(N)[::-1] + 7),
    "categories as targets": lambda y: pd.Series(pd.Categorical([TEXT, "other"] * (N // 2))),
    "targets with pd.NA": lambda y: pd.Series([1, None] * (N // 2), dtype="Int64"),
    "polars targets": lambda y: pl.Series(y),
    "a tensor of targets": lambda y: torch.from_numpy(np.asarray(y)),
    **{f"targets that raise {e.__name__}": lambda y, e=e: Treacherous(e, N) for e in ERRORS},
    **{f"a target that raises {e.__name__}": label(TreacherousCell(e)) for e in ERRORS},
    **{f"lazy targets that raise {e.__name__}": lazy(e) for e in (KeyError, ValueError)},
    "a text among words": lambda y: [TEXT, "b"] * (N // 2),
    "a signalling NaN among targets": label(decimal.Decimal("sNaN8675309")),
    "a negative infinite target": lambda y: np.where(np.arange(N) == 5, -INF, y),
    "targets with gradients": lambda y: torch.tensor(y, dtype=torch.float64, requires_grad=True),
    "structured targets": lambda y: np.array([(v,) for v in y], dtype=[("a", float)]),
}

KINDS = [*ROWS, *TARGETS_OF]


def data(name: str, kind: str) -> tuple[Any, Any]:
    """Rows and targets of a kind, for an estimator."""
    y = targets(name)
    if kind in TARGETS_OF:
        return X, TARGETS_OF[kind](y.copy())
    rows = ROWS[kind](X.copy())
    try:
        n = len(rows)
    except TypeError:
        n = getattr(rows, "shape", (N,))[0]
    return rows, np.tile(y, n // N + 1)[:n] if n != N else y
