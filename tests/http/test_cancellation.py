"""A client that leaves takes all with it, the upstream socket, the count of what is in flight, every task; and it is known that it left."""

from __future__ import annotations

import asyncio
import gc
import json
import socket
import tracemalloc
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import httpx
import pytest
import pytest_asyncio

from gateway.mock import Behaviour, MockBackend
from tests.support.asking import CHAT, question
from tests.support.raw import Wire, request, wire
from tests.support.running import Running
from tests.support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")
LANES = ("hot", "asgi", "fastapi")

ASK = json.dumps(question(stream=True)).encode()
WHOLE = json.dumps(question()).encode()

Leave = Callable[[Wire], None]


@pytest.fixture(params=["close", "reset"])
def leave(request: pytest.FixtureRequest) -> Leave:
    """How a client leaves: with FIN, or with RST."""

    def go(client: Wire) -> None:
        getattr(client, request.param)()

    return go


@pytest_asyncio.fixture(loop_scope="module", autouse=True)
async def level(gateway: Running, mock: MockBackend) -> AsyncIterator[None]:
    """After each test, tasks, sockets and counts are where they were before it."""
    await until(lambda: mock.connections == 0, "the end of kept connections")
    tasks, open_sockets = len(asyncio.all_tasks()), sockets()
    yield
    await settled_down(mock, gateway, tasks, open_sockets)


async def settled_down(mock: MockBackend, gateway: Running, tasks: int, open_sockets: int) -> None:
    await until(lambda: mock.in_flight == 0 and gateway.in_flight() == 0, "nothing in flight")
    await until(lambda: mock.connections == 0, "the end of kept connections")
    await until(lambda: len(asyncio.all_tasks()) <= tasks, f"at most {tasks} tasks")
    await until(lambda: sockets() <= open_sockets, f"at most {open_sockets} sockets")


def sockets() -> int:
    """Open sockets of this process."""
    return sum(1 for each in Path("/proc/self/fd").iterdir() if _is_socket(each))


def _is_socket(descriptor: Path) -> bool:
    try:
        return str(descriptor.readlink()).startswith("socket:")
    except FileNotFoundError:  # closed since it was listed
        return False


async def left(mock: MockBackend, gateway: Running, count: int = 1) -> None:
    """The backend has heard of it, and the receipts say why it ended."""
    await mock.wait_for(lambda m: m.aborted == count)
    await gateway.until_settled(count)
    assert [receipt.outcome for receipt in gateway.settled] == ["client_closed"] * count


# -- when it leaves


async def test_in_the_middle_of_a_stream(mock: MockBackend, gateway: Running, leave: Leave) -> None:
    mock.script(Behaviour(tokens=("a",) * 1000, tokens_per_second=100))
    async with wire(gateway.url) as client:
        client.post(ASK)
        assert (await client.head())[0] == 200
        for _ in range(2):
            await client.chunk()
        leave(client)
        await left(mock, gateway)
    assert gateway.settled[0].events >= 2
    assert mock.requests[-1].events_sent < 500


async def test_while_a_stream_is_silent(mock: MockBackend, gateway: Running, leave: Leave) -> None:
    """Nothing is written that could fail: the leaving itself is heard."""
    mock.script(Behaviour(stall_after_events=2))
    async with wire(gateway.url) as client:
        client.post(ASK)
        await client.head()
        await client.chunk()
        leave(client)
        await left(mock, gateway)


@pytest.mark.parametrize("behaviour", [Behaviour(never_answer=True), Behaviour(stall_after_events=0)], ids=["no head", "no token"])
async def test_before_the_first_token(mock: MockBackend, gateway: Running, leave: Leave, behaviour: Behaviour) -> None:
    mock.script(behaviour)
    async with wire(gateway.url) as client:
        client.post(ASK)
        await mock.wait_for(lambda m: m.in_flight == 1)
        leave(client)
        await left(mock, gateway)


