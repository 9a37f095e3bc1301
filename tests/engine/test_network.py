"""Clipped sums of networks: against a loop over single records, and against their bound."""

import copy
import functools
import math
import re
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference.per_sample_gradients import clipped, per_sample_gradients
from scipy import stats
from torch import nn
from torch.nn import functional as F

from skdp import _trace
from skdp._grid import grid_width
from skdp._random import SecureStream
from skdp.engine import network, noise, per_sample
from skdp.engine.network import ROUNDING, FlatModule, NetworkClippedSum, NetworkRecords
from skdp.engine.trial import N_RECORDS, clipping_method
from skdp.engine.updates import MomentumSGD, NoiseCorrectedAdam, TorchOptimizer
from skdp.relations import RELATIONS, sensitivity_factor

METHODS = ["book-keeping", "vmap"]
# Of a float32 run against a loop in float64, and of a float64 run.
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}


def squared_error(outputs, y):
    return 0.5 * (outputs.flatten(1) - y[:, None]).square().sum(1)


def seeded(make, seed=0):
    """Make a module under a seed, and leave torch's generator as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make()


def random_records(seed, n, shape, size=1.0):
    rng = np.random.default_rng(seed)
    # Targets below what a softplus reaches: no difference from an output is all rounding error.
    return size * rng.standard_normal((n, *shape)), -1.0 - np.abs(rng.standard_normal(n))


def clipped_sum_of(
    module, x, y, clip_norm=0.5, loss=squared_error, theta=None, mixed_precision=False, **parameters
):
    flat = module
    if not isinstance(module, FlatModule):
        flat = FlatModule(module, mixed_precision=mixed_precision)
    theta = flat.flat.clone() if theta is None else theta
    batch = NetworkRecords(np.asarray(x), np.asarray(y), flat.flat).take(slice(None))
    return NetworkClippedSum(flat, loss, clip_norm, **parameters)(theta, batch)


def trial(module, shape, n_outputs, n=N_RECORDS):
    x, y = random_records(1, n, shape)
    flat = FlatModule(module)
    x = torch.from_numpy(x).to(flat.flat)
    return clipping_method(flat, squared_error, x, torch.from_numpy(y).to(x), n_outputs)


def assert_equals_the_loop(module, x, y, methods=METHODS, clip_norm=0.5, clipping="flat"):
    """Hold sums and norms against single backward passes, at other weights than the initial."""
    flat = FlatModule(module)
    dtype, tolerance = flat.flat.dtype, TOLERANCE[flat.flat.dtype]
    moved = torch.randn(len(flat.flat), generator=torch.Generator().manual_seed(3))
    theta = flat.flat + 0.1 * moved.to(dtype)
    at_theta = copy.deepcopy(module)
    trained = [p for p in at_theta.parameters() if p.requires_grad]
    nn.utils.vector_to_parameters(theta, trained)
    x, y = torch.as_tensor(x).to(dtype), torch.as_tensor(y).to(dtype)
    gradients = per_sample_gradients(at_theta, squared_error, x, y)
    rows = clipped(gradients, clip_norm, clipping)
    scale = np.linalg.norm(rows, axis=1).sum()
    for method in methods:
        found = clipped_sum_of(
            flat, x, y, clip_norm, theta=theta, method=method, clipping=clipping
        ).numpy()
        assert found.dtype == theta.numpy().dtype
        assert np.linalg.norm(found + rows.sum(axis=0)) <= tolerance * scale, method
        if len(x):
            take = network.book_keeping if method == "book-keeping" else network.vmapped
            norms = take(flat, squared_error, x, y).norms.numpy()
            expected = np.linalg.norm(gradients, axis=1)
            np.testing.assert_allclose(norms, expected, rtol=tolerance, err_msg=method)


# --- every layer, of any shape ------------------------------------------------------------------

WIDTHS = st.one_of(st.integers(1, 5), st.sampled_from([16, 24]))  # wide ones have a Gram branch
BATCH_SIZES = st.sampled_from([0, 1, 2, 5])


def linear(draw):
    p = draw(WIDTHS)
    return nn.Linear(p, draw(WIDTHS), bias=draw(st.booleans())), (p,)


def linear_at_positions(draw):
    layer, (p,) = linear(draw)
    return layer, (*draw(st.lists(st.integers(1, 3), min_size=1, max_size=2)), p)


def convolution(draw, n_axes):
    groups, stride = draw(st.integers(1, 2)), draw(st.integers(1, 2))
    n_in, n_out = (groups * draw(st.integers(1, 3)) for _ in range(2))
    kernel, dilation = ([draw(st.integers(1, k)) for _ in range(n_axes)] for k in (3, 2))
    padding = draw(st.sampled_from([0, 1, 2, "same", "valid"]))
    layer = (nn.Conv1d if n_axes == 1 else nn.Conv2d)(
        n_in,
        n_out,
        kernel,
        stride=1 if padding == "same" else stride,
        padding=padding,
        dilation=dilation,
        groups=groups,
        bias=draw(st.booleans()),
        padding_mode=draw(st.sampled_from(["zeros", "circular", "reflect", "replicate"])),
    )
    # Padding reaches no further than the input, and the kernel fits without any.
    sides = [
        max(3, d * (k - 1) + 1) + draw(st.integers(0, 2))
        for k, d in zip(kernel, dilation, strict=True)
    ]
    return layer, (n_in, *sides)


def wide_convolution(draw):
    """So many channels and so few positions that no gradient is kept."""
    groups = draw(st.sampled_from([1, 2]))
    length = draw(st.integers(4, 5))
    return nn.Conv1d(32, 32, 3, groups=groups, bias=draw(st.booleans())), (32, length)


# Two nearly equal numbers, normalised with a small eps, are mostly rounding error.
EPS = 0.5


def layer_norm(draw):
    normalized = draw(st.lists(st.integers(2, 4), min_size=1, max_size=2))
    affine = draw(st.booleans())
    layer = nn.LayerNorm(normalized, elementwise_affine=affine, bias=draw(st.booleans()), eps=EPS)
    return layer, (*draw(st.lists(st.integers(1, 3), max_size=2)), *normalized)


def group_norm(draw):
    groups, each = draw(st.integers(1, 3)), draw(st.integers(2, 3))
    spatial = draw(st.lists(st.integers(1, 3), max_size=2))
    layer = nn.GroupNorm(groups, groups * each, affine=draw(st.booleans()), eps=EPS)
    return layer, (groups * each, *spatial)


LAYERS = {
    "linear": linear,
    "linear at positions": linear_at_positions,
    "conv1d": functools.partial(convolution, n_axes=1),
    "conv2d": functools.partial(convolution, n_axes=2),
    "wide conv1d": wide_convolution,
    "layer norm": layer_norm,
    "group norm": group_norm,
}


def randomized(module):
    """Scales of 1 and shifts of 0, which norms start with, would hide mistakes."""
    for p in module.parameters():
        nn.init.normal_(p, std=1 / math.sqrt(p[0].numel() if p.ndim > 1 else 1))
    return module


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
@pytest.mark.parametrize("name", LAYERS)
@settings(max_examples=30)
@given(data=st.data())
def test_sums_and_norms_of_a_layer_equal_those_of_single_records(name, data):
    dtype, n = data.draw(st.sampled_from(list(TOLERANCE))), data.draw(BATCH_SIZES)
    seed = data.draw(st.integers(0, 10**6))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layer, shape = LAYERS[name](data.draw)
        # A trained layer before it: the gradient must also find its way through.
        module = randomized(nn.Sequential(nn.Linear(shape[-1], shape[-1]), layer, nn.Softplus()))
    clipping = data.draw(st.sampled_from(["flat", "automatic"]))
    assert_equals_the_loop(module.to(dtype), *random_records(seed, n, shape), clipping=clipping)


class Lookup(nn.Module):
    """Tokens arrive in the type of the parameters, as all inputs do."""

    def __init__(self, embedding):
        super().__init__()
        self.embedding = embedding

    def forward(self, x):
        return self.embedding(x.long())


@settings(max_examples=30)
@given(
    st.integers(0, 10**6),
    BATCH_SIZES,
    st.lists(st.integers(1, 4), max_size=2),
    st.sampled_from([None, 0, 2, -1]),
    st.sampled_from(list(TOLERANCE)),
)
def test_an_embedding_adds_up_repeated_tokens_and_skips_padding(seed, n, shape, padding, dtype):
    # Three tokens: most records hold one of them twice.
    module = seeded(
        lambda: nn.Sequential(
            Lookup(nn.Embedding(3, 4, padding_idx=padding)), nn.Linear(4, 2), nn.Softplus()
        ),
        seed,
    ).to(dtype)
    x = np.random.default_rng(seed).integers(0, 3, (n, *shape))
    assert_equals_the_loop(module, x, random_records(seed, n, ())[1])


@pytest.mark.parametrize(
    ("layer", "shape", "kept"),
    [
        (nn.Linear(16, 16, bias=False), (2, 16), False),
        (nn.Linear(16, 16, bias=False), (3, 16), True),
        (nn.Conv1d(32, 32, 3, bias=False), (32, 8), False),
        (nn.Conv1d(32, 32, 3, bias=False), (32, 9), True),
    ],
)
def test_gradients_are_kept_only_where_that_is_cheaper_than_their_norms(layer, shape, kept):
    # Both ways are in the shapes drawn above, then; a test of one of them would be half a test.
    layer = seeded(lambda: randomized(copy.deepcopy(layer)))
    with mock.patch.object(per_sample, "_instantiated", wraps=per_sample._instantiated) as spy:
        clipped_sum_of(layer, *random_records(0, 3, shape))
    assert spy.called == kept
    assert_equals_the_loop(layer, *random_records(0, 3, shape))


class MeanOverPositions(nn.Module):
    def forward(self, x):
        return x.mean(1)


def test_norms_are_right_where_positions_nearly_cancel():
    # Σ_t a_t is 1e-2 of its terms; squared norms made of their products, in single precision,
    # would be noise, and a norm that comes out too small lets a record contribute more than C.
    make = functools.partial(nn.Linear, 64, 64, bias=False)
    module = seeded(lambda: nn.Sequential(make(), MeanOverPositions()))
    x, y = random_records(0, 20, (3, 64))
    x[:, 2] = 1e-2 * x[:, 2] - x[:, 0] - x[:, 1]
    x, y = torch.from_numpy(x).float(), torch.from_numpy(y).float()
    expected = np.linalg.norm(per_sample_gradients(module, squared_error, x, y), axis=1)
    flat = FlatModule(module)
    norms = network.book_keeping(flat, squared_error, x, y).norms
    np.testing.assert_allclose(norms, expected, rtol=1e-5)
    for i in range(20):
        one = clipped_sum_of(flat, x[i : i + 1], y[i : i + 1], 1e-5)
        assert float(one.norm()) == pytest.approx(1e-5, rel=ROUNDING)


# --- whole networks -----------------------------------------------------------------------------


class Residual(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return x + self.inner(x)


class Attention(nn.Module):
    """One head; positions of a record look at each other, records do not."""

    def __init__(self, width):
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x):
        scores = self.query(x) @ self.key(x).mT / math.sqrt(x.shape[-1])
        return self.out(scores.softmax(-1) @ self.value(x))


def perceptron(activation=nn.Tanh):
    return nn.Sequential(
        nn.Linear(6, 8), activation(), nn.Linear(8, 8), activation(), nn.Linear(8, 3)
    )


def image_network(pool):
    return nn.Sequential(
        nn.Unflatten(1, (2, 6, 6)),
        nn.Conv2d(2, 4, 3, padding=1),
        nn.GroupNorm(2, 4),
        nn.ReLU(inplace=True),
        pool(),
        nn.Conv2d(4, 4, 1),
        nn.Tanh(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(16, 3),
    )


def sequence_network():
    return nn.Sequential(
        nn.Unflatten(1, (2, 12)),
        nn.Conv1d(2, 4, 3),
        nn.MaxPool1d(2),
        nn.GELU(),
        nn.AvgPool1d(2),
        nn.Flatten(),
        nn.Linear(8, 3),
    )


def residual_network():
    block = nn.Sequential(nn.LayerNorm(6), nn.Linear(6, 9), nn.GELU(), nn.Linear(9, 6))
    return nn.Sequential(Residual(block), nn.ReLU(), Residual(nn.Linear(6, 6)), nn.Linear(6, 3))


def transformer():
    feed_forward = nn.Sequential(nn.LayerNorm(6), nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 6))
    return nn.Sequential(
        nn.Unflatten(1, (4, 6)),
        nn.Linear(6, 6),
        Residual(nn.Sequential(nn.LayerNorm(6), Attention(6))),
        Residual(feed_forward),
        nn.Flatten(),
        nn.Linear(24, 3),
    )


ACTIVATIONS = [
    nn.ReLU,
    functools.partial(nn.ReLU, inplace=True),
    functools.partial(nn.ELU, inplace=True),
    nn.Tanh,
    nn.Sigmoid,
    nn.GELU,
    nn.SiLU,
    nn.LeakyReLU,
    nn.Softplus,
    nn.Hardswish,
]
NETWORKS = [
    *[(functools.partial(perceptron, activation), (6,)) for activation in ACTIVATIONS],
    (functools.partial(image_network, functools.partial(nn.MaxPool2d, 2)), (72,)),
    (functools.partial(image_network, functools.partial(nn.AvgPool2d, 3, 2, 1)), (72,)),
    (sequence_network, (24,)),
    (residual_network, (6,)),
    (transformer, (24,)),
]


@pytest.mark.parametrize(("make", "shape"), NETWORKS)
def test_ordinary_networks_go_by_book_keeping_and_equal_the_loop(make, shape):
    module = seeded(make)
    assert trial(module, shape, 3) == "book-keeping"
    for n in (0, 1, 7):
        assert_equals_the_loop(copy.deepcopy(module).double(), *random_records(n, n, shape))
        assert_equals_the_loop(module, *random_records(n, n, shape))


@pytest.mark.parametrize("method", METHODS)
def test_without_a_clip_the_sum_is_the_ordinary_gradient(method):
    module = seeded(residual_network).double()
    x, y = random_records(0, 9, (6,))
    squared_error(module(torch.from_numpy(x)), torch.from_numpy(y)).sum().backward()
    ordinary = torch.cat([p.grad.flatten() for p in module.parameters()])
    for clipping in ("flat", "automatic"):
        found = clipped_sum_of(module, x, y, float("inf"), method=method, clipping=clipping)
        torch.testing.assert_close(found, -ordinary, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("method", METHODS)
def test_only_the_records_of_the_batch_take_part(method):
    module, (x, y) = seeded(perceptron).double(), random_records(0, 20, (6,))
    flat, index = FlatModule(module), np.array([17, 3, 4])
    clipped_sum = NetworkClippedSum(flat, squared_error, 0.5, method=method)
    records = NetworkRecords(x, y, flat.flat)
    found = clipped_sum(flat.flat.clone(), records.take(index))
    expected = clipped_sum_of(module, x[index], y[index], method=method)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    nobody = clipped_sum(flat.flat.clone(), records.take(np.array([], dtype=int)))
    assert torch.equal(nobody, torch.zeros_like(flat.flat))


# --- the bound ----------------------------------------------------------------------------------

# A float32 sum of a few dozen terms of norm ≤ C is rounded by far less than ROUNDING times C.
EXTREMES = [0.0, 1.0, -1.0, 1e-40, 1e4, -1e10, 1e18, 1e30, 3e38, np.inf, -np.inf, np.nan]
BOUNDED = [(perceptron, 6), (residual_network, 6), (sequence_network, 24), (transformer, 24)]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("make", "width"), BOUNDED)
@settings(max_examples=12)
@given(
    st.lists(st.sampled_from(EXTREMES), min_size=24, max_size=24),
    st.lists(st.sampled_from(EXTREMES), min_size=24, max_size=24),
    st.sampled_from([-1.0, 1e3, 1e30, np.nan]),
    st.sampled_from([1e-3, 1.0, 50.0]),
    st.sampled_from(["flat", "automatic"]),
    st.sampled_from([1.0, 1e3]),
)
def test_one_record_moves_the_sum_by_no_more_than_the_sensitivity(
    make, width, method, first, second, target, clip_norm, clipping, size
):
    flat = FlatModule(seeded(make))
    theta = size * flat.flat
    clipped_sum = NetworkClippedSum(
        flat, squared_error, clip_norm, clipping=clipping, method=method
    )
    x, y = random_records(0, 10, (width,))

    def with_record(*record):
        rows, targets = x, y
        if record:
            rows = np.insert(x, 4, record[0][:width], axis=0)
            targets = np.insert(y, 4, record[1])
        records = NetworkRecords(rows, targets, flat.flat)
        return clipped_sum(theta, records.take(slice(None)))

    absent, present = with_record(), with_record(first, target)
    replaced = with_record(second, -1.0)
    assert torch.isfinite(present).all()
    assert present.norm() <= 11 * clipped_sum.norm_bound
    assert (present - absent).norm() <= clipped_sum.sensitivity("add_or_remove_one")
    assert (present - replaced).norm() <= clipped_sum.sensitivity("replace_one")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("clipping", ["flat", "automatic"])
def test_the_bound_is_reached_so_a_smaller_sensitivity_would_be_wrong(method, clipping):
    module = seeded(lambda: nn.Linear(2, 1))
    found = clipped_sum_of(module, [[300.0, 400.0]], [1e4], 0.25, method=method, clipping=clipping)
    assert float(found.norm()) == pytest.approx(0.25, rel=ROUNDING)
    opposite = clipped_sum_of(
        module, [[300.0, 400.0]], [-1e4], 0.25, method=method, clipping=clipping
    )
    assert float((found - opposite).norm()) == pytest.approx(0.5, rel=ROUNDING)


@pytest.mark.parametrize("relation", RELATIONS)
def test_sensitivity_is_the_clip_times_the_relation_and_the_rounding(relation):
    clipped_sum = NetworkClippedSum(FlatModule(nn.Linear(1, 1)), squared_error, 0.5)
    expected = 0.5 * sensitivity_factor(relation) * (1 + ROUNDING)
    assert clipped_sum.sensitivity(relation) == expected
    assert 0 < ROUNDING < 1e-3


def test_the_clip_is_joint_over_all_parameters():
    # Clipped tensor by tensor, the norm would be 2C.
    found = clipped_sum_of(seeded(perceptron), *random_records(0, 1, (6,), size=100.0), 0.1)
    assert float(found.norm()) == pytest.approx(0.1, rel=ROUNDING)


@pytest.mark.parametrize("clip_norm", [0.0, -1.0, float("nan"), "1", None])
def test_a_clip_that_bounds_nothing_is_refused(clip_norm):
    with pytest.raises(ValueError, match="clip_norm="):
        NetworkClippedSum(FlatModule(nn.Linear(1, 1)), squared_error, clip_norm)


def test_dropout_draws_anew_and_stays_within_the_bound():
    module = seeded(
        lambda: nn.Sequential(nn.Linear(6, 40), nn.Tanh(), nn.Dropout(0.5), nn.Linear(40, 3))
    )
    assert trial(module, (6,), 3) == "book-keeping"
    x, y = np.repeat(random_records(0, 1, (6,))[0], 8, axis=0), np.zeros(8)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for method in METHODS:
            first, second = (clipped_sum_of(module, x, y, 1e-2, method=method) for _ in range(2))
            assert not torch.equal(first, second)
            assert first.norm() <= 8e-2 * (1 + ROUNDING)
            # Equal records get masks of their own: with one mask they would add up to 8 C.
            assert first.norm() < 7.9e-2


# --- records without a finite gradient ----------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e200, 3e38, 1e30])
@pytest.mark.parametrize(
    ("make", "width"), [(functools.partial(perceptron, nn.ReLU), 6), (sequence_network, 24)]
)
def test_records_without_a_finite_gradient_contribute_nothing(make, width, bad, method):
    module, (x, y) = seeded(make), random_records(0, 12, (width,))
    good = np.delete(np.arange(12), [0, 5, 11])
    x[[0, 5, 11]] = bad
    found = clipped_sum_of(module, x, y, method=method)
    expected = clipped_sum_of(module, x[good], y[good], method=method)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    everybody = clipped_sum_of(module, np.full_like(x, bad), y, method=method)
    assert torch.equal(everybody, torch.zeros_like(everybody))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e30])
def test_nor_do_records_without_a_finite_target(bad, method):
    module, (x, y) = seeded(perceptron), random_records(0, 12, (6,))
    y[[2, 7]] = bad
    good = np.delete(np.arange(12), [2, 7])
    found = clipped_sum_of(module, x, y, method=method)
    expected = clipped_sum_of(module, x[good], y[good], method=method)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_large_finite_gradients_are_clipped_and_not_dropped(method):
    module = seeded(lambda: nn.Linear(1, 1, bias=False))
    found = clipped_sum_of(module, np.ones((30, 1)), np.full(30, 1e19), 0.5, method=method)
    assert float(found) == pytest.approx(15.0, rel=1e-5)


def test_finite_norms_whose_sum_overflows_are_clipped_all_the_same():
    flat = FlatModule(nn.Linear(1, 1, bias=False))
    norms = torch.tensor([3e38, 2e38, 1.0])

    def gradients(*_):
        return network.Gradients(norms, lambda c: (c * norms).sum()[None])

    with mock.patch.object(network, "book_keeping", gradients):
        found = clipped_sum_of(flat, np.ones((3, 1)), np.ones(3), 0.5)
    assert float(found) == pytest.approx(-1.5, rel=1e-5)


# --- a piece at a time --------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("size", [1, 2, 7, 12, 13, 14, 10**6, None])
def test_the_physical_batch_size_does_not_matter(size, method):
    module, (x, y) = seeded(residual_network).double(), random_records(0, 13, (6,))
    x[4] = np.nan
    found = clipped_sum_of(module, x, y, method=method, physical_batch_size=size)
    whole = clipped_sum_of(module, x, y, method=method, physical_batch_size=13)
    torch.testing.assert_close(found, whole, rtol=0, atol=1e-12)


def test_vmap_keeps_no_more_gradients_than_it_may(monkeypatch):
    module, (x, y) = seeded(perceptron).double(), random_records(0, 13, (6,))
    whole, seen = clipped_sum_of(module, x, y, method="vmap"), []
    take = network.vmapped

    def note(module, loss, x, y, *rest):
        seen.append(len(x))
        return take(module, loss, x, y, *rest)

    monkeypatch.setattr(network, "vmapped", note)
    for numbers, pieces in ((5 * len(whole), [5, 5, 3]), (1, [1] * 13)):
        monkeypatch.setattr(network, "_VMAP_NUMBERS", numbers)
        seen.clear()
        found = clipped_sum_of(module, x, y, method="vmap")
        torch.testing.assert_close(found, whole, rtol=0, atol=1e-12)
        assert seen == pieces


class Greedy(nn.Module):
    """Runs out of memory above some batch size; ``seen`` is shared with copies."""

    seen: list[int] = []  # noqa: RUF012 - of the class on purpose

    def __init__(self, limit, error):
        super().__init__()
        self.inner, self.limit, self.error = perceptron(), limit, error
        Greedy.seen.clear()

    def forward(self, x):
        Greedy.seen.append(len(x))
        if len(x) > self.limit:
            raise self.error
        return self.inner(x)


OUT_OF_MEMORY = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB"),
    RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried ..."),
    MemoryError(),
]


@pytest.mark.parametrize("error", OUT_OF_MEMORY)
def test_out_of_memory_halves_the_pieces_and_gives_the_same_sum(error):
    module, (x, y) = seeded(lambda: Greedy(3, error)), random_records(0, 13, (6,))
    found = clipped_sum_of(module, x, y)
    assert Greedy.seen == [13, 7, 4, *[2] * 6, 1]
    torch.testing.assert_close(found, clipped_sum_of(module.inner, x, y), rtol=1e-5, atol=1e-6)


def test_memory_that_runs_out_midway_loses_no_records(monkeypatch):
    module, (x, y) = seeded(perceptron).double(), random_records(0, 13, (6,))
    whole, sizes, fail_at = clipped_sum_of(module, x, y), [], {2, 4}
    take = network.vmapped

    def fails_twice(module, loss, x, y, *rest):
        sizes.append(len(x))
        if len(sizes) in fail_at:
            raise torch.OutOfMemoryError
        return take(module, loss, x, y, *rest)

    monkeypatch.setattr(network, "vmapped", fails_twice)
    found = clipped_sum_of(module, x, y, method="vmap", physical_batch_size=5)
    assert sizes == [5, 5, 3, 3, 2, 2, 1]
    torch.testing.assert_close(found, whole, rtol=0, atol=1e-12)


@pytest.mark.parametrize("error", OUT_OF_MEMORY)
def test_too_little_memory_for_one_record_is_raised(error):
    module = seeded(lambda: Greedy(0, error))
    with pytest.raises(type(error)):
        clipped_sum_of(module, *random_records(0, 5, (6,)))
    assert Greedy.seen == [5, 3, 2, 1]


def test_a_record_on_which_the_module_fails_contributes_nothing():
    # An exception would tell everyone that the record is there.
    module = seeded(lambda: nn.Sequential(nn.Embedding(5, 4), nn.Flatten(), nn.Linear(12, 1)))
    wrapped = Wraps(lambda self, x: self.layer(x.long()), layer=module)
    wrapped.head = nn.Identity()
    x = np.random.default_rng(0).integers(0, 5, (9, 3)).astype(np.float32)
    y = np.zeros(9, np.float32)
    bad = x.copy()
    bad[4, 1] = 5
    for method in METHODS:
        found = clipped_sum_of(wrapped, bad, y, method=method)
        without = clipped_sum_of(wrapped, np.delete(x, 4, 0), y[:-1], method=method)
        torch.testing.assert_close(found, without)


# --- which parameters, and how often ------------------------------------------------------------


def frozen_first_layer():
    module = perceptron()
    module[0].requires_grad_(False)
    return module


def frozen_in_between():
    module = perceptron()
    module[2].weight.requires_grad_(False)
    module[4].bias.requires_grad_(False)
    return module


@pytest.mark.parametrize("make", [frozen_first_layer, frozen_in_between])
def test_frozen_parameters_stay_out_of_norms_and_sums(make):
    module = seeded(make)
    trained = sum(p.numel() for p in module.parameters() if p.requires_grad)
    assert trained < sum(p.numel() for p in module.parameters())
    assert len(FlatModule(module).flat) == trained
    assert trial(module, (6,), 3) == "book-keeping"
    assert_equals_the_loop(module, *random_records(0, 6, (6,)))
    assert_equals_the_loop(module.double(), *random_records(0, 6, (6,)))


def test_a_module_without_trained_parameters_is_refused():
    with pytest.raises(ValueError, match="parameters to train"):
        FlatModule(nn.Linear(2, 2).requires_grad_(False))


def test_a_module_of_two_precisions_is_refused():
    with pytest.raises(ValueError, match="one dtype"):
        FlatModule(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).double()))


class Tied(nn.Module):
    """Two layers with one weight."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.head = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.head(torch.tanh(self.second(torch.tanh(self.first(x)))))


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.head = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x):
        return self.head(torch.tanh(self.layer(torch.tanh(self.layer(x)))))


