"""Peers that are broken, hostile or merely unusual, on the level of HTTP/1.1: nothing of them stays, and nobody else notices."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import uvicorn
from starlette.types import Receive, Scope, Send

from gateway.http.protocol import MAX_HEAD, READ, Protocol, ServerState
from gateway.mock import Behaviour, MockBackend
from tests.support.asking import CHAT, question
from tests.support.held import HeldBackend
from tests.support.raw import Wire, request, wire
from tests.support.running import KEY, Running, config_for, running
from tests.support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

ASK = json.dumps(question()).encode()
HEAD = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEY}\r\ncontent-type: application/json\r\n".encode()
LENGTH = b"content-length: %d\r\n" % len(ASK)
HEALTH = b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n"
MEBIBYTE = b"x" * (1 << 20)


@pytest.fixture(autouse=True)
def _nothing_alarming_is_logged(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """A peer's nonsense is no fault of the gateway: no traceback, nothing worse than a warning."""
    yield
    assert [record for record in caplog.records if record.exc_info or record.levelno > logging.WARNING] == []


@pytest_asyncio.fixture(loop_scope="module")
async def peer(gateway: Running) -> AsyncIterator[Wire]:
    """A connection to the gateway."""
    async with wire(gateway.url) as connection:
        yield connection


def resident() -> int:
    """Bytes of memory that this process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def posts(mock: MockBackend) -> list[str]:
    """What the backend was asked."""
    return [request.target for request in mock.requests if request.path != "/v1/models"]


# -- heads


@pytest.mark.parametrize(
    "head",
    [
        b"GET /health HTTP/1.1\r\nx: " + b"y" * (MAX_HEAD + 1_000),
        b"GET /health HTTP/1.1\r\n" + b"a: b\r\n" * (MAX_HEAD // 6 + 1_000),
        b"GET /" + b"z" * (MAX_HEAD + 1_000),
        HEAD + b"transfer-encoding: chunked\r\n\r\n0\r\nx: " + b"y" * (READ + MAX_HEAD + 1_000),
        HEAD + b"transfer-encoding: chunked\r\n\r\n0\r\n" + b"a: b\r\n" * ((READ + MAX_HEAD) // 6 + 1_000),
    ],
    ids=["a header", "headers", "a target", "a trailer", "trailers"],
)
async def test_what_does_not_end_is_cut_off(mock: MockBackend, peer: Wire, head: bytes) -> None:
    peer.send(head)
    answer = await peer.answer()
    assert (answer.status, answer.error["code"], answer.error["type"]) == (431, "caller_bad_framing", "invalid_request_error")
    assert answer.headers["x-request-id"] and answer.headers["connection"] == "close"
    assert await peer.ended()
    assert posts(mock) == []


async def test_thousands_of_headers_within_the_bound_are_served(mock: MockBackend, peer: Wire) -> None:
    peer.send(HEAD + b"a: b\r\n" * 8_000 + LENGTH + b"\r\n" + ASK)
    assert (await peer.answer()).status == 200
    assert [name for name, _ in mock.requests[-1].headers if name.lower() == "a"] == []


async def test_trailers_are_no_headers(mock: MockBackend, peer: Wire) -> None:
    """They come after the decisions that headers make: who calls, and what is asked of the gateway."""
    chunks = b"transfer-encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n" % (len(ASK), ASK)
    peer.send(HEAD + chunks + b"x-trilemma-strategy: nonsense\r\nauthorization: Bearer nobody\r\ntraceparent: 00-1\r\n\r\n")
    assert (await peer.answer()).status == 200
    assert mock.requests[-1].header("traceparent") is None
    peer.send(f"POST {CHAT} HTTP/1.1\r\nhost: x\r\n".encode() + chunks + f"authorization: Bearer {KEY}\r\n\r\n".encode())
    assert (await peer.answer()).status == 401
    assert len(posts(mock)) == 1


# -- bodies


async def test_a_padded_length_is_a_number_or_refused(mock: MockBackend, peer: Wire) -> None:
    """Python reads no number of more than 4,300 digits."""
    peer.send(HEAD + b"content-length: " + b"0" * 5_000 + b"%d\r\n\r\n" % len(ASK) + ASK)
    answer = await peer.answer()
    assert (answer.status, answer.error["code"]) == (413, "caller_body_too_large")
    assert posts(mock) == []


async def test_a_body_longer_than_declared(mock: MockBackend, peer: Wire) -> None:
    """The rest is taken for the next request, which it is not: nothing of either is served."""
    peer.send(HEAD + b"content-length: %d\r\n\r\n" % (len(ASK) - 5) + ASK)
    answer = await peer.answer()
    assert answer.status == 400
    assert await peer.ended()
    assert posts(mock) == []


@pytest.mark.parametrize(("head", "status"), [(HEAD, 413), (b"POST /nothing HTTP/1.1\r\nhost: x\r\n", 404)])
async def test_a_refused_upload_of_a_gigabyte_is_not_kept(gateway: Running, peer: Wire, head: bytes, status: int) -> None:
    """It is answered at once; what comes all the same is read and forgotten, up to a bound at which the connection ends."""
    peer.send(head + b"content-length: 1000000000\r\n\r\n")
    answer = await peer.answer()
    assert answer.status == status
    before = resident()
    for _ in range(40):
        peer.send(MEBIBYTE)
        await peer.writer.drain()
    assert resident() - before < 20 << 20
    with pytest.raises(ConnectionError):
        for _ in range(80):
            peer.send(MEBIBYTE)
            await peer.writer.drain()


async def test_a_refused_upload_may_come_to_its_end(mock: MockBackend, peer: Wire) -> None:
    """Most clients send all of it before they look for an answer; the connection serves on."""
    peer.send(HEAD + b"content-length: 2097152\r\n\r\n" + MEBIBYTE + MEBIBYTE)
    assert (await peer.answer()).status == 413
    peer.send(HEAD + LENGTH + b"\r\n" + ASK)
    assert (await peer.answer()).status == 200
    assert len(posts(mock)) == 1


async def test_a_refusal_before_the_body_ends_the_connection(peer: Wire) -> None:
    """Who waits for `100 Continue` may or may not send the body after another answer: what follows could be either."""
    peer.send(HEAD + b"expect: 100-continue\r\ncontent-length: 100001\r\n\r\n")
    answer = await peer.answer()
    assert (answer.status, answer.headers["connection"]) == (413, "close")
    assert await peer.ended()


async def test_who_waits_to_be_asked_for_its_body(mock: MockBackend, peer: Wire) -> None:
    peer.send(HEAD + b"expect: 100-continue\r\n" + LENGTH + b"\r\n")
    assert await peer.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    peer.send(ASK)
    assert (await peer.answer()).status == 200


# -- several at once


async def test_a_few_requests_may_wait_on_a_connection(peer: Wire) -> None:
    peer.send(HEALTH * 50)
    assert [(await peer.answer()).status for _ in range(50)] == [200] * 50


async def test_thousands_may_not(peer: Wire) -> None:
    peer.send(HEALTH * 3_000)
    answer = await peer.answer()
    assert (answer.status, answer.error["code"]) == (400, "caller_bad_framing")


async def test_a_caller_that_leaves_is_heard_although_others_wait(mock: MockBackend, gateway: Running) -> None:
    """The backend's work for the request that runs ends, and those behind it never begin."""
    mock.script(Behaviour(never_answer=True))
    async with wire(gateway.url) as connection:
        connection.send((HEAD + LENGTH + b"\r\n" + ASK) * 3)
        await mock.wait_for(lambda m: m.in_flight == 1 and bool(posts(m)))
    await mock.wait_for(lambda m: m.aborted == 1)
    await gateway.until_settled(1)
    assert [receipt.outcome for receipt in gateway.settled] == ["client_closed"]
    assert len(posts(mock)) == 1


