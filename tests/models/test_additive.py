"""Public features of additive models: no row is longer than declared, waves are a random walk's."""

import itertools
import math

import numpy as np
import pytest

from skdp.models.additive import PAIR_WEIGHT, Additive, Category, Number, Pair, beside_trend
from skdp.models.curves import EVEN, WEIGHT, not_told, steepness, trend, waves

EDGES = tuple(np.linspace(0.0, 10.0, 21))
COLUMNS = (
    Number("age", EDGES),
    Number("dose", (0.0, 1.0, 5.0, 100.0)),
    Category("ward", ("a", "b", 3)),
)
EXTREME = np.array([-math.inf, -1e300, -0.0, 0.0, 0.5, 1.0, 9.99, 10.0, 1e300, math.inf, math.nan])


def added_to(column, *args):
    return not_told(column.waves, column.n_waves, *args)


def random_values(rng, n):
    ward = np.array(["a", "b", 3, None, "secret", math.nan], dtype=object)
    return [
        rng.choice(np.append(EXTREME, rng.normal(5, 5, 50)), n),
        rng.choice(np.append(EXTREME, rng.exponential(5, 50)), n),
        ward[rng.integers(0, len(ward), n)],
    ]


@pytest.mark.parametrize("n", [50, 1000, 10**5])
@pytest.mark.parametrize("mu", [0.05, 0.3, 3.0, math.inf])
def test_no_row_is_longer_than_the_public_norm_and_one_is_as_long(n, mu):
    model = Additive(COLUMNS).asked(n, mu)
    values = random_values(np.random.default_rng(0), 4000)
    norms = np.linalg.norm(model.rows(model.codes(values)), axis=1)
    assert norms.max() <= model.norm * (1 + 1e-15)
    assert norms.max() == pytest.approx(model.norm)
    assert model.usual_norm < model.norm <= math.sqrt(3 + 2 * WEIGHT / 3)


def test_rows_are_those_of_a_loop_over_values():
    model = Additive(COLUMNS).asked(10**5, 1.0)
    values = random_values(np.random.default_rng(1), 300)
    rows = model.rows(model.codes(values))
    for i, (age, dose, ward) in enumerate(zip(*values, strict=True)):
        row = []
        for column, value in zip(model.columns[:2], (age, dose), strict=True):
            if math.isnan(value):
                row += [0.0] * (1 + column.n_waves) + [1.0]
                continue
            edges = column.edges
            b = sum(value >= edge for edge in edges[1:-1])
            row += [trend(len(edges) - 1)[b], *waves(len(edges) - 1)[b, : column.n_waves], 0.0]
        known = ward in ("a", "b", 3)
        row += [(float(ward == level) - 1 / 3) * known for level in ("a", "b", 3)]
        row.append(float(not known))
        np.testing.assert_allclose(rows[i], row, rtol=0, atol=1e-15)


@pytest.mark.parametrize("n_bins", [1, 2, 3, 5, 32, 100])
def test_waves_are_all_that_a_curve_has_beside_its_trend(n_bins):
    found, u = waves(n_bins), trend(n_bins)
    np.testing.assert_allclose(found.sum(axis=0), 0.0, atol=1e-12)
    assert found.shape == (n_bins, max(0, min(n_bins - 2, 40)))
    assert np.linalg.matrix_rank(np.column_stack([np.ones(n_bins), u, found])) == min(
        n_bins, 2 + found.shape[1]
    )
    assert (found**2).sum(axis=1).max(initial=0.0) <= WEIGHT / 3


def test_waves_of_many_bins_are_a_brownian_bridge_less_its_mean(monkeypatch):
    """Watson's process: independent increments, but for the sums that are fixed."""
    monkeypatch.setattr("skdp.models.additive.MOST_WAVES", 400)
    n_bins = 400
    covariance = waves(n_bins) @ waves(n_bins).T
    x = (np.arange(n_bins) + 0.5) / n_bins
    bridge = 4.0 * WEIGHT * (np.minimum.outer(x, x) - np.outer(x, x))
    centre = np.eye(n_bins) - 1.0 / n_bins
    np.testing.assert_allclose(covariance, centre @ bridge @ centre, atol=0.01 * WEIGHT)


