"""What a fit may spend, as a value: (ε, δ), or the noise that was given instead of ε."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dp_accounting.dp_event import DpEvent

from skdp.fitting.types import Params
from skdp.privacy.gdp import epsilon_to_gdp
from skdp.privacy.noise_calibration import calibrate, calibrate_noise_multiplier, calibrate_schedule
from skdp.relations import ZERO_OUT, sensitivity_factor


@dataclass(frozen=True)
class Budget:
    """A target for the noise of a run.

    Parameters
    ----------
    epsilon : float or None
        ε > 0; infinite asks for no noise, None for the ``given`` parameter.
    delta : float
        δ in [0, 1).
    neighboring_relation : str
        Who is a neighbour.
    accountant : str
        See `skdp.privacy.epsilon`.
    given : float or None
        Noise multiplier, or what else an algorithm takes instead of ε.

    Examples
    --------
    >>> from skdp.base import Budget
    >>> round(Budget(epsilon=1.0, delta=1e-5).mu, 3)
    0.268
    """

    epsilon: float | None
    delta: float
    neighboring_relation: str = ZERO_OUT
    accountant: str = "auto"
    given: float | None = None

    @property
    def private(self) -> bool:
        """Whether there is noise at all."""
        return self.epsilon != math.inf

    @property
    def mu(self) -> float:
        """μ of the budget over the relation's factor; infinite without privacy or without ε."""
        if self.epsilon is None or not self.private:
            return math.inf
        return epsilon_to_gdp(self.epsilon, self.delta) / sensitivity_factor(
            self.neighboring_relation
        )

    @property
    def _terms(self) -> Params:
        """What a budget is counted by."""
        names = ("delta", "neighboring_relation", "accountant")
        return {name: getattr(self, name) for name in names}

    def noise_multiplier(self, rate: float = 1.0, n_steps: int = 1) -> float:
        """Least noise multiplier of equal steps, or the given one; 0 without privacy."""
        if self.epsilon is None:
            assert self.given is not None
            return self.given
        return calibrate_noise_multiplier(
            sampling_rate=rate, n_steps=n_steps, epsilon=self.epsilon, **self._terms
        )

    def factor(self, units: Sequence[float], rate: float = 1.0) -> float:
        """Least factor of a schedule of noise multipliers, or the given one; 0 without privacy.

        Parameters
        ----------
        units : sequence of float
            Noise multiplier of each step over the factor.
        rate : float, default=1.0
            Poisson sampling rate.

        Returns
        -------
        float
        """
        if self.epsilon is None or not self.private:
            return self.noise_multiplier()
        return calibrate_schedule(units, sampling_rate=rate, epsilon=self.epsilon, **self._terms)

    def least(self, event: Callable[[float], DpEvent], guess: float) -> float:
        """Least parameter whose event the budget affords, near a guess.

        Parameters
        ----------
        event : callable
            Maps a parameter > 0 to an event that costs less the larger it is.
        guess : float
            Where the search starts.

        Returns
        -------
        float
        """
        if self.epsilon is None or not self.private:
            return guess
        return calibrate(event, guess=guess, epsilon=self.epsilon, **self._terms)
