"""Policies are seen and changed over HTTP: what they know, what they were worth, and who takes whose place."""

from __future__ import annotations

import asyncio
import json
import os
import re
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from gateway.learning import evaluating
from gateway.learning.evaluating import Evaluator
from gateway.mock import MockBackend
from tests.support.asking import CHAT, error_of, question
from tests.support.databases import database, migrated, place, postgres, server
from tests.support.keeping import ID, keeping
from tests.support.running import Running, running
from tests.support.stored import Place
from tests.support.waiting import until

__all__ = ["database", "migrated", "place", "postgres", "server"]

pytestmark = pytest.mark.asyncio(loop_scope="module")

PATH = "/admin/policies"
PLANS = {"cheap": {"model": "other"}, "dear": {"model": "mock-model"}}
MODELS = {"mock-model": {"price": {"input": 10.0, "output": 40.0}}, "other": {"price": {"input": 1.0, "output": 4.0}}}
POLICIES = {
    "learn": {"type": "thompson", "floor": 0.5, "seed": 3},
    "even": {"type": "random"},
    "best": {"type": "fixed", "params": {"plan": "dear"}},
    "worst": {"type": "fixed", "params": {"plan": "cheap"}},
    "next": {"type": "linucb", "floor": 0.1},
}


class Own:
    """A gateway of a test's own. ops: an administrator. shop: a caller."""

    def __init__(self, run: Running, ops: httpx.AsyncClient, shop: httpx.AsyncClient) -> None:
        self.run, self.ops, self.shop = run, ops, shop

    async def get(self, path: str, status: int = 200, **params: Any) -> dict[str, Any]:
        answer = await self.ops.get(f"{PATH}{path}", params=params)
        assert answer.status_code == status, answer.text
        found: dict[str, Any] = answer.json()
        return found

    async def post(self, path: str, body: dict[str, Any] | None = None, status: int = 200, **params: Any) -> dict[str, Any]:
        answer = await self.ops.post(f"{PATH}{path}", params=params, json=body)
        assert answer.status_code == status, answer.text
        found: dict[str, Any] = answer.json()
        return found

    async def audit(self, action: str) -> list[dict[str, Any]]:
        answer = await self.ops.get("/admin/audit", params={"action": action})
        found: list[dict[str, Any]] = answer.json()["data"]
        return found

    @property
    def served_by(self) -> str:
        """The policy of `auto` in the file."""
        policy: str = json.loads(self.run.file.read_text())["virtual_models"]["auto"]["policy"]
        return policy

    async def taught(self, requests: int, quality: Callable[[str], float] = lambda plan: float(plan == "dear"), folds: int = 1) -> None:
        """So many requests are judged, and what was said is learnt, in so many batches one after the other."""
        learner = self.run.app.learner
        assert learner is not None
        for _ in range(folds):
            before = learner.folded
            answers = await asyncio.gather(*(self.shop.post(CHAT, json=question(model="auto")) for _ in range(requests // folds)))
            for each in answers:
                plan = "cheap" if each.headers["x-trilemma-model"] == "other" else "dear"
                said = {"decision_id": each.headers[ID], "metric": "quality", "value": quality(plan)}
                assert (await self.shop.post("/v1/feedback", json=said)).status_code == 202
            await until(lambda before=before: learner.folded >= before + requests // folds, "the outcomes are learnt", 20)


def config_of(mock: MockBackend, url: str, policy: str = "learn", **sections: Any) -> dict[str, Any]:
    models = {"auto": {"policy": policy, "plans": PLANS, "baseline": "dear"}}
    return keeping(mock, url, models=MODELS, policies=POLICIES, **({"virtual_models": models, "learning": {"every_s": 0.02}} | sections))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "etc").mkdir()
    return tmp_path / "etc" / "trilemma"


@pytest_asyncio.fixture(loop_scope="module")
async def own(mock: MockBackend, place: Place, folder: Path) -> AsyncIterator[Own]:
    async with running(config_of(mock, place.url), folder) as run, run.client("sk-ops") as ops, run.client("sk-shop") as shop:
        yield Own(run, ops, shop)


@pytest_asyncio.fixture(loop_scope="module")
async def even(mock: MockBackend, place: Place, folder: Path) -> AsyncIterator[Own]:
    """`auto` is served by a policy that learns nothing and draws evenly."""
    async with running(config_of(mock, place.url, "even"), folder) as run, run.client("sk-ops") as ops, run.client("sk-shop") as shop:
        yield Own(run, ops, shop)


async def test_the_list_says_who_uses_what_and_what_it_learnt(own: Own) -> None:
    await own.taught(10)
    found = await own.get("")
    cards = {each["name"]: each for each in found["data"]}
    assert list(cards) == list(POLICIES)
    learn = cards["learn"]
    assert (learn["type"], learn["floor"], learn["seed"], learn["configured"]) == ("thompson", 0.5, 3, True)
    [use] = learn["virtual_models"]
    assert (use["name"], use["learns"], use["observations"], use["note"]) == ("auto", True, 10, None)
    assert use["version"] >= 1 and use["data_from"] <= use["data_to"]
    assert cards["best"]["virtual_models"] == [] and cards["best"]["params"] == {"plan": "dear"}
    assert found["learning"]["folded"] == 10 and found["learning"]["last_fold"] is not None and found["learning"]["error"] is None


async def test_one_policy_shows_its_statistics_and_a_tag(own: Own) -> None:
    await own.taught(10)
    answer = await own.ops.get(f"{PATH}/learn")
    assert answer.headers["etag"] == answer.json()["etag"]
    assert set(answer.json()["statistics"]) == {"auto"} and "dear" in json.dumps(answer.json()["statistics"]["auto"])
    other = await own.ops.get(f"{PATH}/best")
    assert other.headers["etag"] != answer.headers["etag"] and other.json()["statistics"] == {}
    assert error_of(await own.ops.get(f"{PATH}/nobody"))["code"] == "caller_not_found"
    assert (await own.shop.get(f"{PATH}/learn")).status_code == 403


async def test_versions_can_be_seen_and_compared(own: Own) -> None:
    await own.taught(30, folds=3)
    found = await own.get("/learn/versions", limit=2)
    newest, before = found["data"]
    assert newest["version"] == before["version"] + 1 and found["next"] == str(before["version"])
    assert newest["plans"] == ["cheap", "dear"] and newest["size"] > 100
    rest = await own.get("/learn/versions", cursor=found["next"])
    assert [each["version"] for each in rest["data"]] == list(range(before["version"] - 1, 0, -1)) and rest["next"] is None

    first = await own.get("/learn/versions/1")
    assert 1 <= first["observations"] <= 10 and first["virtual_model"] == "auto"
    now = (await own.get("/learn"))["statistics"]["auto"]
    last = await own.get(f"/learn/versions/{newest['version']}")
    assert last["statistics"] == now and last["observations"] == 30
    diff = await own.get("/learn/diff", **{"from": 1})
    assert (diff["from"], diff["to"], diff["config"]) == (1, newest["version"], [])
    assert diff["statistics"] and all(each["from"] != each["to"] for each in diff["statistics"])
    for path in ("/learn/versions/999", "/learn/versions/0", "/learn/versions/x"):
        assert (await own.get(path, 404))["error"]["code"] == "caller_not_found"
    assert (await own.get("/learn/diff", 400))["error"]["param"] == "from"


async def test_the_curve_tells_how_each_plan_did(own: Own) -> None:
    await own.taught(20)
    found = await own.get("/learn/curve", buckets=4)
    assert len(found["data"]) == 4 and found["decisions"] == 20
    totals: dict[str, list[float]] = {"cheap": [], "dear": []}
    for bucket in found["data"]:
        assert bucket["from"] < bucket["to"]
        for plan, tally in bucket["plans"].items():
            assert tally["labels"] == tally["decisions"] and tally["failed"] == 0 and tally["cost"] > 0
            assert tally["quality"] == float(plan == "dear")
            totals[plan].append(tally["decisions"])
    assert sum(map(sum, totals.values())) == 20
    [last] = (await own.get("/learn/curve", buckets=1, last=5))["data"]
    assert sum(tally["decisions"] for tally in last["plans"].values()) == 5
    assert (await own.get("/best/curve"))["data"] == []


async def test_a_policy_is_made_changed_and_taken_out(own: Own) -> None:
    made = await own.ops.put(f"{PATH}/fresh", json={"type": "random", "floor": 0.25}, headers={"if-none-match": "*"})
    assert made.status_code == 201, made.text
    assert (made.json()["floor"], made.json()["virtual_models"]) == (0.25, []) and "fresh" in made.json()["diff"]
    assert json.loads(own.run.file.read_text())["policies"]["fresh"] == {"type": "random", "floor": 0.25}
    assert (await own.ops.put(f"{PATH}/fresh", json={"type": "random"})).status_code == 428
    again = await own.ops.put(f"{PATH}/fresh", json={"type": "random"}, headers={"if-none-match": "*"})
    assert error_of(again)["param"] == "If-None-Match" and again.status_code == 412
    changed = await own.ops.put(f"{PATH}/fresh", json={"type": "random", "seed": 5}, headers={"if-match": made.headers["etag"]})
    assert (changed.status_code, changed.json()["floor"], changed.json()["seed"]) == (200, 0.0, 5)
    late = await own.ops.put(f"{PATH}/fresh", json={"type": "random"}, headers={"if-match": made.headers["etag"]})
    assert (late.status_code, error_of(late)["code"]) == (412, "caller_precondition_failed")
    assert (await own.ops.delete(f"{PATH}/fresh", headers={"if-match": made.headers["etag"]})).status_code == 412
    gone = await own.ops.delete(f"{PATH}/fresh", headers={"if-match": changed.headers["etag"]})
    assert gone.status_code == 200 and (await own.ops.get(f"{PATH}/fresh")).status_code == 404
    assert json.loads(own.run.file.read_text())["policies"] == POLICIES
    used = await own.ops.delete(f"{PATH}/learn", headers={"if-match": "*"})
    assert used.status_code == 409 and "virtual model `auto`" in error_of(used)["message"]

    entries = await own.audit("policy.put")
    assert [each["target"] for each in entries] == ["policies.fresh"] * 2 and entries[0]["key"] == "ops"
    assert entries[1]["after_hash"] == entries[0]["before_hash"]
    assert len(await own.audit("policy.delete")) == 1


async def test_what_cannot_be_changes_nothing(own: Own) -> None:
    text, state = own.run.file.read_text(), own.run.gateway.state
    bad = await own.ops.put(f"{PATH}/learn", json={"type": "thompson", "params": {"nonsense": 1}}, headers={"if-match": "*"})
    assert bad.status_code == 400 and bad.json()["problems"][0]["path"].startswith("policies.learn")
    for body, param in (({"kind": "x"}, "kind"), ({"type": "random", "name": "x"}, "name")):
        answer = await own.ops.put(f"{PATH}/learn", json=body, headers={"if-match": "*"})
        assert answer.status_code == 400 and error_of(answer)["param"] == param
    assert (await own.ops.put(f"{PATH}/a b", json={"type": "random"}, headers={"if-match": "*"})).status_code == 400
    assert (own.run.file.read_text(), own.run.gateway.state) == (text, state)
    assert await own.audit("policy.put") == []


async def test_a_frozen_policy_keeps_what_it_knows_and_learns_no_more(own: Own) -> None:
    await own.taught(20)
    before = (await own.get("/learn"))["statistics"]["auto"]
    frozen = await own.post("/learn/freeze")
    assert frozen["wrappers"] == [{"type": "frozen"}] and frozen["statistics"]["auto"] == {"inner": before}
    again = await own.post("/learn/freeze")
    assert again["wrappers"] == [{"type": "frozen"}] and again["diff"] == ""
    await own.taught(10, lambda _plan: 0.0)
    assert (await own.get("/learn"))["statistics"]["auto"] == {"inner": before}
    assert (await own.post("/learn/rebuild", status=409))["error"]["param"] == "name"
    free = await own.post("/learn/unfreeze")
    assert free["wrappers"] == [] and free["statistics"]["auto"] == before
    await own.taught(10, lambda _plan: 0.0)
    assert (await own.get("/learn"))["statistics"]["auto"] != before
    assert len(await own.audit("policy.freeze")) == 1 and len(await own.audit("policy.unfreeze")) == 1
    stale = await own.ops.post(f"{PATH}/learn/freeze", headers={"if-match": '"another"'})
    assert stale.status_code == 412


async def test_a_shadow_watches_without_taking_what_is_known(own: Own) -> None:
    await own.taught(20)
    before = (await own.get("/learn"))["statistics"]["auto"]
    found = await own.post("/learn/shadow", {"policy": "best"})
    assert found["wrappers"] == [{"type": "shadow", "policy": "best"}] and found["statistics"]["auto"]["inner"] == before
    id_ = (await own.shop.post(CHAT, json=question(model="auto"))).headers[ID]
    assert (await own.shop.get(f"/v1/decisions/{id_}")).json()["shadow"] == {"best": "dear"}
    assert (await own.get("/best"))["named_by"] == ["learn"]
    used = await own.ops.delete(f"{PATH}/best", headers={"if-match": "*"})
    assert used.status_code == 409 and "policy `learn`" in error_of(used)["message"]
    ended = await own.post("/learn/shadow", {"policy": None})
    assert ended["wrappers"] == [] and ended["statistics"]["auto"] == before
    assert (await own.post("/learn/shadow", {"policy": "nobody"}, 400))["error"]["param"] == "policy"
    assert [each["detail"]["policy"] for each in await own.audit("policy.shadow")] == [None, "best"]


async def test_a_rollback_brings_back_what_was_known(own: Own) -> None:
    await own.taught(20)
    then = (await own.get("/learn"))["virtual_models"][0]["version"]
    before = (await own.get("/learn"))["statistics"]["auto"]
    answers = await asyncio.gather(*(own.shop.post(CHAT, json=question(model="auto")) for _ in range(5)))
    ids = [each.headers[ID] for each in answers]
    learner = own.run.app.learner
    assert learner is not None

    async def say(value: float) -> None:
        count = learner.folded
        for id_ in ids:
            await own.shop.post("/v1/feedback", json={"decision_id": id_, "metric": "quality", "value": value})
        await until(lambda: learner.folded >= count + len(ids), "it is learnt", 20)

    await say(0.0)
    after = (await own.get("/learn"))["statistics"]["auto"]
    assert after != before
    found = await own.post("/learn/rollback", {"version": then})
    assert found["version"] > then and found["observations"] == 20 and found["note"] == f"back to version {then}"
    assert (await own.get("/learn"))["statistics"]["auto"] == before
    [entry] = await own.audit("policy.rollback")
    assert (entry["target"], entry["detail"]) == (
        "policies.learn",
        {"virtual_model": "auto", "to": then, "version": found["version"]},
    )
    # What is said again counts as new, and not as a correction of what is not known any more.
    await say(1.0)
    assert (await own.get("/learn"))["virtual_models"][0]["observations"] == 25
    made = await own.post("/learn/rebuild")
    assert made["observations"] == 25 and "as was asked for" in made["note"]
    for version, status in ((999, 404), (0, 400), ("x", 400)):
        assert (await own.post("/learn/rollback", {"version": version}, status))["error"]["param"] == "version"
    assert (await own.post("/best/rollback", {"version": 1}, 409))["error"]["param"] == "name"


async def test_an_evaluation_tells_what_a_policy_would_have_been_worth(even: Own) -> None:
    for name, worth in (("best", 0.9), ("worst", 0.2)):
        if name == "best":
            answers = await asyncio.gather(*(even.shop.post(CHAT, json=question(model="auto")) for _ in range(120)))
            for each in answers:
                value = 0.2 if each.headers["x-trilemma-model"] == "other" else 0.9
                await even.shop.post("/v1/feedback", json={"decision_id": each.headers[ID], "metric": "quality", "value": value})
            await until_kept(even, 120)
        found = await even.post(f"/{name}/evaluate", {"virtual_model": "auto"})
        report = found["report"]
        assert (found["state"], report["evaluated"], report["rows"], report["left_out"]) == (None, 120, 120, {})
        estimates = {each["method"]: each for each in report["quality"]["target"]}
        assert set(estimates) == {"dm", "ips", "snips", "dr", "switch"}
        assert estimates["snips"]["value"] == pytest.approx(worth, abs=1e-9)
        # Answers of a plan are all alike, so the interval is as narrow as the reward model's own prior is wide.
        assert estimates["dr"]["low"] - 0.01 <= worth <= estimates["dr"]["high"] + 0.01 and 30 < estimates["dr"]["ess"] < 90
    found = await even.post("/next/evaluate", {"last": 50, "state": "none"})
    assert found["report"]["rows"] == 50 and found["state"] is None
    assert (await even.post("/next/evaluate", {"state": "current"}, 409))["error"]["param"] == "state"
    for body, param in (({"last": 0}, "last"), ({"last": "x"}, "last"), ({"when": 1}, "when"), ({"since": "never"}, "since")):
        assert (await even.post("/best/evaluate", body, 400))["error"]["param"] == param
    nothing = await even.post("/best/evaluate", {"until": 1.0}, 409)
    assert "the log is empty" in nothing["error"]["message"]


async def until_kept(own: Own, count: int, what: str = "labels") -> None:
    """Waits until so many labels, or decisions, are in the database."""
    async with asyncio.timeout(20):
        while True:
            found = await own.get("/even/curve", buckets=1)
            if sum(tally[what] for bucket in found["data"] for tally in bucket["plans"].values()) >= count:
                return
            await asyncio.sleep(0.02)


async def test_one_evaluation_at_a_time_and_for_so_long(even: Own, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on = threading.Event(), threading.Event()
    work = evaluating._report

    def waiting(*args: Any) -> Any:
        begun.set()
        go_on.wait(20)
        return work(*args)

    await even.shop.post(CHAT, json=question(model="auto"))
    await until_kept(even, 1, "decisions")
    monkeypatch.setattr(evaluating, "_report", waiting)
    first = asyncio.create_task(even.ops.post(f"{PATH}/best/evaluate", json={}))
    await until(begun.is_set)
    second = await even.ops.post(f"{PATH}/best/evaluate", json={})
    assert (second.status_code, error_of(second)["code"], second.headers["retry-after"]) == (503, "gateway_overloaded", "5")
    go_on.set()
    assert (await first).status_code == 200


async def test_what_takes_too_long_is_ended(even: Own, monkeypatch: pytest.MonkeyPatch) -> None:
    await even.shop.post(CHAT, json=question(model="auto"))
    await until_kept(even, 1, "decisions")
    monkeypatch.setattr("gateway.http.admin.policy_worth.evaluator_of", lambda _request: Evaluator(dict, within_s=0.0))
    assert (await even.post("/best/evaluate", {}, 504))["error"]["code"] == "gateway_deadline"


async def test_a_promotion_needs_what_the_rule_says(even: Own) -> None:
    answers = []
    for _ in range(4):
        answers += await asyncio.gather(*(even.shop.post(CHAT, json=question(model="auto")) for _ in range(150)))
    for each in answers:
        value = 0.0 if each.headers["x-trilemma-model"] == "other" else 1.0
        await even.shop.post("/v1/feedback", json={"decision_id": each.headers[ID], "metric": "quality", "value": value})
    await until_kept(even, 600)
    worse = await even.post("/even/promote", {"candidate": "worst", "dearer": None}, 409)
    assert worse["record"]["verdict"] == "reject" and "rule says to reject" in worse["error"]["message"]
    early = await even.post("/even/promote", {"candidate": "best", "dearer": None, "least": 5000}, 409)
    assert early["record"]["verdict"] == "wait" and "requests" in early["error"]["message"]
    dear = await even.post("/even/promote", {"candidate": "best"}, 409)
    assert "rise in cost" in dear["error"]["message"] and even.served_by == "even"
    found = await even.post("/even/promote", {"candidate": "best", "dearer": None})
    assert (found["virtual_model"], found["from"], found["to"], found["forced"]) == ("auto", "even", "best", False)
    assert found["record"]["evidence"]["quality"]["low"] > 0 and found["record"]["evidence"]["requests"] == 600
    assert even.served_by == "best"
    answer = await even.shop.post(CHAT, json=question(model="auto"))
    assert answer.headers["x-trilemma-policy"] == "best"
    [entry] = await even.audit("policy.promote")
    assert entry["target"] == "virtual_models.auto.policy" and entry["detail"]["record"]["verdict"] == "promote"
    assert entry["before_hash"] != entry["after_hash"] == even.run.gateway.state.hash
    assert (await even.post("/even/promote", {"candidate": "best"}, 409))["error"]["param"] == "name"


async def test_who_is_promoted_begins_with_what_was_learnt(own: Own) -> None:
    await own.taught(30)
    assert (await own.post("/learn/promote", {"candidate": "next"}, 409))["record"]["verdict"] == "wait"
    found = await own.post("/learn/promote", {"candidate": "next", "force": True})
    assert (found["forced"], found["version"]) == (True, 1)
    learner = own.run.app.learner
    assert learner is not None
    await until(lambda: learner.snapshots["auto/next"].version == 1)
    card = await own.get("/next")
    assert card["virtual_models"][0]["observations"] == 30 and "takes the place of `auto/learn`" in card["virtual_models"][0]["note"]
    for body, param in (({"candidate": "nobody"}, "candidate"), ({}, "candidate"), ({"candidate": "even", "margin": 7}, "margin")):
        assert (await own.post("/next/promote", body, 400))["error"]["param"] == param


async def test_the_documentation_s_commands(own: Own, tmp_path: Path) -> None:
    """As they are written, one after another."""
    await own.taught(40)
    gone = await own.ops.delete(f"{PATH}/next", headers={"if-match": "*"})
    assert gone.status_code == 200
    page = (Path(__file__).parents[2] / "docs/admin.md").read_text()
    (script,) = [each for each in re.findall(r"^```sh\n(.*?)^```$", page, re.MULTILINE | re.DOTALL) if "/promote" in each]
    process = await asyncio.create_subprocess_exec(
        *("bash", "-euo", "pipefail", "-c", script.replace('"$URL/', '-w "\\n" "$URL/')),
        cwd=tmp_path,
        env=dict(os.environ) | {"ADMIN": "Authorization: Bearer sk-ops", "URL": own.run.url},
        stdout=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(30):
        said, _ = await process.communicate()
    assert process.returncode == 0
    shown, made, evaluated, judged = (json.loads(line) for line in said.splitlines() if line)
    assert (shown["object"], shown["name"]) == ("policy", "learn")
    assert (made["name"], made["type"], made["floor"]) == ("next", "thompson", 0.02)
    assert (evaluated["object"], evaluated["report"]["rows"]) == ("policy.evaluation", 40)
    assert judged["record"]["verdict"] == "wait" and judged["record"]["rule"]["margin"] == 0.01


async def test_where_several_models_use_it_one_is_to_be_named(mock: MockBackend, place: Place, folder: Path) -> None:
    models = {name: {"policy": "learn", "plans": PLANS} for name in ("auto", "bulk")}
    async with running(config_of(mock, place.url, virtual_models=models), folder) as run, run.client("sk-ops") as ops:
        several = Own(run, ops, ops)
        assert [each["name"] for each in (await several.get("/learn"))["virtual_models"]] == ["auto", "bulk"]
        error = (await several.get("/learn/versions", 400))["error"]
        assert error["param"] == "virtual_model" and "`auto`, `bulk`" in error["message"]
        assert (await several.get("/learn/versions", virtual_model="bulk"))["data"] == []
        assert (await several.get("/learn/versions", 400, virtual_model="nobody"))["error"]["param"] == "virtual_model"


async def test_without_a_database_the_configuration_can_be_changed_all_the_same(mock: MockBackend, folder: Path) -> None:
    async with running(config_of(mock, ""), folder) as run, run.client("sk-ops") as ops:
        alone = Own(run, ops, ops)
        found = await alone.get("")
        assert found["learning"] is None and found["data"][0]["virtual_models"][0]["version"] == 0
        assert (await alone.post("/learn/freeze"))["wrappers"] == [{"type": "frozen"}]
        for path in ("/learn/versions", "/learn/curve"):
            assert (await alone.get(path, 503))["error"]["code"] == "gateway_storage_unavailable"
        assert (await alone.post("/learn/evaluate", {}, 503))["error"]["code"] == "gateway_storage_unavailable"
