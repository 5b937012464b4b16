"""A prompt of megabytes is one caller's business: nobody else waits for it, and the gateway does not look at its words."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from gateway.mock import MockBackend
from gateway.pool.affinity import prefix_names
from gateway.wire.request import read, refuse_keys_in_another_case, rewrite
from tests.pool.scripted import Peer, scripted
from tests.reliability.engines import CHAT as BODY
from tests.reliability.engines import whole
from tests.support.asking import CHAT
from tests.support.raw import request, wire
from tests.support.running import Running, config_for, running


def ask(text: str, **extra: Any) -> bytes:
    return json.dumps({"model": "m", "messages": [{"role": "user", "content": text}], **extra}).encode()


LONG = ask("long " * 1_000_000)


async def small(run: Running) -> Counter[int]:
    """The statuses of 50 small requests at once."""
    async with AsyncExitStack() as stack:
        asking = [await stack.enter_async_context(wire(run.url)) for _ in range(50)]
        for each in asking:
            each.post(ask("hi", max_tokens=1))
        return Counter(answer.status for answer in await asyncio.gather(*(each.answer() for each in asking)))


async def test_one_on_its_way_in_holds_up_nobody(tmp_path: Path) -> None:
    """Half of 5 MB has come: 50 small requests are served meanwhile, and the long one once it is whole."""
    async with MockBackend(["m"], max_model_len=10_000_000) as mock:
        async with running(config_for({"e": {"url": mock.url, "models": {"m": "m"}}}), tmp_path) as run, wire(run.url) as connection:
            sent = request(LONG)
            connection.send(sent[: len(sent) // 2])
            await connection.writer.drain()
            assert await small(run) == {200: 50}
            connection.send(sent[len(sent) // 2 :])
            assert (await connection.answer()).status == 200
        assert mock.requests_to(CHAT)[-1].body == LONG


async def test_one_that_its_backend_does_not_take_holds_up_nobody(tmp_path: Path) -> None:
    """The backend reads nothing of 5 MB: 50 small requests to the same backend are served, and the long one once it is read."""
    read_on, blocked = asyncio.Event(), asyncio.Event()

    async def script(peer: Peer) -> None:
        while True:
            head = await peer.reader.readuntil(b"\r\n\r\n")
            length = next((int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0)
            if length > 1_000_000:
                blocked.set()
                await read_on.wait()
            await peer.reader.readexactly(length)
            await peer.send(whole(BODY))

    async with scripted(script) as served:
        config = config_for({"e": {"url": served.url.removesuffix("/x"), "models": {"m": "m"}}})
        async with running(config, tmp_path) as run, wire(run.url) as connection:
            connection.post(LONG)
            await blocked.wait()
            assert await small(run) == {200: 50}
            assert run.in_flight() == 1
            read_on.set()
            assert (await connection.answer()).body == BODY


TEXTS = {
    "words": "long ",
    "quotes": '"',
    "backslashes": "\\",
    "other scripts": "漢",
    "JSON": '{"model": "x", "stream": [true]}',
    "line ends": "\n",
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_its_words_are_not_looked_at(text: str) -> None:
    """Reading it, changing it, and finding where its beginning is cached take no more steps for 4 MB than for 400 kB: nothing is done
    for each word. What is left grows with it only where whole buffers are scanned or copied."""
    assert steps(text, 4_000_000) == steps(text, 400_000)


def steps(text: str, size: int) -> int:
    """How many functions, Python's or C's, are called on the way of a stream with an alias for its model through the gateway."""
    body = ask(text * (size // len(text)), stream=True, stream_options={"zz": 1}, trilemma={})

    def work() -> None:
        fields = read(body, 1)
        rewrite(body, fields, model="another", ask_usage=True)
        refuse_keys_in_another_case(body)
        prefix_names(memoryview(fields.messages))

    return counted(work)


def counted(work: Callable[[], None]) -> int:
    count = 0

    def profile(_frame: FrameType, event: str, _arg: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count
