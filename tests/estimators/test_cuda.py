"""What holds on the CPU holds on a GPU. Skipped without one; passed on an H200 at 0.2.0."""

import numpy as np
import pytest
import torch
from engine.networks import clipped_sum_of
from scipy import stats
from torch import nn

from skdp import DPSGDClassifier, DPSGLDClassifier, Persons
from skdp.engine import noise, release_hook
from skdp.engine.release_hook import MechanismCall, grid_width
from skdp.fitting.streams import SecureStream

DEVICE = "cuda"
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


class Last(nn.Module):
    """A GRU, and a linear layer on its last state."""

    def __init__(self):
        super().__init__()
        self.gru, self.out = nn.GRU(4, 8, batch_first=True), nn.Linear(8, 1)

    def forward(self, x):
        return self.out(self.gru(x)[0][:, -1])


MODULES = {
    "perceptron": ((12,), lambda: nn.Sequential(nn.Linear(12, 9), nn.Tanh(), nn.Linear(9, 1))),
    "convolution": (
        (1, 8, 8),
        lambda: nn.Sequential(
            nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.Tanh(), nn.Flatten(), nn.Linear(144, 1)
        ),
    ),
    "positions": (
        (5, 12),
        lambda: nn.Sequential(
            nn.LayerNorm(12), nn.Linear(12, 6), nn.Tanh(), nn.Flatten(), nn.Linear(30, 1)
        ),
    ),
    "recurrent": ((6, 4), Last),
}


@pytest.fixture(autouse=True)
def full_precision(monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


def call_of(size, scale):
    return MechanismCall("gaussian", 1.0, scale, rate=1.0, shape=(size,), step=0, width=0.0)


@pytest.mark.parametrize("size", [7, 2**15 + 1])
def test_noise_is_normal_of_the_declared_scale_and_no_two_draws_share_any(size):
    stream, exact = SecureStream(b"a key of 16 byte"), torch.ones(size, device=DEVICE)
    first, second = (noise.gaussian(lambda: exact, call_of(size, 3.0), stream) for _ in range(2))
    assert (first.device.type, first.dtype) == (DEVICE, torch.float64)
    assert not torch.isin(first, second).any()
    for found in (first, second):
        standard = ((found - 1.0) / 3.0).cpu().numpy()
        assert stats.kstest(standard, "norm").pvalue > 1e-6
        if size > 1000:
            assert stats.kstest(standard * 1.5, "norm").pvalue < 1e-6


def test_the_tails_of_noise_are_those_of_a_normal():
    exact = torch.zeros(2**20, device=DEVICE)
    stream = SecureStream(b"a key of 16 byte")
    found = noise.gaussian(lambda: exact, call_of(2**20, 1.0), stream).cpu().numpy()
    for threshold in (2.0, 3.0, 4.0):
        low, high = stats.binom.ppf([1e-6, 1 - 1e-6], found.size, 2 * stats.norm.sf(threshold))
        assert low <= (np.abs(found) > threshold).sum() <= high


def test_releases_end_on_the_grid():
    call = call_of(1000, 1.0)
    call = MechanismCall(**{**vars(call), "width": grid_width(1.0)})
    exact = torch.zeros(1000, device=DEVICE)
    found = noise.gaussian(lambda: exact, call, SecureStream(b"a key of 16 byte"))
    assert (found.fmod(call.width) == 0).all()


@pytest.mark.parametrize("method", ["book-keeping", "vmap"])
@pytest.mark.parametrize("name", MODULES)
def test_clipped_sums_are_those_of_the_cpu(name, method):
    if (name, method) == ("recurrent", "vmap"):
        pytest.skip("slow: book-keeping covers it")
    shape, make = MODULES[name]
    torch.manual_seed(0)
    module = make()
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((33, *shape)), rng.standard_normal(33)
    here = clipped_sum_of(module, x, y, method=method)
    there = clipped_sum_of(module.to(DEVICE), x, y, method=method)
    assert there.device.type == DEVICE
    torch.testing.assert_close(there.cpu(), here, rtol=1e-4, atol=1e-4)


PARAMETERS = {
    "plain": ({}, {}),
    "weights": ({"max_sample_weight": 2.0}, {"sample_weight": np.linspace(0.0, 2.0, 120)}),
    "persons": ({"unit": Persons(40, rows_per_group=3)}, {"groups": np.arange(120) // 3}),
}


@pytest.mark.parametrize("kind", PARAMETERS)
@pytest.mark.parametrize("make", [DPSGDClassifier, DPSGLDClassifier])
def test_a_fit_with_the_releases_of_the_cpu_is_that_of_the_cpu(two_blobs, make, kind):
    X, y = two_blobs
    facts, given = PARAMETERS[kind]
    if "unit" not in facts:
        facts = facts | {"n_samples": len(X)}
    module = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))  # with its weights
    facts = {"classes": [0, 1], "max_iter": 5, "module": module, **facts}
    with release_hook.record() as tape:
        here = make(1.0, device="cpu", **facts).fit(X, y, **given)
    with release_hook.replay([release.output.to(DEVICE) for release in tape]) as again:
        there = make(1.0, device=DEVICE, **facts).fit(X, y, **given)
    assert [release.call for release in again] == [release.call for release in tape]
    np.testing.assert_allclose(there.predict_proba(X), here.predict_proba(X), rtol=1e-4, atol=1e-5)
    assert any("not cryptographic" in words for words in there.privacy_.assumptions)


def test_a_fit_leaves_the_generator_of_the_device_alone(two_blobs):
    before = torch.cuda.get_rng_state()
    DPSGDClassifier(1.0, classes=[0, 1], n_samples=120, max_iter=2, device=DEVICE).fit(*two_blobs)
    assert torch.equal(torch.cuda.get_rng_state(), before)


def test_no_gradient_of_a_record_is_kept():
    module = nn.Sequential(nn.Linear(784, 400), nn.Tanh(), nn.Linear(400, 1)).to(DEVICE)
    n = 512
    x, y = np.zeros((n, 784), np.float32), np.zeros(n, np.float32)
    clipped_sum_of(module, x, y)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    clipped_sum_of(module, x, y)
    of_all = 4 * n * sum(p.numel() for p in module.parameters())
    assert torch.cuda.max_memory_allocated() - before < of_all / 10
