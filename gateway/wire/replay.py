"""A finished chat completion as the stream that it would have been: what a strategy gives a caller who asked for one.

role, once -> content in pieces -> each tool call, whole -> one finish_reason per choice -> usage, where asked for -> [DONE]
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import orjson

_PIECE: Final = 200
"""Characters of a piece, about: the end of a word is waited for."""

_PIECES: Final = re.compile(rf".{{1,{_PIECE}}}(?:\s+|\Z)|.{{1,{_PIECE}}}", re.DOTALL)
# What else an engine tells of the whole answer stands in its last chunk.
_OF_EVERY_CHUNK: Final = ("id", "created", "model", "system_fingerprint", "service_tier")
# Of a message, what a delta spells otherwise or in pieces.
_OWN: Final = frozenset(("role", "content", "tool_calls"))


def events(completion: Mapping[str, Any], usage: Mapping[str, Any] | None = None) -> Iterator[bytes]:
    """The events of a `chat.completion`, as engines send them. usage: told in a chunk of its own; None: it is not.

    Whatever a message holds goes on: content, tool calls with their ids, refusal, thinking. Where there are log-probabilities, the content
    comes in one piece, with all of them.
    """
    head = {name: completion[name] for name in _OF_EVERY_CHUNK if name in completion} | {"object": "chat.completion.chunk"}
    rest = {name: value for name, value in completion.items() if name not in ("choices", "usage", *head)}

    def event(choices: Sequence[Mapping[str, Any]], more: Mapping[str, Any] | None = None) -> bytes:
        return b"data: %b\n\n" % orjson.dumps({**head, "choices": choices, **(more or {})})

    choices = completion["choices"]
    for choice in choices:
        index = choice.get("index", 0)
        for delta, logprobs in _deltas(choice):
            yield event([{"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": None}])
        last = {name: value for name, value in choice.items() if name not in ("index", "message", "logprobs")}
        yield event([{"index": index, "delta": {}, "logprobs": None, **last}], rest if choice is choices[-1] else None)
    if usage is not None:
        yield event([], {"usage": usage})
    yield b"data: [DONE]\n\n"


def _deltas(choice: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], Any]]:
    message = choice.get("message") or {}
    content, calls, logprobs = message.get("content"), message.get("tool_calls"), choice.get("logprobs")
    others = {name: value for name, value in message.items() if name not in _OWN and value is not None}
    yield {"role": "assistant", "content": "" if content is not None else None, **others}, None
    if content:
        # Log-probabilities are of tokens, and where those end in the text is not told: they go with all of it.
        pieces = [content] if logprobs is not None else _PIECES.findall(content)
        for piece in pieces:
            yield {"content": piece}, logprobs
    for number, call in enumerate(calls or ()):
        yield {"tool_calls": [{"index": number, **call}]}, None
