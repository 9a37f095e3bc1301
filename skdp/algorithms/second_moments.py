"""Principal directions, by one noisy sum of outer products.

References
----------
C. Dwork, K. Talwar, A. Thakurta, L. Zhang, *Analyze Gauss: Optimal Bounds for Privacy-Preserving
Principal Component Analysis*, STOC 2014.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar, NamedTuple

import numpy as np

from skdp.algorithms.parts.gaussian_runs import FLOAT, OneSum
from skdp.engine.linear_sums import GramSum, unpacked
from skdp.engine.loop import Progress
from skdp.fitting.streams import Streams
from skdp.rows.bounded_sum import CHUNK_ROWS
from skdp.rows.lazy_rows import rows_of
from skdp.rows.records import LinearRows


class Directions(NamedTuple):
    """Leading eigenvectors (k, n_features) of the noisy second moments, and what they explain."""

    components: np.ndarray
    singular_values: np.ndarray
    shares: np.ndarray


@dataclass(frozen=True, kw_only=True)
class SecondMomentsConfig(OneSum):
    """Public facts of a run, as in `OneSum`; rows are clipped to ``data_norm`` > 0.

    ``n_components``: number of directions, or the fewest with a share in (0, 1) of the trace.
    """

    n_components: float
    data_norm: float
    asks_sums: ClassVar[bool] = True

    @property
    def fit_intercept(self) -> bool:
        """No 1 is appended."""
        return False

    @property
    def sums(self) -> GramSum:
        """The private value."""
        return GramSum(self.data_norm**2)

    @property
    def memory(self) -> int:
        """Bytes of a chunk of rows at work and of the sum, about."""
        return FLOAT * self.n_features * (3 * CHUNK_ROWS + 3 * self.n_features)

    def run(
        self, records: tuple[np.ndarray, ...], streams: Streams, progress: Progress = iter
    ) -> Directions:
        """Release second moments of rows (n, n_features), clipped here; uses the stream "noise"."""
        rows = rows_of(records, partial(LinearRows.of, self, kept=False))
        released, _ = self.released(rows, streams, progress)
        matrix = unpacked(released / self.data_norm**2, self.n_features)
        values, vectors = np.linalg.eigh(matrix)
        whole = max(float(np.trace(matrix)), 1e-300)
        k = self.n_components
        if not isinstance(k, int):
            falling = np.maximum(values[::-1], 0.0)
            k = min(int(np.searchsorted(np.cumsum(falling), k * whole)) + 1, len(values))
        leading = np.maximum(values[::-1][:k], 0.0)
        components = vectors.T[::-1][:k]
        largest = np.take_along_axis(components, np.abs(components).argmax(1)[:, None], axis=1)
        return Directions(
            components * np.where(largest < 0.0, -1.0, 1.0),
            self.data_norm * np.sqrt(leading),
            leading / max(whole, float(leading.sum())),
        )
