"""The short way through the gateway: who takes it, who does not, and that nobody can tell from the answer."""

from __future__ import annotations

import asyncio
import json
import re

import pytest
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from gateway.http import server as http_server
from gateway.http.hot import LONGEST, HotCycle, fits
from gateway.http.protocol import AsgiOnly, Protocol
from gateway.mock import Behaviour, MockBackend
from tests.support.asking import CHAT, question
from tests.support.raw import Wire, request, wire
from tests.support.running import KEY, Running
from tests.support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

ASK = json.dumps(question()).encode()
HEAD = f"host: x\r\nauthorization: Bearer {KEY}\r\n"


def short(run: Running) -> list[bool]:
    """Of each request that runs, whether it took the short way."""
    running = [each._running for each in run.server.server_state.connections if isinstance(each, Protocol)]
    return [isinstance(each, HotCycle) and each.task is not None for each in running if each is not None and not each.response_complete]


async def way_of(run: Running, mock: MockBackend, *parts: bytes) -> bool:
    """Whether a request that comes in these parts takes the short way; it is given up once it has reached the backend."""
    mock.script(Behaviour(never_answer=True))
    before = mock.in_flight
    async with wire(run.url) as connection:
        for part in parts:
            connection.send(part)
            await connection.writer.drain()
        await mock.wait_for(lambda m: m.in_flight == before + 1)
        (way,) = short(run)
    await mock.wait_for(lambda m: m.in_flight == before)
    return way


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/v1/embeddings"])
async def test_a_plain_request_takes_it(gateway: Running, mock: MockBackend, path: str) -> None:
    assert await way_of(gateway, mock, request(ASK, path))


async def test_a_body_that_comes_behind_its_head_takes_it_too(gateway: Running, mock: MockBackend) -> None:
    """As most clients send it: one packet for the head, one for the body."""
    whole = request(ASK)
    at = whole.index(b"\r\n\r\n") + 4
    assert await way_of(gateway, mock, whole[:at], whole[at : at + 7], whole[at + 7 :])


LONG = json.dumps(question(user="x" * LONGEST)).encode()
UNUSUAL = {
    "another path": request(ASK, "/v1/rerank"),
    "a query": request(ASK, CHAT + "?a=1"),
    "a long body": request(LONG),
    "chunks": f"POST {CHAT} HTTP/1.1\r\n{HEAD}transfer-encoding: chunked\r\n\r\n{len(ASK):x}\r\n".encode() + ASK + b"\r\n0\r\n\r\n",
    "Expect": request(ASK, CHAT, "expect: 100-continue"),
    "HTTP/1.0": request(ASK).replace(b"HTTP/1.1", b"HTTP/1.0", 1),
    "an offer of h2c": request(ASK, CHAT, "connection: upgrade, http2-settings", "upgrade: h2c", "http2-settings: AAMAAABk"),
}


@pytest.mark.parametrize("kind", [kind for kind in UNUSUAL if kind != "an offer of h2c"])
async def test_what_is_unusual_goes_through_asgi(gateway: Running, mock: MockBackend, kind: str) -> None:
    assert not await way_of(gateway, mock, UNUSUAL[kind])


async def test_a_request_behind_another_goes_through_asgi(gateway: Running, mock: MockBackend) -> None:
    mock.script(Behaviour(), Behaviour(never_answer=True))
    async with wire(gateway.url) as connection:
        connection.send(request(ASK) * 2)
        assert (await connection.answer()).status == 200
        await mock.wait_for(lambda m: m.in_flight == 1 and len(m.requests_to(CHAT)) == 2)
        assert short(gateway) == [False]


_VARIES = re.compile(
    rb"chatcmpl-[\w-]+|(?:req_)?[0-9a-f]{32}(?:-[0-9a-f]{12})?|(?<=overhead-ms: )[0-9.]+|(?<=date: )[^\r]+|(?<=\"created\":)[0-9]+"
)


def masked(answer: bytes) -> bytes:
    """Without what differs from request to request: ids, times."""
    return _VARIES.sub(b"#", answer)


def events(body: bytes) -> bytes:
    """Without the chunks of HTTP, which depend on what was there to be read at once."""
    return re.sub(rb"(?:^|\r\n)[0-9a-f]+\r\n", b"", body)


