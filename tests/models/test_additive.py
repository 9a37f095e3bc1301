"""Public features of additive models: no row is longer than declared, and waves have no trend."""

import math

import numpy as np
import pytest

from skdp.models.additive import WEIGHT, Additive, Category, Number, trend, waves

EDGES = tuple(np.linspace(0.0, 10.0, 21))
COLUMNS = (
    Number("age", EDGES),
    Number("dose", (0.0, 1.0, 5.0, 100.0)),
    Category("ward", ("a", "b", 3)),
)
EXTREME = np.array([-math.inf, -1e300, -0.0, 0.0, 0.5, 1.0, 9.99, 10.0, 1e300, math.inf, math.nan])


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
    assert model.usual_norm < model.norm <= math.sqrt(3 + 2 * WEIGHT) * (1 + 1e-12)


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
        row += [float(ward == level) for level in ("a", "b", 3)]
        row.append(float(ward not in ("a", "b", 3)))
        np.testing.assert_array_equal(rows[i], row)


@pytest.mark.parametrize("n_bins", [1, 2, 3, 5, 32, 100])
def test_waves_have_no_level_and_no_trend_and_the_squares_of_a_bin_are_bounded(n_bins):
    found, u = waves(n_bins), trend(n_bins)
    np.testing.assert_allclose(found.sum(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(u @ found, 0.0, atol=1e-12)
    assert found.shape == (n_bins, max(0, min(n_bins - 2, 40)))
    assert np.linalg.matrix_rank(np.column_stack([np.ones(n_bins), u, found])) == min(
        n_bins, 2 + found.shape[1]
    )
    if found.size:
        assert (found**2).sum(axis=1).max() == pytest.approx(WEIGHT)


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


def test_blocks_and_names_are_of_the_features_in_their_order():
    model = Additive(COLUMNS).asked(10**5, 1.0)
    assert len(model.names) == len(model.blocks) == model.size == len(set(model.names))
    assert model.names[0] == "age: trend"
    assert model.names[-4:] == ("ward=a", "ward=b", "ward=3", "ward: other")
    assert model.blocks[0] == model.blocks[model.places[1].start] == "trend"
    assert sum(place.stop - place.start for place in model.places) == model.size


def test_few_rows_leave_missing_numbers_without_an_effect():
    model = Additive(COLUMNS).asked(20, 0.3)
    row = model.rows(model.codes([np.array([math.nan]), np.array([math.nan]), np.array(["a"])]))
    np.testing.assert_array_equal(row, [[0.0, 0.0, 1.0, 0.0, 0.0, 0.0]])
