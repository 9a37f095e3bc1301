"""Private additive models: bands on simulated curves, and log-loss against the linear model.

    python benchmarks/additive.py bands [--repetitions 20] [--model classes|linear|counts]
    python benchmarks/additive.py errors [--repetitions 5] [--model linear|counts]
    python benchmarks/additive.py tables [--epsilon 1] [--peer build/ebm.json] [names ...]
    python benchmarks/additive.py peer --peer build/ebm.json [--epsilon 1] [names ...]
    python benchmarks/additive.py pairs [--repetitions 6]
    python benchmarks/additive.py adult [--epsilon 1]
    python benchmarks/additive.py skewed [--repetitions 4] [--model classes|linear]
    python benchmarks/additive.py edges [--epsilon 1] [names ...]
    python benchmarks/additive.py time

``bands``: five features, uniform in [-1, 1], with a linear, a step, a bump, a sine and a zero
effect. Prints the coverage of pointwise 90 % intervals on average and in the worst fifth of a
curve, the coverage of simultaneous bands, and how often the band of the deviation contains 0 for
the linear and the zero effect. ``linear`` has targets of standard deviation about 1.6 with normal
residuals of 1 and bounds of ±8, ``counts`` a mean of about 2 and a largest count of 30.

``errors``: the mean squared error of the mean (``linear``) or the log-mean (``counts``) on new
rows, over that of the linear model of the same columns, and in brackets itself, where all five
effects are of one kind, over √5, and where there is one of each.

``tables``: the protocol of benchmarks/_additive_tables.py; differences are paired over splits. With
the file that ``peer`` writes, beside DP-EBM: with its defaults, and with the setting and the input
that do best on the rows held back, which is in its favour.

``pairs``: the mean log-loss of two pairs on top of five columns, less that of the true probability,
and by how much the pairs change it, where there is no interaction, a product, a corner, and a trend
of one sign in one group and of the other in the other.

``adult``: the official split, with bounds, with round edges, with pairs besides, and with private
edges within bounds.

``skewed``: coverage as of ``bands`` of four columns with the density of Beta(1, 6) between the
bounds, with bins of equal width and with private edges; truths are means over the rows of a bin.

``edges``: log-loss as of ``tables`` with private edges, between ±4 standard deviations and between
±10⁶ of them, beside the additive model of ``tables``.

``time``: 20 features with 20 bins each.
"""

import argparse
import json
import math
import time
import warnings
from pathlib import Path

import _additive_tables as protocol
import numpy as np
from scipy.special import expit
from sklearn.metrics import log_loss

from skdp import (
    DPAdditiveClassifier,
    DPAdditivePoissonRegressor,
    DPAdditiveRegressor,
    DPVariationalLinearRegression,
    DPVariationalPoissonRegression,
    FitWarning,
    PrivacyWarning,
)

TRUTHS = {
    "linear": lambda x: 1.5 * x,
    "step": lambda x: np.where(x > 0.2, 1.0, -1.0),
    "bump": lambda x: 2.0 * np.exp(-((x / 0.25) ** 2)),
    "wave": lambda x: np.sin(4.0 * x),
    "flat": lambda x: 0.0 * x,
}
DELTA, LEVEL = 1e-5, 0.9


MODELS = {
    "classes": (DPAdditiveClassifier, {"classes": [0, 1]}),
    "linear": (DPAdditiveRegressor, {"target_bounds": (-8, 8)}),
    "counts": (DPAdditivePoissonRegressor, {"largest_count": 30}),
}
LINEAR = {"linear": DPVariationalLinearRegression, "counts": DPVariationalPoissonRegression}
OF_COUNTS = 0.5  # of the effects, on the log-mean


def drawn(rng, kind, effects):
    """Targets of rows with these effects, n of them."""
    if kind == "classes":
        return (rng.random(len(effects)) < expit(effects - 0.5)).astype(int)
    if kind == "linear":
        return effects + rng.normal(0.0, 1.0, len(effects))
    return rng.poisson(np.exp(OF_COUNTS * effects + 0.3))


def truth_of_bins(function, edges):
    """Mean of a curve in each bin, less the mean over all bins."""
    fine = edges[:-1, None] + np.diff(edges)[:, None] * (np.arange(50) + 0.5) / 50
    found = function(fine).mean(axis=1)
    return found - found.mean()


