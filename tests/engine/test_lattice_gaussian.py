"""Sheared discrete Gaussians: their law to the point, and their coordinates to the bit."""

import math

import numpy as np
import pytest
from scipy import stats

from skdp.engine import lattice_gaussian
from skdp.engine.lattice_gaussian import BITS, ShearedGaussian, block_widths
from skdp.fitting.streams import SecureStream

ERROR = 1e-6


def random(seed):
    return SecureStream(seed.to_bytes(16, "little")).generator.integers


def gaussian_integers(J, random):
    widths = block_widths(J).reshape(J.shape)
    return lattice_gaussian.gaussian_integers(J, widths, random)


@pytest.mark.parametrize("J", [2**43, 2**43 - 1, 2**42 + 12345, 2**40, 3 * 2**38 + 7])
def test_the_law_is_the_exact_one(J):
    assert p_value(J) > ERROR


def p_value(J):
    """Chi-square of draws against the law to the point."""
    z = gaussian_integers(np.full(200_000, J), random(J))
    most = math.ceil(10 * math.sqrt(2.0**49 / J))
    values = np.arange(-most, most + 1)
    law = np.exp(-(values.astype(float) ** 2) * J / 2.0**BITS)
    expected = len(z) * law / law.sum()
    observed = np.array([(z == v).sum() for v in values])
    keep = expected > 5
    x2 = ((observed - expected)[keep] ** 2 / expected[keep]).sum()
    return stats.chi2.sf(x2, keep.sum() - 1)


@pytest.mark.parametrize("J", [1, 12345, 2**20, 2**31 + 1])
def test_on_a_fine_grid_it_is_normal(J):
    z = gaussian_integers(np.full(50_000, J), random(J)) * math.sqrt(J / 2.0**49)
    assert stats.kstest(z, "norm").pvalue > ERROR


def test_the_tail_has_the_exact_law_where_it_can_be_seen(monkeypatch):
    monkeypatch.setattr(lattice_gaussian, "_FAR", 8)
    lattice_gaussian._blocks.cache_clear()
    try:
        assert p_value(2**40) > ERROR
        assert p_value(3 * 2**38 + 7) > ERROR
    finally:
        lattice_gaussian._blocks.cache_clear()


def test_each_position_has_its_own_law():
    J = np.array([[2**40, 2**20], [2**30, 2**10]])
    J = np.broadcast_to(J, (40_000, 2, 2))
    z = gaussian_integers(J, random(1)) * np.sqrt(J / 2.0**49)
    # The variance of a sample variance is 2/n.
    assert np.abs(z.var(axis=0) - 1).max() < stats.norm.isf(ERROR) * math.sqrt(2 / 40_000)


@pytest.mark.parametrize("i", [0, 3, 255, 256, 511, 512, 600, 10**6])
@pytest.mark.parametrize("J", [1, 2**20 + 3, 2**43 - 1])
def test_a_block_lies_below_the_exponent_however_far_out(i, J):
    """Exponents beyond 64 bits are Python integers, and none is negative: exp(−x) is at most 1."""
    (B,) = block_widths(np.array([J]))
    assert J * int(B) ** 2 >= 2**43 > J * (int(B) - 1) ** 2
    y = np.array([i * B, i * B + B - 1])
    at = np.array([i, i])
    found = lattice_gaussian._exponent(np.array([J, J]), y, at)
    b = i * i * 2**43 if i <= 512 else 2**43 * (512 * 512 + 1024 * (i - 512))
    assert [int(e) for e in found] == [J * int(v) ** 2 - b for v in y]
    assert min(int(e) for e in found) >= 0


def test_the_blocks_have_all_of_their_tail():
    weights = np.diff([0, *lattice_gaussian._blocks()._sums])
    logs = [math.log(w) - math.log(weights[0]) for w in weights]
    np.testing.assert_allclose(logs[:512], -(np.arange(512) ** 2) / 128, rtol=1e-12)
    assert logs[512] == pytest.approx(-2048 - math.log1p(-math.exp(-8)), rel=1e-12)
    tail = lattice_gaussian._geometric(200_000, random(2))
    assert abs((tail > 0).mean() - math.exp(-8)) < 4.8 * math.exp(-4) / math.sqrt(200_000)


