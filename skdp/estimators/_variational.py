"""What variational estimators of linear models share: the plan, the posterior and its draws."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from skdp import _fitting
from skdp._fitting import CallbackSupportMixin
from skdp._input import check_features
from skdp._validate import expected, flag, integer, one_of
from skdp.algorithms import dp_vi, noise_aware, noise_aware_regression
from skdp.algorithms.gaussian_posterior import GaussianPosterior
from skdp.estimators import _paragraphs
from skdp.estimators._arviz import ArvizMixin
from skdp.estimators._posterior_sampler import bounded_or_auto
from skdp.models.likelihoods import BoundedScores
from skdp.privacy.calibration import calibrate, calibrate_schedule
from skdp.privacy.gdp import epsilon_to_gdp
from skdp.relations import sensitivity_factor

NOISE_AWARE, DPVI = "noise_aware", "dpvi"
COVARIANCES = ("auto", "full", "diag")
GRADIENTS = ("aligned", "vanilla")
MANY_PARAMETERS = 1000  # beyond which a full covariance is not the default
MOST_PARAMETERS = 3000  # beyond which a fit with a full covariance takes minutes

Config = dp_vi.DPVIConfig | noise_aware.NoiseAwareConfig
AnyConfig = TypeVar(
    "AnyConfig",
    dp_vi.DPVIConfig,
    noise_aware.NoiseAwareConfig,
    noise_aware_regression.NoiseAwareRegressionConfig,
)


_PARAMETERS = """
    Parameters
    ----------
{budget}    inference : {{"noise_aware", "dpvi"}}, default="noise_aware"
        ``"noise_aware"`` is the posterior given the noisy releases. ``"dpvi"`` is DPVI as
        published: faster on many parameters, works on Poisson batches, and its posterior does not
        know of the noise: too narrow where ε is small. Without privacy there is no noise to know
        of, and both are the ordinary variational posterior.
{own}    prior_scale : float or "auto", default="auto"
        Standard deviation > 0 of the prior of every coefficient and intercept. ``"auto"`` is 3/R:
        logits of ±3 for a row at the norm bound R = √(data_norm² + 1), or data_norm without
        intercept. 5/R for more than two classes, with ``"dpvi"`` or without privacy.
    covariance : {{"auto", "full", "diag"}}, default="auto"
        Of the posterior. ``"diag"`` is mean-field. ``"auto"`` is full when noise-aware, and
        diagonal with ``"dpvi"`` or where a fit without privacy has more than 1000 parameters.
    gradient : {{"aligned", "vanilla"}}, default="aligned"
        With ``"dpvi"``: ``"vanilla"`` clips and releases the gradients of mean and scale together,
        as first published; ``"aligned"`` derives the second from the first.
    data_norm : float or "auto", default="auto"
        Euclidean norm > 0 to which the features of each row are clipped, in `fit` and in
        prediction. A public bound, never checked against the data. ``"auto"`` is √n_features, right
        for features in [-1, 1] as `BoundedScaler` gives, or in a pipeline the norm that the step
        before declares, as `NormClipper` does.
    fit_intercept : bool, default=True
        Append a 1 to each row.
    max_iter : int or "auto", default="auto"
        Number of noisy gradients. ``"auto"`` is 20; with ``"dpvi"`` 150, or 72 where rows x columns
        exceed 1e6; without privacy 500 to 4000.
    batch_size : int or "auto", default="auto"
        With ``"dpvi"``: expected number of rows in a Poisson batch. ``"auto"`` reads all rows in
        each step while rows x columns is at most 1e8.
    sampling_rate : float or None, default=None
        With ``"dpvi"``: Poisson sampling rate in (0, 1], instead of ``batch_size``.
    clip_norm : float or "auto", default="auto"
        Bound > 0 on the norm of each record's part of a gradient. {clip}
    learning_rate : float or "auto", default="auto"
        With ``"dpvi"``: step size > 0 of the noise-corrected Adam rule, in the units of the
        coefficients. ``"auto"`` follows the public ratio of data to noise.
    noise_multiplier : float or None, default=None
        Standard deviation > 0 of a gradient's noise over ``clip_norm``, instead of ``epsilon``
        (pass ``epsilon=None``); the report then accounts for what was spent.
    accountant : {{"auto", "gdp", "pld", "rdp"}}, default="auto"
        See `skdp.privacy.epsilon`.
{end}
    Attributes
    ----------
{fitted}    coef_ : ndarray
        Posterior mean of the coefficients, {shape}.
    intercept_ : ndarray
        Posterior mean of the intercepts; zero without ``fit_intercept``.
    covariance_ : ndarray of shape (n_parameters, n_parameters)
        Posterior covariance, in the order of ``parameter_names_``.
    parameter_names_ : list of str
        Names of the columns of `sample_posterior`.
    n_iter_ : int
        Number of noisy gradients.
    noise_multiplier_ : float
        Standard deviation of a gradient's noise over the bound on one record.
    clip_norm_, data_norm_, prior_scale_, sampling_rate_ : float
        The values used.
    privacy_ : PrivacyReport
        The privacy statement of this fit.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Feature names, where X had any.
