"""HTTP/1.1 in: uvicorn's protocol, repaired where broken, hostile or merely unusual peers find its gaps."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import secrets
import sys
import termios
from http import HTTPStatus
from typing import Final

import httptools
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState as UvicornState

from gateway.http.hot import LONGEST, PATHS, HotCycle
from gateway.http.lane import DROP
from gateway.serving.ids import request_id
from gateway.serving.life import Gateway
from gateway.wire import headers as wire_headers
from gateway.wire.errors import envelope

# A head that came in one read may be as large as that read.
MAX_HEAD: Final = 1 << 16
# The most that a loop reads at once.
READ: Final = 1 << 18
# What is read and forgotten of an upload that was refused: many clients send all of it before they look for an answer.
_MAX_DRAINED: Final = 64 << 20
_MAX_PIPELINED: Final = 64
_HEAD: Final = b"HTTP/1.1 %d %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\nx-request-id: %b\r\nconnection: close\r\n\r\n"


def _unread(transport: asyncio.Transport) -> int:
    """Bytes that the peer has not taken, the kernel's included: a slow reader takes those for long before ours become fewer."""
    size = transport.get_write_buffer_size()
    sock = transport.get_extra_info("socket")
    if sock is not None and sock.fileno() >= 0:
        with contextlib.suppress(OSError):  # a system that does not tell
            size += int.from_bytes(fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, bytes(4)), sys.byteorder)
    return size


class ServerState(UvicornState):
    """What the connections of a server share. closing: each ends with the answer it gives."""

    closing = False


