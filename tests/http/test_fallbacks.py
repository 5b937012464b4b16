"""Models that stand in: when one fails, the next serves, and the caller is told which; when none does, what the first one said."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.mock import Behaviour, MockBackend
from gateway.serving.admission import Admission
from gateway.serving.call import Receipt
from gateway.serving.state import RealModel
from tests.support.asking import CHAT, data, error_of
from tests.support.running import DIGEST, Running, config_for, running
from tests.support.waiting import until

ASK: dict[str, Any] = {"model": "A", "messages": [{"role": "user", "content": "hi"}]}
LONG: dict[str, Any] = {"model": "A", "messages": [{"role": "user", "content": "word " * 200}]}
BOTH_WAYS = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
SAYS_A = Behaviour(status=500, body='{"error":{"message":"A is ill"}}', times=0)
SAYS_B = Behaviour(status=500, body='{"error":{"message":"B is ill"}}', times=0)


@dataclass
class House:
    """Mock engines by name, and a gateway over them."""

    mocks: dict[str, MockBackend]
    run: Running
    client: httpx.AsyncClient

    async def ask(self, **more: Any) -> httpx.Response:
        return await self.client.post(CHAT, json=ASK | more)

    def asked(self, path: str = CHAT) -> dict[str, int]:
        """How many requests each engine has seen."""
        return {name: len(mock.requests_to(path)) for name, mock in self.mocks.items()}

    async def kill(self, *names: str) -> None:
        for name in names:
            await self.mocks[name].aclose()

    async def receipt(self, number: int = 1) -> Receipt:
        await self.run.until_settled(number)
        return self.run.settled[number - 1]

    def queue(self, model: str) -> Admission:
        route = self.run.gateway.state.names[model]
        assert isinstance(route, RealModel) and route.admission is not None
        return route.admission


@asynccontextmanager
async def house(
    folder: Path,
    engines: Mapping[str, str],
    windows: Mapping[str, int] | None = None,
    kinds: Mapping[str, str] | None = None,
    **sections: Any,
) -> AsyncIterator[House]:
    """engines: name -> the model that it serves, as `engine-NAME`. windows: their max_model_len. kinds: what they are, else `vllm`."""
    async with AsyncExitStack() as stack:
        mocks = {
            name: await stack.enter_async_context(MockBackend([f"engine-{name}"], max_model_len=(windows or {}).get(name, 4_096)))
            for name in engines
        }
        backends = {
            name: {"url": mocks[name].url, "engine": (kinds or {}).get(name, "vllm"), "models": {model: f"engine-{name}"}}
            for name, model in engines.items()
        }
        run = await stack.enter_async_context(running(config_for(backends, **sections), folder))
        await until(lambda: all(each.answered for each in run.gateway.state.backends.values()), "the first probes")
        yield House(mocks, run, await stack.enter_async_context(run.client()))
        await until(lambda: run.in_flight() == 0, "the end of all calls")


def told(receipt: Receipt) -> list[tuple[str, str, str | None, str | None]]:
    """Of each call: backend, model, outcome, fault."""
    assert all(call.ended is not None and call.purpose == "served" for call in receipt.calls)
    return [(call.backend, call.model, call.outcome, call.fault) for call in receipt.calls]


TWO = {"a": "A", "b": "B"}
THREE = {"a": "A", "b": "B", "c": "C"}


# -- who serves


@BOTH_WAYS
async def test_when_all_replicas_are_dead_the_fallback_serves(tmp_path: Path, stream: bool) -> None:
    async with house(tmp_path, {"a1": "A", "a2": "A", "b": "B"}, models={"A": {"fallbacks": ["B"]}}) as it:
        await it.kill("a1", "a2")
        answer = await it.ask(stream=stream)
        assert answer.status_code == 200, answer.text
        assert (answer.headers["x-trilemma-model"], answer.headers["x-trilemma-attempts"]) == ("B", "3")
        if stream:
            assert data(answer.content)[-1] == b"[DONE]"
        assert json.loads(it.mocks["b"].requests_to(CHAT)[0].body)["model"] == "engine-b"
        receipt = await it.receipt()
        assert (receipt.requested_model, receipt.served_model, receipt.backend) == ("A", "B", "b")
        assert (receipt.outcome, receipt.status, receipt.attempts) == ("ok", 200, 3)
        first, second, third = told(receipt)
        assert {first, second} == {(name, "A", "backend_error", "connect") for name in ("a1", "a2")}
        assert third == ("b", "B", "ok", None)


FAULTS: dict[str, tuple[Behaviour, str | None]] = {
    "500": (Behaviour(status=500), "status"),
    "429": (Behaviour(status=429, headers={"retry-after": "1"}), "rate_limit"),
    "reset before the head": (Behaviour(reset_after_events=-1), "reset"),
    "not JSON": (Behaviour(body="hello"), "status"),
    "an error under 200": (Behaviour(body='{"error": {"message": "no"}}'), "status"),
    "our key is refused": (Behaviour(status=401), "status"),
    "it lacks the model": (
        Behaviour(status=404, body='{"error":{"message":"The model `engine-a` does not exist.","type":"NotFoundError","code":404}}'),
        None,
    ),
}


@BOTH_WAYS
@pytest.mark.parametrize("fault", FAULTS)
async def test_whatever_the_model_s_own_fault_is(tmp_path: Path, fault: str, stream: bool) -> None:
    async with house(tmp_path, TWO, models={"A": {"fallbacks": ["B"]}}) as it:
        behaviour, noted = FAULTS[fault]
        it.mocks["a"].script(behaviour)
        answer = await it.ask(stream=stream)
        assert (answer.status_code, answer.headers["x-trilemma-model"]) == (200, "B"), answer.text
        assert it.asked() == {"a": 1, "b": 1}
        receipt = await it.receipt()
        assert receipt.calls[0].fault == noted
        assert receipt.calls[0].outcome in ("backend_error", "caller_error")
        assert (receipt.outcome, told(receipt)[1:]) == ("ok", [("b", "B", "ok", None)])


async def test_a_stream_that_breaks_before_its_first_event_begins_at_the_fallback_and_one_that_has_begun_does_not(tmp_path: Path) -> None:
    async with house(tmp_path, TWO, models={"A": {"fallbacks": ["B"]}}) as it:
        it.mocks["a"].script(Behaviour(reset_after_events=0, cut_wait_s=0.02), Behaviour(reset_after_events=2, cut_wait_s=0.05))
        answer = await it.ask(stream=True)
        assert (answer.headers["x-trilemma-model"], data(answer.content)[-1]) == ("B", b"[DONE]")
        assert b'"error"' not in answer.content
        answer = await it.ask(stream=True)
        assert answer.headers["x-trilemma-model"] == "A"
        assert (answer.content.count(b'"error"'), b"[DONE]" in answer.content) == (1, False)
        assert it.asked() == {"a": 2, "b": 1}


async def test_whom_a_fallback_falls_back_to_is_next(tmp_path: Path) -> None:
    async with house(tmp_path, THREE, models={"A": {"fallbacks": ["B"]}, "B": {"fallbacks": ["C"]}}) as it:
        await it.kill("a", "b")
        answer = await it.ask()
        assert (answer.status_code, answer.headers["x-trilemma-model"], answer.headers["x-trilemma-attempts"]) == (200, "C", "3")
        assert told(await it.receipt()) == [
            ("a", "A", "backend_error", "connect"),
            ("b", "B", "backend_error", "connect"),
            ("c", "C", "ok", None),
        ]


async def test_each_model_is_asked_once_though_two_ways_lead_there(tmp_path: Path) -> None:
    models = {"A": {"fallbacks": ["B", "C"], "attempts": 10}, "B": {"fallbacks": ["C"], "attempts": 10}}
    async with house(tmp_path, THREE, models=models) as it:
        for mock in it.mocks.values():
            mock.script(Behaviour(status=500, times=0))
        answer = await it.ask()
        assert (answer.status_code, answer.headers["x-trilemma-attempts"]) == (500, "3")
        assert it.asked() == {"a": 1, "b": 1, "c": 1}


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/responses", "/v1/messages"])
async def test_text_is_text_by_any_endpoint(tmp_path: Path, path: str) -> None:
    async with house(tmp_path, TWO, models={"A": {"fallbacks": ["B"]}}) as it:
        await it.kill("a")
        it.mocks["b"].script(Behaviour(body='{"id":"x","choices":[]}'))
        answer = await it.client.post(path, json={"model": "A", "prompt": "hi", "input": "hi", "messages": []})
        assert (answer.status_code, answer.headers["x-trilemma-model"]) == (200, "B")


@pytest.mark.parametrize("path", ["/v1/embeddings", "/v1/rerank", "/v1/score"])
async def test_vectors_and_scores_are_never_another_model_s(tmp_path: Path, path: str) -> None:
    async with house(tmp_path, TWO, models={"A": {"fallbacks": ["B"]}}) as it:
        it.mocks["a"].script(Behaviour(status=503, body='{"error":{"message":"A is ill"}}'))
        answer = await it.client.post(path, json={"model": "A", "input": "hi"})
        assert (answer.status_code, answer.json()["error"]["message"], answer.headers["x-trilemma-model"]) == (503, "A is ill", "A")
        await it.kill("a")
        answer = await it.client.post(path, json={"model": "A", "input": "hi"})
        assert (answer.status_code, error_of(answer)["code"]) == (502, "backend_unreachable")
        assert it.asked(path)["b"] == 0


async def test_an_alias_as_a_fallback_is_the_model_behind_it(tmp_path: Path) -> None:
    """B108: the engine hears its own name for the model, whatever the caller and the list called it."""
    async with house(tmp_path, TWO, models={"A": {"aliases": ["first"], "fallbacks": ["second"]}, "B": {"aliases": ["second"]}}) as it:
        await it.kill("a")
        answer = await it.ask(model="first")
        assert (answer.status_code, answer.headers["x-trilemma-model"]) == (200, "B")
        assert json.loads(it.mocks["b"].requests_to(CHAT)[0].body)["model"] == "engine-b"


async def test_a_key_that_may_not_ask_for_the_fallback_is_served_by_it(tmp_path: Path) -> None:
    """Who stands in is the operator's choice, not the caller's."""
    keys = [{"name": "narrow", "sha256": DIGEST, "models": ["A"]}]
    async with house(tmp_path, TWO, models={"A": {"fallbacks": ["B"]}}, keys=keys) as it:
        await it.kill("a")
        assert (await it.ask()).headers["x-trilemma-model"] == "B"
        refused = await it.ask(model="B")
        assert (refused.status_code, error_of(refused)["code"]) == (403, "caller_forbidden_model")


@BOTH_WAYS
async def test_it_costs_what_the_model_that_served_costs(tmp_path: Path, stream: bool) -> None:
    models = {"A": {"fallbacks": ["B"], "price": {"input": 100.0, "output": 100.0}}, "B": {"price": {"input": 1.0, "output": 2.0}}}
    async with house(tmp_path, TWO, models=models) as it:
        await it.kill("a")
        answer = await it.ask(stream=stream, max_tokens=3)
        receipt = await it.receipt()
        assert receipt.usage is not None
        assert receipt.usage.completion == 3
        assert receipt.cost == pytest.approx((receipt.usage.prompt * 1.0 + 3 * 2.0) / 1e6)
        if not stream:
            assert float(answer.headers["x-trilemma-cost"]) == pytest.approx(receipt.cost)


# -- the budget, and what the caller hears


@pytest.mark.parametrize(("attempts", "calls"), [(1, 1), (2, 2), (3, 3), (4, 4), (9, 4)])
async def test_exactly_so_many_calls_as_the_budget_says(tmp_path: Path, attempts: int, calls: int) -> None:
    """B024: two replicas of each model, all ill. Of the budget one is kept for the fallback."""
    engines = {"a1": "A", "a2": "A", "b1": "B", "b2": "B"}
    async with house(tmp_path, engines, models={"A": {"fallbacks": ["B"], "attempts": attempts}, "B": {"attempts": 20}}) as it:
        for name, mock in it.mocks.items():
            mock.script(SAYS_A if engines[name] == "A" else SAYS_B)
        answer = await it.ask()
        assert (answer.status_code, answer.json()) == (500, {"error": {"message": "A is ill"}})
        assert (answer.headers["x-trilemma-attempts"], answer.headers["x-trilemma-model"]) == (str(calls), "A")
        asked = it.asked()
        assert (sum(asked.values()), max(asked.values())) == (calls, 1)
        assert asked["b1"] + asked["b2"] == {1: 0, 2: 1, 3: 1, 4: 2, 9: 2}[attempts]
        receipt = await it.receipt()
        assert (receipt.served_model, receipt.outcome, receipt.status) == ("A", "backend_error", 500)
        assert receipt.backend in ("a1", "a2")


async def test_one_attempt_is_kept_for_each_that_is_left(tmp_path: Path) -> None:
    engines = {"a1": "A", "a2": "A", "a3": "A", "b1": "B", "b2": "B", "c": "C"}
    async with house(tmp_path, engines, models={"A": {"fallbacks": ["B", "C"], "attempts": 4}}) as it:
        for name in ("a1", "a2", "a3", "b1", "b2"):
            it.mocks[name].script(Behaviour(status=500, times=0))
        answer = await it.ask()
        assert (answer.status_code, answer.headers["x-trilemma-model"]) == (200, "C")
        assert [call.model for call in (await it.receipt()).calls] == ["A", "A", "B", "C"]


async def test_the_caller_s_own_fault_is_final(tmp_path: Path) -> None:
    """B041: both would say so; the one that was asked for says it, and the other is never asked."""
    async with house(tmp_path, TWO, models={"A": {"fallbacks": ["B"]}}) as it:
        for status in (400, 404, 413, 422):
            for name, mock in it.mocks.items():
                mock.script(Behaviour(status=status, body=f'{{"error":{{"message":"{name}"}}}}'))
            answer = await it.ask()
            assert (answer.status_code, answer.json()) == (status, {"error": {"message": "a"}})
            assert answer.headers["x-trilemma-attempts"] == "1"
            it.mocks["b"].reset()
        assert it.asked() == {"a": 4, "b": 0}
        assert {receipt.outcome for receipt in it.run.settled} == {"caller_error"}


async def test_what_a_fallback_refuses_another_may_take(tmp_path: Path) -> None:
    """The model that was asked for might have taken it: that one of its fallbacks does not is no word for the caller."""
    async with house(tmp_path, THREE, models={"A": {"fallbacks": ["B", "C"]}}) as it:
        await it.kill("a")
        for status, served in ((200, "C"), (400, "A")):
            it.mocks["b"].script(Behaviour(status=400, body='{"error":{"message":"temperature"}}'))
            it.mocks["c"].script(Behaviour(status=status))
            answer = await it.ask()
            assert answer.headers["x-trilemma-model"] == served
            assert answer.status_code == 200 if served == "C" else answer.json()["error"]["code"].startswith("backend_")


async def test_when_none_can_be_reached_it_is_the_first_one_s_error(tmp_path: Path) -> None:
    async with house(tmp_path, TWO, models={"A": {"fallbacks": ["B"]}}) as it:
        it.mocks["b"].script(SAYS_B)
        await it.kill("a")
        answer = await it.ask()
        assert (answer.status_code, error_of(answer)["code"]) == (502, "backend_unreachable")
        assert (answer.headers["x-trilemma-model"], answer.headers["x-trilemma-attempts"]) == ("A", "2")
        receipt = await it.receipt()
        assert (receipt.served_model, receipt.backend, receipt.outcome) == ("A", "a", "backend_error")
        assert told(receipt) == [("a", "A", "backend_error", "connect"), ("b", "B", "backend_error", "status")]


async def test_without_a_live_replica_no_call_is_made(tmp_path: Path) -> None:
    """B097: a model all of whose replicas are off, or cooling down as they asked to, costs its fallback no attempt."""
    async with house(tmp_path, TWO, models={"A": {"fallbacks": ["B"], "attempts": 2}}) as it:
        it.mocks["a"].script(Behaviour(status=429, headers={"retry-after": "60"}))
        assert (await it.ask()).headers["x-trilemma-attempts"] == "2"
        answer = await it.ask()
        assert (answer.status_code, answer.headers["x-trilemma-model"], answer.headers["x-trilemma-attempts"]) == (200, "B", "1")
        assert it.asked() == {"a": 1, "b": 2}
        it.run.config["backends"]["a"]["enabled"] = False
        assert await it.run.app.reloader.reload()
        assert (await it.ask()).headers["x-trilemma-attempts"] == "1"
        it.run.config["backends"]["b"]["enabled"] = False
        assert await it.run.app.reloader.reload()
        answer = await it.ask()
        assert (answer.status_code, error_of(answer)["code"]) == (503, "backend_unavailable")
        assert (answer.headers["x-trilemma-model"], answer.headers["x-trilemma-attempts"]) == ("A", "0")
        assert "retry-after" in answer.headers
        receipt = await it.receipt(4)
        assert (receipt.calls, receipt.backend, receipt.served_model) == ([], None, "A")


# -- queues


async def test_a_full_queue_is_passed_by(tmp_path: Path) -> None:
    models = {"A": {"fallbacks": ["B"], "queue": {"slots": 1, "room": 0}}, "B": {"queue": {"slots": 1, "room": 0}}}
    async with house(tmp_path, TWO, models=models) as it:
        it.mocks["a"].script(Behaviour(never_answer=True))
        first = asyncio.create_task(it.ask())
        await it.mocks["a"].wait_for(lambda mock: mock.total > 0 and len(mock.requests_to(CHAT)) == 1)
        answer = await it.ask()
        assert (answer.status_code, answer.headers["x-trilemma-model"], answer.headers["x-trilemma-attempts"]) == (200, "B", "1")
        # The fallback's own queue counts: with both full, it is the first one's refusal.
        it.mocks["b"].script(Behaviour(never_answer=True))
        second = asyncio.create_task(it.ask())
        await until(lambda: it.queue("B").running == 1)
        refused = await it.ask()
        assert (refused.status_code, error_of(refused)["code"], refused.headers["x-trilemma-model"]) == (503, "gateway_overloaded", "A")
        assert "retry-after" in refused.headers
        for task in (first, second):
            task.cancel()
        await until(lambda: it.queue("A").running == it.queue("B").running == 0, "all places are free")


async def test_the_place_in_the_queue_of_a_model_that_failed_is_free_while_another_works(tmp_path: Path) -> None:
    models = {"A": {"fallbacks": ["B"], "queue": {"slots": 1, "room": 5}}, "B": {"queue": {"slots": 1, "room": 5}}}
    async with house(tmp_path, TWO, models=models) as it:
        it.mocks["a"].script(Behaviour(status=500))
        it.mocks["b"].script(Behaviour(stall_after_events=2))
        async with it.client.stream("POST", CHAT, json=ASK | {"stream": True}) as answer:
            assert answer.headers["x-trilemma-model"] == "B"
            assert (it.queue("A").running, it.queue("B").running) == (0, 1)
            assert (await it.ask()).headers["x-trilemma-model"] == "A"
            it.mocks["a"].script(Behaviour(status=500))
            waiting = asyncio.create_task(it.ask())
            await until(lambda: it.queue("B").waiting == 1, "it waits for the fallback")
            assert (it.queue("A").running, it.asked()["b"]) == (0, 1)
        assert (await waiting).headers["x-trilemma-model"] == "B"
        await until(lambda: it.queue("B").running == 0)


async def test_a_client_that_leaves_a_fallback_leaves_nothing(tmp_path: Path) -> None:
    async with house(tmp_path, TWO, models={"A": {"fallbacks": ["B"]}, "B": {"queue": {"slots": 1}}}) as it:
        await it.kill("a")
        it.mocks["b"].script(Behaviour(never_answer=True))
        task = asyncio.create_task(it.ask())
        await it.mocks["b"].wait_for(lambda mock: len(mock.requests_to(CHAT)) == 1)
        task.cancel()
        await it.mocks["b"].wait_for(lambda mock: mock.aborted == 1)
        receipt = await it.receipt()
        assert (receipt.outcome, receipt.backend, receipt.served_model) == ("client_closed", "b", "B")
        assert told(receipt)[-1] == ("b", "B", "cancelled", None)
        assert (it.run.in_flight(), it.queue("B").running) == (0, 0)


# -- virtual models


async def test_behind_a_virtual_model_the_other_plans_stand_in(tmp_path: Path) -> None:
    """B097: first the model's own fallbacks, then the baseline, then the other plans."""
    sections: dict[str, Any] = {
        "models": {"A": {"fallbacks": ["D"], "attempts": 9}},
        "policies": {"first": {"type": "fixed", "params": {"plan": "one"}}},
        "virtual_models": {
            "auto": {
                "policy": "first",
                "plans": {"one": {"model": "A"}, "two": {"model": "B"}, "three": {"model": "see"}},
                "baseline": "three",
            }
        },
    }
    sections["models"]["C"] = {"aliases": ["see"]}
    async with house(tmp_path, THREE | {"d": "D"}, **sections) as it:
        for served, next_to_die in zip("ADCB", "adcb", strict=True):
            answer = await it.ask(model="auto")
            assert (answer.status_code, answer.headers["x-trilemma-model"]) == (200, served)
            assert answer.headers["x-trilemma-policy"] == "first"
            assert it.run.settled[-1].propensity == 1.0
            it.mocks[next_to_die].script(Behaviour(status=429, headers={"retry-after": "60"}, times=0))
        answer = await it.ask(model="auto")  # the one that seemed to be well says that it is not, and nobody else is
        assert (answer.status_code, answer.headers["x-trilemma-model"]) == (429, "B")
        answer = await it.ask(model="auto")
        assert (answer.status_code, answer.headers["x-trilemma-model"]) == (503, "A")


