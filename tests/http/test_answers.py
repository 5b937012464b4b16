"""A backend's answer that is not streamed: status, headers and body come back as it said them, or as an error that tells the truth."""

from __future__ import annotations

import gzip
import itertools
import json
import logging
import zlib
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.mock import Behaviour, MockBackend
from tests.http.conftest import Both
from tests.support.asking import ALWAYS, CHAT, error_of, question
from tests.support.raw import wire
from tests.support.running import Running, config_for, running

pytestmark = pytest.mark.asyncio(loop_scope="module")
LANES = ("hot", "asgi", "fastapi")

ERROR = '{"error": {"message":"as the backend said", "type":"BadRequestError","param":null, "code":400, "zz":[null]}}'
WHOLE = (
    '{ "id":"", "object":"chat.completion","model":"what-the-backend-says","zz":{"k":null},"choices":[{"index":0,'
    '"message":{"role":"assistant","content":"é漢🙂","reasoning_content":null},"finish_reason":"stop"}],'
    '"usage":{"prompt_tokens":1000,"completion_tokens":10,"total_tokens":1010,"prompt_tokens_details":{"cached_tokens":900,"zz":1}}}'
)


def brotli(data: bytes) -> bytes:
    """RFC 7932: an uncompressed meta-block, then the empty last one."""
    assert 1 < len(data) <= 1 << 16
    head = (len(data) - 1) << 4 | 1 << 20  # 1 bit window, 1 bit not last, 2 bits four nibbles, 16 bits length - 1, 1 bit uncompressed
    return head.to_bytes(3, "little") + data + b"\x03"


CODINGS = {"gzip": gzip.compress, "br": brotli, "deflate": zlib.compress, "identity": bytes}


# -- good answers


async def test_a_good_answer_is_the_backend_s_byte_for_byte(both: Both) -> None:
    pair = await both(Behaviour(body=WHOLE, headers={"x-own": "a, b", "x-ratelimit-remaining-tokens": "7"}), question())
    answer = pair.relayed
    assert (answer.status_code, answer.content) == (200, pair.direct.content)
    assert int(answer.headers["content-length"]) == len(answer.content)
    assert (answer.headers["content-type"], answer.headers["x-own"]) == ("application/json", "a, b")
    assert answer.headers["x-ratelimit-remaining-tokens"] == "7"
    assert all(name in answer.headers for name in ALWAYS)
    assert answer.headers["x-trilemma-candidates"] == "1"


@pytest.mark.parametrize("split", [1, 7, "all"])
@pytest.mark.parametrize("framing", ["auto", "chunked", "close"])
async def test_framing_of_the_hop_does_not_show(mock: MockBackend, client: httpx.AsyncClient, framing: Any, split: Any) -> None:
    mock.script(Behaviour(body=WHOLE, framing=framing, split=split))
    answer = await client.post(CHAT, json=question())
    assert answer.text == WHOLE
    assert answer.headers["content-length"] == str(len(WHOLE.encode()))
    assert "transfer-encoding" not in answer.headers


@pytest.mark.parametrize(("coding", "accept", "status"), [*itertools.product(CODINGS, ("identity", "gzip", "br"), (200, 400))])
async def test_content_codings(mock: MockBackend, gateway: Running, coding: str, accept: str, status: int) -> None:
    """Whatever the backend compressed with: what is labelled with a coding is in it, what is not is plain, and no length is stale."""
    body = (WHOLE if status == 200 else ERROR).encode()
    packed = CODINGS[coding](body)
    mock.script(Behaviour(status=status, body_bytes=packed, headers={"content-encoding": coding} if coding != "identity" else {}))
    ask = json.dumps(question()).encode()
    async with wire(gateway.url) as connection:
        connection.post(ask, CHAT, f"accept-encoding: {accept}")
        answer = await connection.answer()
    assert answer.status == status
    assert answer.headers["content-length"] == str(len(answer.body))
    labelled = answer.headers.get("content-encoding")
    assert answer.body == (packed if labelled else body)
    assert labelled == ("br" if coding == "br" else None)
    if coding != "br":
        await gateway.until_settled(1)
        assert (gateway.settled[0].usage is not None) == (status == 200)


async def test_a_truncated_coding_is_a_502(mock: MockBackend, client: httpx.AsyncClient) -> None:
    mock.script(Behaviour(body_bytes=gzip.compress(WHOLE.encode())[:-9], headers={"content-encoding": "gzip"}))
    answer = await client.post(CHAT, json=question())
    assert (answer.status_code, error_of(answer)["code"]) == (502, "backend_error")


@pytest.mark.parametrize("path", [CHAT, "/v1/rerank"])
@pytest.mark.parametrize("framing", ["auto", "chunked", "close"])
async def test_half_an_answer_is_a_502(mock: MockBackend, client: httpx.AsyncClient, framing: Any, path: str) -> None:
    """The connection is reset in the body: on no endpoint is what came taken for the whole."""
    mock.script(Behaviour(path=path, body=WHOLE, framing=framing, reset_after_bytes=60, cut_wait_s=0.05))
    answer = await client.post(path, json=question())
    assert (answer.status_code, error_of(answer)["code"]) == (502, "backend_error")


