"""Posterior draws in the form of ArviZ."""

from __future__ import annotations

from typing import Any

import numpy as np


class ArvizMixin:
    """Adds `to_arviz` to estimators whose posterior may be drawn from at no cost."""

    parameter_names_: Any

    def sample_posterior(self, n_samples: int = 1, random_state: Any = None) -> np.ndarray:
        """Draw parameters, (n_samples, n_parameters)."""
        raise NotImplementedError

    def to_arviz(self, n_samples: int = 1000, random_state: Any = None) -> Any:
        """Posterior draws in the form that ArviZ plots and summarises; this costs no privacy.

        Parameters
        ----------
        n_samples : int, default=1000
            Number of draws ≥ 1.
        random_state : int, RandomState instance or None, default=None
            Seed of the draws.

        Returns
        -------
        arviz.InferenceData
            Its group ``posterior`` holds ``theta`` with the coordinate ``parameter``, in one chain:
            the draws are independent, so there is no convergence to diagnose.

        Raises
        ------
        ImportError
            If ArviZ is not installed.
        """
        import arviz

        draws = self.sample_posterior(n_samples, random_state)
        return arviz.from_dict(
            posterior={"theta": draws[None]},
            coords={"parameter": self.parameter_names_},
            dims={"theta": ["parameter"]},
        )
