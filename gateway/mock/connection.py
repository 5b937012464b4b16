"""HTTP/1.1 of the mock: a connection that hears a client leave at once, an answer that can be broken in any way."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import struct
import zlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from email.utils import formatdate
from http import HTTPStatus
from typing import Any, Literal, cast

import httptools

from gateway.mock.behaviour import Behaviour
from gateway.mock.recorder import Received, Recorder

log = logging.getLogger(__name__)

Cut = Literal["reset", "close", "stall"]
_PHRASES: Mapping[int, str] = {int(status): status.phrase for status in HTTPStatus}
_WINDOW_BITS: Mapping[str, int] = {"gzip": zlib.MAX_WBITS | 16, "deflate": zlib.MAX_WBITS}


class HangUp(Exception):
    """The script has ended the connection: nothing more is to be sent."""


async def for_ever() -> None:
    """Waits until cancelled, as the connection's task is when its client leaves."""
    await asyncio.get_running_loop().create_future()


class Connection(asyncio.Protocol):
    """One client: its requests go one after the other to `handle`, which is cancelled when the client leaves."""

    def __init__(
        self,
        recorder: Recorder,
        handle: Callable[[Received, Connection], Awaitable[None]],
        keep_alive_s: float,
        owner: set[Connection],
        ended: Callable[[], bool],
    ) -> None:
        self._owner = owner
        self._ended = ended
        self._recorder = recorder
        self._handle = handle
        self._keep_alive_s = keep_alive_s
        self._parser = httptools.HttpRequestParser(self)
        self._queue: asyncio.Queue[Received] = asyncio.Queue()
        self._pending: list[Received] = []
        self._writable = asyncio.Event()
        self._writable.set()
        self._transport: asyncio.Transport
        self.number = 0
        self.task: asyncio.Task[None]

    # -- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports are no subclass of it.
        self.number = self._recorder.connected()
        self.task = asyncio.get_running_loop().create_task(self._serve())
        self._owner.add(self)
        self.task.add_done_callback(lambda _: self._owner.discard(self))
        if self._ended():  # it was accepted just before the mock stopped listening
            self.abort()

    def data_received(self, data: bytes) -> None:
        try:
            with contextlib.suppress(httptools.HttpParserUpgrade):  # The request itself was parsed; upgrades are ignored.
                self._parser.feed_data(data)
        except httptools.HttpParserError:
            body = b"Invalid HTTP request received."
            head = b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\nconnection: close\r\n"
            self._transport.write(head + b"content-length: %d\r\n\r\n" % len(body) + body)
            self._transport.close()

    def eof_received(self) -> None:
        self._left()
        self._transport.abort()  # As the engine's server does: a client that has shut down writing is gone.

    def connection_lost(self, _: Exception | None) -> None:
        self._left()
        self._recorder.disconnected()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    # -- httptools

    def on_message_begin(self) -> None:
        self._url, self._headers, self._body = b"", list[tuple[str, str]](), bytearray()

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.decode("latin-1"), value.decode("latin-1")))

    def on_headers_complete(self) -> None:
        if any(name.lower() == "expect" and value.lower() == "100-continue" for name, value in self._headers):
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        request = Received(
            number=self._recorder.total + 1,
            connection=self.number,
            method=self._parser.get_method().decode("latin-1"),
            target=self._url.decode("latin-1"),
            headers=self._headers,
            body=bytes(self._body),
            keep_alive=self._parser.should_keep_alive(),
        )
        self._recorder.received(request)
        self._pending.append(request)
        self._queue.put_nowait(request)

    # -- serving

    def _left(self) -> None:
        for request in self._pending:
            self._recorder.settle(request, aborted=True)
        self._pending.clear()
        self.task.cancel()

    async def _serve(self) -> None:
        while await self._answer_next():
            pass
        self._transport.close()

    async def _answer_next(self) -> bool:
        """Answers the next request; False when the connection is to end: idle too long, scripted, or as asked."""
        try:
            async with asyncio.timeout(self._keep_alive_s):
                request = await self._queue.get()
        except TimeoutError:
            return False
        try:
            await self._handle(request, self)
        except HangUp:
            return False
        except Exception:
            log.exception("the mock failed at %s %s", request.method, request.target)
            if request.status is not None:
                self.hang_up(request, "reset")
                return False
            await Answer(self, request, Behaviour()).whole(500, b"Internal Server Error", "text/plain; charset=utf-8")
        self._recorder.settle(request, answered=True)
        self._pending.remove(request)
        return request.keep_alive

    async def send(self, data: bytes) -> None:
        """Writes, and waits while the client does not read."""
        self._transport.write(data)
        self._recorder.changed()
        await self._writable.wait()

    def hang_up(self, request: Received, how: Literal["reset", "close"]) -> None:
        """Ends the connection now: with RST, or with FIN after what was written."""
        self._recorder.settle(request, cut=True)
        if how == "close":
            self._transport.close()
            return
        raw: Any = self._transport.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._transport.abort()

    def abort(self) -> None:
        """Ends the connection because the mock ends."""
        for request in self._pending:
            self._recorder.settle(request, cut=True)
        self._transport.abort()