class Protocol(HttpToolsProtocol):
    """What differs from uvicorn's:

    - bytes that are not HTTP get an OpenAI error too;
    - a caller that leaves is heard by the request that runs, also when others wait behind it (uvicorn tells only the last), and only so
      many may wait;
    - a head has a largest size, and what stands still for the keep-alive time is given up: a head, a body, an answer that is not read;
    - the offer of another protocol is declined and the request served (RFC 9110, 7.8): Java's client offers h2c with its first request;
    - trailers do not become headers (RFC 9110, 6.5.1);
    - an answer that cannot be finished ends with its connection (`DROP`), which is no fault of the application;
    - while the server ends, who has sent nothing yet may still ask, and is answered;
    - the plainest requests for inference go to the core without ASGI (hot.py). hot: whether they do.
    """

    server_state: ServerState
    hot = True
    _running: RequestResponseCycle | None = None
    _waits: HotCycle | None = None
    _timer: asyncio.TimerHandle | None = None
    _looked: object = None
    _quiet = False
    _answered_at = 0.0
    _counted: object = None
    _unclaimed = 0
    _unread = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """See asyncio.Protocol."""
        super().connection_made(transport)
        self._extensions: dict[str, object] = {DROP: self._drop}
        self._timer = self.loop.call_later(self.timeout_keep_alive, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        if self._timer is not None:
            self._timer.cancel()
        self._wait_no_longer()
        running = self._running
        if running is not None and not running.response_complete:
            if isinstance(running, HotCycle):
                running.leave()
            running.disconnected = True
            running.message_event.set()
        self._extensions.clear()  # which leads back here
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        self._quiet = False
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            self._decline(data[offer.args[0] :])
            return
        except httptools.HttpParserError:
            self.send_400_response("These bytes are not HTTP/1.1.")
            return
        cycle = self.cycle
        if cycle is None or cycle.scope is not self.scope or cycle.response_complete:
            self._count(len(data))
            return
        if cycle.more_body and not cycle.body:  # only its head so far, or framing and trailers of chunks
            self._unclaimed += len(data)
            if self._unclaimed > MAX_HEAD:
                self._refuse_head()
        else:
            self._unclaimed = 0

    def on_headers_complete(self) -> None:
        """A request's head."""
        if len(self.pipeline) >= _MAX_PIPELINED:
            raise ValueError("too many requests wait")  # which the parser turns into an error of its own
        if not self._takes_short_way():
            HttpToolsProtocol.on_headers_complete(self)
            if self.pipeline and isinstance(self._running, HotCycle) and sum(len(cycle.body) for cycle, _ in self.pipeline) < LONGEST:
                self.flow.resume_reading()  # only who reads hears that the caller has left
        if self.server_state.closing:
            self.cycle.keep_alive = False
        self.headers = []  # where trailers go, unread
        self._unclaimed = -READ  # this read may hold the end of another request's body, and is counted whole

    def on_message_complete(self) -> None:
        """A request is whole."""
        super().on_message_complete()
        cycle, self._waits = self._waits, None
        if cycle is None:
            return
        self._running = cycle
        gateway: Gateway | None = self.app_state.get("gateway")
        if gateway is None:
            self._start_asgi_task(cycle, self.app)
            return
        cycle.task = task = self.loop.create_task(cycle.run(gateway, PATHS[self.url]))
        task.add_done_callback(self.tasks.discard)
        self.tasks.add(task)

    def on_response_complete(self) -> None:
        """An answer is on its way. What uvicorn has a timer of its own for, `_look` sees."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            cycle, app = self.pipeline.pop()
            self._start_asgi_task(cycle, app)
        else:
            self._answered_at = self.loop.time()

    def _takes_short_way(self) -> bool:
        """Whether the request is one that needs no ASGI; if so, it is set up for both ways, and begins when its body is here."""
        before = self.cycle
        path = PATHS.get(self.url) if self.hot else None
        if path is None or self.expect_100_continue or self.server_state.closing or not (before is None or before.response_complete):
            return False
        parser = self.parser
        if parser.get_method() != b"POST" or parser.get_http_version() != "1.1" or parser.should_upgrade():
            return False
        length = wire_headers.first(self.headers, b"content-length")
        if length is None or len(length) > 9 or int(length) > LONGEST:
            return False
        scope = self.scope
        scope["method"] = "POST"
        scope["path"], scope["raw_path"], scope["query_string"] = path, self.url, b""
        self._waits = HotCycle(
            scope=scope,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=self.access_log,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=False,
            keep_alive=parser.should_keep_alive(),
            on_response=self.on_response_complete,
        )
        self.cycle = self._waits
        return True

    def _wait_no_longer(self) -> None:
        """What becomes of a request whose body is not here yet is ASGI's business."""
        cycle, self._waits = self._waits, None
        if cycle is not None:
            self._start_asgi_task(cycle, self.app)

    def shutdown(self) -> None:
        """The server ends."""
        self._wait_no_longer()
        if self.cycle is not None:
            super().shutdown()

    def send_400_response(self, msg: str) -> None:
        """After bad framing, nothing on this connection can be trusted."""
        self._refuse(HTTPStatus.BAD_REQUEST, msg)

    def _refuse(self, status: HTTPStatus, message: str) -> None:
        """Answers, unless an answer is on its way already, and closes."""
        if self._running is None or self._running.response_complete or not self._running.response_started:
            body = envelope(status, "caller_bad_framing", message)
            name = request_id(None, secrets.token_hex(16)).encode()
            self.transport.write(_HEAD % (status, status.phrase.encode(), len(body), name) + body)
        self.transport.close()

    def _count(self, size: int) -> None:
        """Counts bytes that no request takes: of a head that is not whole, or of an upload whose request was answered."""
        if self._counted is not self.scope:
            self._counted, self._unclaimed = self.scope, 0
        self._unclaimed += size
        cycle = self.cycle
        if cycle is None or cycle.scope is not self.scope:
            if self._unclaimed > MAX_HEAD:
                self._refuse_head()
        elif self._unclaimed > _MAX_DRAINED:
            self.transport.close()

    def _refuse_head(self) -> None:
        self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"The head of the request is larger than {MAX_HEAD} bytes.")

    def _look(self) -> None:
        """Looks, each keep-alive time, whether what has begun goes on: the head whole by the next look, body and answer by some bytes; and
        when the last answer is so old, whether another request came."""
        paused = self.flow.write_paused or self.transport.is_closing()
        unread, self._unread = self._unread, _unread(self.transport) if paused else 0
        if unread and unread == self._unread:
            self.transport.abort()  # which the request that runs hears, and with it the backend
            return
        cycle = self.cycle
        begun: object = self.scope  # None: nothing ever came
        after_s = float(self.timeout_keep_alive)
        if cycle is not None and cycle.scope is begun:
            if cycle.response_complete:
                after_s -= self.loop.time() - self._answered_at
                if after_s <= 0:
                    self.transport.close()
                    return
            stuck = self._quiet and cycle.more_body and not cycle.response_complete
        else:
            stuck = (self._running is None or self._running.response_complete) and (
                self._looked is begun or (self._running is not None and self.loop.time() - self._answered_at >= after_s)
            )
        self._looked = begun
        self._quiet = True
        if not stuck:
            self._timer = self.loop.call_later(after_s, self._look)
        elif begun is None:
            self.transport.close()
        else:
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, "The rest of the request did not come in time.")

    # -- offers of another protocol

    def _should_upgrade(self) -> bool:
        return True  # uvicorn's callbacks then leave the request alone, for `_decline`

    def _decline(self, rest: bytes) -> None:
        """Reads the request again, without the offer: behind the head of one that has it, the parser sees no body."""
        if self.scope["method"] == "CONNECT":
            self._refuse(HTTPStatus.METHOD_NOT_ALLOWED, "This is no proxy.")
            return
        parts = [f"{self.scope['method']} ".encode(), self.url, f" HTTP/{self.scope['http_version']}\r\n".encode()]
        for name, value in self.scope["headers"]:
            if name != b"upgrade":
                parts += (name, b": ", value, b"\r\n")
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does: an answered request may be followed
        self.data_received(b"".join(parts) + b"\r\n" + rest)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._running = cycle
        cycle.scope["extensions"] = self._extensions  # type: ignore[typeddict-item]
        super()._start_asgi_task(cycle, app)

    def _drop(self) -> None:
        running = self._running
        if running is not None and not running.response_complete:
            running.disconnected = True  # or uvicorn takes the application to have forgotten the rest
            self.transport.close()


class AsgiOnly(Protocol):
    """Nothing goes the short way."""

    hot = False
