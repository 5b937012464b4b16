"""A gateway that is told to stop serves what runs for a while, refuses what is new, and then ends what is left in good order."""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from gateway.mock import Behaviour, MockBackend
from tests.support.asking import ALWAYS, CHAT, error_of, question
from tests.support.held import HeldBackend
from tests.support.raw import request, wire
from tests.support.running import Lane, config_for, running
from tests.support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

LARGE = 24 << 20
"""Bytes of an answer that no socket's buffers hold."""


def over(url: str, grace_s: float) -> dict[str, Any]:
    return config_for({"a": {"url": url, "models": {"mock-model": "mock-model"}}}, server={"grace_s": grace_s})


async def test_while_draining_new_requests_are_refused(mock: MockBackend, tmp_path: Path) -> None:
    """With a hint when to come back; what runs goes on; it is alive, and no longer ready."""
    mock.script(Behaviour(text="served", delay_headers_s=0.1))
    async with (
        running(config_for({"a": {"url": mock.url, "models": {"mock-model": "mock-model"}}}), tmp_path) as run,
        run.client() as client,
    ):
        before = asyncio.create_task(client.post(CHAT, json=question()))
        await mock.wait_for(lambda m: bool(m.requests_to(CHAT)))
        run.app.drain()
        refused = await client.post(CHAT, json=question())
        assert (refused.status_code, error_of(refused)["code"]) == (503, "gateway_draining")
        assert int(refused.headers["retry-after"]) >= 1 and int(refused.headers["retry-after-ms"]) >= 1
        assert (await client.get("/health")).status_code == 200
        ready = await client.get("/ready")
        assert (ready.status_code, ready.json()["reasons"]) == (503, ["shutting down"])
        assert (await before).json()["choices"][0]["message"]["content"] == "served"


