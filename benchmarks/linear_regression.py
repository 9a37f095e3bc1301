"""Private Bayesian linear regression: coverage of its intervals, and RMSE beside AdaSSP and ridge.

    python benchmarks/linear_regression.py coverage [--repetitions 200] [--correlation 0]
    SKDP_DATA=... python benchmarks/linear_regression.py rmse [--seeds 10]

`coverage` draws θ and σ, data with n = 1000 rows of norm ≤ 1 in 10 columns, and prints how often
marginal intervals of coefficients hold the truth, for the noise-aware posterior and the plain one,
and the mean width over the width without privacy. With `--steps 1` it is the one-shot method, noisy
sufficient statistics, under the same inference.

``--rows`` are normal with correlation ρ^|i−j| (``--correlation``), log-normal, half of them one-hot
with 5 %, or small (a tenth of the bound). ``--prior-scale auto`` draws τ from the half-normal prior
of the estimator, and data sets again whose targets leave the bounds.

`misspecified` prints how often 90 % intervals, robust and not, hold the pseudo-true parameter, the
root of E ψ(y − θ·x) x = 0 at the clip that the fit ended with, found in 600 000 rows, and mean
widths over that of the sandwich without privacy: errors whose scale depends on the first column,
an interaction that is left out, 2 % of targets that are .9 whatever the row.

`rmse` prints the root mean squared error on held-out rows, in the unit of the target, with the same
clipping and bounds for all. Features are standardised, cut at ±4 and scaled to norm ≤ 1, intercept
included; standardising reads the data: the common preprocessing of a comparison, no private
pipeline. AdaSSP is Algorithm 2 of Wang (2018), tests/reference/adassp.py.
"""

import argparse
import os
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import norm
from sklearn.linear_model import Ridge
from sklearn.model_selection import train_test_split

from skdp import PrivacyWarning
from skdp.estimators.variational_regression import DPVariationalLinearRegression

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from reference.adassp import adassp

LEVELS = (0.5, 0.8, 0.9, 0.95)
HYPER_SCALE = 2.0  # of the half-normal law of τ where it is "auto"
TASKS = {  # file, target, public bounds of the target
    "california": (
        "california_housing/california_housing_raw.csv.gz",
        "medianHouseValue",
        (0.0, 500_001.0),
    ),
    "wine": ("wine_quality/wine_quality.csv.gz", "quality", (0.0, 10.0)),
}


