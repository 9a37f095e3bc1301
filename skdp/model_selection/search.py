"""`DPRandomizedSearch`: randomised search whose choice is private and paid for.

>>> import numpy as np
>>> from scipy.stats import loguniform
>>> from skdp import DPSGDClassifier
>>> from skdp.model_selection import DPRandomizedSearch
>>> rng = np.random.default_rng(0)
>>> X = rng.uniform(-1, 1, (600, 2))
>>> y = (X[:, 0] > 0).astype(int)
>>> network = DPSGDClassifier(
...     hidden_layer_sizes=(), sampling_rate=1.0, max_iter=20, classes=[0, 1], n_samples=600
... )
>>> search = DPRandomizedSearch(
...     network, {"learning_rate": loguniform(1e-3, 1.0)}, epsilon=3.0, mean_trials=5, n_samples=600
... ).fit(X, y)
>>> print(search.privacy_.tuning)
accounted: the best of a random number of trials; the law of the number is logarithmic with mean 5
>>> bool(search.trial_epsilon_ < search.privacy_.epsilon <= 3.0)
True
"""

from __future__ import annotations

import copy
import os
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, NamedTuple, TypeGuard

import joblib
import numpy as np
from sklearn.base import MetaEstimatorMixin, clone, is_classifier, is_regressor
from sklearn.utils import Tags, check_random_state, get_tags, indexable
from sklearn.utils.metaestimators import available_if
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import check_is_fitted

from skdp._fitting import (
    PrivateEstimator,
    all_or_nothing,
    charged,
    check_seed,
    public_n_rows,
    warn_if_inferred,
    warn_of_delta,
)
from skdp._input import check_labels, check_targets
from skdp._persons import PersonUnit, rows_of_persons
from skdp._plan import FitPlan, PublicFacts
from skdp._random import Streams, seed_material
from skdp._types import ArrayLike, Estimator, Given, Params, Seed
from skdp._validate import expected, in_range, integer, one_of, positive
from skdp._version import __version__
from skdp.estimators._network import EACH_BY_ITSELF
from skdp.model_selection import _candidates, _scores
from skdp.model_selection._candidates import Candidate, Planner, TrialPlan
from skdp.model_selection.budgets import Sizes, private_parts, relation_of
from skdp.model_selection.trial_law import TrialLaw
from skdp.privacy import PrivacyReport, epsilon_of_event, privacy_of
from skdp.privacy.ledger import BudgetExceededError, Cover, covered
from skdp.privacy.report import joint
from skdp.privacy.workflow import stating_parts
from skdp.relations import ROW, UNITS

_Score = _scores.PrivateScore | _scores.PublicScore

_NEVER_SHOWN = {
    "cv_results_": "it would hold the other trials, and how many there were",
    "best_index_": "it would tell how many trials there were at least",
    "n_splits_": "there is no cross-validation: every trial fits and scores all rows",
    "refit_time_": "there is no refit: it would be a further release",
}


def _has(method: str) -> Any:
    def check(search: DPRandomizedSearch) -> bool:
        # The method's own AttributeError says what is missing.
        getattr(getattr(search, "best_estimator_", search.estimator), method)
        return True

    return available_if(check)


