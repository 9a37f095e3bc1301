"""A privacy report as a page for readers of no code, in Markdown or HTML.

For data-protection officers, and whoever takes a model over: a sentence in words, what is
protected, what was released, what it may tell an attacker, what is not covered. All of it is read
off the report; text that callers chose (labels of classes, names of columns) is escaped.

>>> from skdp.privacy import PrivacyReport
>>> from skdp.privacy.events import dp_sgd_event
>>> report = PrivacyReport.of(dp_sgd_event(4.0, 1.0, 16), delta=1e-5, sampling="full batch")
>>> print(report.to_markdown().splitlines()[2][116:])
finds at most 9.24 in 100 members. Guessing finds 1 in 100.**
"""

from __future__ import annotations

import html
import math
import os
import re
import sys
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from typing import TYPE_CHECKING, Any, NamedTuple

from skdp.privacy.accounting import NOT_A_BOUND
from skdp.relations import ADD_OR_REMOVE_ONE, GROUP, REPLACE_ONE, ZERO_OUT, check_relation
from skdp.rows.persons import Persons

if TYPE_CHECKING:
    from skdp.privacy.report import PrivacyReport

_IN_100 = "an attacker who takes 1 in 100 outsiders for members finds at most {} in 100 members"
_PACKAGES = ("dp-accounting", "numpy", "scipy", "scikit-learn")
_NO_FACTS = ("random_state", "verbose", "n_jobs", "memory")
_FIRST = ("n_samples", "classes", "lower", "upper", "data_norm", "epsilon", "delta")
_MOST_SHOWN = 12  # parts of a list
_MEMBERS = (
    "An attacker who sees the release, knows every other {unit}, and mistakes {share} outsiders "
    "for members of the data, finds at most {found} in 100 members. Guessing finds {share}."
)
_VALUES = (
    "An attacker who sees the release, knows every other {unit}, has to tell which of two values "
    "one {unit} has, and errs on {share} with the first, recognises at most {found} in 100 with "
    "the second. Guessing recognises {share}."
)
_COLUMNS = {
    True: ("outsiders mistaken for members", "members found, at most", "by guessing"),
    False: ("of the first value, errs on", "of the second, recognises at most", "by guessing"),
}
_RELATIONS = {
    ZERO_OUT: "replaced by an empty one, which adds nothing to any sum",
    ADD_OR_REMOVE_ONE: "removed, or another added",
    REPLACE_ONE: "replaced by any other",
}
_NOT_COVERED = (
    "What else was released about the same records, by other fits, tables or people. A ledger adds "
    "these up.",
    "What is true of people in general, and with it of those who are not in the data.",
    "Several {unit}s that belong together, as of a household: they are protected less.",
    "Bounds, classes and other parameters that somebody found by looking at private records.",
    "The machine of the fit: its memory, its logs, the time that it took.",
    "Whether this is what ran. skdp-verify proves the arithmetic of this report, and no more.",
)
_STYLE = (
    "body{font:16px/1.5 sans-serif;max-width:48rem;margin:2rem auto;padding:0 1rem}"
    "table{border-collapse:collapse}td,th{border:1px solid #bbb;padding:.3rem .6rem;"
    "text-align:left;vertical-align:top}td+td,li{overflow-wrap:anywhere}"
)


class Section(NamedTuple):
    """A heading, and below it a list, or the rows of a table with names or with headed columns."""

    heading: str
    rows: list[tuple[str, ...]]
    columns: tuple[str, ...] = ()


