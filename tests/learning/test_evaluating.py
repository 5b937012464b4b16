"""What a policy would have been worth is told with the labels that policies learn, as the configuration has them calibrated."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gateway.learning.logged import Asked, recorded
from gateway.learning.statistics import curve
from gateway.mock import MockBackend
from gateway.store.history import Stretch
from gateway.store.writer import Item
from tests.store.making import fill, item
from tests.support.asking import CHAT, question
from tests.support.keeping import ID, keeping, mock
from tests.support.running import running
from tests.support.stored import Place
from tests.support.waiting import until

__all__ = ["mock"]

PLANS = {"cheap": {"model": "other"}, "dear": {"model": "mock-model"}}
POLICIES = {
    "learn": {"type": "thompson", "floor": 0.5, "seed": 3},
    "best": {"type": "fixed", "params": {"plan": "dear"}},
    "worst": {"type": "fixed", "params": {"plan": "cheap"}},
}


def checked(id_: str, value: float) -> Item:
    """What the answers' form told."""
    return item("outcomes", decision_id=id_, metric="quality", source="schema", value=value, labelling_probability=1.0, created=0.0)


async def test_a_policy_is_worth_what_was_learnt_of_its_plan(mock: MockBackend, place: Place, tmp_path: Path) -> None:
    """Answers of the dear plan fit the schema, which is worth 0.6 here, those of the cheap one do not, which is worth 0.25."""
    learning = {"every_s": 0.02, "calibration": {"schema": {"at_0": 0.25, "at_1": 0.6}}}
    models = {"auto": {"policy": "learn", "plans": PLANS, "baseline": "dear"}}
    config = keeping(mock, place.url, policies=POLICIES, virtual_models=models, learning=learning)
    async with running(config, tmp_path) as run, run.client("sk-shop") as shop, run.client("sk-ops") as ops:
        answers = await asyncio.gather(*(shop.post(CHAT, json=question(model="auto")) for _ in range(60)))
        dear = {each.headers[ID]: each.headers["x-trilemma-model"] == "mock-model" for each in answers}
        await until(lambda: len(place.rows("decisions")) == 60, "the decisions are kept", 20)
        await asyncio.to_thread(fill, place, *(checked(id_, float(fits)) for id_, fits in dear.items()))
        learner = run.app.learner
        assert learner is not None
        await until(lambda: learner.folded >= 60, "the outcomes are learnt", 20)
        worth = {}
        for policy in ("best", "worst"):
            answer = await ops.post(f"/admin/policies/{policy}/evaluate", json={"virtual_model": "auto"})
            assert answer.status_code == 200, answer.text
            worth[policy] = {each["method"]: each["value"] for each in answer.json()["report"]["quality"]["target"]}["snips"]
        record = await recorded(learner.read, Asked(Stretch("auto")), learner.calibrations)
    assert worth == {"best": pytest.approx(0.6), "worst": pytest.approx(0.25)}
    learnt = {row["decision_id"]: row["quality"] for row in place.rows("learned")}
    assert learnt == {id_: pytest.approx(0.6 if fits else 0.25) for id_, fits in dear.items()}
    assert {id_: label.quality for id_, label in record.labels.items()} == learnt
    [stretch] = curve(record, 1)
    assert {plan: each["quality"] for plan, each in stretch["plans"].items()} == {"dear": pytest.approx(0.6), "cheap": pytest.approx(0.25)}
