"""What becomes of a stream: however it is written, whatever goes wrong on its way, and whoever waits for it."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import AsyncOpenAI

from gateway.mock import Behaviour, MockBackend
from gateway.pool.breaker import Breaker
from gateway.wire.stream import StreamRelay
from tests.support.asking import CHAT, data, question
from tests.support.raw import wire
from tests.support.running import KEY, Running, config_for, running
from tests.support.waiting import until

ASK = question(stream=True)
COMMENT = b": \n"


def event(finish: str | None = None, index: int = 0, **delta: Any) -> str:
    choice = {"index": index, "delta": delta, "finish_reason": finish}
    return json.dumps({"id": "c", "object": "chat.completion.chunk", "choices": [choice]}, separators=(",", ":"))


USAGE = '{"id":"c","object":"chat.completion.chunk","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":3,"total_tokens":12}}'
EVENTS = (event(role="assistant", content=""), event(content="é漢🙂"), event(content=" e\u0301"), event("stop"))
WRITINGS: dict[str, dict[str, Any]] = {
    "one block": {"split": "all"},
    "7 bytes at a time": {"split": 7},
    "CRLF": {"line_end": "\r\n"},
    "CRLF, 7 bytes at a time": {"line_end": "\r\n", "split": 7},
    "CR, one byte at a time": {"line_end": "\r", "split": 1},
    "events in two lines of data": {"multi_line_data": True},
    "two lines of data, 7 bytes at a time": {"multi_line_data": True, "split": 7},
    "comments in between": {"comments": True},
    "compressed": {"content_encoding": "gzip", "split": 7},
}


@pytest.fixture
async def run(mock: MockBackend, tmp_path: Path) -> AsyncIterator[Running]:
    """A gateway over one mock, whose streams beat after 50 ms of silence."""
    backend = {"url": mock.url, "engine": "vllm", "models": {"mock-model": "mock-model"}}
    config = config_for({"mock": backend}, models={"mock-model": {"queue": {"slots": 1}}}, server={"heartbeat_s": 0.05})
    async with running(config, tmp_path) as found:
        await until(lambda: not found.gateway.state.unanswered(), "the first probe's end")
        yield found
        await mock.wait_for(lambda m: m.in_flight == 0)
        assert found.in_flight() == 0


@pytest.fixture
async def client(run: Running) -> AsyncIterator[httpx.AsyncClient]:
    async with run.client() as http:
        yield http


# -- what is read of it


@pytest.mark.parametrize("asked", [False, True], ids=["usage not asked for", "usage asked for"])
async def test_usage_and_the_end_are_found_however_it_is_written(
    mock: MockBackend, run: Running, client: httpx.AsyncClient, asked: bool
) -> None:
    """The receipt is the same for all; the caller sees the usage chunk if it asked for it, and else none of it."""
    shown = [*map(json.loads, EVENTS), *([json.loads(USAGE)] if asked else []), b"[DONE]"]
    for count, (name, writing) in enumerate(WRITINGS.items(), 1):
        mock.script(Behaviour(events=(*EVENTS, USAGE), **writing))
        answer = await client.post(CHAT, json=question(stream=True, stream_options={"include_usage": asked}))
        assert [each if each == b"[DONE]" else json.loads(each) for each in data(answer.content)] == shown, name
        await run.until_settled(count)
        receipt = run.settled[-1]
        assert receipt.usage is not None, name
        assert (receipt.outcome, receipt.usage.prompt, receipt.usage.completion) == ("ok", 9, 3), name


@pytest.mark.parametrize("finished", [True, False])
async def test_an_engine_without_done_is_understood_however_it_writes(
    mock: MockBackend, run: Running, client: httpx.AsyncClient, finished: bool
) -> None:
    """With its finish reason the answer is whole, without it has been cut off, and the caller is told."""
    events = EVENTS if finished else EVENTS[:-1]
    for count, (name, writing) in enumerate(WRITINGS.items(), 1):
        mock.script(Behaviour(events=events, end_without_done=True, **writing))
        seen = [json.loads(each) for each in data((await client.post(CHAT, json=ASK)).content)]
        assert seen[: len(events)] == [*map(json.loads, events)], name
        assert [each["error"]["code"] for each in seen[len(events) :]] == ([] if finished else ["backend_stream_broken"]), name
        await run.until_settled(count)
        assert run.settled[-1].outcome == ("ok" if finished else "backend_error"), name
        run.gateway.state.backends["mock"].breaker = Breaker(time.monotonic)  # what one fault led to is not the next one's


async def test_two_tool_calls_of_the_second_choice(mock: MockBackend, client: httpx.AsyncClient) -> None:
    """Their ids, their own numbers within the message, and every piece of their arguments arrive as they were sent."""

    def call(number: int, arguments: str, **head: Any) -> str:
        return event(index=1, tool_calls=[{"index": number, **head, "function": {"arguments": arguments}}])

    first = {"id": "call-a", "type": "function"}
    second = {"id": "call-b", "type": "function"}
    events = (
        event(index=0, role="assistant", content="no"),
        call(0, "", **first),
        call(0, '{"x":'),
        call(1, "", **second),
        call(0, "1}"),
        call(1, "{}"),
        event("stop", index=0),
        event("tool_calls", index=1),
    )
    mock.script(Behaviour(events=events, split="event"))
    assert data((await client.post(CHAT, json=question(stream=True, n=2))).content) == [each.encode() for each in (*events, "[DONE]")]


# -- how it ends


async def test_a_fault_of_our_own_in_the_middle(
    mock: MockBackend, run: Running, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One error event ends the stream, the backend is let go, nothing stays counted, and the log has the fault."""
    feed, told = StreamRelay.feed, 0

    def broken(self: StreamRelay, piece: bytes) -> bytes:
        nonlocal told
        told += 1
        if told == 3:
            raise RuntimeError("a fault of our own")
        return feed(self, piece)

    monkeypatch.setattr(StreamRelay, "feed", broken)
    mock.script(Behaviour(tokens=("a",) * 1000, tokens_per_second=50))
    caplog.set_level(logging.ERROR)
    answer = await client.post(CHAT, json=ASK)
    assert answer.content.count(b'"gateway_internal"') == 1
    assert b"[DONE]" not in answer.content
    await mock.wait_for(lambda m: m.aborted == 1)
    await run.until_settled(1)
    assert run.settled[0].outcome == "gateway_error"
    assert "a fault of our own" in caplog.text
    assert run.in_flight() == 0
    monkeypatch.undo()
    assert (await client.post(CHAT, json=ASK)).status_code == 200, "its place in the queue is free"


