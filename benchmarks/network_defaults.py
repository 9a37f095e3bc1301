"""Where the default rate and number of steps of `DPSGDClassifier` come from.

    SKDP_DATA=... python benchmarks/network_defaults.py [--sets pneumonia mnist digits]
                                                        [--epsilons 1 3] [--repetitions 2]

Prints accuracy on rows that were held back from the official *training* part, its standard error
over splits, and seconds of one fit, of rates and steps that are functions of public facts: n, and
the μ of Gaussian differential privacy that (ε, δ = 1e-5) affords. `skdp.algorithms.dp_sgd` has what
was chosen; test rows are not read.

- all rows: 100 steps. It has the least noise per step, and costs 100 n gradients.
- 2048: 300 steps on batches of about 2048 rows, or of all: the default of 0.2.0 above 4096 rows.
- c μ/√T: 300 steps at this rate, on batches of 512 to 2048 rows.
- default: what the estimator does.

PneumoniaMNIST has a small convolutional network of 23 thousand weights, MNIST (5000 of its rows)
and digits have the default perceptron.
"""

import argparse
import time
import warnings

import _images
import numpy as np
from sklearn.model_selection import train_test_split
from torch import nn

from skdp import DPSGDClassifier
from skdp.privacy import epsilon_to_gdp

DELTA, N_STEPS, LEAST, MOST = 1e-5, 300, 512, 2048
FACTORS = (1.0, 2.0, 4.0)
N_MNIST = 5000


def small_network(n_features, n_outputs):
    """Two convolutions and two linear layers, for images of 28 by 28 pixels."""
    return nn.Sequential(
        nn.Unflatten(1, (1, 28)),
        nn.Conv2d(1, 16, 8, 2, padding=3),
        nn.Tanh(),
        nn.MaxPool2d(2, 1),
        nn.Conv2d(16, 32, 4, 2),
        nn.Tanh(),
        nn.MaxPool2d(2, 1),
        nn.Flatten(),
        nn.Linear(512, 32),
        nn.Tanh(),
        nn.Linear(32, n_outputs),
    )


def split(name, seed):
    """Return X_train, X_held, y_train, y_held of the training part of a set."""
    X, _, y, _ = _images.load(name, seed=seed)
    n = N_MNIST if name == "mnist" else 0.75
    X, Z, y, z = train_test_split(X, y, train_size=n, random_state=seed, stratify=y)
    if name == "pneumonia":
        X, Z = (images.reshape(-1, 28, 28) for images in (X, Z))
    return X, Z[:5000], y, z[:5000]


def candidates(n, epsilon):
    """Return {name: parameters}, functions of public facts."""
    mu = epsilon_to_gdp(epsilon, DELTA)
    found = {
        "all rows": {"sampling_rate": 1.0, "max_iter": 100},
        "2048": {"sampling_rate": min(1.0, MOST / n), "max_iter": N_STEPS},
    }
    for factor in FACTORS:
        rate = min(max(factor * mu / N_STEPS**0.5, LEAST / n), MOST / n, 1.0)
        found[f"{factor:g} μ/√T"] = {"sampling_rate": rate, "max_iter": N_STEPS}
    return found | {"default": {}}


def measured(name, epsilon, repetitions):
    """Return {candidate: [(accuracy, seconds, rate)]}."""
    found = {}
    for seed in range(repetitions):
        X, Z, y, z = split(name, seed)
        more = {"module": small_network} if name == "pneumonia" else {}
        for label, parameters in candidates(len(X), epsilon).items():
            model = DPSGDClassifier(
                epsilon, DELTA, classes=np.unique(y), n_samples=len(X), **parameters, **more
            )
            start = time.perf_counter()
            model.fit(X, y)
            seconds = time.perf_counter() - start
            found.setdefault(label, []).append((model.score(Z, z), seconds, model.sampling_rate_))
    return found


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = ("pneumonia", "mnist", "digits")
    parser.add_argument("--sets", nargs="+", default=names, choices=names)
    parser.add_argument("--epsilons", nargs="+", type=float, default=[1.0, 3.0])
    parser.add_argument("--repetitions", type=int, default=2)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    print(f"{'set':<10}{'eps':>5}  {'rate and steps':<16}{'rate':>7}{'accuracy':>16}{'seconds':>9}")
    for name in _images.available(arguments.sets):
        for epsilon in arguments.epsilons:
            for label, runs in measured(name, epsilon, arguments.repetitions).items():
                accuracy, seconds, rate = np.mean(runs, axis=0)
                off = np.std([run[0] for run in runs], ddof=min(1, len(runs) - 1))
                shown = f"{accuracy:.3f} ± {off / len(runs) ** 0.5:.3f}"
                print(
                    f"{name:<10}{epsilon:>5g}  {label:<16}{rate:>7.3f}{shown:>16}{seconds:>9.1f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
