"""
Files larger than memory
========================

Visits of a hospital network in Parquet files, which are never in memory as a whole: they are
written, fitted and scored a row group at a time, and the fit is the one that would be had of all of
them in memory.

It needs the extra ``parquet``, and takes a few seconds; with ``N_ROWS = 10_000_000`` it takes 1 GB
of disk and some minutes.
"""

N_ROWS = 200_000
GROUP = 100_000  # rows of a row group: a fit holds one of them at a time
WARDS = ["medicine", "surgery", "oncology"]

# %%
# The files: one per hospital. Synthetic visits, of which the older and the oncological ones are
# followed by another more often.

import tempfile

import numpy as np
import pandas as pd


def visits(rng, n_rows):
    """Make a table."""
    frame = pd.DataFrame(
        {
            "age": rng.integers(18, 100, n_rows),
            "days": rng.exponential(5.0, n_rows).round(1),
            "ward": rng.choice(WARDS, n_rows),
        }
    )
    logit = (frame.age - 60) / 15 + (frame.days - 5) / 10 + (frame.ward == "oncology") - 0.5
    return frame.assign(readmitted=rng.random(n_rows) < 1 / (1 + np.exp(-logit)))


folder = tempfile.TemporaryDirectory()
rng = np.random.default_rng(0)
for hospital, n_rows in (("north", N_ROWS // 2), ("south", N_ROWS - N_ROWS // 2)):
    path = f"{folder.name}/{hospital}.parquet"
    visits(rng, n_rows).to_parquet(path, row_group_size=GROUP, index=False)

# %%
# The rows: columns by name, the label among them. Nothing is read yet but how many rows and which
# columns there are.

from skdp.data import ParquetRows

rows = ParquetRows(folder.name, target="readmitted", rows_per_chunk=GROUP)
print(rows)

# %%
# The pipeline is the one for rows in memory. What skdp has takes chunks by itself; transformers of
# scikit-learn are wrapped, and refused if they would learn anything from the rows.

import time

from sklearn.compose import ColumnTransformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from skdp import BoundedScaler, DPVariationalLogisticRegression, NormClipper, PrivacyLedger
from skdp.data import RowWise

columns = ColumnTransformer(
    [
        ("numbers", BoundedScaler(lower=[18, 0], upper=[100, 30]), ["age", "days"]),
        ("ward", OneHotEncoder(categories=[WARDS], sparse_output=False), ["ward"]),
    ]
)
model = make_pipeline(
    RowWise(columns),
    NormClipper(1.5),
    DPVariationalLogisticRegression(
        epsilon=1.0, delta=1e-6, classes=[False, True], n_samples=N_ROWS
    ),
)

start = time.perf_counter()
with PrivacyLedger(epsilon=1.0, delta=1e-6) as ledger:
    model.fit(rows)
print(f"fitted in {time.perf_counter() - start:.1f} s")
print(ledger)

# %%
# Predictions come as one array; `score` reads the labels from the files as well. The fitted model
# is an ordinary one, and knows nothing of files.

import matplotlib.pyplot as plt

print(f"accuracy {model.score(rows):.3f}")
folder.cleanup()
_, ax = plt.subplots(layout="constrained")
ages = np.arange(18, 100)
for ward in WARDS:
    patients = pd.DataFrame({"age": ages, "days": 5.0, "ward": ward})
    ax.plot(ages, model.predict_proba(patients)[:, 1], label=ward)
ax.set(xlabel="age", ylabel="probability of another visit", title="After five days, at ε = 1")
ax.legend()
plt.show()
