"""`trilemma explain`: what was decided while a gateway learnt is made again from the database, to the bit."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway import cli
from gateway.mock import MockBackend
from tests.support.asking import CHAT, question
from tests.support.keeping import ID, keeping
from tests.support.running import Running, running
from tests.support.stored import Place
from tests.support.waiting import until

PLANS = {"cheap": {"model": "other"}, "dear": {"model": "mock-model"}}
MODELS = {
    "mock-model": {"price": {"input": 10.0, "output": 40.0}},
    "other": {"price": {"input": 1.0, "output": 4.0}},
}
RULES = {
    "signals": {"code": {"keywords": ["python"]}},
    "rules": [{"name": "code", "when": "code", "weights": {"dear": 3, "cheap": 1}}],
    "otherwise": "cheap",
}
POLICIES: dict[str, dict[str, Any]] = {
    "thompson": {"type": "thompson", "floor": 0.1},
    "linucb + sticky": {"type": "linucb", "floor": 0.1, "wrappers": [{"type": "sticky"}]},
    "neighbors": {"type": "neighbors", "floor": 0.1},
    "weighted": {"type": "weighted", "params": {"weights": {"cheap": 3, "dear": 1}}, "floor": 0.05},
    "rules": {"type": "rules", "params": RULES, "floor": 0.2},
}
LEARNING = ("thompson", "linucb + sticky", "neighbors")


@pytest.fixture
async def mock() -> AsyncIterator[MockBackend]:
    async with MockBackend(["mock-model"]) as backend:
        yield backend


def config_of(mock: MockBackend, url: str, policy: dict[str, Any]) -> dict[str, Any]:
    return keeping(
        mock,
        url,
        models=MODELS,
        policies={"learn": {"seed": 3, **policy}},
        virtual_models={"auto": {"policy": "learn", "plans": PLANS, "baseline": "dear"}},
        learning={"every_s": 0.02},
    )


async def asked(client: httpx.AsyncClient, number: int) -> tuple[str, str]:
    """A request of one of five conversations; its id, and the plan that served."""
    text = f"Write python number {number}" if number % 2 else f"Tell me of the {number} cats"
    body = question(model="auto", messages=[{"role": "user", "content": text}], trilemma={"session_id": f"s{number % 5}"})
    answer = await client.post(CHAT, json=body)
    assert answer.status_code == 200, answer.text
    return answer.headers[ID], "cheap" if answer.headers["x-trilemma-model"] == "other" else "dear"


async def taught(run: Running, client: httpx.AsyncClient, requests: int, *, folded: bool) -> list[str]:
    """The ids; each answer is judged, and what was said is learnt before the next ten are asked."""
    ids: list[str] = []
    for start in range(0, requests, 10):
        for id_, plan in await asyncio.gather(*(asked(client, number) for number in range(start, start + 10))):
            ids.append(id_)
            value = 0.9 if plan == "dear" else len(ids) % 3 / 2
            assert (await client.post("/v1/feedback", json={"decision_id": id_, "metric": "quality", "value": value})).status_code == 202
        if folded:
            await until_learnt(run, len(ids))
    return ids


async def until_learnt(run: Running, count: int) -> None:
    learner = run.app.learner
    assert learner is not None
    await until(lambda: learner.folded >= count, "the outcomes are learnt", 20)


def explain(capsys: pytest.CaptureFixture[str], file: Path, id_: str, *more: str) -> tuple[int, str, str]:
    """Exit status, output and errors."""
    status = cli.main(["explain", id_, "--config", str(file), *more])
    said = capsys.readouterr()
    return status, said.out, said.err


def told(capsys: pytest.CaptureFixture[str], file: Path, id_: str) -> tuple[int, dict[str, Any]]:
    status, out, _ = explain(capsys, file, id_, "--json")
    found: dict[str, Any] = json.loads(out)
    return status, found


@pytest.mark.parametrize("name", POLICIES)
async def test_decisions_are_made_again_to_the_bit(
    mock: MockBackend, place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    config = config_of(mock, place.url, POLICIES[name])
    async with running(config, tmp_path) as run, run.client("sk-shop") as client:
        ids = await taught(run, client, 80, folded=name in LEARNING)
    versions = set()
    for id_ in ids[::9]:
        status, found = await asyncio.to_thread(told, capsys, run.file, id_)
        assert (status, found.get("exact"), found.get("differences")) == (0, True, []), found
        assert found["same_configuration"] is True and found["fallback"] is None
        assert sum(each["probability"] for each in found["candidates"]) == pytest.approx(1)
        assert 0 <= found["draw"] < 1
        versions.add(found["snapshot"])
    assert (len(versions) > 5) if name in LEARNING else (versions == {0})


async def test_what_sticks_to_its_plan_says_by_which_terms(
    mock: MockBackend, place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    certain = POLICIES["linucb + sticky"] | {"floor": 0.0}  # what was only explored on may be left: the stay bias is no more than a bias
    async with running(config_of(mock, place.url, certain), tmp_path) as run, run.client("sk-shop") as client:
        first, plan = await asked(client, 0)
        later, again = await asked(client, 5)
    assert plan == again
    _, before = await asyncio.to_thread(told, capsys, run.file, first)
    _, after = await asyncio.to_thread(told, capsys, run.file, later)
    assert all(each["terms"] == {} for each in before["candidates"]) and before["standing"] is None
    terms = {each["plan"]: each["terms"] for each in after["candidates"]}
    other = "dear" if plan == "cheap" else "cheap"
    assert terms[plan]["stay"] == pytest.approx(0.02) and terms[other]["margin"] == pytest.approx(-0.01)
    assert after["standing"]["plan"] == plan and after["propensity"] == 1


async def test_what_was_decided_while_frozen_and_after_a_rollback_is_made_again(
    mock: MockBackend, place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Wrappers that come and go, and versions that go back, do not keep what was known from being restored."""
    config = config_of(mock, place.url, POLICIES["thompson"])
    (tmp_path / "etc").mkdir()
    async with running(config, tmp_path / "etc" / "state") as run, run.client("sk-shop") as client, run.client("sk-ops") as ops:
        ids = await taught(run, client, 40, folded=True)
        back = await ops.post("/admin/policies/learn/rollback", json={"version": 2})
        assert back.status_code == 200, back.text
        later = [(await asked(client, number))[0] for number in range(3)]
        assert (await ops.post("/admin/policies/learn/freeze")).status_code == 200
        frozen = [(await asked(client, number))[0] for number in range(3)]
    for id_ in frozen:
        status, found = await asyncio.to_thread(told, capsys, run.file, id_)
        assert (status, found["snapshot"], found["explore"]) == (0, back.json()["version"], True)
        assert max(each["probability"] for each in found["candidates"]) == 1
    run.file.write_text(json.dumps(config))
    for id_ in (*later, ids[-1]):
        status, found = await asyncio.to_thread(told, capsys, run.file, id_)
        assert (status, found["same_configuration"]) == (0, True)