class Functional(nn.Module):
    """A weight in no layer, and a layer's weight used a second time behind its back."""

    def __init__(self):
        super().__init__()
        self.scale, self.layer = nn.Parameter(torch.ones(6)), nn.Linear(6, 6)
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        return self.head(F.linear(torch.tanh(self.layer(x)) * self.scale, self.layer.weight))


class ByKeyword(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, x):
        return self.layer(input=x)


class SequenceFirst(nn.Module):
    """Layers that see positions before records, which book-keeping would take for records."""

    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Linear(2, 4), nn.Linear(4, 3)

    def forward(self, x):
        sequence = x.unflatten(1, (3, 2)).transpose(0, 1)
        return self.head(torch.tanh(self.embed(sequence)).sum(0))


class RecordsAsPositions(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Linear(2, 4), nn.Linear(12, 3)

    def forward(self, x):
        return self.head(torch.tanh(self.embed(x.reshape(-1, 2))).reshape(len(x), -1))


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


@pytest.mark.parametrize("n", [3, 5])  # as many records as positions, and not
@pytest.mark.parametrize(
    "make",
    [
        Tied,
        Twice,
        Functional,
        ByKeyword,
        SequenceFirst,
        RecordsAsPositions,
        SelfAttention,
        weight_normalized,
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


# --- what is refused ----------------------------------------------------------------------------


class Wraps(nn.Module):
    def __init__(self, forward, layer=None):
        super().__init__()
        self.body, self.layer = forward, layer
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        return self.body(self, x)


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


def recurrent():
    return Wraps(
        lambda self, x: self.head(self.layer(x.unflatten(1, (2, 3)))[0].flatten(1)),
        nn.LSTM(3, 3, batch_first=True),
    )


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
    "LSTM": (recurrent, "LSTM.*Conv1d, or attention made of Linear layers"),
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


@pytest.mark.parametrize("name", REFUSED)
def test_modules_without_gradients_of_records_are_refused_and_told_why(name):
    make, message = REFUSED[name]
    with pytest.raises(ValueError, match=re.compile(message, re.DOTALL)):
        trial(seeded(make), (6,), 3)


# --- what is left alone -------------------------------------------------------------------------


def test_the_module_of_the_user_is_never_changed():
    module = seeded(functools.partial(perceptron, functools.partial(nn.ReLU, inplace=True)))
    module.eval()
    module[2].requires_grad_(False)
    before = copy.deepcopy(module.state_dict())
    flags = [(p.requires_grad, p.data_ptr()) for p in module.parameters()]
    flat = FlatModule(module)
    assert trial(module, (6,), 3) == "book-keeping"
    for method in METHODS:
        theta = torch.full_like(flat.flat, 0.3)
        clipped_sum_of(flat, *random_records(0, 5, (6,)), theta=theta, method=method)
        assert (theta == 0.3).all()
    assert [(p.requires_grad, p.data_ptr()) for p in module.parameters()] == flags
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name])
    for part in module.modules():
        assert not part.training
        assert not part._forward_hooks
        assert not part._forward_pre_hooks
        assert not part._backward_hooks
    assert module[1].inplace
    assert module[3].inplace
    assert all(p.grad is None for p in module.parameters())


def test_private_records_are_never_changed_by_a_module_that_works_in_place():
    module = seeded(lambda: Wraps(lambda self, x: self.head(x.mul_(0.5))))
    x, y = random_records(0, 8, (6,))
    x, y = x.astype(np.float32), y.astype(np.float32)
    kept = x.copy()
    for method in METHODS:
        clipped_sum_of(module, x, y, method=method)
    np.testing.assert_array_equal(x, kept)


def test_the_random_state_of_torch_is_left_alone():
    x, y = random_records(0, 5, (6,))
    module = seeded(residual_network)
    before = torch.get_rng_state()
    flat = FlatModule(module)
    assert trial(module, (6,), 3) == "book-keeping"
    for method in METHODS:
        clipped_sum_of(flat, x, y, method=method)
    stream = SecureStream(b"0123456789abcdef")
    noise.gaussian(lambda: torch.zeros(2**15), call_of(2**15), stream)
    assert torch.equal(torch.get_rng_state(), before)


# --- mixed precision ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "make", "width"),
    [
        ("book-keeping", perceptron, 6),
        ("vmap", perceptron, 6),
        ("book-keeping", residual_network, 6),
    ],
)
def test_mixed_precision_agrees_roughly_and_stays_within_the_bound(method, make, width):
    module, (x, y) = seeded(make), random_records(0, 40, (width,))
    exact = clipped_sum_of(module, x, y, method=method)
    rough = clipped_sum_of(module, x, y, method=method, mixed_precision=True)
    assert rough.dtype == torch.float32
    assert 0 < (rough - exact).norm() <= 0.05 * exact.norm()
    one = clipped_sum_of(module, 100 * x[:1], y[:1], method=method, mixed_precision=True)
    assert float(one.norm()) == pytest.approx(0.5, rel=ROUNDING)


