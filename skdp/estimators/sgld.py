"""`DPSGLDClassifier` and `DPSGLDRegressor`: samples of a network's weights by DP-SGLD.

>>> import numpy as np
>>> from skdp import DPSGLDClassifier
>>> rng = np.random.default_rng(0)
>>> X = rng.uniform(-1, 1, (1000, 2))
>>> y = (X[:, 0] > 0).astype(int)
>>> classifier = DPSGLDClassifier(epsilon=3.0, classes=[0, 1], n_samples=1000).fit(X, y)
>>> classifier.score(X, y) > 0.8
True
>>> classifier.sample_predictive(X, n_samples=20).shape  # how sure are we of each probability?
(20, 1000, 2)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import numpy as np

from skdp.algorithms.dp_sgld import DPSGLDConfig, default_learning_rate, default_thinning
from skdp.algorithms.parts.training import NetworkRun
from skdp.estimators._network import NetworkClassifier, NetworkEstimator, NetworkRegressor
from skdp.estimators._parts import takes_parts
from skdp.fitting import declared
from skdp.fitting.plan import FitPlan, PublicFacts
from skdp.fitting.validate import in_range, integer_or_auto, number_or_auto
from skdp.privacy.budget import Budget
from skdp.schedules import PolynomialDecay, step_sizes


@dataclass(eq=False, repr=False)
class DPSGLD(NetworkEstimator):
    """Parameters of DP-SGLD, and its configuration."""

    _: KW_ONLY
    temperature: float | None = None
    learning_rate: float | str | Callable[[int], float] = "auto"
    decay_exponent: float = 0.55
    decay_offset: float | str = "auto"
    prior_scale: float = 1.0
    burn_in: int | str = "auto"
    thinning: int | str = "auto"
    prenoise_scale: float = 0.0

    def _budget(self) -> Budget:
        """Without privacy a temperature contradicts no ε."""
        if self.epsilon == math.inf and self.temperature is not None:
            in_range(0.0, 1e10, temperature=self.temperature, closed="left")
            return declared.check_budget(self, "")
        return declared.check_budget(self, "temperature")

    def _configure(self, facts: PublicFacts, budget: Budget) -> DPSGLDConfig:
        """Check the parameters, fill in the defaults and solve for T, from public facts alone."""
        run = self._network_run(facts, budget.private)
        if not budget.private:
            run = replace(run, clip_norm=math.inf)
        burn_in = integer_or_auto(run.n_steps // 2, 0, burn_in=self.burn_in)
        return DPSGLDConfig(
            **vars(run),
            temperature=1.0 if self.temperature is None else float(self.temperature),
            learning_rate=self._step_size(run, budget.private),
            prior_scale=self.prior_scale,
            burn_in=burn_in,
            thinning=integer_or_auto(
                default_thinning(run.n_steps, burn_in), thinning=self.thinning
            ),
            prenoise_scale=self.prenoise_scale,
        ).calibrated(budget)

    def _step_size(self, run: NetworkRun, private: bool) -> Callable[[int], float]:
        """Return step sizes that no longer ask the caller's function."""
        if callable(self.learning_rate):
            return step_sizes(self.learning_rate, run.n_steps).__getitem__
        scale = self.prior_scale
        if scale != math.inf:
            scale = in_range(1e-100, 1e100, prior_scale=scale)
        default = default_learning_rate(run.n_rows, scale, private=private)
        return PolynomialDecay(
            number_or_auto(default, "or a function", learning_rate=self.learning_rate),
            number_or_auto(run.n_steps / 3, decay_offset=self.decay_offset),
            in_range(0.0, 1.0, decay_exponent=self.decay_exponent, closed="both"),
        )

    def _keep(self, plan: FitPlan, released: Any) -> None:
        super()._keep(plan, released)
        config = plan.config
        self.temperature_ = config.temperature
        self.learning_rates_ = np.array(config.learning_rates)
        self.noise_multipliers_ = np.array(config.noise_multipliers)
        self.posterior_samples_, self.posterior_steps_ = released.posterior
        self.burn_in_ = config.burn_in
        self.clip_norm_ = config.clip_norm
        self.sampling_rate_ = config.sampling_rate


