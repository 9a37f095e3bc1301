"""Two objects have one hash only if they are the same: types, leaves, order and sharing."""

import abc
import copy
import dataclasses
import functools
import importlib
import mmap
import sys
import types
from collections import deque

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from skdp.fitting.checkpoint import described

# --- a fuzzer over graphs of objects ------------------------------------------------------------


class Node:
    def __init__(self, parts):
        self.kept = parts


class Slotted:
    __slots__ = ("a", "b")


class Reduced(Node):
    def __reduce__(self):  # says nothing of what it holds
        return Reduced, (1,)

    def __getstate__(self):
        return None


class Named(list):
    pass


def function(parts):
    def made(x, scale=None, *, by=None):
        return x, parts

    made.__defaults__, made.kept = (parts[:1],), parts[1:]
    return made


def slotted(parts):
    found = Slotted()
    found.a, found.b = parts[: len(parts) // 2], parts[len(parts) // 2 :]
    return found


def named(parts):
    found = Named(parts)
    found.kept = parts[:1]
    return found


def module(parts):
    found = torch.nn.Module()
    found.kept, found.weight = parts, torch.nn.Parameter(torch.ones(2))
    return found


KINDS = {
    "list": list,
    "tuple": tuple,
    "dict": lambda parts: dict(enumerate(parts)),
    "object": Node,
    "slots": slotted,
    "says nothing": Reduced,
    "a list with attributes": named,
    "function": function,
    "partial": lambda parts: functools.partial(max, *parts, key=len),
    "method": lambda parts: types.MethodType(function(parts), parts),
    "module": module,
    "array of objects": lambda parts: np.array([None, *parts, None], dtype=object),
}
LEAVES = [
    None, True, 1, 1.0, -0.0, 0.0, 1j, "1", b"1", "", np.float64(1.0), np.float32(1.0), np.int64(1),
    range(3), frozenset({1, "a"}), float("nan"), 2**200, ...,
]  # fmt: skip
ARRAYS = [
    np.arange(6.0), np.arange(6), np.arange(6.0).reshape(2, 3), torch.arange(6.0),
    torch.arange(6.0).reshape(3, 2), torch.ones(6, dtype=torch.bfloat16), torch.zeros(0),
]  # fmt: skip


@st.composite
def plans(draw):
    """Return a plan of a graph: kinds of nodes, and which earlier ones each holds."""
    plan = [("leaf", i) for i in draw(st.lists(st.integers(0, len(LEAVES) - 1), max_size=3))]
    plan += [("array", i) for i in draw(st.lists(st.integers(0, len(ARRAYS) - 1), max_size=2))]
    plan.append(("leaf", 2))
    for kind in draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=6)):
        places = st.integers(0, len(plan) - 1)
        plan.append((kind, tuple(draw(st.lists(places, min_size=1, max_size=3)))))
    return plan


def built(plan):
    nodes = []
    for kind, of in plan:
        if kind == "leaf":
            nodes.append(LEAVES[of])
        elif kind == "array":
            nodes.append(copy.deepcopy(ARRAYS[of]))
        else:
            nodes.append(KINDS[kind]([nodes[i] for i in of]))
    return nodes[-1]


def changed(plan, at, to):
    """Let one place of a plan be of another kind, leaf, array or node."""
    kind, of = plan[at]
    if kind == "leaf":
        new = kind, to % len(LEAVES)
    elif kind == "array":
        new = kind, to % len(ARRAYS)
    else:
        new = kind, (*of[:-1], to % at)
    return [*plan[:at], new, *plan[at + 1 :]]


def shape_of(plan):
    """Return a plan without what its last node does not hold: the oracle for being the same."""
    names, rows = {}, []

    def visit(i):
        kind, of = plan[i]
        if kind == "leaf":
            return ("leaf", of)
        if i not in names:
            names[i] = len(names)
            rows.append((names[i], kind, of if kind == "array" else tuple(map(visit, of))))
        return names[i]

    return visit(len(plan) - 1), tuple(rows)


@given(plan=plans(), at=st.integers(0, 99), to=st.integers(0, 99))
@settings(max_examples=400, deadline=None)
def test_graphs_have_one_hash_if_and_only_if_they_are_the_same(plan, at, to):
    other = changed(plan, at % len(plan), to)
    one = described(b"key", built(plan))
    assert one == described(b"key", built(plan))
    assert (one == described(b"key", built(other))) == (shape_of(plan) == shape_of(other))


def test_cycles_are_followed():
    def ring(n):
        first = last = Node([])
        for _ in range(n - 1):
            last.kept = Node([])
            last = last.kept
        last.kept = first
        return first

    found = [described(b"key", ring(n)) for n in (1, 2, 3, 1, 2, 3)]
    assert found[:3] == found[3:]
    assert len({*found}) == 3


