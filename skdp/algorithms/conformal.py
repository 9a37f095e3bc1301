"""Private conformal thresholds: one quantile of scores, with a rank that pays for its own noise.

Split conformal prediction covers a new row with probability 1 − α or more, whatever the model, if
its threshold is the ⌈(1 − α)(m + 1)⌉-th smallest of m scores of calibration rows. Here it is drawn
by `QuantileMechanism` from B points, around the rank

    T = (1 − α)(m + 1) + (ln(u/φ) − 1 − φ)/r,    (1 − φ)²/φ = e/u,  u = B − 1,

with r the rate of the mechanism, ε over its sensitivity: the shift pays for all thresholds that are
too small, in expectation over rows and draw (docs/derivations.md). The last point is infinite.

>>> config = ConformalConfig(alpha=0.1, n_records=2000, epsilon=1.0)
>>> config.n_points, round(config.rank / 2000, 4)
(4096, 0.9062)

References
----------
V. Vovk, A. Gammerman, G. Shafer, *Algorithmic Learning in a Random World*, 2005. A. Angelopoulos,
S. Bates, T. Zrnic, M. I. Jordan, *Private Prediction Sets*, Harvard Data Science Review 4(2), 2022.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from dp_accounting.dp_event import DpEvent, NonPrivateDpEvent, NoOpDpEvent

from skdp.fitting.streams import SecureStream
from skdp.mechanisms.quantile import RANK, WEIGHT_ERROR, QuantileMechanism
from skdp.privacy.events import PosteriorSamplesDpEvent
from skdp.relations import ZERO_OUT, check_relation

_FEWEST, _MOST = 64, 4096  # points: more of them round less, and need a larger shift
_DECADES = 4.0  # of residuals below the largest
_LEAST_PROBABILITY = 1e-6
_ARITHMETIC = 1e-9  # of a rank: rounding of shares and weights, which is 1e-11 or less


@dataclass(frozen=True, kw_only=True)
class ConformalConfig:
    """Public facts of a threshold.

    - ``alpha``: share of new rows, in (0, 0.5], that may be outside.
    - ``n_records``: public number of calibration records, or fewer.
    - ``epsilon``: pure ε; infinite without privacy.
    - ``largest``: largest finite threshold of scores ≥ 0; None where they are probabilities.
    """

    alpha: float
    n_records: int
    epsilon: float
    neighboring_relation: str = ZERO_OUT
    largest: float | None = None

    n_releases = 1

    @property
    def sampling(self) -> str:
        """How the report says it."""
        return "full batch, 1 quantile of scores" if self.possible else "reads no rows"

    @property
    def private(self) -> bool:
        """Whether there is noise."""
        return math.isfinite(self.epsilon)

    @property
    def n_points(self) -> int:
        """B, a power of two near 2 m ε: what is rounded away is about what the shift costs."""
        wanted = 2 * self.n_records * min(self.epsilon, 1e3)
        return int(min(max(2 ** round(math.log2(max(wanted, 1.0))), _FEWEST), _MOST))

    @property
    def rank(self) -> float:
        """T: rank of the threshold among the scores; beyond ``n_records`` it is infinite."""
        exact = (1 - self.alpha) * (self.n_records + 1) + _ARITHMETIC * self.n_records
        if not self.private:
            return float(math.ceil(exact - 2 * _ARITHMETIC * self.n_records))
        # The sensitivity, and with it the shift, falls with the share: each turn keeps the claim.
        share = 1.0
        for _ in range(20):
            sensitivity = 2.0
            if check_relation(self.neighboring_relation).null_record:
                sensitivity = 2 * min(share, 1.0)
            rate = max(self.epsilon - 4 * WEIGHT_ERROR, WEIGHT_ERROR) / sensitivity
            share = (exact + shift(self.n_points - 1) / rate) / self.n_records
        return share * self.n_records

    @property
    def possible(self) -> bool:
        """Whether there are enough records for any threshold below "everything"."""
        return self.rank <= self.n_records

    @property
    def least_records(self) -> int:
        """About how many records are enough."""
        extra = 2 * shift(_MOST - 1) / self.epsilon if self.private else 0.0
        return math.ceil(min((1 - self.alpha + extra) / self.alpha, 1e18))

    @property
    def mechanism(self) -> QuantileMechanism:
        """What draws the number of a point."""
        share = min(math.ceil(self.rank / self.n_records / RANK) * RANK, 1.0)
        last = self.n_points - 1
        relation = self.neighboring_relation
        return QuantileMechanism(share, 0.0, last, self.epsilon, relation, last + 1)

    @property
    def points(self) -> np.ndarray:
        """Thresholds that may be drawn, ascending, (n_points,); the last is infinite."""
        n = self.n_points - 1
        if self.largest is not None:
            finite = self.largest * np.logspace(-_DECADES, 0.0, n)
        else:
            # Half of the points evenly, the others in proportion to the distance from 0 and 1.
            near = np.geomspace(_LEAST_PROBABILITY, 0.5, n - n // 2)
            tails = np.concatenate([near[::2], 1.0 - near[1::2]])
            finite = np.sort(np.concatenate([np.arange(n // 2) / (n // 2), tails]))
        return np.append(finite, math.inf)

    def event(self) -> DpEvent:
        """What the run releases."""
        if not self.possible:
            return NoOpDpEvent()
        return PosteriorSamplesDpEvent(self.epsilon) if self.private else NonPrivateDpEvent()

    def run(
        self,
        records: tuple[np.ndarray, ...],
        streams: Callable[[str], SecureStream],
        progress: Callable[[Iterable], Iterable] = iter,
    ) -> float:
        """Return the threshold, from scores (n,) ≥ 0 of which infinite ones are never covered."""
        scores = records[0]
        if not self.possible:
            return math.inf
        if not self.private:
            return float(np.sort(scores)[int(self.rank) - 1])
        numbers = np.searchsorted(self.points, scores)
        drawn = self.mechanism.release(numbers, streams("noise"), charged=True)
        return float(self.points[round(drawn)])


def shift(u: int) -> float:
    """Rank times rate that pays for u points below the right one."""
    c = math.e / u
    φ = 1 + c / 2 - math.sqrt(c + c * c / 4)
    return math.log(u / φ) - 1 - φ
