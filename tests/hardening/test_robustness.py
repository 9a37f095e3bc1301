"""Kills, interrupts, full memory and disks, forks, threads and races: nothing is spent unseen."""

import gc
import itertools
import json
import os
import pickle
import resource
import signal
import subprocess
import sys
import threading
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from errno import ENOSPC
from pathlib import Path
from unittest import mock

import joblib
import numpy as np
import pytest
from processes import in_child, started
from sklearn.base import clone

from skdp import (
    BudgetExceededError,
    DPSGDClassifier,
    DPStandardScaler,
    DPVariationalLogisticRegression,
    PrivacyLedger,
)
from skdp.engine import release_hook
from skdp.fitting.streams import Streams
from skdp.privacy import _ledger_file
from skdp.privacy.events import dp_sgd_event
from skdp.testing import private_estimators

X = np.random.default_rng(0).uniform(-1, 1, (40, 3))
Y = (X[:, 0] > 0).astype(int)
EVENT = dp_sgd_event(4.0, 1.0, 16)
REGISTRY = private_estimators()
NAMES = {
    "variational": "DPVariationalLogisticRegression",
    "regression": "DPVariationalLinearRegression",
    "sgd": "DPSGDClassifier",
    "sgld": "DPSGLDRegressor",
    "posterior": "OPSPosteriorSampler, exact",
    "scaler": "DPStandardScaler",
    "quantiles": "DPQuantileScaler",
    "pca": "DPPCA",
}


def maker(name):
    estimator = REGISTRY[name]
    facts = {"classes": [0, 1], "n_samples": 40}
    facts = {fact: value for fact, value in facts.items() if fact in estimator.get_params()}
    steps = {"max_iter": 3} if estimator.get_params().get("max_iter") == 2 else {}
    return lambda: clone(estimator).set_params(**facts, **steps)


MAKE = {short: maker(name) for short, name in NAMES.items()}

each = pytest.mark.parametrize("name", MAKE)


# --- killed, interrupted, out of memory ---------------------------------------------------------


def fit_and_die(pipe, path, last, name):
    release, steps = release_hook.release, itertools.count(1)

    def dying(call, mechanism):
        if next(steps) == last:
            os.kill(os.getpid(), signal.SIGKILL)
        return release(call, mechanism)

    model = {
        "variational": DPVariationalLogisticRegression(classes=[0, 1], n_samples=4, max_iter=5),
        "sgd": DPSGDClassifier(classes=[0, 1], n_samples=4, max_iter=5),
        "scaler": DPStandardScaler(epsilon=1.0),
    }[name]
    release_hook.release = dying
    with PrivacyLedger(path=path):
        pipe.send(pickle.dumps(model.fit(np.eye(4), [0, 1, 0, 1])))


@pytest.mark.parametrize(("name", "step"), [("variational", 1), ("sgd", 3), ("scaler", 1)])
def test_a_fit_that_is_killed_stays_charged_and_leaves_no_model(tmp_path, name, step):
    path = tmp_path / "ledger"
    assert in_child(fit_and_die, path, step, name) == (-signal.SIGKILL, None)
    ledger = PrivacyLedger(path=path)
    assert len(ledger.entries) == 1
    assert ledger.total(1e-5) == pytest.approx(1.0, rel=1e-3)
    ledger.spend(EVENT, label="the next session")
    assert len(PrivacyLedger(path=path).entries) == 2


class StopError(BaseException):
    """As an interrupt or a full memory, but of our own making."""


STAGES = [
    ("skdp.fitting.declared.check_budget", False),
    ("skdp.privacy.report.PrivacyReport.of", False),
    ("skdp.privacy.ledger.PrivacyLedger._check", False),
    ("skdp.privacy._ledger_file.os.fsync", None),
    ("skdp.engine.release_hook.release", True),
]


ERRORS = [KeyboardInterrupt, MemoryError, SystemExit, StopError]


@each
@pytest.mark.parametrize(("stage", "charged"), STAGES)
def test_interrupted_anywhere(name, stage, charged, tmp_path):
    # `charged` is whether the entry is there by then; None: it may be, and no row was read.
    for error in ERRORS if name in ("variational", "sgd") else ERRORS[:2]:
        path = tmp_path / error.__name__
        estimator = MAKE[name]()
        with (
            PrivacyLedger(path=path) as ledger,
            mock.patch.dict("skdp.fitting.plan.PLANS", clear=True),  # a plan is made once
            mock.patch(stage, side_effect=error),
            pytest.raises(error),
        ):
            estimator.fit(X, Y)
        kept = {"privacy_", "coef_", "components_", "mean_"}
        assert not kept & vars(estimator).keys()
        entries = PrivacyLedger(path=path).entries
        assert len(entries) == len(ledger.entries)
        if charged is not None:
            assert len(entries) == charged
        pickle.loads(pickle.dumps(estimator)).fit(X, Y)


