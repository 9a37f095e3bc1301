"""Private additive models: bands on simulated curves, and log-loss against the linear model.

    python benchmarks/additive.py bands [--repetitions 20]
    python benchmarks/additive.py time

``bands``: five features, uniform in [-1, 1], of which one is linear, one a step, one a bump, one a
wave, and one has no effect. How often 90 % intervals of bins hold the truth, over the whole curve
and in the worst fifth of it; how often simultaneous bands hold a whole curve; and how often that of
the deviation holds 0 where there is none.

``time``: 20 features with 20 bins each.
"""

import argparse
import time
import warnings

import numpy as np
from scipy.special import expit

from skdp import DPAdditiveClassifier, FitWarning, PrivacyWarning

TRUTHS = {
    "linear": lambda x: 1.5 * x,
    "step": lambda x: np.where(x > 0.2, 1.0, -1.0),
    "bump": lambda x: 2.0 * np.exp(-((x / 0.25) ** 2)),
    "wave": lambda x: np.sin(4.0 * x),
    "flat": lambda x: 0.0 * x,
}
DELTA, LEVEL = 1e-5, 0.9


def truth_of_bins(function, edges):
    """Mean of a curve in each bin, less the mean over all bins."""
    fine = edges[:-1, None] + np.diff(edges)[:, None] * (np.arange(50) + 0.5) / 50
    found = function(fine).mean(axis=1)
    return found - found.mean()


def bands(arguments):
    """Coverage."""
    for n in (2000, 10_000, 50_000):
        for epsilon in (0.5, 1.0, 3.0):
            hits = {name: [] for name in TRUTHS}
            whole = {name: [] for name in TRUTHS}
            widths, flat = [], []
            for seed in range(arguments.repetitions):
                rng = np.random.default_rng([seed, n])
                X = rng.uniform(-1, 1, (n, len(TRUTHS)))
                logits = sum(f(X[:, j]) for j, f in enumerate(TRUTHS.values()))
                y = (rng.random(n) < expit(logits - 0.5)).astype(int)
                model = DPAdditiveClassifier(epsilon, DELTA, classes=[0, 1], n_samples=n).fit(X, y)
                for j, (name, function) in enumerate(TRUTHS.items()):
                    curve = model.curve_(j, level=LEVEL)
                    truth = truth_of_bins(function, curve.grid)
                    hits[name].append((curve.low <= truth) & (truth <= curve.high))
                    whole[name].append(
                        ((curve.band_low <= truth) & (truth <= curve.band_high)).all()
                    )
                    widths.append((curve.high - curve.low).mean() / 2)
                for j in (0, len(TRUTHS) - 1):
                    curve = model.curve_(j, level=LEVEL, part="deviation")
                    flat.append(((curve.band_low <= 0) & (curve.band_high >= 0)).all())
            held, none = 100 * np.mean(list(whole.values())), 100 * np.mean(flat)
            each = {name: 100 * np.mean(found) for name, found in hits.items()}
            worst = 100 * min(
                part.mean()
                for found in hits.values()
                for part in np.array_split(np.mean(found, axis=0), 5)
            )
            print(
                f"n={n:<6} epsilon={epsilon:<4g} pointwise {np.mean(list(each.values())):.1f}  "
                + " ".join(f"{name} {value:.0f}" for name, value in each.items())
                + f"  worst fifth {worst:.0f}  half width {np.mean(widths):.2f}  simultaneous "
                f"{held:.0f}  no deviation {none:.0f}",
                flush=True,
            )


def times(arguments):
    """Seconds of a fit."""
    rng = np.random.default_rng(0)
    for n in (10**5, 10**6):
        X = rng.uniform(-1, 1, (n, 20))
        y = (rng.random(n) < expit(3 * np.sin(3 * X[:, 0]))).astype(int)
        began = time.perf_counter()
        model = DPAdditiveClassifier(1.0, DELTA, n_bins=20, classes=[0, 1], n_samples=n).fit(X, y)
        print(
            f"n={n} {model.coef_.shape[1]} features: {time.perf_counter() - began:.1f} s",
            flush=True,
        )


PARTS = {"bands": bands, "time": times}


def main():
    """Run one part."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--repetitions", type=int, default=20)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", PrivacyWarning)
    warnings.simplefilter("ignore", FitWarning)
    PARTS[arguments.part](arguments)


if __name__ == "__main__":
    main()
