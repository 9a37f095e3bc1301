"""Sums over persons of networks and of users' models: against a loop over persons, and the bound.

The loop takes each row's gradient by a backward pass of its own, clips it, adds up a person's, and
clips that.
"""

import contextlib
import copy
import functools
import itertools
import math
from unittest import mock

import numpy as np
import pytest
import torch
from engine.networks import (
    METHODS,
    TOLERANCE,
    image_network,
    perceptron,
    random_records,
    residual_network,
    seeded,
    sequence_network,
    squared_error,
    transformer,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from reference.per_sample_gradients import clipped, per_sample_gradients
from torch import nn

from skdp.algorithms.user_model import sums
from skdp.algorithms.user_model.sums import (
    GRADIENT,
    OUTER,
    SQUARES,
    LengthCounts,
    ModelClippedSum,
    SquaredLengths,
)
from skdp.engine.linear_sums import packed
from skdp.engine.modules.flat_module import FlatModule
from skdp.engine.modules.gradients import Gradients
from skdp.engine.modules.layers import squares_of_sums
from skdp.engine.modules.network_records import NetworkRecords
from skdp.engine.modules.network_sum import NetworkClippedSum, NetworkPersonSum, PersonClip
from skdp.models.user_models import UserModel
from skdp.rows.persons import PersonUnit

SIZES = [1, 3, 1, 4, 9, 2, 40, 5]
STARTS = np.concatenate([[0], np.cumsum(SIZES)])
UNIT = PersonUnit(n_groups=8, rows_per_group=4.0, clip=2.0)


class LooksUp(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.head = nn.Embedding(5, 6, padding_idx=0), nn.Linear(6, 3)

    def forward(self, x):
        return self.head(torch.tanh(self.words(x.abs().mul(2).long().clamp(max=4)).sum(1)))


def wide():
    """Persons of up to 40 rows have gradients that are cheaper than their norms, and others not."""
    return nn.Sequential(nn.Linear(6, 90), nn.Tanh(), nn.Linear(90, 3, bias=False))


def image():
    return image_network(lambda: nn.MaxPool2d(2))


class LooksUpBags(LooksUp):
    def __init__(self, mode):
        super().__init__()
        self.words = nn.EmbeddingBag(5, 6, mode=mode, padding_idx=0)

    def forward(self, x):
        return self.head(torch.tanh(self.words(x.abs().mul(2).long().clamp(max=4))))


def volume():
    return nn.Sequential(
        nn.Unflatten(1, (2, 3, 3, 4)),
        nn.Conv3d(2, 4, 2, padding=1),
        nn.InstanceNorm3d(4, affine=True),
        nn.Tanh(),
        nn.Flatten(),
        nn.RMSNorm(320),
        nn.Linear(320, 3),
    )


NETWORKS = [
    (perceptron, 6), (wide, 6), (residual_network, 6), (transformer, 24), (sequence_network, 24),
    (image, 72), (volume, 72), (LooksUp, 4),
    *((functools.partial(LooksUpBags, mode), 4) for mode in ("sum", "mean", "max")),
]  # fmt: skip


def loop_over_persons(rows, bound, starts=STARTS):
    total = 0.0
    for first, last in itertools.pairwise(starts):
        person = rows[first:last].sum(axis=0)
        total = total + person / max(1.0, np.linalg.norm(person) / bound)
    return total


def person_sum(flat, x, y, starts, clip_norm=0.5, theta=None, unit=UNIT, **options):
    inner = NetworkClippedSum(flat, squared_error, clip_norm, **options)
    batch = NetworkRecords(np.asarray(x), np.asarray(y), flat.flat, starts).take(slice(None))
    return inner.of_persons(unit)(flat.flat.clone() if theta is None else theta, batch)


@pytest.mark.quick(2)
@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize(("make", "width"), NETWORKS)
def test_the_sum_over_persons_equals_a_loop(make, width, double):
    module = seeded(make).double() if double else seeded(make)
    flat = FlatModule(module)
    dtype, tolerance = flat.flat.dtype, TOLERANCE[flat.flat.dtype]
    x, y = (torch.from_numpy(t).to(dtype) for t in random_records(0, STARTS[-1], (width,)))
    gradients = per_sample_gradients(copy.deepcopy(module), squared_error, x, y)
    methods = METHODS if width != 4 else [m for m in METHODS if m != "vmap"]  # looks things up
    for method, clipping in itertools.product(methods, ("flat", "automatic")):
        rows = clipped(gradients, 0.5, clipping)
        expected = -loop_over_persons(rows, 2.0 * 0.5)
        scale = np.linalg.norm(rows, axis=1).sum()
        for at_once in (None, 7, 1):
            # Persons with few rows are summed together.
            apart = mock.patch.object(NetworkPersonSum, "_whole", side_effect=AssertionError)
            with apart if at_once is None else contextlib.nullcontext():
                found = person_sum(
                    flat, x, y, STARTS,
                    method=method, clipping=clipping, physical_batch_size=at_once,
                )  # fmt: skip
            assert found.dtype == dtype
            assert np.linalg.norm(found.numpy() - expected) <= tolerance * scale
        # Persons were clipped, and not all of them.
        lengths = [np.linalg.norm(person.sum(0)) for person in np.split(rows, STARTS[1:-1])]
        assert min(lengths) < 1.0 < max(lengths)


def test_a_batch_of_some_persons_has_all_of_their_rows():
    flat = FlatModule(seeded(perceptron).double())
    x, y = random_records(0, STARTS[-1], (6,))
    inner = NetworkClippedSum(flat, squared_error, 0.5).of_persons(UNIT)
    records = NetworkRecords(x, y, flat.flat, STARTS)
    assert len(records) == len(SIZES)
    some, theta = np.array([6, 1, 3]), flat.flat.clone()
    found = inner(theta, records.take(some))
    alone = sum(inner(theta, records.take(np.array([person]))) for person in some)
    torch.testing.assert_close(found, alone, rtol=1e-12, atol=1e-14)
    assert not inner(theta, records.take(np.empty(0, dtype=np.int64))).any()


@pytest.mark.parametrize("method", METHODS)
def test_persons_of_one_row_have_the_bits_of_rows(method):
    flat = FlatModule(seeded(perceptron))
    x, y = random_records(0, 3000, (6,))
    inner = NetworkClippedSum(flat, squared_error, 0.5, method=method)
    theta, starts = flat.flat.clone(), np.arange(3001)
    of_rows = inner(theta, NetworkRecords(x, y, flat.flat).take(slice(None)))
    unit = PersonUnit(3000, 1.0, 1.0)
    of_persons = person_sum(flat, x, y, starts, unit=unit, method=method)
    assert torch.equal(of_rows, of_persons)


def test_without_a_clip_the_sum_is_that_of_rows():
    flat = FlatModule(seeded(perceptron).double())
    x, y = random_records(0, STARTS[-1], (6,))
    of_rows = NetworkClippedSum(flat, squared_error, math.inf)(
        flat.flat.clone(), NetworkRecords(x, y, flat.flat).take(slice(None))
    )
    for at_once in (None, 7):
        found = person_sum(flat, x, y, STARTS, math.inf, physical_batch_size=at_once)
        torch.testing.assert_close(found, of_rows, rtol=1e-12, atol=1e-14)


EXTREMES = [0.0, 1.0, -1.0, 1e-40, 1e4, -1e10, 1e18, 1e30, 3e38, 1e300, np.inf, np.nan]


@pytest.mark.quick(4)
@pytest.mark.parametrize("at_once", [None, 7])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("make", "width"), [(perceptron, 6), (transformer, 24)])
@settings(max_examples=12)
@given(
    st.lists(st.sampled_from(EXTREMES), min_size=24, max_size=24),
    st.integers(1, 30),
    st.sampled_from([-1.0, 1e3, 1e30, np.nan]),
    st.sampled_from([1e-3, 1.0, 50.0]),
    st.sampled_from([1.0, 1e3]),
)
def test_one_person_moves_the_sum_by_no_more_than_the_sensitivity(
    make, width, method, at_once, values, size, target, clip_norm, factor
):
    flat = FlatModule(seeded(make))
    theta = factor * flat.flat
    x, y = random_records(0, 12, (width,))
    starts = np.array([0, 2, 5, 12])
    options = {"method": method, "physical_batch_size": at_once, "theta": theta}
    absent = person_sum(flat, x, y, starts, clip_norm, **options)
    rows = np.tile(values[:width], (size, 1)) * np.linspace(0.1, 1, size)[:, None]
    with_person = np.vstack([x[:5], rows, x[5:]])
    targets = np.concatenate([y[:5], np.full(size, target), y[5:]])
    more = np.array([0, 2, 5, 5 + size, 12 + size])
    present = person_sum(flat, with_person, targets, more, clip_norm, **options)
    inner = NetworkClippedSum(flat, squared_error, clip_norm)
    bound = inner.of_persons(UNIT).sensitivity("add_or_remove_one_group")
    assert bound == pytest.approx(UNIT.clip * clip_norm, rel=2e-4)
    assert torch.isfinite(present).all()
    assert (present - absent).norm() <= bound


@pytest.mark.slow
@pytest.mark.parametrize(("method", "n_persons"), [("book-keeping", 100_000), ("vmap", 10_000)])
def test_none_of_very_many_persons_does(method, n_persons):
    flat, rng = FlatModule(seeded(perceptron)), np.random.default_rng(0)
    bound = NetworkClippedSum(flat, squared_error, 0.5).of_persons(UNIT)
    bound = bound.sensitivity("add_or_remove_one_group")
    largest = 0.0
    for _ in range(n_persons):
        k = int(rng.integers(1, 9))
        rows = rng.standard_normal((k, 6)) * 10.0 ** rng.uniform(-6, 30, (k, 1))
        if rng.random() < 0.5:  # alike, or nearly opposite
            rows = rows[:1] * rng.choice([1.0, -1.0, 1.0 + 1e-6], (k, 1))
        y = rng.choice([-1e30, -1.0, 0.0, 1e3, np.nan], k)
        found = person_sum(flat, rows, y, np.array([0, k]), method=method)
        largest = max(largest, float(found.norm()))
    assert 0.99 * bound < largest <= bound


@pytest.mark.parametrize("n", [40, 1000, 3000])
@pytest.mark.parametrize("method", METHODS)
def test_rows_that_nearly_cancel_are_bounded(n, method):
    """The first half of a person's rows pulls one way, the second half the other way."""
    flat = FlatModule(seeded(wide))
    rng = np.random.default_rng(0)
    x = np.repeat(100 * rng.standard_normal((2, 6)), n // 2, axis=0)
    x[n // 2 :] = x[: n // 2] * (1 + 1e-4 * rng.standard_normal((n // 2, 1)))
    y = np.repeat([-1e3, 1e3], n // 2)
    found = person_sum(flat, x, y, np.array([0, n]), method=method)
    assert float(found.norm()) <= 2.0 * 0.5 * (1 + 1e-4)


def test_a_sum_that_rounding_could_make_longer_is_scaled_by_more():
    """A thousand rows on the bound that cancel: the sum counts as 1e-3 √1000 times 1000 long."""
    norms = torch.ones(1000)
    found = Gradients(norms, mock.Mock(), (), lambda c, rows: torch.zeros(len(rows)).double())
    factors = PersonClip(np.array([0, 1000]), 2.0).factors(found, norms)
    torch.testing.assert_close(factors, torch.full((1000,), 2.0 / 1000**0.5))


@pytest.mark.parametrize("rows", [2, 5, 16])
def test_norms_of_sums_are_exact_where_rows_nearly_cancel(rows):
    generator = torch.Generator().manual_seed(0)
    a = torch.randn((rows, 200), generator=generator).repeat(3, 1)
    b = torch.randn((3 * rows, 300), generator=generator)
    a[:rows], b[:rows] = a[0], b[0] * torch.linspace(-1, 1, rows)[:, None]
    found = squares_of_sums(nn.Linear(200, 300), ["weight", "bias"], a, b, rows)
    wide_a, wide_b = a.double().reshape(3, rows, 200), b.double().reshape(3, rows, 300)
    with_ones = torch.cat([wide_a, torch.ones(3, rows, 1).double()], dim=2)
    expected = (wide_b.mT @ with_ones).square().sum((1, 2))
    terms = (wide_b.norm(dim=2) * with_ones.norm(dim=2)).sum(1)
    assert ((found - expected).abs() <= 1e-13 * terms.square()).all()


def test_a_person_who_owns_half_of_the_rows_reaches_the_bound_and_no_more():
    flat = FlatModule(seeded(perceptron))
    x, y = random_records(0, 5000, (6,))
    x[2500:], y[2500:] = x[2500], 1e3
    starts = np.append(np.arange(2501), 5000)
    rest = person_sum(flat, x[:2500], y[:2500], starts[:-1])
    found = person_sum(flat, x, y, starts)
    assert float((found - rest).norm()) == pytest.approx(2.0 * 0.5, rel=1e-3)


class FailsAtOne(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 3)

    def forward(self, x):
        if (x[:, 0] == 77.0).any():
            raise RuntimeError("a value")
        return self.linear(x)


@pytest.mark.parametrize("value", [77.0, np.nan])
@pytest.mark.parametrize("at_once", [None, 4])
def test_a_row_that_fails_is_missing_from_its_person_alone(value, at_once):
    flat = FlatModule(seeded(FailsAtOne).double())
    x, y = random_records(0, STARTS[-1], (6,))
    bad = 12  # of the person with 9 rows
    x[bad, 0] = value
    whole = mock.patch.object(
        NetworkPersonSum, "_whole", autospec=True, side_effect=NetworkPersonSum._whole
    )
    with whole as by_itself:
        found = person_sum(flat, x, y, STARTS, physical_batch_size=at_once)
    # A row that is not finite is no reason to sum each person by itself; one that fails is.
    assert by_itself.called == (value == 77.0 or at_once is not None)
    without = STARTS - (bad < STARTS)
    expected = person_sum(flat, np.delete(x, bad, 0), np.delete(y, bad), without)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-14)


def test_memory_that_runs_out_changes_no_sum():
    flat = FlatModule(seeded(perceptron).double())
    x, y = random_records(0, STARTS[-1], (6,))
    expected = person_sum(flat, x, y, STARTS)
    losses = FlatModule.losses

    def small(self, loss, x, y, parameters=None):
        if len(x) > 8:
            raise torch.OutOfMemoryError
        return losses(self, loss, x, y, parameters)

    with mock.patch.object(FlatModule, "losses", small):
        found = person_sum(flat, x, y, STARTS)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-14)


# --- users' models ------------------------------------------------------------------------------


def log_likelihood(theta, x, y):
    return -0.5 * (y - x @ theta) ** 2


MODEL = UserModel(log_likelihood, 3, supervised=True)
THETA, C = torch.tensor([0.3, -0.2, 0.5], dtype=torch.float64), 0.7  # C is that of a person
X, Y = random_records(1, STARTS[-1], (3,))
GRADIENTS = (Y - X @ THETA.numpy())[:, None] * X


def shortened(vectors, bound):
    return vectors / np.maximum(1.0, np.linalg.norm(vectors, axis=1, keepdims=True) / bound)


def of_model(clipped_sum, X=X, Y=Y, starts=STARTS, unit=UNIT):
    batch = NetworkRecords(X, Y, torch.empty(0).double(), starts).take(slice(None))
    query = torch.cat([THETA, torch.tensor([C], dtype=torch.float64)])
    return clipped_sum.of_persons(unit)(query, batch).numpy()


def sums_of_model():
    """Each kind of sum, and the slow one: from gradients of rows, person by person."""
    persons = np.array([person.sum(0) for person in np.split(GRADIENTS, STARTS[1:-1])])
    rows = shortened(GRADIENTS / (C / UNIT.clip), 0.35)

    def curvature(term):
        total = 0.0
        for person in np.split(rows, STARTS[1:-1]):
            trace = (person**2).sum()
            shrunk = min(1.0, UNIT.rows_per_group * 0.35**2 / trace)
            total = total + shrunk * sum(term(row) for row in person)
        return total

    lengths = np.linalg.norm(persons, axis=1) / C
    return {
        "gradient": (ModelClippedSum(MODEL, GRADIENT, 1.0), shortened(persons / C, 1.0).sum(0)),
        "outer": (
            ModelClippedSum(MODEL, OUTER, 0.35), packed(curvature(lambda g: np.outer(g, g)))
        ),
        "squares": (ModelClippedSum(MODEL, SQUARES, 0.35), curvature(lambda g: g * g)),
        "counts": (
            LengthCounts(MODEL, (0.5, 2.0, 8.0)),
            np.histogram(lengths, [0.5, 2.0, 8.0, np.inf])[0],
        ),
        "lengths": (SquaredLengths(MODEL), np.square(np.minimum(lengths, 1.0))[None].sum(1)),
    }  # fmt: skip


KINDS = ["gradient", "outer", "squares", "counts", "lengths"]


@pytest.mark.parametrize("numbers", [2**21, 21])
@pytest.mark.parametrize("kind", KINDS)
def test_a_sum_of_a_model_over_persons_equals_a_loop(kind, numbers):
    clipped_sum, expected = sums_of_model()[kind]
    with mock.patch.object(sums, "CHUNK_NUMBERS", numbers):  # 21: seven rows at once
        found = of_model(clipped_sum)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_that_is_not_finite_is_missing_from_its_person_in_a_model(kind):
    clipped_sum, _ = sums_of_model()[kind]
    bad = 12  # of the person with 9 rows
    rows = X.copy()
    rows[bad] = np.nan
    without = STARTS - (bad < STARTS)
    expected = of_model(clipped_sum, np.delete(X, bad, 0), np.delete(Y, bad), without)
    np.testing.assert_allclose(of_model(clipped_sum, rows), expected, rtol=1e-12)


def weighted(theta, x, y):
    return y * nn.functional.logsigmoid(x @ theta)


@pytest.mark.parametrize("seed", range(10))
def test_what_is_left_of_rows_that_cancel_does_not_tell_who_else_is_there(seed):
    rng, d = np.random.default_rng(seed), 9
    alike = np.repeat(rng.normal(size=(1, d)), 2, axis=0)  # two rows of opposite, huge gradients
    other = rng.normal(size=(3, d))
    query = torch.from_numpy(np.append(rng.normal(size=d), 1.0))
    clipped_sum = ModelClippedSum(UserModel(weighted, d, supervised=True), GRADIENT, 1.0)

    def summed(X, y, starts):
        batch = NetworkRecords(X, y, torch.empty(0).double(), starts).take(slice(None))
        return clipped_sum.of_persons(UNIT)(query, batch)

    huge = np.array([1e17, -1e17])
    absent = summed(alike, huge, np.array([0, 2]))
    present = summed(
        np.vstack([other, alike]), np.concatenate([np.ones(3), huge]), np.array([0, 3, 5])
    )
    assert torch.linalg.vector_norm(present - absent) <= 1.0 + 1e-6


@pytest.mark.quick(4)
@pytest.mark.parametrize("numbers", [2**21, 21])
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=15)
@given(
    st.lists(st.sampled_from(EXTREMES), min_size=3, max_size=3),
    st.integers(1, 30),
    st.sampled_from([-1.0, 1e3, 1e300, np.nan]),
)
def test_one_person_moves_a_sum_of_a_model_within_its_sensitivity(
    kind, numbers, values, size, target
):
    clipped_sum, _ = sums_of_model()[kind]
    rows = np.array(values) * np.linspace(0.1, 1, size)[:, None]
    more = np.vstack([X, rows]), np.append(Y, np.full(size, target))
    with mock.patch.object(sums, "CHUNK_NUMBERS", numbers), np.errstate(all="ignore"):
        absent = of_model(clipped_sum)
        present = of_model(clipped_sum, *more, np.append(STARTS, STARTS[-1] + size))
    bound = clipped_sum.of_persons(UNIT).sensitivity("zero_out_group")
    assert np.isfinite(present).all()
    assert np.linalg.norm(present - absent) <= bound
    declared = UNIT.rows_per_group * 0.35**2 if kind in ("outer", "squares") else 1.0
    assert bound == pytest.approx(declared, rel=1e-3)
