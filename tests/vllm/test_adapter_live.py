"""The vLLM adapter against the real engine, and the features that it claims."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.engines.base import Call, Json, run
from gateway.engines.registry import adapter

pytestmark = pytest.mark.vllm

SAMPLES = Path(__file__).resolve().parents[1] / "samples"
REFERENCE = json.loads((SAMPLES / "reference_scores.json").read_text())
MODEL = "smollm2-135m"
ENGINE = adapter("vllm")
QUESTION: Json = {"messages": [{"role": "user", "content": "What is 7 + 5? Answer with one short sentence."}]}


async def ask(client: httpx.AsyncClient, body: Json, expected: int = 200) -> Json:
    path = "/v1/completions" if "prompt" in body else "/v1/chat/completions"
    answer = await client.post(path, json={"model": MODEL, "temperature": 0, **body})
    assert answer.status_code == expected, answer.text
    parsed: Json = answer.json()
    return parsed


async def events(client: httpx.AsyncClient, body: Json) -> list[Json]:
    """The events of a chat stream, after checking that it ends with [DONE]."""
    answer = await client.post("/v1/chat/completions", json={"model": MODEL, "temperature": 0, "stream": True, **body})
    assert answer.status_code == 200, answer.text
    data = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: ")]
    assert data.pop() == "[DONE]"
    return [json.loads(one) for one in data]


def sender(client: httpx.AsyncClient) -> Any:
    async def send(call: Call) -> Json:
        answer = await client.post(call.path, json=call.body)
        assert answer.status_code == 200, answer.text
        parsed: Json = answer.json()
        return parsed

    return send


class TestScoring:
    @pytest.mark.parametrize("reference", REFERENCE, ids=lambda reference: repr(reference["text"][:20]))
    async def test_scores_agree_with_a_float32_reference(self, vllm: httpx.AsyncClient, reference: Json) -> None:
        tokens = await run(ENGINE.tokenize(MODEL, reference["text"]), sender(vllm))
        assert tokens == reference["tokens"]

        scores = await run(ENGINE.score(MODEL, tokens), sender(vllm))

        assert scores[0] is None
        pairs = zip(scores[1:], reference["logprobs"][1:], strict=True)
        errors = [abs(got - right) for got, right in pairs if got is not None]
        assert len(errors) == len(tokens) - 1
        # Nats. bfloat16 costs this much; one token out of step costs several.
        assert max(errors) < 0.4
        assert math.fsum(errors) / len(errors) < 0.15

    async def test_prompt_logprobs_say_the_same(self, vllm: httpx.AsyncClient) -> None:
        tokens = REFERENCE[0]["tokens"]
        scores = await run(ENGINE.score(MODEL, tokens), sender(vllm))
        answer = await ask(vllm, {"prompt": tokens, "max_tokens": 1, "prompt_logprobs": 0})
        told = answer["choices"][0]["prompt_logprobs"]
        assert told[0] is None
        by_id = [entry[str(token)]["logprob"] for entry, token in zip(told[1:], tokens[1:], strict=True)]
        assert scores[1:] == pytest.approx(by_id, abs=0.05)
        assert ENGINE.capabilities.prompt_logprobs

    async def test_an_answer_scores_what_it_scored_while_it_was_sampled(self, vllm: httpx.AsyncClient) -> None:
        prompt = await run(ENGINE.tokenize(MODEL, QUESTION), sender(vllm))
        answer = await ask(vllm, {"prompt": prompt, "max_tokens": 8, "logprobs": 0, "return_token_ids": True})
        sampled = ENGINE.token_logprobs(answer["choices"][0])
        assert sampled is not None
        whole = prompt + [one.id for one in sampled if one.id is not None]

        scores = await run(ENGINE.score(MODEL, whole, start=len(prompt)), sender(vllm))

        assert scores[: len(prompt)] == [None] * len(prompt)
        assert scores[len(prompt) :] == pytest.approx([one.logprob for one in sampled], abs=0.15)


class TestContinuing:
    async def test_in_two_steps_gives_what_one_step_gives(self, vllm: httpx.AsyncClient) -> None:
        whole = await ask(vllm, {**QUESTION, "max_tokens": 16})
        text = whole["choices"][0]["message"]["content"]
        prefix = text[: text.index(" ", 3)]

        request = ENGINE.continue_final({**QUESTION, "max_tokens": 16}, prefix)
        answer = await ask(vllm, request)

        assert ENGINE.continued_text(request, answer["choices"][0]["message"]["content"]) == text[len(prefix) :]

    @pytest.mark.parametrize("prefix", ["The sum of 7 and 5 is", "x = ", "Step 1:\n\n", ""])
    async def test_a_stream_and_a_whole_answer_alike(self, vllm: httpx.AsyncClient, prefix: str) -> None:
        request = ENGINE.continue_final({**QUESTION, "max_tokens": 6}, prefix)
        whole = await ask(vllm, request)
        deltas = [c["delta"].get("content") or "" for event in await events(vllm, request) for c in event["choices"]]

        new = ENGINE.continued_text(request, whole["choices"][0]["message"]["content"])

        assert new
        assert ENGINE.continued_text(request, "".join(deltas), streamed=True) == new

    async def test_with_several_samples(self, vllm: httpx.AsyncClient) -> None:
        request = ENGINE.continue_final({**QUESTION, "max_tokens": 4, "n": 3, "temperature": 0.8}, "The sum of 7 and")
        answer = await ask(vllm, request)
        texts = [ENGINE.continued_text(request, choice["message"]["content"]) for choice in answer["choices"]]
        assert len(texts) == 3
        assert all(text and not text.startswith("The sum") for text in texts)


class TestSampling:
    async def test_n_comes_in_one_answer_and_usage_counts_all(self, vllm: httpx.AsyncClient) -> None:
        (n,) = ENGINE.split_n(4, None)
        body = {**QUESTION, "max_tokens": 5, "n": n, "temperature": 0.9, "ignore_eos": True}
        answer = await ask(vllm, body)
        assert sorted(choice["index"] for choice in answer["choices"]) == [0, 1, 2, 3]
        assert answer["usage"]["completion_tokens"] == 20
        assert ENGINE.capabilities.usage_counts_all_choices

    async def test_logprobs_of_chat_and_completions_are_read_alike(self, vllm: httpx.AsyncClient) -> None:
        chat = await ask(vllm, {**QUESTION, "max_tokens": 4, "logprobs": True, "top_logprobs": 2})
        tokens = await run(ENGINE.tokenize(MODEL, QUESTION), sender(vllm))
        plain = await ask(vllm, {"prompt": tokens, "max_tokens": 4, "logprobs": 2})

        of_chat = ENGINE.token_logprobs(chat["choices"][0])
        of_plain = ENGINE.token_logprobs(plain["choices"][0])

        assert of_chat is not None
        assert of_plain is not None
        assert [one.token for one in of_chat] == [one.token for one in of_plain]
        assert [one.logprob for one in of_chat] == pytest.approx([one.logprob for one in of_plain], abs=0.05)
        assert [len(one.top) for one in of_chat] == [2, 2, 2, 2]

    async def test_usage_comes_in_a_stream_when_asked_for(self, vllm: httpx.AsyncClient) -> None:
        asked = await events(vllm, {**QUESTION, "max_tokens": 3, "stream_options": {"include_usage": True}})
        unasked = await events(vllm, {**QUESTION, "max_tokens": 3})
        assert (asked[-1]["choices"], asked[-1]["usage"]["completion_tokens"]) == ([], 3)
        assert all("usage" not in event or event["usage"] is None for event in unasked)

    async def test_a_json_schema_is_kept(self, vllm: httpx.AsyncClient) -> None:
        schema = {
            "type": "object",
            "properties": {"sum": {"type": "integer", "minimum": 0, "maximum": 99}, "sure": {"type": "boolean"}},
            "required": ["sum", "sure"],
            "additionalProperties": False,
        }
        wished = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
        answer = await ask(vllm, {**QUESTION, "max_tokens": 60, "response_format": wished})
        given = json.loads(answer["choices"][0]["message"]["content"])
        assert set(given) == {"sum", "sure"}
        assert isinstance(given["sum"], int)

    async def test_min_tokens_is_kept(self, vllm: httpx.AsyncClient) -> None:
        answer = await ask(vllm, {**QUESTION, "min_tokens": 30, "max_tokens": 30})
        assert answer["usage"]["completion_tokens"] == 30


CITY = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "strict": True,
        "parameters": {
            "type": "object",
            "properties": {"unit": {"type": "string", "enum": ["celsius", "fahrenheit"]}},
            "required": ["unit"],
            "additionalProperties": False,
        },
    },
}


class TestTools:
    async def test_a_required_call_is_made(self, vllm: httpx.AsyncClient) -> None:
        body = {**QUESTION, "tools": [CITY], "tool_choice": "required", "max_tokens": 100}
        (choice,) = (await ask(vllm, body))["choices"]
        (call,) = choice["message"]["tool_calls"]
        assert choice["finish_reason"] == "tool_calls"
        assert call["function"]["name"] == "get_weather"
        assert json.loads(call["function"]["arguments"])["unit"] in ("celsius", "fahrenheit")

    async def test_its_stream_adds_up_to_the_same(self, vllm: httpx.AsyncClient) -> None:
        body = {**QUESTION, "tools": [CITY], "tool_choice": "required", "max_tokens": 100}
        (whole,) = (await ask(vllm, body))["choices"][0]["message"]["tool_calls"]
        deltas = [c["delta"] for event in await events(vllm, body) for c in event["choices"]]
        parts = [part for delta in deltas for part in delta.get("tool_calls") or []]
        assert {part["index"] for part in parts} == {0}
        assert [part["id"] for part in parts if part.get("id")] != []
        assert [part["function"]["name"] for part in parts if part["function"].get("name")] == ["get_weather"]
        arguments = "".join(part["function"].get("arguments") or "" for part in parts)
        assert json.loads(arguments) == json.loads(whole["function"]["arguments"])


class TestWhatItTells:
    async def test_its_models(self, vllm: httpx.AsyncClient) -> None:
        (model,) = ENGINE.models((await vllm.get("/v1/models")).json())
        assert (model.id, model.max_model_len) == (MODEL, 2048)

    async def test_its_errors(self, vllm: httpx.AsyncClient) -> None:
        long = await ask(vllm, {"messages": [{"role": "user", "content": "word " * 2100}]}, expected=400)
        more = await ask(vllm, {**QUESTION, "max_tokens": 5000}, expected=400)
        unknown = await ask(vllm, {**QUESTION, "model": "nope"}, expected=404)
        other = await ask(vllm, {**QUESTION, "temperature": -1}, expected=400)
        assert [ENGINE.is_context_overflow(400, answer) for answer in (long, more, other)] == [True, True, False]
        assert [ENGINE.is_unknown_model(s, answer) for s, answer in ((404, unknown), (400, other))] == [True, False]

    async def test_every_route_that_changes_it_is_forbidden(self, vllm: httpx.AsyncClient) -> None:
        # What else it serves under /v1 answers one request; a new name here wants a look.
        known = {
            "/v1/models",
            "/v1/chat/completions",
            "/v1/chat/completions/batch",
            "/v1/completions",
            "/v1/messages",
            "/v1/messages/count_tokens",
            "/v1/responses",
            "/v1/responses/{response_id}",
            "/v1/responses/{response_id}/cancel",
            "/v1/systemone",
        }
        paths = (await vllm.get("/openapi.json")).json()["paths"]
        served = {path for path in paths if path.startswith("/v1/") and not ENGINE.is_forbidden(path)}
        assert served - known == set()
