"""`NoisyMaxMechanism`: which of several sums over records is the largest, and nothing else.

Each sum has geometric noise added, and the place of the largest is told. That costs no more for a
hundred sums than for two: a record moves all of them together, and for one of them to win, given
the noise of the others, its own noise has to pass a number that moves by the range of the record's
contributions at most.

>>> from skdp.mechanisms import NoisyMaxMechanism
>>> NoisyMaxMechanism(record_range=1, epsilon=1.0).release([10, 80, 30])
1

References
----------
R. McKenna, D. Sheldon, *Permute-and-Flip: A New Mechanism for Differentially Private Selection*,
NeurIPS 2020. Z. Ding et al., *The Permute-and-Flip Mechanism is Identical to
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
from skdp.mechanisms._release import Mechanism, charged_stream
from skdp.mechanisms.geometric import GeometricMechanism, checked_integers
from skdp.privacy.events import PureDpEvent
from skdp.relations import ZERO_OUT


@dataclass(frozen=True)
class NoisyMaxMechanism(Mechanism):
    """Release the place of the largest of several integers, each with geometric noise.

    **Privacy.** The release is ε-DP for neighbours under ``neighboring_relation``, if what one
    record contributes to any two of the integers differs by at most ``record_range``, and what a
    null record contributes is 0. Bounding it is the caller's responsibility. Every field is a
    public fact. Given ideal random bits this holds for what is implemented.

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
        If a parameter is out of range or not a number, or the noise is finer or coarser than 64
        bits hold.

    Notes
    -----
    Let neighbours move the integers by numbers that are no more than Δ apart: Δ is the range, or
    twice it under ``replace_one``. Of equals the first wins. Given the noise of all others, i wins
    if its own is at least an integer t; for the neighbour that is at most t + Δ. Noise on 0, 1, 2,
    ... with P(at least k) = e^(-k/b), b ≥ Δ/ε, is at least t + Δ with no less than e^-ε times the
    probability of at least t, for each t. Averaging over the noise of the others keeps it.

    Examples
    --------
    >>> from skdp.mechanisms import NoisyMaxMechanism
    >>> NoisyMaxMechanism(1, epsilon=0.5).event()
    PureDpEvent(epsilon=0.5)
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
        """Return what one release costs, under the mechanism's own relation.

        Returns
        -------
        DpEvent
            A mechanism of a pure ε.
        """
        return PureDpEvent(self.epsilon)

    def release(
        self, values: ArrayLike, stream: SecureStream | None = None, *, charged: bool = False
    ) -> int:
        """Draw the place.

        Parameters
        ----------
        values : array-like of int of shape (n_values,)
            The sums, one or more. Their number is public.
        stream : SecureStream, default=None
            Source of the noise; None draws a new key from the operating system.
        charged : bool, default=False
            Whether the event has been charged already, as part of a larger one. False charges it
            to every open `PrivacyLedger`, before the values are used.

        Returns
        -------
        int
            From 0 on; of equals the first.

        Raises
        ------
        ValueError
            If the values are no integers within ±2⁶¹; the message holds none of them.
        BudgetExceededError
            If an open ledger refuses the release; the values have not been used then.
        """
        exact = checked_integers(values)
        if exact.ndim != 1 or not exact.size:
            raise ValueError("Expected values to be a list of one or more integers.")
        stream, scale = charged_stream(self, stream, charged), self._noise.scale
        call = MechanismCall("selection", self.sensitivity, float(scale), 1.0, (), 0, width=1.0)

        def place() -> float:
            return float(np.argmax(exact + geometric_integers(scale, exact.size, stream)))

        return int(release_hook.release(call, place))
