"""skdp beside diffprivlib, Opacus, DP-EBM and scikit-learn: the figures of docs/benchmarks.md.

    SKDP_DATA=... DIFFPRIVLIB_PYTHON=... python benchmarks/side_by_side.py [PART ...] [--mnist]

Parts: utility (log-loss, accuracy and calibration of logistic regressions on tables), curves
(log-loss of additive models on tables; ``--peer`` names the file of DP-EBM's figures that
`additive.py peer` writes, so that they need not run again), intervals (coverage), reports and
conformal (coverage of private evaluation; MAPIE_PYTHON as in `conformal.py`), images (networks on
digits, with ``--mnist`` on MNIST too), accounting (what is counted in searches and folds),
memory, time. Without a name, all: about an hour on 2 cores, and half of one again for DP-EBM.
SKDP_DATA names a folder of data (see `_tasks.py`); DIFFPRIVLIB_PYTHON the interpreter of an
environment that has diffprivlib, which does not import on the scikit-learn of today. Without it,
and without Opacus or interpret-core, their columns are left out, and the page says so.

A part that has run keeps its figures in docs/benchmarks.json; the page and its pictures are written
anew from all of them. `page` writes them and runs nothing. Every sentence that compares is computed
from the figures. Splits are seeded, private fits are not. Every process has one thread.
"""

import argparse
import json
import math
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean, median, stdev
from textwrap import wrap

# The page needs little more than the standard library; what a part needs, it imports.

ROOT = Path(__file__).resolve().parents[1]
FIGURES, PAGE = ROOT / "docs" / "benchmarks.json", ROOT / "docs" / "benchmarks.md"
PICTURES = ROOT / "docs" / "_static" / "benchmarks"

DELTA, EPSILONS, SPLITS, CAP = 1e-5, (0.5, 1.0, 3.0), 5, 10_000
TABLES = ("breast_cancer", "german", "pima", "abalone", "spambase", "magic", "adult")
C = (1.0, 100.0)  # diffprivlib's default, and one that regularises less
STEP_SIZES = (0.1, 0.01)  # of Adam, for Opacus' logistic regression; see the page
SIMULATIONS = 500  # of private reports
SIMULATED, COVERAGE_EPSILONS, DRAWS = ((1000, 5), (10_000, 10)), (0.1, 1.0, 3.0, math.inf), (60, 20)
IMAGE_EPSILONS, IMAGE_REPETITIONS = (1.0, 3.0), {"digits": 10, "mnist": 3}
TIMED_TABLES, TIMED_FITS = ("breast_cancer", "spambase", "adult"), 15
NETWORK_FITS, STEP_ROUNDS = (11, 5), 40  # of skdp and scikit-learn, of Opacus
STEPS = (("MLP 784-100-10", 256), ("CNN 16-32-512-32-10", 64))
STEP_METHODS = ("plain", "skdp", "Opacus hooks", "Opacus ghost", "vmap")
MEMORY_ROWS = (100_000, 400_000)


# --- helpers of the parts -------------------------------------------------------------------------


