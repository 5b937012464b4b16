"""A mock of the recorded model, and a client for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

import httpx
import pytest
import uvloop

from gateway.mock import MockBackend
from tests.support.running import NO_TLS


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """For tests that name them: the mock runs under either loop."""
    marker = item.get_closest_marker("asyncio")
    if marker is None or "loop_factories" not in marker.kwargs:
        return {"asyncio": asyncio.new_event_loop}
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture
async def mock() -> AsyncIterator[MockBackend]:
    async with MockBackend(["smollm2-135m"], max_model_len=2048) as backend:
        yield backend


@pytest.fixture
async def client(mock: MockBackend) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=mock.url, timeout=20, verify=NO_TLS) as http:
        yield http
