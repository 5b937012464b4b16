"""How busy engines say they are reaches the choice of replica."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from gateway.mock import Behaviour, MockBackend
from gateway.pool.scrape import Scraper
from gateway.pool.transport import Tap, Upstream
from gateway.wire.errors import Header
from tests.pool.making import made
from tests.pool.scripted import WITH_CLOCK, clock, turns
from tests.support.running import config_for, running
from tests.support.waiting import until


async def test_replicas_are_asked_and_a_lone_engine_is_not(tmp_path: Path) -> None:
    async with MockBackend(["m"], max_num_seqs=1) as one, MockBackend(["m"]) as two, MockBackend(["n"]) as lone:
        config = config_for(
            {
                "one": {"url": one.url, "engine": "vllm", "models": {"m": "m"}},
                "two": {"url": two.url, "engine": "vllm", "models": {"m": "m"}},
                "lone": {"url": lone.url, "engine": "vllm", "models": {"n": "n"}},
            }
        )
        one.script(*[Behaviour(stall_after_events=1)] * 3)
        two.script(*[Behaviour(stall_after_events=1)] * 3)
        async with running(config, tmp_path) as run, run.client() as client:
            backends = run.gateway.state.backends
            await until(lambda: backends["one"].scraped is not None and backends["two"].scraped is not None, "the first scrapes")
            assert backends["one"].queued == 0
            assert lone.requests_to("/metrics") == []
            ask: dict[str, Any] = {"model": "m", "messages": [], "stream": True}
            async with AsyncExitStack() as streams:
                for _ in range(4):
                    await streams.enter_async_context(client.stream("POST", "/v1/chat/completions", json=ask))
                await until(lambda: backends["one"].queued > 0, "the queue of the engine with one slot")
                assert backends["two"].queued == 0


class Numbers:
    """A transport whose engines tell their queue, or raise."""

    def __init__(self, **hosts: int | Exception) -> None:
        self.hosts = hosts
        self.asked: list[str] = []

    async def send(self, _method: str, url: str, *_args: object, **_more: object) -> Upstream:
        host = url.split("/")[2]
        self.asked.append(host)
        told = self.hosts[host]
        if isinstance(told, Exception):
            raise told
        return Told(f"vllm:num_requests_waiting {told}\n".encode())

    async def close(self) -> None:
        pass


class Told:
    """An answer."""

    status = 200
    headers: Sequence[Header] = ()

    def __init__(self, body: bytes) -> None:
        self.body = body

    def whole(self) -> bytes | None:
        return None

    async def read_some(self, tap: Tap | None = None) -> bytes:  # noqa: ARG002
        body, self.body = self.body, b""
        return body

    def release(self) -> None:
        pass

    def close(self) -> None:
        pass


@WITH_CLOCK
async def test_a_fault_in_one_scrape_ends_neither_it_nor_the_others(caplog: pytest.LogCaptureFixture) -> None:
    transport = Numbers(a=ZeroDivisionError("a fault of our own"), b=3)
    a, b = made("a", engine="vllm"), made("b", engine="vllm")
    with caplog.at_level(logging.ERROR, "trilemma.pool"):
        async with asyncio.TaskGroup() as group:
            scraper = Scraper(transport, group)
            scraper.watch([a, b])
            await turns(5)
            assert "metrics of a failed" in caplog.text
            assert (a.scraped, b.scraped and b.scraped.waiting) == (None, 3)
            transport.hosts["a"] = 5
            await clock().pass_time(5.1)
            assert a.scraped and a.scraped.waiting == 5
            scraper.stop()


@WITH_CLOCK
async def test_a_disabled_replica_is_not_asked_and_tells_no_others_apart() -> None:
    transport = Numbers(a=1, b=2, c=3)
    a, b, c = (made(name, engine="vllm") for name in "abc")
    async with asyncio.TaskGroup() as group:
        scraper = Scraper(transport, group)
        a.disabled = True
        scraper.watch([a, b, c])
        await turns(5)
        assert transport.asked == ["b", "c"]
        b.disabled = True
        scraper.watch([a, b, c])
        transport.asked.clear()
        await clock().pass_time(10.0)
        assert not transport.asked
        scraper.stop()
