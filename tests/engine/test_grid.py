"""Sums on a grid are exact, and a record's part in them depends on that record alone."""

from fractions import Fraction
from math import isqrt

import numpy as np
import pytest
from bundles import bundled
from hypothesis import given, settings
from hypothesis import strategies as st

from skdp.algorithms.noise_aware.families import ContrastGrams, Cut
from skdp.algorithms.noise_aware.numbers import InsideGram, WeightedResiduals
from skdp.engine import grid
from skdp.engine.grid import GridSum, lattice_bits, lattice_bound
from skdp.engine.linear_sums import GramSum, LinearClippedSum, ScoreGramSum
from skdp.engine.vanilla_sum import VanillaClippedSum
from skdp.models.likelihoods import Bernoulli, Categorical, Poisson
from skdp.relations import sensitivity_factor
from skdp.rows.bounded_sum import BoundedSum
from skdp.rows.records import LinearRows, row_products, row_sums

D, N = 5, 61
RNG = np.random.default_rng(0)
EXTREME = np.array(
    [[0.0] * 4, [1e300, -1e300, 1e154, 0.0], [5e-324] * 4, [np.nan, 1, 1, 1], [np.inf, 0, 0, 0]]
)
X = np.vstack([RNG.normal(size=(N - len(EXTREME), 4)), EXTREME])


def theta(*shape):
    return np.random.default_rng(1).normal(size=shape)


def score(likelihood, clip):
    found = likelihood.score(clip / np.sqrt(2))
    return LinearClippedSum(found.residual, clip, found.largest_residual)


def slope(likelihood):
    found = likelihood.score(0.5)
    return GramSum(0.3, lambda z, r: found.slope_of_records(z, 0.4 / np.maximum(r, 1e-300)))


BINARY = (RNG.random(N) < 0.5).astype(float)[:, None]
COUNTS = RNG.poisson(3.0, N).astype(float)[:, None]
NUMBERS = np.where(RNG.random(N) < 0.1, 1e300, RNG.normal(size=N))[:, None]
CLASSES = np.eye(3)[RNG.integers(3, size=N)]
RESIDUALS = WeightedResiduals(Cut(1.0, np.sqrt(2.0)))
SUMS = {
    "residual": (LinearClippedSum(Bernoulli().residual, 0.3), theta(1, D), BINARY),
    "score": (score(Bernoulli(), 0.7), theta(1, D), BINARY),
    "softmax": (LinearClippedSum(Categorical(3).residual, 0.3), theta(3, D), CLASSES),
    "softmax score": (score(Categorical(3), 0.7), theta(3, D), CLASSES),
    "Poisson": (LinearClippedSum(Poisson(20.0).residual, 5.0), theta(1, D), COUNTS),
    "Poisson score": (score(Poisson(20.0), 5.0), theta(1, D), COUNTS),
    "vanilla": (VanillaClippedSum(Categorical(3).residual, 0.3), theta(2, 3, D), CLASSES),
    "moments": (GramSum(2.0), theta(1, D), BINARY),
    "trace": (GramSum(2.0, trace_only=True), theta(1, D), BINARY),
    "slope": (slope(Bernoulli()), theta(1, D), BINARY),
    "Poisson slope": (slope(Poisson(20.0)), theta(1, D), BINARY),
    "products": (ScoreGramSum(score(Bernoulli(), 0.7)), theta(1, D), BINARY),
    "softmax products": (ScoreGramSum(score(Categorical(3), 0.7)), theta(3, D), CLASSES),
    "residual products": (ScoreGramSum(RESIDUALS), abs(theta(1, D + 1)), NUMBERS),
    "residuals": (RESIDUALS, abs(theta(1, D + 1)), NUMBERS),
    "slope of residuals": (InsideGram(2.0, cut=Cut(1.0, 2.0)), abs(theta(1, D + 1)), NUMBERS),
    "slopes of contrasts": (
        ContrastGrams(1.0, likelihood=Categorical(9), cut=Cut(1.0, 2.0)),
        np.hstack([theta(9, D), np.linalg.qr(np.eye(9)[:, 1:] - 1 / 9)[0]]),
        np.eye(9)[RNG.integers(9, size=N)],
    ),
}


