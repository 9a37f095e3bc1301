"""Clipped sums of networks: against a loop over single records, and against their bound."""

import copy
import functools
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
import torch
from bundles import bundled
from engine.networks import (
    METHODS,
    Wraps,
    assert_equals_the_loop,
    clipped_sum_of,
    image_network,
    perceptron,
    random_records,
    residual_network,
    seeded,
    sequence_network,
    squared_error,
    transformer,
    trial,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from skdp.algorithms.parts.network_models import Clip, NetworkModel
from skdp.engine.modules import flat_module
from skdp.engine.modules import network_sum as network
from skdp.engine.modules.checks import tried
from skdp.engine.modules.flat_module import FlatModule
from skdp.engine.modules.network_records import NetworkRecords
from skdp.engine.modules.network_sum import ROUNDING, NetworkClippedSum
from skdp.models.tasks import Classification
from skdp.relations import RELATIONS, sensitivity_factor

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


@pytest.mark.thorough
@bundled(("make", "shape"), NETWORKS)
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


# --- the bound -----------------------------------------------------------------------------------


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


# --- records without a finite gradient -----------------------------------------------------------


@bundled("method", METHODS)
@bundled("bad", [np.nan, np.inf, -np.inf, 1e200, 3e38, 1e30])
@bundled(("make", "width"), [(functools.partial(perceptron, nn.ReLU), 6), (sequence_network, 24)])
def test_records_without_a_finite_gradient_contribute_nothing(make, width, bad, method):
    module, (x, y) = seeded(make), random_records(0, 12, (width,))
    good = np.delete(np.arange(12), [0, 5, 11])
    x[[0, 5, 11]] = bad
    found = clipped_sum_of(module, x, y, method=method)
    expected = clipped_sum_of(module, x[good], y[good], method=method)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    everybody = clipped_sum_of(module, np.full_like(x, bad), y, method=method)
    assert torch.equal(everybody, torch.zeros_like(everybody))
    x, y = random_records(0, 12, (width,))
    y[[0, 5, 11]] = bad  # nor do those without a finite target
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
        return network.Gradients(norms, lambda c: (c * norms).sum()[None], (), None)

    with mock.patch.object(network, "book_keeping", gradients):
        found = clipped_sum_of(flat, np.ones((3, 1)), np.ones(3), 0.5)
    assert float(found) == pytest.approx(-1.5, rel=1e-5)


# --- a piece at a time ---------------------------------------------------------------------------


@bundled("method", METHODS)
@bundled("size", [1, 2, 7, 12, 13, 14, 10**6, None])
def test_the_physical_batch_size_does_not_matter(size, method):
    module, (x, y) = seeded(residual_network).double(), random_records(0, 13, (6,))
    x[4] = np.nan
    found = clipped_sum_of(module, x, y, method=method, physical_batch_size=size)
    whole = clipped_sum_of(module, x, y, method=method, physical_batch_size=13)
    torch.testing.assert_close(found, whole, rtol=0, atol=1e-12)


@pytest.fixture
def noted(monkeypatch):
    """Note how many records each call of a method gets, which may fail at some calls."""

    def of(name, fail_at=()):
        seen, take = [], getattr(network, name)

        def note(module, loss, x, *rest):
            seen.append(len(x))
            if len(seen) in fail_at:
                raise torch.OutOfMemoryError
            return take(module, loss, x, *rest)

        monkeypatch.setattr(network, name, note)
        return seen

    return of


def test_vmap_keeps_no_more_gradients_than_it_may(monkeypatch, noted):
    module, (x, y) = seeded(perceptron).double(), random_records(0, 13, (6,))
    whole, seen = clipped_sum_of(module, x, y, method="vmap"), noted("vmapped")
    for numbers, pieces in ((5 * len(whole), [5, 5, 3]), (1, [1] * 13)):
        monkeypatch.setattr(network, "_VMAP_NUMBERS", numbers)
        seen.clear()
        found = clipped_sum_of(module, x, y, method="vmap")
        torch.testing.assert_close(found, whole, rtol=0, atol=1e-12)
        assert seen == pieces


@pytest.mark.parametrize(
    ("records", "size", "pieces"), [(5, None, [5, 5, 3]), (0, None, [1] * 13), (5, 13, [13])]
)
def test_layers_keep_no_more_than_what_is_quick_unless_told_otherwise(
    monkeypatch, noted, records, size, pieces
):
    task = Classification(3)
    model = NetworkModel(perceptron(), task.loss)
    flat, found = model._flat, model.try_out(task, (6,))
    room = records * found.bytes_per_record - 4 * flat.flat.nbytes
    monkeypatch.setattr(flat_module, "_KEPT_BYTES", room)
    model.try_out(task, (6,))
    total, seen = model.clipped_sum(Clip(1.0, physical_batch_size=size)), noted("book_keeping")
    rows = NetworkRecords(np.ones((13, 6)), np.zeros(13, dtype=int), flat.flat)
    rows.sum(lambda batch: total(model.start, batch), slice(None))
    assert seen == pieces


def test_outputs_and_gradients_of_as_many_records_as_go_into_4_gib_are_on_a_device():
    flat = SimpleNamespace(nbytes=2**20, device=torch.device("cuda"))
    for of_record, most in ((2**20, 2**11), (0, 2**12), (2**40, 1), (2**10, 4092)):
        assert FlatModule.rows_at_once(SimpleNamespace(flat=flat), of_record) == most


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


def test_memory_that_runs_out_midway_loses_no_records(noted):
    module, (x, y) = seeded(perceptron).double(), random_records(0, 13, (6,))
    whole, sizes = clipped_sum_of(module, x, y), noted("vmapped", fail_at={2, 4})
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


# --- which parameters ----------------------------------------------------------------------------


@pytest.mark.parametrize("frozen", [["0"], ["2.weight", "4.bias"]])
def test_frozen_parameters_stay_out_of_norms_and_sums(frozen):
    module = seeded(perceptron)
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(not name.startswith(tuple(frozen)))
    trained = sum(p.numel() for p in module.parameters() if p.requires_grad)
    assert trained < sum(p.numel() for p in module.parameters())
    assert len(FlatModule(module).flat) == trained
    assert trial(module, (6,), 3) == "book-keeping"
    assert_equals_the_loop(module, *random_records(0, 6, (6,)))
    assert_equals_the_loop(module.double(), *random_records(0, 6, (6,)))


@pytest.mark.parametrize(
    ("module", "says"),
    [
        (nn.Linear(2, 2).requires_grad_(False), "parameters to train"),
        (nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).double()), "one dtype"),
        (nn.Linear(3, 2).to(torch.float16), "mixed_precision"),
        (nn.Linear(3, 2).to(torch.bfloat16), "mixed_precision"),
    ],
)
def test_parameters_that_cannot_be_trained_are_refused(module, says):
    with pytest.raises(ValueError, match=says):
        FlatModule(module)


# --- what is left alone --------------------------------------------------------------------------


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


def test_the_random_state_of_torch_is_left_alone():
    x, y = random_records(0, 5, (6,))
    module = seeded(residual_network)
    torch.manual_seed(8675309)  # no seed that a trial would leave behind
    before = torch.get_rng_state()
    flat = FlatModule(module)
    method, _ = tried(flat, squared_error, torch.from_numpy(y).float(), shape=(6,), n_outputs=3)
    assert method == "book-keeping"
    for method in METHODS:
        clipped_sum_of(flat, x, y, method=method)
    assert torch.equal(torch.get_rng_state(), before)


# --- precision -----------------------------------------------------------------------------------


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


@pytest.mark.parametrize("method", METHODS)
def test_autocast_of_the_caller_does_not_reach_the_sum(method):
    x, y = random_records(0, 9, (6,))
    plain = clipped_sum_of(seeded(residual_network), x, y, method=method)
    with torch.autocast("cpu", torch.bfloat16):
        found = clipped_sum_of(seeded(residual_network), x, y, method=method)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, plain)


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
