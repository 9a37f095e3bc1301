"""Noise on networks has the declared law, and no two draws share any of it."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from skdp.engine import noise, release_hook
from skdp.engine.release_hook import grid_width
from skdp.fitting.streams import SecureStream


def call_of(*shape, scale=1.0):
    return release_hook.MechanismCall(
        "gaussian", 1.0, scale=scale, rate=1.0, shape=shape, step=0, width=grid_width(scale)
    )


def drawn(shape, scale=1.0, stream=None, dtype=torch.float64):
    stream = stream or SecureStream(b"a key of 16 byte")
    exact = torch.zeros(shape, dtype=dtype)
    return noise.gaussian(lambda: exact, call_of(*shape, scale=scale), stream)


MANY = [(2**14 - 1,), (2**14,), (2**14 + 1,), (129, 257), (100_003,), (7, 31, 401)]


@pytest.mark.parametrize("shape", MANY)
def test_noise_on_many_numbers_is_normal_of_the_declared_scale_and_no_other(shape):
    found = drawn(shape, scale=3.0)
    assert found.shape == shape
    flat = found.numpy().ravel()
    assert stats.kstest(flat / 3.0, "norm").pvalue > 1e-6
    for wrong in (2 / 3, 3 / 2):
        assert stats.kstest(flat / 3.0 * wrong, "norm").pvalue < 1e-6
    low, high = stats.chi2.ppf([1e-6, 1 - 1e-6], flat.size)
    assert low < (flat / 3.0) @ (flat / 3.0) < high


def test_the_tails_of_much_noise_are_those_of_a_normal():
    flat = drawn((2**20,)).numpy()
    for threshold in (2.0, 3.0, 4.0):
        low, high = stats.binom.ppf([1e-6, 1 - 1e-6], flat.size, 2 * stats.norm.sf(threshold))
        assert low <= (np.abs(flat) > threshold).sum() <= high


def correlation(first, second):
    return abs(np.corrcoef(first, second)[0, 1]) * math.sqrt(len(first))


def test_successive_draws_and_their_halves_share_no_noise():
    # Correlations of m independent normals are N(0, 1/m), those of their squares too. Box-Muller
    # makes a pair of each radius, and puts its members into different halves.
    stream, size = SecureStream(b"a key of 16 byte"), 2**16
    first, second, third = (drawn((size,), stream=stream).numpy() for _ in range(3))
    # On a grid of 2^-20 two of 2^16 numbers each fall together 2^32 · 2^-20/√(4π) ≈ 1156 times.
    assert np.isin(first, second).sum() < 1400
    for one, other in [(first, second), (second, third), (first, third)]:
        assert correlation(one, other) < 6
        assert correlation(one**2, other**2) < 6
    left, right = first[: size // 2], first[size // 2 :]
    assert correlation(left, right) < 6
    assert correlation(left**2, right**2) < 6
    assert correlation(first[:-1], first[1:]) < 6


def test_much_noise_is_added_to_the_value_and_leaves_it_alone():
    exact = torch.arange(2**14 + 1, dtype=torch.float32)
    key = b"a key of 16 byte"
    found = noise.gaussian(lambda: exact, call_of(len(exact), scale=0.5), SecureStream(key))
    expected = exact.double() + drawn((len(exact),), 0.5, SecureStream(key))
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
    assert torch.equal(exact, torch.arange(2**14 + 1, dtype=torch.float32))
    array = exact.double().numpy()
    found = noise.gaussian(lambda: array, call_of(len(exact), scale=0.5), SecureStream(key))
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(array, exact)


def test_released_noise_is_not_overwritten_by_the_next_draw():
    stream = SecureStream(b"a key of 16 byte")
    first = drawn((2**15,), stream=stream)
    kept = first.clone()
    drawn((2**15,), stream=stream)
    assert torch.equal(first, kept)


def test_a_draw_leaves_the_random_state_of_torch_alone():
    before = torch.get_rng_state()
    drawn((2**15,))
    assert torch.equal(torch.get_rng_state(), before)
