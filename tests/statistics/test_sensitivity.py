"""No neighbour moves what is noised by more than its mechanism allows: all of them, on a grid."""

from contextlib import contextmanager
from functools import partial
from itertools import product
from typing import NamedTuple
from unittest import mock

import numpy as np
import pytest

from skdp import Persons
from skdp.mechanisms import GaussianMechanism, GeometricMechanism
from skdp.relations import Relation
from skdp.statistics import dp_count, dp_covariance, dp_histogram, dp_mean, dp_sum, dp_var
from skdp.statistics.moments import Share
from skdp.statistics.variances import VarConfig

NULL, BOUNDS = np.nan, {"lower": -1.0, "upper": 3.0}
GRID = (-1.0, 0.3, 1.0, 3.0)
PRIVATE = ("add_or_remove_one", "zero_out", "replace_one")  # with missing values: n is private
STATISTICS = {
    "count": dp_count,
    "histogram": partial(dp_histogram, bins=[-1, 0, 2, 3]),
    "sum": partial(dp_sum, **BOUNDS),
    "mean": partial(dp_mean, **BOUNDS),
    "variance": partial(dp_var, **BOUNDS),
    "covariance": lambda x, **kw: dp_covariance(x if x.ndim == 2 else x[:, None], **BOUNDS, **kw),
}
DIVIDES = ("sum", "mean", "variance", "covariance")


class Capture(NamedTuple):
    """A release: the exact values, and the mechanism that would have noised them."""

    exact: np.ndarray
    mechanism: object


@contextmanager
def captured(*outputs):
    """Collect exact values; return given outputs first, then the exact values."""
    seen, left = [], list(outputs)

    def release(self, values, stream=None, *, charged=False):
        assert charged
        exact = np.asarray(values)
        seen.append(Capture(exact, self))
        return left.pop(0) if left else exact

    with (
        mock.patch.object(GeometricMechanism, "release", release),
        mock.patch.object(GaussianMechanism, "release", release),
    ):
        yield seen


def released(statistic, rows, first=(), **kw):
    """The releases on rows, the first of them held at given values."""
    if statistic in DIVIDES and "groups" not in kw:
        kw.setdefault("missing", True)
    with captured(*first) as seen:
        STATISTICS[statistic](np.array(rows), epsilon=1.0, **kw)
    return seen


def l1(one, other):
    return int(np.abs(one.exact.astype(object) - other.exact.astype(object)).sum())


def pairs(relation, d, n=3):
    """All data sets of n rows on the grid, with those that differ in the first row."""
    values = list(product(GRID, repeat=d))
    null = (NULL,) * d
    rng = np.random.default_rng(d)
    rests = [[values[i] for i in rng.integers(len(values), size=n - 1)] for _ in range(2)]
    rests += [[values[0]] * (n - 1), [values[-1]] * (n - 1)]
    others = [null] if relation != "replace_one" else [*values, null]
    if d > 1:
        values = [values[i] for i in rng.choice(len(values), 4, replace=False)]
        values += [(-1.0,) * d, (3.0,) * d, (-1.0,) + (3.0,) * (d - 1), (NULL,) + (3.0,) * (d - 1)]
        others = [null] if relation != "replace_one" else [*values, null]
    for rest, value, other in product(rests, values, others):
        if relation == "add_or_remove_one":
            yield [value, *rest], rest
        else:
            yield [value, *rest], [other, *rest]


