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
from typing import Any, cast

import numpy as np
from scipy.special import softmax

from skdp import _fitting
from skdp._validate import in_range, integer, one_of, positive
from skdp.algorithms import dp_sgd, dp_sgld
from skdp.estimators import _paragraphs
from skdp.estimators._network import NetworkEstimator
from skdp.estimators._network_tasks import NetworkClassifier, NetworkRegressor
from skdp.privacy.accounting import ACCOUNTANTS
from skdp.schedules import PolynomialDecay, step_sizes

_PRIVACY = """
    The chain takes steps θ ← θ + η_t [(1/B) Σ clip(g_i) − ∇r(θ)/N] + N(0, 2Tη_t/N · I) on Poisson
    batches of expected size B of the N rows, with a Gaussian prior ∝ exp(−r). Its noise is both
    that of Langevin dynamics at temperature T and that of differential privacy: a budget buys a
    temperature. Predictions are averaged over the iterates kept after burn-in.

    **Privacy.** `fit` is (epsilon, delta)-differentially private under ``neighboring_relation``:
    all iterates, predictions and samples together, whether or not the chain has converged. The
    unit is a row. The guarantee is conditional on the public facts listed in
    ``privacy_.inferred_public_facts``, is *not* one for a seeded fit, and treats floating-point
    arithmetic as exact.

    Parameters
    ----------
"""
_TEMPERATURE = """    temperature : float or None, default=None
        T > 0, instead of ``epsilon`` (pass ``epsilon=None``); the report then accounts for what was
        spent. With ``epsilon=float("inf")`` nothing is clipped, None is 1, the posterior itself,
        and 0 is gradient descent.
"""
_CHAIN = """    learning_rate : float, callable or "auto", default="auto"
        η_0 > 0 of the step sizes η_t = η_0 (1 + t/b)^−γ; ``"auto"`` is 3, and .1 without privacy,
        less where that overshoots the prior. η_0 may not exceed N times the prior's variance.
        A callable maps the step t = 0, 1, … to η_t itself, which must never rise; see
        `skdp.schedules.PolynomialDecay`.
    decay_exponent : float, default=DECAY
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
"""
_FITTED = """    module_ : nn.Module
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
"""
_NOTES = """
    Notes
    -----
    σ_t = (B/C) √(2T/(Nη_t)) is the noise multiplier of step t, so T = σ_t² C² N η_t/(2B²)
    (Knolle et al. 2021; Li et al. 2019). The paper accounts by a central limit theorem, which can
    understate ε: ``accountant="gdp_clt"`` repeats that, and its report says that it is no bound.

    A temperature below 1 makes the samples more alike than those of the posterior, one above 1 less
    alike; clipping, batches and the length of a step change their law too. They tell how far
    predictions may be trusted; `skdp.metrics` and `skdp.displays` show how well they do. Their
    intervals have no stated coverage.

    References
    ----------
    M. Knolle et al., *Differentially private training of neural networks with Langevin dynamics for
    calibrated predictive uncertainty*, 2021. B. Li, C. Chen, H. Liu, L. Carin, *On Connecting
    Stochastic Gradient MCMC and Differential Privacy*, AISTATS 2019. X. Chen, S. Z. Wu, M. Hong,
    *Understanding Gradient Clipping in Private SGD*, NeurIPS 2020.
"""
_ACCOUNTANT = ('"rdp"}, default="auto"', '"rdp", "gdp_clt"}, default="auto"')


def _documentation(*, summary: str, task: str, fitted: str, example: str) -> str:
    """Return the docstring of an estimator; ``task`` is the paragraph of its own parameter."""
    parameters = (
        _paragraphs.BUDGET.replace("INSTEAD", "temperature"),
        _TEMPERATURE,
        _paragraphs.NETWORK,
        _CHAIN.replace("DECAY", str(_DECAY_EXPONENT)),
        _paragraphs.STEPS,
        _paragraphs.CLIPPING,
        _paragraphs.RUN.replace(*_ACCOUNTANT),
        task,
        _paragraphs.END,
    )
    attributes = ("\n    Attributes\n    ----------\n", _FITTED, _paragraphs.FITTED, fitted)
    return "".join([summary, _PRIVACY, *parameters, *attributes, _NOTES, example])


_DECAY_EXPONENT = 0.55


