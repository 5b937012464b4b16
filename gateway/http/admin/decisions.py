"""`/admin/decisions`: what was decided, newest first, and erasing what is kept of a tenant or a session."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from time import monotonic
from typing import Any, Final, get_args

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse

from gateway.http import decision_shapes as shapes
from gateway.http import schema
from gateway.http.admin.asked import limit_of, moment, query_of, wrong
from gateway.http.admin.trails import noted
from gateway.http.decisions import asked, database_of
from gateway.http.routes import caller, gateway_of
from gateway.serving.call import Outcome
from gateway.serving.decision import tags, usage
from gateway.store import queries
from gateway.store.erasure import erase
from gateway.store.queries import Place, Record, Wanted
from gateway.store.writer import StoreError, Writer

router = APIRouter(prefix="/admin/decisions", tags=["admin"], dependencies=[schema.KEYED])

_NAMES: Final = ("tenant", "key", "model", "policy", "outcome", "session")
_LONGEST: Final = 1_000
_FLUSH_S: Final = 10.0
_LOOK_S: Final = 0.05
# By then whatever another process had in hand is in the database, too.
_OTHERS_S: Final = 0.5


@router.get(
    "",
    operation_id="list_decisions",
    summary="Decisions, the newest first",
    responses=schema.documented(shapes.LIST),
    openapi_extra=dict(shapes.LIST_QUERY),
)
async def listed(request: Request) -> JSONResponse:
    """A page; with the same filters and `cursor`, the next one."""
    caller(request, "admin")
    query = query_of(request, *_NAMES, "since", "until", "limit", "cursor")
    names = {name: _name(query, name) for name in _NAMES}
    if names["outcome"] is not None and names["outcome"] not in get_args(Outcome):
        raise wrong("outcome", f"should be one of {', '.join(get_args(Outcome))}")
    limit, after = limit_of(query), _place(query)
    since, until = moment(query, "since"), moment(query, "until")
    session = names["session"]
    if session is not None:
        found = await _sessions(request, names["tenant"], session)
        if len(found) > 1:
            raise wrong("session", "is one of several tenants: name the `tenant`")
        session = found[0] if found else session
    wanted = Wanted(names["tenant"], names["key"], names["model"], names["policy"], names["outcome"], session, since, until)
    page = await asked(database_of(request).read(partial(queries.page, wanted=wanted, after=after, limit=limit)))
    following = None if page.next is None else str(page.next)
    data = [_summary(row) for row in page.rows]
    return JSONResponse({"object": "list", "data": data, "next": following})


@router.delete(
    "",
    operation_id="erase_decisions",
    summary="Erase what is kept of a tenant or a session",
    responses=schema.documented(shapes.ERASED),
    openapi_extra=dict(shapes.ERASE_QUERY),
)
async def erased(request: Request) -> JSONResponse:
    """Decisions, calls, outcomes, feedback and contents, in small batches. Requests that still run leave a row when they end."""
    principal = caller(request, "admin")
    query = query_of(request, "tenant", "session")
    tenant, session = _name(query, "tenant"), _name(query, "session")
    if tenant is None and session is None:
        raise wrong("tenant", "or `session` is missing")
    database = database_of(request)
    await asked(_stored(request))
    sessions = [None] if session is None else await _sessions(request, tenant, session)
    noted(request, principal, "decisions.erase", _target(tenant, sessions))
    gone: Counter[str] = Counter(dict.fromkeys(("decisions", "calls", "outcomes", "feedback", "contents"), 0))
    for again in (False, True) if _has_others(request) else (False,):
        if again:
            await asyncio.sleep(_OTHERS_S)
        for each in sessions:
            gone.update(await asked(erase(database, tenant=tenant, session=each)))
    noted(request, principal, "decisions.erased", _target(tenant, sessions), detail=dict(gone))
    return JSONResponse({"object": "erasure", "deleted": dict(gone)})


def _name(query: Mapping[str, str], name: str) -> str | None:
    """A filter's value. Raises ApiError 400 for what no row holds, and PostgreSQL does not even take."""
    value = query.get(name)
    if value is not None and not (0 < len(value) <= _LONGEST and "\0" not in value):
        raise wrong(name, f"should hold 1 to {_LONGEST} characters")
    return value


def _place(query: Mapping[str, str]) -> Place | None:
    cursor = query.get("cursor")
    try:
        if cursor is None or "\0" not in cursor:
            return None if cursor is None else Place.read(cursor)
    except ValueError:
        pass
    raise wrong("cursor", "should be `next` of the page before")


async def _sessions(request: Request, tenant: str | None, session: str) -> Sequence[str]:
    """What stands for the session in rows: in the tenant, or in any that a key belongs to; or that is what was given."""
    pseudonym: Callable[[str, str], str] = request.scope["state"]["pseudonym"]
    tenants = {known.tenant for known in gateway_of(request).state.keys.values()} if tenant is None else {tenant}
    named = [session, *(pseudonym(each, session) for each in sorted(tenants))]
    return await asked(database_of(request).read(partial(queries.known_sessions, named=named)))


async def _stored(request: Request) -> None:
    """Waits until all rows that wait now are in the database. Raises StoreError when they do not get there."""
    writer: Writer = request.scope["state"]["writer"]
    deadline = monotonic() + _FLUSH_S
    rounds = writer.rounds + 2  # a round that is just ending may have missed the last of them
    while writer.waiting and writer.rounds < rounds:
        if monotonic() >= deadline:
            raise StoreError(writer.trouble or "too many rows wait for it")
        await asyncio.sleep(_LOOK_S)


def _has_others(request: Request) -> bool:
    """Whether other processes may have rows in hand."""
    config = gateway_of(request).state.config
    return config.server.workers > 1 or not config.storage.url.startswith("sqlite:")


def _target(tenant: str | None, sessions: Sequence[str | None]) -> str:
    """For the audit log: never a session's own name."""
    parts = [] if tenant is None else [f"tenant {tenant}"]
    return ", ".join(parts + [f"session {each}" for each in sessions if each is not None]) or "session that is not known"


def _summary(row: Record) -> dict[str, Any]:
    return {
        "id": row["id"],
        "object": "decision",
        "created": int(row["created"]),
        "tenant": row["tenant"],
        "key": row["key_name"],
        "requested_model": row["requested_model"],
        "served_model": row["served_model"],
        "backend": row["backend"],
        "policy": {"name": row["policy"], "version": row["policy_version"]},
        "plan": row["plan"],
        "strategy": row["strategy"],
        "propensity": row["propensity"],
        "explored": bool(row["explored"]),
        "attempts": row["attempts"],
        "status": row["status"],
        "result": row["outcome"],
        "code": row["code"],
        "usage": usage(row),
        "cost": row["cost_usd"],
        "latency_ms": row["latency_s"] * 1e3,
        "session": row["session"],
        "tags": tags(row),
        "config_hash": row["config_hash"],
        "request_id": row["request_id"],
    }