def bands(arguments):
    """Coverage."""
    model_class, settings = MODELS[arguments.model]
    unit = OF_COUNTS if arguments.model == "counts" else 1.0
    for n in (2000, 10_000, 50_000):
        for epsilon in (0.5, 1.0, 3.0):
            hits = {name: [] for name in TRUTHS}
            whole = {name: [] for name in TRUTHS}
            widths, flat = [], []
            for seed in range(arguments.repetitions or 20):
                rng = np.random.default_rng([seed, n])
                X = rng.uniform(-1, 1, (n, len(TRUTHS)))
                y = drawn(rng, arguments.model, sum_of(TRUTHS.values(), X))
                model = model_class(epsilon, DELTA, n_samples=n, **settings).fit(X, y)
                for j, (name, function) in enumerate(TRUTHS.items()):
                    curve = model.curve_(j, level=LEVEL)
                    truth = unit * truth_of_bins(function, curve.grid)
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


def sum_of(functions, X):
    """Sum of effects of the columns in turn."""
    return sum(f(X[:, j]) for j, f in enumerate(functions))


def errors(arguments):
    """Mean squared errors against the linear model."""
    model_class, settings = MODELS[arguments.model]
    unit, level = (OF_COUNTS, 0.3) if arguments.model == "counts" else (1.0, 0.0)
    for n in (2000, 10_000, 50_000):
        for epsilon in (0.5, 1.0, 3.0):
            ratios = {}
            for name, function in [*TRUTHS.items(), ("all", None)]:
                functions = list(TRUTHS.values()) if function is None else 5 * [function]
                if function is not None:  # of the same size together as one of each
                    functions = [lambda x, f=function: f(x) / math.sqrt(5)] * 5
                found = []
                for seed in range(arguments.repetitions or 5):
                    rng = np.random.default_rng([seed, n])
                    X, new = rng.uniform(-1, 1, (n, 5)), rng.uniform(-1, 1, (5000, 5))
                    y = drawn(rng, arguments.model, sum_of(functions, X))
                    truth = unit * sum_of(functions, new) + level
                    for one in (LINEAR[arguments.model], model_class):
                        fitted = one(epsilon, DELTA, n_samples=n, **settings).fit(X, y)
                        mean = fitted.predict(new)
                        mean = np.log(mean) if arguments.model == "counts" else mean
                        found.append(np.mean((mean - truth) ** 2))
                linear, additive = np.mean(np.reshape(found, (-1, 2)), axis=0)
                ratios[name] = f"{additive / linear:.2f} ({additive:.4f})"
            waves = sum("wave" in name for name in fitted.parameter_names_)
            print(
                f"n={n:<6} epsilon={epsilon:<4g} waves {waves:<4} "
                + " ".join(f"{name} {value}" for name, value in ratios.items()),
                flush=True,
            )


def peer(arguments):
    """DP-EBM's log-loss, kept in a file as cells are done: it does not depend on this package."""
    file = Path(arguments.peer)
    kept = json.loads(file.read_text()) if file.exists() else {}
    for name in arguments.names or protocol.TABLES:
        for epsilon in arguments.epsilon or protocol.EPSILONS:
            losses = kept.setdefault(name, {}).setdefault(f"{epsilon:g}", {})
            found = [protocol.peers(name, epsilon, at, losses) for at in protocol.splits(name)]
            losses |= {method: [f[method] for f in found] for method in found[0]}
            file.write_text(json.dumps(kept, indent=1))
            best = protocol.best(losses)
            print(f"{name:<14} epsilon={epsilon:g} {best} {np.mean(losses[best]):.4f}", flush=True)


def tables(arguments):
    """Log-loss of the linear and of the additive model, beside DP-EBM where there is a file."""
    kept = json.loads(Path(arguments.peer).read_text()) if arguments.peer else {}
    behind, better = [], []
    for name in arguments.names or protocol.TABLES:
        splits = protocol.splits(name, arguments.repetitions)
        for epsilon in arguments.epsilon or protocol.EPSILONS:
            found = [protocol.ours(name, epsilon, split) for split in splits]
            losses = {method: [f[method] for f in found] for method in found[0]}
            n_rows = len(splits[0][0])
            text = f"{name:<14} n={n_rows:<6} epsilon={epsilon:<4g}"
            text += "".join(f" {method} {np.mean(v):.4f}" for method, v in losses.items())
            gap, error = protocol.difference(losses, "additive", "linear")
            text += f"  difference {gap:+.4f} ± {error:.4f}"
            behind.append(gap > 0.005)
            # splits of one seed are the first ones of more
            theirs = kept.get(name, {}).get(f"{epsilon:g}", {})
            losses |= {method: values[: len(splits)] for method, values in theirs.items()}
            if best := protocol.best(losses):
                default = protocol.best(losses, protocol.DEFAULTS)
                gap, error = protocol.difference(losses, "additive", best)
                text += f"  DP-EBM {np.mean(losses[default]):.4f}, best {np.mean(losses[best]):.4f}"
                text += f"  difference {gap:+.4f} ± {error:.4f}  ({best})"
                better.append(gap < 0)
            print(text, flush=True)
        print(
            f"so far: at most .005 behind linear in {behind.count(False)} of {len(behind)} cells, "
            f"better than DP-EBM in {better.count(True)} of {len(better)}",
            flush=True,
        )


