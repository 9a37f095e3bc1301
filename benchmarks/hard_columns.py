"""Coverage of 90 % intervals where columns differ much in spread and effect, and the model holds.

    python benchmarks/hard_columns.py [--kinds narrow,onehot,counts,ar.7,ar.95,separated]
        [--models logistic,linear] [--sizes 1000,10000,50000] [--epsilon .3,1,3] [--reps REPS]
        [--json FILE]

Ten columns with declared bounds, most of them [-1, 1]; δ = 1e-6, no scaler. Special columns are

- narrow: one of spread .05 about .3, whose effect is 8 (.4 of a deviation);
- onehot: three that are 1 at 5 % of the rows, effects N(0, 2²);
- counts: three Poisson(1.5) counts in 0 to 50, effects N(0, .5²) of a deviation;
- ar.R: all, normal of spread .35 and correlation R^|j - k|, effects N(0, 1);
- separated (logistic): one that is 1 at 5 % of the rows, and then so is y. No estimate exists; the
  upper end of its 95 % interval is printed, and how often it lies beyond 8.

Others have spread .5 and effects N(0, .3²). Numbers have .3 times the logit as their line, and
residuals of deviation .3. Printed: of special columns and of others the share of intervals that
hold the truth, with its standard error over data sets, root mean square distance in posterior
deviations, and the median deviation over the error of the non-private estimate. There are 200 data
sets of narrow columns, 70 of onehot and counts, else 20.
"""

import argparse
import json
import time
import warnings
from pathlib import Path

import numpy as np
from real_tables import DELTA, estimate
from scipy.linalg import toeplitz
from scipy.special import expit

from skdp import DPVariationalLinearRegression, DPVariationalLogisticRegression

WIDTH, LEVEL = 10, 1.645
KINDS = "narrow,onehot,counts,ar.7,ar.95,separated"
REPETITIONS = {"narrow": 200, "onehot": 70, "counts": 70}


def rows(kind, n, rng):
    """Columns, bounds, effects, and which columns are special."""
    X = np.clip(0.5 * rng.standard_normal((n, WIDTH)), -1, 1)
    effects, bounds = 0.3 * rng.standard_normal(WIDTH), np.tile([-1.0, 1.0], (WIDTH, 1))
    special = np.arange(WIDTH) < (3 if kind in ("onehot", "counts") else 1)
    if kind == "narrow":
        X[:, 0], effects[0] = np.clip(0.3 + 0.05 * rng.standard_normal(n), -1, 1), 8.0
    elif kind == "onehot":
        X[:, :3], effects[:3] = rng.random((n, 3)) < 0.05, 2 * rng.standard_normal(3)
        bounds[:3] = 0, 1
    elif kind == "counts":
        X[:, :3] = np.minimum(rng.poisson(1.5, (n, 3)), 50)
        effects[:3] = 0.5 * rng.standard_normal(3) / np.sqrt(1.5)
        bounds[:3] = 0, 50
    elif kind == "separated":
        X[:, 0], effects[0], bounds[0] = rng.random(n) < 0.05, 0.0, (0, 1)
    else:
        root = np.linalg.cholesky(toeplitz(float(kind[2:]) ** np.arange(WIDTH)))
        X = np.clip(0.35 * rng.standard_normal((n, WIDTH)) @ root.T, -1, 1)
        effects, special = rng.standard_normal(WIDTH), np.ones(WIDTH, dtype=bool)
    return X, bounds, effects, special


def fitted(model, kind, n, epsilon, rng):
    """A fit, rows and targets, the true effects, and which columns are special."""
    X, bounds, effects, special = rows(kind, n, rng)
    line = X @ effects
    line -= line.mean()
    facts = {"epsilon": epsilon, "delta": DELTA, "bounds": bounds, "n_samples": n}
    if model == "linear":
        y = np.clip(0.3 * line + 0.3 * rng.standard_normal(n), -3, 3)
        fit = DPVariationalLinearRegression(target_bounds=(-3, 3), **facts).fit(X, y)
        return fit, X, y, 0.3 * effects, special
    y = (rng.random(n) < expit(line)).astype(int)
    if kind == "separated":
        y[X[:, 0] == 1] = 1
    fit = DPVariationalLogisticRegression(classes=[0, 1], **facts).fit(X, y)
    return fit, X, y, effects, special


def measured(model, kind, n, epsilon, repetitions):
    """All that is printed of a cell."""
    off, widths, ends, started = [], [], [], time.perf_counter()
    for seed in range(repetitions):
        rng = np.random.default_rng([seed, n])
        fit, X, y, effects, special = fitted(model, kind, n, epsilon, rng)
        deviation = np.sqrt(np.diag(fit.covariance_))[:WIDTH]
        if kind == "separated":
            draws = fit.sample_posterior(2000, random_state=seed)
            ends.append(float(np.quantile(np.reshape(draws, (2000, -1))[:, 0], 0.975)))
            continue
        off.append((np.ravel(fit.coef_) - effects) / deviation)
        widths.append(deviation / estimate(model, X, y)[1])
    found = {"model": model, "kind": kind, "n": n, "epsilon": epsilon, "repetitions": repetitions}
    found["seconds"] = (time.perf_counter() - started) / repetitions
    if ends:
        return found | {"beyond 8": int(np.sum(np.array(ends) > 8)), "median": np.median(ends)}
    off, widths = np.array(off), np.array(widths)
    for name, chosen in (("special", special), ("other", ~special)):
        if chosen.any():
            held = (np.abs(off[:, chosen]) <= LEVEL).mean(axis=1)
            found[name] = {
                "coverage": held.mean(),
                "error": held.std() / np.sqrt(repetitions),
                "rms z": np.sqrt((off[:, chosen] ** 2).mean()),
                "width": np.median(widths[:, chosen]),
            }
    return found


def shown(found):
    """One line."""
    line = "{model:8} {kind:9} n {n:<6} eps {epsilon:<4g}".format(**found)
    if "median" in found:
        line += "  beyond 8: {beyond 8} of {repetitions}, median {median:.1f}".format(**found)
    for name in ("special", "other"):
        if name in found:
            text = "  {}: {coverage:.3f} (± {error:.3f}), rms z {rms z:.2f}, width {width:.2f}"
            line += text.format(name, **found[name])
    return line + f"  {found['seconds']:.2f} s"


def main():
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kinds", default=KINDS)
    parser.add_argument("--models", default="logistic,linear")
    parser.add_argument("--sizes", default="1000,10000,50000")
    parser.add_argument("--epsilon", default="0.3,1,3")
    parser.add_argument("--reps", type=int, help="data sets of each cell")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    found = []
    for kind in options.kinds.split(","):
        repetitions = options.reps or REPETITIONS.get(kind, 20)
        for model in ["logistic"] if kind == "separated" else options.models.split(","):
            for n in map(int, options.sizes.split(",")):
                for epsilon in map(float, options.epsilon.split(",")):
                    found.append(measured(model, kind, n, epsilon, repetitions))
                    print(shown(found[-1]), flush=True)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1, default=float))


if __name__ == "__main__":
    main()
