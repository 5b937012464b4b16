"""Plans with a strategy, over real sockets: several candidates of a mock engine, one of them as the answer. B-numbers are reports."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.mock import Behaviour, MockBackend
from gateway.mock.behaviour import ToolCall
from tests.support.asking import CHAT, data, error_of
from tests.support.databases import decisions, migrated
from tests.support.running import Running, config_for, running
from tests.support.waiting import until

__all__ = ["decisions", "migrated"]

USER = [{"role": "user", "content": "What is 2 + 2?"}]
PRICE = {"price": {"input": 1.0, "output": 10.0}}
STRATEGIES: dict[str, Any] = {
    "four": {"type": "self_consistency", "params": {"n": 4, "stop": "never"}},
    "quick": {"type": "self_consistency", "params": {"n": 4}},
    "warm": {"type": "best_of_n", "params": {"n": 3, "select": "shortest"}, "temperature": 0.7},
    "likely": {"type": "best_of_n", "params": {"n": 2, "select": "logprob"}},
    "written": {"type": "synthesis", "params": {"n": 2, "when": "always"}, "roles": {"synthesizer": "judge"}},
    "judged": {"type": "best_of_n", "params": {"n": 2, "select": "judge"}, "roles": {"judge": "judge"}},
}


@dataclass
class House:
    """A gateway over `m` and `judge`, with a virtual model for each strategy, called by its name."""

    run: Running
    client: httpx.AsyncClient
    engine: MockBackend
    judge: MockBackend

    async def ask(self, model: str, **fields: Any) -> httpx.Response:
        return await self.client.post(CHAT, json={"model": model, "messages": USER, **fields})

    async def receipt(self, answer: httpx.Response) -> dict[str, Any]:
        """What was decided, as it is told once it is stored."""
        path = f"/v1/decisions/{answer.headers['x-trilemma-decision-id']}"
        async with asyncio.timeout(20):
            while (found := await self.client.get(path)).status_code == 503:  # noqa: ASYNC110 (a database has no event here)
                await asyncio.sleep(0.02)
        told: dict[str, Any] = found.json()
        return told

    def bodies(self) -> list[dict[str, Any]]:
        """Of the calls to the engine, in order."""
        return [json.loads(each.body) for each in self.engine.requests if each.path == CHAT]


@pytest.fixture
async def house(tmp_path: Path, decisions: Path) -> AsyncIterator[House]:
    async with MockBackend(["m"]) as engine, MockBackend(["judge"]) as judge:
        config = config_for(
            {"e": {"url": engine.url, "models": {"m": "m"}}, "j": {"url": judge.url, "models": {"judge": "judge"}}},
            models={"m": {**PRICE, "attempts": 1}, "judge": PRICE},
            strategies=STRATEGIES,
            virtual_models={name: {"policy": "fixed", "plans": {"p": {"model": "m", "strategy": name}}} for name in STRATEGIES}
            | {"either": {"policy": "fixed", "baseline": "a", "plans": {"a": {"model": "m"}, "b": {"model": "m", "strategy": "four"}}}},
            policies={"fixed": {"type": "fixed"}},
            storage={"url": f"sqlite:///{decisions}"},
        )
        async with running(config, tmp_path) as run, run.client() as client:
            yield House(run, client, engine, judge)


def says(*texts: str) -> list[Behaviour]:
    return [Behaviour(text=text) for text in texts]


async def test_the_answer_that_most_candidates_give_is_given_as_its_candidate_wrote_it(house: House) -> None:
    house.engine.script(*says("The answer is 5.", "So it is 4", "The answer is 4.", "2 + 2 = 4"))
    answer = await house.ask("four", seed=40, trilemma={"session_id": "s"})
    body = answer.json()
    assert answer.status_code == 200
    said = body["choices"][0]["message"]["content"]
    assert said in ("So it is 4", "The answer is 4.", "2 + 2 = 4")
    assert (answer.headers["x-trilemma-strategy"], answer.headers["x-trilemma-candidates"]) == ("four", "4")
    assert sorted(each["seed"] for each in house.bodies()) == [40, 41, 42, 43], "B109"
    assert not any("trilemma" in each or each.get("stream") for each in house.bodies())
    told = await house.receipt(answer)
    assert [each["purpose"] for each in told["calls"]] == ["candidate"] * 4
    assert sum(each["won"] for each in told["strategy_candidates"]) == 1
    assert sorted(each["score"] for each in told["strategy_candidates"]) == [1.0, 3.0, 3.0, 3.0]
    assert told["strategy_why"] == "vote"
    calls = told["calls"]
    usage = body["usage"]
    assert usage["prompt_tokens"] == calls[0]["prompt_tokens"], "the caller's prompt counts once"
    assert usage["completion_tokens"] == sum(each["completion_tokens"] for each in calls)
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    # B100: what it cost is what all calls cost: 1 USD per million tokens read, 10 per million written
    paid = sum(each["prompt_tokens"] + 10 * each["completion_tokens"] for each in calls) / 1e6
    assert float(answer.headers["x-trilemma-cost"]) == pytest.approx(paid)
    assert told["cost"] == pytest.approx(paid)


async def test_a_vote_that_is_decided_waits_for_nobody(house: House) -> None:
    house.engine.script(*says("It is 4", "It is 4", "It is 4"), Behaviour(never_answer=True))
    answer = await house.ask("quick")
    assert answer.json()["choices"][0]["message"]["content"] == "It is 4"
    await house.engine.wait_for(lambda mock: mock.in_flight == 0)
    assert (house.run.in_flight(), house.engine.aborted) == (0, 1)
    told = await house.receipt(answer)
    assert sorted(each["outcome"] for each in told["strategy_candidates"]) == ["cancelled", "lost", "lost", "won"]


async def test_a_stream_has_all_that_one_has(house: House) -> None:
    """B048, B053, B070: a role, once; one reason to finish; and the winner's words in between. Usage stands in a chunk of its own."""
    house.engine.script(*says("It is 4"), default=Behaviour(text="It is 4"))
    async with house.client.stream(
        "POST", CHAT, json={"model": "four", "messages": USER, "stream": True, "stream_options": {"include_usage": True}}
    ) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert "x-trilemma-decision-id" in answer.headers
        assert not {"x-trilemma-model", "x-trilemma-attempts"} & set(answer.headers), "not known yet"
        events = data(await answer.aread())
    assert events[-1] == b"[DONE]"
    chunks = [json.loads(each) for each in events[:-1]]
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    assert [each["delta"]["role"] for each in choices if "role" in each["delta"]] == ["assistant"]
    assert "".join(each["delta"].get("content") or "" for each in choices) == "It is 4"
    assert [each["finish_reason"] for each in choices if each["finish_reason"]] == ["stop"]
    assert chunks[-1]["choices"] == [] and chunks[-1]["usage"]["trilemma"]["candidate"]["calls"] == 4
    assert all("stream_options" not in each or each["stream_options"] is None for each in house.bodies())


