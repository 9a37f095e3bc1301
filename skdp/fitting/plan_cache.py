"""Plans that were made before, by everything that they depend on."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from skdp.fitting.plan import FitPlan, PublicFacts

_PLAIN = frozenset([int, float, str, bool, type(None)])

_MOST_PLANS, _MOST_REMEMBERED = 256, 1000  # plans that are kept, and columns or labels of one

PLANS: dict[tuple, FitPlan] = {}


def _plan_key(estimator: Any, facts: PublicFacts) -> tuple | None:
    """Everything that a plan depends on, types included; None where an object could change.

    Classes of other packages have attributes and code of their own, which may change too. Plans of
    very many columns or classes are large, and not kept either.
    """
    if not type(estimator).__module__.startswith("skdp."):
        return None
    if max(facts.n_features or 0, facts.n_outputs or 0) > _MOST_REMEMBERED:
        return None
    parts: list[Any] = [type(estimator), facts]
    for name, value in estimator.get_params(deep=False).items():
        values = tuple(value) if isinstance(value, list | tuple | range) else (value,)
        kinds = tuple(map(type, values))
        if not _PLAIN.issuperset(kinds) or len(values) > _MOST_REMEMBERED:
            return None
        parts += [name, type(value), kinds, values]
    return tuple(parts)


def remembered(
    estimator: Any, facts: PublicFacts, make: Callable[[], FitPlan]
) -> FitPlan:
    """Return a plan that was made before, or make it; a copy, which is the caller's own.

    Events hold lists, and what a fit or a caller does with its plan, its report or its config must
    not reach another fit. Two fits that share a report count as one release.
    """
    key = _plan_key(estimator, facts)
    plan = None if key is None else PLANS.get(key)
    if plan is None:
        plan = make()
        if key is not None:
            while len(PLANS) >= _MOST_PLANS:
                PLANS.pop(next(iter(PLANS)), None)
            PLANS[key] = plan
    return copy.deepcopy(plan)
