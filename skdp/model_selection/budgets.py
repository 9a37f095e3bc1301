"""`split_budget`: one (ε, δ) for a whole pipeline, divided among its private steps.

The ε of two steps do not add up: half of ε = 1 each would waste a fifth of it. Each step gets a
share of μ², which does add up for full-batch Gaussian mechanisms (J. Dong, A. Roth, W. J. Su,
*Gaussian Differential Privacy*, JRSS B 84, 2022). Where a step is of another kind, the accountant
composes what the steps would be charged, and the shares grow or shrink until that is the target.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import astuple
from types import NoneType
from typing import Any, NamedTuple, Protocol, TypeGuard, TypeVar

import numpy as np
from dp_accounting.dp_event import ComposedDpEvent, DpEvent
from scipy.optimize import root_scalar
from sklearn.base import OneToOneFeatureMixin, clone
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.ensemble import VotingClassifier, VotingRegressor
from sklearn.pipeline import FeatureUnion, Pipeline

from skdp.fitting.plan import FitPlan, MissingFactError
from skdp.fitting.types import Estimator, Params
from skdp.fitting.validate import expected, in_range, integer, positive
from skdp.privacy import epsilon_of_event, epsilon_to_gdp, gdp_to_epsilon
from skdp.privacy.events import gaussian_mu, terms_of
from skdp.relations import ROW, UNITS, Relation, check_relation, other_relation
from skdp.rows.persons import IN_WORDS, kind_of

# Those that fit each of their parts exactly once. Others, a one-vs-rest classifier for instance,
# would spend a part's budget several times.
ONCE = (
    Pipeline, ColumnTransformer, FeatureUnion, TransformedTargetRegressor,
    VotingClassifier, VotingRegressor,
)  # fmt: skip

# Share of μ² of what surrounds a model, scalers or a temperature: it learns a few coarse numbers.
HELPERS_SHARE = 0.1

# Between these a fact is taken to be that was not given.
_ENDS = {
    "n_samples": (100, 200_000), "n_features": (2, 600), "classes": (range(2), range(3)),
}  # fmt: skip
APART = "statements about rows and about persons do not add up"
_TOLERANCE = 1e-3  # of ε, relative, where steps are not all Gaussian

E = TypeVar("E", bound=Estimator)


class PrivatePart(Estimator, Protocol):
    """A part of a workflow that spends a budget of its own."""

    epsilon: float | None
    delta: float
    neighboring_relation: str
    plan: Callable[..., FitPlan]


def split_budget(
    pipeline: E,
    epsilon: float,
    delta: float,
    weights: Mapping[str, float] | None = None,
    *,
    n_samples: int | None = None,
    n_features: int | Mapping[str, int] | None = None,
) -> E:
    """Set the budgets of all private steps so that together they are (ε, δ)-DP.

    **Privacy.** Reads no data: the plan is made from parameters and public sizes. What holds after
    the fit is what `skdp.privacy.privacy_of` says of the fitted pipeline, which also names steps
    that are in no budget.

    Parameters
    ----------
    pipeline : estimator
        A pipeline, or any nesting of `Pipeline`, `ColumnTransformer`, `FeatureUnion`, voting and
        `DPTemperatureScaler`, which fit each part once, and `DPRandomizedSearch`, which divides its
        own. Every part with parameters ``epsilon`` and ``delta`` is given a budget.
    epsilon, delta : float
        ε > 0 and δ in (0, 1) of the whole. ``float("inf")`` is no privacy for any step.
    weights : mapping or None, default=None
        Share of each private step, by its name as in `get_params` (nested ones with ``__``), each
        > 0; only ratios count. A share is one of μ², so a weight 4 is about double the ε of a
        weight 1. None gives a tenth to transformers and a temperature together.
    n_samples : int or None, default=None
        Public number of rows, which every private step is given. Needed only where what a step is
        charged depends on it, as with Poisson batches.
    n_features : int, mapping or None, default=None
        Public number of features. Needed only where what a step is charged depends on it, as with
        quantiles. A number is that of the whole; for steps in a `ColumnTransformer`, or behind one
        that changes the columns, a mapping gives it by the step's name. Bounds that a step declares
        one per feature tell it too.

    Returns
    -------
    estimator
        A new, unfitted copy with budgets set.

    Raises
    ------
    ValueError
        If there is no private step, a part would be fitted several times or its budget is fixed by
        its noise, the steps have different neighbouring relations, some protect rows and others
        persons, or a size is needed.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from skdp import DPSGDClassifier
    >>> from skdp.model_selection import split_budget
    >>> from skdp.preprocessing import DPStandardScaler
    >>> network = DPSGDClassifier(n_samples=1000)
    >>> pipeline = make_pipeline(DPStandardScaler(0, 100), network)
    >>> pipeline = split_budget(pipeline, 2.0, 1e-5, {"dpstandardscaler": 1, "dpsgdclassifier": 4})
    >>> bool(pipeline[0].epsilon + pipeline[1].epsilon > 2.0)
    True
    """
    epsilon = positive(epsilon=epsilon, allow_inf=True)
    delta = in_range(0.0, 1.0, delta=delta)
    sizes = Sizes.checked(n_samples, n_features)
    copy: Any = clone(pipeline)
    for part in private_parts(copy).values():
        if n_samples is not None and "n_samples" in part.get_params(deep=False):
            part.set_params(n_samples=n_samples)
    shares = _shares(private_parts(copy), weights)
    if math.isinf(epsilon):
        return _with_budgets(copy, dict.fromkeys(shares, epsilon), delta)
    mu = epsilon_to_gdp(epsilon, delta)

    def excess(log_factor: float) -> float:
        whole = mu * math.exp(log_factor)
        parts = {n: gdp_to_epsilon(math.sqrt(w) * whole, delta) for n, w in shares.items()}
        _with_budgets(copy, parts, delta)
        event = ComposedDpEvent(list(planned_events(copy, sizes).values()))
        return math.log(epsilon_of_event(event, delta, relation_of(copy)) / epsilon)

    solve(excess)
    return copy


def solve(excess: Callable[[float], float]) -> float:
    """Largest x with excess(x) ≤ 0, to a tolerance: 0 for Gaussians. It is what is asked last."""
    for nudge in (0.0, -1e-9, -1e-6):  # a composition of Gaussians may round to above the target
        e = excess(nudge)
        if -_TOLERANCE <= e <= 0:
            return nudge
    low, high, aim = -0.1, 0.1, -_TOLERANCE / 2
    while excess(low) > aim and low > -8:
        low *= 2
    while excess(high) < aim:
        high *= 2
        if high > 1:  # a step spends less than its share, by rounding: that is allowed
            excess(0.0)
            return 0.0
    try:
        x = root_scalar(lambda x: excess(x) - aim, bracket=(low, high), xtol=1e-5).root
    except ValueError as error:
        raise ValueError(
            "The budget cannot be met: the steps spend more, or less, than their shares ask for."
        ) from error
    while excess(x) > 0:
        x -= _TOLERANCE / 2
    return x


class Sizes(NamedTuple):
    """Public size of the data, as far as it was given."""

    n_samples: int | None = None
    n_features: int | Mapping[str, int] | None = None

    @classmethod
    def checked(cls, n_samples: int | None, n_features: int | Mapping[str, int] | None) -> Sizes:
        """Check what a user gave."""
        if isinstance(n_features, Mapping):
            for width in n_features.values():
                integer(1, n_features=width)
        elif n_features is not None:
            integer(1, n_features=n_features)
        return cls(None if n_samples is None else integer(1, n_samples=n_samples), n_features)

    def width_of(self, name: str, every: Params) -> int | None:
        """Number of features that reach a part, where no step before has changed the columns."""
        if isinstance(self.n_features, Mapping):
            return self.n_features.get(name)
        return self.n_features if _reached_by_all(name, every) else None


def _reached_by_all(name: str, every: Params) -> bool:
    words = name.split("__") if name else []
    for around, word in zip(_around(name, every), words, strict=True):
        if isinstance(around, ColumnTransformer):
            return False
        if isinstance(around, Pipeline):
            names, steps = zip(*around.steps, strict=True)
            passes = (OneToOneFeatureMixin, NoneType, str)
            if not all(isinstance(step, passes) for step in steps[: names.index(word)]):
                return False
    return True


def private_parts(workflow: Estimator) -> dict[str, PrivatePart]:
    """Parts that spend a budget of their own by name (``""``: the workflow), each fitted once."""
    every = {"": workflow, **workflow.get_params(deep=True)}
    found = {
        name: part
        for name, part in every.items()
        # Unless a part around it divides a budget of its own, as a private search does.
        if _has_budget(part)
        and not any(getattr(around, "sets_inner_budgets", False) for around in _around(name, every))
    }
    if not found:
        remedy = "one with epsilon and delta"
        raise expected("a workflow with a private step", remedy, pipeline=workflow)
    for name in found:
        _check_path(name, every, found)
    return found


def _around(name: str, every: Params) -> list[Estimator]:
    """Every part that holds the named one, outermost first."""
    words = name.split("__") if name else []
    return [every["__".join(words[:length])] for length in range(len(words))]


def _has_budget(part: Any) -> TypeGuard[PrivatePart]:
    if isinstance(part, type) or not hasattr(part, "fit") or not hasattr(part, "get_params"):
        return False
    return {"epsilon", "delta"} <= part.get_params(deep=False).keys()


def _check_path(name: str, every: Params, found: Mapping[str, PrivatePart]) -> None:
    for around in _around(name, every):
        if isinstance(around, ONCE) or any(around is part for part in found.values()):
            continue
        raise ValueError(
            f"Expected each private step to be fitted once, but {name!r} is inside a "
            f"{type(around).__name__}, which may fit it more often, or has fitted it already. "
            "Split the budget of what is inside it by hand, and see skdp.privacy.privacy_of."
        )


def _shares(
    parts: Mapping[str, PrivatePart], weights: Mapping[str, float] | None
) -> dict[str, float]:
    """Share of μ² of each part; they sum to 1."""
    if weights is None:
        weights = _default_weights(parts)
    if not isinstance(weights, Mapping) or set(weights) != set(parts):
        raise expected(f"None or a mapping of {sorted(parts)} to numbers > 0", weights=weights)
    named: Params = {name: {f"weight of {name!r}": weight} for name, weight in weights.items()}
    checked = {name: positive(**weight) for name, weight in named.items()}
    total = math.fsum(checked.values())
    return {name: weight / total for name, weight in checked.items()}


def _default_weights(parts: Mapping[str, PrivatePart]) -> dict[str, float]:
    helpers = {
        name
        for name, part in parts.items()
        if hasattr(part, "transform") or _has_budget(getattr(part, "estimator", None))
    }
    models = parts.keys() - helpers
    if not helpers or not models:
        return dict.fromkeys(parts, 1.0)
    share = {True: HELPERS_SHARE / len(helpers), False: (1 - HELPERS_SHARE) / len(models)}
    return {name: share[name in helpers] for name in parts}


def _with_budgets(workflow: E, epsilons: Mapping[str, float], delta: float) -> E:
    parts = private_parts(workflow)
    for name, epsilon in epsilons.items():
        if parts[name].epsilon is None:
            remedy = "its budget is fixed by its noise; give epsilon instead"
            raise expected("a number", remedy, **{f"epsilon of {name!r}": None})
        # A pure step stays pure.
        parts[name].set_params(epsilon=epsilon, delta=delta if parts[name].delta else 0)
    return workflow


def relation_of(workflow: Estimator) -> Relation:
    """The one neighbouring relation of all private parts, whose records are rows or persons."""
    found = {}
    for name, part in private_parts(workflow).items():
        unit = kind_of(getattr(part, "unit", ROW))  # parts of other packages protect rows
        found[name] = check_relation(part.neighboring_relation).of_unit(unit)
    of_unit = {u: sorted(name for name, r in found.items() if r.unit == u) for u in UNITS}
    if all(of_unit.values()):
        steps = " and ".join(f"{IN_WORDS[unit]} in {of_unit[unit]}" for unit in UNITS)
        raise ValueError(f"Expected unit to be the same in every step, and not {steps}; {APART}.")
    relations = set(found.values())
    if len(relations) > 1:
        raise other_relation("the same in every step", sorted(relations))
    return relations.pop()


def planned_events(workflow: Estimator, sizes: Sizes) -> dict[str, DpEvent]:
    """What each private part would be charged, by its name, from parameters and public sizes."""
    every = {"": workflow, **workflow.get_params(deep=True)}
    events = {}
    for name, part in private_parts(workflow).items():
        known = {"n_samples": sizes.n_samples, "n_features": sizes.width_of(name, every)}
        events[name] = _planned_event(name, part, known)
    return events


def _planned_event(name: str, part: PrivatePart, known: Params) -> DpEvent:
    """What a part itself is charged; where a fact is missing, what it costs at most.

    An estimator changes at thresholds: equal costs at both ends are taken to hold between them.
    """
    label = f"{type(part).__name__} (step {name!r})"
    if not hasattr(part, "plan"):
        remedy = "derive it from skdp.base.PrivateEstimator, or split the budget by hand"
        raise expected("an estimator with a method plan", remedy, **{f"step {name!r}": part})
    try:
        return part.plan(**known).privacy.event
    except MissingFactError as missing:
        fact = missing.fact
    except ValueError as error:
        raise ValueError(
            f"The budget of {label} could not be planned: {error} Give n_samples and n_features "
            "if it is made for data of one size."
        ) from None
    ends = [_planned_event(name, part, {**known, fact: end}) for end in _ENDS[fact]]
    worse = _worse(*ends)
    if worse is None:
        of_step = f": n_features={{{name!r}: ...}}" if fact == "n_features" and name else ""
        raise ValueError(
            f"What {label} is charged depends on the size of the data: give {fact}, the public "
            f"size of what reaches it{of_step}."
        )
    return worse


def _worse(first: DpEvent, last: DpEvent) -> DpEvent | None:
    """The costlier of two events of one kind, or None; of Gaussians the budget alone bounds μ."""
    if first == last:
        return last
    one, other = gaussian_mu(first), gaussian_mu(last)
    if one is not None and other is not None:
        return first if one > other else last
    terms: list[Any] = [terms_of(event) for event in (first, last)]
    if [*map(type, terms[0])] != [*map(type, terms[1])]:
        return None
    numbers = [[astuple(term) for term in own] for own in terms]
    alike = all(np.allclose(a, b, 1e-9) for a, b in zip(*numbers, strict=True))
    return last if alike else None
