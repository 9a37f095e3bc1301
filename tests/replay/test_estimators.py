"""What leaves a fit is the trace and nothing else, in more ways than the registry has (replay)."""

import pickle
from unittest import mock

import numpy as np
import pytest
import torch
from contracts.subjects import RELEASING, VARIANTS
from replay.neighbours import VALUES, frozen, neighbours
from sklearn.base import is_regressor
from sklearn.utils import get_tags

from skdp import (
    DPAdditiveClassifier,
    DPAdditivePoissonRegressor,
    DPAdditiveRegressor,
    DPSGDClassifier,
    DPSGDRegressor,
    DPSGLDClassifier,
    DPSGLDRegressor,
    DPVariationalLinearRegression,
    DPVariationalLogisticRegression,
    DPVariationalModel,
    OPSPosteriorSampler,
)
from skdp.engine import release_hook
from skdp.testing import _replayed, _subjects, fixed_streams
from skdp.testing._checks import check_ledger, declared, described, good_data, relation_of

pytestmark = pytest.mark.filterwarnings("ignore::skdp.PrivacyWarning")
N = 40
BASE = np.random.default_rng(0)
X = BASE.uniform(-1, 1, (N, 3))
Y = (X[:, 0] > 0).astype(int)
NUMBERS = X[:, 0] + 0.1 * BASE.standard_normal(N)
SKEWED = np.where(BASE.random((N, 3)) < 0.3, 0.0, BASE.lognormal(0.0, 1.0, (N, 3)))
REPLACED = {"neighboring_relation": "replace_one"}
ADDED = {"neighboring_relation": "add_or_remove_one"}


def with_dropout(n_features, n_outputs):
    layers = [torch.nn.Linear(n_features, 5), torch.nn.Tanh(), torch.nn.Dropout(0.5)]
    return torch.nn.Sequential(*layers, torch.nn.Linear(5, n_outputs))


def simulate(theta, x, generator):
    return torch.bernoulli(torch.sigmoid(x @ theta[:3]), generator=generator)


def log_likelihood(theta, x, y):
    # Not finite at some rows, and beyond any range at others.
    z = x @ theta[:3] + theta[3] * torch.log(x[:, 0] + 1.5)
    return y * z - torch.nn.functional.softplus(z)


def model(**settings):
    return DPVariationalModel(log_likelihood, 4, example_rows=np.zeros((3, 3)), **settings)


def ways(kind, *plans, **shared):
    return [(kind, {**shared, **plan}) for plan in plans]


HIDDEN, LINEAR = {"hidden_layer_sizes": (5,)}, {"hidden_layer_sizes": ()}
MODULE = {"module": with_dropout}
NETWORKS = [
    HIDDEN,
    LINEAR,
    HIDDEN | {"sampling_rate": 0.2, "clipping": "automatic"},
    REPLACED | {"hidden_layer_sizes": (4, 4)},
    ADDED | HIDDEN | {"sampling_rate": 0.5, "optimizer": torch.optim.RMSprop},
    MODULE | {"physical_batch_size": 7, "optimizer": "sgd"},
]
SECURE = [
    LINEAR | {"secure": True},
    HIDDEN | {"secure": True, "sampling_rate": 0.2},
    REPLACED | {"secure": True, "hidden_layer_sizes": (4, 3), "clipping": "automatic"},
    ADDED | HIDDEN | {"secure": True, "sampling_rate": 0.5},
]
# Settings of chains without clipping by layers.
CHAINS = [
    HIDDEN,
    LINEAR | {"sampling_rate": 0.2, "decay_exponent": 0.0},
    LINEAR | {"prenoise_scale": 0.5, "burn_in": 0, "thinning": 2, "max_iter": 4},
    MODULE | REPLACED,
]
LABELS = {"classes": [0, 1], "max_iter": 3}
BOUNDS = {"target_bounds": (0, 1), "max_iter": 3}
MUCH = {"epsilon": 200.0}  # second moments in full, and the slope
LOUD = {"epsilon": None, "noise_multiplier": 0.5, "max_iter": 21}
EDGES = {"bounds": [(0, 1e6), (-10, 10), (-1, 1)], "edges": "private", "n_bins": 8, "epsilon": 60.0}
CASES = [
    *ways(DPSGDClassifier, *NETWORKS, *SECURE, **LABELS),
    *ways(DPSGDRegressor, *NETWORKS[:3], *SECURE[:2], **BOUNDS),
    *ways(DPSGLDClassifier, *CHAINS, *SECURE, **LABELS),
    *ways(DPSGLDRegressor, *CHAINS[:2], **BOUNDS),
    *ways(
        DPVariationalLogisticRegression,
        {},
        MUCH,
        MUCH | {"max_iter": 1, "fit_intercept": False},
        REPLACED | {"clip_norm": 0.1},
        ADDED | MUCH,
        MUCH | {"robust": True},
        MUCH | {"robust": True, "secure": True},
        REPLACED | {"robust": True, "clip_norm": 0.1},
        MUCH | {"prior_blocks": ["a", "b", "a"]},
        {"prior_scale": 0.5, "robust": True},
        MUCH | {"classes": [0, 1, 2]},
        {"classes": range(6), "max_iter": 2},
        **LABELS,
    ),
    *ways(
        DPVariationalLogisticRegression,
        {"sampling_rate": 0.2},
        {"covariance": "full"},
        {"gradient": "vanilla"},
        REPLACED | {"clip_norm": 0.1},
        ADDED | {"sampling_rate": 0.5},
        {"classes": [0, 1, 2]},
        **LABELS,
        inference="dpvi",
    ),
    *ways(
        DPVariationalLinearRegression,
        {"max_iter": 3},
        {"max_iter": 3, "target_bounds": (-2.0, 1.0)},
        REPLACED | {"clip_norm": 0.1},
        ADDED | {"fit_intercept": False},
        {"epsilon": None, "noise_multiplier": 3.0},
        max_iter=2,
    ),
    *ways(
        model,
        {},
        {"covariance": "diag"},
        {"sampling_rate": 0.2, "inference": "dpvi"},
        REPLACED | {"clip_norm": 0.1},
        ADDED | {"sampling_rate": 0.5},
        {"data_norm": 1.0},
        LOUD,  # the clip is learned
        LOUD | {"noise_multiplier": 0.1, "clip_norm": 0.01, "max_iter": 6},  # and warned of
        {"max_iter": 21, "simulate": simulate},
        LOUD | {"inference": "dpvi"},
        max_iter=5,
    ),
    *ways(
        OPSPosteriorSampler,
        {},
        {"n_posterior_samples": 3, "batch_size": 7, "max_iter": 4},
        REPLACED | {"theta_norm": 2.0},
        ADDED | {"n_samples": N + 5},
        {"classes": [0, 1, 2], "max_iter": 5},
        {"delta": 0, "n_posterior_samples": 2},
        {"delta": 0, "sampler": "rejection", "epsilon": 0.1},
        REPLACED | {"delta": 0, "sampler": "rejection"},
        ADDED | {"delta": 0, "n_samples": N + 5},
        {"delta": 0, "classes": [0, 1, 2], "epsilon": 0.3},
        {"epsilon": None, "likelihood_power": 0.01},
        classes=[0, 1],
    ),
    *ways(
        DPAdditiveClassifier,
        {"epsilon": 1.0},
        {},
        REPLACED,
        ADDED,
        {"robust": True},
        {"secure": True},
        {"classes": [0, 1, 2]},
        EDGES | {"epsilon": 1.0},
        EDGES | {"epsilon": 300.0},  # many bins and waves
        EDGES | {"secure": True},
        EDGES | {"edges": {0: "private"}},
        EDGES | {"classes": [0, 1, 2], "n_bins": 4},
        EDGES | REPLACED,
        classes=[0, 1],
        epsilon=200.0,
        n_bins=6,
    ),
    *ways(
        DPAdditiveRegressor,
        {"target_bounds": (0, 1), "epsilon": 200.0, "n_bins": 6},
        EDGES | ADDED,
        EDGES | {"epsilon": None, "noise_multiplier": 0.2, "target_bounds": (0, 2)},
    ),
    *ways(
        DPAdditivePoissonRegressor,
        {"largest_count": 3, "epsilon": 200.0, "n_bins": 6},
        EDGES | {"edges_share": 0.5},
    ),
]
IDS = [f"{kind.__name__}{i}" for i, (kind, _) in enumerate(CASES)]
each_case = pytest.mark.parametrize(("kind", "plan"), CASES, ids=IDS)


