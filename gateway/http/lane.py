"""Pure ASGI in front of FastAPI's stack: the inference endpoints, straight to the core.

The same function also serves FastAPI's own routes for these endpoints (routes.py), so there is one path through the core.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final

from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.serving.call import Answer, Call, Receipt, StreamBroken
from gateway.serving.life import Gateway, admit, answered, draining, fault, open_receipt, refuse, serve, stopped
from gateway.wire import headers as wire_headers
from gateway.wire.errors import ApiError

DROP: Final = "trilemma.drop"
"""The extension of an ASGI scope that ends the connection after what was written, without an end to the answer."""

# Digits of a content-length; with more of them Python's int() may refuse.
_LONGEST_LENGTH: Final = 19
# What FastAPI's routes answer.
_ROUTED: Final = ("/v1/models", "/v1/decisions/")
_ENDPOINTS: Final = ("/v1/route", "/v1/feedback")


class ClientGone(Exception):
    """The caller left before its request was whole."""


class Lane:
    """Hands inference requests to the core and everything else to `rest`."""

    def __init__(self, rest: ASGIApp) -> None:
        self._rest = rest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] == "http":
            path: str = scope["path"]
            if path.startswith("/v1/") and not path.startswith(_ROUTED) and path not in _ENDPOINTS:
                await handle(scope["state"]["gateway"], scope, receive, send)
                return
        await self._rest(scope, receive, send)


async def handle(gateway: Gateway, scope: Scope, receive: Receive, send: Send, dry_run_of: str | None = None) -> None:
    """One inference request, from its head to the last byte of its answer. dry_run_of: the path on which it is only tried."""
    raw: bytes | None = scope.get("raw_path")
    call = Call(
        method=scope["method"],
        # Undecoded: what a percent sign hides is never resolved, here or behind.
        path=dry_run_of or (scope["path"] if raw is None else raw.decode("latin-1")),
        query=scope["query_string"],
        headers=scope["headers"],
        received=time.perf_counter(),
        peer=scope.get("client"),
    )
    receipt = open_receipt(gateway, call)
    receipt.dry_run = dry_run_of is not None
    try:
        admit(gateway, call, receipt)
        body = await _body(call, receive, gateway.state.config.server.max_body_bytes)
    except ApiError as error:
        refused = refuse(gateway, receipt, error)
        if wire_headers.first(call.headers, b"expect") is not None:
            # The body may come or not, so what follows on this connection could be either.
            refused.headers.append((b"connection", b"close"))
        await _send(refused, receipt, scope, send)
        return
    except ClientGone:
        receipt.outcome = "client_closed"
        gateway.settle(receipt)
        return
    except asyncio.CancelledError:
        if not gateway.draining:
            raise
        await _send(refuse(gateway, receipt, draining()), receipt, scope, send)  # the server stops, and waits no longer for the body
        return
    watch = _Watch()
    watcher = asyncio.get_running_loop().create_task(watch.run(receive))
    answer: Answer | None = None
    try:
        answer = await answered(gateway, receipt, serve(gateway, call, receipt, body))
        await _send(answer, receipt, scope, send, lambda: gateway.draining and not watch.gone)
    except asyncio.CancelledError:
        if watch.gone:
            if watch.task.uncancel() > 0:
                raise
        elif not gateway.draining:
            raise
        elif answer is None:  # the server stops, and waits no longer
            await _send(stopped(receipt), receipt, scope, send)
        else:  # nor for a caller that reads too slowly
            _drop(scope)
    finally:
        watch.over = True
        watcher.cancel()


async def _send(answer: Answer, receipt: Receipt, scope: Scope, send: Send, stopping: Callable[[], bool] = lambda: False) -> None:
    """stopping: whether a cancellation is the server's, that stops and waits no longer."""
    stream = answer.stream
    if stream is None:
        if answer.status != 204:  # which has no length either (RFC 9110, 8.6)
            answer.headers.append((b"content-length", b"%d" % len(answer.body)))
        await send({"type": "http.response.start", "status": answer.status, "headers": answer.headers})
        await send({"type": "http.response.body", "body": answer.body})
        return
    try:
        await send({"type": "http.response.start", "status": answer.status, "headers": answer.headers})
        while data := await stream.next():
            await send({"type": "http.response.body", "body": data, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
    except asyncio.CancelledError:
        if not stopping():
            raise
        await _cut(stream.cut(draining()), scope, send)
    except StreamBroken:
        _drop(scope)
    except Exception as error:
        await _cut(stream.cut(fault(receipt, error)), scope, send)
    finally:
        stream.close()


async def _cut(last: bytes | None, scope: Scope, send: Send) -> None:
    """Ends a stream early: with its last words, where its format has some."""
    if last is None:
        _drop(scope)
        return
    if last:
        await send({"type": "http.response.body", "body": last, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


def _drop(scope: Scope) -> None:
    """Leaves the answer unfinished: the connection ends, which is all the caller can be told. A server that cannot be asked to sees it
    for itself."""
    drop = scope.get("extensions", {}).get(DROP)
    if drop is not None:
        drop()


async def _body(call: Call, receive: Receive, limit: int) -> bytes:
    """The whole body, at most `limit` bytes. Raises ApiError 413, ClientGone."""
    length = wire_headers.first(call.headers, b"content-length")
    if length is not None and (len(length) > _LONGEST_LENGTH or int(length) > limit):
        raise too_large(limit)
    message = await receive()
    body: bytes = message.get("body", b"")
    if message["type"] == "http.request" and not message.get("more_body"):
        if len(body) > limit:
            raise too_large(limit)
        return body
    parts = [body]
    size = len(body)
    while message["type"] == "http.request":
        if size > limit:
            raise too_large(limit)
        if not message.get("more_body"):
            return b"".join(parts)
        message = await receive()
        parts.append(message.get("body", b""))
        size += len(parts[-1])
    raise ClientGone


def too_large(limit: int) -> ApiError:
    """What is told of a body of more than `limit` bytes."""
    return ApiError(413, "caller_body_too_large", f"The request body is larger than {limit} bytes.")


class _Watch:
    """Cancels the serving task when the caller leaves."""

    __slots__ = ("gone", "over", "task")

    def __init__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.task: asyncio.Task[Any] = task
        self.gone = False
        self.over = False

    async def run(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        if not self.over:
            self.gone = True
            self.task.cancel()
