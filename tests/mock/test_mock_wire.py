"""What the mock can do to a connection, seen by clients on real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import zlib
from typing import Any

import httpx
import msgspec
import pytest

from gateway.mock import Behaviour, MockBackend

CHAT = {"model": "smollm2-135m", "messages": [{"role": "user", "content": "hi"}]}
STREAM = {**CHAT, "stream": True}
SNOW = ("é", "漢", "🙂", " e\u0301")


def post(body: dict[str, Any], path: str = "/v1/chat/completions", *headers: str) -> bytes:
    payload = json.dumps(body).encode()
    lines = [f"POST {path} HTTP/1.1", "Host: mock", f"Content-Length: {len(payload)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + payload


async def connect(mock: MockBackend) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    url = httpx.URL(mock.url)
    return await asyncio.open_connection(url.host, url.port)


async def until_end(mock: MockBackend, request: bytes) -> tuple[bytes, str]:
    """Sends the request, reads until the mock ends the connection: what came, and the end ("close" or "reset")."""
    reader, writer = await connect(mock)
    writer.write(request)
    data = b""
    try:
        async with asyncio.timeout(10):
            while block := await reader.read(65_536):
                data += block
    except ConnectionResetError:
        return data, "reset"
    finally:
        writer.transport.abort()
    return data, "close"


def unchunk(answer: bytes) -> list[bytes]:
    """The HTTP chunks of an answer that may break off."""
    rest, chunks = answer.partition(b"\r\n\r\n")[2], []
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        chunks.append(rest[: int(size, 16)])
        rest = rest[int(size, 16) + 2 :]
    return chunks


def contents(sse: str) -> list[str]:
    """The text deltas of a stream, read by the rules of server-sent events."""
    found = []
    for block in sse.replace("\r\n", "\n").replace("\r", "\n").split("\n\n"):
        data = "\n".join(line[5:].removeprefix(" ") for line in block.split("\n") if line.startswith("data:"))
        if data and data != "[DONE]":
            found += [choice["delta"].get("content", "") for choice in json.loads(data)["choices"]]
    return [text for text in found if text]


def set_fields(behaviour: Behaviour) -> dict[str, Any]:
    default = Behaviour()
    values = {name: getattr(behaviour, name) for name in behaviour.__struct_fields__}
    return {name: value for name, value in values.items() if value != getattr(default, name)}


@pytest.mark.parametrize(
    "wire",
    [
        Behaviour(),
        Behaviour(split=1),
        Behaviour(split=7),
        Behaviour(split="event"),
        Behaviour(split="all"),
        Behaviour(line_end="\r\n"),
        Behaviour(line_end="\r"),
        Behaviour(multi_line_data=True),
        Behaviour(comments=True),
        Behaviour(comments=(": wait", "")),
        Behaviour(framing="close"),
        Behaviour(split=1, line_end="\r\n", multi_line_data=True, comments=True),
        Behaviour(content_encoding="gzip"),
        Behaviour(content_encoding="deflate", split=3),
    ],
    ids=lambda wire: " ".join(f"{name}={value!r}" for name, value in set_fields(wire).items()) or "as the engine",
)
async def test_a_stream_says_the_same_however_it_is_written(mock: MockBackend, client: httpx.AsyncClient, wire: Behaviour) -> None:
    mock.script(msgspec.structs.replace(wire, tokens=SNOW))
    answer = await client.post("/v1/chat/completions", json=STREAM)
    assert contents(answer.text) == list(SNOW)
    assert "data: [DONE]" in answer.text


async def test_split_is_the_size_of_http_chunks(mock: MockBackend) -> None:
    mock.script(Behaviour(tokens=("a",), split=7, close_connection_after="silent"))
    answer, _ = await until_end(mock, post(STREAM))
    *chunks, last = unchunk(answer)
    sizes = [len(chunk) for chunk in chunks]
    assert set(sizes) <= {7, *sizes}
    assert max(sizes) == 7
    assert last == b""


async def test_comments_stand_between_events(mock: MockBackend, client: httpx.AsyncClient) -> None:
    mock.script(Behaviour(events=('{"choices":[]}',), comments=True))
    answer = await client.post("/v1/chat/completions", json=STREAM)
    assert answer.text == ': ping\n:\n: \ndata: {"choices":[]}\n\n: ping\n:\n: \ndata: [DONE]\n\n'


async def test_an_event_in_two_data_lines(mock: MockBackend, client: httpx.AsyncClient) -> None:
    mock.script(Behaviour(events=('{"a":1,"b":2}',), multi_line_data=True, end_without_done=True, line_end="\r\n"))
    answer = await client.post("/v1/chat/completions", json=STREAM)
    assert answer.text == 'data: {"a":1,\r\ndata: "b":2}\r\n\r\n'


@pytest.mark.parametrize("events", [0, 2, 5])
async def test_reset_after_events(mock: MockBackend, events: int) -> None:
    mock.script(Behaviour(tokens=("a", "b", "c"), reset_after_events=events, cut_wait_s=0.05))
    answer, end = await until_end(mock, post(STREAM))
    assert end == "reset"
    assert len(unchunk(answer)) == events
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    (request,) = mock.requests
    assert (request.events_sent, request.cut, request.aborted, mock.in_flight) == (events, True, False, 0)


async def test_close_after_events_terminates_nothing(mock: MockBackend) -> None:
    mock.script(Behaviour(tokens=("a", "b", "c"), close_after_events=3))
    answer, end = await until_end(mock, post(STREAM))
    assert (end, len(unchunk(answer))) == ("close", 3)


@pytest.mark.parametrize(("cut", "end"), [("reset_after_events", "reset"), ("close_after_events", "close")])
async def test_the_connection_ends_before_the_status_line(mock: MockBackend, cut: str, end: str) -> None:
    mock.script(Behaviour(**{cut: -1}))
    assert await until_end(mock, post(CHAT)) == (b"", end)


@pytest.mark.parametrize(("cut", "end"), [("reset_after_bytes", "reset"), ("close_after_bytes", "close")])
async def test_a_whole_answer_breaks_off_after_some_bytes(mock: MockBackend, cut: str, end: str) -> None:
    mock.script(Behaviour(**{cut: 10, "body": '{"choices":[]}', "cut_wait_s": 0.05}))
    answer, how = await until_end(mock, post(CHAT))
    assert (answer.partition(b"\r\n\r\n")[2], how) == (b'{"choices"', end)
    assert b"content-length: 14" in answer


async def test_a_stall_keeps_the_socket_open_until_the_client_leaves(mock: MockBackend) -> None:
    mock.script(Behaviour(tokens=("a", "b", "c"), stall_after_events=2))
    reader, writer = await connect(mock)
    writer.write(post(STREAM))
    await reader.readuntil(b'"content":"a"')
    assert (mock.in_flight, mock.connections, mock.aborted) == (1, 1, 0)
    writer.transport.abort()
    await mock.wait_for(lambda m: m.aborted == 1 and m.connections == 0)
    assert (mock.in_flight, mock.requests[0].events_sent) == (0, 2)


async def test_a_stall_may_send_comments_and_end(mock: MockBackend, client: httpx.AsyncClient) -> None:
    mock.script(Behaviour(events=("{}",), stall_after_events=1, stall_s=0.1, stall_comments_s=0.01))
    answer = await client.post("/v1/chat/completions", json=STREAM)
    assert answer.text.startswith("data: {}\n\n: ping\n\n: ping\n\n")
    assert answer.text.endswith(": ping\n\ndata: [DONE]\n\n")


@pytest.mark.parametrize(
    "behaviour",
    [
        Behaviour(never_answer=True),
        Behaviour(delay_headers_s=60),
        Behaviour(first_token_delay_s=60),
        Behaviour(tokens_per_second=0.01),
        Behaviour(stall_after_events=0),
    ],
    ids=["never", "before the head", "before the first token", "between tokens", "after the head"],
)
@pytest.mark.parametrize("body", [CHAT, STREAM], ids=["whole", "stream"])
@pytest.mark.parametrize("leave", ["reset", "close"])
async def test_a_client_that_leaves_is_heard_at_once(mock: MockBackend, behaviour: Behaviour, body: dict[str, Any], leave: str) -> None:
    mock.script(behaviour)
    _, writer = await connect(mock)
    writer.write(post(body))
    await mock.wait_for(lambda m: m.in_flight == 1)
    if leave == "reset":
        writer.transport.abort()
    else:
        writer.close()
    await mock.wait_for(lambda m: m.aborted == 1 and m.in_flight == 0 and m.connections == 0)


async def test_an_answer_read_to_its_end_is_no_abort(mock: MockBackend) -> None:
    for body in (CHAT, STREAM):
        reader, writer = await connect(mock)
        writer.write(post(body, "/v1/chat/completions"))
        await reader.readuntil(b"data: [DONE]" if body is STREAM else b'"metrics":null}')
        writer.close()
        await mock.wait_for(lambda m: m.connections == 0)
    assert (mock.total, mock.aborted, [request.answered for request in mock.requests]) == (2, 0, [True, True])


async def test_connections_are_kept_and_numbered(mock: MockBackend, client: httpx.AsyncClient) -> None:
    for _ in range(3):
        await client.post("/v1/chat/completions", json=STREAM)
    assert [request.connection for request in mock.requests] == [1, 1, 1]
    assert (mock.opened, mock.connections) == (1, 1)


@pytest.mark.parametrize(("how", "said"), [("header", True), ("silent", False)])
async def test_a_connection_may_end_after_a_whole_answer(mock: MockBackend, how: Any, said: bool) -> None:
    mock.script(Behaviour(close_connection_after=how))
    answer, end = await until_end(mock, post(CHAT))
    assert (b"connection: close" in answer, end, mock.requests[0].answered) == (said, "close", True)


async def test_an_idle_connection_is_closed() -> None:
    async with MockBackend(keep_alive_s=0.05) as mock:
        answer, end = await until_end(mock, b"GET /health HTTP/1.1\r\n\r\n")
        assert (answer.startswith(b"HTTP/1.1 200 OK"), end) == (True, "close")


async def test_pipelined_requests_are_answered_in_order(mock: MockBackend) -> None:
    two = post({"prompt": "x", "max_tokens": 1}, "/v1/completions") + b"GET /version HTTP/1.1\r\nConnection: close\r\n\r\n"
    answer, _ = await until_end(mock, two)
    assert answer.index(b"text_completion") < answer.index(b'{"version"')


async def test_requests_are_recorded_as_they_came(mock: MockBackend) -> None:
    request = (
        b"POST /v1/completions?a=%20b HTTP/1.1\r\nHOST: mock\r\nX-Two: 1\r\nx-two:  2\r\nTransfer-Encoding: chunked\r\n"
        b'Connection: close\r\n\r\n6\r\n{"prom\r\n9\r\npt":"hi"}\r\n0\r\n\r\n'
    )
    answer, _ = await until_end(mock, request)
    assert answer.startswith(b"HTTP/1.1 200 OK")
    (seen,) = mock.requests
    assert (seen.method, seen.target, seen.path) == ("POST", "/v1/completions?a=%20b", "/v1/completions")
    assert seen.headers[:3] == [("HOST", "mock"), ("X-Two", "1"), ("x-two", "2")]
    assert (seen.body, seen.status, seen.header("X-TWO")) == (b'{"prompt":"hi"}', 200, "1")


async def test_a_body_awaits_the_100_it_asked_for(mock: MockBackend) -> None:
    reader, writer = await connect(mock)
    head, _, body = post(CHAT, "/v1/chat/completions", "Expect: 100-continue").partition(b"\r\n\r\n")
    writer.write(head + b"\r\n\r\n")
    assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    writer.write(body)
    assert (await reader.readline()) == b"HTTP/1.1 200 OK\r\n"
    writer.close()


async def test_what_is_not_http_is_refused(mock: MockBackend) -> None:
    answer, end = await until_end(mock, b"\x16\x03\x01 hello\r\n\r\n")
    assert (answer.startswith(b"HTTP/1.1 400 Bad Request\r\n"), end, mock.total) == (True, "close", 0)


async def test_raw_bytes_are_the_whole_answer(mock: MockBackend) -> None:
    raw = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 7\r\n\r\n\xffabc"
    mock.script(Behaviour(raw=raw, split=3))
    assert await until_end(mock, post(CHAT)) == (raw, "close")


@pytest.mark.parametrize(
    ("behaviour", "status", "content_type", "body"),
    [
        (
            Behaviour(status=502, body="<html>Bad</html>", headers={"content-type": "text/html"}),
            502,
            "text/html",
            "<html>Bad</html>",
        ),
        (Behaviour(status=503, body=""), 503, "application/json", ""),
        (Behaviour(body="{not json"), 200, "application/json", "{not json"),
        (Behaviour(body='{"error":{"message":"m"}}'), 200, "application/json", '{"error":{"message":"m"}}'),
    ],
)
async def test_errors_are_sent_verbatim(
    mock: MockBackend, client: httpx.AsyncClient, behaviour: Behaviour, status: int, content_type: str, body: str
) -> None:
    mock.script(behaviour)
    answer = await client.post("/v1/chat/completions", json=CHAT)
    assert (answer.status_code, answer.headers["content-type"], answer.text) == (status, content_type, body)


async def test_a_status_alone_gets_an_error_body(mock: MockBackend, client: httpx.AsyncClient) -> None:
    mock.script(Behaviour(status=429, headers={"Retry-After": "7"}))
    answer = await client.post("/v1/chat/completions", json=CHAT)
    assert (answer.status_code, answer.json()["error"]["code"], answer.headers["retry-after"]) == (429, 429, "7")


async def test_encoded_bodies_are_labelled_and_encoded(mock: MockBackend) -> None:
    mock.script(Behaviour(body="hello", content_encoding="gzip", close_connection_after="header"))
    answer, _ = await until_end(mock, post(CHAT))
    head, _, body = answer.partition(b"\r\n\r\n")
    assert (b"content-encoding: gzip" in head, b"content-length: %d\r\n" % len(body) in head) == (True, True)
    assert zlib.decompress(body, zlib.MAX_WBITS | 16) == b"hello"
    mock.script(Behaviour(body_bytes=b"\x0b\x02\x80hello\x03", content_encoding="br", close_connection_after="header"))
    answer, _ = await until_end(mock, post(CHAT))
    assert answer.endswith(b"\r\n\r\n\x0b\x02\x80hello\x03")


async def test_a_client_that_does_not_read_is_waited_for(mock: MockBackend) -> None:
    mock.script(Behaviour(tokens=("x" * 100_000,) * 200))
    reader, writer = await connect(mock)
    writer.write(post(STREAM))
    await reader.read(1)
    await mock.wait_for(lambda m: m.requests[0].bytes_sent > 1_000_000)
    writer.transport.abort()
    await mock.wait_for(lambda m: m.aborted == 1)
    assert mock.requests[0].bytes_sent < 20_000_000


async def test_the_end_of_the_mock_is_no_abort() -> None:
    async with MockBackend() as mock:
        mock.script(Behaviour(never_answer=True))
        _, writer = await connect(mock)
        writer.write(post(STREAM))
        await mock.wait_for(lambda m: m.in_flight == 1)
    await mock.wait_for(lambda m: m.connections == 0)
    assert (mock.aborted, mock.requests[0].cut) == (0, True)
    writer.transport.abort()


@pytest.mark.asyncio(loop_factories=["uvloop"])
@pytest.mark.parametrize("turns", range(5))
async def test_who_connects_as_the_mock_ends_is_not_left_waiting(turns: int) -> None:
    """However far its connection has come, it ends; it is not kept by a mock that is no more."""
    with socket.socket() as client:
        async with MockBackend() as mock:
            mock.script(Behaviour(never_answer=True))
            url = httpx.URL(mock.url)
            client.connect((url.host, url.port))  # the kernel answers
            client.send(post(STREAM))
            for _ in range(turns):
                await asyncio.sleep(0)
        client.setblocking(False)
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(10):
                assert await asyncio.get_running_loop().sock_recv(client, 1) == b""
    await mock.wait_for(lambda m: m.connections == 0)


async def test_a_mock_may_come_back_on_its_port(client: httpx.AsyncClient) -> None:
    async with MockBackend() as mock:
        url = mock.url
    async with mock:
        assert mock.url == url
        assert (await client.get(f"{url}/health")).status_code == 200


async def test_a_storm_of_leaving_clients_leaves_nothing(mock: MockBackend) -> None:
    mock.script(Behaviour(tokens_per_second=10, times=0))
    clients = await asyncio.gather(*(connect(mock) for _ in range(200)))
    for _, writer in clients:
        writer.write(post({**STREAM, "max_tokens": 1000}))
    await mock.wait_for(lambda m: m.in_flight == 200 and all(request.events_sent for request in m.requests))
    for _, writer in clients:
        writer.transport.abort()
    await mock.wait_for(lambda m: m.aborted == 200)
    await mock.wait_for(lambda m: (m.connections, m.in_flight) == (0, 0))


async def test_headers_may_come_twice(client: httpx.AsyncClient) -> None:
    await client.post("/mock/script", json=[{"headers": [["X-Two", "1"], ["X-Two", "2"], ["Server", "other"]]}])
    answer = await client.post("/v1/chat/completions", json=CHAT)
    assert (answer.headers.get_list("x-two"), answer.headers.get_list("server")) == (["1", "2"], ["other"])
