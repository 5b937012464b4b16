"""Conversations keep their replica, and still no replica has more than its share."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.mock import MockBackend
from tests.support.asking import CHAT
from tests.support.running import Running, config_for, running
from tests.support.waiting import until

SHARED = "You are a careful assistant. " * 60
"""Long enough that a replica which has it in its cache would be preferred."""


async def homes(client: httpx.AsyncClient, mocks: dict[str, MockBackend], sessions: int) -> dict[int, set[str]]:
    """Which replicas each session's two calls went to; of ten sessions nine begin with the same prompt."""
    for mock in mocks.values():
        mock.reset()
    for number in range(2 * sessions):
        session = number % sessions
        system = SHARED if session % 10 else f"Another prompt of mine, {session}. " * 60
        messages = [{"role": "system", "content": system}, {"role": "user", "content": f"<{session}>"}]
        # By the hash of their names alone, one of four replicas would have 32 of the first hundred.
        extra: dict[str, Any] = {"trilemma": {"session_id": f"conversation {session}"}, "max_tokens": 1}
        assert (await client.post(CHAT, json={"model": "m", "messages": messages, **extra})).status_code == 200
    found: defaultdict[int, set[str]] = defaultdict(set)
    for name, mock in mocks.items():
        for request in mock.requests_to(CHAT):
            found[int(request.body.partition(b"<")[2].partition(b">")[0])].add(name)
    return found


Four = tuple[dict[str, MockBackend], Running, httpx.AsyncClient]


@pytest.fixture
async def four(tmp_path: Path) -> AsyncIterator[Four]:
    """Replicas a to d, and a gateway over them."""
    async with AsyncExitStack() as stack:
        mocks = {name: await stack.enter_async_context(MockBackend(["m"])) for name in "abcd"}
        config = config_for({name: {"url": mock.url, "engine": "vllm", "models": {"m": "m"}} for name, mock in mocks.items()})
        run = await stack.enter_async_context(running(config, tmp_path))
        await until(lambda: all(backend.answered for backend in run.gateway.state.backends.values()), "the first probes")
        yield mocks, run, await stack.enter_async_context(run.client())


async def test_sessions_that_share_a_prompt_do_not_share_one_replica(four: Four) -> None:
    """100 sessions over 4 replicas: each stays where it began, none of the four has more than 1.25 times the mean, and none is idle."""
    mocks, _, client = four
    found = await homes(client, mocks, 100)
    assert {len(home) for home in found.values()} == {1}
    held = [sum(name in home for home in found.values()) for name in mocks]
    assert (sum(held), max(held) <= 1.25 * 100 / 4, min(held) > 0) == (100, True, True), held


async def test_when_a_replica_leaves_only_its_sessions_move(four: Four) -> None:
    """Taken out of the configuration, it takes 100 conversations to other replicas at most where it was their own."""
    mocks, run, client = four
    before = await homes(client, mocks, 100)
    del run.config["backends"]["d"]
    assert await run.app.reloader.reload()
    after = await homes(client, mocks, 100)
    assert [session for session, home in before.items() if home != {"d"} and after[session] != home] == []
    assert all(len(home) == 1 and "d" not in home for home in after.values())


async def test_a_replica_that_joins_moves_no_session(four: Four) -> None:
    """New conversations come to it; those that run stay where the engine knows them."""
    mocks, run, client = four
    before = await homes(client, mocks, 100)
    async with MockBackend(["m"]) as fresh:
        run.config["backends"]["e"] = {"url": fresh.url, "engine": "vllm", "models": {"m": "m"}}
        assert await run.app.reloader.reload()
        await until(lambda: run.gateway.state.backends["e"].answered, "its first probe")
        assert await homes(client, mocks | {"e": fresh}, 100) == before
        later = await homes(client, mocks | {"e": fresh}, 200)
        assert sum("e" in home for home in later.values()) > 0