async def test_what_runs_too_long_is_ended(mock: MockBackend, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Whoever has no answer yet gets one that says why; a stream ends with an error event, and no `[DONE]`. The backends are let go."""
    mock.script(Behaviour(never_answer=True), Behaviour(stall_after_events=2))
    config = config_for({"a": {"url": mock.url, "models": {"mock-model": "mock-model"}}}, server={"grace_s": 0})
    async with AsyncExitStack() as clients, AsyncExitStack() as server:
        run = await server.enter_async_context(running(config, tmp_path))
        whole, stream = [await clients.enter_async_context(wire(run.url)) for _ in range(2)]
        whole.post(json.dumps(question()).encode())
        await mock.wait_for(lambda m: bool(m.requests_to(CHAT)))
        stream.post(json.dumps(question(stream=True)).encode())
        await stream.head()
        await stream.chunk()
        run.app.drain()
        await server.aclose()
        answer = await whole.answer()
        assert (answer.status, answer.error["code"]) == (503, "gateway_draining")
        assert all(name in answer.headers for name in ALWAYS)
        assert int(answer.headers["retry-after"]) >= 1
        rest = await stream.reader.readuntil(b"0\r\n\r\n")
        assert rest.count(b'"code":"gateway_draining"') == 1
        assert b"[DONE]" not in rest
    await mock.wait_for(lambda m: m.aborted == 2)
    assert {receipt.outcome for receipt in run.settled} == {"gateway_error"}
    assert len(run.settled) == 2
    assert "Traceback" not in caplog.text


async def test_who_comes_while_it_ends_is_told_before_the_body_is_here(tmp_path: Path) -> None:
    async with HeldBackend() as held, running(over(held.url, grace_s=20), tmp_path) as run, wire(run.url) as busy, wire(run.url) as late:
        busy.post(json.dumps(question(stream=True)).encode())
        await held.until_begun()
        run.server.should_exit = True
        await until(lambda: run.server.server_state.closing, "the beginning of the end")
        late.send(request(json.dumps(question()).encode())[:-5])
        answer = await late.answer()
        assert (answer.status, answer.error["code"], answer.headers["connection"]) == (503, "gateway_draining", "close")
        held.go.set()
        assert (await busy.answer()).body.endswith(b"data: [DONE]\n\n")


def faults(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the log holds that would wake somebody up."""
    return [record.getMessage() for record in caplog.records if record.exc_info or record.levelno >= logging.ERROR]


async def test_half_a_request_is_answered_too(mock: MockBackend, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its caller still sends the body when the grace is over."""
    async with AsyncExitStack() as clients, AsyncExitStack() as server:
        run = await server.enter_async_context(running(over(mock.url, 0), tmp_path))
        slow = await clients.enter_async_context(wire(run.url))
        slow.send(request(json.dumps(question()).encode())[:-5])
        await until(lambda: any(each.cycle is not None for each in run.server.server_state.connections), "half a request")
        await server.aclose()
        answer = await slow.answer()
        assert (answer.status, answer.error["code"]) == (503, "gateway_draining")
        assert all(name in answer.headers for name in ALWAYS)
        assert await slow.ended()
    assert [receipt.outcome for receipt in run.settled] == ["gateway_error"]
    assert mock.requests_to(CHAT) == []
    assert faults(caplog) == []


@pytest.mark.parametrize("lane", ["hot", "asgi"])
async def test_a_stream_that_has_said_all_ends_well(mock: MockBackend, tmp_path: Path, lane: Lane) -> None:
    """Its `[DONE]` has gone out, only the backend's connection lingers: the caller sees a whole answer."""
    event = json.dumps({"choices": [{"index": 0, "delta": {"content": "all"}, "finish_reason": "stop"}]})
    mock.script(Behaviour(events=(event, "[DONE]"), stall_after_events=2))
    async with AsyncExitStack() as clients, AsyncExitStack() as server:
        run = await server.enter_async_context(running(over(mock.url, 0), tmp_path, lane))
        caller = await clients.enter_async_context(wire(run.url))
        caller.post(json.dumps(question(stream=True)).encode())
        await caller.head()
        said = b""
        while b"[DONE]" not in said:
            said += await caller.chunk()
        await server.aclose()
        while piece := await caller.chunk():
            said += piece
        assert b'"error"' not in said
    assert [receipt.outcome for receipt in run.settled] == ["ok"]


@pytest.mark.parametrize("path", [CHAT, "/v1/rerank"])
async def test_who_reads_slowly_gets_the_grace_too(mock: MockBackend, tmp_path: Path, path: str) -> None:
    """An answer is not over when it is written, but when it is read."""
    text = "x" * LARGE
    mock.script(Behaviour(path=path, body=json.dumps({"choices": [{"message": {"content": text}}]})))
    async with AsyncExitStack() as clients, AsyncExitStack() as server:
        run = await server.enter_async_context(running(over(mock.url, 600), tmp_path))
        slow = await clients.enter_async_context(wire(run.url))
        slow.post(json.dumps(question()).encode(), path)
        assert (await slow.head())[0] == 200
        ending = asyncio.create_task(server.aclose())
        await until(lambda: run.gateway.draining and run.server.running == 0, "all is written")
        assert not ending.done()
        assert text.encode() in await slow.reader.read()
        await ending


@pytest.mark.parametrize("path", [CHAT, "/v1/rerank"])
async def test_who_does_not_read_keeps_nobody_for_ever(
    mock: MockBackend, tmp_path: Path, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The connection is cut, for an end of the answer would be a lie."""
    mock.script(Behaviour(path=path, body=json.dumps({"choices": [{"message": {"content": "x" * LARGE}}]})))
    async with AsyncExitStack() as clients, AsyncExitStack() as server:
        run = await server.enter_async_context(running(over(mock.url, 0.1), tmp_path))
        deaf = await clients.enter_async_context(wire(run.url))
        deaf.post(json.dumps(question()).encode(), path)
        _, headers = await deaf.head()
        async with asyncio.timeout(20):
            await server.aclose()
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await deaf.reader.readexactly(int(headers["content-length"]))
    assert faults(caplog) == []


async def test_a_call_that_waits_in_a_queue_is_served_within_the_grace(tmp_path: Path) -> None:
    """It was let in before the end began."""
    async with HeldBackend() as held, AsyncExitStack() as clients, AsyncExitStack() as server:
        config = over(held.url, 600) | {"models": {"mock-model": {"queue": {"slots": 1}}}}
        run = await server.enter_async_context(running(config, tmp_path))
        first, second = [await clients.enter_async_context(wire(run.url)) for _ in range(2)]
        for each in (first, second):
            each.post(json.dumps(question()).encode())
        await until(lambda: run.server.running == 2, "both calls are in")
        await held.until_begun(1)
        ending = asyncio.create_task(server.aclose())
        await until(lambda: run.gateway.draining, "the end begins")
        held.go.set()
        assert [(await each.answer()).status for each in (first, second)] == [200, 200]
        await ending
    assert held.ended == 2
