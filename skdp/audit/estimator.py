"""`audit_estimator`: fit many times on two neighbouring data sets, and compare the results.

The rows are zeros and one outlier, the canary (0, …, 0, large), so that nothing but the canary
moves the result: the worst case that a guarantee has to hold for (Nasr et al. 2021; Annamalai & De
Cristofaro 2024 show how much such starts matter). For a linear model on the full batch the result
is then as telling as all releases together, and an audit with 5000 fits an arm proves 90 % and more
of a Gaussian claim.

Where persons are protected, the canary is a person with 50 such rows: neighbours differ in all rows
of one person, so that whatever is bounded by row, and not by person, moves 50 times as far.

References
----------
M. S. M. S. Annamalai, E. De Cristofaro, *Nearly Tight Black-Box Auditing of Differentially Private
Machine Learning*, NeurIPS 2024.
M. Nasr et al., *Adversary Instantiation: Lower Bounds for Differentially Private Machine Learning*,
S&P 2021.
"""

from __future__ import annotations

import copy
import math
import os
import random
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.utils.parallel import Parallel, delayed

from skdp import _release_hook
from skdp._persons import rows_of_persons
from skdp._types import ArrayLike, Given, Label, Opaque, Params
from skdp._validate import expected, flag, in_range, integer, one_of
from skdp._warnings import PrivacyWarning
from skdp.audit.confidence import FRAMES
from skdp.audit.report import AuditReport
from skdp.audit.samples import audit_samples
from skdp.privacy.cover import BudgetExceededError, covered
from skdp.privacy.events import gaussian_mu
from skdp.privacy.report import PrivacyReport
from skdp.relations import (
    ADD_OR_REMOVE_ONE,
    GROUP,
    REPLACE_ONE,
    ROW,
    ZERO_OUT,
    Relation,
    check_relation,
)

Record = tuple[ArrayLike, Label]
Statistic = Callable[[Any], ArrayLike] | str | None  # of a fitted object

_N_ROWS, _N_FEATURES, _LARGE = 9, 2, 1e3
_CANARY_ROWS = 50  # of a person
_CHUNKS, _LEAST = 16, 8  # most parts of parallel fits, and least fits an arm of each
_MOST_NUMBERS = 64  # of a fitted object that are looked at without being asked to


