"""The clipped sum of vanilla variational inference: gradients in means and in scales together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from skdp.engine.linear_sums import Residual, shortened
from skdp.rows.bounded_sum import CHUNK_ROWS
from skdp.rows.person_sums import RowSum
from skdp.rows.records import LinearBatch, row_products, row_sums


@dataclass(frozen=True)
class VanillaClippedSum(RowSum):
    """Sum over records of (g_i, g_i∘w), each pair clipped to a norm; g_i = r_i x_iᵀ.

    With w = η∘s that is the gradient of log p(y_i|x_i, m + s∘η) in m and in log s. The norm is
    ‖(g, g∘w)‖² = Σ_k r_k² (‖x‖² + Σ_d x_d² w_kd²): no per-record gradient in memory.
    """

    residual: Residual
    clip_norm: float
    cancelling = True

    @property
    def record_bound(self) -> float:
        """Bound on the norm of one record's pair: C."""
        return self.clip_norm

    def __call__(self, theta: np.ndarray, batch: LinearBatch) -> np.ndarray:
        """Return the clipped sum, shape (2, K, D), for a pair (θ, w) of that shape."""
        weights, w = theta
        total = np.zeros(weights.shape)
        with np.errstate(all="ignore"):
            for chunk in batch.chunks(CHUNK_ROWS):
                squares = chunk._replace(rows=chunk.rows**2).logits((w**2).T)
                r, rows = self._clipped(chunk.logits(weights.T), squares, chunk)
                total += r.T @ rows
        return np.stack([total, total * w])  # w is the same for all records

    def records(self, theta: np.ndarray, chunk: LinearBatch) -> np.ndarray:
        """Return the terms of the sum, (m, 2KD), each a function of its own record alone."""
        weights, w = theta
        logits = row_products(chunk.rows, weights.T)
        r, rows = self._clipped(logits, row_products(chunk.rows**2, (w**2).T), chunk)
        g = r[:, :, None] * rows[:, None, :]
        return np.stack([g, g * w], axis=1).reshape(len(r), theta.size)

    def _clipped(
        self, logits: np.ndarray, squares: np.ndarray, chunk: LinearBatch
    ) -> tuple[np.ndarray, Any]:
        """Return r (m, K) and rows (m, D), whose outer products are the g_i."""
        r = self.residual(logits, chunk.targets)
        norms = np.sqrt(row_sums(r**2 * (chunk.norms[:, None] ** 2 + squares)))
        return shortened(r, norms, chunk, self.clip_norm)
