"""Parameters of a model that the user writes, what they say of a run, and trials of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
import torch

from skdp.algorithms import dp_vi_model
from skdp.algorithms.simulated_clip import N_ROWS, simulated_clip
from skdp.algorithms.user_model import defaults
from skdp.estimators import _doubts
from skdp.estimators._parameters import FitParameters, Resumable
from skdp.fitting.declared import sampling_rate
from skdp.fitting.input import check_features, check_features_and_targets
from skdp.fitting.plan import FitPlan, PublicFacts
from skdp.fitting.reading import ProtectedUnit, Records
from skdp.fitting.validate import (
    expected,
    integer,
    integer_or_auto,
    near_auto,
    number_or_auto,
    one_of,
)
from skdp.models.user_models import N_MADE_UP, Simulator, UserModel, made_up_records, takes_targets
from skdp.models.user_priors import Prior
from skdp.privacy.budget import Budget


@dataclass(eq=False, repr=False)
class ModelEstimator(ProtectedUnit, Resumable, FitParameters):
    """A fit of any log-likelihood.

    Parameters
    ----------
    log_likelihood : callable
        ``log_likelihood(theta, x)``, or ``log_likelihood(theta, x, y)`` for `fit` with y:
        maps parameters (n_parameters,) and rows (n, n_features), float64 torch tensors, to
        log-densities (n,). Written in torch, differentiable in theta, without ``.item()``, changes
        in place, branches on values and random numbers. The log-density of a record must not depend
        on the others: a mixture over records' hidden classes sums them out. Integer y are int64.
        Parameters live on all of R^n: exponentiate those that must be positive, take the softmax of
        weights, and scale them to be of the order of 1.
    n_parameters : int
        Length of theta.
    prior : float, list of float, torch.distributions.Distribution or callable, default=1.0
        A float s is N(0, s² I), a list has one s > 0 per parameter. A distribution is over
        R^n_parameters, or over numbers that are then independent; the noise-aware posterior takes
        its mean and covariance for a normal's. A callable maps theta to its log-density, and needs
        ``inference="dpvi"``.
    inference : {"noise_aware", "dpvi"}, default="noise_aware"
        ``"noise_aware"`` spends 8 % of the releases on the curvature of the log-likelihood, and is
        the posterior given the noisy releases, linearised at their mean. ``"dpvi"`` is the
        variational posterior, which does not account for the noise. Without privacy both are the
        same.
    covariance : {"full", "diag"}, default="full"
        Of the posterior.
    data_norm : float or None, default=None
        Euclidean norm > 0 to which rows are clipped, in `fit` and in scoring. None leaves them as
        they are: the gradients are clipped anyway.
    max_iter : int or "auto", default="auto"
        Number of noisy releases, all with the same noise multiplier, those on the clip included:
        2 % of them learn it where it is "auto", from 20 releases on, and 2 % count clipped records
        at the end (at least one, but for runs of one or two releases). ``"auto"`` is 150; without
        privacy 1000.
    batch_size : int or "auto", default="auto"
        Expected number of rows in a Poisson batch. ``"auto"`` reads all rows in each step while
        rows x parameters is at most 2e6.
    sampling_rate : float or None, default=None
        Poisson sampling rate in (0, 1], instead of ``batch_size``; 1 is the full batch.
    clip_norm : float or "auto", default="auto"
        Norm > 0 to which each record's gradient is clipped. ``"auto"`` starts at 2√n_parameters,
        or with ``simulate`` at the length of gradients of synthetic rows, and is learned after two
        fifths of the run from a noisy histogram of lengths. Without privacy nothing is clipped.
        Where many gradients are longer the posterior is biased, and the fit warns.
    learning_rate : float or "auto", default="auto"
        Step size > 0 of the posterior mean, in the units of theta. ``"auto"`` is at most 0.1.
    initial_mean : array-like of shape (n_parameters,) or None, default=None
        Where to start; not from the private rows. None is the prior's mean, or zero. Parameters
        that could be exchanged, as the components of a mixture, must not start equal.
    initial_scale : float or "auto", default="auto"
        Posterior standard deviation > 0 to start with. ``"auto"`` is min(.3, √(5 n_parameters /
        n_samples)).
    noise_multiplier : float or None, default=None
        Standard deviation > 0 of the noise over the clipping norm, instead of ``epsilon`` (pass
        ``epsilon=None``); the report then accounts for what was spent.
    accountant : {"auto", "gdp", "pld", "rdp"}, default="auto"
        See `skdp.privacy.epsilon`.
    parameter_names : list of str or None, default=None
        Names of theta; None is theta0, theta1 and so on.
    example_rows : array-like, (X, y) or None, default=None
        A few public or synthetic records on which ``log_likelihood`` is tried before anything is
        spent, and that ``simulate`` is given. None makes up standard normal rows, with standard
        normal or 0-1 targets.
    simulate : callable or None, default=None
        ``simulate(theta, x, generator)`` draws targets (m,) of rows x (m, n_features) at parameters
        (n_parameters,), with all randomness from the `torch.Generator`. It is for `fit` with y, and
        never sees private rows in `fit`. It gives `sample_predictive`, `sample_prior_predictive`,
        checks by `to_arviz`, and a better clip to start with.
    """

    log_likelihood: Any
    n_parameters: int
    prior: Any = 1.0
    epsilon: float | None = 1.0
    delta: float = 1e-5
    _: KW_ONLY
    inference: str = "noise_aware"
    covariance: str = "full"
    data_norm: float | None = None
    max_iter: int | str = "auto"
    batch_size: int | str = "auto"
    sampling_rate: float | None = None
    clip_norm: float | str = "auto"
    learning_rate: float | str = "auto"
    initial_mean: Any = None
    initial_scale: float | str = "auto"
    noise_multiplier: float | None = None
    accountant: str = "auto"
    parameter_names: Any = None
    example_rows: Any = None
    simulate: Any = None

    def _read(self, X: Any, y: Any) -> tuple[Records, PublicFacts]:
        supervised = self._takes_targets() and y is not None
        records = self._records(X, y if supervised else None, reset=True)
        return records, self._facts_of(records.X, int(supervised))

    def _n_outputs(self, classes: Any) -> int:
        return int(self._takes_targets())

    def _takes_targets(self) -> bool:
        function: Any = self.log_likelihood
        if not callable(function):
            raise expected("a function of (theta, x) or (theta, x, y)", log_likelihood=function)
        return takes_targets(function)

    def _records(self, X: Any, y: Any, *, reset: bool) -> Records:
        """Check rows and targets; zeros stand for targets that the function does not take."""
        if y is None:
            X = check_features(self, X, reset=reset)
            return Records(X, np.zeros(len(X)))
        X, targets = check_features_and_targets(self, X, y, multi_output=False, reset=reset)
        # The type of an array is declared; that of a list would depend on each of its values.
        integers = getattr(getattr(y, "dtype", None), "kind", "f") in "biu"
        with np.errstate(invalid="ignore"):
            return Records(X, targets.astype(np.int64 if integers else np.float64))

    def _configure(self, facts: PublicFacts, budget: Budget) -> dp_vi_model.ModelConfig:
        one_of(("noise_aware", "dpvi"), inference=self.inference)
        private, n = budget.private, facts.rows
        noise_aware = private and self.inference == "noise_aware"
        P = integer(1, n_parameters=self.n_parameters)
        self._names(P)
        prior = Prior.of(self.prior, P)
        if noise_aware and prior.covariance is None:
            raise expected(
                "a scale, or a torch distribution with mean and variance",
                "the noise-aware posterior returns to them as epsilon falls; use inference='dpvi' "
                "for a function",
                prior=self.prior,
            )
        n_releases = defaults.STEPS if private else defaults.STEPS_WITHOUT_NOISE
        n_releases = integer_or_auto(n_releases, 1 + noise_aware, max_iter=self.max_iter)
        model = UserModel(self.log_likelihood, P, supervised=facts.outputs > 0)
        start = self._initial_mean(prior)
        others = self._other_steps(n_releases, facts, private, noise_aware)
        return dp_vi_model.ModelConfig(
            model=model,
            prior=prior,
            n_rows=n,
            initial_mean=start,
            initial_scale=number_or_auto(
                defaults.default_initial_scale(n, P), initial_scale=self.initial_scale
            ),
            n_steps=n_releases - sum(others.values()),
            **others,
            sampling_rate=sampling_rate(
                self, facts, lambda n: defaults.default_sampling_rate(n, P)
            ),
            clip_norm=self._clip_norm(model, prior, start, facts, private=private),
            given_learning_rate=number_or_auto(0.0, learning_rate=self.learning_rate) or None,
            covariance=self.covariance,
            data_norm=self.data_norm,
            persons=facts.persons,
            neighboring_relation=self._relation,
        ).calibrated(budget)

    def _other_steps(
        self, n_releases: int, facts: PublicFacts, private: bool, noise_aware: bool
    ) -> dict[str, Any]:
        """Return how many releases are of curvatures, of lengths and of persons."""
        if not private:
            return {"n_curvature_steps": 0}
        n = max(1, round(defaults.LENGTH_SHARE * n_releases))
        learns = self.clip_norm == "auto" and n_releases >= defaults.LEAST_STEPS_TO_LEARN
        steps = {
            "n_curvature_steps": noise_aware * max(1, round(defaults.CURVATURE_SHARE * n_releases)),
            "n_clip_steps": learns * n,
            "n_check_steps": min(n, n_releases - 1 - noise_aware),
        }
        if noise_aware and facts.persons is not None and facts.persons.rows_per_group > 1.0:
            left = n_releases - sum(steps.values()) - 1
            steps["n_person_steps"] = max(0, min(steps["n_check_steps"], left))
        return steps

    def _clip_norm(
        self,
        model: UserModel,
        prior: Prior,
        start: np.ndarray,
        facts: PublicFacts,
        *,
        private: bool,
    ) -> float:
        """Return the clip that a run starts with: given, from synthetic rows, or by default."""
        simulator = self._simulator(supervised=model.supervised)
        default = defaults.default_clip_norm(model.n_parameters, private=private)
        if private and simulator is not None and self.clip_norm == "auto":
            x = self._synthetic_rows(facts.features)
            default = simulated_clip(model, simulator, prior, start, x) or default
        return near_auto(default, math.inf, clip_norm=self.clip_norm)

    def _simulator(self, *, supervised: bool = True) -> Simulator | None:
        if self.simulate is None:
            return None
        if not supervised:
            raise expected(
                "None where log_likelihood takes no y, or fit is given none",
                "it draws y",
                simulate=self.simulate,
            )
        return Simulator(self.simulate)

    def _synthetic_rows(self, n_features: int) -> torch.Tensor:
        """Rows from a fixed public stream: the examples in turn, or uniform in [-1, 1]."""
        x = self._example_rows(n_features)
        if x is None:
            generator = torch.Generator().manual_seed(0)
            x = 2 * torch.rand((N_ROWS, n_features), generator=generator, dtype=torch.float64) - 1
        else:
            x = x[torch.arange(N_ROWS) % len(x)]
        return torch.from_numpy(dp_vi_model.bounded(x.numpy(), self.data_norm))

    def _initial_mean(self, prior: Prior) -> np.ndarray:
        if self.initial_mean is None:
            return prior.start.numpy()
        mean = _array(self.initial_mean)
        if mean is None or mean.shape != prior.start.shape or not np.isfinite(mean).all():
            raise expected(
                f"None or {len(prior.start)} finite numbers", initial_mean=self.initial_mean
            )
        return mean

    def _names(self, n_parameters: int) -> list[str]:
        if self.parameter_names is None:
            return [f"theta{i}" for i in range(n_parameters)]
        listed = isinstance(self.parameter_names, list | tuple | np.ndarray)
        names = [str(name) for name in self.parameter_names] if listed else []
        if len(names) != n_parameters:
            raise expected(f"None or {n_parameters} names", parameter_names=self.parameter_names)
        return names

    def _prepared(self, plan: FitPlan, records: Records, around: Any) -> Callable[..., Any]:
        """Try the function before anything is spent, on synthetic records."""
        config: dp_vi_model.ModelConfig = plan.config
        start = torch.from_numpy(config.initial_mean)
        x, y = self._examples(plan.facts.features, integers=records.targets.dtype.kind == "i")
        rows = torch.from_numpy(dp_vi_model.bounded(x.numpy(), config.data_norm))
        simulator = self._simulator(supervised=config.model.supervised)
        if simulator is not None:
            simulator.check(config.model, start, rows)
            if not isinstance(self.example_rows, tuple):
                drawn = simulator.targets(start, rows, torch.Generator().manual_seed(0))
                y = drawn.to(y.dtype)
        config.model.check(start, rows, y)
        return config.run

    def _example_rows(self, n_features: int) -> torch.Tensor | None:
        """Rows that were given."""
        if self.example_rows is None:
            return None
        pair = isinstance(self.example_rows, tuple)
        rows = _array(self.example_rows[0] if pair else self.example_rows)
        if rows is None or rows.ndim != 2 or rows.shape[1] != n_features or len(rows) < 2:
            raise expected(
                f"None, at least 2 rows of {n_features} features, or such rows and targets",
                example_rows=self.example_rows,
            )
        return torch.from_numpy(rows)

    def _examples(self, n_features: int, *, integers: bool) -> tuple[torch.Tensor, torch.Tensor]:
        """Synthetic rows and targets, or those that were given."""
        x, y = made_up_records(N_MADE_UP, n_features, integers=integers)
        rows = self._example_rows(n_features)
        if rows is None:
            return x, y
        pair = isinstance(self.example_rows, tuple)
        targets = _array(self.example_rows[1]) if pair else np.arange(len(rows)) % 2
        if targets is None or targets.shape != (len(rows),):
            raise expected("rows and one target for each", example_rows=self.example_rows)
        return rows, torch.from_numpy(targets).to(y.dtype)

    def _keep(self, plan: FitPlan, released: dp_vi_model.ModelPosterior) -> None:
        config: dp_vi_model.ModelConfig = plan.config
        self._model, self._posterior, self.mean_ = config.model, released, released.mean
        self.parameter_names_ = self._names(config.n_parameters)
        self.n_iter_ = config.n_releases
        self.noise_multiplier_ = config.noise_multiplier
        self.learning_rate_ = config.learning_rate
        self.sampling_rate_ = config.sampling_rate
        clipping = released.clipping
        self.clip_norm_ = clipping.clip_norm
        self.clipped_share_, self.clipped_share_noise_ = clipping.share, clipping.noise
        path = released.path
        self.posterior_steps_, self.posterior_means_, self.burn_in_ = path

    def _diagnosed(self, plan: FitPlan, released: dp_vi_model.ModelPosterior) -> tuple[str, ...]:
        return _doubts.of_model(plan.config, released)


def _array(value: Any) -> np.ndarray | None:
    """Copy numbers into an array; None if they are none."""
    try:
        return np.array(value, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        return None
