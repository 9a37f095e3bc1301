"""The tests are tested: known privacy bugs, put in one at a time, must each make a test fail.

    python tests/mutants/run.py [--section NAME] [--only WORD] [--jobs 2] [--json FILE]

Copies the package and the tests to a temporary folder, puts a bug of `catalogue.py` there, and runs
the tests that should notice. After each section the tests that failed have to pass on the copy
without a bug. Prints each verdict; exits with 1 if a mutant survives, with 2 if a test fails
without one.

With a file, each verdict (and which tests passed without a bug) is kept there as it comes, and a
later run of the same code goes on from there. What ran on a working tree with uncommitted changes
is marked "-dirty" and always runs again.
"""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # a script finds only its own folder

from mutants.catalogue import SECTIONS
from mutants.mutant import mutated, normalised

ROOT = Path(__file__).parents[2]
COMMAND = (
    sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", "not slow",
)  # fmt: skip
LIMIT = 900  # seconds; a mutant that hangs has been noticed by nobody
COPIED = (
    "skdp", "tests", "docs", "examples", "benchmarks", "README.md", "pyproject.toml",
    "constraints.txt",
)  # fmt: skip
CODE = ("skdp", "tests", "benchmarks", "pyproject.toml", "constraints.txt")  # what was run


def code_hash():
    """Hash of the code that is committed, with "-dirty" where the working tree differs.

    Of the content, not the commit: committing what was measured, or docs, does not change it.
    """
    if not (ROOT / ".git").exists():
        return "unknown"
    tree, changes = (
        subprocess.run(
            ["git", *command, "--", *CODE], cwd=ROOT, check=True, capture_output=True, text=True
        ).stdout
        for command in (("ls-tree", "HEAD"), ("status", "--porcelain"))
    )
    return hashlib.sha256(tree.encode()).hexdigest()[:16] + ("-dirty" if changes else "")


def is_clean(code):
    """Whether a hash says all about the code."""
    return code != "unknown" and not code.endswith("-dirty")


def write(file, value):
    """Write a value as JSON; a run that is killed meanwhile leaves the old file whole."""
    new = file.with_suffix(".new")
    new.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n")
    os.replace(new, file)


def kept(file, code):
    """What a file holds of this code: tests that passed without a bug, and verdicts by bug."""
    if file and file.exists() and is_clean(code):
        record = json.loads(file.read_text())
        if record.get("code") == code:
            return record
    return {"code": code, "passed": [], "verdicts": {}}


def keep(file, record):
    """Write what has run so far."""
    if file:
        file.parent.mkdir(parents=True, exist_ok=True)
        write(file, record)


def copy_of_the_code(folder):
    """Copy what the tests need, written as `mutated` writes it, so that only the bug differs."""
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            built = shutil.ignore_patterns("_build", "auto_examples", "__pycache__")
            shutil.copytree(source, folder / name, ignore=built)
        else:
            shutil.copy(source, folder / name)
    for file in {mutant.file for section in SECTIONS.values() for mutant in section}:
        target = folder / "skdp" / file
        target.write_text(normalised(target.read_text()))


@contextmanager
def workers(number):
    """Threads; whoever stops the run does not wait for what is still in the queue."""
    pool = ThreadPoolExecutor(number)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def first_failure(code, tests, mutant=None):
    """Run tests on a copy of the code, with a bug; return the first that fails, if any does."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(code, folder, dirs_exist_ok=True)
        if mutant is not None:
            target = Path(folder) / "skdp" / mutant.file
            target.write_text(mutated(target.read_text(), mutant))
        home = {"PYTHONPATH": folder, "HOME": folder, "PATH": "/usr/bin:/bin"}
        try:
            run = subprocess.run(
                [*COMMAND, *tests],
                cwd=folder,
                env=home | {"OMP_NUM_THREADS": "1"},
                capture_output=True,
                text=True,
                timeout=LIMIT,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"SURVIVED ({LIMIT} s)"
    failed = [line for line in run.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return failed[0].split(" - ")[0].split(" ", 1)[1] if failed else f"SURVIVED ({run.returncode})"


def check_without_mutants(pool, code, tests):
    """Exit unless these tests pass on the code as it is; yield those of each file that do."""
    files = {}
    for test in sorted(tests):
        files.setdefault(test.split("::")[0], []).append(test)
    runs = {pool.submit(first_failure, code, found): found for found in files.values()}
    for run in as_completed(runs):
        if run.result() != "SURVIVED (0)":
            print(f"{', '.join(runs[run])}: fails without any mutant: {run.result()}", flush=True)
            raise SystemExit(2)
        yield runs[run]


def main():
    """Run the mutants, section by section, then what killed them on the code as it is."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--section", action="append", choices=SECTIONS, help="default: all")
    parser.add_argument("--only", default="", help="a word in the name of the bug")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--json", type=Path, help="file for the verdicts, and to go on from")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, workers(options.jobs) as pool:
        # One copy at the start: the hash stays true if the working tree changes meanwhile.
        record, code = kept(options.json, code_hash()), Path(folder)
        copy_of_the_code(code)
        verdicts, wanted = record["verdicts"], []
        for name in options.section or SECTIONS:
            mutants = [mutant for mutant in SECTIONS[name] if options.only in mutant.bug]
            left = [mutant for mutant in mutants if mutant.bug not in verdicts]
            runs = {pool.submit(first_failure, code, m.tests.split(), m): m.bug for m in left}
            for run in as_completed(runs):
                verdicts[runs[run]] = run.result()
                keep(options.json, record)
                print(f"{name:<14} {runs[run]:<72} {run.result()}", flush=True)
            found = [verdicts[mutant.bug] for mutant in mutants]
            # Without parameters: their names may hold what a report or a command line cuts up.
            killers = {test.split("[")[0] for test in found if not test.startswith("SURVIVED")}
            for tests in check_without_mutants(pool, code, killers - set(record["passed"])):
                record["passed"] += tests
                keep(options.json, record)
            wanted += [mutant.bug for mutant in mutants]
    survivors = [bug for bug in wanted if verdicts[bug].startswith("SURVIVED")]
    print(f"{len(wanted) - len(survivors)} of {len(wanted)} killed.", *survivors, sep="\n")
    raise SystemExit(bool(survivors))


if __name__ == "__main__":
    main()
