"""What a GPU alone can tell: whether sums, noise and batches on it are right, and how fast it is.

    python benchmarks/gpu.py [--json FILE]

takes at most six minutes on one GPU, and names the parts it had no time for. Without a GPU,

    python benchmarks/gpu.py --device cpu --quick

tries the script on a small scale. The exit status is 1 if a sum or a law is wrong or a part fails.

- *sums*: clipped sums of the modules of `zoo`, 9 records each, with clipping norms ∞, the median
  and 1e-3, on the device against those of the CPU in double precision. Errors are shares of the sum
  of the clipped norms: at most 1e-8 in double, and 1e-5 in single precision. The module is tried on
  the device too, as a fit tries it. One that draws at random in training is held in evaluation.
- *laws*: of what a run of DP-SGD releases on the device. With batches that are empty it is noise
  alone: mean, deviation, Kolmogorov–Smirnov, tails, correlation of successive steps, the grid. With
  one weight per record and no noise it is who took part: rate, dispersion of sizes of batches and
  of how often records took part, Kolmogorov–Smirnov of the records' numbers. p-values above 1e-6.
- *steps*: time of a step and peak memory, of the CNN and the transformer of `step_time`, at batches
  of 512 and 4096 of its 8192 rows. Methods take turns, in random order. A step's time is that from
  its end to the next one's on the device, which nobody waits for in between. Printed are the median
  in ms, and the median over the rounds of its ratio to the plain step of the same round, with the
  least and the largest. *skdp* is a run as a fit has it after its plan: Poisson batches, copies of
  their rows, clipping, noise, update, average. *whole* is the same with all records of a batch at
  once. *plain*, *Opacus*: see `step_time`; they index rows that are on the device. *plain, sizes*
  has batches of the sizes that Poisson batches have: each new shape is planned anew.
- *profile*: per step of skdp, how often the host waits for the device, how many kernels it
  launches, and the ms for which the device copies from the host, and works.
"""

import argparse
import copy
import gc
import json
import math
import os
import platform
import time
import traceback
import warnings

import _opacus
import numpy as np
import step_time
import torch
import zoo
from scipy import stats
from torch import nn

import skdp
from skdp.algorithms.dp_sgd import DPSGDConfig
from skdp.algorithms.dp_sgld import DPSGLDConfig, default_thinning
from skdp.algorithms.parts.network_models import NetworkModel
from skdp.engine import release_hook
from skdp.engine.modules.flat_module import FlatModule
from skdp.engine.modules.gradients import book_keeping, vmapped
from skdp.fitting.streams import Streams
from skdp.models.tasks import Classification

MINUTES = 6.0
SHARES = {"sums": 0.5, "laws": 0.6, "steps": 1.0}  # of the time, at which a part has to end
SINGLE = 1e-5  # of which a CPU needs 3e-7
RARE = 1e-6  # p-values below it refute a law
MODELS = {"CNN": "CNN 16-32-512-32-10", "transformer": "transformer, 2 blocks"}
GOAL = 1.3  # times the plain step
WARM, TIMED = 5, 25  # steps of a round
ROUNDS = 5


# --- sums -----------------------------------------------------------------------------------------


def kinds():
    """Return {name: species} of modules, each of which is made anew: species may share layers."""
    found = {}
    for name, draw in zoo.FAMILIES.items():
        torch.manual_seed(0)
        found[name] = draw()
    return {
        name: species._replace(make=lambda s=species: copy.deepcopy(s.make()))
        for name, species in (found | zoo.BODIES | zoo.BROKE).items()
    }


def errors(species, device):
    """Return the errors of the sums on a device in both precisions, and both methods."""
    here = zoo.tried_case(species)
    single = zoo.tried_case(species, device=device, dtype=torch.float32)
    double = FlatModule(here.module, device)
    if is_random(here):
        for flat in (here.flat, double, single.flat):
            flat.module.eval()
    take = {"book-keeping": book_keeping, "vmap": vmapped}[here.method]
    norms = take(here.flat, zoo.loss, here.x, here.y).norms
    found = {"double": 0.0, "single": 0.0}
    for clip in (math.inf, float(norms.median()), 1e-3):
        total = norms.clamp(max=clip).sum()
        expected = clipped(here, here.flat, here.method, clip)
        for name, flat, case in (("double", double, here), ("single", single.flat, single)):
            error = (clipped(case, flat, case.method, clip) - expected).norm() / total
            found[name] = max(found[name], float(error))
    return found | {"methods": [here.method, single.method]}