async def test_what_waits_behind_a_request_is_not_read_without_bound(tmp_path: Path) -> None:
    async with HeldBackend() as held:
        config = config_for({"held": {"url": held.url, "models": {"mock-model": "mock-model"}}})
        async with running(config, tmp_path / "state") as run, wire(run.url) as peer:
            peer.post(json.dumps(question()).encode())
            await held.until_begun()
            (served,) = run.server.server_state.connections
            assert isinstance(served, Protocol)
            peer.send(request(json.dumps(question(user="x" * 60_000)).encode()) * 40)
            await until(lambda: served.flow.read_paused, "no more being read")
            assert sum(len(cycle.body) for cycle, _ in served.pipeline) < 600_000
            held.go.set()
            assert {(await peer.answer()).status for _ in range(41)} == {200}


async def test_nonsense_after_a_request_does_not_get_into_its_answer(mock: MockBackend, gateway: Running, peer: Wire) -> None:
    """A stream that runs is cut, without an HTTP head in the middle of its events."""
    body = json.dumps(question(stream=True)).encode()
    mock.script(Behaviour(tokens=("a", "b"), stall_after_events=1))
    peer.send(HEAD + b"content-length: %d\r\n\r\n" % len(body) + body)
    assert (await peer.head())[0] == 200
    assert b"assistant" in await peer.chunk()
    peer.send(b"\x00\x01 nonsense\r\n\r\n")
    assert await peer.reader.read() == b""
    await mock.wait_for(lambda m: m.aborted == 1)


