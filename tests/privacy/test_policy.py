"""The policy gate: in a CI-like job, and in a ledger before the fit."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from dp_accounting import GaussianDpEvent

from skdp import DPSGDClassifier, DPVariationalLogisticRegression, verify
from skdp.policy import Policy, main, policy_for, read_policies
from skdp.privacy import BudgetExceededError, PrivacyLedger, PrivacyReport, gdp_to_epsilon
from skdp.privacy.ledger import charge

ROOT = Path(__file__).resolve().parents[2]
POLICY = """
[survey]
epsilon = 3.0
delta = 1e-5
relations = ["zero_out", "replace_one"]
may_not_be_inferred = ["classes"]
min_version = "0.2.0"
seeded = "refused"

[patients]
epsilon = 1
delta = 1e-6
unit = "group"
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("policy.toml").write_text(POLICY)
    return tmp_path


def written(name, sigma, **changes):
    changes = {"delta": 1e-5, "sampling": "any"} | changes
    text = PrivacyReport.of(GaussianDpEvent(sigma), **changes).to_json()
    Path(name).write_text(text)
    return name


def ledger(name, *sigmas, **changes):
    book = PrivacyLedger(path=name, **changes)
    for sigma in sigmas:
        book.spend(
            GaussianDpEvent(sigma), label="a fit", neighboring_relation=book.neighboring_relation
        )
    return name


def gate(*files, data="survey"):
    return main(["--policy", "policy.toml", "--data", data, *files])


def test_a_job_passes_fails_and_composes_three_reports_and_a_ledger(folder):
    """As a CI job runs it: a command, exit statuses, reasons."""
    reports = [written(f"{i}.json", sigma) for i, sigma in enumerate((4.0, 5.0, 6.0))]
    book = ledger("study.ledger", 5.0, 8.0)

    def job(*files):
        command = [sys.executable, "-m", "skdp.policy", "--policy", "policy.toml", "--data"]
        return subprocess.run(
            [*command, "survey", *files],
            capture_output=True,
            text=True,
            check=False,
            env={"PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"},
        )

    passed = job(*reports, book)
    assert passed.returncode == 0, passed.stdout + passed.stderr
    mu = sum(s**-2 for s in (4, 5, 6, 5, 8)) ** 0.5
    assert f"ε ≤ {gdp_to_epsilon(mu, 1e-5):.6g}"[:9] in passed.stdout
    assert "5 releases together" in passed.stdout
    over = job(*reports, book, written("last.json", 1.2))
    assert over.returncode == 1
    assert "above the ceiling 3" in over.stdout
    unknown = job("nothing.json")
    assert unknown.returncode == 2
    assert "nothing.json" in unknown.stdout


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"neighboring_relation": "add_or_remove_one"}, "not among the relations allowed"),
        ({"neighboring_relation": "zero_out_group"}, "not among the relations allowed"),
        ({"inferred_public_facts": ("classes",)}, "forbids: classes"),
        ({"seeded": True}, "seeded"),
    ],
    ids=["relation", "unit", "inferred", "seeded"],
)
def test_what_the_policy_forbids_is_refused_with_the_reason(folder, capsys, changes, reason):
    assert gate(written("good.json", 4.0)) == 0
    assert gate(written("good.json", 4.0, inferred_public_facts=("n_samples",))) == 0
    assert gate(written("bad.json", 4.0, **changes)) == 1
    assert reason in capsys.readouterr().out


def test_versions_before_the_least_one_are_refused(folder, capsys):
    report = json.loads(Path(written("old.json", 4.0)).read_text())
    Path("old.json").write_text(json.dumps(report | {"skdp_version": "0.1.9"}))
    assert gate("old.json") == 1
    assert "before 0.2.0" in capsys.readouterr().out
    Path("new.json").write_text(json.dumps(report | {"skdp_version": "0.10.0"}))
    assert gate("new.json") == 0
    Path("none.json").write_text(json.dumps(report | {"skdp_version": "new"}))
    assert gate("none.json") == 2


def test_different_neighbours_do_not_add_up(folder, capsys):
    one, other = written("1.json", 9.0), written("2.json", 9.0, neighboring_relation="replace_one")
    assert gate(one) == gate(other) == 0
    assert gate(one, other) == 1
    assert "do not add up" in capsys.readouterr().out


def test_a_doctored_report_fails_the_gate_below_the_ceiling(folder, capsys):
    report = json.loads(Path(written("0.json", 4.0)).read_text())
    Path("0.json").write_text(json.dumps(report | {"epsilon": report["epsilon"] / 2}))
    assert gate("0.json") == 1
    assert "not proved" in capsys.readouterr().out


