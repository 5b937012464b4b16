"""A relayed stream is the backend's own, byte for byte, however it is written to the wire."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
from typing import Any

import httpx
import pytest

from gateway.mock import Behaviour, MockBackend, Say, ToolCall
from tests.http.conftest import Both
from tests.support.asking import ALWAYS, CHAT, MESSAGES, chunks, data, question
from tests.support.running import Running

pytestmark = pytest.mark.asyncio(loop_scope="module")
LANES = ("hot", "asgi", "fastapi")

ASK = question(stream=True)
ASK_USAGE = question(stream=True, stream_options={"include_usage": True})


def event(index: int = 0, finish: str | None = None, **delta: Any) -> str:
    """A chat chunk, written with blanks where a backend may write them."""
    choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": finish}
    chunk = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 7, "model": "what-the-backend-says", "choices": [choice]}
    return json.dumps(chunk, ensure_ascii=False)


ROLE = event(role="assistant", content="")
FINISH = event(finish="stop")
ODD = '{ "id" :"chatcmpl-1","zz_future":[1,{"k":null}] ,"choices":[{"index":0,"delta":{"content":"é漢🙂 e\u0301"},"finish_reason":null}]}'
EVENTS = (ROLE, ODD, event(content="\u2028 not a line end \x85"), event(content='\\n{"data": 1}'), FINISH)
USAGE = (
    '{"id":"chatcmpl-1","object":"chat.completion.chunk","choices":[],"usage":{"prompt_tokens":9,"total_tokens":12,"completion_tokens":3}}'
)
NO_CHOICE = '{"id":"chatcmpl-1","object":"chat.completion.chunk","choices":[],"prompt_filter_results":[]}'


def neutral(stream: bytes) -> bytes:
    """Without what differs between any two answers: the id and the second of their making."""
    return re.sub(rb'"id":"[^"]*"|"created":\d+', b"", stream)


def sse(*events: str) -> bytes:
    return b"".join(b"data: " + each.encode() + b"\n\n" for each in events)


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("split", [None, "event", "all", 1, 7])
@pytest.mark.parametrize("comments", [False, True])
async def test_the_split_and_the_line_ends_change_nothing(both: Both, split: Any, line_end: Any, comments: bool) -> None:
    """Characters, lines and events may be cut anywhere, several events may come in one read, comments stay comments."""
    shape = Behaviour(events=EVENTS, split=split, line_end=line_end, comments=comments)
    pair = await both(shape, ASK)
    assert pair.relayed.content == pair.direct.content
    assert data(pair.relayed.content) == [each.encode() for each in (*EVENTS, "[DONE]")]


@pytest.mark.parametrize("split", [None, 1])
async def test_an_event_in_two_data_lines(both: Both, split: Any) -> None:
    """Usage, finish reason and end are found all the same: nothing is missed, nothing invented."""
    pair = await both(Behaviour(events=(*EVENTS, USAGE), multi_line_data=True, split=split), ASK_USAGE)
    assert pair.relayed.content == pair.direct.content
    assert [json.loads(each) for each in data(pair.relayed.content)[:-1]] == [json.loads(each) for each in (*EVENTS, USAGE)]


@pytest.mark.parametrize("framing", ["chunked", "close"])
@pytest.mark.parametrize("coding", ["gzip", "deflate", None])
async def test_framing_and_coding_of_the_hop_stay_behind(both: Both, framing: Any, coding: Any) -> None:
    pair = await both(Behaviour(events=EVENTS, framing=framing, content_encoding=coding), ASK)
    assert pair.relayed.content == pair.direct.content == sse(*EVENTS, "[DONE]")
    assert "content-encoding" not in pair.relayed.headers


async def test_bytes_that_are_not_utf8_are_not_touched(mock: MockBackend, client: httpx.AsyncClient) -> None:
    stream = sse(ROLE) + b'data: {"choices":[{"index":0,"delta":{"content":"\xff\xfe\xe6"}}]}\n\n' + sse(FINISH, "[DONE]")
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n" % len(stream)
    mock.script(Behaviour(raw=head + stream, split=5))
    assert (await client.post(CHAT, json=ASK)).content == stream


async def test_a_large_event_passes(both: Both) -> None:
    pair = await both(Behaviour(events=(ROLE, event(content="x" * 3_000_000), FINISH), split=65_536), ASK)
    assert pair.relayed.content == pair.direct.content


# -- usage


async def test_usage_that_was_asked_for_comes_last_and_intact(both: Both) -> None:
    """A chunk without choices is no fault, at the end or in the middle."""
    pair = await both(Behaviour(events=(ROLE, NO_CHOICE, ODD, FINISH, USAGE)), ASK_USAGE)
    assert pair.relayed.content == pair.direct.content
    assert data(pair.relayed.content)[-2:] == [USAGE.encode(), b"[DONE]"]


@pytest.mark.parametrize("split", [None, 1, "all"])
@pytest.mark.parametrize("options", [{}, {"stream_options": None}, {"stream_options": {"include_usage": False}}, {"stream_options": {}}])
async def test_usage_that_was_not_asked_for_is_known_and_not_shown(
    mock: MockBackend, client: httpx.AsyncClient, gateway: Running, options: dict[str, Any], split: Any
) -> None:
    """Asked for upstream, dropped on the way back: the client's bytes are those of a direct call."""
    events = (ROLE, NO_CHOICE, ODD, FINISH)
    mock.script(Behaviour(events=(*events, USAGE), split=split))
    answer = await client.post(CHAT, json={**ASK, **options})
    assert answer.content == sse(*events, "[DONE]")
    assert json.loads(mock.requests[-1].body)["stream_options"]["include_usage"] is True
    await gateway.until_settled(1)
    usage = gateway.settled[0].usage
    assert usage is not None and (usage.prompt, usage.completion) == (9, 3)
    assert gateway.settled[0].cost == pytest.approx(9 * 1.0e-6 + 3 * 2.0e-6)


