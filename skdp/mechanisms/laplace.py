"""`LaplaceMechanism`: a vector, once, with Laplace noise: pure ε-DP, no δ.

The density of the noise falls by at most e^(Δ₁/b) over a distance of Δ₁ in the L1 norm, so b = Δ₁/ε
gives ε-DP (Dwork, McSherry, Nissim & Smith, *Calibrating Noise to Sensitivity in Private Data
Analysis*, TCC 2006).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from dp_accounting.dp_event import DpEvent, LaplaceDpEvent

from skdp.engine import release_hook
from skdp.engine.release_hook import MechanismCall
from skdp.fitting.streams import SecureStream
from skdp.mechanisms._release import EPSILONS, SIZES, AdditiveMechanism, within
from skdp.relations import ZERO_OUT, sensitivity_factor


@dataclass(frozen=True)
class LaplaceMechanism(AdditiveMechanism):
    """Release a vector with independent Laplace noise.

    **Privacy.** The release is ε-DP with ε = sensitivity/scale, for neighbours under
    ``neighboring_relation``, if one record contributes at most ``record_norm`` to the vector in
    the L1 norm. Bounding it is the caller's responsibility. Every field is a public fact.

    Parameters
    ----------
    record_norm : float
        C in [1e-150, 1e150]: bound on the L1 norm (sum of absolute values) of *one record's
        contribution* to the whole vector. It is 1 for a histogram. For a vector that is no sum, see
        `GaussianMechanism`, which also says why this is not the sensitivity.
    scale : float
        b in [1e-150, 1e150]: the noise has density e^(-|x|/b)/(2b) and standard deviation √2 b;
        `from_budget` finds it.
    neighboring_relation : {"zero_out", "add_or_remove_one", "replace_one"}
        Who is a neighbour.

    Raises
    ------
    ValueError
        If a parameter is out of range or not a number.

    Examples
    --------
    >>> from skdp.mechanisms import LaplaceMechanism
    >>> LaplaceMechanism(record_norm=1.0, scale=4.0, neighboring_relation="replace_one").epsilon
    0.5
    """

    _kind: ClassVar[str] = "laplace"

    @classmethod
    def from_budget(
        cls, *, epsilon: float, record_norm: float, neighboring_relation: str = ZERO_OUT
    ) -> LaplaceMechanism:
        """Build the mechanism that spends a pure ε in [1e-9, 1e9].

        Parameters
        ----------
        epsilon, record_norm, neighboring_relation
            Pure ε, and as in the class.

        Returns
        -------
        LaplaceMechanism
            A mechanism that is ε-DP for one release.
        """
        epsilon = within(*EPSILONS, epsilon=epsilon)
        record_norm = within(*SIZES, record_norm=record_norm)
        sensitivity = sensitivity_factor(neighboring_relation) * record_norm
        scale = sensitivity / epsilon
        while sensitivity / scale > epsilon:  # the division may have been rounded down
            scale = math.nextafter(scale, math.inf)
        return cls(record_norm, scale, neighboring_relation)

    @property
    def epsilon(self) -> float:
        """The pure ε of one release."""
        return self.sensitivity / self.scale

    def event(self) -> DpEvent:
        """Return a Laplace event of scale/record_norm; accountants double under replace_one."""
        return LaplaceDpEvent(self.scale / self.record_norm)

    def _noisy(self, exact: np.ndarray, call: MechanismCall, stream: SecureStream) -> np.ndarray:
        def noisy() -> np.ndarray:
            # A difference of two exponentials. The usual logarithm of one uniform number leaves the
            # holes that Mironov (2012) found; here two draws have to be known to tell where they
            # are.
            one, other = stream.generator.standard_exponential((2, *exact.shape))
            return exact + call.scale * np.asarray(one - other)

        return release_hook.release(call, noisy)
