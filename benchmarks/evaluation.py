"""Private reports: how often 90 % intervals hold, and what the noise adds to sampling.

    python benchmarks/evaluation.py classes [--simulations 4000] [--law rare]
    python benchmarks/evaluation.py several [--simulations 1000]
    python benchmarks/evaluation.py regression [--simulations 1000]

Tables are drawn from the law of their cells (multinomial), with geometric noise, and read by the
reports of `skdp.evaluation`. ``classes``: scores of two classes by eight laws; n rows 500, 3000 and
16 000, ε .3, 1 and 3. For each statistic: coverage of the population value of the *binned*
statistic, mean width of the interval, standard deviation of the estimate over that by sampling
alone (of 500), bias, the binned value and that of the raw scores.
``several``: five classes, rows drawn. ``regression``: normal residuals.
"""

import argparse

import numpy as np
from scipy.special import expit, softmax

from skdp.evaluation import BinaryReport, MulticlassReport, RegressionReport
from skdp.evaluation._release import cells_of_scores
from skdp.evaluation.binning import ResidualBins, ScoreBins, n_bins_for
from skdp.mechanisms import GeometricMechanism

LOGITS = np.linspace(-14, 14, 400_001)
SIZES, EPSILONS = (500, 3000, 16_000), (0.3, 1.0, 3.0)
STATISTICS = "accuracy", "auc", "log_loss", "brier", "ece"
SLOWER = "average_precision", "balanced_accuracy", "precision", "recall"  # of the first 500


def normal(mean, sd):
    """Weights of a normal law on the grid of logits."""
    w = np.exp(-0.5 * ((LOGITS - mean) / sd) ** 2)
    return w / w.sum()


WIDE = normal(0, 1.5)
# Predicted probability, true probability, weights.
LAWS = {
    "calibrated": (expit(LOGITS), expit(LOGITS), WIDE),
    "rare": (expit(LOGITS), expit(LOGITS), normal(-3.7, 1.3)),  # 5 % positive
    "overconfident": (expit(2 * LOGITS), expit(LOGITS), normal(0, 1.2)),
    "useless": (expit(LOGITS), np.full(len(LOGITS), 0.3), normal(-1, 0.7)),
    "surest": (expit(LOGITS), np.where(abs(LOGITS) > 3, LOGITS > 0, expit(LOGITS)), WIDE),
    "nearly": (expit(1.15 * LOGITS), expit(LOGITS), WIDE),  # calibrated
    # Gaps that change sign twice, and four times.
    "waves": (expit(LOGITS), (expit(LOGITS) + 0.07 * np.sin(2.2 * LOGITS)).clip(0, 1), WIDE),
    "more waves": (expit(LOGITS), (expit(LOGITS) + 0.07 * np.sin(4.5 * LOGITS)).clip(0, 1), WIDE),
}


def raw(p, q, w):
    """Log-loss, ECE (no bins: each score by itself) and AUC of the raw scores."""
    top, right = np.maximum(p, 1 - p), np.where(p > 0.5, q, 1 - q)
    order = np.argsort(top)  # p and 1 − p share a confidence: pairs of grid points
    gap = (w * (right - top))[order]
    pairs = np.add.reduceat(gap, np.arange(0, len(gap), 200))  # fine bins
    positive, negative = w * q, w * (1 - q)
    return {
        "log_loss": -(positive * np.log(p) + negative * np.log1p(-p)).sum(),
        "ece": np.abs(pairs).sum(),
        "auc": ((np.cumsum(negative) - negative / 2) * positive).sum()
        / (positive.sum() * negative.sum()),
    }


def noise(rng, mechanism, shape):
    """Geometric noise by a fast generator."""
    p = 1 - np.exp(-1 / float(mechanism.scale))
    return rng.geometric(p, shape) - rng.geometric(p, shape)


def read(counts, variance, n, bins, statistics=STATISTICS):
    """Value, low and high of each statistic."""
    report = BinaryReport(
        None, counts.reshape(2, -1), variance, n, classes_=np.arange(2), bins_=bins
    )
    found = (getattr(report, name) for name in statistics)
    return [(e.value, e.low, e.high) for e in found]


def truth(pi, bins):
    """Population values of the binned statistics."""
    names = STATISTICS + SLOWER
    found = read(pi * 1e12, 0.0, None, bins, names)
    values = {name: value for name, (value, *_) in zip(names, found, strict=True)}
    (T0, T1), half = pi.reshape(2, -1), len(pi) // 4
    right, wrong = T1[half:] + T0[:half][::-1], T0[half:] + T1[:half][::-1]
    values["ece"] = np.abs(right - (right + wrong) * bins.mean[half:]).sum()
    return values


def classes(simulations, only):
    """Two classes."""
    for law, (p, q, w) in LAWS.items():
        if only not in (None, law):
            continue
        of_raw = raw(p, q, w)
        for n in SIZES:
            for epsilon in EPSILONS:
                mechanism = GeometricMechanism(1, epsilon)
                bins = ScoreBins.of(n_bins_for(n, float(mechanism.scale)))
                B, cell = len(bins.points), bins.numbers(p)
                pi = np.concatenate([np.bincount(cell, w * c, B) for c in (1 - q, q)])
                rng = np.random.default_rng(0)
                tables = rng.multinomial(n, pi, size=simulations)
                noisy = tables + noise(rng, mechanism, tables.shape)
                variance = mechanism.standard_deviation**2
                print(f"{law}, n={n}, epsilon={epsilon}, {B} bins", flush=True)
                values = truth(pi, bins)
                for names, count in ((STATISTICS, None), (SLOWER, 500)):
                    quiet = np.array([read(t, 0.0, n, bins, names) for t in tables[:500]])
                    found = np.array([read(t, variance, n, bins, names) for t in noisy[:count]])
                    for k, name in enumerate(names):
                        (v, low, high), value = found[:, k].T, values[name]
                        held = ((low <= value) & (value <= high)).mean()
                        line = f"  {name:<18} holds {held:.3f}  width {np.mean(high - low):.4f}"
                        line += f"  sd {v.std():.4f} = {v.std() / quiet[:, k, 0].std():.2f} x"
                        line += f" sampling  bias {v.mean() - value:+.4f}  value {value:.4f}"
                        print(line + (f"  raw {of_raw[name]:.4f}" if name in of_raw else ""))


