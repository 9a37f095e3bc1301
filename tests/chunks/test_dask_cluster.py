"""Rows on a Dask cluster, whose workers are killed, lost, interrupted, or of other versions.

What needs no cluster is in `test_dask`.
"""

import functools
import gzip
import os
import signal
import threading
import time

import dask
import dask.array as da
import dask.dataframe as dd
import distributed
import numpy as np
import pandas as pd
import pytest
from chunks.common import PLANTED, charged, classifier, words_of
from chunks.faulty import X, Y

from skdp import Persons
from skdp.rows.dask_rows import DaskRows
from skdp.testing import record_releases

pytestmark = [
    pytest.mark.filterwarnings("ignore::skdp.PrivacyWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:Port 8787 is already in use"),
]
N = len(X)


def start(folder, **settings):
    """Start a cluster; its workers restart when they die."""
    return distributed.LocalCluster(
        **{"n_workers": 2, "memory_limit": 0} | settings,
        threads_per_worker=1,
        processes=True,
        host="127.0.0.1",
        dashboard_address=None,
        local_directory=folder,
        silence_logs=50,
    )


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    # When this time has passed since a worker was lost, a local cluster gives it up if it is not
    # there, even if it was back and is being restarted again.
    patient = dask.config.set({"distributed.deploy.lost-worker-timeout": "1h"})
    folder = tmp_path_factory.mktemp("dask")
    with patient, start(folder) as cluster, distributed.Client(cluster) as client:
        yield client


@pytest.fixture(autouse=True)
def nothing_comes_here(monkeypatch, fixed):
    """The same random bits for every fit; rows are not read in this process."""

    def never(self, number):
        raise AssertionError

    monkeypatch.setattr(DaskRows, "load", never)


classifier = functools.partial(classifier, N, secure=True)


