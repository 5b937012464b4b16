"""What a request to the admin API says, read strictly: what is not understood is refused, not passed over."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Any, Final

from fastapi import Request
from starlette.requests import ClientDisconnect

from gateway.store.queries import Place
from gateway.wire.errors import ApiError, shown
from gateway.wire.request import json_object

MOST: Final = 200
USUAL: Final = 50
"""Entries on a page."""


async def body_of(request: Request, limit: int) -> bytes:
    """The whole body. Raises ApiError 413, 400 when the caller left in the middle of it, which nobody reads."""
    body = bytearray()
    try:
        async for data in request.stream():
            body += data
            if len(body) > limit:
                raise ApiError(413, "caller_body_too_large", f"The request body is larger than {limit} bytes.")
    except ClientDisconnect:
        raise ApiError(400, "caller_bad_framing", "The request ended before its body.") from None
    return bytes(body)


def fields_of(body: bytes, *known: str) -> dict[str, Any]:
    """The body as a JSON object that has no other fields. Raises ApiError 400."""
    fields = json_object(body)
    if fields is None:
        raise ApiError(400, "caller_invalid_json", "The request body is not a JSON object.")
    for name in fields:
        if name not in known:
            raise ApiError(400, "caller_unknown_parameter", f"Unknown parameter `{shown(name)}`.", param=shown(name))
    return fields


def query_of(request: Request, *known: str) -> dict[str, str]:
    """The query's parameters, each at most once, and no others. Raises ApiError 400."""
    found: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        if name not in known:
            raise ApiError(400, "caller_unknown_parameter", f"Unknown parameter `{shown(name)}`.", param=shown(name))
        if name in found:
            raise wrong(name, "should be given once")
        found[name] = value
    return found


def flag(query: dict[str, str], name: str) -> bool:
    """A parameter that is `true` or `false`; false when it is not given. Raises ApiError 400."""
    value = query.get(name, "false")
    if value not in ("true", "false"):
        raise wrong(name, "should be true or false")
    return value == "true"


def whole(query: dict[str, str], name: str) -> int | None:
    """A parameter that is a whole number from 1. Raises ApiError 400."""
    value = query.get(name)
    if value is None:
        return None
    if not (value.isascii() and value.isdigit() and len(value) < 10 and int(value) > 0):
        raise wrong(name, "should be a whole number from 1")
    return int(value)


def limit_of(query: dict[str, str]) -> int:
    """`limit`: how many entries. Raises ApiError 400."""
    limit = whole(query, "limit") or USUAL
    if limit > MOST:
        raise wrong("limit", f"should be a whole number from 1 to {MOST}")
    return limit


def place_of(query: dict[str, str]) -> Place | None:
    """`cursor`: the end of the page before. Raises ApiError 400."""
    cursor = query.get("cursor")
    try:
        return None if cursor is None else Place.read(cursor)
    except ValueError:
        raise wrong("cursor", "should be `next` of the page before") from None


def moment(query: dict[str, str], name: str) -> float | None:
    """A time: seconds since 1970, or ISO 8601 with its zone. Raises ApiError 400."""
    value = query.get(name)
    if value is None:
        return None
    try:
        seconds = float(value)
        if math.isfinite(seconds):
            return seconds
    except ValueError:
        pass
    try:
        time = datetime.fromisoformat(value)
        if time.tzinfo is not None:
            return time.timestamp()
    except (ValueError, OverflowError):
        pass
    raise wrong(name, "should be seconds since 1970, or a time with its zone: 2026-12-31T12:00:00Z")


def wrong(name: str, text: str) -> ApiError:
    """What is said of a parameter's value."""
    return ApiError(400, "caller_invalid_value", f"`{name}` {text}.", param=name)
