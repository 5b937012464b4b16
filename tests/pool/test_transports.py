"""What both transports do, over raw servers: nobody's answer is lost, cut short unnoticed, mixed with another's, or left open."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import socket
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from gateway.pool.aiohttp_transport import AiohttpTransport
from gateway.pool.http1 import Http1Transport
from gateway.pool.transport import ConnectFailed, Transport, TransportError
from tests.pool.answers import BROKEN, HELLO, OK, UNTIL_CLOSED, WHOLE
from tests.pool.scripted import (
    BOTH_LOOPS,
    Peer,
    Request,
    answering,
    ask,
    eventually,
    scripted,
    turns,
)

pytestmark = [BOTH_LOOPS, pytest.mark.usefixtures("watched")]


@pytest.fixture(params=["http1", "aiohttp"])
async def transport(request: pytest.FixtureRequest, no_proxies: None) -> AsyncIterator[Transport]:
    made: Transport = Http1Transport() if request.param == "http1" else AiohttpTransport()
    yield made
    await made.close()
    await turns(3)


async def echo(peer: Peer) -> None:
    """Answers each request with its own body."""
    while True:
        request = await peer.request()
        await peer.send(OK + b"content-length: %d\r\n\r\n" % len(request.body), request.body)


# -- answers


@pytest.mark.parametrize("name", WHOLE)
async def test_a_framed_answer_is_whole_though_the_connection_stays_open(transport: Transport, name: str) -> None:
    raw, status, body = WHOLE[name]
    async with answering(raw) as server:
        got = await ask(transport, server.url)
        assert (got.status, got.body, got.whole) == (status, body, True)


@pytest.mark.parametrize("name", WHOLE)
async def test_one_byte_per_read_makes_no_difference(transport: Transport, name: str) -> None:
    raw, status, body = WHOLE[name]
    async with answering([raw[i : i + 1] for i in range(len(raw))]) as server:
        got = await ask(transport, server.url)
        assert (got.status, got.body, got.whole) == (status, body, True)


@pytest.mark.parametrize("name", UNTIL_CLOSED)
async def test_without_framing_the_end_of_the_connection_is_the_end(transport: Transport, name: str) -> None:
    raw, body = UNTIL_CLOSED[name]
    async with answering(raw, close=True) as server:
        got = await ask(transport, server.url)
        assert (got.status, got.body, got.whole) == (200, body, True)
        await ask(transport, server.url)
        assert len(server.peers) == 2


async def test_headers_come_in_order_in_lower_case_with_their_bytes(transport: Transport) -> None:
    raw = OK + b"X-B: 1\r\nx-a:  two words \r\nX-B: 2\r\nx-empty:\r\nx-bytes: \xe9\xff\r\ncontent-length: 0\r\n\r\n"
    async with answering(raw) as server:
        got = await ask(transport, server.url)
    assert [(name, value.strip()) for name, value in got.headers] == [
        (b"x-b", b"1"),
        (b"x-a", b"two words"),
        (b"x-b", b"2"),
        (b"x-empty", b""),
        (b"x-bytes", b"\xe9\xff"),
        (b"content-length", b"0"),
    ]


async def test_trailers_and_interim_headers_are_not_headers(transport: Transport) -> None:
    raw = b"HTTP/1.1 103 X\r\nx-early: 1\r\n\r\n" + OK + b"transfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\nx-late: 1\r\n\r\n"
    async with answering(raw) as server:
        got = await ask(transport, server.url)
    assert got.headers == ((b"transfer-encoding", b"chunked"),)


@pytest.mark.parametrize("framing", [b"content-length: 500\r\n", b"transfer-encoding: chunked\r\n", b""])
async def test_an_answer_to_head_has_no_body_whatever_it_says(transport: Transport, framing: bytes) -> None:
    async with answering(OK + framing + b"\r\n") as server:
        got = await ask(transport, server.url, "HEAD", b"")
        assert (got.status, got.body, got.whole) == (200, b"", True)
        assert server.requests[0].line.startswith(b"HEAD ")


async def test_compressed_bytes_are_left_alone(transport: Transport) -> None:
    packed = gzip.compress(b"hello" * 100)
    async with answering(OK + b"content-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(packed) + packed) as server:
        assert (await ask(transport, server.url)).body == packed


async def test_pieces_are_handed_on_as_they_come(transport: Transport) -> None:
    """An event must not wait for the next one."""
    go = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(OK + b"transfer-encoding: chunked\r\n\r\n", b"2\r\nab\r\n")
        await go.wait()
        await peer.send(b"2\r\ncd\r\n0\r\n\r\n")
        await peer.left()

    async with scripted(script) as server:
        upstream = await transport.send("POST", server.url, (), b"{}", 5.0)
        assert await upstream.read_some() == b"ab"
        go.set()
        assert await upstream.read_some() == b"cd"
        assert await upstream.read_some() == b""
        assert await upstream.read_some() == b""
        upstream.release()


# -- answers that are none


# A field name that aiohttp hands on with its space is framing to others; its interim answers may have any status, or switch protocols.
AIOHTTP_TAKES = {"a space before the colon", "a status below 100", "an upgrade that does not say to what"}


@pytest.mark.parametrize("size", [1 << 16, 1], ids=["at once", "byte by byte"])
@pytest.mark.parametrize("name", BROKEN)
async def test_what_is_no_answer_is_broken(transport: Transport, name: str, size: int) -> None:
    """And, on a first use of a connection, never a reason to send the request again. The next request finds another connection."""

    async def script(peer: Peer) -> None:
        await peer.request()
        answer = BROKEN[name] if peer.number == 0 else HELLO
        await peer.send(*(answer[at : at + size] for at in range(0, len(answer), size)))

    async with scripted(script) as server:
        got = await ask(transport, server.url)
        if got.failure is None:
            assert isinstance(transport, AiohttpTransport)
            assert name in AIOHTTP_TAKES
        else:
            assert not got.failure.untouched
        assert (await ask(transport, server.url)).body == b"hello"


@pytest.mark.parametrize("endless", [b"x-a: b\r\n", b"x-a"], ids=["headers", "one header"])
async def test_a_head_without_end_is_given_up(transport: Transport, endless: bytes) -> None:
    sent = 0

    async def script(peer: Peer) -> None:
        nonlocal sent
        await peer.request()
        peer.writer.write(OK)
        while True:
            await peer.send(endless * 1024)
            sent += len(endless) * 1024

    async with scripted(script) as server:
        assert (await ask(transport, server.url)).status == 0
        assert sent < 20_000_000


@pytest.mark.parametrize("name", ["content-length", "chunked", "trailers", "no content", "early hints first", "no framing"])
async def test_an_answer_that_ends_early_is_never_taken_for_whole(transport: Transport, name: str) -> None:
    """The connection is closed after each byte of the answer in turn."""
    raw, status, body = WHOLE[name] if name in WHOLE else (UNTIL_CLOSED[name][0], 200, UNTIL_CLOSED[name][1])
    framed = name in WHOLE
    head = raw.rindex(b"\r\n\r\n", 0, raw.find(b"hello") if body else None) + 4

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(raw[: peer.number])

    async with scripted(script) as server:
        for cut in range(len(raw) + 1):
            got = await ask(transport, server.url)
            whole = cut == len(raw) or (not framed and cut >= head)
            assert got.whole is whole, (cut, raw[:cut], got)
            assert got.failure is None or not got.failure.untouched
            assert got.status == (status if cut >= head else 0)
            assert body.startswith(got.body)
            assert got.body == body or not whole or not framed
        assert len(server.peers) == len(raw) + 1


@pytest.mark.parametrize("at", [0, 10, 40, 42])
async def test_a_reset_is_broken(transport: Transport, at: int) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(HELLO[:at])
        peer.reset()

    async with scripted(script) as server:
        got = await ask(transport, server.url)
        assert got.failure is not None
        assert not got.failure.untouched


# -- where to


async def test_many_origins_at_once(transport: Transport) -> None:
    async with contextlib.AsyncExitStack() as stack:
        servers = []
        for number in range(8):
            answer = OK + b"content-length: 1\r\n\r\n%d" % number
            servers.append(await stack.enter_async_context(answering(answer, answer)))
        for _ in range(2):
            got = await asyncio.gather(*(ask(transport, server.url) for server in servers))
            assert [each.body for each in got] == [b"%d" % number for number in range(8)]


async def test_requests_at_once_each_get_their_own_answer(transport: Transport) -> None:
    async with scripted(echo) as server:
        for _ in range(3):
            bodies = [b"%d" % number for number in range(20)]
            got = await asyncio.gather(*(ask(transport, server.url, body=body) for body in bodies))
            assert [each.body for each in got] == bodies


async def test_an_ipv6_literal(transport: Transport) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6 loopback")

    async def script(peer: Peer) -> None:
        host = dict((await peer.request()).headers)[b"host"]
        await peer.send(OK + b"content-length: %d\r\n\r\n%s" % (len(host), host))
        await peer.left()

    async with scripted(script, "::1") as server:
        assert (await ask(transport, server.url)).body == server.url.split("/")[2].encode()


# -- connecting


async def test_a_refused_connection(transport: Transport) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(ConnectFailed):
            await ask(transport, f"http://127.0.0.1:{taken.getsockname()[1]}/v1/x")


@contextlib.contextmanager
def deaf() -> Any:
    """The URL of a listening socket whose queue is full: the kernel leaves any further client without an answer."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listening, contextlib.ExitStack() as stack:
        for _ in range(4):
            queued = stack.enter_context(socket.socket())
            queued.setblocking(False)
            queued.connect_ex(listening.getsockname())
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/v1/x"


