"""DP-SGLD on MNIST at ε = 0.5, after Knolle et al. (2021): accuracy, calibration error, a picture.

    python docs/dp_sgld_mnist.py

MNIST is ``mnist/mnist.npz`` (``x_train, y_train, x_test, y_test``) under ``SKDP_DATA``.
docs/from_the_articles.md shows this file.
"""

import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.calibration import CalibrationDisplay
from torch import nn

from skdp import DPSGLDClassifier
from skdp.metrics import expected_calibration_error


def edges():
    """16 Gabor filters of 7 × 7: eight directions, even and odd; sums are 0, norms 1."""
    y, x = np.mgrid[-3:4, -3:4]
    angles = np.pi * np.arange(8)[:, None, None] / 8
    phase = np.pi / 3 * (x * np.cos(angles) + y * np.sin(angles))
    window = np.exp(-(x**2 + y**2) / 8)
    waves = window * np.concatenate([np.cos(phase), np.sin(phase)])
    waves -= window * waves.sum(axis=(1, 2), keepdims=True) / window.sum()
    waves /= np.linalg.norm(waves, axis=(1, 2), keepdims=True)
    return torch.tensor(waves[:, None], dtype=torch.float32)


def network(n_features, n_outputs):
    """Two convolutions and a dense layer, all learned: 10 266 weights."""
    first = nn.Conv2d(1, 16, 7, stride=2, padding=3, bias=False)
    second = nn.Conv2d(16, 32, 4, bias=False)
    first.weight.data = edges()
    nn.init.orthogonal_(second.weight)
    return nn.Sequential(
        nn.Unflatten(1, (1, 28, 28)),
        first,
        nn.Tanh(),
        nn.MaxPool2d(2),
        second,
        nn.Tanh(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(128, n_outputs),
    )


images = np.load(os.environ["SKDP_DATA"] + "/mnist/mnist.npz")
X, X_test = (np.float32(images[f"x_{part}"].reshape(-1, 784)) / 255 for part in ("train", "test"))
y, y_test = (images[f"y_{part}"].astype(int) for part in ("train", "test"))

public = {"module": network, "classes": range(10), "n_samples": 60_000}
chain = DPSGLDClassifier(
    0.5, 1e-5, clip_norm=2.0, learning_rate=3.0, batch_size=1024, **public
).fit(X, y)
p = chain.predict_proba(X_test)
right = p.argmax(axis=1) == y_test
print(f"accuracy {right.mean():.4f}, ECE {expected_calibration_error(y_test, p):.4f}")
CalibrationDisplay.from_predictions(right, p.max(axis=1), n_bins=10, name="DP-SGLD, ε = 0.5")
pictures = Path(__file__).parent / "_static" / "articles"
plt.savefig(pictures / "mnist_calibration.svg")
