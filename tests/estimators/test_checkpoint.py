"""A run that was killed goes on as the same releases, at one charge, or is refused by name."""

import contextlib
import copy
import dataclasses
import hashlib
import io
import json
import os
import signal
import stat
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from unittest import mock

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from bundles import bundled
from processes import in_child
from refusals import refused
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from torch.nn import functional

from skdp import (
    BudgetExceededError,
    DPSGDClassifier,
    DPSGDRegressor,
    DPSGLDClassifier,
    DPVariationalModel,
    Persons,
    PrivacyLedger,
)
from skdp.data import ChunkedRows
from skdp.engine import release_hook
from skdp.fitting import checkpoint as of_checkpoints
from skdp.fitting import run_streams
from skdp.fitting.object_mac import described
from skdp.fitting.run_streams import RunStreams
from skdp.model_selection import DPRandomizedSearch
from skdp.privacy.cover import covered
from skdp.testing import fixed_streams

pytestmark = pytest.mark.filterwarnings("ignore::skdp.PrivacyWarning", "ignore::skdp.FitWarning")

N, STEPS = 60, 20
RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (N, 3))
Y = (X[:, 0] > 0).astype(int)
GROUPS = np.arange(N) // 3
FACTS = {"classes": [0, 1], "n_samples": N, "max_iter": STEPS}


def with_dropout(n_features, n_outputs):
    layers = [torch.nn.Linear(n_features, 5), torch.nn.Tanh(), torch.nn.Dropout(0.5)]
    frozen = torch.nn.Linear(5, 5).requires_grad_(False)
    return torch.nn.Sequential(*layers, frozen, torch.nn.Linear(5, n_outputs))


def logistic(theta, x, y):
    return torch.nn.functional.logsigmoid((2 * y - 1) * (x @ theta[:3] + theta[3]))


def in_chunks():
    return ChunkedRows(lambda i: (X[20 * i :][:20], Y[20 * i :][:20]), 3)


NOISE = {"epsilon": None, "noise_multiplier": 2.0, "accountant": "rdp"}  # no search for it
NETWORK = partial(DPSGDClassifier, hidden_layer_sizes=(5,), sampling_rate=0.3, **NOISE, **FACTS)
SGLD = partial(
    DPSGLDClassifier, sampling_rate=0.3, epsilon=None, temperature=3.0, accountant="rdp", **FACTS
)
MODEL = partial(DPVariationalModel, logistic, 4, n_samples=N, **NOISE)
FULL = partial(NETWORK, sampling_rate=1.0, epsilon=1.0, noise_multiplier=None)
RUNS = {
    "a network in batches, with Adam": (NETWORK, {}),
    "the full batch of a linear layer": (
        partial(DPSGDClassifier, hidden_layer_sizes=(), **FACTS, optimizer="sgd"),
        {},
    ),
    "a module with masks, frozen weights and an optimiser of torch": (
        partial(NETWORK, module=with_dropout, optimizer=torch.optim.AdamW, averaging=0.8),
        {},
    ),
    "discrete noise": (partial(NETWORK, secure=True), {}),
    "persons, of whom a few rows take part": (
        partial(NETWORK, unit=Persons(20, rows_per_group=3, max_rows=2)),
        {"groups": GROUPS},
    ),
    "a regression": (
        partial(DPSGDRegressor, n_samples=N, max_iter=STEPS, target_bounds=(-1, 2)),
        {},
    ),
    "Langevin dynamics": (partial(SGLD, burn_in=2, thinning=2, prior_scale=1.5), {}),
    "a user's model in batches": (partial(MODEL, max_iter=40, sampling_rate=0.5), {}),
    "a user's model, asked at draws to the end": (
        partial(MODEL, max_iter=20, inference="dpvi", covariance="diag"),
        {},
    ),
    "a user's model of persons": (
        partial(MODEL, max_iter=60, unit=Persons(20, rows_per_group=3)),
        {"groups": GROUPS},
    ),
}


class StoppedError(BaseException):
    """Neither ValueError nor Exception: nothing may swallow it."""


def stopped(estimator, *data, at=13, **beside):
    """Fit until the noise of a step has been drawn."""

    def hook(call, mechanism):
        found = mechanism()
        if call.step == at:
            raise StoppedError
        return found

    with pytest.raises(StoppedError), release_hook._hooked(hook):
        estimator.fit(*data, **beside)


