"""From a budget to noise: the least noise multiplier that an (ε, δ) affords.

The full batch has a closed form; a Poisson plan needs a search over a few privacy loss
distributions. What is returned has been seen to keep the promise ε(σ) ≤ ε.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import groupby

from dp_accounting.dp_event import ComposedDpEvent, DpEvent

from skdp.fitting.validate import in_range, integer, one_of, positive
from skdp.privacy.accountants import PLD_MIN_NOISE
from skdp.privacy.accounting import ACCOUNTANTS, AUTO, GDP, PLD, PLD_ROUGH, RDP, ROUGH, least_bound
from skdp.privacy.events import dp_sgd_event, terms_of
from skdp.privacy.gdp import epsilon_to_gdp
from skdp.privacy.terms import GaussianTerm, NoBoundError, bucketed_down
from skdp.relations import Relation, check_relation

Levels = tuple[tuple[float, int], ...]  # noise multipliers, and the number of steps at each

_MAX_NOISE = 1e8
_SEARCH_LEVELS = 8  # of a noise schedule, while the search is far from its end
_NUMERICAL_TOLERANCE = 1e-3  # of ε, relative; of σ it is less
_EXACT_TOLERANCE = 1e-10


def calibrate_noise_multiplier(
    *,
    epsilon: float,
    delta: float,
    sampling_rate: float = 1.0,
    n_steps: int = 1,
    neighboring_relation: str = "zero_out",
    accountant: str = "auto",
) -> float:
    """Find the least noise multiplier σ for which the run is (ε, δ)-DP.

    Parameters
    ----------
    epsilon : float
        ε > 0; infinite asks for no noise.
    sampling_rate, n_steps
        As in `skdp.privacy.epsilon`, q > 0 and T ≥ 1.
    delta, neighboring_relation, accountant
        As in `skdp.privacy.epsilon`.

    Returns
    -------
    float
        σ, never less private than asked; 0 for an infinite ε.

    Raises
    ------
    ValueError
        If a number is out of range, or no noise multiplier up to 1e8 affords the target.

    Examples
    --------
    >>> from skdp.privacy import calibrate_noise_multiplier, epsilon
    >>> sigma = calibrate_noise_multiplier(epsilon=2.0, delta=1e-5, sampling_rate=0.01, n_steps=500)
    >>> epsilon(noise_multiplier=sigma, delta=1e-5, sampling_rate=0.01, n_steps=500) <= 2.0
    True
    """
    budget = positive(epsilon=epsilon, allow_inf=True)
    facts = _checked(delta, sampling_rate, neighboring_relation, accountant)
    return _calibrate(((1.0, integer(1, n_steps=n_steps)),), budget, *facts)


def calibrate_schedule(
    units: Sequence[float],
    *,
    epsilon: float,
    delta: float,
    sampling_rate: float = 1.0,
    neighboring_relation: str = "zero_out",
    accountant: str = "auto",
) -> float:
    """Find the least factor of ``units``, noise multipliers > 0 of each step, for a finite ε."""
    runs = groupby(sorted(positive(units=unit) for unit in units))
    levels = tuple((unit, len(list(run))) for unit, run in runs)
    facts = _checked(delta, sampling_rate, neighboring_relation, accountant)
    calibrated = _calibrate if len(levels) <= _FEW_LEVELS else _calibrate_many
    return calibrated(levels, positive(epsilon=epsilon), *facts)


def _checked(
    delta: float, sampling_rate: float, neighboring_relation: str, accountant: str
) -> tuple[float, float, Relation, str]:
    return (
        in_range(0.0, 1.0, delta=delta),
        in_range(0.0, 1.0, sampling_rate=sampling_rate, closed="right"),
        check_relation(neighboring_relation),
        one_of(ACCOUNTANTS, accountant=accountant),
    )


def _calibrated(
    levels: Levels, epsilon: float, delta: float, q: float, relation: Relation, accountant: str
) -> float:
    if epsilon == math.inf:
        return 0.0

    def event(levels: Levels, factor: float) -> DpEvent:
        return ComposedDpEvent([dp_sgd_event(factor * σ, q, count) for σ, count in levels])

    mu = max(epsilon_to_gdp(epsilon, delta), 1e-150)  # may be lost in rounding
    # Exact for the full batch, else the central-limit value (Bu et al. 2020) at a constant noise of
    # the same mean 1/σ²: a first guess.
    n_steps = sum(count for _, count in levels)
    mean = sum(count / σ**2 for σ, count in levels) / n_steps
    square = min(mu / q, 1e150) ** 2 / n_steps
    guess = relation.factor * math.sqrt(mean) / math.sqrt(max(math.log1p(square), 1e-300))
    if q == 1.0 and accountant in (AUTO, GDP):
        guess = relation.factor * math.sqrt(mean * n_steps) / mu
    few = levels
    if q < 1.0:
        # A few levels at or below the schedule bound it too, and bring the search close.
        terms = bucketed_down(terms_of(event(levels, 1.0)), _SEARCH_LEVELS)
        few = tuple((t.noise_multiplier, t.count) for t in terms if isinstance(t, GaussianTerm))
    factor = calibrate(
        lambda f: event(few, f),
        epsilon=epsilon,
        delta=delta,
        guess=guess,
        neighboring_relation=relation,
        accountant=accountant,
        least=PLD_MIN_NOISE / levels[0][0],
    )
    if len(few) == len(levels):
        return factor

    def spent(factor: float) -> float:
        return least_bound(event(levels, factor), delta, relation, accountant)[0]

    # ε falls as a power of the factor, 1 or a little more: aim once with all levels, and look.
    closer = factor * (spent(factor) / (0.998 * epsilon)) ** 0.85
    if spent(closer) <= epsilon:
        return closer
    while spent(factor) > epsilon:  # the last digits of two numerical bounds need not agree
        factor *= 1.001
    return factor


# A key holds all levels: few are kept where these are many.
_FEW_LEVELS = 32
_calibrate = lru_cache(maxsize=1024)(_calibrated)
_calibrate_many = lru_cache(maxsize=32)(_calibrated)


def calibrate(
    make_event: Callable[[float], DpEvent],
    *,
    epsilon: float,
    delta: float,
    guess: float,
    neighboring_relation: str = "zero_out",
    accountant: str = "auto",
    least: float = 0.0,
) -> float:
    """Find the least noise parameter whose event affords a budget, never less private than asked.

    More of the parameter must never cost more, and ε should fall about as a power of it, as it does
    with a noise multiplier; the ``guess`` is taken at once if it is right. Below ``least`` privacy
    loss distributions have no answer; it is returned where it affords the budget. Else ε is less
    than a relative 1e-3 below the one asked.
    """
    if guess > _MAX_NOISE:
        raise _unaffordable(epsilon, delta)

    def excess(log_parameter: float, accountant: str) -> float:
        if log_parameter > math.log(_MAX_NOISE):
            raise _unaffordable(epsilon, delta)
        try:
            event = make_event(math.exp(log_parameter))
            spent = least_bound(event, delta, neighboring_relation, accountant)[0]
        except NoBoundError:  # too little noise for a numerical accountant
            return math.inf
        return math.log(max(spent, 1e-300) / epsilon)

    # The accountant that is least at the guess is least nearby, and one is asked faster than all.
    quick = ROUGH if accountant == AUTO else accountant
    chosen = least_bound(make_event(guess), delta, neighboring_relation, quick)[1]
    x, slope, floor = math.log(guess), 1.0, math.log(least) if least > 0.0 else -math.inf
    if chosen in (PLD, PLD_ROUGH):
        # A rough grid is a bound too, and brings the search close at a low price.
        x, slope = _root(lambda x: excess(x, PLD_ROUGH), x, slope, 5e-3, floor, slack=5e-3)
        chosen = PLD
    else:
        floor = -math.inf
    tolerance = _NUMERICAL_TOLERANCE if chosen in (PLD, RDP) else _EXACT_TOLERANCE
    return math.exp(_root(lambda x: excess(x, chosen), x, slope, tolerance, floor)[0])


def _unaffordable(epsilon: float, delta: float) -> ValueError:
    return ValueError(
        f"Expected epsilon={epsilon:g} at delta={delta:g} to be affordable with a noise parameter "
        f"<= {_MAX_NOISE:g}; ask for a larger epsilon or for fewer steps."
    )


def _root(
    excess: Callable[[float], float],
    x: float,
    slope: float,
    tolerance: float,
    floor: float = -math.inf,
    slack: float = 0.0,
) -> tuple[float, float]:
    """Bracketed secant search for the root of a falling function, ended where it is in tolerance.

    The end is on the side where the function is ≤ ``slack``, and not below ``floor``. log ε(log σ)
    is close to a line, so a few steps are enough; where there is no number at all (too little
    noise) or the function is flat, bounded steps and bisection still get on.
    """
    low, high = -math.inf, math.inf  # too little noise is known at `low`, enough at `high`
    before = None
    for _ in range(80):
        e = excess(x)
        if -tolerance <= e <= slack or (e <= 0 and x <= floor):
            return x, slope
        low, high = (low, min(high, x)) if e <= 0 else (max(low, x), high)
        if before is not None and math.isfinite(e) and x != before[0]:
            slope = min(max((before[1] - e) / (x - before[0]), 0.3), 100.0)
        if math.isfinite(e):
            before = (x, e)
        # Aim at the middle of the tolerance, from either side.
        aim = x + min(max((e + (tolerance - slack) / 2) / slope, -1.0), 1.0)
        x = max(aim, floor) if low < max(aim, floor) < high else (low + high) / 2
        if not low < x < high:
            break
    if math.isinf(high):
        raise ValueError("The search for a noise parameter failed; ask for a larger epsilon.")
    return high, slope