ADULT_EDGES = {
    "age": range(0, 101, 5),
    "hours_per_week": range(0, 101, 5),
    "education_num": np.arange(0.5, 17.5),
    "capital_gain": [*range(0, 20_000, 1000), *range(20_000, 100_001, 10_000)],
    "capital_loss": range(0, 5001, 200),
}


ADULT_PAIRS = [
    ("age", "hours_per_week"),
    ("age", "education_num"),
    ("sex", "marital_status"),
    ("sex", "hours_per_week"),
]
INTERACTIONS = {
    "none": lambda X: 0.0 * X[:, 0],
    "product": lambda X: 1.5 * X[:, 0] * X[:, 1],
    "corner": lambda X: 3.0 * ((X[:, 0] > 0.3) & (X[:, 1] > 0.3)),
    "group": lambda X: np.where(X[:, 3] > 0, X[:, 0], -X[:, 0]),
}


def pairs(arguments):
    """Log-loss with pairs, of which one is what there is, against none."""
    declared = {"bounds": dict.fromkeys((0, 1, 2, 4), (-1, 1)), "categories": {3: [-1, 1]}}
    for n in (2000, 5000, 20_000):
        for epsilon in arguments.epsilon or (1.0, 3.0):
            for name, function in INTERACTIONS.items():
                losses = []
                for seed in range(arguments.repetitions or 6):
                    rng = np.random.default_rng([seed, n])
                    X, new = rng.uniform(-1, 1, (n, 5)), rng.uniform(-1, 1, (20_000, 5))
                    X[:, 3], new[:, 3] = np.sign(X[:, 3]), np.sign(new[:, 3])
                    p, truth = (
                        expit(Z[:, 0] + np.sin(3 * Z[:, 2]) - 0.5 + function(Z)) for Z in (X, new)
                    )
                    y = (rng.random(n) < p).astype(int)
                    for given in (None, [(0, 1), (0, 3)]):
                        model = DPAdditiveClassifier(
                            epsilon, DELTA, pairs=given, classes=[0, 1], n_samples=n, **declared
                        ).fit(X, y)
                        q = model.predict_proba(new)
                        # Log-loss over all labels that the rows could have, less the least.
                        of_each = np.log(np.column_stack([1 - truth, truth]) / q)
                        losses.append(np.mean((1 - truth) * of_each[:, 0] + truth * of_each[:, 1]))
                losses = np.reshape(losses, (-1, 2))
                gaps = losses[:, 1] - losses[:, 0]
                n_products = sum(" × " in feature for feature in model.parameter_names_)
                print(
                    f"n={n:<6} epsilon={epsilon:<4g} products {n_products:<4} {name:<8} without "
                    f"{losses[:, 0].mean():.4f}  with pairs {gaps.mean():+.4f} ± "
                    f"{gaps.std(ddof=1) / math.sqrt(len(gaps)):.4f}",
                    flush=True,
                )


def adult(arguments):
    """Accuracy and log-loss on the official split."""
    from _adult import BOUNDS, CATEGORIES
    from _adult import adult as table

    train, test = table()
    y, y_test = train["income"].to_numpy(), (test["income"] == ">50K").to_numpy()
    columns = [*BOUNDS, *CATEGORIES]
    edges = {"edges": ADULT_EDGES}
    ways = {"bounds": {"bounds": BOUNDS}, "edges": edges, "pairs": edges | {"pairs": ADULT_PAIRS}}
    ways["private"] = ways["bounds"] | {"edges": "private"}
    for epsilon in arguments.epsilon or (0.5, 1.0, 3.0):
        for kind, declared in ways.items():
            scores = []
            for _ in range(arguments.repetitions or 20):
                model = DPAdditiveClassifier(
                    epsilon, DELTA, categories=CATEGORIES, classes=["<=50K", ">50K"],
                    n_samples=len(train), **declared,
                ).fit(train[columns], y)  # fmt: skip
                p = model.predict_proba(test[columns])[:, 1]
                scores.append(((y_test == (p > 0.5)).mean(), log_loss(y_test, p)))
            accuracy, loss = np.mean(scores, axis=0)
            error = np.std(scores, axis=0, ddof=1)[1] / math.sqrt(len(scores))
            print(
                f"epsilon={epsilon:g} {kind:<7} accuracy {accuracy:.4f} log-loss {loss:.4f} ± "
                f"{error:.4f} features {model.coef_.shape[1]}",
                flush=True,
            )


