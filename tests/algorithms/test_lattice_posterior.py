"""The implemented law of a posterior draw, computed at every point, is the one that is claimed.

For posteriors on a line the probability of each grid point is put together from what the program
uses: the weights of the shells, the exact law of the proposals (whose sampler is tested by itself,
`tests/engine/test_lattice_gaussian.py`), the shell that a point is of, and the exponent of its
coin. It is held against exp(−2^−m Û), and between neighbours.
"""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from bundles import bundled
from scipy import stats
from scipy.special import logsumexp

from skdp.algorithms import envelopes, exact_draws, lattice_posterior, ops
from skdp.algorithms.envelopes import Envelope
from skdp.algorithms.lattice_posterior import Lattice, LatticePotential
from skdp.algorithms.tempered import TemperedPosterior
from skdp.engine.lattice_gaussian import BITS
from skdp.fitting.reading import Records
from skdp.fitting.streams import SecureStream, Streams
from skdp.models.likelihoods import Bernoulli, Categorical, HuberRegression

# Five values of a record: three labels' worth of rows, an empty one, and one beyond every bound.
VALUES = {
    "logistic": [(1.0, 1), (-1.0, 1), (0.4, 0), (0.0, 1), (1e9, 0)],
    "regression": [(1.0, 1.0), (-1.0, 1.0), (0.4, -0.3), (0.0, 0.2), (1.0, 1e9)],
}
LIKELIHOODS = {"logistic": Bernoulli(), "regression": HuberRegression(0.5, 0.7, 1.0)}
D, TAU, POWER = 3.0, 2.0, 0.9
ONE, MANY = (envelopes._RADII[i][1] for i in (0, -1))
SHELLS = {"one shell": ONE, "shells": MANY}
WIDTHS = {"width near τ/8": 3, "full width": 12}


def lattice(name, relation="zero_out", n_rows=2):
    posterior = TemperedPosterior(LIKELIHOODS[name], 1, False, 1.0, TAU, D, relation)
    return Lattice(posterior, POWER, n_rows)


def potential(name, records, **facts):
    X = np.array([x for x, _ in records], dtype=float).reshape(-1, 1)
    y = np.array([y for _, y in records], dtype=float).reshape(-1, 1)
    return LatticePotential(lattice(name, **facts), (X, y))


def ball(public):
    most = math.isqrt(public.square)
    return np.arange(-most, most + 1)[:, None]


def log_law(envelope, points):
    """Logarithm of the probability of each point, as the program draws it."""
    sums = envelope._choice._sums
    weights = np.diff([0, *sums])
    v = points - envelope.center
    shells = envelope.shell_of(v)
    found = np.empty(len(points))
    for j, shell in enumerate(envelope.shells):
        at = shells == j
        z = shell.law.coordinates(v[at])
        np.testing.assert_array_equal(shell.law.points(z)[0], v[at])
        (J,) = shell.law.precisions.tolist()
        # Poisson's summation: the sum of exp(−2^−50 J z²) is this to a relative e^−78 for σ ≥ 2.
        assert 2**49 / J > 4
        normaliser = 0.5 * math.log(math.pi * 2**BITS / J)
        x = envelope.exponents(points[at], z, shells[at]) if at.any() else []
        energies = [a + b for a, b in zip(x, shell.law.energy(z).tolist(), strict=True)]
        found[at] = [math.log(weights[j]) - normaliser - e / 2**BITS for e in energies]
    return found - logsumexp(found)


def stated_law(rows):
    public = rows.lattice
    log_mass = -np.ldexp(rows.energies(ball(public)).astype(float), -public.bits)
    return log_mass - logsumexp(log_mass)


def data_sets(name, sizes=(0, 1, 2, 3)):
    for n in sizes:
        yield from itertools.combinations_with_replacement(VALUES[name], n)


@pytest.fixture(params=WIDTHS)
def width(request, monkeypatch):
    monkeypatch.setattr(lattice_posterior, "LEAST_GRID_BITS", 1)
    monkeypatch.setattr(lattice_posterior, "GRID_BITS", WIDTHS[request.param])


@pytest.fixture(params=SHELLS)
def shells(request, monkeypatch):
    monkeypatch.setattr(envelopes, "_RADII", ((math.inf, SHELLS[request.param]),))


@pytest.mark.thorough
@pytest.mark.usefixtures("width", "shells")
@pytest.mark.parametrize("name", VALUES)
def test_the_implemented_law_is_the_stated_one_at_every_point(name):
    sizes = (0, 1, 3) if lattice_posterior.GRID_BITS == 3 else (1, 3)
    for records in list(data_sets(name, sizes))[:: 1 if sizes[0] == 0 else 6]:
        rows = potential(name, records)
        found = log_law(Envelope(rows), ball(rows.lattice))
        np.testing.assert_allclose(found, stated_law(rows), rtol=0, atol=1e-9)


