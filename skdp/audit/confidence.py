"""From counts of two kinds of error to a lower bound on ε.

Whoever tells from a result whether a record was there errs in two ways: false alarms, at a rate α,
and misses, at a rate β. A guarantee is a curve that no test gets below, β ≥ f(α):

    (ε, δ)-DP     f(α) = max(0, 1 − δ − e^ε α, e^{−ε}(1 − δ − α))     (Kairouz, Oh & Viswanath 2015)
    μ-GDP         f(α) = Φ(Φ⁻¹(1 − α) − μ)                            (Dong, Roth & Su 2022)

so a test whose errors are below the curve refutes the guarantee. Of n₀ results without the record
and n₁ with it the audit sees a false alarms and b misses; the curves are nested, and the bound is
the largest ε (or μ) whose curve the counts refute.

**Why the bound is valid.** Fix the test beforehand, and draw results independently: then a and b
are independent binomial counts, whatever the mechanism. Let T(a, b) be any function that falls in
both. Under a guarantee of curve f, T is as large as observed, or larger, with probability at most

    p(f) = sup over α of  P[T(a, b) ≥ T_observed],   a ~ Bin(n₀, α),  b ~ Bin(n₁, f(α)),

because more errors make T smaller. The curves fall as ε grows, so p(f_ε) grows with ε, and the
largest ε with p(f_ε) ≤ 1 − confidence is a lower confidence bound (Buehler 1957). Both directions
of the definition, D against D' and D' against D, are in the one curve, and the threshold in the
test: nothing is tried twice, so nothing needs to be corrected for. The level is exact up to
rounding: the supremum is taken over cells [α_i, α_{i+1}] in which (α_i, f(α_{i+1})) is the worst
case, and over a confidence interval for α whose own error is added to p (Berger & Boos 1994).

T is the bound that two one-sided Clopper–Pearson limits give, each with half of the error
probability (Nasr et al. 2021; in the GDP frame Nasr et al. 2023). That one is valid too, so the
result is at least that; with 5000 results an arm and μ = 1 it is .956 instead of .927.

The frame is a matter of the claim. Refuting a μ-GDP curve says nothing about another mechanism of
the same (ε, δ), whose curve is lower. It is for mechanisms that claim to be Gaussian.

>>> from skdp.audit.confidence import frame_of, lower_bound
>>> for name in ("dp", "gdp"):  # N(0, 1) against N(1, 1): ε = 4.38 at δ = 1e-5
...     frame = frame_of(name, delta=1e-5)
...     bound = lower_bound(frame, misses=1543, n_with=5000, alarms=1543, n_without=5000)
...     print(name, round(frame.epsilon(bound), 2))
dp 0.76
gdp 4.15

References
----------
R. L. Berger, D. D. Boos, *P Values Maximized Over a Confidence Set for the Nuisance Parameter*,
JASA 1994.
R. J. Buehler, *Confidence Intervals for the Product of Two Binomial Parameters*, JASA 1957.
P. Kairouz, S. Oh, P. Viswanath, *The Composition Theorem for Differential Privacy*, ICML 2015.
M. Nasr et al., *Adversary Instantiation: Lower Bounds for Differentially Private Machine Learning*,
S&P 2021; *Tight Auditing of Differentially Private Machine Learning*, USENIX Security 2023.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import betaincinv, gammaln, ndtr, ndtri, xlog1py, xlogy

from skdp.fitting.types import Params
from skdp.fitting.validate import in_range, integer, one_of
from skdp.privacy.gdp import epsilon_to_gdp, gdp_to_epsilon

FRAMES = ("dp", "gdp")
_CELLS = 96  # of the supremum over α; more would raise the bound by less than 1 %
_BOOS = 1e-3  # share of the error probability that the interval for α may use
_MOST = 700.0  # e^ε is a number


@dataclass(frozen=True)
class DPFrame:
    """(ε, δ)-DP at a fixed δ; the strength is ε."""

    delta: float
    balanced = False  # whether tests with as many false alarms as misses prove the most

    def tradeoff(self, strength: float, alpha: np.ndarray) -> np.ndarray:
        """Least rate of misses at each rate of false alarms: two lines, Kairouz et al. 2015."""
        first = 1 - self.delta - math.exp(min(strength, _MOST)) * alpha
        second = math.exp(-min(strength, _MOST)) * (1 - self.delta - alpha)
        return np.maximum(0.0, np.maximum(first, second))

    def strength(self, alpha: np.ndarray, beta: np.ndarray) -> np.ndarray:
        """Give the ε whose curve goes through (α, β), in whichever direction says more."""
        with np.errstate(divide="ignore"):
            first = np.log(np.maximum(0.0, 1 - self.delta - beta)) - np.log(alpha)
            second = np.log(np.maximum(0.0, 1 - self.delta - alpha)) - np.log(beta)
        return np.maximum(first, second)

    def epsilon(self, strength: float) -> float:
        """ε itself."""
        return strength

    def of_epsilon(self, epsilon: float) -> float:
        """ε itself."""
        return epsilon


@dataclass(frozen=True)
class GDPFrame:
    """Gaussian differential privacy; the strength is μ, and ε that of μ at a fixed δ."""

    delta: float
    balanced = True

    def tradeoff(self, strength: float, alpha: np.ndarray) -> np.ndarray:
        """Of N(0, 1) against N(μ, 1)."""
        return ndtr(-ndtri(alpha) - strength)

    def strength(self, alpha: np.ndarray, beta: np.ndarray) -> np.ndarray:
        """μ = Φ⁻¹(1 − α) − Φ⁻¹(β)."""
        return -ndtri(alpha) - ndtri(beta)

    def epsilon(self, strength: float) -> float:
        """Translate exactly, by Balle & Wang 2018."""
        return gdp_to_epsilon(strength, self.delta)

    def of_epsilon(self, epsilon: float) -> float:
        """Invert `epsilon`."""
        return 0.0 if epsilon == 0.0 else epsilon_to_gdp(epsilon, self.delta)


Frame = DPFrame | GDPFrame  # a family of nested trade-off curves, by the strength s of each


def frame_of(name: str, delta: float) -> Frame:
    """Return the frame of a name; the Gaussian one needs δ > 0."""
    if one_of(FRAMES, frame=name) == "dp":
        return DPFrame(in_range(0.0, 1.0, delta=delta, closed="left"))
    return GDPFrame(in_range(0.0, 1.0, "frame='dp' takes 0", delta=delta))


def upper_limit(count, n: int, level: float):
    """One-sided Clopper–Pearson limit: the rate that gives so few with probability ``level``."""
    count = np.asarray(count)
    return np.where(count >= n, 1.0, betaincinv(count + 1.0, np.maximum(n - count, 0.5), 1 - level))


def limits(count: int, n: int, level: float) -> tuple[float, float]:
    """Two-sided Clopper–Pearson interval that misses the rate with probability ``level``."""
    low = 1.0 - float(upper_limit(n - count, n, level / 2))
    return low, float(upper_limit(count, n, level / 2))


def lower_bound(
    frame: Frame, *, misses: int, n_with: int, alarms: int, n_without: int, confidence: float = 0.95
) -> float:
    """Largest strength ≥ 0 that the counts refute, with a confidence in (0, 1); 0 if none.

    Results with the record that the test took for ones without are misses, of ``n_with``; results
    without it that were taken for ones with are alarms, of ``n_without``.
    """
    n_with, n_without = integer(1, n_with=n_with), integer(1, n_without=n_without)
    in_range(0, n_with, misses=misses, closed="both")
    in_range(0, n_without, alarms=alarms, closed="both")
    level = 1.0 - in_range(0.0, 1.0, confidence=confidence)
    limits_of = _all_limits(n_without, level / 2), _all_limits(n_with, level / 2)
    least = float(frame.strength(limits_of[0][int(alarms)], limits_of[1][int(misses)]))
    if least == -math.inf:
        return 0.0
    p_value = _p_values(frame, least, limits_of, int(alarms), level)
    low, high = max(least, 0.0), max(least, 0.0) + 0.1
    if p_value(low) > level:  # the rounding of the supremum ate what it would gain
        return low
    while high < _MOST and p_value(high) <= level:
        low, high = high, 2 * high
    while high - low > 1e-4 * (1 + low):
        middle = (low + high) / 2
        low, high = (middle, high) if p_value(middle) <= level else (low, middle)
    return low


def proved(
    frame: Frame, present: np.ndarray, absent: np.ndarray, threshold: float, confidence: float
) -> Params:
    """Count errors at a threshold of two samples of scores, and bound ε: parts of a report."""
    counts: Params = {
        "misses": int(np.sum(~(present > threshold))),
        "n_with": len(present),
        "alarms": int(np.sum(absent > threshold)),
        "n_without": len(absent),
    }
    strength = lower_bound(frame, confidence=confidence, **counts)
    return {"epsilon_lower_bound": frame.epsilon(strength), "threshold": threshold, **counts}


@lru_cache(maxsize=8)
def _log_choose(n: int) -> np.ndarray:
    k = np.arange(n + 1)
    return gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)


def _binomial(n: int, rates: np.ndarray) -> np.ndarray:
    """Probabilities of 0, …, n at each rate, (rates, n + 1)."""
    k, p = np.arange(n + 1), rates[:, None]
    return np.exp(_log_choose(n) + xlogy(k, p) + xlog1py(n - k, -p))


@lru_cache(maxsize=8)
def _all_limits(n: int, level: float) -> np.ndarray:
    return upper_limit(np.arange(n + 1), n, level)


def _p_values(
    frame: Frame,
    observed: float,
    limits_of: tuple[np.ndarray, np.ndarray],
    alarms: int,
    level: float,
) -> Callable[[float], float]:
    """Probability of a T as large as observed, at most, under the curve of a strength."""
    alpha, beta = limits_of
    n_with, n_without = len(beta) - 1, len(alpha) - 1
    # For each number of alarms, the most misses with which T would be as large as observed.
    # The rounding of the curve is to the safe side: the observed counts must be among them.
    most = frame.tradeoff(observed, alpha) * (1 + 1e-9) + 1e-14
    most_misses = np.searchsorted(beta, most, side="right") - 1
    low, high = limits(alarms, n_without, _BOOS * level)
    # Cells of equal width on the scale on which a binomial has constant spread.
    angles = np.linspace(math.asin(math.sqrt(low)), math.asin(math.sqrt(high)), _CELLS + 1)
    edges = np.clip(np.sin(angles) ** 2, 0.0, 1.0)
    alarm_law = _binomial(n_without, edges[:-1])

    def p_value(strength: float) -> float:
        up_to = _binomial(n_with, frame.tradeoff(strength, edges[1:])).cumsum(axis=1)
        few = np.where(most_misses >= 0, up_to[:, np.maximum(most_misses, 0)], 0.0)
        return float((alarm_law * few).sum(axis=1).max()) + _BOOS * level

    return p_value
