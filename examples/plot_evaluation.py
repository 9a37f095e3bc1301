"""
How good is it, privately?
==========================

A model was fitted privately. How good is it, on private rows? Each accuracy and each curve that is
shown is an answer about these rows, and has to be paid for. One release, a table of noisy counts,
pays for all of them; and because the rows are others than those of the fit, both together cost as
much as the fit alone.

It takes less than half a minute. The rows are those of the Adult census table: numbers within
declared bounds, words of declared levels.
"""

BOUNDS = {
    "age": (0, 100),
    "education_num": (1, 16),
    "capital_gain": (0, 100_000),
    "capital_loss": (0, 5_000),
    "hours_per_week": (0, 100),
}
WORDS = {
    "occupation": "Tech-support Craft-repair Other-service Sales Exec-managerial Prof-specialty "
    "Handlers-cleaners Machine-op-inspct Adm-clerical Farming-fishing Transport-moving "
    "Priv-house-serv Protective-serv Armed-Forces",
    "relationship": "Wife Own-child Husband Not-in-family Other-relative Unmarried",
    "sex": "Female Male",
}
CATEGORIES = {column: levels.split() for column, levels in WORDS.items()}

# %%
# From ``adult/`` in the folder that ``SKDP_DATA`` names, if you have it there, else from OpenML.

import os
from pathlib import Path

import pandas as pd
from sklearn.datasets import fetch_openml

folder = Path(os.environ.get("SKDP_DATA", ""), "adult")
if folder.is_dir():
    files = [folder / f"adult_{part}.csv.gz" for part in ("train", "test")]
    table = pd.concat((pd.read_csv(file, na_values="?") for file in files), ignore_index=True)
else:
    try:
        table = fetch_openml("adult", version=2).frame
    except OSError as error:
        raise RuntimeError(
            "The Adult table is missing: OpenML cannot be reached, and SKDP_DATA names no folder "
            "with adult/adult_train.csv.gz and adult/adult_test.csv.gz."
        ) from error
table.columns = table.columns.str.replace("-", "_")
y = table.pop(table.columns[-1]).astype(object).to_numpy()

# %%
# The split does not look at the rows, and the rows that it hands out say of which part they are.

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from skdp import BoundedScaler, DisjointSplit, DPVariationalLogisticRegression, NormClipper

split = DisjointSplit(len(table), test_size=0.3)
n_train, n_test = split.n_samples_of("train"), split.n_samples_of("test")
lower, upper = np.transpose(list(BOUNDS.values()))
encoder = OneHotEncoder(
    categories=list(CATEGORIES.values()), handle_unknown="ignore", sparse_output=False
)
columns = ColumnTransformer(
    [("numbers", BoundedScaler(lower, upper), list(BOUNDS)), ("words", encoder, list(CATEGORIES))]
)
norm = (len(BOUNDS) + len(CATEGORIES)) ** 0.5
classifier = DPVariationalLogisticRegression(
    1.0, 1e-5, classes=["<=50K", ">50K"], n_samples=n_train
)
model = make_pipeline(columns, NormClipper(norm), classifier)
model.fit(*split.take("train", table, y))

# %%
# The report is one release with ε = 1, and by declared subgroup at no further cost. Fit and report
# read different rows: together they have the ε of one of them.

from skdp.evaluation import DPEvaluator
from skdp.privacy import privacy_of

X_test, y_test = split.take("test", table, y)
report = DPEvaluator(model, epsilon=1.0, n_samples=n_test).report(
    X_test, y_test, subgroup=X_test["sex"], subgroups=CATEGORIES["sex"]
)
print(report)
print(f"fit and report together: ε = {privacy_of(model, report).epsilon:.4f}")

# %%
# Whatever is asked of the report from here on is free. Another threshold, for instance:

import matplotlib.pyplot as plt

from skdp.displays import (
    ConfusionMatrixDisplay,
    PrecisionRecallDisplay,
    ReliabilityDisplay,
    RocCurveDisplay,
)

at = report.at(0.3)
print(f"above {at.threshold:.2f}: precision {at.precision}, recall {at.recall}")

ReliabilityDisplay.from_report(report)
ax = None
for group, of_group in report.subgroups_.items():
    ax = RocCurveDisplay.from_report(of_group, name=group, ax=ax).ax_
PrecisionRecallDisplay.from_report(report)
ConfusionMatrixDisplay.from_report(report, normalize="true")
plt.show()
