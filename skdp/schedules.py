"""Schedules of a step size: pure functions of the share of the run that is done.

>>> from skdp.schedules import schedule
>>> [round(schedule("cosine")(done), 3) for done in (0.0, 0.5, 1.0)]
[1.0, 0.5, 0.0]
"""

from __future__ import annotations

import math
from collections.abc import Callable

from skdp._validate import expected, is_real

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


def schedule(named: str | Schedule) -> Schedule:
    """Return a schedule by name, or a function of one's own after a look at its values.

    Parameters
    ----------
    named : {"constant", "linear", "cosine"} or callable
        A callable maps the share of the run that is done, in [0, 1), to a factor ≥ 0.

    Returns
    -------
    callable

    Raises
    ------
    ValueError
        If there is no such schedule, or its factors are no numbers ≥ 0.
    """
    known = ", ".join(map(repr, _SCHEDULES))
    what = f"one of {known}, or a function from [0, 1) to factors >= 0"
    if isinstance(named, str) and named in _SCHEDULES:
        return _SCHEDULES[named]
    if not callable(named):
        raise expected(what, learning_rate_schedule=named)
    factors = [named(done) for done in (0.0, 0.5, 0.999)]
    if not all(is_real(f) and math.isfinite(f) and f >= 0 for f in factors):
        raise expected(what, learning_rate_schedule=named)
    return named
