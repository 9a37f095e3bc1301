"""Public fields to privacy events: what a run *will* release, written before it touches data.

An event is a dp-accounting object, so that anyone can feed it to another accountant; kinds that
dp-accounting lacks are added: `PosteriorSamplesDpEvent` here, `DiscreteGaussianDpEvent` in
`skdp.privacy.discrete`. Events are made from public
facts alone: no function here sees a row.

Noise multipliers are noise over the bound on *one record's* contribution, and under replace_one
over half of what replacing one record moves: the accountant doubles there. An event is therefore a
statement under one relation.

>>> from skdp.privacy.events import dp_sgd_event
>>> dp_sgd_event(noise_multiplier=1.0, sampling_rate=0.01, n_steps=1000).count
1000
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import attrs
import numpy as np
from dp_accounting import dp_event
from dp_accounting.dp_event import (
    ComposedDpEvent,
    DpEvent,
    GaussianDpEvent,
    LaplaceDpEvent,
    NonPrivateDpEvent,
    NoOpDpEvent,
    PoissonSampledDpEvent,
    RepeatAndSelectDpEvent,
    SelfComposedDpEvent,
)

from skdp._validate import expected, in_range, integer, positive
from skdp.privacy.discrete import DiscreteGaussianDpEvent, DiscreteGaussianTerm
from skdp.relations import sensitivity_factor


@attrs.frozen
class PosteriorSamplesDpEvent(DpEvent):
    """Independent exact draws from one distribution whose log-density has a bounded range.

    Between neighbours the log-density of the distribution may differ by a function whose largest
    and smallest value are at most ``eta`` apart (PRIVACY §4): an exponential mechanism, or a
    posterior with a bounded log-likelihood. ``eta`` already holds for the neighbouring relation.
    """

    eta: float
    n_samples: int = 1


def dp_sgd_event(
    noise_multiplier: float | Sequence[float] | np.ndarray,
    sampling_rate: float,
    n_steps: int | None = None,
) -> DpEvent:
    """Event of noisy sums of clipped per-record values (Abadi et al. 2016).

    Parameters
    ----------
    noise_multiplier : float or sequence of float
        σ: noise standard deviation over the clipping norm, ≥ 0; 0 is no privacy. A sequence holds
        one a step, fixed in advance.
    sampling_rate : float
        q in [0, 1]: each record takes part in a step independently with this probability; 1 is
        the full batch.
    n_steps : int or None
        T ≥ 0; with a sequence, None or its length.

    Returns
    -------
    DpEvent
        Composition of the (Poisson-sampled) Gaussian mechanisms.

    Raises
    ------
    ValueError
        If a field is out of range or not a number.

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
            raise expected(
                f"the number of noise multipliers ({len(sigmas)}), or None", n_steps=n_steps
            )
        checked = [_checked_multiplier(sigma) for sigma in sigmas]
        runs = [_run(sigma, q, len(list(run))) for sigma, run in groupby(checked)]
        return ComposedDpEvent(runs) if runs else NoOpDpEvent()
    sigma = _checked_multiplier(noise_multiplier)
    return _run(sigma, q, integer(0, n_steps=n_steps))


def _checked_multiplier(noise_multiplier: Any) -> float:
    return in_range(0.0, math.inf, noise_multiplier=noise_multiplier, closed="left")


def _run(sigma: float, q: float, n_steps: int) -> DpEvent:
    if n_steps == 0 or q == 0.0:
        return NoOpDpEvent()
    if sigma == 0.0:
        return NonPrivateDpEvent()
    step = GaussianDpEvent(sigma)
    return SelfComposedDpEvent(step if q == 1.0 else PoissonSampledDpEvent(q, step), n_steps)


