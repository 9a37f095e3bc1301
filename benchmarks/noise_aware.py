"""The noise-aware posterior of `DPVariationalLogisticRegression`: coverage, utility, cost.

    python benchmarks/noise_aware.py coverage [--repetitions 200]
    python benchmarks/noise_aware.py learned [--scales hyperprior 1 3 10] [--rows ...]
    python benchmarks/noise_aware.py widths
    python benchmarks/noise_aware.py start
    SKDP_DATA=... python benchmarks/noise_aware.py tasks [--tasks ...] [--oracle FILE --peer FILE]
    SKDP_DATA=... python benchmarks/noise_aware.py inference
    python benchmarks/noise_aware.py separable [--tables ...] [--repetitions 20]
    python benchmarks/noise_aware.py robust [--repetitions 100]
    python benchmarks/noise_aware.py narrow [--repetitions 40]
    python benchmarks/noise_aware.py softmax
    python benchmarks/noise_aware.py time

``learned`` leaves the scale of the prior to the fit: τ is drawn from a half-normal law of scale 4,
or fixed, and θ ~ N(0, τ² I). Beside the coordinates, intervals are looked at of a contrast θ₀ − θ₁,
of the probability at a new row, and the ranks of θ₀ in its posterior, in ten bins. Rows are normal,
correlated as AR(1), log-normal, or one-hot at 5 %. Widths are over those without privacy of the
first 100 data sets; ``sd/τ`` is the posterior's over the prior's.

``coverage`` draws θ ~ N(0, 9 I) and rows of norm ≤ 1, and counts how often central intervals of
each coordinate hold it. ``start`` does so from several initial scales. ``tasks`` is the protocol of
`logistic.py` with its intercept column dropped. ``inference`` sets aligned beside vanilla gradients
and diagonal with full covariances. δ = 1e-5 throughout.

``robust`` fits models that are wrong, with and without robust widths, and counts how often 90 %
intervals hold the pseudo-true θ* of the fit: the root of the expected score with the weights of
that fit, E w(θ)(y − σ(θ·x)) x = 0 with w = min(1, C/(‖x‖ max(σ, 1 − σ))), x with its intercept and
C = ``clip_norm_``. The mean over y is exact, that over x is of 100 000 rows. Widths are over those
of the sandwich H⁻¹VH⁻¹ of the ordinary score without privacy or weights, at θ*, on these rows.

``narrow`` has ten columns in [-1, 1], the first of which varies little about its centre, as a count
does under a generous bound: its coefficient is 1, another one is 0.5, and eight are 0. How often do
90 % intervals hold the first, with the prior scale given and left to the fit?
"""

import argparse
import json
import math
import time
import warnings
from itertools import product

import numpy as np
from scipy.special import expit
from scipy.stats import chisquare, norm
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

from skdp import (
    DPVariationalLinearRegression,
    DPVariationalLogisticRegression,
    DPVariationalPoissonRegression,
    FitWarning,
    PrivacyWarning,
)
from skdp.metrics import expected_calibration_error

EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0, math.inf)
TASK_EPSILONS = (0.1, 0.5, 1.0, 3.0, 10.0)
LEVELS = np.array([0.5, 0.8, 0.9, 0.95])
PRIOR_SCALE = 3.0
MOST_EXACT = 100
HYPER_SCALE = 4.0  # of the half-normal law of τ in ``learned``


def simulated(n, d, rng):
    """Rows of norm ≤ 1, parameters from the prior and labels from the model."""
    X = rng.normal(size=(n, d)) / math.sqrt(d)
    X *= np.minimum(1.0, 1.0 / np.linalg.norm(X, axis=1))[:, None]
    theta = PRIOR_SCALE * rng.normal(size=d)
    return X, (rng.random(n) < expit(X @ theta)).astype(int), theta


def fitted(X, y, epsilon, **settings):
    """Fit with the declared facts of a simulation."""
    model = DPVariationalLogisticRegression(
        epsilon,
        data_norm=1.0,
        fit_intercept=False,
        prior_scale=PRIOR_SCALE,
        classes=[0, 1],
        n_samples=len(X),
        **settings,
    )
    return model.fit(X, y)


