"""The one hook through which every private release passes: record it, or replay it.

Tests need to see what a fit released and with which noise, and to run a fit on a neighbouring
data set with the *same* releases: whatever then still differs has leaked. Free in production: one
look-up of a context variable per release. Here, too, each output is put on its public grid
(`skdp._grid`): no mechanism can forget to.

>>> import numpy as np
>>> from skdp import _trace
>>> call = _trace.MechanismCall(
...     "gaussian", sensitivity=1.0, scale=2.0, rate=1.0, shape=(2,), step=0, width=2.0**-20
... )
>>> with _trace.record() as tape:
...     _ = _trace.release(call, lambda: np.zeros(2))
>>> tape[0].call.scale
2.0
>>> with _trace.replay([release.output for release in tape]) as again:
...     _trace.release(call, lambda: np.ones(2))
array([0., 0.])

References
----------
The record/replay idea: arXiv:2602.17454.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from skdp._grid import on_grid


@dataclass(frozen=True)
class MechanismCall:
    """What a release declares in public: never the data, never the noise.

    Attributes
    ----------
    kind : str
        Name of the mechanism, e.g. ``"gaussian"``.
    sensitivity : float
        How far neighbours can move the released value before noise (under the fit's relation).
    scale : float
        Scale of the noise: its standard deviation, or the parameter that its law is stated in.
    rate : float
        Probability that a record takes part (1.0: all of them).
    shape : tuple of int
        Shape of the released value.
    step : int
        Position in the run, from 0.
    width : float
        The released values are multiples of this power of two; 0 without noise, for no grid.
    """

    kind: str
    sensitivity: float
    scale: float
    rate: float
    shape: tuple[int, ...]
    step: int
    width: float


@dataclass(frozen=True)
class Release:
    """One recorded release: the call and what came out."""

    call: MechanismCall
    output: Any


_Hook = Callable[[MechanismCall, Callable[[], Any]], Any]
_hook: ContextVar[_Hook | None] = ContextVar("skdp_trace_hook", default=None)


def release(call: MechanismCall, mechanism: Callable[[], Any]) -> Any:
    """Run a mechanism, through the hook if a test has set one, and put its output on the grid."""

    def rounded() -> Any:
        return on_grid(mechanism(), call.width)

    hook = _hook.get()
    return rounded() if hook is None else hook(call, rounded)


@contextmanager
def _hooked(hook: _Hook) -> Iterator[None]:
    token = _hook.set(hook)
    try:
        yield
    finally:
        _hook.reset(token)


@contextmanager
def record() -> Iterator[list[Release]]:
    """Collect every release made inside the block, in order."""
    tape: list[Release] = []

    def hook(call: MechanismCall, mechanism: Callable[[], Any]) -> Any:
        tape.append(Release(call, mechanism()))
        return tape[-1].output

    with _hooked(hook):
        yield tape


@contextmanager
def replay(outputs: Iterable[Any]) -> Iterator[list[Release]]:
    """Return the given outputs instead of running the mechanisms; still record the calls."""
    tape: list[Release] = []
    frozen = iter(outputs)

    def hook(call: MechanismCall, mechanism: Callable[[], Any]) -> Any:
        tape.append(Release(call, next(frozen)))
        return tape[-1].output

    with _hooked(hook):
        yield tape
