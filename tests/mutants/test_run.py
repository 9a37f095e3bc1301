"""Verdicts are kept one by one and by code, and the code is known by its content."""

import json
import subprocess
import sys

import pytest
from mutants import run
from mutants.catalogue import SECTIONS

HERE, THERE = "a" * 16, "b" * 16


@pytest.fixture
def runner(monkeypatch, tmp_path):
    """Run `main` with options, on some code, every mutant killed; returns what was run."""
    file, without_a_bug = tmp_path / "verdicts.json", []

    def ran(code, *options, stop_at=None, without="SURVIVED (0)", ends_with=0):
        bugs = []
        without_a_bug.clear()

        def killed(code, tests, mutant=None):
            if mutant is None:
                without_a_bug.append(tests)
                return without
            if mutant.bug == stop_at:
                raise KeyboardInterrupt
            bugs.append(mutant.bug)
            return f"{tests[0]}::test[a parameter]"

        monkeypatch.setattr(run, "first_failure", killed)
        monkeypatch.setattr(run, "copy_of_the_code", lambda folder: None)
        monkeypatch.setattr(run, "code_hash", lambda: code)
        monkeypatch.setattr(sys, "argv", ["run.py", *options, "--json", str(file)])
        with pytest.raises(KeyboardInterrupt if stop_at else SystemExit) as end:
            run.main()
        assert stop_at or end.value.code == ends_with
        return bugs

    ran.file, ran.without_a_bug = file, without_a_bug
    return ran


def bugs(*sections):
    return [mutant.bug for name in sections for mutant in SECTIONS[name]]


def killers(section):
    tests = {f"{mutant.tests.split()[0]}::test" for mutant in SECTIONS[section]}
    return [[test] for test in sorted(tests)]


def verdicts(file):
    return json.loads(file.read_text())["verdicts"]


def test_a_run_goes_on_with_the_mutants_that_have_not_run(runner):
    assert runner(HERE, "--section", "network") == bugs("network")
    assert ["tests/engine/test_network_sum.py::test"] in runner.without_a_bug
    held = json.loads(runner.file.read_text())
    del held["verdicts"][bugs("network")[-1]]
    runner.file.write_text(json.dumps(held))
    assert runner(HERE, "--section", "network", "--section", "audit") == [
        bugs("network")[-1],
        *bugs("audit"),
    ]
    assert sorted(runner.without_a_bug) == killers("audit")
    assert runner(HERE) == bugs(*(name for name in SECTIONS if name not in ("network", "audit")))
    assert runner(HERE) == []


def test_a_run_that_is_stopped_within_a_section_goes_on_in_it(runner):
    third = bugs("network")[2]
    assert runner(HERE, "--section", "network", stop_at=third)[:2] == bugs("network")[:2]
    before = verdicts(runner.file)
    assert third not in before
    rest = [bug for bug in bugs("network") if bug not in before]
    assert before
    assert runner(HERE, "--section", "network") == rest
    assert verdicts(runner.file).keys() == set(bugs("network"))


def test_a_test_that_fails_without_a_mutant_ends_the_run_each_time(runner):
    for _ in range(2):
        runner(HERE, "--section", "audit", without="tests/test_x.py::test", ends_with=2)
        # The others may have begun meanwhile.
        assert runner.without_a_bug
        assert all(tests in killers("audit") for tests in runner.without_a_bug)
    assert runner(HERE, "--section", "audit") == []
    assert sorted(runner.without_a_bug) == killers("audit")


@pytest.mark.parametrize(("first", "then"), [(HERE, THERE), (HERE, f"{HERE}-dirty")])
def test_other_code_or_uncommitted_changes_run_again(runner, first, then):
    runner(first, "--section", "audit", "--section", "network")
    assert runner(then, "--section", "audit") == bugs("audit")
    held = json.loads(runner.file.read_text())
    assert held["code"] == then
    assert held["verdicts"].keys() == set(bugs("audit"))


@pytest.mark.parametrize("code", [f"{HERE}-dirty", "unknown"])
def test_what_ran_on_no_commit_always_runs_again(runner, code):
    runner(code, "--section", "audit")
    assert runner(code, "--section", "audit") == bugs("audit")


@pytest.fixture
def repository(monkeypatch, tmp_path):
    """A repository with a file of code and a page; commits what is written into it."""
    identity = ("-c", "user.name=x", "-c", "user.email=x@example.org")

    def git(*command):
        subprocess.run(["git", *identity, *command], cwd=tmp_path, check=True, capture_output=True)

    def commit(path, text):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
        git("add", ".")
        git("commit", "-m", text)

    git("init")
    commit("skdp/a.py", "x = 1")
    monkeypatch.setattr(run, "ROOT", tmp_path)
    return tmp_path, commit


def test_code_is_known_by_its_content(repository):
    _, commit = repository
    first = run.code_hash()
    assert run.is_clean(first)
    commit("docs/evidence.json", "{}")
    assert run.code_hash() == first
    commit("skdp/a.py", "x = 2")
    assert run.code_hash() != first
    commit("skdp/a.py", "x = 1")
    assert run.code_hash() == first


@pytest.mark.parametrize("path", ["skdp/a.py", "skdp/new.py"])
def test_uncommitted_code_is_marked(repository, path):
    root, _ = repository
    first = run.code_hash()
    (root / path).write_text("x = 3")
    assert run.code_hash() == f"{first}-dirty"
    assert not run.is_clean(run.code_hash())


def test_uncommitted_docs_are_not_code(repository):
    root, _ = repository
    first = run.code_hash()
    (root / "README.md").write_text("...")
    assert run.code_hash() == first


def test_without_a_repository_the_code_is_unknown(monkeypatch, tmp_path):
    monkeypatch.setattr(run, "ROOT", tmp_path)
    assert run.code_hash() == "unknown"
    assert not run.is_clean("unknown")
