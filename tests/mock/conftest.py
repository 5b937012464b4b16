"""A mock of the recorded model, and a client for it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest

from gateway.mock import MockBackend


@pytest.fixture
async def mock() -> AsyncIterator[MockBackend]:
    async with MockBackend(["smollm2-135m"], max_model_len=2048) as backend:
        yield backend


@pytest.fixture
async def client(mock: MockBackend) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=mock.url, timeout=20) as http:
        yield http
