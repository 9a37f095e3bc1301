"""The evidence for skdp's promises: run the tests, the audits, the mutants and the fuzzers.

    python tests/evidence.py [PART ...] [--jobs 2]

Parts: suite (the tests that always run), slow (those marked slow; nulls: those of the auditors
alone), audits (skdp's estimators, 5000 fits an arm), peers (Opacus and, with DIFFPRIVLIB_PYTHON
naming the interpreter of an environment that has it, diffprivlib), mutants, fuzz (25 minutes a
target, side by side). Without a name, all: some hours on 2 cores. A part that has run keeps its
figures in docs/evidence.json, and the page docs/evidence.md is written anew from all of them;
`page` writes it and runs nothing.
"""

import argparse
import importlib.util
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from xml.etree import ElementTree

from mutants.catalogue import SECTIONS
from mutants.run import provenance

ROOT = Path(__file__).parents[1]
FIGURES, PAGE = ROOT / "docs" / "evidence.json", ROOT / "docs" / "evidence.md"
FITS, FUZZ_SECONDS = 5000, 1500

# Layer, what its tests state, the files of tests (prefixes; the first that fits).
LAYERS = [
    (
        "Neighbours by replay",
        "With the releases held fixed, fitted attributes, pickles, predictions, warnings and errors"
        " do not depend on the data: pairs of data sets with a record zeroed, added, removed,"
        " replaced, with outliers of 1e300, NaN, a new class, duplicates. What is on the ledger is"
        " what ran.",
        ("tests/replay",),
    ),
    (
        "Sums and sensitivity",
        "The fast clipped sums equal a slow, obvious one; no record moves a sum by more than the"
        " declared sensitivity, whatever its gradient; sums add over parts and do not depend on how"
        " they are cut up.",
        (
            "tests/engine/test_clipping", "tests/engine/test_gram", "tests/engine/test_grid",
            "tests/engine/test_network", "tests/engine/test_per_sample",
            "tests/engine/test_records", "tests/engine/test_trial", "tests/models",
        ),
    ),
    (
        "Laws of noise and sampling",
        "The noise of each step has the declared size, is normal (discrete: exactly the discrete"
        " Gaussian), and is shared by no two steps, fits, folds or forks; batches are Poisson.",
        ("tests/laws", "tests/engine", "tests/test_random", "tests/mechanisms"),
    ),
    (
        "One-run canaries",
        "1000 coin-flip canaries in one run of a mechanism: wrong ones are found, right ones are"
        " not accused, more than nothing is proved.",
        ("tests/audit/test_mechanism",),
    ),
    (
        "Black-box audits",
        "Thousands of public fits with and without a record prove no more than the claim, and most"
        " of it; wrong estimators are found. The figures of each estimator are in the next table.",
        ("tests/audit/test_estimator",),
    ),
    (
        "Posterior samplers",
        "Draws have the law of the tempered posterior (quadrature); exact densities, propagated on"
        " a grid, never violate a last-iterate certificate, and attain it where it is tight.",
        (
            "tests/algorithms", "tests/privacy/test_hidden_state",
            "tests/privacy/test_posterior_samples", "tests/estimators/test_ops",
        ),
    ),
    (
        "The auditors are audited",
        "On laws whose ε is known, audits at 95 % confidence raise no more than 1.2 times as many"
        " false alarms as they state; an auditor that picks its threshold afterwards fails the same"
        " test.",
        ("tests/audit",),
    ),
    (
        "Accounting",
        "Privacy loss distributions, Rényi bounds, closed forms, 40-digit arithmetic and published"
        " anchors agree; monotone; no bound falls below a cheaper lower bound; garbage raises.",
        ("tests/privacy", "tests/hardening/test_properties"),
    ),
    (
        "Workflows and search",
        "Each fit in folds, searches, pipelines, threads, workers, forks and a Dask cluster is"
        " counted once; budgets that are split compose to the target; trials have their law.",
        ("tests/model_selection", "tests/preprocessing"),
    ),
    (
        "scikit-learn's checks",
        "`check_estimator` over every public estimator; none is excused without a reason.",
        ("tests/contracts/test_scikit_learn",),
    ),
    (
        "Bad input",
        "Each kind of bad or odd input into each public estimator: a clear error, for nothing and"
        " quoting nothing, or a valid release.",
        (
            "tests/contracts/test_bad", "tests/estimators/test_bad_input", "tests/fuzz",
        ),
    ),
    (
        "Robustness",
        "kill −9, interrupts, memory that runs out, full disks, 1000 forked children, races on one"
        " ledger file, 24 fits that leave no memory behind.",
        ("tests/hardening/test_robustness",),
    ),
    (
        "Published bugs",
        "Bugs of the field, re-enacted: the test finds the bug, and skdp does not have it.",
        ("tests/bugs",),
    ),
    ("Everything else", "Estimators, metrics, displays, doctests, snippets of the docs.", ("",)),
]  # fmt: skip


