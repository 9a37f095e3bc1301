"""Image sets of the benchmarks of networks: rows of pixels in [0, 1] in single precision.

MNIST comes from ``mnist/mnist.npz`` (x_train, y_train, x_test, y_test; bytes) in the folder named
by the environment variable ``SKDP_DATA``. The scaling by the largest possible value reads no data.
"""

import os
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

SETS = ("digits", "mnist")


def load(name, seed=0):
    """Return X_train, X_test, y_train, y_test.

    Digits is split 70/30, stratified, under a seed; MNIST has its official split.
    """
    if name == "digits":
        X, y = load_digits(return_X_y=True)
        X = (X / 16).astype(np.float32)
        return train_test_split(X, y, test_size=0.3, random_state=seed, stratify=y)
    with np.load(mnist_file()) as file:
        X, Z = (np.float32(file[key].reshape(-1, 784)) / 255 for key in ("x_train", "x_test"))
        return X, Z, file["y_train"].astype(int), file["y_test"].astype(int)


def available(names):
    """Return the sets that are there, and say what the others need."""
    if "mnist" not in names or mnist_file() is not None:
        return list(names)
    print("MNIST is left out: set SKDP_DATA to a folder that holds mnist/mnist.npz.\n")
    return [name for name in names if name != "mnist"]


def mnist_file():
    """Return the path of MNIST, or None."""
    file = Path(os.environ.get("SKDP_DATA", "")) / "mnist" / "mnist.npz"
    return file if "SKDP_DATA" in os.environ and file.is_file() else None
