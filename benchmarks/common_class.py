"""Coverage of 90 % intervals where one of three classes is common and effects are strong.

    python benchmarks/common_class.py [--rows 5000,20000] [--strength .5,1,1.5] [--epsilon .3,1,3]
        [--max-iter 15] [--repetitions 20] [--json FILE]

An age, uniform in 18 to 90 under the bounds 0 and 120, and a body mass index of 27 ± 4 under 10 and
60, which tells nothing. Logits of the classes are 3, sx and -sx/2, x the standardised age and s the
strength: at 1.5 the shares are about .85, .09 and .06. δ = 1e-6.

Printed, over data sets and the three coefficients of age, which sum to 0: the share of intervals
that hold the maximum-likelihood estimate of the same rows, with its standard error over data sets,
the root mean square and the largest distance from it in posterior deviations, and the mean ratio of
the expected log-loss to that of the estimate.
"""

import argparse
import json
import warnings
from itertools import product
from pathlib import Path

import numpy as np
from real_tables import DELTA
from scipy.special import softmax
from sklearn.linear_model import LogisticRegression

from skdp import DPVariationalLogisticRegression

BOUNDS, LEVEL = [(0, 120), (10, 60)], 1.645
COMMON, EFFECTS = np.array([3.0, 0.0, 0.0]), np.array([0.0, 1.0, -0.5])


def measured(n, strength, epsilon, max_iter, repetitions):
    """All that is printed of a cell."""
    z, ratios = [], []
    for seed in range(repetitions):
        rng = np.random.default_rng([seed, n])
        X = np.column_stack([rng.uniform(18, 90, n), rng.normal(27, 4, n).clip(10, 60)])
        x = (X - X.mean(axis=0)) / X.std(axis=0)
        p = softmax(COMMON + np.outer(x[:, 0], strength * EFFECTS), axis=1)
        y = (np.log(p) + rng.gumbel(size=p.shape)).argmax(axis=1)
        fit = DPVariationalLogisticRegression(
            epsilon, DELTA, bounds=BOUNDS, classes=[0, 1, 2], n_samples=n, max_iter=max_iter
        ).fit(X, y)
        exact = LogisticRegression(C=1e6, tol=1e-6, max_iter=1000).fit(x, y)
        of_age = (exact.coef_ - exact.coef_.mean(axis=0))[:, 0] / X[:, 0].std()
        z.append((fit.coef_[:, 0] - of_age) / np.sqrt(np.diag(fit.covariance_)[::3]))
        losses = [-np.sum(p * np.log(q)) for q in (fit.predict_proba(X), exact.predict_proba(x))]
        ratios.append(losses[0] / losses[1])
    held = (np.abs(z) <= LEVEL).mean(axis=1)
    return {
        "n": n, "strength": strength, "epsilon": epsilon, "max_iter": max_iter,
        "coverage": held.mean(), "error": held.std() / np.sqrt(repetitions),
        "rms z": np.sqrt(np.mean(np.square(z))), "worst": np.abs(z).max(),
        "log-loss": np.mean(ratios),
    }  # fmt: skip


def numbers(text):
    """Numbers, separated by commas."""
    return [float(number) for number in text.split(",")]


def main():
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=numbers, default="5000,20000")
    parser.add_argument("--strength", type=numbers, default=".5,1,1.5")
    parser.add_argument("--epsilon", type=numbers, default=".3,1,3")
    parser.add_argument("--max-iter", type=int, default=15)
    parser.add_argument("--repetitions", type=int, default=20)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    found = []
    for n, strength, epsilon in product(options.rows, options.strength, options.epsilon):
        cell = measured(int(n), strength, epsilon, options.max_iter, options.repetitions)
        found.append(cell)
        text = "n {n:<6} strength {strength:<4g} eps {epsilon:<4g} steps {max_iter:<3}"
        text += " coverage {coverage:.3f} (± {error:.3f})  rms z {rms z:.2f}  worst {worst:.1f}"
        print((text + "  log-loss x{log-loss:.3f}").format(**cell), flush=True)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
