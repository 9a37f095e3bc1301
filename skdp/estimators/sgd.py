"""`DPSGDClassifier` and `DPSGDRegressor`: networks trained by DP-SGD.

>>> import numpy as np
>>> from skdp import DPSGDClassifier
>>> rng = np.random.default_rng(0)
>>> X = rng.uniform(-1, 1, (1000, 2))
>>> y = (X[:, 0] > 0).astype(int)
>>> classifier = DPSGDClassifier(epsilon=3.0, delta=1e-5, classes=[0, 1], n_samples=1000).fit(X, y)
>>> classifier.score(X, y) > 0.8
True
>>> print(f"{classifier.privacy_.epsilon:.2f}")
3.00
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import log_softmax, softmax
from sklearn.base import ClassifierMixin, RegressorMixin

from skdp._input import check_features_and_labels, check_features_and_targets
from skdp._validate import expected, is_real
from skdp.estimators import _fitting
from skdp.estimators._dpsgd import DPSGD, documentation
from skdp.models import networks
from skdp.models.likelihoods import Categorical

_CLASSES = """    classes : array-like of shape (n_classes,) or None, default=None
        The class labels, as a declared public fact. None reads them from y and says so in the
        report.
"""
_TARGET_BOUNDS = """    target_bounds : (float, float) or None, default=None
        Public bounds of the targets, to which they are clipped; the network then works on [-1, 1].
        None takes targets as they are, which should then be of the order of 1.
"""


class DPSGDClassifier(ClassifierMixin, DPSGD):  # noqa: D101
    __doc__ = documentation(
        summary="""Neural network classifier trained by differentially private SGD.

    A perceptron, or any torch module, trained on the cross-entropy by noisy sums of clipped
    per-record gradients (DP-SGD), at about the price of ordinary SGD.
""",
        outputs="logits (n, n_classes), without softmax",
        extra=_CLASSES,
        attributes="""    classes_ : ndarray of shape (n_classes,)
        Class labels.
""",
        example="""
    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from skdp import DPSGDClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> classifier = DPSGDClassifier(epsilon=3.0, delta=1e-5, classes=range(10), n_samples=1797)
    >>> classifier.fit(X / 16, y).score(X / 16, y) > 0.7
    True
    """,
    )

    _loss = staticmethod(networks.cross_entropy)

    def __init__(
        self,
        epsilon: float | None = 1.0,
        delta: float = 1e-5,
        *,
        neighboring_relation: str = "zero_out",
        hidden_layer_sizes: Any = (100,),
        activation: str = "tanh",
        module: Any = None,
        optimizer: Any = "adam",
        learning_rate: float | str = "auto",
        learning_rate_schedule: Any = "constant",
        max_iter: int | str = "auto",
        epochs: float | None = None,
        batch_size: int | str = "auto",
        sampling_rate: float | None = None,
        clip_norm: float | str = "auto",
        clipping: str = "flat",
        averaging: float = 0.5,
        noise_multiplier: float | None = None,
        accountant: str = "auto",
        physical_batch_size: int | None = None,
        mixed_precision: bool = False,
        device: Any = None,
        warm_start: bool = False,
        classes: Any = None,
        n_samples: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            epsilon,
            delta,
            neighboring_relation=neighboring_relation,
            hidden_layer_sizes=hidden_layer_sizes,
            activation=activation,
            module=module,
            optimizer=optimizer,
            learning_rate=learning_rate,
            learning_rate_schedule=learning_rate_schedule,
            max_iter=max_iter,
            epochs=epochs,
            batch_size=batch_size,
            sampling_rate=sampling_rate,
            clip_norm=clip_norm,
            clipping=clipping,
            averaging=averaging,
            noise_multiplier=noise_multiplier,
            accountant=accountant,
            physical_batch_size=physical_batch_size,
            mixed_precision=mixed_precision,
            device=device,
            warm_start=warm_start,
            n_samples=n_samples,
            random_state=random_state,
            verbose=verbose,
        )
        self.classes = classes

    def fit(self, X, y, *, X_public=None, y_public=None) -> DPSGDClassifier:
        """Train, privately.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Finite numbers of any type; dense. A memory map is read a batch at a time.
        y : array-like of shape (n_samples,)
            Class labels.
        X_public, y_public : array-like or None, default=None
            Rows that are *public*, for a learning curve in ``public_scores_``.

        Returns
        -------
        DPSGDClassifier
            The fitted estimator.

        Raises
        ------
        ValueError
            If a parameter or the input is invalid; nothing has been spent then.
        BudgetExceededError
            If an open `PrivacyLedger` refuses the fit; no row has been used then.
        """
        public = None if X_public is None and y_public is None else (X_public, y_public)
        return self._fit(X, y, public)

    def partial_fit(self, X, y, classes=None) -> DPSGDClassifier:
        """Train for one more epoch, with the noise that ``max_iter`` steps would have.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows, as in `fit`.
        y : array-like of shape (n_samples,)
            Class labels.
        classes : array-like of shape (n_classes,) or None, default=None
            All class labels, in the first call, where the parameter ``classes`` is None.

        Returns
        -------
        DPSGDClassifier
            The estimator; ``privacy_`` states the composition of all calls so far.
        """
        self._declared = classes
        try:
            return self._fit(X, y, None, one_epoch=True)
        finally:
            del self._declared

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
        return np.arange(7) % n_outputs

    def predict_proba(self, X) -> np.ndarray:
        """Class probabilities of each row, shape (n, n_classes)."""
        return softmax(self._outputs(X), axis=1)

    def predict_log_proba(self, X) -> np.ndarray:
        """Logarithm of `predict_proba`, shape (n, n_classes)."""
        return log_softmax(self._outputs(X), axis=1)

    def predict(self, X) -> np.ndarray:
        """Most probable class of each row, shape (n,)."""
        most_probable = self._outputs(X).argmax(axis=1)
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


class DPSGDRegressor(RegressorMixin, DPSGD):  # noqa: D101
    __doc__ = documentation(
        summary="""Neural network regressor trained by differentially private SGD.

    A perceptron, or any torch module, trained on half the squared error by noisy sums of clipped
    per-record gradients (DP-SGD), at about the price of ordinary SGD.