async def test_all_requests_are_served_while_one_plan_s_backend_is_down(tmp_path: Path) -> None:
    sections: dict[str, Any] = {
        "policies": {"split": {"type": "weighted", "params": {"weights": {"small": 1, "large": 1}}}},
        "virtual_models": {"auto": {"policy": "split", "plans": {"small": {"model": "A"}, "large": {"model": "B"}}}},
    }
    async with house(tmp_path, TWO, **sections) as it:
        await it.kill("b")
        answers = [await it.ask(model="auto", max_tokens=1) for _ in range(50)]
        assert {answer.status_code for answer in answers} == {200}
        assert {answer.headers["x-trilemma-model"] for answer in answers} == {"A"}


# -- too long a prompt

OVERFLOWS = {
    "vllm": (
        '{"error":{"message":"This model\'s maximum context length is 100 tokens. However, your prompt contains at least 101 input tokens, '
        "which exceeds this limit even without any output tokens. Please reduce the length of the input prompt. (parameter=input_tokens, "
        'value=101)","type":"BadRequestError","param":"input_tokens","code":400}}'
    ),
    "openai": (
        '{"object":"error","message":"The input (5012 tokens) is longer than the model\'s context length (100 tokens).",'
        '"type":"BadRequestError","param":null,"code":400}'
    ),
    "llama.cpp": (
        '{"error":{"code":400,"message":"request (5012 tokens) exceeds the available context size (100 tokens), try increasing it",'
        '"type":"exceed_context_size_error","n_prompt_tokens":5012,"n_ctx":100}}'
    ),
}
SIZES = {"A": {"context": 100, "fallbacks": ["B", "C"]}, "B": {"context": 100}, "C": {"context": 1_000}}


