"""A parameter is documented once: by the class, or the method, that has it first."""

from __future__ import annotations

import inspect
import re
from typing import Any, TypeVar

_Class = TypeVar("_Class", bound=type)
_ENTRIES = "Parameters", "Attributes"  # which are told apart by what they are of
_FIRST = "Returns", "Raises"  # which the first says that says anything
_OF_CLASSES = (*_ENTRIES, "See Also", "Notes", "References")
_OF_METHODS = ("Parameters", *_FIRST)
_BODY = (
    r"^{}\n-+\n((?:(?!\n\n\S+[^\n]*\n---).)*)\n\n"  # to the next section: an example is the last
)
_PRIVACY = re.compile(r"^\*\*Privacy\.\*\*.*?\n\n", re.MULTILINE | re.DOTALL)
_ENTRY = re.compile(r"^\S.*? : .*\n(?:(?: .*)?\n)*", re.MULTILINE)
_EXAMPLES = "Examples\n--------\n"


def documented(cls: _Class) -> _Class:
    """Add to the docstrings of a class and its methods what its bases say, section by section.

    Parameters by position come first, then those of the class, of its first base, and so on. An
    entry of the class, or of a base before another, takes the place of those of the same name. So
    does what they say of privacy.
    """
    bases = [base for base in cls.__mro__ if base.__module__.startswith("skdp.")]
    signature = inspect.signature(cls).parameters.values()
    first = [p.name for p in signature if p.kind is not p.KEYWORD_ONLY]
    cls.__doc__ = _merged([vars(base).get("__doc__") for base in bases], _OF_CLASSES, first)
    for name, method in vars(cls).items():
        if inspect.isfunction(method) and not name.startswith("_"):
            texts = [vars(base)[name].__doc__ for base in bases if name in vars(base)]
            taken = inspect.signature(method).parameters.values()
            names = [f"{'**' * (p.kind is p.VAR_KEYWORD)}{p.name}" for p in taken]
            method.__doc__ = _merged(texts, _OF_METHODS, names, others=False)
    return cls


def _merged(
    texts: list[Any], sections: tuple[str, ...], first: list[str], *, others: bool = True
) -> str:
    """Return the first of some docstrings, with what the next ones add to its sections."""
    texts = [inspect.cleandoc(text or "") + "\n\n" for text in texts]
    own, added = texts[0].rstrip() + "\n\n", ""
    for section in sections:
        pattern = re.compile(_BODY.format(section), re.MULTILINE | re.DOTALL)
        found: dict[str, str] = {}
        for text in texts:
            said = _entries(section, body[1]) if (body := pattern.search(text)) else {}
            found |= {name: said[name] for name in said if name not in found}
        if section == "Parameters":
            known = {name: found[name] for name in first if name in found}
            found = known | found if others else known
        if found:
            between = "\n" if section in _ENTRIES else "\n\n"
            added += f"{section}\n{'-' * len(section)}\n"
            added += between.join(dict.fromkeys(found.values())) + "\n\n"
        own = pattern.sub("", own)
    privacy = next((told[0] for text in texts if (told := _PRIVACY.search(text))), "")
    summary, *example = _PRIVACY.sub("", own).split(_EXAMPLES)
    return (summary + privacy + added + _EXAMPLES.join(["", *example])).rstrip()


def _entries(section: str, body: str) -> dict[str, str]:
    """What a section says, by the names that it says it of."""
    if section in _FIRST:
        return {section: body}
    if section not in _ENTRIES:
        return {body: body}
    entries = [entry.rstrip() for entry in _ENTRY.findall(body + "\n")]
    return {name: e for e in entries for name in e.partition(" : ")[0].split(", ")}
