"""Private conformal prediction: sets and intervals that cover, whatever the model."""

from __future__ import annotations

import copy
import inspect
import math
import uuid
import warnings
from collections.abc import Sized
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from sklearn.base import MetaEstimatorMixin, clone
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils import Tags, _safe_indexing, get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from skdp import _fitting
from skdp._fitting import (
    PrivateEstimator,
    all_or_nothing,
    charged,
    encode_labels,
    initial_seed,
    public_n_rows,
    warn_of_delta,
)
from skdp._input import (
    AccuracyMixin,
    R2Mixin,
    check_columns_and_labels,
    check_columns_and_targets,
    check_features_and_labels,
    check_features_and_targets,
)
from skdp._marked_rows import Mark, handed_on, part_read, trusting
from skdp._persons import PersonUnit, rows_of_persons
from skdp._plan import FitPlan, PublicFacts
from skdp._types import ArrayLike, Estimator, Given, Opaque, Params, Seed
from skdp._validate import expected, in_range, integer, one_of
from skdp._warnings import FitWarning
from skdp.algorithms.conformal import ConformalConfig
from skdp.model_selection.splits import DisjointSplit
from skdp.privacy import PrivacyReport, privacy_of
from skdp.privacy.budget import Budget
from skdp.privacy.parts import common_part
from skdp.privacy.report import joint
from skdp.privacy.workflow import stating_parts
from skdp.relations import ROW, UNITS, other_relation

_FIT, _CALIBRATE = "fit", "calibrate"
_COINS = 4.0  # standard deviations that a part by coins may be short of its expected number
_STANDARD_DEVIATIONS = 100.0  # bound on a scaled residual


class _Rows(NamedTuple):
    """Checked rows, as they are handed on."""

    X: Any
    y: np.ndarray
    groups: Given = None
    classes: np.ndarray | None = None  # found or declared; None for regressors

    @property
    def whose(self) -> Params:
        """What a fit is told of persons."""
        return {} if self.groups is None else {"groups": self.groups}


def _has(method: str) -> Any:
    def check(conformal: Any) -> bool:
        getattr(getattr(conformal, "estimator_", conformal.estimator), method)
        return True

    return available_if(check)


