"""A backend that asks to be left alone is, for as long as it last asked, and its callers hear for how long."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import httpx
import pytest

from tests.pool.scripted import Peer, Request
from tests.reliability.engines import Engine, engine, whole
from tests.support.asking import CHAT, error_of
from tests.support.running import Running, config_for, running

NO = b'{"error":{"message":"slow down","type":"x","param":null,"code":429}}'
Limited = Callable[..., AbstractAsyncContextManager[tuple[Engine, Running, httpx.AsyncClient]]]


@pytest.fixture
def limited(tmp_path: Path) -> Limited:
    """An engine that refuses the calls it is given, each with its own Retry-After, in the order in which these are listed: all calls
    are there before the first is refused."""

    @asynccontextmanager
    async def start(*pauses: str, status: bytes = b"429 Too Many") -> AsyncIterator[tuple[Engine, Running, httpx.AsyncClient]]:
        turns = [asyncio.Event() for _ in pauses]

        async def answers(served: Engine, peer: Peer, _request: Request) -> bool:
            number = len(served.calls) - 1
            if len(served.calls) == len(pauses):
                turns[0].set()
            await turns[number].wait()
            await peer.send(whole(NO, status, b"retry-after: " + pauses[number].encode()))
            return True

        async with engine(answers) as served:
            config = config_for({"e": {"url": served.url, "models": {"m": "m"}}}, models={"m": {"retry_wait_s": 0}})
            async with running(config, tmp_path) as run, run.client() as client:
                asking = [asyncio.create_task(client.post(CHAT, json={"model": "m", "messages": []})) for _ in pauses]
                for count, turn in enumerate(turns):
                    await turn.wait()
                    await run.until_settled(count + 1)
                    if count + 1 < len(turns):
                        turns[count + 1].set()
                told = [answer.headers["retry-after"] for answer in await asyncio.gather(*asking)]
                assert sorted(told) == sorted(pauses), "each in the backend's own words"
                yield served, run, client

    return start


async def next_pause(client: httpx.AsyncClient, served: Engine) -> int:
    """The Retry-After of one more call, which the backend does not hear."""
    before = len(served.calls)
    answer = await client.post(CHAT, content=json.dumps({"model": "m", "messages": []}))
    assert (answer.status_code, error_of(answer)["code"]) == (503, "backend_unavailable")
    assert len(served.calls) == before
    return int(answer.headers["retry-after"])


@pytest.mark.parametrize("pauses", [("1", "30"), ("30", "1"), ("30", "1", "5"), ("2", "30", "0")])
async def test_of_several_pauses_the_longest_counts(limited: Limited, pauses: tuple[str, ...]) -> None:
    """Whichever was asked for last: a shorter one takes nothing from one that runs."""
    async with limited(*pauses) as (served, run, client):
        assert run.gateway.state.backends["e"].breaker.state == "open"
        assert 25 <= await next_pause(client, served) <= 30


async def test_a_pause_until_a_date(limited: Limited) -> None:
    """Dates are understood too; what the gateway says itself is whole seconds."""
    async with limited(format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True)) as (served, _, client):
        assert 50 <= await next_pause(client, served) <= 60


async def test_a_pause_asked_for_by_a_backend_that_is_overloaded(limited: Limited) -> None:
    """503 with Retry-After is the same request."""
    async with limited("20", status=b"503 Busy") as (served, _, client):
        assert 15 <= await next_pause(client, served) <= 20


@pytest.mark.parametrize("odd", ["soon", "-5", "1e3", "Mon, 99 Foo 2020 00:00:00 GMT", "999999999999999999999"])
async def test_a_pause_that_cannot_be_read_is_an_ordinary_one(limited: Limited, odd: str) -> None:
    """The backend's words pass, and the gateway leaves it alone as after any fault: a second at first."""
    async with limited(odd) as (_, run, _client):
        breaker = run.gateway.state.backends["e"].breaker
        assert breaker.state != "closed"
        assert breaker.wait_s <= 1