class DPSGLD(NetworkEstimator):
    """Parameters of DP-SGLD, and its configuration."""

    def __init__(
        self,
        epsilon: float | None,
        delta: float,
        *,
        neighboring_relation: str,
        temperature: float | None,
        hidden_layer_sizes: Any,
        activation: str,
        module: Any,
        learning_rate: Any,
        decay_exponent: float,
        decay_offset: float | str,
        prior_scale: float,
        burn_in: int | str,
        thinning: int | str,
        prenoise_scale: float,
        max_iter: int | str,
        epochs: float | None,
        batch_size: int | str,
        sampling_rate: float | None,
        clip_norm: float | str,
        clipping: str,
        accountant: str,
        physical_batch_size: int | None,
        mixed_precision: bool,
        device: Any,
        n_samples: int | None,
        random_state: Any,
        verbose: int,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.neighboring_relation = neighboring_relation
        self.temperature = temperature
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation = activation
        self.module = module
        self.learning_rate = learning_rate
        self.decay_exponent = decay_exponent
        self.decay_offset = decay_offset
        self.prior_scale = prior_scale
        self.burn_in = burn_in
        self.thinning = thinning
        self.prenoise_scale = prenoise_scale
        self.max_iter = max_iter
        self.epochs = epochs
        self.batch_size = batch_size
        self.sampling_rate = sampling_rate
        self.clip_norm = clip_norm
        self.clipping = clipping
        self.accountant = accountant
        self.physical_batch_size = physical_batch_size
        self.mixed_precision = mixed_precision
        self.device = device
        self.n_samples = n_samples
        self.random_state = random_state
        self.verbose = verbose

    def _check_budget(self) -> None:
        """Without privacy a temperature contradicts no ε."""
        if self.epsilon == math.inf and self.temperature is not None:
            in_range(0.0, 1e10, temperature=self.temperature, closed="left")
            _fitting.check_budget(self, instead="_no_temperature")
        else:
            _fitting.check_budget(self, instead="temperature")

    _no_temperature = None

    def _configure(self, n_rows: int, one_epoch: bool) -> dp_sgld.DPSGLDConfig:
        """Check the parameters, fill in the defaults and solve for T, from public facts alone."""
        private = self.epsilon != math.inf
        default = dp_sgd.default_batch_size(n_rows, private=private) / n_rows
        rate = _fitting.sampling_rate(self, n_rows, default)
        n_steps = self._steps(n_rows, rate, private)
        one_of(ACCOUNTANTS, accountant=self.accountant)
        clip_norm = 1.0
        if self.clip_norm != "auto":
            clip_norm = positive("or 'auto'", clip_norm=self.clip_norm)
        clip_norm = clip_norm if private else math.inf
        burn_in = n_steps // 2
        if self.burn_in != "auto":
            burn_in = integer(0, "or 'auto'", burn_in=self.burn_in)
        thinning = dp_sgld.default_thinning(n_steps, burn_in)
        if self.thinning != "auto":
            thinning = integer(1, "or 'auto'", thinning=self.thinning)
        config = dp_sgld.DPSGLDConfig(
            n_rows=n_rows,
            n_steps=n_steps,
            sampling_rate=rate,
            clip_norm=clip_norm,
            temperature=1.0 if self.temperature is None else float(self.temperature),
            learning_rate=self._step_size(n_rows, n_steps, private),
            prior_scale=self.prior_scale,
            burn_in=burn_in,
            thinning=thinning,
            clipping=self.clipping,
            prenoise_scale=self.prenoise_scale,
            physical_batch_size=self.physical_batch_size,
            neighboring_relation=self.neighboring_relation,
        )
        if self.epsilon is None or not private:
            return config
        return config.calibrated(epsilon=self.epsilon, delta=self.delta, accountant=self.accountant)

    def _step_size(self, n_rows: int, n_steps: int, private: bool) -> Any:
        """Return step sizes that no longer ask the caller's function."""
        if callable(self.learning_rate):
            return step_sizes(cast(Any, self.learning_rate), n_steps).__getitem__
        scale = self.prior_scale
        if scale != float("inf"):
            scale = in_range(1e-100, 1e100, prior_scale=scale)
        initial = dp_sgld.default_learning_rate(n_rows, scale, private=private)
        if self.learning_rate != "auto":
            initial = positive("or 'auto', or a function", learning_rate=self.learning_rate)
        offset = n_steps / 3
        if self.decay_offset != "auto":
            offset = positive("or 'auto'", decay_offset=self.decay_offset)
        exponent = in_range(0.0, 1.0, decay_exponent=self.decay_exponent, closed="both")
        return PolynomialDecay(initial, offset, exponent)

    def _store(self, config: dp_sgld.DPSGLDConfig) -> None:
        self.temperature_ = config.temperature
        self.learning_rates_ = np.array(config.learning_rates)
        self.noise_multipliers_ = np.array(config.noise_multipliers)
        kept: Any = self._posterior
        self.posterior_samples_, self.posterior_steps_ = kept.members, kept.steps
        self.burn_in_ = config.burn_in
        self.clip_norm_ = config.clip_norm
        self.sampling_rate_ = config.sampling_rate


class DPSGLDClassifier(NetworkClassifier, DPSGLD):
    """Neural network classifier whose weights are sampled by DP-SGLD.

    A perceptron, or any torch module, whose iterates under stochastic gradient Langevin dynamics
    are private samples of its weights; predictions are averaged over them.

    The chain takes steps θ ← θ + η_t [(1/B) Σ clip(g_i) − ∇r(θ)/N] + N(0, 2Tη_t/N · I) on Poisson
    batches of expected size B of the N rows, with a Gaussian prior ∝ exp(−r). Its noise is both
    that of Langevin dynamics at temperature T and that of differential privacy: a budget buys a
    temperature. Predictions are averaged over the iterates kept after burn-in.

    **Privacy.** `fit` is (epsilon, delta)-differentially private under ``neighboring_relation``:
    all iterates, predictions and samples together, whether or not the chain has converged. The
    unit is a row. The guarantee is conditional on the public facts listed in
    ``privacy_.inferred_public_facts``, is *not* one for a seeded fit, and treats floating-point
    arithmetic as exact.

    Parameters
    ----------
    epsilon : float or None, default=1.0
        ε > 0. ``float("inf")`` is the ordinary, non-private fit. None with ``temperature``.
    delta : float, default=1e-5
        δ in (0, 1); should be well below 1/n.
    neighboring_relation : {"zero_out", "add_or_remove_one", "replace_one"}, default="zero_out"
        Who is a neighbour. Under ``"add_or_remove_one"`` the number of rows is private and
        ``n_samples`` must be given.
    temperature : float or None, default=None
        T > 0, instead of ``epsilon`` (pass ``epsilon=None``); the report then accounts for what was
        spent. With ``epsilon=float("inf")`` nothing is clipped, None is 1, the posterior itself,
        and 0 is gradient descent.
    hidden_layer_sizes : tuple of int, default=(100,)
        Neurons of the hidden layers; ``()`` is a linear model.
    activation : {"tanh", "relu", "gelu", "logistic", "identity"}, default="tanh"
        Of the hidden layers. Bounded ones lose less to clipping.
    module : nn.Module, callable or None, default=None
        A network instead of the perceptron, or a function of (n_features, n_outputs) that makes
        one. It gets rows (n, n_features) of floating-point numbers, also of integer X (start with
        ``nn.Unflatten`` for images, with ``x.long()`` for an `Embedding`), and returns logits
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
        Records that are worked on at once, for memory; None is 1024. Changes no result and no cost.
    mixed_precision : bool, default=False
        Run the network in bfloat16; norms, sums and noise stay in full precision.
    device : str, torch.device or None, default=None
        Where to train, e.g. ``"cuda"``; None is where the module's parameters are.
    classes : array-like of shape (n_classes,) or None, default=None
        The class labels, as a declared public fact. None reads them from y and says so in the
        report.
    n_samples : int or None, default=None
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

    def __init__(
        self,
        epsilon: float | None = 1.0,
        delta: float = 1e-5,
        *,
        neighboring_relation: str = "zero_out",
        temperature: float | None = None,
        hidden_layer_sizes: Any = (100,),
        activation: str = "tanh",
        module: Any = None,
        learning_rate: Any = "auto",
        decay_exponent: float = _DECAY_EXPONENT,
        decay_offset: float | str = "auto",
        prior_scale: float = 1.0,
        burn_in: int | str = "auto",
        thinning: int | str = "auto",
        prenoise_scale: float = 0.0,
        max_iter: int | str = "auto",
        epochs: float | None = None,
        batch_size: int | str = "auto",
        sampling_rate: float | None = None,
        clip_norm: float | str = "auto",
        clipping: str = "flat",
        accountant: str = "auto",
        physical_batch_size: int | None = None,
        mixed_precision: bool = False,
        device: Any = None,
        classes: Any = None,
        n_samples: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            epsilon,
            delta,
            neighboring_relation=neighboring_relation,
            temperature=temperature,
            hidden_layer_sizes=hidden_layer_sizes,
            activation=activation,
            module=module,
            learning_rate=learning_rate,
            decay_exponent=decay_exponent,
            decay_offset=decay_offset,
            prior_scale=prior_scale,
            burn_in=burn_in,
            thinning=thinning,
            prenoise_scale=prenoise_scale,
            max_iter=max_iter,
            epochs=epochs,
            batch_size=batch_size,
            sampling_rate=sampling_rate,
            clip_norm=clip_norm,
            clipping=clipping,
            accountant=accountant,
            physical_batch_size=physical_batch_size,
            mixed_precision=mixed_precision,
            device=device,
            n_samples=n_samples,
            random_state=random_state,
            verbose=verbose,
        )
        self.classes = classes

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
        return softmax(np.stack(list(self._outputs(X))), axis=-1)


class DPSGLDRegressor(NetworkRegressor, DPSGLD):
    """Neural network regressor whose weights are sampled by DP-SGLD.

    A perceptron, or any torch module, with normal errors of standard deviation 1 on the scale that
    the network works on; its iterates under stochastic gradient Langevin dynamics are private
    samples of its weights, and predictions are averaged over them.

    The chain takes steps θ ← θ + η_t [(1/B) Σ clip(g_i) − ∇r(θ)/N] + N(0, 2Tη_t/N · I) on Poisson
    batches of expected size B of the N rows, with a Gaussian prior ∝ exp(−r). Its noise is both
    that of Langevin dynamics at temperature T and that of differential privacy: a budget buys a
    temperature. Predictions are averaged over the iterates kept after burn-in.

    **Privacy.** `fit` is (epsilon, delta)-differentially private under ``neighboring_relation``:
    all iterates, predictions and samples together, whether or not the chain has converged. The
    unit is a row. The guarantee is conditional on the public facts listed in
    ``privacy_.inferred_public_facts``, is *not* one for a seeded fit, and treats floating-point
    arithmetic as exact.

    Parameters
    ----------
    epsilon : float or None, default=1.0
        ε > 0. ``float("inf")`` is the ordinary, non-private fit. None with ``temperature``.
    delta : float, default=1e-5
        δ in (0, 1); should be well below 1/n.
    neighboring_relation : {"zero_out", "add_or_remove_one", "replace_one"}, default="zero_out"
        Who is a neighbour. Under ``"add_or_remove_one"`` the number of rows is private and
        ``n_samples`` must be given.
    temperature : float or None, default=None
        T > 0, instead of ``epsilon`` (pass ``epsilon=None``); the report then accounts for what was
        spent. With ``epsilon=float("inf")`` nothing is clipped, None is 1, the posterior itself,
        and 0 is gradient descent.
    hidden_layer_sizes : tuple of int, default=(100,)
        Neurons of the hidden layers; ``()`` is a linear model.
    activation : {"tanh", "relu", "gelu", "logistic", "identity"}, default="tanh"
        Of the hidden layers. Bounded ones lose less to clipping.
    module : nn.Module, callable or None, default=None
        A network instead of the perceptron, or a function of (n_features, n_outputs) that makes
        one. It gets rows (n, n_features) of floating-point numbers, also of integer X (start with
        ``nn.Unflatten`` for images, with ``x.long()`` for an `Embedding`), and returns logits
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
        Records that are worked on at once, for memory; None is 1024. Changes no result and no cost.
    mixed_precision : bool, default=False
        Run the network in bfloat16; norms, sums and noise stay in full precision.
    device : str, torch.device or None, default=None
        Where to train, e.g. ``"cuda"``; None is where the module's parameters are.
    target_bounds : (float, float) or None, default=None
        Public bounds of the targets, to which they are clipped; the network then works on [-1, 1].
        None takes targets as they are, which should then be of the order of 1.
    n_samples : int or None, default=None
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

    def __init__(
        self,
        epsilon: float | None = 1.0,
        delta: float = 1e-5,
        *,
        neighboring_relation: str = "zero_out",
        temperature: float | None = None,
        hidden_layer_sizes: Any = (100,),
        activation: str = "tanh",
        module: Any = None,
        learning_rate: Any = "auto",
        decay_exponent: float = _DECAY_EXPONENT,
        decay_offset: float | str = "auto",
        prior_scale: float = 1.0,
        burn_in: int | str = "auto",
        thinning: int | str = "auto",
        prenoise_scale: float = 0.0,
        max_iter: int | str = "auto",
        epochs: float | None = None,
        batch_size: int | str = "auto",
        sampling_rate: float | None = None,
        clip_norm: float | str = "auto",
        clipping: str = "flat",
        accountant: str = "auto",
        physical_batch_size: int | None = None,
        mixed_precision: bool = False,
        device: Any = None,
        target_bounds: Any = None,
        n_samples: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            epsilon,
            delta,
            neighboring_relation=neighboring_relation,
            temperature=temperature,
            hidden_layer_sizes=hidden_layer_sizes,
            activation=activation,
            module=module,
            learning_rate=learning_rate,
            decay_exponent=decay_exponent,
            decay_offset=decay_offset,
            prior_scale=prior_scale,
            burn_in=burn_in,
            thinning=thinning,
            prenoise_scale=prenoise_scale,
            max_iter=max_iter,
            epochs=epochs,
            batch_size=batch_size,
            sampling_rate=sampling_rate,
            clip_norm=clip_norm,
            clipping=clipping,
            accountant=accountant,
            physical_batch_size=physical_batch_size,
            mixed_precision=mixed_precision,
            device=device,
            n_samples=n_samples,
            random_state=random_state,
            verbose=verbose,
        )
        self.target_bounds = target_bounds

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
        outputs = np.stack(list(self._outputs(X)))
        spread = self._targets(outputs).std(axis=0)
        return self._targets(outputs.mean(axis=0)), spread