def skewed(arguments):
    """Coverage where nearly all rows are near the lower bound."""
    model_class, settings = MODELS[arguments.model]
    functions = [TRUTHS[name] for name in ("linear", "wave", "bump", "flat")]
    many = 2 * np.random.default_rng(1).beta(1, 6, (10**6, len(functions))) - 1
    for n, epsilon, bound in (
        (50_000, 3.0, 1),
        (50_000, 1.0, 1),
        (50_000, 3.0, 1e6),
        (10**4, 1.0, 1),
    ):
        for edges in (None, "private")[bound > 1 :]:
            hits, whole = [], []
            for seed in range(arguments.repetitions or 4):
                rng = np.random.default_rng(seed)
                X = 2 * rng.beta(1, 6, (n, len(functions))) - 1
                y = drawn(rng, arguments.model, sum_of(functions, X))
                model = model_class(
                    epsilon,
                    DELTA,
                    bounds=[(-bound, bound)] * 4,
                    edges=edges,
                    n_samples=n,
                    **settings,
                ).fit(X, y)
                for j, function in enumerate(functions):
                    curve = model.curve_(j, level=LEVEL)
                    truth = truth_of_rows(function, curve.grid, many[:, j])
                    hits.append(100 * np.mean((curve.low <= truth) & (truth <= curve.high)))
                    whole.append(((curve.band_low <= truth) & (truth <= curve.band_high)).all())
            each = np.mean(np.reshape(hits, (-1, len(functions))), axis=0)
            print(
                f"n={n:<6} epsilon={epsilon:<4g} bounds ±{bound:<8g}{edges or 'equal width':<12} "
                f"pointwise {each.mean():.0f}  of each curve {each.round()}  "
                f"simultaneous {100 * np.mean(whole):.0f}",
                flush=True,
            )


def truth_of_rows(function, edges, x):
    """Mean of a curve over the rows of each bin, or at its middle, less the mean over all bins."""
    bins = np.searchsorted(edges[1:-1], x, side="right")
    counts = np.bincount(bins, minlength=len(edges) - 1)
    sums = np.bincount(bins, function(x), minlength=len(edges) - 1)
    found = np.where(
        counts > 0, sums / np.maximum(counts, 1), function((edges[1:] + edges[:-1]) / 2)
    )
    return found - found.mean()


def private_edges(arguments):
    """Log-loss with declared and with private edges."""
    for name in arguments.names or protocol.TABLES:
        of, splits = protocol.task(name), protocol.splits(name, arguments.repetitions)
        for epsilon in arguments.epsilon or protocol.EPSILONS:
            losses = {}
            for split in splits:
                for kind, bound in (("declared", 0), ("private", 4), ("private, wide", 1e6)):
                    bounds = dict.fromkeys(of.numbers, (-bound, bound))
                    found = {"edges": dict.fromkeys(of.numbers, protocol.EDGES)}
                    found = {"edges": "private", "bounds": bounds} if bound else found
                    loss = protocol.loss_of(name, epsilon, split, **found)
                    losses.setdefault(kind, []).append(loss)
            means = " ".join(f"{kind} {np.mean(found):.4f}" for kind, found in losses.items())
            gaps = [protocol.difference(losses, kind, "declared") for kind in list(losses)[1:]]
            gaps = "  ".join(f"{gap:+.4f} ± {error:.4f}" for gap, error in gaps)
            print(f"{name:<14} epsilon={epsilon:<4g} {means}  differences {gaps}", flush=True)


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


PARTS = {
    "bands": bands, "errors": errors, "tables": tables, "peer": peer, "pairs": pairs,
    "adult": adult, "skewed": skewed, "edges": private_edges, "time": times,
}  # fmt: skip


def main():
    """Run one part."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--repetitions", type=int)
    parser.add_argument("--model", choices=MODELS, default="classes")
    parser.add_argument("--epsilon", type=float, action="append")
    parser.add_argument("--peer", help="file of DP-EBM's figures")
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_intermixed_args()
    warnings.simplefilter("ignore", PrivacyWarning)
    warnings.simplefilter("ignore", FitWarning)
    PARTS[arguments.part](arguments)


if __name__ == "__main__":
    main()
