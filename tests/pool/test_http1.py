"""What only the client of our own does: which connections are kept, and for how long; strict reading; bounds; TLS."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.pool.http1 import Http1Transport, Reply
from gateway.pool.transport import Broken, ConnectFailed, TransportError
from tests.pool.answers import HELLO, NOT_REUSED, OK, WHOLE
from tests.pool.scripted import BOTH_LOOPS, WITH_CLOCK, Peer, answering, ask, clock, eventually, scripted, turns

pytestmark = [BOTH_LOOPS, pytest.mark.usefixtures("watched")]

# Key and certificate, until 2126: openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 36500 -subj /CN=localhost
#   -addext subjectAltName=DNS:localhost,IP:127.0.0.1 -keyout key -out cert; cat key cert > localhost.pem
CERTIFICATE = Path(__file__).parent / "localhost.pem"


@pytest.fixture
async def http1() -> AsyncIterator[Http1Transport]:
    made = Http1Transport()
    yield made
    await made.close()
    await eventually(lambda: made.connections == 0)


async def hello(peer: Peer) -> None:
    """Answers any number of requests."""
    while True:
        await peer.request()
        await peer.send(HELLO)


async def number(peer: Peer) -> None:
    """Answers with the number of the connection."""
    while True:
        await peer.request()
        await peer.send(OK + b"content-length: 1\r\n\r\n%d" % peer.number)


# -- which connections are used again


@pytest.mark.parametrize("name", WHOLE)
async def test_a_clean_answer_leaves_its_socket_for_the_next_request(http1: Http1Transport, name: str) -> None:
    raw, status, body = WHOLE[name]
    async with answering(raw, HELLO) as server:
        got = await ask(http1, server.url)
        assert (got.status, got.body) == (status, body)
        assert (await ask(http1, server.url)).body == b"hello"
        assert (len(server.peers), http1.connections) == (1, 1)


@pytest.mark.parametrize("name", NOT_REUSED)
async def test_a_connection_that_said_more_or_wants_to_end_is_not_used_again(http1: Http1Transport, name: str) -> None:
    """Whatever follows an answer in the same packet would be taken for the next caller's."""
    raw, body = NOT_REUSED[name]
    async with answering(raw, HELLO) as server:
        got = await ask(http1, server.url)
        assert (got.body, got.whole) == (body, True)
        await ask(http1, server.url)
        assert len(server.peers) == 2


async def test_an_answer_to_head_is_the_last_on_its_connection(http1: Http1Transport) -> None:
    """Some servers send a body all the same."""
    async with answering(HELLO, HELLO) as server:
        assert (await ask(http1, server.url, "HEAD", b"")).body == b""
        assert (await ask(http1, server.url)).body == b"hello"
        assert len(server.peers) == 2


