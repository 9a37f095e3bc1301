"""A record's integer in the potential of exact draws is a function of it and of the point alone.

That η bounds the log-ratio of the *implemented* laws rests on this and on the cut to [0, H]. It is
looked at record by record, in different batches, places, chunks, threads and processes, and against
arithmetic in fractions and decimals; integers written down here show another machine's difference.
"""

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from joblib import Parallel, delayed
from threadpoolctl import threadpool_limits

from skdp.algorithms import lattice_posterior
from skdp.algorithms.lattice_posterior import Lattice, LatticePotential
from skdp.algorithms.tempered import TemperedPosterior
from skdp.models.likelihoods import Bernoulli, Categorical, HuberRegression

LIKELIHOODS = {
    "logistic": Bernoulli(),
    "softmax": Categorical(3),
    "Huber": HuberRegression(0.5, 0.75, 1.0),
}
D, POWER, N_ROWS, NORM = 3, 0.8, 100, 0.75
each_likelihood = pytest.mark.parametrize("name", LIKELIHOODS)


def lattice(name):
    """R = 1.25 exactly."""
    return Lattice(TemperedPosterior(LIKELIHOODS[name], D, True, NORM, 1.0, 4.0), POWER, N_ROWS)


def targets(name, codes):
    """One row of targets a code 0, 1 or 2."""
    if name == "Huber":
        return (np.asarray(codes, dtype=float)[:, None] - 1.0) * 0.9
    if name == "logistic":
        return np.minimum(np.asarray(codes), 1).astype(float)[:, None]
    return LIKELIHOODS[name].targets(np.asarray(codes))


