"""Every strategy over a real engine: an answer, whole and streamed, whose candidates and tokens add up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import httpx
import pytest
import pytest_asyncio

from policies.decoding.registry import STRATEGIES
from tests.support.asking import CHAT, chunks, data
from tests.support.engine import STRONG, WEAK, Engine, Started
from tests.support.running import Running, config_for, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

CONFIGURED: Mapping[str, dict[str, Any]] = {
    "best_of_n": {"params": {"n": 3, "select": "logprob"}},
    "budget_forcing": {"params": {"cap": 8, "least": 6, "waits": 1, "tell": 50}},
    "cascade": {"params": {"check": "logprob", "threshold": 1.0}, "roles": {"strong": "small"}},
    "genselect": {"params": {"n": 2, "when": "always", "verdict_tokens": 16}, "roles": {"judge": "weak"}},
    "self_consistency": {"params": {"n": 4, "stop": "never", "vote": "deepconf"}},
    "synthesis": {"params": {"n": 2, "when": "always", "answer_tokens": 16}},
    "tournament": {"params": {"n": 2, "verdict_tokens": 16}, "roles": {"judge": "weak"}},
}
FEWEST = {"best_of_n": 3, "budget_forcing": 1, "cascade": 2, "genselect": 2, "self_consistency": 4, "synthesis": 2, "tournament": 2}
"""Candidates, where none fails."""
BODY = {"messages": [{"role": "user", "content": "What is 2 + 2? Answer with one number."}], "max_tokens": 12, "seed": 1}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def house(stack: Started, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Running]:
    """A gateway in this process over the engines of the stack, with a virtual model for each strategy, called by its name."""
    strong, weak = stack.engine("strong").url, stack.engine("weak").url
    config = config_for(
        {
            "a": {"url": strong, "engine": "llama.cpp", "models": {"small": STRONG}},
            "b": {"url": weak, "engine": "llama.cpp", "models": {"weak": WEAK}},
        },
        strategies={name: {"type": name, **settings} for name, settings in CONFIGURED.items()},
        virtual_models={name: {"policy": "fixed", "plans": {"p": {"model": "small", "strategy": name}}} for name in CONFIGURED},
        policies={"fixed": {"type": "fixed"}},
    )
    async with running(config, tmp_path_factory.mktemp("strategies")) as run:
        yield run


async def test_every_strategy_is_here() -> None:
    assert CONFIGURED.keys() == STRATEGIES.keys()


def written(stack: Started) -> float:
    """Tokens that both engines have ever sampled."""
    return sum(stack.engine(name).metric("tokens_predicted_total") for name in ("strong", "weak"))


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("kind", STRATEGIES)
async def test_a_strategy_answers(house: Running, stack: Started, kind: str, stream: bool) -> None:
    house.settled.clear()
    before = await asyncio.to_thread(written, stack)
    async with house.client() as client:
        body = BODY | {"model": kind} | ({"stream": True, "stream_options": {"include_usage": True}} if stream else {})
        answer = await client.post(CHAT, json=body)
    assert answer.status_code == 200, answer.text
    usage = streamed(answer) if stream else whole(answer)
    (receipt,) = house.settled

    assert (receipt.outcome, receipt.strategy, receipt.served_model) == ("ok", kind, "small")
    assert len(receipt.tried) == FEWEST[kind]
    assert sum(each.outcome == "won" for each in receipt.tried) == (kind != "synthesis" or receipt.why != "written")
    assert {each.finish for each in receipt.tried} <= {"stop", "length"}
    purposes = [call.purpose for call in receipt.calls]
    assert purposes.count("candidate") >= FEWEST[kind]
    assert all(call.outcome == "ok" and (call.usage is not None or call.purpose == "tokenizer") for call in receipt.calls)
    paid = sum(call.usage.completion for call in receipt.calls if call.usage is not None)
    assert usage["completion_tokens"] == sum(
        call.usage.completion for call in receipt.calls if call.usage is not None and call.purpose == "candidate"
    )
    assert sum(each["completion_tokens"] for each in usage["trilemma"].values()) == paid
    assert await asyncio.to_thread(written, stack) - before == paid, "the engines' own count"
    for name in ("strong", "weak"):
        assert await asyncio.to_thread(stack.engine(name).metric, "requests_processing") == 0
    assert house.in_flight() == 0


def whole(answer: httpx.Response) -> dict[str, Any]:
    """Its usage."""
    body: dict[str, Any] = answer.json()
    (choice,) = body["choices"]
    assert (body["object"], choice["index"], choice["message"]["role"]) == ("chat.completion", 0, "assistant")
    assert choice["message"]["content"] and choice["finish_reason"] in ("stop", "length")
    assert choice.get("logprobs") is None, "nobody asked for them"
    return body["usage"]  # type: ignore[no-any-return]


def streamed(answer: httpx.Response) -> dict[str, Any]:
    """Its usage."""
    assert data(answer.content)[-1] == b"[DONE]"
    *events, last = chunks(answer.content)
    choices = [choice for event in events for choice in event["choices"]]
    assert {event["object"] for event in events} == {"chat.completion.chunk"}
    assert [each["delta"]["role"] for each in choices if "role" in each["delta"]] == ["assistant"]
    assert "".join(each["delta"].get("content") or "" for each in choices)
    (finish,) = [each["finish_reason"] for each in choices if each["finish_reason"]]
    assert finish in ("stop", "length") and choices[-1]["finish_reason"] == finish
    assert last["choices"] == []
    return last["usage"]  # type: ignore[no-any-return]


async def test_who_leaves_frees_the_engine(house: Running, stack: Started) -> None:
    engine: Engine = await asyncio.to_thread(stack.engine)
    before = await asyncio.to_thread(engine.metric, "tokens_predicted_total")
    house.settled.clear()
    async with house.client() as client:
        body = BODY | {"model": "self_consistency", "max_tokens": 900, "ignore_eos": True}
        task = asyncio.create_task(client.post(CHAT, json=body))
        async with asyncio.timeout(60):
            while house.in_flight() < 4:  # noqa: ASYNC110 (a count has no event)
                await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    await house.until_settled(1)
    assert (house.in_flight(), house.settled[0].outcome) == (0, "client_closed")
    await asyncio.to_thread(engine.until_idle)
    assert await asyncio.to_thread(engine.metric, "tokens_predicted_total") - before < 4 * 900
