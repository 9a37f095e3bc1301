import math
from decimal import Decimal, localcontext
from fractions import Fraction
from importlib.metadata import version
from itertools import combinations_with_replacement

import numpy as np
import pytest
from bundles import bundled
from dp_accounting import NeighboringRelation
from dp_accounting.dp_event import RandomizedResponseDpEvent
from dp_accounting.pld import PLDAccountant
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.special import logsumexp
from walks import Source

from skdp.engine import release_hook
from skdp.fitting.streams import Streams
from skdp.mechanisms import QuantileMechanism, _segments
from skdp.mechanisms import quantile as module
from skdp.mechanisms.disjoint_quantiles import Cell, split
from skdp.relations import RELATIONS, sensitivity_factor

GARBAGE = [math.nan, math.inf, -math.inf, True, "1", None, [1.0], 10**400, 1j]
PARAMETERS = {"quantile": 0.5, "lower": 0.0, "upper": 1.0, "epsilon": 1.0}

# Few values, so that ties, the ends of the range and neighbours on the grid all happen.
NUMBERS = st.one_of(
    st.sampled_from([0.0, 1.0, 0.5, 0.5 + 2.0**-30, 2.0**-30, 1 - 2.0**-30, math.inf, -7.0]),
    st.floats(-0.2, 1.2),
)
DATA = st.lists(NUMBERS, max_size=9)
QUANTILES = st.one_of(st.sampled_from([0.0, 0.25, 0.5, 0.9, 1.0]), st.floats(0, 1))


def neighbours(data, record, other, place, relation):
    """Two neighbouring data sets: ``record`` is in the first, and not in the second."""
    place %= len(data) + 1
    before, after = data[:place], data[place:]
    second = {"zero_out": [math.nan], "add_or_remove_one": [], "replace_one": [other]}[relation]
    return [*before, record, *after], [*before, *second, *after]


def log_weight(segments):
    """Log-weight of one point of each segment."""
    return np.log(np.ldexp(1.0 * segments.mantissa, -53 - segments.halvings))


def laws_of(mechanism, data_sets):
    """Log-probabilities of one point, and d, a row a data set, and sizes, on common segments.

    A data set is the values, and what stands beside them.
    """
    segments = [mechanism._segments(*data) for data in data_sets]
    first = np.unique(np.concatenate([s.first for s in segments]))
    size = np.diff(first, append=module.GRID + 1)
    rate = (mechanism.epsilon - 4 * module.WEIGHT_ERROR) / mechanism.sensitivity
    here = [log_weight(s)[np.searchsorted(s.first, first, side="right") - 1] for s in segments]
    laws = [weights - logsumexp(weights, b=size) for weights in here]
    return np.array(laws), -np.array(here) / rate, size


def laws_of_rows(mechanism, *data_sets):
    """The same, of values alone."""
    return laws_of(mechanism, [(np.array(data, dtype=float),) for data in data_sets])


def exact_laws(mechanism, *data_sets):
    laws, _, size = laws_of_rows(mechanism, *data_sets)
    return laws, size


def assert_private(mechanism, laws, d):
    """The loss is at most ε, its range too, and d moves over the sensitivity at most."""
    one, two = laws
    assert np.abs(one - two).max() <= mechanism.epsilon + 1e-9
    assert np.ptp(one - two) <= mechanism.epsilon + 1e-9
    assert np.ptp(d[0] - d[1]) <= mechanism.sensitivity + 1e-9


@given(st.lists(st.floats(-1.5, 2.5), max_size=8), QUANTILES, st.sampled_from(RELATIONS))
def test_the_law_is_the_definition_on_a_small_grid(data, q, relation):
    mechanism = QuantileMechanism(q, -1.0, 2.0, 1.3, relation)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "GRID", 12)
        (law,), size = exact_laws(mechanism, data)
    points = np.linspace(-1.0, 2.0, 13)
    rounded = [min(points, key=lambda t: abs(t - x)) for x in data]
    rank, d = round(q * 2**30) / 2**30 * len(data), []
    for t in points:
        below, up_to = sum(x < t for x in rounded), sum(x <= t for x in rounded)
        d.append(0.0 if below <= rank <= up_to else min(abs(below - rank), abs(up_to - rank)))
    slow = -1.3 / mechanism.sensitivity * np.array(d)
    np.testing.assert_allclose(np.repeat(law, size), slow - logsumexp(slow), atol=1e-9)


