"""The command that writes docs/evidence.md: what it runs, what it keeps when it is stopped."""

import importlib.util
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import evidence
import pytest

ROOT = Path(__file__).resolve().parents[1]
HERE, THERE = "a" * 16, "b" * 16
SUITE = {"status": 0, "minutes": 1.0, "layers": {}}

# Stand-ins for two parts; a step says when it starts, and one of them may never end.
STAND_IN = """
import signal, sys, time
from pathlib import Path
import evidence

folder, endless = Path(sys.argv[1]), sys.argv[2]
evidence.BUILD = folder / "build"
evidence.FIGURES, evidence.PAGE = folder / "evidence.json", folder / "evidence.md"
evidence.code_hash = lambda: "a" * 16

def measure(name):
    with (folder / "started").open("a") as file:
        file.write(name + " ")
    if name == endless:
        time.sleep(60)
    return {"status": 0, "minutes": 1.0, "layers": {}}

def suite(jobs, file):
    return measure("suite")

def slow(jobs, file):
    return {"files": evidence.step_by_step(file, ["one", "two", "three"], measure)}

# A process that was started in the background may ignore it.
signal.signal(signal.SIGINT, signal.default_int_handler)
evidence.PARTS = {"suite": suite, "slow": slow}
sys.argv = ["evidence.py"]
evidence.main()
"""


def wait_until(condition):
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def stand_in(folder, endless=""):
    folder.mkdir(exist_ok=True)
    command = [sys.executable, "-c", STAND_IN, str(folder), endless]
    environment = {"PYTHONPATH": f"{ROOT / 'tests'}"}
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_stopped_and_started_again_it_ends_with_the_same_page(tmp_path, ending):
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    assert stand_in(whole).wait() == 0
    started = stopped / "started"
    with stand_in(stopped, endless="two") as run:
        wait_until(lambda: started.exists() and started.read_text() == "suite one two ")
        run.send_signal(ending)
    assert run.returncode != 0
    assert "slow" not in json.loads((stopped / "evidence.json").read_text())
    assert stand_in(stopped).wait() == 0
    assert started.read_text() == "suite one two " + "two three "
    for name in ("evidence.json", "evidence.md"):
        assert (stopped / name).read_text() == (whole / name).read_text()
    assert stand_in(stopped).wait() == 0  # now there is nothing left to run
    assert started.read_text() == "suite one two " + "two three "


@pytest.fixture
def command(monkeypatch, tmp_path):
    """Run parts by stand-ins on some code; gives what has run, and the page."""
    ran = []
    state = SimpleNamespace(
        code=HERE, parts={}, ran=ran, page=tmp_path / "evidence.md", found=tmp_path / "found.json"
    )

    def part(name):
        def run(jobs, file):
            ran.append(name)
            return {"reports": {}, "versions": {}} if name == "opacus" else SUITE

        return run

    monkeypatch.setattr(evidence, "BUILD", tmp_path / "build")
    monkeypatch.setattr(evidence, "FIGURES", state.found)
    monkeypatch.setattr(evidence, "PAGE", state.page)
    monkeypatch.setattr(evidence, "PARTS", {name: part(name) for name in ("suite", "opacus")})
    monkeypatch.setattr(evidence, "NEEDED", {"opacus": ("Opacus", lambda: state.installed)})
    monkeypatch.setattr(evidence, "code_hash", lambda: state.code)
    state.installed = True
    return state


def up_to_date(command, *names, **options):
    command.ran.clear()
    names = names or ("suite", "opacus")
    assert evidence.bring_up_to_date(names, 1, command.code, **options) == []
    return list(command.ran)


def test_what_is_of_the_present_code_is_not_run(command):
    assert up_to_date(command) == ["suite", "opacus"]
    assert up_to_date(command) == []
    assert "All figures are of the same code" in command.page.read_text()
    assert up_to_date(command, "suite", again=True) == ["suite"]
    command.code = THERE
    assert up_to_date(command) == ["suite", "opacus"]


