"""Time and memory of fits on Parquet files, beside plain passes over the same chunks.

    python benchmarks/scaling.py [--rows 1000000 10000000] [--workers 0 1 2] [--max-iter 20]
        [--repetitions 1] [--folder FOLDER]

Writes n rows of 50 doubles and their labels (4 GB for n = 1e7) in row groups of 2¹⁷ rows, and
deletes them. A fit is `DPVariationalLogisticRegression` at ε = 1, the plain passes are as many over
the same chunks with the same sums and nothing else: XᵀX twice, and Xᵀ(y − σ(Xθ)). First on one
machine (`ParquetRows`), then with each number of Dask workers (a `LocalCluster` of processes with
one thread; a partition is a row group), where the plain passes are tasks and a tree of sums. Each
in a fresh process, one after the other, so that the file is in the page cache or is not for both.
Prints:

- passes: how often the chunks are read, the first look included;
- fit, plain: seconds, of the quickest of `--repetitions`; ratio: of the one over the other;
- pass: seconds of a pass of the fit;
- peak, worker: resident memory that the fit took in this process, and in the worker that took
  most, beyond that of the process after its imports, in MB, by the kernel's high-water mark;
- kB: through this process per pass;
- accuracy: on the same rows, read once more.

If dask-ml is installed, its `LogisticRegression`, without privacy, is fitted on most workers.
Last, what a pass over 1e10 rows on 100 workers would take: the time of a partition on one worker,
and what a task takes the scheduler, measured with tasks that do nothing.

OMP_NUM_THREADS=1 makes the two comparable: plain products of matrices use all cores.
"""

import argparse
import io
import json
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from contextlib import redirect_stderr, redirect_stdout
from importlib.util import find_spec
from pathlib import Path

import numpy as np

N_FEATURES, GROUP = 50, 2**17
# By default workers give memory back after each task; to get it again costs a third of a pass.
MALLOC = {"MALLOC_TRIM_THRESHOLD_": 2**30, "MALLOC_MMAP_THRESHOLD_": 2**30}


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


def fit(path, n_rows, max_iter):
    """Fit, and tell what it took."""
    from skdp import DPVariationalLogisticRegression

    warnings.simplefilter("ignore")
    rows = source(path)
    list(rows.load(0).X.columns)  # pyarrow and pandas are imported by the first chunk
    model = DPVariationalLogisticRegression(classes=[0, 1], n_samples=n_rows, max_iter=max_iter)
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


def cluster(n_workers):
    """Workers that have imported what they need."""
    import dask
    from distributed import Client, LocalCluster

    dask.config.set({"distributed.nanny.pre-spawn-environ": MALLOC})
    start = LocalCluster(
        n_workers=n_workers, threads_per_worker=1, dashboard_address=None, memory_limit=0
    )
    client = Client(start)
    client.run(imported)
    return start, client


def imported():
    """Import what a worker needs."""
    import dask.dataframe  # noqa: F401
    import pyarrow.parquet  # noqa: F401

    import skdp  # noqa: F401


def frame_of(path):
    """Lazy rows: a partition is a row group."""
    import dask.dataframe as dd

    return dd.read_parquet(path, split_row_groups=1)


def dask_fit(path, n_rows, max_iter, n_workers):
    """Fit on a cluster, and tell what it took."""
    from skdp import DPVariationalLogisticRegression

    warnings.simplefilter("ignore")
    start, client = cluster(n_workers)
    with start, client:
        frame = frame_of(path)
        X, y = frame[[f"x{i}" for i in range(N_FEATURES)]], frame["y"]
        model = DPVariationalLogisticRegression(
            classes=[0, 1], n_samples=n_rows, max_iter=max_iter, verbose=1
        )
        before, of_workers, began = peak_mb(), client.run(peak_mb), time.perf_counter()
        said = io.StringIO()
        with redirect_stdout(said), redirect_stderr(io.StringIO()):
            model.fit(X, y)
        seconds = time.perf_counter() - began
        passes = model.plan(n_features=N_FEATURES).n_steps + 1
        kilobytes = [float(part.split()[-1]) for part in said.getvalue().split(" kB")[:2]]
        worst = max(peak - of_workers[name] for name, peak in client.run(peak_mb).items())
        return {
            "seconds": seconds,
            "peak": peak_mb() - before,
            "worker": worst,
            "passes": passes,
            "kilobytes": sum(kilobytes) / passes,
            "accuracy": model.score(X, y),
        }


def term(frame, theta):
    """Make the sums of one partition."""
    X, y = frame[[f"x{i}" for i in range(N_FEATURES)]].to_numpy(), frame["y"].to_numpy()
    return X.T @ X if theta is None else X.T @ (y - 1 / (1 + np.exp(-X @ theta)))


