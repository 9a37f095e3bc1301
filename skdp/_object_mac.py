"""A keyed hash of an object that two objects share only if they are the same in all that is read.

A run that is resumed makes steps again with the same noise. If it computed another sum, the two
would differ by what no noise covers. So its parameters are compared by an encoding that is
injective on a closed grammar; whatever lies outside the grammar is refused, never approximated.

    same encoding  =>  isomorphic object graphs: types, leaves bit by bit, order, and *sharing*

- Leaves are encoded by exact type and bits, arrays and tensors by numbers, shape and strides, and
  by which of the memory met before they overlap.
- Any other object has a number, that of its first visit; met again, it is that number.
- Instances are all of their memory: attributes, slots, and what their C-level base holds. What a
  class of the user's says of itself (``__getstate__``, ``__reduce__``) is not asked.
- Functions are their code, defaults, closure and attributes, and the globals that the code names,
  followed into modules of the user's. Code that could name more (``eval``, ``globals``) is refused.
- What is imported from an installed package is its name and the package's version, if the name
  still leads to it.

`docs/privacy.md`, section 12, states what follows and what is assumed.

>>> from skdp._object_mac import described
>>> a, b = [1.0], [1.0]
>>> described(b"key", (a, b, a)) == described(b"key", (b, a, b))
True
>>> described(b"key", (a, b, a)) == described(b"key", (a, b, b))
False
"""

from __future__ import annotations

import abc
import builtins
import copyreg
import dis
import functools
import gc
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
from collections.abc import Iterable, Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from itertools import chain
from typing import Any

import numpy as np

from skdp._validate import expected

