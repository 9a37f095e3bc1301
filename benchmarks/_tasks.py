"""Tabular tasks of the benchmarks: rows of norm ≤ 1 with the intercept first, labels 0 and 1.

Data comes from the folder named by the environment variable ``SKDP_DATA``, else from OpenML.
Standardising reads the data: this is the common preprocessing of a comparison, not a private
pipeline. Protocol: stratified 70/30 splits, features standardised and cut at ±4, categories
one-hot, rows scaled down to norm 1; estimators get ``data_norm=1`` and ``fit_intercept=False``.
"""

import os
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.datasets import fetch_openml, load_breast_cancer

# name: files under SKDP_DATA, OpenML name and version, target, positive labels
SOURCES = {
    "adult": (
        ["adult/adult_train.csv.gz", "adult/adult_test.csv.gz"],
        ("adult", 2),
        "income",
        [">50K"],
    ),
    "credit": (["credit_default/credit_default.csv.gz"], None, "default_payment_next_month", [1]),
    "german": (["german_credit/german_credit.csv.gz"], ("credit-g", 1), "class", [2, "bad"]),
    "pima": (["pima/pima.csv.gz"], ("diabetes", 1), "outcome", [1, "tested_positive"]),
    "spambase": (["spambase/spambase.csv.gz"], ("spambase", 1), "spam", [1, "1"]),
    "magic": (["magic_gamma/magic04.csv.gz"], ("MagicTelescope", 1), "class", ["g"]),
    "abalone": (["abalone/abalone.csv.gz"], ("abalone", 1), "rings", list(range(10, 100))),
}
CATEGORICAL_NUMBERS = {"credit": ["SEX", "EDUCATION", "MARRIAGE"]}
TASKS = ("breast_cancer", *SOURCES)


def load(name):
    """Return rows (n, d) of norm ≤ 1, intercept first, and labels in {0, 1}."""
    if name == "breast_cancer":
        features, y = load_breast_cancer(return_X_y=True, as_frame=True)
        return _rows(features, []), y.to_numpy()
    _, _, target, positive = SOURCES[name]
    table = _table(name)
    if target not in table:  # OpenML names the target otherwise, and puts it last
        target = table.columns[-1]
    y = table[target].isin(positive).to_numpy().astype(int)
    features = table.drop(columns=[target, "ID"], errors="ignore")
    return _rows(features, CATEGORICAL_NUMBERS.get(name, [])), y


def _table(name):
    files, openml, *_ = SOURCES[name]
    folder = os.environ.get("SKDP_DATA")
    if folder:
        table = pd.concat([pd.read_csv(Path(folder) / file) for file in files])
        table.columns = [c if name == "credit" else c.lower() for c in table.columns]
        return table.reset_index(drop=True)
    if openml is None:
        raise SystemExit(f"The task {name!r} needs the environment variable SKDP_DATA.")
    try:
        return fetch_openml(openml[0], version=openml[1], as_frame=True).frame.rename(
            columns=str.lower
        )
    except OSError as error:
        raise SystemExit(
            f"The task {name!r} needs data: set SKDP_DATA to the folder that holds {files[0]}, or "
            f"go online for OpenML ({error})."
        ) from None


def _rows(table, categorical):
    numeric = [c for c in table if pd.api.types.is_numeric_dtype(table[c]) and c not in categorical]
    Z = table[numeric].to_numpy(float)
    mean = np.nanmean(Z, axis=0)
    Z = np.where(np.isnan(Z), mean, Z)
    scale = Z.std(axis=0)
    parts = [np.ones((len(Z), 1)), np.clip((Z - mean) / np.where(scale == 0, 1, scale), -4, 4)]
    others = [c for c in table if c not in numeric]
    parts += [pd.get_dummies(table[c].astype(str)).to_numpy(float)[:, :40] for c in others]
    rows = np.hstack(parts)
    bound = np.sqrt(len(numeric) + len(others) + 1)
    rows *= np.minimum(1, bound / np.linalg.norm(rows, axis=1))[:, None]
    return rows / bound
