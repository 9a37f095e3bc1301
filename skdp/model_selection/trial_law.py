"""The law of the number of trials of a private selection (Papernot & Steinke 2022, Definition 1).

Reporting the best of a *fixed* number of private fits costs as much as reporting all of them. If
the number is random, from a law that makes it hard to guess, and is never shown, the best of many
costs little more than two or three. Three laws are known to do that, each with its price:

========== =========================== ======================================================
shape η    law of K, given its mean    price and habit
========== =========================== ======================================================
0          logarithmic                 cheapest for many trials; often one, rarely hundreds
in between truncated negative binomial η = 1 is the geometric law
infinity   Poisson                     cheapest for two or three, most expensive for many; may be 0
========== =========================== ======================================================

>>> from skdp.model_selection.trial_law import TrialLaw
>>> law = TrialLaw(mean=10.0, shape=0.0)
>>> law.pmf([1, 2, 3]).round(3)
array([0.269, 0.131, 0.085])
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import root_scalar
from scipy.stats import logser, nbinom, poisson

from skdp.fitting.types import ArrayLike
from skdp.fitting.validate import expected, in_range

_LEAST_MEAN = 1.001  # closer to 1, almost every draw would be rejected
_LEAST_SHAPE, _MOST_SHAPE = 1e-2, 1e3  # between 0 and infinity; for the same reason
_BLOCK = 256  # draws at a time


@dataclass(frozen=True)
class TrialLaw:
    """Law of a random number of trials: E[K] is 1 or at least 1.001, η 0, in [.01, 1000] or ∞."""

    mean: float
    shape: float

    def __post_init__(self) -> None:
        mean = in_range(1.0, math.inf, mean_trials=self.mean, closed="left")
        if 1.0 < mean < _LEAST_MEAN:
            raise expected(f"1 or at least {_LEAST_MEAN}", mean_trials=self.mean)
        shape = in_range(0.0, math.inf, shape=self.shape, closed="both")
        if shape not in (0.0, math.inf) and not _LEAST_SHAPE <= shape <= _MOST_SHAPE:
            what = f"0, in [{_LEAST_SHAPE:g}, {_MOST_SHAPE:g}], or float('inf')"
            raise expected(what, shape=self.shape)
        object.__setattr__(self, "mean", mean)
        object.__setattr__(self, "shape", shape)

    def __str__(self) -> str:
        names = {0.0: "logarithmic", 1.0: "geometric", math.inf: "Poisson"}
        name = names.get(self.shape, f"truncated negative binomial, shape {self.shape:g}")
        return f"{name} with mean {self.mean:g}"

    @property
    def gamma(self) -> float:
        """γ of a law that is not Poisson, rounded up: the price falls as γ grows."""
        if self.mean == 1.0:
            return 1.0
        # γ ≤ 2 (η + 1)/mean, and the logarithmic law has the largest mean: ≤ 1/γ.
        low, high = -math.log(self.mean) - math.log1p(math.log(self.mean)) - 1.0, -1e-12

        def excess(log_gamma: float) -> float:
            return math.log(_mean(math.exp(log_gamma), self.shape) / self.mean)

        while excess(low) < 0:
            low *= 2
        log_gamma = root_scalar(excess, bracket=(low, high), xtol=1e-14).root
        return min(1.0, math.exp(log_gamma) * (1 + 1e-12))

    def pmf(self, k: ArrayLike) -> np.ndarray:
        """Return Pr[K = k] for integers k, elementwise."""
        k = np.asarray(k)
        if self.shape == math.inf:
            return poisson.pmf(k, self.mean)
        if self.mean == 1.0:
            return np.where(k == 1, 1.0, 0.0)
        if self.shape == 0.0:
            return logser.pmf(k, 1 - self.gamma)
        above_zero = nbinom.sf(0, self.shape, self.gamma)
        return np.where(k < 1, 0.0, nbinom.pmf(k, self.shape, self.gamma) / above_zero)

    def draw(self, generator: np.random.Generator) -> int:
        """Draw K from an unpredictable generator. There is no cap."""
        if self.shape == math.inf:
            return int(generator.poisson(self.mean))
        if self.mean == 1.0:
            return 1
        gamma = self.gamma
        if self.shape == 0.0:
            return int(generator.logseries(1 - gamma))
        while True:  # the negative binomial law, zeros rejected, is the truncated one
            drawn = generator.negative_binomial(self.shape, gamma, size=_BLOCK)
            positive = drawn[drawn > 0]
            if len(positive):
                return int(positive[0])


def _mean(gamma: float, shape: float) -> float:
    """E[K] of the truncated negative binomial law; the logarithmic one for η = 0."""
    if shape == 0.0:
        return (1 / gamma - 1) / -math.log(gamma)
    return shape * (1 / gamma - 1) / -math.expm1(shape * math.log(gamma))
