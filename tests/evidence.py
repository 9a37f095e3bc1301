"""The evidence for skdp's promises: run the tests, the audits, the mutants and the fuzzers.

    python tests/evidence.py [PART ...] [--jobs 2] [--again]

Parts, in this order: suite (all tests but the slow ones), mutants, audits (skdp's estimators), slow
(the tests marked slow), fuzz (needs atheris), opacus (needs Opacus), diffprivlib (needs
DIFFPRIVLIB_PYTHON, the interpreter of an environment that has it). Without a name, each part whose
figures are not of the present code: about five hours on 2 cores. The code is known by
a hash of what is committed, so that committing figures or docs leaves them valid; what ran with
uncommitted changes is marked and always runs again. A part that needs what is not installed keeps
the figures it has.

Stopped and started again, it goes on: with the next mutant, audited case, file of slow tests or
run of the fuzzers. Until a part is complete what has run of it lies under build/evidence/; then its
figures go to docs/evidence.json, and the page docs/evidence.md is written anew from all of them.
`--again` runs parts whose figures are of the present code; `page` writes the page and runs nothing.
"""

import argparse
import importlib.util
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack, contextmanager, suppress
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from xml.etree import ElementTree

from mutants.catalogue import SECTIONS
from mutants.run import code_hash, is_clean, write

ROOT = Path(__file__).parents[1]
FIGURES, PAGE = ROOT / "docs" / "evidence.json", ROOT / "docs" / "evidence.md"
BUILD = ROOT / "build" / "evidence"
FITS, OPACUS_FITS = 2000, 1000
FUZZED, FUZZ_RUNS, FUZZ_SECONDS = ("accounting", "inputs"), 12, 300

