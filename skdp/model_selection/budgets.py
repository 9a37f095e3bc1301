"""`split_budget`: one (ε, δ) for a whole pipeline, divided among its private steps.

The ε of two steps do not add up: half of ε = 1 each would waste a fifth of it. Each step gets a
share of μ², the square of the Gaussian privacy parameter, which does add up for full-batch Gaussian
mechanisms (Dong, Roth & Su 2022). Where a step is of another kind, the accountant composes what the
steps would be charged, and the shares grow or shrink until that is the target.

>>> from sklearn.pipeline import make_pipeline
>>> from skdp import DPVariationalLogisticRegression
>>> from skdp.model_selection import split_budget
>>> from skdp.preprocessing import DPStandardScaler
>>> pipeline = make_pipeline(DPStandardScaler(0, 100), DPVariationalLogisticRegression())
>>> pipeline = split_budget(pipeline, epsilon=1.0, delta=1e-5)
>>> [round(step.epsilon, 3) for _, step in pipeline.steps]
[0.285, 0.944]

References
----------
J. Dong, A. Roth, W. J. Su, *Gaussian Differential Privacy*, JRSS B 84, 2022.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import astuple
from typing import Any, NamedTuple

import numpy as np
from dp_accounting.dp_event import ComposedDpEvent, DpEvent, NoOpDpEvent
from scipy.optimize import brentq
from sklearn.base import (
    BaseEstimator,
    ClassifierMixin,
    OneToOneFeatureMixin,
    clone,
    is_classifier,
)
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.ensemble import VotingClassifier, VotingRegressor
from sklearn.pipeline import FeatureUnion, Pipeline

from skdp._fitting import encode_labels, planned_event
from skdp._validate import expected, in_range, integer, positive
from skdp.privacy import PrivacyReport, epsilon_of_event, epsilon_to_gdp, gdp_to_epsilon
from skdp.privacy.events import gaussian_mu, terms_of
from skdp.privacy.ledger import BudgetExceededError

# Those that fit each of their parts exactly once. Others, a one-vs-rest classifier for instance,
# would spend a part's budget several times.
ONCE = (
    Pipeline, ColumnTransformer, FeatureUnion, TransformedTargetRegressor,
    VotingClassifier, VotingRegressor,
)  # fmt: skip

# Share of μ² of what surrounds a model, scalers or a temperature: it learns a few coarse numbers.
HELPERS_SHARE = 0.1

_SMALL, _LARGE = (100, 2), (200_000, 600)  # made-up data: rows and features
_TOLERANCE = 1e-3  # of ε, relative, where steps are not all Gaussian


def split_budget(
    pipeline: Any,
    epsilon: float,
    delta: float,
    weights: Mapping[str, float] | None = None,
    *,
    n_samples: int | None = None,
    n_features: int | Mapping[str, int] | None = None,
) -> Any:
    """Set the budgets of all private steps so that together they are (ε, δ)-DP.

    **Privacy.** Reads no data: the plan is made from parameters and public sizes. What holds after
    the fit is what `skdp.privacy.privacy_of` says of the fitted pipeline, which also names steps
    that are in no budget.

    Parameters
    ----------
    pipeline : estimator
        A pipeline, or any nesting of `Pipeline`, `ColumnTransformer`, `FeatureUnion`, voting and
        `DPTemperatureScaler`, which fit each part once, and `DPRandomizedSearch`, which
        divides its own. Every part with parameters ``epsilon`` and
        ``delta`` is given a budget.
    epsilon : float
        ε > 0 of the whole. ``float("inf")`` is no privacy for any step.
    delta : float
        δ in (0, 1) of the whole.
    weights : mapping or None, default=None
        Share of each private step, by its name as in `get_params` (nested ones with ``__``), each
        > 0; only ratios count. A share is one of μ², so a weight 4 is about double the ε of a
        weight 1. None gives a tenth to transformers and
        a temperature together.
    n_samples : int or None, default=None
        Public number of rows; steps that declare none are given it. Needed only where what a step
        is charged depends on it, as with Poisson batches.
    n_features : int, mapping or None, default=None
        Public number of features. Needed only where what a step is charged depends on it, as with
        quantiles. A number is that of the whole; for steps in a `ColumnTransformer`, or behind one
        that changes the columns, a mapping gives it by the step's name. Bounds that a step declares
        one a feature tell it too.

    Returns
    -------
    estimator
        A new, unfitted copy with budgets set.

    Raises
    ------
    ValueError
        If there is no private step, a part would be fitted several times or its budget is fixed by
        its noise, the steps have different neighbouring relations, or a size is needed.

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
        if n_samples is not None and part.get_params(deep=False).get("n_samples", 0) is None:
            part.set_params(n_samples=n_samples)
    shares = _shares(private_parts(copy), weights)
    if math.isinf(epsilon):
        return _with_budgets(copy, dict.fromkeys(shares, epsilon), delta)
    mu = epsilon_to_gdp(epsilon, delta)

    def excess(log_factor: float) -> float:
        _with_budgets(copy, _epsilons(shares, mu * math.exp(log_factor), delta), delta)
        return math.log(composed_epsilon(planned_events(copy, sizes), delta, copy) / epsilon)

    solve(excess)
    return copy