def design(rng, n, d, kind, correlation):
    """Rows of norm ≤ 1."""
    distance = np.abs(np.subtract.outer(np.arange(d), np.arange(d)))
    X = rng.standard_normal((n, d)) @ np.linalg.cholesky(correlation**distance).T
    if kind == "lognormal":
        X = (np.exp(X) - np.exp(0.5)) / 3
    elif kind == "onehot":
        X[:, : d // 2] = rng.random((n, d // 2)) < 0.05
    elif kind == "small":
        X *= 0.1
    X /= np.sqrt(d)
    return X / np.maximum(1.0, np.linalg.norm(X, axis=1))[:, None]


def simulated(rng, arguments):
    """Rows, θ from the prior, σ log-uniform on [.05, .5]."""
    n, d, tau = arguments.n_rows, arguments.n_features, arguments.prior_scale
    while True:
        X = design(rng, n, d, arguments.rows, arguments.correlation)
        scale = HYPER_SCALE * abs(rng.standard_normal()) if tau == "auto" else tau
        theta = scale * rng.standard_normal(d)
        sigma = np.exp(rng.uniform(np.log(0.05), np.log(0.5)))
        y = X @ theta + sigma * rng.standard_normal(n)
        if tau != "auto" or np.mean(np.abs(y) > 1) < 0.01:
            return X, y, theta


def wrong(rng, n, d, kind):
    """Rows and targets for which the model is wrong."""
    X = design(rng, n, d, "normal", 0.0)
    theta = 0.33 * np.random.default_rng(5).standard_normal(d)
    e, first = rng.standard_normal(n), np.sqrt(d) * X[:, 0]
    if kind == "heteroscedastic":
        y = X @ theta + 0.09 * np.exp(0.5 * first) * e
    elif kind == "interaction":
        y = X @ theta + 0.15 * e + 0.175 * first * np.sqrt(d) * X[:, 1]
    else:
        y = np.where(rng.random(n) < 0.02, 0.9, X @ theta + 0.15 * e)
    return X, np.clip(y, -1, 1)


def pseudo_true(d, kind, clips):
    """Roots of E ψ(y − θ·x) x = 0 at descending clips, by Newton steps on many rows."""
    X, y = wrong(np.random.default_rng(999), 600_000, d, kind)
    theta, found = np.linalg.lstsq(X, y, rcond=None)[0], []
    for clip in clips:
        for _ in range(4):
            r = y - X @ theta
            near = X[np.abs(r) < clip]
            theta = theta + np.linalg.solve(near.T @ near, X.T @ np.clip(r, -clip, clip))
        found.append(theta)
    return np.array(found)


def misspecified(arguments):
    """Print coverage of 90 % intervals in percent, and widths over those of the sandwich."""
    n, d = arguments.n_rows, arguments.n_features
    clips = np.array([2.0, 1.0, 0.7, 0.5, 0.4, 0.3, 0.25, 0.2, 0.15])
    given = {"target_bounds": (-1.0, 1.0), "data_norm": 1.0, "fit_intercept": False}
    print(f"n={n} d={d}        model: all  first  width     robust: all  first  width")
    for kind in ("heteroscedastic", "interaction", "contaminated"):
        roots = pseudo_true(d, kind, clips)
        for epsilon in arguments.epsilons:
            hits, width = {False: [], True: []}, {False: [], True: []}
            for repetition in range(arguments.repetitions):
                X, y = wrong(np.random.default_rng([arguments.seed, repetition]), n, d, kind)
                H = np.linalg.inv(X.T @ X)
                r = y - X @ (H @ X.T @ y)
                sandwich = np.sqrt(np.diag(H @ ((X * r[:, None] ** 2).T @ X) @ H))
                for robust, found in hits.items():
                    model = DPVariationalLinearRegression(
                        epsilon, robust=robust, random_state=repetition, **given
                    ).fit(X, y)
                    at = np.log(min(model.clip_norm_, clips[0]))
                    root = [np.interp(at, np.log(clips[::-1]), t[::-1]) for t in roots.T]
                    sd = np.sqrt(np.diag(model.covariance_))[:d]
                    found.append(np.abs(model.coef_ - root) < norm.ppf(0.95) * sd)
                    width[robust].append(np.mean(sd) / np.mean(sandwich))
            cells = [
                f"{100 * np.mean(hits[k]):6.1f} {100 * np.mean(hits[k], axis=0)[0]:6.1f} "
                f"{np.mean(width[k]):6.2f}"
                for k in hits
            ]
            print(f"{kind:<16}{epsilon:>5g}  {cells[0]}          {cells[1]}", flush=True)


def coverage(arguments):
    """Print coverage in percent at each level, and relative widths."""
    n, d = arguments.n_rows, arguments.n_features
    z = norm.ppf(0.5 + np.array(LEVELS) / 2)
    given = {
        "target_bounds": (-1.0, 1.0),
        "data_norm": 1.0,
        "fit_intercept": False,
        "prior_scale": arguments.prior_scale,
    }
    print(f"n={n} d={d} {arguments.rows} rows, correlation={arguments.correlation:g}")
    print("            noise-aware                      plain                   width /  rms error")
    print("  eps    50    80    90    95        50    80    90    95        non-private")
    for epsilon in arguments.epsilons:
        hits, width, error = {"noise_aware": [], "dpvi": []}, [], []
        for repetition in range(arguments.repetitions):
            rng = np.random.default_rng([arguments.seed, repetition])
            X, y, theta = simulated(rng, arguments)
            ordinary = DPVariationalLinearRegression(np.inf, **given).fit(X, y)
            for inference, found in hits.items():
                model = DPVariationalLinearRegression(
                    epsilon,
                    inference=inference,
                    max_iter=arguments.steps,
                    random_state=repetition,
                    **given,
                ).fit(X, y)
                sd = np.sqrt(np.diag(model.covariance_))[:d]
                found.append(np.abs(model.coef_ - theta)[:, None] < z * sd[:, None])
                if inference == "noise_aware":
                    width.append(sd / np.sqrt(np.diag(ordinary.covariance_))[:d])
                    error.append((model.coef_ - theta) ** 2)
        shown = [100 * np.concatenate(hits[kind]).mean(axis=0) for kind in hits]
        cells = "    ".join(" ".join(f"{value:5.1f}" for value in row) for row in shown)
        line = f"{epsilon:>5g} {cells}   {np.mean(width):8.2f} {np.sqrt(np.mean(error)):10.4f}"
        print(line, flush=True)


def load(task):
    """Return rows of norm ≤ 1 (intercept included), targets and their public bounds."""
    file, target, bounds = TASKS[task]
    if "SKDP_DATA" not in os.environ:
        raise SystemExit(f"The task {task!r} needs the environment variable SKDP_DATA.")
    table = pd.read_csv(Path(os.environ["SKDP_DATA"]) / file).dropna()
    y = table.pop(target).to_numpy(float)
    Z = pd.get_dummies(table, drop_first=True).to_numpy(float)
    Z = np.clip((Z - Z.mean(axis=0)) / Z.std(axis=0), -4, 4)
    rows = np.column_stack([Z, np.ones(len(Z))])
    bound = np.sqrt(rows.shape[1])
    rows *= np.minimum(1.0, bound / np.linalg.norm(rows, axis=1))[:, None]
    return rows / bound, y, bounds


def rmse(arguments):
    """Print held-out errors."""
    print("task          eps   noise-aware   one-shot     AdaSSP      ridge       mean")
    for task in arguments.tasks:
        X, y, (low, high) = load(task)
        centre, half = (low + high) / 2, (high - low) / 2
        for epsilon in arguments.epsilons:
            errors = []
            for seed in range(arguments.seeds):
                A, B, a, b = train_test_split(X, y, test_size=0.3, random_state=seed)
                given = {
                    "target_bounds": (low, high),
                    "data_norm": 1.0,
                    "fit_intercept": False,
                    "random_state": seed,
                }
                rng = np.random.default_rng(seed)
                ours = DPVariationalLinearRegression(epsilon, **given).fit(A, a)
                once = DPVariationalLinearRegression(epsilon, max_iter=1, **given).fit(A, a)
                theta = adassp(A, (a - centre) / half, epsilon, 1e-5, rng)
                ridge = Ridge(1e-3, fit_intercept=False).fit(A, (a - centre) / half)
                predictions = [
                    ours.predict(B),
                    once.predict(B),
                    centre + half * B @ theta,
                    centre + half * B @ ridge.coef_,
                    np.full(len(b), a.mean()),
                ]
                errors.append([np.sqrt(np.mean((p - b) ** 2)) for p in predictions])
            shown = " ".join(f"{value:11.5g}" for value in np.mean(errors, axis=0))
            print(f"{task:<12}{epsilon:>5g}   {shown}", flush=True)


def main():
    """Run one part."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=("coverage", "misspecified", "rmse"))
    parser.add_argument("--epsilons", nargs="+", type=float)
    parser.add_argument("--repetitions", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--correlation", type=float, default=0.0)
    parser.add_argument(
        "--rows", choices=("normal", "lognormal", "onehot", "small"), default="normal"
    )
    parser.add_argument(
        "--prior-scale", type=lambda s: s if s == "auto" else float(s), default="auto"
    )
    parser.add_argument("--n-rows", type=int, default=1000)
    parser.add_argument("--n-features", type=int, default=10)
    parser.add_argument("--steps", type=lambda s: s if s == "auto" else int(s), default="auto")
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=TASKS)
    parser.add_argument("--seeds", type=int, default=10)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", PrivacyWarning)
    if arguments.part == "coverage":
        arguments.epsilons = arguments.epsilons or [0.1, 0.3, 1, 3, 10, np.inf]
        coverage(arguments)
    elif arguments.part == "misspecified":
        arguments.epsilons = arguments.epsilons or [0.3, 1, 3]
        misspecified(arguments)
    else:
        arguments.epsilons = arguments.epsilons or [0.1, 0.5, 1, 3, 10]
        rmse(arguments)


if __name__ == "__main__":
    main()