def study(n, d, epsilon, repetitions, **settings):
    """Coverage at each level, and mean width, of marginal intervals."""
    quantiles, hits, widths = norm.ppf((1 + LEVELS) / 2), [], []
    for seed in range(repetitions):
        X, y, theta = simulated(n, d, np.random.default_rng(seed))
        model = fitted(X, y, epsilon, **settings)
        deviation = np.sqrt(np.diag(model.covariance_))
        off = np.abs(theta - model.coef_.ravel()) / deviation
        hits.append((off[:, None] < quantiles).mean(axis=0))
        widths.append(deviation.mean())
    return np.mean(hits, axis=0), np.std(hits, axis=0) / math.sqrt(repetitions), np.mean(widths)


def table(cells, repetitions, epsilons, settings):
    """Print a line for each cell; widths are over the non-private ones of the same data."""
    print(f"coverage of 50/80/90/95 % intervals, {repetitions} repetitions (plain and without")
    print("privacy: at most 40), and mean width over that without privacy")
    for n, d in cells:
        *_, reference = study(n, d, math.inf, min(repetitions, 40))
        for name, chosen in settings.items():
            for epsilon in epsilons:
                few = epsilon == math.inf or chosen.get("inference") == "dpvi"
                count = min(repetitions, 40) if few else repetitions
                cover, error, width = study(n, d, epsilon, count, **chosen)
                shown = "  ".join(f"{100 * c:5.1f}" for c in cover)
                print(
                    f"n={n:<6}d={d:<3}{name:<13}epsilon={epsilon:<5g} {shown}"
                    f"   (± {100 * error[2]:.1f} at 90)   width {width / reference:.2f}",
                    flush=True,
                )


def coverage(arguments):
    """Plain against noise-aware."""
    cells = [(1000, 5), (10_000, 10), (10_000, 30)]
    if arguments.cells:
        cells = [tuple(map(int, cell.split(","))) for cell in arguments.cells]
    settings = {"noise-aware": {}, "plain": {"inference": "dpvi"}}
    table(cells, arguments.repetitions, EPSILONS, settings)


ROWS = {
    "normal": lambda rng, shape: rng.normal(size=shape),
    "AR .7": lambda rng, shape: autoregressive(rng, shape, 0.7),
    "AR .95": lambda rng, shape: autoregressive(rng, shape, 0.95),
    "log-normal": lambda rng, shape: np.expm1(rng.normal(size=shape)) / 2,
    "one-hot": lambda rng, shape: 2.0 * (rng.random(shape) < 0.05),
}


def autoregressive(rng, shape, correlation):
    """Rows whose columns j, k have correlation^|j − k|."""
    powers = correlation ** np.abs(np.subtract.outer(range(shape[1]), range(shape[1])))
    return rng.normal(size=shape) @ np.linalg.cholesky(powers).T


def learned_cell(kind, scale, n, d, epsilons, repetitions):
    """For each ε: hits of coordinates, contrast and probability, ranks, deviations and those at ∞.

    Fits at ε = ∞ are made of the first `MOST_EXACT` data sets.
    """
    quantiles = norm.ppf((1 + LEVELS) / 2)
    found = {epsilon: ([], [], []) for epsilon in epsilons}
    for seed in range(repetitions):
        rng = np.random.default_rng([seed, n, d, 21])
        rows = ROWS[kind](rng, (n + 1, d)) / math.sqrt(d)
        rows *= np.minimum(1.0, 1.0 / np.maximum(np.linalg.norm(rows, axis=1), 1e-9))[:, None]
        tau = abs(rng.normal()) * HYPER_SCALE if scale == "hyperprior" else float(scale)
        theta = tau * rng.normal(size=d)
        X, new = rows[:n], rows[n]
        y = (rng.random(n) < expit(X @ theta)).astype(int)
        asked = np.vstack([np.eye(d), np.eye(d)[0] - np.eye(d)[1], new])
        exact = learned_fit(X, y, math.inf) if seed < MOST_EXACT else None
        for epsilon, (hits, ranks, deviations) in found.items():
            model = learned_fit(X, y, epsilon)
            off = asked @ (theta - model.coef_.ravel())
            squares = np.einsum("ij,jk,ik->i", asked, model.covariance_, asked)
            spread = np.sqrt(np.maximum(squares, 1e-300))
            hits.append(np.abs(off / spread)[:, None] < quantiles)
            ranks.append(norm.cdf(off[0] / spread[0]))
            if exact is not None:
                each = [np.sqrt(np.diag(m.covariance_)).mean() for m in (model, exact)]
                deviations.append([*each, tau])
    return {epsilon: [np.array(part) for part in parts] for epsilon, parts in found.items()}


