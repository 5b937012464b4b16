"""A client that leaves takes everything with it: the upstream socket, the count of what is in flight, every task; and it is known that it left."""

from __future__ import annotations

import asyncio
import gc
import json
import socket
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from gateway.mock import Behaviour, MockBackend
from tests.support.asking import CHAT, question
from tests.support.raw import Wire, wire
from tests.support.running import Running, config_for, running
from tests.support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

ASK = json.dumps(question(stream=True)).encode()
WHOLE = json.dumps(question()).encode()


def sockets() -> int:
    """Open sockets of this process."""
    return sum(1 for each in Path("/proc/self/fd").iterdir() if _is_socket(each))


def _is_socket(descriptor: Path) -> bool:
    try:
        return str(descriptor.readlink()).startswith("socket:")
    except FileNotFoundError:  # closed since it was listed
        return False


@pytest_asyncio.fixture(loop_scope="module")
async def level(gateway: Running, mock: MockBackend, client: httpx.AsyncClient, direct: httpx.AsyncClient) -> AsyncIterator[None]:
    """After the test, tasks, sockets and counts are where they were before it."""
    await until(lambda: mock.connections == 0, "kept connections' end")
    before, open_before = len(asyncio.all_tasks()), sockets()
    yield
    await mock.wait_for(lambda m: m.in_flight == 0)
    await until(lambda: gateway.in_flight() == 0, "the last request's end")
    await until(lambda: len(asyncio.all_tasks()) <= before, f"tasks back at {before}: {[task.get_name() for task in asyncio.all_tasks()]}")
    await until(lambda: sockets() <= open_before, f"sockets back at {open_before}")


async def until_at_work(mock: MockBackend, count: int = 1) -> None:
    await mock.wait_for(lambda m: m.in_flight == count)


async def left(mock: MockBackend, gateway: Running, count: int = 1) -> None:
    """The backend has heard of it, and the receipts say why it ended."""
    await mock.wait_for(lambda m: m.aborted == count)
    await gateway.until_settled(count)
    assert [receipt.outcome for receipt in gateway.settled] == ["client_closed"] * count


@pytest.mark.usefixtures("level")
@pytest.mark.parametrize("how", ["close", "reset"])
class TestLeaving:
    """Each way to leave: with FIN, and with RST."""

    async def test_in_the_middle_of_a_stream(self, mock: MockBackend, gateway: Running, how: str) -> None:
        mock.script(Behaviour(tokens=("a",) * 1000, tokens_per_second=100))
        async with wire(gateway.url) as client:
            client.post(ASK)
            assert (await client.head())[0] == 200
            for _ in range(2):
                await client.chunk()
            getattr(client, how)()
            await left(mock, gateway)
        assert gateway.settled[0].events >= 2
        assert mock.requests[-1].events_sent < 100, "it went on for no second"

    async def test_while_a_stream_is_silent(self, mock: MockBackend, gateway: Running, how: str) -> None:
        """Nothing is written that could fail: the leaving itself is heard."""
        mock.script(Behaviour(stall_after_events=2))
        async with wire(gateway.url) as client:
            client.post(ASK)
            await client.head()
            await client.chunk()
            getattr(client, how)()
            await left(mock, gateway)

    @pytest.mark.parametrize("behaviour", [Behaviour(never_answer=True), Behaviour(stall_after_events=0)], ids=["no head", "no token"])
    async def test_before_the_first_token(self, mock: MockBackend, gateway: Running, how: str, behaviour: Behaviour) -> None:
        mock.script(behaviour)
        async with wire(gateway.url) as client:
            client.post(ASK)
            await until_at_work(mock)
            getattr(client, how)()
            await left(mock, gateway)

    @pytest.mark.parametrize("path", [CHAT, "/v1/embeddings", "/v1/rerank"])
    async def test_during_a_call_that_is_not_streamed(self, mock: MockBackend, gateway: Running, how: str, path: str) -> None:
        mock.script(Behaviour(path=path, never_answer=True))
        async with wire(gateway.url) as client:
            client.post(WHOLE, path)
            await until_at_work(mock)
            getattr(client, how)()
            await left(mock, gateway)

    async def test_while_half_an_answer_is_held(self, mock: MockBackend, gateway: Running, how: str) -> None:
        raw = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{"
        mock.script(Behaviour(raw=raw, stall_after_events=0))
        async with wire(gateway.url) as client:
            client.post(WHOLE)
            await until_at_work(mock)
            getattr(client, how)()
            await left(mock, gateway)

    async def test_while_it_sends_its_request(self, mock: MockBackend, gateway: Running, how: str) -> None:
        """The backend never hears of it."""
        async with wire(gateway.url) as client:
            client.post(ASK, CHAT)
            await (await client_answered(client)).wait_closed() if False else None
            client.send(b"")
            getattr(client, how)()
        async with wire(gateway.url) as client:
            head, _, body = request(ASK).partition(b"\r\n\r\n")
            client.send(head + b"\r\n\r\n" + body[:10])
            await asyncio.sleep(0)
            getattr(client, how)()
