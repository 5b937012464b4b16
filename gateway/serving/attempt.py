"""One attempt: a request to one replica, and what came of it."""

from __future__ import annotations

import re
import time
from typing import Any

import msgspec
import orjson

from gateway.engines.openai import error_message
from gateway.pool.backend import Backend
from gateway.pool.breaker import Fault, fault_of
from gateway.pool.transport import Broken, ConnectFailed, TimedOut, Transport, TransportError, Upstream
from gateway.serving.begun import Begun
from gateway.serving.call import Receipt, UpstreamCall
from gateway.serving.errand import Errand
from gateway.serving.exchange import Exchange
from gateway.serving.patience import DeadlinePassed, Patience
from gateway.serving.retry import Failure
from gateway.serving.state import RealModel
from gateway.serving.streams import SSE_HEADERS, EventStream, RawStream
from gateway.wire import headers as wire_headers
from gateway.wire.encoding import inflater
from gateway.wire.errors import JSON, NO_RETRY, ApiError, Header, envelope
from gateway.wire.request import json_object, refuse_keys_in_another_case
from gateway.wire.stream import StreamRelay
from gateway.wire.usage import read_answer

# A larger answer goes on as it comes, without being read for usage.
_HELD = 32 << 20
_OURS_IN_SSE = frozenset(name for name, _ in SSE_HEADERS)
_TAGS = re.compile(r"<(script|style)\b.*?</\1\s*>|<[^>]*>", re.IGNORECASE | re.DOTALL)


async def attempt(
    transport: Transport, patience: Patience, backend: Backend, model: RealModel, errand: Errand, receipt: Receipt
) -> Begun | Failure:
    """Sends the request once. Raises ApiError for what no other replica could change; nothing is left open unless a stream is returned.

    Of the receipt only `attempts` and `calls` change: what comes of an attempt is not yet what comes of the request.
    """
    if not errand.openai and backend.adapter.is_forbidden(errand.call.path):
        raise ApiError(404, "caller_not_found", "There is no such endpoint.")
    if errand.form is None and errand.body and backend.adapter.capabilities.keys_in_any_case:
        refuse_keys_in_another_case(errand.body)
    limits = model.limits[backend.name]
    name = backend.models[model.public]
    body, target = errand.body_for(name, backend.adapter.name), errand.target_for(name)
    first_s = limits.first_byte_s if errand.idle_s is None else min(errand.idle_s, limits.first_byte_s)
    call = UpstreamCall(backend.name, model.public, time.perf_counter(), errand.purpose, rates=model.rates, others=backend.in_flight)
    receipt.calls.append(call)
    begun: Begun | Failure | None = None
    exchange = Exchange(backend, call, limits, patience, errand.idle_s)
    try:
        with patience.within(first_s):
            upstream = await _send(transport, backend, errand, target, body, limits.connect_s, receipt)
        backend.answered = True
        begun = await _answer(upstream, exchange, errand, first_s)
        if errand.ask_usage and isinstance(begun, Begun) and begun.status in (400, 422) and _usage_refused(backend, begun):
            exchange.close()
            begun = await attempt(transport, patience, backend, model, msgspec.structs.replace(errand, ask_usage=False), receipt)
        return begun
    except TransportError as error:
        call.first = time.perf_counter()
        call.outcome = "backend_error"
        fault: Fault = "timeout" if isinstance(error, TimedOut) else "connect" if isinstance(error, ConnectFailed) else "reset"
        exchange.failed(fault)
        # What is not known to be harmless twice is only tried elsewhere when nothing of it was sent.
        return Failure(_failed(error), elsewhere=errand.openai or fault == "connect")
    except DeadlinePassed:
        call.first = time.perf_counter()
        raise ApiError(504, "gateway_deadline", "The request's deadline passed.", headers=(NO_RETRY,)) from None
    finally:
        if not isinstance(begun, Begun) or begun.stream is None:
            exchange.close()


async def _send(
    transport: Transport, backend: Backend, errand: Errand, target: str, body: bytes, connect_s: float, receipt: Receipt
) -> Upstream:
    call = errand.call
    headers = wire_headers.forwarded(call.headers, backend.forward)
    if errand.onward is not None:  # before anything is waited for: the newest call is this one
        headers = errand.onward(headers, receipt)
    headers += ((b"x-request-id", receipt.decision_id.encode()), (b"accept-encoding", b"identity"))
    if backend.authorization is not None:
        headers.append((b"authorization", backend.authorization))
    url = backend.url + target
    receipt.attempts += 1
    try:
        return await transport.send(call.method, url, headers, body, connect_s)
    except Broken as error:
        if not error.untouched:
            raise
    # A kept-alive connection that the backend closed just as it was used: nothing was answered, so once more on a fresh one.
    receipt.attempts += 1
    return await transport.send(call.method, url, headers, body, connect_s, fresh=True)


