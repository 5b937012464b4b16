"""A gateway that is told to stop serves what runs for a while, refuses what is new, and then ends what is left in good order."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from gateway.mock import Behaviour, MockBackend
from tests.support.asking import ALWAYS, CHAT, error_of, question
from tests.support.raw import wire
from tests.support.running import config_for, running

pytestmark = pytest.mark.asyncio(loop_scope="module")


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
