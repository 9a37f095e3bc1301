"""What conformal classifiers and regressors have in common."""

from __future__ import annotations

import copy
import math
import uuid
import warnings
from collections.abc import Sized
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from sklearn.base import clone
from sklearn.pipeline import Pipeline
from sklearn.utils import Tags, _safe_indexing, get_tags
from sklearn.utils.validation import check_is_fitted

from skdp.algorithms.conformal import ConformalConfig
from skdp.calibration._around import AroundModel
from skdp.fitting import charge
from skdp.fitting.charge import all_or_nothing, charged, initial_seed
from skdp.fitting.estimator import PREDICTED_BY_ROW, PrivateEstimator
from skdp.fitting.plan import FitPlan, PublicFacts
from skdp.fitting.reading import check_groups, public_n_rows, warn_of_delta
from skdp.fitting.types import Estimator, Given, Opaque, Params, Seed
from skdp.fitting.validate import expected, in_range, integer
from skdp.fitting.warnings import FitWarning
from skdp.model_selection.splits import DisjointSplit
from skdp.privacy import PrivacyReport, privacy_of
from skdp.privacy.budget import Budget
from skdp.privacy.parts import common_part
from skdp.privacy.report import joint
from skdp.privacy.workflow import stating_parts
from skdp.relations import ROW, other_relation
from skdp.rows.parts import Mark, handed_on, part_read, trusting
from skdp.rows.persons import Persons, PersonUnit, facts_of, kind_of, persons_of, rows_of_persons

_FIT, _CALIBRATE = "fit", "calibrate"
_COINS = 4.0  # standard deviations that a part by coins may be short of its expected number


class Rows(NamedTuple):
    """Checked rows, as they are handed on."""

    X: Any
    y: np.ndarray
    groups: Given = None
    classes: np.ndarray | None = None  # found or declared; None for regressors

    @property
    def whose(self) -> Params:
        """What a fit is told of persons."""
        return {} if self.groups is None else {"groups": self.groups}


