"""`audit_estimator`: fit many times on two neighbouring data sets, and compare the results.

The rows are zeros and one outlier, the canary (0, …, 0, large), so that nothing but the canary
moves the result: the worst case that a guarantee has to hold for (Nasr et al. 2021; Annamalai & De
Cristofaro 2024 show how much such starts matter). For a linear model on the full batch the result
is then as telling as all releases together, and an audit with 5000 fits an arm proves 90 % and more
of a Gaussian claim.

>>> import numpy as np
>>> from skdp.audit import audit_estimator
>>> def noisy_sum(X, y):  # claims sensitivity 1, but nothing was clipped
...     return X.sum(axis=0) + np.random.normal(size=X.shape[1])
>>> report = audit_estimator(noisy_sum, epsilon=4.38, delta=1e-5, n_fits=200)
>>> report.verdict
'violation: epsilon >= 4.77, but 4.38 was claimed'

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
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.utils.parallel import Parallel, delayed

from skdp import _trace
from skdp._validate import expected, in_range, integer, one_of
from skdp.audit.bounds import FRAMES
from skdp.audit.report import AuditReport
from skdp.audit.samples import audit_samples
from skdp.privacy.events import gaussian_mu
from skdp.privacy.ledger import covered
from skdp.privacy.report import PrivacyReport
from skdp.relations import ADD_OR_REMOVE_ONE, REPLACE_ONE, ZERO_OUT, check_relation

_N_ROWS, _N_FEATURES, _LARGE = 9, 2, 1e3
_CHUNKS = 16  # a worker: neighbours in time are in both arms
_MOST_NUMBERS = 64  # of a fitted object that are looked at without being asked to


def audit_estimator(
    estimator: Any,
    *,
    X: Any = None,
    y: Any = None,
    canary: Any = None,
    neighbor: Any = None,
    statistic: Any = None,
    n_fits: int = 1000,
    epsilon: float | None = None,
    delta: float | None = None,
    neighboring_relation: str | None = None,
    frame: str = "auto",
    confidence: float = 0.95,
    selection: float = 0.1,
    n_jobs: int | None = None,
) -> AuditReport:
    """Try to refute the privacy statement of an estimator, from outside.

    Fits it ``n_fits`` times on rows with a canary and as often without, takes a number or a few
    from each fitted object, and bounds ε from below by how well they tell the two apart. The bound
    and why it holds are in `skdp.audit.bounds`, the choice of the threshold in
    `skdp.audit.samples`.

    Parameters
    ----------
    estimator : estimator or callable
        Anything with scikit-learn's `fit`, or a function (X, y) -> fitted object. It is cloned for
        each fit. Its noise must not be seeded.
    X : array-like of shape (n, n_features), default=None
        Rows that both data sets have; None is 9 rows of two zeros. **Made-up or public rows**: the
        fits are charged to no ledger, and the report is a function of what they release.
    y : array-like of shape (n,), default=None
        Their targets. None is alternating 0 and 1, or 0 for a regressor.
    canary : tuple (x, y), default=None
        The record that one of the data sets has. None is (0, …, 0, 1000) with target 1.
    neighbor : {"removed"} or tuple (x, y), default=None
        What the other data set has in its place. None is what the relation says: under
        ``"add_or_remove_one"`` nothing; under ``"replace_one"`` the record (−x, y); under
        ``"zero_out"`` nothing as well if the estimator has a declared ``n_samples``, which makes it
        the same as a null record. A row of zeros is none: it has an intercept.
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
        The claim's. None reads it from ``privacy_`` as well, or is ``"zero_out"``.
    frame : {"auto", "dp", "gdp"}, default="auto"
        See `audit_samples`. ``"auto"`` is ``"gdp"`` where ``privacy_`` says that all that was
        released is full-batch Gaussian, and ``"dp"`` for all else.
    confidence : float, default=0.95
        Probability in (0, 1) with which the bound holds, at least.
    selection : float, default=0.1
        Share of the fits that choose direction and threshold.
    n_jobs : int or None, default=None
        Parallel fits, as in scikit-learn.

    Returns
    -------
    AuditReport
        Counts, bound and verdict.

    Raises
    ------
    ValueError
        If a ``random_state`` is set: each fit would have the same noise, and any two data sets
        would be told apart. If there is no claim, or a parameter is invalid.

    Notes
    -----
    A wrong estimator passes if its fault does not show on these rows, in this statistic, with so
    many fits: at μ = 1, 1000 fits prove about 3.8 of ε = 4.38. And a right one fails in one audit
    of 20 at most at the default confidence: repeat a surprising audit, once, at a higher one.

    No ledger is charged, because made-up rows are nobody's.

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
    """
    start = time.perf_counter()
    n_fits = integer(20, "fewer prove nothing", n_fits=n_fits)
    one_of(("auto", *FRAMES), frame=frame)
    in_range(0.0, 1.0, confidence=confidence)
    if not (statistic is None or statistic == "trace" or callable(statistic)):
        raise expected("a function, 'trace' or None", statistic=statistic)
    _refuse_seed(estimator)
    X, y, canary = _rows(estimator, X, y, canary)
    present = _and(X, y, canary)
    claim = _claim(
        _fitted(estimator, *present)[0],
        epsilon,
        delta,
        neighboring_relation or _parameter(estimator, "neighboring_relation"),
        frame,
    )
    if neighbor is None:
        neighbor = _default_neighbor(estimator, canary, claim["neighboring_relation"])
    look, absent = _Look(statistic, present[0][-1:]), _and(X, y, neighbor)
    with_canary, without_canary = _results(estimator, (present, absent), look, n_fits, n_jobs)
    report = audit_samples(
        with_canary,
        without_canary,
        **claim,
        confidence=confidence,
        selection=selection,
        audited=_name(estimator),
    )
    return replace(report, seconds=time.perf_counter() - start)


def _name(estimator: Any) -> str:
    return getattr(estimator, "__name__", type(estimator).__name__)


def _parameters(estimator: Any) -> dict[str, Any]:
    known = hasattr(estimator, "get_params") and not isinstance(estimator, type)
    return estimator.get_params(deep=True) if known else {}


def _parameter(estimator: Any, name: str) -> Any:
    """Value of a parameter, or of the parameter of a part, if only one value is set."""
    values = [
        value
        for key, value in _parameters(estimator).items()
        if key.rsplit("__", 1)[-1] == name and value is not None
    ]
    return values[0] if values and all(value == values[0] for value in values) else None


def _refuse_seed(estimator: Any) -> None:
    for name, value in _parameters(estimator).items():
        if name.rsplit("__", 1)[-1] == "random_state" and value is not None:
            remedy = "with a seed every fit has the same noise, and tells any two data sets apart"
            raise expected("None in an audit", remedy, **{name: value})


# --- two neighbours -------------------------------------------------------------------------------

Rows = tuple[np.ndarray, np.ndarray]


def _rows(estimator: Any, X: Any, y: Any, canary: Any) -> tuple[np.ndarray, np.ndarray, Any]:
    """Return the rows that both data sets have, their targets, and the canary."""
    X = np.zeros((_N_ROWS, _N_FEATURES)) if X is None else np.asarray(X)
    if X.ndim != 2 or len(X) == 0:
        raise ValueError(f"Expected X of shape (n, n_features) with n >= 1, got {X.shape}.")
    if y is None:
        y = np.arange(len(X)) % 2 * (not _is(is_regressor, estimator))
    y = np.asarray(y)
    if y.shape != (len(X),):
        raise ValueError(f"Expected y of shape ({len(X)},), got {y.shape}.")
    if canary is None:
        largest = y.max() if _is(is_classifier, estimator) else 1
        canary = np.append(np.zeros(X.shape[1] - 1), _LARGE), largest
    return X, y, canary


def _is(kind: Callable[[Any], bool], estimator: Any) -> bool:
    return hasattr(estimator, "__sklearn_tags__") and kind(estimator)


def _default_neighbor(estimator: Any, canary: Any, relation: str) -> Any:
    if relation == REPLACE_ONE:
        return -np.asarray(canary[0]), canary[1]
    declared = _parameter(estimator, "n_samples") is not None
    function = not hasattr(estimator, "fit")
    if relation == ADD_OR_REMOVE_ONE or declared or function:
        return "removed"
    raise expected(
        "given, or the estimator to have a declared n_samples",
        "removing a row tells its presence by the number of rows, and a row of zeros is no null "
        "record where there is an intercept; neighbor='removed' if the number is never read",
        neighbor=None,
    )


def _and(X: np.ndarray, y: np.ndarray, record: Any) -> Rows:
    if isinstance(record, str):
        one_of(("removed",), "or a record (x, y)", neighbor=record)
        return X, y
    try:
        row, target = record
        return np.vstack([X, np.asarray(row)[None]]), np.append(y, target)
    except (TypeError, ValueError):
        raise expected("a pair (x, y), x of the width of X", record=record) from None


# --- fits and what is seen of them ----------------------------------------------------------------


def _fitted(estimator: Any, X: np.ndarray, y: np.ndarray) -> tuple[Any, list]:
    """Fit a copy, off the books; return it and the record of its releases."""
    with covered(), _trace.record() as tape:
        if not hasattr(estimator, "fit"):
            return estimator(X, y), tape
        fresh: Any = (
            clone(estimator) if hasattr(estimator, "get_params") else copy.deepcopy(estimator)
        )
        return fresh.fit(X, y), tape


@dataclass(frozen=True)
class _Look:
    """What is seen of a fitted object: a vector."""

    statistic: Callable[[Any], Any] | str | None
    canary: np.ndarray

    def __call__(self, fitted: Any, tape: list) -> np.ndarray:
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


def _flat(values: Any) -> np.ndarray:
    parts = [np.asarray(part, dtype=float).ravel() for part in _each(values)]
    return np.concatenate(parts) if parts else np.empty(0)


def _each(values: Any):
    for value in values:
        if isinstance(value, list | tuple):
            yield from _each(value)
        else:
            yield value


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


def _chunk(estimator: Any, arms: tuple[Rows, Rows], look: _Look, n_fits: int) -> list[list]:
    """Fit both arms in turn, so that what changes with time changes for both."""
    results: list[list] = [[], []]
    for _ in range(n_fits):
        for arm, found in zip(arms, results, strict=True):
            found.append(look(*_fitted(estimator, *arm)))
    return results


def _results(
    estimator: Any, arms: tuple[Rows, Rows], look: _Look, n_fits: int, n_jobs: int | None
) -> tuple[np.ndarray, np.ndarray]:
    chunks: list[Any] = []
    if n_jobs in (None, 1):
        chunks = [_chunk(estimator, arms, look, n_fits)]
    else:
        sizes = [len(part) for part in np.array_split(np.arange(n_fits), _CHUNKS)]
        parts = (delayed(_chunk)(estimator, arms, look, n) for n in sizes)
        chunks.extend(Parallel(n_jobs)(parts) or [])
    joined = [[row for chunk in chunks for row in chunk[arm]] for arm in (0, 1)]
    lengths = {len(row) for arm in joined for row in arm}
    if len(lengths) > 1:
        remedy = f"it was one of {sorted(lengths)} numbers"
        raise expected("a vector of one length", remedy, statistic=look.statistic)
    return np.array(joined[0]), np.array(joined[1])


# --- the claim ------------------------------------------------------------------------------------


def _claim(
    fitted: Any, epsilon: float | None, delta: float | None, relation: str | None, frame: str
) -> dict[str, Any]:
    """Return what is claimed: what the caller says, or else the fitted object's own statement."""
    _refuse_seed(fitted)
    report = getattr(fitted, "privacy_", None)
    gaussian = False
    if isinstance(report, PrivacyReport):
        if report.seeded:
            raise ValueError("The fitted object says that its noise was seeded: nothing to audit.")
        relation = relation or report.neighboring_relation
        if report.neighboring_relation != relation:
            stated = report.neighboring_relation
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
