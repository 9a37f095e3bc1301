"""Time and memory of fits on Parquet files, beside plain passes over the same chunks.

    python benchmarks/scaling.py [--rows 1000000 10000000] [--folder FOLDER]

Writes n rows of 50 doubles and their labels (4 GB for n = 1e7) in row groups of 2¹⁷ rows, and
deletes them. A fit is `DPVariationalLogisticRegression` at ε = 1 on `ParquetRows`, the plain passes
are as many over the same chunks with the same sums and nothing else: XᵀX twice, and Xᵀ(y − σ(Xθ)).
Each in a fresh process, one after the other, so that the file is in the page cache or is not for
both. Prints per n:

- passes: how often the chunks are read, the first look included;
- fit, plain: seconds; ratio: of the one over the other;
- pass: seconds of a pass of the fit;
- peak: resident memory that the fit took beyond that of the process after its imports, in MB, by
  the kernel's high-water mark;
- accuracy: on the same rows, read once more.

OMP_NUM_THREADS=1 makes the two comparable: plain products of matrices use all cores.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np

N_FEATURES, GROUP = 50, 2**17


def write(path, n_rows):
    """Make the file, a row group at a time."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    direction = rng.standard_normal(N_FEATURES)
    names = [f"x{i}" for i in range(N_FEATURES)]
    schema = pa.schema([(name, pa.float64()) for name in names] + [("y", pa.int8())])
    with pq.ParquetWriter(path, schema, compression="none", use_dictionary=False) as file:
        for start in range(0, n_rows, GROUP):
            X = rng.uniform(-1, 1, (min(GROUP, n_rows - start), N_FEATURES))
            y = (rng.random(len(X)) < 1 / (1 + np.exp(-X @ direction))).astype(np.int8)
            file.write_table(pa.table([*X.T, y], schema=schema))


def source(path):
    """Rows of the file."""
    from skdp.data import ParquetRows

    return ParquetRows(path, target="y", rows_per_chunk=GROUP)


def peak_mb():
    """Most memory that was ever resident."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def fit(path, n_rows):
    """Fit, and tell what it took."""
    from skdp import DPVariationalLogisticRegression

    warnings.simplefilter("ignore")
    rows = source(path)
    list(rows.load(0).X.columns)  # pyarrow and pandas are imported by the first chunk
    model = DPVariationalLogisticRegression(classes=[0, 1], n_samples=n_rows)
    before, start = peak_mb(), time.perf_counter()
    model.fit(rows)
    seconds = time.perf_counter() - start
    return {
        "seconds": seconds,
        "peak": peak_mb() - before,
        "passes": model.plan(n_features=N_FEATURES).n_steps + 1,
        "accuracy": model.score(rows),
    }


def plain(path, n_passes):
    """Make the sums of a fit, without its checks, clips and noise."""
    theta, start = np.zeros(N_FEATURES), time.perf_counter()
    rows = source(path)
    for step in range(n_passes):
        total = 0.0
        for frame, y in rows:
            X = frame.to_numpy()
            if step < 2:
                total = total + X.T @ X
            else:
                total = total + X.T @ (y - 1 / (1 + np.exp(-X @ theta)))
    return {"seconds": time.perf_counter() - start}


def apart(*arguments):
    """Run one of them in a fresh process."""
    done = subprocess.run(
        [sys.executable, __file__, "--only", *map(str, arguments)], capture_output=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def main():
    """Print a line for each number of rows."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 10_000_000])
    parser.add_argument("--folder")
    parser.add_argument("--only", nargs=3)
    given = parser.parse_args()
    if given.only:
        name, path, number = given.only
        print(json.dumps({"fit": fit, "plain": plain}[name](path, int(number))))
        return
    print("n          passes  fit/s  plain/s  ratio  pass/s  peak/MB  accuracy")
    for n_rows in given.rows:
        with tempfile.TemporaryDirectory(dir=given.folder) as folder:
            path = Path(folder) / "rows.parquet"
            write(path, n_rows)
            found = apart("fit", path, n_rows)
            others = apart("plain", path, found["passes"])
        seconds, passes = found["seconds"], found["passes"]
        print(
            f"{n_rows:<10} {passes:<7} {seconds:<6.1f} {others['seconds']:<8.1f} "
            f"{seconds / others['seconds']:<6.2f} {seconds / passes:<7.2f} {found['peak']:<8.0f} "
            f"{found['accuracy']:.3f}"
        )


if __name__ == "__main__":
    main()
