"""Sums and norms per record of each kind of layer equal a loop over single records."""

import copy
import functools
import math
from unittest import mock

import numpy as np
import pytest
import torch
from engine.networks import (
    TOLERANCE,
    MeanOverPositions,
    Wraps,
    assert_equals_the_loop,
    clipped_sum_of,
    random_records,
    seeded,
    squared_error,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from reference.per_sample_gradients import per_sample_gradients
from torch import nn

from skdp.engine.modules import layers as per_sample
from skdp.engine.modules.flat_module import FlatModule
from skdp.engine.modules.gradients import book_keeping
from skdp.engine.modules.network_sum import ROUNDING

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
    modes = ["zeros", "circular", "replicate", "reflect"]
    padding = draw(st.sampled_from([0, 1, 2, "same", "valid"]))
    layer = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[n_axes - 1](
        n_in,
        n_out,
        kernel,
        stride=1 if padding == "same" else stride,
        padding=padding,
        dilation=dilation,
        groups=groups,
        bias=draw(st.booleans()),
        padding_mode=draw(st.sampled_from(modes)),
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


def layer_norm(draw, kind):
    normalized = draw(st.lists(st.integers(2, 4), min_size=1, max_size=2))
    bias = {"bias": draw(st.booleans())} if kind is nn.LayerNorm else {}
    layer = kind(normalized, elementwise_affine=draw(st.booleans()), eps=EPS, **bias)
    return layer, (*draw(st.lists(st.integers(1, 3), max_size=2)), *normalized)


def group_norm(draw):
    groups, each = draw(st.integers(1, 3)), draw(st.integers(2, 3))
    spatial = draw(st.lists(st.integers(1, 3), max_size=2))
    layer = nn.GroupNorm(groups, groups * each, affine=draw(st.booleans()), eps=EPS)
    return layer, (groups * each, *spatial)


def instance_norm(draw):
    channels = draw(st.integers(1, 4))
    spatial = draw(st.lists(st.integers(2, 3), min_size=1, max_size=3))
    kind = (nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)[len(spatial) - 1]
    return kind(channels, affine=draw(st.booleans()), eps=EPS), (channels, *spatial)


LAYERS = {
    "linear": linear,
    "linear at positions": linear_at_positions,
    "conv1d": functools.partial(convolution, n_axes=1),
    "conv2d": functools.partial(convolution, n_axes=2),
    "conv3d": functools.partial(convolution, n_axes=3),
    "wide conv1d": wide_convolution,
    "layer norm": functools.partial(layer_norm, kind=nn.LayerNorm),
    "rms norm": functools.partial(layer_norm, kind=nn.RMSNorm),
    "group norm": group_norm,
    "instance norm": instance_norm,
}


def randomized(module):
    """Scales of 1 and shifts of 0, which norms start with, would hide mistakes."""
    for p in module.parameters():
        nn.init.normal_(p, std=1 / math.sqrt(p[0].numel() if p.ndim > 1 else 1))
    return module


@pytest.mark.quick(3)
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


LOOKUPS = {None: nn.Embedding} | {
    mode: functools.partial(nn.EmbeddingBag, mode=mode) for mode in ("sum", "mean", "max")
}


@pytest.mark.parametrize("mode", LOOKUPS)
@settings(max_examples=20)
@given(
    st.integers(0, 10**6),
    BATCH_SIZES,
    st.lists(st.integers(1, 4), min_size=1, max_size=2),
    st.sampled_from([None, 0, 2, -1]),
    st.sampled_from(list(TOLERANCE)),
)
def test_repeated_tokens_are_added_up_and_padding_is_skipped(mode, seed, n, shape, padding, dtype):
    # Three tokens: most records hold one of them twice. A bag shares its gradient among them.
    module = seeded(
        lambda: nn.Sequential(
            Lookup(LOOKUPS[mode](3, 4, padding_idx=padding)), nn.Linear(4, 2), nn.Softplus()
        ),
        seed,
    ).to(dtype)
    x = np.random.default_rng(seed).integers(0, 3, (n, *(shape[:1] if mode else shape)))
    assert_equals_the_loop(module, x, random_records(seed, n, ())[1])


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("kind", [nn.Conv1d, nn.Conv2d, nn.Conv3d])
def test_gradients_of_a_convolution_are_those_of_its_patches(kind, groups):
    # Patches are taken on other devices, and where positions are few.
    n_axes = 1 + [nn.Conv1d, nn.Conv2d, nn.Conv3d].index(kind)
    layer = kind(4, 6, 3, stride=2, groups=groups, dtype=torch.float64)
    a = torch.randn(5, 4, *[8] * n_axes, dtype=torch.float64)
    b = torch.randn_like(layer(a)).detach()
    outputs = b.flatten(2).unflatten(1, (groups, -1)).mT
    by_patches = outputs.mT @ per_sample._patches(layer, a)
    torch.testing.assert_close(per_sample._gradients(layer, a, b).flatten(1), by_patches.flatten(1))


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
    norms = book_keeping(flat, squared_error, x, y).norms
    np.testing.assert_allclose(norms, expected, rtol=1e-5)
    for i in range(20):
        one = clipped_sum_of(flat, x[i : i + 1], y[i : i + 1], 1e-5)
        assert float(one.norm()) == pytest.approx(1e-5, rel=ROUNDING)


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


@pytest.mark.parametrize(
    ("size", "slope", "width", "clip"), [(1e19, 1e-23, 1, 1e-5), (1e-30, 1e30, 5, 0.1)]
)
def test_norms_of_huge_and_of_tiny_factors_do_not_underflow(size, slope, width, clip):
    # ‖a‖²‖b‖² underflows in single precision where ‖a‖‖b‖ does not.
    module = seeded(lambda: nn.Linear(width, 1, bias=False))
    x, y = np.full((1, width), size, np.float32), np.zeros(1)
    total = clipped_sum_of(module, x, y, clip, loss=lambda z, y: slope * z[:, 0])
    assert float(total.norm()) <= clip * (1 + ROUNDING)


def test_an_embedding_of_very_many_equal_tokens_stays_within_the_bound():
    module = nn.Sequential(nn.Embedding(2, 3), MeanOverPositions())
    tokens = np.zeros((1, 4096), np.int64)
    wrapped = Wraps(lambda self, x: 1e3 * self.layer(x.long()), layer=module)
    wrapped.head = nn.Identity()
    total = clipped_sum_of(seeded(lambda: wrapped), tokens.astype(np.float32), np.ones(1), 1.0)
    assert float(total.norm()) <= 1 + ROUNDING


@pytest.mark.parametrize("size", [127, 128, 784, 1024, 1025])
def test_norms_of_vectors_are_near_those_in_double_precision_at_any_scale(size):
    scales = torch.tensor([0.0, 1e-38, 1e-25, 1e-16, 1e-14, 1.0, 1e14, 1e16, 1e25, 1e38])
    ones = torch.ones(len(scales), size)  # each addition is rounded the same way
    for vectors in (ones, torch.rand(ones.shape), torch.eye(size)[: len(scales)]):
        vectors = vectors * scales[:, None]
        exact = vectors.double().square().sum(1).sqrt()
        torch.testing.assert_close(
            per_sample._norms(vectors), exact, rtol=ROUNDING / 3, atol=0.0, check_dtype=True
        )


def test_norms_of_vectors_without_one_are_no_numbers():
    vectors = torch.ones(3, 784)
    vectors[0, 0], vectors[1, 0] = math.nan, -math.inf
    found = per_sample._norms(vectors)
    assert found[0].isnan()
    assert found[1:].tolist() == [math.inf, 28.0]


@pytest.mark.parametrize("other", [0.0, 1e-30, 1e30, math.inf, math.nan])
def test_no_vector_changes_the_rounding_of_the_norms_of_others(other):
    vectors = torch.rand(64, 784, generator=torch.Generator().manual_seed(0))
    beside = vectors.clone()
    beside[7] = other
    others = torch.arange(64) != 7
    assert torch.equal(per_sample._norms(beside)[others], per_sample._norms(vectors)[others])
    assert torch.equal(per_sample._norms(vectors[others]), per_sample._norms(vectors)[others])
