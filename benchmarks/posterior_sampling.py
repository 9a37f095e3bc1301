"""Posterior samplers: power, laws, log-loss next to DPVI, and time next to scikit-learn.

    python benchmarks/posterior_sampling.py power
    python benchmarks/posterior_sampling.py laws
    SKDP_DATA=... python benchmarks/posterior_sampling.py tasks [--tasks adult ...] [--epsilons 1 3]
    python benchmarks/posterior_sampling.py time

``power`` prints the likelihood power ρ that a budget affords over that of Wang, Fienberg & Smola
(2015), who pay 4B, B = log(1 + e^RD), for a sample on the ball ‖θ‖ ≤ D. ``laws`` holds draws
against quadrature. ``tasks`` prints accuracy and log-loss on held-out rows with defaults: one and
ten samples by the Langevin sampler next to DPVI at the same (ε, δ = 1e-5), and one sample at δ = 0.
``time`` fits ten chains on 30 000 x 34, and scikit-learn's `LogisticRegression` ten times.
"""

import argparse
import time
import warnings

import numpy as np
from _tasks import TASKS, load
from scipy import stats
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

from skdp import DPVariationalLogisticRegression, OPSPosteriorSampler, PrivacyWarning
from skdp.algorithms import langevin, ops
from skdp.algorithms.tempered import TemperedPosterior
from skdp.fitting.streams import Streams
from skdp.models.likelihoods import Bernoulli
from skdp.privacy.budget import Budget
from skdp.privacy.posterior_samples import posterior_samples_range

DELTA = 1e-5
PLAIN = {"data_norm": 1.0, "fit_intercept": False}


def power():
    """Print ρ over Wang's, for the exact samplers and for Langevin chains."""
    p, n = 10, 10_000
    print("ρ over that of the 4B rule at one ε (zero-out | replace-one), δ = 1e-5, 10 columns;")
    print("Langevin with the prior scale τ = D/√10, half of whose draws fall into the ball")
    print("   R     D     ε    Wang's ρ      exact, δ=0      exact, δ=1e-5       Langevin")
    least = np.full(3, np.inf)
    for R in (0.5, 1.0, 3.0):
        for D in (1.0, 3.0, 10.0, 30.0):
            for epsilon in (0.1, 0.5, 1.0, 3.0):
                wang = epsilon / (4 * np.logaddexp(0.0, R * D))
                ratios = []
                for relation in ("zero_out", "replace_one"):
                    ball = TemperedPosterior(Bernoulli(), p, False, R, 1.0, D, relation)
                    wide = TemperedPosterior(
                        Bernoulli(), p, False, R, D / p**0.5, neighboring_relation=relation
                    )
                    etas = [
                        posterior_samples_range(epsilon=epsilon, n_samples=1, delta=d)
                        for d in (0, DELTA)
                    ]
                    ours = [ops.affordable_power(ball, eta) for eta in etas]
                    chain = langevin.configure(
                        wide, Budget(epsilon, DELTA, relation), n_rows=n, n_chains=1
                    )
                    ours.append(chain.likelihood_power)
                    # A power of 1 is the posterior itself: nobody wants more.
                    capped = [o == 1.0 for o in ours]
                    ratios.append(np.array(ours) / min(wang, 1.0))
                    least = np.minimum(least, np.where(capped, np.inf, ratios[-1]))
                shown = "   ".join(f"{a:6.2f} | {b:5.2f}" for a, b in zip(*ratios, strict=True))
                print(f"{R:4g} {D:5g} {epsilon:5g} {wang:11.4f}   {shown}")
    print(
        "least where ρ < 1: exact, δ=0 {:.2f}; exact, δ=1e-5 {:.2f}; Langevin {:.2f}".format(*least)
    )


def laws():
    """Hold draws against quadrature in one and two dimensions."""
    line = np.array([[1.0], [0.5], [-0.7], [1.0], [0.9], [1.0]])
    plane = np.array([[0.9, 0.1], [0.2, -0.8], [0.6, 0.6], [-0.5, 0.7], [1.0, 0.0]])
    print("Kolmogorov–Smirnov of rejection draws (D=2.5, τ=2, ρ=.8), least over coordinates:")
    for X, n_draws, m in ((line, 100_000, 20_001), (plane, 100_000, 3001)):
        y = (np.arange(len(X)) % 3 != 1)[:, None].astype(float)
        target = TemperedPosterior(Bernoulli(), X.shape[1], False, 1.0, 2.0, 2.5)
        config = ops.ExactConfig(target, 0.8, n_draws, len(X))
        found = []
        for keep in (slice(None), slice(1, None)):
            draws = config.run((X[keep], y[keep]), Streams()).reshape(n_draws, -1)
            found.append(min(_p_value(d, X, y, axis, m) for axis, d in enumerate(draws.T)))
        print(
            f"  {X.shape[1]}-d, {n_draws} draws: p = {found[0]:.3f}; "
            f"draws of the neighbour's posterior: p = {found[1]:.1e}"
        )
    print("Langevin, 1-d: deviation of 200 000 last states over that by quadrature, minus 1:")
    X, y = line, (np.arange(len(line)) % 3 != 1)[:, None].astype(float)
    target = TemperedPosterior(Bernoulli(), 1, False, 1.0, 2.0)
    grid = np.linspace(-12, 12, 24_001)
    density = np.exp(_log_density(grid[:, None], X, y))
    density /= density.sum()
    deviation = np.sqrt(density @ grid**2 - (density @ grid) ** 2)
    longest = 2 / (2 * target.prior_precision + 0.8 * target.curvature(len(X)))
    for fraction in (0.99, 0.5, 0.25, 0.1, 0.03):
        h = fraction * longest
        passes = int(np.ceil(8 / (h * target.prior_precision)))
        config = langevin.LangevinConfig(target, 0.8, len(X), 200_000, h, passes)
        draws = config.run((X, y), Streams()).ravel()
        mean = (draws.mean() - density @ grid) / deviation
        print(
            f"  h = {fraction:4g} of the longest: {draws.std() / deviation - 1:+.4f} ± .0016, "
            f"mean off by {mean:+.4f} ± .0022 deviations"
        )