def learned_fit(X, y, epsilon):
    """A fit that learns the scale of the prior."""
    return DPVariationalLogisticRegression(
        epsilon, data_norm=1.0, fit_intercept=False, classes=[0, 1], n_samples=len(X)
    ).fit(X, y)


def learned(arguments):
    """Coverage, ranks and widths where the fit infers the scale of the prior."""
    cells = [(1000, 5), (10_000, 10), (10_000, 30)]
    if arguments.cells:
        cells = [tuple(map(int, cell.split(","))) for cell in arguments.cells]
    print("coverage of 50/80/90/95 % intervals of coordinates, and 90 % ones of contrast and of")
    print("probability; χ² of ranks in 10 bins; sd over that at ε = ∞, and over τ")
    for scale, kind, (n, d) in product(arguments.scales, arguments.rows, cells):
        epsilons, began = arguments.epsilons or EPSILONS, time.perf_counter()
        found = learned_cell(kind, scale, n, d, epsilons, arguments.repetitions)
        seconds = (time.perf_counter() - began) / arguments.repetitions
        for epsilon, (hits, ranks, sd) in found.items():
            shown = "  ".join(f"{100 * c:5.1f}" for c in hits[:, :d].mean(axis=(0, 1)))
            error = 100 * hits[:, :d, 2].mean(axis=1).std() / math.sqrt(len(hits))
            p = chisquare(np.histogram(ranks, 10, (0, 1))[0]).pvalue
            print(
                f"{kind} τ {scale} n={n} d={d} epsilon={epsilon:g}  {shown} (± {error:.1f})"
                f"  {100 * hits[:, d, 2].mean():.0f} {100 * hits[:, d + 1, 2].mean():.0f}"
                f"  ranks p={p:.3f}  width {np.mean(sd[:, 0]) / np.mean(sd[:, 1]):.2f}"
                f"  sd/τ {np.mean(sd[:, 0] / sd[:, 2]):.2f}",
                flush=True,
            )
        print(f"    {seconds:.2f} s per data set", flush=True)


def widths(arguments):
    """5000 rows of 5 features."""
    table([(5000, 5)], arguments.repetitions, (0.1, 0.3, 1.0, 3.0, 10.0), {"noise-aware": {}})


def start(arguments):
    """The noise-aware inference has no initial scale; that of plain DPVI matters."""
    from unittest import mock

    from skdp.algorithms import dp_vi

    for scale in (0.02, 0.1, 0.4):
        with mock.patch.object(dp_vi, "default_initial_scale", lambda *_, scale=scale: scale):
            print(f"initial scale {scale}")
            settings = {"noise-aware": {}, "plain": {"inference": "dpvi"}}
            table([(5000, 5)], min(arguments.repetitions, 50), (1.0,), settings)


def entropy(y):
    """Log-loss of the class frequencies."""
    p = np.mean(y)
    return -p * math.log(p) - (1 - p) * math.log(1 - p)


def splits(X, y, count):
    """Train and test rows."""
    for seed in range(count):
        yield train_test_split(X, y, test_size=0.3, random_state=seed, stratify=y)