async def test_what_comes_on_an_idle_connection_closes_it(http1: Http1Transport) -> None:
    """A server that gives up waiting says 408 first."""
    late = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(HELLO)
        if peer.number == 0:
            await late.wait()
            await peer.send(b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 3\r\n\r\nbye")
        await peer.left()

    async with scripted(script) as server:
        assert (await ask(http1, server.url)).body == b"hello"
        late.set()
        await eventually(lambda: http1.connections == 0, within_s=2.0)  # before it grows too old
        got = await ask(http1, server.url)
        assert (got.status, got.body) == (200, b"hello")
        assert len(server.peers) == 2


async def test_requests_at_once_have_a_connection_each_and_later_ones_share_them(http1: Http1Transport) -> None:
    async with scripted(hello) as server:
        for _ in range(3):
            await asyncio.gather(*(ask(http1, server.url) for _ in range(20)))
        assert (len(server.peers), http1.connections) == (20, 20)


async def test_what_is_left_is_at_hand_only_when_all_of_it_has_come(http1: Http1Transport) -> None:
    go = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nab")
        await go.wait()
        await peer.send(b"cd")
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nabcd")
        await peer.left()

    async with scripted(script) as server:
        upstream = await http1.send("POST", server.url, (), b"", 5.0)
        assert upstream.whole() is None
        go.set()
        assert (await upstream.read_some(), await upstream.read_some()) == (b"ab", b"cd")
        assert (upstream.whole(), await upstream.read_some()) == (b"", b"")
        upstream.release()
        upstream = await http1.send("POST", server.url, (), b"", 5.0)
        assert (upstream.whole(), upstream.whole(), await upstream.read_some()) == (b"abcd", b"", b"")
        upstream.release()
        assert http1.connections == 1


async def test_a_tap_takes_what_comes_while_the_reader_waits_and_the_rest_follows_in_order(http1: Http1Transport) -> None:
    """The first piece comes with the head, so nobody waits for it; the last with the end, which is the reader's."""
    taken: list[bytes] = []
    more = asyncio.Event()

    def tap(data: bytes) -> bool:
        if data == b"no":
            return False
        taken.append(data)
        more.set()
        return True

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n")
        for piece in (b"2\r\nbc\r\n", b"1\r\nd\r\n1\r\ne\r\n", b"2\r\nno\r\n", b"1\r\nf\r\n0\r\n\r\n"):
            await more.wait()
            more.clear()
            await peer.send(piece)
        await peer.left()

    async with scripted(script) as server:
        upstream = await http1.send("POST", server.url, (), b"", 5.0)
        assert (await upstream.read_some(tap), taken) == (b"a", [])
        more.set()
        assert (await upstream.read_some(tap), taken) == (b"no", [b"bc", b"de"])
        more.set()
        assert (await upstream.read_some(tap), await upstream.read_some(tap)) == (b"f", b"")
        assert taken == [b"bc", b"de"]
        upstream.release()
        assert http1.connections == 1


async def test_what_follows_a_piece_that_a_tap_refused_waits_for_the_reader(http1: Http1Transport) -> None:
    offered: list[bytes] = []

    def tap(data: bytes) -> bool:
        offered.append(data)
        return False

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n")
        await peer.left()

    async with scripted(script) as server:
        upstream = await http1.send("POST", server.url, (), b"", 5.0)
        reading = asyncio.create_task(upstream.read_some(tap))
        await asyncio.sleep(0)
        assert isinstance(upstream, Reply)
        upstream.feed(b"ab")
        upstream.feed(b"cd")  # before the task has run
        assert (await reading, offered) == (b"abcd", [b"ab"])
        upstream.close()


async def test_a_reader_that_is_cancelled_leaves_no_tap_behind(http1: Http1Transport) -> None:
    offered: list[bytes] = []

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n")
        await peer.left()

    async with scripted(script) as server:
        upstream = await http1.send("POST", server.url, (), b"", 5.0)
        reading = asyncio.create_task(upstream.read_some(lambda data: offered.append(data) is None))
        await asyncio.sleep(0)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        assert isinstance(upstream, Reply)
        upstream.feed(b"abcd")
        assert (await upstream.read_some(), offered) == (b"abcd", [])
        upstream.close()


async def test_the_connection_used_last_is_used_first(http1: Http1Transport) -> None:
    """So that what a quiet hour does not need can grow old."""
    async with scripted(number) as server:
        answers = [await http1.send("POST", server.url, (), b"", 5.0) for _ in range(3)]
        for each in answers:
            assert len(await each.read_some()) == 1
            assert await each.read_some() == b""
        for index in (0, 2, 1):
            answers[index].release()
        assert [(await ask(http1, server.url)).body for _ in range(3)] == [b"1", b"1", b"1"]
        again = [await http1.send("POST", server.url, (), b"", 5.0) for _ in range(3)]
        assert [await each.read_some() for each in again] == [b"1", b"2", b"0"]
        for each in again:
            each.close()


async def test_origins_do_not_share_connections(http1: Http1Transport) -> None:
    async with scripted(hello) as one, scripted(hello) as two:
        for _ in range(3):
            await ask(http1, one.url)
            await ask(http1, two.url)
        assert (len(one.peers), len(two.peers)) == (1, 1)
        await ask(http1, one.url.replace("127.0.0.1", "localhost"))
        assert len(one.peers) == 2


# -- how long they are kept


@WITH_CLOCK
async def test_an_idle_connection_is_used_for_less_than_four_seconds(http1: Http1Transport) -> None:
    """llama.cpp closes one after five."""
    async with scripted(hello) as server:
        for _ in range(3):
            await ask(http1, server.url)
            await clock().pass_time(3.9)
        assert (len(server.peers), http1.connections) == (1, 1)
        await ask(http1, server.url)
        await clock().pass_time(4.1)
        assert http1.connections == 0
        await eventually(lambda: not server.tasks)
        await ask(http1, server.url)
        assert len(server.peers) == 2


@WITH_CLOCK
async def test_each_connection_grows_old_by_itself(http1: Http1Transport) -> None:
    async with scripted(hello) as one, scripted(hello) as two:
        await asyncio.gather(*(ask(http1, one.url) for _ in range(3)))
        await clock().pass_time(2.5)
        await asyncio.gather(ask(http1, one.url), ask(http1, two.url))
        assert http1.connections == 4
        await clock().pass_time(1.6)  # two of the first three have been idle for 4.1 s
        assert http1.connections == 2
        assert (await ask(http1, one.url)).whole
        assert len(one.peers) == 3
        await clock().pass_time(2.5)  # so has the one to the second server
        assert http1.connections == 1
        await clock().pass_time(1.6)
        assert http1.connections == 0


@WITH_CLOCK
async def test_a_connection_that_is_too_old_is_not_used_even_before_it_was_swept(http1: Http1Transport) -> None:
    async with scripted(hello) as server:
        await ask(http1, server.url)
        clock().ahead += 4.1  # nothing that is due has run yet
        await ask(http1, server.url)
        assert len(server.peers) == 2


@WITH_CLOCK
async def test_a_connection_at_work_does_not_grow_old(http1: Http1Transport) -> None:
    async with answering(HELLO, OK + b"content-length: 5\r\n\r\n") as server:
        await ask(http1, server.url)
        upstream = await http1.send("POST", server.url, (), b"", 5.0)
        await clock().pass_time(3_600)
        await server.peers[0].send(b"later")
        assert await upstream.read_some() == b"later"
        upstream.release()


async def test_whoever_leaves_just_as_a_connection_opens_leaves_nothing_behind(http1: Http1Transport) -> None:
    async with scripted(hello) as server:
        for turn in range(40):
            task = asyncio.create_task(http1.send("POST", server.url, (), b"", 5.0, fresh=True))
            await turns(turn)
            task.cancel()
            (left,) = await asyncio.gather(task, return_exceptions=True)
            if not isinstance(left, BaseException):
                left.close()
        await turns(20)
        assert http1.connections == 0


# -- a kept-alive connection that the backend closes


@pytest.mark.parametrize("how", ["closed", "reset"])
async def test_a_stale_connection_was_untouched_and_a_fresh_one_answers(http1: Http1Transport, how: str) -> None:
    """The backend's close crosses the request on its way."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(HELLO)
        await peer.reader.read(1)
        if how == "reset":
            peer.reset()

    async with scripted(script) as server:
        assert (await ask(http1, server.url)).body == b"hello"
        got = await ask(http1, server.url)
        assert got.failure is not None
        assert got.failure.untouched
        assert len(server.peers) == 1
        assert (await ask(http1, server.url, fresh=True)).body == b"hello"
        assert len(server.peers) == 2


async def test_a_connection_that_was_closed_while_idle_is_not_used(http1: Http1Transport) -> None:
    async with answering(HELLO, close=True) as server:
        assert (await ask(http1, server.url)).whole
        await eventually(lambda: http1.connections == 0)
        assert (await ask(http1, server.url)).whole


async def test_fresh_means_a_new_connection(http1: Http1Transport) -> None:
    async with scripted(hello) as server:
        await ask(http1, server.url)
        await ask(http1, server.url, fresh=True)
        assert len(server.peers) == 2


@pytest.mark.parametrize("part", [b"H", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 100 Continue\r\n\r\n", HELLO[:-5], HELLO[:-1]])
async def test_once_a_byte_of_an_answer_has_come_the_request_was_worked_on(http1: Http1Transport, part: bytes) -> None:
    async with answering(HELLO, part, close=True) as server:
        assert (await ask(http1, server.url)).whole
        got = await ask(http1, server.url)
        assert got.failure is not None
        assert not got.failure.untouched
        assert len(server.peers) == 1


@WITH_CLOCK
@pytest.mark.parametrize(("after_s", "untouched"), [(0.5, True), (30.0, False)])
async def test_a_backend_that_dies_at_work_was_not_untouched(http1: Http1Transport, after_s: float, untouched: bool) -> None:
    """It had the request for long before the connection ended: sending it again would run it twice."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(HELLO)
        await peer.request()
        await clock().pass_time(after_s)

    async with scripted(script) as server:
        assert (await ask(http1, server.url)).whole
        await clock().pass_time(3.0)  # idle time does not count
        with pytest.raises(Broken) as broken:
            await http1.send("POST", server.url, (), b"{}", 5.0)
        assert broken.value.untouched is untouched
        assert len(server.peers) == 1


# -- strict reading

REFUSED: dict[str, bytes] = {
    "a folded header": OK + b"x-a: b\r\n c\r\ncontent-length: 5\r\n\r\nhello",
    "a bare LF after the status": b"HTTP/1.1 200 OK\ncontent-length: 5\r\n\r\nhello",
    "a bare LF after a header": OK + b"x-a: b\ncontent-length: 5\r\n\r\nhello",
    "a bare LF after the head": OK + b"content-length: 5\r\n\nhello",
    "a bare CR in a header": OK + b"x-a: b\rx-c: d\r\ncontent-length: 5\r\n\r\nhello",
    "the same length twice": OK + b"content-length: 5\r\ncontent-length: 5\r\n\r\nhello",
    "a bare LF after a chunk's size": OK + b"transfer-encoding: chunked\r\n\r\n5\nhello\r\n0\r\n\r\n",
    "a space after a chunk's size": OK + b"transfer-encoding: chunked\r\n\r\n5 \r\nhello\r\n0\r\n\r\n",
    "a chunk's size with 0x": OK + b"transfer-encoding: chunked\r\n\r\n0x5\r\nhello\r\n0\r\n\r\n",
    "no line end after a chunk": OK + b"transfer-encoding: chunked\r\n\r\n5\r\nhello0\r\n\r\n",
    "a coding under chunked": OK + b"transfer-encoding: gzip, chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    "a coding over chunked": OK + b"transfer-encoding: chunked, gzip\r\n\r\nhello",
    "a coding of its own": OK + b"transfer-encoding: gzip\r\n\r\nhello",
    "a coding that only looks like chunked": OK + b"transfer-encoding: xchunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    "chunked twice": OK + b"transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    "chunked, then identity": OK + b"transfer-encoding: chunked\r\ntransfer-encoding: identity\r\n\r\nhello",
    "an interim answer with a body": b"HTTP/1.1 103 Early Hints\r\ncontent-length: 5\r\n\r\nhello" + HELLO,
    "an unknown interim answer with a body": b"HTTP/1.1 199 Odd\r\ncontent-length: 5\r\n\r\nhello" + HELLO,
    "an interim answer in chunks": b"HTTP/1.1 102 Processing\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n" + HELLO,
    "an interim answer that closes": b"HTTP/1.1 103 Early Hints\r\nconnection: close\r\n\r\n" + HELLO,
    "two spaces before the status": b"HTTP/1.1  200 OK\r\ncontent-length: 5\r\n\r\nhello",
    "a name in small letters": b"http/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello",
    "HTTP/1.2": b"HTTP/1.2 200 OK\r\ncontent-length: 5\r\n\r\nhello",
}


@pytest.mark.parametrize("name", REFUSED)
async def test_what_can_be_read_in_two_ways_is_not_read_at_all(http1: Http1Transport, name: str) -> None:
    async with answering(REFUSED[name], close=True) as server:
        got = await ask(http1, server.url)
        assert got.failure is not None
        assert got.body in (b"", b"hello")


async def test_nothing_of_an_interim_body_reaches_the_answer(http1: Http1Transport) -> None:
    for name in ("an unknown interim answer with a body", "an interim answer with a body"):
        async with answering(REFUSED[name]) as server:
            assert (await ask(http1, server.url)).body == b""


@pytest.mark.parametrize("where", ["in the body", "behind the body"])
async def test_a_reset_does_not_end_an_answer_without_framing(http1: Http1Transport, where: str) -> None:
    """Only a proper close says that this was all of it."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(OK + b"\r\n", b"hello" if where == "behind the body" else b"he")
        peer.reset()

    async with scripted(script) as server:
        got = await ask(http1, server.url)
        assert got.status == 200
        assert not got.whole


async def test_a_backend_that_hangs_up_while_it_is_sent_to_has_answered_all_it_will(http1: Http1Transport) -> None:
    """It closes its side only, and reads no more: the rest of the request would wait for ever."""

    async def script(peer: Peer) -> None:
        await peer.reader.readuntil(b"\r\n\r\n")
        peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
        peer.writer.write_eof()
        await eventually(lambda: http1.connections == 0)

    async with scripted(script) as server:
        assert not (await ask(http1, server.url, body=b"x" * 50_000_000)).whole


# -- bounds


FLOODS = {
    "headers": (OK, b"x-a: b\r\n"),
    "interim answers": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "trailers": (OK + b"transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n", b"x-a: b\r\n"),
    "one trailer": (OK + b"transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nx-a: ", b"bbbb"),
    "a chunk's extension": (OK + b"transfer-encoding: chunked\r\n\r\n5;", b"aaaa"),
}


@pytest.mark.parametrize("name", FLOODS)
async def test_what_has_no_end_and_no_body_is_given_up(http1: Http1Transport, name: str) -> None:
    begin, endless = FLOODS[name]
    sent = 0

    async def script(peer: Peer) -> None:
        nonlocal sent
        await peer.request()
        await peer.send(begin)
        while True:
            await peer.send(endless * 4096)
            sent += len(endless) * 4096

    async with scripted(script) as server:
        got = await ask(http1, server.url)
        assert got.failure is not None
        assert sent < 20_000_000


async def test_a_long_head_is_no_flood(http1: Http1Transport) -> None:
    lines = b"".join(b"x-%d: %s\r\n" % (index, b"v" * 1_000) for index in range(200))
    async with answering(OK + lines + b"content-length: 5\r\n\r\nhello") as server:
        got = await ask(http1, server.url)
        assert (got.body, len(got.headers)) == (b"hello", 201)


async def test_many_small_chunks_are_handed_on_together(http1: Http1Transport) -> None:
    async with answering(OK + b"transfer-encoding: chunked\r\n\r\n" + b"1\r\na\r\n" * 500_000 + b"0\r\n\r\n") as server:
        got = await ask(http1, server.url)
        assert (got.body, got.whole) == (b"a" * 500_000, True)


# -- requests


async def test_the_bytes_of_a_request(http1: Http1Transport) -> None:
    async with answering(HELLO) as server:
        await ask(http1, server.url, "POST", b"{}", ((b"x-a", b"b"), (b"x-a", b"\xe9")))
        host = server.url.split("/")[2].encode()
        assert server.requests[0].head == b"POST /v1/x HTTP/1.1\r\nhost: " + host + b"\r\nx-a: b\r\nx-a: \xe9\r\ncontent-length: 2"


async def test_a_url_without_path(http1: Http1Transport) -> None:
    async with answering(HELLO, HELLO) as server:
        root = server.url.removesuffix("/v1/x")
        await ask(http1, root, "GET", b"")
        await ask(http1, root + "?a=b", "GET", b"")
        assert [request.line for request in server.requests] == [b"GET / HTTP/1.1", b"GET /?a=b HTTP/1.1"]


@pytest.mark.parametrize(
    "tail",
    ["/a b", "/a\r\nx-evil: 1", "/a\n", "/a\tb", "/\x00", "/\x7f", "/a#b", "/é", "/a?q=é", "?a=b c", "?a\r\n\r\nGET / HTTP/1.1"],
)
async def test_a_url_that_no_request_line_can_hold_is_refused(http1: Http1Transport, tail: str) -> None:
    """Nor is anything quietly left out of it, as urllib does with tabs and line ends."""
    async with scripted(hello) as server:
        with pytest.raises(ConnectFailed):
            await ask(http1, server.url + tail)
        with pytest.raises(ConnectFailed):
            await ask(http1, server.url.replace("//", "//user@"))
        assert not server.peers


async def test_long_urls(http1: Http1Transport) -> None:
    async with scripted(hello) as server:
        for index in range(3):
            assert (await ask(http1, f"{server.url}?{'q' * 10_000}={index}")).whole
        assert len(server.peers) == 1


async def test_a_header_that_would_be_two_leaves_the_connection_alone(http1: Http1Transport) -> None:
    async with scripted(hello) as server:
        await ask(http1, server.url)
        for bad in ((b"x-a", b"b\r\nc: d"), (b"x-a", b"b\n"), (b"x-a\r", b"b"), (b"x\n", b"")):
            with pytest.raises(TransportError):
                await ask(http1, server.url, headers=(bad,))
        assert (await ask(http1, server.url)).whole
        assert len(server.peers) == 1


# -- names

Resolve = Callable[..., Any]


@pytest.mark.asyncio(loop_factories=["asyncio"])
async def test_a_name_that_nobody_knows(http1: Http1Transport, monkeypatch: pytest.MonkeyPatch) -> None:
    async def unknown(*_args: object, **_more: object) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "unknown")

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", unknown)
    with pytest.raises(ConnectFailed):
        await ask(http1, "http://nowhere.example/v1/x")


@pytest.mark.asyncio(loop_factories=["asyncio"])
async def test_a_name_server_that_does_not_answer(http1: Http1Transport, monkeypatch: pytest.MonkeyPatch) -> None:
    async def silent(*_args: object, **_more: object) -> Any:
        await asyncio.Event().wait()

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", silent)
    with pytest.raises(ConnectFailed):
        await http1.send("POST", "http://nowhere.example/v1/x", (), b"", 0.02)


@pytest.mark.asyncio(loop_factories=["asyncio"])
async def test_a_name_beyond_ascii_is_asked_for_and_sent_in_its_ascii_form(http1: Http1Transport, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    async with answering(HELLO) as server:
        port = int(server.url.split(":")[2].split("/")[0])

        async def known(host: object, _port: int, **_more: object) -> Any:
            asked.append(host)
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", known)
        assert (await ask(http1, "http://bücher.example:8000/v1/x")).whole
        assert asked == ["xn--bcher-kva.example"]
        assert dict(server.requests[0].headers)[b"host"] == b"xn--bcher-kva.example:8000"


# -- TLS


def tls() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    return context


@pytest.fixture
def trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test's certificate is one that this machine trusts."""
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))


