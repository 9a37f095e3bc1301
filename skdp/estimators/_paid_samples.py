"""Posterior samples that were paid for: what a sampler keeps, and what is computed from it."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from skdp.algorithms import langevin, ops
from skdp.estimators._arviz import ArvizMixin
from skdp.estimators._linear import fitted_parts, linear_names
from skdp.fitting.validate import integer
from skdp.inspection import SummaryMixin
from skdp.privacy.ledger import BudgetExceededError
from skdp.privacy.report import PrivacyReport


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

    def _in_units(self, draws: np.ndarray) -> np.ndarray:
        """Samples (n_samples, n_parameters) of what `run` released, in the unit of y."""
        return draws

    def _paid(self, n_samples: int | None) -> np.ndarray:
        check_is_fitted(self)
        paid = len(self._samples)
        wanted = paid if n_samples is None else integer(1, "or None", n_samples=n_samples)
        if wanted > paid:
            report = self.privacy_
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
