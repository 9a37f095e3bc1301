"""Wherever rows live and in however many pieces, a sum over them is the same sum."""

import itertools
from functools import partial

import numpy as np
import pytest
import torch

from skdp._bounded_sum import CHUNK_ROWS, MAX_PARTS
from skdp._random import Streams
from skdp._rows import JoinedRows, LinearRows, PlainRows
from skdp.engine.grid import GridSum
from skdp.engine.linear_sums import GramSum, LinearClippedSum, ScoreGramSum
from skdp.engine.loop import ReleasePlan, run
from skdp.engine.modules.network_sum import NetworkRecords
from skdp.engine.sampling import sampling
from skdp.models.likelihoods import Bernoulli

N, D = 2 * CHUNK_ROWS + 5, 3
THETA = torch.tensor([[0.5, -1.0, 2.0, 0.25]], dtype=torch.float64)
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


@pytest.fixture(scope="module", params=["memory map", "not kept", "parts", "parts of parts"])
def elsewhere(request, data, tmp_path_factory):
    X, y = data
    if request.param == "memory map":
        file = tmp_path_factory.mktemp("rows") / "X.npy"
        np.save(file, X)
        return linear_rows(np.load(file, mmap_mode="r"), y)
    if request.param == "not kept":
        return linear_rows(X, y, kept=False)
    cuts = [0, 0, 1, 4000, N - 1, N]  # one part is empty
    pairs = itertools.pairwise(cuts)
    parts = [linear_rows(X[a:b], y[a:b], kept=a > 1) for a, b in pairs]
    if request.param == "parts of parts":
        parts = [JoinedRows(parts[:2]), JoinedRows(parts[2:])]
    return JoinedRows(parts)


@pytest.mark.parametrize("selection", SELECTIONS.values(), ids=SELECTIONS)
@pytest.mark.parametrize("clipped_sum", SUMS.values(), ids=SUMS)
class TestSums:
    def test_integers_add_up_to_the_same_bits(self, clipped_sum, selection, data, elsewhere):
        term = partial(GridSum(clipped_sum, 3.0), THETA)
        expected = linear_rows(*data).sum(term, selection)
        assert len(elsewhere) == N
        assert torch.equal(elsewhere.sum(term, selection), expected)
        assert expected.any() == (selection is not SELECTIONS["none"])

    def test_doubles_add_up_within_the_declared_rounding(
        self, clipped_sum, selection, data, elsewhere
    ):
        term = partial(clipped_sum, THETA)
        expected = linear_rows(*data).sum(term, selection)
        room = clipped_sum.record_bound * clipped_sum.rounding
        assert torch.linalg.vector_norm(elsewhere.sum(term, selection) - expected) <= room


@pytest.mark.parametrize("rate", [1.0, 0.1])
def test_a_run_does_not_depend_on_where_its_rows_are(rate, data, elsewhere):
    def released(rows):
        # Integer sums where they may be; else rows of integers, which add exactly in doubles too.
        secure = rate == 1.0
        clipped_sum = SUMS["gradients"] if secure else _Count()
        plan = ReleasePlan(sampling(rate, 3), clipped_sum, 2.0, "zero_out", secure)
        steps = run(plan, rows, THETA, lambda s: s, lambda s, noisy, _: noisy, Streams(b"s"))
        return torch.stack(list(steps))

    assert torch.equal(released(elsewhere), released(linear_rows(*data)))


class _Count(LinearClippedSum):
    def __init__(self):
        super().__init__(Bernoulli().residual, 1.0)

    def __call__(self, theta, batch):
        return torch.full(theta.shape, float(len(batch.rows)), dtype=torch.float64)


def test_plain_rows_and_records_of_networks_are_rows_too(data):
    X, y = data

    def count(batch):
        return torch.tensor(len(getattr(batch, "rows", batch)))

    for kind in (PlainRows, lambda part: NetworkRecords(part, y[: len(part)], torch.empty(0))):
        parts = JoinedRows([kind(X[:10]), kind(X[10:])])
        for selection, expected in ((slice(None), N), (np.array([3, N - 1, 12]), 3)):
            assert parts.sum(count, selection) == kind(X).sum(count, selection) == expected


@pytest.mark.parametrize("n_parts", [0, MAX_PARTS + 1])
def test_parts_are_counted_by_the_bound_on_rounding(n_parts, data):
    with pytest.raises(ValueError, match="parts"):
        JoinedRows([PlainRows(data[0])] * n_parts)
