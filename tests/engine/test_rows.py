"""Wherever rows live and in however many pieces, a sum over them is the same sum."""

import itertools
import math
from functools import partial

import numpy as np
import pytest
import torch

from skdp.engine.grid import GridSum
from skdp.engine.linear_sums import GramSum, LinearClippedSum, ScoreGramSum
from skdp.engine.loop import ReleasePlan, run
from skdp.engine.modules.network_records import NetworkRecords
from skdp.engine.sampling import BLOCK, sampling
from skdp.fitting.streams import Streams
from skdp.models.likelihoods import Bernoulli
from skdp.rows.bounded_sum import CHUNK_ROWS
from skdp.rows.chunk_tasks import added
from skdp.rows.chunks import ChunkedRows, ChunkSums, first_look
from skdp.rows.person_sums import RowSum
from skdp.rows.records import LinearRows, PlainRows

N, D = 2 * CHUNK_ROWS + 5, 3
THETA = np.array([[0.5, -1.0, 2.0, 0.25]])
SUMS = {
    "gradients": LinearClippedSum(Bernoulli().residual, 0.5),
    "outer products": GramSum(0.7),
    "products of scores": ScoreGramSum(LinearClippedSum(Bernoulli().residual, 0.5)),
}
SELECTIONS = {
    "all": slice(None),
    "some": np.random.default_rng(1).permutation(N)[:9000],
    "none": np.array([], dtype=int),
}


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    return rng.normal(size=(N, D)), rng.integers(0, 2, (N, 1)).astype(float)


def linear_rows(X, y, **options):
    return LinearRows(X, y, data_norm=1.0, fit_intercept=True, alone=True, **options)


def in_chunks(cuts, build, *arrays):
    """Rows of a run in chunks, of records without anything to check."""
    pairs = list(itertools.pairwise(cuts))
    rows = ChunkedRows(lambda i: tuple(array[slice(*pairs[i])] for array in arrays), len(pairs))
    found, _ = first_look(
        rows, lambda chunk: (chunk[: len(arrays)], None), bytes(16), n_is_public=True
    )
    return ChunkSums(rows, found[0].reading, lambda records: build(*records))


@pytest.fixture(
    scope="module", params=["memory map", "not kept", "columns", "chunks", "many chunks"]
)
def elsewhere(request, data, tmp_path_factory):
    X, y = data
    if request.param == "memory map":
        file = tmp_path_factory.mktemp("rows") / "X.npy"
        np.save(file, X)
        return linear_rows(np.load(file, mmap_mode="r"), y)
    if request.param == "not kept":
        return linear_rows(X, y, kept=False)
    if request.param == "columns":
        return linear_rows(np.asfortranarray(X), y, kept=False)
    cuts = [0, 0, 1, 4000, N - 1, N]  # one chunk is empty
    if request.param == "many chunks":
        cuts = np.linspace(0, N, 65).astype(int)
    return in_chunks(cuts, linear_rows, X, y)


@pytest.mark.parametrize("selection", SELECTIONS.values(), ids=SELECTIONS)
@pytest.mark.parametrize("clipped_sum", SUMS.values(), ids=SUMS)
class TestSums:
    def test_integers_add_up_to_the_same_bits(self, clipped_sum, selection, data, elsewhere):
        term = partial(GridSum(clipped_sum, 3.0), THETA)
        expected = linear_rows(*data).sum(term, selection)
        assert len(elsewhere) == N
        np.testing.assert_array_equal(elsewhere.sum(term, selection), expected)
        assert expected.any() == (selection is not SELECTIONS["none"])

    def test_doubles_add_up_within_the_declared_rounding(
        self, clipped_sum, selection, data, elsewhere
    ):
        term = partial(clipped_sum, THETA)
        expected = linear_rows(*data).sum(term, selection)
        room = clipped_sum.record_bound * clipped_sum.rounding
        assert np.linalg.norm(elsewhere.sum(term, selection) - expected) <= room


