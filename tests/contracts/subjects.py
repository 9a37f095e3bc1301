"""The registry of `skdp.testing` as the contracts use it, and kinds of input of other packages."""

import functools
import tempfile
from pathlib import Path

import dask.array as dask_array
import numpy as np
import pandas as pd
import polars as pl
from sklearn.base import clone, is_classifier, is_regressor

from skdp.rows.bounds import BoundedRows
from skdp.testing import private_estimators
from skdp.testing._inputs import INF, LABELS, NAN, NUMBERS, ROWS, SECRET, TARGETS, TEXT, N
from skdp.testing._subjects import declared

VARIANTS = private_estimators()
CLASSES = [name for name in VARIANTS if "," not in name]
# A search is no estimator of its own: it hands the data on to one of these.
SEARCHES = ["DPRandomizedSearch", "DPDisjointSearch"]
ESTIMATORS = [name for name in CLASSES if name not in SEARCHES]
CLASSIFIERS = [name for name in ESTIMATORS if is_classifier(VARIANTS[name])]
REGRESSORS = [name for name in ESTIMATORS if is_regressor(VARIANTS[name])]
IMAGES = ["GaborTransformer", "ScatteringTransformer"]
PUBLIC = ["AdditiveFeatures", "BoundedScaler", "NormClipper", *IMAGES]  # they release nothing
TRANSFORMERS = ["DPPCA", "DPStandardScaler", "DPQuantileScaler", "DPBins", *PUBLIC]
WITHOUT_TARGETS = [*TRANSFORMERS, "DPVariationalModel"]
RELEASING = [name for name in VARIANTS if name.partition(",")[0] not in PUBLIC]

# Networks of four classes share their code: these ways repeat those of DPSGDClassifier.
REPEATED = [
    f"{name}, {way}"
    for name in ("DPSGDRegressor", "DPSGLDClassifier", "DPSGLDRegressor")
    for way in ("float32", "float64", "hidden")
]


def build(name, **changes):
    """Return a new estimator of the registry, undeclared."""
    return clone(VARIANTS[name]).set_params(**changes)


def with_facts(name, **changes):
    """Return the same with its public facts declared: 24 rows, two classes."""
    return declared(build(name, **changes))


def targets(name):
    """Return the targets that show 8675; an estimator that takes none gets numbers."""
    return LABELS if is_classifier(VARIANTS[name]) else NUMBERS


# --- kinds of input -------------------------------------------------------------------------------


def frame(change=None, **columns):
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


def lazy(error):
    """A dask array whose blocks cannot be read."""

    def read(block):
        raise error(f"row {TEXT!r}")

    return lambda x: dask_array.from_array(x, chunks=8).map_blocks(read, meta=x[:0])


MORE_ROWS = {
    "a memory map": memory_map,
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
    "rows with a declared norm": lambda X: BoundedRows(X, 1.0),
    "rows with a declared norm of NaN": lambda X: BoundedRows(X, NAN),
    "rows with a declared norm of 0": lambda X: BoundedRows(X, 0.0),
    "rows with an infinite declared norm": lambda X: BoundedRows(X, INF),
    **{f"lazy rows that raise {e.__name__}": lazy(e) for e in (KeyError, ValueError)},
}
MORE_TARGETS = {
    "a series with its own index": lambda y: pd.Series(y, index=np.arange(N)[::-1] + 7),
    "categories as targets": lambda y: pd.Series(pd.Categorical([TEXT, "other"] * (N // 2))),
    "targets with pd.NA": lambda y: pd.Series([1, None] * (N // 2), dtype="Int64"),
    "polars targets": lambda y: pl.Series(y),
    **{f"lazy targets that raise {e.__name__}": lazy(e) for e in (KeyError, ValueError)},
}
ALL_ROWS, ALL_TARGETS = ROWS | MORE_ROWS, TARGETS | MORE_TARGETS
KINDS = [*ALL_ROWS, *ALL_TARGETS]


@functools.cache
def good_rows():
    return np.linspace(-1, 1, 3 * N).reshape(N, 3)
