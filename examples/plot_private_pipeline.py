"""
From a raw table to probabilities under one budget
==================================================

In a pipeline the leak is rarely in the last step. A `StandardScaler` before a private model has
read every row, exactly, and the model's ε says nothing about it. Here every step is either told
public facts, or pays for what it learns, and one (ε, δ) covers the whole.

    python examples/plot_private_pipeline.py [folder]

reads the Adult census table from the folder that ``SKDP_DATA`` names, else from OpenML; prints the
statements and figures, and writes the picture to the folder (default ``private_pipeline_output``).
It takes about half a minute.
"""

import sys
from pathlib import Path

import matplotlib as mpl
import numpy as np
from _tables import BOUNDS, CATEGORIES, N_TRAIN, adult
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from tqdm import tqdm

from skdp import DPVariationalLogisticRegression
from skdp.model_selection import split_budget
from skdp.preprocessing import DPStandardScaler, NormClipper
from skdp.privacy import privacy_of

mpl.use("Agg")
import matplotlib.pyplot as plt

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "private_pipeline_output")
folder.mkdir(parents=True, exist_ok=True)
train, test = adult()
y_train, y_test = train.pop("income"), test.pop("income")
print(f"{len(train)} rows; missing values in {train.isna().any().sum()} columns")

# %%
# Numbers come with bounds from the code book, and their means and scales are learned privately
# within them. Categories come from the code book too, so the encoder learns nothing; a value that
# is missing, or that the code book does not know, becomes zeros. A row then has at most √5 of
# numbers and √8 of ones, which `NormClipper` declares to the classifier.

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

private = split_budget(pipeline, epsilon=1.0, delta=1e-5).fit(train, y_train)
print(privacy_of(private))

# %%
# The same with the scaler that everybody uses. Its report would look just as good to whoever asks
# only the classifier; `privacy_of` names what is wrong.

leaking = clone(pipeline).set_params(columntransformer__numbers=StandardScaler())
leaking.fit(train, y_train)
print(leaking[-1].privacy_.epsilon, "says the classifier alone, but")
print(privacy_of(leaking))

# %%
# What the honest one costs: the noise in five means and scales, and a tenth of the classifier's μ².

EPSILONS, REPETITIONS = (0.1, 0.3, 1.0, 3.0, 10.0), 3
scores = {name: [] for name in ("private", "leaking")}
for epsilon in tqdm(EPSILONS, desc="budgets"):
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
figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
labels = {"private": "everything private", "leaking": "StandardScaler leaks"}
for axis, title, column in zip(axes, ("accuracy", "log-loss"), (0, 1), strict=True):
    for name, style in zip(scores, ("o-", "s--"), strict=True):
        axis.plot(EPSILONS, np.array(scores[name])[:, column], style, label=labels[name])
    axis.set(xscale="log", xlabel="ε of what is claimed (δ = 1e-5)", title=f"Adult: test {title}")
axes[0].legend(frameon=False)
figure.savefig(folder / "private_pipeline.png", dpi=120)
