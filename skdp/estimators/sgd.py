"""`DPSGDClassifier` and `DPSGDRegressor`: networks trained by DP-SGD."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from skdp.algorithms.dp_sgd import DPSGDConfig, default_learning_rate
from skdp.algorithms.parts.training import Trained
from skdp.base import FitPlan, PublicFacts
from skdp.estimators._documented import documented
from skdp.estimators._network import NetworkEstimator
from skdp.estimators._network_tasks import NetworkClassifier, NetworkRegressor
from skdp.estimators._parameters import takes_parts
from skdp.fitting.validate import number_or_auto

if TYPE_CHECKING:
    from skdp.privacy.budget import Budget


@dataclass(eq=False, repr=False)
class DPSGD(NetworkEstimator):
    """Parameters of DP-SGD, and its configuration.

    **Privacy.** `fit` is (epsilon, delta)-differentially private under ``neighboring_relation``:
    weights, predictions and samples together. The ``unit`` is a row, or a person with all of its
    rows. `partial_fit`, and `fit` with ``warm_start``, release more about rows that they may have
    seen before: ``privacy_`` then states the composition of all releases so far. It is conditional
    on the public facts listed in ``privacy_.inferred_public_facts``, is *not* a guarantee for a
    seeded fit, and without ``secure`` treats floating-point arithmetic as exact.

    Parameters
    ----------
    optimizer : {"adam", "sgd"}, class or callable, default="adam"
        ``"adam"`` has the known variance of the noise taken out of its second moment, ``"sgd"`` has
        momentum .9. Or a torch optimiser class, with ``optimizer__`` parameters, or a function from
        parameters to an optimiser.
    learning_rate : float or "auto", default="auto"
        Step size > 0.
    learning_rate_schedule : {"constant", "linear", "cosine"}, class or callable, \
            default="constant"
        Factor on the step size; a callable maps the share of the run that is done to it. Or a torch
        scheduler class, with parameters such as ``learning_rate_schedule__step_size=20``, which
        counts noisy steps.
    averaging : float, default=0.5
        Share in [0, 1] of the run, from its end, whose iterates are averaged; 0 keeps the last one.
    noise_multiplier : float or None, default=None
        Standard deviation > 0 of the noise over the clipping norm, instead of ``epsilon`` (pass
        ``epsilon=None``); the report then accounts for what was spent.
    warm_start : bool, default=False
        Let `fit` go on from the previous solution.

    Attributes
    ----------
    module_ : nn.Module
        The network, with the averaged weights.
    noise_multiplier_, clip_norm_, sampling_rate_, learning_rate_ : float
        The values used.
    coef_, intercept_ : ndarray
        Weights and intercepts, as scikit-learn's linear models have them; with
        ``hidden_layer_sizes=()`` alone.

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

    _: KW_ONLY
    optimizer: Any = "adam"
    learning_rate: float | str = "auto"
    learning_rate_schedule: Any = "constant"
    averaging: float = 0.5
    noise_multiplier: float | None = None
    warm_start: bool = False

    def _configure(self, facts: PublicFacts, budget: Budget) -> DPSGDConfig:
        """Check the parameters and fill in the defaults, from public facts alone.

        An epoch alone has the noise of the whole run, or of itself if that is shorter.
        """
        mu = math.inf if budget.accountant == "gdp" else budget.mu  # which knows full batches alone
        run = self._network_run(facts, budget.private, mu)
        default = default_learning_rate(self.optimizer, run.n_steps, private=budget.private)
        config = DPSGDConfig(
            **vars(run),
            learning_rate=number_or_auto(default, learning_rate=self.learning_rate),
            learning_rate_schedule=self._with_parameters("learning_rate_schedule"),
            optimizer=self._with_parameters("optimizer"),
            averaging=self.averaging,
        )
        if not facts.one_epoch:
            return config.calibrated(budget)
        epoch = math.ceil(1 / run.sampling_rate)
        config = replace(config, n_steps=max(run.n_steps, epoch)).calibrated(budget)
        return replace(config, n_steps=epoch)

    def _linear(self) -> tuple[np.ndarray, np.ndarray]:
        """Weights (n_outputs, n_features) and biases (n_outputs,) of a linear model."""
        check_is_fitted(self)
        if len(layers := list(self.module_.children())) != 1 or self.module is not None:
            raise AttributeError("Only a linear model has coefficients: hidden_layer_sizes=().")
        layer: Any = layers[0]
        return layer.weight.detach().numpy(), layer.bias.detach().numpy()

    def partial_fit(self, X, y=None, groups=None, *, sample_weight=None) -> Self:
        """Train for one more epoch, with the noise that ``max_iter`` steps would have.

        The optimiser keeps its moments; the average of iterates and the schedule start again.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows, as in `fit`.
        y : array-like of shape (n_samples,) or (n_samples, n_targets), or None, default=None
            As in `fit`.
        groups : array-like of shape (n_samples,) or None, default=None
            With ``unit=Persons(...)``: the person whose row it is, as any label.
        sample_weight : array-like of shape (n_samples,) or None, default=None
            Weights of rows, as in `fit`.

        Returns
        -------
        Self
            The estimator; ``privacy_`` states the composition of all calls so far.
        """
        return self._on(X, y, groups, sample_weight, one_epoch=True)

    def _calls_foreign_code(self) -> bool:
        return callable(self.optimizer) or callable(self.learning_rate_schedule)

    def _keep(self, plan: FitPlan, released: Trained) -> None:
        super()._keep(plan, released)
        self.noise_multiplier_ = plan.config.noise_multiplier
        self.clip_norm_ = plan.config.clip_norm
        self.sampling_rate_ = plan.config.sampling_rate
        self.learning_rate_ = plan.config.learning_rate


