"""
One posterior sample: what it costs, what it is worth, and how not to draw it
=============================================================================

A single draw from a posterior is private by itself (Wang, Fienberg & Smola 2015), if it *is* one.
This example draws from the posterior of a logistic regression on breast-cancer measurements, with
pure ε by an exact sampler and with (ε, δ) by a Langevin chain whose certificate needs no
convergence, and then looks at the usual way, a random walk that was run for a while: its samples
look better, and they are worthless.

It takes about a minute.
"""

# %%
# Four measurements, with bounds that are public knowledge. The classes and the size of the study
# are declared, rows are clipped to norm 1.

from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

from skdp import BoundedScaler

X, y = load_breast_cancer(return_X_y=True, as_frame=True)
X = X[["mean radius", "mean texture", "mean concavity", "mean symmetry"]]
y = 1 - y.to_numpy()  # 1: malignant
X = BoundedScaler(lower=[5, 5, 0, 0.1], upper=[30, 40, 0.4, 0.3]).fit_transform(X)
PUBLIC = {"classes": [0, 1], "n_samples": 398, "data_norm": 1.0}
SPLITS = [
    train_test_split(X, y, test_size=171, random_state=seed, stratify=y) for seed in range(20)
]

# %%
# Pure ε against (ε, δ), and one sample against ten, which share the budget: each of the ten is of a
# flatter posterior, and their average is a better prediction. The likelihood power ρ is what the
# budget buys: a sample is of the posterior that ρn patients would have given. A fit whose
# coefficients are lost in the noise warns; at ε = 0.1 that is expected here.

import warnings

import numpy as np
from sklearn.metrics import log_loss

from skdp import FitWarning, OPSPosteriorSampler

warnings.simplefilter("ignore", FitWarning)
EPSILONS = [0.1, 0.3, 1.0, 3.0, 10.0]
KINDS = {
    "ε alone, one exact sample": {"delta": 0},
    "δ = 1e-5, one chain": {},
    "δ = 1e-5, ten chains": {"n_posterior_samples": 10},
}
losses = np.empty((len(KINDS), len(EPSILONS), len(SPLITS)))
powers = np.empty((len(KINDS), len(EPSILONS)))
for i, parameters in enumerate(KINDS.values()):
    for j, epsilon in enumerate(EPSILONS):
        for s, (A, B, a, b) in enumerate(SPLITS):
            sampler = OPSPosteriorSampler(epsilon, **parameters, **PUBLIC).fit(A, a)
            losses[i, j, s] = log_loss(b, sampler.predict_proba(B))
        powers[i, j] = sampler.likelihood_power_

print("log-loss on held-out rows, mean of 20 splits (likelihood power)")
print(" " * 28 + "".join(f"ε = {e:<12g}" for e in EPSILONS))
for name, loss, power in zip(KINDS, losses.mean(axis=2), powers, strict=True):
    cells = "".join(f"{x:.3f} ({p:.3f})   " for x, p in zip(loss, power, strict=True))
    print(f"{name:<28}{cells}")

# %%
# More samples than were paid for cannot be had.

try:
    sampler.sample_posterior(100)
except RuntimeError as refusal:
    print(f"\n{type(refusal).__name__}: {refusal}")

# %%
# Now the usual way: start a random walk at the mode, run it for a while, take its last state for a
# sample of the same posterior. Nobody can check on private data that it had converged, and this one
# had not: its steps are short, as one makes them to see many accepted. What comes out is the mode
# with a little noise around it.

from scipy.optimize import minimize

A, B, a, b = SPLITS[0]
epsilon, n_runs = 1.0, 1000
certified = OPSPosteriorSampler(epsilon, **PUBLIC).fit(A, a)
rho, tau = certified.likelihood_power_, certified.prior_scale_


def with_intercept(X):
    """Clip rows to norm 1, and append a 1."""
    rows = X / np.maximum(1.0, np.linalg.norm(X, axis=1))[:, None]
    return np.hstack([rows, np.ones((len(X), 1))])


def potential(theta, rows, labels):
    """Minus the log of the tempered posterior, for each of several θ."""
    signs = 2 * labels - 1
    likelihood = -np.logaddexp(0.0, -(theta @ rows.T) * signs).sum(axis=1)
    return -rho * likelihood + (theta**2).sum(axis=1) / (2 * tau**2)