def is_random(case):
    """Whether a module's outputs in training depend on torch's generator."""
    passes = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        passes.append(case.flat.module(case.x))
    return not torch.equal(*passes)


def clipped(case, flat, method, clip):
    """Return the clipped sum of a case's records, on the CPU in double precision."""
    clipped_sum = zoo.NetworkClippedSum(flat, zoo.loss, clip, method=method)
    return clipped_sum(flat.flat.clone(), case.records(flat)).double().cpu()


def sums(device, quick, until):
    """Hold the sums of every kind against those of the CPU."""
    found, late = [], []
    for name, species in list(kinds().items())[:: 8 if quick else 1]:
        if time.monotonic() > until:
            late.append(name)
            continue
        try:
            row = errors(species, device)
            row["right"] = row["double"] <= zoo.TOLERANCE and row["single"] <= SINGLE
        except ValueError as error:  # refused; where the CPU takes it that is wrong
            taken = zoo.examined(species).outcome != "refused"
            row = {"right": not taken, "said": str(error)}
        found.append({"kind": name, **row})
    taken = [row for row in found if "double" in row]
    for precision, limit in (("double", zoo.TOLERANCE), ("single", SINGLE)):
        worst = max(taken, key=lambda row: row[precision])
        print(f"{precision}: worst of {len(taken)} kinds {worst[precision]:.1e}, of {worst['kind']}"
              f" (at most {limit:g})")  # fmt: skip
    for row in found:
        if not row["right"]:
            print(f"WRONG {row}")
    moved = [row["kind"] for row in taken if len(set(row["methods"])) > 1]
    print(f"refused by both: {len(found) - len(taken)}; by another method than on the CPU: "
          + (", ".join(moved) or "none"))  # fmt: skip
    print(f"no time for: {', '.join(late)}" if late else "all kinds were tried")
    return {"kinds": found, "no_time_for": late, "right": all(row["right"] for row in found)}


# --- laws -----------------------------------------------------------------------------------------


def config(n_rows, n_steps, rate, noise_multiplier, **others):
    """Return the public facts of a run of DP-SGD."""
    return DPSGDConfig(
        n_rows=n_rows,
        n_steps=n_steps,
        sampling_rate=rate,
        clip_norm=1.0,
        noise_multiplier=noise_multiplier,
        optimizer="sgd",
        learning_rate=step_time.LEARNING_RATE,
        **others,
    )


def minus(outputs, y):
    """A loss whose gradient in a lone linear layer is minus the record."""
    return -outputs[:, 0]


def released(X, plan, device):
    """Run a lone linear layer without bias on rows, and return the calls and what was released."""
    model = NetworkModel(nn.Linear(X.shape[1], 1, bias=False), minus, device=device)
    with release_hook.record() as tape:
        plan.run((X, np.zeros(len(X), dtype=np.float32)), Streams(), model=model)
    if any(release.output.device.type != device.type for release in tape):
        raise RuntimeError("a release is not where its parameters are")
    return [r.call for r in tape], torch.stack([r.output for r in tape]).double().cpu().numpy()


def both_tails(law, value):
    """Return the p-value of a law's statistic that is wrong on either side."""
    return float(min(1.0, 2 * min(law.cdf(value), law.sf(value))))


def noise_law(values):
    """Return p-values of standard normal numbers, a row per step."""
    flat, n = values.ravel(), values.size
    steps = (values[1:] * values[:-1]).sum() / math.sqrt(values[1:].size)
    tails = (np.abs(flat) > 3.0).sum()
    return {
        "mean": both_tails(stats.norm, flat.mean() * math.sqrt(n)),
        "deviation": both_tails(stats.chi2(n), np.square(flat).sum()),
        "Kolmogorov–Smirnov": float(stats.kstest(flat, "norm").pvalue),
        "beyond 3": both_tails(stats.binom(n, 2 * stats.norm.sf(3.0)), tails),
        "steps": both_tails(stats.norm, steps),
    }


