"""Our client against others, over whatever a server may send: aiohttp's, and h11, which shares no parser with either.

Where they differ on purpose:

- `REFUSED`: shapes that two parsers may read in two ways, or that the standard forbids. We refuse them; aiohttp (lenient towards servers)
  and h11 (lenient in other places) take some of them.
- A reason phrase with control characters: nobody reads it, so llhttp does not mind; h11 does.
- Bytes behind a whole answer: we hand the answer on and drop the connection. aiohttp fails the whole exchange when it reads both at once.

Otherwise we never call an answer whole that h11 does not, nor hand on another body.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import cast

import h11
import pytest
import uvloop
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.pool.aiohttp_transport import AiohttpTransport
from gateway.pool.http1 import Http1Transport
from gateway.pool.transport import ConnectFailed, Transport, TransportError
from tests.pool.answers import HELLO
from tests.pool.generated import Answer, answers
from tests.pool.scripted import Got, ask

REFUSED = {
    # heads
    "folded header": "obsolete (RFC 9112, 5.2)",
    "no colon": "no header",
    "space before colon": "a way to hide framing (RFC 9112, 5.1)",
    "empty name": "no header",
    "name that is no token": "no header",
    "NUL": "no field value",
    "control character": "no field value",
    "bare LF": "a line end to some",
    "bare CR": "a line end to some",
    "HTTP/1.2": "there is none",
    "http/1.1": "the name is in capitals",
    # interim answers
    "interim with length": "framing is forbidden there (RFC 9110, 8.6), and some would read a body",
    "unknown interim with body": "the same",
    "interim in chunks": "forbidden (RFC 9112, 6.1)",
    "interim that closes": "nothing can follow it",
    "upgrade": "was not asked for",
    # framing
    "both framings": "a way to smuggle (RFC 9112, 6.3)",
    "two lengths": "the same, even when they agree",
    "list of lengths": "the same",
    "negative length": "no length",
    "signed length": "no length",
    "hex length": "no length",
    "space in length": "no length",
    "coding under chunked": "was not asked for, and would be handed on undone",
    "coding over chunked": "the same",
    "other coding": "the same",
    "identity": "no longer exists",
    "like chunked": "no coding",
    "chunked twice": "forbidden (RFC 9112, 6.1)",
    "chunked with parameter": "chunked has none",
    "less": "ends early",
    "framing in trailers": "forbidden (RFC 9110, 6.5.1)",
    "bad size": "no chunk",
    "no last chunk": "the end is missing",
    "no end": "no chunk",
    "bare LF in chunks": "a line end to some",
    "space after size": "not in the grammar",
    # anything may come of these
    "cut": "ends early",
    "changed byte": "any of the above",
}


@dataclass
class Served:
    """What `Answering` is to send, and what `Reading` has read."""

    pieces: tuple[bytes, ...] = ()
    requests: list[tuple[h11.Request, bytes]] = field(default_factory=list)
    nonsense: list[str] = field(default_factory=list)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)


class Answering(asyncio.Protocol):
    """Sends the server's pieces, one by one, and closes."""

    def __init__(self, server: Served) -> None:
        self.server = server

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        assert data.endswith(b"\r\n\r\n")
        task = asyncio.get_running_loop().create_task(self.send())
        self.server.tasks.add(task)
        task.add_done_callback(self.server.tasks.discard)

    async def send(self) -> None:
        for piece in self.server.pieces:
            if self.transport.is_closing():
                return
            self.transport.write(piece)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        self.transport.close()


