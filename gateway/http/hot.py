"""The short way: a plain request is answered without ASGI, as soon as its body is here, by the same core as every other.

What it spares is what stands between uvicorn's parser and the core: messages, the watch for a caller that leaves (here the connection's end
cancels the task), a write of the head apart from the body. Everything unusual takes the way through ASGI: another method or path, `Expect`,
bodies that are long or chunked, pipelined requests, callers that leave in the middle of a body, a server that ends.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from types import MappingProxyType
from typing import Final

from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from gateway.http.lane import too_large
from gateway.serving.call import Answer, Call, Receipt, StreamBroken
from gateway.serving.life import COMPLETIONS, Gateway, admit, crashed, draining, fault, open_receipt, refuse, serve, stopped
from gateway.wire.errors import ApiError

log = logging.getLogger("trilemma")

PATHS: Final = MappingProxyType({path.encode(): path for path in (*COMPLETIONS, "/v1/embeddings")})
LONGEST: Final = HIGH_WATER_LIMIT
"""Bytes of a body; of a longer one uvicorn stops reading until somebody takes what has come."""

_LAYOUT: Final = (
    "scope",
    "transport",
    "flow",
    "logger",
    "access_logger",
    "access_log",
    "default_headers",
    "message_event",
    "expect_100_continue",
    "keep_alive",
    "on_response",
)
_PROTOCOL: Final = ("_start_asgi_task", "on_body", "on_headers_complete", "on_message_complete", "on_response_complete", "shutdown")
# No header holds one of these; a head has two of them for each line.
_CONTROLS: Final = bytes([*range(9), *range(10, 32), 127])


def fits(protocol: type[HttpToolsProtocol] = HttpToolsProtocol, cycle: type[RequestResponseCycle] = RequestResponseCycle) -> bool:
    """Whether uvicorn is laid out as this module knows it; else nothing takes the short way."""
    parameters = tuple(inspect.signature(cycle.__init__).parameters)[1:]
    return parameters == _LAYOUT and all(callable(getattr(protocol, name, None)) for name in _PROTOCOL)


class HotCycle(RequestResponseCycle):
    """A request and its answer on one connection; also fit for the way through ASGI.

    `message_event` is only waited for on that way.
    """

    task: asyncio.Task[None] | None = None

    def leave(self) -> None:
        """The caller has left."""
        self.disconnected = True
        if self.task is not None and not self.response_complete:
            self.task.cancel()

    async def run(self, gateway: Gateway, path: str) -> None:
        """Answers it. Raises nothing but a cancellation that is not the caller's leaving and not the server's end."""
        call = Call("POST", path, b"", self.scope["headers"], time.perf_counter(), self.scope["client"])  # type: ignore[arg-type]
        receipt = open_receipt(gateway, call)
        answer: Answer | None = None
        try:
            try:
                admit(gateway, call, receipt)
                limit = gateway.state.config.server.max_body_bytes
                if len(self.body) > limit:
                    raise too_large(limit)
                answer = await serve(gateway, call, receipt, bytes(self.body))
            except ApiError as error:
                answer = refuse(gateway, receipt, error)
            except Exception as error:
                answer = crashed(gateway, receipt, error)
            await self._send(gateway, receipt, answer)
        except asyncio.CancelledError:
            if self.disconnected:
                if self.task is not None and self.task.uncancel() > 0:
                    raise
            elif not gateway.draining:
                raise
            elif answer is None:  # the server stops, and waits no longer
                await self._send(gateway, receipt, stopped(receipt))
            else:  # nor for a caller that reads too slowly
                self._drop()
        except Exception:
            log.exception("the answer to request %s could not be sent", receipt.request_id)
            self._drop()

    async def _send(self, gateway: Gateway, receipt: Receipt, answer: Answer) -> None:
        stream = answer.stream
        if stream is None:
            if self.flow.write_paused:
                await self.flow.drain()
            self._write(self._head(answer, b"content-length: %d" % len(answer.body)) + answer.body)
            self._complete()
            return
        try:
            self._write(self._head(answer, b"transfer-encoding: chunked"))
            flow = self.flow
            while data := await stream.next(self._push):
                if not self._push(data):
                    await flow.drain()
            self.transport.write(b"0\r\n\r\n")
            self._complete()
        except asyncio.CancelledError:
            if self.disconnected or not gateway.draining:
                raise
            self._cut(stream.cut(draining()))
        except StreamBroken:
            self._drop()
        except Exception as error:
            self._cut(stream.cut(fault(receipt, error)))
        finally:
            stream.close()

    def _push(self, data: bytes) -> bool:
        """See call.Push."""
        if self.transport.is_closing():
            return False
        self.transport.write(b"%x\r\n%b\r\n" % (len(data), data))
        return not self.flow.write_paused

    def _write(self, data: bytes) -> None:
        self.response_started = True
        self.transport.write(data)

    def _cut(self, last: bytes | None) -> None:
        """Ends a stream early: with its last words, where its format has some."""
        if last is None or not self.response_started or self.transport.is_closing():
            self._drop()
            return
        if last:
            self.transport.write(b"%x\r\n%b\r\n" % (len(last), last))
        self.transport.write(b"0\r\n\r\n")
        self._complete()

    def _complete(self) -> None:
        self.response_complete = True
        if not self.keep_alive:
            self.transport.close()
        self.on_response()

    def _drop(self) -> None:
        """Leaves the answer unfinished: the connection ends, which is all the caller can be told."""
        self.disconnected = True
        self.transport.close()

    def _head(self, answer: Answer, framing: bytes) -> bytes:
        headers = [*map(b": ".join, self.default_headers), *map(b": ".join, answer.headers)]
        if answer.status != 204:
            headers.append(framing)
        if not self.keep_alive:
            headers.append(b"connection: close")
        head = b"%b%b\r\n\r\n" % (STATUS_LINE[answer.status], b"\r\n".join(headers))
        if len(head) - len(head.translate(None, _CONTROLS)) != 2 * len(headers) + 4:
            raise ValueError("a header holds what no header may hold")
        return head