async def test_a_caller_may_have_the_decision_and_the_candidates_told_with_the_usage(house: House) -> None:
    house.engine.script(*says("It is 4", "It is 5", "It is 4", "It is 4"))
    answer = await house.ask("four", trilemma={"include": ["decision", "candidates"]})
    told = answer.json()["usage"]["trilemma"]
    receipt = await house.receipt(answer)
    assert told["candidate"]["calls"] == 4
    assert told["candidates"] == receipt["strategy_candidates"]
    assert told["decision"] == {
        "id": answer.headers["x-trilemma-decision-id"],
        "policy": "fixed",
        "plan": "p",
        "strategy": "four",
        "why": "vote",
        "served_model": "m",
        "attempts": 4,
        "cost": pytest.approx(receipt["cost"]),
    }
    house.engine.script(*says("It is 4", "It is 5", "It is 4", "It is 4"))
    async with house.client.stream(
        "POST", CHAT, json={"model": "four", "messages": USER, "stream": True, "trilemma": {"include": ["candidates"]}}
    ) as streamed:
        *chunks, last, done = data(await streamed.aread())
    assert done == b"[DONE]"
    assert len(json.loads(last)["usage"]["trilemma"]["candidates"]) == 4
    assert all(json.loads(each)["choices"] for each in chunks), "nobody asked for progress"


async def test_progress_is_told_where_it_is_asked_for_before_the_answer(house: House) -> None:
    house.engine.script(Behaviour(text="It is 4"), *[Behaviour(text="It is 4", delay_headers_s=0.2)] * 3)
    body = {"model": "four", "messages": USER, "stream": True, "trilemma": {"include": ["progress"]}}
    async with house.client.stream("POST", CHAT, json=body) as answer:
        events = [line.removeprefix("data: ") async for line in answer.aiter_lines() if line.startswith("data: {")]
    seen = [json.loads(each) for each in events]
    assert seen[0]["trilemma"] == {"progress": {"ended": 1}}
    assert (seen[0]["object"], seen[0]["model"], seen[0]["choices"]) == ("chat.completion.chunk", "four", [])
    told = [each["trilemma"]["progress"]["ended"] for each in seen if "trilemma" in each]
    assert told == sorted(set(told)) and told[-1] <= 4
    rest = [each for each in seen if "trilemma" not in each]
    assert [choice["delta"].get("role") for choice in rest[0]["choices"]] == ["assistant"], "progress ends where the answer begins"
    assert "".join(choice["delta"].get("content") or "" for each in rest for choice in each["choices"]) == "It is 4"
    assert all("usage" not in each for each in rest)