def test_the_page_says_what_is_of_other_code(command):
    up_to_date(command)
    command.code = THERE
    up_to_date(command, "suite")
    page = command.page.read_text()
    assert "**Not all figures are of one committed code.**" in page
    assert "Of other code: opacus." in page
    assert page.count("**Not the present code.**") == 1


def test_without_its_packages_a_part_keeps_its_figures(command):
    up_to_date(command)
    command.code, command.installed = THERE, False
    assert up_to_date(command) == ["suite"]
    assert json.loads(command.found.read_text())["opacus"]["code"] == HERE
    assert "Of other code: opacus." in command.page.read_text()


def test_uncommitted_changes_are_marked_and_run_again(command):
    command.code = f"{HERE}-dirty"
    assert up_to_date(command, "suite") == up_to_date(command, "suite") == ["suite"]
    assert "**There were uncommitted changes.**" in command.page.read_text()


def test_nothing_is_kept_of_a_part_during_which_the_code_changed(command, monkeypatch):
    def changing(jobs, file):
        command.code = THERE
        return SUITE

    monkeypatch.setitem(evidence.PARTS, "suite", changing)
    with pytest.raises(SystemExit, match="code changed"):
        evidence.bring_up_to_date(["suite"], 1, HERE)
    assert evidence.measured() == {}
    assert not list(evidence.BUILD.glob("*/*.json"))


def test_a_part_that_does_not_finish_leaves_the_others_to_run(command, monkeypatch):
    def broken(jobs, file):
        raise evidence.UnfinishedError("pytest ended with 3")

    monkeypatch.setitem(evidence.PARTS, "suite", broken)
    assert evidence.bring_up_to_date(["suite", "opacus"], 1, HERE) == ["suite"]
    assert command.ran == ["opacus"]
    assert "Not run: suite." in command.page.read_text()


@pytest.mark.parametrize("status", [2, 3, 4, -9])
def test_tests_that_did_not_run_to_their_end_have_no_figures(monkeypatch, status):
    monkeypatch.setattr(evidence, "status_of", lambda *command: status)
    with pytest.raises(evidence.UnfinishedError, match=str(status)):
        evidence.tests(1, "slow")


@pytest.mark.parametrize(
    ("status", "missing", "finished"), [(0, 0, True), (1, 0, True), (2, 0, False), (0, 1, False)]
)
def test_mutants_have_figures_when_all_have_run(monkeypatch, tmp_path, status, missing, finished):
    bugs = [mutant.bug for section in evidence.SECTIONS.values() for mutant in section]
    file = tmp_path / "mutants.json"
    # They are kept as they end, and stand on the page as they are in the catalogue.
    evidence.write(file, {"verdicts": dict.fromkeys(bugs[::-1][missing:], "tests/test_x.py::t")})
    monkeypatch.setattr(evidence, "status_of", lambda *command: status)
    if finished:
        assert list(evidence.mutants(1, file)["verdicts"]) == bugs
    else:
        with pytest.raises(evidence.UnfinishedError):
            evidence.mutants(1, file)


def test_only_tests_that_pass_state_figures():
    report = """<testsuite>
      <testcase classname="tests.laws.test_noise" time="1.5">
        <properties><property name="figure" value="found 3 of 3"/></properties>
      </testcase>
      <testcase classname="tests.laws.test_noise" time="0.5">
        <properties><property name="figure" value="found 0 of 3"/></properties><failure/>
      </testcase>
      <testcase classname="tests.bugs.test_published_bugs"><skipped/></testcase>
    </testsuite>"""
    layers = evidence.by_layer(list(ElementTree.fromstring(report)))
    assert layers["Laws of noise and sampling"] == {
        "passed": 1, "failed": 1, "skipped": 0, "seconds": 2.0, "figures": ["found 3 of 3"]
    }  # fmt: skip
    assert layers["Published bugs"]["skipped"] == 1