""",
        outputs="predictions (n, n_targets)",
        extra=_TARGET_BOUNDS,
        attributes="",
        example="""
    Examples
    --------
    >>> import numpy as np
    >>> from skdp import DPSGDRegressor
    >>> X = np.random.default_rng(0).uniform(-1, 1, (2000, 1))
    >>> y = 3 * X[:, 0] ** 2
    >>> regressor = DPSGDRegressor(epsilon=3.0, delta=1e-5, target_bounds=(0, 3), n_samples=2000)
    >>> regressor.fit(X, y).score(X, y) > 0.5
    True
    """,
    )

    _loss = staticmethod(networks.squared_error)

    def __init__(
        self,
        epsilon: float | None = 1.0,
        delta: float = 1e-5,
        *,
        neighboring_relation: str = "zero_out",
        hidden_layer_sizes: Any = (100,),
        activation: str = "tanh",
        module: Any = None,
        optimizer: Any = "adam",
        learning_rate: float | str = "auto",
        learning_rate_schedule: Any = "constant",
        max_iter: int | str = "auto",
        epochs: float | None = None,
        batch_size: int | str = "auto",
        sampling_rate: float | None = None,
        clip_norm: float | str = "auto",
        clipping: str = "flat",
        averaging: float = 0.5,
        noise_multiplier: float | None = None,
        accountant: str = "auto",
        physical_batch_size: int | None = None,
        mixed_precision: bool = False,
        device: Any = None,
        warm_start: bool = False,
        target_bounds: Any = None,
        n_samples: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            epsilon,
            delta,
            neighboring_relation=neighboring_relation,
            hidden_layer_sizes=hidden_layer_sizes,
            activation=activation,
            module=module,
            optimizer=optimizer,
            learning_rate=learning_rate,
            learning_rate_schedule=learning_rate_schedule,
            max_iter=max_iter,
            epochs=epochs,
            batch_size=batch_size,
            sampling_rate=sampling_rate,
            clip_norm=clip_norm,
            clipping=clipping,
            averaging=averaging,
            noise_multiplier=noise_multiplier,
            accountant=accountant,
            physical_batch_size=physical_batch_size,
            mixed_precision=mixed_precision,
            device=device,
            warm_start=warm_start,
            n_samples=n_samples,
            random_state=random_state,
            verbose=verbose,
        )
        self.target_bounds = target_bounds

    def fit(self, X, y, *, X_public=None, y_public=None) -> DPSGDRegressor:
        """Train, privately.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Finite numbers of any type; dense. A memory map is read a batch at a time.
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
            Targets.
        X_public, y_public : array-like or None, default=None
            Rows that are *public*, for a learning curve in ``public_scores_``.

        Returns
        -------
        DPSGDRegressor
            The fitted estimator.

        Raises
        ------
        ValueError
            If a parameter or the input is invalid; nothing has been spent then.
        BudgetExceededError
            If an open `PrivacyLedger` refuses the fit; no row has been used then.
        """
        public = None if X_public is None and y_public is None else (X_public, y_public)
        return self._fit(X, y, public)

    def partial_fit(self, X, y) -> DPSGDRegressor:
        """Train for one more epoch, with the noise that ``max_iter`` steps would have.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows, as in `fit`.
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
            Targets.

        Returns
        -------
        DPSGDRegressor
            The estimator; ``privacy_`` states the composition of all calls so far.
        """
        return self._fit(X, y, None, one_epoch=True)

    def _check_data(self, X, y, goes_on: bool) -> tuple[np.ndarray, np.ndarray, int]:
        low, high = _bounds(self.target_bounds)
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
        return np.linspace(-1, 1, 7 * n_outputs, dtype=np.float32).reshape(7, n_outputs)

    def predict(self, X) -> np.ndarray:
        """Predicted targets, shape (n,) or (n, n_targets)."""
        return self._targets(self._outputs(X))

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


def _bounds(bounds: Any) -> tuple[float, float]:
    """Check ``target_bounds``."""
    if bounds is None:
        return 0.0, 0.0
    is_pair = isinstance(bounds, tuple | list | np.ndarray) and len(bounds) == 2
    if not is_pair or not all(map(is_real, bounds)) or not -np.inf < bounds[0] < bounds[1] < np.inf:
        raise expected("None or two finite numbers (low, high), low < high", target_bounds=bounds)
    return float(bounds[0]), float(bounds[1])
