"""Draws from a posterior: at no cost from one that was released, or those that were paid for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from skdp.algorithms.gaussian_posterior import GaussianPosterior
from skdp.algorithms.noise_aware.standardised import bounded
from skdp.fitting.input import check_features
from skdp.fitting.validate import integer
from skdp.inspection import SummaryMixin
from skdp.rows.records import clipped_rows

if TYPE_CHECKING:
    from skdp.algorithms import langevin, ops
    from skdp.privacy.report import PrivacyReport

ENTRIES_AT_ONCE, LEAST_AT_ONCE = 2**17, 2**10  # of a prediction, and rows


class ArvizMixin:
    """Adds `to_arviz` to estimators whose posterior is drawn from, or has been."""

    parameter_names_: Any
    _n_draws: ClassVar[int | None] = 1000  # None: all that there are

    def sample_posterior(self, n_samples: Any = None, random_state: Any = None) -> np.ndarray:
        """Draw parameters, (n_samples, n_parameters)."""
        raise NotImplementedError

    def to_arviz(self, n_samples: int | None = None, random_state: Any = None) -> Any:
        """Posterior draws in the form that ArviZ plots and summarises; this costs no privacy.

        Parameters
        ----------
        n_samples : int or None, default=None
            Number of draws ≥ 1; None is 1000, or all samples where they were paid for.
        random_state : int, RandomState instance or None, default=None
            Seed of the draws.

        Returns
        -------
        arviz.InferenceData
            Its group ``posterior`` holds ``theta`` with the coordinate ``parameter``. Draws are
            independent; they are dealt to four chains where that leaves four in each, so that
            summaries have a number in the column ``r_hat``, which is about 1 by construction.

        Raises
        ------
        ImportError
            If ArviZ is not installed.
        """
        n_draws = self._n_draws if n_samples is None else n_samples
        return self._inference_data(self.sample_posterior(n_draws, random_state))

    def _inference_data(self, draws: np.ndarray, **groups: np.ndarray) -> Any:
        """Draws in chains, with groups of a variable y: (n_draws, n), or (n,) of observed data."""
        import arviz

        n_chains = 4 if len(draws) >= 16 and len(draws) % 4 == 0 else 1
        chains: dict[str, Any] = {
            group: {"y": y.reshape(n_chains, -1, y.shape[1]) if y.ndim == 2 else y}
            for group, y in groups.items()
        }
        return arviz.from_dict(
            posterior={"theta": draws.reshape(n_chains, -1, draws.shape[1])},
            coords={"parameter": self.parameter_names_},
            dims={"theta": ["parameter"]},
            **chains,
        )


class PosteriorDraws:
    """Draws from what a run released."""

    _posterior: Any

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
            Columns as in ``parameter_names_``; those of a regression are in the unit of y.
        """
        check_is_fitted(self)
        integer(1, n_samples=n_samples)
        draws = self._posterior.sample(n_samples, check_random_state(random_state))
        return self._in_units(draws)

    def sample_predictive(self, X, n_samples: int = 1, random_state: Any = None) -> np.ndarray:
        """Predictions under each of several posterior draws; this costs no privacy.

        Parameters
        ----------
        X : array-like of shape (n, n_features)
            Rows, as in `fit`.
        n_samples : int, default=1
            Number of draws ≥ 1.
        random_state : int, RandomState instance or None, default=None
            Seed of the draws.
        """
        raise NotImplementedError

    def _in_units(self, draws: np.ndarray) -> np.ndarray:
        """Draws (n_samples, n_parameters) of what a run released, in the unit of y."""
        return draws


class GaussianDraws(PosteriorDraws, ArvizMixin):
    """Adds what a released normal posterior gives at no further cost."""

    _posterior: GaussianPosterior

    @property
    def covariance_(self) -> np.ndarray:
        """Posterior covariance, in the order of ``parameter_names_``."""
        check_is_fitted(self)
        return self._posterior.covariance.copy()


# --- of linear models ---------------------------------------------------------------------------


def fitted_parts(estimator: Any, X: Any, n_columns: int, *, sparse: bool = False) -> Iterator[Any]:
    """Check rows to predict, clip them as in the fit and append the intercept's 1 if it had one.

    Yields some rows at a time, column by column, which is quickest; sparse ones all at once.
    """
    X = check_features(estimator, X, reset=False, sparse=sparse)
    has_intercept = n_columns > estimator.n_features_in_
    bounds = getattr(estimator, "bounds_", None)
    for rows in parts_of(X) if isinstance(X, np.ndarray) else [X]:
        if bounds is not None:
            cut = bounded(rows, bounds.T, estimator.data_norm_)
            yield np.hstack([cut, np.ones((len(cut), int(has_intercept)))])
            continue
        yield clipped_rows(rows, estimator.data_norm_, fit_intercept=has_intercept, by_column=True)