# --- parts ----------------------------------------------------------------------------------------


def tests(jobs, marker, n_processes, *paths):
    """Run pytest; count and time the tests of each layer, and collect the figures they state."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "junit.xml"
        start = time.perf_counter()
        options = ("-m", marker, "-n", str(n_processes), "-o", "junit_family=xunit1")
        command = [sys.executable, "-m", "pytest", *options, *paths]
        run = subprocess.run([*command, f"--junitxml={report}"], cwd=ROOT, check=False)
        seconds = time.perf_counter() - start
        cases = list(ElementTree.parse(report).iter("testcase"))
    layers = {
        title: {"passed": 0, "failed": 0, "skipped": 0, "seconds": 0.0} for title, _, _ in LAYERS
    }
    figures = {title: Counter() for title in layers}
    for case in cases:
        layer = layer_of(case.get("classname", ""))
        kinds = {child.tag for child in case}
        result = (
            "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else ""
        )
        layers[layer][result or "passed"] += 1
        layers[layer]["seconds"] += float(case.get("time", 0))
        if not result:  # what a test says of itself and then fails to show is no figure
            properties = case.iter("property")
            figures[layer].update(p.get("value") for p in properties if p.get("name") == "figure")
    for layer, values in layers.items():
        values["figures"] = [
            f"{text}: {n}" if n > 1 else text for text, n in figures[layer].items()
        ]
    return {"status": run.returncode, "minutes": seconds / 60, "layers": layers}


def layer_of(class_name):
    """Name of the layer whose prefix fits best the dotted name of a test's module."""
    path = class_name.replace(".", "/")
    path = path if path.startswith(("tests/", "skdp/")) else f"tests/{path}"
    fitting = [
        (len(p), title) for title, _, prefixes in LAYERS for p in prefixes if path.startswith(p)
    ]
    return max(fitting)[1]


def suite(jobs):
    """The tests that always run."""
    return tests(jobs, "not slow", 2)


def slow(jobs):
    """The tests marked slow."""
    return tests(jobs, "slow", jobs)


def nulls(jobs):
    """Of the slow tests, those of the auditors alone."""
    return tests(jobs, "slow", jobs, "tests/audit")


def audits(jobs):
    """skdp's estimators, by the script that also audits the peers."""
    return {"reports": audit("--fits", FITS, "--jobs", jobs)}


def peers(jobs):
    """Opacus here, diffprivlib in its own environment."""
    found = audit("--peers", "--fits", 1000, "--jobs", jobs)
    versions = {"opacus": version("opacus")} if importlib.util.find_spec("opacus") else {}
    if other := os.environ.get("DIFFPRIVLIB_PYTHON"):
        with tempfile.TemporaryDirectory() as folder:
            samples = str(Path(folder) / "samples.npz")
            script = str(ROOT / "benchmarks" / "audit.py")
            fit = [other, script, "--sample-diffprivlib", samples, "--fits", str(FITS)]
            subprocess.run(fit, check=True)
            found |= audit("--judge", samples)
            names = (
                "import diffprivlib, sklearn; print(diffprivlib.__version__, sklearn.__version__)"
            )
            said = subprocess.run([other, "-c", names], check=True, capture_output=True, text=True)
            versions["diffprivlib"], versions["its scikit-learn"] = said.stdout.split()
    return {"reports": found, "versions": versions}


