"""Held-out log-loss of classes from raw columns: ``bounds=`` against a `DPStandardScaler` in front.

    python benchmarks/bounds_or_scaler.py [--tables adult,diabetes130] [--epsilons .3,1,3]
        [--splits 10] [--only scaler,bounds] [--against FILE] [--json FILE]

Tables and bounds of `real_tables.py`, 70/30 splits, δ = 1e-6. *Bounds*: the classifier with
``bounds=``. *Scaler*: a pipeline of the scaler with the same bounds and the classifier with a
``data_norm`` of 1.5 √d, which share the budget by `split_budget`. Both have the same rows; printed
are the means over splits and the mean difference with its standard error, per table and ε, and over
tables. Log-losses of the pipeline under an earlier version are read from the ``--json`` of a run
there with ``--only scaler``.
"""

import argparse
import json
import warnings
from pathlib import Path

import numpy as np
from real_tables import DELTA, TARGETS, design
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline

from skdp import DPStandardScaler, DPVariationalLogisticRegression, split_budget

FAR = 1.5  # norm of rows over the root mean square of standardised ones


def scaler(bounds, epsilon, n_rows):
    """The pipeline."""
    low, high = np.transpose(bounds)
    model = DPVariationalLogisticRegression(
        classes=[0, 1], n_samples=n_rows, data_norm=FAR * len(low) ** 0.5
    )
    pipeline = make_pipeline(DPStandardScaler(lower=low, upper=high), model)
    return split_budget(pipeline, epsilon=epsilon, delta=DELTA)


def bounds(bounds, epsilon, n_rows):
    """The classifier alone."""
    return DPVariationalLogisticRegression(
        epsilon, DELTA, classes=[0, 1], n_samples=n_rows, bounds=bounds
    )


MODELS = {"scaler": scaler, "bounds": bounds}


def losses(of, make, epsilon, splits):
    """Held-out log-loss of each split, and of the shares of the classes."""
    found, constant = [], []
    for seed in range(splits):
        order = np.random.default_rng(seed).permutation(len(of.y))
        train, test = np.split(order, [int(0.7 * len(order))])
        model = make(of.bounds, epsilon, len(train)).fit(of.X[train], of.y[train])
        found.append(log_loss(of.y[test], model.predict_proba(of.X[test])))
        constant.append(log_loss(of.y[test], np.full(len(test), of.y[train].mean())))
    return found, float(np.mean(constant))


def main():
    """Fit and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    tables = [name for kind, name in TARGETS if kind == "logistic"]
    parser.add_argument("--tables", default=",".join(tables))
    parser.add_argument("--epsilons", default="0.3,1,3")
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--only", default="scaler,bounds")
    parser.add_argument("--against", type=Path)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    before = json.loads(options.against.read_text()) if options.against else {}
    found, of_epsilon = {}, {}
    for name in options.tables.split(","):
        of = design("logistic", name)
        for epsilon in options.epsilons.split(","):
            cell, line = {}, f"{name:12} eps {epsilon:<4}"
            if options.against:
                cell["scaler"] = before[f"{name} {epsilon}"]["scaler"][: options.splits]
            for only in options.only.split(","):
                if only not in cell:
                    cell[only], cell["shares"] = losses(
                        of, MODELS[only], float(epsilon), options.splits
                    )
            for only in MODELS:
                if only in cell:
                    line += f"  {only} {np.mean(cell[only]):.4f}"
            if "scaler" in cell and "bounds" in cell:
                off = np.subtract(cell["bounds"], cell["scaler"])
                of_epsilon.setdefault(epsilon, []).append(off.mean())
                line += f"  difference {off.mean():+.4f} ± {off.std() / len(off) ** 0.5:.4f}"
            found[f"{name} {epsilon}"] = cell
            print(line + f"  (shares of the classes {cell['shares']:.4f})", flush=True)
    for epsilon, each in of_epsilon.items():
        print(f"eps {epsilon:<4} mean difference {np.mean(each):+.4f} over {len(each)} tables")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
