"""Errors of `skdp.statistics` beside those of diffprivlib and OpenDP: a table of their ratios.

    DIFFPRIVLIB_PYTHON=... python benchmarks/single_statistics.py [--only mean] [--sizes 100 1000]

DIFFPRIVLIB_PYTHON is the interpreter of an environment with diffprivlib and OpenDP (`pip install
diffprivlib opendp "scikit-learn<1.6"`). All release the same statistic of the same rows, in [0,
100], under the same relation and pure ε: means, variances and quantiles under replace_one, which is
diffprivlib's there (its n is public), and OpenDP's symmetric distance of 2 with a known size;
histograms of 10 bins, where diffprivlib has the noise of add_or_remove_one, under that, OpenDP's
symmetric distance of 1. An error is the distance from the statistic of the rows, for a histogram
the mean over its bins. Printed: the median of ours over `--runs`, and its ratio to theirs, with the
standard error of the ratio by the bootstrap; of two medians that are 0 it is 1. Where two have the
same law the ratio is 1 in truth, and with 2000 runs the largest of many is some 1.1: below are the
geometric mean of the ratios and the number of those that are above 1.05 by two standard errors.

The name is not statistics.py: that would hide Python's own module from whatever runs here.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from _statistics_peers import BINS, BOUNDS, QUANTILES, error_of

from skdp import statistics

LOWER, UPPER = BOUNDS
STATISTICS = ("mean", "variance", *QUANTILES, "histogram")
EPSILONS, SIZES = (0.1, 1.0), (100, 1000, 10_000)
LAWS = {
    "normal, middle": lambda rng, n: rng.normal(50, 10, n),
    "exponential": lambda rng, n: rng.exponential(10, n),
    "uniform": lambda rng, n: rng.uniform(0, 100, n),
    "normal, edge": lambda rng, n: rng.normal(90, 3, n),
}


def rows(law, n):
    """The same rows for all."""
    seed = [list(LAWS).index(law), n]
    return np.clip(LAWS[law](np.random.default_rng(seed), n), LOWER, UPPER)


def ours(statistic, x, epsilon):
    """Return a function that answers once."""
    shared = {"lower": LOWER, "upper": UPPER, "epsilon": epsilon}
    if statistic == "histogram":
        relation = "add_or_remove_one"
        return lambda: (
            statistics.dp_histogram(x, BINS, neighboring_relation=relation, **shared).value
        )
    shared["neighboring_relation"] = "replace_one"
    if statistic in QUANTILES:
        return lambda: statistics.dp_quantile(x, QUANTILES[statistic], **shared).value
    tool = {"mean": statistics.dp_mean, "variance": statistics.dp_var}[statistic]
    return lambda: tool(x, **shared).value


def ratio(a, b, rng):
    """Ratio of medians, and its standard error."""

    def of(x, y):
        top, bottom = np.median(x), np.median(y)
        return 1.0 if top == bottom else top / bottom if bottom else np.inf

    many = [of(rng.choice(a, len(a)), rng.choice(b, len(b))) for _ in range(100)]
    return of(a, b), np.std(many)


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--only", nargs="*", choices=STATISTICS, default=STATISTICS)
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES)
    options = parser.parse_args()
    cells = {
        f"{statistic}|{epsilon}|{n}|{law}": rows(law, n)
        for statistic in options.only
        for law in LAWS
        for n in options.sizes
        for epsilon in EPSILONS
    }
    with tempfile.TemporaryDirectory() as folder:
        given, wanted = Path(folder) / "in.npz", Path(folder) / "out.npz"
        np.savez(given, runs=options.runs, **cells)
        script = Path(__file__).with_name("_statistics_peers.py")
        command = [os.environ["DIFFPRIVLIB_PYTHON"], script, given, wanted]
        subprocess.run(command, check=True)
        theirs = dict(np.load(wanted))
    peers = list(dict.fromkeys(name.split("|")[0] for name in theirs))
    rng, ratios = np.random.default_rng(0), {peer: [] for peer in peers}
    print("| statistic | law | n | ε | median error |", *(f"over {p}'s |" for p in peers))
    print("|---|---|---|---|---|" + "---|" * len(peers))
    for name, x in cells.items():
        statistic, epsilon, n, law = name.split("|")
        answer = ours(statistic, x, float(epsilon))
        errors = np.array([error_of(statistic, x, answer()) for _ in range(options.runs)])
        line = f"| {statistic} | {law} | {n} | {epsilon} | {np.median(errors):.3g} |"
        for peer in peers:
            found, se = ratio(errors, theirs[f"{peer}|{name}"], rng)
            ratios[peer].append((found, se))
            line += f" {found:.3f} ± {se:.3f} |"
        print(line)
        sys.stdout.flush()
    print(f"\n{options.runs} runs of {len(cells)} cells:")
    for peer, found in ratios.items():
        value, se = np.array(found).T
        mean, error = np.exp(np.log(value).mean()), np.hypot.reduce(se / value) / len(value)
        above = int((value - 2 * se > 1.05).sum())
        print(f"over {peer}'s: mean {mean:.3f} ± {mean * error:.3f}, largest {value.max():.3f},")
        print(f"  {above} above 1.05 by two standard errors")


if __name__ == "__main__":
    main()
