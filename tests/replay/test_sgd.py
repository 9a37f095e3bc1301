"""What leaves a fit of a network is the trace and nothing else (record and replay)."""

import pickle

import numpy as np
import pytest
import torch
from replay.neighbours import frozen, neighbours

from skdp import (
    DPSGDClassifier,
    DPSGDRegressor,
    DPSGLDClassifier,
    DPSGLDRegressor,
    PrivacyLedger,
    _release_hook,
)
from skdp.privacy.events import terms_of
from skdp.relations import sensitivity_factor
from skdp.testing import fixed_streams

N = 40
X = np.random.default_rng(0).uniform(-1, 1, (N, 3))
Y = (X[:, 0] > 0).astype(int)
VALUES = [0.0, 1.0, -1e300, 1e154, 5e-324, 3e38]


def with_dropout(n_features, n_outputs):
    layers = [torch.nn.Linear(n_features, 5), torch.nn.Tanh(), torch.nn.Dropout(0.5)]
    return torch.nn.Sequential(*layers, torch.nn.Linear(5, n_outputs))


PLANS = [
    {"max_iter": 4, "hidden_layer_sizes": (5,)},
    {"max_iter": 4, "hidden_layer_sizes": ()},
    {"max_iter": 4, "hidden_layer_sizes": (5,), "sampling_rate": 0.2, "clipping": "automatic"},
    {"max_iter": 3, "hidden_layer_sizes": (4, 4), "neighboring_relation": "replace_one"},
    {
        "max_iter": 3,
        "hidden_layer_sizes": (4,),
        "neighboring_relation": "add_or_remove_one",
        "sampling_rate": 0.5,
        "optimizer": torch.optim.RMSprop,
    },
    {"max_iter": 3, "module": with_dropout, "physical_batch_size": 7, "optimizer": "sgd"},
]
SECURE = [
    {"max_iter": 4, "hidden_layer_sizes": (), "secure": True},
    {"max_iter": 3, "hidden_layer_sizes": (5,), "sampling_rate": 0.2, "secure": True},
    {
        "max_iter": 3,
        "hidden_layer_sizes": (4, 3),
        "neighboring_relation": "replace_one",
        "clipping": "automatic",
        "secure": True,
    },
    {
        "max_iter": 3,
        "hidden_layer_sizes": (4,),
        "neighboring_relation": "add_or_remove_one",
        "sampling_rate": 0.5,
        "secure": True,
    },
]
CHAINS = [
    {"max_iter": 4, "hidden_layer_sizes": (5,)},
    {"max_iter": 4, "hidden_layer_sizes": (), "sampling_rate": 0.2, "decay_exponent": 0.0},
    {"max_iter": 4, "hidden_layer_sizes": (), "prenoise_scale": 0.5, "burn_in": 0, "thinning": 2},
    {"max_iter": 3, "module": with_dropout, "neighboring_relation": "replace_one"},
]
# The classifier first, then every plan for the regressor too.
CASES = [(DPSGDClassifier, {"classes": [0, 1], **plan}) for plan in PLANS + SECURE]
CASES += [(DPSGDRegressor, {"target_bounds": (0, 1), **plan}) for plan in PLANS[:3] + SECURE[:2]]
CASES += [(DPSGLDClassifier, {"classes": [0, 1], **plan}) for plan in CHAINS + SECURE]
CASES += [(DPSGLDRegressor, {"target_bounds": (0, 1), **plan}) for plan in CHAINS[:2]]


def make(kind, plan):
    return kind(**{"n_samples": N, **plan})


def public_state(estimator):
    """Return everything that a user, a pickle or a repr can see of a fitted estimator."""
    state = dict(vars(estimator))
    module = state.pop("module_")  # its pickle holds an identifier of the storage
    weights = {name: value.numpy().tobytes() for name, value in module.state_dict().items()}
    return pickle.dumps(state), weights, repr(module), repr(estimator), repr(estimator.privacy_)


@pytest.mark.quick(3)
@pytest.mark.parametrize(("kind", "plan"), CASES)
def test_with_the_releases_frozen_nothing_depends_on_the_data(kind, plan):
    # Initial weights are no function of the data; both runs get the same.
    with (
        fixed_streams(b"replay"),
    ):
        frozen(
            lambda *rows: public_state(make(kind, plan).fit(*rows)),
            (X, Y),
            neighbours(X, Y, VALUES),
        )


@pytest.mark.quick(12)
@pytest.mark.parametrize(("kind", "plan"), CASES)
def test_the_event_in_the_ledger_is_the_trace(kind, plan):
    relation = plan.get("neighboring_relation", "zero_out")
    with PrivacyLedger(neighboring_relation=relation) as ledger, _release_hook.record() as tape:
        estimator = make(kind, plan).fit(X, Y)
    (entry,) = ledger.entries
    assert entry.event == estimator.privacy_.event
    charged = sorted(
        (term.noise_multiplier, term.sampling_rate)
        for term in terms_of(entry.event)
        for _ in range(term.count)
    )
    assert [r.call.step for r in tape] == list(range(len(charged)))
    factor = sensitivity_factor(relation)
    done = sorted((r.call.scale / r.call.sensitivity * factor, r.call.rate) for r in tape)
    secure = plan.get("secure", False)
    np.testing.assert_allclose(done, charged, rtol=1e-9 if secure else 1e-13)
    assert np.all(np.array(done) >= np.array(charged) * (1 - 1e-13))
    assert {r.call.kind for r in tape} == {"discrete_gaussian" if secure else "gaussian"}
    kinds = {type(term).__name__ for term in terms_of(entry.event)}
    assert kinds == {"DiscreteGaussianTerm" if secure else "GaussianTerm"}


@pytest.mark.parametrize("hidden", [(), (8,)])
def test_the_training_rows_are_not_in_the_pickle(hidden):
    marker = np.float64(0.123456789123)
    X2 = X.copy()
    X2[5] = marker
    plan = {"max_iter": 3, "hidden_layer_sizes": hidden, "classes": [0, 1]}
    pickled = pickle.dumps(make(DPSGDClassifier, plan).fit(X2, Y))
    assert marker.tobytes() not in pickled
    assert np.float32(marker).tobytes() not in pickled


def test_an_empty_poisson_batch_still_releases_noise():
    plan = {"max_iter": 30, "sampling_rate": 1e-4, "hidden_layer_sizes": (4,), "classes": [0, 1]}
    with _release_hook.record() as tape:
        make(DPSGDClassifier, plan).fit(X, Y)
    assert len(tape) == 30
    assert all(np.abs(r.output.numpy()).min() > 0 for r in tape)
