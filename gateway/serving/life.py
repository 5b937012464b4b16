"""The life of a request, top to bottom: open, admit, resolve, decide, execute, answer, settle.

receipt = open_receipt(gateway, call)             ids first: every answer carries them, errors too
admit(gateway, call, receipt)                     key -> principal, before the body is read
answer = await serve(gateway, call, receipt, body)
answer = refuse(gateway, receipt, error)          an ApiError as an answer
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import parse_qs

from gateway.access.keys import authenticated, require
from gateway.pool.transport import Transport
from gateway.serving.call import Answer, Call, Receipt
from gateway.serving.idempotency import Idempotency
from gateway.serving.ids import DecisionIds, request_id
from gateway.serving.options import Options, options
from gateway.serving.patience import Patience
from gateway.serving.relay import Errand, relay
from gateway.serving.state import RealModel, State, VirtualModel
from gateway.wire import headers as wire_headers
from gateway.wire.errors import JSON, ApiError, model_not_found, retry_after
from gateway.wire.multipart import form_field
from gateway.wire.request import Fields, read
from policies.draw import draw

log = logging.getLogger("trilemma")

COMPLETIONS = frozenset(("/v1/chat/completions", "/v1/completions"))
_OPENAI = COMPLETIONS | {"/v1/embeddings"}
_RELAYED = re.compile(r"/v1(?:/[A-Za-z0-9_][A-Za-z0-9_.:~-]*)+\Z")
# What is the gateway's own to answer.
_OWN = re.compile(r"/v1/(?:files|batches|models|route|decisions|feedback)(?:/|\Z)")
_STAINLESS_SECONDS = re.compile(rb"[0-9]{1,6}(?:\.[0-9]{1,6})?\Z")


@dataclass(slots=True)
class Gateway:
    """What a process holds: the state (swapped whole on reload), the way out, ids, and where receipts go when a request ends."""

    state: State
    transport: Transport
    ids: DecisionIds
    settled: Callable[[Receipt], None]
    draining: bool = False
    idempotency: Idempotency = field(default_factory=Idempotency)


def open_receipt(gateway: Gateway, call: Call) -> Receipt:
    """The receipt of a new call, with its caller if the key is good; cannot fail."""
    principal = authenticated(gateway.state.keys, call.headers)
    decision_id = gateway.ids.mint(principal.tenant if principal is not None else "")
    wished = wire_headers.first(call.headers, b"x-request-id")
    return Receipt(request_id(wished, decision_id), decision_id, call.received, principal)


def admit(gateway: Gateway, call: Call, receipt: Receipt) -> None:
    """Lets the caller in, or raises ApiError."""
    require(receipt.principal, "inference", call.headers)
    if gateway.draining:
        raise ApiError(503, "gateway_draining", "The gateway is shutting down.", headers=retry_after(5.0))
    if call.path in _OPENAI:
        if call.method != "POST":
            raise ApiError(405, "caller_method_not_allowed", "This endpoint takes POST only.", headers=((b"allow", b"POST"),))
    elif not _RELAYED.match(call.path) or _OWN.match(call.path):
        raise ApiError(404, "caller_not_found", "There is no such endpoint.")


async def serve(gateway: Gateway, call: Call, receipt: Receipt, body: bytes) -> Answer:
    """Serves an admitted call. Raises ApiError; cancelling it closes all it opened."""
    key = wire_headers.first(call.headers, b"idempotency-key")
    if key is None or receipt.principal is None:
        return await _run(gateway, call, receipt, body)
    return await gateway.idempotency.once(receipt.principal.key, key, (call.path, body), lambda: _run(gateway, call, receipt, body))


async def _run(gateway: Gateway, call: Call, receipt: Receipt, body: bytes) -> Answer:
    state = gateway.state
    fields, form = _read(state, call, body)
    asked = options(bytes(fields.trilemma), call.headers)
    patience = Patience()
    model = _choose(state, receipt, fields.model or "", asked, patience)
    errand = _errand(call, body, fields, form, patience)
    try:
        answer = await relay(gateway.transport, model, errand, receipt, patience, gateway.settled)
    except asyncio.CancelledError:
        receipt.outcome = "client_closed"
        gateway.settled(receipt)
        raise
    if answer.stream is None:
        gateway.settled(receipt)
    return answer


def refuse(gateway: Gateway, receipt: Receipt, error: ApiError) -> Answer:
    """An error as an answer, with the headers that every answer has."""
    receipt.status = error.status
    if receipt.outcome in (None, "ok"):
        receipt.outcome = "caller_error" if error.status < 500 else "gateway_error"
    gateway.settled(receipt)
    return Answer(error.status, [JSON, *error.headers, *receipt.headers(stream=False)], error.body())


def crashed(gateway: Gateway, receipt: Receipt, error: Exception) -> Answer:
    """A fault of our own: the traceback goes to the log under the request id, the caller gets no more than that id."""
    log.error("request %s failed", receipt.request_id, exc_info=error)
    message = f"The gateway failed; its log has the details under {receipt.request_id}."
    return refuse(gateway, receipt, ApiError(500, "gateway_internal", message))


def _read(state: State, call: Call, body: bytes) -> tuple[Fields, tuple[int, int] | None]:
    """The fields of a JSON body; of a form or a query only the model. The second value is where a form's model stands."""
    kind = wire_headers.first(call.headers, b"content-type") or b""
    span = None
    if kind.lower().startswith(b"multipart/form-data"):
        span = form_field(kind, body, b"model")
        fields = Fields(model=_text(body[span[0] : span[1]]) if span else None)
    elif not body and call.method != "POST":
        fields = Fields(model=parse_qs(call.query.decode("ascii", "replace")).get("model", [None])[0])
        if not fields.model:
            raise ApiError(404, "caller_not_found", "There is no such endpoint, or it lacks `?model=NAME`.", param="model")
    else:
        fields = read(body, state.config.server.max_n)
    if not fields.model:
        raise ApiError(400, "caller_invalid_value", "`model` is missing.", param="model")
    return fields, span


