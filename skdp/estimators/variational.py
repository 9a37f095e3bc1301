"""`DPVariationalLogisticRegression`: Bayesian logistic regression by private variational inference.

>>> import numpy as np
>>> from skdp import DPVariationalLogisticRegression
>>> rng = np.random.default_rng(0)
>>> X = rng.uniform(-1, 1, (1000, 2))
>>> y = rng.random(1000) < 1 / (1 + np.exp(-4 * X[:, 0]))
>>> classifier = DPVariationalLogisticRegression(
...     epsilon=1.0, delta=1e-5, classes=[False, True], n_samples=1000
... ).fit(X, y)
>>> classifier.score(X, y) > 0.75
True
>>> classifier.sample_posterior(100).shape
(100, 3)
>>> print(f"{classifier.privacy_.epsilon:.3f}")
1.000
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from skdp._input import check_features, check_features_and_labels
from skdp._validate import flag, in_range, integer
from skdp.algorithms import dp_vi
from skdp.estimators import _fitting
from skdp.estimators._fitting import CallbackSupportMixin, with_callbacks
from skdp.models.likelihoods import Likelihood, classification_likelihood


class DPVariationalLogisticRegression(CallbackSupportMixin, ClassifierMixin, BaseEstimator):
    """Bayesian logistic regression by differentially private variational inference.

    Approximates the posterior of the coefficients under a Gaussian prior N(0, prior_scale² I) by a
    Gaussian with diagonal covariance, from noisy sums of clipped per-record gradients (DPVI with
    aligned gradients). Two classes take one logit, more take softmax.

    **Privacy.** `fit` is (epsilon, delta)-differentially private under ``neighboring_relation``:
    the coefficients, the posterior, every prediction and every posterior sample together. The unit
    is a row. The guarantee covers one fit; each further fit on the same rows, a grid search for
    instance, is a further release. It is conditional on the public facts listed in
    ``privacy_.inferred_public_facts``, is *not* one for a seeded fit, and treats floating-point
    Gaussian noise as exact.

    Parameters
    ----------
    epsilon : float or None, default=1.0
        ε > 0. ``float("inf")`` is the ordinary, non-private fit. None with ``noise_multiplier``.
    delta : float, default=1e-5
        δ in (0, 1); should be well below 1/n.
    neighboring_relation : {"zero_out", "add_or_remove_one", "replace_one"}, default="zero_out"
        Who is a neighbour. Under ``"add_or_remove_one"`` the number of rows is private and
        ``n_samples`` must be given.
    prior_scale : float or "auto", default="auto"
        Standard deviation > 0 of the prior of every coefficient and intercept. ``"auto"`` is 5/R
        with R = √(data_norm² + 1), or data_norm without intercept: log-odds of ±5 for a row at the
        norm bound.
    data_norm : float or "auto", default="auto"
        Euclidean norm > 0 to which the features of each row are clipped, in `fit` and in
        prediction. A public bound, never checked against the data. ``"auto"`` is √n_features: right
        for features in [-1, 1], as `BoundedScaler` gives.
    fit_intercept : bool, default=True
        Append a 1 to each row.
    max_iter : int or "auto", default="auto"
        Number of noisy steps. ``"auto"`` is 150, or 72 where rows x columns exceed 1e6;
        without privacy 500 to 4000.
    batch_size : int or "auto", default="auto"
        Expected number of rows in a Poisson batch. ``"auto"`` reads all rows in each step while
        rows x columns is at most 1e8.
    sampling_rate : float or None, default=None
        Poisson sampling rate in (0, 1], instead of ``batch_size``; 1 is the full batch.
    clip_norm : float or "auto", default="auto"
        Norm > 0 to which each record's gradient is clipped. ``"auto"`` is half the bound that the
        clipped rows imply: R/2 for two classes, √2 R/2 for more.
    learning_rate : float or "auto", default="auto"
        Step size > 0 of the noise-corrected Adam rule, in the units of the coefficients.
        ``"auto"`` follows the public ratio of data to noise.
    noise_multiplier : float or None, default=None
        Standard deviation > 0 of the noise over the clipping norm, instead of ``epsilon`` (pass
        ``epsilon=None``); the report then accounts for what was spent.
    accountant : {"auto", "gdp", "pld", "rdp"}, default="auto"
        See `skdp.privacy.epsilon`.
    classes : array-like of shape (n_classes,) or None, default=None
        The class labels, as a declared public fact. None reads them from y and says so in the
        report.
    n_samples : int or None, default=None
        Public number of rows, from which rates and step sizes are computed. None reads it from X
        and says so in the report.
    random_state : int, RandomState instance or None, default=None
        None keys the noise from the operating system. A seed makes the fit repeatable and its
        guarantee void: the report says ``valid=False``.
    verbose : int, default=0
        Above 0, a progress bar over the steps (needs tqdm). Callbacks of scikit-learn, where the
        version has them, work too: they are told of steps and see no data.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels.
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        Posterior mean of the coefficients.
    intercept_ : ndarray of shape (1,) or (n_classes,)
        Posterior mean of the intercepts; zero without ``fit_intercept``.
    covariance_ : ndarray of shape (n_parameters, n_parameters)
        Posterior covariance, diagonal, in the order of ``parameter_names_``.
    parameter_names_ : list of str
        Names of the columns of `sample_posterior`.
    n_iter_ : int
        Number of noisy steps.
    noise_multiplier_ : float
        Standard deviation of the noise over the clipping norm.
    clip_norm_, data_norm_, prior_scale_, sampling_rate_ : float
        The values used.
    privacy_ : PrivacyReport
        The privacy statement of this fit.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Feature names, where X had any.

    See Also
    --------
    skdp.preprocessing.BoundedScaler : Scales features by declared bounds, at no privacy cost.

    Notes
    -----
    The posterior does not know of the noise it was learned from: its intervals are too narrow where
    ε is small.

    References
    ----------
    J. Jälkö, A. Honkela, O. Dikmen, *Differentially Private Variational Inference for
    Non-conjugate Models*, UAI 2017. J. Jälkö, L. Prediger, A. Honkela, S. Kaski, *DPVIm:
    Differentially Private Variational Inference Improved*, TMLR 2023.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.pipeline import make_pipeline
    >>> from skdp import BoundedScaler, DPVariationalLogisticRegression
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> X = X[:, :4]  # radius, texture, perimeter, area
    >>> classifier = make_pipeline(
    ...     BoundedScaler(lower=[5, 5, 40, 100], upper=[30, 40, 200, 2500]),
    ...     DPVariationalLogisticRegression(epsilon=1.0, delta=1e-5, classes=[0, 1], n_samples=569),
    ... )
    >>> classifier.fit(X, y).score(X, y) > 0.8
    True
    >>> classifier[-1].privacy_.valid
    True
    """

    n_features_in_: int

    def __init__(
        self,
        epsilon: float | None = 1.0,
        delta: float = 1e-5,
        *,
        neighboring_relation: str = "zero_out",
        prior_scale: float | str = "auto",
        data_norm: float | str = "auto",
        fit_intercept: bool = True,
        max_iter: int | str = "auto",
        batch_size: int | str = "auto",
        sampling_rate: float | None = None,
        clip_norm: float | str = "auto",
        learning_rate: float | str = "auto",
        noise_multiplier: float | None = None,
        accountant: str = "auto",
        classes: Any = None,
        n_samples: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.neighboring_relation = neighboring_relation
        self.prior_scale = prior_scale
        self.data_norm = data_norm
        self.fit_intercept = fit_intercept
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.sampling_rate = sampling_rate
        self.clip_norm = clip_norm
        self.learning_rate = learning_rate
        self.noise_multiplier = noise_multiplier
        self.accountant = accountant
        self.classes = classes
        self.n_samples = n_samples
        self.random_state = random_state
        self.verbose = verbose

    @with_callbacks
    def fit(self, X, y) -> DPVariationalLogisticRegression:
        """Fit the posterior, privately.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Finite numbers; dense.
        y : array-like of shape (n_samples,)
            Class labels.

        Returns
        -------
        DPVariationalLogisticRegression
            The fitted estimator.

        Raises
        ------
        ValueError
            If a parameter or the input is invalid; nothing has been spent then.
        BudgetExceededError
            If an open `PrivacyLedger` refuses the fit; no row has been used then.
        """
        _fitting.start_callbacks(self)
        with _fitting.all_or_nothing(self):
            _fitting.check_budget(self)
            X, y = check_features_and_labels(self, X, y, declared=self.classes is not None)
            _fitting.check_n_rows(X, dp_vi.MAX_ROWS)
            self.classes_, codes = _fitting.encode_labels(y, self.classes, type(self).__name__)
            likelihood = classification_likelihood(len(self.classes_))
            config = self._configure(_fitting.public_n_rows(self, X), X.shape[1], likelihood)
            progress = _fitting.progress(self, config.n_steps)
            targets = likelihood.targets(codes)

            self.privacy_ = _fitting.spend(self, config.event(), str(config.sampling))
            streams = _fitting.streams(self, X, targets)
            q = dp_vi.fit_mean_field(config, likelihood, X, targets, streams, progress)
            self._store(q, config, likelihood)
        return self

    def _configure(self, n_rows: int, n_features: int, likelihood: Likelihood) -> dp_vi.DPVIConfig:
        """Check the parameters and fill in the defaults, from public facts alone."""
        private = self.epsilon != float("inf")
        n_columns = n_features + flag(fit_intercept=self.fit_intercept)
        data_norm = _or_auto(n_features**0.5, data_norm=self.data_norm)
        bound = dp_vi.row_bound(data_norm, self.fit_intercept)
        gradient_bound = likelihood.residual_bound * bound
        rate = _fitting.sampling_rate(self, n_rows, dp_vi.default_sampling_rate(n_rows, n_columns))
        n_steps = dp_vi.default_steps(round(rate * n_rows), n_columns, private=private)
        if self.max_iter != "auto":
            n_steps = integer(1, "or 'auto'", max_iter=self.max_iter)
        clip_norm = _or_auto(
            dp_vi.default_clip_norm(gradient_bound, private=private), clip_norm=self.clip_norm
        )
        prior_scale = _or_auto(dp_vi.default_prior_scale(bound), prior_scale=self.prior_scale)
        sigma = _fitting.noise_multiplier(self, rate, n_steps)
        default_learning_rate = dp_vi.default_learning_rate(
            n_rows, likelihood.n_outputs * n_columns, bound, sigma * clip_norm / rate
        )
        return dp_vi.DPVIConfig(
            n_outputs=likelihood.n_outputs,
            n_features=n_features,
            fit_intercept=self.fit_intercept,
            data_norm=data_norm,
            n_steps=n_steps,
            sampling_rate=rate,
            clip_norm=clip_norm,
            prior_scale=prior_scale,
            initial_scale=dp_vi.default_initial_scale(n_rows, n_columns, bound, prior_scale),
            learning_rate=_or_auto(default_learning_rate, learning_rate=self.learning_rate),
            noise_multiplier=sigma,
            neighboring_relation=self.neighboring_relation,
        )

    def _store(self, q: dp_vi.GaussianPosterior, config: dp_vi.DPVIConfig, likelihood) -> None:
        self._likelihood, self._posterior = likelihood, q
        self.coef_ = q.mean[:, : config.n_features].copy()
        self.intercept_ = np.zeros(config.n_outputs)
        if config.fit_intercept:
            self.intercept_ = q.mean[:, -1].copy()
        self.n_iter_ = config.n_steps
        self.noise_multiplier_ = config.noise_multiplier
        self.clip_norm_ = config.clip_norm
        self.data_norm_ = config.data_norm
        self.prior_scale_ = config.prior_scale
        self.sampling_rate_ = config.sampling_rate

    @property
    def covariance_(self) -> np.ndarray:
        """Posterior covariance, diagonal, in the order of ``parameter_names_``."""
        return np.diag(self._posterior.scale.ravel() ** 2)

    @property
    def parameter_names_(self) -> list[str]:
        """Names of the columns of `sample_posterior`: the outputs in turn, intercept last."""
        features = getattr(self, "feature_names_in_", None)
        if features is None:
            features = [f"x{i}" for i in range(self.n_features_in_)]
        names = [*features, "intercept"][: self._posterior.mean.shape[1]]
        if len(self.classes_) == 2:
            return names
        return [f"{label}: {name}" for label in self.classes_ for name in names]

    def predict_proba(self, X) -> np.ndarray:
        """Class probabilities, averaged over the posterior.

        Parameters
        ----------
        X : array-like of shape (n, n_features)
            Rows, clipped to ``data_norm_`` as in `fit`.

        Returns
        -------
        ndarray of shape (n, n_classes)
            Each row sums to 1.
        """
        rows = self._rows(X)
        mean = rows @ self._posterior.mean.T
        variance = rows**2 @ (self._posterior.scale**2).T
        return self._likelihood.predictive(mean, variance)

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
        q = self._posterior
        normals = check_random_state(random_state).standard_normal((n_samples, q.mean.size))
        return q.mean.ravel() + q.scale.ravel() * normals

    def sample_predictive(self, X, n_samples: int = 1, random_state: Any = None) -> np.ndarray:
        """Class probabilities under each of several posterior draws; this costs no privacy.

        Parameters
        ----------
        X : array-like of shape (n, n_features)
            Rows, clipped to ``data_norm_`` as in `fit`.
        n_samples : int, default=1
            Number of draws ≥ 1.
        random_state : int, RandomState instance or None, default=None
            Seed of the draws.

        Returns
        -------
        ndarray of shape (n_samples, n, n_classes)
            Their mean over draws approaches `predict_proba`.
        """
        rows = self._rows(X)
        draws = self.sample_posterior(n_samples, random_state)
        draws = draws.reshape(n_samples, *self._posterior.mean.shape)
        return self._likelihood.probabilities(np.einsum("nd,skd->snk", rows, draws, optimize=True))

    def _rows(self, X) -> np.ndarray:
        check_is_fitted(self)
        X = check_features(self, X, reset=False)
        n_intercepts = self._posterior.mean.shape[1] - self.n_features_in_
        return dp_vi.clipped_rows(X, self.data_norm_, fit_intercept=bool(n_intercepts))


def _or_auto(default: float, **kw: Any) -> float:
    """Check a number > 0, or take the default for ``"auto"``."""
    ((_, value),) = kw.items()
    if isinstance(value, str) and value == "auto":
        return default
    # Squares of numbers beyond these leave the range of a double, and a bound would bound nothing.
    return in_range(1e-100, 1e100, "or 'auto'", **kw)