def today() -> str:
    """Return the date in UTC; that of ``SOURCE_DATE_EPOCH`` where results must repeat."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    return (datetime.fromtimestamp(int(epoch), UTC) if epoch else datetime.now(UTC)).strftime("%F")


def versions_in_use() -> tuple[str, ...]:
    """Packages that releases are computed with; torch where it has been imported."""
    return tuple(map(_version, (*_PACKAGES, *(["torch"] if "torch" in sys.modules else []))))


@cache
def _version(package: str) -> str:
    return f"{package} {metadata.version(package)}"


def settings_of(estimator: Any, label: str, n_samples: int | None = None) -> str:
    """Say in a line what an estimator was given: numbers and text, objects by their class."""
    given = estimator.get_params(deep=False) if hasattr(estimator, "get_params") else {}
    given |= {} if n_samples is None else {"n_samples": n_samples}
    hidden = {*_NO_FACTS, *getattr(estimator, "_NO_FACTS", ())}
    shown = {k: _shown(v) for k, v in given.items() if v is not None and k not in hidden}
    named = [name for name in _FIRST if name in shown]
    named += [name for name in shown if name not in _FIRST]
    return f"{label}: " + ", ".join(
        f"{k}={shown[k]}" for k in named if shown[k] not in ("'auto'", "{}")
    )


def _shown(value: Any) -> str:
    """A value of a parameter; no repr of an object, in which anything could stand."""
    if hasattr(value, "tolist") and not isinstance(value, type):  # of numpy, pandas, polars
        value = value.tolist()
    if value is None or isinstance(value, bool | int | float | str | Persons):
        return repr(value) if len(repr(value)) <= 100 else f"{repr(value)[:100]}…"
    if isinstance(value, Mapping):
        items = [f"{_shown(key)}: {_shown(part)}" for key, part in value.items()]
    elif isinstance(value, list | tuple):
        items = [*map(_shown, value)]
    else:
        return getattr(value, "__name__", type(value).__name__)
    more = [f"… of {len(items)}"] if len(items) > _MOST_SHOWN else []
    text = ", ".join(items[:_MOST_SHOWN] + more)
    return f"{{{text}}}" if isinstance(value, Mapping) else f"[{text}]"


def in_100(share: float) -> str:
    """Return a share in per cent, to three digits, rounded up."""
    digits = 2 - math.floor(math.log10(100 * share)) if share > 0 else 0
    return f"{min(100.0, math.ceil(100 * share * 10.0**digits - 1e-9) / 10.0**digits):.6g}"


def first_sentence(report: PrivacyReport) -> str:
    """What the report says, in words."""
    if report.valid:
        null_record = check_relation(report.neighboring_relation).null_record
        words, share = _MEMBERS if null_record else _VALUES, "1 in 100"
        return words.format(unit=_unit(report), share=share, found=in_100(report.tpr_at_fpr(0.01)))
    why = "its numbers are approximate"
    if math.isinf(report.epsilon):
        why = "the release may tell of single records"
    elif report.seeded:
        why = "whoever knows or guesses the seed can compute the noise"
    elif report.unaccounted:
        why = "private records were read in ways that are not accounted"
    return f"There is no guarantee: {why}."


def _unit(report: PrivacyReport) -> str:
    return "person" if report.unit == GROUP else "row"


def sections(report: PrivacyReport) -> list[Section]:
    """What follows the first sentence."""
    relation, unit = check_relation(report.neighboring_relation), _unit(report)
    facts = ", ".join(report.inferred_public_facts)
    neighbours = (
        f"{relation}. The release would be almost as likely if this {unit} were "
        f"{_RELATIONS[relation.of_rows]}. The number of rows is "
        f"{'public' if relation.n_is_public else 'protected too'}."
    )
    read = f"{facts}. The guarantee holds if these are public." if facts else "nothing"
    statement = [
        ("guarantee", "yes" if report.valid else "no"),
        ("ε", "none" if math.isinf(report.epsilon) else f"{report.epsilon:.6g}"),
        ("δ", f"{report.delta:g}"),
        ("protected", relation.in_words),
        ("relation", neighbours),
        ("date", report.date or "not recorded"),
        ("versions", ", ".join([f"skdp {report.skdp_version}", *report.versions])),
    ]
    risk = [
        (f"1 in {n}", f"{in_100(report.tpr_at_fpr(1 / n))} in 100", f"1 in {n}")
        for n in (1000, 100, 10)
        if report.valid
    ]
    conditions = [
        ("read from the data", read),
        *(("assumed", line) for line in report.assumptions),
        ("tuning", report.tuning),
        ("accountant", report.accountant),
    ]
    settings = (line.partition(": ") for line in report.settings)
    declared = [(name, given or "nothing") for name, _, given in settings]
    found = [
        Section("Statement", statement),
        Section("Not accounted", _lines(report.unaccounted)),
        Section("What an attacker finds", risk, _COLUMNS[relation.null_record]),
        Section("What was released", _lines(report.sampling.split("; then "))),
        Section("What was declared", declared),
        Section("What it depends on", conditions),
        Section("What is not covered", _lines(line.format(unit=unit) for line in _NOT_COVERED)),
    ]
    return [section for section in found if section.rows]


def _lines(texts: Iterable[str]) -> list[tuple[str, ...]]:
    return [(text,) for text in texts]


def markdown(report: PrivacyReport, title: str, level: int) -> str:
    """Return the page in Markdown, its title a heading of this level."""
    blocks = [f"{'#' * level} {_escaped(title)}", f"**{_escaped(first_sentence(report))}**"]
    for heading, rows, columns in sections(report):
        blocks.append(f"{'#' * (level + 1)} {heading}")
        cells = [[_escaped(cell) for cell in row] for row in rows]
        if len(rows[0]) == 1:
            blocks.append("\n".join(f"- {line}" for (line,) in cells))
        else:
            head = columns or [""] * len(rows[0])
            lines = [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *cells)]
            blocks.append("\n".join(lines))
    return "\n\n".join(blocks) + "\n"


def _escaped(text: str) -> str:
    """Text that Markdown shows as it is, on one line."""
    text = re.sub(r"([\\`*\[\]<>|&#$~]|(?<![^\W_])_|_(?![^\W_]))", r"\\\1", text)
    return " ".join(text.split())


def page(report: PrivacyReport, title: str) -> str:
    """Return the page in HTML, without scripts and without anything to fetch."""
    parts = [f"<h1>{html.escape(title)}</h1>", f"<p><b>{html.escape(first_sentence(report))}</b>"]
    for heading, rows, columns in sections(report):
        parts.append(f"<h2>{heading}</h2>")
        cells = [[html.escape(cell) for cell in row] for row in rows]
        if len(rows[0]) == 1:
            parts.append("<ul>" + "".join(f"<li>{line}</li>" for (line,) in cells) + "</ul>")
            continue
        first = "td" if columns else "th"
        lines = ["".join(f"<th>{name}</th>" for name in columns)] if columns else []
        for name, *values in cells:
            others = "".join(f"<td>{value}</td>" for value in values)
            lines.append(f"<{first}>{name}</{first}>{others}")
        parts.append(f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>")
    head = f'<meta charset="utf-8"><title>{html.escape(title)}</title><style>{_STYLE}</style>'
    body = "\n".join(parts)
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>\n{body}\n</body></html>\n'


def headline(report: PrivacyReport) -> str:
    """The statement in a line."""
    if math.isinf(report.epsilon):
        return "not private"
    statement = f"(epsilon={report.epsilon:.4g}, delta={report.delta:g})"
    if report.seeded:
        return f"nominal {statement}, NOT a guarantee: the noise was seeded"
    if report.accountant == NOT_A_BOUND:
        return f"approximately {statement}, NOT a bound: a central-limit value"
    if report.unaccounted:
        return f"at least {statement}, NOT a guarantee: not everything is accounted"
    if not report.valid:
        return f"nominal {statement}, NOT a guarantee"
    return f"{statement}-DP"


def rows(report: PrivacyReport) -> list[tuple[str, str]]:
    """What it is conditional on, by name."""
    read = "nothing: every public fact was declared"
    if report.inferred_public_facts:
        facts = ", ".join(report.inferred_public_facts)
        read = f"{facts} (epsilon is conditional on these being public)"
    return [
        ("unit", check_relation(report.neighboring_relation).in_words),
        ("neighbouring relation", report.neighboring_relation),
        ("accountant", report.accountant),
        *([("risk", _IN_100.format(in_100(report.tpr_at_fpr())))] if report.valid else []),
        ("sampling", report.sampling),
        ("read from the data", read),
        *(("assumed", assumption) for assumption in report.assumptions),
        ("tuning", report.tuning),
        *(("NOT accounted", part) for part in report.unaccounted),
        ("skdp version", report.skdp_version),
    ]
