"""Log-loss of the linear and the additive model and of DP-EBM, on the splits of one protocol.

Stratified 70/30 splits of the tasks of `_tasks.py`, 5 of each, and 20 of those with fewer than 5000
rows. The linear model has the rows as `_tasks.load` makes them; the additive one the same
standardised columns before rows are scaled down, with 32 bins between quantiles of a normal.
DP-EBM (interpret-core) has either of the two, with the settings of SETTINGS; its bounds are the
smallest and the largest value of each column, which it would have to pay for or to be told.
"""

import math
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from typing import NamedTuple

import _tasks
import numpy as np
import pandas as pd
from scipy.stats import norm
from sklearn.metrics import log_loss
from sklearn.model_selection import StratifiedShuffleSplit

from skdp import DPAdditiveClassifier, DPVariationalLogisticRegression

DELTA, EPSILONS = 1e-5, (0.5, 1.0, 3.0)
TABLES = ("breast_cancer", "german", "pima", "abalone", "spambase", "magic", "adult", "credit")
EDGES = [-4.0, *norm.ppf(np.arange(1, 32) / 32), 4.0]
# Rounds and learning rate: the defaults, and others. What matters most is their product: the noise
# of a round grows with the root of their number.
SETTINGS = ((300, 0.01), (50, 0.02), (50, 0.06), (50, 0.2), (50, 0.6), (150, 0.6))
DEFAULTS, INPUTS = f"{SETTINGS[0][0]} × {SETTINGS[0][1]:g}", ("columns", "rows")

try:
    VERSION = version("interpret-core")
except PackageNotFoundError:
    VERSION = None


class Task(NamedTuple):
    """Rows of norm ≤ 1, a frame of columns, labels, and names of numbers and of categories."""

    rows: np.ndarray
    table: pd.DataFrame
    y: np.ndarray
    numbers: list
    categories: list


@lru_cache(1)
def task(name):
    """A task by name."""
    rows, y = _tasks.load(name)
    if name == "breast_cancer":
        table, categorical = _tasks.load_breast_cancer(as_frame=True).data, []
    else:
        target = _tasks.SOURCES[name][2]
        table = _tasks._table(name)
        target = target if target in table else table.columns[-1]
        table = table.drop(columns=[target, "ID"], errors="ignore")
        categorical = _tasks.CATEGORICAL_NUMBERS.get(name, [])
    numbers = [c for c in table if pd.api.types.is_numeric_dtype(table[c]) and c not in categorical]
    Z = table[numbers].to_numpy(float)
    scale = np.nanstd(Z, axis=0)
    Z = np.clip((Z - np.nanmean(Z, axis=0)) / np.where(scale == 0, 1, scale), -4, 4)
    others = {c: table[c].astype(str).to_numpy() for c in table if c not in numbers}
    table = pd.DataFrame(dict(zip(numbers, Z.T, strict=True)) | others)
    return Task(rows, table, y, numbers, list(others))


def n_splits(name):
    """Number of splits of a task."""
    return 20 if len(task(name).y) < 5000 else 5


@lru_cache(1)
def splits(name, count=None):
    """Rows to fit and rows held back, of each split."""
    of = task(name)
    split = StratifiedShuffleSplit(count or n_splits(name), test_size=0.3, random_state=0)
    return list(split.split(of.rows, of.y))


def ours(name, epsilon, split):
    """Log-loss of the linear and of the additive model on a split, by method."""
    of, (train, test) = task(name), split
    facts = {"classes": [0, 1], "n_samples": len(train)}
    linear = DPVariationalLogisticRegression(
        epsilon, DELTA, data_norm=1.0, fit_intercept=False, **facts
    ).fit(of.rows[train], of.y[train])
    return {
        "linear": float(log_loss(of.y[test], linear.predict_proba(of.rows[test]))),
        "additive": loss_of(name, epsilon, split, edges=dict.fromkeys(of.numbers, EDGES)),
    }


def loss_of(name, epsilon, split, **declared):
    """Log-loss of the additive model with declared columns on a split."""
    of, (train, test) = task(name), split
    additive = DPAdditiveClassifier(
        epsilon,
        DELTA,
        categories={c: sorted(set(of.table[c])) for c in of.categories},
        classes=[0, 1],
        n_samples=len(train),
        **declared,
    ).fit(of.table.iloc[train], of.y[train])
    return float(log_loss(of.y[test], additive.predict_proba(of.table.iloc[test])))


def peers(name, epsilon, split, known=()):
    """Log-loss of DP-EBM on a split, by input and setting, but for those that are known.

    Nothing where it is not installed.
    """
    if VERSION is None:
        return {}
    from interpret.privacy import DPExplainableBoostingClassifier

    of, (train, test) = task(name), split
    kinds = ["nominal" if c in of.categories else "continuous" for c in of.table]
    rows = pd.DataFrame(of.rows[:, 1:]).rename(columns="x{}".format)
    given = {"columns": (of.table, kinds), "rows": (rows, ["continuous"] * rows.shape[1])}
    found = {}
    for key in INPUTS:
        table, kinds = given[key]
        numbers = [c for c, kind in zip(table, kinds, strict=True) if kind == "continuous"]
        bounds = {c: (table[c].min(), table[c].max()) for c in numbers}
        for n_rounds, rate in SETTINGS:
            method = f"DP-EBM, {key}, {n_rounds} × {rate:g}"
            if method in known:
                continue
            model = DPExplainableBoostingClassifier(
                epsilon=epsilon,
                delta=DELTA,
                feature_types=kinds,
                privacy_bounds=bounds,
                max_rounds=n_rounds,
                learning_rate=rate,
                n_jobs=1,
            ).fit(table.iloc[train], of.y[train])
            p = model.predict_proba(table.iloc[test])
            found[method] = float(log_loss(of.y[test], p))
    return found


def best(losses, wanted=""):
    """DP-EBM's method of least mean, None without it; of those whose name holds what is wanted."""
    known = {m: np.mean(v) for m, v in losses.items() if m.startswith("DP-EBM") and wanted in m}
    return min(known, key=known.get) if known else None


def difference(losses, one, other):
    """Mean and standard error of the paired differences of two methods."""
    gaps = np.subtract(losses[one], losses[other])
    return float(gaps.mean()), float(gaps.std(ddof=1) / math.sqrt(len(gaps)))
