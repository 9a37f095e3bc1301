"""Private logistic regression beside scikit-learn's, in one process: log-loss and fit time.

    SKDP_DATA=... python benchmarks/logistic.py [--tasks adult ...] [--epsilons 0.5 1 3]

Prints, per task and ε with defaults otherwise: accuracy and log-loss on held-out rows, the same for
scikit-learn's non-private `LogisticRegression`, and the ratio of the fit times, as the median over
interleaved fits.
"""

import argparse
import time
import warnings

import numpy as np
from _tasks import TASKS, load
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

from skdp import DPVariationalLogisticRegression, PrivacyWarning


def timed_fit(model, X, y):
    """Fit, and return the seconds it took."""
    start = time.perf_counter()
    model.fit(X, y)
    return time.perf_counter() - start


def main():
    """Run the comparison."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", nargs="+", default=TASKS, choices=TASKS)
    parser.add_argument("--epsilons", nargs="+", type=float, default=[0.1, 0.5, 1, 3, 10])
    parser.add_argument("--splits", type=int, help="default: 10 below 5000 rows, else 3")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", PrivacyWarning)

    print("task           eps   accuracy  log-loss   sklearn: accuracy  log-loss   time ratio")
    for task in arguments.tasks:
        X, y = load(task)
        splits = arguments.splits or (10 if len(X) < 5000 else 3)
        for epsilon in arguments.epsilons:
            found = []
            for seed in range(splits):
                A, B, a, b = train_test_split(X, y, test_size=0.3, random_state=seed, stratify=y)
                ours = DPVariationalLogisticRegression(epsilon, data_norm=1.0, fit_intercept=False)
                peer = LogisticRegression(fit_intercept=False, max_iter=1000)
                ours.fit(A, a), peer.fit(A, a)  # imports and threads
                repetitions = range(5)
                times = [(timed_fit(ours, A, a), timed_fit(peer, A, a)) for _ in repetitions]
                found.append(
                    [
                        ours.score(B, b),
                        log_loss(b, ours.predict_proba(B)),
                        peer.score(B, b),
                        log_loss(b, peer.predict_proba(B)),
                        np.median([x / z for x, z in times]),
                    ]
                )
            mean, ratio = np.mean(found, axis=0), np.median(found, axis=0)[4]
            print(
                f"{task:<13}{epsilon:>6g}   {mean[0]:8.4f}  {mean[1]:8.4f}   "
                f"{mean[2]:17.4f}  {mean[3]:8.4f}   {ratio:10.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
