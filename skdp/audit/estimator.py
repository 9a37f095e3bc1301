"""`audit_estimator`: fit many times on two neighbouring data sets, and compare the results.

The rows are zeros and one outlier, the canary (0, …, 0, large), so that nothing but the canary
moves the result: the worst case that a guarantee has to hold for (Nasr et al. 2021; Annamalai & De
Cristofaro 2024 show how much such starts matter). For a linear model on the full batch the result
is then as telling as all releases together, and an audit with 5000 fits per arm proves 90 % or more
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

import math
import time
from dataclasses import replace
from typing import Any

from skdp.audit._fits import Fits, Look, Statistic, fitted_to, made_here, results
from skdp.audit._neighbours import (
    Record,
    default_neighbor,
    neighbor_of,
    parameters,
    relation_of,
    rows_and_canary,
    with_record,
)
from skdp.audit.confidence import FRAMES
from skdp.audit.report import AuditReport
from skdp.audit.samples import audit_samples
from skdp.fitting.types import Given, Opaque, Params
from skdp.fitting.validate import expected, flag, in_range, integer, one_of
from skdp.privacy.events import gaussian_mu
from skdp.privacy.report import PrivacyReport
from skdp.relations import GROUP, ZERO_OUT, check_relation


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
    from each fitted object, and bounds ε from below by how well they tell the two apart:
    `skdp.audit.confidence` has the proof, `skdp.audit.samples` the choice of a threshold.

    Parameters
    ----------
    estimator : estimator or callable
        Anything with scikit-learn's `fit`, or a function (X, y) -> fitted object. It is cloned for
        each fit. Its noise must not be seeded. Persons are audited if its ``unit`` is `Persons`, if
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
        a warning. Or ``"removed"``, if the number of rows is never read: that is None for a
        function, and for an estimator with a declared ``n_samples``. A person without rows is the
        null record, so that ``"removed"`` is None for persons, but for ``"replace_one"``.
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
        The claim's, of rows or of persons. None reads it from ``privacy_`` too, or is zero-out.
    frame : {"auto", "dp", "gdp"}, default="auto"
        As in `audit_samples`; ``"auto"`` is ``"gdp"`` where ``privacy_`` says that all that was
        released is full-batch Gaussian, and ``"dp"`` for all else.
    confidence, selection
        As in `audit_samples`.
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
        If a ``random_state`` is set: each fit would have the same noise. If there is no claim, or
        the two data sets are no neighbours.
    BudgetExceededError
        If an open ledger refuses a fit.

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
    """
    start = time.perf_counter()
    n_fits = integer(20, "fewer prove nothing", n_fits=n_fits)
    one_of(("auto", *FRAMES), frame=frame)
    in_range(0.0, 1.0, confidence=confidence)
    free = flag(public=public) or made_here(estimator, neighbor, X, y, groups, canary)
    if not (statistic is None or statistic == "trace" or callable(statistic)):
        raise expected("a function, 'trace' or None", statistic=statistic)
    _refuse_seed(estimator)
    relation = relation_of(estimator, groups, neighboring_relation)
    others, canary = rows_and_canary(estimator, X, y, groups, canary, relation)
    present = with_record(others, canary)
    fitted, _ = fitted_to(estimator, present, free)
    claim = _claim(fitted, epsilon, delta, relation, frame)
    if claim["neighboring_relation"].unit == GROUP and others.persons is None:
        raise expected("given", "the fitted object's privacy_ is about persons", groups=None)
    if neighbor is None:
        neighbor = default_neighbor(estimator, canary, claim["neighboring_relation"])
    kind, record = neighbor_of(neighbor, claim["neighboring_relation"])
    absent = others if record is None else with_record(others, record)
    look = Look(statistic, present.X[-1:])
    fits = Fits(estimator, (present, absent), look, free)
    arms = results(fits, n_fits, n_jobs)
    claim |= {"audited": getattr(estimator, "__name__", type(estimator).__name__)}
    report = audit_samples(*arms, **claim, confidence=confidence, selection=selection)
    return replace(report, neighbor=kind, seconds=time.perf_counter() - start)


def _refuse_seed(estimator: Opaque) -> None:
    for name, value in parameters(estimator).items():
        if name.rsplit("__", 1)[-1] == "random_state" and value is not None:
            remedy = "with a seed every fit has the same noise, and tells any two data sets apart"
            raise expected("None in an audit", remedy, **{name: value})


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
