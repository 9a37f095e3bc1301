"""The two tasks of a network: classes or labels, and targets."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np

from skdp.algorithms.parts.training import Trained
from skdp.estimators import _doubts
from skdp.estimators._network import NetworkEstimator
from skdp.estimators._parameters import WeightedClasses
from skdp.fitting.declared import encode_labels, n_classes, target_bounds
from skdp.fitting.input import check_features_and_labels, check_features_and_targets
from skdp.fitting.plan import PublicFacts
from skdp.fitting.reading import Records
from skdp.fitting.scores import AccuracyMixin, R2Mixin
from skdp.fitting.validate import as_array, is_true
from skdp.models import perceptron as networks
from skdp.models.tasks import Classification, Labelling, Regression


@dataclass(eq=False, repr=False)
class NetworkClassifier(AccuracyMixin, WeightedClasses, NetworkEstimator):
    """Declared or found classes, or labels that do not exclude each other.

    Parameters
    ----------
    loss : {"cross_entropy", "focal", "ranked_probability"}, class or callable, \
            default="cross_entropy"
        What is clipped and summed is its gradient. ``"cross_entropy"`` takes
        ``loss__label_smoothing``, ``"focal"`` ``loss__gamma`` (2); ``"ranked_probability"`` is for
        classes whose sorted order means something. Or a loss of torch, of each record whatever its
        ``reduction``, or a function of outputs and targets (class numbers) that returns one number
        per record: a record's must not depend on others, which is tried and assumed as for
        ``module``. With y (n, n_labels) of 0 and 1 each label has a loss of its own, and they are
        added up.
    """

    _: KW_ONLY
    classes: Any = None
    loss: Any = "cross_entropy"

    _several = False  # labels of a record, of y as the fit saw it

    @property
    def _kind(self) -> type[Classification]:
        return Labelling if self._several else Classification

    def _task(self, n_outputs: int) -> Classification:
        return self._kind.of(n_outputs, self.loss, self._given("loss"))

    def _n_outputs(self, classes: Any) -> int | None:
        return n_classes(self, classes)

    def _read_rows(
        self, X: Any, y: Any, classes: Any, *, goes_on: bool
    ) -> tuple[Records, PublicFacts]:
        known = self.classes_ if goes_on else self.classes
        known = classes if known is None else known
        shape = y.shape if hasattr(y, "shape") else as_array(y).shape
        several = len(shape) == 2 and shape[1] > 1
        if goes_on and several != self._several:
            raise ValueError("Expected y of as many columns as in the first fit.")
        self._several = several
        if several:
            return self._read_labels(X, y, known, goes_on=goes_on)
        how = {"declared": known is not None, "dtype": "numeric"}
        X, y = self._checked(check_features_and_labels, X, y, goes_on=goes_on, **how)
        self.classes_, codes = encode_labels(y, known, type(self).__name__)
        declared = () if classes is None else ("classes",)
        facts = self._facts_of(X, len(self.classes_), declared=declared)
        return Records(X, codes.astype(np.int64, copy=False)), facts

    def _read_labels(
        self, X: Any, y: Any, classes: Any, *, goes_on: bool
    ) -> tuple[Records, PublicFacts]:
        """Check labels 0 and 1, (n, L), whose number is as public as that of the features."""
        X, y = self._checked(check_features_and_targets, X, y, goes_on=goes_on)
        if not np.isin(y, (0, 1)).all():
            raise ValueError("Expected y of several columns to hold 0 and 1: one label per column.")
        self.classes_ = np.arange(y.shape[1]) if classes is None else np.asarray(classes)
        if self.classes_.shape != (y.shape[1],):
            raise ValueError(f"Expected y to hold {len(self.classes_)} columns, one per class.")
        facts = self._facts_of(X, y.shape[1], declared=("classes",))
        return Records(X, y.astype(np.float32)), facts

    def _doubted(self, rows: np.ndarray, released: Trained, chain: np.ndarray) -> tuple[str, ...]:
        return _doubts.of_odds(chain if self._several else chain - chain.mean(-1, keepdims=True))

    def _probabilities(self, outputs: np.ndarray) -> np.ndarray:
        return self._kind(outputs.shape[-1]).probabilities(outputs)

    def __sklearn_tags__(self) -> Any:
        """Labels may be several per record, but in secure fits."""
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = not is_true(self.secure)
        return tags

    def predict_proba(self, X) -> np.ndarray:
        """Probabilities of the classes, or of each label, of each row: shape (n, n_classes)."""
        return np.exp(self.predict_log_proba(X))

    def predict_log_proba(self, X) -> np.ndarray:
        """Logarithm of `predict_proba`, shape (n, n_classes)."""
        of_blocks = (self._kind(z.shape[-1]).log_probabilities(z) for z in self._outputs(X))
        total = np.concatenate([np.logaddexp.reduce(log, axis=0) for log in of_blocks])
        return total - np.log(len(self._posterior.members))

    def predict(self, X) -> np.ndarray:
        """Most probable class of each row, shape (n,); of several labels 0 or 1, (n, n_labels)."""
        log = self.predict_log_proba(X)
        if self._several:
            return (log > -math.log(2)).astype(int)
        return self.classes_[log.argmax(axis=1)]

    def sample_predictive(self, X, n_samples: int = 1, random_state: Any = None) -> np.ndarray:
        """Class probabilities under each of several draws of `sample_posterior`.

        Returns
        -------
        ndarray of shape (n_samples, n, n_classes)
        """
        return self._probabilities(self._sampled_outputs(X, n_samples, random_state))


@dataclass(eq=False, repr=False)
class NetworkRegressor(R2Mixin, NetworkEstimator):
    """Targets scaled by their public bounds.

    Parameters
    ----------
    loss : {"squared_error", "absolute_error", "huber"}, class or callable, default="squared_error"
        What is clipped and summed is its gradient, on the scale that the network works on;
        ``"huber"`` takes ``loss__delta`` (1). Or a loss of torch, of each record
        whatever its ``reduction``, or a function of outputs and targets (n, n_targets) that returns
        one number per record: a record's must not depend on others, which is tried and assumed as
        for ``module``.
    target_bounds : (float, float) or None, default=None
        Public bounds of the targets, to which they are clipped; the network then works on [-1, 1].
        None takes targets as they are, which should then be of the order of 1.
    """

    _: KW_ONLY
    target_bounds: Any = None
    loss: Any = "squared_error"
    _REMEDY: ClassVar[str] = (
        "Declare target_bounds, scale the features, or give a larger learning_rate or max_iter."
    )

    def _task(self, n_outputs: int) -> Regression:
        return Regression.of(n_outputs, self.loss, self._given("loss"))

    def _read_rows(
        self, X: Any, y: Any, classes: Any, *, goes_on: bool
    ) -> tuple[Records, PublicFacts]:
        low, high = target_bounds(self.target_bounds)
        X, y = self._checked(check_features_and_targets, X, y, goes_on=goes_on)
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
            return Records(X, scaled.astype(np.float32)), self._facts_of(X, n_targets)

    def _doubted(self, rows: np.ndarray, released: Trained, chain: np.ndarray) -> tuple[str, ...]:
        parameters = released.posterior.sample(_doubts.N_DRAWS, np.random.RandomState(0))
        outputs = networks.outputs(self.module_, parameters, rows, double=False)
        draws = np.concatenate(list(outputs), axis=1)
        return _doubts.of_outputs(draws, bounded=self.target_bounds is not None, chain=chain)

    def __sklearn_tags__(self) -> Any:
        """Several targets are allowed."""
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def predict(self, X) -> np.ndarray:
        """Predicted targets, shape (n,) or (n, n_targets)."""
        # Shares, because the sum of the members may be beyond a double.
        return self._targets(np.concatenate([(z / len(z)).sum(axis=0) for z in self._outputs(X)]))

    def sample_predictive(self, X, n_samples: int = 1, random_state: Any = None) -> np.ndarray:
        """Predictions under each of several draws of `sample_posterior`.

        Returns
        -------
        ndarray of shape (n_samples, n) or (n_samples, n, n_targets)
        """
        return self._targets(self._sampled_outputs(X, n_samples, random_state))

    def _targets(self, outputs: np.ndarray) -> np.ndarray:
        y = outputs * self._half_width + self._center
        return y if self._target_ndim == 2 else y[..., 0]