# --- noise --------------------------------------------------------------------------------------


def call_of(*shape, scale=1.0):
    return _trace.MechanismCall(
        "gaussian", 1.0, scale=scale, rate=1.0, shape=shape, step=0, width=grid_width(scale)
    )


def drawn(shape, scale=1.0, stream=None, dtype=torch.float64):
    stream = stream or SecureStream(b"a key of 16 byte")
    exact = torch.zeros(shape, dtype=dtype)
    return noise.gaussian(lambda: exact, call_of(*shape, scale=scale), stream)


MANY = [(2**14 - 1,), (2**14,), (2**14 + 1,), (129, 257), (100_003,), (7, 31, 401)]


@pytest.mark.parametrize("shape", MANY)
def test_noise_on_many_numbers_is_normal_of_the_declared_scale_and_no_other(shape):
    found = drawn(shape, scale=3.0)
    assert found.shape == shape
    flat = found.numpy().ravel()
    assert stats.kstest(flat / 3.0, "norm").pvalue > 1e-6
    for wrong in (2 / 3, 3 / 2):
        assert stats.kstest(flat / 3.0 * wrong, "norm").pvalue < 1e-6
    low, high = stats.chi2.ppf([1e-6, 1 - 1e-6], flat.size)
    assert low < (flat / 3.0) @ (flat / 3.0) < high