def gdp_event(mu: float, neighboring_relation: str = "zero_out") -> DpEvent:
    """Event of a mechanism that is μ-GDP under a relation: a Gaussian mechanism is as bad.

    Every composition with a μ-GDP mechanism is dominated by the one with N(0, 1) against N(μ, 1)
    in its place (Dong, Roth & Su 2022, Theorem 3.2), so last-iterate certificates and regularised
    exponential mechanisms are accounted as that Gaussian.

    Parameters
    ----------
    mu : float
        μ > 0 under ``neighboring_relation``.
    neighboring_relation : {"zero_out", "add_or_remove_one", "replace_one"}
        The relation under which the event will be accounted.

    Returns
    -------
    DpEvent
        Gaussian mechanism whose μ under the relation is the one given.

    Raises
    ------
    ValueError
        If μ is not a finite number > 0.
    """
    return GaussianDpEvent(sensitivity_factor(neighboring_relation) / positive(mu=mu))


def gaussian_mu(event: DpEvent) -> float | None:
    """μ² = Σ T/σ² of a composition of full-batch Gaussian mechanisms, rooted; None of any other.

    Of discrete ones too it is None: they are near a Gaussian mechanism, and not as good.

    Under ``replace_one``, where noise is stated over half of what moves, μ is twice that.
    """
    terms = terms_of(event)
    if not all(isinstance(t, GaussianTerm) and t.sampling_rate == 1.0 for t in terms):
        return None
    squares = (t.count / t.noise_multiplier**2 for t in terms if isinstance(t, GaussianTerm))
    return math.inf if any(map(noiseless, terms)) else math.sqrt(math.fsum(squares))


@dataclass(frozen=True)
class GaussianTerm:
    """``count`` Poisson-sampled Gaussian mechanisms; ``sampling_rate=1`` is the plain mechanism."""

    noise_multiplier: float
    sampling_rate: float
    count: int


@dataclass(frozen=True)
class LaplaceTerm:
    """``count`` Laplace mechanisms, noise over the L1 bound on one record's contribution."""

    noise_multiplier: float
    count: int


@dataclass(frozen=True)
class PosteriorTerm:
    """``count`` times ``n_samples`` draws of one distribution of log-density range ``eta``."""

    eta: float
    n_samples: int
    count: int


@dataclass(frozen=True)
class SelectionTerm:
    """``count`` times the best of a random number of runs of ``inner`` (PRIVACY §6).

    The number has the law of `RepeatAndSelectDpEvent`: ``mean`` ≥ 1 runs, ``shape`` infinite for a
    Poisson law, 0 for a logarithmic one, and in between for a truncated negative binomial.
    """

    inner: tuple[Term, ...]
    mean: float
    shape: float
    count: int


Term = GaussianTerm | DiscreteGaussianTerm | LaplaceTerm | PosteriorTerm | SelectionTerm


def leaves(
    terms: Iterable[Term],
) -> Iterator[GaussianTerm | DiscreteGaussianTerm | LaplaceTerm | PosteriorTerm]:
    """Every mechanism among the terms, those of selections too."""
    for term in terms:
        if isinstance(term, SelectionTerm):
            yield from leaves(term.inner)
        else:
            yield term


def noiseless(term: Term) -> bool:
    """Whether a term is, or selects from, a mechanism without noise: no privacy."""
    noisy = (t for t in leaves([term]) if not isinstance(t, PosteriorTerm))
    return any(t.noise_multiplier == 0.0 for t in noisy)


def terms_of(event: DpEvent) -> tuple[Term, ...]:
    """Flatten an event into terms that release something, equal ones joined.

    A mechanism without noise comes out with noise multiplier 0: no privacy.

    Raises
    ------
    ValueError
        If the event is of a kind skdp has no bound for, or holds a number out of range. A wrong
        event must never be read as a cheap one.
    """
    # Terms are dataclasses and no tuples: a Gaussian term must never equal a posterior term.
    counts: dict[Term, int] = {}
    for term in _flatten(event, 1):
        alone = replace(term, count=1)
        counts[alone] = counts.get(alone, 0) + term.count
    joined = (replace(term, count=count) for term, count in counts.items() if count > 0)
    return tuple(sorted(joined, key=repr))  # in one order, whatever order they came in


