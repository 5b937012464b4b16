"""A real model's name is a faithful relay: what the gateway answers is, byte for byte, what llama.cpp answers when asked directly.

Requests are greedy, and `cache_prompt: false` (which the gateway does not know, and passes on) makes the engine compute everything anew, so
that the same request has the same answer. Only what differs by nature is replaced before comparing: ids, the time, how long it took.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

import httpx
import pytest

from tests.support.engine import STRONG, WEAK, Started
from tests.support.running import NO_TLS

CHAT, COMPLETIONS, EMBEDDINGS = "/v1/chat/completions", "/v1/completions", "/v1/embeddings"
SAME = {"temperature": 0, "seed": 1, "cache_prompt": False, "max_tokens": 6}
MESSAGES = [{"role": "user", "content": "What is the capital of Japan?"}]
LONG = [{"role": "user", "content": "hello " * 1_500}]
SCHEMA = {"type": "object", "properties": {"city": {"enum": ["Tokyo", "Kyoto"]}}, "required": ["city"]}
FORMAT = {"type": "json_schema", "json_schema": {"name": "city", "schema": SCHEMA}}
WEATHER = {
    "type": "function",
    "function": {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}},
}
USAGE = {"stream_options": {"include_usage": True}}
NO_USAGE = {"stream_options": {"include_usage": False}}

BY_NATURE = (
    (re.compile(rb'"id":"(chatcmpl|resp|msg)[-_]\w+"'), rb'"id":"\1"'),
    (re.compile(rb'"(created|created_at|completed_at)":\d+'), rb'"\1":0'),
    (re.compile(rb'"(\w+_ms|\w+_per_second)":[0-9.e+-]+'), rb'"\1":0'),
)


class Told(NamedTuple):
    """What of an answer must be the same."""

    status: int
    kind: str
    body: bytes


def ask(url: str, path: str, body: bytes, headers: dict[str, str]) -> Told:
    """One request, and its answer without what differs by nature."""
    answer = httpx.post(url + path, content=body, headers={"content-type": "application/json"} | headers, timeout=120, verify=NO_TLS)
    raw = answer.content
    for pattern, plain in BY_NATURE:
        raw = pattern.sub(plain, raw)
    return Told(answer.status_code, answer.headers["content-type"], raw)


def both(stack: Started, path: str, body: dict[str, Any] | bytes, engine: str = "strong") -> tuple[Told, Told]:
    """The answers to the same bytes: the engine's own, and the gateway's."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return ask(stack.engine(engine).url, path, raw, {}), ask(stack.url, path, raw, stack.headers)


def chat(**fields: Any) -> dict[str, Any]:
    """A chat that has the same answer each time."""
    return {"model": STRONG, "messages": MESSAGES} | SAME | fields


def text(**fields: Any) -> dict[str, Any]:
    """A completion that has the same answer each time."""
    return {"model": STRONG, "prompt": "One, two, three,"} | SAME | fields


ANSWERED: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": (CHAT, chat()),
    "chat that stops": (CHAT, chat(max_tokens=40)),
    "chat with nulls and unknown fields": (CHAT, chat(stop=None, tools=None, n=None, made_up={"a": [1, None]}, user="u")),
    "chat n": (CHAT, chat(n=2)),
    "chat logprobs": (CHAT, chat(logprobs=True, top_logprobs=2)),
    "chat schema": (CHAT, chat(max_tokens=30, response_format=FORMAT)),
    "chat tools": (CHAT, chat(tools=[WEATHER])),
    "chat going on": (CHAT, chat(messages=[*MESSAGES, {"role": "assistant", "content": "The capital"}])),
    "chat parts": (CHAT, chat(messages=[{"role": "user", "content": [{"type": "text", "text": "Say é漢🙂."}]}])),
    "chat stream": (CHAT, chat(stream=True)),
    "chat stream that stops": (CHAT, chat(max_tokens=40, stream=True)),
    "chat stream usage": (CHAT, chat(stream=True, **USAGE)),
    "chat stream no usage": (CHAT, chat(stream=True, **NO_USAGE)),
    "chat stream null options": (CHAT, chat(stream=True, stream_options=None)),
    "chat stream logprobs": (CHAT, chat(stream=True, logprobs=True, top_logprobs=2)),
    "chat stream timings": (CHAT, chat(stream=True, timings_per_token=True)),
    "chat stream progress": (CHAT, chat(stream=True, return_progress=True)),
    "chat stream schema": (CHAT, chat(max_tokens=30, stream=True, response_format=FORMAT)),
    "chat not streamed": (CHAT, chat(stream=False)),
    "completion": (COMPLETIONS, text()),
    "completion n": (COMPLETIONS, text(n=2)),
    "completion logprobs": (COMPLETIONS, text(logprobs=2)),
    "completion of token ids": (COMPLETIONS, text(prompt=[504, 3575, 282])),
    "completion stream": (COMPLETIONS, text(stream=True)),
    "completion stream usage": (COMPLETIONS, text(stream=True, **USAGE)),
    "embeddings": (EMBEDDINGS, {"model": STRONG, "input": ["a cat", "a kitten"]}),
    "embeddings base64": (EMBEDDINGS, {"model": STRONG, "input": "a cat", "encoding_format": "base64"}),
    "counted tokens": ("/v1/messages/count_tokens", {"model": STRONG, "messages": MESSAGES}),
    "messages": ("/v1/messages", {"model": STRONG, "messages": MESSAGES} | SAME),
    "messages stream": ("/v1/messages", {"model": STRONG, "messages": MESSAGES, "stream": True} | SAME),
    "responses": ("/v1/responses", {"model": STRONG, "input": "Hi.", "max_output_tokens": 4, "temperature": 0, "cache_prompt": False}),
}

