"""Which plan runs a request, and what of the plan goes to the engine: over real sockets, against mocks of two engines."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.mock import MockBackend
from tests.support.asking import CHAT, error_of
from tests.support.running import Running, config_for, running

USER = {"role": "user", "content": "hi"}
IMAGE = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]}
CALL = {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}
TOOL = {"role": "tool", "tool_call_id": "1", "content": "4"}
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]


@dataclass
class House:
    """A gateway over `small` (an engine of llama.cpp) and `large` (vLLM)."""

    run: Running
    client: httpx.AsyncClient
    small: MockBackend
    large: MockBackend

    async def ask(self, model: str, messages: list[Any], **fields: Any) -> httpx.Response:
        """Asks; headers go by `headers`."""
        headers = fields.pop("headers", {})
        return await self.client.post(CHAT, json={"model": model, "messages": messages, **fields}, headers=headers)

    def seen(self) -> dict[str, Any]:
        """The body of the newest call, whichever engine it went to."""
        newest = max((each for each in (*self.small.requests, *self.large.requests) if each.call), key=lambda each: each.at)
        found: dict[str, Any] = json.loads(newest.body)
        return found


PLANS = {"small": {"model": "small"}, "large": {"model": "large"}}
VIRTUAL: dict[str, Any] = {
    "even": {"policy": "even", "plans": PLANS},
    "sticky": {"policy": "sticky", "plans": PLANS},
    "thinks": {"policy": "fixed", "plans": {"p": {"model": "large", "reasoning": "low", "budget_tokens": 40}}},
    "thinks-not": {"policy": "fixed", "plans": {"p": {"model": "large", "reasoning": "off"}}},
    "thinks-here": {"policy": "fixed", "plans": {"p": {"model": "small", "reasoning": "high"}}},
    "efforts": {"policy": "even", "plans": {each: {"model": "large", "reasoning": each} for each in ("off", "low", "high")}},
    "capped": {"policy": "fixed", "plans": {"p": {"model": "large"}}, "caps": {"max_cost": 0.001}},
}


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    """See House."""
    async with MockBackend(["small"]) as small, MockBackend(["large"]) as large:
        config = config_for(
            {
                "small": {"url": small.url, "engine": "llama.cpp", "models": {"small": "small"}, "breaker": {"trip_after": 1}},
                "large": {"url": large.url, "engine": "vllm", "models": {"large": "large"}},
            },
            models={
                "small": {"context": 1_000, "capabilities": ["tools"]},
                "large": {"capabilities": ["tools", "vision"], "price": {"output": 10.0}},
            },
            policies={
                "even": {"type": "random", "seed": 1},
                "sticky": {"type": "random", "seed": 2, "floor": 0.3, "wrappers": [{"type": "sticky"}]},
            },
            virtual_models=VIRTUAL,
        )
        async with running(config, tmp_path) as run, run.client() as client:
            yield House(run, client, small, large)


async def test_effort_and_budget_go_to_the_engine_in_its_own_way(house: House) -> None:
    await house.ask("thinks", [USER], max_tokens=100)
    seen = house.seen()
    assert (seen["model"], seen["max_tokens"], seen["reasoning_effort"]) == ("large", 40, "low")
    assert seen["chat_template_kwargs"] == {"enable_thinking": True}

    await house.ask("thinks-not", [USER], max_tokens=100)
    seen = house.seen()
    assert (seen["max_tokens"], seen["chat_template_kwargs"]) == (100, {"enable_thinking": False})
    assert "reasoning_effort" not in seen

    await house.ask("thinks-here", [USER])
    assert house.seen()["chat_template_kwargs"] == {"enable_thinking": True, "reasoning_effort": "high"}


@pytest.mark.parametrize(
    ("asked", "sent"),
    [
        ({}, {"max_tokens": 40}),
        ({"max_tokens": 10}, {"max_tokens": 10}),
        ({"max_tokens": -1}, {"max_tokens": 40}),
        ({"max_completion_tokens": 90}, {"max_completion_tokens": 40}),
        ({"max_completion_tokens": 9}, {"max_completion_tokens": 9}),
    ],
)
async def test_a_budget_only_ever_shortens(house: House, asked: dict[str, int], sent: dict[str, int]) -> None:
    await house.ask("thinks", [USER], **asked)

    seen = house.seen()
    assert {name: seen[name] for name in ("max_tokens", "max_completion_tokens") if name in seen} == sent


async def test_what_the_caller_says_of_thinking_stands(house: House) -> None:
    await house.ask("thinks", [USER], reasoning_effort="high")
    seen = house.seen()
    assert seen["reasoning_effort"] == "high"
    assert "chat_template_kwargs" not in seen

    await house.ask("thinks", [USER], chat_template_kwargs={"thinking": False})
    seen = house.seen()
    assert seen["chat_template_kwargs"] == {"thinking": False}
    assert "reasoning_effort" not in seen


async def test_only_plans_of_the_wished_effort_may_serve(house: House) -> None:
    for _ in range(6):
        await house.ask("efforts", [USER], trilemma={"reasoning": "low"})
        assert house.run.settled[-1].plan == "low"
        assert house.seen()["reasoning_effort"] == "low"
        await house.ask("efforts", [USER], reasoning_effort="high")
        assert house.run.settled[-1].plan == "high"
        assert house.seen()["reasoning_effort"] == "high"
    await house.ask("efforts", [USER], trilemma={"reasoning": "medium"})  # none has it: the engine is told all the same
    assert house.seen()["reasoning_effort"] == "medium"


async def test_money_shortens_the_answer_and_the_operators_cap_wins(house: House) -> None:
    """10 USD per million: 0.001 pays for 100 tokens, 0.0005 for 50."""
    answer = await house.ask("capped", [USER])
    assert (house.seen()["max_tokens"], answer.headers.get("x-trilemma-clipped")) == (100, None)
    answer = await house.ask("capped", [USER], trilemma={"max_cost": 0.0005})
    assert (house.seen()["max_tokens"], answer.headers.get("x-trilemma-clipped")) == (50, None)
    answer = await house.ask("capped", [USER], headers={"x-trilemma-max-cost": "0.5"})
    assert (house.seen()["max_tokens"], answer.headers["x-trilemma-clipped"]) == (100, "max_cost")
    answer = await house.ask("capped", [USER], headers={"x-trilemma-budget-tokens": "7"})
    assert answer.status_code == 200, answer.text
    assert house.seen()["max_tokens"] == 7
    answer = await house.ask("capped", [USER], trilemma={"max_cost": 1e-5})
    assert (answer.status_code, error_of(answer)["code"]) == (400, "caller_max_cost")


@pytest.mark.parametrize("option", ["max_cost", "budget_tokens", "preference", "reasoning"])
async def test_a_real_model_has_no_plans(house: House, option: str) -> None:
    values = {"max_cost": 1.0, "budget_tokens": 9, "preference": {"quality": 1}, "reasoning": "low"}
    answer = await house.ask("small", [USER], trilemma={option: values[option]})

    assert (answer.status_code, error_of(answer)["param"]) == (400, f"trilemma.{option}")


async def test_what_a_model_cannot_do_is_not_asked_of_it(house: House) -> None:
    """An image in the first turn counts in the third."""
    history = [IMAGE, {"role": "assistant", "content": "A cat."}, {"role": "user", "content": "Sure?"}]
    for _ in range(5):
        assert (await house.ask("even", history)).headers["x-trilemma-model"] == "large"
        assert (await house.ask("even", [{"role": "user", "content": "word " * 1_000}])).headers["x-trilemma-model"] == "large"
    answer = await house.ask("even", [USER], response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": {}}})
    assert (answer.status_code, error_of(answer)["code"]) == (400, "caller_unsupported_capability")
    assert "`json_schema`" in error_of(answer)["message"]


async def test_the_preference_of_a_request_prices_cost(house: House) -> None:
    """The dearest plan costs `cost / quality` of a right answer, whatever the model's price is."""
    asked = {"dry_run": True, "preference": {"quality": 0.5, "cost": 0.25, "latency": 0.0}}
    found = (await house.ask("even", [USER], max_tokens=10, trilemma=asked)).json()
    dearest = max(each["estimate"]["cost"] for each in found["candidates"])
    assert found["prices"]["cost"] * dearest == pytest.approx(0.5)
    assert found["prices"]["latency"] == 0
    told = await house.ask("even", [USER], trilemma={"dry_run": True}, headers={"x-trilemma-preference": "quality=1, latency=3"})
    assert told.json()["prices"]["cost"] == 0
    for wrong in ("quality", "quality=x", "speed=1", "quality=1,quality=2", "quality=0"):
        told = await house.ask("even", [USER], headers={"x-trilemma-preference": wrong})
        assert told.status_code == 400, wrong


