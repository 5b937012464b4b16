"""What broke in routers like this one, tried on a virtual model over real sockets, against mocks of two engines. B-numbers are reports."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.mock import Behaviour, MockBackend
from tests.support.asking import CHAT, error_of
from tests.support.databases import decisions, migrated
from tests.support.running import Running, config_for, running
from tests.support.waiting import until

__all__ = ["decisions", "migrated"]

USER = {"role": "user", "content": "hi"}
IMAGE = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]}
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
SCHEMA = {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}}
OVERFLOW = (
    '{"error":{"code":400,"message":"request (5012 tokens) exceeds the available context size (1000 tokens), try increasing it",'
    '"type":"exceed_context_size_error","n_prompt_tokens":5012,"n_ctx":1000}}'
)
LONG = "word " * 2_000
PLANS = {"small": {"model": "small"}, "large": {"model": "large"}}
RULES = {
    "signals": {
        "background": {"tag": {"task": ["title", "tags", "follow_up"]}},
        "titles": {"keywords": ["generate a concise, 3-5 word title"]},
        "code": {"keywords": ["traceback"]},
    },
    "rules": [
        {"name": "background", "when": {"any": ["background", "titles"]}, "plans": ["small"]},
        {"name": "code", "when": "code", "plans": ["large"]},
    ],
    "otherwise": "small",
}
VIRTUAL: dict[str, Any] = {
    "even": {"policy": "even", "plans": PLANS},
    "split": {"policy": "split", "plans": PLANS},
    "learn": {"policy": "learn", "plans": PLANS},
    "rules": {"policy": "rules", "plans": PLANS},
    "blind": {"policy": "fixed", "plans": {"small": PLANS["small"]}},
    "brief-small": {"policy": "fixed", "plans": {"p": {"model": "small", "budget_tokens": 40}}},
    "brief": {"policy": "fixed", "plans": {"p": {"model": "large", "budget_tokens": 40}}},
}


@dataclass
class House:
    """A gateway over `small` (1,000 tokens, no pictures) and `large`."""

    run: Running
    client: httpx.AsyncClient
    small: MockBackend
    large: MockBackend

    async def ask(self, model: Any, messages: Any, **fields: Any) -> httpx.Response:
        return await self.client.post(CHAT, json={"model": model, "messages": messages, **fields})

    async def receipt(self, answer: httpx.Response) -> dict[str, Any]:
        """What was decided, as it is told once it is stored."""
        path = f"/v1/decisions/{answer.headers['x-trilemma-decision-id']}"
        async with asyncio.timeout(20):  # a new database is made meanwhile
            while (found := await self.client.get(path)).status_code == 503:  # noqa: ASYNC110 (a database has no event here)
                await asyncio.sleep(0.02)
        assert found.status_code == 200, found.text
        told: dict[str, Any] = found.json()
        return told

    def asked(self) -> list[dict[str, Any]]:
        """The bodies of all calls, in order."""
        calls = sorted((each for each in (*self.small.requests, *self.large.requests) if each.call), key=lambda each: each.at)
        return [json.loads(each.body) for each in calls]


@asynccontextmanager
async def opened(tmp_path: Path, **sections: Any) -> AsyncIterator[House]:
    """See House."""
    async with MockBackend(["small"]) as small, MockBackend(["large"], max_model_len=100_000) as large:
        config = config_for(
            {
                "small": {"url": small.url, "engine": "llama.cpp", "models": {"small": "small"}, "breaker": {"trip_after": 1}},
                "large": {"url": large.url, "engine": "vllm", "models": {"large": "large"}, "breaker": {"trip_after": 1}},
            },
            models={
                "small": {"context": 1_000, "capabilities": ["tools"]},
                "large": {"context": 100_000, "capabilities": ["tools", "vision"], "price": {"input": 1.0, "output": 10.0}},
            },
            policies={
                "even": {"type": "random", "seed": 1},
                "split": {"type": "weighted", "params": {"weights": {"small": 3, "large": 1}}, "floor": 0.2, "seed": 1},
                "learn": {"type": "linucb", "params": {"features": ["shape"]}, "floor": 0.1, "seed": 1},
                "rules": {"type": "rules", "params": RULES, "floor": 0.5, "seed": 1},
            },
            virtual_models=VIRTUAL,
            **sections,
        )
        async with running(config, tmp_path) as run, run.client() as client:
            yield House(run, client, small, large)


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    """One that keeps nothing."""
    async with opened(tmp_path) as house:
        yield house


@pytest.fixture
async def kept(tmp_path: Path, decisions: Path) -> AsyncIterator[House]:
    """One that keeps its decisions, and learns."""
    storage = {"url": f"sqlite:///{decisions}"}
    async with opened(tmp_path, storage=storage, learning={"every_s": 0.02}) as house:
        yield house


# B052: a long prompt is sent to a small model


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, {"messages": [{"role": "user", "content": LONG}]}),
        (CHAT, {"messages": [{"role": "user", "content": [*IMAGE["content"], {"type": "text", "text": LONG}]}]}),
        (CHAT, {"messages": [USER], "max_tokens": 998}),
        (CHAT, {"messages": [USER], "tools": [{"type": "function", "function": {"name": "f", "description": LONG}}]}),
        ("/v1/completions", {"prompt": LONG}),
        ("/v1/responses", {"input": LONG}),
        ("/v1/responses", {"input": [{"role": "user", "content": [{"type": "input_text", "text": LONG}]}]}),
        ("/v1/messages", {"messages": [USER], "system": LONG, "max_tokens": 5}),
    ],
)
async def test_what_is_too_long_for_the_small_model_goes_to_the_large_one(house: House, path: str, body: dict[str, Any]) -> None:
    for mock in (house.small, house.large):
        mock.script(default=Behaviour(body="{}", headers={"content-type": "application/json"}))
    for _ in range(6):
        answer = await house.client.post(path, json={"model": "even", **body})
        assert (answer.status_code, answer.headers["x-trilemma-model"], answer.headers["x-trilemma-attempts"]) == (200, "large", "1")
    assert {each["model"] for each in house.asked()} == {"large"}


async def test_what_overflows_after_all_is_tried_once_on_the_larger_one(house: House) -> None:
    house.small.script(default=Behaviour(status=400, body=OVERFLOW))
    seen: Counter[tuple[str, str]] = Counter()
    while len(seen) < 2:
        answer = await house.ask("even", [USER])
        assert (answer.status_code, answer.headers["x-trilemma-model"]) == (200, "large")
        await house.run.until_settled(sum(seen.values()) + 1)
        seen[(house.run.settled[-1].plan or "", answer.headers["x-trilemma-attempts"])] += 1
    assert set(seen) == {("small", "2"), ("large", "1")}


# B056: a conversation bounces between models


async def test_a_conversation_is_judged_by_all_of_it(house: House) -> None:
    """`code` is asked of the first turn's text in the third turn, too."""
    history: list[Any] = [{"role": "user", "content": "Why this Traceback?"}]
    for words in ("ok do it", "thanks"):
        answer = await house.ask("rules", history, trilemma={"learn": False})
        assert answer.headers["x-trilemma-model"] == "large"
        history += [answer.json()["choices"][0]["message"], {"role": "user", "content": words}]
    assert (await house.ask("rules", history, trilemma={"learn": False})).headers["x-trilemma-model"] == "large"
    assert (await house.ask("rules", history[-1:], trilemma={"learn": False})).headers["x-trilemma-model"] == "small"