@pytest.mark.quick(1)
@pytest.mark.parametrize("d", [1, 2])
@pytest.mark.parametrize("relation", PRIVATE)
@pytest.mark.parametrize("statistic", STATISTICS)
def test_no_neighbour_moves_a_release_further_and_one_moves_it_as_far(statistic, relation, d):
    farthest = {}
    for rows, neighbour in pairs(relation, d):
        ours = released(statistic, rows, neighboring_relation=relation)
        first = [] if len(ours) == 1 else [ours[0].exact]
        theirs = released(statistic, neighbour, first, neighboring_relation=relation)
        assert len(ours) == len(theirs)
        for k, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            assert a.mechanism == b.mechanism
            assert type(a.mechanism) is GeometricMechanism
            assert l1(a, b) <= a.mechanism.sensitivity
            farthest[k] = max(farthest.get(k, 0.0), l1(a, b) / a.mechanism.sensitivity)
    # By the means first, whose release is held, values are off their places; not so by others.
    exact = statistic in ("count", "histogram", "sum", "mean") or relation != "replace_one"
    assert farthest[0] > 0.999
    assert farthest[max(farthest)] > (0.999 if exact and statistic != "covariance" else 0.3)


@pytest.mark.quick(2)
@pytest.mark.parametrize("statistic", ["sum", "mean", "variance", "covariance"])
@pytest.mark.parametrize("d", [1, 2])
def test_with_public_n_a_replaced_row_moves_no_more(statistic, d):
    farthest = 0.0
    for rows, neighbour in pairs("replace_one", d):
        if np.isnan(rows).any() or np.isnan(neighbour).any():
            continue
        kw = {"neighboring_relation": "replace_one", "missing": False}
        ours = released(statistic, rows, **kw)
        first = [] if len(ours) == 1 else [ours[0].exact]
        theirs = released(statistic, neighbour, first, **kw)
        for a, b in zip(ours, theirs, strict=True):
            assert l1(a, b) <= a.mechanism.sensitivity
        farthest = max(farthest, l1(ours[-1], theirs[-1]) / ours[-1].mechanism.sensitivity)
    assert farthest > (0.999 if statistic in ("sum", "mean") else 0.6)


