"""Without privacy skdp does what scikit-learn does: five examples of its gallery, condensed.

    python benchmarks/scikit_learn_examples.py [--repetitions 3] [--only digits]

Held-out score of scikit-learn, of skdp at ε = ∞ and at ε = 3, the difference of the first two over
scikit-learn's, and how long the two fits of skdp take. Where scikit-learn's penalty has a prior of
the same shape, both have it; lines marked *defaults* leave it to skdp. Steps before the model are
scikit-learn's, for all alike.
"""

import argparse
import math
import time
import warnings
from functools import partial

import numpy as np
import torch
from sklearn.datasets import load_digits, load_iris, make_classification
from sklearn.decomposition import PCA
from sklearn.linear_model import BayesianRidge, LogisticRegression, PoissonRegressor
from sklearn.metrics import (
    brier_score_loss,
    log_loss,
    mean_poisson_deviance,
    root_mean_squared_error,
)
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from skdp import (
    DPSGDClassifier,
    DPVariationalLinearRegression,
    DPVariationalLogisticRegression,
    DPVariationalPoissonRegression,
    FitWarning,
    PrivacyWarning,
)


def split(X, y, *more, scaled=True):
    """Half of the rows to fit, half to score; standardised by the first half, or not."""
    parts = train_test_split(X, y, *more, test_size=0.5, random_state=0)
    if scaled:
        scaler = StandardScaler().fit(parts[0])
        parts[:2] = map(scaler.transform, parts[:2])
    return parts


def longest(*tables):
    """Norm of the longest row: here nothing is private."""
    return max(float(np.linalg.norm(table, axis=1).max()) for table in tables)


def accuracy(b, p):
    """Share of the classes 0, 1, … that are the most probable."""
    return float(np.mean(p.argmax(axis=1) == b))


def logistic_task(X, y, metric, *, scaled=True):
    """Logistic regression with the penalty ‖w‖²/2, which is the prior N(0, 1)."""
    A, B, a, b = split(X, y, scaled=scaled)
    classes, norm = np.unique(y), longest(A, B)

    def fit_theirs():
        return LogisticRegression(C=1.0, max_iter=1000).fit(A, a)

    def fit_ours(epsilon, **parameters):
        return DPVariationalLogisticRegression(
            epsilon, classes=classes, n_samples=len(A), data_norm=norm, **parameters
        ).fit(A, a)

    def score(model):
        return metric(b, model.predict_proba(B))

    return fit_theirs, fit_ours, score, {"prior_scale": 1.0}


def classification_probability():
    """plot_classification_probability: iris, two columns, accuracy."""
    X, y = load_iris(return_X_y=True)
    return logistic_task(X[:, :2], y, accuracy)


def classification_probability_log_loss():
    """The same by its log-loss."""
    X, y = load_iris(return_X_y=True)
    return logistic_task(X[:, :2], y, log_loss)


def bayesian_ridge_curvefit():
    """plot_bayesian_ridge_curvefit: a sine by a polynomial of degree 3, RMSE against the sine."""
    rng = np.random.RandomState(1234)
    x = rng.uniform(0.0, 1.0, 25)
    y = np.sin(2 * np.pi * x) + rng.normal(scale=0.1, size=25)
    grid = np.linspace(0.0, 1.0, 100)
    A, B = np.vander(x, 4), np.vander(grid, 4)

    def fit_theirs():
        ridge = BayesianRidge(
            tol=1e-6, fit_intercept=False, alpha_init=1 / np.var(y), lambda_init=1e-3
        )
        return ridge.fit(A, y)

    def fit_ours(epsilon, **parameters):
        return DPVariationalLinearRegression(
            epsilon,
            delta=1e-3,
            fit_intercept=False,
            target_bounds=(-1.5, 1.5),
            n_samples=25,
            **parameters,
        ).fit(A, y)

    def score(model):
        return root_mean_squared_error(np.sin(2 * np.pi * grid), model.predict(B))

    return fit_theirs, fit_ours, score, {}


def calibration_curve():
    """plot_calibration_curve: 20 columns of which 2 inform, Brier score."""
    X, y = make_classification(
        n_samples=20_000, n_features=20, n_informative=2, n_redundant=10, random_state=42
    )
    return logistic_task(X, y, lambda b, p: brier_score_loss(b, p[:, 1]))


