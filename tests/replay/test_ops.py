"""Of a posterior sampler nothing leaves but the samples (record and replay)."""

import math
import pickle
from unittest import mock

import numpy as np
import pytest
from replay.neighbours import frozen, neighbours

from skdp import OPSPosteriorSampler, OPSRegressor, PrivacyLedger, _release_hook
from skdp._random import SecureStream
from skdp.algorithms import exact_draws
from skdp.privacy.events import terms_of
from skdp.relations import sensitivity_factor
from skdp.testing import fixed_streams

N = 40
BASE = np.random.default_rng(0)
X = BASE.uniform(-1, 1, (N, 3))
Y = (X[:, 0] > 0).astype(int)
PLANS = [
    {},
    {"n_posterior_samples": 3, "batch_size": 7, "max_iter": 4},
    {"neighboring_relation": "replace_one", "theta_norm": 2.0},
    {"neighboring_relation": "add_or_remove_one", "n_samples": N + 5},
    {"classes": [0, 1, 2], "max_iter": 5},
    {"delta": 0, "n_posterior_samples": 2},
    {"delta": 0, "sampler": "rejection", "epsilon": 0.1},
    {"delta": 0, "sampler": "rejection", "neighboring_relation": "replace_one"},
    {"delta": 0, "neighboring_relation": "add_or_remove_one", "n_samples": N + 5},
    {"delta": 0, "classes": [0, 1, 2], "epsilon": 0.3},
    {"epsilon": None, "likelihood_power": 0.01},
]


def make(plan):
    return OPSPosteriorSampler(**{"classes": [0, 1], "n_samples": N, **plan})


def public_state(estimator):
    """Return everything that a user, a pickle or a repr can see of a fitted estimator."""
    return pickle.dumps(estimator), repr(estimator), repr(estimator.privacy_)


@pytest.mark.parametrize("plan", PLANS)
def test_with_the_release_frozen_nothing_depends_on_the_data(plan):
    n_is_public = plan.get("neighboring_relation") != "add_or_remove_one"
    with fixed_streams():
        frozen(
            lambda *rows: public_state(make(plan).fit(*rows)),
            (X, Y),
            neighbours(X, Y, n_is_public=n_is_public),
        )


@pytest.mark.parametrize("plan", PLANS)
def test_the_event_in_the_ledger_is_the_trace(plan):
    relation = plan.get("neighboring_relation", "zero_out")
    with PrivacyLedger(neighboring_relation=relation) as ledger, _release_hook.record() as tape:
        sampler = make(plan).fit(X, Y)
    (entry,) = ledger.entries
    assert entry.event == sampler.privacy_.event
    (term,) = terms_of(entry.event)
    (release,) = tape
    assert release.call.step == 0
    assert release.call.shape[0] == sampler.n_posterior_samples
    if release.call.kind == "langevin":
        mu = sensitivity_factor(relation) / term.noise_multiplier
        assert release.call.sensitivity / release.call.scale == pytest.approx(mu, rel=1e-12)
    else:
        assert (release.call.sensitivity, sampler.n_posterior_samples) == (term.eta, term.n_samples)


def test_the_training_rows_are_not_in_the_pickle():
    marker = np.float64(0.123456789123)
    X2 = X.copy()
    X2[5] = marker
    for plan in ({}, {"delta": 0}):
        assert marker.tobytes() not in pickle.dumps(make(plan).fit(X2, Y))
    regressor = OPSRegressor(target_bounds=(-2, 2), n_samples=N).fit(X2, X2[:, 0])
    assert marker.tobytes() not in pickle.dumps(regressor)


@pytest.mark.parametrize("make", [OPSPosteriorSampler, OPSRegressor])
@pytest.mark.parametrize("relation", ["zero_out", "replace_one", "add_or_remove_one"])
def test_grid_ball_and_units_of_exact_draws_depend_on_public_facts_alone(make, relation):
    facts = {"target_bounds": (-1, 1)} if make is OPSRegressor else {"classes": [0, 1]}
    plan = {"delta": 0, "n_samples": N, "neighboring_relation": relation} | facts
    targets = X[:, 0] if make is OPSRegressor else Y
    rows = [(X, targets), *neighbours(X, targets, n_is_public=relation != "add_or_remove_one")]
    seen = set()
    rejection = exact_draws.rejection

    def spied(potential, stream):
        lattice = potential.lattice
        units = lattice.width, lattice.square, lattice.bits, lattice.largest_loss, lattice.row_unit
        seen.add((*units, lattice.prior_range, float(potential.prior(np.eye(4, dtype=int))[0])))
        return rejection(potential, stream)

    with mock.patch.object(exact_draws, "rejection", spied):
        for pair in rows:
            make(**plan).fit(*pair)
    width = make(**plan).plan(n_features=3).config.grid_width
    assert len(seen) == 1
    assert seen.pop()[0] == width
    assert math.frexp(width)[0] == 0.5  # a power of two


def test_exact_draws_use_the_generators_integers_alone():
    """No double of the generator's decides anything; the chains, for a control, use normals."""
    used = []

    class Spy:
        def __init__(self, generator):
            self._generator = generator

        def __getattr__(self, name):
            used.append(name)
            return getattr(self._generator, name)

    plain = SecureStream.generator.fget
    spied = property(lambda stream: Spy(plain(stream)))
    with mock.patch.object(SecureStream, "generator", spied):
        make({"delta": 0}).fit(X, Y)
        assert set(used) == {"integers"}
        make({}).fit(X, Y)
        assert "standard_normal" in used
