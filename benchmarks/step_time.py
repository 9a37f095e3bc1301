"""Time of one private step beside a plain one, Opacus, vmap and a loop, in one process.

    python benchmarks/step_time.py [--device cuda] [--repetitions 30] [--json FILE]

Prints, per model and batch size: the median time of a step in ms, and in brackets the median over
the rounds of its ratio to the plain step of the same round, with the ratio's quartiles. Methods
take turns in random order, so drift of the machine hits all alike; a turn is several steps where
they are short. Where others use the cores too, threads wait for each other, and OMP_NUM_THREADS=1
says more.

Every step fetches its own batch from the same 20 000 rows in memory, by the same random row
numbers and the same code; the drawing of the numbers is not timed. All use SGD with momentum .9.

- plain: zero_grad, forward, backward, step of torch. No privacy.
- skdp: the very loop that `DPSGDClassifier` runs: clipped sum, noise from a secure stream, update.
  On the CPU a linear model takes the closed form, in double precision, as it does there.
- Opacus: `PrivacyEngine` with ``poisson_sampling=False``, per-record gradients by hooks or ghost
  clipping; not its secure mode.
- vmap: torch.func.vmap of torch.func.grad, clipping, noise.
- loop: one record after another by `clip_grad_norm_`, noise. In the first rounds only.
"""

import argparse
import json
import platform
import time
import warnings
from dataclasses import replace

import _opacus
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

import skdp
from skdp._random import Streams
from skdp.algorithms.dp_sgd import DPSGDConfig, DPSGDUpdate
from skdp.algorithms.parts.training import LinearModel, NetworkModel
from skdp.engine.loop import run
from skdp.engine.modules.network_sum import NetworkRecords
from skdp.models.perceptron import Classification, perceptron

N_ROWS, LEARNING_RATE, MOMENTUM, NOISE = 20_000, 1e-3, 0.9, 1.0  # gradients are clipped to norm 1
TURN, LOOP_TURNS = 0.005, 3  # seconds that a turn should take, and turns of the slow loop


