"""`DPVariationalPoissonRegression`: Bayesian regression of counts, differentially private."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from sklearn.utils.validation import column_or_1d

from skdp.algorithms.gaussian_posterior import GaussianPosterior
from skdp.base import FitPlan, PublicFacts, R2Mixin, Records, check_features_and_targets
from skdp.estimators._documented import documented
from skdp.estimators._linear import NormalPosterior, VariationalLinearModel
from skdp.fitting.input import without_data
from skdp.fitting.scores import r2_of
from skdp.fitting.types import Given
from skdp.fitting.validate import in_range
from skdp.models.likelihoods import Poisson
from skdp.rows.chunks import targets_of


class Exposed(NamedTuple):
    """Counts on their way to `_read`, with the exposures at which they were made."""

    counts: Any
    exposure: Any


class NormalCounts(R2Mixin, NormalPosterior):
    """Counts by a linear model of their log-mean, whose posterior is normal.

    Parameters
    ----------
    largest_count : float, default=100.0
        Public bound > 0 of the counts, to which they, and predicted rates, are cut. Counts need not
        be integers; negative ones are refused.
    """

    largest_count: float = 100.0
    _ratio: ClassVar[str] = "rate"
    _of_either_sign: ClassVar[str] = "DPVariationalLinearRegression"

    def __sklearn_tags__(self) -> Any:
        """Counts are positive."""
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        return tags

    def _likelihood_of(self, facts: PublicFacts) -> Poisson:
        return Poisson(in_range(1e-6, 1e6, closed="both", largest_count=self.largest_count))

    def fit(self, X, y=None, exposure=None, groups=None, *, sample_weight=None) -> Self:
        """Fit, privately.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Finite numbers; sparse in `DPVariationalPoissonRegression`.
        y : array-like of shape (n_samples,)
            Counts ≥ 0, cut to ``largest_count``; fractions are taken as they are.
        exposure : array-like of shape (n_samples,) or None, default=None
            Finite numbers > 0 to which the rates are in proportion, such as times or areas; None
            is 1 for each row. As private as y. A noise-aware fit releases noisy counts of their
            magnitudes first, which take 2 % of the squared GDP budget.
        """
        y = y if exposure is None else Exposed(y, exposure)
        return self._fit(X, y, groups=groups, sample_weight=sample_weight)

    def _read(self, X: Any, y: Any) -> tuple[Records, PublicFacts]:
        exposure = None
        if isinstance(y, Exposed):
            y, exposure = y
        X, y = self._checked(X, y)
        facts, counts = self._facts_of(X, exposed=exposure is not None), column_or_1d(y)
        if (counts < 0).any():
            raise ValueError(
                "Expected counts in y, which are >= 0, but some are negative; "
                f"{self._of_either_sign} takes numbers of either sign."
            )
        targets = counts[:, None]
        if exposure is not None:
            targets = np.hstack([targets, _log_exposure(exposure, len(X))])
        return Records(X, targets), facts

    def _checked(self, X: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
        """Rows and counts of a fit."""
        return check_features_and_targets(self, X, y, multi_output=False, sparse=self._takes_sparse)

    def _keep(self, plan: FitPlan, released: GaussianPosterior) -> None:
        super()._keep(plan, released)
        self.coef_ = self.coef_[0]

    def predict(self, X, return_std: bool = False, *, exposure=None) -> Any:
        """Mean of a new count under the posterior predictive, and its standard deviation.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, n_features)
            Rows, clipped to ``data_norm_`` as in `fit`.
        return_std : bool, default=False
            Also return the standard deviation of a new count: of the rate and around it.
        exposure : array-like of shape (n,) or None, default=None
            Finite numbers > 0, which the rates are multiplied by; None is 1 for each row. What is
            predicted is cut to ``largest_count``, times the exposure where that is above 1.

        Returns
        -------
        ndarray of shape (n,), or two of them
            Means, and standard deviations.
        """
        logits, covariance = self._logits(X)
        below, above = _exposures(exposure, len(logits))
        mean, variance = self._likelihood.predictive(logits + below, covariance)
        mean, variance = above * mean, above * mean + above**2 * (variance - mean)
        return (mean, np.sqrt(variance)) if return_std else mean

    def score(self, X, y=None, sample_weight=None, *, exposure=None) -> float:
        """Coefficient of determination R² of `predict` on given rows.

        Parameters
        ----------
        exposure : array-like of shape (n,) or None, default=None
            As in `predict`.
        """
        if exposure is None:
            return super().score(X, y, sample_weight)
        predicted = self.predict(X, exposure=exposure)
        return r2_of(predicted, targets_of(X, y), sample_weight)

    def sample_predictive(
        self, X, n_samples: int = 1, random_state: Any = None, *, exposure=None
    ) -> np.ndarray:
        """Rates under each of several posterior draws; this costs no privacy.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, n_features)
            Rows, clipped to ``data_norm_`` as in `fit`.
        exposure : array-like of shape (n,) or None, default=None
            As in `predict`.

        Returns
        -------
        ndarray of shape (n_samples, n)
            Their mean over draws approaches `predict`.
        """
        draws = self._logit_draws(X, n_samples, random_state)
        below, above = _exposures(exposure, draws.shape[1])
        return above * self._likelihood.rate(draws + below)[:, :, 0]


@documented
@dataclass(eq=False, repr=False)
class DPVariationalPoissonRegression(NormalCounts, VariationalLinearModel):
    """Bayesian Poisson regression by differentially private variational inference.

    Counts y with y ~ Poisson(exp(x·θ)) under a Gaussian prior N(0, prior_scale² I), whose posterior
    is approximated by a Gaussian. By default that posterior is *noise-aware*: the posterior given
    what was released, wide where ε is small. It spends a tenth of what columns leave of the squared
    GDP budget on noisy numbers of counts by magnitude, so that ``largest_count`` may be generous.
    Each row may have an exposure e, such as a time or an area: y ~ Poisson(e exp(x·θ)).

    Parameters
    ----------
    prior_scale : float or "auto", default="auto"
        Standard deviation > 0 of a normal prior of every coefficient. ``"auto"`` infers the scales
        of a prior with heavy tails from the same releases, see
        `skdp.algorithms.noise_aware.prior`; with exposures that of a normal prior. With
        R = √(data_norm² + 1), or data_norm without intercept, it is 5/R with ``"dpvi"``.
    prior_blocks : array-like of shape (n_features,) or None, default=None
        A label per feature: features with the same label share a prior scale, which is inferred.
        With ``prior_scale="auto"`` and the noise-aware inference. None is one block.
    robust : bool or "auto", default="auto"
        Release also how much scores scatter (8 % of the squared GDP budget), for the sandwich
        covariance: intervals then are of the parameter at which the expected score is 0, whether or
        not counts vary as a Poisson model says. With the noise-aware inference. ``"auto"`` is
        True: in most tables they vary more.
    clip_norm : float or "auto", default="auto"
        Bound > 0 on the norm of each record's part of a gradient. ``"auto"`` follows the public
        ratio of the DP noise to that of the data; with ``"dpvi"`` it is half of R y_max.

    Attributes
    ----------
    coef_ : ndarray
        Posterior mean of the coefficients, (n_features,).

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
    """

    _: KW_ONLY
    largest_count: float = 100.0


def _exposures(exposure: Given, n_rows: int) -> tuple[np.ndarray | float, np.ndarray | float]:
    """Logarithms (n_rows, 1) of exposures up to 1, and the others (n_rows,); 1 in their places.

    Rates are cut between the two: ``largest_count`` bounds those of exposures as in the fit, up to
    1, and a thousand times as long a time may have a thousand times as many.
    """
    if exposure is None:
        return 0.0, 1.0
    logs = _log_exposure(exposure, n_rows)
    return np.minimum(logs, 0.0), np.exp(np.maximum(logs, 0.0))[:, 0]


def _log_exposure(exposure: Given, n_rows: int) -> np.ndarray:
    """Check exposures, and return their logarithms (n_rows, 1)."""
    wrong = (
        f"Expected exposure ({type(exposure).__name__}) to hold finite numbers > 0, one for each "
        "row of X; drop rows without any exposure."
    )
    with without_data(wrong):
        values = np.asarray(column_or_1d(exposure), dtype=np.float64)
        if len(values) != n_rows or not np.all((values > 0) & np.isfinite(values)):
            raise ValueError(wrong)
        return np.log(values)[:, None]
