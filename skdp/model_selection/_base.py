"""`PrivateSearch`: what private searches have in common: their input, and their winner."""

from __future__ import annotations

import copy
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, ClassVar

import joblib
import numpy as np
from dp_accounting.dp_event import DpEvent
from sklearn.base import MetaEstimatorMixin, is_classifier, is_regressor
from sklearn.utils import Tags, check_random_state, get_tags, indexable
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from skdp._version import __version__
from skdp.estimators._bounds import check_sparse
from skdp.estimators._network_parameters import EACH_BY_ITSELF
from skdp.fitting.charge import warn_if_inferred
from skdp.fitting.estimator import PrivateEstimator
from skdp.fitting.input import check_labels, check_targets, without_data
from skdp.fitting.plan import PublicFacts
from skdp.fitting.reading import (
    ProtectedUnit,
    check_groups,
    looked_at,
    public_n_rows,
    warn_of_delta,
)
from skdp.fitting.streams import Streams, seed_material
from skdp.fitting.types import ArrayLike, Estimator, Given, Params, Seed
from skdp.fitting.validate import in_range
from skdp.model_selection import _candidates, _scores
from skdp.model_selection._candidates import Budgets
from skdp.model_selection.budgets import Sizes, private_parts
from skdp.privacy import PrivacyReport, privacy_of
from skdp.privacy.cover import BudgetExceededError, Cover, covered
from skdp.privacy.report import joint
from skdp.rows.persons import PersonUnit, facts_of, persons_of, rows_of_persons


def available(method: str, fitted: str = "best_estimator_") -> Any:
    """Have a method where what was fitted, or is to be, has it."""

    def check(meta: Any) -> bool:
        # The method's own AttributeError says what is missing.
        getattr(getattr(meta, fitted, meta.estimator), method)
        return True

    return available_if(check)