def audit_estimator(
    estimator: Any,
    *,
    X: Given = None,
    y: Given = None,
    groups: Given = None,
    canary: Record | None = None,
    neighbor: Any = None,
    statistic: Statistic = None,
    n_fits: int = 1000,
    epsilon: float | None = None,
    delta: float | None = None,
    neighboring_relation: str | None = None,
    frame: str = "auto",
    confidence: float = 0.95,
    selection: float = 0.1,
    n_jobs: int | None = None,
    public: bool = False,
) -> AuditReport:
    """Try to refute the privacy statement of an estimator, from outside.

    Fits it ``n_fits`` times on rows with a canary and as often without, takes a number or a few
    from each fitted object, and bounds ε from below by how well they tell the two apart. The bound
    and why it holds are in `skdp.audit.confidence`, the choice of the threshold in
    `skdp.audit.samples`.

    Parameters
    ----------
    estimator : estimator or callable
        Anything with scikit-learn's `fit`, or a function (X, y) -> fitted object. It is cloned for
        each fit. Its noise must not be seeded. Persons are audited if it has ``unit="group"``, if
        there are ``groups``, or if the relation says so; a function then takes (X, y, groups).
    X : array-like of shape (n, n_features), default=None
        Rows that both data sets have; None is 9 rows of two zeros. Use **synthetic or public
        rows**: the report is a function of what thousands of fits release. See ``public``.
    y : array-like of shape (n,), default=None
        Their targets. None is alternating 0 and 1, or 0 for a regressor.
    groups : array-like of shape (n,), default=None
        Labels of the persons whose rows they are; None, where persons are audited, is a person a
        row. Fits see the persons numbered, the canary as the last.
    canary : tuple (x, y), default=None
        The record that one of the data sets has. None is (0, …, 0, 1000) with target 1. Of a
        person, x of shape (n_rows, n_features) holds several rows, with one target or n_rows of
        them; None is the row above, 50 times.
    neighbor : {"removed"}, tuple (x, y) or tuple ("null", (x, y)), default=None
        What the other data set has in its place; the verdict is worth nothing if the two are not
        neighbours. Under ``"add_or_remove_one"`` that is nothing, ``"removed"``. Under
        ``"replace_one"`` it is another record; None is (−x, y). Under ``"zero_out"`` it is
        ``("null", record)``, a record of which *you say* that it adds nothing to any sum; a row of
        zeros adds something where there is an intercept. A record alone is taken as null too, with
        a warning.
        Or ``"removed"``, if the number of rows is never read: that is None for a function, and for
        an estimator with a declared ``n_samples``. A person without rows is the null record, so
        that ``"removed"`` is None for persons, but for ``"replace_one"``.
    statistic : callable or "trace", default=None
        Function of the fitted object that returns a number or a vector of a few. None takes
        ``coef_`` and ``intercept_``; or else the probabilities of the canary; or else all fitted
        numbers; of a function's result, the result if it is numbers. Of a vector, the best
        direction is found on fits that are not counted. ``"trace"`` looks inside, at skdp's own
        record of releases: the sum of all releases of a kind, weighted with the inverse of their
        noise. An audit of what the noise is, not of what leaves.
    n_fits : int, default=1000
        Fits on each of the two data sets, ≥ 20.
    epsilon, delta : float, default=None
        The claim. None reads it from the fitted ``privacy_``.
    neighboring_relation : {"zero_out", "add_or_remove_one", "replace_one"}, default=None
        The claim's, of rows or of persons. None reads it from ``privacy_`` as well, or is
        ``"zero_out"``.
    frame : {"auto", "dp", "gdp"}, default="auto"
        See `audit_samples`. ``"auto"`` is ``"gdp"`` where ``privacy_`` says that all that was
        released is full-batch Gaussian, and ``"dp"`` for all else.
    confidence : float, default=0.95
        Probability in (0, 1) with which the bound holds, at least.
    selection : float, default=0.1
        Share of the fits that choose direction and threshold.
    n_jobs : int or None, default=None
        Parallel fits, as in scikit-learn. The global generators of workers are seeded afresh. One
        that a function brings along would repeat itself in each of them: refused.
    public : bool, default=False
        Whether all rows and records are synthetic or public, those that a function holds as well.
        Open ledgers are not charged then. Else they are, for each of the 2 ``n_fits`` + 1 fits,
        unless the rows are made here: an estimator, and no X, y, groups, canary or record as
        neighbour.

    Returns
    -------
    AuditReport
        Counts, bound and verdict.

    Raises
    ------
    ValueError
        If a ``random_state`` is set: each fit would have the same noise, and any two data sets
        would be told apart. If there is no claim, the two data sets are no neighbours, or a
        parameter is invalid.
    BudgetExceededError
        If an open ledger refuses a fit.

    Warns
    -----
    PrivacyWarning
        If it was not said that a record is null on which the verdict under ``"zero_out"`` depends.

    Notes
    -----
    A wrong estimator passes if its fault does not show on these rows, in this statistic, with so
    many fits: at μ = 1, 1000 fits prove about 3.8 of ε = 4.38. And a right one fails in one audit
    of 20 at most at the default confidence: repeat a surprising audit, once, at a higher one.

    Fits that an estimator starts in threads or processes of its own are charged to open ledgers
    even where the rows are synthetic: rather too much than too little.

    Examples
    --------
    >>> from skdp import DPVariationalLogisticRegression
    >>> from skdp.audit import audit_estimator
    >>> estimator = DPVariationalLogisticRegression(
    ...     4.0, inference="dpvi", max_iter=1, classes=[0, 1], n_samples=10
    ... )
    >>> report = audit_estimator(estimator, n_fits=100, confidence=1 - 1e-6)
    >>> report.verdict, report.frame
    ('no violation found', 'gdp')

    Of a person with 50 rows:

    >>> persons = {"unit": "group", "n_groups": 10, "rows_per_group": 4, "n_samples": None}
    >>> report = audit_estimator(
    ...     estimator.set_params(**persons), n_fits=20, confidence=1 - 1e-6
    ... )
    >>> report.unit, report.neighboring_relation
    ('group', 'zero_out_group')
    """
    start = time.perf_counter()
    n_fits = integer(20, "fewer prove nothing", n_fits=n_fits)
    one_of(("auto", *FRAMES), frame=frame)
    in_range(0.0, 1.0, confidence=confidence)
    free = flag(public=public) or _made_here(estimator, neighbor, X, y, groups, canary)
    if not (statistic is None or statistic == "trace" or callable(statistic)):
        raise expected("a function, 'trace' or None", statistic=statistic)
    _refuse_seed(estimator)
    relation = _relation(estimator, groups, neighboring_relation)
    others, canary = _rows(estimator, X, y, groups, canary, relation)
    present = _and(others, canary)
    fitted, _ = _fitted(estimator, present, free)
    claim = _claim(fitted, epsilon, delta, relation, frame)
    if claim["neighboring_relation"].unit == GROUP and others.persons is None:
        raise expected("given", "the fitted object's privacy_ is about persons", groups=None)
    if neighbor is None:
        neighbor = _default_neighbor(estimator, canary, claim["neighboring_relation"])
    kind, record = _neighbor(neighbor, claim["neighboring_relation"])
    absent = others if record is None else _and(others, record)
    look = _Look(statistic, present.X[-1:])
    fits = _Fits(estimator, (present, absent), look, free)
    arms = _results(fits, n_fits, n_jobs)
    report = audit_samples(
        *arms, **claim, confidence=confidence, selection=selection, audited=_name(estimator)
    )
    return replace(report, neighbor=kind, seconds=time.perf_counter() - start)


