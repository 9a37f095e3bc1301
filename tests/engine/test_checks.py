"""The trial of a module refuses what mixes records, and finds the method that is right."""

import copy
import functools
import math
import re

import numpy as np
import pytest
import torch
from bundles import bundled
from engine.networks import (
    METHODS,
    Wraps,
    assert_equals_the_loop,
    clipped_sum_of,
    random_records,
    seeded,
    squared_error,
    trial,
)
from reference.per_sample_gradients import clipped, per_sample_gradients
from torch import nn
from torch.nn import functional as F

from skdp.engine.modules.checks import N_RECORDS, tried
from skdp.engine.modules.flat_module import FlatModule
from skdp.models.tasks import SquaredError


class Tied(nn.Module):
    """Two layers with one weight."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.head = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.head(torch.tanh(self.second(torch.tanh(self.first(x)))))


class Functional(nn.Module):
    """A weight in no layer, and a layer's weight used a second time behind its back."""

    def __init__(self):
        super().__init__()
        self.scale, self.layer = nn.Parameter(torch.ones(6)), nn.Linear(6, 6)
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        return self.head(F.linear(torch.tanh(self.layer(x)) * self.scale, self.layer.weight))


def wrapping(forward, layer=lambda: None, width=6):
    """A module of one layer and a head on so many numbers."""

    def make():
        module = Wraps(forward, layer())
        module.head = nn.Linear(width, 3)
        return module

    return make


def sequence_first(self, x):
    """Layers see positions before records, which book-keeping would take for records."""
    return self.head(torch.tanh(self.layer(x.unflatten(1, (3, 2)).transpose(0, 1))).sum(0))


def records_as_positions(self, x):
    return self.head(torch.tanh(self.layer(x.reshape(-1, 2))).reshape(len(x), -1))


def weighted(self, x):
    """Bags with weights, which are all 1 on numbers that a trial knows."""
    weights = torch.where(x > 1e6, 2.0, 1.0).to(x)
    return self.head(self.layer(x.long().clamp(0, 4), per_sample_weights=weights))


class SelfAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(2, 1, batch_first=True)
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        x = x.unflatten(1, (3, 2))
        return self.head(self.attention(x, x, x)[0].flatten(1))


def weight_normalized():
    return nn.Sequential(
        nn.utils.parametrizations.weight_norm(nn.Linear(6, 4)), nn.Tanh(), nn.Linear(4, 3)
    )


@bundled("n", [3, 5])  # as many records as positions, and not
@bundled(
    "make",
    [
        Tied,
        wrapping(  # twice
            lambda self, x: self.head(torch.tanh(self.layer(torch.tanh(self.layer(x))))),
            lambda: nn.Linear(6, 6),
        ),
        Functional,
        wrapping(lambda self, x: self.head(input=x)),
        wrapping(sequence_first, lambda: nn.Linear(2, 4), 4),
        wrapping(records_as_positions, lambda: nn.Linear(2, 4), 12),
        SelfAttention,
        weight_normalized,
        # A product that vmap has no rule for: it warns, which is an error here.
        wrapping(
            lambda self, x: self.head(torch.tanh(self.layer(x, x))), lambda: nn.Bilinear(6, 6, 4), 4
        ),
        wrapping(weighted, lambda: nn.EmbeddingBag(5, 4, mode="sum"), 4),
    ],
)
def test_what_book_keeping_cannot_do_goes_right_by_vmap(make, n):
    module = seeded(make)
    assert trial(module, (6,), 3, n=n) == "vmap"
    assert_equals_the_loop(module, *random_records(0, n, (6,)), methods=["vmap"])
    assert_equals_the_loop(module.double(), *random_records(0, 4, (6,)), methods=["vmap"])


def relu_of_an_output(x, first, second):
    return second(F.relu_(first(x)))


def addition_to_an_output(x, first, second):
    out = second(torch.tanh(first(x)))
    out += x
    return out


def halving_of_an_output(x, first, second):
    hidden = second(torch.tanh(first(x)))
    return hidden.mul_(0.5).tanh()


class InPlace(nn.Module):
    def __init__(self, forward):
        super().__init__()
        self.first, self.second, self.body = nn.Linear(6, 6), nn.Linear(6, 6), forward
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        return self.head(self.body(x, self.first, self.second))


@pytest.mark.parametrize("body", [relu_of_an_output, addition_to_an_output, halving_of_an_output])
def test_outputs_changed_in_place_are_never_taken_for_what_the_layer_put_out(body):
    module = seeded(lambda: InPlace(body))
    method = trial(module, (6,), 3)
    assert_equals_the_loop(module, *random_records(0, 7, (6,)), methods=[method])


@pytest.mark.parametrize("hidden", ["functional", "tied"])
def test_a_head_of_zeros_does_not_hide_what_book_keeping_misses(hidden):
    if hidden == "functional":
        module = Wraps(lambda self, x: self.head(torch.tanh(F.linear(x, self.layer))))
        module.layer = nn.Parameter(torch.eye(6))
    else:
        module = Wraps(lambda self, x: self.head(self.layer(torch.tanh(self.layer(x)))))
        module.layer = nn.Linear(6, 6)
    nn.init.zeros_(module.head.weight)
    assert trial(module, (6,), 3) == "vmap"