@pytest.mark.parametrize("relation", RELATIONS)
@given(DATA, NUMBERS, NUMBERS, st.integers(0, 9), QUANTILES, st.floats(-3, 1.5))
def test_exact_privacy_loss_is_at_most_epsilon(relation, data, record, other, place, q, log_eps):
    mechanism = QuantileMechanism(q, 0.0, 1.0, 10**log_eps, relation)
    pair = neighbours(data, record, other, place, relation)
    (one, two), d, size = laws_of_rows(mechanism, *pair)
    assert_private(mechanism, (one, two), d)
    # The event: Laplace noise of the same ε is less private at every e, in both directions.
    for epsilon in np.linspace(0, mechanism.epsilon, 9):
        laplace = -math.expm1((epsilon - mechanism.epsilon) / 2)
        for p, r in ((one, two), (two, one)):
            delta = (size * np.maximum(np.exp(p) - np.exp(epsilon + r), 0)).sum()
            assert delta <= laplace + 1e-9


NEAR = 1 - 2.0**-20
TIGHT = [
    (0.5, "zero_out", [0, 0, 0, 1, NEAR], [0, 0, 0, 1, math.nan]),
    (0.5, "add_or_remove_one", [0, 0, 0, 1, NEAR], [0, 0, 0, 1]),
    (0.9, "zero_out", [0] * 9 + [NEAR, 1], [0] * 9 + [NEAR, math.nan]),
    (0.9, "add_or_remove_one", [0] * 9 + [NEAR, 1], [0] * 9 + [NEAR]),
    (0.1, "add_or_remove_one", [1] * 9 + [1 - NEAR, 0], [1] * 9 + [1 - NEAR]),
    (0.5, "replace_one", [0, NEAR, 1, 1], [0, NEAR, 0, 1]),
]


@pytest.mark.parametrize(("q", "relation", "one", "two"), TIGHT)
def test_the_sensitivity_is_attained_so_no_smaller_one_would_do(q, relation, one, two):
    mechanism = QuantileMechanism(q, 0.0, 1.0, 2.0, relation)
    (p, r), d, _ = laws_of_rows(mechanism, one, two)
    assert np.ptp(d[0] - d[1]) == pytest.approx(mechanism.sensitivity, rel=1e-12)
    assert np.abs(p - r).max() == pytest.approx(2.0, rel=1e-4)


@pytest.mark.parametrize("q", [0.0, 0.3, 0.5, 0.75, 1.0])
def test_sensitivities(q):
    found = [QuantileMechanism(q, 0.0, 1.0, 1.0, relation).sensitivity for relation in RELATIONS]
    q = round(q * 2**30) / 2**30
    assert found == [2 * max(q, 1 - q), 2 * max(q, 1 - q), 2.0]


def test_a_null_record_counts_nowhere():
    mechanism = QuantileMechanism(0.3, 0.0, 1.0, 1.0)
    (with_null, without), _ = exact_laws(mechanism, [0.2, math.nan, 0.9], [0.2, 0.9])
    np.testing.assert_array_equal(with_null, without)
    assert release(mechanism, [0.2, math.nan]) == release(mechanism, [0.2])


def release(mechanism, values, key=b"quantile"):
    return mechanism.release(values, Streams(key)("noise"))


def draws(mechanism, data, count):
    stream = Streams(b"quantile law")("noise")
    return np.array([mechanism.release(data, stream) for _ in range(count)])


def cumulative(mechanism, data):
    """Exact distribution function of the answer, from the law of the segments."""
    (law,), size = exact_laws(mechanism, data)
    first = np.concatenate([[0], np.cumsum(size)])
    steps = np.concatenate([[0.0], np.cumsum(size * np.exp(law))])

    def function(x):
        points = np.rint((x - mechanism.lower) / (mechanism.upper - mechanism.lower) * module.GRID)
        return np.interp(points + 1, first, steps)

    return function