def _name(estimator: Opaque) -> str:
    return getattr(estimator, "__name__", type(estimator).__name__)


def _parameters(estimator: Opaque) -> Params:
    known = hasattr(estimator, "get_params") and not isinstance(estimator, type)
    return estimator.get_params(deep=True) if known else {}


def _parameter(estimator: Opaque, name: str) -> Any:
    """Value of a parameter, or of the parameter of a part, if only one value is set."""
    values = [
        value
        for key, value in _parameters(estimator).items()
        if key.rsplit("__", 1)[-1] == name and value is not None
    ]
    return values[0] if values and all(value == values[0] for value in values) else None


def _refuse_seed(estimator: Opaque) -> None:
    for name, value in _parameters(estimator).items():
        if name.rsplit("__", 1)[-1] == "random_state" and value is not None:
            remedy = "with a seed every fit has the same noise, and tells any two data sets apart"
            raise expected("None in an audit", remedy, **{name: value})


# --- two neighbours -------------------------------------------------------------------------------


class _Rows(NamedTuple):
    """Rows, their targets, and the numbers of their persons where these are audited."""

    X: np.ndarray
    y: np.ndarray
    persons: np.ndarray | None = None

    @property
    def given(self) -> tuple[np.ndarray, ...]:
        """What a fit is given."""
        return tuple(part for part in self if part is not None)


def _relation(estimator: Opaque, groups: Given, relation: str | None) -> Relation | None:
    """Return the relation that was given or is a parameter, of rows or of persons; or None."""
    unit = _parameter(estimator, "unit")
    relation = relation or _parameter(estimator, "neighboring_relation")
    found = None if relation is None else check_relation(relation)
    if GROUP not in (unit, found and found.unit) and groups is None:
        return found
    if unit == ROW:
        raise expected("'group'", "persons are audited where persons are protected", unit=unit)
    return (found or Relation.ZERO_OUT).of_unit(GROUP)


