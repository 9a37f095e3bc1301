"""Public fields to privacy events: what a run *will* release, written before it touches data.

An event is a dp-accounting object, so that anyone can feed it to another accountant. It is made
from public facts alone (law 1 of the design): no function here sees a row.

>>> from skdp.privacy.events import dp_sgd_event
>>> dp_sgd_event(noise_multiplier=1.0, sampling_rate=0.01, n_steps=1000).count
1000
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import attrs
from dp_accounting.dp_event import (
    ComposedDpEvent,
    DpEvent,
    GaussianDpEvent,
    NonPrivateDpEvent,
    NoOpDpEvent,
    PoissonSampledDpEvent,
    SelfComposedDpEvent,
)

from skdp._validate import expected, in_range, integer


def dp_sgd_event(noise_multiplier: float, sampling_rate: float, n_steps: int) -> DpEvent:
    """Event of ``n_steps`` noisy sums of clipped per-record values (Abadi et al. 2016).

    Parameters
    ----------
    noise_multiplier : float
        σ: noise standard deviation over the clipping norm, ≥ 0; 0 is no privacy.
    sampling_rate : float
        q in [0, 1]: each record takes part in a step independently with this probability; 1 is
        the full batch.
    n_steps : int
        T ≥ 0.

    Returns
    -------
    DpEvent
        T-fold composition of the (Poisson-sampled) Gaussian mechanism.

    Raises
    ------
    ValueError
        If a field is out of range or not a number.
    """
    sigma = in_range(0.0, math.inf, noise_multiplier=noise_multiplier, closed="left")
    q = in_range(0.0, 1.0, sampling_rate=sampling_rate, closed="both")
    n_steps = integer(0, n_steps=n_steps)
    if n_steps == 0 or q == 0.0:
        return NoOpDpEvent()
    if sigma == 0.0:
        return NonPrivateDpEvent()
    step = GaussianDpEvent(sigma)
    return SelfComposedDpEvent(step if q == 1.0 else PoissonSampledDpEvent(q, step), n_steps)


class GaussianTerm(NamedTuple):
    """``count`` Poisson-sampled Gaussian mechanisms; ``sampling_rate=1`` is the plain mechanism."""

    noise_multiplier: float
    sampling_rate: float
    count: int


def gaussian_terms(event: DpEvent, count: int = 1) -> Iterator[GaussianTerm]:
    """Flatten an event into Gaussian terms, checking every number on the way.

    A mechanism without noise comes out with noise multiplier 0: no privacy.

    Raises
    ------
    ValueError
        If the event is of a kind skdp has no bound for, or holds a number out of range. A wrong
        event must never be read as a cheap one.
    """
    if isinstance(event, NoOpDpEvent):
        return
    if isinstance(event, NonPrivateDpEvent):
        yield GaussianTerm(0.0, 1.0, count)
    elif isinstance(event, SelfComposedDpEvent):
        yield from gaussian_terms(event.event, count * integer(0, count=event.count))
    elif isinstance(event, ComposedDpEvent):
        for part in event.events:
            yield from gaussian_terms(part, count)
    elif isinstance(event, PoissonSampledDpEvent) and isinstance(event.event, GaussianDpEvent):
        yield _term(event.event.noise_multiplier, event.sampling_probability, count)
    elif isinstance(event, GaussianDpEvent):
        yield _term(event.noise_multiplier, 1.0, count)
    else:
        raise expected(
            "an event made of Gaussian, Poisson-sampled, composed, no-op or non-private events",
            "account other mechanisms with dp-accounting itself",
            event=event,
        )


def _term(noise_multiplier: float, sampling_rate: float, count: int) -> GaussianTerm:
    sigma = in_range(0.0, math.inf, noise_multiplier=noise_multiplier, closed="left")
    return GaussianTerm(
        sigma, in_range(0.0, 1.0, sampling_rate=sampling_rate, closed="both"), count
    )


def event_to_dict(event: DpEvent) -> dict[str, Any]:
    """Write an event as nested plain objects, with its dp-accounting class under ``"type"``."""

    def plain(value: Any) -> Any:
        if isinstance(value, DpEvent):
            return event_to_dict(value)
        return [plain(item) for item in value] if isinstance(value, (list, tuple)) else value

    names = [field.name for field in attrs.fields(type(event))]
    values = {name: plain(getattr(event, name)) for name in names}
    return {"type": type(event).__name__, **values}
