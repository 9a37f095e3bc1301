"""The statistics of noisy tables: against slow formulas, and by how often intervals hold."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from skdp.evaluation.binning import ResidualBins, ScoreBins, n_bins_for
from skdp.evaluation.calibration_error import _Deviations, calibration_error
from skdp.evaluation.estimates import Estimate, NoisyTable, by_draws, monotone, pairwise, ratio

Z = stats.norm.ppf(0.95)


def noise_covariance(table):
    """Covariance matrix of the noise, written out."""
    m = table.counts.shape[-1]
    projection = np.eye(m) if table.n is None else np.eye(m) - np.ones((m, m)) / m
    return table.variance * projection @ projection.T


@pytest.mark.parametrize("n", [None, 100])
def test_noise_is_that_of_the_projected_table(n):
    rng = np.random.default_rng(0)
    table = NoisyTable.of(rng.normal(20, 5, 6), 3.0, n)
    x, y = rng.normal(size=(2, 6))
    assert table.noise(x, y) == pytest.approx(x @ noise_covariance(table) @ y, rel=1e-12)
    if n is not None:
        assert table.counts.sum() == pytest.approx(n, rel=1e-12)


@given(st.integers(0, 60), st.integers(1, 60))
def test_a_share_without_noise_has_wilsons_interval(k, more):
    n = k + more
    found = ratio(NoisyTable.of(np.array([k, more]), 0.0, n), [1, 0], [1, 1], shares=True)
    p, z2 = k / n, Z * Z
    half = Z / (1 + z2 / n) * math.sqrt(p * (1 - p) / n + z2 / (4 * n * n))
    middle = (p + z2 / (2 * n)) / (1 + z2 / n)
    assert found.value == pytest.approx(p)
    assert found.low == pytest.approx(max(middle - half, 0), abs=1e-12)
    assert found.high == pytest.approx(middle + half, abs=1e-12)


@pytest.mark.parametrize("n", [None, 400])
@pytest.mark.parametrize("shares", [False, True])
def test_the_ends_of_a_ratio_are_z_deviations_off(n, shares):
    table = NoisyTable.of(np.array([90.0, 120.0, 150.0, 45.0]), 8.0, n)
    c, d = np.array([1.0, 0, 1, 0]), np.array([1.0, 1, 1, 0])
    found = ratio(table, c, d, shares=shares)
    for theta in (found.low, found.high):
        x = c - theta * d
        sampling = (table.counts * x * x).sum()
        if shares:
            sampling = theta * (1 - theta) * (table.counts * d).sum()
        variance = sampling + x @ noise_covariance(table) @ x
        assert abs(table.counts @ x) / math.sqrt(variance) == pytest.approx(Z, rel=1e-9)


@pytest.mark.parametrize("n", [None, 300])
def test_pairs_are_counted_one_by_one(n):
    rng = np.random.default_rng(1)
    B, variance = 4, 2.0
    table = NoisyTable.of(rng.integers(10, 60, 2 * B), variance, n)
    kernel = rng.uniform(size=(B, B))
    found = pairwise(table, kernel)
    T, Q = table.counts, noise_covariance(table)
    C = sum(T[i] * T[B + j] * kernel[i, j] - Q[i, B + j] * kernel[i, j]
            for i in range(B) for j in range(B))  # fmt: skip
    D = sum(T[i] * T[B + j] - Q[i, B + j] for i in range(B) for j in range(B))
    assert found.value == pytest.approx(C / D, rel=1e-12)
    for theta in (found.low, found.high):
        x = np.array(
            [sum(T[B + j] * (kernel[i, j] - theta) for j in range(B)) for i in range(B)]
            + [sum(T[i] * (kernel[i, j] - theta) for i in range(B)) for j in range(B)]
        )
        deviation = math.sqrt((T * x * x).sum() + x @ Q @ x)
        assert abs(C - theta * D) / deviation == pytest.approx(Z, rel=1e-9)


def drawn(pi, n, epsilon, count, seed=0):
    """Tables with geometric noise, and its variance."""
    rng, p = np.random.default_rng(seed), 1 - math.exp(-epsilon)
    tables = rng.multinomial(n, pi, size=count)
    tables = tables + rng.geometric(p, tables.shape) - rng.geometric(p, tables.shape)
    return tables, 0.5 / math.sinh(epsilon / 2) ** 2


SHARES = np.array([0.3, 0.1, 0.07, 0.03, 0.02, 0.08, 0.15, 0.25])
RIGHT = np.array([1, 1, 0, 0, 0, 0, 1, 1.0])
KERNEL = np.triu(np.ones((4, 4)), 1) + np.eye(4) / 2
N_TABLES = 600
AT_90 = stats.binom(N_TABLES, 0.9).ppf([1e-6, 1 - 1e-6]) / N_TABLES


def coverage(estimate, truth, variance_factor=1.0, n=300, epsilon=0.2, public=True):
    tables, variance = drawn(SHARES, n, epsilon, N_TABLES)
    table = NoisyTable.of(tables, variance_factor * variance, n if public else None)
    found = estimate(table)
    return np.mean((found.low <= truth) & (truth <= found.high))


@pytest.mark.parametrize("public", [True, False])
@pytest.mark.parametrize(
    ("estimate", "truth"),
    [
        (lambda table: ratio(table, RIGHT, np.ones(8), shares=True), SHARES @ RIGHT),
        (lambda table: ratio(table, np.arange(8), np.ones(8), span=(0, 7)), SHARES @ np.arange(8)),
        (
            lambda table: pairwise(table, KERNEL),
            SHARES[:4] @ KERNEL @ SHARES[4:] / (SHARES[:4].sum() * SHARES[4:].sum()),
        ),
    ],
    ids=["share", "mean", "pairs"],
)
def test_intervals_hold_as_often_as_they_say_and_not_without_the_noise(estimate, truth, public):
    low, high = AT_90
    assert low <= coverage(estimate, truth, public=public) <= high
    assert coverage(estimate, truth, variance_factor=0.0, public=public) < low


def of_gaps(gaps, n, epsilon, count, level=0.9):
    """Intervals of the calibration error of eight bins, and its value."""
    f, w = np.linspace(0.53, 0.97, 8), np.full(8, 1 / 8)
    pi = np.concatenate([w * (f + gaps), w * (1 - f - gaps)])
    tables, variance = drawn(pi, n, epsilon, count)
    noise = variance, variance
    found = [calibration_error(t[:8], t[8:], f, noise, level=level) for t in tables]
    return np.array([(e.value, e.low, e.high) for e in found]).T, np.abs(w * gaps).sum()


@pytest.mark.quick(1)
@pytest.mark.parametrize("gaps", [-0.12 * np.ones(8), -np.linspace(0.02, 0.2, 8)])
@pytest.mark.parametrize(("n", "epsilon"), [(500, 1.0), (4000, 0.3)])
def test_calibration_errors_hold_and_are_not_biased(gaps, n, epsilon):
    (value, low, high), truth = of_gaps(gaps, n, epsilon, 200)
    held = np.mean((low <= truth) & (truth <= high))
    assert held >= stats.binom(200, 0.9).ppf(1e-6) / 200
    assert abs(value.mean() - truth) < 0.5 * value.std()


@pytest.mark.parametrize(
    ("gaps", "n", "epsilon"),
    [
        ([0.12, 0, 0, 0, 0, 0, 0, 0], 16_000, 3.0),
        ([0, 0, 0, 0, 0, 0, 0, 0.03], 16_000, 3.0),
        ([0, 0, 0.1, 0, 0, 0, -0.08, 0], 16_000, 3.0),
        ([0.1, 0, 0, -0.1, 0, 0, 0.05, 0], 16_000, 1.0),
        ([0.07, -0.07] * 4, 4000, 1.0),
    ],
    ids=["first", "last", "two", "three", "alternating"],
)
def test_calibration_errors_of_few_bins_or_of_changing_sign_hold(gaps, n, epsilon):
    (_, low, high), truth = of_gaps(np.array(gaps), n, epsilon, 100)
    assert np.mean((low <= truth) & (truth <= high)) >= stats.binom(100, 0.9).ppf(1e-4) / 100


def test_without_a_look_at_few_bins_their_error_is_overstated(monkeypatch):
    monkeypatch.setattr(_Deviations, "least_of_few", lambda *_: np.inf)
    (_, low, _), truth = of_gaps(np.array([0, 0, 0.1, 0, 0, 0, -0.08, 0]), 16_000, 3.0, 50)
    assert np.mean(low <= truth) < 0.5


@pytest.mark.thorough
def test_the_calibration_error_of_calibrated_scores_starts_at_0():
    (value, low, _), _ = of_gaps(np.zeros(8), 500, 0.3, 200)
    assert np.mean(low == 0) > 0.85
    # The mean of the sum of absolute values, which a plain estimate has, is four times as large.
    tables, _ = drawn(np.concatenate([np.full(8, 1 / 16)] * 2), 500, 0.3, 200)
    plain = np.abs(tables[:, :8] - tables[:, 8:]).sum(axis=1) / 2 / 500
    assert value.mean() < 0.5 * plain.mean()


@pytest.mark.thorough
@pytest.mark.parametrize("level", [0.7, 0.9])
def test_an_interval_of_calibrated_scores_starts_at_0_as_often_as_its_level(level):
    (_, low, _), _ = of_gaps(np.zeros(8), 500, 0.3, 400, level)
    least, most = stats.binom(400, level).ppf([1e-4, 1 - 1e-4])
    assert least <= np.sum(low == 0) <= most


def test_the_calibration_error_of_many_rows_is_the_sum():
    f, gaps = np.linspace(0.1, 0.9, 6), np.array([0.05, -0.1, 0.2, 0.0, -0.3, 0.05])
    counts = 1e9 * np.ones(6)
    right = counts * (f + gaps)
    found = calibration_error(right, counts - right, f, (0.0, 0.0))
    assert found.value == pytest.approx(np.abs(gaps).mean(), rel=1e-3)


def test_draws_take_back_their_bias_and_repeat():
    tables, variance = drawn(SHARES, 300, 0.3, 300)

    def square(counts):
        return (counts[..., 0] / 300) ** 2

    found = [by_draws(NoisyTable.of(t, variance, 300), square, np.ones((1, 8))) for t in tables]
    values = np.array([e.value for e in found])
    assert abs(values.mean() - 0.09) < 6 * values.std() / math.sqrt(300)
    again = by_draws(NoisyTable.of(tables[0], variance, 300), square, np.ones((1, 8)))
    assert (again.value, again.low, again.high) == (found[0].value, found[0].low, found[0].high)


def test_nothing_is_said_where_a_divisor_may_be_zero():
    table = NoisyTable.of(np.array([1.0, 40.0]), 30.0, None)
    found = by_draws(table, lambda counts: counts[..., 0] * 0, np.array([[1.0, 0.0]]))
    assert (found.low, found.high) == (0, 1)
    found = ratio(table, [0.0, 1.0], [1.0, 0.0])
    assert (found.low, found.high) == (0, 1)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_monotone_curves_fall_and_those_that_fall_stay(values):
    curve = np.array(values)
    fallen = monotone(Estimate(curve, curve, curve)).value
    assert (np.diff(fallen) <= 1e-12).all()
    ordered = np.sort(curve)[::-1]
    np.testing.assert_allclose(monotone(Estimate(*[ordered] * 3)).value, ordered)


@given(st.integers(1, 60).map(lambda k: 2 * k))
def test_score_bins_are_symmetric_and_hold_their_points(n_bins):
    bins = ScoreBins.of(n_bins)
    assert bins.edges[n_bins // 2] == 0.5
    np.testing.assert_allclose(bins.edges, 1 - bins.edges[::-1], atol=1e-15)
    assert (np.diff(bins.edges) > 0).all()
    assert (bins.numbers(bins.points) == np.arange(n_bins)[:, None]).all()
    assert (bins.numbers(bins.edges[1:]) == np.arange(n_bins)).all()  # (lower, upper]
    assert bins.numbers(0.0) == 0


@given(st.integers(1, 40).map(lambda k: 2 * k), st.floats(1e-3, 1e3))
def test_residual_bins_have_the_means_of_what_is_spread_evenly(n_bins, bound):
    bins = ResidualBins.of(n_bins, bound)
    t = (np.arange(1000) + 0.5) / 1000
    points = bins.edges[:-1, None] + np.diff(bins.edges)[:, None] * t
    np.testing.assert_allclose(bins.square, (points**2).mean(axis=1), rtol=1e-4)
    np.testing.assert_allclose(bins.absolute, np.abs(points).mean(axis=1), rtol=1e-4)
    assert bins.numbers([-9 * bound, 9 * bound]).tolist() == [0, n_bins - 1]


@given(st.floats(1, 1e9), st.floats(1e-3, 1e6))
def test_more_rows_never_have_fewer_bins(n, scale):
    assert n_bins_for(n, scale) % 2 == 0
    assert 6 <= n_bins_for(n, scale) <= n_bins_for(2 * n, scale) <= 200


def test_an_estimate_is_a_number_and_selects():
    assert float(Estimate(0.5, 0.4, 0.6)) == 0.5
    arrays = Estimate(np.arange(3.0), np.arange(3.0) - 1, np.arange(3.0) + 1)
    assert repr(arrays[1]) == "1 [0, 2]"
    assert arrays.to_dict()["low"] == [-1.0, 0.0, 1.0]
    assert "array" in repr(arrays)
