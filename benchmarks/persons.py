"""Persons with several rows: error by strategy, coverage, time, and a hospital's table.

    python benchmarks/persons.py strategies
    python benchmarks/persons.py coverage [--repetitions 40]
    python benchmarks/persons.py time
    SKDP_DATA=... python benchmarks/persons.py diabetes

``strategies``: logistic regression with 2000 persons and 10 features, ε = 1 per person, δ = 1e-5;
error ‖θ̂ − θ‖, the median over data sets, of the row unit (which protects a row alone, and is not
comparable), of group privacy (noise for the largest person), of ``unit=Persons(...)`` with several
clips, with at most 3 rows each, and with each person's rows averaged beforehand. Features have
intra-class correlation 0 or .8.

``coverage``: features, and labels given them, have intra-class correlation .3 (Gaussian copulas:
the margins are those of the model); how often 90 % intervals hold the truth, and their width over
that of a cluster-robust sandwich without privacy, which is what a GEE with independent working
correlation reports.

``time``: 1e6 rows, 2e5 persons, 30 features, against the same rows as records, and peak memory.

``diabetes``: readmission within 30 days of 71 518 patients; ε = 1, δ = 1e-6 a patient; five splits
by patient, all encounters of the patients that are held back.
"""

import argparse
import gzip
import math
import os
import resource
import time
import warnings
from pathlib import Path

import numpy as np
from scipy.special import expit
from scipy.stats import norm

from skdp import DPVariationalLogisticRegression, FitWarning, Persons, PrivacyWarning
from skdp.privacy.gdp import epsilon_to_gdp, gdp_to_epsilon

N_PERSONS, D, DELTA = 2000, 10, 1e-5


def correlated(rng, groups, d, share):
    """Normal features (n, d) of which a share of the variance is the person's."""
    of_person = rng.normal(size=(groups.max() + 1, d))[groups]
    return math.sqrt(share) * of_person + math.sqrt(1 - share) * rng.normal(size=(len(groups), d))


def short(X):
    """Rows over √d, scaled down to norm 1."""
    X = X / math.sqrt(X.shape[1])
    return X * np.minimum(1.0, 1.0 / np.linalg.norm(X, axis=1))[:, None]


def sizes(rng, kind):
    """Rows of each person: 10, or 1 to 100 with a mean of 10."""
    if kind == "10 each":
        return np.full(N_PERSONS, 10)
    return np.clip(np.round(rng.lognormal(1.63, 1.2, N_PERSONS)), 1, 100).astype(int)


def fitted(X, y, epsilon, groups=None, **bounds):
    """A fit with declared facts; of persons where there are groups."""
    settings = {"n_samples": len(X)}
    if groups is not None:
        n_groups = int(groups.max()) + 1
        bounds = {"rows_per_group": len(X) / n_groups, **bounds}
        settings = {"unit": Persons(n_groups, **bounds)}
    model = DPVariationalLogisticRegression(
        epsilon, DELTA, data_norm=1.0, fit_intercept=False, classes=[0, 1], **settings
    )
    return model.fit(X, y) if groups is None else model.fit(X, y, groups=groups)


def error(model, theta):
    """‖θ̂ − θ‖."""
    return float(np.linalg.norm(model.coef_.ravel() - theta))


def averaged(X, y, groups):
    """One row per person: a random one of its rows' labels goes with the mean of its features."""
    first = np.unique(groups, return_index=True)[1]
    return X[first], y[first]


def strategies(arguments):
    """Median errors."""
    clips = ("½√k̄", "√k̄", "k̄")
    names = ("no privacy", "row unit", "group privacy", "persons", *clips, "≤ 3 rows", "first row")
    print("".join(f"{name:>15}" for name in ("", *names)))
    for kind in ("10 each", "1 to 100"):
        for share in (0.0, 0.8):
            found = []
            for seed in range(arguments.repetitions):
                rng = np.random.default_rng([seed, 22])
                groups = np.repeat(np.arange(N_PERSONS), sizes(rng, kind))
                X = short(correlated(rng, groups, D, share))
                theta = 3.0 * rng.normal(size=D)
                y = (rng.random(len(X)) < expit(X @ theta)).astype(int)
                most = np.bincount(groups).max()
                root = math.sqrt(len(X) / N_PERSONS)
                smaller = gdp_to_epsilon(epsilon_to_gdp(1.0, DELTA) / most, DELTA)
                found.append(
                    [
                        error(fitted(X, y, math.inf), theta),
                        error(fitted(X, y, 1.0), theta),
                        error(fitted(X, y, smaller), theta),
                        error(fitted(X, y, 1.0, groups), theta),
                        error(fitted(X, y, 1.0, groups, clip=root / 2), theta),
                        error(fitted(X, y, 1.0, groups, clip=root), theta),
                        error(fitted(X, y, 1.0, groups, clip=root**2), theta),
                        error(fitted(X, y, 1.0, groups, max_rows=3, rows_per_group=3), theta),
                        error(fitted(*averaged(X, y, groups), 1.0), theta),
                    ]
                )
            line = "".join(f"{value:15.2f}" for value in np.median(found, axis=0))
            print(f"{kind + f', {share:g}':>15}{line}", flush=True)