@pytest.mark.parametrize("usage", ["exact", "empty", "partial", "in_every_chunk", "openai", "none"])
@pytest.mark.parametrize("split", [None, 1, "all"])
async def test_odd_usage_in_chunks_is_left_as_it_is(both: Both, usage: Any, split: Any) -> None:
    """`usage` null, empty, partial or in every chunk: but for the two ids, the client sees what it would have seen without the gateway."""
    pair = await both(Behaviour(tokens=("a", "b"), usage=usage, split=split), ASK)
    assert neutral(pair.relayed.content) == neutral(pair.direct.content)


async def test_streamed_completions_are_accounted_like_chats(mock: MockBackend, client: httpx.AsyncClient, gateway: Running) -> None:
    body = {"model": "mock-model", "prompt": "one two three", "max_tokens": 4, "stream": True}
    shown = await client.post("/v1/completions", json=body | {"stream_options": {"include_usage": True}})
    await client.post("/v1/completions", json=body)
    await gateway.until_settled(2)
    assert chunks(shown.content)[-1]["usage"]["completion_tokens"] == 4
    assert [(r.usage.prompt, r.usage.completion) for r in gateway.settled if r.usage] == [(3, 4), (3, 4)]


# -- content


async def test_two_choices_interleaved_with_a_tool_call(mock: MockBackend, client: httpx.AsyncClient) -> None:
    """Every chunk keeps its choice's index, a tool call its one id, and each choice ends once."""
    choices = (Say(tokens=("A0", "A1")), Say(tool_calls=(ToolCall("f", '{"x": 1}', "call-1"),)))
    body = question(stream=True, n=2, tools=[{"type": "function", "function": {"name": "f"}}], stream_options={"include_usage": True})
    mock.script(Behaviour(choices=choices))
    seen = chunks((await client.post(CHAT, json=body)).content)
    parts = [each["choices"][0] for each in seen if each["choices"]]
    assert {part["index"] for part in parts} == {0, 1}
    for index, finish in ((0, "stop"), (1, "tool_calls")):
        own = [part for part in parts if part["index"] == index]
        assert own[0]["delta"]["role"] == "assistant"
        assert [part["finish_reason"] for part in own] == [None] * (len(own) - 1) + [finish]
    assert "".join(part["delta"].get("content") or "" for part in parts if part["index"] == 0) == "A0A1"
    calls = [call for part in parts for call in part["delta"].get("tool_calls", ())]
    assert [call["id"] for call in calls if "id" in call] == ["call-1"]
    assert "".join(call["function"]["arguments"] for call in calls) == '{"x": 1}'
    assert sum(1 for each in seen if each.get("usage")) == 1


