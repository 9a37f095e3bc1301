"""Laws that are stated as exact, proved by walking every branch of the code in fractions.

Scales: coins of probability exp(−x) for x in quarters up to 1, to 1e-20; pairs and products of
them, to 1e-3. With ideal coins inside, the same, and the discrete Gaussian of σ = 1, 2, 4, to all
but 1e-6, 1e-3 and 1e-3 of its mass (slow: 1e-9, 1e-7, 1e-6). Choices by weights of up to 12 bits,
looked at 2 or 3 at a time, and of 300 bits. Poisson batches of up to 4 rows at q = 1/2 and 1/4, of
3 rows at 3/8 and 1, with no mass left. The bound on integer vectors for all vectors of int8 in up
to 3 dimensions. What doubles decide at full size is compared with integers at and around the
boundaries, where it could go wrong.
"""

import math
from fractions import Fraction
from functools import cache
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
from walks import Source

from skdp.engine import coins, discrete_gaussian, discrete_laplace, gaps, sampling
from skdp.engine.coins import Choice
from skdp.engine.gaps import Gaps, enclosed_power
from skdp.engine.grid import _MARGIN, rounded
from skdp.engine.sampling import PoissonSampling

QUARTERS = [Fraction(k, 4) for k in range(5)]


@cache
def exp_minus(x):
    """e^-x for a fraction x ≥ 0, within 1e-27."""
    x, halvings = Fraction(x), 0
    while x > 1:
        x, halvings = x / 2, halvings + 1
    value = sum((-x) ** k / math.factorial(k) for k in range(30))
    for _ in range(halvings):
        value = Fraction(round(value**2 * 2**120), 2**120)
    return Fraction(round(value * 2**90), 2**90)


def agrees(law, lost, stated, within):
    """Whether each stated probability lies between what was found and that plus what was lost."""
    assert lost <= within
    assert sum(law.values()) + lost == 1
    slack = Fraction(1, 10**24)  # of exp_minus, and of some hundred products of it
    return all(
        law.get(outcome, 0) - slack <= p <= law.get(outcome, 0) + lost + slack
        for outcome, p in stated.items()
    )


def joint(*probabilities):
    """Law of independent coins."""
    return {
        outcome: math.prod(
            p if passed else 1 - p for p, passed in zip(probabilities, outcome, strict=True)
        )
        for outcome in product((False, True), repeat=len(probabilities))
    }


def quarter_coins(xs, source):
    return coins.fractions(np.array([int(4 * x) for x in xs]), 2, source)


class TestCoins:
    @pytest.mark.parametrize("x", QUARTERS)
    def test_one(self, x):
        source = Source()
        law, lost = source.law(
            lambda: tuple(coins.exp_coins(quarter_coins([x], source), 1, source).tolist()),
            cutoff=Fraction(1, 10**25),
        )
        assert agrees(law, lost, joint(exp_minus(x)), Fraction(1, 10**20))
        assert not agrees(law, lost, joint(exp_minus(x + Fraction(1, 10**15))), 1)

    def test_side_by_side_they_are_independent(self):
        source, xs = Source(), (Fraction(1, 4), Fraction(1))
        law, lost = source.law(
            lambda: tuple(coins.exp_coins(quarter_coins(xs, source), 2, source).tolist()),
            cutoff=Fraction(1, 10**7),
        )
        assert agrees(law, lost, joint(*map(exp_minus, xs)), Fraction(1, 10**4))

    def test_geometric(self):
        source = Source()
        law, lost = source.law(
            lambda: int(coins.geometric(1, source)[0]), cutoff=Fraction(1, 10**6)
        )
        stated = {v: exp_minus(v) - exp_minus(v + 1) for v in range(20)}
        assert agrees(law, lost, stated, Fraction(1, 10**3))

    @pytest.mark.parametrize(
        ("whole", "numerators"), [([0], [3]), ([1], [0]), ([2], [1]), ([1, 0], [2, 4])]
    )
    def test_exp_minus(self, whole, numerators):
        source = Source()
        law, lost = source.law(
            lambda: tuple(
                coins.exp_minus(np.array(whole), np.array(numerators), 2, source).tolist()
            ),
            cutoff=Fraction(1, 10**6),
        )
        xs = [w + Fraction(n, 4) for w, n in zip(whole, numerators, strict=True)]
        assert agrees(law, lost, joint(*map(exp_minus, xs)), Fraction(1, 10**3))


