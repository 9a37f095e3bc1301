"""`DPRandomizedSearch`: randomised search whose choice is private and paid for."""

from __future__ import annotations

import os
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar

import numpy as np
from sklearn.metrics import check_scoring
from sklearn.utils import indexable
from sklearn.utils.parallel import Parallel, delayed

from skdp.fitting.charge import all_or_nothing, charged
from skdp.fitting.declared import check_seed
from skdp.fitting.plan import FitPlan, PublicFacts
from skdp.fitting.types import Given
from skdp.fitting.validate import in_range, positive
from skdp.model_selection import _candidates, _scores
from skdp.model_selection._base import PrivateSearch, digest, silence
from skdp.model_selection._candidates import Planner
from skdp.model_selection._trials import Score, SearchPlan, Tried, best, trial
from skdp.model_selection.trial_law import TrialLaw
from skdp.privacy import PrivacyReport, privacy_of
from skdp.relations import ROW


@dataclass(eq=False, repr=False)
class DPRandomizedSearch(PrivateSearch):
    """Randomised search over parameters, under one privacy budget for everything.

    Draws parameters, fits, scores, and keeps the best of a *random* number of such trials. That
    number is drawn in secret and never shown, which is what makes the best of many cost about as
    much as two or three: of (2, 1e-5), the best of 10 on average leaves each trial a little over
    half of the ε. Only the winner leaves: its parameters, its model and its score.

    **Privacy.** The winner, with its parameters and its score, is (epsilon, delta)-differentially
    private under ``neighboring_relation``; so is everything predicted with it. The law of the
    number of trials, the noise of the fits and that of the scores are all in it. The unit is a row,
    or a person with all of its rows. The guarantee covers one search; it is void for a seeded one,
    conditional on the public facts in ``privacy_``, and on three things that cannot be checked for
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
        are refused, and so are ones that would make a candidate more expensive than the others: on
        random batches, those of batches and steps.
    epsilon, delta : float, default=1.0 and 1e-5
        ε > 0 and δ in (0, 1) of the whole search; δ should be well below 1/n.
    mean_trials : float, default=10
        Mean number of trials: 1, or at least 1.001.
    shape : float, default=0.0
        Law of the number of trials. 0 is the logarithmic law, the cheapest for many trials; with a
        mean of 10, a quarter of the searches have one trial only. 1 is the geometric law.
        ``float("inf")`` is the Poisson law: the cheapest for two or three trials; where it draws
        none at all, the search ends with an error, and is charged.
    scoring : str, callable or None, default=None
        With public rows any scorer of scikit-learn. Without them ``"accuracy"`` (the default of
        classifiers), ``"neg_log_loss"`` (cut at four times that of a blind guess), or
        ``"neg_mean_squared_error"`` (the default of regressors; on the range of
        ``target_bounds``), as mean scores of the rows in [0, 1]; or a function
        ``(estimator, X, y) -> ndarray of shape (n,)`` of scores in [0, 1], each computed from its
        row alone: where it ranks or standardises rows, the noise does not cover it.
    score_share : float, default=0.1
        Share in (0, 1) of a trial's μ² that pays for its score; nothing does with public rows.
    weights : mapping or None, default=None
        Shares of the private steps of a pipeline, see `split_budget`.
    neighboring_relation : {"zero_out", "add_or_remove_one", "replace_one"}, default="zero_out"
        Who is a neighbour; that of the private steps.
    unit : "row" or Persons, default="row"
        What is protected: a row, or a person with all of its rows, which `fit` is told by
        ``groups``; that of the private steps. Of `skdp.Persons` a search takes ``n_groups`` alone,
        which all private steps are given; None takes the one that they declare.
    n_samples : int or None, default=None
        Public number of rows, which all private steps are given. None takes the one that they
        declare, or reads it from X and says so in the report; with ``unit=Persons(...)`` it is not
        read.
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
        Its score: on public rows, or the noisy mean over the private rows, or persons, of a score
        in [0, 1], which flatters, being the best of several. By default that is the share of right
        classes, or 1 less the squared error over the squared width of the target bounds, near 1
        where R² may not be. `score` and ``scorer_`` weigh rows alike.
    scorer_ : callable
        ``(estimator, X, y) -> float``, without noise.
    trial_epsilon_ : float
        ε at ``delta`` of a fit of one trial, had it been alone. It is *not* the price of the
        winner.
    privacy_ : PrivacyReport
        The privacy statement of the search.
    classes_, n_features_in_, feature_names_in_
        As of the winner.

    See Also
    --------
    skdp.model_selection.PrivacyLedgerCallback : Counts the fits of scikit-learn's own searches.

    Notes
    -----
    *Trials.* Each draws parameters, fits with a part of the budget that is the same for all, and
    scores, on the rows of its fit: one mechanism. By Papernot & Steinke (2022; Theorems 2 and 6)
    the best of K runs of it has a price in Rényi terms that depends on the law of K.

    *What is not done.* No limit of time or number stops the search. A trial that fails ends it: if
    failed trials were merely the worst, a row that makes some candidates fail would choose among
    the others. Warnings are silenced while trials run, in all threads of the process. Before the
    charge, all candidates are planned, and X and y are checked as the estimator, or the first step
    of a pipeline, checks them. A private release that was not planned ends the search, and so does
    one in another thread meanwhile; one in a process that the caller's code starts is not seen.

    *Planning.* It takes milliseconds, on random batches seconds, and minutes where the noise
    changes from step to step, as in `DPSGLDClassifier`. Random batches under replace_one have no
    bound in Rényi terms, and are refused.

    *Persons.* A pipeline needs ``set_fit_request(groups=True)`` on each private step. A person's
    share of a private score is the mean of its rows' scores less ½, and the divisor is their public
    number: those with many rows weigh no more than others, in this score and not in the fits.

    *Is it worth its cost?* Seldom where the defaults are good, because a search uses nearly half of
    the budget: at (2, 1e-5) it did no better than the defaults of
    `DPVariationalLogisticRegression` on at least six of seven tabular tasks, and worse than those
    of `DPSGDClassifier` on both of two. It pays where no good value is known: against *one* draw
    with the whole budget, 10 trials took the log-loss of the network from 1.69 to 0.97 and from
    0.93 to 0.59 (benchmarks/private_search.py).

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
    >>> values = {"dpvariationallogisticregression__max_iter": [5, 20]}
    >>> search = DPRandomizedSearch(model, values, epsilon=2.0, mean_trials=3).fit(X, y)
    >>> search.score(X, y) > 0.8
    True
    >>> search.best_estimator_[-1].privacy_ is search.privacy_
    True
    """

    _: KW_ONLY
    mean_trials: float = 10
    shape: float = 0.0
    score_share: float = 0.1
    n_jobs: int | None = None

    _never_shown: ClassVar[dict[str, str]] = {
        "cv_results_": "it would hold the other trials, and how many there were",
        "best_index_": "it would tell how many trials there were at least",
        "n_splits_": "there is no cross-validation: every trial fits and scores all rows",
        "refit_time_": "there is no refit: it would be a further release",
    }

    def fit(self, X, y=None, groups=None, *, X_public=None, y_public=None) -> DPRandomizedSearch:
        """Search, privately.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows, as the estimator takes them.
        y : array-like of shape (n_samples,) or None, default=None
            Class labels or targets.
        groups : array-like of shape (n_samples,) or None, default=None
            With ``unit=Persons(...)``: the person whose row it is, as any label. All trials are
            fitted with them; a pipeline passes them on to steps with
            ``set_fit_request(groups=True)``.
        X_public, y_public : array-like or None, default=None
            Rows that are *public* and like the private ones: trials are then scored on them, and
            the score costs nothing.

        Returns
        -------
        DPRandomizedSearch

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
            plan = self._search_plan(facts, private_score=isinstance(score, _scores.MeanRowScore))
            search: SearchPlan = plan.config
            report = charged(self, plan, (X, y), groups=groups)
            outcomes = self._try(search, score, rows)
            self._keep_winner(best(outcomes, search.law), score, report, search)
        return self

    # --- before the charge ----------------------------------------------------------------------

    def _score(self, X_public: Given, y_public: Given) -> Score:
        if X_public is None and y_public is None:
            return _scores.MeanRowScore(_scores.row_score(self.estimator, self.scoring))
        if X_public is None or y_public is None:
            raise ValueError("Expected both X_public and y_public, or neither.")
        indexable(X_public, y_public)
        scorer = check_scoring(self.estimator, scoring=self.scoring)
        return _scores.PublicScore(scorer, X_public, y_public)

    def _planned(self, facts: PublicFacts) -> FitPlan:
        plan = self._search_plan(facts, private_score=True)
        return replace(plan, config=replace(plan.config, candidates=()))  # how many is a secret

    def _search_plan(self, facts: PublicFacts, *, private_score: bool) -> FitPlan:
        """Draw the number of trials and the candidates, and plan them all."""
        check_seed(self.random_state)
        epsilon = positive(epsilon=self.epsilon, allow_inf=True)
        law = TrialLaw(self.mean_trials, self.shape)
        share = in_range(0.0, 1.0, score_share=self.score_share) * private_score
        budgets = self._budgets(facts, self.estimator)
        planner = Planner(budgets, epsilon, law, share)
        groups = _candidates.checked_distributions(self.estimator, self.param_distributions)
        _candidates.check_private_parts(self.estimator, self._relation)
        streams = self._streams("candidates")
        n_trials = law.draw(streams("number of trials").generator)
        generator = streams("candidates").generator
        # Some are planned only: whether one is refused should not hang on how many are tried.
        others = [_candidates.draw(groups, generator) for _ in range(_candidates.REHEARSED)]
        drawn = [_candidates.draw(groups, generator) for _ in range(n_trials)]
        of_trial = planner.plan(others[0])
        with silence():
            candidates = planner.candidates([*others, *drawn], of_trial)[len(others) :]
        event = _candidates.selection(of_trial.base, law)
        tuning = f"a random number of trials; the law of the number is {law}"
        n_records = budgets.sizes.n_samples if facts.persons is None else budgets.n_groups
        config = SearchPlan(law, of_trial, n_records, tuple(candidates))
        return FitPlan(facts, config, self._report(event, facts, "trials", tuning))

    def _try(self, search: SearchPlan, score: Score, rows: _scores.PrivateRows) -> list[Tried]:
        candidates, plan = search.candidates, search.trial
        # Trials are seeded from all of the input, so that no two data sets share noise.
        key = np.empty(0) if self.random_state is None else digest(rows)
        generator = self._seeds(self._streams("trials", key))
        seeds: list[Any] = [None] * len(candidates)
        if generator is not None:
            seeds = generator.integers(2**31 - 100, size=len(candidates)).tolist()
        with silence():
            outcomes: Any = Parallel(n_jobs=self.n_jobs)(
                delayed(trial)(candidate, plan, score, rows, seed, key, os.getpid())
                for candidate, seed in zip(candidates, seeds, strict=True)
            )
        return [(c.params, outcome) for c, outcome in zip(candidates, outcomes, strict=True)]

    def _keep_winner(
        self, tried: Tried, score: Score, report: PrivacyReport, search: SearchPlan
    ) -> None:
        """Keep the winner, and let it state what the search costs."""
        params, (value, winner, parts, _) = tried
        self.best_score_, self.scorer_, scored = value, score, "on public rows"
        if isinstance(score, _scores.PublicScore):
            self.scorer_ = score.scorer
        else:
            assert search.n_records is not None
            self.best_score_ = 0.5 + value / search.n_records
            summed = "all rows" if self.unit == ROW else "persons, of each the mean of its rows"
            scored = f"a noisy sum over {summed}"
        sampling = f"each trial: {privacy_of(winner).sampling}; score: {scored}"
        self._keep_best(winner, params, parts, replace(report, sampling=sampling))
        self.trial_epsilon_ = search.trial.epsilon
