"""
Calibrated digits: DP-SGLD on MNIST
===================================

A network that says "90 % sure" should be right nine times in ten. Clipping and noise, the price of
differential privacy, spoil that: DP-SGD is too sure of itself. DP-SGLD (Knolle et al. 2021) keeps
the iterates of its noisy walk as posterior samples, and averages what they predict. Here are both,
with temperature scaling as a rival, under one budget: ε = 0.5 at δ = 1e-5.

It takes some minutes on two cores.
"""

# %%
# The network has five layers. The first is a fixed bank of Gabor filters, edges of eight directions
# and two sizes: nobody's data is needed to know that strokes have directions, and what is not
# learned costs no privacy. What fixed weights make of an image depends on that image alone, so it
# can be worked out once and for all. Two convolutions and two dense layers are learned.

from torch import nn

EPSILON, DELTA = 0.5, 1e-5
PUBLIC = {"classes": range(10), "n_samples": 60_000}  # declared facts


def network(n_features, n_outputs):
    """Return the four learned layers."""
    module = nn.Sequential(
        nn.Unflatten(1, (17, 7, 7)),
        nn.Conv2d(17, 16, 3),
        nn.Tanh(),
        nn.Conv2d(16, 32, 3),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(288, 32),
        nn.Tanh(),
        nn.Linear(32, n_outputs),
    )
    nn.init.zeros_(module[-1].weight)  # all classes are equally likely, until data say otherwise
    return module


# %%
# From ``mnist/`` in the folder that ``SKDP_DATA`` names, if you have it there, else from OpenML.

import os
from pathlib import Path

import numpy as np
from sklearn.datasets import fetch_openml

from skdp.preprocessing import GaborTransformer

file = Path(os.environ.get("SKDP_DATA", ""), "mnist", "mnist.npz")
if file.is_file():
    X, y, X_test, y_test = map(np.load(file).get, ("x_train", "y_train", "x_test", "y_test"))
else:
    try:
        X, y = fetch_openml("mnist_784", version=1, return_X_y=True, as_frame=False)
    except OSError as error:
        raise RuntimeError(
            "MNIST is missing: OpenML cannot be reached, and SKDP_DATA names no folder with "
            "mnist/mnist.npz (x_train, y_train, x_test, y_test)."
        ) from error
    X, X_test, y, y_test = X[:60_000], X[60_000:], y[:60_000], y[60_000:]
X, X_test = (np.float32(images.reshape(-1, 784)) / 255 for images in (X, X_test))
y, y_test = y.astype(int), y_test.astype(int)
edges = GaborTransformer((28, 28), n_groups=17).fit(X)
X, X_test = edges.transform(X), edges.transform(X_test)

# %%
# The methods. A tenth of ε for a temperature leaves the classifier nearly all: noises compose in
# quadrature, and ε = .495 and ε = .05 together cost less than .5.

import math
import time
import warnings

import pandas as pd
import torch
from scipy.special import softmax
from sklearn.metrics import log_loss

from skdp import DPSGDClassifier, DPSGLDClassifier, PrivacyWarning
from skdp.calibration import DPTemperatureScaler
from skdp.metrics import expected_calibration_error

# Step sizes were chosen on 10 000 of the training images, held out; a study that had to choose them
# on private ones would have to pay for that too.

COMMON = {"module": network, **PUBLIC}
DESCENT = {"optimizer": "sgd", "learning_rate": 0.4, **COMMON}
METHODS = {
    "SGD, no privacy": DPSGDClassifier(math.inf, max_iter=3000, **COMMON),
    "DP-SGD": DPSGDClassifier(EPSILON, DELTA, **DESCENT),
    "DP-SGD + temperature": DPTemperatureScaler(
        DPSGDClassifier(0.495, DELTA, **DESCENT), epsilon=0.05, delta=DELTA, n_samples=60_000
    ),
    "DP-SGLD": DPSGLDClassifier(EPSILON, DELTA, learning_rate=6.0, burn_in=60, **COMMON),
}

fitted, predicted, minutes = {}, {}, {}
for name, model in METHODS.items():
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("error", PrivacyWarning)  # nothing here may need one
        fitted[name] = model.fit(X, y)
    predicted[name] = model.predict_proba(X_test)
    minutes[name] = (time.perf_counter() - start) / 60
with torch.no_grad():
    last = fitted["DP-SGLD"].module_(torch.from_numpy(X_test)).numpy()
predicted["DP-SGLD, last iterate"] = softmax(last, axis=1)

figures = {
    name: {
        "accuracy": np.mean(p.argmax(axis=1) == y_test),
        "calibration error": expected_calibration_error(y_test, p),
        "log-loss": log_loss(y_test, p),
        "minutes": minutes.get(name),
    }
    for name, p in predicted.items()
}
print(pd.DataFrame(figures).T.round(3).to_string())
for name, model in fitted.items():
    print(f"\n{name}\n{model.privacy_}")
print(f"\ntemperature of DP-SGLD {fitted['DP-SGLD'].temperature_:.3f}")
print(f"temperature of the scaler {fitted['DP-SGD + temperature'].temperature_:.3f}")

# %%
# Reliability, as in figure 1 of the paper: on the diagonal a classifier keeps its word. Below, how
# many test images it is how sure of; the band holds 90 % of the posterior samples.

import matplotlib.pyplot as plt

from skdp.displays import ReliabilityDisplay

for name in ("DP-SGD", "DP-SGD + temperature", "DP-SGLD"):
    samples = None
    if name == "DP-SGLD":
        samples = fitted[name].path_predictive(X_test)
    display = ReliabilityDisplay.from_predictions(
        y_test, predicted[name], y_prob_samples=samples, n_bins=10, labels=range(10)
    )
    display.ax_.set_title(f"MNIST test set, {name}, ε = {EPSILON:g}")
    display.axes_[1].set_yscale("log")

# %%
# The chain: what the kept iterates say of five test images of whose class the average is least
# sure. They do not agree, and that is the point.

from skdp.displays import TraceDisplay

hardest = predicted["DP-SGLD"].max(axis=1).argsort()[:5]
TraceDisplay.from_estimator(
    fitted["DP-SGLD"], X=X_test[hardest], class_label=int(y_test[hardest[0]])
)
plt.show()