def _choose(state: State, receipt: Receipt, name: str, asked: Options, patience: Patience) -> RealModel:
    """Resolves a name: an alias or a real model is itself, behind a virtual one its policy draws a plan."""
    receipt.requested_model = name
    route = state.names.get(name)
    principal = receipt.principal
    if route is None or principal is None or not principal.may_use(name):
        if name and route is not None:
            raise ApiError(403, "caller_forbidden_model", f"This key may not use the model `{name}`.", param="model")
        raise model_not_found(name)
    if asked.strategy not in (None, "single"):
        raise ApiError(400, "caller_invalid_value", "There is no such strategy.", param="trilemma.strategy")
    wished_ms = asked.deadline_ms
    if isinstance(route, RealModel):
        if asked.policy is not None:
            raise ApiError(400, "caller_invalid_value", "A real model has no policy.", param="trilemma.policy")
        if wished_ms is not None:
            patience.bound(patience.now() + wished_ms / 1e3)
        return route
    cap_ms = route.deadline_ms
    if cap_ms is not None and (wished_ms is None or wished_ms > cap_ms):
        if wished_ms is not None:
            receipt.clipped.append("deadline_ms")
        wished_ms = cap_ms
    if wished_ms is not None:
        patience.bound(patience.now() + wished_ms / 1e3)
    return _decide(state, route, receipt, asked)


def _decide(state: State, route: VirtualModel, receipt: Receipt, asked: Options) -> RealModel:
    policy = route.policy if asked.policy is None else state.policy_for(route, asked.policy)
    decision = draw(policy.propensities(route.plans), policy.floor, receipt.decision_id, policy.seed)
    receipt.policy = policy.name
    receipt.strategy = route.plans[decision.chosen].strategy
    receipt.propensity = decision.propensity
    return route.models[decision.chosen]


def _errand(call: Call, body: bytes, fields: Fields, form: tuple[int, int] | None, patience: Patience) -> Errand:
    """What goes to a replica, and how long it may take."""
    streams = bool(fields.stream)
    completions = call.path in COMPLETIONS
    wants_usage = fields.stream_options is not None and bool(fields.stream_options.include_usage)
    ask_usage = streams and completions and not wants_usage
    seconds = _stainless(call)
    if seconds is not None and not streams:
        patience.bound(patience.now() + seconds)
    return Errand(
        call=call,
        body=body,
        fields=fields,
        form=form,
        ask_usage=ask_usage,
        openai=call.path in _OPENAI,
        idle_s=seconds if streams else None,
    )


def _stainless(call: Call) -> float | None:
    """The client library's own read time-out, seconds: waiting longer than the client does helps nobody."""
    value = wire_headers.first(call.headers, b"x-stainless-read-timeout")
    return float(value) if value is not None and _STAINLESS_SECONDS.match(value) and float(value) > 0 else None


def _text(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None
