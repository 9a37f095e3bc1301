"""Sums of clipped residuals: what a linear regression releases of its targets."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from skdp._bounded_sum import CHUNK_ROWS, OPPOSITE, BoundedSum
from skdp._rows import LinearBatch, row_products


@dataclass(frozen=True)
class ResidualSum(BoundedSum):
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
        False is Σ (r u, r², 0), for a run without privacy.
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

    def shape(self, theta_shape: tuple[int, ...]) -> tuple[int, ...]:
        """One number for each column, one for the residuals' scale and one for the rows'."""
        return (theta_shape[-1] + 1,)

    def __call__(self, theta: Tensor, batch: LinearBatch) -> Tensor:
        """Return the sum for (θ, c) of shape (1, D + 1)."""
        weights, clip = theta.numpy()[0, :-1], float(theta[0, -1])
        total, scalars = np.zeros(len(weights)), np.zeros(2)
        with np.errstate(all="ignore"):
            for chunk in batch.chunks(CHUNK_ROWS):
                rows, norms = chunk.rows, chunk.norms
                r = chunk.targets[:, 0] - chunk.logits(weights[:, None])[:, 0]
                if not self.bounded:
                    total += r @ rows / self.row_bound
                    scalars[0] += r @ r
                    continue
                psi = np.clip(r / clip, -1.0, 1.0)
                shrink = 1.0 / np.maximum(norms, self.row_bound)
                # A record without a residual contributes nothing to the sums of residuals.
                scalars[0] += self.scale_weight * np.nansum(psi**2 - 0.5)
                scalars[1] += self.trace_weight * np.sum((shrink * norms) ** 2 - 0.5)
                total += (np.nan_to_num(psi, nan=0.0) * shrink) @ rows
        return torch.from_numpy(np.append(total, scalars))

    def records(self, theta: Tensor, chunk: LinearBatch) -> np.ndarray:
        """Return the terms of the bounded sum, each a function of its own record alone."""
        weights, clip = theta.numpy()[0, :-1], float(theta[0, -1])
        rows, norms, targets, _ = chunk
        r = targets[:, 0] - row_products(rows, weights[:, None])[:, 0]
        psi = np.clip(r / clip, -1.0, 1.0)
        shrink = 1.0 / np.maximum(norms, self.row_bound)
        of_scale = self.scale_weight * np.nan_to_num(psi**2 - 0.5, nan=0.0)
        of_trace = self.trace_weight * ((shrink * norms) ** 2 - 0.5)
        terms = (np.nan_to_num(psi, nan=0.0) * shrink)[:, None] * rows
        return np.column_stack([terms, of_scale, of_trace])