def dask_plain(path, n_passes, n_workers):
    """Make the sums of a fit as plain tasks."""
    import dask

    start, client = cluster(n_workers)
    with start, client:
        began = time.perf_counter()
        parts = frame_of(path).to_delayed()
        for step in range(n_passes):
            theta = None if step < 2 else np.zeros(N_FEATURES)
            sums = [dask.delayed(term)(part, theta) for part in parts]
            while len(sums) > 1:
                sums = [dask.delayed(sum)(sums[i : i + 16]) for i in range(0, len(sums), 16)]
            sums[0].compute()
        return {"seconds": time.perf_counter() - began}


def nothing(number, chunk):
    """Stand for a task that costs nothing."""


def overhead(path, n_tasks, n_workers):
    """Tell what a task costs that does nothing."""
    import dask.array as da

    from skdp.rows.chunk_tasks import Ask
    from skdp.rows.dask_rows import DaskRows

    start, client = cluster(n_workers)
    with start, client:
        rows = DaskRows(da.ones((n_tasks, 1), chunks=(1, 1)))
        list(rows.each(Ask(nothing), range(n_tasks)))
        began = time.perf_counter()
        list(rows.each(Ask(nothing), range(n_tasks)))
        return {"seconds": (time.perf_counter() - began) / n_tasks}


def arrays(frame):
    """Take a partition apart."""
    return frame[[f"x{i}" for i in range(N_FEATURES)]].to_numpy(), frame["y"].to_numpy(float)


def dask_ml(path, n_rows, n_workers):
    """Fit without privacy."""
    import dask
    import dask.array as da
    from dask_ml.linear_model import LogisticRegression

    start, client = cluster(n_workers)
    with start, client:
        sizes = [min(GROUP, n_rows - start) for start in range(0, n_rows, GROUP)]
        parts = [dask.delayed(arrays)(part) for part in frame_of(path).to_delayed()]
        X, y = (
            da.concatenate(
                [
                    da.from_delayed(part[i], (n, *rest), float)
                    for part, n in zip(parts, sizes, strict=True)
                ]
            )
            for i, rest in enumerate([(N_FEATURES,), ()])
        )
        began = time.perf_counter()
        model = LogisticRegression(solver="lbfgs", max_iter=20).fit(X, y)
        seconds = time.perf_counter() - began
        return {"seconds": seconds, "accuracy": float(model.score(X, y))}


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
    parser.add_argument("--workers", type=int, nargs="*", default=[0, 1, 2])
    parser.add_argument("--max-iter", type=int, default=20)
    parser.add_argument("--repetitions", type=int, default=1)
    parser.add_argument("--folder")
    parser.add_argument("--only", nargs="+")
    given = parser.parse_args()
    if given.only:
        name, path, *numbers = given.only
        print(json.dumps(globals()[name](path, *map(int, numbers))))
        return
    print("n          workers passes  fit/s  plain/s  ratio  pass/s  peak/MB  worker/MB kB    acc.")
    for n_rows in given.rows:
        with tempfile.TemporaryDirectory(dir=given.folder) as folder:
            path = Path(folder) / "rows.parquet"
            write(path, n_rows)
            for n_workers in given.workers:
                line(path, n_rows, n_workers, given.max_iter, given.repetitions)
            if max(given.workers) and find_spec("dask_ml"):
                found = apart("dask_ml", path, n_rows, max(given.workers))
                print(f"dask-ml: {found['seconds']:.1f} s, accuracy {found['accuracy']:.3f}")
    if max(given.workers):
        per_task = apart("overhead", "", 2000, max(given.workers))["seconds"]
        print(f"a task takes the scheduler {1e3 * per_task:.2f} ms")
        for rows in (2**17, 2**20):
            n_parts = 10**10 / rows
            work = rows * PER_ROW["worker"] * n_parts / 100
            print(
                f"1e10 rows in partitions of {rows}, 100 workers: {work:.0f} s of work and "
                f"{n_parts * per_task:.0f} s of the scheduler per pass"
            )


PER_ROW = {}


def line(path, n_rows, n_workers, max_iter, repetitions):
    """Fit, and print a line of the quickest."""
    fits, plains = [], []
    for _ in range(repetitions):
        if n_workers:
            fits.append(apart("dask_fit", path, n_rows, max_iter, n_workers))
            plains.append(apart("dask_plain", path, fits[0]["passes"], n_workers))
        else:
            fits.append(apart("fit", path, n_rows, max_iter))
            plains.append(apart("plain", path, fits[0]["passes"]))
    found, others = (min(some, key=lambda one: one["seconds"]) for some in (fits, plains))
    seconds, passes = found["seconds"], found["passes"]
    if n_workers:
        PER_ROW["worker"] = seconds / passes / n_rows * n_workers
    print(
        f"{n_rows:<10} {n_workers or '-':<7} {passes:<7} {seconds:<6.1f} "
        f"{others['seconds']:<8.1f} {seconds / others['seconds']:<6.2f} {seconds / passes:<7.2f} "
        f"{found['peak']:<8.0f} {found.get('worker', 0):<9.0f} {found.get('kilobytes', 0):<5.0f} "
        f"{found['accuracy']:.3f}",
        flush=True,
    )


if __name__ == "__main__":
    main()
