from __future__ import annotations

import asyncio

from gateway.load.admin import Admin
from gateway.load.watch import watch_metrics
from gateway.mock import Behaviour, MockBackend
from gateway.pool.http1 import Http1Transport
from tests.support.waiting import until


async def test_metrics_are_read_from_the_beginning_on() -> None:
    texts: list[str] = []
    transport = Http1Transport()
    async with MockBackend(script=[Behaviour(path="/metrics", times=0, body="trilemma_loop_lag_seconds 0.01\n")]) as gateway:
        task = asyncio.create_task(watch_metrics(Admin(gateway.url, "sk", transport), texts))
        await until(lambda: bool(texts))
        task.cancel()
        await asyncio.wait([task])
        await transport.close()

    assert texts == ["trilemma_loop_lag_seconds 0.01\n"]