# Layer, what its tests assert, the files of tests (prefixes; the longest that fits).
LAYERS = [
    ("Neighbours by replay",
     "With the releases held fixed, fitted attributes, pickles, predictions, warnings and errors"
     " do not depend on the data: pairs of data sets with a record zeroed, added, removed,"
     " replaced, with outliers of 1e300, NaN, a new class, duplicates. The ledger shows what ran.",
     ("tests/replay",)),
    ("Sums and sensitivity",
     "The fast clipped sums equal a slow, obvious one; no record moves a sum by more than the"
     " declared sensitivity, whatever its gradient; sums add over parts and do not depend on how"
     " they are cut up.",
     ("tests/engine/test_checks", "tests/engine/test_coded_rows", "tests/engine/test_sparse_rows",
     "tests/engine/test_examples", "tests/engine/test_gpu_script", "tests/engine/test_gram",
     "tests/engine/test_grid",
     "tests/engine/test_layers", "tests/engine/test_linear_sums", "tests/engine/test_loop",
     "tests/engine/test_magnitude_sums", "tests/engine/test_persons", "tests/engine/test_precision",
     "tests/engine/test_network_sum", "tests/engine/test_perceptron_sum",
     "tests/engine/test_records", "tests/engine/test_recurrent", "tests/engine/test_rows",
     "tests/engine/test_zoo", "tests/models", "tests/statistics/test_sensitivity")),
    ("Rows in chunks",
     "Every estimator on rows in chunks makes the sums of the fit in memory, secure ones to the"
     " bit, from batches of the same rows, or is refused by name before the charge. Chunks that"
     " change, fail or disagree end the fit, no partial sum is released, and no word says what was"
     " in them.",
     ("tests/chunks",)),
    ("Laws of noise and sampling",
     "The noise of each step has the declared size, is normal (discrete: exactly the discrete"
     " Gaussian), and is shared by no two steps, fits, folds or forks; batches are Poisson;"
     " releases lie on a public grid. Coins, discrete noise, batches and quantiles have the laws"
     " that are stated: walked branch by branch, in fractions, at small scales.",
     ("tests/contracts/test_releases", "tests/engine/test_discrete_laplace",
     "tests/engine/test_discrete_gaussian", "tests/engine/test_lattice_gaussian",
     "tests/engine/test_exact_laws", "tests/engine/test_noise", "tests/engine/test_sampling",
     "tests/engine/test_updates", "tests/laws", "tests/mechanisms", "tests/test_grid",
     "tests/test_random")),
    ("One-run canaries",
     "1000 coin-flip canaries in one run of a mechanism: wrong mechanisms are found, right ones"
     " are not accused, and the bound proved is above zero.",
     ("tests/audit/test_mechanism",)),
    ("Black-box audits",
     "Thousands of public fits with and without a record prove no more than the claim, and most of"
     " it; wrong estimators are found. The figures of each estimator are in a table below.",
     ("tests/audit/test_estimator",)),
    ("Posterior samplers and approximations",
     "Draws have the law of the tempered posterior (quadrature); exact densities, propagated on a"
     " grid, never violate a last-iterate certificate, and attain it where it is tight;"
     " noise-aware posteriors have their limits and their coverage.",
     ("tests/algorithms", "tests/estimators/test_ops", "tests/evaluation/test_estimates",
     "tests/models/test_averaged", "tests/privacy/test_hidden_state",
     "tests/privacy/test_posterior_samples")),
    ("The auditors are audited",
     "On laws whose ε is known, audits at 95 % confidence raise no more than 1.2 times as many"
     " false alarms as they state; an auditor that picks its threshold afterwards fails the same"
     " test.",
     ("tests/audit/test_confidence",)),
    ("Accounting",
     "Privacy loss distributions, Rényi bounds, closed forms, 40-digit arithmetic and published"
     " anchors agree; monotone; no bound falls below a cheaper lower bound; garbage raises; a plan"
     " is a value of public facts.",
     ("tests/hardening/test_properties", "tests/privacy", "tests/test_plan")),
    ("Workflows and search",
     "Each fit in folds, searches, pipelines, threads, workers, forks and a Dask cluster is"
     " counted once; budgets that are split compose to the target; trials have their law.",
     ("tests/evaluation/test_release", "tests/model_selection", "tests/preprocessing")),
    ("Contracts of estimators",
     "scikit-learn's `check_estimator` and skdp's own checks over every public estimator, none"
     " excused without a reason.",
     ("tests/contracts/test_own_estimator", "tests/contracts/test_persons",
     "tests/contracts/test_private_estimators", "tests/contracts/test_routing",
     "tests/contracts/test_scikit_learn", "tests/contracts/test_scores",
     "tests/contracts/test_statements")),
    ("Reports proved again",
     "What each way of each public estimator states is proved by `skdp-verify`, by its own"
     " arithmetic; doctored reports, policies and ledgers are never a yes.",
     ("tests/contracts/test_verified", "tests/privacy/test_policy", "tests/privacy/test_verify")),
    ("Deployment",
     "What skops, MLflow and ONNX write predicts as it did and keeps its statement; what skops"
     " trusts is a list that is tested for each public class.",
     ("tests/deployment",)),
    ("Bad input",
     "Each kind of bad or odd input and parameter into each public estimator: a clear error that"
     " spends no budget and quotes no data, or a valid release.",
     ("tests/contracts/test_bad", "tests/contracts/test_declared", "tests/contracts/test_extremes",
     "tests/contracts/test_refusals", "tests/contracts/test_sizes", "tests/contracts/test_wrong",
     "tests/estimators/test_bad_input", "tests/fuzz")),
    ("Robustness",
     "kill −9, interrupts, memory that runs out, full disks, 1000 forked children, races on one"
     " ledger file, 24 fits that leave no memory behind.",
     ("tests/hardening/test_robustness", "tests/privacy/test_crashes", "tests/test_object_mac")),
    ("Published bugs",
     "Bugs of the field, re-enacted: the test finds the bug, and skdp does not have it.",
     ("tests/bugs",)),
    ("Everything else",
     "Estimators, statistics and their intervals, metrics, displays, doctests, snippets of the"
     " docs.",
     ("skdp", "tests/displays", "tests/estimators", "tests/evaluation/test_reports",
     "tests/metrics", "tests/mutants", "tests/statistics", "tests/test_benchmarks_page",
     "tests/test_calibration", "tests/test_compatibility", "tests/test_conformal",
     "tests/test_docs", "tests/test_evidence", "tests/test_house", "tests/test_inspection",
     "tests/test_notebooks", "tests/test_package")),
]  # fmt: skip


# --- parts ----------------------------------------------------------------------------------------


class UnfinishedError(Exception):
    """A part that did not run to its end; what it has kept so far stays."""


@contextmanager
def started(command, **options):
    """Run a command beside the block; with the block ends what the command has started."""
    child = subprocess.Popen(list(map(str, command)), start_new_session=True, **options)
    try:
        yield child
    finally:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def status_of(*command):
    """Exit status of a Python script or module, run in the root."""
    with started([sys.executable, *command], cwd=ROOT) as child:
        return child.wait()