def test_the_tails_of_much_noise_are_those_of_a_normal():
    flat = drawn((2**20,)).numpy()
    for threshold in (2.0, 3.0, 4.0):
        low, high = stats.binom.ppf([1e-6, 1 - 1e-6], flat.size, 2 * stats.norm.sf(threshold))
        assert low <= (np.abs(flat) > threshold).sum() <= high


def correlation(first, second):
    return abs(np.corrcoef(first, second)[0, 1]) * math.sqrt(len(first))


def test_successive_draws_and_their_halves_share_no_noise():
    # Correlations of m independent normals are N(0, 1/m), those of their squares too. Box-Muller
    # makes a pair of each radius, and puts its members into different halves.
    stream, size = SecureStream(b"a key of 16 byte"), 2**16
    first, second, third = (drawn((size,), stream=stream).numpy() for _ in range(3))
    # On a grid of 2^-20 two of 2^16 numbers each fall together 2^32 · 2^-20/√(4π) ≈ 1156 times.
    assert np.isin(first, second).sum() < 1400
    for one, other in [(first, second), (second, third), (first, third)]:
        assert correlation(one, other) < 6
        assert correlation(one**2, other**2) < 6
    left, right = first[: size // 2], first[size // 2 :]
    assert correlation(left, right) < 6
    assert correlation(left**2, right**2) < 6
    assert correlation(first[:-1], first[1:]) < 6


def test_much_noise_is_added_to_the_value_and_leaves_it_alone():
    exact = torch.arange(2**14 + 1, dtype=torch.float32)
    key = b"a key of 16 byte"
    found = noise.gaussian(lambda: exact, call_of(len(exact), scale=0.5), SecureStream(key))
    expected = exact.double() + drawn((len(exact),), 0.5, SecureStream(key))
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
    assert torch.equal(exact, torch.arange(2**14 + 1, dtype=torch.float32))


def test_released_noise_is_not_overwritten_by_the_next_draw():
    stream = SecureStream(b"a key of 16 byte")
    first = drawn((2**15,), stream=stream)
    kept = first.clone()
    drawn((2**15,), stream=stream)
    assert torch.equal(first, kept)


# --- update rules -------------------------------------------------------------------------------


def gradients(steps, size=7):
    rng = np.random.default_rng(0)
    return [torch.from_numpy(rng.standard_normal(size)) for _ in range(steps)]


def path(rule, steps, rates, noise_variance=0.0):
    theta = torch.linspace(-1, 1, 7, dtype=torch.float64)
    state, found = rule.init(theta), []
    for gradient, rate in zip(gradients(steps), rates, strict=True):
        theta, state = rule.step(state, theta, gradient, noise_variance, rate)
        found.append(theta)
    return torch.stack(found)


def test_our_momentum_is_that_of_torch():
    rates = [0.1, 0.2, 0.05, 0.1, 0.3, 0.01]
    torchs = TorchOptimizer(functools.partial(torch.optim.SGD, lr=1.0, momentum=0.9))
    ours, theirs = path(MomentumSGD(0.9), 6, rates), path(torchs, 6, rates)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


def test_without_noise_our_adam_is_that_of_torch():
    make = functools.partial(torch.optim.Adam, betas=(0.9, 0.99), eps=1e-30)
    rates = [0.1] * 5 + [0.01] * 5
    ours, theirs = path(NoiseCorrectedAdam(), 10, rates), path(TorchOptimizer(make), 10, rates)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-10)