def arrays(n_parts=4):
    size = -(-N // n_parts)
    return da.from_array(X, chunks=(size, 2)), da.from_array(Y, chunks=size)


def failing(folder, what, n_read):
    """Rows whose partition 1 does something when it is read for the nth time, by whomever."""

    def read(block, block_id=None):
        if block_id != (1, 0):
            return block
        n = 1
        while True:
            try:
                os.close(os.open(f"{folder}/{n}", os.O_CREAT | os.O_EXCL))
                break
            except FileExistsError:
                n += 1
        if n == n_read and what == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        return what(block) if n == n_read else block

    return arrays()[0].map_blocks(read, meta=X[:0])


def wait_for_workers(client):
    """A worker that dies while its nanny still waits to hear of its start is not restarted."""
    nannies = client.cluster.workers.values()
    for _ in range(600):
        alive = [nanny.status.name == "running" and nanny.is_alive() for nanny in nannies]
        if all(alive) and len(client.cluster.scheduler.workers) == len(alive):
            return
        time.sleep(0.1)
    raise TimeoutError("workers did not start in a minute")


def left_on(client):
    """Keys that the cluster still has, when it has had time to forget."""
    for _ in range(50):
        keys = [key for key in client.cluster.scheduler.tasks if "skdp" in str(key)]
        if not keys and not client.futures:
            break
        time.sleep(0.1)
    return keys


def test_secure_fits_are_equal_to_the_bit_on_one_and_two_workers(client):
    whole = classifier().fit(X, Y).coef_
    one = next(iter(client.scheduler_info()["workers"]))
    frame = dd.from_pandas(pd.DataFrame(X, columns=["a", "b"]).assign(y=Y), npartitions=5).persist()
    for rows, y in (arrays(7), dask.persist(*arrays(3)), (frame[["a", "b"]], frame["y"])):
        with charged(1):
            assert np.array_equal(classifier().fit(rows, y).coef_, whole)
    with dask.annotate(workers=[one]):
        assert np.array_equal(classifier().fit(*arrays(7)).coef_, whole)
    del frame, rows, y
    assert not left_on(client)


@pytest.mark.thorough
def test_persons_are_brought_together_on_the_workers(client):
    who = np.arange(N) % 30
    unit = {"unit": Persons(30, rows_per_group=5), "n_samples": None}
    whole = classifier(**unit).fit(X, Y, groups=who)
    rows, y = arrays()
    found = classifier(**unit).fit(rows, y, groups=da.from_array(who, chunks=30))
    assert np.array_equal(found.coef_, whole.coef_)
    assert not left_on(client)


@pytest.mark.thorough
def test_a_pipeline_is_fitted_and_scored_there(client):
    from sklearn.pipeline import make_pipeline

    from skdp import BoundedScaler

    whole = make_pipeline(BoundedScaler(-1, 1), classifier()).fit(X, Y)
    found = make_pipeline(BoundedScaler(-1, 1), classifier()).fit(*arrays())
    assert np.array_equal(found[-1].coef_, whole[-1].coef_)
    assert found.score(*arrays()) == pytest.approx(whole.score(X, Y))
    assert np.array_equal(found.predict(arrays()[0]).compute(), whole.predict(X))


@pytest.mark.thorough
@pytest.mark.parametrize("n_kills", [1, pytest.param(20, marks=pytest.mark.slow)])
def test_workers_that_are_killed_in_a_pass_change_nothing(n_kills, client, tmp_path):
    with record_releases() as trace:
        whole = classifier().fit(X, Y)
    for number in range(n_kills):
        folder, n_read = tmp_path / str(number), 2 + number % len(trace)
        folder.mkdir()
        wait_for_workers(client)
        with charged(1), record_releases() as tape:
            found = classifier().fit(failing(folder, "kill", n_read), arrays()[1])
        assert os.path.exists(folder / str(n_read + 1))  # it was read again
        assert [one.call for one in tape] == [one.call for one in trace]
        for one, other in zip(tape, trace, strict=True):
            assert np.array_equal(np.asarray(one.output), np.asarray(other.output))
        assert np.array_equal(found.coef_, whole.coef_)
    assert not left_on(client)


@pytest.mark.thorough
def test_a_planted_value_is_in_no_log_key_dump_or_error(client, tmp_path):
    def fail(block):
        block = block.copy()
        block[3] = PLANTED
        raise ArithmeticError(f"row {block[3]}")

    found = ""
    for n_read, error in ((1, ValueError), (3, RuntimeError)):
        folder = tmp_path / str(n_read)
        folder.mkdir()
        with pytest.raises(error) as caught:
            classifier().fit(failing(folder, fail, n_read), arrays()[1])
        found += words_of(caught.value)
        client.dump_cluster_state(str(folder / "dump"))
        found += gzip.decompress((folder / "dump.msgpack.gz").read_bytes()).decode(errors="ignore")
        found += str(client.get_worker_logs()) + str(client.get_scheduler_logs())
        found += str(client.run_on_scheduler(events_of)) + str(client.cluster.get_logs())
    assert len(found) > 10_000
    assert "skdp-" in found
    for secret in ("424242", repr(float(X[31, 0])), repr(float(X[31, 1]))):
        assert secret not in found


def events_of(dask_scheduler):
    return dask_scheduler.events if hasattr(dask_scheduler, "events") else ""


@pytest.mark.thorough
def test_an_interrupt_in_a_pass_ends_it_and_the_cluster_lives_on(client, tmp_path, request):
    interrupted = tmp_path / "interrupted"

    def wait(block):
        for _ in range(1200):
            if os.path.exists(interrupted):
                break
            time.sleep(0.05)
        return block

    def interrupt(main):
        while not os.path.exists(tmp_path / "3"):
            time.sleep(0.05)
        signal.pthread_kill(main, signal.SIGINT)
        time.sleep(0.5)  # it is in the pass when it is told
        interrupted.touch()

    # A process that was started in the background may ignore it.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
    threading.Thread(target=interrupt, args=[threading.get_ident()]).start()
    with charged(1, KeyboardInterrupt, "stays spent"):
        classifier().fit(failing(tmp_path, wait, 3), arrays()[1])
    assert not left_on(client)
    classifier().fit(*arrays())


@pytest.mark.thorough
def test_a_worker_of_another_version_is_refused(client):
    def install(version):
        from skdp.rows import dask_rows

        dask_rows.versions.cache_clear()
        dask_rows.__version__ = version

    from skdp import __version__

    one = next(iter(client.scheduler_info()["workers"]))
    client.run(install, "9.9", workers=[one])
    with charged(0, ValueError, "other versions of Python"):
        classifier().fit(*arrays(7))
    client.run(install, __version__)
    classifier().fit(*arrays(7))


@pytest.mark.thorough
def test_bytes_through_the_driver_grow_with_the_partitions_and_not_with_rows(client, capsys):
    def told(rows, y):
        classifier(verbose=1, n_samples=len(y)).fit(rows, y)
        words = capsys.readouterr().out.split(" kB")
        return [float(part.split()[-1]) for part in words[:2]]

    few, many = told(*arrays(4)), told(*arrays(40))
    long = (
        da.from_array(np.tile(X, (20, 1)), chunks=(600, 2)),
        da.from_array(np.tile(Y, 20), chunks=600),
    )
    assert max(few + many) < 200
    assert told(*long)[1] < 1.2 * told(*arrays(4))[1]


def grow(block):
    held = []
    for _ in range(100):
        held.append(np.ones(5_000_000))
        time.sleep(0.02)
    return block


def wait_long(block):
    time.sleep(3.0)
    return block


@pytest.mark.slow
@pytest.mark.parametrize("what", [grow, wait_long])
def test_a_memory_limit_and_a_scheduler_that_is_lost_end_the_fit(what, tmp_path):
    def close(cluster):
        while not os.path.exists(tmp_path / "3"):
            time.sleep(0.05)
        cluster.sync(cluster.scheduler.close)

    with dask.config.set({"distributed.scheduler.allowed-failures": 0}):
        cluster = start(tmp_path / "scratch", memory_limit="1GB")
    with cluster, distributed.Client(cluster):
        if what is wait_long:
            threading.Thread(target=close, args=(cluster,)).start()
        says = "Rows are lost: a chunk could not be worked on"
        with charged(1, RuntimeError, says, n_releases=1):
            classifier().fit(failing(tmp_path, what, 3), arrays()[1])
