"""`DPSGLDClassifier` and `DPSGLDRegressor`: samples of a network's weights by DP-SGLD."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from skdp.algorithms.dp_sgld import DPSGLDConfig, default_learning_rate, default_thinning
from skdp.algorithms.parts.training import NetworkRun
from skdp.base import FitPlan, PublicFacts
from skdp.estimators._documented import documented
from skdp.estimators._network import NetworkEstimator
from skdp.estimators._network_tasks import NetworkClassifier, NetworkRegressor
from skdp.estimators._parameters import takes_parts
from skdp.fitting import declared
from skdp.fitting.validate import in_range, integer_or_auto, number_or_auto
from skdp.schedules import PolynomialDecay, step_sizes

if TYPE_CHECKING:
    from skdp.privacy.budget import Budget


@dataclass(eq=False, repr=False)
class DPSGLD(NetworkEstimator):
    """Parameters of DP-SGLD, and its configuration.

    **Privacy.** `fit` is (epsilon, delta)-differentially private under ``neighboring_relation``:
    all iterates, predictions and samples together, whether or not the chain has converged. The
    ``unit`` is a row, or a person with all of its rows. The guarantee is conditional on the public
    facts listed in ``privacy_.inferred_public_facts``, is *not* one for a seeded fit, and without
    ``secure`` treats floating-point arithmetic as exact.

    Parameters
    ----------
    epsilon : float or None, default=1.0
        ε > 0. ``float("inf")`` is the ordinary, non-private fit. None with ``temperature``.
    temperature : float or None, default=None
        T > 0, instead of ``epsilon`` (pass ``epsilon=None``); the report then accounts for what was
        spent. With ``epsilon=float("inf")`` nothing is clipped, None is 1, the posterior itself,
        and 0 is gradient descent.
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
    accountant : {"auto", "gdp", "pld", "rdp", "gdp_clt"}, default="auto"
        See `skdp.privacy.epsilon`.

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

    Notes
    -----
    The chain takes steps θ ← θ + η_t [(1/B) Σ clip(g_i) − ∇r(θ)/N] + N(0, 2Tη_t/N · I) on Poisson
    batches of expected size B of the N rows, with a Gaussian prior ∝ exp(−r). Its noise is both
    that of Langevin dynamics at temperature T and that of differential privacy: the budget sets the
    temperature. Predictions are averaged over the iterates kept after burn-in.

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


@documented
@takes_parts
@dataclass(eq=False, repr=False)
class DPSGLDClassifier(NetworkClassifier, DPSGLD):
    """Neural network classifier whose weights are sampled by DP-SGLD.

    A perceptron, or any torch module, whose iterates under stochastic gradient Langevin dynamics
    are private samples of its weights; predictions are averaged over them.

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


@documented
@takes_parts
@dataclass(eq=False, repr=False)
class DPSGLDRegressor(NetworkRegressor, DPSGLD):
    """Neural network regressor whose weights are sampled by DP-SGLD.

    A perceptron, or any torch module, with normal errors of standard deviation 1 on the scale that
    the network works on; its iterates under stochastic gradient Langevin dynamics are private
    samples of its weights, and predictions are averaged over them.

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
