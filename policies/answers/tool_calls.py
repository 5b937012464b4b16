"""When two messages call the same tools: the name and the JSON-equal arguments of each call, in their order. Ids do not count.

    {"a": 1, "b": "x"}   is the same as   {"b":"x","a":1.0}; not as {"a": "1", "b": "x"}
    no arguments, ""     are the same as  {}
    no JSON              the same as this very text only

The calls of one message are a list: their order counts, for what they do may depend on it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from policies.answers.canonical_json import Unreadable, canonical, canonical_value
from policies.answers.equivalence import Key, digested


class _Call(NamedTuple):
    name: str
    arguments: str


def calls_key(calls: Iterable[tuple[str, str]]) -> Key | None:
    """The key of calls, each a name and the JSON text of its arguments; None: there are none."""
    return _key([_Call(name, _arguments(arguments)) for name, arguments in calls])


def message_key(message: Mapping[str, Any]) -> Key | None:
    """The same of an assistant message, decoded: `tool_calls`, functions and custom tools, or the older `function_call`. What is none of
    these counts as it is. None: it calls nothing."""
    called = message.get("tool_calls")
    if isinstance(called, list | tuple) and called:
        return _key([_call(each) for each in called])
    older = message.get("function_call")
    return _key([_function(older)]) if isinstance(older, Mapping) and older else None


def _key(calls: list[_Call]) -> Key | None:
    if not calls:
        return None
    return Key("tool_calls", digested(" ".join(f"{json.dumps(call.name)}({call.arguments})" for call in calls)))


def _call(call: Any) -> _Call:
    if isinstance(call, Mapping):
        custom = call.get("custom")
        if isinstance(custom, Mapping):
            return _Call(_name(custom.get("name")), "text " + _text(custom.get("input")))
        function = call.get("function")
        if isinstance(function, Mapping):
            return _function(function)
    return _Call("", "other " + _text(call))


def _function(function: Mapping[str, Any]) -> _Call:
    return _Call(_name(function.get("name")), _arguments(function.get("arguments")))


def _arguments(arguments: Any) -> str:
    """Canonical, of a JSON text or of what some engines send decoded."""
    if arguments is None or (isinstance(arguments, str) and not arguments.strip()):
        return "{}"
    try:
        return canonical(arguments) if isinstance(arguments, str) else canonical_value(arguments)
    except Unreadable:
        return "no JSON " + _text(arguments)


def _name(value: Any) -> str:
    return value if isinstance(value, str) else repr(value)


def _text(value: Any) -> str:
    return json.dumps(value if isinstance(value, str) or value is None else repr(value))
