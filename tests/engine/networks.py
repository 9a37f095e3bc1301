"""Networks for tests of the engine, and the loop over single records that their sums equal."""

import copy
import math

import numpy as np
import torch
from reference.per_sample_gradients import clipped, per_sample_gradients
from torch import nn

from skdp.engine.modules import network_sum as network
from skdp.engine.modules.checks import N_RECORDS, clipping_method
from skdp.engine.modules.flat_module import FlatModule
from skdp.engine.modules.network_records import NetworkRecords
from skdp.engine.modules.network_sum import NetworkClippedSum

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
            # A gradient that nearly cancels is rounded as the others of its batch are.
            atol = 0.1 * tolerance * expected.max()
            np.testing.assert_allclose(norms, expected, tolerance, atol, err_msg=method)


class MeanOverPositions(nn.Module):
    def forward(self, x):
        return x.mean(1)


class Wraps(nn.Module):
    def __init__(self, forward, layer=None):
        super().__init__()
        self.body, self.layer = forward, layer
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        return self.body(self, x)


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
