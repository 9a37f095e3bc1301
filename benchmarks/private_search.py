"""Does a private search pay? Untuned fits against searches at the same total budget.

    SKDP_DATA=... python benchmarks/private_search.py variational [--tasks ...]
    SKDP_DATA=... python benchmarks/private_search.py network [--tasks ...]
    python benchmarks/private_search.py prices

ε = 2 and δ = 1e-5 in all. ``variational`` searches the clipping norm, the prior and the number of
steps of `DPVariationalLogisticRegression`, on the protocol of `noise_aware.py tasks`; ``network``
the learning rate and the clipping norm of a small `DPSGDClassifier` on fixed random batches.
Beside each search stands one random draw from its distributions, fitted with the whole budget: what
a user gets who has no good default. ``prices`` has what one trial keeps of the budget.

`DPRandomizedSearch` has the laws of LAWS. `DPDisjointSearch` has the shares of the rows for tuning
and for scoring that its name says, and as many candidates as the last number. ``--searches`` takes
some of them.
"""

import argparse
import math
import time
import warnings

import numpy as np
from scipy.stats import loguniform, uniform
from sklearn.base import clone
from sklearn.metrics import accuracy_score, log_loss
from sklearn.model_selection import ParameterSampler, train_test_split

from skdp import DPSGDClassifier, DPVariationalLogisticRegression, PrivacyWarning
from skdp.model_selection import DPDisjointSearch, DPRandomizedSearch
from skdp.model_selection._candidates import trial_mu
from skdp.model_selection.trial_law import TrialLaw
from skdp.privacy import epsilon_to_gdp, gdp_to_epsilon

EPSILON, DELTA = 2.0, 1e-5
LAWS = [(3, 0.0), (3, 1.0), (10, 0.0), (10, 1.0)]
DISJOINT = [(0.1, 0.1, 5), (0.3, 0.1, 5), (0.1, 0.1, 20)]
SEARCHES = {
    **{f"random {mean} {shape:g}": (DPRandomizedSearch, mean, shape) for mean, shape in LAWS},
    **{f"disjoint {a:g} {b:g} {k}": (DPDisjointSearch, a, b, k) for a, b, k in DISJOINT},
}


def variational(n_rows, data_norm):
    """Return the estimator with its defaults, and distributions made without data."""
    R = math.sqrt(data_norm**2 + 1)
    model = DPVariationalLogisticRegression(
        EPSILON, DELTA, data_norm=data_norm, classes=[0, 1], n_samples=n_rows
    )
    return model, {
        "clip_norm": uniform(0.1 * R, 0.9 * R),
        "prior_scale": loguniform(1 / R, 30 / R),
        "max_iter": [5, 10, 20, 40],
    }


def network(n_rows, data_norm):
    """Return a network whose random batches are fixed, and distributions made without data."""
    model = DPSGDClassifier(
        EPSILON,
        DELTA,
        hidden_layer_sizes=(32,),
        sampling_rate=min(1.0, 256 / n_rows),
        max_iter=300,
        classes=[0, 1],
        n_samples=n_rows,
    )
    return model, {
        "learning_rate": loguniform(1e-4, 1.0),
        "clip_norm": loguniform(0.05, 5.0),
    }


def splits(X, y, count):
    """Train and test rows."""
    for seed in range(count):
        yield train_test_split(X, y, test_size=0.3, random_state=seed, stratify=y)


def scored(model, X, y):
    """Held-out log-loss and accuracy."""
    proba = np.clip(model.predict_proba(X), 1e-6, 1)
    return log_loss(y, proba / proba.sum(axis=1, keepdims=True)), accuracy_score(
        y, model.predict(X)
    )


def searching(name, model, distributions):
    """Return a search by name."""
    kind, *facts = SEARCHES[name]
    names = {
        DPRandomizedSearch: ("mean_trials", "shape"),
        DPDisjointSearch: ("tuning_share", "scoring_share", "n_iter"),
    }[kind]
    settings = dict(zip(names, facts, strict=True))
    return kind(
        model, distributions, epsilon=EPSILON, delta=DELTA, scoring="neg_log_loss", **settings
    )


def compare(make, tasks, repetitions, searches):
    """Print mean log-loss and accuracy on each task, and on how many tasks each search wins."""
    from _tasks import load

    wins = {name: [0, 0] for name in searches}
    for task in tasks:
        began = time.perf_counter()
        X, y = load(task)
        R = 1.0 / X[0, 0]
        features, data_norm = X[:, 1:] * R, math.sqrt(R**2 - 1)
        count = repetitions or (10 if len(X) < 5000 else 3)
        found = {name: [] for name in ("untuned", "one draw", *searches)}
        for seed, (A, B, a, b) in enumerate(splits(features, y, count)):
            model, distributions = make(len(A), data_norm)
            found["untuned"].append(scored(clone(model).fit(A, a), B, b))
            (drawn,) = ParameterSampler(distributions, 1, random_state=seed)
            found["one draw"].append(scored(clone(model).set_params(**drawn).fit(A, a), B, b))
            for name in searches:
                search = searching(name, model, distributions)
                found[name].append(scored(search.fit(A, a), B, b))
        means = {name: np.mean(values, axis=0) for name, values in found.items()}
        for name in searches:
            for i, other in enumerate(("untuned", "one draw")):
                wins[name][i] += bool(means[name][0] < means[other][0])
        shown = "  ".join(f"{name}: {m[0]:.3f}/{m[1]:.3f}" for name, m in means.items())
        print(f"{task:<9} {shown}  ({time.perf_counter() - began:.0f} s)", flush=True)
    print(f"lower log-loss than untuned, and than one draw, of {len(tasks)} tasks:", wins)


def prices():
    """μ and ε of one trial under the total budget, before a tenth of μ² goes to its score."""
    whole = epsilon_to_gdp(EPSILON, DELTA)
    for mean in (3, 10, 30):
        for shape in (0.0, 1.0, math.inf):
            mu = trial_mu(EPSILON, DELTA, TrialLaw(mean, shape))
            print(
                f"mean {mean:<3} shape {shape:<4g} mu {mu:.4f} ({mu / whole:.2f} of the whole), "
                f"epsilon {gdp_to_epsilon(mu, DELTA):.3f}"
            )


def main():
    """Run one part."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=("variational", "network", "prices"))
    parser.add_argument("--tasks", nargs="*")
    parser.add_argument("--repetitions", type=int)
    parser.add_argument("--searches", nargs="*", choices=SEARCHES, default=list(SEARCHES))
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", PrivacyWarning)
    if arguments.part == "prices":
        return prices()
    from _tasks import TASKS

    every = {
        "variational": (variational, [t for t in TASKS if t != "breast_cancer"]),
        "network": (network, ["pima", "abalone"]),
    }
    make, tasks = every[arguments.part]
    return compare(make, arguments.tasks or tasks, arguments.repetitions, arguments.searches)


if __name__ == "__main__":
    main()
