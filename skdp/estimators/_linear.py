"""What variational estimators of linear models share: parameters, plan, posterior and draws."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from skdp.algorithms import dp_vi, gaussian_vi
from skdp.algorithms.noise_aware.glm import GLMConfig
from skdp.estimators._bounds import (
    DPVI,
    NOISE_AWARE,
    blocks_of_labels,
    is_robust,
    norm_of,
    unwrapped,
)
from skdp.estimators._doubts import NOISE_OF_LINES, of_noise, of_posterior
from skdp.estimators._linear_fit import LinearFit, LinearParameters, told_scales
from skdp.estimators._parameters import WeightedClasses
from skdp.estimators._posteriors import logits_of
from skdp.fitting.declared import encode_labels, n_classes, sampling_rate
from skdp.fitting.estimator import PrivateEstimator
from skdp.fitting.input import check_features_and_labels
from skdp.fitting.plan import FitPlan, PublicFacts
from skdp.fitting.reading import Records
from skdp.fitting.scores import AccuracyMixin
from skdp.fitting.validate import (
    expected,
    integer,
    integer_or_auto,
    is_true,
    near_auto,
    number_or_auto,
    one_of,
)
from skdp.models.likelihoods import BoundedScores, Likelihood, classification_likelihood
from skdp.rows.records import row_bound

if TYPE_CHECKING:
    from skdp.privacy.budget import Budget

COVARIANCES = ("auto", "full", "diag")
GRADIENTS = ("aligned", "vanilla")
MANY_PARAMETERS = 1000  # beyond which a full covariance is not the default
MOST_PRODUCTS = 2 * 10**10  # n·P² of a pass of Newton's method, beyond which steps are cheaper

Config = dp_vi.DPVIConfig | gaussian_vi.GaussianVIConfig | GLMConfig


class LinearClassifier(AccuracyMixin, PrivateEstimator):
    """Classes by the logits of a linear model: one logit for two of them, else softmax."""

    classes: Any
    _ratio: ClassVar[str] = "odds"

    def _n_outputs(self, classes: Any) -> int | None:
        return n_classes(self, classes)

    def _likelihood_of(self, facts: PublicFacts) -> Likelihood:
        return classification_likelihood(facts.outputs)

    def _read(self, X: Any, y: Any) -> tuple[Records, PublicFacts]:
        X, y = self._checked(X, y)
        self.classes_, codes = encode_labels(y, self.classes, type(self).__name__)
        likelihood = classification_likelihood(len(self.classes_))
        return Records(X, likelihood.targets(codes)), self._facts_of(X, len(self.classes_))

    def _checked(self, X: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
        """Rows and labels of a fit."""
        return check_features_and_labels(
            self, X, y, declared=self.classes is not None, sparse=self._takes_sparse
        )

    def _labels(self) -> list[Any]:
        return list(self.classes_)

    def predict_proba(self, X) -> np.ndarray:
        """Class probabilities, shape (n, n_classes)."""
        raise NotImplementedError

    def predict_log_proba(self, X) -> np.ndarray:
        """Logarithm of `predict_proba`, shape (n, n_classes)."""
        return np.log(np.maximum(self.predict_proba(X), np.finfo(float).tiny))

    def decision_function(self, X) -> np.ndarray:
        """Log-odds of the predictive (two classes, shape (n,)) or its log-probabilities."""
        log_proba = self.predict_log_proba(X)
        return log_proba[:, 1] - log_proba[:, 0] if len(self.classes_) == 2 else log_proba

    def predict(self, X) -> np.ndarray:
        """Most probable class of each row, shape (n,)."""
        most_probable = self.predict_proba(X).argmax(axis=1)
        return self.classes_[most_probable]


class NormalPosterior(LinearFit):
    """A linear model whose posterior of the coefficients is normal."""

    covariance: str = "auto"
    gradient: str = "aligned"
    batch_size: int | str = "auto"
    sampling_rate: float | None = None
    learning_rate: float | str = "auto"

    # What the noise-aware inference has no use for, with the defaults.
    _OF_DPVI: ClassVar[dict[str, Any]] = {
        "batch_size": "auto", "sampling_rate": None, "learning_rate": "auto", "gradient": "aligned",
    }  # fmt: skip
    # What DPVI has no use for, with the defaults.
    _OF_NOISE_AWARE: ClassVar[dict[str, Any]] = {"prior_blocks": None, "robust": "auto"}

    def _likelihood_of(self, facts: PublicFacts) -> BoundedScores:
        """Likelihood of the model."""
        raise NotImplementedError

    def _configure(self, facts: PublicFacts, budget: Budget) -> Any:
        one_of((NOISE_AWARE, DPVI), inference=self.inference)
        one_of(COVARIANCES, covariance=self.covariance)
        one_of(GRADIENTS, gradient=self.gradient)
        if self.inference == NOISE_AWARE:
            self._check_unused(
                self._OF_DPVI,
                "the noise-aware inference has no such setting: use inference='dpvi' for it",
            )
        return super()._configure(facts, budget)

    def _ordinary(self, facts: PublicFacts, budget: Budget) -> Config:
        return self._optimum(facts) or self._dpvi(facts, budget)

    def _check_unused(self, settings: dict[str, Any], remedy: str) -> None:
        """Refuse settings of the other inference, which this one would ignore."""
        for name, default in settings.items():
            value = getattr(self, name)
            if type(value) is not type(default) or value != default:
                raise expected(repr(default), remedy, **{name: value})

    def _dpvi(self, facts: PublicFacts, budget: Budget) -> dp_vi.DPVIConfig:
        self._check_unused(
            self._OF_NOISE_AWARE,
            "stochastic steps have no such setting: use inference='noise_aware', and without "
            "privacy leave covariance, clip_norm and max_iter at 'auto'",
        )
        private, likelihood = budget.private, self._likelihood_of(facts)
        n, D = facts.rows, self._n_columns(facts)
        data_norm = norm_of(self, facts)
        R = row_bound(data_norm, self.fit_intercept)
        filled = min(D, dp_vi.FILLED) if facts.sparse else D
        rate = sampling_rate(self, facts, lambda n: dp_vi.default_sampling_rate(n, filled))
        default_clip_norm = dp_vi.default_clip_norm(likelihood.residual_bound * R, private=private)
        prior_scale = near_auto(dp_vi.default_prior_scale(R), prior_scale=self.prior_scale)
        covariance = self.covariance
        if covariance == "auto":
            few = likelihood.n_outputs * D <= MANY_PARAMETERS
            covariance = "full" if self.inference == NOISE_AWARE and few else "diag"
        return dp_vi.DPVIConfig(
            **self._public(facts),
            likelihood=likelihood,
            data_norm=data_norm,
            n_steps=integer_or_auto(
                dp_vi.default_steps(round(rate * n), D, private=private), max_iter=self.max_iter
            ),
            sampling_rate=rate,
            clip_norm=near_auto(default_clip_norm, clip_norm=self.clip_norm),
            prior_scale=prior_scale,
            initial_scale=dp_vi.default_initial_scale(n, D, R, prior_scale),
            given_learning_rate=number_or_auto(0.0, learning_rate=self.learning_rate) or None,
            covariance=covariance,
            gradient=self.gradient,
            sparse=facts.sparse,
            secure=bool(self.secure),
        ).calibrated(budget)

    def _optimum(self, facts: PublicFacts) -> gaussian_vi.GaussianVIConfig | None:
        """Without privacy, Newton's method where nothing asks for steps and its matrices are small.

        None where the stochastic steps of DPVI have to do.
        """
        likelihood, given = self._likelihood_of(facts), (self.clip_norm, self.max_iter)
        P = likelihood.n_outputs * self._n_columns(facts)
        small = P <= MANY_PARAMETERS and facts.rows * P**2 <= MOST_PRODUCTS
        if self.inference == DPVI or self.covariance == "diag" or facts.sparse or not small:
            return None
        if given != ("auto", "auto"):
            return None
        data_norm = norm_of(self, facts)
        bound, K = row_bound(data_norm, self.fit_intercept), likelihood.n_outputs
        inferred = K == 1 and isinstance(self.prior_scale, str) and self.prior_scale == "auto"
        default = gaussian_vi.default_prior_scale(bound, K)
        counts = self._takes_bounds and likelihood.largest_target < math.inf
        by_default = counts or facts.persons is not None
        return gaussian_vi.GaussianVIConfig(
            **self._public(facts),
            likelihood=likelihood,
            data_norm=data_norm,
            prior_scale=None if inferred else near_auto(default, prior_scale=self.prior_scale),
            prior_blocks=blocks_of_labels(self, facts, K),
            robust=is_robust(self, K, by_default=by_default),
        )

    def _n_columns(self, facts: PublicFacts) -> int:
        return facts.features + bool(self.fit_intercept)

    def _keep(self, plan: FitPlan, released: Any) -> None:
        plan, released = unwrapped(self, plan, released)
        config: Config = plan.config
        self._likelihood, self._posterior = plan.config.likelihood, released
        self.coef_ = released.mean[:, : config.n_features].copy()
        self.intercept_ = np.zeros(len(released.mean))
        if config.fit_intercept:
            self.intercept_ = released.mean[:, -1].copy()
        self.n_iter_ = config.n_steps
        self.noise_multiplier_ = config.noise_multiplier
        self.clip_norm_ = config.clip_norm
        found = released.prior_scales
        if config.prior_scale is not None or found is None:
            found = np.full((3, 1), config.prior_scale)
        self.prior_scale_, self.prior_scale_interval_ = told_scales(found)
        self.sampling_rate_ = config.sampling.rate

    def _doubted(self, plan: FitPlan, released: Any) -> tuple[str, ...]:
        if getattr(plan.config, "noise_aware", False):
            return of_posterior(plan, released, float(np.max(self.prior_scale_)))
        if isinstance(plan.config, dp_vi.DPVIConfig):
            return of_noise(plan.config.noise_share, "fewer features", NOISE_OF_LINES)
        return ()

    def _cut_targets(self, plan: FitPlan) -> str:
        return (
            f"counts are above largest_count={plan.config.likelihood.largest_target:g} and were "
            "cut to it, so that large rates are underestimated: declare a larger one"
        )

    def _logits(self, X) -> tuple[np.ndarray, np.ndarray]:
        """Posterior mean (n, K) and covariance (n, K, K)."""
        check_is_fitted(self)
        return logits_of(self._posterior, self._fitted_parts(X))

    def _logit_draws(self, X, n_samples: int, random_state: Any) -> np.ndarray:
        """(n_samples, n, K)."""
        check_is_fitted(self)
        integer(1, n_samples=n_samples)
        draws = self._posterior.sample_seen(n_samples, check_random_state(random_state))
        K, D = self._posterior.mean.shape
        weights = draws.reshape(n_samples * K, D).T
        logits = np.concatenate([rows @ weights for rows in self._fitted_parts(X)])
        return logits.reshape(-1, n_samples, K).transpose(1, 0, 2)


class NormalClassifier(WeightedClasses, LinearClassifier, NormalPosterior):
    """Classes by a linear model whose posterior is normal."""

    def __sklearn_tags__(self) -> Any:
        """Robust widths are of two classes."""
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = not is_true(self.robust)
        return tags

    def _codes_of(self, records: Records) -> np.ndarray:
        targets = records.targets
        return targets.argmax(axis=1) if targets.shape[1] > 1 else targets[:, 0].astype(int)

    def predict_proba(self, X) -> np.ndarray:
        """Class probabilities, averaged over the posterior.

        Parameters
        ----------
        X : array-like of shape (n, n_features)
            Rows, as in `fit`.

        Returns
        -------
        ndarray of shape (n, n_classes)
            Each row sums to 1.
        """
        logits = self._logits(X)
        return self._likelihood.predictive(*logits)

    def sample_predictive(self, X, n_samples: int = 1, random_state: Any = None) -> np.ndarray:
        """Class probabilities under each of several posterior draws; this costs no privacy.

        Returns
        -------
        ndarray of shape (n_samples, n, n_classes)
            Their mean over draws approaches `predict_proba`.
        """
        draws = self._logit_draws(X, n_samples, random_state)
        return self._likelihood.probabilities(draws)


@dataclass(eq=False, repr=False)
class VariationalLinearModel(LinearParameters, NormalPosterior):
    """A linear model of the columns as they are.

    Parameters
    ----------
    inference : {"noise_aware", "dpvi"}, default="noise_aware"
        ``"noise_aware"`` is the posterior given the noisy releases. ``"dpvi"`` is DPVI as
        published: faster on many parameters, works on Poisson batches, and its posterior ignores
        the noise: too narrow where ε is small. Without privacy there is no noise to account for,
        and both are the ordinary variational posterior.
    covariance : {"auto", "full", "diag"}, default="auto"
        Of the posterior. ``"diag"`` is mean-field. ``"auto"`` is full when noise-aware, and
        diagonal with ``"dpvi"`` or where a fit without privacy has more than 1000 parameters.
    gradient : {"aligned", "vanilla"}, default="aligned"
        With ``"dpvi"``: ``"vanilla"`` clips and releases the gradients of mean and scale together,
        as first published; ``"aligned"`` derives the second from the first.
    max_iter : int or "auto", default="auto"
        Number of noisy gradients. ``"auto"`` is 15, or 20 of several classes and with exposures;
        with ``"dpvi"`` 150, or 72 where rows x columns exceed 1e6. Without privacy it is Newton's
        method, in at most 200 passes over the rows, and a number takes so many stochastic steps
        instead.
    batch_size : int or "auto", default="auto"
        With ``"dpvi"``: expected number of rows in a Poisson batch. ``"auto"`` reads all rows in
        each step while rows x columns is at most 1e8.
    sampling_rate : float or None, default=None
        With ``"dpvi"``: Poisson sampling rate in (0, 1], instead of ``batch_size``.
    learning_rate : float or "auto", default="auto"
        With ``"dpvi"``: step size > 0 of the noise-corrected Adam rule, in the units of the
        coefficients. ``"auto"`` follows the public ratio of data to noise.
    noise_multiplier : float or None, default=None
        Standard deviation > 0 of a gradient's noise over ``clip_norm``, instead of ``epsilon``
        (pass ``epsilon=None``); the report then accounts for what was spent.

    Attributes
    ----------
    intercept_ : ndarray
        Posterior mean of the intercepts; zero without ``fit_intercept``.
    noise_multiplier_ : float
        Standard deviation of a gradient's noise over the bound on one record.
    clip_norm_, data_norm_, sampling_rate_ : float
        The values used; ``data_norm_`` is infinite where bounds are declared and no norm is.
    prior_scale_ : float or ndarray of shape (n_blocks,)
        The prior scale, or its posterior median where it was inferred, of each block in the order
        in which labels first occur.
    prior_scale_interval_ : tuple of two float or ndarray
        Percentiles 5 and 95 of its posterior; twice the value where it was given.

    References
    ----------
    J. Jälkö, A. Honkela, O. Dikmen, *Differentially Private Variational Inference for Non-conjugate
    Models*, UAI 2017. T. Kulkarni, J. Jälkö, A. Koskela, S. Kaski, A. Honkela, *Differentially
    Private Bayesian Inference for Generalized Linear Models*, ICML 2021.
    """

    _: KW_ONLY
    inference: str = NOISE_AWARE
    covariance: str = "auto"
    gradient: str = "aligned"
    batch_size: int | str = "auto"
    sampling_rate: float | None = None
    learning_rate: float | str = "auto"
