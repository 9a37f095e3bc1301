"""`DPVariationalLinearRegression`: private, noise-aware Bayesian linear regression.

>>> import numpy as np
>>> from skdp import DPVariationalLinearRegression
>>> rng = np.random.default_rng(0)
>>> X = rng.uniform(-1, 1, (2000, 2))
>>> y = 10 + 4 * X[:, 0] + rng.normal(0, 0.5, 2000)
>>> regressor = DPVariationalLinearRegression(
...     epsilon=1.0, delta=1e-5, target_bounds=(0, 20), n_samples=2000
... ).fit(X, y)
>>> regressor.score(X, y) > 0.9
True
>>> regressor.sample_posterior(100).shape
(100, 4)
>>> print(f"{regressor.privacy_.epsilon:.3f}")
1.000
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, column_or_1d

from skdp.algorithms.exact_line import ExactLineConfig
from skdp.algorithms.gaussian_posterior import GaussianPosterior
from skdp.algorithms.noise_aware.design import Design
from skdp.algorithms.noise_aware.glm import GLMConfig
from skdp.algorithms.noise_aware.standardised import InUnits
from skdp.estimators._arviz import ArvizMixin
from skdp.estimators._bounds import (
    PRIVATE,
    DeclaresBounds,
    beyond_bounds,
    blocks_of_labels,
    glm_of,
    in_bounds,
    is_robust,
    norm_kept,
    norm_of,
    unwrapped,
)
from skdp.estimators._documented import documented
from skdp.estimators._doubts import BOUNDS_GIVEN, of_posterior
from skdp.estimators._linear import (
    check_secure,
    check_sparse,
    cut_records,
    fitted_parts,
    linear_names,
    logits_of,
    told_scales,
)
from skdp.estimators._weights import WeightedRows
from skdp.fitting.declared import unit_of_targets
from skdp.fitting.input import check_features_and_targets
from skdp.fitting.plan import FitPlan, PublicFacts
from skdp.fitting.reading import ProtectedUnit, Records
from skdp.fitting.scores import R2Mixin
from skdp.fitting.validate import flag, integer, near_auto
from skdp.inspection import SummaryMixin
from skdp.privacy.budget import Budget


class NormalRegressor(DeclaresBounds, ArvizMixin, R2Mixin, ProtectedUnit, WeightedRows):
    """A linear model of numbers whose posterior of the coefficients and of ln σ is normal.

    A subclass has these as parameters, or has no choice of them.

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
    prior_scale: float | str = "auto"
    prior_blocks: Any = None
    bounds: Any = None
    standardize: str | bool = PRIVATE
    data_norm: float | str = "auto"
    fit_intercept: bool = True
    max_iter: int | str = "auto"
    clip_norm: float | str = "auto"
    robust: bool | str = "auto"
    secure: bool = False

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

    def _configure(self, facts: PublicFacts, budget: Budget) -> Any:
        if self._takes_bounds and self.bounds is not None:
            flag(fit_intercept=self.fit_intercept)
            return in_bounds(self, facts, budget, self._of_columns)
        return self._of_columns(facts, budget)

    def _of_columns(self, facts: PublicFacts, budget: Budget) -> ExactLineConfig | GLMConfig:
        """Plan a fit to columns as they are."""
        flag(fit_intercept=self.fit_intercept)
        check_sparse(facts, self.secure)
        check_secure(self.secure, budget)
        data_norm, intercept = norm_of(self, facts), bool(self.fit_intercept)
        if budget.private:
            design = Design.alike(facts.features, intercept, data_norm)
            return glm_of(self, facts, budget, design=design)
        return ExactLineConfig(
            n_rows=facts.rows,
            n_features=facts.features,
            fit_intercept=intercept,
            data_norm=data_norm,
            prior_scale=near_auto(0.0, 1.0, prior_scale=self.prior_scale) or None,
            prior_blocks=blocks_of_labels(self, facts),
            bounded=self.target_bounds is not None,
            robust=is_robust(self, 1, by_default=facts.persons is not None),
            neighboring_relation=self._relation,
            persons=facts.persons,
            weight_bound=self._weight_bound(facts),
        )

    def _keep(self, plan: FitPlan, released: Any) -> None:
        self.data_norm_ = norm_kept(self, plan)
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

    def _diagnosed(self, plan: FitPlan, released: Any) -> tuple[str, ...]:
        messages, scaled = beyond_bounds(plan, released), isinstance(released, InUnits)
        if scaled:
            plan, released = replace(plan, config=plan.config.fit), released.standard
        messages += cut_records(
            plan,
            released,
            f"targets are outside target_bounds={self.target_bounds} and were cut to them: declare "
            "bounds that hold nearly all of them",
            of_rows=not scaled,
        )
        if plan.config.private:
            prior_scale = float(np.max(self.prior_scale_)) * released.unit
            messages += of_posterior(plan, released, prior_scale)
        if released.unit_found:
            return messages
        return (
            "The scale of y is dominated by noise at this budget, so targets were taken as they "
            "are; unless they are of the order of 1, predictions are worthless. Declare "
            "target_bounds.",
            *messages,
        )

    def __sklearn_tags__(self) -> Any:
        """On the few rows of a check, with targets far beyond 1, the noise is too much."""
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True
        return tags

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
        return [*linear_names(self, 1, self._posterior.mean.shape[1] - 1, []), "noise_scale"]

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

    def sample_posterior(self, n_samples: int = 1, random_state: Any = None) -> np.ndarray:
        """Draw parameters from the released posterior; this costs no privacy.

        Parameters
        ----------
        n_samples : int, default=1
            Number of draws ≥ 1.
        random_state : int, RandomState instance or None, default=None
            Seed of the draws. Seeding here is harmless: the posterior has been released.

        Returns
        -------
        ndarray of shape (n_samples, n_parameters)
            Columns as in ``parameter_names_``, in the unit of y.
        """
        check_is_fitted(self)
        integer(1, n_samples=n_samples)
        draws = self._posterior.sample(n_samples, check_random_state(random_state))
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
        n_samples : int, default=1
            Number of draws ≥ 1.
        random_state : int, RandomState instance or None, default=None
            Seed of the draws.

        Returns
        -------
        ndarray of shape (n_samples, n)
        """
        check_is_fitted(self)
        integer(1, n_samples=n_samples)
        draws = self._posterior.sample_seen(n_samples, check_random_state(random_state))[:, :-1]
        lines = np.concatenate([rows @ draws.T for rows in self._fitted_parts(X)])
        return self._center + self._half_width * lines.T

    def _fitted_parts(self, X: Any) -> Iterator[np.ndarray]:
        """Rows to predict, some at a time, with the intercept's 1 if the fit had one."""
        n_columns = self._posterior.mean.shape[1] - 1
        return fitted_parts(self, X, n_columns, sparse=self._takes_sparse)


