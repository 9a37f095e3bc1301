"""Other methods beside skdp on the tables of `real_tables.py`: figures of docs/method.md.

    SKDP_DATA=... DIFFPRIVLIB_PYTHON=... python benchmarks/method_peers.py [--repetitions 3]
        [--tables adult,wine] [--epsilons 1,3] [--json docs/method.json]

Every method has the same columns, bounds, rows and held-out rows, and δ = 1e-6. Rows are scaled by
their bounds, numbers to [-1, 1] and categories left 0 and 1, where a method has no bounds of its
own; the bound on their norm counts one 1 per category. Predictions of numbers are cut to the bounds
of the target, which are public. Where a method has a setting without a rule that serves all tables,
the better of two on the held-out rows is taken, which is in its favour.

- `dpvi`: gradient perturbation behind a private scaler, which share the budget. zero_out. Its
  settings are the default number of steps and 400.
- `noisy_newton`: Avella-Medina, Bradshaw & Loh (2023), classes, written from the paper. Theirs are
  the weights min(1, 2/‖x‖²), noisy gradients and Hessians under GDP in equal parts, and the
  released sandwich with its correction for the last gradient's noise. Ours: STEPS of them, bounds
  under zero_out (half of those of a replaced row), and eigenvalues of a Hessian that are raised to
  the radius of its noise before a step, without which steps diverge.
- `ada_ssp`: Wang (2018), numbers, written from the paper, under zero_out. Ours: μ-GDP in three
  equal parts where the paper has (ε/3, δ/3), which is less noise.
- `diffprivlib`: objective perturbation of classes and the functional mechanism of numbers; pure ε,
  one row replaced, no intervals. Its settings are C = 1 and 100.
- `dp_ebm`: additive, categories as categories; rows added or removed, no intervals. Its settings
  are 300 rounds at a rate of .01, the default, and 50 at .2.
"""

import argparse
import json
import os
import subprocess
import tempfile
import time
import warnings
from importlib.metadata import version
from pathlib import Path

import method_page
import numpy as np
import pandas as pd
from real_tables import DELTA, design, estimate, fitted
from scipy.special import expit
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline

from skdp import DPStandardScaler, DPVariationalLogisticRegression, split_budget
from skdp.privacy import epsilon_to_gdp

TABLES = [
    ("logistic", "adult"), ("logistic", "credit"), ("logistic", "diabetes130"),
    ("logistic", "german"), ("linear", "wine"), ("linear", "california"), ("linear", "adult hours"),
]  # fmt: skip
STEPS, DPVI_STEPS = 10, ("auto", 400)  # of Newton; of DPVI
EBM_SETTINGS = [{"max_rounds": k, "learning_rate": rate} for k, rate in ((300, 0.01), (50, 0.2))]
C = (1.0, 100.0)


def scaled(of):
    """Rows within [-1, 1] with a 1 appended, their squared norm, and what columns were divided by.

    At most one of the columns of a category is 1.
    """
    low, high = of.bounds.T
    number = (low != 0) | (high != 1)
    half = np.where(number, (high - low) / 2, 1.0)
    X = (np.clip(of.X, low, high) - np.where(number, (low + high) / 2, 0.0)) / half
    norm = 1.0 + len({name.partition("=")[0] for name in of.names})
    return np.column_stack([X, np.ones(len(X))]), norm, half


def ours(kind, of, rows, others, epsilon):
    """Predictions, and of classes coefficients and their deviations, of each setting: one."""
    fit = fitted(kind, of, rows, epsilon)
    if kind == "linear":
        return [(fit.predict(of.X[others]), None)]
    deviation = np.sqrt(np.diag(fit.covariance_))[: of.X.shape[1]]
    return [(fit.predict_proba(of.X[others])[:, 1], (np.ravel(fit.coef_), deviation))]


def dpvi(kind, of, rows, others, epsilon):
    """The same, of a pipeline with a scaler, for each number of steps."""
    (low, high), found = of.bounds.T, []
    public = {"classes": [0, 1], "n_samples": len(rows), "data_norm": len(of.bounds) ** 0.5}
    for steps in DPVI_STEPS:
        model = DPVariationalLogisticRegression(inference="dpvi", max_iter=steps, **public)
        pipeline = split_budget(make_pipeline(DPStandardScaler(low, high), model), epsilon, DELTA)
        fit = pipeline.fit(of.X[rows], of.y[rows])
        scale, model = fit[0].scale_, fit[-1]
        deviation = np.sqrt(np.diag(model.covariance_))[: len(scale)]
        p = fit.predict_proba(of.X[others])[:, 1]
        found.append((p, (np.ravel(model.coef_) / scale, deviation / scale)))
    return found


