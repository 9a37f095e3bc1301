"""`PrivateEstimator`: the one way in which a fit reads, plans, spends, runs and keeps."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from inspect import isfunction
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator

from skdp.fitting import charge, declared
from skdp.fitting.methods import name_methods
from skdp.fitting.plan import Config, FitPlan, PublicFacts, remembered
from skdp.fitting.reading import Records, check_in_chunks, read
from skdp.fitting.validate import integer, is_true
from skdp.fitting.warnings import FitWarning
from skdp.relations import GROUP, ROW, Relation, check_relation
from skdp.rows.bounded_sum import MAX_ROWS
from skdp.rows.bounds import norm_lost, row_norm
from skdp.rows.chunks import ArrayInChunks
from skdp.rows.lazy_rows import OF_ROWS, in_chunks, predicting
from skdp.rows.persons import Persons, PersonUnit, facts_of, persons_of
from skdp.rows.sparse import SparseRows

if TYPE_CHECKING:
    from skdp.privacy.budget import Budget
    from skdp.privacy.report import PrivacyReport

try:
    from sklearn.callback import CallbackSupportMixin, with_callbacks  # type: ignore
except ImportError:  # before scikit-learn 1.9

    class CallbackSupportMixin:
        """Stands in where scikit-learn has no callbacks."""

    def with_callbacks(method: Callable) -> Callable:
        """Return the method as it is."""
        return method


PREDICTED_BY_ROW = (
    "the prediction for a row depends on a released model and on that row alone, bit by bit"
)


class PrivateEstimator(CallbackSupportMixin, BaseEstimator):
    """A private estimator or transformer: plans from public facts, spends, then runs.

    A subclass says three things: `_read` checks the input and names the public facts, `_configure`
    turns facts and parameters into the config of a run, `_keep` stores what it released. See
    docs/adding_an_algorithm.md.

    Attributes
    ----------
    privacy_ : PrivacyReport
        The privacy statement of the fit.
    diagnostics_ : tuple of str
        Doubts about the fit that released values raise; each was a `FitWarning`.

    Examples
    --------
    >>> from skdp import DPStandardScaler
    >>> from skdp.base import PrivateEstimator
    >>> isinstance(DPStandardScaler(), PrivateEstimator)
    True
    """

    privacy_: PrivacyReport
    n_features_in_: int
    neighboring_relation: str
    random_state: Any
    unit: str | Persons = ROW  # without `ProtectedUnit` before this class, rows are the records
    # The parameter that takes the place of epsilon, and whether delta may be 0.
    _instead_of_epsilon: ClassVar[str] = "noise_multiplier"
    _takes_pure_budget: ClassVar[bool] = False
    _takes_sparse: ClassVar[bool] = False
    _takes_weights: ClassVar[bool] = False  # of rows, with ``max_sample_weight``
    _WEIGHTS_REMEDY: ClassVar[str] = ""
    # What declares where the columns of a frame lie; "" where there is no such thing.
    _declared_by: ClassVar[str] = ""
    _no_unit: ClassVar[str] = ""  # remedy where ``unit`` was something else
    _start: tuple[np.ndarray, ...] = ()  # arrays besides the rows that a run begins with
    _max_rows: ClassVar[float] = MAX_ROWS  # beyond, the rounding of a sum is not covered

    def plan(
        self, n_samples: int | None = None, n_features: int | None = None, classes: Any = None
    ) -> FitPlan:
        """Plan a fit from public facts: ε, noise, steps and memory, before any data exist.

        Parameters
        ----------
        n_samples : int or None, default=None
            Public number of rows; not asked for where the estimator declares one.
        n_features : int or None, default=None
            Number of features.
        classes : array-like or None, default=None
            Class labels; None for those that were declared.

        Returns
        -------
        FitPlan
            What `fit` on such data would do and be charged.

        Raises
        ------
        ValueError
            If a parameter is invalid, or a fact that the plan depends on is missing; the message
            names it.
        """
        if n_samples is not None:
            integer(1, n_samples=n_samples)
        if n_features is not None:
            integer(1, n_features=n_features)
        declared = self._declared_n_samples()
        return self._plan(
            self._facts(
                n_samples=n_samples if declared is None else integer(1, n_samples=declared),
                n_features=self._n_columns_declared() if n_features is None else n_features,
                n_outputs=self._n_outputs(classes),
                declared=() if declared is None else ("n_samples",),
            )
        )

    def fit(self, X, y=None, groups=None) -> Self:
        """Fit, privately.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Numbers; dense, and finite unless the class takes NaN.
        y : array-like of shape (n_samples,) or None, default=None
            Class labels or targets; a transformer ignores them.
        groups : array-like of shape (n_samples,) or None, default=None
            With ``unit=Persons(...)``: the person whose row it is, as any label.

        Returns
        -------
        Self
            The fitted estimator.

        Raises
        ------
        ValueError
            If a parameter or the input is invalid; nothing has been spent then.
        BudgetExceededError
            If an open `PrivacyLedger` refuses the fit; no row has been used then.
        """
        return self._fit(X, y, groups=groups)

    @with_callbacks
    def _fit(
        self,
        X: Any,
        y: Any,
        *,
        groups: Any = None,
        sample_weight: Any = None,
        before: PrivacyReport | None = None,
        public: Any = None,
        **how: Any,
    ) -> Self:
        """Fit to rows, and to what else a subclass takes beside them.

        ``before`` is what the fit that this one goes on from has cost; ``public`` may be shown.
        """
        attempt = charge.attempt(self)
        with attempt as checkpoint, in_chunks(X, y, groups, told_by=self) as (X, y, groups):
            given, around = (X, y, sample_weight), charge.Around(checkpoint, before, public)
            how |= {"sample_weight": sample_weight, "checkpoint": checkpoint}
            records, facts = read(self, X, y, groups, **how)
            plan = self._plan(facts)
            if isinstance(records.X, ArrayInChunks):
                check_in_chunks(self, plan, records.X)
            run = self._prepared(plan, records, around)
            arrays = (*records.arrays, *self._start)
            steps = charge.progress(self, plan.n_steps)
            self.privacy_ = charge.charged(self, plan, given, around, groups=groups, arrays=arrays)
            keyed = charge.streams(self, *arrays) if checkpoint is None else checkpoint.streams
            released = run(records, keyed, steps)
            self._keep(plan, released)
            self.diagnostics_ = plan.doubts + self._diagnosed(plan, released)
        # Outside: as errors, by a filter, they must not throw away a fit that has been paid for.
        for message in self.diagnostics_:
            warnings.warn(message, FitWarning, stacklevel=4)
        return self

    # --- what a subclass says -------------------------------------------------------------------

    def _read(self, X: Any, y: Any) -> tuple[Records, PublicFacts]:
        """Check the input, and name what is public about it but for its number of rows.

        Of rows in chunks it is asked of each chunk, in each pass, on a copy of the estimator.
        """
        raise NotImplementedError

    def _configure(self, facts: PublicFacts, budget: Budget) -> Config:
        """Check the parameters and fill in the defaults, from public facts alone."""
        raise NotImplementedError

    def _keep(self, plan: FitPlan, released: Any) -> None:
        """Store what a run released as fitted attributes."""
        raise NotImplementedError

    def _diagnosed(self, plan: FitPlan, released: Any) -> tuple[str, ...]:
        """Say what the released values, and they alone, tell against the fit."""
        return ()

    def _prepared(
        self, plan: FitPlan, records: Records, around: charge.Around
    ) -> Callable[..., Any]:
        """Build what can be built before the charge, and return what runs."""
        return plan.config.run

    def _n_outputs(self, classes: Any) -> int | None:
        """Number of outputs, for given or declared classes."""
        return 1

    def _declared_n_samples(self) -> int | None:
        """Return the number of rows that was declared, of persons by how many they have."""
        declared, persons = getattr(self, "n_samples", None), self._persons()
        return declared if persons is None or persons.n_rows is None else persons.n_rows

    def _n_columns_declared(self) -> int | None:
        """Return the number of features that parameters tell, if they do."""
        return None

    def _assumptions(self) -> tuple[str, ...]:
        """What ε is conditional on besides public facts."""
        return ()

    def _memory_told_by(self) -> str:
        """Name of the method that finds out what memory a fit takes, where no plan can know."""
        return ""

    def _budget(self) -> Budget:
        """Check what the fit may spend."""
        return declared.check_budget(self, self._instead_of_epsilon, pure=self._takes_pure_budget)

    # --- what is the same for all ---------------------------------------------------------------

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        of_rows = isinstance(self.unit, str) and self.unit == ROW
        sparse = self._takes_sparse and of_rows and getattr(self, "bounds", None) is None
        tags.input_tags.sparse = sparse and not is_true(getattr(self, "secure", False))
        return tags

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name in OF_ROWS:
            if isfunction(vars(cls).get(name)):
                setattr(cls, name, predicting(vars(cls)[name]))
        if cls.__name__.startswith(("DP", "OPS")):  # those that users call
            name_methods(cls)

    @property
    def _relation(self) -> Relation:
        """Who is a neighbour: a row, or a person."""
        unit = ROW if persons_of(self.unit, self._no_unit) is None else GROUP
        return check_relation(self.neighboring_relation).of_unit(unit)

    def _persons(self) -> PersonUnit | None:
        """Public facts about persons, where these are the records."""
        persons, counted = persons_of(self.unit, self._no_unit), hasattr(self, "n_samples")
        return persons and facts_of(persons, getattr(self, "n_samples", None), counted=counted)

    def _person_bound(self, persons: PersonUnit) -> str:
        """Say what all rows of a person may contribute."""
        return persons.bound_in_words

    def _facts(self, *, declared: tuple[str, ...] = (), **known: Any) -> PublicFacts:
        """Public facts; those that no parameter declares count as read from the data."""
        inferred = []
        declared += ("n_samples",) * (self.unit != ROW)
        for fact in ("classes", "n_samples"):
            if getattr(self, fact, "") is None and fact not in declared:
                inferred.append(fact)
        return PublicFacts(
            label=type(self).__name__, inferred=tuple(inferred), persons=self._persons(), **known
        )

    def _facts_of(self, X: np.ndarray, n_outputs: int = 1, **more: Any) -> PublicFacts:
        """Public facts about rows that have been checked, but for their number."""
        return self._facts(
            n_features=X.shape[1],
            n_outputs=n_outputs,
            declared_norm=row_norm(X),
            norm_lost=norm_lost(X),
            sparse=isinstance(X, SparseRows),
            **more,
        )

    def _plan(self, facts: PublicFacts) -> FitPlan:
        """Plan from public facts alone; a plan that was made before is found again."""
        plan = remembered(self, facts, lambda: self._planned(facts))
        for caution in plan.cautions:
            warnings.warn(caution, stacklevel=5)
        return plan

    def _planned(self, facts: PublicFacts) -> FitPlan:
        from skdp.privacy.report import PrivacyReport

        budget = self._budget()
        config = self._configure(facts, budget)
        charge.check_noise(self, config, budget)
        sampling, persons = str(config.sampling), facts.persons
        if persons is not None:
            most = "all" if persons.most_rows is None else f"at most {persons.most_rows}"
            bound = self._person_bound(persons)
            sampling += f", each person as one record of {most} of its rows: {bound}"
        report = PrivacyReport.of(
            config.event(),
            delta=budget.delta,
            sampling=sampling,
            neighboring_relation=budget.neighboring_relation,
            accountant=budget.accountant,
            inferred_public_facts=facts.inferred,
            seeded=self.random_state is not None,
            assumptions=self._assumptions(),
        )
        return FitPlan(
            facts=facts,
            config=config,
            privacy=report,
            memory=getattr(config, "memory", None),
            cautions=(*getattr(config, "cautions", ()), *charge.norm_cautions(self, facts)),
            doubts=charge.norm_diagnosed(self, facts),
            memory_told_by=self._memory_told_by(),
            n_steps=config.n_releases,
        )
