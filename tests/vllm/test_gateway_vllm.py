"""The official Python SDK through the gateway over real vLLM: what a user gets, and that it is what vLLM itself answers."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam

from tests.support.running import KEY, Running, config_for, running

pytestmark = pytest.mark.vllm

MODEL = "smollm2-135m"
ASK: list[ChatCompletionMessageParam] = [{"role": "user", "content": "What is the capital of Japan?"}]
WEATHER: ChatCompletionToolParam = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city.",
        "strict": True,
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "enum": ["Paris", "Rome"]}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
# What differs between any two answers to the same request.
OWN = re.compile(rb'"(?:id|created|request_id)":\s*(?:"[^"]*"|\d+)|chatcmpl-tool-[0-9a-f]+|"cached_tokens":\s*\d+')


@pytest.fixture
async def over_vllm(vllm_url: str, tmp_path: Path) -> AsyncIterator[Running]:
    """A gateway over it: the real model, and `auto` in front of it."""
    config = config_for(
        {"vllm": {"url": vllm_url, "engine": "vllm", "models": {MODEL: MODEL}}},
        models={MODEL: {"price": {"input": 1.0, "output": 2.0}}},
        strategies={
            "bounded": {"type": "budget_forcing", "params": {"cap": 24, "by": "engine"}},
            "forced": {"type": "budget_forcing", "params": {"cap": 24, "least": 20, "waits": 1}},
        },
        virtual_models={
            "auto": {"policy": "fixed", "plans": {"only": {"model": MODEL}}},
            "bounded": {"policy": "fixed", "plans": {"only": {"model": MODEL, "strategy": "bounded"}}},
            "thinking": {"policy": "fixed", "plans": {"only": {"model": MODEL, "strategy": "forced"}}},
        },
    )
    async with running(config, tmp_path) as run:
        yield run


@pytest.fixture
async def sdk(over_vllm: Running) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=over_vllm.url + "/v1", api_key=KEY, max_retries=0, timeout=120) as client:
        yield client


async def test_chat(sdk: openai.AsyncOpenAI, over_vllm: Running) -> None:
    raw = await sdk.chat.completions.with_raw_response.create(model="auto", messages=ASK, max_tokens=8, temperature=0, logprobs=True)
    answer = raw.parse()
    assert answer.usage is not None and answer.choices[0].logprobs is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert len(answer.choices[0].logprobs.content or []) == answer.usage.completion_tokens
    assert raw.headers["x-trilemma-policy"] == "fixed"
    assert float(raw.headers["x-trilemma-cost"]) == pytest.approx((answer.usage.prompt_tokens + 2 * answer.usage.completion_tokens) / 1e6)
    assert over_vllm.in_flight() == 0


async def test_an_engine_that_was_not_started_for_bounds_on_thoughts_is_asked_without(sdk: openai.AsyncOpenAI, over_vllm: Running) -> None:
    answer = await sdk.chat.completions.create(model="bounded", messages=ASK, max_tokens=8, temperature=0)
    plain = await sdk.chat.completions.create(model=MODEL, messages=ASK, max_tokens=8, temperature=0)
    assert answer.choices[0].message.content == plain.choices[0].message.content
    receipt = over_vllm.settled[0]
    assert (receipt.why, [call.status for call in receipt.calls]) == ("unforced", [400, 200])


async def test_thoughts_are_written_on_from_token_to_token(sdk: openai.AsyncOpenAI, over_vllm: Running) -> None:
    """The same words as the engine itself writes after its own template's prompt and the tag."""
    raw = await sdk.chat.completions.with_raw_response.create(model="thinking", messages=ASK, max_tokens=48, temperature=0)
    answer = raw.parse()
    (receipt,) = over_vllm.settled
    assert receipt.why in ("capped", "waited", "ended") and answer.usage is not None
    message = answer.choices[0].message.to_dict()
    assert message["content"]
    prompts = [call.usage.prompt for call in receipt.calls if call.usage is not None and call.purpose == "candidate"]
    sampled = [call.usage.completion for call in receipt.calls if call.usage is not None and call.purpose == "candidate"]
    assert answer.usage.completion_tokens == sum(sampled) <= 48
    assert sum(sampled[:-1]) <= 24 or len(sampled) > 2
    assert prompts == sorted(prompts), "each goes on where the one before ended"
    rendered = f"<|im_start|>user\n{ASK[0]['content']}<|im_end|>\n<|im_start|>assistant\n<think>\n"  # type: ignore[typeddict-item]
    system = "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
    alone = await sdk.completions.create(model=MODEL, prompt=system + rendered, max_tokens=24, temperature=0, stop=["</think>"])
    assert str(message["reasoning_content"]).startswith(alone.choices[0].text.strip()[:20])


