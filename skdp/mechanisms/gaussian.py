"""`GaussianMechanism`: a vector, once, with normal noise calibrated to a budget.

The noise hides any change of Euclidean length Δ₂ in the vector. With μ = Δ₂/scale the release is
exactly μ-GDP; the least noise for (ε, δ) inverts the exact δ(ε) of Balle & Wang (*Improving the
Gaussian Mechanism for Differential Privacy*, ICML 2018). The textbook scale Δ₂ √(2 ln(1.25/δ))/ε
(Dwork & Roth, *The Algorithmic Foundations of Differential Privacy*, 2014, Theorem A.1) is kept by
name, to compare with: it needs 1.3 times the noise at ε = 1, beyond which its proof does not hold.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from dp_accounting.dp_event import DpEvent, GaussianDpEvent

from skdp.engine.noise import gaussian
from skdp.engine.release_hook import MechanismCall
from skdp.fitting.streams import SecureStream
from skdp.fitting.types import ArrayLike
from skdp.fitting.validate import expected, in_range, one_of
from skdp.mechanisms._release import EPSILONS, SIZES, AdditiveMechanism, within
from skdp.privacy import epsilon_of_event, epsilon_to_gdp
from skdp.relations import ZERO_OUT, sensitivity_factor

METHODS = ("analytic", "classic")


@dataclass(frozen=True)
class GaussianMechanism(AdditiveMechanism):
    """Release a vector with independent normal noise.

    **Privacy.** The release is μ-GDP with μ = sensitivity/scale, for neighbours under
    ``neighboring_relation``, if one record contributes at most ``record_norm`` to the vector in
    Euclidean norm. Bounding it (clipping) is the caller's responsibility. Every field is a public
    fact.

    The guarantee is that of real-valued noise. Floating-point noise cannot reach every number, and
    which ones it misses depends on the value (Mironov, CCS 2012). So the noisy value is rounded to
    a public grid of about 1e-6 of the scale, which hides the low-order bits where this shows: a
    mitigation, not a proof. It does nothing for values beyond 2³¹ times the scale, whose
    neighbouring doubles are farther apart than the grid.

    Parameters
    ----------
    record_norm : float
        C in [1e-150, 1e150]: bound on the Euclidean norm of *one record's contribution* to the
        whole vector, all coordinates jointly. For a vector that is no sum: how far it moves when a
        record comes or goes, or, under replace_one, half of how far it moves when one changes.
    scale : float
        Standard deviation of the noise on every coordinate, in [1e-150, 1e150]; `from_budget`
        finds it.
    neighboring_relation : {"zero_out", "add_or_remove_one", "replace_one"}
        Who is a neighbour.

    Raises
    ------
    ValueError
        If a parameter is out of range or not a number.

    Notes
    -----
    The parameter is the bound on a record and not the sensitivity, because the doubling under
    replace_one must happen once. It happens in `sensitivity` for the noise and in
    `skdp.privacy.epsilon_of_event` for the account; the event states noise over the bound on one
    record's contribution, as every event of skdp does.

    Examples
    --------
    >>> from skdp.mechanisms import GaussianMechanism
    >>> mechanism = GaussianMechanism(
    ...     record_norm=1.0, scale=4.0, neighboring_relation="replace_one"
    ... )
    >>> mechanism.sensitivity, mechanism.event()
    (2.0, GaussianDpEvent(noise_multiplier=4.0))
    """

    _kind: ClassVar[str] = "gaussian"

    @classmethod
    def from_budget(
        cls,
        *,
        epsilon: float,
        delta: float,
        record_norm: float,
        neighboring_relation: str = ZERO_OUT,
        method: str = "analytic",
    ) -> GaussianMechanism:
        """Build the mechanism with the least noise that a budget affords.

        Parameters
        ----------
        epsilon : float
            ε in [1e-9, 1e9]; at most 1 for the classic method.
        delta : float
            δ in (0, 1).
        record_norm, neighboring_relation
            As in the class.
        method : {"analytic", "classic"}
            ``"analytic"`` is exact (Balle & Wang 2018). ``"classic"`` is the textbook's
            sensitivity · √(2 ln(1.25/δ))/ε (Dwork & Roth 2014, Theorem A.1), a reference.

        Returns
        -------
        GaussianMechanism
            A mechanism that is (ε, δ)-DP for one release.

        Raises
        ------
        ValueError
            If a parameter is out of range, or ε > 1 with the classic method.

        Examples
        --------
        >>> from skdp.mechanisms import GaussianMechanism
        >>> round(GaussianMechanism.from_budget(epsilon=0.5, delta=1e-6, record_norm=1.0).scale, 3)
        8.058
        """
        epsilon = within(*EPSILONS, epsilon=epsilon)
        delta = in_range(0.0, 1.0, delta=delta)
        record_norm = within(*SIZES, record_norm=record_norm)
        if one_of(METHODS, method=method) == "analytic":
            multiplier = 1 / epsilon_to_gdp(epsilon, delta)
        elif epsilon <= 1:
            multiplier = math.sqrt(2 * math.log(1.25 / delta)) / epsilon
        else:
            remedy = "beyond, its proof does not hold; use method='analytic'"
            raise expected("at most 1 with method='classic'", remedy, epsilon=epsilon)
        scale = multiplier * sensitivity_factor(neighboring_relation) * record_norm
        # The promise. Rounding of the two inversions may miss it, by no more than these nudges.
        for nudge in (0.0, 1e-12, 1e-9, 1e-6, 1e-4):
            mechanism = cls(record_norm, scale * (1 + nudge), neighboring_relation)
            spent = epsilon_of_event(mechanism.event(), delta, neighboring_relation)
            if spent <= epsilon:
                return mechanism
        raise expected(f"affordable at delta={delta:g}", "ask for a larger one", epsilon=epsilon)

    def event(self) -> DpEvent:
        """Return a Gaussian event of scale/record_norm; accountants double under replace_one."""
        return GaussianDpEvent(self.scale / self.record_norm)

    def _noisy(self, exact: np.ndarray, call: MechanismCall, stream: SecureStream) -> ArrayLike:
        return gaussian(lambda: exact, call, stream)