async def test_all_candidates_have_to_fit_into_the_limit_before_one_is_asked(tmp_path: Path) -> None:
    """And when they do, what they did not use is there again."""
    async with MockBackend(["m"]) as engine:
        engine.script(default=Behaviour(text="It is 4"))
        config = config_for(
            {"e": {"url": engine.url, "models": {"m": "m"}}},
            strategies={"four": STRATEGIES["four"]},
            virtual_models={"four": {"policy": "fixed", "plans": {"p": {"model": "m", "strategy": "four"}}}},
            limits={"key": {"tpm": 1_000}},
        )
        async with running(config, tmp_path) as run, run.client() as client:
            asked = {"model": "four", "messages": USER}
            refused = await client.post(CHAT, json={**asked, "max_tokens": 250})
            assert (refused.status_code, refused.json()["error"]["code"]) == (429, "rate_limit_exceeded")
            assert not [each for each in engine.requests if each.path == CHAT]
            served = [await client.post(CHAT, json={**asked, "max_tokens": 200}) for _ in range(2)]
            used = sum(
                each.json()["usage"]["trilemma"]["candidate"][name] for each in served for name in ("prompt_tokens", "completion_tokens")
            )
            left = (await client.post(CHAT, json={**asked, "model": "m", "max_tokens": 1})).headers["x-ratelimit-remaining-tokens"]
    assert [each.status_code for each in served] == [200, 200]
    assert 1_000 - used - 40 < int(left) < 1_000 - used


def judged(engine: MockBackend, judge: MockBackend, **plan: Any) -> dict[str, Any]:
    """What a gateway is made of whose `v` has two candidates and a judge who chooses one."""
    return {
        "backends": {"e": {"url": engine.url, "models": {"m": "m"}}, "j": {"url": judge.url, "models": {"judge": "judge"}}},
        "models": {"m": {"price": {"input": 1.0, "output": 10.0}}, "judge": {"price": {"input": 100.0, "output": 1_000.0}}},
        "strategies": {"picked": {"type": "genselect", "params": {"n": 2, "verdict_tokens": 200}, "roles": {"judge": "judge"}}},
        "virtual_models": {"v": {"policy": "fixed", "plans": {"p": {"model": "m", "strategy": "picked", **plan}}}},
        "policies": {"fixed": {"type": "fixed"}},
    }


async def test_what_questions_cost_at_most_has_to_be_paid_for_too(tmp_path: Path) -> None:
    """16,000 tokens of 48,000 characters, for 100 USD a million, and 200 for 1,000 USD: 1.8 USD; twice, for a reply may be unreadable."""
    async with MockBackend(["m"]) as engine, MockBackend(["judge"]) as judge:
        engine.script(*says("It is 4", "It is 5"))
        judge.script(Behaviour(text="Judgment: 1"))
        async with running(config_for(**judged(engine, judge)), tmp_path) as run, run.client() as client:
            asked = {"model": "v", "messages": USER}
            refused = await client.post(CHAT, json={**asked, "trilemma": {"max_cost": 3.59}})
            assert (refused.status_code, refused.json()["error"]["code"]) == (400, "caller_max_cost")
            served = await client.post(CHAT, json={**asked, "trilemma": {"max_cost": 3.61}})
    assert served.status_code == 200
    assert float(served.headers["x-trilemma-cost"]) < 3.6


@pytest.mark.parametrize(("words", "asked"), [(3, True), (18, False)])
async def test_questions_have_what_candidates_leave_of_the_budget(tmp_path: Path, words: int, asked: bool) -> None:
    """Half of it is each candidate's; at fewer than 16 tokens nobody is asked, and the vote decides."""
    async with MockBackend(["m"]) as engine, MockBackend(["judge"]) as judge:
        engine.script(*says(*[" ".join([f"word{number}"] * words) for number in (4, 5)]))
        judge.script(Behaviour(text="Judgment: 1"))
        async with running(config_for(**judged(engine, judge, budget_tokens=40)), tmp_path) as run, run.client() as client:
            answer = await client.post(CHAT, json={"model": "v", "messages": USER})
        bounds = [json.loads(each.body)["max_tokens"] for each in engine.requests if each.path == CHAT]
        verdicts = [json.loads(each.body)["max_tokens"] for each in judge.requests if each.path == CHAT]
        (receipt,) = run.settled
    sampled = answer.json()["usage"]["trilemma"]["candidate"]["completion_tokens"]
    assert (answer.status_code, bounds) == (200, [20, 20])
    assert verdicts == ([40 - sampled] if asked else [])
    assert receipt.why == ("judge" if asked else "judge_failed")


async def test_a_budget_too_small_for_all_candidates_rules_the_plan_out(house: House) -> None:
    """16 tokens of each, or all that the request wants."""
    refused = await house.ask("four", trilemma={"budget_tokens": 63})
    assert (refused.status_code, error_of(refused)["param"]) == (400, "trilemma.budget_tokens")
    assert house.bodies() == []
    assert (await house.ask("four", trilemma={"budget_tokens": 64})).status_code == 200
    assert (await house.ask("four", trilemma={"budget_tokens": 8}, max_tokens=2)).status_code == 200
    assert (await house.ask("either", trilemma={"budget_tokens": 8})).headers["x-trilemma-strategy"] == "single"