@dataclass(eq=False, repr=False)
class _DPConformal(MetaEstimatorMixin, PrivateEstimator):
    """What both have in common: who is fitted on which rows, the charge, and the threshold."""

    estimator: Estimator
    _: KW_ONLY
    alpha: float = 0.1
    epsilon: float = 1.0
    delta: float = 0.0
    calibration_share: float = 0.25
    neighboring_relation: str = "zero_out"
    unit: str = ROW
    n_groups: int | None = None
    n_samples: int | None = None
    random_state: Seed = None

    _takes_pure_budget: ClassVar[bool] = True

    def fit(self, X, y, groups=None) -> Self:
        """Fit the model on a part of the rows, unless it is frozen, and calibrate on the others.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows. With a frozen model all of them calibrate: it must not have been fitted on them.
        y : array-like of shape (n_samples,)
            Class labels or targets.
        groups : array-like of shape (n_samples,) or None, default=None
            With ``unit="group"``: the person whose row it is, as any label. A model that is fitted
            here is given them too.

        Returns
        -------
        Self
            The fitted estimator.

        Raises
        ------
        ValueError
            If a parameter or the input is invalid; nothing has been spent then.
        BudgetExceededError
            If an open `PrivacyLedger` refuses one of the two; a model that was fitted here before
            stays charged.
        """
        with all_or_nothing(self):
            self._check_groups(groups)
            rows = self._checked(X, y, groups)
            n = self._n_records(len(rows.y))
            warn_of_delta(self, n)
            plan = self._plan(self._facts_of_rows(n, rows.classes))
            fitted, rows = (self._frozen if self._is_frozen else self._fitted)(rows, n)
            # Of the model that was given, not of its copy: `privacy_of` knows releases apart.
            told = privacy_of(self.estimator if self._is_frozen else fitted)
            self.estimator_ = fitted
            own = self.threshold_privacy_ = charged(
                self, plan, (rows.X, rows.y), groups=rows.groups
            )
            self.privacy_ = _together(told, own, fitted)
            scores = self._scores_of(rows)
            self.threshold_ = plan.config.run((scores,), _fitting.streams(self, scores))
            said = _on_own_rows(told, rows), self._told_of_threshold(plan.config)
            self.diagnostics_ = tuple(message for message in said if message)
        for message in self.diagnostics_:
            warnings.warn(message, FitWarning, stacklevel=2)
        return self

    def plan(
        self, n_samples: int | None = None, n_features: int | None = None, classes: Any = None
    ) -> FitPlan:
        """Plan a fit from public facts; a model that is fitted here is a part of it.

        Parameters
        ----------
        n_samples : int or None, default=None
            Public number of rows; not asked for where one is declared.
        n_features : int or None, default=None
            Number of features.
        classes : array-like or None, default=None
            Class labels; None for those that were declared.

        Returns
        -------
        FitPlan
            What `fit` on such data would do and be charged.
        """
        plan = super().plan(n_samples, n_features, classes)
        if not plan.parts:
            return plan
        split = uuid.uuid4().hex[:16]  # of two fits the records are in parts of their own each
        parts = {k: _of_part(part, split, _FIT, self.unit) for k, part in plan.parts.items()}
        return replace(_of_part(plan, split, _CALIBRATE, self.unit), parts=parts)

    # --- rows -----------------------------------------------------------------------------------

    @property
    def _is_frozen(self) -> bool:
        return isinstance(self.estimator, FrozenEstimator)

    @property
    def _inner(self) -> Any:
        """The model itself, frozen or not."""
        given: Any = self.estimator
        return given.estimator if self._is_frozen else given

    def _checked(self, X: Any, y: Any, groups: Given) -> _Rows:
        """Check all that can be checked before the model spends anything."""
        if not hasattr(self._inner, "fit") or not hasattr(self._inner, "predict"):
            raise expected("an estimator with fit and predict", estimator=self.estimator)
        tags = get_tags(self._inner).input_tags
        columns = isinstance(self._inner, Pipeline) or tags.allow_nan or tags.categorical
        checked, labels, classes = self._read_rows(X, y, columns)
        if hasattr(X, "columns"):  # left as it is: names of columns and all
            checked = X
        elif columns:
            checked = np.asarray(X)
        if groups is not None:
            rows_of_persons(groups, len(labels))
        return _Rows(handed_on(X, checked), handed_on(y, labels), groups, classes)

    def _read_rows(self, X: Any, y: Any, columns: bool) -> tuple[Any, np.ndarray, Any]:
        """Check rows and targets; return classes too, where there are any."""
        raise NotImplementedError

    def _n_records(self, n_rows: int) -> int:
        """Public number of rows or persons that were given."""
        persons, is_public = self._persons(), self._relation.n_is_public
        if persons is not None:
            assert persons.n_groups is not None
            return persons.n_groups
        declared = public_n_rows(self.n_samples, n_rows, is_public=is_public)
        return n_rows if is_public else declared

    def _facts_of_rows(self, n: int, classes: Sized | None) -> PublicFacts:
        facts = self._facts(
            n_samples=n,
            n_features=getattr(self, "n_features_in_", None),
            n_outputs=1 if classes is None else len(classes),
        )
        if not self._is_frozen and getattr(self._inner, "classes", "") is None:
            return replace(facts, inferred=("classes", *facts.inferred))
        return facts

    def _persons(self) -> PersonUnit | None:
        """Public facts about persons, where these are the records; of each one row takes part."""
        if one_of(UNITS, unit=self.unit) == ROW:
            if self.n_groups is not None:
                remedy = "it is for unit='group', which protects a person with all of its rows"
                raise expected("None with unit='row'", remedy, n_groups=self.n_groups)
            return None
        if self.n_groups is None:
            remedy = "persons cannot be counted privately: declare about how many there are"
            raise expected("a public number of persons", remedy, n_groups=None)
        return PersonUnit.of(integer(1, n_groups=self.n_groups), None, "auto", 1, None)

    def _assumptions(self) -> tuple[str, ...]:
        return (_fitting.PREDICTED_BY_ROW,)

    def _person_bound(self, persons: PersonUnit) -> str:
        return "a random one"

    # --- who is fitted on what ------------------------------------------------------------------

    def _frozen(self, rows: _Rows, n: int) -> tuple[Any, _Rows]:
        # A copy, because it is shared: fitted again it would change what is predicted here.
        return copy.deepcopy(self.estimator), rows

    def _fitted(self, rows: _Rows, n: int) -> tuple[Any, _Rows]:
        """Fit the model on its part of the rows; return it, and the part that calibrates."""
        by_coins, share = not self._relation.n_is_public, self._share
        seeded = self.random_state is not None and not by_coins
        split = DisjointSplit(
            n,
            parts={_FIT: 1 - share, _CALIBRATE: share},
            groups=rows.groups,
            neighboring_relation=self._relation.of_rows,
            random_state=initial_seed(self) if seeded else None,
        )
        # Coins may leave a part without rows, and a refusal would tell how few there are.
        if n < 2 or not (by_coins or all(map(split.n_samples_of, split.parts))):
            remedy = "the model needs rows, and its calibration others"
            raise expected("a larger number", remedy, n_samples=n)
        parts = []
        for part in split.parts:
            X, y, at = split.take(part, rows.X, rows.y, np.arange(len(rows.y)))
            groups = None if rows.groups is None else _safe_indexing(rows.groups, np.asarray(at))
            parts.append(_Rows(X, y, groups))
        first, other = parts
        model = self._for_part()
        if rows.classes is not None and getattr(model, "classes", "") is None:
            model.set_params(classes=rows.classes)
        mark = part_read(first.X, first.y)
        # Steps of the model make new rows, of these alone.
        with trusting({split.id: _FIT} if mark is None else mark.proved):
            return model.fit(first.X, first.y, **first.whose), other

    def _for_part(self) -> Any:
        """Return an unfitted copy of the model, told the public sizes of its part."""
        model: Any = clone(self.estimator)
        for part in (model, *model.get_params(deep=True).values()):
            known = part.get_params(deep=False) if hasattr(part, "get_params") else {}
            for name in ("n_samples", "n_groups") if "epsilon" in known else ():
                size = getattr(self, name) if known.get(name) is None else known[name]
                if name in known and size is not None:
                    size = integer(1, **{name: size})
                    part.set_params(**{name: max(1, round((1 - self._share) * size))})
        return model

    @property
    def _share(self) -> float:
        return in_range(0.0, 1.0, calibration_share=self.calibration_share)

    def _n_outputs(self, classes: Sized | None) -> int | None:
        return None if classes is None else len(classes)

    def _planned(self, facts: PublicFacts) -> FitPlan:
        inner, relation = self._inner, self._relation
        if self._is_frozen:
            told = privacy_of(self.estimator) if stating_parts(self.estimator) else None
            found = {relation if told is None else told.neighboring_relation}
        else:
            known = {n.rpartition("__")[2]: v for n, v in inner.get_params(deep=True).items()}
            of_rows = known.get("neighboring_relation", relation.of_rows)
            unit = known.get("unit", self.unit if isinstance(inner, PrivateEstimator) else ROW)
            found = {relation.of_unit(unit) if of_rows == relation.of_rows else of_rows}
            if "neighboring_relation" not in known:
                found = {relation}
        if (other := found.pop()) != relation:
            raise other_relation(f"{other!r} as in the model", relation)
        plan = super()._planned(facts)
        if self._is_frozen or not isinstance(inner, PrivateEstimator):
            return plan
        classes = None if facts.n_outputs is None else range(facts.n_outputs)
        n = None
        if facts.n_samples is not None and relation.n_is_public:
            n = max(1, round((1 - self._share) * facts.n_samples))
        part = self._for_part().plan(n, facts.n_features, classes)
        return replace(plan, parts={"estimator": part})

    # --- the threshold --------------------------------------------------------------------------

    def _configure(self, facts: PublicFacts, budget: Budget) -> ConformalConfig:
        m, share = facts.rows, self._share
        if not self._is_frozen:
            by_coins = not self._relation.n_is_public
            short = _COINS * math.sqrt(m * share * (1 - share)) * by_coins
            m = max(1, math.floor(m * share - short))
        return ConformalConfig(
            alpha=in_range(1e-6, 0.5, closed="both", alpha=self.alpha),
            n_records=m,
            epsilon=float(budget.epsilon or 0.0),
            neighboring_relation=budget.neighboring_relation,
            largest=self._largest(),
        )

    def _largest(self) -> float | None:
        """Return the largest finite threshold; None where scores are probabilities."""
        return None

    def _scores_of(self, rows: _Rows) -> np.ndarray:
        """Scores of records: of persons that of one row each. One that is no number is infinite."""
        chosen: Any = slice(None)
        if rows.groups is not None:
            key = initial_seed(self).to_bytes(4, "little")
            chosen, _ = rows_of_persons(rows.groups, len(rows.y), 1, key)
        if not len(rows.y):
            return np.empty(0)
        with np.errstate(all="ignore"):  # a warning would tell of a row
            scores = self._true_scores(rows)[chosen]
        return np.where(np.isfinite(scores), scores, math.inf)

    def _true_scores(self, rows: _Rows) -> np.ndarray:
        raise NotImplementedError

    def _told_of_threshold(self, config: ConformalConfig) -> str:
        """Say if nothing is left out of sets, or too much is in intervals, and why.

        It is a function of public and released values.
        """
        name, m = type(self).__name__, config.n_records
        if config.largest is not None and self.threshold_ <= config.points[0] and config.private:
            return (
                f"{name} has the smallest threshold that there is for residual_bound="
                f"{config.largest:g}, which is far too large: intervals are too wide."
            )
        if math.isfinite(self.threshold_):
            return ""
        if not config.possible:
            return (
                f"{name} leaves nothing out: {m} calibration records are too few for "
                f"alpha={config.alpha:g} at epsilon={config.epsilon:g}; about "
                f"{config.least_records} would do. No row was read for the threshold."
            )
        return f"{name} leaves nothing out: the threshold is beyond all scores. {self._remedy}"

    _remedy: ClassVar[str] = "The model is wrong too often, or too sure."

    # --- predictions ----------------------------------------------------------------------------

    def predict(self, X) -> np.ndarray:
        """Prediction of the model for each row, shape (n,)."""
        check_is_fitted(self)
        return self.estimator_.predict(X)

    def __sklearn_tags__(self) -> Tags:
        """Take input as the model does."""
        tags = super().__sklearn_tags__()
        tags.input_tags = replace(get_tags(self.estimator).input_tags, sparse=False)
        return tags


