"""Gradients of a perceptron on a grid: exact sums, each term a function of its record alone."""

from itertools import pairwise, product
from math import isqrt

import numpy as np
import pytest
import torch
from bundles import bundled
from hypothesis import given, settings
from hypothesis import strategies as st
from threadpoolctl import threadpool_limits
from torch import nn

from skdp.engine import perceptron_sum
from skdp.engine.grid import OuterGridSum, grid_sum, lattice_bound
from skdp.engine.perceptron_sum import ACTIVATIONS, PerceptronSum, Rounded, RoundedRows
from skdp.models.tasks import Classification, Regression
from skdp.relations import sensitivity_factor
from skdp.rows.persons import PersonUnit

N, D, SIGMA = 70, 5, 3.0
RNG = np.random.default_rng(0)
EXTREME = np.array([[0.0] * D, [1e300] * D, [5e-324] * D, [np.nan, 1, 1, 1, 1], [1e20, 0, 0, 0, 0]])
X = np.vstack([RNG.normal(size=(N - len(EXTREME), D)), EXTREME])
LABELS = RNG.integers(3, size=N)
TARGETS = np.where(RNG.random((N, 2)) < 0.05, 1e300, RNG.normal(size=(N, 2)))
WEIGHTS = RNG.uniform(0, 2, N)
REGULAR = [i for i in range(N - len(EXTREME)) if np.abs(TARGETS[i]).max() < 1e100]
CLASSES, NUMBERS = Classification(3), Regression(2)

# Sizes of the hidden layers and what follows them, and what a gradient is bounded by.
NETS = {
    "linear": (CLASSES, (), 0.7),
    "regression": (NUMBERS, (), 1.0),
    **{
        kind.__name__: (CLASSES if i % 2 else NUMBERS, ((7, kind),), 0.4)
        for i, kind in enumerate(ACTIVATIONS)
    },
    "deep": (CLASSES, ((9, nn.Tanh), (4, nn.GELU)), 1e-3),
}


def case(name, **more):
    """Return a sum, parameters and targets with weights."""
    task, hidden, clip_norm = NETS[name]
    sizes = (D, *(size for size, _ in hidden), task.n_outputs)
    kinds = tuple(kind for _, kind in hidden)
    of = PerceptronSum(sizes, kinds, task.residual, clip_norm, weight_bound=2.0, **more)
    size = sum((a + 1) * b for a, b in pairwise(sizes))
    theta = torch.from_numpy(np.random.default_rng(1).normal(size=size))
    columns = task.columns(LABELS if task is CLASSES else TARGETS)
    return of, theta, np.column_stack([columns, WEIGHTS])


def rows_of(columns, which=slice(None), starts=None):
    made = RoundedRows(
        X[which], columns[which], data_norm=np.inf, fit_intercept=True, starts=starts
    )
    return made.take(slice(None))


def total(name, which=slice(None), relation="zero_out", **more):
    of, theta, columns = case(name, **more)
    return grid_sum(of, SIGMA, relation)(theta, rows_of(columns, which)).tolist()


def each(name, relation="zero_out"):
    """Integers of every record, each by itself."""
    return [total(name, [i], relation) for i in range(N)]


# --- sums -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NETS)
def test_a_sum_is_that_of_every_record_by_itself(name):
    assert isinstance(grid_sum(case(name)[0], SIGMA, "zero_out"), OuterGridSum)
    alone = each(name)
    assert total(name) == [sum(column) for column in zip(*alone, strict=True)]
    for seed in range(5):  # whoever else is there, and wherever
        rng = np.random.default_rng(seed)
        which = rng.permutation(N)[: rng.integers(1, N)]
        some = [sum(column) for column in zip(*(alone[i] for i in which), strict=True)]
        assert total(name, which) == some


