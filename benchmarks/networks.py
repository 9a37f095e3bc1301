"""Accuracy of `DPSGDClassifier` with defaults, beside Opacus and a network without privacy.

    SKDP_DATA=... python benchmarks/networks.py [--sets digits mnist] [--repetitions 3]

Prints the mean accuracy on held-out rows and its standard error over repetitions: for digits over
stratified 70/30 splits, for MNIST over unseeded fits on the official split. δ = 1e-5. All networks
are perceptrons with 100 tanh units; nothing is tuned per set or ε.

- skdp: `DPSGDClassifier(epsilon)`, all else default; ε = inf is its fit without privacy.
- last: the same, without the average over the tail of the run (``averaging=0``).
- Opacus: the same network, number of steps, Poisson rate, clipping norm 1 and noise multiplier, by
  its ghost clipping, which gives the same sums as its hooks, only faster. The optimiser is Adam
  with the step size that skdp chooses by default (.025 for digits, .008 for MNIST). Of SGD with
  step sizes .1 to 2, with and without momentum .9, and Adam with .001 to .03, Adam from .01 to .03
  did best on both sets together; Adam with .001, its default, does far worse.
- MLPClassifier: scikit-learn's, without privacy, otherwise with defaults.
"""

import argparse
import itertools
import warnings

import _images
import _opacus
import numpy as np
import torch
from fit_time import drawn
from sklearn.neural_network import MLPClassifier

from skdp import DPSGDClassifier
from skdp.models.perceptron import perceptron


def ours(epsilon, X, y, **parameters):
    """Fit with defaults."""
    classifier = DPSGDClassifier(epsilon, classes=range(10), n_samples=len(X), **parameters)
    return classifier.fit(X, y)


def opacus_accuracy(like, X, y, Z, z):
    """Train with Opacus under the plan of a fitted classifier."""
    module = perceptron(X.shape[1], 10, (100,), "tanh")
    step, _ = _opacus.private(
        module,
        torch.optim.Adam(module.parameters(), like.learning_rate_),
        torch.from_numpy(X),
        torch.from_numpy(y),
        batch_size=round(like.sampling_rate_ * len(X)),
        noise_multiplier=like.noise_multiplier_,
        mode="ghost",
    )
    for inputs, labels in itertools.islice(drawn(X, y, like.sampling_rate_), like.n_iter_):
        step(inputs, labels)
    with torch.no_grad():
        predicted = module(torch.from_numpy(Z)).argmax(1).numpy()
    return np.mean(predicted == z)


def accuracies(name, epsilon, repetition):
    """Return {method: accuracy} of one repetition."""
    X, Z, y, z = _images.load(name, seed=repetition)
    fitted = ours(epsilon, X, y)
    found = {"skdp": fitted.score(Z, z)}
    if epsilon == float("inf"):
        peer = MLPClassifier((100,), activation="tanh").fit(X, y)
        return found | {"MLPClassifier": peer.score(Z, z)}
    found["last"] = ours(epsilon, X, y, averaging=0.0).score(Z, z)
    if _opacus.VERSION is not None:
        found["Opacus"] = opacus_accuracy(fitted, X, y, Z, z)
    return found


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", nargs="+", default=_images.SETS, choices=_images.SETS)
    parser.add_argument("--epsilons", nargs="+", type=float, default=[0.5, 1, 3, 8, float("inf")])
    parser.add_argument("--repetitions", type=int, default=3)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    if _opacus.VERSION is None:
        print(_opacus.MISSING)

    methods = ("skdp", "last", "Opacus", "MLPClassifier")
    print(f"{'set':<8}{'eps':>5}" + "".join(f"{method:>18}" for method in methods))
    for name in _images.available(arguments.sets):
        for epsilon in arguments.epsilons:
            repetitions = range(arguments.repetitions)
            found = [accuracies(name, epsilon, repetition) for repetition in repetitions]
            cells = []
            for method in methods:
                values = [scores[method] for scores in found if method in scores]
                spread = np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else 0.0
                shown = f"{np.mean(values):.4f} ± {spread:.4f}" if values else "–"
                cells.append(f"{shown:>18}")
            print(f"{name:<8}{epsilon:>5g}" + "".join(cells), flush=True)


if __name__ == "__main__":
    main()
