"""What every estimator of a network shares: training, samples, outputs.

An algorithm comes in as a value, the configuration that `_configure` returns.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Iterator
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from skdp import _fitting
from skdp._fitting import CallbackSupportMixin, with_callbacks
from skdp._input import check_features
from skdp._validate import expected, integer, one_of, positive
from skdp._warnings import PrivacyWarning
from skdp.algorithms import dp_sgd, network_models, training
from skdp.models import networks

EACH_BY_ITSELF = (
    "module treats each record by itself and keeps no state (tried on synthetic records only)"
)


class NetworkEstimator(CallbackSupportMixin, BaseEstimator):
    """Training of a network, whatever the algorithm and the task."""

    n_features_in_: int
    warm_start = False
    # Of the task: input checks, what one record loses and its residual where the model is linear,
    # targets in the form of that residual, and targets to try a module on.
    _check_data: Any
    _loss: Any
    _residual: Any
    _one_column_an_output: Any
    _made_up_targets: Any
    score: Any
    # Of the algorithm: a configuration from the parameters, and what it leaves in attributes.
    _configure: Any
    _store: Any
    # Parameters that every subclass has.
    hidden_layer_sizes: Any
    activation: str
    module: Any
    max_iter: Any
    epochs: Any
    clipping: str
    mixed_precision: bool
    device: Any
    neighboring_relation: str

    def fit(self, X, y, *, X_public=None, y_public=None) -> Self:
        """Train, privately.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Finite numbers of any type; dense. A memory map is read a batch at a time.
        y : array-like of shape (n_samples,), or (n_samples, n_targets) for a regressor
            Class labels, or targets.
        X_public, y_public : array-like or None, default=None
            Rows that are *public*, for a learning curve in ``public_scores_``.

        Returns
        -------
        estimator
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

    @with_callbacks
    def _fit(self, X, y, public: tuple | None, *, one_epoch: bool = False) -> Self:
        """Fit, or go on with a fit, and compose what it costs with what has been spent."""
        _fitting.start_callbacks(self)
        with _fitting.all_or_nothing(self):
            goes_on = (one_epoch or self.warm_start) and hasattr(self, "module_")
            self._check_budget()
            if goes_on and self.privacy_.neighboring_relation != self.neighboring_relation:
                raise expected(
                    f"{self.privacy_.neighboring_relation!r} as in the fit that this one goes on "
                    "from",
                    "statements about different neighbours do not add up",
                    neighboring_relation=self.neighboring_relation,
                )
            X, targets, n_outputs = self._check_data(X, y, goes_on)
            public = self._check_public(public)
            self._train(X, targets, n_outputs, public, goes_on=goes_on, one_epoch=one_epoch)
        return self

    def _check_budget(self) -> None:
        _fitting.check_budget(self)

    def _check_public(self, public: tuple | None) -> tuple | None:
        if public is None:
            return None
        X, y = public
        if X is None or y is None:
            raise ValueError("Expected both X_public and y_public, or neither.")
        return check_features(self, X, reset=False, dtype="numeric"), y

    def _train(
        self,
        X: np.ndarray,
        targets: np.ndarray,
        n_outputs: int,
        public: tuple | None,
        *,
        goes_on: bool,
        one_epoch: bool,
    ) -> None:
        """Check the parameters, spend, run, store."""
        config = self._configure(_fitting.public_n_rows(self, X), one_epoch)
        module = self.module_ if goes_on else self._build(X.shape[1], n_outputs)
        model = self._model(module, n_outputs)
        _fitting.check_n_rows(X, model.max_rows)
        training.rehearse(config, model)
        watch = self._watch(module, public)
        if watch is not None:
            algorithm = config.algorithm()
            watch(0, algorithm.posterior(algorithm.init(model.start), model.vector))
        progress = _fitting.progress(self, config.n_steps)

        privacy = _fitting.spend(
            self,
            config.event(),
            str(config.sampling),
            before=self.privacy_ if goes_on else None,
            declared=self._declared_facts(),
            assumptions=() if self.module is None else (EACH_BY_ITSELF,),
        )
        streams = _fitting.streams(self, X, targets, *network_models.weights(module))
        self.public_scores_: list[tuple[int, float]] = []
        every = max(1, config.n_steps // 20)
        trained = training.train(config, model, X, targets, streams, progress, watch, every)
        if trained.interrupted:
            warnings.warn(
                f"Training was interrupted after {trained.n_steps} of {config.n_steps} steps; the "
                "model is usable, and the whole run stays charged.",
                PrivacyWarning,
                stacklevel=4,
            )
        self._posterior = trained.posterior
        self.module_ = network_models.with_parameters(module, trained.posterior.point)
        self.privacy_ = privacy
        self.n_iter_ = trained.n_steps + (self.n_iter_ if goes_on else 0)
        self._store(config)

    def _steps(self, n_rows: int, rate: float, private: bool) -> int:
        if self.epochs is not None:
            if self.max_iter != "auto":
                raise expected("'auto' when epochs is given", max_iter=self.max_iter)
            return max(1, math.ceil(positive("or None", epochs=self.epochs) / rate))
        if self.max_iter != "auto":
            return integer(1, "or 'auto'", max_iter=self.max_iter)
        return dp_sgd.default_steps(n_rows, rate * n_rows, private=private)

    def _build(self, n_features: int, n_outputs: int) -> Any:
        one_of(networks.ACTIVATIONS, activation=self.activation)
        make = self.module
        if make is None:
            sizes = _layer_sizes(self.hidden_layer_sizes)

            def make(n_features: int, n_outputs: int) -> Any:
                return networks.perceptron(n_features, n_outputs, sizes, self.activation)

        return network_models.build_module(make, n_features, n_outputs, _fitting.initial_seed(self))

    def _model(self, module: Any, n_outputs: int) -> network_models.Model:
        prenoise = getattr(self, "prenoise_scale", 0.0) != 0.0
        linear = self.module is None and len(module) == 1 and self.clipping == "flat"
        if linear and not prenoise and self.device is None:
            return network_models.LinearModel(
                module[0], self._residual, self._one_column_an_output, self.neighboring_relation
            )
        return network_models.NetworkModel(
            module,
            self._loss,
            n_features=self.n_features_in_,
            n_outputs=n_outputs,
            targets=self._made_up_targets(n_outputs),
            device=self.device,
            mixed_precision=bool(self.mixed_precision),
            every_gradient=prenoise,
        )

    def _watch(self, module: Any, public: tuple | None) -> Any:
        """Return what writes scores on public rows down."""
        if public is None:
            return None

        def watch(n_steps: int, posterior: training.Posterior) -> None:
            other = copy.copy(self)  # nobody sees a half-trained self
            other._posterior = posterior
            other.module_ = network_models.with_parameters(module, posterior.point)
            score = float(other.score(*public))
            if n_steps:  # the first look is a trial of the public rows
                self.public_scores_.append((n_steps, score))

        return watch

    def _declared_facts(self) -> tuple[str, ...]:
        """Public facts that were declared otherwise than as parameters."""
        return ()

    @property
    def parameter_names_(self) -> list[str]:
        """Names of the columns of `sample_posterior`."""
        check_is_fitted(self)
        return network_models.parameter_names(self.module_)

    def sample_posterior(self, n_samples: int = 1, random_state: Any = None) -> np.ndarray:
        """Draw parameters from what the run released; this costs no privacy. See the notes.

        Parameters
        ----------
        n_samples : int, default=1
            Number of draws ≥ 1.
        random_state : int, RandomState instance or None, default=None
            Seed of the draws. Seeding here is harmless: the path has been released.

        Returns
        -------
        ndarray of shape (n_samples, n_parameters)
            Columns as in ``parameter_names_``.
        """
        check_is_fitted(self)
        integer(1, n_samples=n_samples)
        return self._posterior.sample(n_samples, check_random_state(random_state))

    def _outputs(self, X: Any, parameters: np.ndarray | None = None) -> Iterator[np.ndarray]:
        """Yield the outputs (n, n_outputs) of each member of the posterior, or of other vectors."""
        check_is_fitted(self)
        X = check_features(self, X, reset=False, dtype="numeric")
        for vector in self._posterior.members if parameters is None else parameters:
            # Our own network runs in double precision, where a prediction does not depend on the
            # other rows; that of a caller may know only its own precision.
            module = network_models.with_parameters(self.module_, vector)
            yield network_models.predict(module, X, double=self.module is None)

    def _sampled_outputs(self, X: Any, n_samples: int, random_state: Any) -> np.ndarray:
        draws = self.sample_posterior(n_samples, random_state)
        return np.stack(list(self._outputs(X, draws)))


def _layer_sizes(sizes: Any) -> tuple[int, ...]:
    try:
        return tuple(integer(1, hidden_layer_sizes=size) for size in sizes)
    except (TypeError, ValueError):
        raise expected(
            "a tuple of integers >= 1", "() is a linear model", hidden_layer_sizes=sizes
        ) from None
