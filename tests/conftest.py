"""Data that several test files share, which tests are fast, and where their noise comes from."""

import hashlib
import itertools
import os
import sys
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import settings
from sklearn.datasets import load_breast_cancer
from threadpoolctl import threadpool_limits

from skdp.models import averaged
from skdp.privacy import _process_tree

# The tests are small and run side by side, and threads that wait for each other on a busy machine
# cost a hundred times what they save.
torch.set_num_threads(1)
threadpool_limits(1)

# One day for the whole run: pickles, which are compared, hold the date of a fit.
os.environ.setdefault("SOURCE_DATE_EPOCH", str(int(time.time())))

settings.register_profile("thorough", deadline=None, derandomize=True, print_blob=True)
for name, n in (("normal", 40), ("quick", 15)):
    settings.register_profile(name, settings.get_profile("thorough"), max_examples=n)

FAST = {"engine", "mechanisms", "metrics", "models", "privacy"}
TAKE_LONGER = {
    "test_accounting.py",
    "test_differential.py",
    "test_ledger_file.py",
    "test_posterior_samples.py",
    "test_workflow.py",
}


def is_fast(path):
    """Whether a file of tests belongs to those that run after every change."""
    folder = path.relative_to(Path(__file__).parent).parts[0]
    return folder in FAST and path.name not in TAKE_LONGER


def pytest_ignore_collect(collection_path, config):
    """With `-m fast` alone, do not import the other files, which takes longer than the tests."""
    if config.option.markexpr == "fast" and collection_path.suffix == ".py":
        return not is_fast(collection_path) or None
    return None


def pytest_configure(config):
    """Look at more examples of each property where more tests run."""
    chosen = config.option.markexpr
    quick = chosen == "fast" or "not thorough" in chosen
    normal = quick or "not slow" in chosen
    settings.load_profile("quick" if quick else "normal" if normal else "thorough")


@pytest.hookimpl(wrapper=True)
def pytest_collect_file():
    """Look for doctests in the package only: no module below here has any."""
    collectors = yield
    return [found for found in collectors if type(found) is pytest.Module]


QUICK = 10  # items of a test with parameters, where it does not say how many


def thorough(items):
    """What the quick suite leaves out: all but a few items of each test, spread over its list."""
    tests = {}
    for item in items:
        if item.get_closest_marker("slow") is None:
            name = getattr(item, "originalname", item.name)
            tests.setdefault((item.path, item.parent.name, name), []).append(item)
    for cases in tests.values():
        mark = cases[0].get_closest_marker("quick")
        n, kept = len(cases), mark.args[0] if mark else QUICK
        yield from (case for i, case in enumerate(cases) if (i + 1) * kept // n == i * kept // n)


@pytest.hookimpl(tryfirst=True)  # before pytest selects by `-m`
def pytest_collection_modifyitems(items):
    """Mark what quick suite and CI leave out, and as fast what is in a fast file and is quick."""
    here = Path(__file__).parent
    for item in thorough(items):
        item.add_marker("thorough")
    for item in [item for item in items if item.get_closest_marker("thorough")][1::2]:
        item.add_marker("second")
    for item in items:
        inside = item.path.is_relative_to(here) and is_fast(item.path)
        if inside and not any(map(item.get_closest_marker, ("slow", "thorough"))):
            item.add_marker("fast")


SYSTEM = os.urandom


def pytest_addoption(parser):
    parser.addoption(
        "--fresh-noise",
        action="store_true",
        help="noise from the operating system in every test, as it always is in slow ones",
    )


@contextmanager
def noise_of(name):
    """Key skdp's noise and the global generators by a name, so that a failure can be repeated.

    Forked children keep noise of the system, or two would draw the same.
    """
    here, asked, before = os.getpid(), itertools.count(), os.urandom

    def urandom(size):
        caller = sys._getframe(1).f_globals.get("__name__", "")
        if not caller.startswith("skdp.") or "testing" in caller or os.getpid() != here:
            return SYSTEM(size)
        return hashlib.shake_256(f"{name} {next(asked)}".encode()).digest(size)

    seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "little")
    states = np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
    np.random.seed(seed)  # noqa: NPY002
    torch.manual_seed(seed)
    os.urandom = urandom
    try:
        yield
    finally:
        os.urandom = before
        np.random.set_state(states[0])  # noqa: NPY002
        torch.set_rng_state(states[1])


