"""A discovered backend: its replicas come and go while requests are served."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gateway.mock import Behaviour, MockBackend
from tests.support.running import config_for, running
from tests.support.waiting import until

CHAT = "/v1/chat/completions"
ASK: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


def write(path: Path, *urls: str) -> None:
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps(list(urls)))
    draft.replace(path)


async def test_replicas_from_a_file(tmp_path: Path) -> None:
    listed = tmp_path / "replicas.json"
    discover = {"file": {"path": str(listed), "interval_s": 0.02}}
    config = config_for({"gpu": {"discover": discover, "engine": "vllm", "models": {"m": "m"}}}, models={"m": {"aliases": ["also"]}})
    async with MockBackend(["m"]) as one, MockBackend(["m"]) as two:
        write(listed, one.url)
        async with running(config, tmp_path) as run, run.client() as client:
            assert (await client.post(CHAT, json=ASK)).status_code == 200
            write(listed, one.url, two.url)
            await until(lambda: len(run.gateway.state.backends) == 2, "the second replica")
            one.script(Behaviour(stall_after_events=2))
            two.script(Behaviour(stall_after_events=2))
            async with client.stream("POST", CHAT, json=ASK | {"stream": True}) as answer:
                assert answer.status_code == 200
                write(listed, two.url)
                await until(lambda: len(run.gateway.state.backends) == 1, "the first one's end")
                mock = one if one.in_flight else two
                assert mock.in_flight == 1, "what was begun goes on"
            one.reset()
            two.reset()
            assert {(await client.post(CHAT, json=ASK | {"model": "also"})).status_code for _ in range(6)} == {200}
            assert len(one.requests_to(CHAT)) == 0
            listed.write_text("{broken")
            sources: dict[str, Any] = {}

            async def read() -> None:
                sources.update((await client.get("/admin/backends")).json()["sources"]["gpu"])

            for _ in range(500):
                await read()
                if sources["last_error"]:
                    break
            assert sources["last_error"] and sources["replicas"] == 1
            assert (await client.post(CHAT, json=ASK)).status_code == 200, "what was known stays"
            write(listed)
            await until(lambda: not run.gateway.state.backends, "the last one's end")
            none = await client.post(CHAT, json=ASK)
            assert (none.status_code, none.json()["error"]["code"]) == (503, "backend_unavailable")
            assert (await client.get("/ready")).status_code == 503


async def test_a_source_that_cannot_be_is_told_at_once(tmp_path: Path) -> None:
    async with MockBackend(["m"]) as one:
        config = config_for({"gpu": {"url": one.url, "models": {"m": "m"}}})
        async with running(config, tmp_path) as run, run.client() as client:
            run.config["backends"]["gpu"] = {"discover": {"kubernetes": {"service": "vllm"}}, "models": {"m": "m"}}
            assert (await client.post("/admin/config/reload")).status_code == 400
            assert (await client.post(CHAT, json=ASK)).status_code == 200