def left(estimator):
    """All that a fit leaves, as text and bytes."""
    found = {k: v for k, v in vars(estimator).items() if k not in ("checkpoint", "every")}
    found.pop("privacy_")
    file = io.BytesIO()
    torch.save(found, file)
    draws = estimator.sample_posterior(3, random_state=0)
    return estimator.n_iter_, estimator.diagnostics_, draws.tobytes()


def killed(pipe, make, data, beside, ledger, tape, at):
    """Fit in a child that writes each release down, and kills itself at a point (0: at none)."""
    points = 0
    file = os.open(tape, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def point():
        nonlocal points
        points += 1
        if points == at:
            os.kill(os.getpid(), signal.SIGKILL)

    def around(function):
        def called(*args, **kwargs):
            point()
            found = function(*args, **kwargs)
            point()
            return found

        return called

    def hook(call, mechanism):
        point()
        found = mechanism()
        digest = hashlib.sha256(np.asarray(found).tobytes()).hexdigest()
        os.write(file, f"{call.step} {digest}\n".encode())
        point()
        return found

    patched = [
        mock.patch.object(os, name, around(getattr(os, name))) for name in ("replace", "fsync")
    ]
    with contextlib.ExitStack() as stack:
        for patch in patched:
            stack.enter_context(patch)
        stack.enter_context(release_hook._hooked(hook))
        stack.enter_context(ledger)
        fitted = make().fit(*data, **beside)
    pipe.send((left(fitted), points))


def died_and_resumed(make, data, beside, folder, deaths):
    """Die at some points in turn, then fit to the end; return what is left, tape and ledger."""
    ledger = PrivacyLedger(path=folder / "ledger.jsonl", unit="group" if beside else "row")
    tape = folder / "tape"
    run = partial(make, checkpoint=str(folder / "run"), every=4)
    left(make().fit(*data, **beside))  # so that no child has to import and account for all of it
    for at in deaths:
        code, _ = in_child(killed, run, data, beside, ledger, tape, at)
        assert code in (-signal.SIGKILL, 0)
    code, (found, points) = in_child(killed, run, data, beside, ledger, tape, 0)
    assert code == 0
    lines = [line.split() for line in tape.read_text().splitlines()]
    return found, points, lines, ledger.entries


def is_one_run(lines, entries):
    steps = {}
    for step, digest in lines:
        steps.setdefault(int(step), set()).add(digest)
    assert all(len(digests) == 1 for digests in steps.values()), steps
    assert sorted(steps) == list(range(len(steps)))
    assert len(entries) == 1


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", RUNS)
def test_a_run_that_was_killed_twice_is_the_uninterrupted_run(name, tmp_path):
    make, beside = RUNS[name]
    for folder in ("whole", "parts"):
        (tmp_path / folder).mkdir()
    make = partial(make, random_state=0)
    whole, points, lines, entries = died_and_resumed(make, (X, Y), beside, tmp_path / "whole", [])
    is_one_run(lines, entries)
    rng = np.random.default_rng(len(name))
    deaths = rng.integers(points // 4, 3 * points // 4), rng.integers(1, points // 5)
    parts, _, lines, entries = died_and_resumed(make, (X, Y), beside, tmp_path / "parts", deaths)
    assert parts == whole
    is_one_run(lines, entries)
    assert sorted(p.name for p in (tmp_path / "parts").iterdir()) == ["ledger.jsonl", "tape"]


@pytest.mark.thorough
def test_stopped_before_or_after_any_file_is_replaced(tmp_path):
    make = partial(NETWORK, random_state=0, checkpoint=tmp_path / "run", every=4)
    whole, replace = left(make().fit(X, Y)), os.replace

    def stopping(left_to_go, after):
        def called(*paths):
            nonlocal left_to_go
            left_to_go -= 1
            if left_to_go:
                return replace(*paths)
            if after:
                replace(*paths)
            raise StoppedError

        return called

    # Key, state and key at the start; state and key after each of 5 times 4 steps.
    for number in range(1, 14):
        for after in (False, True):
            stopping_there = mock.patch.object(os, "replace", stopping(number, after))
            with stopping_there, pytest.raises(StoppedError):
                make().fit(X, Y)
            with PrivacyLedger() as ledger:
                assert left(make().fit(X, Y)) == whole
            assert len(ledger.entries) == 1
    with mock.patch.object(os, "replace", stopping(14, after=False)):
        make().fit(X, Y)


@pytest.mark.slow
def test_killed_at_20_random_points(tmp_path):
    make = partial(NETWORK, random_state=0)
    whole, points, *_ = died_and_resumed(make, (X, Y), {}, tmp_path, [])
    rng = np.random.default_rng(1)
    for i, at in enumerate(rng.integers(1, points + 1, 20)):
        (folder := tmp_path / str(i)).mkdir()
        parts, _, lines, entries = died_and_resumed(make, (X, Y), {}, folder, [at])
        assert parts == whole
        if at < points - 3:  # later all files may be gone, and another run is another charge
            is_one_run(lines, entries)


def test_killed_by_another_process_at_any_time_without_a_seed(tmp_path):
    """As a scheduler kills: what is on the disk then always gives the same end."""
    run = partial(NETWORK, checkpoint=tmp_path / "run", every=3)
    stopped(run(), X, Y, at=10)
    files = [(path, path.read_bytes()) for path in sorted(tmp_path.iterdir())]
    ends = []
    for _ in range(2):
        for path, content in files:
            path.write_bytes(content)
            path.chmod(0o600)
        with release_hook.record() as tape:
            ends.append(left(run().fit(X, Y)))
        assert [release.call.step for release in tape] == list(range(9, STEPS))
    assert ends[0] == ends[1]


@pytest.mark.thorough
def test_rows_in_chunks_are_resumed(tmp_path):
    make = partial(NETWORK, random_state=0, checkpoint=tmp_path / "run", every=4)
    whole = left(make().fit(in_chunks()))
    stopped(make(), in_chunks())
    assert left(make().fit(in_chunks())) == whole
    unseeded = partial(NETWORK, checkpoint=tmp_path / "run", every=4)
    stopped(unseeded(), in_chunks())
    unseeded().fit(in_chunks())  # its fingerprints, keyed by the run, are the same


@pytest.mark.thorough
def test_scores_on_public_rows_outlast_the_process(tmp_path):
    make = partial(NETWORK, random_state=0, checkpoint=tmp_path / "run", every=4)
    public = {"X_public": X[:9], "y_public": Y[:9]}
    whole = make().fit(X, Y, **public).public_scores_
    stopped(make(), X, Y, **public)
    assert make().fit(X, Y, **public).public_scores_ == whole
    assert [n for n, _ in whole] == list(range(1, STEPS + 1))


# --- charges ------------------------------------------------------------------------------------


def test_a_ledger_that_has_the_charge_is_not_charged_again_and_another_is(tmp_path):
    make = partial(FULL, checkpoint=tmp_path / "run", every=4)
    with PrivacyLedger(1.0, 1e-5) as ledger:  # a ceiling with room for one
        stopped(make(), X, Y)
        (entry,) = ledger.entries
        stopped(make(), X, Y, at=15)
        with PrivacyLedger() as other:
            make().fit(X, Y)
        assert ledger.entries == (entry,)
        assert other.entries == (entry,)
        with pytest.raises(BudgetExceededError):
            make().fit(X, Y)  # the run has ended: this is another one
        assert not list(tmp_path.iterdir())


def test_a_resumption_that_a_ledger_refuses_leaves_the_run_as_it_was(tmp_path):
    make = partial(FULL, checkpoint=tmp_path / "run", every=4)
    stopped(make(), X, Y)
    with PrivacyLedger(0.5, 1e-5) as ledger, pytest.raises(BudgetExceededError):
        make().fit(X, Y)
    assert not ledger.entries
    with release_hook.record() as tape:
        make().fit(X, Y)
    assert tape[0].call.step == 12


def test_an_interrupt_says_that_the_fit_goes_on(tmp_path):
    make = partial(NETWORK, checkpoint=tmp_path / "run", every=4)

    def hook(call, mechanism):
        raise KeyboardInterrupt

    goes_on = pytest.raises(KeyboardInterrupt, match="goes on from its checkpoint")
    with goes_on, release_hook._hooked(hook):
        make().fit(X, Y)
    assert make().fit(X, Y).n_iter_ == STEPS


def test_files_are_gone_when_the_fit_has_ended_or_never_began(tmp_path):
    run = tmp_path / "run"
    NETWORK(checkpoint=run, every=1).fit(X, Y)
    with pytest.raises(ValueError, match="declared classes"):
        NETWORK(checkpoint=run).fit(X, Y + 1)
    assert not list(tmp_path.iterdir())


def test_a_key_file_that_is_not_of_this_run_is_left_as_it_is(tmp_path):
    run, key = tmp_path / "run", tmp_path / "run.key"
    key.write_text("-----BEGIN PRIVATE KEY-----")
    (tmp_path / "run.new").write_text("another file of somebody")
    for y in (Y, Y + 1):
        with refused(r"no file run\.key yet"):
            NETWORK(checkpoint=run).fit(X, y)
    assert key.read_text() == "-----BEGIN PRIVATE KEY-----"
    key.unlink()
    NETWORK(checkpoint=run).fit(X, Y)
    assert [p.name for p in tmp_path.iterdir()] == ["run.new"]


def test_a_run_whose_checkpoint_is_elsewhere_keeps_its_key(tmp_path):
    run, backup = tmp_path / "run", tmp_path / "backup"
    make = partial(NETWORK, random_state=0, checkpoint=run)
    whole = left(make().fit(X, Y))
    stopped(make(), X, Y)
    run.rename(backup)
    for y in (Y, Y + 1):
        with pytest.raises(ValueError, match="put its checkpoint back"):
            make().fit(X, y)
    backup.rename(run)
    assert left(make().fit(X, Y)) == whole


# --- what is on the disk ------------------------------------------------------------------------


def contents(path):
    with np.load(path, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    return json.loads(str(arrays.pop("about"))), arrays


def test_with_the_same_releases_files_of_neighbours_differ_by_keyed_hashes_alone(tmp_path):
    others = X.copy(), Y.copy()
    others[0][7], others[1][7] = 1e300, 1 - Y[7]
    found = {}
    for name, data in {"one": (X, Y), "other": others}.items():

        def hook(call, mechanism):
            if call.step == 13:
                raise StoppedError
            return torch.full(call.shape, call.step, dtype=torch.float64)

        with fixed_streams(), pytest.raises(StoppedError), release_hook._hooked(hook):
            NETWORK(checkpoint=tmp_path / name, every=4).fit(*data)
        found[name] = contents(tmp_path / name), (tmp_path / f"{name}.key").read_bytes()
    (about, arrays), key = found["one"]
    (other, others), other_key = found["other"]
    assert key == other_key
    assert about.pop("rows") != other.pop("rows")
    assert about == other
    assert arrays.pop("tag") != others.pop("tag")
    assert {k: v.tobytes() for k, v in arrays.items()} == {
        k: v.tobytes() for k, v in others.items()
    }


def test_the_key_is_the_owners_alone_moves_on_and_is_in_no_other_file(tmp_path):
    path = tmp_path / "run"
    stopped(NETWORK(checkpoint=path, every=100), X, Y)
    first = json.loads((tmp_path / "run.key").read_text().partition("\n")[0])
    stopped(NETWORK(checkpoint=path, every=4), X, Y)
    key = json.loads((tmp_path / "run.key").read_text().partition("\n")[0])
    assert (first["step"], key["step"]) == (0, 12)
    chain = RunStreams(bytes(32), bytes.fromhex(first["chain"]), 0)
    assert chain.chained(12).hex() == key["chain"]
    with pytest.raises(RuntimeError, match="are gone"):
        RunStreams(bytes(32), bytes.fromhex(key["chain"]), 12).chained(11)
    assert stat.S_IMODE((tmp_path / "run.key").stat().st_mode) == 0o600
    about, arrays = contents(path)
    held = (json.dumps(about) + "".join(a.tobytes().hex() for a in arrays.values())).encode()
    for name in ("secret", "run", "chain"):
        assert key[name].encode() not in held


def test_noise_of_steps_is_apart_and_no_childs():
    streams = RunStreams(bytes(32), bytes(range(32)), 0)
    drawn = [streams.of_step(t)("noise").normal(4).tobytes() for t in range(5)]
    assert len(set(drawn)) == 5
    with pytest.raises(RuntimeError, match="already been handed out"):
        streams.of_step(4)("noise")
    with pytest.raises(RuntimeError, match="are gone"):
        streams.of_step(3)

    def child(pipe):
        for ask in (lambda: streams.of_step(5), lambda: streams("eta")):
            with pytest.raises(RuntimeError, match="forked child"):
                ask()
        pipe.send("refused")

    assert in_child(child) == (0, "refused")


# --- bad input ----------------------------------------------------------------------------------


def doctored(path, **changes):
    about, arrays = contents(path)
    np.savez(path, about=np.array(json.dumps(about | changes)), **arrays)
    os.replace(f"{path}.npz", path)


def older(path):
    """The checkpoint of an earlier step, beside the key of a later one."""
    before = path.read_bytes()
    stopped(NETWORK(checkpoint=path, every=4), X, Y, at=17)
    path.write_bytes(before)


def other_key(path):
    stopped(NETWORK(checkpoint=f"{path}2", every=4), X, Y)
    os.replace(f"{path}2.key", f"{path}.key")
    os.unlink(f"{path}2")


def pickled(path):
    np.save(path, np.array([object()]), allow_pickle=True)
    os.replace(f"{path}.npy", path)


def key_of(path):
    return Path(f"{path}.key")


def kept(**parameters):
    return lambda path: None, partial(NETWORK, **parameters), (X, Y)


SAME = partial(NETWORK), (X, Y)
BAD = {
    "no file of numbers": (lambda path: path.write_text("rows"), *SAME, "damaged"),
    "an empty file": (lambda path: path.write_bytes(b""), *SAME, "damaged"),
    "half written": (lambda path: path.write_bytes(path.read_bytes()[:-9]), *SAME, "damaged"),
    "a pickle": (pickled, *SAME, "damaged"),
    "doctored": (partial(doctored, step=16), *SAME, "damaged, or of another key"),
    "another name, to meet a charge": (partial(doctored, name="0" * 32), *SAME, "damaged"),
    "newer": (
        partial(doctored, format=2, versions={"skdp": "9.0"}),
        *SAME,
        "newer version, skdp 9.0",
    ),
    "without its key": (lambda path: key_of(path).unlink(), *SAME, "has no key file run.key"),
    "a key that others read": (lambda path: key_of(path).chmod(0o640), *SAME, "chmod 600"),
    "a damaged key": (lambda path: key_of(path).write_bytes(b"{}"), *SAME, "key that is damaged"),
    "another key": (other_key, *SAME, "another key file"),
    "older than its key": (older, *SAME, "older than its key"),
    "another noise": (*kept(noise_multiplier=3.0), "other parameters \\(noise_multiplier\\)"),
    "another layer": (*kept(hidden_layer_sizes=(6,)), "\\(hidden_layer_sizes\\)"),
    "another seed": (*kept(random_state=1), "\\(random_state\\)"),
    "another class": (lambda path: None, SGLD, (X, Y), "other parameters"),
    "a row changed": (lambda path: None, NETWORK, (X + np.eye(N, 3), Y), "other rows"),
    "a target changed": (lambda path: None, NETWORK, (X, np.append(Y[:-1], 1 - Y[-1])), "rows"),
    "another order": (lambda path: None, NETWORK, (X[::-1], Y[::-1]), "other rows"),
    "fewer rows": (lambda path: None, NETWORK, (X[:-1], Y[:-1]), "other rows"),
}


@pytest.mark.thorough
@bundled("name", BAD)
def test_what_is_not_this_fits_is_refused_before_the_charge(name, tmp_path_factory):
    path = tmp_path_factory.mktemp("bad") / "run"
    spoil, make, data, words = BAD[name]
    stopped(NETWORK(checkpoint=path, every=4), X, Y)
    spoil(path)
    before = path.read_bytes()
    refused = pytest.raises(ValueError, match=words)
    with PrivacyLedger() as ledger, release_hook.record() as tape, refused as raised:
        make(checkpoint=path, every=4).fit(*data)
    assert "checkpoint=" in str(raised.value)
    assert not ledger.entries
    assert not tape
    assert path.read_bytes() == before
    if name != "fewer rows":
        assert "charged anew" in str(raised.value)


def test_other_versions_of_what_makes_the_noise_are_refused(tmp_path):
    stopped(NETWORK(checkpoint=tmp_path / "run", every=4), X, Y)
    others = run_streams.versions_here() | {"numpy": "0.1"}
    patched = mock.patch.object(run_streams, "versions_here", return_value=others)
    with patched, pytest.raises(ValueError, match=r"other versions or threads \(.*numpy 2"):
        NETWORK(checkpoint=tmp_path / "run").fit(X, Y)


def test_two_fits_at_once_do_not_share_a_path(tmp_path):
    make = partial(NETWORK, checkpoint=tmp_path / "run", every=4)
    refused = []

    def hook(call, mechanism):
        if call.step == 9:
            in_use = pytest.raises(ValueError, match="one that has not ended uses it")
            with release_hook._hooked(lambda call, mechanism: mechanism()), in_use as raised:
                make(noise_multiplier=3.0).fit(X, Y)
            refused.append(raised)
        return mechanism()

    with PrivacyLedger() as ledger, release_hook._hooked(hook):
        assert make().fit(X, Y).n_iter_ == STEPS
    assert len(refused) == len(ledger.entries) == 1


@bundled(
    ("parameters", "words"),
    [
        ({"checkpoint": 3}, "checkpoint=3"),
        ({"checkpoint": ""}, "checkpoint=''"),
        ({"checkpoint": "no/such/folder/run"}, "a file that can be written"),
        ({"checkpoint": "run", "every": 0}, "every=0"),
        ({"every": 10}, "50 without checkpoint"),
        ({"checkpoint": "run", "warm_start": True}, "None with partial_fit or warm_start"),
    ],
)
def test_parameters_are_checked(parameters, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with refused(words):
        NETWORK(**parameters).fit(X, Y)
    assert not list(tmp_path.iterdir())


def test_partial_fit_and_private_searches_take_no_checkpoint(tmp_path):
    network = FULL(checkpoint=tmp_path / "run")
    with pytest.raises(ValueError, match="None with partial_fit"):
        network.partial_fit(X, Y)
    with pytest.raises(ValueError, match="None inside a private search"):
        DPRandomizedSearch(network, {"learning_rate": [0.1, 0.2]}, epsilon=1.0).fit(X, Y)
    with covered("free"), pytest.raises(ValueError, match="None inside a search or an audit"):
        network.fit(X, Y)
    assert not list(tmp_path.iterdir())


@pytest.mark.thorough
def test_folds_of_a_search_follow_each_other_on_one_path(tmp_path):
    grid = {"learning_rate": [0.1, 0.2]}
    network = NETWORK(random_state=0, checkpoint=tmp_path / "run", n_samples=40)
    search = GridSearchCV(network, grid, cv=3, refit=False, error_score="raise").fit(X, Y)
    assert len(search.cv_results_["mean_test_score"]) == 2
    assert not list(tmp_path.iterdir())
    stopped(clone(network), X, Y)
    with pytest.raises(ValueError, match="other"):
        search.fit(X, Y)


def test_optimisers_whose_state_is_no_numbers_are_refused(tmp_path):
    class Odd(torch.optim.SGD):
        def step(self):
            for group in self.param_groups:
                for parameter in group["params"]:
                    self.state[parameter]["kept"] = object()

    network = NETWORK(optimizer=Odd, checkpoint=tmp_path / "run")
    with refused("no file of numbers"):
        network.fit(X, Y)


def test_parameters_are_told_apart_by_what_they_compute():
    def made(scale):
        return lambda n, k: torch.nn.Linear(n, k * scale)

    class Other(torch.nn.Linear):
        pass

    layer = torch.nn.Linear(2, 2)
    moved = torch.nn.Linear(2, 2)
    long = np.zeros(10_000)
    late = long.copy()
    late[5000] = 1.0
    masked = np.ma.array(long, mask=late == 1.0)
    values = [
        None, 1, 1.0, True, "1", (1,), [1], {"a": 1}, {"a": 2}, made(1), made(2), Other,
        torch.nn.Linear, layer, moved, long, late, torch.device("cpu"), torch.device("meta"),
        np.random.RandomState(0), np.random.RandomState(1), partial(made, 1), partial(made, 2),
        torch.distributions.Normal(0.0, 1.0), torch.distributions.Normal(0.0, 2.0),
        masked, np.ma.array(late), pd.Series(long), pd.Series(late), pd.DataFrame({"a": late}),
        pl.Series(late), pl.Series(long), np.random.default_rng(0), np.random.default_rng(1),
        torch.ones(3, dtype=torch.bfloat16), torch.full((3,), 1.5, dtype=torch.bfloat16),
        torch.eye(2).to_sparse(), 2 * torch.eye(2).to_sparse(), Slot(1.0), Slot(2.0), {1.0, 2.0},
        {1.0, 3.0}, np.sin, np.cos, torch.sin, Record(1.0), Record(2.0), Slot(1.0).times,
        Slot(2.0).times,
    ]  # fmt: skip
    found = [described(b"key", value) for value in values]
    assert len(set(found)) == len(values)
    copy.deepcopy(values)  # leaves marks in classes
    assert found == [described(b"key", value) for value in values]
    assert described(b"key", made(1)) == found[9]
    assert described(b"key", np.random.RandomState(0)) == found[19]
    assert described(b"other", 1) != found[1]


DESCRIBED = """
import numpy as np, pandas as pd, polars as pl, torch
from skdp.fitting import checkpoint as of_checkpoints
from skdp.fitting.object_mac import described
def made(weights):
    def loss(s, y):
        return s * weights if y in {"a", "b", "c"} else {"d": 1, "e": 2}
    return loss
class Scaled:
    __slots__ = ("by",)
    def __init__(self, by):
        self.by = by
values = [
    made(pd.Series([1.0, 2.0])), made(pl.Series([1.0])), made(torch.ones(2, dtype=torch.bfloat16)),
    made(torch.eye(2).to_sparse()), made(np.ma.array([1.0, 2.0], mask=[0, 1])), Scaled(2.0),
    {"x", "y", "z"}, torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Flatten()), torch.optim.Adam,
    np.random.default_rng(0), torch.distributions.Normal(0.0, 1.0), np.sin, torch.tanh,
]
print([described(bytes(32), value) for value in values])
"""


@pytest.mark.thorough
def test_another_process_describes_parameters_alike():
    said = {
        subprocess.run(
            [sys.executable, "-c", DESCRIBED],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(said) == 1


class Slot:
    __slots__ = ("scale",)
    factor = 1.0

    def __init__(self, scale):
        self.scale = scale

    def times(self, x):
        return x * self.scale * self.factor


@dataclasses.dataclass
class Record:
    scale: float


SCALE = 1.0


def with_scale(x):
    return times(x)


def times(x):
    return [x * SCALE for _ in range(2)]


def test_parameters_are_told_apart_by_what_they_refer_to(monkeypatch):
    def seen():
        return described(b"key", with_scale), described(b"key", Slot(1.0))

    before = seen()
    assert seen() == before
    monkeypatch.setattr(sys.modules[__name__], "SCALE", 2.0)
    monkeypatch.setattr(Slot, "factor", 2.0)
    after = seen()
    assert not {*before} & {*after}
    monkeypatch.setattr(sys.modules[__name__], "times", lambda x: x)
    assert seen()[0] not in (before[0], after[0])


@pytest.mark.parametrize("what", [threading.Lock(), sys.stdout, (i for i in "a")])
def test_what_cannot_be_told_apart_is_refused_before_the_charge(what, tmp_path):
    def loss(scores, y):
        return functional.cross_entropy(scores, y, reduction="none") + bool(what) * 0.0

    network = NETWORK(loss=loss, checkpoint=tmp_path / "run")
    with refused("cannot be told from another"):
        network.fit(X, Y)
    assert not list(tmp_path.iterdir())


def with_gain(n_features, n_outputs):
    class Scaled(torch.nn.Linear):
        def forward(self, x):
            return super().forward(x) * getattr(sys, "gain_of_a_test", 1.0)

    return Scaled(n_features, n_outputs)


def test_a_step_that_is_made_again_with_another_sum_ends_the_run(tmp_path, monkeypatch):
    """What no comparison of parameters can see: state that lies outside of them."""
    make = partial(NETWORK, module=with_gain, checkpoint=tmp_path / "run", every=4)
    stopped(make(), X, Y)
    monkeypatch.setattr(sys, "gain_of_a_test", 0.5, raising=False)
    for _ in range(2):
        with (
            PrivacyLedger() as ledger,
            release_hook.record() as tape,
            pytest.raises(ValueError, match=r"step 12 with another sum.*Nothing more has been rel"),
        ):
            make().fit(X, Y)
        assert not tape
        assert len(ledger.entries) == 1
    monkeypatch.delattr(sys, "gain_of_a_test")
    assert make().fit(X, Y).n_iter_ == STEPS


def test_the_mac_of_a_sum_is_written_before_its_noise_is_drawn(tmp_path):
    path, found = tmp_path / "run", {}

    class Watched(of_checkpoints.RunStreams):
        def compared(self, step, value):
            computed = super().compared(step, value)

            def exact():
                total = computed()
                lines = key_of(path).read_text().splitlines()[1:]
                found[step] = [int(line.split()[0]) for line in lines]
                return total

            return exact

    with mock.patch.object(of_checkpoints, "RunStreams", Watched):
        NETWORK(checkpoint=path, every=4).fit(X, Y)
    assert found == {t: list(range(t - t % 4, t + 1)) for t in range(STEPS)}


def test_half_a_line_is_of_a_step_that_drew_no_noise(tmp_path):
    make = partial(NETWORK, random_state=0, checkpoint=tmp_path / "run", every=4)
    whole = left(make().fit(X, Y))
    stopped(make(), X, Y)
    key = key_of(tmp_path / "run")
    key.write_bytes(key.read_bytes()[:-9])
    stopped(make(), X, Y, at=14)
    assert [line.split()[0] for line in key.read_text().splitlines()[1:]] == ["12", "13", "14"]
    assert left(make().fit(X, Y)) == whole


@bundled("name", ["X_public", "y_public", "a method", "threads", "a subclass"])
def test_whatever_else_the_run_depends_on_is_compared(name, tmp_path_factory):
    make = partial(NETWORK, checkpoint=tmp_path_factory.mktemp("run") / "run", every=4)
    public = {"X_public": X[:9], "y_public": Y[:9]}
    stopped(make(), X, Y, **public)
    estimator, others, context = make(), dict(public), contextlib.nullcontext()
    if name == "a method":
        estimator._model = estimator._model
    elif name == "threads":
        context = mock.patch.object(torch, "get_num_threads", return_value=31)
    elif name == "a subclass":
        estimator = type("DPSGDClassifier", (DPSGDClassifier,), {})(**estimator.get_params())
    else:
        others[name] = others[name] * 0
    with context, refused("can resume"):
        estimator.fit(X, Y, **others)
    assert make().fit(X, Y, **public).n_iter_ == STEPS


def test_what_two_parameters_share_is_compared(tmp_path):
    def make(shared):
        kept = [1.0]
        own = kept if shared else [1.0]

        def loss(scores, y):
            return functional.cross_entropy(scores, y, reduction="none") * kept[0]

        def schedule(step):
            return own[0]

        parameters = {"loss": loss, "learning_rate_schedule": schedule}
        return NETWORK(**parameters, checkpoint=tmp_path / "run", every=4)

    stopped(make(True), X, Y)
    with refused(r"other parameters \(what several of them share\)"):
        make(False).fit(X, Y)
    assert make(True).fit(X, Y).n_iter_ == STEPS


def test_equal_parameters_of_another_type_are_equal(tmp_path):
    path = tmp_path / "run"
    stopped(NETWORK(checkpoint=path, every=4, learning_rate=0.1, device="cpu"), X, Y)
    others = {"learning_rate": np.float64(0.1), "device": torch.device("cpu")}
    same = NETWORK(checkpoint=path, every=np.int64(4), **others).fit(X, Y)
    assert same.n_iter_ == STEPS


def test_a_link_is_not_followed_to_where_a_key_would_be(tmp_path):
    (tmp_path / "run.key").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match="a file that can be written"):
        NETWORK(checkpoint=tmp_path / "run").fit(X, Y)
    assert not (tmp_path / "elsewhere").exists()