@pytest.fixture
def ideal(monkeypatch):
    """A source, with coins of probability exp(−x) replaced by ideal ones, to 27 digits.

    Their x is the exact probability of the coin that they are made of.
    """
    source = Source(concrete=True)

    def exp_coins(coin, size, random):
        assert random is source
        passed = []
        for i in range(size):
            law, _ = source.law(lambda i=i: bool(coin(np.array([i]))[0]))
            p = exp_minus(law.get(True, 0))
            passed.append(source.decide(p, 1 - p) == 0)
        return np.array(passed, dtype=bool)

    monkeypatch.setattr(coins, "exp_coins", exp_coins)
    monkeypatch.setattr(discrete_gaussian, "exp_coins", exp_coins)
    monkeypatch.setattr(discrete_laplace, "exp_coins", exp_coins)
    return source


class TestOfIdealCoins:
    def test_geometric(self, ideal):
        law, lost = ideal.law(lambda: int(coins.geometric(1, ideal)[0]), cutoff=Fraction(1, 10**14))
        stated = {v: exp_minus(v) - exp_minus(v + 1) for v in range(40)}
        assert agrees(law, lost, stated, Fraction(1, 10**12))

    def test_each_place_has_its_number_of_coins(self, ideal):
        times, xs = np.array([0, 1, 3]), [Fraction(3, 4), Fraction(1, 4), Fraction(1, 2)]
        law, lost = ideal.law(
            lambda: tuple(coins.all_pass(quarter_coins(xs, ideal), times, ideal).tolist())
        )
        stated = joint(*(exp_minus(x * int(n)) for x, n in zip(xs, times, strict=True)))
        assert agrees(law, lost, stated, 0)

    @pytest.mark.quick(1)
    @pytest.mark.parametrize(
        ("bits", "cutoff", "within"),
        [
            (0, 1e-8, 1e-6),
            (1, 1e-6, 1e-3),
            (2, 1e-6, 1e-3),
            pytest.param(0, 1e-12, 1e-9, marks=pytest.mark.slow),
            pytest.param(1, 1e-10, 1e-7, marks=pytest.mark.slow),
            pytest.param(2, 1e-10, 1e-6, marks=pytest.mark.slow),
        ],
    )
    def test_one_candidate_of_the_discrete_gaussian(self, ideal, bits, cutoff, within):
        stream = SimpleNamespace(generator=SimpleNamespace(integers=ideal))
        law, lost = ideal.law(
            lambda: tuple(discrete_gaussian._accepted(bits, 1, stream).tolist()), cutoff
        )
        assert lost < within
        assert 0.4 < law.pop(()) < 0.6

        def may_be(x, times_the_variance):
            p = exp_minus(Fraction(x * x, 2 << 2 * bits) / times_the_variance)
            low, at_0 = law.get((x,), 0), law[0,]
            return p * at_0 <= low + lost and low <= p * (at_0 + lost)

        sigma = 1 << bits
        assert all(may_be(x, 1) for x in range(-5 * sigma, 5 * sigma + 1))
        for x in (-2 * sigma, -sigma, sigma, 2 * sigma):
            assert not may_be(x, Fraction(11, 10))
            assert not may_be(x, Fraction(10, 11))

    @pytest.mark.parametrize("scale", ["1", "3/2", "1/2", "5/3"])
    def test_one_candidate_of_the_discrete_laplace(self, ideal, scale):
        b, stream = Fraction(scale), SimpleNamespace(generator=SimpleNamespace(integers=ideal))
        law, lost = ideal.law(
            lambda: tuple(discrete_laplace._accepted(b, 1, stream).tolist()), cutoff=1e-10
        )
        assert lost < 1e-7
        for x in range(-4, 5):
            low, p = law.get((x,), 0), exp_minus(abs(x) / b)
            assert p * law[0,] <= low + lost
            assert low <= p * (law[0,] + lost)

    @pytest.mark.thorough
    def test_candidates_are_independent(self, ideal):
        stream = SimpleNamespace(generator=SimpleNamespace(integers=ideal))
        one, lost = ideal.law(
            lambda: tuple(discrete_gaussian._accepted(0, 1, stream).tolist()),
            cutoff=1e-6,
        )
        pair, lost_of_two = ideal.law(
            lambda: tuple(discrete_gaussian._accepted(0, 2, stream).tolist()),
            cutoff=1e-6,
        )
        assert max(lost, lost_of_two) < 0.005
        for x, y in product((-1, 0, 1), repeat=2):
            assert pair[x, y] <= (one[x,] + lost) * (one[y,] + lost)
            assert one[x,] * one[y,] <= pair[x, y] + lost_of_two