async def test_where_nobody_has_told_what_was_sampled_what_was_estimated_counts(tmp_path: Path) -> None:
    """Of 1,000 tokens in a minute four times 200 and the prompts are gone, so 200 more are not there."""
    async with MockBackend(["m"]) as engine:
        engine.script(default=Behaviour(never_answer=True))
        config = config_for(
            {"e": {"url": engine.url, "models": {"m": "m"}}},
            strategies={"four": STRATEGIES["four"]},
            virtual_models={"four": {"policy": "fixed", "plans": {"p": {"model": "m", "strategy": "four"}}}},
            limits={"key": {"tpm": 1_000}},
        )
        async with running(config, tmp_path) as run, run.client() as client:
            task = asyncio.create_task(client.post(CHAT, json={"model": "four", "messages": USER, "max_tokens": 200}))
            await engine.wait_for(lambda mock: mock.in_flight == 4)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await run.until_settled(1)
            engine.script(default=Behaviour(text="4"))
            after = await client.post(CHAT, json={"model": "m", "messages": USER, "max_tokens": 200})
    assert after.status_code == 429


@pytest.mark.parametrize(
    ("strong", "body", "code"),
    [
        ({"context": 256}, {"messages": [{"role": "user", "content": "word " * 1_000}]}, "context_length_exceeded"),
        ({"capabilities": ["logprobs"]}, {"tools": [{"type": "function", "function": {"name": "f"}}]}, "caller_unsupported_capability"),
    ],
)
async def test_who_may_answer_has_to_be_able_to(tmp_path: Path, strong: dict[str, Any], body: dict[str, Any], code: str) -> None:
    async with MockBackend(["m", "strong"]) as engine:
        config = config_for(
            {"e": {"url": engine.url, "models": {"m": "m", "strong": "strong"}}},
            models={"strong": strong},
            strategies={"ladder": {"type": "cascade", "roles": {"strong": "strong"}}},
            virtual_models={"v": {"policy": "fixed", "plans": {"p": {"model": "m", "strategy": "ladder"}}}},
            policies={"fixed": {"type": "fixed"}},
        )
        async with running(config, tmp_path) as run, run.client() as client:
            answer = await client.post(CHAT, json={"model": "v", "messages": USER} | body)
            fits = await client.post(CHAT, json={"model": "v", "messages": USER})
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, code)
        assert fits.status_code == 200


@pytest.mark.parametrize(("asked", "sent", "told"), [({"logprobs": True}, 5, 0), ({"logprobs": True, "top_logprobs": 2}, 5, 2)])
async def test_a_caller_has_as_many_alternatives_as_it_asked_for(tmp_path: Path, asked: dict[str, Any], sent: int, told: int) -> None:
    async with MockBackend(["m"]) as engine:
        config = config_for(
            {"e": {"url": engine.url, "models": {"m": "m"}}},
            strategies={"deep": {"type": "self_consistency", "params": {"n": 2, "stop": "never", "vote": "deepconf"}}},
            virtual_models={"v": {"policy": "fixed", "plans": {"p": {"model": "m", "strategy": "deep"}}}},
            policies={"fixed": {"type": "fixed"}},
        )
        async with running(config, tmp_path) as run, run.client() as client:
            answer = await client.post(CHAT, json={"model": "v", "messages": USER, "max_tokens": 3} | asked)
        assert {json.loads(each.body)["top_logprobs"] for each in engine.requests if each.path == CHAT} == {sent}
    content = answer.json()["choices"][0]["logprobs"]["content"]
    assert [len(each["top_logprobs"]) for each in content] == [told] * 3


async def test_several_models_differ_at_temperature_0_too(tmp_path: Path) -> None:
    async with MockBackend(["m"]) as engine, MockBackend(["other"]) as other:
        engine.script(*says("It is 4", "It is 4."))
        other.script(*says("It is 5"))
        config = config_for(
            {"e": {"url": engine.url, "models": {"m": "m"}}, "o": {"url": other.url, "models": {"other": "other"}}},
            strategies={"mixed": {"type": "synthesis", "params": {"n": 1, "roles": ["second"]}, "roles": {"second": "other"}}},
            virtual_models={"v": {"policy": "fixed", "plans": {"p": {"model": "m", "strategy": "mixed"}}}},
            policies={"fixed": {"type": "fixed"}},
        )
        async with running(config, tmp_path) as run, run.client() as client:
            answer = await client.post(CHAT, json={"model": "v", "messages": USER, "temperature": 0})
        asked = [each for each in (*engine.requests, *other.requests) if each.path == CHAT]
    assert answer.json()["choices"][0]["message"]["content"] == "It is 4."
    assert (len(asked), run.settled[0].why) == (3, "synthesis")


