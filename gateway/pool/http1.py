"""A thin HTTP/1.1 client behind the transport seam: asyncio protocols over llhttp, one LIFO of kept-alive connections per origin.

What is not here is meant: no redirects, cookies, proxies, decompression, HTTP/2, pipelining. One exchange at a time on a connection; a
connection that saw anything odd is never used again.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final, NamedTuple, cast
from urllib.parse import urlsplit

import httptools

from gateway.pool.transport import Broken, ConnectFailed
from gateway.wire.errors import Header

# llama.cpp closes an idle connection after 5 s: ours must go first.
KEEP_ALIVE_S: Final = 4.0
_MAX_HEAD: Final = 1 << 17
_PAUSE_AT: Final = 1 << 18


class Target(NamedTuple):
    """Where a URL leads: the origin, and the request line's target."""

    host: str
    port: int
    tls: bool
    authority: bytes
    path: bytes


class Http1Transport:
    """Connections by origin. Build it inside the running loop."""

    def __init__(self, keep_alive_s: float = KEEP_ALIVE_S) -> None:
        self._loop = asyncio.get_running_loop()
        self._keep_alive_s = keep_alive_s
        self._pools: dict[tuple[str, int, bool], deque[_Connection]] = {}
        self._open: set[_Connection] = set()
        self._target = lru_cache(maxsize=1024)(_target)
        self._tls: ssl.SSLContext | None = None
        self._sweeper: asyncio.TimerHandle | None = None

    async def send(self, method: str, url: str, headers: Sequence[Header], body: bytes, connect_s: float, *, fresh: bool = False) -> Reply:
        """See Transport.send."""
        target = self._target(url)
        connection = None if fresh else self._idle(target)
        if connection is None:
            connection = await self._connect(target, connect_s)
        reply = connection.begin(method, _request(method, target, headers, body))
        try:
            await reply.head()
        except BaseException:
            reply.close()
            raise
        return reply

    async def close(self) -> None:
        """See Transport.close."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        for connection in tuple(self._open):
            connection.abort()
        self._pools.clear()

    def _idle(self, target: Target) -> _Connection | None:
        pool = self._pools.get(target[:3])
        while pool:
            connection = pool.pop()
            if connection.usable and self._loop.time() - connection.idle_since < self._keep_alive_s:
                return connection
            connection.abort()
        return None

    async def _connect(self, target: Target, connect_s: float) -> _Connection:
        context = None
        if target.tls:
            context = self._tls = self._tls or ssl.create_default_context()
        pool = self._pools.setdefault(target[:3], deque())
        try:
            async with asyncio.timeout(connect_s):
                _, connection = await self._loop.create_connection(
                    lambda: _Connection(self._loop, self._open, lambda freed: self._freed(pool, freed)),
                    target.host,
                    target.port,
                    ssl=context,
                )
        except (OSError, TimeoutError) as error:
            raise ConnectFailed(type(error).__name__) from None
        return connection

    def _freed(self, pool: deque[_Connection], connection: _Connection) -> None:
        connection.idle_since = self._loop.time()
        pool.append(connection)
        if self._sweeper is None:
            self._sweeper = self._loop.call_later(self._keep_alive_s, self._sweep)

    def _sweep(self) -> None:
        """Closes what has been idle for too long; runs only while something is idle."""
        oldest = self._loop.time() - self._keep_alive_s
        for pool in self._pools.values():
            while pool and (not pool[0].usable or pool[0].idle_since <= oldest):
                pool.popleft().abort()
        waiting = any(self._pools.values())
        self._sweeper = self._loop.call_later(self._keep_alive_s, self._sweep) if waiting else None


class Reply:
    """An answer as it arrives (transport.Upstream); llhttp's callbacks fill it."""

    __slots__ = (
        "_chunks", "_complete", "_connection", "_error", "_framed", "_got", "_head_only", "_in_body", "_keep", "_parser", "_size",
        "_waiter", "headers", "status",
    )  # fmt: skip

    def __init__(self, connection: _Connection, method: str) -> None:
        self._connection: _Connection | None = connection
        self._head_only = method == "HEAD"
        self._parser: httptools.HttpResponseParser | None = httptools.HttpResponseParser(self)
        self._chunks: list[bytes] = []
        self._size = 0
        self._got = 0
        self._in_body = False
        self._framed = False
        self._complete = False
        self._keep = True
        self._error: Broken | None = None
        self._waiter: asyncio.Future[None] | None = None
        self.status = 0
        self.headers: list[Header] = []

    # -- the transport's user

    async def head(self) -> None:
        """Waits until status and headers are there."""
        while not self._in_body:
            await self._wait()

    async def read_some(self) -> bytes:
        """See Upstream.read_some."""
        while not self._chunks:
            if self._complete:
                return b""
            await self._wait()
        chunks = self._chunks
        data = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        chunks.clear()
        if self._size > _PAUSE_AT and self._connection is not None:
            self._connection.resume()
        self._size = 0
        return data

    def release(self) -> None:
        """See Upstream.release."""
        connection, self._connection = self._connection, None
        self._parser = None  # it holds on to us: without this, every answer would wait for the garbage collector
        if connection is not None:
            connection.end(keep=self._complete and self._keep and not self._chunks)

    def close(self) -> None:
        """See Upstream.close."""
        connection, self._connection = self._connection, None
        self._parser = None
        if connection is not None:
            connection.end(keep=False)

    async def _wait(self) -> None:
        if self._error is not None:
            raise self._error
        assert self._connection is not None, "read after close"
        self._waiter = self._connection.loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # -- the connection

    def feed(self, data: bytes) -> None:
        """Bytes from the socket."""
        if self._complete or self._parser is None:  # more than was promised
            self._keep = False
            return
        self._got += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            if not self._complete:
                self.fail(Broken("the answer is not HTTP/1.1"))
            self._keep = False
        if not self._in_body and self._got > _MAX_HEAD:
            self.fail(Broken("the head of the answer is too large"))
        if self._size > _PAUSE_AT and self._connection is not None:
            self._connection.pause()
        self._wake()

    def ended(self, *, reused: bool, clean: bool) -> None:
        """The connection is gone; `clean` unless it was reset."""
        self._keep = False
        if self._complete:
            return
        if self._in_body and not self._framed and clean:
            self._complete = True
            self._wake()
        else:
            self.fail(Broken("the backend closed the connection", untouched=reused and self._got == 0))

    def fail(self, error: Broken) -> None:
        """Nothing more will come."""
        if self._error is None and not self._complete:
            self._error = error
            self._keep = False
            self._wake()

    # -- llhttp

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or after the body a trailer, which is dropped."""
        if not self._in_body:
            self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """The head of a final answer, or of an interim one (1xx)."""
        if self._in_body or self._parser is None:  # a second answer that nobody asked for
            self._keep = False
            return
        self.status = self._parser.get_status_code()
        if self.status >= 200:
            self._in_body = True
            self._framed = any(name in (b"content-length", b"transfer-encoding") for name, _ in self.headers)
            if self._head_only:
                self._complete = True
                self._keep = False

    def on_body(self, data: bytes) -> None:
        """A piece of the body."""
        if not self._complete:
            self._chunks.append(data)
            self._size += len(data)

    def on_message_complete(self) -> None:
        """The end of a message; after an interim one the real answer is still to come."""
        if self._in_body:
            self._keep = self._keep and not self._complete and self._parser is not None and self._parser.should_keep_alive()
            self._complete = True
        else:
            self.headers.clear()


class _Connection(asyncio.Protocol):
    """A socket. `usable` while it is open and nothing odd has come; `idle_since` is the loop's time."""

    __slots__ = ("_exchanges", "_freed", "_open", "_reply", "_transport", "idle_since", "loop", "usable")

    def __init__(self, loop: asyncio.AbstractEventLoop, open_: set[_Connection], freed: Callable[[_Connection], None]) -> None:
        self.loop = loop
        self.usable = True
        self.idle_since = 0.0
        self._open = open_
        self._freed = freed
        self._exchanges = 0
        self._reply: Reply | None = None
        self._transport: asyncio.Transport | None = None

    def begin(self, method: str, request: bytes) -> Reply:
        """Starts an exchange."""
        self._exchanges += 1
        self._reply = reply = Reply(self, method)
        if self._transport is None or self._transport.is_closing():
            self.usable = False
            reply.ended(reused=self._exchanges > 1, clean=True)
        else:
            self._transport.write(request)
        return reply

    def end(self, *, keep: bool) -> None:
        """Ends the exchange; the socket is kept only after a clean one."""
        self._reply = None
        if keep and self.usable:
            self._freed(self)
        else:
            self.abort()

    def abort(self) -> None:
        """Closes the socket at once."""
        self.usable = False
        if self._transport is not None:
            self._transport.abort()

    def pause(self) -> None:
        """Reads no more until `resume`: the caller is slower than the backend."""
        if self._transport is not None and self._transport.is_reading():
            self._transport.pause_reading()

    def resume(self) -> None:
        """Reads again."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    # -- asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        self._transport = cast(asyncio.Transport, transport)
        self._open.add(self)

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        if self._reply is not None:
            self._reply.feed(data)
        else:  # nobody asked
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        self.usable = False
        self._open.discard(self)
        if self._reply is not None:
            self._reply.ended(reused=self._exchanges > 1, clean=exc is None)


def _target(url: str) -> Target:
    parts = urlsplit(url)
    tls = parts.scheme == "https"
    host = parts.hostname or ""
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Target(
        host,
        parts.port or (443 if tls else 80),
        tls,
        parts.netloc.encode("idna" if not parts.netloc.isascii() else "ascii"),
        path.encode("ascii"),
    )


def _request(method: str, target: Target, headers: Sequence[Header], body: bytes) -> bytes:
    parts = [method.encode(), b" ", target.path, b" HTTP/1.1\r\nhost: ", target.authority, b"\r\n"]
    for name, value in headers:
        parts += (name, b": ", value, b"\r\n")
    if body or method not in ("GET", "HEAD", "DELETE", "OPTIONS"):
        parts.append(b"content-length: %d\r\n" % len(body))
    parts += (b"\r\n", body)
    return b"".join(parts)
