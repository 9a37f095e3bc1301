"""`privacy_of`: the privacy statement of a whole fitted workflow of scikit-learn.

A pipeline is as private as all of its steps together. What states its privacy is composed; what is
known to learn nothing from rows is free; and what may have learned from rows without saying what
it cost is named, with what to use instead: then there is no guarantee.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from dp_accounting.dp_event import NonPrivateDpEvent, NoOpDpEvent

from skdp.fitting.types import Opaque
from skdp.fitting.validate import expected, in_range
from skdp.privacy._scikit_learn import needs_fit, package_of, rule_of
from skdp.privacy.report import PrivacyReport, joint
from skdp.privacy.statement import settings_of
from skdp.relations import other_relation

_FROZEN = ("sklearn", "FrozenEstimator")


def privacy_of(
    fitted: Any,
    *others: Any,
    strict: bool = False,
    public_steps: Iterable[str] = (),
    delta: float | None = None,
) -> PrivacyReport:
    """Privacy statement of a fitted estimator, pipeline, or other workflow of scikit-learn.

    Whatever holds a `PrivacyReport` in ``privacy_`` counts as it states. Steps inside of
    pipelines, column transformers and other meta-estimators are visited; docs/workflows.md has the
    verdict on each class. The report says what was done to these rows by *this* workflow: earlier
    fits, and what was learned from the rows outside of it, are for a `PrivacyLedger` to add up.

    Parameters
    ----------
    fitted : estimator
        A fitted estimator or workflow, or another thing that states its privacy, as a report does.
    *others : estimator
        More of them, on the same rows. What read different parts of a `DisjointSplit` is composed
        by the maximum. What wraps a fitted model, as `DPConformalClassifier` does, states the
        model's release too; beside the model this release counts once. Of a copy of the model, as
        of one that was stored and loaded, it counts again.
    strict : bool, default=False
        Raise where there is no guarantee, because something is unaccounted or seeded for instance,
        instead of reporting it.
    public_steps : sequence of str, default=()
        Names of steps, as in `get_params` (``"columns__num"``), that the caller vouches for: they
        learned nothing from private rows, and they map each row by itself. What is inside of them
        is covered too; releases in there still count.
    delta : float or None, default=None
        δ at which to state ε. None is the largest δ of the parts.

    Returns
    -------
    PrivacyReport
        All releases composed. What is not accounted is in ``unaccounted``, and then the report is
        not valid; where nothing at all is accounted, its ε is infinite. A workflow that reads no
        rows has ε = 0.

    Raises
    ------
    ValueError
        If a part is not fitted, the parts are about different neighbours, ``public_steps`` names
        no step, or, with ``strict``, there is no guarantee.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from skdp import BoundedScaler, DPVariationalLogisticRegression, privacy_of
    >>> X, y = [[20.0], [30.0], [60.0], [70.0]], [0, 0, 1, 1]
    >>> model = DPVariationalLogisticRegression(classes=[0, 1], n_samples=4)
    >>> privacy_of(make_pipeline(BoundedScaler(lower=0, upper=120), model).fit(X, y)).valid
    True
    >>> report = privacy_of(make_pipeline(StandardScaler(), model).fit(X, y))
    >>> report.valid, report.unaccounted[0].split("; ")[1]
    (False, 'use DPStandardScaler or BoundedScaler')
    """
    for one in (fitted, *others):
        if isinstance(one, type) or not (hasattr(one, "fit") or _statement(one)):
            given = f"class {one.__name__}" if isinstance(one, type) else type(one).__name__
            raise ValueError(f"Expected a fitted estimator or workflow, but got {given}.")
    if delta is not None:
        in_range(0.0, 1.0, delta=delta, closed="left")
    visit = _Visit(() if isinstance(public_steps, str) else tuple(public_steps))
    for one in (fitted, *others):
        visit.part(one, "", frozen=False, public=False)
    if isinstance(public_steps, str) or not set(visit.public_steps) <= set(visit.names):
        known = ", ".join(map(repr, visit.names)) or "none here"
        raise expected(f"a list of names of steps ({known})", public_steps=public_steps)
    if strict and visit.unaccounted:
        listed = "\n".join(f"- {line}" for line in visit.unaccounted)
        raise ValueError(f"Expected everything to be accounted, but:\n{listed}")
    report = visit.report(delta)
    if strict and not report.valid:
        raise ValueError(f"Expected a guarantee, but got:\n{report}")
    return report


def stating_parts(fitted: Any) -> frozenset[int]:
    """Identities of the parts of a fitted workflow whose own statements `privacy_of` composes."""
    visit = _Visit(())
    visit.part(fitted, "", frozen=False, public=False)
    return frozenset(visit.seen)


@dataclass
class _Visit:
    """What was found on the way through a workflow."""

    public_steps: tuple[str, ...]
    names: dict[str, None] = field(default_factory=dict)
    reports: list[PrivacyReport] = field(default_factory=list)
    sampling: list[str] = field(default_factory=list)
    declared: list[str] = field(default_factory=list)
    unaccounted: list[str] = field(default_factory=list)
    facts: list[str] = field(default_factory=list)
    settings: list[str] = field(default_factory=list)
    seen: dict[int, tuple[str, bool]] = field(default_factory=dict)

    def part(self, fitted: Opaque, path: str, *, frozen: bool, public: bool) -> list[PrivacyReport]:
        """Visit a part and all that is in it; return the releases found there."""
        label = f"step {path!r} ({type(fitted).__name__})" if path else type(fitted).__name__
        if path:
            self.names[path] = None
        if path in self.public_steps and label not in self.declared:
            self.declared.append(label)
        public = public or path in self.public_steps
        statement = _statement(fitted)
        if statement is not None:
            return self._release(fitted, statement, path, label, frozen=frozen)
        return self._step(fitted, path, label, frozen=frozen, public=public)

    def _release(
        self, fitted: Opaque, statement: PrivacyReport, path: str, label: str, *, frozen: bool
    ) -> list[PrivacyReport]:
        if id(fitted) in self.seen:
            first, was_frozen = self.seen[id(fitted)]
            # What is frozen was fitted once, however often it is used.
            if not (frozen and was_frozen):
                self.unaccounted.append(
                    f"{label}: is the same object as {first}, fitted again, and states only its "
                    "last fit; use a copy"
                )
            return []
        self.seen[id(fitted)] = (label, frozen)
        relation = statement.neighboring_relation
        if self.reports and relation != self.reports[0].neighboring_relation:
            what = f"{self.reports[0].neighboring_relation!r}, as of the steps before,"
            raise other_relation(what, relation, label)
        self.reports.append(statement)
        self.sampling.append(f"{label}: {statement.sampling}" if path else statement.sampling)
        return [statement]

    def _step(
        self, fitted: Opaque, path: str, label: str, *, frozen: bool, public: bool
    ) -> list[PrivacyReport]:
        rule = rule_of(type(fitted))
        within = frozen or (package_of(type(fitted)), type(fitted).__name__) == _FROZEN
        parts = list(rule.parts(fitted))
        reports = [
            report
            for name, inner in parts
            for report in self.part(inner, _joined(path, name), frozen=within, public=public)
        ]
        if needs_fit(type(fitted)) and not _is_fitted(fitted):
            raise ValueError(f"Expected a fitted workflow, but {label} is not fitted.")
        if public:
            return reports
        lines = [
            f"{label}: {objection.reads}; {objection.instead}"
            for objection in rule.objections
            if objection.applies(fitted, reports)
        ]
        self.unaccounted += lines
        self.facts += rule.facts(fitted)
        if not lines and not parts:
            self.sampling.append(f"{label}: reads no rows")
            self.settings.append(settings_of(fitted, type(fitted).__name__))
        return reports

    def report(self, delta: float | None) -> PrivacyReport:
        """State what was found, as `PrivacyReport.__add__` states two."""
        if self.reports:
            delta = max(report.delta for report in self.reports) if delta is None else delta
            report = PrivacyReport.compose(_each_once(self.reports), delta)
        else:
            # Nothing was accounted: either nothing had to be, or nothing is known.
            event = NonPrivateDpEvent() if self.unaccounted else NoOpDpEvent()
            report = PrivacyReport.of(event, delta=delta or 0.0, sampling="")
        lines = [
            f"{n} times {line}" if n > 1 else line for line, n in Counter(self.sampling).items()
        ]
        if self.declared:
            lines.append(f"declared public by the caller: {', '.join(self.declared)}")
        whole = [report, *self.reports]
        unaccounted = joint([*(one.unaccounted for one in whole), self.unaccounted])
        facts = joint([*(one.inferred_public_facts for one in whole), self.facts])
        return replace(
            report,
            sampling="; then ".join(lines) or "nothing",
            inferred_public_facts=facts,
            valid=report.valid and not unaccounted,
            unaccounted=unaccounted,
            settings=joint([self.settings, report.settings]),
        )._composed_of([report])


def _each_once(reports: list[PrivacyReport]) -> list[PrivacyReport]:
    """What reports are composed of: each release as often as the report that has it most often."""
    named = {id(one): one for report in reports for one in report._releases}
    most: Counter[int] = Counter()
    for report in reports:
        most |= Counter(map(id, report._releases))
    if most.total() == sum(len(report._releases) for report in reports):
        return reports
    return [named[name] for name in most.elements()]


def _statement(fitted: Opaque) -> PrivacyReport | None:
    """Return the object's own report: one that a wrapper passes on may leave out the wrapper."""
    own = "privacy_" in getattr(fitted, "__dict__", {}) or any(
        "privacy_" in vars(base) for base in type(fitted).__mro__
    )
    statement = getattr(fitted, "privacy_", None) if own else None
    return statement if isinstance(statement, PrivacyReport) else None


def _is_fitted(fitted: Opaque) -> bool:
    """Whether scikit-learn would say so: learned attributes end in an underscore."""
    own = getattr(fitted, "__sklearn_is_fitted__", None)
    if own is not None:
        return bool(own())
    return any(name.endswith("_") and not name.startswith("__") for name in vars(fitted))


def _joined(path: str, name: str) -> str:
    return f"{path}__{name}" if path else name
