"""Exact draws depend on public facts and on integers of the generator alone."""

import math
from unittest import mock

import numpy as np
import pytest
from replay.neighbours import neighbours

from skdp import OPSPosteriorSampler, OPSRegressor
from skdp.algorithms import exact_draws
from skdp.fitting.streams import SecureStream

N = 40
BASE = np.random.default_rng(0)
X = BASE.uniform(-1, 1, (N, 3))
Y = (X[:, 0] > 0).astype(int)


def make(plan):
    return OPSPosteriorSampler(**{"classes": [0, 1], "n_samples": N, **plan})


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
