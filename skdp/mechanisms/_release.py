"""What mechanisms share: checks that quote no value, the charge, the call of one release."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from skdp._random import SecureStream, Streams
from skdp._release_hook import MechanismCall, grid_width
from skdp._validate import expected, in_range
from skdp.privacy.ledger import charge
from skdp.relations import check_relation

# Beyond these, ratios and multiples of parameters could leave the range of a double.
LEAST, MOST = 1e-150, 1e150
LEAST_EPSILON, MOST_EPSILON = 1e-9, 1e9


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
    charged: bool,
    release: Callable[[np.ndarray, MechanismCall, SecureStream], Any],
) -> np.ndarray:
    """Charge a release of values with noise of the mechanism's scale, and make it."""
    exact = numbers(values)
    if not np.isfinite(exact).all():
        raise ValueError(
            "Expected values to be finite; bound the contribution of every record before summing."
        )
    stream = charged_stream(mechanism, stream, charged)
    call = MechanismCall(
        kind,
        sensitivity=mechanism.sensitivity,
        scale=mechanism.scale,
        rate=1.0,
        shape=exact.shape,
        step=0,
        width=grid_width(mechanism.scale),
    )
    return np.asarray(release(exact, call, stream))


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


def charged_stream(mechanism: Any, stream: SecureStream | None, charged: bool) -> SecureStream:
    """Charge a release to open ledgers, unless it has been charged; return its random stream.

    The last thing before the values are used. Without a stream a new one is keyed by the operating
    system; whoever gives one may know its key, so the charge is then only nominal.
    """
    if stream is not None and not isinstance(stream, SecureStream):
        raise expected("a SecureStream or None", "None is the safe choice", stream=stream)
    if not charged:
        charge(
            mechanism.event(),
            label=type(mechanism).__name__,
            neighboring_relation=mechanism.neighboring_relation,
            nominal=stream is not None,
        )
    return Streams()("noise") if stream is None else stream