# B058: content that is no string breaks the router


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "user", "content": [{"type": "text", "text": "hi"}]}],
        [IMAGE],
        [{"role": "user", "content": []}],
        [{"role": "user", "content": None}],
        [{"role": "user"}],
        [USER, {"role": "assistant", "content": None, "tool_calls": []}, {"role": "tool", "tool_call_id": "1", "content": "4"}],
        [],
        None,
        {"role": "user"},
        [None, 5],
    ],
)
async def test_there_is_a_decision_for_content_of_any_shape(house: House, messages: Any) -> None:
    """What no engine takes, that engine says; a virtual model's name never reaches one."""
    answer = await house.ask("even", messages)

    assert answer.status_code < 500
    await house.run.until_settled(1)
    receipt = house.run.settled[-1]
    assert receipt.plan in PLANS and receipt.choice is not None and receipt.choice.decided.fallback is None
    assert {each["model"] for each in house.asked()} <= {"small", "large"}


@pytest.mark.parametrize(
    "body", [b'{"model":"even","messages":[{"role":"user","content":[1e999,"x"]}]}', b'{"model":"even","prompt":[1e999]}']
)
async def test_a_number_beyond_all_bounds_is_the_engines_business(house: House, body: bytes) -> None:
    answer = await house.client.post(CHAT, content=body, headers={"content-type": "application/json"})

    assert answer.status_code != 500
    assert answer.headers["x-trilemma-policy"] == "even"