@dataclass(eq=False, repr=False)
class _DPConformal(AroundModel):
    """What both have in common: who is fitted on which rows, the charge, and the threshold."""

    estimator: Estimator
    _: KW_ONLY
    alpha: float = 0.1
    epsilon: float = 1.0
    delta: float = 0.0
    calibration_share: float = 0.25
    neighboring_relation: str = "zero_out"
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
            With ``unit=Persons(...)``: the person whose row it is, as any label. A model that is
            fitted here is given them too.

        Returns
        -------
        Self

        Raises
        ------
        ValueError
            If a parameter or the input is invalid; nothing has been spent then.
        BudgetExceededError
            If an open `PrivacyLedger` refuses one of the two; a model that was fitted here before
            stays charged.
        """
        with all_or_nothing(self):
            check_groups(self, groups)
            rows = self._checked(X, y, groups)
            n = self._n_records(len(rows.y))
            warn_of_delta(self, n)
            plan = self._plan(self._facts_of_rows(n, rows.classes))
            given: Any = self.estimator
            if self._is_frozen:
                # A copy, because it is shared: fitted again it would change what is predicted here.
                # The statement is that of the one given: `privacy_of` knows releases apart.
                fitted, told = copy.deepcopy(given), privacy_of(given)
            else:
                fitted, rows = self._fitted(rows, n)
                told = privacy_of(fitted)
            self.estimator_ = fitted
            taken = rows.X, rows.y
            own = self.threshold_privacy_ = charged(self, plan, taken, groups=rows.groups)
            self.privacy_ = _together(told, own, fitted)
            scores = self._scores_of(rows)
            self.threshold_ = plan.config.run((scores,), charge.streams(self, scores))
            said = _on_own_rows(told, rows), self._told_of_threshold(plan.config)
            self.diagnostics_ = tuple(message for message in said if message)
        for message in self.diagnostics_:
            warnings.warn(message, FitWarning, stacklevel=2)
        return self

    def plan(
        self, n_samples: int | None = None, n_features: int | None = None, classes: Any = None
    ) -> FitPlan:
        """Plan a fit from public facts; a model that is fitted here is a part of it."""
        plan = super().plan(n_samples, n_features, classes)
        if not plan.parts:
            return plan
        split = uuid.uuid4().hex[:16]  # of two fits the records are in parts of their own each
        unit = self._relation.unit
        parts = {k: _of_part(part, split, _FIT, unit) for k, part in plan.parts.items()}
        return replace(_of_part(plan, split, _CALIBRATE, unit), parts=parts)

    # --- rows -----------------------------------------------------------------------------------

    def _checked(self, X: Any, y: Any, groups: Given) -> Rows:
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
        return Rows(handed_on(X, checked), handed_on(y, labels), groups, classes)

    def _read_rows(self, X: Any, y: Any, columns: bool) -> tuple[Any, np.ndarray, Any]:
        """Check rows and targets; return classes too, where there are any."""
        raise NotImplementedError

    def _n_records(self, n_rows: int) -> int:
        """Public number of rows or persons that were given."""
        persons, is_public = self._persons(), self._relation.n_is_public
        if persons is not None and persons.n_groups is not None:
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
        persons = persons_of(self.unit, alone="n_groups")
        return persons and facts_of(replace(persons, max_rows=1), counted=True)

    def _assumptions(self) -> tuple[str, ...]:
        return (PREDICTED_BY_ROW,)

    def _person_bound(self, persons: PersonUnit) -> str:
        return "a random one"

    # --- who is fitted on what ------------------------------------------------------------------

    def _fitted(self, rows: Rows, n: int) -> tuple[Any, Rows]:
        """Fit the model on its part of the rows; return it, and the part that calibrates."""
        by_coins, share = not self._relation.n_is_public, self._share
        seeded = self.random_state is not None and not by_coins
        parts, seed = {_FIT: 1 - share, _CALIBRATE: share}, initial_seed(self) if seeded else None
        of: Params = {"groups": rows.groups, "neighboring_relation": self._relation.of_rows}
        split = DisjointSplit(n, parts=parts, random_state=seed, **of)
        # Coins may leave a part without rows, and a refusal would tell how few there are.
        if n < 2 or not (by_coins or all(map(split.n_samples_of, split.parts))):
            remedy = "the model needs rows, and its calibration others"
            raise expected("a larger number", remedy, n_samples=n)
        taken = []
        for part in split.parts:
            X, y, at = split.take(part, rows.X, rows.y, np.arange(len(rows.y)))
            groups = None if rows.groups is None else _safe_indexing(rows.groups, np.asarray(at))
            taken.append(Rows(X, y, groups))
        (first, other), model = taken, self._for_part()
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
            if "epsilon" not in known:
                continue
            n = self.n_samples if known.get("n_samples") is None else known["n_samples"]
            if "n_samples" in known and n is not None:
                part.set_params(n_samples=self._of_share(integer(1, n_samples=n)))
            own, n = known.get("unit"), getattr(self.unit, "n_groups", None)
            if isinstance(own, Persons) and (n := own.n_groups or n) is not None:
                part.set_params(unit=replace(own, n_groups=self._of_share(n)))
        return model

    def _of_share(self, size: int) -> int:
        """Size of what the model is fitted on, of so many."""
        return max(1, round((1 - self._share) * size))

    @property
    def _share(self) -> float:
        return in_range(0.0, 1.0, calibration_share=self.calibration_share)

    def _planned(self, facts: PublicFacts) -> FitPlan:
        inner, relation = self._inner, self._relation
        if self._is_frozen:
            told = privacy_of(self.estimator) if stating_parts(self.estimator) else None
            other = relation if told is None else told.neighboring_relation
        else:
            known = {n.rpartition("__")[2]: v for n, v in inner.get_params(deep=True).items()}
            of_rows = known.get("neighboring_relation", relation.of_rows)
            unit = known.get("unit", self.unit if isinstance(inner, PrivateEstimator) else ROW)
            other = relation.of_unit(kind_of(unit)) if of_rows == relation.of_rows else of_rows
            other = other if "neighboring_relation" in known else relation
        if other != relation:
            raise other_relation(f"{other!r} as in the model", relation)
        n = None if facts.n_samples is None else self._of_share(facts.n_samples)
        return self._with_model(facts, self._for_part, n)

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

    def _scores_of(self, rows: Rows) -> np.ndarray:
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

    def _true_scores(self, rows: Rows) -> np.ndarray:
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


# --- statements -----------------------------------------------------------------------------------


def _together(told: PrivacyReport, own: PrivacyReport, fitted: Opaque) -> PrivacyReport:
    """Compose what the model states with the threshold; a model may state nothing."""
    if stating_parts(fitted):
        return told + own
    unaccounted = joint([own.unaccounted, told.unaccounted])
    return replace(own, valid=own.valid and not unaccounted, unaccounted=unaccounted)


def _on_own_rows(told: PrivacyReport, rows: Rows) -> str:
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
