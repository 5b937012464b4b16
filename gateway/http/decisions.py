"""Decisions, as those who asked for them see them: the receipt, what they say of the answer, and what would be decided."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from functools import partial
from time import monotonic, time
from typing import Final, TypeVar

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from gateway.access.keys import Principal, require
from gateway.access.limit import Need
from gateway.access.limits import Permit
from gateway.http import decision_shapes as shapes
from gateway.http import schema
from gateway.http.admin.asked import body_of, fields_of
from gateway.http.routes import FromCore, caller, gateway_of, identified
from gateway.serving import decision
from gateway.serving.feedback import FIELDS, FeedbackBox, said
from gateway.serving.ids import FORM, minted_at
from gateway.store import queries
from gateway.store.database import Database
from gateway.store.queries import Found
from gateway.store.writer import StoreError
from gateway.wire.errors import NO_RETRY, ApiError, retry_after

T = TypeVar("T")

router = APIRouter(prefix="/v1", tags=["decisions"], dependencies=[schema.KEYED])

_CHAT: Final = "/v1/chat/completions"
_MAX_FEEDBACK: Final = 65_536
_DAY_S: Final = 86_400.0
_NOTHING: Final = Need(0, 0)
# A row is stored a quarter of a second after its request has ended, as long as the database is well.
_WAIT_S: Final = 0.75
_LOOK_S: Final = 0.15
_AWAY_S: Final = 2.0


@router.get(
    "/decisions/{decision_id}",
    operation_id="get_decision",
    summary="What was decided for a request, and what came of it",
    responses=schema.documented(shapes.DECISION),
    openapi_extra=dict(shapes.DECISION_ID),
)
async def one(request: Request) -> JSONResponse:
    """Of the key's own tenant; a key of scope `admin` sees all. A request that has just ended is waited for."""
    principal = _reader(request)
    async with limited(request, principal) as permit:
        found = await _found(request, principal, request.path_params["decision_id"])
    return JSONResponse(decision.of_record(gateway_of(request).state, found), headers=_limits(permit))


@router.post(
    "/feedback",
    operation_id="give_feedback",
    summary="Say how good an answer was",
    status_code=202,
    responses=schema.documented(shapes.FEEDBACK),
    openapi_extra=dict(shapes.FEEDBACK_BODY),
)
async def feedback(request: Request) -> JSONResponse:
    """From the moment on in which the answer's head is there. Of a key, the newest word on a decision and metric counts."""
    principal = caller(request, "inference")
    gateway = gateway_of(request)
    async with limited(request, principal) as permit:
        fields = fields_of(await body_of(request, _MAX_FEEDBACK), *FIELDS, "response_id")
        if fields.get("response_id") is not None:
            message = "Answers are not kept by their own ids: give `decision_id`, the answer's `x-trilemma-decision-id`."
            raise ApiError(400, "caller_invalid_value", message, param="response_id")
        word = said(fields)
        box: FeedbackBox | None = request.scope["state"]["feedback"]
        if not gateway.ids.is_genuine(word.decision_id, principal.tenant) or _is_gone(
            gateway.state.config.storage.keep_days, word.decision_id
        ):
            raise _unknown("There is no such decision.")
        if box is None:
            raise _no_database()
        taken = box.take(principal, word, gateway.state.config.feedback.per_key_per_hour)
    return JSONResponse({"object": "feedback", "id": taken.id, "status": taken.status}, 202, headers=_limits(permit))


@router.post(
    "/route",
    operation_id="route",
    summary="What would be decided for a chat",
    responses=schema.documented(shapes.ROUTE),
    openapi_extra=dict(shapes.ROUTE_BODY),
    response_class=Response,
)
async def route(request: Request) -> Response:
    """By the same code as for the chat itself, and nothing is called or kept. It counts as a request."""
    return FromCore(gateway_of(request), dry_run_of=_CHAT)


def database_of(request: Request) -> Database:
    """Where decisions are kept. Raises ApiError 503 when they are not."""
    database: Database | None = request.scope["state"]["database"]
    if database is None:
        raise _no_database()
    return database


async def asked(answer: Awaitable[T]) -> T:
    """What the database answers. Raises ApiError 503 when it does not."""
    try:
        return await answer
    except StoreError as error:
        message = f"The database cannot be asked now: {error}."
        raise ApiError(503, "gateway_storage_unavailable", message, headers=retry_after(_AWAY_S)) from None


@asynccontextmanager
async def limited(request: Request, principal: Principal) -> AsyncIterator[Permit | None]:
    """Counts it as a request of its caller, that uses no tokens. Raises ApiError 429."""
    permit = gateway_of(request).limits.permit(principal)
    if permit is None:
        yield None
        return
    try:
        if not permit.take(_NOTHING):
            await permit.drawn(_NOTHING)
        yield permit
    finally:
        permit.close(0)


def _reader(request: Request) -> Principal:
    principal = identified(request)
    scope = "admin" if principal is not None and "admin" in principal.scopes else "inference"
    return require(principal, scope, request.scope["headers"])


async def _found(request: Request, principal: Principal, id_: str) -> Found:
    """Raises ApiError 404: of an id that was never given out, without a question to the database."""
    gateway = gateway_of(request)
    genuine = gateway.ids.is_genuine(id_, principal.tenant)
    tenant: str | None = principal.tenant
    if "admin" in principal.scopes:
        tenant = None
        genuine = genuine or any(gateway.ids.is_genuine(id_, each) for each in {known.tenant for known in gateway.state.keys.values()})
        if FORM.match(id_) is None:
            raise _unknown("There is no such decision.")
    elif not genuine:
        raise _unknown("There is no such decision.")
    database = database_of(request)
    deadline = monotonic() + (_WAIT_S if genuine else 0.0)
    while (found := await asked(database.read(partial(queries.decision, id_=id_, tenant=tenant)))) is None:
        if monotonic() >= deadline:
            raise _unknown("There is no such decision, or its request has not ended yet.")
        await asyncio.sleep(_LOOK_S)
    return found


def _is_gone(keep_days: float | None, decision_id: str) -> bool:
    return keep_days is not None and minted_at(decision_id) < time() - keep_days * _DAY_S


def _limits(permit: Permit | None) -> dict[str, str]:
    return {} if permit is None else {name.decode(): value.decode() for name, value in permit.headers()}


def _unknown(message: str) -> ApiError:
    return ApiError(404, "caller_not_found", message, param="decision_id")


def _no_database() -> ApiError:
    message = "This gateway keeps no decisions: `storage.url` is empty in its configuration."
    return ApiError(503, "gateway_storage_unavailable", message, headers=(NO_RETRY,))