@pytest.mark.parametrize("scale", [1e-310, 1e-200, 1.0, 1e160, 1e300])
def test_weights_of_any_size_are_integers_of_35_bits(scale, monkeypatch):
    rng = np.random.default_rng(0)
    weights, seen = rng.normal(size=(7, 20)) * scale, []
    rint = np.rint
    monkeypatch.setattr(np, "rint", lambda x, **kw: seen.append(rint(x, **kw)) or seen[-1])
    rows = Rounded.of(rng.normal(size=(30, 20)))
    products = rows.times(weights)
    assert 2.0**33 <= np.linalg.norm(seen[-1]) <= 2.0**35
    monkeypatch.undo()
    for i in range(30):
        alone = Rounded(rows.integers[i : i + 1], rows.units[i : i + 1]).times(weights)
        np.testing.assert_array_equal(alone[0], products[i])


@pytest.mark.parametrize("name", ["linear", "deep"])
def test_neither_chunks_nor_threads_change_a_bit(name, monkeypatch):
    expected = total(name)
    for size in (1, 2, 7, 33, 2048, 10**6):
        assert total(name, physical_batch_size=size) == expected
    monkeypatch.setattr(perceptron_sum, "_BLOCK", 17)
    for n in (1, 2):
        with threadpool_limits(n):
            assert total(name) == expected


def test_every_bit_of_a_factor_is_that_of_its_record_alone():
    """Before they are rounded to integers, which hides most of what a place could change."""
    task, sizes = Classification(40), (50, 33, 45, 40)
    of = PerceptronSum(sizes, (nn.Tanh, nn.GELU), task.residual, 0.5)
    rng = np.random.default_rng(3)
    theta = torch.from_numpy(rng.normal(size=sum((a + 1) * b for a, b in pairwise(sizes))) / 5)
    rows = rng.normal(size=(200, 50))
    columns = np.column_stack([task.columns(rng.integers(40, size=200)), np.ones(200)])

    def factors(which):
        made = RoundedRows(rows[which], columns[which], data_norm=np.inf, fit_intercept=True)
        return of.factors(theta, made.take(slice(None)))

    whole = factors(slice(None))
    for which in ([0], [199], [3, 77], np.arange(5, 22), np.arange(190)[::-1]):
        for some, all_of_them in zip(factors(which), whole, strict=True):
            for part, full in zip(some, all_of_them, strict=True):
                np.testing.assert_array_equal(part, full[which])


@pytest.mark.parametrize("name", NETS)
def test_products_of_a_record_are_python_integers(name):
    """Slow and obvious: l_i and a_i as integers, multiplied one by one."""
    of, theta, columns = case(name)
    on_grid = grid_sum(of, SIGMA, "zero_out")
    with np.errstate(all="ignore"):
        factors = of.factors(theta, rows_of(columns))
    alone = each(name)
    for i in range(N):
        slow = []
        for left, right, square in factors:
            whole = [int(v) for v in right[i]]
            assert (right[i] == whole).all()
            assert sum(v * v for v in whole) == square[i] <= 4**17
            slow += [round(x * (1.0 / on_grid.width)) * v for x in left[i].tolist() for v in whole]
        assert slow == alone[i]


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("clipping", ["flat", "automatic"])
def test_they_are_the_clipped_gradients(name, clipping):
    """Against autograd, in doubles, one record at a time."""
    of, theta, _ = case(name, clipping=clipping)
    task, hidden, clip_norm = NETS[name]
    layers, parameters = [], []
    for matrix, kind in zip(
        PerceptronSum.matrices(of.sizes, theta.numpy()),
        [*(k for _, k in hidden), None],
        strict=True,
    ):
        layer = nn.Linear(matrix.shape[1] - 1, matrix.shape[0], dtype=torch.float64)
        layer.weight.data[:] = torch.from_numpy(matrix[:, :-1])
        layer.bias.data[:] = torch.from_numpy(matrix[:, -1])
        layers += [layer] if kind is None else [layer, kind()]
        parameters += [layer.weight, layer.bias]
    net, on_grid = nn.Sequential(*layers), grid_sum(of, SIGMA, "zero_out")
    for i in REGULAR:
        y = torch.tensor(LABELS[i : i + 1] if task is CLASSES else TARGETS[i : i + 1])
        loss = task.loss(net(torch.from_numpy(X[i : i + 1])), y).sum()
        grads = torch.autograd.grad(-loss, parameters)
        g = torch.cat(
            [
                torch.cat([w, b[:, None]], dim=1).ravel()
                for w, b in zip(grads[::2], grads[1::2], strict=True)
            ]
        ).numpy()
        norm = float(np.linalg.norm(g))
        factor = clip_norm / (norm + 0.01 if clipping == "automatic" else max(norm, clip_norm))
        found = np.array(total(name, [i], clipping=clipping)) * on_grid.width
        # Rounded to 16 bits, and then a residual in which most of it may cancel.
        assert np.linalg.norm(found - WEIGHTS[i] * factor * g) <= 2e-3 * clip_norm