async def test_a_very_large_answer_goes_on_as_it_comes(mock: MockBackend, client: httpx.AsyncClient, gateway: Running) -> None:
    """Past 32 MiB it is not held, but passed on unread; nothing of it is lost."""
    body = b'{"data":"' + b"x" * (40 << 20) + b'"}'
    mock.script(Behaviour(path="/v1/embeddings", body_bytes=body))
    answer = await client.post("/v1/embeddings", json={"model": "mock-model", "input": "a"})
    assert answer.content == body
    await gateway.until_settled(1)
    assert gateway.settled[0].outcome == "ok"


@pytest.mark.parametrize("path", ["/v1/embeddings", "/v1/rerank"])
async def test_a_very_large_answer_that_breaks_does_not_end_cleanly(
    mock: MockBackend, client: httpx.AsyncClient, gateway: Running, caplog: pytest.LogCaptureFixture, path: str
) -> None:
    """The connection ends, which is all there is to say it with; and it is no fault of the gateway's, for its log."""
    mock.script(Behaviour(path=path, body_bytes=b"x" * (40 << 20), close_after_bytes=36 << 20))
    with pytest.raises(httpx.RemoteProtocolError):
        await client.post(path, json={"model": "mock-model", "input": "a"})
    await gateway.until_settled(1)
    assert gateway.settled[0].outcome == "backend_error"
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


# -- statuses


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("status", [400, 404, 408, 409, 413, 422, 429, 500, 501, 503, 504, 529, 599])
async def test_a_backend_s_error_keeps_status_body_and_headers(both: Both, gateway: Running, status: int, stream: bool) -> None:
    hints = {"retry-after": "7", "retry-after-ms": "6500", "x-ratelimit-remaining-requests": "0", "x-should-retry": "true"}
    pair = await both(Behaviour(status=status, body=ERROR, headers=hints), question(stream=stream))
    assert (pair.relayed.status_code, pair.relayed.text) == (status, ERROR)
    assert {name: pair.relayed.headers[name] for name in hints} == hints
    assert all(name in pair.relayed.headers for name in ALWAYS)
    await gateway.until_settled(1)
    assert gateway.settled[0].status == status
    assert gateway.settled[0].outcome == ("caller_error" if status in (400, 404, 409, 413, 422) else "backend_error")


async def test_an_overflow_of_the_context_is_told_as_the_engine_told_it(both: Both) -> None:
    """Frameworks look for its words to shorten their history: nothing is wrapped around them."""
    pair = await both(Behaviour(), question(max_tokens=5000))
    assert pair.relayed.status_code == 400
    assert pair.relayed.content == pair.direct.content
    assert "maximum context length is 4096 tokens" in pair.relayed.json()["error"]["message"]


@pytest.mark.parametrize("status", [401, 403])
async def test_the_gateway_s_own_key_refused_is_not_the_caller_s_fault(mock: MockBackend, client: httpx.AsyncClient, status: int) -> None:
    mock.script(Behaviour(status=status, body='{"error":{"message":"key sk-backend is wrong"}}', headers={"www-authenticate": "Bearer"}))
    answer = await client.post(CHAT, json=question())
    assert (answer.status_code, error_of(answer)["code"]) == (502, "backend_auth")
    assert answer.headers["x-should-retry"] == "false"
    assert "sk-backend" not in answer.text
    assert "www-authenticate" not in answer.headers


@pytest.mark.parametrize("body", [ERROR, '{"error":"out of memory"}', '{"error":{"message":"x","code":404},"object":"error"}'])
@pytest.mark.parametrize("stream", [False, True])
async def test_an_error_under_status_200_is_a_502(mock: MockBackend, client: httpx.AsyncClient, body: str, stream: bool) -> None:
    """Clients retry or give up by status: a failure may not look like success. What was said stays."""
    mock.script(Behaviour(body=body))
    answer = await client.post(CHAT, json=question(stream=stream))
    assert (answer.status_code, answer.text) == (502, body)


@pytest.mark.parametrize("body", ['{"error":null,"choices":[]}', '{"error":"","choices":[{"index":0}]}', '{"error":null}'])
async def test_a_field_called_error_is_not_always_one(mock: MockBackend, client: httpx.AsyncClient, body: str) -> None:
    mock.script(Behaviour(body=body))
    answer = await client.post(CHAT, json=question())
    assert (answer.status_code, answer.text) == (200, body)


NO_JSON: dict[str, tuple[int, str, str, str]] = {
    "HTML": (502, "text/html", "<html><style>p{}</style><title>502 Bad</title><h1>No  way</h1></html>", "502 Bad No way"),
    "HTML of a limit": (429, "text/html", "<h1>Slow down</h1>", "Slow down"),
    "nothing": (503, "text/plain", "", "The backend answered with status 503."),
    "text": (500, "text/plain", "Internal Server Error", "Internal Server Error"),
    "broken JSON": (400, "application/json", '{"error": ', '{"error":'),
    "JSON that is no object": (400, "application/json", '["no"]', '["no"]'),
    "a novel": (500, "text/plain", "word " * 100_000, "word word"),
    "bytes": (500, "application/octet-stream", "\udcff\udcfe\x00", "�"),
}  # fmt: skip


