"""What `DPSGDClassifier` and `DPSGDRegressor` share: parameters, training, samples."""

from __future__ import annotations

import copy
import math
import warnings
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from skdp._input import check_features
from skdp._validate import expected, integer, one_of, positive
from skdp._warnings import PrivacyWarning
from skdp.algorithms import dp_sgd, network_models
from skdp.estimators import _fitting
from skdp.estimators._fitting import CallbackSupportMixin, with_callbacks
from skdp.models import networks

PARAMETERS = """
    **Privacy.** `fit` is (epsilon, delta)-differentially private under ``neighboring_relation``:
    weights, predictions and samples together. The unit is a row. `partial_fit`, and `fit` with
    ``warm_start``, release more about rows that they may have seen before: ``privacy_`` then states
    the composition of all releases so far. It is conditional on the public facts listed in
    ``privacy_.inferred_public_facts``, is *not* a guarantee for a seeded fit, and treats
    floating-point arithmetic as exact.

    Parameters
    ----------
    epsilon : float or None, default=1.0
        ε > 0. ``float("inf")`` is the ordinary, non-private fit. None with ``noise_multiplier``.
    delta : float, default=1e-5
        δ in (0, 1); should be well below 1/n.
    neighboring_relation : {"zero_out", "add_or_remove_one", "replace_one"}, default="zero_out"
        Who is a neighbour. Under ``"add_or_remove_one"`` the number of rows is private and
        ``n_samples`` must be given.
    hidden_layer_sizes : tuple of int, default=(100,)
        Neurons of the hidden layers; ``()`` is a linear model.
    activation : {"tanh", "relu", "gelu", "logistic", "identity"}, default="tanh"
        Of the hidden layers. Bounded ones lose less to clipping.
    module : nn.Module, callable or None, default=None
        A network instead of the perceptron, or a function of (n_features, n_outputs) that makes
        one. It gets rows (n, n_features) of floating-point numbers, also of integer X (start with
        ``nn.Unflatten`` for images, with ``x.long()`` for an `Embedding`), and returns
        OUTPUTS. It must treat each record by itself, in training too, keep no state, and its
        initial weights must not have been learned from the private rows. A module is copied, and
        each `fit` starts from its weights; parameters with ``requires_grad=False`` stay as they
        are. A record on which it fails contributes nothing.
    optimizer : {"adam", "sgd"} or callable, default="adam"
        ``"adam"`` has the known variance of the noise taken out of its second moment, ``"sgd"`` has
        momentum .9. Or a torch optimiser class, or a function from parameters to an optimiser.
    learning_rate : float or "auto", default="auto"
        Step size > 0.
    learning_rate_schedule : {"constant", "linear", "cosine"} or callable, default="constant"
        Factor on the step size; a callable maps the share of the run that is done to it.
    max_iter : int or "auto", default="auto"
        Number of noisy steps.
    epochs : float or None, default=None
        Instead of ``max_iter``: expected number of times that a row takes part, > 0.
    batch_size : int or "auto", default="auto"
        Expected number of rows in a Poisson batch.
    sampling_rate : float or None, default=None
        Poisson sampling rate in (0, 1], instead of ``batch_size``; 1 is the full batch.
    clip_norm : float or "auto", default="auto"
        Norm > 0 to which each record's gradient, over all parameters jointly, is clipped; 1 if
        ``"auto"``, and none without privacy.
    clipping : {"flat", "automatic"}, default="flat"
        Factor of a record's gradient g: min(1, C/‖g‖), or C/(‖g‖ + .01) (Bu et al. 2023).
    averaging : float, default=0.5
        Share in [0, 1] of the run, from its end, whose iterates are averaged; 0 keeps the last one.
    noise_multiplier : float or None, default=None
        Standard deviation > 0 of the noise over the clipping norm, instead of ``epsilon`` (pass
        ``epsilon=None``); the report then accounts for what was spent.
    accountant : {"auto", "gdp", "pld", "rdp"}, default="auto"
        See `skdp.privacy.epsilon`.
    physical_batch_size : int or None, default=None
        Records that are worked on at once, for memory; None is 1024. Changes no result and no cost.
    mixed_precision : bool, default=False
        Run the network in bfloat16; norms, sums and noise stay in full precision.
    device : str, torch.device or None, default=None
        Where to train, e.g. ``"cuda"``; None is where the module's parameters are.
    warm_start : bool, default=False
        Let `fit` go on from the previous solution.
EXTRA    n_samples : int or None, default=None
        Public number of rows, from which rates and step sizes are computed. None reads it from X
        and says so in the report.
    random_state : int, RandomState instance or None, default=None
        None keys the noise from the operating system. A seed makes the fit repeatable and its
        guarantee void: the report says ``valid=False``.
    verbose : int, default=0
        Above 0, a progress bar over the steps (needs tqdm). Callbacks of scikit-learn, where the
        version has them, work too: they are told of steps and see no data.

    Attributes
    ----------
    module_ : nn.Module
        The network, with the averaged weights.
    parameter_names_ : list of str
        Names of the columns of `sample_posterior`.
    n_iter_ : int
        Number of noisy steps taken, in all releases that ``privacy_`` states.
    noise_multiplier_, clip_norm_, sampling_rate_, learning_rate_ : float
        The values used.
    privacy_ : PrivacyReport
        The privacy statement.
    public_scores_ : list of (int, float)
        Steps and scores on ``X_public``; empty without it. Scores on training rows are never kept:
        they are not private.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Feature names, where X had any.
"""