def step_by_step(file, names, measure):
    """What is measured for each name, kept in the file as it comes, and not measured again."""
    found = json.loads(file.read_text())
    for name in names:
        if name not in found:
            found[name] = measure(name)
            write(file, found)
    return {name: found[name] for name in names}


def tests(jobs, marker, *paths):
    """Run pytest; count and time the tests of each layer, and collect the figures they state."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "junit.xml"
        start = time.perf_counter()
        options = ("-m", marker, "-n", jobs, "-o", "junit_family=xunit1", f"--junitxml={report}")
        status = status_of("-m", "pytest", *options, *paths)
        minutes = (time.perf_counter() - start) / 60
        if status not in (0, 1):
            raise UnfinishedError(f"pytest ended with {status}")
        cases = list(ElementTree.parse(report).iter("testcase"))
    return {"status": status, "minutes": minutes, "layers": by_layer(cases)}


def by_layer(cases):
    """Counts, seconds and figures of the layers that the cases of a JUnit report belong to."""
    layers, figures = {}, {}
    for case in cases:
        layer = layer_of(case.get("classname", ""))
        values = layers.setdefault(layer, {"passed": 0, "failed": 0, "skipped": 0, "seconds": 0.0})
        kinds = {child.tag for child in case}
        result = (
            "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else ""
        )
        values[result or "passed"] += 1
        values["seconds"] += float(case.get("time", 0))
        if not result:  # what a test says of itself and then fails to show is no figure
            stated = (p.get("value") for p in case.iter("property") if p.get("name") == "figure")
            figures.setdefault(layer, Counter()).update(stated)
    for layer, counts in figures.items():
        layers[layer]["figures"] = [f"{text}: {n}" if n > 1 else text for text, n in counts.items()]
    return layers


def layer_of(class_name):
    """Name of the layer whose prefix fits best the dotted name of a test's module."""
    path = class_name.replace(".", "/")
    path = path if path.startswith(("tests/", "skdp")) else f"tests/{path}"
    fitting = [
        (len(p), title) for title, _, prefixes in LAYERS for p in prefixes if path.startswith(p)
    ]
    return max(fitting, default=(0, "Everything else"))[1]


def suite(jobs, file):
    """All tests but the slow ones: the quick suite and what CI runs after it."""
    return tests(jobs, "not slow")


def slow(jobs, file):
    """The tests marked slow, file by file."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-m", "slow"]
    run = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    if run.returncode:
        raise UnfinishedError(f"the slow tests could not be collected:\n{run.stdout[-4000:]}")
    paths = sorted({line.split("::")[0] for line in run.stdout.splitlines() if "::" in line})
    return {"files": step_by_step(file, paths, lambda path: tests(jobs, "slow", path))}


def mutants(jobs, file):
    """Every seeded bug, and the test that kills it."""
    status = status_of("tests/mutants/run.py", "--jobs", jobs, "--json", file)
    found = json.loads(file.read_text()).get("verdicts", {})
    bugs = [mutant.bug for section in SECTIONS.values() for mutant in section]
    if status not in (0, 1) or not found.keys() >= set(bugs):  # 1: a mutant survived
        raise UnfinishedError(f"the mutants ended with {status}")
    return {"verdicts": {bug: found[bug] for bug in bugs}}


def audits(jobs, file):
    """skdp's estimators, by the script that also audits the peers."""
    return {"reports": audit(file, "--fits", FITS, "--jobs", jobs)}


def opacus(jobs, file):
    """Opacus, in this environment."""
    found = audit(file, "--peers", "--fits", OPACUS_FITS, "--jobs", jobs)
    return {"reports": found, "versions": {"opacus": version("opacus")}}


def diffprivlib(jobs, file):
    """Fit diffprivlib in its own environment, judge it in this one."""
    other, samples = os.environ["DIFFPRIVLIB_PYTHON"], file.with_suffix(".npz")
    fit = [other, ROOT / "benchmarks/audit.py", "--sample-diffprivlib", samples, "--fits", FITS]
    with started(fit) as child:
        if child.wait():
            raise UnfinishedError(f"diffprivlib could not be fitted (exit {child.returncode})")
    names = "import diffprivlib, sklearn; print(diffprivlib.__version__, sklearn.__version__)"
    said = subprocess.run([other, "-c", names], check=True, capture_output=True, text=True).stdout
    versions = dict(zip(("diffprivlib", "its scikit-learn"), said.split(), strict=True))
    return {"reports": audit(file, "--judge", samples), "versions": versions}


