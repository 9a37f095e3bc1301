"""Modules as people write them learn what they learn under plain torch, or are refused for nothing.

What a module does in training only is tried in training: a fit in which every record fails would
spend its budget on noise, and say nothing.
"""

import copy
import re
import threading

import numpy as np
import pytest
import torch
from refusals import refused
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from skdp import DPSGDClassifier

N, STEPS, RATE = 64, 5, 0.1


class Base(nn.Module):
    """A perceptron whose subclasses change one thing."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.h = nn.Linear(4, 8), nn.Linear(8, 8), nn.Linear(8, 3)

    def hidden(self, x):
        return torch.tanh(self.b(torch.tanh(self.a(x))))

    def forward(self, x):
        return self.h(self.hidden(x))


class SoftmaxInEvaluation(Base):
    """As of those who take the loss of logits and show probabilities."""

    def forward(self, x):
        z = super().forward(x)
        return z if self.training else z.softmax(1)


class FlatHead(Base):
    """Whose first outputs could be probabilities, and are none."""

    def __init__(self):
        super().__init__()
        nn.init.zeros_(self.h.weight)
        nn.init.constant_(self.h.bias, 1 / 3)


class FarInputs(nn.Module):
    """A parameter of no layer, whose share of the gradient is small."""

    def __init__(self, factor=1000.0):
        super().__init__()
        self.layer, self.off, self.factor = nn.Linear(4, 3), nn.Parameter(torch.zeros(3)), factor

    def forward(self, x):
        return self.layer(self.factor * x) + self.off


class FarthestInputs(FarInputs):
    def __init__(self):
        super().__init__(1e6)


class SmallScale(Base):
    """The same, of a scale beside a layer."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.full((8,), 1e-3))

    def forward(self, x):
        return self.h(self.hidden(x) * (1.0 + self.scale))


class SequenceBias(Base):
    """A learned position, appended."""

    def __init__(self):
        super().__init__()
        self.bias = nn.Parameter(1e-3 * torch.ones(1, 1, 2))
        self.mix = nn.Linear(2, 3)

    def forward(self, x):
        x = 100.0 * x.unflatten(1, (2, 2))
        return self.mix(torch.cat([x, self.bias.expand(len(x), 1, 2)], 1)).mean(1)


class OnlyInTraining(Base):
    def __init__(self):
        super().__init__()
        self.off = nn.Parameter(torch.zeros(3))

    def forward(self, x):
        z = super().forward(x)
        return z + self.off if self.training else z


class TwiceInTraining(Base):
    def forward(self, x):
        z = torch.tanh(self.b(self.hidden(x)) if self.training else self.hidden(x))
        return self.h(z)


class WeightBehindItsLayer(Base):
    def forward(self, x):
        z = self.hidden(x)
        return F.linear(z, 1.0 * self.h.weight) if self.training else self.h(z)


class HalfBehindItsLayer(Base):
    """A layer's weight, used a second time by a small share."""

    def forward(self, x):
        z = self.hidden(x)
        return self.h(z) + 0.02 * F.linear(z, self.h.weight)


class InPlaceInTraining(Base):
    def forward(self, x):
        z = self.b(torch.tanh(self.a(x)))
        return self.h((z.mul_(0.5) if self.training else 0.5 * z).tanh())


class Checkpointed(Base):
    def forward(self, x):
        z = torch.tanh(self.a(x))
        z = checkpoint(self.b, z, use_reentrant=False) if self.training else self.b(z)
        return self.h(torch.tanh(z))


class Dropped(Base):
    """Dropout in place, on the output of a layer."""

    def forward(self, x):
        z = F.dropout(self.b(torch.tanh(self.a(x))), 0.1, self.training, inplace=True)
        return self.h(torch.tanh(z))


class TwoMasks(Base):
    """R-Drop: two passes in training."""

    def once(self, x):
        return self.h(F.dropout(self.hidden(x), 0.1, self.training))

    def forward(self, x):
        return self.once(x) + self.once(x) if self.training else 2 * self.once(x)