def _rows(
    estimator: Opaque,
    X: Given,
    y: Given,
    groups: Given,
    canary: Record | None,
    relation: Relation | None,
) -> tuple[_Rows, Record]:
    """Return the rows that both data sets have, with their targets and persons, and the canary."""
    X = np.zeros((_N_ROWS, _N_FEATURES)) if X is None else np.asarray(X)
    if X.ndim != 2 or len(X) == 0:
        raise ValueError(f"Expected X of shape (n, n_features) with n >= 1, got {X.shape}.")
    if y is None:
        y = np.arange(len(X)) % 2 * (not _is(is_regressor, estimator))
    y = np.asarray(y)
    if y.shape != (len(X),):
        raise ValueError(f"Expected y of shape ({len(X)},), got {y.shape}.")
    of_persons = relation is not None and relation.unit == GROUP
    if canary is None:
        largest = np.unique(y)[-1] if _is(is_classifier, estimator) else 1
        canary = np.append(np.zeros(X.shape[1] - 1), _LARGE), largest
        if of_persons:
            canary = np.tile(canary[0], (_CANARY_ROWS, 1)), largest
    return _Rows(X, y, _numbered(groups, len(X)) if of_persons else None), canary


def _numbered(groups: Given, n_rows: int) -> np.ndarray:
    """Number the persons; each row is a person where none were given."""
    if groups is None:
        return np.arange(n_rows)
    rows, starts = rows_of_persons(groups, n_rows)
    numbers = np.empty(n_rows, dtype=np.int64)
    numbers[rows] = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    return numbers


def _is(kind: Callable[[Opaque], bool], estimator: Opaque) -> bool:
    return hasattr(estimator, "__sklearn_tags__") and kind(estimator)


def _default_neighbor(estimator: Opaque, canary: Record, relation: Relation) -> Record | str:
    if relation.of_rows == REPLACE_ONE:
        return -np.asarray(canary[0]), canary[1]
    declared = _parameter(estimator, "n_samples") is not None
    function = not hasattr(estimator, "fit")
    if not relation.n_is_public or declared or function:
        return "removed"
    raise expected(
        "given, or the estimator to have a declared n_samples",
        "removing a row tells its presence by the number of rows, and a row of zeros is no null "
        "record where there is an intercept; neighbor='removed' if the number is never read",
        neighbor=None,
    )


def _neighbor(neighbor: Any, relation: Relation) -> tuple[str, Any]:
    """Return what the canary's place holds, in words, and the record; refuse what is no neighbour.

    Whether a record is null cannot be seen from outside: the caller has to know.
    """
    if isinstance(neighbor, str):
        one_of(("removed",), "or a record (x, y)", neighbor=neighbor)
        if relation.of_rows == REPLACE_ONE:
            raise expected("a record (x, y)", "under 'replace_one' none goes", neighbor=neighbor)
        return "removed", None
    if relation.of_rows == ADD_OR_REMOVE_ONE:
        remedy = "under 'add_or_remove_one' a record in its place is no neighbour"
        raise expected("'removed'", remedy, neighbor=neighbor)
    said = isinstance(neighbor, tuple) and len(neighbor) == 2 and isinstance(neighbor[0], str)
    record = neighbor
    if said:
        one_of(("null",), "or a record (x, y)", neighbor=neighbor[0])
        record = neighbor[1]
    if relation.of_rows == REPLACE_ONE:
        return "another record", record
    if not said:
        warnings.warn(
            "The verdict of the audit is conditional on the record given as neighbor: it must be "
            "null, add nothing to any sum (a row of zeros adds something where there is an "
            "intercept). neighbor=('null', (x, y)) says that it is.",
            PrivacyWarning,
            stacklevel=3,
        )
    return "a record taken as null", record


def _and(others: _Rows, record: Record) -> _Rows:
    try:
        row, target = record
        if others.persons is None:
            rows = np.asarray(row)[None]
            return _Rows(np.vstack([others.X, rows]), np.append(others.y, target))
        rows = np.atleast_2d(row)
        own = np.full(len(rows), others.persons.max() + 1)
        return _Rows(
            np.vstack([others.X, rows]),
            np.append(others.y, np.broadcast_to(target, len(rows))),
            np.append(others.persons, own),
        )
    except (TypeError, ValueError):
        raise expected("a pair (x, y), x of the width of X", record=record) from None


