"""Time of a whole private classifier with ``bounds=``, over that of scikit-learn.

    SKDP_DATA=... OMP_NUM_THREADS=1 python benchmarks/regression_time.py
        [--tables breast_cancer,spambase,adult] [--repetitions 7]

Raw columns of `real_tables.py` under their bounds, ε = 1, all rows. skdp: the defaults, and the
same on the rows of `_tasks.py`, standardised and of norm 1, with ``data_norm=1``. scikit-learn:
`LogisticRegression` without privacy on those rows, as in `side_by_side.py`, and a pipeline of
`StandardScaler` and `LogisticRegression` on the raw columns. Fits take turns; the least of the
repetitions, and in brackets that over scikit-learn on those rows. Then five classes on 10 000 rows
of 384 columns in [-1, 1], in seconds.
"""

import argparse
import time
import warnings

import _tasks
import numpy as np
from real_tables import DELTA, TARGETS, design, outward, table_of
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skdp import DPVariationalLogisticRegression


def raw(name):
    """Columns, bounds and labels."""
    if ("logistic", name) in TARGETS:
        of = design("logistic", name)
        return of.X, of.bounds, of.y
    table = table_of(name)
    X, y = table.iloc[:, :-1].to_numpy(float), table.iloc[:, -1].to_numpy()
    return X, np.array([outward(x.min(), x.max(), 1.0) for x in X.T]), y


def least(fits, repetitions):
    """Seconds of each fit, the least of some that take turns."""
    found = dict.fromkeys(fits, np.inf)
    for _ in range(repetitions):
        for what, fit in fits.items():
            start = time.perf_counter()
            fit()
            found[what] = min(found[what], time.perf_counter() - start)
    return found


def table(name, repetitions):
    """Print the times of a table."""
    X, bounds, y = raw(name)
    rows, labels = _tasks.load(name)
    facts = {"epsilon": 1.0, "delta": DELTA, "classes": [0, 1]}
    ours = DPVariationalLogisticRegression(**facts, n_samples=len(X), bounds=bounds)
    plain = DPVariationalLogisticRegression(
        **facts, n_samples=len(rows), data_norm=1.0, fit_intercept=False
    )
    peer = LogisticRegression(fit_intercept=False, max_iter=1000)
    pipeline = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    fits = {
        "scikit-learn": lambda: peer.fit(rows, labels),
        "scikit-learn, raw columns": lambda: pipeline.fit(X, y),
        "skdp, bounds": lambda: ours.fit(X, y),
        "skdp, data_norm": lambda: plain.fit(rows, labels),
    }
    found = least(fits, repetitions)
    print(f"{name}: {X.shape[0]} rows, {X.shape[1]} columns with bounds, {rows.shape[1]} of _tasks")
    for what, seconds in found.items():
        ratio = seconds / found["scikit-learn"]
        print(f"    {what:<26}{seconds:8.3f} s  ({ratio:.1f})", flush=True)


def several(repetitions, n=10_000, d=384, classes=5):
    """Print the time of five classes, with bounds and with a norm."""
    rng = np.random.default_rng(0)
    X = np.clip(rng.standard_normal((n, d)) / 4, -1, 1)
    y = np.argmax(X @ rng.standard_normal((d, classes)) + rng.gumbel(size=(n, classes)), axis=1)
    facts = {"epsilon": 1.0, "delta": DELTA, "classes": range(classes), "n_samples": n}
    fits = {
        what: lambda given=given: DPVariationalLogisticRegression(**facts, **given).fit(X, y)
        for what, given in {"bounds": {"bounds": (-1, 1)}, "data_norm": {"data_norm": 5.0}}.items()
    }
    for what, seconds in least(fits, repetitions).items():
        print(f"{classes} classes, {n} x {d}, {what:<12}{seconds:8.3f} s", flush=True)


def main():
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", default="breast_cancer,spambase,adult")
    parser.add_argument("--repetitions", type=int, default=7)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in filter(None, options.tables.split(",")):
        table(name, options.repetitions)
    several(min(3, options.repetitions))


if __name__ == "__main__":
    main()
