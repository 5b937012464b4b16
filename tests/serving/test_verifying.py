"""The operator's own service during a request: how much it is asked."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator

import pytest

from gateway.config.schema import Checker
from gateway.pool.http1 import Http1Transport
from gateway.serving.verifying import LONGEST_PROMPT, Verifying
from tests.learning.test_verifier import Service, service
from tests.support.waiting import until

MESSAGES = b'[{"role":"user","content":"hi"}]'


@pytest.fixture
async def theirs() -> AsyncIterator[Service]:
    async with service() as found:
        yield found


@pytest.fixture
async def transport(theirs: Service) -> AsyncIterator[Http1Transport]:
    """Closed before the service, which has then heard that all its clients have left."""
    made = Http1Transport()
    yield made
    await made.close()
    await until(lambda: theirs.open == 0)


async def test_no_more_at_once_than_it_can_take(theirs: Service, transport: Http1Transport) -> None:
    """Who waits for its turn waits within the request's own time."""
    theirs.answers = [None]
    verifying = Verifying(Checker(url=theirs.url, at_once=1))
    first = asyncio.create_task(verifying.score(transport, "d-1", MESSAGES, "a", math.inf))
    await until(lambda: len(theirs.asked) == 1)
    assert await verifying.score(transport, "d-1", MESSAGES, "b", 0.05) is None
    assert len(theirs.asked) == 1
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    await until(lambda: theirs.gone == 1)
    assert await verifying.score(transport, "d-1", MESSAGES, "b", math.inf) == 0.75


async def test_nothing_is_sent_that_is_too_long_or_too_late(theirs: Service, transport: Http1Transport) -> None:
    verifying = Verifying(Checker(url=theirs.url))
    assert await verifying.score(transport, "d-1", b"[" + b" " * LONGEST_PROMPT + b"]", "a", math.inf) is None
    assert await verifying.score(transport, "d-1", b"", "a", math.inf) is None
    assert await verifying.score(transport, "d-1", MESSAGES, "a", 0.0) is None
    assert not theirs.asked
