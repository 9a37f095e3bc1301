"""Whether 90 % intervals of private fits hold the non-private estimate of the same rows.

    python benchmarks/real_tables.py [--kinds logistic,linear,poisson,softmax] [--tables adult,pima]
        [--epsilons .3,1,3] [--repetitions 10] [--bounds doc,x3,x10,x100] [--json FILE]

Columns are as people have them: numbers in their own units under bounds that a code book could
state (the range of the table, rounded outward to one digit; x3 is three times as wide about its
middle), categories as 0 and 1 without the most frequent one. Every fit is
``DPVariational…(bounds=...)`` with δ = 1e-6 and no scaler before it. Columns that the others
determine (a variance inflation above 300) are left out, and of coverage those of which no finite
estimate exists (an error above 1 of the effect of a deviation): none of them means anything.

Printed for each table and ε, over all repetitions: the share of coefficients whose 90 % interval
holds the maximum-likelihood estimate (of several classes, of contrasts to the first one), with its
standard error, the worst distance from it in posterior deviations, intervals on the other side of 0
than the estimate's own 90 % interval, the median posterior deviation over the estimate's standard
error, and of classes the mean log-loss on a third of the rows that took no part, beside that of the
estimate and of the shares of the classes; of wider bounds, how much it is above that of documented
ones, if these come before. An interval that
knows of the noise should hold the estimate of the *same rows* more often than 90 %.

Constants of the inference were chosen on the classes of adult, credit, diabetes130, abalone and
german and on the numbers of wine; the others were not looked at. Tables are in the folder named by
SKDP_DATA, else from OpenML; breast cancer is scikit-learn's.
"""

import argparse
import json
import os
import time
import warnings
from pathlib import Path
from typing import NamedTuple

import _tasks
import numpy as np
import pandas as pd
from scipy.special import expit, softmax
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.metrics import log_loss

from skdp import (
    DPVariationalLinearRegression,
    DPVariationalLogisticRegression,
    DPVariationalPoissonRegression,
)

DELTA, MOST_INFLATION, LEAST_ROWS, MOST_LEVELS = 1e-6, 300.0, 30, 20
MOST_ERROR = 1.0  # of the effect of a column's deviation, beyond which no estimate is finite
FILES = {
    "diabetes130": "diabetes130/diabetes130.csv.gz",
    "california": "california_housing/california_housing_raw.csv.gz",
    "wine": "wine_quality/wine_quality.csv.gz",
}
_NUMBERS = [
    "time_in_hospital", "num_lab_procedures", "num_procedures", "num_medications",
    "number_outpatient", "number_emergency", "number_inpatient", "number_diagnoses",
]  # fmt: skip
_OTHERS = [
    "race", "gender", "age", "insulin", "change", "diabetesMed", "A1Cresult", "max_glu_serum",
]  # fmt: skip
_DIABETES130 = [*_NUMBERS, *_OTHERS]
# (kind, name): table, target, and columns where not all others are taken
TARGETS = {
    ("logistic", "adult"): ("adult", "income", None),
    ("logistic", "credit"): ("credit", "default_payment_next_month", None),
    ("logistic", "diabetes130"): ("diabetes130", "readmitted", _DIABETES130),
    ("logistic", "pima"): ("pima", "outcome", None),
    ("logistic", "german"): ("german", "class", None),
    ("logistic", "magic"): ("magic", "class", None),
    ("logistic", "abalone"): ("abalone", "rings", None),
    ("logistic", "spambase"): ("spambase", "spam", None),
    ("linear", "diabetes130"): ("diabetes130", "time_in_hospital", _DIABETES130),
    ("linear", "california"): ("california", None, None),
    ("linear", "wine"): ("wine", "quality", None),
    ("linear", "diabetes"): ("diabetes", "target", None),
    ("linear", "abalone"): ("abalone", "rings", None),
    ("linear", "adult hours"): ("adult", "hours_per_week", None),
    ("poisson", "diabetes130"): ("diabetes130", "number_inpatient", _DIABETES130),
    ("poisson", "medications"): ("diabetes130", "num_medications", _DIABETES130),
    ("poisson", "abalone"): ("abalone", "rings", None),
    ("poisson", "pregnancies"): ("pima", "pregnancies", None),
    ("softmax", "diabetes130"): ("diabetes130", "readmitted", _DIABETES130),
    ("softmax", "abalone"): ("abalone", "sex", None),
    ("softmax", "wine"): ("wine", "quality", None),
    ("softmax", "credit"): ("credit", "EDUCATION", None),
}
GROUPS = {"wine": [5, 6, 9], "credit": [1, 2, 9]}  # largest number of each class


