"""
A search that pays for its choice
=================================

Trying ten settings on private rows and keeping the best is eleven releases, or more: each fit, and
the choice. This example counts what a plain grid search spends, shows what a private selection
costs instead, and whether it is worth it.

It takes about a minute.
"""

EPSILON, DELTA, N_TRAIN = 2.0, 1e-5, 3000

# %%
# Rows of ten features in [-1, 1] whose product matters, so that a network is needed, and a learning
# rate that nobody knows.

import numpy as np
from scipy.stats import loguniform

from skdp import DPSGDClassifier

rng = np.random.default_rng(0)
X = rng.uniform(-1, 1, (2 * N_TRAIN, 10))
y = (3 * X[:, 0] + 8 * X[:, 1] * X[:, 2] + rng.logistic(size=len(X)) > 0).astype(int)
X_train, y_train, X_test, y_test = X[:N_TRAIN], y[:N_TRAIN], X[N_TRAIN:], y[N_TRAIN:]
network = DPSGDClassifier(
    EPSILON,
    DELTA,
    hidden_layer_sizes=(16,),
    sampling_rate=1.0,  # full batches: then all settings cost the same
    max_iter=40,
    classes=[0, 1],
    n_samples=N_TRAIN,
)
settings = {"learning_rate": loguniform(1e-3, 3.0)}

# %%
# The usual way. A ledger counts three fits for each of three settings and the refit, in this
# process or in workers. And `privacy_of` says what no ledger can count: the scores of the folds are
# exact.

import warnings

from sklearn.model_selection import GridSearchCV

from skdp.privacy import PrivacyLedger, privacy_of

with PrivacyLedger() as ledger:
    usual = GridSearchCV(network, {"learning_rate": [0.01, 0.1, 1.0]}, cv=3, n_jobs=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        usual.fit(X_train, y_train)
print(f"grid search: {len(ledger.entries)} fits, epsilon={ledger.total(DELTA):.2f} together")
print(privacy_of(usual).unaccounted[0])

# %%
# The private way: the number of trials is random and never shown, which makes the best of many
# cost about as much as two or three fits (Papernot & Steinke 2022).

from skdp.model_selection import DPRandomizedSearch

search = DPRandomizedSearch(network, settings, epsilon=EPSILON, delta=DELTA, mean_trials=10)
search.fit(X_train, y_train)
print(f"private search: learning rate {search.best_params_['learning_rate']:.3f}, each trial with")
print(f"epsilon={search.trial_epsilon_:.2f}, and for all of it")
print(search.privacy_)

# %%
# What a selection costs, where each trial alone is (1, 1e-5).

from dp_accounting import ComposedDpEvent
from dp_accounting.dp_event import RepeatAndSelectDpEvent

from skdp.privacy import epsilon_of_event, epsilon_to_gdp
from skdp.privacy.events import gdp_event

means = np.array([1, 2, 3, 5, 10, 20, 50, 100])
trial = gdp_event(epsilon_to_gdp(1.0, DELTA))


def price(mean, shape):
    """ε of the best of a random number of trials."""
    return epsilon_of_event(RepeatAndSelectDpEvent(trial, float(mean), shape), DELTA)


prices = {
    "all of them are told": [epsilon_of_event(ComposedDpEvent([trial] * k), DELTA) for k in means],
    "best of Poisson": [np.nan, *(price(mean, np.inf) for mean in means[1:])],
    "best of geometric": [np.nan, *(price(mean, 1.0) for mean in means[1:])],
    "best of logarithmic": [np.nan, *(price(mean, 0.0) for mean in means[1:])],
}

# %%
# And whether it pays: against the defaults, and against one draw of the same settings with the
# whole budget.

from sklearn.metrics import log_loss
from sklearn.model_selection import ParameterSampler


def loss(model):
    """Test log-loss."""
    return log_loss(y_test, model.fit(X_train, y_train).predict_proba(X_test))


losses = {"defaults": [], "one draw": [], "private search": []}
for _ in range(12):
    losses["defaults"].append(loss(network))
    (drawn,) = ParameterSampler(settings, n_iter=1)
    losses["one draw"].append(loss(DPSGDClassifier(**{**network.get_params(), **drawn})))
    losses["private search"].append(loss(search))
for name, values in losses.items():
    print(f"{name}: log-loss {np.mean(values):.3f}, worst {np.max(values):.3f}")

# %%
import matplotlib.pyplot as plt

(_, left), (_, right) = [plt.subplots(layout="constrained") for _ in range(2)]
for (name, values), style in zip(prices.items(), ("k--", "o-", "o-", "o-"), strict=True):
    left.plot(means, values, style, markersize=4, label=name)
left.set(xscale="log", ylim=(0, 8), xlabel="mean number of trials", ylabel="ε at δ = 1e-5")
left.set_title("What a choice among trials of ε = 1 costs")
left.legend(frameon=False)
for position, values in enumerate(losses.values()):
    right.plot(position + np.linspace(-0.15, 0.15, len(values)), np.sort(values), "o", alpha=0.7)
    right.hlines(np.mean(values), position - 0.3, position + 0.3, color="k")
right.set_xticks(range(3), list(losses))
right.set(ylabel="test log-loss", title=f"ε = {EPSILON:g} in all: one point a run")
plt.show()