def say(text):
    """Print progress."""
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def diffprivlib(*arguments):
    """Return what diffprivlib's side prints, or None where there is none."""
    interpreter = os.environ.get("DIFFPRIVLIB_PYTHON")
    if not interpreter:
        return None
    command = [interpreter, str(Path(__file__).with_name("_diffprivlib.py")), *map(str, arguments)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def each(function, jobs, processes):
    """Yield a job and its result, in order, from fresh processes."""
    warnings.simplefilter("ignore")
    with ProcessPoolExecutor(
        processes, get_context("spawn"), warnings.simplefilter, ("ignore",)
    ) as pool:
        for job, found in zip(jobs, pool.map(function, *zip(*jobs, strict=True)), strict=True):
            say(f"    {function.__name__} {' '.join(map(str, job))}")
            yield job, found


def scores(y, probabilities):
    """Accuracy, log-loss and expected calibration error."""
    import numpy as np
    from sklearn.metrics import log_loss

    from skdp.metrics import expected_calibration_error

    p = np.asarray(probabilities, dtype=float)
    p = p / p.sum(axis=1, keepdims=True)  # of single precision
    return {
        "accuracy": float(np.mean(p.argmax(axis=1) == y)),
        "log-loss": float(log_loss(y, p, labels=range(p.shape[1]))),
        "ECE": float(expected_calibration_error(y, p)),
    }


def opacus(like, X, y, Z, hidden, learning_rate):
    """Probabilities by Opacus and Adam, under the plan of a fitted `DPSGDClassifier`."""
    import itertools

    import _opacus
    import torch
    from fit_time import drawn

    from skdp.models.perceptron import perceptron

    module = perceptron(X.shape[1], y.max() + 1, hidden, "tanh")
    step, _ = _opacus.private(
        module,
        torch.optim.Adam(module.parameters(), learning_rate),
        torch.from_numpy(X),
        torch.from_numpy(y),
        batch_size=round(like.sampling_rate_ * len(X)),
        noise_multiplier=like.noise_multiplier_,
        mode="ghost",
    )
    for inputs, labels in itertools.islice(drawn(X, y, like.sampling_rate_), like.n_iter_):
        step(inputs, labels)
    with torch.no_grad():
        return module(torch.from_numpy(Z)).softmax(1).numpy()


def gathered(into, cells):
    """Append the scores of one repetition to those of the others."""
    for cell, methods in cells.items():
        for method, found in methods.items():
            for metric, value in found.items():
                into.setdefault(cell, {}).setdefault(method, {}).setdefault(metric, []).append(
                    value
                )


# --- parts ----------------------------------------------------------------------------------------


def one_table(task, seed):
    """Scores of every logistic regression on one split of a task: {ε: {method: scores}}."""
    import _opacus
    import numpy as np
    from _tasks import load
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import train_test_split

    from skdp import DPSGDClassifier, DPVariationalLogisticRegression, OPSPosteriorSampler

    X, y = load(task)
    n_rows = len(X)
    if n_rows > 2 * CAP:
        X, _, y, _ = train_test_split(X, y, train_size=CAP, random_state=0, stratify=y)
    A, B, a, b = train_test_split(X, y, test_size=0.3, random_state=seed, stratify=y)
    plain = {"data_norm": 1.0, "fit_intercept": False, "classes": [0, 1], "n_samples": len(A)}
    replaced = plain | {"neighboring_relation": "replace_one"}
    p = y.mean()
    entropy = -p * np.log(p) - (1 - p) * np.log1p(-p)
    about = {"rows": len(y), "of": n_rows, "columns": X.shape[1], "entropy": entropy}
    cells = {}
    for epsilon in EPSILONS:
        models = {
            "skdp": DPVariationalLogisticRegression(epsilon, DELTA, **plain),
            "skdp, 3 samples": OPSPosteriorSampler(epsilon, DELTA, n_posterior_samples=3, **plain),
            "skdp, replaced": DPVariationalLogisticRegression(epsilon, DELTA, **replaced),
            "skdp, δ = 0": OPSPosteriorSampler(epsilon, 0, **replaced),
        }
        found = {name: m.fit(A, a).predict_proba(B) for name, m in models.items()}
        if _opacus.VERSION is not None:
            declared = {"classes": [0, 1], "n_samples": len(A)}
            like = DPSGDClassifier(epsilon, DELTA, hidden_layer_sizes=(), **declared)
            rows = np.float32(A[:, 1:]), a, np.float32(B[:, 1:])  # the module has an intercept
            like.fit(rows[0], a)
            for size in STEP_SIZES:
                found[f"Opacus, {size:g}"] = opacus(like, *rows, (), size)
        cells[f"{epsilon:g}"] = {name: scores(b, proba) for name, proba in found.items()}
    free = LogisticRegression(C=C[1], fit_intercept=False, max_iter=1000).fit(A, a)
    cells["inf"] = {"no privacy": scores(b, free.predict_proba(B))}
    with tempfile.TemporaryDirectory() as folder:
        given, made = Path(folder) / "given.npz", Path(folder) / "made.npz"
        settings = [(epsilon, c) for epsilon in EPSILONS for c in C]
        np.savez(given, A=A, a=a, B=B, settings=settings)
        if diffprivlib("utility", given, made) is not None:
            for (epsilon, c), proba in zip(settings, np.load(made)["probabilities"], strict=True):
                cells[f"{epsilon:g}"][f"diffprivlib, C = {c:g}"] = scores(b, proba)
    return about, cells


def utility(options):
    """Logistic regressions on tables."""
    tasks = {}
    jobs = [(task, seed) for task in TABLES for seed in range(SPLITS)]
    for (task, _), (about, cells) in each(one_table, jobs, options.jobs):
        gathered(tasks.setdefault(task, about | {"cells": {}})["cells"], cells)
    return {"splits": SPLITS, "tasks": tasks}


def one_curve(task, epsilon, split, with_peers):
    """Log-loss of every additive model and of the linear one on one split, by method."""
    import _additive_tables as protocol

    at = protocol.splits(task)[split]
    losses = protocol.ours(task, epsilon, at)
    losses |= protocol.peers(task, epsilon, at) if with_peers else {}
    return {method: {"log-loss": loss} for method, loss in losses.items()}


def curves(options):
    """Additive models on tables."""
    import _additive_tables as protocol

    there = [t for t in protocol.TABLES if t != "credit" or os.environ.get("SKDP_DATA")]
    jobs = [
        (task, epsilon, split, options.peer is None)
        for task in there
        for epsilon in protocol.EPSILONS
        for split in range(protocol.n_splits(task))
    ]
    tasks = {}
    for (task, epsilon, *_), losses in each(one_curve, jobs, options.jobs):
        gathered(tasks.setdefault(task, {}), {f"{epsilon:g}": losses})
    kept = json.loads(Path(options.peer).read_text()) if options.peer else {}
    for task, cells in tasks.items():
        for epsilon, methods in cells.items():
            losses = {method: found["log-loss"] for method, found in methods.items()}
            losses |= kept.get(task, {}).get(epsilon, {})
            chosen = {
                "DP-EBM, defaults": protocol.best(losses, protocol.DEFAULTS),
                "DP-EBM, best": protocol.best(losses),
            }
            shown_as = {"linear": "linear", "additive": "additive"}
            shown_as |= {name: method for name, method in chosen.items() if method}
            cells[epsilon] = {name: {"log-loss": losses[m]} for name, m in shown_as.items()}
    sizes = {task: len(protocol.splits(task)[0][0]) for task in tasks}
    return {"tasks": tasks, "rows": sizes, "settings": protocol.SETTINGS}


def one_coverage(n, d, inference, epsilon):
    """Coverage of 90 % intervals and its standard error, and their mean width, by noise_aware."""
    from noise_aware import LEVELS, study

    draws = DRAWS[math.isinf(epsilon)]  # without privacy it is slow, and the reference only
    cover, error, width = study(n, d, epsilon, draws, inference=inference)
    at = list(LEVELS).index(0.9)
    return float(cover[at]), float(error[at]), float(width)


def intervals(options):
    """Coverage of credible intervals."""
    jobs = [
        (n, d, inference, epsilon)
        for n, d in SIMULATED
        for inference in ("noise_aware", "dpvi")
        for epsilon in COVERAGE_EPSILONS
    ]
    cells = [
        {"n": n, "d": d, "inference": inference, "epsilon": f"{epsilon:g}"}
        | dict(zip(("coverage", "error", "width"), found, strict=True))
        for (n, d, inference, epsilon), found in each(one_coverage, jobs, options.jobs)
    ]
    return {"draws": DRAWS, "cells": cells}


def one_image_set(name, seed):
    """Scores of every network on one split of a set: {ε: {method: scores}}."""
    import _images
    import _opacus
    from sklearn.neural_network import MLPClassifier

    from skdp import DPSGDClassifier, DPSGLDClassifier

    X, Z, y, z = _images.load(name, seed=seed)
    declared = {"classes": range(10), "n_samples": len(X)}
    cells = {}
    for epsilon in IMAGE_EPSILONS:
        like = DPSGDClassifier(epsilon, DELTA, **declared).fit(X, y)
        chain = DPSGLDClassifier(epsilon, DELTA, **declared).fit(X, y)
        found = {
            "DPSGDClassifier": like.predict_proba(Z),
            "DPSGLDClassifier": chain.predict_proba(Z),
        }
        if _opacus.VERSION is not None:
            found["Opacus"] = opacus(like, X, y, Z, (100,), like.learning_rate_)
        cells[f"{epsilon:g}"] = {method: scores(z, proba) for method, proba in found.items()}
    peer = MLPClassifier((100,), activation="tanh").fit(X, y)
    cells["inf"] = {"MLPClassifier": scores(z, peer.predict_proba(Z))}
    return cells


def images(options):
    """Networks on images."""
    import _images

    found = {}
    names = _images.available(_images.SETS if options.mnist else ["digits"])
    jobs = [(name, seed) for name in names for seed in range(IMAGE_REPETITIONS[name])]
    for (name, _), cells in each(one_image_set, jobs, options.jobs):
        gathered(found.setdefault(name, {}), cells)
    return {"sets": found}


def accounting(options):
    """What ledgers and accountants see."""
    import numpy as np
    from sklearn.model_selection import GridSearchCV, cross_val_score

    from skdp import BudgetExceededError, DPVariationalLogisticRegression, PrivacyLedger

    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (300, 2)) / 2**0.5
    y = (X[:, 0] > 0).astype(int)
    one = DPVariationalLogisticRegression(1.0, DELTA, data_norm=1.0, classes=[0, 1])
    with PrivacyLedger() as ledger:
        search = GridSearchCV(one, {"prior_scale": [1.0, 3.0, 10.0]}, cv=3).fit(X, y)
    found = {"fits": len(search.cv_results_["params"]) * search.n_splits_ + 1, "loop": 0}
    found |= {"counted": len(ledger.entries), "total": ledger.total(delta=DELTA)}
    with PrivacyLedger(epsilon=1.0, delta=DELTA):
        found["folds"] = int(np.isfinite(cross_val_score(one, X, y, cv=5)).sum())
    with PrivacyLedger(epsilon=1.0, delta=DELTA):
        for _ in range(5):
            try:
                one.fit(X, y)
            except BudgetExceededError:
                continue
            found["loop"] += 1
    theirs = diffprivlib("accounting")
    return {"skdp": found} | ({} if theirs is None else {"diffprivlib": theirs})


def watched(fit, folder, n_rows):
    """Peak memory of ``fit(X, y)`` on memory maps of the files of `memory.py`; runs anywhere."""
    import numpy as np
    from memory import N_FEATURES, STATUS, Peak, resident_mb

    X = np.memmap(Path(folder) / "X", np.float32, "r", shape=(n_rows, N_FEATURES))
    y = np.memmap(Path(folder) / "y", np.int8, "r", shape=(n_rows,))
    small = np.random.default_rng(0).standard_normal((2048, N_FEATURES), dtype=np.float32)
    fit(small, (np.arange(2048) % 2).astype(np.int8))  # loads what is loaded at first use
    resident, peak = resident_mb(), Peak() if STATUS.exists() else None
    if peak:
        peak.start()
    fit(X, y)
    anonymous = peak.stop() if peak else None
    return {"anonymous_mb": anonymous, "resident_mb": resident_mb() - resident}