def test_the_figures_of_the_repository_make_a_page_with_all_parts():
    figures = json.loads((ROOT / "docs" / "evidence.json").read_text())
    text = "\n".join(evidence.page(figures, HERE))
    assert figures.keys() == evidence.PARTS.keys()
    assert all(bug in text for bug in figures["mutants"]["verdicts"])
    assert all(case in text for case in figures["audits"]["reports"])
    assert f"Of other code: {', '.join(evidence.PARTS)}." in text


def test_what_a_command_has_started_ends_with_it(tmp_path):
    mark = tmp_path / "alive"
    loop = f"while true; do echo x >> {mark}; sleep 0.02; done"
    with evidence.started(["sh", "-c", f"({loop}) & wait"]):
        wait_until(mark.exists)
    time.sleep(0.1)
    size = mark.stat().st_size
    time.sleep(0.2)
    assert mark.stat().st_size == size


def test_an_audit_goes_on_with_the_cases_that_have_not_run(monkeypatch, tmp_path):
    spec = importlib.util.spec_from_file_location("audit", ROOT / "benchmarks" / "audit.py")
    audit = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(audit)
    ran = []

    def report(estimator, *, n_fits, n_jobs, confidence):
        if estimator == stop_at:
            raise KeyboardInterrupt
        ran.append((estimator, confidence))
        wrong = estimator == "wrong"
        return SimpleNamespace(
            epsilon=1.0, epsilon_lower_bound=0.5, tightness=0.5, frame="gdp", seconds=0.0,
            verdict="", violation=wrong, to_dict=lambda: {"violation": wrong},
        )  # fmt: skip

    file, names = tmp_path / "audits.json", ("right", "wrong", "another")
    monkeypatch.setattr("skdp.audit.audit_estimator", report)
    monkeypatch.setattr(audit, "variational", lambda: [(name, name, {}) for name in names])
    for group in ("releases", "networks", "samplers", "others", "persons", "workflows", "parts"):
        monkeypatch.setattr(audit, group, list)
    monkeypatch.setattr(sys, "argv", ["audit.py", "--json", str(file)])
    stop_at = "another"
    with pytest.raises(KeyboardInterrupt):
        audit.main()
    assert ran == [("right", 0.95), ("wrong", 0.95), ("wrong", 0.999)]
    held = json.loads(file.read_text())
    del held["wrong, again"]
    file.write_text(json.dumps(held))
    stop_at, ran[:] = None, []
    audit.main()
    assert ran == [("wrong", 0.999), ("another", 0.95)]
    assert set(json.loads(file.read_text())) == {*names, "wrong, again"}


FILES = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("tests/**/test_*.py"))
PREFIXES = [prefix for _, _, prefixes in evidence.LAYERS for prefix in prefixes]


@pytest.mark.parametrize("path", FILES)
def test_each_file_of_tests_has_a_layer(path):
    assert path.startswith(tuple(PREFIXES)), "add it to LAYERS of tests/evidence.py"


@pytest.mark.parametrize("prefix", PREFIXES)
def test_each_layer_names_files_that_exist(prefix):
    assert prefix == "skdp" or any(path.startswith(prefix) for path in FILES)


@pytest.mark.parametrize(
    ("module", "layer"),
    [
        ("tests.engine.test_gram.TestSums", "Sums and sensitivity"),
        ("tests.engine.test_noise", "Laws of noise and sampling"),
        ("tests.estimators.test_ops", "Posterior samplers and approximations"),
        ("tests.estimators.test_sgd", "Everything else"),
        ("tests.privacy.test_crashes", "Robustness"),
        ("skdp.privacy.ledger", "Everything else"),
    ],
)
def test_the_longest_prefix_decides(module, layer):
    assert evidence.layer_of(module) == layer