@takes_parts
@dataclass(eq=False, repr=False)
class DPSGLDClassifier(NetworkClassifier, DPSGLD):
    """Neural network classifier whose weights are sampled by DP-SGLD.

    A perceptron, or any torch module, whose iterates under stochastic gradient Langevin dynamics
    are private samples of its weights; predictions are averaged over them.

    The chain takes steps θ ← θ + η_t [(1/B) Σ clip(g_i) − ∇r(θ)/N] + N(0, 2Tη_t/N · I) on Poisson
    batches of expected size B of the N rows, with a Gaussian prior ∝ exp(−r). Its noise is both
    that of Langevin dynamics at temperature T and that of differential privacy: the budget sets the
    temperature. Predictions are averaged over the iterates kept after burn-in.

    **Privacy.** `fit` is (epsilon, delta)-differentially private under ``neighboring_relation``:
    all iterates, predictions and samples together, whether or not the chain has converged. The unit
    is a row, or with ``unit="group"`` a person with all of its rows. The guarantee is conditional
    on the public facts listed in ``privacy_.inferred_public_facts``, is *not* one for a seeded fit,
    and without ``secure`` treats floating-point arithmetic as exact.

    Parameters
    ----------
    epsilon : float or None, default=1.0
        ε > 0. ``float("inf")`` is the ordinary, non-private fit. None with ``temperature``.
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
    temperature : float or None, default=None
        T > 0, instead of ``epsilon`` (pass ``epsilon=None``); the report then accounts for what was
        spent. With ``epsilon=float("inf")`` nothing is clipped, None is 1, the posterior itself,
        and 0 is gradient descent.
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
    learning_rate : float, callable or "auto", default="auto"
        η_0 > 0 of the step sizes η_t = η_0 (1 + t/b)^−γ; ``"auto"`` is 3, and .1 without privacy,
        less where that overshoots the prior. η_0 may not exceed N times the prior's variance.
        A callable maps the step t = 0, 1, … to η_t itself, which must never rise; see
        `skdp.schedules.PolynomialDecay`.
    decay_exponent : float, default=0.55
        γ in [0, 1]; 0 is a constant step size.
    decay_offset : float or "auto", default="auto"
        b > 0, in steps; ``"auto"`` is a third of ``max_iter``.
    prior_scale : float, default=1.0
        Standard deviation > 0 of the Gaussian prior of each weight; infinite for a flat prior.
    burn_in : int or "auto", default="auto"
        Steps below ``max_iter`` after which iterates are kept; ``"auto"`` is half of them. With
        ``max_iter - 1`` the last iterate alone is kept, as in the paper.
    thinning : int or "auto", default="auto"
        Every how many steps ≥ 1 an iterate is kept; ``"auto"`` keeps at most 30.
    prenoise_scale : float, default=0.0
        Standard deviation ≥ 0 of normal noise on each record's gradient *before* it is clipped,
        which makes clipping less biased (Chen et al. 2020). It costs no privacy and earns none;
        it costs time.
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
    accountant : {"auto", "gdp", "pld", "rdp", "gdp_clt"}, default="auto"
        See `skdp.privacy.epsilon`.
    physical_batch_size : int or None, default=None
        Records that are worked on at once, for memory; None is 1024, fewer on the CPU where layers
        keep much of each. Changes no result and no cost.
    mixed_precision : bool, default=False
        Run the network in bfloat16; norms, sums and noise stay in full precision.
    device : str, torch.device or None, default=None
        Where to train, e.g. ``"cuda"``; None is where the module's parameters are.
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
        The network, with the weights of the last iterate.
    temperature_ : float
        T of the chain.
    learning_rates_, noise_multipliers_ : ndarray of shape (n_steps,)
        η_t and σ_t of each step.
    posterior_samples_ : ndarray of shape (n_kept, n_parameters)
        The kept iterates, in their order; the columns as in ``parameter_names_``.
    posterior_steps_ : ndarray of shape (n_kept,)
        After how many steps each of them was reached.
    burn_in_ : int
        Steps before the first that could be kept.
    clip_norm_, sampling_rate_ : float
        The values used.
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
    σ_t = (B/C) √(2T/(Nη_t)) is the noise multiplier of step t, so T = σ_t² C² N η_t/(2B²)
    (Knolle et al. 2021; Li et al. 2019). The paper accounts by a central limit theorem, which can
    understate ε: ``accountant="gdp_clt"`` repeats that, and its report says that it is no bound.

    A temperature below 1 makes the samples more alike than those of the posterior, one above 1 less
    alike; clipping, batches and the length of a step change their law too. They tell how far
    predictions may be trusted; `skdp.metrics` and `skdp.displays` show how well they do. Their
    intervals have no stated coverage.

    With ``unit="group"`` each row's gradient is clipped as ever, and a person contributes the sum
    over its rows, clipped to ``group_clip`` times ``clip_norm``; it is persons who are sampled.
    Batches, ``n_samples`` and step sizes count rows: ``n_groups`` times ``rows_per_group``.

    References
    ----------
    M. Knolle et al., *Differentially private training of neural networks with Langevin dynamics for
    calibrated predictive uncertainty*, 2021. B. Li, C. Chen, H. Liu, L. Carin, *On Connecting
    Stochastic Gradient MCMC and Differential Privacy*, AISTATS 2019. X. Chen, S. Z. Wu, M. Hong,
    *Understanding Gradient Clipping in Private SGD*, NeurIPS 2020.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from skdp import DPSGLDClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> classifier = DPSGLDClassifier(epsilon=3.0, delta=1e-5, classes=range(10), n_samples=1797)
    >>> classifier.fit(X / 16, y).score(X / 16, y) > 0.7
    True
    >>> classifier.posterior_samples_.shape
    (25, 7510)
    """

    def path_predictive(self, X) -> np.ndarray:
        """Class probabilities under each kept iterate, in the order of the chain.

        Parameters
        ----------
        X : array-like of shape (n, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_kept, n, n_classes)
            Their mean is `predict_proba`.
        """
        return self._probabilities(np.concatenate(list(self._outputs(X)), axis=1))


