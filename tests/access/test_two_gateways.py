"""Two gateways, each a process of its own, over one PostgreSQL: what a key may do it may do once, however its calls are spread."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
import pytest_asyncio

from gateway.mock import MockBackend
from tests.support.asking import CHAT, question
from tests.support.held import HeldBackend
from tests.support.postgres import Server
from tests.support.raw import Raw, Wire, wire
from tests.support.running import DIGEST, config_for
from tests.support.serving import Serving, serving
from tests.support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

CALLS = 50
RPM = 20


class Two:
    """Both over the same backends: `mock-model`, which answers, and `held-model`, which waits."""

    def __init__(self, gateways: Sequence[Serving], mock: MockBackend, held: HeldBackend) -> None:
        self.gateways = gateways
        self.mock = mock
        self.held = held

    @asynccontextmanager
    async def wires(self, count: int) -> AsyncIterator[list[Wire]]:
        """So many connections, to either in turn."""
        async with AsyncExitStack() as stack:
            yield [await stack.enter_async_context(wire(self.gateways[number % 2].url)) for number in range(count)]


def limited(name: str, **limits: int) -> dict[str, Any]:
    """A key, which is `sk-NAME`."""
    return {"name": name, "sha256": hashlib.sha256(f"sk-{name}".encode()).hexdigest(), "limits": limits}


def asks(connection: Wire, key: str, model: str) -> None:
    body = json.dumps(question(model=model)).encode()
    head = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer sk-{key}\r\ncontent-length: {len(body)}\r\n\r\n"
    connection.send(head.encode() + body)


async def ask(connection: Wire, key: str, model: str = "mock-model") -> Raw:
    asks(connection, key, model)
    return await connection.answer()


def served(answers: Sequence[Raw]) -> Counter[int]:
    return Counter(answer.status for answer in answers)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def two(server: Server, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Two]:
    folder = tmp_path_factory.mktemp("two")
    async with AsyncExitStack() as stack:
        mock = await stack.enter_async_context(MockBackend(["mock-model"]))
        held = await stack.enter_async_context(HeldBackend())
        config = config_for(
            {
                "mock": {"url": mock.url, "models": {"mock-model": "mock-model"}},
                "held": {"url": held.url, "models": {"held-model": "mock-model"}},
            },
            keys=[
                {"name": "test", "sha256": DIGEST, "scopes": ["inference", "admin"]},
                limited("single", concurrency=1),
                limited("minute", rpm=RPM),
                limited("apart", rpm=RPM),
                limited("turns", concurrency=1),
            ],
            storage={"url": server.url(server.create())},
        )
        gateways = []
        for name in ("one", "other"):
            (folder / name).mkdir()
            gateways.append(await stack.enter_async_context(serving(folder / name, config)))
        for gateway in gateways:
            await gateway.until_status("/ready", 200)
        yield Two(gateways, mock, held)


@pytest_asyncio.fixture(loop_scope="module", autouse=True)
async def _calm(two: Two) -> AsyncIterator[None]:
    """Each test begins with a backend that waits, and leaves none waiting."""
    two.held.go.clear()
    yield
    for gateway in two.gateways:  # for a test that has failed
        print(gateway.log.read_text()[-2_000:])
    two.held.go.set()
    await until(lambda: two.held.begun == two.held.ended, "all held calls end")


async def test_of_fifty_calls_at_once_a_limit_of_one_lets_one_through(two: Two) -> None:
    """And when it has ended the next one, whichever gateway it comes to."""
    before = two.held.begun
    async with two.wires(CALLS) as connections:
        for connection in connections:
            asks(connection, "single", "held-model")
        answers = [asyncio.create_task(connection.answer()) for connection in connections]
        await until(lambda: sum(answer.done() for answer in answers) == CALLS - 1, "all but one are refused", 30)
        assert two.held.begun == before + 1
        two.held.go.set()
        assert served(await asyncio.gather(*answers)) == {200: 1, 429: CALLS - 1}


async def test_of_fifty_calls_at_once_as_many_are_served_as_a_minute_allows(two: Two) -> None:
    """No more, and no fewer: nobody is refused while there is something left, on whichever side it was drawn."""
    before = len(two.mock.requests_to(CHAT))
    async with two.wires(CALLS) as connections:
        answers = await asyncio.gather(*(ask(connection, "minute") for connection in connections))
    assert served(answers) == {200: RPM, 429: CALLS - RPM}
    assert len(two.mock.requests_to(CHAT)) == before + RPM
    assert {answer.error["code"] for answer in answers if answer.status == 429} == {"rate_limit_exceeded"}


async def test_one_after_another_as_many_are_served_as_a_minute_allows(two: Two) -> None:
    """The gateways in turn: the first refusal comes when the minute is used up."""
    async with two.wires(2) as connections:
        answers = [await ask(connections[number % 2], "apart") for number in range(RPM + 4)]
    assert [answer.status for answer in answers] == [200] * RPM + [429] * 4


async def test_a_place_that_is_free_is_nobody_s(two: Two) -> None:
    """A limit of one is no limit for who asks for one thing after another, of either gateway in turn."""
    async with two.wires(2) as connections:
        answers = [await ask(connections[number % 2], "turns") for number in range(30)]
    assert served(answers) == {200: 30}