class Design(NamedTuple):
    """Columns, their bounds, targets and the bounds of these."""

    X: np.ndarray
    names: list
    bounds: np.ndarray
    y: np.ndarray
    target_bounds: tuple


def table_of(name):
    """The table, as it is stored."""
    if name == "breast_cancer":
        return load_breast_cancer(as_frame=True).frame
    if name == "diabetes":
        return load_diabetes(as_frame=True, scaled=False).frame
    if name not in FILES:
        return _tasks._table(name)
    folder = os.environ.get("SKDP_DATA")
    if folder is None:
        raise SystemExit(f"{name} needs {FILES[name]} in a folder named by SKDP_DATA.")
    return pd.read_csv(Path(folder) / FILES[name], keep_default_na=name != "diabetes130")


def outward(low, high, wider):
    """A range, rounded outward to one digit of its width, and as many times as wide."""
    digit = 10.0 ** np.floor(np.log10(max(high - low, 1e-12)))
    low, high = np.floor(low / digit) * digit, np.ceil(high / digit) * digit
    middle, half = (low + high) / 2, (high - low) / 2 * wider
    return middle - half, middle + half


def design(kind, name, wider=1.0):
    """Columns in their own units, and bounds."""
    source, target, columns = TARGETS[kind, name]
    table = table_of(source)
    target = target if target in table else table.columns[-1]
    y = table[target]
    if kind == "logistic":
        positive = {"diabetes130": ["<30"]}.get(source) or _tasks.SOURCES[source][3]
        y = y.isin(positive).to_numpy().astype(int)
    elif source in GROUPS and kind == "softmax":
        y = np.searchsorted(GROUPS[source], y.to_numpy(float))
    elif kind == "softmax":
        y = pd.factorize(y, sort=True)[0]
    else:
        y = y.to_numpy(float)
    table = (table[columns] if columns else table).drop(columns=[target, "ID"], errors="ignore")
    categorical = _tasks.CATEGORICAL_NUMBERS.get(source, [])
    parts, names, bounds = [], [], []
    for column in table:
        values = table[column]
        if pd.api.types.is_numeric_dtype(values) and column not in categorical:
            x = values.fillna(values.median()).to_numpy(float)
            parts.append(x)
            names.append(column)
            bounds.append(outward(x.min(), x.max(), wider))
            continue
        levels = values.astype(str)
        counts = levels.value_counts()
        for level in [k for k in counts.index[1:] if counts[k] >= LEAST_ROWS][:MOST_LEVELS]:
            parts.append((levels == level).to_numpy(float))
            names.append(f"{column}={level}")
            bounds.append((0.0, 1.0))
    X = np.column_stack(parts)
    keep = list(range(X.shape[1]))
    while True:
        Z = X[:, keep]
        Z = (Z - Z.mean(axis=0)) / np.maximum(Z.std(axis=0), 1e-12)
        inflation = np.diag(np.linalg.pinv(Z.T @ Z / len(Z) + 1e-9 * np.eye(len(keep))))
        if inflation.max() < MOST_INFLATION:
            break
        keep.pop(int(inflation.argmax()))
    largest = outward(float(y.min()), float(y.max()), 1.0)
    return Design(X[:, keep], [names[j] for j in keep], np.array(bounds)[keep], y, largest)


