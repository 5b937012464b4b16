"""What a caller may ask of the gateway itself: the body object `trilemma` and the headers of the same names.

Precedence: virtual model < body < header; the operator's caps win over all, and what they clip is reported.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from gateway.wire.errors import ApiError, Header, shown


class Options(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """deadline_ms: the whole request, milliseconds. strategy, policy: names. session_id, tags: labels for the record. learn: whether
    policies may learn from it. dry_run: decide, and tell of that instead of doing it. include: what a strategy's final usage tells, too."""

    policy: str | None = None
    strategy: str | None = None
    deadline_ms: int | None = None
    session_id: str | None = None
    tags: dict[str, str] | None = None
    learn: bool | None = None
    dry_run: bool | None = None
    include: list[Literal["decision", "candidates"]] | None = None


NONE = Options()

_decode = msgspec.json.Decoder(Options).decode
_FIELD = re.compile(r"`([^`]*)`")
_AT = re.compile(r" - at `\$\.?([^`]*)`")
_PREFIX = b"x-trilemma-"
_HEADERS: Mapping[bytes, str] = {
    b"x-trilemma-strategy": "strategy",
    b"x-trilemma-deadline-ms": "deadline_ms",
    b"x-trilemma-session-id": "session_id",
}


def options(raw: bytes, headers: Sequence[Header]) -> Options:
    """Reads both places. Raises ApiError 400 naming what is unknown or wrong."""
    found = _from_body(raw) if raw and raw != b"null" else NONE
    asked = {name: value for name, value in headers if name.startswith(_PREFIX)}
    if asked:
        found = _with_headers(found, asked)
    if found.deadline_ms is not None and not 1 <= found.deadline_ms <= 86_400_000:
        raise _wrong("trilemma.deadline_ms", "must lie between 1 and 86400000")
    if found.tags is not None and len(found.tags) > 16:
        raise _wrong("trilemma.tags", "may hold 16 tags")
    return found


def _from_body(raw: bytes) -> Options:
    try:
        return _decode(raw)
    except msgspec.ValidationError as error:
        text = str(error)
        where = _AT.search(text)
        reason = _AT.sub("", text)
        if "unknown field" in reason and (field := _FIELD.search(reason)):
            name = f"trilemma.{shown(field.group(1))}"
            raise ApiError(400, "caller_unknown_parameter", f"Unknown parameter `{name}`.", param=name) from None
        raise _wrong(f"trilemma.{where.group(1)}" if where and where.group(1) else "trilemma", reason) from None


def _with_headers(found: Options, asked: dict[bytes, bytes]) -> Options:
    changes: dict[str, str | int] = {}
    for header, value in asked.items():
        name = _HEADERS.get(header)
        if name is None:
            named = shown(header.decode("latin-1"))
            raise ApiError(400, "caller_unknown_parameter", f"Unknown header `{named}`.", param=named)
        text = value.decode("latin-1").strip()
        if name == "deadline_ms":
            if not (text.isascii() and text.isdigit() and len(text) < 12):
                raise _wrong(header.decode(), "must be a whole number of milliseconds")
            changes[name] = int(text)
        elif text:
            changes[name] = text[:200]
    return msgspec.structs.replace(found, **changes)


def _wrong(param: str, reason: str) -> ApiError:
    return ApiError(400, "caller_invalid_value", f"`{param}`: {reason}.", param=param)
