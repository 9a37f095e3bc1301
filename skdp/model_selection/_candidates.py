"""Candidates of a private search: drawn without the data, and planned before anything is spent.

The price of a selection is that of its *one* trial (Papernot & Steinke 2022): the draw, the fit and
the score together. So one event, the base, has to cover every candidate that may be drawn: of
full-batch Gaussian mechanisms by the composed μ, which a budget in ε fixes; of others, on Poisson
batches or with discrete noise for instance, the event has to be the very same.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import numpy as np
from dp_accounting import dp_event
from dp_accounting.dp_event import DpEvent
from scipy.optimize import root_scalar
from sklearn import get_config
from sklearn.base import clone
from sklearn.utils.metadata_routing import get_routing_for_object, process_routing

from skdp.fitting.types import Estimator, Params
from skdp.fitting.validate import expected
from skdp.mechanisms import GaussianMechanism
from skdp.model_selection import budgets
from skdp.model_selection._scores import RECORD_NORM
from skdp.model_selection.trial_law import TrialLaw
from skdp.privacy import epsilon_of_event, gdp_to_epsilon
from skdp.privacy.events import gaussian_mu, gdp_event, terms_of
from skdp.relations import Relation, other_relation, sensitivity_factor
from skdp.rows.persons import IN_WORDS, Persons

Distributions = Params | Sequence[Params]  # values to draw from, by the name of a parameter

# Set by the search, or facts about the data that trying out values would make private.
_SET_BY_THE_SEARCH = {
    "epsilon", "delta", "noise_multiplier", "temperature", "likelihood_power", "accountant",
    "neighboring_relation", "random_state",
}  # fmt: skip
_FACTS = {"n_samples", "classes", "target_bounds"}
_SHOWS_TRIALS = {"verbose", "n_jobs", "memory", "checkpoint", "every"}

_SLACK = 1e-7  # of μ, left between the candidates and the base for rounding
_LEAST_LOG_MU, _MOST_LOG_MU = -12.0, 12.0
REHEARSED = 10  # candidates checked beyond those that are tried
_PLAIN = (int, float, str, bool, type(None), Persons)


# --- draws --------------------------------------------------------------------------------------


def checked_distributions(estimator: Estimator, given: Distributions) -> list[Params]:
    """Check ``param_distributions``: a dictionary, or a list of them, none of it from data."""
    groups = [given] if isinstance(given, Mapping) else given
    is_list = isinstance(groups, list | tuple) and len(groups) > 0
    if not is_list or not all(isinstance(group, Mapping) for group in groups):
        raise expected("a dictionary, or a list of them", param_distributions=given)
    known, private = estimator.get_params(deep=True), budgets.private_parts(estimator)
    for group in groups:
        for name, values in group.items():
            _check_name(name, values, known, private)
            _check_values(name, values)
    return [dict(group) for group in groups]


def _check_name(
    name: str, values: Any, known: Params, private: Mapping[str, budgets.PrivatePart]
) -> None:
    if name not in known:
        raise expected("the name of a parameter, as in get_params", param_distributions=name)
    around, _, last = name.rpartition("__")
    if last in _SHOWS_TRIALS:
        raise expected("no parameter that shows or shares trials", param_distributions=name)
    if around in private and last in _SET_BY_THE_SEARCH:
        remedy = "the search divides its own budget and gives every trial the same part"
        raise expected("no parameter that sets a budget", remedy, param_distributions=name)
    is_fact = last in _FACTS or (last == "unit" and not _same_persons(values, known[name]))
    if around in private and is_fact:
        remedy = "declare it in the estimator: a fact is known, and not searched for"
        raise expected("no public fact about the data", remedy, param_distributions=name)


def _same_persons(values: Any, own: Any) -> bool:
    """Whether candidates differ in how persons are bounded, and in no fact about them."""
    units = [own, *values] if isinstance(values, list | tuple) else []
    facts = [(u.n_groups, u.rows_per_group) for u in units if isinstance(u, Persons)]
    return len(facts) == len(units) and len(set(facts)) == 1


def _check_values(name: str, values: Any) -> None:
    if hasattr(values, "rvs"):
        return
    is_list = isinstance(values, Sequence | np.ndarray) and not isinstance(values, str)
    if not is_list or len(values) == 0:
        shown: Params = {f"param_distributions[{name!r}]": values}
        raise expected("a list of values, or a distribution with rvs", **shown)


def draw(groups: list[Params], generator: np.random.Generator) -> Params:
    """Draw one candidate, with replacement."""
    group = groups[int(generator.integers(len(groups)))]
    # What scikit-learn's own search hands a distribution, here over unpredictable bits.
    legacy = np.random.RandomState(generator.bit_generator)
    return {
        name: values.rvs(random_state=legacy)
        if hasattr(values, "rvs")
        else values[int(generator.integers(len(values)))]
        for name, values in sorted(group.items())
    }


# --- budgets ------------------------------------------------------------------------------------


def selection(base: DpEvent, law: TrialLaw) -> DpEvent:
    """Event of the best of a random number of trials."""
    return dp_event.RepeatAndSelectDpEvent(base, law.mean, law.shape)


@lru_cache(maxsize=256)
def trial_mu(epsilon: float, delta: float, law: TrialLaw) -> float:
    """Largest μ of a trial of Gaussian mechanisms for which the selection is (ε, δ)-DP."""

    def excess(log_mu: float) -> float:
        event = selection(gdp_event(math.exp(log_mu)), law)
        try:
            return math.log(epsilon_of_event(event, delta) / epsilon)
        except ValueError:  # so little that the accountant has nothing to say
            return -50.0

    if excess(_LEAST_LOG_MU) > 0:
        raise ValueError(
            f"Expected epsilon={epsilon:g} to pay for the best of {law.mean:g} trials on average, "
            "but at this delta it does not, however noisy they are; ask for a larger epsilon or "
            "fewer trials."
        )
    log_mu = root_scalar(excess, bracket=(_LEAST_LOG_MU, _MOST_LOG_MU), xtol=1e-10).root
    while excess(log_mu) > 0:  # the promise
        log_mu -= 1e-9
    return math.exp(log_mu)


@dataclass(frozen=True)
class Candidate:
    """One drawn candidate with its budgets, and what its parts are charged."""

    params: Params
    estimator: Estimator
    events: tuple[DpEvent, ...]

    @property
    def event(self) -> DpEvent:
        """What its fit is charged."""
        return dp_event.ComposedDpEvent(list(self.events))


@dataclass(frozen=True)
class TrialPlan:
    """What all trials share: the base event, and the noise of the score."""

    base: DpEvent
    epsilon: float  # of its fit
    mechanism: GaussianMechanism | None  # of the score; None: none is released

    def covers(self, event: DpEvent) -> bool:
        """Whether the base is as bad as a fit with this event, and its score."""
        return dominates(self.base, _with_score(event, self.mechanism))


def _with_score(event: DpEvent, mechanism: GaussianMechanism | None) -> DpEvent:
    """Event of a fit and its score."""
    return dp_event.ComposedDpEvent([event] if mechanism is None else [event, mechanism.event()])


def dominates(base: DpEvent, event: DpEvent, *, rounding: float = 0.0) -> bool:
    """Whether one event is known to cost at least as much as another, but for a rounding of μ."""
    mu, mu_of_base = gaussian_mu(event), gaussian_mu(base)
    if mu is not None and mu_of_base is not None:
        return mu <= mu_of_base * (1 + rounding)
    return terms_of(event) == terms_of(base)


@dataclass(frozen=True)
class Budgets:
    """What gives candidates (ε, δ) and the sizes of their rows."""

    estimator: Estimator
    delta: float
    neighboring_relation: Relation
    weights: Mapping[str, float] | None
    sizes: budgets.Sizes
    n_groups: int | None  # of persons, where these are the records

    def with_budget(self, params: Params, epsilon: float) -> Candidate:
        """Give a candidate its budget, and plan what its fit is charged."""
        workflow = prepared(self.estimator, params, self.sizes.n_samples, self.n_groups)
        check_private_parts(workflow, self.neighboring_relation)
        sizes = self.sizes._asdict()
        workflow = budgets.split_budget(workflow, epsilon, self.delta, self.weights, **sizes)
        events = budgets.planned_events(workflow, self.sizes).values()
        return Candidate(params, workflow, tuple(events))


# The same for one part of a trial: a rounding more is left to the trial as a whole.
covers_part = partial(dominates, rounding=1e-9)


@dataclass(frozen=True)
class Planner:
    """Gives candidates their budgets, from parameters and public sizes."""

    budgets: Budgets
    epsilon: float
    law: TrialLaw
    score_share: float  # of μ² of a trial; 0 where the score costs nothing

    def plan(self, params: Params) -> TrialPlan:
        """Find the base event of one trial, for which the selection costs what was asked for."""
        if math.isinf(self.epsilon):
            return TrialPlan(dp_event.NonPrivateDpEvent(), math.inf, None)
        delta, relation = self.budgets.delta, self.budgets.neighboring_relation
        mu = trial_mu(self.epsilon, delta, self.law)
        found = self._trial(params, mu)
        if gaussian_mu(found.base) is not None:
            return replace(found, base=gdp_event(mu, relation))

        def excess(log_factor: float) -> float:
            nonlocal found
            found = self._trial(params, mu * math.exp(log_factor))
            event = selection(found.base, self.law)
            return math.log(epsilon_of_event(event, delta, relation) / self.epsilon)

        budgets.solve(excess)
        return found

    def _trial(self, params: Params, mu: float) -> TrialPlan:
        """Divide μ between a fit and its score."""
        relation, share = self.budgets.neighboring_relation, self.score_share
        mu, mechanism = mu * (1 - _SLACK), None
        if share > 0.0:
            scale = RECORD_NORM * sensitivity_factor(relation) / (mu * math.sqrt(share))
            mechanism = GaussianMechanism(RECORD_NORM, scale, relation)
        epsilon = gdp_to_epsilon(mu * math.sqrt(1 - share), self.budgets.delta)
        event = self.budgets.with_budget(params, epsilon).event
        return TrialPlan(_with_score(event, mechanism), epsilon, mechanism)

    def candidates(self, drawn: Sequence[Params], plan: TrialPlan) -> list[Candidate]:
        """Plan all of them, and refuse those that the base does not cover."""
        planned: dict[tuple | None, Candidate] = {}
        found = []
        for params in drawn:
            key = _key(params)
            candidate = planned.get(key) or self.budgets.with_budget(params, plan.epsilon)
            if key is not None:
                planned[key] = candidate
            if not plan.covers(candidate.event):
                raise cost_mismatch(params, drawn[0])
            found.append(candidate)
        return found


def _key(params: Params) -> tuple | None:
    """Return a key for plain parameters: a candidate that comes again is planned once."""
    values = [v.item() if isinstance(v, np.generic) else v for v in params.values()]
    if not all(isinstance(value, _PLAIN) for value in values):
        return None
    return tuple((name, type(v), v) for name, v in zip(params, values, strict=True))


def cost_mismatch(
    params: Params, first: Params, why: str = "the price of a selection is that of one trial"
) -> ValueError:
    """Return the error of a candidate that does not cost what another does."""
    differing = [n for n in {**params, **first} if repr(params.get(n)) != repr(first.get(n))]
    return ValueError(
        f"Expected every candidate to cost the same, because {why}; but "
        f"{', '.join(sorted(differing)) or 'the parameters'} change what is charged. Leave "
        "parameters of batches, steps and draws out of param_distributions, or use Gaussian noise "
        "on full batches (sampling_rate=1.0, secure=False), where the budget alone fixes the price."
    )


# --- workflows ----------------------------------------------------------------------------------


def prepared(
    estimator: budgets.E, params: Params, n_samples: int | None, n_groups: int | None = None
) -> budgets.E:
    """Copy the estimator with the parameters of a candidate and public sizes, silenced."""
    copy: Any = clone(estimator)
    values: Any = clone(dict(params), safe=False)
    copy.set_params(**values)
    for part in _parts(copy):
        own = part.get_params(deep=False)
        # Progress bars, callbacks and worker processes would show how many trials there are.
        quiet: Params = {"n_jobs": None} if "n_jobs" in own else {}
        if "verbose" in own:
            quiet["verbose"] = type(own["verbose"])(0)  # some take a number, some a bool
        if n_samples is not None and "n_samples" in own:
            quiet["n_samples"] = n_samples
        if n_groups is not None and isinstance(unit := own.get("unit"), Persons):
            quiet["unit"] = replace(unit, n_groups=n_groups)
        part.set_params(**quiet)
        if hasattr(part, "set_callbacks"):
            part.set_callbacks()
    return copy


def _parts(workflow: Estimator) -> Iterator[Any]:
    """Every estimator of a workflow, itself first."""
    yield workflow
    for value in workflow.get_params(deep=True).values():
        if hasattr(value, "get_params") and not isinstance(value, type):
            yield value


def check_unit(workflow: Estimator, unit: str) -> None:
    """Check that all private parts protect what the search does: rows, or persons."""
    found = budgets.relation_of(workflow).unit
    if found != unit:
        steps = [name for name in sorted(budgets.private_parts(workflow)) if name]
        where = f"steps {', '.join(map(repr, steps))}" if steps else "estimator"
        what = f"{IN_WORDS[found]} as in the {where}, and not {IN_WORDS[unit]}"
        raise ValueError(f"Expected unit to be {what}; {budgets.APART}.")


def check_routing(workflow: Estimator) -> None:
    """Check that groups reach every private part, by its fit or by metadata routing."""
    parts = budgets.private_parts(workflow)
    routed = [name for name in sorted(parts) if name and name.rpartition("__")[0] not in parts]
    if not routed:
        return
    requests = {name: get_routing_for_object(parts[name]).fit.requests for name in routed}
    unset = [name for name in routed if requests[name].get("groups") is not True]
    if unset or not get_config()["enable_metadata_routing"]:
        raise ValueError(
            "Expected groups to reach each private step: pipelines pass them on by metadata "
            "routing alone. Call sklearn.set_config(enable_metadata_routing=True), and then "
            f"set_fit_request(groups=True) on {', '.join(map(repr, unset or routed))}."
        )
    process_routing(workflow, "fit", groups=True)  # finds steps that leave open what they take


def check_private_parts(workflow: Estimator, neighboring_relation: Relation) -> None:
    """Check what the search has to be sure of in each private part, whatever the candidate."""
    check_unit(workflow, neighboring_relation.unit)
    relation = budgets.relation_of(workflow)
    if relation != neighboring_relation:
        raise other_relation(f"{relation!r} as in the estimator", neighboring_relation)
    for part in _parts(workflow):
        if getattr(part, "memory", None) is not None:
            remedy = "a cache would share the noise of one trial with the next"
            raise expected("None inside a private search", remedy, memory="given")
    for part in budgets.private_parts(workflow).values():
        if (seed := getattr(part, "random_state", None)) is not None:
            remedy = "give random_state to the search, which seeds the trials"
            raise expected("None in the estimator", remedy, random_state=seed)
        if (path := getattr(part, "checkpoint", None)) is not None:
            remedy = "what a trial leaves on the disk is a release that no selection accounts for"
            raise expected("None inside a private search", remedy, checkpoint=path)
