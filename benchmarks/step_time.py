"""Time of one step of a whole private fit beside plain training, Opacus and vmap, in one process.

    python benchmarks/step_time.py [--device cuda] [--repetitions 20] [--json FILE]

A step's time is that of a run of 2N steps less that of a run of N, over N: set-up cancels. Prints,
per model and batch size, the median over the repetitions in ms, and in brackets the median of its
ratio to the plain step of the same repetition, with the ratio's quartiles. Methods take turns in
random order, so drift of the machine hits all alike. Where others use the cores too, threads wait
for each other, and OMP_NUM_THREADS=1 says more.

All use SGD with momentum .9 on the same rows in memory, clip to norm 1 and have noise multiplier 1.
All but skdp fetch batches of one size, of random rows, by indexing a tensor on the device.

- plain: zero_grad, forward, backward, step of torch. No privacy.
- skdp: `DPSGDClassifier(...).fit`, all of it: Poisson batches, noise from a secure stream, an
  average of the later iterates.
- Opacus: `PrivacyEngine` with ``poisson_sampling=False``, per-record gradients by hooks or ghost
  clipping; not its secure mode. It replaces nn.GRU by a GRU of its own.
- vmap: torch.func.vmap of torch.func.grad, clipping, noise. Only if asked for.
"""

import argparse
import json
import platform
import time
import warnings

import _opacus
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

import skdp
from skdp import DPSGDClassifier
from skdp.models.perceptron import perceptron

N_ROWS, LEARNING_RATE, MOMENTUM, NOISE = 8192, 1e-3, 0.9, 1.0  # gradients are clipped to norm 1
TURN = 0.3  # seconds that N steps should take


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


class Recurrent(nn.Module):
    """A GRU over (B, T, 32), and a linear layer on its last state."""

    def __init__(self):
        super().__init__()
        self.recurrent, self.out = nn.GRU(32, 64, batch_first=True), nn.Linear(64, 10)

    def forward(self, x):
        """Map to (B, 10)."""
        return self.out(self.recurrent(x)[0][:, -1])


# name: shape of a record, number of classes, what makes the network, and what makes skdp make it
MODELS = {
    "logistic 31-2": ((31,), 2, lambda: perceptron(31, 2, (), "tanh"), {"hidden_layer_sizes": ()}),
    "MLP 784-100-10": ((784,), 10, lambda: perceptron(784, 10, (100,), "tanh"), {}),
    "CNN 16-32-512-32-10": ((784,), 10, convolutional, {"module": lambda p, k: convolutional()}),
    "transformer, 2 blocks": ((2048,), 10, transformer, {"module": lambda p, k: transformer()}),
    "GRU 32-64, T = 50": ((50, 32), 10, Recurrent, {"module": Recurrent}),
}


# --- methods: each makes a function that takes so many steps --------------------------------------


def momentum_sgd(module):
    """The optimiser of all."""
    return torch.optim.SGD(module.parameters(), LEARNING_RATE, MOMENTUM)


def repeated(step, X, y, batch_size, device):
    """Take steps on batches of random rows; a function draws the size of each."""
    X, y = torch.from_numpy(X).to(device), torch.from_numpy(y).to(device)

    def train(n_steps):
        for _ in range(n_steps):
            size = batch_size() if callable(batch_size) else batch_size
            index = torch.randint(len(X), (size,), device=device)
            step(X[index], y[index])

    return train


def plain(name, X, y, batch_size, device):
    """Ordinary SGD."""
    module = MODELS[name][2]().to(device)
    optimizer = momentum_sgd(module)

    def step(inputs, labels):
        optimizer.zero_grad()
        F.cross_entropy(module(inputs), labels).backward()
        optimizer.step()

    return repeated(step, X, y, batch_size, device)


