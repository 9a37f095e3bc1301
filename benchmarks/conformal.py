"""Coverage and size of private conformal sets and intervals, beside MAPIE's without privacy.

    SKDP_DATA=... MAPIE_PYTHON=.../bin/python python benchmarks/conformal.py [--tables ...]

Of each table half of the rows, at most 5000, train a model once, a noise-aware regression at ε = 1;
200 times 1000 of the others (or half of them, where there are fewer) calibrate, and the rest, at
most 4000, tests. α = .1; ε of the threshold .3, 1 and 3. "Wrong" models have their probabilities
turned to another class, or their predictions to noise. MAPIE_PYTHON is the interpreter of an
environment that has MAPIE; without it its column is ordinary split conformal prediction by
``epsilon=float("inf")``, which draws the same threshold.
"""

import argparse
import json
import os
import subprocess
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.frozen import FrozenEstimator

from skdp import DPVariationalLinearRegression, DPVariationalLogisticRegression
from skdp.conformal import DPConformalClassifier, DPConformalRegressor

ALPHA, EPSILONS, SPLITS = 0.1, (0.3, 1.0, 3.0), 200
CLASSES = ("adult", "credit", "spambase", "magic")
NUMBERS = {
    "california": ("california_housing/california_housing_raw.csv.gz", "medianHouseValue"),
    "wine": ("wine_quality/wine_quality.csv.gz", "quality"),
}


class Given(BaseEstimator):
    """What has been predicted, of row numbers: a model that costs nothing to ask."""

    def __init__(self, values=None):
        self.values = values

    def fit(self, X, y):
        """Fit nothing."""
        return self

    def __sklearn_is_fitted__(self):
        return True


class Classifier(ClassifierMixin, Given):
    """Of probabilities."""

    @property
    def classes_(self):
        """Class numbers."""
        return np.arange(self.values.shape[1])

    def predict_proba(self, X):
        """Probabilities of rows by number."""
        return self.values[X[:, 0].astype(int)]

    def predict(self, X):
        """Most probable class."""
        return self.predict_proba(X).argmax(axis=1)


class Regressor(RegressorMixin, Given):
    """Of means."""

    def predict(self, X):
        """Means of rows by number."""
        return self.values[X[:, 0].astype(int)]


def classes(name, rng):
    """Probabilities and labels of the rows that have not trained, and the wrong ones."""
    from _tasks import load

    X, y = load(name)
    order = rng.permutation(len(X))
    train, others = np.split(order, [min(len(X) // 2, 5000)])
    model = DPVariationalLogisticRegression(
        1.0, data_norm=1.0, fit_intercept=False, classes=[0, 1], n_samples=len(train)
    )
    proba = model.fit(X[train], y[train]).predict_proba(X[others])
    return proba, y[others], proba[:, ::-1].copy()


def numbers(name, rng):
    """Means and targets in [-1, 1] of the rows that have not trained, and the wrong ones."""
    path, target = NUMBERS[name]
    table = pd.read_csv(Path(os.environ["SKDP_DATA"]) / path)
    table = table.select_dtypes("number").dropna()
    y = table.pop(target).to_numpy(float)
    y = 2 * (y - y.min()) / (y.max() - y.min()) - 1
    X = table.to_numpy(float)
    X = np.clip((X - X.mean(axis=0)) / X.std(axis=0), -4, 4)
    order = rng.permutation(len(X))
    train, others = np.split(order, [min(len(X) // 2, 5000)])
    model = DPVariationalLinearRegression(1.0, target_bounds=(-1, 1), n_samples=len(train))
    mean = model.fit(X[train], y[train]).predict(X[others])
    return mean, y[others], rng.uniform(-1, 1, len(others))


def splits(values, y, rng):
    """Numbers of the rows that calibrate, of each split; and the values and targets used."""
    n = min(len(y), 5000)
    m = min(n // 2, 1000)
    return values[:n], y[:n], np.array([rng.permutation(n)[:m] for _ in range(SPLITS)])


def ours(values, y, calibrate, epsilon):
    """Coverage and mean size of each split."""
    X, found = np.arange(len(y))[:, None].astype(float), []
    for rows in calibrate:
        test = np.setdiff1d(np.arange(len(y)), rows)
        given = {"alpha": ALPHA, "epsilon": epsilon, "n_samples": len(rows)}
        if values.ndim == 2:
            model = DPConformalClassifier(FrozenEstimator(Classifier(values)), **given)
            sets = model.fit(X[rows], y[rows]).predict_set(X[test])
            found.append([sets[np.arange(len(test)), y[test]].mean(), sets.sum(axis=1).mean()])
        else:
            model = DPConformalRegressor(
                FrozenEstimator(Regressor(values)), residual_bound=2.0, **given
            )
            low, high = model.fit(X[rows], y[rows]).predict_interval(X[test]).T
            found.append([np.mean((low <= y[test]) & (y[test] <= high)), np.mean(high - low)])
    return np.array(found)


def theirs(values, y, calibrate):
    """Return the same from MAPIE, or from plain split conformal prediction without it."""
    interpreter = os.environ.get("MAPIE_PYTHON")
    if not interpreter:
        return ours(values, y, calibrate, float("inf")), "split conformal"
    with tempfile.TemporaryDirectory() as folder:
        given, wanted = Path(folder) / "in.npz", Path(folder) / "out.npz"
        np.savez(given, values=values, y=y, calibrate=calibrate, alpha=ALPHA)
        command = [interpreter, str(Path(__file__).with_name("_mapie.py")), str(given), str(wanted)]
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        return np.load(wanted)["found"], f"MAPIE {json.loads(said)['mapie']}"


def main():
    """Print a line for each table and model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", nargs="*", default=[*CLASSES, *NUMBERS])
    names = parser.parse_args().tables
    warnings.simplefilter("ignore")
    for name in names:
        rng = np.random.default_rng(0)
        right, y, wrong = (classes if name in CLASSES else numbers)(name, rng)
        for kind, values in {"": right, ", wrong": wrong}.items():
            values, targets, calibrate = splits(values, y, rng)
            cells = {f"{e:g}": ours(values, targets, calibrate, e) for e in EPSILONS}
            peer, label = theirs(values, targets, calibrate)
            shown = [
                f"ε = {e}: {f[:, 0].mean():.4f} ± {f[:, 0].std() / len(f) ** 0.5:.4f}, "
                f"size {f[:, 1].mean():.3f}"
                for e, f in {**cells, f"∞ ({label})": peer}.items()
            ]
            print(f"{name + kind:<18} m = {calibrate.shape[1]}  " + "; ".join(shown), flush=True)


if __name__ == "__main__":
    main()
