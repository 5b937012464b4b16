"""Learning as an operator sees it: requests and feedback over HTTP go in, and the choice changes."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.mock import MockBackend
from tests.support.asking import CHAT, question
from tests.support.keeping import ID, keeping
from tests.support.running import Running, running
from tests.support.waiting import until

pytestmark = pytest.mark.usefixtures("decisions")

_BATCH = 20
PLANS = {"cheap": {"model": "other"}, "dear": {"model": "mock-model"}}
MODELS = {
    "mock-model": {"price": {"input": 10.0, "output": 40.0}},
    "other": {"price": {"input": 1.0, "output": 4.0}},
}


def learning(mock: MockBackend, folder: Path, policy: dict[str, Any], **virtual: Any) -> dict[str, Any]:
    """`auto` learns which of a dear and a cheap plan to use."""
    return keeping(
        mock,
        f"sqlite:///{folder / 'decisions.db'}",
        models=MODELS,
        policies={"learn": {"seed": 3, **policy}},
        virtual_models={"auto": {"policy": "learn", "plans": PLANS, "baseline": "dear", **virtual}},
        learning={"every_s": 0.02},
    )


@pytest.fixture
async def mock() -> AsyncIterator[MockBackend]:
    """The engine behind both plans."""
    async with MockBackend(["mock-model"]) as backend:
        yield backend


async def taught(run: Running, client: httpx.AsyncClient, requests: int, quality: Callable[[str, int], float] | None) -> list[str]:
    """The plans that served; each answer is judged, if it is, before the next batch is asked."""
    served: list[str] = []
    for start in range(0, requests, _BATCH):
        answers = await asyncio.gather(*(client.post(CHAT, json=question(model="auto")) for _ in range(_BATCH)))
        ids = [answer.headers[ID] for answer in answers]
        plans = ["cheap" if answer.headers["x-trilemma-model"] == "other" else "dear" for answer in answers]
        served += plans
        if quality is None:
            continue
        for number, (id_, plan) in enumerate(zip(ids, plans, strict=True), start):
            said = {"decision_id": id_, "metric": "quality", "value": quality(plan, number)}
            assert (await client.post("/v1/feedback", json=said)).status_code == 202
        await folded(run, start + _BATCH)
    return served


async def folded(run: Running, count: int, within_s: float = 20.0) -> None:
    """Waits until so many outcomes are part of what the policy knows."""
    learner = run.app.learner
    assert learner is not None
    await until(lambda: learner.folded >= count, within_s=within_s)


@pytest.mark.parametrize("kind", ["thompson", "linucb"])
async def test_at_equal_quality_the_cheap_plan_wins(mock: MockBackend, tmp_path: Path, kind: str) -> None:
    async with running(learning(mock, tmp_path, {"type": kind, "floor": 0.02}), tmp_path) as run, run.client("sk-shop") as client:
        answers: Counter[str] = Counter()

        def four_of_five(plan: str, _number: int) -> float:
            answers[plan] += 1
            return float(answers[plan] % 5 != 0)

        served = await taught(run, client, 500, four_of_five)

    # A look of LinUCB at the other plan takes a whole batch, which knows no more than its first request: ten have room for one.
    assert Counter(served[-200:])["cheap"] > 160


@pytest.mark.parametrize("kind", ["thompson", "linucb"])
async def test_a_better_plan_wins_though_it_is_dear(mock: MockBackend, tmp_path: Path, kind: str) -> None:
    async with running(learning(mock, tmp_path, {"type": kind, "floor": 0.02}), tmp_path) as run, run.client("sk-shop") as client:
        served = await taught(run, client, 200, lambda plan, _number: float(plan == "dear"))

    assert Counter(served[-100:])["dear"] > 80


async def test_without_feedback_nothing_is_learnt(mock: MockBackend, tmp_path: Path) -> None:
    """Thompson sampling goes on as it began: near the prior, and neither plan is given up."""
    async with running(learning(mock, tmp_path, {"type": "thompson", "floor": 0.0}), tmp_path) as run, run.client("sk-shop") as client:
        served = await taught(run, client, 200, None)
        assert run.gateway.deciding.snapshots["auto/learn"].version == 0

    assert 20 < Counter(served)["cheap"] < 180


async def test_a_restart_resumes_what_was_learnt(mock: MockBackend, tmp_path: Path) -> None:
    config = learning(mock, tmp_path, {"type": "thompson", "floor": 0.02})
    async with running(config, tmp_path) as run, run.client("sk-shop") as client:
        await taught(run, client, 60, lambda plan, _number: float(plan == "dear"))
        before = run.gateway.deciding.snapshots["auto/learn"]
    async with running(config, tmp_path) as run:
        await until(lambda: run.gateway.deciding.snapshots["auto/learn"].version > 0)
        after = run.gateway.deciding.snapshots["auto/learn"]

    assert after.version == before.version
    assert after.state.posterior.mean.tobytes() == before.state.posterior.mean.tobytes()
    assert after.state.sums.gram.tobytes() == before.state.sums.gram.tobytes()


async def test_a_receipt_tells_why(mock: MockBackend, tmp_path: Path) -> None:
    async with running(learning(mock, tmp_path, {"type": "thompson", "floor": 0.1}), tmp_path) as run, run.client("sk-shop") as client:
        await taught(run, client, 40, lambda plan, _number: float(plan == "dear"))
        answer = await client.post(CHAT, json=question(model="auto"))
        found = (await client.get(f"/v1/decisions/{answer.headers[ID]}")).json()

    assert int(found["snapshot"]) >= 2
    assert {each["plan"] for each in found["candidates"]} == {"cheap", "dear"}
    assert sum(each["propensity"] for each in found["candidates"]) == pytest.approx(1)
    estimates = {each["plan"]: each["estimate"] for each in found["candidates"]}
    assert estimates["dear"]["quality"] > 0.6 > 0.4 > estimates["cheap"]["quality"]
    assert estimates["dear"]["cost"] > 5 * estimates["cheap"]["cost"]  # ten times as dear, for answers of about the same length
    for each in estimates.values():
        assert 0 <= each["quality_low"] <= each["quality"] <= each["quality_high"] <= 1
        assert each["score"] == pytest.approx(
            each["quality"] - found["prices"]["cost"] * each["cost"] - found["prices"]["latency"] * each["latency_s"], abs=1e-9
        )
    assert found["runner_up_price"] > found["prices"]["cost"]
