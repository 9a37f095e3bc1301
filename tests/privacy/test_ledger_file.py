import json
import os
import signal

import numpy as np
import pytest
from processes import in_child, started

from skdp import DPVariationalLogisticRegression
from skdp.engine.linear_sums import LinearClippedSum
from skdp.privacy import BudgetExceededError, PrivacyLedger
from skdp.privacy.events import dp_sgd_event
from skdp.privacy.ledger import charge

EVENT = dp_sgd_event(4.0, 1.0, 16)  # ε = 4.377 at δ = 1e-5


def test_entries_are_there_in_the_next_session(tmp_path):
    path = tmp_path / "ledger.jsonl"
    PrivacyLedger(path=path).spend(EVENT, label="monday")
    tuesday = PrivacyLedger(epsilon=5.0, delta=1e-5, path=path)
    assert [entry.label for entry in tuesday.entries] == ["monday"]
    assert tuesday.entries[0].event == EVENT
    with pytest.raises(BudgetExceededError):
        tuesday.spend(EVENT, label="tuesday")
    assert len(path.read_text().splitlines()) == 1


def test_a_torn_last_line_was_never_spent_and_is_written_over(tmp_path):
    path = tmp_path / "ledger.jsonl"
    PrivacyLedger(path=path).spend(EVENT, label="whole")
    with path.open("ab") as file:
        file.write(b'{"label": "torn", "ev')
    ledger = PrivacyLedger(path=path)
    assert [entry.label for entry in ledger.entries] == ["whole"]
    ledger.spend(EVENT, label="next")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["label"] for line in lines] == ["whole", "next"]


def test_an_entry_that_lacks_only_the_end_of_its_line_counts(tmp_path):
    path = tmp_path / "ledger.jsonl"
    PrivacyLedger(path=path).spend(EVENT, label="whole")
    path.write_bytes(path.read_bytes().rstrip(b"\n"))
    ledger = PrivacyLedger(path=path)
    ledger.spend(EVENT, label="next")
    assert [entry.label for entry in PrivacyLedger(path=path).entries] == ["whole", "next"]


def test_a_file_that_is_no_ledger_is_left_alone(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("call the hospital")
    with pytest.raises(ValueError, match="damaged, or is not a ledger"):
        PrivacyLedger(path=path)
    assert path.read_text() == "call the hospital"


def test_a_damaged_file_is_refused_not_read_as_cheap(tmp_path):
    path = tmp_path / "ledger.jsonl"
    PrivacyLedger(path=path).spend(EVENT, label="whole")
    path.write_text("not an entry\n" + path.read_text())
    with pytest.raises(ValueError, match="has been damaged"):
        PrivacyLedger(path=path)


def test_a_file_of_another_relation_is_refused(tmp_path):
    path = tmp_path / "ledger.jsonl"
    PrivacyLedger(path=path).spend(EVENT, label="whole")
    with pytest.raises(ValueError, match="neighboring_relation"):
        PrivacyLedger(path=path, neighboring_relation="replace_one")


def test_a_file_that_cannot_be_written_stops_the_release(tmp_path):
    path = tmp_path / "ledger.jsonl"
    ledger = PrivacyLedger(path=path)
    path.unlink()
    path.mkdir()
    with ledger_open(ledger), pytest.raises(OSError, match="directory"):
        charge(EVENT, label="fit", neighboring_relation="zero_out")


def ledger_open(ledger):
    from skdp.privacy.ledger import _open

    class Open:
        def __enter__(self):
            _open.append(ledger)

        def __exit__(self, *_):
            _open.remove(ledger)

    return Open()


def test_one_file_is_not_opened_twice_at_once(tmp_path):
    path = tmp_path / "ledger.jsonl"
    with PrivacyLedger(path=path), pytest.raises(ValueError, match="already open"):
        PrivacyLedger(path=path).__enter__()


def spend_five(pipe, path, name):
    pipe.recv()
    for i in range(5):
        PrivacyLedger(path=path).spend(EVENT, label=f"{name}.{i}")


def test_two_processes_lose_no_entry(tmp_path):
    path = tmp_path / "ledger.jsonl"
    spenders = [started(spend_five, path, name) for name in "ab"]
    for _, pipe in spenders:
        pipe.send("go")
    for child, _ in spenders:
        child.join()
        assert child.exitcode == 0
    assert sorted(entry.label for entry in PrivacyLedger(path=path).entries) == [
        f"{name}.{i}" for name in "ab" for i in range(5)
    ]


def fit_and_die(pipe, path):
    def die(self, theta, batch):
        os.kill(os.getpid(), signal.SIGKILL)

    LinearClippedSum.__call__ = die
    model = DPVariationalLogisticRegression(classes=[0, 1], n_samples=4, inference="dpvi")
    with PrivacyLedger(path=path):
        model.fit(np.eye(4), [0, 1, 0, 1])


def test_a_fit_that_is_killed_stays_charged(tmp_path):
    path = tmp_path / "ledger.jsonl"
    assert in_child(fit_and_die, path) == (-signal.SIGKILL, None)
    ledger = PrivacyLedger(path=path)
    assert ledger.total(1e-5) == pytest.approx(1.0)
    assert os.path.getsize(path) > 0
