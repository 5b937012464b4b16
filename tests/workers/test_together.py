"""Two real workers are one gateway: whichever is asked, the answer is that of both."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Awaitable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from gateway.mock import MockBackend
from tests.support.asking import CHAT, error_of, question
from tests.support.held import HeldBackend
from tests.support.raw import Wire
from tests.support.running import DIGEST, config_for
from tests.support.scraping import scrape
from tests.support.serving import Serving, serving
from tests.support.stored import stored
from tests.support.waiting import until
from tests.workers.looking import clients, until_so, until_workers, wires

pytestmark = pytest.mark.asyncio(loop_scope="module")


@dataclass
class Both:
    """Two workers over two backends: `mock-model`, which answers, and `held-model`, which waits. one, other: clients of one worker each."""

    gateway: Serving
    mock: MockBackend
    held: HeldBackend
    one: httpx.AsyncClient
    other: httpx.AsyncClient
    config: dict[str, Any]
    database: Path

    async def reload(self, **sections: Any) -> httpx.Response:
        """Changes the file and tells one worker."""
        server = json.loads(self.gateway.file.read_text())["server"]
        self.gateway.file.write_text(json.dumps({**self.config, **sections, "server": server}))
        return await self.one.post("/admin/config/reload")

    def rows(self) -> dict[str, dict[str, Any]]:
        """Decisions by id."""
        return {row["id"]: row for row in stored(self.database)} if self.database.exists() else {}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def both(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Both]:
    folder = tmp_path_factory.mktemp("both")
    async with MockBackend(["mock-model"]) as mock, HeldBackend() as held:
        config = config_for(
            {
                "mock": {"url": mock.url, "models": {"mock-model": "mock-model"}},
                "held": {"url": held.url, "models": {"held-model": "mock-model"}},
            },
            server={"workers": 2},
            keys=[
                {"name": "test", "sha256": DIGEST, "scopes": ["inference", "admin"]},
                {"name": "single", "sha256": hashlib.sha256(b"sk-single").hexdigest(), "limits": {"concurrency": 1}},
            ],
            storage={"url": "sqlite:///decisions.db"},
        )
        async with serving(folder, config) as gateway:
            await until_workers(gateway)
            await gateway.until_status("/ready", 200)
            async with clients(gateway) as asking:
                yield Both(gateway, mock, held, asking[1], asking[2], config, folder / "decisions.db")


@pytest_asyncio.fixture(loop_scope="module", autouse=True)
async def _calm(both: Both) -> AsyncIterator[None]:
    """Each test begins with a backend that waits, and leaves none waiting."""
    both.held.go.clear()
    yield
    print(both.gateway.log.read_text()[-2_000:])  # for a test that has failed
    both.held.go.set()
    await until(lambda: both.held.begun == both.held.ended, "all held calls end")


async def _is(asked: Awaitable[float], value: float) -> bool:
    return await asked == value


async def _failures(client: httpx.AsyncClient) -> float:
    return (await scrape(client)).of("trilemma_config_reload_failures_total")


async def _in_flight(client: httpx.AsyncClient, backend: str) -> float:
    return float((await client.get(backend)).json()["in_flight"])


async def test_both_serve_and_all_decisions_are_kept(both: Both) -> None:
    """Also while both write as fast as they can. Ids are unique; a session is one session, whoever served it: its digest was made with the
    same secret."""
    body = json.dumps(question(max_tokens=1)).encode()

    async def ask(connection: Wire) -> list[str]:
        ids = []
        for _ in range(60):
            connection.post(body, CHAT, "x-trilemma-session-id: s")
            answer = await connection.answer()
            assert answer.status == 200
            ids.append(answer.headers["x-trilemma-decision-id"])
        return ids

    async with wires(both.gateway, each=4) as connections:
        found = await asyncio.gather(*(ask(connection) for mine in connections.values() for connection in mine))
    ids = {id_ for mine in found for id_ in mine}
    assert len(ids) == 480
    await until(lambda: ids <= both.rows().keys(), "all rows")
    assert len({row["session"] for id_, row in both.rows().items() if id_ in ids}) == 1


async def test_either_s_metrics_are_those_of_both(both: Both) -> None:
    path = "/v1/completions"

    async def counted(client: httpx.AsyncClient) -> float:
        return (await scrape(client)).of("trilemma_requests_total", route=path)

    for client, count in ((both.one, 30), (both.other, 70)):
        for _ in range(count):
            assert (await client.post(path, json={"model": "mock-model", "prompt": "hi"})).status_code == 200
    for client in (both.one, both.other):
        await until_so(lambda client=client: _is(counted(client), 100))  # what the other counted is seen a second later
    numbers = await scrape(both.one)
    assert numbers.of("trilemma_build_info") == 1, "there is one gateway"
    assert numbers.of("process_resident_memory_bytes") > 80e6, "of two processes"


async def test_a_new_configuration_is_both_s(both: Both) -> None:
    answer = await both.reload(models={"mock-model": {"aliases": ["short"]}})
    assert answer.status_code == 200
    for client in (both.one, both.other):
        assert "short" in [card["id"] for card in (await client.get("/v1/models")).json()["data"]]
        assert (await client.get("/admin/config")).json()["hash"] == answer.json()["hash"]
        assert (await client.post(CHAT, json=question(model="short"))).status_code == 200


async def test_a_configuration_with_problems_is_nobody_s(both: Both) -> None:
    failures = await _failures(both.other)
    before = (await both.other.get("/admin/config")).json()["hash"]
    refused = await both.reload(modles={})
    assert (refused.status_code, error_of(refused)["code"]) == (400, "gateway_reload_failed")
    for client in (both.one, both.other):
        shown = (await client.get("/admin/config")).json()
        assert "did you mean `models`" in str(shown["last_error"])
        assert shown["hash"] == before
        assert (await client.post(CHAT, json=question())).status_code == 200
    await until_so(lambda: _is(_failures(both.other), failures + 1))
    assert (await both.reload()).status_code == 200
    assert (await both.other.get("/admin/config")).json()["last_error"] is None


async def stream(connection: Wire, held: HeldBackend) -> None:
    """A stream whose first event has come."""
    before = held.begun
    connection.post(json.dumps(question(model="held-model", stream=True)).encode())
    await held.until_begun(before + 1)
    status, _ = await connection.head()
    assert status == 200


async def test_a_backend_is_drained_of_the_calls_of_both(both: Both) -> None:
    """And neither gives it new ones, until it serves again in both."""
    backend = "/admin/backends/held"
    async with wires(both.gateway) as connections:
        await stream(connections[1][0], both.held)
        await stream(connections[2][0], both.held)
        for client in (both.one, both.other):
            assert (await client.get(backend)).json()["in_flight"] == 2
            listed = {each["name"]: each for each in (await client.get("/admin/backends")).json()["data"]}
            assert [listed[name]["in_flight"] for name in ("mock", "held")] == [0, 2]
        told = (await both.one.patch(backend, json={"state": "draining"})).json()
        assert (told["state"], told["in_flight"], told["drained"]) == ("draining", 2, False)
        for client in (both.one, both.other):
            assert (await client.get(backend)).json()["state"] == "draining"
            assert (await client.post(CHAT, json=question(model="held-model"))).status_code == 503
        waiting = asyncio.create_task(both.other.patch(backend, params={"wait_s": 60}, json={"state": "draining"}))
        connections[2][0].close()  # its call ends with it, the other's goes on
        await until_so(lambda: _is(_in_flight(both.one, backend), 1))
        assert not waiting.done()
        both.held.go.set()
        assert (await waiting).json()["drained"] is True
    assert (await both.other.patch(backend, json={"state": "serving"})).json()["state"] == "serving"
    for client in (both.one, both.other):
        assert (await client.post(CHAT, json=question(model="held-model"))).status_code == 200


async def test_a_limit_of_one_under_fifty_calls_lets_one_through(both: Both) -> None:
    before = both.held.begun
    async with wires(both.gateway, each=25) as connections:
        all_ = [connection for mine in connections.values() for connection in mine]
        body = json.dumps(question(model="held-model")).encode()
        request = (
            f"POST {CHAT} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer sk-single\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body
        )
        for connection in all_:
            connection.send(request)
        answers = [asyncio.create_task(connection.answer()) for connection in all_]
        await until(lambda: sum(answer.done() for answer in answers) == 49, "all but one are refused")
        assert {answer.result().status for answer in answers if answer.done()} == {429}
        assert both.held.begun == before + 1
        both.held.go.set()
        assert sorted(answer.status for answer in await asyncio.gather(*answers)) == [200] + [429] * 49


async def test_a_repeat_with_the_other_worker_is_no_second_run(both: Both) -> None:
    """It waits while the first runs, and gets its answer; with another request the key is refused."""
    before, headers = both.held.begun, {"idempotency-key": "once"}
    first = asyncio.create_task(both.one.post(CHAT, json=question(model="held-model"), headers=headers))
    await both.held.until_begun(before + 1)
    second = asyncio.create_task(both.other.post(CHAT, json=question(model="held-model"), headers=headers))
    async with clients(both.gateway) as more:
        refused = await more[2].post(CHAT, json=question(model="held-model", n=2), headers=headers)
        assert (refused.status_code, error_of(refused)["code"]) == (409, "caller_idempotency_conflict")
        both.held.go.set()
        one, other = await first, await second
        assert one.status_code == other.status_code == 200
        assert one.content == other.content
        assert "x-trilemma-replayed" not in one.headers
        for _ in range(2):
            assert other.headers.get_list("x-trilemma-replayed") == ["true"]
            assert other.headers["x-trilemma-decision-id"] == one.headers["x-trilemma-decision-id"]
            other = await more[2].post(CHAT, json=question(model="held-model"), headers=headers)
    assert both.held.begun == before + 1


async def test_a_repeat_of_what_failed_runs_again(both: Both) -> None:
    headers = {"idempotency-key": "again"}
    body = question(model="held-model")
    before = both.held.begun
    async with clients(both.gateway) as more:
        first = asyncio.create_task(more[1].post(CHAT, json=body, headers=headers))
        await both.held.until_begun(before + 1)
        second = asyncio.create_task(both.other.post(CHAT, json=body, headers=headers))
        first.cancel()
        await both.held.until_begun(before + 2)
    both.held.go.set()
    answer = await second
    assert answer.status_code == 200
    assert "x-trilemma-replayed" not in answer.headers
    assert both.held.begun == before + 2
