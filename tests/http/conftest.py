"""One gateway per module, over one mock, on real sockets, under the loop that the product runs on.

Each module's tests run in its own loop: `pytestmark = pytest.mark.asyncio(loop_scope="module")`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import httpx
import pytest
import pytest_asyncio
import uvloop

from gateway.mock import Behaviour, MockBackend
from gateway.pool.breaker import Breaker
from tests.support.asking import CHAT, Pair
from tests.support.running import NO_TLS, Running, config_for, running
from tests.support.waiting import until

Both = Callable[..., Awaitable[Pair]]


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """uvloop hears clients leave, and pauses slow ones, in its own way: what holds must hold there."""
    return {"uvloop": uvloop.new_event_loop}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The tests of a module with `LANES` run once for each of them: what a user gets does not depend on the way inside."""
    lanes = getattr(metafunc.module, "LANES", ())
    if lanes and "shared" in metafunc.fixturenames:
        metafunc.parametrize("shared", lanes, indirect=True, scope="module")


@pytest.fixture(scope="module")
def sections() -> Mapping[str, Any]:
    """More of the shared gateway's configuration; a module may have its own."""
    return {}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, sections: Mapping[str, Any]
) -> AsyncIterator[tuple[MockBackend, Running]]:
    """A mock that serves `mock-model`, and a gateway over it: `mock-model`, its alias `alias` and the virtual model `auto`.

    Its parameter is the lane that requests take (`running`); by default the one that users get.
    """
    async with MockBackend(["mock-model"]) as mock:
        config = config_for(
            {"mock": {"url": mock.url, "engine": "vllm", "models": {"mock-model": "mock-model"}, "key": "sk-backend"}},
            models={"mock-model": {"aliases": ["alias"], "price": {"input": 1.0, "cached_input": 0.1, "output": 2.0}, "retry_wait_s": 0}},
            virtual_models={"auto": {"policy": "fixed", "plans": {"a": {"model": "mock-model"}}}},
            server={"max_body_bytes": 100_000},
            **sections,
        )
        async with running(config, tmp_path_factory.mktemp("state"), getattr(request, "param", "hot")) as run:
            await until(lambda: not run.gateway.state.unanswered(), "the first probe's end")
            yield mock, run


@pytest_asyncio.fixture(loop_scope="module")
async def gateway(shared: tuple[MockBackend, Running]) -> AsyncIterator[Running]:
    """The gateway. Whatever a test does, nothing of it may be left at work, here or at the backend."""
    mock, run = shared
    mock.reset()
    mock.script(default=Behaviour())
    run.settled.clear()
    yield run
    await mock.wait_for(lambda m: m.in_flight == 0)
    assert run.in_flight() == 0
    for backend in run.gateway.state.backends.values():
        backend.breaker = Breaker(time.monotonic)  # what one test's faults led to is not the next one's


@pytest.fixture
def mock(shared: tuple[MockBackend, Running], gateway: Running) -> MockBackend:
    """The mock, its records empty."""
    return shared[0]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(shared: tuple[MockBackend, Running]) -> AsyncIterator[httpx.AsyncClient]:
    """A plain HTTP client of the gateway, with a key."""
    async with shared[1].client() as http:
        yield http


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def direct(shared: tuple[MockBackend, Running]) -> AsyncIterator[httpx.AsyncClient]:
    """A plain HTTP client of the mock itself."""
    async with httpx.AsyncClient(base_url=shared[0].url, timeout=30, verify=NO_TLS) as http:
        yield http


@pytest.fixture
def both(mock: MockBackend, client: httpx.AsyncClient, direct: httpx.AsyncClient) -> Both:
    """Puts one question to the mock (`plain`, where that differs) and to the gateway; both are answered by one behaviour."""

    async def ask(behaviour: Behaviour, body: Mapping[str, Any], path: str = CHAT, plain: Mapping[str, Any] | None = None) -> Pair:
        mock.script(behaviour, behaviour)
        return Pair(await direct.post(path, json=plain or body), await client.post(path, json=body))

    return ask
