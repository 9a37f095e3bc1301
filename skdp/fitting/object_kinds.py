"""Kinds of objects that `skdp.fitting.object_mac` tells apart, and what is read of each."""

from __future__ import annotations

import abc
import copyreg
import functools
import hmac
import struct
import types
from collections import OrderedDict, deque
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
