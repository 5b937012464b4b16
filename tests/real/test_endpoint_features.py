"""Features of a real engine's embeddings: what a request is decided with is what llama.cpp says of its text."""

from __future__ import annotations

from pathlib import Path

import httpx
import numpy as np
import pytest

from gateway.learning.blocks import unpacked
from tests.support.asking import CHAT
from tests.support.engine import STRONG, WEAK, Started
from tests.support.running import config_for, running

TEXT = "Is a kitten a cat?"


async def test_a_request_is_decided_with_what_the_engine_says(stack: Started, tmp_path: Path) -> None:
    strong, weak = stack.engine("strong").url, stack.engine("weak").url
    async with httpx.AsyncClient(timeout=60) as direct:
        said = await direct.post(f"{strong}/v1/embeddings", json={"model": STRONG, "input": TEXT, "encoding_format": "float"})
    vector = np.array(said.json()["data"][0]["embedding"])
    config = config_for(
        {"a": {"url": strong, "engine": "llama.cpp", "models": {"strong": STRONG}}, "b": {"url": weak, "models": {"weak": WEAK}}},
        embeddings={"own": {"url": strong, "model": STRONG, "dimensions": len(vector), "timeout_s": 60}},
        policies={"learn": {"type": "linucb", "params": {"features": ["endpoint:own"]}}},
        virtual_models={"auto": {"policy": "learn", "plans": {"s": {"model": "strong"}, "w": {"model": "weak"}}}},
        learning={"encoder_ms": 10_000},
    )
    async with running(config, tmp_path) as run, run.client() as client:
        body = {"model": "auto", "messages": [{"role": "user", "content": TEXT}], "max_tokens": 2}
        answer = await client.post(CHAT, json=body)
        assert answer.status_code == 200, answer.text
        await run.until_settled(1)
        choice = run.settled[0].choice

    assert choice is not None and choice.decided.fallback is None
    (block,) = unpacked(choice.features, choice.feature_version).values()
    assert block == pytest.approx(vector / np.linalg.norm(vector), abs=1e-4)
