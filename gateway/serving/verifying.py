"""A service of the operator's own that judges answers.

    POST url    {"decision_id": "...", "messages": [...], "answer": "..."}
    200         {"value": 0 to 1}, or {"value": null}: it says nothing of this one

Only that address is asked, over the gateway's own way out: no redirect is followed, and nothing of a request leads anywhere else.
"""

from __future__ import annotations

import asyncio
import math
from typing import Final

import msgspec
import orjson

from gateway.config.schema import Checker
from gateway.pool.transport import Transport, TransportError, Upstream
from gateway.wire.errors import JSON

LONGEST_PROMPT: Final = 262_144
"""Bytes of messages that are sent; about longer ones nobody is asked."""
_LONGEST: Final = 65_536


class Unverified(Exception):
    """It failed. It says why in a word: timeout, connection, status or answer."""


class _Verdict(msgspec.Struct, frozen=True):
    value: float | None


_verdict = msgspec.json.Decoder(_Verdict).decode


async def verdict(transport: Transport, settings: Checker, decision_id: str, messages: bytes, answer: str) -> float | None:
    """0 to 1; None: it says nothing of this one. messages: as they came. Raises Unverified."""
    body = orjson.dumps({"decision_id": decision_id, "messages": orjson.Fragment(messages), "answer": answer})
    try:
        async with asyncio.timeout(settings.timeout_s):
            status, data = await _asked(transport, settings, body)
    except TimeoutError:
        raise Unverified("timeout") from None
    except TransportError:
        raise Unverified("connection") from None
    if status != 200:
        raise Unverified("status")
    try:
        value = _verdict(data).value
    except msgspec.DecodeError:
        raise Unverified("answer") from None
    if value is not None and not 0 <= value <= 1:
        raise Unverified("answer")
    return value


class Verifying:
    """The same during a request, about answers of which one is to be given. settings: so many are asked about at once, of each process."""

    def __init__(self, settings: Checker) -> None:
        self._settings = settings
        self._places = asyncio.Semaphore(settings.at_once)

    async def score(self, transport: Transport, decision_id: str, messages: bytes, answer: str, left_s: float) -> float | None:
        """As `verdict` says, in at most so many seconds, waiting for its turn too; None: it failed."""
        if not messages or len(messages) > LONGEST_PROMPT:
            return None
        try:
            async with asyncio.timeout(None if math.isinf(left_s) else left_s), self._places:
                return await verdict(transport, self._settings, decision_id, messages, answer)
        except (TimeoutError, Unverified):
            return None


async def _asked(transport: Transport, settings: Checker, body: bytes) -> tuple[int, bytes]:
    headers = [JSON, (b"accept", b"application/json"), (b"accept-encoding", b"identity")]
    if settings.key is not None:
        headers.append((b"authorization", b"Bearer " + settings.key.get_secret_value().encode()))
    upstream = await transport.send("POST", settings.url, headers, body, settings.timeout_s)
    try:
        return upstream.status, await _read(upstream)
    finally:
        upstream.close()


async def _read(upstream: Upstream) -> bytes:
    """All of a body. Raises Unverified where it is too long."""
    data = b""
    while part := await upstream.read_some():
        data += part
        if len(data) > _LONGEST:
            raise Unverified("answer")
    upstream.release()
    return data
