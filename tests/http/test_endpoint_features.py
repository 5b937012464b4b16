"""Features of an embeddings endpoint, as operators and callers see them: what is decided with, and what happens when it is not there."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from math import hypot, sqrt
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.engines.spec import free_port
from gateway.learning.blocks import unpacked
from gateway.mock import MockBackend
from gateway.serving.choice import Choice
from tests.support.asking import CHAT
from tests.support.keeping import keeping
from tests.support.running import Running, running
from tests.support.scraping import Scrape
from tests.support.vectors import Vectors

SYSTEM, SECRET = "be of help", "the question that nobody may log"
TALK = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": SECRET}]
VECTORS = {SYSTEM: [3.0, 0.0, 4.0], SECRET: [0.0, -2.0, 0.0]}


@pytest.fixture
async def mock() -> AsyncIterator[MockBackend]:
    """The engine behind both plans."""
    async with MockBackend(["mock-model"]) as backend:
        yield backend


def reading(mock: MockBackend, server: Vectors, *, encoder_ms: float = 10_000.0, **endpoint: Any) -> dict[str, Any]:
    """`auto` reads the endpoint's features."""
    plans = {"cheap": {"model": "other"}, "dear": {"model": "mock-model"}}
    return keeping(
        mock,
        "",
        embeddings={"emb": {"url": server.url, "model": "mini", "dimensions": 3, "timeout_s": 30.0} | endpoint},
        policies={"learn": {"type": "linucb", "params": {"features": ["endpoint:emb"]}, "floor": 0.1, "seed": 3}},
        virtual_models={"auto": {"policy": "learn", "plans": plans, "baseline": "dear"}},
        learning={"encoder_ms": encoder_ms},
    )


async def asked(run: Running, client: httpx.AsyncClient, *messages: dict[str, str]) -> Choice:
    """How an answer that came was decided."""
    count = len(run.settled)
    answer = await client.post(CHAT, json={"model": "auto", "messages": list(messages or TALK)})
    assert answer.status_code == 200, answer.text
    await run.until_settled(count + 1)
    choice = run.settled[count].choice
    assert choice is not None
    return choice


async def test_a_request_is_decided_with_what_the_endpoint_says(mock: MockBackend, tmp_path: Path) -> None:
    with Vectors(VECTORS) as server:
        async with running(reading(mock, server), tmp_path) as run, run.client("sk-shop") as client:
            found = await asked(run, client)

    assert found.decided.fallback is None
    ((name, block),) = unpacked(found.features, found.feature_version).items()
    assert name.startswith("endpoint:emb-")
    one, two = sqrt(len(SYSTEM)), sqrt(len(SECRET))
    summed = [one * 0.6, -two, one * 0.8]  # each vector at length 1, times the root of its text's length
    assert block.tolist() == pytest.approx([each / hypot(*summed) for each in summed])
    assert [body["input"] for body in server.asked] == [[SYSTEM, SECRET]]


async def test_a_turn_asks_for_what_is_new_in_it(mock: MockBackend, tmp_path: Path) -> None:
    with Vectors(VECTORS, other=[1.0, 1.0, 1.0]) as server:
        async with running(reading(mock, server), tmp_path) as run, run.client("sk-shop") as client:
            await asked(run, client)
            await asked(run, client, *TALK, {"role": "assistant", "content": "yes"}, {"role": "user", "content": "and then?"})
    assert [body["input"] for body in server.asked] == [[SYSTEM, SECRET], ["yes", "and then?"]]


@pytest.mark.parametrize("amiss", ["status", "shape", "gone"])
async def test_without_the_endpoint_the_baseline_serves(
    mock: MockBackend, tmp_path: Path, amiss: str, caplog: pytest.LogCaptureFixture
) -> None:
    with Vectors(VECTORS) as server:
        config = reading(mock, server)
        if amiss == "status":
            server.status = 503
        elif amiss == "shape":
            config["embeddings"]["emb"]["dimensions"] = 4
        else:
            config["embeddings"]["emb"]["url"] = f"http://127.0.0.1:{free_port()}"
        async with running(config, tmp_path) as run, run.client("sk-shop") as client, run.client("sk-ops") as ops:
            found = await asked(run, client)
            numbers = Scrape((await ops.get("/metrics")).text)

    assert (found.decided.fallback, found.plan.name, found.features) == ("failed", "dear", None)
    assert numbers.of("trilemma_decisions_failed_total", reason="failed") == 1
    assert [each for each in caplog.messages if "the embeddings endpoint `emb` gives no features" in each]
    assert SECRET not in caplog.text


async def test_who_is_too_slow_is_not_waited_for_and_what_it_says_is_remembered(
    mock: MockBackend, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with Vectors(VECTORS) as server:
        server.held.clear()
        async with running(reading(mock, server, encoder_ms=150.0), tmp_path) as run, run.client("sk-shop") as client:
            late = await asked(run, client)
            async with run.client("sk-ops") as ops:
                numbers = Scrape((await ops.get("/metrics")).text)
            server.held.set()
            async with asyncio.timeout(20):
                while (again := await asked(run, client)).decided.fallback is not None:
                    assert again.decided.fallback == "features_late"
    assert (late.decided.fallback, late.plan.name) == ("features_late", "dear")
    assert numbers.of("trilemma_decisions_failed_total", reason="features_late") == 1
    assert SECRET not in caplog.text


async def test_a_reload_with_another_model_makes_other_features(mock: MockBackend, tmp_path: Path) -> None:
    with Vectors(VECTORS) as server:
        async with (
            running(reading(mock, server), tmp_path) as run,
            run.client("sk-shop") as client,
            run.client("sk-ops") as ops,
        ):
            first = await asked(run, client)
            run.config["limits"] = {"key": {"rpm": 1_000}}
            assert (await ops.post("/admin/config/reload")).status_code == 200
            same = await asked(run, client)
            assert len(server.asked) == 1  # what is remembered goes on over a reload

            run.config["embeddings"]["emb"]["model"] = "mini-2"
            assert (await ops.post("/admin/config/reload")).status_code == 200
            other = await asked(run, client)
            assert run.gateway.state.config.embeddings["emb"].model == "mini-2"

    assert first.feature_version == same.feature_version != other.feature_version
    assert other.decided.fallback is None
    assert [body["model"] for body in server.asked] == ["mini", "mini-2"]


async def test_no_caller_chooses_the_address(mock: MockBackend, tmp_path: Path) -> None:
    """Whatever a body or a header says of an endpoint, the operator's is asked."""
    with Vectors({}, other=[1.0, 0.0, 0.0]) as elsewhere, Vectors({}, other=[1.0, 0.0, 0.0]) as server:
        async with running(reading(mock, server), tmp_path) as run, run.client("sk-shop") as client:
            body = {"model": "auto", "messages": TALK, "embeddings": {"emb": {"url": elsewhere.url}}, "embeddings_url": elsewhere.url}
            answer = await client.post(CHAT, json=body, headers={"x-embeddings-url": elsewhere.url, "host": elsewhere.url[7:]})
            assert answer.status_code == 200
    assert (len(server.asked), len(elsewhere.asked)) == (1, 0)