NEIGHBOURS = {
    "add_or_remove_one": lambda records, i, other: records[:i] + records[i + 1 :],
    "zero_out": lambda records, i, other: (*records[:i], (0.0, records[i][1]), *records[i + 1 :]),
    "replace_one": lambda records, i, other: (*records[:i], other, *records[i + 1 :]),
}


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("relation", NEIGHBOURS)
def test_neighbours_laws_differ_by_no_more_than_is_paid(name, relation, monkeypatch, figure):
    """All pairs of data sets of at most 3 rows; the ranges are of integers, and exact."""
    monkeypatch.setattr(lattice_posterior, "GRID_BITS", 3)
    monkeypatch.setattr(lattice_posterior, "LEAST_GRID_BITS", 1)
    posterior = lattice(name, relation).posterior
    η = ops.ExactConfig(posterior, POWER, 1, 2).eta
    points, laws, sums = ball(lattice(name, relation)), {}, {}

    def law(records):
        key = tuple(sorted(records))
        if key not in laws:
            rows = potential(name, records, relation=relation)
            laws[key], sums[key] = log_law(Envelope(rows), points), rows.energies(points)
        return laws[key], sums[key]

    worst, widest = 0.0, 0
    for records in data_sets(name, (1, 2, 3)):
        for i, other in itertools.product(range(len(records)), VALUES[name]):
            mine, my_sum = law(records)
            theirs, their_sum = law(NEIGHBOURS[relation](records, i, other))
            worst = max(worst, np.abs(mine - theirs).max())
            widest = max(widest, int(np.ptp(my_sum - their_sum)))
            if relation != "replace_one":
                break
    factor = 2 if relation == "replace_one" else 1
    assert widest <= factor * lattice(name, relation).largest_loss
    assert Fraction(widest, 2 ** lattice(name, relation).bits) <= Fraction(η)
    figure(f"{name}, {relation}: largest log-ratio {worst:.6f} of η = {η:.6f}")
    assert 0.4 * η < worst <= η + 1e-9


class Liar(Bernoulli):
    """Declares half of its range."""

    def value_range(self, reach):
        return reach / 2


def test_a_record_s_integer_keeps_its_range_whatever_the_likelihood_does():
    posterior = TemperedPosterior(Liar(), 1, False, 1.0, TAU, D)
    public = Lattice(posterior, POWER, 2)
    rows = LatticePotential(public, (np.array([[1.0], [-0.9]]), np.array([[1.0], [1.0]])))
    points = ball(public)
    sums = rows.energies(points) - rows.prior(points)
    assert sums.max() <= 2 * public.largest_loss
    assert sums.min() >= 0
    for reach in (0.1, 1.0, 3.0):
        wide = Lattice(TemperedPosterior(Bernoulli(), 1, False, 1.0, TAU, reach), 0.3, 5)
        largest = Fraction(wide.largest_loss, 2**wide.bits)
        assert largest <= Fraction(0.3 * reach)
        assert largest > Fraction(0.3 * reach) * (1 - Fraction(1, 2**28))


@pytest.mark.parametrize("name", VALUES)
def test_no_point_lies_above_its_envelope_far_from_the_center(name, monkeypatch):
    """Many rows, all shells, a wall: x ≥ 0 wherever the ball is, or `exponents` raises."""
    monkeypatch.setattr(envelopes, "_RADII", ((math.inf, MANY),))
    coin = np.random.default_rng(0)
    for n, d, τ, radius in ((50, 1, 5.0, 9.0), (300, 2, 3.0, 0.5), (40, 6, 1.0, 4.0)):
        posterior = TemperedPosterior(LIKELIHOODS[name], d, False, math.sqrt(d), τ, radius)
        X = coin.uniform(-1, 1, (n, d))
        y = (X[:, :1] + 0.3 * coin.normal(size=(n, 1)) > 0).astype(float)
        envelope = Envelope(LatticePotential(Lattice(posterior, POWER, n), (X, y)))
        assert len(envelope.shells) > 3
        ends = coin.normal(size=(4000, d))
        ends *= (coin.random(4000) ** (1 / d) / np.linalg.norm(ends, axis=1))[:, None]
        g = (ends * math.isqrt(envelope._potential.lattice.square)).astype(np.int64)
        shells = envelope.shell_of(g - envelope.center)
        for j in np.unique(shells):
            points = g[shells == j]
            z = envelope.shells[j].law.coordinates(points - envelope.center)
            assert min(envelope.exponents(points, z, shells[shells == j])) >= 0