async def test_who_cannot_be_reached_is_not_drawn(house: House) -> None:
    await house.small.aclose()
    served = Counter()
    for _ in range(12):
        answer = await house.ask("even", [USER])
        assert answer.status_code == 200  # the first that failed was served by the other plan
        served[answer.headers["x-trilemma-attempts"]] += 1
    assert served["1"] >= 10
    found = (await house.ask("even", [USER], trilemma={"dry_run": True})).json()
    assert found["excluded"] == [{"plan": "small", "reason": "unavailable"}]
    assert [each["propensity"] for each in found["candidates"]] == [1.0]


async def test_a_conversation_stays_where_it_is(house: House) -> None:
    """Without a session's id too: it is known again by what the client sends back."""
    used = set()
    for number in range(12):
        history: list[Any] = [{"role": "user", "content": f"Question {number}"}]
        models = []
        for turn in range(4):
            answer = await house.ask("sticky", history)
            models.append(answer.headers["x-trilemma-model"])
            history += [answer.json()["choices"][0]["message"], {"role": "user", "content": f"And {turn}?"}]
        assert len(set(models)) == 1, models
        used.add(models[0])
    assert used == {"small", "large"}


async def test_a_session_stays_where_it_is_and_moves_when_its_plan_is_gone(house: House) -> None:
    async def model(session: str) -> str:
        answer = await house.ask("sticky", [USER], trilemma={"session_id": session})
        assert answer.status_code == 200
        return answer.headers["x-trilemma-model"]

    sessions = [f"s{number}" for number in range(10)]
    first = {session: await model(session) for session in sessions}
    assert set(first.values()) == {"small", "large"}
    assert {session: await model(session) for session in sessions} == first
    await house.small.aclose()
    assert {await model(session) for session in sessions} == {"large"}


async def test_a_tool_loop_is_not_left(house: House) -> None:
    first = await house.ask("sticky", [USER], tools=TOOLS)
    for answers in range(1, 6):
        loop = [USER, *[each for _ in range(answers) for each in (CALL, TOOL)]]
        answer = await house.ask("sticky", loop, tools=TOOLS)
        assert answer.headers["x-trilemma-model"] == first.headers["x-trilemma-model"]
        assert house.run.settled[-1].propensity == 1.0
        assert not house.run.settled[-1].explored


async def test_what_an_interface_asks_by_itself_does_not_move_the_conversation(house: House) -> None:
    """A title that is asked for with the conversation's own id, of which nothing may be learnt."""
    moved = []
    for number in range(10):
        session = {"session_id": f"s{number}"}
        first = await house.ask("sticky", [USER], trilemma=session)
        await house.ask("sticky", [IMAGE], trilemma=session | {"learn": False})  # only `large` can
        after = await house.ask("sticky", [USER], trilemma=session)
        moved.append(first.headers["x-trilemma-model"] != after.headers["x-trilemma-model"])
    assert not any(moved)