class Attention(nn.Module):
    """Self-attention from `Linear` layers."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x):
        """Map (B, tokens, width) to the same shape."""
        q, k, v = (f(x).unflatten(2, (self.heads, -1)).transpose(1, 2) for f in self.inputs)
        weights = torch.softmax(q @ k.transpose(2, 3) / q.shape[-1] ** 0.5, dim=-1)
        return self.out((weights @ v).transpose(1, 2).flatten(2))

    @property
    def inputs(self):
        """The layers that see the input."""
        return self.query, self.key, self.value


class Residual(nn.Module):
    """x + f(norm(x))."""

    def __init__(self, width, inner):
        super().__init__()
        self.norm, self.inner = nn.LayerNorm(width), inner

    def forward(self, x):
        """Map (B, tokens, width) to the same shape."""
        return x + self.inner(self.norm(x))


class MeanOverTokens(nn.Module):
    """(B, tokens, width) -> (B, width)."""

    def forward(self, x):
        """Average."""
        return x.mean(1)


def convolutional():
    """The network of 26 000 weights that papers on DP-SGD train on MNIST."""
    return nn.Sequential(
        nn.Unflatten(1, (1, 28, 28)),
        *(nn.Conv2d(1, 16, 8, stride=2, padding=3), nn.Tanh(), nn.MaxPool2d(2, 1)),
        *(nn.Conv2d(16, 32, 4, stride=2), nn.Tanh(), nn.MaxPool2d(2, 1)),
        *(nn.Flatten(), nn.Linear(512, 32), nn.Tanh(), nn.Linear(32, 10)),
    )


def transformer():
    """Two blocks on 32 tokens of width 64."""

    def block():
        feed_forward = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64))
        return Residual(64, Attention(64, 4)), Residual(64, feed_forward)

    return nn.Sequential(
        nn.Unflatten(1, (32, 64)), *block(), *block(), MeanOverTokens(), nn.Linear(64, 10)
    )


# name: number of features, number of classes, and what makes the network
MODELS = {
    "logistic 31-2": (31, 2, lambda: perceptron(31, 2, (), "tanh")),
    "MLP 784-100-10": (784, 10, lambda: perceptron(784, 10, (100,), "tanh")),
    "CNN 16-32-512-32-10": (784, 10, convolutional),
    "transformer, 2 blocks": (2048, 10, transformer),
}


# --- methods: each makes a function of row numbers that takes a step ------------------------------


def momentum_sgd(module):
    """The optimiser of all."""
    return torch.optim.SGD(module.parameters(), LEARNING_RATE, MOMENTUM)


def plain(module, X, y, batch_size):
    """Take steps of ordinary SGD."""
    records = NetworkRecords(X, y, next(module.parameters()))
    optimizer = momentum_sgd(module)

    def step(index):
        inputs, labels = records.take(index).piece(0, len(index))
        optimizer.zero_grad()
        F.cross_entropy(module(inputs), labels).backward()
        optimizer.step()

    return step


class Given:
    """Stands in for Poisson sampling: row numbers from outside."""

    rate, index = 1.0, None

    def batches(self, n_rows, stream):
        """Yield what is there."""
        while True:
            yield self.index


def ours(module, X, y, batch_size):
    """Take steps of this library."""
    config = DPSGDConfig(
        n_rows=N_ROWS,
        n_steps=10**9,
        sampling_rate=batch_size / N_ROWS,
        clip_norm=1.0,
        noise_multiplier=NOISE,
        learning_rate=LEARNING_RATE,
        optimizer="sgd",
        averaging=0.0,
    )
    task, like = Classification(int(y.max()) + 1), next(module.parameters())
    if len(list(module)) == 1 and like.device.type == "cpu":
        model = LinearModel(module[0], task, "zero_out")
    else:
        model = NetworkModel(module, task.loss, device=like.device)
        model.try_out(task, X.shape[1])
    plan = config.release_plan(model)
    method = getattr(plan.clipped_sum, "method", "book-keeping")
    if method != "book-keeping":
        print(f"skdp takes this model's gradients by {method}.")
    given, update = Given(), DPSGDUpdate(config)
    steps = run(
        replace(plan, sampling=given),
        model.records(X, y),
        update.init(model.start),
        update.query,
        update.update,
        Streams(),
    )

    def step(index):
        given.index = index
        next(steps)

    return step


def opacus(mode):
    """Return what takes steps of Opacus."""

    def method(module, X, y, batch_size):
        records = NetworkRecords(X, y, next(module.parameters()))
        on_batch, _ = _opacus.private(
            module,
            momentum_sgd(module),
            torch.from_numpy(X),
            torch.from_numpy(y),
            batch_size=batch_size,
            noise_multiplier=NOISE,
            mode=mode,
        )
        return lambda index: on_batch(*records.take(index).piece(0, len(index)))

    return method


def vmap(module, X, y, batch_size):
    """Take steps with the gradients of all records in memory."""
    records = NetworkRecords(X, y, next(module.parameters()))
    optimizer, parameters = momentum_sgd(module), dict(module.named_parameters())

    def loss_of_one(weights, x, label):
        logits = torch.func.functional_call(module, weights, (x[None],))
        return F.cross_entropy(logits, label[None])

    gradients_of_all = torch.func.vmap(torch.func.grad(loss_of_one), (None, 0, 0))

    def step(index):
        inputs, labels = records.take(index).piece(0, len(index))
        weights = {name: p.detach() for name, p in parameters.items()}
        gradients = gradients_of_all(weights, inputs, labels)
        norms = torch.stack([g.flatten(1).norm(dim=1) for g in gradients.values()]).norm(dim=0)
        factors = (1 / (norms + 1e-6)).clamp(max=1)
        for name, p in parameters.items():
            clipped = torch.einsum("i,i...->...", factors, gradients[name])
            p.grad = (clipped + NOISE * torch.randn_like(p)) / batch_size
        optimizer.step()

    return step


def loop(module, X, y, batch_size):
    """Take steps one record at a time."""
    records = NetworkRecords(X, y, next(module.parameters()))
    optimizer, parameters = momentum_sgd(module), list(module.parameters())

    def step(index):
        inputs, labels = records.take(index).piece(0, len(index))
        totals = [torch.zeros_like(p) for p in parameters]
        for i in range(len(inputs)):
            optimizer.zero_grad()
            F.cross_entropy(module(inputs[i : i + 1]), labels[i : i + 1]).backward()
            nn.utils.clip_grad_norm_(parameters, 1.0)
            for total, p in zip(totals, parameters, strict=True):
                total += p.grad
        for total, p in zip(totals, parameters, strict=True):
            p.grad = (total + NOISE * torch.randn_like(p)) / batch_size
        optimizer.step()

    return step


METHODS = {
    "plain": plain,
    "skdp": ours,
    "Opacus hooks": opacus("hooks"),
    "Opacus ghost": opacus("ghost"),
    "vmap": vmap,
    "loop": loop,
}


# --- timing ---------------------------------------------------------------------------------------


def seconds(step, indices, device):
    """Return the mean time of the steps of one turn."""
    synchronize = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    synchronize()
    start = time.perf_counter()
    for index in indices:
        step(index)
    synchronize()
    return (time.perf_counter() - start) / len(indices)


def measure(name, batch_size, methods, device, repetitions):
    """Return {method: times of its turns in s}, and {method: why it has none}."""
    n_features, n_classes, make = MODELS[name]
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N_ROWS, n_features), dtype=np.float32)
    y = rng.integers(n_classes, size=N_ROWS)
    steps, lengths, failed = {}, {}, {}

    def draw(n):
        return [rng.choice(N_ROWS, batch_size, replace=False, shuffle=False) for _ in range(n)]

    for method in methods:
        torch.manual_seed(0)
        try:
            step = METHODS[method](make().to(device), X, y, batch_size)
            once = 0.0
            for _ in range(1 if method == "loop" else 3):
                once = seconds(step, draw(1), device)
        except (RuntimeError, ValueError, NotImplementedError, TypeError) as error:
            failed[method] = f"{type(error).__name__}: {str(error).splitlines()[0]}"
            continue
        steps[method] = step
        lengths[method] = 1 if method == "loop" else int(np.clip(np.ceil(TURN / once), 1, 20))
    times = {method: [] for method in steps}
    for round_ in range(repetitions):
        indices = draw(max(lengths.values()))
        order = [m for m in steps if m != "loop" or round_ < LOOP_TURNS]
        for i in rng.permutation(len(order)):
            method = order[i]
            times[method].append(seconds(steps[method], indices[: lengths[method]], device))
    return times, failed


def _short(number):
    return f"{number:.2f}" if number < 100 else f"{number:.0f}"


def main():
    """Run the comparison."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--repetitions", type=int, default=30, help="rounds of turns")
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--batches", nargs="+", type=int, default=[64, 512])
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--json", metavar="FILE", help="write all times here")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    device = torch.device(arguments.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        parser.error("there is no GPU here that this torch can use")
    methods = [m for m in METHODS if m == "plain" or m in arguments.methods]
    if _opacus.VERSION is None and any(m.startswith("Opacus") for m in methods):
        print(_opacus.MISSING)
        methods = [m for m in methods if not m.startswith("Opacus")]

    about = {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "torch": torch.__version__,
        "opacus": _opacus.VERSION,
        "skdp": skdp.__version__,
    }
    print(", ".join(f"{key} {value}" for key, value in about.items()))
    print(f"{'model':<22}{'batch':>5}" + "".join(f"{method:>26}" for method in methods))
    results = []
    for name in arguments.models:
        for batch_size in arguments.batches:
            times, failed = measure(name, batch_size, methods, device, arguments.repetitions)
            cells = []
            for method in methods:
                if method in failed:
                    cells.append("–")
                    continue
                both = zip(times[method], times["plain"], strict=False)
                low, ratio, high = np.quantile([t / p for t, p in both], [0.25, 0.5, 0.75])
                median = np.median(times[method])
                ratios = f"{_short(ratio)}, {_short(low)}–{_short(high)}"
                cells.append(f"{_short(1e3 * median)} ({ratios})")
                results.append(
                    {
                        "model": name,
                        "batch": batch_size,
                        "method": method,
                        "median_ms": 1e3 * median,
                        "ratio": ratio,
                        "ms": [1e3 * t for t in times[method]],
                    }
                )
            print(f"{name:<22}{batch_size:>5}" + "".join(f"{c:>26}" for c in cells), flush=True)
            for method, reason in failed.items():
                print(f"    {method} fails: {reason}")
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump({"about": about, "results": results}, file, indent=1)


if __name__ == "__main__":
    main()