@dataclass(eq=False, repr=False)
class DPConformalClassifier(AccuracyMixin, _DPConformal):
    """Prediction sets that hold the right class at a chosen rate, privately.

    A set holds the classes whose score is at most a threshold, which is one private quantile of the
    scores of calibration rows that the classifier has not seen. Coverage needs no assumption about
    the classifier, which may be wrong: a bad one has large sets.

    **Privacy.** The threshold is epsilon-differentially private, with δ = 0, under
    ``neighboring_relation``, given the classifier: one draw of the exponential mechanism. A
    classifier that is fitted here reads other rows, so ``privacy_`` states the larger of the two;
    for a frozen one it does where both were fitted on parts of one `DisjointSplit`, and else states
    the composition. Conditional on the public facts in the report, void for a seeded fit.

    **Coverage.** For rows that are exchangeable with those that calibrate, the set holds the right
    class with probability 1 - alpha or more, over the rows and the noise: the rank of the quantile
    is raised to pay for the noise (see Notes). It is marginal: over all rows, and not within a
    class or a subgroup. It is void for rows on which the classifier was fitted.

    Parameters
    ----------
    estimator : classifier
        With `predict_proba`. It is cloned and fitted on a part of the rows;
        ``FrozenEstimator(classifier)`` keeps one that was fitted, on other rows.
    alpha : float, default=0.1
        Share of sets, in [1e-6, 0.5], that may miss the right class.
    epsilon : float, default=1.0
        ε > 0 of the threshold. ``float("inf")`` for no privacy.
    delta : float, default=0.0
        δ in [0, 1) at which ``privacy_`` is stated, if that of the classifier is not larger.
    calibration_share : float, default=0.25
        Share of the rows in (0, 1) that calibrate, where the classifier is fitted here.
    neighboring_relation : {"zero_out", "add_or_remove_one", "replace_one"}, default="zero_out"
        Who is a neighbour; that of the classifier.
    unit : {"row", "group"}, default="row"
        What is protected: a row, or a person with all of its rows, which `fit` is told by
        ``groups``; that of the classifier. Of each person one random row calibrates: coverage is
        that of a random row of a new person.
    n_groups : int or None, default=None
        Public number ≥ 1 of persons; needed with ``unit="group"``.
    n_samples : int or None, default=None
        Public number of rows; a classifier that is fitted here is told its part of it. None reads
        it from X and says so in the report. Where it is private, coverage holds if there are at
        least so many.
    random_state : int, RandomState instance or None, default=None
        None keys the noise and the split from the operating system. A seed makes the threshold
        repeatable and its guarantee void.
    conformity : {"lac", "aps"}, default="lac"
        1 less the probability of the class (Sadinle et al. 2019), which has the smallest sets; or
        the probability of all classes that are as likely or more (Romano et al. 2020, without
        randomisation), whose sets are larger where the classifier hesitates.

    Attributes
    ----------
    estimator_ : classifier
        The fitted classifier.
    threshold_ : float
        Score up to which a class is in the set; infinite where nothing is left out.
    privacy_ : PrivacyReport
        Statement of classifier and threshold together. Not valid for a classifier that says nothing
        of what it has learned: then see the next.
    threshold_privacy_ : PrivacyReport
        Statement of the threshold, given the classifier.
    diagnostics_ : tuple of str
        Doubts about the sets; each was a `FitWarning`.
    classes_ : ndarray of shape (n_classes,)
        Class labels: columns of the sets.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Feature names, where X had any.

    See Also
    --------
    skdp.model_selection.DisjointSplit : Parts of the rows for a fit and its calibration.

    Notes
    -----
    *Rank.* With m calibration rows, B points to draw from and a rate r = ε/R, the rank is that of
    ordinary conformal prediction and ln(B) - 2 or so over r more: 0.911 m in place of 0.9 m at
    mε = 1000. The proof is in docs/derivations.md. Where the rank would exceed m nothing is drawn,
    sets hold every class, and a `FitWarning` says so.

    *Missing classes.* A class without calibration rows is in sets by its score, as others are.

    References
    ----------
    A. Angelopoulos, S. Bates, T. Zrnic, M. I. Jordan, *Private Prediction Sets*, Harvard Data
    Science Review 4(2), 2022. M. Sadinle, J. Lei, L. Wasserman, *Least Ambiguous Set-Valued
    Classifiers*, JASA 114, 2019. Y. Romano, M. Sesia, E. Candès, *Classification with Valid and
    Adaptive Coverage*, NeurIPS 2020.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.frozen import FrozenEstimator
    >>> from skdp import DisjointSplit, DPVariationalLogisticRegression
    >>> from skdp.conformal import DPConformalClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (4000, 1))
    >>> y = (rng.random(4000) < 1 / (1 + np.exp(-4 * X[:, 0]))).astype(int)
    >>> split = DisjointSplit(4000, parts={"train": 0.5, "calibrate": 0.5})
    >>> model = DPVariationalLogisticRegression(epsilon=1.0, classes=[0, 1], n_samples=2000)
    >>> model = model.fit(*split.take("train", X, y))
    >>> sets = DPConformalClassifier(FrozenEstimator(model), epsilon=1.0, n_samples=2000)
    >>> sets = sets.fit(*split.take("calibrate", X, y))
    >>> round(sets.privacy_.epsilon, 3)  # of both
    1.0
    >>> bool(0.87 < sets.predict_set(X)[np.arange(4000), y].mean() < 0.95)
    True
    """

    conformity: str = "lac"

    def __sklearn_tags__(self) -> Tags:
        """Tell as many classes as the model does."""
        tags, inner = super().__sklearn_tags__(), get_tags(self.estimator).classifier_tags
        tags.classifier_tags.multi_class = inner is None or inner.multi_class
        return tags

    def _read_rows(self, X: Any, y: Any, columns: bool) -> tuple[Any, np.ndarray, Any]:
        one_of(_CONFORMITY, conformity=self.conformity)
        inner, name = self._inner, type(self._inner).__name__
        if not hasattr(inner, "predict_proba"):
            raise expected("a classifier with predict_proba", estimator=self.estimator)
        declared = getattr(inner, "classes_" if self._is_frozen else "classes", None)
        read: Any = check_columns_and_labels if columns else check_features_and_labels
        more = {} if columns else {"dtype": "numeric"}
        checked, labels = read(self, X, y, declared=declared is not None, **more)
        return checked, labels, encode_labels(labels, declared, name)[0]

    def _n_outputs(self, classes: Sized | None) -> int | None:
        declared = getattr(self._inner, "classes", None) if classes is None else classes
        return None if declared is None else len(declared)

    def _true_scores(self, rows: _Rows) -> np.ndarray:
        classes = self.classes_ = np.asarray(self.estimator_.classes_)
        codes = np.minimum(np.searchsorted(classes, rows.y), len(classes) - 1)
        scores = self._scores(rows.X)[np.arange(len(codes)), codes]
        # The part of the rows on which the model was fitted may have missed a class.
        return np.where(classes[codes] == rows.y, scores, math.inf)

    def _scores(self, X: ArrayLike) -> np.ndarray:
        """Scores of all classes, (n, n_classes); a class that has none is only in sets of all."""
        return _CONFORMITY[self.conformity](np.asarray(self.estimator_.predict_proba(X), float))

    def predict_set(self, X) -> np.ndarray:
        """Say which classes are in the set of each row.

        Parameters
        ----------
        X : array-like of shape (n, n_features)
            Rows.

        Returns
        -------
        ndarray of bool of shape (n, n_classes)
            Columns are those of ``classes_``. A set may be empty, for a row unlike those of any
            class.
        """
        check_is_fitted(self)
        scores = self._scores(X)
        sets = np.where(np.isfinite(scores), scores, math.inf) <= self.threshold_
        return handed_on(X, sets)

    @_has("predict_proba")
    def predict_proba(self, X) -> np.ndarray:
        """Class probabilities of the classifier, shape (n, n_classes)."""
        check_is_fitted(self)
        return self.estimator_.predict_proba(X)


