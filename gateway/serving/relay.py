"""The relay: a request to one replica of a model after another, then to the models that may stand in, until one has an answer.

    for each model, the one asked for first
        wait for a place in its queue
        for each replica, until the budget of attempts is spent
            an answer, or a refusal that is the caller's own fault   -> that is the answer
            a prompt longer than the context                         -> once, a model with a larger one
            anything else                                            -> the next replica, the next model

`stand_ins` names each model once, so every one is tried once at most. When nothing serves, the caller hears what the model that it asked
for said.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from dataclasses import replace
from random import Random

import msgspec

from gateway.pool.replicas import NoneLive
from gateway.pool.transport import Transport
from gateway.serving.admission import Admission, NotAdmitted
from gateway.serving.attempt import attempt
from gateway.serving.begun import Begun
from gateway.serving.call import Answer, Receipt, UpstreamCall
from gateway.serving.errand import Errand
from gateway.serving.hedged import hedged
from gateway.serving.patience import DeadlinePassed, Patience
from gateway.serving.retry import Failure
from gateway.serving.state import RealModel
from gateway.serving.streams import Settle
from gateway.wire.errors import NO_RETRY, ApiError, retry_after


class Way(msgspec.Struct, frozen=True):
    """What a request is run with. patience: its deadline. settle: told once, when a stream that answers it has ended."""

    transport: Transport
    patience: Patience
    settle: Settle
    random: Random


async def relay(way: Way, model: RealModel, errand: Errand, receipt: Receipt) -> Answer:
    """Sends the request to one replica after another, until one answers. Raises ApiError.

    Unless a stream is returned, nothing is left open. A stream is returned with its first bytes at hand, so all that can fail before the
    caller hears anything has failed by then, and was tried elsewhere.
    """
    told: ApiError | Begun | None = None
    models: Sequence[RealModel] = (model, *model.stand_ins) if errand.may_stand_in else (model,)
    while models:
        current, models = models[0], models[1:]
        # A stand-in that could serve has an attempt kept for it.
        kept = sum(each.replicas.any_live for each in models)
        outcome = await _on(current, way, errand, receipt, model.retry.attempts - kept, patient=not kept)
        if isinstance(outcome, Begun):
            larger = _larger(current, models) if outcome.overflow and len(receipt.calls) < model.retry.attempts else None
            if larger is not None:
                models = (larger,)  # and no other: too long a prompt is tried once more, not once for each
                told = told or outcome
            elif told is None or outcome.call.outcome != "caller_error":
                return _taken(outcome, way, receipt)
            # Else what a stand-in refuses, the model that was asked for might have taken: another may too.
        else:
            told = told or outcome.told
            if not outcome.elsewhere:
                break
        if len(receipt.calls) >= model.retry.attempts:
            break
    assert told is not None, "at least one model was tried"
    receipt.served_model, receipt.rates = model.public, model.rates
    way.patience.close()
    if isinstance(told, ApiError):
        receipt.backend = next((call.backend for call in reversed(receipt.calls) if call.model == model.public), None)
        raise told
    return _taken(told, way, receipt)


async def apart(way: Way, model: RealModel, errand: Errand, whole: Receipt) -> tuple[Answer, Receipt]:
    """A call among others of the same request: the answer, and a receipt of its own. Its calls stand on the whole one, whatever comes of
    it. Raises ApiError."""
    part = Receipt(whole.request_id, whole.decision_id, whole.received, whole.principal, whole.config_hash)
    try:
        return await relay(way, model, errand, part), part
    finally:
        if part.slot is not None:
            part.slot.release()
        whole.calls += part.calls
        whole.attempts += part.attempts


async def _on(model: RealModel, way: Way, errand: Errand, receipt: Receipt, upto: int, *, patient: bool) -> Begun | Failure:
    """Tries the replicas of one model, once at least, until the request has made `upto` calls.

    patient: nobody else can serve, so one that cools down is tried before its time, and when all have failed, one that asked for it is
    waited for.
    """
    receipt.served_model, receipt.rates = model.public, model.rates
    if receipt.slot is not None:  # that of a model that has failed
        receipt.slot.release()
        receipt.slot = None
    if model.admission is not None:
        refused = await _wait_for_turn(model.admission, way.patience, receipt)
        if refused is not None:
            return Failure(refused, elsewhere=True)
    tried: set[str] = set()
    last: Failure | None = None
    while True:
        try:
            backend = model.replicas.pick(tried, errand.session, errand.prompt, errand.salt, early=patient)
        except NoneLive as none:
            if last is None:
                return Failure(_none_live(none), elsewhere=True)
            wait = model.retry.wait_s(last.retry_after_s, way.patience.left_s(), way.random) if patient else None
            if wait is None:
                return last
            await asyncio.sleep(wait)
            receipt.waited += wait
            tried.clear()
            last = replace(last, retry_after_s=None)  # it has been waited for: if none may serve now either, that was all
            continue
        tried.add(backend.name)
        receipt.backend = backend.name
        calls = len(receipt.calls)
        try:
            if model.hedging is None or not errand.openai or calls + 1 >= upto:
                outcome = await attempt(way.transport, way.patience, backend, model, errand, receipt)
            else:
                outcome = await hedged(way.transport, way.patience, backend, model, model.hedging, errand, receipt, tried)
        finally:
            receipt.waited += _waited(receipt.calls[calls:])
        if isinstance(outcome, Begun):
            return outcome
        last = outcome
        if not outcome.elsewhere or len(receipt.calls) >= upto:
            return last


def _waited(calls: Sequence[UpstreamCall]) -> float:
    """Seconds from the first of these calls until the answer was at hand."""
    return max([call.first - calls[0].started for call in calls if call.first is not None], default=0.0)


def _larger(model: RealModel, others: Sequence[RealModel]) -> RealModel | None:
    """The first of the others that is known to hold more than the model does."""
    held = model.held_context()
    return next((each for each in others if (each.held_context() or 0) > (held or math.inf)), None)


def _taken(begun: Begun, way: Way, receipt: Receipt) -> Answer:
    """The answer of the request, with the headers that every answer has."""
    call = begun.call
    receipt.backend, receipt.status = call.backend, begun.status
    receipt.usage = call.usage
    receipt.outcome = "backend_error" if call.outcome == "cancelled" else call.outcome or "ok"
    headers = begun.headers
    if receipt.permit is not None:  # the limits that count for this caller are the gateway's
        headers = [header for header in headers if not header[0].startswith(b"x-ratelimit-")]
    if begun.stream is None:
        if receipt.words is not None:
            receipt.words.hear(begun.body)
        return Answer(begun.status, headers + receipt.headers(stream=False), begun.body)
    begun.stream.own(receipt, way.settle)
    return Answer(begun.status, headers + receipt.headers(stream=True), stream=begun.stream)


async def _wait_for_turn(admission: Admission, patience: Patience, receipt: Receipt) -> ApiError | None:
    """Takes a place in the model's queue; else the 503 with the time after which there likely is one. Raises ApiError 504, too late."""
    assert receipt.principal is not None, "an admitted call has its caller"
    begun = time.perf_counter()
    try:
        with patience.within(math.inf):
            receipt.slot = await admission.enter(receipt.principal.tenant, receipt.principal.priority)
    except NotAdmitted as refused:
        return ApiError(503, "gateway_overloaded", str(refused), headers=retry_after(refused.retry_after_s))
    except DeadlinePassed:
        raise ApiError(504, "gateway_deadline", "The request's deadline passed.", headers=(NO_RETRY,)) from None
    finally:
        patience.close()  # whoever leaves the queue here may never come to an exchange, which would
        receipt.waited += time.perf_counter() - begun
    return None


def _none_live(none: NoneLive) -> ApiError:
    if none.wait_s is None:
        return ApiError(503, "backend_unavailable", "No backend serves this model now.", headers=retry_after(30.0))
    return ApiError(503, "backend_unavailable", "Every backend of this model is cooling down.", headers=retry_after(none.wait_s))
