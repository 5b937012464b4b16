"""Raw servers that do as a test says, byte by byte, and what a transport made of their answers."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from gateway.pool.transport import Broken, Transport
from gateway.wire.errors import Header

BOTH_LOOPS = pytest.mark.asyncio(loop_factories=["uvloop", "asyncio"])
WITH_CLOCK = pytest.mark.asyncio(loop_factories=["clock"])


@dataclass
class Request:
    """What a server read: its head as it came, and its body by `content-length`."""

    head: bytes
    body: bytes

    @property
    def line(self) -> bytes:
        return self.head.split(b"\r\n")[0]

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """Names in lower case."""
        pairs = [line.split(b": ", 1) for line in self.head.split(b"\r\n")[1:] if line]
        return [(name.lower(), value) for name, value in pairs]


class Peer:
    """The server's side of a connection; `number` counts connections from 0."""

    def __init__(self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.number = number
        self.reader = reader
        self.writer = writer

    async def request(self) -> Request:
        """The next whole request. Raises EOFError when the client has left."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        lengths = [line.split(b":")[1] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        return Request(head[:-4], await self.reader.readexactly(int(lengths[0])) if lengths else b"")

    async def send(self, *pieces: bytes) -> None:
        """Writes pieces so that the client reads them one by one."""
        for piece in pieces:
            if self.writer.transport.is_closing():
                raise ConnectionResetError  # uvloop would raise something else
            self.writer.write(piece)
            await self.writer.drain()
            await turns(3)

    async def left(self) -> None:
        """Waits until the client has closed its socket."""
        with contextlib.suppress(ConnectionError):
            while await self.reader.read(1 << 16):
                pass

    def reset(self) -> None:
        """Ends with RST."""
        raw = self.writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


Script = Callable[[Peer], Awaitable[None]]


@dataclass
class Scripted:
    """A server; its script runs once per connection, which is closed when the script ends."""

    script: Script
    url: str = ""
    peers: list[Peer] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.tasks.add(task)
        peer = Peer(len(self.peers), reader, writer)
        self.peers.append(peer)
        try:
            await self.script(peer)
        except (EOFError, ConnectionError, asyncio.CancelledError):
            writer.transport.abort()  # the client has left, or the test is over
        finally:
            self.tasks.discard(task)
            writer.close()


@asynccontextmanager
async def scripted(script: Script, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None) -> AsyncIterator[Scripted]:
    """Serves until the block ends."""
    served = Scripted(script)
    server = await asyncio.start_server(served, host, 0, ssl=tls)
    shown = f"[{host}]" if ":" in host else host
    served.url = f"{'http' if tls is None else 'https'}://{shown}:{server.sockets[0].getsockname()[1]}/v1/x"
    try:
        yield served
    finally:
        server.close()
        for task in tuple(served.tasks):
            task.cancel()
        await eventually(lambda: not served.tasks)


@asynccontextmanager
async def answering(*answers: bytes | Sequence[bytes], close: bool = False) -> AsyncIterator[Scripted]:
    """Serves each request of a connection with the next of `answers` (pieces are sent one by one), then waits, or closes."""

    async def script(peer: Peer) -> None:
        for answer in answers:
            served.requests.append(await peer.request())
            await peer.send(*([answer] if isinstance(answer, bytes) else answer))
        if not close:
            await peer.left()

    async with scripted(script) as served:
        yield served


@dataclass(frozen=True)
class Got:
    """What came of a request: `status` 0 without an answer; `whole` when it was read to its end; `failure` else."""

    status: int
    body: bytes
    failure: Broken | None = None
    headers: tuple[Header, ...] = ()

    @property
    def whole(self) -> bool:
        return self.failure is None


async def ask(
    transport: Transport,
    url: str,
    method: str = "POST",
    body: bytes = b"{}",
    headers: Sequence[Header] = (),
    *,
    fresh: bool = False,
) -> Got:
    """One exchange as the gateway does it. Raises what is not Broken."""
    async with asyncio.timeout(10):
        try:
            upstream = await transport.send(method, url, headers, body, 5.0, fresh=fresh)
        except Broken as error:
            return Got(0, b"", error)
        found = bytearray()
        try:
            while data := await upstream.read_some():
                found += data
            upstream.release()
        except Broken as error:
            return Got(upstream.status, bytes(found), error, tuple(upstream.headers))
        finally:
            upstream.close()  # after a release nothing happens
        return Got(upstream.status, bytes(found), None, tuple(upstream.headers))


async def turns(count: int) -> None:
    """Lets the loop turn."""
    for _ in range(count):
        await asyncio.sleep(0)


async def eventually(holds: Callable[[], bool], within_s: float = 10.0) -> None:
    """Waits until a condition holds."""
    async with asyncio.timeout(within_s):
        while not holds():  # noqa: ASYNC110 (it is a server's or a transport's state, which has no event)
            await asyncio.sleep(0.001)


class ClockLoop(asyncio.SelectorEventLoop):
    """A loop whose clock a test puts forward."""

    ahead = 0.0

    def time(self) -> float:
        return super().time() + self.ahead

    async def pass_time(self, seconds: float) -> None:
        """What is due by then has happened when this returns."""
        self.ahead += seconds
        await turns(5)


def clock() -> ClockLoop:
    """The running loop of a test that asked for one with a clock."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, ClockLoop)
    return loop