async def test_stream(sdk: openai.AsyncOpenAI) -> None:
    async with sdk.chat.completions.stream(model=MODEL, messages=ASK, max_tokens=8, temperature=0) as events:
        streamed = [event.delta async for event in events if event.type == "content.delta"]
        answer = await events.get_final_completion()
    assert "".join(streamed) == answer.choices[0].message.content
    whole = await sdk.chat.completions.create(model=MODEL, messages=ASK, max_tokens=8, temperature=0)
    assert whole.choices[0].message.content == answer.choices[0].message.content


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "get_weather"}}])
async def test_tool_calls(sdk: openai.AsyncOpenAI, choice: Any) -> None:
    answer = await sdk.chat.completions.create(model=MODEL, messages=ASK, tools=[WEATHER], tool_choice=choice, max_tokens=64, temperature=0)
    call = (answer.choices[0].message.tool_calls or [])[0]
    assert call.type == "function" and call.function.name == "get_weather"
    assert json.loads(call.function.arguments)["city"] in ("Paris", "Rome")
    async with sdk.chat.completions.stream(
        model=MODEL, messages=ASK, tools=[WEATHER], tool_choice=choice, max_tokens=64, temperature=0
    ) as events:
        streamed = await events.get_final_completion()
    again = (streamed.choices[0].message.tool_calls or [])[0]
    assert again.type == "function" and json.loads(again.function.arguments) == json.loads(call.function.arguments)


async def test_structured_output(sdk: openai.AsyncOpenAI) -> None:
    schema = {"type": "object", "properties": {"city": {"enum": ["Tokyo", "Kyoto"]}}, "required": ["city"], "additionalProperties": False}
    answer = await sdk.chat.completions.create(
        model=MODEL,
        messages=ASK,
        max_tokens=32,
        response_format={"type": "json_schema", "json_schema": {"name": "capital", "schema": schema, "strict": True}},
    )
    assert json.loads(answer.choices[0].message.content or "")["city"] in ("Tokyo", "Kyoto")


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/v1/chat/completions", {"messages": ASK, "n": 2, "seed": 3, "temperature": 0.5}),
        ("/v1/chat/completions", {"messages": ASK, "stream": True}),
        ("/v1/chat/completions", {"messages": ASK, "stream": True, "stream_options": {"include_usage": True}}),
        ("/v1/chat/completions", {"messages": ASK, "tools": [WEATHER], "tool_choice": "required", "stream": True, "max_tokens": 40}),
        ("/v1/chat/completions", {"messages": ASK, "prompt_logprobs": 1, "return_token_ids": True}),
        ("/v1/chat/completions", {"messages": ASK, "structured_outputs": {"choice": ["yes", "no"]}, "zz_future": [1, {"k": None}]}),
        ("/v1/completions", {"prompt": "One, two,", "stream": True, "logprobs": 1}),
        ("/v1/completions", {"prompt": "One, two,", "echo": True, "max_tokens": 0, "logprobs": 1}),
        ("/v1/chat/completions", {"messages": "wrong"}),
        ("/v1/chat/completions", {"messages": ASK, "max_tokens": 100_000}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "word " * 3000}]}),
        ("/v1/embeddings", {"input": "not an embedding model"}),
    ],
)
async def test_bytes_are_vllms_own(over_vllm: Running, vllm: httpx.AsyncClient, path: str, fields: dict[str, Any]) -> None:
    body = {"model": MODEL, "max_tokens": 6, "temperature": 0} | fields
    direct = await vllm.post(path, json=body)
    async with over_vllm.client() as client:
        through = await client.post(path, json=body, timeout=120)
    assert through.status_code == direct.status_code
    assert OWN.sub(b"", through.content) == OWN.sub(b"", direct.content)
    assert through.headers["content-type"] == direct.headers["content-type"]
    if direct.status_code == 200:
        usage = over_vllm.settled[-1].usage
        assert usage is not None and usage.prompt > 0  # known, whether or not the client asked


async def test_a_client_that_leaves_frees_the_engine(sdk: openai.AsyncOpenAI, over_vllm: Running, vllm: httpx.AsyncClient) -> None:
    stream = await sdk.chat.completions.create(model=MODEL, messages=ASK, max_tokens=1500, stream=True, extra_body={"ignore_eos": True})
    async for _ in stream:
        break
    await stream.close()
    await over_vllm.until_settled(1)
    assert over_vllm.settled[0].outcome == "client_closed"
    assert over_vllm.in_flight() == 0
    async with asyncio.timeout(30):
        while await _running(vllm) > 0:  # noqa: ASYNC110 (another process has no event to wait for)
            await asyncio.sleep(0.1)


async def test_model_card(sdk: openai.AsyncOpenAI, over_vllm: Running) -> None:
    async with asyncio.timeout(30):
        while over_vllm.gateway.state.unanswered():  # noqa: ASYNC110 (a probe sets no event)
            await asyncio.sleep(0.05)
    card = (await sdk.models.retrieve(MODEL)).model_dump()
    assert card["max_model_len"] == 2048
    assert card["owned_by"] == "vllm"


async def _running(vllm: httpx.AsyncClient) -> float:
    text = (await vllm.get("/metrics")).text
    return sum(float(value) for value in re.findall(r"^vllm:num_requests_running\{.*?\} (\S+)", text, re.MULTILINE))
