"""Where a request may go: unknown paths, wrong methods, tricks with either, and framing that two servers would read in two ways."""

from __future__ import annotations

import json

import httpx
import pytest

from gateway.mock import Behaviour, MockBackend
from tests.support.asking import ALWAYS, CHAT, error_of, question
from tests.support.raw import Raw, wire
from tests.support.running import KEY, Running

pytestmark = pytest.mark.asyncio(loop_scope="module")

ASK = json.dumps(question()).encode()

TRICKS = [
    "/v1/../admin/config",
    "/v1/../health",
    "/v1/./chat/completions",
    "/v1/chat/../../admin/config",
    "/v1/%2e%2e/admin/config",
    "/v1/%2E%2E/%61dmin/config",
    "/v1/..%2fadmin",
    "/v1/..%5cadmin",
    "/v1/..\\admin",
    "/v1//chat/completions",
    "//v1/chat/completions",
    "/v1/chat//completions",
    "/v1/chat/completions/",
    "/v1/chat/completions;x=1",
    "/v1/chat/completions%00",
    "/v1/chat/completions%20",
    "/v1/chat/completions%0d%0aX-Evil:1",
    "/v1/%63hat/completions",
    "/%76%31/chat/completions",
    "/v1/chat%2fcompletions",
    "/v1/.env",
    "/v1/-x",
    "/v1/",
    "/v1",
    "/V1/chat/completions",
    "/v2/chat/completions",
    "/v1/@evil.example/x",
    "/v1/http://evil.example/x",
    "/v1/" + "a" * 8_000,
    "/v1/" + "a/" * 4_000,
    "/v1/load_lora_adapter/x",
    "/v1/LOAD_LORA_ADAPTER",
    "/v1/files/f-1/content",
    "/v1/decisions",
    "/v1/route/x",
    "/v1/feedback/",
    "/mock/requests",
    "/docs/",
    "/",
    "*",
]


@pytest.mark.parametrize("path", TRICKS, ids=[path if len(path) < 60 else f"{path[:12]}..., {len(path)} long" for path in TRICKS])
@pytest.mark.parametrize("method", ["POST", "GET"])
async def test_paths_that_lead_nowhere(mock: MockBackend, gateway: Running, path: str, method: str) -> None:
    """404 (or 400, where it is not even a path) in OpenAI's envelope; the backend hears nothing."""
    async with wire(gateway.url) as connection:
        lines = f"host: x\r\nauthorization: Bearer {KEY}\r\ncontent-length: {len(ASK)}\r\n\r\n"
        connection.send(f"{method} {path} HTTP/1.1\r\n{lines}".encode() + ASK)
        answer = await connection.answer()
    assert answer.status in (400, 404), answer
    assert answer.error["type"] in ("not_found_error", "invalid_request_error")
    assert answer.headers["x-request-id"]
    assert len(answer.body) < 500
    assert [request for request in mock.requests if request.target != "/v1/models"] == []


@pytest.mark.parametrize(
    "target", ["/v1/responses/r?model=mock-model&x=\xff", "/v1/\xff?model=mock-model", "/v1/responses/\x01", "/v1/a b"]
)
async def test_bytes_that_no_url_has(mock: MockBackend, gateway: Running, target: str) -> None:
    async with wire(gateway.url) as connection:
        connection.send(b"GET " + target.encode("latin-1") + f" HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEY}\r\n\r\n".encode())
        answer = await connection.answer()
    assert answer.status in (400, 404)
    assert answer.headers["x-request-id"]
    assert [request for request in mock.requests if request.path != "/v1/models"] == []


async def test_an_absolute_target_does_not_choose_the_upstream(mock: MockBackend, gateway: Running) -> None:
    """Proxies' form of a request line, and a foreign Host: the path counts, nothing else."""
    async with wire(gateway.url) as connection:
        lines = f"host: evil.example\r\nauthorization: Bearer {KEY}\r\ncontent-length: {len(ASK)}\r\n\r\n"
        connection.send(f"POST http://evil.example:1{CHAT} HTTP/1.1\r\n{lines}".encode() + ASK)
        answer = await connection.answer()
    assert answer.status == 200
    assert mock.requests[-1].target == CHAT
    assert mock.requests[-1].header("host") == mock.url.removeprefix("http://")


@pytest.mark.parametrize("method", ["GET", "PUT", "PATCH", "DELETE", "OPTIONS"])
@pytest.mark.parametrize("path", [CHAT, "/v1/completions", "/v1/embeddings"])
async def test_other_methods_on_an_endpoint(mock: MockBackend, client: httpx.AsyncClient, path: str, method: str) -> None:
    answer = await client.request(method, path, params={"model": "mock-model"})
    assert (answer.status_code, error_of(answer)["code"]) == (405, "caller_method_not_allowed")
    assert answer.headers["allow"] == "POST"
    assert all(name in answer.headers for name in ALWAYS)
    assert mock.requests == []


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("POST", "/v1/models", 405, "caller_method_not_allowed"),
        ("DELETE", "/v1/models/mock-model", 405, "caller_method_not_allowed"),
        ("POST", "/health", 405, "caller_method_not_allowed"),
        ("GET", "/admin/config/reload", 405, "caller_method_not_allowed"),
        ("GET", "/v1/route", 405, "caller_method_not_allowed"),
        ("GET", "/v1/feedback", 405, "caller_method_not_allowed"),
        ("DELETE", "/v1/decisions/1", 405, "caller_method_not_allowed"),
        ("GET", "/admin/nothing", 404, "caller_not_found"),
        ("GET", "/nothing", 404, "caller_not_found"),
    ],
)
async def test_the_gateway_s_own_routes(client: httpx.AsyncClient, method: str, path: str, status: int, code: str) -> None:
    answer = await client.request(method, path, headers={"x-request-id": "mine-1"})
    assert (answer.status_code, error_of(answer)["code"]) == (status, code)
    assert answer.headers["x-request-id"] == "mine-1"


