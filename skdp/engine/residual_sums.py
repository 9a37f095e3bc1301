"""What a linear regression releases of its targets: residuals, and magnitudes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from skdp.rows.bounded_sum import CHUNK_ROWS, OPPOSITE, POSITIVE, BoundedSum
from skdp.rows.clipping import row_products
from skdp.rows.person_sums import PersonSum, RowSum
from skdp.rows.persons import PersonUnit
from skdp.rows.records import LinearBatch

MAGNITUDES = range(-100, 101)  # binary exponents that are told apart


@dataclass(frozen=True)
class ResidualScores(RowSum):
    """Sum over records of ψ(r) u alone: the first D entries of a `ResidualSum`.

    Parameters
    ----------
    row_bound, bounded
        As in `ResidualSum`.
    """

    row_bound: float
    bounded: bool = True
    cancelling = True

    @property
    def record_bound(self) -> float:
        """Bound on the norm of one record's term: |ψ| and ‖u‖ are at most 1."""
        return 1.0 if self.bounded else math.inf

    def shape(self, theta_shape: tuple[int, ...]) -> tuple[int, ...]:
        """One number for each column."""
        return (theta_shape[-1] - 1,)

    def records(self, theta: np.ndarray, chunk: LinearBatch) -> np.ndarray:
        """Return the terms (m, D) for (θ, c), each a function of its own record alone."""
        psi, shrink = _residual_scores(theta, chunk, self.row_bound, self.bounded)
        return chunk.weighted(np.nan_to_num(psi, nan=0.0) * shrink)[:, None] * chunk.rows