def cluster_sandwich(X, y, groups):
    """Deviations of a GEE with independent working correlation, without privacy."""
    theta = np.zeros(X.shape[1])
    for _ in range(50):
        p = expit(X @ theta)
        H = (X.T * (p * (1 - p))) @ X
        theta = theta + np.linalg.solve(H, X.T @ (y - p))
    scores = np.zeros((groups.max() + 1, X.shape[1]))
    np.add.at(scores, groups, (y - expit(X @ theta))[:, None] * X)
    inverse = np.linalg.inv(H)
    return np.sqrt(np.diag(inverse @ scores.T @ scores @ inverse))


def coverage(arguments):
    """90 % intervals with 10 correlated rows per person."""
    for n_persons, d in ((1000, 5), (5000, 10)):
        for epsilon in (0.3, 1.0, 3.0):
            hits, widths = [], []
            for seed in range(arguments.repetitions):
                rng = np.random.default_rng([seed, n_persons, d])
                groups = np.repeat(np.arange(n_persons), 10)
                X = short(correlated(rng, groups, d, 0.3))
                theta = 3.0 * rng.normal(size=d)
                uniform = norm.cdf(correlated(rng, groups, 1, 0.3)[:, 0])
                y = (uniform < expit(X @ theta)).astype(int)
                model = fitted(X, y, epsilon, groups)
                deviation = np.sqrt(np.diag(model.covariance_))
                off = np.abs(model.coef_.ravel() - theta)
                hits.append((off < norm.ppf(0.95) * deviation).mean())
                widths.append((deviation / cluster_sandwich(X, y, groups)).mean())
            spread = np.std(hits) / math.sqrt(len(hits))
            print(
                f"{n_persons} persons d={d} epsilon={epsilon:<4g} 90 %: "
                f"{100 * np.mean(hits):.1f} ± {100 * spread:.1f}  width {np.mean(widths):.2f}",
                flush=True,
            )


def times(arguments):
    """Seconds of fits, in turn, and the memory that they take."""
    n, n_persons, d = 10**6, 2 * 10**5, 30
    rng = np.random.default_rng(0)
    X, y = short(rng.normal(size=(n, d))), (rng.random(n) < 0.5).astype(int)
    groups = rng.integers(0, n_persons, n)
    fits = {
        "rows": {},
        "rows, robust": {"robust": True},
        "persons": {"groups": groups},
        "persons, robust=False": {"groups": groups, "robust": False},
    }
    best = dict.fromkeys(fits, math.inf)
    for _ in range(3):
        for name, settings in fits.items():
            began = time.perf_counter()
            fitted(X, y, 1.0, **settings)
            best[name] = min(best[name], time.perf_counter() - began)
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
            print(f"{name:<22}{best[name]:.2f} s  peak {peak:.2f} GiB", flush=True)
    print(f"robust: {best['persons'] / best['rows, robust']:.2f}", end="  ")
    print(f"not robust: {best['persons, robust=False'] / best['rows']:.2f}")


AGES = [f"[{a}-{a + 10})" for a in range(0, 100, 10)]
NUMBERS = {
    "time_in_hospital": 14, "num_lab_procedures": 100, "num_procedures": 6, "num_medications": 40,
    "number_outpatient": 5, "number_emergency": 5, "number_inpatient": 8, "number_diagnoses": 16,
}  # fmt: skip
CODES = {
    "race": ["Caucasian", "AfricanAmerican", "Hispanic", "Asian", "Other"],
    "gender": ["Female", "Male"],
    "admission_type_id": ["1", "2", "3"],
    "discharge_disposition_id": ["1", "3", "6", "2", "22", "5"],
    "admission_source_id": ["7", "1", "17", "4"],
    "max_glu_serum": [">200", ">300", "Norm"],
    "A1Cresult": [">7", ">8", "Norm"],
    "insulin": ["No", "Steady", "Up", "Down"],
    "change": ["Ch"],
    "diabetesMed": ["Yes"],
}