@pytest.mark.parametrize(("status", "kind", "body", "said"), NO_JSON.values(), ids=NO_JSON.keys())
async def test_an_error_that_is_not_json(
    mock: MockBackend, client: httpx.AsyncClient, status: int, kind: str, body: str, said: str
) -> None:
    """It becomes OpenAI's envelope under the same status, with what it said in plain words, in short."""
    raw = body.encode("utf-8", "surrogateescape")
    mock.script(Behaviour(status=status, body_bytes=raw, headers={"content-type": kind, "retry-after": "3"}))
    answer = await client.post(CHAT, json=question())
    error = error_of(answer)
    assert answer.status_code == status
    assert (error["code"], error["type"]) == (
        "backend_error",
        {429: "rate_limit_error", 400: "invalid_request_error"}.get(status, "server_error"),
    )
    assert said in error["message"]
    assert len(error["message"]) < 300
    assert answer.headers["retry-after"] == "3"


@pytest.mark.parametrize(
    ("kind", "body"), [("text/plain", "hello"), ("application/json", '{"a":'), ("application/json", "[]"), ("text/html", "")]
)
async def test_a_success_that_is_no_answer_is_a_502(mock: MockBackend, client: httpx.AsyncClient, kind: str, body: str) -> None:
    mock.script(Behaviour(body=body, headers={"content-type": kind}))
    answer = await client.post(CHAT, json=question())
    assert (answer.status_code, error_of(answer)["code"]) == (502, "backend_bad_answer")


@pytest.mark.parametrize("status", [b"301 Moved", b"304 Not Modified", b"600 Odd", b"999 Odder"])
async def test_a_status_that_no_client_of_ours_should_see(mock: MockBackend, client: httpx.AsyncClient, status: bytes) -> None:
    """A redirect would lead the caller, with its key, elsewhere."""
    mock.script(Behaviour(raw=b"HTTP/1.1 " + status + b"\r\nlocation: http://elsewhere/\r\ncontent-length: 0\r\n\r\n"))
    answer = await client.post(CHAT, json=question())
    assert (answer.status_code, error_of(answer)["code"]) == (502, "backend_bad_answer")
    assert "location" not in answer.headers


@pytest.mark.parametrize(
    "raw", [b"garbage\r\n\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", b""]
)
async def test_an_answer_that_is_not_http(mock: MockBackend, client: httpx.AsyncClient, raw: bytes) -> None:
    mock.script(Behaviour(raw=raw, times=2))
    answer = await client.post(CHAT, json=question())
    assert (answer.status_code, error_of(answer)["code"]) == (502, "backend_error")


async def test_interim_answers_are_passed_over(mock: MockBackend, client: httpx.AsyncClient) -> None:
    raw = (
        b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 14\r\n\r\n"
        + b'{"object":"x"}'
    )
    mock.script(Behaviour(raw=raw))
    answer = await client.post(CHAT, json=question())
    assert (answer.status_code, answer.json(), "link" in answer.headers) == (200, {"object": "x"}, False)


async def test_headers_of_the_hop_and_of_the_gateway_are_not_the_backend_s_to_set(mock: MockBackend, client: httpx.AsyncClient) -> None:
    said = (
        ("connection", "x-secret, x-more"),
        ("connection", "x-third"),
        ("x-secret", "1"),
        ("x-more", "1"),
        ("x-third", "1"),
        ("keep-alive", "timeout=5"),
        ("set-cookie", "a=b"),
        ("x-request-id", "theirs"),
        ("x-trilemma-cost", "-1"),
        ("access-control-allow-origin", "*"),
        ("x-kept", "1"),
        ("x-kept", "2"),
    )
    mock.script(Behaviour(body=WHOLE, headers=said))
    answer = await client.post(CHAT, json=question())
    assert answer.headers.get_list("x-kept") == ["1", "2"]
    for name in ("x-secret", "x-more", "x-third", "keep-alive", "set-cookie", "access-control-allow-origin"):
        assert name not in answer.headers, name
    assert answer.headers["x-request-id"] != "theirs"
    assert float(answer.headers["x-trilemma-cost"]) > 0
    assert len(answer.headers.get_list("date")) == 1


# -- nobody there


async def test_nobody_there(tmp_path: Path) -> None:
    """Refused: 502, and no word of where the backend would have been."""
    config = config_for({"gone": {"url": "http://127.0.0.1:9", "models": {"mock-model": "m"}}})
    async with running(config, tmp_path) as run, run.client() as client:
        for stream in (False, True):
            answer = await client.post(CHAT, json=question(stream=stream))
            assert (answer.status_code, error_of(answer)["code"]) == (502, "backend_unreachable")
            assert "127.0.0.1" not in answer.text and ":9" not in answer.text
            assert all(name in answer.headers for name in ALWAYS)
        assert run.in_flight() == 0
        assert [receipt.outcome for receipt in run.settled] == ["backend_error"] * 2
