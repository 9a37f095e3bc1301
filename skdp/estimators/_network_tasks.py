"""The two tasks of a network: which class, or which number."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np
from scipy.special import log_softmax, softmax

from skdp import _fitting
from skdp._input import (
    AccuracyMixin,
    R2Mixin,
    check_features_and_labels,
    check_features_and_targets,
)
from skdp.algorithms.network_models import N_RECORDS
from skdp.estimators._network import NetworkEstimator
from skdp.models import networks
from skdp.models.likelihoods import Categorical


class NetworkClassifier(AccuracyMixin, NetworkEstimator):
    """Cross-entropy over declared or found classes."""

    classes: Any
    _loss = staticmethod(networks.cross_entropy)

    def _check_data(self, X, y, goes_on: bool) -> tuple[np.ndarray, np.ndarray, int]:
        declared = self.classes_ if goes_on else self.classes
        if declared is None:
            declared = getattr(self, "_declared", None)
        X, y = check_features_and_labels(
            self, X, y, declared=declared is not None, dtype="numeric", reset=not goes_on
        )
        self.classes_, codes = _fitting.encode_labels(y, declared, type(self).__name__)
        return X, codes.astype(np.int64, copy=False), len(self.classes_)

    def _declared_facts(self) -> tuple[str, ...]:
        return () if getattr(self, "_declared", None) is None else ("classes",)

    @property
    def _residual(self) -> Any:
        return Categorical(len(self.classes_)).residual

    def _one_column_an_output(self, codes: np.ndarray) -> np.ndarray:
        return Categorical(len(self.classes_)).targets(codes)

    def _made_up_targets(self, n_outputs: int) -> np.ndarray:
        return np.arange(N_RECORDS) % n_outputs

    def predict_proba(self, X) -> np.ndarray:
        """Class probabilities of each row, shape (n, n_classes)."""
        return np.exp(self.predict_log_proba(X))

    def predict_log_proba(self, X) -> np.ndarray:
        """Logarithm of `predict_proba`, shape (n, n_classes)."""
        # Σ_k p_k, one member at a time: there may be many rows.
        total = reduce(np.logaddexp, (log_softmax(z, axis=1) for z in self._outputs(X)))
        return total - np.log(len(self._posterior.members))

    def predict(self, X) -> np.ndarray:
        """Most probable class of each row, shape (n,)."""
        most_probable = self.predict_log_proba(X).argmax(axis=1)
        return self.classes_[most_probable]

    def sample_predictive(self, X, n_samples: int = 1, random_state: Any = None) -> np.ndarray:
        """Class probabilities under each of several draws of `sample_posterior`.

        Parameters
        ----------
        X : array-like of shape (n, n_features)
            Rows.
        n_samples : int, default=1
            Number of draws ≥ 1.
        random_state : int, RandomState instance or None, default=None
            Seed of the draws.

        Returns
        -------
        ndarray of shape (n_samples, n, n_classes)
        """
        return softmax(self._sampled_outputs(X, n_samples, random_state), axis=-1)


class NetworkRegressor(R2Mixin, NetworkEstimator):
    """Half the squared error, over targets scaled by their public bounds."""

    target_bounds: Any
    _loss = staticmethod(networks.squared_error)

    def _check_data(self, X, y, goes_on: bool) -> tuple[np.ndarray, np.ndarray, int]:
        low, high = _fitting.target_bounds(self.target_bounds)
        X, y = check_features_and_targets(self, X, y, reset=not goes_on)
        columns = y if y.ndim == 2 else y[:, None]
        if goes_on and (columns.shape[1], y.ndim) != (len(self._center), self._target_ndim):
            raise ValueError(f"Expected y with {len(self._center)} targets, as in the first fit.")
        n_targets = columns.shape[1]
        self._center, self._half_width = np.zeros(n_targets), 1.0
        self._target_ndim = y.ndim
        if self.target_bounds is not None:
            columns = np.clip(columns, low, high)
            self._center += (low + high) / 2
            self._half_width = (high - low) / 2
        scaled = (columns - self._center) / self._half_width
        with np.errstate(over="ignore"):  # a target beyond all bounds is an infinite one
            return X, scaled.astype(np.float32), n_targets

    def __sklearn_tags__(self) -> Any:
        """Several targets are fine; on the few rows of a check the noise drowns them."""
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.regressor_tags.poor_score = True
        return tags

    @staticmethod
    def _residual(outputs: np.ndarray, targets: np.ndarray) -> np.ndarray:
        return targets - outputs

    @staticmethod
    def _one_column_an_output(targets: np.ndarray) -> np.ndarray:
        return targets

    def _made_up_targets(self, n_outputs: int) -> np.ndarray:
        made_up = np.linspace(-1, 1, N_RECORDS * n_outputs, dtype=np.float32)
        return made_up.reshape(N_RECORDS, n_outputs)

    def predict(self, X) -> np.ndarray:
        """Predicted targets, shape (n,) or (n, n_targets)."""
        # Shares, because the sum of the members may be beyond a double.
        mean = reduce(np.add, (z / len(self._posterior.members) for z in self._outputs(X)))
        return self._targets(mean)

    def sample_predictive(self, X, n_samples: int = 1, random_state: Any = None) -> np.ndarray:
        """Predictions under each of several draws of `sample_posterior`.

        Parameters
        ----------
        X : array-like of shape (n, n_features)
            Rows.
        n_samples : int, default=1
            Number of draws ≥ 1.
        random_state : int, RandomState instance or None, default=None
            Seed of the draws.

        Returns
        -------
        ndarray of shape (n_samples, n) or (n_samples, n, n_targets)
        """
        return self._targets(self._sampled_outputs(X, n_samples, random_state))

    def _targets(self, outputs: np.ndarray) -> np.ndarray:
        y = outputs * self._half_width + self._center
        return y if self._target_ndim == 2 else y[..., 0]
