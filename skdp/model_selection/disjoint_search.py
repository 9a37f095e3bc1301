"""`DPDisjointSearch`: an ordinary search on rows that the final fit does not read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from dp_accounting.dp_event import ComposedDpEvent, DpEvent, NonPrivateDpEvent
from scipy.sparse import issparse
from sklearn.base import clone
from sklearn.model_selection import ParameterGrid
from sklearn.utils import _safe_indexing

from skdp.fitting.charge import all_or_nothing, charged
from skdp.fitting.declared import check_seed, encode_labels
from skdp.fitting.plan import FitPlan, PublicFacts
from skdp.fitting.types import Estimator, Given, Params
from skdp.fitting.validate import expected, in_range, integer, positive
from skdp.mechanisms import NoisyMaxMechanism
from skdp.model_selection import _candidates, _scores
from skdp.model_selection._base import PrivateSearch, alone, digest, silence
from skdp.model_selection._candidates import Budgets, Candidate
from skdp.model_selection.budgets import private_parts, relation_of, solve
from skdp.model_selection.splits import DisjointSplit
from skdp.privacy import epsilon_of_event, epsilon_to_gdp, gdp_to_epsilon
from skdp.privacy.cover import Cover, covered
from skdp.privacy.events import gaussian_mu
from skdp.privacy.parts import PartDpEvent
from skdp.privacy.workflow import stating_parts
from skdp.rows.persons import rows_of_persons

_TUNE, _SCORE, _FINAL = "tune", "score", "final"
_SLACK = 1e-9  # of the ε of the selection, for rounding by the accountant
_MOST_EPSILON = 50.0  # of the selection; beyond, it has next to no noise
_RANGE = round(1 / _scores.UNIT)  # of the scores of one row
_WHY_ALIKE = "what the final fit is charged must not depend on who wins"


@dataclass(eq=False, repr=False)
class DPDisjointSearch(PrivateSearch):
    """Grid or random search whose fits, scores and final fit read different rows.

    Some rows tune: each candidate is fitted on them, with budgets that compose to epsilon. Others
    score: one noisy maximum picks the winner. The rest is for its final fit, with the whole budget.
    Each row pays for one of the three, and the price of the search is rows and not noise.

    **Privacy.** All that is kept (the winner, its parameters and its final fit, and also the fits
    of the candidates, which are not) is (epsilon, delta)-differentially private under
    ``neighboring_relation``. The unit is a row, or a person with all of its rows. It is void for a
    seeded search, conditional on the public facts in ``privacy_``, and on two things that cannot
    be checked for the caller: ``param_distributions`` were made without looking at these rows, and
    a function given as ``scoring`` scores each row by itself. Unlike that of `DPRandomizedSearch`,
    the number of candidates is public, and time tells nothing.

    Parameters
    ----------
    estimator : estimator
        A private estimator, or a pipeline with private steps. Its budgets are set by the search.
    param_distributions : dict or list of dict
        Names of parameters, as in `get_params`, with lists of values, or distributions with ``rvs``
        where ``n_iter`` is given. Parameters that set a budget or state a public fact are refused,
        and so are ones that make the final fit of one candidate cost another event than that of
        another: on random batches, those of batches and steps.
    epsilon, delta : float, default=1.0 and 1e-5
        ε > 0 and δ in (0, 1) of the whole search.
    n_iter : int or None, default=None
        Number of candidates that are drawn; None is the whole grid.
    tuning_share : float, default=0.1
        Share of the rows on which candidates are fitted.
    scoring_share : float, default=0.1
        Share of the rows on which they are scored.
    scoring : str, callable or None, default=None
        As of `DPRandomizedSearch` without public rows.
    weights, neighboring_relation, unit, n_samples, random_state : optional
        As of `DPRandomizedSearch`; steps are told their part, and a person's rows are on one side.

    Attributes
    ----------
    best_estimator_ : estimator
        The final fit of the winner; it states the privacy of the whole search.
    best_params_ : dict
        Parameters of the winner.
    candidates_ : list of dict
        Parameters of all candidates.
    scorer_ : callable
        ``(estimator, X, y) -> float``, without noise.
    tuning_epsilon_ : float
        ε at ``delta`` of the fit of one candidate on the rows that tune.
    privacy_ : PrivacyReport
        The privacy statement of the search.
    classes_, n_features_in_, feature_names_in_
        As of the winner.

    See Also
    --------
    skdp.model_selection.DPRandomizedSearch : Tunes and fits on all rows, at a part of the budget.

    Notes
    -----
    *Budgets.* The K candidates that tune compose: each has μ/√K of full-batch Gaussian mechanisms,
    and of others what the accountant finds. The selection is ε-DP (`NoisyMaxMechanism`); it tells
    who won and no score. A candidate whose fit fails ends the search with its error.

    *Is it worth its cost?* Not where defaults are good, and not on small tables. At (2, 1e-5), five
    or twenty draws for `DPVariationalLogisticRegression` had a lower log-loss than its defaults on
    at most one of seven tabular tasks, by less than 0.001. Draws of the learning rate and the
    clipping norm of a `DPSGDClassifier`, a tenth of the rows to tune, did worse than its defaults
    on 540 and 2900 rows, and better on 13 000 and 34 000 (benchmarks/private_search.py;
    docs/workflows.md). They did better than one draw with the whole budget on all four.

    *Fewer rows and more noise.* Candidates are judged by fits on ``tuning_share`` of the rows with
    μ/√K, so the winner may be too timid for the final fit: a share of 0.3 was better than 0.1 on
    the two small tables above, and worse on the two large ones. Of batches ``batch_size`` keeps the
    size and ``sampling_rate`` the share.

    Examples
    --------
    >>> import numpy as np
    >>> from skdp import DPSGDClassifier
    >>> from skdp.model_selection import DPDisjointSearch
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (3000, 2))
    >>> y = (X[:, 0] > 0).astype(int)
    >>> network = DPSGDClassifier(
    ...     hidden_layer_sizes=(), sampling_rate=1.0, max_iter=20, classes=[0, 1], n_samples=3000
    ... )
    >>> search = DPDisjointSearch(
    ...     network, {"learning_rate": [1e-4, 0.3]}, epsilon=3.0, tuning_share=0.2, n_samples=3000
    ... ).fit(X, y)
    >>> search.best_params_
    {'learning_rate': 0.3}
    >>> round(search.privacy_.epsilon, 6)
    3.0
    """

    _: KW_ONLY
    n_iter: int | None = None
    tuning_share: float = 0.1
    scoring_share: float = 0.1

    _never_shown: ClassVar[dict[str, str]] = {
        "cv_results_": "it would hold scores, which are not released",
        "best_score_": "the selection tells who has won, and not by how much",
        "best_index_": "see best_params_ and candidates_",
        "n_splits_": "there is no cross-validation: there is one split in three",
    }

    def fit(self, X, y=None, groups=None) -> DPDisjointSearch:
        """Tune, choose and fit, each on rows of its own.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows, as the estimator takes them.
        y : array-like of shape (n_samples,) or None, default=None
            Class labels or targets.
        groups : array-like of shape (n_samples,) or None, default=None
            With ``unit=Persons(...)``: the person whose row it is, as any label; a pipeline passes
            them on to steps with ``set_fit_request(groups=True)``.

        Returns
        -------
        DPDisjointSearch

        Raises
        ------
        ValueError
            If a parameter or the input is invalid; nothing has been spent then.
        BudgetExceededError
            If an open `PrivacyLedger` refuses the search as a whole; no row has been used then.
        RuntimeError
            If a fit made a release that was not planned; the search stays charged.
        """
        with all_or_nothing(self):
            vars(self).pop("feature_names_in_", None)
            check_seed(self.random_state)
            rows = self._checked(X, y, groups)
            score = _scores.MeanRowScore(_scores.row_score(self.estimator, self.scoring))
            n_rows = _scores.shape_of(X)[0]
            facts = self._facts_of_input(_scores.shape_of(X))
            split = self._split(facts, n_rows, groups)
            parts = {part: _taken(rows, split, part, n_rows) for part in split.parts}
            facts, estimator = self._declaring(y, facts)
            plan = self._search_plan(facts, split.id, estimator)
            search: DisjointPlan = plan.config
            report = charged(self, plan, (X, y), groups=groups)
            streams = self._streams("search", digest(rows))
            seeds = self._seeds(streams)
            with silence():
                tuned = [_fitted(one, parts[_TUNE], seeds)[0] for one in search.tuned]
            sums = [score.of_trial(model, parts[_SCORE]) for model in tuned]
            units = [round(total / _scores.UNIT) for total in sums]
            best = int(np.argmax(units))
            if search.mechanism is not None:
                best = search.mechanism.release(units, streams("noise"), charged=True)
            winner, owners = _fitted(search.final[best], parts[_FINAL], seeds)
            self.candidates_ = [one.params for one in search.tuned]
            self.tuning_epsilon_ = search.tuning_epsilon
            self.scorer_ = score
            self._keep_best(winner, self.candidates_[best], owners, report)
        return self

    # --- before the charge ----------------------------------------------------------------------

    @property
    def _shares(self) -> dict[str, float]:
        tune = in_range(0.0, 1.0, tuning_share=self.tuning_share)
        score = in_range(0.0, 1.0 - tune, scoring_share=self.scoring_share)
        return {_TUNE: tune, _SCORE: score, _FINAL: 1.0 - tune - score}

    def _split(self, facts: PublicFacts, n_rows: int, groups: Given) -> DisjointSplit:
        relation, n = self._relation, n_rows
        by_coins = not relation.n_is_public
        if by_coins:
            n = facts.rows if facts.persons is None else facts.persons.n_groups or n_rows
        seed = None
        if self.random_state is not None and not by_coins:
            seed = int(self._streams("split")("key").generator.integers(2**31 - 1))
        of: Params = {"groups": groups, "neighboring_relation": relation.of_rows}
        split = DisjointSplit(n, parts=self._shares, random_state=seed, **of)
        # Coins may leave a part without rows, and a refusal would tell how few there are.
        sizes = map(split.n_samples_of, split.parts)
        if n < len(self._shares) or not (by_coins or all(sizes)):
            raise expected("a larger number", "each part needs rows", n_samples=n)
        return split

    def _declaring(self, y: Any, facts: PublicFacts) -> tuple[PublicFacts, Any]:
        """Tell classifiers the classes of all rows, where they would read those of a part."""
        parts = private_parts(self.estimator).items()
        unaware = [name for name, part in parts if getattr(part, "classes", "") is None]
        labels = np.asarray(y)
        labels = labels[:, 0] if labels.shape[1:] == (1,) else labels
        if not unaware or labels.ndim != 1:
            return facts, self.estimator
        classes, _ = encode_labels(labels, None, type(self).__name__)
        estimator: Any = clone(self.estimator)
        estimator.set_params(**{f"{name}__classes".removeprefix("__"): classes for name in unaware})
        return replace(facts, inferred=("classes", *facts.inferred)), estimator

    def _planned(self, facts: PublicFacts) -> FitPlan:
        return self._search_plan(facts, "split of the fit", self.estimator)

    def _search_plan(self, facts: PublicFacts, split: str, estimator: Estimator) -> FitPlan:
        """Give all candidates their budgets, for either of their fits."""
        check_seed(self.random_state)
        epsilon = positive(epsilon=self.epsilon, allow_inf=True)
        relation, shares = self._relation, self._shares
        drawn = self._drawn()
        _candidates.check_private_parts(self.estimator, relation)
        final = _planned(self._budgets(facts, estimator, shares[_FINAL]), drawn, epsilon)
        dearest = max((one.event for one in final), key=lambda event: gaussian_mu(event) or 0.0)
        for one in final:
            if not _candidates.covers_part(dearest, one.event):
                raise _candidates.cost_mismatch(one.params, final[0].params, _WHY_ALIKE)
        tuned, tuning_epsilon = _tuned(
            self._budgets(facts, estimator, shares[_TUNE]), drawn, epsilon
        )
        mechanism = None
        if math.isfinite(epsilon):
            epsilon_of_max = min(epsilon, _MOST_EPSILON) * (1 - _SLACK)
            mechanism = NoisyMaxMechanism(_RANGE, epsilon_of_max, relation)
        chosen = NonPrivateDpEvent() if mechanism is None else mechanism.event()
        events = {_TUNE: _together(tuned), _SCORE: chosen, _FINAL: dearest}
        event = ComposedDpEvent([PartDpEvent(e, split, part) for part, e in events.items()])
        sampling = f"{len(drawn)} fits, a selection and a final fit, on three parts of the rows"
        tuning = f"{len(drawn)}, on rows that the final fit does not read"
        config = DisjointPlan(tuned, final, mechanism, tuning_epsilon)
        return FitPlan(facts, config, self._report(event, facts, sampling, tuning))

    def _drawn(self) -> list[Params]:
        """Parameters of the candidates."""
        given = _candidates.checked_distributions(self.estimator, self.param_distributions)
        if self.n_iter is not None:
            generator = self._streams("candidates")("candidates").generator
            n = integer(1, n_iter=self.n_iter)
            return [_candidates.draw(given, generator) for _ in range(n)]
        if any(hasattr(values, "rvs") for group in given for values in group.values()):
            raise expected("a number of draws", "a distribution has no grid", n_iter=None)
        return list(ParameterGrid(given))


@dataclass(frozen=True)
class DisjointPlan:
    """What a search will do: all candidates as they tune and as one is fitted in the end."""

    tuned: tuple[Candidate, ...] = field(repr=False)
    final: tuple[Candidate, ...] = field(repr=False)
    mechanism: NoisyMaxMechanism | None
    tuning_epsilon: float


def _together(candidates: Sequence[Candidate]) -> DpEvent:
    return ComposedDpEvent([event for one in candidates for event in one.events])


def _planned(budgets: Budgets, drawn: list[Params], epsilon: float) -> tuple[Candidate, ...]:
    with silence():
        return tuple(budgets.with_budget(params, epsilon) for params in drawn)


def _tuned(
    budgets: Budgets, drawn: list[Params], epsilon: float
) -> tuple[tuple[Candidate, ...], float]:
    """Candidates whose fits cost ε together, and the ε of one fit."""
    if math.isinf(epsilon):
        return _planned(budgets, drawn, math.inf), math.inf
    delta, relation = budgets.delta, budgets.neighboring_relation
    mu = epsilon_to_gdp(epsilon, delta) / math.sqrt(len(drawn))
    found: tuple[tuple[Candidate, ...], float] = (), math.inf

    def excess(log_factor: float) -> float:
        nonlocal found
        of_one = gdp_to_epsilon(mu * math.exp(log_factor), delta)
        found = _planned(budgets, drawn, of_one), of_one
        return math.log(epsilon_of_event(_together(found[0]), delta, relation) / epsilon)

    solve(excess)
    return found


def _taken(
    rows: _scores.PrivateRows, split: DisjointSplit, part: str, n_rows: int
) -> _scores.PrivateRows:
    """Rows of a part, in the containers that they came in."""
    numbers = np.asarray(split.take(part, np.arange(n_rows)))
    X, y, groups = (_at(array, numbers) for array in (rows.X, rows.y, rows.groups))
    persons = None if groups is None else rows_of_persons(groups, len(numbers))
    return rows._replace(X=X, y=y, groups=groups, persons=persons)


def _at(array: Any, numbers: np.ndarray) -> Any:
    if array is None:
        return None
    if issparse(array):
        array = array.tocsr()  # other formats have no rows to take
    known = isinstance(array, list | tuple) or hasattr(array, "dtype") or hasattr(array, "columns")
    return _safe_indexing(array if known else np.asarray(array), numbers)


def _fitted(
    candidate: Candidate, rows: _scores.PrivateRows, seeds: np.random.Generator | None
) -> tuple[Any, tuple[Estimator, ...]]:
    """Fit a candidate as planned; return it with the parts that were charged."""
    fitted: Any = clone(candidate.estimator)
    if seeds is not None:
        for part in private_parts(fitted).values():
            part.set_params(random_state=int(seeds.integers(2**31 - 1)))
    cover = Cover(candidate.events, _candidates.covers_part, relation_of(fitted))
    with covered(cover), alone():
        fitted.fit(rows.X, rows.y, **rows.whose)
    if cover.refused or not stating_parts(fitted) <= {id(owner) for owner in cover.owners}:
        raise RuntimeError(
            "A fit made a private release that the search had not planned, so nothing of the "
            "search is released; it stays charged. Make whatever is fitted on private rows a step "
            "of the pipeline with an epsilon of its own, or fit it beforehand."
        )
    return fitted, tuple(cover.owners)