@dataclass(eq=False, repr=False)
class PrivateSearch(MetaEstimatorMixin, ProtectedUnit, PrivateEstimator):
    """Checks its input as the estimator would, and predicts with the winner."""

    estimator: Estimator
    param_distributions: _candidates.Distributions
    _: KW_ONLY
    epsilon: float = 1.0
    delta: float = 1e-5
    scoring: _scores.Scoring = None
    weights: Mapping[str, float] | None = None
    neighboring_relation: str = "zero_out"
    n_samples: int | None = None
    random_state: Seed = None

    sets_inner_budgets: ClassVar[bool] = True  # for `split_budget`

    best_estimator_: Any = field(init=False)
    scorer_: Any = field(init=False)

    _never_shown: ClassVar[dict[str, str]]  # what is missing on purpose, and why

    # --- before the charge ----------------------------------------------------------------------

    def _checked(self, X: ArrayLike, y: Given, groups: Given) -> _scores.PrivateRows:
        """Check the input as far as it can be without a fit."""
        check_groups(self, groups)
        with without_data(n_is_public=self._relation.n_is_public):
            indexable(X, y)
        _candidates.check_unit(self.estimator, self._relation.unit)
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
        if (persons := persons_of(self.unit, alone="n_groups")) is None:
            return None
        n_groups = self._declared(lambda part: getattr(getattr(part, "unit", 0), "n_groups", None))
        persons = replace(persons, n_groups=n_groups)
        return facts_of(persons, self._declared_n_samples(), counted=True)

    def _assumed(self) -> tuple[str, ...]:
        """Return what epsilon assumes of candidates other than the winner."""
        groups = _candidates.checked_distributions(self.estimator, self.param_distributions)
        names = {name.rpartition("__")[2] for group in groups for name in group}
        return (EACH_BY_ITSELF,) if "module" in names else ()

    def _declared_n_samples(self) -> int | None:
        """Return the number of rows that the search or its private parts declare, if it is one."""
        return self._declared(lambda part: getattr(part, "n_samples", None))

    def _declared(self, size: Callable[[Any], int | None]) -> int | None:
        """Return a size that the search or its private parts declare, if it is one."""
        if (own := size(self)) is not None:
            return own
        declared = {size(part) for part in private_parts(self.estimator).values()} - {None}
        return declared.pop() if len(declared) == 1 else None

    def _budgets(self, facts: PublicFacts, estimator: Any, share: float | None = None) -> Budgets:
        """What gives budgets to fits on a share of the rows, or on all of them."""
        if facts.persons is None:
            n, n_groups = facts.rows, None
        else:
            n, n_groups = self._declared_n_samples(), facts.persons.n_groups
        if share is not None:
            n = None if n is None else max(1, round(share * n))
            n_groups = None if n_groups is None else max(1, round(share * n_groups))
        sizes = Sizes.checked(n, facts.n_features)
        delta = in_range(0.0, 1.0, delta=self.delta)
        return Budgets(estimator, delta, self._relation, self.weights, sizes, n_groups)

    def _report(self, event: DpEvent, facts: PublicFacts, sampling: str, tuning: str) -> Any:
        """State what a search costs: no more than was asked for."""
        report = PrivacyReport.of(
            event,
            delta=float(self.delta),
            sampling=sampling,
            neighboring_relation=self._relation,
            inferred_public_facts=facts.inferred,
            seeded=self.random_state is not None,
        )
        if not report.epsilon <= self.epsilon:
            raise RuntimeError("The plan of the search exceeds its budget; please report this.")
        return replace(report, tuning=f"accounted: the best of {tuning}")

    def _seeds(self, streams: Streams) -> np.random.Generator | None:
        """Generator of the seeds of fits, where the search has one."""
        if isinstance(self.random_state, np.random.RandomState):
            self.random_state.randint(2**31 - 1)  # the next fit is another
        return None if self.random_state is None else streams("seeds").generator

    def _streams(self, purpose: str, *arrays: np.ndarray) -> Streams:
        """Return streams keyed by the system, or by the seed and the settings."""
        if self.random_state is None:
            return Streams()
        # A generator is left as it is: all streams of a fit come from the one state.
        seed = check_random_state(copy.deepcopy(self.random_state)).randint(2**31 - 1)
        own = self.get_params().items()
        settings = {k: _described(v) for k, v in own if k not in ("random_state", "n_jobs")}
        return Streams(seed_material(int(seed), f"{purpose} {__version__}", settings, *arrays))

    # --- after it -------------------------------------------------------------------------------

    def _keep_best(
        self, winner: Any, params: Params, parts: Sequence[Estimator], report: PrivacyReport
    ) -> None:
        """Keep the winner, and let it state what the search costs."""
        of_winner = privacy_of(winner)
        facts = joint([report.inferred_public_facts, of_winner.inferred_public_facts])
        declared = self.n_samples is not None
        self.privacy_ = replace(
            report,
            inferred_public_facts=tuple(f for f in facts if not (declared and f == "n_samples")),
            unaccounted=of_winner.unaccounted,
            assumptions=joint([report.assumptions, of_winner.assumptions, self._assumed()]),
            valid=report.valid and not of_winner.unaccounted,
        )
        if inferred := self.privacy_.inferred_public_facts:
            warn_if_inferred(type(self).__name__, inferred)
        restate(parts, self.privacy_)
        self.best_estimator_, self.best_params_, self._parts = winner, params, parts
        if hasattr(winner, "feature_names_in_"):
            self.feature_names_in_ = winner.feature_names_in_

    # --- the winner -----------------------------------------------------------------------------

    def __getattr__(self, name: str) -> Any:
        if name in self._never_shown:
            raise AttributeError(
                f"{type(self).__name__} has no {name}, on purpose: {self._never_shown[name]}."
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
        """Score of the winner by ``scoring``, or its own for None; of training rows no release."""
        winner = self._winner()
        if self.scoring is None and hasattr(winner, "score"):
            return winner.score(X, y)
        if y is not None or not callable(self.scoring):  # a function may do without
            if is_classifier(winner):
                check_labels(X, y, self.classes_)
            elif is_regressor(winner):
                check_targets(X, y)
        return self.scorer_(winner, X, y)

    @available("predict")
    def predict(self, X, **parameters) -> Any:
        """Predict with the winner."""
        return self._winner().predict(X, **parameters)

    @available("predict_proba")
    def predict_proba(self, X) -> np.ndarray:
        """Class probabilities of the winner, shape (n, n_classes)."""
        return self._winner().predict_proba(X)

    @available("predict_log_proba")
    def predict_log_proba(self, X) -> np.ndarray:
        """Logarithm of `predict_proba`, shape (n, n_classes)."""
        return self._winner().predict_log_proba(X)

    @available("decision_function")
    def decision_function(self, X) -> np.ndarray:
        """Decision function of the winner."""
        return self._winner().decision_function(X)

    @available("transform")
    def transform(self, X) -> Any:
        """Transform with the winner."""
        return self._winner().transform(X)

    @available("inverse_transform")
    def inverse_transform(self, X) -> Any:
        """Transform back with the winner."""
        return self._winner().inverse_transform(X)

    @available("sample_posterior")
    def sample_posterior(self, n_samples: int = 1, random_state: Seed = None) -> np.ndarray:
        """Draw parameters from the winner's posterior; this costs no privacy."""
        return self._winner().sample_posterior(n_samples, random_state)

    @available("sample_predictive")
    def sample_predictive(self, X, n_samples: int = 1, random_state: Seed = None) -> np.ndarray:
        """Predictions of the winner under posterior draws; this costs no privacy."""
        return self._winner().sample_predictive(X, n_samples, random_state)


def _read_alone(estimator: Any, X: ArrayLike, y: Given) -> None:
    """Check an input as a fit of the estimator would; a release on the way is refused."""
    cover = Cover()
    with covered(cover):
        records, facts = looked_at(estimator, X, y)
        check_sparse(facts, getattr(estimator, "secure", False))
        if getattr(estimator, "module", None) is not None:
            estimator.try_module(records.X.shape[1:], facts.n_outputs)
    if cover.refused:
        raise BudgetExceededError(
            f"Reading the input of {type(estimator).__name__} made a private release, or another "
            "thread did meanwhile. Fit what is inside it beforehand, one at a time."
        )


def alone() -> joblib.parallel_config:
    """Keep parts of a trial in its thread, where the cover is, whatever joblib was asked for."""
    return joblib.parallel_config(backend="sequential", n_jobs=1)


@contextmanager
def silence(silent: bool = True) -> Iterator[None]:
    """Give no warnings, and no reports of joblib: they would tell of trials, and of rows."""
    if not silent:
        yield
        return
    with warnings.catch_warnings(), joblib.parallel_config(verbose=0):
        warnings.simplefilter("ignore")
        yield


def restate(parts: Iterable[Estimator], report: PrivacyReport) -> None:
    """Let what the winning trial was charged state the price of the search, or what is higher."""
    for part in parts:
        for name, value in list(vars(part).items()):
            if isinstance(value, PrivacyReport) and value.epsilon <= report.epsilon:
                setattr(part, name, report)
        # The parts of a search inside this one, and the copy that a temperature is fitted to.
        restate(getattr(part, "_parts", ()), report)
        restate([p for p in [getattr(part, "estimator_", None)] if p is not None], report)


def digest(rows: _scores.PrivateRows) -> np.ndarray:
    """Hash rows, targets and whose they are; the same for numbers of another type or form."""
    X, y = np.asarray(rows.X), np.asarray(rows.y).ravel()
    plain: list[Any] = [a.astype(float) if a.dtype.kind in "biuf" else a for a in (X, y)]
    if rows.persons is not None:
        plain += rows.persons
    return np.frombuffer(str(joblib.hash(plain, hash_name="sha1")).encode(), dtype=np.uint8)


def _described(value: Any) -> Any:
    """Describe a parameter without addresses, which are others in every process."""
    if hasattr(value, "rvs") and hasattr(value, "dist"):  # a frozen distribution of SciPy
        return type(value.dist).__name__, value.args, value.kwds
    if isinstance(value, dict):
        return {name: _described(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_described(inner) for inner in value]
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))
