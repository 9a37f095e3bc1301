"""
Labels that do not exclude each other
=====================================

A patient may have several diagnoses, or none. With y (n, n_labels) of 0 and 1, one private network
learns all labels at once, a sigmoid each: one fit, one statement of ε. One network per label is a
fit per label: five fits at ε cost more than twice ε, or each gets √5 times the noise.

It takes about twenty seconds on one core.
"""

EPSILON, DELTA, N_TRAIN, REPETITIONS = 0.5, 1e-5, 4000, 5
LABELS = ["hypertension", "diabetes", "asthma", "anaemia", "gout"]

# %%
# Synthetic patients: ten features, of which each diagnosis depends on three, and shares from about
# a half to one in twenty.

import numpy as np

rng = np.random.default_rng(0)
weights = np.zeros((10, 5))
for label in range(5):
    weights[rng.choice(10, 3, replace=False), label] = rng.choice([-3.0, 3.0], 3)
offsets = np.array([0.0, -1.5, -2.5, -3.5, -6.0])


def patients(n):
    """Features in [-1, 1], diagnoses (n, 5), true probabilities of diagnoses."""
    X = rng.uniform(-1, 1, (n, 10))
    p = 1 / (1 + np.exp(-(X @ weights + offsets)))
    return X, (rng.random(p.shape) < p).astype(int), p


X, Y, _ = patients(N_TRAIN)
X_test, Y_test, p_test = patients(20_000)

# %%
# One network. A record's gradient, over all of its labels together, is clipped once.

from skdp import DPSGDClassifier

PUBLIC = {"n_samples": N_TRAIN, "hidden_layer_sizes": (30,)}
together = DPSGDClassifier(EPSILON, DELTA, classes=LABELS, **PUBLIC).fit(X, Y)
print(together.privacy_)

# %%
# Five networks. Noisy sums over all rows compose in quadrature: with √5 times the noise of the one
# network, five cost the same. A ledger adds them up. Without more noise their sum is another.

from sklearn.multioutput import MultiOutputClassifier

from skdp import PrivacyLedger
from skdp.privacy import epsilon

noise = together.noise_multiplier_
single = DPSGDClassifier(None, DELTA, noise_multiplier=5**0.5 * noise, classes=[0, 1], **PUBLIC)
apart = MultiOutputClassifier(single)
with PrivacyLedger() as ledger:
    apart.fit(X, Y)
print(f"\none network: ε = {together.privacy_.epsilon:.2f}; five: ε = {ledger.total(DELTA):.2f}")
five = epsilon(noise_multiplier=noise, sampling_rate=1.0, n_steps=5 * together.n_iter_, delta=DELTA)
print(f"five with the noise of the one: ε = {five:.2f}")

# %%
# How well each label is ranked on held-out patients: the area under the ROC curve, where .5 is
# chance, and average precision, where the label's share is chance.

from sklearn.metrics import average_precision_score, roc_auc_score

METHODS = {
    "one network": lambda: together.fit(X, Y).predict_proba(X_test),
    "five networks": lambda: np.stack([p[:, 1] for p in apart.fit(X, Y).predict_proba(X_test)], 1),
}
METRICS = {"ROC AUC": roc_auc_score, "average precision": average_precision_score}
scores = {name: np.empty((REPETITIONS, len(METRICS), 5)) for name in METHODS}
for name, probabilities in METHODS.items():
    for found in scores[name]:
        p = probabilities()
        found[:] = [metric(Y_test, p, average=None) for metric in METRICS.values()]
best = np.array([metric(Y_test, p_test, average=None) for metric in METRICS.values()])

shares = Y_test.mean(axis=0)
print(f"\nmean of {REPETITIONS} fits at ε = {EPSILON:g}   {'':<2}", *(f"{m:>24}" for m in METRICS))
print(f"{'':<16}{'share':>6}" + f"{'one':>10}{'five':>8}{'best':>8}" * 2)
for j, label in enumerate(LABELS):
    cells = [
        f"{scores['one network'][:, i, j].mean():>10.3f}"
        f"{scores['five networks'][:, i, j].mean():>8.3f}{best[i, j]:>8.3f}"
        for i in range(2)
    ]
    print(f"{label:<16}{shares[j]:>6.2f}" + "".join(cells))

# %%
# On frequent labels one network and five are alike. The rarest is the hardest, for few patients
# tell of it and the noise is the same; the five, with more noise each, lose most there.

import matplotlib.pyplot as plt

for i, (metric, chance) in enumerate(zip(METRICS, (np.full(5, 0.5), shares), strict=True)):
    figure, ax = plt.subplots(layout="constrained")
    for shift, (name, found) in zip((-0.12, 0.12), scores.items(), strict=True):
        mean, sd = found[:, i].mean(axis=0), found[:, i].std(axis=0, ddof=1)
        ax.errorbar(mean, np.arange(5) + shift, xerr=sd, fmt="o", capsize=3, label=name)
    ax.plot(best[i], np.arange(5), "k|", markersize=18, label="true probabilities")
    ax.plot(chance, np.arange(5), "|", color="0.6", markersize=18, label="chance")
    ax.set(xlabel=metric, yticks=range(5))
    ax.set_yticklabels([f"{n} ({share:.0%})" for n, share in zip(LABELS, shares, strict=True)])
    ax.invert_yaxis()
    ax.set_title(f"Held-out patients, ε = {EPSILON:g} in all: mean ± 1 sd of {REPETITIONS} fits")
    figure.legend(loc="outside lower center", ncols=2)
plt.show()