def parts_of(rows: np.ndarray) -> Iterator[np.ndarray]:
    """Some rows at a time, so that what is computed from them stays in the cache."""
    size = max(LEAST_AT_ONCE, ENTRIES_AT_ONCE // max(rows.shape[1], 1))
    return (rows[start : start + size] for start in range(0, len(rows), size))


def logits_of(
    posterior: GaussianPosterior, parts: Iterable[np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Mean (n, K) and covariance (n, K, K) of the logits of rows that come in parts."""
    means, covariances = zip(*map(posterior.logits, parts), strict=True)
    return np.concatenate(means), np.concatenate(covariances)


def linear_names(estimator: Any, K: int, D: int, labels: list[Any]) -> list[str]:
    """Names of the parameters of a linear model: the outputs in turn, intercept last."""
    features = getattr(estimator, "feature_names_in_", None)
    if features is None:
        features = [f"x{i}" for i in range(estimator.n_features_in_)]
    names = [*features, "intercept"][:D]
    return names if K == 1 else [f"{label}: {name}" for label in labels for name in names]


class PaidSamples(SummaryMixin, ArvizMixin):
    """A few posterior samples of a linear model: more of them would be further releases."""

    _n_draws: ClassVar[int | None] = None
    _samples: np.ndarray  # (n_samples, K, D)
    _config: langevin.LangevinConfig | ops.ExactConfig
    privacy_: PrivacyReport

    @property
    def _mean(self) -> tuple[np.ndarray, np.ndarray]:
        """Coefficients (K, n_features) and intercepts (K,), averaged over the samples."""
        mean, posterior = self._samples.mean(axis=0), self._config.posterior
        intercepts = mean[:, -1] if posterior.fit_intercept else np.zeros(len(mean))
        return mean[:, : posterior.n_features], intercepts

    def _labels(self) -> list[Any]:
        """Names of the outputs where there is more than one."""
        return []

    @property
    def parameter_names_(self) -> list[str]:
        """Names of the columns of `sample_posterior`: the outputs in turn, intercept last."""
        check_is_fitted(self)
        _, K, D = self._samples.shape
        return linear_names(self, K, D, self._labels())

    def sample_posterior(
        self, n_samples: int | None = None, random_state: Any = None
    ) -> np.ndarray:
        """Return the posterior samples that were paid for.

        Parameters
        ----------
        n_samples : int or None, default=None
            How many, from the first; None for all.
        random_state : None
            Ignored, for the interface that all posteriors share: the samples have been drawn.

        Returns
        -------
        ndarray of shape (n_samples, n_parameters)
            Columns as in ``parameter_names_``; those of a regression are in the unit of y.

        Raises
        ------
        BudgetExceededError
            If more samples are asked for than ``n_posterior_samples``. Each sample is a release of
            its own; the message says what so many would have cost.
        """
        draws = self._paid(n_samples)
        return self._in_units(draws.reshape(len(draws), -1).copy())

    def sample_predictive(
        self, X, n_samples: int | None = None, random_state: Any = None
    ) -> np.ndarray:
        """Predictions under each posterior sample.

        Parameters
        ----------
        X : array-like of shape (n, n_features)
            Rows, clipped to ``data_norm_`` as in `fit`.
        n_samples : int or None, default=None
            How many samples, from the first; None for all. See `sample_posterior`.
        random_state : None
            Ignored.
        """
        raise NotImplementedError

    def _in_units(self, draws: np.ndarray) -> np.ndarray:
        """Samples (n_samples, n_parameters) of what `run` released, in the unit of y."""
        return draws

    def _paid(self, n_samples: int | None) -> np.ndarray:
        check_is_fitted(self)
        paid = len(self._samples)
        wanted = paid if n_samples is None else integer(1, "or None", n_samples=n_samples)
        if wanted > paid:
            report = self.privacy_
            from skdp.privacy.ledger import BudgetExceededError

            raise BudgetExceededError(
                f"{wanted} posterior samples were asked for and {paid} paid for. {wanted} samples "
                f"of this posterior would have cost {self._config.price(wanted, report.delta)} at "
                f"delta={report.delta:g} instead of epsilon={report.epsilon:.4g}; fit again with "
                f"n_posterior_samples={wanted}, a further release, or use the existing ones."
            )
        return self._samples[:wanted]

    def _logits(self, X: Any, n_samples: int | None = None) -> np.ndarray:
        """(n_samples, n, K)."""
        draws = self._paid(n_samples)
        parts = fitted_parts(self, X, draws.shape[2])
        logits = [np.einsum("nd,skd->snk", rows, draws, optimize=True) for rows in parts]
        return np.concatenate(logits, axis=1)