CALL = event(tool_calls=[{"index": 0, "id": "call-1", "type": "function", "function": {"name": "f", "arguments": "{}"}}])
RELAYED_AS_TOLD = {
    "tools were called in an earlier chunk, and the last one says stop": (ROLE, CALL, event(finish="stop")),
    "a finish reason stands on chunks in the middle": (ROLE, event(content="a", finish="stop"), event(content="b", finish="stop")),
    "thinking tags are cut over chunks": tuple(
        event(content=part) for part in ("so ", "<th", "ink>", "2+2", "</thi", "nk>", "4", "</think>")
    ),
    "reasoning has its own field": (event(role="assistant", reasoning_content="hm", reasoning="hm"), event(content="4"), FINISH),
    "the role stands in every delta, or is empty": (ROLE, event(role="assistant", content="a"), event(role="", content="b"), FINISH),
    "no chunk carries a role": (event(content="a"), FINISH),
    "the answer is empty": (ROLE, FINISH),
    "usage is an empty object": (ROLE, FINISH[:-1] + ', "usage": {}}', FINISH),
    "a chunk has no choices at all": (ROLE, '{"id":"chatcmpl-1","object":"chat.completion.chunk"}', FINISH),
    "ids are empty": tuple(each.replace("chatcmpl-1", "") for each in EVENTS),
    "the last chunk has null logprobs and finishes by length": (ROLE, event(content="a"), event(finish="length")),
    "an event holds no JSON": (ROLE, "not json", FINISH),
}


@pytest.mark.parametrize("events", RELAYED_AS_TOLD.values(), ids=RELAYED_AS_TOLD.keys())
async def test_the_relay_judges_nothing(both: Both, events: tuple[str, ...]) -> None:
    pair = await both(Behaviour(events=events), ASK)
    assert pair.relayed.content == pair.direct.content == sse(*events, "[DONE]")


async def test_logprobs_of_chats(both: Both) -> None:
    """Streamed with alternatives and cut by length: every chunk passes, with its finish reason."""
    body = question(stream=True, logprobs=True, top_logprobs=2, max_tokens=2)
    pair = await both(Behaviour(), body, plain=body | {"stream_options": {"include_usage": True}})
    relayed, direct = ([part for each in chunks(r.content) for part in each["choices"]] for r in (pair.relayed, pair.direct))
    assert relayed == direct
    assert relayed[-1]["finish_reason"] == "length"
    scored = [entry for part in relayed if part["logprobs"] for entry in part["logprobs"]["content"]]
    assert [(entry["token"], len(entry["top_logprobs"])) for entry in scored] == [("tok0", 2), (" tok1", 2)]


async def test_logprobs_without_alternatives_and_of_completions(both: Both) -> None:
    """The two schemas are not mixed up: lists of entries on chats, parallel arrays on completions, null where there are none."""
    chat = await both(Behaviour(), question(logprobs=True, max_tokens=1))
    legacy = await both(Behaviour(), {"model": "mock-model", "prompt": "a", "logprobs": 1, "max_tokens": 1}, "/v1/completions")
    none = await both(Behaviour(), question(logprobs=None, max_tokens=1))
    for pair in (chat, legacy, none):
        assert pair.relayed.json()["choices"] == pair.direct.json()["choices"]
    assert chat.relayed.json()["choices"][0]["logprobs"]["content"][0]["token"] == "tok0"
    assert legacy.relayed.json()["choices"][0]["logprobs"]["tokens"] == ["tok0"]
    assert none.relayed.json()["choices"][0]["logprobs"] is None


