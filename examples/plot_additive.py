"""
Curves that a regulator can read
================================

Who earns more than 50 000 dollars? A linear model says that each year of age adds the same, which
is wrong. An additive one has a curve per column, and says how sure it is of each: its bands account
for sampling and for the privacy noise.

It takes about a quarter of a minute. What is declared comes first: round edges, which need no look
at the rows, and the levels of the code book.
"""

EDGES = {
    "age": range(0, 101, 5),
    "education_num": [0.5 + i for i in range(17)],
    "hours_per_week": range(0, 101, 5),
    "capital_gain": [*range(0, 20_000, 1000), *range(20_000, 100_001, 10_000)],
    "capital_loss": range(0, 5001, 200),
}
WORDS = {
    "workclass": "Private Self-emp-not-inc Self-emp-inc Federal-gov Local-gov State-gov "
    "Without-pay Never-worked",
    "marital_status": "Married-civ-spouse Divorced Never-married Separated Widowed "
    "Married-spouse-absent Married-AF-spouse",
    "occupation": "Tech-support Craft-repair Other-service Sales Exec-managerial Prof-specialty "
    "Handlers-cleaners Machine-op-inspct Adm-clerical Farming-fishing Transport-moving "
    "Priv-house-serv Protective-serv Armed-Forces",
    "relationship": "Wife Own-child Husband Not-in-family Other-relative Unmarried",
    "sex": "Female Male",
}
CATEGORIES = {column: levels.split() for column, levels in WORDS.items()}

# %%
# The Adult census table; the first 32 561 rows are those of training, as published.
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
N_TRAIN = 32_561

# %%
# A column of which nothing is declared is refused, so that only these are passed on.

from sklearn.metrics import log_loss

from skdp import DPAdditiveClassifier

X = table[[*EDGES, *CATEGORIES]]
X_test, y_test = X[N_TRAIN:], y[N_TRAIN:]
model = DPAdditiveClassifier(
    epsilon=1.0,
    delta=1e-5,
    edges=EDGES,
    categories=CATEGORIES,
    classes=["<=50K", ">50K"],
    n_samples=N_TRAIN,
).fit(X[:N_TRAIN], y[:N_TRAIN])
print(model.privacy_)
p = model.predict_proba(X_test)[:, 1]
accuracy = ((p > 0.5) == (y_test == ">50K")).mean()
print(f"test accuracy {accuracy:.4f}, log-loss {log_loss(y_test == '>50K', p):.4f}")

# %%
# The table behind the curves, for whoever wants to score by hand.

print(model.to_frame().query("feature == 'age'").round(2).to_string(index=False))

# %%
# Dark is the interval of a bin by itself; light is the band that holds the whole curve.

import matplotlib.pyplot as plt

from skdp.displays import AdditiveDisplay

features = ["age", "education_num", "hours_per_week", "capital_gain", "relationship", "workclass"]
with plt.rc_context({"font.size": 13}):  # to be read on a telephone too
    AdditiveDisplay.from_estimator(model, features=features, max_columns=2)
plt.show()
