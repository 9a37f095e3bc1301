"""Accuracy of `DPSGDClassifier` with defaults, beside Opacus and a network without privacy.

    SKDP_DATA=... python benchmarks/networks.py [--sets digits mnist] [--repetitions 3]
    python benchmarks/networks.py --rare [--repetitions 5]

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

With ``--rare``, the balanced accuracy of the linear model at ε = 1 on held-out synthetic rows, 5 %
of which are of class 1, by the weight of that class: 19 is what its public share asks for.
"""

import argparse
import itertools
import warnings

import _images
import _opacus
import numpy as np
import torch
from fit_time import drawn
from sklearn.metrics import recall_score
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


def rare(repetitions):
    """Print balanced accuracies with and without ``class_weight``."""
    print(f"{'class_weight':<16}{'balanced accuracy':>20}{'recall of class 1':>20}")
    for weight in (1.0, 5.0, 19.0):
        found = []
        for repetition in range(repetitions):
            rng = np.random.default_rng(repetition)
            y = (rng.random(20_000) < 0.05).astype(int)
            X = rng.standard_normal((20_000, 10))
            X[:, :3] += y[:, None]
            model = DPSGDClassifier(
                1.0,
                hidden_layer_sizes=(),
                class_weight={1: weight},
                classes=[0, 1],
                n_samples=10_000,
            )
            predicted = model.fit(X[:10_000], y[:10_000]).predict(X[10_000:])
            recalls = recall_score(y[10_000:], predicted, average=None)
            found.append((recalls.mean(), recalls[1]))
        mean, spread = np.mean(found, axis=0), deviation(found)
        cells = [f"{m:.3f} ± {s:.3f}" for m, s in zip(mean, spread, strict=True)]
        print(f"{f'{{1: {weight:g}}}':<16}" + "".join(f"{cell:>20}" for cell in cells))


def deviation(values):
    """Return the standard error of a mean, 0 of one value."""
    return np.std(values, axis=0, ddof=min(1, len(values) - 1)) / np.sqrt(len(values))


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", nargs="+", default=_images.SETS, choices=_images.SETS)
    parser.add_argument("--epsilons", nargs="+", type=float, default=[0.5, 1, 3, 8, float("inf")])
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--rare", action="store_true", help="weights of a rare class instead")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    if arguments.rare:
        return rare(arguments.repetitions)
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
                shown = f"{np.mean(values):.4f} ± {deviation(values):.4f}" if values else "–"
                cells.append(f"{shown:>18}")
            print(f"{name:<8}{epsilon:>5g}" + "".join(cells), flush=True)
    return None


if __name__ == "__main__":
    main()
