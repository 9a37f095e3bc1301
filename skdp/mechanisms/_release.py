"""What mechanisms share: checks that quote no value, the charge, the call of one release."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from dp_accounting.dp_event import DpEvent

from skdp.engine.release_hook import MechanismCall, grid_width
from skdp.fitting.streams import SecureStream, Streams
from skdp.fitting.types import ArrayLike
from skdp.fitting.validate import as_array, expected, in_range
from skdp.privacy.ledger import charge
from skdp.relations import ZERO_OUT, check_relation

# Beyond these, ratios and multiples of parameters could leave the range of a double.
SIZES, EPSILONS = (1e-150, 1e150), (1e-9, 1e9)


Answer = TypeVar("Answer")


class Mechanism(Generic[Answer]):
    """What a mechanism declares; its fields are numbers, and the relation."""

    neighboring_relation: str

    def event(self) -> DpEvent:
        raise NotImplementedError

    def release(
        self, values: ArrayLike, stream: SecureStream | None = None, *, charged: bool = False
    ) -> Answer:
        """Charge the event to every open `PrivacyLedger`, then draw the answer.

        Parameters
        ----------
        values : array-like
            What to protect: numbers, of which the class says more. Their shape is public.
        stream : SecureStream, default=None
            Source of the noise; None draws a new key from the operating system. A stream that
            starts anew with a known key repeats its noise, and then protects nothing: what is
            charged with a stream of the caller's is marked nominal.
        charged : bool, default=False
            Whether the event has been charged already, as part of a larger one.

        Returns
        -------
        ndarray or int
            The noisy vector, of the shape of ``values``; or the place of the largest value.

        Raises
        ------
        ValueError
            If the values are of another kind, or not finite. The message holds none of them; but
            that it is raised at all depends on them, so bound each record before summing.
        BudgetExceededError
            If an open ledger refuses the release; the values have not been used then.
        """
        exact = self._checked(values)
        return self._released(exact, charged_stream(self, stream, charged))

    def _checked(self, values: ArrayLike) -> np.ndarray:
        raise NotImplementedError

    def _released(self, exact: np.ndarray, stream: SecureStream) -> Answer:
        raise NotImplementedError

    def _settle(self, **ranges: tuple[float, float]) -> None:
        """Check the fields, and make plain numbers of them."""
        for name, (low, high) in ranges.items():
            object.__setattr__(self, name, within(low, high, **{name: getattr(self, name)}))
        check_relation(self.neighboring_relation)


@dataclass(frozen=True)
class AdditiveMechanism(Mechanism[np.ndarray]):
    """A vector released with independent noise of one scale; the fields as in a subclass."""

    record_norm: float
    scale: float
    neighboring_relation: str = ZERO_OUT
    _kind: ClassVar[str]

    def __post_init__(self) -> None:
        self._settle(record_norm=SIZES, scale=SIZES)

    @property
    def sensitivity(self) -> float:
        """Δ: how far neighbours can move the vector; the bound on a record, or twice it."""
        return check_relation(self.neighboring_relation).factor * self.record_norm

    def _checked(self, values: ArrayLike) -> np.ndarray:
        exact = numbers(values)
        if not np.isfinite(exact).all():
            raise ValueError(
                "Expected values to be finite; bound what every record contributes before summing."
            )
        return exact

    def _released(self, exact: np.ndarray, stream: SecureStream) -> np.ndarray:
        width = grid_width(self.scale)
        call = MechanismCall(self._kind, self.sensitivity, self.scale, 1.0, exact.shape, 0, width)
        return np.asarray(self._noisy(exact, call, stream))

    def _noisy(self, exact: np.ndarray, call: MechanismCall, stream: SecureStream) -> ArrayLike:
        raise NotImplementedError


def within(low: float, high: float, **kw: float) -> float:
    """Check for a number in [low, high]; of numpy's narrow types too, which hold no 1e150."""
    ((name, value),) = kw.items()
    plain = value.item() if isinstance(value, np.generic) else value
    return in_range(low, high, "", closed="both", **{name: plain})


def numbers(values: ArrayLike) -> np.ndarray:
    """Return the values in float64, with an error that quotes none of them."""
    array = as_array(values)
    if array.dtype.kind not in "iuf":
        raise ValueError(
            "Expected values to be an array of numbers; booleans, text and objects are refused."
        )
    with np.errstate(over="ignore"):  # a long double too large for a double is infinite
        return array.astype(np.float64)


def charged_stream(
    mechanism: Mechanism[Any], stream: SecureStream | None, charged: bool
) -> SecureStream:
    """Charge a release to open ledgers, unless it has been, and return its random stream.

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
