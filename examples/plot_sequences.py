"""
Sequences of their own length
=============================

Each patient's tremor is a sequence of measurements; the label is an outcome that is the likelier,
the faster the tremor. Where in a wave a sequence starts is random, so no single moment means
anything: a linear model learns nothing, and an `nn.LSTM` has to count waves. It learns privately,
and a private temperature mends its probabilities.

It takes about half a minute on one core.
"""

EPSILON, DELTA, N_TRAIN, LONGEST = 3.0, 1e-5, 4000, 40

# %%
# Synthetic patients, whose true probabilities are known. A sequence has 20 to 40 measurements. How
# many is as private as the measurements, but all records of a fit have one shape: so sequences are
# padded to a public largest length, and a second column is 1 while the patient was measured.

import numpy as np


def patients(n, rng):
    """Sequences (n, LONGEST, 2), labels, true probabilities of label 1."""
    speed, start = rng.uniform(2, 8, n), rng.uniform(0, 2 * np.pi, n)
    waves = np.sin(start[:, None] + speed[:, None] * np.pi * np.arange(LONGEST) / 20)
    measured = np.arange(LONGEST) < rng.integers(20, LONGEST + 1, n)[:, None]
    values = (waves + 0.3 * rng.standard_normal(waves.shape)) * measured
    p = 1 / (1 + np.exp(-1.5 * (speed - 5)))
    return np.stack([values, measured], axis=2).astype("f4"), (rng.random(n) < p).astype(int), p


rng = np.random.default_rng(0)
X, y, _ = patients(N_TRAIN, rng)
X_test, y_test, p_test = patients(10_000, rng)

# %%
# The network: the mean state of an LSTM over the time that was measured, and a linear layer.

from torch import nn

from skdp import DPSGDClassifier


class Tremor(nn.Module):
    """Sequences (n, time, 2) to logits (n, n_outputs)."""

    def __init__(self, n_outputs, hidden=16):
        super().__init__()
        self.lstm = nn.LSTM(2, hidden, batch_first=True)
        self.head = nn.Linear(hidden, n_outputs)
        nn.init.zeros_(self.head.weight)  # both classes equally likely, until data say otherwise

    def forward(self, x):
        """Return logits (n, n_outputs)."""
        states, _ = self.lstm(x)
        measured = x[:, :, 1:]
        return self.head((states * measured).sum(dim=1) / measured.sum(dim=1).clamp(min=1))


PUBLIC = {"classes": [0, 1], "n_samples": N_TRAIN}
network = DPSGDClassifier(module=Tremor, **PUBLIC)
print(network.try_module((LONGEST, 2)))

# %%
# The network ranks well and is too sure of itself: it counts waves, and takes the count for the
# answer. `DPTemperatureScaler` learns one number that mends that. `split_budget` divides ε between
# the two, whose noises compose in quadrature: the network keeps nearly all of it.

from sklearn.metrics import log_loss

from skdp.calibration import DPTemperatureScaler
from skdp.metrics import expected_calibration_error
from skdp.model_selection import split_budget

scaled = split_budget(DPTemperatureScaler(network, n_samples=N_TRAIN), EPSILON, DELTA).fit(X, y)
linear = DPSGDClassifier(EPSILON, DELTA, hidden_layer_sizes=(), **PUBLIC).fit(
    X.reshape(N_TRAIN, -1), y
)
predicted = {
    "linear model": linear.predict_proba(X_test.reshape(len(X_test), -1))[:, 1],
    "LSTM": scaled.estimator_.predict_proba(X_test)[:, 1],
    "LSTM + temperature": scaled.predict_proba(X_test)[:, 1],
    "true probabilities": p_test,
}
print(f"\n{'':<22}{'accuracy':>10}{'log-loss':>10}{'ECE':>8}")
for name, p in predicted.items():
    accuracy, ece = np.mean((p > 0.5) == y_test), expected_calibration_error(y_test, p)
    print(f"{name:<22}{accuracy:>10.3f}{log_loss(y_test, p):>10.3f}{ece:>8.3f}")
print(f"\ntemperature {scaled.temperature_:.2f}")
print(scaled.privacy_)

# %%
# What the network sees of a slow and of a fast tremor, and how far its probabilities can be trusted
# on fresh patients.

import matplotlib.pyplot as plt

from skdp.displays import ReliabilityDisplay

_, left = plt.subplots(layout="constrained")
for i, name in ((np.argmin(p_test), "slow"), (np.argmax(p_test), "fast")):
    values, measured = X_test[i].T
    left.plot(values[measured > 0], ".-", label=f"{name}: true probability {p_test[i]:.2f}")
left.set(xlabel="measurement", ylabel="value", title="Two patients", ylim=(-2, 3.2))
left.legend(loc="upper right")
right = None
for name in ("LSTM", "LSTM + temperature"):
    p = predicted[name]
    shown = ReliabilityDisplay.from_predictions(y_test, p, n_bins=10, name=name, ax=right)
    right = shown.ax_
title = f"Private LSTM, ε = {EPSILON:g}, δ = {DELTA:g}, {N_TRAIN} patients"
right.set(xlim=(0.5, 1), ylim=(0.4, 1), title=title)
plt.show()