def audit(file, *options):
    """Reports of `benchmarks/audit.py`, which keeps each in the file."""
    if status := status_of("benchmarks/audit.py", *options, "--json", file):
        raise UnfinishedError(f"the audits ended with {status}")
    return json.loads(file.read_text())


def fuzz(jobs, file):
    """Both targets side by side, in short runs on the corpora that the runs before have left."""
    if not json.loads(file.read_text()):
        for name in FUZZED:
            shutil.rmtree(file.parent / f"fuzz-{name}", ignore_errors=True)
    names = [f"run {i}" for i in range(1, FUZZ_RUNS + 1)]
    runs = step_by_step(file, names, lambda _: fuzz_once(file.parent)).values()
    return {"targets": {name: together([run[name] for run in runs]) for name in FUZZED}}


def fuzz_once(folder):
    """One run of each target; corpora, and what broke a target, lie in the folder."""
    with ExitStack() as running:
        ends = {name: running.enter_context(fuzzing(name, folder)) for name in FUZZED}
        return {name: end() for name, end in ends.items()}


def together(runs):
    """Figures of the runs of a target: sums, and the last coverage."""
    return {
        "cpu_seconds": sum(run["cpu_seconds"] for run in runs),
        "inputs": sum(run["inputs"] for run in runs),
        "covered": runs[-1]["covered"],
    }


@contextmanager
def fuzzing(name, folder):
    """Start a target; gives what waits for its end."""
    corpus = folder / f"fuzz-{name}" / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    options = (f"-max_total_time={FUZZ_SECONDS}", "-timeout=60", "-print_final_stats=1")
    options += ("-rss_limit_mb=8192",)  # of the largest: a privacy loss may take 2 GB, for a while
    said = corpus.parent / "said.txt"

    def end():
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        text = said.read_text(errors="replace")
        if child.returncode:  # a finding: it is mended first, and then this run is made again
            raise UnfinishedError(f"{text[-4000:]}\n{name}: the input is in {corpus.parent}")
        covered = re.findall(r"cov: (\d+)", text)
        executed = re.search(r"number_of_executed_units:\s*(\d+)", text)
        return {
            "cpu_seconds": usage.ru_utime + usage.ru_stime,
            "inputs": int(executed[1]) if executed else 0,
            "covered": int(covered[-1]) if covered else 0,
        }

    command = [sys.executable, ROOT / "tests" / "fuzz" / "run.py", name, corpus, *options]
    with said.open("w") as log, started(command, cwd=corpus.parent, stderr=log) as child:
        yield end


PARTS = {f.__name__: f for f in (suite, mutants, audits, slow, fuzz, opacus, diffprivlib)}
NEEDED = {
    "fuzz": ("atheris", lambda: importlib.util.find_spec("atheris")),
    "opacus": ("Opacus", lambda: importlib.util.find_spec("opacus")),
    "diffprivlib": ("DIFFPRIVLIB_PYTHON", lambda: os.environ.get("DIFFPRIVLIB_PYTHON")),
}


# --- page -----------------------------------------------------------------------------------------


def packages():
    """Versions that the figures were measured with."""
    names = ("skdp", "torch", "scikit-learn", "numpy", "dp-accounting")
    found = {"Python": platform.python_version()}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def table(head, rows):
    """A table in Markdown."""
    cells = [[str(c).replace("|", "\\|") for c in row] for row in rows]
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    yield from ("| " + " | ".join(row) + " |" for row in cells)


def when(part, code):
    """Date, commit and versions of a part, and whether its code is the present one."""
    versions = ", ".join(f"{name} {v}" for name, v in part["packages"].items())
    if part["code"] == "unknown":
        return (
            f"Run on {part['date']} with {versions}. **The code of these figures was not recorded;"
            " they may be put together from several runs.**"
        )
    of = f"commit {part['commit'][:12]} (code {part['code']})"
    text = f"Run on {part['date']} on {of} with {versions}."
    if not is_clean(part["code"]):
        text += " **There were uncommitted changes.**"
    return text if part["code"] == code else f"{text} **Not the present code.**"


def origin(parts, code):
    """Say whether all figures are of the present code, and if not, which are not."""
    others = [name for name in PARTS if name in parts and parts[name]["code"] != code]
    missing = [name for name in PARTS if name not in parts]
    yield "*Code* is a hash of what is committed under skdp, tests and benchmarks, and of the files"
    yield "pyproject.toml and constraints.txt."
    if is_clean(code) and not others and not missing:
        yield f"All figures are of the same code, {code}."
        return
    yield f"**Not all figures are of one committed code.** This page was written on code {code}."
    if others:
        yield f"Of other code: {', '.join(others)}."
    if missing:
        yield f"Not run: {', '.join(missing)}."


