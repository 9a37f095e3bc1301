"""
Credible intervals that can be believed
=======================================

An analyst who reads "the coefficient is 1.2 ± 0.3 with 90 % probability" acts on it. Where the fit
was private, the usual posterior cannot be taken at its word: it was learned from noisy gradients
and does not say so. This example draws parameters from a prior and data from a model, fits both
kinds of posterior, and counts how often an interval holds the truth.

It takes a minute and a half.
"""

# %%
# A study of 1000 people and three risk factors. The model and the prior are right, so that a
# posterior that misses the truth too often has itself to blame.

import numpy as np

N_ROWS, PRIOR_SCALE = 1000, 2.0
PUBLIC = {
    "classes": [0, 1],
    "n_samples": N_ROWS,
    "data_norm": 1.0,
    "fit_intercept": False,
    "prior_scale": PRIOR_SCALE,
}


def study(seed):
    """Rows of norm ≤ 1, labels, and the coefficients they come from."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (N_ROWS, 3)) / np.sqrt(3)
    coefficients = PRIOR_SCALE * rng.normal(size=3)
    y = rng.random(N_ROWS) < 1 / (1 + np.exp(-X @ coefficients))
    return X, y.astype(int), coefficients


# %%
# Each interval at each level is checked. The noise-aware posterior is the default;
# ``inference="dpvi"`` is the one that takes its noisy gradients for exact. A fit whose coefficients
# are lost in the noise warns; at ε = 0.3 that is expected here.

import warnings

from scipy.stats import norm

from skdp import DPVariationalLogisticRegression, FitWarning

warnings.simplefilter("ignore", FitWarning)

EPSILONS, KINDS, REPETITIONS = (0.3, 1.0, 3.0), ("dpvi", "noise_aware"), 120
NAMES = {"dpvi": "plain", "noise_aware": "noise-aware"}
LEVELS = np.linspace(0.05, 0.95, 19)
covered = {(kind, epsilon): [] for kind in KINDS for epsilon in EPSILONS}
for seed in range(REPETITIONS):
    X, y, coefficients = study(seed)
    for kind, epsilon in covered:
        model = DPVariationalLogisticRegression(epsilon, inference=kind, **PUBLIC).fit(X, y)
        deviation = np.sqrt(np.diag(model.covariance_))
        distance = np.abs(model.coef_[0] - coefficients) / deviation
        covered[kind, epsilon].append(distance[:, None] <= norm.ppf((1 + LEVELS) / 2))
covered = {key: np.concatenate(hits).mean(axis=0) for key, hits in covered.items()}
for epsilon in EPSILONS:
    shares = [f"{NAMES[kind]} {100 * covered[kind, epsilon][-2]:.0f} %" for kind in KINDS]
    print(f"epsilon={epsilon:g}: 90 % intervals hold the truth in", ", ".join(shares))

# %%
# One study seen both ways at ε = 0.3. The plain intervals are too narrow; the noise-aware ones say
# how little is known. Over all studies a posterior that tells the truth lies on the diagonal.

import matplotlib.pyplot as plt

X, y, coefficients = study(1)
_, left = plt.subplots(figsize=(5.5, 4.2), layout="constrained")
COLOURS = {"dpvi": "tab:orange", "noise_aware": "tab:blue"}
for offset, kind in zip((-0.12, 0.12), KINDS, strict=True):
    model = DPVariationalLogisticRegression(0.3, inference=kind, **PUBLIC).fit(X, y)
    half = norm.ppf(0.95) * np.sqrt(np.diag(model.covariance_))
    where = np.arange(3) + offset
    left.errorbar(
        where, model.coef_[0], half, fmt="o", capsize=3, label=NAMES[kind], color=COLOURS[kind]
    )
left.plot(np.arange(3), coefficients, "k_", markersize=22, label="truth")
left.set_xticks(range(3), ["factor 1", "factor 2", "factor 3"])
left.set_ylabel("Coefficient, 90 % interval")
left.set_title("One study at ε = 0.3")
left.legend()

_, right = plt.subplots(figsize=(5.5, 4.2), layout="constrained")
right.plot([0, 1], [0, 1], color="grey", linewidth=0.8, zorder=0)  # where the truth is told
for (kind, epsilon), shares in covered.items():
    width = {0.3: 0.9, 1.0: 1.6, 3.0: 2.6}[epsilon]
    right.plot(
        LEVELS,
        shares,
        color=COLOURS[kind],
        linewidth=width,
        label=f"{NAMES[kind]}, ε = {epsilon:g}",
    )
right.set_xlabel("Nominal level")
right.set_ylabel("Share of intervals that hold the truth")
right.set_title(f"{REPETITIONS} studies")
right.legend()
plt.show()