# --- fits and what is seen of them ----------------------------------------------------------------


def _made_here(estimator: Opaque, neighbor: Any, *given: Given | Record) -> bool:
    """Whether no row can be anybody's: all are zeros and the canary."""
    nothing_given = all(part is None for part in given)
    return hasattr(estimator, "fit") and nothing_given and isinstance(neighbor, str | None)


@contextmanager
def _booked(free: bool) -> Iterator[None]:
    """Charge open ledgers for what is fitted inside, or not."""
    if free:
        with covered("free"):
            yield
        return
    try:
        yield
    except BudgetExceededError as error:
        error.add_note("If all rows of the audit are synthetic or public, public=True says so.")
        raise


def _fitted(estimator: Any, rows: _Rows, free: bool) -> tuple[Any, list]:
    """Fit a copy; return it and the record of its releases."""
    with _booked(free), _release_hook.record() as tape:
        if not hasattr(estimator, "fit"):
            return estimator(*rows.given), tape
        copied: Callable = clone if hasattr(estimator, "get_params") else copy.deepcopy
        if rows.persons is None:
            return copied(estimator).fit(rows.X, rows.y), tape
        return copied(estimator).fit(rows.X, rows.y, groups=rows.persons), tape


@dataclass(frozen=True)
class _Look:
    """What is seen of a fitted object: a vector."""

    statistic: Statistic
    canary: np.ndarray

    def __call__(self, fitted: Opaque, tape: list) -> np.ndarray:
        if self.statistic == "trace":
            return _weighted_sums(tape)
        seen = self.statistic(fitted) if callable(self.statistic) else self._numbers(fitted)
        return np.atleast_1d(np.asarray(seen, dtype=float)).ravel()

    def _numbers(self, fitted: Any) -> np.ndarray:
        """Coefficients; else probabilities of the canary; else every fitted number."""
        if hasattr(fitted, "coef_"):
            return _flat([fitted.coef_, getattr(fitted, "intercept_", 0.0)])
        if hasattr(fitted, "predict_proba"):
            return _flat([np.asarray(fitted.predict_proba(self.canary))[0, 1:]])
        if hasattr(fitted, "__dict__"):
            names = sorted(name for name in vars(fitted) if name.endswith("_") and name[0] != "_")
            fitted = [getattr(fitted, name) for name in names]
            fitted = [value for value in fitted if _is_numbers(value)]
        found = _flat([fitted])
        if 0 < found.size <= _MOST_NUMBERS:
            return found
        remedy = f"the fitted object holds {found.size} numbers: say which to look at"
        raise expected("a function", remedy, statistic=None)


def _is_numbers(value: Any) -> bool:
    return isinstance(value, float | np.floating) or (
        isinstance(value, np.ndarray) and value.dtype.kind == "f"
    )


def _flat(values: ArrayLike) -> np.ndarray:
    if not isinstance(values, list | tuple):
        return np.asarray(values, dtype=float).ravel()
    return np.concatenate([np.empty(0), *map(_flat, values)])


def _weighted_sums(tape: list) -> np.ndarray:
    """Σ_t Δ_t/s_t² · release_t, for each shape of release.

    Where the canary moves every release the same way by as much as it may, the log-likelihood ratio
    of all releases is linear in these.
    """
    sums: dict[tuple, np.ndarray] = {}
    for release in tape:
        call = release.call
        weight = call.sensitivity / call.scale**2 if call.scale > 0 else 1.0
        key = call.kind, tuple(call.shape)
        released = np.asarray(release.output, dtype=float).ravel()
        sums[key] = sums.get(key, np.zeros(released.size)) + weight * released
    if not sums:
        raise expected("a function", "the fit recorded no releases", statistic="trace")
    return np.concatenate([sums[key] for key in sorted(sums)])