async def test_connecting_is_bounded(transport: Transport) -> None:
    with deaf() as url:
        began = asyncio.get_running_loop().time()
        with pytest.raises(ConnectFailed):
            await transport.send("POST", url, (), b"{}", 0.05)
        assert asyncio.get_running_loop().time() - began < 5


@pytest.mark.parametrize(
    "url",
    [
        f"http://{'a' * 64}.invalid/v1/x",
        "http://a..b/v1/x",
        "http:///v1/x",
        "http://[::1/v1/x",
        "ftp://127.0.0.1/v1/x",
        "http://127.0.0.1:0/v1/x",
        "http://127.0.0.1:99999/v1/x",
        "http://127.0.0.1:http/v1/x",
        "nonsense",
        "",
    ],
)
async def test_a_url_that_leads_nowhere(transport: Transport, url: str) -> None:
    with pytest.raises(ConnectFailed):
        await ask(transport, url)


# -- requests


async def sent(transport: Transport, method: str, target: str, body: bytes, *headers: tuple[bytes, bytes]) -> Request:
    async with answering(OK + b"content-length: 0\r\n\r\n") as server:
        await ask(transport, server.url.removesuffix("/v1/x") + target, method, body, headers)
        return server.requests[0]


async def test_a_request_arrives_as_it_was_meant(transport: Transport) -> None:
    request = await sent(
        transport, "POST", "/v1/a%2Fb/c;d?x=%20&y=a+b&z", b'{"a": 1}', (b"content-type", b"application/json"), (b"x-a", b"caf\xc3\xa9")
    )
    assert request.line == b"POST /v1/a%2Fb/c;d?x=%20&y=a+b&z HTTP/1.1"
    assert request.body == b'{"a": 1}'
    found = dict(request.headers)
    assert found.pop(b"host").startswith(b"127.0.0.1:")
    found.pop(b"connection", None)  # aiohttp says that it will close
    assert found == {b"content-type": b"application/json", b"x-a": b"caf\xc3\xa9", b"content-length": b"8"}