def test_what_waves_leave_out_is_wide_at_a_jump_and_nowhere_else():
    column = Number("x", tuple(np.linspace(-1, 1, 33)), 8)
    told, others = column.waves[:, :8], column.waves[:, 8:]
    known = 0.01 * np.eye(8)
    line = np.linspace(-1.0, 1.0, 32)
    np.testing.assert_allclose(added_to(column, line, known, 2.0), 4.0 * others @ others.T)
    step = told @ np.linalg.pinv(told) @ np.where(line > 0.2, 1.0, -1.0)
    more = np.diag(added_to(column, step, known, 2.0) - 4.0 * others @ others.T)
    assert more[18:21].min() > 3 * more[2:14].max()
    known_well = np.diag(added_to(column, step, 1e-9 * np.eye(8), 2.0) - 4.0 * others @ others.T)
    assert known_well.sum() < more.sum()


@pytest.mark.thorough
def test_what_a_posterior_mean_leaves_out_of_a_jump_is_within_the_covariance_added():
    """Of a curve with more of all waves near one place, as a posterior of told waves sees it."""
    column, scale, noise = Number("x", tuple(np.linspace(-1, 1, 33)), 8), 2.0, 0.5
    told = column.waves[:, :8]
    known = np.eye(8) / (1 / scale**2 + 1 / noise**2)
    step = np.where(trend(32) > 0.2, 1.0, -1.0)
    seen = told @ np.linalg.pinv(told) @ step
    d = np.sqrt(np.maximum(steepness(seen, 8) ** 2 - EVEN, 0.0))
    rng = np.random.default_rng(0)
    curves = d[:, None] * (column.waves @ (scale * rng.standard_normal((30, 200_000))))
    # The posterior mean of each told coefficient, without noise, is that much of what is there.
    means = told @ (known / noise**2) @ np.linalg.lstsq(told, curves)[0]
    left_out = np.cov(curves - means)
    others = scale * column.waves[:, 8:]
    added = added_to(column, seen, known, scale) - others @ others.T
    np.testing.assert_allclose(left_out, added, atol=0.02 * np.abs(added).max())


def test_steepness_is_at_least_one_and_that_of_a_line_is_one():
    line = np.linspace(-1.0, 1.0, 32)
    np.testing.assert_array_equal(steepness(line, 8), 1.0)
    np.testing.assert_array_equal(steepness(np.sin(line), 0), 1.0)
    np.testing.assert_array_equal(steepness(np.zeros(2), 1), 1.0)
    assert steepness(np.where(line > 0, 1.0, -1.0), 16).argmax() in (15, 16)


def test_beside_its_trend_a_line_has_nothing_and_a_wave_of_full_periods_has_all():
    column = Number("x", tuple(np.linspace(-1, 1, 33)))
    beside = beside_trend(column)
    np.testing.assert_allclose(beside @ (3.0 + 2.0 * trend(32)), 0.0, atol=1e-12)
    np.testing.assert_allclose(beside @ waves(32)[:, 0], waves(32)[:, 0], atol=1e-12)
    assert not beside_trend(COLUMNS[2]).any()


def test_more_rows_and_more_budget_ask_for_more():
    def n_waves(n, mu, most=math.inf):
        return Additive(COLUMNS).asked(n, mu, most).columns[0].n_waves

    assert n_waves(20, 0.3) == 0
    sizes = [n_waves(n, 0.3) for n in (20, 1000, 10**4, 10**5, 10**6)]
    assert sizes == sorted(sizes)
    assert sizes[-1] == 18
    budgets = [n_waves(3000, mu) for mu in (0.01, 0.1, 0.3, 1.0, math.inf)]
    assert budgets == sorted(budgets)
    assert 0 < n_waves(10**5, 1.0, most=15) < n_waves(10**5, 1.0)
    assert Additive(COLUMNS).asked(10**5, 1.0, 15).size <= 15
    alone = Additive(COLUMNS).asked(10**5, 1.0, 2)  # where trends and levels are too many already
    assert alone.size == 5
    assert alone.names == ("age: trend", "dose: trend", "ward=a", "ward=b", "ward=3")


def test_blocks_and_names_are_of_the_features_in_their_order():
    model = Additive(COLUMNS).asked(10**5, 1.0)
    assert len(model.names) == len(model.blocks) == model.size == len(set(model.names))
    assert model.names[0] == "age: trend"
    assert model.names[-4:] == ("ward=a", "ward=b", "ward=3", "ward: other")
    assert model.blocks[0] == model.blocks[model.places[1].start] == "trend"
    assert sum(place.stop - place.start for place in model.places) == model.size