@pytest.mark.thorough
def test_draws_follow_the_exact_law_and_no_other():
    data = np.random.default_rng(0).beta(2, 4, size=25) * 50 - 10
    sample = draws(QuantileMechanism(0.7, -10.0, 40.0, 0.6), data, 5000)
    for factor in (2 / 3, 1.0, 3 / 2):
        law = cumulative(QuantileMechanism(0.7, -10.0, 40.0, 0.6 * factor), data)
        assert (stats.kstest(sample, law).pvalue > 1e-6) == (factor == 1)


@pytest.mark.quick(1)
@pytest.mark.parametrize("relation", RELATIONS)
def test_draws_find_a_tie_as_often_as_the_law_says(relation):
    # 30 records share one point, 4 are spread; the atom has a probability away from 0 and 1.
    data = np.array([0.25] * 30 + [0.1, 0.2, 0.6, 0.9])
    wished = QuantileMechanism(0.5, 0.0, 1.0, 1.4 if relation != "replace_one" else 2.8, relation)
    (law,), size = exact_laws(wished, data)
    p = np.exp(law[size == 1].max())
    assert 0.05 < p < 0.95
    hits = int((draws(wished, data, 2000) == 0.25).sum())
    low, high = stats.binom.ppf([1e-6, 1 - 1e-6], 2000, p)
    assert low <= hits <= high


@pytest.mark.thorough
def test_an_empty_column_gives_a_uniform_answer():
    mechanism = QuantileMechanism(0.2, -3.0, 5.0, 1.0)
    sample = draws(mechanism, [], 3000)
    assert stats.kstest(sample, stats.uniform(-3, 8).cdf).pvalue > 1e-6
    assert stats.kstest(sample, stats.uniform(-3, 6).cdf).pvalue < 1e-6


@bundled("value", [-3.0, 0.0, 1.0, 5.0])
@bundled("q", [0.0, 0.5, 1.0])
def test_a_column_of_equal_values(value, q):
    mechanism = QuantileMechanism(q, -3.0, 5.0, 1.0)
    answer = release(mechanism, [value] * 2000)
    if q == 0.5:
        assert answer == value
    else:  # every point at or beyond the value has its rank
        assert answer <= value if q == 0 else answer >= value


def test_one_value():
    mechanism = QuantileMechanism(0.5, 0.0, 1.0, 1.0)
    (law,), size = exact_laws(mechanism, [0.25])
    assert list(size) == [2**28, 1, 3 * 2**28]
    np.testing.assert_allclose(law - law[1], [-0.5, 0.0, -0.5])


def test_values_beyond_the_range_count_at_its_ends():
    mechanism = QuantileMechanism(0.5, 0.0, 1.0, 1.0)
    (one, two), _ = exact_laws(mechanism, [-9.0, math.inf, -math.inf], [0.0, 1.0, 0.0])
    np.testing.assert_array_equal(one, two)


def test_the_answer_is_useful():
    data = np.random.default_rng(1).normal(50, 10, size=2000)
    for q in (0.25, 0.5, 0.9):
        answers = draws(QuantileMechanism(q, 0.0, 1000.0, 1.0), data, 50)
        ranks = np.searchsorted(np.sort(data), answers) / 2000
        assert np.abs(ranks - q).max() < 0.02  # 40 records; e^-20 times some thousand points


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6), DATA)
def test_answers_are_points_of_the_public_grid(lower, length, data):
    mechanism = QuantileMechanism(0.5, lower, lower + length, 1.0)
    answer = release(mechanism, data)
    assert mechanism.lower <= answer <= mechanism.upper
    unit = QuantileMechanism(0.5, 0.0, 1.0, 1.0)
    assert (release(unit, data) * module.GRID).is_integer()


@pytest.mark.parametrize("relation", RELATIONS)
def test_the_event_says_epsilon_under_its_own_relation(relation):
    event = QuantileMechanism(0.9, 0.0, 1.0, 0.8, relation).event()
    pure = sensitivity_factor(relation) / event.noise_multiplier
    assert pure == pytest.approx(0.8, rel=1e-15)
    if relation != "replace_one":  # which dp-accounting's PLD has no Laplace mechanism for
        accountant = PLDAccountant(neighboring_relation=NeighboringRelation.REPLACE_SPECIAL)
        assert 0.79 < accountant.compose(event).get_epsilon(1e-6) < 0.801


