"""`OPSPosteriorSampler` and `OPSRegressor`: posterior samples that are private by themselves."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from skdp.base import FitPlan, PublicFacts, R2Mixin, Records, check_features_and_targets
from skdp.estimators import _doubts
from skdp.estimators._documented import documented
from skdp.estimators._linear import LinearClassifier
from skdp.estimators._posterior_sampler import PosteriorSampler
from skdp.fitting.declared import target_bounds, unit_of_targets
from skdp.fitting.validate import near_auto, number_or_auto
from skdp.models.likelihoods import HuberRegression, classification_likelihood


@documented
@dataclass(eq=False, repr=False)
class OPSPosteriorSampler(LinearClassifier, PosteriorSampler):
    """Bayesian logistic regression by private posterior samples (OPS).

    The released model is one or a few samples of the posterior of the coefficients, under a
    Gaussian prior N(0, τ² I) and with the likelihood raised to the power ρ that the budget affords.
    Two classes take one logit, more take softmax. Predictions are averaged over the samples.

    Parameters
    ----------
    classes : array-like of shape (n_classes,) or None, default=None
        The class labels, as a declared public fact. None reads them from y and says so in the
        report.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels.
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        Mean of the sampled coefficients.
    intercept_ : ndarray of shape (1,) or (n_classes,)
        Mean of the sampled intercepts; zero without ``fit_intercept``.

    Notes
    -----
    A sample of a posterior varies as much as the posterior is wide, d/2ρn of log-loss a row. It is
    what to release where a sample is wanted, or pure ε; for predictions from few rows or a small
    budget `DPVariationalLogisticRegression` makes more of the same (ε, δ). Whether a chain has come
    close to its posterior cannot be checked in private: `diagnose_convergence` shows chains on rows
    that may be seen.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.pipeline import make_pipeline
    >>> from skdp import BoundedScaler, OPSPosteriorSampler
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> X = X[:, :4]  # radius, texture, perimeter, area
    >>> sampler = make_pipeline(
    ...     BoundedScaler(lower=[5, 5, 40, 100], upper=[30, 40, 200, 2500]),
    ...     OPSPosteriorSampler(epsilon=3.0, delta=0, classes=[0, 1], n_samples=569),
    ... )
    >>> sampler.fit(X, y).score(X, y) > 0.5
    True
    >>> round(sampler[-1].privacy_.epsilon, 9), sampler[-1].privacy_.delta  # pure
    (3.0, 0)
    >>> sampler[-1].sample_posterior(2)
    Traceback (most recent call last):
      ...
    skdp.privacy.cover.BudgetExceededError: 2 posterior samples were asked for and 1 paid for. ...
    """

    _: KW_ONLY
    classes: Any = None

    def _keep(self, plan: FitPlan, released: np.ndarray) -> None:
        super()._keep(plan, released)
        self.coef_, self.intercept_ = self._mean

    def predict_proba(self, X) -> np.ndarray:
        """Class probabilities, averaged over the posterior samples.

        Parameters
        ----------
        X : array-like of shape (n, n_features)
            Rows, clipped to ``data_norm_`` as in `fit`.

        Returns
        -------
        ndarray of shape (n, n_classes)
            Each row sums to 1.
        """
        return self.sample_predictive(X).mean(axis=0)

    def sample_predictive(
        self, X, n_samples: int | None = None, random_state: Any = None
    ) -> np.ndarray:
        """Class probabilities under each posterior sample.

        Returns
        -------
        ndarray of shape (n_samples, n, n_classes)
        """
        logits = self._logits(X, n_samples)
        return classification_likelihood(len(self.classes_)).probabilities(logits)


@documented
@dataclass(eq=False, repr=False)
class OPSRegressor(R2Mixin, PosteriorSampler):
    """Bayesian linear regression by private posterior samples (OPS).

    The released model is one or a few samples of the posterior of the coefficients, under a
    Gaussian prior N(0, τ² I) on the scale on which targets lie in [-1, 1], and with the likelihood
    raised to the power ρ that the budget affords. The likelihood is normal with Huber's bounded
    residuals, so that one record's influence is bounded whatever the coefficients are.

    Parameters
    ----------
    target_bounds : (float, float) or None, default=None
        Public bounds of the targets, to which they are clipped. None takes targets as they are,
        which should then be of the order of 1.
    noise_scale : float or "auto", default="auto"
        Standard deviation > 0 of the noise around the regression, in the unit of y: declared, not
        learned. ``"auto"`` is a quarter of half the width of the bounds.
    residual_bound : float or "auto", default="auto"
        Residual > 0, in the unit of y, beyond which a record counts linearly (Huber 1964).
        ``"auto"`` is half the width of the bounds.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
        Mean of the sampled coefficients, in the unit of y.
    intercept_ : float
        Mean of the sampled intercepts, in the unit of y.
    noise_scale_ : float
        The value used.

    Notes
    -----
    Rows beyond ``data_norm_`` are clipped in prediction too, so that ``X @ coef_ + intercept_`` is
    `predict` for rows within it only.

    Examples
    --------
    >>> import numpy as np
    >>> from skdp import OPSRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (2000, 3))
    >>> y = 10 + 4 * X[:, 0] + rng.normal(0, 0.5, 2000)
    >>> regressor = OPSRegressor(
    ...     epsilon=3.0, n_posterior_samples=5, target_bounds=(5, 15), n_samples=2000
    ... ).fit(X, y)
    >>> mean, deviation = regressor.predict(X, return_std=True)
    >>> regressor.score(X, y) > 0.5
    True
    """

    _: KW_ONLY
    target_bounds: tuple[float, float] | None = None
    noise_scale: float | str = "auto"
    residual_bound: float | str = "auto"

    def _read(self, X: Any, y: Any) -> tuple[Records, PublicFacts]:
        low, high = target_bounds(self.target_bounds)
        self._center, self._half_width = unit_of_targets(self.target_bounds)
        X, y = check_features_and_targets(self, X, y, multi_output=False)
        targets = (np.clip(y, low, high) - self._center) / self._half_width
        if self.target_bounds is not None:
            targets = np.clip(targets, -1.0, 1.0)  # whatever the roundings of the bounds did
        return Records(X, targets[:, None]), self._facts_of(X)

    def _likelihood_of(self, facts: PublicFacts) -> HuberRegression:
        _, unit = unit_of_targets(self.target_bounds)
        around = np.inf if self.target_bounds is None else unit
        return HuberRegression(
            self._noise_scale(unit) / unit,
            near_auto(unit, around, residual_bound=self.residual_bound) / unit,
            target_bound=1.0 if self.target_bounds is not None else np.inf,
        )

    def _noise_scale(self, unit: float) -> float:
        return number_or_auto(unit / 4, noise_scale=self.noise_scale)

    def _keep(self, plan: FitPlan, released: np.ndarray) -> None:
        super()._keep(plan, released)
        self.noise_scale_ = self._noise_scale(self._half_width)
        coefficients, intercepts = self._mean
        self.coef_ = coefficients[0] * self._half_width
        self.intercept_ = float(intercepts[0] * self._half_width + self._center)

    def _diagnosed(self, plan: FitPlan, released: np.ndarray) -> tuple[str, ...]:
        said: tuple[str, ...] = ()
        if plan.config.posterior.fit_intercept:
            bounded = self.target_bounds is not None
            said = _doubts.of_level(plan.config, released.mean(axis=0)[:, -1], bounded=bounded)
        return said or super()._diagnosed(plan, released)

    def _in_units(self, draws: np.ndarray) -> np.ndarray:
        draws = draws * self._half_width
        if self._config.posterior.fit_intercept:
            draws[:, -1] += self._center
        return draws

    def predict(self, X, return_std: bool = False) -> Any:
        """Mean of the target, and if asked its standard deviation.

        Parameters
        ----------
        X : array-like of shape (n, n_features)
            Rows, clipped to ``data_norm_`` as in `fit`.
        return_std : bool, default=False
            Return also the deviation of the noise and of the posterior samples together; with one
            sample it is that of the noise.

        Returns
        -------
        ndarray of shape (n,), or a pair of them
        """
        lines = self.sample_predictive(X)
        mean = lines.mean(axis=0)
        if not return_std:
            return mean
        return mean, np.sqrt(self.noise_scale_**2 + lines.var(axis=0))

    def sample_predictive(
        self, X, n_samples: int | None = None, random_state: Any = None
    ) -> np.ndarray:
        """Mean of the target under each posterior sample.

        Returns
        -------
        ndarray of shape (n_samples, n)
        """
        lines = self._logits(X, n_samples)[..., 0]
        return self._center + self._half_width * lines
