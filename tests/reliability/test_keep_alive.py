"""A backend may close a kept connection whenever it likes: no caller notices, and no work is done twice."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Literal

import pytest

from tests.pool.scripted import Peer, Request
from tests.reliability.engines import CHAT as BODY
from tests.reliability.engines import END, EVENT, STREAM, Engine, chunked, engine, whole
from tests.support.asking import CHAT
from tests.support.running import config_for, running

How = Literal["closed", "reset"]


def answer(request: Request) -> bytes:
    """Whole or streamed, as asked, and nothing that says whether the connection stays."""
    return STREAM + chunked(EVENT, END, end=True) if b'"stream":true' in request.body else whole(BODY)


@pytest.mark.parametrize("at_once", [1, 8])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_it_closes_after_each_answer_without_saying_so(tmp_path: Path, stream: bool, at_once: int) -> None:
    """200 requests, each answered over a connection that ends right behind its answer: 200 answers."""

    async def once(_engine: Engine, peer: Peer, request: Request) -> bool:
        await peer.send(answer(request))
        return False

    async with engine(once) as served:
        assert await statuses(served, tmp_path, stream, at_once) == {200: 200}
        assert len(served.calls) == 200


@pytest.mark.parametrize("how", ["closed", "reset"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_it_closes_just_as_the_next_request_is_on_its_way(tmp_path: Path, stream: bool, how: How) -> None:
    """Every kept connection turns out to be closed, 199 times in a row: each request is sent once more, over a new one, and answered."""

    async def then_gone(_engine: Engine, peer: Peer, request: Request) -> bool:
        await peer.send(answer(request))
        await peer.reader.read(1)  # the next request begins
        if how == "reset":
            peer.reset()
        return False

    async with engine(then_gone) as served:
        assert await statuses(served, tmp_path, stream, 1, attempts=Counter({"1": 1, "2": 199})) == {200: 200}
        assert len(served.calls) == 200, "none was worked on twice"


async def statuses(served: Engine, state: Path, stream: bool, at_once: int, attempts: Counter[str] | None = None) -> Counter[int]:
    """What 200 requests came to; attempts: what their headers should tell."""
    config = config_for({"e": {"url": served.url, "models": {"m": "m"}}})
    body = b'{"model":"m","messages":[],"stream":%s}' % (b"true" if stream else b"false")
    found: Counter[int] = Counter()
    told: Counter[str] = Counter()

    async with running(config, state) as run, run.client() as client:

        async def some() -> None:
            for _ in range(200 // at_once):
                got = await client.post(CHAT, content=body, headers={"content-type": "application/json"})
                found[got.status_code] += 1
                told[got.headers["x-trilemma-attempts"]] += 1
                assert b"error" not in got.content

        await asyncio.gather(*(some() for _ in range(at_once)))
        assert run.in_flight() == 0
        assert {receipt.outcome for receipt in run.settled} == {"ok"}
        assert {backend.breaker.state for backend in run.gateway.state.backends.values()} == {"closed"}
    assert attempts is None or told == attempts
    return found