# B066: what a chat interface asks by itself is treated as a chat


async def test_a_request_for_a_title_goes_to_the_cheap_plan_and_teaches_nothing(kept: House) -> None:
    """Though the chat that it is about is one for the large plan, and though one half of draws explores."""
    history = [{"role": "user", "content": "Why this Traceback? Give this chat a title."}]
    for task in ("title", "tags", "follow_up") * 3:
        answer = await kept.ask("rules", history, trilemma={"tags": {"task": task}, "learn": False})
        told = await kept.receipt(answer)
        assert (told["chosen"], told["propensity"], told["explored"], told["tags"]) == ("small", 1.0, False, {"task": task})
    assert not any(receipt.learn for receipt in kept.run.settled)


async def test_without_a_word_of_it_a_pattern_tells(house: House) -> None:
    asked = "### Task:\nGenerate a concise, 3-5 word title for this chat.\n<chat_history>Traceback</chat_history>"
    answer = await house.ask("rules", [{"role": "user", "content": asked}], trilemma={"dry_run": True})

    told = answer.json()
    assert {each["plan"]: each["propensity"] for each in told["candidates"]} == pytest.approx({"small": 0.75, "large": 0.25})


# B074: pictures or tools are sent to a model that cannot take them


async def test_an_ability_is_needed_for_as_long_as_the_history_needs_it(house: House) -> None:
    middle = [each for turn in range(150) for each in ({"role": "user", "content": f"{turn}"}, {"role": "assistant", "content": "yes"})]
    for history in ([IMAGE, {"role": "assistant", "content": "A cat."}, USER], [*middle, IMAGE, *middle, USER]):
        for _ in range(4):
            assert (await house.ask("even", history)).headers["x-trilemma-model"] == "large"
    answer = await house.ask("blind", [IMAGE, {"role": "assistant", "content": "A cat."}, USER])
    assert (answer.status_code, error_of(answer)["code"]) == (400, "caller_unsupported_capability")
    assert "`vision`" in error_of(answer)["message"]
    answer = await house.ask("even", [USER], tools=TOOLS, response_format=SCHEMA)
    assert (answer.status_code, "`json_schema`" in error_of(answer)["message"]) == (400, True)


async def test_who_lacks_the_ability_does_not_stand_in(house: House) -> None:
    await house.large.aclose()
    for _ in range(3):
        assert (await house.ask("even", [IMAGE])).status_code in (502, 503)
    assert house.asked() == []


# B097: the chosen model has no backend that lives


async def test_while_one_model_lives_everybody_is_served(kept: House) -> None:
    await kept.large.aclose()
    attempts: Counter[str] = Counter()
    for number in range(30):
        answer = await kept.ask("even", [{"role": "user", "content": f"question {number}"}])
        assert (answer.status_code, answer.headers["x-trilemma-model"]) == (200, "small")
        attempts[answer.headers["x-trilemma-attempts"]] += 1
    assert attempts["2"] <= 1  # whoever found out
    told = await kept.receipt(answer)
    assert told["excluded"] == [{"plan": "large", "reason": "unavailable"}]
    assert (told["propensity"], told["served_model"]) == (1.0, "small")
    await kept.small.aclose()
    assert [(await kept.ask("even", [USER])).status_code for _ in range(2)] in ([502, 503], [503, 503])


