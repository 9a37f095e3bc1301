"""
Probabilities that can be believed, after clipping and noise
============================================================

Of the people to whom a classifier gives "80 %", eight in ten should have the condition. DP-SGD does
not manage that: the noise in its steps makes it too sure of itself. One more private number, a
temperature, mends most of it for a small share of the budget. A posterior that averages over what
it does not know needs no mending.

It takes about half a minute.
"""

EPSILON, DELTA, N_TRAIN, REPETITIONS = 1.0, 1e-5, 4000, 6
PUBLIC = {"classes": [0, 1], "n_samples": N_TRAIN}

# %%
# Made-up rows of ten features, two of which matter by their product. Their true probabilities are
# known, and so is how calibrated the best possible classifier looks: its error is not 0, because a
# bin of finitely many rows is never exactly right.

import numpy as np


def table(n_rows, rng):
    """Features in [-1, 1], labels, true probabilities of label 1."""
    X = rng.uniform(-1, 1, (n_rows, 10))
    p = 1 / (1 + np.exp(-(2 * X[:, 0] + 3 * X[:, 1] * X[:, 2] - 1.5 * X[:, 3])))
    return X, (rng.random(n_rows) < p).astype(int), p


rng = np.random.default_rng(0)
X_test, y_test, p_test = table(20_000, rng)

# %%
# All three have the same budget. `split_budget` gives the temperature its share: the two noises
# compose in quadrature, so that the classifier keeps nearly all of ε.

from sklearn.metrics import log_loss

from skdp import DPSGDClassifier, DPVariationalLogisticRegression
from skdp.calibration import DPTemperatureScaler
from skdp.metrics import expected_calibration_error
from skdp.model_selection import split_budget

network = DPSGDClassifier(EPSILON, DELTA, **PUBLIC)
scaled = split_budget(DPTemperatureScaler(network, n_samples=N_TRAIN), EPSILON, DELTA)
print(f"classifier ε={scaled.estimator.epsilon:.2f}, temperature ε={scaled.epsilon:.2f}")
METHODS = {
    "DP-SGD": network,
    "DP-SGD + temperature": scaled,
    "variational logistic": DPVariationalLogisticRegression(EPSILON, DELTA, **PUBLIC),
}


def figures(p):
    """Accuracy, log-loss and expected calibration error on the test rows."""
    return (
        np.mean((p > 0.5) == y_test),
        log_loss(y_test, p),
        expected_calibration_error(y_test, p),
    )


results, fitted = {name: [] for name in METHODS}, {}
for _ in range(REPETITIONS):
    X, y, _ = table(N_TRAIN, rng)
    for name, model in METHODS.items():
        fitted[name] = model.fit(X, y)
        results[name].append(figures(model.predict_proba(X_test)[:, 1]))

print(f"{f'mean ± sd of {REPETITIONS} studies':<26}{'accuracy':>16}{'log-loss':>16}{'ECE':>16}")
for name, rows in results.items():
    mean, deviation = np.mean(rows, axis=0), np.std(rows, axis=0, ddof=1)
    cells = [f"{m:.3f} ± {d:.3f}" for m, d in zip(mean, deviation, strict=True)]
    print(f"{name:<26}" + "".join(f"{cell:>16}" for cell in cells))
print(f"{'the true probabilities':<26}" + "".join(f"{v:>16.3f}" for v in figures(p_test)))

# %%
# Calibrated is not good: the logistic model cannot see the product, is right less often, and says
# so. The temperature leaves accuracy as it is, for it changes no predicted class.
#
# The statement of the scaler covers the classifier inside and the temperature.

print(f"temperature {fitted['DP-SGD + temperature'].temperature_:.2f}")
print(fitted["DP-SGD + temperature"].privacy_)

# %%
# Reliability curves need rows. These are fresh ones, simulated like the others. On held-out
# *private* rows the same picture would be a release that is not accounted for.

import matplotlib.pyplot as plt

from skdp.displays import ReliabilityDisplay

for name, model in fitted.items():
    display = ReliabilityDisplay.from_estimator(model, X_test, y_test, n_bins=10, name=name)
    display.ax_.set(
        xlim=(0.5, 1), ylim=(0.5, 1), title=f"Fresh rows, ε = {EPSILON:g}, δ = {DELTA:g}"
    )
plt.show()
