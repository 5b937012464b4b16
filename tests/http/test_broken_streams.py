"""A stream that fails after its first byte is told as failed: one error event and the end, never a clean stop."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.mock import Behaviour, MockBackend
from tests.http.conftest import Both
from tests.support.asking import CHAT, data, question
from tests.support.running import Running, config_for, running

pytestmark = pytest.mark.asyncio(loop_scope="module")
LANES = ("hot", "asgi", "fastapi")

ASK = question(stream=True)
ROLE = '{"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}'
WORDS = tuple(ROLE.replace('"role":"assistant","content":""', f'"content":"w{number}"') for number in range(3))
FINISH = '{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}'
EVENTS = (ROLE, *WORDS, FINISH)


def sse(*events: str) -> bytes:
    return b"".join(b"data: " + each.encode() + b"\n\n" for each in events)


def failure(stream: bytes, after: bytes) -> dict[str, Any]:
    """The error event that follows `after`, and nothing but it."""
    assert stream.startswith(after), stream
    (event,) = data(stream[len(after) :])
    error: dict[str, Any] = json.loads(event)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert b"[DONE]" not in stream
    assert b'"stop"' not in stream
    return error


@pytest.mark.parametrize("framing", ["chunked", "close"])
@pytest.mark.parametrize("sent", [0, 1, 4])
@pytest.mark.parametrize("how", ["reset", "close"])
async def test_a_broken_connection_is_an_error_event(
    mock: MockBackend, client: httpx.AsyncClient, gateway: Running, how: str, sent: int, framing: Any
) -> None:
    """Reset or closed after the role alone, after content: what came goes on, then the failure is said. Before that it is the status."""
    cut: dict[str, Any] = {f"{how}_after_events": sent, "cut_wait_s": 0.05}
    mock.script(Behaviour(events=EVENTS, framing=framing, **cut))
    answer = await client.post(CHAT, json=ASK)
    if sent == 0:
        assert (answer.status_code, answer.json()["error"]["code"]) == (502, "backend_error")
        return
    assert answer.status_code == 200
    error = failure(answer.content, sse(*EVENTS[:sent]))
    assert (error["code"], error["type"]) == ("backend_stream_broken", "server_error")
    await gateway.until_settled(1)
    assert gateway.settled[0].outcome == "backend_error"
    assert gateway.settled[0].events == sent
    assert len(mock.requests) == 1, "what was begun is not asked again"


@pytest.mark.parametrize("cut", ["reset_after_bytes", "close_after_bytes"])
async def test_half_an_event_is_never_passed_on(mock: MockBackend, client: httpx.AsyncClient, cut: str) -> None:
    at: dict[str, Any] = {cut: len(sse(ROLE, WORDS[0])) + 20, "cut_wait_s": 0.05}
    mock.script(Behaviour(events=EVENTS, **at))
    answer = await client.post(CHAT, json=ASK)
    assert failure(answer.content, sse(ROLE, WORDS[0]))["code"] == "backend_stream_broken"


@pytest.mark.parametrize("framing", ["chunked", "close"])
async def test_an_end_without_done_or_finish_reason_is_a_truncation(mock: MockBackend, client: httpx.AsyncClient, framing: Any) -> None:
    """The body ended as HTTP says it should; the answer in it did not."""
    mock.script(Behaviour(events=EVENTS[:-1], end_without_done=True, framing=framing))
    answer = await client.post(CHAT, json=ASK)
    assert failure(answer.content, sse(*EVENTS[:-1]))["code"] == "backend_stream_broken"


@pytest.mark.parametrize("split", [None, "all", 1])
async def test_an_engine_that_never_says_done_is_whole_with_its_finish_reason(both: Both, gateway: Running, split: Any) -> None:
    """Nothing is added: no `[DONE]` that the backend did not send."""
    pair = await both(Behaviour(events=EVENTS, end_without_done=True, split=split), ASK)
    assert pair.relayed.content == pair.direct.content == sse(*EVENTS)
    await gateway.until_settled(1)
    assert gateway.settled[0].outcome == "ok"


@pytest.mark.parametrize("error", ['{"error":{"message":"CUDA","type":"InternalServerError","code":500}}', '{"error":"out of memory"}'])
async def test_the_backend_s_own_error_event_passes(both: Both, gateway: Running, error: str) -> None:
    """It is the client's to read, and no success."""
    pair = await both(Behaviour(events=(ROLE, error)), ASK)
    assert pair.relayed.content == pair.direct.content
    await gateway.until_settled(1)
    assert gateway.settled[0].outcome == "backend_error"


