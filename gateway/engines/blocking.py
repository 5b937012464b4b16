"""HTTP/1.1 for threads: one whole exchange at a time, bounded in time and in size, over connections that are kept.

What is not here is meant: no redirects, cookies, proxies, decompression. The loop's own client is pool/http1.py.
"""

from __future__ import annotations

import socket
import ssl
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final
from urllib.parse import urlsplit

import httptools

from gateway.wire.errors import Header

# llama.cpp closes an idle connection after 5 s: ours must go first.
_KEEP_ALIVE_S: Final = 4.0
# Bytes of an answer that may be none of its body: the head, and what chunks begin with.
_AROUND: Final = 1 << 16
_PIECE: Final = 1 << 16

_Idle = deque[tuple[socket.socket, float]]


class NoAnswer(OSError):
    """What came is no whole answer, or a longer one than was asked for."""


class Client:
    """POSTs to one URL; safe in threads. headers: of each request, besides those of framing. now: seconds, monotonic."""

    def __init__(self, url: str, headers: Sequence[Header], now: Callable[[], float] = time.monotonic) -> None:
        self._url = url
        self._headers = headers
        self._now = now
        self._idle: _Idle = deque()
        self._tls: ssl.SSLContext | None = None
        weakref.finalize(self, _close, self._idle)

    def post(self, body: bytes, within_s: float, most: int) -> tuple[int, bytes]:
        """Status and body of the answer. most: bytes of its body. Raises TimeoutError, OSError, and ValueError for a URL that leads
        nowhere or a header that cannot be sent."""
        deadline = self._now() + within_s
        sent = self._head(len(body)) + body
        while True:
            kept = self._kept()
            connection = kept or self._connected(deadline)
            reply = _Reply(most)
            try:
                self._exchange(connection, sent, reply, deadline)
            except BaseException as error:
                connection.close()
                if kept is None or reply.size or not isinstance(error, ConnectionError):
                    raise
                continue  # it was closed for having been idle: the request never arrived
            if reply.keeps:
                self._idle.append((connection, self._now()))
            else:
                connection.close()
            return reply.status, bytes(reply.body)

    def _head(self, length: int) -> bytes:
        parts = urlsplit(self._url)
        authority = parts.netloc.encode("idna")
        start = b"POST %b HTTP/1.1\r\nhost: %b\r\n" % ((parts.path or "/").encode("ascii"), authority)
        if any(b"\r" in part or b"\n" in part for header in self._headers for part in header):
            raise ValueError("a header holds a line end")
        return b"".join((start, *(b"%b: %b\r\n" % header for header in self._headers), b"content-length: %d\r\n\r\n" % length))

    def _kept(self) -> socket.socket | None:
        """The connection that was used last, if it is young enough; older ones are closed."""
        try:
            connection, since = self._idle.pop()
        except IndexError:
            return None
        if self._now() - since < _KEEP_ALIVE_S:
            return connection
        connection.close()
        _close(self._idle)
        return None

    def _connected(self, deadline: float) -> socket.socket:
        parts = urlsplit(self._url)
        host, tls = parts.hostname or "", parts.scheme == "https"
        connection = socket.create_connection((host, parts.port or (443 if tls else 80)), self._left(deadline))
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if not tls:
                return connection
            self._tls = context = self._tls or ssl.create_default_context()
            connection.settimeout(self._left(deadline))
            return context.wrap_socket(connection, server_hostname=host)
        except BaseException:
            connection.close()
            raise

    def _exchange(self, connection: socket.socket, sent: bytes, reply: _Reply, deadline: float) -> None:
        connection.settimeout(self._left(deadline))
        connection.sendall(sent)
        while not reply.complete:
            connection.settimeout(self._left(deadline))  # of the whole, however slowly it drips
            data = connection.recv(_PIECE)
            if not data:
                raise ConnectionResetError("closed in the midst of an answer")
            reply.feed(data)

    def _left(self, deadline: float) -> float:
        """Seconds. Raises TimeoutError when there are none."""
        left = deadline - self._now()
        if left <= 0:
            raise TimeoutError("no whole answer in time")
        return left


class _Reply:
    """An answer as it arrives; llhttp calls what begins with `on_`. size: bytes that came."""

    def __init__(self, most: int) -> None:
        self.status = 0
        self.body = bytearray()
        self.size = 0
        self.complete = False
        self.keeps = False
        self._most = most
        self._parser = httptools.HttpResponseParser(_Events(self))

    def feed(self, data: bytes) -> None:
        """More of it. Raises NoAnswer."""
        self.size += len(data)
        if self.size > self._most + _AROUND:
            raise NoAnswer("an answer that is too long")
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            raise NoAnswer("an answer that is not HTTP") from error
        if len(self.body) > self._most:
            raise NoAnswer("an answer that is too long")

    def ended(self) -> None:
        """The end of a message: of the answer, or of an interim one (1xx) before it."""
        status = self._parser.get_status_code()
        if self.complete:
            self.keeps = False  # more than was asked for
        elif status >= 200:
            self.status = status
            self.complete = True
            self.keeps = self._parser.should_keep_alive()


class _Events:
    """What llhttp calls. It knows its reply weakly: the parser holds on to it, and the reply to the parser."""

    def __init__(self, reply: _Reply) -> None:
        self._reply = weakref.proxy(reply)
        self.on_body = reply.body.extend

    def on_message_complete(self) -> None:
        """The end of a message."""
        self._reply.ended()


def _close(idle: _Idle) -> None:
    while idle:
        idle.pop()[0].close()