@pytest.mark.parametrize(
    ("method", "body", "length"),
    [("POST", b"", b"0"), ("PUT", b"", b"0"), ("GET", b"", None), ("HEAD", b"", None), ("DELETE", b"{}", b"2"), ("GET", b"{}", b"2")],
)
async def test_a_body_is_framed_once(transport: Transport, method: str, body: bytes, length: bytes | None) -> None:
    request = await sent(transport, method, "/v1/x", body)
    assert [value for name, value in request.headers if name == b"content-length"] == ([] if length is None else [length])
    assert b"transfer-encoding" not in dict(request.headers)
    assert request.body == body


async def test_a_large_body_arrives(transport: Transport) -> None:
    body = bytes(range(256)) * 40_000
    assert (await sent(transport, "POST", "/v1/x", body)).body == body


@pytest.mark.parametrize("value", [b"a\r\nx-evil: 1", b"a\nx-evil: 1", b"a\rx-evil: 1", b"a\r\n", b"a\n", b"\r\n\r\nGET / HTTP/1.1"])
async def test_a_header_with_a_line_end_is_refused_before_anything_is_sent(transport: Transport, value: bytes) -> None:
    async with answering(HELLO) as server:
        with pytest.raises(TransportError):
            await ask(transport, server.url, headers=((b"x-a", value), (b"x-b", b"c")))
        with pytest.raises(TransportError):
            await ask(transport, server.url, headers=((b"x-a", b"b"), (b"x-b", value)))
        await turns(5)
        assert not server.requests


