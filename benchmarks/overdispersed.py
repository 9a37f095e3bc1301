"""Coverage of 90 % intervals for counts that vary more than a Poisson model allows.

    python benchmarks/overdispersed.py [--rows 5000] [--strength 1] [--epsilon .3,1,3]
        [--repetitions 20] [--inference noise_aware] [--json FILE]

Three columns, uniform in [0, 10], with effects of .05, -.03 and .08 times a strength on the
log-mean; δ = 1e-6. At 4 the rates of the rows vary by a factor of 600.
Counts have a mean of 2, 20 and 200 in the middle of the columns, and are Poisson, or Poisson of a
rate that is multiplied by a gamma variable of mean 1 and variance ½ or 2. They are declared not to
exceed a largest count, which is where the largest of them lies, rounded outward to one digit, or
ten times that.

Printed, over data sets and coefficients: the share of intervals that hold the maximum-likelihood
estimate of the same rows, with its standard error over data sets, the root mean square distance
from it in posterior deviations, and the root mean square distance and the median posterior
deviation, both over the estimate's standard error (of a sandwich, as counts are not Poisson).
"""

import argparse
import json
import warnings
from itertools import product
from pathlib import Path

import numpy as np
from real_tables import DELTA, estimate, outward

from skdp import DPVariationalPoissonRegression

EFFECTS = np.array([0.05, -0.03, 0.08])
MEANS, VARIANCES, GENEROUS = (2.0, 20.0, 200.0), (0.0, 0.5, 2.0), (1.0, 10.0)
LEVEL = 1.645


def table(n, strength, mean, variance, rng):
    """Rows and counts."""
    X = rng.uniform(0.0, 10.0, (n, 3))
    rate = mean * np.exp((X - 5.0) @ EFFECTS * strength)
    if variance:
        rate = rate * rng.gamma(1.0 / variance, variance, n)
    return X, rng.poisson(rate).astype(float)


def sandwich(X, y, theta):
    """Standard errors of the effects, whatever the law of counts."""
    A = np.column_stack([X, np.ones(len(X))])
    rate = np.exp(A @ theta)
    bread = np.linalg.inv((A * rate[:, None]).T @ A)
    scores = A * (y - rate)[:, None]
    return np.sqrt(np.diag(bread @ (scores.T @ scores) @ bread))[:3]


def measured(n, strength, mean, variance, generous, epsilon, repetitions, inference):
    """All that is printed of a cell."""
    off, deviations, errors = [], [], []
    for seed in range(repetitions):
        X, y = table(n, strength, mean, variance, np.random.default_rng([seed, n]))
        largest = outward(0.0, y.max(), 1.0)[1] * generous
        fit = DPVariationalPoissonRegression(
            epsilon, DELTA, bounds=(0, 10), largest_count=largest, n_samples=n, inference=inference
        ).fit(X, y)
        theta = estimate("poisson", X, y)[0]
        off.append(np.ravel(fit.coef_) - theta[:3])
        deviations.append(np.sqrt(np.diag(fit.covariance_))[:3])
        errors.append(sandwich(X, y, theta))
    off, deviations, errors = map(np.array, (off, deviations, errors))
    held = (np.abs(off) <= LEVEL * deviations).mean(axis=1)
    return {
        "n": n, "strength": strength, "mean": mean, "variance": variance, "generous": generous,
        "epsilon": epsilon,
        "coverage": held.mean(), "error": held.std() / np.sqrt(repetitions),
        "rms z": np.sqrt(((off / deviations) ** 2).mean()),
        "distance": np.sqrt(((off / errors) ** 2).mean()), "width": np.median(deviations / errors),
    }  # fmt: skip


def main():
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=5000)
    parser.add_argument("--strength", type=float, default=1.0)
    parser.add_argument("--epsilon", default="0.3,1,3")
    parser.add_argument("--repetitions", type=int, default=20)
    parser.add_argument("--inference", default="noise_aware")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    cells = product(MEANS, VARIANCES, GENEROUS, map(float, options.epsilon.split(",")))
    given, found = (options.rows, options.strength), []
    for cell in cells:
        found.append(measured(*given, *cell, options.repetitions, options.inference))
        text = "mean {mean:<5g} variance {variance:<4g} largest x{generous:<3g} eps {epsilon:<4g}"
        text += "  coverage {coverage:.3f} (± {error:.3f})  rms z {rms z:.2f}"
        print(
            (text + "  distance {distance:.2f}  width {width:.2f}").format(**found[-1]), flush=True
        )
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
