"""Reading a request body once, and changing it by splicing: everything else goes on byte for byte.

A relayed body changes in three places only: `trilemma` is removed, an alias's `model` is replaced, and
`stream_options.include_usage` is set where it is absent.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec
import orjson

from gateway.wire.errors import ApiError

_MAX_INT = 2**31 - 1


class StreamOptions(msgspec.Struct, frozen=True, gc=False):
    """`stream_options`; fields not named here are the backend's business."""

    include_usage: bool | None = None


class Fields(msgspec.Struct, frozen=True, gc=False):
    """The few fields of a body that the gateway reads."""

    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: int | float | None = None
    max_tokens: int | float | None = None
    max_completion_tokens: int | float | None = None
    trilemma: msgspec.Raw = msgspec.Raw()
    messages: msgspec.Raw = msgspec.Raw()
    prompt: msgspec.Raw = msgspec.Raw()
    cache_salt: msgspec.Raw = msgspec.Raw()
    tools: msgspec.Raw = msgspec.Raw()
    response_format: msgspec.Raw = msgspec.Raw()
    input: msgspec.Raw = msgspec.Raw()
    system: msgspec.Raw = msgspec.Raw()
    instructions: msgspec.Raw = msgspec.Raw()
    max_output_tokens: msgspec.Raw = msgspec.Raw()
    n_predict: msgspec.Raw = msgspec.Raw()
    logprobs: msgspec.Raw = msgspec.Raw()
    reasoning_effort: msgspec.Raw = msgspec.Raw()
    chat_template_kwargs: msgspec.Raw = msgspec.Raw()


class Member(msgspec.Struct, frozen=True, gc=False):
    """A member of the outermost object: byte offsets of its key and value."""

    key: str
    start: int
    value: int
    end: int


_decode = msgspec.json.Decoder(Fields).decode
_PATH = re.compile(r" - at `\$\.?([^`]*)`")
# Keys that decide where a request goes. A body that names one twice could mean one thing here and another to the backend.
_WATCHED = (b'"model"', b'"stream"', b'"trilemma"')
# What may be a key that the gateway reads, written otherwise; a long s is an s to who folds cases.
_READ = frozenset((b"model", b"stream", b"stream_options", b"trilemma"))
_READ_IN_ANY_CASE = re.compile(rb'"(model|(?:s|\xc5\xbf)tream(?:_option(?:s|\xc5\xbf))?|trilemma)"', re.IGNORECASE)
_ESCAPED_LETTER = re.compile(rb"\\u0(?:0[4-7]|17[fF])")
_ESCAPED_KEY_LETTER = re.compile(rb"\\u00(?:[67][0-9a-fA-F]|5[fF])")
# Possessive throughout, for bodies of megabytes: no backtracking, and none of the memory that it takes.
_SPACE = rb"[ \t\r\n]*+"
_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_MODEL_VALUE = re.compile(rb'"model"' + _SPACE + rb":" + _SPACE + rb"(" + _STRING + rb")")
_KEY = re.compile(rb"[{,]" + _SPACE + rb"(" + _STRING + rb")" + _SPACE + rb":" + _SPACE)
_PLAIN_VALUE = re.compile(_STRING + rb"|[^\s,}]++")
_TO_BRACKET = re.compile(rb'(?:[^"{}\[\]]++|' + _STRING + rb")*+[{}\[\]]")
_TO_NEXT = re.compile(_SPACE)
# More of either is an attack on whoever has to walk the body.
_MAX_MEMBERS = 1_000
_MAX_BRACKETS = 200_000


def read(body: bytes, max_n: int) -> Fields:
    """Reads and checks a JSON body. Raises ApiError 400 for anything that no backend could serve; never echoes the body."""
    try:
        if not body.isascii():
            body.decode()
        fields = _decode(body)
    except msgspec.ValidationError as error:
        raise _invalid(error) from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise ApiError(400, "caller_invalid_json", "The request body is not valid JSON in UTF-8.") from None
    except RecursionError:
        raise ApiError(400, "caller_invalid_json", "The request body is nested too deeply.") from None
    # -1 means "no limit" to llama.cpp; what else an engine cannot serve, that engine says.
    _check_range("n", fields.n, 1, max_n)
    _check_range("max_tokens", fields.max_tokens, -1, _MAX_INT)
    _check_range("max_completion_tokens", fields.max_completion_tokens, -1, _MAX_INT)
    for key in _WATCHED:
        if body.count(key) > 1:
            _refuse_duplicates(body)
            break
    else:
        if b"\\u00" in body and _ESCAPED_KEY_LETTER.search(body):
            _refuse_duplicates(body)
    return fields


def _check_range(name: str, value: float | None, low: int, high: int) -> None:
    if value is not None and not (low <= value <= high and value == int(value)):
        message = f"`{name}` must be a whole number between {max(low, 0)} and {high}."
        raise ApiError(400, "caller_invalid_value", message, param=name)


def members(body: bytes) -> list[Member]:
    """The members of the outermost object of valid JSON, in order. Raises ApiError 400 when there are absurdly many."""
    found: list[Member] = []
    at = body.index(b"{")
    while key := _KEY.match(body, at):
        if len(found) == _MAX_MEMBERS:
            raise _too_much()
        value = key.end()
        end = _nested_end(body, value) if body[value] in b"{[" else _end(_PLAIN_VALUE, body, value)
        found.append(Member(orjson.loads(key.group(1)), key.start(1), value, end))
        at = _end(_TO_NEXT, body, end)
    return found


