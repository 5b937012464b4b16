"""A stream in which nothing happens for a while shows that it lives, in a way that no client takes for content."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from openai import AsyncOpenAI

from gateway.mock import Behaviour, MockBackend
from tests.support.asking import ALWAYS, CHAT, chunks, data, question
from tests.support.raw import wire
from tests.support.running import KEY, Running, config_for, running
from tests.support.waiting import until

COMMENT = b": \n"
ASK = question(stream=True)
EVENTS = tuple(json.dumps({"choices": [{"index": 0, "delta": {"content": f"w{k}"}, "finish_reason": None}]}) for k in range(4))
FINISH = '{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}'
WHOLE = b"".join(f"data: {each}\n\n".encode() for each in (*EVENTS, FINISH, "[DONE]"))

Beating = Callable[..., AbstractAsyncContextManager[tuple[Running, httpx.AsyncClient]]]


@pytest.fixture
def beating(mock: MockBackend, tmp_path: Path) -> Beating:
    """A gateway whose streams beat after 50 ms of silence."""

    @asynccontextmanager
    async def start(heartbeat_s: float = 0.05, **timeouts: float) -> AsyncIterator[tuple[Running, httpx.AsyncClient]]:
        backend = {"url": mock.url, "engine": "vllm", "models": {"mock-model": "mock-model"}, "timeouts": timeouts}
        config = config_for({"mock": backend}, server={"heartbeat_s": heartbeat_s})
        async with running(config, tmp_path) as run, run.client() as client:
            yield run, client

    return start


def error_event(stream: bytes) -> dict[str, Any]:
    """The one event of a stream that began without its backend: an error."""
    comments, _, rest = stream.partition(b"data: ")
    assert set(comments) <= set(COMMENT) and comments
    (event,) = data(b"data: " + rest)
    error: dict[str, Any] = json.loads(event)["error"]
    return error


async def test_silence_in_the_middle(mock: MockBackend, beating: Beating) -> None:
    """Lone comment lines between whole events; the backend's bytes are all there, and in order."""
    async with beating() as (run, client):
        mock.script(Behaviour(events=(*EVENTS, FINISH), stall_after_events=2, stall_s=0.3))
        answer = await client.post(CHAT, json=ASK)
        stream = answer.content
        at = WHOLE.index(b"data: " + EVENTS[2].encode())
        comments = stream[at : len(stream) - len(WHOLE) + at]
        assert comments and comments == COMMENT * (len(comments) // len(COMMENT))
        assert stream == WHOLE[:at] + comments + WHOLE[at:]
        await run.until_settled(1)
        assert run.settled[0].outcome == "ok"


async def test_silence_before_the_head(mock: MockBackend, beating: Beating) -> None:
    """The answer begins without its backend: 200, with the headers of a stream, and what the backend then says follows."""
    async with beating() as (run, client):
        mock.script(Behaviour(events=(*EVENTS, FINISH), delay_headers_s=0.3))
        answer = await client.post(CHAT, json=ASK, headers={"x-request-id": "mine"})
        comments = answer.content.removesuffix(WHOLE)
        assert comments and comments == COMMENT * (len(comments) // len(COMMENT))
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert (answer.headers["cache-control"], answer.headers["x-accel-buffering"]) == ("no-cache", "no")
        assert all(name in answer.headers for name in ALWAYS)
        assert (answer.headers["x-request-id"], answer.headers["x-trilemma-model"]) == ("mine", "mock-model")
        assert float(answer.headers["x-trilemma-overhead-ms"]) < 50, "waiting for the backend is not the gateway's own time"
        await run.until_settled(1)
        assert (run.settled[0].outcome, run.settled[0].status) == ("ok", 200)


async def test_no_field_but_data_and_nothing_that_dispatches_an_empty_event(mock: MockBackend, beating: Beating) -> None:
    """No `id:`, `retry:` or `event:`, no empty line after a comment, and every data line is JSON or the end."""
    async with beating() as (_, client):
        mock.script(Behaviour(tokens=("a", "b"), delay_headers_s=0.15, first_token_delay_s=0.15))
        stream = (await client.post(CHAT, json=ASK)).content
        assert stream.startswith(COMMENT)
        for line in stream.split(b"\n"):
            assert line in (b"", b": ") or line.startswith(b"data: ")
        assert b": \n\n" not in stream
        assert data(stream)[-1] == b"[DONE]"
        assert "".join(each["choices"][0]["delta"].get("content") or "" for each in chunks(stream)) == "ab"


async def test_the_official_sdk_reads_on(mock: MockBackend, beating: Beating) -> None:
    async with beating() as (run, _), AsyncOpenAI(base_url=run.url + "/v1", api_key=KEY) as sdk:
        mock.script(Behaviour(tokens=("Hel", "lo"), delay_headers_s=0.2, first_token_delay_s=0.2, tokens_per_second=5))
        stream = await sdk.chat.completions.create(model="mock-model", messages=[{"role": "user", "content": "hi"}], stream=True)
        assert "".join([chunk.choices[0].delta.content or "" async for chunk in stream]) == "Hello"


async def test_a_lively_stream_is_left_alone(mock: MockBackend, beating: Beating) -> None:
    async with beating(60.0) as (_, client):
        mock.script(Behaviour(events=(*EVENTS, FINISH), split="event"))
        answer = await client.post(CHAT, json=ASK)
        assert answer.content == WHOLE
        mock.script(Behaviour(events=(*EVENTS, FINISH), split=1))
        assert (await client.post(CHAT, json=ASK)).content == WHOLE


LATE: dict[str, tuple[Behaviour, str | int | None, str, str]] = {
    "the backend's refusal": (
        Behaviour(status=429, body='{\n "error": {"message": "slow\\ndown", "type": "x", "param": null, "code": 7}\n}'),
        7,
        "slow\ndown",
        "backend_error",
    ),
    "a refusal in other words": (Behaviour(status=503, body='{"detail":"busy"}'), "backend_error", "503", "backend_error"),
    "HTML": (Behaviour(status=502, body="<h1>Bad</h1>"), "backend_error", "502: Bad", "backend_error"),
    "the gateway's key refused": (Behaviour(status=401, body="{}"), "backend_auth", "key", "backend_error"),
    "a reset": (Behaviour(reset_after_events=-1), "backend_error", "broke", "backend_error"),
    "an answer that is no stream": (Behaviour(ignore_stream=True), "backend_bad_answer", "did not stream", "ok"),
}


@pytest.mark.parametrize(("behaviour", "code", "said", "outcome"), LATE.values(), ids=LATE.keys())
async def test_an_error_that_comes_late_is_the_last_event(
    mock: MockBackend, beating: Beating, behaviour: Behaviour, code: str | int | None, said: str, outcome: str
) -> None:
    """The status was said already: the error stands in one event, and no `[DONE]` follows."""
    async with beating() as (run, client):
        mock.script(msgspec.structs.replace(behaviour, delay_headers_s=0.2))
        answer = await client.post(CHAT, json=ASK)
        error = error_event(answer.content)
        assert (answer.status_code, error["code"]) == (200, code)
        assert said in error["message"]
        await run.until_settled(1)
        assert run.settled[0].outcome == outcome
        assert (run.in_flight(), len(run.settled)) == (0, 1)


@pytest.mark.parametrize(
    ("timeouts", "headers", "code"),
    [({"first_byte_s": 0.2}, {}, "backend_timeout"), ({}, {"x-trilemma-deadline-ms": "200"}, "gateway_deadline")],
)
async def test_beating_stretches_no_deadline(mock: MockBackend, beating: Beating, timeouts: Any, headers: Any, code: str) -> None:
    async with beating(**timeouts) as (run, client):
        mock.script(Behaviour(never_answer=True))
        answer = await client.post(CHAT, json=ASK, headers=headers)
        assert error_event(answer.content)["code"] == code
        await mock.wait_for(lambda m: m.aborted == 1)
        assert run.in_flight() == 0


async def test_silence_past_the_idle_bound_ends_the_stream(mock: MockBackend, beating: Beating) -> None:
    """The gateway's own comments are no progress of the backend."""
    async with beating(idle_s=0.3) as (_, client):
        mock.script(Behaviour(events=EVENTS, stall_after_events=2))
        stream = (await client.post(CHAT, json=ASK)).content
        assert COMMENT in stream
        assert json.loads(data(stream)[-1])["error"]["code"] == "backend_timeout"


async def test_what_is_refused_at_once_keeps_its_status(mock: MockBackend, beating: Beating) -> None:
    async with beating(5.0) as (run, client):
        assert (await client.post(CHAT, json=question(stream=True, model="nobody"))).status_code == 404
        assert (await client.post(CHAT, json=question(stream=True, trilemma={"zz": 1}))).status_code == 400
        mock.script(Behaviour(status=429, body='{"error":{"message":"no"}}'))
        assert (await client.post(CHAT, json=ASK)).status_code == 429
        mock.script(Behaviour(ignore_stream=True, text="whole"))
        assert (await client.post(CHAT, json=ASK)).json()["choices"][0]["message"]["content"] == "whole"
        assert [receipt.outcome for receipt in run.settled] == ["caller_error", "caller_error", "backend_error", "ok"]


async def test_what_is_not_streamed_does_not_beat(mock: MockBackend, beating: Beating) -> None:
    async with beating() as (_, client):
        mock.script(Behaviour(text="whole", delay_headers_s=0.2))
        assert (await client.post(CHAT, json=question())).json()["choices"][0]["message"]["content"] == "whole"
        mock.script(Behaviour(path="/v1/audio/speech", body="sound", headers={"content-type": "audio/mpeg"}, delay_headers_s=0.2))
        answer = await client.post("/v1/audio/speech", json={"model": "mock-model", "input": "hi", "stream": True})
        assert (answer.text, answer.headers["content-type"]) == ("sound", "audio/mpeg")


@pytest.mark.parametrize(
    "behaviour",
    [Behaviour(never_answer=True), Behaviour(stall_after_events=0), Behaviour(events=EVENTS, stall_after_events=2)],
    ids=["before the head", "before the first event", "in the middle"],
)
async def test_a_client_that_leaves_takes_all_with_it(mock: MockBackend, beating: Beating, behaviour: Behaviour) -> None:
    async with beating() as (run, _):
        await until(lambda: not run.gateway.state.unanswered(), "the first probe's end")
        before = len(asyncio.all_tasks())
        mock.script(behaviour)
        async with wire(run.url) as connection:
            connection.post(json.dumps(ASK).encode())
            assert (await connection.head())[0] == 200
            while await connection.chunk() != COMMENT:
                pass
        await mock.wait_for(lambda m: m.aborted == 1)
        await run.until_settled(1)
        assert (run.settled[0].outcome, run.in_flight()) == ("client_closed", 0)
        await until(lambda: len(asyncio.all_tasks()) <= before, "all tasks' end")