@pytest.mark.usefixtures("trusted")
async def test_https(http1: Http1Transport) -> None:
    async with scripted(hello, tls=tls()) as server:
        for host in ("127.0.0.1", "localhost"):
            url = server.url.replace("127.0.0.1", host)
            for _ in range(2):
                assert (await ask(http1, url)).body == b"hello"
        assert len(server.peers) == 2


async def test_a_certificate_that_nobody_vouches_for(http1: Http1Transport) -> None:
    async with scripted(hello, tls=tls()) as server:
        with pytest.raises(ConnectFailed):
            await ask(http1, server.url)


@pytest.mark.usefixtures("trusted")
async def test_a_certificate_of_another_host(http1: Http1Transport) -> None:
    async with scripted(hello, tls=tls()) as server:
        with pytest.raises(ConnectFailed):
            await ask(http1, server.url.replace("127.0.0.1", "127.0.0.2"))


async def test_https_to_a_server_that_speaks_http(http1: Http1Transport) -> None:
    async with answering(HELLO) as server:
        with pytest.raises(ConnectFailed):
            await http1.send("POST", server.url.replace("http:", "https:"), (), b"", 0.2)


async def test_a_handshake_that_is_not_answered_is_bounded_and_can_be_cancelled(http1: Http1Transport) -> None:
    async def script(peer: Peer) -> None:
        await peer.left()

    async with scripted(script) as server:
        url = server.url.replace("http:", "https:")
        with pytest.raises(ConnectFailed):
            await http1.send("POST", url, (), b"", 0.02)
        await eventually(lambda: len(server.peers) == 1 and not server.tasks)
        task = asyncio.create_task(http1.send("POST", url, (), b"", 60.0))
        await eventually(lambda: len(server.peers) == 2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await eventually(lambda: not server.tasks)


@pytest.mark.usefixtures("trusted")
async def test_cancelling_closes_a_tls_socket_too(http1: Http1Transport) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(OK + b"content-length: 9\r\n\r\nhello")
        await peer.left()

    async with scripted(script, tls=tls()) as server:
        upstream = await http1.send("POST", server.url, (), b"{}", 5.0)
        assert await upstream.read_some() == b"hello"
        task = asyncio.create_task(upstream.read_some())
        await turns(2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        upstream.close()
        await eventually(lambda: http1.connections == 0 and not server.tasks)


@pytest.mark.usefixtures("trusted")
async def test_a_slow_reader_over_tls(http1: Http1Transport) -> None:
    piece = bytes(range(256)) * 256
    written = 0

    async def script(peer: Peer) -> None:
        nonlocal written
        await peer.request()
        peer.writer.write(OK + b"content-length: %d\r\n\r\n" % (len(piece) * 400))
        for _ in range(400):
            peer.writer.write(piece)
            await peer.writer.drain()
            written += len(piece)
        await peer.left()

    async with scripted(script, tls=tls()) as server:
        upstream = await http1.send("POST", server.url, (), b"{}", 5.0)
        still, last = 0, -1
        while still < 50:
            still = still + 1 if written == last else 0
            last = written
            await turns(5)
        assert written < len(piece) * 400
        size = 0
        while data := await upstream.read_some():
            size += len(data)
        upstream.release()
        assert size == len(piece) * 400


@pytest.mark.usefixtures("trusted")
@pytest.mark.asyncio(loop_factories=["uvloop"])
async def test_an_answer_without_framing_that_tls_did_not_end_is_cut(http1: Http1Transport) -> None:
    """Anybody on the way can close a TCP connection; only the backend can say over TLS that it ends. (asyncio's own loop hides this.)"""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(OK + b"\r\nhello")
        peer.writer.transport.abort()

    async with scripted(script, tls=tls()) as server:
        assert not (await ask(http1, server.url)).whole


# -- what is left behind


@contextmanager
def without_collector() -> Iterator[list[object]]:
    """Yields a list that in the end holds what only the garbage collector could free."""
    found: list[object] = []
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    gc.garbage.clear()
    try:
        yield found
        gc.collect()
        found += gc.garbage
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def ours(found: list[object]) -> list[str]:
    """Of these, our own objects and what a cycle of ours would hold."""
    return [repr(type(each)) for each in found if type(each).__module__.startswith(("gateway.", "httptools."))]


@pytest.mark.parametrize("outcome", ["whole", "broken", "closed", "refused"])
async def test_an_exchange_leaves_nothing_for_the_garbage_collector(http1: Http1Transport, outcome: str) -> None:
    answers = {
        "whole": OK + b"transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "broken": OK + b"content-length: 50\r\n\r\nhello",
        "closed": HELLO,
        "refused": OK + b"transfer-encoding: gzip\r\n\r\nhello",
    }

    async def script(peer: Peer) -> None:
        while True:
            await peer.request()
            await peer.send(answers[outcome])
            if outcome == "broken":
                return

    async with scripted(script) as server:
        await ask(http1, server.url)
        with without_collector() as found:
            for _ in range(100):
                if outcome == "closed":
                    upstream = await http1.send("POST", server.url, (), b"{}", 5.0)
                    upstream.close()
                    del upstream
                else:
                    await ask(http1, server.url)
            await turns(10)
        assert not ours(found)
        if outcome == "whole":
            assert len(server.peers) == 1


@pytest.mark.parametrize("reads", [True, False])
async def test_close_closes_even_what_is_whole_and_release_only_keeps_what_was_read(http1: Http1Transport, reads: bool) -> None:
    async with scripted(hello) as server:
        upstream = await http1.send("POST", server.url, (), b"{}", 5.0)
        if reads:
            assert (await upstream.read_some(), await upstream.read_some()) == (b"hello", b"")
            upstream.close()
        else:
            upstream.release()
        await eventually(lambda: http1.connections == 0 and not server.tasks, within_s=2.0)


async def test_a_read_that_waits_ends_when_the_answer_is_closed_by_another_task(http1: Http1Transport) -> None:
    async with answering(OK + b"content-length: 9\r\n\r\n") as server:
        upstream = await http1.send("POST", server.url, (), b"{}", 5.0)
        task = asyncio.create_task(upstream.read_some())
        await turns(2)
        upstream.close()
        with pytest.raises(Broken):
            await task
        with pytest.raises(Broken):
            await upstream.read_some()


async def test_a_fault_of_our_own_is_not_taken_for_the_backends(http1: Http1Transport, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends the exchange, and is seen by whoever watches the loop."""
    seen: list[BaseException] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: seen.append(context["exception"]))
    monkeypatch.setattr("gateway.pool.http1.Reply.on_header", lambda *_: 1 / 0)
    async with answering(HELLO) as server:
        assert not (await ask(http1, server.url)).whole
    assert [type(each.__context__) for each in seen] == [ZeroDivisionError]