def _nested_end(body: bytes, start: int) -> int:
    depth = 0
    for count, bracket in enumerate(_TO_BRACKET.finditer(body, start)):
        at = bracket.end()
        depth += 1 if body[at - 1] in b"{[" else -1
        if depth == 0:
            return at
        if count == _MAX_BRACKETS:
            raise _too_much()
    raise ValueError("not valid JSON")


def _end(pattern: re.Pattern[bytes], body: bytes, at: int) -> int:
    match = pattern.match(body, at)
    if match is None:
        raise ValueError("not valid JSON")
    return match.end()


def _too_much() -> ApiError:
    return ApiError(400, "caller_invalid_value", "The request body holds too many values.")


def rewrite(body: bytes, fields: Fields, *, model: str | None = None, ask_usage: bool = False) -> bytes:
    """The body as it goes to the backend: spliced in the named places, otherwise the bytes that came.

    model: what replaces `model`'s value. ask_usage: sets `stream_options.include_usage`.
    """
    drop = len(bytes(fields.trilemma)) > 0
    escaped = b"\\u00" in body  # a key may be spelt with escapes, and what looks like it may stand further inside
    options = ask_usage and (fields.stream_options is not None or escaped or b'"stream_options"' in body)
    if model is not None and not (drop or options or escaped) and body.count(b'"model"') == 1:
        match = _MODEL_VALUE.search(body)
        if match is not None:
            body = body[: match.start(1)] + orjson.dumps(model) + body[match.end(1) :]
            model = None
    has_options = False
    if model is not None or drop or options:
        body, has_options = _splice(body, model, drop, options)
    if ask_usage and not has_options:
        at = body.index(b"{") + 1
        body = body[:at] + b'"stream_options":{"include_usage":true},' + body[at:]
    return body


def _splice(body: bytes, model: str | None, drop: bool, ask_usage: bool) -> tuple[bytes, bool]:
    """The changed body, and whether `stream_options` stood in it and was changed."""
    parts: list[bytes] = []
    at = 0
    has_options = False
    found = members(body)
    for i, member in enumerate(found):
        if model is not None and member.key == "model":
            parts += (body[at : member.value], orjson.dumps(model))
            at = member.end
        elif ask_usage and member.key == "stream_options":
            parts += (body[at : member.value], _with_usage(body[member.value : member.end]))
            at = member.end
            has_options = True
        elif drop and member.key == "trilemma":
            if i + 1 < len(found):
                parts.append(body[at : member.start])
                at = found[i + 1].start
            else:
                parts.append(body[at : found[i - 1].end if i else member.start])
                at = member.end
    parts.append(body[at:])
    return b"".join(parts), has_options


def with_members(body: bytes, changes: Mapping[str, bytes]) -> bytes:
    """The body with these members (JSON by name) in place of what stands under their names, or at its beginning."""
    parts: list[bytes] = []
    at = 0
    missing = dict(changes)
    for member in members(body):
        if (value := changes.get(member.key)) is not None:  # each time, for of several engines take the last
            missing.pop(member.key, None)
            parts += (body[at : member.value], value)
            at = member.end
    parts.append(body[at:])
    changed = b"".join(parts)
    if not missing:
        return changed
    start = changed.index(b"{") + 1
    inner = b",".join(orjson.dumps(name) + b":" + value for name, value in missing.items())
    comma = b"" if changed[start:].lstrip()[:1] == b"}" else b","
    return changed[:start] + inner + comma + changed[start:]


def _with_usage(options: bytes) -> bytes:
    if not options.startswith(b"{"):
        return b'{"include_usage":true}'
    kept = [m for m in members(options) if m.key != "include_usage"]
    inner = b"".join(options[m.start : m.end] + b"," for m in kept)
    return b"{" + inner + b'"include_usage":true}'


def _refuse_duplicates(body: bytes) -> None:
    seen: set[str] = set()
    for member in members(body):
        if member.key in seen:
            raise ApiError(400, "caller_invalid_json", "The request body names a key twice.", param=_known(member.key))
        seen.add(member.key)


def refuse_keys_in_another_case(body: bytes) -> None:
    """For servers that may read keys in any case, as Go's JSON does: to them `STREAM` is the `stream` that was not read here.

    Raises ApiError 400.
    """
    if _ESCAPED_LETTER.search(body) or any(key not in _READ for key in _READ_IN_ANY_CASE.findall(body)):
        for member in members(body):
            plain = member.key.casefold()
            if plain != member.key and plain.encode() in _READ:
                raise ApiError(400, "caller_invalid_value", f"`{plain}` must be written in lower case.", param=plain)


def _known(key: str) -> str | None:
    return key if key in Fields.__struct_fields__ else None


def _invalid(error: msgspec.ValidationError) -> ApiError:
    text = str(error)
    where = _PATH.search(text)
    param = where.group(1) if where and where.group(1) else None
    reason = _PATH.sub("", text)
    subject = f"`{param}`" if param else "The request body"
    return ApiError(400, "caller_invalid_value", f"{subject}: {reason}.", param=param)


def json_object(data: bytes) -> dict[str, Any] | None:
    """A JSON object, or None."""
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None