async def raw_answer(run: Running, ask: bytes) -> bytes:
    async with wire(run.url) as connection:
        connection.send(ask)
        return await connection.reader.read()


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize(
    "behaviour",
    [
        Behaviour(text="one two"),
        Behaviour(status=400),
        Behaviour(status=429, headers={"retry-after": "7"}),
        Behaviour(status=502, body="<html>"),
        Behaviour(reset_after_events=3, cut_wait_s=0.05),
    ],
    ids=["good", "400", "429", "html", "reset"],
)
async def test_nobody_can_tell_from_the_bytes(gateway: Running, mock: MockBackend, behaviour: Behaviour, stream: bool) -> None:
    """The same status line, headers and body, whichever way was taken."""
    body = json.dumps(question(stream=stream)).encode()
    answers = []
    for hot in (True, False):
        mock.script(behaviour, behaviour, behaviour)
        for each in gateway.gateway.state.backends.values():
            each.breaker = type(each.breaker)(each.breaker._now)
        Protocol.hot = hot
        try:
            answers.append(masked(await raw_answer(gateway, request(body, CHAT, "connection: close"))))
        finally:
            Protocol.hot = True
    heads, bodies = zip(*[each.split(b"\r\n\r\n", 1) for each in answers], strict=True)
    assert sorted(heads[0].split(b"\r\n")) == sorted(heads[1].split(b"\r\n"))
    assert events(bodies[0]) == events(bodies[1])


async def test_an_answer_that_cannot_be_sent_costs_its_connection_only(
    gateway: Running, mock: MockBackend, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Should a header ever hold a line break, it does not become two headers."""
    monkeypatch.setattr(HotCycle, "default_headers", [(b"x-evil", b"a\r\nset-cookie: b")], raising=False)
    monkeypatch.setattr(RequestResponseCycle, "__init__", _forgetful(RequestResponseCycle.__init__))
    async with wire(gateway.url) as connection:
        connection.post(ASK)
        assert await connection.ended()
    monkeypatch.undo()
    assert [record.message for record in caplog.records if record.exc_info] != []
    async with wire(gateway.url) as connection:
        connection.post(ASK)
        assert (await connection.answer()).status == 200


def _forgetful(init: object) -> object:
    def without_default_headers(self: RequestResponseCycle, **given: object) -> None:
        init(self, **given)  # type: ignore[operator]
        if isinstance(self, HotCycle):
            del self.default_headers

    return without_default_headers


async def test_who_leaves_in_the_middle_of_a_body_is_on_record(gateway: Running) -> None:
    async with wire(gateway.url) as connection:
        connection.send(request(ASK)[:-5])
        await until(lambda: _bodies(gateway) == [len(ASK) - 5], "half a body")
    await gateway.until_settled(1)
    assert [receipt.outcome for receipt in gateway.settled] == ["client_closed"]


def _bodies(run: Running) -> list[int]:
    return [len(each.cycle.body) for each in run.server.server_state.connections if each.cycle is not None]  # type: ignore[union-attr]


async def test_a_connection_serves_one_request_after_another(gateway: Running, mock: MockBackend) -> None:
    async with wire(gateway.url) as connection:
        for number in range(50):
            mock.script(Behaviour(text=f"answer {number}"))
            connection.post(ASK)
            answer = await connection.answer()
            assert json.loads(answer.body)["choices"][0]["message"]["content"] == f"answer {number}"
    assert len({request.connection for request in mock.requests_to(CHAT)}) <= 2


async def test_a_slow_reader_holds_its_own_stream_back(gateway: Running, mock: MockBackend) -> None:
    """What it does not take waits at the backend: the gateway's memory holds a bounded part."""
    event = json.dumps({"choices": [{"index": 0, "delta": {"content": "x" * 50_000}}]})
    mock.script(Behaviour(events=(event,) * 400, split="event"))
    async with wire(gateway.url) as connection:
        connection.post(json.dumps(question(stream=True)).encode())
        status, _ = await connection.head()
        assert status == 200
        await until(lambda: any(each.flow.write_paused for each in gateway.server.server_state.connections), "back-pressure")  # type: ignore[union-attr]
        sent = mock.requests_to(CHAT)[0].events_sent
        assert sent < 400
        assert await _rest(connection) > 400 * 50_000


async def _rest(connection: Wire) -> int:
    size = 0
    async with asyncio.timeout(30):
        while piece := await connection.chunk():
            size += len(piece)
    return size


async def test_a_uvicorn_of_another_make_is_left_alone(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    assert fits()

    class Other(RequestResponseCycle):
        def __init__(self, scope: object) -> None:
            """Takes other arguments."""

    class Older(HttpToolsProtocol):
        on_body = None  # type: ignore[assignment]

    assert not fits(cycle=Other)
    assert not fits(Older)
    monkeypatch.setattr(http_server, "fits", lambda: False)
    assert http_server._protocol(hot=True) is AsgiOnly
    assert "ASGI" in caplog.text
    assert not AsgiOnly.hot