@pytest.mark.skipif(version("dp-accounting") != "0.6.0", reason="pins what 0.6.0 does wrong")
def test_why_the_event_is_not_randomised_response():
    event = RandomizedResponseDpEvent(2 / (1 + math.e), 2)  # pure ε = 1 between two answers

    def spent(relation, count):
        return PLDAccountant(relation).compose(event, count).get_epsilon(1e-6)

    assert spent(NeighboringRelation.REPLACE_SPECIAL, 1) == pytest.approx(0.62, abs=0.005)
    assert spent(NeighboringRelation.REPLACE_ONE, 10) == pytest.approx(1.0, abs=0.005)


def test_neighbours_make_the_same_calls_and_a_replay_runs_no_mechanism():
    mechanism = QuantileMechanism(0.75, 0.0, 1.0, 0.5)
    with release_hook.record() as tape:
        output = mechanism.release([0.1, 0.2, 0.3])
    with release_hook.replay([tape[0].output]) as again:
        replayed = mechanism.release([0.1, 0.2])
    assert tape[0].call == again[0].call
    assert 0 <= tape[0].output <= 2**30
    assert tape[0].call == release_hook.MechanismCall("quantile", 1.5, 3.0, 1.0, (), 0, 1.0)
    assert replayed == output


@bundled("bad", GARBAGE)
@bundled("name", list(PARAMETERS))
def test_garbage_fields_are_refused_by_name(name, bad):
    with pytest.raises(ValueError, match=f"Expected {name}="):
        QuantileMechanism(**{**PARAMETERS, name: bad})


def test_narrow_numpy_numbers_are_numbers():
    narrow = QuantileMechanism(np.float16(0.5), np.int8(0), np.uint8(200), np.float32(1))
    assert narrow == QuantileMechanism(0.5, 0.0, 200.0, 1.0)
    assert 100 <= narrow.release(np.full(2000, 100, dtype=np.uint8)) <= 100.0001


BEYOND = {
    "quantile": [-0.1, 1.1], "lower": [1.0, 2.0, -1e200], "upper": [1e200],
    "epsilon": [0.0, -1.0, 1e-300, 1e10], "neighboring_relation": ["unknown", None],
}  # fmt: skip


@bundled(("name", "bad"), [(name, bad) for name, values in BEYOND.items() for bad in values])
def test_fields_out_of_range_are_refused_by_name(name, bad):
    with pytest.raises(ValueError, match=f"Expected {name}="):
        QuantileMechanism(**{**PARAMETERS, name: bad})


def implemented_law(mechanism, data):
    """Exact probabilities of grid points: those of one attempt, given that it is not refused.

    Attempts follow each other until one is not refused, each with random integers of its own.
    """
    segments, source = mechanism._segments(np.array(data, dtype=float)), Source()
    level = _segments.levels(segments)
    # A fourth number is drawn only where the first, for the level, is drawn again.
    law, _ = source.law(lambda: _segments.attempt(segments, level, source), limit=3)
    law.pop(None, None)
    total = sum(law.values())
    return {point: p / total for point, p in law.items()}


def stated_law(mechanism, data):
    """The law of the Notes in fractions, from their definition of d and doubles for e^-x."""
    share = Fraction(round(mechanism.quantile * 2**30), 2**30)
    weights = {}
    for t in range(module.GRID + 1):
        x = [round(value * module.GRID) for value in data if not math.isnan(value)]
        below, up_to = sum(v < t for v in x), sum(v <= t for v in x)
        d = max(below - share * len(x), share * len(x) - up_to, 0)
        weights[t] = math.exp(-mechanism.epsilon / mechanism.sensitivity * d)
    total = sum(weights.values())
    return {t: weight / total for t, weight in weights.items()}


DOMAIN = [0.0, 0.25, 0.5, 0.75, 1.0]