@pytest.mark.parametrize("path", ["/health", "/ready", "/v1/models", "/admin/config", "/admin/backends"])
async def test_every_answer_has_a_request_id(client: httpx.AsyncClient, path: str) -> None:
    answers = [await client.get(path) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 200]
    assert len({answer.headers["x-request-id"] for answer in answers}) == 2
    assert all(len(answer.headers.get_list("x-request-id")) == 1 for answer in answers)


# -- framing


async def sent(gateway: Running, data: bytes) -> tuple[Raw, bool]:
    """The answer to raw bytes, and whether the connection ended after it."""
    async with wire(gateway.url) as connection:
        connection.send(data)
        answer = await connection.answer()
        return answer, answer.headers.get("connection") == "close" and await connection.ended()


HEAD = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEY}\r\ncontent-type: application/json\r\n".encode()
LENGTH = b"content-length: %d\r\n" % len(ASK)
CHUNKED = b"%x\r\n%b\r\n0\r\n\r\n" % (len(ASK), ASK)
AMBIGUOUS = {
    "a length and chunks": HEAD + LENGTH + b"transfer-encoding: chunked\r\n\r\n" + CHUNKED,
    "chunks and a length": HEAD + b"transfer-encoding: chunked\r\n" + LENGTH + b"\r\n" + CHUNKED,
    "two lengths": HEAD + LENGTH + b"content-length: 5\r\n\r\n" + ASK,
    "the same length twice": HEAD + LENGTH + LENGTH + b"\r\n" + ASK,
    "two lengths in one": HEAD + b"content-length: 5, 5\r\n\r\n" + ASK,
    "a negative length": HEAD + b"content-length: -5\r\n\r\n" + ASK,
    "a signed length": HEAD + b"content-length: +5\r\n\r\n" + ASK,
    "a hexadecimal length": HEAD + b"content-length: 0x5\r\n\r\n" + ASK,
    "a length past 64 bits": HEAD + b"content-length: 99999999999999999999999\r\n\r\n" + ASK,
    "chunks that are not last": HEAD + b"transfer-encoding: chunked, gzip\r\n\r\n" + CHUNKED,
    "chunks twice": HEAD + b"transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n" + LENGTH + b"\r\n" + CHUNKED,
    "a bad size of a chunk": HEAD + b"transfer-encoding: chunked\r\n\r\nzz\r\n" + ASK,
    "a blank before the colon": HEAD + b"content-length : 5\r\n\r\n" + ASK,
    "a folded header": HEAD + b"x-a: b\r\n c\r\ncontent-length: 0\r\n\r\n",
    "a NUL in a header": HEAD + b"x-a: b\x00c\r\ncontent-length: 0\r\n\r\n",
    "no HTTP": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 not HTTP at all\r\n\r\n",
}


@pytest.mark.parametrize("data", AMBIGUOUS.values(), ids=AMBIGUOUS.keys())
async def test_ambiguous_framing_is_refused(mock: MockBackend, gateway: Running, data: bytes) -> None:
    """400, and the connection ends: after it, nobody can know where the next request begins."""
    answer, ended = await sent(gateway, data)
    assert (answer.status, answer.error["code"], ended) == (400, "caller_bad_framing", True)
    assert answer.headers["x-request-id"]
    assert [request for request in mock.requests if request.method == "POST"] == []


async def test_headers_of_the_hop_stay_on_the_hop(mock: MockBackend, gateway: Running) -> None:
    """Whatever `Connection` names, and the proxy's own headers, end here; the backend sees one framing."""
    lines = (
        b"connection: keep-alive, x-secret, traceparent\r\nconnection: user-agent\r\nx-secret: 1\r\ntraceparent: 00-1\r\nuser-agent: u\r\n"
        b"proxy-authorization: Basic abc\r\nproxy-connection: keep-alive\r\nkeep-alive: 5\r\nte: trailers\r\ntrailer: x\r\nupgrade: h2c\r\n"
    )
    answer, _ = await sent(gateway, HEAD + lines + LENGTH + b"\r\n" + ASK)
    assert answer.status == 200
    names = [name.lower() for name, _ in mock.requests[-1].headers]
    assert sorted(names) == sorted(["host", "content-type", "x-request-id", "accept-encoding", "authorization", "content-length"])


async def test_pipelined_requests_are_answered_in_turn(mock: MockBackend, gateway: Running) -> None:
    mock.script(Behaviour(text="first", delay_headers_s=0.05), Behaviour(text="second"))
    async with wire(gateway.url) as connection:
        connection.send((HEAD + LENGTH + b"\r\n" + ASK) * 2)
        texts = [json.loads((await connection.answer()).body)["choices"][0]["message"]["content"] for _ in range(2)]
    assert texts == ["first", "second"]


async def test_what_follows_a_refused_body_is_not_taken_for_a_request(mock: MockBackend, gateway: Running) -> None:
    """A body that is refused unread holds what looks like a request: it is skipped as the body that it is."""
    hidden = HEAD + LENGTH + b"\r\n" + ASK
    async with wire(gateway.url) as connection:
        connection.send(b"POST /nothing HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(hidden) + hidden)
        assert (await connection.answer()).status == 404
        connection.send(b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        assert (await connection.answer()).status == 200
        assert await connection.ended()
    assert [request for request in mock.requests if request.method == "POST"] == []
