"""Public fields to privacy events: what a run *will* release, written before it touches data.

An event is a dp-accounting object, so that anyone can feed it to another accountant; kinds that
dp-accounting lacks are added: `PosteriorSamplesDpEvent` and `PureDpEvent` here,
`DiscreteGaussianDpEvent` in `skdp.privacy.discrete`, `PartDpEvent` in `skdp.privacy.parts`. Events
are made from public facts alone: no function here sees a row.

Noise multipliers are noise over the bound on *one record's* contribution, and under replace_one
over half of what replacing one record moves: the accountant doubles there. An event is therefore a
statement under one relation.

"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import singledispatch
from itertools import groupby
from typing import Any

import attrs
import numpy as np
from dp_accounting import dp_event
from dp_accounting.dp_event import ComposedDpEvent, DpEvent, GaussianDpEvent, SelfComposedDpEvent

from skdp.fitting.types import Json
from skdp.fitting.validate import expected, in_range, integer, positive
from skdp.privacy.discrete import DiscreteGaussianDpEvent, DiscreteGaussianTerm
from skdp.privacy.parts import PartDpEvent
from skdp.privacy.terms import (
    GaussianTerm,
    LaplaceTerm,
    PosteriorTerm,
    PureTerm,
    SelectionTerm,
    Term,
    all_exact,
    gaussian_event,
)
from skdp.relations import check_relation


@attrs.frozen
class PosteriorSamplesDpEvent(DpEvent):
    """Independent exact draws from one distribution whose log-density has a bounded range.

    Between neighbours the log-density of the distribution may differ by a function whose largest
    and smallest value are at most ``eta`` apart (PRIVACY §4): an exponential mechanism, or a
    posterior with a bounded log-likelihood. ``eta`` already holds for the neighbouring relation.
    """

    eta: float
    n_samples: int = 1


@attrs.frozen
class PureDpEvent(DpEvent):
    """A mechanism that is ε-DP under the relation, of which nothing else is known.

    Integers with geometric noise are such: Laplace noise of the same ε would be too good a bound.
    """

    epsilon: float


def dp_sgd_event(
    noise_multiplier: float | Sequence[float] | np.ndarray,
    sampling_rate: float,
    n_steps: int | None = None,
) -> DpEvent:
    """Event of noisy sums of clipped per-record values (Abadi et al. 2016).

    Parameters
    ----------
    noise_multiplier : float or sequence of float
        σ ≥ 0 over the clipping norm; 0 is no privacy. A sequence holds one per step, fixed in
        advance.
    sampling_rate : float
        Poisson rate q in [0, 1] at which each record takes part in a step; 1 is the full batch.
    n_steps : int or None
        T ≥ 0; with a sequence, None or its length.

    Examples
    --------
    >>> from skdp.privacy.events import dp_sgd_event
    >>> dp_sgd_event([2.0, 2.0, 3.0], sampling_rate=1.0).events[0].count
    2
    """
    q = in_range(0.0, 1.0, sampling_rate=sampling_rate, closed="both")
    if isinstance(noise_multiplier, list | tuple | np.ndarray):
        sigmas = list(noise_multiplier)
        if n_steps is not None and n_steps != len(sigmas):
            what = f"the number of noise multipliers ({len(sigmas)}), or None"
            raise expected(what, n_steps=n_steps)
        runs = groupby(_multiplier(sigma) for sigma in sigmas)
        events = [gaussian_event(sigma, q, len(list(run))) for sigma, run in runs]
        return ComposedDpEvent(events) if events else dp_event.NoOpDpEvent()
    return gaussian_event(_multiplier(noise_multiplier), q, integer(0, n_steps=n_steps))


def _multiplier(noise_multiplier: float | Sequence[float]) -> float:
    return in_range(0.0, math.inf, noise_multiplier=noise_multiplier, closed="left")


def gdp_event(mu: float, neighboring_relation: str = "zero_out") -> DpEvent:
    """Event of a mechanism that is μ-GDP under a relation: a Gaussian mechanism is as bad.

    Every composition with a μ-GDP mechanism is dominated by the one with N(0, 1) against N(μ, 1)
    in its place (Dong, Roth & Su 2022, Theorem 3.2), so last-iterate certificates and regularised
    exponential mechanisms are accounted as that Gaussian.
    """
    return GaussianDpEvent(check_relation(neighboring_relation).factor / positive(mu=mu))


def gaussian_mu(event: DpEvent) -> float | None:
    """μ of a composition of full-batch Gaussian mechanisms, μ² = Σ T/σ²; None of any other event.

    Discrete ones are near a Gaussian mechanism and not as good, so it is None of them too. Under
    ``replace_one``, where noise is stated over half of what moves, μ is twice that.
    """
    terms = terms_of(event)
    if not all_exact(terms):
        return None
    if any(t.noiseless for t in terms):
        return math.inf
    return math.hypot(*(math.sqrt(t.count) / t.noise_multiplier for t in terms))


def terms_of(event: DpEvent) -> tuple[Term, ...]:
    """Flatten an event into terms that release something, equal ones joined.

    A mechanism without noise comes out with noise multiplier 0: no privacy. A ValueError says if
    skdp has no bound for an event, or a number is out of range: it must never be read as a cheap
    one.
    """
    # Terms are dataclasses and no tuples: a Gaussian term must never equal a posterior term.
    counts: dict[Any, int] = {}
    for term, count in _flatten(event, 1):
        counts[term] = counts.get(term, 0) + count
    joined = (replace(term, count=count) for term, count in counts.items() if count > 0)
    return tuple(sorted(joined, key=repr))  # in one order, whatever order they came in


def _flatten(event: DpEvent, count: int) -> Iterator[tuple[Term, int]]:
    if isinstance(event, SelfComposedDpEvent):
        yield from _flatten(event.event, count * integer(0, count=event.count))
    elif isinstance(event, ComposedDpEvent):
        for part in event.events:
            yield from _flatten(part, count)
    elif isinstance(event, PartDpEvent):  # as if it had read all rows: `paid_together` knows better
        yield from _flatten(event.event, count)
    elif (term := _read(event)) is not None:
        yield term, count


@singledispatch
def _read(event: DpEvent) -> Term | None:
    """Read one mechanism, by its registered reader, as a term; None if it releases nothing."""
    raise expected(
        "an event made of (discrete) Gaussian, Poisson-sampled (discrete) Gaussian, Laplace, "
        "posterior-sample, pure, selection, composed, no-op or non-private events",
        "account other mechanisms with dp-accounting itself",
        event=event,
    )


_read.register(dp_event.NoOpDpEvent, lambda _: None)
_read.register(dp_event.NonPrivateDpEvent, lambda _: GaussianTerm(0.0, 1.0, 1))
_read.register(
    GaussianDpEvent, lambda event: GaussianTerm(_multiplier(event.noise_multiplier), 1.0, 1)
)
_read.register(
    dp_event.LaplaceDpEvent, lambda event: LaplaceTerm(_multiplier(event.noise_multiplier), 1)
)


@_read.register
def _(event: dp_event.PoissonSampledDpEvent) -> Term | None:
    if not isinstance(event.event, GaussianDpEvent | DiscreteGaussianDpEvent):
        return _read.dispatch(DpEvent)(event)  # refused
    rate = in_range(0.0, 1.0, sampling_rate=event.sampling_probability, closed="both")
    term: Any = _read(event.event)
    return replace(term, sampling_rate=rate) if rate > 0.0 else None


@_read.register
def _(event: DiscreteGaussianDpEvent) -> Term:
    sigma = positive(noise_multiplier=event.noise_multiplier)
    scale = positive(lattice_scale=event.lattice_scale)
    return DiscreteGaussianTerm(sigma, scale, integer(1, dimension=event.dimension), 1)


@_read.register
def _(event: PosteriorSamplesDpEvent) -> Term | None:
    eta = in_range(0.0, math.inf, eta=event.eta, closed="left")
    return PosteriorTerm(eta, integer(1, n_samples=event.n_samples), 1) if eta > 0.0 else None


@_read.register
def _(event: PureDpEvent) -> Term:
    return PureTerm(positive(epsilon=event.epsilon), 1)


@_read.register
def _(event: dp_event.RepeatAndSelectDpEvent) -> Term | None:
    mean = in_range(1.0, math.inf, mean=event.mean, closed="left")
    shape = in_range(0.0, math.inf, shape=event.shape, closed="both")
    inner = terms_of(event.event)
    # The number of runs is drawn without the data.
    return SelectionTerm(inner, mean, shape, 1) if inner else None


def event_to_dict(event: DpEvent) -> dict[str, Json]:
    """Write an event as nested plain objects, its class under "type"; infinity becomes "inf"."""

    def plain(value: Any) -> Json:
        if isinstance(value, DpEvent):
            return event_to_dict(value)
        if isinstance(value, float) and value == math.inf:
            return "inf"
        return [plain(item) for item in value] if isinstance(value, (list, tuple)) else value

    names = [field.name for field in attrs.fields(type(event))]
    values = {name: plain(getattr(event, name)) for name in names}
    return {"type": type(event).__name__, **values}


def event_from_dict(values: Mapping[str, Json]) -> DpEvent:
    """Read an event back from `event_to_dict`; a ValueError says what is no event."""
    name = values.get("type")
    known = {kind.__name__: kind for kind in (*_read.registry, PartDpEvent)}
    kind: Any = known.get(str(name)) or getattr(dp_event, str(name), None)
    if not (isinstance(kind, type) and issubclass(kind, DpEvent)):
        raise expected("the name of an event class", type=name)

    def rich(value: Json) -> DpEvent | Json | list:
        if isinstance(value, dict):
            return event_from_dict(value)
        if isinstance(value, str) and value == "inf":
            return math.inf
        if isinstance(value, float) and (math.isnan(value) or value == -math.inf):
            raise expected("the values of an event", event=value)
        return [rich(item) for item in value] if isinstance(value, list) else value

    return kind(**{field: rich(value) for field, value in values.items() if field != "type"})
