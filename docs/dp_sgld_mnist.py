"""DP-SGLD on MNIST at ε = 0.5, after Knolle et al. (2021): accuracy, calibration error, a picture.

    python docs/dp_sgld_mnist.py

MNIST is ``mnist/mnist.npz`` (``x_train, y_train, x_test, y_test``) under ``SKDP_DATA``.
docs/from_the_articles.md shows this file.
"""

import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.calibration import CalibrationDisplay
from torch import nn

from skdp import DPSGLDClassifier
from skdp.metrics import expected_calibration_error


def network(n_features, n_outputs):
    """Two convolutions and two dense layers: 26 010 weights."""
    return nn.Sequential(
        nn.Unflatten(1, (1, 28, 28)),
        nn.Conv2d(1, 16, 8, stride=2, padding=3),
        nn.Tanh(),
        nn.MaxPool2d(2, 1),
        nn.Conv2d(16, 32, 4, stride=2),
        nn.Tanh(),
        nn.MaxPool2d(2, 1),
        nn.Flatten(),
        nn.Linear(512, 32),
        nn.Tanh(),
        nn.Linear(32, n_outputs),
    )


images = np.load(os.environ["SKDP_DATA"] + "/mnist/mnist.npz")
X, X_test = (np.float32(images[f"x_{part}"].reshape(-1, 784)) / 255 for part in ("train", "test"))
y, y_test = (images[f"y_{part}"].astype(int) for part in ("train", "test"))

chain = DPSGLDClassifier(
    0.5, 1e-5, module=network, learning_rate=6.0, burn_in=60, classes=range(10), n_samples=60_000
).fit(X, y)
p = chain.predict_proba(X_test)
right = p.argmax(axis=1) == y_test
print(f"accuracy {right.mean():.4f}, ECE {expected_calibration_error(y_test, p):.4f}")
CalibrationDisplay.from_predictions(right, p.max(axis=1), n_bins=10, name="DP-SGLD, ε = 0.5")
pictures = Path(__file__).parent / "_static" / "articles"
plt.savefig(pictures / "mnist_calibration.svg")