def batch_law(there, rate):
    """Return p-values of who takes part, (n_steps, n_records) of 0 and 1, with a rate."""
    (n_steps, n), variance = there.shape, rate * (1 - rate)
    sizes, times = there.sum(1), there.sum(0)
    _, rows = there.nonzero()
    return {
        "rate": both_tails(stats.binom(there.size, rate), there.sum()),
        "sizes": both_tails(
            stats.chi2(n_steps), np.square(sizes - n * rate).sum() / (n * variance)
        ),
        "records": both_tails(
            stats.chi2(n), np.square(times - n_steps * rate).sum() / (n_steps * variance)
        ),
        "Kolmogorov–Smirnov": float(stats.kstest((rows + 0.5) / n, "uniform").pvalue),
    }


def laws(device, quick, until):
    """Hold noise and batches on a device against their laws."""
    X = np.zeros((4, 2**14 if quick else 2**16), dtype=np.float32)
    calls, found = released(X, config(len(X), 16, 1e-12, 1.0), device)
    noise = noise_law(found / calls[0].scale)
    on_grid = bool((np.fmod(found, calls[0].width) == 0.0).all())
    n, rate = (512, 0.25) if quick else (2048, 0.25)
    _, there = released(np.eye(n, dtype=np.float32), config(n, 200, rate, 0.0), device)
    whole = bool(np.isclose(there, there.round(), atol=1e-5).all())
    batches = batch_law(there.round(), rate)
    for name, of_law, aside in (("noise", noise, on_grid), ("batches", batches, whole)):
        print(f"{name:<10}" + ", ".join(f"{key} {p:.2g}" for key, p in of_law.items()))
        if not aside:
            print(f"WRONG {name}: " + ("not on the grid" if name == "noise" else "not whole"))
    least = float(min(*noise.values(), *batches.values()))
    return {
        "noise": noise,
        "batches": batches,
        "on_grid": on_grid,
        "whole": whole,
        "right": on_grid and whole and least > RARE,
    }


# --- steps ----------------------------------------------------------------------------------------


class Clock:
    """Ends of steps on a device, for which the host does not wait."""

    def __init__(self, device):
        self.on_gpu, self.stamps = device.type == "cuda", []

    def stamp(self):
        """Note that a step ends here."""
        if self.on_gpu:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self.stamps.append(event)
        else:
            self.stamps.append(time.perf_counter())

    def over(self, states):
        """Go through the states of a run."""
        for state in states:
            self.stamp()
            yield state

    def milliseconds(self):
        """Return the time of each step but the first ones."""
        if self.on_gpu:
            torch.cuda.synchronize()
        pairs = zip(self.stamps[WARM - 1 :], self.stamps[WARM:], strict=False)
        return [a.elapsed_time(b) if self.on_gpu else 1e3 * (b - a) for a, b in pairs]


def repeated(method, *, poisson=False):
    """Return what makes a method of `step_time` take steps under a clock."""

    def make(name, X, y, batch_size, device):
        rng, rate = np.random.default_rng(0), batch_size / len(X)
        size = (lambda: int(rng.binomial(len(X), rate))) if poisson else batch_size
        train = step_time.METHODS[method](name, X, y, size, device)

        def run(n_steps, clock):
            for _ in range(n_steps):
                train(1)
                clock.stamp()

        return run

    return make


def ours(algorithm, at_once=lambda batch_size: None):
    """Return what makes runs of an algorithm take steps under a clock."""

    def make(name, X, y, batch_size, device):
        shape, n_classes, network, _ = step_time.MODELS[name]
        task = Classification(n_outputs=n_classes)
        model = NetworkModel(network(), task.loss, device=device)
        model.try_out(task, shape)
        how = {"physical_batch_size": at_once(batch_size)}

        def run(n_steps, clock):
            plan = algorithm(len(X), n_steps, batch_size / len(X), step_time.NOISE, **how)
            plan.run((X, y), Streams(), clock.over, model=model)

        return run

    return make