def laws():
    coin = np.random.default_rng(0)
    for p in (1, 2, 5, 20):
        A = coin.normal(size=(p, p))
        yield ShearedGaussian.within(1e-6 * (A @ A.T / p + 0.1 * np.eye(p)), 10**6), A, p


def test_coordinates_are_those_of_the_points_and_points_of_the_coordinates():
    coin = np.random.default_rng(1)
    for law, _, p in laws():
        v = coin.integers(-(10**6), 10**6, (500, p))
        z = law.coordinates(v)
        back, near = law.points(z)
        assert near.all()
        np.testing.assert_array_equal(back, v)
        exact = [
            [
                int(v[i, k])
                + math.floor(
                    (sum(int(t) * int(x) for t, x in zip(law.shear[k], v[i], strict=True))
                     + (2**law.shift >> 1)) / 2**law.shift
                )
                for k in range(p)
            ]
            for i in range(20)
        ]  # fmt: skip
        np.testing.assert_array_equal(z[:20], exact)


def test_points_beyond_the_bound_are_said_and_never_come_back_as_others():
    law = ShearedGaussian.within(1e-6 * np.array([[1.0, 0.9], [0.9, 1.0]]), 1000)
    z = np.array([[1, 2], [5000, 3], [3, 2**61], [2**61, 2**61]])
    _, near = law.points(z)
    assert near.tolist() == [True, False, False, False]


def test_the_form_lies_within_the_matrix_and_close_to_it():
    coin = np.random.default_rng(2)
    for law, A, p in laws():
        M = 1e-6 * (A @ A.T / p + 0.1 * np.eye(p))
        x = coin.normal(size=(1000, p))
        ratio = np.einsum("ij,jk,ik->i", x, law.form, x) / np.einsum("ij,jk,ik->i", x, M, x)
        assert ratio.max() <= 1.0
        assert ratio.min() > 0.99


def test_the_energy_bounds_the_form_as_the_derivation_says():
    """z_i² ≤ (1 + α) r_i² + (1 + 1/α)/4 for coordinates that are rounded from r."""
    coin = np.random.default_rng(3)
    for law, _, p in laws():
        v = coin.integers(-(10**6), 10**6, (500, p)) // coin.integers(1, 10**6, (500, 1))
        energy = np.array(law.energy(law.coordinates(v)), dtype=float) / 2.0**BITS
        form = 0.5 * np.einsum("ij,jk,ik->i", v, law.form, v)
        for alpha in (0.5, 2.0**-10):
            assert (energy <= (1 + alpha) * form + (1 + 1 / alpha) / 4 * law.trace + 1e-9).all()
            assert (form <= (1 + alpha) * energy + (1 + 1 / alpha) / 4 * law.trace + 1e-9).all()


def test_a_precision_beyond_the_range_is_cut_to_it():
    law = ShearedGaussian.within(np.array([[4.0, 1.0], [1.0, 1e-6]]) + np.eye(2), 1000)
    assert law.precisions.max() <= 2**43
    assert np.linalg.eigvalsh(np.array([[5.0, 1.0], [1.0, 1.000001]]) - law.form).min() >= 0


def test_samples_have_the_covariance_of_the_matrix():
    M = 1e-6 * np.array([[2.0, 1.0, 0.5], [1.0, 2.0, -0.7], [0.5, -0.7, 1.0]])
    law = ShearedGaussian.within(M, 10**5)
    v, near = law.points(law.integers(40_000, random(4)))
    assert near.all()
    white = v @ np.linalg.cholesky(M)
    # The standard error of an entry is at most √(2/n).
    assert np.abs(np.cov(white.T) - np.eye(3)).max() < 5.5 * math.sqrt(2 / 40_000)