def hospital():
    """Rows in declared bounds, labels, patients, and the norm that declared columns imply."""
    import pandas as pd

    folder = os.environ.get("SKDP_DATA")
    if not folder:
        raise SystemExit("The part 'diabetes' needs the environment variable SKDP_DATA.")
    with gzip.open(Path(folder) / "diabetes130" / "diabetes130.csv.gz", "rt") as file:
        table = pd.read_csv(file, keep_default_na=False, dtype=str)
    columns = [table["age"].map({age: i / 4.5 - 1 for i, age in enumerate(AGES)}).to_numpy()]
    columns += [
        np.clip(2 * table[name].astype(float).to_numpy() / most - 1, -1, 1)
        for name, most in NUMBERS.items()
    ]
    columns += [(table[name] == code).to_numpy(float) for name in CODES for code in CODES[name]]
    norm_bound = math.sqrt(1 + len(NUMBERS) + len(CODES))
    y = (table["readmitted"] == "<30").to_numpy().astype(int)
    return np.column_stack(columns), y, table["patient_nbr"].to_numpy(), norm_bound


def diabetes(arguments):
    """AUC and log-loss of four strategies, paired over splits."""
    from sklearn.metrics import log_loss, roc_auc_score
    from sklearn.model_selection import GroupShuffleSplit

    X, y, patients, bound = hospital()
    delta, found = 1e-6, []
    split = GroupShuffleSplit(arguments.splits, test_size=0.25, random_state=0)
    third = gdp_to_epsilon(epsilon_to_gdp(1.0, delta) / 3, delta)
    names = ["groups", "first encounter", "three rows by hand", "row unit", "no privacy"]
    for train, test in split.split(X, y, patients):
        A, a, of = X[train], y[train], patients[train]
        order = np.argsort(of, kind="stable")
        number = np.empty(len(of), dtype=int)
        starts = np.unique(of[order], return_index=True)[1]
        number[order] = np.arange(len(of)) - np.repeat(starts, np.diff([*starts, len(of)]))
        n_patients, common = len(starts), {"data_norm": bound, "classes": [0, 1]}

        def fit(epsilon, kept, common=common, A=A, a=a):
            model = DPVariationalLogisticRegression(epsilon, delta, **common)
            return model.set_params(n_samples=int(kept.sum())).fit(A[kept], a[kept])

        everything = np.ones(len(A), dtype=bool)
        persons = DPVariationalLogisticRegression(
            1.0, delta, **common, unit=Persons(n_patients, rows_per_group=1.4)
        )
        models = [
            persons.fit(A, a, groups=of),
            fit(1.0, number == 0),
            fit(third, number < 3),
            fit(1.0, everything),
            fit(math.inf, everything),
        ]
        p = [model.predict_proba(X[test])[:, 1] for model in models]
        found.append([(roc_auc_score(y[test], q), log_loss(y[test], q)) for q in p])
    for name, values in zip(names, np.swapaxes(found, 0, 1), strict=True):
        gain = np.array(found)[:, 0] - values
        auc, loss = values.mean(axis=0)
        spread = gain.std(axis=0, ddof=1) / math.sqrt(len(found))
        print(
            f"{name:<20} AUC {auc:.4f} (groups: {gain[:, 0].mean():+.4f} ± {spread[0]:.4f})  "
            f"log-loss {loss:.4f} ({gain[:, 1].mean():+.4f} ± {spread[1]:.4f})",
            flush=True,
        )


PARTS = {
    "strategies": strategies,
    "coverage": coverage,
    "time": times,
    "diabetes": diabetes,
}


def main():
    """Run one part."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--repetitions", type=int, default=40)
    parser.add_argument("--splits", type=int, default=5)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", PrivacyWarning)
    warnings.simplefilter("ignore", FitWarning)
    PARTS[arguments.part](arguments)


if __name__ == "__main__":
    main()