def by_opacus(X, y):
    """30 steps on expected batches of 1024 rows, as `memory.py` takes them, with its own loader."""
    import _opacus
    import torch
    from fit_time import endless

    from skdp.models.perceptron import perceptron

    module = perceptron(X.shape[1], 2, (100,), "tanh")
    step, loader = _opacus.private(
        module,
        torch.optim.SGD(module.parameters(), 0.1),
        torch.from_numpy(X),
        torch.from_numpy(y),
        batch_size=1024,
        noise_multiplier=1.0,
        mode="hooks",
        poisson=True,
    )
    for _, (inputs, labels) in zip(range(30), endless(loader), strict=False):
        step(inputs, labels.long())


def memory_of(what, folder, n_rows):
    """Peak memory of one fit, in this process."""
    import memory
    from sklearn.linear_model import LogisticRegression

    from skdp import DPVariationalLogisticRegression

    if what == "DPSGDClassifier":
        return memory.fit(Path(folder), n_rows)
    fits = {
        "Opacus": by_opacus,
        "DPVariationalLogisticRegression": DPVariationalLogisticRegression(
            data_norm=10.0, classes=[0, 1]
        ).fit,
        "scikit-learn": LogisticRegression().fit,
    }
    return watched(fits[what], folder, n_rows)


def memory(options):
    """Peak memory of fits on files."""
    import _opacus
    from memory import write

    here = ["DPSGDClassifier", "DPVariationalLogisticRegression", "scikit-learn"]
    if _opacus.VERSION is not None:
        here.insert(1, "Opacus")
    found = {}
    for n_rows in MEMORY_ROWS:
        with tempfile.TemporaryDirectory() as folder:
            write(Path(folder), n_rows)
            for what in here:
                say(f"    {n_rows} rows, {what}")
                command = [sys.executable, __file__, "--memory-of", what, folder, str(n_rows)]
                child = subprocess.run(command, check=True, capture_output=True, text=True)
                found.setdefault(what, {})[str(n_rows)] = json.loads(child.stdout)
            say(f"    {n_rows} rows, diffprivlib")
            if (theirs := diffprivlib("memory", folder, n_rows)) is not None:
                found.setdefault("diffprivlib", {})[str(n_rows)] = theirs
    return {"peaks": found}


def logistic_times(task):
    """Seconds of fits that take turns: skdp's beside scikit-learn's here, diffprivlib's there."""
    import numpy as np
    from _tasks import load
    from logistic import timed_fit
    from sklearn.linear_model import LogisticRegression

    from skdp import DPVariationalLogisticRegression

    X, y = load(task)
    plain = LogisticRegression(fit_intercept=False, max_iter=1000)
    facts = {"data_norm": 1.0, "fit_intercept": False, "classes": [0, 1], "n_samples": len(X)}
    times = {"skdp": [], "scikit-learn": []}
    for i in range(TIMED_FITS + 1):
        # No ε is asked for twice: what was calibrated is remembered within a process.
        ours = DPVariationalLogisticRegression(1 + 1e-6 * i, DELTA, **facts)
        times["skdp"].append(timed_fit(ours, X, y))
        times["scikit-learn"].append(timed_fit(plain, X, y))
    found = {"here": {name: values[1:] for name, values in times.items()}}
    with tempfile.TemporaryDirectory() as folder:
        given = Path(folder) / "given.npz"
        np.savez(given, X=X, y=y, repetitions=TIMED_FITS)
        if (theirs := diffprivlib("time", given)) is not None:
            found["there"] = theirs
    return {"rows": len(X), "columns": X.shape[1]} | found


def step_times(model, batch_size):
    """Median milliseconds of a step of each method, and the median of its ratios to plain ones."""
    import _opacus
    import numpy as np
    import step_time
    import torch

    there = _opacus.VERSION is not None
    methods = [m for m in STEP_METHODS if there or not m.startswith("Opacus")]
    device = torch.device("cpu")
    times, failed = step_time.measure(model, batch_size, methods, device, STEP_ROUNDS)
    for method, reason in failed.items():
        say(f"    {method} fails: {reason}")
    return {
        method: {
            "ms": float(1e3 * np.median(values)),
            "ratio": median(t / p for t, p in zip(values, times["plain"], strict=True)),
        }
        for method, values in times.items()
    }


def times(options):
    """Whole fits, and single steps."""
    import _images
    from fit_time import measure

    tables, load = {}, os.getloadavg()[0]
    for task in TIMED_TABLES:
        say(f"    logistic regression, {task}")
        tables[task] = logistic_times(task)
    say("    networks, digits")
    X, _, y, _ = _images.load("digits")
    seconds, n_steps, batch_size = measure(X, y, *NETWORK_FITS)
    network = {
        "rows": len(X), "batch": batch_size, "steps": n_steps["skdp"],
        "seconds": {what: float(value) for what, value in seconds.items()},
    }  # fmt: skip
    steps = {}
    for model, batch in STEPS:
        say(f"    steps, {model}")
        steps[f"{model}, batches of {batch}"] = step_times(model, batch)
    found = {"tables": tables, "fits": TIMED_FITS, "network": network, "steps": steps}
    return found | {"load": load}