def estimate(kind, X, y):
    """Maximum likelihood by Newton's method: coefficients, intercept last, and their errors."""
    mean, scale = X.mean(axis=0), np.maximum(X.std(axis=0), 1e-12)
    A = np.column_stack([(X - mean) / scale, np.ones(len(X))])
    w = np.zeros(A.shape[1])
    if kind == "linear":
        w = np.linalg.lstsq(A, y, rcond=None)[0]
        r = y - A @ w
        H = A.T @ A / (r @ r / (len(y) - len(w)))
    else:
        w[-1] = np.log(y.mean()) if kind == "poisson" else 0.0
        for _ in range(100):
            eta = A @ w
            m = expit(eta) if kind == "logistic" else np.exp(np.minimum(eta, 30.0))
            v = m * (1 - m) if kind == "logistic" else m
            H = (A * v[:, None]).T @ A + 1e-6 * np.eye(len(w))
            step = np.linalg.solve(H, A.T @ (y - m))
            w = w + step * min(1.0, 5.0 / np.abs(step).max())
            if np.abs(step).max() < 1e-9:
                break
    errors = np.sqrt(np.diag(np.linalg.inv(H)))
    coefficients = w[:-1] / scale
    return np.append(coefficients, w[-1] - coefficients @ mean), errors[:-1] / scale


def softmax_estimate(X, y):
    """The same of contrasts of several classes to the first, one class after the other."""
    mean, scale = X.mean(axis=0), np.maximum(X.std(axis=0), 1e-12)
    A = np.column_stack([(X - mean) / scale, np.ones(len(X))])
    k, D = y.max(), A.shape[1]
    w, one_hot = np.zeros((k, D)), np.eye(k + 1)[y][:, 1:]
    for _ in range(100):
        p = softmax(np.column_stack([np.zeros(len(X)), A @ w.T]), axis=1)[:, 1:]
        H = np.zeros((k, D, k, D))
        for i in range(k):
            for j in range(k):
                H[i, :, j] = (A * (p[:, i] * ((i == j) - p[:, j]))[:, None]).T @ A
        H = H.reshape(k * D, k * D) + 1e-6 * np.eye(k * D)
        step = np.linalg.solve(H, ((one_hot - p).T @ A).ravel()).reshape(k, D)
        w = w + step * min(1.0, 5.0 / np.abs(step).max())
        if np.abs(step).max() < 1e-9:
            break
    errors = np.sqrt(np.diag(np.linalg.inv(H))).reshape(k, D)[:, :-1]
    coefficients = w[:, :-1] / scale
    intercepts = w[:, -1] - coefficients @ mean
    return np.column_stack([coefficients, intercepts]), (errors / scale).ravel()


def contrasts(fit):
    """Means and deviations of the contrasts of a fit's classes to the first."""
    (K, d), D = fit.coef_.shape, fit.coef_.shape[1] + 1
    S = fit.covariance_.reshape(K, D, K, D)
    variances = [
        np.diag(S[k, :, k] + S[0, :, 0] - S[k, :, 0] - S[0, :, k])[:d] for k in range(1, K)
    ]
    return np.ravel(fit.coef_[1:] - fit.coef_[0]), np.sqrt(np.ravel(variances))


def fitted(kind, of, rows, epsilon):
    """A private fit to some of the rows."""
    facts = {"epsilon": epsilon, "delta": DELTA, "bounds": of.bounds, "n_samples": len(rows)}
    X, y = of.X[rows], of.y[rows]
    if kind in ("logistic", "softmax"):
        return DPVariationalLogisticRegression(classes=np.unique(of.y), **facts).fit(X, y)
    if kind == "linear":
        bounds = of.target_bounds
        return DPVariationalLinearRegression(target_bounds=bounds, **facts).fit(X, y)
    largest = of.target_bounds[1]
    return DPVariationalPoissonRegression(largest_count=largest, **facts).fit(X, y)