def _log_density(theta, X, y):
    loss = Bernoulli().loss(np.einsum("nd,sd->sn", X, theta)[..., None], y[None])
    return -0.8 * loss.sum(1) - (theta**2).sum(1) / 8


def _p_value(draws, X, y, axis, m):
    grid = np.linspace(-2.5, 2.5, m)
    if X.shape[1] == 1:
        marginal = np.exp(_log_density(grid[:, None], X, y))
    else:
        marginal = np.zeros(m)
        for i, value in enumerate(grid):  # a chord of the disc at a time
            half = np.sqrt(max(2.5**2 - value**2, 0.0))
            chord = np.linspace(-half, half, 801)
            theta = np.stack([np.full(801, value), chord], axis=1)[:, :: (1 if axis == 0 else -1)]
            marginal[i] = np.trapezoid(np.exp(_log_density(theta, X, y)), chord) if half else 0.0
    mass = np.concatenate([[0.0], np.cumsum((marginal[1:] + marginal[:-1]) / 2)])
    return stats.kstest(draws, lambda t: np.interp(t, grid, mass / mass[-1])).pvalue


def _load(task):
    if task != "breast_cancer_4":
        return load(task)
    features, y = load_breast_cancer(return_X_y=True)
    Z = features[:, :4]
    Z = np.clip((Z - Z.mean(0)) / Z.std(0), -4, 4)
    rows = np.hstack([np.ones((len(Z), 1)), Z])
    rows *= np.minimum(1, np.sqrt(5) / np.linalg.norm(rows, axis=1))[:, None]
    return rows / np.sqrt(5), y


def tasks(names, epsilons, splits, kinds):
    """Print accuracy, log-loss and seconds, per task and ε."""
    makers = {
        "dpvi": lambda e: DPVariationalLogisticRegression(e, DELTA, **PLAIN),
        "one": lambda e: OPSPosteriorSampler(e, DELTA, **PLAIN),
        "ten": lambda e: OPSPosteriorSampler(e, DELTA, n_posterior_samples=10, **PLAIN),
        "pure": lambda e: OPSPosteriorSampler(e, 0, **PLAIN),
    }
    print("accuracy log-loss seconds, mean over splits (± standard error of the log-loss)")
    print("task               ε   " + "".join(f"{kind:<34}" for kind in kinds))
    for name in names:
        X, y = _load(name)
        for epsilon in epsilons:
            cells = []
            for kind in kinds:
                found = []
                for seed in range(splits or (10 if len(X) < 5000 else 3)):
                    A, B, a, b = train_test_split(
                        X, y, test_size=0.3, random_state=seed, stratify=y
                    )
                    start = time.perf_counter()
                    model = makers[kind](epsilon).fit(A, a)
                    seconds = time.perf_counter() - start
                    loss = log_loss(b, model.predict_proba(B))
                    found.append([model.score(B, b), loss, seconds])
                mean = np.mean(found, axis=0)
                error = np.std(found, axis=0)[1] / np.sqrt(max(len(found) - 1, 1))
                cells.append(f"{mean[0]:.4f} {mean[1]:.4f} ± {error:.4f} {mean[2]:7.2f}s")
            print(
                f"{name:<16}{epsilon:>5g}   " + "    ".join(f"{c:<30}" for c in cells), flush=True
            )


def timing():
    """Print seconds of ten chains and of ten fits of scikit-learn, interleaved."""
    try:
        X, y = load("credit")
    except SystemExit:
        coin = np.random.default_rng(0)
        X = coin.uniform(-1, 1, (30_000, 34)) / 34**0.5
        y = coin.random(30_000) < 1 / (1 + np.exp(-20 * X[:, 0]))
    for epsilon in (0.1, 1.0, 3.0):
        ours, theirs = [], []
        for _ in range(3):
            start = time.perf_counter()
            sampler = OPSPosteriorSampler(epsilon, n_posterior_samples=10, **PLAIN).fit(X, y)
            ours.append(time.perf_counter() - start)
            start = time.perf_counter()
            for _ in range(10):
                LogisticRegression(fit_intercept=False).fit(X, y)
            theirs.append(time.perf_counter() - start)
        ratio = np.median(ours) / np.median(theirs)
        print(
            f"ε = {epsilon:g}: {X.shape[0]} x {X.shape[1]}, ten chains of {sampler.n_iter_} passes "
            f"{np.median(ours):.2f} s, ten fits {np.median(theirs):.2f} s, ratio {ratio:.2f}"
        )


def main():
    """Run one part."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=["power", "laws", "tasks", "time"])
    known = ["breast_cancer_4", *TASKS]
    parser.add_argument("--tasks", nargs="+", default=known, choices=known)
    parser.add_argument("--epsilons", nargs="+", type=float, default=[0.1, 0.5, 1, 3, 10])
    parser.add_argument("--splits", type=int, help="default: 10 below 5000 rows, else 3")
    kinds = ["dpvi", "one", "ten", "pure"]
    parser.add_argument("--kinds", nargs="+", default=kinds, choices=kinds)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", PrivacyWarning)
    if arguments.part == "tasks":
        tasks(arguments.tasks, arguments.epsilons, arguments.splits, arguments.kinds)
    else:
        {"power": power, "laws": laws, "time": timing}[arguments.part]()


if __name__ == "__main__":
    main()
