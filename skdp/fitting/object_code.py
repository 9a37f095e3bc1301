"""What the code of a function names, and what installed packages are known by."""

from __future__ import annotations

import builtins
import dis
import functools
import importlib
import inspect
import mmap
import os
import platform
import sys
import sysconfig
import types
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from skdp.fitting.object_kinds import refused

_INSTALLED = tuple(
    sysconfig.get_path(name) + os.sep for name in ("purelib", "platlib", "stdlib", "platstdlib")
)

NAMES_MORE = {  # than what the code of a function names
    "__import__", "breakpoint", "compile", "eval", "exec", "globals", "input", "locals", "open",
    "vars",
}  # fmt: skip

_NOT_ENCODED = {
    "__annotations__", "__builtins__", "__code__", "__doc__", "__globals__", "_getframe",
    "currentframe", "f_globals", "import_module",
}  # fmt: skip

READ_MORE = (  # whatever name they are called by
    *(getattr(builtins, name) for name in sorted(NAMES_MORE)),
    importlib.import_module, inspect.currentframe, inspect.stack, sys._getframe,
)  # fmt: skip

_NO_STEPS = {"EXTENDED_ARG", "PUSH_NULL", "CACHE"}

_LOADS = "LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR"

_HEAP_TYPE = 1 << 9  # of `__flags__`: made by a program, and perhaps not by what it names


def library(module: str) -> bool:
    """Whether a module is Python's, skdp's or of an installed package: known by its name."""
    top = module.partition(".")[0]
    found = sys.modules.get(top)
    if top == "skdp" or found is None:
        return top == "skdp"
    places = [getattr(found, "__file__", None) or "", *getattr(found, "__path__", ())]
    if places == [""]:
        return top in sys.builtin_module_names
    return any(place.startswith(_INSTALLED) for place in places)


def of_library(kind: type) -> bool:
    """Whether a class is what its name leads to in an installed package, or one in C without."""
    if not library(kind.__module__):
        return False
    return not kind.__flags__ & _HEAP_TYPE or resolved(kind.__module__, kind.__qualname__) is kind


def in_a_file(array: Any) -> bool:
    """Whether the memory of an array is that of a file, which other arrays may share."""
    while array is not None and not isinstance(array, mmap.mmap):
        array = array.obj if isinstance(array, memoryview) else getattr(array, "base", None)
    return array is not None


@functools.cache
def version_of(module: str) -> str:
    """Version of the package that a module is of."""
    top = module.partition(".")[0]
    if top in sys.stdlib_module_names:
        return platform.python_version()
    with suppress(PackageNotFoundError):
        return version(top)
    return str(getattr(sys.modules[top], "__version__", ""))


def resolved(module: str, name: str) -> Any:
    """What a name leads to in a module; None for nothing."""
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def found_in(value: Any, name: str) -> str:
    """Return the first installed module that has a compiled function, which names another."""
    return next((m for m in sorted(sys.modules) if library(m) and resolved(m, name) is value), "")


def codes_in(code: types.CodeType) -> list[types.CodeType]:
    """Return a code and those inside it."""
    found = [code]
    for one in found:
        found += [const for const in one.co_consts if isinstance(const, types.CodeType)]
    return found


def global_names(code: types.CodeType) -> Iterator[str]:
    """Names that a code looks up outside itself; refuse what may look up more."""
    before: list[Any] = [None, None]
    for step in dis.get_instructions(code):
        if step.opname == "IMPORT_NAME" and not (before[0] == 0 and _imports(step.argval)):
            raise refused(f"a function that imports {step.argval or 'a module'} when called")
        named = step.opname in ("LOAD_ATTR", "LOAD_METHOD") or type(step.argval) is str
        if named and step.argval in _NOT_ENCODED:
            raise refused(f"a function that reads {step.argval}")
        if step.opname == "LOAD_NAME" or (
            step.opname.startswith("LOAD_") and "GLOBAL" in step.opname
        ):
            yield step.argval
        before = [before[1], step.argval]


def _imports(name: str) -> bool:
    """Whether a name is that of an installed package, which is loaded now."""
    with suppress(ImportError):
        importlib.import_module(name)
        return library(name)
    return False


def refuse_whole_modules(function: types.FunctionType, codes: list[types.CodeType]) -> None:
    """Refuse a function that does more with a module than to read attributes that it names.

    What is read of a module of the caller's is found by the names in the code; of one that is given
    away, or asked for a name that the code does not hold, anything may be read.
    """
    held = dict(function.__globals__)
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # empty
            held[name] = cell.cell_contents
    for code in codes:
        steps = [step for step in dis.get_instructions(code) if step.opname not in _NO_STEPS]
        for i, step in enumerate(steps):
            if step.opname.startswith(_LOADS) and isinstance(step.argval, str):
                _follow(held.get(step.argval), steps, i)


def _follow(value: Any, steps: list[dis.Instruction], i: int) -> None:
    """Follow what attributes of a module a code reads, from where it loads the module."""
    by_text = i > 0 and steps[i - 1].argval in ("getattr", "hasattr")
    while isinstance(value, types.ModuleType):
        i += 1
        then = steps[i] if i < len(steps) else None
        if value is sys and then is not None and then.argval == "modules":
            raise refused("a function that reads sys.modules")
        if library(value.__name__) and sys.modules.get(value.__name__) is value:
            return
        is_read = then is not None and then.opname in ("LOAD_ATTR", "LOAD_METHOD")
        is_asked = by_text and then is not None and then.opname == "LOAD_CONST"
        if then is None or not (is_read or (is_asked and isinstance(then.argval, str))):
            raise refused(f"a function that gives the module {value.__name__} away as a whole")
        value, by_text = vars(value).get(then.argval), False