async def test_a_question_that_a_limit_does_not_allow_is_not_asked(tmp_path: Path) -> None:
    async with MockBackend(["m"]) as engine, MockBackend(["judge"]) as judge:
        engine.script(*says("It is 4", "It is 5"))
        async with running(config_for(**judged(engine, judge), limits={"key": {"tpm": 600}}), tmp_path) as run, run.client() as client:
            answer = await client.post(CHAT, json={"model": "v", "messages": USER, "max_tokens": 200})
            after = await client.post(CHAT, json={"model": "m", "messages": USER, "max_tokens": 300})
        (receipt, _) = run.settled
        assert not [each for each in judge.requests if each.path == CHAT]
    assert (answer.status_code, receipt.why) == (200, "judge_failed")
    assert after.status_code == 200, "what was refused took nothing"


async def test_the_plan_s_budget_holds_for_the_strong_model_too(tmp_path: Path) -> None:
    async with MockBackend(["m"]) as engine, MockBackend(["strong"]) as strong:
        engine.script(*says("It is 4", "It is 5", "It is 6"))
        strong.script(*says("It is 4."))
        config = config_for(
            {"e": {"url": engine.url, "models": {"m": "m"}}, "s": {"url": strong.url, "models": {"strong": "strong"}}},
            strategies={"ladder": {"type": "cascade", "roles": {"strong": "strong"}}},
            virtual_models={"v": {"policy": "fixed", "plans": {"p": {"model": "m", "strategy": "ladder", "budget_tokens": 400}}}},
            policies={"fixed": {"type": "fixed"}},
        )
        async with running(config, tmp_path) as run, run.client() as client:
            answer = await client.post(CHAT, json={"model": "v", "messages": USER})
        asked = [json.loads(each.body)["max_tokens"] for each in (*engine.requests, *strong.requests) if each.path == CHAT]
    assert answer.json()["choices"][0]["message"]["content"] == "It is 4."
    assert asked == [100] * 4


async def test_signs_of_life_while_candidates_run(tmp_path: Path, decisions: Path) -> None:
    """B030, B032: comments, and never anything that a client would take for an event."""
    async with MockBackend(["m"]) as engine:
        engine.script(default=Behaviour(text="It is 4", delay_headers_s=0.4))
        config = config_for(
            {"e": {"url": engine.url, "models": {"m": "m"}}},
            server={"heartbeat_s": 0.05},
            strategies={"four": STRATEGIES["four"]},
            virtual_models={"four": {"policy": "fixed", "plans": {"p": {"model": "m", "strategy": "four"}}}},
        )
        async with running(config, tmp_path) as run, run.client() as client:
            answer = await client.post(CHAT, json={"model": "four", "messages": USER, "stream": True})
    assert answer.content.startswith(b": \n"), "long before any candidate has ended"
    assert all(each.overhead is not None and 0 <= each.overhead < 0.4 for each in run.settled), "what it waited counts once"
    assert data(answer.content)[-1] == b"[DONE]"


@pytest.mark.parametrize("stream", [False, True])
async def test_who_leaves_leaves_nothing_running(house: House, stream: bool) -> None:
    house.engine.script(default=Behaviour(never_answer=True))
    task = asyncio.create_task(house.ask("four", stream=stream))
    await house.engine.wait_for(lambda mock: mock.in_flight == 4)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await house.engine.wait_for(lambda mock: mock.in_flight == 0)
    await house.run.until_settled(1)
    assert (house.run.in_flight(), house.engine.aborted) == (0, 4)
    (receipt,) = house.run.settled
    assert (receipt.outcome, receipt.usage) == ("client_closed", None)
    assert [each.outcome for each in receipt.calls] == ["cancelled"] * 4


async def test_what_was_sampled_before_the_caller_left_is_paid_for(house: House) -> None:
    house.engine.script(*says("It is 4", "It is 5"), default=Behaviour(never_answer=True))
    task = asyncio.create_task(house.ask("four"))
    await house.engine.wait_for(lambda mock: mock.in_flight == 2 and len(house.bodies()) == 4)
    await until(lambda: house.run.in_flight() == 2)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await house.run.until_settled(1)
    (receipt,) = house.run.settled
    sampled = [call.usage.completion for call in receipt.calls if call.usage is not None]
    assert sorted((call.outcome, call.estimated) for call in receipt.calls) == [("cancelled", True)] * 2 + [("ok", False)] * 2
    assert receipt.usage is not None and receipt.usage.completion == sum(sampled)
    assert receipt.cost > 0


async def test_what_the_engine_refuses_is_refused_once(house: House) -> None:
    """It would say so of each candidate; and an error is an error."""
    body = '{"error":{"message":"no such thing","type":"BadRequestError","param":"x","code":400}}'
    house.engine.script(Behaviour(status=400, body=body), default=Behaviour(never_answer=True))
    answer = await house.ask("four")
    assert (answer.status_code, answer.json()["error"]["message"]) == (400, "no such thing")
    await house.engine.wait_for(lambda mock: mock.in_flight == 0)


async def test_fewer_candidates_than_asked_still_answer(house: House) -> None:
    """B042: one that failed is asked for once more."""
    failing = Behaviour(status=500, body="{}")
    house.engine.script(failing, *says("It is 4", "It is 4", "It is 5"), default=failing)
    answer = await house.ask("four")
    assert answer.json()["choices"][0]["message"]["content"] == "It is 4"
    assert answer.headers["x-trilemma-candidates"] == "3"
    told = await house.receipt(answer)
    assert sorted(each["outcome"] for each in told["strategy_candidates"]) == ["failed", "failed", "lost", "lost", "won"]


