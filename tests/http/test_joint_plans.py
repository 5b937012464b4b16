"""Plans of a model, a strategy and a number of answers, over real sockets: what is said of some is known of others."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.mock import MockBackend
from tests.support.asking import CHAT, question
from tests.support.databases import database, migrated
from tests.support.keeping import ID, keeping, mock
from tests.support.running import Running, running
from tests.support.waiting import until

__all__ = ["database", "migrated", "mock"]

PLANS = {
    f"{name}-{n}": {"model": model, **({} if n == 1 else {"strategy": f"short-{n}"})}
    for name, model in (("small", "mock-model"), ("large", "other"))
    for n in (1, 4, 8)
}
KIND = "best_of_n/shortest"


@pytest.fixture
async def gateway(mock: MockBackend, database: Path, tmp_path: Path) -> AsyncIterator[Running]:
    config = keeping(
        mock,
        f"sqlite:///{database}",
        policies={"learn": {"type": "thompson", "floor": 0.95, "seed": 1, "params": {"drift": {"threshold": 0}}}},
        strategies={f"short-{n}": {"type": "best_of_n", "params": {"n": n, "select": "shortest"}} for n in (4, 8)},
        virtual_models={"auto": {"policy": "learn", "plans": PLANS}},
        learning={"every_s": 0.02},
    )
    async with running(config, tmp_path) as run:
        yield run


async def estimates(client: httpx.AsyncClient) -> dict[str, float]:
    """The quality that is expected of each plan."""
    found = (await client.post("/v1/route", json=question(model="auto"))).json()
    return {each["plan"]: each["estimate"]["quality"] for each in found["candidates"]}


async def test_what_is_said_of_four_answers_is_known_of_eight_and_of_the_other_model(gateway: Running) -> None:
    """The caller picks the strategy; one answer of either model is right in 1 of 4, four answers of the small one nearly always."""
    learner = gateway.app.learner
    assert learner is not None
    async with gateway.client("sk-shop") as shop, gateway.client("sk-ops") as ops:
        before = await estimates(shop)
        judged = 0
        counts: dict[str, int] = {}
        while min(counts.get(name, 0) for name in ("small-1", "large-1", "small-4")) < 20:
            strategy = "single" if judged % 3 else "short-4"
            answer = await shop.post(CHAT, json=question(model="auto", trilemma={"strategy": strategy}))
            model = "small" if answer.headers["x-trilemma-model"] == "mock-model" else "large"
            plan = f"{model}-{1 if strategy == 'single' else 4}"
            judged += 1
            if plan == "large-4":
                continue  # nobody says anything of it
            counts[plan] = counts.get(plan, 0) + 1
            value = float(plan == "small-4" or counts[plan] % 4 == 0)
            said = {"decision_id": answer.headers[ID], "metric": "quality", "value": value}
            assert (await shop.post("/v1/feedback", json=said)).status_code == 202
        await until(lambda: learner.folded >= sum(counts.values()), "the outcomes are learnt", 20)
        after = await estimates(shop)
        known: dict[str, Any] = (await ops.get("/admin/policies/learn")).json()["statistics"]["auto"]

    assert known["strategies"][KIND]["efficiency"] > 0.4  # 0.3 was expected
    assert known["strategies"][KIND]["low"] < known["strategies"][KIND]["efficiency"] < known["strategies"][KIND]["high"]
    gains = {name: {n: found[f"{name}-{n}"] - found[f"{name}-1"] for n in (4, 8)} for name in ("small", "large") for found in (after,)}
    assert gains["small"][8] > gains["small"][4] > 0.2
    assert gains["large"][8] > gains["large"][4] > 0.15
    assert known["plans"]["large-8"]["pulls"] == known["plans"]["small-8"]["pulls"] == known["plans"]["large-4"]["pulls"] == 0
    assert gains["large"][8] > before["large-8"] - before["large-1"]
