"""Everything here runs under the loop that the product runs on, over real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import uvloop


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """How closed connections and slow readers are heard differs between loops."""
    return {"uvloop": uvloop.new_event_loop}
