"""The table of mutants fits the code as it is; whether tests kill them is for `run.py` to say."""

import builtins
import symtable
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
from mutants.catalogue import SECTIONS
from mutants.mutant import Mutant, mutated, normalised, read

ROOT = Path(__file__).parents[2]
MUTANTS = [mutant for section in SECTIONS.values() for mutant in section]


rewritten = cache(normalised)


@cache
def unknown_names(source):
    """Names that are read somewhere and defined nowhere."""
    module = symtable.symtable(source, "source", "exec")
    tables = [module]
    for table in tables:
        tables.extend(table.get_children())
    defined = {s.get_name() for s in module.get_symbols() if s.is_assigned() or s.is_imported()}
    read = {s.get_name() for t in tables for s in t.get_symbols() if s.is_global()}
    return read - defined - set(dir(builtins))


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.bug for mutant in MUTANTS])
def test_the_mutation_has_its_place_and_is_code(mutant):
    source = (ROOT / "skdp" / mutant.file).read_text()
    changed = mutated(source, mutant)
    assert changed != rewritten(source)
    # A mutant that dies of a NameError says nothing about the tests.
    assert unknown_names(changed) <= unknown_names(source)
    for tests in mutant.tests.split():
        assert (ROOT / tests).exists()


def test_names_of_bugs_are_unique():
    assert max(Counter(mutant.bug for mutant in MUTANTS).values()) == 1


PATCHES = """
--- a.py; tests/test_a.py
    tests/test_b.py
@@ A.f: two: bugs
-if x:
-    y
+y
@@: another
-LIMIT = 1
+LIMIT = 2
--- b.py; tests/test_b.py
@@ g: a third
-0
+1
"""


def test_a_patch_is_read_as_it_is_written():
    both = "tests/test_a.py tests/test_b.py"
    assert read(PATCHES) == [
        Mutant("two: bugs", "a.py", "A.f", "if x:\n    y\n", "y\n", both),
        Mutant("another", "a.py", "", "LIMIT = 1\n", "LIMIT = 2\n", both),
        Mutant("a third", "b.py", "g", "0\n", "1\n", "tests/test_b.py"),
    ]


SOURCE = """\
LIMIT = 1


class A:
    LIMIT = 2

    def f(self, x):
        if x: return [x + 1,
                      x + 2]  # a comment
        return x * LIMIT


class B:
    def f(self, x):
        y = 0
        y += 1
        return x + 1
"""


def changed(function, old, new):
    before = normalised(SOURCE).splitlines()
    after = mutated(SOURCE, Mutant("", "", function, old, new, "")).splitlines()
    return sorted(Counter(after) - Counter(before)), sorted(Counter(before) - Counter(after))


@pytest.mark.parametrize(
    ("function", "old", "new", "put", "taken"),
    [
        ("A.f", "[x+1, x+2]", "[]", "return []", "return [x + 1, x + 2]"),
        ("B.f", "x + 1", "(x)", "return x", "return x + 1"),
        ("B.f", "y = 0; y += 1", "y = 2", "y = 2", "y = 0"),
        ("", "LIMIT = 1", "LIMIT = 3", "LIMIT = 3", "LIMIT = 1"),
        ("A", "2", "3", "LIMIT = 3", "LIMIT = 2"),
    ],
)
def test_a_fragment_is_found_in_its_function_however_it_is_written(function, old, new, put, taken):
    after, before = changed(function, old, new)
    assert [line.strip() for line in after] == [put]
    assert taken in [line.strip() for line in before]


@pytest.mark.parametrize(
    ("function", "old", "why"),
    [
        ("A.f", "x + 3", "0 times"),
        ("A.f", "x", "4 times"),
        ("A.g", "x", "0 definitions"),
        ("", "x + 2", "0 times"),  # in a function, not in the module
        ("A", "x + 2", "0 times"),
    ],
)
def test_a_fragment_without_a_place_of_its_own_is_an_error(function, old, why):
    with pytest.raises(LookupError, match=why):
        mutated(SOURCE, Mutant("", "", function, old, "0", ""))