class DropConnect(Base):
    def forward(self, x):
        z = self.hidden(x)
        return F.linear(z, F.dropout(self.h.weight, 0.2)) if self.training else self.h(z)


class Lock(Base):
    def __init__(self):
        super().__init__()
        self.lock = threading.Lock()


class Assertion(Base):
    def forward(self, x):
        assert x.abs().max() < 1e-3, "a value"
        return super().forward(x)


CERTAIN = [
    Base, FlatHead, FarInputs, FarthestInputs, SmallScale, SequenceBias, OnlyInTraining,
    TwiceInTraining, WeightBehindItsLayer, HalfBehindItsLayer, InPlaceInTraining,
]  # fmt: skip
RANDOM = [Dropped, TwoMasks, DropConnect]


class LooksUp(nn.Module):
    def __init__(self, words):
        super().__init__()
        self.words, self.head = words, nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.words(x.long().clamp(0, 4)).flatten(1))


def before_a_head(body):
    return nn.Sequential(body, nn.Linear(4, 3))


class Autocast(Base):
    def forward(self, x):
        with torch.autocast("cpu", torch.bfloat16):
            return super().forward(x).float()


def quantized():
    """Its scale is that of the largest entry of a batch."""
    body = nn.Sequential(nn.Linear(4, 4).requires_grad_(False))
    return before_a_head(torch.ao.quantization.quantize_dynamic(body, dtype=torch.qint8))


PYTHON, LAZY, ONE_DEVICE = "Python code.* pass the original", "give its sizes", r"pass its \.module"
FEW_BITS = "float32 or float64.* mixed_precision=True"
REFUSED = {
    "scripted": (lambda: torch.jit.script(Base()), PYTHON),
    "a scripted part": (lambda: before_a_head(torch.jit.script(nn.Linear(4, 4))), PYTHON),
    "old weight_norm": (lambda: nn.utils.weight_norm(nn.Linear(4, 3)), "parametrizations"),
    "lazy": (lambda: nn.LazyLinear(3), LAZY),
    "a lazy part": (lambda: before_a_head(nn.LazyLinear(4)), LAZY),
    "a lock": (Lock, "keep locks"),
    "an assertion": (Assertion, "Expected module to take rows of 4 features"),
    "a softmax": (lambda: nn.Sequential(Base(), nn.Softmax(dim=1)), "Leave it out"),
    "a softmax and dropout": (
        lambda: nn.Sequential(Base(), nn.Softmax(dim=1), nn.Dropout(0.1)), "Leave it out"
    ),
    "a softmax in evaluation": (SoftmaxInEvaluation, "last Softmax or Sigmoid"),
    "a sigmoid": (lambda: nn.Sequential(Base(), nn.Sigmoid()), "Leave it out"),
    "DataParallel": (lambda: nn.DataParallel(Base()), ONE_DEVICE),
    "a part of DataParallel": (lambda: before_a_head(nn.DataParallel(nn.Linear(4, 4))), ONE_DEVICE),
    "sparse Embedding": (lambda: LooksUp(nn.Embedding(5, 2, sparse=True)), "without sparse=True"),
    "sparse EmbeddingBag": (
        lambda: LooksUp(nn.EmbeddingBag(5, 8, sparse=True)), "without sparse=True"
    ),
    "bfloat16": (lambda: Base().bfloat16(), FEW_BITS),
    "half": (lambda: Base().half(), FEW_BITS),
    "a part in bfloat16": (lambda: before_a_head(nn.Linear(4, 4).bfloat16()), "share one dtype"),
    "a quantized body": (quantized, "by itself"),
    "checkpointing": (Checkpointed, "leave checkpointing out"),
    "autocast inside": (Autocast, "mixed_precision=True"),
}  # fmt: skip


def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 4))
    return X, X[:, :3].argmax(1)


def classifier(module, **settings):
    settings = {
        "optimizer": "sgd", "learning_rate": RATE, "max_iter": STEPS, "averaging": 0.0,
    } | settings  # fmt: skip
    return DPSGDClassifier(
        float("inf"), module=module, classes=range(3), n_samples=N, batch_size=N, **settings
    )