def poisson_claims():
    """plot_poisson_regression_non_normal_loss: simulated claims per year, mean Poisson deviance."""
    rng = np.random.default_rng(0)
    n = 20_000
    X = np.hstack([rng.uniform(-1, 1, (n, 4)), np.eye(6)[rng.integers(0, 6, n)]])
    exposure = rng.uniform(0.05, 1.0, n)
    rate = np.exp(-2.0 + X @ np.concatenate([[0.6, -0.4, 0.2, 0.0], rng.normal(0, 0.3, 6)]))
    counts = rng.poisson(rate * exposure)
    A, B, a, b, s, t = split(X, counts, exposure, scaled=False)
    alpha = 1e-3

    def fit_theirs():
        return PoissonRegressor(alpha=alpha, solver="newton-cholesky").fit(
            A, a / s, sample_weight=s
        )

    def fit_ours(epsilon, **parameters):
        return DPVariationalPoissonRegression(
            epsilon,
            inference="dpvi" if epsilon < math.inf else "noise_aware",
            largest_count=5,
            n_samples=len(A),
            **parameters,
        ).fit(A, a, exposure=s)

    def score(model):
        return mean_poisson_deviance(b / t, model.predict(B), sample_weight=t)

    # scikit-learn divides by the sum of the weights
    return fit_theirs, fit_ours, score, {"prior_scale": (alpha * s.sum()) ** -0.5}


def digits_pipe():
    """plot_digits_pipe: 30 principal components of digits and a logistic regression, accuracy."""
    X, y = load_digits(return_X_y=True)
    Z = PCA(30).fit_transform(StandardScaler().fit_transform(X))
    return logistic_task(Z, y, accuracy, scaled=False)


def digits_network():
    """plot_digits_classification: a linear network instead of its SVM, accuracy."""
    X, y = load_digits(return_X_y=True)
    A, B, a, b = split(X / 16.0, y, scaled=False)

    def fit_theirs():
        return LogisticRegression(C=1.0, max_iter=1000).fit(A, a)

    def fit_ours(epsilon, **parameters):
        return DPSGDClassifier(
            epsilon, classes=range(10), n_samples=len(A), hidden_layer_sizes=(), **parameters
        ).fit(A, a)

    def score(model):
        return model.score(B, b)

    return fit_theirs, fit_ours, score, {}


EXAMPLES = {
    "classification_probability": classification_probability,
    "classification_probability, log-loss": classification_probability_log_loss,
    "bayesian_ridge_curvefit": bayesian_ridge_curvefit,
    "calibration_curve": calibration_curve,
    "poisson_claims": poisson_claims,
    "digits_pipe": digits_pipe,
    "digits_network": digits_network,
}


def timed(fit, repetitions):
    """The model, and the least time of several fits."""
    times = []
    for _ in range(repetitions):
        start = time.perf_counter()
        model = fit()
        times.append(time.perf_counter() - start)
    return model, min(times)


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    repetitions = arguments.repetitions
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", PrivacyWarning)
    warnings.simplefilter("ignore", FitWarning)
    print(
        f"{'example':<46}{'sklearn':>9}{'ε = ∞':>9}{'ε = 3':>9}{'differs':>9}"
        f"{'s, ∞':>8}{'s, 3':>8}{'ratio':>7}"
    )
    for name, make in EXAMPLES.items():
        if arguments.only not in name:
            continue
        fit_theirs, fit_ours, score, same = make()
        theirs = score(fit_theirs())
        for label, parameters in (("", same), (", defaults", {})):
            if label and not same:
                continue
            free, of_free = timed(partial(fit_ours, math.inf, **parameters), repetitions)
            private, of_private = timed(partial(fit_ours, 3.0, **parameters), repetitions)
            found = score(free)
            print(
                f"{name + label:<46}{theirs:>9.4f}{found:>9.4f}{score(private):>9.4f}"
                f"{found / theirs - 1:>+9.2%}{of_free:>8.2f}{of_private:>8.2f}"
                f"{of_free / of_private:>7.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
