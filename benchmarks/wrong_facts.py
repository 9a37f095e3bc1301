"""What each estimator does with public facts that are wrong: refuses, warns, or says nothing.

    python benchmarks/wrong_facts.py [--epsilon 1] [--fits 1] [--only DPSGD] [--markdown]

A mistake per line and estimator: the first words of the error or warning, and the score on held-out
rows (accuracy, or R²; D² of counts) beside that with the right facts. Lines that say nothing though
the score is no better than a constant are marked. Tables of 3000 rows and 5 columns in [-1, 1].
"""

import argparse
import math
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

from skdp import (
    DPPCA,
    DPQuantileScaler,
    DPSGDClassifier,
    DPSGDRegressor,
    DPSGLDClassifier,
    DPSGLDRegressor,
    DPStandardScaler,
    DPVariationalLinearRegression,
    DPVariationalLogisticRegression,
    DPVariationalModel,
    DPVariationalPoissonRegression,
    OPSPosteriorSampler,
    OPSRegressor,
)

N, N_FEATURES, HELD_OUT = 3000, 5, 2000
SLOPES = np.array([1.0, -0.7, 0.5, 0.3, 0.0])
UNITS = np.array([1.0, 10.0, 1000.0, 1e5, 1e-3])


class Mistake(NamedTuple):
    """Names what is wrong, for which targets, and how parameters, rows and targets change."""

    name: str
    kinds: str  # of "labels", "numbers", "counts"
    parameters: Callable[[dict[str, Any]], dict[str, Any]] = lambda facts: {}
    rows: Callable[[np.ndarray], np.ndarray] = lambda X: X
    targets: Callable[[np.ndarray], np.ndarray] = lambda y: y


def bounds(center, half_width):
    """Bounds of the targets, in standard deviations from their mean."""
    m, s = 100.0, 12.0
    return lambda facts: {
        "target_bounds": (m + s * (center - half_width), m + s * (center + half_width))
    }


def dear(y):
    """Targets like prices of houses."""
    return 2e5 + 1e5 * (y - 100.0) / 12.0


