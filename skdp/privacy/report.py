"""`PrivacyReport`: the privacy statement of one fitted object, frozen, as `privacy_` holds it."""

from __future__ import annotations

import html
import json
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from dp_accounting.dp_event import ComposedDpEvent, DpEvent

from skdp._version import __version__
from skdp.fitting.types import Json
from skdp.fitting.validate import expected, integer
from skdp.privacy._advisories import as_known_today, not_disproved
from skdp.privacy.accounting import GDP, NOT_A_BOUND, epsilon_of_event, least_bound
from skdp.privacy.events import event_from_dict, event_to_dict, gaussian_mu
from skdp.privacy.gdp import epsilon_to_gdp
from skdp.privacy.parts import PartDpEvent, paid_together
from skdp.privacy.risk import tpr_at_fpr
from skdp.privacy.statement import (
    headline,
    markdown,
    page,
    rows,
    settings_of,
    today,
    versions_in_use,
)
from skdp.relations import GROUP, REPLACE_ONE, check_relation, other_relation
from skdp.rows.parts import Mark

_ONE_ORDER = "the table that was split had the same rows in the same order in every session"
_NO_TUNING = "none accounted; each further fit on these rows is a further release"
_TITLE = "Privacy statement"
SCHEMA = 2  # of the JSON: docs/_static/report.schema.json; 1 is that of skdp 0.1, without a number
_TEXTS = ("inferred_public_facts", "unaccounted", "assumptions", "settings", "versions")  # lists