"""

_PRIVACY = """
    **Privacy.** `fit` is (epsilon, delta)-differentially private under ``neighboring_relation``:
    the coefficients, the posterior, every prediction and every posterior sample together. The unit
    is a row. The guarantee covers one fit; each further fit on the same rows, a grid search for
    instance, is a further release. It is conditional on the public facts listed in
    ``privacy_.inferred_public_facts``, is *not* one for a seeded fit, and without ``secure`` treats
    floating-point Gaussian noise as exact.
"""


def documentation(*, summary: str, own: str, clip: str, fitted: str, shape: str, rest: str) -> str:
    """Put a class's documentation together from its own words and those that all share."""
    budget = _paragraphs.BUDGET.replace("INSTEAD", "noise_multiplier")
    head, _, tail = budget.partition("    neighboring_relation")
    parameters = _PARAMETERS.format(
        budget=head,
        own="    neighboring_relation" + tail,
        clip=clip,
        end=own + _paragraphs.SECURE + _paragraphs.END,
        fitted=fitted,
        shape=shape,
    )
    return summary + _PRIVACY + parameters + rest


class VariationalLinearModel(ArvizMixin, CallbackSupportMixin, BaseEstimator):
    """A linear model whose posterior of the coefficients is normal."""

    n_features_in_: int
    privacy_: Any

    def __init__(
        self,
        *,
        epsilon,
        delta,
        inference,
        neighboring_relation,
        prior_scale,
        covariance,
        gradient,
        data_norm,
        fit_intercept,
        max_iter,
        batch_size,
        sampling_rate,
        clip_norm,
        learning_rate,
        noise_multiplier,
        accountant,
        secure,
        n_samples,
        random_state,
        verbose,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.inference = inference
        self.neighboring_relation = neighboring_relation
        self.prior_scale = prior_scale
        self.covariance = covariance
        self.gradient = gradient
        self.data_norm = data_norm
        self.fit_intercept = fit_intercept
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.sampling_rate = sampling_rate
        self.clip_norm = clip_norm
        self.learning_rate = learning_rate
        self.noise_multiplier = noise_multiplier
        self.accountant = accountant
        self.secure = secure
        self.n_samples = n_samples
        self.random_state = random_state
        self.verbose = verbose

    def _run(self, X: np.ndarray, targets: np.ndarray, likelihood: BoundedScores) -> None:
        """Plan from public facts, spend, then touch the rows and keep the posterior."""
        _fitting.check_n_rows(X)
        n_rows, auto_norm = _fitting.public_n_rows(self, X), _fitting.auto_norm(X)
        config = self._configure(n_rows, X.shape[1], auto_norm, likelihood)
        progress = _fitting.progress(self, config.sampling.n_steps)

        self.privacy_ = _fitting.spend(self, config.event(), str(config.sampling))
        streams = _fitting.streams(self, X, targets)
        if isinstance(config, noise_aware.NoiseAwareConfig):
            q = noise_aware.fit(config, X, targets, streams, progress)
            if self.covariance == "diag":
                q = GaussianPosterior(q.mean, np.sqrt(np.diag(q.covariance)))
        else:
            q = dp_vi.fit(config, likelihood, X, targets, streams, progress)
        self._store(q, config, likelihood)

    def _configure(
        self, n_rows: int, n_features: int, auto_norm: float, likelihood: BoundedScores
    ) -> Config:
        """Check the parameters and fill in the defaults, from public facts alone."""
        one_of((NOISE_AWARE, DPVI), inference=self.inference)
        one_of(COVARIANCES, covariance=self.covariance)
        one_of(GRADIENTS, gradient=self.gradient)
        if self.inference == NOISE_AWARE:
            self._check_unused()
        flag(fit_intercept=self.fit_intercept)
        check_secure(self)
        if self.inference == DPVI or self.epsilon == float("inf"):
            return self._dpvi(n_rows, n_features, auto_norm, likelihood)
        return self._noise_aware(n_rows, n_features, auto_norm, likelihood)

    def _check_unused(self) -> None:
        """Refuse settings of the other inference: what is ignored in silence is believed in."""
        defaults = {
            "batch_size": "auto", "sampling_rate": None, "learning_rate": "auto",
            "gradient": "aligned",
        }  # fmt: skip
        for name, default in defaults.items():
            if not _same(getattr(self, name), default):
                remedy = (
                    "the noise-aware inference has no such setting: use inference='dpvi' for it"
                )
                raise expected(repr(default), remedy, **{name: getattr(self, name)})

    def _noise_aware(
        self, n_rows: int, n_features: int, auto_norm: float, likelihood: BoundedScores
    ) -> noise_aware.NoiseAwareConfig:
        n_columns = n_features + self.fit_intercept
        n_parameters = likelihood.n_outputs * n_columns
        if n_parameters > MOST_PARAMETERS:
            raise ValueError(
                f"Expected at most {MOST_PARAMETERS} parameters, got {n_parameters}: the full "
                "covariance of a noise-aware posterior would take minutes and more. Use "
                "inference='dpvi', or fewer features."
            )
        data_norm = bounded_or_auto(auto_norm, data_norm=self.data_norm)
        R = dp_vi.row_bound(data_norm, self.fit_intercept)
        n_steps = noise_aware.STEPS
        if self.max_iter != "auto":
            n_steps = integer(1, "or 'auto'", max_iter=self.max_iter)
        if self.epsilon is None:
            sigma = _fitting.noise_multiplier(self, 1.0, n_steps)
            mu = n_steps**0.5 / sigma
        else:
            sigma = 1.0  # until the schedule is known
            mu = epsilon_to_gdp(self.epsilon, self.delta)
            mu /= sensitivity_factor(self.neighboring_relation)
        share = noise_aware.default_clip_share(n_rows, n_columns, mu)
        config = noise_aware.NoiseAwareConfig(
            likelihood=likelihood,
            n_rows=n_rows,
            n_features=n_features,
            fit_intercept=bool(self.fit_intercept),
            data_norm=data_norm,
            n_steps=n_steps,
            clip_norm=bounded_or_auto(
                share * likelihood.residual_scale * R, clip_norm=self.clip_norm
            ),
            prior_scale=bounded_or_auto(
                noise_aware.default_prior_scale(R, likelihood.n_outputs),
                prior_scale=self.prior_scale,
            ),
            noise_multiplier=sigma,
            curvature=noise_aware.default_curvature(
                n_rows, n_columns, mu, self.neighboring_relation
            ),
            neighboring_relation=self.neighboring_relation,
            secure=bool(self.secure),
        )
        if self.epsilon is None:
            return config
        factor = calibrate_schedule(
            config.noise_multipliers,
            epsilon=self.epsilon,
            delta=self.delta,
            neighboring_relation=self.neighboring_relation,
            accountant=one_of(_fitting.ACCOUNTANTS, accountant=self.accountant),
        )
        return affordable(self, replace(config, noise_multiplier=factor))

    def _dpvi(
        self, n_rows: int, n_features: int, auto_norm: float, likelihood: BoundedScores
    ) -> dp_vi.DPVIConfig:
        private = self.epsilon != float("inf")
        n_columns = n_features + self.fit_intercept
        n_parameters = likelihood.n_outputs * n_columns
        data_norm = bounded_or_auto(auto_norm, data_norm=self.data_norm)
        bound = dp_vi.row_bound(data_norm, self.fit_intercept)
        gradient_bound = likelihood.residual_bound * bound
        rate = _fitting.sampling_rate(self, n_rows, dp_vi.default_sampling_rate(n_rows, n_columns))
        n_steps = dp_vi.default_steps(round(rate * n_rows), n_columns, private=private)
        if self.max_iter != "auto":
            n_steps = integer(1, "or 'auto'", max_iter=self.max_iter)
        clip_norm = bounded_or_auto(
            dp_vi.default_clip_norm(gradient_bound, private=private), clip_norm=self.clip_norm
        )
        prior_scale = bounded_or_auto(
            dp_vi.default_prior_scale(bound), prior_scale=self.prior_scale
        )
        sigma = _fitting.noise_multiplier(self, rate, n_steps)
        default_learning_rate = dp_vi.default_learning_rate(
            n_rows, n_parameters, bound, sigma * clip_norm / rate
        )
        covariance = self.covariance
        if covariance == "auto":
            full = self.inference == NOISE_AWARE and n_parameters <= MANY_PARAMETERS
            covariance = "full" if full else "diag"
        config = dp_vi.DPVIConfig(
            n_outputs=likelihood.n_outputs,
            n_features=n_features,
            fit_intercept=bool(self.fit_intercept),
            data_norm=data_norm,
            n_steps=n_steps,
            sampling_rate=rate,
            clip_norm=clip_norm,
            prior_scale=prior_scale,
            initial_scale=dp_vi.default_initial_scale(n_rows, n_columns, bound, prior_scale),
            learning_rate=bounded_or_auto(default_learning_rate, learning_rate=self.learning_rate),
            noise_multiplier=sigma,
            neighboring_relation=self.neighboring_relation,
            covariance=covariance,
            gradient=self.gradient,
            secure=bool(self.secure),
        )
        return affordable(self, config)

    def _store(self, q: GaussianPosterior, config: Config, likelihood: BoundedScores) -> None:
        self._likelihood, self._posterior = likelihood, q
        self.coef_ = q.mean[:, : config.n_features].copy()
        self.intercept_ = np.zeros(len(q.mean))
        if config.fit_intercept:
            self.intercept_ = q.mean[:, -1].copy()
        self.n_iter_ = config.n_steps
        self.noise_multiplier_ = config.noise_multiplier
        self.clip_norm_ = config.clip_norm
        self.data_norm_ = config.data_norm
        self.prior_scale_ = config.prior_scale
        self.sampling_rate_ = config.sampling.rate

    @property
    def covariance_(self) -> np.ndarray:
        """Posterior covariance, in the order of ``parameter_names_``."""
        check_is_fitted(self)
        return self._posterior.covariance.copy()

    def _labels(self) -> list[Any]:
        """Names of the outputs where there is more than one."""
        return []

    @property
    def parameter_names_(self) -> list[str]:
        """Names of the columns of `sample_posterior`: the outputs in turn, intercept last."""
        check_is_fitted(self)
        features = getattr(self, "feature_names_in_", None)
        if features is None:
            features = [f"x{i}" for i in range(self.n_features_in_)]
        names = [*features, "intercept"][: self._posterior.mean.shape[1]]
        if len(self._posterior.mean) == 1:
            return names
        return [f"{label}: {name}" for label in self._labels() for name in names]

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
            Columns as in ``parameter_names_``.
        """
        check_is_fitted(self)
        integer(1, n_samples=n_samples)
        return self._posterior.sample(n_samples, check_random_state(random_state))

    def _rows(self, X) -> np.ndarray:
        check_is_fitted(self)
        X = check_features(self, X, reset=False)
        n_intercepts = self._posterior.mean.shape[1] - self.n_features_in_
        return dp_vi.clipped_rows(X, self.data_norm_, fit_intercept=bool(n_intercepts))

    def _logits(self, X) -> tuple[np.ndarray, np.ndarray]:
        """Posterior mean (n, K) and covariance (n, K, K)."""
        rows = self._rows(X)
        return self._posterior.logits(rows)

    def _logit_draws(self, X, n_samples: int, random_state: Any) -> np.ndarray:
        """(n_samples, n, K)."""
        rows = self._rows(X)
        draws = self.sample_posterior(n_samples, random_state)
        draws = draws.reshape(n_samples, *self._posterior.mean.shape)
        return np.einsum("nd,skd->snk", rows, draws, optimize=True)


def check_secure(estimator: Any) -> None:
    """Refuse ``secure`` without noise to make secure."""
    if flag(secure=estimator.secure) and estimator.epsilon == float("inf"):
        raise expected("False when epsilon is infinite", "there is no noise then", secure=True)


def affordable(estimator: Any, config: AnyConfig) -> AnyConfig:
    """Return the config with the little more noise that discrete noise needs for its budget.

    Its noise affords the budget as Gaussian noise; discrete noise is not quite that.
    """
    if not config.secure or estimator.epsilon is None:
        return config
    sigma = calibrate(
        lambda sigma: replace(config, noise_multiplier=sigma).event(),
        epsilon=estimator.epsilon,
        delta=estimator.delta,
        guess=config.noise_multiplier,
        neighboring_relation=config.neighboring_relation,
        accountant=estimator.accountant,
    )
    return replace(config, noise_multiplier=sigma)


def _same(value: Any, default: Any) -> bool:
    return value is default or (isinstance(value, str) and value == default)