@dataclass(eq=False, repr=False)
class DPRandomizedSearch(MetaEstimatorMixin, PrivateEstimator):
    """Randomised search over parameters, under one privacy budget for everything.

    Draws parameters, fits, scores, and keeps the best of a *random* number of such trials. That
    number is drawn in secret and never shown, which is what makes the best of many cost about as
    much as two or three: of (2, 1e-5), the best of 10 on average leaves each trial a little over
    half of the ε. Only the winner leaves: its parameters, its model and its score.

    **Privacy.** The winner, with its parameters and its score, is (epsilon, delta)-differentially
    private under ``neighboring_relation``; so is everything predicted with it. The law of the
    number of trials, the noise of the fits and that of the scores are all in it. The unit is a row,
    or a person with all of its rows. The guarantee covers one search; it is void for a seeded one,
    conditional on the public facts in ``privacy_``, and on three things that nobody can check for
    the caller: ``param_distributions`` were made without looking at these rows; a function given as
    ``scoring`` scores each row by itself; and *the time that the search took is not told*, because
    it tells how many trials there were. Floating-point arithmetic is treated as exact.

    Parameters
    ----------
    estimator : estimator
        A private estimator, or a pipeline with private steps. It is cloned for every trial, its
        budgets are set by the search, and progress bars and callbacks are taken out of it.
    param_distributions : dict or list of dict
        Names of parameters, as in `get_params`, with lists of values or distributions with ``rvs``.
        Each trial draws anew, with replacement. Parameters that set a budget or state a public fact
        are refused, and so are ones that would make a candidate dearer than the others: on random
        batches, those of batches and steps.
    epsilon : float, default=1.0
        ε > 0 of the whole search. ``float("inf")`` for no privacy.
    delta : float, default=1e-5
        δ in (0, 1) of the whole search; should be well below 1/n.
    mean_trials : float, default=10
        Mean number of trials: 1, or at least 1.001.
    shape : float, default=0.0
        Law of the number of trials. 0 is the logarithmic law, the cheapest for many trials; with a
        mean of 10, a quarter of the searches have one trial only. 1 is the geometric law.
        ``float("inf")`` is the Poisson law: the cheapest for two or three trials and the dearest
        for many; where it draws no trial at all, the search ends with an error, and is charged.
    scoring : str, callable or None, default=None
        With public rows any scorer of scikit-learn. Without them ``"accuracy"`` (the default of
        classifiers), ``"neg_log_loss"`` (cut at four times that of a blind guess), or
        ``"neg_mean_squared_error"`` (the default of regressors; on the range of
        ``target_bounds``), as mean scores of the rows in [0, 1]; or a function
        ``(estimator, X, y) -> ndarray of shape (n,)`` of scores in [0, 1], each computed from its
        row alone: a function that ranks or standardises rows lets one record move all scores, which
        the noise does not cover.
    score_share : float, default=0.1
        Share in (0, 1) of a trial's μ² that pays for its score; nothing does with public rows.
    weights : mapping or None, default=None
        Shares of the private steps of a pipeline, see `split_budget`.
    neighboring_relation : {"zero_out", "add_or_remove_one", "replace_one"}, default="zero_out"
        Who is a neighbour; that of the private steps.
    unit : {"row", "group"}, default="row"
        What is protected: a row, or a person with all of its rows, which `fit` is told by
        ``groups``; that of the private steps.
    n_groups : int or None, default=None
        Public number ≥ 1 of persons, which all private steps are given; needed with
        ``unit="group"``. None takes the one that they declare.
    n_samples : int or None, default=None
        Public number of rows, which all private steps are given. None takes the one that they
        declare, or reads it from X and says so in the report; with ``unit="group"`` it is not read.
    n_jobs : int or None, default=None
        Number of trials that run at a time.
    random_state : int, RandomState instance or None, default=None
        None keys the number of trials, the candidates and all noise from the operating system. A
        seed makes the search repeatable and its guarantee void.

    Attributes
    ----------
    best_estimator_ : estimator
        The winning trial's own fitted estimator: nothing is fitted again. Wherever it states its
        privacy, it states that of the whole search.
    best_params_ : dict
        Parameters that were drawn for it.
    best_score_ : float
        Its score: on public rows, or the noisy mean over the private ones of a score in [0, 1] per
        row, which flatters, being the best of several. By default that is the share of right
        classes, or 1 less the squared error over the squared width of the target bounds: for a
        regression it is near 1 where R² may not be. With ``unit="group"`` it is the mean over
        persons of the mean of their rows, where `score` and ``scorer_`` weigh rows alike.
    scorer_ : callable
        ``(estimator, X, y) -> float``, without noise.
    trial_epsilon_ : float
        ε at ``delta`` of a fit of one trial, had it been alone. It is *not* the price of the
        winner.
    privacy_ : PrivacyReport
        The privacy statement of the search.
    classes_ : ndarray of shape (n_classes,)
        Class labels, for classifiers.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Feature names, where X had any.

    See Also
    --------
    skdp.model_selection.PrivacyLedgerCallback : Counts the fits of scikit-learn's own searches.

    Notes
    -----
    *Trials.* Each draws parameters, fits with a part of the budget that is the same for all, and
    scores: one mechanism M. By Papernot & Steinke (2022; Theorems 2 and 6) the best of K runs of M
    is private at a price in Rényi terms that depends on the law of K; M's budget is the largest for
    which the whole is (epsilon, delta), by the accountant.

    *What is not done.* There is no ``cv_results_`` and no refit, and no limit of time or number
    stops the search. A trial that fails ends it, as an error ends a fit: if failed trials were
    merely the worst, a row that makes some candidates fail would choose among the others. Warnings
    are silenced while trials run, in all threads of the process. Before the charge, all candidates
    are planned, and X and y are checked as the estimator checks them; of a pipeline, only what
    reaches its first step is.
    A private release that was not planned ends the search, and so does one in another thread of the
    process meanwhile; what the caller's own code releases in a process that it starts is not seen.

    *Planning.* Where all steps read all rows, it takes milliseconds. On random batches the budget
    of a trial is found by trying: seconds, and minutes where the noise changes from step to step,
    as in `DPSGLDClassifier`. Random batches under replace_one have no bound in Rényi terms, and
    are refused.

    *Rows are scored where they were fitted.* The noise in both bounds what that can tell, and no
    rows are lost; but private models overfit little, and so does their choice.

    *Persons.* With ``unit="group"`` the private steps have that unit too, and fits are given the
    groups: a pipeline by scikit-learn's metadata routing, with ``set_fit_request(groups=True)`` on
    each private step. A person's share of a private score is the mean of its rows' scores less ½,
    so that all of its rows together move the sum by ½ at most, and the divisor is ``n_groups``.
    Persons with many rows weigh no more than others, in this score and not in the fits.

    *Does it pay?* Seldom where the defaults are good, because a search gives nearly half of the
    budget away. At (2, 1e-5), searches over the clipping norm, the prior and the steps of
    `DPVariationalLogisticRegression` did no better in log-loss than its defaults on at least six
    of seven tabular tasks, and searches over the learning rate and the clipping norm of a
    `DPSGDClassifier` did worse on both of two. It pays where nobody knows a good value and a bad
    one costs much: against *one* draw from the same distributions with the whole budget, the search
    of 10 trials took the log-loss of the network from 1.69 to 0.97 and from 0.93 to 0.59
    (benchmarks/private_search.py).

    References
    ----------
    N. Papernot, T. Steinke, *Hyperparameter Tuning with Renyi Differential Privacy*, ICLR 2022
    (arXiv:2110.03620). J. Liu, K. Talwar, *Private Selection from Private Candidates*, STOC 2019.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.pipeline import make_pipeline
    >>> from skdp import DPVariationalLogisticRegression
    >>> from skdp.model_selection import DPRandomizedSearch
    >>> from skdp.preprocessing import DPStandardScaler
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(0, 100, (2000, 2))
    >>> y = (X[:, 0] > 50).astype(int)
    >>> model = make_pipeline(
    ...     DPStandardScaler(0, 100),
    ...     DPVariationalLogisticRegression(classes=[0, 1], n_samples=2000),
    ... )
    >>> search = DPRandomizedSearch(
    ...     model,
    ...     {"dpvariationallogisticregression__max_iter": [5, 20]},
    ...     epsilon=2.0,
    ...     mean_trials=3,
    ... ).fit(X, y)
    >>> search.score(X, y) > 0.8
    True
    >>> search.best_estimator_[-1].privacy_ is search.privacy_
    True
    """

    sets_inner_budgets = True  # for `split_budget`

    estimator: Estimator
    param_distributions: _candidates.Distributions
    _: KW_ONLY
    epsilon: float = 1.0
    delta: float = 1e-5
    mean_trials: float = 10
    shape: float = 0.0
    scoring: _scores.Scoring = None
    score_share: float = 0.1
    weights: Mapping[str, float] | None = None
    neighboring_relation: str = "zero_out"
    unit: str = ROW
    n_groups: int | None = None
    n_samples: int | None = None
    n_jobs: int | None = None
    random_state: Seed = None

    def fit(self, X, y=None, groups=None, *, X_public=None, y_public=None) -> DPRandomizedSearch:
        """Search, privately.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows, as the estimator takes them.
        y : array-like of shape (n_samples,) or None, default=None
            Class labels or targets.
        groups : array-like of shape (n_samples,) or None, default=None
            With ``unit="group"``: the person whose row it is, as any label. All trials are fitted
            with them; a pipeline passes them on to steps with ``set_fit_request(groups=True)``.
        X_public, y_public : array-like or None, default=None
            Rows that are *public* and like the private ones: trials are then scored on them, and
            the score costs nothing.

        Returns
        -------
        DPRandomizedSearch
            The fitted search.

        Raises
        ------
        ValueError
            If a parameter or the input is invalid; nothing has been spent then.
        BudgetExceededError
            If an open `PrivacyLedger` refuses the search as a whole; no row has been used then.
        RuntimeError
            If no trial was drawn (Poisson law), or one failed; the search stays charged.
        """
        with all_or_nothing(self):
            vars(self).pop("feature_names_in_", None)
            rows = self._checked(X, y, groups)
            score = self._score(X_public, y_public)
            facts = self._facts_of_input(_scores.shape_of(X))
            plan = self._search_plan(facts, private_score=_is_private(score))
            search: SearchPlan = plan.config
            if _is_private(score):
                score = replace(score, mechanism=search.trial.mechanism)
            report = charged(self, plan, (X, y))
            outcomes = self._try(search, score, rows)
            self._keep_winner(_best(outcomes, search.planner.law), score, report, search)
        return self

    # --- before the charge ----------------------------------------------------------------------

    def _checked(self, X: ArrayLike, y: Given, groups: Given) -> _scores.PrivateRows:
        """Check the input as far as it can be without a fit."""
        self._check_groups(groups)
        indexable(X, y)
        _candidates.check_unit(self.estimator, self.unit)
        parts, persons = private_parts(self.estimator).values(), self._persons()
        n_groups = None if persons is None else persons.n_groups
        first = getattr(self.estimator, "steps", [("", self.estimator)])[0][1]
        # The others see what the first returns.
        if isinstance(first, PrivateEstimator) and any(first is part for part in parts):
            _read_alone(_candidates.prepared(first, {}, self.n_samples, n_groups), X, y)
        if persons is None:
            return _scores.PrivateRows(X, y)
        _candidates.check_routing(self.estimator)
        assert groups is not None
        whose = rows_of_persons(groups, _scores.shape_of(X)[0])
        return _scores.PrivateRows(X, y, groups, whose)

    def _facts_of_input(self, shape: tuple[int, ...]) -> PublicFacts:
        """Public facts about rows of this shape; with persons the number of rows is private."""
        declared, persons = self._declared_n_samples(), self._persons()
        if persons is None:
            is_public = self._relation.n_is_public
            n_samples = public_n_rows(declared, shape[0], is_public=is_public)
            n_records = shape[0] if is_public else n_samples
        else:
            n_samples, n_records = declared, persons.n_groups
        assert n_records is not None
        warn_of_delta(self, n_records)
        return self._facts(
            n_samples=n_samples,
            n_features=shape[1] if len(shape) > 1 else None,
            declared=() if declared is None else ("n_samples",),
        )

    def _persons(self) -> PersonUnit | None:
        """Public facts about persons, where these are the records."""
        if one_of(UNITS, unit=self.unit) == ROW:
            if self.n_groups is not None:
                remedy = "it is for unit='group', which protects a person with all of its rows"
                raise expected("None with unit='row'", remedy, n_groups=self.n_groups)
            return None
        n_groups = self._declared("n_groups")
        if n_groups is None:
            remedy = "persons cannot be counted privately: declare about how many there are"
            raise expected("a public number of persons", remedy, n_groups=None)
        n_groups = integer(1, n_groups=n_groups)
        return PersonUnit.of(n_groups, None, "auto", None, self._declared_n_samples())

    def _score(self, X_public: Given, y_public: Given) -> _Score:
        if X_public is None and y_public is None:
            return _scores.PrivateScore(_scores.row_score(self.estimator, self.scoring), None)
        return _scores.public_score(self.estimator, self.scoring, X_public, y_public)

    def _planned(self, facts: PublicFacts) -> FitPlan:
        plan = self._search_plan(facts, private_score=True)
        return replace(plan, config=replace(plan.config, candidates=()))  # how many is a secret

    def _search_plan(self, facts: PublicFacts, *, private_score: bool) -> FitPlan:
        """Draw the number of trials and the candidates, and plan them all."""
        check_seed(self.random_state)
        relation, persons = self._relation, facts.persons
        planner = Planner(
            estimator=self.estimator,
            epsilon=positive(epsilon=self.epsilon, allow_inf=True),
            delta=in_range(0.0, 1.0, delta=self.delta),
            neighboring_relation=relation,
            law=TrialLaw(self.mean_trials, self.shape),
            score_share=in_range(0.0, 1.0, score_share=self.score_share) * private_score,
            weights=self.weights,
            sizes=Sizes.checked(
                facts.rows if persons is None else self._declared_n_samples(), facts.n_features
            ),
            n_groups=None if persons is None else persons.n_groups,
        )
        groups = _candidates.checked_distributions(self.estimator, self.param_distributions)
        _candidates.check_private_parts(self.estimator, relation)
        streams = self._streams("candidates")
        n_trials = planner.law.draw(streams("number of trials").generator)
        generator = streams("candidates").generator
        # Some are planned only: whether one is refused should not hang on how many are tried.
        others = [_candidates.draw(groups, generator) for _ in range(_candidates.REHEARSED)]
        drawn = [_candidates.draw(groups, generator) for _ in range(n_trials)]
        trial = planner.plan(others[0])
        with _silence():
            candidates = planner.candidates([*others, *drawn], trial)[len(others) :]
        event = _candidates.selection(trial.base, planner.law)
        if not epsilon_of_event(event, self.delta, relation) <= self.epsilon:
            raise RuntimeError("The plan of the search exceeds its budget; please report this.")
        report = PrivacyReport.of(
            event,
            delta=self.delta,
            sampling="trials",
            neighboring_relation=relation,
            inferred_public_facts=facts.inferred,
            seeded=self.random_state is not None,
        )
        law = f"the law of the number is {planner.law}"
        tuning = f"accounted: the best of a random number of trials; {law}"
        config = SearchPlan(planner, trial, tuple(candidates))
        return FitPlan(facts, config, replace(report, tuning=tuning))

    def _assumed(self) -> tuple[str, ...]:
        """Return what epsilon assumes of candidates other than the winner."""
        groups = _candidates.checked_distributions(self.estimator, self.param_distributions)
        names = {name.rpartition("__")[2] for group in groups for name in group}
        return (EACH_BY_ITSELF,) if "module" in names else ()

    def _declared_n_samples(self) -> int | None:
        """Return the number of rows that the search or its private parts declare, if it is one."""
        return self._declared("n_samples")

    def _declared(self, fact: str) -> int | None:
        """Return a size that the search or its private parts declare, if it is one."""
        if (own := getattr(self, fact)) is not None:
            return own
        parts = private_parts(self.estimator).values()
        declared = {getattr(part, fact, None) for part in parts} - {None}
        return declared.pop() if len(declared) == 1 else None

    def _streams(self, purpose: str, *arrays: np.ndarray) -> Streams:
        """Return streams keyed by the system, or by the seed and the settings."""
        if self.random_state is None:
            return Streams()
        # A generator is left as it is: all streams of a fit come from the one state.
        seed = check_random_state(copy.deepcopy(self.random_state)).randint(2**31 - 1)
        settings = {k: _described(v) for k, v in self.get_params().items() if k != "random_state"}
        return Streams(seed_material(int(seed), f"{purpose} {__version__}", settings, *arrays))

    # --- after it -------------------------------------------------------------------------------

    def _try(self, search: SearchPlan, score: _Score, rows: _scores.PrivateRows) -> list[_Tried]:
        candidates, plan = search.candidates, search.trial
        seeds, digest = [None] * len(candidates), np.empty(0)
        if self.random_state is not None:
            # Trials are seeded from all of the input, so that no two data sets share noise.
            digest = _digest(rows)
            generator = self._streams("trials", digest)("seeds").generator
            seeds = [int(s) for s in generator.integers(2**31 - 100, size=len(candidates))]
            if isinstance(self.random_state, np.random.RandomState):
                self.random_state.randint(2**31 - 1)  # the next fit is another
        with _silence():
            outcomes: Any = Parallel(n_jobs=self.n_jobs)(
                delayed(_trial)(candidate, plan, score, rows, seed, digest, os.getpid())
                for candidate, seed in zip(candidates, seeds, strict=True)
            )
        return [(c.params, outcome) for c, outcome in zip(candidates, outcomes, strict=True)]

    def _keep_winner(
        self, best: _Tried, score: _Score, report: PrivacyReport, search: SearchPlan
    ) -> None:
        """Keep the winner, and let it state what the search costs."""
        params, (value, winner, parts, _) = best
        of_winner = privacy_of(winner)
        summed = "all rows" if self.unit == ROW else "persons, of each the mean of its rows"
        scored = f"a noisy sum over {summed}" if _is_private(score) else "on public rows"
        facts = joint([report.inferred_public_facts, of_winner.inferred_public_facts])
        declared = self.n_samples is not None
        self.privacy_ = replace(
            report,
            sampling=f"each trial: {of_winner.sampling}; score: {scored}",
            inferred_public_facts=tuple(f for f in facts if not (declared and f == "n_samples")),
            unaccounted=of_winner.unaccounted,
            assumptions=joint([of_winner.assumptions, self._assumed()]),
            valid=report.valid and not of_winner.unaccounted,
        )
        warn_if_inferred(type(self).__name__, self.privacy_.inferred_public_facts)
        _restate(parts, self.privacy_)
        self.best_estimator_, self.best_params_, self._parts = winner, params, parts
        planner = search.planner
        n_records = planner.sizes.n_samples if self.unit == ROW else planner.n_groups
        assert n_records is not None
        self.best_score_ = score.mean(value, n_records)
        self.scorer_ = score.scorer
        self.trial_epsilon_ = planner.trial_epsilon(search.trial)
        if hasattr(winner, "feature_names_in_"):
            self.feature_names_in_ = winner.feature_names_in_

    # --- the winner -----------------------------------------------------------------------------

    def __getattr__(self, name: str) -> Any:
        if name in _NEVER_SHOWN:
            raise AttributeError(
                f"{type(self).__name__} has no {name}, on purpose: {_NEVER_SHOWN[name]}."
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __sklearn_is_fitted__(self) -> bool:
        return "best_estimator_" in vars(self)

    def __sklearn_tags__(self) -> Tags:
        """Be what the estimator is."""
        tags, inner = super().__sklearn_tags__(), get_tags(self.estimator)
        tags.estimator_type = inner.estimator_type
        for kind in ("classifier", "regressor", "transformer", "input", "target"):
            setattr(tags, f"{kind}_tags", copy.deepcopy(getattr(inner, f"{kind}_tags")))
        return tags

    @property
    def classes_(self) -> np.ndarray:
        """Class labels."""
        return self._winner().classes_

    @property
    def n_features_in_(self) -> int:
        """Number of features."""
        return self._winner().n_features_in_

    def _winner(self) -> Any:
        check_is_fitted(self)
        return self.best_estimator_

    def score(self, X, y=None) -> float:
        """Score of the winner on given rows, by ``scoring``, or by its own `score` for None.

        Parameters
        ----------
        X : array-like of shape (n, n_features)
            Rows.
        y : array-like of shape (n,) or None, default=None
            Class labels or targets.

        Returns
        -------
        float
            Without noise: that of training rows is no private release.
        """
        winner = self._winner()
        if self.scoring is None and hasattr(winner, "score"):
            return winner.score(X, y)
        if y is not None or not callable(self.scoring):  # a function may do without
            if is_classifier(winner):
                check_labels(X, y, self.classes_)
            elif is_regressor(winner):
                check_targets(X, y)
        return self.scorer_(winner, X, y)

    @_has("predict")
    def predict(self, X, **parameters) -> Any:
        """Predict with the winner."""
        return self._winner().predict(X, **parameters)

    @_has("predict_proba")
    def predict_proba(self, X) -> np.ndarray:
        """Class probabilities of the winner, shape (n, n_classes)."""
        return self._winner().predict_proba(X)

    @_has("predict_log_proba")
    def predict_log_proba(self, X) -> np.ndarray:
        """Logarithm of `predict_proba`, shape (n, n_classes)."""
        return self._winner().predict_log_proba(X)

    @_has("decision_function")
    def decision_function(self, X) -> np.ndarray:
        """Decision function of the winner."""
        return self._winner().decision_function(X)

    @_has("transform")
    def transform(self, X) -> Any:
        """Transform with the winner."""
        return self._winner().transform(X)

    @_has("inverse_transform")
    def inverse_transform(self, X) -> Any:
        """Transform back with the winner."""
        return self._winner().inverse_transform(X)

    @_has("sample_posterior")
    def sample_posterior(self, n_samples: int = 1, random_state: Seed = None) -> np.ndarray:
        """Draw parameters from the winner's posterior; this costs no privacy."""
        return self._winner().sample_posterior(n_samples, random_state)

    @_has("sample_predictive")
    def sample_predictive(self, X, n_samples: int = 1, random_state: Seed = None) -> np.ndarray:
        """Predictions of the winner under posterior draws; this costs no privacy."""
        return self._winner().sample_predictive(X, n_samples, random_state)


@dataclass(frozen=True)
class SearchPlan:
    """What a search will do: the candidates that were drawn, and what each trial may cost.

    Of the number of candidates nothing may be told.
    """

    planner: Planner
    trial: TrialPlan
    candidates: tuple[Candidate, ...] = field(repr=False)


def _read_alone(estimator: PrivateEstimator, X: ArrayLike, y: Given) -> None:
    """Check an input as a fit of the estimator would; a release on the way is refused."""
    cover = Cover()
    with covered(cover):
        estimator._read(X, y)
    if cover.refused:
        raise BudgetExceededError(
            f"Reading the input of {type(estimator).__name__} made a private release, or another "
            "thread did meanwhile. Fit what is inside it beforehand, one at a time."
        )


# --- one trial ----------------------------------------------------------------------------------


class _Outcome(NamedTuple):
    """What a trial leaves: its score, the fitted model, and the parts of it that were charged.

    A failure ranks above every score, and the graver one above the other: the search then ends with
    the greatest of all outcomes, as ever.
    """

    score: float = _scores.WORST
    model: Any = None
    parts: tuple[Estimator, ...] = ()
    failure: int = 0


_Tried = tuple[Params, _Outcome]
_FAILED, _UNPLANNED = _Outcome(failure=1), _Outcome(failure=2)


def _trial(
    candidate: Candidate,
    plan: TrialPlan,
    score: _Score,
    rows: _scores.PrivateRows,
    seed: int | None,
    digest: np.ndarray,
    parent: int,
) -> _Outcome:
    """Fit and score a candidate; no model where that fails, whatever it failed of."""
    fitted: Any = clone(candidate.estimator)
    streams = Streams()
    if seed is not None:
        streams = Streams(seed_material(seed, "score", {}, digest))
        for position, part in enumerate(private_parts(fitted).values()):
            part.set_params(random_state=seed + position)
    cover = Cover(candidate.events, _candidates.covers_part, relation_of(fitted))
    # A worker process is silenced by itself; filters of this one are set for all of its threads.
    with covered(cover), _alone(), _silence(os.getpid() != parent):
        try:
            fitted.fit(rows.X, rows.y, **rows.whose)
            charged = stating_parts(fitted) <= {id(owner) for owner in cover.owners}
            covered_by_plan = charged and plan.covers(privacy_of(fitted).event)
            value = score(fitted, rows, streams("noise")) if covered_by_plan else 0.0
        except Exception:  # the search will say that, and no more
            return _UNPLANNED if cover.refused else _FAILED
    if cover.refused or not covered_by_plan:
        return _UNPLANNED
    return _Outcome(value, fitted, tuple(cover.owners))


def _alone() -> joblib.parallel_config:
    """Keep parts of a trial in its thread, where the cover is, whatever joblib was asked for."""
    return joblib.parallel_config(backend="sequential", n_jobs=1)


@contextmanager
def _silence(silent: bool = True) -> Iterator[None]:
    """Give no warnings, and no reports of joblib: they would tell of trials, and of rows."""
    if not silent:
        yield
        return
    with warnings.catch_warnings(), joblib.parallel_config(verbose=0):
        warnings.simplefilter("ignore")
        yield


def _best(trials: list[_Tried], law: TrialLaw) -> _Tried:
    """Return the best trial; of equals the first, which is any: trials come in random order."""
    if not trials:
        raise RuntimeError(
            f"No trial was drawn: the number of trials is {law}, and may be 0. The search is "
            "charged all the same. Use a finite shape, whose laws begin at 1."
        )
    failure = max(outcome.failure for _, outcome in trials)
    if failure == _UNPLANNED.failure:
        raise RuntimeError(
            "A trial made a private release that the search had not planned, or more of one, so "
            "nothing of the search is released; it stays charged. Make whatever is fitted on "
            "private rows a step of the pipeline with an epsilon of its own, which the search then "
            "pays for, or fit it beforehand."
        )
    if failure == _FAILED.failure:
        # To go on without it would let rows choose the winner by what they make fail.
        raise RuntimeError(
            "A fit or a score of the search failed. Why is not said, because it may depend on the "
            "rows, and the search stays charged. Fit and score the candidates on made-up rows to "
            "find out, and clean the rows by rules that look at one row at a time."
        )
    best = max(trials, key=lambda trial: trial[1].score)
    if best[1].score == _scores.WORST:
        raise RuntimeError("No trial of the search had a finite score on the public rows.")
    return best


def _restate(parts: Iterable[Estimator], report: PrivacyReport) -> None:
    """Let what was charged in the winning trial state the price of the search, never a lower one.

    Nothing else is touched: a model may refer to objects of the caller, which state other fits.
    """
    for part in parts:
        for name, value in list(vars(part).items()):
            if isinstance(value, PrivacyReport) and value.epsilon <= report.epsilon:
                setattr(part, name, report)
        # The parts of a search inside this one, and the copy that a temperature is fitted to.
        _restate(getattr(part, "_parts", ()), report)
        _restate([p for p in [getattr(part, "estimator_", None)] if p is not None], report)


def _digest(rows: _scores.PrivateRows) -> np.ndarray:
    """Hash rows, targets and whose they are; the same for numbers of another type or form."""
    X, y = np.asarray(rows.X), np.asarray(rows.y).ravel()
    plain: list[Any] = [a.astype(float) if a.dtype.kind in "biuf" else a for a in (X, y)]
    if rows.persons is not None:
        plain += rows.persons
    return np.frombuffer(str(joblib.hash(plain, hash_name="sha1")).encode(), dtype=np.uint8)


def _is_private(score: _Score) -> TypeGuard[_scores.PrivateScore]:
    return isinstance(score, _scores.PrivateScore)


def _described(value: Any) -> Any:
    """Describe a parameter without addresses, which are others in every process."""
    if hasattr(value, "rvs") and hasattr(value, "dist"):  # a frozen distribution of SciPy
        return type(value.dist).__name__, value.args, value.kwds
    if isinstance(value, dict):
        return {name: _described(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_described(inner) for inner in value]
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))