async def test_no_candidate_is_no_answer(house: House) -> None:
    house.engine.script(default=Behaviour(status=500, body='{"error":{"message":"no","type":"x","code":500}}'))
    answer = await house.ask("four")
    assert answer.status_code >= 500 and "error" in answer.json()


async def test_where_all_fail_alike_the_caller_is_told_what_a_plain_call_would_be(house: House) -> None:
    """B016: status, words and the time to wait are the backend's."""
    busy = Behaviour(status=429, body='{"error":{"message":"busy","type":"x","code":429}}', headers={"retry-after": "7"})
    house.engine.script(default=busy)
    answer = await house.ask("four")
    assert (answer.status_code, answer.json()["error"]["message"], answer.headers["retry-after"]) == (429, "busy", "7")
    assert house.run.settled[-1].outcome == "backend_error"


async def test_an_answer_below_quorum_says_so(house: House) -> None:
    broken = Behaviour(status=500, body="{}")
    house.engine.script(broken, broken, broken, default=Behaviour(text="It is 4"))
    answer = await house.ask("four")
    assert answer.json()["choices"][0]["message"]["content"] == "It is 4"
    assert house.run.settled[-1].why == "unanimous_below_quorum"


async def test_what_was_cut_off_is_no_answer(house: House) -> None:
    house.engine.script(Behaviour(text="4", finish_reason="abort"), *says("It is four", "It is four, I think"))
    assert (await house.ask("warm")).json()["choices"][0]["message"]["content"] == "It is four"


async def test_what_a_role_writes_has_the_form_that_was_asked_for(house: House) -> None:
    house.engine.script(*says("4", "5"))
    house.judge.script(Behaviour(text="4"))
    await house.ask("written", response_format={"type": "json_object"}, stop=["END"])
    (asked,) = [json.loads(each.body) for each in house.judge.requests if each.path == CHAT]
    assert (asked["response_format"], asked["stop"]) == ({"type": "json_object"}, ["END"])


async def test_a_deadline_takes_what_has_come(house: House) -> None:
    """B128"""
    house.engine.script(*says("It is 4", "It is 4"), default=Behaviour(never_answer=True))
    answer = await house.ask("four", trilemma={"deadline_ms": 400})
    assert (answer.status_code, answer.json()["choices"][0]["message"]["content"]) == (200, "It is 4")
    await until(lambda: house.run.in_flight() == 0)


async def test_at_temperature_0_one_is_as_good_as_four(house: House) -> None:
    """B109: unless the operator wants them warmer."""
    house.engine.script(default=Behaviour(text="It is 4"))
    answer = await house.ask("four", temperature=0)
    assert (len(house.bodies()), answer.headers["x-trilemma-candidates"]) == (1, "1")
    await house.ask("warm", temperature=0)
    assert [each["temperature"] for each in house.bodies()] == [0, 0.7, 0.7, 0.7]
    await house.ask("warm", temperature=1.2)
    assert [each["temperature"] for each in house.bodies()][4:] == [1.2] * 3


async def test_calls_of_tools_are_voted_on_by_name_and_arguments(house: House) -> None:
    """B022: and delivered with their ids."""
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    calls = [ToolCall("f", '{"a": 1, "b": 2}'), ToolCall("f", '{"b":2,"a":1.0}'), ToolCall("f", '{"a":3}'), ToolCall("f", '{"a":3,"b":2}')]
    house.engine.script(*[Behaviour(tool_calls=(call,)) for call in calls])
    message = (await house.ask("four", tools=tools)).json()["choices"][0]["message"]
    assert message["tool_calls"][0]["function"]["arguments"] in ('{"a": 1, "b": 2}', '{"b":2,"a":1.0}')
    assert message["tool_calls"][0]["id"]


async def test_a_judge_chooses_and_is_paid_apart(house: House) -> None:
    house.engine.script(*says("four", "It is 4, for two and two are four."))
    house.judge.script(default=Behaviour(text="Fine.\nVerdict: 3"))
    answer = await house.ask("judged")
    usage = answer.json()["usage"]
    assert usage["trilemma"]["judge"]["calls"] == 2
    assert usage["completion_tokens"] == usage["trilemma"]["candidate"]["completion_tokens"]
    told = await house.receipt(answer)
    assert sorted(each["purpose"] for each in told["calls"]) == ["candidate", "candidate", "judge", "judge"]
    assert {each["model"] for each in told["calls"] if each["purpose"] == "judge"} == {"judge"}