@pytest.fixture(params=SUMS)
def case(request):
    return SUMS[request.param]


def batch(rows, targets):
    made = LinearRows(rows, targets, data_norm=1.0, fit_intercept=True, alone=True)
    return made.take(slice(None))


def total(clipped_sum, at, targets, rows=X, which=slice(None), sigma=3.0, relation="zero_out"):
    return GridSum(clipped_sum, sigma, relation)(at, batch(rows[which], targets[which]))


# --- the lattice --------------------------------------------------------------------------------


@given(st.floats(2.0**-20, 2.0**28))
def test_the_bound_and_the_noise_give_the_noise_multiplier_in_exact_arithmetic(sigma):
    bits, bound = lattice_bits(sigma), lattice_bound(sigma)
    assert Fraction(2**bits, bound) >= Fraction(sigma)
    assert Fraction(2**bits, bound + 1) < Fraction(sigma)
    assert 2**33 <= bound <= 2**34
    assert 0 < bits <= 62


@pytest.mark.parametrize("sigma", [0.0, 1e-7, 2e9, np.nan, np.inf, None])
def test_noise_without_a_lattice_is_refused(sigma):
    with pytest.raises(ValueError, match="noise_multiplier"):
        GridSum(GramSum(1.0), sigma)


@given(st.sampled_from([1e-100, 0.3, 7.0, 1e100]), st.floats(1e-3, 1e6))
def test_what_is_declared_is_the_lattice_in_units_of_its_width(clip, sigma):
    on_grid = GridSum(LinearClippedSum(Bernoulli().residual, clip), sigma, "replace_one")
    assert on_grid.noise_scale == on_grid.width * 2.0 ** lattice_bits(sigma)
    assert on_grid.sensitivity("replace_one") == 2 * on_grid.width * lattice_bound(sigma)
    assert on_grid.bound <= lattice_bound(sigma)
    assert clip <= on_grid.norm_bound <= clip * (1 + 5e-6)


# --- one record alone ---------------------------------------------------------------------------


@settings(max_examples=60)
@given(st.integers(1, 130), st.integers(1, 90), st.integers(0, 2**32 - 1))
def test_row_sums_and_products_know_no_position(width, length, seed):
    rng = np.random.default_rng(seed)
    rows, weights = rng.normal(size=(length, width)), rng.normal(size=(width, 2))
    at = rng.integers(length)
    np.testing.assert_allclose(row_sums(rows), rows.sum(axis=1), atol=1e-12)
    np.testing.assert_allclose(row_products(rows, weights), rows @ weights, atol=1e-11)
    assert row_sums(rows)[at] == row_sums(rows[at : at + 1])[0]
    alone = row_products(rows[at : at + 1], weights)
    np.testing.assert_array_equal(row_products(rows, weights)[at : at + 1], alone)


@pytest.mark.parametrize("columns", [1, 3, 8, 107, 300])
def test_rows_are_clipped_each_by_itself(columns):
    rows = np.random.default_rng(2).normal(size=(300, columns))
    rows[::7] *= 1e200
    targets = np.zeros((300, 1))
    whole = batch(rows, targets)
    for i in range(0, 300, 11):
        one = batch(rows[i : i + 1], targets[i : i + 1])
        np.testing.assert_array_equal(whole.rows[i], one.rows[0])
        assert whole.norms[i] == one.norms[0]


def test_a_record_is_evaluated_alike_wherever_it_stands(case):
    """Vectorised functions treat the ends of an array apart; here they must not differ by a bit."""
    clipped_sum, at, targets = case
    with np.errstate(all="ignore"):
        whole = clipped_sum.records(at, batch(X, targets))
        assert whole.shape == (N, np.prod(clipped_sum.shape(tuple(at.shape))))
        for i in range(N):
            one = clipped_sum.records(at, batch(X[i : i + 1], targets[i : i + 1]))
            np.testing.assert_array_equal(one[0], whole[i])
        for shift, length in ((1, 7), (3, 16), (5, 33), (0, N - 1), (2, N - 2)):
            part = slice(shift, shift + length)
            found = clipped_sum.records(at, batch(X[part], targets[part]))
            np.testing.assert_array_equal(found, whole[part])


