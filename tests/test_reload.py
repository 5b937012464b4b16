from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from gateway.config.load import Loaded
from gateway.engines.packaged import EngineError
from gateway.engines.spec import EngineSpec
from gateway.mock import MockBackend
from tests.support.asking import CHAT, question
from tests.support.running import Running, config_for, running
from tests.support.waiting import until


@pytest.fixture
def config(mock: MockBackend) -> dict[str, Any]:
    return config_for({"mock": {"url": mock.url, "models": {"mock-model": "mock-model"}}})


async def serves(run: Running, model: str) -> bool:
    async with run.client() as client:
        return (await client.post(CHAT, json=question(model=model))).status_code == 200


async def test_engines_that_are_late_do_not_end_the_gateway(
    config: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Their supervisor does not answer: the new configuration is in use all the same, and says what is wrong."""
    async with running(config, tmp_path / "state") as run:

        async def silent(_engines: list[EngineSpec]) -> None:
            raise EngineError("the supervisor of the engines does not answer")

        monkeypatch.setattr("gateway.engines.supervisor.Supervisor.apply", lambda _self, engines: silent(engines))
        run.config["models"] = {"mock-model": {"aliases": ["new"]}}
        run.app.request_reload()
        await until(lambda: run.app.reloader.status()["last_error"], "the reload has ended")
        assert run.app.reloader.status()["last_error"] == [
            "the configuration is in use, but its engines are late: the supervisor of the engines does not answer"
        ]
        assert await serves(run, "new")
        monkeypatch.undo()
        assert await run.app.reloader.reload()
        assert run.app.reloader.status()["last_error"] is None
    assert [record for record in caplog.records if record.exc_info] == []


async def test_a_fault_in_a_reload_asked_for_by_signal_is_logged_and_the_next_one_works(
    config: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(config, tmp_path / "state") as run:

        def broken(*_: object) -> Loaded:
            raise RuntimeError("a fault")

        with monkeypatch.context() as patched:
            patched.setattr("gateway.reload.state_of", broken)
            run.app.request_reload()
            await until(lambda: "RuntimeError: a fault" in caplog.text, "the fault is logged")
        assert await serves(run, "mock-model")
        run.config["models"] = {"mock-model": {"aliases": ["new"]}}
        run.app.request_reload()
        await until(lambda: "new" in run.gateway.state.names, "the reload")
        await asyncio.sleep(0)
        assert await serves(run, "new")
    assert [record.levelno for record in caplog.records if record.exc_info] == [logging.ERROR]