@pytest.fixture
async def thinking(tmp_path: Path) -> AsyncIterator[tuple[httpx.AsyncClient, MockBackend, Running]]:
    """A gateway whose models force thoughts: `text` and `engine`, over an engine as vLLM is."""
    async with MockBackend(["m"]) as engine:
        strategies = {
            "text": {"type": "budget_forcing", "params": {"cap": 40, "least": 3, "waits": 1}},
            "engine": {"type": "budget_forcing", "params": {"cap": 64, "by": "engine", "tell": 90}},
        }
        config = config_for(
            {"e": {"url": engine.url, "engine": "vllm", "models": {"m": "m"}}},
            strategies=strategies,
            virtual_models={name: {"policy": "fixed", "plans": {"p": {"model": "m", "strategy": name}}} for name in strategies},
            policies={"fixed": {"type": "fixed"}},
        )
        async with running(config, tmp_path) as run, run.client() as client:
            yield client, engine, run


@pytest.mark.parametrize("stream", [False, True])
async def test_thoughts_are_closed_and_the_answer_is_one_message(
    thinking: tuple[httpx.AsyncClient, MockBackend, Running], stream: bool
) -> None:
    client, engine, run = thinking
    engine.script(*says("Two", " and two.", "It is 4"))
    body = {"model": "text", "messages": USER, "max_tokens": 200, "temperature": 0.5, "seed": 7, "stop": ["END"]}
    body |= {"min_tokens": 0, "mirostat": 2}  # what an engine may know, and nobody here
    answer = await client.post(CHAT, json=body | ({"stream": True, "stream_options": {"include_usage": True}} if stream else {}))
    assert answer.status_code == 200, answer.text
    (receipt,) = run.settled
    assert (receipt.why, receipt.outcome, len(receipt.tried)) == ("waited", "ok", 1)
    if stream:
        chunks = [json.loads(each) for each in data(answer.content)[:-1]]
        deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
        assert "".join(each.get("reasoning_content") or "" for each in deltas) == "Two\nWait and two."
        assert "".join(each.get("content") or "" for each in deltas) == "It is 4"
        usage = chunks[-1]["usage"]
    else:
        message = answer.json()["choices"][0]["message"]
        assert message == {"role": "assistant", "content": "It is 4", "reasoning_content": "Two\nWait and two."}
        usage = answer.json()["usage"]
    asked = [json.loads(each.body) for each in engine.requests if each.path == "/v1/completions"]
    assert [each["stop"] for each in asked] == [["</think>"], ["</think>"], ["END"]]
    assert all(isinstance(token, int) for each in asked for token in each["prompt"])
    assert asked[1]["prompt"][: len(asked[0]["prompt"]) - 1] == asked[0]["prompt"][:-1], "it goes on where it ended"
    assert all((each["temperature"], each["seed"], each["min_tokens"], each["mirostat"]) == (0.5, 7, 0, 2) for each in asked)
    assert not any({"messages", "stream", "stream_options", "trilemma"} & set(each) for each in asked)
    sampled = [call.usage.completion for call in receipt.calls if call.usage is not None]
    assert usage["completion_tokens"] == sum(sampled) == receipt.tried[0].tokens
    assert asked[2]["max_tokens"] == 200 - sampled[0] - sampled[1]
    assert run.in_flight() == 0


async def test_what_text_alone_cannot_give_is_one_plain_call(thinking: tuple[httpx.AsyncClient, MockBackend, Running]) -> None:
    client, engine, run = thinking
    engine.script(Behaviour(tool_calls=(ToolCall("f", "{}", id="c"),)))
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    answer = await client.post(CHAT, json={"model": "text", "messages": USER, "tools": tools})
    assert answer.json()["choices"][0]["message"]["tool_calls"][0]["id"] == "c"
    assert run.settled[0].why == "unforced"
    assert [each.path for each in engine.requests if each.method == "POST"] == [CHAT]


async def test_one_token_is_no_room_for_a_thought_and_an_answer(thinking: tuple[httpx.AsyncClient, MockBackend, Running]) -> None:
    client, engine, run = thinking
    engine.script(*says("It is 4"))
    answer = await client.post(CHAT, json={"model": "text", "messages": USER, "max_tokens": 1})
    assert answer.json()["usage"]["completion_tokens"] == 1
    assert run.settled[0].why == "unforced"


async def test_an_engine_without_a_bound_on_thoughts_is_told_none_and_the_receipt_says_so(tmp_path: Path) -> None:
    async with MockBackend(["m"]) as engine:
        engine.script(*says("It is 4"))
        config = config_for(
            {"e": {"url": engine.url, "engine": "openai", "models": {"m": "m"}}},
            strategies={"engine": {"type": "budget_forcing", "params": {"cap": 64, "by": "engine"}}},
            virtual_models={"v": {"policy": "fixed", "plans": {"p": {"model": "m", "strategy": "engine"}}}},
            policies={"fixed": {"type": "fixed"}},
        )
        async with running(config, tmp_path) as run, run.client() as client:
            await client.post(CHAT, json={"model": "v", "messages": USER})
        (asked,) = [json.loads(each.body) for each in engine.requests if each.path == CHAT]
    assert not [name for name in asked if "thinking" in name]
    assert run.settled[0].why == "unforced"


