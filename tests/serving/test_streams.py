"""Streams on their way, on a clock that the test moves: whose time it is that passes, and what is held."""

from __future__ import annotations

import asyncio

import pytest

from gateway.pool.transport import Broken
from gateway.serving.exchange import Exchange
from gateway.serving.streams import EventStream
from gateway.wire.stream import StreamRelay
from tests.serving.test_exchange import Upstream, made
from tests.support.clock import run

EVENT = b'data: {"choices":[{"index":0,"delta":{"content":"w"}}]}\n\n'
DONE = b"data: [DONE]\n\n"


def opened(*script: bytes | Exception | float) -> tuple[Exchange, EventStream]:
    exchange = made()
    exchange.opened(Upstream(*script), None)
    return exchange, EventStream(exchange, StreamRelay(strip_usage=False, needs_done=True), None)


def test_a_caller_s_pause_is_no_silence_of_the_backend_s() -> None:
    async def main() -> None:
        exchange, stream = opened(EVENT, EVENT[:20], EVENT[20:] + DONE)
        await stream.begin(10.0)
        assert await stream.next() == EVENT
        await asyncio.sleep(10 * exchange.events_s)
        assert await stream.next() == EVENT + DONE
        assert await stream.next() == b""
        stream.close()
        assert (exchange.call.outcome, exchange.call.fault) == ("ok", None)

    run(main())


def test_comments_between_two_events_are_signs_of_life_for_so_long() -> None:
    async def main() -> None:
        exchange, stream = opened(EVENT, *([5.0, b": \n\n"] * 1_000))
        await stream.begin(10.0)
        assert await stream.next() == EVENT
        begun = asyncio.get_running_loop().time()
        while (piece := await stream.next()) == b": \n\n":
            pass
        assert b'"backend_timeout"' in piece
        assert asyncio.get_running_loop().time() - begun == pytest.approx(exchange.events_s, abs=5.0)
        stream.close()
        assert exchange.call.fault == "timeout"

    run(main())


def test_what_comes_before_the_first_event_is_not_held_without_bound() -> None:
    async def main() -> None:
        exchange, stream = opened(*[b": " + b"x" * 65_000 + b"\n\n"] * 100, EVENT)
        with pytest.raises(Broken):
            await stream.begin(10.0)
        exchange.close()
        _, stream = opened(*[b": ping\n\n"] * 1_000, EVENT, DONE)
        await stream.begin(10.0)
        assert await stream.next() == b": ping\n\n" * 1_000 + EVENT

    run(main())
