"""`/admin/keys`: the database's keys, made, altered and revoked while the gateway runs; and those of the configuration, to be seen.

Only digests are kept: a new key is in the answer to its making, and nowhere else.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse

from gateway.access import register
from gateway.access.access import Access
from gateway.access.fresh import digest, new_key
from gateway.access.register import Taken, Wrong
from gateway.config.schema import Key, Rules
from gateway.http import schema
from gateway.http.admin import key_shapes as shapes
from gateway.http.admin.asked import body_of, limit_of, place_of, query_of
from gateway.http.decisions import asked, database_of
from gateway.http.request_ids import REQUEST_ID
from gateway.http.routes import caller, gateway_of
from gateway.store.keys import StoredKey, get_key, list_keys
from gateway.store.queries import Place
from gateway.wire.errors import ApiError, shown
from gateway.wire.request import json_object

router = APIRouter(prefix="/admin/keys", tags=["admin"], dependencies=[schema.KEYED])

_MAX_BODY: Final = 16_384


@router.get(
    "",
    operation_id="list_keys",
    summary="Every key, but never the key itself",
    responses=schema.documented(shapes.LIST),
    openapi_extra=dict(shapes.LIST_QUERY),
)
async def listed(request: Request) -> JSONResponse:
    """Those of the database page by page, those of the configuration with each."""
    caller(request, "admin")
    query = query_of(request, "limit", "cursor")
    limit, after = limit_of(query), place_of(query)
    keys = await asked(database_of(request).read(list_keys))
    places = [(Place(key.created, key.id), key) for key in reversed(keys)]
    page = [each for each in places if after is None or each[0] < after]
    following = str(page[limit - 1][0]) if len(page) > limit else None
    configured = [card(key) for key in gateway_of(request).state.config.keys]
    data = [card(key) for _, key in page[:limit]]
    return JSONResponse({"object": "list", "data": data, "next": following, "configured": configured})


@router.post(
    "",
    operation_id="create_key",
    summary="Make a key; it is shown once",
    status_code=201,
    responses=schema.documented(shapes.NEW),
    openapi_extra=dict(shapes.NEW_BODY),
)
async def new(request: Request) -> JSONResponse:
    """Properties are those of a key in the configuration. It counts here at once, in every other process within two seconds."""
    principal = caller(request, "admin")
    database = database_of(request)
    fields = _fields(await body_of(request, _MAX_BODY))
    secret = new_key()
    key = _well(lambda: register.asked(fields, time.time(), digest=digest(secret)))
    if any(key.name == known.name for known in gateway_of(request).state.config.keys):
        raise _taken(key.name)
    try:
        await asked(database.run(partial(register.made, key=key, by=principal.key, detail=_detail(request))))
    except Taken:
        raise _taken(key.name) from None
    await _access(request).look()
    return JSONResponse(card(key) | {"key": secret}, 201, headers={"cache-control": "no-store"})


@router.get(
    "/{key_id}",
    operation_id="get_key",
    summary="One key of the database",
    responses=schema.documented(shapes.ONE),
    openapi_extra={"parameters": [shapes.KEY_ID]},
)
async def one(request: Request) -> JSONResponse:
    """By its id."""
    caller(request, "admin")
    return _answer(await asked(database_of(request).read(partial(get_key, id_=_id(request)))))


@router.patch(
    "/{key_id}",
    operation_id="change_key",
    summary="Change what a key may do, until when, and how much",
    responses=schema.documented(shapes.CHANGED),
    openapi_extra=dict(shapes.CHANGE_BODY),
)
async def change(request: Request) -> JSONResponse:
    """What is not named stays; its name always does. Of `limits`, those that are named change, and null takes one away."""
    principal = caller(request, "admin")
    database = database_of(request)
    id_ = _id(request)
    fields = _fields(await body_of(request, _MAX_BODY))
    now = time.time()

    def changed(before: StoredKey) -> StoredKey:
        return register.asked(fields, now, before)

    work = partial(register.altered, id_=id_, change=changed, by=principal.key, now=now, detail=_detail(request))
    try:
        key = await asked(database.run(work))
    except Wrong as wrong:
        raise _bad(wrong) from None
    await _access(request).look()
    return _answer(key)


@router.delete(
    "/{key_id}",
    operation_id="revoke_key",
    summary="Revoke a key, for good",
    responses=schema.documented(shapes.REVOKED),
    openapi_extra={"parameters": [shapes.KEY_ID]},
)
async def revoke(request: Request) -> JSONResponse:
    """Requests that run go on. Its row stays, and so does its name: what it did is still its own."""
    principal = caller(request, "admin")
    work = partial(register.revoked, id_=_id(request), by=principal.key, now=time.time(), detail=_detail(request))
    key = await asked(database_of(request).run(work))
    await _access(request).look()
    return _answer(key)


def card(key: StoredKey | Key) -> dict[str, Any]:
    """A key as the admin API tells of it."""
    if isinstance(key, StoredKey):
        stored, limits, expires = key, _limits(key), key.expires
    else:
        stored, limits, expires = None, _limits(key.limits), key.expires_at
    revoked = None if stored is None else stored.revoked
    state = "good" if expires is None or expires > time.time() else "expired"
    return {
        "object": "key",
        "id": None if stored is None else stored.id,
        "name": key.name,
        "scopes": list(key.scopes),
        "tenant": key.tenant,
        "models": list(key.models),
        "tags": dict(key.tags),
        "priority": key.priority,
        "limits": limits,
        "expires": expires,
        "state": state if revoked is None else "revoked",
        "created": None if stored is None else stored.created,
        "revoked": revoked,
    }


def _limits(of: StoredKey | Rules) -> dict[str, int | None]:
    return {"rpm": of.rpm, "tpm": of.tpm, "concurrency": of.concurrency}


def _answer(key: StoredKey | None) -> JSONResponse:
    if key is None:
        raise ApiError(404, "caller_not_found", "There is no such key in the database.", param="key_id")
    return JSONResponse(card(key))


def _id(request: Request) -> str:
    id_: str = request.path_params["key_id"]
    if "\0" in id_:
        raise ApiError(404, "caller_not_found", "There is no such key in the database.", param="key_id")
    return id_


def _fields(body: bytes) -> dict[str, Any]:
    fields = json_object(body)
    if fields is None:
        raise ApiError(400, "caller_invalid_json", "The request body is not a JSON object.")
    if not fields:
        raise ApiError(400, "caller_invalid_value", "Name at least one property.")
    return fields


def _well(work: Callable[[], StoredKey]) -> StoredKey:
    try:
        return work()
    except Wrong as wrong:
        raise _bad(wrong) from None


def _bad(wrong: Wrong) -> ApiError:
    where = shown(wrong.where)
    if wrong.unknown:
        return ApiError(400, "caller_unknown_parameter", f"Unknown parameter `{where}`.", param=where)
    return ApiError(400, "caller_invalid_value", f"{shown(str(wrong))}.", param=where)


def _taken(name: str) -> ApiError:
    return ApiError(409, "caller_invalid_value", f"There is a key `{shown(name)}` already, or was one.", param="name")


def _detail(request: Request) -> dict[str, Any]:
    return {"request_id": request.scope[REQUEST_ID]}


def _access(request: Request) -> Access:
    access: Access = request.scope["state"]["access"]
    return access