def test_a_point_above_its_envelope_is_an_error_and_no_other_law():
    rows = potential("logistic", VALUES["logistic"][:3])
    envelope = Envelope(rows)
    envelope._at_center += 2**60
    at = np.zeros(1, dtype=np.int64)
    with pytest.raises(RuntimeError, match="above its envelope"):
        envelope.exponents(envelope.center[None], np.zeros((1, 1), dtype=np.int64), at)


LAWS = {
    "line": (Bernoulli(), 1, [1, 0, 1, 1, 1, 1], 1.5, 3.0),
    "wall": (Bernoulli(), 1, [1, 1, 0, 1, 1, 1], 3.0, 0.7),
    "plane": (Bernoulli(), 2, [1, 0, 1, 1, 1, 0], 2.0, 2.5),
    "classes": (Categorical(3), 1, [0, 2, 1, 0, 0, 0], 1.0, 2.0),
    "regression": (HuberRegression(0.4, 0.5, 1.0), 1, [0.8, 0.1, -0.9, 0.7, 1.0, 0.6], 1.0, 2.0),
}


def rows_of(name):
    likelihood, d, y, τ, radius = LAWS[name]
    X = np.random.default_rng(5).uniform(-1, 1, (6, d))
    classes = isinstance(likelihood, Categorical)
    targets = likelihood.targets(np.array(y)) if classes else np.array(y, dtype=float)[:, None]
    posterior = TemperedPosterior(likelihood, d, False, math.sqrt(d), τ, radius)
    return LatticePotential(Lattice(posterior, 0.8, 6), (X, targets))


def p_value(draws, rows):
    """Chi-square of the points drawn, those of small probability in groups."""
    most = math.isqrt(rows.lattice.square)
    p = rows.lattice.posterior.n_parameters
    grid = np.stack(np.meshgrid(*[np.arange(-most, most + 1)] * p, indexing="ij"), -1)
    grid = grid.reshape(-1, p)
    grid = grid[(grid**2).sum(axis=1) <= rows.lattice.square]
    log_mass = -np.ldexp(rows.energies(grid).astype(float), -rows.lattice.bits)
    law = dict(zip(map(tuple, grid.tolist()), np.exp(log_mass - logsumexp(log_mass)), strict=True))
    counts = dict.fromkeys(law, 0)
    for point in map(tuple, draws.tolist()):
        counts[point] += 1
    expected, observed = np.array([*law.values()]) * len(draws), np.array([*counts.values()])
    order = np.argsort(expected)
    groups = np.floor(np.cumsum(expected[order]) / 20)
    expected, observed = (np.bincount(groups.astype(int), a[order]) for a in (expected, observed))
    keep = expected > 5
    x2 = ((observed - expected)[keep] ** 2 / expected[keep]).sum()
    return stats.chi2.sf(x2, keep.sum() - 1)


@pytest.mark.quick(2)
@pytest.mark.usefixtures("shells")
@pytest.mark.parametrize("name", LAWS)
def test_draws_have_the_law_to_the_point(name, monkeypatch):
    monkeypatch.setattr(lattice_posterior, "GRID_BITS", 3 if name in ("line", "wall") else 1)
    monkeypatch.setattr(lattice_posterior, "LEAST_GRID_BITS", 1)
    rows = rows_of(name)
    draws = exact_draws.rejection(rows, SecureStream(b"laws of lattices"))
    n = 20_000 if rows.lattice.posterior.n_parameters == 1 else 6000
    assert p_value(np.array([next(draws) for _ in range(n)]), rows) > 1e-4


@pytest.mark.thorough
def test_first_draws_have_the_law_as_well(monkeypatch):
    """The first draw that is accepted is one of any shell: order within a batch matters."""
    monkeypatch.setattr(lattice_posterior, "GRID_BITS", 3)
    monkeypatch.setattr(envelopes, "_RADII", ((math.inf, MANY),))
    rows = rows_of("line")
    envelope = Envelope(rows)
    monkeypatch.setattr(exact_draws, "Envelope", lambda potential: envelope)
    streams = (SecureStream(i.to_bytes(16, "little")) for i in range(1500))
    first = np.array([next(exact_draws.rejection(rows, stream)) for stream in streams])
    assert p_value(first, rows) > 1e-4


@bundled("name", LAWS)
def test_a_seed_repeats_the_draws_and_a_grid_holds_them(name):
    _, d, _, _, radius = LAWS[name]
    rows = rows_of(name)
    config = ops.ExactConfig(rows.lattice.posterior, 0.8, 4, 6)
    X = np.random.default_rng(5).uniform(-1, 1, (6, d))
    once, again = (config.run((X, rows.targets), Streams(b"seed")) for _ in range(2))
    np.testing.assert_array_equal(once, again)
    steps = once / config.grid_width
    np.testing.assert_array_equal(steps, np.rint(steps))
    assert math.log2(config.grid_width).is_integer()
    assert ((once.reshape(4, -1) ** 2).sum(axis=1) <= radius**2).all()


