"""A keyed hash of an object that two objects share only if they are the same in all that is read.

A run that is resumed makes steps again with the same noise. If it computed another sum, the two
would differ by what no noise covers. So its parameters are compared by an encoding that is
injective on a closed grammar, which docs/privacy.md, section 12, states with what follows from it
and what is assumed; whatever lies outside the grammar is refused, never approximated.

    same encoding  =>  isomorphic object graphs: types, leaves bit by bit, order, and *sharing*

>>> from skdp.fitting.object_mac import described
>>> a, b = [1.0], [1.0]
>>> described(b"key", (a, b, a)) == described(b"key", (b, a, b))
True
>>> described(b"key", (a, b, a)) == described(b"key", (a, b, b))
False
"""

from __future__ import annotations

import copyreg
import functools
import gc
import sys
import types
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import chain
from typing import Any

import numpy as np

from skdp.fitting import object_kinds as kinds


def described(secret: bytes, value: Any) -> str:
    """Return a keyed hash (HMAC-SHA256) of all that an object is.

    Without the secret it tells nothing of the object. An object that cannot be told from another,
    or that refers to such a one, raises ValueError.
    """
    walk = _Walk(secret)
    try:
        walk.add(value)
    except RecursionError:
        raise kinds.refused("objects nested deeper than Python can follow") from None
    return walk.mac.hexdigest()


class _Walk:
    """One walk through a graph of objects, each of which is taken in at its first visit."""

    def __init__(self, secret: bytes) -> None:
        self.mac, self._secret = kinds.Mac(secret, "object"), secret
        self._seen: dict[Any, int] = {}
        self._kept: list[Any] = []  # or another object could get the place of one in memory
        self._memory: list[tuple[int, int]] = []

    def add(self, value: Any, names: frozenset[str] | None = None) -> None:
        """Take in an object; a module by those of its attributes that have the names."""
        kind = type(value)
        if kind in kinds.LEAVES:
            self._text("leaf", kind.__name__, kinds.LEAVES[kind](value))
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
        elif kind in kinds.FIELDS:
            self._all(kind.__name__, (getattr(value, name) for name in kinds.FIELDS[kind]))
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
        if (
            isinstance(value, types.BuiltinFunctionType)
            and kinds.resolved(module, name) is not value
        ):
            module = kinds.found_in(value, name)
        if self._named(value, module, name):
            return
        if isinstance(value, type):
            self._class(value, module, name)
        elif isinstance(value, types.FunctionType):
            self._function(value)
        elif isinstance(value.__self__, types.ModuleType | type(None)):
            raise kinds.refused(f"{name}, which is not what its name leads to")
        else:
            self._all("bound", (value.__name__, value.__self__))

    def _named(self, value: Any, module: str, name: str) -> bool:
        """Take in the name of what an installed package has under it; say if it was that."""
        if not kinds.library(module) or kinds.resolved(module, name) is not value:
            return False
        if any(value is one for one in kinds.READ_MORE):
            raise kinds.refused(f"a function that calls {name}")
        self._text("library", module, name, kinds.version_of(module))
        return True

    def _class(self, value: type, module: str, name: str) -> None:
        self._text("class", module, name)
        self.add(type(value))
        self._all("bases", value.__bases__)
        held = {k: v for k, v in vars(value).items() if k not in kinds.OF_CLASSES}
        for field in vars(value).get("__dataclass_fields__", {}).values():
            about = [getattr(field, name) for name in kinds.OF_FIELDS]
            self._all(f"field {field.name}", (*about, repr(field._field_type)))
        if "_abc_impl" in vars(value) and kinds.DUMP(value)[0]:
            raise kinds.refused(f"a class ({name}) at which others are registered")
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
        codes = kinds.codes_in(function.__code__)
        names = frozenset(
            name
            for code in codes
            for name in (*code.co_names, *(c for c in code.co_consts if type(c) is str))
        )
        self._text("closure", str(len(function.__closure__ or ())))
        for cell in function.__closure__ or ():
            self._cell(cell, names)
        self._by_name(function)
        kinds.refuse_whole_modules(function, codes)
        known: Any = function.__builtins__  # type: ignore
        for name in sorted({name for code in codes for name in kinds.global_names(code)}):
            self._text("global", name)
            if name in function.__globals__:
                self.add(function.__globals__[name], names)
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
        if kinds.library(name) and sys.modules.get(name) is module:
            self._text(kinds.version_of(name))
        elif names is None:
            raise kinds.refused(f"the module {name}")
        elif not self._met((id(module), names)):
            if type(module) is not types.ModuleType:
                raise kinds.refused(f"the module {name}, which is of a class of its own")
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
            raise kinds.refused(f"an array of {array.dtype}")
        else:
            self._text(str(array.shape))
            self._all("objects", array.ravel())
        self._memory_of(array)

    def _memory_of(self, array: np.ndarray) -> None:
        if array.flags.writeable and kinds.in_a_file(array):
            raise kinds.refused("an array that is written to a file")
        self._overlaps(array.ctypes.data, array.shape, array.strides, array.itemsize)

    def _tensor(self, value: Any) -> None:
        torch: Any = sys.modules["torch"]
        self.add(type(value))
        if value.grad_fn is not None:
            raise kinds.refused("a tensor that was computed from others (detach it)")
        about = value.dtype, value.layout, value.device, value.shape, value.requires_grad
        self._text("tensor", *map(str, (*about, value.is_inference())))
        if value.layout is not torch.strided:
            self._all("sparse", torch.Tensor.__reduce_ex__(value, 4))
            return
        try:
            plain = value.detach().resolve_conj().resolve_neg().cpu().contiguous().reshape(-1)
            self.mac.add(plain.view(torch.uint8).numpy())
        except (RuntimeError, TypeError, NotImplementedError):
            raise kinds.refused(f"a tensor of {value.dtype}") from None
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
        installed = all(map(kinds.of_library, kind.__mro__))
        base: Any = kinds.opaque(kind)
        if base in kinds.CONTAINERS:
            self._all("items", kinds.CONTAINERS[base](value))
        elif base in kinds.SETS:
            self._set(base.__iter__(value))
        elif base in kinds.LEAVES:
            self._text(kinds.LEAVES[base](kinds.BARE[base](value)))
        elif base is not None or (installed and kinds.reduces(kind)):
            self._reduced(value, kind)
            if installed:
                return
        self._attributes(value)

    def _set(self, values: Iterator[Any]) -> None:
        """Take in a set, whose order is another one in another process: of leaves alone."""
        found = []
        for one in values:
            if not kinds.of_leaves(one):
                raise kinds.refused(f"a set of {type(one).__name__}")
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
        for name in kinds.REDUCERS:
            if not kinds.of_library(kinds.definer(kind, name)):
                raise kinds.refused(f"an object ({kind.__name__}) with a {name} of yours")
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
            raise kinds.refused(f"an object ({kind.__name__})")
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
