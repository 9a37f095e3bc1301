"""MAPIE's side of `conformal.py`, run by the interpreter of an environment that has it.

    python _mapie.py IN.npz OUT.npz

Scores or probabilities of calibration and test rows come in, sets and intervals go out: the models
are those of the other side, wrapped here.
"""

import json
import sys
import warnings

import mapie
import numpy as np
import sklearn
from mapie.classification import SplitConformalClassifier
from mapie.regression import SplitConformalRegressor
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin


class Given(BaseEstimator):
    """What has been predicted, of row numbers."""

    def __init__(self, values):
        self.values = values
        self.fitted_ = True

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


def main(given, wanted):
    """Calibrate on each split; write coverage and size."""
    rows, found = np.load(given), []
    values, y, alpha = rows["values"], rows["y"], float(rows["alpha"])
    numbers = np.arange(len(y))[:, None].astype(float)
    for calibrate in rows["calibrate"]:
        test = np.setdiff1d(np.arange(len(y)), calibrate)
        options = {"confidence_level": 1 - alpha, "prefit": True}
        if values.ndim == 2:
            conformal = SplitConformalClassifier(
                Classifier(values), conformity_score="lac", **options
            )
            conformal.conformalize(numbers[calibrate], y[calibrate])
            sets = conformal.predict_set(numbers[test])[1][:, :, 0]
            found.append([sets[np.arange(len(test)), y[test]].mean(), sets.sum(axis=1).mean()])
        else:
            conformal = SplitConformalRegressor(Regressor(values), **options)
            conformal.conformalize(numbers[calibrate], y[calibrate])
            ends = conformal.predict_interval(numbers[test])[1][:, :, 0]
            covered = (ends[:, 0] <= y[test]) & (y[test] <= ends[:, 1])
            found.append([covered.mean(), np.mean(ends[:, 1] - ends[:, 0])])
    np.savez(wanted, found=np.array(found))
    print(json.dumps({"mapie": mapie.__version__, "its scikit-learn": sklearn.__version__}))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(*sys.argv[1:])