def audit(*options):
    """Reports of `benchmarks/audit.py`."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "reports.json"
        command = [sys.executable, "benchmarks/audit.py", *map(str, options), "--json", str(file)]
        subprocess.run(command, cwd=ROOT, check=True)
        return json.loads(file.read_text())


def mutants(jobs):
    """Every seeded bug, and the test that kills it; goes on where it was stopped on this commit."""
    file = ROOT / "build" / "mutants.json"
    command = [sys.executable, "tests/mutants/run.py", "--jobs", str(jobs), "--json", str(file)]
    run = subprocess.run(command, cwd=ROOT, check=False)
    return {"status": run.returncode, "sections": json.loads(file.read_text())}


def fuzz(jobs):
    """Both targets, each from its own empty corpus."""
    with ThreadPoolExecutor(jobs) as pool:
        names = ("fuzz_accounting", "fuzz_inputs")
        return {"targets": dict(zip(names, pool.map(fuzzed, names), strict=True))}


def fuzzed(name):
    """One target. Its folder stays: it holds the input that broke something."""
    corpus = tempfile.mkdtemp(prefix=f"{name}-")
    options = (f"-max_total_time={FUZZ_SECONDS}", "-timeout=60", "-print_final_stats=1")
    command = [sys.executable, str(ROOT / "tests" / "fuzz" / f"{name}.py"), corpus, *options]
    said = Path(corpus) / "said.txt"
    with said.open("w") as file:
        run = subprocess.Popen(command, cwd=corpus, stderr=file)
        _, status, usage = os.wait4(run.pid, 0)
    text = said.read_text(errors="replace")
    if status:
        print(text[-4000:], f"\nThe input is in {corpus}.", flush=True)
    covered = re.findall(r"cov: (\d+)", text)
    executed = re.search(r"number_of_executed_units:\s*(\d+)", text)
    return {
        "status": status,
        "cpu_seconds": usage.ru_utime + usage.ru_stime,
        "inputs": int(executed[1]) if executed else 0,
        "covered": int(covered[-1]) if covered else 0,
    }


PARTS = {f.__name__: f for f in (suite, slow, nulls, audits, peers, mutants, fuzz)}
ALL = [name for name in PARTS if name != "nulls"]


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


def when(part):
    """Date and versions of a part, and what its figures leave unsaid."""
    versions = ", ".join(f"{name} {v}" for name, v in part["packages"].items())
    return f"Run on {part['date']} with {versions}. {part.get('note', '')}".rstrip()


def ended(part):
    """How a run ended."""
    return "all passed" if part["status"] == 0 else f"**not all passed** (exit {part['status']})"


def layers_table(parts):
    """The layers of the suite, with the figures that their tests stated."""
    rest = "slow" if "slow" in parts else "nulls"
    runs = [parts[name] for name in ("suite", rest) if name in parts]

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
    return table(("what is stated", "figures", "passed", "skipped", "s"), rows)


def audit_table(reports):
    """One line an audit."""
    rows = [
        (
            name, f"{r['epsilon']:.2f}", f"{r['delta']:g}", f"{r['epsilon_lower_bound']:.2f}",
            f"{r['epsilon_lower_bound'] / r['epsilon']:.2f}",
            {"gdp": "Gaussian", "dp": "any"}[r["frame"]], r["n_with"],
            "**violation**" if r["epsilon_lower_bound"] > r["epsilon"] else "none",
        )
        for name, r in reports.items()
    ]  # fmt: skip
    head = (
        "audited",
        "ε claimed",
        "δ",
        "ε proved",
        "ratio",
        "against",
        "counted an arm",
        "violation",
    )
    return table(head, rows)


INTRODUCTION = """\
This page is written by `python tests/evidence.py` from what it ran. Each figure is one that a test
stated and then passed, or that an audit counted. Times are on 2 cores without a GPU. What the
promises are is in [promises](promises.md)."""

AUDITS = """\
Lower bounds on ε at 95 % confidence from public fits with and without one record, on the worst data
and settings that are known for each (`benchmarks/audit.py`). A bound *against* the Gaussian
mechanism takes the claim's shape as given and is much tighter than one against any (ε, δ). Lines
that say "releases" are no black box: they look at all noisy sums of a fit, through skdp's record of
them, and what a noise-aware fit makes of its last release is left out to save time. A tenth of the
fits choose direction and threshold and are not counted. Of twenty right estimators one may be
accused at 95 %; who is accused is audited again, afresh, at 99.9 %. Not audited: searches, and
whole pipelines."""


def page(parts):
    """The lines of docs/evidence.md."""
    yield "# Evidence"
    yield ""
    yield from INTRODUCTION.splitlines()
    yield ""
    if "suite" in parts:
        run = parts["suite"]
        yield "## The test suite"
        yield ""
        yield f"`python -m pytest -n 2`: {run['minutes']:.1f} minutes, {ended(run)}. {when(run)}"
        for name, which in (("slow", ""), ("nulls", " tests/audit")):
            if more := parts.get(name):
                yield (
                    f"`python -m pytest -m slow{which}`: {more['minutes']:.1f} minutes,"
                    f" {ended(more)}. {more.get('note', '')}".rstrip()
                )
        yield "The first column says what the tests of a layer assert; seconds are those of all of"
        yield "its tests together."
        yield ""
        yield from layers_table(parts)
        yield ""
    if "mutants" in parts:
        run = parts["mutants"]
        sections = run.get("sections", {})  # figures from before sections have verdicts alone
        verdicts = run.get("verdicts") or {
            bug: test for section in sections.values() for bug, test in section["verdicts"].items()
        }
        killed = {bug: test for bug, test in verdicts.items() if test.startswith("tests/")}
        yield "## Seeded bugs"
        yield ""
        yield "The tests are tested: a known privacy bug is put into the code, one at a time, and a"
        yield f"test has to fail. **{len(killed)} of {len(verdicts)} are killed.**"
        seeded = {mutant.bug for section in SECTIONS.values() for mutant in section}
        if left := len(seeded - verdicts.keys()):
            yield f"{left} more are seeded, and were not run with these."
        yield provenance(sections) if sections else "Their commit was not recorded."
        yield f"`python tests/mutants/run.py`. {when(run)}"
        yield ""
        rows = (
            (bug, f"`{test.split('/', 1)[-1]}`" if bug in killed else test)
            for bug, test in verdicts.items()
        )
        yield from table(("bug", "killed by"), rows)
        yield ""
    if "audits" in parts:
        yield "## What audits prove of the claims"
        yield ""
        yield from AUDITS.splitlines()
        yield when(parts["audits"])
        yield ""
        yield from audit_table(parts["audits"]["reports"])
        yield ""
    if "peers" in parts:
        versions = ", ".join(f"{n} {v}" for n, v in parts["peers"]["versions"].items())
        yield "## The same audits of other libraries"
        yield ""
        yield f"{versions}. diffprivlib runs in an environment of its own, with the scikit-learn it"
        yield f"needs. {when(parts['peers'])}"
        yield ""
        yield from audit_table(parts["peers"]["reports"])
        yield ""
    if "fuzz" in parts:
        yield "## Fuzzing"
        yield ""
        yield "Coverage-guided (atheris) from an empty corpus: the accounting and ledger files, and"
        yield f"the input layer. {when(parts['fuzz'])}"
        yield ""
        rows = (
            (
                f"`{name}`",
                f"{t['cpu_seconds'] / 60:.0f}",
                t["inputs"],
                t["covered"],
                "none" if t["status"] == 0 and t["inputs"] else "**did not run to its end**",
            )
            for name, t in parts["fuzz"]["targets"].items()
        )
        yield from table(("target", "CPU minutes", "inputs", "edges covered", "findings"), rows)
        yield ""


def main():
    """Run what was asked for, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", choices=[*PARTS, "page", []], default=[])
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    wanted = options.parts or ALL
    for name in wanted:
        if name == "page":
            continue
        found = PARTS[name](options.jobs) | {"date": str(date.today()), "packages": packages()}
        parts = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
        parts[name] = found
        FIGURES.write_text(json.dumps(parts, indent=1, ensure_ascii=False) + "\n")
    PAGE.write_text("\n".join(page(json.loads(FIGURES.read_text()))).rstrip() + "\n")


if __name__ == "__main__":
    main()
