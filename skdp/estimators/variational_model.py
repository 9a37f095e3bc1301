"""`DPVariationalModel`: private variational inference for a model that the user writes.

>>> import numpy as np
>>> import torch
>>> from skdp import DPVariationalModel
>>> def log_likelihood(theta, x):  # a normal with unknown mean and scale
...     z = (x[:, 0] - theta[0]) / theta[1].exp()
...     return -0.5 * z**2 - theta[1]
>>> X = np.random.default_rng(0).normal(1.0, 2.0, (2000, 1))
>>> model = DPVariationalModel(
...     log_likelihood, 2, prior=3.0, n_samples=2000, parameter_names=["mean", "log scale"]
... ).fit(X)
>>> bool(abs(model.mean_[0] - 1.0) < 0.5)
True
>>> print(f"{model.privacy_.epsilon:.3f}")
1.000
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
import torch
from scipy.special import logsumexp
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from skdp.algorithms import dp_vi_model
from skdp.algorithms.simulated_clip import N_ROWS, simulated_clip
from skdp.estimators._arviz import GaussianDraws
from skdp.fitting.checkpoint import EVERY
from skdp.fitting.declared import sampling_rate
from skdp.fitting.estimator import PrivateEstimator
from skdp.fitting.input import check_features, check_features_and_targets
from skdp.fitting.plan import FitPlan, PublicFacts
from skdp.fitting.reading import ProtectedUnit, Records
from skdp.fitting.scores import mean_of_blocks
from skdp.fitting.validate import (
    expected,
    integer,
    integer_or_auto,
    is_dask,
    near_auto,
    number_or_auto,
    one_of,
)
from skdp.models.user_models import (
    N_MADE_UP,
    Prior,
    Simulator,
    UserModel,
    made_up_records,
    takes_targets,
)
from skdp.privacy.budget import Budget

_N_PREDICTIVE_DRAWS = 200
_MANY_CLIPPED = 0.03  # of the records; a posterior without them is off by about its deviation
_CLEARLY = 3.5  # standard deviations of the noise
# Of what steps of one sign come to in the later half of a run, and deviations of the posterior that
# its mean is off the run's: .04 and 1 by default, .5 and more or 8 with a fifth of steps or rate.
_ONE_WAY, _FAR_OFF = 0.5, 5.0
_MUCH_WIDER = 1.2  # posterior deviation over that of the prior, from which on a fit says so
_MANY_HIDDEN = 0.25  # of the directions of theta


@dataclass(eq=False, repr=False)
class DPVariationalModel(GaussianDraws, ProtectedUnit, PrivateEstimator):
    """Bayesian inference for any log-likelihood, by differentially private variational inference.

    Approximates the posterior of the parameters of a model by a Gaussian, from noisy sums of
    clipped per-record gradients that torch takes of the user's function (DPVI with aligned
    gradients). The prior's gradient is exact and never clipped.

    **Privacy.** `fit` is (epsilon, delta)-differentially private under ``neighboring_relation``:
    the posterior, every posterior sample and every score of public rows together. The unit is a
    row, or with ``unit="group"`` a person with all of its rows. The guarantee covers one fit; each
    further fit on the same rows is a further release. It is conditional on the public facts listed
    in ``privacy_.inferred_public_facts``, on ``log_likelihood`` being a function of its arguments
    alone that keeps nothing, is *not* one for a seeded fit, and treats floating-point Gaussian
    noise as exact.

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
        Above 0, a progress bar over the steps (needs tqdm).

    Attributes
    ----------
    mean_ : ndarray of shape (n_parameters,)
        Posterior mean.
    covariance_ : ndarray of shape (n_parameters, n_parameters)
        Posterior covariance.
    parameter_names_ : list of str
        Names of the columns of `sample_posterior`.
    n_iter_ : int
        Number of noisy releases.
    noise_multiplier_ : float
        Standard deviation of the noise over the clipping norm.
    clip_norm_, learning_rate_, sampling_rate_ : float
        The values used; a clip that was learned is the last one.
    clipped_share_ : float
        Noisy share of records whose gradient at the posterior mean is longer than ``clip_norm_``;
        it may be below 0. NaN without privacy.
    clipped_share_noise_ : float
        Standard deviation of its noise.
    posterior_steps_ : ndarray of shape (n_kept,)
        Numbers of releases after which means were kept: at most about 200, evenly spaced.
    posterior_means_ : ndarray of shape (n_kept, n_parameters)
        Means along the run, for `skdp.displays.TraceDisplay`; they are functions of what was
        released.
    burn_in_ : int
        Releases before those that the posterior is made of.
    diagnostics_ : tuple of str
        What the released values tell against the fit; each is given as a `FitWarning`, too.
    privacy_ : PrivacyReport
        The privacy statement of this fit.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Feature names, where X had any.

    See Also
    --------
    DPVariationalLogisticRegression : Faster and sharper for classes.

    Notes
    -----
    A record at which the function fails, or whose gradient is not finite, contributes nothing.

    With ``unit="group"`` a person contributes the sum of its rows' gradients, clipped to
    ``group_clip`` times ``clip_norm``, and it is persons who are sampled; a person's share of the
    curvature is at most that of ``rows_per_group`` rows. Rows of a person vary together: a few
    releases measure by how much the sum of gradients varies more than it would if they did not, and
    the noise-aware posterior is wider by that, by the same factor in all directions.

    At the maximum of the likelihood gradients sum to 0; clipped ones miss what the long ones have
    beyond the clip, and where these point one way, as those of a scale do, the posterior is off by
    the curvature's inverse times that, at any epsilon. So the last releases count the records with
    gradients longer than the clip: where they are many, ``diagnostics_`` and a `FitWarning` say so
    and which clip to give. Where noise hides the curvature in some directions of theta while others
    are well known, they say that intervals of weakly identified parameters may be too narrow.

    References
    ----------
    J. Jälkö, A. Honkela, O. Dikmen, *Differentially Private Variational Inference for
    Non-conjugate Models*, UAI 2017. J. Jälkö, L. Prediger, A. Honkela, S. Kaski, *DPVIm:
    Differentially Private Variational Inference Improved*, TMLR 2023.

    Examples
    --------
    Robust regression, with Student's t in place of the normal:

    >>> import numpy as np
    >>> import torch
    >>> from torch.distributions import StudentT
    >>> from skdp import DPVariationalModel
    >>> def log_likelihood(theta, x, y):
    ...     return StudentT(3.0, x @ theta[:2], theta[2].exp()).log_prob(y)
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (2000, 2))
    >>> y = X @ [1.0, -1.0] + 0.5 * rng.standard_t(3, 2000)
    >>> model = DPVariationalModel(log_likelihood, 3, prior=3.0, n_samples=2000).fit(X, y)
    >>> bool(np.abs(model.mean_ - [1.0, -1.0, np.log(0.5)]).max() < 0.5)
    True
    >>> model.sample_posterior(100).shape
    (100, 3)
    """

    log_likelihood: Any
    n_parameters: int
    prior: Any = 1.0
    epsilon: float | None = 1.0
    delta: float = 1e-5
    _: KW_ONLY
    neighboring_relation: str = "zero_out"
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
    checkpoint: Any = None
    every: int = EVERY
    n_samples: int | None = None
    random_state: Any = None
    verbose: int = 0

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
        n_releases = dp_vi_model.STEPS if private else dp_vi_model.STEPS_WITHOUT_NOISE
        n_releases = integer_or_auto(n_releases, 1 + noise_aware, max_iter=self.max_iter)
        n_curvature = max(1, round(dp_vi_model.CURVATURE_SHARE * n_releases)) if noise_aware else 0
        supervised = facts.outputs > 0
        model = UserModel(self.log_likelihood, P, supervised=supervised)
        start = self._initial_mean(prior)
        n_clip, n_check = self._n_histograms(n_releases, private, noise_aware)
        n_persons = 0
        if noise_aware and facts.persons is not None and facts.persons.rows_per_group > 1.0:
            n_persons = max(0, min(n_check, n_releases - n_curvature - n_clip - n_check - 1))
        return dp_vi_model.ModelConfig(
            model=model,
            prior=prior,
            n_rows=n,
            initial_mean=start,
            initial_scale=number_or_auto(
                dp_vi_model.default_initial_scale(n, P), initial_scale=self.initial_scale
            ),
            n_steps=n_releases - n_curvature - n_clip - n_check - n_persons,
            n_curvature_steps=n_curvature,
            sampling_rate=sampling_rate(
                self, facts, lambda n: dp_vi_model.default_sampling_rate(n, P)
            ),
            clip_norm=self._clip_norm(model, prior, start, facts, private=private),
            given_learning_rate=number_or_auto(0.0, learning_rate=self.learning_rate) or None,
            covariance=self.covariance,
            data_norm=self.data_norm,
            n_clip_steps=n_clip,
            n_check_steps=n_check,
            n_person_steps=n_persons,
            persons=facts.persons,
            neighboring_relation=self._relation,
        ).calibrated(budget)

    def _n_histograms(self, n_releases: int, private: bool, noise_aware: bool) -> tuple[int, int]:
        """Return how many releases learn the clip, and how many check it at the end."""
        if not private:
            return 0, 0
        n = max(1, round(dp_vi_model.LENGTH_SHARE * n_releases))
        learns = self.clip_norm == "auto" and n_releases >= dp_vi_model.LEAST_STEPS_TO_LEARN
        return n * learns, min(n, n_releases - 1 - noise_aware)

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
        default = dp_vi_model.default_clip_norm(model.n_parameters, private=private)
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

    def _prepared(self, plan: FitPlan, records: Records) -> Callable[..., Any]:
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
        found = (
            self._clipped(released.clipping),
            self._hidden(plan.config, released.n_hidden),
            self._widened(plan.config, released),
            self._underway(plan.config, released),
        )
        return tuple(message for message in found if message)

    def _hidden(self, config: dp_vi_model.ModelConfig, n_hidden: int) -> str:
        if n_hidden < _MANY_HIDDEN * config.n_parameters:
            return ""
        return (
            f"Noise hides the curvature of the log-likelihood in {n_hidden} of "
            f"{config.n_parameters} directions of theta, while others are well known: some "
            "combinations of parameters are weakly identified, and intervals that depend on them "
            "may be too narrow. Use fewer parameters, more rows or a larger epsilon."
        )

    def _widened(
        self, config: dp_vi_model.ModelConfig, released: dp_vi_model.ModelPosterior
    ) -> str:
        if config.prior.covariance is None:
            return ""
        prior = np.sqrt(np.diagonal(config.prior.covariance.numpy()))
        wider = float((np.sqrt(np.diagonal(released.covariance)) / prior).max())
        if wider < _MUCH_WIDER:
            return ""
        return (
            f"The posterior of a parameter is {wider:.1f} times as wide as its prior: noise hides "
            "what the records say, or x, y and theta are not of the order of 1. Scale them, or use "
            "more rows or a larger epsilon."
        )

    def _underway(
        self, config: dp_vi_model.ModelConfig, released: dp_vi_model.ModelPosterior
    ) -> str:
        (steps, means, _), half = released.path, len(released.path.steps) // 2
        off = np.abs(released.mean.ravel() - means[half:].mean(axis=0))
        deviations = np.sqrt(np.diagonal(released.covariance))
        reach = dp_vi_model.TAIL_RATE * config.learning_rate * max(1, steps[-1] - steps[half])
        one_way = float(np.abs(means[-1] - means[half]).max()) / reach
        if one_way < _ONE_WAY and (off < _FAR_OFF * deviations).all():
            return ""
        return (
            "The run has not converged: in its later half the mean of a parameter still moved one "
            "way, or gradients there pointed far from it. Use the defaults of max_iter and "
            "learning_rate, or more and longer steps, or give an initial_mean that is nearer."
        )

    def _clipped(self, clipping: dp_vi_model.Clipping) -> str:
        if not clipping.share > max(_MANY_CLIPPED, _CLEARLY * clipping.noise):
            return ""
        if clipping.advised < math.inf:
            remedy = f"give clip_norm={clipping.advised:.2g}"
        else:
            remedy = (
                f"some are more than {dp_vi_model.CHECK_EDGES[-1]:g} times as long: scale x, y and "
                "theta so that they are of the order of 1"
            )
        return (
            f"About {100 * clipping.share:.0f} % of the records (± {100 * clipping.noise:.1f} of "
            f"noise) have gradients longer than the clip {clipping.clip_norm:.3g} at the posterior "
            "mean. Clipping so many biases the posterior, and its intervals do not account for "
            f"that; {remedy}."
        )

    def sample_predictive(self, X, n_samples: int = 1, random_state: Any = None) -> np.ndarray:
        """Draw targets of rows from the posterior predictive, by ``simulate``.

        Parameters
        ----------
        X : array-like of shape (n, n_features)
            Rows.
        n_samples : int, default=1
            Number of draws ≥ 1, each at parameters of its own.
        random_state : int, RandomState instance or None, default=None
            Seed of the draws.

        Returns
        -------
        ndarray of shape (n_samples, n)
            Of public rows they cost no privacy; of private rows they are themselves private: do
            not release them.

        Raises
        ------
        ValueError
            If there is no ``simulate``, or it fails.
        """
        check_is_fitted(self)
        simulator = self._needed_simulator()
        integer(1, n_samples=n_samples)
        X = check_features(self, X, reset=False)
        generator = check_random_state(random_state)
        draws = self._posterior.sample(n_samples, generator)
        return self._simulated(simulator, draws, X, generator)

    def sample_prior_predictive(
        self, X, n_samples: int = 1, random_state: Any = None
    ) -> np.ndarray:
        """Draw targets of rows from the prior predictive, by ``simulate``; before or after `fit`.

        Parameters
        ----------
        X : array-like of shape (n, n_features)
            Rows.
        n_samples : int, default=1
            Number of draws ≥ 1, each at parameters of its own.
        random_state : int, RandomState instance or None, default=None
            Seed of the draws.

        Returns
        -------
        ndarray of shape (n_samples, n)
            A function of X and of no other data.

        Raises
        ------
        ValueError
            If there is no ``simulate``, it fails, or the prior cannot be drawn from.
        """
        simulator = self._needed_simulator()
        integer(1, n_samples=n_samples)
        unfitted = copy.copy(self)  # whose number of features is not known
        X = check_features(unfitted, X, reset=True)
        generator = check_random_state(random_state)
        prior = Prior.of(self.prior, integer(1, n_parameters=self.n_parameters))
        draws = prior.sample(n_samples, _torch_generator(generator))
        if draws is None:
            raise expected("scales or a torch distribution", "draws need one", prior=self.prior)
        return self._simulated(simulator, draws.numpy(), X, generator)

    def _needed_simulator(self) -> Simulator:
        simulator = self._simulator()
        if simulator is None:
            kind = "a function of (theta, x, generator)"
            raise expected(kind, "it draws the targets", simulate=None)
        return simulator

    def _simulated(
        self,
        simulator: Simulator,
        draws: np.ndarray,
        X: np.ndarray,
        random_state: np.random.RandomState,
    ) -> np.ndarray:
        x = torch.tensor(dp_vi_model.bounded(X, self.data_norm), dtype=torch.float64)
        generator = _torch_generator(random_state)
        thetas = torch.from_numpy(draws)
        return np.array([simulator.targets(theta, x, generator).numpy() for theta in thetas])

    def to_arviz(
        self,
        n_samples: int | None = None,
        random_state: Any = None,
        X_public=None,
        y_public=None,
    ) -> Any:
        """Posterior draws in the form that ArviZ plots, checks and summarises; at no privacy cost.

        Parameters
        ----------
        n_samples : int or None, default=None
            Number of draws ≥ 1; None is 1000.
        random_state : int, RandomState instance or None, default=None
            Seed of the draws.
        X_public : array-like of shape (n, n_features) or None, default=None
            PUBLIC rows, on which the posterior is to be checked. What is stored of them is a
            function of the rows themselves: never give private ones.
        y_public : array-like of shape (n,) or None, default=None
            Their targets, as public.

        Returns
        -------
        arviz.InferenceData
            Its group ``posterior`` holds ``theta`` with the coordinate ``parameter``, in four
            chains of independent draws where n_samples allows. With public rows there are also
            ``posterior_predictive`` (where there is a ``simulate``), and with their targets
            ``observed_data`` and ``log_likelihood``, each with the variable ``y``: n_samples times
            n numbers. So ``az.plot_ppc`` and ``az.loo`` run.

        Raises
        ------
        ImportError
            If ArviZ is not installed.
        ValueError
            If y_public is given without X_public, or y is needed and missing.
        """
        if X_public is None and y_public is not None:
            raise ValueError("Expected X_public with y_public: a target is that of a row.")
        generator = check_random_state(random_state)
        draws = self.sample_posterior(1000 if n_samples is None else n_samples, generator)
        if X_public is None:
            return self._inference_data(draws)
        groups = self._checked_against(draws, X_public, y_public, generator)
        return self._inference_data(draws, **groups)

    def _checked_against(
        self, draws: np.ndarray, X: Any, y: Any, generator: np.random.RandomState
    ) -> dict[str, np.ndarray]:
        """Predictive draws and log-likelihoods of public rows, (n_draws, n) each."""
        groups = {}
        if self.simulate is not None:
            X = check_features(self, X, reset=False)
            groups["posterior_predictive"] = self._simulated(
                self._needed_simulator(), draws, X, generator
            )
        if y is not None or not self._model.supervised:
            records = self._public_records(X, y)
            groups["log_likelihood"] = self._log_likelihoods(draws, records)
            if self._model.supervised:
                groups["observed_data"] = records.targets
        return groups

    def _public_records(self, X: Any, y: Any) -> Records:
        if self._model.supervised and y is None:
            raise ValueError("Expected y, because fit was given one; pass the targets of the rows.")
        return self._records(X, y if self._model.supervised else None, reset=False)

    def _log_likelihoods(self, draws: np.ndarray, records: Records) -> np.ndarray:
        """Log-likelihood of each record at each draw, (n_draws, n)."""
        X = dp_vi_model.bounded(records.X, self.data_norm)
        x, y = torch.tensor(X, dtype=torch.float64), torch.from_numpy(records.targets)
        with torch.no_grad():
            found = [self._model.values(theta, x, y).numpy() for theta in torch.from_numpy(draws)]
        return np.nan_to_num(np.array(found), nan=-np.inf, neginf=-np.inf)

    def score_samples(self, X, y=None) -> np.ndarray:
        """Log of the likelihood of each row, averaged over the posterior.

        Parameters
        ----------
        X : array-like of shape (n, n_features)
            Rows.
        y : array-like of shape (n,) or None, default=None
            Targets, if `fit` had any.

        Returns
        -------
        ndarray of shape (n,)
            Over 200 fixed posterior draws. Of private rows it is itself private: do not release it.
        """
        check_is_fitted(self)
        records = self._public_records(X, y)
        draws = self._posterior.sample(_N_PREDICTIVE_DRAWS, check_random_state(0))
        values = self._log_likelihoods(draws, records)
        return logsumexp(values, axis=0) - np.log(len(draws))

    def score(self, X, y=None) -> float:
        """Mean of `score_samples`."""
        if is_dask(X):
            return mean_of_blocks(self.score, X, y)
        return float(np.mean(self.score_samples(X, y)))


def _torch_generator(random_state: np.random.RandomState) -> torch.Generator:
    return torch.Generator().manual_seed(int(random_state.randint(2**31 - 1)))


def _array(value: Any) -> np.ndarray | None:
    """Copy numbers into an array; None if they are none."""
    try:
        return np.array(value, dtype=np.float64)
    except (TypeError, ValueError):
        return None