@dataclass(frozen=True, repr=False)
class PrivacyReport:
    """Privacy statement of a fitted object.

    Attributes
    ----------
    epsilon, delta : float
        (ε, δ) of the guarantee; ε is infinite without one.
    neighboring_relation : str
        ``"zero_out"``, ``"add_or_remove_one"`` or ``"replace_one"``, with ``"_group"`` behind it
        where persons are protected.
    accountant : str
        The accountant that gave ε.
    event : DpEvent
        What was released, for any other accountant; in this relation only, because noise is stated
        over what the relation lets one record move.
    sampling : str
        How records took part in each step.
    inferred_public_facts : tuple of str
        What the code read from the data because it was not declared; ε is conditional on its being
        public.
    seeded : bool
        Whether the noise came from a ``random_state`` that someone could know or guess.
    valid : bool
        Whether (ε, δ) is a guarantee: false for a seeded fit, for one without privacy, and where
        something is unaccounted.
    tuning : str
        What of the choice of hyperparameters is accounted.
    unaccounted : tuple of str
        Parts of a workflow that read private rows, or may have, and are in no event, with what to
        use instead; see `privacy_of`.
    assumptions : tuple of str
        What else ε is conditional on, because no code can prove it.
    skdp_version : str
        Version that wrote the report.
    settings, versions, date : tuple of str, tuple of str and str
        For readers: each fit's parameters (bounds, classes, number of rows), packages that the
        releases were computed with, and the day of the last release in UTC, ``""`` if it was not
        recorded. Two reports that differ in nothing else are equal.

    Examples
    --------
    >>> from skdp import DPVariationalLogisticRegression
    >>> X, y = [[-1.0], [-0.9], [0.9], [1.0]], [0, 0, 1, 1]
    >>> report = DPVariationalLogisticRegression(classes=[0, 1], n_samples=4).fit(X, y).privacy_
    >>> round(report.epsilon, 9), report.delta, report.valid
    (1.0, 1e-05, True)
    """

    epsilon: float
    delta: float
    neighboring_relation: str
    accountant: str
    event: DpEvent
    sampling: str
    inferred_public_facts: tuple[str, ...] = ()
    seeded: bool = False
    valid: bool = True
    tuning: str = _NO_TUNING
    unaccounted: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()
    skdp_version: str = __version__
    settings: tuple[str, ...] = field(default=(), compare=False)
    versions: tuple[str, ...] = field(default=(), compare=False)
    date: str = field(default="", compare=False)

    @classmethod
    def of(
        cls,
        event: DpEvent,
        *,
        delta: float,
        sampling: str,
        neighboring_relation: str = "zero_out",
        accountant: str = "auto",
        inferred_public_facts: tuple[str, ...] = (),
        seeded: bool = False,
        assumptions: tuple[str, ...] = (),
    ) -> PrivacyReport:
        """Account an event and state the result."""
        epsilon, used = least_bound(event, delta, neighboring_relation, accountant)
        valid = math.isfinite(epsilon) and not seeded and used != NOT_A_BOUND
        # Without noise there is nothing to predict, so a seed takes nothing away.
        facts: Any = inferred_public_facts, seeded and math.isfinite(epsilon), valid
        statement = epsilon, delta, neighboring_relation, used, event, sampling
        return cls(*statement, *facts, assumptions=assumptions)

    @classmethod
    def from_json(cls, text: str) -> PrivacyReport:
        """Read a report back from the text of `to_json`.

        A report of a version whose statement has been found wrong since (docs/advisories.md) is
        returned as not valid, with the advisory in ``unaccounted`` and a `PrivacyWarning`; where
        the report does not tell whether it is affected, the warning alone says so. A ValueError
        says if the text is not a report, or its ε is below what its event costs.

        Parameters
        ----------
        text : str
            JSON.

        Returns
        -------
        PrivacyReport
        """
        try:
            values = json.loads(text)
            schema = values.pop("schema", 1)
            if isinstance(schema, bool) or not isinstance(schema, int) or schema < 1:
                raise TypeError
            if schema > SCHEMA:
                raise expected(f"at most {SCHEMA}", "read it with a newer skdp", schema=schema)
            values["event"] = event_from_dict(values["event"])
            values["epsilon"] = float(values["epsilon"])
            for name in _TEXTS:
                values[name] = tuple(values.get(name, ()))
            unit = values.pop("unit", None)
            report = cls(**values)
            report._check_types()
            if unit not in (None, report.unit):
                raise TypeError
        except (KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise ValueError("Expected the JSON of a PrivacyReport.") from error
        holds = math.isfinite(report.epsilon) and not report.seeded and not report.unaccounted
        if report.valid and (not holds or report.accountant == NOT_A_BOUND):
            raise ValueError("The report claims a guarantee that it cannot have: it was changed.")
        if report.accountant != NOT_A_BOUND:
            # Another version's accountant may differ in the last digits; a claim may not.
            least = epsilon_of_event(report.event, report.delta, report.neighboring_relation)
            if not report.epsilon >= 0.999 * least:
                raise ValueError(
                    f"The report claims epsilon={report.epsilon:.4g}, but its event costs "
                    f"{least:.4g} at delta={report.delta:g}: it has been changed."
                )
        return as_known_today(report)

    def _check_types(self) -> None:
        texts = (self.accountant, self.sampling, self.tuning, self.skdp_version, self.date)
        of_texts = (*texts, *joint(getattr(self, name) for name in _TEXTS))
        are_texts = all(isinstance(text, str) for text in of_texts)
        if not are_texts or type(self.seeded) is not bool or type(self.valid) is not bool:
            raise TypeError

    @property
    def _releases(self) -> tuple[PrivacyReport, ...]:
        """The reports that this one is composed of."""
        return vars(self).get("_composed", (self,))

    def _composed_of(self, reports: Iterable[PrivacyReport]) -> PrivacyReport:
        # Not a field: what is stored and read again is one report.
        vars(self)["_composed"] = tuple(one for report in reports for one in report._releases)
        return self

    def __add__(self, other: PrivacyReport) -> PrivacyReport:
        """Compose two reports on the same data at the larger δ; ε is not the sum of the two."""
        known = isinstance(other, PrivacyReport)
        return PrivacyReport.compose([self, other]) if known else NotImplemented

    @classmethod
    def compose(cls, reports: Sequence[PrivacyReport], delta: float | None = None) -> PrivacyReport:
        """Compose reports on the same data, and about the same neighbours, with one accounting.

        Parameters
        ----------
        reports : sequence of PrivacyReport
            One or more.
        delta : float or None, default=None
            δ at which to state ε; None is the largest of theirs.

        Returns
        -------
        PrivacyReport
            ε of all events together; it is not the sum of theirs.
        """
        reports = [not_disproved(report) for report in reports]
        first = reports[0]
        if len(reports) == 1 and delta in (None, first.delta):
            return first
        for report in reports:
            if report.neighboring_relation != first.neighboring_relation:
                what = f"{first.neighboring_relation!r} in all reports"
                raise other_relation(what, report.neighboring_relation, report.sampling)
        not_bounds = any(report.accountant == NOT_A_BOUND for report in reports)
        events = [part for report in reports for part in _parts(report.event)]
        total = cls.of(
            ComposedDpEvent(events) if len(reports) > 1 else first.event,
            delta=max(report.delta for report in reports) if delta is None else delta,
            sampling="; then ".join(report.sampling for report in reports),
            neighboring_relation=first.neighboring_relation,
            accountant=NOT_A_BOUND if not_bounds else "auto",
            inferred_public_facts=joint(report.inferred_public_facts for report in reports),
            seeded=any(report.seeded for report in reports),
            assumptions=joint(report.assumptions for report in reports),
        )
        return replace(
            total,
            valid=total.valid and all(report.valid for report in reports),
            tuning="; ".join(dict.fromkeys(report.tuning for report in reports)),
            unaccounted=joint(report.unaccounted for report in reports),
            settings=joint(report.settings for report in reports),
            versions=joint(report.versions for report in reports),
            date=max(report.date for report in reports),
        )._composed_of(reports)

    def of_release(self, estimator: Any, label: str, n_samples: int | None) -> PrivacyReport:
        """Return the same, equal to this one, with what it was made with, by what, and when."""
        settings = (settings_of(estimator, label, n_samples),)
        return replace(self, settings=settings, versions=versions_in_use(), date=today())

    def of_part(self, mark: Mark | None) -> PrivacyReport:
        """State the same of a release that reads a part of the rows, or why it counts with all."""
        if mark is None:
            return self
        relation, name = check_relation(self.neighboring_relation), f"{mark.part!r} of {mark.split}"
        why_not = mark.why_not
        if not why_not and not (mark.by_coins or relation.n_is_public):
            missing = "groups" if relation.unit == GROUP else "neighboring_relation"
            raise expected(
                f"of a DisjointSplit with {missing}=... for a release under {relation!s}",
                "this one assigned rows by their places, and a record more would move all others",
                rows=f"part {name}",
            )
        if mark.unit != GROUP and relation.unit == GROUP:
            why_not = why_not or "a person may have rows in several parts"
        elif mark.unit == GROUP and relation.of_rows == REPLACE_ONE:
            why_not = why_not or "whoever takes another's place may be of another part"
        if why_not:
            sampling = f"{self.sampling}, counted with all rows and not as part {name}: {why_not}"
            return replace(self, sampling=sampling).of_part(mark.within)
        return replace(
            self,
            event=PartDpEvent(self.event, mark.split, mark.part),
            sampling=f"{self.sampling}, of part {name}",
            assumptions=joint([self.assumptions, [_ONE_ORDER]]),
        ).of_part(mark.within)

    @property
    def unit(self) -> str:
        """What is protected: a ``"row"``, or a ``"group"`` of rows that are of one person."""
        return check_relation(self.neighboring_relation).unit

    def epsilon_at(self, delta: float) -> float:
        """Least known ε, rounded up, at another δ: one release has a whole curve of (ε, δ)."""
        return epsilon_of_event(self.event, delta, self.neighboring_relation)

    def tpr_at_fpr(self, fpr: float = 0.01) -> float:
        """Bound the share of members that an attacker finds who errs on a share of non-members.

        Parameters
        ----------
        fpr : float, default=0.01
            Share in [0, 1] of non-members whom the attacker calls members.

        Returns
        -------
        float
            That of a Gaussian mechanism where the accountant is ``"gdp"``, for the event too, and
            else from (ε, δ) alone, more than need be; see `skdp.privacy.risk`. 1 without guarantee.
        """
        event, relation = self.event, self.neighboring_relation
        # A stored report can call itself anything: its event has to be a Gaussian's too.
        gaussian = self.accountant == GDP == least_bound(event, self.delta, relation)[1]
        alone = len(paid_together(event, relation)) == 1
        if self.valid and gaussian and alone and min(self.epsilon, self.delta) > 0.0:
            mu = epsilon_to_gdp(self.epsilon, self.delta) * (1 + 1e-9)
            # Discrete Gaussians are near such a mechanism, at a distance that δ pays for.
            near = 0.0 if gaussian_mu(event) is not None else self.delta
            return min(1.0, tpr_at_fpr(min(1.0, fpr + near), mu=mu) + near)
        return tpr_at_fpr(fpr, epsilon=self.epsilon if self.valid else math.inf, delta=self.delta)

    def to_dict(self) -> dict[str, Json]:
        """Return the report as plain Python objects; the event becomes a nested dictionary."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        values |= {name: list(getattr(self, name)) for name in _TEXTS}
        return {"schema": SCHEMA, **values, "event": event_to_dict(self.event), "unit": self.unit}

    def to_json(self) -> str:
        """Return the report as JSON; an infinite ε is written as the string ``"inf"``."""
        values = self.to_dict() | ({"epsilon": "inf"} if math.isinf(self.epsilon) else {})
        return json.dumps(values, indent=2, allow_nan=False)

    def to_markdown(self, title: str = _TITLE, *, level: int = 1) -> str:
        """Return the report as a page in Markdown, for readers of no code.

        Parameters
        ----------
        title : str, default="Privacy statement"
            Its heading.
        level : int, default=1
            Of that heading; above 1 for a section of another page, as of a model card.

        Returns
        -------
        str
            The statement in words, what an attacker finds at most, what was released and declared,
            and what is not covered.
        """
        return markdown(self, title, integer(1, level=level))

    def to_html(self, path: str | os.PathLike | None = None, *, title: str = _TITLE) -> str:
        """Return what `to_markdown` says as a page in HTML, and write it to a file.

        Parameters
        ----------
        path : path-like or None, default=None
            File to write, in UTF-8; None writes none.
        title : str, default="Privacy statement"
            Its heading.

        Returns
        -------
        str
            A page that fetches nothing and runs nothing.
        """
        text = page(self, title)
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text

    def __repr__(self) -> str:
        lines = [f"PrivacyReport: {headline(self)}"]
        for name, value in rows(self):  # a composition may be long: a line for each part
            lines.append(f"  {name:<22}  " + value.replace("; then ", ";\n" + 26 * " " + "then "))
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        lines = "".join(
            f"<tr><th style='text-align:left'>{html.escape(name)}</th>"
            f"<td style='text-align:left'>{html.escape(value)}</td></tr>"
            for name, value in rows(self)
        )
        title = html.escape(headline(self))
        return f"<table><caption><b>PrivacyReport:</b> {title}</caption>{lines}</table>"


def _parts(event: DpEvent) -> list[DpEvent]:
    """Parts of a composition: a sum of many reports must not nest as deep as it is long."""
    return list(event.events) if isinstance(event, ComposedDpEvent) else [event]


def joint(many: Iterable[Sequence[str]]) -> tuple[str, ...]:
    """Join lists of names, each name once."""
    return tuple(dict.fromkeys(name for names in many for name in names))