def tasks(arguments):
    """Held-out log-loss, ECE and time of the defaults; against other files of results if given."""
    from _tasks import TASKS, load

    others = {}
    if arguments.oracle and arguments.peer:
        with open(arguments.oracle) as oracle, open(arguments.peer) as peer:
            others = {"oracle": json.load(oracle)["tasks"], "peer": json.load(peer)["tasks"]}
    good = cells = 0
    for task in arguments.tasks or [t for t in TASKS if t != "breast_cancer"]:
        X, y = load(task)
        R = 1.0 / X[0, 0]
        features, data_norm = X[:, 1:] * R, math.sqrt(R**2 - 1)
        line = []
        for epsilon in TASK_EPSILONS:
            losses, errors = [], []
            for A, B, a, b in splits(features, y, 10 if len(X) < 5000 else 3):
                model = DPVariationalLogisticRegression(epsilon, data_norm=data_norm).fit(A, a)
                proba = model.predict_proba(B)
                losses.append(log_loss(b, proba))
                errors.append(expected_calibration_error(b, proba))
            loss, error = np.mean(losses), np.mean(errors)
            mark = ""
            if others:
                known = others["peer"][task]
                best = min(
                    others["oracle"][task][f"eps{epsilon:g}"]["logloss"],
                    *(known[f"dpl_C{c}_eps{epsilon:g}"][1] for c in (1, 100)),
                )
                good, cells = good + (loss <= best + 0.005), cells + 1
                mark = f" ({loss - best:+.3f})"
            mark += "!" if loss > entropy(y) + 0.01 else ""
            line.append(f"{loss:.3f}{mark} ece {error:.3f}")
        print(f"{task:<10} entropy {entropy(y):.3f}  " + " | ".join(line), flush=True)
    if cells:
        print(f"{good} of {cells} cells within .005 of the better of the two files")


def halves(name, X, y, data_norm):
    """A source of train and test rows, of a fixed table."""

    def split(seed):
        A, B, a, b = train_test_split(X, y, test_size=0.3, random_state=seed, stratify=y)
        return A, a, B, b, data_norm

    return name, split


def clusters(n, d, gap, one_hot):
    """Two normal classes whose means are 2·gap deviations apart, and one-hot columns beside."""

    def split(seed):
        rng = np.random.default_rng([seed, n, d])
        u = np.random.default_rng([n, d]).normal(size=d - one_hot)
        y = (rng.random(2 * n) < 0.5).astype(int)
        Z = rng.normal(size=(2 * n, d - one_hot))
        Z += gap * np.where(y[:, None] == 1, 1, -1) * u / np.linalg.norm(u)
        Z = np.clip(Z / 4, -1, 1)
        if one_hot:
            shares = np.random.default_rng([n, d]).dirichlet(np.ones(one_hot), size=2)
            code = np.where(y == 1, *(rng.choice(one_hot, 2 * n, p=p) for p in shares))
            Z = np.column_stack([Z, np.eye(one_hot)[code]])
        return Z[:n], y[:n], Z[n:], y[n:], math.sqrt(d - one_hot + bool(one_hot))

    return f"clusters n={n} d={d} one-hot {one_hot}", split


def separable_tables():
    """Breast cancer, pairs of digits, wine, and simulations with a Bayes error of .1 to 2 %."""
    X, y = load_breast_cancer(return_X_y=True)
    Z = np.clip((X - X.mean(axis=0)) / X.std(axis=0) / 4, -1, 1)
    yield halves("breast cancer", Z, y, math.sqrt(30))
    X, y = load_digits(return_X_y=True)
    for pair in ((0, 1), (2, 3), (4, 5), (6, 7), (8, 9), (1, 7), (3, 8), (4, 9), (5, 6), (3, 5)):
        of_pair = np.isin(y, pair)
        yield halves(f"digits {pair}", X[of_pair] / 16, (y[of_pair] == pair[1]).astype(int), 6.0)
    X, y = load_wine(return_X_y=True)
    Z = np.clip((X - X.mean(axis=0)) / X.std(axis=0) / 3, -1, 1)
    for label in range(3):
        yield halves(f"wine {label}", Z, (y == label).astype(int), 2.2)
    for n, d, gap, one_hot in (
        (500, 4, 2.4, 0),
        (1000, 10, 2.1, 0),
        (2000, 30, 2.6, 0),
        (5000, 20, 2.3, 10),
        (10_000, 10, 3.0, 0),
        (10_000, 100, 2.2, 60),
    ):
        yield clusters(n, d, gap, one_hot)


