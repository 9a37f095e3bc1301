"""Time of a whole private fit beside scikit-learn's `MLPClassifier` and Opacus.

    SKDP_DATA=... python benchmarks/fit_time.py [--sets digits mnist] [--repetitions 3]

Prints seconds, and in brackets how often the time of skdp they are; medians over fits that take
turns, in one process. All train a perceptron with 100 tanh units, in single precision, for the same
number of steps on batches of the same (expected) size. Where others use the cores too, threads
wait for each other, and OMP_NUM_THREADS=1 says more.

- skdp: `DPSGDClassifier` with defaults at ε = 1, δ = 1e-5: checks, calibration of the noise, steps.
  The calibration, part of it, is also printed by itself.
- MLPClassifier: no privacy. Its ``batch_size`` is that of skdp, and ``max_iter``, which counts
  epochs, is such that the number of steps is the same up to a part of an epoch; it never stops
  early.
- Opacus hooks: its defaults (Poisson batches from its own loader, per-record gradients by hooks).
- Opacus ghost: the best case: ghost clipping, on batches that are copied from the array as skdp
  does it.
  Both get the noise multiplier of skdp, and so are spared the calibration.
"""

import argparse
import functools
import itertools
import math
import time
import warnings

import _images
import _opacus
import numpy as np
import torch
from sklearn.neural_network import MLPClassifier

from skdp import DPSGDClassifier
from skdp.engine.modules.network_records import NetworkRecords
from skdp.models.perceptron import perceptron
from skdp.privacy import calibrate_noise_multiplier


def time_of(function):
    """Return the seconds of a call."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def peer(n_rows, batch_size, n_steps):
    """Return scikit-learn's perceptron, for about as many steps."""
    epochs = max(1, round(n_steps / math.ceil(n_rows / batch_size)))
    return MLPClassifier(
        (100,),
        activation="tanh",
        batch_size=batch_size,
        max_iter=epochs,
        tol=0.0,
        n_iter_no_change=10**9,
    )


def opacus_fit(X, y, ours, batch_size, mode):
    """Train as Opacus does, for as many steps as ``ours`` took and with its noise."""
    module = perceptron(X.shape[1], len(np.unique(y)), (100,), "tanh")
    step, loader = _opacus.private(
        module,
        torch.optim.SGD(module.parameters(), lr=0.1),
        torch.from_numpy(X),
        torch.from_numpy(y),
        batch_size=batch_size,
        noise_multiplier=ours.noise_multiplier_,
        mode=mode,
        poisson=mode == "hooks",
    )
    batches = endless(loader) if mode == "hooks" else drawn(X, y, ours.sampling_rate_)
    for inputs, labels in itertools.islice(batches, ours.n_iter_):
        step(inputs, labels)


def endless(loader):
    """Yield the batches of a loader, epoch after epoch."""
    while True:
        yield from loader


def drawn(X, y, rate):
    """Yield Poisson batches, copied from the arrays."""
    rng, records = np.random.default_rng(), NetworkRecords(X, y, torch.zeros(0))
    while True:
        batch = records.take(np.flatnonzero(rng.random(len(X)) < rate))
        yield batch.piece(0, len(batch))[:2]


def measure(X, y, repetitions, opacus_repetitions):
    """Return {what: median seconds}, the number of steps and the batch size."""
    # A trial run, to load what is loaded once and to read off what the defaults are.
    trial = DPSGDClassifier(1.1, classes=range(10), n_samples=len(X)).fit(X, y)
    n_steps, rate = trial.n_iter_, trial.sampling_rate_
    batch_size = round(rate * len(X))
    found = {"skdp": [], "calibration": [], "MLPClassifier": []}
    for i in range(repetitions):
        # No ε is asked for twice: calibrations are remembered within a process.
        ours = DPSGDClassifier(1 + 1e-6 * i, classes=range(10), n_samples=len(X))
        theirs = peer(len(X), batch_size, n_steps)
        fits = {
            "skdp": functools.partial(ours.fit, X, y),
            "calibration": functools.partial(
                calibrate_noise_multiplier,
                epsilon=1 + 1e-6 * (i + 0.5),
                delta=1e-5,
                sampling_rate=rate,
                n_steps=n_steps,
            ),
            "MLPClassifier": functools.partial(theirs.fit, X, y),
        }
        if _opacus.VERSION is not None and i < opacus_repetitions:
            for mode in ("hooks", "ghost"):
                fits[f"Opacus {mode}"] = functools.partial(
                    opacus_fit, X, y, trial, batch_size, mode
                )
        for what, fit in fits.items():
            found.setdefault(what, []).append(time_of(fit))
    steps = {"skdp": n_steps, "MLPClassifier": theirs.t_ // len(X) * math.ceil(len(X) / batch_size)}
    return {what: np.median(times) for what, times in found.items()}, steps, batch_size


def main():
    """Run the comparison."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", nargs="+", default=_images.SETS, choices=_images.SETS)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--opacus-repetitions", type=int, default=1, help="it takes minutes")
    arguments = parser.parse_args()
    print(f"{torch.get_num_threads()} threads")
    warnings.simplefilter("ignore")
    if _opacus.VERSION is None:
        print(_opacus.MISSING)
    for name in _images.available(arguments.sets):
        X, _, y, _ = _images.load(name)
        times, steps, batch_size = measure(
            X, y, arguments.repetitions, arguments.opacus_repetitions
        )
        print(
            f"{name}: {len(X)} rows, batches of {batch_size}, {steps['skdp']} steps "
            f"(MLPClassifier: {steps['MLPClassifier']})"
        )
        for what, seconds in times.items():
            print(f"    {what:<14}{seconds:9.3f} s  ({seconds / times['skdp']:.2f})", flush=True)


if __name__ == "__main__":
    main()
