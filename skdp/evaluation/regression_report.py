"""`RegressionReport`: how good a regressor is, a function of noisy counts and public facts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from skdp.evaluation.base_report import EvaluationReport
from skdp.evaluation.estimates import Estimate, fieller, mean, ratio

_MOST_IN_MIDDLE, _MOST_AT_ENDS = 0.5, 0.01


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class RegressionReport(EvaluationReport):
    """How good a regressor is, read off two released tables.

    One counts rows by bin of the residual y − prediction, within a declared bound, and by whether a
    given interval holds the target; the other by bin of the target, within declared bounds. All
    numbers are of what is cut at the bounds and binned; residuals beyond their bound make the root
    mean squared error smaller than it is.

    Attributes
    ----------
    privacy_, noise_variance_, n_, level, alike, subgroups_
        As of every `EvaluationReport`.
    counts_ : ndarray of int of shape (n_bins,) or (2, n_bins)
        Released counts by residual; with intervals, of rows outside and inside of theirs.
    of_targets_ : ndarray of int of shape (n_bins,)
        Released counts by target.
    edges_ : ndarray of shape (n_bins + 1,)
        Public edges of the residuals.

    Examples
    --------
    >>> from skdp.evaluation import private_regression_report
    >>> y, y_pred, public = [1.0, 2.0] * 300, [1.1, 1.9] * 300, {"n_samples": 600}
    >>> public |= {"target_bounds": (0, 4), "residual_bound": 1}
    >>> report = private_regression_report(y, y_pred, **public)
    >>> report.rmse.low <= report.rmse.value <= report.rmse.high
    True
    """

    of_targets_: np.ndarray
    target_edges_: np.ndarray

    _shown: ClassVar = ("rmse", "mae", "bias", "r2", "coverage")

    def estimates(self) -> dict[str, Estimate]:
        """Return the summary numbers by name; the coverage where intervals were given."""
        found = super().estimates()
        return {k: e for k, e in found.items() if k != "coverage" or self.counts_.ndim == 2}

    def _of_bins(self, values: np.ndarray) -> np.ndarray:
        """Values of the bins as those of the cells."""
        return np.tile(values, self.counts_.ndim)

    @property
    def caution(self) -> str:
        """In which bins most residuals are, where their bound was too wide or too narrow."""
        B = len(self.edges_) - 1
        middle, ends = np.zeros(B), np.zeros(B)
        middle[B // 2 - 1 : B // 2 + 1] = ends[[0, -1]] = 1
        of_middle, of_ends = (
            ratio(self._cells, self._of_bins(bins), shares=True).low for bins in (middle, ends)
        )
        if of_middle > _MOST_IN_MIDDLE:
            said = "too wide: more than half of all residuals are in the two bins next to 0"
        elif of_ends > _MOST_AT_ENDS:
            said = "too narrow: more than a hundredth of all residuals are in the bins at its ends"
        else:
            return ""
        return (
            f"residual_bound={self.edges_[-1]:g} is {said}. Errors are those of the bins, and "
            "their intervals do not hold; a report with another bound is a further release."
        )

    @cached_property
    def mse(self) -> Estimate:
        """Mean squared residual."""
        return mean(self._cells, self._of_bins(self.bins_.square))

    @property
    def rmse(self) -> Estimate:
        """Root of the mean squared residual."""
        return self.mse.map(lambda x: float(np.sqrt(x)))

    @cached_property
    def mae(self) -> Estimate:
        """Mean absolute residual."""
        return mean(self._cells, self._of_bins(self.bins_.absolute))

    @cached_property
    def bias(self) -> Estimate:
        """Mean residual y − prediction."""
        return mean(self._cells, self._of_bins(self.bins_.mean))

    @cached_property
    def r2(self) -> Estimate:
        """R² = 1 − mean squared residual / variance of the targets, at least −1.

        The tables do not say how squared residuals and targets go together, so the interval is for
        the worst correlation of the two.
        """
        targets = self._table(self.of_targets_)
        a, b = self.target_edges_[:-1], self.target_edges_[1:]
        middle = (a + b) / 2
        n = max(float(targets.counts.sum()), 1.0)
        # Exact to first order: the variance is least at the mean.
        centre = float(np.clip((targets.counts * middle).sum() / n, a[0], b[-1]))
        spread = (middle - centre) ** 2 + (b - a) ** 2 / 12
        parts = []
        for table, c in ((self._cells, self._of_bins(self.bins_.square)), (targets, spread)):
            total = max(float(table.counts.sum()), 1.0)
            average = float((table.counts * c).sum()) / total
            c = c - average
            sampling = max(float((table.counts * c * c).sum()), 0.0) * table.alike / total**2
            parts.append((average, sampling, float(table.noise(c, c)) / total**2))
        (C, s_c, v_c), (D, s_d, v_d) = parts
        V = s_c + v_c, -np.sqrt(s_c * s_d), s_d + v_d
        lost = fieller(C, D, V, (0.0, 2.0), self.level)
        return Estimate(1 - lost.value, 1 - lost.high, 1 - lost.low, self.level)

    @cached_property
    def coverage(self) -> Estimate:
        """Share of rows whose given interval holds the target; NaN where none were given."""
        if self.counts_.ndim == 1:
            return Estimate(np.nan, np.nan, np.nan, self.level)
        return ratio(self._cells, np.repeat([0.0, 1.0], self.counts_.shape[1]), shares=True)
