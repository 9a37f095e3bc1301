"""`GeometricMechanism`: integers, once, with two-sided geometric noise: pure ε-DP, no δ.

Counts are integers, and so can their noise be: of law ∝ exp(−|x|/b), which falls by at most
exp(Δ₁/b) over a distance of Δ₁ in the L1 norm. So b = Δ₁/ε gives ε-DP, with less noise than the
Laplace law of the same ε (Ghosh, Roughgarden & Sundararajan, *Universally Utility-Maximizing
Privacy Mechanisms*, STOC 2009), and no double is involved: samples are exact, as in Canonne, Kamath
& Steinke (NeurIPS 2020).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from dp_accounting.dp_event import DpEvent

from skdp.engine import release_hook
from skdp.engine.discrete_laplace import MOST_NUMERATOR, discrete_laplace_integers
from skdp.engine.release_hook import MechanismCall
from skdp.fitting.streams import SecureStream
from skdp.fitting.types import ArrayLike
from skdp.fitting.validate import as_array, expected, in_range, integer
from skdp.mechanisms._release import EPSILONS, Mechanism
from skdp.privacy.events import PureDpEvent
from skdp.relations import ZERO_OUT, check_relation

MOST_NORM = 2**34
_MOST_VALUE = 2**61
_BITS = 50  # of the numerator of the scale, at most


@dataclass(frozen=True)
class GeometricMechanism(Mechanism[np.ndarray]):
    """Release a vector of integers with independent two-sided geometric noise.

    **Privacy.** The release is ε-DP for neighbours under ``neighboring_relation``, if one record
    contributes integers to the vector with absolute values that add up to at most ``record_norm``.
    Bounding it is the caller's responsibility. Every field is a public fact. Given ideal random
    bits this holds for what is implemented: no floating-point number is involved. Values are
    integers within ±2⁶¹.

    Parameters
    ----------
    record_norm : int
        Bound in [1, 2³⁴] on the L1 norm of *one record's contribution* to the whole vector: 1 for a
        histogram.
    epsilon : float
        Pure ε in [1e-9, 50].
    neighboring_relation : {"zero_out", "add_or_remove_one", "replace_one"}
        Who is a neighbour.

    Raises
    ------
    ValueError
        If a parameter is out of range, or the noise is finer or coarser than 64 bits hold.

    Examples
    --------
    >>> from skdp.mechanisms import GeometricMechanism
    >>> GeometricMechanism(1, epsilon=1.0, neighboring_relation="replace_one").scale
    Fraction(2, 1)
    >>> GeometricMechanism(record_norm=1, epsilon=50.0).release([3, 4])
    array([3, 4])
    """

    record_norm: int
    epsilon: float
    neighboring_relation: str = ZERO_OUT

    def __post_init__(self) -> None:
        self._settle(epsilon=(EPSILONS[0], 50.0))
        norm = integer(1, record_norm=self.record_norm)
        in_range(1, MOST_NORM, closed="both", record_norm=norm)
        object.__setattr__(self, "record_norm", norm)
        if self.scale.numerator > MOST_NUMERATOR:
            raise expected(
                "at least record_norm / 2**49", "64 bits hold no more noise", epsilon=self.epsilon
            )

    @property
    def sensitivity(self) -> int:
        """Δ: how far neighbours can move the vector; the bound on a record, or twice it."""
        return int(check_relation(self.neighboring_relation).factor) * self.record_norm

    @property
    def scale(self) -> Fraction:
        """b: the noise has law ∝ exp(−|x|/b). At least Δ/ε, by a part in 2⁵⁰/(Δ/ε) or less."""
        exact = self.sensitivity / Fraction(self.epsilon)
        bits = max(0, min(_BITS - math.ceil(exact).bit_length(), 40))
        return Fraction(math.ceil(exact * 2**bits), 2**bits)

    @property
    def standard_deviation(self) -> float:
        """√(2 e^(1/b))/(e^(1/b) − 1), of the noise on each number."""
        half = 0.5 / float(self.scale)
        return math.sqrt(0.5) / math.sinh(half)

    def event(self) -> DpEvent:
        """A mechanism of a pure ε: geometric noise is easier to tell apart than Laplace noise."""
        return PureDpEvent(self.epsilon)

    def _checked(self, values: ArrayLike) -> np.ndarray:
        return checked_integers(values)

    def _released(self, exact: np.ndarray, stream: SecureStream) -> np.ndarray:
        scale = self.scale
        call = MechanismCall(
            "geometric", self.sensitivity, float(scale), 1.0, exact.shape, 0, width=0.0
        )

        def noisy() -> np.ndarray:
            noise = discrete_laplace_integers(scale, exact.size, stream)
            return exact + noise.reshape(exact.shape)

        return release_hook.release(call, noisy)


def checked_integers(values: ArrayLike) -> np.ndarray:
    """Return the values in int64, or raise an error that quotes none of them."""
    exact = as_array(values)
    wrong = exact.dtype.kind not in "iu"
    if wrong or (exact.size and (exact.min() < -_MOST_VALUE or exact.max() > _MOST_VALUE)):
        raise ValueError("Expected values to be integers between -2**61 and 2**61.")
    return exact.astype(np.int64)
