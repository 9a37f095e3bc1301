"""Posterior draws in the form of ArviZ."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from skdp.algorithms.gaussian_posterior import GaussianPosterior
from skdp.fitting.validate import integer


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
            Columns as in ``parameter_names_``.
        """
        check_is_fitted(self)
        integer(1, n_samples=n_samples)
        return self._posterior.sample(n_samples, check_random_state(random_state))


class GaussianDraws(PosteriorDraws, ArvizMixin):
    """Adds what a released normal posterior gives at no further cost."""

    _posterior: GaussianPosterior

    @property
    def covariance_(self) -> np.ndarray:
        """Posterior covariance, in the order of ``parameter_names_``."""
        check_is_fitted(self)
        return self._posterior.covariance.copy()