def several(simulations, _):
    """Five classes; labels by flatter probabilities than predicted."""
    rng, K = np.random.default_rng(0), 5
    names = ("accuracy", "balanced_accuracy", "log_loss", "brier", "ece")

    def rows(n):
        logits = 1.5 * rng.normal(size=(n, K))
        P, Q = softmax(logits, axis=1), softmax(0.7 * logits, axis=1)
        return P, (rng.uniform(size=(n, 1)) > Q.cumsum(axis=1)).sum(axis=1)

    P, y = rows(2_000_000)
    loss = -np.log(P[np.arange(len(y)), y]).mean()
    print(f"raw: log_loss {loss:.4f}, brier {((P - np.eye(K)[y]) ** 2).sum(axis=1).mean():.4f}")
    for n in SIZES:
        for epsilon in EPSILONS:
            mechanism = GeometricMechanism(2, epsilon)
            n_bins = max(n_bins_for(n, float(mechanism.scale)) // 2, 3)
            bins = ScoreBins.of(n_bins, 1 / K)
            cells = cells_of_scores(np.arange(K), bins, P, y)
            laws = [np.bincount(cell, minlength=size) / len(y) for cell, size in cells]
            shapes = (K, K), (-1, n_bins)

            def of(counts, variance, n, bins=bins, shapes=shapes):
                matrix, confidence = (c.reshape(s) for c, s in zip(counts, shapes, strict=True))
                return MulticlassReport(
                    None, matrix, variance, n, classes_=np.arange(K), bins_=bins,
                    by_confidence_=confidence,
                )  # fmt: skip

            exact = of([law * 1e12 for law in laws], 0.0, None)
            found = []
            for _ in range(simulations):
                chosen = rng.choice(len(y), n)
                counts = [np.bincount(cell[chosen], minlength=size) for cell, size in cells]
                counts = [c + noise(rng, mechanism, c.shape) for c in counts]
                report = of(counts, mechanism.standard_deviation**2, n)
                found.append([(e.value, e.low, e.high) for e in report.estimates().values()])
            print(f"n={n}, epsilon={epsilon}, {n_bins} bins", flush=True)
            right, wrong = exact.by_confidence_[0], exact.by_confidence_[1:].sum(axis=0)
            of_ece = np.abs(right - (right + wrong) * bins.mean).sum() / (right + wrong).sum()
            show(names, found, [*(float(getattr(exact, name)) for name in names[:-1]), of_ece])


def regression(simulations, _):
    """Residuals N(.2, 1), of predictions N(0, 2²); bounds far out."""
    rng, bound = np.random.default_rng(0), 8.0
    names = ("rmse", "mae", "bias", "r2", "coverage")
    predicted = 2 * rng.normal(size=2_000_000)
    residual = 0.2 + rng.normal(size=len(predicted))
    for n in SIZES:
        for epsilon in EPSILONS:
            mechanism = GeometricMechanism(2, epsilon)
            n_bins = n_bins_for(n, float(mechanism.scale))
            bins, edges = ResidualBins.of(n_bins, bound), np.linspace(-12, 12, n_bins + 1)
            cells = [
                bins.numbers(residual) + n_bins * (np.abs(residual) < 1.6),
                np.searchsorted(edges[1:-1], predicted + residual),
            ]
            sizes = 2 * n_bins, n_bins
            laws = [
                np.bincount(c, minlength=s) / len(residual)
                for c, s in zip(cells, sizes, strict=True)
            ]

            def of(counts, variance, n, bins=bins, edges=edges):
                return RegressionReport(
                    None, counts[0].reshape(2, -1), variance, n, bins_=bins, of_targets_=counts[1],
                    target_edges_=edges,
                )  # fmt: skip

            exact = of([law * 1e12 for law in laws], 0.0, None)
            found = []
            for _ in range(simulations):
                chosen = rng.choice(len(residual), n)
                counts = [
                    np.bincount(c[chosen], minlength=s) for c, s in zip(cells, sizes, strict=True)
                ]
                counts = [c + noise(rng, mechanism, c.shape) for c in counts]
                report = of(counts, mechanism.standard_deviation**2, n)
                found.append([(e.value, e.low, e.high) for e in report.estimates().values()])
            print(f"n={n}, epsilon={epsilon}, {n_bins} bins", flush=True)
            show(names, found, [float(getattr(exact, name)) for name in names])


def show(names, found, values):
    """Coverage, width, bias."""
    for name, value, of_name in zip(names, values, np.moveaxis(np.array(found), 1, 0), strict=True):
        v, low, high = of_name.T
        held = ((low <= value) & (value <= high)).mean()
        print(
            f"  {name:<18} holds {held:.3f}  width {np.mean(high - low):.4f}  sd {v.std():.4f}"
            f"  bias {v.mean() - value:+.4f}  value {value:.4f}"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=["classes", "several", "regression"])
    parser.add_argument("--simulations", type=int, default=4000)
    parser.add_argument("--law", choices=list(LAWS))
    arguments = parser.parse_args()
    globals()[arguments.part](arguments.simulations, arguments.law)
