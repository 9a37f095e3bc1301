"""What mechanisms share: checks that quote no value, the grid, one release through the trace."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from skdp import _trace
from skdp._random import SecureStream, Streams
from skdp._validate import expected, in_range
from skdp.relations import check_relation

# Beyond these, ratios and multiples of parameters could leave the range of a double.
LEAST, MOST = 1e-150, 1e150
LEAST_EPSILON, MOST_EPSILON = 1e-9, 1e9


# The cell of the output grid is 2^-20 to 2^-21 of the noise. Wide enough that a cell near the
# centre holds about 2^32 doubles of the noise, so that which of them the generator cannot make no
# longer shows; narrow enough to add less than 1e-13 to the variance.
GRID_BITS = 20


def check_fields(mechanism: Any) -> None:
    """Check the fields of a mechanism with additive noise, and make plain floats of them."""
    for name in ("record_norm", "scale"):
        value = within(LEAST, MOST, **{name: getattr(mechanism, name)})
        object.__setattr__(mechanism, name, value)
    check_relation(mechanism.neighboring_relation)


def within(low: float, high: float, **kw: Any) -> float:
    """Check for a number in [low, high]; of numpy's narrow types too, which hold no 1e150."""
    ((name, value),) = kw.items()
    plain = value.item() if isinstance(value, np.generic) else value
    return in_range(low, high, closed="both", **{name: plain})


def additive_release(
    kind: str,
    mechanism: Any,
    values: Any,
    stream: SecureStream | None,
    draw: Callable[[SecureStream, tuple[int, ...]], np.ndarray],
) -> np.ndarray:
    """Release values + scale · draw, on the grid, through the trace."""
    exact = numbers(values)
    if not np.isfinite(exact).all():
        raise ValueError(
            "Expected values to be finite; bound the contribution of every record before summing."
        )
    stream = checked_stream(stream)
    call = _trace.MechanismCall(
        kind,
        sensitivity=mechanism.sensitivity,
        scale=mechanism.scale,
        rate=1.0,
        shape=exact.shape,
        step=0,
    )

    def noisy() -> np.ndarray:
        noise = mechanism.scale * np.asarray(draw(stream, exact.shape))
        return round_to_grid(exact + noise, grid_width(mechanism.scale))

    return _trace.release(call, noisy)


def numbers(values: Any) -> np.ndarray:
    """Return the values in float64, with an error that quotes none of them."""
    try:
        array = np.asarray(values)
    except (TypeError, ValueError):
        array = np.asarray(None)
    if array.dtype.kind not in "iuf":
        raise ValueError(
            "Expected values to be an array of numbers; booleans, text and objects are refused."
        )
    with np.errstate(over="ignore"):  # a long double too large for a double is infinite
        return array.astype(np.float64)


def checked_stream(stream: SecureStream | None) -> SecureStream:
    """Return the stream, or a new one keyed by the operating system."""
    if stream is None:
        return Streams()("noise")
    if not isinstance(stream, SecureStream):
        raise expected("a SecureStream or None", "None is the safe choice", stream=stream)
    return stream


def grid_width(scale: float) -> float:
    """Largest power of two that is at most 2^-20 of the scale: a function of public facts alone."""
    _, exponent = math.frexp(scale)
    return math.ldexp(1.0, exponent - 1 - GRID_BITS)


def round_to_grid(values: np.ndarray, width: float) -> np.ndarray:
    """Round to the nearest multiples of a power of two; exact, and -0.0 becomes 0.0."""
    with np.errstate(over="ignore"):
        multiples = np.rint(values / width)
    # From 2^53 cells on, a double is a multiple already (and the quotient may be infinite).
    return np.where(np.abs(multiples) < 2.0**53, multiples * width, values) + 0.0
