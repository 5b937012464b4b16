"""Probes ask where the traffic goes, with its key; what they are refused is nothing against a backend; and they end with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway.mock import Behaviour, MockBackend
from tests.pool.scripted import Peer, Request
from tests.reliability.engines import CHAT as BODY
from tests.reliability.engines import Engine, engine, whole
from tests.support.asking import CHAT, question
from tests.support.running import config_for, running
from tests.support.waiting import until

MODEL = {"models": {"mock-model": "mock-model"}}


@pytest.mark.parametrize("base", ["", "/v1", "/gpu/7", "/gpu/7/v1/"])
async def test_a_backend_behind_a_key_and_a_path(tmp_path: Path, base: str) -> None:
    """Whatever the gateway asks, for its models, its load, or an answer, it asks there and with the key."""

    async def answers(_engine: Engine, peer: Peer, _request: Request) -> bool:
        await peer.send(whole(BODY))
        return True

    async with engine(answers) as served:
        backend: dict[str, Any] = {"url": served.url + base, "engine": "vllm", "key": "sk-backend", "models": {"m": "m"}}
        # Two of them, so that their load is asked for.
        async with running(config_for({"a": backend, "b": backend}), tmp_path) as run, run.client() as client:
            await until(lambda: len({request.line for request in served.others}) == 2, "a probe and a question for the load")
            assert (await client.post(CHAT, json={"model": "m", "messages": []})).status_code == 200
            assert (await client.get("/ready")).status_code == 200
        root = base.removesuffix("/").removesuffix("/v1").encode()
        assert {request.line for request in served.others} == {b"GET %s%s HTTP/1.1" % (root, path) for path in (b"/v1/models", b"/metrics")}
        assert {request.line for request in served.calls} == {b"POST %s/v1/chat/completions HTTP/1.1" % root}
        for request in (*served.others, *served.calls):
            assert (b"authorization", b"Bearer sk-backend") in request.headers, request.line


@pytest.mark.parametrize("status", [401, 403, 404, 405, 500, 503])
async def test_a_backend_that_refuses_probes_serves_all_the_same(tmp_path: Path, status: int) -> None:
    """What it thinks of a question for its models says nothing of its work: calls go there, and it is not held to be down."""
    refusal = Behaviour(path="/v1/models", status=status, times=0)
    async with (
        MockBackend(script=[refusal]) as mock,
        running(config_for({"a": {"url": mock.url, **MODEL}}), tmp_path) as run,
        run.client() as client,
    ):
        await mock.wait_for(lambda m: any(request.answered for request in m.requests_to("/v1/models")))
        for _ in range(5):
            assert (await client.post(CHAT, json=question())).status_code == 200
        assert (await client.get("/ready")).status_code == 200
        assert run.gateway.state.backends["a"].breaker.state == "closed"


async def test_a_backend_that_was_removed_is_asked_nothing_more(tmp_path: Path) -> None:
    """Two that are still starting are asked again and again; from the reload on, only the one that is left."""
    starting = Behaviour(path="/v1/models", status=503, times=0)
    async with MockBackend(script=[starting]) as gone, MockBackend(script=[starting]) as kept:
        config = config_for({"gone": {"url": gone.url, **MODEL}, "kept": {"url": kept.url, **MODEL}})
        async with running(config, tmp_path) as run:
            for mock in (gone, kept):
                await mock.wait_for(lambda m: m.total >= 2)
            del run.config["backends"]["gone"]
            assert await run.app.reloader.reload()
            heard, now = gone.total, kept.total
            await kept.wait_for(lambda m: m.total >= now + 3)
            assert gone.total == heard


async def test_a_backend_that_moved_is_asked_at_its_new_place_only(tmp_path: Path) -> None:
    """The same name with another URL: the old place hears nothing more."""
    starting = Behaviour(path="/v1/models", status=503, times=0)
    async with (
        MockBackend(script=[starting]) as old,
        MockBackend(script=[starting]) as new,
        running(config_for({"a": {"url": old.url, **MODEL}}), tmp_path) as run,
    ):
        await old.wait_for(lambda m: m.total >= 2)
        run.config["backends"]["a"] = {"url": new.url, **MODEL}
        assert await run.app.reloader.reload()
        heard = old.total
        await new.wait_for(lambda m: m.total >= 3)
        assert old.total == heard
