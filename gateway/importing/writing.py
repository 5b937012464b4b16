"""Plain data as YAML that people read: block style outside, flow style where it fits on a line, comments above keys.

    write(data, comments) -> text        comments: path of keys -> lines

What comes in goes out as it is: text that YAML or Trilemma would read as anything else stands in quotes, and `${` in it
is written `$${`, unless it is a Reference.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from gateway.config.problems import Loc
from gateway.config.tree import resolve

_WIDTH = 120
_PLAIN = re.compile(r"[A-Za-z0-9_/][A-Za-z0-9_./@+-]*")
_PLAIN_IN_BLOCK = re.compile(r"[A-Za-z0-9_/][A-Za-z0-9_./@+-]*(:[A-Za-z0-9_./@+-]+)*")


class Reference(str):
    """`${NAME}`: text that means the environment."""

    __slots__ = ()


def write(data: Mapping[str, Any], comments: Mapping[Loc, list[str]]) -> str:
    """The document: sections apart from each other by an empty line."""
    lines: list[str] = []
    for key, value in data.items():
        if lines:
            lines.append("")
        lines += _pair(key, value, (key,), comments)
    return "".join(f"{line}\n" for line in lines)


def _pair(key: str, value: Any, loc: Loc, comments: Mapping[Loc, list[str]]) -> Iterator[str]:
    indent = "  " * (len(loc) - 1)
    yield from (f"{indent}# {_one_line(comment)}" for comment in comments.get(loc, ()))
    if not isinstance(value, (Mapping, list)):
        yield f"{indent}{_key(key)}: {_scalar(value, _PLAIN_IN_BLOCK)}"
    elif not value or (len(loc) > (2 if isinstance(value, Mapping) else 1) and len(f"{indent}{_key(key)}: {_flow(value)}") <= _WIDTH):
        yield f"{indent}{_key(key)}: {_flow(value)}"
    elif isinstance(value, Mapping):
        yield f"{indent}{_key(key)}:"
        for name, each in value.items():
            yield from _pair(name, each, (*loc, name), comments)
    else:
        yield f"{indent}{_key(key)}:"
        for index, each in enumerate(value):
            yield from (f"{indent}  # {_one_line(comment)}" for comment in comments.get((*loc, index), ()))
            yield f"{indent}  - {_flow(each)}"


def _flow(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(key)}: {_flow(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_flow(each) for each in value) + "]"
    return f'"{value}"' if isinstance(value, Reference) else _scalar(value, _PLAIN)


def _key(name: str) -> str:
    """References are answered in values only, so `${` means nothing here."""
    return name if _PLAIN.fullmatch(name) and resolve(name) == name else _quoted(name)


def _scalar(value: Any, plain: re.Pattern[str]) -> str:
    if isinstance(value, Reference):
        return str(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return _number(value)
    written = value.replace("${", "$${")
    return written if plain.fullmatch(written) and resolve(written) == written else _quoted(written)


def _number(value: float) -> str:
    """Without an exponent, and without .0."""
    written = format(Decimal(repr(value)), "f")
    return written.rstrip("0").rstrip(".") if "." in written else written


def _quoted(text: str) -> str:
    return '"' + "".join(_escaped(letter) for letter in text) + '"'


def _escaped(letter: str) -> str:
    if letter in '"\\':
        return "\\" + letter
    return letter if letter.isprintable() else f"\\U{ord(letter):08x}"


def _one_line(comment: str) -> str:
    return "".join(letter if letter.isprintable() else " " for letter in comment)