@each
def test_an_interrupt_between_any_two_releases_stays_charged(name):
    release, total = release_hook.release, 0

    def counting(call, mechanism):
        nonlocal total
        total += 1
        return release(call, mechanism)

    with mock.patch("skdp.engine.release_hook.release", counting):
        whole = MAKE[name]().fit(X, Y).privacy_
    for stop in range(1, total + 1):
        steps = itertools.count(1)

        def stopping(call, mechanism, steps=steps, stop=stop):
            if next(steps) == stop:
                raise KeyboardInterrupt
            return release(call, mechanism)

        estimator = MAKE[name]()
        ends = pytest.raises(KeyboardInterrupt, match=rf"epsilon={whole.epsilon:.4g} stays spent")
        with (
            PrivacyLedger() as ledger,
            mock.patch("skdp.engine.release_hook.release", stopping),
            ends,
        ):
            estimator.fit(X, Y)
        assert [entry.event for entry in ledger.entries] == [whole.event]
        assert "privacy_" not in vars(estimator)


def fit_for_long(pipe, path):
    model = DPSGDClassifier(
        None, noise_multiplier=9.0, max_iter=10**6, sampling_rate=1.0, classes=[0, 1],
        n_samples=2000,
    )  # fmt: skip
    rows = np.random.default_rng(0).uniform(-1, 1, (2000, 3))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with PrivacyLedger(path=path), pytest.raises(KeyboardInterrupt) as interrupt:
        model.fit(rows, np.arange(2000) % 2)
    pipe.send(str(interrupt.value))


def test_a_real_interrupt_ends_a_long_fit_and_leaves_its_charge(tmp_path):
    path = tmp_path / "ledger"
    child, pipe = started(fit_for_long, path)
    while not (path.exists() and path.stat().st_size):
        time.sleep(0.05)
    time.sleep(0.3)
    os.kill(child.pid, signal.SIGINT)
    said = pipe.recv()
    child.join(60)
    assert "interrupted after it had been charged" in said
    assert "stays spent" in said
    assert len(PrivacyLedger(path=path).entries) == 1


def fit_out_of_memory(pipe, path):
    n = 400_000  # of which a copy takes 99 MB
    model = DPVariationalLogisticRegression(
        None, 1e-7, noise_multiplier=9.0, classes=[0, 1], n_samples=n
    )
    rows, y = np.broadcast_to(np.float32(0.5), (n, 30)), np.arange(n) % 2
    in_use = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (in_use + 2**22, in_use + 2**22))
    with PrivacyLedger(path=path) as ledger:
        try:
            model.fit(rows, y)
        except MemoryError:
            pipe.send((len(ledger.entries), "privacy_" in vars(model)))


@pytest.mark.skipif(sys.platform != "linux", reason="needs a limit on memory")
def test_out_of_memory_is_an_error_and_no_half_model(tmp_path):
    code, sent = in_child(fit_out_of_memory, tmp_path / "ledger")
    assert sent is not None, code
    count, has_report = sent
    assert (code, has_report) == (0, False)
    # Whether it was charged before it failed is what the file says too.
    assert len(PrivacyLedger(path=tmp_path / "ledger").entries) == count


# --- a full disk --------------------------------------------------------------------------------


def no_space(*_):
    raise OSError(ENOSPC, os.strerror(ENOSPC))


@each
def test_a_disk_that_is_full_stops_the_fit_before_a_row_is_used(name, tmp_path):
    released = mock.Mock(side_effect=AssertionError("a row was used"))
    with (
        PrivacyLedger(path=tmp_path / "ledger"),
        mock.patch.object(_ledger_file.os, "fsync", no_space),
        mock.patch("skdp.engine.release_hook.release", released),
        pytest.raises(OSError, match="No space left"),
    ):
        MAKE[name]().fit(X, Y)
    released.assert_not_called()


def fit_until_the_file_is_full(pipe, path):
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    done = refused = 0
    with PrivacyLedger(path=path):
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        for _ in range(12):
            try:
                DPStandardScaler().fit(np.eye(4))
                done += 1
            except OSError:
                refused += 1
    pipe.send((done, refused))


@pytest.mark.skipif(sys.platform != "linux", reason="needs a limit on the size of files")
def test_a_file_that_cannot_grow_holds_every_fit_that_ran(tmp_path):
    path = tmp_path / "ledger"
    code, (done, refused) = in_child(fit_until_the_file_is_full, path)
    assert code == 0
    assert done > 0
    assert refused > 0
    assert len(PrivacyLedger(path=path).entries) == done


# --- forks, workers, threads --------------------------------------------------------------------


FORKS = """
import os, sys
import numpy as np
from skdp.fitting.streams import Streams
stream, streams = Streams()("noise"), Streams()
stream.normal(3)
for _ in range(200):
    if os.fork() == 0:
        numbers = np.concatenate([stream.normal(1), streams("noise").normal(1)])
        os.write(1, numbers.tobytes())
        os._exit(0)
    os.wait()
os.write(1, np.concatenate([stream.normal(3), streams("noise").normal(1)]).tobytes())
"""