def test_few_rows_leave_missing_numbers_without_an_effect():
    model = Additive(COLUMNS).asked(20, 0.3)
    row = model.rows(model.codes([np.array([math.nan]), np.array([math.nan]), np.array(["no"])]))
    np.testing.assert_array_equal(row, np.zeros((1, 5)))


PAIRS = (Pair((COLUMNS[0], COLUMNS[1]), (0, 1)), Pair((COLUMNS[2], COLUMNS[0]), (2, 0)))


def all_rows(model):
    """Rows of all combinations of codes."""
    codes = itertools.product(*(range(len(column.table)) for column in model.columns))
    return model.rows(np.array(list(codes)))


@pytest.mark.parametrize("n", [50, 1000, 10**5])
@pytest.mark.parametrize("mu", [0.05, 0.3, 3.0, math.inf])
def test_no_combination_of_bins_and_levels_is_longer_than_the_public_norm(n, mu):
    model = Additive(COLUMNS, PAIRS).asked(n, mu)
    longest = np.linalg.norm(all_rows(model), axis=1).max()
    assert 0.85 * model.norm < longest <= model.norm * (1 + 1e-15)
    assert model.usual_norm < model.norm


def test_products_are_those_of_a_loop_over_bins_and_levels():
    model = Additive(COLUMNS, PAIRS).asked(10**6, math.inf)
    names = model.names
    assert len(names) == model.size == len(set(names))
    values = random_values(np.random.default_rng(1), 300)
    rows = model.rows(model.codes(values))
    full = Additive(COLUMNS).asked(10**6, math.inf)
    singles = dict(zip(full.names, full.rows(full.codes(values)).T, strict=True))
    missing = [np.isnan(values[0]), np.isnan(values[1])]
    missing.append(np.array([v not in ("a", "b", 3) for v in values[2]]))
    for pair, place in zip(model.pairs, model.places[3:], strict=True):
        assert place.stop > place.start
        known = ~missing[pair.places[0]] & ~missing[pair.places[1]]
        for name, column in zip(names[place], rows[:, place].T, strict=True):
            first, second = (singles[factor] for factor in name.split(" × "))
            np.testing.assert_allclose(column, known * math.sqrt(PAIR_WEIGHT) * first * second)


def test_products_have_nothing_of_the_two_curves():
    for pair in Additive(COLUMNS, PAIRS).asked(10**6, math.inf).pairs:
        cells = pair.table[pair.known].reshape(*pair.shape, -1)
        np.testing.assert_allclose(cells.mean(axis=0), 0.0, atol=1e-12)
        np.testing.assert_allclose(cells.mean(axis=1), 0.0, atol=1e-12)
        np.testing.assert_allclose((cells**2).mean(axis=(0, 1)), pair.squares[pair.asked])
        assert not pair.table[~pair.known].any()


def test_pairs_change_nothing_that_is_asked_of_columns_where_there_is_room():
    alone, both = (Additive(COLUMNS, pairs).asked(10**5, 1.0) for pairs in ((), PAIRS))
    assert both.columns == alone.columns
    assert both.names[: alone.size] == alone.names
    assert both.blocks == (*alone.blocks, *["pairs"] * (both.size - alone.size))


def test_more_rows_and_more_budget_ask_for_more_products_and_the_largest_first():
    def n_products(n, mu, most=math.inf):
        return Additive(COLUMNS, PAIRS).asked(n, mu, most).blocks.count("pairs")

    assert n_products(20, 0.3) == 0
    sizes = [n_products(n, 0.3) for n in (20, 1000, 10**4, 10**5, 10**6)]
    assert sizes == sorted(sizes)
    assert sizes[-1] > 30
    assert 0 < n_products(10**5, 1.0, most=30) < n_products(10**5, 1.0)
    assert Additive(COLUMNS, PAIRS).asked(10**5, 1.0, 30).size <= 30
    few = Additive(COLUMNS, PAIRS).asked(10**5, 1.0, 30).names
    assert "age: trend × dose: trend" in few
    assert "age: wave 8 × dose: trend" not in few


def test_levels_of_a_pair_are_asked_for_all_or_none():
    columns = tuple(Category(name, tuple(range(size))) for name, size in (("a", 3), ("b", 7)))
    pair = Pair(columns, (0, 1))
    found = {
        Additive(columns, (pair,)).asked(n, 0.3).blocks.count("pairs") for n in range(20, 9000, 40)
    }
    assert found == {0, 21}
