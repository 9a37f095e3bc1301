"""Import and predictions beside scikit-learn's, and a fit on a large sparse matrix.

    python benchmarks/overhead.py [import] [predict] [sparse] [--repetitions 30]

- import: `from skdp import BoundedScaler, DPVariationalLogisticRegression` beside
  `import sklearn.linear_model`, in fresh processes that take turns: medians, and their ratio.
- predict: `predict_proba` of 500 000 rows of 6 features, two classes, by each of both models, which
  take turns in one process. Set OMP_NUM_THREADS=1 where others use the cores too.
- sparse: `DPVariationalLogisticRegression(inference="dpvi", covariance="diag")` on 200 000 rows of
  20 000 columns with 20 entries a row: seconds of the fit, and the largest resident memory of the
  process before and after it, in MB.
"""

import argparse
import resource
import statistics
import subprocess
import sys
import time
import warnings

import numpy as np
from scipy.sparse import csr_array
from sklearn.linear_model import LogisticRegression

from skdp import DPVariationalLogisticRegression

IMPORTS = {
    "skdp": "from skdp import BoundedScaler, DPVariationalLogisticRegression",
    "sklearn": "import sklearn.linear_model",
}


def in_turns(calls, repetitions):
    """Print the median seconds of each call, and the ratio of the first to the second."""
    seconds = {name: [] for name in calls}
    for i in range(repetitions + 2):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            if i > 1:  # the first ones load files and grow the heap
                seconds[name].append(time.perf_counter() - start)
    (ours, theirs) = (statistics.median(taken) for taken in seconds.values())
    least = min(seconds["skdp"]) / min(seconds["sklearn"])
    print(f"    skdp {ours:.4f} s, scikit-learn {theirs:.4f} s, ratio {ours / theirs:.2f}", end="")
    print(f" (of the quickest: {least:.2f})", flush=True)


def imports(repetitions):
    """Time imports in processes of their own."""
    in_turns(
        {
            name: lambda line=line: subprocess.run([sys.executable, "-c", line], check=True)
            for name, line in IMPORTS.items()
        },
        repetitions,
    )


def predictions(repetitions):
    """Time `predict_proba`."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500_000, 6))
    X /= np.maximum(1.0, np.linalg.norm(X, axis=1, keepdims=True))
    y = 3.0 * X @ rng.normal(size=6) + rng.logistic(size=len(X)) > 0
    few = slice(20_000)
    models = {
        "skdp": DPVariationalLogisticRegression(data_norm=1.0).fit(X[few], y[few]),
        "sklearn": LogisticRegression().fit(X[few], y[few]),
    }
    in_turns(
        {name: lambda model=model: model.predict_proba(X) for name, model in models.items()},
        repetitions,
    )


def sparse(_):
    """Fit on a matrix that would take 32 GB as an array."""
    rng, shape, entries = np.random.default_rng(0), (200_000, 20_000), 20
    places = rng.integers(0, shape[1], (shape[0], entries))
    starts = np.arange(0, places.size + 1, entries)
    values = np.full(places.size, entries**-0.5)
    X = csr_array((values, places.ravel(), starts), shape)
    X.sum_duplicates()
    theta = np.where(np.arange(shape[1]) < 200, 20.0, 0.0) * rng.normal(size=shape[1])
    y = X @ theta + rng.logistic(size=shape[0]) > 0
    before, start = megabytes(), time.perf_counter()
    model = DPVariationalLogisticRegression(data_norm=1.0, inference="dpvi", covariance="diag")
    model.fit(X, y)
    seconds = time.perf_counter() - start
    print(f"    {seconds:.1f} s; {before:.0f} MB before, {megabytes():.0f} MB after")


def megabytes():
    """Largest resident memory so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


PARTS = {"import": imports, "predict": predictions, "sparse": sparse}


def main():
    """Run the parts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--repetitions", type=int, default=30)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in arguments.parts or PARTS:
        print(name)
        PARTS[name](arguments.repetitions)


if __name__ == "__main__":
    main()