def ended(part):
    """How a run ended."""
    return "all passed" if part["status"] == 0 else f"**not all passed** (exit {part['status']})"


def layers_table(runs):
    """The layers of the suite, with the figures that their tests stated."""

    def count(layer, result):
        return sum(run["layers"][layer][result] for run in runs if layer in run["layers"])

    rows = []
    for title, statement, _ in LAYERS:
        figures = [f for run in runs for f in run["layers"].get(title, {}).get("figures", [])]
        bad = count(title, "failed")
        rows.append(
            (
                f"**{title}.** {statement}",
                "; ".join(figures) or "–",
                f"{count(title, 'passed')}" + (f" (**{bad} failed**)" if bad else ""),
                count(title, "skipped"),
                f"{count(title, 'seconds'):.0f}",
            )
        )
    return table(("what is asserted", "figures", "passed", "skipped", "s"), rows)


def audit_table(reports):
    """One line per audit."""
    rows = [
        (
            name, f"{r['epsilon']:.2f}", f"{r['delta']:g}", f"{r['epsilon_lower_bound']:.2f}",
            f"{r['epsilon_lower_bound'] / r['epsilon']:.2f}",
            {"gdp": "Gaussian", "dp": "any"}[r["frame"]], r["n_with"],
            "**violation**" if r["epsilon_lower_bound"] > r["epsilon"] else "none",
        )
        for name, r in reports.items()
    ]  # fmt: skip
    head = ("audited", "ε claimed", "δ", "ε proved", "ratio", "against")
    head += ("counted per arm", "violation")
    return table(head, rows)


INTRODUCTION = """\
This page is written by `python tests/evidence.py` from what it ran. Each figure is one that a test
stated and then passed, or that an audit counted. Times are on 2 cores without a GPU. What the
promises are is in [promises](promises.md)."""

AUDITS = """\
Lower bounds on ε at 95 % confidence from public fits with and without one record, on the worst data
and settings that are known for each (`benchmarks/audit.py`). A bound *against* the Gaussian
mechanism takes the claim's shape as given and is much tighter than one against any (ε, δ). Lines
that say "releases" are not black-box audits: they look at all noisy sums of a fit, through skdp's
record of them, and to save time omit the post-processing of the last noise-aware release. A tenth
of the fits choose direction and threshold and are not counted. Of twenty correct estimators one may
be accused at 95 %; an estimator that is accused is audited again, with new fits, at 99.9 %."""

FUZZING = """\
Coverage-guided (atheris) from an empty corpus: the accounting and ledger files, and the input
layer. Each target starts anew every five minutes, on the corpus that it has found: atheris 3.0
never frees the result of a comparison, and of large arrays that took 8 GB in nine minutes."""


def section(title, text):
    """Lines of a heading and a paragraph."""
    return [f"## {title}", "", *text.splitlines()]


def suite_section(parts, code):
    """The tests, by layer."""
    run, more = parts["suite"], parts.get("slow")
    yield from section("The test suite", "All tests but the slow ones:")
    minutes = f"{run['minutes']:.1f} minutes"
    yield f"`python -m pytest -n 2 -m 'not slow'`, {minutes}, {ended(run)}. {when(run, code)}"
    files = more["files"] if more else {}
    if more:
        minutes = sum(found["minutes"] for found in files.values())
        failed = [path for path, found in files.items() if found["status"]]
        how = f"**failures in {', '.join(failed)}**" if failed else "all passed"
        yield f"The slow ones: `python -m pytest -n 2 -m slow` with each of {', '.join(files)};"
        yield f"{minutes:.1f} minutes, {how}. {when(more, code)}"
    yield "The first column says what the tests of a layer assert; seconds are those of all of"
    yield "its tests together."
    yield ""
    yield from layers_table([run, *files.values()])
    yield ""


def mutants_section(run, code):
    """The seeded bugs."""
    verdicts = run["verdicts"]
    killed = {bug for bug, test in verdicts.items() if test.startswith("tests/")}
    text = "The tests are tested: a known privacy bug is put into the code, one at a time, and a"
    yield from section("Seeded bugs", text)
    yield f"test has to fail. **{len(killed)} of {len(verdicts)} are killed.**"
    yield f"`python tests/mutants/run.py`. {when(run, code)}"
    yield ""
    rows = (
        (bug, f"`{test.split('/', 1)[-1]}`" if bug in killed else f"**{test}**")
        for bug, test in verdicts.items()
    )
    yield from table(("bug", "killed by"), rows)
    yield ""


