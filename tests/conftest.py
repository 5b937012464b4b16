"""Fixtures for every test, and the order of the files."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest

from gateway.mock import MockBackend
from tests.support.databases import migrated_file, postgres_server
from tests.support.engine import Started, up
from tests.support.order import longest_first
from tests.support.running import Running, config_for, running

__all__ = ["migrated_file", "postgres_server"]


def pytest_collection(session: pytest.Session) -> None:
    """Ten thousand tests are no garbage: looking through them again and again would take half as long as collecting them."""
    gc.disable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first, so that processes that share the tests end together."""
    items.sort(key=lambda item: longest_first(item.path))


def pytest_collection_finish(session: pytest.Session) -> None:
    """See pytest_collection."""
    gc.freeze()
    gc.enable()


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
def made_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder where models are made once for all processes that run tests: whoever needs one first makes it, the others wait."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "models"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory, made_models: Path) -> Iterator[Started]:
    """`trilemma up` over real engines, once for all tests; ended by SIGTERM, after which nothing of it may be left."""
    with up(tmp_path_factory.mktemp("stack"), made_models) as started:
        yield started
        assert started.end(signal.SIGTERM) == 0
