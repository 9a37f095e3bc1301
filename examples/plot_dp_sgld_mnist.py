"""
Calibrated digits: DP-SGLD on MNIST
===================================

A network that says "90 % sure" should be right nine times in ten. Clipping and noise, the price of
differential privacy, spoil that: DP-SGD is too sure of itself. DP-SGLD (Knolle et al. 2021) keeps
the iterates of its noisy walk as posterior samples, and averages what they predict. Here are both,
with temperature scaling as a rival, under one budget: ε = 0.5 at δ = 1e-5.

    python examples/plot_dp_sgld_mnist.py [repetitions] [folder]

prints the table and writes two pictures to the folder (default ``mnist_output``). MNIST comes from
the folder that ``SKDP_DATA`` names, else from OpenML. One repetition takes minutes on two cores.
"""

import math
import sys
import time
import warnings
from pathlib import Path

import _images
import matplotlib as mpl
import torch
from scipy.special import softmax
from torch import nn

from skdp import DPSGDClassifier, DPSGLDClassifier, PrivacyWarning
from skdp.calibration import DPTemperatureScaler
from skdp.displays import ReliabilityDisplay, TraceDisplay
from skdp.preprocessing import GaborTransformer

mpl.use("Agg")
import matplotlib.pyplot as plt

EPSILON, DELTA = 0.5, 1e-5
PUBLIC = {"classes": range(10), "n_samples": 60_000}  # facts that everyone may know

repetitions = int(sys.argv[1]) if len(sys.argv) > 1 else 1
folder = Path(sys.argv[2] if len(sys.argv) > 2 else "mnist_output")
folder.mkdir(parents=True, exist_ok=True)

# %%
# The network has five layers. The first is a fixed bank of Gabor filters, edges of eight directions
# and two sizes: nobody's data is needed to know that strokes have directions, and what is not
# learned costs no privacy. What fixed weights make of an image depends on that image alone, so it
# can be worked out once and for all. Two convolutions and two dense layers are learned.


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


X, y, X_test, y_test = _images.mnist()
edges = GaborTransformer((28, 28), n_groups=17).fit(X)
X, X_test = edges.transform(X), edges.transform(X_test)

# %%
# The methods. A tenth of ε for a temperature leaves the classifier nearly all: noises compose in
# quadrature, and ε = .495 and ε = .05 together cost less than .5.

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

rows, fitted, predicted = {}, {}, {}
for _ in range(repetitions):
    for name, model in METHODS.items():
        start = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("error", PrivacyWarning)  # nothing here may need one
            fitted[name] = model.fit(X, y)
        minutes = {"minutes": (time.perf_counter() - start) / 60}
        predicted[name] = model.predict_proba(X_test)
        found = {name: predicted[name]}
        if name == "DP-SGLD":
            with torch.no_grad():
                last = softmax(model.module_(torch.from_numpy(X_test)).numpy(), axis=1)
            found = {"DP-SGLD, last iterate": last, "DP-SGLD, averaged": predicted[name]}
        for method, probabilities in found.items():
            figures = _images.figures(y_test, probabilities) | minutes
            rows.setdefault(method, []).append(figures)
_images.print_table(rows)
for name, model in fitted.items():
    print(f"\n{name}\n{model.privacy_}")
print(f"\ntemperature of DP-SGLD {fitted['DP-SGLD'].temperature_:.3f}")
print(f"temperature of the scaler {fitted['DP-SGD + temperature'].temperature_:.3f}")

# %%
# Reliability, as in figure 1 of the paper: on the diagonal a classifier keeps its word. Below, how
# many test images it is how sure of; the band holds 90 % of the posterior samples.

fig, axes = plt.subplots(1, 3, figsize=(13, 5), layout="constrained")
for ax, name in zip(axes, ["DP-SGD", "DP-SGD + temperature", "DP-SGLD"], strict=True):
    samples = None
    if name == "DP-SGLD":
        samples = fitted[name].path_predictive(X_test)
    display = ReliabilityDisplay.from_predictions(
        y_test, predicted[name], y_prob_samples=samples, n_bins=10, labels=range(10), ax=ax
    )
    display.ax_.set_title(name)
    display.axes_[1].set_yscale("log")
fig.suptitle(f"MNIST test set, ε = {EPSILON}, δ = {DELTA:g}")
fig.savefig(folder / "reliability.png", dpi=120)

# %%
# The chain: what the kept iterates say of five test images of whose class the average is least
# sure. They do not agree, and that is the point.

hardest = predicted["DP-SGLD"].max(axis=1).argsort()[:5]
display = TraceDisplay.from_estimator(
    fitted["DP-SGLD"], X=X_test[hardest], class_label=int(y_test[hardest[0]])
)
display.figure_.savefig(folder / "trace.png", dpi=120)
print(f"\npictures in {folder.resolve()}")