def test_a_run_takes_the_grid_of_the_rows_that_were_declared(monkeypatch):
    seen = []

    class Spy(LatticePotential):
        def __init__(self, lattice, records):
            seen.append(lattice)
            super().__init__(lattice, records)

    monkeypatch.setattr(ops, "LatticePotential", Spy)
    config = ops.ExactConfig(lattice("logistic").posterior, POWER, 1, 1000)
    config.run((np.ones((3, 1)), np.ones((3, 1))), Streams())
    assert seen == [config.lattice]


def test_facts_for_which_64_bits_are_too_few_are_refused_before_any_row():
    posterior = TemperedPosterior(Bernoulli(), 3, True, 1.0, 1e6, 1e6)
    with pytest.raises(ValueError, match="smaller theta_norm, prior_scale or data_norm"):
        ops.ExactConfig(posterior, 1.0, 1, 10**6)


# --- persons, who have weights ------------------------------------------------------------------


def of_persons(name, k0, persons, relation="zero_out_group"):
    """Potential of persons, each a list of records (x, y)."""
    p = TemperedPosterior(LIKELIHOODS[name], 1, False, 1.0, TAU, D, relation, k0)
    records = [record for person in persons for record in person]
    X = np.array([x for x, _ in records], dtype=float).reshape(-1, 1)
    y = np.array([y for _, y in records], dtype=float).reshape(-1, 1)
    starts = np.cumsum([0] + [len(person) for person in persons])
    return LatticePotential(Lattice(p, POWER, 2), Records(X, y, starts))


@pytest.mark.quick(6)
@pytest.mark.parametrize("name", LIKELIHOODS)
@pytest.mark.parametrize("k0", [0.5, 1.0, 2.0, 2.7])
def test_a_person_moves_the_potential_over_a_range_that_does_not_grow_with_its_rows(name, k0):
    """At every point, whatever the rows: integers in [0, H₀], and the worst ones come near."""
    others = [VALUES[name][:2], VALUES[name][1:4]]
    without = of_persons(name, k0, others)
    public, points, widest = without.lattice, ball(without.lattice)[::7], 0
    stated = Fraction(public.posterior.range * POWER) * 2**public.bits
    for record in VALUES[name]:
        for k in (1, 2, 3, 7, 400):
            rows = of_persons(name, k0, [*others, [record] * k])
            moved = rows.energies(points) - without.energies(points)
            assert moved.min() >= 0
            assert moved.max() <= stated
            widest = max(widest, np.ptp(moved))
    assert widest > 0.8 * stated
    factor = of_persons(name, k0, others, "replace_one_group").lattice.posterior.range
    assert factor == 2 * public.posterior.range


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_where_losses_came_out_too_large_a_persons_integers_are_still_cut(name, monkeypatch):
    """Whatever arithmetic makes of the losses: here all are infinite."""
    kind = type(LIKELIHOODS[name])
    rows = of_persons(name, 2.0, [[VALUES[name][0]] * 7])
    most = math.floor(Fraction(rows.lattice._record_range) * 2 * 2**rows.lattice.bits)
    monkeypatch.setattr(kind, "loss", lambda self, logits, y: np.full(logits.shape[:-1], np.inf))
    points = ball(rows.lattice)[::101]
    moved = rows.energies(points) - rows.prior(points)
    assert (moved == 7 * (most // 7)).all()


@pytest.mark.quick(2)
@pytest.mark.parametrize("name", LIKELIHOODS)
@pytest.mark.parametrize("k0", [0.5, 1.0, 2.7])
def test_the_law_of_persons_is_the_stated_one_and_neighbours_keep_the_ratio(name, k0, width):
    others = VALUES[name][:2]
    laws = []
    for person in ([], [VALUES[name][0]], [VALUES[name][4]] * 5, VALUES[name]):
        rows = of_persons(name, k0, [others, person])
        envelope = Envelope(rows)
        found = log_law(envelope, ball(rows.lattice))
        np.testing.assert_allclose(found, stated_law(rows), atol=1e-9)
        laws.append(found)
    eta = POWER * rows.lattice.posterior.range
    for law in laws[1:]:  # each against a person without rows
        assert np.abs(law - laws[0]).max() <= eta + 1e-9


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_persons_with_a_row_each_have_the_bits_of_rows(name):
    records = VALUES[name]
    rows, persons = potential(name, records), of_persons(name, 1.0, [[r] for r in records])
    points = ball(rows.lattice)[::11]
    np.testing.assert_array_equal(rows.energies(points), persons.energies(points))
    assert rows.rounding == persons.rounding