def test_the_command_line_tightens_a_policy_and_does_not_loosen_it(folder):
    report = json.loads(Path(written("0.json", 4.0)).read_text())
    Path("0.json").write_text(json.dumps(report | {"epsilon": report["epsilon"] / 1.05}))
    Path("near.toml").write_text("[survey]\nepsilon = 3\ndelta = 1e-5\nwithin = 0.1\n")

    def status(percent, policy, file="0.json"):
        return main([f"--within={percent}", "--policy", policy, "--data", "survey", file])

    assert [status(percent, "near.toml") for percent in (6, 20, 4)] == [0, 0, 1]
    assert [status(percent, "policy.toml") for percent in (6, 20)] == [1, 1]
    assert [main([f"--within={percent}", "0.json"]) for percent in (6, 4)] == [0, 1]
    book = ledger("study.ledger", 4.0)
    for wild in ("inf", "nan", "-1", "21"):
        assert main([f"--within={wild}", "0.json"]) == 2
        assert status(wild, "near.toml") == status(wild, "near.toml", book) == 2


@pytest.mark.parametrize("text", ["", " \n"])
@pytest.mark.parametrize("name", ["0.json", "study.ledger"])
def test_nothing_cannot_be_checked(folder, capsys, name, text):
    Path(name).write_text(text)
    assert gate(name) == gate(written("good.json", 4.0), name) == 2
    assert f"{name} is empty" in capsys.readouterr().out


def test_a_pipe_has_the_limit_of_a_file(folder, capsys, monkeypatch):
    text = Path(written("0.json", 4.0)).read_bytes()
    monkeypatch.setattr(verify, "LARGEST", len(text))
    for more, status in ((b"", 0), (b" ", 2)):
        reading, writing = os.pipe()
        os.write(writing, text + more)
        os.close(writing)
        assert gate(f"/dev/fd/{reading}") == status
        os.close(reading)
    assert "larger than" in capsys.readouterr().out


def test_entries_of_a_ledger_have_the_version_that_wrote_them(folder, capsys, monkeypatch):
    line = json.loads(Path(ledger("new.ledger", 4.0)).read_text())
    assert gate("new.ledger") == 0
    monkeypatch.setattr("skdp.privacy.ledger.__version__", "0.1.9+local.7")
    assert gate(ledger("old.ledger", 4.0)) == 1
    assert "line 1, written by skdp 0.1.9+local.7, before 0.2.0" in capsys.readouterr().out
    for version in ("0.1.0+0.9", "0.1.9.5", "0.1rc.9"):  # no number of another part counts
        Path("other.ledger").write_text(json.dumps(line | {"skdp_version": version}))
        assert gate("other.ledger") == 1
    del line["skdp_version"]
    Path("none.ledger").write_text(json.dumps(line) + "\n")
    assert gate("none.ledger") == 1
    assert "an unknown version of skdp, before 0.2.0" in capsys.readouterr().out
    assert len(PrivacyLedger(path="none.ledger").entries) == 1
    Path("any.toml").write_text("[survey]\nepsilon = 3\ndelta = 1e-5\n")
    assert main(["--policy", "any.toml", "none.ledger"]) == 0


BOTH = "epsilon = 1\ndelta = 1e-5\n"
WRONG = {
    "epsilon = 1.0": "delta missing",
    "epsilon = '1'\ndelta = 1e-5": "epsilon='1'",
    "epsilon = nan\ndelta = 1e-5": "epsilon=nan",
    "epsilon = inf\ndelta = 1e-5": "epsilon=inf",
    "epsilon = true\ndelta = 1e-5": "epsilon=True",
    "epsilon = 1\ndelta = 1.0": "delta=1.0",
    f"{BOTH}ceiling = 2": "unknown keys ceiling",
    f"{BOTH}unit = 'person'": "unit='person'",
    f"{BOTH}seeded = 'allowed'": "seeded='allowed'",
    f"{BOTH}relations = 'zero_out'": "relations='zero_out'",
    f"{BOTH}relations = ['zero']": "'zero'",
    f"{BOTH}min_version = 'new'": "'new' is not a version",
    f"{BOTH}epsilon = 2": "verwrite",
}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        *((f"[survey]\n{keys}", said) for keys, said in WRONG.items()),
        ("epsilon = 1\n", "outside of the table"),
        ("", "no data set"),
        ("[other]\nepsilon = 1\ndelta = 1e-5\n", "about 'other'"),
    ],
)
def test_a_policy_that_is_not_understood_allows_nothing(folder, capsys, text, said):
    Path("policy.toml").write_text(text)
    assert gate(written("0.json", 40.0)) == 2
    assert said in capsys.readouterr().out
    with pytest.raises(ValueError, match=r"policy|version|verwrite"):
        PrivacyLedger(policy="policy.toml", data="survey")


def entry(**changes):
    whole = {"label": "x", "neighboring_relation": "zero_out", "event": {"type": "NoOpDpEvent"}}
    return json.dumps(whole | changes)


