"""JSON as text: spelt in every way that the grammar allows, and taken apart by a plain recursive descent, to hold splicing against."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

SPACE = b" \t\r\n"
spaces = st.text(" \t\r\n", max_size=2)


@dataclass(frozen=True)
class Pairs:
    """An object whose keys may repeat."""

    items: list[tuple[str, Any]]


@st.composite
def strings(draw: st.DrawFn, value: str) -> str:
    """A string literal, each character as itself or escaped."""
    plain = json.dumps(value, ensure_ascii=draw(st.booleans()))
    if value and draw(st.integers(0, 7)) == 0:
        at = draw(st.integers(0, len(value) - 1))
        code = ord(value[at])
        if code < 0x10000:
            digits = f"{code:04x}"
            escape = "\\u" + (digits.upper() if draw(st.booleans()) else digits)
            return json.dumps(value[:at])[:-1] + escape + json.dumps(value[at + 1 :])[1:]
    return plain


@st.composite
def spelt(draw: st.DrawFn, value: Any) -> str:
    """Any spelling of a value."""
    if isinstance(value, dict):
        value = Pairs(list(value.items()))
    if isinstance(value, Pairs):
        members = []
        for key, each in value.items:
            members.append(draw(strings(key)) + draw(spaces) + ":" + draw(spaces) + draw(spelt(each)))
        return "{" + ",".join(draw(spaces) + member + draw(spaces) for member in members) + draw(spaces) + "}"
    if isinstance(value, list):
        return "[" + ",".join(draw(spaces) + draw(spelt(each)) + draw(spaces) for each in value) + draw(spaces) + "]"
    return draw(strings(value)) if isinstance(value, str) else json.dumps(value)


def value_end(text: bytes, at: int) -> int:
    """Where the value that begins at `at` ends."""
    if text[at] in b"{[":
        close = b"}" if text[at] in b"{" else b"]"
        at = skipped(text, at + 1)
        while text[at : at + 1] != close:
            at = skipped(text, value_end(text, at))
            if text[at : at + 1] in (b":", b","):
                at = skipped(text, at + 1)
        return at + 1
    if text[at : at + 1] == b'"':
        at += 1
        while text[at : at + 1] != b'"':
            at += 2 if text[at : at + 1] == b"\\" else 1
        return at + 1
    while at < len(text) and text[at] not in SPACE + b",:]}":
        at += 1
    return at


def skipped(text: bytes, at: int) -> int:
    """Where the space at `at` ends."""
    while at < len(text) and text[at] in SPACE:
        at += 1
    return at


def top_members(text: bytes) -> list[tuple[str, int, int, int]]:
    """The members of the outermost object: key, and where key, value and the byte after the value stand."""
    found = []
    at = skipped(text, skipped(text, 0) + 1)
    while text[at : at + 1] == b'"':
        end = value_end(text, at)
        value = skipped(text, skipped(text, end) + 1)
        found.append((json.loads(text[at:end]), at, value, value_end(text, value)))
        at = skipped(text, found[-1][3])
        if text[at : at + 1] == b",":
            at = skipped(text, at + 1)
    return found
