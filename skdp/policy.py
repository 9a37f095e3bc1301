"""A policy for data sets in a TOML file: a gate for CI jobs, and a ceiling for ledgers.

    [patients]                                  # a data set, by a name of yours
    epsilon = 3.0                               # ceiling on everything released about it, together,
    delta = 1e-6                                # at this δ
    unit = "group"                              # what every statement must protect
    relations = ["zero_out_group"]              # neighbours that statements may be about
    may_not_be_inferred = ["classes"]           # facts that must be declared; ["*"]: all
    min_version = "0.2.0"                       # of the skdp that wrote a report or an entry
    seeded = "refused"                          # the only value: a seeded fit has no guarantee
    within = 0.05                               # share by which a proved ε may exceed the stated

Only the ceiling is required. `skdp-verify --policy policy.toml --data patients report.json ...
study.ledger` proves ε of all of these reports and ledgers together (`skdp.verify`), and says why
where it is too much; `PrivacyLedger(policy="policy.toml", data="patients")` refuses before a fit.
What is in a ledger is not to be given again as a report: it would count twice.

This file needs `skdp.verify` and Python's standard library.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tomllib
from dataclasses import dataclass, fields, replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

try:
    from skdp import verify
except ImportError:  # copied
    import verify  # type: ignore

_LINE = {"label": str, "neighboring_relation": str, "event": dict}  # of a ledger
_KNOWN = _LINE | {"nominal": bool, "inferred": list, "run": str, "skdp_version": str}


@dataclass(frozen=True)
class Policy:
    """What may be released about one data set.

    Parameters
    ----------
    epsilon, delta : float
        Ceiling on all releases together.
    unit : {"row", "group"}, default="row"
        What every statement must protect.
    relations : tuple of str, default=()
        Neighbouring relations that are allowed; none names all of the unit.
    may_not_be_inferred : tuple of str, default=()
        Facts that may not be read from the data; ``"*"`` is any.
    min_version : str, default="0"
        Least version of skdp.
    seeded : {"refused"}, default="refused"
        A seeded fit has no guarantee; nothing allows it.
    within : float, default=1e-9
        By which share, at most 0.2, the ε that is proved of a report may exceed the ε it states.

    Examples
    --------
    >>> from skdp.policy import Policy
    >>> Policy(epsilon=3.0, delta=1e-6).objections("zero_out", ["classes"], "0.2.0")
    []
    >>> Policy(epsilon=3.0, delta=1e-6, unit="group").objections("zero_out", [], "0.2.0")
    ["zero_out is not among the relations allowed: those of the unit 'group'"]
    """

    epsilon: float
    delta: float
    unit: str = "row"
    relations: tuple[str, ...] = ()
    may_not_be_inferred: tuple[str, ...] = ()
    min_version: str = "0"
    seeded: str = "refused"
    within: float = 1e-9

    def __post_init__(self) -> None:
        for name in ("epsilon", "delta", "within"):
            try:
                verify.number(vars(self), name)
            except ValueError as error:
                raise ValueError(f"policy: {error}") from None
        if self.unit not in ("row", "group") or self.seeded != "refused":
            what = f"unit={self.unit!r}" if self.seeded == "refused" else f"seeded={self.seeded!r}"
            raise ValueError(f"policy: {what}; unit is 'row' or 'group', seeded is 'refused'")
        for name in ("relations", "may_not_be_inferred"):
            value = getattr(self, name)
            if not isinstance(value, list | tuple) or not all(isinstance(v, str) for v in value):
                raise ValueError(f"policy: {name}={value!r} is not a list of names")
            object.__setattr__(self, name, tuple(value))
        for relation in self.relations:
            known = relation.removesuffix("_group") in verify.RELATIONS
            if not known or _unit(relation) != self.unit:
                what = f"{relation!r} is not a relation of unit {self.unit!r}"
                raise ValueError(f"policy: relations: {what}")
        _version(self.min_version)

    def objections(
        self, relation: str, inferred: Any = (), version: str | None = None, seeded: bool = False
    ) -> list[str]:
        """Why a statement of this kind is not allowed, whatever its ε; none if it is.

        A version of None, which is not known, is before any other.
        """
        found, allowed = [], f"those of the unit {self.unit!r}"
        if _unit(relation) != self.unit or (self.relations and relation not in self.relations):
            allowed = ", ".join(self.relations) or allowed
            found.append(f"{relation} is not among the relations allowed: {allowed}")
        never = self.may_not_be_inferred
        facts = [fact for fact in inferred if "*" in never or fact in never]
        if facts:
            found.append(f"read from the data, which the policy forbids: {', '.join(facts)}")
        if _version("0" if version is None else version) < _version(self.min_version):
            written = "an unknown version of skdp" if version is None else f"skdp {version}"
            found.append(f"written by {written}, before {self.min_version}")
        if seeded:
            found.append("seeded: its noise can be computed again")
        return found


def _unit(relation: str) -> str:
    return "group" if relation.endswith("_group") else "row"


def _version(text: Any) -> tuple[int, ...]:
    """Numbers of a version; "0.2.0.dev0" counts as 0.2.0, which it becomes."""
    numbers = re.match(r"v?(\d+)(?:\.(\d+))?(?:\.(\d+))?", str(text))
    if not isinstance(text, str) or not numbers:
        raise ValueError(f"{text!r:.40} is not a version")
    return tuple(int(number or 0) for number in numbers.groups())


def read_policies(path: str | os.PathLike[str]) -> dict[str, Policy]:
    """Policies of a TOML file, by data set: one for each table.

    A ValueError says if the file is not TOML, has a key that is not known, or a value out of range.
    """
    tables = tomllib.loads(Path(path).read_text("utf-8"))
    known, found = {field.name for field in fields(Policy)}, {}
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise ValueError(f"policy: {name!r} stands outside of the table of a data set")
        if unknown := set(table) - known:
            raise ValueError(f"policy of {name!r}: unknown keys {', '.join(sorted(unknown))}")
        if missing := {"epsilon", "delta"} - set(table):
            raise ValueError(f"policy of {name!r}: {' and '.join(sorted(missing))} missing")
        found[name] = Policy(**table)
    if not found:
        raise ValueError("policy: no data set is named")
    return found


def policy_for(path: str | os.PathLike[str], data: str | None) -> Policy:
    """Policy of one data set of a file; the only one, if none is named."""
    policies = read_policies(path)
    if data is None and len(policies) == 1:
        return next(iter(policies.values()))
    if data not in policies:
        names = ", ".join(map(repr, policies))
        where = f"in {Path(path).name!r}, which is about {names}"
        raise ValueError(f"data={data!r} has no policy {where}")
    return policies[data]


def gate(policy: Policy, files: list[Path], within: float | None = None) -> tuple[list[str], str]:
    """Prove ε of all reports and ledgers of one data set together.

    ``within`` is as in a policy; the smaller of both counts. Returns the reasons to refuse, none if
    all is allowed, and what was proved of all together. A ValueError says if a file is neither a
    report (``.json``) nor a ledger, which are told apart by what is in them, or cannot be checked.
    """
    if within is not None:
        policy = min(policy, replace(policy, within=within), key=lambda policy: policy.within)
    reasons: list[str] = []
    events, relations = [], {}
    for path in files:
        for label, relation, event, objections in _statements(policy, path):
            reasons += [f"{path.name}: {label}{why}" for why in objections]
            relations.setdefault(relation, path.name)
            events.append(event)
    if len(relations) > 1:
        named = ", ".join(relations)
        reasons.append(f"statements about different neighbours do not add up: {named}")
        return reasons, "nothing is proved of all together"
    whole = {"type": "ComposedDpEvent", "events": events}
    relation = next(iter(relations), "zero_out")
    proved = verify.epsilon_of(whole, relation, Fraction(policy.delta))
    if proved > Decimal(policy.epsilon):
        above = f"above the ceiling {policy.epsilon:g}"
        reasons.append(f"all together: ε ≤ {proved:.7g} is proved, {above}")
    said = f"ε ≤ {proved:.7g} at δ = {policy.delta:g} is proved of {len(events)} releases together"
    return reasons, said


def _statements(policy: Policy, path: Path) -> Any:
    """(label, relation, event, objections) of the report, or of each line of the ledger."""
    text = verify.read_file(path)
    if not text.strip():
        raise ValueError(f"{path.name} is empty")
    if text.startswith('{"label":'):
        *lines, tail = text.split("\n")
        for number, line in enumerate([*lines, tail] if tail else lines, 1):
            entry = verify.read_text(line)
            types = {k: type(v) for k, v in entry.items()} if isinstance(entry, dict) else {}
            is_entry = _LINE.items() <= types.items() <= _KNOWN.items()
            if not is_entry or {str} != {str, *map(type, entry.get("inferred", []))}:
                raise ValueError(f"{path.name}: line {number} is not an entry of a ledger")
            relation = entry["neighboring_relation"]
            if relation.removesuffix("_group") not in verify.RELATIONS:
                raise ValueError(f"{path.name}: line {number} has no relation that is known")
            inferred, version = entry.get("inferred", []), entry.get("skdp_version")
            why = policy.objections(relation, inferred, version, entry.get("nominal", False))
            yield f"line {number}, ", relation, entry["event"], why
        return
    report = verify.read_text(text)
    holds, _, why = verify.verdict(report, policy.within)
    relation, version = report["neighboring_relation"], report["skdp_version"]
    found = policy.objections(relation, report["inferred_public_facts"], version, report["seeded"])
    yield "", relation, report["event"], found if holds else [f"not proved: {why}", *found]


def main(arguments: list[str] | None = None) -> int:
    """Run ``skdp-verify``; return its exit status: 0 yes, 1 no, 2 cannot check."""
    what = "Prove the ε of privacy reports from their events, and hold them to a policy."
    status = f"Exit status: 0 yes, 1 no, 2 cannot check. {verify.CAVEAT}"
    parser = argparse.ArgumentParser("skdp-verify", description=what, epilog=status)
    parser.add_argument("files", nargs="+", type=Path, help="reports; with a policy, ledgers too")
    no_more = "accept a report if the proved ε is above its ε by no more than this (at most 20)"
    parser.add_argument("--within", type=float, metavar="PERCENT", help=no_more)
    parser.add_argument("--policy", type=Path, help="a TOML file, one table for each data set")
    parser.add_argument("--data", help="the data set that the files are about")
    options = parser.parse_args(arguments)
    within = None if options.within is None else options.within / 100
    if options.policy is None:
        return verify.main(list(map(str, options.files)), 1e-9 if within is None else within)
    try:
        policy = policy_for(options.policy, options.data)
        reasons, said = gate(policy, options.files, within)
    except Exception as error:  # whatever it stumbles on, the answer is not yes
        print(f"cannot check: {error or type(error).__name__}")
        return 2
    print(f"{'no' if reasons else 'yes'}: {said}, the ceiling is {policy.epsilon:g}")
    for reason in reasons:
        print(f"  {reason}")
    print(verify.CAVEAT)
    return 1 if reasons else 0


if __name__ == "__main__":
    sys.exit(main())