def random_walks(rows, labels, n_steps=50, step=0.005):
    """Last states of walks from the mode."""
    coin = np.random.default_rng()
    mode = minimize(lambda t: potential(t[None], rows, labels)[0], np.zeros(rows.shape[1])).x
    theta = np.repeat(mode[None], n_runs, axis=0)
    energy = potential(theta, rows, labels)
    accepted = 0.0
    for _ in range(n_steps):
        proposal = theta + step * coin.standard_normal(theta.shape)
        new = potential(proposal, rows, labels)
        better = np.log(coin.random(n_runs)) < energy - new
        theta[better], energy[better] = proposal[better], new[better]
        accepted += better.mean() / n_steps
    return theta, mode, accepted


# %%
# Two studies that differ in one patient, whose record the second one does not hold: the case that
# privacy is about. An observer gets one released sample and asks which study it came from.

from scipy.stats import beta, norm

from skdp.privacy import gdp_to_epsilon

rows = with_intercept(A)
mode = random_walks(rows, a)[1]
patient = int(np.argmin((2 * a - 1) * (rows @ mode)))  # the least typical one
other = rows.copy()
other[patient] = 0.0

walks, mode, accepted = random_walks(rows, a)
other_walks, other_mode, _ = random_walks(other, a)
direction = (mode - other_mode) / np.linalg.norm(mode - other_mode)
middle = (mode + other_mode) / 2 @ direction

chains, other_chains = np.empty((2, n_runs, rows.shape[1]))
for r in range(n_runs):
    given = {"epsilon": epsilon, "classes": [0, 1], "n_samples": 398, "data_norm": 2**0.5}
    given |= {"fit_intercept": False, "prior_scale": tau}  # the 1 is a column: it can be zeroed
    chains[r] = OPSPosteriorSampler(**given).fit(rows, a).sample_posterior()[0]
    other_chains[r] = OPSPosteriorSampler(**given).fit(other, a).sample_posterior()[0]


def proved(mine, others):
    """ε at δ = 1e-5 that two sets of samples prove, at 99.9 % confidence, for a fixed threshold."""
    errors = np.sum(mine @ direction < middle), np.sum(others @ direction > middle)
    rates = [beta.ppf(0.9995, e + 1, n_runs - e) for e in errors]
    mu = -norm.ppf(rates[0]) - norm.ppf(rates[1])
    return gdp_to_epsilon(mu, 1e-5) if mu > 0 else 0.0


print(f"\nclaimed: ε = {epsilon:g} at δ = 1e-5, one patient more or less, {n_runs} samples each")
for name, mine, others in [
    ("random walk from the mode", walks, other_walks),
    ("certified Langevin chain", chains, other_chains),
]:
    mean_loss = np.mean([log_loss(b, 1 / (1 + np.exp(-with_intercept(B) @ t))) for t in mine])
    print(f"  {name:<27} log-loss {mean_loss:.3f}, proved ε ≥ {proved(mine, others):.2f}")
print(f"  (the walk accepted {accepted:.0%} of its steps, which tells nobody anything)")

# %%
# What a budget buys, and what the observer sees.

import math

import matplotlib.pyplot as plt

axes = [plt.subplots(layout="constrained")[1] for _ in range(4)]
for name, loss, power in zip(KINDS, losses, powers, strict=True):
    error = loss.std(axis=1) / math.sqrt(len(SPLITS) - 1)
    axes[0].errorbar(EPSILONS, loss.mean(axis=1), error, fmt="o-", capsize=3, label=name)
    axes[1].plot(EPSILONS, power, "o-", label=name)
axes[0].set(xscale="log", xlabel="ε", ylabel="log-loss on held-out rows")
axes[0].set(title="What a sample is worth")
axes[1].set(xscale="log", yscale="log", xlabel="ε", ylabel="likelihood power ρ a sample")
axes[1].set(title="What a budget buys")
for axis in axes[:2]:
    axis.legend(fontsize="small")
bins = np.linspace(-1, 1, 61)
for axis, title, mine, others in [
    (axes[2], "Uncertified walk: one patient shows", walks, other_walks),
    (axes[3], "Certified chain: nobody shows", chains, other_chains),
]:
    spread = max(np.std(mine @ direction), np.std(others @ direction))
    for sample, label in [(mine, "with the patient"), (others, "without")]:
        axis.hist(sample @ direction - middle, bins=bins * 4 * spread, alpha=0.6, label=label)
    axis.set(title=title, xlabel="released sample, along the patient's pull", ylabel="runs")
    axis.legend(fontsize="small")
plt.show()