def table(name, n, seed=0):
    """Rows of which a third are clipped, with targets."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, D)) * 0.5, targets(name, rng.integers(3, size=n))


def points(name, m, seed=0):
    """Points of the ball, from its centre to its end."""
    grid, rng = lattice(name), np.random.default_rng(seed)
    directions = rng.normal(size=(m, grid.posterior.n_parameters))
    directions /= np.linalg.norm(directions, axis=1)[:, None]
    lengths = math.isqrt(grid.square) * np.linspace(0, 1, m)
    return np.trunc(directions * lengths[:, None]).astype(np.int64)


def integers(name, X, t, g):
    """Integers of records, each computed by itself, (n, m)."""
    grid = lattice(name)
    alone = (LatticePotential(grid, (X[i : i + 1], t[i : i + 1])) for i in range(len(X)))
    return np.array([potential.energies(g) - potential.prior(g) for potential in alone])


def energies(name, X, t, g):
    return LatticePotential(lattice(name), (X, t)).energies(g)


EXTREME = np.array(
    [
        [1e300, -1e300, 1e300],
        [1e308, 0.0, 5e-324],
        [-0.0, -0.0, -0.0],
        [0.0, 0.0, 0.0],
        [5e-324, -5e-324, 1e-310],
        [1e-300, 0.5, -0.0],
        [NORM, 0.0, 0.0],
        [np.nextafter(NORM, 1.0), 0.0, 0.0],
        [-1e154, 1e154, 1e-154],
        [0.3, 1e20, 1.0],
    ]
)


# --- one record, wherever it is -------------------------------------------------------------------


@each_likelihood
@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 33, 64])
def test_a_record_has_the_same_integer_at_each_place_of_each_batch(name, n):
    (X, t), g = table(name, n), points(name, 9)
    batch = energies(name, X, t, g)
    for i, alone in enumerate(integers(name, X, t, g)):
        keep = np.arange(n) != i
        assert (batch - energies(name, X[keep], t[keep], g) == alone).all()


@each_likelihood
def test_the_order_of_records_and_of_points_changes_no_bit(name):
    (X, t), g = table(name, 500), points(name, 40)
    batch = energies(name, X, t, g)
    for seed in range(3):
        rng = np.random.default_rng(seed)
        order, places = rng.permutation(len(X)), rng.permutation(len(g))
        assert (energies(name, X[order], t[order], g[places]) == batch[places]).all()
    for layout in (np.asfortranarray(X), np.repeat(X, 2, axis=0)[::2]):
        assert (energies(name, layout, t, g) == batch).all()
    assert (np.concatenate([energies(name, X, t, point[None]) for point in g]) == batch).all()


@each_likelihood
@pytest.mark.parametrize("numbers", [1, 7, 100, 2**12, 2**22])
def test_the_size_of_chunks_changes_no_bit(name, numbers, monkeypatch):
    (X, t), g = table(name, 50), points(name, 20)
    batch = energies(name, X, t, g)
    monkeypatch.setattr(lattice_posterior, "_NUMBERS", numbers)
    assert (energies(name, X, t, g) == batch).all()


@each_likelihood
def test_the_number_of_threads_changes_no_bit(name):
    (X, t), g = table(name, 3000), points(name, 60)
    with threadpool_limits(1):
        one = energies(name, X, t, g)
    with threadpool_limits(2):
        two = energies(name, X, t, g)
    assert (one == two).all()


@pytest.mark.thorough
def test_a_worker_process_finds_the_same_bits():
    tables = {name: (*table(name, 300), points(name, 20)) for name in LIKELIHOODS}
    potentials = {name: LatticePotential(lattice(name), rows[:2]) for name, rows in tables.items()}
    found = Parallel(n_jobs=2)(
        delayed(potentials[name].energies)(g) for name, (*_, g) in tables.items()
    )
    for name, there in zip(tables, found, strict=True):
        assert (there == energies(name, *tables[name])).all()


@each_likelihood
def test_extreme_rows_are_records_like_others(name):
    g, (X, t) = points(name, 9), table(name, 30)
    codes = np.arange(len(EXTREME)) % 3
    alone = integers(name, EXTREME, targets(name, codes), g)
    assert (alone >= 0).all()
    assert (alone <= lattice(name).largest_loss).all()
    both = np.concatenate([X, EXTREME]), np.concatenate([t, targets(name, codes)])
    assert (energies(name, *both, g) == energies(name, X, t, g) + alone.sum(axis=0)).all()
    signs = integers(name, np.array([[0.0] * D, [-0.0] * D, [5e-324] * D]), t[[0, 0, 0]], g)
    assert (signs == signs[0]).all()


# --- what it is -----------------------------------------------------------------------------------


def slow_loss(name, row, target, g, grid):
    """2^m ρ (loss − least loss) of a rounded row by fractions and decimals."""
    posterior = grid.posterior
    unit = Fraction(grid.row_unit) * Fraction(grid.width)
    weights = g.reshape(posterior.shape).tolist()
    exact = [sum(int(x) * w for x, w in zip(row, of_k, strict=True)) * unit for of_k in weights]
    z = [Decimal(q.numerator) / Decimal(q.denominator) for q in exact]
    reach = Decimal(posterior.row_bound * posterior.theta_norm)
    if name == "logistic":
        loss, least = (1 + (-z[0] if target[0] else z[0]).exp()).ln(), (1 + (-reach).exp()).ln()
    elif name == "softmax":
        K = len(z)
        loss = sum(q.exp() for q in z).ln() - z[int(np.argmax(target))]
        least = (1 + (K - 1) * (-reach * (Decimal(K) / (K - 1)).sqrt()).exp()).ln()
    else:
        y = Decimal(float(target[0]))
        loss, least = slow_huber(abs(y - z[0])), slow_huber(max(abs(y) - reach, Decimal(0)))
    return Decimal(POWER) * 2**grid.bits * (loss - least)


def slow_huber(size):
    c, variance = Decimal("0.75"), Decimal("0.25")
    return (size * size / 2 if size <= c else c * size - c * c / 2) / variance


@each_likelihood
def test_a_records_integer_is_its_loss_within_the_stated_error(name):
    grid, g = lattice(name), points(name, 12)
    X, t = table(name, 25)
    X = np.concatenate([X, EXTREME])
    t = np.concatenate([t, targets(name, np.arange(len(EXTREME)) % 3)])
    rows = LatticePotential(grid, (X, t)).rows
    found = integers(name, X, t, g)
    most = Decimal("0.5") + Decimal(math.ldexp(POWER, grid.bits - 40))
    with localcontext(prec=60):
        for i, j in np.ndindex(found.shape):
            stated = slow_loss(name, rows[i], t[i], g[j], grid)
            assert abs(int(found[i, j]) - stated) <= most


@each_likelihood
def test_rows_are_cut_to_their_bound_and_moved_by_less_than_a_unit(name):
    grid = lattice(name)
    X, t = table(name, 200)
    rows = LatticePotential(grid, (X, t)).rows
    assert (rows == np.rint(rows)).all()
    bound = (Fraction(grid.posterior.row_bound) / Fraction(grid.row_unit)) ** 2
    assert all(sum(int(x) ** 2 for x in row) <= bound * (1 + Fraction(1, 2**48)) for row in rows)
    inside = np.linalg.norm(X, axis=1) < NORM
    assert (np.abs(rows[inside, :D] * grid.row_unit - X[inside]) < grid.row_unit).all()


@each_likelihood
def test_sums_of_products_are_integers_that_doubles_hold(name):
    """So that no order of adding, and no fused multiplication, can round one."""
    grid = lattice(name)
    most = Fraction(grid.posterior.row_bound) / Fraction(grid.row_unit) * math.isqrt(grid.square)
    assert most < 2**53


# --- on this machine and on others ----------------------------------------------------------------

RECORDS = np.array(
    [[0.0, 0.0, 0.0], [0.5, -0.25, 0.125], [-0.7, 0.1, 0.3], [3.0, -4.0, 0.0], [1e300, 1e300, -1.0]]
)
CODES = [0, 1, 2, 1, 0]
PUBLIC = {  # bits of the width and of a row's unit over R, square, m, H
    "logistic": (-15, -34, 17179869184, 28, 1073741824),
    "softmax": (-15, -34, 17179869184, 27, 833252492),
    "Huber": (-17, -32, 274877906944, 26, 905969664),
}
EXPECTED = {  # a row a record, a column a point
    "logistic": [
        [147410113, 147331485, 111668575],
        [147410113, 147544504, 220676918],
        [147410113, 147432446, 124155051],
        [147410113, 147591069, 227064252],
        [147410113, 147373180, 85863644],
    ],
    "softmax": [
        [117493264, 117554453, 160551806],
        [117493264, 117361149, 46783862],
        [117493264, 117499207, 110865060],
        [117493264, 117353965, 35176993],
        [117493264, 117517416, 167811099],
    ],
    "Huber": [
        [84557169, 84527677, 69811569],
        [0, 11, 2376562],
        [84557169, 84565543, 75306349],
        [0, 19, 2756250],
        [84557169, 84543318, 56832412],
    ],
}


def places(name):
    """Points 0, near to it, and farther out."""
    k = np.arange(lattice(name).posterior.n_parameters)
    return np.array([0 * k, 8 * ((7 * k + 3) % 11 - 5), 4000 * ((5 * k + 1) % 13 - 6)])


@each_likelihood
def test_the_public_side_is_the_one_of_the_vectors(name):
    grid = lattice(name)
    exponents = math.log2(grid.width), math.log2(grid.row_unit / grid.posterior.row_bound)
    assert (*exponents, grid.square, grid.bits, grid.largest_loss) == PUBLIC[name]


@each_likelihood
def test_public_vectors_give_the_integers_that_are_written_here(name):
    found = integers(name, RECORDS, targets(name, CODES), places(name))
    assert found.tolist() == EXPECTED[name]