@pytest.fixture
def tiny_grid(monkeypatch):
    monkeypatch.setattr(module, "GRID", 4)


@pytest.mark.quick(2)
@pytest.mark.parametrize("epsilon", [0.01, 1.0, 8.0])
@pytest.mark.parametrize("relation", ["add_or_remove_one", "replace_one"])
def test_the_implemented_law_is_private_and_the_stated_one(tiny_grid, figure, relation, epsilon):
    """All neighbours with up to 3 records of 5 values; zero_out has the pairs of removal."""
    largest = 0.0
    for q in (0.0, 0.5, 0.7):
        mechanism = QuantileMechanism(q, 0.0, 1.0, epsilon, relation)
        laws = {
            data: implemented_law(mechanism, data)
            for n in range(4)
            for data in combinations_with_replacement(DOMAIN, n)
        }
        for data, law in laws.items():
            stated = stated_law(mechanism, data)
            assert law.keys() == stated.keys()
            assert all(float(p) == pytest.approx(stated[t], rel=1e-10) for t, p in law.items())
        for data in laws:
            for i in range(len(data)):
                rest = data[:i] + data[i + 1 :]
                others = [rest]
                if relation == "replace_one":
                    others = [tuple(sorted((*rest, value))) for value in DOMAIN]
                for other in others:
                    for t in laws[data]:
                        ratio = laws[data][t] / laws[other][t]
                        largest = max(largest, abs(math.log(ratio)))
    figure(f"largest log-ratio of implemented laws, {relation}: {largest / epsilon:.6f} ε")
    assert 0.5 * epsilon < largest <= epsilon


def test_weights_are_within_their_error():
    mechanism = QuantileMechanism(0.7, 0.0, 1.0, 0.37)
    rate = (Fraction(0.37) - 4 * Fraction(module.WEIGHT_ERROR)) / Fraction(mechanism.sensitivity)
    rng = np.random.default_rng(0)
    d = np.concatenate([[0, 1, 2**30], rng.integers(2**40, size=300), rng.integers(2**50, size=9)])
    with localcontext(prec=60) as context:
        for d_i, mantissa, halvings in zip(d.tolist(), *mechanism._weights(d), strict=True):
            x = min(rate * d_i / 2**30, 200)
            exact = (Decimal(-x.numerator) / Decimal(x.denominator)).exp(context)
            weight = Decimal(int(mantissa)) / 2 ** (53 + int(halvings))
            assert abs(weight / exact - 1) < module.WEIGHT_ERROR / 4


def test_beyond_the_largest_exponent_all_weights_are_equal():
    mantissa, halvings = QuantileMechanism(0.5, 0.0, 1.0, 1e9)._weights(np.array([0, 2**31, 2**50]))
    assert mantissa[1] == mantissa[2]
    assert halvings.tolist() == [0, 288, 288]


# --- persons ------------------------------------------------------------------------------------

PERSON = st.one_of(st.lists(NUMBERS, max_size=5), st.just([math.nan, 1.0]), st.just([0.5] * 40))


def of_persons(persons):
    """Values of persons, and where those of each begin."""
    values = np.array([x for person in persons for x in person], dtype=float)
    return values, np.cumsum([0] + [len(person) for person in persons])


def laws_of_persons(mechanism, *data_sets):
    """Log-probabilities of one point, and misses, a row each a data set, and sizes."""
    return laws_of(mechanism, [of_persons(persons) for persons in data_sets])


@pytest.mark.parametrize("relation", RELATIONS)
@given(st.lists(PERSON, max_size=4), PERSON, PERSON, QUANTILES, st.floats(-3, 1.5))
def test_privacy_loss_of_all_rows_of_a_person(relation, others, person, other, q, log_eps):
    mechanism = QuantileMechanism(q, 0.0, 1.0, 10**log_eps, f"{relation}_group")
    second = {"zero_out": [[]], "add_or_remove_one": [], "replace_one": [other]}[relation]
    pair = [[*others[:2], person, *others[2:]], [*others[:2], *second, *others[2:]]]
    laws, d, _ = laws_of_persons(mechanism, *pair)
    assert_private(mechanism, laws, d)