def ours(name, X, y, batch_size, device):
    """Whole fits of this library."""
    _, n_classes, _, how = MODELS[name]

    def train(n_steps):
        DPSGDClassifier(
            epsilon=None,
            noise_multiplier=NOISE,
            clip_norm=1.0,
            classes=range(n_classes),
            n_samples=len(X),
            batch_size=batch_size,
            max_iter=n_steps,
            optimizer="sgd",
            learning_rate=LEARNING_RATE,
            device=None if device.type == "cpu" else device,
            **how,
        ).fit(X, y)

    return train


def opacus(mode):
    """Return what takes steps of Opacus."""

    def method(name, X, y, batch_size, device):
        module = _opacus.fit_for(MODELS[name][2]()).to(device)
        step, _ = _opacus.private(
            module,
            momentum_sgd(module),
            torch.from_numpy(X),
            torch.from_numpy(y),
            batch_size=batch_size,
            noise_multiplier=NOISE,
            mode=mode,
        )
        return repeated(step, X, y, batch_size, device)

    return method


def vmap(name, X, y, batch_size, device):
    """Take steps with the gradients of all records in memory."""
    module = MODELS[name][2]().to(device)
    optimizer, parameters = momentum_sgd(module), dict(module.named_parameters())

    def loss_of_one(weights, x, label):
        logits = torch.func.functional_call(module, weights, (x[None],))
        return F.cross_entropy(logits, label[None])

    gradients_of_all = torch.func.vmap(torch.func.grad(loss_of_one), (None, 0, 0))

    def step(inputs, labels):
        weights = {name: p.detach() for name, p in parameters.items()}
        gradients = gradients_of_all(weights, inputs, labels)
        norms = torch.stack([g.flatten(1).norm(dim=1) for g in gradients.values()]).norm(dim=0)
        factors = (1 / (norms + 1e-6)).clamp(max=1)
        for name, p in parameters.items():
            clipped = torch.einsum("i,i...->...", factors, gradients[name])
            p.grad = (clipped + NOISE * torch.randn_like(p)) / batch_size
        optimizer.step()

    return repeated(step, X, y, batch_size, device)


METHODS = {
    "plain": plain,
    "skdp": ours,
    "Opacus hooks": opacus("hooks"),
    "Opacus ghost": opacus("ghost"),
    "vmap": vmap,
}


# --- timing ---------------------------------------------------------------------------------------


def seconds(train, n_steps, device):
    """Return the time of a run."""
    synchronize = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    synchronize()
    start = time.perf_counter()
    train(n_steps)
    synchronize()
    return time.perf_counter() - start


def measure(name, batch_size, methods, device, repetitions):
    """Return {method: times of a step in s}, and {method: why it has none}."""
    shape, n_classes, *_ = MODELS[name]
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N_ROWS, *shape), dtype=np.float32)
    y = np.arange(N_ROWS) % n_classes
    runs, lengths, failed = {}, {}, {}
    for method in methods:
        torch.manual_seed(0)
        try:
            run = METHODS[method](name, X, y, batch_size, device)
            run(2)
            once = (seconds(run, 22, device) - seconds(run, 2, device)) / 20
        except (RuntimeError, ValueError, NotImplementedError, TypeError) as error:
            failed[method] = f"{type(error).__name__}: {str(error).splitlines()[0]}"
            continue
        runs[method] = run
        lengths[method] = n = int(np.clip(TURN / max(once, 1e-9), 5, 500))
        _ = [run(m) for m in (n, 2 * n)]  # what is worked out once, such as the ε of a length
    times = {method: [] for method in runs}
    for _ in range(repetitions):
        for method in rng.permutation(list(runs)).tolist():
            n = lengths[method]
            took = {m: seconds(runs[method], m, device) for m in rng.permutation([n, 2 * n])}
            times[method].append((took[2 * n] - took[n]) / n)
    return times, failed


def _short(number):
    return f"{number:.2f}" if number < 100 else f"{number:.0f}"


def main():
    """Run the comparison."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--repetitions", type=int, default=20)
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--batches", nargs="+", type=int, default=[64, 512])
    parser.add_argument("--methods", nargs="+", default=list(METHODS)[:-1], choices=METHODS)
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
                both = zip(times[method], times["plain"], strict=True)
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
