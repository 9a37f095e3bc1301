"""
Audit your own private classifier
=================================

A home-made private classifier says what ε it has. Does it? An audit fits it a few thousand times on
two data sets that differ in one record, and proves from the outside that ε cannot be smaller than
some number. Here one classifier is right, and one has a bug that has been in more than one library:
its noise is that of a single step, while it takes ten.

It takes some ten seconds.
"""

# %%
# Logistic regression by noisy gradient ascent. Each record's gradient is clipped to norm 1, and the
# noise is that of ``n_steps`` releases. The wrong one forgets that there are ten of them.

import math

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin

from skdp.privacy import PrivacyReport, calibrate_noise_multiplier
from skdp.privacy.events import dp_sgd_event


class HomeMade(ClassifierMixin, BaseEstimator):
    """Noisy gradient ascent on all rows, without intercept."""

    def __init__(self, epsilon=4.0, delta=1e-5, n_steps=10, n_samples=None, forgetful=False):
        self.epsilon = epsilon
        self.delta = delta
        self.n_steps = n_steps
        self.n_samples = n_samples
        self.forgetful = forgetful

    def fit(self, X, y):
        """Fit, and state what it cost."""
        budget = {"epsilon": self.epsilon, "delta": self.delta}
        right = calibrate_noise_multiplier(**budget, n_steps=self.n_steps)
        sigma = right / math.sqrt(self.n_steps) if self.forgetful else right
        event = dp_sgd_event(right, 1.0, self.n_steps)  # the claim, whatever the noise
        self.privacy_ = PrivacyReport.of(event, delta=self.delta, sampling="full batch")
        self.classes_ = np.array([0, 1])

        rng = np.random.default_rng()
        theta = np.zeros(X.shape[1])
        for _ in range(self.n_steps):
            residuals = y - 1 / (1 + np.exp(-X @ theta))
            gradients = residuals[:, None] * X
            norms = np.linalg.norm(gradients, axis=1, keepdims=True)
            clipped = gradients / np.maximum(norms, 1)
            theta += 1e-4 * (clipped.sum(axis=0) + sigma * rng.normal(size=len(theta)))
        self.coef_ = theta[None]
        return self

    def predict(self, X):
        """The more probable class."""
        return (X @ self.coef_[0] > 0).astype(int)


# %%
# The audit needs to know nothing of this. Its default data are rows of zeros and one outlier: where
# nothing else moves the result, the outlier's presence shows best. ``n_samples`` is declared, so
# that the record's absence does not show by the number of rows. The claim is read from
# ``privacy_``; it is Gaussian on all rows, and so is the frame.

from skdp.audit import audit_estimator

FITS = 3000
right = audit_estimator(HomeMade(n_samples=10), n_fits=FITS, confidence=0.99)
wrong = audit_estimator(HomeMade(n_samples=10, forgetful=True), n_fits=FITS, confidence=0.99)
for report in (right, wrong):
    print(report, end="\n\n")

# %%
# No test of the canary's presence may have errors below the curve of the claim. That of the right
# classifier is on it, which says that the claim is tight; that of the wrong one far below.

import matplotlib.pyplot as plt

for report, title in (wrong, "noise of one step, for ten"), (right, "noise of ten steps"):
    _, ax = plt.subplots(layout="constrained")
    report.plot(ax)
    ax.set_title(title)
plt.show()
