"""
Quickstart: a private Bayesian classifier, from pipeline to pictures
====================================================================

Breast cancer or not, from 30 measurements of a cell nucleus, without the model giving away who was
in the study.

It takes well under a minute.
"""

# %%
# Public knowledge. The scaler must not look at the data, so the bounds come from elsewhere: what
# such measurements can be, rounded generously. They are a choice, not a fit.

import numpy as np

MEASUREMENTS = {  # (lower, upper) of the mean, of the standard error, of the largest value
    "radius": [(5, 30), (0, 2), (5, 35)],
    "texture": [(5, 40), (0, 4), (5, 50)],
    "perimeter": [(40, 200), (0, 15), (40, 250)],
    "area": [(100, 2000), (0, 200), (100, 3000)],
    "smoothness": [(0.05, 0.15), (0, 0.02), (0.05, 0.25)],
    "compactness": [(0, 0.3), (0, 0.1), (0, 1)],
    "concavity": [(0, 0.4), (0, 0.15), (0, 1.2)],
    "concave points": [(0, 0.2), (0, 0.04), (0, 0.3)],
    "symmetry": [(0.1, 0.3), (0, 0.05), (0.1, 0.6)],
    "fractal dimension": [(0.05, 0.1), (0, 0.01), (0.05, 0.2)],
}
bounds = np.array([limits[kind] for kind in range(3) for limits in MEASUREMENTS.values()])
lower, upper = bounds.T

# %%
# The data and the pipeline. The classes and the size of the study are declared: reading them from
# the data would make ε conditional on their being public. Rows are clipped to norm 3: the bounds
# are generous, so a typical row should fill about half of the box, whose corners have norm √30.

from sklearn.datasets import load_breast_cancer
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline

from skdp import BoundedScaler, DPVariationalLogisticRegression

X, y = load_breast_cancer(return_X_y=True, as_frame=True)
y = 1 - y  # 1: malignant
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.3, random_state=0, stratify=y)

pipeline = make_pipeline(
    BoundedScaler(lower, upper),
    DPVariationalLogisticRegression(
        epsilon=1.0, delta=1e-5, data_norm=3.0, classes=[0, 1], n_samples=398
    ),
)
pipeline.fit(X_train, y_train)
classifier = pipeline[-1]
print(f"accuracy on held-out rows  {pipeline.score(X_test, y_test):.3f}")
print(f"log-loss on held-out rows  {log_loss(y_test, pipeline.predict_proba(X_test)):.3f}")

# %%
# What was promised, and on what it rests.

print()
print(classifier.privacy_)

# %%
# The posterior: 95 % credible intervals of the four coefficients that are furthest from zero.

names = [*X.columns, "intercept"]
draws = classifier.sample_posterior(4000)
low, high = np.quantile(draws, [0.025, 0.975], axis=0)
print()
print("95 % credible intervals (per feature scaled to [-1, 1])")
for j in np.argsort(-np.abs(classifier.coef_.ravel()))[:4]:
    print(f"  {names[j]:<24} {classifier.coef_[0, j]:+.2f}  [{low[j]:+.2f}, {high[j]:+.2f}]")

# %%
# ε is an ordinary hyperparameter. Each of the 13 fits below is a release of its own, and the ledger
# adds them up: searching on private rows is far from free. (Here it is honest only because this
# data set is public.)

import warnings

from sklearn.model_selection import GridSearchCV

from skdp import FitWarning, PrivacyLedger

# Fits warn of what their released values tell, as that of ε = 1 above did: single coefficients are
# lost in the noise, though predictions are not. From here on the same is known.

warnings.simplefilter("ignore", FitWarning)
search = GridSearchCV(
    pipeline, {"dpvariationallogisticregression__epsilon": [0.1, 0.3, 1.0, 3.0]}, cv=3
)
with PrivacyLedger() as ledger:
    search.fit(X_train, y_train)
best = search.best_params_["dpvariationallogisticregression__epsilon"]
print()
print(
    f"GridSearchCV prefers epsilon={best:g}; its {len(ledger.entries)} fits cost "
    f"epsilon={ledger.total(delta=1e-5):.1f} together"
)

# %%
# Accuracy and log-loss against ε, with their spread over ten splits. ε=inf is the same model
# without noise.

import matplotlib.pyplot as plt
from sklearn.base import clone

EPSILONS = [0.1, 0.3, 1.0, 3.0, 10.0, float("inf")]
SEEDS = range(10)
scores = np.empty((2, len(EPSILONS), len(SEEDS)))
for j, seed in enumerate(SEEDS):
    A, B, a, b = train_test_split(X, y, test_size=0.3, random_state=seed, stratify=y)
    for i, epsilon in enumerate(EPSILONS):
        model = clone(pipeline).set_params(dpvariationallogisticregression__epsilon=epsilon)
        model.fit(A, a)
        scores[:, i, j] = model.score(B, b), log_loss(b, model.predict_proba(B))

labels = ["∞" if np.isinf(e) else f"{e:g}" for e in EPSILONS]
entropy = -(y.mean() * np.log(y.mean()) + (1 - y.mean()) * np.log(1 - y.mean()))
trivial = {
    "accuracy": (max(y.mean(), 1 - y.mean()), "always the larger class"),
    "log-loss": (entropy, "class frequencies alone"),
}
for (metric, (level, name)), values in zip(trivial.items(), scores, strict=True):
    _, axis = plt.subplots(layout="constrained")
    mean, spread = values.mean(axis=1), values.std(axis=1)
    axis.errorbar(labels, mean, spread, fmt="o-", capsize=4, label="mean ± 1 sd of 10 splits")
    axis.set(xlabel="ε  (δ = 1e-5; ∞ is not private)", ylabel=f"{metric} on held-out rows")
    axis.axhline(level, ls=":", c="gray", label=name)
    axis.set_title("Breast cancer: what privacy costs")
    axis.grid(alpha=0.3)
    axis.legend()

# %%
# Are the probabilities to be believed? scikit-learn's own display takes the pipeline as it is.

from sklearn.calibration import CalibrationDisplay

_, axis = plt.subplots(layout="constrained")
for epsilon, name in [(1.0, "ε = 1"), (float("inf"), "ε = ∞ (not private)")]:
    model = clone(pipeline).set_params(dpvariationallogisticregression__epsilon=epsilon)
    model.fit(X_train, y_train)
    CalibrationDisplay.from_estimator(model, X_test, y_test, n_bins=5, ax=axis, name=name)
axis.set_title("Calibration on held-out rows")
plt.show()