@pytest.mark.parametrize("leave", ["close", "reset"])
async def test_a_client_that_leaves_at_the_end_of_a_stream_that_beats(mock: MockBackend, run: Running, leave: str) -> None:
    """At `[DONE]`, before the body's own end: it has had its answer, whether or not signs of life were sent on the way."""
    mock.script(Behaviour(events=(*EVENTS, USAGE), delay_headers_s=0.2, stall_after_events=6))
    async with wire(run.url) as connection:
        connection.post(json.dumps(ASK).encode())
        await connection.head()
        seen = b""
        while b"[DONE]" not in seen:
            seen += await connection.chunk()
        getattr(connection, leave)()
        await mock.wait_for(lambda m: m.aborted == 1)
        await run.until_settled(1)
    assert seen.startswith(COMMENT)
    receipt = run.settled[0]
    assert receipt.usage is not None
    assert (receipt.outcome, receipt.usage.completion) == ("ok", 3)


# -- while nothing comes


async def test_a_place_in_the_queue_shows_signs_of_life(mock: MockBackend, run: Running, client: httpx.AsyncClient) -> None:
    """What waits for its turn is kept open by comments too, from the moment it was let in, and then it is served."""
    mock.script(Behaviour(never_answer=True))
    first = asyncio.create_task(client.post(CHAT, json=question()))
    await mock.wait_for(lambda m: m.in_flight == 1)
    async with wire(run.url) as waiting:
        waiting.post(json.dumps(ASK).encode())
        status, headers = await waiting.head()
        assert (status, headers["content-type"].partition(";")[0], headers["x-accel-buffering"]) == (200, "text/event-stream", "no")
        assert [await waiting.chunk() for _ in range(3)] == [COMMENT] * 3
        assert len(mock.requests_to(CHAT)) == 1, "the engine has not heard of it"
        mock.script(Behaviour(events=EVENTS))
        first.cancel()
        rest = b""
        while piece := await waiting.chunk():
            rest += piece
    assert [each.decode() for each in data(rest)] == [*EVENTS, "[DONE]"]


@pytest.mark.parametrize("beats", [True, False])
async def test_a_proxy_that_gives_up_silent_connections(mock: MockBackend, tmp_path: Path, beats: bool) -> None:
    """One that waits 0.6 s for each read: an answer that begins after 1.5 s comes through it only with signs of life."""
    backend = {"url": mock.url, "models": {"mock-model": "mock-model"}}
    config = config_for({"mock": backend}, server={"heartbeat_s": 0.1 if beats else 0})
    mock.script(Behaviour(events=EVENTS, delay_headers_s=1.5))
    async with running(config, tmp_path) as found, found.client() as impatient:
        impatient.timeout = httpx.Timeout(10, read=0.6)
        if beats:
            assert data((await impatient.post(CHAT, json=ASK)).content) == [each.encode() for each in (*EVENTS, "[DONE]")]
        else:
            with pytest.raises(httpx.ReadTimeout):
                await impatient.post(CHAT, json=ASK)


async def test_the_official_sdk_reads_on_when_the_engine_numbers_its_events(mock: MockBackend, run: Running) -> None:
    """After an `id:` field, an empty line alone would make it parse an empty event: a sign of life has none."""
    mock.script(Behaviour(events=EVENTS, comments=("id: 7",), stall_after_events=2, stall_s=0.3))
    async with AsyncOpenAI(base_url=run.url + "/v1", api_key=KEY) as sdk:
        stream = await sdk.chat.completions.create(model="mock-model", messages=[{"role": "user", "content": "hi"}], stream=True)
        assert "".join([chunk.choices[0].delta.content or "" async for chunk in stream]) == "é漢🙂 e\u0301"
    mock.script(Behaviour(events=EVENTS, comments=("id: 7",), stall_after_events=2, stall_s=0.3))
    async with run.client() as client:
        assert COMMENT in (await client.post(CHAT, json=ASK)).content, "there was one"
