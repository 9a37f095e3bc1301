"""
How good is it, privately?
==========================

A model was fitted privately. How good is it, on private rows? Each accuracy and each curve that is
shown is an answer about these rows, and has to be paid for. One release, a table of noisy counts,
pays for all of them; and because the rows are others than those of the fit, both together cost as
much as the fit alone.

    python examples/plot_evaluation.py [folder]

reads the Adult census table from the folder that ``SKDP_DATA`` names, else from OpenML; prints the
report, and writes the picture to the folder (default ``evaluation_output``). It takes less than
half a minute.
"""

import sys
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
from _tables import BOUNDS, CATEGORIES, adult
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from skdp import BoundedScaler, DisjointSplit, DPVariationalLogisticRegression, NormClipper
from skdp.displays import (
    ConfusionMatrixDisplay,
    PrecisionRecallDisplay,
    ReliabilityDisplay,
    RocCurveDisplay,
)
from skdp.evaluation import DPEvaluator
from skdp.privacy import privacy_of

mpl.use("Agg")
import matplotlib.pyplot as plt

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "evaluation_output")
folder.mkdir(parents=True, exist_ok=True)
table = pd.concat(adult(), ignore_index=True)
y = table.pop("income").to_numpy()

# %%
# The split does not look at the rows, and the rows that it hands out say of which part they are.

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

X_test, y_test = split.take("test", table, y)
report = DPEvaluator(model, epsilon=1.0, n_samples=n_test).report(
    X_test, y_test, subgroup=X_test["sex"], subgroups=CATEGORIES["sex"]
)
print(report)
print(f"fit and report together: ε = {privacy_of(model, report).epsilon:.4f}")

# %%
# Whatever is asked of the report from here on is free. Another threshold, for instance:

at = report.at(0.3)
print(f"above {at.threshold:.2f}: precision {at.precision}, recall {at.recall}")

figure, axes = plt.subplots(2, 2, figsize=(10, 10), layout="constrained")
ReliabilityDisplay.from_report(report, ax=axes[0, 0])
for group, of_group in report.subgroups_.items():
    RocCurveDisplay.from_report(of_group, name=group, ax=axes[0, 1])
PrecisionRecallDisplay.from_report(report, ax=axes[1, 0])
ConfusionMatrixDisplay.from_report(report, normalize="true", ax=axes[1, 1])
figure.savefig(folder / "evaluation.png", dpi=120)
