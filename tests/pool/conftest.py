"""Loops for the tests of transports, and a watch over them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import pytest
import uvloop

from tests.pool.scripted import ClockLoop, eventually


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """For tests that name them: uvloop is what serves, asyncio's own loop what another process may have, `clock` is driven by the test."""
    marker = item.get_closest_marker("asyncio")
    if marker is None or "loop_factories" not in marker.kwargs:
        return {"asyncio": asyncio.new_event_loop}
    return {"uvloop": uvloop.new_event_loop, "asyncio": asyncio.new_event_loop, "clock": ClockLoop}


@pytest.fixture
async def watched() -> AsyncIterator[None]:
    """Fails a test that leaves a task, or an exception that nobody took."""
    faults: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: faults.append(context))
    before = asyncio.all_tasks()
    yield
    await eventually(lambda: not {task for task in asyncio.all_tasks() - before if task is not asyncio.current_task()})
    assert not faults


@pytest.fixture
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the environment says, backends are reached directly."""
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
