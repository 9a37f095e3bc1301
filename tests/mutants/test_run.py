"""Verdicts are kept by section and commit, and the page of evidence says which commit."""

import json
import sys

import evidence
import pytest
from mutants import run
from mutants.catalogue import SECTIONS

HERE, THERE = "a" * 40, "b" * 40
PART = {"status": 0, "date": "today", "packages": {}}


def records(commit=HERE, **changed):
    """What a complete run leaves, with some sections on another commit."""
    return {
        name: {
            "commit": changed.get(name, commit),
            "passed": [],
            "verdicts": {mutant.bug: "tests/test_x.py::test" for mutant in section},
        }
        for name, section in SECTIONS.items()
    }


def page(part):
    return "\n".join(evidence.page({"mutants": PART | part}))


@pytest.fixture
def runner(monkeypatch, tmp_path):
    """Run `main` with options, on a commit, every mutant killed; returns what was run."""
    file, without_a_bug = tmp_path / "verdicts.json", []

    def ran(commit, *options):
        bugs = []
        without_a_bug.clear()

        def killed(code, tests, mutant=None):
            if mutant is None:
                without_a_bug.append(tests)
                return "SURVIVED (0)"
            bugs.append(mutant.bug)
            return "tests/test_x.py::test"

        monkeypatch.setattr(run, "first_failure", killed)
        monkeypatch.setattr(run, "copy_of_the_code", lambda folder: None)
        monkeypatch.setattr(run, "checked_out", lambda: commit)
        monkeypatch.setattr(sys, "argv", ["run.py", *options, "--json", str(file)])
        with pytest.raises(SystemExit) as end:
            run.main()
        assert not end.value.code
        return bugs

    ran.file, ran.without_a_bug = file, without_a_bug
    return ran


def bugs(*sections):
    return [mutant.bug for name in sections for mutant in SECTIONS[name]]


def test_a_run_goes_on_where_one_on_the_same_commit_stopped(runner):
    assert runner(HERE, "--section", "network") == bugs("network")
    assert "tests/engine/test_network_sum.py" in runner.without_a_bug
    stopped = json.loads(runner.file.read_text())
    del stopped["network"]["verdicts"][bugs("network")[-1]]
    runner.file.write_text(json.dumps(stopped))
    assert runner(HERE, "--section", "network", "--section", "audit") == [
        bugs("network")[-1],
        *bugs("audit"),
    ]
    assert runner.without_a_bug == ["tests/audit/test_confidence.py"]
    assert runner(HERE) == bugs(*(name for name in SECTIONS if name not in ("network", "audit")))
    assert runner(HERE) == []
    assert run.provenance(run.kept(runner.file)) == f"All sections ran on commit {HERE}."


@pytest.mark.parametrize(("first", "then"), [(HERE, THERE), (HERE, f"{HERE}-dirty")])
def test_another_commit_or_uncommitted_changes_run_again(runner, first, then):
    runner(first, "--section", "audit")
    assert runner(then, "--section", "audit") == bugs("audit")
    assert run.kept(runner.file)["audit"]["commit"] == then


@pytest.mark.parametrize("commit", [f"{HERE}-dirty", "unknown"])
def test_what_ran_on_no_commit_always_runs_again(runner, commit):
    runner(commit, "--section", "audit")
    assert runner(commit, "--section", "audit") == bugs("audit")


def test_the_page_names_the_commit_of_all_sections():
    assert f"All sections ran on commit {HERE}." in page({"sections": records()})


@pytest.mark.parametrize(
    ("sections", "told"),
    [
        (records(audit=THERE), f"audit 1 of 1 on {THERE}"),
        (records(f"{HERE}-dirty"), f"audit 1 of 1 on {HERE}-dirty"),
        ({"audit": records()["audit"]}, "engine not at all"),
        (
            records() | {"audit": {"commit": HERE, "passed": [], "verdicts": {}}},
            f"audit 0 of 1 on {HERE}",
        ),
    ],
    ids=["two commits", "uncommitted changes", "sections missing", "mutants missing"],
)
def test_the_page_says_where_sections_differ(sections, told):
    text = page({"sections": sections})
    assert "All sections ran" not in text
    assert told in text


def test_figures_without_a_commit_can_be_read():
    text = page({"verdicts": {bugs("audit")[0]: "tests/test_x.py::test"}})
    assert "**1 of 1 are killed.**" in text
    assert "Their commit was not recorded." in text