@pytest.mark.parametrize("name", NETS)
def test_a_record_at_its_bound_is_not_lost_to_rounding(name):
    """As it would be, were there no room for it: about every fourth is rounded up enough."""
    of, theta, columns = case(name)
    columns = columns.copy()
    columns[:, -1] = 2.0
    on_grid = grid_sum(of, SIGMA, "zero_out")
    tight = 0
    for i in REGULAR:
        v = on_grid(theta, rows_of(columns, [i])).tolist()
        with np.errstate(all="ignore"):
            factors = of.factors(theta, rows_of(columns, [i]))
        norm = np.sqrt(sum((f.left[0] ** 2).sum() * f.squares[0] for f in factors))
        tight += norm > of.record_bound * (1 - 1e-9)
        assert any(v)
    assert tight > len(REGULAR) / 3


def test_rows_that_are_not_finite_contribute_nothing():
    for i in (N - 4, N - 2):
        assert not any(total("linear", [i]))
    far = np.flatnonzero((np.abs(TARGETS) > 1e100).any(axis=1))
    assert far.size
    assert not any(total("regression", far))


# --- sensitivity ----------------------------------------------------------------------------------


@pytest.mark.parametrize("relation", ["zero_out", "add_or_remove_one", "replace_one"])
@pytest.mark.parametrize("name", NETS)
def test_neighbours_are_as_far_apart_as_the_noise_pays_for(name, relation):
    of = case(name)[0]
    on_grid = grid_sum(of, SIGMA, relation)
    alone, most = each(name, relation), int(sensitivity_factor(relation)) * lattice_bound(SIGMA)
    whole, longest = total(name, relation=relation), 0
    for i in range(N):
        keep = [j for j in range(N) if j != i]
        if relation == "replace_one":  # another record stands at the place of this one
            other = [*range(i), (i + 1) % N, *range(i + 1, N)]
            difference = np.subtract(whole, total(name, other, relation)).tolist()
        else:
            difference = np.subtract(whole, total(name, keep, relation)).tolist()
            assert difference == alone[i]
        longest = max(longest, sum(v * v for v in difference))
    assert longest <= most**2
    assert on_grid.sensitivity(relation) == pytest.approx(most * on_grid.width, rel=1e-14)
    assert isqrt(max(sum(v * v for v in one) for one in alone)) > 0.9 * lattice_bound(SIGMA) / 2


@bundled("name", NETS)
def test_what_is_beyond_the_bound_is_dropped_whatever_computed_it(name):
    of, theta, columns = case(name)
    liar = PerceptronSum(
        of.sizes, of.activations, lambda z, t: 1e3 * (t - z), of.clip_norm, weight_bound=2.0
    )
    object.__setattr__(liar, "_factors", lambda norms: 1e6 / norms)
    assert not any(grid_sum(liar, SIGMA, "zero_out")(theta, rows_of(columns)).tolist())


