"""The mock's answers beside recorded ones: the same text where tokens can be scripted, else the same keys in order."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.mock import Behaviour, MockBackend, Say

SAMPLES = Path(__file__).parent / "samples"
CHAT = {"model": "smollm2-135m", "messages": [{"role": "user", "content": "hi"}]}


def sample(name: str) -> dict[str, Any]:
    return json.loads((SAMPLES / f"{name}.json").read_text())


async def replay(client: httpx.AsyncClient, recorded: dict[str, Any]) -> httpx.Response:
    request = recorded["request"]
    body = request["body"]
    content = None if body is None else body if isinstance(body, str) else json.dumps(body)
    return await client.request(request["method"], request["path"], content=content)


def masked(text: str) -> str:
    """The text without what differs from run to run: ids, times, counts of prompt tokens and of cached ones."""
    text = re.sub(r'"(chatcmpl|cmpl)-[0-9a-f]{16}"', r'"\1-ID"', text)
    text = re.sub(r'"created":\d+', '"created":0', text)
    return re.sub(r'"(prompt_tokens|total_tokens|completion_tokens|cached_tokens|created_cache_tokens)":\d+', r'"\1":0', text)


def shape(value: Any, key: str = "") -> Any:
    """Keys in order, types of values; a list is its entries' shapes, a map from tokens the shape of its first value."""
    if isinstance(value, dict):
        if key in ("top_logprobs", "prompt_logprobs"):
            return {"*": shape(next(iter(value.values())))}
        return [(name, shape(entry, name)) for name, entry in value.items()]
    if isinstance(value, list):
        return sorted({json.dumps(shape(entry, key)) for entry in value})
    return "number" if isinstance(value, int | float) and not isinstance(value, bool) else type(value).__name__


def events(text: str) -> list[Any]:
    return [json.loads(line.removeprefix("data: ")) for line in text.split("\n\n") if line and line != "data: [DONE]"]


def pieces(text: str, index: int = 0) -> tuple[str, ...]:
    """The tokens of one choice of a recorded stream."""
    found = []
    for event in events(text):
        for choice in event["choices"]:
            piece = choice.get("text") or choice.get("delta", {}).get("content")
            if choice["index"] == index and piece:
                found.append(piece)
    return tuple(found)


@pytest.mark.parametrize("name", ["chat_stream", "chat_stream_n2", "chat_stream_continuous_usage", "compl_stream"])
async def test_streams_are_the_recorded_bytes(mock: MockBackend, client: httpx.AsyncClient, name: str) -> None:
    recorded, text = sample(name), (SAMPLES / f"{name}.txt").read_text()
    cut = (" more",) if '"finish_reason":"length"' in text else ()
    mock.script(Behaviour(choices=tuple(Say(tokens=pieces(text, index) + cut) for index in range(2))))
    answer = await replay(client, recorded)
    ours, theirs = (re.sub(r"vllm-0\.32\.0-[0-9a-f]+", "F", masked(whole)) for whole in (answer.text, text))
    assert ours == theirs
    assert list(answer.headers) == list(recorded["headers"])
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"


@pytest.mark.parametrize("name", ["chat_stream_logprobs", "compl_echo_stream"])
async def test_streams_with_logprobs_have_the_recorded_shape(mock: MockBackend, client: httpx.AsyncClient, name: str) -> None:
    recorded, text = sample(name), (SAMPLES / f"{name}.txt").read_text()
    answer = await replay(client, recorded)
    assert shape(events(answer.text)) == shape(events(text))
    assert len(events(answer.text)) == len(events(text))


TEXTS = {
    "chat_basic": ("7", " +", " ", "5", " =", " ", "1", "2", "."),
    "chat_stop": ("7", " +", " ", "5", " =", " ", "1", "2", ".", " never"),
    "chat_stop_include": ("7", " +", " ", "5", " =", " ", "1", "2", ".", " never"),
    "compl_basic": (" Rome", ".", " The", " capital", " of", " Spain", " is", " Madrid"),
}


@pytest.mark.parametrize("name", TEXTS)
async def test_whole_answers_are_the_recorded_bytes(mock: MockBackend, client: httpx.AsyncClient, name: str) -> None:
    recorded = sample(name)
    cut = name == "compl_basic"
    mock.script(Behaviour(tokens=TEXTS[name] + (" more",) * cut))
    answer = await replay(client, recorded)
    theirs = json.dumps(recorded["response"], ensure_ascii=False, separators=(",", ":"))
    assert masked(answer.text) == masked(theirs)
    assert list(answer.headers) == list(recorded["headers"])


