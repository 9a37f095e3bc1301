"""How the defaults of `DPVariationalLogisticRegression(inference="dpvi")` were chosen.

    SKDP_DATA=... python benchmarks/dpvi_defaults.py [--tasks ...] [--splits 6]

Four constants are not given by theory: the number of noisy steps, the step size's factor, the clip
(as a share of the bound that the rows put on a gradient) and the prior scale. The table shows the
log-loss on held-out rows when one of them moves and the others stay at their default. One setting
serves every task and ε; nothing is chosen per data set.
"""

import argparse
import itertools
import warnings
from unittest import mock

import numpy as np
from _tasks import TASKS, load
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

from skdp import DPVariationalLogisticRegression, PrivacyWarning
from skdp.algorithms import dp_vi

EPSILONS = (0.1, 0.5, 1.0, 3.0, 10.0)
STUDY = {
    "default": [{}],
    "max_iter": [{"max_iter": steps} for steps in (20, 50, 100, 200, 400)],
    "clip_norm": [{"clip_norm": share} for share in (0.1, 0.25, 0.35, 1.0)],
    "prior_scale": [{"prior_scale": scale} for scale in (1.0, 3.0, 10.0)],
    "step size factor": [{"factor": factor} for factor in (0.02, 0.04, 0.12, 0.25)],
}


def held_out_log_loss(X, y, epsilon, splits, factor=dp_vi.LEARNING_RATE, **parameters):
    """Mean log-loss over splits."""
    losses = []
    for seed in range(splits):
        A, B, a, b = train_test_split(X, y, test_size=0.3, random_state=seed, stratify=y)
        with mock.patch.object(dp_vi, "LEARNING_RATE", factor):
            model = DPVariationalLogisticRegression(
                epsilon, inference="dpvi", data_norm=1.0, fit_intercept=False, **parameters
            ).fit(A, a)
        losses.append(log_loss(b, model.predict_proba(B)))
    return np.mean(losses)


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", nargs="+", default=TASKS, choices=TASKS)
    parser.add_argument("--splits", type=int, default=6)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", PrivacyWarning)
    data = {task: load(task) for task in arguments.tasks}
    print(f"log-loss at epsilon = {' / '.join(map(str, EPSILONS))}, {arguments.splits} splits")
    for constant, settings in STUDY.items():
        for setting, (task, (X, y)) in itertools.product(settings, data.items()):
            losses = [held_out_log_loss(X, y, e, arguments.splits, **setting) for e in EPSILONS]
            value = next(iter(setting.values()), "")
            shown = " / ".join(f"{loss:.3f}" for loss in losses)
            print(f"{constant:<17}{value!s:<7}{task:<14}{shown}", flush=True)


if __name__ == "__main__":
    main()