def test_known_noise_is_taken_out_of_the_second_moment_down_to_a_floor():
    rule = NoiseCorrectedAdam(floor=0.25, max_direction=3.0)
    gradient = torch.tensor([2.0, -2.0, 1.1, 0.1, 0.0], dtype=torch.float64)
    direction, _ = rule.direction(rule.init(gradient), gradient, 1.0)
    corrected = np.sqrt(np.maximum(gradient.numpy() ** 2 - 1.0, 0.25))
    np.testing.assert_allclose(direction, gradient.numpy() / corrected, rtol=1e-12)
    direction, _ = rule.direction(rule.init(gradient), gradient, 3.999)
    assert direction.abs().max() <= 3.0


def test_directions_are_bounded_and_zero_gradients_stand_still():
    rule = NoiseCorrectedAdam()
    state = rule.init(torch.zeros(2))
    for gradient in (torch.tensor([1e-6, 0.0]), torch.tensor([1.0, 0.0])):
        direction, state = rule.direction(state, gradient, 0.0)
        assert direction.abs().max() <= rule.max_direction
        assert direction[1] == 0


def test_update_rules_leave_what_they_are_given_alone():
    for rule in (MomentumSGD(), NoiseCorrectedAdam(), TorchOptimizer(torch.optim.Adam)):
        theta, gradient = torch.ones(7), torch.full((7,), 2.0)
        state = rule.init(theta)
        for _ in range(2):
            found, state = rule.step(state, theta, gradient, 0.0, 0.1)
        assert (found > 1.0).all()  # up the log-likelihood
        assert (theta == 1.0).all()
        assert (gradient == 2.0).all()


