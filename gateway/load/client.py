"""The callers: asyncio protocols that cost little enough to hold thousands of streams beside the gateway that is measured."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from array import array
from collections import deque
from collections.abc import Mapping
from typing import Final, cast
from urllib.parse import urlsplit

from gateway.load.arrivals import Ask, body
from gateway.load.exchange import Exchange
from gateway.load.outcome import Record
from gateway.load.scenario import Load

_KEEP_ALIVE_S: Final = 20.0
_CONNECT_S: Final = 30.0
# A slow reader's window: what it does not take has to wait in the gateway and before it.
_SMALL_WINDOW: Final = 4_096


class Client:
    """All callers of a run. Idle connections are used again, newest first, as the SDKs' pools do. Build it inside the running loop.

    keys: by tenant. patience_s: how long a caller waits for the end. `start` sets the clock.
    """

    def __init__(self, url: str, keys: Mapping[str, str], patience_s: float) -> None:
        parts = urlsplit(url)
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if self._tls else 80)
        authority = f"[{self._host}]" if ":" in self._host else self._host
        self._head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: {authority}:{self._port}\r\ncontent-type: application/json\r\n"
        self._keys = keys
        self._patience_s = patience_s
        self._loop = asyncio.get_running_loop()
        self._idle: deque[Connection] = deque()
        self._zero = 0.0
        self.open: set[Connection] = set()
        self._in_flight = 0
        self._most_in_flight = 0
        self.gaps: dict[str, array[float]] = {}
        self.records: list[Record] = []

    def start(self, lead_s: float) -> None:
        """The load begins in so many seconds."""
        self._zero = time.perf_counter() + lead_s

    def clock(self) -> float:
        """Seconds from the start of the load."""
        return time.perf_counter() - self._zero

    def most_in_flight(self) -> int:
        """The most requests that were in flight at once since this was last asked."""
        most, self._most_in_flight = self._most_in_flight, self._in_flight
        return most

    def payload(self, ask: Ask, load: Load) -> tuple[bytes, bytes]:
        """Head and body of a request."""
        content = body(ask, load)
        key = self._keys.get(ask.tenant)
        lines = [f"{name}: {value}\r\n" for name, value in load.headers.items()]
        if key:
            lines.append(f"authorization: Bearer {key}\r\n")
        return f"{self._head}{''.join(lines)}content-length: {len(content)}\r\n\r\n".encode(), content

    async def ask(self, ask: Ask, payload: tuple[bytes, bytes]) -> None:
        """Sends one request and reads what comes until it is over; its record is kept whatever happens."""
        record = Record(
            number=ask.number,
            load=ask.load,
            tenant=ask.tenant,
            at=ask.at,
            stream=ask.stream,
            slow=ask.bytes_per_s is not None,
            max_tokens=ask.max_tokens,
        )
        self.records.append(record)
        # A slow reader's gaps are its own doing.
        gaps = array("d") if record.slow else self.gaps.setdefault(ask.load, array("d"))
        exchange = Exchange(record, self.clock, gaps, self._loop.create_future(), ask.leave_after_events)
        leaving = None if ask.leave_at is None else self._loop.call_later(max(0.0, ask.leave_at - self.clock()), exchange.leave)
        self._in_flight += 1
        self._most_in_flight = max(self._most_in_flight, self._in_flight)
        connection: Connection | None = None
        try:
            async with asyncio.timeout(max(0.0, ask.at + self._patience_s - self.clock())):
                connection = await self._connection(exchange, ask.bytes_per_s)
                if connection is not None:
                    record.sent = self.clock()
                    connection.begin(exchange, payload, ask.bytes_per_s)
                    await exchange.over
        except TimeoutError:
            exchange.give_up()
        finally:
            self._in_flight -= 1
            if leaving is not None:
                leaving.cancel()
            if connection is not None:
                connection.finish()

    async def close(self) -> None:
        """Closes what is idle."""
        for connection in tuple(self.open):
            connection.abort()
        await asyncio.sleep(0)

    def put_back(self, connection: Connection) -> None:
        """The connection may serve again."""
        connection.since = time.perf_counter()
        self._idle.append(connection)

    async def _connection(self, exchange: Exchange, bytes_per_s: float | None) -> Connection | None:
        """None when there is none to be had, or the caller left meanwhile: the record knows."""
        while self._idle and bytes_per_s is None:
            connection = self._idle.pop()
            if connection.usable and time.perf_counter() - connection.since < _KEEP_ALIVE_S:
                return connection
            connection.abort()
        try:
            connection = await self._connect(bytes_per_s is not None)
        except (OSError, TimeoutError) as error:
            exchange.end(f"no connection: {type(error).__name__}")
            return None
        if exchange.over.done():
            connection.abort()
            return None
        return connection

    async def _connect(self, slow: bool) -> Connection:
        def protocol() -> Connection:
            return Connection(self)

        name = self._host if self._tls else None
        async with asyncio.timeout(_CONNECT_S):
            if not slow:
                made = await self._loop.create_connection(protocol, self._host, self._port, ssl=self._tls)
                return made[1]
            family, kind, number, _, address = (await self._loop.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM))[0]
            raw = socket.socket(family, kind, number)
            try:
                raw.setblocking(False)
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SMALL_WINDOW)  # before connecting: it limits the window
                await self._loop.sock_connect(raw, address)
                made = await self._loop.create_connection(protocol, sock=raw, ssl=self._tls, server_hostname=name)
            except BaseException:
                raw.close()
                raise
            return made[1]


class Connection(asyncio.Protocol):
    """A caller's socket, one exchange at a time. `usable`: open and idle, or busy with an exchange."""

    def __init__(self, owner: Client) -> None:
        self.usable = False
        self.since = 0.0
        self._owner = owner
        self._exchange: Exchange | None = None
        self._bytes_per_s: float | None = None
        self._resuming: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None

    def begin(self, exchange: Exchange, payload: tuple[bytes, bytes], bytes_per_s: float | None) -> None:
        """Sends a request."""
        self._exchange = exchange
        self._bytes_per_s = bytes_per_s
        if self._transport is None:
            exchange.end("the connection was closed")
        else:
            self._transport.writelines(payload)

    def finish(self) -> None:
        """The exchange is over: the socket goes back after a clean one, else it is closed at once."""
        exchange, self._exchange = self._exchange, None
        if exchange is not None and exchange.keep and self.usable and self._bytes_per_s is None:
            self._owner.put_back(self)
        else:
            self.abort()

    def abort(self) -> None:
        """Closes the socket at once."""
        self.usable = False
        if self._transport is not None:
            self._transport.abort()

    # -- asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        self._transport = cast(asyncio.Transport, transport)
        self.usable = True
        self._owner.open.add(self)

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        if self._exchange is None:
            self.abort()
            return
        self._exchange.feed(data)
        if self._bytes_per_s is not None and self._transport is not None and not self._exchange.over.done():
            self._transport.pause_reading()
            self._resuming = asyncio.get_running_loop().call_later(len(data) / self._bytes_per_s, self._resume)

    def _resume(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        self.usable = False
        self._transport = None
        self._owner.open.discard(self)
        if self._resuming is not None:
            self._resuming.cancel()
        if self._exchange is not None:
            self._exchange.end("the connection was reset" if exc is not None else "the connection was closed")
