"""A database with the schema, and a gateway that keeps its decisions there."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from gateway.mock import MockBackend
from gateway.store.migrate import migrate
from tests.support.running import Running, config_for, running


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty database with the schema, to copy."""
    file = tmp_path_factory.mktemp("migrated") / "decisions.db"
    migrate(file)
    return file


@pytest.fixture
def database(migrated: Path, tmp_path: Path) -> Path:
    """A database of the test's own, in a folder of its own."""
    folder = tmp_path / "data"
    folder.mkdir()
    return Path(shutil.copy(migrated, folder / "decisions.db"))


@pytest.fixture
async def gateway(mock: MockBackend, database: Path, tmp_path: Path) -> AsyncIterator[Running]:
    """A gateway over the mock that stores: the models `mock-model` (alias `alias`) and `other`, and `auto`, which draws one of them."""
    models = {"mock-model": "mock-model", "other": "mock-model"}
    config = config_for(
        {"mock": {"url": mock.url, "engine": "vllm", "models": models}},
        models={
            "mock-model": {"aliases": ["alias"], "price": {"input": 1.0, "cached_input": 0.1, "output": 2.0}},
            "other": {"price": {"input": 3.0, "output": 4.0}},
        },
        policies={"split": {"type": "weighted", "params": {"weights": {"a": 3, "b": 1}}, "floor": 0.2, "seed": 1}},
        virtual_models={"auto": {"policy": "split", "plans": {"a": {"model": "mock-model"}, "b": {"model": "other"}}}},
        storage={"url": f"sqlite:///{database}"},
    )
    async with running(config, tmp_path) as run:
        yield run


@pytest.fixture
async def client(gateway: Running) -> AsyncIterator[httpx.AsyncClient]:
    """A plain HTTP client of the gateway, with a key."""
    async with gateway.client() as http:
        yield http
