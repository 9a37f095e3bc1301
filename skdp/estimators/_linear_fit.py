"""Fits of linear models: what their parameters are, and what is predicted from their posterior."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from skdp.algorithms.noise_aware import glm
from skdp.algorithms.noise_aware.design import Design
from skdp.algorithms.noise_aware.standardised import InUnits
from skdp.base import FitPlan, ProtectedUnit, PublicFacts
from skdp.estimators._bounds import (
    NOISE_AWARE,
    PRIVATE,
    beyond_bounds,
    check_sparse,
    glm_of,
    in_bounds,
    norm_of,
)
from skdp.estimators._doubts import BOUNDS_GIVEN, cut_records
from skdp.estimators._parameters import WeightedRows
from skdp.estimators._posteriors import GaussianDraws, fitted_parts, linear_names
from skdp.fitting.validate import expected, flag
from skdp.inspection import SummaryMixin

if TYPE_CHECKING:
    from skdp.privacy.budget import Budget


class LinearFit(GaussianDraws, ProtectedUnit, WeightedRows):
    """What fits of linear models share: of columns as they are, or standardised inside the fit.

    A subclass has these as parameters, or has no choice of them.
    """

    inference: str = NOISE_AWARE
    prior_scale: float | str = "auto"
    prior_blocks: Any = None
    robust: bool | str = "auto"
    bounds: Any = None
    standardize: str | bool = PRIVATE
    data_norm: float | str = "auto"
    fit_intercept: bool = True
    max_iter: int | str = "auto"
    clip_norm: float | str = "auto"
    prior_scale_: Any
    _STEPS: ClassVar[int] = glm.STEPS
    _takes_bounds: ClassVar[bool] = False  # of columns, that are standardised inside the fit
    _n_others: ClassVar[int] = 0  # parameters of the posterior that are of no column

    @property
    def _NO_FACTS(self) -> tuple[str, ...]:
        """Without bounds nothing is standardised."""
        return ("standardize",) if self.bounds is None else ()

    def _configure(self, facts: PublicFacts, budget: Budget) -> Any:
        flag(fit_intercept=self.fit_intercept)
        if flag(secure=self.secure) and not budget.private:
            raise expected("False when epsilon is infinite", "there is no noise then", secure=True)
        check_sparse(facts, self.secure)
        if self._takes_bounds and self.bounds is not None:
            return in_bounds(self, facts, budget, self._of_columns)
        return self._of_columns(facts, budget)

    def _of_columns(self, facts: PublicFacts, budget: Budget) -> Any:
        """Plan a fit to columns as they are."""
        if self.inference != NOISE_AWARE or not budget.private:
            return self._ordinary(facts, budget)
        design = Design.alike(facts.features, bool(self.fit_intercept), norm_of(self, facts))
        return glm_of(self, facts, budget, design=design)

    def _ordinary(self, facts: PublicFacts, budget: Budget) -> Any:
        """Plan a fit whose posterior knows no noise."""
        raise NotImplementedError

    def _public(self, facts: PublicFacts) -> dict[str, Any]:
        """Public facts that all configs have."""
        return {
            "n_rows": facts.rows,
            "n_features": facts.features,
            "fit_intercept": bool(self.fit_intercept),
            "neighboring_relation": self._relation,
            "persons": facts.persons,
            "weight_bound": self._weight_bound(facts),
        }

    def _diagnosed(self, plan: FitPlan, released: Any) -> tuple[str, ...]:
        doubts, scaled = (), isinstance(released, InUnits)
        if scaled:
            doubts = beyond_bounds(plan, released)
            plan, released = replace(plan, config=plan.config.fit), released.standard
        doubts += self._doubted(plan, released)
        return doubts + cut_records(plan, released, self._cut_targets(plan), of_rows=not scaled)

    def _doubted(self, plan: FitPlan, released: Any) -> tuple[str, ...]:
        """What tells against a fit besides what was cut."""
        raise NotImplementedError

    def _cut_targets(self, plan: FitPlan) -> str:
        """Say of what targets were cut, after their share."""
        raise NotImplementedError

    def _labels(self) -> list[Any]:
        """Names of the outputs where there is more than one."""
        return []

    @property
    def parameter_names_(self) -> list[str]:
        """Names of the columns of `sample_posterior`: the outputs in turn, intercept last."""
        check_is_fitted(self)
        K, D = self._posterior.mean.shape
        return linear_names(self, K, D - self._n_others, self._labels())

    def _fitted_parts(self, X: Any) -> Iterator[np.ndarray]:
        """Rows to predict, some at a time, with the intercept's 1 if the fit had one."""
        n_columns = self._posterior.mean.shape[1] - self._n_others
        return fitted_parts(self, X, n_columns, sparse=self._takes_sparse)


