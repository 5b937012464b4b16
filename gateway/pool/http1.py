"""A thin HTTP/1.1 client behind the transport seam: asyncio protocols over llhttp, one LIFO of kept-alive connections per origin.

What is not here is meant: no redirects, cookies, proxies, decompression, HTTP/2, pipelining. One exchange at a time on a connection; a
connection that saw anything odd is never used again. Answers are read strictly (RFC 9112): what two parsers could read in two ways is
refused.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections import deque
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final, NamedTuple, cast
from urllib.parse import urlsplit

import httptools

from gateway.pool.transport import Broken, ConnectFailed, Tap, TransportError
from gateway.wire.errors import Header

# llama.cpp closes an idle connection after 5 s: ours must go first.
KEEP_ALIVE_S: Final = 4.0
# A backend that closes a kept-alive connection for being idle does so before it sees the next request: we learn of it within a round trip.
# Later than this, it was working on that request.
_RACE_S: Final = 2.0
# Bytes that may come without the reader taking any: then no more is read. Bytes without any body among them: then it is no answer.
_CROWDED: Final = 1 << 18
# Longer URLs (a query, mostly) are not worth remembering.
_REMEMBERED: Final = 1 << 10
# A larger body is not copied next to its head.
_LARGE: Final = 1 << 16
_BODILESS: Final = frozenset(("GET", "HEAD", "DELETE", "OPTIONS"))
_UNSENDABLE: Final = re.compile(r"[\x00-\x20\x7f#]")
_HOST: Final = re.compile(r"[A-Za-z0-9._-]+|[0-9A-Fa-f:.]+")


class Target(NamedTuple):
    """Where a URL leads: the origin, its idle connections (last used last), and how a request to it begins."""

    host: str
    port: int
    tls: bool
    idle: deque[_Connection]
    start: bytes


class Http1Transport:
    """Connections by origin. Build it inside the running loop."""

    def __init__(self, keep_alive_s: float = KEEP_ALIVE_S) -> None:
        self._loop = asyncio.get_running_loop()
        self._keep_alive_s = keep_alive_s
        self._idle: dict[tuple[str, int, bool], deque[_Connection]] = {}
        self._open: set[_Connection] = set()
        self._remembered = lru_cache(maxsize=1024)(self._target)
        self._tls: ssl.SSLContext | None = None
        self._sweeper: asyncio.TimerHandle | None = None
        self._closed = False

    @property
    def connections(self) -> int:
        """Sockets that are open, in use or idle."""
        return len(self._open)

    async def send(self, method: str, url: str, headers: Sequence[Header], body: bytes, connect_s: float, *, fresh: bool = False) -> Reply:
        """See Transport.send."""
        try:
            target = self._remembered(method, url) if len(url) < _REMEMBERED else self._target(method, url)
        except ValueError:
            raise ConnectFailed("not the URL of a backend") from None
        head = _head(target, headers, None if not body and method in _BODILESS else len(body))
        connection = None if fresh else self._kept(target)
        if connection is None:
            connection = await self._connect(target, connect_s)
        reply = connection.begin(head, body, head_only=method == "HEAD")
        try:
            while not reply.started:
                await reply.news()
        except BaseException:
            reply.close()
            raise
        return reply

    async def close(self) -> None:
        """See Transport.close."""
        self._closed = True
        if self._sweeper is not None:
            self._sweeper.cancel()
        for connection in tuple(self._open):
            connection.abort()
        await asyncio.sleep(0)  # the loop closes an aborted socket in its next turn

    def expire_later(self, connection: _Connection) -> None:
        """Sees to it that a connection that became idle is closed in time."""
        if self._sweeper is None:
            self._sweeper = self._loop.call_at(connection.since + self._keep_alive_s, self._sweep)

    def _kept(self, target: Target) -> _Connection | None:
        idle = target.idle
        if idle:
            now = self._loop.time()
            while idle:
                connection = idle.pop()
                if connection.usable and now - connection.since < self._keep_alive_s:
                    connection.since = now
                    return connection
                connection.abort()
        return None

    async def _connect(self, target: Target, connect_s: float) -> _Connection:
        context = None
        if target.tls:
            context = self._tls = self._tls or ssl.create_default_context()
        try:
            async with asyncio.timeout(connect_s):
                _, connection = await self._loop.create_connection(
                    lambda: _Connection(self, self._loop, self._open, target.idle), target.host, target.port, ssl=context
                )
        except OSError as error:
            raise ConnectFailed(type(error).__name__) from None
        if self._closed or not connection.usable:
            connection.abort()
            raise ConnectFailed("the transport is closed" if self._closed else "the backend hung up")
        self._open.add(connection)  # not before: of one that nobody waits for any more, uvloop never says that it is lost
        return connection

    def _sweep(self) -> None:
        """Closes what has been idle for too long; runs only while something is idle."""
        self._sweeper = None
        oldest = self._loop.time() - self._keep_alive_s
        for idle in self._idle.values():
            while idle and (not idle[0].usable or idle[0].since <= oldest):
                idle.popleft().abort()
        waiting = [idle[0] for idle in self._idle.values() if idle]
        if waiting:
            self.expire_later(min(waiting, key=lambda connection: connection.since))

    def _target(self, method: str, url: str) -> Target:
        """Raises ValueError."""
        if _UNSENDABLE.search(url):  # urlsplit would drop some of them, and a fragment
            raise ValueError(url)
        parts = urlsplit(url)
        host = (parts.hostname or "").encode("idna").decode("ascii")
        if parts.scheme not in ("http", "https") or "@" in parts.netloc or not _HOST.fullmatch(host):
            raise ValueError(url)
        tls = parts.scheme == "https"
        port = (443 if tls else 80) if parts.port is None else parts.port
        authority = (f"[{host}]" if ":" in host else host) + ("" if parts.port is None else f":{port}")
        path = url.partition("://")[2][len(parts.netloc) :]  # as it is: urlsplit would lose an empty query
        start = f"{method} {path if path.startswith('/') else '/' + path} HTTP/1.1\r\nhost: {authority}".encode("ascii")
        return Target(host, port, tls, self._idle.setdefault((host, port, tls), deque()), start)


class _Refused(Exception):
    """Stops llhttp: this cannot be (more of) the answer."""


class Reply:
    """An answer as it arrives (transport.Upstream); llhttp's callbacks fill it. `started`: its head is there."""

    __slots__ = (
        "_add", "_chunks", "_complete", "_connection", "_failure", "_head_only", "_keep", "_parser", "_since_read", "_tap", "_waiter",
        "headers", "on_body", "started", "status",
    )  # fmt: skip

    def __init__(self, connection: _Connection, *, head_only: bool) -> None:
        self.status = 0
        self.headers: list[Header] = []
        self.started = False
        self._add = self.headers.append
        self._chunks: list[bytes] = []
        # llhttp calls the list itself: a piece of the body costs no Python frame.
        self.on_body: Callable[[bytes], None] = _ignore if head_only else self._chunks.append
        self._connection: _Connection | None = connection
        self._head_only = head_only
        self._since_read = 0
        self._complete = False
        self._keep = False
        self._failure: tuple[str, bool] | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._tap: Tap | None = None
        self._parser: httptools.HttpResponseParser | None = httptools.HttpResponseParser(self)

    # -- the transport's user

    def news(self) -> asyncio.Future[None]:
        """What to await until more has come. Raises Broken."""
        if self._failure is not None:
            raise Broken(self._failure[0], untouched=self._failure[1])
        assert self._connection is not None, "an answer without failure has its connection"
        self._waiter = waiter = self._connection.loop.create_future()
        return waiter

    def whole(self) -> bytes | None:
        """See Upstream.whole."""
        if not self._complete:
            return None
        data = b"".join(self._chunks)
        self._chunks.clear()
        return data

    async def read_some(self, tap: Tap | None = None) -> bytes:
        """See Upstream.read_some."""
        chunks = self._chunks
        try:
            while not chunks:
                if self._complete:
                    return b""
                self._tap = tap
                await self.news()
        finally:
            self._tap = None
        data = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        chunks.clear()
        if self._since_read > _CROWDED and self._connection is not None:
            self._connection.resume()
        self._since_read = 0
        return data

    def release(self) -> None:
        """See Upstream.release."""
        connection = self._connection
        if connection is not None:
            self._connection = None
            self._parser = None  # it holds on to us: without this, every answer would wait for the garbage collector
            connection.end(keep=self._keep and not self._chunks)
            if not self._complete:
                self.fail("the answer was abandoned")

    def close(self) -> None:
        """See Upstream.close."""
        self._keep = False
        self.release()

    # -- the connection

    def feed(self, data: bytes) -> None:
        """Bytes from the socket."""
        parser = self._parser
        if self._complete or parser is None:  # more than was promised
            self._keep = False
            return
        self._since_read += len(data)
        try:
            parser.feed_data(data)
        except httptools.HttpParserError as error:
            if _our_fault(error):
                raise
            self.fail(f"no answer: {error.__context__ or error}")
        chunks = self._chunks
        if (tap := self._tap) is not None:
            if chunks and not self._complete and self._failure is None and tap(chunks[0] if len(chunks) == 1 else b"".join(chunks)):
                chunks.clear()
                self._since_read = 0
                return
            self._tap = None  # what comes before the reader has taken this comes after it
        if self._since_read > _CROWDED and not self._complete and self._connection is not None:
            if chunks:
                self._connection.pause()
            else:
                self.fail("a head, a chunk's head or a trailer without end")
        self._wake()

    def ended(self, *, reset: bool, race: bool) -> None:
        """The backend will send no more. Without framing that is the end of the answer, unless the connection was reset."""
        framed = any(name in (b"content-length", b"transfer-encoding") for name, _ in self.headers)
        if self.started and not framed and not reset and self._failure is None:
            self._complete = True
            self._wake()
        untouched = race and not self.started and not self._since_read
        self.fail("the backend reset the connection" if reset else "the backend closed the connection", untouched=untouched)

    def fail(self, why: str, *, untouched: bool = False) -> None:
        """Nothing more will come."""
        self._keep = False
        if self._failure is None and not self._complete:
            self._failure = (why, untouched)
            self._parser = None
            self._wake()

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None:
            self._waiter = None
            if not waiter.done():
                waiter.set_result(None)

    # -- llhttp

    def on_message_begin(self) -> None:
        """The first byte of an answer, or of what follows one."""
        if self._complete:
            raise _Refused("more than one answer")

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or after the body a trailer."""
        self._add((name.lower(), value))

    def on_headers_complete(self) -> None:
        """The head of a final answer, or of an interim one (1xx)."""
        assert self._parser is not None
        status = self._parser.get_status_code()
        framed = coded = False
        for name, value in self.headers:
            if name == b"transfer-encoding":
                if coded or value.lower() != b"chunked":
                    raise _Refused("a transfer coding that was not asked for")
                coded = True
            elif name == b"content-length":
                framed = True
        if status < 200:
            if status < 100 or status == 101 or framed or coded:
                raise _Refused("an interim answer that cannot be one")
            self.headers.clear()
            return
        self.status = status
        self.started = True
        self._add = _ignore
        self._complete = self._head_only

    def on_message_complete(self) -> None:
        """The end of a message; after an interim one the answer is still to come."""
        if self.started and not self._complete:
            self._complete = True
            self._keep = self._parser is not None and self._parser.should_keep_alive()


class _Connection(asyncio.Protocol):
    """A socket. `usable` while it is open and nothing odd has come; `since`: loop time from which it is idle or busy."""

    __slots__ = ("_idle", "_large", "_open", "_owner", "_reply", "_reused", "_transport", "loop", "since", "usable")

    def __init__(self, owner: Http1Transport, loop: asyncio.AbstractEventLoop, open_: set[_Connection], idle: deque[_Connection]) -> None:
        self.loop = loop
        self.usable = False
        self.since = 0.0
        self._owner = owner
        self._open = open_
        self._idle = idle
        self._large = False
        self._reused = False
        self._reply: Reply | None = None
        self._transport: asyncio.Transport | None = None

    def begin(self, head: bytes, body: bytes, *, head_only: bool) -> Reply:
        """Starts an exchange."""
        transport = self._transport
        assert transport is not None, "begin on a connection that is not open"
        self._reply = reply = Reply(self, head_only=head_only)
        if len(body) < _LARGE:
            transport.write(head + body)
        else:
            self._large = True
            transport.writelines((head, body))
        return reply

    def end(self, *, keep: bool) -> None:
        """Ends the exchange; the socket is kept only after a clean one."""
        self._reply = None
        if keep and self.usable and not (self._large and self._unsent()):
            self._large = False
            self._reused = True
            self.since = self.loop.time()
            self._idle.append(self)
            self._owner.expire_later(self)
        else:
            self.abort()

    def abort(self) -> None:
        """Closes the socket at once."""
        self.usable = False
        if self._transport is not None:
            self._transport.abort()

    def pause(self) -> None:
        """Reads no more until `resume`: the caller is slower than the backend."""
        if self._transport is not None:
            self._transport.pause_reading()

    def resume(self) -> None:
        """Reads again."""
        if self._transport is not None:
            self._transport.resume_reading()

    def _unsent(self) -> bool:
        """The backend answered before it had the whole request: what it makes of the rest is not known."""
        return self._transport is not None and self._transport.get_write_buffer_size() > 0

    # -- asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        self._transport = cast(asyncio.Transport, transport)
        self.usable = True

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        if self._reply is not None:
            self._reply.feed(data)
        else:  # nobody asked
            self.abort()

    def eof_received(self) -> None:
        """See asyncio.Protocol."""
        self._ended(reset=False)

    def connection_lost(self, _exc: Exception | None) -> None:
        """See asyncio.Protocol. Without `eof_received` before, it was a reset, or TLS that was cut off."""
        self._transport = None
        self._open.discard(self)
        self._ended(reset=True)

    def _ended(self, *, reset: bool) -> None:
        self.usable = False
        if self._reply is not None:
            self._reply.ended(reset=reset, race=self._reused and self.loop.time() - self.since < _RACE_S)


def _our_fault(error: httptools.HttpParserError) -> bool:
    """Whether a callback failed, and not because it refused."""
    return isinstance(error, httptools.HttpParserCallbackError) and not isinstance(error.__context__, _Refused)


def _ignore(_: object) -> None:
    """Drops a trailer, or what follows the head in an answer to HEAD."""


def _head(target: Target, headers: Sequence[Header], length: int | None) -> bytes:
    """The request's head; `length` is its body's, None without a body. Raises TransportError for a header that would be two."""
    head = b"\r\n".join((target.start, *map(b": ".join, headers), b"\r\n" if length is None else b"content-length: %d\r\n\r\n" % length))
    lines = len(headers) + (3 if length is None else 4)
    if head.count(b"\n") != lines or head.count(b"\r") != lines:
        raise TransportError("a header of the request holds a line end")
    return head