@BOTH_WAYS
@pytest.mark.parametrize("engine", OVERFLOWS)
async def test_too_long_a_prompt_goes_to_the_first_that_holds_more(tmp_path: Path, engine: str, stream: bool) -> None:
    """B052, B117: the engine that said so is not held to be ill for it."""
    async with house(tmp_path, THREE, kinds={"a": engine}, models=SIZES) as it:
        breaker = it.run.gateway.state.backends["a"].breaker
        for number in range(1, 6):
            it.mocks["a"].script(Behaviour(status=400, body=OVERFLOWS[engine]))
            answer = await it.ask(stream=stream)
            assert (answer.status_code, answer.headers["x-trilemma-model"], answer.headers["x-trilemma-attempts"]) == (200, "C", "2")
            if stream:
                assert data(answer.content)[-1] == b"[DONE]"
            receipt = await it.receipt(number)
            assert (receipt.outcome, told(receipt)) == ("ok", [("a", "A", "caller_error", None), ("c", "C", "ok", None)])
            assert receipt.calls[0].status == 400
        assert breaker.state == "closed"
        answer = await it.ask(stream=stream)
        assert (answer.status_code, answer.headers["x-trilemma-model"], answer.headers["x-trilemma-attempts"]) == (200, "A", "1")
        assert it.asked() == {"a": 6, "b": 0, "c": 5}