@pytest.mark.parametrize(
    "line",
    [
        '{"label": "x", "neighboring_relation": "zero_out"}',
        entry(neighboring_relation="zero"),
        entry(event={"type": "Free"}),
        entry(approved=True),
        entry().replace('{"label"', '{"label": "y", "label"'),
        entry(inferred="classes"),
        entry(inferred=[["classes"]]),
        entry(run=1),
        '["label"]',
        '{"label": ',
    ],
)
def test_a_damaged_ledger_cannot_be_checked(folder, line):
    book = ledger("study.ledger", 4.0)
    assert gate(book) == 0
    with open(book, "a") as file:
        file.write(line + "\n")
    assert gate(book) == 2


@pytest.mark.thorough
def test_runs_with_a_checkpoint_count_in_each_ledger(folder, capsys):
    """One run in two ledgers counts twice: that both mean one release, no file proves."""
    facts = {"classes": [0, 1], "n_samples": 4, "sampling_rate": 0.5, "max_iter": 2}
    noise = {"epsilon": None, "noise_multiplier": 9.0, "accountant": "rdp"}
    model = DPSGDClassifier(hidden_layer_sizes=(), checkpoint=folder / "run", **facts, **noise)
    with PrivacyLedger(path="1.ledger"), PrivacyLedger(path="2.ledger"):
        model.fit(X, Y)
    assert json.loads(Path("1.ledger").read_text())["run"]
    assert gate("1.ledger") == 0
    one = capsys.readouterr().out
    assert gate("1.ledger", "2.ledger") == 0
    both = capsys.readouterr().out
    assert "of 2 releases together" in both
    assert float(both.split()[3]) > float(one.split()[3])


def test_seeded_and_inferring_entries_of_a_ledger_are_refused(folder, capsys):
    for number, made in enumerate(({"nominal": True}, {"inferred": ["classes"]})):
        with PrivacyLedger(path=f"{number}.ledger"):
            charge(GaussianDpEvent(4.0), label="a fit", neighboring_relation="zero_out", **made)
        assert gate(f"{number}.ledger") == 1
    said = capsys.readouterr().out
    assert "seeded" in said
    assert "forbids: classes" in said


# --- in a ledger ----------------------------------------------------------------------------------

X, Y = [[-1.0], [-0.9], [0.9], [1.0]], [0, 0, 1, 1]
MODEL = DPVariationalLogisticRegression(epsilon=1.0, n_samples=4)


@pytest.mark.filterwarnings("ignore::skdp.PrivacyWarning")
def test_a_ledger_refuses_before_the_fit(folder):
    with PrivacyLedger(policy="policy.toml", data="survey") as book:
        MODEL.set_params(classes=[0, 1]).fit(X, Y)
        for change in ({"classes": None}, {"random_state": 0}, {"epsilon": 2.9}):
            model = DPVariationalLogisticRegression(
                **{"epsilon": 0.1, "n_samples": 4, "classes": [0, 1]} | change
            )
            with pytest.raises(BudgetExceededError, match=r"policy|ceiling"):
                model.fit(X, Y)
            assert not hasattr(model, "coef_")
        assert len(book.entries) == 1
        assert book.total(1e-5) == pytest.approx(1.0)


def test_a_ledger_has_the_ceiling_and_the_unit_of_its_policy(folder):
    book = PrivacyLedger(policy="policy.toml", data="patients")
    assert (book.epsilon, book.delta, book.neighboring_relation) == (1.0, 1e-6, "zero_out_group")
    with pytest.raises(ValueError, match="not among the relations"):
        PrivacyLedger(policy="policy.toml", data="survey", neighboring_relation="add_or_remove_one")
    with pytest.raises(ValueError, match="ceiling is the policy's"):
        PrivacyLedger(1.0, 1e-5, policy="policy.toml", data="survey")
    with pytest.raises(ValueError, match="before 9"):
        PrivacyLedger(policy=Policy(epsilon=1.0, delta=1e-5, min_version="9"))


def test_a_policy_goes_with_the_ledger_to_other_processes(folder):
    book = PrivacyLedger(policy="policy.toml", data="survey")
    with book:
        again = PrivacyLedger._from_description(json.loads(json.dumps(book._described())))
        assert again.policy == book.policy == policy_for("policy.toml", "survey")
        with pytest.raises(BudgetExceededError, match="ceiling"):
            again.spend(GaussianDpEvent(0.5), label="too much")


def test_the_only_policy_needs_no_name(folder):
    Path("policy.toml").write_text("[one]\nepsilon = 1\ndelta = 1e-5\n")
    assert policy_for("policy.toml", None) == read_policies("policy.toml")["one"]


@pytest.mark.filterwarnings("ignore::skdp.PrivacyWarning")
def test_what_is_inferred_is_in_the_file_of_a_ledger(folder):
    model = DPVariationalLogisticRegression(epsilon=1.0, n_samples=4)
    with PrivacyLedger(path="a.ledger") as book:
        model.fit(X, Y)
        assert book.entries[0].inferred == ("classes",)
    assert json.loads(Path("a.ledger").read_text())["inferred"] == ["classes"]
