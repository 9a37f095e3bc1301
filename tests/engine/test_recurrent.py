"""Recurrent layers: their equals against those of torch, and per-record gradients against loops."""

import copy
import functools
from itertools import pairwise

import numpy as np
import pytest
import torch
from engine.networks import (
    METHODS,
    assert_equals_the_loop,
    clipped_sum_of,
    random_records,
    seeded,
    squared_error,
    trial,
)
from torch import nn

from skdp.engine.modules.flat_module import FlatModule
from skdp.engine.modules.gradients import book_keeping
from skdp.engine.modules.network_records import NetworkRecords
from skdp.engine.modules.network_sum import NetworkClippedSum
from skdp.engine.modules.recurrent import Recurrent
from skdp.rows.persons import PersonUnit

KINDS = [nn.GRU, nn.LSTM, nn.RNN]
SETTINGS = {
    "plain": {},
    "two layers": {"num_layers": 2},
    "both ways": {"bidirectional": True},
    "two layers, both ways": {"num_layers": 2, "bidirectional": True},
    "no bias": {"bias": False},
    "time first": {"batch_first": False, "num_layers": 2},
}


class Net(nn.Module):
    """Reads a layer's outputs and last states, which may start from a function of x."""

    def __init__(self, kind, *, starts=False, twice=False, **given):
        super().__init__()
        self.rnn = kind(4, 5, **{"batch_first": True, **given})
        self.start = nn.Linear(4, 5) if starts else None
        self.head = nn.Linear(5 * (1 + self.rnn.bidirectional), 3)
        self.last, self.twice = nn.Linear(5, 3), twice

    def forward(self, x):
        hx = None
        if self.start is not None:
            h = self.start(x[:, 0])[None].expand(self.rnn.num_layers, -1, -1)
            hx = (h, 2 * h) if self.rnn.mode == "LSTM" else h
        out, ends = self.rnn(x if self.rnn.batch_first else x.transpose(0, 1), hx)
        out = out if self.rnn.batch_first else out.transpose(0, 1)
        ends = torch.cat(ends, 0) if isinstance(ends, tuple) else ends
        z = self.head(out.mean(1)) + self.last(ends[-1])
        return z + self.last(ends[0]) if self.twice else z


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", SETTINGS)
def test_an_equal_computes_what_the_layer_does(kind, name):
    layer = seeded(lambda: kind(4, 5, **{"batch_first": True, **SETTINGS[name]})).double()
    equal = FlatModule(layer).module
    assert isinstance(equal, Recurrent)
    assert isinstance(equal, kind)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(6, 7, 4, generator=generator, dtype=torch.float64)
    n = x.shape[0 if layer.batch_first else 1]
    h = torch.randn(
        layer.num_layers * (1 + layer.bidirectional), n, 5, generator=generator, dtype=x.dtype
    )
    for hx in (None, (h, h**2) if kind is nn.LSTM else h):
        torch.testing.assert_close(equal(x, hx), layer(x, hx), rtol=1e-12, atol=1e-12)


def test_an_equal_of_relu_too():
    layer = seeded(lambda: nn.RNN(4, 5, nonlinearity="relu", batch_first=True)).double()
    x = torch.randn(6, 7, 4, dtype=torch.float64)
    torch.testing.assert_close(FlatModule(layer).module(x), layer(x), rtol=1e-12, atol=1e-12)
    net = Net(nn.RNN, nonlinearity="relu").double()
    assert_equals_the_loop(net, *random_records(0, 6, (7, 4)), ["book-keeping"])


@pytest.mark.quick(6)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", [*SETTINGS, "starts"])
def test_gradients_are_those_of_single_records(kind, name):
    given = SETTINGS.get(name, {"starts": True, "num_layers": 2})
    module = seeded(lambda: Net(kind, **given))
    assert trial(module, (6, 4), 3) == "book-keeping"
    for n in (0, 1, 7):
        assert_equals_the_loop(copy.deepcopy(module).double(), *random_records(n, n, (6, 4)))
        assert_equals_the_loop(module, *random_records(n, n, (6, 4)))


def test_layers_before_a_recurrent_one_get_their_gradients():
    class Tokens(nn.Module):
        def __init__(self):
            super().__init__()
            self.before, self.rnn = nn.Linear(4, 4), nn.LSTM(4, 5, batch_first=True)
            self.head = nn.Linear(5, 3)

        def forward(self, x):
            return self.head(self.rnn(self.before(x).tanh())[0][:, -1])

    module = seeded(Tokens)
    assert trial(module, (6, 4), 3) == "book-keeping"
    assert_equals_the_loop(module.double(), *random_records(0, 7, (6, 4)))
    module.rnn.requires_grad_(False)
    assert_equals_the_loop(module, *random_records(0, 7, (6, 4)))
    module.rnn.requires_grad_(True).weight_ih_l0.requires_grad_(False)
    module.before.requires_grad_(False)
    assert_equals_the_loop(module, *random_records(0, 7, (6, 4)))


