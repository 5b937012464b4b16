"""Engines that answer when, and over which connection, a test says so: what the mock cannot be told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from tests.pool.scripted import Peer, Request, scripted

MODELS = b'{"object":"list","data":[{"id":"m","object":"model"}]}'
CHAT = b'{"id":"x","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}]}'
EVENT = b'data: {"choices":[{"index":0,"delta":{"content":"hi"},"finish_reason":null}]}\n\n'
END = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'


def whole(body: bytes, status: bytes = b"200 OK", *lines: bytes) -> bytes:
    """An answer that leaves its connection open; `lines` are more headers."""
    head = (b"HTTP/1.1 " + status, b"content-type: application/json", *lines, b"content-length: %d" % len(body))
    return b"\r\n".join((*head, b"", body))


def chunked(*events: bytes, end: bool = False) -> bytes:
    """Events as the next chunks of a body."""
    return b"".join(b"%x\r\n%b\r\n" % (len(each), each) for each in events) + (b"0\r\n\r\n" if end else b"")


STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


@dataclass
class Engine:
    """url: without `/v1`. others: requests that ask for no work, such as probes, as they came. calls: those that do."""

    url: str = ""
    others: list[Request] = field(default_factory=list)
    calls: list[Request] = field(default_factory=list)


Answers = Callable[[Engine, Peer, Request], Awaitable[bool]]
"""Answers a call; whether the connection then stays open for another one."""


@asynccontextmanager
async def engine(answers: Answers) -> AsyncIterator[Engine]:
    """Serves `m` until the block ends; whatever asks for no work gets the list of models."""
    served = Engine()

    async def script(peer: Peer) -> None:
        while True:
            request = await peer.request()
            if request.line.startswith(b"GET "):
                served.others.append(request)
                await peer.send(whole(MODELS))
                continue
            served.calls.append(request)
            if not await answers(served, peer, request):
                return

    async with scripted(script) as server:
        served.url = server.url.removesuffix("/v1/x")
        yield served


def held(begun: bytes, rest: bytes, release: asyncio.Event) -> Answers:
    """Sends the first part at once, and the rest when it is released."""

    async def answers(_engine: Engine, peer: Peer, _request: Request) -> bool:
        await peer.send(begun)
        await release.wait()
        await peer.send(rest)
        return True

    return answers