@dataclass(eq=False, repr=False)
class DPConformalRegressor(R2Mixin, _DPConformal):
    """Prediction intervals that hold the target at a chosen rate, privately.

    An interval is the prediction plus and minus a threshold, or a multiple of the predicted
    standard deviation: one private quantile of the residuals of calibration rows that the regressor
    has not seen. Coverage needs no assumption about the regressor, which may be wrong.

    **Privacy.** As that of `DPConformalClassifier`: one draw of the exponential mechanism, with
    δ = 0, on rows that a regressor which is fitted here does not read.

    **Coverage.** As there: the interval holds the target of an exchangeable row with probability
    1 - alpha or more, over the rows and the noise, on average over all rows.

    Parameters
    ----------
    estimator : regressor
        Of one target. It is cloned and fitted on a part of the rows;
        ``FrozenEstimator(regressor)`` keeps one that was fitted, on other rows.
    alpha : float, default=0.1
        Share of intervals, in [1e-6, 0.5], that may miss the target.
    epsilon : float, default=1.0
        ε > 0 of the threshold. ``float("inf")`` for no privacy.
    delta : float, default=0.0
        δ in [0, 1) at which ``privacy_`` is stated, if that of the regressor is not larger.
    calibration_share : float, default=0.25
        Share of the rows in (0, 1) that calibrate, where the regressor is fitted here.
    neighboring_relation : {"zero_out", "add_or_remove_one", "replace_one"}, default="zero_out"
        Who is a neighbour; that of the regressor.
    unit : {"row", "group"}, default="row"
        What is protected: a row, or a person with all of its rows, which `fit` is told by
        ``groups``; that of the regressor. Of each person one random row calibrates.
    n_groups : int or None, default=None
        Public number ≥ 1 of persons; needed with ``unit="group"``.
    n_samples : int or None, default=None
        Public number of rows; a regressor that is fitted here is told its part of it. None reads
        it from X and says so in the report. Where it is private, coverage holds if there are at
        least so many.
    random_state : int, RandomState instance or None, default=None
        None keys the noise and the split from the operating system. A seed makes the threshold
        repeatable and its guarantee void.
    residual : {"absolute", "scaled"}, default="absolute"
        Whether intervals have one width, or are multiples of the standard deviation that
        ``predict(X, return_std=True)`` of the regressor gives.
    residual_bound : float or None, default=None
        Largest finite threshold > 0. It must not be computed from the rows; ten times too large
        costs little, and where too small, intervals are infinite. None is the width of the
        regressor's ``target_bounds``, or 100 standard deviations.

    Attributes
    ----------
    estimator_ : regressor
        The fitted regressor.
    threshold_ : float
        Half the width of intervals, in standard deviations for scaled ones; infinite where nothing
        is left out.
    privacy_ : PrivacyReport
        Statement of regressor and threshold together. Not valid for a regressor that says nothing
        of what it has learned: then see the next.
    threshold_privacy_ : PrivacyReport
        Statement of the threshold, given the regressor.
    diagnostics_ : tuple of str
        Doubts about the intervals; each was a `FitWarning`.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Feature names, where X had any.

    Notes
    -----
    Thresholds are drawn from points in proportion, over four decades below ``residual_bound``. The
    rank is that of `DPConformalClassifier`.

    Examples
    --------
    >>> import numpy as np
    >>> from skdp import DPVariationalLinearRegression
    >>> from skdp.conformal import DPConformalRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (8000, 1))
    >>> y = np.abs(X[:, 0]) + rng.uniform(-0.2, 0.2, 8000)  # no line
    >>> model = DPVariationalLinearRegression(target_bounds=(-0.5, 1.5), n_samples=8000)
    >>> intervals = DPConformalRegressor(model, n_samples=8000).fit(X, y)
    >>> low, high = intervals.predict_interval(X).T
    >>> bool(0.88 < np.mean((low <= y) & (y <= high)) < 0.95)
    True
    """

    residual: str = "absolute"
    residual_bound: float | None = None

    _remedy = "Give a larger residual_bound."

    def _read_rows(self, X: Any, y: Any, columns: bool) -> tuple[Any, np.ndarray, Any]:
        last = self._inner.steps[-1][1] if isinstance(self._inner, Pipeline) else self._inner
        if not hasattr(last, "predict"):
            raise expected("a regressor", estimator=self.estimator)
        scaled = one_of(("absolute", "scaled"), residual=self.residual) == "scaled"
        if scaled and "return_std" not in inspect.signature(last.predict).parameters:
            remedy = "the model does not predict a standard deviation"
            raise expected("'absolute' for this model", remedy, residual=self.residual)
        if columns:
            checked, targets = check_columns_and_targets(self, X, y)
        else:
            checked, targets = check_features_and_targets(self, X, y, multi_output=False)
        return checked, targets, None

    def _n_outputs(self, classes: Sized | None) -> int | None:
        return 1

    def _largest(self) -> float:
        bound = self.residual_bound
        if bound is None and self.residual == "scaled":
            return _STANDARD_DEVIATIONS
        known = {n.rpartition("__")[2]: v for n, v in self._inner.get_params(deep=True).items()}
        if bound is None and (ends := known.get("target_bounds")) is not None:
            bound = float(ends[1]) - float(ends[0])
        remedy = "a public bound on the residuals that matter, or target_bounds of the regressor"
        return in_range(1e-100, 1e100, remedy, closed="both", residual_bound=bound)

    def _predicted(self, X: ArrayLike) -> tuple[np.ndarray, np.ndarray | float]:
        """Prediction of each row, and the unit of its residual."""
        if self.residual == "scaled":
            return self.estimator_.predict(X, return_std=True)
        return self.estimator_.predict(X), 1.0

    def __sklearn_tags__(self) -> Tags:
        """Predict as well as the model does."""
        tags = super().__sklearn_tags__()
        tags.regressor_tags = get_tags(self.estimator).regressor_tags
        return tags

    def _true_scores(self, rows: _Rows) -> np.ndarray:
        mean, unit = self._predicted(rows.X)
        return np.abs(rows.y - mean) / unit

    def predict_interval(self, X) -> np.ndarray:
        """Return the interval of each row.

        Parameters
        ----------
        X : array-like of shape (n, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n, 2)
            Lower and upper ends; infinite where nothing is left out.
        """
        check_is_fitted(self)
        mean, unit = self._predicted(X)
        # What rounding takes from an end must not leave out a residual at the threshold.
        half = np.broadcast_to(unit * self.threshold_ * (1 + 1e-12), mean.shape)
        return handed_on(X, np.column_stack([mean - half, mean + half]))


