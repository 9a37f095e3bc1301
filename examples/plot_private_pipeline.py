"""
From a raw table to probabilities under one budget
==================================================

In a pipeline the leak is rarely in the last step. A `StandardScaler` before a private model has
read every row, exactly, and the model's ε says nothing about it. Here every step is either told
public facts, or pays for what it learns, and one (ε, δ) covers the whole.

It takes about half a minute. The rows are those of the Adult census table, whose code book gives
bounds of numbers and levels of words.
"""

BOUNDS = {
    "age": (0, 100),
    "education_num": (1, 16),
    "capital_gain": (0, 100_000),
    "capital_loss": (0, 5_000),
    "hours_per_week": (0, 100),
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
# The first 32 561 rows are those of training, as published.
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
train, y_train, test, y_test = table[:N_TRAIN], y[:N_TRAIN], table[N_TRAIN:], y[N_TRAIN:]
print(f"{N_TRAIN} rows; missing values in {train.isna().any().sum()} columns")

# %%
# Means and scales of the numbers are learned privately within their bounds. The encoder learns
# nothing; a word that is missing, or that the code book does not know, becomes zeros. A row then
# has at most √5 of numbers and √5 of ones, which `NormClipper` declares to the classifier.

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from skdp import DPVariationalLogisticRegression
from skdp.preprocessing import DPStandardScaler, NormClipper

numbers, words = list(BOUNDS), list(CATEGORIES)
lower, upper = np.transpose(list(BOUNDS.values()))
columns = ColumnTransformer(
    [
        ("numbers", DPStandardScaler(lower, upper), numbers),
        (
            "words",
            OneHotEncoder(
                categories=list(CATEGORIES.values()), handle_unknown="ignore", sparse_output=False
            ),
            words,
        ),
    ]
)
norm = (len(numbers) + len(words)) ** 0.5
classifier = DPVariationalLogisticRegression(classes=["<=50K", ">50K"], n_samples=N_TRAIN)
pipeline = make_pipeline(columns, NormClipper(norm), classifier)

# %%
# `split_budget` gives each private step its share, so that the whole is (1, 1e-5): the shares add
# up in μ², not in ε. `privacy_of` says what the fitted whole has spent.

from skdp.model_selection import split_budget
from skdp.privacy import privacy_of

private = split_budget(pipeline, epsilon=1.0, delta=1e-5).fit(train, y_train)
print(privacy_of(private))

# %%
# The same with the scaler that everybody uses. Its report would look just as good to whoever asks
# only the classifier; `privacy_of` names what is wrong.

from sklearn.base import clone
from sklearn.preprocessing import StandardScaler

leaking = clone(pipeline).set_params(columntransformer__numbers=StandardScaler())
leaking.fit(train, y_train)
print(leaking[-1].privacy_.epsilon, "says the classifier alone, but")
print(privacy_of(leaking))

# %%
# What the honest one costs: the noise in five means and scales, and a tenth of the classifier's μ².

from sklearn.metrics import log_loss

EPSILONS, REPETITIONS = (0.1, 0.3, 1.0, 3.0, 10.0), 3
scores = {name: [] for name in ("private", "leaking")}
for epsilon in EPSILONS:
    models = {
        "private": split_budget(pipeline, epsilon, 1e-5),
        "leaking": clone(leaking).set_params(dpvariationallogisticregression__epsilon=epsilon),
    }
    for name, model in models.items():
        runs = []
        for _ in range(REPETITIONS):
            p = clone(model).fit(train, y_train).predict_proba(test)[:, 1]
            runs.append(((y_test == ">50K") == (p > 0.5)).mean())
            runs.append(log_loss(y_test == ">50K", p))
        scores[name].append(np.reshape(runs, (REPETITIONS, 2)).mean(axis=0))
for name, rows in scores.items():
    for epsilon, (accuracy, loss) in zip(EPSILONS, rows, strict=True):
        print(f"{name}, epsilon={epsilon:g}: accuracy {accuracy:.4f}, log-loss {loss:.4f}")

# %%
import matplotlib.pyplot as plt

labels = {"private": "everything private", "leaking": "StandardScaler leaks"}
for column, title in enumerate(("accuracy", "log-loss")):
    _, axis = plt.subplots(layout="constrained")
    for name, style in zip(scores, ("o-", "s--"), strict=True):
        axis.plot(EPSILONS, np.array(scores[name])[:, column], style, label=labels[name])
    axis.set(xscale="log", xlabel="ε of what is claimed (δ = 1e-5)", title=f"Adult: test {title}")
    axis.legend(frameon=False)
plt.show()