def test_a_gradient_whose_terms_cancel_is_still_clipped():
    # ‖Σ_t b_t a_tᵀ‖² by Gram matrices is a sum of terms of order M²; in single precision their
    # rounding would hide the gradient, and the record would pass unclipped.
    class Summed(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(64, 64, bias=False)

        def forward(self, x):
            return self.layer(x.unflatten(1, (3, 64))).sum((1, 2))[:, None]

    module = seeded(Summed)
    rng = np.random.default_rng(0)
    for large in (30.0, 100.0, 300.0, 1e4, 1e8) * 3:
        v1, v2, w = rng.standard_normal((3, 64))
        record = np.concatenate([large * v1, large * v2, w - large * (v1 + v2)])[None]
        total = clipped_sum_of(
            module, record.astype(np.float32), np.zeros(1), 1.0, loss=lambda z, y: z[:, 0]
        )
        assert torch.linalg.vector_norm(total) <= 1 + ROUNDING


class MixesInTraining(nn.Module):
    def __init__(self, how):
        super().__init__()
        self.how, self.head, self.seen = how, nn.Linear(6, 3), torch.zeros(6)

    def forward(self, x):
        if self.training and self.how == "mean":
            x = x - x.mean(0)
        if self.training and self.how == "running mean":
            self.seen = 0.9 * self.seen + 0.1 * x.detach().mean(0)
            x = x - self.seen
        if self.training and self.how == "batch norm":
            x = F.batch_norm(x, None, None, training=True)
        if self.training and self.how == "next record":
            x = torch.cat([x[:-1] + x[1:], x[-1:]])
        if self.training and self.how == "mix-up":
            x = 0.7 * x + 0.3 * x[torch.randperm(len(x))]
        if self.how == "largest value":
            x = x / x.abs().max().clamp(min=10)
        return self.head(x)


@pytest.mark.parametrize(
    "how", ["mean", "running mean", "batch norm", "next record", "mix-up", "largest value"]
)
def test_a_module_that_mixes_records_in_training_alone_is_refused(how):
    with pytest.raises(ValueError, match="by itself"):
        trial(MixesInTraining(how), (6,), 3)


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


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_parameters_of_little_precision_are_refused(dtype):
    with pytest.raises(ValueError, match="mixed_precision"):
        FlatModule(nn.Linear(3, 2).to(dtype))


@pytest.mark.parametrize("method", METHODS)
def test_autocast_of_the_caller_does_not_reach_the_sum(method):
    x, y = random_records(0, 9, (6,))
    plain = clipped_sum_of(seeded(residual_network), x, y, method=method)
    with torch.autocast("cpu", torch.bfloat16):
        found = clipped_sum_of(seeded(residual_network), x, y, method=method)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, plain)


