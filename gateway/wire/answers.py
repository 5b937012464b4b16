"""A relayed answer, read after the fact: the body of a chat or a completion, or its stream, as what each choice said.

    answer_of(data) -> (Said, ...)        None: it is no such answer

The time is linear in the bytes, however they are cut into events.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from gateway.wire.sse import DONE, events_data
from policies.values.answer import Said, ToolCall

_MOST_CHOICES: Final = 128
_AT_ONCE: Final = 64
_NOTHING: Final = (b"", b"null", b'""', b"[]", b"{}")


class _Function(msgspec.Struct, gc=False):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class _Call(msgspec.Struct, gc=False):
    index: int | None = None
    function: _Function | None = None
    custom: dict[str, Any] | None = None


class _Message(msgspec.Struct, gc=False):
    content: str | list[Any] | None = None
    reasoning_content: msgspec.Raw = msgspec.Raw()
    reasoning: msgspec.Raw = msgspec.Raw()
    refusal: str | None = None
    tool_calls: list[_Call] | None = None


class _Choice(msgspec.Struct, gc=False):
    index: int = 0
    message: _Message | None = None
    delta: _Message | None = None
    text: str | None = None
    finish_reason: str | None = None


class _Body(msgspec.Struct, gc=False):
    choices: list[_Choice] = []


_body = msgspec.json.Decoder(_Body).decode


@dataclass(slots=True)
class _Heard:
    """What has come of a choice."""

    texts: list[str] = field(default_factory=list)
    calls: dict[int, tuple[list[str], list[str]]] = field(default_factory=dict)
    finish: str | None = None
    thought: bool = False
    refused: bool = False

    def add(self, choice: _Choice) -> None:
        if choice.finish_reason is not None:
            self.finish = choice.finish_reason
        if choice.text:
            self.texts.append(choice.text)
        message = choice.message or choice.delta
        if message is None:
            return
        self.texts += [message.content] if isinstance(message.content, str) else _parts(message.content)
        self.thought |= bytes(message.reasoning_content) not in _NOTHING or bytes(message.reasoning) not in _NOTHING
        self.refused |= bool(message.refusal)
        for place, call in enumerate(message.tool_calls or ()):
            names, arguments = self.calls.setdefault(place if call.index is None else call.index, ([], []))
            name, argument = _named(call)
            names.append(name)
            arguments.append(argument)

    @property
    def said(self) -> Said:
        calls = tuple(ToolCall("".join(names), "".join(arguments)) for _, (names, arguments) in sorted(self.calls.items()))
        return Said("".join(self.texts), calls, self.finish, self.thought, self.refused)


def answer_of(data: bytes) -> tuple[Said, ...] | None:
    """What each choice said, in order. data: all of a body, JSON or events."""
    heard: dict[int, _Heard] = {}
    try:
        for count, part in enumerate((data,) if data.lstrip()[:1] == b"{" else events_data(data), 1):
            if count % _AT_ONCE == 0:
                time.sleep(0)  # requests are served meanwhile
            if part == DONE:
                continue
            for choice in _body(part).choices:
                if choice.index not in heard and len(heard) == _MOST_CHOICES:
                    return None
                heard.setdefault(choice.index, _Heard()).add(choice)
    except (msgspec.DecodeError, RecursionError):
        return None
    return tuple(heard[index].said for index in sorted(heard)) or None


def text_of(answer: Sequence[Said]) -> str:
    """The first choice as a text, its calls of tools in words, without its thoughts."""
    first = answer[0]
    calls = [f"{call.name}({call.arguments})" for call in first.tool_calls]
    return "\n".join(filter(None, (first.spoken.strip(), *calls)))


def _parts(content: list[Any] | None) -> list[str]:
    """Texts of a content that comes in parts."""
    return [text for part in content or () if isinstance(part, dict) and isinstance(text := part.get("text"), str)]


def _named(call: _Call) -> tuple[str, str]:
    """Name and arguments, as far as they stand in this piece."""
    if call.function is not None:
        arguments = call.function.arguments
        given = arguments if isinstance(arguments, str) else "" if arguments is None else msgspec.json.encode(arguments).decode()
        return call.function.name or "", given
    custom = call.custom or {}
    return _string(custom.get("name")), _string(custom.get("input"))


def _string(value: Any) -> str:
    return value if isinstance(value, str) else ""
