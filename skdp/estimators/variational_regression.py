"""`DPVariationalLinearRegression`: private, noise-aware Bayesian linear regression."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, column_or_1d

from skdp.algorithms.exact_line import ExactLineConfig
from skdp.algorithms.gaussian_posterior import GaussianPosterior
from skdp.algorithms.noise_aware.glm import GLMConfig
from skdp.base import FitPlan, PublicFacts, R2Mixin, Records, check_features_and_targets
from skdp.estimators._bounds import blocks_of_labels, is_robust, norm_of, unwrapped
from skdp.estimators._documented import documented
from skdp.estimators._doubts import of_posterior
from skdp.estimators._linear_fit import LinearFit, LinearParameters, told_scales
from skdp.estimators._posteriors import logits_of
from skdp.fitting.declared import unit_of_targets
from skdp.fitting.validate import integer, near_auto

if TYPE_CHECKING:
    from skdp.privacy.budget import Budget

_NO_SCALE = (
    "The scale of y is dominated by noise at this budget, so targets were taken as they are; "
    "unless they are of the order of 1, predictions are worthless. Declare target_bounds."
)


class NormalRegressor(R2Mixin, LinearFit):
    """A linear model of numbers whose posterior of the coefficients and of ln σ is normal.

    Parameters
    ----------
    secure : bool, default=False
        Round each record's share to a grid, sum integers exactly and add exact discrete Gaussian
        noise: the guarantee then no longer treats floating-point sums and noise as exact. Slower,
        and as accurate. See docs/privacy.md, section 8.

    Attributes
    ----------
    noise_scale_ : float
        Posterior mean of the standard deviation σ of residuals, in the unit of y.
    n_iter_ : int
        Number of noisy sums of residuals.
    target_scale_ : float
        Scale of the targets: half the width of their bounds, or what was released of it.
    """

    target_bounds: tuple[float, float] | None = None
    _n_others: ClassVar[int] = 1  # ln σ

    def _read(self, X: Any, y: Any) -> tuple[Records, PublicFacts]:
        self._center, self._half_width = unit_of_targets(self.target_bounds)
        X, y = self._checked(X, y)
        with np.errstate(over="ignore"):  # cut to the bounds later, if there are any
            targets = (column_or_1d(y, warn=True) - self._center) / self._half_width
        return Records(X, targets[:, None]), self._facts_of(X)

    def _checked(self, X: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
        """Rows and targets of a fit."""
        shape = getattr(y, "shape", ())
        if len(shape) == 2 and shape[1] > 1:
            raise ValueError(
                f"Expected y of one column, got {shape[1]}: fit each by itself, as "
                "sklearn.multioutput.MultiOutputRegressor does, with a share of the budget as "
                "epsilon: each spends it. privacy_of adds up the cost."
            )
        return check_features_and_targets(self, X, y, multi_output=False, sparse=self._takes_sparse)

    def _ordinary(self, facts: PublicFacts, budget: Budget) -> ExactLineConfig:
        return ExactLineConfig(
            **self._public(facts),
            data_norm=norm_of(self, facts),
            prior_scale=near_auto(0.0, 1.0, prior_scale=self.prior_scale) or None,
            prior_blocks=blocks_of_labels(self, facts),
            bounded=self.target_bounds is not None,
            robust=is_robust(self, 1, by_default=facts.persons is not None),
        )

    def _keep(self, plan: FitPlan, released: Any) -> None:
        plan, released = unwrapped(self, plan, released)
        config: ExactLineConfig | GLMConfig = plan.config
        self.target_scale_ = self._half_width * released.unit
        self._posterior, q, n = released, released, config.n_features
        self.coef_ = self._half_width * q.mean[0, :n]
        self.intercept_ = self._center
        if config.fit_intercept:
            self.intercept_ += self._half_width * float(q.mean[0, n])
        self.noise_scale_ = self._half_width * math.exp(q.mean[0, -1] + q.covariance[-1, -1] / 2)
        self.n_iter_ = config.n_steps
        self.noise_multiplier_ = config.noise_multiplier
        self.clip_norm_ = self._half_width * released.clip
        assert released.prior_scales is not None
        self.prior_scale_, self.prior_scale_interval_ = told_scales(released.prior_scales)

    def _doubted(self, plan: FitPlan, released: Any) -> tuple[str, ...]:
        doubts = () if released.unit_found else (_NO_SCALE,)
        if plan.config.private:
            prior_scale = float(np.max(self.prior_scale_)) * released.unit
            doubts += of_posterior(plan, released, prior_scale)
        return doubts

    def _cut_targets(self, plan: FitPlan) -> str:
        return (
            f"targets are outside target_bounds={self.target_bounds} and were cut to them: declare "
            "bounds that hold nearly all of them"
        )

    @property
    def covariance_(self) -> np.ndarray:
        """Posterior covariance, in the order of ``parameter_names_``."""
        check_is_fitted(self)
        q = self._posterior.covariance
        # (θ, ln σ) is normal, so Cov(θ, σ) = E σ Cov(θ, ln σ) and Var σ = (E σ)² (e^Var(ln σ) − 1).
        covariance = self._half_width**2 * q
        covariance[-1, :] = covariance[:, -1] = self._half_width * self.noise_scale_ * q[-1]
        covariance[-1, -1] = self.noise_scale_**2 * math.expm1(q[-1, -1])
        return covariance

    @property
    def parameter_names_(self) -> list[str]:
        """Names of the columns of `sample_posterior`: features, intercept, noise scale."""
        return [*super().parameter_names_, "noise_scale"]

    def predict(self, X, return_std: bool = False) -> Any:
        """Mean of the target, and if asked its standard deviation.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, n_features)
            Rows, clipped to ``data_norm_`` as in `fit`.
        return_std : bool, default=False
            Return also the standard deviation of a new target: of the line and of its residual.

        Returns
        -------
        ndarray of shape (n,), or a pair of them
        """
        check_is_fitted(self)
        q, parts = self._posterior, self._fitted_parts(X)
        if not return_std:
            lines = np.concatenate([rows @ q.mean[:, :-1].T for rows in parts])
            return self._center + self._half_width * lines[:, 0]
        seen = np.diag(q.seen**2) if q.seen.ndim == 1 else q.seen
        line = GaussianPosterior(q.mean[:, :-1], seen[:-1, :-1])
        mean, variance = logits_of(line, parts)
        of_residual = math.exp(2 * q.mean[0, -1] + 2 * q.covariance[-1, -1])  # E σ²
        deviation = self._half_width * np.sqrt(variance[:, 0, 0] + of_residual)
        return self._center + self._half_width * mean[:, 0], deviation

    def _in_units(self, draws: np.ndarray) -> np.ndarray:
        draws[:, -1] = np.exp(draws[:, -1])
        draws *= self._half_width
        if self._posterior.mean.shape[1] > len(self.coef_) + 1:
            draws[:, -2] += self._center
        return draws

    def sample_predictive(self, X, n_samples: int = 1, random_state: Any = None) -> np.ndarray:
        """Mean of the target under each of several posterior draws; this costs no privacy.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, n_features)
            Rows, clipped to ``data_norm_`` as in `fit`.

        Returns
        -------
        ndarray of shape (n_samples, n)
        """
        check_is_fitted(self)
        integer(1, n_samples=n_samples)
        draws = self._posterior.sample_seen(n_samples, check_random_state(random_state))[:, :-1]
        lines = np.concatenate([rows @ draws.T for rows in self._fitted_parts(X)])
        return self._center + self._half_width * lines.T


@documented
@dataclass(eq=False, repr=False)
class DPVariationalLinearRegression(LinearParameters, NormalRegressor):
    """Bayesian linear regression from private releases, with intervals that account for the noise.

    Approximates the posterior of the coefficients and of the residual scale σ by a Gaussian of
    (θ, ln σ). The prior, on the scale on which targets lie in [-1, 1], is θ ~ N(0, prior_scale² I)
    and ln σ ~ N(ln 0.2, 1).

    Parameters
    ----------
    target_bounds : (float, float) or None, default=None
        Public bounds of the targets, to which they are clipped. Bounds a few times too wide
        cost little, because residuals are clipped by how large they turn out to be; much wider
        ones lose what varies below their noise. None learns their scale first, as a power of
        two, by noisy counts of their magnitudes that take a tenth of the squared GDP budget; the
        fit warns where the counts are lost in their noise, and then takes targets as they are.
    prior_scale : float or "auto", default="auto"
        Standard deviation τ > 0 of the prior of every coefficient and intercept, on the scale on
        which targets lie in [-1, 1]. ``"auto"`` infers the scales of a prior with heavy tails from
        the same releases, see `skdp.algorithms.noise_aware.prior`.
    prior_blocks : array-like of shape (n_features,) or None, default=None
        A label per feature: features with the same label share a prior scale, which is inferred,
        and the intercept has its own prior. With ``prior_scale="auto"``. None is one block.
    max_iter : int or "auto", default="auto"
        Number of noisy sums of clipped residuals. ``"auto"`` is 15.
    clip_norm : float or "auto", default="auto"
        Residual > 0, in the unit of y, to which residuals are clipped. ``"auto"`` follows their
        scale as it has been released.
    noise_multiplier : float or None, default=None
        Standard deviation > 0 of the noise in a sum of residuals over the bound on one record,
        instead of ``epsilon`` (pass ``epsilon=None``); the report then accounts for what was spent.
    robust : bool or "auto", default="auto"
        Release also how much the records' scores scatter (8 % of the squared GDP budget), and
        report the sandwich covariance: intervals then are of the parameter at which clipped
        residuals are uncorrelated with the features, E ψ(y − θ·x) x = 0 with ψ cut at
        ``clip_norm_``, whether or not errors are normal, alike for all rows, or the mean is linear.
        ``"auto"`` is False: intervals of persons then take the rows of each to be nearly alike.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
        Posterior mean of the coefficients, in the unit of y.
    intercept_ : float
        Posterior mean of the intercept, in the unit of y; the middle of the bounds without
        ``fit_intercept``.
    parameter_names_ : list of str
        Names of the columns of `sample_posterior`: features, intercept, noise scale.
    noise_multiplier_ : float
        Standard deviation of the noise in one of them, over the bound on one record; under
        replace_one, over half of what replacing a record moves.
    clip_norm_ : float
        Residual, in the unit of y, to which residuals were clipped where the run ended; infinite
        without privacy.
    data_norm_ : float
        The value used; infinite where bounds are declared and no norm is.
    prior_scale_ : float or ndarray of shape (n_blocks,)
        The prior's standard deviation τ: as given, or its posterior median, of each block in the
        order in which labels first occur.
    prior_scale_interval_ : tuple of two float or ndarray
        Its 5 % and 95 % posterior quantiles; twice the number where it was given.

    See Also
    --------
    skdp.preprocessing.BoundedScaler : Scales features by declared bounds, at no privacy cost.
    skdp.OPSRegressor : Exact samples of a tempered posterior, under pure differential privacy too.

    Notes
    -----
    Intervals presume normal residuals of one scale and a mean that is linear, except with
    ``robust=True``. Where columns are strongly correlated and many of their second moments are
    below the noise level, intervals depend on a prior of these moments: see docs/derivations.md.
    Rows beyond ``data_norm_`` are clipped in prediction too, so that ``X @ coef_ + intercept_`` is
    `predict` for rows within it only.

    References
    ----------
    G. Bernstein, D. Sheldon, *Differentially Private Bayesian Linear Regression*, NeurIPS 2019.
    Y.-X. Wang, *Revisiting Differentially Private Linear Regression*, UAI 2018.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from skdp import DPVariationalLinearRegression
    >>> X, y = load_diabetes(return_X_y=True)  # columns have norm 1
    >>> regressor = DPVariationalLinearRegression(
    ...     epsilon=3.0, data_norm=0.2, target_bounds=(0, 400), n_samples=442
    ... ).fit(X, y)
    >>> mean, deviation = regressor.predict(X, return_std=True)
    >>> regressor.privacy_.valid
    True
    """

    _: KW_ONLY
    target_bounds: tuple[float, float] | None = None