# --- sums ---------------------------------------------------------------------------------------


def test_sums_add_exactly(case):
    clipped_sum, at, targets = case
    both = total(clipped_sum, at, targets)
    for cut in (0, 1, 17, N):
        first = total(clipped_sum, at, targets, which=slice(0, cut))
        second = total(clipped_sum, at, targets, which=slice(cut, None))
        np.testing.assert_array_equal(first + second, both)


def test_the_order_of_rows_and_the_chunks_change_nothing(case, monkeypatch):
    clipped_sum, at, targets = case
    expected = total(clipped_sum, at, targets)
    order = np.random.default_rng(3).permutation(N)
    np.testing.assert_array_equal(total(clipped_sum, at, targets, which=order), expected)
    for entries in (1, 40, 1000):
        monkeypatch.setattr(grid, "_CHUNK_ENTRIES", entries)
        np.testing.assert_array_equal(total(clipped_sum, at, targets), expected)


def test_they_are_the_ordinary_sums_to_the_rounding_of_each_record(case):
    clipped_sum, at, targets = case
    on_grid = GridSum(clipped_sum, 3.0)
    found = on_grid.width * total(clipped_sum, at, targets)
    # Half a unit a record, and room for the rounding of the ordinary sum.
    ordinary = clipped_sum(at, batch(X, targets))
    np.testing.assert_allclose(found, ordinary, rtol=1e-9, atol=N * on_grid.width)


@pytest.mark.parametrize("relation", ["zero_out", "add_or_remove_one", "replace_one"])
@given(
    record=st.lists(
        st.sampled_from([0.0, 1.0, -1e300, 1e154, 5e-324, 0.3, np.nan, np.inf]),
        min_size=4,
        max_size=4,
    ),
    at_row=st.integers(0, N - 1),
    sigma=st.floats(1e-2, 1e4),
)
@settings(max_examples=15)
def test_no_record_moves_a_sum_by_more_than_the_bound_in_integers(relation, record, at_row, sigma):
    for clipped_sum, at, targets in SUMS.values():
        rest = np.delete(np.arange(N), at_row)
        base = total(clipped_sum, at, targets, which=rest, sigma=sigma, relation=relation)
        other = X.copy()
        other[at_row] = record
        changed = total(clipped_sum, at, targets, rows=other, sigma=sigma, relation=relation)
        if relation == "replace_one":
            base = total(clipped_sum, at, targets, sigma=sigma, relation=relation)
        moved = sum(int(v) ** 2 for v in (changed - base).ravel())
        bound = int(sensitivity_factor(relation)) * lattice_bound(sigma)
        assert isqrt(moved) <= bound


class Broken(BoundedSum):
    """Terms far beyond what it says."""

    record_bound = 1.0

    def __init__(self, terms):
        self._terms = np.array(terms, dtype=float)

    def shape(self, theta_shape):
        return (self._terms.shape[1],)

    def records(self, at, chunk):
        return self._terms.copy()


@given(st.lists(st.floats(allow_nan=True), min_size=6, max_size=6))
def test_the_bound_holds_whatever_the_terms_are(terms):
    broken = Broken([terms])
    found = GridSum(broken, 2.0)(theta(1, D), batch(X[:1], BINARY[:1]))
    assert isqrt(sum(int(v) ** 2 for v in found)) <= lattice_bound(2.0)


@bundled("size", [1, 3, 6000])
@bundled("sigma", [0.01, 1.0, 1.9999, 40.0])
def test_a_term_at_its_bound_stays_and_one_beyond_goes(size, sigma):
    direction = np.random.default_rng(size).normal(size=size)
    direction /= np.linalg.norm(direction)
    rows = batch(X[:1], BINARY[:1])
    kept = GridSum(Broken([direction]), sigma)
    found = kept.width * kept(theta(1, D), rows)
    np.testing.assert_allclose(found, direction, rtol=0, atol=kept.width)
    gone = GridSum(Broken([1.001 * direction]), sigma)(theta(1, D), rows)
    assert not gone.any()