NUMBERS = "numbers"
ANY = "labels numbers counts"
ADD = {"neighboring_relation": "add_or_remove_one"}
MISTAKES = [
    Mistake("n_samples x 10", ANY, lambda f: {"n_samples": 10 * N}),
    Mistake("n_samples / 10", ANY, lambda f: {"n_samples": N // 10}),
    Mistake("n x 10, n private", ANY, lambda f: {"n_samples": 10 * N, **ADD}),
    Mistake("n / 10, n private", ANY, lambda f: {"n_samples": N // 10, **ADD}),
    Mistake("no bounds, 100 ± 12", NUMBERS, lambda f: {"target_bounds": None}),
    Mistake("no bounds, 2e5 ± 1e5", NUMBERS, lambda f: {"target_bounds": None}, targets=dear),
    Mistake("bounds too narrow", NUMBERS, bounds(0, 0.1)),
    Mistake("bounds shifted away", NUMBERS, bounds(10, 4)),
    Mistake("bounds too wide", NUMBERS, bounds(0, 4000)),
    Mistake("columns x 1000", ANY, rows=lambda X: 1000 * X),
    Mistake("columns in mixed units", ANY, rows=lambda X: UNITS * X),
    Mistake("negative counts", "counts", targets=lambda y: y - 3),
    Mistake("fractional counts", "counts", targets=lambda y: y + 0.5),
    Mistake("largest_count too small", "counts", lambda f: {"largest_count": 1}),
    Mistake("largest_count too large", "counts", lambda f: {"largest_count": 10**6}),
    Mistake("labels as floats", "labels", targets=lambda y: y.astype(float)),
    Mistake("delta = .01", ANY, lambda f: {"delta": 0.01}),
]


def normal_log_likelihood(theta, x, y):
    """Linear regression with a learned scale of the noise."""
    mean = x @ theta[:N_FEATURES] + theta[N_FEATURES]
    return torch.distributions.Normal(mean, theta[-1].exp()).log_prob(y)


class Model(DPVariationalModel):
    """A user's linear regression with the prediction that a score needs; y on [-1, 1]."""

    def __init__(self, epsilon=1.0, delta=1e-5, *, neighboring_relation="zero_out", n_samples=None):
        super().__init__(
            normal_log_likelihood,
            N_FEATURES + 2,
            epsilon=epsilon,
            delta=delta,
            neighboring_relation=neighboring_relation,
            n_samples=n_samples,
        )

    def fit(self, X, y):
        """On targets that are scaled beforehand, as the class has no bounds."""
        return super().fit(X, (y - 100.0) / 48.0)

    def predict(self, X):
        """Line at the posterior mean."""
        theta = self.sample_posterior(2000).mean(0)
        return 100.0 + 48.0 * (X @ theta[:N_FEATURES] + theta[N_FEATURES])


def behind(step, model):
    """A pipeline whose two private steps share the budget about equally."""
    return make_pipeline(step, model.set_params(epsilon=model.epsilon / 2))


def subjects(epsilon):
    """Estimators with the right facts, by name; and the kind of their targets."""
    right = {"epsilon": epsilon, "n_samples": N}
    labels = {"classes": [0, 1], **right}
    numbers = {"target_bounds": (52.0, 148.0), **right}
    linear = DPVariationalLinearRegression(**numbers)
    return {
        "logistic": ("labels", DPVariationalLogisticRegression(**labels)),
        "logistic, dpvi": ("labels", DPVariationalLogisticRegression(inference="dpvi", **labels)),
        "DPSGDClassifier": ("labels", DPSGDClassifier(**labels)),
        "DPSGLDClassifier": ("labels", DPSGLDClassifier(**labels)),
        "OPSPosteriorSampler": ("labels", OPSPosteriorSampler(**labels)),
        "linear": ("numbers", linear),
        "DPVariationalModel": ("numbers", Model(**right)),
        "DPSGDRegressor": ("numbers", DPSGDRegressor(**numbers)),
        "DPSGLDRegressor": ("numbers", DPSGLDRegressor(**numbers)),
        "OPSRegressor": ("numbers", OPSRegressor(n_posterior_samples=5, **numbers)),
        "DPPCA + linear": (
            "numbers",
            behind(DPPCA(N_FEATURES, epsilon=epsilon / 2), clone(linear)),
        ),
        "DPStandardScaler + linear": (
            "numbers",
            behind(DPStandardScaler(epsilon=epsilon / 2), clone(linear)),
        ),
        "DPQuantileScaler + linear": (
            "numbers",
            behind(DPQuantileScaler(epsilon=epsilon / 2), clone(linear)),
        ),
        "Poisson": ("counts", DPVariationalPoissonRegression(**right)),
        "Poisson, dpvi": ("counts", DPVariationalPoissonRegression(inference="dpvi", **right)),
    }


def table(kind, rng):
    """Rows and targets, to train and to hold out."""
    X = rng.uniform(-1, 1, (N + HELD_OUT, N_FEATURES))
    eta = X @ SLOPES
    if kind == "labels":
        y = (rng.uniform(size=len(X)) < 1 / (1 + np.exp(-4 * eta))).astype(int)
    elif kind == "counts":
        y = rng.poisson(np.exp(1.0 + eta))
    else:
        y = 100.0 + 12.0 * (eta / eta.std() * 0.9 + 0.44 * rng.normal(size=len(X)))
    return X, y


class Outcome(NamedTuple):
    """What was said, and the score."""

    said: str
    score: float


def outcome(model, X, y):
    """Fit, and score on the held-out rows."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            model.fit(X[:N], y[:N])
        except (ValueError, TypeError) as error:
            return Outcome(f"refused: {error}", math.nan)
        score = model.score(X[N:], y[N:]) if hasattr(model, "score") else math.nan
        if isinstance(model, Model):
            score = 1 - np.mean((y[N:] - model.predict(X[N:])) ** 2) / np.var(y[N:])
    told = [str(w.message) for w in caught]
    return Outcome(f"warned: {told[0]}" if told else "silent", score)


def set_wrong(model, wrong):
    """Set parameters on each step that has them; False where none has."""
    last = model[-1] if hasattr(model, "steps") else model
    if not set(wrong) <= set(last.get_params()):
        return False
    for step in model if hasattr(model, "steps") else [model]:
        step.set_params(**{k: v for k, v in wrong.items() if k in step.get_params()})
    return True


def is_bad(kind, score):
    """Whether a constant would have done as well."""
    return not score > (0.55 if kind == "labels" else 0.0)


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--fits", type=int, default=1)
    parser.add_argument("--only", default="", help="part of the estimators' names")
    parser.add_argument("--width", type=int, default=70)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    silent = []
    for name, (kind, model) in subjects(arguments.epsilon).items():
        if arguments.only not in name:
            continue
        X, y = table(kind, np.random.default_rng(0))
        right = outcome(clone(model), X, y)
        print(f"\n{name}: {right.score:.3f} with the right facts; {right.said}", flush=True)
        for mistake in MISTAKES:
            if kind not in mistake.kinds.split():
                continue
            for _ in range(arguments.fits):
                wrong = clone(model)
                if not set_wrong(wrong, mistake.parameters({})):
                    break
                found = outcome(wrong, mistake.rows(X), mistake.targets(y))
                mark = found.said == "silent" and is_bad(kind, found.score)
                if mark:
                    silent.append((name, mistake.name, found.score))
                print(
                    f"{' !'[mark]} {mistake.name:<24}{found.score:>12.3f}  "
                    f"{found.said[: arguments.width]}",
                    flush=True,
                )
    print(f"\n{len(silent)} that are no better than a constant, without a word")
    for name, mistake, score in silent:
        print(f"  {name}, {mistake}: {score:.3g}")


if __name__ == "__main__":
    main()