class Answer:
    """The answer to one request, sent as its behaviour says."""

    def __init__(self, connection: Connection, request: Received, behaviour: Behaviour) -> None:
        self._connection = connection
        self._request = request
        self._behaviour = behaviour
        self._chunked = False
        bits = _WINDOW_BITS.get(behaviour.content_encoding or "")
        self._deflate = zlib.compressobj(wbits=bits) if bits else None  # "br" only labels: the bytes are the script's.

    async def raw(self, data: bytes) -> None:
        """Sends bytes as they are, status line and all; an answer that is left open ends with the connection."""
        for piece in self._pieces(data):
            await self._connection.send(piece)
            self._request.bytes_sent += len(piece)
            await asyncio.sleep(0)
        await self.checkpoint(0)
        self._request.keep_alive = False

    async def whole(self, status: int, body: bytes, content_type: str | None = "application/json") -> None:
        """Sends an answer whose body is known."""
        if self._deflate:
            body, self._deflate = self._deflate.compress(body) + self._deflate.flush(), None
        await self.head(status, content_type, len(body))
        if self._request.method != "HEAD":
            await self.write(body)
        await self.end()

    async def head(self, status: int, content_type: str | None, length: int | None = None) -> None:
        """Sends status and headers, in the order of the engine's server."""
        behaviour = self._behaviour
        self._chunked = behaviour.framing == "chunked" or (behaviour.framing == "auto" and length is None)
        headers = [("date", formatdate(usegmt=True)), ("server", "uvicorn")]
        if length is not None and behaviour.framing == "auto":
            headers.append(("content-length", str(length)))
        if content_type:
            headers.append(("content-type", content_type))
        headers.append(("vary", "Origin"))
        if self._chunked:
            headers.append(("transfer-encoding", "chunked"))
        if behaviour.content_encoding:
            headers.append(("content-encoding", behaviour.content_encoding))
        if not self._request.keep_alive or behaviour.framing == "close" or behaviour.close_connection_after == "header":
            headers.append(("connection", "close"))
        replaced = {name.lower() for name, _ in behaviour.header_pairs}
        headers = [pair for pair in headers if pair[0] not in replaced] + list(behaviour.header_pairs)
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers)
        self._request.status = status
        await self._connection.send(f"HTTP/1.1 {status} {_PHRASES.get(status, '')}\r\n{lines}\r\n".encode("latin-1"))
        await self.checkpoint(0)

    async def write(self, *parts: bytes) -> None:
        """Sends parts of the body in one write, each an HTTP chunk of its own if chunked; or cut as the script says."""
        if self._deflate:
            parts = (b"".join(self._deflate.compress(part) for part in parts) + self._deflate.flush(zlib.Z_SYNC_FLUSH),)
        behaviour = self._behaviour
        limits = [limit for limit in (behaviour.reset_after_bytes, behaviour.close_after_bytes) if limit is not None]
        room = min(limits) - self._request.bytes_sent if limits else None
        if room is not None:
            parts = (b"".join(parts)[:room],)
        if isinstance(behaviour.split, int):
            for number, piece in enumerate(self._pieces(b"".join(parts))):
                if number:
                    await asyncio.sleep(0)  # Lets the client read; not after the last, so that an answer ends with its last byte.
                await self._send(piece)
        else:
            await self._send(*parts)
        if room is not None and len(parts[0]) == room:
            await self.cut("reset" if behaviour.reset_after_bytes == min(limits) else "close")

    def _pieces(self, data: bytes) -> Iterator[bytes]:
        step = self._behaviour.split if isinstance(self._behaviour.split, int) else max(1, len(data))
        return (data[start : start + step] for start in range(0, len(data), step))

    async def _send(self, *parts: bytes) -> None:
        self._request.bytes_sent += sum(map(len, parts))
        framed = [b"%x\r\n%b\r\n" % (len(part), part) for part in parts if part] if self._chunked else parts
        await self._connection.send(b"".join(framed))

    async def end(self) -> None:
        """Ends the body."""
        if self._deflate:
            await self._send(self._deflate.flush())
        if self._chunked:
            await self._connection.send(b"0\r\n\r\n")
        if self._behaviour.framing == "close" or self._behaviour.close_connection_after:
            self._request.keep_alive = False

    async def checkpoint(self, events_sent: int) -> None:
        """Cuts the connection if the script says so after this many events."""
        behaviour = self._behaviour
        if events_sent == behaviour.stall_after_events:
            await self.cut("stall")
        if events_sent == behaviour.reset_after_events:
            await self.cut("reset")
        if events_sent == behaviour.close_after_events:
            await self.cut("close")

    async def cut(self, how: Cut) -> None:
        """Stalls, or ends the connection and raises HangUp."""
        if how == "stall":
            await self._stall()
            return
        await asyncio.sleep(self._behaviour.cut_wait_s)
        self._connection.hang_up(self._request, how)
        raise HangUp

    async def _stall(self) -> None:
        behaviour = self._behaviour
        with contextlib.suppress(TimeoutError):  # The end of a stall that has one.
            async with asyncio.timeout(behaviour.stall_s):
                if behaviour.stall_comments_s is None:
                    await for_ever()
                while True:
                    await asyncio.sleep(behaviour.stall_comments_s or 0)
                    await self._send(f": ping{behaviour.line_end}{behaviour.line_end}".encode())
