"""The official Python SDK reads the mock."""

from __future__ import annotations

from collections.abc import AsyncIterator

import openai
import pytest

from gateway.mock import Behaviour, MockBackend, Say

MODEL = "smollm2-135m"
MESSAGES: list = [{"role": "user", "content": "hi"}]
TOOLS: list = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "parameters": {"type": "object", "properties": {"city": {"enum": ["Bern"]}}, "required": ["city"]},
        },
    }
]


@pytest.fixture
async def sdk(mock: MockBackend) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{mock.url}/v1", api_key="none", max_retries=0) as client:
        yield client


async def test_a_chat(sdk: openai.AsyncOpenAI) -> None:
    answer = await sdk.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=2, logprobs=True, top_logprobs=2)
    assert answer.choices[0].message.content == "tok0 tok1"
    assert [entry.token for entry in answer.choices[0].logprobs.content] == ["tok0", " tok1"]
    assert answer.usage.completion_tokens == 2


async def test_a_stream_is_accumulated(mock: MockBackend, sdk: openai.AsyncOpenAI) -> None:
    mock.script(Behaviour(choices=(Say(text="one two"), Say(text="three"))))
    usage = {"include_usage": True}
    async with sdk.chat.completions.stream(model=MODEL, messages=MESSAGES, n=2, stream_options=usage) as events:
        answer = await events.get_final_completion()
    assert [choice.message.content for choice in answer.choices] == ["one two", "three"]
    assert [choice.message.role for choice in answer.choices] == ["assistant", "assistant"]
    assert answer.usage.completion_tokens == 3


@pytest.mark.parametrize("stream", [False, True])
async def test_a_tool_is_called_and_its_result_answered(sdk: openai.AsyncOpenAI, stream: bool) -> None:
    asked: dict = {"model": MODEL, "messages": MESSAGES, "tools": TOOLS}
    if stream:
        async with sdk.chat.completions.stream(**asked) as events:
            answer = await events.get_final_completion()
    else:
        answer = await sdk.chat.completions.create(**asked)
    (choice,) = answer.choices
    (call,) = choice.message.tool_calls
    assert (choice.finish_reason, call.function.name, call.function.arguments) == (
        "tool_calls",
        "weather",
        '{"city":"Bern"}',
    )
    history = [*MESSAGES, choice.message, {"role": "tool", "tool_call_id": call.id, "content": "sunny"}]
    after = await sdk.chat.completions.create(model=MODEL, messages=history, tools=TOOLS)
    assert after.choices[0].finish_reason == "stop"


async def test_completions_models_and_embeddings(sdk: openai.AsyncOpenAI) -> None:
    completion = await sdk.completions.create(model=MODEL, prompt="x", max_tokens=2, logprobs=1)
    assert (completion.choices[0].text, completion.choices[0].logprobs.tokens) == ("tok0 tok1", ["tok0", " tok1"])
    assert [model.id async for model in sdk.models.list()] == [MODEL]
    floats = await sdk.embeddings.create(model=MODEL, input="x", encoding_format="float")
    packed = await sdk.embeddings.create(model=MODEL, input="x")  # The SDK asks for base64 by default.
    assert packed.data[0].embedding == floats.data[0].embedding


async def test_errors_are_the_sdk_s_own(mock: MockBackend, sdk: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="The model `nope` does not exist"):
        await sdk.chat.completions.create(model="nope", messages=MESSAGES)
    mock.script(Behaviour(status=429))
    with pytest.raises(openai.RateLimitError):
        await sdk.chat.completions.create(model=MODEL, messages=MESSAGES)
    mock.script(Behaviour(reset_after_events=-1))
    with pytest.raises(openai.APIConnectionError):
        await sdk.chat.completions.create(model=MODEL, messages=MESSAGES)
