"""Names: such as Trilemma accepts, from such as it may not."""

from __future__ import annotations

import re
from collections.abc import Collection

_REFUSED = re.compile(r"[^A-Za-z0-9._:/@+-]+")
_NOT_FIRST = re.compile(r"^[^A-Za-z0-9]+")
_LONGEST = 200


def words(text: str) -> frozenset[str]:
    """The words of a text, as a set of names."""
    return frozenset(text.split())


def fitting(name: str, fallback: str = "model") -> str:
    """`name` as a backend, model or alias may be called: unchanged where it fits (gateway/config/schema.py)."""
    found = _NOT_FIRST.sub("", _REFUSED.sub("-", name))
    return (found if found == name else re.sub("--+", "-", found).strip("-"))[:_LONGEST] or fallback


def unique(name: str, taken: Collection[str], longest: int = _LONGEST) -> str:
    """`name`, with -2, -3, ... where it is taken; at most `longest` characters."""
    name, count = name[:longest], 1
    found = name
    while found in taken:
        count += 1
        ending = f"-{count}"
        found = name[: longest - len(ending)] + ending
    return found
