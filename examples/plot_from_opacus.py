"""
Coming from Opacus
==================

A training loop under Opacus, and the same training in skdp: which lines go, what is accounted in
both, and whether they agree. Where Opacus is installed its loop is run beside ours, under the same
noise and the same batches; where it is not, the example says so and runs ours alone. What is said
of Opacus is of version 1.5.4. ``docs/migrating_from_opacus.md`` has the table of names.

It takes about half a minute.
"""

import importlib.util

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

HAS_OPACUS = importlib.util.find_spec("opacus") is not None
X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(
    np.float32(X / 16), y, test_size=360, random_state=0, stratify=y
)
N, DELTA, SIGMA, CLIP, EPOCHS, BATCH, STEP = len(X_train), 1e-5, 2.0, 1.0, 20, 144, 1.0


def network(n_features, n_outputs):
    """The module: the same for both."""
    return nn.Sequential(nn.Linear(n_features, 50), nn.Tanh(), nn.Linear(50, n_outputs))


# %%
# The old lines. They run as they stand, if Opacus is there.

import torch
from scipy.special import softmax


def with_opacus():
    """Train with Opacus; returns test probabilities and ε."""
    from opacus import PrivacyEngine
    from torch.utils.data import DataLoader, TensorDataset

    model = network(64, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=STEP)
    rows = TensorDataset(torch.from_numpy(X_train), torch.from_numpy(y_train))
    loader = DataLoader(rows, batch_size=BATCH, shuffle=True)
    engine = PrivacyEngine()
    model, optimizer, loader = engine.make_private(
        module=model,
        optimizer=optimizer,
        data_loader=loader,
        noise_multiplier=SIGMA,
        max_grad_norm=CLIP,
    )
    for _ in range(EPOCHS):
        for xb, yb in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(xb), yb).backward()
            optimizer.step()
    with torch.no_grad():
        logits = model(torch.from_numpy(X_test)).numpy()
    return softmax(logits, axis=1), engine.get_epsilon(DELTA)


# %%
# The new ones. Loader, optimiser, engine and loop are parameters. Opacus makes 1 / q steps an epoch
# with q = 1 / len(loader), here a tenth; ``sampling_rate`` and ``max_iter`` say the same.
# ``averaging=0`` keeps the last iterate, as a loop does; the default averages the second half.

import warnings

from sklearn.metrics import log_loss

from skdp import DPSGDClassifier

RATE = 1 / -(-N // BATCH)
model = DPSGDClassifier(
    epsilon=None,
    noise_multiplier=SIGMA,
    clip_norm=CLIP,
    sampling_rate=RATE,
    max_iter=EPOCHS * round(1 / RATE),
    module=network,
    optimizer=torch.optim.SGD,
    learning_rate=STEP,
    averaging=0,
    classes=range(10),
    n_samples=N,
)

ours, theirs = [], []
if not HAS_OPACUS:
    print("Opacus is not installed: its loop is not run (pip install opacus).")
for _ in range(5):
    ours.append((model.fit(X_train, y_train).predict_proba(X_test), model.privacy_.epsilon))
    if HAS_OPACUS:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that its noise comes from torch's generator
            theirs.append(with_opacus())


def tell(name, runs):
    """Print ε, and mean ± standard deviation of accuracy and log-loss."""
    accuracies = [np.mean(p.argmax(axis=1) == y_test) for p, _ in runs]
    losses = [log_loss(y_test, p) for p, _ in runs]
    print(
        f"{name:<24} ε={runs[0][1]:.3f}  accuracy {np.mean(accuracies):.3f} ± "
        f"{np.std(accuracies, ddof=1):.3f}  log-loss {np.mean(losses):.3f} ± "
        f"{np.std(losses, ddof=1):.3f}"
    )
    return accuracies


found = {"skdp, last iterate": tell("skdp, last iterate", ours)}
if theirs:
    found["Opacus"] = tell("Opacus", theirs)

# %%
# What the defaults make of the same ε: full batches, an Adam that knows its noise, and the average
# of the second half of the run. No rate, no number of steps and no noise need be chosen.

default = DPSGDClassifier(ours[0][1], DELTA, module=network, classes=range(10), n_samples=N)
runs = []
for _ in range(5):
    default.fit(X_train, y_train)
    runs.append((default.predict_proba(X_test), default.privacy_.epsilon))
found["skdp, its defaults"] = tell("skdp, its defaults", runs)
print(model.privacy_)

# %%
# All scores are on held-out rows of a public data set, after fifteen fits. On private rows each
# fit would be a release. A `PrivacyLedger` adds up every fit in its process; an engine of Opacus
# adds up the steps that were taken with it, and each of these runs has an engine of its own.
#
# **Do the accountants agree?** ε against the number of steps, for this rate and noise. Opacus's
# default accountant adds the error that it allows itself, .01, to be on the safe side; ours adds
# less. Under ``replace_one`` the same noise is worth less.

import matplotlib.pyplot as plt

from skdp.privacy import epsilon

steps = np.unique(np.geomspace(10, 1000, 12).astype(int))
COST = {"noise_multiplier": SIGMA, "sampling_rate": RATE, "delta": DELTA}
curves = {
    f"skdp, {relation}": [
        epsilon(**COST, n_steps=int(t), neighboring_relation=relation) for t in steps
    ]
    for relation in ("zero_out", "replace_one")
}
if HAS_OPACUS:
    from opacus.accountants import PRVAccountant

    curves["Opacus, prv"] = []
    for t in steps:
        accountant = PRVAccountant()
        accountant.history = [(SIGMA, RATE, int(t))]
        curves["Opacus, prv"].append(accountant.get_epsilon(DELTA))
    excess = np.subtract(curves["Opacus, prv"], curves["skdp, zero_out"])
    print(f"Opacus's ε exceeds skdp's by {excess.min():.3f} to {excess.max():.3f}")

_, left = plt.subplots(layout="constrained")
styles = {"skdp, zero_out": "o-", "skdp, replace_one": "^-", "Opacus, prv": "kx"}
for name, values in curves.items():
    left.plot(steps, values, styles[name], markersize=5, label=name)
left.set(xscale="log", xlabel="Steps", ylabel=f"ε at δ = {DELTA:g}")
left.set_title(f"The price of q = {RATE:g}, σ = {SIGMA:g}")
left.legend(frameon=False)
_, right = plt.subplots(layout="constrained")
for position, values in enumerate(found.values()):
    right.plot(np.full(len(values), position), values, "o", alpha=0.6)
    right.hlines(np.mean(values), position - 0.25, position + 0.25, color="k")
right.set_xticks(range(len(found)), list(found))
right.set(
    ylabel="Accuracy on held-out rows", title=f"Digits at ε = {ours[0][1]:.2f}: five runs each"
)
plt.show()