@dataclass(eq=False, repr=False)
class LinearParameters(SummaryMixin):
    """Parameters of linear models of the columns.

    **Privacy.** `fit` is (epsilon, delta)-differentially private under ``neighboring_relation``:
    the coefficients, the posterior, every prediction and every posterior sample together. The
    ``unit`` is a row, or a person with all of its rows. The guarantee covers one fit; each further
    fit on the same rows, a grid search for instance, is a further release. It is conditional on the
    public facts listed in ``privacy_.inferred_public_facts``, is *not* one for a seeded fit, and
    without ``secure`` treats floating-point Gaussian noise as exact.

    Parameters
    ----------
    bounds : (float, float), array-like of shape (n_features, 2), dict, Series or None, default=None
        Public bounds of the columns, lower < upper: a pair for all, one for each, or pairs by
        column name. Values are cut to them, in `fit` and in prediction. Rows may then be in any
        units: coefficients, draws and summary are in those of X. A column within (0, 1) is taken
        for an indicator of a category. None takes columns as they are, in [-1, 1] or so. A count of
        the rows that were cut is released, and a large one is a `FitWarning`.
    standardize : {"private", False}, default="private"
        With ``bounds``: ``"private"`` releases where the values of each column lie and how far they
        spread (6 to 56 % of the squared GDP budget, the less the more rows and ε there are), and
        the model is of columns of mean 0 and deviation 1: its prior scale is of these, and bounds
        that are far too wide cost little. Without an intercept columns are divided by their root
        mean square alone. False scales columns by their bounds to [-1, 1], as does a fit without
        privacy.
    data_norm : float or "auto", default="auto"
        Euclidean norm > 0 to which the features of each row are clipped, in `fit` and in
        prediction. A public bound, never checked against the data. ``"auto"`` is √n_features, right
        for features in [-1, 1] as `BoundedScaler` gives, or in a pipeline the norm that the step
        before declares, as `NormClipper` does.
    fit_intercept : bool, default=True
        Append a 1 to each row.

    Attributes
    ----------
    bounds_ : ndarray of shape (n_features, 2)
        Bounds of the columns, where they were declared.
    column_scale_ : ndarray of shape (n_features,)
        Deviation of each column, as it was released, or half the width of its bounds.
    covariance_ : ndarray of shape (n_parameters, n_parameters)
        Posterior covariance, in the order of ``parameter_names_``.
    """

    _takes_sparse: ClassVar[bool] = True
    _takes_bounds: ClassVar[bool] = True
    _declared_by: ClassVar[str] = BOUNDS_GIVEN

    _: KW_ONLY
    prior_scale: float | str = "auto"
    prior_blocks: Any = None
    robust: bool | str = "auto"
    bounds: Any = None
    standardize: str | bool = PRIVATE
    data_norm: float | str = "auto"
    fit_intercept: bool = True
    max_iter: int | str = "auto"
    clip_norm: float | str = "auto"
    noise_multiplier: float | None = None


def told_scales(found: np.ndarray) -> tuple[Any, tuple[Any, Any]]:
    """Medians and intervals of prior scales from percentiles (3, blocks), numbers if one block."""
    low, median, high = found if found.shape[1] > 1 else found[:, 0]
    return median, (low, high)
