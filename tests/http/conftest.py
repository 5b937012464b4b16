"""Real sockets under the loop that the product runs on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import uvloop


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """uvloop hears clients leave, and pauses slow ones, in its own way: what holds must hold there."""
    return {"uvloop": uvloop.new_event_loop}