def symmetric(S, deviation, rng):
    """S with noise of one deviation in its upper triangle."""
    noise = np.triu(rng.normal(0.0, deviation, S.shape))
    return S + noise + np.triu(noise, 1).T


def noisy_newton(kind, of, rows, others, epsilon):
    """The same, of noisy Newton steps and a released sandwich. Sums, not means."""
    rng, (A, _, half) = np.random.default_rng(), scaled(of)
    X, y, D = A[rows], of.y[rows], A.shape[1]
    mu = epsilon_to_gdp(epsilon, DELTA) / np.sqrt(2 * STEPS + 2)
    w, theta = np.minimum(1.0, 2.0 / (X**2).sum(axis=1)), np.zeros(D)

    def slope():  # w p (1 − p) ‖x‖² ≤ 1/2
        p = expit(X @ theta)
        return symmetric((X * (w * p * (1 - p))[:, None]).T @ X, 0.5 / mu, rng)

    for _ in range(STEPS):  # w ‖x‖ ≤ √2
        gradient = X.T @ (w * (y - expit(X @ theta))) + rng.normal(0.0, np.sqrt(2) / mu, D)
        values, vectors = np.linalg.eigh(slope())
        values = np.maximum(values, np.sqrt(D) / mu)
        theta = theta + vectors @ (vectors.T @ gradient / values)
    residuals = w * (y - expit(X @ theta))  # squared, times ‖x‖²: ≤ 2
    values, vectors = np.linalg.eigh(symmetric((X * residuals[:, None] ** 2).T @ X, 2.0 / mu, rng))
    values = np.where(values < 0, min(1.0, 1e-4 * len(X)), values)
    middle = (vectors * values) @ vectors.T + 2.0 / mu**2 * np.eye(D)
    inverse = np.linalg.inv(slope())
    deviation = np.sqrt(np.diag(inverse @ middle @ inverse))[:-1]
    return [(expit(A[others] @ theta), (theta[:-1] / half, deviation / half))]


def ada_ssp(kind, of, rows, others, epsilon):
    """Predictions by noisy second moments and the ridge that their noise needs."""
    rng, (A, norm, _) = np.random.default_rng(), scaled(of)
    low, high = of.target_bounds
    X, D = A[rows], A.shape[1]
    y = (2 * of.y[rows] - low - high) / (high - low)
    deviation = norm * np.sqrt(3) / epsilon_to_gdp(epsilon, DELTA)  # of squared rows
    tail = np.sqrt(np.log(6 / DELTA))
    S, b = X.T @ X, X.T @ y
    least = np.linalg.eigvalsh(S)[0] + deviation * (rng.normal() - tail)
    ridge = max(0.0, np.sqrt(D * np.log(2 * D**2 / 0.05)) * deviation - max(least, 0.0))
    S = symmetric(S, deviation, rng) + ridge * np.eye(D)
    theta = np.linalg.solve(S, b + rng.normal(0.0, deviation / np.sqrt(norm), D))
    return [((A[others] @ theta * (high - low) + low + high) / 2, None)]


def diffprivlib(kind, of, rows, others, epsilon):
    """Predictions, of classes for each C."""
    (A, norm, _), y = scaled(of), of.y[rows]
    with tempfile.TemporaryDirectory() as folder:
        given, made = Path(folder) / "given.npz", Path(folder) / "made.npz"
        if kind == "logistic":
            part, A = "utility", A / np.sqrt(norm)
            np.savez(given, A=A[rows], a=y, B=A[others], settings=[(epsilon, c) for c in C])
        else:
            part, A = "numbers", A[:, :-1]
            np.savez(given, A=A[rows], a=y, B=A[others], bounds=of.target_bounds, epsilon=epsilon)
        script = Path(__file__).with_name("_diffprivlib.py")
        command = [os.environ["DIFFPRIVLIB_PYTHON"], script, part, given, made]
        subprocess.run(command, check=True, capture_output=True)
        found = np.load(made)
        shown = [found["predictions"]] if kind == "linear" else found["probabilities"][..., 1]
        return [(prediction, None) for prediction in shown]


def frame(of):
    """Columns with categories put together again, and their kinds."""
    columns = {}
    for j, name in enumerate(of.names):
        column, _, level = name.partition("=")
        if level:
            columns.setdefault(column, np.full(len(of.X), "other", object))[of.X[:, j] == 1] = level
        else:
            columns[column] = of.X[:, j]
    table = pd.DataFrame(columns)
    return table, ["nominal" if table[c].dtype.kind != "f" else "continuous" for c in table]