def printed(script, *arguments):
    """Return what another benchmark prints."""
    command = [sys.executable, str(Path(__file__).with_name(script)), *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def reports(options):
    """Coverage of the intervals of private reports, for each statistic, law, n and ε."""
    import evaluation

    cells = []
    for law in evaluation.LAWS:
        say(f"    {law}")
        text = printed("evaluation.py", "classes", "--simulations", SIMULATIONS, "--law", law)
        for line in text.splitlines():
            if head := re.match(rf"{law}, n=(\d+), epsilon=([\d.]+)", line):
                n, epsilon = int(head[1]), float(head[2])
            else:
                name, held, width, noise = re.match(
                    r"  (\w+) +holds (\S+)  width (\S+)  sd \S+ = (\S+) x", line
                ).groups()
                cells.append(
                    {"law": law, "n": n, "epsilon": epsilon, "statistic": name,
                     "coverage": float(held), "width": float(width), "noise": float(noise)}
                )  # fmt: skip
    return {"simulations": SIMULATIONS, "cells": cells}


def conformal(options):
    """Coverage and size of private conformal sets and intervals."""
    rows = []
    for line in printed("conformal.py").splitlines():
        name, m, found = re.match(r"(.+?) +m = (\d+)  (.*)", line).groups()
        each = re.findall(r"ε = (\S+?)(?: \(([^)]*)\))?: (\S+) ± (\S+), size ([\d.]+)", found)
        rows.append(
            {"name": name, "rows": int(m), "peer": each[-1][1]}
            | {e: [float(v) for v in values] for e, _, *values in each}
        )
    return {"sets": rows}


PARTS = {
    "utility": utility,
    "curves": curves,
    "intervals": intervals,
    "reports": reports,
    "conformal": conformal,
    "images": images,
    "accounting": accounting,
    "memory": memory,
    "time": times,  # last: the machine should have nothing else to do
}


# --- words ----------------------------------------------------------------------------------------


def packages(peers):
    """Versions that the figures were measured with."""
    found = {"Python": platform.python_version()}
    for name in ("skdp", "scikit-learn", "numpy", "torch", "opacus", "interpret-core"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found | (peers or {})


PEERS = {"opacus": "Opacus", "diffprivlib": "diffprivlib"}


def when(part, peers=PEERS):
    """Date, versions and duration of a part, and which peers were not there."""
    versions = ", ".join(f"{name} {v}" for name, v in part["packages"].items())
    text = f"Run on {part['date']} with {versions}, in {part['minutes']:.1f} minutes."
    gone = [name for key, name in peers.items() if key not in part["packages"]]
    return text + (f" Not installed, and left out: {listed(gone)}." if gone else "")


def of_one_code(parts, names):
    """Say of which code and of what machine all figures are, or that these differ."""
    found = {(parts[name].get("code"), parts[name].get("machine")) for name in names}
    if len(found) > 1 or None in (one := min(found)):
        return "**Not all figures are of one code and one machine.**"
    return f"All figures of skdp are of the same code, {one[0]} (a hash), on {one[1]}."


def machine():
    """Describe the processor and the memory."""
    cpus, memory = Path("/proc/cpuinfo"), Path("/proc/meminfo")
    found = re.search(r"model name\s*: (.*)", cpus.read_text()) if cpus.exists() else None
    name = found[1] if found else platform.machine()
    text = f"{os.cpu_count()} cores of {name}"
    if memory.exists():
        text += f" with {int(memory.read_text().split()[1]) / 2**20:.0f} GiB of memory"
    return text


def prose(text):
    """A paragraph, wrapped."""
    yield from wrap(
        re.sub("[ \n]+", " ", text).strip(), 100, break_long_words=False, break_on_hyphens=False
    )
    yield ""


def bullets(*items):
    """A list."""
    for item in items:
        text = re.sub("[ \n]+", " ", item).strip()
        yield from wrap(
            f"- {text}", 100, subsequent_indent="  ",
            break_long_words=False, break_on_hyphens=False,
        )  # fmt: skip
    yield ""


def table(head, rows):
    """A table in Markdown."""
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    yield from ("| " + " | ".join(map(str, row)) + " |" for row in rows)
    yield ""


def standard_error(values):
    """Of the mean; not known of one value."""
    return stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.inf


def shown(values):
    """Mean ± standard error."""
    if not values:
        return "–"
    error = standard_error(values)
    space = "\N{NO-BREAK SPACE}"
    spread = f"{space}±{space}{error:.3f}" if math.isfinite(error) else ""
    return f"{fmean(values):.3f}{spread}"


def digits(value):
    """Two or three digits."""
    return f"{value:.2g}" if value < 1 else f"{value:.{int(value < 10)}f}"


def thousands(number):
    """A number of rows."""
    return f"{int(number):,}".replace(",", "\N{NO-BREAK SPACE}")


def listed(words):
    """A, b and c."""
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last


def plain(task):
    """A task's name in words."""
    return task.replace("_", " ")


# --- comparisons ----------------------------------------------------------------------------------


def gains(metric, ours, theirs):
    """Differences of paired scores, > 0 where ours are better."""
    sign = 1 if metric == "accuracy" else -1
    return [sign * (a - b) for a, b in zip(ours, theirs, strict=True)]


def verdicts(cells, metric, ours, peers):
    """Sort the cells into better, worse and undecided; of several peers, against the best mean.

    A cell is decided by a t-test of the paired differences, two-sided, at 5 %.
    """
    from scipy.special import stdtrit

    found = {"better": [], "worse": [], "undecided": []}
    for cell, methods in cells.items():
        others = [methods[peer][metric] for peer in peers if peer in methods]
        if not others or ours not in methods:
            continue
        mine = methods[ours][metric]
        differences = min((gains(metric, mine, other) for other in others), key=fmean)
        mean, error = fmean(differences), standard_error(differences)
        clear = abs(mean) > stdtrit(max(len(mine) - 1, 1), 0.975) * error
        found["undecided" if not clear else "better" if mean > 0 else "worse"].append(cell)
    return found


def placed(lost, cells):
    """Name cells, the ε of each task together."""
    tasks = {}
    for task, epsilon in lost:
        tasks.setdefault(task, []).append(epsilon)
    for task, values in tasks.items():
        every = [e for t, e in cells if t == task and e != "inf"]
        at = "every ε" if len(every) == len(values) > 1 else f"ε = {listed(values)}"
        yield f"{plain(task)} at {at}"


def outcome(cells, metric, ours, peers):
    """Say in how many cells ours is better, worse (and where) and neither; None without a peer."""
    found = verdicts(cells, metric, ours, peers)
    total = sum(map(len, found.values()))
    if not total:
        return None
    better, worse = ("higher", "lower") if metric == "accuracy" else ("lower", "higher")
    lost = "; ".join(placed(found["worse"], cells))
    return (
        f"{better} in {len(found['better'])} of {total} cells, {worse} in {len(found['worse'])}"
        + (f" ({lost})" if lost else "")
        + f", undecided in {len(found['undecided'])}"
    )


def price(cells, metric):
    """Say what privacy costs the first method at each ε: the median over tasks."""
    costs = {}
    for (_, epsilon), methods in cells.items():
        free, ours = methods["no privacy"][metric], methods["skdp"][metric]
        costs.setdefault(epsilon, []).append(fmean(gains(metric, free, ours)))
    figures = listed([f"{round(median(values), 3) + 0.0:.3f}" for values in costs.values()])
    return f"{figures} at ε = {listed([*costs])}"


def marked(row, metric, methods, groups):
    """Cells of a table, with the best mean of each group of methods in bold."""
    best = max if metric == "accuracy" else min
    bold = set()
    for group in groups:
        means = {m: fmean(row[m][metric]) for m in group if m in row}
        bold |= {m for m in means if means[m] == best(means.values())}
    for method in methods:
        text = shown(row.get(method, {}).get(metric, []))
        yield f"**{text}**" if method in bold else text


# --- sections -------------------------------------------------------------------------------------

METRICS = {
    "log-loss": "Log-loss",
    "accuracy": "Accuracy",
    "ECE": "Expected calibration error",
}
ZEROED = ("skdp", "skdp, 3 samples", *(f"Opacus, {size:g}" for size in STEP_SIZES))
REPLACED = ("skdp, replaced", "skdp, δ = 0", *(f"diffprivlib, C = {c:g}" for c in C))
RELATIONS = (  # methods, and which of them is compared with which
    (
        "One record zeroed, or one more or fewer",
        ZEROED,
        (
            ("skdp", ZEROED[2:], "**skdp** against the better of Opacus' two"),
            ("skdp, 3 samples", ZEROED[2:], "**skdp, 3 samples** against the better of these"),
        ),
    ),
    (
        "One record replaced",
        REPLACED,
        (
            (
                "skdp, replaced",
                REPLACED[2:],
                "**skdp, replaced**, δ = 1e-5, against the better of diffprivlib's two, δ = 0",
            ),
            (
                "skdp, δ = 0",
                REPLACED[2:],
                "**skdp, δ = 0** against the better of diffprivlib's two, the same guarantee",
            ),
        ),
    ),
)  # fmt: skip
NEAR = 0.005  # of log-losses
DECIDED = """*Lower* and *higher* are by a paired t-test at 5 %, as if repetitions were independent;
    other cells are undecided."""


def utility_section(part):
    """Tables of log-loss, accuracy and calibration."""
    tasks = part["tasks"]
    cells = {
        (task, epsilon): methods | found["cells"]["inf"]
        for task, found in tasks.items()
        for epsilon, methods in found["cells"].items()
        if epsilon != "inf"
    }
    there = {method for methods in cells.values() for method in methods}
    sizes = ", ".join(
        f"{plain(task)} {thousands(f['rows'])} × {f['columns']}"
        + (f" (drawn from {thousands(f['of'])})" if f["of"] > f["rows"] else "")
        for task, f in tasks.items()
    )
    yield "## Logistic regression on tables"
    yield ""
    yield from prose(f"""
        Held-out rows of {part["splits"]} stratified 70/30 splits (seeds 0 to {part["splits"] - 1});
        mean ± standard error over them. Rows × columns: {sizes}. Features are standardised, cut at
        ±4 and scaled to rows of norm 1 or less, with a column for the intercept. That reads the
        data: it is the common preprocessing of a comparison, not a private pipeline. All get the
        same rows, and the norm declared.""")
    yield from prose("(ε, 1e-5), one record zeroed, or one more or fewer, at the same noise:")
    yield from bullets(
        "**skdp**: `DPVariationalLogisticRegression(epsilon)`, defaults.",
        "**skdp, 3 samples**: `OPSPosteriorSampler(epsilon, n_posterior_samples=3)`.",
        f"""**Opacus**: a linear module, with the steps, batches and noise of
        `DPSGDClassifier(epsilon, hidden_layer_sizes=())`, by Adam with step size
        {STEP_SIZES[0]:g}, and with {STEP_SIZES[1]:g}.""",
    )
    yield from prose("One record replaced by any other, about twice as strict:")
    yield from bullets(
        '**skdp, replaced**: the first, (ε, 1e-5), with `neighboring_relation="replace_one"`.',
        "**skdp, δ = 0**: `OPSPosteriorSampler(epsilon, 0)`, one sample, pure ε.",
        """**diffprivlib**: `LogisticRegression(epsilon)`, pure ε (it has no other), with its
        default `C=1`, and with `C=100`.""",
    )
    yield from prose(f"""
        **no privacy** is `LogisticRegression(C=100)` of scikit-learn. The best mean under each of
        the two relations is bold. Which of a peer's two is better is seen on the held-out rows, in
        its favour. {DECIDED} {when(part)}""")
    yield "![Held-out log-loss against ε, a panel for each task](_static/benchmarks/utility.svg)"
    yield ""
    yield from prose("""
        Of Opacus and of diffprivlib, the picture has the better of the two. Curves that leave it
        are worse than the class frequencies alone, which need no features.""")
    for metric, title in METRICS.items():
        yield f"### {title}"
        yield ""
        for relation, known, duels in RELATIONS:
            methods = [m for m in (*known, "no privacy") if m in there]
            rows = [
                (plain(task), epsilon, *marked(row, metric, methods, (known,)))
                for (task, epsilon), row in cells.items()
            ]
            yield from prose(f"{relation}:")
            yield from table(("task", "ε", *methods), rows)
            said = [(name, outcome(cells, metric, ours, peers)) for ours, peers, name in duels]
            said = [f"for {name}, {found}" for name, found in said if found]
            if known[0] == "skdp":
                said.append(f"""for **skdp** against no privacy, worse by {price(cells, metric)}
                    (medians over tasks)""")
            if said:
                yield from prose(f"{title} on held-out rows is, {'; '.join(said)}.")


def curve_section(part):
    """Log-loss of additive models."""
    cells = {(t, e): methods for t, found in part["tasks"].items() for e, methods in found.items()}
    there = list(dict.fromkeys(m for methods in cells.values() for m in methods))
    sizes = ", ".join(f"{plain(task)} {thousands(n)}" for task, n in part["rows"].items())
    counts = {t: len(found["1"]["linear"]["log-loss"]) for t, found in part["tasks"].items()}
    (rounds, rate), *others = part["settings"]
    tried = listed([f"{n} × {size:g}" for n, size in others])
    yield "## Curves on tables"
    yield ""
    yield from prose(f"""
        Log-loss on held-out rows of stratified 70/30 splits, {min(counts.values())} of each task
        and {max(counts.values())} of those with fewer than 5000 rows; mean ± standard error; δ =
        1e-5, one record zeroed, or one more or fewer. Rows to fit: {sizes}. Columns are
        standardised and cut at ±4, as above (`benchmarks/_additive_tables.py`).""")
    yield from bullets(
        "**linear**: `DPVariationalLogisticRegression(epsilon)`, on rows as above.",
        """**additive**: `DPAdditiveClassifier(epsilon)`, on columns with 32 bins between quantiles
        of a normal.""",
        f"""**DP-EBM**: `DPExplainableBoostingClassifier(epsilon)` of interpret-core, on these
        columns and on these rows; the better of the two, with its defaults ({rounds} rounds with
        learning rate {rate:g}), and the best of these and of {tried}. Its bounds are the least
        and the largest value of each column. What is best is seen on the held-out rows, and bounds
        are read from the rows: both are in its favour.""",
    )
    yield from prose(f"{DECIDED} {when(part, {'interpret-core': 'DP-EBM'})}")
    rows = [
        (plain(task), epsilon, *marked(row, "log-loss", there, (there,)))
        for (task, epsilon), row in cells.items()
    ]
    yield from table(("task", "ε", *there), rows)
    names = {
        "linear": "the linear model",
        "DP-EBM, defaults": "DP-EBM with its defaults",
        "DP-EBM, best": "the best DP-EBM",
    }
    said = [
        f"against {name}, {outcome(cells, 'log-loss', 'additive', (peer,))}"
        for peer, name in names.items()
        if peer in there
    ]
    yield from prose(f"The log-loss of the additive model is, {'; '.join(said)}.")
    gaps = {
        cell: -fmean(gains("log-loss", row["additive"]["log-loss"], row["linear"]["log-loss"]))
        for cell, row in cells.items()
    }
    within, worst = sum(gap <= NEAR for gap in gaps.values()), max(gaps, key=gaps.get)
    yield from prose(f"""
        Its mean is at most {NEAR:g} above that of the linear model in {within} of {len(cells)}
        cells; the largest difference is {gaps[worst]:+.3f}, on {listed([*placed([worst], cells)])}.
        """)


def interval_section(part):
    """Coverage."""
    names = {"noise_aware": "noise-aware", "dpvi": "plain DPVI"}
    reference = {
        (c["n"], c["d"]): c["width"]
        for c in part["cells"]
        if c["inference"] == "noise_aware" and c["epsilon"] == "inf"
    }
    rows, covers = [], {}
    for c in part["cells"]:
        cover = f"{100 * c['coverage']:.1f} ± {100 * c['error']:.1f}"
        width = f"{c['width'] / reference[c['n'], c['d']]:.2f}"
        size = f"{thousands(c['n'])} × {c['d']}"
        epsilon = c["epsilon"].replace("inf", "∞")
        rows.append((size, names[c["inference"]], epsilon, cover, width))
        if c["epsilon"] != "inf":
            covers.setdefault(c["inference"], []).append(100 * c["coverage"])
    yield "## Credible intervals"
    yield ""
    yield from prose(f"""
        How often, in %, central 90 % intervals of a coefficient hold the one that made the labels:
        {part["draws"][0]} draws (seeds from 0; {part["draws"][1]} at ε = ∞) of coefficients from
        the prior and of labels from the model. Such data is what the model describes; nothing is
        said of other data.
        Width is over that of noise-aware intervals at ε = ∞. Noise-aware inference is the default
        of `DPVariationalLogisticRegression`; `inference="dpvi"` is DPVI as published. No peer has
        intervals. {when(part)}""")
    yield "![Coverage of 90 % intervals against ε](_static/benchmarks/intervals.svg)"
    yield ""
    yield from prose("Bars in the picture: ± 2 standard errors.")
    yield from table(("rows × columns", "inference", "ε", "coverage", "width"), rows)
    spans = {name: f"{min(v):.0f} to {max(v):.0f} %" for name, v in covers.items()}
    yield from prose(f"""
        At finite ε, 90 % intervals covered {spans["noise_aware"]} if noise-aware, and
        {spans["dpvi"]} by plain DPVI.""")


def report_section(part):
    """Private reports."""
    named = {"auc": "AUC", "log_loss": "log-loss", "brier": "Brier score", "ece": "ECE"}
    whole, few = ("accuracy", *named), ("average_precision", "balanced_accuracy")
    cells, rows = part["cells"], []

    def span(chosen):
        covers = [100 * c["coverage"] for c in cells if chosen(c)]
        return f"{min(covers):.1f} to {max(covers):.1f}"

    for n, epsilon in dict.fromkeys((c["n"], c["epsilon"]) for c in cells):
        rows.append((thousands(n), f"{epsilon:g}", *(
            span(lambda c, key=(n, epsilon, name): (c["n"], c["epsilon"], c["statistic"]) == key)
            for name in whole
        )))  # fmt: skip
    laws = list(dict.fromkeys(c["law"] for c in cells))
    noise = [
        c["noise"] for c in cells
        if (c["n"], c["epsilon"], c["statistic"]) == (3000, 1.0, "auc")
    ]  # fmt: skip
    yield "## Private reports"
    yield ""
    yield from prose(f"""
        How often, in %, nominal 90 % intervals of a report hold the population's value of the
        binned statistic: the least and the most of {len(laws)} laws of scores ({listed(laws)}),
        {thousands(part["simulations"])} simulated tables each (standard error
        {100 * math.sqrt(0.09 / part["simulations"]):.1f}). {when(part, {})}""")
    yield from table(("rows", "ε", *(named.get(name, name) for name in whole)), rows)
    by_law = [
        (law, *(span(lambda c, key=(law, name): (c["law"], c["statistic"]) == key)
                for name in whole))
        for law in laws
    ]  # fmt: skip
    yield from prose("The same by law: the least and the most over rows and ε.")
    yield from table(("law", *(named.get(name, name) for name in whole)), by_law)
    others = listed([f"{name.replace('_', ' ')} {span(lambda c, n=name: c['statistic'] == n)}"
                     for name in few])  # fmt: skip
    yield from prose(f"""
        Of tables of the first 500: {others} %. At 3000 rows and ε = 1 the standard deviation of
        AUC is at most {max(noise):.2f} times that by sampling alone. Intervals of ECE start at 0
        where calibration is not rejected, and hold too often for scores that are nearly
        calibrated: few rows do not tell them from scores whose gaps change sign, for which a
        shorter interval would hold less often than it says.""")


def conformal_section(part):
    """Conformal sets."""
    epsilons = [key for key in part["sets"][0] if key not in ("name", "rows", "peer")]
    peer = part["sets"][0]["peer"]
    rows = [
        (found["name"], found["rows"], *(
            f"{100 * found[e][0]:.1f} ± {100 * found[e][1]:.1f}, {digits(found[e][2])}"
            for e in epsilons
        ))
        for found in part["sets"]
    ]  # fmt: skip
    least = min(100 * found[e][0] for found in part["sets"] for e in epsilons[:-1])
    yield "## Conformal sets and intervals"
    yield ""
    yield from prose(f"""
        Coverage in %, nominal 90, mean ± standard error over 200 splits, and the mean size of a
        set or interval, of a noise-aware regression at ε = 1 and of a wrong model; ε is that of
        the threshold. ∞ is {peer}. {when(part, {})}""")
    head = ("table", "calibrating rows", *(f"ε = {e}" for e in epsilons))
    yield from table(head, rows)
    yield from prose(f"The least coverage at finite ε is {least:.1f} %.")


def image_section(part):
    """Networks."""
    sets = part["sets"]
    cells = {(name, e): methods for name, found in sets.items() for e, methods in found.items()}
    yield "## Networks on images"
    yield ""
    runs = listed(
        [f"{len(m['inf']['MLPClassifier']['accuracy'])} ({name})" for name, m in sets.items()]
    )
    yield from prose(f"""
        Held-out images, mean ± standard error over repetitions: {runs}. Digits is split 70/30,
        stratified, with seeds from 0; MNIST, which `--mnist` adds, has its own split. All are
        perceptrons with 100 tanh units; δ = 1e-5, one record zeroed, or one more or fewer. skdp has
        its defaults. Opacus has the steps, batches, clipping norm and noise of `DPSGDClassifier`,
        and Adam with skdp's default step size, in the range that did best for it
        (`benchmarks/networks.py`). `MLPClassifier` is scikit-learn's, with defaults otherwise.
        diffprivlib has no networks. {DECIDED} {when(part)}""")
    rows = []
    for (name, epsilon), methods in cells.items():
        groups = () if epsilon == "inf" else (tuple(methods),)
        columns = [list(marked(methods, m, methods, groups)) for m in METRICS]
        shown_as = epsilon.replace("inf", "∞")
        rows += [
            (name, shown_as, *row) for row in zip(methods, *columns, strict=True)
        ]  # fmt: skip
    yield from table(("set", "ε", "network", *METRICS), rows)
    said = []
    for ours in ("DPSGDClassifier", "DPSGLDClassifier"):
        for metric in METRICS:
            if found := outcome(cells, metric, ours, ("Opacus",)):
                said.append(f"{metric} of `{ours}` against Opacus {found};")
    for name, found in sets.items():
        free = found["inf"]["MLPClassifier"]["accuracy"]
        lost = {
            e: f"{fmean(gains('accuracy', free, m['DPSGDClassifier']['accuracy'])):.3f}"
            for e, m in found.items()
            if e != "inf"
        }
        said.append(f"""accuracy of `DPSGDClassifier` on {name} below `MLPClassifier`, which has no
            privacy, by {listed([*lost.values()])} at ε = {listed([*lost])}.""")
    yield from prose("On held-out images is")
    yield from bullets(*said)


def accounting_section(part):
    """What was counted."""
    tools = {"skdp": "`PrivacyLedger` of skdp", "diffprivlib": "`BudgetAccountant` of diffprivlib"}
    tools = {name: tool for name, tool in tools.items() if name in part}
    lines = (
        ("fits in a grid search of 3 settings, 3 folds and a refit", lambda f: f["fits"]),
        ("of these, counted", lambda f: f["counted"]),
        ("total ε shown", lambda f: f"{f['total']:.2f}"),
        ("of 5 folds under a ceiling of ε = 1, let through", lambda f: f["folds"]),
        ("of 5 fits in a loop under it, without clones, let through", lambda f: f["loop"]),
    )  # fmt: skip
    yield "## Accounting"
    yield ""
    yield from prose(f"""
        Fits of logistic regressions with ε = 1. Searches and folds of scikit-learn clone the
        estimator. A ledger is open around them; an accountant is a parameter of the estimator, and
        cloned with it. Opacus has no estimators to search over. {when(part)}""")
    rows = [(text, *(value(part[name]) for name in tools)) for text, value in lines]
    yield from table(("", *tools.values()), rows)
    said = [
        f"""{tool} counted {part[name]["counted"]} of {part[name]["fits"]} fits of a search, and let
        {part[name]["folds"]} of 5 fits in folds and {part[name]["loop"]} of 5 in a loop through"""
        for name, tool in tools.items()
    ]
    yield from prose("; ".join(said) + ".")


def memory_section(part):
    """Peaks."""
    names = {
        "DPSGDClassifier": ("`DPSGDClassifier`", "network, 30 steps on batches of 1024"),
        "Opacus": ("Opacus", "the same network; hooks, its own loader"),
        "DPVariationalLogisticRegression": ("`DPVariationalLogisticRegression`", "logistic"),
        "diffprivlib": ("diffprivlib's `LogisticRegression`", "logistic"),
        "scikit-learn": ("scikit-learn's `LogisticRegression`", "logistic, no privacy"),
    }
    peaks = {
        name: {int(n): found["anonymous_mb"] for n, found in part["peaks"][name].items()}
        for name in names
        if name in part["peaks"]
    }
    sizes = list(peaks["DPSGDClassifier"])
    files = listed([f"{n * 200 / 2**20:.0f}" for n in sizes])
    yield "## Memory"
    yield ""
    yield from prose(f"""
        Fits on memory maps of float32 rows with 50 columns ({files} MB), each in a fresh process:
        peak of the anonymous memory of the process above that before the fit, in MB, which is what
        a fit needs that is not a page of the file, sampled each millisecond
        (`benchmarks/memory.py`). {when(part)}""")

    def cell(peak):
        return "–" if peak is None else f"{peak:.0f}"

    rows = [(*names[name], *map(cell, found.values())) for name, found in peaks.items()]
    yield from table(("", "model", *(f"{thousands(n)} rows" for n in sizes)), rows)
    n = sizes[-1]
    order = sorted(peaks, key=lambda name: peaks[name][n] or 0)
    said = ", ".join(f"{names[name][0]} {cell(peaks[name][n])} MB" for name in order)
    yield from prose(f"Of {thousands(n)} rows, from least to most: {said}.")


def ratio(a, b):
    """The ratio of two medians."""
    return median(a) / median(b)


def time_section(part):
    """Fits and steps."""
    yield "## Time"
    yield ""
    yield from prose(f"""
        {part["cores"]} cores, no GPU, one thread a process. The load of the machine was
        {part["load"]:.1f} when this began. What is compared takes turns, so that what else runs
        hits all alike: look at ratios, not at seconds. {when(part)}""")
    yield from logistic_times_section(part)
    yield from network_times_section(part["network"])
    yield from step_times_section(part["steps"])


def logistic_times_section(part):
    """Logistic regressions."""
    yield "### Logistic regression"
    yield ""
    yield from prose(f"""
        Medians of {part["fits"]} whole fits on all rows in ms, ε = 1, defaults. diffprivlib is
        timed in its own process, in turns with the scikit-learn that it needs; both ratios are to
        scikit-learn without privacy in the same process.""")
    rows, ratios = [], {"`DPVariationalLogisticRegression`": [], "diffprivlib": []}
    pairs = (("here", "skdp"), ("there", "diffprivlib"))
    for task, found in part["tables"].items():
        row = [plain(task), f"{thousands(found['rows'])} × {found['columns']}"]
        for (place, name), known in zip(pairs, ratios.values(), strict=True):
            if place in found:
                both = found[place][name], found[place]["scikit-learn"]
                known.append(digits(ratio(*both)))
                row += [*(digits(1e3 * median(values)) for values in both), known[-1]]
        rows.append(row)
    head = ["task", "rows × columns", "skdp", "scikit-learn", "ratio"]
    head += ["diffprivlib", "its scikit-learn", "ratio"] if ratios["diffprivlib"] else []
    yield from table(head, rows)
    said = [f"{listed(v)} for {name}" for name, v in ratios.items() if v]
    tasks = listed([plain(task) for task in part["tables"]])
    yield from prose(f"""
        On {tasks}, a private fit takes, in units of one of scikit-learn, {"; ".join(said)}.""")


def network_times_section(network):
    """Fits of networks."""
    seconds = network["seconds"]
    yield "### Networks, whole fits"
    yield ""
    yield from prose(f"""
        Digits, {thousands(network["rows"])} rows, a perceptron with 100 tanh units,
        {network["steps"]} steps on batches of {network["batch"]}, ε = 1; medians
        (`benchmarks/fit_time.py`). skdp's time includes the calibration of its noise, which Opacus
        is given.""")
    names = {
        "skdp": "`DPSGDClassifier`",
        "MLPClassifier": "`MLPClassifier`, no privacy",
        "Opacus ghost": "Opacus, ghost clipping, batches copied as skdp does",
        "Opacus hooks": "Opacus, hooks and its own loader, its defaults",
    }
    peers = [what for what in names if what in seconds]
    over = {what: digits(seconds["skdp"] / seconds[what]) for what in peers}
    rows = [(names[what], digits(1e3 * seconds[what]), over[what]) for what in peers]
    yield from table(("", "ms", "skdp's time over it"), rows)
    short = {
        "MLPClassifier": "`MLPClassifier`",
        "Opacus ghost": "Opacus with ghost clipping",
        "Opacus hooks": "Opacus with hooks",
    }
    said = [f"{over[what]} times that of {short[what]}" for what in peers[1:]]
    yield from prose(f"The time of a fit of `DPSGDClassifier` is {listed(said)}.")


def step_times_section(steps):
    """Single steps."""
    yield "### Networks, single steps"
    yield ""
    yield from prose("""
        Median time of a step in ms, and in brackets the median of its ratios to the plain step of
        the same round (`benchmarks/step_time.py`). *plain* is SGD of torch without privacy, *vmap*
        the gradient of every record by `torch.func`.""")
    yield "![Time of a private step over that of a plain one](_static/benchmarks/steps.svg)"
    yield ""
    methods = [m for m in STEP_METHODS if any(m in found for found in steps.values())]
    rows, said = [], []
    for model, found in steps.items():
        texts = {m: f"{digits(f['ms'])} ({digits(f['ratio'])})" for m, f in found.items()}
        rows.append((model, *(texts.get(m, "–") for m in methods)))
        order = sorted((m for m in found if m != "plain"), key=lambda m: found[m]["ratio"])
        private = ", ".join(f"{m} {digits(found[m]['ratio'])}" for m in order)
        said.append(f"{private} ({model})")
    yield from table(("network", *methods), rows)
    yield from prose(f"A private step costs, in plain ones, cheapest first: {'; '.join(said)}.")


SECTIONS = {
    "utility": utility_section,
    "curves": curve_section,
    "intervals": interval_section,
    "reports": report_section,
    "conformal": conformal_section,
    "images": image_section,
    "accounting": accounting_section,
    "memory": memory_section,
    "time": time_section,
}


DUELS = (  # ours, its part, peers
    ("skdp", "utility", ZEROED[2:], "logistic regression against Opacus"),
    (
        "skdp, replaced",
        "utility",
        REPLACED[2:],
        "logistic regression for replaced records against diffprivlib (pure ε)",
    ),
    ("additive", "curves", ("DP-EBM, best",), "additive models against DP-EBM"),
    ("DPSGDClassifier", "images", ("Opacus",), "networks against Opacus"),
)


def results(parts):
    """Say what the log-loss of skdp is against each peer that was measured."""
    for ours, part, peers, words in DUELS:
        if part not in parts:
            continue
        cells = {
            (task, epsilon): methods
            for task, found in parts[part]["sets" if part == "images" else "tasks"].items()
            for epsilon, methods in found.get("cells", found).items()
            if epsilon != "inf"
        }
        if found := outcome(cells, "log-loss", ours, peers):
            yield f"{words}: {found}"


def page(parts):
    """The lines of docs/benchmarks.md."""
    there = [name for name in SECTIONS if name in parts]
    minutes = sum(parts[name]["minutes"] for name in there)
    yield "# Benchmarks"
    yield ""
    if found := list(results(parts)):
        yield from prose("""
            Held-out log-loss at the same ε, skdp against the best of each peer's settings (a cell
            is a task at one ε, lower is better; coverage, memory and time are further down):""")
        yield from bullets(*found)
    yield from prose(""" One command writes this page and its pictures,
        and no figure is typed by hand; each table is followed by what it supports, computed from
        it.""")
    yield "```text"
    yield 'pip install -c constraints.txt -e ".[bench]" opacus interpret-core'
    yield "export SKDP_DATA=... DIFFPRIVLIB_PYTHON=... MAPIE_PYTHON=..."
    yield "python benchmarks/side_by_side.py"
    yield "```"
    yield ""
    yield from prose(f"""
        `SKDP_DATA` names a folder of data (without it, most comes from OpenML, and the part
        `conformal` does not run); `DIFFPRIVLIB_PYTHON` the interpreter of an environment with
        diffprivlib, which does not import on the scikit-learn of today, and `MAPIE_PYTHON` one with
        MAPIE. All of it took {minutes:.0f} minutes. Figures of DP-EBM, which do not depend on skdp
        and take half an hour more, may be read again from an earlier run (`--peer`). Splits and
        simulated data have seeds, private fits have none: another run differs by about the standard
        errors. The figures of every repetition are in `docs/benchmarks.json`. Whether privacy
        claims hold is on another page, [evidence](evidence.md). {of_one_code(parts, there)}""")
    for name in there:
        yield from SECTIONS[name](parts[name])


# --- pictures -------------------------------------------------------------------------------------

BLUE, SKY, ORANGE, RED, GREY = "#0072B2", "#56B4E9", "#E69F00", "#D55E00", "#555555"  # Okabe, Ito
STYLES = {  # of the better of several
    ZEROED[:1]: (BLUE, "o", "-"),
    ZEROED[1:2]: (SKY, "s", "-"),
    ZEROED[2:]: (ORANGE, "^", "-"),
    REPLACED[:1]: (BLUE, "o", ":"),
    REPLACED[1:2]: (SKY, "s", ":"),
    REPLACED[2:]: (RED, "v", ":"),
}
LOOK = {
    "font.size": 11, "axes.spines.top": False, "axes.spines.right": False,
    "axes.titlesize": 11, "legend.frameon": False, "svg.hashsalt": "skdp",
}  # fmt: skip


def utility_picture(part, plt):
    """Log-loss against ε, between that without privacy and that of the class frequencies."""
    tasks = part["tasks"]
    figure, axes = plt.subplots(4, 2, figsize=(6, 9.6), layout="constrained")
    axes = axes.ravel()
    for ax, (task, found) in zip(axes, tasks.items(), strict=False):
        cells = {float(e): m for e, m in found["cells"].items() if e != "inf"}
        free = fmean(found["cells"]["inf"]["no privacy"]["log-loss"])
        room = found["entropy"] - free
        ax.axhline(found["entropy"], color=GREY, lw=1.2, ls="-.", label="class frequencies")
        ax.axhline(free, color=GREY, lw=1.2, ls="--", label="no privacy")
        for methods, (color, marker, line) in STYLES.items():
            points = {
                e: min(fmean(m[name]["log-loss"]) for name in methods if name in m)
                for e, m in cells.items()
                if any(name in m for name in methods)
            }
            if points:
                label = methods[0] if len(methods) == 1 else methods[0].split(",")[0]
                style = {"color": color, "marker": marker, "ls": line, "ms": 5, "lw": 1.5}
                style |= {"markerfacecolor": "white"} if line == ":" else {}
                ax.plot(points.keys(), points.values(), label=label, **style)
        ax.set_ylim(free - 0.15 * room, found["entropy"] + 0.1 * room)
        ax.set_xscale("log")
        ax.set_xticks(list(cells), [f"{e:g}" for e in cells])
        ax.minorticks_off()
        ax.set_title(plain(task))
    for ax in axes[len(tasks) - 2 : len(tasks)]:
        ax.set_xlabel("ε")
    for ax in axes[: len(tasks) : 2]:
        ax.set_ylabel("log-loss")
    for ax in axes[len(tasks) :]:
        ax.axis("off")
    axes[-1].legend(*axes[0].get_legend_handles_labels(), loc="center", borderaxespad=0)
    return figure


def interval_picture(part, plt):
    """Coverage against ε."""
    names = {"noise_aware": ("noise-aware", BLUE, "o"), "dpvi": ("plain DPVI", RED, "v")}
    labels = list(dict.fromkeys(c["epsilon"] for c in part["cells"]))
    sizes = list(dict.fromkeys((c["n"], c["d"]) for c in part["cells"]))
    figure, axes = plt.subplots(1, len(sizes), figsize=(6, 3.4), sharey=True, layout="constrained")
    for ax, size in zip(axes, sizes, strict=True):
        ax.axhline(90, color=GREY, lw=1, ls="--")
        for inference, (name, color, marker) in names.items():
            chosen = [
                c for c in part["cells"] if (c["n"], c["d"]) == size and c["inference"] == inference
            ]
            ax.errorbar(
                [labels.index(c["epsilon"]) for c in chosen],
                [100 * c["coverage"] for c in chosen],
                [200 * c["error"] for c in chosen],
                color=color, marker=marker, capsize=3, label=name,
            )  # fmt: skip
        ax.set_xticks(range(len(labels)), ["∞" if e == "inf" else e for e in labels])
        ax.set(title=f"{thousands(size[0])} rows, {size[1]} columns", xlabel="ε", ylim=(0, 102))
    axes[0].set_ylabel("coverage of 90 % intervals, %")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure


def step_picture(part, plt):
    """Ratios to a plain step."""
    steps = part["steps"]
    methods = [m for m in STEP_METHODS[:0:-1] if any(m in found for found in steps.values())]
    figure, axes = plt.subplots(len(steps), 1, figsize=(6, 4.4), sharex=True, layout="constrained")
    for ax, (model, found) in zip(axes, steps.items(), strict=True):
        for i, method in enumerate(methods):
            if method in found:
                value = found[method]["ratio"]
                color = BLUE if method == "skdp" else ORANGE if method[0] == "O" else GREY
                ax.plot([1, value], [i, i], color=color, lw=1.5)
                ax.plot(value, i, "o", color=color, ms=8)
                text = {"xytext": (9, 0), "textcoords": "offset points", "va": "center"}
                ax.annotate(digits(value), (value, i), **text)
        ax.set_yticks(range(len(methods)), methods)
        ax.set_ylim(-0.6, len(methods) - 0.4)
        ax.set_xscale("log")
        ax.set_title(model, loc="left")
        ax.axvline(1, color=GREY, lw=1)
    largest = max(f["ratio"] for found in steps.values() for m, f in found.items())
    axes[-1].set_xlim(0.9, 1.6 * largest)
    axes[-1].set_xlabel("time of a step over that of a plain one")
    axes[-1].xaxis.set_major_formatter("{x:g}")
    return figure


DRAWN = {
    "utility": (utility_picture, "utility"),
    "intervals": (interval_picture, "intervals"),
    "time": (step_picture, "steps"),
}


def draw(parts):
    """Write the pictures."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    PICTURES.mkdir(parents=True, exist_ok=True)
    for name, (picture, file) in DRAWN.items():
        if name in parts:
            with plt.rc_context(LOOK):
                figure = picture(parts[name], plt)
                figure.savefig(PICTURES / f"{file}.svg", metadata={"Date": None})
                plt.close(figure)


# --- the command ----------------------------------------------------------------------------------


def rounded(value):
    """Figures with five digits, which is more than they are worth."""
    if isinstance(value, dict):
        return {key: rounded(v) for key, v in value.items()}
    if isinstance(value, list):
        return [rounded(v) for v in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value


def main():
    """Run what was asked for, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", choices=[*PARTS, "page", []], default=[])
    parser.add_argument("--mnist", action="store_true", help="images: MNIST too, some minutes more")
    parser.add_argument("--peer", help="curves: file of DP-EBM's figures")
    parser.add_argument("--jobs", type=int, default=2, help="processes where nothing is timed")
    parser.add_argument("--memory-of", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    warnings.simplefilter("ignore")
    if options.memory_of:
        what, folder, n_rows = options.memory_of
        print(json.dumps(memory_of(what, folder, int(n_rows))))
        return
    sys.path.insert(0, str(ROOT / "tests"))
    from mutants.run import code_hash

    for name in options.parts or PARTS:
        if name == "page":
            continue
        say(name)
        start = time.perf_counter()
        found = PARTS[name](options) | {
            "date": str(date.today()),
            "packages": packages(diffprivlib("versions")),
            "cores": os.cpu_count(),
            "machine": machine(),
            "code": code_hash(),
            "minutes": (time.perf_counter() - start) / 60,
        }
        parts = json.loads(FIGURES.read_text(encoding="utf-8")) if FIGURES.exists() else {}
        parts[name] = rounded(found)
        text = json.dumps(parts, indent=1, ensure_ascii=False) + "\n"
        FIGURES.write_text(text, encoding="utf-8")
    parts = json.loads(FIGURES.read_text(encoding="utf-8"))
    PAGE.write_text("\n".join(page(parts)).rstrip() + "\n", encoding="utf-8")
    draw(parts)


if __name__ == "__main__":
    main()