@takes_parts
@dataclass(eq=False, repr=False)
class DPSGLDRegressor(NetworkRegressor, DPSGLD):
    """Neural network regressor whose weights are sampled by DP-SGLD.

    A perceptron, or any torch module, with normal errors of standard deviation 1 on the scale that
    the network works on; its iterates under stochastic gradient Langevin dynamics are private
    samples of its weights, and predictions are averaged over them.

    The chain takes steps θ ← θ + η_t [(1/B) Σ clip(g_i) − ∇r(θ)/N] + N(0, 2Tη_t/N · I) on Poisson
    batches of expected size B of the N rows, with a Gaussian prior ∝ exp(−r). Its noise is both
    that of Langevin dynamics at temperature T and that of differential privacy: the budget sets the
    temperature. Predictions are averaged over the iterates kept after burn-in.

    **Privacy.** `fit` is (epsilon, delta)-differentially private under ``neighboring_relation``:
    all iterates, predictions and samples together, whether or not the chain has converged. The unit
    is a row, or with ``unit="group"`` a person with all of its rows. The guarantee is conditional
    on the public facts listed in ``privacy_.inferred_public_facts``, is *not* one for a seeded fit,
    and without ``secure`` treats floating-point arithmetic as exact.

    Parameters
    ----------
    epsilon : float or None, default=1.0
        ε > 0. ``float("inf")`` is the ordinary, non-private fit. None with ``temperature``.
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
    temperature : float or None, default=None
        T > 0, instead of ``epsilon`` (pass ``epsilon=None``); the report then accounts for what was
        spent. With ``epsilon=float("inf")`` nothing is clipped, None is 1, the posterior itself,
        and 0 is gradient descent.
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
    learning_rate : float, callable or "auto", default="auto"
        η_0 > 0 of the step sizes η_t = η_0 (1 + t/b)^−γ; ``"auto"`` is 3, and .1 without privacy,
        less where that overshoots the prior. η_0 may not exceed N times the prior's variance.
        A callable maps the step t = 0, 1, … to η_t itself, which must never rise; see
        `skdp.schedules.PolynomialDecay`.
    decay_exponent : float, default=0.55
        γ in [0, 1]; 0 is a constant step size.
    decay_offset : float or "auto", default="auto"
        b > 0, in steps; ``"auto"`` is a third of ``max_iter``.
    prior_scale : float, default=1.0
        Standard deviation > 0 of the Gaussian prior of each weight; infinite for a flat prior.
    burn_in : int or "auto", default="auto"
        Steps below ``max_iter`` after which iterates are kept; ``"auto"`` is half of them. With
        ``max_iter - 1`` the last iterate alone is kept, as in the paper.
    thinning : int or "auto", default="auto"
        Every how many steps ≥ 1 an iterate is kept; ``"auto"`` keeps at most 30.
    prenoise_scale : float, default=0.0
        Standard deviation ≥ 0 of normal noise on each record's gradient *before* it is clipped,
        which makes clipping less biased (Chen et al. 2020). It costs no privacy and earns none;
        it costs time.
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
    accountant : {"auto", "gdp", "pld", "rdp", "gdp_clt"}, default="auto"
        See `skdp.privacy.epsilon`.
    physical_batch_size : int or None, default=None
        Records that are worked on at once, for memory; None is 1024, fewer on the CPU where layers
        keep much of each. Changes no result and no cost.
    mixed_precision : bool, default=False
        Run the network in bfloat16; norms, sums and noise stay in full precision.
    device : str, torch.device or None, default=None
        Where to train, e.g. ``"cuda"``; None is where the module's parameters are.
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
        The network, with the weights of the last iterate.
    temperature_ : float
        T of the chain.
    learning_rates_, noise_multipliers_ : ndarray of shape (n_steps,)
        η_t and σ_t of each step.
    posterior_samples_ : ndarray of shape (n_kept, n_parameters)
        The kept iterates, in their order; the columns as in ``parameter_names_``.
    posterior_steps_ : ndarray of shape (n_kept,)
        After how many steps each of them was reached.
    burn_in_ : int
        Steps before the first that could be kept.
    clip_norm_, sampling_rate_ : float
        The values used.
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
    σ_t = (B/C) √(2T/(Nη_t)) is the noise multiplier of step t, so T = σ_t² C² N η_t/(2B²)
    (Knolle et al. 2021; Li et al. 2019). The paper accounts by a central limit theorem, which can
    understate ε: ``accountant="gdp_clt"`` repeats that, and its report says that it is no bound.

    A temperature below 1 makes the samples more alike than those of the posterior, one above 1 less
    alike; clipping, batches and the length of a step change their law too. They tell how far
    predictions may be trusted; `skdp.metrics` and `skdp.displays` show how well they do. Their
    intervals have no stated coverage.

    With ``unit="group"`` each row's gradient is clipped as ever, and a person contributes the sum
    over its rows, clipped to ``group_clip`` times ``clip_norm``; it is persons who are sampled.
    Batches, ``n_samples`` and step sizes count rows: ``n_groups`` times ``rows_per_group``.

    References
    ----------
    M. Knolle et al., *Differentially private training of neural networks with Langevin dynamics for
    calibrated predictive uncertainty*, 2021. B. Li, C. Chen, H. Liu, L. Carin, *On Connecting
    Stochastic Gradient MCMC and Differential Privacy*, AISTATS 2019. X. Chen, S. Z. Wu, M. Hong,
    *Understanding Gradient Clipping in Private SGD*, NeurIPS 2020.

    Examples
    --------
    >>> import numpy as np
    >>> from skdp import DPSGLDRegressor
    >>> X = np.random.default_rng(0).uniform(-1, 1, (2000, 1))
    >>> y = 3 * X[:, 0] ** 2
    >>> regressor = DPSGLDRegressor(epsilon=3.0, delta=1e-5, target_bounds=(0, 3), n_samples=2000)
    >>> mean, spread = regressor.fit(X, y).predict(X, return_std=True)
    >>> mean.shape, spread.shape
    ((2000,), (2000,))
    """

    def predict(self, X, return_std: bool = False) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """Predicted targets, the mean over the kept iterates.

        Parameters
        ----------
        X : array-like of shape (n, n_features)
            Rows.
        return_std : bool, default=False
            Also return the standard deviation over the kept iterates: how unsure the network is of
            the mean, without the spread of targets about it.

        Returns
        -------
        ndarray of shape (n,) or (n, n_targets), or two of them
        """
        if not return_std:
            return super().predict(X)
        outputs = np.concatenate(list(self._outputs(X)), axis=1)
        spread = self._targets(outputs).std(axis=0)
        return self._targets(outputs.mean(axis=0)), spread