async def _answer(upstream: Upstream, exchange: Exchange, errand: Errand, first_s: float) -> Begun | Failure:
    call = exchange.call
    coding = wire_headers.first(upstream.headers, b"content-encoding")
    inflate = None if coding is None else inflater(coding)
    exchange.opened(upstream, inflate)
    status = call.status = upstream.status
    call.first = time.perf_counter()
    if status in (401, 403):
        if not _callers_own_key(exchange.backend):
            exchange.failed("status")
        return _bad(call, ApiError(502, "backend_auth", "The backend refused the gateway's key.", headers=(NO_RETRY,)))
    if not (200 <= status < 300 or 400 <= status < 600):
        exchange.failed("status")
        return _bad(call, ApiError(502, "backend_bad_answer", f"The backend answered with status {status}."))
    headers = wire_headers.answered(upstream.headers)
    # A coding that cannot be undone here goes on as it is, unread.
    opaque = coding is not None and inflate is None and coding != b"identity"
    if opaque and coding is not None:
        headers.append((b"content-encoding", coding))
    kind = (wire_headers.first(upstream.headers, b"content-type") or b"").split(b";")[0].strip().lower()
    if status < 300 and kind == b"text/event-stream" and not opaque:
        stream = EventStream(exchange, StreamRelay(strip_usage=errand.ask_usage, needs_done=errand.openai), errand.prompt_bytes)
        await stream.begin(first_s)
        exchange.began_well()
        call.streamed = True
        call.first = time.perf_counter()
        headers = [header for header in headers if header[0] not in _OURS_IN_SSE]
        headers += SSE_HEADERS
        return Begun(call, status, headers, stream=stream)
    data, whole = await _held(exchange)
    call.first = time.perf_counter()
    if not whole:
        exchange.went_well()
        return Begun(call, status, headers, stream=RawStream(exchange, data))
    if opaque:
        call.outcome = "ok" if status < 400 else "backend_error"
    elif status >= 400:
        return _refusal(exchange, status, data, headers, upstream, errand)
    else:
        refused = _read_answer(data, kind, errand, call)
        if refused is not None:
            exchange.failed("status")
            return Failure(refused if isinstance(refused, ApiError) else Begun(call, 502, headers, data), elsewhere=errand.openai)
    exchange.went_well()
    return Begun(call, status, headers, data)


def _callers_own_key(backend: Backend) -> bool:
    """Whether it may be the caller's own key that goes on: then what is said of a key says nothing of the backend."""
    return backend.authorization is None and b"authorization" in backend.forward


def _bad(call: UpstreamCall, error: ApiError) -> Failure:
    call.outcome = "backend_error"
    return Failure(error, elsewhere=True)


def _refusal(exchange: Exchange, status: int, data: bytes, headers: list[Header], upstream: Upstream, errand: Errand) -> Begun | Failure:
    """A backend's own error: for the caller, if it is about what the caller sent; else another replica may do better."""
    adapter, call = exchange.backend.adapter, exchange.call
    error = json_object(data)
    if error is not None and status >= 500 and adapter.is_caller_fault(status, error):
        call.outcome = "caller_error"
        raise ApiError(400, "caller_invalid_value", error_message(error))
    call.outcome = "caller_error" if status < 500 and status not in (408, 429) else "backend_error"
    if error is None:
        data, headers = _enveloped(status, data), [h for h in headers if h[0] != b"content-type"] + [JSON]
    elif adapter.is_context_overflow(status, error):
        return Begun(call, status, headers, _coded(data, error), overflow=True)
    told = Begun(call, status, headers, data)
    fault = fault_of(status)
    if fault is not None:
        asked_s = wire_headers.retry_after_s(upstream.headers)
        if status != 429 or not _callers_own_key(exchange.backend):
            exchange.failed(fault, asked_s)
        return Failure(told, elsewhere=errand.openai or status in (429, 503), retry_after_s=asked_s)
    if error is not None and adapter.is_unknown_model(status, error):
        return Failure(told, elsewhere=True)
    return told


def _coded(data: bytes, answer: dict[str, Any]) -> bytes:
    """A context overflow with the code that clients look for, where the engine gives none."""
    error = answer.get("error")
    inner = error if isinstance(error, dict) else answer
    if inner.get("code") is not None:
        return data
    inner["code"] = "context_length_exceeded"
    return orjson.dumps(answer)


def _enveloped(status: int, data: bytes) -> bytes:
    """HTML, text or nothing: the envelope with a short excerpt."""
    excerpt = " ".join(_TAGS.sub(" ", data[:4096].decode("utf-8", "replace")).split())[:200]
    return envelope(status, "backend_error", f"The backend answered with status {status}" + (f": {excerpt}" if excerpt else "."))


async def _held(exchange: Exchange) -> tuple[bytes, bool]:
    """The whole body, or, when it passes `_HELD`, what has come of it."""
    whole = exchange.whole()
    if whole is not None:
        return whole, True
    data = await exchange.read()
    if not data:
        return data, True
    parts = [data]
    size = len(data)
    while data := await exchange.read():
        parts.append(data)
        size += len(data)
        if size > _HELD:
            return b"".join(parts), False
    return parts[0] if len(parts) == 1 else b"".join(parts), True


def _usage_refused(backend: Backend, answer: Begun) -> bool:
    """Whether the backend takes everything but the option that the caller never asked for."""
    return backend.adapter.rejects_include_usage(answer.status, json_object(answer.body) or {})


def _read_answer(data: bytes, kind: bytes, errand: Errand, call: UpstreamCall) -> ApiError | bool | None:
    """Reads usage of an answer with status 2xx. None: it is good. Else it is none: True when its body says so itself."""
    call.outcome = "ok"
    if not errand.openai and kind != b"application/json":
        return None
    answer = read_answer(data)
    if answer is not None:
        call.usage = answer.usage
    if not errand.openai:
        return None
    if answer is None:
        call.outcome = "backend_error"
        return ApiError(502, "backend_bad_answer", "The backend's answer is not a JSON object.")
    if answer.is_error:
        call.outcome = "backend_error"
        return True
    return None


def _failed(error: TransportError) -> ApiError:
    if isinstance(error, TimedOut):
        return ApiError(504, "backend_timeout", "The backend did not answer in time.", headers=(NO_RETRY,))
    if isinstance(error, ConnectFailed):
        return ApiError(502, "backend_unreachable", "The backend could not be reached.")
    return ApiError(502, "backend_error", "The connection to the backend broke before it answered.")