@pytest.mark.parametrize(
    "name",
    [
        "chat_n4",
        "chat_logprobs",
        "chat_return_token_ids",
        "compl_logprobs",
        "compl_batch_prompts",
        "compl_echo_logprobs0_max0",
        "compl_prompt_logprobs",
        "compl_score_token_ids_echo",
        "models",
        "version",
        "health",
        "tokenize_prompt",
        "tokenize_strs",
    ],
)
async def test_other_answers_have_the_recorded_shape(client: httpx.AsyncClient, name: str) -> None:
    recorded = sample(name)
    answer = await replay(client, recorded)
    assert (answer.status_code, list(answer.headers)) == (recorded["status"], list(recorded["headers"]))
    assert shape(answer.json() if answer.content else None) == shape(recorded.get("response"))


async def test_prompt_logprobs_of_a_chat_have_the_recorded_shape(client: httpx.AsyncClient) -> None:
    recorded = sample("chat_prompt_logprobs")
    answer = await replay(client, recorded)
    assert shape(answer.json()) == shape(recorded["response"])
    scored = answer.json()["prompt_logprobs"]
    assert len(scored) == answer.json()["usage"]["prompt_tokens"]
    pieces = [next(iter(entry.values()))["decoded_token"] for entry in scored[1:]]
    assert "".join(pieces).endswith("<|im_start|>assistant\nThe sum of 7 and 5 is")


@pytest.mark.parametrize(
    "name",
    [
        "chat_unknown_model",
        "chat_max_tokens_0",
        "chat_bad_role",
        "bad_json",
        "404",
        "chat_bad_temperature",
        "chat_too_many_toplogprobs",
        "chat_prompt_logprobs_stream_err",
        "chat_continue_only_flag",
        "chat_both_continue_and_gen_err",
    ],
)
async def test_errors_are_the_recorded_bytes(client: httpx.AsyncClient, name: str) -> None:
    recorded = sample(name)
    answer = await replay(client, recorded)
    assert answer.status_code == recorded["status"]
    assert answer.text == json.dumps(recorded["response"], ensure_ascii=False, separators=(",", ":"))


async def test_a_prompt_above_the_context_gets_the_recorded_error(client: httpx.AsyncClient) -> None:
    recorded = sample("chat_too_long")
    recorded["request"]["body"]["messages"][0]["content"] *= 150
    answer = await replay(client, recorded)
    assert (answer.status_code, answer.json()) == (400, recorded["response"])


async def test_an_output_above_the_context_is_refused_with_both_numbers(client: httpx.AsyncClient) -> None:
    answer = await client.post("/v1/completions", json={"prompt": "a b c", "max_tokens": 4000})
    assert answer.status_code == 400
    assert answer.json()["error"]["message"].startswith(
        "This model's maximum context length is 2048 tokens. However, you requested 4000 output tokens and your prompt "
        "contains at least 3 input tokens, for a total of at least 4003 tokens."
    )


async def test_the_default_answer_is_as_long_as_asked(client: httpx.AsyncClient) -> None:
    three = (await client.post("/v1/chat/completions", json={**CHAT, "max_completion_tokens": 3, "max_tokens": 9})).json()
    assert three["choices"][0]["message"]["content"] == "tok0 tok1 tok2"
    assert (three["choices"][0]["finish_reason"], three["usage"]["completion_tokens"]) == ("length", 3)
    free = (await client.post("/v1/chat/completions", json=CHAT)).json()
    assert (free["choices"][0]["finish_reason"], free["usage"]["completion_tokens"]) == ("stop", 16)


async def test_choices_of_one_request_differ_and_are_interleaved(client: httpx.AsyncClient) -> None:
    answer = await client.post("/v1/completions", json={"prompt": "x", "n": 2, "max_tokens": 2, "stream": True})
    seen = [(choice["index"], choice["text"]) for event in events(answer.text) for choice in event["choices"]]
    assert seen == [(0, "tok0"), (1, "choice1tok0"), (0, " tok1"), (1, " choice1tok1")]


async def test_a_stop_string_over_a_token_border_cuts_the_text(mock: MockBackend, client: httpx.AsyncClient) -> None:
    mock.script(Behaviour(tokens=("one", " tw", "o th", "ree")))
    answer = (await client.post("/v1/chat/completions", json={**CHAT, "stop": ["two"]})).json()
    choice = answer["choices"][0]
    assert (choice["message"]["content"], choice["finish_reason"], choice["stop_reason"]) == ("one ", "stop", "two")
    assert answer["usage"]["completion_tokens"] == 3


