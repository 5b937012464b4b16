"""Virtual models, and what a caller may ask of the gateway itself."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from gateway.mock import Behaviour, MockBackend
from tests.support.asking import CHAT, error_of, question
from tests.support.running import Running, config_for, running

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module")
async def split(mock: MockBackend, tmp_path: Path) -> AsyncIterator[tuple[Running, httpx.AsyncClient]]:
    """`auto` draws 3 : 1 between two models; `pinned` always takes its second plan; `hurried` has an operator's deadline."""
    names = {"small": "mock-model", "large": "mock-model", "spare": "mock-model"}
    plans = {"cheap": {"model": "small"}, "dear": {"model": "wide"}}
    config = config_for(
        {"mock": {"url": mock.url, "engine": "vllm", "models": names}},
        models={"large": {"aliases": ["wide"]}},
        policies={
            "split": {"type": "weighted", "params": {"weights": {"cheap": 3, "dear": 1}}, "seed": 7},
            "second": {"type": "fixed", "params": {"plan": "dear"}},
            "explore": {"type": "fixed", "params": {"plan": "dear"}, "floor": 0.5},
            "elsewhere": {"type": "fixed", "params": {"plan": "not-here"}},
        },
        virtual_models={
            "auto": {"policy": "split", "plans": plans},
            "pinned": {"policy": "second", "plans": plans},
            "first": {"policy": "fixed", "plans": {"cheap": plans["cheap"]}},
            "exploring": {"policy": "explore", "plans": plans},
            "hurried": {"policy": "second", "plans": plans, "caps": {"deadline_ms": 300}},
        },
    )
    async with running(config, tmp_path) as run, run.client() as client:
        yield run, client


async def test_a_fixed_policy_always_takes_its_plan(split: tuple[Running, httpx.AsyncClient]) -> None:
    run, client = split
    for name, model, policy in (("pinned", "large", "second"), ("first", "small", "fixed")):
        answer = await client.post(CHAT, json=question(model=name))
        assert answer.headers["x-trilemma-policy"] == policy
        assert answer.headers["x-trilemma-strategy"] == "single"
        assert answer.headers["x-trilemma-model"] == model
        assert run.settled[-1].propensity == 1.0
        assert (run.settled[-1].requested_model, run.settled[-1].served_model) == (name, model)


async def test_a_weighted_policy_splits_and_says_how_likely_it_was(split: tuple[Running, httpx.AsyncClient]) -> None:
    run, client = split
    served = Counter[str]()
    for _ in range(100):
        answer = await client.post(CHAT, json=question(model="auto", max_tokens=1))
        served[answer.headers["x-trilemma-model"]] += 1
        assert run.settled[-1].propensity == pytest.approx(0.75 if answer.headers["x-trilemma-model"] == "small" else 0.25)
    # Binomial(100, 0.75): outside of 55..92 once in 100,000 runs.
    assert 55 <= served["small"] <= 92
    assert served["small"] + served["large"] == 100


async def test_the_exploration_floor_is_in_the_propensity(split: tuple[Running, httpx.AsyncClient]) -> None:
    """Half the requests are drawn evenly over both plans: 0.5 + 0.25 for the one, 0.25 for the other."""
    run, client = split
    for _ in range(8):
        answer = await client.post(CHAT, json=question(model="exploring", max_tokens=1))
        assert run.settled[-1].propensity == pytest.approx(0.75 if answer.headers["x-trilemma-model"] == "large" else 0.25)


async def test_a_caller_may_name_another_policy(split: tuple[Running, httpx.AsyncClient]) -> None:
    _, client = split
    answer = await client.post(CHAT, json=question(model="auto", trilemma={"policy": "second"}))
    assert (answer.headers["x-trilemma-policy"], answer.headers["x-trilemma-model"]) == ("second", "large")
    for policy in ("nobody", "elsewhere"):
        answer = await client.post(CHAT, json=question(model="auto", trilemma={"policy": policy}))
        assert (answer.status_code, error_of(answer)["param"]) == (400, "trilemma.policy")
    answer = await client.post(CHAT, json=question(model="small", trilemma={"policy": "second"}))
    assert (answer.status_code, error_of(answer)["param"]) == (400, "trilemma.policy")