@pytest.mark.thorough
def test_two_hundred_forked_children_share_no_noise():
    # In a small process: what is forked is copied.
    run = subprocess.run([sys.executable, "-c", FORKS], check=True, capture_output=True)
    drawn = np.frombuffer(run.stdout)
    assert len(drawn) == 404
    assert len(np.unique(drawn)) == 404


def noise_of_a_fit(_):
    with release_hook.record() as tape:
        DPStandardScaler(epsilon=None, noise_multiplier=9.0).fit(np.zeros((4, 3)))
    return np.asarray(tape[0].output).ravel()


@pytest.mark.quick(1)
@pytest.mark.parametrize("backend", ["loky", "multiprocessing", "threading"])
def test_workers_share_no_noise(backend):
    with joblib.parallel_backend(backend, n_jobs=2):
        noises = joblib.Parallel()(joblib.delayed(noise_of_a_fit)(i) for i in range(24))
    cells = np.concatenate(noises)
    # 2^20 cells of the output grid a standard deviation: by chance, 144 numbers meet rarely.
    assert len(np.unique(noises, axis=0)) == 24
    assert len(np.unique(cells)) >= len(cells) - 3


def test_threads_share_no_noise_and_no_entry_is_lost():
    start = threading.Barrier(8)

    def fit(i):
        start.wait()
        return [noise_of_a_fit(i) for _ in range(5)]

    with PrivacyLedger() as ledger, ThreadPoolExecutor(8) as pool:
        noises = np.concatenate(list(pool.map(fit, range(8))))
    assert len(np.unique(noises, axis=0)) == 40
    assert len(ledger.entries) == 40


def race(pipe, path):
    done = 0
    pipe.recv()
    with PrivacyLedger(epsilon=1.0, delta=1e-5, path=path):
        for _ in range(12):
            try:
                DPStandardScaler(epsilon=0.3).fit(np.eye(4))
                done += 1
            except BudgetExceededError:
                pass
    pipe.send(done)


def test_a_race_of_processes_loses_no_entry_and_breaks_no_ceiling(tmp_path):
    path = tmp_path / "ledger"
    racers = [started(race, path) for _ in range(3)]
    for _, pipe in racers:
        pipe.send("go")
    done = sum(pipe.recv() for _, pipe in racers)
    for child, _ in racers:
        child.join(120)
        assert child.exitcode == 0
    ledger = PrivacyLedger(epsilon=1.0, delta=1e-5, path=path)
    assert len(ledger.entries) == done > 0
    assert ledger.total(1e-5) <= 1.0
    with pytest.raises(BudgetExceededError), ledger:
        DPStandardScaler(epsilon=0.3).fit(np.eye(4))


# --- memory, and what a pickle holds ------------------------------------------------------------


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    "name",
    [
        name if name in ("sgd", "posterior", "pca") else pytest.param(name, marks=pytest.mark.slow)
        for name in MAKE
    ],
)
def test_twenty_four_fits_leave_no_memory_behind(name):
    rows = np.tile(X, (50, 1))  # 48 kB
    labels = np.tile(Y, 50)

    def make():
        model = MAKE[name]()
        declared = {"n_samples": len(rows)} if "n_samples" in model.get_params() else {}
        return model.set_params(**declared)

    for _ in range(2):  # caches fill
        make().fit(rows, labels)
    gc.collect()
    tracemalloc.start()
    try:
        make().fit(rows, labels)
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(24):
            make().fit(rows, labels)
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # The rows of 24 fits are 1.1 MB; what numpy keeps of freed arrays ends at some 50 kB.
    assert after - before < 200_000


@each
def test_no_pickle_holds_a_generator_or_a_key(name):
    keys = []
    rekey = Streams.__init__

    def spying(self, *args):
        rekey(self, *args)
        keys.append(self._master)

    with mock.patch.object(Streams, "__init__", spying):
        model = MAKE[name]().fit(X, Y)
    pickled = pickle.dumps(model)
    words = [b"AESCounter", b"Generator", b"RandomState", b"MT19937", b"PCG64", b"SecureStream"]
    assert [word for word in [*words, b"_master", *keys] if word in pickled] == []
    assert keys
    state = json.dumps([repr(value) for value in vars(model).values()])
    assert not any(key.hex() in state for key in keys)


@pytest.mark.thorough
def test_the_resident_memory_of_many_ledgers_is_bounded(tmp_path):
    # File descriptors above all: a ledger on disk opens its file anew for each entry.
    def descriptors():
        return len(os.listdir("/proc/self/fd"))

    if not os.path.isdir("/proc/self/fd"):
        pytest.skip("needs /proc")
    before = descriptors()
    for i in range(50):
        with PrivacyLedger(path=tmp_path / f"ledger {i % 5}") as ledger:
            ledger.spend(EVENT, label="fit")
    gc.collect()
    assert descriptors() <= before
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > 0