def peers_section(parts, code):
    """The libraries that are audited in the same way."""
    runs = {name: parts[name] for name in ("opacus", "diffprivlib") if name in parts}
    text = "diffprivlib runs in an environment of its own, with the scikit-learn it needs."
    yield from section("The same audits of other libraries", text)
    for run in runs.values():
        versions = ", ".join(f"{n} {v}" for n, v in run["versions"].items())
        yield f"{versions}: {when(run, code)}"
    yield ""
    reports = {name: report for run in runs.values() for name, report in run["reports"].items()}
    yield from audit_table(reports)
    yield ""


def fuzz_section(run, code):
    """What the fuzzers did."""
    yield from section("Fuzzing", f"{FUZZING} {when(run, code)}")
    yield ""
    rows = (
        (
            f"`{name}`",
            f"{t['cpu_seconds'] / 60:.0f}",
            t["inputs"],
            t["covered"],
            "none" if t["inputs"] else "**did not run**",  # a finding ends the part
        )
        for name, t in run["targets"].items()
    )
    yield from table(("target", "CPU minutes", "inputs", "edges covered", "findings"), rows)
    yield ""


def page(parts, code):
    """The lines of docs/evidence.md, written on this code."""
    yield "# Evidence"
    yield ""
    yield from INTRODUCTION.splitlines()
    yield ""
    yield from origin(parts, code)
    yield ""
    if "suite" in parts:
        yield from suite_section(parts, code)
    if "mutants" in parts:
        yield from mutants_section(parts["mutants"], code)
    if "audits" in parts:
        yield from section("What audits prove of the claims", AUDITS)
        yield when(parts["audits"], code)
        yield ""
        yield from audit_table(parts["audits"]["reports"])
        yield ""
    if {"opacus", "diffprivlib"} & parts.keys():
        yield from peers_section(parts, code)
    if "fuzz" in parts:
        yield from fuzz_section(parts["fuzz"], code)


# --- command --------------------------------------------------------------------------------------


def measured():
    """The figures of all parts that have run to their end."""
    return json.loads(FIGURES.read_text()) if FIGURES.exists() else {}


def complete(name, jobs, code):
    """Run a part, or what is left of it, and put its figures beside those of the others."""
    file = BUILD / code / f"{name}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    if not file.exists():
        write(file, {})
    try:
        found = PARTS[name](jobs, file)
    finally:
        if code_hash() != code:
            file.unlink(missing_ok=True)
            raise SystemExit(f"The code changed while {name} ran: nothing of it is kept.")
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.strip()
    told = {"code": code, "commit": commit, "date": str(date.today()), "packages": packages()}
    write(FIGURES, measured() | {name: found | told})
    file.unlink()


def bring_up_to_date(names, jobs, code, *, again=False):
    """Run the parts whose figures are not of this code; the names of those that did not finish."""
    unfinished = []
    for name in names:
        begun = (BUILD / code / f"{name}.json").exists()
        needed, found = NEEDED.get(name, ("", lambda: True))
        if not (again or begun) and is_clean(code) and measured().get(name, {}).get("code") == code:
            print(f"{name}: its figures are of this code", flush=True)
        elif not found():
            print(f"{name}: not run without {needed}; its last figures stay", flush=True)
        else:
            print(f"{name}: {'goes on' if begun else 'starts'}", flush=True)
            try:
                complete(name, jobs, code)
            except UnfinishedError as error:
                print(f"{name}: {error}", flush=True)
                unfinished.append(name)
        write_page(code)
    return unfinished


def write_page(code):
    """Write docs/evidence.md from all figures."""
    PAGE.write_text("\n".join(page(measured(), code)).rstrip() + "\n")


def main():
    """Run what was asked for, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", choices=[*PARTS, "page", []], default=[])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--again", action="store_true", help="also what is of the present code")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # so that children end too
    code = code_hash()
    if options.parts == ["page"]:
        return write_page(code)
    if not is_clean(code):
        print("Uncommitted changes: figures are marked, and parts start from their beginning.")
        shutil.rmtree(BUILD / code, ignore_errors=True)
    names = [name for name in PARTS if name in (options.parts or PARTS)]
    sys.exit(bool(bring_up_to_date(names, options.jobs, code, again=options.again)))


if __name__ == "__main__":
    main()