async def test_what_generic_streams_say_is_not_read(mock: MockBackend, client: httpx.AsyncClient) -> None:
    """Named events without `[DONE]`, as other formats have them, are whole without it, and no option is put into their request."""
    stream = b'event: response.created\ndata: {"type":"response.created"}\n\nevent: done\ndata: {}\n\n'
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n" % len(stream)
    mock.script(Behaviour(raw=head + stream))
    body = b'{"model":"mock-model","input":"hi","stream":true}'
    answer = await client.post("/v1/responses", content=body, headers={"content-type": "application/json"})
    assert answer.content == stream
    assert mock.requests[-1].body == body


# -- the answer as HTTP


async def test_headers_of_a_stream(mock: MockBackend, client: httpx.AsyncClient) -> None:
    """Nothing between gateway and client is to hold events back: no cache, no buffering, no length, no compression."""
    mock.script(Behaviour(events=EVENTS, headers={"cache-control": "max-age=60", "x-accel-buffering": "yes", "x-own": "kept"}))
    answer = await client.post(CHAT, json=ASK, headers={"accept-encoding": "gzip, br"})
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers.get_list("cache-control") == ["no-cache"]
    assert answer.headers.get_list("x-accel-buffering") == ["no"]
    assert answer.headers["x-own"] == "kept"
    assert "content-length" not in answer.headers
    assert "content-encoding" not in answer.headers
    assert all(name in answer.headers for name in ALWAYS)
    assert (answer.headers["x-trilemma-model"], answer.headers["x-trilemma-attempts"]) == ("mock-model", "1")
    assert "x-trilemma-cost" not in answer.headers


async def test_events_arrive_while_the_backend_still_works(mock: MockBackend, client: httpx.AsyncClient) -> None:
    """Nothing is gathered first: what has been said arrives while the rest is yet to come."""
    mock.script(Behaviour(events=EVENTS, stall_after_events=2))
    async with client.stream("POST", CHAT, json=ASK) as answer:
        pieces = answer.aiter_raw()
        seen = await anext(pieces)
        while len(seen) < len(sse(*EVENTS[:2])):
            seen += await anext(pieces)
        assert seen == sse(*EVENTS[:2])
        assert mock.in_flight == 1


async def test_the_head_comes_with_the_first_event(mock: MockBackend, client: httpx.AsyncClient) -> None:
    """Until the first event another replica may still serve, so status and headers are those of the one that does."""
    mock.script(Behaviour(events=EVENTS, stall_after_events=1))
    async with client.stream("POST", CHAT, json=ASK) as answer:
        assert answer.status_code == 200
        assert mock.in_flight == 1


async def test_a_backend_that_does_not_stream(mock: MockBackend, client: httpx.AsyncClient) -> None:
    """Asked for a stream, it answers whole: that is what the client gets, with its length."""
    mock.script(Behaviour(ignore_stream=True, text="whole"))
    answer = await client.post(CHAT, json=ASK)
    assert answer.headers["content-type"] == "application/json"
    assert int(answer.headers["content-length"]) == len(answer.content)
    assert answer.json()["choices"][0]["message"]["content"] == "whole"


async def test_many_streams_at_once_do_not_mix(mock: MockBackend, client: httpx.AsyncClient) -> None:
    async def one(number: int) -> str:
        body = {
            "model": "mock-model",
            "messages": [*MESSAGES, {"role": "user", "content": str(number)}],
            "stream": True,
            "max_tokens": number,
        }
        seen = chunks((await client.post(CHAT, json=body)).content)
        return "".join(each["choices"][0]["delta"].get("content") or "" for each in seen)

    mock.script(default=Behaviour(tokens_per_second=500))
    texts = await asyncio.gather(*(one(number) for number in range(1, 33)))
    whole = [f"{' ' * (k > 0)}tok{k}" for k in range(33)]
    assert texts == ["".join(itertools.islice(whole, number)) for number in range(1, 33)]