@documented
@dataclass(eq=False, repr=False)
class DPVariationalLinearRegression(SummaryMixin, NormalRegressor):
    """Bayesian linear regression from private releases, with intervals that account for the noise.

    Approximates the posterior of the coefficients and of the residual scale σ by a Gaussian of
    (θ, ln σ). The prior, on the scale on which targets lie in [-1, 1], is θ ~ N(0, prior_scale² I)
    and ln σ ~ N(ln 0.2, 1).

    **Privacy.** `fit` is (epsilon, delta)-differentially private under ``neighboring_relation``:
    the coefficients, the posterior, every prediction and every posterior sample together. The unit
    is a row with its target. The guarantee covers one fit; each further fit on the same rows, a
    grid search for instance, is a further release. It is conditional on the public facts listed in
    ``privacy_.inferred_public_facts``, is *not* one for a seeded fit, and without ``secure`` treats
    floating-point Gaussian noise as exact.

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
        that are far too wide cost little. Without an
        intercept columns are divided by their root mean square alone. False scales columns by
        their bounds to [-1, 1], as does a fit without privacy.
    data_norm : float or "auto", default="auto"
        Euclidean norm > 0 to which the features of each row are clipped, in `fit` and in
        prediction. A public bound, never checked against the data. ``"auto"`` is √n_features, right
        for features in [-1, 1] as `BoundedScaler` gives, or in a pipeline the norm that the step
        before declares, as `NormClipper` does.
    fit_intercept : bool, default=True
        Append a 1 to each row.
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
    n_samples : int or None, default=None
        Public number of rows. None reads it from X and says so in the report. Where it is public,
        below half and above three times that of X are refused.
    verbose : int, default=0
        Above 0, a progress bar over the releases (needs tqdm). Callbacks of scikit-learn, where the
        version has them, work too: they get the steps and no data.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
        Posterior mean of the coefficients, in the unit of y.
    intercept_ : float
        Posterior mean of the intercept, in the unit of y; the middle of the bounds without
        ``fit_intercept``.
    covariance_ : ndarray of shape (n_parameters, n_parameters)
        Posterior covariance, in the order of ``parameter_names_``.
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
    bounds_ : ndarray of shape (n_features, 2)
        Bounds of the columns, where they were declared.
    column_scale_ : ndarray of shape (n_features,)
        Deviation of each column, as it was released, or half the width of its bounds.
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

    _takes_sparse: ClassVar[bool] = True
    _takes_bounds: ClassVar[bool] = True
    _declared_by: ClassVar[str] = BOUNDS_GIVEN
    epsilon: float | None = 1.0
    delta: float = 1e-5
    _: KW_ONLY
    neighboring_relation: str = "zero_out"
    target_bounds: tuple[float, float] | None = None
    prior_scale: float | str = "auto"
    prior_blocks: Any = None
    bounds: Any = None
    standardize: str | bool = PRIVATE
    data_norm: float | str = "auto"
    fit_intercept: bool = True
    max_iter: int | str = "auto"
    clip_norm: float | str = "auto"
    noise_multiplier: float | None = None
    accountant: str = "auto"
    secure: bool = False
    robust: bool | str = "auto"
    n_samples: int | None = None
    random_state: Any = None
    verbose: int = 0