# --- what once was the same ---------------------------------------------------------------------

HERE = sys.modules[__name__]
GAIN = 1.0


def of_code(text, name="h", **given):
    scope = {"__name__": __name__, **given}
    exec(text, scope)
    return scope[name]


def by_attribute(gain):
    def h(x):
        return x * h.gain

    h.gain = gain
    return h


def sharing(twice):
    kept = [[0.0], [0.0]]
    return lambda: kept, (kept[0], kept[not twice])


def views(shared):
    array = np.zeros(4)
    return array[:2], array[1:3] if shared else array[2:]


def tied(shared):
    first, second = torch.zeros(4), torch.zeros(4)
    return first[:2], (first if shared else second)[:2]


def with_hook(by):
    layer = torch.nn.Linear(2, 2)
    with torch.no_grad():
        for p in layer.parameters():
            p.zero_()
    layer.register_forward_hook(lambda m, x, y: y * by)
    return layer


def layers(*places):
    kept = [torch.nn.Linear(2, 2) for _ in range(2)]
    for layer in kept:
        for p in layer.parameters():
            p.requires_grad_(False).zero_()
    return torch.nn.Sequential(*(kept[i] for i in places))


def class_of(by):
    class Scaled:
        scale = by

    return Scaled


def cells(shared):
    one = [0.0]

    def made(x):
        def f():
            return x

        def g():
            return x

        return f, g

    f, g = made(one)
    return (f, g) if shared else (f, made(one)[1])


class Constant(str):
    def __str__(self):
        return "the same"


class Whole(int):
    def __int__(self):
        return 0


class Pale(bytes):
    def __bytes__(self):
        return b""


def of_field(scale):
    @dataclasses.dataclass
    class Recorded:
        x: float = dataclasses.field(default=1.0, metadata={"scale": scale})

    return Recorded


def made_by_dataclasses(scale):
    hidden = {"__getstate__": lambda self: {}}
    return dataclasses.make_dataclass("Made", ["scale"], namespace=hidden)(scale)


def objects(shared):
    array = np.array([1, "x"], dtype=object)
    return array, array[:] if shared else array.copy()


def buffers(shared):
    memory = bytearray(8)
    return memory, np.frombuffer(memory if shared else bytearray(8), np.uint8)


def masked(shared):
    array = np.ma.MaskedArray([1.0, 2.0], mask=[0, 1])
    return array, array._mask if shared else array._mask.copy()


def lazy(scale):
    module = types.ModuleType("of_the_users")
    exec("def __getattr__(name): return SCALE", vars(module))
    module.SCALE = scale
    return of_code("def h(x): return x * m.gain", m=module)


def after_a_gradient(by):
    weight = torch.ones(2, requires_grad=True)
    weight.register_post_accumulate_grad_hook(of_code(f"def h(p): p.grad *= {by}"))
    return weight


PAIRS = {
    "how much a queue holds": (deque([1], 2), deque([1], 3)),
    "text of a class of the user's": (Constant("relu"), Constant("tanh")),
    "a number of a class of the user's": (Whole(1), Whole(2)),
    "bytes of a class of the user's": (Pale(b"a"), Pale(b"b")),
    "what is said of a field": (of_field(1.0), of_field(2.0)),
    "an object whose class says that it is Python's": (
        made_by_dataclasses(1.0),
        made_by_dataclasses(2.0),
    ),
    "arrays of objects that share memory": (objects(True), objects(False)),
    "bytes that share memory": (buffers(True), buffers(False)),
    "a mask that is shared": (masked(True), masked(False)),
    "an array that is not written to": (np.zeros(2), np.broadcast_to(np.zeros(2), 2)),
    "what a type of numbers says": (
        np.zeros(2, np.dtype(float, metadata={"scale": 1})),
        np.zeros(2, np.dtype(float, metadata={"scale": 2})),
    ),
    "what a module gives by a function": (lazy(1.0), lazy(2.0)),
    "a builtin of its own": (
        of_code("def h(x): return gain", __builtins__={"gain": 1.0}),
        of_code("def h(x): return gain", __builtins__={"gain": 2.0}),
    ),
    "a hook after a gradient": (after_a_gradient(1.0), after_a_gradient(2.0)),
    "an attribute of a function": (by_attribute(1.0), by_attribute(2.0)),
    "which object was met": ((a := [0.0], b := [0.0], a), (a, b, b)),
    "a layer that is used again": (layers(0, 1, 0), layers(0, 1, 1)),
    "names of arguments": (
        of_code("def h(a, b): return a - 2 * b"),
        of_code("def h(b, a): return b - 2 * a"),
    ),
    "a keyword alone": (of_code("def h(a, b=1): return a"), of_code("def h(a, *, b=1): return a")),
    "defaults of keywords": (
        of_code("def h(*, b=1): return b"),
        of_code("def h(*, b=2): return b"),
    ),
    "zero's sign": (of_code("def h(): return 0.0"), of_code("def h(): return -0.0")),
    "a true one": (of_code("def h(): return 1"), of_code("def h(): return True")),
    "a nested function": (
        of_code("def h(x):\n def g(a, b): return a - b\n return g(b=x, a=1)"),
        of_code("def h(x):\n def g(b, a): return b - a\n return g(b=x, a=1)"),
    ),
    "a caught error": (
        of_code("def h(x):\n try:\n  return 1 / x\n except ZeroDivisionError:\n  return 0"),
        of_code("def h(x):\n try:\n  return 1 / x\n except OverflowError:\n  return 0"),
    ),
    "a global": (of_code("def h(x): return x * G", G=1), of_code("def h(x): return x * G", G=2)),
    "a global that hides a builtin": (
        of_code("def h(x): return abs(x)"),
        of_code("def h(x): return abs(x)", abs=abs_ if (abs_ := (lambda x: x)) else None),
    ),
    "arrays that share memory": (views(True), views(False)),
    "tensors that share memory": (tied(True), tied(False)),
    "a hook": (with_hook(1.0), with_hook(2.0)),
    "a class": (class_of(1.0), class_of(2.0)),
    "a closure that two functions share": (cells(True), cells(False)),
    "order of a dict": ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    "order of an array": (np.ones((2, 3)), np.asfortranarray(np.ones((2, 3)))),
    "a gradient that is wanted": (torch.ones(2), torch.ones(2).requires_grad_()),
    "bits of a NaN": (np.frombuffer(b"\1" + 5 * b"\0" + b"\xf8\x7f"), np.array([np.nan])),
}


