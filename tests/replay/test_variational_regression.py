"""What leaves a private regression is the trace and nothing else (record and replay)."""

import pickle

import numpy as np
import pytest
from replay.neighbours import VALUES, frozen, neighbours

from skdp import PrivacyLedger, _release_hook
from skdp.estimators.variational_regression import DPVariationalLinearRegression
from skdp.privacy.events import dp_sgd_event, terms_of
from skdp.relations import sensitivity_factor
from skdp.testing import fixed_streams

N = 40
BASE = np.random.default_rng(0)
X = BASE.uniform(-1, 1, (N, 3))
Y = X[:, 0] + 0.1 * BASE.standard_normal(N)
PLANS = [
    {"max_iter": 3},
    {"max_iter": 3, "target_bounds": (-2.0, 1.0), "inference": "dpvi"},
    {"max_iter": 2, "neighboring_relation": "replace_one", "clip_norm": 0.1},
    {"max_iter": 2, "neighboring_relation": "add_or_remove_one", "fit_intercept": False},
    {"max_iter": 2, "epsilon": None, "noise_multiplier": 3.0},
]


def make(plan):
    return DPVariationalLinearRegression(**{"n_samples": N, **plan})


def public_state(estimator):
    """Return everything that a user, a pickle or a repr can see of a fitted estimator."""
    return pickle.dumps(vars(estimator)), repr(estimator), repr(estimator.privacy_)


@pytest.mark.quick(3)
@pytest.mark.parametrize("plan", PLANS)
def test_with_the_releases_frozen_nothing_depends_on_the_data(plan):
    with fixed_streams():
        frozen(
            lambda *rows: public_state(make(plan).fit(*rows)),
            (X, Y),
            neighbours(X, Y, targets=VALUES),
        )


@pytest.mark.parametrize("plan", PLANS)
def test_the_event_in_the_ledger_is_the_trace(plan):
    relation = plan.get("neighboring_relation", "zero_out")
    with PrivacyLedger(neighboring_relation=relation) as ledger, _release_hook.record() as tape:
        estimator = make(plan).fit(X, Y)
    (entry,) = ledger.entries
    assert entry.event == estimator.privacy_.event
    others = 2 if "target_bounds" in plan else 3  # moments, counts, and the unit of the targets
    assert [r.call.step for r in tape] == list(range(plan["max_iter"] + others))
    assert all(r.call.rate == 1.0 for r in tape)
    # Events state the noise over one record's bound, calls over what neighbours can move.
    factor = sensitivity_factor(relation)
    sigmas = [factor * r.call.scale / r.call.sensitivity for r in tape]
    for in_ledger, in_trace in zip(
        terms_of(entry.event), terms_of(dp_sgd_event(sigmas, 1.0)), strict=True
    ):
        assert in_ledger.noise_multiplier == pytest.approx(in_trace.noise_multiplier, rel=1e-12)
        assert in_ledger.count == in_trace.count


def test_the_training_rows_are_not_in_the_pickle():
    marker = np.float64(0.123456789123)
    X2, y2 = X.copy(), Y.copy()
    X2[5], y2[6] = marker, marker
    pickled = pickle.dumps(make({"max_iter": 2}).fit(X2, y2))
    assert marker.tobytes() not in pickled