NOTES = """
    Notes
    -----
    `sample_posterior` draws from a Gaussian with the mean and the variances of the iterates in the
    tail of the run (SWAG; Maddox et al. 2019). It costs no privacy, and shows where the walk went:
    optimiser, noise and likelihood together. It is *not* the posterior of a model, and its
    intervals have no stated coverage; `DPVariationalLogisticRegression` has a posterior.

    References
    ----------
    M. Abadi et al., *Deep Learning with Differential Privacy*, CCS 2016. Z. Bu, Y.-X. Wang, S. Zha,
    G. Karypis, *Differentially Private Optimization on Large Model at Small Cost*, ICML 2023.
"""


def documentation(*, summary: str, outputs: str, extra: str, attributes: str, example: str) -> str:
    """Return the docstring of a subclass."""
    parameters = PARAMETERS.replace("OUTPUTS", outputs).replace("EXTRA", extra)
    return summary + parameters + attributes + NOTES + example


class DPSGD(CallbackSupportMixin, BaseEstimator):
    """Parameters and training, shared by the classifier and the regressor."""

    n_features_in_: int
    # Of the subclass: input checks, what one record loses and its residual where the model is
    # linear, targets in the form of that residual, and targets to try a module on.
    _check_data: Any
    _loss: Any
    _residual: Any
    _one_column_an_output: Any
    _made_up_targets: Any
    score: Any

    def __init__(
        self,
        epsilon: float | None,
        delta: float,
        *,
        neighboring_relation: str,
        hidden_layer_sizes: Any,
        activation: str,
        module: Any,
        optimizer: Any,
        learning_rate: float | str,
        learning_rate_schedule: Any,
        max_iter: int | str,
        epochs: float | None,
        batch_size: int | str,
        sampling_rate: float | None,
        clip_norm: float | str,
        clipping: str,
        averaging: float,
        noise_multiplier: float | None,
        accountant: str,
        physical_batch_size: int | None,
        mixed_precision: bool,
        device: Any,
        warm_start: bool,
        n_samples: int | None,
        random_state: Any,
        verbose: int,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.neighboring_relation = neighboring_relation
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation = activation
        self.module = module
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.learning_rate_schedule = learning_rate_schedule
        self.max_iter = max_iter
        self.epochs = epochs
        self.batch_size = batch_size
        self.sampling_rate = sampling_rate
        self.clip_norm = clip_norm
        self.clipping = clipping
        self.averaging = averaging
        self.noise_multiplier = noise_multiplier
        self.accountant = accountant
        self.physical_batch_size = physical_batch_size
        self.mixed_precision = mixed_precision
        self.device = device
        self.warm_start = warm_start
        self.n_samples = n_samples
        self.random_state = random_state
        self.verbose = verbose

    @with_callbacks
    def _fit(self, X, y, public: tuple | None, *, one_epoch: bool = False) -> Self:
        """Fit, or go on with a fit, and compose what it costs with what has been spent."""
        _fitting.start_callbacks(self)
        with _fitting.all_or_nothing(self):
            goes_on = (one_epoch or self.warm_start) and hasattr(self, "module_")
            _fitting.check_budget(self)
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
        dp_sgd.rehearse(config, model)
        if public is not None:
            self._score(module, public)
        progress = _fitting.progress(self, config.n_steps)

        privacy = _fitting.spend(
            self,
            config.event(),
            str(config.sampling),
            before=self.privacy_ if goes_on else None,
            declared=self._declared_facts(),
        )
        streams = _fitting.streams(self, X, targets, *network_models.weights(module))
        scores, watch = self._watch(module, model, config, public)
        trained = dp_sgd.train(config, model, X, targets, streams, progress, watch)
        if trained.interrupted:
            warnings.warn(
                f"Training was interrupted after {trained.n_steps} of {config.n_steps} steps; the "
                "model is usable, and the whole run stays charged.",
                PrivacyWarning,
                stacklevel=4,
            )
        self._posterior = trained.posterior
        self.module_ = network_models.with_parameters(module, trained.posterior.mean)
        self.privacy_ = privacy
        self.n_iter_ = trained.n_steps + (self.n_iter_ if goes_on else 0)
        self.public_scores_ = scores
        self.noise_multiplier_ = config.noise_multiplier
        self.clip_norm_ = config.clip_norm
        self.sampling_rate_ = config.sampling_rate
        self.learning_rate_ = config.learning_rate

    def _configure(self, n_rows: int, one_epoch: bool) -> dp_sgd.DPSGDConfig:
        """Check the parameters and fill in the defaults, from public facts alone.

        An epoch alone has the noise of the whole run, or of itself if that is shorter.
        """
        private = self.epsilon != float("inf")
        default = dp_sgd.default_batch_size(n_rows, private=private) / n_rows
        rate = _fitting.sampling_rate(self, n_rows, default)
        n_steps, epoch = self._steps(n_rows, rate, private), math.ceil(1 / rate)
        sigma = _fitting.noise_multiplier(self, rate, max(n_steps, epoch * one_epoch))
        clip_norm = 1.0 if private else math.inf
        if self.clip_norm != "auto":
            clip_norm = positive("or 'auto'", clip_norm=self.clip_norm)
        learning_rate = dp_sgd.default_learning_rate(self.optimizer, n_steps, private=private)
        if self.learning_rate != "auto":
            learning_rate = positive("or 'auto'", learning_rate=self.learning_rate)
        return dp_sgd.DPSGDConfig(
            n_rows=n_rows,
            n_steps=epoch if one_epoch else n_steps,
            sampling_rate=rate,
            clip_norm=clip_norm,
            noise_multiplier=sigma,
            learning_rate=learning_rate,
            learning_rate_schedule=self.learning_rate_schedule,
            optimizer=self.optimizer,
            clipping=self.clipping,
            averaging=self.averaging,
            physical_batch_size=self.physical_batch_size,
            neighboring_relation=self.neighboring_relation,
        )

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
        linear = self.module is None and len(module) == 1 and self.clipping == "flat"
        if linear and self.device is None:
            return network_models.LinearModel(module[0], self._residual, self._one_column_an_output)
        return network_models.NetworkModel(
            module,
            self._loss,
            n_features=self.n_features_in_,
            n_outputs=n_outputs,
            targets=self._made_up_targets(n_outputs),
            device=self.device,
            mixed_precision=bool(self.mixed_precision),
        )

    def _watch(self, module: Any, model: network_models.Model, config: Any, public: Any) -> tuple:
        """Return the list that scores on public rows go to, and what puts them there."""
        scores: list[tuple[int, float]] = []
        if public is None:
            return scores, None
        every = max(1, config.n_steps // 20)

        def watch(state: dp_sgd.DPSGDState) -> None:
            if state.n_steps % every == 0 or state.n_steps == config.n_steps:
                mean, _ = dp_sgd.DPSGDUpdate.moments(state)
                module_now = network_models.with_parameters(module, model.vector(mean))
                scores.append((state.n_steps, self._score(module_now, public)))

        return scores, watch

    def _score(self, module: Any, public: tuple) -> float:
        """Score of a network on public rows; on a copy, so that nobody sees a half-trained self."""
        other = copy.copy(self)
        other.module_ = module
        return float(other.score(*public))

    def _declared_facts(self) -> tuple[str, ...]:
        """Public facts that were declared otherwise than as parameters."""
        return ()

    @property
    def parameter_names_(self) -> list[str]:
        """Names of the columns of `sample_posterior`."""
        check_is_fitted(self)
        return network_models.parameter_names(self.module_)

    def sample_posterior(self, n_samples: int = 1, random_state: Any = None) -> np.ndarray:
        """Draw parameters from the tail of the path; this costs no privacy. See the notes.

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
        mean, scale = self._posterior
        return mean + scale * check_random_state(random_state).standard_normal(
            (n_samples, len(mean))
        )

    def _outputs(self, X) -> np.ndarray:
        check_is_fitted(self)
        X = check_features(self, X, reset=False, dtype="numeric")
        return self._forward(self.module_, X)

    def _sampled_outputs(self, X, n_samples: int, random_state: Any) -> np.ndarray:
        draws = self.sample_posterior(n_samples, random_state)
        X = check_features(self, X, reset=False, dtype="numeric")
        modules = (network_models.with_parameters(self.module_, draw) for draw in draws)
        return np.stack([self._forward(module, X) for module in modules])

    def _forward(self, module: Any, X: np.ndarray) -> np.ndarray:
        # Our own network runs in double precision, where a prediction does not depend on the
        # other rows; that of a caller may know only its own precision.
        return network_models.predict(module, X, double=self.module is None)


def _layer_sizes(sizes: Any) -> tuple[int, ...]:
    try:
        return tuple(integer(1, hidden_layer_sizes=size) for size in sizes)
    except (TypeError, ValueError):
        raise expected(
            "a tuple of integers >= 1", "() is a linear model", hidden_layer_sizes=sizes
        ) from None