@pytest.mark.parametrize("relation", ["zero_out", "add_or_remove_one"])
@pytest.mark.parametrize("selection", SELECTIONS.values(), ids=SELECTIONS)
@pytest.mark.parametrize("clipped_sum", SUMS.values(), ids=SUMS)
def test_columns_are_copied_as_columns_only_where_no_row_may_shift(
    clipped_sum, selection, relation, data
):
    layouts = set()

    def term(batch):
        if len(batch.rows):
            layouts.add(batch.rows.flags.c_contiguous)
        return clipped_sum(THETA, batch)

    X, y = data
    settings = {"data_norm": 1.0, "fit_intercept": True, "neighboring_relation": relation}
    rows = LinearRows(np.asfortranarray(X), y, kept=False, **settings)
    room = clipped_sum.record_bound * clipped_sum.rounding
    found, expected = rows.sum(term, selection), linear_rows(X, y).sum(term, selection)
    assert np.linalg.norm(found - expected) <= room
    if selection is not SELECTIONS["none"]:  # `linear_rows` lie by row
        assert layouts == ({False, True} if relation == "zero_out" else {True})


@pytest.mark.parametrize("rate", [1.0, 0.1])
def test_a_run_does_not_depend_on_where_its_rows_are(rate, data, elsewhere):
    def released(rows):
        # Integer sums where they may be; else rows of integers, which add exactly in doubles too.
        secure = rate == 1.0
        clipped_sum = SUMS["gradients"] if secure else _Count()
        plan = ReleasePlan(sampling(rate, 3), clipped_sum, 2.0, "zero_out", secure)
        steps = run(plan, rows, THETA, lambda s: s, lambda s, noisy, _: noisy, Streams(b"s"))
        return list(steps)

    np.testing.assert_array_equal(released(elsewhere), released(linear_rows(*data)))


@pytest.mark.parametrize("n_chunks", [1, 7, 64])
def test_batches_are_of_the_same_rows_in_chunks(n_chunks):
    """Over more than a block of coins, some of whose chunks have rows in two."""
    n = 2 * BLOCK + 1000
    numbers = np.arange(n, dtype=float)[:, None]

    def taken(rows):
        scheme = sampling(2e-4, 4)
        plan = ReleasePlan(scheme, _Numbers(n), 0.0, "zero_out")
        steps = run(plan, rows, THETA[:, :1], lambda s: s, lambda s, sum, _: sum, Streams(b"s"))
        return [np.flatnonzero(step).tolist() for step in steps]

    whole = taken(PlainRows(numbers))
    assert len({tuple(step) for step in whole}) == 4
    cuts = np.linspace(0, n, n_chunks + 1).astype(int)
    assert taken(in_chunks(cuts, PlainRows, numbers)) == whole


class _Numbers(RowSum):
    """Which rows were in a batch."""

    record_bound = 1.0

    def __init__(self, n):
        self.n = n

    def shape(self, theta_shape):
        return (self.n,)

    def __call__(self, theta, batch):
        return np.bincount(batch.rows[:, 0].astype(int), minlength=self.n) * 1.0


class _Count(LinearClippedSum):
    def __init__(self):
        super().__init__(Bernoulli().residual, 1.0)

    def __call__(self, theta, batch):
        return np.full(theta.shape, float(len(batch.rows)))


def test_plain_rows_and_records_of_networks_are_rows_too(data):
    X, y = data

    def count(batch):
        return np.array(len(getattr(batch, "rows", batch)))

    for kind in (PlainRows, lambda part: NetworkRecords(part, y[: len(part)], torch.empty(0))):
        chunks = in_chunks([0, 10, N], kind, X)
        for selection, expected in ((slice(None), N), (np.array([3, N - 1, 12]), 3)):
            assert chunks.sum(count, selection) == kind(X).sum(count, selection) == expected


@pytest.mark.parametrize("n", [1, 2, 3, 64, 1000])
def test_sums_of_chunks_are_added_in_a_balanced_tree(n):
    class Depth(int):
        def __add__(self, other):
            return Depth(int(max(self, other)) + 1)

    assert added(Depth(0) for _ in range(n)) <= 2 * math.log2(n)
    assert added(range(n)) == n * (n - 1) // 2
    assert added([None] * n) is None