def separable(arguments):
    """Held-out log-loss of the default, against the best of four chosen on the test rows."""
    others = {"dpvi": {"inference": "dpvi"}} | {f"{t}/R": {"prior_scale": t} for t in (3, 10, 30)}
    good = cells = 0
    for name, split in separable_tables():
        if arguments.tables and not any(part in name for part in arguments.tables):
            continue
        line = []
        for epsilon in (0.5, 1.0, 3.0, 10.0):
            losses = {setting: [] for setting in ("default", *others)}
            for seed in range(arguments.repetitions):
                A, a, B, b, data_norm = split(seed)
                for setting, found in losses.items():
                    given = dict(others.get(setting, {}))
                    if "prior_scale" in given:
                        given["prior_scale"] /= math.sqrt(data_norm**2 + 1)
                    model = DPVariationalLogisticRegression(epsilon, data_norm=data_norm, **given)
                    model.set_params(classes=[0, 1], n_samples=len(A)).fit(A, a)
                    found.append(log_loss(b, model.predict_proba(B), labels=[0, 1]))
            means = {setting: np.mean(found) for setting, found in losses.items()}
            loss = means.pop("default")
            best = min(means, key=means.get)
            good, cells = good + (loss <= means[best] + 0.01), cells + 1
            line.append(f"{loss:.3f} ({loss - means[best]:+.3f} to {best})")
        print(f"{name:<34}" + " | ".join(line), flush=True)
    print(f"{good} of {cells} cells within .01 of the best of {', '.join(others)}")


def inference(arguments):
    """Aligned and vanilla gradients, diagonal and full covariances: held-out log-loss."""
    from _tasks import load

    settings = {
        "noise-aware": {},
        "noise-aware, diag": {"covariance": "diag"},
        "aligned, diag": {"inference": "dpvi"},
        "vanilla, diag": {"inference": "dpvi", "gradient": "vanilla"},
        "aligned, full": {"inference": "dpvi", "covariance": "full"},
    }
    for task in arguments.tasks or ("pima", "abalone", "spambase", "magic"):
        X, y = load(task)
        for name, chosen in settings.items():
            line = []
            for epsilon in TASK_EPSILONS:
                losses = []
                for A, B, a, b in splits(X, y, 5 if len(X) < 5000 else 2):
                    model = DPVariationalLogisticRegression(
                        epsilon, data_norm=1.0, fit_intercept=False, **chosen
                    ).fit(A, a)
                    losses.append(log_loss(b, model.predict_proba(B)))
                line.append(f"{np.mean(losses):.3f}")
            print(f"{task:<10}{name:<19}" + " / ".join(line), flush=True)


