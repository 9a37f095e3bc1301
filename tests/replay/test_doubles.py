"""No double that is released refutes a neighbour; on a grid as fine as doubles most do.

Exact draws refute none on any grid; draws as skdp 0.1.0 made them refute one.

A small version of `benchmarks/floating_point.py`, with noise from given keys.
"""

import hashlib
import importlib.util
import itertools
import math
import os
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
import torch
from scipy import stats

from skdp import _fitting, _random, _release_hook
from skdp.algorithms.parts.gaussian_runs import release_plan_of
from skdp.engine import noise

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "floating_point.py"
spec = importlib.util.spec_from_file_location("floating_point", SCRIPT)
floating_point = importlib.util.module_from_spec(spec)
spec.loader.exec_module(floating_point)

CASES = floating_point.cases()
PRIVATE = [name for name, case in CASES.items() if not case.control]
PAIRS = "DP-SGD, 2^14 coordinates"
N_FITS = {1: 20}  # by the number of releases; fits with several take longer, and refute more
pytestmark = pytest.mark.filterwarnings("ignore::skdp.PrivacyWarning")


@pytest.fixture(autouse=True)
def new_plans():
    """A plan, which is kept, knows the grid that it was made with."""
    _fitting._plans.clear()
    release_plan_of.cache_clear()
    yield
    _fitting._plans.clear()
    release_plan_of.cache_clear()


@pytest.fixture(autouse=True)
def given_keys():
    """The same noise in every run of a test."""
    numbers = itertools.count()

    def urandom(size):
        return hashlib.sha256(b"%d" % next(numbers)).digest()[:size]

    stand_in = SimpleNamespace(urandom=urandom, getpid=os.getpid)
    with mock.patch.object(_random, "os", stand_in):
        yield


def refuted(name, times=1):
    """Return the share of fits that refute the data used, and that refute its neighbour."""
    n_fits = times * (2 if name == PAIRS else N_FITS.get(CASES[name].n_releases, 3))
    shares = floating_point.attack(CASES[name], n_fits)
    return np.trace(shares) / 2, np.trace(shares[::-1]) / 2


@pytest.mark.parametrize("name", PRIVATE)
def test_no_release_refutes_either_neighbour(name):
    assert refuted(name) == (0.0, 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("name", PRIVATE)
def test_no_release_refutes_either_neighbour_at_length(name):
    assert refuted(name, times=10) == (0.0, 0.0)


@pytest.mark.parametrize("name", [name for name in PRIVATE if CASES[name].rounded])
def test_on_a_grid_finer_than_doubles_most_releases_refute_the_neighbour(name):
    with mock.patch.object(_release_hook, "GRID_BITS", 60):
        used, neighbour = refuted(name)
    assert used == 0.0
    assert neighbour >= 0.5


@pytest.mark.parametrize("name", [name for name in PRIVATE if not CASES[name].rounded])
def test_exact_draws_refute_neither_neighbour_whatever_rounding_does(name):
    with mock.patch.object(_release_hook, "GRID_BITS", 60):
        assert refuted(name) == (0.0, 0.0)


def test_draws_as_0_1_0_made_them_refute_the_neighbour():
    (control,) = set(CASES) - set(PRIVATE)
    used, neighbour = refuted(control)
    assert used == 0.0
    assert neighbour >= 0.5


@pytest.fixture(scope="module")
def law_and_draw():
    case = CASES["rejection"]
    (draw,) = floating_point.observed(case, case.data)
    (law,) = floating_point.unknowns(case, case.neighbour, [draw])
    return law, draw


def test_a_draw_off_the_grid_or_outside_the_ball_is_refuted(law_and_draw):
    law, draw = law_and_draw
    lattice = law._lattice
    assert not law.refuted(draw)
    assert law.refuted(draw + lattice.width / 2)
    assert law.refuted(np.nextafter(draw, np.inf))
    far = np.zeros_like(draw)
    far.flat[0] = math.isqrt(lattice.square) * lattice.width
    assert not law.refuted(far)
    far.flat[0] += lattice.width
    assert law.refuted(far)


def test_a_draw_above_its_envelope_is_refuted(law_and_draw):
    law, draw = law_and_draw
    with mock.patch.object(law._envelope, "_at_center", 2**60):
        assert law.refuted(draw)


def test_many_normals_refute_the_neighbour_on_a_grid_coarser_than_doubles():
    with mock.patch.object(_release_hook, "GRID_BITS", 45):
        used, neighbour = refuted(PAIRS)
    assert used == 0.0
    assert neighbour >= 0.5


@pytest.mark.parametrize("width", [2.0**-45, 2.0**-20])
def test_a_pair_from_the_generator_is_on_a_ring(width):
    """Also where the radius is largest, next to the last of the uniform numbers."""
    rng = np.random.default_rng(0)
    k = np.concatenate([np.arange(1, 1000), rng.integers(1, 2**53, 10_000), [2**53]])
    pairs = np.concatenate([1 - k / 2.0**53, rng.random(len(k))])
    z = noise._box_muller(torch.from_numpy(pairs), torch.zeros).numpy()
    assert floating_point.on_a_ring(z - width / 2, z + width / 2).all()


def test_a_pair_between_rings_is_not_on_one():
    # r² = -2 ln((2^34 + ½)/2^53): rings are 2^-34/r apart there.
    z = np.full(2, np.sqrt(np.log(2.0**53 / (2.0**34 + 0.5))))
    assert not floating_point.on_a_ring(z - 1e-14, z + 1e-14).any()
    assert floating_point.on_a_ring(z - 1e-10, z + 1e-10).all()


def test_large_radii_leave_no_gap_that_a_grid_could_show():
    """Next to the last uniform numbers the radius follows 53 bits more."""
    n = 20_000
    rng = np.random.default_rng(0)
    for k in (1, 2, 2**20):
        pairs = np.concatenate([np.full(n, 1 - k / 2.0**53), np.zeros(n)])
        z = noise._box_muller(torch.from_numpy(pairs), lambda m: torch.from_numpy(rng.random(m)))
        v = np.exp(-(z[n:].numpy() ** 2) / 2) * 2.0**53  # the angle is 0
        assert stats.kstest(v - (k - 1), "uniform").pvalue > 1e-6
