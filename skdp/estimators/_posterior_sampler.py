"""What the posterior samplers share: the plan from public facts, the budget, the samples."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted

from skdp import _fitting
from skdp._bounded_sum import MAX_ROWS
from skdp._fitting import CallbackSupportMixin
from skdp._input import check_features
from skdp._random import Streams
from skdp._validate import expected, flag, in_range, integer, is_real, one_of, positive
from skdp._warnings import PrivacyWarning
from skdp.algorithms import langevin, ops
from skdp.algorithms.tempered import TemperedPosterior, clipped_rows, row_bound
from skdp.models.likelihoods import LogConcave
from skdp.privacy.accounting import epsilon_of_event
from skdp.privacy.gdp import epsilon_to_gdp
from skdp.privacy.ledger import BudgetExceededError
from skdp.privacy.posterior_samples import posterior_samples_epsilon, posterior_samples_range
from skdp.relations import ADD_OR_REMOVE_ONE

SAMPLERS = ("auto", "langevin", *ops.SAMPLERS)


class PosteriorSampler(CallbackSupportMixin, BaseEstimator):
    """What the two share: the plan from public facts, the budget, the samples."""

    n_features_in_: int
    classes_: Any
    privacy_: Any

    def __init__(
        self,
        *,
        epsilon,
        delta,
        n_posterior_samples,
        sampler,
        neighboring_relation,
        prior_scale,
        data_norm,
        theta_norm,
        fit_intercept,
        likelihood_power,
        step_size,
        max_iter,
        batch_size,
        n_samples,
        random_state,
        verbose,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.n_posterior_samples = n_posterior_samples
        self.sampler = sampler
        self.neighboring_relation = neighboring_relation
        self.prior_scale = prior_scale
        self.data_norm = data_norm
        self.theta_norm = theta_norm
        self.fit_intercept = fit_intercept
        self.likelihood_power = likelihood_power
        self.step_size = step_size
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.n_samples = n_samples
        self.random_state = random_state
        self.verbose = verbose

    def _draw(self, X: np.ndarray, targets: np.ndarray, likelihood: LogConcave) -> None:
        """Plan from public facts, spend, draw."""
        config = self._configure(X, likelihood)
        is_chain = isinstance(config, langevin.LangevinConfig)
        _check_duration(config.seconds, is_chain)
        if is_chain and len(X) > config.n_rows:
            raise expected(
                "at least the number of rows",
                "the certificate of the Langevin sampler holds for that many rows at most",
                n_samples=self.n_samples,
            )
        progress = _fitting.progress(self, config.n_epochs if is_chain else config.n_samples)

        self.privacy_ = _fitting.spend(self, config.event(), config.sampling)
        streams = _fitting.streams(self, X, targets)
        sample: Any = langevin.sample if is_chain else ops.sample
        self._store(sample(config, X, targets, streams, progress), config)

    def diagnose_convergence(self, X, y, n_chains: int = 4, n_passes: int | None = None) -> Any:
        """Show chains of the Langevin sampler on rows that may be seen: **not private**.

        A released sample says nothing about whether its chain had come close to the posterior, and
        looking at the chain on private rows would void the certificate. Run this on public or
        synthetic rows of the same size instead, or where the guarantee is of no concern. The
        estimator, fitted or not, is left as it is, and no ledger is charged.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows that may be seen.
        y : array-like of shape (n_samples,)
            Their labels or targets.
        n_chains : int, default=4
            Chains ≥ 2, each as `fit` would run one.
        n_passes : int or None, default=None
            Passes ≥ 1 to show; None is twice what `fit` makes, so that the second half shows what
            the first was heading for.

        Returns
        -------
        arviz.InferenceData
            Its group ``posterior`` holds ``theta`` (chain, draw, parameter), a draw a pass, for
            ``arviz.rhat``, ``arviz.ess``, ``arviz.plot_trace``. Its attributes say ``private=0``
            and after which pass ``fit`` would stop.

        Raises
        ------
        ValueError
            If the sampler is an exact one, or a parameter or the input is invalid.
        ImportError
            If ArviZ is not installed.
        """
        import arviz

        other: Any = clone(self)
        X, targets, likelihood = other._prepare(X, y)
        config = other._configure(X, likelihood)
        if not isinstance(config, langevin.LangevinConfig):
            raise expected("'langevin'", "exact draws need no diagnosis", sampler=self.sampler)
        n_chains = integer(2, n_chains=n_chains)
        if n_passes is None:
            n_passes = 2 * config.n_epochs
        shown = replace(config, n_chains=n_chains, n_epochs=integer(1, n_passes=n_passes))
        warnings.warn(
            "diagnose_convergence shows every state of its chains: what it returns is not private.",
            PrivacyWarning,
            stacklevel=2,
        )
        path = np.stack(list(langevin.states(shown, X, targets, Streams())), axis=1)
        data = arviz.from_dict(posterior={"theta": path.reshape(n_chains, n_passes, -1)})
        data["posterior"].attrs.update(private=0, passes_of_fit=config.n_epochs)
        return data

    def _prepare(self, X: Any, y: Any) -> tuple[np.ndarray, np.ndarray, LogConcave]:
        """Check parameters and data; return rows, targets and their likelihood."""
        raise NotImplementedError

    def _configure(self, X: np.ndarray, likelihood: LogConcave) -> Any:
        """Check the parameters and fill in the defaults, from the shape of X and public facts."""
        n_rows, n_features = _fitting.public_n_rows(self, X), X.shape[1]
        k = integer(1, n_posterior_samples=self.n_posterior_samples)
        if n_rows > MAX_ROWS:
            raise expected(f"at most {MAX_ROWS}", n_samples=self.n_samples)
        flag(fit_intercept=self.fit_intercept)
        data_norm = bounded_or_auto(_fitting.auto_norm(X), data_norm=self.data_norm)
        R = row_bound(data_norm, self.fit_intercept)
        n_parameters = likelihood.n_outputs * (n_features + bool(self.fit_intercept))
        exact = self._is_exact()
        eta, mu = math.inf, math.inf
        if self.epsilon is not None and self.epsilon != math.inf:
            if exact:
                eta = posterior_samples_range(epsilon=self.epsilon, n_samples=k, delta=self.delta)
            else:
                mu = epsilon_to_gdp(self.epsilon, self.delta)
        D = ops.default_theta_norm(R, n_rows, n_parameters, eta) if exact else math.inf
        if exact:
            remedy = "on an unbounded domain an exact sample has no such guarantee"
            D = bounded_or_auto(D, remedy, theta_norm=self.theta_norm)
        elif not (is_real(self.theta_norm) and self.theta_norm == math.inf):
            D = bounded_or_auto(D, "or float('inf')", theta_norm=self.theta_norm)
        # A budget is what makes many samples flat; without one they need no wide prior.
        τ = langevin.default_prior_scale(R, n_parameters, 1 if math.isinf(mu) else k)
        if exact:
            τ = ops.default_prior_scale(R, D, n_parameters)
        target = TemperedPosterior(
            likelihood=likelihood,
            n_features=n_features,
            fit_intercept=bool(self.fit_intercept),
            data_norm=data_norm,
            prior_scale=bounded_or_auto(τ, prior_scale=self.prior_scale),
            theta_norm=D,
            neighboring_relation=self.neighboring_relation,
        )
        if exact:
            return self._exact(target, n_rows, k, eta)
        batch_size = _none_if_auto(_at_least_one, batch_size=self.batch_size)
        if self.neighboring_relation == ADD_OR_REMOVE_ONE and (batch_size or n_rows) < n_rows:
            remedy = "a fixed partition does not survive adding a record"
            raise expected("'auto' under 'add_or_remove_one'", remedy, batch_size=batch_size)
        return langevin.plan(
            target,
            n_rows=n_rows,
            n_chains=k,
            likelihood_power=self._given_power(),
            mu=mu,
            step_size=_none_if_auto(positive, step_size=self.step_size),
            n_epochs=_none_if_auto(_at_least_one, max_iter=self.max_iter),
            batch_size=batch_size,
        )

    def _is_exact(self) -> bool:
        one_of(SAMPLERS, sampler=self.sampler)
        exact = self.sampler in ops.SAMPLERS or (self.sampler == "auto" and self.delta == 0)
        if not exact and self.delta == 0:
            raise expected(
                "'auto', 'rejection' or 'proximal' where delta=0",
                "a Langevin chain has no pure guarantee",
                sampler=self.sampler,
            )
        for name in ("step_size", "max_iter", "batch_size") if exact else ():
            if not _is_auto(getattr(self, name)):
                remedy = "it is for 'langevin' alone"
                raise expected("'auto'", remedy, **{name: getattr(self, name)})
        return exact

    def _exact(self, target: TemperedPosterior, n_rows: int, k: int, eta: float) -> ops.ExactConfig:
        def power(sampler: str) -> float:
            return self._given_power() or ops.affordable_power(target, eta, sampler)

        sampler = self.sampler
        if sampler == "auto":
            sampler = ops.default_sampler(target, power("rejection"), n_rows)
        config = ops.ExactConfig(target, power(sampler), k, sampler, n_rows)
        step = 2.0**-52
        while math.isfinite(eta) and self._costs(config) > self.epsilon:  # a rounding too many
            config = replace(config, likelihood_power=config.likelihood_power * (1 - step))
            step *= 4
        return config

    def _costs(self, config: ops.ExactConfig) -> float:
        once = posterior_samples_epsilon(
            eta=config.eta, n_samples=config.n_samples, delta=self.delta
        )
        return once * (1 + 2e-15)  # as the accountant rounds

    def _given_power(self) -> float | None:
        if self.likelihood_power is None:
            return None
        return in_range(0.0, 1.0, closed="right", likelihood_power=self.likelihood_power)

    def _store(self, samples: np.ndarray, config: Any) -> None:
        posterior = config.posterior
        self._samples, self._config = samples, config
        self.likelihood_power_ = config.likelihood_power
        self.effective_n_samples_ = config.likelihood_power * config.n_rows
        self.sampler_ = getattr(config, "sampler", "langevin")
        self.n_iter_ = getattr(config, "n_epochs", 1)
        self.data_norm_ = posterior.data_norm
        self.prior_scale_ = posterior.prior_scale
        self.theta_norm_ = posterior.theta_norm

    @property
    def _mean(self) -> tuple[np.ndarray, np.ndarray]:
        """Coefficients (K, n_features) and intercepts (K,), averaged over the samples."""
        mean = self._samples.mean(axis=0)
        coefficients = mean[:, : self.n_features_in_]
        if self._config.posterior.fit_intercept:
            return coefficients, mean[:, -1]
        return coefficients, np.zeros(len(mean))

    @property
    def parameter_names_(self) -> list[str]:
        """Names of the columns of `sample_posterior`: the outputs in turn, intercept last."""
        check_is_fitted(self)
        features = getattr(self, "feature_names_in_", None)
        if features is None:
            features = [f"x{i}" for i in range(self.n_features_in_)]
        names = [*features, "intercept"][: self._samples.shape[2]]
        if self._samples.shape[1] == 1:
            return names
        return [f"{label}: {name}" for label in self.classes_ for name in names]

    def sample_posterior(
        self, n_samples: int | None = None, random_state: Any = None
    ) -> np.ndarray:
        """Return the posterior samples that were paid for.

        Parameters
        ----------
        n_samples : int or None, default=None
            How many, from the first; None for all.
        random_state : None
            Ignored, for the interface that all posteriors share: the samples have been drawn.

        Returns
        -------
        ndarray of shape (n_samples, n_parameters)
            Columns as in ``parameter_names_``.

        Raises
        ------
        BudgetExceededError
            If more samples are asked for than ``n_posterior_samples``. Each sample is a release of
            its own; the message says what so many would have cost.
        """
        draws = self._paid(n_samples)
        return draws.reshape(len(draws), -1).copy()

    def _paid(self, n_samples: int | None) -> np.ndarray:
        check_is_fitted(self)
        paid = len(self._samples)
        wanted = paid if n_samples is None else integer(1, "or None", n_samples=n_samples)
        if wanted > paid:
            count = "n_chains" if self.sampler_ == "langevin" else "n_samples"
            config, report, bound = replace(self._config, **{count: wanted}), self.privacy_, ""
            if count == "n_samples" and wanted > 1000:  # the exact curve would take minutes
                cost, bound = wanted * config.eta, "at most "
            else:
                cost = epsilon_of_event(config.event(), report.delta, report.neighboring_relation)
            raise BudgetExceededError(
                f"{wanted} posterior samples were asked for and {paid} paid for. {wanted} samples "
                f"of this posterior would have cost {bound}epsilon={cost:.4g} at "
                f"delta={report.delta:g} instead of epsilon={report.epsilon:.4g}; fit again with "
                f"n_posterior_samples={wanted}, a further release, or see those that there are."
            )
        return self._samples[:wanted]

    def _logits(self, X: Any, n_samples: int | None = None) -> np.ndarray:
        """(n_samples, n, K)."""
        draws = self._paid(n_samples)
        X = check_features(self, X, reset=False)
        posterior = self._config.posterior
        rows = clipped_rows(X, posterior.data_norm, fit_intercept=posterior.fit_intercept)
        return np.einsum("nd,skd->snk", rows, draws, optimize=True)


def _check_duration(seconds: float, is_chain: bool) -> None:
    """Warn of a long run, and refuse one without end, before anything is spent."""
    how = "Fewer rows, a smaller prior_scale, epsilon or n_posterior_samples make it shorter; so "
    how += "does a smaller max_iter" if is_chain else "do delta > 0 and sampler='langevin'"
    if not seconds < 1e8:
        raise ValueError(f"This fit would take years. {how}.")
    if seconds > 600:
        warnings.warn(
            f"This fit may take as long as {seconds / 60:.0f} minutes. {how}.", stacklevel=4
        )


def _is_auto(value: Any) -> bool:
    return isinstance(value, str) and value == "auto"


def _at_least_one(**kw: Any) -> int:
    return integer(1, "or 'auto'", **kw)


def _none_if_auto(check: Any, **kw: Any) -> Any:
    ((_, value),) = kw.items()
    return None if _is_auto(value) else check(**kw)


def bounded_or_auto(default: float, remedy: str = "", **kw: Any) -> float:
    """Check a number > 0, or take the default for ``"auto"``."""
    ((_, value),) = kw.items()
    if _is_auto(value):
        return default
    # Squares of numbers beyond these leave the range of a double, and a bound would bound nothing.
    return in_range(1e-100, 1e100, f"or 'auto'{remedy and '; '}{remedy}", closed="both", **kw)