@pytest.mark.thorough
@settings(max_examples=40)
@given(st.integers(1, 3000), st.integers(1, 40), st.integers(-150, 90), st.integers(0, 2**32 - 1))
def test_products_are_below_the_digits_of_a_double(size, n, power, seed):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, size)) * 10.0**power
    rows[rng.random((n, size)) < rng.random()] = 0.0
    weights = rng.normal(size=(3, size)) * 10.0 ** rng.integers(-30, 30)
    with np.errstate(all="ignore"):
        rounded = Rounded.of(rows.copy())
    whole = np.abs(rounded.integers)
    assert (whole == np.rint(whole)).all()
    assert (np.linalg.norm(whole, axis=1) <= 2**17).all()
    bits = perceptron_sum._WEIGHT_BITS - np.frexp(np.linalg.norm(weights))[1]
    assert (whole @ np.abs(np.rint(np.ldexp(weights, bits))).T <= 2**52).all()
    close = rounded.integers * rounded.units[:, None]
    scale = np.linalg.norm(rows, axis=1, keepdims=True)
    assert (np.abs(close - rows) <= 2.0**-16 * np.maximum(scale, 1e-99)).all()
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(
            rounded.times(weights) + 0.0,
            close @ weights.T,
            atol=1e-8 * float(scale.max() * np.linalg.norm(weights)),
            rtol=1e-8,
        )


# --- elementwise functions ------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ACTIVATIONS)
def test_activations_are_those_of_torch_and_know_no_place(kind):
    z = np.concatenate([np.linspace(-40, 40, 4001), [0.0, -0.0, 5e-324, 1e300, -1e300]])
    inputs = torch.from_numpy(z).requires_grad_()
    outputs = kind()(inputs)
    outputs.sum().backward()
    with np.errstate(all="ignore"):
        value, slope = ACTIVATIONS[kind](z)
        np.testing.assert_allclose(value, outputs.detach().numpy(), rtol=1e-12, atol=1e-12)
        away = z != 0.0  # of the kink
        np.testing.assert_allclose(slope[away], inputs.grad.numpy()[away], rtol=1e-9, atol=1e-12)
        for start, length in product(range(0, 3900, 97), (1, 2, 3, 13)):
            stop = start + length
            there = ACTIVATIONS[kind](z[start:stop].copy())
            assert (there[0] == value[start:stop]).all()
            assert (there[1] == slope[start:stop]).all()
            column = ACTIVATIONS[kind](z[start:stop, None].copy())
            assert (column[0][:, 0] == value[start:stop]).all()


@bundled("n_classes", [2, 3, 7, 8, 9, 10, 100, 513])
def test_a_softmax_knows_no_place(n_classes):
    rng = np.random.default_rng(2)
    z, task = rng.normal(size=(64, n_classes)) * 20, Classification(n_classes)
    columns = task.columns(rng.integers(n_classes, size=64))
    whole = task.residual(z, columns)
    for start, stop in [(0, 1), (5, 6), (1, 3), (7, 20), (63, 64), (3, 64)]:
        some = task.residual(z[start:stop].copy(), columns[start:stop].copy())
        assert (some == whole[start:stop]).all()


# --- persons --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NETS)
def test_a_person_is_a_record(name):
    of, theta, columns = case(name)
    unit = PersonUnit(10, 7.0, 1.5, None)
    on_grid = grid_sum(of.of_persons(unit), SIGMA, "add_or_remove_one")
    assert not isinstance(on_grid, OuterGridSum)

    def of_persons(first, last):
        starts = np.arange(0, 7 * (last - first) + 1, 7)
        which = np.arange(7 * first, 7 * last)
        return np.array(on_grid(theta, rows_of(columns, which, starts)).tolist(), dtype=object)

    alone = [of_persons(i, i + 1) for i in range(10)]
    assert (of_persons(0, 10) == sum(alone)).all()
    assert (of_persons(3, 7) == sum(alone[3:7])).all()
    norms = [isqrt(sum(v * v for v in one)) for one in alone]
    assert max(norms) <= lattice_bound(SIGMA)
    slow = np.array([np.array(one, dtype=float) for one in each(name)]).reshape(10, 7, -1).sum(1)
    slow *= grid_sum(of, SIGMA, "zero_out").width
    bound = 1.5 * of.record_bound
    slow *= np.minimum(1.0, bound / np.linalg.norm(slow, axis=1))[:, None]
    np.testing.assert_allclose(
        np.array(alone, dtype=float) * on_grid.width, slow, atol=2e-4 * of.record_bound
    )
