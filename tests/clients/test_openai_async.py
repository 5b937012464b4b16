"""The official Python SDK under asyncio: many at once, and callers that leave."""

from __future__ import annotations

import asyncio

import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam

from tests.support.engine import STRONG, Started
from tests.support.processes import until

MESSAGES: list[ChatCompletionMessageParam] = [{"role": "user", "content": "What is the capital of Japan?"}]


async def test_eight_at_once(async_sdk: openai.AsyncOpenAI) -> None:
    ask = async_sdk.chat.completions.create
    async with asyncio.TaskGroup() as group:
        asked = [group.create_task(ask(model=STRONG, messages=MESSAGES, max_tokens=3, seed=seed)) for seed in range(8)]
    answers = [task.result() for task in asked]
    assert len({answer.id for answer in answers}) == 8
    assert [answer.usage.completion_tokens for answer in answers if answer.usage] == [3] * 8


async def test_a_stream(async_sdk: openai.AsyncOpenAI) -> None:
    async with async_sdk.chat.completions.stream(model=STRONG, messages=MESSAGES, max_tokens=40, temperature=0) as events:
        deltas = [event.delta async for event in events if event.type == "content.delta"]
        answer = await events.get_final_completion()
    assert "".join(deltas) == answer.choices[0].message.content
    assert answer.choices[0].finish_reason == "stop"


@pytest.mark.parametrize("seen", [0, 3])
async def test_a_cancelled_stream_frees_the_engine(async_sdk: openai.AsyncOpenAI, stack: Started, seen: int) -> None:
    engine = await asyncio.to_thread(stack.engine)
    before = await asyncio.to_thread(engine.metric, "tokens_predicted_total")
    begun = asyncio.Event()

    async def read() -> None:
        chunks = await async_sdk.chat.completions.create(
            model=STRONG, messages=MESSAGES, max_tokens=900, stream=True, extra_body={"ignore_eos": True}
        )
        count = 0
        async for _ in chunks:
            count += 1
            if count > seen:
                begun.set()

    task = asyncio.create_task(read())
    await asyncio.wait_for(begun.wait(), 60)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.to_thread(engine.until_idle)
    assert await asyncio.to_thread(engine.metric, "tokens_predicted_total") - before < 900
    assert (await asyncio.to_thread(stack.backends))["strong"]["in_flight"] == 0


async def test_a_cancelled_question_frees_the_engine(async_sdk: openai.AsyncOpenAI, stack: Started) -> None:
    engine = await asyncio.to_thread(stack.engine)
    before = await asyncio.to_thread(engine.metric, "tokens_predicted_total")
    asking = async_sdk.chat.completions.create(model=STRONG, messages=MESSAGES, max_tokens=900, extra_body={"ignore_eos": True})
    task = asyncio.create_task(asking)

    await asyncio.to_thread(until, lambda: engine.metric("requests_processing") > 0, "the engine works on it")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.to_thread(engine.until_idle)
    assert await asyncio.to_thread(engine.metric, "tokens_predicted_total") - before < 900
    assert (await asyncio.to_thread(stack.backends))["strong"]["in_flight"] == 0