async def test_what_holds_more_is_known_from_the_engines(tmp_path: Path) -> None:
    """None is configured: the engines say how much they hold, and really refuse what is longer."""
    windows = {"a": 64, "b": 32, "c": 1_024}
    async with house(tmp_path, THREE, windows, models={"A": {"fallbacks": ["B", "C"]}}) as it:
        answer = await it.client.post(CHAT, json=LONG)
        assert (answer.status_code, answer.headers["x-trilemma-model"]) == (200, "C")
        assert it.asked() == {"a": 1, "b": 0, "c": 1}
        assert (await it.ask(max_tokens=4)).headers["x-trilemma-model"] == "A"


async def test_a_longer_answer_than_fits_counts_as_too_long(tmp_path: Path) -> None:
    async with house(tmp_path, TWO, {"a": 64, "b": 1_024}, models={"A": {"fallbacks": ["B"]}}) as it:
        answer = await it.ask(max_tokens=100)
        assert (answer.status_code, answer.headers["x-trilemma-model"]) == (200, "B")


async def test_only_once(tmp_path: Path) -> None:
    """The larger one overflows too: what the one that was asked for said is the answer, and the largest is not asked."""
    models = {"A": {"context": 100, "fallbacks": ["B", "C"], "attempts": 9}, "B": {"context": 200}, "C": {"context": 1_000}}
    async with house(tmp_path, THREE, models=models) as it:
        it.mocks["a"].script(Behaviour(status=400, body=OVERFLOWS["vllm"]))
        it.mocks["b"].script(Behaviour(status=400, body=OVERFLOWS["vllm"].replace("100", "200")))
        answer = await it.ask()
        assert (answer.status_code, answer.text) == (400, OVERFLOWS["vllm"])
        assert (answer.headers["x-trilemma-model"], answer.headers["x-trilemma-attempts"]) == ("A", "2")
        assert it.asked() == {"a": 1, "b": 1, "c": 0}
        receipt = await it.receipt()
        assert (receipt.outcome, receipt.served_model, receipt.backend) == ("caller_error", "A", "a")