def test_a_person_with_many_rows_counts_as_one():
    mechanism = QuantileMechanism(0.5, 0.0, 1.0, 2.0, "zero_out_group")
    persons = [[0.0], [0.0, 0.0], [0.5], [1.0, 1.0]]
    for k in (1, 3, 40, 1024, 5000):
        laws, d, _ = laws_of_persons(mechanism, [*persons, [0.75] * k], [*persons, [0.75]])
        np.testing.assert_array_equal(laws[0], laws[1])
        laws, d, _ = laws_of_persons(mechanism, [*persons, [1.0] * k], persons)
        assert np.ptp(d[0] - d[1]) == pytest.approx(mechanism.sensitivity, rel=1e-12)


@given(st.lists(st.integers(0, 3000), max_size=8), st.integers(0, 2**32))
def test_weights_of_a_person_add_up_to_one_and_are_nearly_equal(sizes, seed):
    starts = np.cumsum([0, *sizes])
    there = np.random.default_rng(seed).random(starts[-1]) < 0.7
    weights, _ = _segments.integer_weights(there, starts)
    person = np.repeat(np.arange(len(sizes)), sizes)[there]
    for i in range(len(sizes)):
        own = weights[person == i]
        assert own.sum() == (_segments.SHARES if len(own) else 0)
        assert len(own) == 0 or own.max() - own.min() <= 1


def test_persons_with_one_value_each_are_values():
    values = np.array([0.1, 0.9, 0.9, math.nan, 0.4])
    rows = QuantileMechanism(0.3, 0.0, 1.0, 1.0)
    persons = QuantileMechanism(0.3, 0.0, 1.0, 1.0, "zero_out_group")
    for one, other in zip(
        rows._segments(values), persons._segments(values, np.arange(6)), strict=True
    ):
        np.testing.assert_array_equal(one, other)


def test_persons_whom_the_relation_does_not_speak_of_are_refused():
    with pytest.raises(ValueError, match="starts"):
        QuantileMechanism(0.3, 0.0, 1.0, 1.0).release([1.0], starts=np.array([0, 1]))


# --- weights ------------------------------------------------------------------------------------

SHARE = st.one_of(st.sampled_from([0.0, 2.0**-20, 0.5, 1.0]), st.floats(0, 1))
ROW = st.tuples(NUMBERS, SHARE)
ROWS = st.lists(ROW, max_size=5)


def laws_of_weighted(mechanism, *data_sets, persons=False):
    """Log-probabilities of one point, and misses; a data set is of persons with (value, weight)."""
    given = []
    for data in data_sets:
        starts = np.cumsum([0] + [len(person) for person in data])
        values, weights = np.reshape([row for person in data for row in person], (-1, 2)).T
        given.append((values, starts if persons else None, None, weights))
    return laws_of(mechanism, given)


@given(st.lists(st.tuples(st.floats(-1.5, 2.5), SHARE), max_size=8), QUANTILES)
def test_the_law_of_weighted_records_is_the_definition_on_a_small_grid(rows, q):
    mechanism = QuantileMechanism(q, -1.0, 2.0, 1.3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "GRID", 12)
        (law,), _, size = laws_of_weighted(mechanism, [[row] for row in rows])
    points = np.linspace(-1.0, 2.0, 13)
    near = [(min(points, key=lambda t: abs(t - x)), round(w * 2**20) / 2**20) for x, w in rows]
    share, d = round(q * 2**30) / 2**30, []
    for t in points:
        below = sum(w * ((x < t) - share) for x, w in near)
        up_to = sum(w * (share - (x <= t)) for x, w in near)
        d.append(max(below, up_to, 0.0))
    exact = -1.3 / mechanism.sensitivity * np.array(d)
    np.testing.assert_allclose(np.repeat(law, size), exact - logsumexp(exact), atol=1e-9)


