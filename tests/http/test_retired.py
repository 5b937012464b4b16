"""Whoever asks for a retired model is served by its successor, and told so."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.mock import MockBackend
from tests.support.asking import CHAT, question
from tests.support.running import config_for, running

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_the_successor_serves(mock: MockBackend, tmp_path: Path) -> None:
    models = {"mock-model": {}, "old": {"replaced_by": "mock-model", "aliases": ["older"]}}
    config = config_for({"a": {"url": mock.url, "models": {"mock-model": "mock-model"}}}, models=models)
    async with running(config, tmp_path) as run, run.client() as client:
        for name in ("old", "older"):
            answer = await client.post(CHAT, json=question(model=name))
            assert (answer.status_code, answer.headers["x-trilemma-model"], answer.json()["model"]) == (200, "mock-model", "mock-model")
        assert [card["id"] for card in (await client.get("/v1/models")).json()["data"]] == ["mock-model", "old", "older"]
