"""
What privacy costs: utility against ε
=====================================

How small can ε be before a model is useless? It depends on the number of rows more than on anything
else. This example draws the curve, for a study of one size with several models and for one model
with studies of several sizes. It also counts what the curve itself would cost on private rows.

It takes about forty seconds.
"""

DELTA, CLASSES = 1e-5, [0, 1]

# %%
# Rows that belong to nobody: drawn from a law that resembles what the private rows will be. A curve
# on them is free, and may be looked at as often as one likes. The law is known here, so the best
# log-loss that anyone can reach is known too.

import numpy as np
from sklearn.metrics import log_loss

COEFFICIENTS = np.array([2.0, -1.5, 1.0, 0.5, 0.0, 0.0])


def study(n_rows, rng):
    """Features in [-1, 1], labels, and their true probabilities."""
    X = rng.uniform(-1, 1, (n_rows, len(COEFFICIENTS)))
    p = 1 / (1 + np.exp(-X @ COEFFICIENTS))
    return X, (rng.random(n_rows) < p).astype(int), p


rng = np.random.default_rng(0)
X_test, y_test, p_test = study(5000, rng)
BEST = log_loss(y_test, p_test)
NAIVE = log_loss(y_test, np.full(len(y_test), 0.5))
print(f"log-loss of the true probabilities {BEST:.3f}, of one half for everyone {NAIVE:.3f}")

# %%
# Each repetition is another study, with rows and noise of its own: the bands are of both. The
# network shows why log-loss is the score here. Noise makes its weights large and its probabilities
# too bold, so that more ε does not always help; ``plot_calibration.py`` mends that. A fit whose
# coefficients are lost in the noise warns; at small ε that is expected here.

import warnings

from sklearn.base import clone

from skdp import (
    DPSGDClassifier,
    DPVariationalLogisticRegression,
    FitWarning,
    OPSPosteriorSampler,
)

warnings.simplefilter("ignore", FitWarning)
EPSILONS = [0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0]
REPETITIONS = 6


def curve(model, n_rows, seed):
    """Log-loss on fresh rows, (n_epsilons, n_repetitions)."""
    scores = np.empty((len(EPSILONS), REPETITIONS))
    rng = np.random.default_rng(seed)
    for j in range(REPETITIONS):
        X, y, _ = study(n_rows, rng)
        for i, epsilon in enumerate(EPSILONS):
            fitted = clone(model).set_params(epsilon=epsilon, n_samples=n_rows).fit(X, y)
            scores[i, j] = log_loss(y_test, fitted.predict_proba(X_test))
    return scores


logistic = DPVariationalLogisticRegression(delta=DELTA, classes=CLASSES)
MODELS = {
    "variational logistic": logistic,
    "one posterior sample": OPSPosteriorSampler(delta=DELTA, classes=CLASSES),
    "network (DP-SGD)": DPSGDClassifier(delta=DELTA, hidden_layer_sizes=(8,), classes=CLASSES),
}
SIZES = [300, 1000, 3000, 10_000]

by_model, by_size = {}, {}
for name, model in MODELS.items():
    by_model[name] = curve(model, 1000, seed=1)
for n_rows in SIZES:
    by_size[n_rows] = curve(logistic, n_rows, seed=1)


def tell(name, scores):
    """Print mean ± standard deviation at a few ε."""
    cells = [
        f"ε={epsilon:g}: {row.mean():.3f} ± {row.std(ddof=1):.3f}"
        for epsilon, row in zip(EPSILONS, scores, strict=True)
        if epsilon in (0.1, 1.0, 10.0)
    ]
    print(f"{name:<30}", "   ".join(cells))


for name, scores in by_model.items():
    tell(f"{name}, 1000 rows", scores)
for n_rows, scores in by_size.items():
    tell(f"variational logistic, {n_rows} rows", scores)

# %%
# Had these been one private study, each point of the curve would have been a release about the
# same people. A ledger adds the fits of *one* repetition up: the total is more than the largest ε
# of the curve, whichever ε is then chosen. It does not cover the scores, which are exact functions
# of their rows: were the test rows private too, each score would be a leak that is in no sum.

from skdp.privacy import PrivacyLedger

X, y, _ = study(1000, rng)
with PrivacyLedger() as ledger:
    for epsilon in EPSILONS:
        clone(logistic).set_params(epsilon=epsilon, n_samples=1000).fit(X, y)
print(f"the {len(ledger.entries)} fits of one curve cost ε={ledger.total(DELTA):.2f} together")

# %%
# So: draw the curve without private rows, choose, and fit the private ones once.

chosen = clone(logistic).set_params(epsilon=1.0, n_samples=1000).fit(X, y)
print(chosen.privacy_)

# %%
import matplotlib.pyplot as plt

from skdp.displays import PrivacyUtilityDisplay

(_, left), (_, right) = [plt.subplots(layout="constrained") for _ in range(2)]
for name, scores in by_model.items():
    PrivacyUtilityDisplay.from_arrays(
        EPSILONS, scores, name=name, metric="Log-loss on fresh rows", ax=left
    )
left.set_title("1000 rows, three models")
for n_rows, scores in by_size.items():
    PrivacyUtilityDisplay.from_arrays(
        EPSILONS, scores, name=f"{n_rows} rows", metric="Log-loss on fresh rows", ax=right
    )
right.set_title("Variational logistic, four sizes")
for ax in (left, right):
    ax.axhline(BEST, color="0.3", linestyle=":", label="the true probabilities")
    ax.axhline(NAIVE, color="0.6", linestyle="--", label="one half for everyone")
    ax.set(ylim=(BEST - 0.02, NAIVE + 0.2), xlabel=f"ε at δ = {DELTA:g}")
    ax.legend(fontsize="small", framealpha=0.75, edgecolor="none", loc="upper right")
plt.show()