def test_norms_of_huge_inputs_and_tiny_gradients_do_not_underflow():
    # ‖a‖²‖b‖² underflows in single precision where ‖a‖‖b‖ does not.
    module = nn.Linear(1, 1, bias=False)
    x, y = np.full((1, 1), 1e19, np.float32), np.zeros(1)
    total = clipped_sum_of(module, x, y, 1e-5, loss=lambda z, y: 1e-23 * z[:, 0])
    assert float(total.norm()) <= 1e-5 * (1 + ROUNDING)


def test_norms_of_tiny_inputs_and_huge_gradients_do_not_underflow():
    x, y = np.full((1, 5), 1e-30, np.float32), np.full(1, -1e30, np.float32)
    total = clipped_sum_of(seeded(lambda: nn.Linear(5, 1, bias=False)), x, y, 0.1)
    assert float(total.norm()) <= 0.1 * (1 + ROUNDING)


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


def test_part_of_the_records_by_a_slice():
    x, y = random_records(0, 9, (6,))
    records = NetworkRecords(x, y, torch.zeros(1))
    found, _ = records.take(slice(5, 8)).piece(1, 3)
    np.testing.assert_allclose(found, x[6:8].astype(np.float32))


def test_an_embedding_of_very_many_equal_tokens_stays_within_the_bound():
    module = nn.Sequential(nn.Embedding(2, 3), MeanOverPositions())
    tokens = np.zeros((1, 4096), np.int64)
    wrapped = Wraps(lambda self, x: 1e3 * self.layer(x.long()), layer=module)
    wrapped.head = nn.Identity()
    total = clipped_sum_of(seeded(lambda: wrapped), tokens.astype(np.float32), np.ones(1), 1.0)
    assert float(total.norm()) <= 1 + ROUNDING


@pytest.mark.parametrize("scale", [0.1, 100.0])
def test_noise_before_clipping_leaves_the_bound_of_a_record(scale):
    module, (x, y) = seeded(perceptron), random_records(0, 1, (6,))
    flat = FlatModule(module)
    plain = NetworkClippedSum(flat, squared_error, 0.5, method="vmap")
    noisy = NetworkClippedSum(flat, squared_error, 0.5, method="vmap", prenoise_scale=scale)
    theta, batch = flat.flat.clone(), NetworkRecords(x, y, flat.flat)
    assert noisy.sensitivity("replace_one") == plain.sensitivity("replace_one")
    sums = torch.stack([noisy(theta, batch.take(slice(None))) for _ in range(20)])
    assert torch.linalg.vector_norm(sums, dim=1).max() <= noisy.norm_bound
    assert sums.std(dim=0).min() > 0
    with pytest.raises(ValueError, match="vmap"):
        NetworkClippedSum(flat, squared_error, 0.5, prenoise_scale=scale)
