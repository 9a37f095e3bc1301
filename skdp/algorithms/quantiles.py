"""Quantiles of each feature, each by the exponential mechanism on the axis asinh(x/unit).

Why that axis, and what bounds the price of so many mechanisms, stands in the Notes of
`skdp.preprocessing.DPQuantileScaler`; how many quantiles cost what few do, in those of
`skdp.preprocessing.DPBins`.

References
----------
A. Smith, *Privacy-preserving Statistical Estimation with Optimal Convergence Rates*, STOC 2011.
M. Cesar, R. Rogers, *Bounding, Concentrating, and Truncating: Unifying Privacy Loss Composition
for Data Analytics*, ALT 2021. H. Kaplan, S. Schnapp, U. Stemmer, *Differentially Private
Approximate Quantiles*, ICML 2022.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import ClassVar

import numpy as np
from dp_accounting.dp_event import DpEvent

from skdp.fitting.streams import SecureStream
from skdp.fitting.validate import expected, in_range
from skdp.mechanisms.disjoint_quantiles import Cell, split
from skdp.mechanisms.quantile import GRID, QuantileMechanism
from skdp.privacy import epsilon_of_event
from skdp.privacy.budget import Budget
from skdp.privacy.events import PosteriorSamplesDpEvent, SelfComposedDpEvent, dp_sgd_event
from skdp.relations import ZERO_OUT

LEAST_EPSILON, MOST_EPSILON = 1e-9, 1e9  # of one quantile
APART = 2  # points of the grid: edges that are no farther apart are of one value


@dataclass(frozen=True, kw_only=True)
class QuantilesConfig:
    """Public facts of a run: all that its event depends on.

    - ``lower``, ``upper``: declared bounds of the features, lower < upper.
    - ``shares``: the quantiles of each feature, in [0, 1], ascending.
    - ``unit``: magnitude > 0 below which values are told apart by their difference.
    - ``epsilon``: ε of one quantile, the range η of its log-density between neighbours; infinite
      without privacy, and before it is `calibrated`.
    """

    lower: tuple[float, ...]
    upper: tuple[float, ...]
    shares: tuple[float, ...]
    instead_of_all_rows: ClassVar[str] = (
        "declared bounds: BoundedScaler, DPStandardScaler or AdditiveFeatures"
    )
    unit: float
    epsilon: float = math.inf
    neighboring_relation: str = ZERO_OUT

    least: ClassVar[float] = LEAST_EPSILON

    def __post_init__(self) -> None:
        if not (self.axis(np.array(self.lower)) < self.axis(np.array(self.upper))).all():
            raise expected("farther below upper than rounding can tell", lower=self.lower)

    @property
    def n_releases(self) -> int:
        """Number of quantiles."""
        return len(self.shares) * len(self.lower)

    @property
    def sampling(self) -> str:
        """How the report says it."""
        return f"full batch, {self.n_releases} quantiles"

    def event(self) -> DpEvent:
        """What the run releases."""
        if math.isinf(self.epsilon):
            return dp_sgd_event(0.0, sampling_rate=1.0, n_steps=1)
        return SelfComposedDpEvent(PosteriorSamplesDpEvent(self.epsilon), self.n_releases)

    def calibrated(self, budget: Budget) -> QuantilesConfig:
        """Return the same run with the largest ε of one quantile that affords a budget."""
        if budget.epsilon is None:
            given = in_range(self.least, MOST_EPSILON, quantile_epsilon=budget.given)
            return replace(self, epsilon=given)
        if not budget.private:
            return replace(self, epsilon=math.inf)
        epsilon, delta, count = float(budget.epsilon), float(budget.delta), self.n_releases
        eta = epsilon / count
        if eta < self.least:
            kind = f"at least {count * self.least:g}"
            raise expected(kind, f"for {count} quantiles", epsilon=epsilon)
        if delta > 0.0:
            inverse = budget.least(lambda x: replace(self, epsilon=1 / x).event(), 1 / eta)
            eta = max(eta, 1 / inverse)
        # The promise. Rounding may miss it, by no more than these nudges.
        for nudge in (0.0, 1e-15, 1e-14, 1e-12, 1e-9, 1e-6):
            config = replace(self, epsilon=eta * (1 - nudge))
            if epsilon_of_event(config.event(), delta, budget.neighboring_relation) <= epsilon:
                return config
        raise expected(f"affordable at delta={delta:g}", "ask for a larger one", epsilon=epsilon)

    @cached_property
    def mechanisms(self) -> tuple[QuantileMechanism, ...]:
        """Those of each feature in turn, on the axis t."""
        ranges = zip(self.axis(np.array(self.lower)), self.axis(np.array(self.upper)), strict=True)
        return tuple(
            QuantileMechanism(share, low, high, self.epsilon, self.neighboring_relation)
            for low, high in ranges
            for share in self.shares
        )

    def run(
        self,
        records: tuple[np.ndarray, ...],
        streams: Callable[[str], SecureStream],
        progress: Callable[[Iterable], Iterable] = iter,
    ) -> np.ndarray:
        """Release quantiles of private rows, (n_shares, n_features); they may be out of order.

        Rows (n, n_features) have NaN for missing values; ``starts`` of persons stand with them
        where these are the records. The stream "noise" is used.
        """
        lower, upper = np.array(self.lower), np.array(self.upper)
        clipped = np.clip(records[0].astype(np.float64), lower, upper)
        if math.isinf(self.epsilon):
            missing = np.isnan(clipped).all(axis=0)
            found = np.nanquantile(np.where(missing, 0.0, clipped), self.shares, axis=0)
            return np.where(missing, np.linspace(lower, upper, len(self.shares)), found)
        starts = getattr(records, "starts", None)
        drawn = list(progress(self._drawn(self.axis(clipped), starts, streams("noise"))))
        answers = self.unit * np.sinh(np.reshape(np.hstack(drawn), (-1, len(self.shares))).T)
        return np.clip(answers, lower, upper)

    def _drawn(
        self, t: np.ndarray, starts: np.ndarray | None, stream: SecureStream
    ) -> Iterator[np.ndarray | float]:
        for k, mechanism in enumerate(self.mechanisms):
            j = k // len(self.shares)
            yield mechanism.release(t[:, j], stream, charged=True, starts=starts)

    def apart(self, one: np.ndarray, other: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Put two quantiles in order, and at least two points of the grid apart."""
        low, high = np.minimum(one, other), np.maximum(one, other)
        middle, half = low / 2 + high / 2, high / 2 - low / 2
        point = (self.axis(np.array(self.upper)) - self.axis(np.array(self.lower))) / GRID
        # dx = unit cosh(t) dt; and far from 0, no less than doubles can tell apart.
        least = np.maximum(np.hypot(self.unit, middle) * point, 4 * np.spacing(np.abs(middle)))
        near = half < least
        return np.where(near, middle - least, low), np.where(near, middle + least, high)

    def axis(self, x: np.ndarray) -> np.ndarray:
        """Map values to the axis t."""
        return np.arcsinh(x / self.unit)


