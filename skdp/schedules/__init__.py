"""Schedules of a step size: pure functions, of the share of the run that is done or of the step.

>>> from skdp.schedules import PolynomialDecay, schedule
>>> [round(schedule("cosine")(done), 3) for done in (0.0, 0.5, 1.0)]
[1.0, 0.5, 0.0]
>>> PolynomialDecay(initial=4.0, offset=200, exponent=0.55)(0)
4.0
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch.optim.lr_scheduler import LRScheduler

from skdp.fitting.validate import expected, in_range, is_real, positive

Schedule = Callable[[float], float]


def constant(done: float) -> float:
    """Factor 1 throughout."""
    return 1.0


def linear(done: float) -> float:
    """Factor that falls from 1 to 0 in a straight line."""
    return 1.0 - done


def cosine(done: float) -> float:
    """Factor that falls from 1 to 0 along half a cosine (Loshchilov & Hutter 2017)."""
    return 0.5 * (1.0 + math.cos(math.pi * done))


_SCHEDULES = {"constant": constant, "linear": linear, "cosine": cosine}


def schedule(named: Any, learning_rate: float = 1.0, n_steps: int = 1000) -> Schedule:
    """Return a schedule by name, or a function of your own after a look at its values.

    Parameters
    ----------
    named : {"constant", "linear", "cosine"}, class or callable
        A callable maps the share of the run that is done, in [0, 1), to a factor ≥ 0. Or a
        scheduler class of torch, or a `functools.partial` of one.
    learning_rate : float, default=1.0
        Step size that such a scheduler starts from.
    n_steps : int, default=1000
        Number of steps of the run: those that such a scheduler counts.

    Returns
    -------
    callable

    Raises
    ------
    ValueError
        If there is no such schedule, or its factors in a run of so many steps are not numbers ≥ 0,
        or all 0.
    """
    known = ", ".join(map(repr, _SCHEDULES))
    what = f"one of {known}, a scheduler class of torch, or a function from [0, 1) to factors >= 0"
    if isinstance(named, str) and named in _SCHEDULES:
        return _SCHEDULES[named]
    if not callable(named):
        raise expected(what, learning_rate_schedule=named)
    made: Any = named.func if isinstance(named, partial) else named
    if isinstance(made, type) and issubclass(made, LRScheduler):
        return _of_torch(named, learning_rate, n_steps)
    own: Any = named
    factors = [own(step / n_steps) for step in range(n_steps)]
    if not all(is_real(f) and math.isfinite(f) and f >= 0 for f in factors) or not any(factors):
        raise expected(f"{what}, not all 0", learning_rate_schedule=named)
    return own


def _of_torch(make: Any, learning_rate: float, n_steps: int) -> Schedule:
    """Return the factors of a scheduler of torch, which it would give an optimiser of its own."""
    optimizer, factors = torch.optim.SGD([torch.zeros(1)], lr=learning_rate, momentum=0.9), []
    try:
        scheduler = make(optimizer)
        for step in range(n_steps):
            factors.append(float(optimizer.param_groups[0]["lr"]) / learning_rate)
            optimizer.step()
            if step < n_steps - 1:
                scheduler.step()
    except Exception as error:
        raise expected(
            "a scheduler that counts steps and looks at nothing else",
            f"give what it needs as learning_rate_schedule__ parameters ({error})",
            learning_rate_schedule=make,
        ) from error
    if not all(math.isfinite(factor) and factor >= 0 for factor in factors) or not any(factors):
        what = "a scheduler whose step sizes are >= 0, not all 0"
        raise expected(what, learning_rate_schedule=make)
    return lambda done: factors[min(round(done * n_steps), n_steps - 1)]


@dataclass(frozen=True)
class PolynomialDecay:
    """Step sizes η_t = a(b + t)^−γ of Langevin dynamics (Welling & Teh 2011).

    Written as η_t = η_0 (1 + t/b)^−γ for t = 0, 1, …, so that a = η_0 b^γ.

    Parameters
    ----------
    initial : float
        η_0 > 0.
    offset : float
        b > 0: number of steps after which the decay sets in.
    exponent : float
        γ in [0, 1]; 0 is a constant step size.
    """

    initial: float
    offset: float = 1.0
    exponent: float = 0.55

    def __post_init__(self) -> None:
        positive(initial=self.initial)
        positive(offset=self.offset)
        in_range(0.0, 1.0, exponent=self.exponent, closed="both")

    def __call__(self, step: int) -> float:
        """Step size η_t."""
        return self.initial * (1.0 + step / self.offset) ** -self.exponent


def step_sizes(learning_rate: Callable[[int], float], n_steps: int) -> tuple[float, ...]:
    """Return η_0, …, η_{T−1} of a function of the step t, which must be positive and never rise.

    Raises ValueError if they rise, are not finite numbers > 0, or are not a function of the step.
    """
    what = "a function of the step t = 0, 1, ... whose values are numbers > 0 that never rise"
    remedy = "e.g. skdp.schedules.PolynomialDecay(initial=2.0, offset=100, exponent=0.55)"
    try:
        rates, again = ([learning_rate(t) for t in range(n_steps)] for _ in range(2))
    except Exception as error:
        raise expected(what, remedy, learning_rate=learning_rate) from error
    if not all(is_real(rate) and 0.0 < rate < math.inf for rate in rates) or any(
        later > earlier for earlier, later in pairwise(rates)
    ):
        raise expected(what, remedy, learning_rate=learning_rate)
    if rates != again:
        raise expected("the same function each time it is asked", learning_rate=learning_rate)
    return tuple(float(rate) for rate in rates)
