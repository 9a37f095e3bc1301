"""Image sets of the benchmarks of networks: rows of pixels in [0, 1] in single precision.

MNIST comes from ``mnist/mnist.npz`` (x_train, y_train, x_test, y_test; bytes) in the folder named
by the environment variable ``SKDP_DATA``, PneumoniaMNIST from ``pneumoniamnist/pneumoniamnist.npz``
there. The scaling by the largest possible value reads no data.
"""

import os
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

SETS = ("digits", "mnist")
PARTS = ("train", "val", "test")


def load(name, seed=0):
    """Return X_train, X_test, y_train, y_test.

    Digits is split 70/30, stratified, under a seed; MNIST has its official split, and so has
    PneumoniaMNIST, whose validation part is with its training part.
    """
    if name == "digits":
        X, y = load_digits(return_X_y=True)
        X = (X / 16).astype(np.float32)
        return train_test_split(X, y, test_size=0.3, random_state=seed, stratify=y)
    if name == "pneumonia":
        with np.load(_file("pneumoniamnist")) as file:
            X, y, v, w, Z, z = (file[f"{p}_{k}"] for p in PARTS for k in ("images", "labels"))
        X, y = np.concatenate([X, v]), np.concatenate([y, w])
        X, Z = (np.float32(images.reshape(len(images), -1)) / 255 for images in (X, Z))
        return X, Z, y.ravel().astype(int), z.ravel().astype(int)
    with np.load(mnist_file()) as file:
        X, Z = (np.float32(file[key].reshape(-1, 784)) / 255 for key in ("x_train", "x_test"))
        return X, Z, file["y_train"].astype(int), file["y_test"].astype(int)


def available(names):
    """Return the sets that are there, and say what the others need."""
    needed = {"mnist": "mnist", "pneumonia": "pneumoniamnist"}
    missing = [name for name in names if name in needed and _file(needed[name]) is None]
    for name in missing:
        path = f"{needed[name]}/{needed[name]}.npz"
        print(f"{name} is left out: set SKDP_DATA to a folder that holds {path}.\n")
    return [name for name in names if name not in missing]


def mnist_file():
    """Return the path of MNIST, or None."""
    return _file("mnist")


def _file(name):
    file = Path(os.environ.get("SKDP_DATA", "")) / name / f"{name}.npz"
    return file if "SKDP_DATA" in os.environ and file.is_file() else None
