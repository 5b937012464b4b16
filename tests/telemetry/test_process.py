"""The log of `trilemma serve`, as it stands on stderr, and what only a process of its own can count."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx

from gateway.engines.spec import free_port
from gateway.mock import MockBackend
from tests.support.asking import CHAT, question
from tests.support.engine import trilemma
from tests.support.running import KEY, config_for
from tests.support.scraping import scrape
from tests.support.waiting import until

BACKEND_KEY = "canary-of-the-backend"


async def test_lines_of_json_until_the_configuration_says_otherwise(mock: MockBackend, tmp_path: Path) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    file, log = tmp_path / "trilemma.json", tmp_path / "stderr.txt"

    def write(**logs: Any) -> None:
        backends = {"mock": {"url": mock.url, "key": BACKEND_KEY, "models": {"mock-model": "mock-model"}}}
        file.write_text(json.dumps(config_for(backends, server={"port": port}, telemetry={"logs": logs})))

    await asyncio.to_thread(write, format="json", level="debug", access=True)
    with trilemma("serve", "--config", file, folder=tmp_path, url=url, key=KEY) as started:
        await asyncio.to_thread(started.until_answers, "/ready")
        async with httpx.AsyncClient(base_url=url, headers=started.headers, timeout=30) as client:
            answer = await client.post(CHAT, json=question())
            await client.post(CHAT, json=question(), headers={"authorization": "Bearer canary-of-a-stranger"})
            await until(lambda: log.read_text().count("trilemma.access") == 2)
            lines = [json.loads(line) for line in log.read_text().splitlines()]
            counted = await scrape(client)

            await asyncio.to_thread(write, format="text", level="warning")
            assert (await client.post("/admin/config/reload")).status_code == 200
            before = log.read_text()
            await client.post(CHAT, json=question())
        assert await asyncio.to_thread(started.end) == 0
    assert lines[0]["message"] == f"trilemma listens on {url}"
    access = next(line for line in lines if line["logger"] == "trilemma.access")
    assert (access["decision_id"], access["status"], access["key"]) == (answer.headers["x-trilemma-decision-id"], 200, "test")
    assert "canary" not in log.read_text()
    # A reload ends the object lines and the lines of each request.
    assert log.read_text() == before
    assert counted.of("trilemma_connections", side="clients") >= 1
    assert counted.of("trilemma_connections", side="backends") >= 1


async def test_the_command_line_s_level_wins(mock: MockBackend, tmp_path: Path) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    file = tmp_path / "trilemma.json"
    backends = {"mock": {"url": mock.url, "models": {"mock-model": "mock-model"}}}
    logs = {"level": "debug", "access": True}
    await asyncio.to_thread(file.write_text, json.dumps(config_for(backends, server={"port": port}, telemetry={"logs": logs})))
    with trilemma("serve", "--config", file, "--log-level", "error", folder=tmp_path, url=url, key=KEY) as started:
        await asyncio.to_thread(started.until_answers, "/ready")
        async with httpx.AsyncClient(base_url=url, headers=started.headers, timeout=30) as client:
            assert (await client.post(CHAT, json=question())).status_code == 200
        assert await asyncio.to_thread(started.end) == 0
    assert (tmp_path / "stderr.txt").read_text() == f"trilemma listens on {url}\n"
