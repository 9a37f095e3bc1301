"""What a fit may spend, as its parameters say it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils import check_random_state

from skdp.fitting.types import Seed
from skdp.fitting.validate import expected, in_range, is_real, one_of, positive
from skdp.relations import check_relation

if TYPE_CHECKING:
    from skdp.privacy.budget import Budget


def check_seed(random_state: Seed) -> None:
    """Refuse what is no seed."""
    try:
        check_random_state(random_state)
    except ValueError:
        kind = "None, an integer in [0, 2**32 - 1] or a RandomState"
        raise expected(kind, random_state=random_state) from None


_MOST_EPSILON = 1e9  # of a finite one


def check_budget(
    estimator: Any, instead: str = "noise_multiplier", *, pure: bool = False
) -> Budget:
    """Check ``epsilon``, ``delta``, the parameter ``instead`` of ε, and the relation.

    With ``pure``, δ may be 0. What is no seed is refused here too: later it would be charged for.
    """
    from skdp.privacy.accounting import ACCOUNTANTS
    from skdp.privacy.budget import Budget

    check_relation(estimator.neighboring_relation)
    relation = estimator._relation
    check_seed(estimator.random_state)
    epsilon, delta, given = estimator.epsilon, estimator.delta, getattr(estimator, instead, None)
    if not is_real(delta) or not (0 < delta < 1 or (pure and delta == 0)):
        kind = "a number in [0, 1)" if pure else "a number in (0, 1)"
        remedy = "" if pure or delta != 0 else "; OPSPosteriorSampler and OPSRegressor have delta=0"
        raise expected(kind, f"well below 1/n, e.g. 1e-5{remedy}", delta=delta)
    accountant = one_of(ACCOUNTANTS, accountant=getattr(estimator, "accountant", "auto"))
    if given is None:
        remedy = "use float('inf') for a fit without privacy"
        if hasattr(estimator, instead):
            remedy += f", or give {instead} instead"
        if _MOST_EPSILON < positive(remedy, epsilon=epsilon, allow_inf=True) < np.inf:
            raise expected(f"at most {_MOST_EPSILON:g}, or float('inf')", epsilon=epsilon)
        return Budget(epsilon, delta, relation, accountant)
    positive(**{instead: given})
    if instead == "noise_multiplier":
        remedy = "use epsilon=float('inf') for a fit without privacy"
        in_range(1e-9, 1e30, remedy, closed="both", noise_multiplier=given)
    if epsilon is not None:
        raise expected(
            f"None when {instead} is given",
            "the two are alternatives: one fixes the other",
            epsilon=epsilon,
        )
    return Budget(None, delta, relation, accountant, float(given))