async def test_a_relayed_request_has_no_policy(mock: MockBackend, client: httpx.AsyncClient) -> None:
    answer = await client.post(CHAT, json=question())
    assert (answer.headers["x-trilemma-policy"], answer.headers["x-trilemma-strategy"]) == ("none", "single")


# -- the object `trilemma` and its headers


@pytest.mark.parametrize(
    ("asked", "param", "code"),
    [
        ({"zz": 1}, "trilemma.zz", "caller_unknown_parameter"),
        ({"Strategy": "single"}, "trilemma.Strategy", "caller_unknown_parameter"),
        ({"deadline_ms": "100"}, "trilemma.deadline_ms", "caller_invalid_value"),
        ({"deadline_ms": 0}, "trilemma.deadline_ms", "caller_invalid_value"),
        ({"deadline_ms": 1.5}, "trilemma.deadline_ms", "caller_invalid_value"),
        ({"deadline_ms": 10**30}, "trilemma.deadline_ms", "caller_invalid_value"),
        ({"strategy": "magic"}, "trilemma.strategy", "caller_invalid_value"),
        ({"tags": {"a": 1}}, "trilemma.tags", "caller_invalid_value"),
        ({"tags": {str(k): "v" for k in range(17)}}, "trilemma.tags", "caller_invalid_value"),
        ("fast", "trilemma", "caller_invalid_value"),
        ([], "trilemma", "caller_invalid_value"),
        (True, "trilemma", "caller_invalid_value"),
    ],
)
async def test_what_the_object_may_not_hold(mock: MockBackend, client: httpx.AsyncClient, asked: Any, param: str, code: str) -> None:
    answer = await client.post(CHAT, json=question(trilemma=asked))
    error = error_of(answer)
    assert (answer.status_code, error["code"], error["type"]) == (400, code, "invalid_request_error")
    assert error["param"].startswith(param)
    assert mock.requests == []


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("x-trilemma-zz", "1", "caller_unknown_parameter"),
        ("x-trilemma-deadline-ms", "soon", "caller_invalid_value"),
        ("x-trilemma-deadline-ms", "-5", "caller_invalid_value"),
        ("x-trilemma-deadline-ms", "1e3", "caller_invalid_value"),
        ("x-trilemma-deadline-ms", "", "caller_invalid_value"),
        ("x-trilemma-strategy", "magic", "caller_invalid_value"),
    ],
)
async def test_what_the_headers_may_not_say(mock: MockBackend, client: httpx.AsyncClient, name: str, value: str, code: str) -> None:
    answer = await client.post(CHAT, json=question(), headers={name: value})
    assert (answer.status_code, error_of(answer)["code"]) == (400, code)
    assert mock.requests == []


async def test_what_they_may_say(mock: MockBackend, client: httpx.AsyncClient) -> None:
    asked = {"strategy": "single", "deadline_ms": 60_000, "session_id": "s-1", "tags": {"team": "a"}, "policy": None}
    answer = await client.post(
        CHAT, json=question(trilemma=asked), headers={"x-trilemma-session-id": "s-2", "X-Trilemma-Strategy": "single"}
    )
    assert answer.status_code == 200
    assert set(json.loads(mock.requests[-1].body)) == {"model", "messages"}


# -- deadlines


@pytest.mark.parametrize(
    ("headers", "extra"),
    [
        ({}, {"trilemma": {"deadline_ms": 150}}),
        ({"x-trilemma-deadline-ms": "150"}, {}),
        ({"x-trilemma-deadline-ms": "150"}, {"trilemma": {"deadline_ms": 60_000}}),
        ({"x-stainless-read-timeout": "0.15"}, {}),
    ],
    ids=["body", "header", "header over body", "the client library's own time-out"],
)
async def test_a_deadline_passes(
    mock: MockBackend, client: httpx.AsyncClient, gateway: Running, headers: dict[str, str], extra: dict[str, Any]
) -> None:
    """504, not to be repeated, and the backend is let go."""
    mock.script(Behaviour(never_answer=True))
    answer = await client.post(CHAT, json=question(**extra), headers=headers)
    assert (answer.status_code, error_of(answer)["code"]) == (504, "gateway_deadline")
    assert answer.headers["x-should-retry"] == "false"
    await mock.wait_for(lambda m: m.aborted == 1)
    assert gateway.settled[0].outcome == "gateway_error"


