"""Databases with the schema, and a gateway that keeps its decisions in one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from gateway.mock import MockBackend
from gateway.store.database import Database
from tests.support.databases import database, migrated, place, postgres, server
from tests.support.running import Running, config_for, running
from tests.support.stored import Place

__all__ = ["database", "migrated", "place", "postgres", "server"]


@pytest.fixture
async def gateway(mock: MockBackend, place: Place, tmp_path: Path) -> AsyncIterator[Running]:
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
        storage={"url": place.url},
    )
    async with running(config, tmp_path) as run:
        yield run


@pytest.fixture
async def client(gateway: Running) -> AsyncIterator[httpx.AsyncClient]:
    """A plain HTTP client of the gateway, with a key."""
    async with gateway.client() as http:
        yield http


@pytest.fixture
async def asked(place: Place) -> AsyncIterator[Database]:
    """The database, to ask."""
    database = Database(place.location)
    yield database
    await database.close()
