"""What leaves a fit is the trace and nothing else (record and replay)."""

import pickle

import numpy as np
import pytest
from replay.neighbours import frozen, neighbours

from skdp import DPVariationalLogisticRegression, PrivacyLedger, _release_hook
from skdp.privacy.events import terms_of
from skdp.relations import sensitivity_factor
from skdp.testing import fixed_streams

N = 40
BASE = np.random.default_rng(0)
X = BASE.uniform(-1, 1, (N, 3))
Y = (X[:, 0] > 0).astype(int)
PLANS = [
    {"max_iter": 5},
    {"max_iter": 4, "epsilon": 200.0},  # second moments in full, and the slope
    {"max_iter": 1, "epsilon": 200.0, "fit_intercept": False},
    {"max_iter": 4, "neighboring_relation": "replace_one", "clip_norm": 0.1},
    {"max_iter": 3, "neighboring_relation": "add_or_remove_one", "epsilon": 200.0},
    {"max_iter": 4, "epsilon": 200.0, "robust": True},
    {"max_iter": 2, "robust": True, "neighboring_relation": "replace_one", "clip_norm": 0.1},
    {"max_iter": 3, "epsilon": 200.0, "prior_blocks": ["a", "b", "a"]},
    {"max_iter": 2, "prior_scale": 0.5, "robust": True},
    {"max_iter": 3, "classes": [0, 1, 2], "epsilon": 200.0},
    {"max_iter": 2, "classes": range(6)},
    {"inference": "dpvi", "max_iter": 5, "sampling_rate": 0.2},
    {"inference": "dpvi", "max_iter": 4, "covariance": "full"},
    {"inference": "dpvi", "max_iter": 4, "gradient": "vanilla"},
    {"inference": "dpvi", "max_iter": 4, "neighboring_relation": "replace_one", "clip_norm": 0.1},
    {
        "inference": "dpvi",
        "max_iter": 3,
        "neighboring_relation": "add_or_remove_one",
        "sampling_rate": 0.5,
    },
    {"inference": "dpvi", "max_iter": 3, "classes": [0, 1, 2]},
]


def make(plan):
    return DPVariationalLogisticRegression(**{"classes": [0, 1], "n_samples": N, **plan})


def public_state(estimator):
    """Return everything that a user, a pickle or a repr can see of a fitted estimator."""
    state = {k: v for k, v in vars(estimator).items() if k != "_likelihood"}
    return pickle.dumps(state), repr(estimator), repr(estimator.privacy_)


@pytest.mark.quick(4)
@pytest.mark.parametrize(
    "plan", [*PLANS, {"max_iter": 3, "epsilon": 200.0, "robust": True, "secure": True}]
)
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
    stated = [term for term in terms_of(entry.event) for _ in range(term.count)]
    assert [r.call.step for r in tape] == list(range(len(stated)))
    # Events state σ over one record's bound, and not in the order of the releases.
    found = sorted(r.call.scale / r.call.sensitivity * sensitivity_factor(relation) for r in tape)
    expected = sorted(term.noise_multiplier for term in stated)
    np.testing.assert_allclose(found, expected, rtol=1e-14)
    assert {r.call.rate for r in tape} == {term.sampling_rate for term in stated}


def test_the_training_rows_are_not_in_the_pickle():
    marker = np.float64(0.123456789123)
    X2 = X.copy()
    X2[5] = marker
    pickled = pickle.dumps(make({"max_iter": 3}).fit(X2, Y))
    assert marker.tobytes() not in pickled


@pytest.mark.thorough
def test_an_empty_poisson_batch_still_releases_noise():
    plan = {"max_iter": 50, "sampling_rate": 1e-4, "inference": "dpvi"}
    with _release_hook.record() as tape:
        make(plan).fit(X, Y)
    assert len(tape) == 51  # and the counts
    assert all(np.abs(r.output).min() > 0 for r in tape)
