"""Strategies whose candidates are scored, over real sockets: by a model of the pool, and by a service of the operator's own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.mock import Behaviour, MockBackend
from tests.http.test_strategies import PRICE, USER, House, says
from tests.learning.test_verifier import Service, service
from tests.support.databases import decisions, migrated
from tests.support.running import config_for, running
from tests.support.waiting import until

__all__ = ["decisions", "migrated"]

REWARD: dict[str, Any] = {"type": "best_of_n", "roles": {"reward": "rm"}}
SCORES = "/v1/score"


def score(value: float) -> Behaviour:
    data = [{"index": 0, "object": "score", "score": value}]
    usage = {"prompt_tokens": 30, "total_tokens": 30, "completion_tokens": 0}
    return Behaviour(path=SCORES, body=json.dumps({"object": "list", "model": "rm-8b", "data": data, "usage": usage}))


@asynccontextmanager
async def scoring(spec: dict[str, Any], folder: Path, decisions: Path, **reward_model: Any) -> AsyncIterator[House]:
    """A house whose `judge` is the model that scores, known to its backend as rm-8b, at 2 USD per million tokens read."""
    async with MockBackend(["m"]) as engine, MockBackend(["rm-8b"]) as reward:
        config = config_for(
            {"e": {"url": engine.url, "models": {"m": "m"}}, "r": {"url": reward.url, "models": {"rm": "rm-8b"}}},
            models={"m": {**PRICE, "attempts": 1}, "rm": {"price": {"input": 2.0, "output": 0.0}, "attempts": 1, **reward_model}},
            strategies={"best": spec},
            virtual_models={"best": {"policy": "fixed", "plans": {"p": {"model": "m", "strategy": "best"}}}},
            policies={"fixed": {"type": "fixed"}},
            storage={"url": f"sqlite:///{decisions}"},
        )
        async with running(config, folder) as run, run.client() as client:
            yield House(run, client, engine, reward)


@pytest.fixture
async def checker() -> AsyncIterator[Service]:
    async with service() as found:
        yield found
        await until(lambda: found.open == 0)


async def test_a_model_of_the_pool_scores_each_and_is_paid_for_it(tmp_path: Path, decisions: Path) -> None:
    one_by_one = {"n": 3, "select": "reward", "stop": "optscale", "level": 99.0}
    async with scoring({**REWARD, "params": one_by_one}, tmp_path, decisions) as house:
        house.engine.script(*says("It is 3", "<think>hm</think>It is 4", "It is 5"))
        house.judge.script(score(0.25), score(0.5), score(-1.0))
        answer = await house.ask("best")
        asked = [json.loads(each.body) for each in house.judge.requests_to(SCORES)]
        assert [each["text_2"] for each in asked] == ["It is 3", "It is 4", "It is 5"], "without its thoughts"
        assert {(each["model"], each["text_1"]) for each in asked} == {("rm-8b", "What is 2 + 2?")}
        assert answer.json()["choices"][0]["message"]["content"] == "<think>hm</think>It is 4", "as its candidate wrote it"
        usage = answer.json()["usage"]
        assert usage["trilemma"]["scorer"] == {"calls": 3, "prompt_tokens": 90, "completion_tokens": 0}
        assert usage["completion_tokens"] == usage["trilemma"]["candidate"]["completion_tokens"]
        told = await house.receipt(answer)
        assert [each["purpose"] for each in told["calls"]] == ["candidate", "scorer"] * 3
        assert [each["score"] for each in told["strategy_candidates"]] == [0.25, 0.5, -1.0]
        assert [each["score"] for each in told["strategy_candidates"] if each["won"]] == [0.5]
        assert told["strategy_why"] == "reward"
        sampled = [each for each in told["calls"] if each["purpose"] == "candidate"]
        paid = sum(each["prompt_tokens"] + 10 * each["completion_tokens"] for each in sampled) / 1e6 + 90 * 2 / 1e6
        assert float(answer.headers["x-trilemma-cost"]) == pytest.approx(paid)


async def test_the_first_that_is_good_enough_waits_for_nobody(tmp_path: Path, decisions: Path) -> None:
    params = {"n": 8, "select": "reward", "stop": "optscale", "level": 0.9, "batch": 2}
    async with scoring({**REWARD, "params": params}, tmp_path, decisions) as house:
        house.engine.script(*says("It is 4"), Behaviour(never_answer=True))
        house.judge.script(score(0.95))
        answer = await house.ask("best")
        assert answer.json()["choices"][0]["message"]["content"] == "It is 4"
        await house.engine.wait_for(lambda mock: mock.in_flight == 0)
        assert (house.engine.aborted, house.run.in_flight()) == (1, 0)
        told = await house.receipt(answer)
        assert told["strategy_why"] == "good_enough"
        assert sorted(each["outcome"] for each in told["strategy_candidates"]) == ["cancelled", "won"]


@pytest.mark.parametrize("kind", ["classify", "pooling"])
async def test_models_that_score_a_conversation(tmp_path: Path, decisions: Path, kind: str) -> None:
    async with scoring({**REWARD, "scoring": kind, "params": {"n": 2, "select": "reward"}}, tmp_path, decisions) as house:
        house.engine.script(default=Behaviour(text="It is 4"))
        found = {"classify": {"probs": [0.5]}, "pooling": {"data": [[0.1], [0.5]]}}[kind]
        house.judge.script(Behaviour(path=f"/{kind}", times=0, body=json.dumps({"data": [found]})))
        told = await house.receipt(await house.ask("best"))
        assert [each["score"] for each in told["strategy_candidates"]] == [0.5, 0.5]
        asked = json.loads(house.judge.requests_to(f"/{kind}")[0].body)
        assert asked["messages"] == [*USER, {"role": "assistant", "content": "It is 4"}]


@pytest.mark.parametrize("broken", [Behaviour(path=SCORES, times=0, status=500, body="{}"), Behaviour(path=SCORES, times=0, body="[]")])
async def test_a_scorer_that_fails_takes_nothing_from_the_answer(tmp_path: Path, decisions: Path, broken: Behaviour) -> None:
    async with scoring({**REWARD, "params": {"n": 3, "select": "reward"}}, tmp_path, decisions) as house:
        house.engine.script(*says("It is 5", "It is 4", "The answer is 4"))
        house.judge.script(broken)
        answer = await house.ask("best")
        assert (answer.status_code, answer.json()["choices"][0]["message"]["content"][-1]) == (200, "4")
        assert (await house.receipt(answer))["strategy_why"] == "reward_failed"


async def test_who_leaves_leaves_no_score_running(tmp_path: Path, decisions: Path) -> None:
    async with scoring({**REWARD, "params": {"n": 2, "select": "reward"}}, tmp_path, decisions) as house:
        house.engine.script(default=Behaviour(text="It is 4"))
        house.judge.script(Behaviour(path=SCORES, times=0, never_answer=True))
        task = asyncio.create_task(house.ask("best"))
        await house.judge.wait_for(lambda mock: mock.in_flight == 2)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await house.judge.wait_for(lambda mock: mock.in_flight == 0)
        await house.run.until_settled(1)
        assert house.run.in_flight() == 0


async def test_a_deadline_takes_what_has_been_scored(tmp_path: Path, decisions: Path) -> None:
    """Of the other nothing is known in time."""
    async with scoring({**REWARD, "params": {"n": 2, "select": "reward"}}, tmp_path, decisions) as house:
        house.engine.script(default=Behaviour(text="It is 4"))
        house.judge.script(score(0.5), Behaviour(path=SCORES, never_answer=True))
        answer = await house.ask("best", trilemma={"deadline_ms": 500})
        assert answer.status_code == 200
        told = await house.receipt(answer)
        assert [each["score"] for each in told["strategy_candidates"] if each["won"]] == [0.5]


async def test_a_service_of_ones_own_passes_or_fails(tmp_path: Path, decisions: Path, checker: Service) -> None:
    """Asked as a verifier is that judges afterwards; the first that it passes ends it, and nobody but the operator names its address."""
    checker.answers = [(200, b'{"value": 0}'), (200, b'{"value": 1}')]
    spec = {
        "type": "best_of_n",
        "params": {"n": 8, "select": "verifier", "stop": "hazard"},
        "verifier": {"url": checker.url, "key": "sk-checker"},
    }
    async with scoring(spec, tmp_path, decisions) as house:
        house.engine.script(*says("It is 5", "It is 4"))
        answer = await house.ask("best", verifier={"url": "http://evil.example"})
        assert answer.json()["choices"][0]["message"]["content"] == "It is 4"
        decision = answer.headers["x-trilemma-decision-id"]
        assert [body for _, body in checker.asked] == [
            {"decision_id": decision, "messages": USER, "answer": text} for text in ("It is 5", "It is 4")
        ]
        assert all("authorization: bearer sk-checker" in head.lower() for head, _ in checker.asked)
        told = await house.receipt(answer)
        assert (told["strategy_why"], len(house.bodies())) == ("passed", 2)
        assert [(each["score"], each["won"]) for each in told["strategy_candidates"]] == [(0.0, False), (1.0, True)]
        assert [each["purpose"] for each in told["calls"]] == ["candidate"] * 2, "it is no model"


@pytest.mark.parametrize("says_so", [(500, b"{}"), (200, b'{"value": 7}'), (200, b'{"value": null}'), (307, b""), None])
async def test_a_service_that_fails_takes_nothing_from_the_answer(
    tmp_path: Path, decisions: Path, checker: Service, says_so: tuple[int, bytes] | None
) -> None:
    checker.answers = [says_so] * 3
    spec = {"type": "best_of_n", "params": {"n": 3, "select": "verifier"}, "verifier": {"url": checker.url, "timeout_s": 0.3}}
    async with scoring(spec, tmp_path, decisions) as house:
        house.engine.script(*says("It is 5", "It is 4", "The answer is 4"))
        answer = await house.ask("best")
        assert (answer.status_code, answer.json()["choices"][0]["message"]["content"][-1]) == (200, "4")
        assert (await house.receipt(answer))["strategy_why"] == "verifier_failed"
    assert len(checker.asked) == 3


async def test_a_reward_model_with_a_small_context_reads_what_it_can(tmp_path: Path, decisions: Path) -> None:
    """512 tokens, at 3 characters each: the end of the answer, and the ends of the question."""
    async with scoring({**REWARD, "params": {"n": 2, "select": "reward"}}, tmp_path, decisions, context=512) as house:
        house.engine.script(*says(*["Step. " * 500 + "It is 4"] * 2))
        house.judge.script(score(0.5), score(0.5))
        answer = await house.ask("best", messages=[{"role": "user", "content": "Why? " * 500 + "Say it."}], max_tokens=2_000)
        asked, _ = [json.loads(each.body) for each in house.judge.requests_to(SCORES)]
    assert answer.status_code == 200
    assert len(asked["text_1"]) + len(asked["text_2"]) <= 3 * 512
    assert asked["text_2"].endswith("It is 4") and "Say it." in asked["text_1"]
