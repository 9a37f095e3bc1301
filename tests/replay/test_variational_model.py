"""What leaves a fit of a user's model is the trace and nothing else (record and replay)."""

import pickle
from unittest import mock

import numpy as np
import pytest
import torch
from replay.neighbours import frozen, neighbours

from skdp import FitWarning, PrivacyLedger, _release_hook
from skdp._random import Streams
from skdp.algorithms.dp_vi_model import CURVATURE_CLIP
from skdp.estimators.variational_model import DPVariationalModel
from skdp.privacy.events import terms_of
from skdp.relations import sensitivity_factor
from skdp.testing import fixed_streams

N = 40
X = np.random.default_rng(0).uniform(-1, 1, (N, 2))
Y = (X[:, 0] > 0).astype(int)


def simulate(theta, x, generator):
    return torch.bernoulli(torch.sigmoid(x @ theta[:2]), generator=generator)


PLANS = [
    {"max_iter": 5},
    {"max_iter": 5, "covariance": "diag"},
    {"max_iter": 5, "sampling_rate": 0.2, "inference": "dpvi"},
    {"max_iter": 4, "neighboring_relation": "replace_one", "clip_norm": 0.1},
    {"max_iter": 4, "neighboring_relation": "add_or_remove_one", "sampling_rate": 0.5},
    {"max_iter": 3, "data_norm": 1.0},
    {"max_iter": 21, "epsilon": None, "noise_multiplier": 0.5},  # the clip is learned
    {"max_iter": 6, "epsilon": None, "noise_multiplier": 0.1, "clip_norm": 0.01},  # and warned of
    {"max_iter": 21, "simulate": simulate},
    {"max_iter": 21, "epsilon": None, "noise_multiplier": 0.5, "inference": "dpvi"},
]


def log_likelihood(theta, x, y):
    # Not finite at some rows, and beyond any range at others.
    z = x @ theta[:2] + theta[2] * torch.log(x[:, 0] + 1.5)
    return y * z - torch.nn.functional.softplus(z)


def make(plan):
    return DPVariationalModel(
        log_likelihood, 3, **{"n_samples": N, "example_rows": np.zeros((3, 2)), **plan}
    )


def public_state(estimator):
    """Return everything that a user, a pickle or a repr can see of a fitted estimator."""
    return pickle.dumps(vars(estimator)), repr(estimator.privacy_), estimator.diagnostics_


@pytest.mark.quick(4)
@pytest.mark.parametrize("plan", PLANS)
def test_with_the_releases_frozen_nothing_depends_on_the_data(plan):
    # The draws η are no function of the data; both runs get the same.
    with fixed_streams():
        frozen(lambda *rows: public_state(make(plan).fit(*rows)), (X, Y), neighbours(X, Y))


@pytest.mark.parametrize("plan", PLANS)
def test_the_event_in_the_ledger_is_the_trace(plan):
    relation = plan.get("neighboring_relation", "zero_out")
    with PrivacyLedger(neighboring_relation=relation) as ledger, _release_hook.record() as tape:
        estimator = make(plan).fit(X, Y)
    (entry,) = ledger.entries
    assert entry.event == estimator.privacy_.event
    (term,) = terms_of(entry.event)
    assert [r.call.step for r in tape] == list(range(term.count))
    for release in tape:
        noise_multiplier = release.call.scale / release.call.sensitivity
        noise_multiplier *= sensitivity_factor(relation)  # events state σ over one record's bound
        assert noise_multiplier == pytest.approx(term.noise_multiplier, rel=1e-14)
        assert release.call.rate == term.sampling_rate


def test_a_fit_that_clips_most_records_warns_from_its_releases():
    with pytest.warns(FitWarning, match="longer than the clip 0.01"):
        make({"epsilon": None, "noise_multiplier": 0.1, "max_iter": 6, "clip_norm": 0.01}).fit(X, Y)


@pytest.mark.parametrize("covariance", ["full", "diag"])
def test_no_record_moves_a_sum_beyond_its_sensitivity(covariance):
    values = {}
    for name, rows, labels in [("all", X, Y), ("fewer", X[1:], Y[1:])]:
        parameters = {"covariance": covariance, "clip_norm": 0.2, "epsilon": None, "max_iter": 6}
        model = make({**parameters, "noise_multiplier": 1e-9})
        streams = mock.patch("skdp._fitting.streams", return_value=Streams(b"x"))
        with streams, _release_hook.record() as tape:
            model.fit(rows, labels)
        values[name] = tape
    # The first sums are at the same θ; noise is 1e-9 of the bound.
    first, second = values["all"][0], values["fewer"][0]
    assert float((first.output - second.output).norm()) <= first.call.sensitivity * (1 + 1e-6)
    # In units of the clip: curvatures of shorter gradients; gradients and counts.
    sensitivities = sorted({r.call.sensitivity for r in values["all"]})
    assert sensitivities == pytest.approx([CURVATURE_CLIP**2, 1.0], rel=1e-3)


def test_the_training_rows_are_not_in_the_pickle():
    marker = np.float64(0.123456789123)
    X2 = X.copy()
    X2[5] = marker
    assert marker.tobytes() not in pickle.dumps(make({"max_iter": 3}).fit(X2, Y))
