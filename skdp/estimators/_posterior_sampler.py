"""What the posterior samplers share: the plan from public facts, the budget, the samples."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from sklearn.base import clone

from skdp.algorithms import langevin, ops
from skdp.algorithms.tempered import TemperedPosterior
from skdp.base import FitPlan, ProtectedUnit, PublicFacts, Records
from skdp.estimators import _doubts
from skdp.estimators._parameters import FitParameters
from skdp.estimators._posteriors import PaidSamples
from skdp.fitting.reading import read
from skdp.fitting.streams import Streams
from skdp.fitting.validate import (
    expected,
    flag,
    integer,
    integer_or_auto,
    is_real,
    number_or_auto,
    one_of,
)
from skdp.fitting.warnings import PrivacyWarning
from skdp.models.likelihoods import LogConcave
from skdp.rows.bounded_sum import MAX_ROWS
from skdp.rows.persons import Persons, PersonUnit

if TYPE_CHECKING:
    from skdp.privacy.budget import Budget

SAMPLERS = ("auto", "langevin", ops.SAMPLER)

Config = langevin.LangevinConfig | ops.ExactConfig


@dataclass(eq=False, repr=False)
class PosteriorSampler(PaidSamples, ProtectedUnit, FitParameters):
    """A linear model of which a few posterior samples are released.

    **Privacy.** `fit` is (epsilon, delta)-differentially private under ``neighboring_relation``:
    all samples and whatever is computed from them. The guarantee of the Langevin sampler holds
    after any number of steps, converged or not, and treats floating-point arithmetic as exact. That
    of rejection is pure for ``delta=0`` and holds of the implemented law, on a public grid, given
    ideal random bits. *How long* rejection runs, and whether it is interrupted, depends on the data
    and is not covered: do not let those who see the samples see the clock, and set no time limit of
    which they learn. The ``unit`` is a row, or a person with all of its rows. The guarantee covers
    one fit; each further fit on the same rows is a further release. It is conditional on the public
    facts listed in ``privacy_.inferred_public_facts``, and is *not* one for a seeded fit.

    Parameters
    ----------
    epsilon : float or None, default=1.0
        ε > 0. ``float("inf")`` is the posterior itself, and the report says what its samples
        cost. None with ``likelihood_power``.
    delta : float, default=1e-5
        δ in [0, 1); 0 asks for pure ε.
    n_posterior_samples : int, default=1
        Number k ≥ 1 of posterior samples, which share the budget. More samples show more of the
        posterior, and each is of a flatter one.
    sampler : {"auto", "langevin", "rejection"}, default="auto"
        ``"langevin"`` has a certificate that needs δ > 0 and no convergence. ``"rejection"`` is
        exact; it takes longer the more columns there are, minutes from 100 or so on large data.
        ``"auto"`` is Langevin for δ > 0, else rejection.
    prior_scale : float or "auto", default="auto"
        Standard deviation τ > 0 of the prior of every coefficient and intercept. Not to be chosen
        by trying values on the data. ``"auto"`` follows the number of columns.
    data_norm : float or "auto", default="auto"
        Euclidean norm > 0 to which the features of each row are clipped, in `fit` and in
        prediction. A public bound, never checked against the data. ``"auto"`` is √n_features, right
        for features in [-1, 1] as `BoundedScaler` gives, or in a pipeline the norm that the step
        before declares, as `NormClipper` does.
    theta_norm : float or "auto", default="auto"
        Norm > 0 of all parameters jointly at which the domain ends. Rejection pays for a wide
        domain with a flat posterior; ``"auto"`` grows slowly with the budget and with n.
        The Langevin sampler needs none: ``"auto"`` and ``float("inf")`` are no bound there.
    fit_intercept : bool, default=True
        Append a 1 to each row.
    likelihood_power : float or None, default=None
        ρ in (0, 1], instead of ``epsilon`` (pass ``epsilon=None``); the report then accounts for
        what was spent.
    step_size : float or "auto", default="auto"
        Langevin only: h > 0 of θ ← θ − h∇U(θ) + √(2h) ξ. A step too long for the certificate is an
        error. ``"auto"`` is a quarter of the longest or less.
    max_iter : int or "auto", default="auto"
        Langevin only: passes over the rows. More passes come closer to the posterior.
    batch_size : int or "auto", default="auto"
        Langevin only: rows of a fixed batch; one step is taken a batch. ``"auto"`` makes batches
        where they cost next to nothing, and takes all rows under ``"add_or_remove_one"``.
    n_samples : int or None, default=None
        Public number of rows, or an upper bound near it. None reads it from X and says so in the
        report. Under ``"add_or_remove_one"`` the guarantee of the Langevin sampler is for data sets
        of at most so many rows. More are refused, and the refusal tells that there are more.

    Attributes
    ----------
    likelihood_power_ : float
        ρ: the samples are of the posterior ∝ prior x likelihood^ρ.
    effective_n_samples_ : float
        ρn: how many rows such a posterior would have come from at ρ = 1.
    sampler_ : str
        The sampler used.
    data_norm_, prior_scale_, theta_norm_ : float
        The values used.
    n_iter_ : int
        Passes of the Langevin sampler; 1 for an exact one, whose work is not shown.

    Notes
    -----
    With ``unit=Persons(...)`` the k rows of a person enter with the weight min(1, k₀/k) each: a
    clipped sum of a person's scores would be the gradient of no convex function, on which both
    guarantees rest. k₀ is ``clip``; ``"auto"`` is ``rows_per_group`` here, and not its root, and
    never more than ``max_rows``. A person moves gradients and the range of the potential k₀ times
    as far as a row. Langevin takes full batches, for data sets of at most ``n_groups`` persons:
    more are refused, and the refusal tells that there are more.

    References
    ----------
    Y.-X. Wang, S. Fienberg, A. Smola, *Privacy for Free: Posterior Sampling and Stochastic Gradient
    Monte Carlo*, ICML 2015. J. Bok, W. J. Su, J. Altschuler, *Shifted Interpolation for
    Differential Privacy*, ICML 2024 (the certificate). C. L. Canonne, G. Kamath, T. Steinke, *The
    Discrete Gaussian for Differential Privacy*, NeurIPS 2020 (coins of exact draws).
    """

    _declared_by: ClassVar[str] = _doubts.SCALED_BEFORE

    epsilon: float | None = 1.0
    delta: float = 1e-5
    _: KW_ONLY
    n_posterior_samples: int = 1
    sampler: str = "auto"
    prior_scale: float | str = "auto"
    data_norm: float | str = "auto"
    theta_norm: float | str = "auto"
    fit_intercept: bool = True
    likelihood_power: float | None = None
    step_size: float | str = "auto"
    max_iter: int | str = "auto"
    batch_size: int | str = "auto"

    _instead_of_epsilon: ClassVar[str] = "likelihood_power"
    _takes_pure_budget: ClassVar[bool] = True

    def _prepared(self, plan: FitPlan, records: Records, around: Any) -> Callable[..., Any]:
        rows, starts = len(records.X), records.starts
        if (rows if starts is None else len(starts) - 1) > plan.config.most_records:
            persons, what = plan.facts.persons, "rows" if starts is None else "persons"
            raise expected(
                f"at least the number of {what}",
                f"the certificate of the Langevin sampler holds for that many {what} at most",
                **{"n_groups": persons.n_groups} if persons else {"n_samples": self.n_samples},
            )
        return plan.config.run

    def diagnose_convergence(
        self, X, y, n_chains: int = 4, n_passes: int | None = None, groups=None
    ) -> Any:
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
        groups : array-like of shape (n_samples,) or None, default=None
            With ``unit=Persons(...)``: the person whose row it is, as any label.

        Returns
        -------
        arviz.InferenceData
            Its group ``posterior`` holds ``theta`` (chain, draw, parameter), a draw per pass, for
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
        records: Any
        records, facts = read(other, X, y, groups)
        config = other._planned(facts).config
        if config.sampler != "langevin":
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
        path = np.stack(list(langevin.states(shown, records, Streams())), axis=1)
        data = arviz.from_dict(posterior={"theta": path.reshape(*path.shape[:2], -1)})
        data["posterior"].attrs.update(private=0, passes_of_fit=config.n_epochs)
        return data

    def _likelihood_of(self, facts: PublicFacts) -> LogConcave:
        """Likelihood of the model."""
        raise NotImplementedError

    def _configure(self, facts: PublicFacts, budget: Budget) -> Config:
        integer(1, n_posterior_samples=self.n_posterior_samples)
        if facts.rows > MAX_ROWS:
            raise expected(f"at most {MAX_ROWS}", n_samples=self.n_samples)
        flag(fit_intercept=self.fit_intercept)
        posterior = TemperedPosterior(
            likelihood=self._likelihood_of(facts),
            n_features=facts.features,
            fit_intercept=bool(self.fit_intercept),
            data_norm=number_or_auto(facts.auto_norm, data_norm=self.data_norm),
            prior_scale=1.0,  # until it is known, as the domain
            neighboring_relation=self._relation,
            of_person=None if facts.persons is None else self._person_weight(facts.persons),
        )
        configure = self._exact if self._is_exact() else self._langevin
        config = configure(posterior, facts, budget)
        if not config.seconds < 1e8:
            raise ValueError(f"This fit would take years. {config.shorter}.")
        return config

    def _person_weight(self, persons: PersonUnit) -> float:
        """k₀: what the rows of a person weigh together, at most."""
        assert isinstance(self.unit, Persons)
        weight = number_or_auto(persons.rows_per_group, clip=self.unit.clip)
        return min(weight, persons.most_rows or weight)

    def _person_bound(self, persons: PersonUnit) -> str:
        weight = self._person_weight(persons)
        return f"each of k rows has weight min(1, {weight:.3g}/k)"

    def _is_exact(self) -> bool:
        if self.sampler == "proximal":
            raise expected(
                "'rejection'",
                "which is exact as implemented, replaces the proximal sampler, and is quicker",
                sampler=self.sampler,
            )
        one_of(SAMPLERS, sampler=self.sampler)
        exact = self.sampler == ops.SAMPLER or (self.sampler == "auto" and self.delta == 0)
        if not exact and self.delta == 0:
            raise expected(
                "'auto' or 'rejection' where delta=0",
                "a Langevin chain has no pure guarantee",
                sampler=self.sampler,
            )
        for name in ("step_size", "max_iter", "batch_size") if exact else ():
            value = getattr(self, name)
            if not (isinstance(value, str) and value == "auto"):
                raise expected("'auto'", "it is for 'langevin' alone", **{name: value})
        return exact

    def _exact(
        self, posterior: TemperedPosterior, facts: PublicFacts, budget: Budget
    ) -> ops.ExactConfig:
        R, p = posterior.row_bound, posterior.n_parameters
        k, n_rows = self.n_posterior_samples, facts.rows
        of_row = ops.affordable_range(budget, k)
        if facts.persons is not None:
            of_row /= self._person_weight(facts.persons)
        D = number_or_auto(
            ops.default_theta_norm(R, n_rows, p, of_row),
            "on an unbounded domain an exact sample has no such guarantee",
            theta_norm=self.theta_norm,
        )
        τ = number_or_auto(ops.default_prior_scale(R, D, p), prior_scale=self.prior_scale)
        return ops.configure(
            replace(posterior, theta_norm=D, prior_scale=τ), budget, n_rows=n_rows, n_samples=k
        )

    def _langevin(
        self, posterior: TemperedPosterior, facts: PublicFacts, budget: Budget
    ) -> langevin.LangevinConfig:
        R, p = posterior.row_bound, posterior.n_parameters
        D, k = self.theta_norm, self.n_posterior_samples
        if not (is_real(D) and math.inf == D):
            D = number_or_auto(math.inf, "or float('inf')", theta_norm=D)
        # A budget is what makes many samples flat; without one they need no wide prior.
        flat = k if math.isfinite(budget.mu) else 1
        τ = langevin.default_prior_scale(R, p, flat)
        τ = number_or_auto(τ, prior_scale=self.prior_scale)
        batch_size = integer_or_auto(0, batch_size=self.batch_size) or None
        n_rows, persons = facts.rows, facts.persons
        if not self._relation.n_is_public and (batch_size or n_rows) < n_rows:
            where = "under 'add_or_remove_one'" if persons is None else "with persons"
            remedy = "a fixed partition does not survive adding a record"
            raise expected(f"'auto' {where}", remedy, batch_size=batch_size)
        return langevin.configure(
            replace(posterior, theta_norm=float(D), prior_scale=τ),
            budget,
            n_rows=n_rows,
            n_chains=k,
            n_persons=None if persons is None else persons.n_groups,
            step_size=number_or_auto(0.0, step_size=self.step_size) or None,
            n_epochs=integer_or_auto(0, max_iter=self.max_iter) or None,
            batch_size=batch_size,
        )

    def _diagnosed(self, plan: FitPlan, released: np.ndarray) -> tuple[str, ...]:
        return _doubts.of_samples(plan.config, released)

    def _keep(self, plan: FitPlan, released: np.ndarray) -> None:
        config: Config = plan.config
        self._samples, self._config = released, config
        self.likelihood_power_ = config.likelihood_power
        self.effective_n_samples_ = config.likelihood_power * config.n_rows
        self.sampler_ = config.sampler
        self.n_iter_ = config.n_epochs
        self.data_norm_ = config.posterior.data_norm
        self.prior_scale_ = config.posterior.prior_scale
        self.theta_norm_ = config.posterior.theta_norm
