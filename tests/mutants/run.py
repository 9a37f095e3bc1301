"""The tests are tested: known privacy bugs, put in one at a time, must each make a test fail.

    python tests/mutants/run.py [--section NAME] [--only WORD] [--jobs 2] [--json FILE]

Copies the package and the tests to a temporary folder, puts a bug of `catalogue.py` there, and runs
the tests that should notice; the same tests have to pass on the copy without the bug first. Prints
a table; exits with 1 if a mutant survives.

With a file, verdicts (and which tests passed without a bug) are kept there by section, each section
with the hash of the commit that was copied, and a later run on that commit goes on from there. What
ran on a working tree with uncommitted changes is marked "-dirty" and always runs again.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # a script finds only its own folder

from mutants.catalogue import SECTIONS
from mutants.mutant import mutated, normalised

ROOT = Path(__file__).parents[2]
COMMAND = (sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider")
LIMIT = 900  # seconds; a mutant that hangs has been noticed by nobody
COPIED = ("skdp", "tests", "docs", "benchmarks", "README.md", "pyproject.toml", "constraints.txt")
WRITTEN = ("docs/evidence.json", "docs/evidence.md")  # by tests/evidence.py, and no test reads them


def checked_out():
    """Hash of the commit, with "-dirty" where what is copied is not what was committed."""
    if not (ROOT / ".git").exists():
        return "unknown"
    paths = [*COPIED, *(f":(exclude){path}" for path in WRITTEN)]
    hash_of, status = (
        subprocess.run(["git", *command], cwd=ROOT, check=True, capture_output=True, text=True)
        for command in (("rev-parse", "HEAD"), ("status", "--porcelain", "--", *paths))
    )
    return hash_of.stdout.strip() + ("-dirty" if status.stdout else "")


def is_clean(commit):
    """Whether this is a commit and nothing else."""
    return re.fullmatch("[0-9a-f]{40,}", commit) is not None


def provenance(records):
    """Say on which commit the sections ran: on one, if it is clean and has all mutants."""
    ran = {
        name: sum(mutant.bug in records[name]["verdicts"] for mutant in section)
        for name, section in SECTIONS.items()
        if name in records
    }
    commits = {records[name]["commit"] for name in ran}
    if len(commits) == 1 and all(ran.get(name) == len(SECTIONS[name]) for name in SECTIONS):
        (commit,) = commits
        if is_clean(commit):
            return f"All sections ran on commit {commit}."
    told = [
        f"{name} {ran[name]} of {len(section)} on {records[name]['commit']}"
        if name in ran
        else f"{name} not at all"
        for name, section in SECTIONS.items()
    ]
    return f"Not all on one commit: {'; '.join(told)}."


def kept(file):
    """Records of the sections that a file holds."""
    records = json.loads(file.read_text()) if file and file.exists() else {}
    return {name: record for name, record in records.items() if name in SECTIONS}


def keep(file, name, record):
    """Write the record of one section."""
    if file:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(kept(file) | {name: record}, indent=1, ensure_ascii=False))


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
                [*COMMAND, *tests.split()],
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


def check_without_mutants(pool, code, mutants, passed):
    """Exit unless the tests pass on the code as it is; yield those not among `passed`."""
    paths = {path for mutant in mutants for path in mutant.tests.split()}
    covered = paths | passed
    wanted = sorted(p for p in paths - passed if covered.isdisjoint(map(str, Path(p).parents)))
    for path, verdict in zip(wanted, pool.map(partial(first_failure, code), wanted), strict=True):
        if not verdict.endswith("(0)"):
            raise SystemExit(f"{path} fails without any mutant: {verdict}")
        yield path


def main():
    """Run the mutants, section by section, each after the same tests on the code as it is."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--section", action="append", choices=SECTIONS, help="default: all")
    parser.add_argument("--only", default="", help="a word in the name of the bug")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--json", type=Path, help="file for the verdicts, and to go on from")
    options = parser.parse_args()
    survived = False
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(options.jobs) as pool:
        # One copy at the start: the hash stays true if the working tree changes meanwhile.
        commit, code = checked_out(), Path(folder)
        copy_of_the_code(code)
        before = kept(options.json) if is_clean(commit) else {}
        records = {name: old for name, old in before.items() if old["commit"] == commit}
        for name in options.section or SECTIONS:
            mutants = [mutant for mutant in SECTIONS[name] if options.only in mutant.bug]
            passed = {path for record in records.values() for path in record["passed"]}
            new = {"commit": commit, "passed": [], "verdicts": {}}
            record = records.setdefault(name, new)
            verdicts = record["verdicts"]
            left = [mutant for mutant in mutants if mutant.bug not in verdicts]
            for path in check_without_mutants(pool, code, left, passed):
                record["passed"].append(path)
                keep(options.json, name, record)
            runs = {m.bug: pool.submit(first_failure, code, m.tests, m) for m in left}
            for mutant in mutants:
                if mutant.bug in runs:
                    verdicts[mutant.bug] = runs[mutant.bug].result()
                    keep(options.json, name, record)
                print(f"{name:<14} {mutant.bug:<72} {verdicts[mutant.bug]}", flush=True)
                survived |= verdicts[mutant.bug].startswith("SURVIVED")
    if options.json:
        print(provenance(kept(options.json)))
    raise SystemExit(survived)


if __name__ == "__main__":
    main()
