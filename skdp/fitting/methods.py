"""Methods that a class inherits, under its own name.

Python names a method in a TypeError by the class that defines it, which is often one that the
caller has never heard of.
"""

from __future__ import annotations

from copy import copy
from functools import WRAPPER_ASSIGNMENTS
from inspect import getattr_static
from types import FunctionType
from typing import Any


def name_methods(cls: Any) -> None:
    """Give a class of skdp a copy of each public method that it inherits from another of skdp.

    It is for classes that users call: a copy in a class between would hide what its heirs inherit
    from others. A wrapper, which would name the class of the instance, would be one more frame
    below each warning.
    """
    for name in dir(cls) if _is_ours(cls) else ():
        if name.startswith("_") or name in vars(cls):
            continue
        method = getattr_static(cls, name)
        qualname, function = f"{cls.__qualname__}.{name}", getattr(method, "fn", method)
        if not isinstance(function, FunctionType) or not _is_ours(function):
            continue
        if method is function:
            setattr(cls, name, _copy(function, qualname))
        else:  # scikit-learn's ``available_if``
            other = copy(method)
            other.fn = _copy(function, qualname)
            setattr(cls, name, other)


def _is_ours(named: Any) -> bool:
    return named.__module__.startswith("skdp.")


def _copy(method: FunctionType, qualname: str) -> FunctionType:
    code, defaults, closure = method.__code__, method.__defaults__, method.__closure__
    other: Any = FunctionType(code, method.__globals__, method.__name__, defaults, closure)
    for attribute in WRAPPER_ASSIGNMENTS:
        setattr(other, attribute, getattr(method, attribute))
    other.__kwdefaults__, other.__qualname__ = method.__kwdefaults__, qualname
    vars(other).update(vars(method))
    return other