async def test_when_the_larger_one_is_ill_the_engine_s_own_error_is_told(tmp_path: Path) -> None:
    async with house(tmp_path, THREE, models=SIZES) as it:
        it.mocks["a"].script(Behaviour(status=400, body=OVERFLOWS["vllm"]))
        it.mocks["c"].script(Behaviour(status=500, times=0))
        answer = await it.ask()
        assert (answer.status_code, answer.text, answer.headers["x-trilemma-model"]) == (400, OVERFLOWS["vllm"], "A")
        assert it.asked() == {"a": 1, "b": 0, "c": 1}


@pytest.mark.parametrize(
    "models",
    [
        {"A": {"context": 100}},
        {"A": {"context": 100, "fallbacks": ["B"]}, "B": {"context": 100}},
        {"A": {"context": 100, "fallbacks": ["B"], "attempts": 1}, "B": {"context": 1_000}},
    ],
    ids=["no fallback", "none that holds more", "no attempt left"],
)
async def test_without_a_larger_one_the_engine_s_own_error_is_told(tmp_path: Path, models: dict[str, Any]) -> None:
    async with house(tmp_path, TWO, models=models) as it:
        it.mocks["a"].script(Behaviour(status=400, body=OVERFLOWS["vllm"], times=0))
        answer = await it.ask()
        assert (answer.status_code, answer.text, answer.headers["x-trilemma-attempts"]) == (400, OVERFLOWS["vllm"], "1")
        assert it.asked() == {"a": 1, "b": 0}