@dataclass(frozen=True)
class _Fits:
    """What is fitted again and again, and how the results are looked at."""

    estimator: Any
    arms: tuple[_Rows, _Rows]
    look: _Look
    free: bool

    def __call__(self, n_fits: int, parent: int) -> list[list]:
        """Fit both arms in turn, so that what changes with time changes for both."""
        if os.getpid() != parent:
            _seed_afresh()
        results: list[list] = [[], []]
        for _ in range(n_fits):
            for arm, found in zip(self.arms, results, strict=True):
                found.append(self.look(*_fitted(self.estimator, arm, self.free)))
        return results


def _seed_afresh() -> None:
    """Give a worker global generators of its own: forked ones would all repeat the parent's."""
    random.seed()
    np.random.seed()  # noqa: NPY002
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.seed()


def _results(fits: _Fits, n_fits: int, n_jobs: int | None) -> tuple[np.ndarray, np.ndarray]:
    chunks: list[Any] = []
    if n_jobs in (None, 1):
        chunks = [fits(n_fits, os.getpid())]
    else:
        n_chunks = min(_CHUNKS, n_fits // _LEAST)
        sizes = [len(part) for part in np.array_split(np.arange(n_fits), n_chunks)]
        parts = (delayed(fits)(n, os.getpid()) for n in sizes)
        one_by_one: Params = {"batch_size": 1}  # together they would share a copy
        chunks.extend(Parallel(n_jobs, **one_by_one)(parts) or [])
    joined = [[row for chunk in chunks for row in chunk[arm]] for arm in (0, 1)]
    lengths = {len(row) for arm in joined for row in arm}
    if len(lengths) > 1:
        remedy = f"it was one of {sorted(lengths)} numbers"
        raise expected("a vector of one length", remedy, statistic=fits.look.statistic)
    if _repeat(chunks):
        remedy = "the noise is from a generator of which each worker has the same copy"
        raise expected("None, because workers repeat each other's fits", remedy, n_jobs=n_jobs)
    return np.array(joined[0]), np.array(joined[1])


def _repeat(chunks: list[list[list[np.ndarray]]]) -> bool:
    """Whether two chunks are the same, and so varied that it is no chance."""
    pairs = list(combinations(chunks, 2))
    for pair in pairs:
        chance = float(len(pairs))
        for one, other in zip(*pair, strict=True):
            drawn, again = [[row.tobytes() for row in arm] for arm in (one, other)]
            length = min(len(drawn), len(again))
            if drawn[:length] != again[:length]:
                break
            shares = np.array(list(Counter(drawn[:length]).values())) / length
            chance *= float(shares @ shares) ** length  # of as many results to be the same
        else:
            if chance < 1e-6:
                return True
    return False


# --- the claim ------------------------------------------------------------------------------------


def _claim(
    fitted: Opaque, epsilon: float | None, delta: float | None, relation: str | None, frame: str
) -> Params:
    """Return what is claimed: what the caller says, or else the fitted object's own statement."""
    _refuse_seed(fitted)
    report = getattr(fitted, "privacy_", None)
    gaussian = False
    if isinstance(report, PrivacyReport):
        if report.seeded:
            raise ValueError("The fitted object says that its noise was seeded: nothing to audit.")
        stated = report.neighboring_relation
        relation = relation or stated
        if stated != relation:
            raise expected(f"{stated!r} as in privacy_", neighboring_relation=relation)
        if delta is None:
            delta = report.delta
        if epsilon is None:
            epsilon = report.epsilon if delta == report.delta else report.epsilon_at(delta)
        gaussian = gaussian_mu(report.event) not in (None, math.inf)
    elif epsilon is None or delta is None:
        remedy = "the fitted object has no skdp.privacy.PrivacyReport in privacy_ to read it from"
        raise expected("given, and delta too", remedy, epsilon=epsilon)
    return {
        "epsilon": epsilon,
        "delta": delta,
        "frame": ("gdp" if gaussian else "dp") if frame == "auto" else frame,
        "neighboring_relation": check_relation(relation or ZERO_OUT),
    }
