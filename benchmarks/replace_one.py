"""What sharper sensitivities save under replace_one: noise and log-loss, before and after.

    SKDP_DATA=... python benchmarks/replace_one.py [--tasks ...] [--repetitions 20]

"Before" is the same code with every two terms taken to be opposite (a factor of 2), as up to 0.1.0.
Noise is that of the releases themselves, read from the tape, at ε = 1. Log-loss is that of the
noise-aware posterior on held-out rows, mean and standard error of the difference over splits.
"""

import argparse
import math
from contextlib import ExitStack
from unittest import mock

import numpy as np
from _tasks import load
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

from skdp import (
    DPPCA,
    DPStandardScaler,
    DPVariationalLinearRegression,
    DPVariationalLogisticRegression,
)
from skdp.algorithms.moments import MomentSum
from skdp.algorithms.parts.gaussian_runs import release_plan_of
from skdp.algorithms.user_model.sums import ModelClippedSum
from skdp.engine import release_hook
from skdp.engine.linear_sums import GramSum
from skdp.rows.bounded_sum import OPPOSITE

RELATION = "replace_one"


def before():
    """Take all terms to be opposite, in plans that are made anew."""
    patches = ExitStack()
    release_plan_of.cache_clear()
    patches.callback(release_plan_of.cache_clear)
    for kind in (GramSum, MomentSum, ModelClippedSum):
        patches.enter_context(mock.patch.object(kind, "apart", OPPOSITE))
    return patches


def logistic(n, epsilon, data_norm):
    """The noise-aware posterior with its public facts declared."""
    return DPVariationalLogisticRegression(
        epsilon,
        data_norm=data_norm,
        neighboring_relation=RELATION,
        classes=[0, 1],
        n_samples=n,
    )


def scales(fit):
    """Noise scales of the distinct releases of a fit, in order."""
    with release_hook.record() as tape:
        fit()
    return list(dict.fromkeys(f"{release.call.scale:.4g}" for release in tape))


def noise():
    """Noise at ε = 1 and n = 5000 rows of 10 features."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(5000, 10)) / math.sqrt(10)
    y = (X[:, 0] > 0).astype(int)
    cases = {
        "DPPCA": lambda: DPPCA(3, epsilon=1.0, neighboring_relation=RELATION).fit(X),
        "DPStandardScaler": lambda: DPStandardScaler(
            -4, 4, epsilon=1.0, neighboring_relation=RELATION
        ).fit(X),
        "logistic: moments, scores, slopes": lambda: logistic(5000, 1.0, 1.0).fit(X, y),
        "linear: moments, residuals": lambda: DPVariationalLinearRegression(
            1.0, target_bounds=(0, 1), neighboring_relation=RELATION, n_samples=5000
        ).fit(X, y),
    }
    for name, fit in cases.items():
        with before():
            old = scales(fit)
        print(f"{name:<36} {' '.join(old):<24} -> {' '.join(scales(fit))}")


def losses(task, epsilon, repetitions):
    """Held-out log-loss before and after, on the same splits."""
    X, y = load(task)
    R = 1.0 / X[0, 0]  # the intercept's column is dropped
    features, data_norm = X[:, 1:] * R, math.sqrt(R**2 - 1)
    found = []
    for seed in range(repetitions):
        A, B, a, b = train_test_split(features, y, test_size=0.3, random_state=seed, stratify=y)
        model = logistic(len(A), epsilon, data_norm)
        with before():
            old = log_loss(b, model.fit(A, a).predict_proba(B))
        found.append((old, log_loss(b, model.fit(A, a).predict_proba(B))))
    return np.array(found)


def main():
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", nargs="+", default=["breast_cancer", "pima", "spambase"])
    parser.add_argument("--epsilons", nargs="+", type=float, default=[0.3, 1.0, 3.0])
    parser.add_argument("--repetitions", type=int, default=20)
    options = parser.parse_args()
    noise()
    for task in options.tasks:
        for epsilon in options.epsilons:
            both = losses(task, epsilon, options.repetitions)
            change = both[:, 1] - both[:, 0]
            error = change.std(ddof=1) / math.sqrt(len(change))
            old, new = both.mean(axis=0)
            print(
                f"{task:<14} ε={epsilon:<4g} log-loss {old:.4f} -> {new:.4f}  "
                f"({change.mean():+.4f} ± {error:.4f})",
                flush=True,
            )


if __name__ == "__main__":
    main()