async def test_an_engine_that_bounds_thoughts_is_told_the_bound_and_the_prompt_speaks_of_it(
    thinking: tuple[httpx.AsyncClient, MockBackend, Running],
) -> None:
    client, engine, run = thinking
    engine.script(*says("It is 4"))
    await client.post(CHAT, json={"model": "engine", "messages": USER})
    (asked,) = [json.loads(each.body) for each in engine.requests if each.path == CHAT]
    assert asked["thinking_token_budget"] == 64
    assert asked["messages"][0]["content"].startswith("What is 2 + 2?\n\n") and "90 tokens" in asked["messages"][0]["content"]
    assert run.settled[0].why == "engine"


async def test_a_judge_with_a_small_context_is_asked_what_it_can_read(tmp_path: Path) -> None:
    """2,048 tokens: at most half of them for the reply, and 3 characters of the message for each of the others."""
    async with MockBackend(["m"]) as engine, MockBackend(["judge"]) as judge:
        config = config_for(
            {"e": {"url": engine.url, "models": {"m": "m"}}, "j": {"url": judge.url, "models": {"judge": "judge"}}},
            models={"judge": {"context": 2_048}},
            strategies={"picked": {"type": "genselect", "params": {"n": 2}, "roles": {"judge": "judge"}}},
            virtual_models={"v": {"policy": "fixed", "plans": {"p": {"model": "m", "strategy": "picked"}}}},
            policies={"fixed": {"type": "fixed"}},
        )
        engine.script(*says("It is four. " * 500 + "The answer is 4.", "It is five. " * 500 + "The answer is 5."))
        judge.script(Behaviour(text="Judgment: 1"))
        async with running(config, tmp_path) as run, run.client() as client:
            answer = await client.post(CHAT, json={"model": "v", "messages": USER, "max_tokens": 3_000})
        (asked,) = [json.loads(each.body) for each in judge.requests if each.path == CHAT]
        assert answer.status_code == 200
        assert asked["max_tokens"] == 1_024
        prompt = asked["messages"][0]["content"]
        assert len(prompt) <= 3 * 1_024
        assert "The answer is 4." in prompt and "The answer is 5." in prompt


async def test_what_a_role_writes_is_a_candidate_too_and_no_longer_than_the_caller_wants(house: House) -> None:
    house.engine.script(*says("It is 4", "It is 5"))
    house.judge.script(default=Behaviour(text="So it is 4."))
    answer = await house.ask("written", max_tokens=9)
    assert answer.json()["choices"][0]["message"]["content"] == "So it is 4."
    assert json.loads(house.judge.requests_to(CHAT)[-1].body)["max_tokens"] == 9
    told = await house.receipt(answer)
    assert [(each["index"], each["outcome"]) for each in told["strategy_candidates"]] == [(0, "lost"), (1, "lost"), (2, "won")]
    usage = answer.json()["usage"]
    assert usage["prompt_tokens"] == told["calls"][0]["prompt_tokens"], "the caller's own, not what the role was shown"
    assert usage["completion_tokens"] == sum(each["completion_tokens"] for each in told["calls"])


async def test_log_probabilities_that_nobody_asked_for_stay_here(house: House) -> None:
    house.engine.script(default=Behaviour(text="It is 4"))
    answer = await house.ask("likely")
    assert all(each["logprobs"] is True for each in house.bodies())
    assert answer.json()["choices"][0].get("logprobs") is None
    asked = await house.ask("likely", logprobs=True)
    assert asked.json()["choices"][0].get("logprobs") is not None


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        (CHAT, {"messages": USER, "n": 2}, "n"),
        ("/v1/completions", {"prompt": "x"}, "model"),
        (CHAT, {"messages": USER, "trilemma": {"strategy": "quick"}}, "trilemma.strategy"),
    ],
)
async def test_what_a_strategy_cannot_do_is_said_by_name(house: House, path: str, body: dict[str, Any], param: str) -> None:
    answer = await house.client.post(path, json={"model": "four", **body})
    assert (answer.status_code, error_of(answer)["param"]) == (400, param)
    assert not house.bodies()


async def test_a_caller_may_choose_among_the_strategies_of_a_model(house: House) -> None:
    house.engine.script(default=Behaviour(text="It is 4"))
    plain = await house.ask("either")
    voted = await house.ask("either", trilemma={"strategy": "four"})
    alone = await house.ask("either", trilemma={"strategy": "single"})
    assert [each.headers["x-trilemma-strategy"] for each in (plain, voted, alone)] == ["single", "four", "single"]
    several = await house.ask("either", n=2)
    assert len(several.json()["choices"]) == 2, "the plan without a strategy can"


async def test_what_is_expected_of_a_strategy_counts_all_its_candidates(house: House) -> None:
    answer = await house.ask("either", trilemma={"dry_run": True})
    estimates = {each["plan"]: each["estimate"]["cost"] for each in answer.json()["candidates"]}
    assert estimates["b"] > 3.5 * estimates["a"]