@documented
@takes_parts
@dataclass(eq=False, repr=False)
class DPSGDClassifier(NetworkClassifier, DPSGD):
    """Neural network classifier trained by differentially private SGD.

    A perceptron, or any torch module, trained on the cross-entropy by noisy sums of clipped
    per-record gradients (DP-SGD), at about the cost of ordinary SGD.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from skdp import DPSGDClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> classifier = DPSGDClassifier(epsilon=3.0, delta=1e-5, classes=range(10), n_samples=1797)
    >>> classifier.fit(X / 16, y).score(X / 16, y) > 0.7
    True
    """

    @property
    def coef_(self) -> np.ndarray:
        """Weights of a linear model, (n_classes, n_features); (1, n_features) of two classes."""
        weights, _ = self._linear()
        return weights if len(weights) > 2 or self._several else weights[1:] - weights[:1]

    @property
    def intercept_(self) -> np.ndarray:
        """Intercepts of a linear model, (n_classes,); (1,) of two classes."""
        _, biases = self._linear()
        return biases if len(biases) > 2 or self._several else biases[1:] - biases[:1]

    def partial_fit(self, X, y=None, classes=None, groups=None, *, sample_weight=None) -> Self:
        """Train for one more epoch, with the noise that ``max_iter`` steps would have.

        The optimiser keeps its moments; the average of iterates and the schedule start again.

        Parameters
        ----------
        y : array-like of shape (n_samples,) or (n_samples, n_labels), or None, default=None
            As in `fit`.
        classes : array-like of shape (n_classes,) or None, default=None
            All class labels, in the first call, where the parameter ``classes`` is None.
        """
        return self._on(X, y, groups, sample_weight, classes=classes, one_epoch=True)


@documented
@takes_parts
@dataclass(eq=False, repr=False)
class DPSGDRegressor(NetworkRegressor, DPSGD):
    """Neural network regressor trained by differentially private SGD.

    A perceptron, or any torch module, trained on half the squared error by noisy sums of clipped
    per-record gradients (DP-SGD), at about the cost of ordinary SGD.

    Examples
    --------
    >>> import numpy as np
    >>> from skdp import DPSGDRegressor
    >>> X = np.random.default_rng(0).uniform(-1, 1, (2000, 1))
    >>> y = 3 * X[:, 0] ** 2
    >>> regressor = DPSGDRegressor(epsilon=3.0, delta=1e-5, target_bounds=(0, 3), n_samples=2000)
    >>> regressor.fit(X, y).score(X, y) > 0.5
    True
    """

    @property
    def coef_(self) -> np.ndarray:
        """Weights of a linear model in units of y, (n_features,) or (n_targets, n_features)."""
        weights, _ = self._linear()
        return (weights if self._target_ndim == 2 else weights[0]) * self._half_width

    @property
    def intercept_(self) -> np.ndarray:
        """Intercepts of a linear model in units of y, () or (n_targets,)."""
        _, biases = self._linear()
        return self._targets(biases)