# --- scores ---------------------------------------------------------------------------------------


def _least_ambiguous(proba: np.ndarray) -> np.ndarray:
    return 1.0 - proba


def _adaptive(proba: np.ndarray) -> np.ndarray:
    """Probability of each class and of all that are as likely or more."""
    order = np.argsort(-proba, axis=1, kind="stable")
    scores = np.empty_like(proba)
    np.put_along_axis(scores, order, np.take_along_axis(proba, order, 1).cumsum(axis=1), 1)
    return scores


_CONFORMITY = {"lac": _least_ambiguous, "aps": _adaptive}


# --- statements -----------------------------------------------------------------------------------


def _together(told: PrivacyReport, own: PrivacyReport, fitted: Opaque) -> PrivacyReport:
    """Compose what the model states with the threshold; a model may state nothing."""
    if stating_parts(fitted):
        return told + own
    unaccounted = joint([own.unaccounted, told.unaccounted])
    return replace(own, valid=own.valid and not unaccounted, unaccounted=unaccounted)


def _on_own_rows(told: PrivacyReport, rows: _Rows) -> str:
    """Say if the model was fitted on the part of a split that calibrates it."""
    mark = part_read(rows.X, rows.y)
    named = "" if mark is None else common_part(told.event, mark.parts)
    if not named:
        return ""
    return (
        f"The model was fitted on {named}, of which the calibration rows are too: sets may hold "
        "less than 1 - alpha of new rows. Calibrate on another part."
    )


def _of_part(plan: FitPlan, split: str, part: str, unit: str) -> FitPlan:
    """Plan for a part of a split that will be made, and its own parts with it."""
    mark = Mark(split, part, unit, True)
    parts = {name: _of_part(inner, split, part, unit) for name, inner in plan.parts.items()}
    return replace(plan, privacy=plan.privacy.of_part(mark), parts=parts)
