"""What mechanisms share: checks that quote no value, the charge, the call of one release."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from skdp._random import SecureStream, Streams
from skdp._release_hook import MechanismCall, grid_width
from skdp._types import ArrayLike
from skdp._validate import expected, in_range
from skdp.privacy.ledger import charge
from skdp.relations import ZERO_OUT, check_relation

# Beyond these, ratios and multiples of parameters could leave the range of a double.
LEAST, MOST = 1e-150, 1e150
LEAST_EPSILON, MOST_EPSILON = 1e-9, 1e9


@dataclass(frozen=True)
class AdditiveMechanism:
    """A vector released with independent noise of one scale; the fields as in a subclass."""

    record_norm: float
    scale: float
    neighboring_relation: str = ZERO_OUT

    def __post_init__(self) -> None:
        for name in ("record_norm", "scale"):
            value = within(LEAST, MOST, **{name: getattr(self, name)})
            object.__setattr__(self, name, value)
        check_relation(self.neighboring_relation)

    @property
    def sensitivity(self) -> float:
        """Δ: how far neighbours can move the vector; the bound on a record, or twice it."""
        return check_relation(self.neighboring_relation).factor * self.record_norm

    def _opened(
        self, kind: str, values: ArrayLike, stream: SecureStream | None, charged: bool
    ) -> tuple[np.ndarray, MechanismCall, SecureStream]:
        """Charge a release; return the values, what it declares, and its random stream."""
        exact = numbers(values)
        if not np.isfinite(exact).all():
            raise ValueError(
                "Expected values to be finite; bound the contribution of every record before "
                "summing."
            )
        stream, width = charged_stream(self, stream, charged), grid_width(self.scale)
        call = MechanismCall(kind, self.sensitivity, self.scale, 1.0, exact.shape, 0, width)
        return exact, call, stream


def within(low: float, high: float, **kw: float) -> float:
    """Check for a number in [low, high]; of numpy's narrow types too, which hold no 1e150."""
    ((name, value),) = kw.items()
    plain = value.item() if isinstance(value, np.generic) else value
    return in_range(low, high, "", closed="both", **{name: plain})


def numbers(values: ArrayLike) -> np.ndarray:
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
