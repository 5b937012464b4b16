"""An operator sees every backend, and takes one out of use and back, over HTTP, while requests are served."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.mock import Behaviour, MockBackend
from tests.support.asking import CHAT, MESSAGES, error_of
from tests.support.held import HeldBackend
from tests.support.raw import wire
from tests.support.running import KEY, Running, config_for, running
from tests.support.scraping import scrape
from tests.support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

ASK: dict[str, Any] = {"model": "m", "messages": MESSAGES}
ADMIN = "/admin/backends"


@dataclass
class Operator:
    """Asks /admin with the test's key."""

    run: Running
    client: httpx.AsyncClient

    async def listed(self) -> dict[str, dict[str, Any]]:
        """All backends by name."""
        answer = await self.client.get(ADMIN)
        assert answer.status_code == 200
        return {each["name"]: each for each in answer.json()["data"]}

    async def look(self, name: str) -> dict[str, Any]:
        answer = await self.client.get(f"{ADMIN}/{name}")
        assert answer.status_code == 200
        found: dict[str, Any] = answer.json()
        return found

    async def tell(self, name: str, /, wait_s: float | None = None, **change: Any) -> dict[str, Any]:
        answer = await self.client.patch(f"{ADMIN}/{name}", params={} if wait_s is None else {"wait_s": wait_s}, json=change)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    async def until(self, name: str, condition: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        """What is told of it, once that is so."""
        async with asyncio.timeout(10):
            while True:
                told = await self.look(name)
                if condition(told):
                    return told
                await asyncio.sleep(0.02)

    def probes(self) -> set[str]:
        """The backends that are probed now, as the names of tasks tell."""
        names = (task.get_name() for task in asyncio.all_tasks())
        return {name.removeprefix("probe ") for name in names if name.startswith("probe ")}


@asynccontextmanager
async def over(folder: Path, backends: dict[str, Any], **sections: Any) -> AsyncIterator[Operator]:
    """A gateway over these, all of which have answered."""
    async with running(config_for(backends, **sections), folder) as run, run.client() as client:
        await until(lambda: all(each.answered for each in run.gateway.state.backends.values()), "all have answered")
        yield Operator(run, client)


def spec(url: str, **more: Any) -> dict[str, Any]:
    return {"url": url, "engine": "vllm", "models": {"m": "m"}, **more}


@asynccontextmanager
async def two(folder: Path, **sections: Any) -> AsyncIterator[tuple[Operator, MockBackend, MockBackend]]:
    """Two replicas, `a` and `b`, of one model."""
    async with (
        MockBackend(["m"]) as a,
        MockBackend(["m"]) as b,
        over(folder, {"a": spec(a.url), "b": spec(b.url)}, **sections) as operator,
    ):
        yield operator, a, b


# -- seeing


async def test_what_is_told_of_a_backend(tmp_path: Path) -> None:
    async with MockBackend(["m"]) as mock, over(tmp_path, {"a": spec(f"{mock.url}/v1", weight=2, key="sk-hidden")}) as operator:
        found = await operator.look("a")
        assert found["probe"].pop("age_s") >= 0
        assert found == {
            "name": "a",
            "engine": "vllm",
            "url": mock.url,
            "models": {"m": "m"},
            "changed": {},
            "left_out": {},
            "weight": 2,
            "state": "serving",
            "in_flight": 0,
            "answered": True,
            "breaker": {"state": "closed", "wait_s": 0},
            "probe": {"error": None},
            "managed": None,
        }
        listed = (await operator.client.get(ADMIN)).json()
        assert listed["data"][0].keys() == found.keys()
        assert (listed["object"], listed["sources"]) == ("list", {})


async def test_a_backend_that_is_down(tmp_path: Path) -> None:
    """Both what the probe and what the breaker know."""
    async with MockBackend(["m"]) as mock, over(tmp_path, {"a": spec(mock.url, breaker={"first_s": 600, "longest_s": 600})}) as operator:
        await mock.aclose()
        assert (await operator.client.post(CHAT, json=ASK)).status_code in (502, 503)
        found = await operator.look("a")
        assert found["breaker"]["state"] == "open" and 590 < found["breaker"]["wait_s"] <= 601
        assert (found["state"], found["answered"]) == ("serving", True)
        await operator.until("a", lambda told: told["probe"]["error"])


async def test_names_with_slashes_are_names(tmp_path: Path) -> None:
    async with MockBackend(["m"]) as one, MockBackend(["m"]) as other:
        discovered = {"discover": {"static": [one.url, f"{other.url}/deep"]}, "models": {"m": "m"}}
        given = {"url": one.url, "models": {"m": "m"}}
        async with running(config_for({"gpu": discovered, "team/x:1@b": given}), tmp_path) as run, run.client() as client:
            operator = Operator(run, client)
            names = [one.url.replace("http://", "gpu/"), f"{other.url}/deep".replace("http://", "gpu/"), "team/x:1@b"]
            assert list(await operator.listed()) == names
            for name in names:
                assert (await operator.look(name))["name"] == name
                assert (await operator.look(name.replace("/", "%2F").replace(":", "%3A").replace("@", "%40")))["name"] == name
            await operator.tell(names[1], state="draining")
            assert [each["state"] for each in (await operator.listed()).values()] == ["serving", "draining", "serving"]
            missing = error_of(await client.patch(f"{ADMIN}/gpu", json={"state": "draining"}))
            assert "its replicas" in missing["message"]


async def test_who_may_and_what_may_be_asked(tmp_path: Path) -> None:
    user = {"name": "user", "sha256": hashlib.sha256(b"sk-user").hexdigest()}
    admin = {"name": "test", "sha256": hashlib.sha256(KEY.encode()).hexdigest(), "scopes": ["admin"]}
    async with two(tmp_path, keys=[user, admin]) as (operator, _, _), operator.run.client("sk-user") as inference:
        for method, path in (
            ("GET", ADMIN),
            ("GET", f"{ADMIN}/a"),
            ("PATCH", f"{ADMIN}/a"),
            ("GET", f"{ADMIN}/x"),
            ("PATCH", f"{ADMIN}/x"),
        ):
            refused = await inference.request(method, path, content=b"{")
            assert (refused.status_code, error_of(refused)["code"]) == (403, "caller_forbidden_scope")
            nobody = await inference.request(method, path, content=b"{", headers={"authorization": ""})
            assert nobody.status_code == 401
        for method in ("GET", "PATCH"):
            missing = await operator.client.request(method, f"{ADMIN}/x", content=b"{")
            assert (missing.status_code, error_of(missing)["code"]) == (404, "caller_not_found")
        large = await operator.client.patch(f"{ADMIN}/a", content=b" " * 5_000)
        assert (large.status_code, error_of(large)["code"]) == (413, "caller_body_too_large")
        assert {each["state"] for each in (await operator.listed()).values()} == {"serving"}


@pytest.mark.parametrize(
    ("body", "query", "param", "code"),
    [
        ("", "", None, "caller_invalid_json"),
        ("{", "", None, "caller_invalid_json"),
        ('["draining"]', "", None, "caller_invalid_json"),
        ("{}", "", "state", "caller_invalid_value"),
        ('{"state": "drained"}', "", "state", "caller_invalid_value"),
        ('{"state": null}', "", "state", "caller_invalid_value"),
        ('{"state": ["draining"]}', "", "state", "caller_invalid_value"),
        ('{"state": "off"}', "", "state", "caller_invalid_value"),
        ('{"state": "draining", "accept": false}', "", "accept", "caller_invalid_value"),
        ('{"state": "draining", "accept": 1}', "", "accept", "caller_invalid_value"),
        ('{"state": "draining", "weight": 2}', "", "weight", "caller_unknown_parameter"),
        ('{"state": "draining"}', "?wait_s=301", "wait_s", "caller_invalid_value"),
        ('{"state": "draining"}', "?wait_s=-1", "wait_s", "caller_invalid_value"),
        ('{"state": "draining"}', "?wait_s=nan", "wait_s", "caller_invalid_value"),
        ('{"state": "draining"}', "?wait_s=long", "wait_s", "caller_invalid_value"),
        ('{"state": "draining"}', "?wait_s=1&wait_s=2", "wait_s", "caller_invalid_value"),
        ('{"state": "serving"}', "?wait_s=1", "wait_s", "caller_invalid_value"),
        ('{"accept": true}', "?wait_s=1", "wait_s", "caller_invalid_value"),
    ],
)
async def test_what_cannot_be_asked_is_refused_by_name_and_changes_nothing(
    tmp_path: Path, body: str, query: str, param: str | None, code: str
) -> None:
    async with MockBackend(["m"]) as mock, over(tmp_path, {"a": spec(mock.url)}) as operator:
        refused = await operator.client.patch(f"{ADMIN}/a{query}", content=body)
        assert refused.status_code == 400
        error = error_of(refused)
        assert (error["param"], error["code"]) == (param, code)
        assert (await operator.look("a"))["state"] == "serving"


# -- draining


async def test_draining_under_load(tmp_path: Path) -> None:
    """Nothing new goes there, nothing that runs is lost, and when it is empty one call tells. Then it comes back."""
    async with two(tmp_path) as (operator, a, b):
        for mock in (a, b):
            mock.script(default=Behaviour(tokens=("x",) * 20, tokens_per_second=200))
        answers: list[bool] = []
        stop = asyncio.Event()

        async def ask(number: int) -> None:
            while not stop.is_set():
                answer = await operator.client.post(CHAT, json=ASK | {"stream": number % 2 == 0})
                whole = answer.text.count("data: [DONE]") == 1 and "error" not in answer.text if number % 2 == 0 else True
                answers.append(answer.status_code == 200 and whole)

        async with asyncio.TaskGroup() as group:
            for number in range(8):
                group.create_task(ask(number))
            await until(lambda: len(a.requests_to(CHAT)) >= 8 and len(b.requests_to(CHAT)) >= 8 and a.in_flight > 0, "load on both")
            told = await operator.tell("a", state="draining", wait_s=30)
            assert (told["state"], told["in_flight"], told["drained"]) == ("draining", 0, True)
            before, done = len(a.requests_to(CHAT)), len(answers)
            assert a.in_flight == 0
            await until(lambda: len(answers) >= done + 24, "b alone serves")
            assert len(a.requests_to(CHAT)) == before
            assert (await operator.look("b"))["in_flight"] > 0
            assert (await operator.tell("a", state="serving"))["drained"] is False
            await until(lambda: len(a.requests_to(CHAT)) >= before + 4, "a is back")
            stop.set()
        assert all(answers)
        assert a.aborted == b.aborted == 0


async def test_a_wait_that_is_too_short_says_so_and_the_stream_goes_on(tmp_path: Path) -> None:
    async with HeldBackend() as held, MockBackend(["m"]) as mock:
        backends = {"a": spec(held.url), "b": spec(mock.url, enabled=False)}
        async with running(config_for(backends), tmp_path) as run, run.client() as client, wire(run.url) as stream:
            operator = Operator(run, client)
            stream.post(json.dumps(ASK | {"stream": True}).encode())
            await held.until_begun()
            told = await operator.tell("a", state="draining", wait_s=0.2)
            assert (told["state"], told["in_flight"], told["drained"]) == ("draining", 1, False)
            refused = await client.post(CHAT, json=ASK)
            assert (refused.status_code, error_of(refused)["code"]) == (503, "backend_unavailable")

            waiting = asyncio.create_task(operator.tell("a", state="draining", wait_s=300))
            held.go.set()
            answer = await stream.answer()
            assert answer.status == 200 and answer.body.count(b"[DONE]") == 1 and b"error" not in answer.body
            assert (await waiting)["drained"] is True


async def test_a_wait_ends_when_it_has_no_more_sense(tmp_path: Path) -> None:
    """The backend is to serve again; or who waited has gone; or the gateway itself ends."""
    async with (
        HeldBackend() as held,
        running(config_for({"a": spec(held.url)}), tmp_path) as run,
        run.client() as client,
        run.client() as hasty,
        wire(run.url) as stream,
    ):
        operator = Operator(run, client)
        stream.post(json.dumps(ASK | {"stream": True}).encode())
        await held.until_begun()
        tasks = len(asyncio.all_tasks())

        async def wait() -> asyncio.Task[dict[str, Any]]:
            await operator.tell("a", state="serving")
            waiting = asyncio.create_task(Operator(run, hasty).tell("a", state="draining", wait_s=300))
            await until(lambda: run.gateway.state.backends["a"].draining, "it drains")
            return waiting

        waiting = await wait()
        assert (await operator.tell("a", state="serving"))["drained"] is False
        assert (await waiting)["state"] == "serving"

        waiting = await wait()
        waiting.cancel()
        await asyncio.wait({waiting})
        await until(lambda: len(asyncio.all_tasks()) <= tasks, "nothing is left of it")

        waiting = await wait()
        run.app.drain()
        assert (await waiting)["drained"] is False
        held.go.set()


async def test_a_session_moves_and_stays_where_it_went(tmp_path: Path) -> None:
    async with two(tmp_path) as (operator, a, b):

        async def asked() -> tuple[int, int]:
            for _ in range(6):
                assert (await operator.client.post(CHAT, json=ASK | {"trilemma": {"session_id": "s"}})).status_code == 200
            return len(a.requests_to(CHAT)), len(b.requests_to(CHAT))

        first = await asked()
        assert sorted(first) == [0, 6]
        home, other = ("a", "b") if first[0] else ("b", "a")
        await operator.tell(home, state="draining")
        assert await asked() == (6, 6)
        await operator.tell(home, state="serving")
        await operator.tell(other, state="serving")
        assert sorted(await asked()) == [6, 12]


async def test_a_drained_one_is_probed_and_a_disabled_one_is_left_alone(tmp_path: Path) -> None:
    """By the scraper too. Back in use, it is looked at at once."""
    async with two(tmp_path) as (operator, a, _):
        assert (await operator.tell("a", state="draining"))["state"] == "draining"
        assert operator.probes() == {"a", "b"}
        assert (await operator.tell("a", state="disabled"))["state"] == "disabled"
        await until(lambda: operator.probes() == {"b"}, "a is not probed")
        await until(lambda: not any(task.get_name() == "metrics of a" for task in asyncio.all_tasks()), "nor scraped")
        assert {(await operator.client.post(CHAT, json=ASK)).headers["x-trilemma-attempts"] for _ in range(8)} == {"1"}
        assert a.requests_to(CHAT) == []
        before = len(a.requests_to("/v1/models"))
        assert (await operator.tell("a", state="serving"))["state"] == "serving"
        await a.wait_for(lambda m: len(m.requests_to("/v1/models")) > before)
        assert operator.probes() == {"a", "b"}


# -- what the operator said holds


async def test_it_survives_a_reload_that_changes_the_backend(tmp_path: Path) -> None:
    """So does the count of the calls that began before, or a script would think it empty."""
    async with HeldBackend() as held, MockBackend(["m"]) as mock:
        backends = {"a": spec(held.url), "b": spec(mock.url)}
        async with running(config_for(backends), tmp_path) as run, run.client() as client, wire(run.url) as stream:
            operator = Operator(run, client)
            await operator.tell("b", state="draining")
            stream.post(json.dumps(ASK | {"stream": True}).encode())
            await held.until_begun()
            await operator.tell("b", state="disabled")
            await operator.tell("a", state="draining")
            for weight in (2, 3):
                run.config["backends"] = {"a": spec(held.url, weight=weight), "b": spec(mock.url, weight=weight)}
                assert (await client.post("/admin/config/reload")).status_code == 200
            found = await operator.listed()
            assert [(each["state"], each["weight"], each["in_flight"]) for each in found.values()] == [
                ("draining", 3, 1),
                ("disabled", 3, 0),
            ]
            assert operator.probes() == {"a"}
            assert (await operator.tell("a", state="draining", wait_s=0.1))["drained"] is False
            held.go.set()
            assert b"[DONE]" in (await stream.answer()).body
            assert (await operator.tell("a", state="draining", wait_s=30))["drained"] is True
            assert (await client.post(CHAT, json=ASK)).status_code == 503
            await operator.tell("b", state="serving")
            assert (await client.post(CHAT, json=ASK)).status_code == 200


async def test_replicas_are_drained_by_their_own_names_while_others_come_and_go(tmp_path: Path) -> None:
    listed = tmp_path / "replicas.json"

    def write(*urls: str) -> None:
        draft = listed.with_suffix(".draft")
        draft.write_text(json.dumps(urls))
        draft.replace(listed)

    async with MockBackend(["m"]) as one, MockBackend(["m"]) as two, MockBackend(["m"]) as three:
        write(one.url, two.url)
        discovered = {"discover": {"file": {"path": str(listed), "interval_s": 0.02}}, "models": {"m": "m"}}
        async with over(tmp_path / "state", {"gpu": discovered}) as operator:
            name = one.url.replace("http://", "gpu/")
            await operator.tell(name, state="draining")
            write(one.url, three.url)
            await until(lambda: three.url.replace("http://", "gpu/") in operator.run.gateway.state.backends, "the new one")
            operator.run.config["backends"]["gpu"] = {**discovered, "weight": 3}
            assert (await operator.client.post("/admin/config/reload")).status_code == 200
            assert {each["name"]: each["state"] for each in (await operator.listed()).values()} == {
                name: "draining",
                three.url.replace("http://", "gpu/"): "serving",
            }
            for _ in range(8):
                assert (await operator.client.post(CHAT, json=ASK)).status_code == 200
            assert one.requests_to(CHAT) == []


async def test_off_is_the_configuration_s_word(tmp_path: Path) -> None:
    async with MockBackend(["m"]) as a, MockBackend(["m"]) as b:
        backends = {"a": spec(a.url, enabled=False), "b": spec(b.url)}
        async with running(config_for(backends), tmp_path) as run, run.client() as client:
            operator = Operator(run, client)
            assert (await operator.look("a"))["state"] == "off"
            assert (await operator.tell("a", state="serving"))["state"] == "off"
            run.config["backends"] = {"a": spec(a.url), "b": spec(b.url)}
            assert (await client.post("/admin/config/reload")).status_code == 200
            assert (await operator.look("a"))["state"] == "serving"


# -- another model


def models(root: str) -> Behaviour:
    listed = {"object": "list", "data": [{"id": "m", "object": "model", "created": 1, "owned_by": "vllm", "root": root}]}
    return Behaviour(path="/v1/models", body=json.dumps(listed), times=0)


async def test_another_model_is_left_out_until_it_is_accepted(tmp_path: Path) -> None:
    async with MockBackend(["m"], script=[models("org/first")]) as mock, over(tmp_path, {"a": spec(mock.url)}) as operator:
        assert (await operator.client.post(CHAT, json=ASK)).status_code == 200
        mock.reset()
        mock.script(models("org/second"))
        await operator.tell("a", state="disabled")
        await operator.tell("a", state="serving")  # which looks at it at once
        left_out = (await operator.until("a", lambda told: told["left_out"]))["left_out"]
        assert set(left_out) == {"m"} and "org/second" in left_out["m"] and "org/first" in left_out["m"]
        async with httpx.AsyncClient() as anybody:
            ready = (await anybody.get(f"{operator.run.url}/ready")).json()
        assert ready["degraded"] == ["another model answers where `m` should: a backend is left out"]
        assert (await operator.client.post(CHAT, json=ASK)).status_code == 503
        assert (await scrape(operator.client)).of("trilemma_backend_changed", backend="a") == 1
        accepted = await operator.tell("a", accept=True)
        assert accepted["left_out"] == accepted["changed"] == {}
        assert (await operator.client.post(CHAT, json=ASK)).status_code == 200
        assert (await scrape(operator.client)).of("trilemma_backend_changed", backend="a") == 0


async def test_another_model_goes_on_where_a_warning_is_all_that_is_wanted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with (
        MockBackend(["m"], script=[models("org/first")]) as mock,
        over(tmp_path, {"a": spec(mock.url, on_change="warn")}) as operator,
    ):
        assert (await operator.client.post(CHAT, json=ASK)).status_code == 200
        mock.reset()
        mock.script(models("org/second"))
        await operator.tell("a", state="disabled")
        await operator.tell("a", state="serving")
        told = await operator.until("a", lambda told: told["changed"])
        assert "org/second" in told["changed"]["m"] and told["left_out"] == {}
        async with httpx.AsyncClient() as anybody:
            ready = await anybody.get(f"{operator.run.url}/ready")
        assert (ready.status_code, ready.json()["degraded"]) == (
            200,
            ["another model answers where `m` should: a backend goes on all the same"],
        )
        assert (await scrape(operator.client)).of("trilemma_backend_changed", backend="a") == 1
        assert (await operator.client.post(CHAT, json=ASK)).status_code == 200
        said = [record.getMessage() for record in caplog.records if record.name == "trilemma.probe" and record.levelname == "WARNING"]
        assert said == ["backend a serves m with another model than at first: root is 'org/second', it was 'org/first'"]
        assert (await operator.tell("a", accept=True))["changed"] == {}


async def test_another_method_is_told_which_there_are(tmp_path: Path) -> None:
    async with MockBackend(["m"]) as mock, over(tmp_path, {"a": spec(mock.url)}) as operator:
        refused = await operator.client.delete(f"{ADMIN}/a")
        assert (refused.status_code, refused.headers["allow"]) == (405, "GET, PATCH")
        assert error_of(refused)["code"] == "caller_method_not_allowed"
        refused = await operator.client.post(ADMIN)
        assert (refused.status_code, refused.headers["allow"]) == (405, "GET")