@pytest.mark.parametrize("kept", [True, False])
async def test_what_was_decided_before_a_plan_came_is_made_again(
    mock: MockBackend, place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, kept: bool
) -> None:
    """With the file as it was then, or with the new one where the database has the text of the old one: no secret stood in it."""
    monkeypatch.setenv("SOME_SECRET", "keyed-by-this")
    config = config_of(mock, place.url, POLICIES["thompson"])
    config["server"] |= {"secret": "${SOME_SECRET}" if kept else "keyed-by-this"}
    async with running(config, tmp_path / "before") as run, run.client("sk-shop") as client:
        ids = await taught(run, client, 250, folded=True)
    before = run.file
    config["virtual_models"]["auto"]["plans"] = PLANS | {"third": {"model": "other"}}
    async with running(config, tmp_path / "after") as run, run.client("sk-ops") as ops:
        learner = run.app.learner
        assert learner is not None
        await until(lambda: "other plans" in (learner.snapshots["auto/learn"].note or ""), "it is taken over", 20)
        anew = await ops.post("/admin/policies/learn/rebuild")
        assert anew.status_code == 200 and anew.json()["observations"] == 250
        refused = await ops.post("/admin/policies/learn/rollback", json={"version": 2})
        assert refused.status_code == 409 and "it is of other plans" in refused.json()["error"]["message"]
    numbers = {row["id"]: row["snapshot"] for row in place.rows("decisions")}
    missing = set(numbers.values()) - {row["version"] for row in place.rows("policy_states")} - {0}
    chosen = [ids[0], ids[-1], next(id_ for id_ in ids if numbers[id_] in missing)]
    for id_ in chosen:
        status, found = await asyncio.to_thread(told, capsys, before, id_)
        assert (status, found["exact"], found["snapshot"], found["same_configuration"]) == (0, True, numbers[id_], True)
        status, found = await asyncio.to_thread(told, capsys, run.file, id_)
        if kept or numbers[id_] == 0:  # of nothing the new configuration makes the same
            assert (status, found["exact"], found["same_configuration"]) == (0, True, numbers[id_] > 0)
        else:
            why = f"it cannot be made again: version {numbers[id_]} of what it had learnt: it is of other plans; it was made under another"
            assert status == 1 and found["error"].startswith(why), found