_BLOCK = 2**14  # rows that are hashed at once
_WORD = struct.calcsize("P")
_INSTALLED = tuple(
    sysconfig.get_path(name) + os.sep for name in ("purelib", "platlib", "stdlib", "platstdlib")
)
_LEAVES: dict[type, Any] = {
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
_BARE: dict[type, Any] = {  # of an instance of a subclass, whose own methods are not asked
    int: int.__index__,
    float: float.__pos__,
    complex: complex.__pos__,
    str: str.__str__,
    bytes: lambda value: bytes.__getitem__(value, slice(None)),
}
_CONTAINERS: dict[type, Any] = {
    list: list.__iter__,
    tuple: tuple.__iter__,
    deque: lambda value: chain((_MAXLEN.__get__(value),), deque.__iter__(value)),
    dict: lambda value: chain.from_iterable(dict.items(value)),
    OrderedDict: lambda value: chain.from_iterable(OrderedDict.items(value)),
}
_SETS = set, frozenset
_MAXLEN: Any = deque.maxlen
_DUMP: Any = abc._get_dump  # type: ignore  # the registry is its first part
_FIELDS: dict[type, tuple[str, ...]] = {  # C-level objects that are these and nothing else
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
_OF_CLASSES = {  # which tell nothing of what a class does, or appear later
    "__abstractmethods__", "__annotate__", "__annotate_func__", "__annotations__",
    "__annotations_cache__", "__dataclass_fields__", "__dataclass_params__", "__dict__", "__doc__",
    "__firstlineno__", "__module__", "__slotnames__", "__static_attributes__", "__weakref__",
    "_abc_impl",
}  # fmt: skip
_OF_FIELDS = "default", "default_factory", "init", "repr", "hash", "compare", "metadata", "kw_only"
_REDUCERS = "__reduce_ex__", "__reduce__", "__getstate__", "__getnewargs_ex__", "__getnewargs__"
_NAMES_MORE = {  # than what the code of a function names
    "__import__", "breakpoint", "compile", "eval", "exec", "globals", "input", "locals", "open",
    "vars",
}  # fmt: skip
_NOT_ENCODED = {
    "__annotations__", "__builtins__", "__code__", "__doc__", "__globals__", "_getframe",
    "currentframe", "f_globals", "import_module",
}  # fmt: skip
_READ_MORE = (  # whatever name they are called by
    *(getattr(builtins, name) for name in sorted(_NAMES_MORE)),
    importlib.import_module, inspect.currentframe, inspect.stack, sys._getframe,
)  # fmt: skip
_NO_STEPS = {"EXTENDED_ARG", "PUSH_NULL", "CACHE"}
_LOADS = "LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR"
_HEAP_TYPE = 1 << 9  # of `__flags__`: made by a program, and perhaps not by what it names


def described(secret: bytes, value: Any) -> str:
    """Return a keyed hash (HMAC-SHA256) of all that an object is.

    Parameters
    ----------
    secret : bytes
        Without it the hash tells nothing of the object.
    value : Any
        A parameter: numbers, text, arrays, tensors, functions, classes, objects of these.

    Returns
    -------
    str

    Raises
    ------
    ValueError
        If the object, or something that it refers to, cannot be told from another.
    """
    walk = _Walk(secret)
    try:
        walk.add(value)
    except RecursionError:
        raise refused("objects nested deeper than Python can follow") from None
    return walk.mac.hexdigest()


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


class _Walk:
    """One walk through a graph of objects, each of which is taken in at its first visit."""

    def __init__(self, secret: bytes) -> None:
        self.mac, self._secret = Mac(secret, "object"), secret
        self._seen: dict[Any, int] = {}
        self._kept: list[Any] = []  # or another object could get the place of one in memory
        self._memory: list[tuple[int, int]] = []

    def add(self, value: Any, names: frozenset[str] | None = None) -> None:
        """Take in an object; a module by those of its attributes that have the names."""
        kind = type(value)
        if kind in _LEAVES:
            self._text("leaf", kind.__name__, _LEAVES[kind](value))
        elif isinstance(value, types.ModuleType):
            self._module(value, names)
        elif not self._met(id(value)):
            self._kept.append(value)
            self._object(value, kind)

    def _met(self, key: Any) -> bool:
        """Take in the number of what was met before, or give it one."""
        if key in self._seen:
            self._text("met", str(self._seen[key]))
            return True
        self._seen[key] = len(self._seen)
        return False

    def _text(self, *texts: str) -> None:
        for text in texts:
            self.mac.add_text(text)

    def _all(self, kind: str, values: Iterable[Any]) -> None:
        """Take in a tag, a number, and so many objects."""
        found = list(values)
        self._text(kind, str(len(found)))
        for one in found:
            self.add(one)

    def _object(self, value: Any, kind: type) -> None:
        torch = sys.modules.get("torch")
        if kind is types.MappingProxyType:
            self._all("view of", gc.get_referents(value))
        elif kind in _FIELDS:
            self._all(kind.__name__, (getattr(value, name) for name in _FIELDS[kind]))
            if kind is functools.partial:
                self._by_name(value)
        elif isinstance(value, type | types.FunctionType | types.BuiltinFunctionType):
            self._imported(value)
        elif kind is np.ndarray or isinstance(value, np.generic):
            self._array(value)
        elif torch is not None and isinstance(value, torch.Tensor):
            self._tensor(value)
        else:
            self._instance(value, kind)

    # --- what is known by its name, and what is not ---------------------------------------------

    def _imported(self, value: Any) -> None:
        name = value.__qualname__
        module = str(value.__module__)
        if isinstance(value, types.BuiltinFunctionType) and _resolved(module, name) is not value:
            module = _found(value, name)
        if self._named(value, module, name):
            return
        if isinstance(value, type):
            self._class(value, module, name)
        elif isinstance(value, types.FunctionType):
            self._function(value)
        elif isinstance(value.__self__, types.ModuleType | type(None)):
            raise refused(f"{name}, which is not what its name leads to")
        else:
            self._all("bound", (value.__name__, value.__self__))

    def _named(self, value: Any, module: str, name: str) -> bool:
        """Take in the name of what an installed package has under it; say if it was that."""
        if not _library(module) or _resolved(module, name) is not value:
            return False
        if any(value is one for one in _READ_MORE):
            raise refused(f"a function that calls {name}")
        self._text("library", module, name, _version_of(module))
        return True

    def _class(self, value: type, module: str, name: str) -> None:
        self._text("class", module, name)
        self.add(type(value))
        self._all("bases", value.__bases__)
        held = {k: v for k, v in vars(value).items() if k not in _OF_CLASSES}
        for field in vars(value).get("__dataclass_fields__", {}).values():
            about = [getattr(field, name) for name in _OF_FIELDS]
            self._all(f"field {field.name}", (*about, repr(field._field_type)))
        if "_abc_impl" in vars(value) and _DUMP(value)[0]:
            raise refused(f"a class ({name}) at which others are registered")
        self._text("of class", str(len(held)))
        for attribute, one in held.items():
            self._text(attribute)
            if isinstance(one, types.MemberDescriptorType | types.GetSetDescriptorType):
                self._text("descriptor")
            else:
                self.add(one)

    def _function(self, function: types.FunctionType) -> None:
        self._text("function", str(function.__module__), function.__qualname__)
        self._all("code", (function.__code__, function.__defaults__, function.__kwdefaults__))
        codes = _codes(function.__code__)
        names = frozenset(
            name
            for code in codes
            for name in (*code.co_names, *(c for c in code.co_consts if type(c) is str))
        )
        self._text("closure", str(len(function.__closure__ or ())))
        for cell in function.__closure__ or ():
            self._cell(cell, names)
        self._by_name(function)
        _refuse_whole_modules(function, codes)
        known: Any = function.__builtins__  # type: ignore
        for name in sorted({name for code in codes for name in _global_names(code)}):
            self._text("global", name)
            if name in function.__globals__:
                self.add(function.__globals__[name], names)
            elif name in _NAMES_MORE:
                raise refused(f"a function that calls {name}")
            elif name in known:
                self._text("builtin")
                self.add(known[name], names)

    def _cell(self, cell: types.CellType, names: frozenset[str]) -> None:
        """Take in a variable of a closure, which several functions may share."""
        if self._met(id(cell)):
            return
        self._kept.append(cell)
        try:
            content = cell.cell_contents
        except ValueError:
            self._text("empty")
        else:
            self._text("cell")
            self.add(content, names)

    def _module(self, module: types.ModuleType, names: frozenset[str] | None) -> None:
        """Take in a module of an installed package by name, one of the user's by what is used."""
        name = module.__name__
        self._text("module", name)
        if _library(name) and sys.modules.get(name) is module:
            self._text(_version_of(name))
        elif names is None:
            raise refused(f"the module {name}")
        elif not self._met((id(module), names)):
            if type(module) is not types.ModuleType:
                raise refused(f"the module {name}, which is of a class of its own")
            found = {k: v for k, v in vars(module).items() if k in names or k == "__getattr__"}
            self._text("of module", str(len(found)))
            for attribute in sorted(found):
                self._text(attribute)
                self.add(found[attribute], names)

    # --- numbers --------------------------------------------------------------------------------

    def _array(self, value: Any) -> None:
        array = np.asarray(value)
        about = array.strides, array.flags.writeable
        self._text(type(value).__name__, described(self._secret, array.dtype), str(about))
        if not array.dtype.hasobject:
            self.mac.add(array)
        elif array.dtype != object:
            raise refused(f"an array of {array.dtype}")
        else:
            self._text(str(array.shape))
            self._all("objects", array.ravel())
        self._memory_of(array)

    def _memory_of(self, array: np.ndarray) -> None:
        if array.flags.writeable and _in_a_file(array):
            raise refused("an array that is written to a file")
        self._overlaps(array.ctypes.data, array.shape, array.strides, array.itemsize)

    def _tensor(self, value: Any) -> None:
        torch: Any = sys.modules["torch"]
        self.add(type(value))
        if value.grad_fn is not None:
            raise refused("a tensor that was computed from others (detach it)")
        about = value.dtype, value.layout, value.device, value.shape, value.requires_grad
        self._text("tensor", *map(str, (*about, value.is_inference())))
        if value.layout is not torch.strided:
            self._all("sparse", torch.Tensor.__reduce_ex__(value, 4))
            return
        try:
            plain = value.detach().resolve_conj().resolve_neg().cpu().contiguous().reshape(-1)
            self.mac.add(plain.view(torch.uint8).numpy())
        except (RuntimeError, TypeError, NotImplementedError):
            raise refused(f"a tensor of {value.dtype}") from None
        size, strides = value.element_size(), value.stride()
        self._text(str(strides))
        steps = tuple(size * stride for stride in strides)
        self._overlaps(value.data_ptr(), tuple(value.shape), steps, size)
        hooks = value._backward_hooks, getattr(value, "_post_accumulate_grad_hooks", None)
        self._all("beside", (value.grad if value.is_leaf else None, *hooks))
        self._by_name(value)

    def _overlaps(
        self, start: int, shape: tuple[int, ...], strides: tuple[int, ...], size: int
    ) -> None:
        """Take in which memory met before some numbers overlap, and where."""
        if 0 in shape or not start:
            return
        ends = [(n - 1) * stride for n, stride in zip(shape, strides, strict=True)]
        low, high = start + sum(e for e in ends if e < 0), start + sum(e for e in ends if e > 0)
        high += size
        for i, (a, b) in enumerate(self._memory):
            if low < b and a < high:
                self._text("overlaps", str(i), str(low - a))
        self._memory.append((low, high))

    # --- other objects --------------------------------------------------------------------------

    def _instance(self, value: Any, kind: type) -> None:
        name = getattr(value, "__qualname__", None)  # of a compiled function
        if isinstance(name, str) and self._named(
            value, str(getattr(value, "__module__", "")), name
        ):
            return
        self._text("instance")
        self.add(kind)
        installed = all(map(_of_library, kind.__mro__))
        base: Any = _opaque(kind)
        if base in _CONTAINERS:
            self._all("items", _CONTAINERS[base](value))
        elif base in _SETS:
            self._set(base.__iter__(value))
        elif base in _LEAVES:
            self._text(_LEAVES[base](_BARE[base](value)))
        elif base is not None or (installed and _reduces(kind)):
            self._reduced(value, kind)
            if installed:
                return
        self._attributes(value)

    def _set(self, values: Iterator[Any]) -> None:
        """Take in a set, whose order is another one in another process: of leaves alone."""
        found = []
        for one in values:
            if not _of_leaves(one):
                raise refused(f"a set of {type(one).__name__}")
            found.append(described(self._secret, one))
        self._text("set", str(len(found)), *sorted(found))

    def _by_name(self, value: Any) -> None:
        self._all("attributes", chain.from_iterable(getattr(value, "__dict__", {}).items()))

    def _attributes(self, value: Any) -> None:
        """Take in all that an object holds in attributes and slots."""
        self._by_name(value)
        held = []
        for c in type(value).__mro__:
            for name, slot in vars(c).items():
                if isinstance(slot, types.MemberDescriptorType):
                    with suppress(AttributeError):  # never set
                        held.append((c.__qualname__, name, slot.__get__(value)))
        self._all("slots", chain.from_iterable(held))

    def _reduced(self, value: Any, kind: type) -> None:
        """Take in what an installed package says that an object is, for its pickle."""
        for name in _REDUCERS:
            if not _of_library(_definer(kind, name)):
                raise refused(f"an object ({kind.__name__}) with a {name} of yours")
        try:
            by_type = copyreg.dispatch_table.get(kind)
            found: Any = value.__reduce_ex__(4) if by_type is None else by_type(value)
        except Exception:  # whatever it says of why it cannot
            found = None
        if isinstance(found, str):
            of = (getattr(value, "__module__", None), kind.__module__)
            if any(self._named(value, str(module), found) for module in of):
                return
        if not isinstance(found, tuple):
            raise refused(f"an object ({kind.__name__})")
        self._all("reduced", (list(p) if isinstance(p, Iterator) else p for p in found))
        seen: Any = value
        if isinstance(value, np.ma.MaskedArray):
            self.add(seen._mask)
        if not isinstance(value, np.ndarray):
            try:
                seen = np.asarray(memoryview(seen))
            except (TypeError, ValueError):  # it shows no memory
                return
        self._memory_of(seen)


def _of_leaves(value: Any) -> bool:
    if type(value) in (tuple, frozenset):
        return all(map(_of_leaves, value))
    return type(value) in _LEAVES


def _opaque(kind: type) -> type | None:
    """Return the class whose instances have memory that neither attributes nor slots show."""
    while kind is not object:
        base: Any = kind.__base__
        shown = sum(isinstance(v, types.MemberDescriptorType) for v in vars(kind).values())
        for name in ("__dictoffset__", "__weakrefoffset__"):
            shown += getattr(kind, name) not in (getattr(base, name), -1)
        if kind.__basicsize__ - base.__basicsize__ > _WORD * shown:
            return kind
        kind = base
    return None


def _definer(kind: type, name: str) -> type:
    return next((c for c in kind.__mro__ if name in vars(c)), object)


def _reduces(kind: type) -> bool:
    """Whether a class has a pickle of its own."""
    return kind in copyreg.dispatch_table or any(
        _definer(kind, name) is not object for name in _REDUCERS
    )


def _library(module: str) -> bool:
    """Whether a module is Python's, skdp's or of an installed package: known by its name."""
    top = module.partition(".")[0]
    found = sys.modules.get(top)
    if top == "skdp" or found is None:
        return top == "skdp"
    places = [getattr(found, "__file__", None) or "", *getattr(found, "__path__", ())]
    if places == [""]:
        return top in sys.builtin_module_names
    return any(place.startswith(_INSTALLED) for place in places)


def _of_library(kind: type) -> bool:
    """Whether a class is what its name leads to in an installed package, or one in C without."""
    if not _library(kind.__module__):
        return False
    return not kind.__flags__ & _HEAP_TYPE or _resolved(kind.__module__, kind.__qualname__) is kind


def _in_a_file(array: Any) -> bool:
    """Whether the memory of an array is that of a file, which other arrays may share."""
    while array is not None and not isinstance(array, mmap.mmap):
        array = array.obj if isinstance(array, memoryview) else getattr(array, "base", None)
    return array is not None


@functools.cache
def _version_of(module: str) -> str:
    top = module.partition(".")[0]
    if top in sys.stdlib_module_names:
        return platform.python_version()
    with suppress(PackageNotFoundError):
        return version(top)
    return str(getattr(sys.modules[top], "__version__", ""))


def _resolved(module: str, name: str) -> Any:
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def _found(value: Any, name: str) -> str:
    """Return the first installed module that has a compiled function, which names another."""
    return next((m for m in sorted(sys.modules) if _library(m) and _resolved(m, name) is value), "")


def _codes(code: types.CodeType) -> list[types.CodeType]:
    """Return a code and those inside it."""
    found = [code]
    for one in found:
        found += [const for const in one.co_consts if isinstance(const, types.CodeType)]
    return found


def _global_names(code: types.CodeType) -> Iterator[str]:
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
        return _library(name)
    return False


def _refuse_whole_modules(function: types.FunctionType, codes: list[types.CodeType]) -> None:
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
        if _library(value.__name__) and sys.modules.get(value.__name__) is value:
            return
        is_read = then is not None and then.opname in ("LOAD_ATTR", "LOAD_METHOD")
        is_asked = by_text and then is not None and then.opname == "LOAD_CONST"
        if then is None or not (is_read or (is_asked and isinstance(then.argval, str))):
            raise refused(f"a function that gives the module {value.__name__} away as a whole")
        value, by_text = vars(value).get(then.argval), False