def heteroscedastic(z, X):
    """A normal effect per row, of deviation 2√d|x₀|, in the logit."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(31)
    spread = 2 * math.sqrt(X.shape[1]) * np.abs(X[:, :1])
    return expit(z[:, None] + spread * nodes) @ (weights / weights.sum())


# P(y = 1 | x), by the linear logit z and the features.
WRONG = {
    "none": lambda z, X: expit(z),
    "heteroscedastic": heteroscedastic,
    "interaction": lambda z, X: expit(z + 1.5 * X.shape[1] * X[:, 0] * X[:, 1]),
    "cauchit": lambda z, X: 0.5 + np.arctan(z) / math.pi,
    "log-log": lambda z, X: -np.expm1(-np.exp(np.minimum(z, 30.0))),
    "2 % labels": lambda z, X: 0.98 * expit(z) + 0.02 * expit(-z),
    "2 % rows": lambda z, X: expit(z),
}


def misspecified(kind, n, theta, rng):
    """Rows with an intercept, and the probabilities of their labels."""
    d = len(theta) - 1
    X = rng.normal(size=(n, d)) / math.sqrt(d)
    X *= np.minimum(1.0, 1.0 / np.linalg.norm(X, axis=1))[:, None]
    p = WRONG[kind](X @ theta[:d] + theta[d], X)
    if kind == "2 % rows":  # as far out as they may be, with the label that is least likely there
        out = rng.random(n) < 0.02
        X[out], p[out] = theta[:d] / np.linalg.norm(theta[:d]), 0.0
    return np.column_stack([X, np.ones(n)]), p


def pseudo_true(X, p, clip_norm, theta):
    """Root of the mean weighted score, from θ, by Newton's method with the slope for a true p."""
    norms = np.linalg.norm(X, axis=1)
    for _ in range(100):
        q = expit(X @ theta)
        w = np.minimum(1.0, clip_norm / (norms * np.maximum(q, 1 - q)))
        step = np.linalg.solve((X.T * (w * q * (1 - q))) @ X, X.T @ (w * (p - q)))
        theta = theta + step * min(1.0, 2.0 / np.linalg.norm(step))
        if np.abs(step).max() < 1e-4:
            return theta
    raise ArithmeticError("no root of the weighted score")


def sandwich(X, p, theta, n):
    """Deviations of the root of the ordinary score on n rows."""
    q = expit(X @ theta)
    H = np.linalg.inv((X.T * (q * (1 - q))) @ X)
    V = (X.T * (p * (1 - q) ** 2 + (1 - p) * q**2)) @ X
    return np.sqrt(np.diag(H @ V @ H) * len(X) / n)


def robust_cell(kind, n, d, epsilon, repetitions):
    """Hits and relative widths, each (2, repetitions, d + 1): without and with robust widths."""
    hits, widths = [], []
    for seed in range(repetitions):
        rng = np.random.default_rng([seed, n, d])
        theta = np.append(PRIOR_SCALE * rng.normal(size=d), rng.normal())
        X, p = misspecified(kind, n, theta, rng)
        y = (rng.random(n) < p).astype(int)
        large = misspecified(kind, 100_000, theta, rng)
        models = [
            DPVariationalLogisticRegression(
                epsilon, data_norm=1.0, classes=[0, 1], n_samples=n, robust=chosen
            ).fit(X[:, :d], y)
            for chosen in (False, True)
        ]
        found = pseudo_true(*large, models[0].clip_norm_, theta)  # one clip for both
        reference = sandwich(*large, found, n)
        for model in models:
            deviation = np.sqrt(np.diag(model.covariance_))
            off = np.abs(np.append(model.coef_.ravel(), model.intercept_) - found)
            hits.append(off < norm.ppf(0.95) * deviation)
            widths.append(deviation / reference)
    shape = (repetitions, 2, d + 1)
    return [np.reshape(part, shape).swapaxes(0, 1) for part in (hits, widths)]


def robust(arguments):
    """Coverage of the pseudo-true parameter, and widths over the sandwich without privacy."""
    cells = {(10_000, 10): (0.3, 1.0, 3.0), (1000, 5): (1.0, 3.0)}
    if arguments.cells:
        chosen = [tuple(map(int, cell.split(","))) for cell in arguments.cells]
        cells = {cell: cells.get(cell, (0.3, 1.0, 3.0)) for cell in chosen}
    for (n, d), usual in cells.items():
        epsilons = arguments.epsilons or usual
        for kind in arguments.kinds or WRONG:
            for epsilon in epsilons:
                hits, widths = robust_cell(kind, n, d, epsilon, arguments.repetitions)
                line = f"n={n:<6}d={d:<3}{kind:<16}epsilon={epsilon:<5g}"
                for name, hit, width in zip(("plain", "robust"), hits, widths, strict=True):
                    error = hit.mean(axis=1).std() / math.sqrt(len(hit))
                    line += f"  {name} {100 * hit.mean():5.1f} ± {100 * error:.1f}"
                    line += f" (intercept {100 * hit[:, d].mean():3.0f}) width {width.mean():.2f}"
                print(line, flush=True)