async def test_people_read_a_table(mock: MockBackend, place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with running(config_of(mock, place.url, POLICIES["thompson"]), tmp_path) as run, run.client("sk-shop") as client:
        ids = await taught(run, client, 20, folded=True)
        id_, plan = await asked(client, 1)
    status, out, _ = await asyncio.to_thread(explain, capsys, run.file, id_)
    assert status == 0
    lines = out.splitlines()
    assert lines[0] == f"decision {id_}" and lines[1].startswith("auto by learn, which had learnt version ") and f": {plan} (" in lines[1]
    assert lines[3].split("  ")[0] == "plan" and {line.split(" ")[0] for line in lines[4:6]} == {"cheap", "dear"}
    assert lines[-1] == "made again: the same to the bit" and any(line.startswith("draw: u = 0.") for line in lines)
    assert len(ids) == 20


async def test_another_configuration_is_said_and_tried(
    mock: MockBackend, place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = config_of(mock, place.url, POLICIES["weighted"])
    async with running(config, tmp_path) as run, run.client("sk-shop") as client:
        id_, plan = await asked(client, 1)
    same_odds = copy.deepcopy(config) | {"feedback": {"per_key_per_hour": 7}}
    run.file.write_text(json.dumps(same_odds))
    status, found = await asyncio.to_thread(told, capsys, run.file, id_)
    assert (status, found["exact"], found["same_configuration"]) == (0, True, False)

    other_odds = copy.deepcopy(config)
    other_odds["policies"]["learn"]["params"]["weights"] = {"cheap": 1, "dear": 1}
    run.file.write_text(json.dumps(other_odds))
    status, found = await asyncio.to_thread(told, capsys, run.file, id_)
    assert (status, found["ok"], found["same_configuration"]) == (1, False, False)
    again = {each["where"]: each["again"] for each in found["differences"]}
    assert again["propensity"] == 0.5 and again["cheap.probability"] == 0.5
    status, out, _ = await asyncio.to_thread(explain, capsys, run.file, id_)
    assert status == 1 and "made again: propensity is 0.5, was " in out and "another one than that of the decision" in out

    gone = copy.deepcopy(config)
    gone["virtual_models"]["auto"] = {"policy": "fixed", "plans": {"new": {"model": "other"}}}
    gone["policies"] = {}
    run.file.write_text(json.dumps(gone))
    status, _, said = await asyncio.to_thread(explain, capsys, run.file, id_)
    assert status == 1 and "no policy `learn` fits `auto`; it was made under another configuration" in said
    assert plan in PLANS


async def test_a_pruned_version_is_said(mock: MockBackend, place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with running(config_of(mock, place.url, POLICIES["thompson"]), tmp_path) as run, run.client("sk-shop") as client:
        await taught(run, client, 20, folded=True)
        id_, _ = await asked(client, 1)
    place.execute("DELETE FROM policy_states")
    status, _, said = await asyncio.to_thread(explain, capsys, run.file, id_)
    assert status == 1 and "no version of `auto/learn` is as old as " in said


async def test_what_no_policy_decided_is_said(mock: MockBackend, place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with running(config_of(mock, place.url, POLICIES["weighted"]), tmp_path) as run, run.client("sk-shop") as client:
        id_ = (await client.post(CHAT, json=question())).headers[ID]
    status, out, said = await asyncio.to_thread(explain, capsys, run.file, id_)
    assert (status, out) == (1, "") and "no policy chose" in said
    status, _, said = await asyncio.to_thread(explain, capsys, run.file, f"{'0' * 32}-{'0' * 12}")
    assert status == 1 and "there is no such decision" in said
    for arguments in (["no-id"], [id_, "--config", str(tmp_path / "missing.yaml")]):
        assert await asyncio.to_thread(cli.main, ["explain", "--config", str(run.file), *arguments]) == 2