def fresh(request_or_item):
    """Whether the noise is the operating system's: in slow tests, and where it is asked for."""
    options = request_or_item.config.option
    return options.fresh_noise or "slow" in options.markexpr.replace("not slow", "")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    with ExitStack() as stack:
        if not fresh(item):
            stack.enter_context(noise_of(item.nodeid))
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef, request):
    """What several tests share has noise of its own name, whichever of them asks first."""
    with ExitStack() as stack:
        if not fresh(request) and fixturedef.scope != "function":
            name = f"{fixturedef.baseid} {fixturedef.argname} {getattr(request, 'param', '')}"
            stack.enter_context(noise_of(name))
        return (yield)


# Folders and files that ask what was released, charged, refused or kept, not what a posterior is.
SHORT_INFERENCE = {
    "chunks",
    "contracts",
    "hardening",
    "model_selection",
    "replay",
    "test_robust_posteriors.py",
}
POINTS = averaged.normal_points


@pytest.fixture(autouse=True, scope="module")
def short_inference(request):
    """Where no test looks at their accuracy, short chains, few draws and points.

    All of this happens after the releases, and every line of it still runs.
    """
    with ExitStack() as patches:
        if SHORT_INFERENCE & {request.path.parent.name, request.path.name}:
            for name, value in (
                ("algorithms.parts.logit_posterior.TRAJECTORIES", 4),
                ("algorithms.noise_aware_logit.N_CHAINS", 4),
                ("algorithms.noise_aware_logit.BELIEF_ENTRIES", 0),
                ("algorithms.noise_aware_logit.LEAST_BELIEFS", 3),
                ("algorithms.parts.binned_rows.LEAST_POINTS", 60),
                ("models.averaged.normal_points", lambda *size: POINTS(*size)[::16]),
            ):
                patches.enter_context(mock.patch(f"skdp.{name}", value))
        yield


# Files whose ledgers are looked for by processes that are no forks.
WITH_OTHER_PROCESSES = {"test_counting.py", "test_estimator.py", "test_robustness.py"}


@pytest.fixture(autouse=True, scope="module")
def ledgers_of_its_own(request, tmp_path_factory):
    """Announce open ledgers where no other test process does: a charge then looks at no others."""
    with ExitStack() as patches:
        if request.path.name not in WITH_OTHER_PROCESSES:
            folder = str(tmp_path_factory.getbasetemp() / "ledgers")
            name = mock.patch.object(_process_tree, "_folder_name", return_value=folder)
            patches.enter_context(name)
        yield


@pytest.fixture
def figure(record_property):
    """A function that states a measured figure for the page that `tests/evidence.py` writes."""
    return lambda text: record_property("figure", text)


@pytest.fixture(scope="session")
def breast_cancer():
    """All 30 features standardised, cut at ±4, rows scaled to norm ≤ 1, intercept first.

    The common protocol of a comparison; standardising reads the data, so no private pipeline.
    """
    X, y = load_breast_cancer(return_X_y=True)
    Z = np.clip((X - X.mean(axis=0)) / X.std(axis=0), -4, 4)
    rows = np.column_stack([np.ones(len(Z)), Z])
    bound = np.sqrt(rows.shape[1])
    rows *= np.minimum(1, bound / np.linalg.norm(rows, axis=1))[:, None]
    return rows / bound, y


@pytest.fixture
def two_blobs():
    """120 rows of 3 features in [-1, 1], two classes."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (120, 3))
    y = (X[:, 0] + 0.3 * rng.standard_normal(120) > 0).astype(int)
    return X, y
