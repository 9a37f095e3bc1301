"""Memory and time of `DPSGDClassifier` on a file of many rows, of which it copies batches only.

    python benchmarks/memory.py [--rows 100000 1000000 10000000] [--folder FOLDER]

Writes n rows of 50 float32 features and their labels (one byte each) into a temporary folder, 2 GB
for the largest n, fits on memory maps of them in a fresh process (30 noisy steps on expected
batches of 1024, one hidden layer of 100), and deletes them. Prints per n:

- fit: seconds of the whole fit, and of these, what passes until the first step is done: checking
  that all of X is finite reads the file once, and calibration is in there too;
- step: median time of the others, in ms. It should not grow with n;
- anonymous: peak of the process' anonymous memory above that before the fit, in MB, sampled each
  millisecond. This is what the fit really needs; the target is 512 MB at any n;
- resident: the same of all resident memory, which counts pages of the file that the system keeps
  only as long as there is room; by the high-water mark of the kernel.

Anonymous memory is read from /proc, and left out where there is none.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from pathlib import Path

import numpy as np

N_FEATURES, CHUNK, TARGET_MB = 50, 100_000, 512
STATUS = Path("/proc/self/status")


def write(folder, n_rows):
    """Make the files, a chunk at a time."""
    rng = np.random.default_rng(0)
    direction = rng.standard_normal(N_FEATURES)
    with open(folder / "X", "wb") as rows, open(folder / "y", "wb") as labels:
        for start in range(0, n_rows, CHUNK):
            X = rng.standard_normal((min(CHUNK, n_rows - start), N_FEATURES), dtype=np.float32)
            X.tofile(rows)
            (direction @ X.T > 0).astype(np.int8).tofile(labels)


def resident_mb():
    """Most memory that was ever resident."""
    unit = 1 if sys.platform == "darwin" else 1024  # bytes there, kilobytes elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20


def anonymous_mb():
    """Anonymous memory now."""
    for line in STATUS.read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1024
    return float("nan")


class Peak(threading.Thread):
    """Watches anonymous memory."""

    def __init__(self):
        super().__init__(daemon=True)
        self.before = self.peak = anonymous_mb()
        self.done = threading.Event()

    def run(self):
        """Sample until told to stop."""
        while not self.done.wait(0.001):
            self.peak = max(self.peak, anonymous_mb())

    def stop(self):
        """Return the peak above the start."""
        self.done.set()
        self.join()
        return self.peak - self.before


def fit(folder, n_rows):
    """Fit on the files, and return what is to be printed."""
    from sklearn.base import clone

    from skdp import DPSGDClassifier  # a process for each n: imports are not measured

    warnings.simplefilter("ignore")
    stamps = []

    def constant(done):
        """Note the time of each update, in passing."""
        stamps.append(time.perf_counter())
        return 1.0

    X = np.memmap(folder / "X", np.float32, "r", shape=(n_rows, N_FEATURES))
    y = np.memmap(folder / "y", np.int8, "r", shape=(n_rows,))
    classifier = DPSGDClassifier(
        classes=[0, 1],
        n_samples=n_rows,
        batch_size=1024,
        max_iter=30,
        learning_rate_schedule=constant,
    )
    small = np.random.default_rng(0).standard_normal((2048, N_FEATURES), dtype=np.float32)
    first = clone(classifier).set_params(n_samples=2048)
    first.fit(small, np.arange(2048) % 2)  # loads what is loaded at first use
    stamps.clear()
    resident, peak = resident_mb(), Peak() if STATUS.exists() else None
    if peak:
        peak.start()
    start = time.perf_counter()
    classifier.fit(X, y)
    end = time.perf_counter()
    steps = stamps[-30:]  # calls before these are looks at the schedule's values
    return {
        "fit_s": end - start,
        "start_s": steps[0] - start,
        "step_ms": 1e3 * statistics.median(np.diff(steps)),
        "anonymous_mb": peak.stop() if peak else float("nan"),
        "resident_mb": resident_mb() - resident,
        "accuracy": classifier.score(X[:10_000], y[:10_000]),
    }


def main():
    """Run the comparison."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", nargs="+", type=int, default=[10**5, 10**6, 10**7])
    parser.add_argument("--folder", type=Path, help="where the temporary folder goes")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(fit(arguments.folder, arguments.rows[0])))
        return
    print("      rows   fit s   to step 1 s   step ms   anonymous MB   resident MB   accuracy")
    for n_rows in arguments.rows:
        with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
            write(Path(folder), n_rows)
            command = [sys.executable, __file__, "--child", "--folder", folder]
            command += ["--rows", str(n_rows)]
            child = subprocess.run(command, check=True, capture_output=True, text=True)
        found = json.loads(child.stdout)
        print(
            f"{n_rows:>10}{found['fit_s']:8.2f}{found['start_s']:14.2f}{found['step_ms']:10.2f}"
            f"{found['anonymous_mb']:15.1f}{found['resident_mb']:14.1f}{found['accuracy']:11.3f}"
            + ("" if found["anonymous_mb"] <= TARGET_MB else f"   over {TARGET_MB} MB"),
            flush=True,
        )


if __name__ == "__main__":
    main()