def plainly_trained(module, X, y, momentum=0.9):
    module = copy.deepcopy(module).train()
    optimizer = torch.optim.SGD(module.parameters(), RATE, momentum)
    inputs = torch.from_numpy(X).to(next(module.parameters()))
    for _ in range(STEPS):
        optimizer.zero_grad()
        F.cross_entropy(module(inputs), torch.from_numpy(y)).backward()
        optimizer.step()
    return dict(module.named_parameters())


@pytest.mark.parametrize("make", CERTAIN)
def test_a_module_is_trained_as_by_plain_torch(make):
    torch.manual_seed(0)
    module, (X, y) = make().double(), data()
    found = dict(classifier(module).fit(X, y).module_.named_parameters())
    for name, expected in plainly_trained(module, X, y).items():
        torch.testing.assert_close(found[name], expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("make", RANDOM)
def test_masks_leave_no_parameter_behind(make):
    torch.manual_seed(0)
    module, (X, y) = make(), data()
    fitted = classifier(module, optimizer="adam", max_iter=60).fit(X, y)
    moved = plainly_trained(module, X, y)
    for name, start in module.named_parameters():
        found = dict(fitted.module_.named_parameters())[name]
        assert torch.equal(found, start) == torch.equal(moved[name], start), name
    assert fitted.score(X, y) > 0.85


@pytest.mark.filterwarnings("ignore:.*deprecated", "ignore:Lazy modules", "ignore:The .grad attr")
@pytest.mark.parametrize(("make", "message"), REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("mixed_precision", [False, True])
def test_what_cannot_be_trained_is_refused_with_a_remedy(make, message, mixed_precision):
    X, y = data()
    with refused(re.compile(message, re.DOTALL)):
        classifier(make(), mixed_precision=mixed_precision).fit(X, y)


@pytest.mark.parametrize("make", [Base, OnlyInTraining], ids=["book-keeping", "vmap"])
def test_mixed_precision_trains_as_full_precision_does(make):
    torch.manual_seed(0)
    module, (X, y) = make(), data()
    rough = classifier(module, mixed_precision=True, max_iter=60).fit(X, y)
    exact = classifier(module, max_iter=60).fit(X, y)
    for p, q in zip(rough.module_.parameters(), exact.module_.parameters(), strict=True):
        assert p.dtype == torch.float32
        assert 0 < (p - q).norm() <= 0.1 * q.norm() + 0.01


class OnABody(nn.Module):
    """A head on a frozen body of another kind, whose output it turns into its own type."""

    def __init__(self, body, dtype):
        super().__init__()
        self.body, self.head, self.dtype = body, nn.Linear(4, 3), dtype

    def forward(self, x):
        return self.head(self.body(x.to(self.dtype)).float())


class Versioned(nn.Linear):
    def get_extra_state(self):
        return {"version": 3}

    def set_extra_state(self, state):
        pass


def frozen(kind=nn.Linear):
    return kind(4, 4).requires_grad_(False)


BODIES = {
    "bfloat16": lambda: OnABody(frozen().bfloat16(), torch.bfloat16),
    "half": lambda: OnABody(frozen().half(), torch.float16),
    "scripted": lambda: OnABody(torch.jit.script(frozen()), torch.float32),
    "of an extra state": lambda: OnABody(frozen(Versioned), torch.float32),
}


@pytest.mark.filterwarnings("ignore:.*deprecated")
@pytest.mark.parametrize("make", BODIES.values(), ids=BODIES)
def test_a_head_on_a_frozen_body_is_trained_as_by_plain_torch(make):
    torch.manual_seed(0)
    module, (X, y) = make(), data()
    fitted = classifier(module, random_state=0).fit(X, y)
    for name, p in fitted.module_.head.named_parameters():
        expected = plainly_trained(module, X, y)[f"head.{name}"]
        torch.testing.assert_close(p, expected, rtol=0, atol=1e-5)
    assert fitted.predict_proba(X).shape == (N, 3)
