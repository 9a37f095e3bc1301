"""A parameter is documented once: by the class that has it as a field."""

from __future__ import annotations

import inspect
import re
from typing import TypeVar

_Class = TypeVar("_Class", bound=type)
_SECTIONS = "Parameters", "Attributes", "See Also", "Notes", "References"
_BODY = (
    r"^{}\n-+\n((?:(?!\n\n\S+[^\n]*\n---).)*)\n\n"  # to the next section: an example is the last
)
_ENTRY = re.compile(r"^\S.*? : .*\n(?:(?: .*)?\n)*", re.MULTILINE)


def documented(cls: _Class) -> _Class:
    """Add to a class's docstring what the docstrings of its bases say, section by section.

    Parameters by position come first, then those of the class, of its first base, and so on. An
    entry of the class, or of a base before another, takes the place of those of the same name.
    """
    bases = [base for base in cls.__mro__ if base.__module__.startswith("skdp.")]
    texts = [inspect.cleandoc(vars(base).get("__doc__") or "") + "\n\n" for base in bases]
    signature = inspect.signature(cls).parameters.values()
    by_position = [p.name for p in signature if p.kind is not p.KEYWORD_ONLY]
    own, sections = texts[0].rstrip(), ""
    for section in _SECTIONS:
        pattern = re.compile(_BODY.format(section), re.MULTILINE | re.DOTALL)
        found: dict[str, str] = {}
        for text in texts:
            said = _entries(section, body[1]) if (body := pattern.search(text)) else {}
            found |= {name: said[name] for name in said if name not in found}
        if section == "Parameters":
            found = {name: found[name] for name in by_position if name in found} | found
        if found:
            between = "\n" if section in ("Parameters", "Attributes") else "\n\n"
            sections += f"{section}\n{'-' * len(section)}\n"
            sections += between.join(dict.fromkeys(found.values())) + "\n\n"
        own = pattern.sub("", own)
    summary, example = own.split("Examples\n--------\n")
    cls.__doc__ = f"{summary}{sections}Examples\n--------\n{example}"
    return cls


def _entries(section: str, body: str) -> dict[str, str]:
    """What a section says, by the names that it says it of."""
    if section not in ("Parameters", "Attributes"):
        return {body: body}
    entries = [entry.rstrip() for entry in _ENTRY.findall(body + "\n")]
    return {name: e for e in entries for name in e.partition(" : ")[0].split(", ")}
