"""Fixtures for every test."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest

from gateway.mock import MockBackend
from tests.support.engine import Started, up
from tests.support.running import Running, config_for, running


@pytest.fixture
async def mock() -> AsyncIterator[MockBackend]:
    """A mock vLLM that serves `mock-model`."""
    async with MockBackend(["mock-model"]) as backend:
        yield backend


@pytest.fixture
async def gateway(mock: MockBackend, tmp_path: Path) -> AsyncIterator[Running]:
    """A gateway over the mock: `mock-model`, its alias `alias` and the virtual model `auto`."""
    config = config_for(
        {"mock": {"url": mock.url, "engine": "vllm", "models": {"mock-model": "mock-model"}}},
        models={"mock-model": {"aliases": ["alias"], "price": {"input": 1.0, "cached_input": 0.1, "output": 2.0}}},
        policies={"split": {"type": "weighted", "params": {"weights": {"a": 1}}}},
        virtual_models={"auto": {"policy": "split", "plans": {"a": {"model": "mock-model"}}}},
    )
    async with running(config, tmp_path) as run:
        yield run


@pytest.fixture
async def client(gateway: Running) -> AsyncIterator[httpx.AsyncClient]:
    """A plain HTTP client of the gateway, with a key."""
    async with gateway.client() as http:
        yield http


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Started]:
    """`trilemma up` over real engines, once for all tests; ended by SIGTERM, after which nothing of it may be left."""
    with up(tmp_path_factory.mktemp("stack")) as started:
        yield started
        assert started.end(signal.SIGTERM) == 0
