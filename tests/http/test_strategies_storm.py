"""Many requests with a strategy at once, and callers who leave in the middle of them: nothing is lost, counted twice or left running."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from random import Random

import httpx
import pytest

from gateway.mock import Behaviour, MockBackend
from tests.support.asking import CHAT, data
from tests.support.raw import wire
from tests.support.running import DIGEST, Running, config_for, running
from tests.support.waiting import until

CANDIDATES = 8
STORM = 50
BODY = {"model": "best", "messages": [{"role": "user", "content": "What is 2 + 2?"}], "max_tokens": 16}


@dataclass
class House:
    """A gateway over `m`, of which `best` is the best of eight; its key may have so many requests at once as a storm has."""

    run: Running
    engine: MockBackend

    def bare(self) -> bool:
        """Whether no request is left anywhere. (Connections to the engine stay open for a while.)"""
        return self.run.in_flight() == 0 and self.engine.in_flight == 0 and not working()


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with MockBackend(["m"], keep_alive_s=1.0) as engine:
        config = config_for(
            {"e": {"url": engine.url, "models": {"m": "m"}}},
            models={"m": {"queue": {"slots": 64, "room": 1_000}}},
            strategies={"best": {"type": "best_of_n", "params": {"n": CANDIDATES, "select": "shortest"}}},
            virtual_models={"best": {"policy": "fixed", "plans": {"p": {"model": "m", "strategy": "best"}}}},
            policies={"fixed": {"type": "fixed"}},
            server={"heartbeat_s": 0.02},
            keys=[{"name": "test", "sha256": DIGEST, "scopes": ["inference"], "limits": {"concurrency": 2 * STORM}}],
        )
        async with running(config, tmp_path) as run:
            await until(lambda: not run.gateway.state.unanswered(), "the first probe's end")
            yield House(run, engine)


def working() -> list[str]:
    """Candidates that run."""
    return [task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("candidate")]


@pytest.mark.parametrize("seed", [1, 2])
async def test_callers_who_leave_in_the_middle_leave_nothing(house: House, seed: int) -> None:
    chance = Random(seed)
    before = len(asyncio.all_tasks())
    house.engine.script(
        *[Behaviour(text="It is 4", first_token_delay_s=chance.uniform(0.0, 0.1)) for _ in range(STORM * CANDIDATES)],
        default=Behaviour(text="It is 4"),
    )

    async def one(number: int) -> bool:
        """Whether it stayed to the end."""
        body = json.dumps(BODY | {"stream": chance.random() < 0.5}).encode()
        leaves_after_s, resets = chance.uniform(0.0, 0.4) if number % 5 else None, chance.random() < 0.5
        async with wire(house.run.url) as client:
            client.post(body, CHAT, f"x-request-id: storm-{number}")
            try:
                async with asyncio.timeout(leaves_after_s):  # a moment like any other
                    return (await client.answer()).status == 200
            except TimeoutError:
                (client.reset if resets else client.close)()
                return False

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(number)) for number in range(STORM)]
    stayed = {f"storm-{number}" for number, task in enumerate(tasks) if task.result()}
    await until(house.bare, "nobody works any more")
    await until(lambda: len(asyncio.all_tasks()) <= before, f"at most {before} tasks")

    settled = Counter(receipt.request_id for receipt in house.run.settled)
    assert set(settled.values()) == {1}, "each once"
    assert stayed <= settled.keys()
    outcomes = {receipt.request_id: receipt.outcome for receipt in house.run.settled}
    assert {outcomes[each] for each in stayed} <= {"ok"}
    assert set(outcomes.values()) == {"ok", "client_closed"}, "the storm came in the middle"
    for receipt in house.run.settled:
        assert all(call.outcome is not None and call.ended is not None for call in receipt.calls)
        assert (sum(each.outcome == "won" for each in receipt.tried) == 1) == (receipt.outcome == "ok")
    assert sum(len(receipt.calls) for receipt in house.run.settled) >= len(house.engine.requests_to(CHAT)), (
        "what was asked stands on a receipt"
    )
    admission = house.run.gateway.state.names["m"].admission  # type: ignore[union-attr]
    assert admission is not None and (admission.running, admission.waiting) == (0, 0)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_hundred_at_once_are_all_served(house: House, stream: bool) -> None:
    """As many as the key may have: it may again, whenever they have ended."""
    house.engine.script(default=Behaviour(text="It is 4"))
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(house.run.client(limits=httpx.Limits(max_connections=None)))
        answers = await asyncio.gather(*[client.post(CHAT, json=BODY | {"stream": stream}) for _ in range(2 * STORM)])
    assert Counter(each.status_code for each in answers) == {200: 2 * STORM}
    for each in answers:
        if stream:
            *chunks, done = data(each.content)
            assert done == b"[DONE]"
            choices = [choice for chunk in chunks for choice in json.loads(chunk)["choices"]]
            assert "".join(choice["delta"].get("content") or "" for choice in choices) == "It is 4"
        else:
            assert each.json()["choices"][0]["message"]["content"] == "It is 4"
    await until(house.bare, "nobody works any more")
    assert len({receipt.decision_id for receipt in house.run.settled}) == len(house.run.settled) == 2 * STORM
    assert {receipt.outcome for receipt in house.run.settled} == {"ok"}
    for receipt in house.run.settled:
        assert sorted(each.outcome for each in receipt.tried) == ["lost"] * (CANDIDATES - 1) + ["won"]
    assert len(house.engine.requests_to(CHAT)) == 2 * STORM * CANDIDATES


async def test_what_was_left_is_given_back(house: House) -> None:
    """As many requests at once as the key may have, left while all run; then as many are let in again."""
    house.engine.script(default=Behaviour(never_answer=True))
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(wire(house.run.url)) for _ in range(2 * STORM)]
        for number, client in enumerate(clients):
            client.post(json.dumps(BODY | {"stream": number % 2 == 0}).encode())
        await house.engine.wait_for(lambda mock: mock.in_flight == 64)  # the others wait in the queue
        async with house.run.client() as other:
            await until(lambda: house.run.gateway.state.names["m"].admission.waiting == 2 * STORM * CANDIDATES - 64)  # type: ignore[union-attr]
            assert (await other.post(CHAT, json=BODY)).status_code == 429
        for number, client in enumerate(clients):
            (client.reset if number % 3 else client.close)()
        await until(house.bare, "nobody works any more")
        await house.run.until_settled(2 * STORM + 1)
    assert Counter(receipt.outcome for receipt in house.run.settled) == {"client_closed": 2 * STORM, "caller_error": 1}
    house.engine.script(default=Behaviour(text="It is 4"))
    async with house.run.client(limits=httpx.Limits(max_connections=None)) as again:
        answers = await asyncio.gather(*[again.post(CHAT, json=BODY) for _ in range(2 * STORM)])
    assert Counter(each.status_code for each in answers) == {200: 2 * STORM}