async def test_a_reset_before_the_head(mock: MockBackend, client: httpx.AsyncClient) -> None:
    """A kept connection may have been closed just as it was used: once more, on a fresh one. A fresh one's reset is an answer."""
    await client.post(CHAT, json=ASK)
    mock.script(Behaviour(reset_after_events=-1), Behaviour(events=EVENTS))
    answer = await client.post(CHAT, json=ASK)
    assert (answer.content, answer.headers["x-trilemma-attempts"]) == (sse(*EVENTS, "[DONE]"), "2")

    mock.script(Behaviour(reset_after_events=-1), Behaviour(reset_after_events=-1), Behaviour(reset_after_events=-1))
    answer = await client.post(CHAT, json=ASK)
    assert (answer.status_code, answer.json()["error"]["code"], answer.headers["x-trilemma-attempts"]) == (502, "backend_error", "2")
    answer = await client.post(CHAT, json=ASK)
    assert (answer.status_code, answer.json()["error"]["code"], answer.headers["x-trilemma-attempts"]) == (502, "backend_error", "1")


@pytest.mark.parametrize("status", [400, 429, 500, 503])
async def test_a_refusal_of_a_stream_is_json_with_a_fresh_length(mock: MockBackend, client: httpx.AsyncClient, status: int) -> None:
    """Even when the backend lies about the length of what it sends in chunks, or names the kind of a stream."""
    body = '{"error":{"message":"no","type":"x","param":null,"code":1}}'
    mock.script(Behaviour(status=status, body=body, framing="chunked", headers={"content-type": "text/event-stream"}))
    answer = await client.post(CHAT, json=ASK)
    assert (answer.status_code, answer.text) == (status, body)
    assert int(answer.headers["content-length"]) == len(body)


async def test_an_event_without_end_is_given_up(mock: MockBackend, client: httpx.AsyncClient) -> None:
    """Memory is bounded: no event is held that passes 16 MiB."""
    stream = sse(ROLE) + b"data: " + b"x" * (17 << 20)
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
    mock.script(Behaviour(raw=head + stream))
    answer = await client.post(CHAT, json=ASK)
    assert failure(answer.content, sse(ROLE))["code"] == "backend_bad_answer"


async def test_a_damaged_coding_is_a_bad_gateway(mock: MockBackend, client: httpx.AsyncClient) -> None:
    raw = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-encoding: gzip\r\ncontent-length: 9\r\n\r\nnot gzip!"
    mock.script(Behaviour(raw=raw))
    answer = await client.post(CHAT, json=ASK)
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "backend_error")


# -- silence


@pytest.mark.parametrize(
    ("timeouts", "stall"),
    [
        ({"idle_s": 0.2}, {}),
        ({"idle_s": 0.2, "first_byte_s": 0.4}, {"stall_comments_s": 0.02}),
        ({"idle_s": 30, "total_s": 0.4}, {"stall_comments_s": 0.02}),
    ],
    ids=["silence", "nothing but comments", "the whole call's time"],
)
async def test_a_stall_ends(mock: MockBackend, tmp_path: Path, timeouts: Any, stall: Any) -> None:
    """A silent peer is given up after `idle_s`; one that only sends comments after `first_byte_s`; its socket is closed."""
    backend = {"url": mock.url, "engine": "vllm", "models": {"mock-model": "mock-model"}, "timeouts": timeouts}
    async with running(config_for({"mock": backend}), tmp_path) as run, run.client() as client:
        mock.script(Behaviour(events=EVENTS, stall_after_events=3, **stall))
        answer = await client.post(CHAT, json=ASK)
        sent, _, comments = answer.content.partition(sse(*EVENTS[:3]))
        assert sent == b""
        error = json.loads(data(comments)[0])["error"]
        assert (error["code"], len(data(answer.content))) == ("backend_timeout", 4)
        assert b"[DONE]" not in answer.content
        await mock.wait_for(lambda m: m.aborted == 1)
        assert run.in_flight() == 0
        await run.until_settled(1)
        assert run.settled[0].outcome == "backend_error"
        assert run.settled[0].events >= 3


async def test_a_backend_that_never_answers_is_a_504(mock: MockBackend, tmp_path: Path) -> None:
    backend = {"url": mock.url, "engine": "vllm", "models": {"mock-model": "mock-model"}, "timeouts": {"first_byte_s": 0.2}}
    async with running(config_for({"mock": backend}), tmp_path) as run, run.client() as client:
        for body in (ASK, question()):
            mock.script(Behaviour(never_answer=True))
            answer = await client.post(CHAT, json=body)
            assert (answer.status_code, answer.json()["error"]["code"]) == (504, "backend_timeout")
            assert answer.headers["x-should-retry"] == "false"
        await mock.wait_for(lambda m: m.aborted == 2)
        assert run.in_flight() == 0