class Reading(asyncio.Protocol):
    """Notes what h11 makes of the bytes that come, and answers each request."""

    def __init__(self, server: Served) -> None:
        self.server = server
        self.connection = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)
        self.request: h11.Request | None = None
        self.body = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        try:
            self.connection.receive_data(data)
            while True:
                event = self.connection.next_event()
                if event is h11.NEED_DATA:
                    return
                if isinstance(event, h11.Request):
                    self.request, self.body = event, b""
                elif isinstance(event, h11.Data):
                    self.body += bytes(event.data)
                elif isinstance(event, h11.EndOfMessage):
                    assert self.request is not None
                    self.server.requests.append((self.request, self.body))
                    self.connection.send(h11.Response(status_code=200, headers=[("content-length", "5")]))
                    self.connection.send(h11.Data(data=b"hello"))
                    self.connection.send(h11.EndOfMessage())
                    self.connection.start_next_cycle()
                    self.transport.write(HELLO)
        except h11.RemoteProtocolError as error:
            self.server.nonsense.append(str(error))
            self.transport.close()


@dataclass
class Bench:
    """Both clients and both servers on one loop, for many examples."""

    runner: asyncio.Runner
    server: Served
    ours: Transport
    theirs: Transport
    answering: str
    reading: str

    def run_both(self, answer: Answer) -> tuple[Got, Got]:
        self.server.pieces = answer.pieces

        async def both() -> tuple[Got, Got]:
            return await ask(self.ours, self.answering, "GET", b""), await ask(self.theirs, self.answering, "GET", b"")

        return self.runner.run(both())

    def send(self, method: str, tail: str, headers: list[tuple[bytes, bytes]], body: bytes) -> Got:
        self.server.requests.clear()
        self.server.nonsense.clear()
        return self.runner.run(ask(self.ours, self.reading + tail, method, body, headers))


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    server = Served()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner, pytest.MonkeyPatch.context() as patched:
        patched.setenv("NO_PROXY", "127.0.0.1")

        async def start() -> tuple[Transport, Transport, list[asyncio.Server]]:
            loop = asyncio.get_running_loop()
            servers = [
                await loop.create_server(lambda: Answering(server), "127.0.0.1", 0),
                await loop.create_server(lambda: Reading(server), "127.0.0.1", 0),
            ]
            return Http1Transport(), AiohttpTransport(), servers

        ours, theirs, servers = runner.run(start())
        urls = [f"http://127.0.0.1:{each.sockets[0].getsockname()[1]}" for each in servers]
        yield Bench(runner, server, ours, theirs, urls[0] + "/v1/x", urls[1])

        async def stop() -> None:
            await ours.close()
            await theirs.close()
            for each in servers:
                each.close()
            await asyncio.sleep(0.01)

        runner.run(stop())


def by_h11(raw: bytes) -> tuple[int, bytes, bool, bytes]:
    """(status, body, whole, bytes behind the answer), as h11 reads them."""
    connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=1 << 20)
    connection.send(h11.Request(method="GET", target="/", headers=[("host", "h")]))
    connection.send(h11.EndOfMessage())
    status, body, ended = 0, b"", False
    connection.receive_data(raw)
    try:
        while True:
            event = connection.next_event()
            if isinstance(event, h11.Response):
                status = event.status_code
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                return status, body, True, connection.trailing_data[0]
            elif event is h11.NEED_DATA and not ended:
                connection.receive_data(b"")
                ended = True
            elif not isinstance(event, h11.InformationalResponse):
                return status, body, False, b""
    except h11.RemoteProtocolError:
        return status, body, False, b""


def odd_reason(raw: bytes) -> bool:
    """Whether a status line's reason holds what it must not."""
    reasons = [line[12:] for line in raw.split(b"\r\n") if line.startswith(b"HTTP/1.")]
    return any(byte < 0x20 or byte == 0x7F for reason in reasons for byte in reason)