REFUSED: dict[str, tuple[int, str, dict[str, Any]]] = {
    "too long": (400, CHAT, chat(messages=LONG)),
    "too long stream": (400, CHAT, chat(messages=LONG, stream=True)),
    "messages no list": (400, CHAT, chat(messages="hello")),
    "no messages": (400, CHAT, {"model": STRONG}),
    "more than the slots": (400, CHAT, chat(n=9)),
    "broken grammar": (400, CHAT, chat(grammar="root ::= (")),
    "no prompt": (400, COMPLETIONS, {"model": STRONG}),
    "no input": (400, EMBEDDINGS, {"model": STRONG}),
    "not supported": (501, "/v1/rerank", {"model": STRONG, "query": "a", "documents": ["b"]}),
    "no such route": (404, "/v1/nothing", {"model": STRONG}),
}


@pytest.mark.parametrize("case", ANSWERED)
def test_an_answer_is_the_engine_s_own(stack: Started, case: str) -> None:
    path, body = ANSWERED[case]
    direct, relayed = both(stack, path, body)
    assert direct.status == 200, direct
    assert relayed == direct


@pytest.mark.parametrize("case", REFUSED)
def test_a_refusal_is_the_engine_s_own(stack: Started, case: str) -> None:
    status, path, body = REFUSED[case]
    direct, relayed = both(stack, path, body)
    assert direct.status == status, direct
    assert relayed == direct


IMAGE = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]}
CALLER_FAULTS: dict[str, tuple[str, dict[str, Any]]] = {
    "a message without a role": (CHAT, chat(messages=[{"content": "hi"}])),
    "a role that is no text": (CHAT, chat(messages=[{"role": 5, "content": "hi"}])),
    "tools no list": (CHAT, chat(tools="x")),
    "an image for a text model": (CHAT, chat(messages=[IMAGE])),
    "an input above the batch size": (EMBEDDINGS, {"model": STRONG, "input": "word " * 3000}),
}


@pytest.mark.parametrize("case", CALLER_FAULTS)
def test_bad_input_that_the_engine_calls_its_own_fault_is_the_caller_s(stack: Started, case: str) -> None:
    """llama.cpp says 500, which clients try again; the gateway says 400, in the engine's words."""
    path, body = CALLER_FAULTS[case]
    direct, relayed = both(stack, path, body)
    assert (direct.status, relayed.status) == (500, 400)
    error = json.loads(relayed.body)["error"]
    assert error["message"] == json.loads(direct.body)["error"]["message"]
    assert (error["type"], error["code"]) == ("invalid_request_error", "caller_invalid_value")


@pytest.mark.parametrize("extra", [{}, USAGE], ids=["plain", "usage"])
@pytest.mark.parametrize(("path", "body"), [(CHAT, chat(n=2, stream=True)), (COMPLETIONS, text(n=2, stream=True))], ids=["chat", "text"])
def test_the_events_of_each_choice_are_the_engine_s_own(stack: Started, path: str, body: dict[str, Any], extra: dict[str, Any]) -> None:
    # Two slots race, so events of different choices may change places; those of one choice may not.
    def by_choice(told: Told) -> dict[int | None, list[bytes]]:
        events: dict[int | None, list[bytes]] = {}
        for event in told.body.split(b"\n\n"):
            index = re.search(rb'"index":(\d+)', event)
            events.setdefault(int(index.group(1)) if index else None, []).append(event)
        return events

    direct, relayed = both(stack, path, body | extra)
    assert (direct.status, direct.kind) == (relayed.status, relayed.kind) == (200, "text/event-stream")
    assert by_choice(relayed) == by_choice(direct)
    assert {0, 1} < by_choice(direct).keys()


def test_the_weaker_model_is_asked_at_its_own_engine(stack: Started) -> None:
    direct, relayed = both(stack, CHAT, chat(model=WEAK), "weak")
    assert direct.status == 200
    assert relayed == direct
    direct, relayed = both(stack, EMBEDDINGS, {"model": WEAK, "input": "a cat"}, "weak")  # started without embeddings
    assert direct.status == 501
    assert relayed == direct


@pytest.mark.parametrize(
    "body",
    [
        b'\n{ "messages" : [{"role":"user","content":"What is\\u0020the capital of Japan?"}],\t"max_tokens":6,"temperature":0.0,'
        b'"cache_prompt":false,\n"model"  :"smollm2-135m" } \n',
        b'{"seed":2,"model":"smollm2-135m","max_tokens":1e0,"messages":[{"content":"Hi","role":"user"}],"temperature":-0,"seed":1,'
        b'"cache_prompt":false}',
    ],
    ids=["white space", "numbers and a key twice"],
)
def test_a_request_reaches_the_engine_however_it_is_written(stack: Started, body: bytes) -> None:
    direct, relayed = both(stack, CHAT, body)
    assert relayed == direct


def test_what_the_gateway_is_told_is_not_told_to_the_engine(stack: Started) -> None:
    raw = json.dumps(chat()).encode()
    direct = ask(stack.engine().url, CHAT, raw, {})
    settings = b'{"trilemma": {"session_id": "s", "deadline_ms": 60000}, ' + raw[1:]
    assert ask(stack.url, CHAT, settings, stack.headers) == direct
    assert ask(stack.url, CHAT, raw, stack.headers | {"x-trilemma-deadline-ms": "60000"}) == direct