NARROW = ((20_000, -0.8, 0.1), (20_000, 0.0, 0.1), (20_000, -0.8, 0.2), (100_000, -0.8, 0.1))


def narrow_cell(kind, n, centre, spread, epsilon, prior_scale, repetitions):
    """Errors of the first coefficient over its deviations, and these."""
    off, deviations = [], []
    for seed in range(repetitions):
        rng = np.random.default_rng([seed, n, 22])
        X = rng.uniform(-1, 1, (n, 10))
        X[:, 0] = np.clip(centre + spread * rng.standard_normal(n), -1, 1)
        logits = X[:, 0] + 0.5 * X[:, 1] - 0.2
        told = {"n_samples": n, "prior_scale": prior_scale}
        if kind == "logistic":
            y = (rng.random(n) < expit(logits)).astype(int)
            model = DPVariationalLogisticRegression(epsilon, classes=[0, 1], **told)
        elif kind == "Poisson":
            y = np.minimum(rng.poisson(np.exp(logits)), 20)
            model = DPVariationalPoissonRegression(epsilon, largest_count=20, **told)
        else:
            y = logits + 0.3 * rng.standard_normal(n)
            model = DPVariationalLinearRegression(epsilon, target_bounds=(-5, 5), **told)
        model.fit(X, y)
        deviations.append(math.sqrt(model.covariance_[0, 0]))
        off.append((np.ravel(model.coef_)[0] - 1.0) / deviations[-1])
    return np.array(off), np.array(deviations)


def narrow(arguments):
    """Intervals of a column that varies little within its bounds."""
    for kind in ("logistic", "Poisson", "linear"):
        for prior_scale in (3.0, "auto"):
            for n, centre, spread in NARROW:
                for epsilon in arguments.epsilons or (1.0,):
                    off, deviations = narrow_cell(
                        kind, n, centre, spread, epsilon, prior_scale, arguments.repetitions
                    )
                    held = 100 * np.mean(np.abs(off) < norm.ppf(0.95))
                    print(
                        f"{kind} prior_scale={prior_scale} n={n} {centre} ± {spread} "
                        f"epsilon={epsilon:g}  held {held:.0f} %  median error {np.median(off):.1f}"
                        f" deviations of {np.median(deviations):.2f}",
                        flush=True,
                    )