async def test_a_model_of_which_nothing_is_known_is_not_held_to_be_larger(tmp_path: Path) -> None:
    """`openai` engines need not say how much they hold; this one does not."""
    async with house(tmp_path, TWO, kinds={"b": "openai"}, models={"A": {"context": 100, "fallbacks": ["B"]}}) as it:
        card = it.run.gateway.state.backends["b"]
        card.cards.clear()
        it.mocks["a"].script(Behaviour(status=400, body=OVERFLOWS["vllm"]))
        assert ((await it.ask()).status_code, it.asked()["b"]) == (400, 0)


async def test_an_overflow_has_the_code_that_clients_look_for(tmp_path: Path) -> None:
    async with house(tmp_path, {"a": "A"}) as it:
        it.mocks["a"].script(Behaviour(status=400, body=OVERFLOWS["vllm"].replace(',"code":400', "")))
        answer = await it.ask()
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "context_length_exceeded")
        assert "maximum context length" in answer.json()["error"]["message"]


# -- patience

SOON = Behaviour(status=429, headers={"retry-after-ms": "50"})


async def test_retry_after_is_waited_for_only_where_nothing_stands_in(tmp_path: Path) -> None:
    async with house(tmp_path, TWO, models={"A": {"fallbacks": ["B"]}}) as it:
        it.mocks["a"].script(SOON)
        answer = await it.ask()
        assert (answer.status_code, answer.headers["x-trilemma-model"], it.asked()["a"]) == (200, "B", 1)
        await until(lambda: not it.run.gateway.state.backends["a"].breaker.asked)
        it.mocks["a"].script(SOON)
        vectors = await it.client.post("/v1/embeddings", json={"model": "A", "input": "hi"})
        assert (vectors.status_code, vectors.headers["x-trilemma-attempts"]) == (200, "2")
        assert it.asked("/v1/embeddings") == {"a": 2, "b": 0}


async def test_the_last_that_stands_in_is_waited_for(tmp_path: Path) -> None:
    async with house(tmp_path, TWO, models={"A": {"fallbacks": ["B"]}}) as it:
        it.mocks["a"].script(SOON)
        it.mocks["b"].script(SOON)
        answer = await it.ask()
        assert (answer.status_code, answer.headers["x-trilemma-model"], answer.headers["x-trilemma-attempts"]) == (200, "B", "3")
        assert it.asked() == {"a": 1, "b": 2}


async def test_when_the_last_asks_for_no_patience_the_first_one_s_word_goes_on(tmp_path: Path) -> None:
    """Its Retry-After too: the caller may be more patient."""
    async with house(tmp_path, TWO, models={"A": {"fallbacks": ["B"], "attempts": 9}}) as it:
        it.mocks["a"].script(Behaviour(status=429, headers={"retry-after": "1"}, times=0))
        it.mocks["b"].script(SAYS_B)
        answer = await it.ask()
        assert (answer.status_code, answer.headers["retry-after"], answer.headers["x-trilemma-model"]) == (429, "1", "A")
        assert it.asked() == {"a": 1, "b": 1}
