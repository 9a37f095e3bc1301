"""The one hook through which every private release passes, and the public grid on which it ends.

Tests need to see what a fit released and with which noise, and to run a fit on a neighbouring
data set with the *same* releases: whatever then still differs has leaked. Free in production: one
look-up of a context variable per release.

The theorems are about real numbers; what leaves is a double. Which doubles a noisy sum can be
depends on the sum (Mironov, *On Significance of the Least Significant Bits for Differential
Privacy*, CCS 2012), so a raw double can refute a data set with certainty. Released values are
therefore rounded, here, where no mechanism can forget to, to multiples of a power of two that is a
function of public facts: in exact arithmetic post-processing, and free; in doubles a mitigation,
not a proof.

>>> import numpy as np
>>> from skdp.engine import release_hook
>>> call = release_hook.MechanismCall(
...     "gaussian", sensitivity=1.0, scale=2.0, rate=1.0, shape=(2,), step=0, width=2.0**-20
... )
>>> with release_hook.record() as tape:
...     _ = release_hook.release(call, lambda: np.zeros(2))
>>> tape[0].call.scale
2.0
>>> with release_hook.replay([release.output for release in tape]) as again:
...     release_hook.release(call, lambda: np.ones(2))
array([0., 0.])
>>> width = release_hook.grid_width(3.0)
>>> width == 2.0**-19
True
>>> bool((np.fmod(release_hook.on_grid(np.array([0.1, -7.3]), width), width) == 0).all())
True

The idea of recording and replaying is that of arXiv:2602.17454.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar

# The cell is 2^-20 to 2^-21 of the noise. Wide enough that a cell near the centre holds about 2^32
# doubles of the noise, so that which of them the generator cannot make no longer shows; narrow
# enough to add less than 1e-13 to the variance.
GRID_BITS = 20


LEAST_SCALE, MOST_SCALE = 1e-290, 1e290  # the grid, and what rounds to it, stay in normal doubles


@dataclass(frozen=True)
class MechanismCall:
    """What a release declares in public: never the data, never the noise.

    ``kind`` is the mechanism, e.g. ``"gaussian"``; ``sensitivity`` how far neighbours can move the
    value before noise, under the fit's relation; ``scale`` the deviation of the noise, or the
    parameter of its law; ``rate`` the probability that a record takes part. ``shape`` is that of
    the value, ``step`` its position in the run, from 0. Values are multiples of ``width``, a power
    of two; 0 without noise, for no grid.
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


_T = TypeVar("_T")

_Hook = Callable[[MechanismCall, Callable[[], Any]], Any]

_hook: ContextVar[_Hook | None] = ContextVar("skdp_trace_hook", default=None)


def release(call: MechanismCall, mechanism: Callable[[], _T]) -> _T:
    """Run a mechanism, through the hook if a test has set one, and put its output on the grid."""

    def rounded() -> _T:
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
def _taped(
    noted: Callable[[Callable[[], Any]], Any], given: Iterator[Any] | None = None
) -> Iterator[list[Release]]:
    """Note something of each mechanism; the fit goes on with that, or with what is given."""
    tape: list[Release] = []

    def hook(call: MechanismCall, mechanism: Callable[[], Any]) -> Any:
        tape.append(Release(call, noted(mechanism)))
        return tape[-1].output if given is None else next(given)

    with _hooked(hook):
        yield tape


def record() -> AbstractContextManager[list[Release]]:
    """Collect every release made inside the block, in order."""
    return _taped(lambda mechanism: mechanism())


def replay(outputs: Iterable[Any]) -> AbstractContextManager[list[Release]]:
    """Return the given outputs instead of running the mechanisms; still record the calls."""
    frozen = iter(outputs)
    return _taped(lambda _: next(frozen))


def rerun(outputs: Iterable[Any]) -> AbstractContextManager[list[Release]]:
    """Return the given outputs, and record what the mechanisms give after them instead."""
    return _taped(lambda mechanism: mechanism(), iter(outputs))


def grid_width(scale: float) -> float:
    """Largest power of two that is at most 2^-20 of a noise scale; 0, which is no grid, at 0."""
    if scale == 0.0:
        return 0.0
    if not LEAST_SCALE <= scale <= MOST_SCALE:
        raise ValueError(
            f"Expected noise of a scale from {LEAST_SCALE:g} to {MOST_SCALE:g}, got {scale:.3g}: "
            "released values end on a grid in proportion to it, and doubles hold none so fine or "
            "coarse. Rescale the data, or use another clip_norm, data_norm or noise_multiplier."
        )
    _, exponent = math.frexp(scale)
    return math.ldexp(1.0, exponent - 1 - GRID_BITS)


def on_grid(values: Any, width: float) -> Any:
    """Round an array or a tensor to multiples of a power of two, ties to even, -0.0 to 0.0.

    A width of 0 leaves the values as they are.
    """
    # A sum with this has no digits below the width, and none that a double loses above it; values
    # beyond 2^51 widths lose a unit in the last place, and are multiples of the width too.
    if width == 0.0:
        return values
    far = 1.5 * 2.0**52 * width
    rounded = values + far
    rounded -= far
    return rounded
