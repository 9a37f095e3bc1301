"""`DPAdditiveRegressor` and `DPAdditivePoissonRegressor`: private curves of numbers, of counts."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import numpy as np

from skdp.algorithms import noise_aware_glm
from skdp.algorithms.exact_line import HYPER_SCALE
from skdp.algorithms.noise_aware.glm import SHARES
from skdp.estimators._additive import AdditiveModel
from skdp.estimators._documented import documented
from skdp.estimators.variational_poisson import NormalCounts
from skdp.estimators.variational_regression import NormalRegressor
from skdp.fitting.plan import PublicFacts
from skdp.models.additive import Telling
from skdp.models.telling import USUAL

# Residuals of targets in [-1, 1] are clipped at c = 0.4, two of the usual deviations σ₀ = 0.2: of
# their scores the slope is P(|r| ≤ c)/c and the variance E min(r²/c², 1). The mean of a row at the
# norm bound is usually as far away as residuals are.
NUMBERS = Telling(2.4, 0.24, 1.0, 0.2)
USUAL_RATE = 0.1  # of the largest count


@documented
@dataclass(eq=False, repr=False)
class DPAdditiveRegressor(AdditiveModel, NormalRegressor):
    """Additive regression of numbers: a private curve per feature, with bands.

    The mean is an intercept and one curve per column, in bins or levels, and residuals are normal.
    The posterior is noise-aware, as in `DPVariationalLinearRegression`, for which wide target
    bounds cost little.

    Parameters
    ----------
    target_bounds : (float, float) or None, default=None
        Public bounds of the targets, to which they are clipped. None learns their scale first, as
        in `DPVariationalLinearRegression`.
    noise_multiplier : float or None, default=None
        Standard deviation > 0 of the noise in a sum of residuals over the bound on one record,
        instead of ``epsilon`` (pass ``epsilon=None``); the report then accounts for what was spent.

    Attributes
    ----------
    coef_ : ndarray
        Posterior mean of the coefficients of trends, waves and levels, (n_parameters - 2,), in the
        unit of y.
    intercept_ : float
        Posterior mean of the intercept.
    noise_multiplier_ : float
        Standard deviation of the noise in one of them, over the bound on one record.
    clip_norm_ : float
        Residual, in the unit of y, to which residuals were clipped where the run ended.
    data_norm_ : float
        The largest norm that a row can have.
    prior_scale_ : float or ndarray of shape (n_blocks,)
        Posterior median of the prior scales, on the scale on which targets lie in [-1, 1].

    See Also
    --------
    DPVariationalLinearRegression : The linear model.
    DPAdditivePoissonRegressor : Curves of counts.
    DPAdditiveClassifier : Curves of classes.

    Notes
    -----
    Where nearly all rows of a column are in a few of its bins, intervals are too narrow: give edges
    with rows between them, or have them found by ``edges="private"``.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from skdp import DPAdditiveRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = pd.DataFrame({"age": rng.uniform(18, 90, 5000), "ward": rng.choice(["a", "b"], 5000)})
    >>> y = 60 - ((X["age"] - 50) / 10) ** 2 + rng.normal(0, 3, 5000)
    >>> regressor = DPAdditiveRegressor(
    ...     bounds={"age": (15, 95)},
    ...     categories={"ward": ["a", "b"]},
    ...     target_bounds=(0, 100),
    ...     n_samples=5000,
    ... ).fit(X, y)
    >>> curve = regressor.curve_("age")
    >>> bool(curve.high[1] < 0 < curve.low[14])  # ages 19 and 51
    True
    >>> mean, deviation = regressor.predict(X, return_std=True)
    """

    _: KW_ONLY
    target_bounds: tuple[float, float] | None = None

    curve_scales: ClassVar[tuple[str, ...]] = ("target",)
    _hyperprior_scale: ClassVar[float] = HYPER_SCALE
    _moments_share: ClassVar[float] = SHARES["gram"] / 2.0

    def _telling(self, facts: PublicFacts) -> Telling:
        return NUMBERS

    @property
    def parameter_names_(self) -> list[str]:
        """Names of the columns of `sample_posterior`: features, intercept, noise scale."""
        return [*super().parameter_names_, "noise_scale"]

    def _effects(self, place: int, part: str, output: int) -> tuple[np.ndarray, np.ndarray]:
        mean, root = super()._effects(place, part, output)
        return self._half_width * mean, self._half_width * root

    def _usual_scale(self, place: int) -> float:
        return self._posterior.unit * super()._usual_scale(place)


@documented
@dataclass(eq=False, repr=False)
class DPAdditivePoissonRegressor(AdditiveModel, NormalCounts):
    """Additive Poisson regression: a private curve per feature, with bands.

    The log-mean of a count is an intercept and one curve per column, in bins or levels. The
    posterior is noise-aware, as in `DPVariationalPoissonRegression`, and rows may have an exposure,
    such as a time or an area, given to `fit`.

    Attributes
    ----------
    coef_ : ndarray
        Posterior mean of the coefficients of trends, waves and levels, (n_parameters - 1,).
    intercept_ : ndarray of shape (1,)
        Posterior mean of the intercept.
    clip_norm_, data_norm_, sampling_rate_ : float
        The values used; ``data_norm_`` is the largest norm that a row can have.

    See Also
    --------
    DPVariationalPoissonRegression : The linear model.
    DPAdditiveRegressor : Curves of numbers.
    DPAdditiveClassifier : Curves of classes.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from skdp import DPAdditivePoissonRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = pd.DataFrame({"age": rng.uniform(18, 90, 5000), "ward": rng.choice(["a", "b"], 5000)})
    >>> years = rng.uniform(0.5, 2, 5000)
    >>> visits = rng.poisson(years * np.exp(1 - ((X["age"] - 50) / 20) ** 2))
    >>> regressor = DPAdditivePoissonRegressor(
    ...     bounds={"age": (15, 95)},
    ...     categories={"ward": ["a", "b"]},
    ...     largest_count=12,
    ...     n_samples=5000,
    ... ).fit(X, visits, exposure=years)
    >>> ratio = regressor.curve_("age", scale="rate-ratio")
    >>> bool(ratio.mean[1] < 1 < ratio.mean[14])  # ages 19 and 51
    True
    """

    _: KW_ONLY
    largest_count: float = 100.0

    curve_scales: ClassVar[tuple[str, ...]] = ("log-mean", "rate-ratio")
    _STEPS: ClassVar[int] = noise_aware_glm.STEPS
    _of_either_sign: ClassVar[str] = "DPAdditiveRegressor"

    def _telling(self, facts: PublicFacts) -> Telling:
        likelihood = self._likelihood_of(facts)
        rate = USUAL_RATE * likelihood.largest_target
        return Telling(rate, rate, likelihood.residual_scale, USUAL)

    def _on_scale(self, effects: np.ndarray, scale: str, output: int) -> np.ndarray:
        return np.exp(effects) if scale == "rate-ratio" else effects