def measured(kind, name, epsilon, repetitions, wider):
    """All that is printed of a cell."""
    of, held, distances, widths, losses, wrong = design(kind, name, wider), [], [], [], [], 0
    order = np.random.default_rng(0).permutation(len(of.y))
    rows, others = order[len(order) // 3 :], order[: len(order) // 3]
    several, labels = kind == "softmax", np.unique(of.y)
    X, y = of.X[rows], of.y[rows]
    whole, errors = softmax_estimate(X, y) if several else estimate(kind, X, y)
    unit = of.y[rows].std() if kind == "linear" else 1.0
    spread = np.resize(of.X[rows].std(axis=0), len(errors))
    there = errors * spread < MOST_ERROR * unit
    reference, started = np.atleast_2d(whole)[:, :-1].ravel(), time.perf_counter()
    for _ in range(repetitions):
        fit = fitted(kind, of, rows, epsilon)
        if several:
            mean, deviation = contrasts(fit)
        else:
            mean = np.ravel(fit.coef_)
            deviation = np.sqrt(np.diag(fit.covariance_))[: len(mean)]
        z = (mean - reference) / deviation
        held.append(np.abs(z[there]) <= 1.645)
        distances.append(np.abs(z) * there)
        widths.append(deviation / errors)
        if kind in ("logistic", "softmax"):
            losses.append(log_loss(of.y[others], fit.predict_proba(of.X[others]), labels=labels))
        sure = (np.abs(mean) > 1.645 * deviation) & (np.abs(reference) > 1.645 * errors)
        wrong += int((sure & (np.sign(mean) != np.sign(reference))).sum())
    seconds = (time.perf_counter() - started) / repetitions
    found = {
        "kind": kind, "table": name, "epsilon": epsilon, "wider": wider, "rows": len(rows),
        "columns": len(reference), "coverage": float(np.mean(held)),
        "error": float(np.std(np.mean(held, axis=1)) / np.sqrt(repetitions)),
        "worst": float(np.max(distances)),
        "worst at": of.names[int(np.max(distances, 0).argmax()) % len(of.names)],
        "wrong signs": wrong, "width": float(np.median(widths)), "seconds": seconds,
    }  # fmt: skip
    if kind in ("logistic", "softmax"):
        y = of.y[others]
        shares = np.bincount(of.y[rows]) / len(rows)
        logits = np.column_stack([of.X[others], np.ones(len(others))]) @ np.atleast_2d(whole).T
        plain = softmax(np.column_stack([np.zeros(len(y)), logits]), axis=1)
        of_shares = np.tile(shares, (len(y), 1))
        found["log-loss"], found["log-losses"] = float(np.mean(losses)), losses
        found["log-loss, not private"] = float(log_loss(y, plain, labels=labels))
        found["log-loss, shares"] = float(log_loss(y, of_shares, labels=labels))
    return found


def shown(found):
    """One line."""
    text = "{kind:8} {table:12} eps {epsilon:<4g} x{wider:<4g} n {rows:6} d {columns:3}  "
    text += "coverage {coverage:.3f} (± {error:.3f})  worst |z| {worst:5.1f} ({worst at:.18})  "
    text += "wrong {wrong signs}"
    line = text.format(**found) + f"  width {found['width']:.2f}  {found['seconds']:.2f} s"
    if "log-loss" in found:
        line += "  log-loss {log-loss:.4f} ({log-loss, not private:.4f}; {log-loss, shares:.4f})"
        line = line.format(**found)
    if "above documented" in found:
        line += f"  {found['above documented']:+.4f} to documented bounds"
    return line


def main():
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kinds", default="logistic,linear,poisson,softmax")
    parser.add_argument("--tables")
    parser.add_argument("--epsilons", default="0.3,1,3")
    parser.add_argument("--repetitions", type=int, default=10)
    parser.add_argument("--bounds", default="doc", help="doc, or xK for K times as wide")
    parser.add_argument("--json")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    kinds, found = options.kinds.split(","), []
    tables = options.tables.split(",") if options.tables else [name for _, name in TARGETS]
    cells = [cell for cell in TARGETS if cell[0] in kinds and cell[1] in tables]
    documented = {}
    for bounds in options.bounds.split(","):
        wider = 1.0 if bounds == "doc" else float(bounds.removeprefix("x"))
        for kind, name in cells:
            for epsilon in map(float, options.epsilons.split(",")):
                found.append(measured(kind, name, epsilon, options.repetitions, wider))
                before = documented.setdefault((kind, name, epsilon), found[-1])
                if before is not found[-1] and "log-loss" in before:
                    above = found[-1]["log-loss"] - before["log-loss"]
                    found[-1]["above documented"] = above
                print(shown(found[-1]), flush=True)
    if options.json:
        Path(options.json).write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