@pytest.mark.parametrize("status", [b"200 OK", b"413 Too Large"])
@pytest.mark.parametrize("closes", [True, False])
async def test_an_answer_may_come_before_the_body_was_read(transport: Transport, status: bytes, closes: bool) -> None:
    """The answer counts; its connection, on which the rest of the body is still to come, is not used again."""

    async def script(peer: Peer) -> None:
        await peer.reader.readuntil(b"\r\n\r\n")
        await peer.send(b"HTTP/1.1 " + status + b"\r\ncontent-length: 5\r\n\r\nhello")
        if not closes:
            await peer.left()

    async with scripted(script) as server:
        got = await ask(transport, server.url, body=b"x" * 30_000_000)
        assert (got.status, got.body) == (int(status[:3]), b"hello")
        await ask(transport, server.url, body=b"")
        assert len(server.peers) == 2


# -- back-pressure


async def test_a_slow_reader_holds_the_backend_back(transport: Transport) -> None:
    """50 MB for a caller that does not read: what is kept in this process stays small, and then all of it arrives, in order."""
    piece = bytes(range(256)) * 256
    count = 800
    written = 0

    async def script(peer: Peer) -> None:
        nonlocal written
        await peer.request()
        peer.writer.transport.set_write_buffer_limits(high=1)
        peer.writer.write(OK + b"content-length: %d\r\n\r\n" % (len(piece) * count))
        for _ in range(count):
            peer.writer.write(piece)
            await peer.writer.drain()
            written += len(piece)
        await peer.left()

    async with scripted(script) as server:
        tracemalloc.start()
        try:
            upstream = await transport.send("POST", server.url, (), b"{}", 5.0)
            before, _ = tracemalloc.get_traced_memory()
            still, last = 0, -1
            while still < 50:  # the kernel's buffers are full when nothing moves any more
                still = still + 1 if written == last else 0
                last = written
                await turns(5)
            kept = tracemalloc.get_traced_memory()[0] - before
        finally:
            tracemalloc.stop()
        assert written < len(piece) * count
        assert kept < 1_000_000
        size = 0
        while data := await upstream.read_some():
            assert data == (piece + data)[size % len(piece) :][: len(data)] if len(data) <= len(piece) else data[-1] is not None
            size += len(data)
        upstream.release()
        assert size == len(piece) * count


# -- leaving


Stage = Callable[[Peer], Awaitable[None]]


async def _never_reads(peer: Peer) -> None:
    peer.writer.transport.pause_reading()  # type: ignore[attr-defined]


async def _says_nothing(peer: Peer) -> None:
    await peer.request()


async def _interim(peer: Peer) -> None:
    await peer.request()
    await peer.send(b"HTTP/1.1 100 Continue\r\n\r\n")


async def _half_a_head(peer: Peer) -> None:
    await peer.request()
    await peer.send(OK + b"content-le")


async def _half_a_body(peer: Peer) -> None:
    await peer.request()
    await peer.send(OK + b"content-length: 5\r\n\r\nhe")


async def _a_flood(peer: Peer) -> None:
    await peer.request()
    peer.writer.write(OK + b"transfer-encoding: chunked\r\n\r\n" + b"100000\r\n" + b"x" * (1 << 20) + b"\r\n")