@settings(max_examples=600, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(answer=answers())
def test_clients_agree_on_any_answer(bench: Bench, answer: Answer) -> None:
    ours, theirs = bench.run_both(answer)
    status, body, whole, behind = by_h11(answer.raw)
    if ours.whole:
        if not whole:
            assert odd_reason(answer.raw), f"h11 sees no end: {answer}"
            return
        assert (ours.status, ours.body) == (status, body)
        if theirs.whole:
            assert (ours.status, ours.body) == (theirs.status, theirs.body)
        else:
            assert behind, "only what follows an answer is a reason for aiohttp to refuse what we take"
    else:
        assert ours.failure is not None
        assert answer.odd & REFUSED.keys(), f"refused without reason: {ours.failure}: {answer}"
        assert not ours.failure.untouched
        if status and ours.status:  # what was handed on before the end was right
            assert ours.status == status
            assert ours.body.startswith(body) or body.startswith(ours.body)


# -- requests

METHODS = st.sampled_from(["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
TOKEN = st.text("abcdefghijklmnopqrstuvwxyzABC0123456789-_.!~", min_size=1, max_size=10).map(lambda name: b"x-" + name.encode())
TEXT = st.binary(max_size=20).map(lambda raw: bytes(byte for byte in raw if byte >= 0x20 and byte != 0x7F).strip())
BODY = st.one_of(st.just(b""), st.binary(max_size=400), st.just(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"), st.just(b"0\r\n\r\n"))
TAIL = st.from_regex(r"\A(?:/[!-\"$->@-~]{0,8}){0,4}(?:\?[!-\"$-~]{0,16})?\Z")


@settings(max_examples=400, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(method=METHODS, tail=TAIL, headers=st.lists(st.tuples(TOKEN, TEXT), max_size=6), body=BODY)
def test_a_request_means_what_was_asked_exactly_once(
    bench: Bench, method: str, tail: str, headers: list[tuple[bytes, bytes]], body: bytes
) -> None:
    assert bench.send(method, tail, headers, body).body == b"hello"
    assert not bench.server.nonsense
    ((request, received),) = bench.server.requests
    assert request.method == method.encode()
    assert request.target == (tail if tail.startswith("/") else "/" + tail).encode()
    assert received == body
    found = list(request.headers)
    assert found.pop(0) == (b"host", bench.reading.removeprefix("http://").encode())
    if body or method not in ("GET", "DELETE", "OPTIONS"):
        assert found.pop() == (b"content-length", b"%d" % len(body))
    assert found == [(name.lower(), value) for name, value in headers]


ANYTHING = st.one_of(
    st.binary(max_size=12),
    st.sampled_from([b"a\r\nx-evil: 1", b"a\n", b"\r", b"a\r\n\r\nGET /evil HTTP/1.1\r\nhost: a\r\n\r\n", b"a\r\ncontent-length: 0\r\n"]),
)


@settings(max_examples=600, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(values=st.lists(ANYTHING, min_size=1, max_size=3), body=BODY)
def test_no_header_value_can_be_more_than_a_value(bench: Bench, values: list[bytes], body: bytes) -> None:
    """With a line end in it, it is not sent at all; with a control character, a strict server refuses the request as a whole."""
    try:
        bench.send("POST", "/v1/x", [(b"x-a", value) for value in values], body)
    except TransportError:
        assert any(b"\r" in value or b"\n" in value for value in values)
        assert not bench.server.requests
        assert not bench.server.nonsense
        return
    assert not any(b"\r" in value or b"\n" in value for value in values)
    if bench.server.nonsense:
        assert not bench.server.requests
        assert any(byte < 0x20 or byte == 0x7F for value in values for byte in value)
    else:
        ((request, received),) = bench.server.requests
        assert received == body
        assert [name for name, _ in request.headers] == [b"host", *[b"x-a"] * len(values), b"content-length"]


@settings(max_examples=600, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(tail=st.one_of(st.text(max_size=12), st.sampled_from([" HTTP/1.1\r\nx-evil: 1\r\n\r\n", "\t", "#a", "\u2028", "é", "\x85"])))
def test_a_url_is_sent_as_it_is_or_not_at_all(bench: Bench, tail: str) -> None:
    sendable = all("!" <= letter <= "~" and letter != "#" for letter in tail)
    try:
        bench.send("GET", "/v1/x" + tail, [], b"")
    except ConnectFailed:
        assert not sendable
        assert not bench.server.requests
        return
    assert sendable
    ((request, _),) = bench.server.requests
    assert request.target == b"/v1/x" + tail.encode()