def chain(n_rows, n_steps, rate, noise_multiplier, **others):
    """Return the public facts of a run of DP-SGLD with steps of one length."""
    eta, batch_size = step_time.LEARNING_RATE, rate * n_rows
    return DPSGLDConfig(
        n_rows=n_rows,
        n_steps=n_steps,
        sampling_rate=rate,
        clip_norm=1.0,
        temperature=noise_multiplier**2 * n_rows * eta / (2 * batch_size**2),
        learning_rate=lambda step: eta,
        burn_in=n_steps // 2,
        thinning=default_thinning(n_steps, n_steps // 2),
        **others,
    )


METHODS = {
    "plain": repeated("plain"),
    "plain, sizes": repeated("plain", poisson=True),
    "skdp DP-SGD": ours(config),
    "skdp DP-SGLD": ours(chain),
    "skdp, whole": ours(config, at_once=lambda batch_size: 2 * batch_size),
    "Opacus hooks": repeated("Opacus hooks"),
    "Opacus ghost": repeated("Opacus ghost"),
}


def peak_mb(make, run, device):
    """Make a method and let it run; return it, and the peak of memory above that before."""
    if device.type != "cuda":
        made = make()
        run(made)
        return made, None
    gc.collect()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    made = make()
    run(made)
    torch.cuda.synchronize()
    return made, (torch.cuda.max_memory_allocated() - before) / 2**20


def cell(name, batch_size, device, methods, rounds, until):
    """Return {method: times in ms, a list per round; peak memory, profile}, and who failed."""
    shape, n_classes, *_ = step_time.MODELS[name]
    rng = np.random.default_rng(0)
    X = rng.standard_normal((step_time.N_ROWS, *shape), dtype=np.float32)
    y = np.arange(len(X)) % n_classes
    runs, found, failed = {}, {}, {}
    for method in methods:
        torch.manual_seed(0)
        try:
            runs[method], peak = peak_mb(
                lambda m=method: METHODS[m](name, X, y, batch_size, device),
                lambda run: run(2 * WARM, Clock(device)),
                device,
            )
            found[method] = {"peak_mb": peak, "ms": []}
        except Exception as error:
            failed[method] = in_words(error)
    for _ in range(rounds):
        for method in rng.permutation(list(runs)).tolist():
            clock = Clock(device)
            try:
                runs[method](WARM + TIMED, clock)
                found[method]["ms"].append(clock.milliseconds())
            except Exception as error:
                del runs[method], found[method]
                failed[method] = in_words(error)
        if time.monotonic() > until:
            break
    for method in runs:
        if method.startswith("skdp"):
            try:
                found[method]["profile"] = profile(runs[method], device)
            except Exception as error:  # what was timed stands
                failed[f"profile of {method}"] = in_words(error)
    return found, failed


def in_words(error):
    """Return the kind and the first line of an error."""
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"


def profile(run, device, n_steps=10):
    """Return what a profiler counts in a step."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    if device.type == "cuda":
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=activities) as profiler:
        run(n_steps, Clock(device))
    events = profiler.key_averages()
    on_device = [e for e in events if e.device_type == torch.autograd.DeviceType.CUDA]

    def count(*starts):
        return sum(e.count for e in events if e.key.startswith(starts)) / n_steps

    def busy(word=""):
        of_word = [e for e in on_device if word in e.key]
        return sum(e.self_device_time_total for e in of_word) / n_steps / 1e3

    return {
        "reads of the device": count("aten::_local_scalar_dense", "aten::nonzero"),
        "waits": count("cudaStreamSynchronize"),
        "launches": count("cudaLaunchKernel", "cuLaunchKernel"),
        "copies ms": busy("Memcpy HtoD"),
        "busy ms": busy(),
    }


def steps(device, quick, until):
    """Time steps of each network, batch size and method, and print them."""
    batches, rounds = ((32, 64), 1) if quick else ((512, 4096), ROUNDS)
    methods = list(METHODS)
    if _opacus.VERSION is None:
        print(_opacus.MISSING)
        methods = [m for m in methods if not m.startswith("Opacus")]
    found, late, cells = [], [], [(short, b) for short in MODELS for b in batches]
    for i, (short, batch_size) in enumerate(cells):
        left = until - time.monotonic()
        if left <= 0.0:
            late.append(f"{short}, {batch_size}")
            continue
        share = time.monotonic() + left / (len(cells) - i)
        times, failed = cell(MODELS[short], batch_size, device, methods, rounds, share)
        print(f"{short}, batches of {batch_size}, {TIMED} steps a round")
        for method, of in times.items():
            medians = np.median(of["ms"], axis=1)
            ratios = medians / np.median(times["plain"]["ms"], axis=1)
            row = {
                "model": short,
                "batch": batch_size,
                "method": method,
                "median_ms": float(np.median(medians)),
                "ratio": float(np.median(ratios)),
                **of,
            }
            found.append(row)
            peak = "–" if of["peak_mb"] is None else f"{of['peak_mb']:.0f} MB"
            print(f"    {method:<14}{row['median_ms']:>9.2f} ms{row['ratio']:>7.2f}"
                  f" ({min(ratios):.2f}–{max(ratios):.2f}){peak:>10}  "
                  + ", ".join(f"{k} {v:.3g}" for k, v in of.get("profile", {}).items()),
                  flush=True)  # fmt: skip
        for method, reason in failed.items():
            print(f"    {method} fails: {reason}")
    print(f"no time for: {'; '.join(late)}" if late else "all cells were timed")
    return {
        "cells": found,
        "no_time_for": late,
        "goals": goals(found) if device.type == "cuda" else [],
    }


def goals(cells):
    """Say of each goal whether it is met, and print it."""
    found = []
    by_cell = {}
    for row in cells:
        by_cell.setdefault((row["model"], row["batch"]), {})[row["method"]] = row["median_ms"]
    for (model, batch), ms in by_cell.items():
        peers = [t for method, t in ms.items() if method.startswith("Opacus")]
        for method in ("skdp DP-SGD", "skdp DP-SGLD"):
            if method not in ms or "plain" not in ms:
                continue
            asked = {f"at most {GOAL} × plain": ms[method] / ms["plain"] <= GOAL}
            if peers:
                asked["faster than Opacus"] = ms[method] < min(peers)
            for goal, met in asked.items():
                found.append({"goal": f"{model}, {batch}, {method}: {goal}", "met": bool(met)})
    for row in found:
        print(f"{'met   ' if row['met'] else 'MISSED'} {row['goal']}")
    return found


PARTS = {"sums": sums, "laws": laws, "steps": steps}


def described(device):
    """Say what the machine is, and which versions ran."""
    about = {
        "date": time.strftime("%Y-%m-%d"),
        "device": device.type,
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "torch": torch.__version__,
        "opacus": _opacus.VERSION,
        "skdp": skdp.__version__,
    }
    if device.type == "cuda":
        facts = torch.cuda.get_device_properties(device)
        about |= {
            "device": facts.name,
            "device_memory_gb": round(facts.total_memory / 2**30),
            "capability": f"{facts.major}.{facts.minor}",
            "cuda": torch.version.cuda,
            "cudnn": torch.backends.cudnn.version(),
            "tf32": {
                "matmul": torch.backends.cuda.matmul.allow_tf32,
                "cudnn": torch.backends.cudnn.allow_tf32,
            },
        }
    return about


def main(given=None):
    """Run the parts; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda", help="cuda, or cpu to try the script")
    parser.add_argument("--quick", action="store_true", help="a small version of each part")
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=list(PARTS))
    parser.add_argument("--minutes", type=float, default=MINUTES, help="that it takes at most")
    parser.add_argument("--json", metavar="FILE", help="write all that was found here")
    arguments = parser.parse_args(given)
    warnings.simplefilter("ignore")
    device = torch.device(arguments.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        parser.error(
            f"torch {torch.__version__} sees no GPU here: this needs one of NVIDIA's, its driver, "
            "and a torch that is built for CUDA (torch.cuda.is_available() must be True). Without "
            "one, --device cpu --quick tries the script."
        )
    start, found = time.monotonic(), {"about": described(device)}
    print(", ".join(f"{key} {value}" for key, value in found["about"].items()))
    status = 0
    for part in arguments.parts:
        print(f"\n--- {part}", flush=True)
        until = start + 60 * arguments.minutes * SHARES[part]
        try:
            found[part] = PARTS[part](device, arguments.quick, until)
        except Exception:  # the other parts are wanted all the same
            found[part] = {"right": False, "failed": traceback.format_exc()}
            print(found[part]["failed"])
        status |= not found[part].get("right", True)
        found[part]["seconds"] = time.monotonic() - start
        if arguments.json:
            with open(arguments.json, "w") as file:
                json.dump(found, file, indent=1)
    print(f"\n{time.monotonic() - start:.0f} s; " + ("WRONG: see above" if status else "all right"))
    return int(status)


if __name__ == "__main__":
    raise SystemExit(main())