@pytest.mark.parametrize("stage", [_never_reads, _says_nothing, _interim, _half_a_head, _half_a_body, _a_flood])
async def test_cancelling_closes_the_socket_at_once(transport: Transport, stage: Stage) -> None:
    reached, left = asyncio.Event(), asyncio.Event()

    async def script(peer: Peer) -> None:
        await stage(peer)
        reached.set()
        await turns(5)
        if stage is _never_reads:
            while not left.is_set():
                peer.writer.transport.resume_reading()  # type: ignore[attr-defined]
                if not await peer.reader.read(1 << 16):
                    left.set()
        else:
            await peer.left()
        left.set()

    async with scripted(script) as server:
        body = b"x" * 50_000_000 if stage is _never_reads else b"{}"
        task = asyncio.create_task(ask(transport, server.url, body=body))
        await asyncio.wait_for(reached.wait(), 10)
        await turns(3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(left.wait(), 10)
        if isinstance(transport, Http1Transport):
            await eventually(lambda: transport.connections == 0)
    assert task.cancelled()


async def test_cancelling_while_it_connects(transport: Transport) -> None:
    with deaf() as url:
        task = asyncio.create_task(transport.send("POST", url, (), b"{}", 30.0))
        await turns(20)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        if isinstance(transport, Http1Transport):
            assert transport.connections == 0


async def test_cancelling_at_any_turn_of_the_loop(transport: Transport) -> None:
    """A storm: whatever the moment, nothing is left open, and those that were not cancelled have their own answers."""
    async with scripted(echo) as server:
        for turn in range(40):
            tasks = [asyncio.create_task(ask(transport, server.url, body=b"%d" % n)) for n in range(4)]
            await turns(turn)
            tasks[0].cancel()
            tasks[1].cancel()
            done = await asyncio.gather(*tasks, return_exceptions=True)
            for number, got in enumerate(done):
                if isinstance(got, BaseException):
                    assert isinstance(got, asyncio.CancelledError)
                    assert number < 2
                else:
                    assert got.body == b"%d" % number
        await transport.close()
        await eventually(lambda: not server.tasks)


async def test_close_closes_the_socket_at_once(transport: Transport) -> None:
    left = asyncio.Event()

    async def script(peer: Peer) -> None:
        await _half_a_body(peer)
        await peer.left()
        left.set()

    async with scripted(script) as server:
        upstream = await transport.send("POST", server.url, (), b"{}", 5.0)
        assert await upstream.read_some() == b"he"
        upstream.close()
        await asyncio.wait_for(left.wait(), 10)


async def test_release_and_close_may_be_repeated_and_never_touch_the_next_exchange(transport: Transport) -> None:
    go = asyncio.Event()

    async def script(peer: Peer) -> None:
        while True:
            wished = (await peer.request()).body
            await peer.send(OK + b"content-length: %d\r\n\r\n" % len(wished))
            if wished == b"second":
                await go.wait()
            await peer.send(wished)

    async with scripted(script) as server:
        first = await transport.send("POST", server.url, (), b"first", 5.0)
        assert (await first.read_some(), await first.read_some()) == (b"first", b"")
        first.release()
        second = await transport.send("POST", server.url, (), b"second", 5.0)
        first.close()
        first.release()
        first.close()
        await turns(3)
        go.set()
        assert (await second.read_some(), await second.read_some()) == (b"second", b"")
        second.release()
        second.release()
        second.close()
        assert (await ask(transport, server.url)).body == b"{}"


async def test_an_answer_that_was_not_read_to_its_end_is_not_released_but_closed(transport: Transport) -> None:
    async with answering(OK + b"content-length: 9\r\n\r\nhello") as server:
        upstream = await transport.send("POST", server.url, (), b"{}", 5.0)
        upstream.release()
        await eventually(lambda: not server.tasks)


async def test_after_close_nothing_is_open_and_nothing_can_be_sent(transport: Transport) -> None:
    """Whoever still waits, for a head or for more of a body, is told."""
    silent = asyncio.Event()

    async def script(peer: Peer) -> None:
        if (await peer.request()).body == b"half":
            await peer.send(OK + b"content-length: 9\r\n\r\nhello")
        else:
            silent.set()
        await peer.left()

    async with scripted(script) as server:
        for_more = asyncio.create_task(ask(transport, server.url, body=b"half"))
        for_head = asyncio.create_task(ask(transport, server.url))
        await silent.wait()
        await turns(10)
        await transport.close()
        for waiting in (for_more, for_head):
            assert (await waiting).failure is not None
        await eventually(lambda: not server.tasks)
        with pytest.raises(ConnectFailed):
            await ask(transport, server.url)


async def test_close_also_ends_a_request_that_still_connects(transport: Transport) -> None:
    async with answering(HELLO) as server:
        task = asyncio.create_task(ask(transport, server.url))
        await turns(1)
        await transport.close()
        with contextlib.suppress(TransportError):
            assert not (await task).whole
        await eventually(lambda: not server.tasks)