class TestChoice:
    @pytest.mark.parametrize("weights", [[1], [3, 1], [0, 5, 0, 2], [1, 2, 3, 4], [7] * 9])
    def test_in_one_word(self, weights):
        source = Source()
        law, lost = source.law(lambda: int(Choice(weights).draw(1, source)[0]), limit=1)
        total = sum(weights)
        assert lost == 1 - Fraction(total, 2 ** total.bit_length())
        assert law == {i: (1 - lost) * Fraction(w, total) for i, w in enumerate(weights) if w}

    @pytest.mark.parametrize("word", [2, 3])
    @pytest.mark.parametrize("weights", [[2000, 1, 95], [0, 129, 3, 0, 700], [255, 1], [64, 64]])
    def test_in_words_that_are_drawn_as_needed(self, monkeypatch, weights, word):
        monkeypatch.setattr(coins, "_WORD", word)
        source, total = Source(), sum(weights)

        def first_choice():
            calls = iter(range(10**9))

            def random(high, size=None):
                # A number beyond the sum is drawn again: with another first word.
                if size is not None and next(calls):
                    raise _AgainError
                return source(high, size)

            try:
                return int(Choice(weights).draw(1, random)[0])
            except _AgainError:
                return None

        law, lost = source.law(first_choice)
        scale = 2 ** total.bit_length()
        assert lost == 0
        assert law.pop(None, 0) == 1 - Fraction(total, scale)
        assert law == {i: Fraction(w, scale) for i, w in enumerate(weights) if w}

    def test_of_300_bits(self):
        # Only next to the two boundaries between the shares does it take a second word.
        weights, source = [3 << 290, 1 << 10, (5 << 290) - (1 << 11)], Source()
        law, lost = source.law(lambda: int(Choice(weights).draw(1, source)[0]), limit=1)
        assert lost == Fraction(2, 2**62)
        assert law == {0: Fraction(3, 8), 2: Fraction(5, 8) - lost}

    def test_many_at_once_are_those_one_by_one(self, monkeypatch):
        monkeypatch.setattr(coins, "_WORD", 5)
        choice = Choice([3, 0, 40, 1, 1000, 1, 7])
        words = np.random.default_rng(0).integers(1 << 5, size=3000)
        later = [np.random.default_rng(1).integers for _ in range(2)]
        many = choice._indices(words, later[0])
        assert many.tolist() == [choice._index(word, later[1]) for word in words.tolist()]


class _AgainError(Exception):
    """A number beyond the sum."""