@pytest.mark.parametrize("persons", [False, True])
@pytest.mark.parametrize("relation", RELATIONS)
@given(st.lists(ROWS, max_size=4), ROWS, ROWS, QUANTILES, st.floats(-3, 1.5))
def test_privacy_loss_of_weighted_records(persons, relation, rest, own, other, q, log_eps):
    mechanism = QuantileMechanism(q, 0.0, 1.0, 10**log_eps, relation + "_group" * persons)
    if not persons:  # a row each
        rest, own, other = rest[:0] + [[row] for rows in rest for row in rows], own[:1], other[:1]
    second = [other] if relation == "replace_one" else []
    pair = [[*rest[:2], own, *rest[2:]], [*rest[:2], *second, *rest[2:]]]
    laws, d, _ = laws_of_weighted(mechanism, *pair, persons=persons)
    assert_private(mechanism, laws, d)


@pytest.mark.parametrize(("q", "relation", "one", "two"), TIGHT)
def test_a_weight_is_a_share_of_the_sensitivity(q, relation, one, two):
    """One record of weight w among others of weight 1; that of weight 1 attains it."""
    mechanism = QuantileMechanism(q, 0.0, 1.0, 2.0, relation)
    (changed,) = [i for i, x in enumerate(one) if i >= len(two) or x != two[i]]
    for w in (0.25, 1.0):
        pair = [[[(x, w if i == changed else 1.0)] for i, x in enumerate(r)] for r in (one, two)]
        _, d, _ = laws_of_weighted(mechanism, *pair)
        moved = np.ptp(d[0] - d[1])
        assert moved == pytest.approx(mechanism.sensitivity, rel=1e-12) if w == 1 else moved < 0.8


@given(st.lists(NUMBERS, max_size=9), QUANTILES)
def test_weights_of_one_are_none(values, q):
    mechanism, values = QuantileMechanism(q, 0.0, 1.0, 1.0), np.array(values, dtype=float)
    given = (None, np.ones(len(values)))
    one, other = (mechanism._segments(values, None, None, weights) for weights in given)
    assert all(map(np.array_equal, one, other))


@pytest.mark.parametrize("most", [2**20, 2**43])
def test_misses_of_large_weights_are_rounded_twice_at_most(most, monkeypatch):
    """As large as those of 2²⁶ rows together, or 2³⁵ persons, which 64 bits hold in two parts."""
    rng, found = np.random.default_rng(0), []
    values, weights = rng.integers(0, 40, 12) / 64, rng.random(12)
    monkeypatch.setattr(_segments, "STEPS", most)
    monkeypatch.setattr(QuantileMechanism, "_weights", lambda self, d, unit: (found.append(d), d))
    mechanism = QuantileMechanism(0.3, 0.0, 1.0, 1.0)
    first = mechanism._segments(values, None, None, weights).first.tolist()
    q, v = round(0.3 * 2**30), [round(w * most) for w in weights]
    rows = list(zip((values * 2**30).astype(int).tolist(), v, strict=True))
    for t, d in zip(first, found[0].tolist(), strict=True):
        below = sum(w for x, w in rows if x < t) * 2**30 - q * sum(v)
        up_to = q * sum(v) - sum(w for x, w in rows if x <= t) * 2**30
        exact = max(below, up_to, 0)
        assert abs(Fraction(d) - exact) <= Fraction(exact, 2**52)


def test_a_person_has_the_mean_of_the_weights_of_its_values():
    there = np.array([True, True, False, True, True])
    each, most = _segments.integer_weights(
        there, np.array([0, 3, 3, 5]), np.array([1, 0.5, 1, 1, 1])
    )
    assert most == 2**20
    assert each.tolist() == [2**19, 2**18, 2**19, 2**19]


def test_weights_beyond_one_are_cut_and_others_refused():
    mechanism = QuantileMechanism(0.5, 0.0, 1.0, 1e3)
    values = np.array([0.25] * 3 + [0.75] * 2)

    def released(weights):
        return mechanism.release(values, Streams(b"quantile")("noise"), weights=weights)

    assert released([1, 1, 1, 9.0, np.inf]) == released(np.ones(5)) == pytest.approx(0.25)
    assert released([np.nan, -3.0, 0.5, 1.0, 1.0]) == pytest.approx(0.75)
    for wrong in (np.ones(4), np.ones((5, 1)), ["1"] * 5, [True] * 5):
        with pytest.raises(ValueError, match=r"Expected (weights|values)"):
            released(wrong)