@pytest.mark.parametrize("name", PAIRS)
def test_two_that_differ_differ(name):
    one, other = PAIRS[name]
    assert described(b"key", one) != described(b"key", other)
    assert described(b"key", one) == described(b"key", one)


def test_functions_are_followed_into_other_modules_of_the_users(monkeypatch):
    other = types.ModuleType("of_the_users")
    exec("SCALE = 1.0\nUNUSED = 1\ndef times(x): return x * SCALE", vars(other))
    other.times.__module__ = "of_the_users"
    direct = of_code("def h(x): return times(x)", times=other.times)
    by_name = of_code("def h(x): return m.times(x)", m=other)
    by_text = of_code("def h(x): return getattr(m, 'times')(x)", m=other)
    before = [described(b"key", f) for f in (direct, by_name, by_text)]
    other.UNUSED = 2
    assert before == [described(b"key", f) for f in (direct, by_name, by_text)]
    other.SCALE = 2.0
    after = [described(b"key", f) for f in (direct, by_name, by_text)]
    assert not {*before} & {*after}


Registered = abc.ABCMeta("Registered", (), {})
Registered.register(float)  # which no attribute says

UNKNOWN = {
    "eval": of_code("def h(x): return eval('x')"),
    "globals": of_code("def h(x): return globals()['GAIN'] * x"),
    "an import of the user's": of_code(f"def h(x):\n import {__name__} as m\n return m.GAIN"),
    "a relative import": of_code("def h(x):\n from . import random\n return random"),
    "its own code": of_code("def h(x): return h.__code__"),
    "its own globals, by a text": of_code("def h(x): return getattr(h, '__globals__')"),
    "eval by another name": of_code("def h(x): return e('x')", e=eval),
    "a module by its name": of_code("def h(x): return i.import_module('m').G", i=importlib),
    "all modules": of_code("def h(x): return sys.modules['m'].GAIN", sys=sys),
    "a module that is passed on": of_code("def h(x): return g(m)", m=HERE, g=by_attribute(1.0)),
    "a name that is computed": of_code("def h(x): return getattr(m, x)", m=HERE),
    "a module of a class of its own": of_code(
        "def h(x): return m.GAIN", m=type("Odd", (types.ModuleType,), {"GAIN": 1.0})("odd")
    ),
    "a class at which others are registered": Registered,
    "an array that is a file": np.frombuffer(mmap.mmap(-1, 8), np.uint8),
    "a module in an object": Node(HERE),
    "a set of objects": {Slotted()},
    "a tensor with a graph": torch.ones(2, requires_grad=True) * 2,
    "a cache": functools.lru_cache(by_attribute(1.0)),
    "a generator": (i for i in "a"),
    "a subclass in C that says what it is": type(
        "Mine", (np.random.RandomState,), {"__reduce__": lambda self: (int, ())}
    )(0),
    "too deep": functools.reduce(lambda inner, _: [inner], range(3000), []),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_may_be_anything_is_refused(name):
    with pytest.raises(ValueError, match="cannot be told from another one of its kind"):
        described(b"key", UNKNOWN[name])
