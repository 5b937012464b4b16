"""A service of the operator's own that judges answers.

    POST url    {"decision_id": "...", "messages": [...], "answer": "..."}
    200         {"value": 0 to 1}, or {"value": null}: it says nothing of this one

Only that address is asked, over the gateway's own way out: no redirect is followed, and nothing of a request leads anywhere else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec
import orjson

from gateway.config.schema import Verifier as Settings
from gateway.learning.findings import Case
from gateway.learning.reviewing import Unjudged
from gateway.pool.transport import Transport, TransportError, Upstream
from gateway.wire.errors import JSON

_LONGEST: Final = 65_536


class _Verdict(msgspec.Struct, frozen=True):
    value: float | None


_verdict = msgspec.json.Decoder(_Verdict).decode


class Verifier:
    """settings: those in use; None: there is none any more."""

    def __init__(self, transport: Transport, settings: Callable[[], Settings | None]) -> None:
        self._transport = transport
        self._settings = settings

    async def review(self, case: Case) -> float:
        """See reviewing.Review."""
        settings = self._settings()
        if settings is None:
            raise Unjudged("gone", weighs=False)
        body = orjson.dumps({"decision_id": case.decision_id, "messages": orjson.Fragment(case.messages), "answer": case.answer})
        try:
            async with asyncio.timeout(settings.timeout_s):
                status, data = await self._asked(settings, body)
        except TimeoutError:
            raise Unjudged("timeout") from None
        except TransportError:
            raise Unjudged("connection") from None
        if status != 200:
            raise Unjudged("status")
        try:
            value = _verdict(data).value
        except msgspec.DecodeError:
            raise Unjudged("answer") from None
        if value is None:
            raise Unjudged("silent", weighs=False)
        if not 0 <= value <= 1:
            raise Unjudged("answer")
        return value

    async def _asked(self, settings: Settings, body: bytes) -> tuple[int, bytes]:
        headers = [JSON, (b"accept", b"application/json"), (b"accept-encoding", b"identity")]
        if settings.key is not None:
            headers.append((b"authorization", b"Bearer " + settings.key.get_secret_value().encode()))
        upstream = await self._transport.send("POST", settings.url, headers, body, settings.timeout_s)
        try:
            return upstream.status, await _read(upstream)
        finally:
            upstream.close()


async def _read(upstream: Upstream) -> bytes:
    """All of a body. Raises Unjudged where it is too long."""
    data = b""
    while part := await upstream.read_some():
        data += part
        if len(data) > _LONGEST:
            raise Unjudged("answer")
    upstream.release()
    return data
