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


def test_events_are_handed_on_while_the_next_piece_is_waited_for() -> None:
    """What is no plain event is returned, after all that was handed on; who has to wait before more is sent is handed no more."""

    async def main() -> None:
        exchange, stream = opened(EVENT, EVENT, EVENT, b": ping\n\n", EVENT, EVENT, EVENT, DONE)
        await stream.begin(10.0)
        pushed: list[bytes] = []

        def push(data: bytes) -> bool:
            pushed.append(data)
            return len(pushed) != 3

        assert (await stream.next(push), pushed) == (EVENT, [])
        assert (await stream.next(push), pushed) == (b": ping\n\n", [EVENT] * 2)
        assert (await stream.next(push), pushed) == (EVENT, [EVENT] * 3)
        assert (await stream.next(push), pushed) == (DONE, [EVENT] * 4)
        assert (await stream.next(push), pushed) == (b"", [EVENT] * 4)
        stream.close()
        assert exchange.call.outcome == "ok"

    run(main())


def test_silence_counts_from_the_last_event_that_was_handed_on() -> None:
    async def main() -> None:
        _, stream = opened(EVENT, *([exchange_idle_s * 0.9, EVENT] * 5), 1e6)
        await stream.begin(10.0)
        pushed: list[float] = []
        now = asyncio.get_running_loop().time
        await stream.next()
        begun = now()
        last = await stream.next(lambda _: pushed.append(now()) is None)
        assert b'"backend_timeout"' in last
        assert [at - begun for at in pushed] == pytest.approx([exchange_idle_s * 0.9 * n for n in range(1, 6)])
        assert now() - pushed[-1] == pytest.approx(exchange_idle_s)
        stream.close()

    exchange_idle_s = 10.0
    run(main())


def test_the_deadline_holds_while_events_are_handed_on() -> None:
    async def main() -> None:
        exchange, stream = opened(EVENT, *([1.0, EVENT] * 100))
        await stream.begin(10.0)
        await stream.next()
        exchange.patience.bound(asyncio.get_running_loop().time() + 7.5)
        pushed: list[bytes] = []
        last = await stream.next(lambda data: pushed.append(data) is None)
        assert b'"gateway_deadline"' in last
        assert len(pushed) == 7
        stream.close()

    run(main())