async def test_reasoning_comes_before_content(client: httpx.AsyncClient) -> None:
    body = {**CHAT, "max_tokens": 5, "chat_template_kwargs": {"enable_thinking": True}}
    message = (await client.post("/v1/chat/completions", json=body)).json()["choices"][0]["message"]
    assert (message["reasoning"], message["content"]) == ("think0 think1 think2", "tok0 tok1")
    streamed = events((await client.post("/v1/chat/completions", json={**body, "stream": True})).text)
    assert [event["choices"][0]["delta"] for event in streamed] == [
        {"role": "assistant", "content": ""},
        {"reasoning": "think0"},
        {"reasoning": " think1"},
        {"reasoning": " think2"},
        {"content": "tok0"},
        {"content": " tok1"},
    ]


SCHEMA = {
    "type": "object",
    "$defs": {"unit": {"enum": ["celsius", "kelvin"]}},
    "properties": {
        "city": {"type": "string", "minLength": 2},
        "days": {"type": "array", "items": {"type": "integer", "minimum": 3}, "minItems": 1},
        "unit": {"$ref": "#/$defs/unit"},
        "note": {"type": "string"},
        "exact": {"anyOf": [{"type": "boolean"}, {"type": "null"}]},
    },
    "required": ["city", "days", "unit", "exact"],
}
SMALLEST = {"city": "xx", "days": [3], "unit": "celsius", "exact": False}


async def test_structured_outputs_are_smallest_instances(client: httpx.AsyncClient) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "weather", "schema": SCHEMA}}
    for extra in ({"response_format": form}, {"structured_outputs": {"json": SCHEMA}}):
        answer = (await client.post("/v1/chat/completions", json={**CHAT, **extra})).json()
        assert json.loads(answer["choices"][0]["message"]["content"]) == SMALLEST
    choice = {"structured_outputs": {"choice": ["yes", "no"]}}
    answer = (await client.post("/v1/chat/completions", json={**CHAT, **choice})).json()
    assert answer["choices"][0]["message"]["content"] == "yes"


async def test_logprobs_do_not_depend_on_how_a_text_is_scored(client: httpx.AsyncClient) -> None:
    """Echo, prompt_logprobs and generation agree on a token's value at its place."""
    echo = {"prompt": "a b c", "max_tokens": 0, "echo": True, "logprobs": 0}
    echoed = (await client.post("/v1/completions", json=echo)).json()["choices"][0]
    scored = (await client.post("/v1/completions", json={"prompt": "a b c", "prompt_logprobs": 0})).json()["choices"][0]
    values = [None if entry is None else next(iter(entry.values()))["logprob"] for entry in scored["prompt_logprobs"]]
    assert echoed["logprobs"]["token_logprobs"] == values
    assert (echoed["text"], echoed["logprobs"]["text_offset"]) == ("a b c", [0, 1, 3])


async def test_a_token_id_prompt_is_the_text_it_came_from(client: httpx.AsyncClient) -> None:
    ids = (await client.post("/tokenize", json={"prompt": "The capital of Italy is"})).json()["tokens"]
    answer = await client.post("/v1/completions", json={"prompt": ids, "max_tokens": 1, "echo": True})
    assert answer.json()["choices"][0]["text"] == "The capital of Italy istok0"
    back = await client.post("/detokenize", json={"tokens": ids})
    assert back.text == '{"prompt":"The capital of Italy is"}'


async def test_embeddings_are_unit_vectors_that_repeat(client: httpx.AsyncClient) -> None:
    body = {"model": "smollm2-135m", "input": ["hello", "world", "hello"], "dimensions": 8}
    answer = (await client.post("/v1/embeddings", json=body)).json()
    first, second, third = (entry["embedding"] for entry in answer["data"])
    assert first == third != second
    assert len(first) == 8
    assert sum(value * value for value in first) == pytest.approx(1)
    assert answer["usage"] == {
        "prompt_tokens": 3,
        "total_tokens": 3,
        "completion_tokens": 0,
        "prompt_tokens_details": None,
    }


async def test_a_known_route_with_another_method_is_405(client: httpx.AsyncClient) -> None:
    answer = await client.get("/v1/chat/completions")
    assert (answer.status_code, answer.json()) == (405, {"detail": "Method Not Allowed"})


@pytest.mark.parametrize("body", [b"[]", b"{", b"", b"\xff{}", b"[" * 20_000, b'{"messages":[1]}', b'{"n":"x"}'])
async def test_no_body_breaks_it(client: httpx.AsyncClient, body: bytes) -> None:
    answer = await client.post("/v1/chat/completions", content=body)
    assert answer.status_code == 400
