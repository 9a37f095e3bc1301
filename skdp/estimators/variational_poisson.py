"""`DPVariationalPoissonRegression`: Bayesian regression of counts, differentially private.

>>> import numpy as np
>>> from skdp import DPVariationalPoissonRegression
>>> rng = np.random.default_rng(0)
>>> X = rng.uniform(-1, 1, (2000, 2))
>>> y = rng.poisson(np.exp(1 + X[:, 0]))
>>> regression = DPVariationalPoissonRegression(
...     epsilon=3.0, delta=1e-5, largest_count=20, n_samples=2000
... ).fit(X, y)
>>> regression.score(X, y) > 0.2
True
>>> mean, deviation = regression.predict(X[:5], return_std=True)
>>> mean.shape, deviation.shape
((5,), (5,))
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import column_or_1d

from skdp import _fitting
from skdp._fitting import with_callbacks
from skdp._input import R2Mixin, check_features_and_targets
from skdp._validate import in_range
from skdp.estimators._variational import VariationalLinearModel, documentation
from skdp.models.likelihoods import Poisson


class DPVariationalPoissonRegression(R2Mixin, VariationalLinearModel):  # noqa: D101
    __doc__ = documentation(
        summary="""Bayesian Poisson regression by differentially private variational inference.

    Counts y with y ~ Poisson(exp(x·θ)) under a Gaussian prior N(0, prior_scale² I), whose posterior
    is approximated by a Gaussian. By default that posterior is *noise-aware*: the posterior given
    what was released, wide where ε is small.
""",
        own="""    largest_count : float, default=100.0
        Public bound > 0 of the counts, to which they, and predicted rates, are cut.
""",
        clip="""``"auto"`` is R √y_max to
        4 R √y_max, at most R y_max, by the public ratio of the DP noise to that of the data; with
        ``"dpvi"`` half of R y_max.""",
        fitted="",
        shape="(n_features,)",
        rest="""
    References
    ----------
    T. Kulkarni, J. Jälkö, A. Koskela, S. Kaski, A. Honkela, *Differentially Private Bayesian
    Inference for Generalized Linear Models*, ICML 2021. J. Jälkö, A. Honkela, O. Dikmen,
    *Differentially Private Variational Inference for Non-conjugate Models*, UAI 2017.

    Examples
    --------
    >>> import numpy as np
    >>> from skdp import DPVariationalPoissonRegression
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (5000, 3))
    >>> y = rng.poisson(np.exp(0.5 - X[:, 1]))
    >>> regression = DPVariationalPoissonRegression(largest_count=15, n_samples=5000).fit(X, y)
    >>> regression.coef_.shape
    (3,)
    """,
    )

    _likelihood: Poisson

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
        largest_count: float = 100.0,
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
        self.largest_count = largest_count

    def __sklearn_tags__(self) -> Any:
        """Counts are positive, and a noisy fit of few rows scores little."""
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        tags.regressor_tags.poor_score = True
        return tags

    @with_callbacks
    def fit(self, X, y) -> DPVariationalPoissonRegression:
        """Fit the posterior, privately.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Finite numbers; dense.
        y : array-like of shape (n_samples,)
            Counts, cut to [0, largest_count].

        Returns
        -------
        DPVariationalPoissonRegression
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
            most = in_range(1e-6, 1e6, closed="both", largest_count=self.largest_count)
            X, y = check_features_and_targets(self, X, y, multi_output=False)
            self._run(X, np.clip(column_or_1d(y), 0.0, most)[:, None], Poisson(most))
            self.coef_ = self.coef_[0]
        return self

    def predict(self, X, return_std: bool = False) -> Any:
        """Mean of a new count under the posterior predictive, and its standard deviation.

        Parameters
        ----------
        X : array-like of shape (n, n_features)
            Rows, clipped to ``data_norm_`` as in `fit`.
        return_std : bool, default=False
            Also return the standard deviation of a new count: of the rate and around it.

        Returns
        -------
        ndarray of shape (n,), or two of them
            Means, and standard deviations.
        """
        logits = self._logits(X)
        mean, variance = self._likelihood.predictive(*logits)
        return (mean, np.sqrt(variance)) if return_std else mean

    def sample_predictive(self, X, n_samples: int = 1, random_state: Any = None) -> np.ndarray:
        """Rates under each of several posterior draws; this costs no privacy.

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
        ndarray of shape (n_samples, n)
            Their mean over draws approaches `predict`.
        """
        draws = self._logit_draws(X, n_samples, random_state)
        return self._likelihood.rate(draws)[:, :, 0]
