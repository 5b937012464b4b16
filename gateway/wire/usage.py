"""Token usage as backends report it, and what it costs.

Backends differ: usage null, empty, partial, numbers as strings, reasoning only in the total. What cannot be read counts as unknown, and
never as an error: accounting must not break an answer.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import orjson

_Raw = msgspec.Raw
_Tokens = Annotated[int, msgspec.Meta(ge=0, lt=10**15)]


class Usage(msgspec.Struct, frozen=True, gc=False):
    """Tokens of one call. `prompt` includes `cached`; `completion` includes reasoning."""

    prompt: int = 0
    cached: int = 0
    completion: int = 0


class Rates(msgspec.Struct, frozen=True, gc=False):
    """USD per million tokens."""

    input: float = 0.0
    cached_input: float = 0.0
    output: float = 0.0

    def cost(self, usage: Usage) -> float:
        """USD of a call: cached prompt tokens are paid once, at their own rate."""
        cached = min(usage.cached, usage.prompt)
        fresh = usage.prompt - cached
        return (fresh * self.input + cached * self.cached_input + usage.completion * self.output) / 1e6


def estimated(prompt_bytes: int, events: int, begun: Usage | None) -> Usage:
    """A guess at the tokens of a stream whose backend never told: an event is a token, and four bytes of the prompt are one.

    begun: what was told when it began.
    """
    if begun is not None:
        return Usage(prompt=begun.prompt, cached=begun.cached, completion=events)
    return Usage(prompt=-(-prompt_bytes // 4), completion=events)


# An array of nothing is shorter, however it is spaced.
_EMPTY = 64


class _Envelope(msgspec.Struct, gc=False):
    usage: _Raw = _Raw()
    error: _Raw = _Raw()
    choices: _Raw = _Raw()
    response: _Raw = _Raw()
    message: _Raw = _Raw()


_decode = msgspec.json.Decoder(_Envelope).decode


class Answered(msgspec.Struct, frozen=True, gc=False):
    """What the gateway reads of a JSON answer or of one event's data. begun: usage of a stream that only begins (Messages)."""

    usage: Usage | None = None
    begun: Usage | None = None
    is_error: bool = False
    is_summary: bool = False
    """It holds a usage object, readable or not, and nothing of an answer."""


def read_answer(data: bytes) -> Answered | None:
    """Reads usage and error of a JSON object without building the rest; None when it is not a JSON object."""
    try:
        envelope = _decode(data)
    except (msgspec.DecodeError, RecursionError):
        return None
    choices, usage = envelope.choices, bytes(envelope.usage)  # of the choices there may be much: they are not copied
    is_error = bool(envelope.error) and not choices and bytes(envelope.error)[:1] in (b"{", b'"')
    return Answered(
        usage=parse_usage(usage or _inner(envelope.response)),
        begun=None if usage or choices else parse_usage(_inner(envelope.message)),
        is_error=is_error,
        is_summary=usage[:1] == b"{" and not is_error and len(choices) < _EMPTY and bytes(choices).strip(b"[] \t\r\n") in (b"", b"null"),
    )


def _inner(of: _Raw) -> bytes:
    """The usage of the response or message that an event holds."""
    if bytes(of)[:1] != b"{":
        return b""
    try:
        return bytes(_decode(of).usage)
    except (msgspec.DecodeError, RecursionError):
        return b""


class _Details(msgspec.Struct, gc=False):
    cached_tokens: _Tokens | None = None


class _Plain(msgspec.Struct, gc=False):
    """A usage object as most are written. Any other is read with more care, which takes longer."""

    prompt_tokens: _Tokens
    completion_tokens: _Tokens
    total_tokens: _Tokens
    prompt_tokens_details: _Details | None = None
    input_tokens_details: _Raw = _Raw()
    cache_read_input_tokens: _Raw = _Raw()


_plain = msgspec.json.Decoder(_Plain).decode


def parse_usage(raw: bytes) -> Usage | None:
    """The usage object, or None when it holds no number that can be trusted."""
    if not raw:
        return None
    try:
        plain = _plain(raw)
    except (msgspec.DecodeError, RecursionError):
        return _parsed(raw)
    prompt, completion, details = plain.prompt_tokens, plain.completion_tokens, plain.prompt_tokens_details
    if plain.total_tokens > prompt + completion or plain.input_tokens_details or plain.cache_read_input_tokens:
        return _parsed(raw)
    return Usage(prompt, 0 if details is None else min(details.cached_tokens or 0, prompt), completion)


def _parsed(raw: bytes) -> Usage | None:
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(value, dict):
        return None
    prompt = _count(value, "prompt_tokens")
    completion = _count(value, "completion_tokens")
    if prompt is None:  # the Responses and Messages formats
        prompt = _count(value, "input_tokens")
        completion = _count(value, "output_tokens") if completion is None else completion
    total = _count(value, "total_tokens")
    if prompt is None and completion is None:
        return None
    # What the total holds beyond what is told: reasoning, or else the prompt.
    if prompt is None:
        prompt = max(0, (total or 0) - (completion or 0))
    completion = max(completion or 0, (total or 0) - prompt)
    details = value.get("prompt_tokens_details") or value.get("input_tokens_details")
    cached = _count(details, "cached_tokens") if isinstance(details, dict) else None
    if cached is None and (cached := _count(value, "cache_read_input_tokens")) is not None:
        prompt += cached + (_count(value, "cache_creation_input_tokens") or 0)  # Messages counts these beside its prompt
    return Usage(prompt=prompt, cached=min(cached or 0, prompt), completion=completion)


def _count(value: dict[str, Any], key: str) -> int | None:
    number = value.get(key)
    if isinstance(number, str) and number.isascii() and number.isdigit() and len(number) < 16:
        number = int(number)
    if isinstance(number, bool) or not isinstance(number, int | float) or not 0 <= number < 1e15:
        return None
    return int(number)