# --- cells --------------------------------------------------------------------------------------

CELLS = [Cell(1 / 3, 0.0, 0.5), Cell(0.5, 0.5, 0.5), Cell(0.5, 0.5, 1.0)]


def laws_of_cells(monkeypatch, epsilon, relation, persons):
    """Segments of each cell that has a length, and its mechanism, of which `split` draws."""
    found = []

    def drawn(self, values, starts, random, inside):
        found.append((self, self._segments(values, starts, inside)))
        return 0.0

    values, starts = of_persons(persons)
    with monkeypatch.context() as patch:
        patch.setattr(QuantileMechanism, "_draw", drawn)
        given = {"starts": starts} if relation.endswith("group") else {}
        settings = {"epsilon": epsilon, "neighboring_relation": relation}
        split(CELLS, values, Streams()("noise"), **settings, **given)
    return found


def losses_of_cells(monkeypatch, epsilon, relation, *pair):
    """Least and largest change of the log-probability of an answer, a row for each cell."""
    ends = []
    laws = [laws_of_cells(monkeypatch, epsilon, relation, persons) for persons in pair]
    for (_, one), (_, two) in zip(*laws, strict=True):
        first = np.unique(np.concatenate([one.first, two.first]))
        size = np.diff(first, append=module.GRID + 1)
        here = [log_weight(s)[np.searchsorted(s.first, first, "right") - 1] for s in (one, two)]
        loss = np.subtract(*[h - logsumexp(h, b=size) for h in here])
        ends.append((loss.min(), loss.max()))
    return np.array(ends)


@pytest.mark.quick(2)
@pytest.mark.parametrize("unit", ["", "_group"])
@pytest.mark.parametrize("relation", RELATIONS)
@given(st.lists(PERSON, max_size=4), PERSON, PERSON, st.floats(-3, 1.5))
def test_privacy_loss_of_all_cells_together(unit, relation, others, person, other, log_eps):
    if not unit:  # a row each
        others, person, other = [[*o, 0.5][:1] for o in others], [*person, 0.5][:1], [0.75]
    second = {"zero_out": [[math.nan]], "add_or_remove_one": [], "replace_one": [other]}[relation]
    pair = [[*others[:2], person, *others[2:]], [*others[:2], *second, *others[2:]]]
    epsilon = 10**log_eps
    with pytest.MonkeyPatch.context() as patch:
        ends = losses_of_cells(patch, epsilon, relation + unit, *pair)
    # Answers of cells are independent: the loss of all is the sum.
    assert (ends[:, 1] - ends[:, 0]).sum() <= epsilon + 1e-9
    assert np.abs(ends.sum(axis=0)).max() <= epsilon + 1e-9


@pytest.mark.parametrize(("relation", "second"), [("zero_out", math.nan), ("replace_one", 0.9)])
def test_a_record_that_moves_as_far_as_it_may_costs_nearly_all_of_epsilon(
    relation, second, monkeypatch
):
    others = [[0.1], [0.2], [0.2], [0.3], [0.6], [0.7], [0.8], [0.95]]
    pair = [[*others, [0.01]], [*others, [second]]]
    ends = losses_of_cells(monkeypatch, 0.5, relation, *pair)
    assert 0.8 * 0.5 < (ends[:, 1] - ends[:, 0]).sum() <= 0.5


def test_each_value_is_in_one_cell(monkeypatch):
    persons = [[x] for x in (0.0, 0.1, 0.5, 0.5, 0.6, 1.0, math.nan)]
    found = laws_of_cells(monkeypatch, 1e9, "zero_out", persons)
    assert [mechanism.lower for mechanism, _ in found] == [0.0, 0.5]
    # Without noise to speak of, the point with the rank that was asked for: 4 values and 2.
    told = {"epsilon": 1e9, "neighboring_relation": "zero_out"}
    answers = split(CELLS, of_persons(persons)[0], Streams()("noise"), **told)
    assert answers[0] == pytest.approx(0.1, abs=1e-8)
    assert answers[1] == 0.5
    assert 0.6 - 1e-8 <= answers[2] <= 1.0