# B106: a name that is not there


@pytest.mark.parametrize("model", ["gpt-typo", "Even", "even ", "small/large"])
async def test_a_wrong_name_is_a_404_that_tells_nothing(house: House, model: str) -> None:
    answer = await house.ask(model, [USER])

    assert (answer.status_code, error_of(answer)["code"]) == (404, "model_not_found")
    assert not any(name in error_of(answer)["message"].replace(model, "") for name in ("small", "large", "split", "rules"))
    assert house.asked() == []


@pytest.mark.parametrize("body", [{}, {"model": ""}, {"model": None}])
async def test_no_name_is_a_400_that_names_what_is_missing(house: House, body: dict[str, Any]) -> None:
    """There is no default that a typing error would lead to."""
    answer = await house.client.post(CHAT, json={"messages": [USER], **body})

    assert (answer.status_code, error_of(answer)["param"]) == (400, "model")
    assert house.asked() == []


# B113: sessions make hot spots


async def test_sessions_spread_over_the_replicas_of_the_chosen_plan(tmp_path: Path) -> None:
    async with MockBackend(["m"]) as one, MockBackend(["m"]) as two, MockBackend(["m"]) as three:
        mocks = (one, two, three)
        config = config_for(
            {name: {"url": mock.url, "models": {"m": "m"}} for name, mock in zip("abc", mocks, strict=True)},
            policies={"even": {"type": "random", "wrappers": [{"type": "sticky"}]}},
            virtual_models={"auto": {"policy": "even", "plans": {"p": {"model": "m"}, "q": {"model": "m", "budget_tokens": 9}}}},
        )
        served: dict[str, set[str | None]] = {}
        async with running(config, tmp_path) as run, run.client() as client:
            for _ in range(2):
                for session in range(60):
                    body = {"model": "auto", "messages": [USER], "trilemma": {"session_id": f"s{session}"}}
                    assert (await client.post(CHAT, json=body)).status_code == 200
                    served.setdefault(f"s{session}", set()).add(run.settled[-1].backend)
        assert all(len(backends) == 1 for backends in served.values())
        # Each gets 20 +- 3.7 of the sessions; none is starved or preferred beyond four of these.
        assert all(5 <= count <= 35 for count in Counter(next(iter(each)) for each in served.values()).values())
        assert len({next(iter(each)) for each in served.values()}) == 3


# B117: one request that is too long is held against a healthy model


async def test_an_overflow_says_nothing_against_the_plan(kept: House) -> None:
    """No cool-down, and nothing to learn: not even where the caller says that it failed."""
    learner = kept.run.app.learner
    assert learner is not None
    for mock in (kept.small, kept.large):
        mock.script(Behaviour(status=400, body=OVERFLOW, times=10))
    answer = await kept.ask("learn", [USER])
    assert answer.status_code == 400
    said = {"decision_id": answer.headers["x-trilemma-decision-id"], "metric": "quality", "value": 0.0}
    assert (await kept.client.post("/v1/feedback", json=said)).status_code == 202
    await until(lambda: learner.skipped["failed"] == 1)
    assert learner.folded == 0
    assert kept.run.gateway.deciding.snapshots["learn/learn"].version == 0

    for mock in (kept.small, kept.large):
        mock.script(default=Behaviour())
    assert all(backend.breaker.state == "closed" for backend in kept.run.gateway.state.backends.values())
    found = (await kept.ask("learn", [USER], trilemma={"dry_run": True})).json()
    assert (len(found["candidates"]), found["excluded"]) == (2, [])


# B125: nothing tells how likely a choice was