def _residual_scores(
    theta: np.ndarray, chunk: LinearBatch, row_bound: float, bounded: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return ψ(r), NaN where there is no residual, and what rows are scaled by, (m,) each."""
    weights, clip = theta[0, :-1], float(theta[0, -1])
    r = chunk.targets[:, 0] - row_products(chunk.rows, weights[:, None])[:, 0]
    if not bounded:
        return r, np.full(len(r), 1.0 / row_bound)
    return np.clip(r / clip, -1.0, 1.0), 1.0 / np.maximum(chunk.norms, row_bound)


@dataclass(frozen=True)
class ResidualSum(RowSum):
    """Sum over records of (ψ(r) u, a(ψ(r)² − ½), b(‖u‖² − ½)) with u = x/R.

    It is bounded whatever the clip and the target are.
    It is called with (θ, c) in one row: a clip may follow what has been released.

    Parameters
    ----------
    row_bound : float
        R: rows are scaled by 1/R, and down to norm 1 where they exceed it.
    scale_weight, trace_weight : float
        a and b > 0.
    bounded : bool, default=True
        False is Σ (r u, r², 1), for a run without privacy.
    """

    row_bound: float
    scale_weight: float
    trace_weight: float
    bounded: bool = True

    @property
    def record_bound(self) -> float:
        """Bound on the norm of one record's term.

        ψ²‖u‖² + a²(ψ² − ½)² + b²(‖u‖² − ½)² is convex in ψ² and in ‖u‖², both in [0, 1], so its
        maximum is at a corner: where both are 1.
        """
        if not self.bounded:
            return math.inf
        return math.hypot(1.0, self.scale_weight / 2, self.trace_weight / 2)

    @property
    def apart(self) -> float:
        """2 over the bound, where a, b ≤ 1/√2: no more than the terms ψu alone.

        Let x, y be the |ψ| of two records and m, l their ‖u‖, all in [0, 1]. The distance is at
        most F = (xm + yl)² + a²(x² − y²)² + b²(m² − l²)², and 4 − (xm + yl)² ≥ 2(1 − xm) +
        2(1 − yl). Say y ≤ x: a²(x² − y²)² ≤ a²(1 − y²) ≤ 2a²(1 − y) ≤ 1 − y, and likewise for b
        and the lesser of m and l. Where that is l, (1 − y) + (1 − l) ≤ 2(1 − yl); where it is m,
        1 − m ≤ 1 − xm and 1 − y ≤ 1 − yl. So F ≤ 4, which opposite terms attain.
        """
        small = max(self.scale_weight, self.trace_weight) <= math.sqrt(0.5)
        return OPPOSITE / self.record_bound if small and self.bounded else OPPOSITE

    def of_persons(self, unit: PersonUnit) -> BoundedSum:
        """The same over persons: of k̄ rows what does not cancel adds up, and ψu to c or so."""
        if not self.bounded:
            return self
        a, b = (unit.rows_per_group * w / 2 for w in (self.scale_weight, self.trace_weight))
        return PersonSum(self, math.hypot(unit.clip, a, b))

    def shape(self, theta_shape: tuple[int, ...]) -> tuple[int, ...]:
        """One number for each column, one for the residuals' scale and one for the rows'."""
        return (theta_shape[-1] + 1,)

    def __call__(self, theta: np.ndarray, batch: LinearBatch) -> np.ndarray:
        """Return the sum for (θ, c) of shape (1, D + 1)."""
        weights, clip = theta[0, :-1], float(theta[0, -1])
        total, scalars = np.zeros(len(weights)), np.zeros(2)
        with np.errstate(all="ignore"):
            for chunk in batch.chunks(CHUNK_ROWS):
                rows, norms = chunk.rows, chunk.norms
                r = chunk.targets[:, 0] - chunk.logits(weights[:, None])[:, 0]
                if not self.bounded:
                    weighted = chunk.weighted(r)
                    total += weighted @ rows / self.row_bound
                    scalars += weighted @ r, chunk.weighted(np.ones(len(r))).sum()
                    continue
                psi = np.clip(r / clip, -1.0, 1.0)
                shrink = 1.0 / np.maximum(norms, self.row_bound)
                # A record without a residual contributes nothing to the sums of residuals.
                scalars[0] += self.scale_weight * np.nansum(chunk.weighted(psi**2 - 0.5))
                squares = chunk.weighted((shrink * norms) ** 2 - 0.5)
                scalars[1] += self.trace_weight * np.sum(squares)
                total += chunk.weighted(np.nan_to_num(psi, nan=0.0) * shrink) @ rows
        return np.append(total, scalars)

    def records(self, theta: np.ndarray, chunk: LinearBatch) -> np.ndarray:
        """Return the terms of the bounded sum, each a function of its own record alone."""
        rows, norms = chunk.rows, chunk.norms
        psi, shrink = _residual_scores(theta, chunk, self.row_bound, bounded=True)
        of_scale = self.scale_weight * np.nan_to_num(psi**2 - 0.5, nan=0.0)
        of_trace = self.trace_weight * ((shrink * norms) ** 2 - 0.5)
        terms = (np.nan_to_num(psi, nan=0.0) * shrink)[:, None] * rows
        return chunk.weighted(np.column_stack([terms, of_scale, of_trace]))


@dataclass(frozen=True)
class MagnitudeSum(RowSum):
    """Number of records by the binary exponent of their target; a target of 0 has none.

    Parameters
    ----------
    of_offset : bool, default=False
        Of e^o instead, for the offset o beside a target: of an exposure, whose logarithm it is.
    """

    of_offset: bool = False
    apart = together = POSITIVE  # one-hot rows

    @property
    def record_bound(self) -> float:
        """A record counts once."""
        return 1.0

    def shape(self, theta_shape: tuple[int, ...]) -> tuple[int, ...]:
        """One count for each exponent."""
        return (len(MAGNITUDES),)

    def records(self, theta: np.ndarray, chunk: LinearBatch) -> np.ndarray:
        """Return the terms, (m, n_exponents)."""
        targets = chunk.targets[:, int(self.of_offset)]
        if self.of_offset:
            targets = np.exp(np.clip(targets, -700.0, 700.0))
        _, exponents = np.frexp(np.nan_to_num(targets))  # 2^(e-1) <= |y| < 2^e
        place = np.clip(exponents - MAGNITUDES[0], 0, len(MAGNITUDES) - 1)
        return np.eye(len(MAGNITUDES))[place] * chunk.weighted(targets != 0.0)[:, None]
