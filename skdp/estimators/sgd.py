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

import math
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from skdp.algorithms.dp_sgd import DPSGDConfig, default_learning_rate
from skdp.algorithms.parts.training import Trained
from skdp.estimators._network import NetworkClassifier, NetworkEstimator, NetworkRegressor, OneEpoch
from skdp.estimators._parts import takes_parts
from skdp.fitting.plan import FitPlan, PublicFacts
from skdp.fitting.validate import number_or_auto
from skdp.privacy.budget import Budget


@dataclass(eq=False, repr=False)
class DPSGD(NetworkEstimator):
    """Parameters of DP-SGD, and its configuration."""

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
        if not isinstance(facts, OneEpoch):
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

    def _calls_foreign_code(self) -> bool:
        return callable(self.optimizer) or callable(self.learning_rate_schedule)

    def _keep(self, plan: FitPlan, released: Trained) -> None:
        super()._keep(plan, released)
        self.noise_multiplier_ = plan.config.noise_multiplier
        self.clip_norm_ = plan.config.clip_norm
        self.sampling_rate_ = plan.config.sampling_rate
        self.learning_rate_ = plan.config.learning_rate


@takes_parts
@dataclass(eq=False, repr=False)
class DPSGDClassifier(NetworkClassifier, DPSGD):
    """Neural network classifier trained by differentially private SGD.

    A perceptron, or any torch module, trained on the cross-entropy by noisy sums of clipped
    per-record gradients (DP-SGD), at about the cost of ordinary SGD.

    **Privacy.** `fit` is (epsilon, delta)-differentially private under ``neighboring_relation``:
    weights, predictions and samples together. The unit is a row, or with ``unit="group"`` a person
    with all of its rows. `partial_fit`, and `fit` with ``warm_start``, release more about rows that
    they may have seen before: ``privacy_`` then states the composition of all releases so far. It
    is conditional on the public facts listed in ``privacy_.inferred_public_facts``, is *not* a
    guarantee for a seeded fit, and without ``secure`` treats floating-point arithmetic as exact.

    Parameters
    ----------
    epsilon : float or None, default=1.0
        ε > 0. ``float("inf")`` is the ordinary, non-private fit. None with ``noise_multiplier``.
    delta : float, default=1e-5
        δ in (0, 1); should be well below 1/n.
    neighboring_relation : {"zero_out", "add_or_remove_one", "replace_one"}, default="zero_out"
        Who is a neighbour. Under ``"add_or_remove_one"`` the number of rows is private and
        ``n_samples`` must be given.
    unit : {"row", "group"}, default="row"
        The privacy unit: a row, or a person with all of its rows, given to `fit` as ``groups``;
        see the guide page on rows and people.
    n_groups : int or None, default=None
        Public number ≥ 1 of persons; needed with ``unit="group"``.
    rows_per_group : float or None, default=None
        Public mean number ≥ 1 of rows of a person. None is ``n_samples / n_groups``, else 5.
    group_clip : float or "auto", default="auto"
        Bound > 0 on a person's clipped share over that on one row's. ``"auto"`` is
        √((3 rows_per_group + 1)/4).
    max_rows_per_group : int or None, default=None
        Rows ≥ 1 of a person that take part, at most; which ones does not depend on other rows.
        None is all.
    hidden_layer_sizes : tuple of int, default=(100,)
        Neurons of the hidden layers; ``()`` is a linear model.
    activation : {"tanh", "relu", "gelu", "logistic", "identity"}, default="tanh"
        Of the hidden layers. Bounded ones lose less to clipping.
    module : nn.Module, class, callable or None, default=None
        A network instead of the perceptron, or a class or a function that makes one: it gets
        n_features, which is ``X.shape[1]``, and n_outputs, a class only if it asks for them, and
        what is given as ``module__`` parameters, e.g. ``module__hidden=32``. Records reach it as
        they are, (n, n_features) or images (n, channels, height, width) or sequences
        (n, time, width), as floating-point numbers; integers as 64-bit integers where it takes
        nothing else, as an `Embedding` does. It returns logits
        (n, n_classes) without softmax, or predictions (n, n_targets). Its initial weights must not
        have been learned from the private rows. A module is copied, and each `fit` starts from its
        weights; parameters with ``requires_grad=False`` stay as they are. A record on which it
        fails contributes nothing.

        It must treat each record by itself, in training too, and keep no state: the guarantee is
        conditional on that, as ``privacy_.assumptions`` says. A module that is seen to mix is
        refused before anything is spent: in a trial on batches of 1 to 33 synthetic records of
        scale .1 to 10, in training and in evaluation. The trial cannot see a branch on
        other values, on other batch sizes, on the weights, on a rare random event, on the time
        or on global state.
    loss : {"cross_entropy", "focal", "ranked_probability"}, class or callable, \
            default="cross_entropy"
        What is clipped and summed is its gradient. ``"cross_entropy"`` takes
        ``loss__label_smoothing``, ``"focal"`` ``loss__gamma`` (2); ``"ranked_probability"`` is for
        classes whose sorted order means something. Or a loss of torch, of each record whatever its
        ``reduction``, or a function of outputs and targets (class numbers) that returns one number
        per record: a record's must not depend on others, which is tried and assumed as for
        ``module``. With y (n, n_labels) of 0 and 1 each label has a loss of its own, and they are
        added up.
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
        Records that are worked on at once, for memory; None is 1024, fewer on the CPU where layers
        keep much of each. Changes no result and no cost.
    mixed_precision : bool, default=False
        Run the network in bfloat16; norms, sums and noise stay in full precision.
    device : str, torch.device or None, default=None
        Where to train, e.g. ``"cuda"``; None is where the module's parameters are.
    warm_start : bool, default=False
        Let `fit` go on from the previous solution.
    classes : array-like of shape (n_classes,) or None, default=None
        The class labels, as a declared public fact. None reads them from y and says so in the
        report.
    class_weight : dict or None, default=None
        Public weights ≥ 0 of classes, 1 for those that are not named; each clipped gradient is
        multiplied by its own. The noise is for the largest, so it gives balance at the cost of
        noise. ``"balanced"`` is refused: the shares of classes are private.
    max_sample_weight : float, default=1.0
        Public bound > 0 of ``sample_weight``; the noise is for rows of this weight.
    secure : bool, default=False
        Of the perceptron, with the default loss: integers in place of the rounding of floats in
        gradients, sums and noise, which is discrete. The guarantee then no longer treats
        floating-point arithmetic as exact. Up to three times slower (with persons eight), and as
        accurate. Not with ``device``, ``module`` or ``mixed_precision``, nor for more than 100,000
        parameters (with persons 10,000). See docs/privacy.md, section 8.
    checkpoint : str, path-like or None, default=None
        File from which a fit that was killed goes on when it is called again with the same rows and
        parameters, as the same release at no further charge. The key file beside it (``.key``) is
        as secret as the rows; both are deleted when the fit ends. Each fit needs a path of its
        own, and calls that go on from an earlier one take none. See the guide page on long runs.
    every : int, default=50
        Number ≥ 1 of steps from one checkpoint to the next.
    n_samples : int or None, default=None
        Public number of rows, from which rates and step sizes are computed. None reads it from X
        and says so in the report. Where it is public, below half and above three times that of X
        are refused.
    random_state : int, RandomState instance or None, default=None
        None keys the noise from the operating system. A seed makes the fit repeatable and its
        guarantee void: the report says ``valid=False``.
    verbose : int, default=0
        Above 0, a progress bar over the steps (needs tqdm). Callbacks of scikit-learn, where the
        version has them, work too: they get the steps and no data.

    Attributes
    ----------
    module_ : nn.Module
        The network, with the averaged weights.
    noise_multiplier_, clip_norm_, sampling_rate_, learning_rate_ : float
        The values used.
    coef_, intercept_ : ndarray
        Weights and intercepts, as scikit-learn's linear models have them; with
        ``hidden_layer_sizes=()`` alone.
    parameter_names_ : list of str
        Names of the columns of `sample_posterior`.
    n_iter_ : int
        Number of noisy steps taken, in all releases that ``privacy_`` states.
    privacy_ : PrivacyReport
        The privacy statement.
    diagnostics_ : tuple of str
        Doubts about the fit that released values raise; each was a `FitWarning`.
    public_scores_ : list of (int, float)
        Steps and scores on ``X_public``; empty without it. Scores on training rows are never kept:
        they are not private.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Feature names, where X had any.
    classes_ : ndarray of shape (n_classes,)
        Class labels.

    Notes
    -----
    `sample_posterior` draws from a Gaussian with the mean and the variances of the iterates in the
    tail of the run (SWAG; Maddox et al. 2019). It costs no privacy, and shows where the walk went:
    optimiser, noise and likelihood together. It is *not* the posterior of a model, and its
    intervals have no stated coverage; `DPVariationalLogisticRegression` has a posterior.

    With ``unit="group"`` each row's gradient is clipped as ever, and a person contributes the sum
    over its rows, clipped to ``group_clip`` times ``clip_norm``; it is persons who are sampled.
    Batches, ``n_samples`` and step sizes count rows: ``n_groups`` times ``rows_per_group``.

    References
    ----------
    M. Abadi et al., *Deep Learning with Differential Privacy*, CCS 2016. Z. Bu, Y.-X. Wang, S. Zha,
    G. Karypis, *Differentially Private Optimization on Large Model at Small Cost*, ICML 2023.

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

    def partial_fit(
        self, X, y=None, classes=None, groups=None, *, sample_weight=None
    ) -> DPSGDClassifier:
        """Train for one more epoch, with the noise that ``max_iter`` steps would have.

        The optimiser keeps its moments; the average of iterates and the schedule start again.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows, as in `fit`.
        y : array-like of shape (n_samples,) or (n_samples, n_labels), or None, default=None
            As in `fit`.
        classes : array-like of shape (n_classes,) or None, default=None
            All class labels, in the first call, where the parameter ``classes`` is None.
        groups : array-like of shape (n_samples,) or None, default=None
            With ``unit="group"``: the person whose row it is, as any label.
        sample_weight : array-like of shape (n_samples,) or None, default=None
            Weights of rows, as in `fit`.

        Returns
        -------
        DPSGDClassifier
            The estimator; ``privacy_`` states the composition of all calls so far.
        """
        return self._fit(
            X, y, groups=groups, sample_weight=sample_weight, classes=classes, one_epoch=True
        )


@takes_parts
@dataclass(eq=False, repr=False)
class DPSGDRegressor(NetworkRegressor, DPSGD):
    """Neural network regressor trained by differentially private SGD.

    A perceptron, or any torch module, trained on half the squared error by noisy sums of clipped
    per-record gradients (DP-SGD), at about the cost of ordinary SGD.

    **Privacy.** `fit` is (epsilon, delta)-differentially private under ``neighboring_relation``:
    weights, predictions and samples together. The unit is a row, or with ``unit="group"`` a person
    with all of its rows. `partial_fit`, and `fit` with ``warm_start``, release more about rows that
    they may have seen before: ``privacy_`` then states the composition of all releases so far. It
    is conditional on the public facts listed in ``privacy_.inferred_public_facts``, is *not* a
    guarantee for a seeded fit, and without ``secure`` treats floating-point arithmetic as exact.

    Parameters
    ----------
    epsilon : float or None, default=1.0
        ε > 0. ``float("inf")`` is the ordinary, non-private fit. None with ``noise_multiplier``.
    delta : float, default=1e-5
        δ in (0, 1); should be well below 1/n.
    neighboring_relation : {"zero_out", "add_or_remove_one", "replace_one"}, default="zero_out"
        Who is a neighbour. Under ``"add_or_remove_one"`` the number of rows is private and
        ``n_samples`` must be given.
    unit : {"row", "group"}, default="row"
        The privacy unit: a row, or a person with all of its rows, given to `fit` as ``groups``;
        see the guide page on rows and people.
    n_groups : int or None, default=None
        Public number ≥ 1 of persons; needed with ``unit="group"``.
    rows_per_group : float or None, default=None
        Public mean number ≥ 1 of rows of a person. None is ``n_samples / n_groups``, else 5.
    group_clip : float or "auto", default="auto"
        Bound > 0 on a person's clipped share over that on one row's. ``"auto"`` is
        √((3 rows_per_group + 1)/4).
    max_rows_per_group : int or None, default=None
        Rows ≥ 1 of a person that take part, at most; which ones does not depend on other rows.
        None is all.
    hidden_layer_sizes : tuple of int, default=(100,)
        Neurons of the hidden layers; ``()`` is a linear model.
    activation : {"tanh", "relu", "gelu", "logistic", "identity"}, default="tanh"
        Of the hidden layers. Bounded ones lose less to clipping.
    module : nn.Module, class, callable or None, default=None
        A network instead of the perceptron, or a class or a function that makes one: it gets
        n_features, which is ``X.shape[1]``, and n_outputs, a class only if it asks for them, and
        what is given as ``module__`` parameters, e.g. ``module__hidden=32``. Records reach it as
        they are, (n, n_features) or images (n, channels, height, width) or sequences
        (n, time, width), as floating-point numbers; integers as 64-bit integers where it takes
        nothing else, as an `Embedding` does. It returns logits
        (n, n_classes) without softmax, or predictions (n, n_targets). Its initial weights must not
        have been learned from the private rows. A module is copied, and each `fit` starts from its
        weights; parameters with ``requires_grad=False`` stay as they are. A record on which it
        fails contributes nothing.

        It must treat each record by itself, in training too, and keep no state: the guarantee is
        conditional on that, as ``privacy_.assumptions`` says. A module that is seen to mix is
        refused before anything is spent: in a trial on batches of 1 to 33 synthetic records of
        scale .1 to 10, in training and in evaluation. The trial cannot see a branch on
        other values, on other batch sizes, on the weights, on a rare random event, on the time
        or on global state.
    loss : {"squared_error", "absolute_error", "huber"}, class or callable, default="squared_error"
        What is clipped and summed is its gradient, on the scale that the network works on;
        ``"huber"`` takes ``loss__delta`` (1). Or a loss of torch, of each record
        whatever its ``reduction``, or a function of outputs and targets (n, n_targets) that returns
        one number per record: a record's must not depend on others, which is tried and assumed as
        for ``module``.
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
        Records that are worked on at once, for memory; None is 1024, fewer on the CPU where layers
        keep much of each. Changes no result and no cost.
    mixed_precision : bool, default=False
        Run the network in bfloat16; norms, sums and noise stay in full precision.
    device : str, torch.device or None, default=None
        Where to train, e.g. ``"cuda"``; None is where the module's parameters are.
    warm_start : bool, default=False
        Let `fit` go on from the previous solution.
    target_bounds : (float, float) or None, default=None
        Public bounds of the targets, to which they are clipped; the network then works on [-1, 1].
        None takes targets as they are, which should then be of the order of 1.
    max_sample_weight : float, default=1.0
        Public bound > 0 of ``sample_weight``; the noise is for rows of this weight.
    secure : bool, default=False
        Of the perceptron, with the default loss: integers in place of the rounding of floats in
        gradients, sums and noise, which is discrete. The guarantee then no longer treats
        floating-point arithmetic as exact. Up to three times slower (with persons eight), and as
        accurate. Not with ``device``, ``module`` or ``mixed_precision``, nor for more than 100,000
        parameters (with persons 10,000). See docs/privacy.md, section 8.
    checkpoint : str, path-like or None, default=None
        File from which a fit that was killed goes on when it is called again with the same rows and
        parameters, as the same release at no further charge. The key file beside it (``.key``) is
        as secret as the rows; both are deleted when the fit ends. Each fit needs a path of its
        own, and calls that go on from an earlier one take none. See the guide page on long runs.
    every : int, default=50
        Number ≥ 1 of steps from one checkpoint to the next.
    n_samples : int or None, default=None
        Public number of rows, from which rates and step sizes are computed. None reads it from X
        and says so in the report. Where it is public, below half and above three times that of X
        are refused.
    random_state : int, RandomState instance or None, default=None
        None keys the noise from the operating system. A seed makes the fit repeatable and its
        guarantee void: the report says ``valid=False``.
    verbose : int, default=0
        Above 0, a progress bar over the steps (needs tqdm). Callbacks of scikit-learn, where the
        version has them, work too: they get the steps and no data.

    Attributes
    ----------
    module_ : nn.Module
        The network, with the averaged weights.
    noise_multiplier_, clip_norm_, sampling_rate_, learning_rate_ : float
        The values used.
    coef_, intercept_ : ndarray
        Weights and intercepts, as scikit-learn's linear models have them; with
        ``hidden_layer_sizes=()`` alone.
    parameter_names_ : list of str
        Names of the columns of `sample_posterior`.
    n_iter_ : int
        Number of noisy steps taken, in all releases that ``privacy_`` states.
    privacy_ : PrivacyReport
        The privacy statement.
    diagnostics_ : tuple of str
        Doubts about the fit that released values raise; each was a `FitWarning`.
    public_scores_ : list of (int, float)
        Steps and scores on ``X_public``; empty without it. Scores on training rows are never kept:
        they are not private.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Feature names, where X had any.

    Notes
    -----
    `sample_posterior` draws from a Gaussian with the mean and the variances of the iterates in the
    tail of the run (SWAG; Maddox et al. 2019). It costs no privacy, and shows where the walk went:
    optimiser, noise and likelihood together. It is *not* the posterior of a model, and its
    intervals have no stated coverage; `DPVariationalLogisticRegression` has a posterior.

    With ``unit="group"`` each row's gradient is clipped as ever, and a person contributes the sum
    over its rows, clipped to ``group_clip`` times ``clip_norm``; it is persons who are sampled.
    Batches, ``n_samples`` and step sizes count rows: ``n_groups`` times ``rows_per_group``.

    References
    ----------
    M. Abadi et al., *Deep Learning with Differential Privacy*, CCS 2016. Z. Bu, Y.-X. Wang, S. Zha,
    G. Karypis, *Differentially Private Optimization on Large Model at Small Cost*, ICML 2023.

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

    def partial_fit(self, X, y=None, groups=None, *, sample_weight=None) -> DPSGDRegressor:
        """Train for one more epoch, with the noise that ``max_iter`` steps would have.

        The optimiser keeps its moments; the average of iterates and the schedule start again.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows, as in `fit`.
        y : array-like of shape (n_samples,) or (n_samples, n_targets), or None, default=None
            As in `fit`.
        groups : array-like of shape (n_samples,) or None, default=None
            With ``unit="group"``: the person whose row it is, as any label.
        sample_weight : array-like of shape (n_samples,) or None, default=None
            Weights of rows, as in `fit`.

        Returns
        -------
        DPSGDRegressor
            The estimator; ``privacy_`` states the composition of all calls so far.
        """
        return self._fit(X, y, groups=groups, sample_weight=sample_weight, one_epoch=True)
