"""The discrete Gaussian has the law that it claims on fine grids; `test_exact_laws` has others."""

import numpy as np
import pytest
from scipy import stats

from skdp.engine.discrete_gaussian import discrete_gaussian_integers
from skdp.fitting.streams import SecureStream

N = 200_000
ERROR = 1e-6


def stream(seed):
    return SecureStream(seed.to_bytes(16, "little"))


@pytest.mark.parametrize("factor", [1.05, 1 / 1.05])
def test_noise_of_another_scale_is_found_out(factor):
    x = discrete_gaussian_integers(20, N, stream(5)) / (factor * 2**20)
    assert stats.kstest(x, "norm").pvalue < ERROR


@pytest.mark.parametrize("bits", [10, 26, 40, 56, 60])
def test_on_a_fine_grid_it_is_normal(bits):
    x = discrete_gaussian_integers(bits, N // 4, stream(bits)) / 2.0**bits
    assert stats.kstest(x, "norm").pvalue > ERROR
    # The variance of a sample variance is 2/n, and that of a fourth moment 96/n.
    limit = stats.norm.isf(ERROR)
    assert abs(x.var() - 1) < limit * np.sqrt(2 / len(x))
    assert abs((x**4).mean() - 3) < limit * np.sqrt(96 / len(x))
    assert abs(x.mean()) < limit / np.sqrt(len(x))


def test_beyond_the_range_of_an_integer_draws_are_modulo_the_range():
    x = discrete_gaussian_integers(62, N // 4, stream(4)) / 2.0**62  # in [-2, 2), modulo 4

    def folded(at):
        turns = 4 * np.arange(-4, 5)[:, None]
        return np.sum(stats.norm.cdf(at + turns) - stats.norm.cdf(turns - 2), axis=0)

    assert stats.kstest(x, folded).pvalue > ERROR


def test_all_bits_of_a_draw_are_random():
    x = discrete_gaussian_integers(40, N // 10, stream(1))
    ones = (x[:, None] >> np.arange(38)) & 1
    z = (ones.mean(axis=0) - 0.5) * 2 * np.sqrt(len(x))
    assert np.abs(z).max() < stats.norm.isf(ERROR)


def test_draws_are_independent_and_of_one_stream():
    source = stream(2)
    x = discrete_gaussian_integers(30, N // 10, source) / 2.0**30
    y = discrete_gaussian_integers(30, N // 10, source) / 2.0**30
    limit = stats.norm.isf(ERROR) / np.sqrt(len(x))
    assert abs(np.mean(x[1:] * x[:-1])) < limit
    assert abs(np.mean(x * y)) < limit
    again = discrete_gaussian_integers(30, N // 10, stream(2)) / 2.0**30
    np.testing.assert_array_equal(x, again)


@pytest.mark.parametrize("size", [0, 1, 3])
def test_any_number_of_draws(size):
    assert discrete_gaussian_integers(35, size, stream(3)).shape == (size,)


@pytest.mark.parametrize("bits", [-1, 63, 2.0, None, True])
def test_bits_are_checked(bits):
    with pytest.raises(ValueError, match="bits"):
        discrete_gaussian_integers(bits, 1, stream(0))
