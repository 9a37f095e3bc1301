"""Kinds of objects that `skdp.fitting.object_mac` tells apart, and what code and packages name."""

from __future__ import annotations

import abc
import copyreg
import dis
import functools
import hmac
import importlib
import inspect
import mmap
import os
import platform
import struct
import sys
import sysconfig
import types
from collections import OrderedDict, deque
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from itertools import chain
from typing import Any

import numpy as np

from skdp.fitting.validate import expected

WORD = struct.calcsize("P")

LEAVES: dict[type, Any] = {
    type(None): repr,
    type(...): repr,
    type(NotImplemented): repr,
    bool: repr,
    int: hex,
    float: lambda x: struct.pack("<d", x).hex(),
    complex: lambda x: struct.pack("<dd", x.real, x.imag).hex(),
    str: str,
    bytes: bytes.hex,
    range: repr,
}

BARE: dict[type, Any] = {  # of an instance of a subclass, whose own methods are not asked
    int: int.__index__,
    float: float.__pos__,
    complex: complex.__pos__,
    str: str.__str__,
    bytes: lambda value: bytes.__getitem__(value, slice(None)),
}

CONTAINERS: dict[type, Any] = {
    list: list.__iter__,
    tuple: tuple.__iter__,
    deque: lambda value: chain((MAXLEN.__get__(value),), deque.__iter__(value)),
    dict: lambda value: chain.from_iterable(dict.items(value)),
    OrderedDict: lambda value: chain.from_iterable(OrderedDict.items(value)),
}

SETS = set, frozenset

MAXLEN: Any = deque.maxlen

DUMP: Any = abc._get_dump  # type: ignore  # the registry is its first part

FIELDS: dict[type, tuple[str, ...]] = {  # C-level objects that are these and nothing else
    functools.partial: ("func", "args", "keywords"),
    functools.cached_property: ("func", "attrname"),
    types.MethodType: ("__func__", "__self__"),
    staticmethod: ("__func__",),
    classmethod: ("__func__",),
    property: ("fget", "fset", "fdel"),
    slice: ("start", "stop", "step"),
    types.CodeType: (
        "co_name", "co_qualname", "co_argcount", "co_posonlyargcount", "co_kwonlyargcount",
        "co_flags", "co_varnames", "co_freevars", "co_cellvars", "co_names", "co_consts",
        "co_code", "co_exceptiontable",
    ),
}  # fmt: skip

OF_CLASSES = {  # which tell nothing of what a class does, or appear later
    "__abstractmethods__", "__annotate__", "__annotate_func__", "__annotations__",
    "__annotations_cache__", "__dataclass_fields__", "__dataclass_params__", "__dict__", "__doc__",
    "__firstlineno__", "__module__", "__slotnames__", "__static_attributes__", "__weakref__",
    "_abc_impl",
}  # fmt: skip

OF_FIELDS = "default", "default_factory", "init", "repr", "hash", "compare", "metadata", "kw_only"

REDUCERS = "__reduce_ex__", "__reduce__", "__getstate__", "__getnewargs_ex__", "__getnewargs__"


def of_leaves(value: Any) -> bool:
    """Whether a value is a leaf, or a container of leaves that cannot change."""
    if type(value) in (tuple, frozenset):
        return all(map(of_leaves, value))
    return type(value) in LEAVES


def opaque(kind: type) -> type | None:
    """Return the class whose instances have memory that neither attributes nor slots show."""
    while kind is not object:
        base: Any = kind.__base__
        shown = sum(isinstance(v, types.MemberDescriptorType) for v in vars(kind).values())
        for name in ("__dictoffset__", "__weakrefoffset__"):
            shown += getattr(kind, name) not in (getattr(base, name), -1)
        if kind.__basicsize__ - base.__basicsize__ > WORD * shown:
            return kind
        kind = base
    return None


def definer(kind: type, name: str) -> type:
    """The class that defines an attribute."""
    return next((c for c in kind.__mro__ if name in vars(c)), object)


def reduces(kind: type) -> bool:
    """Whether a class has a pickle of its own."""
    return kind in copyreg.dispatch_table or any(
        definer(kind, name) is not object for name in REDUCERS
    )


_BLOCK = 2**14  # rows that are hashed at once


def refused(what: str) -> ValueError:
    """Return the error for what cannot be proved equal to what it was."""
    return expected(
        f"None, because a parameter holds {what}, which cannot be told from another one of its "
        "kind: give functions of numbers, arrays and tensors",
        checkpoint="given",
    )


class Mac:
    """A keyed hash of a sequence of texts and arrays, each with its length before it."""

    def __init__(self, secret: bytes, text: str) -> None:
        self._mac = hmac.new(secret, digestmod="sha256")
        self.add_text(text)

    def add_text(self, text: str) -> None:
        """Take in a text."""
        content = text.encode("utf-8", "surrogatepass")
        self._mac.update(len(content).to_bytes(8, "little"))
        self._mac.update(content)

    def add(self, array: Any) -> None:
        """Take in an array, or what gives one by slices of its rows."""
        self.add_text(f"{array.dtype.str}{array.shape}")
        rows = array if array.shape else array[None]
        for start in range(0, len(rows), _BLOCK):
            block = np.ascontiguousarray(rows[start : start + _BLOCK])
            self._mac.update(block.reshape(-1).view(np.uint8).data)

    def hexdigest(self) -> str:
        """Return the hash."""
        return self._mac.hexdigest()


# --- code, and what it names ----------------------------------------------------------------------

_INSTALLED = tuple(
    sysconfig.get_path(name) + os.sep for name in ("purelib", "platlib", "stdlib", "platstdlib")
)

_NOT_ENCODED = {
    "__annotations__", "__builtins__", "__code__", "__doc__", "__globals__", "_getframe",
    "currentframe", "f_globals", "import_module",
}  # fmt: skip

READ_MORE = (  # than what the code of a function names, by whatever name they are called
    __import__, breakpoint, compile, eval, exec, globals, input, locals, open, vars,
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
