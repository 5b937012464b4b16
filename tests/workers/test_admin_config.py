"""The configuration is changed through one worker, and it is all of them that have it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from gateway.mock import MockBackend
from tests.support.running import config_for
from tests.support.serving import Serving, serving
from tests.support.stored import stored
from tests.workers.looking import clients, until_so, until_workers

pytestmark = pytest.mark.asyncio(loop_scope="module")

PATH = "/admin/config"
SECRET = "sh0rt"


@dataclass
class Both:
    """Two workers over one database. one, other: clients of one worker each."""

    gateway: Serving
    one: httpx.AsyncClient
    other: httpx.AsyncClient
    database: Path

    async def text(self, alias: str) -> str:
        """Of the configuration, with another alias."""
        source = json.loads((await self.one.get(f"{PATH}/source")).text)
        return json.dumps(source | {"models": {"mock-model": {"aliases": [alias]}}})

    async def tag(self) -> str:
        """Of what runs, which is the same everywhere."""
        tags = {(await client.get(PATH)).headers["etag"] for client in (self.one, self.other)}
        assert len(tags) == 1
        return tags.pop()

    async def names(self) -> list[set[str]]:
        """What each worker serves."""
        answers = [await client.get("/v1/models") for client in (self.one, self.other)]
        return [{card["id"] for card in answer.json()["data"]} for answer in answers]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def both(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Both]:
    folder = tmp_path_factory.mktemp("both")
    async with MockBackend(["mock-model"]) as mock:
        backend = {"url": mock.url, "models": {"mock-model": "mock-model"}, "key": SECRET}
        config = config_for({"mock": backend}, server={"workers": 2}, storage={"url": "sqlite:///decisions.db"})
        async with serving(folder, config) as gateway:
            await until_workers(gateway)
            async with clients(gateway) as asking:
                both = Both(gateway, asking[1], asking[2], folder / "decisions.db")

                async def stored_once() -> bool:
                    answers = [await client.get(PATH) for client in (both.one, both.other)]
                    return [answer.json()["version"] for answer in answers] == [1, 1]

                await until_so(stored_once, 60)  # the schema is made by then
                yield both


def put(client: httpx.AsyncClient, text: str, tag: str) -> Any:
    return client.put(PATH, content=text, headers={"if-match": tag})


async def test_each_worker_masks_secrets(both: Both) -> None:
    for client in (both.one, both.other):
        shown = (await client.get(f"{PATH}/source")).text
        assert json.loads(shown)["backends"]["mock"]["key"] == "***"
        assert SECRET not in shown


async def test_what_one_is_given_all_have(both: Both) -> None:
    answer = await put(both.other, await both.text("given"), await both.tag())

    assert answer.status_code == 200, answer.text
    assert await both.names() == [{"mock-model", "given"}] * 2
    assert answer.headers["etag"] == await both.tag()
    assert f'"key": "{SECRET}"' in both.gateway.file.read_text(), "what was shown masked is as it was"


async def test_of_those_who_ask_different_workers_at_once_one_wins(both: Both) -> None:
    seen, texts = await both.tag(), [await both.text(f"at-once-{n}") for n in range(6)]

    answers = await asyncio.gather(*(put((both.one, both.other)[n % 2], text, seen) for n, text in enumerate(texts)))

    assert sorted(answer.status_code for answer in answers) == [200, 412, 412, 412, 412, 412], [answer.text for answer in answers]
    (winner,) = (n for n, answer in enumerate(answers) if answer.status_code == 200)
    assert await both.names() == [{"mock-model", f"at-once-{winner}"}] * 2
    assert f"at-once-{winner}" in both.gateway.file.read_text()


async def test_the_record_is_that_of_all(both: Both) -> None:
    await put(both.one, await both.text("recorded"), await both.tag())
    await both.other.patch("/admin/backends/mock", json={"state": "draining"})
    await both.one.patch("/admin/backends/mock", json={"state": "serving"})

    for client in (both.one, both.other):
        entries = (await client.get("/admin/audit", params={"limit": "3"})).json()
        assert [each["action"] for each in entries["data"]] == ["backend.serve", "backend.drain", "config.put"]
        newest, *_ = (await client.get(f"{PATH}/versions")).json()["data"]
        assert (newest["by_key"], newest["running"], newest["hash"]) == ("test", True, (await both.tag()).strip('"'))

    rows = stored(both.database, "config_versions")
    assert len({row["hash"] for row in rows}) == len(rows), "each of them once, though both ran it"
    assert [row["by_key"] for row in rows] == [None] + ["test"] * (len(rows) - 1)
    assert {row["text"] for row in rows} == {None}, "they hold a secret"


async def test_what_is_wrong_changes_nothing_anywhere(both: Both) -> None:
    names, tag, text = await both.names(), await both.tag(), both.gateway.file.read_text()

    answer = await put(both.other, "version: 1\nbackends: {}\n", tag)

    assert [each["path"] for each in answer.json()["problems"]] == ["backends"]
    assert (await both.names(), await both.tag(), both.gateway.file.read_text()) == (names, tag, text)