async def test_a_large_body_and_the_head_behind_it_are_two_things(quiet: tuple[Protocol, Pipe, Clock]) -> None:
    """In one read: the bytes of the first are not held against the second."""
    protocol, pipe, _ = quiet
    large = b"POST / HTTP/1.1\r\ncontent-length: 200000\r\n\r\n" + b"x" * 200_000
    protocol.data_received(large + b"POST / HTTP/1.1\r\ncontent-length: 1\r\n\r\n")
    await until(lambda: b"204" in pipe.written, "an answer")
    protocol.data_received(b"x")
    await until(lambda: pipe.written.count(b" 204 ") == 2, "another")
    assert b"431" not in pipe.written and not pipe.closed


# -- other protocols


async def test_http_2_is_declined_and_the_request_served(mock: MockBackend, peer: Wire) -> None:
    """As Java's client asks, on its first request: the body counts, and the connection serves on in HTTP/1.1."""
    offer = b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA\r\n"
    peer.send(HEAD + offer + LENGTH + b"\r\n" + ASK)
    assert (await peer.answer()).status == 200
    peer.send(HEAD + LENGTH + b"\r\n" + ASK)
    assert (await peer.answer()).status == 200
    assert [(request.target, request.body) for request in mock.requests if request.method == "POST"] == [(CHAT, ASK)] * 2
    assert mock.requests[-2].header("upgrade") is None and mock.requests[-2].header("http2-settings") is None


async def test_a_body_behind_an_offer_is_not_taken_for_a_request(mock: MockBackend, gateway: Running, peer: Wire) -> None:
    hidden = HEAD + LENGTH + b"\r\n" + ASK
    offer = b"connection: upgrade\r\nupgrade: h2c\r\ncontent-length: %d\r\n\r\n" % len(hidden)
    peer.send(f"POST {CHAT} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEY}\r\n".encode() + offer)
    peer.send(hidden)
    assert (await peer.answer()).error["code"] == "caller_invalid_json"
    peer.send(HEALTH)
    assert (await peer.answer()).status == 200
    assert posts(mock) == []


@pytest.mark.parametrize(("target", "status"), [("/health", 200), ("/v1/realtime", 404), (CHAT, 405)])
async def test_a_web_socket_is_declined(gateway: Running, peer: Wire, target: str, status: int) -> None:
    offer = "connection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    peer.send(f"GET {target} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEY}\r\n{offer}\r\n".encode())
    assert (await peer.answer()).status == status
    peer.send(HEALTH)
    assert (await peer.answer()).status == 200


