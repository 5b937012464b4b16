"""Changing one value in a configuration's text: everything else, comments and references included, stays as it is written.

    edited(text, ("policies", "learn"), {"type": "thompson"})       sets it; what is on the way to it and not there yet is made
    edited(text, ("policies", "learn"), REMOVED)                    takes it out

What is written is JSON's kind of YAML, a line for each property where the text around is laid out in lines.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from gateway.config.tree import LOADER, MalformedError, compose, plain, resolve

REMOVED: Final = object()
"""Instead of a value: there shall be none."""

_WORD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


class NotEditable(Exception):
    """The text is written in such a way that this change would change more: it has to be made by hand."""


@dataclass(slots=True)
class _Spot:
    """A node as it stands in the text. start, end: offsets, the end without what follows it. flow: it is in { } or [ ]. key: where its key
    starts. children: of a mapping, by key, as it is written there."""

    start: int
    end: int
    flow: bool
    column: int
    key: int = -1
    is_mapping: bool = False
    children: dict[str, _Spot] = field(default_factory=dict)


def edited(text: str, loc: Sequence[str], value: Any) -> str:
    """The text with this value in that place. Raises NotEditable, and MalformedError where the text is no YAML."""
    before = plain(compose(text)[0])
    wished = _with(before, loc, value)
    if wished == before:
        return text
    changed = _changed(text, _spots(text), list(loc), value)
    try:
        found = plain(compose(changed)[0])
    except MalformedError as error:
        raise NotEditable(str(error)) from None
    if found != wished:
        raise NotEditable("it is written with anchors or merged keys, so that this would change more than was asked for")
    return changed


def _changed(text: str, spot: _Spot, loc: list[str], value: Any) -> str:
    while loc and spot.is_mapping and loc[0] in spot.children:
        parent, name = spot, loc.pop(0)
        spot = spot.children[name]
        if not loc:
            return _without(text, parent, name) if value is REMOVED else _replaced(text, parent, spot, value)
    if not spot.is_mapping or value is REMOVED:
        raise NotEditable("there is no such place in it")
    for name in reversed(loc[1:]):
        value = {name: value}
    return _added(text, spot, loc[0], value)


def _replaced(text: str, parent: _Spot, spot: _Spot, value: Any) -> str:
    if parent.flow or spot.flow or not isinstance(value, dict) or not value or not spot.is_mapping:
        return text[: spot.start] + json.dumps(value, ensure_ascii=False) + text[spot.end :]
    return text[: spot.start] + _lines(value, spot.column).lstrip() + text[spot.end :]


def _added(text: str, spot: _Spot, name: str, value: Any) -> str:
    key = name if _WORD.fullmatch(name) and not spot.flow and resolve(name) == name else json.dumps(name, ensure_ascii=False)
    if spot.flow:
        rest = ", " if spot.children else ""
        return f"{text[: spot.start + 1]}{key}: {json.dumps(value, ensure_ascii=False)}{rest}{text[spot.start + 1 :]}"
    at = _line_end(text, spot.end)
    indent = " " * spot.column
    written = f"\n{_lines(value, spot.column + 2)}" if isinstance(value, dict) and value else f" {json.dumps(value, ensure_ascii=False)}"
    return f"{text[:at]}\n{indent}{key}:{written}{text[at:]}"


def _without(text: str, parent: _Spot, name: str) -> str:
    if len(parent.children) == 1:
        # In lines, a mapping without any entry cannot be written.
        return text[: parent.start] + "{}" + text[parent.end :]
    spot = parent.children[name]
    if not parent.flow:
        start = text.rfind("\n", 0, spot.key) + 1
        if text[start : spot.key].strip():
            raise NotEditable("it does not stand in lines of its own")
        return text[:start] + text[_line_end(text, spot.end) + 1 :]
    names = list(parent.children)
    at = names.index(name)
    if at + 1 < len(names):
        return text[: spot.key] + text[parent.children[names[at + 1]].key :]
    return text[: parent.children[names[at - 1]].end] + text[spot.end :]


def _lines(value: dict[str, Any], column: int) -> str:
    lines = []
    for name, each in value.items():
        key = name if _WORD.fullmatch(name) and resolve(name) == name else json.dumps(name, ensure_ascii=False)
        if isinstance(each, dict) and each:
            lines.append(f"{' ' * column}{key}:\n{_lines(each, column + 2)}")
        else:
            lines.append(f"{' ' * column}{key}: {json.dumps(each, ensure_ascii=False)}")
    return "\n".join(lines)


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end


def _spots(text: str) -> _Spot:
    """The outermost mapping of the text."""
    events = iter(yaml.parse(text, Loader=LOADER))
    for event in events:
        if isinstance(event, yaml.MappingStartEvent):
            return _mapping(events, event)
    raise NotEditable("it holds no mapping")


def _mapping(events: Iterator[yaml.Event], begun: yaml.MappingStartEvent) -> _Spot:
    assert begun.start_mark is not None and begun.end_mark is not None
    spot = _Spot(begun.start_mark.index, begun.end_mark.index, bool(begun.flow_style), begun.start_mark.column, is_mapping=True)
    while not isinstance(event := next(events), yaml.MappingEndEvent):
        key = _node(events, event)
        child = _node(events, next(events))
        child.key = key.start
        spot.end = max(spot.end, child.end)
        if isinstance(event, yaml.ScalarEvent):
            spot.children.setdefault(event.value, child)
    if spot.flow and event.end_mark is not None:
        spot.end = event.end_mark.index
    return spot


def _node(events: Iterator[yaml.Event], event: yaml.Event) -> _Spot:
    if isinstance(event, yaml.MappingStartEvent):
        return _mapping(events, event)
    assert event.start_mark is not None and event.end_mark is not None
    flow = bool(getattr(event, "flow_style", False))
    spot = _Spot(event.start_mark.index, event.end_mark.index, flow, event.start_mark.column)
    if isinstance(event, yaml.SequenceStartEvent):
        while not isinstance(inner := next(events), yaml.SequenceEndEvent):
            spot.end = max(spot.end, _node(events, inner).end)
        if spot.flow and inner.end_mark is not None:
            spot.end = inner.end_mark.index
    return spot


def _with(data: Any, loc: Sequence[str], value: Any) -> Any:
    if not loc:
        return value
    if not isinstance(data, dict):
        raise NotEditable("there is no such place in it")
    name, *rest = loc
    if value is REMOVED and (name not in data or not rest):
        return {each: kept for each, kept in data.items() if each != name}
    return data | {name: _with(data.get(name, {}), rest, value)}
