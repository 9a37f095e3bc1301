"""Which features of an additive model are worth asking for: public numbers alone.

A sum over n rows of norm ≤ R of scores r x has noise bR/μ in each coordinate,
where |r| ≤ b. With w_k = n q_k and q_k the mean square of wave k over the bins, the coefficient
moves it by a w_k, and the rows' own scatter there has the variance v w_k. So it tells

    I_k = (a w_k)²/(v w_k + b²R²/μ²)

of the coefficient, and a wave is worth asking for where I_k times a usual prior variance,
(USUAL/R)², is above TOLD; so is the feature of what is missing, if it is in a share FEW of the
rows. `Telling` has a, v, b and USUAL: of labels a = v = SLOPE, about the mean slope of the logistic
function, and b = 1. All of these numbers are public. Waves and features of what is missing are
asked for only as far as the second moments of all features can be told; where those of trends and
levels cannot, there are none. A product is asked for by the same rule, if its mean square is at
least that of the last wave that may be asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

# Chosen as those of `additive`.
USUAL = 3.0  # standard deviation of a coefficient, in logits of a row at the norm bound
TOLD = 0.3  # information over prior precision from which on a wave is asked for
SLOPE = 0.2  # of the mean of a label in its logit


class Telling(NamedTuple):
    """How much scores tell of the mean of a target, in public numbers.

    The slope a of the mean score in the linear predictor, the variance v of scores, the largest
    score b, and the usual deviation of the linear predictor of a row at the norm bound.
    """

    slope: float
    scatter: float
    bound: float
    usual: float


LABELS = Telling(SLOPE, SLOPE, 1.0, USUAL)


def is_told(weight: float, mu: float, bound: float, telling: Telling) -> bool:
    """Whether a feature of Σ x² = weight is worth its noise; R² is the bound."""
    noise = bound * (telling.bound / mu) ** 2
    information = (telling.slope * weight) ** 2 / (telling.scatter * weight + noise)
    return bool(information * telling.usual**2 / bound > TOLD)


def last_told(features: np.ndarray, told: Callable[[float], bool]) -> int:
    """Number of the last of a curve's features (B, K) whose mean square is told; 0 for none."""
    worth = map(told, np.mean(features**2, axis=0))
    return max((k for k, is_worth in enumerate(worth, start=1) if is_worth), default=0)