def dp_ebm(kind, of, rows, others, epsilon):
    """Predictions, for each setting."""
    from interpret.privacy import DPExplainableBoostingClassifier, DPExplainableBoostingRegressor

    table, kinds = frame(of)
    bounds = {n: b for n, b in zip(of.names, of.bounds.tolist(), strict=True) if "=" not in n}
    facts = {"epsilon": epsilon, "delta": DELTA, "feature_types": kinds, "n_jobs": 1}
    facts |= {"privacy_bounds": bounds}
    shown = []
    for setting in EBM_SETTINGS:
        if kind == "logistic":
            model = DPExplainableBoostingClassifier(**facts, **setting)
            model.fit(table.iloc[rows], of.y[rows])
            shown.append(model.predict_proba(table.iloc[others])[:, 1])
        else:
            low, high = of.target_bounds
            facts |= {"privacy_target_min": low, "privacy_target_max": high}
            model = DPExplainableBoostingRegressor(**facts, **setting)
            shown.append(model.fit(table.iloc[rows], of.y[rows]).predict(table.iloc[others]))
    return [(prediction, None) for prediction in shown]


METHODS = {
    "logistic": {"skdp": ours, "DPVI": dpvi, "noisy Newton": noisy_newton},
    "linear": {"skdp": ours, "AdaSSP": ada_ssp},
}
for each in METHODS.values():
    each |= {"diffprivlib": diffprivlib, "DP-EBM": dp_ebm}


def error_of(kind, of, others, prediction):
    """Log-loss of classes, root mean squared error of numbers."""
    y = of.y[others]
    if kind == "logistic":
        return float(log_loss(y, np.clip(prediction, 1e-7, 1 - 1e-7), labels=[0, 1]))
    return float(np.sqrt(np.mean((y - np.clip(prediction, *of.target_bounds)) ** 2)))


def measured(kind, name, epsilon, repetitions):
    """All that is kept of a table and ε."""
    of = design(kind, name)
    order = np.random.default_rng(0).permutation(len(of.y))
    rows, others = order[len(order) // 3 :], order[: len(order) // 3]
    whole, errors = estimate(kind, of.X[rows], of.y[rows])
    linear = of.X[others] @ whole[:-1] + whole[-1]
    there = errors * of.X[rows].std(axis=0) < 1.0  # as of real_tables
    plain = error_of(kind, of, others, expit(linear) if kind == "logistic" else linear)
    shares = error_of(kind, of, others, np.full(len(others), of.y[rows].mean()))
    cell = {"kind": kind, "table": name, "epsilon": epsilon, "not private": plain, "shares": shares}
    for method, function in METHODS[kind].items():
        fits = [function(kind, of, rows, others, epsilon) for _ in range(repetitions)]
        losses = np.array([[error_of(kind, of, others, shown) for shown, _ in fit] for fit in fits])
        j = losses.mean(axis=0).argmin()
        best, z, widths, wrong = losses[:, j], [], [], 0
        for mean, deviation in (fit[j][1] for fit in fits if fit[j][1]):
            z.append(np.abs(mean - whole[:-1]) / deviation)
            widths.append(deviation / errors)
            sure = (np.abs(mean) > 1.645 * deviation) & (np.abs(whole[:-1]) > 1.645 * errors)
            wrong += int((sure & (np.sign(mean) != np.sign(whole[:-1]))).sum())
        cell[method] = {"loss": best.mean(), "error": best.std(ddof=1) / np.sqrt(repetitions)}
        if z:
            cell[method] |= {"coverage": np.mean(np.array(z)[:, there] <= 1.645)}
            cell[method] |= {"worst": np.max(z * there), "wrong signs": wrong}
            cell[method] |= {"width": np.median(widths)}
        print(
            f"{kind:8} {name:12} {epsilon:<3g} {method:12} {method_page.rounded(cell[method])}",
            flush=True,
        )
    return cell


def main():
    """Measure, keep and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--epsilons", default="1,3")
    parser.add_argument("--tables")
    parser.add_argument("--json", type=Path, default=method_page.FIGURES)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    chosen = [c for c in TABLES if not options.tables or c[1] in options.tables.split(",")]
    started, cells = time.perf_counter(), []
    for kind, name in chosen:
        for epsilon in map(float, options.epsilons.split(",")):
            cells.append(measured(kind, name, epsilon, options.repetitions))
    minutes = (time.perf_counter() - started) / 60
    command = [os.environ["DIFFPRIVLIB_PYTHON"], Path(__file__).with_name("_diffprivlib.py")]
    packages = json.loads(subprocess.run([*command, "versions"], capture_output=True).stdout)
    packages |= {"interpret-core": version("interpret-core")}
    found = {"repetitions": options.repetitions, "minutes": minutes, "packages": packages}
    found["cells"] = cells
    method_page.keep(options.json, {"peers": found})


if __name__ == "__main__":
    main()
