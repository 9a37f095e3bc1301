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

from skdp import _fitting
from skdp._fitting import with_callbacks
from skdp._input import AccuracyMixin, check_features_and_labels
from skdp.estimators import _paragraphs
from skdp.estimators._variational import VariationalLinearModel, documentation
from skdp.models.likelihoods import Likelihood, classification_likelihood


class DPVariationalLogisticRegression(AccuracyMixin, VariationalLinearModel):  # noqa: D101
    __doc__ = documentation(
        summary="""Bayesian logistic regression by differentially private variational inference.

    Approximates the posterior of the coefficients under a Gaussian prior N(0, prior_scale² I) by a
    Gaussian. By default that posterior is *noise-aware*: it is the posterior given what was
    released, and on data that the model and the prior describe its intervals cover the truth about
    as often as they say. As ε falls it widens and returns to the prior; as ε grows it becomes the
    ordinary posterior. Two classes take one logit, more take softmax.
""",
        own=_paragraphs.CLASSES,
        clip="""``"auto"`` is R/4 to R, by the public
        ratio of the DP noise to that of the data; with ``"dpvi"`` half the bound that the clipped
        rows imply: R/2 for two classes, √2 R/2 for more.""",
        fitted=_paragraphs.FITTED_CLASSES,
        shape="(1, n_features) for two classes, else (n_classes, n_features)",
        rest="""
    See Also
    --------
    skdp.preprocessing.BoundedScaler : Scales features by declared bounds, at no privacy cost.

    Notes
    -----
    A noise-aware fit releases the rows' second moments once, ``max_iter`` noisy gradients at the
    posterior mean so far, and, for two classes, the slope of the gradient once, all under one
    (epsilon, delta). See `skdp.algorithms.noise_aware` for the equations. Beyond 40 parameters, or
    four classes, the uncertainty about the second moments is not integrated over. Coverage was
    measured with priors like the default; with a ``prior_scale`` ten times as wide the model of the
    scores extrapolates, and intervals are not to be relied on.

    References
    ----------
    J. Jälkö, A. Honkela, O. Dikmen, *Differentially Private Variational Inference for
    Non-conjugate Models*, UAI 2017. J. Jälkö, L. Prediger, A. Honkela, S. Kaski, *DPVIm:
    Differentially Private Variational Inference Improved*, TMLR 2023. T. Kulkarni, J. Jälkö, A.
    Koskela, S. Kaski, A. Honkela, *Differentially Private Bayesian Inference for Generalized Linear
    Models*, ICML 2021.

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
    """,
    )

    _likelihood: Likelihood

    def __init__(
        self,
        epsilon: float | None = 1.0,
        delta: float = 1e-5,
        *,
        inference: str = "noise_aware",
        neighboring_relation: str = "zero_out",
        prior_scale: float | str = "auto",
        covariance: str = "auto",
        gradient: str = "aligned",
        data_norm: float | str = "auto",
        fit_intercept: bool = True,
        max_iter: int | str = "auto",
        batch_size: int | str = "auto",
        sampling_rate: float | None = None,
        clip_norm: float | str = "auto",
        learning_rate: float | str = "auto",
        noise_multiplier: float | None = None,
        accountant: str = "auto",
        secure: bool = False,
        classes: Any = None,
        n_samples: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            epsilon=epsilon,
            delta=delta,
            inference=inference,
            neighboring_relation=neighboring_relation,
            prior_scale=prior_scale,
            covariance=covariance,
            gradient=gradient,
            data_norm=data_norm,
            fit_intercept=fit_intercept,
            max_iter=max_iter,
            batch_size=batch_size,
            sampling_rate=sampling_rate,
            clip_norm=clip_norm,
            learning_rate=learning_rate,
            noise_multiplier=noise_multiplier,
            accountant=accountant,
            secure=secure,
            n_samples=n_samples,
            random_state=random_state,
            verbose=verbose,
        )
        self.classes = classes

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
            self.classes_, codes = _fitting.encode_labels(y, self.classes, type(self).__name__)
            likelihood = classification_likelihood(len(self.classes_))
            self._run(X, likelihood.targets(codes), likelihood)
        return self

    def _labels(self) -> list[Any]:
        return list(self.classes_)

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
        logits = self._logits(X)
        return self._likelihood.predictive(*logits)

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
        draws = self._logit_draws(X, n_samples, random_state)
        return self._likelihood.probabilities(draws)
