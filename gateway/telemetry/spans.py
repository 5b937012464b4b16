"""A receipt as spans: one of the request, and below it one for each call. Names, ids and numbers; never text, a key or a path."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from gateway.serving.call import Receipt, UpstreamCall
from gateway.telemetry import names, traceparent
from gateway.telemetry.metrics import OTHER, ROUTES
from gateway.wire.usage import Usage

Attributes = Mapping[str, str | int | float | bool]


class Span(msgspec.Struct, frozen=True):
    """One span. Times are nanoseconds since 1970. failed: for a fault of the gateway's side, not of the caller's."""

    span_id: int
    name: str
    start_ns: int
    end_ns: int
    attributes: Attributes
    failed: bool


class Trace(msgspec.Struct, frozen=True):
    """The spans of a request. parent: the caller's."""

    trace_id: int
    parent: traceparent.Parent | None
    request: Span
    calls: tuple[Span, ...]


_NO_FAULT: Final = ("ok", "caller_error", "client_closed", "cancelled")


def trace_of(receipt: Receipt, ended: float) -> Trace:
    """ended: when the request had, time.perf_counter()."""
    apart = _clocks_apart_ns()

    def ns(at: float) -> int:
        return int(at * 1e9) + apart

    parent = None if receipt.call is None else traceparent.parent(receipt.call.headers)
    operation = None if receipt.call is None else names.OPERATIONS.get(receipt.call.path)
    calls = tuple(
        Span(
            traceparent.span_id(receipt.decision_id, number),
            f"{operation or 'call'} {call.model}",
            ns(call.started),
            ns(ended if call.ended is None else call.ended),
            _of_call(call, operation, streams=receipt.events > 0),
            call.outcome not in _NO_FAULT,
        )
        for number, call in enumerate(receipt.calls, 1)
    )
    request = Span(
        traceparent.span_id(receipt.decision_id, 0),
        _name(receipt, operation),
        ns(receipt.received),
        ns(ended),
        _of_request(receipt, operation),
        receipt.outcome not in _NO_FAULT,
    )
    trace_id = traceparent.trace_id(receipt.decision_id) if parent is None else parent.trace_id
    return Trace(trace_id, parent, request, calls)


def _clocks_apart_ns() -> int:
    """What the time of day is ahead of receipts' clock. Between two readings a thread may have to wait, so the closest ones count."""
    readings = [(time.perf_counter_ns(), time.time_ns(), time.perf_counter_ns()) for _ in range(3)]
    before, of_day, after = min(readings, key=lambda each: each[2] - each[0])
    return of_day - (before + after) // 2


def _name(receipt: Receipt, operation: str | None) -> str:
    if operation is not None:
        return operation if _asked(receipt) is None else f"{operation} {_asked(receipt)}"
    return f"{_method(receipt)} {_route(receipt)}"


def _asked(receipt: Receipt) -> str | None:
    """The model asked for, if there is one of that name: else anything may stand there."""
    return None if receipt.served_model is None else receipt.requested_model


def _method(receipt: Receipt) -> str:
    return receipt.call.method if receipt.call is not None and receipt.call.method in names.METHODS else "_OTHER"


def _route(receipt: Receipt) -> str:
    return OTHER if receipt.call is None else ROUTES.get(receipt.call.path, OTHER)


def _of_request(receipt: Receipt, operation: str | None) -> Attributes:
    found: dict[str, Any] = {
        names.METHOD: _method(receipt),
        names.ROUTE: _route(receipt),
        names.STATUS: receipt.status or None,
        names.OPERATION: operation,
        names.REQUEST_MODEL: _asked(receipt),
        names.RESPONSE_MODEL: receipt.served_model,
        names.ERROR: None if receipt.outcome == "ok" else receipt.code or receipt.outcome,
        names.REQUEST_ID: receipt.request_id,
        names.DECISION_ID: receipt.decision_id,
        names.POLICY: receipt.policy,
        names.PLAN: receipt.plan,
        names.STRATEGY: receipt.strategy,
        names.PROPENSITY: receipt.propensity,
        names.ATTEMPTS: receipt.attempts,
        names.CONFIG_HASH: receipt.config_hash,
        names.COST: None if receipt.usage is None else receipt.cost,
        **_usage(receipt.usage),
    }
    return {name: value for name, value in found.items() if value is not None}


def _of_call(call: UpstreamCall, operation: str | None, *, streams: bool) -> Attributes:
    found: dict[str, Any] = {
        names.OPERATION: operation,
        names.PROVIDER: names.OPENAI,
        names.REQUEST_MODEL: call.model,
        names.STATUS: call.status or None,
        names.ERROR: None if call.outcome == "ok" else call.fault or call.outcome,
        names.FIRST_CHUNK: call.first - call.started if streams and call.first is not None else None,
        names.BACKEND: call.backend,
        names.PURPOSE: call.purpose,
        **_usage(call.usage),
    }
    return {name: value for name, value in found.items() if value is not None}


def _usage(usage: Usage | None) -> Mapping[str, int]:
    if usage is None:
        return {}
    return {names.INPUT_TOKENS: usage.prompt, names.CACHED_TOKENS: usage.cached, names.OUTPUT_TOKENS: usage.completion}
