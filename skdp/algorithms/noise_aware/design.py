"""What is public about the rows of a run of `skdp.algorithms.noise_aware.glm`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from skdp.algorithms.noise_aware.columns import UNBOUNDED
from skdp.rows.records import row_bound

if TYPE_CHECKING:
    from skdp.models.additive import Additive

ROWS = 1.5  # norm over √D, the root mean square, of standardised rows that count less


@dataclass(frozen=True)
class Design:
    """Units and norms of rows.

    - ``data_norm``: norm to which rows are clipped; `UNBOUNDED` of standardised rows.
    - ``unit``: by which rows are divided.
    - ``longest``: R, norm of a row with its 1, above which it counts less in Σ w z zᵀ.
    - ``usual``: norm of a usual row without its 1.
    - ``standardised``: whether means and spreads of the columns were released before.
    - ``model``: the additive model whose features the columns are, or None; effects then have
      their prior in declared units, whatever the spread of a column is.
    """

    data_norm: float
    unit: float
    longest: float
    usual: float
    standardised: bool = False
    model: Additive | None = None

    @classmethod
    def of_standardised(cls, n_features: int, fit_intercept: bool) -> Design:
        """Columns have mean 0 and deviation 1."""
        D = n_features + fit_intercept
        usual = math.sqrt(n_features)
        return cls(UNBOUNDED, 1.0, ROWS * math.sqrt(D), usual, standardised=True)

    @classmethod
    def alike(cls, n_features: int, fit_intercept: bool, data_norm: float) -> Design:
        """Columns are taken to spread as much as rows as long as their bound let them."""
        usual = math.sqrt(n_features)
        return cls(data_norm, data_norm / usual, row_bound(usual, fit_intercept), usual)

    @classmethod
    def of_codes(cls, model: Additive, fit_intercept: bool) -> Design:
        """Columns are features of codes, of public scales."""
        longest = row_bound(model.norm, fit_intercept)
        return cls(model.norm, 1.0, longest, model.usual_norm, model=model)