async def test_the_gateway_is_no_proxy(mock: MockBackend, peer: Wire) -> None:
    peer.send(f"CONNECT {mock.url.removeprefix('http://')} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
    answer = await peer.answer()
    assert (answer.status, answer.error["type"]) == (405, "invalid_request_error")
    assert await peer.ended()
    assert posts(mock) == []


async def test_http_1_0(mock: MockBackend, peer: Wire) -> None:
    """Served, and the connection ends, as was the rule."""
    peer.send(HEAD.replace(b"HTTP/1.1", b"HTTP/1.0") + LENGTH + b"\r\n" + ASK)
    answer = await peer.answer()
    assert (answer.status, answer.headers["connection"]) == (200, "close")
    assert await peer.ended()


# -- silence, on a clock that stands still


KEEP_ALIVE_S = 5


class Clock:
    """A loop whose time passes when a test says so; its tasks are those of the running loop."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.timers: list[tuple[float, Callable[[], None], list[bool]]] = []

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, callback: Callable[[], None]) -> Any:
        timer = self.now + delay, callback, [True]
        self.timers.append(timer)
        return type("Handle", (), {"cancel": lambda _self: timer[2].clear()})()

    def create_task(self, work: Any) -> asyncio.Task[Any]:
        return asyncio.get_running_loop().create_task(work)

    def pass_keep_alive(self) -> None:
        """So much time passes, and what is due then is done."""
        self.passes(KEEP_ALIVE_S)

    def passes(self, seconds: float) -> None:
        """Time passes from one timer to the next."""
        until = self.now + seconds
        while due := [timer for timer in self.timers if timer[0] <= until]:
            timer = min(due, key=lambda each: each[0])
            self.timers.remove(timer)
            self.now = max(self.now, timer[0])
            if timer[2]:
                timer[1]()
        self.now = until


class Pipe(asyncio.Transport):
    """What the peer sees: what was written, and whether the connection ended."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.unread = 0
        self.closed = False

    def write(self, data: Any) -> None:
        self.written += bytes(data)

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def abort(self) -> None:
        self.closed = True

    def get_write_buffer_size(self) -> int:
        return self.unread

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


@pytest.fixture
def quiet() -> tuple[Protocol, Pipe, Clock]:
    """A connection to an application that answers once it has the body."""

    async def application(_scope: Scope, receive: Receive, send: Send) -> None:
        while (message := await receive()).get("more_body"):
            pass
        if message["type"] == "http.request":
            await send({"type": "http.response.start", "status": 204, "headers": []})
            await send({"type": "http.response.body"})

    clock, pipe = Clock(), Pipe()
    config = uvicorn.Config(application, log_config=None, timeout_keep_alive=KEEP_ALIVE_S)
    protocol = Protocol(config, ServerState(), {}, _loop=clock)  # type: ignore[arg-type]
    protocol.connection_made(pipe)
    return protocol, pipe, clock


async def answered(pipe: Pipe) -> None:
    await until(lambda: b"204" in pipe.written, "an answer")


async def test_a_connection_without_a_request_ends(quiet: tuple[Protocol, Pipe, Clock]) -> None:
    _, pipe, clock = quiet
    clock.pass_keep_alive()
    assert (pipe.closed, pipe.written) == (True, b"")


async def test_a_head_comes_whole_or_not_at_all(quiet: tuple[Protocol, Pipe, Clock]) -> None:
    """Also when a byte of it comes now and then."""
    protocol, pipe, clock = quiet
    protocol.data_received(b"GET / HTTP/1.1\r\nx: ")
    clock.pass_keep_alive()
    assert not pipe.closed
    protocol.data_received(b"y")
    clock.pass_keep_alive()
    assert pipe.closed and pipe.written.startswith(b"HTTP/1.1 408 Request Timeout\r\n")
    assert json.loads(pipe.written.partition(b"\r\n\r\n")[2])["error"]["code"] == "caller_bad_framing"


async def test_a_body_may_be_slow_but_not_stand_still(quiet: tuple[Protocol, Pipe, Clock]) -> None:
    protocol, pipe, clock = quiet
    protocol.data_received(b"POST / HTTP/1.1\r\ncontent-length: 100\r\n\r\n")
    for _ in range(50):
        clock.pass_keep_alive()
        assert not pipe.closed
        protocol.data_received(b"x")
        await asyncio.sleep(0)
    clock.pass_keep_alive()
    clock.pass_keep_alive()
    assert pipe.closed and pipe.written.startswith(b"HTTP/1.1 408 ")


async def test_a_request_that_runs_and_a_pause_between_two_are_not_silence(quiet: tuple[Protocol, Pipe, Clock]) -> None:
    """Nothing is to come from the caller while it waits; and afterwards the keep-alive time is its own, counted once."""
    protocol, pipe, clock = quiet
    protocol.data_received(b"POST / HTTP/1.1\r\ncontent-length: 1\r\n\r\nx")
    ended = []
    for _ in range(5):
        clock.pass_keep_alive()
        ended.append(pipe.closed)
    await answered(pipe)
    for _ in range(2):
        ended.append(pipe.closed)
        clock.pass_keep_alive()
    assert ended == [False] * 6 + [True]
    assert b"408" not in pipe.written


@pytest.mark.parametrize("since_s", [1, 4])
async def test_an_idle_connection_ends_when_it_has_been_idle_for_the_keep_alive_time(
    quiet: tuple[Protocol, Pipe, Clock], since_s: int
) -> None:
    """Neither earlier nor later, whenever in its life it became idle."""
    protocol, pipe, clock = quiet
    for _ in range(3):
        pipe.written = b""
        clock.passes(since_s)
        protocol.data_received(b"POST / HTTP/1.1\r\ncontent-length: 1\r\n\r\nx")
        await answered(pipe)
    ended = []
    for seconds in (KEEP_ALIVE_S - 0.001, 0.001):
        clock.passes(seconds)
        ended.append(pipe.closed)
    assert ended == [False, True]


async def test_an_idle_connection_s_next_head_does_not_outlive_the_keep_alive_time(quiet: tuple[Protocol, Pipe, Clock]) -> None:
    protocol, pipe, clock = quiet
    protocol.data_received(b"POST / HTTP/1.1\r\ncontent-length: 1\r\n\r\nx")
    await answered(pipe)
    protocol.data_received(b"GET / HTTP/1.1\r\n")
    clock.pass_keep_alive()
    assert pipe.closed


async def test_who_reads_slowly_is_served_and_who_does_not_read_is_not(quiet: tuple[Protocol, Pipe, Clock]) -> None:
    protocol, pipe, clock = quiet
    protocol.data_received(b"POST / HTTP/1.1\r\ncontent-length: 1\r\n\r\nx")
    protocol.pause_writing()
    for pipe.unread in (300, 200, 100):
        clock.pass_keep_alive()
        assert not pipe.closed
    clock.pass_keep_alive()
    assert pipe.closed
    protocol.connection_lost(None)


async def test_no_timer_outlives_its_connection(quiet: tuple[Protocol, Pipe, Clock]) -> None:
    protocol, _, clock = quiet
    protocol.data_received(b"GET / HTTP/1.1\r\n")
    protocol.connection_lost(None)
    assert not [active for _, _, active in clock.timers if active]


async def test_an_answer_that_nobody_reads_over_a_real_socket(mock: MockBackend, tmp_path: Path) -> None:
    """The client is there, but takes nothing: its request ends, and the backend's work for it."""
    config = config_for({"mock": {"url": mock.url, "models": {"mock-model": "mock-model"}}}, server={"keep_alive_s": 1})
    event = json.dumps({"choices": [{"index": 0, "delta": {"content": "x" * 200_000}, "finish_reason": None}]})
    mock.script(Behaviour(events=(event,) * 200))
    async with running(config, tmp_path / "state") as run, wire(run.url) as connection:
        connection.writer.transport.pause_reading()  # type: ignore[attr-defined]
        connection.post(json.dumps(question(stream=True)).encode())
        await run.until_settled(1, 20)
        assert (run.settled[0].outcome, run.in_flight()) == ("client_closed", 0)
        await mock.wait_for(lambda m: m.aborted == 1)


async def test_a_slow_but_steady_reader_gets_all_of_it(mock: MockBackend, tmp_path: Path) -> None:
    """It takes a little several times within each keep-alive time, though much less than what waits for it in the kernel's buffers."""
    config = config_for({"mock": {"url": mock.url, "models": {"mock-model": "mock-model"}}}, server={"keep_alive_s": 1})
    event = json.dumps({"choices": [{"index": 0, "delta": {"content": "x" * 200_000}, "finish_reason": None}]})
    mock.script(Behaviour(events=(event,) * 100))
    async with running(config, tmp_path / "state") as run, wire(run.url) as connection:
        connection.post(json.dumps(question(stream=True)).encode())
        (protocol,) = run.server.server_state.connections
        assert isinstance(protocol, Protocol)
        looks, look = 0, protocol._look

        def counted() -> None:
            nonlocal looks
            looks += 1
            look()

        protocol._look = counted  # type: ignore[method-assign]
        status, _ = await connection.head()
        assert status == 200
        size = 0
        while looks < 4:  # the pace of a slow reader, not a wait for anything
            piece = await asyncio.wait_for(connection.reader.read(20_000), 10)
            assert piece, "it was cut off"
            size += len(piece)
            await asyncio.sleep(0.05)
        assert size < 10_000_000, "much was still to come"
        while piece := await asyncio.wait_for(connection.reader.read(1 << 20), 30):
            size += len(piece)
            if piece.endswith(b"0\r\n\r\n"):
                break
        assert size > 20_000_000
        await run.until_settled(1)
        assert run.settled[0].outcome == "ok"


async def test_half_a_body_over_a_real_socket(mock: MockBackend, tmp_path: Path) -> None:
    """Declared longer than it is, and then silence: 408, and nothing of it is left."""
    config = config_for({"mock": {"url": mock.url, "models": {"mock-model": "mock-model"}}}, server={"keep_alive_s": 1})
    async with running(config, tmp_path / "state") as run, wire(run.url) as connection:
        connection.send(HEAD + b"content-length: %d\r\n\r\n" % (len(ASK) + 1) + ASK)
        answer = await connection.answer()
        assert (answer.status, answer.error["type"]) == (408, "invalid_request_error")
        assert await connection.ended()
        await run.until_settled(1)
        assert (run.settled[0].outcome, run.in_flight()) == ("client_closed", 0)
    assert posts(mock) == []