async def test_a_deadline_passes_in_a_stream(mock: MockBackend, client: httpx.AsyncClient, gateway: Running) -> None:
    mock.script(Behaviour(stall_after_events=2))
    answer = await client.post(CHAT, json=question(stream=True), headers={"x-trilemma-deadline-ms": "150"})
    assert answer.status_code == 200
    last = answer.text.rstrip().split("\n\n")[-1]
    assert json.loads(last.removeprefix("data: "))["error"]["code"] == "gateway_deadline"
    assert "[DONE]" not in answer.text
    await mock.wait_for(lambda m: m.aborted == 1)


async def test_the_client_s_read_time_out_bounds_the_silence_of_a_stream_not_its_length(
    mock: MockBackend, client: httpx.AsyncClient
) -> None:
    headers = {"x-stainless-read-timeout": "0.2"}
    mock.script(Behaviour(tokens=("a",) * 8, tokens_per_second=20))
    whole = await client.post(CHAT, json=question(stream=True), headers=headers)
    assert whole.text.endswith("data: [DONE]\n\n")

    mock.script(Behaviour(stall_after_events=2))
    silent = await client.post(CHAT, json=question(stream=True), headers=headers)
    assert '"code":"backend_timeout"' in silent.text

    mock.script(Behaviour(never_answer=True))
    nothing = await client.post(CHAT, json=question(stream=True), headers=headers)
    assert (nothing.status_code, nothing.headers["x-should-retry"]) == (504, "false")


async def test_callers_in_a_hurry_do_not_take_a_backend_from_the_others(
    mock: MockBackend, client: httpx.AsyncClient, gateway: Running
) -> None:
    """Three time-outs in a row are what a backend is left alone for, if they are its own."""
    headers = {"x-stainless-read-timeout": "0.05"}
    for behaviour, status in (
        (Behaviour(never_answer=True), 504),
        (Behaviour(stall_after_events=0), 504),
        (Behaviour(stall_after_events=2), 200),
    ):
        mock.script(*[behaviour] * 3)
        for _ in range(3):
            assert (await client.post(CHAT, json=question(stream=True), headers=headers)).status_code == status
        assert gateway.gateway.state.backends["mock"].breaker.state == "closed"
    assert {(call.outcome, call.fault) for receipt in gateway.settled for call in receipt.calls} == {("backend_error", None)}


@pytest.mark.parametrize("value", ["", "soon", "-1", "0", "nan", "inf", "1e3", "0x10"])
async def test_an_odd_read_time_out_is_none(mock: MockBackend, client: httpx.AsyncClient, value: str) -> None:
    mock.script(Behaviour(delay_headers_s=0.05))
    assert (await client.post(CHAT, json=question(), headers={"x-stainless-read-timeout": value})).status_code == 200


async def test_the_operator_s_deadline_wins(mock: MockBackend, split: tuple[Running, httpx.AsyncClient]) -> None:
    """A longer wish is clipped, and the answer says so; a shorter one is kept; without a wish the cap holds in silence."""
    _, client = split
    for wished, clipped in (({"deadline_ms": 60_000}, "deadline_ms"), ({"deadline_ms": 100}, None), (None, None)):
        mock.script(Behaviour(never_answer=True))
        answer = await client.post(CHAT, json=question(model="hurried", trilemma=wished))
        assert (answer.status_code, error_of(answer)["code"]) == (504, "gateway_deadline")
        assert answer.headers.get("x-trilemma-clipped") == clipped
    good = await client.post(CHAT, json=question(model="hurried", trilemma={"deadline_ms": 60_000}))
    assert (good.status_code, good.headers["x-trilemma-clipped"]) == (200, "deadline_ms")
