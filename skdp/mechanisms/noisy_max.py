"""`NoisyMaxMechanism`: which of several sums over records is the largest, and nothing else.

Each sum has geometric noise added, and the place of the largest is told. That costs no more for a
hundred sums than for two: a record moves all of them together, and for one of them to win, given
the noise of the others, its own noise has to pass a number that moves by the range of the record's
contributions at most. See McKenna & Sheldon, *Permute-and-Flip: A New Mechanism for Differentially
Private Selection*, NeurIPS 2020, and Ding et al., *The Permute-and-Flip Mechanism is Identical to
Report-Noisy-Max with Exponential Noise*, 2021 (arXiv:2105.07260).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from dp_accounting.dp_event import DpEvent

from skdp.engine import release_hook
from skdp.engine.discrete_laplace import geometric_integers
from skdp.engine.release_hook import MechanismCall
from skdp.fitting.streams import SecureStream
from skdp.fitting.types import ArrayLike
from skdp.mechanisms._release import Mechanism
from skdp.mechanisms.geometric import GeometricMechanism, checked_integers
from skdp.privacy.events import PureDpEvent
from skdp.relations import ZERO_OUT


@dataclass(frozen=True)
class NoisyMaxMechanism(Mechanism[int]):
    """Release the place of the largest of several integers, each with geometric noise.

    **Privacy.** The release is ε-DP for neighbours under ``neighboring_relation``, if what one
    record contributes to any two of the integers differs by at most ``record_range``, and what a
    null record contributes is 0. Bounding it is the caller's responsibility. Every field is a
    public fact. Given ideal random bits this holds for what is implemented. Values are one or more
    integers within ±2⁶¹; the place is from 0 on, of equals the first.

    Parameters
    ----------
    record_range : int
        Largest minus smallest of *one record's contributions*, in [1, 2³⁴]: 1 for counts of right
        predictions.
    epsilon : float
        Pure ε in [1e-9, 50].
    neighboring_relation : {"zero_out", "add_or_remove_one", "replace_one"}
        Who is a neighbour.

    Raises
    ------
    ValueError
        If a parameter is out of range, or the noise is finer or coarser than 64 bits hold.

    Notes
    -----
    Let neighbours move the integers by numbers that are no more than Δ apart: Δ is the range, or
    twice it under ``replace_one``. Given the noise of all others, i wins
    if its own is at least an integer t; for the neighbour that is at most t + Δ. Noise on 0, 1, 2,
    ... with P(at least k) = e^(-k/b), b ≥ Δ/ε, is at least t + Δ with no less than e^-ε times the
    probability of at least t, for each t. Averaging over the noise of the others keeps it.

    Examples
    --------
    >>> from skdp.mechanisms import NoisyMaxMechanism
    >>> mechanism = NoisyMaxMechanism(record_range=1, epsilon=1.0)
    >>> mechanism.release([10, 80, 30]), mechanism.event()
    (1, PureDpEvent(epsilon=1.0))
    """

    record_range: int
    epsilon: float
    neighboring_relation: str = ZERO_OUT

    def __post_init__(self) -> None:
        checked = self._noise
        object.__setattr__(self, "record_range", checked.record_norm)
        object.__setattr__(self, "epsilon", checked.epsilon)

    @property
    def _noise(self) -> GeometricMechanism:
        """Sensitivity and scale, checked."""
        return GeometricMechanism(self.record_range, self.epsilon, self.neighboring_relation)

    @property
    def sensitivity(self) -> int:
        """Δ: how far apart neighbours can move two of the integers."""
        return self._noise.sensitivity

    def event(self) -> DpEvent:
        """A mechanism of a pure ε."""
        return PureDpEvent(self.epsilon)

    def _checked(self, values: ArrayLike) -> np.ndarray:
        exact = checked_integers(values)
        if exact.ndim != 1 or not exact.size:
            raise ValueError("Expected values to be a list of one or more integers.")
        return exact

    def _released(self, exact: np.ndarray, stream: SecureStream) -> int:
        scale = self._noise.scale
        call = MechanismCall("selection", self.sensitivity, float(scale), 1.0, (), 0, width=1.0)

        def place() -> float:
            return float(np.argmax(exact + geometric_integers(scale, exact.size, stream)))

        return int(release_hook.release(call, place))
