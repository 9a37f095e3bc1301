"""
A run that was killed
=====================

A long private fit that dies has spent its ε all the same. With ``checkpoint=`` it goes on where it
was: as the same release sequence, with one entry in the ledger. Here a fit in a process of its own
is killed (SIGKILL) twice in the middle, and ends as if nothing had happened.

It takes half a minute on one core; the rows are scikit-learn's digits.
"""

import tempfile
from pathlib import Path

from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from skdp import PrivacyLedger

place = Path(tempfile.mkdtemp())
STEPS, EVERY = 200, 20
X, y = load_digits(return_X_y=True)
X, X_test, y, y_test = train_test_split(X / 16, y, test_size=0.3, random_state=0, stratify=y)
ledger = PrivacyLedger(epsilon=3.0, delta=1e-5, path=place / "ledger.jsonl")

# %%
# The estimator is the same in each process, to the last constant: no other may resume the
# checkpoint. So a file says when to die. Public rows are scored on the way: from these scores we
# shall see that a step that is made again is the same step.

import os

from skdp import DPSGLDClassifier


class Classifier(DPSGLDClassifier):
    """Is killed after so many looks at the public rows as a file says."""

    def score(self, X, y):
        """Score rows, or die."""
        found = super().score(X, y)
        if str(len(self.public_scores_)) == (place / "dies_after").read_text():
            os.kill(os.getpid(), 9)
        return found


def fit(dies_after):
    """Fit, and be killed after so many looks at the public rows; or end, with None."""
    (place / "dies_after").write_text(str(dies_after))
    classifier = Classifier(
        epsilon=3.0,
        max_iter=STEPS,
        hidden_layer_sizes=(32,),
        classes=range(10),
        n_samples=len(X),
        checkpoint=place / "run",
        every=EVERY,
    )
    classifier.public_scores_ = []
    with ledger:
        return classifier.fit(X, y, X_public=X_test, y_public=y_test)


# %%
# Two deaths, each in a process of its own, and then the end. The key file is there as long as the
# fit has not ended, and only its owner may read it.

import json
import multiprocessing

import numpy as np

fork = multiprocessing.get_context("fork")
for dies_after in (7, 13):
    process = fork.Process(target=fit, args=(dies_after,))
    process.start()
    process.join()
    with np.load(place / "run") as checkpoint:
        step = json.loads(str(checkpoint["about"]))["step"]
    mode = oct((place / "run.key").stat().st_mode & 0o777)
    print(
        f"killed (exit code {process.exitcode}); on the disk: step {step} of {STEPS}, key with "
        f"mode {mode}; ledger: {len(ledger.entries)} entry, ε = {ledger.total(1e-5):.3f}"
    )

classifier = fit(None)
left = sorted(path.name for path in place.iterdir() if path.name != "dies_after")
print(
    f"ended; on the disk: {left}; ledger: {len(ledger.entries)} entry of {classifier.n_iter_} steps"
)
print(f"accuracy {classifier.score(X_test, y_test):.3f}\n\n{classifier.privacy_}")

# %%
# The learning curve on public rows has no seam. What lies in a checkpoint was released anyway, so
# that it may be shown; the key may not, and is gone.

import matplotlib.pyplot as plt

steps, scores = np.transpose(classifier.public_scores_)
fig, ax = plt.subplots(figsize=(7, 4), layout="constrained")
ax.plot(steps, scores, marker="o", markersize=3)
for dies_after in (7, 13):
    died = (dies_after + 1) * STEPS // 20
    ax.axvline(died, color="tab:red", linestyle=":")
    ax.axvspan((died - 1) // EVERY * EVERY, died, color="tab:red", alpha=0.15, linewidth=0)
ax.set(
    xlabel="noisy step",
    ylabel="accuracy on public rows",
    title="Killed at the dotted lines; shaded steps were made again, the same",
)
plt.show()