def solve(excess: Callable[[float], float]) -> float:
    """Largest x, to a tolerance, with excess(x) ≤ 0; 0, which is exact for Gaussians, comes first.

    What ``excess`` was last called with is what is returned.
    """
    for nudge in (0.0, -1e-9, -1e-6):  # a composition of Gaussians may round to above the target
        e = excess(nudge)
        if -_TOLERANCE <= e <= 0:
            return nudge
    low, high, aim = -0.1, 0.1, -_TOLERANCE / 2
    while excess(low) > aim and low > -8:
        low *= 2
    while excess(high) < aim:
        high *= 2
        if high > 1:  # a step spends less than its share, whatever that is: so be it
            excess(0.0)
            return 0.0
    try:
        x: Any = brentq(lambda x: excess(x) - aim, low, high, xtol=1e-5)
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
    def checked(cls, n_samples: Any, n_features: Any) -> Sizes:
        """Check what a user gave."""
        if isinstance(n_features, Mapping):
            for width in n_features.values():
                integer(1, n_features=width)
        elif n_features is not None:
            integer(1, n_features=n_features)
        return cls(None if n_samples is None else integer(1, n_samples=n_samples), n_features)

    def width_of(self, name: str, every: Mapping[str, Any]) -> int | None:
        """Return the number of features that reach a part, where that is known.

        One number for the whole is that of a part which no step before has given other columns.
        """
        if isinstance(self.n_features, Mapping):
            return self.n_features.get(name)
        return self.n_features if _reached_by_all(name, every) else None


def _reached_by_all(name: str, every: Mapping[str, Any]) -> bool:
    words = name.split("__") if name else []
    for around, word in zip(_around(name, every), words, strict=True):
        if isinstance(around, ColumnTransformer):
            return False
        if isinstance(around, Pipeline):
            steps = dict(around.steps)
            before = list(steps)[: list(steps).index(word)]
            if not all(_keeps_columns(steps[step]) for step in before):
                return False
    return True


def _keeps_columns(step: Any) -> bool:
    return step is None or step == "passthrough" or isinstance(step, OneToOneFeatureMixin)


def private_parts(workflow: Any) -> dict[str, Any]:
    """Names, as in `get_params`, of the parts that spend a budget of their own.

    ``""`` is the workflow itself.

    Raises
    ------
    ValueError
        If there is none, or what is around one may fit it more than once.
    """
    every = {"": workflow, **workflow.get_params(deep=True)}
    found = {
        name: part
        for name, part in every.items()
        if _has_budget(part) and not any(map(_sets_budgets, _around(name, every)))
    }
    if not found:
        raise expected(
            "a workflow with a private step", "one with epsilon and delta", pipeline=workflow
        )
    for name in found:
        _check_path(name, every, found)
    return found