@pytest.mark.parametrize("path", [CHAT, "/v1/embeddings", "/v1/rerank"])
async def test_during_a_call_that_is_not_streamed(mock: MockBackend, gateway: Running, leave: Leave, path: str) -> None:
    mock.script(Behaviour(path=path, never_answer=True))
    async with wire(gateway.url) as client:
        client.post(WHOLE, path)
        await mock.wait_for(lambda m: m.in_flight == 1)
        leave(client)
        await left(mock, gateway)


async def test_while_half_an_answer_is_held(mock: MockBackend, gateway: Running, leave: Leave) -> None:
    raw = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{"
    mock.script(Behaviour(raw=raw, stall_after_events=0))
    async with wire(gateway.url) as client:
        client.post(WHOLE)
        await mock.wait_for(lambda m: bool(m.requests) and m.requests[-1].bytes_sent == len(raw))
        leave(client)
        await left(mock, gateway)


async def test_while_the_backend_is_asked_again(mock: MockBackend, gateway: Running, leave: Leave) -> None:
    """In the second call, after the option that was the gateway's own was refused."""
    mock.script(Behaviour(reject_include_usage=True), Behaviour(never_answer=True))
    async with wire(gateway.url) as client:
        client.post(ASK)
        await mock.wait_for(lambda m: m.total == 2)
        leave(client)
        await left(mock, gateway)


async def test_while_it_sends_its_request(mock: MockBackend, gateway: Running, leave: Leave) -> None:
    """The backend never hears of it."""
    async with wire(gateway.url) as client:
        head, _, body = request(ASK, CHAT, "expect: 100-continue").partition(b"\r\n\r\n")
        client.send(head + b"\r\n\r\n")
        assert (await client.head())[0] == 100
        client.send(body[:10])
        leave(client)
        await gateway.until_settled(1)
    assert gateway.settled[0].outcome == "client_closed"
    assert mock.requests_to(CHAT) == []


async def test_as_soon_as_it_has_asked(mock: MockBackend, gateway: Running, leave: Leave) -> None:
    """Whatever had come by then: nothing is left of it."""
    mock.script(default=Behaviour(stall_after_events=1))
    for body in (ASK, WHOLE):
        async with wire(gateway.url) as client:
            client.post(body)
            leave(client)


async def test_while_another_request_waits_behind(mock: MockBackend, gateway: Running, leave: Leave) -> None:
    """Pipelined: the one that runs hears it, and the one that waits never runs."""
    mock.script(Behaviour(tokens=("a",) * 100_000, tokens_per_second=100))
    async with wire(gateway.url) as client:
        client.post(ASK)
        await client.head()
        client.post(WHOLE)
        sent = mock.requests[-1].events_sent + 5
        seen = b""
        while seen.count(b"data: ") < sent:  # said after the second request had come
            seen += await client.chunk()
        leave(client)
        await left(mock, gateway)
    assert mock.total == 1


async def test_right_after_the_end_was_read(mock: MockBackend, gateway: Running, leave: Leave) -> None:
    """Libraries close at `[DONE]`, before the body's own end: that is a success, with its usage."""
    events = (
        '{"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}]}',
        '{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":1}}',
    )
    mock.script(Behaviour(events=events, stall_after_events=3))
    async with wire(gateway.url) as client:
        client.post(ASK)
        await client.head()
        seen = b""
        while b"[DONE]" not in seen:
            seen += await client.chunk()
        leave(client)
        await mock.wait_for(lambda m: m.aborted == 1)
        await gateway.until_settled(1)
    receipt = gateway.settled[0]
    assert receipt.outcome == "ok"
    assert receipt.usage is not None and (receipt.usage.prompt, receipt.usage.completion) == (5, 1)


async def test_after_a_whole_answer(mock: MockBackend, gateway: Running, leave: Leave) -> None:
    mock.script(Behaviour(close_connection_after="header"))
    async with wire(gateway.url) as client:
        client.post(WHOLE)
        assert (await client.answer()).status == 200
        leave(client)
    await gateway.until_settled(1)
    assert gateway.settled[0].outcome == "ok"
    assert mock.aborted == 0


async def test_a_time_out_of_the_client(mock: MockBackend, gateway: Running, client: httpx.AsyncClient) -> None:
    mock.script(Behaviour(never_answer=True))
    with pytest.raises(httpx.ReadTimeout):
        await client.post(CHAT, json=question(), timeout=0.1)
    await left(mock, gateway)


# -- a client that does not read

BIG = Behaviour(events=("x" * 10_000,) * 5_000, close_connection_after="header")
"""50 MB, as fast as they are taken."""


@asynccontextmanager
async def slow(gateway: Running) -> AsyncIterator[Wire]:
    """A client with a small window."""
    raw = socket.socket()
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
    raw.setblocking(False)
    host, port = gateway.url.removeprefix("http://").split(":")
    await asyncio.get_running_loop().sock_connect(raw, (host, int(port)))
    client = Wire(*await asyncio.open_connection(sock=raw, limit=1 << 16))
    try:
        yield client
    finally:
        client.close()


async def stands_still(mock: MockBackend) -> int:
    """Bytes sent by the backend, once they do not grow any more."""
    seen = [-1]
    while len(seen) < 7 or len(set(seen[-6:])) > 1:
        await asyncio.sleep(0.05)
        seen.append(mock.requests[-1].bytes_sent)
    return seen[-1]


async def test_a_client_that_does_not_read_holds_the_backend_back(mock: MockBackend, gateway: Running) -> None:
    """Reading from the backend stops, memory does not grow with the answer; once the client reads, it gets all of it."""
    mock.script(BIG)
    gc.collect()
    async with slow(gateway) as client:
        tracemalloc.start()
        try:
            client.post(ASK)
            await mock.wait_for(lambda m: m.in_flight == 1)
            sent = await stands_still(mock)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert 0 < sent < 25_000_000, "what the sockets' own buffers take"
        assert peak < 4_000_000
        await client.head()
        read = 0
        last = b""
        while piece := await client.chunk():
            read += len(piece)
            last = piece
    assert read == 5_000 * (10_000 + len("data: \n\n")) + len("data: [DONE]\n\n")
    assert last.endswith(b"data: [DONE]\n\n")
    await gateway.until_settled(1)
    assert gateway.settled[0].outcome == "ok"


async def test_it_may_leave_as_well(mock: MockBackend, gateway: Running, leave: Leave) -> None:
    """Also while the backend is held back."""
    mock.script(BIG)
    async with slow(gateway) as client:
        client.post(ASK)
        await mock.wait_for(lambda m: m.in_flight == 1)
        await stands_still(mock)
        leave(client)
        await left(mock, gateway)


# -- many at once


async def storm(mock: MockBackend, gateway: Running, size: int) -> None:
    """So many streams that are all at work are left at once, half of them with RST."""
    some = size // 5
    mock.reset()
    gateway.settled.clear()
    mock.script(
        Behaviour(stall_after_events=2, times=3 * some),
        Behaviour(never_answer=True, times=some),
        Behaviour(tokens=("a",) * 1000, tokens_per_second=2, times=some),
    )
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(wire(gateway.url)) for _ in range(size)]
        for client in clients:
            client.post(ASK)
        await until(lambda: mock.in_flight == size and sum(each.events_sent > 0 for each in mock.requests) == 4 * some, "all at work")
        assert gateway.in_flight() == size
        for number, client in enumerate(clients):
            (client.reset if number % 2 else client.close)()
        await left(mock, gateway, size)


async def test_a_storm_of_aborts_leaves_nothing(mock: MockBackend, gateway: Running) -> None:
    """Sockets, tasks and counts return; and what storms add to memory is nothing that would add up: what stays, stays after each."""
    tasks, open_sockets = len(asyncio.all_tasks()), sockets()
    await storm(mock, gateway, 500)
    await settled_down(mock, gateway, tasks, open_sockets)
    size = 150  # to trace memory takes time
    tracemalloc.start()
    try:
        sizes = []
        for _ in range(3):
            await storm(mock, gateway, size)
            await settled_down(mock, gateway, tasks, open_sockets)
            mock.reset()
            gateway.settled.clear()
            gc.collect()
            sizes.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert min(sizes[1] - sizes[0], sizes[2] - sizes[1]) < 400 * size, "less than 400 bytes for each stream"