@pytest.mark.parametrize("kind", KINDS)
def test_where_book_keeping_has_no_rule_vmap_has_the_layers(kind):
    module = seeded(lambda: Net(kind, twice=True))
    assert trial(module, (6, 4), 3) == "vmap"
    assert_equals_the_loop(module.double(), *random_records(0, 7, (6, 4)), ["vmap"])


def test_dropout_between_layers_draws_for_each_record():
    module = seeded(lambda: Net(nn.GRU, num_layers=2, dropout=0.5))
    assert trial(module, (6, 4), 3) == "book-keeping"
    x, y = np.repeat(random_records(0, 1, (6, 4))[0], 8, axis=0), np.zeros(8)
    for method in METHODS:
        first, second = (clipped_sum_of(module, x, y, 1e-2, method=method) for _ in range(2))
        assert not torch.equal(first, second)
        assert first.norm() < 7.9e-2


def test_time_first_by_mistake_mixes_records_and_is_refused():
    with pytest.raises(ValueError, match="by itself"):
        trial(Mistaken(), (6, 4), 3)


class Mistaken(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.head = nn.GRU(4, 5), nn.Linear(5, 3)

    def forward(self, x):
        return self.head(self.rnn(x)[0][:, -1])


@pytest.mark.parametrize("bad", ["unbatched", "packed"])
def test_what_is_no_batch_of_sequences_is_refused(bad):
    layer = FlatModule(nn.GRU(4, 5, batch_first=True)).module
    x = torch.zeros(3, 6, 4)
    packed = nn.utils.rnn.pack_padded_sequence(x, [6, 6, 6], batch_first=True)
    with pytest.raises(ValueError, match="pad them"):
        layer(packed if bad == "packed" else x[0])


@pytest.mark.parametrize(
    "layer",
    [
        nn.LSTM(4, 5, proj_size=2),
        type("Own", (nn.GRU,), {})(4, 5),
        nn.utils.parametrizations.weight_norm(nn.GRU(4, 5), "weight_hh_l0"),
    ],
    ids=["projections", "subclass", "parametrized"],
)
def test_other_recurrent_layers_are_refused_by_name(layer):
    with pytest.raises(ValueError, match=type(layer).__name__):
        trial(nn.Sequential(layer), (6, 4), 3)


def test_persons_are_clipped_by_the_sum_of_their_rows():
    module, (x, y) = seeded(lambda: Net(nn.LSTM)).double(), random_records(0, 9, (6, 4))
    starts = np.array([0, 1, 4, 9])
    flat = FlatModule(module)
    records = NetworkRecords(x, y, flat.flat, starts)
    rows = NetworkClippedSum(flat, squared_error, 0.5)
    persons = rows.of_persons(PersonUnit(3, 3.0, 0.6))
    found = persons(flat.flat.clone(), records.take(slice(None)))
    expected = torch.zeros_like(found)
    for first, last in pairwise(starts):
        of_one = clipped_sum_of(module, x[first:last], y[first:last], 0.5)
        expected += of_one * min(1.0, 0.3 / float(of_one.norm()))
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_in_mixed_precision_gradients_are_nearly_the_same(kind):
    x, y = random_records(0, 9, (6, 4))
    module = seeded(lambda: Net(kind))
    found, whole = (
        book_keeping(flat, squared_error, torch.tensor(x).float(), torch.tensor(y).float())
        for flat in (FlatModule(module, mixed_precision=on) for on in (True, False))
    )
    torch.testing.assert_close(found.norms, whole.norms, rtol=0.05, atol=0.05)
    assert not torch.equal(found.norms, whole.norms)


class OverCells(nn.Module):
    """A loop over a cell, from zeros that the cell makes or that the module does."""

    def __init__(self, kind, start):
        super().__init__()
        self.cell, self.head, self.start = kind(4, 5), nn.Linear(5, 3), start

    def forward(self, x):
        state = None
        if self.start is not None:
            h = self.start(len(x), 5, dtype=x.dtype)
            state = (h, h) if isinstance(self.cell, nn.LSTMCell) else h
        for x_t in x.unbind(1):
            state = self.cell(x_t, state)
        return self.head(state[0] if isinstance(state, tuple) else state)


@pytest.mark.parametrize("start", [None, torch.zeros])
@pytest.mark.parametrize(
    "kind",
    [nn.GRUCell, nn.LSTMCell, nn.RNNCell, functools.partial(nn.RNNCell, nonlinearity="relu")],
)
def test_loops_over_cells_go_by_vmap_and_equal_the_loop(kind, start):
    module = seeded(functools.partial(OverCells, kind, start)).double()
    assert trial(module, (6, 4), 3) == "vmap"
    assert_equals_the_loop(module, *random_records(0, 5, (6, 4)), methods=["vmap"])
