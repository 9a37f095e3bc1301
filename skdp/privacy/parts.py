"""`PartDpEvent`: a release that reads one part of the rows, and what the records of a part pay.

Rows are split by a rule that does not look at them. A release that reads one part only is the same
on data sets that differ in a record of another part, whatever earlier releases it makes use of. So
of a list of releases a record pays for those that read its part and for those that read all rows;
the largest of these compositions holds for all (docs/privacy.md §9; McSherry, *Privacy Integrated
Queries*, SIGMOD 2009; Smith et al., *Making the Most of Parallel Composition in Differential
Privacy*, PoPETs 2022). With several splits a record is in a part of each, so each choice of parts
is looked at. Of one whose parts are read alone, every record could be in that part.

>>> from dp_accounting.dp_event import ComposedDpEvent, GaussianDpEvent
>>> from skdp.privacy import epsilon_of_event
>>> from skdp.privacy.events import PartDpEvent
>>> fit = PartDpEvent(GaussianDpEvent(1.0), "7f3a", "train")
>>> report = PartDpEvent(GaussianDpEvent(1.5), "7f3a", "test")
>>> round(epsilon_of_event(ComposedDpEvent([fit, report]), delta=1e-5), 6)  # as the fit alone
4.377178
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import product
from types import MappingProxyType

import attrs
from attrs.validators import instance_of
from dp_accounting.dp_event import ComposedDpEvent, DpEvent, SelfComposedDpEvent

from skdp.fitting.validate import integer
from skdp.relations import Relation

MOST_CHOICES = 256  # of parts, one of each split; beyond, all releases are paid for by all


@attrs.frozen
class PartDpEvent(DpEvent):
    """A release that reads only the records of one ``part`` of a ``split``, both by name."""

    event: DpEvent = attrs.field(validator=instance_of(DpEvent))
    split: str = attrs.field(validator=instance_of(str))
    part: str = attrs.field(validator=instance_of(str))


def paid_together(event: DpEvent, neighboring_relation: str = "zero_out") -> list[DpEvent]:
    """What records pay for, one event for each kind of record; the event itself if all pay for all.

    The composition with the largest cost bounds the whole. Parts that are inside of others than
    compositions count as all rows. Under ``"replace_one_group"`` all pay for all: the person who
    comes may be of another part than the one who goes.
    """
    if neighboring_relation == Relation.REPLACE_ONE_GROUP:
        return [event]
    found = list(releases(event))
    parts: dict[str, list[str]] = {}
    for _, of in found:
        for split, part in of.items():
            if part not in parts.setdefault(split, []):
                parts[split].append(part)
    if not 1 < math.prod(map(len, parts.values())) <= MOST_CHOICES:
        return [event]
    together = []
    for choice in product(*parts.values()):
        record = dict(zip(parts, choice, strict=True))
        paid = [release for release, of in found if of.items() <= record.items()]
        together.append(ComposedDpEvent(paid))
    return together


def common_part(event: DpEvent, parts: Mapping[str, str]) -> str:
    """Name of a part that was read and of which rows of these parts are too; empty if none is."""
    for _, of in releases(event):
        common = of.keys() & parts.keys()
        if common and all(of[split] == parts[split] for split in common):
            return " and ".join(f"part {parts[split]!r} of {split}" for split in sorted(common))
    return ""


def releases(
    event: DpEvent, of: Mapping[str, str] = MappingProxyType({}), count: int = 1
) -> Iterator[tuple[DpEvent, dict[str, str]]]:
    """Releases of a composition, each with the part that it reads of each split."""
    if isinstance(event, ComposedDpEvent):
        for part in event.events:
            yield from releases(part, of, count)
    elif isinstance(event, PartDpEvent):
        # Two parts of one split have no record in common; the event that says so is in error, and
        # counts for the outer part.
        yield from releases(event.event, {event.split: event.part} | dict(of), count)
    elif isinstance(event, SelfComposedDpEvent):
        yield from releases(event.event, of, count * integer(0, count=event.count))
    else:
        yield (event if count == 1 else SelfComposedDpEvent(event, count)), dict(of)
