"""
Quickstart: a private Bayesian classifier, from data to pictures
================================================================

Breast cancer or not, from four measurements of cell nuclei, without the model giving away who was
in the study.

It takes well under a minute.
"""

# %%
# Public knowledge. Bounds must not come from the data, so they come from elsewhere: what such
# measurements can be, rounded generously. The measurements are chosen beforehand too: size,
# texture, smoothness and indentation of the largest nuclei. A choice by looking at private rows
# would be a release of its own.

import numpy as np

MEASUREMENTS = {  # (lower, upper)
    "worst radius": (5, 35),
    "worst texture": (5, 50),
    "worst smoothness": (0.05, 0.25),
    "worst concave points": (0, 0.3),
}

# %%
# The data and the classifier. The classes and the size of the study are declared: reading them from
# the data would make ε conditional on their being public. Four features are few enough for 398 rows
# at ε = 1: the noise is shared by all coefficients, so each further feature costs accuracy.

from sklearn.datasets import load_breast_cancer
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

from skdp import DPVariationalLogisticRegression

X, y = load_breast_cancer(return_X_y=True, as_frame=True)
X, y = X[list(MEASUREMENTS)], 1 - y  # 1: malignant
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.3, random_state=0, stratify=y)

classifier = DPVariationalLogisticRegression(
    epsilon=1.0, delta=1e-5, bounds=MEASUREMENTS, classes=[0, 1], n_samples=398
)
classifier.fit(X_train, y_train)
print(f"accuracy on held-out rows  {classifier.score(X_test, y_test):.3f}")
print(f"log-loss on held-out rows  {log_loss(y_test, classifier.predict_proba(X_test)):.3f}")

# %%
# What was promised, and on what it rests.

print()
print(classifier.privacy_)

# %%
# The posterior: 95 % credible intervals of the coefficients, those furthest from zero first.

draws = classifier.sample_posterior(4000)
low, high = np.quantile(draws, [0.025, 0.975], axis=0)
print()
print("95 % credible intervals (per deviation of a feature, as it was released)")
scale = classifier.column_scale_
for j in np.argsort(-np.abs(scale * classifier.coef_.ravel())):
    found = scale[j] * np.array([classifier.coef_[0, j], low[j], high[j]])
    print(f"  {X.columns[j]:<24} {found[0]:+.2f}  [{found[1]:+.2f}, {found[2]:+.2f}]")

# %%
# ε is an ordinary hyperparameter. Each of the 12 fits below, on two thirds of the rows, is a
# release of its own, and the ledger adds them up: searching on private rows is far from free. (Here
# it is honest only because this data set is public.)

from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from skdp import PrivacyLedger

search = GridSearchCV(
    clone(classifier).set_params(n_samples=266),
    {"epsilon": [1.0, 2.0, 4.0, 8.0]},
    cv=3,
    refit=False,
)
with PrivacyLedger() as ledger:
    search.fit(X_train, y_train)
best = search.best_params_["epsilon"]
print()
print(
    f"GridSearchCV prefers epsilon={best:g}; its {len(ledger.entries)} fits cost "
    f"epsilon={ledger.total(delta=1e-5):.1f} together"
)

# %%
# Accuracy and log-loss against ε, with their spread over ten splits. ε=inf is the same model
# without noise. At a much smaller ε the noise would hide the coefficients of so few rows, and a fit
# would warn of it.

import matplotlib.pyplot as plt

EPSILONS = [1.0, 2.0, 4.0, 8.0, float("inf")]
SEEDS = range(10)
scores = np.empty((2, len(EPSILONS), len(SEEDS)))
for j, seed in enumerate(SEEDS):
    A, B, a, b = train_test_split(X, y, test_size=0.3, random_state=seed, stratify=y)
    for i, epsilon in enumerate(EPSILONS):
        model = clone(classifier).set_params(epsilon=epsilon)
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
# Are the probabilities to be believed? scikit-learn's own display takes the classifier as it is.

from sklearn.calibration import CalibrationDisplay

_, axis = plt.subplots(layout="constrained")
for epsilon, name in [(1.0, "ε = 1"), (float("inf"), "ε = ∞ (not private)")]:
    model = clone(classifier).set_params(epsilon=epsilon)
    model.fit(X_train, y_train)
    CalibrationDisplay.from_estimator(model, X_test, y_test, n_bins=5, ax=axis, name=name)
axis.set_title("Calibration on held-out rows")
plt.show()