class Counts(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(6, 3)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return self.head(x)


def with_layer(layer):
    return lambda: Wraps(lambda self, x: self.head(self.layer(x)), layer)


def shaped(forward):
    return lambda: Wraps(forward)


def looked_up(**parameters):
    layer = nn.Embedding(5, 1, **parameters)
    return lambda: Wraps(
        lambda self, x: self.head(self.layer(x.long().clamp(0, 4)).flatten(1)), layer
    )


IMAGES = nn.Sequential(nn.Unflatten(1, (2, 3, 1)), nn.BatchNorm2d(2), nn.Flatten())


MIXES = "by itself, but its output for a record depends on the other records"


REFUSED = {
    "BatchNorm1d": (with_layer(nn.BatchNorm1d(6)), r"BatchNorm1d.*use GroupNorm or LayerNorm"),
    "BatchNorm2d": (with_layer(IMAGES), r"BatchNorm2d.*use GroupNorm or LayerNorm"),
    "BatchNorm1d that only counts": (
        with_layer(nn.BatchNorm1d(6, affine=False)),
        r"BatchNorm1d.*requires_grad_\(False\) and eval",
    ),
    "BatchNorm1d that only trains": (with_layer(nn.BatchNorm1d(6).eval()), "freeze"),
    "BatchNorm1d without statistics": (
        with_layer(nn.BatchNorm1d(6, affine=False, track_running_stats=False).eval()),
        "freeze",
    ),
    "LSTM with projections": (with_layer(nn.LSTM(6, 6, proj_size=2)), "proj_size, got LSTM"),
    "sparse Embedding": (looked_up(sparse=True), "Embedding layers without sparse=True"),
    "DataParallel": (lambda: nn.DataParallel(nn.Linear(6, 3)), r"pass its \.module"),
    "max_norm": (looked_up(max_norm=1.0), "Embedding layers without max_norm.*drop them"),
    "scale_grad_by_freq": (looked_up(scale_grad_by_freq=True), "scale_grad_by_freq.*drop them"),
    "mean of the batch": (shaped(lambda self, x: self.head(x - x.mean(0))), MIXES),
    "neighbour": (shaped(lambda self, x: self.head(x + x.roll(1, 0))), MIXES),
    "softmax over records": (shaped(lambda self, x: self.head(x).softmax(0)), MIXES),
    "positions as records": (
        shaped(
            lambda self, x: self.head(x.unflatten(1, (3, 2)).transpose(0, 1).reshape(len(x), -1))
        ),
        MIXES,
    ),
    "reversed batch": (shaped(lambda self, x: self.head(x).flip(0)), MIXES),
    "buffer": (Counts, "leave its buffers alone.*remove it"),
    "too few outputs": (
        shaped(lambda self, x: self.head(x)[:, :2]),
        r"shape \(n_records, 3\), got \(33, 2\).*adapt its last layer",
    ),
    "no dimension of outputs": (shaped(lambda self, x: self.head(x)[:, 0]), r"got \(33,\)"),
    "summed over records": (shaped(lambda self, x: self.head(x).sum(0)), r"got \(3,\)"),
    "tuple": (shaped(lambda self, x: (self.head(x), x)), "got tuple.*adapt its last layer"),
    "dict": (shaped(lambda self, x: {"logits": self.head(x)}), "got dict.*adapt its last layer"),
    "data-dependent control flow": (
        shaped(lambda self, x: F.linear(x, self.head.weight) * (1 if float(x.sum()) < 1e9 else 2)),
        "without data-dependent control flow",
    ),
}


@bundled("name", REFUSED)
def test_modules_without_gradients_of_records_are_refused_and_told_why(name):
    make, message = REFUSED[name]
    with pytest.raises(ValueError, match=re.compile(message, re.DOTALL)):
        trial(seeded(make), (6,), 3)


@pytest.mark.parametrize(
    ("forward", "message"),
    [
        (lambda self, x: self.head(x).detach(), "depends on no trained parameter"),
        (lambda self, x: 0 * self.head(x), "depends on no trained parameter"),
        (lambda self, x: self.head(x) * math.inf, "gradients are not finite"),
    ],
)
def test_a_module_that_cannot_learn_is_refused_and_told_why(forward, message):
    targets = torch.linspace(-1, 1, N_RECORDS * 3).reshape(N_RECORDS, 3)
    with pytest.raises(ValueError, match=message):
        tried(FlatModule(Wraps(forward)), SquaredError(), targets, shape=(6,), n_outputs=3)


class WithDropout(nn.Module):
    """Whether as a layer or as a function, masks are random in training."""

    def __init__(self, how):
        super().__init__()
        self.first, self.head, self.how = nn.Linear(6, 40), nn.Linear(40, 3), how
        self.dropout = nn.Dropout(0.5)

    def forward(self, x):
        x = torch.tanh(self.first(x))
        as_layer = self.how == "layer"
        return self.head(self.dropout(x) if as_layer else F.dropout(x, 0.5, self.training))


@pytest.mark.parametrize("how", ["layer", "function"])
def test_masks_of_dropout_are_not_taken_for_mixing(how):
    assert trial(seeded(lambda: WithDropout(how)), (6,), 3) == "book-keeping"


class FunctionalDropout(nn.Module):
    def forward(self, x):
        return F.dropout(x, 0.1, self.training)


@pytest.mark.parametrize(("first", "second"), [(0, 1), (1, 0), (0, 32), (32, 0), (5, 21), (30, 14)])
def test_a_record_that_sees_one_other_in_a_batch_of_33_is_refused(first, second):
    def forward(self, x):
        if len(x) == N_RECORDS and self.training:
            x = x.clone()
            x[second] += 0.5 * x[first]
        return self.head(x)

    # Random masks leave comparisons of batches of one size alone.
    module = seeded(lambda: nn.Sequential(Wraps(forward), FunctionalDropout()))
    with pytest.raises(ValueError, match="by itself"):
        trial(module, (6,), 3)


def test_a_module_that_fails_beyond_some_value_is_tried_below():
    def forward(self, x, mixes):
        if x.abs().max() > 7:
            raise OverflowError
        return self.head(x - x.mean(0) if mixes and len(x) > 7 else x)

    alone, mixing = (functools.partial(forward, mixes=mixes) for mixes in (False, True))
    assert trial(seeded(lambda: Wraps(alone)), (6,), 3) == "book-keeping"
    with pytest.raises(ValueError, match="by itself"):
        trial(seeded(lambda: Wraps(mixing)), (6,), 3)


def centred(condition):
    """Centre a batch where a condition holds, and treat each record by itself elsewhere."""
    return lambda self, x: self.head(x - x.mean(0) if condition(self, x) else x)


def running_mean(self, x):
    if self.training:
        self.seen = 0.9 * getattr(self, "seen", 0.0) + 0.1 * x.detach().mean(0)
        x = x - self.seen
    return self.head(x)


def in_training(change):
    return lambda self, x: self.head(change(x) if self.training else x)


SOMEWHERE = {
    "nowhere": centred(lambda module, x: False),
    "in training": centred(lambda module, x: module.training),
    "in evaluation": centred(lambda module, x: not module.training),
    "in batches of more than 8": centred(lambda module, x: len(x) > 8),
    "in batches of more than 32": centred(lambda module, x: len(x) > 32),
    "of values that are all small": centred(lambda module, x: x.abs().max() < 0.5),
    "of records that are all large": centred(lambda module, x: x.abs().amax(1).min() > 2),
    "running mean": running_mean,
    "batch norm": in_training(lambda x: F.batch_norm(x, None, None, training=True)),
    "next record": in_training(lambda x: torch.cat([x[:-1] + x[1:], x[-1:]])),
    "mix-up": in_training(lambda x: 0.7 * x + 0.3 * x[torch.randperm(len(x))]),
    "largest value": lambda self, x: self.head(x / x.abs().max().clamp(min=10)),
}


@pytest.mark.parametrize("where", SOMEWHERE)
def test_a_module_that_mixes_records_somewhere_is_refused(where):
    module = seeded(lambda: Wraps(SOMEWHERE[where]))
    if where == "nowhere":
        assert trial(module, (6,), 3) == "book-keeping"
        return
    with pytest.raises(ValueError, match="by itself"):
        trial(module, (6,), 3)


class KeepsEvaluating(nn.BatchNorm1d):
    def train(self, mode=True):
        return super().train(False)


@pytest.mark.parametrize("method", METHODS)
def test_frozen_batch_norm_is_used_as_in_evaluation(method):
    module = seeded(lambda: nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Linear(6, 3)))
    norm = module[1].requires_grad_(False).eval()
    for values in (norm.running_mean, norm.running_var, norm.weight, norm.bias):
        nn.init.uniform_(values, 0.5, 2.0)
    before = copy.deepcopy(module.state_dict())
    assert trial(module, (6,), 3) == "book-keeping"
    x, y = random_records(0, 7, (6,))
    found = clipped_sum_of(copy.deepcopy(module).double(), x, y, method=method).numpy()
    slow = copy.deepcopy(module)
    slow[1].__class__ = KeepsEvaluating
    rows = per_sample_gradients(slow, squared_error, torch.from_numpy(x), torch.from_numpy(y))
    np.testing.assert_allclose(found, -clipped(rows, 0.5).sum(0), rtol=1e-9, atol=1e-12)
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())


def test_frozen_parts_in_evaluation_mode_stay_there_and_others_train():
    body = nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.5)).requires_grad_(False).eval()
    busy = nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.5)).requires_grad_(False)
    flat = FlatModule(nn.Sequential(body, busy, nn.Dropout(0.5).eval(), nn.Linear(6, 3)))
    for _ in range(2):
        assert [part.training for part in flat.module] == [False, True, True, True]
        assert not flat.module[0][1].training
        flat.train()
    flat = FlatModule(nn.Sequential(body, nn.Linear(6, 3)))
    x = torch.ones(4, 6)
    assert torch.equal(flat.module(x), flat.module(x))