def _around(name: str, every: Mapping[str, Any]) -> list[Any]:
    """Every part that holds the named one, outermost first."""
    words = name.split("__") if name else []
    return [every["__".join(words[:length])] for length in range(len(words))]


def _sets_budgets(part: Any) -> bool:
    """Whether a part divides its own budget among what is inside it, as a private search does."""
    return getattr(part, "sets_inner_budgets", False)


def _has_budget(part: Any) -> bool:
    if isinstance(part, type) or not hasattr(part, "fit") or not hasattr(part, "get_params"):
        return False
    return {"epsilon", "delta"} <= part.get_params(deep=False).keys()


def _check_path(name: str, every: Mapping[str, Any], found: Mapping[str, Any]) -> None:
    for around in _around(name, every):
        if isinstance(around, ONCE) or any(around is part for part in found.values()):
            continue
        raise ValueError(
            f"Expected each private step to be fitted once, but {name!r} is inside a "
            f"{type(around).__name__}, which may fit it more often, or has fitted it already. "
            "Split the budget of what is inside it by hand, and see skdp.privacy.privacy_of."
        )


def _shares(parts: Mapping[str, Any], weights: Mapping[str, float] | None) -> dict[str, float]:
    """Share of μ² of each part; they sum to 1."""
    if weights is None:
        weights = _default_weights(parts)
    if not isinstance(weights, Mapping) or set(weights) != set(parts):
        raise expected(f"None or a mapping of {sorted(parts)} to numbers > 0", weights=weights)
    named: Any = {name: {f"weight of {name!r}": weight} for name, weight in weights.items()}
    checked = {name: positive(**weight) for name, weight in named.items()}
    total = math.fsum(checked.values())
    return {name: weight / total for name, weight in checked.items()}


def _default_weights(parts: Mapping[str, Any]) -> dict[str, float]:
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


def _epsilons(shares: Mapping[str, float], mu: float, delta: float) -> dict[str, float]:
    return {name: gdp_to_epsilon(math.sqrt(w) * mu, delta) for name, w in shares.items()}


def _with_budgets(workflow: Any, epsilons: Mapping[str, float], delta: float) -> Any:
    parts = private_parts(workflow)
    for name, epsilon in epsilons.items():
        if parts[name].epsilon is None:
            remedy = "its budget is fixed by its noise; give epsilon instead"
            raise expected("a number", remedy, **{f"epsilon of {name!r}": None})
        # A pure step stays pure.
        parts[name].set_params(epsilon=epsilon, delta=delta if parts[name].delta else 0)
    return workflow


def composed_epsilon(events: Mapping[str, DpEvent], delta: float, workflow: Any) -> float:
    """ε of the parts together, by the accountant."""
    relation = relation_of(workflow)
    return epsilon_of_event(ComposedDpEvent(list(events.values())), delta, relation)


def relation_of(workflow: Any) -> str:
    """The one neighbouring relation of all private parts."""
    relations = {part.neighboring_relation for part in private_parts(workflow).values()}
    if len(relations) > 1:
        raise expected(
            "the same in every step",
            "statements about different neighbours do not add up",
            neighboring_relation=sorted(relations),
        )
    return relations.pop()


def planned_events(workflow: Any, sizes: Sizes) -> dict[str, DpEvent]:
    """What each private part would be charged, by its name, from parameters and public sizes."""
    every = {"": workflow, **workflow.get_params(deep=True)}
    return {
        name: _planned(name, part, sizes.n_samples, sizes.width_of(name, every))
        for name, part in private_parts(workflow).items()
    }