async def test_every_decision_keeps_what_it_was_drawn_from(kept: House) -> None:
    """3 : 1 with a floor of 0.2 over two plans: 0.7 and 0.3."""
    state = kept.run.gateway.state
    for _ in range(5):
        answer = await kept.ask("split", [USER])
        told = await kept.receipt(answer)
        odds = {each["plan"]: each["propensity"] for each in told["candidates"]}
        assert odds == pytest.approx({"small": 0.7, "large": 0.3})
        assert told["propensity"] == odds[told["chosen"]]
        assert (told["policy"]["name"], told["config_hash"]) == ("split", state.hash)
        assert told["explored"] == (told["chosen"] == "large")
    answer = await kept.ask("learn", [USER])
    told = await kept.receipt(answer)
    assert sum(each["propensity"] for each in told["candidates"]) == pytest.approx(1.0)
    assert min(each["propensity"] for each in told["candidates"]) == pytest.approx(0.05)
    assert all(each["estimate"]["quality"] is not None for each in told["candidates"])
    assert told["feature_version"]


async def test_a_repeat_that_gets_the_first_answer_is_no_decision(house: House) -> None:
    headers = {"idempotency-key": "one"}
    body = {"model": "split", "messages": [USER]}
    first = await house.client.post(CHAT, json=body, headers=headers)
    again = await house.client.post(CHAT, json=body, headers=headers)

    assert again.content == first.content
    await house.run.until_settled(2)
    assert (house.run.settled[0].plan in PLANS, house.run.settled[1].plan, house.run.settled[1].choice) == (True, None, None)


# Budgets, wherever the answer's length is asked for


@pytest.mark.parametrize(
    ("path", "asked", "sent"),
    [
        (CHAT, {"max_tokens": 90, "max_completion_tokens": 10}, {"max_tokens": 40, "max_completion_tokens": 10}),
        (CHAT, {"max_tokens": 10, "max_completion_tokens": 90}, {"max_tokens": 10, "max_completion_tokens": 40}),
        ("/v1/completions", {}, {"max_tokens": 40}),
        ("/v1/messages", {"max_tokens": 100}, {"max_tokens": 40}),
        ("/v1/messages", {"max_tokens": 10}, {"max_tokens": 10}),
        ("/v1/responses", {}, {"max_output_tokens": 40}),
        ("/v1/responses", {"max_output_tokens": None}, {"max_output_tokens": 40}),
        ("/v1/responses", {"max_output_tokens": 100}, {"max_output_tokens": 40}),
        ("/v1/responses", {"max_output_tokens": 10}, {"max_output_tokens": 10}),
        ("/v1/embeddings", {}, {}),
    ],
)
async def test_a_plans_budget_holds_on_every_path(house: House, path: str, asked: dict[str, Any], sent: dict[str, int]) -> None:
    house.large.script(default=Behaviour(body="{}", headers={"content-type": "application/json"}))
    words: dict[str, Any] = {CHAT: {"messages": [USER]}, "/v1/messages": {"messages": [USER]}, "/v1/completions": {"prompt": "hi"}}
    await house.client.post(path, json={"model": "brief", **words.get(path, {"input": "hi"}), **asked})

    (body,) = house.asked()
    assert {name: body[name] for name in ("max_tokens", "max_completion_tokens", "max_output_tokens") if name in body} == sent


async def test_a_budget_that_is_named_twice_is_bounded_twice(house: House) -> None:
    body = b'{"model":"brief","messages":[{"role":"user","content":"hi"}],"max_tokens":5,"max_tokens":100000}'
    await house.client.post(CHAT, content=body, headers={"content-type": "application/json"})

    sent = next(each.body for each in house.large.requests if each.call)
    assert sent.count(b'"max_tokens":40') == 2


@pytest.mark.parametrize(("asked", "sent"), [(100, 40), (10, 10), (-1, 40), (None, 40), ("many", 40)])
async def test_the_engines_own_word_for_a_length_is_bounded_too(house: House, asked: Any, sent: int) -> None:
    """llama.cpp heeds `n_predict` before `max_tokens`; another engine does not know it."""
    await house.ask("brief-small", [USER], n_predict=asked)
    await house.ask("brief", [USER], n_predict=asked)

    small, large = house.asked()
    assert (small["n_predict"], small["max_tokens"]) == (sent, 40)
    assert (large["n_predict"], large["max_tokens"]) == (asked, 40)