def batch_law(monkeypatch, rate, n_rows, n_steps=1, block=None):
    source = Source(concrete=True)
    monkeypatch.setattr(sampling, "BLOCK", block or max(n_rows, 1))
    monkeypatch.setattr(sampling, "_WORDS", 1)
    monkeypatch.setattr(
        sampling,
        "Bits",
        lambda key: SimpleNamespace(
            words=lambda counters: source(1 << gaps.WORD, size=len(counters) // 16),
            more=lambda block: source,
        ),
    )
    stream = SimpleNamespace(generator=None, words=lambda out: out)
    scheme = PoissonSampling(rate, n_steps)

    def rows_of_steps():
        batches = list(scheme.batches(n_rows, stream))
        assert len(batches) == n_steps
        return tuple(i * n_rows + row for i, rows in enumerate(batches) for row in rows.tolist())

    return source.law(rows_of_steps)


def independent_rows(rate, n_rows):
    q = Fraction(rate)
    rows = [range(n_rows)] * n_rows
    subsets = {tuple(sorted(set(s))) for k in range(n_rows + 1) for s in product(*rows[:k])}
    law = {s: q ** len(s) * (1 - q) ** (n_rows - len(s)) for s in subsets}
    return {s: p for s, p in law.items() if p}


class TestPoissonBatches:
    @pytest.mark.quick(1)
    @pytest.mark.parametrize(("rate", "most_rows"), [(0.5, 4), (0.25, 4), (0.375, 3), (1.0, 3)])
    def test_where_all_gaps_are_decided_by_integers(self, monkeypatch, rate, most_rows):
        monkeypatch.setattr(gaps, "WORD", 2)
        monkeypatch.setattr(sampling, "_SPARE", 0.0)
        for n_rows in range(most_rows + 1):
            assert batch_law(monkeypatch, rate, n_rows) == (independent_rows(rate, n_rows), 0)

    @pytest.mark.parametrize(
        ("n_rows", "n_steps", "block"), [(2, 2, 2), (1, 3, 1), (1, 4, 2), (0, 2, 1), (4, 1, 2)]
    )
    def test_rows_of_all_steps_are_independent(self, monkeypatch, n_rows, n_steps, block):
        monkeypatch.setattr(gaps, "WORD", 2)
        monkeypatch.setattr(sampling, "_SPARE", 0.0)
        law = independent_rows(0.25, n_rows * n_steps)
        assert batch_law(monkeypatch, 0.25, n_rows, n_steps, block) == (law, 0)

    @pytest.mark.parametrize("rate", [0.5, 0.25, 0.375])
    def test_where_some_are_certain_in_doubles(self, monkeypatch, rate):
        monkeypatch.setattr(gaps, "WORD", 6)
        monkeypatch.setattr(gaps, "_LEAST", 16)
        monkeypatch.setattr(gaps, "_ERROR", 2 / 16)  # the rule that holds for 62 bits
        monkeypatch.setattr(sampling, "_SPARE", 0.0)
        _, certain = Gaps(rate, 2).computed(np.arange(64))
        assert 4 < certain.sum() < 64
        assert batch_law(monkeypatch, rate, 2) == (independent_rows(rate, 2), 0)

    def test_where_spare_gaps_are_drawn(self, monkeypatch):
        monkeypatch.setattr(gaps, "WORD", 1)
        monkeypatch.setattr(sampling, "_SPARE", 1.0)
        assert batch_law(monkeypatch, 0.5, 2) == (independent_rows(0.5, 2), 0)


RATES = [0.5, 0.3, 0.004, 1e-6, 2.0**-20, 1 - 2.0**-30, 0.999]
LIMIT = 10**6


def near_boundaries(rate, rng):
    """First words of U at and around (1 − q)^g, and others."""
    largest = int(min(LIMIT, 40 / -math.log1p(-rate)))
    powers = {1, 2, 3, largest, *rng.integers(1, largest + 1, size=100).tolist()}
    at = [enclosed_power(1 - Fraction(rate), g, 62)[0] for g in powers]
    steps = (0, 1, 2, 2**6, 2**10, 2**24, 2**28, 2**30, 2**34)
    words = [word + sign * step for word in at for step in steps for sign in (1, -1)]
    words += [0, 1, 2**20, 2**40, 2**62 - 1, 2**61]
    return np.array([word for word in words if 0 <= word < 2**62])


class TestGapsInDoubles:
    @pytest.mark.parametrize("rate", RATES)
    def test_what_is_certain_is_right(self, rate):
        found = Gaps(rate, LIMIT)
        words = near_boundaries(rate, np.random.default_rng(0))
        computed, certain = found.computed(words)
        assert 0 < certain.sum() < len(words)
        absent = 1 - Fraction(rate)
        for word, gap in zip(words[certain].tolist(), computed[certain].tolist(), strict=True):
            assert (word + 1) << 128 <= enclosed_power(absent, gap, 190)[0]
            if gap < LIMIT:
                assert word << 128 >= enclosed_power(absent, gap + 1, 190)[1]

    @pytest.mark.parametrize("rate", RATES)
    def test_nearly_all_are_certain(self, rate):
        words = np.random.default_rng(1).integers(2**62, size=20_000)
        _, certain = Gaps(rate, LIMIT).computed(words)
        assert certain.mean() > 0.99

    @pytest.mark.parametrize("rate", [5e-324, 1e-300, 1e-12])
    def test_rates_near_0(self, rate):
        random = np.random.default_rng(2).integers
        draws = Gaps(rate, 1000).of(random(1 << 62, size=(1, 50)), lambda line: random)
        assert draws.tolist() == [[1000] * 50]  # but for 5e-8

    @pytest.mark.parametrize("base", [Fraction(1, 2), Fraction(0.7), 1 - Fraction(5e-324)])
    def test_powers_are_enclosed(self, base):
        for g in (0, 1, 2, 7, 50):
            low, high = enclosed_power(base, g, 100)
            assert low <= base**g * 2**100 <= high <= low + 200
        low, high = enclosed_power(base, 2**62, 190)
        assert low <= high <= low + 2**66


def int8_vectors(dimension):
    """All vectors of int8, in chunks."""
    values = np.arange(-128.0, 128.0)
    if dimension == 1:
        yield values[:, None]
        return
    others = [values] * (dimension - 1)
    rest = np.stack(np.meshgrid(*others, indexing="ij"), axis=-1).reshape(-1, dimension - 1)
    for first in values:
        yield np.column_stack([np.full(len(rest), first), rest])


SLOW = [pytest.param(3, bound, marks=pytest.mark.slow) for bound in (1, 181)]


@pytest.mark.parametrize(("dimension", "bound"), [*product((1, 2), (1, 127, 181)), (3, 127), *SLOW])
def test_no_vector_of_integers_is_longer_than_its_bound(dimension, bound):
    limit = (1.0 - _MARGIN) * bound**2
    for vectors in int8_vectors(dimension):
        square = (vectors.astype(np.int64) ** 2).sum(axis=1)
        kept = rounded(0.5 * vectors, 0.5, limit).astype(np.int64)
        assert (kept**2).sum(axis=1).max() <= bound**2
        inside = square <= limit
        assert (kept == vectors * inside[:, None]).all()