def _flatten(event: DpEvent, count: int) -> Iterator[Term]:
    match event:
        case NoOpDpEvent():
            return
        case NonPrivateDpEvent():
            yield GaussianTerm(0.0, 1.0, count)
        case SelfComposedDpEvent():
            yield from _flatten(event.event, count * integer(0, count=event.count))
        case ComposedDpEvent():
            for part in event.events:
                yield from _flatten(part, count)
        case PoissonSampledDpEvent() if isinstance(event.event, GaussianDpEvent):
            rate = in_range(0.0, 1.0, sampling_rate=event.sampling_probability, closed="both")
            if rate > 0.0:
                yield GaussianTerm(_checked_multiplier(event.event.noise_multiplier), rate, count)
        case GaussianDpEvent():
            yield GaussianTerm(_checked_multiplier(event.noise_multiplier), 1.0, count)
        case DiscreteGaussianDpEvent():
            yield DiscreteGaussianTerm(
                positive(noise_multiplier=event.noise_multiplier),
                positive(lattice_scale=event.lattice_scale),
                integer(1, dimension=event.dimension),
                count,
            )
        case LaplaceDpEvent():
            yield LaplaceTerm(_checked_multiplier(event.noise_multiplier), count)
        case PosteriorSamplesDpEvent():
            eta = in_range(0.0, math.inf, eta=event.eta, closed="left")
            if eta > 0.0:
                yield PosteriorTerm(eta, integer(1, n_samples=event.n_samples), count)
        case RepeatAndSelectDpEvent():
            mean = in_range(1.0, math.inf, mean=event.mean, closed="left")
            shape = in_range(0.0, math.inf, shape=event.shape, closed="both")
            inner = terms_of(event.event)
            if inner:  # the number of runs is drawn without the data
                yield SelectionTerm(inner, mean, shape, count)
        case _:
            raise expected(
                "an event made of Gaussian, Poisson-sampled Gaussian, discrete Gaussian, Laplace, "
                "posterior-sample, selection, composed, no-op or non-private events",
                "account other mechanisms with dp-accounting itself",
                event=event,
            )


def event_to_dict(event: DpEvent) -> dict[str, Any]:
    """Write an event as nested plain objects, with its class under ``"type"``.

    An infinite number, the shape of a Poisson law, becomes ``"inf"``: JSON has none.
    """

    def plain(value: Any) -> Any:
        if isinstance(value, DpEvent):
            return event_to_dict(value)
        if isinstance(value, float) and value == math.inf:
            return "inf"
        return [plain(item) for item in value] if isinstance(value, (list, tuple)) else value

    names = [field.name for field in attrs.fields(type(event))]
    values = {name: plain(getattr(event, name)) for name in names}
    return {"type": type(event).__name__, **values}


def event_from_dict(values: dict[str, Any]) -> DpEvent:
    """Read an event back from `event_to_dict`.

    Raises
    ------
    ValueError
        If the class is none of dp-accounting's events and none of skdp's, or a number is NaN or −∞.
    """
    name = values.get("type")
    known = {kind.__name__: kind for kind in (PosteriorSamplesDpEvent, DiscreteGaussianDpEvent)}
    kind = known.get(str(name)) or getattr(dp_event, str(name), None)
    if not (isinstance(kind, type) and issubclass(kind, DpEvent)):
        raise expected("the name of an event class", type=name)

    def rich(value: Any) -> Any:
        if isinstance(value, dict):
            return event_from_dict(value)
        if isinstance(value, str) and value == "inf":
            return math.inf
        if isinstance(value, float) and (math.isnan(value) or value == -math.inf):
            raise expected("the values of an event", event=value)
        return [rich(item) for item in value] if isinstance(value, list) else value

    return kind(**{field: rich(value) for field, value in values.items() if field != "type"})