@dataclass(frozen=True, kw_only=True)
class BinsConfig(QuantilesConfig):
    """The same by halving: the median, the medians of both halves, and so on.

    ``shares`` are 1/B, ..., (B - 1)/B for B bins, and ε is that of a level of a feature.
    """

    least: ClassVar[float] = 10 * LEAST_EPSILON  # leaves room for rounding in a thousand cells

    @property
    def n_releases(self) -> int:
        """Number of levels of all features."""
        return len(halvings(len(self.shares) + 1)) * len(self.lower)

    @property
    def sampling(self) -> str:
        """How the report says it."""
        return f"full batch, {self.n_releases} levels of quantiles"

    def _drawn(
        self, t: np.ndarray, starts: np.ndarray | None, stream: SecureStream
    ) -> Iterator[np.ndarray | float]:
        n_bins = len(self.shares) + 1
        ranges = zip(self.axis(np.array(self.lower)), self.axis(np.array(self.upper)), strict=True)
        for j, (low, high) in enumerate(ranges):
            found = {0: float(low), n_bins: float(high)}  # by the number of bins below
            for level in halvings(n_bins):
                ends = ends_of_cells(found, (high - low) / GRID)
                answers = split(
                    [Cell((m - a) / (b - a), *ends[a]) for a, m, b in level],
                    t[:, j],
                    stream,
                    epsilon=self.epsilon,
                    neighboring_relation=self.neighboring_relation,
                    starts=starts,
                )
                for (_, m, b), answer in zip(level, answers.tolist(), strict=True):
                    found[m] = min(answer, found[b])
                yield answers


def ends_of_cells(found: dict[int, float], point: float) -> dict[int, tuple[float, float]]:
    """Ends of the cell above each edge but the last, on an axis whose grid has points so far apart.

    Cells are disjoint, but for those without length. A value at an edge is in the cell below. Where
    two edges are of one value, many rows share it: it is in no cell, and the others are told apart.
    """
    numbers = sorted(found)
    x, near = np.array([found[number] for number in numbers]), APART * point
    same = np.diff(x) <= near
    twice = np.append(same, False) | np.append(False, same)
    starts = np.where(twice | (x > x[0]), x + near, x)[:-1]
    stops = np.minimum(np.where(twice, x - near, x + near), x[-1])[1:]
    starts, stops = np.where(same, x[1:], [np.minimum(starts, stops), stops])
    return dict(zip(numbers, zip(starts.tolist(), stops.tolist(), strict=True), strict=False))


def halvings(n_bins: int) -> list[list[tuple[int, int, int]]]:
    """Levels of (start, middle, stop) that part n bins, until each is alone."""
    edges, levels = [0, n_bins], []
    while level := [(a, (a + b) // 2, b) for a, b in pairwise(edges) if b - a > 1]:
        levels.append(level)
        edges = sorted({*edges, *(m for _, m, _ in level)})
    return levels
