"""No double that is released refutes a neighbour; on a grid as fine as doubles most do.

Exact draws refute none on any grid; draws as skdp 0.1.0 made them refute one.

A small version of `benchmarks/floating_point.py`, with noise from given keys.
"""

import hashlib
import itertools
import math
import os
from types import SimpleNamespace
from unittest import mock

import floating_point
import numpy as np
import pytest
import torch
from scipy import stats

from skdp.engine import release_hook, tensor_noise
from skdp.fitting import streams as of_streams

CASES = floating_point.cases()
PRIVATE = [name for name, case in CASES.items() if not case.control]
PAIRS = ["DP-SGD, 2^14 coordinates", "GaussianMechanism, 2^14"]  # of a tensor, of an array
N_FITS = {1: 20}  # by the number of releases; fits with several take longer, and refute more
pytestmark = pytest.mark.filterwarnings("ignore::skdp.PrivacyWarning")


@pytest.fixture(autouse=True)
def given_keys():
    """The same noise in every run of a test."""
    numbers = itertools.count()

    def urandom(size):
        return hashlib.sha256(b"%d" % next(numbers)).digest()[:size]

    stand_in = SimpleNamespace(urandom=urandom, getpid=os.getpid)
    with mock.patch.object(of_streams, "os", stand_in):
        yield


def refuted(name, times=1):
    """Return the share of fits that refute the data used, and that refute its neighbour."""
    n_fits = times * (2 if name in PAIRS else N_FITS.get(CASES[name].n_releases, 3))
    shares = floating_point.attack(CASES[name], n_fits)
    return np.trace(shares) / 2, np.trace(shares[::-1]) / 2


@pytest.mark.quick(5)
@pytest.mark.parametrize("name", PRIVATE)
def test_no_release_refutes_either_neighbour(name):
    assert refuted(name) == (0.0, 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("name", PRIVATE)
def test_no_release_refutes_either_neighbour_at_length(name):
    assert refuted(name, times=10) == (0.0, 0.0)


@pytest.mark.quick(4)
@pytest.mark.parametrize("name", [name for name in PRIVATE if CASES[name].rounded])
def test_on_a_grid_finer_than_doubles_most_releases_refute_the_neighbour(name):
    with floating_point.grid_of(60):
        used, neighbour = refuted(name)
    assert used == 0.0
    assert neighbour >= 0.5


@pytest.mark.quick(5)
@pytest.mark.parametrize("name", [name for name in PRIVATE if not CASES[name].rounded])
def test_exact_draws_refute_neither_neighbour_whatever_rounding_does(name):
    with floating_point.grid_of(60):
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


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize(("radius_bits", "grid_bits"), [(24, 20), (53, 45)])
def test_many_normals_from_fewer_bits_refute_the_neighbour(radius_bits, grid_bits, name):
    """24 bits, as in single precision, do so on the library's own grid."""
    assert release_hook.GRID_BITS == 20
    words = of_streams.SecureStream.words
    mask = np.uint64(2**64 - 2 ** (64 - radius_bits))

    def coarse(stream, out):
        out[:] = words(stream, out) & mask
        return out

    with (
        mock.patch.object(of_streams.SecureStream, "words", coarse),
        mock.patch.object(floating_point, "RADIUS_BITS", radius_bits),
        floating_point.grid_of(grid_bits),
    ):
        used, neighbour = refuted(name)
    assert used == 0.0
    assert neighbour >= 0.5


def pairs_from(k, angle, more=0):
    """Pairs of normals from 63-bit integers and words."""
    given = iter([k.astype(np.uint64) << np.uint64(1), angle])

    def words(out):
        out[:] = next(given, more)

    return of_streams._BoxMuller().pairs(len(k), words).view(np.float64)


@pytest.mark.parametrize("width", [2.0**-45, 2.0**-20])
def test_a_pair_from_the_generator_is_on_a_ring(width):
    """Also where the radius is largest, next to the first of the uniform numbers."""
    rng = np.random.default_rng(0)
    k = np.concatenate([np.arange(1, 1000), rng.integers(1, 2**63, 10_000), [2**63 - 1]])
    z = pairs_from(k, rng.integers(2**64, size=len(k), dtype=np.uint64))
    assert floating_point.on_a_ring(z - width / 2, z + width / 2).all()


def test_a_pair_between_rings_is_not_on_one():
    # r² = -2 ln((2^43 + ½)/2^63): rings are 2^-43/r apart there.
    z = np.full(2, np.sqrt(np.log(2.0**63 / (2.0**43 + 0.5))))
    assert not floating_point.on_a_ring(z - 1e-17, z + 1e-17).any()
    assert floating_point.on_a_ring(z - 1e-12, z + 1e-12).all()


def of_device(k, more):
    """Radii of the Box-Muller transform on a device, from 1 - k/2^53."""
    pairs = torch.from_numpy(np.concatenate([1 - k / 2.0**53, np.zeros(len(k))]))
    fine = torch.from_numpy(more / 2.0**64)
    return tensor_noise._box_muller(pairs, lambda m: fine)[len(k) :].numpy()


def of_stream(k, more):
    """Radii of the Box-Muller transform of the CPU, from the same in 63 bits."""
    return pairs_from(k * 2**10 - 2**10, np.zeros(len(k), dtype=np.uint64), more)[::2]


@pytest.mark.parametrize(("radii", "bits"), [(of_device, 53), (of_stream, 63)])
def test_large_radii_leave_no_gap_that_a_grid_could_show(radii, bits):
    """Next to the last uniform numbers the radius follows 53 bits more."""
    n = 10_000
    more = np.random.default_rng(0).integers(2**64, size=n, dtype=np.uint64)
    for k in (1, 2, 2**20):
        v = np.exp(-(radii(np.full(n, k), more) ** 2) / 2) * 2.0**bits
        assert stats.kstest(v - (k - 1) * 2 ** (bits - 53), "uniform").pvalue > 1e-6
