"""Fixtures: a gateway over a mock that keeps its decisions, in either kind of database, for callers of two tenants and an administrator.

A test module imports those it needs, with those of databases.py.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.mock import MockBackend
from tests.support.asking import CHAT, question
from tests.support.running import Running, config_for, running
from tests.support.stored import Place

KEYS = {
    "shop": {"tenant": "shop"},
    "shop-2": {"tenant": "shop"},
    "bank": {"tenant": "bank"},
    "ops": {"scopes": ["admin"]},
    "few": {"tenant": "shop", "limits": {"rpm": 2}},
}
ID = "x-trilemma-decision-id"


def key(name: str) -> dict[str, Any]:
    """A key, which is `sk-NAME`."""
    return {"name": name, "sha256": hashlib.sha256(f"sk-{name}".encode()).hexdigest(), **KEYS[name]}


def keeping(mock: MockBackend, url: str, **sections: Any) -> dict[str, Any]:
    """`mock-model` (alias `alias`) and `other`; `auto` draws 3 : 1 between them, `second` takes the other."""
    plans = {"a": {"model": "mock-model"}, "b": {"model": "other"}}
    config: dict[str, Any] = {
        "models": {
            "mock-model": {"aliases": ["alias"], "price": {"input": 1.0, "cached_input": 0.1, "output": 2.0}},
            "other": {"price": {"input": 3.0, "output": 4.0}},
        },
        "policies": {
            "split": {"type": "weighted", "params": {"weights": {"a": 3, "b": 1}}, "floor": 0.2, "seed": 1},
            "last": {"type": "fixed", "params": {"plan": "b"}},
        },
        "virtual_models": {"auto": {"policy": "split", "plans": plans}, "second": {"policy": "last", "plans": plans}},
        "keys": [key(name) for name in KEYS],
        "server": {"secret": "keyed-by-this", "max_body_bytes": 100_000},
        "storage": {"url": url},
    }
    backend = {"url": mock.url, "engine": "vllm", "models": {"mock-model": "mock-model", "other": "mock-model"}}
    return config_for({"mock": backend}, **(config | sections))


@pytest.fixture
async def mock() -> AsyncIterator[MockBackend]:
    """The mock."""
    async with MockBackend(["mock-model"]) as backend:
        yield backend


@pytest.fixture
async def gateway(mock: MockBackend, place: Place, tmp_path: Path) -> AsyncIterator[Running]:
    """The gateway."""
    async with running(keeping(mock, place.url), tmp_path) as run:
        yield run


@pytest.fixture
async def shop(gateway: Running) -> AsyncIterator[httpx.AsyncClient]:
    """A caller."""
    async with gateway.client("sk-shop") as client:
        yield client


@pytest.fixture
async def bank(gateway: Running) -> AsyncIterator[httpx.AsyncClient]:
    """A caller of another tenant."""
    async with gateway.client("sk-bank") as client:
        yield client


@pytest.fixture
async def ops(gateway: Running) -> AsyncIterator[httpx.AsyncClient]:
    """An administrator."""
    async with gateway.client("sk-ops") as client:
        yield client


async def asked(client: httpx.AsyncClient, status: int = 200, **extra: Any) -> str:
    """Asks something; the decision's id."""
    answer = await client.post(CHAT, json=question(**extra))
    assert answer.status_code == status, answer.text
    return answer.headers[ID]
