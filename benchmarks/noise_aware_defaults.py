"""How the constants of the noise-aware inference were chosen.

    SKDP_DATA=... python benchmarks/noise_aware_defaults.py [--tasks ...] [--splits 5]

One constant moves and the others stay: held-out log-loss on development tasks, and coverage of 90 %
intervals with their mean width on simulated data (n = 1000, d = 5). One setting serves every task,
ε, n and d; nothing is chosen per data set.
"""

import argparse
import math
import warnings
from contextlib import nullcontext
from unittest import mock

import numpy as np
from _tasks import TASKS, load
from noise_aware import study
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

from skdp import DPVariationalLogisticRegression, FitWarning, PrivacyWarning
from skdp.algorithms import noise_aware_glm, noise_aware_logit
from skdp.algorithms.parts import logit_posterior, logit_rows, prior_scales

EPSILONS = (0.1, 0.5, 1.0, 3.0, 10.0)
MODULES = (noise_aware_glm, noise_aware_logit, logit_posterior, logit_rows, prior_scales)
STUDY = {
    "default": [None],
    "STEPS": [10, 40],
    "CURVATURE_SHARE": [0.02, 0.1],
    "DROWNED": [0.4, 1.5],
    "LEAST_CLIP": [0.1, 0.5, 1.0],
    "DOUBT": [0.02, 0.5],
    "TOLD": [1.0, 2.0, 1e3],
    "OVERSHOT": [1.0, 1e9],
    "FIRST_AT_ZERO": [(1, 1, 1), (1, 8, 8), (1, 12, 12)],
    "MOST_ERROR": [0.1, 2.0],
    "MOST_CHAINED": [40],
    "TRAJECTORIES": [14],
    "HYPERPRIOR_SCALE": [2.5, 6.0, 8.0],
    "prior_scale": [3.0, 10.0],
}


def set_to(constant, value):
    """Patch the constant in the module that has it; nothing for what is a parameter."""
    for module in MODULES:
        if constant in vars(module):
            return mock.patch.object(module, constant, value)
    return nullcontext()


def held_out_log_loss(X, y, epsilon, splits, prior_scale):
    """Mean log-loss over splits; the intercept's column of the protocol is the model's own."""
    R, losses = 1.0 / X[0, 0], []
    for seed in range(splits):
        A, B, a, b = train_test_split(X[:, 1:] * R, y, test_size=0.3, random_state=seed, stratify=y)
        model = DPVariationalLogisticRegression(
            epsilon,
            data_norm=math.sqrt(R**2 - 1),
            prior_scale="auto" if prior_scale is None else prior_scale / R,
        ).fit(A, a)
        losses.append(log_loss(b, model.predict_proba(B)))
    return np.mean(losses)


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", nargs="+", default=["pima", "abalone", "magic"], choices=TASKS)
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--repetitions", type=int, default=40)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", PrivacyWarning)
    warnings.simplefilter("ignore", FitWarning)
    data = {task: load(task) for task in arguments.tasks}
    print(f"log-loss at epsilon = {' / '.join(map(str, EPSILONS))}, {arguments.splits} splits")
    for constant, values in STUDY.items():
        for value in values:
            prior_scale = value if constant == "prior_scale" else None
            with set_to(constant, value):
                for task, (X, y) in data.items():
                    losses = [
                        held_out_log_loss(X, y, e, arguments.splits, prior_scale) for e in EPSILONS
                    ]
                    shown = " / ".join(f"{loss:.3f}" for loss in losses)
                    print(f"{constant:<16}{value!s:<6}{task:<12}{shown}", flush=True)
                if constant != "prior_scale":
                    found = [study(1000, 5, e, arguments.repetitions) for e in (0.3, 1.0, 3.0)]
                    shown = " / ".join(f"{100 * c[2]:.0f} ({width:.2f})" for c, _, width in found)
                    print(
                        f"{constant:<16}{value!s:<6}90 % intervals at .3/1/3: {shown}", flush=True
                    )


if __name__ == "__main__":
    main()