def make(kind, plan):
    estimator = kind(**plan)
    return estimator if "n_samples" in plan else estimator.set_params(n_samples=N)


def public_state(estimator):
    """Return everything that a user, a pickle or a repr can see of a fitted estimator."""
    return described(vars(estimator)), repr(estimator), repr(estimator.privacy_)


def data_of(kind, plan):
    """Rows and targets, and what targets of neighbours may be."""
    rows = SKEWED if "edges" in plan else X
    if kind in (DPVariationalLinearRegression, DPAdditiveRegressor):
        return rows, NUMBERS, VALUES
    return rows, Y, (0, 1)


@pytest.mark.quick(15)
@each_case
def test_with_the_releases_frozen_nothing_depends_on_the_data(kind, plan):
    estimator = make(kind, plan)
    rows, y, targets = data_of(kind, plan)
    values = [*VALUES, np.nan] if get_tags(estimator).input_tags.allow_nan else VALUES
    if "n_bins" in plan:  # expensive, and the registry has them as well
        values = [0.0, -1e300, np.nan]
    n_is_public = kind is OPSPosteriorSampler and relation_of(estimator) != "add_or_remove_one"
    # Initial weights and draws are no function of the data; both runs get the same.
    with fixed_streams(b"replay"):
        frozen(
            lambda *data: public_state(make(kind, plan).fit(*data)),
            (rows, y),
            neighbours(rows, y, values, targets, n_is_public=n_is_public),
        )


@pytest.mark.quick(45)
@each_case
def test_the_event_in_the_ledger_is_the_trace(kind, plan):
    given = {"good_data": mock.Mock(return_value=data_of(kind, plan)[:2])}
    with mock.patch.multiple(_subjects, **given), mock.patch.multiple(_replayed, **given):
        check_ledger(make(kind, plan))


@pytest.mark.parametrize("name", RELEASING)
def test_the_training_rows_are_not_in_the_pickle(name):
    estimator = declared(VARIANTS[name])
    X, y = good_data(estimator)
    marker = np.float64(0.123456789123)
    X[5] = marker
    if is_regressor(estimator):
        y[6] = marker
    pickled = pickle.dumps(estimator.fit(X, y).__dict__)
    assert marker.tobytes() not in pickled
    assert np.float32(marker).tobytes() not in pickled


@pytest.mark.parametrize(
    ("kind", "more"),
    [(DPSGDClassifier, HIDDEN), (DPVariationalLogisticRegression, {"inference": "dpvi"})],
)
def test_an_empty_poisson_batch_still_releases_noise(kind, more):
    plan = LABELS | more | {"max_iter": 30, "sampling_rate": 1e-4}
    with release_hook.record() as tape:
        make(kind, plan).fit(X, Y)
    assert len(tape) == 30 + (kind is not DPSGDClassifier)  # and the counts
    assert all(np.abs(np.asarray(r.output)).min() > 0 for r in tape)