def _planned(name: str, part: Any, n_samples: int | None, n_features: int | None) -> DpEvent:
    """Plan on made-up data of the given sizes, or on a small and a large set where none is given.

    What estimators decide by size, they decide by thresholds: the same at both ends, the same
    between.
    """
    declared = getattr(part, "n_samples", None) or n_samples
    width = _declared_width(part) or n_features
    (n, d), (N, D) = [(declared or n, width or d) for n, d in (_SMALL, _LARGE)]
    first = _plan_on(name, part, n, d)
    worse = _worse(first, _plan_on(name, part, N, D))
    if worse is not None:
        return worse
    ends = {"n_samples": (N, d), "n_features": (n, D)}
    missing = [
        size for size, end in ends.items() if _worse(first, _plan_on(name, part, *end)) is None
    ]
    raise ValueError(
        f"What {type(part).__name__} (step {name!r}) is charged depends on the size of the data: "
        f"give {' and '.join(missing)}, the public size of what reaches it"
        + (f": n_features={{{name!r}: ...}}." if "n_features" in missing and name else ".")
    )


def _declared_width(part: Any) -> int | None:
    """Number of features that a step's own parameters are for."""
    bounds = (np.asarray(getattr(part, name, 0.0)) for name in ("lower", "upper"))
    return next((len(bound) for bound in bounds if bound.ndim == 1), None)


def _plan_on(name: str, part: Any, n_samples: int, n_features: int) -> DpEvent:
    X = np.broadcast_to(np.zeros(1), (n_samples, n_features))  # takes no memory
    y = np.zeros(n_samples)
    if is_classifier(part):
        y = np.resize([0, 1] if _labels(part) is None else np.asarray(_labels(part)), n_samples)
    try:
        return planned_event(by_itself(part), X, y)
    except BudgetExceededError as error:
        raise ValueError(
            f"What {type(part).__name__} (step {name!r}) is charged cannot be planned, because its "
            f"fit makes a release before the charge. {error}"
        ) from None
    except ValueError as error:
        raise ValueError(
            f"The budget of {type(part).__name__} (step {name!r}) could not be planned on made-up "
            f"rows of {n_features} features: {error} Give n_samples and n_features if it is made "
            "for data of one size."
        ) from None


def by_itself(part: Any) -> Any:
    """Copy a private part to be planned; a stand-in takes the place of a classifier inside it.

    What that spends is planned apart, and fitting it would be a release.
    """
    copy: Any = clone(part)
    if is_classifier(part) and hasattr(part, "estimator") and not _sets_budgets(part):
        copy.set_params(estimator=_Stated(part.neighboring_relation, _labels(part)))
    return copy


def _labels(part: Any) -> Any:
    return getattr(getattr(part, "estimator", part), "classes", None)


def _worse(first: DpEvent, last: DpEvent) -> DpEvent | None:
    """Return the one that costs more, where both are of one kind; None where they are not.

    Of Gaussian mechanisms the budget alone bounds μ, whatever the size of the data.
    """
    if first == last:
        return last
    one, other = gaussian_mu(first), gaussian_mu(last)
    if one is not None and other is not None:
        return first if one > other else last
    pairs = list(zip(terms_of(first), terms_of(last), strict=False))
    alike = all(type(a) is type(b) and np.allclose(astuple(a), astuple(b), 1e-9) for a, b in pairs)
    return last if alike and len(pairs) == len(terms_of(first)) == len(terms_of(last)) else None


class _Stated(ClassifierMixin, BaseEstimator):
    """Stands in for a private classifier in a plan: what it spends is planned by itself."""

    def __init__(self, neighboring_relation: str = "zero_out", classes: Any = None) -> None:
        self.neighboring_relation = neighboring_relation
        self.classes = classes

    def fit(self, X: Any, y: Any) -> _Stated:
        # Labels are checked as the classifier will: what it would refuse is refused in the plan.
        self.classes_, _ = encode_labels(np.ravel(y), self.classes, "The classifier")
        self.privacy_ = PrivacyReport.of(
            NoOpDpEvent(),
            delta=0.5,
            sampling="nothing",
            neighboring_relation=self.neighboring_relation,
        )
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        return np.full((len(X), len(self.classes_)), 1 / len(self.classes_))
