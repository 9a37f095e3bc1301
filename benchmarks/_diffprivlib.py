"""diffprivlib's side of `side_by_side.py` and `method_peers.py`, run by an interpreter that has it.

    python _diffprivlib.py versions
    python _diffprivlib.py utility IN.npz OUT.npz
    python _diffprivlib.py numbers IN.npz OUT.npz
    python _diffprivlib.py time IN.npz
    python _diffprivlib.py memory FOLDER ROWS
    python _diffprivlib.py accounting

diffprivlib 0.6.6 does not import on the scikit-learn of today, so this needs diffprivlib, the
scikit-learn that it wants, and numpy; not skdp. What is found is printed as JSON.
"""

import json
import sys
import time
import warnings

import diffprivlib
import numpy as np
import sklearn
from diffprivlib import BudgetAccountant
from diffprivlib.models import LinearRegression, LogisticRegression
from diffprivlib.utils import BudgetError
from sklearn.linear_model import LogisticRegression as WithoutPrivacy
from sklearn.model_selection import GridSearchCV, cross_val_score


def versions():
    """Return what this is."""
    return {"diffprivlib": diffprivlib.__version__, "its scikit-learn": sklearn.__version__}


def model(epsilon, C=1.0):
    """For rows of norm ≤ 1 that hold their intercept."""
    return LogisticRegression(epsilon=epsilon, C=C, data_norm=1.0, fit_intercept=False)


def utility(given, wanted):
    """Write the probabilities of held-out rows, for each (ε, C); return how many."""
    rows = np.load(given)
    shown = [
        model(epsilon, C).fit(rows["A"], rows["a"]).predict_proba(rows["B"])
        for epsilon, C in rows["settings"]
    ]
    np.savez(wanted, probabilities=np.array(shown))
    return len(shown)


def numbers(given, wanted):
    """Write what is predicted of held-out rows, of columns in [-1, 1]; return how many."""
    rows = np.load(given)
    low, high = rows["bounds"]
    fit = LinearRegression(
        epsilon=float(rows["epsilon"]), bounds_X=(-1.0, 1.0), bounds_y=(low, high)
    ).fit(rows["A"], rows["a"])
    predictions = fit.predict(rows["B"])
    np.savez(wanted, predictions=predictions)
    return len(predictions)


def seconds(fit):
    """Return the seconds of a call."""
    start = time.perf_counter()
    fit()
    return time.perf_counter() - start


def times(given):
    """Return the seconds of fits, private and not, that take turns."""
    rows = np.load(given)
    X, y, repetitions = rows["X"], rows["y"], int(rows["repetitions"])
    plain = WithoutPrivacy(fit_intercept=False, max_iter=1000)
    fits = {"diffprivlib": lambda: model(1.0).fit(X, y), "scikit-learn": lambda: plain.fit(X, y)}
    found = {name: [] for name in fits}
    for _ in range(repetitions + 1):
        for name, fit in fits.items():
            found[name].append(seconds(fit))
    return {name: values[1:] for name, values in found.items()}  # the first loads what is loaded


def memory(folder, n_rows):
    """Return the peak memory of a fit, as `memory.py` measures it."""
    from side_by_side import watched

    return watched(LogisticRegression(data_norm=10.0).fit, folder, int(n_rows))


def accounting():
    """Return what the accountant shows of a search, and lets through under a ceiling."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (300, 2)) / 2**0.5
    y = (X[:, 0] > 0).astype(int)
    accountant = BudgetAccountant()
    one = LogisticRegression(epsilon=1.0, data_norm=1.0, accountant=accountant)
    search = GridSearchCV(one, {"C": [0.1, 1.0, 10.0]}, cv=3).fit(X, y)
    found = {"fits": len(search.cv_results_["params"]) * search.n_splits_ + 1}
    found |= {"counted": len(accountant), "total": accountant.total()[0]}
    one.accountant = BudgetAccountant(epsilon=1.0, delta=0.0)
    found["folds"] = int(np.isfinite(cross_val_score(one, X, y, cv=5)).sum())
    one.accountant, found["loop"] = BudgetAccountant(epsilon=1.0, delta=0.0), 0
    for _ in range(5):
        try:
            one.fit(X, y)
        except BudgetError:
            continue
        found["loop"] += 1
    return found


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    parts = {
        "versions": versions,
        "utility": utility,
        "numbers": numbers,
        "time": times,
        "memory": memory,
        "accounting": accounting,
    }
    print(json.dumps(parts[sys.argv[1]](*sys.argv[2:])))