def softmax(arguments):
    """Digits (features over 16) and wine (standardised over 3, cut at ±1), and coverage."""
    digits, wine = load_digits(return_X_y=True), load_wine(return_X_y=True)
    Z = np.clip((wine[0] - wine[0].mean(axis=0)) / wine[0].std(axis=0) / 3, -1, 1)
    for name, (X, y, data_norm) in {
        "digits": (digits[0] / 16, digits[1], 6.0),
        "wine": (Z, wine[1], 2.2),
    }.items():
        for epsilon in (0.5, 1.0, 3.0, 10.0):
            line = []
            for chosen in ("noise_aware", "dpvi"):
                found = []
                for A, B, a, b in splits(X, y, 10):
                    model = DPVariationalLogisticRegression(
                        epsilon, inference=chosen, data_norm=data_norm
                    ).fit(A, a)
                    found.append((model.score(B, b), log_loss(b, model.predict_proba(B))))
                accuracy, loss = np.mean(found, axis=0)
                line.append(f"{chosen} {accuracy:.3f}/{loss:.3f}")
            print(f"{name:<8}epsilon={epsilon:<5g}" + "   ".join(line), flush=True)
    for n, d, n_classes in ((1000, 5, 3), (10_000, 10, 10)):
        repetitions = max(1, arguments.repetitions * 3 // n_classes**2)
        for epsilon in (0.5, 1.0, 3.0, 10.0):
            cover, error = softmax_coverage(n, d, n_classes, epsilon, repetitions)
            shown = "  ".join(f"{100 * c:5.1f}" for c in cover)
            print(
                f"n={n:<6}d={d:<3}classes={n_classes:<3}epsilon={epsilon:<5g} {shown}"
                f"   (± {100 * error[2]:.1f} at 90)",
                flush=True,
            )


def softmax_coverage(n, d, n_classes, epsilon, repetitions):
    """Coverage of the coefficients less their mean over classes, θ from the prior."""
    quantiles, hits = norm.ppf((1 + LEVELS) / 2), []
    contrasts = np.kron(np.eye(n_classes) - 1 / n_classes, np.eye(d))
    for seed in range(repetitions):
        rng = np.random.default_rng(seed)
        X, _, _ = simulated(n, d, rng)
        theta = PRIOR_SCALE * rng.normal(size=(n_classes, d))
        y = np.argmax(X @ theta.T + rng.gumbel(size=(n, n_classes)), axis=1)
        model = DPVariationalLogisticRegression(
            epsilon,
            data_norm=1.0,
            fit_intercept=False,
            prior_scale=PRIOR_SCALE,
            classes=range(n_classes),
            n_samples=n,
        ).fit(X, y)
        off = np.abs(contrasts @ (theta - model.coef_).ravel())
        deviation = np.sqrt(np.diag(contrasts @ model.covariance_ @ contrasts))
        hits.append((off[:, None] < quantiles * deviation[:, None]).mean(axis=0))
    return np.mean(hits, axis=0), np.std(hits, axis=0) / math.sqrt(repetitions)


def times(arguments):
    """Seconds of a fit: noise-aware, plain, and scikit-learn's without privacy."""
    for n, d in ((1000, 5), (10_000, 10), (10_000, 30), (34_000, 107)):
        X, y, _ = simulated(n, d, np.random.default_rng(0))
        fits = {
            "noise-aware": lambda X=X, y=y: fitted(X, y, 1.0),
            "plain": lambda X=X, y=y: fitted(X, y, 1.0, inference="dpvi"),
            "scikit-learn": lambda X=X, y=y: LogisticRegression(C=9.0).fit(X, y),
        }
        best = dict.fromkeys(fits, math.inf)
        for _ in range(7):
            for name, fit in fits.items():
                began = time.perf_counter()
                fit()
                best[name] = min(best[name], time.perf_counter() - began)
        shown = "  ".join(f"{name} {1e3 * seconds:.0f} ms" for name, seconds in best.items())
        print(f"n={n:<6}d={d:<4}{shown}  ratio {best['noise-aware'] / best['plain']:.2f}")


PARTS = {
    "coverage": coverage,
    "learned": learned,
    "widths": widths,
    "start": start,
    "tasks": tasks,
    "separable": separable,
    "inference": inference,
    "robust": robust,
    "narrow": narrow,
    "softmax": softmax,
    "time": times,
}


def main():
    """Run one part."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--repetitions", type=int, default=200)
    parser.add_argument("--cells", nargs="*", help="n,d pairs instead of the three")
    parser.add_argument("--tasks", nargs="*")
    parser.add_argument("--tables", nargs="*", help="parts of the names of separable tables")
    parser.add_argument("--kinds", nargs="*", choices=WRONG, help="how models are wrong")
    parser.add_argument("--epsilons", nargs="*", type=float, help="instead of the usual")
    parser.add_argument("--scales", nargs="*", default=["hyperprior"], help="of the prior")
    parser.add_argument("--rows", nargs="*", default=["normal"], choices=ROWS)
    parser.add_argument("--oracle", help="JSON of log-losses that were tuned on the test split")
    parser.add_argument("--peer", help="JSON of a peer's log-losses")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", PrivacyWarning)
    warnings.simplefilter("ignore", FitWarning)
    PARTS[arguments.part](arguments)


if __name__ == "__main__":
    main()
