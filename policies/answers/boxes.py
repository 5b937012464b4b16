r"""What stands in `\boxed{..}` or `\fbox{..}`, braces balanced, escaped ones aside. One pass over the text."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_TOKEN: Final = re.compile(r"\\(?:boxed|fbox)(?:[ \t]{0,4}(?P<open>\{)|[ \t]{1,4}(?P<bare>[^\s{}$\\.,;]{1,40}))|\\[\s\S]|[{}]")


class Box(NamedTuple):
    """content: what is in it. end: where it ends in the text."""

    content: str
    end: int


class Boxes(NamedTuple):
    """complete: those that are closed and not empty, in the order in which they close. unclosed: one is not closed."""

    complete: tuple[Box, ...]
    unclosed: bool


def boxes(text: str) -> Boxes:
    """All boxes of a text."""
    found: list[Box] = []
    open_at: list[int] = []  # where the content begins; -1: a brace that is none of a box
    for token in _TOKEN.finditer(text):
        mark = token[0]
        if token["open"] is not None:
            open_at.append(token.end())
        elif token["bare"] is not None:
            found.append(Box(token["bare"], token.end()))
        elif mark == "{":
            open_at.append(-1)
        elif mark == "}" and open_at:
            start = open_at.pop()
            if start >= 0 and (content := text[start : token.start()].strip()):
                found.append(Box(content, token.end()))
    return Boxes(tuple(found), any(start >= 0 for start in open_at))