@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("statistic", ["sum", "mean", "covariance"])
def test_with_public_n_a_null_record_is_one_from_which_all_are_half_as_far(statistic, d):
    """What a row adds to the release beyond a public constant is bounded; a null record adds 0."""
    farthest = 0.0
    rest = [(0.3,) * d] * 2

    def last(rows):
        # With another n the means would be others; they are held at the middle.
        held = [[2**30 * len(rows)] * d] if statistic == "covariance" else []
        return released(statistic, rows, held, missing=False)[-1]

    for value in product(GRID, repeat=d):
        a, b = last([value, *rest]), last(rest)
        if statistic == "covariance":
            half = round((a.mechanism.sensitivity * 2 / d**2) ** 0.5)
            constant = np.where(np.equal(*np.triu_indices(d)), half * half / 2, 0)
        else:
            constant = np.full(d, a.mechanism.sensitivity // d)
        added = np.abs(a.exact - b.exact - constant).sum()
        assert added <= a.mechanism.sensitivity
        farthest = max(farthest, added / a.mechanism.sensitivity)
    assert farthest > (0.4 if statistic == "covariance" else 0.999)


@pytest.mark.parametrize("place", [0.0, 0.3, 0.5, 1.0])
def test_a_variance_about_any_place_moves_by_half_a_square_around_its_constant(place):
    """With public n, zeroing a row out moves F/r² less n/2 by at most one half."""
    rng, farthest = np.random.default_rng(0), 0.0
    for _ in range(100):
        rows, found = rng.choice([-1.0, 3.0, *GRID], (4, 1)), []
        for x in (rows, rows[1:]):
            config = VarConfig(
                lower=(-1.0,), upper=(3.0,), epsilon=1.0, delta=0.0, n=len(x), level=0.9,
                neighboring_relation=Relation.ZERO_OUT, most_rows=1, of_population=False,
            )  # fmt: skip
            G = config.grid
            means = [Share(round(4 * place * G), round(4 * (1 - place) * G), G / 8, 4, G)]
            with captured() as seen:
                config.variances(config.sums_of(x, np.ones((1, 1), int)), means, 1.0, 0.1, None)
            found.append(int(seen[0].exact[0]))
        constant = seen[0].mechanism.sensitivity
        assert constant == G // 2
        assert abs(found[0] - found[1] - constant) <= constant
        farthest = max(farthest, abs(found[0] - found[1] - constant) / constant)
    assert farthest > 0.9


@pytest.mark.quick(3)
@pytest.mark.parametrize("relation", ["zero_out", "add_or_remove_one", "replace_one"])
@pytest.mark.parametrize("statistic", ["count", "sum", "mean", "variance"])
def test_a_person_moves_a_release_by_at_most_k_rows(statistic, relation):
    farthest, k = 0.0, 2
    rest, kw = [(0.3,), (3.0,)], {"unit": Persons(max_rows=k)}
    kw["neighboring_relation"] = relation
    rows = [list(x) for size in (0, 1, 2) for x in product([(-1.0,), (1.0,), (3.0,)], repeat=size)]
    others = [[]] if relation != "replace_one" else rows
    for own, other in product(rows, others):
        ours = released(statistic, own + rest, groups=[0] * len(own) + [1, 2], **kw)
        first = [] if len(ours) == 1 else [ours[0].exact]
        theirs = released(statistic, other + rest, first, groups=[0] * len(other) + [1, 2], **kw)
        for a, b in zip(ours, theirs, strict=True):
            assert l1(a, b) <= a.mechanism.sensitivity
        farthest = max(farthest, l1(ours[0], theirs[0]) / ours[0].mechanism.sensitivity)
    assert farthest > 0.999


def test_rows_of_a_person_beyond_k_do_not_count():
    with captured() as seen:
        dp_count(np.ones(10), epsilon=1.0, unit=Persons(max_rows=3), groups=[0] * 9 + [1])
    assert seen[0].exact == 4


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("delta", [0.0, 1e-5])
@pytest.mark.parametrize("relation", ["zero_out", "replace_one"])
def test_noise_of_a_covariance_covers_the_distance_in_its_norm(relation, delta, weighted):
    d, rng = 12, np.random.default_rng(0)
    for _ in range(30):
        rows, other = rng.choice([-1.0, 1.0, 3.0], (3, d)), rng.choice([-1.0, 1.0, 3.0], d)
        kw = {"delta": delta, "neighboring_relation": relation, "missing": False}
        ours_too, theirs_too = {}, {}
        if weighted:
            kw["max_sample_weight"], w = W, rng.choice([0.0, 0.7, W], 4)
            ours_too, theirs_too = {"sample_weight": w[:3]}, {"sample_weight": w[[3, 1, 2]]}
        ours = released("covariance", rows, **kw, **ours_too)
        theirs = released("covariance", [other, *rows[1:]], [ours[0].exact], **kw, **theirs_too)
        mechanism = ours[-1].mechanism
        assert type(mechanism).__name__ == ("GaussianMechanism" if delta else "GeometricMechanism")
        moved = np.linalg.norm((ours[-1].exact - theirs[-1].exact).astype(float), 2 if delta else 1)
        one = mechanism.sensitivity / (1 if relation == "zero_out" else 2)
        assert moved <= 2 * one


# --- weights ------------------------------------------------------------------------------------

W = 2.5
WEIGHTED = [*product(GRID, (0.0, 0.7, W)), (NULL, W)]


@pytest.mark.quick(3)
@pytest.mark.parametrize("relation", PRIVATE)
@pytest.mark.parametrize("k", [None, 2])
@pytest.mark.parametrize("statistic", sorted(STATISTICS))
def test_a_row_of_any_weight_moves_a_release_as_far_as_one_of_the_largest(statistic, k, relation):
    """Neighbours differ in a row with its weight, or in a person with up to two."""
    rest, farthest = [(0.3, 1.0), (3.0, W), (1.0, 0.1)], {}
    own = [[row] for row in WEIGHTED]
    if k:
        ends = [(-1.0, W), (3.0, W), (1.0, 0.7)]
        own = [[], [ends[0]], *([a, b] for a, b in product(ends, repeat=2))]
    others = own if relation == "replace_one" else [[] if k or "add" in relation else [(NULL, W)]]

    def on(rows, first=()):
        how = {"neighboring_relation": relation, "missing": False, "max_sample_weight": W}
        if statistic in ("count", "histogram"):
            del how["missing"]
        if k:
            groups = [0] * (len(rows) - len(rest)) + [1, 2, 3]
            how |= {"unit": Persons(max_rows=k), "groups": groups}
        values, weights = np.reshape(rows, (-1, 2)).T
        return released(statistic, values, first, sample_weight=weights, **how)

    for one, other in product(own, others):
        ours = on(one + rest)
        first = [] if len(ours) == 1 else [ours[0].exact]
        for i, (a, b) in enumerate(zip(ours, on(other + rest, first), strict=True)):
            assert a.mechanism == b.mechanism
            assert l1(a, b) <= a.mechanism.sensitivity
            farthest[i] = max(farthest.get(i, 0.0), l1(a, b) / a.mechanism.sensitivity)
    assert farthest[0] > 0.999


@pytest.mark.parametrize("d", [1, 3])
def test_what_is_released_of_weighted_rows_is_their_definition(d):
    """Σ wt, Σ w(G - t) and Σ w(t - m)²/r² over W, to within the rounding of each row."""
    rng = np.random.default_rng(d)
    x, w = rng.uniform(-2.0, 4.0, (40, d)), rng.choice([0.0, 0.01, 1.0, W], 40)
    x[3, 0] = NULL
    share, v = (np.clip(x, -1.0, 3.0) + 1.0) / 4.0, (w / W)[:, None]
    with captured() as seen:
        dp_var(x, **BOUNDS, epsilon=1.0, sample_weight=w, max_sample_weight=W)
    G, (up, down) = 2**22, seen[0].exact
    np.testing.assert_allclose(up / G, np.nansum(v * share, axis=0), atol=40 / G)
    np.testing.assert_allclose((up + down) / G, np.nansum(v + 0 * share, axis=0), atol=40 / G)
    # About the middle of a place that the released means tell, within their noise.
    up, down = seen[1].exact / G
    about = [np.nansum(v * (share - m) ** 2, axis=0) for m in np.linspace(0, 1, 1001)]
    radius = np.sqrt(np.min(about, axis=0) / up)
    assert ((radius > 0.49) & (radius <= 1.0 + 1e-5)).all()
    np.testing.assert_allclose(up + down, np.nansum(v + 0 * share, axis=0), atol=40 / G)


@pytest.mark.parametrize("statistic", sorted(STATISTICS))
def test_weights_of_one_change_no_more_than_the_grid(statistic):
    """What is released, in units of its noise, and that of the noise."""
    x = np.append(np.random.default_rng(0).uniform(-2.0, 4.0, 40), NULL)
    both = (released(statistic, x, sample_weight=w) for w in (None, np.ones(41)))
    for one, other in zip(*both, strict=True):
        exact, same = (seen.exact / float(seen.mechanism.scale) for seen in (one, other))
        np.testing.assert_allclose(exact, same, rtol=0, atol=1e-4)
    assert one.mechanism.epsilon == other.mechanism.epsilon


def test_weights_go_with_their_rows_where_persons_are_brought_together():
    x, w, groups = np.array([3.0, 1.0, -1.0, 2.0]), [0.5, 1.0, 2.5, 0.0], ["b", "a", "b", "a"]
    how = {"unit": Persons(max_rows=2), "groups": groups, "max_sample_weight": W}
    with captured() as seen:
        dp_histogram(x, [-1, 0, 2, 3], epsilon=1.0, sample_weight=w, **how)
    np.testing.assert_allclose(seen[0].exact.ravel() * W / 2**22, [2.5, 1.0, 0.5], atol=1e-5)
