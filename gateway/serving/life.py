"""The life of a request, top to bottom: open, admit, resolve, decide, execute, answer, settle.

receipt = open_receipt(gateway, call)             ids first: every answer carries them, errors too
admit(gateway, call, receipt)                     key -> principal, before the body is read
answer = await answered(gateway, receipt, serve(gateway, call, receipt, body))
answer = refuse(gateway, receipt, error)          an ApiError as an answer
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from random import Random
from typing import Any

from gateway.access.failures import FailedKeys
from gateway.access.keys import authenticated, require
from gateway.access.limit import Need
from gateway.access.limits import Limits, Permit
from gateway.pool.transport import Transport
from gateway.serving.call import Answer, Call, Receipt
from gateway.serving.deciding import Deciding, choose
from gateway.serving.decoding import decoded
from gateway.serving.dry_run import told
from gateway.serving.errand import Errand, Onward
from gateway.serving.hearing import Hearing
from gateway.serving.heartbeat import Send, beating
from gateway.serving.idempotency import Idempotency
from gateway.serving.ids import DecisionIds, request_id
from gateway.serving.included import Tell, including, progress, tells_usage
from gateway.serving.needs import need_of, spent
from gateway.serving.options import NONE, Options, options
from gateway.serving.patience import Patience
from gateway.serving.prompt import prompt_of, raws_of
from gateway.serving.reading import fields_of
from gateway.serving.relay import Way, relay
from gateway.serving.replayed import replayed
from gateway.serving.state import Decoding, RealModel, State, VirtualModel
from gateway.wire import headers as wire_headers
from gateway.wire.errors import JSON, ApiError, model_not_found, retry_after
from gateway.wire.request import Fields
from policies.decoding.registry import SINGLE

log = logging.getLogger("trilemma")

COMPLETIONS = frozenset(("/v1/chat/completions", "/v1/completions"))
_OPENAI = COMPLETIONS | {"/v1/embeddings"}
# Where `stream` means server-sent events.
_STREAMING = COMPLETIONS | {"/v1/responses", "/v1/messages"}
_RELAYED = re.compile(r"(?=.{1,1024}\Z)/v1(?:/[A-Za-z0-9_][A-Za-z0-9_.:~-]*)+\Z")
# Not TRACE, which would tell the caller what the backend was sent: the gateway's key for it.
_METHODS = frozenset(("DELETE", "GET", "HEAD", "PATCH", "POST", "PUT"))
# What is the gateway's own to answer.
_OWN = re.compile(r"/v1/(?:files|batches|models|route|decisions|feedback)(?:/|\Z)")
# What engines store belongs to nobody here: all callers share the gateway's one key for it.
_STORED = re.compile(
    r"/v1/(?:responses/(?!(?:input_tokens|compact)\Z).|(?:conversations|videos|threads|assistants|vector_stores|uploads|containers|evals|fine_tuning)(?:/|\Z))"
)
_STORED_CHATS = re.compile(r"/v1/(?:chat/)?completions/")
# While candidates run, a stream is silent for no longer.
_BEAT_S = 5.0
_STAINLESS_SECONDS = re.compile(rb"[0-9]{1,6}(?:\.[0-9]{1,6})?\Z")


@dataclass(slots=True)
class Gateway:
    """What a process holds: the state (swapped whole on reload), the way out, ids, and where receipts go when a request ends. onward: what
    puts calls into a trace; None: nobody asks for spans."""

    state: State
    transport: Transport
    ids: DecisionIds
    settled: Callable[[Receipt], None]
    draining: bool = False
    idempotency: Idempotency = field(default_factory=Idempotency)
    limits: Limits = field(default_factory=Limits)
    failed_keys: FailedKeys = field(default_factory=FailedKeys)
    random: Random = field(default_factory=Random)
    deciding: Deciding = field(default_factory=Deciding)
    onward: Onward | None = None
    hearing: Hearing = field(default_factory=Hearing)

    def settle(self, receipt: Receipt) -> None:
        """A request has ended: its place in the queue is free, and its receipt goes where receipts go."""
        if receipt.slot is not None:
            receipt.slot.release()
        if receipt.permit is not None:
            receipt.permit.close(spent(receipt))
        if not receipt.dry_run:
            self.deciding.ended(receipt)
            self.settled(receipt)


def open_receipt(gateway: Gateway, call: Call) -> Receipt:
    """The receipt of a new call, with its caller if the key is good; cannot fail."""
    principal = authenticated(gateway.state.keys, call.headers)
    decision_id = gateway.ids.mint(principal.tenant if principal is not None else "")
    wished = wire_headers.first(call.headers, b"x-request-id")
    return Receipt(request_id(wished, decision_id), decision_id, call.received, principal, gateway.state.hash, call=call)


def admit(gateway: Gateway, call: Call, receipt: Receipt) -> None:
    """Lets the caller in, or raises ApiError."""
    if receipt.principal is None and call.peer is not None:
        gateway.failed_keys.count(call.peer[0], call.headers, gateway.state.config.limits.failed_keys_per_minute)
    principal = require(receipt.principal, "inference", call.headers)
    receipt.permit = gateway.limits.permit(principal)
    if gateway.draining:
        raise draining()
    if call.path in _OPENAI:
        if call.method != "POST":
            raise ApiError(405, "caller_method_not_allowed", "This endpoint takes POST only.", headers=((b"allow", b"POST"),))
    elif not _may_be_relayed(call):
        raise ApiError(404, "caller_not_found", "There is no such endpoint.")
    elif call.method not in _METHODS:
        allowed = ((b"allow", ", ".join(sorted(_METHODS)).encode()),)
        raise ApiError(405, "caller_method_not_allowed", "This method is not relayed.", headers=allowed)


def _may_be_relayed(call: Call) -> bool:
    """Whether path and query are such that a backend may hear of them."""
    if not _RELAYED.match(call.path) or not call.query.isascii() or _OWN.match(call.path) or _STORED.match(call.path):
        return False
    return call.method == "POST" or not _STORED_CHATS.match(call.path)


async def serve(gateway: Gateway, call: Call, receipt: Receipt, body: bytes) -> Answer:
    """Serves an admitted call. Raises ApiError; cancelling it closes all it opened."""
    key = wire_headers.first(call.headers, b"idempotency-key")
    if key is None or receipt.principal is None or receipt.dry_run:
        return await _run(gateway, call, receipt, body)
    ran = False

    def run() -> Awaitable[Answer]:
        nonlocal ran
        ran = True
        return _run(gateway, call, receipt, body)

    request = f"{call.method} {call.path}?{call.query.decode('latin-1')}"
    try:
        answer = await gateway.idempotency.once(receipt.principal.key, key, (request, body), run)
    except asyncio.CancelledError:
        if not ran:  # it waited for the first of its kind
            receipt.outcome = "client_closed"
            gateway.settle(receipt)
        raise
    if not ran:  # it got that one's answer
        receipt.status = answer.status
        receipt.outcome = "ok" if answer.status < 400 else "caller_error"
        gateway.settle(receipt)
    return answer


async def _run(gateway: Gateway, call: Call, receipt: Receipt, body: bytes) -> Answer:
    state = gateway.state
    receipt.config_hash = state.hash
    fields, form = fields_of(call, body, state.config.server.max_n, openai=call.path in _OPENAI)
    if receipt.permit is not None:
        need = need_of(body if form is None else b"", fields, answers=call.path in _STREAMING)
        if not receipt.permit.take(need):
            await _drawn(gateway, receipt, receipt.permit, need)
    work = _execute(gateway, state, call, receipt, body, fields, form)
    beat_s = state.config.server.heartbeat_s
    if not (beat_s and fields.stream and call.path in _STREAMING):
        return await work
    return await beating(lambda _: answered(gateway, receipt, work), beat_s, receipt)


async def _drawn(gateway: Gateway, receipt: Receipt, permit: Permit, need: Need) -> None:
    """Waits until the request has what it needs of limits that several processes share. Raises ApiError 429."""
    begun = time.perf_counter()
    try:
        await permit.drawn(need)
    except asyncio.CancelledError:
        receipt.outcome = "gateway_error" if gateway.draining else "client_closed"
        gateway.settle(receipt)
        raise
    finally:
        receipt.waited += time.perf_counter() - begun


async def _execute(
    gateway: Gateway, state: State, call: Call, receipt: Receipt, body: bytes, fields: Fields, form: tuple[int, int] | None
) -> Answer:
    asked = options(bytes(fields.trilemma), call.headers)
    receipt.session, receipt.tags, receipt.learn = asked.session_id, asked.tags, asked.learn is not False
    receipt.dry_run = receipt.dry_run or asked.dry_run is True
    if receipt.principal is not None and receipt.principal.tags is not None:
        receipt.tags = {**(asked.tags or {}), **receipt.principal.tags}
    patience = Patience()
    model, decoding = await _choose(gateway, state, receipt, fields, asked, patience)
    if receipt.dry_run:
        gateway.settle(receipt)
        return told(state, receipt)
    errand = _errand(gateway, call, receipt, body, fields, form, asked, patience)
    receipt.words = gateway.hearing.words(state.config, receipt, errand)
    way = Way(gateway.transport, patience, gateway.settle, gateway.random)
    if decoding is None:
        return await _ended(gateway, receipt, relay(way, model, errand, receipt))
    include = asked.include or ()
    turns = prompt_of(fields, raws_of(fields), "", None).turns

    def work(tell: Tell | None) -> Awaitable[Answer]:
        found = decoded(decoding, way, model, errand, receipt, turns, tell)
        return including(_ended(gateway, receipt, found), receipt, include)

    if not fields.stream:
        return await work(None)
    wants_usage = tells_usage(include) or (fields.stream_options is not None and bool(fields.stream_options.include_usage))

    def streamed(send: Send) -> Coroutine[Any, Any, Answer]:
        tell = progress(receipt, fields.model or "", send) if "progress" in include else None
        return answered(gateway, receipt, _streamed(work(tell), receipt, wants_usage=wants_usage))

    return await beating(streamed, state.config.server.heartbeat_s or _BEAT_S, receipt)


async def _ended(gateway: Gateway, receipt: Receipt, work: Awaitable[Answer]) -> Answer:
    """What `work` gives; the request has ended with it, unless that is a stream."""
    try:
        answer = await work
    except asyncio.CancelledError:
        receipt.outcome = "gateway_error" if gateway.draining else "client_closed"
        gateway.settle(receipt)
        raise
    if answer.stream is None:
        gateway.settle(receipt)
    return answer


async def _streamed(work: Awaitable[Answer], receipt: Receipt, *, wants_usage: bool) -> Answer:
    return replayed(await work, receipt, wants_usage=wants_usage)


async def answered(gateway: Gateway, receipt: Receipt, work: Awaitable[Answer]) -> Answer:
    """What `work` gives; what it raises as an answer too."""
    try:
        return await work
    except ApiError as error:
        return refuse(gateway, receipt, error)
    except Exception as error:
        return crashed(gateway, receipt, error)


def refuse(gateway: Gateway, receipt: Receipt, error: ApiError) -> Answer:
    """An error as an answer, with the headers that every answer has."""
    receipt.status, receipt.code = error.status, error.code
    if receipt.outcome in (None, "ok"):
        if error.status < 500:
            receipt.outcome = "caller_error"
        else:
            receipt.outcome = "backend_error" if error.code.startswith("backend_") else "gateway_error"
    answer = Answer(error.status, [JSON, *error.headers, *receipt.headers(stream=False)], error.body())
    gateway.settle(receipt)
    return answer


def stopped(receipt: Receipt) -> Answer:
    """An answer for a request that a shutdown cancelled, and so settled."""
    error = draining()
    return Answer(error.status, [JSON, *error.headers, *receipt.headers(stream=False)], error.body())


def draining() -> ApiError:
    """What a caller is told whom a shutdown turns away, or cuts off."""
    return ApiError(503, "gateway_draining", "The gateway is shutting down.", headers=retry_after(5.0))


def crashed(gateway: Gateway, receipt: Receipt, error: Exception) -> Answer:
    """A fault of our own as an answer."""
    return refuse(gateway, receipt, fault(receipt, error))


def fault(receipt: Receipt, error: Exception) -> ApiError:
    """What a caller is told of a fault of our own: no more than an id, under which the log has the traceback."""
    ids = {"request_id": receipt.request_id, "decision_id": receipt.decision_id}
    log.error("request %s failed", receipt.request_id, exc_info=error, extra=ids)
    message = f"The gateway failed; its log has the details under {receipt.request_id}."
    return ApiError(500, "gateway_internal", message)


async def _choose(
    gateway: Gateway, state: State, receipt: Receipt, fields: Fields, asked: Options, patience: Patience
) -> tuple[RealModel, Decoding | None]:
    """Resolves a name: an alias or a real model is itself, behind a virtual one its policy draws a plan. None: one plain call."""
    name = fields.model or ""
    receipt.requested_model = name
    route = state.names.get(name)
    principal = receipt.principal
    if route is None or principal is None or not principal.may_use(name):
        if name and route is not None:
            raise ApiError(403, "caller_forbidden_model", f"This key may not use the model `{name}`.", param="model")
        raise model_not_found(name)
    if isinstance(route, VirtualModel):
        policy = route.policy if asked.policy is None else state.policy_for(route, asked.policy)
        model = await choose(gateway.deciding, route, policy, receipt, fields, asked)
        decoding = route.decoding_of(receipt.plan) if receipt.strategy != SINGLE else None
    else:
        decoding = None
        for option in () if asked is NONE else ("policy", "max_cost", "budget_tokens", "preference", "reasoning"):
            if getattr(asked, option) is not None:
                message = f"`trilemma.{option}` is for virtual models: a real one is asked as it is."
                raise ApiError(400, "caller_invalid_value", message, param=f"trilemma.{option}")
        if asked.strategy not in (None, SINGLE):
            raise ApiError(400, "caller_invalid_value", "There is no such strategy.", param="trilemma.strategy")
        model = route
    wished_ms = asked.deadline_ms
    cap_ms = model.deadline_ms if route.deadline_ms is None else route.deadline_ms
    if cap_ms is not None and (wished_ms is None or wished_ms > cap_ms):
        if wished_ms is not None:
            receipt.clipped.append("deadline_ms")
        wished_ms = cap_ms
    if wished_ms is not None:
        patience.bound(patience.now() + wished_ms / 1e3)
    return model, decoding


def _errand(
    gateway: Gateway,
    call: Call,
    receipt: Receipt,
    body: bytes,
    fields: Fields,
    form: tuple[int, int] | None,
    asked: Options,
    patience: Patience,
) -> Errand:
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
        may_stand_in=call.path in _STREAMING,
        idle_s=seconds if streams else None,
        session=asked.session_id,
        onward=gateway.onward,
        choice=receipt.choice,
    )


def _stainless(call: Call) -> float | None:
    """The client library's own read time-out, seconds: waiting longer than the client does helps nobody."""
    value = wire_headers.first(call.headers, b"x-stainless-read-timeout")
    return float(value) if value is not None and _STAINLESS_SECONDS.match(value) and float(value) > 0 else None
